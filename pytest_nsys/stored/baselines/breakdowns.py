"""How does a baseline file keep what a later red names its causes by?

The breakdown of the accepted run's windows is kept: of each window the ranks,
of each rank a few lines of numbers; kernels are numbers of names, which stand once. What is too large is left out: the
baseline is read by people, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pytest_nsys.analysis.budget_facts import DEFINITION, BudgetPart
from pytest_nsys.analysis.explained import (
    Barrier,
    Breakdown,
    Communication,
    Compute,
    ComputePlace,
    GapsBefore,
    HostWaits,
    RankWait,
    Transferred,
    Wall,
)
from pytest_nsys.core.kept import grouped

MOST_KERNELS = 1_000
"""Communication kernels of a rank's window, at most, whose breakdown is stored."""

MOST_RANKS = 64
"""Ranks, at most, whose breakdowns are stored: of a thousand nobody could review the file."""

_STORED_PARTS = {
    **{part: part.value for part in BudgetPart},
    BudgetPart.BESIDE: "dependency-stalled, communication runs",
    BudgetPart.STALLED: "dependency-stalled",
}
"""What a part is called in a file: a name for people may change, and a file stays as it is."""

_PARTS = {stored: part for part, stored in _STORED_PARTS.items()}

VERSION = f"7.{DEFINITION}"
"""Of what is kept, of the names of kernels, and of what blocks: what is kept in another way is not compared."""

MEDIAN_PERIOD = "p50 period"
"""Under this instead of a window the breakdown of a median period is stored, and of which kind of steps it is."""


class MeasuredAs(NamedTuple):
    """How the windows of a breakdown were picked: as a series of rows has it."""

    window: str
    span: str
    kernels: str


def of_median_period(how: MeasuredAs) -> MeasuredAs:
    """What rows about periods are explained by, however their window was picked: ``steady decode``, ``3 decode``."""
    kind = how.window.split(" ")[1:][-1:]
    return how._replace(window=" ".join([MEDIAN_PERIOD, *kind]))


Breakdowns = Mapping[MeasuredAs, Mapping[int, Breakdown]]
"""By window spec and rank."""


def storable(ranks: Iterable[tuple[int, Breakdown]]) -> dict[int, Breakdown]:
    """What a baseline keeps of the breakdowns, which come by rank: the first MOST_RANKS of few kernels."""
    few = (
        (rank, breakdown)
        for rank, breakdown in ranks
        if sum(map(len, breakdown.communication.values())) <= MOST_KERNELS
    )
    return dict(islice(few, MOST_RANKS))


def breakdowns_text(breakdowns: Breakdowns) -> str:
    """The list that a baseline file holds, a stage of a rank in a line; equal breakdowns give equal text."""
    return "[\n" + ",\n".join(_block(how, breakdowns[how]) for how in sorted(breakdowns)) + "\n]"


def _block(how: MeasuredAs, ranks: Mapping[int, Breakdown]) -> str:
    stages = {place.stage for each in ranks.values() for own in each.compute.values() for place in own.places}
    names = sorted(stages.union(*(breakdown.names for breakdown in ranks.values())))
    numbers = {name: number for number, name in enumerate(names)}
    head = json.dumps({**how._asdict(), "version": VERSION, "names": names}, ensure_ascii=False)[:-1]
    lines = [line for rank in sorted(ranks) for line in _lines(rank, ranks[rank], numbers)]
    return head + ', "parts": [\n ' + ",\n ".join(lines) + "\n]}"


def _lines(rank: int, breakdown: Breakdown, numbers: Mapping[str, int]) -> Iterator[str]:
    def line(what: str, *values: object) -> str:
        return json.dumps([rank, what, *values], ensure_ascii=False, separators=(",", ":"))

    for wall, by_name in breakdown.walls.items():
        yield line(wall.value + " of window", [[numbers[name], ns] for name, ns in sorted(by_name.items())])
    if breakdown.budget is not None:
        parts = ((_STORED_PARTS[part], own) for part, own in breakdown.budget.items())
        yield line("budget", [[part, [[numbers[name], ns] for name, ns in own.items()]] for part, own in parts])
    yield line("compute", [_compute_text(name, own, numbers) for name, own in sorted(breakdown.compute.items())])
    yield line("barriers", [[numbers[name], *own[:2], *(own.wait or ())] for name, own in breakdown.barriers.items()])
    for stage, kernels in sorted(breakdown.communication.items()):
        yield line("stage", stage, [_kernel(kernel, numbers) for kernel in kernels])
    yield line("gaps", [[numbers[name], *own] for name, own in breakdown.gaps.items()])
    if breakdown.calls is not None:
        yield line("calls", [[name, *own] for name, own in breakdown.calls.items()])
    if breakdown.transfers is not None:
        kinds = ((kind, *own[:2], own.blocks) for kind, own in breakdown.transfers.items())
        yield line("transfers", [[*own, [[numbers[name], ns] for name, ns in by.items()]] for *own, by in kinds])
    if breakdown.clock_mhz is not None:
        yield line("clock", breakdown.clock_mhz)


def _compute_text(name: str, own: Compute, numbers: Mapping[str, int]) -> list[object]:
    *sums, places = own
    return [numbers[name], *sums, [[numbers[stage], *rest] for stage, *rest in places]]


def _kernel(kernel: Communication, numbers: Mapping[str, int]) -> list[object]:
    hidden = [[numbers[name], ns] for name, ns in sorted(kernel.hidden_by.items())]
    own = [numbers[kernel.name], kernel.length_ns, kernel.exposed_ns, hidden]
    return [*own, list(kernel.wait or ()), kernel.start_ns, kernel.after]


def read_breakdowns(blocks: Iterable[Mapping[str, Any]]) -> dict[MeasuredAs, dict[int, Breakdown]]:
    """What :func:`breakdowns_text` wrote; nothing of what an earlier version did. Raises ValueError, KeyError,
    IndexError or TypeError for anything else.
    """
    found: dict[MeasuredAs, dict[int, Breakdown]] = {}
    for block in filter(is_current, blocks):
        names = [str(name) for name in block["names"]]
        ranks = grouped((int(part[0]), part) for part in block["parts"])
        how = MeasuredAs(str(block["window"]), str(block["span"]), str(block["kernels"]))
        found[how] = {rank: _breakdown(parts, names) for rank, parts in ranks.items()}
    return found


def is_current(block: Mapping[str, Any]) -> bool:
    """Whether a block of a file says what a red is explained by now."""
    return block.get("version") == VERSION


def _breakdown(parts: Sequence[Sequence[Any]], names: Sequence[str]) -> Breakdown:
    told = {part[1]: part[2] for part in parts if part[1] != "stage"}
    stages = {str(part[2]): part[3] for part in parts if part[1] == "stage"}
    walls = {wall: {names[n]: int(ns) for n, ns in told[wall.value + " of window"]} for wall in Wall}
    return Breakdown(
        {stage: tuple(_communication(kernel, names) for kernel in kernels) for stage, kernels in stages.items()},
        {names[number]: Barrier(int(count), int(ns), _wait(wait)) for number, count, ns, *wait in told["barriers"]},
        {names[number]: _compute(own, names) for number, *own in told["compute"]},
        walls,
        _budget(told["budget"], names) if "budget" in told else None,
        {names[number]: GapsBefore(int(gaps), int(ns)) for number, gaps, ns in told["gaps"]},
        {str(name): HostWaits(*map(int, own)) for name, *own in told["calls"]} if "calls" in told else None,
        {str(kind): _transferred(own, names) for kind, *own in told["transfers"]} if "transfers" in told else None,
        int(told["clock"]) if "clock" in told else None,
    )


def _compute(stored: Sequence[Any], names: Sequence[str]) -> Compute:
    kernels, length, launched, launch, places = stored
    own = tuple(ComputePlace(names[stage], *map(int, rest)) for stage, *rest in places)
    return Compute(int(kernels), int(length), int(launched), int(launch), own)


def _transferred(stored: Sequence[Any], names: Sequence[str]) -> Transferred:
    count, ns, blocks = stored
    return Transferred(int(count), int(ns), {names[number]: int(own) for number, own in blocks})


def _budget(stored: Sequence[Any], names: Sequence[str]) -> dict[BudgetPart, dict[str, int]]:
    return {_PARTS[part]: {names[n]: int(ns) for n, ns in own} for part, own in stored}


def _communication(stored: Sequence[Any], names: Sequence[str]) -> Communication:
    number, length, exposed, hidden, wait, start, after = stored
    by = {names[owner]: int(ns) for owner, ns in hidden}
    launched = None if after is None else int(after)
    return Communication(names[number], int(length), int(exposed), by, _wait(wait), int(start), launched)


def _wait(stored: Sequence[Any]) -> RankWait | None:
    return RankWait(*map(int, stored)) if stored else None


# The file
