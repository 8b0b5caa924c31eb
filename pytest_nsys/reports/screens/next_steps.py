"""Which commands does the first screen suggest next? Each can be pasted: paths are written as typed, and quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_nsys.analysis.metrics.registry import ONE_WINDOW_VIEWS
from pytest_nsys.analysis.steps.search_text import SearchResult, describe_units, select_other_units
from pytest_nsys.analysis.summary.findings import Finding
from pytest_nsys.analysis.windows.window_selection import shorten_steady_label
from pytest_nsys.core.conventions import format_anchor
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import NextStep
from pytest_nsys.core.text_format import quote_command
from pytest_nsys.reports.screens.findings import format_finding_command
from pytest_nsys.traces.trace_files import find_traces

OTHER_RUN = "OTHER_RUN"
"""Placeholder for the path of another run."""


UNSUPPORTED_OPTIONS = {
    "init": ("--window", "--span", "--kernels", "--rank"),
    "compare": ("--rank",),
    "check": ("--window", "--span", "--kernels", "--rank"),
}
"""The options of this command that each suggested command lacks."""

_UNCOUNTED_WINDOW = re.compile(r"--window -?\d+:-?\d+")
"""Matches windows with an unknown number of steps, by which the view of kernels would divide."""

TypedOptions = Sequence[tuple[str, str]]
"""Pairs of option and value."""


def list_next_steps(
    traces: Sequence[str],
    options: TypedOptions = (),
    first_traces: Sequence[str] = (),
    kind: str | None = None,
    *,
    is_cut: bool = False,
) -> Iterator[NextStep]:
    """Yield the commands that draft a gate, write the window for Perfetto, and compare, with the options of this
    measurement.

    ``kind`` is the measured kind of step, if there are several. If the traces are several captures, ``first_traces``
    are those of the first, which is the one to cut. For a trace that ``is_cut`` no gate is suggested.
    """
    paths = shorten_trace_paths(traces)
    base_words = paths if len(paths) == 1 else [word for path in paths for word in ("--base", path)]
    other_words = OTHER_RUN if len(paths) == 1 else f"--head {OTHER_RUN}"
    if not is_cut:
        # If there are several kinds of steps, the gate names the measured one.
        yield NextStep(
            _format_next_command("init", paths, options, quote_command(["--window", kind]) if kind else ""),
            "write a gate",
        )
    yield NextStep(
        _format_next_command("cut", shorten_trace_paths(first_traces) or paths, options, "--format perfetto"),
        "this window in Perfetto",
    )
    yield NextStep(_format_next_command("compare", base_words, options, other_words), "what another run changed")


def list_unit_commands(traces: Sequence[str], search_result: SearchResult) -> Iterator[NextStep]:
    """Yield commands that measure each repeating unit, for a run that is measured whole because its units are not
    steps.
    """
    if (units := select_other_units(search_result)) is not None:
        yield NextStep(
            _format_next_command("", shorten_trace_paths(traces), [("--anchor", format_anchor(units.anchor))]),
            describe_units(units),
        )


def _format_next_command(name: str, words: Sequence[str], given_options: TypedOptions, extra: str = "") -> str:
    options = _select_options(name, given_options)
    return " ".join(filter(None, ["pytest-nsys", name, quote_command(words), extra, quote_command(options)]))


def _select_options(name: str, given_options: TypedOptions) -> list[str]:
    chosen_options = [option for option in given_options if option[0] not in UNSUPPORTED_OPTIONS.get(name, ())]
    if name in ONE_WINDOW_VIEWS:
        chosen_options = [
            (option, shorten_steady_label(value) if option == "--window" else value) for option, value in chosen_options
        ]
    if name == "kernels":
        chosen_options = [option for option in chosen_options if not _UNCOUNTED_WINDOW.fullmatch(" ".join(option))]
    return [word for option in chosen_options if option[1] for word in option]


def format_detail_command(finding: Finding, traces: Sequence[str], options: TypedOptions = ()) -> str:
    """Return the command that shows more of a finding, with the options of this measurement."""
    name = finding.detail_command.removeprefix("--view ").split()[0]
    return format_finding_command(finding, [*shorten_trace_paths(traces), *_select_options(name, options)])


def shorten_trace_paths(traces: Sequence[str]) -> list[str]:
    """Return the paths for a command; all traces of a folder become the folder."""
    folders = {Path(trace).parent for trace in traces}
    if len(traces) > 1 and len(folders) == 1:
        (folder,) = folders
        with suppress(NsysError):
            # Only where the folder holds these traces and no others.
            if {*find_traces(str(folder), Path())} == {Path(trace) for trace in traces}:
                return [str(folder)]
    return [*traces]
