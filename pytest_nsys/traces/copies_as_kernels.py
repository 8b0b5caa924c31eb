"""How do copies that a convention counts as communication appear among the kernels of a trace? Under the name of their
kind.

:class:`TraceWithCopies` reads all of them from the trace, once, and only under a convention with ``copies:``. Every
other query goes to the trace unchanged.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from pytest_nsys.core.columns import find_touching_spans, sort_indices
from pytest_nsys.core.conventions import COMMUNICATION_PREFIX, COPY_NAMES, CopyKind
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Collective, Interval, Lane, Stream, TraceFacts
from pytest_nsys.core.tables import Kernels, concatenate_kernels
from pytest_nsys.core.trace import Trace

# Kernels are named by numbers from 0 on: copies take those below.
COPY_NAME_IDS: Mapping[str, int] = {kind: -1 - number for number, kind in enumerate(CopyKind)}
COPY_NAMES_BY_ID: Mapping[int, str] = {COPY_NAME_IDS[kind]: name for kind, name in COPY_NAMES.items()}

# Below the ids of kinds, so that all may stand in one table.
COPY_ID, MEMSET_ID, GRAPH_ID = -101, -102, -103
TRANSFER_NAMES: Mapping[int, str] = {COPY_ID: "copy", MEMSET_ID: "memset", GRAPH_ID: "graph"}
"""The names of what is no kernel and keeps a GPU busy; a graph is one that was traced without its kernels."""

# What the copy engines do for a collective: profilers call it the one or the other, by how the memory is mapped.
NCCL_COPY_KINDS = (CopyKind.PEER, CopyKind.DEVICE_TO_DEVICE)

# What communicates, whichever copies a convention counts.
INTER_GPU_COPY_KINDS = (CopyKind.PEER, CopyKind.COLLECTIVE)

# Ranges inside which NCCL launches its work: its own, and the operators of PyTorch's process groups.
NCCL_CALL_PATTERNS = (COMMUNICATION_PREFIX + "%", "c10d::%", "record_param_comms%")


def list_readable_kinds(kinds: Sequence[str]) -> tuple[CopyKind, ...]:
    """Return the kinds that profilers tell apart; which copies are of a collective shows only where they were
    launched.
    """
    readable_kinds = {*kinds, *(NCCL_COPY_KINDS if CopyKind.COLLECTIVE in kinds else ())}
    return tuple(kind for kind in CopyKind if kind in readable_kinds and kind != CopyKind.COLLECTIVE)


def select_copies(trace: Trace, copies: Mapping[Lane, Kernels], kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
    """Return those copies of :func:`list_readable_kinds` that are of ``kinds``.

    A copy that was launched inside a range of ``NCCL_CALL_PATTERNS``, on any thread, is of a collective; a range that
    was never closed is left out.
    """
    if CopyKind.COLLECTIVE not in kinds or not copies:
        return copies
    ranges, launches = trace.ranges(NCCL_CALL_PATTERNS), trace.launch_calls(copies)
    nccl_ids, selected_ids = {COPY_NAME_IDS[kind] for kind in NCCL_COPY_KINDS}, {COPY_NAME_IDS[kind] for kind in kinds}
    selected_copies: dict[Lane, Kernels] = {}
    for lane, lane_copies in copies.items():
        spans = merge_spans(
            [(r.start_ns, r.end_ns) for r in ranges.get(lane.global_pid, ()) if r.end_ns != OPEN_END_NS]
        )
        names = array("q", lane_copies.name)
        for i, (name, launch) in enumerate(zip(lane_copies.name, launches[lane].start_ns, strict=True)):
            if name in nccl_ids and launch != NO_LAUNCH and _is_in_spans(launch, spans):
                names[i] = COPY_NAME_IDS[CopyKind.COLLECTIVE]
        indices = [i for i, name in enumerate(names) if name in selected_ids]
        if indices:
            selected_copies[lane] = replace(lane_copies, name=names, full_name=names).take(indices)
    return selected_copies


def merge_spans(spans: Sequence[Interval]) -> list[Interval]:
    """Return the same times as spans that do not touch, ordered by start."""
    merged_spans: list[Interval] = []
    for start, end in sorted(spans):
        if merged_spans and start <= merged_spans[-1][1]:
            merged_spans[-1] = (merged_spans[-1][0], max(end, merged_spans[-1][1]))
        else:
            merged_spans.append((start, end))
    return merged_spans


def _is_in_spans(time_ns: int, spans: Sequence[Interval]) -> bool:
    """Return whether a time is in one of the spans, which are ordered and do not touch."""
    index = bisect_right(spans, (time_ns, OPEN_END_NS)) - 1
    return index >= 0 and time_ns <= spans[index][1]


def add_copies(trace: Trace, kinds: Sequence[CopyKind]) -> Trace:
    """Return the trace with these copies among its kernels; the trace itself where there are no kinds."""
    return cast(Trace, TraceWithCopies(trace, kinds)) if kinds else trace


class TraceWithCopies:
    """Wraps a :class:`~pytest_nsys.core.trace.Trace` so that the copies of some kinds are among its kernels."""

    def __init__(self, trace: Trace, kinds: Sequence[CopyKind]) -> None:
        self._trace, self._kinds = trace, tuple(kinds)
        self._lanes: dict[Lane, Kernels | None] = {}

    def __getattr__(self, member: str) -> Any:
        if member.startswith("_"):
            raise AttributeError(member)
        return getattr(self._trace, member)

    @property
    def inner(self) -> Trace:
        """The trace without them."""
        return self._trace

    @cached_property
    def _copies(self) -> Mapping[Lane, Kernels]:
        return self._trace.copies_as_kernels(self._kinds)

    def _find_copies(self, lane: Lane) -> Kernels | None:
        """Return the copies of a lane, None for none."""
        if lane not in self._lanes:
            copy_lanes = [copy_lane for copy_lane in sorted(self._copies) if copy_lane.global_pid == lane.global_pid]
            self._lanes[lane] = merge_kernels(
                [self._copies[copy_lane] for copy_lane in copy_lanes if lane.device in (None, copy_lane.device)]
            )
        return self._lanes[lane]

    def facts(self) -> TraceFacts:
        """Return the facts of the trace, with a note where it has no such copy."""
        facts = self._trace.facts()
        if self._copies:
            return facts
        note = f"{self._trace.path}: has no copy that counts as communication ({', '.join(self._kinds)})"
        return facts._replace(notes=(*facts.notes, note))

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """Return the kernels and copies of each lane that touch its span; None: all of them."""
        touching_copies: dict[Lane, Kernels] = {}
        for lane, span in spans.items():
            if (copies := self._find_copies(lane)) is not None:
                touching_copies[lane] = select_touching(copies, span)
        return merge_copies(self._trace.kernels(spans), touching_copies)

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """Return the kernels and copies of each lane that have a launch row starting in its span, edges included."""
        copies = {lane: lane_copies for lane in spans if (lane_copies := self._find_copies(lane)) is not None}
        launched_copies: dict[Lane, Kernels] = {}
        for lane, calls in self._trace.launch_calls(copies).items():
            launched_copies[lane] = copies[lane].take(find_touching_spans(calls.start_ns, calls.start_ns, *spans[lane]))
        return merge_copies(self._trace.kernels_launched(spans), launched_copies)

    def copies_between_gpus(self) -> Mapping[Lane, Kernels]:
        """Return the copies between GPUs of the trace, without those that are among its kernels."""
        remaining_by_lane = (
            (lane, _exclude_copies(lane_copies, self._find_copies(lane)))
            for lane, lane_copies in self._trace.copies_between_gpus().items()
        )
        return {lane: remaining for lane, remaining in remaining_by_lane if len(remaining)}

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """Return the copies and memsets of each lane that touch its span, without the copies that are among its
        kernels.
        """
        transfers = self._trace.transfers(spans)
        return (
            None
            if transfers is None
            else {
                lane: _exclude_copies(lane_transfers, self._find_copies(lane))
                for lane, lane_transfers in transfers.items()
            }
        )

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """Return what the trace records of the kernels; nothing of copies, of which one collective takes many."""
        kernel_indices = {
            lane: [i for i, name in enumerate(lane_kernels.name) if name not in COPY_NAMES_BY_ID]
            for lane, lane_kernels in kernels.items()
        }
        recorded_collectives = self._trace.collectives(
            {lane: kernels[lane].take(indices) for lane, indices in kernel_indices.items()}
        )
        if recorded_collectives is None:
            return None
        collectives_by_lane: dict[Lane, Sequence[Collective | None]] = {}
        for lane, indices in kernel_indices.items():
            collective_by_index = dict(zip(indices, recorded_collectives.get(lane, ()), strict=False))
            collectives_by_lane[lane] = [collective_by_index.get(i) for i in range(len(kernels[lane]))]
        return collectives_by_lane


def select_touching(kernels: Kernels, span: Interval | None) -> Kernels:
    """Return the kernels that touch the span; None: all of them."""
    if span is None:
        return kernels
    return kernels.take(find_touching_spans(kernels.start_ns, kernels.end_ns, *span))


def _exclude_copies(transfers: Kernels, copies: Kernels | None) -> Kernels:
    """Return the transfers that are none of the copies, compared by their times, correlation and stream."""
    if copies is None:
        return transfers
    copy_identities = set(_list_identities(copies))
    return transfers.take(
        [i for i, identity in enumerate(_list_identities(transfers)) if identity not in copy_identities]
    )


def _list_identities(kernels: Kernels) -> Iterator[tuple[int, int, int, Stream]]:
    streams = map(kernels.streams.__getitem__, kernels.stream)
    return zip(kernels.start_ns, kernels.end_ns, kernels.correlation, streams, strict=True)


def merge_copies(kernels: Mapping[Lane, Kernels], copies: Mapping[Lane, Kernels]) -> Mapping[Lane, Kernels]:
    """Return the kernels and copies of each lane, ordered by start."""
    merged_kernels = dict(kernels)
    for lane, lane_copies in copies.items():
        if len(lane_copies):
            merged_kernels[lane] = cast(
                Kernels, merge_kernels([*([merged_kernels[lane]] if lane in merged_kernels else ()), lane_copies])
            )
    return merged_kernels


def merge_kernels(parts: Sequence[Kernels]) -> Kernels | None:
    """Return the kernels of all parts, ordered by start; None where there are no parts. Their names are numbered
    alike.
    """
    if len(parts) < 2:
        return parts[0] if parts else None
    joined_kernels = concatenate_kernels(parts)
    return joined_kernels.take(sort_indices(joined_kernels.start_ns, joined_kernels.end_ns))
