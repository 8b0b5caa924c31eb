"""How does a branch do under the gate files, baselines and ini files of its merge base, judged without running its
code?

:mod:`~pytest_nsys.merge_base.base_files` reads the merge base's files from git,
:mod:`~pytest_nsys.merge_base.judge_process` runs pytest on them, :mod:`~pytest_nsys.merge_base.base_verdict` holds the
result.
"""
