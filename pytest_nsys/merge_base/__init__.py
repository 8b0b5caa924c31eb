"""What do the gate files, baselines and ini files of the merge base say of a branch, judged where none of its code
runs?

:mod:`~pytest_nsys.merge_base.base_files` reads its files from git, :mod:`~pytest_nsys.merge_base.judge_process` runs
pytest on them, :mod:`~pytest_nsys.merge_base.base_verdict` says what came of it.
"""
