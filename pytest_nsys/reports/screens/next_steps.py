"""Which commands lead on from the first screen? Each can be pasted: paths are quoted, as they were typed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_nsys.analysis.metrics.registry import OF_ONE_WINDOW
from pytest_nsys.analysis.steps.words import Searched, other_units, units_words
from pytest_nsys.analysis.summary.findings import Finding
from pytest_nsys.analysis.windows.spans import of_one_window
from pytest_nsys.core.conventions import written_anchor
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import Step
from pytest_nsys.core.words import typed
from pytest_nsys.reports.screens.findings import command_for
from pytest_nsys.traces.opening import find_traces

OTHER = "OTHER_RUN"
"""Stands where a person puts the path of another run."""


NOT_OF = {
    "init": ("--window", "--span", "--kernels", "--rank"),
    "compare": ("--rank",),
    "check": ("--window", "--span", "--kernels", "--rank"),
}
"""Lists by command the options that it lacks, though they may have been typed to measure this."""

_NO_STEPS = re.compile(r"--window -?\d+:-?\d+")
"""Matches windows of which it is not known how many steps they hold, by which the view of kernels divides."""

Given = Sequence[tuple[str, str]]
"""Pairs options with their values."""


def next_steps(
    traces: Sequence[str],
    given: Given = (),
    first: Sequence[str] = (),
    kind: str | None = None,
    *,
    is_cut: bool = False,
) -> Iterator[Step]:
    """Yield a gate, the window in Perfetto, and a comparison, with the options that this was measured by.

    ``kind`` is the kind of step that was measured, of several. Where the traces are captures of several runs,
    ``first_traces`` are those of the first one, which a cut is of. No gate is drafted of what ``is_cut``.
    """
    paths = as_typed(traces)
    base_words = paths if len(paths) == 1 else [word for path in paths for word in ("--base", path)]
    other_words = OTHER if len(paths) == 1 else f"--head {OTHER}"
    if not is_cut:
        # Of several kinds of steps the gate names the one that was measured.
        yield Step(_command("init", paths, given, typed(["--window", kind]) if kind else ""), "write a gate")
    yield Step(_command("cut", as_typed(first) or paths, given, "--format perfetto"), "this window in Perfetto")
    yield Step(_command("compare", base_words, given, other_words), "what another run changed")


def of_units(traces: Sequence[str], searched: Searched) -> Iterator[Step]:
    """Yield what measures each of the units that repeat, where the whole run is measured because they are no steps."""
    if (units := other_units(searched)) is not None:
        yield Step(_command("", as_typed(traces), [("--anchor", written_anchor(units.anchor))]), units_words(units))


def _command(name: str, words: Sequence[str], given: Given, more: str = "") -> str:
    options = _options(name, given)
    return " ".join(filter(None, ["pytest-nsys", name, typed(words), more, typed(options)]))


def _options(name: str, given: Given) -> list[str]:
    chosen_options = [option for option in given if option[0] not in NOT_OF.get(name, ())]
    if name in OF_ONE_WINDOW:
        chosen_options = [
            (option, of_one_window(value) if option == "--window" else value) for option, value in chosen_options
        ]
    if name == "kernels":
        chosen_options = [option for option in chosen_options if not _NO_STEPS.fullmatch(" ".join(option))]
    return [word for option in chosen_options if option[1] for word in option]


def to_see_more(finding: Finding, traces: Sequence[str], given: Given = ()) -> str:
    """Return the command that shows more of a finding, measured as this was."""
    name = finding.more.removeprefix("--view ").split()[0]
    return command_for(finding, [*as_typed(traces), *_options(name, given)])


def as_typed(traces: Sequence[str]) -> list[str]:
    """Return the paths as a command takes them: of all traces of a folder the folder."""
    folders = {Path(trace).parent for trace in traces}
    if len(traces) > 1 and len(folders) == 1:
        (folder,) = folders
        with suppress(NsysError):
            # Only where the folder holds these traces and no others.
            if {*find_traces(str(folder), Path())} == {Path(trace) for trace in traces}:
                return [str(folder)]
    return [*traces]
