"""What stands behind a red of structure: which kernels came or went, where their order departs, which stream computes?

It is looked up for a red alone: the two runs hold the names, by kernel in ``kernel_launches``, in order behind
``sequence``. A communication stream that computes, too, is a compute stream: its rows vanish, and barriers come.
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

SHOWN = 3  # kernels that one line names; the rest is counted
SHOWN_PARTS = 8  # parts that one line names; the rest is counted
_AHEAD = 4
"""Counts the kernels after the place where two orders part that tell what happened there."""

OFF = (*WORSE, Outcome.NO_DATA)

Found = TypeVar("Found")


@dataclass(frozen=True)
class Red:
    """Explains a judgement by the kernels and streams that changed."""

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
        """Return the rows that do not hold, worst first."""
        return [row for row in self.judgement.rows if row.outcome in OFF and not row.waived]

    def lines(self) -> tuple[str, ...]:
        """Return what stands behind the red rows, one line each; empty where the metric is no structure."""
        return (*self._structure(), *_of_ranks(self._streams(), ""))

    def _structure(self) -> Iterable[str]:
        assertion, metric = self.assertion, self.metric
        has_stage_rows = metric.of in (Of.COMMUNICATION, Of.STAGE) and "stage" in metric.dimensions
        if has_stage_rows and self.judgement.outcome is Outcome.NO_DATA:
            return _of_ranks(self._gone(), ":")
        # An aggregate or a balance has no row whose kernels could be named.
        if not self.off or metric.outside or assertion.aggregates or assertion.balance_across is not None:
            return ()
        if metric.unit == HASH and self.held is not None:
            baseline_sequences = self._before(lambda breakdowns: breakdowns.captures.sequences(self.spec))
            return _on_lines(_departures(self.off, self.now.sequences(self.spec), baseline_sequences or {}))
        if "kernel" in metric.dimensions and self.held is not None:
            return _by_kernel(self.off, metric.unit)
        if metric.sums:
            part_metric = METRICS.get(metric.sums) or QUANTITIES[metric.sums]
            baseline_parts = self._before(lambda breakdowns: breakdowns.captures.rows(part_metric, self.spec))
            return _on_lines(_parts(self.off, self.now.rows(part_metric, self.spec), baseline_parts))
        return ()

    def _before(self, find: Callable[[RunBreakdowns], Found | None]) -> Found | None:
        """Return what is read from the baseline's run; None where no run is at hand, or what is kept of it does not
        hold that.
        """
        breakdowns = None if self.held is None else self.held.windows_before
        with suppress(NsysError):
            return None if breakdowns is None else find(breakdowns)
        return None

    def _gone(self) -> Iterator[tuple[Label, str]]:
        """Yield, with its rank, what became of each stage that has no row now."""
        table, labels = self.now.rows(self.metric, self.spec), (row.labels for row in self.off)
        places = [
            (row_labels["rank"], row_labels["stage"]) for row_labels in labels if {"rank", "stage"} <= row_labels.keys()
        ]
        missing_stages = absences(table, self.assertion.where, self.assertion.allow_missing)
        places += [(absence.rank, stage) for absence in missing_stages for stage in absence.stages]
        current_labels = {row.labels for row in table.rows}
        for rank, stage in places:
            for window in self.now.middle_windows(self.spec, rank) if (rank, stage) not in current_labels else ():
                yield rank, _fate(window, str(stage))

    def _streams(self) -> Iterator[tuple[Label, str]]:
        """Yield, with its rank, what made a compute stream of each stream whose kernels mostly communicate.

        Streams that were so before are left out where the baseline can tell.
        """
        if self.judgement.outcome not in OFF or self.metric.of not in (Of.COMMUNICATION, Of.STREAMS):
            return
        ranks = [*self._ranks()]
        if not ranks and self.judgement.outcome is Outcome.NO_DATA:
            ranks = [(rank.number, None) for rank in self.now.runs[0].ranks]
        for rank, baseline in ranks:
            for window in self.now.middle_windows(self.spec, rank):
                for stream in shared_streams(window):
                    if baseline is None or not _as_before(stream, baseline):
                        yield rank, _words(stream)

    def _ranks(self) -> Iterator[tuple[int, Breakdown | None]]:
        """Yield the ranks whose rows are gone, or tell of streams, each with what it was made of before where that is
        known.
        """
        for row in self.off:
            labels = {**row.origin, **row.labels}
            rank = labels.get("rank")
            if isinstance(rank, int) and (row.value is None or self.metric.of is Of.STREAMS):
                yield rank, None if row.baseline is None else self._was(rank, labels, row.baseline)

    def _was(self, rank: int, labels: Labels, value: Value) -> Breakdown | None:
        breakdown = self._before(lambda breakdowns: breakdowns.apart(self.metric, self.spec, labels, value))
        return None if breakdown is None else breakdown.get(rank)


def _of_ranks(found: Iterable[tuple[Label, str]], then: str) -> Iterator[str]:
    """Yield one line for each text, with all ranks that have it."""
    ranks = grouped((text, rank) for rank, text in dict.fromkeys(found) if text)
    return (f"rank {', '.join(map(str, rank_labels))}{then} {text}" for text, rank_labels in ranks.items())


def _on_lines(found: Iterable[tuple[JudgedRow, str]]) -> Iterator[str]:
    """Yield one line for each text, with the places of all rows that have it."""
    rows_by_text = grouped((text, row) for row, text in found)
    return (f"{_where(rows)}: {text}" for text, rows in rows_by_text.items())


def _fate(window: RankWindow, stage: str) -> str:
    """Return why a stage has no row about communication, or at all; empty where a shared stream says it by itself."""
    stage_kernels, name = window.all_by_stage.get(stage), printable(stage, 60)
    if stage_kernels is None:
        return f"no kernel of the window is launched in stage {name}"
    communicating_count = total(take(window.communicates, stage_kernels))
    if not communicating_count:
        if len(stage_kernels) == 1:
            return f"the 1 kernel of stage {name} does not communicate"
        return f"none of the {len(stage_kernels)} kernels of stage {name} communicates"
    if any(shared_streams(window)):
        return ""
    return (
        f"the {counted(communicating_count, 'communication kernel')} of stage {name} "
        "run on compute streams, as barriers"
    )


def _departures(
    off: Sequence[JudgedRow], now: Mapping[int, tuple[str, ...]], before: Mapping[int, tuple[str, ...]]
) -> Iterator[tuple[JudgedRow, str]]:
    """Yield with each row where its sequence of kernels departs from the baseline's."""
    for row in off:
        if row.value is None or row.baseline is None:
            kernels = before.get(_whole(row.baseline)) if row.value is None else now.get(_whole(row.value))
            count_text = f" ({counted(len(kernels), 'kernel')}, the first {_called(kernels[0])})" if kernels else ""
            yield row, f"{'no kernel any more' if row.value is None else 'no kernel before'}{count_text}"
        else:
            yield row, first_difference(before.get(_whole(row.baseline)), now[_whole(row.value)])


def _called(name: Label) -> str:
    """Return a kernel's name as a row has it; of a long name both ends, where kernels of one template differ."""
    return in_the_middle(printable(str(name), TELLING), 80)


def _whole(value: Value | None) -> int:
    assert isinstance(value, int)  # a fingerprint, which is never a fraction
    return value


def _by_kernel(off: Sequence[JudgedRow], unit: str) -> Iterator[str]:
    """Yield the change of each kernel in all rows together."""
    for kernel, rows in grouped((row.labels["kernel"], row) for row in off).items():
        baseline_total, current_total = (
            sum(Fraction(row.baseline or 0) for row in rows),
            sum(Fraction(row.value or 0) for row in rows),
        )
        change_word = "new" if not baseline_total else "vanished" if not current_total else "changed"
        change_text = (
            f"{baseline_total} → {current_total} launches"
            if unit == COUNT
            else f"{percent(baseline_total)} → {percent(current_total)} of the time"
        )
        place_text = f" ({_where(rows)})" if len(rows[0].labels) > 1 else ""
        yield f"{change_word}: {_called(kernel)}, {change_text}{place_text}"


def _parts(off: Sequence[JudgedRow], now: MetricTable, before: MetricTable | None) -> Iterator[tuple[JudgedRow, str]]:
    """Yield what each row is made of: the change of each part, or how many there are where nothing says what was."""
    sides = [dict(table.rows) if table is not None else {} for table in (before, now)]
    for row in off:
        row_labels = tuple(row.labels.values())
        baseline_parts, current_parts = (
            {key[-1]: value for key, value in side.items() if key[:-1] == row_labels} for side in sides
        )
        names = sorted({*baseline_parts, *current_parts}, key=label_key)
        changes = [(name, Fraction(current_parts.get(name, 0)) - baseline_parts.get(name, 0)) for name in names]
        changes = sorted((item for item in changes if item[1]), key=lambda item: -abs(item[1]))
        more_text = f" and {len(changes) - SHOWN_PARTS} more" if len(changes) > SHOWN_PARTS else ""
        if changes:
            is_signed = before is not None
            parts_text = ", ".join(_part(name, change, signed=is_signed) for name, change in changes[:SHOWN_PARTS])
            yield row, ("" if is_signed else "now ") + parts_text + more_text


def _part(name: Label, by: Fraction, *, signed: bool) -> str:
    sign = ("+" if by > 0 else "−") if signed else ""
    return f"{sign}{abs(by)} {_called(name)}"


def _where(rows: Sequence[JudgedRow]) -> str:
    """Return the places of rows in words, dimension by dimension; without the kernel, which the line names."""
    dimensions = [d for d in rows[0].labels if d != "kernel"]
    texts = []
    for dimension in dimensions:
        # A line names six labels of a dimension, and counts the rest.
        labels = sorted({row.labels[dimension] for row in rows}, key=label_key)
        more_text = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
        texts.append(f"{dimension} {', '.join(printable(str(label), 60) for label in labels[:6])}{more_text}")
    return " ".join(texts)


def _as_before(shared: SharedStream, was: Breakdown) -> bool:
    """Whether as many kernels of the stream's communication were barriers in the baseline."""
    barriers = Counter[str]()
    for part in was.parts:
        # A barrier is communication in order with compute of its own stream.
        barriers[part.name] += part.number if part.is_barrier else 0
    return all(barriers[name] >= count for name, count in shared.communication.items())


def _words(shared: SharedStream) -> str:
    compute_kernels = sorted(shared.compute.items(), key=lambda item: (-item[1][1], item[0]))
    kernel_texts = [
        f"{_called(name)} ({counted(n, 'kernel')}, {format_value(ns, 'ns')})" for name, (n, ns) in compute_kernels
    ]
    more_texts = [f"{len(kernel_texts) - SHOWN} more"] if len(kernel_texts) > SHOWN else []
    subject = (
        f"{', '.join([*kernel_texts[:SHOWN], *more_texts])} {'makes' if len(kernel_texts) == 1 else 'make'} "
        "it a compute stream"
    )
    kernel_count = sum(shared.communication.values())
    return (
        f"stream {shared.label}: {subject}, so {counted(kernel_count, 'communication kernel')} on it count as barriers"
    )


def first_difference(before: Sequence[str] | None, now: Sequence[str]) -> str:
    """Return where two sequences part: the place, counted from 1, the name before and the name now."""
    if before is None:
        return "its order before was not kept"
    position = next(i for i, (a, b) in enumerate(zip_longest(before, now)) if a != b)
    length_text = f"of {len(before)}, now {len(now)}" if len(before) != len(now) else f"of {len(now)}"
    return (
        f"kernel {position + 1} {length_text}: {_at(before, position)} before, {_at(now, position)} now"
        f"{_way(before, now, position)}"
    )


def _at(sequence: Sequence[str], place: int) -> str:
    return _called(sequence[place]) if place < len(sequence) else "nothing"


def _way(before: Sequence[str], now: Sequence[str], place: int) -> str:
    """Tell whether the next kernels show that one was put in, left out or replaced; empty where they do not."""
    baseline_next, current_next = before[place : place + _AHEAD], now[place : place + _AHEAD]
    if not baseline_next or not current_next:
        return ""
    if _follows(baseline_next, current_next[1:]):
        return " (put in)"
    if _follows(baseline_next[1:], current_next):
        return " (left out)"
    return " (in its place)" if _follows(baseline_next[1:], current_next[1:]) else ""


def _follows(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether the two go on alike: for two kernels at least, or to the end of both."""
    shared_length = min(len(a), len(b))
    # One kernel alike may be chance, unless it is the last of both.
    return a[:shared_length] == b[:shared_length] and (shared_length > 1 or len(a) == len(b) == 1)
