"""How often, how much and how fast do the ranks communicate? Per (rank, process group, kind of collective).

Profilers and libraries spell a collective in many ways (``_allgather_base``, ``ncclDevKernel_AllGather_RING_LL``,
``all-gather-start``); here each has one name, NCCL's own: ``AllGather``. The factors are those of nccl-tests.

Sizes come from what the profiler recorded of each kernel (:class:`~pytest_nsys.core.model.Collective`), group sizes
from the group. A kernel without a record counts under group ``unknown``, its kind told by its name: it has a number and
a time, but no bytes. Where a window cuts a kernel its time is cut; its bandwidth is that of the whole kernel.

Over several ranks the n-th collective of a process group is the n-th on each of its ranks (:func:`match`). Groups are
told by their members (ranks, or the id of the communicator), so that this holds over files and hosts, too. A group of
which that cannot be said, because ranks are missing or have other collectives in their windows, is left out.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.metrics.table import STATISTICS
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import RunWindow
from pytest_nsys.core.columns import sums_by, take
from pytest_nsys.core.conventions import UNKNOWN
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import aggregate, exact, median
from pytest_nsys.core.families import kind_of
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import Collective, Value
from pytest_nsys.core.words import counted, printable

DTYPE_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8"), 1),
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float8_e8m0fnu"), 1),
    "Float4_e2m1fn_x2": 1,
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(("Float", "Int", "UInt32", "QInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Double", "Long", "UInt64", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
"""Bytes of an element by c10's name of its type."""

_WHOLE_MESSAGE = ("AllGather", "ReduceScatter")
"""Their message is what all ranks together give or get: the larger side."""


def message_bytes(kind: str, collective: Collective) -> int | None:
    """Bytes of the message; None where the type of its elements is unknown, or their number is not recorded."""
    size = DTYPE_BYTES.get(collective.dtype or "")
    given, got = collective.in_elements, collective.out_elements
    if kind in _WHOLE_MESSAGE:
        elements = None if given is None or got is None else max(given, got)
    elif kind == "SendRecv":
        elements = max((n for n in (given, got) if n is not None), default=None)
    else:
        elements = given
    return None if size is None or elements is None else size * elements


def bus_factor(kind: str, group_size: int | None) -> Fraction | None:
    """What the bandwidth of the message is multiplied by to be that of the links; None where there is no such factor.

    A group of one rank sends nothing.
    """
    if kind in ("SendRecv", "Broadcast", "Reduce"):
        return Fraction(1)
    if group_size is None or group_size < 1:
        return None
    share = Fraction(group_size - 1, group_size)
    if kind == "AllReduce":
        return 2 * share
    return share if kind in ("AllGather", "ReduceScatter", "AllToAll", "Gather", "Scatter") else None


Labels = tuple[str, str]
"""(group, kind)"""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One communication kernel on record: when it ran as a whole, how long in the window, and what the record says.

    ``index`` is its place in the window. ``bytes`` is None where it is not known.
    """

    index: int
    start_ns: int
    end_ns: int
    in_window_ns: int
    kind: str
    record: Collective
    bytes: int | None

    @property
    def group(self) -> str:
        return UNKNOWN if self.record.group is None else self.record.group

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def algorithm_gb_per_s(self) -> Fraction | None:
        """Bytes of the message over the time of the kernel; 1 byte in 1 ns is 1 GB/s."""
        return Fraction(self.bytes, self.length_ns) if self.bytes is not None and self.length_ns else None

    @property
    def bus_gb_per_s(self) -> Fraction | None:
        """What the links carried, comparable over kinds and group sizes.

        That is the algorithm's bandwidth times 2(n−1)/n for AllReduce, (n−1)/n for AllGather, ReduceScatter and
        AllToAll, 1 for SendRecv and Broadcast, with n the size of the group.
        """
        factor = bus_factor(self.kind, self.record.group_size)
        speed = self.algorithm_gb_per_s
        return None if factor is None or speed is None else factor * speed


class Transfers(NamedTuple):
    """The communication kernels of one group and kind: how many, how long in the window, and those on record."""

    kernels: int = 0
    in_window_ns: int = 0
    recorded: Sequence[Transfer] = ()

    def and_(self, other: Transfers) -> Transfers:
        sums = self.kernels + other.kernels, self.in_window_ns + other.in_window_ns
        return Transfers(*sums, [*self.recorded, *other.recorded])

    @property
    def bytes(self) -> int | None:
        """Of all messages; None where the size of one is not known."""
        sizes = [t.bytes for t in self.recorded if t.bytes is not None]
        return sum(sizes) if len(sizes) == self.kernels else None

    @property
    def bus_gb_per_s(self) -> list[Fraction]:
        """What the links carried in each kernel that says it."""
        return [speed for t in self.recorded if (speed := t.bus_gb_per_s) is not None]

    def utilisation(self, peak_gb_per_s: Fraction | None) -> Value | None:
        """The median of what the links carried over the stated peak of the network; None where one is not known."""
        speeds = self.bus_gb_per_s
        return exact(Fraction(median(speeds)) / peak_gb_per_s) if speeds and peak_gb_per_s is not None else None

    @property
    def group_size(self) -> int | None:
        """None where it is not known, or differs between groups of one name."""
        sizes = {t.record.group_size for t in self.recorded}
        return sizes.pop() if len(self.recorded) == self.kernels and len(sizes) == 1 else None


Found = Mapping[Labels, Transfers]


@kept
def transfers(window: RankWindow) -> Found:
    """The communication kernels of a window by group and kind, both ordered by name."""
    found: dict[Labels, Transfers] = {}
    kernels, names = window.kernels, window.kernels.names
    known = window.track.collectives
    recorded = [*_recorded(window, known)] if known else []
    for labels, own in grouped(((t.group, t.kind), t) for t in recorded).items():
        found[labels] = Transfers(len(own), sum(t.in_window_ns for t in own), own)
    others = window.all_communication
    if recorded:
        others = array("q", sorted({*others}.difference(t.index for t in recorded)))
    unknown = sums_by(
        lambda name: (UNKNOWN, kind_of(names[name])), take(window.durations_ns, others), take(kernels.name, others)
    )
    for labels, (length, number) in unknown.items():
        found[labels] = found.get(labels, Transfers()).and_(Transfers(number, length))
    return dict(sorted(found.items()))


def _recorded(window: RankWindow, known: Mapping[int, Collective]) -> Iterator[Transfer]:
    whole = window.track.kernels
    for i in window.all_communication:
        if (record := known.get(position := window.positions[i])) is not None:
            kind = kind_of(record.name)
            span = whole.start_ns[position], whole.end_ns[position]
            yield Transfer(i, *span, window.durations_ns[i], kind, record, message_bytes(kind, record))


def on_record(window: RankWindow) -> Iterator[Transfer]:
    """The communication kernels of a window of which a record says something, each group's by start."""
    return (t for own in transfers(window).values() for t in own.recorded)


def _found(window: RankWindow) -> Found:
    """The transfers of a window. Raises NoRows where nothing communicates."""
    found = transfers(window)
    if not found:
        raise NoRows("no communication kernel runs in the window")
    return found


def collective_count(window: RankWindow) -> Mapping[Labels, int]:
    """Number of communication kernels, per (rank, group, collective)."""
    return {labels: own.kernels for labels, own in transfers(window).items()}


def collective_time_ns(window: RankWindow) -> Mapping[Labels, int]:
    """Σ length of communication kernels, per (rank, group, collective)."""
    return {labels: own.in_window_ns for labels, own in _found(window).items()}


def sized(found: Found) -> dict[Labels, int]:
    """Bytes by group and kind, of those whose every size is known."""
    return {labels: size for labels, own in found.items() if (size := own.bytes) is not None}


def collective_bytes(window: RankWindow) -> Mapping[Labels, int]:
    """Σ bytes of the messages, per (rank, group, collective): of AllGather and ReduceScatter those of all ranks, of
    SendRecv the larger way.
    """
    known = sized(_found(window))
    if not known:
        raise NoRows(why_no_sizes(window))
    return known


def shares(found: Found) -> dict[Labels, Value]:
    """Share of all bytes by group and kind; none where one size is unknown, for of the rest each would be too large."""
    known = sized(found)
    total = sum(known.values())
    if not total or len(known) < len(found):
        return {}
    return {labels: exact(Fraction(size, total)) for labels, size in known.items()}


def traffic_share(window: RankWindow) -> Mapping[Labels, Value]:
    """Share of the rank's bytes, per (rank, group, collective); no row where the size of one kernel is unknown."""
    return shares(transfers(window))


def busbw(window: RankWindow) -> Mapping[tuple[str, ...], Value]:
    """What the links carried in the kernels' time, per (rank, group, collective, statistic)."""
    speeds = {labels: own.bus_gb_per_s for labels, own in _found(window).items()}
    if not any(speeds.values()):
        raise NoRows(why_no_sizes(window))
    return {
        (*labels, word): exact(Fraction(aggregate(word)(values)))
        for labels, values in speeds.items()
        for word in (STATISTICS if values else ())
    }


def bandwidth_utilisation(window: RankWindow) -> Mapping[Labels, Value]:
    """Median ``busbw`` over the stated peak of the network, per (rank, group, collective)."""
    peak = window.track.group.run.workload.peak_gb_per_s
    each = {labels: own.utilisation(peak) for labels, own in transfers(window).items()}
    return {labels: share for labels, share in each.items() if share is not None}


def why_no_sizes(window: RankWindow) -> str:
    """Why no collective of a window has a bandwidth, or bytes."""
    if window.track.collectives is None:
        return f"the trace records no sizes of collectives: {window.track.around.facts.to_see_sizes}"
    lacks = list(lacking(window))
    return "; ".join(lacks) if lacks else "every kernel has a length of 0"


def lacking(window: RankWindow) -> Iterator[str]:
    """What the records of a window's collectives lack, one line for each reason."""
    members, kernels = list(on_record(window)), len(window.all_communication)
    if without := kernels - len(members):
        yield f"{without} of {counted(kernels, 'communication kernel')} have no record of their size"
    unclear = [t.record for t in members if t.bytes is None]
    dtypes = [record.dtype or "" for record in unclear if record.dtype not in DTYPE_BYTES]
    for dtype in sorted(set(dtypes)):
        n = counted(dtypes.count(dtype), "kernel")
        yield f"{n} of element type '{printable(dtype, 40)}', whose size is not known"
    if partly := len(unclear) - len(dtypes):
        yield f"{counted(partly, 'kernel')} with only a part of the message's size recorded"
    unsized = [t for t in members if t.bytes is not None and t.record.group_size is None]
    if unsized:
        yield f"{counted(len(unsized), 'kernel')} of a group whose size is not recorded: it was made before the capture"


def unrecorded(window: RankWindow, *, sizes: bool) -> dict[str, tuple[int, int]]:
    """Return of each kind of collective that is partly on record how many kernels are not, and of how many: by their
    group, or with ``sizes`` by their bandwidth. Of a kind without any there are no rows that are held to be all.
    """
    found: dict[str, list[bool]] = {}
    for (_, kind), own in transfers(window).items():
        known = len(own.recorded)
        if sizes:
            known = sum(t.bytes is not None and t.record.group_size is not None for t in own.recorded)
        found.setdefault(kind, []).extend([True] * known + [False] * (own.kernels - known))
    return {kind: (own.count(False), len(own)) for kind, own in found.items() if len({*own}) > 1}


SYMMETRIC = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
"""Kinds in which every rank records the same size."""


@dataclass(frozen=True)
class MatchedGroup:
    """The collectives of one process group by rank, in the order in which they ran: as many on each, of equal kinds."""

    members: str
    ranks: Mapping[int, Sequence[Transfer]]

    @property
    def name(self) -> str:
        """What its first rank calls it: a communicator has a name in each process."""
        return next(iter(self.ranks.values()))[0].group

    @property
    def collectives(self) -> Iterator[tuple[Transfer, ...]]:
        """The kernels of each collective, in the order of ``ranks``."""
        return zip(*self.ranks.values(), strict=True)


class Matches(NamedTuple):
    """The groups that are matched. ``unmatched`` says of which others they are not, and why."""

    groups: Sequence[MatchedGroup]
    unmatched: Sequence[str]


@kept
def matches(window: RunWindow) -> Matches:
    """The collectives of all groups of a run, matched over their ranks."""
    return match(window.by_rank)


def match(by_rank: Mapping[int, RankWindow]) -> Matches:
    """The collectives of all groups of some ranks, matched over these."""
    found: list[MatchedGroup] = []
    unmatched: list[str] = []
    for members, ranks in _groups(by_rank).items():
        group = MatchedGroup(members, ranks)
        try:
            _check(ranks)
        except ValueError as why:
            unmatched.append(f"group {printable(group.name, 60)}: {why}")
        else:
            found.append(group)
    return Matches(found, unmatched)


def _groups(by_rank: Mapping[int, RankWindow]) -> dict[str, dict[int, list[Transfer]]]:
    """The collectives of each process group by rank, in the order in which they ran.

    Sends and receives of more than two ranks are between different pairs, and left out.
    """
    found: dict[str, dict[int, list[Transfer]]] = {}
    for number, own in sorted(by_rank.items()):
        for transfer in on_record(own):
            record = transfer.record
            if record.members is None or record.group is None:
                continue
            if transfer.kind == "SendRecv" and record.group_size != 2:
                continue
            found.setdefault(record.members, {}).setdefault(number, []).append(transfer)
    for ranks in found.values():
        for transfers in ranks.values():
            transfers.sort(key=lambda t: (t.start_ns, t.end_ns, t.kind))
    return dict(sorted(found.items()))


def _check(ranks: Mapping[int, Sequence[Transfer]]) -> None:
    """Raises ValueError where the collectives of a group cannot be told to be the same on all of its ranks."""
    sizes = {t.record.group_size for own in ranks.values() for t in own}
    if sizes == {None}:
        raise ValueError("its size is not recorded")
    if sizes != {len(ranks)}:
        wanted = ", ".join(str(size) for size in sorted(size for size in sizes if size is not None))
        raise ValueError(f"it has {wanted} ranks, of which {len(ranks)} are here")
    counts = sorted({len(own) for own in ranks.values()})
    if len(counts) > 1:
        raise ValueError(f"its ranks have from {counts[0]} to {counts[-1]} collectives in their windows")
    signatures = {tuple(map(signature, own)) for own in ranks.values()}
    if len(signatures) > 1:
        raise ValueError("its ranks have different collectives in their windows")


def signature(transfer: Transfer) -> tuple[str, int | None]:
    """What of a collective is the same on all of its ranks."""
    return transfer.kind, transfer.bytes if transfer.kind in SYMMETRIC else None
