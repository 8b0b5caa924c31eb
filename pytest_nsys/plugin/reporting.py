"""Which reports does a pytest session write? It gathers verdicts during the session, and writes the files at the end.

They are written whatever happened, even if everything failed, a gate file has an error, or nothing was judged. Under
xdist the controller writes them; it gets the records of all workers.
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
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.model import Outcome
from pytest_nsys.plugin.merge_base import find_base_verdict
from pytest_nsys.plugin.not_run import list_not_run_files
from pytest_nsys.plugin.page_link import find_page_link
from pytest_nsys.plugin.session import get_nsys_session
from pytest_nsys.plugin.settings import SETTINGS, Setting, find_setting_path, install
from pytest_nsys.plugin.sources import list_named_measurements, list_named_traces
from pytest_nsys.plugin.terminal_text import print_terminal_line
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.session import PageLink, Session, sort_records
from pytest_nsys.reports.tables.report_targets import check_report_target
from pytest_nsys.tools.files import append_to_file, write_atomically

if TYPE_CHECKING:
    from pytest_nsys.reports.drawings.pictures import VerdictPictures

REPORTING_PLUGIN = "nsys-reporting"
ANNOTATE_SETTING = "nsys_annotate"
PAGE_SETTING = "nsys_html"
# Other commands of the step append to the same summary, so our limit leaves them some of GitHub's.
MINIMUM_ROOM_BYTES = 16 * 1024
"""A summary may use this many bytes even if others have filled the file, up to GitHub's limit."""

GITHUB_LIMIT_BYTES = 1024 * 1024  # GitHub shows nothing of a longer summary
MINIMUM_SUMMARY_BYTES = 1024
"""The fewest bytes in which a summary is still useful, cut or not."""

NO_ROOM_LINE = b"\n**Performance gate: the summary is left out, for want of room.**\n"


def start(config: pytest.Config) -> None:
    """Gather verdicts for the requested reports.

    Raises UsageMistake if a report cannot be written, or would overwrite an input or another report.

    A session that only collects does not replace earlier reports.
    """
    if config.getoption("collectonly", default=False):
        return
    if hasattr(config, "workerinput"):
        return
    writers = [setting for setting in SETTINGS.values() if setting.report_function]
    targets = [(setting, path) for setting in writers if (path := find_setting_path(config, setting.name)) is not None]
    used_files = list(_list_used_files(config))
    for setting, path in targets:
        check_report_target(f"{setting.option}={config.getoption(setting.name)}", path, used_files)
        used_files.append((path, f"is the file of {setting.option} as well"))
    install(config, SessionReporter(config, targets), REPORTING_PLUGIN)


def _list_used_files(config: pytest.Config) -> Iterator[tuple[Path, str]]:
    """Yield the other files that the session reads and writes, if options or the ini file name them."""
    start_folder = config.invocation_params.dir
    for path in list_named_traces(config):
        yield path, "is one of the traces"
    for path in list_named_measurements(config):
        yield path, "is one of the measurements"
    if config.inipath is not None:
        yield config.inipath, "is the ini file of pytest"
    if (history := find_setting_path(config, "nsys_history")) is not None:
        yield history, "is the history"
    if junit := config.getoption("xmlpath", default=None):
        yield start_folder / junit, "is the file of --junitxml"
    for argument in config.args:
        yield start_folder / argument.partition("::")[0], "is what pytest is to run"


@dataclass(eq=False)
class SessionReporter:
    """A pytest plugin that gathers the verdicts of one session and writes its reports."""

    config: pytest.Config
    targets: Sequence[tuple[Setting, Path]]
    records: dict[str, AssertionRecord] = field(default_factory=dict)  # by node id, like the pictures
    pictures: dict[str, VerdictPictures] = field(default_factory=dict)
    mistakes: dict[Mistake, None] = field(default_factory=dict)  # in gate files that could not be read
    written_paths: list[str] = field(default_factory=list)
    write_errors: list[str] = field(default_factory=list)  # one for each file
    full_file_message: str = ""  # the message for a summary without room in its file
    annotations: list[str] = field(default_factory=list)
    not_run: dict[str, pytest.TestReport] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the record of an assertion. Ignore a report that only says that the test is rerun (``rerun``)."""
        record: AssertionRecord | None = getattr(report, "nsys", None)
        if record is not None and str(report.outcome) == "rerun":
            self._keep_pictures(report)
        elif record is not None:
            # A passing report does not make a bad verdict good, unless the gate file allows the failure.
            final = replace(record, good=not report.failed and (record.xfailed or record.good))
            if report.failed and (record.outcome is Outcome.PASSED or record.verdict.lets_pass):
                final = final.with_message(sanitize_line(report.longreprtext.strip().replace("\n", "; "), 2000))
            known_record = self.records.get(report.nodeid)
            if (
                known_record is None or known_record.good or not final.good
            ):  # if a test is reported twice, a bad record stays
                self.records[report.nodeid] = final
            self._keep_pictures(report)
        elif (
            report.failed
            and report.nodeid.partition("::")[0].endswith(GATE_SUFFIX)
            and report.nodeid not in self.records
        ):
            self.mistakes[Mistake(report.nodeid, _extract_reason(report.longreprtext))] = None
        elif hasattr(report, "nsys_not_run"):
            self.not_run[report.nodeid] = report

    def _keep_pictures(self, report: pytest.TestReport) -> None:
        """Keep the pictures of the page. If a test is rerun, keep its first windows: each is sent only once."""
        pictures: VerdictPictures | None = getattr(report, "nsys_pictures", None)
        earlier_pictures = self.pictures.pop(report.nodeid, None)
        if pictures is not None:
            windows_by_key = (
                {window.key: window for window in earlier_pictures.windows if window.head}
                if earlier_pictures is not None
                else {}
            )
            self.pictures[report.nodeid] = replace(
                pictures, windows=[windows_by_key.get(new_window.key, new_window) for new_window in pictures.windows]
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            mistakes = getattr(report, "nsys_mistakes", ())
            self.mistakes |= dict.fromkeys(mistakes or [Mistake(report.nodeid, _extract_reason(report.longreprtext))])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files, after all hooks that can still change the exit status."""
        nsys_session = self.gather_session(int(session.exitstatus))
        for setting, path in self.targets:
            module, _, name = setting.report_function.partition(":")
            make_report = getattr(import_module(module), name)
            if setting.is_appended:
                self._append_report(path, nsys_session, make_report)
            else:
                self._write_report(path, make_report(nsys_session), write_atomically)
        if self.config.getoption(ANNOTATE_SETTING):
            from pytest_nsys.reports.session.annotations import render_annotations

            self.annotations = render_annotations(nsys_session, self._find_repository_path)
        if self.write_errors and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @memoize_method
    def gather_session(self, exit_status: int) -> Session:
        """Return the results of the session; the terminal shows the same as the reports."""
        nsys_session = get_nsys_session(self.config)
        not_run = tuple(list_not_run_files(self.not_run.values()))
        refresh_lines = self._render_refresh_lines() if nsys_session.is_updating else []
        return Session(
            records=sort_records(list(self.records.values())),
            mistakes=tuple(
                sorted(
                    self.mistakes,
                    key=lambda mistake: (mistake.file, mistake.line or 0, mistake.column or 0, mistake.text),
                )
            ),
            exit_status=exit_status,
            refreshed=tuple(sanitize_line(line, 400) for line in refresh_lines),
            merge_base=find_base_verdict(self.config),
            not_run=not_run,
            pictures={self.records[nodeid].identity: pictures for nodeid, pictures in sorted(self.pictures.items())},
            history_path=find_setting_path(self.config, "nsys_history"),
            checkout=self.config.rootpath,
            page_link=self._find_page_link(),
        )

    def _find_page_link(self) -> PageLink | None:
        pages = [path for setting, path in self.targets if setting.name == PAGE_SETTING]
        return find_page_link(pages[0], os.environ) if pages else None

    def _render_refresh_lines(self) -> list[str]:
        from pytest_nsys.plugin.baseline_refresh import get_session_refresh  # of a session that writes alone

        return get_session_refresh(get_nsys_session(self.config)).render_lines()

    def _write_report(self, path: Path, text: str, write: Any) -> None:
        shown_path = get_nsys_session(self.config).format_path(path)
        try:
            write(path, text.encode("utf-8", "replace"))
            self.written_paths.append(shown_path)
        except OSError as error:
            self.write_errors.append(f"{shown_path}: cannot be written: {error.strerror}")

    def _append_report(self, path: Path, session: Session, make_report: Callable[[Session, int], str]) -> None:
        """Append as much of a report as fits; if the file is full, keep a message."""
        from pytest_nsys.reports.session.markdown import MAX_BYTES

        size_bytes = path.stat().st_size if path.exists() else 0
        room_bytes = min(max(MINIMUM_ROOM_BYTES, MAX_BYTES - size_bytes), GITHUB_LIMIT_BYTES - size_bytes)
        if room_bytes >= MINIMUM_SUMMARY_BYTES:
            self._write_report(path, make_report(session, room_bytes), append_to_file)
            return
        if len(NO_ROOM_LINE) <= room_bytes:
            with contextlib.suppress(OSError):
                append_to_file(path, NO_ROOM_LINE)
        self.full_file_message = (
            f"{get_nsys_session(self.config).format_path(path)}: no room for the summary: the file has {size_bytes} "
            "bytes already"
        )

    def _find_repository_path(self, file: str) -> str:
        """Return a file's path for GitHub: relative to the checkout."""
        workspace = os.environ.get("GITHUB_WORKSPACE")
        if not workspace:
            return file
        path, workspace_path = Path(os.path.normpath(self.config.invocation_params.dir / file)), Path(workspace)
        for folder in (workspace_path, workspace_path.resolve()):
            if path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return file

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print where the reports are; then the annotations, one per line."""
        for path in self.written_paths:
            print_terminal_line(terminalreporter, f"nsys: wrote {path}")
        for error in self.write_errors:
            print_terminal_line(terminalreporter, f"nsys: report {error}", red=True)
        if self.full_file_message:
            print_terminal_line(terminalreporter, f"nsys: report {self.full_file_message}", yellow=True)
        for line in self.annotations:
            terminalreporter.line(line)  # a workflow command; its texts are escaped


def _extract_reason(text: str) -> str:
    """Return the line of pytest's text that names the exception, else the last line."""
    lines = [line for line in text.splitlines() if line.strip()] or ["pytest gave no reason"]
    exception_lines = [line[1:] for line in lines if line.startswith("E ")]
    return sanitize_line((exception_lines or lines)[-1].strip(), 2000)
