"""Why is a value not what it was? The difference of two windows in what it is a sum of, by name, to the nanosecond.

A cause is an amount with a name and a kind. The amounts of all causes, and what is left unexplained, add up to the
change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pytest_nsys.analysis.explain.budget_lines import BLOCKED, BudgetPart
from pytest_nsys.analysis.explain.parts import (
    Amounts,
    Breakdown,
    BudgetChange,
    Change,
    ChangeKind,
    Explanation,
    Part,
    Root,
    What,
)
from pytest_nsys.core.kept import grouped


def compare_budgets(was: Breakdown, now: Breakdown) -> BudgetChange | None:
    """How the budget moved; None where one side does not know its own, or nothing moved."""
    if was.budget is None or now.budget is None:
        return None
    sums = [
        {BudgetPart.COMPUTE: side.took_ns(What.KERNEL), **{part: sum(by.values()) for part, by in budget.items()}}
        for side, budget in ((was, was.budget), (now, now.budget))
    ]
    parts = tuple((part, by) for part in BudgetPart if (by := sums[1].get(part, 0) - sums[0].get(part, 0)))
    if not parts:
        return None
    longer = dict(parts).get(BudgetPart.COMPUTE, 0)
    moved = _compare_amounts(was, now, *(_pick_time(side, (What.KERNEL,)) for side in (was, now)))
    along = [(change.root.name, change.change_ns) for change in moved if change.change_ns * longer > 0]
    largest = max(along, key=lambda kernel: abs(kernel[1]), default=None)
    return BudgetChange(parts, largest, was.length_ns, now.length_ns)


Labels = Mapping[str, object]
Differences = Callable[[Breakdown, Breakdown, Labels], Iterable[Change]]


class Parts(NamedTuple):
    """How the rows of a metric are taken apart. A ratio is explained by the time that it is a ratio of.

    ``causes`` of the breakdowns before and now, for the row's labels. ``measured_ns`` is the row, of a ratio its time;
    None where a breakdown does not hold it. ``budget``: that of the window says more of it.
    """

    causes: Differences
    measured_ns: Callable[[Breakdown, Labels], int | None]
    budget: bool = False

    def explain(
        self, labels: Labels, change_ns: int, was: Breakdown, now: Breakdown, beside: Iterable[Change] = ()
    ) -> Explanation:
        """Why a row changed by ``change_ns``; ``beside`` are causes that the two breakdowns do not show."""
        rank = labels["rank"]
        assert isinstance(rank, int)
        every = (*self.causes(was, now, labels), *beside)
        found = [cause._replace(rank=rank) for cause in every if cause.change_ns]
        found.sort(key=lambda cause: cause.largest_first)
        moved = compare_budgets(was, now) if self.budget else None
        return Explanation(change_ns, tuple(found), change_ns - sum(cause.change_ns for cause in found), moved)


def _compare_amounts(
    was: Breakdown, now: Breakdown, before: Amounts, after: Amounts, stage: object = None
) -> Iterator[Change]:
    """How much more or less there is of each name, in a stage where the amounts are of one."""
    for key in sorted({*before, *after}):
        what, name = key
        old, new, counts = before.get(key, 0), after.get(key, 0), (was.counts[key], now.counts[key])
        straggler = None
        if what is What.COLLECTIVE:
            straggler = _find_straggler(new - old, was.waits(name, stage), now.waits(name, stage))
        if what is What.HOST:
            kind = ChangeKind.LATER
        elif straggler is not None:
            kind = ChangeKind.WAITED
        elif stage is None and counts[0] == counts[1] > 0 and not (old and new):  # on another stream, behind compute
            kind = ChangeKind.ELSEWHERE
        else:
            kind = classify_change(counts, new - old)
        yield Change(Root(kind, what, name), 0, old, new, *counts, straggler=straggler)


def classify_change(counts: tuple[int, int], longer_ns: int) -> ChangeKind:
    """What happened to what there is so often before and now."""
    was, now = counts
    if was != now:
        came = ChangeKind.OFTEN if was else ChangeKind.NEW
        went = ChangeKind.RARELY if now else ChangeKind.GONE
        return came if now > was else went
    return ChangeKind.LONGER if longer_ns > 0 else ChangeKind.SHORTER


def _find_straggler(change_ns: int, before: Counter[int], after: Counter[int]) -> int | None:
    """The rank for which kernels wait longer, or no longer, where that is most of the change."""
    more_ns = after.total() - before.total()
    if more_ns * change_ns <= 0 or abs(change_ns) > 2 * abs(more_ns):
        return None
    sign = 1 if more_ns > 0 else -1
    return min({*before, *after}, key=lambda rank: (sign * (before[rank] - after[rank]), rank))


def _sum_lengths(parts: Iterable[Part]) -> Amounts:
    found = Counter[tuple[What, str]]()
    for part in parts:
        found[part.what, part.name] += part.length_ns
    return found


def _explain_lengths(picked: Callable[[Part, Labels], bool]) -> Parts:
    """The lengths of some kernels."""

    def amounts(side: Breakdown, labels: Labels) -> Amounts:
        return _sum_lengths(part for part in side.parts if picked(part, labels))

    return Parts(
        lambda was, now, labels: _compare_amounts(
            was, now, amounts(was, labels), amounts(now, labels), labels.get("stage")
        ),
        lambda side, labels: sum(amounts(side, labels).values()),
    )


def _is_of_stage(part: Part, labels: Labels) -> bool:
    """Whether it is communication of the stage that the row is of, of any stage where it is of none."""
    return part.is_hidden and labels.get("stage", part.stage) == part.stage


def _compare_exposed(was: Breakdown, now: Breakdown, labels: Labels) -> Iterator[Change]:
    """Communication that got longer, and compute that hides it less; what came or went by what is exposed of it."""
    sides = [grouped((p.name, p) for p in side.parts if _is_of_stage(p, labels)) for side in (was, now)]
    lengths: list[dict[tuple[What, str], int]] = [{}, {}]
    hidden: list[Counter[tuple[str, str]]] = [Counter(), Counter()]
    for name in {*sides[0], *sides[1]}:
        both = [side.get(name, []) for side in sides]
        before, after = (sum(part.number for part in own) for own in both)
        for own, length, cover in zip(both, lengths, hidden, strict=True):
            length[What.COLLECTIVE, name] = sum(p.length_ns if before == after else p.exposed_ns for p in own)
            for compute, ns in ((c, ns) for p in own if before == after for c, ns in p.beside_ns.items()):
                cover[compute, name] += ns
    yield from _compare_amounts(was, now, lengths[0], lengths[1], labels.get("stage"))
    computed = [_sum_lengths(side.of(What.KERNEL)) for side in (was, now)]
    for name, pairs in grouped((pair[0], pair) for pair in sorted({*hidden[0], *hidden[1]})).items():
        old, new = (sum(side[pair] for pair in pairs) for side in hidden)
        exposes = min(pairs, key=lambda pair: (hidden[1][pair] - hidden[0][pair], pair))[1] if old > new else ""
        counts = was.counts[What.KERNEL, name], now.counts[What.KERNEL, name]
        shorter = sum(sign * side.get((What.KERNEL, name), 0) for sign, side in zip((1, -1), computed, strict=True))
        kind = ChangeKind.ELSEWHERE  # it, or what it hid
        if new < old and counts[1] < counts[0]:
            kind = ChangeKind.RARELY if counts[1] else ChangeKind.GONE
        elif new < old and 2 * shorter >= old - new:
            kind = ChangeKind.SHORTER
        yield Change(Root(kind, What.COVER, name), 0, old, new, *counts, exposes=exposes)


def _sum_exposed_ns(breakdown: Breakdown, labels: Labels) -> int:
    return sum(part.exposed_ns for part in breakdown.parts if _is_of_stage(part, labels))


def _pick_time(side: Breakdown, what: Iterable[What]) -> Amounts:
    return {key: ns for key, ns in side.time_ns.items() if key[0] in what}


def _explain_time(*what: What, budget: bool = False) -> Parts:
    """What of the window's length went to these."""
    return Parts(
        lambda was, now, _: _compare_amounts(was, now, _pick_time(was, what), _pick_time(now, what)),
        lambda side, _: side.took_ns(*what),
        budget,
    )


_HELD_BY = {
    BudgetPart.STARVED: What.HOST,
    BudgetPart.BETWEEN: What.HOST,
    BudgetPart.COPY: What.COPY,
    BudgetPart.MEMSET: What.MEMSET,
    BudgetPart.BESIDE: What.IDLE,
    BudgetPart.STALLED: What.IDLE,
}
"""What holds compute up in a part of the budget; in all others it is a kernel that communicates."""


def _explain_budget(*parts: BudgetPart) -> Parts:
    """Those parts of the budget; of rows by producer the part of that producer."""

    def amounts(side: Breakdown, labels: Labels) -> Amounts:
        found = Counter[tuple[What, str]]()
        for part in (BLOCKED[str(labels["producer"])],) if "producer" in labels else parts:
            for name, ns in (side.budget or {}).get(part, {}).items():
                found[_HELD_BY.get(part, What.COLLECTIVE), name] += ns
        return found

    def causes(was: Breakdown, now: Breakdown, labels: Labels) -> Iterable[Change]:
        unknown = was.budget is None or now.budget is None
        return () if unknown else _compare_amounts(was, now, amounts(was, labels), amounts(now, labels))

    def measured_ns(side: Breakdown, labels: Labels) -> int | None:
        if side.budget is None or "stage" in labels:  # by stage none is kept
            return None
        return sum(amounts(side, labels).values())

    return Parts(causes, measured_ns)


EXPOSED = Parts(_compare_exposed, _sum_exposed_ns, budget=True)
COVER = Parts(_compare_exposed, lambda *_: None, budget=True)
"""Of concurrent communication, which counts once in the row and several times in its parts."""

COMMUNICATION = _explain_lengths(_is_of_stage)
BARRIERS = _explain_lengths(lambda part, _: part.is_barrier)
COMPUTE = _explain_lengths(lambda part, _: part.what is What.KERNEL)
ALL_EXPOSED, IDLE = _explain_time(What.COLLECTIVE, budget=True), _explain_time(What.HOST, What.IDLE, budget=True)
WHOLE = _explain_time(What.KERNEL, What.COLLECTIVE, What.HOST, What.IDLE, budget=True)
COMPUTE_ABSENT = _explain_budget(*(part for part in BudgetPart if part is not BudgetPart.COMPUTE))
STARVED, BETWEEN = _explain_budget(BudgetPart.STARVED, BudgetPart.BETWEEN), _explain_budget(BudgetPart.BETWEEN)
STALLED = _explain_budget(BudgetPart.BESIDE, BudgetPart.STALLED)
BLOCKING, BLOCKING_COMM = _explain_budget(*BLOCKED.values()), _explain_budget(BudgetPart.COLLECTIVE)
BLOCKING_COMM_MAX = _explain_budget(BudgetPart.COLLECTIVE, BudgetPart.BESIDE)._replace(measured_ns=lambda *_: None)
"""Communication that ran while something else blocked counts in the row, and in no part."""
