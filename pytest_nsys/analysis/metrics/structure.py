"""What does a window launch, where, and in which order? Counts, names and fingerprints, which are free of noise.

Kernels are distinguished by :func:`make_row_name`: the short name without what differs from build to build, with its
template arguments if it says nothing without them. Two runs are first compared as two lists of names: ranks, stages,
streams with their purposes, kernels, and their counts.
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
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.columns import (
    Column,
    find_nonzero,
    find_zeros,
    group_indices_by,
    sort_indices,
    sum_column,
    sum_values_by,
    take,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.exact import simplify_fraction
from pytest_nsys.core.kernel_names import make_row_name
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import Label, Note, Stream, Value, label_streams
from pytest_nsys.core.text_format import format_count

HASH_BITS = 52
"""Limits the size of a fingerprint to what every reader of JSON keeps exactly."""

PAGEABLE = "pageable"


def kernel_launches(window: RankWindow) -> Mapping[tuple[str, str], int]:
    """Number of kernels of one name, per (rank, stage, kernel)."""
    (stage_numbers, stages), (name_numbers, names) = window.stage_codes, encode_row_names(window)

    def label_kernel(stage_number: int, name_number: int) -> tuple[str, str]:
        return stages[stage_number], names[name_number]

    sums = sorted(sum_values_by(label_kernel, window.durations_ns, stage_numbers, name_numbers).items())
    return {labels: count for labels, (_, count) in sums}


def kernel_share(window: RunWindow) -> Mapping[str, Value]:
    """Share of all kernels' time, where it is most, per kernel."""
    largest_shares: dict[str, Fraction] = {}
    for rank_window in window.by_rank.values():
        lengths_ns: Counter[str] = Counter()
        names = rank_window.kernels.names
        for (short, full), (length, _) in rank_window.totals_by_name.items():
            lengths_ns[make_row_name(names[short], names.get(full, ""))] += length
        total_ns = lengths_ns.total()
        for kernel, length in lengths_ns.items() if total_ns else ():
            largest_shares[kernel] = max(largest_shares.get(kernel, Fraction(0)), Fraction(length, total_ns))
    return {kernel: simplify_fraction(share) for kernel, share in sorted(largest_shares.items())}


def sequence(window: RankWindow) -> Mapping[tuple[str, Label], int]:
    """Fingerprint of the kernels' order, per (rank, stage, stream)."""
    return {labels: make_fingerprint(names) for labels, names in _list_ordered_names(window)}


def map_names_by_fingerprint(window: RankWindow) -> Mapping[int, tuple[str, ...]]:
    """Return the kernel names that each fingerprint of the window stands for."""
    return {make_fingerprint(names): tuple(names) for _, names in _list_ordered_names(window)}


def make_fingerprint(names: Sequence[str]) -> int:
    """Return a number of HASH_BITS that stands for these names in this order."""
    # Names may hold bytes that are not UTF-8.
    digest = sha256("\n".join(names).encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - HASH_BITS)


def _list_ordered_names(window: RankWindow) -> Iterator[tuple[tuple[str, Label], list[str]]]:
    """Yield the names of the kernels of each (stage, stream), by start; of equal times by name."""
    kernels, labels, (stage_numbers, stages) = (
        window.kernels,
        label_streams(window.kernels_by_stream),
        window.stage_codes,
    )
    name_numbers, names = encode_row_names(window)
    kernel_order = sort_indices(kernels.start_ns, kernels.end_ns, name_numbers)

    def label_kernel(stage_number: int, stream_number: int) -> tuple[str, Stream]:
        return stages[stage_number], kernels.streams[stream_number]

    for (stage, stream), indices in sorted(
        group_indices_by(label_kernel, stage_numbers, kernels.stream, subset=kernel_order).items()
    ):
        yield (stage, labels[stream]), [names[name_number] for name_number in take(name_numbers, indices)]


@memoize_method
def encode_row_names(window: RankWindow) -> tuple[Column, Sequence[str]]:
    """Return a number for each kernel, and the name in rows that each number stands for: numbered as the names are
    sorted.
    """
    return window.encode_names(make_row_name)


def compute_on_comm_streams(window: RankWindow) -> Mapping[Label, int]:
    """Compute kernels on streams that mostly communicate, per (rank, stream).

    Half of them is enough. A stream with more compute than communication is a compute stream with barriers; it has no
    row here.
    """
    stream_counts = _list_communicating_streams(window)
    return {label: compute for label, communication, compute in stream_counts if compute <= communication}


def _list_communicating_streams(window: RankWindow) -> Iterator[tuple[Label, int, int]]:
    """Yield (stream, communication kernels, compute kernels) of each stream that communicates."""
    labels = label_streams(window.kernels_by_stream)
    for stream, members in window.kernels_by_stream.items():
        if comm_count := sum_column(take(window.communicates, members)):
            yield labels[stream], comm_count, len(members) - comm_count


class SharedStream(NamedTuple):
    """Describes a stream whose kernels mostly communicate, and that computes too, so that its communication is
    barrier.
    """

    label: Label
    compute: Mapping[str, tuple[int, int]]  # (kernels, time in ns) by name in rows
    communication: Mapping[str, int]  # kernels by name in rows


def list_shared_streams(window: RankWindow) -> Iterator[SharedStream]:
    """Yield the streams that ``compute_on_comm_streams`` counts any kernel of."""
    labels = label_streams(window.kernels_by_stream)
    for stream, members in window.kernels_by_stream.items():
        comm_indices = take(members, find_nonzero(take(window.communicates, members)))
        if 0 < len(members) - len(comm_indices) <= len(comm_indices):
            compute_indices = take(members, find_zeros(take(window.communicates, members)))
            compute, communication = (_sum_by_name(window, indices) for indices in (compute_indices, comm_indices))
            counts = {name: count for name, (_, count) in communication.items()}
            yield SharedStream(labels[stream], {name: sums[::-1] for name, sums in compute.items()}, counts)


def _sum_by_name(window: RankWindow, indices: Column) -> dict[str, tuple[int, int]]:
    """Return (time in ns, number) of some kernels by name in rows."""
    rows, names = encode_row_names(window)
    return sum_values_by(names.__getitem__, take(window.durations_ns, indices), take(rows, indices))


def barrier_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield a note that ``compute_on_comm_streams`` does not speak of the streams that mostly compute, with one of
    them.
    """
    for window in (
        window for run in captures for window in run.load_windows(spec) if not window.track.unordered_streams
    ):
        for label, communication, compute in _list_communicating_streams(window):
            if compute > communication:
                kernels_text = (
                    f"{format_count(communication, 'communication kernel')} among "
                    f"{format_count(compute, 'compute kernel')}"
                )
                place_text = f"rank {window.rank.number} stream {label}"
                yield Note(f"{place_text} has {kernels_text}: these are barriers; 'barrier_ns' is their time")
                return


def pageable_copies(window: RankWindow) -> int | None:
    """Copies from or to pageable host memory that the window launches, per rank.

    No row where the trace does not say which memory a copy of the window reads or writes.
    """
    copies = window.track.select_copies((window.window.start_ns, window.window.end_ns))
    if copies is None:
        return None
    pageable = sum(PAGEABLE in (copy.source, copy.target) for copy in copies)
    return pageable if pageable or all(copy.source and copy.target for copy in copies) else None


class ContentKind(enum.StrEnum):
    """Says what a name is the name of."""

    RANK = "rank"
    STAGE = "stage"
    STREAM = "stream"
    KERNEL = "kernel"


class ContentItem(NamedTuple):
    """Names one thing on one rank."""

    kind: ContentKind
    name: str
    rank: int


def count_contents(run: Run, spec: WindowSpec) -> Mapping[ContentItem, int]:
    """Return what the windows of every rank hold, with the number of kernels that were launched for it."""
    counts: Counter[ContentItem] = Counter()
    for rank, windows in run.load_windows(spec).require_filled_windows().items():
        for window in windows:
            counts[ContentItem(ContentKind.RANK, str(rank), rank)] += len(window)
            for (kind, name), launches in _count_names(window).items():
                counts[ContentItem(kind, name, rank)] += launches
    return counts


def _count_names(window: RankWindow) -> Mapping[tuple[ContentKind, str], int]:
    counts: Counter[tuple[ContentKind, str]] = Counter()
    for stage, members in window.kernels_by_stage.items():
        if stage != NO_STAGE:  # the absence of a stage is no name to compare
            counts[ContentKind.STAGE, stage] += len(members)
    labels = label_streams(stream_use.stream for stream_use in window.stream_uses)
    for stream_use in window.stream_uses:
        name = f"{labels[stream_use.stream]} ({stream_use.purpose})"
        counts[ContentKind.STREAM, name] += stream_use.communication_kernels + stream_use.compute_kernels
    names = window.kernels.names
    for (short, full), (_, launches) in window.totals_by_name.items():
        counts[ContentKind.KERNEL, names.get(full) or names[short]] += launches
    return counts
