"""What does a window launch, where, and in which order? Counts, names and fingerprints, which no noise moves.

Kernels are told apart by :func:`row_name`: the short one, without what differs from build to build, and where it says
nothing with the arguments of its template. Two runs that are compared are first of all two lists of names: ranks,
stages, streams with their purposes, kernels, and how often.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import NamedTuple

from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.columns import Column, members_by, order, sums_by, take, total, where, where_not
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.exact import exact
from pytest_nsys.core.kept import kept
from pytest_nsys.core.kernel_names import row_name
from pytest_nsys.core.model import Label, Note, Stream, Value, stream_labels
from pytest_nsys.core.words import counted

HASH_BITS = 52
"""Of a fingerprint: what every reader of JSON keeps exactly."""

PAGEABLE = "pageable"


def kernel_launches(window: RankWindow) -> Mapping[tuple[str, str], int]:
    """Number of kernels of one name, per (rank, stage, kernel)."""
    (numbers, stages), (rows, names) = window.stages, row_names(window)

    def place(number: int, row: int) -> tuple[str, str]:
        return stages[number], names[row]

    found = sorted(sums_by(place, window.durations_ns, numbers, rows).items())
    return {labels: count for labels, (_, count) in found}


def kernel_share(window: RunWindow) -> Mapping[str, Value]:
    """Share of all kernels' time, where it is most, per kernel."""
    most: dict[str, Fraction] = {}
    for own in window.by_rank.values():
        lengths: Counter[str] = Counter()
        names = own.kernels.names
        for (short, full), (length, _) in own.by_name.items():
            lengths[row_name(names[short], names.get(full, ""))] += length
        whole = lengths.total()
        for kernel, length in lengths.items() if whole else ():
            most[kernel] = max(most.get(kernel, Fraction(0)), Fraction(length, whole))
    return {kernel: exact(share) for kernel, share in sorted(most.items())}


def sequence(window: RankWindow) -> Mapping[tuple[str, Label], int]:
    """Fingerprint of the kernels' order, per (rank, stage, stream)."""
    return {labels: fingerprint(names) for labels, names in _in_order(window)}


def sequences(window: RankWindow) -> Mapping[int, tuple[str, ...]]:
    """What each fingerprint of the window is of."""
    return {fingerprint(names): tuple(names) for _, names in _in_order(window)}


def fingerprint(names: Sequence[str]) -> int:
    """A number of HASH_BITS that stands for these names in this order."""
    digest = sha256("\n".join(names).encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - HASH_BITS)


def _in_order(window: RankWindow) -> Iterator[tuple[tuple[str, Label], list[str]]]:
    """The names of the kernels of each (stage, stream), by start; of equal times by name."""
    kernels, labels, (numbers, stages) = window.kernels, stream_labels(window.by_stream), window.stages
    rows, names = row_names(window)
    ordered = order(kernels.start_ns, kernels.end_ns, rows)

    def lane(number: int, stream: int) -> tuple[str, Stream]:
        return stages[number], kernels.streams[stream]

    for (stage, stream), own in sorted(members_by(lane, numbers, kernels.stream, among=ordered).items()):
        yield (stage, labels[stream]), [names[row] for row in take(rows, own)]


@kept
def row_names(window: RankWindow) -> tuple[Column, Sequence[str]]:
    """A number for each kernel, and the name in rows that it stands for: numbered as the names are sorted."""
    return window.named(row_name)


def compute_on_comm_streams(window: RankWindow) -> Mapping[Label, int]:
    """Compute kernels on streams that mostly communicate, per (rank, stream).

    Half of them is enough. A stream with more compute than communication is a compute stream with barriers; it has no
    row here.
    """
    each = _communicating(window)
    return {label: compute for label, communication, compute in each if compute <= communication}


def _communicating(window: RankWindow) -> Iterator[tuple[Label, int, int]]:
    """(stream, communication kernels, compute kernels) of each stream that communicates."""
    labels = stream_labels(window.by_stream)
    for stream, members in window.by_stream.items():
        if communicating := total(take(window.communicates, members)):
            yield labels[stream], communicating, len(members) - communicating


class SharedStream(NamedTuple):
    """A stream whose kernels mostly communicate, and that computes too, so that its communication is barrier.

    ``compute`` are (kernels, time in ns) by name in rows, ``communication`` kernels.
    """

    label: Label
    compute: Mapping[str, tuple[int, int]]
    communication: Mapping[str, int]


def shared_streams(window: RankWindow) -> Iterator[SharedStream]:
    """The streams that ``compute_on_comm_streams`` counts any kernel of."""
    labels = stream_labels(window.by_stream)
    for stream, members in window.by_stream.items():
        communicating = take(members, where(take(window.communicates, members)))
        if 0 < len(members) - len(communicating) <= len(communicating):
            computing = take(members, where_not(take(window.communicates, members)))
            compute, communication = (_by_name(window, own) for own in (computing, communicating))
            counts = {name: count for name, (_, count) in communication.items()}
            yield SharedStream(labels[stream], {name: own[::-1] for name, own in compute.items()}, counts)


def _by_name(window: RankWindow, indices: Column) -> dict[str, tuple[int, int]]:
    """(time in ns, number) of some kernels by name in rows."""
    rows, names = row_names(window)
    return sums_by(names.__getitem__, take(window.durations_ns, indices), take(rows, indices))


def barrier_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """That ``compute_on_comm_streams`` does not speak of the streams that mostly compute, with one of them."""
    for window in (window for run in captures for window in run.measured(spec) if not window.track.unordered):
        for label, communication, compute in _communicating(window):
            if compute > communication:
                kernels = f"{counted(communication, 'communication kernel')} among {counted(compute, 'compute kernel')}"
                place = f"rank {window.rank.number} stream {label}"
                yield Note(f"{place} has {kernels}: these are barriers; 'barrier_ns' is their time")
                return


def pageable_copies(window: RankWindow) -> int | None:
    """Copies from or to pageable host memory that the window launches, per rank.

    No row where the trace does not say which memory a copy of the window reads or writes.
    """
    copies = window.track.copies((window.window.start_ns, window.window.end_ns))
    if copies is None:
        return None
    pageable = sum(PAGEABLE in (copy.source, copy.target) for copy in copies)
    return pageable if pageable or all(copy.source and copy.target for copy in copies) else None


class ContentKind(enum.StrEnum):
    """What a name is the name of."""

    RANK = "rank"
    STAGE = "stage"
    STREAM = "stream"
    KERNEL = "kernel"


class Item(NamedTuple):
    """One named thing on one rank."""

    kind: ContentKind
    name: str
    rank: int


def contents(run: Run, spec: WindowSpec) -> Mapping[Item, int]:
    """What the windows of every rank hold, with the number of kernels that were launched for it."""
    found: Counter[Item] = Counter()
    for rank, windows in run.measured(spec).filled().items():
        for window in windows:
            found[Item(ContentKind.RANK, str(rank), rank)] += len(window)
            for (kind, name), launches in _named(window).items():
                found[Item(kind, name, rank)] += launches
    return found


def _named(window: RankWindow) -> Mapping[tuple[ContentKind, str], int]:
    found: Counter[tuple[ContentKind, str]] = Counter()
    for stage, members in window.all_by_stage.items():
        if stage != NO_STAGE:
            found[ContentKind.STAGE, stage] += len(members)
    labels = stream_labels(use.stream for use in window.streams)
    for use in window.streams:
        name = f"{labels[use.stream]} ({use.purpose})"
        found[ContentKind.STREAM, name] += use.communication_kernels + use.compute_kernels
    names = window.kernels.names
    for (short, full), (_, launches) in window.by_name.items():
        found[ContentKind.KERNEL, names.get(full) or names[short]] += launches
    return found
