"""The gate of the merge base: its own gate files, baselines and ini files judge the traces of a branch, in a process
in which nothing of the branch runs.

:mod:`~pytest_nsys.merge_base.base_files` takes its files out of git, :mod:`~pytest_nsys.merge_base.judge_process` runs
pytest on them, :mod:`~pytest_nsys.merge_base.base_verdict` says what came of it.
"""
