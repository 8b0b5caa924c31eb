"""Who are the ranks of a run? By setup label where there is one, else in the order of file, process and device.

The files of a run are joined by their labels. A process has one label (a repeat of the same one is fine); a rank comes
once. A process id is no name: it differs between two runs of the same program, so it never enters a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from math import prod
from typing import NamedTuple

from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import Lane, Note, ProcessId, Range, Rank, Setup, Trace
from pytest_nsys.core.words import printable

ONCE = "give each capture its own --nsys-trace"
SHOWN = 8


class RankLabels(NamedTuple):
    """The setup label of each labelled process of one trace, by serialised process id."""

    trace: Trace
    by_process: Mapping[int, Setup]


def read_labels(trace: Trace, ranges: Mapping[int, Sequence[Range]], convention: Convention) -> RankLabels:
    """The labels among ``ranges``. Raises TraceError for a process with two different ones."""
    found: dict[int, Setup] = {}
    prefix = (convention.setup_pattern or "").partition("%")[0]
    for pid, own in sorted(ranges.items()):
        names = {r.name for r in own if r.name.startswith(prefix)}
        texts = {name: setup for name in sorted(names) if (setup := convention.setup_of(name)) is not None}
        if len(texts) > 1:
            both = ", ".join(f"'{printable(t)}'" for t in sorted(texts)[:3])
            raise TraceError(
                f"{trace.path}: process {ProcessId(0, pid).pid} has {len(texts)} setup labels ({both}): "
                "one process is one rank and pushes one label"
            )
        for setup in texts.values():
            found[pid] = setup
    return RankLabels(trace, found or trace.setups())


def find_ranks(labels: Sequence[RankLabels]) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
    """The ranks of a run, ordered by number, and what a person should know about how they were told apart."""
    if any(label.by_process for label in labels):
        return _labelled(labels)
    return _ordinals([(number, label, lane) for number, label in enumerate(labels) for lane in label.trace.lanes()])


def _labelled(labels: Sequence[RankLabels]) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
    ranks: dict[int, Rank] = {}
    for number, label in enumerate(labels):
        if not label.by_process:
            raise TraceError(f"{label.trace.path}: has no setup label, but other files of the run have one")
        for pid, setup in label.by_process.items():
            rank = Rank(setup.rank, ProcessId(number, pid), None, setup, label.trace.path)
            if (other := ranks.get(setup.rank)) is not None:
                raise TraceError(
                    f"rank {setup.rank} comes twice in this run ({other.trace}, process {other.pid}; "
                    f"{rank.trace}, process {rank.pid}): {ONCE}"
                )
            ranks[setup.rank] = rank
    ordered = tuple(ranks[n] for n in sorted(ranks))
    return ordered, tuple(_mesh_notes(ordered))


def _mesh_notes(ranks: Sequence[Rank]) -> list[Note]:
    """Ranks that the sizes of the labels promise and no trace holds; sizes that contradict each other are an error."""
    first = ranks[0].setup
    assert first is not None  # every rank here has a label
    for rank in ranks:
        if rank.setup is not None and dict(rank.setup.sizes) != dict(first.sizes):
            raise TraceError(
                f"setup labels conflict: '{printable(first.text)}' and '{printable(rank.setup.text)}' state other "
                "sizes: these are no files of one run"
            )
    if not first.sizes:
        absent, _, some = _absent(ranks, ranks[-1].number + 1)
        return [Note(f"rank {some} is in no trace, though rank {ranks[-1].number} is", True)] if absent else []
    absent, world, some = absent_ranks(ranks)
    return [Note(f"{absent} of {world} ranks of the mesh are in no trace: {some}", True)] if absent else []


def absent_ranks(ranks: Sequence[Rank]) -> tuple[int, int, str]:
    """How many ranks the sizes of the setup labels promise and no trace holds, of how many, and the first of them."""
    setup = ranks[0].setup if ranks else None
    if setup is None or not setup.sizes:
        return 0, len(ranks), ""
    return _absent(ranks, prod(setup.sizes.values()))


def clocks(ranks: Sequence[Rank]) -> int:
    """How many clocks the ranks use."""
    return len({rank.process.clock for rank in ranks})


def _absent(ranks: Sequence[Rank], world: int) -> tuple[int, int, str]:
    present = {rank.number for rank in ranks if rank.number < world}
    absent = world - len(present)
    first_absent = islice((n for n in range(world) if n not in present), SHOWN)
    return absent, world, ", ".join(map(str, first_absent)) + (" …" if absent > SHOWN else "")


def _ordinals(lanes: Sequence[tuple[int, RankLabels, Lane]]) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
    seen: dict[Lane, Trace] = {}
    for _, label, lane in lanes:
        if lane in seen:
            raise TraceError(
                f"{seen[lane].path} and {label.trace.path} hold the same process {ProcessId(0, lane.global_pid).pid} "
                f"on device {lane.device}, and no setup label tells them apart: {ONCE}"
            )
        seen[lane] = label.trace
    ranks = tuple(
        Rank(n, ProcessId(number, lane.global_pid), lane.device, None, label.trace.path)
        for n, (number, label, lane) in enumerate(lanes)
    )
    if not ranks:
        return ranks, ()
    notes = [Note("no setup label: ranks are numbered by (file, process, device)")]
    if max(Counter((rank.process.trace, rank.device) for rank in ranks).values()) > 1:
        notes.append(Note("several processes use the same device id: the order of ranks may swap between two runs"))
    return ranks, tuple(notes)
