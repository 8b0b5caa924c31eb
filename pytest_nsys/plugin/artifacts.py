"""Which files does ``--nsys-artifacts DIR`` leave for failed assertions? The window of the worst rank, of base and of
head.

The judging process writes the file, so that nothing large is sent from an xdist worker; the controller prints the
paths. A file is named by gate file and assertion. If the name had to be changed to be safe on every file system, some
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
from pytest_nsys.core.file_names import GateAddress
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.gates.model import OUTSIDE_LIMIT, Verdict
from pytest_nsys.plugin.session import NsysSession
from pytest_nsys.plugin.settings import find_setting_path, install
from pytest_nsys.plugin.sources import list_named_traces
from pytest_nsys.plugin.terminal_text import print_terminal_line
from pytest_nsys.reports.drawings.perfetto import BASE, HEAD, RunDrawing, draw_run, pack_text, render_perfetto_json
from pytest_nsys.reports.drawings.pictures import find_explaining_windows
from pytest_nsys.reports.tables.report_targets import check_report_target
from pytest_nsys.reports.words.verdict_text import find_worst_rank
from pytest_nsys.tools.files import write_atomically
from pytest_nsys.verdicts.evaluate import GateContext

ARTIFACTS_SETTING = "nsys_artifacts"
TRACE_VIEWER = "ui.perfetto.dev"


class Artifact(NamedTuple):
    """Holds the path of one failed assertion's file as a person would type it, or the reason why there is none."""

    path: str = ""
    problem: str = ""  # why there is no file


def start(config: pytest.Config) -> None:
    """Let windows of failed assertions be written. Raises UsageMistake for a folder that is not writable, or contains
    traces.
    """
    folder = find_setting_path(config, ARTIFACTS_SETTING)
    if folder is None or hasattr(config, "workerinput"):
        return
    option = config.getoption(ARTIFACTS_SETTING)
    setting_text = (
        f"--nsys-artifacts={option}" if option is not None else f"nsys_artifacts={config.getini(ARTIFACTS_SETTING)}"
    )
    check_output_folder(sanitize_line(setting_text), folder, list_named_traces(config))
    install(config, sys.modules[__name__], "nsys-artifacts")


def keep_windows(session: NsysSession, verdict: Verdict, context: GateContext) -> Artifact:
    """Write the windows of a failed assertion and return the artifact; an empty one if the assertion has not failed, or
    if artifacts are not requested.
    """
    folder = find_setting_path(session.config, ARTIFACTS_SETTING)
    if folder is None or not has_failed(verdict):
        return Artifact()
    base_windows = context.baseline_breakdowns
    base = base_windows.captures if base_windows is not None else None
    try:
        path = write_window(folder, session.open_store(context.gate).gate, verdict, context.captures, base)
    except NsysError as error:
        return Artifact(problem=sanitize_line(str(error), 2000))
    except OSError as error:
        return Artifact(problem=f"{sanitize_line(session.format_path(folder))}: cannot be written: {error.strerror}")
    return Artifact(path=sanitize_line(session.format_path(path), 1000))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print where the windows are, and which could not be written."""
    reports_with_record = (
        report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "nsys")
    )
    records = {report.nodeid: report.nsys for report in reports_with_record}.values()
    paths = [record.artifact for record in records if record.artifact]
    if paths:
        place = paths[0] if len(paths) == 1 else f"{Path(paths[0]).parent}{os.sep}"
        window_count = format_count(len(paths), "window")
        print_terminal_line(
            terminalreporter, f"nsys: wrote {window_count} of failed assertions: {place} (open in {TRACE_VIEWER})"
        )
    for record in records:
        if record.missing_artifact_reason:
            print_terminal_line(
                terminalreporter, f"nsys: window not written: {record.missing_artifact_reason}", red=True
            )


SUFFIX = ".json.gz"
LONGEST_PART = 60  # two parts, hash and suffix stay below a file system's limit of 255 bytes
HASH_DIGITS = 8
# Two underscores separate the gate file from the assertion.
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+|__+")


def build_file_name(gate: str, assertion: str) -> str:
    """Return ``<gate>__<assertion>.json.gz``. ``gate`` is the gate file's path as its baselines know it."""
    gate_stem = GateAddress.parse_file_and_configuration(gate).stem
    safe_name = f"{_sanitize_name_part(gate_stem)}__{_sanitize_name_part(assertion)}"
    if safe_name != f"{gate_stem}__{assertion}".lower():  # file systems may ignore case
        safe_name += "-" + sha256(f"{gate}\0{assertion}".encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    return safe_name + SUFFIX


def _sanitize_name_part(text: str) -> str:
    return _UNSAFE_CHARACTERS.sub("-", text)[:LONGEST_PART].strip("-._") or "x"


def has_failed(verdict: Verdict) -> bool:
    """Whether the window is to be kept: if the assertion failed and was not allowed to (``severity: warn``,
    ``xfail``).
    """
    has_window = verdict.assertion.outside_metric is None
    return has_window and verdict.outcome in OUTSIDE_LIMIT and not verdict.good and verdict.assertion.xfail is None


def draw_windows(verdict: Verdict, head: Captures, base: Captures | None = None) -> list[RunDrawing]:
    """Return the drawing of the window that explains the verdict, and of the one that it is compared with.

    It shows the worst rank, or all ranks if no single rank is worst. Raises NsysError if it cannot be drawn.
    """
    rank = find_worst_rank(verdict)
    ranks = None if rank is None else frozenset([rank])
    head_window, base_window = find_explaining_windows(verdict, head, base)
    if base_window is None:
        return [draw_run(head_window.run, head_window.spec, ranks)]
    with contextlib.suppress(NsysError):  # the stored windows of the base may lack this one
        if rank is None or rank in {rank_of_base.number for rank_of_base in base_window.captures.runs[0].ranks}:
            return [
                draw_run(base_window.run, base_window.spec, ranks, BASE),
                draw_run(head_window.run, head_window.spec, ranks, HEAD),
            ]
    return [draw_run(head_window.run, head_window.spec, ranks, HEAD)]


def check_output_folder(setting_text: str, folder: Path, traces: Iterable[Path]) -> None:
    """Raise UsageMistake where a folder, which may be new, takes no files, or holds traces that are read."""
    existing_folder = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not existing_folder.is_dir():
        raise UsageMistake(f"{setting_text}: {sanitize_line(str(existing_folder))} is not a folder: give another one")
    if not os.access(existing_folder, os.W_OK | os.X_OK):
        raise UsageMistake(f"{setting_text}: cannot be written: permission denied")
    if folder.resolve() in {path.resolve().parent for path in traces}:
        raise UsageMistake(
            f"{setting_text}: it holds the traces, and windows beside them would be read as traces: give another"
        )


def write_window(folder: Path, gate: str, verdict: Verdict, head: Captures, base: Captures | None = None) -> Path:
    """Write the windows of a failed assertion, replacing an earlier file, and return the path.

    Raises UsageMistake if it would replace another kind of file, NsysError if nothing can be drawn, OSError.
    """
    path = folder / build_file_name(gate, verdict.assertion.name)
    read_files = [(trace, "is one of the traces") for side in (head, base) if side is not None for trace in side.paths]
    check_output_folder(str(folder), folder, [trace for trace, _ in read_files])
    folder.mkdir(parents=True, exist_ok=True)
    check_report_target(str(path), path, read_files, is_cut=True)
    text = render_perfetto_json(draw_windows(verdict, head, base))
    write_atomically(path, pack_text(text, path.name))
    return path
