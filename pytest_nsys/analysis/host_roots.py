"""What does the host do otherwise? Calls in which it stands, kernels that it launches later, and what it has copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from pytest_nsys.analysis.explained import AT_END, NEXT_STEP, Breakdown, HostWaits, Transferred, Wall
from pytest_nsys.analysis.found_roots import Found, Length, changed, found
from pytest_nsys.analysis.root_facts import Root, RootKind, RootOf

FEWEST_LATE = 3
"""Of so many kernels that are launched later, none of them by most of it, all launches are later."""

PAGEABLE = "pageable"

Waits = dict[str, tuple[int, int]]
"""For how long the GPU waits, before and now, until each kernel is launched."""


def host_roots(rank: int, was: Breakdown, now: Breakdown) -> Iterator[Found]:
    """What changed of calls, launches and transfers."""
    late = _late(was, now)
    calls = [*_calls(rank, was.calls or {}, now.calls or {}, late)] if was.calls is not None is not now.calls else []
    transfers = [*_transfers(rank, was.transfers or {}, now.transfers or {}, late)]
    if was.transfers is None or now.transfers is None:
        transfers = []
    stood_in = [each for each in transfers if PAGEABLE in each.change.root.name and each.change.change_ns > 0]
    if not stood_in:
        yield from calls
    yield from transfers
    yield from _launches(rank, late, sum(each.change.change_ns for each in stood_in or calls))
    yield from _sooner(rank, was, now)


def _late(was: Breakdown, now: Breakdown) -> Waits:
    """Of the kernels that are launched later, where the GPU waits longer for it, and of the window's end.

    Where the kernels before it are shorter, the GPU waits, too: for a launch that came when it always did.
    """
    before, after = was.walls[Wall.LAUNCH], now.walls[Wall.LAUNCH]
    waits = {name: (before.get(name, 0), after[name]) for name in after if _is_later(was, now, name)}
    tails = [side.walls[Wall.IDLE].get(AT_END, 0) for side in (was, now)]
    longer = max(0, now.wall_ns(*Wall) - was.wall_ns(*Wall))
    waits[AT_END] = tails[0], min(tails[1], tails[0] + longer)
    between = before.get(NEXT_STEP, 0), after.get(NEXT_STEP, 0)
    waits[NEXT_STEP] = between[0], min(between[1], between[0] + longer)
    return {name: both for name, both in sorted(waits.items()) if both[1] > both[0]}


def _sooner(rank: int, was: Breakdown, now: Breakdown) -> Iterator[Found]:
    """Less time between two steps, where the step is shorter."""
    before, after = (side.walls[Wall.LAUNCH].get(NEXT_STEP, 0) for side in (was, now))
    if after < before and now.wall_ns(*Wall) < was.wall_ns(*Wall):
        root = Root(RootKind.SHORTER, RootOf.HOST, NEXT_STEP)
        yield found(rank, root, Length(ns=before), Length(ns=after), [NEXT_STEP])


def _is_later(was: Breakdown, now: Breakdown, name: str) -> bool:
    old, new = was.compute.get(name), now.compute.get(name)
    if not old or not new or not old.launched or not new.launched:
        return False
    return Fraction(new.launch_ns, new.launched) > Fraction(old.launch_ns, old.launched)


def _calls(rank: int, was: Mapping[str, HostWaits], now: Mapping[str, HostWaits], late: Waits) -> Iterator[Found]:
    """Calls in which the host stands more often, or while the GPU has longer nothing to do for it."""
    for name in sorted({*was, *now}):
        before, after = (
            Length(side[name].calls, side[name].starved_ns) if name in side else Length() for side in (was, now)
        )
        yield from changed(rank, (RootOf.CALL, name, ""), before, after, late)


def _transfers(
    rank: int, was: Mapping[str, Transferred], now: Mapping[str, Transferred], late: Waits
) -> Iterator[Found]:
    """Copies and memsets by kind; what is copied from or to pageable memory, the host stands in."""
    gone, came = (sorted(side.keys() - other.keys()) for side, other in ((was, now), (now, was)))
    pairs: dict[str, str] = {}
    for old in gone:
        same = [new for new in came if new not in pairs.values() and now[new].transfers == was[old].transfers]
        pairs |= {old: same[0]} if same else {}
    for name in sorted({*was, *now} - {*pairs.values()}):
        called = pairs.get(name, name)
        before, after = _length(was.get(name)), _length(now.get(called))
        of = RootOf.MEMSET if called.startswith("memset") else RootOf.COPY
        blocked = {kernel for side in (was.get(name), now.get(called)) if side for kernel in side.blocks}
        through = {called, called.split()[0], *blocked, *(late if PAGEABLE in called else ())}
        if called == name:
            yield from changed(rank, (of, name, ""), before, after, through)
        else:
            yield found(rank, Root(RootKind.REPLACED, of, called, instead_of=name), before, after, through)


def _length(own: Transferred | None) -> Length:
    return Length(own.transfers, own.length_ns) if own else Length()


def _launches(rank: int, late: Waits, told_ns: int) -> Iterator[Found]:
    """Kernels that are launched later, less what is known to be of calls and copies: the longest first."""
    rest: Waits = {}
    for name, (before, after) in sorted(late.items(), key=lambda item: (item[1][0] - item[1][1], item[0])):
        part = min(told_ns, after - before)
        told_ns -= part
        if 4 * part < 3 * (after - before):
            rest[name] = before, after - part
    longer = [after - before for before, after in rest.values()]
    if len(rest) >= FEWEST_LATE and 2 * max(longer) < sum(longer):
        before, after = (sum(each) for each in zip(*rest.values(), strict=True))
        rest = {"": (before, after)}
    for name, (before, after) in sorted(rest.items()):
        through = [name] if name else late
        yield found(rank, Root(RootKind.LATER, RootOf.HOST, name), Length(ns=before), Length(ns=after), through)
