"""What happened, without where: ``flash_fwd_kernel 25% longer``, ``new copy from device to device (6 times)``.

Every output words a change by this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explain.parts import NEXT_STEP, Change, ChangeKind, Root, What
from pytest_nsys.core.families import OTHER_KIND, kind_of, known_communication
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.kernel_names import readable_names
from pytest_nsys.core.numbers import MINUS, TIMES, format_apart, format_range, format_signed, format_value, percent
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted, printable

DIGITS = 2
"""Of a share of change: who wants more reads the rows."""

ALIKE = Fraction(10, 100)
"""By no more of the larger one, changes of ranks are told as it."""

MOST_STAGES = 2
NAME = 60

_NOUNS = {What.KERNEL: "kernel", What.COLLECTIVE: "collective", What.COPY: "copy", What.CALL: "call"}


class Moved(NamedTuple):
    """A root, in which ``stages``, and what became of it on each rank."""

    root: Root
    stages: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def largest(self) -> Change:
        """The change of the rank on which most changed."""
        return min(self.changes, key=lambda change: (-abs(change.change_ns), change.rank))


def called_beside(roots: Iterable[Root], exposed: Collection[str], beside: Collection[str]) -> dict[str, str]:
    """What the kernels and calls of ``roots`` are called, and what is ``exposed`` or waited in: ``beside`` all that
    ran, of which they are told apart.

    A collective is called by its kind where no other of the kind ran.
    """
    roots = [*roots]
    own = {name for root in roots for name in (root.name, root.instead_of)} | {*exposed}
    called = readable_names(sorted((own | {*beside}) - {""}), NAME)
    collectives = {root.name for root in roots if root.of is What.COLLECTIVE} | {*exposed}
    kinds = grouped((kind_of(name), name) for name in sorted(collectives | set(filter(_communicates, beside))) if name)
    called |= {names[0]: kind for kind, names in kinds.items() if len(names) == 1 and kind != OTHER_KIND}
    return {name: called[name] for name in own if name}


def _communicates(name: str) -> bool:
    return "nccl" in name.lower() or known_communication(name, name) is not None


def moved_words(told: Moved, called: Mapping[str, str], *, everywhere: bool = False, amount: bool = True) -> str:
    """What happened, without the time of what came or went unless ``amount``. ``everywhere``: on all ranks."""
    root, largest = told.root, told.largest
    name = called.get(root.name, root.name)
    if root.of is What.ALL:
        return f"{'all kernels alike' if everywhere else 'all compute'} {_shares(told, signed=True)}{_clock(largest)}"
    if root.of is What.HOST:
        before = f" before {name}" if name else ""
        when = " between steps" if root.name == NEXT_STEP else before
        return f"the GPU waits for the host{when}: {_both(largest)}"
    if root.of is What.CALL and root.kind in (ChangeKind.LONGER, ChangeKind.SHORTER):
        way = "longer" if largest.change_ns > 0 else "less"
        return f"the GPU waits {_amounts(told)} {way} while the host is in {name}"
    match root.kind:
        case ChangeKind.NEW | ChangeKind.GONE | ChangeKind.OFTEN | ChangeKind.RARELY:
            return _counts(told, name, amount=amount)
        case ChangeKind.REPLACED:
            was = called.get(root.instead_of, root.instead_of)
            return f"{was} replaced by {name} in the same place: {_both(largest)}"
        case ChangeKind.LATER:
            return f"{name}{_in_stages(told)} starts {_amounts(told)} later"
        case ChangeKind.ELSEWHERE:
            return f"{name}{_in_stages(told)} runs on another stream"
    return f"{name}{_in_stages(told)} {_shares(told)}"


def cause_words(cause: Change) -> str:
    """A part of a change, without its amount: what it took of the value before and takes now."""
    root, name = cause.root, printable(cause.root.name, NAME)
    before, now = format_apart(cause.before_ns, cause.now_ns, TIME)
    counts = f", {cause.was} → {_times(cause.is_now)}" if cause.was and cause.is_now and cause.more else ""
    match root.of:
        case What.RANK:
            return f"rank {cause.straggler} was the slowest before: {before}, this rank {now}"
        case What.HOST:
            return moved_words(Moved(root, (), (cause,)), {root.name: name})
        case What.IDLE:
            return f"the GPU is idle before {name}, already launched: {both_words(before, now)}"
        case What.COVER:
            why = {ChangeKind.SHORTER: ": it is shorter", ChangeKind.GONE: ": it is gone"}.get(root.kind, "")
            hidden = printable(cause.exposes, NAME) or "the communication"
            return f"{name} hides {now} of {hidden} (was {before}){why}{counts}"
    if root.kind is ChangeKind.WAITED:
        return f"{name} waits for rank {cause.straggler}: {both_words(before, now)}{counts}"
    if root.kind in (ChangeKind.NEW, ChangeKind.GONE):
        return _counts(Moved(root, (), (cause,)), name)
    how = " blocks compute:" if root.of in (What.COPY, What.MEMSET) else ""
    if root.kind is ChangeKind.ELSEWHERE:
        how = " in the way of compute:" if root.of is What.COLLECTIVE else " elsewhere:"
    return f"{name}{how} {both_words(before, now)}{counts}"


def _counts(told: Moved, name: str, *, amount: bool = True) -> str:
    """What came or went, and with ``amount`` its time."""
    root, change = told.root, told.largest
    noun = _NOUNS.get(root.of, str(root.of))
    named = name if name.startswith(noun) else f"{noun} {name}"
    times = _times(change.was or change.is_now)
    if not change.was:
        return f"new {named} ({times}{f', {format_value(change.now_ns)}' if amount else ''})"
    if not change.is_now:
        gone = name if noun in name else named
        return f"{gone} is gone ({times}{f', {format_value(change.before_ns)}' if amount else ''})"
    runs = "is called" if root.of is What.CALL else "runs"
    instead = f"{_times(change.is_now)} instead of {change.was if change.is_now > 1 else _times(change.was)}"
    if root.of is What.COLLECTIVE and 5 * abs(change.change_ns) <= change.before_ns:  # the same in other pieces
        each = Fraction(change.before_ns, change.was), Fraction(change.now_ns, change.is_now)
        return f"{name} {runs} {instead} ({both_words(*format_apart(*each, TIME))} each)"
    return f"{name} {runs} {instead}" + (f" ({format_signed(change.change_ns)})" if amount else "")


def _times(number: int) -> str:
    return f"{number} times" if number > 1 else "once"


def _shares(told: Moved, *, signed: bool = False) -> str:
    """By how much of its length, over ranks: ``25% to 50% longer``, where there was none by how much time."""
    shares = [Fraction(c.now_ns, c.before_ns) - 1 for c in told.changes if c.before_ns]
    way = "longer" if told.largest.change_ns > 0 else "shorter"
    if not shares:
        return f"{_amounts(told)} {way}"
    sign = ("+" if way == "longer" else MINUS) if signed else ""
    low, high = sorted(shares, key=abs)[0], max(shares, key=abs)
    if high + 1 >= TIMES:
        return f"{round(high + 1)} times as long"
    ends = [high] if abs(high - low) <= abs(high) * ALIKE else [low, high]
    words = " to ".join(sign + share_words(abs(share)) for share in ends)
    return words if signed else f"{words} {way}"


def share_words(share: Fraction) -> str:
    """By how much more or less, in whole percent from 10 % on: twice as long is no 100.1%, as what nears a bound is."""
    return percent(Fraction(round(100 * share), 100) if 10 * share >= 1 else share, DIGITS)


def _amounts(told: Moved) -> str:
    low, high = sorted(abs(change.change_ns) for change in told.changes)[0], abs(told.largest.change_ns)
    return format_value(high) if high - low <= high * ALIKE else format_range(low, high, TIME)


def _both(change: Change) -> str:
    """``8.9 → 11.5 ms``."""
    return both_words(*format_apart(change.before_ns, change.now_ns, TIME))


def both_words(before: str, now: str) -> str:
    """Two values in one unit, which stands once."""
    number, _, own = before.rpartition(" ")
    return f"{number if number and now.endswith(f' {own}') else before} → {now}"


def _clock(change: Change) -> str:
    if change.clock_mhz is None:
        return ""
    was, now = change.clock_mhz
    return f" (SM clock {was} → {now} MHz)"


def _in_stages(told: Moved) -> str:
    kind = kind_of(told.root.name)
    if not told.stages or any(stage in told.root.name or kind_of(stage) == kind != OTHER_KIND for stage in told.stages):
        return ""
    if len(told.stages) > MOST_STAGES:
        return f" in {counted(len(told.stages), 'stage')}"
    return f" in {' and '.join(told.stages)}"
