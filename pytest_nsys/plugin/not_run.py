"""Which gate files had no trace? A gate file is one skip, however many assertions it has.

Each of its assertions runs and is skipped in its set-up, on whichever worker it is. The terminal counts the first of a
gate file for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.kept import grouped
from pytest_nsys.core.words import counted
from pytest_nsys.outcomes import NotRun
from pytest_nsys.plugin.items import GateItem
from pytest_nsys.plugin.sources import GIVEN_BY, NOT_GIVEN
from pytest_nsys.reports.session.session import NotRunFile, not_run_words

_FIRST = pytest.StashKey[dict[tuple[str, str], str]]()
_SILENT = "skipped", "", "SKIPPED"
"""Category, letter and word, which -v shows, of a skip that stands for none of its own."""


class NotRunTest(NamedTuple):
    """A test that had no trace: an assertion of a gate file, or another, of which no file is said. ``line`` is that of
    the file.
    """

    file: str
    configuration: str
    line: int
    name: str
    why: str


def hand_over(item: pytest.Item, why: NotRun, report: pytest.TestReport) -> None:
    """Have the report say which gate file was not run, and skip at its line."""
    line, file, configuration = (report.location[1] or 0) + 1, "", ""
    if isinstance(item, GateItem):
        file, configuration = str(item.assertion.location.path), item.gate.configuration
    report.nsys_not_run = NotRunTest(file, configuration, line, item.name, str(why))  # type: ignore[attr-defined]
    report.longrepr = (str(item.path), line, f"Skipped: {why}")


def _counts(report: Any, config: pytest.Config) -> bool:
    """Whether it is the first of its gate file, or of its configuration."""
    file = report.nsys_not_run[:2]
    return not file[0] or config.stash.setdefault(_FIRST, {}).setdefault(file, report.nodeid) == report.nodeid


def not_run_status(report: Any, config: pytest.Config) -> tuple[str, str, str] | None:
    """How pytest shows a report of a test that had no trace; None as any skip."""
    return None if _counts(report, config) else _SILENT


def count_once(stats: dict[str, list[Any]], config: pytest.Config) -> None:
    """Leave one skip of each gate file in what the terminal counts and lists."""
    stats["skipped"] = [each for each in stats["skipped"] if not hasattr(each, "nsys_not_run") or _counts(each, config)]


def not_run_files(reports: Iterable[Any]) -> list[NotRunFile]:
    """The gate files that had no trace, by path, each with the names of its assertions in order."""
    told: list[NotRunTest] = sorted(
        (report.nsys_not_run for report in reports), key=lambda test: (test.line, test.name)
    )
    found = grouped(((test.file, test.configuration, test.why), test.name) for test in told if test.file)
    return [NotRunFile(file, (*dict.fromkeys(names),), why, own) for (file, own, why), names in sorted(found.items())]


def not_run_lines(reports: Iterable[Any]) -> Iterator[str]:
    """What had no trace, and what gives it one."""
    told = list(reports)
    tests = len({report.nodeid for report in told if not report.nsys_not_run.file})
    if told:
        files = not_run_files(told)
        named = any(file.configuration for file in files)
        yield f"{not_run_words(files, tests)} {GIVEN_BY.replace('PATH', 'NAME=PATH') if named else GIVEN_BY}"
        for file in files:
            yield f"  {file.name}: {counted(len(file.assertions), 'assertion')}" + file.why.removeprefix(NOT_GIVEN)
