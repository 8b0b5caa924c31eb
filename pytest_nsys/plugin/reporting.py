"""Which reports does a pytest session leave behind? It gathers verdicts as they come, and writes the files at the end.

Written whatever happened, so that a red run has its report: all red, a gate file with a mistake, nothing judged. Under
xdist the controller writes; it sees the records of all workers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_nsys.core.errors import Mistake
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.kept import kept
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import Outcome
from pytest_nsys.plugin.merge_base import verdict_of
from pytest_nsys.plugin.not_run import not_run_files
from pytest_nsys.plugin.saying import say
from pytest_nsys.plugin.session import session_of
from pytest_nsys.plugin.settings import SETTINGS, Setting, install, path_of
from pytest_nsys.plugin.sources import named_measurements, named_traces
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.session import Session, ordered
from pytest_nsys.reports.tables.targets import check_target
from pytest_nsys.tools.files import append, write_whole

if TYPE_CHECKING:
    from pytest_nsys.reports.drawings.pictures import Pictures

NAME = "nsys-reporting"
ANNOTATE = "nsys_annotate"
LEAST_ROOM = 16 * 1024
"""Of the room that is left to others a summary takes so much all the same, where GitHub takes it."""

GITHUB_TAKES_BYTES = 1024 * 1024
FEWEST_BYTES = 1024
"""Less holds no summary, cut or not."""

NO_ROOM = b"\n**Performance gate: the summary is left out, for want of room.**\n"


def start(config: pytest.Config) -> None:
    """Gather verdicts for the reports that are asked for.

    Raises UsageMistake where one cannot be written, or would replace what is read, or another report.

    A session that only collects judges nothing: it leaves the reports of the last one alone.
    """
    if config.getoption("collectonly", default=False):
        return
    if hasattr(config, "workerinput"):
        return
    writers = [setting for setting in SETTINGS.values() if setting.writes]
    targets = [(setting, path) for setting in writers if (path := path_of(config, setting.name)) is not None]
    others = list(_read_and_written(config))
    for setting, path in targets:
        check_target(f"{setting.option}={config.getoption(setting.name)}", path, others)
        others.append((path, f"is the file of {setting.option} as well"))
    install(config, Reporting(config, targets), NAME)


def _read_and_written(config: pytest.Config) -> Iterator[tuple[Path, str]]:
    """What else the session reads and writes, as far as options and the ini file name it."""
    here = config.invocation_params.dir
    for path in named_traces(config):
        yield path, "is one of the traces"
    for path in named_measurements(config):
        yield path, "is one of the measurements"
    if config.inipath is not None:
        yield config.inipath, "is the ini file of pytest"
    if (history := path_of(config, "nsys_history")) is not None:
        yield history, "is the history"
    if junit := config.getoption("xmlpath", default=None):
        yield here / junit, "is the file of --junitxml"
    for argument in config.args:
        yield here / argument.partition("::")[0], "is what pytest is to run"


@dataclass(eq=False)
class Reporting:
    """The plugin of one session that writes its reports."""

    config: pytest.Config
    targets: Sequence[tuple[Setting, Path]]
    records: dict[str, Record] = field(default_factory=dict)
    pictures: dict[str, Pictures] = field(default_factory=dict)
    mistakes: dict[Mistake, None] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    not_written: list[str] = field(default_factory=list)
    full: str = ""
    annotations: list[str] = field(default_factory=list)
    not_run: dict[str, pytest.TestReport] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the record of an assertion. A report that says that the test is run again (``rerun``) is no verdict."""
        record: Record | None = getattr(report, "nsys", None)
        if record is not None and str(report.outcome) == "rerun":
            self._keep_pictures(report)
        elif record is not None:
            # No report makes a bad verdict good, but where the gate file lets it fail.
            final = replace(record, good=not report.failed and (record.xfailed or record.good))
            if report.failed and (record.outcome is Outcome.PASSED or record.verdict.lets_pass):
                final = final.saying(printable(report.longreprtext.strip().replace("\n", "; "), 2000))
            known = self.records.get(report.nodeid)
            if known is None or known.good or not final.good:  # of a test that is reported twice no good one for a bad
                self.records[report.nodeid] = final
            self._keep_pictures(report)
        elif (
            report.failed
            and report.nodeid.partition("::")[0].endswith(GATE_SUFFIX)
            and report.nodeid not in self.records
        ):
            self.mistakes[Mistake(report.nodeid, _reason(report.longreprtext))] = None
        elif hasattr(report, "nsys_not_run"):
            self.not_run[report.nodeid] = report

    def _keep_pictures(self, report: pytest.TestReport) -> None:
        """Of a test that is run again the windows of the first time stay: each is handed over once."""
        drawn: Pictures | None = getattr(report, "nsys_pictures", None)
        before = self.pictures.pop(report.nodeid, None)
        if drawn is not None:
            windows = {one.key: one for one in before.windows if one.head} if before is not None else {}
            self.pictures[report.nodeid] = replace(drawn, windows=[windows.get(w.key, w) for w in drawn.windows])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            found = getattr(report, "nsys_mistakes", ())
            self.mistakes |= dict.fromkeys(found or [Mistake(report.nodeid, _reason(report.longreprtext))])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files, after all that can still change the exit status."""
        told = self.gather(int(session.exitstatus))
        for setting, path in self.targets:
            module, _, name = setting.writes.partition(":")
            make = getattr(import_module(module), name)
            if setting.appends:
                self._append(path, told, make)
            else:
                self._write(path, make(told), write_whole)
        if self.config.getoption(ANNOTATE):
            from pytest_nsys.reports.session.annotations import annotation_lines

            self.annotations = annotation_lines(told, self._in_the_repository)
        if self.not_written and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @kept
    def gather(self, exit_status: int) -> Session:
        """Return all that came of the session; the terminal tells what the reports were written of."""
        own = session_of(self.config)
        not_run = tuple(not_run_files(self.not_run.values()))
        refreshed = self._refreshed() if own.updating else []
        return Session(
            records=ordered(list(self.records.values())),
            mistakes=tuple(sorted(self.mistakes, key=lambda m: (m.file, m.line or 0, m.column or 0, m.text))),
            exit_status=exit_status,
            refreshed=tuple(printable(line, 400) for line in refreshed),
            merge_base=verdict_of(self.config),
            not_run=not_run,
            pictures={self.records[nodeid].known_by: one for nodeid, one in sorted(self.pictures.items())},
            history=path_of(self.config, "nsys_history"),
            checkout=self.config.rootpath,
        )

    def _refreshed(self) -> list[str]:
        from pytest_nsys.plugin.refreshing import refreshing_of  # of a session that writes alone

        return refreshing_of(session_of(self.config)).lines()

    def _write(self, path: Path, text: str, write: Any) -> None:
        shown = session_of(self.config).shown(path)
        try:
            write(path, text.encode("utf-8", "replace"))
            self.written.append(shown)
        except OSError as error:
            self.not_written.append(f"{shown}: cannot be written: {error.strerror}")

    def _append(self, path: Path, told: Session, make: Callable[[Session, int], str]) -> None:
        """Append as much as fits. Where the file is full, say so, in it where a line fits: GitHub shows nothing of a
        file that is too long.
        """
        from pytest_nsys.reports.session.markdown import AT_MOST_BYTES

        size = path.stat().st_size if path.exists() else 0
        room = min(max(LEAST_ROOM, AT_MOST_BYTES - size), GITHUB_TAKES_BYTES - size)
        if room >= FEWEST_BYTES:
            self._write(path, make(told, room), append)
            return
        if len(NO_ROOM) <= room:
            with contextlib.suppress(OSError):
                append(path, NO_ROOM)
        self.full = f"{session_of(self.config).shown(path)}: no room for the summary: the file has {size} bytes already"

    def _in_the_repository(self, file: str) -> str:
        """A file's name as GitHub knows it: relative to the checkout."""
        workspace = os.environ.get("GITHUB_WORKSPACE")
        if not workspace:
            return file
        path, top = Path(os.path.normpath(self.config.invocation_params.dir / file)), Path(workspace)
        for folder in (top, top.resolve()):
            if path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return file

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Where the reports are; the annotations last, a line each."""
        for path in self.written:
            say(terminalreporter, f"nsys: wrote {path}")
        for why in self.not_written:
            say(terminalreporter, f"nsys: report {why}", red=True)
        if self.full:
            say(terminalreporter, f"nsys: report {self.full}", yellow=True)
        for line in self.annotations:
            terminalreporter.line(line)  # a command of ours, in which every text is escaped


def _reason(text: str) -> str:
    """The line of what pytest says that names the exception, else the last one."""
    lines = [line for line in text.splitlines() if line.strip()] or ["pytest gave no reason"]
    marked = [line[1:] for line in lines if line.startswith("E ")]
    return printable((marked or lines)[-1].strip(), 2000)
