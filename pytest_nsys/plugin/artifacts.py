"""``--nsys-artifacts DIR``: what does a pytest session leave of each failed assertion? Its window, as a small trace.

The process that judges writes the file, so that under xdist nothing large crosses; the controller says where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import counted, printable
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.gates.verdict import Verdict
from pytest_nsys.plugin.failed_windows import check_folder, has_failed, write_window
from pytest_nsys.plugin.session import NsysSession, session_of, usage_errors
from pytest_nsys.reports.targets import files_of
from pytest_nsys.verdicts.evaluate import GateContext
from pytest_nsys.verdicts.references import OtherRun

OPTION = "--nsys-artifacts"
VIEWER = "ui.perfetto.dev"


class Artifact(NamedTuple):
    """The file of one failed assertion as a person would type its path, or why there is none."""

    path: str = ""
    lost: str = ""


def artifact_folder(config: pytest.Config) -> Path | None:
    """Where the windows go: option, else ini key. Raises UsageError for an empty path."""
    given = config.getoption("nsys_artifacts")
    if given is not None:
        if not given.strip():
            raise pytest.UsageError(f"{OPTION} is empty: write {OPTION}=DIR")
        return Path(config.invocation_params.dir / given)
    ini = config.getini("nsys_artifacts")
    folder = config.inipath.parent if config.inipath is not None else config.rootpath
    return Path(folder / ini) if ini else None


def start(config: pytest.Config) -> None:
    """Have windows kept. Raises UsageError where that cannot be, or would lay them among the traces."""
    folder = artifact_folder(config)
    if folder is None or hasattr(config, "workerinput"):
        return
    given = config.getoption("nsys_artifacts")
    shown = f"{OPTION}={given}" if given is not None else f"nsys_artifacts={config.getini('nsys_artifacts')}"
    with usage_errors():
        check_folder(printable(shown), folder, _traces(config))
    config.pluginmanager.register(Artifacts(session_of(config)), "nsys-artifacts")


def _traces(config: pytest.Config) -> Iterator[Path]:
    """The traces that options and the ini file name."""
    here = config.invocation_params.dir
    yield from files_of([*(config.getoption("nsys_trace") or ()), *(config.getoption("nsys_against") or ())], here)
    if config.inipath is not None:
        yield from files_of(config.getini("nsys_trace"), config.inipath.parent)


def keep(session: NsysSession, gate: GateFile, verdict: Verdict, context: GateContext) -> Artifact:
    """Write the windows of a failed assertion; nothing of any other, or where nobody asked for it."""
    folder = artifact_folder(session.config)
    if folder is None or not has_failed(verdict):
        return Artifact()
    base = context.baseline.before if isinstance(context.baseline, OtherRun) else None
    try:
        path = write_window(folder, session.store(gate).gate, verdict, context.captures, base)
    except NsysError as error:
        return Artifact(lost=printable(str(error), 2000))
    except OSError as error:
        return Artifact(lost=f"{printable(session.shown(folder))}: cannot be written: {error.strerror}")
    return Artifact(path=printable(session.shown(path), 1000))


@dataclass(eq=False)
class Artifacts:
    """The plugin of one session that says where the windows are."""

    session: NsysSession
    found: dict[str, Artifact] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what an item wrote; the last report counts where a test is run again."""
        record: Mapping[str, Any] | None = getattr(report, "nsys", None)
        if record is not None:
            self.found.pop(report.nodeid, None)
            if record["artifact"] or record["artifact_lost"]:
                self.found[report.nodeid] = Artifact(record["artifact"], record["artifact_lost"])

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Where the windows are, and which could not be written."""
        paths = [artifact.path for artifact in self.found.values() if artifact.path]
        if paths:
            where = paths[0] if len(paths) == 1 else f"{Path(paths[0]).parent}{os.sep}"
            what = counted(len(paths), "window")
            terminalreporter.line(f"nsys: wrote {what} of failed assertions: {where} (open in {VIEWER})")
        for artifact in self.found.values():
            if artifact.lost:
                terminalreporter.line(f"nsys: window not written: {artifact.lost}", red=True)
