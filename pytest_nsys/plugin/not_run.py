"""What is told of tests that had no trace: a gate file is one skip, however many assertions it has.

Which tests there are does not depend on traces, so each of them runs and is skipped in its set-up, on whichever worker
it is. The terminal counts the first of a gate file for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from pytest_nsys.core.words import counted
from pytest_nsys.outcomes import NotRun
from pytest_nsys.plugin.session import NOT_GIVEN
from pytest_nsys.reports.session.digest import NotRunFile, not_run_words

_COUNTED = pytest.StashKey[dict[str, str]]()
_UNCOUNTED = "", "", "NOT RUN"
"""Category, letter and word, which is shown by -v, of a report that pytest is not to count."""


def hand_over(item: pytest.Item, why: NotRun, report: pytest.TestReport) -> None:
    """Have the report say which gate file was not run, also where a worker of xdist sends it, and skip at its line."""
    assertion = getattr(item, "assertion", None)
    file = "" if assertion is None else str(assertion.location.path)
    report.nsys_not_run = {"file": file, "name": item.name, "why": str(why)}  # type: ignore[attr-defined]
    report.longrepr = (str(item.path), (report.location[1] or 0) + 1, f"Skipped: {why}")


def status(report: Any, config: pytest.Config) -> tuple[str, str, str] | None:
    """How pytest counts a report of a test that had no trace; None as any skip."""
    file = report.nsys_not_run["file"]
    first = config.stash.setdefault(_COUNTED, {}).setdefault(file, report.nodeid) if file else report.nodeid
    return None if first == report.nodeid else _UNCOUNTED


def not_run_files(reports: Iterable[Any]) -> list[NotRunFile]:
    """The gate files that had no trace, by path, each with the names of its assertions."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for told in (report.nsys_not_run for report in reports):
        if told["file"]:
            found.setdefault((told["file"], told["why"]), {})[told["name"]] = None
    return [NotRunFile(file, tuple(names), why) for (file, why), names in sorted(found.items())]


def terminal_lines(reports: Iterable[Any]) -> Iterator[str]:
    """What had no trace, and what gives it one."""
    told = list(reports)
    tests = len({report.nodeid for report in told if not report.nsys_not_run["file"]})
    if told:
        files = not_run_files(told)
        yield not_run_words(files, tests) + NOT_GIVEN.removeprefix("no trace given")
        for file in files:
            yield f"  {file.name}: {counted(len(file.assertions), 'assertion')}" + file.why.removeprefix(NOT_GIVEN)
