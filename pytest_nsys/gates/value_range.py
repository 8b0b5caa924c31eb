"""Which limits can no value miss, and which can none meet? A sentence with such a limit would say nothing.

A metric knows its least and its greatest value, None where it has none. Without them no limit is out of reach.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

from pytest_nsys.core.units import BARE, COUNT, RATIO, TIME, written_value
from pytest_nsys.gates.assertion import Comparator, Tolerance

FLOORS = (Comparator.GT, Comparator.GE)
CEILINGS = (Comparator.LT, Comparator.LE)
_STRICT = {Comparator.GE: Comparator.GT, Comparator.LE: Comparator.LT}
_LOOSE = {strict: loose for loose, strict in _STRICT.items()}
_EXAMPLES = {
    (TIME, "lower"): "<= 1ms",
    (RATIO, "higher"): ">= 60%",
    (COUNT, "lower"): "<= 10",
    (BARE, "lower"): "<= 1.1",
    (BARE, "higher"): ">= 0.6",
}
"""Limits to show where the end of the range, strict or turned round, is the weakest or the hardest there is."""


class Ranged(Protocol):
    """What a limit is set for: values from ``least`` to ``greatest``, which improve towards ``better``."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def better(self) -> str | None: ...
    @property
    def least(self) -> int | None: ...
    @property
    def greatest(self) -> int | None: ...


def against_better(comparator: Comparator | None, judged: Ranged) -> bool:
    """Whether the comparator asks for values on the side on which the metric gets worse."""
    return comparator in {"lower": FLOORS, "higher": CEILINGS}.get(judged.better or "", ())


def wrong_side(judged: Ranged, meant: str) -> str:
    """The mistake of a baseline that is held on the better side; ``meant`` is the sentence on the other."""
    worse = "rises" if judged.better == "lower" else "falls"
    return f"{judged.better} {judged.name} is better, so this passes however far it {worse}: write {meant}"


def out_of_reach(comparator: Comparator, limit: Fraction, judged: Ranged) -> tuple[str, str] | None:
    """What is wrong with a constant that no value can miss, or none can meet, and the limit to write in its place."""
    low = limit - 1 if judged.least is None else judged.least
    high = limit + 1 if judged.greatest is None else judged.greatest
    held = {comparator.holds(value, limit) for value in (low, high, min(max(low, limit), high))}
    if len(held) > 1:
        return None
    example = None
    if held == {True}:
        what, meant = "cannot fail", _STRICT.get(comparator, comparator)
        if comparator is not Comparator.NE:
            example = _EXAMPLES.get((judged.unit, judged.better or ""))
    else:
        what, meant = "can never hold", _LOOSE.get(comparator, comparator)
    end = judged.least if judged.least is not None and limit <= judged.least else judged.greatest
    assert end is not None
    return f"{what}: {_never(judged, end)}", example or f"{meant} {written_value(Fraction(end), judged.unit)}"


def tolerates_all(comparator: Comparator | None, tolerance: Tolerance, judged: Ranged) -> str | None:
    """Why no value can be beyond the tolerance of any baseline, None where one can.

    ``comparator`` None: on both sides.
    """
    if comparator is None:
        both = [tolerates_all(side, tolerance, judged) for side in (Comparator.GE, Comparator.LE)]
        return both[0] if all(both) else None
    floor = comparator in FLOORS
    worst, best = (judged.least, judged.greatest) if floor else (judged.greatest, judged.least)
    if worst is None or comparator is Comparator.EQ:
        return None
    if best is None:  # m − T for every m from the least value on
        tolerated = floor and worst >= 0 and tolerance.relative >= 1
    else:
        amount = tolerance.amount(best, judged.unit)
        tolerated = comparator.holds(worst, best - amount if floor else best + amount)
    return f"cannot fail: {_never(judged, worst)}" if tolerated else None


def warns_alike(early: Comparator, soon: Fraction, late: Comparator, last: Fraction) -> str | None:
    """Why the limit ``early soon`` tells no values apart of those that hold ``late last``; None where it does."""
    if late is Comparator.EQ:
        return "never warns" if early.holds(last, soon) else "always warns"
    if late not in (*FLOORS, *CEILINGS) or early not in (*FLOORS, *CEILINGS):
        return None
    room = last - soon if late in FLOORS else soon - last
    if (early in FLOORS) is not (late in FLOORS):
        return "always warns" if room > 0 or (not room and (early in _LOOSE or late in _LOOSE)) else None
    return "never warns" if room > 0 or (not room and (early in _STRICT or late in _LOOSE)) else None


def impossible(value: Fraction, judged: Ranged) -> str | None:
    """What is wrong with a value that the metric cannot have, None where it can have it."""
    if judged.greatest is not None and value > judged.greatest:
        return _never(judged, judged.greatest)
    return _never(judged, judged.least) if judged.least is not None and value < judged.least else None


def _never(judged: Ranged, end: int) -> str:
    side = "below" if end == judged.least else "above"
    return f"{judged.name} is never {side} {written_value(Fraction(end), judged.unit)}"
