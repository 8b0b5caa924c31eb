"""How is every run of a session opened only once, and which of its files form one capture?

Errors are kept too, so that a trace fails only once. Two captures with the same bytes are refused.
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
from pytest_nsys.analysis.metrics.registry import MetricRequest
from pytest_nsys.analysis.steps.convention_fit import GENERIC, OPENING_CONVENTION, ConventionChoice, find_convention
from pytest_nsys.analysis.windows.measurements import OutsideMeasurements
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import MEDIAN, RUN
from pytest_nsys.core.conventions import Anchor, Convention
from pytest_nsys.core.errors import NsysError, TraceError, UsageMistake, convert_os_errors
from pytest_nsys.core.file_names import WINDOW_SUFFIX
from pytest_nsys.core.text_format import format_count
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.trace_files import (
    DuplicateTrace,
    check_one_format,
    find_duplicate_trace,
    find_traces,
    find_usual_convention,
    iterate_duplicate_traces,
    open_trace,
)

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

CaptureFiles = tuple[tuple[Path, ...], ...]
"""The files of each capture."""

OpenerFactory = Callable[[Sequence[Path], Convention, Workload, Sequence[MetricRequest]], Callable[[Path], Trace]]
"""Makes the function that opens each trace, from the paths of a run and the metrics that will be requested, so that
these can be read ahead.
"""


MAX_CONVENTION_FILES = 4
"""The maximum number of files of a run that are read to find its convention."""


def make_plain_opener(*_: object) -> Callable[[Path], Trace]:
    """Return the function that opens a trace without reading anything ahead."""
    return open_trace


@dataclass
class CaptureCache:
    """Holds every run of a session, opened on first use. An error is kept too: a trace fails only once."""

    make_opener: OpenerFactory = make_plain_opener
    _choices: dict[tuple[tuple[Path, ...], Anchor | None, tuple[Convention, ...]], ConventionChoice | NsysError] = (
        field(default_factory=dict)
    )
    _examined_traces: dict[Path, Trace] = field(default_factory=dict)
    _opened_captures: dict[tuple[CaptureFiles, CaptureFiles, Convention, Workload], Captures | NsysError] = field(
        default_factory=dict
    )

    def open_captures(
        self,
        captures: Sequence[str],
        base: Path,
        convention: Convention,
        workload: Workload | None = None,
        requests: Sequence[MetricRequest] = (),
        measurements: CaptureFiles = (),
    ) -> Captures:
        """Open captures (each a file, folder or glob, relative to ``base``) under a convention and with the stated
        workload.

        Captures that each hold other ranks are files of one capture. ``requests`` are metrics that will be requested,
        so that they can be read ahead. ``measurements`` are the measurement files of each capture; without any trace
        they are the captures. Raises UsageMistake for a path that matches nothing, TraceError for a trace that cannot
        be read.
        """
        return self._open_captures(
            _find_capture_files(captures, base), convention, workload or Workload(), requests, measurements
        )

    def open_window_bytes(self, content: bytes, convention: Convention, workload: Workload) -> Captures:
        """Open the run whose windows are stored in this content, which may come from a commit. Raises TraceError."""
        with convert_os_errors(TraceError, "the windows of the base cannot be laid down to be read"):
            path = Path(self._scratch_folder.name, f"{sha256(content).hexdigest()}{WINDOW_SUFFIX}")
            path.write_bytes(content)
        return self.open_captures([path.name], path.parent, convention, workload)

    @cached_property
    def _scratch_folder(self) -> TemporaryDirectory[str]:
        """A temporary folder of this process, which is removed when all files are closed."""
        from tempfile import TemporaryDirectory  # imported only to explain failed assertions

        return TemporaryDirectory(prefix="pytest-nsys-")

    def open_one_run(
        self,
        traces: Sequence[str],
        base: Path,
        convention: Convention,
        workload: Workload | None = None,
        requests: Sequence[MetricRequest] = (),
    ) -> Captures:
        """Open all files that ``traces`` match as one capture; otherwise as :meth:`open_captures`."""
        return self._open_captures([_find_run_files(traces, base)], convention, workload or Workload(), requests)

    def choose_convention(
        self,
        captures: Sequence[str],
        base: Path,
        anchor: Anchor | None = None,
        reference_conventions: Sequence[Convention] = (),
        *,
        one_run: bool = False,
    ) -> ConventionChoice:
        """Return the convention that the first capture fits, determined only once; with ``anchor`` instead of its own,
        if given.

        A cut is read under its own convention. ``reference_conventions`` are those of the runs that the captures are
        compared with. With ``one_run`` all captures together are one. Raises as :meth:`open_captures` does, and
        UsageMistake if several conventions fit equally well.
        """
        if not captures:  # only measurements, which need no convention
            return ConventionChoice(GENERIC, GENERIC)
        first_files = _find_run_files(captures, base) if one_run else _find_capture_files(captures, base)[0]
        paths = tuple(path.resolve() for path in first_files)
        key = (paths, anchor, tuple(reference_conventions))
        if key not in self._choices:
            try:
                # A few evenly spread files represent a run of many.
                self._choices[key] = self._detect_convention(
                    paths[:: -(-len(paths) // MAX_CONVENTION_FILES)], anchor, reference_conventions
                )
            except NsysError as error:
                self._choices[key] = error
        choice = self._choices[key]
        if isinstance(choice, NsysError):
            raise choice
        return choice

    def _detect_convention(
        self, paths: Sequence[Path], anchor: Anchor | None, reference_conventions: Sequence[Convention]
    ) -> ConventionChoice:
        """Find the convention that these traces fit. Raises UsageMistake if several fit equally well."""
        usual_choice = find_usual_convention(paths[0])
        if usual_choice is not None and usual_choice.certain:
            return ConventionChoice(
                usual_choice.convention.with_anchor(anchor),
                usual_choice.convention,
                RUN if usual_choice.whole_run else MEDIAN,
            )
        traces = [self._open_to_examine(path) for path in paths]
        check_one_format(traces)

        def make_run(convention: Convention) -> Run:
            return Run(traces, convention)

        return find_convention(
            make_run(OPENING_CONVENTION),
            make_run,
            GENERIC if usual_choice is None else usual_choice.convention,
            anchor,
            reference_conventions,
        )

    def _open_to_examine(self, path: Path) -> Trace:
        """Open a trace, and keep it open for the next reader."""
        known_runs = (
            run
            for captures in self._opened_captures.values()
            if isinstance(captures, Captures)
            for run in captures.runs
        )
        open_traces = {trace.path: trace for run in known_runs if not run.convention.copies for trace in run.traces}
        if path in open_traces:
            return open_traces[path]
        if path not in self._examined_traces:
            self._examined_traces[path] = open_trace(path)
        return self._examined_traces[path]

    def _make_opener(self, paths: Sequence[Path], *arguments: Any) -> Callable[[Path], Trace]:
        """Return the function that opens the traces of a run; it hands over those that are open already."""
        opener = self.make_opener(paths, *arguments)

        def open_examined(path: Path) -> Trace:
            examined_trace = self._examined_traces.pop(path, None)
            if (
                examined_trace is not None and opener is not open_trace
            ):  # the given opener reads ahead what will be requested
                examined_trace.close()
                examined_trace = None
            return examined_trace or opener(path)

        return open_examined if self._examined_traces else opener

    def _open_captures(
        self,
        capture_files: Sequence[Sequence[Path]],
        convention: Convention,
        workload: Workload,
        requests: Sequence[MetricRequest],
        measurements: CaptureFiles = (),
    ) -> Captures:
        """Open captures by their files, or return them if they are open. Raises the error again if opening them failed
        before.
        """
        paths = tuple(tuple(p.resolve() for p in files) for files in capture_files)
        key = (paths, measurements, convention, workload)
        if key not in self._opened_captures:
            try:
                _check_measurement_files(capture_files, measurements)
                opening = self._make_opener([p for files in paths for p in files], convention, workload, requests)
                self._opened_captures[key] = Captures(_open_runs(paths, convention, workload, opening, measurements))
            except NsysError as error:
                self._opened_captures[key] = error
        captures = self._opened_captures[key]
        if isinstance(captures, NsysError):
            raise captures
        return captures

    def close(self) -> None:
        """Close all files and forget all runs."""
        for captures in self._opened_captures.values():
            if isinstance(captures, Captures):
                captures.close()
        for trace in self._examined_traces.values():
            trace.close()
        self._opened_captures.clear()
        self._choices.clear()
        self._examined_traces.clear()
        if (scratch := self.__dict__.pop("_scratch_folder", None)) is not None:
            scratch.cleanup()


def _find_capture_files(captures: Sequence[str], base: Path) -> list[Sequence[Path]]:
    """Find the files of each capture. Raises UsageMistake for a file that is given twice."""
    capture_files: list[Sequence[Path]] = [find_traces(value, base) for value in captures]
    if len({tuple(p.resolve() for p in files) for files in capture_files}) < len(capture_files):
        raise UsageMistake(f"a capture is given twice: {', '.join(captures)}; each is one run of its own")
    _check_no_duplicates(capture_files)
    return capture_files


def _find_run_files(traces: Sequence[str], base: Path) -> Sequence[Path]:
    """Find the files of one run. Raises UsageMistake for a file that is given twice."""
    files = [path for value in traces for path in find_traces(value, base)]
    _check_no_duplicates([files])
    return files


def _check_no_duplicates(captures: Sequence[Sequence[Path]]) -> None:
    """Check that no trace counts twice. Raises UsageMistake if two captures share a trace, or one holds it twice."""
    # One trace in two captures would look like no noise; twice in one capture it would look like two processes.
    for files in captures:
        if duplicate := find_duplicate_trace([path] for path in files):
            reason = "one process would count twice; give each file of the run once"
            raise UsageMistake(f"{_describe_duplicate(duplicate)}: {reason}")
    if duplicate := find_duplicate_trace(captures):
        raise UsageMistake(f"{_describe_duplicate(duplicate)}: one trace is one sample")


def _describe_duplicate(duplicate: DuplicateTrace) -> str:
    if duplicate.is_file_copy:
        return f"{duplicate.first} and {duplicate.second} hold the same bytes"
    return f"{duplicate.first} is given twice"


def _check_measurement_files(captures: Sequence[Sequence[Path]], measurements: CaptureFiles) -> None:
    """Check that each capture has one file or glob of measurements. Raises UsageMistake otherwise."""
    if measurements and captures and len(measurements) != len(captures):
        files, runs = format_count(len(measurements), "value"), format_count(len(captures), "capture")
        raise UsageMistake(
            f"measurements are given for each capture, in the order of the traces: there are {files} for {runs}"
        )
    if len(set(measurements)) < len(measurements):
        names = ", ".join(str(path) for capture_measurements in measurements for path in capture_measurements)
        raise UsageMistake(f"measurements are given twice: {names}; each capture has its own")


def _open_runs(
    captures: Sequence[Sequence[Path]],
    convention: Convention,
    workload: Workload,
    open_file: Callable[[Path], Trace],
    measurements: CaptureFiles,
) -> list[Run]:
    """Open the runs of the captures; if one trace cannot be opened, none stays open."""
    count = max(len(captures), len(measurements))
    measurements_by_capture = [OutsideMeasurements(files) for files in measurements] or [OutsideMeasurements()] * count
    with contextlib.ExitStack() as open_files:  # closes opened traces if a later one fails
        runs = []
        for paths, capture_measurements in zip(captures or [()] * count, measurements_by_capture, strict=True):
            traces: list[Trace] = []
            for path in paths:
                traces.append(open_file(path))
                open_files.callback(traces[-1].close)
            check_one_format(traces)
            runs.append(Run(traces, convention, workload, capture_measurements))
        if not measurements and _hold_other_ranks(runs):
            all_traces = [trace for run in runs for trace in run.traces]
            check_one_format(all_traces)
            runs = [Run(all_traces, convention, workload, measurements_by_capture[0])]
        open_files.pop_all()
    return runs


def _hold_other_ranks(runs: Sequence[Run]) -> bool:
    """Return whether no two runs hold the same labelled rank: then they are files of one run, not captures."""
    ranks = [{rank.number for rank in run.labelled_ranks} for run in runs]
    return len(runs) > 1 and all(ranks) and sum(map(len, ranks)) == len(set.union(*ranks))


def check_distinct_runs(current: Sequence[Path], baseline: Sequence[Path]) -> None:
    """Check that the two sides of a gate are two runs. Raises UsageMistake if both hold the same trace."""
    # A trace compared with itself always passes.
    if not (shared_traces := [*iterate_duplicate_traces([current, baseline])]):
        return
    example = shared_traces[0]
    trace = f"{example.first}{f' (of which {example.second} is a copy)' if example.is_file_copy else ''}"
    if len(shared_traces) < min(len(current), len(baseline)):
        share_text = f"{len(shared_traces)} of {len(current)} traces are on both sides"
        raise UsageMistake(f"{share_text}, the first {trace}: there is nothing to compare")
    raise UsageMistake(f"both sides are the same trace: {trace}; there is nothing to compare")


def check_distinct_captures(current: Sequence[Sequence[Path]], baseline: Sequence[Sequence[Path]]) -> None:
    """Check that no capture of one run is a capture of the other; single traces may be on both sides.

    Raises UsageMistake otherwise. This is the check for a comparison that a person looks at, not for a gate.
    """
    for current_files, baseline_files in product(current, baseline):
        if len([*iterate_duplicate_traces([current_files, baseline_files])]) >= min(
            len(current_files), len(baseline_files)
        ):
            check_distinct_runs(current_files, baseline_files)
