"""``--nsys-artifacts DIR``: what does a pytest session leave of each failed assertion? Its window, as a small trace.

The process that judges writes the file, so that under xdist nothing large crosses; the controller says where they are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import counted, printable
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.gates.verdict import Verdict
from pytest_nsys.plugin.failed_windows import check_folder, has_failed, write_window
from pytest_nsys.plugin.session import NsysSession, named_traces, session_of, usage_errors
from pytest_nsys.plugin.settings import path_of
from pytest_nsys.verdicts.evaluate import GateContext
from pytest_nsys.verdicts.references import OtherRun

SETTING = "nsys_artifacts"
VIEWER = "ui.perfetto.dev"


class Artifact(NamedTuple):
    """The file of one failed assertion as a person would type its path, or why there is none."""

    path: str = ""
    lost: str = ""


def start(config: pytest.Config) -> None:
    """Have windows kept. Raises UsageError where that cannot be, or would lay them among the traces."""
    folder = path_of(config, SETTING)
    if folder is None or hasattr(config, "workerinput"):
        return
    given = config.getoption(SETTING)
    shown = f"--nsys-artifacts={given}" if given is not None else f"nsys_artifacts={config.getini(SETTING)}"
    with usage_errors():
        check_folder(printable(shown), folder, named_traces(config))
    config.pluginmanager.register(Artifacts(session_of(config)), "nsys-artifacts")


def keep(session: NsysSession, gate: GateFile, verdict: Verdict, context: GateContext) -> Artifact:
    """Write the windows of a failed assertion; nothing of any other, or where nobody asked for it."""
    folder = path_of(session.config, SETTING)
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
