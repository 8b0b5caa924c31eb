"""How does a change read, without where it happened: ``flash_fwd_kernel 25% longer``, ``new copy from device to
device``?

Every output words a change by these functions.
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
"""Significant digits of a share of change: the rows have more."""

ALIKE = Fraction(10, 100)
"""Changes of ranks that differ by no more of the larger one are told as that one."""

MOST_STAGES = 2
NAME = 60

_NOUNS = {What.KERNEL: "kernel", What.COLLECTIVE: "collective", What.COPY: "copy", What.CALL: "call"}


class Moved(NamedTuple):
    """Describes one root of a change: what changed, in which stages, and by how much on each rank."""

    root: Root
    stages: tuple[str, ...]
    changes: tuple[Change, ...]  # one for each rank

    @property
    def largest(self) -> Change:
        """The change of the rank on which most changed; of equal ones that of the lowest rank."""
        return min(self.changes, key=lambda change: (-abs(change.change_ns), change.rank))


def called_beside(roots: Iterable[Root], exposed: Collection[str], beside: Collection[str]) -> dict[str, str]:
    """Return the display name of each kernel and call of the roots, and of each kernel that is exposed or waited in.

    Names are as short as they can be while they still tell a kernel from all others that ran (``other_names``). A
    collective is called by its kind where no other of that kind ran.
    """
    roots = [*roots]
    needed_names = {name for root in roots for name in (root.name, root.instead_of)} | {*exposed}
    display_names = readable_names(sorted((needed_names | {*beside}) - {""}), NAME)
    collectives = {root.name for root in roots if root.of is What.COLLECTIVE} | {*exposed}
    names_by_kind = grouped(
        (kind_of(name), name) for name in sorted(collectives | set(filter(_communicates, beside))) if name
    )
    display_names |= {
        same_kind[0]: kind for kind, same_kind in names_by_kind.items() if len(same_kind) == 1 and kind != OTHER_KIND
    }
    return {name: display_names[name] for name in needed_names if name}


def _communicates(name: str) -> bool:
    """Whether a kernel's name is that of a communication library, or of a known collective."""
    return "nccl" in name.lower() or known_communication(name, name) is not None


def moved_words(told: Moved, called: Mapping[str, str], *, everywhere: bool = False, amount: bool = True) -> str:
    """Return what happened to a root, without where.

    The time of what came or went is left out unless ``with_amount``. ``on_all_ranks`` says that it happened on all
    ranks.
    """
    root, largest = told.root, told.largest
    name = called.get(root.name, root.name)
    if root.of is What.ALL:
        return f"{'all kernels alike' if everywhere else 'all compute'} {_shares(told, signed=True)}{_clock(largest)}"
    if root.of is What.HOST:
        before_kernel = f" before {name}" if name else ""
        moment = " between steps" if root.name == NEXT_STEP else before_kernel
        return f"the GPU waits for the host{moment}: {_both(largest)}"
    if root.of is What.CALL and root.kind in (ChangeKind.LONGER, ChangeKind.SHORTER):
        direction = "longer" if largest.change_ns > 0 else "less"
        return f"the GPU waits {_amounts(told)} {direction} while the host is in {name}"
    match root.kind:
        case ChangeKind.NEW | ChangeKind.GONE | ChangeKind.OFTEN | ChangeKind.RARELY:
            return _counts(told, name, amount=amount)
        case ChangeKind.REPLACED:
            replaced_name = called.get(root.instead_of, root.instead_of)
            return f"{replaced_name} replaced by {name} in the same place: {_both(largest)}"
        case ChangeKind.LATER:
            return f"{name}{_in_stages(told)} starts {_amounts(told)} later"
        case ChangeKind.ELSEWHERE:
            return f"{name}{_in_stages(told)} runs on another stream"
    return f"{name}{_in_stages(told)} {_shares(told)}"


def cause_words(cause: Change) -> str:
    """Return one part of a change in words: what it took of the value before, and what it takes now."""
    root, name = cause.root, printable(cause.root.name, NAME)
    baseline_text, current_text = format_apart(cause.before_ns, cause.now_ns, TIME)
    counts = f", {cause.was} → {_times(cause.is_now)}" if cause.was and cause.is_now and cause.more else ""
    match root.of:
        case What.RANK:
            return f"rank {cause.straggler} was the slowest before: {baseline_text}, this rank {current_text}"
        case What.HOST:
            return moved_words(Moved(root, (), (cause,)), {root.name: name})
        case What.IDLE:
            return f"the GPU is idle before {name}, already launched: {both_words(baseline_text, current_text)}"
        case What.COVER:
            reason = {ChangeKind.SHORTER: ": it is shorter", ChangeKind.GONE: ": it is gone"}.get(root.kind, "")
            hidden_name = printable(cause.exposes, NAME) or "the communication"
            return f"{name} hides {current_text} of {hidden_name} (was {baseline_text}){reason}{counts}"
    if root.kind is ChangeKind.WAITED:
        return f"{name} waits for rank {cause.straggler}: {both_words(baseline_text, current_text)}{counts}"
    if root.kind in (ChangeKind.NEW, ChangeKind.GONE):
        return _counts(Moved(root, (), (cause,)), name)
    effect = " blocks compute:" if root.of in (What.COPY, What.MEMSET) else ""
    if root.kind is ChangeKind.ELSEWHERE:
        effect = " in the way of compute:" if root.of is What.COLLECTIVE else " elsewhere:"
    return f"{name}{effect} {both_words(baseline_text, current_text)}{counts}"


def _counts(told: Moved, name: str, *, amount: bool = True) -> str:
    """Return what came or went or runs another number of times, and with ``with_amount`` its time."""
    root, change = told.root, told.largest
    noun = _NOUNS.get(root.of, str(root.of))
    full_name = name if name.startswith(noun) else f"{noun} {name}"
    times = _times(change.was or change.is_now)
    if not change.was:
        return f"new {full_name} ({times}{f', {format_value(change.now_ns)}' if amount else ''})"
    if not change.is_now:
        short_name = name if noun in name else full_name
        return f"{short_name} is gone ({times}{f', {format_value(change.before_ns)}' if amount else ''})"
    verb = "is called" if root.of is What.CALL else "runs"
    count_change = f"{_times(change.is_now)} instead of {change.was if change.is_now > 1 else _times(change.was)}"
    if (
        root.of is What.COLLECTIVE and 5 * abs(change.change_ns) <= change.before_ns
    ):  # about the same time in other pieces, as with another bucket size: the mean says more than the sum
        mean_ns = Fraction(change.before_ns, change.was), Fraction(change.now_ns, change.is_now)
        return f"{name} {verb} {count_change} ({both_words(*format_apart(*mean_ns, TIME))} each)"
    return f"{name} {verb} {count_change}" + (f" ({format_signed(change.change_ns)})" if amount else "")


def _times(number: int) -> str:
    return f"{number} times" if number > 1 else "once"


def _shares(told: Moved, *, signed: bool = False) -> str:
    """Return by what share of its length a root changed over the ranks: ``25% to 50% longer``; its time where it was
    not there.
    """
    shares = [Fraction(change.now_ns, change.before_ns) - 1 for change in told.changes if change.before_ns]
    direction = "longer" if told.largest.change_ns > 0 else "shorter"
    if not shares:
        return f"{_amounts(told)} {direction}"
    sign = ("+" if direction == "longer" else MINUS) if signed else ""
    low, high = sorted(shares, key=abs)[0], max(shares, key=abs)
    if high + 1 >= TIMES:  # from there on a factor reads better than percent
        return f"{round(high + 1)} times as long"
    ends = [high] if abs(high - low) <= abs(high) * ALIKE else [low, high]
    words = " to ".join(sign + share_words(abs(share)) for share in ends)
    return words if signed else f"{words} {direction}"


def share_words(share: Fraction) -> str:
    """Return a share of change as percent, whole from 10 % on: 100.1% would claim a precision that no change has."""
    return percent(Fraction(round(100 * share), 100) if 10 * share >= 1 else share, DIGITS)


def _amounts(told: Moved) -> str:
    """Return by how much time a root changed, as a range where ranks differ."""
    low, high = sorted(abs(change.change_ns) for change in told.changes)[0], abs(told.largest.change_ns)
    return format_value(high) if high - low <= high * ALIKE else format_range(low, high, TIME)


def _both(change: Change) -> str:
    """Return the times of a change: ``8.9 → 11.5 ms``."""
    return both_words(*format_apart(change.before_ns, change.now_ns, TIME))


def both_words(before: str, now: str) -> str:
    """Return two values of one unit, which is written once: ``8.9 → 11.5 ms``."""
    number, _, unit = before.rpartition(" ")
    return f"{number if number and now.endswith(f' {unit}') else before} → {now}"


def _clock(change: Change) -> str:
    """Return how the SM clock changed, in brackets; empty where it is not known."""
    if change.clock_mhz is None:
        return ""
    baseline_mhz, current_mhz = change.clock_mhz
    return f" (SM clock {baseline_mhz} → {current_mhz} MHz)"


def _in_stages(told: Moved) -> str:
    """Return the stages of a change, or how many; empty where the kernel's name says the stage already."""
    kind = kind_of(told.root.name)
    # "AllReduce in all_reduce" would say it twice.
    if not told.stages or any(stage in told.root.name or kind_of(stage) == kind != OTHER_KIND for stage in told.stages):
        return ""
    if len(told.stages) > MOST_STAGES:
        return f" in {counted(len(told.stages), 'stage')}"
    return f" in {' and '.join(told.stages)}"
