"""Why is a value not what it was? The parts of two windows that account for the change, to the nanosecond.

A cause is an amount with a name and a kind. The amounts of all causes, and what is left unexplained, add up
to the change. Kernels are matched by name and ordinal: the n-th of a name in the stage now, and the n-th of it before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.analysis.budget_facts import BLOCKED, BudgetPart
from pytest_nsys.analysis.explained import (
    Breakdown,
    BudgetChange,
    Cause,
    CauseKind,
    Communication,
    Compute,
    Explanation,
    RankWait,
    Wall,
)
from pytest_nsys.core.kept import grouped


def budget_change(was: Breakdown, now: Breakdown) -> BudgetChange | None:
    """How the budget moved; None where one side does not know its own, or nothing moved."""
    if was.budget is None or now.budget is None:
        return None
    sums = [{part: sum(by_name.values()) for part, by_name in budget.items()} for budget in (was.budget, now.budget)]
    parts = tuple((part, by) for part in BudgetPart if (by := sums[1].get(part, 0) - sums[0].get(part, 0)))
    if not parts:
        return None
    longer = dict(parts).get(BudgetPart.COMPUTE, 0)
    before, after = was.walls[Wall.COMPUTE], now.walls[Wall.COMPUTE]
    moved = [(name, after.get(name, 0) - before.get(name, 0)) for name in sorted({*before, *after})]
    along = [(name, by) for name, by in moved if by * longer > 0]
    lengths = [sum(side.values()) for side in sums]
    return BudgetChange(parts, max(along, key=lambda kernel: abs(kernel[1]), default=None), *lengths)


Labels = Mapping[str, object]


class Parts(NamedTuple):
    """How the rows of a metric are taken apart. A ratio is explained by the time that it is a ratio of.

    ``causes`` of the breakdowns before and now, for the row's labels. ``measured_ns`` is the row, of a ratio its time;
    None where a breakdown does not hold it. ``budget``: that of the window says more of it.
    """

    causes: Callable[[Breakdown, Breakdown, Labels], Iterable[Cause]]
    measured_ns: Callable[[Breakdown, Labels], int | None]
    budget: bool = False

    def explain(
        self, labels: Labels, change_ns: int, was: Breakdown, now: Breakdown, beside: Iterable[Cause] = ()
    ) -> Explanation:
        """Why a row changed by ``change_ns``; ``beside`` are causes that the two breakdowns do not show."""
        found = [cause for cause in (*self.causes(was, now, labels), *beside) if cause.change_ns]
        found.sort(key=lambda c: (-abs(c.change_ns), c.kind, c.kernel))
        moved = budget_change(was, now) if self.budget else None
        return Explanation(change_ns, tuple(found), change_ns - sum(cause.change_ns for cause in found), moved)


def _exposed(was: Breakdown, now: Breakdown, labels: Labels) -> Iterator[Cause]:
    """Communication that got longer, and compute that hides it less."""
    before, after = (list(_of_stage(b, labels)) for b in (was, now))
    yield from _lengths(before, after, exposed=True)
    yield from _cover(_matched(before, after), was.compute, now.compute)


def _communication(was: Breakdown, now: Breakdown, labels: Labels) -> Iterator[Cause]:
    yield from _lengths(list(_of_stage(was, labels)), list(_of_stage(now, labels)), exposed=False)


def _of_stage(breakdown: Breakdown, labels: Labels) -> Iterator[Communication]:
    """The communication of the stage that the row is of, of all stages where it is of none."""
    for stage, kernels in breakdown.communication.items():
        if "stage" not in labels or labels["stage"] == stage:
            yield from kernels


Pair = tuple[Communication, Communication]


def _by_name(kernels: Iterable[Communication]) -> dict[str, list[Communication]]:
    return grouped((kernel.name, kernel) for kernel in kernels)


def _matched(before: Sequence[Communication], after: Sequence[Communication]) -> list[Pair]:
    was, now = _by_name(before), _by_name(after)
    return [pair for name in sorted(was.keys() & now.keys()) for pair in zip(was[name], now[name], strict=False)]


def _lengths(before: Sequence[Communication], after: Sequence[Communication], *, exposed: bool) -> Iterator[Cause]:
    """How much longer the kernels of each name are; those that came or went count whole, or by what was exposed."""
    was, now = _by_name(before), _by_name(after)
    for name in sorted({*was, *now}):
        old, new = was.get(name, []), now.get(name, [])
        shared = min(len(old), len(new))
        yield from _longer(name, list(zip(old, new, strict=False)))
        for kind, kernels, sign in ((CauseKind.VANISHED, old[shared:], -1), (CauseKind.APPEARED, new[shared:], 1)):
            amount = sum(k.exposed_ns if exposed else k.length_ns for k in kernels)
            sums = (sum(k.length_ns for k in old), sum(k.length_ns for k in new))
            yield Cause(kind, name, sign * amount, *sums, len(old), len(new), _ordinals(kernels, shared))


def _ordinals(kernels: Sequence[Communication], after: int) -> tuple[int, ...]:
    return tuple(after + n for n in range(1, min(len(kernels), MOST_ORDINALS) + 1))


MOST_ORDINALS = 3


def _longer(name: str, pairs: Sequence[Pair]) -> Iterator[Cause]:
    """Kernels that got longer: by waiting for another rank, as far as both sides know it, and by themselves."""
    changes = [new.length_ns - old.length_ns for old, new in pairs]
    waits = [_waited(old.wait, new.wait) for old, new in pairs]
    sums = (sum(old.length_ns for old, _ in pairs), sum(new.length_ns for _, new in pairs))
    own = sum(changes) - sum(waits)
    if any(waits):
        sides = [new.wait if wait > 0 else old.wait for (old, new), wait in zip(pairs, waits, strict=True) if wait]
        last = Counter(side.last for side in sides if side is not None)  # on the side that waits: no rank, for itself
        straggler = min(last, key=lambda rank: (-last[rank], rank))
        both = [(old.wait, new.wait) for old, new in pairs if old.wait and new.wait]
        waited = (sum(old.wait_ns for old, _ in both), sum(new.wait_ns for _, new in both))
        worst = _worst(waits)
        yield Cause(CauseKind.WAITS, name, sum(waits), *waited, len(pairs), len(pairs), worst, straggler)
    kind = CauseKind.LONGER if own > 0 else CauseKind.SHORTER
    worst = _worst([change - wait for change, wait in zip(changes, waits, strict=True)])
    yield Cause(kind, name, own, *sums, len(pairs), len(pairs), worst)


def _waited(old: RankWait | None, new: RankWait | None) -> int:
    return 0 if old is None or new is None else new.wait_ns - old.wait_ns


def _worst(changes: Sequence[int]) -> tuple[int, ...]:
    """The ordinals of the largest changes, from 1 on, in order."""
    ranked = sorted((i for i, change in enumerate(changes) if change), key=lambda i: (-abs(changes[i]), i))
    return tuple(sorted(i + 1 for i in ranked[:MOST_ORDINALS]))


def _cover(pairs: Sequence[Pair], was: Mapping[str, Compute], now: Mapping[str, Compute]) -> Iterator[Cause]:
    """By compute kernel how much less of the matched communication it hides."""
    old: Counter[str] = Counter()
    new: Counter[str] = Counter()
    lost: dict[str, Counter[str]] = {}
    for kernel, same in pairs:
        old.update(kernel.hidden_by)
        new.update(same.hidden_by)
        for name in {*kernel.hidden_by, *same.hidden_by}:
            by = kernel.hidden_by.get(name, 0) - same.hidden_by.get(name, 0)
            lost.setdefault(name, Counter())[kernel.name] += by
    for name in sorted({*old, *new}):
        before, after = was.get(name), now.get(name)
        kind = _what_became(before, after, old[name], new[name])
        counts = (before.kernels if before else 0, after.kernels if after else 0)
        exposes = min(lost[name], key=lambda kernel: (-lost[name][kernel], kernel)) if old[name] > new[name] else ""
        yield Cause(kind, name, old[name] - new[name], old[name], new[name], *counts, exposes=exposes)


def _what_became(before: Compute | None, after: Compute | None, old_ns: int, new_ns: int) -> CauseKind:
    """Why a compute kernel hides less: there are fewer of it, it is shorter, it or what it hid moved."""
    lost = old_ns - new_ns
    if lost <= 0 or before is None:
        return CauseKind.COVER_GREW
    if after is None or after.kernels < before.kernels:
        return CauseKind.COVER_VANISHED
    if 2 * (before.length_ns - after.length_ns) >= lost:
        return CauseKind.COVER_SHRANK
    return CauseKind.COVER_MOVED


def _compute(was: Breakdown, now: Breakdown, _labels: Labels) -> Iterator[Cause]:
    """By compute kernel how much longer it takes in all."""
    lengths = [{name: (own.kernels, own.length_ns) for name, own in side.compute.items()} for side in (was, now)]
    for name in sorted({*was.compute, *now.compute}):
        yield _total(name, lengths[0].get(name, (0, 0)), lengths[1].get(name, (0, 0)))


def _barriers(was: Breakdown, now: Breakdown, _labels: Labels) -> Iterator[Cause]:
    """By kernel how much longer it takes in all: by waiting for another rank, as far as both sides know it.

    One that communicated on a stream of its own before, and no longer does, has not appeared.
    """
    before, after = (Counter(k.name for own in side.communication.values() for k in own) for side in (was, now))
    for name in sorted({*was.barriers, *now.barriers}):
        old, new = was.barriers.get(name), now.barriers.get(name)
        count, length = (old.kernels, old.length_ns) if old else (0, 0)
        count_now, length_now = (new.kernels, new.length_ns) if new else (0, 0)
        waited = _waited(old.wait, new.wait) if old and new and count == count_now else 0
        if waited and old and old.wait and new and new.wait:
            straggler = (new if waited > 0 else old).wait
            assert straggler is not None
            waits = old.wait.wait_ns, new.wait.wait_ns
            yield Cause(CauseKind.WAITS, name, waited, *waits, count, count_now, straggler=straggler.last)
        cause = _total(name, (count, length), (count_now, length_now), waited)
        came = cause.kind is CauseKind.APPEARED and before[name] - after[name] >= count_now - count
        yield cause._replace(kind=CauseKind.BARRIER) if came else cause


def _total(name: str, was: tuple[int, int], now: tuple[int, int], apart_ns: int = 0) -> Cause:
    """The change of a sum of lengths, less what another cause accounts for; kernels that came or went are counted."""
    (count, length), (count_now, length_now) = was, now
    change = length_now - length - apart_ns
    if count == count_now:
        kind = CauseKind.LONGER if change > 0 else CauseKind.SHORTER
    else:
        kind = CauseKind.APPEARED if count_now > count else CauseKind.VANISHED
    return Cause(kind, name, change, length, length_now, count, count_now)


_WALLS = {
    Wall.COMPUTE: CauseKind.COMPUTE,
    Wall.EXPOSED: CauseKind.EXPOSED,
    Wall.LAUNCH: CauseKind.LAUNCH_BOUND,
    Wall.IDLE: CauseKind.IDLE,
}
"""What a window's length is made of."""


def _walls(*walls: Wall, budget: bool = False) -> Parts:
    def causes(was: Breakdown, now: Breakdown, _labels: Labels) -> Iterator[Cause]:
        counts = _kernels(was), _kernels(now)
        for wall in walls:
            before, after = was.walls[wall], now.walls[wall]
            for name in sorted({*before, *after}):
                old, new = before.get(name, 0), after.get(name, 0)
                last = _waited_for(name, new - old, was, now) if wall is Wall.EXPOSED else None
                yield Cause(_WALLS[wall], name, new - old, old, new, counts[0][name], counts[1][name], straggler=last)

    return Parts(causes, lambda breakdown, _: breakdown.wall_ns(*walls), budget)


def _budget(*parts: BudgetPart) -> Parts:
    """Those parts of the budget; of rows by producer the part of that producer."""

    def asked(labels: Labels) -> tuple[BudgetPart, ...]:
        return (BLOCKED[str(labels["producer"])],) if "producer" in labels else parts

    def causes(was: Breakdown, now: Breakdown, labels: Labels) -> Iterator[Cause]:
        for part in asked(labels) if was.budget is not None and now.budget is not None else ():
            before, after = ((side.budget or {}).get(part, {}) for side in (was, now))
            for name in sorted({*before, *after}):
                old, new = before.get(name, 0), after.get(name, 0)
                last = _waited_for(name, new - old, was, now) if part is BudgetPart.COLLECTIVE else None
                yield Cause(_BUDGET.get(part, CauseKind.BLOCKS), name, new - old, old, new, straggler=last)

    def measured_ns(breakdown: Breakdown, labels: Labels) -> int | None:
        if breakdown.budget is None or "stage" in labels:  # by stage none is kept
            return None
        return sum(sum(breakdown.budget.get(part, {}).values()) for part in asked(labels))

    return Parts(causes, measured_ns)


_BUDGET = {
    BudgetPart.STARVED: CauseKind.STARVED,
    BudgetPart.BETWEEN: CauseKind.BETWEEN,
    BudgetPart.BESIDE: CauseKind.BESIDE,
    BudgetPart.STALLED: CauseKind.STALLED,
}
"""What its own kernels do; all other parts are of what blocks them."""


def _waited_for(name: str, change_ns: int, was: Breakdown, now: Breakdown) -> int | None:
    """The rank for which the kernels of a name wait longer, where that is most of the change."""
    before, after = was.waits(name), now.waits(name)
    longer = after.total() - before.total()
    if not after or not 0 < change_ns <= 2 * longer:
        return None
    return min(after, key=lambda rank: (-after[rank], rank))


def _kernels(breakdown: Breakdown) -> Counter[str]:
    """How many kernels of each name ran in the window."""
    found = Counter({name: own.kernels for name, own in breakdown.compute.items()})
    found.update({name: own.kernels for name, own in breakdown.barriers.items()})
    found.update(kernel.name for own in breakdown.communication.values() for kernel in own)
    return found


def _exposed_ns(breakdown: Breakdown, labels: Labels) -> int:
    return sum(kernel.exposed_ns for kernel in _of_stage(breakdown, labels))


def _communication_ns(breakdown: Breakdown, labels: Labels) -> int:
    return sum(kernel.length_ns for kernel in _of_stage(breakdown, labels))


EXPOSED = Parts(_exposed, _exposed_ns, budget=True)
COVER = Parts(_exposed, lambda *_: None, budget=True)
"""Of concurrent communication, which counts once in the row and several times in its parts."""

COMMUNICATION = Parts(_communication, _communication_ns)
BARRIERS = Parts(_barriers, lambda breakdown, _: sum(each.length_ns for each in breakdown.barriers.values()))
COMPUTE = Parts(_compute, lambda breakdown, _: sum(each.length_ns for each in breakdown.compute.values()))
ALL_EXPOSED = _walls(Wall.EXPOSED, budget=True)
IDLE, WHOLE = _walls(Wall.LAUNCH, Wall.IDLE, budget=True), _walls(*Wall, budget=True)
COMPUTE_ABSENT = _budget(*(part for part in BudgetPart if part is not BudgetPart.COMPUTE))
STARVED, BETWEEN = _budget(BudgetPart.STARVED, BudgetPart.BETWEEN), _budget(BudgetPart.BETWEEN)
STALLED = _budget(BudgetPart.BESIDE, BudgetPart.STALLED)
BLOCKING, BLOCKING_COMM = _budget(*BLOCKED.values()), _budget(BudgetPart.COLLECTIVE)
BLOCKING_COMM_MAX = _budget(BudgetPart.COLLECTIVE, BudgetPart.BESIDE)._replace(measured_ns=lambda *_: None)
"""Communication that ran while something else blocked counts in the row, and in no part."""
