"""What stands behind a red of structure: which kernels came or went, where their order departs, which stream computes?

Looked up for a red alone: the two sides hold the names, by kernel in ``kernel_launches``, in order behind ``sequence``.
A communication stream that computes, too, is a compute stream: its rows vanish, and barriers come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import zip_longest
from typing import TypeVar

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.parts import Breakdown
from pytest_nsys.analysis.metrics.quantities import QUANTITIES
from pytest_nsys.analysis.metrics.registry import METRICS, Metric, Of
from pytest_nsys.analysis.metrics.structure import SharedStream, shared_streams
from pytest_nsys.analysis.metrics.table import MetricTable, label_key
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.columns import take, total
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.kernel_names import TELLING, in_the_middle
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.numbers import format_value, percent
from pytest_nsys.core.units import COUNT, HASH
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.judgement import Judgement
from pytest_nsys.gates.model import WORSE, Assertion, JudgedRow, Labels, Outcome, spec_for
from pytest_nsys.gates.selection import absences
from pytest_nsys.verdicts.apart import RunBreakdowns
from pytest_nsys.verdicts.references import ReferenceSource

SHOWN = 3
SHOWN_PARTS = 8
_AHEAD = 4
"""Kernels after the place where two orders part, which tell what happened there."""

OFF = (*WORSE, Outcome.NO_DATA)

Found = TypeVar("Found")


@dataclass(frozen=True)
class Red:
    """A judgement that may be explained; ``held`` is what it is held against, None under a constant limit."""

    assertion: Assertion
    judgement: Judgement
    now: Captures
    held: ReferenceSource | None

    @property
    def metric(self) -> Metric:
        return self.assertion.measures

    @property
    def spec(self) -> WindowSpec:
        return spec_for(self.now.convention, self.assertion)

    @cached_property
    def off(self) -> Sequence[JudgedRow]:
        """The rows that do not hold, worst first."""
        return [row for row in self.judgement.rows if row.outcome in OFF and not row.waived]

    def lines(self) -> tuple[str, ...]:
        """What stands behind them; none where the metric is no structure."""
        return (*self._structure(), *_of_ranks(self._streams(), ""))

    def _structure(self) -> Iterable[str]:
        assertion, metric = self.assertion, self.metric
        of_a_stage = metric.of in (Of.COMMUNICATION, Of.STAGE) and "stage" in metric.dimensions
        if of_a_stage and self.judgement.outcome is Outcome.NO_DATA:
            return _of_ranks(self._gone(), ":")
        if not self.off or metric.outside or assertion.aggregates or assertion.balance_across is not None:
            return ()
        if metric.unit == HASH and self.held is not None:
            was = self._before(lambda before: before.captures.sequences(self.spec))
            return _on_lines(_departures(self.off, self.now.sequences(self.spec), was or {}))
        if "kernel" in metric.dimensions and self.held is not None:
            return _by_kernel(self.off, metric.unit)
        if metric.sums:
            parts = METRICS.get(metric.sums) or QUANTITIES[metric.sums]
            accepted = self._before(lambda before: before.captures.rows(parts, self.spec))
            return _on_lines(_parts(self.off, self.now.rows(parts, self.spec), accepted))
        return ()

    def _before(self, find: Callable[[RunBreakdowns], Found | None]) -> Found | None:
        """What is found in the run before; None where none is at hand, or what is kept of it does not hold that."""
        before = None if self.held is None else self.held.windows_before
        with suppress(NsysError):
            return None if before is None else find(before)
        return None

    def _gone(self) -> Iterator[tuple[Label, str]]:
        """What became of the stages that have no row now."""
        table, labels = self.now.rows(self.metric, self.spec), (row.labels for row in self.off)
        places = [(own["rank"], own["stage"]) for own in labels if {"rank", "stage"} <= own.keys()]
        lost = absences(table, self.assertion.where, self.assertion.allow_missing)
        places += [(absence.rank, stage) for absence in lost for stage in absence.stages]
        held = {row.labels for row in table.rows}
        for rank, stage in places:
            for window in self.now.middle_windows(self.spec, rank) if (rank, stage) not in held else ():
                yield rank, _fate(window, str(stage))

    def _streams(self) -> Iterator[tuple[Label, str]]:
        """What made compute streams of those whose kernels mostly communicate; those that it was before are left out
        where ``before`` can tell.
        """
        if self.judgement.outcome not in OFF or self.metric.of not in (Of.COMMUNICATION, Of.STREAMS):
            return
        ranks = [*self._ranks()]
        if not ranks and self.judgement.outcome is Outcome.NO_DATA:
            ranks = [(rank.number, None) for rank in self.now.runs[0].ranks]
        for rank, was in ranks:
            for window in self.now.middle_windows(self.spec, rank):
                for shared in shared_streams(window):
                    if was is None or not _as_before(shared, was):
                        yield rank, _words(shared)

    def _ranks(self) -> Iterator[tuple[int, Breakdown | None]]:
        """The ranks whose rows are gone, or tell of streams, each with what it was before where that is known."""
        for row in self.off:
            labels = {**row.origin, **row.labels}
            rank = labels.get("rank")
            if isinstance(rank, int) and (row.value is None or self.metric.of is Of.STREAMS):
                yield rank, None if row.baseline is None else self._was(rank, labels, row.baseline)

    def _was(self, rank: int, labels: Labels, value: Value) -> Breakdown | None:
        before = self._before(lambda before: before.apart(self.metric, self.spec, labels, value))
        return None if before is None else before.get(rank)


def _of_ranks(found: Iterable[tuple[Label, str]], then: str) -> Iterator[str]:
    """The same of several ranks on one line."""
    ranks = grouped((said, rank) for rank, said in dict.fromkeys(found) if said)
    return (f"rank {', '.join(map(str, own))}{then} {said}" for said, own in ranks.items())


def _on_lines(found: Iterable[tuple[JudgedRow, str]]) -> Iterator[str]:
    """The same for several rows on one line."""
    places = grouped((said, row) for row, said in found)
    return (f"{_where(rows)}: {said}" for said, rows in places.items())


def _fate(window: RankWindow, stage: str) -> str:
    """Why a stage has no row about communication, or at all; empty where a shared stream says it by itself."""
    members, name = window.all_by_stage.get(stage), printable(stage, 60)
    if members is None:
        return f"no kernel of the window is launched in stage {name}"
    communicating = total(take(window.communicates, members))
    if not communicating:
        if len(members) == 1:
            return f"the 1 kernel of stage {name} does not communicate"
        return f"none of the {len(members)} kernels of stage {name} communicates"
    if any(shared_streams(window)):
        return ""
    return f"the {counted(communicating, 'communication kernel')} of stage {name} run on compute streams, as barriers"


def _departures(
    off: Sequence[JudgedRow], now: Mapping[int, tuple[str, ...]], before: Mapping[int, tuple[str, ...]]
) -> Iterator[tuple[JudgedRow, str]]:
    """Where each sequence departs."""
    for row in off:
        if row.value is None or row.baseline is None:
            own = before.get(_whole(row.baseline)) if row.value is None else now.get(_whole(row.value))
            count = f" ({counted(len(own), 'kernel')}, the first {_called(own[0])})" if own else ""
            yield row, f"{'no kernel any more' if row.value is None else 'no kernel before'}{count}"
        else:
            yield row, first_difference(before.get(_whole(row.baseline)), now[_whole(row.value)])


def _called(name: Label) -> str:
    """As a row calls a kernel; of a long name both ends, where kernels of one template differ."""
    return in_the_middle(printable(str(name), TELLING), 80)


def _whole(value: Value | None) -> int:
    assert isinstance(value, int)
    return value


def _by_kernel(off: Sequence[JudgedRow], unit: str) -> Iterator[str]:
    """The change of each kernel in all rows together."""
    for kernel, rows in grouped((row.labels["kernel"], row) for row in off).items():
        was, is_now = sum(Fraction(row.baseline or 0) for row in rows), sum(Fraction(row.value or 0) for row in rows)
        what = "new" if not was else "vanished" if not is_now else "changed"
        moved = f"{was} → {is_now} launches" if unit == COUNT else f"{percent(was)} → {percent(is_now)} of the time"
        where = f" ({_where(rows)})" if len(rows[0].labels) > 1 else ""
        yield f"{what}: {_called(kernel)}, {moved}{where}"


def _parts(off: Sequence[JudgedRow], now: MetricTable, before: MetricTable | None) -> Iterator[tuple[JudgedRow, str]]:
    """What each row is made of: of each part the change, or how many there are where nothing says what was."""
    sides = [dict(table.rows) if table is not None else {} for table in (before, now)]
    for row in off:
        place = tuple(row.labels.values())
        was, is_now = ({key[-1]: value for key, value in side.items() if key[:-1] == place} for side in sides)
        names = sorted({*was, *is_now}, key=label_key)
        moved = [(name, Fraction(is_now.get(name, 0)) - was.get(name, 0)) for name in names]
        moved = sorted((each for each in moved if each[1]), key=lambda each: -abs(each[1]))
        more = f" and {len(moved) - SHOWN_PARTS} more" if len(moved) > SHOWN_PARTS else ""
        if moved:
            signed = before is not None
            parts = ", ".join(_part(name, by, signed=signed) for name, by in moved[:SHOWN_PARTS])
            yield row, ("" if signed else "now ") + parts + more


def _part(name: Label, by: Fraction, *, signed: bool) -> str:
    sign = ("+" if by > 0 else "−") if signed else ""
    return f"{sign}{abs(by)} {_called(name)}"


def _where(rows: Sequence[JudgedRow]) -> str:
    """The places of rows, dimension by dimension; the kernel, which the line names, left out."""
    dimensions = [d for d in rows[0].labels if d != "kernel"]
    said = []
    for dimension in dimensions:
        labels = sorted({row.labels[dimension] for row in rows}, key=label_key)
        more = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
        said.append(f"{dimension} {', '.join(printable(str(label), 60) for label in labels[:6])}{more}")
    return " ".join(said)


def _as_before(shared: SharedStream, was: Breakdown) -> bool:
    """Whether as many kernels of its communication were barriers."""
    barriers = Counter[str]()
    for part in was.parts:
        barriers[part.name] += part.number if part.is_barrier else 0
    return all(barriers[name] >= count for name, count in shared.communication.items())


def _words(shared: SharedStream) -> str:
    compute = sorted(shared.compute.items(), key=lambda item: (-item[1][1], item[0]))
    each = [f"{_called(name)} ({counted(n, 'kernel')}, {format_value(ns, 'ns')})" for name, (n, ns) in compute]
    more = [f"{len(each) - SHOWN} more"] if len(each) > SHOWN else []
    who = f"{', '.join([*each[:SHOWN], *more])} {'makes' if len(each) == 1 else 'make'} it a compute stream"
    number = sum(shared.communication.values())
    return f"stream {shared.label}: {who}, so {counted(number, 'communication kernel')} on it count as barriers"


def first_difference(before: Sequence[str] | None, now: Sequence[str]) -> str:
    """Where two sequences part, in words: the place, counted from 1, the name before and the name now."""
    if before is None:
        return "its order before was not kept"
    place = next(i for i, (a, b) in enumerate(zip_longest(before, now)) if a != b)
    of = f"of {len(before)}, now {len(now)}" if len(before) != len(now) else f"of {len(now)}"
    return f"kernel {place + 1} {of}: {_at(before, place)} before, {_at(now, place)} now{_way(before, now, place)}"


def _at(sequence: Sequence[str], place: int) -> str:
    return _called(sequence[place]) if place < len(sequence) else "nothing"


def _way(before: Sequence[str], now: Sequence[str], place: int) -> str:
    """Whether the next kernels tell that one was put in, left out or replaced."""
    was, new = before[place : place + _AHEAD], now[place : place + _AHEAD]
    if not was or not new:
        return ""
    if _follows(was, new[1:]):
        return " (put in)"
    if _follows(was[1:], new):
        return " (left out)"
    return " (in its place)" if _follows(was[1:], new[1:]) else ""


def _follows(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether the two go on alike: for two kernels at least, or to the end of both."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter] and (shorter > 1 or len(a) == len(b) == 1)
