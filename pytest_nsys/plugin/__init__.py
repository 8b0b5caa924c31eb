"""pytest: nodes, hooks, fixtures. The entry point ``pytest11`` names this module."""

from pytest_nsys.plugin.hooks import (
    nsys_gate,
    nsys_run,
    pytest_addoption,
    pytest_collect_file,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_nsys_after_options,
    pytest_nsys_before_options,
    pytest_report_collectionfinish,
    pytest_report_header,
    pytest_runtest_makereport,
    pytest_runtestloop,
    pytest_sessionfinish,
    pytest_terminal_summary,
)

__all__ = [
    "nsys_gate",
    "nsys_run",
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_nsys_after_options",
    "pytest_nsys_before_options",
    "pytest_report_collectionfinish",
    "pytest_report_header",
    "pytest_runtest_makereport",
    "pytest_runtestloop",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
]
