"""Every run of a session, opened once: which files are one capture, and which captures one program?

An error is remembered too, so that a trace fails only once; two captures of the same bytes are refused.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.measurements import Measurements
from pytest_nsys.analysis.quality import Request
from pytest_nsys.analysis.run import Run
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import NsysError, UsageMistake
from pytest_nsys.core.model import Trace
from pytest_nsys.core.words import counted
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.opening import check_one_format, find_traces, given_twice, in_both, open_trace

Files = tuple[tuple[Path, ...], ...]
"""The files of each capture."""

Opening = Callable[[Sequence[Path], Convention, Workload, Sequence[Request]], Callable[[Path], Trace]]
"""Makes of the paths of a run, and of what will be asked of it, the function that opens each: many are read ahead."""


def as_they_are(*_: object) -> Callable[[Path], Trace]:
    """Nothing is read ahead."""
    return open_trace


@dataclass
class CaptureCache:
    """Every run of a session, opened when first asked for. An error is remembered too: a trace fails only once."""

    opening: Opening = as_they_are
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

        ``requests`` may say what will be asked of them, so that it can be read ahead. ``measurements`` are the files of
        each capture; without any trace they are the captures.
        Raises UsageMistake for a path that means nothing, TraceError for a trace that cannot be read.
        """
        named = [find_traces(value, base) for value in captures]
        if len({tuple(p.resolve() for p in own) for own in named}) < len(named):
            raise UsageMistake(f"a capture is given twice: {', '.join(captures)}; each is one run of its own")
        return self._captures(named, convention, workload or Workload(), requests, measurements)

    def one_run(
        self,
        traces: Sequence[str],
        base: Path,
        convention: Convention,
        workload: Workload | None = None,
        requests: Sequence[Request] = (),
    ) -> Captures:
        """One capture, of all the files that ``traces`` mean together; everything else as :meth:`captures` has it."""
        found = [path for value in traces for path in find_traces(value, base)]
        path, times = Counter(path.resolve() for path in found).most_common(1)[0]
        if times > 1:
            raise UsageMistake(f"{path}: is given twice; give each file of the run once")
        return self._captures([found], convention, workload or Workload(), requests)

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
                _check_copies(named)
                _check_numbers(named, measurements)
                opening = self.opening([p for own in paths for p in own], convention, stated, requests)
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
        self._known.clear()


def _check_copies(captures: Sequence[Sequence[Path]]) -> None:
    """Raises UsageMistake where two captures hold the same trace, which would be taken for two without any noise."""
    if (found := given_twice(captures)) is None:
        return
    what = f"{found.first} and {found.second} hold the same bytes" if found.is_copy else f"{found.first} is given twice"
    raise UsageMistake(f"{what}: one trace is one sample")


def _check_numbers(captures: Sequence[Sequence[Path]], measurements: Files) -> None:
    """Raises UsageMistake where there are measurements, and not one file or glob of them for each capture."""
    if measurements and captures and len(measurements) != len(captures):
        files, runs = counted(len(measurements), "value"), counted(len(captures), "capture")
        raise UsageMistake(
            f"measurements are given for each capture, in the order of the traces: there are {files} of "
            f"--nsys-measurements for {runs}"
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
        opened.pop_all()
    return runs


def check_two_runs(now: Sequence[Path], before: Sequence[Path]) -> None:
    """Raises UsageMistake where both sides of a comparison hold the same trace: it would be green whatever happened."""
    if found := in_both(now, before):
        and_copy = f" (of which {found.second} is a copy)" if found.is_copy else ""
        raise UsageMistake(f"both sides are the same trace: {found.first}{and_copy}; nothing can differ")
