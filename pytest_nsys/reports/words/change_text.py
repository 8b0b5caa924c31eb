"""How is a change put into words, without its place: ``flash_fwd_kernel 25% longer``, ``new copy from device to
device``?

All outputs use these functions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explain.breakdown_model import (
    AT_END,
    NEXT_STEP,
    Change,
    ChangeKind,
    LostGain,
    RootCause,
    RowActivity,
)
from pytest_nsys.analysis.metrics.registry import PERIOD_METRIC, STEP_TIME_METRIC, WINDOW_LENGTH_METRIC
from pytest_nsys.core.families import OTHER_KIND, find_collective_kind, find_communication_library
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.numbers import (
    MINUS,
    MULTIPLE_FROM,
    format_distinctly,
    format_percent,
    format_range,
    format_signed,
    format_value,
)
from pytest_nsys.core.scopes import Direction, KernelPlace, ScopeKind
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.core.units import TIME

SHARE_DIGITS = 2
"""Significant digits of a change in percent; the tables of rows show more."""

ALIKE_CHANGE_SHARE = Fraction(10, 100)
"""If the changes of ranks differ by no more than this share of the largest, only the largest is shown."""

MAX_NAMED_STAGES = 2
MAX_NAME_LENGTH = 60
MAX_PATH_LENGTH = 40
MAX_RANGE_LENGTH = 80

_NOUNS = {
    RowActivity.KERNEL: "kernel",
    RowActivity.COLLECTIVE: "collective",
    RowActivity.COPY: "copy",
    RowActivity.CALL: "call",
}


class RootChange(NamedTuple):
    """Describes one root cause: what changed, in which stages, and by how much on each rank."""

    root: RootCause
    stages: tuple[str, ...]
    changes: tuple[Change, ...]  # one for each rank

    @property
    def largest(self) -> Change:
        """The change of the rank on which most changed; of equal changes, that of the lowest rank."""
        return min(self.changes, key=lambda change: (-abs(change.change_ns), change.rank))


def choose_display_names(
    roots: Iterable[RootCause], exposed_names: Collection[str], other_names: Collection[str]
) -> dict[str, str]:
    """Return the display name of each kernel and call of the roots, and of each kernel that is exposed or waited in.

    Names are as short as possible while distinguishing a kernel from all others that ran (``other_names``). A
    collective is named by its kind if no other of that kind ran.
    """
    roots = [*roots]
    needed_names = {name for root in roots for name in (root.name, root.instead_of)} | {*exposed_names}
    display_names = make_display_names(sorted((needed_names | {*other_names}) - {""}), MAX_NAME_LENGTH)
    collectives = {root.name for root in roots if root.activity is RowActivity.COLLECTIVE} | {*exposed_names}
    names_by_kind = group_by_key(
        (find_collective_kind(name), name)
        for name in sorted(collectives | set(filter(_is_communication_name, other_names)))
        if name
    )
    display_names |= {
        same_kind[0]: kind for kind, same_kind in names_by_kind.items() if len(same_kind) == 1 and kind != OTHER_KIND
    }
    return {name: display_names[name] for name in needed_names if name}


def _is_communication_name(name: str) -> bool:
    """Whether a kernel's name is that of a communication library, or of a known collective."""
    return "nccl" in name.lower() or find_communication_library(name, name) is not None


def describe_root_change(
    root_change: RootChange, display_names: Mapping[str, str], *, on_all_ranks: bool = False, with_amount: bool = True
) -> str:
    """Return what changed at a root, without its place: rank, and part of the program.

    The time of work that is new or gone is only included ``with_amount``. ``on_all_ranks``: the same happened on all
    ranks, and the text says so.
    """
    root, largest = root_change.root, root_change.largest
    name = display_names.get(root.name, root.name)
    if root.activity is RowActivity.ALL:
        return (
            f"{'all kernels alike' if on_all_ranks else 'all compute'} "
            f"{_format_share_change(root_change, signed=True)}{_format_clock_change(largest)}"
        )
    if root.activity is RowActivity.HOST:
        return f"the GPU waits for the host{_format_moment(root, name)}: {_format_times_of_change(largest)}"
    if root.activity is RowActivity.IDLE:
        times_text = _format_times_of_change(largest)
        if not root.name:
            return f"compute pauses between kernels, already launched: {times_text}"
        # What ends a window is not launched.
        state = "" if root.name == AT_END else ", already launched"
        return f"the GPU is idle{_format_moment(root, name)}{state}: {times_text}"
    if root.activity is RowActivity.CALL and root.kind in (ChangeKind.LONGER, ChangeKind.SHORTER):
        direction = "longer" if largest.change_ns > 0 else "less"
        return f"the GPU waits {_format_amounts(root_change)} {direction} while the host is in {name}"
    match root.kind:
        case ChangeKind.NEW | ChangeKind.GONE | ChangeKind.OFTEN | ChangeKind.RARELY:
            return _describe_count_change(root_change, name, with_amount=with_amount)
        case ChangeKind.REPLACED:
            replaced_name = display_names.get(root.instead_of, root.instead_of)
            return f"{replaced_name} replaced by {name} in the same place: {_format_times_of_change(largest)}"
        case ChangeKind.LATER:
            return f"{name}{_format_stages(root_change)} starts {_format_amounts(root_change)} later"
        case ChangeKind.ELSEWHERE:
            return f"{name}{_format_stages(root_change)} runs on another stream"
    return f"{name}{_format_stages(root_change)} {_format_share_change(root_change)}"


def format_place(place: KernelPlace | None) -> str:
    """Return where in the program a kernel is launched: `` in MLPBlock/FusedMoE, backward (model.py:212)``.

    Empty where that is not known.
    """
    if place is None:
        return ""
    pass_text = "" if place.direction in (None, Direction.NONE) else f", {place.direction}"
    source_text = "" if place.source_line is None else f" ({place.source_line})"
    return f" in {_shorten_path(place)}{pass_text}{source_text}"


def _shorten_path(place: KernelPlace) -> str:
    """Return the end of a path, by which a sentence of a gate file finds it, too; of a range its name, in which a dot
    separates nothing.
    """
    path, separators = place.pattern, "/" if place.kind is ScopeKind.RANGE else "[./]"
    while len(path) > MAX_PATH_LENGTH and (separator := re.search(separators, path)) is not None:
        path = path[separator.end() :]
    return sanitize_line(path, MAX_RANGE_LENGTH)


def _format_moment(root: RootCause, name: str) -> str:
    """Return when the GPU has no work, `` before flash_fwd_kernel``; empty where that is before many kernels."""
    moments = {NEXT_STEP: " between steps", AT_END: " at the window's end", "": ""}
    return moments.get(root.name, f" before {name}")


def describe_cause(cause: Change, display_names: Mapping[str, str]) -> str:
    """Return one part of a change in words: its share of the value in the baseline, and now."""
    root, name = cause.root, display_names.get(cause.root.name, cause.root.name)
    baseline_text, current_text = format_distinctly(cause.baseline_ns, cause.current_ns, TIME)
    # Counts are shown only if they differ: equal counts explain nothing.
    counts = (
        f", {cause.baseline_count} → {_format_times(cause.current_count)}"
        if cause.baseline_count and cause.current_count and cause.count_change
        else ""
    )
    match root.activity:
        case RowActivity.RANK:
            return f"rank {cause.straggler} was the slowest before: {baseline_text}, this rank {current_text}"
        case RowActivity.HOST | RowActivity.IDLE:
            return describe_root_change(RootChange(root, (), (cause,)), display_names)
        case RowActivity.COVER:
            reason = {ChangeKind.SHORTER: ": it is shorter", ChangeKind.GONE: ": it is gone"}.get(root.kind, "")
            hidden_name = display_names.get(cause.exposed_kernel, cause.exposed_kernel) or "the communication"
            return f"{name} hides {current_text} of {hidden_name} (was {baseline_text}){reason}{counts}"
    if root.kind is ChangeKind.WAITED:
        return f"{name} waits for rank {cause.straggler}: {format_before_after(baseline_text, current_text)}{counts}"
    if root.kind in (ChangeKind.NEW, ChangeKind.GONE):
        return _describe_count_change(RootChange(root, (), (cause,)), name)
    effect = " blocks compute:" if root.activity in (RowActivity.COPY, RowActivity.MEMSET) else ""
    if root.kind is ChangeKind.ELSEWHERE:
        effect = " in the way of compute:" if root.activity is RowActivity.COLLECTIVE else " elsewhere:"
    return f"{name}{effect} {format_before_after(baseline_text, current_text)}{counts}"


_NOUNS_OF_METRICS = {STEP_TIME_METRIC: "the step", PERIOD_METRIC: "the step", WINDOW_LENGTH_METRIC: "the window"}


def describe_lost_gain(lost_gain: LostGain) -> str:
    """Return where the gain of a kernel went: ``flash 30% shorter, 4.1 ms; the step 0.2 ms: it waits in AllReduce
    instead``.
    """
    metric, gain, change_ns, instead = lost_gain
    names = choose_display_names(filter(None, (gain.root, instead and instead.root)), [], [])
    noun = _NOUNS_OF_METRICS.get(metric, metric)
    change = f"{format_value(abs(change_ns))}{' longer' if change_ns > 0 else ''}" if change_ns else "unchanged"
    name = names[gain.root.name]
    if gain.count_change < 0:
        gain_text = _describe_count_change(RootChange(gain.root, (), (gain,)), name, with_amount=False)
    else:
        gain_text = f"{name} {format_change_share(Fraction(-gain.change_ns, gain.baseline_ns))} shorter"
    text = f"{gain_text}, {format_value(-gain.change_ns)}; {noun} {change}"
    if instead is None:
        return text
    name = names.get(instead.root.name, instead.root.name)
    match instead.root.activity:
        case RowActivity.COLLECTIVE:
            return f"{text}: it waits in {name} instead"
        case RowActivity.HOST:
            return f"{text}: the GPU waits for the host instead"
        case RowActivity.IDLE:
            moment = f"until {name.strip('[]')}" if name in (AT_END, NEXT_STEP) else f"before {name}"
            return f"{text}: the GPU is idle {moment} instead"
        case RowActivity.RANK:
            return f"{text}: rank {instead.straggler} was the slowest before"
    return f"{text}: {name} takes longer instead" if instead.baseline_count else f"{text}: {name} runs instead"


def _describe_count_change(root_change: RootChange, name: str, *, with_amount: bool = True) -> str:
    """Return that work is new, gone, or runs another number of times; ``with_amount`` also its time."""
    root, change = root_change.root, root_change.largest
    noun = _NOUNS.get(root.activity, str(root.activity))
    full_name = name if name.startswith(noun) else f"{noun} {name}"
    times = _format_times(change.baseline_count or change.current_count)
    if not change.baseline_count:
        return f"new {full_name} ({times}{f', {format_value(change.current_ns)}' if with_amount else ''})"
    if not change.current_count:
        short_name = name if noun in name else full_name
        return f"{short_name} is gone ({times}{f', {format_value(change.baseline_ns)}' if with_amount else ''})"
    verb = "is called" if root.activity is RowActivity.CALL else "runs"
    count_change = (
        f"{_format_times(change.current_count)} instead of "
        f"{change.baseline_count if change.current_count > 1 else _format_times(change.baseline_count)}"
    )
    if (
        root.activity is RowActivity.COLLECTIVE and 5 * abs(change.change_ns) <= change.baseline_ns
    ):  # about the same time in more or fewer pieces, e.g. another bucket size: the mean says more than the sum
        mean_ns = Fraction(change.baseline_ns, change.baseline_count), Fraction(change.current_ns, change.current_count)
        return f"{name} {verb} {count_change} ({format_before_after(*format_distinctly(*mean_ns, TIME))} each)"
    return f"{name} {verb} {count_change}" + (f" ({format_signed(change.change_ns)})" if with_amount else "")


def _format_times(number: int) -> str:
    return f"{number} times" if number > 1 else "once"


def _format_share_change(root_change: RootChange, *, signed: bool = False) -> str:
    """Return by what share of its time a root changed, as a range over ranks: ``25% to 50% longer``; its time now if it
    took none before.
    """
    shares = [
        Fraction(change.current_ns, change.baseline_ns) - 1 for change in root_change.changes if change.baseline_ns
    ]
    direction = "longer" if root_change.largest.change_ns > 0 else "shorter"
    if not shares:
        return f"{_format_amounts(root_change)} {direction}"
    sign = ("+" if direction == "longer" else MINUS) if signed else ""
    low, high = sorted(shares, key=abs)[0], max(shares, key=abs)
    if high + 1 >= MULTIPLE_FROM:  # from there on, a factor is easier to read than percent
        return f"{round(high + 1)} times as long"
    ends = [high] if abs(high - low) <= abs(high) * ALIKE_CHANGE_SHARE else [low, high]
    words = " to ".join(sign + format_change_share(abs(share)) for share in ends)
    return words if signed else f"{words} {direction}"


def format_change_share(share: Fraction) -> str:
    """Return a change in percent, as a whole number from 10 % on: 100.1% would claim too much precision."""
    return format_percent(Fraction(round(100 * share), 100) if 10 * share >= 1 else share, SHARE_DIGITS)


def _format_amounts(root_change: RootChange) -> str:
    """Return by how much time a root changed, as a range if ranks differ."""
    low, high = sorted(abs(change.change_ns) for change in root_change.changes)[0], abs(root_change.largest.change_ns)
    return format_value(high) if high - low <= high * ALIKE_CHANGE_SHARE else format_range(low, high, TIME)


def _format_times_of_change(change: Change) -> str:
    """Return the times of a change before and after: ``8.9 → 11.5 ms``."""
    return format_before_after(*format_distinctly(change.baseline_ns, change.current_ns, TIME))


def format_before_after(baseline_text: str, current_text: str) -> str:
    """Return two values of one unit, which is written once: ``8.9 → 11.5 ms``."""
    number, _, unit = baseline_text.rpartition(" ")
    return f"{number if number and current_text.endswith(f' {unit}') else baseline_text} → {current_text}"


def _format_clock_change(change: Change) -> str:
    """Return how the SM clock changed, in parentheses; empty if unknown."""
    if change.clock_mhz is None:
        return ""
    baseline_mhz, current_mhz = change.clock_mhz
    return f" (SM clock {baseline_mhz} → {current_mhz} MHz)"


def _format_stages(root_change: RootChange) -> str:
    """Return the stages of a change, or their number if there are many; empty if the kernel's name already contains the
    stage.
    """
    kind = find_collective_kind(root_change.root.name)
    # "AllReduce in all_reduce" would say it twice.
    if not root_change.stages or any(
        stage in root_change.root.name or find_collective_kind(stage) == kind != OTHER_KIND
        for stage in root_change.stages
    ):
        return ""
    if len(root_change.stages) > MAX_NAMED_STAGES:
        return f" in {format_count(len(root_change.stages), 'stage')}"
    return f" in {' and '.join(root_change.stages)}"
