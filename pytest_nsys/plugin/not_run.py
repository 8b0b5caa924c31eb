"""Which gate files had no trace? A gate file is one skip, however many assertions it has.

Each of its assertions is skipped in its setup, on any worker. The terminal counts only the first of each gate file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.text_format import format_count
from pytest_nsys.outcomes import NotRun
from pytest_nsys.plugin.items import GateItem
from pytest_nsys.plugin.sources import NO_TRACE_REASON, TRACE_OPTION_HINT
from pytest_nsys.reports.session.session import NotRunFile, describe_not_run

_FIRST_NODE_IDS = pytest.StashKey[dict[tuple[str, str], str]]()
_SILENT_SKIP = "skipped", "", "SKIPPED"
"""Category, letter and word (for -v) of a skip that is not shown, because another one stands for it."""


class NotRunTest(NamedTuple):
    """Describes a test that had no trace: an assertion of a gate file, or another test, which names no file."""

    file: str  # the gate file; empty for a test of another file
    configuration: str
    line: int  # in the gate file, or in the test's file
    name: str
    reason: str


def attach_not_run(item: pytest.Item, outcome: NotRun, report: pytest.TestReport) -> None:
    """Attach to the report which gate file was not run, and let the skip point to the gate file's line."""
    line, file, configuration = (report.location[1] or 0) + 1, "", ""
    if isinstance(item, GateItem):
        file, configuration = str(item.assertion.location.path), item.gate.configuration
    report.nsys_not_run = NotRunTest(file, configuration, line, item.name, str(outcome))  # type: ignore[attr-defined]
    report.longrepr = (str(item.path), line, f"Skipped: {outcome}")


def _is_first_of_file(report: Any, config: pytest.Config) -> bool:
    """Whether the report is the first of its gate file, or of its configuration."""
    file = report.nsys_not_run[:2]
    return not file[0] or config.stash.setdefault(_FIRST_NODE_IDS, {}).setdefault(file, report.nodeid) == report.nodeid


def find_report_status(report: Any, config: pytest.Config) -> tuple[str, str, str] | None:
    """Return how pytest shows the report of a test without a trace; None: like any skip."""
    return None if _is_first_of_file(report, config) else _SILENT_SKIP


def count_once(stats: dict[str, list[Any]], config: pytest.Config) -> None:
    """Keep one skip of each gate file in the terminal's counts and lists."""
    stats["skipped"] = [
        report
        for report in stats["skipped"]
        if not hasattr(report, "nsys_not_run") or _is_first_of_file(report, config)
    ]


def list_not_run_files(reports: Iterable[Any]) -> list[NotRunFile]:
    """List the gate files that had no trace, by path, each with the names of its assertions in order."""
    tests: list[NotRunTest] = sorted(
        (report.nsys_not_run for report in reports), key=lambda test: (test.line, test.name)
    )
    names_by_file = group_by_key(
        ((test.file, test.configuration, test.reason), test.name) for test in tests if test.file
    )
    return [
        NotRunFile(file, (*dict.fromkeys(names),), reason, configuration)
        for (file, configuration, reason), names in sorted(names_by_file.items())
    ]


def render_not_run_lines(reports: Iterable[Any]) -> Iterator[str]:
    """Yield the lines on what had no trace, and how to provide one."""
    not_run_reports = list(reports)
    test_count = len({report.nodeid for report in not_run_reports if not report.nsys_not_run.file})
    if not_run_reports:
        files = list_not_run_files(not_run_reports)
        has_configuration = any(file.configuration for file in files)
        yield (
            f"{describe_not_run(files, test_count)} "
            f"{TRACE_OPTION_HINT.replace('PATH', 'NAME=PATH') if has_configuration else TRACE_OPTION_HINT}"
        )
        for file in files:
            yield f"  {file.name}: {format_count(len(file.assertions), 'assertion')}" + file.why.removeprefix(
                NO_TRACE_REASON
            )
