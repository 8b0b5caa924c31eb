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
from pytest_nsys.plugin.sources import GIVEN_BY, NOT_GIVEN
from pytest_nsys.reports.session.digest import NotRunFile, not_run_words

_FIRST = pytest.StashKey[dict[tuple[str, str], str]]()
_SILENT = "skipped", "", "SKIPPED"
"""Category, letter and word, which -v shows, of a skip that stands for none of its own."""


def hand_over(item: pytest.Item, why: NotRun, report: pytest.TestReport) -> None:
    """Have the report say which gate file was not run, also where a worker of xdist sends it, and skip at its line."""
    assertion = getattr(item, "assertion", None)
    file = "" if assertion is None else str(assertion.location.path)
    configuration = "" if assertion is None else item.gate.configuration  # type: ignore[attr-defined]
    line = (report.location[1] or 0) + 1
    report.nsys_not_run = {  # type: ignore[attr-defined]
        "file": file,
        "configuration": configuration,
        "line": line,
        "name": item.name,
        "why": str(why),
    }
    report.longrepr = (str(item.path), line, f"Skipped: {why}")


def _counts(report: Any, config: pytest.Config) -> bool:
    """Whether it is the first of its gate file, or of its configuration."""
    file = _place(report.nsys_not_run)
    return not file[0] or config.stash.setdefault(_FIRST, {}).setdefault(file, report.nodeid) == report.nodeid


def _place(told: dict[str, Any]) -> tuple[str, str]:
    return told["file"], told["configuration"]


def status(report: Any, config: pytest.Config) -> tuple[str, str, str] | None:
    """How pytest shows a report of a test that had no trace; None as any skip."""
    return None if _counts(report, config) else _SILENT


def count_once(stats: dict[str, list[Any]], config: pytest.Config) -> None:
    """Leave one skip of each gate file in what the terminal counts and lists."""
    stats["skipped"] = [each for each in stats["skipped"] if not hasattr(each, "nsys_not_run") or _counts(each, config)]


def not_run_files(reports: Iterable[Any]) -> list[NotRunFile]:
    """The gate files that had no trace, by path, each with the names of its assertions in order."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for told in sorted((report.nsys_not_run for report in reports), key=lambda told: (told["line"], told["name"])):
        if told["file"]:
            found.setdefault((*_place(told), told["why"]), {})[told["name"]] = None
    return [NotRunFile(file, tuple(names), why, own) for (file, own, why), names in sorted(found.items())]


def terminal_lines(reports: Iterable[Any]) -> Iterator[str]:
    """What had no trace, and what gives it one."""
    told = list(reports)
    tests = len({report.nodeid for report in told if not report.nsys_not_run["file"]})
    if told:
        files = not_run_files(told)
        named = any(file.configuration for file in files)
        yield f"{not_run_words(files, tests)} {GIVEN_BY.replace('PATH', 'NAME=PATH') if named else GIVEN_BY}"
        for file in files:
            yield f"  {file.name}: {counted(len(file.assertions), 'assertion')}" + file.why.removeprefix(NOT_GIVEN)
