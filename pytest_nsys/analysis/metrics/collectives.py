"""How often, how much and how fast do the ranks communicate? Per (rank, process group, kind of collective).

Profilers and libraries spell a collective in many ways (``_allgather_base``, ``ncclDevKernel_AllGather_RING_LL``,
``all-gather-start``); here each has one name, NCCL's own: ``AllGather``. The factors are those of nccl-tests.

Sizes come from what the profiler recorded of each kernel (:class:`~pytest_nsys.core.model.Collective`), group sizes
from the group. A kernel without a record counts under group ``unknown``, with the kind that its name implies: it has a
number and a time, but no bytes. If a window cuts a kernel, its time is cut; its bandwidth is that of the whole kernel.

Over several ranks, the n-th collective of a process group is the n-th on each of its ranks (:func:`match_ranks`).
Groups are identified by their members (ranks, or the id of the communicator), so that this holds across files and
hosts. A group is left out if its ranks are missing or have other collectives in their windows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.metrics.table import STATISTIC_LABELS
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import RunWindow
from pytest_nsys.core.columns import sum_values_by, take
from pytest_nsys.core.conventions import UNKNOWN_PURPOSE
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import median, resolve_aggregate, simplify_fraction
from pytest_nsys.core.families import find_collective_kind
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import Collective, Value
from pytest_nsys.core.text_format import format_count, sanitize_line

DTYPE_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8"), 1),
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float8_e8m0fnu"), 1),
    "Float4_e2m1fn_x2": 1,
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(("Float", "Int", "UInt32", "QInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Double", "Long", "UInt64", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
"""Maps c10's name of an element type to the bytes of one element."""

_WHOLE_MESSAGE_KINDS = ("AllGather", "ReduceScatter")
"""Lists the kinds whose message is what all ranks together send or receive: the larger side."""


def count_message_bytes(kind: str, collective: Collective) -> int | None:
    """Return the bytes of the message; None if its element type is unknown or the number of elements is not
    recorded.
    """
    size = DTYPE_BYTES.get(collective.dtype or "")
    sent_elements, received_elements = collective.in_elements, collective.out_elements
    if kind in _WHOLE_MESSAGE_KINDS:
        elements = None if sent_elements is None or received_elements is None else max(sent_elements, received_elements)
    elif kind == "SendRecv":
        elements = max((n for n in (sent_elements, received_elements) if n is not None), default=None)
    else:
        elements = sent_elements
    return None if size is None or elements is None else size * elements


def find_bus_factor(kind: str, group_size: int | None) -> Fraction | None:
    """Return the factor from a message's bandwidth to that of the links, as in nccl-tests; None if there is none.

    A group of one rank sends nothing.
    """
    if kind in ("SendRecv", "Broadcast", "Reduce"):
        return Fraction(1)  # each link carries the whole message once
    if group_size is None or group_size < 1:
        return None
    share = Fraction(group_size - 1, group_size)
    if kind == "AllReduce":
        return 2 * share
    return share if kind in ("AllGather", "ReduceScatter", "AllToAll", "Gather", "Scatter") else None


CollectiveLabels = tuple[str, str]
"""Holds (process group, kind of collective)."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Describes one recorded communication kernel: when it ran as a whole, its time in the window, and its record."""

    index: int  # its index in the window
    start_ns: int
    end_ns: int
    in_window_ns: int
    kind: str
    record: Collective
    bytes: int | None  # of the message; None if unknown

    @property
    def group(self) -> str:
        return UNKNOWN_PURPOSE if self.record.group is None else self.record.group

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def algorithm_gb_per_s(self) -> Fraction | None:
        """Return the bytes of the message over the time of the kernel in GB/s (1 byte in 1 ns); None if one is
        unknown.
        """
        return Fraction(self.bytes, self.length_ns) if self.bytes is not None and self.length_ns else None

    @property
    def bus_gb_per_s(self) -> Fraction | None:
        """Return the bandwidth of the links in GB/s, comparable across kinds and group sizes; None if unknown.

        It is the algorithm's bandwidth times 2(n−1)/n for AllReduce, (n−1)/n for AllGather, ReduceScatter and AllToAll,
        1 for SendRecv and Broadcast, with n the size of the group.
        """
        factor = find_bus_factor(self.kind, self.record.group_size)
        algorithm_speed = self.algorithm_gb_per_s
        return None if factor is None or algorithm_speed is None else factor * algorithm_speed


class TransferTotals(NamedTuple):
    """Sums the communication kernels of one group and kind: their number, time in the window, and records."""

    kernel_count: int = 0
    in_window_ns: int = 0
    recorded_transfers: Sequence[Transfer] = ()

    def add(self, addend: TransferTotals) -> TransferTotals:
        sums = self.kernel_count + addend.kernel_count, self.in_window_ns + addend.in_window_ns
        return TransferTotals(*sums, [*self.recorded_transfers, *addend.recorded_transfers])

    @property
    def bytes(self) -> int | None:
        """Return the bytes of all messages; None if the size of one is unknown."""
        sizes = [t.bytes for t in self.recorded_transfers if t.bytes is not None]
        return sum(sizes) if len(sizes) == self.kernel_count else None

    @property
    def bus_gb_per_s(self) -> list[Fraction]:
        """Return the bandwidth of the links, in GB/s, for each kernel where it is known."""
        return [speed for t in self.recorded_transfers if (speed := t.bus_gb_per_s) is not None]

    def measure_utilisation(self, peak_gb_per_s: Fraction | None) -> Value | None:
        """Return the median bus bandwidth over the stated peak of the network; None if one of them is unknown."""
        speeds = self.bus_gb_per_s
        return (
            simplify_fraction(Fraction(median(speeds)) / peak_gb_per_s)
            if speeds and peak_gb_per_s is not None
            else None
        )

    @property
    def group_size(self) -> int | None:
        """Return the number of ranks in the group; None if unknown, or if it differs between groups of one name."""
        sizes = {t.record.group_size for t in self.recorded_transfers}
        return sizes.pop() if len(self.recorded_transfers) == self.kernel_count and len(sizes) == 1 else None


TotalsByLabels = Mapping[CollectiveLabels, TransferTotals]


@memoize_method
def group_transfers(window: RankWindow) -> TotalsByLabels:
    """Group the communication kernels of a window by process group and kind, both ordered by name."""
    totals_by_labels: dict[CollectiveLabels, TransferTotals] = {}
    kernels, names = window.kernels, window.kernels.names
    records = window.track.collectives
    recorded_kernels = [*_list_recorded_kernels(window, records)] if records else []
    for labels, same_labels in group_by_key(((t.group, t.kind), t) for t in recorded_kernels).items():
        totals_by_labels[labels] = TransferTotals(
            len(same_labels), sum(t.in_window_ns for t in same_labels), same_labels
        )
    other_kernels = window.all_communication
    if recorded_kernels:
        other_kernels = array("q", sorted({*other_kernels}.difference(t.index for t in recorded_kernels)))
    unknown_sums = sum_values_by(
        lambda name: (UNKNOWN_PURPOSE, find_collective_kind(names[name])),
        take(window.durations_ns, other_kernels),
        take(kernels.name, other_kernels),
    )
    for labels, (length_ns, count) in unknown_sums.items():
        totals_by_labels[labels] = totals_by_labels.get(labels, TransferTotals()).add(TransferTotals(count, length_ns))
    return dict(sorted(totals_by_labels.items()))


def _list_recorded_kernels(window: RankWindow, records: Mapping[int, Collective]) -> Iterator[Transfer]:
    whole_kernels = window.track.kernels
    for i in window.all_communication:
        if (record := records.get(position := window.positions[i])) is not None:
            kind = find_collective_kind(record.name)
            span = whole_kernels.start_ns[position], whole_kernels.end_ns[position]
            yield Transfer(i, *span, window.durations_ns[i], kind, record, count_message_bytes(kind, record))


def list_recorded_transfers(window: RankWindow) -> Iterator[Transfer]:
    """Yield the communication kernels of a window that a record describes, those of each group by start."""
    return (t for totals in group_transfers(window).values() for t in totals.recorded_transfers)


def _require_transfers(window: RankWindow) -> TotalsByLabels:
    """Return the transfers of a window. Raises NoRows where nothing communicates."""
    totals_by_labels = group_transfers(window)
    if not totals_by_labels:
        raise NoRows("no communication kernel runs in the window")
    return totals_by_labels


def collective_count(window: RankWindow) -> Mapping[CollectiveLabels, int]:
    """Number of communication kernels, per (rank, group, collective)."""
    return {labels: totals.kernel_count for labels, totals in group_transfers(window).items()}


def collective_time_ns(window: RankWindow) -> Mapping[CollectiveLabels, int]:
    """Σ length of communication kernels, per (rank, group, collective)."""
    return {labels: totals.in_window_ns for labels, totals in _require_transfers(window).items()}


def sum_known_bytes(totals_by_labels: TotalsByLabels) -> dict[CollectiveLabels, int]:
    """Return the bytes by group and kind, for those whose sizes are all known."""
    return {labels: size for labels, totals in totals_by_labels.items() if (size := totals.bytes) is not None}


def collective_bytes(window: RankWindow) -> Mapping[CollectiveLabels, int]:
    """Σ bytes of the messages, per (rank, group, collective): of AllGather and ReduceScatter those of all ranks, of
    SendRecv the larger way.
    """
    bytes_by_labels = sum_known_bytes(_require_transfers(window))
    if not bytes_by_labels:
        raise NoRows(explain_missing_sizes(window))
    return bytes_by_labels


def divide_bytes(totals_by_labels: TotalsByLabels) -> dict[CollectiveLabels, Value]:
    """Return the share of all bytes by group and kind; empty if one size is unknown, because the other shares would be
    too large.
    """
    bytes_by_labels = sum_known_bytes(totals_by_labels)
    total_bytes = sum(bytes_by_labels.values())
    if not total_bytes or len(bytes_by_labels) < len(totals_by_labels):
        return {}
    return {labels: simplify_fraction(Fraction(size, total_bytes)) for labels, size in bytes_by_labels.items()}


def traffic_share(window: RankWindow) -> Mapping[CollectiveLabels, Value]:
    """Share of the rank's bytes, per (rank, group, collective); no row where the size of one kernel is unknown."""
    return divide_bytes(group_transfers(window))


def busbw(window: RankWindow) -> Mapping[tuple[str, ...], Value]:
    """What the links carried in the kernels' time, per (rank, group, collective, statistic)."""
    speeds = {labels: totals.bus_gb_per_s for labels, totals in _require_transfers(window).items()}
    if not any(speeds.values()):
        raise NoRows(explain_missing_sizes(window))
    return {
        (*labels, word): simplify_fraction(Fraction(resolve_aggregate(word)(values)))
        for labels, values in speeds.items()
        for word in (STATISTIC_LABELS if values else ())
    }


def bandwidth_utilisation(window: RankWindow) -> Mapping[CollectiveLabels, Value]:
    """Median ``busbw`` over the stated peak of the network, per (rank, group, collective)."""
    peak = window.track.window_group.run.workload.peak_gb_per_s
    shares_by_labels = {labels: totals.measure_utilisation(peak) for labels, totals in group_transfers(window).items()}
    return {labels: share for labels, share in shares_by_labels.items() if share is not None}


def explain_missing_sizes(window: RankWindow) -> str:
    """Return why no collective of a window has a bandwidth, or bytes."""
    if window.track.collectives is None:
        return f"the trace records no sizes of collectives: {window.track.trace_context.facts.to_see_sizes}"
    reasons = list(list_missing_sizes(window))
    return "; ".join(reasons) if reasons else "every kernel has a length of 0"


def list_missing_sizes(window: RankWindow) -> Iterator[str]:
    """Yield what the records of a window's collectives lack, one line for each reason."""
    recorded_transfers, kernel_count = list(list_recorded_transfers(window)), len(window.all_communication)
    if unrecorded_count := kernel_count - len(recorded_transfers):
        yield f"{unrecorded_count} of {format_count(kernel_count, 'communication kernel')} have no record of their size"
    unsized_records = [t.record for t in recorded_transfers if t.bytes is None]
    dtypes = [record.dtype or "" for record in unsized_records if record.dtype not in DTYPE_BYTES]
    for dtype in sorted(set(dtypes)):
        kernels_text = format_count(dtypes.count(dtype), "kernel")
        yield f"{kernels_text} of element type '{sanitize_line(dtype, 40)}', whose size is not known"
    if partial_count := len(unsized_records) - len(dtypes):
        yield f"{format_count(partial_count, 'kernel')} with only a part of the message's size recorded"
    ungrouped_transfers = [t for t in recorded_transfers if t.bytes is not None and t.record.group_size is None]
    if ungrouped_transfers:
        yield (
            f"{format_count(len(ungrouped_transfers), 'kernel')} of a group whose size is not recorded: "
            "it was made before the capture"
        )


def count_unrecorded(window: RankWindow, *, sizes: bool) -> dict[str, tuple[int, int]]:
    """Return (kernels without a record, all kernels) for each kind of collective that is partly recorded.

    With ``sizes``, a record counts only if it has a bandwidth, otherwise if it has a group. A kind without any record
    is left out, because it has no rows that could be mistaken for complete.
    """
    recorded_flags: dict[str, list[bool]] = {}
    for (_, kind), totals in group_transfers(window).items():
        recorded_count = len(totals.recorded_transfers)
        if sizes:
            recorded_count = sum(
                t.bytes is not None and t.record.group_size is not None for t in totals.recorded_transfers
            )
        recorded_flags.setdefault(kind, []).extend(
            [True] * recorded_count + [False] * (totals.kernel_count - recorded_count)
        )
    return {kind: (flags.count(False), len(flags)) for kind, flags in recorded_flags.items() if len({*flags}) > 1}


SYMMETRIC_KINDS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
"""Lists the kinds in which every rank records the same size."""


@dataclass(frozen=True)
class MatchedGroup:
    """Holds the collectives of one process group by rank, in order; each rank has the same number and kinds."""

    members: str  # the ranks, or the id of the communicator
    transfers_by_rank: Mapping[int, Sequence[Transfer]]

    @property
    def name(self) -> str:
        """Return the group's name on its first rank; a communicator's name differs between processes."""
        return next(iter(self.transfers_by_rank.values()))[0].group

    @property
    def collectives(self) -> Iterator[tuple[Transfer, ...]]:
        """Yield the kernels of each collective, in the order of the ranks."""
        return zip(*self.transfers_by_rank.values(), strict=True)


class MatchedGroups(NamedTuple):
    """Holds the matched groups, and says why others are not matched."""

    groups: Sequence[MatchedGroup]
    unmatched_reasons: Sequence[str]  # which groups are not matched, and why


@memoize_method
def match_window(window: RunWindow) -> MatchedGroups:
    """Match the collectives of all groups of a run over their ranks."""
    return match_ranks(window.by_rank)


def match_ranks(by_rank: Mapping[int, RankWindow]) -> MatchedGroups:
    """Match the collectives of all groups over the ranks in ``by_rank``."""
    matched_groups: list[MatchedGroup] = []
    unmatched_reasons: list[str] = []
    for members, transfers_by_rank in _group_by_members(by_rank).items():
        group = MatchedGroup(members, transfers_by_rank)
        try:
            _check_same_collectives(transfers_by_rank)
        except ValueError as error:
            unmatched_reasons.append(f"group {sanitize_line(group.name, 60)}: {error}")
        else:
            matched_groups.append(group)
    return MatchedGroups(matched_groups, unmatched_reasons)


def _group_by_members(by_rank: Mapping[int, RankWindow]) -> dict[str, dict[int, list[Transfer]]]:
    """Return the collectives of each process group by rank, in the order in which they ran.

    Sends and receives of more than two ranks are between different pairs, and left out.
    """
    transfers_by_members: dict[str, dict[int, list[Transfer]]] = {}
    for rank, window in sorted(by_rank.items()):
        for transfer in list_recorded_transfers(window):
            record = transfer.record
            if record.members is None or record.group is None:
                continue
            # In a larger group each send is between two ranks, which no record names.
            if transfer.kind == "SendRecv" and record.group_size != 2:
                continue
            transfers_by_members.setdefault(record.members, {}).setdefault(rank, []).append(transfer)
    for ranks in transfers_by_members.values():
        for transfers in ranks.values():
            transfers.sort(key=lambda t: (t.start_ns, t.end_ns, t.kind))
    return dict(sorted(transfers_by_members.items()))


def _check_same_collectives(transfers_by_rank: Mapping[int, Sequence[Transfer]]) -> None:
    """Raise ValueError if the collectives of a group cannot be shown to be the same on all of its ranks."""
    sizes = {t.record.group_size for rank_transfers in transfers_by_rank.values() for t in rank_transfers}
    if sizes == {None}:
        raise ValueError("its size is not recorded")
    if sizes != {len(transfers_by_rank)}:
        sizes_text = ", ".join(str(size) for size in sorted(size for size in sizes if size is not None))
        raise ValueError(f"it has {sizes_text} ranks, of which {len(transfers_by_rank)} are here")
    counts = sorted({len(rank_transfers) for rank_transfers in transfers_by_rank.values()})
    if len(counts) > 1:
        raise ValueError(f"its ranks have from {counts[0]} to {counts[-1]} collectives in their windows")
    signatures = {tuple(map(make_signature, rank_transfers)) for rank_transfers in transfers_by_rank.values()}
    if len(signatures) > 1:
        raise ValueError("its ranks have different collectives in their windows")


def make_signature(transfer: Transfer) -> tuple[str, int | None]:
    """Return what a collective must have in common on all of its ranks."""
    return transfer.kind, transfer.bytes if transfer.kind in SYMMETRIC_KINDS else None
