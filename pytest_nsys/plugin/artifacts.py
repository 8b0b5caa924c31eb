"""``--nsys-artifacts DIR``: what is left of each failed assertion? The worst rank's window, of base and of head.

The process that judges writes the file, so that under xdist nothing large crosses; the controller says where they are.
A name is made of the gate file and the assertion; where it had to be changed to be safe on every file system, a few
digits of a hash keep it unique. The same assertion always gets the same name.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.core.errors import NsysError, UsageMistake
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.model import WORSE, Verdict
from pytest_nsys.plugin.saying import say
from pytest_nsys.plugin.session import NsysSession
from pytest_nsys.plugin.settings import install, path_of
from pytest_nsys.plugin.sources import named_traces
from pytest_nsys.reports.drawings.perfetto import BASE, HEAD, RunDrawing, draw, packed, perfetto_json
from pytest_nsys.reports.drawings.pictures import find_explaining_windows
from pytest_nsys.reports.tables.targets import check_target
from pytest_nsys.reports.words.explanation import worst_rank
from pytest_nsys.tools.files import write_whole
from pytest_nsys.verdicts.evaluate import GateContext

SETTING = "nsys_artifacts"
VIEWER = "ui.perfetto.dev"


class Artifact(NamedTuple):
    """The file of one failed assertion as a person would type its path, or why there is none."""

    path: str = ""
    lost: str = ""


def start(config: pytest.Config) -> None:
    """Have windows kept. Raises UsageMistake where that cannot be, or would lay them among the traces."""
    folder = path_of(config, SETTING)
    if folder is None or hasattr(config, "workerinput"):
        return
    given = config.getoption(SETTING)
    shown = f"--nsys-artifacts={given}" if given is not None else f"nsys_artifacts={config.getini(SETTING)}"
    check_folder(printable(shown), folder, named_traces(config))
    install(config, sys.modules[__name__], "nsys-artifacts")


def keep(session: NsysSession, verdict: Verdict, context: GateContext) -> Artifact:
    """Write the windows of a failed assertion; nothing of any other, or where nobody asked for it."""
    folder = path_of(session.config, SETTING)
    if folder is None or not has_failed(verdict):
        return Artifact()
    before = context.windows_before
    base = before.captures if before is not None else None
    try:
        path = write_window(folder, session.store(context.gate).gate, verdict, context.captures, base)
    except NsysError as error:
        return Artifact(lost=printable(str(error), 2000))
    except OSError as error:
        return Artifact(lost=f"{printable(session.shown(folder))}: cannot be written: {error.strerror}")
    return Artifact(path=printable(session.shown(path), 1000))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Where the windows are, and which could not be written."""
    told = (report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "nsys"))
    records = {report.nodeid: report.nsys for report in told}.values()
    paths = [record.artifact for record in records if record.artifact]
    if paths:
        where = paths[0] if len(paths) == 1 else f"{Path(paths[0]).parent}{os.sep}"
        what = counted(len(paths), "window")
        say(terminalreporter, f"nsys: wrote {what} of failed assertions: {where} (open in {VIEWER})")
    for record in records:
        if record.artifact_lost:
            say(terminalreporter, f"nsys: window not written: {record.artifact_lost}", red=True)


SUFFIX = ".json.gz"
LONGEST_PART = 60
HASH_DIGITS = 8
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+|__+")


def file_name(gate: str, assertion: str) -> str:
    """``<gate>__<assertion>.json.gz``. ``gate`` is the gate file's path as its baselines know it."""
    plain = Address.of(gate).stem
    safe = f"{_safe(plain)}__{_safe(assertion)}"
    if safe != f"{plain}__{assertion}".lower():  # file systems may not tell capitals apart
        safe += "-" + sha256(f"{gate}\0{assertion}".encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    return safe + SUFFIX


def _safe(text: str) -> str:
    return _UNSAFE.sub("-", text)[:LONGEST_PART].strip("-._") or "x"


def has_failed(verdict: Verdict) -> bool:
    """Whether a window is to be kept: of what fails, not of what may (``severity: warn``, ``xfail``)."""
    has_window = verdict.assertion.outside is None
    return has_window and verdict.outcome in WORSE and not verdict.good and verdict.assertion.xfail is None


def windows_of(verdict: Verdict, head: Captures, base: Captures | None = None) -> list[RunDrawing]:
    """The window that explains the verdict, of the rank that is worst, of all ranks where no one rank is, and the one
    that it is held against.

    Raises NsysError where it cannot be drawn.
    """
    rank = worst_rank(verdict)
    ranks = None if rank is None else frozenset([rank])
    now, before = find_explaining_windows(verdict, head, base)
    if before is None:
        return [draw(now.run, now.spec, ranks)]
    with contextlib.suppress(NsysError):  # what is kept of a run before need not have this window
        if rank is None or rank in {each.number for each in before.side.runs[0].ranks}:
            return [draw(before.run, before.spec, ranks, BASE), draw(now.run, now.spec, ranks, HEAD)]
    return [draw(now.run, now.spec, ranks, HEAD)]


def check_folder(shown: str, folder: Path, traces: Iterable[Path]) -> None:
    """Raises UsageMistake where a folder, which may be new, takes no files, or where traces lie that are read."""
    standing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not standing.is_dir():
        raise UsageMistake(f"{shown}: {printable(str(standing))} is not a folder: give another one")
    if not os.access(standing, os.W_OK | os.X_OK):
        raise UsageMistake(f"{shown}: cannot be written: permission denied")
    if folder.resolve() in {path.resolve().parent for path in traces}:
        raise UsageMistake(
            f"{shown}: it holds the traces, and windows beside them would be read as traces: give another"
        )


def write_window(folder: Path, gate: str, verdict: Verdict, head: Captures, base: Captures | None = None) -> Path:
    """Write the windows of a failed assertion in place of an earlier file; the file.

    Raises UsageMistake where it would replace something else, NsysError where nothing can be drawn, OSError.
    """
    path = folder / file_name(gate, verdict.assertion.name)
    read = [(trace, "is one of the traces") for side in (head, base) if side is not None for trace in side.paths]
    check_folder(str(folder), folder, [trace for trace, _ in read])
    folder.mkdir(parents=True, exist_ok=True)
    check_target(str(path), path, read, cut=True)
    text = perfetto_json(windows_of(verdict, head, base))
    write_whole(path, packed(text, path.name))
    return path
