"""Which call of NCCL launched a kernel, of how many bytes, in which communicator? NCCL says so in its own NVTX ranges.

Every call of NCCL is a range (``ncclAllReduce``) whose payload holds the size of the message and, if NCCL is not too
old, the communicator. Alone it launches its kernel inside its range; calls between ``ncclGroupStart`` and
``ncclGroupEnd`` are launched together inside the latter. How many ranks a communicator has stands in the range that
made it.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.core.model import NO_LAUNCH, Collective, Kernels, Lane
from pytest_nsys.traces.nsys.columns import LaunchTable, check_whole, launch_rows
from pytest_nsys.traces.nsys.payloads import PayloadRow, has_payloads, read_payloads
from pytest_nsys.traces.nsys.tables import THREAD_BITS
from pytest_nsys.traces.sqlite_file import SqliteFile

TO_SEE_SIZES = (
    "an export of nsys has the sizes of collectives only in the payloads of NCCL's NVTX ranges: capture with "
    "--trace=cuda,nvtx, and export with `nsys export --type=sqlite --include-blobs=true`"
)
PREFIX = "nccl"
CALL = re.compile(r"nccl[A-Z]\w*")
"""A range of NCCL itself; ``nccl:all_reduce`` is one of torch around it."""
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"
COMMUNICATOR, BYTES, RANKS, PEER = "ncclcommunicatorid", "messagesizebytes", "noofranks", "peerrank"
SENDS, RECEIVES = "ncclSend", "ncclRecv"
OF_ONE_RANK = {"ncclAllGather": (1, None), "ncclReduceScatter": (None, 1), "ncclAlltoAll": (None, None)}
"""Calls whose size is that of one rank's part, and of which side it is the whole; the rest is that times the ranks."""


class Launch(NamedTuple):
    """Where a kernel was launched."""

    start_ns: int
    thread: int


class Communicator(NamedTuple):
    """One communicator of a process: its name here, as its id differs from run to run, and how many ranks it has."""

    name: str | None
    ranks: int | None


def read_collectives(
    file: SqliteFile, kernels: Mapping[Lane, Kernels]
) -> Mapping[Lane, Sequence[Collective | None]] | None:
    """For each kernel the call that launched it; None where the export has no payloads. Raises TypeError if damaged."""
    if not has_payloads(file):
        return None
    calls: dict[int, list[PayloadRow]] = defaultdict(list)
    for row in read_payloads(file, PREFIX):
        if CALL.fullmatch(row.name):
            calls[row.global_tid & ~THREAD_BITS].append(row)
    launches = _launches(file, kernels)
    found: dict[Lane, Sequence[Collective | None]] = {}
    for lane, some in kernels.items():
        own = _Calls(calls.get(lane.global_pid, []))
        found[lane] = own.of([launches.get((lane.global_pid, c)) for c in some.correlation])
    return found


def _launches(file: SqliteFile, kernels: Mapping[Lane, Kernels]) -> dict[tuple[int, int], Launch]:
    """The earliest launch of each kernel, by process and correlation."""
    parts: dict[int, list[array[int]]] = defaultdict(list)
    for lane, some in kernels.items():
        parts[lane.global_pid].append(some.correlation)
    found: dict[tuple[int, int], Launch] = {}
    for start, tid, correlation in launch_rows(file, {pid: LaunchTable(own) for pid, own in parts.items()}):
        check_whole(start, tid)
        key = (tid & ~THREAD_BITS, correlation)
        if key not in found or start < found[key].start_ns:
            found[key] = Launch(start, tid)
    return found


class _Calls:
    """The calls of NCCL in one process."""

    def __init__(self, rows: Sequence[PayloadRow]) -> None:
        ordered = sorted(rows, key=lambda row: (row.start_ns, -row.end_ns, row.name))
        self.communicators = _communicators(ordered)
        self._threads: dict[int, list[PayloadRow]] = defaultdict(list)
        for row in ordered:
            self._threads[row.global_tid].append(row)
        self._starts = {tid: [row.start_ns for row in own] for tid, own in self._threads.items()}
        self._parents = {tid: _parents(own) for tid, own in self._threads.items()}

    def of(self, launches: Sequence[Launch | None]) -> list[Collective | None]:
        """The collective of each launch. Kernels of one group share its calls: one has all, several one each."""
        places = [None if launch is None else self._around(launch) for launch in launches]
        together: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, place in enumerate(places):
            if place is not None:
                together[place].append(i)
        found: list[Collective | None] = [None] * len(launches)
        for (thread, index), members in together.items():
            members.sort(key=lambda i: launches[i] or Launch(NO_LAUNCH, 0))
            calls = self._grouped(thread, index)
            if len(members) == 1:
                found[members[0]] = self._joined(calls)
            elif len(members) == len(calls):
                for i, call in zip(members, calls, strict=True):
                    found[i] = self._joined([call])
        return found

    def _around(self, launch: Launch) -> tuple[int, int] | None:
        """The thread and place of the outermost range of NCCL around a launch: a group's end, or a call alone."""
        own = self._threads.get(launch.thread)
        if not own:
            return None
        outermost = None
        at = bisect_right(self._starts[launch.thread], launch.start_ns) - 1
        while at >= 0:
            if own[at].end_ns >= launch.start_ns:
                outermost = at
            at = self._parents[launch.thread][at]
        return None if outermost is None else (launch.thread, outermost)

    def _grouped(self, thread: int, index: int) -> list[PayloadRow]:
        """The calls that a range launches: itself, or those since the start of the group that it ends."""
        own = self._threads[thread]
        if own[index].name != GROUP_END:
            return [own[index]] if BYTES in own[index].fields else []
        calls, depth = [], 0
        for row in reversed(own[:index]):
            if row.name == GROUP_END:
                depth += 1
            elif row.name == GROUP_START:
                if not depth:
                    break
                depth -= 1
            elif BYTES in row.fields:
                calls.append(row)
        return calls[::-1]

    def _joined(self, calls: Sequence[PayloadRow]) -> Collective | None:
        """Several calls as one: of one kind and communicator, or sends and receives."""
        if len({call.fields.get(COMMUNICATOR) for call in calls}) > 1:
            return None
        if not calls:
            return None
        number = calls[0].fields.get(COMMUNICATOR)  # older versions of NCCL tell the size alone
        communicator = Communicator(None, None) if number is None else self.communicators[number]
        names = {call.name for call in calls}
        if names <= {SENDS, RECEIVES}:
            name, given, got = _exchange(calls, communicator.ranks)
        elif len(names) == 1:
            name = calls[0].name
            given, got = _sides(name, sum(call.fields[BYTES] for call in calls), communicator.ranks)
        else:
            return None
        members = None if number is None else f"{number & (1 << 64) - 1:#x}"
        return Collective(name, communicator.name, members, communicator.ranks, given, got, "Byte")


def _parents(rows: Sequence[PayloadRow]) -> list[int]:
    """The place of the range around each range of a thread, -1 where there is none; ``rows`` are by start."""
    parents: list[int] = []
    around: list[int] = []
    for i, row in enumerate(rows):
        while around and rows[around[-1]].end_ns < row.end_ns:
            around.pop()
        parents.append(around[-1] if around else -1)
        around.append(i)
    return parents


def _communicators(rows: Sequence[PayloadRow]) -> dict[int, Communicator]:
    """By id, named in the order in which the process first used them."""
    ranks: dict[int, int | None] = {}
    for row in rows:
        communicator = row.fields.get(COMMUNICATOR)
        if communicator is not None:
            ranks[communicator] = row.fields.get(RANKS) or ranks.get(communicator)
    return {number: Communicator(f"comm{i}", size) for i, (number, size) in enumerate(ranks.items())}


def _sides(name: str, size_bytes: int, ranks: int | None) -> tuple[int | None, int | None]:
    """What the rank gives and gets, in bytes; None where that takes the number of ranks, which is not known."""
    if name not in OF_ONE_RANK:
        return size_bytes, size_bytes
    whole = None if ranks is None else size_bytes * ranks
    given, got = OF_ONE_RANK[name]
    return size_bytes if given else whole, size_bytes if got else whole


def _exchange(calls: Sequence[PayloadRow], ranks: int | None) -> tuple[str, int | None, int | None]:
    """Sends to all ranks and receives from all are what NCCL before 2.28 makes of an all-to-all."""
    sends = [call for call in calls if call.name == SENDS]
    receives = [call for call in calls if call.name == RECEIVES]
    peers = [{call.fields.get(PEER) for call in some} for some in (sends, receives)]
    to_all = ranks is not None and ranks > 1 and all(len(some) == ranks for some in peers)
    given, got = (sum(call.fields[BYTES] for call in some) for some in (sends, receives))
    return "AllToAll" if to_all else "SendRecv", given, got
