"""Copies that a convention counts as communication stand among the kernels of a trace, named for their kind.

They are read from the trace once, all of them, by :class:`WithCopies`, and only under a convention with ``copies:``.
Every other question goes to the trace as it is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from pytest_nsys.core.columns import order, touching
from pytest_nsys.core.conventions import COMMUNICATION_PREFIX, COPY_NAMES, CopyKind
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Collective, Interval, Lane, Stream, TraceFacts
from pytest_nsys.core.tables import Kernels, one_after_another
from pytest_nsys.core.trace import Trace

NAME_IDS: Mapping[str, int] = {kind: -1 - number for number, kind in enumerate(CopyKind)}
"""The name of a copy among those of kernels, which are numbered from 0 on."""
NAMES: Mapping[int, str] = {NAME_IDS[kind]: name for kind, name in COPY_NAMES.items()}

COPY_ID, MEMSET_ID, GRAPH_ID = -101, -102, -103
TRANSFERS: Mapping[int, str] = {COPY_ID: "copy", MEMSET_ID: "memset", GRAPH_ID: "graph"}
"""The names of what is no kernel and keeps a GPU busy; a graph is one that was traced without its kernels."""

BY_NCCL = (CopyKind.PEER, CopyKind.DEVICE_TO_DEVICE)
"""What the copy engines do for a collective: profilers call it the one or the other, by how the memory is mapped."""

BETWEEN_GPUS = (CopyKind.PEER, CopyKind.COLLECTIVE)
"""What communicates, whichever copies a convention counts."""

CALLS = (COMMUNICATION_PREFIX + "%", "c10d::%", "record_param_comms%")
"""Ranges inside which NCCL launches its work: its own, and the operators of PyTorch's process groups."""


def kinds_to_read(kinds: Sequence[str]) -> tuple[CopyKind, ...]:
    """The kinds that profilers tell apart; which copies are of a collective shows only where they were launched."""
    wanted = {*kinds, *(BY_NCCL if CopyKind.COLLECTIVE in kinds else ())}
    return tuple(kind for kind in CopyKind if kind in wanted and kind != CopyKind.COLLECTIVE)


def told_apart(trace: Trace, copies: Mapping[Lane, Kernels], kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
    """Of copies of :func:`kinds_to_read` those of ``kinds``: what was launched inside one of ``CALLS`` is a collective.

    They are ranges on any thread; one that was never closed is left out.
    """
    if CopyKind.COLLECTIVE not in kinds or not copies:
        return copies
    ranges, launches = trace.ranges(CALLS), trace.launch_calls(copies)
    by_nccl, wanted = {NAME_IDS[kind] for kind in BY_NCCL}, {NAME_IDS[kind] for kind in kinds}
    found: dict[Lane, Kernels] = {}
    for lane, some in copies.items():
        spans = united([(r.start_ns, r.end_ns) for r in ranges.get(lane.global_pid, ()) if r.end_ns != OPEN_END_NS])
        names = array("q", some.name)
        for i, (name, launch) in enumerate(zip(some.name, launches[lane].start_ns, strict=True)):
            if name in by_nccl and launch != NO_LAUNCH and _inside(launch, spans):
                names[i] = NAME_IDS[CopyKind.COLLECTIVE]
        chosen = [i for i, name in enumerate(names) if name in wanted]
        if chosen:
            found[lane] = replace(some, name=names, full_name=names).take(chosen)
    return found


def united(spans: Sequence[Interval]) -> list[Interval]:
    """The same times as spans that do not touch, by start."""
    found: list[Interval] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _inside(time_ns: int, spans: Sequence[Interval]) -> bool:
    at = bisect_right(spans, (time_ns, OPEN_END_NS)) - 1
    return at >= 0 and time_ns <= spans[at][1]


def with_copies(trace: Trace, kinds: Sequence[CopyKind]) -> Trace:
    """The trace, with these copies among its kernels; itself where there are no kinds."""
    return cast(Trace, WithCopies(trace, kinds)) if kinds else trace


class WithCopies:
    """A :class:`~pytest_nsys.core.trace.Trace` among whose kernels are the copies of some kinds."""

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

    def _of(self, lane: Lane) -> Kernels | None:
        """The copies of a lane, None for none."""
        if lane not in self._lanes:
            own = [place for place in sorted(self._copies) if place.global_pid == lane.global_pid]
            self._lanes[lane] = merged([self._copies[p] for p in own if lane.device in (None, p.device)])
        return self._lanes[lane]

    def facts(self) -> TraceFacts:
        """Those of the trace, and that it has no such copy."""
        facts = self._trace.facts()
        if self._copies:
            return facts
        note = f"{self._trace.path}: has no copy that counts as communication ({', '.join(self._kinds)})"
        return facts._replace(notes=(*facts.notes, note))

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels and copies of each lane that touch its span; None: all of them."""
        touching: dict[Lane, Kernels] = {}
        for lane, span in spans.items():
            if (copies := self._of(lane)) is not None:
                touching[lane] = touching_span(copies, span)
        return together(self._trace.kernels(spans), touching)

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels and copies of each lane that have a launch row starting in its span, edges included."""
        copies = {lane: found for lane in spans if (found := self._of(lane)) is not None}
        launched: dict[Lane, Kernels] = {}
        for lane, calls in self._trace.launch_calls(copies).items():
            launched[lane] = copies[lane].take(touching(calls.start_ns, calls.start_ns, *spans[lane]))
        return together(self._trace.kernels_launched(spans), launched)

    def copies_between_gpus(self) -> Mapping[Lane, Kernels]:
        """Those of the trace, without the copies that are among its kernels."""
        each = ((lane, _without(some, self._of(lane))) for lane, some in self._trace.copies_between_gpus().items())
        return {lane: rest for lane, rest in each if len(rest)}

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """The copies and memsets of each lane that touch its span, without the copies that are among its kernels."""
        found = self._trace.transfers(spans)
        return None if found is None else {lane: _without(some, self._of(lane)) for lane, some in found.items()}

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """What the trace records of the kernels; nothing of copies, of which one collective takes many."""
        own = {lane: [i for i, name in enumerate(some.name) if name not in NAMES] for lane, some in kernels.items()}
        found = self._trace.collectives({lane: kernels[lane].take(indices) for lane, indices in own.items()})
        if found is None:
            return None
        spread: dict[Lane, Sequence[Collective | None]] = {}
        for lane, indices in own.items():
            known = dict(zip(indices, found.get(lane, ()), strict=False))
            spread[lane] = [known.get(i) for i in range(len(kernels[lane]))]
        return spread


def touching_span(kernels: Kernels, span: Interval | None) -> Kernels:
    """Those that touch the span; None: all of them."""
    if span is None:
        return kernels
    return kernels.take(touching(kernels.start_ns, kernels.end_ns, *span))


def _without(transfers: Kernels, copies: Kernels | None) -> Kernels:
    """The transfers that are none of the copies, told apart by their times, correlation and stream."""
    if copies is None:
        return transfers
    known = set(_identities(copies))
    return transfers.take([i for i, each in enumerate(_identities(transfers)) if each not in known])


def _identities(kernels: Kernels) -> Iterator[tuple[int, int, int, Stream]]:
    streams = map(kernels.streams.__getitem__, kernels.stream)
    return zip(kernels.start_ns, kernels.end_ns, kernels.correlation, streams, strict=True)


def together(kernels: Mapping[Lane, Kernels], copies: Mapping[Lane, Kernels]) -> Mapping[Lane, Kernels]:
    """The kernels and copies of each lane, ordered by start."""
    found = dict(kernels)
    for lane, own in copies.items():
        if len(own):
            found[lane] = cast(Kernels, merged([*([found[lane]] if lane in found else ()), own]))
    return found


def merged(parts: Sequence[Kernels]) -> Kernels | None:
    """The kernels of all parts, ordered by start; None where there are no parts. Their names are numbered alike."""
    if len(parts) < 2:
        return parts[0] if parts else None
    found = one_after_another(parts)
    return found.take(order(found.start_ns, found.end_ns))
