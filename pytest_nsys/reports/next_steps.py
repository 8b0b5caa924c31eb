"""Which commands lead on from the first screen? Each can be pasted: paths are quoted, as they were typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import Step
from pytest_nsys.traces.opening import find_traces

OTHER = "OTHER_RUN"
"""Stands where a person puts the path of another run."""


def next_steps(traces: Sequence[str]) -> Iterator[Step]:
    """A gate, the window in Perfetto, and a comparison."""
    paths = as_typed(traces)
    yield Step(f"pytest-nsys init {shlex.join(paths)}", "write a gate")
    yield Step(f"pytest-nsys cut {shlex.join(paths)}", "this window in Perfetto")
    base = shlex.join(paths) if len(paths) == 1 else shlex.join(word for path in paths for word in ("--base", path))
    yield Step(f"pytest-nsys compare {base} {'' if len(paths) == 1 else '--head '}{OTHER}", "what another run changed")


def as_typed(traces: Sequence[str]) -> list[str]:
    """The paths as a command takes them: of all traces of a folder the folder."""
    folders = {Path(trace).parent for trace in traces}
    if len(traces) > 1 and len(folders) == 1:
        (folder,) = folders
        with suppress(NsysError):
            if {*find_traces(str(folder), Path())} == {Path(trace) for trace in traces}:
                return [str(folder)]
    return [*traces]
