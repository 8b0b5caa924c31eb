"""Every run of a session, opened once: which files are one capture, and which captures one program?

An error is remembered too, so that a trace fails only once; two captures of the same bytes are refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.registry import Request
from pytest_nsys.analysis.steps.convention_fit import GENERIC, LABELLED, Choice, found
from pytest_nsys.analysis.windows.measurements import Measurements
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import MEDIAN, RUN
from pytest_nsys.core.conventions import Anchor, Convention
from pytest_nsys.core.errors import NsysError, TraceError, UsageMistake, one_line
from pytest_nsys.core.file_names import WINDOW_SUFFIX
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import counted
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.opening import (
    Twice,
    check_one_format,
    find_traces,
    given_twice,
    open_trace,
    shared,
    usual_convention,
)

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

Files = tuple[tuple[Path, ...], ...]
"""The files of each capture."""

Opening = Callable[[Sequence[Path], Convention, Workload, Sequence[Request]], Callable[[Path], Trace]]
"""Makes of the paths of a run, and of what will be asked of it, the function that opens each: many are read ahead."""


LOOKED_AT = 4
"""Files of a run, at most, in which its convention is looked for."""


def as_they_are(*_: object) -> Callable[[Path], Trace]:
    """Nothing is read ahead."""
    return open_trace


@dataclass
class CaptureCache:
    """Every run of a session, opened when first asked for. An error is remembered too: a trace fails only once."""

    opening: Opening = as_they_are
    _fitting: dict[tuple[tuple[Path, ...], Anchor | None, tuple[Convention, ...]], Choice | NsysError] = field(
        default_factory=dict
    )
    _looked_at: dict[Path, Trace] = field(default_factory=dict)
    _known: dict[tuple[Files, Files, Convention, Workload], Captures | NsysError] = field(default_factory=dict)

    def captures(
        self,
        captures: Sequence[str],
        base: Path,
        convention: Convention,
        workload: Workload | None = None,
        requests: Sequence[Request] = (),
        measurements: Files = (),
    ) -> Captures:
        """The captures (file, folder or glob, relative to ``base``) under a convention, and what is stated of them.
        Those that hold other ranks each are files of one capture.

        ``requests`` may say what will be asked of them, so that it can be read ahead. ``measurements`` are the files of
        each capture; without any trace they are the captures.
        Raises UsageMistake for a path that means nothing, TraceError for a trace that cannot be read.
        """
        return self._captures(_named(captures, base), convention, workload or Workload(), requests, measurements)

    def from_bytes(self, content: bytes, convention: Convention, workload: Workload) -> Captures:
        """The run whose windows a file holds that may lie in a commit alone. Raises TraceError."""
        with one_line(TraceError, "the windows of the run before cannot be laid down to be read"):
            path = Path(self._scratch.name, f"{sha256(content).hexdigest()}{WINDOW_SUFFIX}")
            path.write_bytes(content)
        return self.captures([path.name], path.parent, convention, workload)

    @cached_property
    def _scratch(self) -> TemporaryDirectory[str]:
        """A folder of this process, which goes when all files do."""
        from tempfile import TemporaryDirectory  # only what explains a red pays for it

        return TemporaryDirectory(prefix="pytest-nsys-")

    def one_run(
        self,
        traces: Sequence[str],
        base: Path,
        convention: Convention,
        workload: Workload | None = None,
        requests: Sequence[Request] = (),
    ) -> Captures:
        """One capture, of all the files that ``traces`` mean together; everything else as :meth:`captures` has it."""
        return self._captures([_together(traces, base)], convention, workload or Workload(), requests)

    def fitting(
        self,
        captures: Sequence[str],
        base: Path,
        anchor: Anchor | None = None,
        known: Sequence[Convention] = (),
        *,
        one_run: bool = False,
    ) -> Choice:
        """The convention that the first of the captures fits, found in it once; with another ``anchor`` where one is
        named. A cut is read under that of the cut. ``known`` are those of what the captures are held against.
        ``one_run``: they are one capture together.

        Of a run of many files some are looked at. Raises as :meth:`captures` does, and UsageMistake where several
        conventions fit alike.
        """
        if not captures:  # measurements alone, which are read under none
            return Choice(GENERIC, GENERIC)
        first = _together(captures, base) if one_run else _named(captures, base)[0]
        paths = tuple(path.resolve() for path in first)
        key = (paths, anchor, tuple(known))
        if key not in self._fitting:
            try:
                self._fitting[key] = self._found(paths[:: -(-len(paths) // LOOKED_AT)], anchor, known)
            except NsysError as error:
                self._fitting[key] = error
        choice = self._fitting[key]
        if isinstance(choice, NsysError):
            raise choice
        return choice

    def _found(self, paths: Sequence[Path], anchor: Anchor | None, known: Sequence[Convention]) -> Choice:
        usual = usual_convention(paths[0])
        if usual is not None and usual.certain:
            return Choice(usual.convention.with_anchor(anchor), usual.convention, RUN if usual.whole_run else MEDIAN)
        traces = [self._to_look_at(path) for path in paths]
        check_one_format(traces)

        def under(convention: Convention) -> Run:
            return Run(traces, convention)

        return found(under(LABELLED), under, GENERIC if usual is None else usual.convention, anchor, known)

    def _to_look_at(self, path: Path) -> Trace:
        """The trace, which stays open for whoever reads it next."""
        known = (run for each in self._known.values() if isinstance(each, Captures) for run in each.runs)
        read = {trace.path: trace for run in known if not run.convention.copies for trace in run.traces}
        if path in read:
            return read[path]
        if path not in self._looked_at:
            self._looked_at[path] = open_trace(path)
        return self._looked_at[path]

    def _opening(self, paths: Sequence[Path], *asked: Any) -> Callable[[Path], Trace]:
        """What opens the traces; those that were looked at are open, and are given away."""
        opener = self.opening(paths, *asked)

        def opened(path: Path) -> Trace:
            before = self._looked_at.pop(path, None)
            if before is not None and opener is not open_trace:  # it knows what will be asked
                before.close()
                before = None
            return before or opener(path)

        return opened if self._looked_at else opener

    def _captures(
        self,
        named: Sequence[Sequence[Path]],
        convention: Convention,
        stated: Workload,
        requests: Sequence[Request],
        measurements: Files = (),
    ) -> Captures:
        paths = tuple(tuple(p.resolve() for p in own) for own in named)
        key = (paths, measurements, convention, stated)
        if key not in self._known:
            try:
                _check_numbers(named, measurements)
                opening = self._opening([p for own in paths for p in own], convention, stated, requests)
                self._known[key] = Captures(_opened(paths, convention, stated, opening, measurements))
            except NsysError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, NsysError):
            raise found
        return found

    def close(self) -> None:
        """Let all files go."""
        for known in self._known.values():
            if isinstance(known, Captures):
                known.close()
        for trace in self._looked_at.values():
            trace.close()
        self._known.clear()
        self._fitting.clear()
        self._looked_at.clear()
        if (scratch := self.__dict__.pop("_scratch", None)) is not None:
            scratch.cleanup()


def _named(captures: Sequence[str], base: Path) -> list[Sequence[Path]]:
    """The files of each capture. Raises UsageMistake for one that is given twice."""
    named: list[Sequence[Path]] = [find_traces(value, base) for value in captures]
    if len({tuple(p.resolve() for p in own) for own in named}) < len(named):
        raise UsageMistake(f"a capture is given twice: {', '.join(captures)}; each is one run of its own")
    _check_copies(named)
    return named


def _together(traces: Sequence[str], base: Path) -> Sequence[Path]:
    """The files of one run. Raises UsageMistake for one that is given twice."""
    found = [path for value in traces for path in find_traces(value, base)]
    _check_copies([found])
    return found


def _check_copies(captures: Sequence[Sequence[Path]]) -> None:
    """Raises UsageMistake where two captures hold the same trace, which would be taken for two without any noise, or
    one holds it twice, which would be taken for two processes.
    """
    for own in captures:
        if found := given_twice([path] for path in own):
            why = "one process would count twice; give each file of the run once"
            raise UsageMistake(f"{_told(found)}: {why}")
    if found := given_twice(captures):
        raise UsageMistake(f"{_told(found)}: one trace is one sample")


def _told(twice: Twice) -> str:
    if twice.is_copy:
        return f"{twice.first} and {twice.second} hold the same bytes"
    return f"{twice.first} is given twice"


def _check_numbers(captures: Sequence[Sequence[Path]], measurements: Files) -> None:
    """Raises UsageMistake where there are measurements, and not one file or glob of them for each capture."""
    if measurements and captures and len(measurements) != len(captures):
        files, runs = counted(len(measurements), "value"), counted(len(captures), "capture")
        raise UsageMistake(
            f"measurements are given for each capture, in the order of the traces: there are {files} for {runs}"
        )
    if len(set(measurements)) < len(measurements):
        names = ", ".join(str(path) for own in measurements for path in own)
        raise UsageMistake(f"measurements are given twice: {names}; each capture has its own")


def _opened(
    captures: Sequence[Sequence[Path]],
    convention: Convention,
    workload: Workload,
    opening: Callable[[Path], Trace],
    measurements: Files,
) -> list[Run]:
    """The runs of the captures; where one trace cannot be opened, none stays open."""
    count = max(len(captures), len(measurements))
    beside = [Measurements(own) for own in measurements] or [Measurements()] * count
    with contextlib.ExitStack() as opened:
        runs = []
        for paths, own in zip(captures or [()] * count, beside, strict=True):
            traces: list[Trace] = []
            for path in paths:
                traces.append(opening(path))
                opened.callback(traces[-1].close)
            check_one_format(traces)
            runs.append(Run(traces, convention, workload, own))
        if not measurements and _of_other_ranks(runs):
            together = [trace for run in runs for trace in run.traces]
            check_one_format(together)
            runs = [Run(together, convention, workload, beside[0])]
        opened.pop_all()
    return runs


def _of_other_ranks(runs: Sequence[Run]) -> bool:
    """Whether each holds ranks of its own, by their labels: then they are files of one run, and no captures of it."""
    ranks = [{rank.number for rank in run.labelled_ranks} for run in runs]
    return len(runs) > 1 and all(ranks) and sum(map(len, ranks)) == len(set.union(*ranks))


def check_two_runs(now: Sequence[Path], before: Sequence[Path]) -> None:
    """Raises UsageMistake where both sides of a gate hold the same trace: there it is green whatever happened."""
    if not (found := [*shared([now, before])]):
        return
    trace = f"{found[0].first}{f' (of which {found[0].second} is a copy)' if found[0].is_copy else ''}"
    if len(found) < min(len(now), len(before)):
        several = f"{len(found)} of {len(now)} traces are on both sides"
        raise UsageMistake(f"{several}, the first {trace}: there is nothing to compare")
    raise UsageMistake(f"both sides are the same trace: {trace}; there is nothing to compare")


def check_captures(now: Sequence[Sequence[Path]], before: Sequence[Sequence[Path]]) -> None:
    """The same of two runs that a person looks at: some of the traces of a capture may be on both sides."""
    for here, there in product(now, before):
        if len([*shared([here, there])]) >= min(len(here), len(there)):
            check_two_runs(here, there)
