"""Why did an assertion on structure fail: which kernels came or went, where does their order change, which stream
computes?

This is looked up for failed assertions only. Both runs hold the kernel names: as rows of ``kernel_launches``, and in
order behind ``sequence``. A communication stream that also computes counts as a compute stream: its rows vanish, and
barriers appear.
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
from pytest_nsys.analysis.explain.breakdown_model import Breakdown
from pytest_nsys.analysis.metrics.quantities import QUANTITIES
from pytest_nsys.analysis.metrics.registry import METRICS, Metric, MetricSource
from pytest_nsys.analysis.metrics.structure import SharedStream, list_shared_streams
from pytest_nsys.analysis.metrics.table import MetricTable, make_label_key
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.columns import sum_column, take
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.kernel_names import STABLE_NAME_LENGTH, shorten_middle
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.numbers import format_percent, format_value
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.core.units import COUNT, HASH
from pytest_nsys.gates.judgement import Judgement
from pytest_nsys.gates.model import OUTSIDE_LIMIT, Assertion, JudgedLabels, JudgedRow, Outcome, resolve_window_spec
from pytest_nsys.gates.selection import find_absent_ranks
from pytest_nsys.verdicts.references import ReferenceSource
from pytest_nsys.verdicts.window_breakdowns import RunBreakdowns

SHOWN_KERNELS = 3  # kernels named on one line; the rest are counted
SHOWN_PARTS = 8  # parts named on one line; the rest are counted
_LOOKAHEAD_KERNELS = 4
"""How many kernels after the first difference of two sequences are compared to tell what happened there."""

RED_OUTCOMES = (*OUTSIDE_LIMIT, Outcome.NO_DATA)

BaselineAnswer = TypeVar("BaselineAnswer")


@dataclass(frozen=True)
class StructureFailure:
    """Explains a judgement by the kernels and streams that changed."""

    assertion: Assertion
    judgement: Judgement
    captures: Captures
    reference_source: ReferenceSource | None

    @property
    def metric(self) -> Metric:
        return self.assertion.measured_metric

    @property
    def spec(self) -> WindowSpec:
        return resolve_window_spec(self.captures.convention, self.assertion)

    @cached_property
    def red_rows(self) -> Sequence[JudgedRow]:
        """Return the rows that do not hold, worst first."""
        return [row for row in self.judgement.rows if row.outcome in RED_OUTCOMES and not row.waived]

    def list_lines(self) -> tuple[str, ...]:
        """Return the changes behind the failed rows, one line each; empty if the metric is not one of structure."""
        return (*self._list_structure_lines(), *_join_rank_texts(self._describe_shared_streams(), ""))

    def _list_structure_lines(self) -> Iterable[str]:
        assertion, metric = self.assertion, self.metric
        has_stage_rows = (
            metric.source in (MetricSource.COMMUNICATION, MetricSource.STAGE) and "stage" in metric.dimensions
        )
        if has_stage_rows and self.judgement.outcome is Outcome.NO_DATA:
            return _join_rank_texts(self._describe_lost_stages(), ":")
        # An aggregate or a balance has no row whose kernels could be named.
        if not self.red_rows or metric.is_outside_trace or assertion.aggregates or assertion.balance_across is not None:
            return ()
        if metric.unit == HASH and self.reference_source is not None:
            baseline_sequences = self._read_baseline(
                lambda breakdowns: breakdowns.captures.map_names_by_fingerprint(self.spec)
            )
            return _join_row_texts(
                _describe_departures(
                    self.red_rows, self.captures.map_names_by_fingerprint(self.spec), baseline_sequences or {}
                )
            )
        if "kernel" in metric.dimensions and self.reference_source is not None:
            return _describe_kernel_counts(self.red_rows, metric.unit)
        if metric.sum_of:
            part_metric = METRICS.get(metric.sum_of) or QUANTITIES[metric.sum_of]
            baseline_parts = self._read_baseline(
                lambda breakdowns: breakdowns.captures.measure_rows(part_metric, self.spec)
            )
            return _join_row_texts(
                _describe_part_changes(
                    self.red_rows, self.captures.measure_rows(part_metric, self.spec), baseline_parts
                )
            )
        return ()

    def _read_baseline(self, read: Callable[[RunBreakdowns], BaselineAnswer | None]) -> BaselineAnswer | None:
        """Return what ``read`` returns for the baseline's run; None if there is no run, or if its kept windows do not
        hold that.
        """
        breakdowns = None if self.reference_source is None else self.reference_source.baseline_breakdowns
        with suppress(NsysError):
            return None if breakdowns is None else read(breakdowns)
        return None

    def _describe_lost_stages(self) -> Iterator[tuple[Label, str]]:
        """Yield (rank, text) for each stage that lost its row: why it did."""
        table, labels = self.captures.measure_rows(self.metric, self.spec), (row.labels for row in self.red_rows)
        places = [
            (row_labels["rank"], row_labels["stage"]) for row_labels in labels if {"rank", "stage"} <= row_labels.keys()
        ]
        missing_stages = find_absent_ranks(table, self.assertion.where, self.assertion.allow_missing)
        places += [(absence.rank, stage) for absence in missing_stages for stage in absence.stages]
        current_labels = {row.labels for row in table.rows}
        for rank, stage in places:
            for window in (
                self.captures.select_middle_windows(self.spec, rank) if (rank, stage) not in current_labels else ()
            ):
                yield rank, _describe_lost_stage(window, str(stage))

    def _describe_shared_streams(self) -> Iterator[tuple[Label, str]]:
        """Yield (rank, text) for each stream that mostly communicates and counts as a compute stream: what makes it
        one.

        Streams that were so in the baseline are left out, if the baseline's run is known.
        """
        if self.judgement.outcome not in RED_OUTCOMES or self.metric.source not in (
            MetricSource.COMMUNICATION,
            MetricSource.STREAMS,
        ):
            return
        ranks = [*self._list_ranks_and_baselines()]
        if not ranks and self.judgement.outcome is Outcome.NO_DATA:
            ranks = [(rank.number, None) for rank in self.captures.runs[0].ranks]
        for rank, baseline in ranks:
            for window in self.captures.select_middle_windows(self.spec, rank):
                for stream in list_shared_streams(window):
                    if baseline is None or not _has_same_barriers(stream, baseline):
                        yield rank, _describe_shared_stream(stream)

    def _list_ranks_and_baselines(self) -> Iterator[tuple[int, Breakdown | None]]:
        """Yield the ranks whose failed rows are gone or depend on streams, each with its breakdown in the baseline, if
        known.
        """
        for row in self.red_rows:
            labels = {**row.origin, **row.labels}
            rank = labels.get("rank")
            if isinstance(rank, int) and (row.value is None or self.metric.source is MetricSource.STREAMS):
                yield rank, None if row.baseline is None else self._find_baseline_breakdown(rank, labels, row.baseline)

    def _find_baseline_breakdown(self, rank: int, labels: JudgedLabels, value: Value) -> Breakdown | None:
        breakdown = self._read_baseline(
            lambda breakdowns: breakdowns.break_down_row(self.metric, self.spec, labels, value)
        )
        return None if breakdown is None else breakdown.find_breakdown(rank)


def _join_rank_texts(rank_texts: Iterable[tuple[Label, str]], separator: str) -> Iterator[str]:
    """Yield one line for each text, with all ranks that have it."""
    ranks = group_by_key((text, rank) for rank, text in dict.fromkeys(rank_texts) if text)
    return (f"rank {', '.join(map(str, rank_labels))}{separator} {text}" for text, rank_labels in ranks.items())


def _join_row_texts(row_texts: Iterable[tuple[JudgedRow, str]]) -> Iterator[str]:
    """Yield one line for each text, with the places of all rows that have it."""
    rows_by_text = group_by_key((text, row) for row, text in row_texts)
    return (f"{_format_row_places(rows)}: {text}" for text, rows in rows_by_text.items())


def _describe_lost_stage(window: RankWindow, stage: str) -> str:
    """Return why a stage has no row about communication, or no row at all; empty if a shared stream explains it."""
    stage_kernels, name = window.kernels_by_stage.get(stage), sanitize_line(stage, 60)
    if stage_kernels is None:
        return f"no kernel of the window is launched in stage {name}"
    communicating_count = sum_column(take(window.communicates, stage_kernels))
    if not communicating_count:
        if len(stage_kernels) == 1:
            return f"the 1 kernel of stage {name} does not communicate"
        return f"none of the {len(stage_kernels)} kernels of stage {name} communicates"
    if any(list_shared_streams(window)):
        return ""
    return (
        f"the {format_count(communicating_count, 'communication kernel')} of stage {name} "
        "run on compute streams, as barriers"
    )


def _describe_departures(
    red_rows: Sequence[JudgedRow], current: Mapping[int, tuple[str, ...]], baseline: Mapping[int, tuple[str, ...]]
) -> Iterator[tuple[JudgedRow, str]]:
    """Yield each row with the place where its sequence of kernels departs from the baseline's."""
    for row in red_rows:
        if row.value is None or row.baseline is None:
            kernels = baseline.get(_as_int(row.baseline)) if row.value is None else current.get(_as_int(row.value))
            count_text = (
                f" ({format_count(len(kernels), 'kernel')}, the first {_format_long_kernel_name(kernels[0])})"
                if kernels
                else ""
            )
            yield row, f"{'no kernel any more' if row.value is None else 'no kernel before'}{count_text}"
        else:
            yield row, describe_first_difference(baseline.get(_as_int(row.baseline)), current[_as_int(row.value)])


def _format_long_kernel_name(name: Label) -> str:
    """Return a kernel's name as a row has it, or both ends of a long name, as kernels of one template differ at the
    ends.
    """
    return shorten_middle(sanitize_line(str(name), STABLE_NAME_LENGTH), 80)


def _as_int(value: Value | None) -> int:
    assert isinstance(value, int)  # a fingerprint, which is never a fraction
    return value


def _describe_kernel_counts(red_rows: Sequence[JudgedRow], unit: str) -> Iterator[str]:
    """Yield the change of each kernel, summed over all rows."""
    for kernel, rows in group_by_key((row.labels["kernel"], row) for row in red_rows).items():
        baseline_total, current_total = (
            sum(Fraction(row.baseline or 0) for row in rows),
            sum(Fraction(row.value or 0) for row in rows),
        )
        change_word = "new" if not baseline_total else "vanished" if not current_total else "changed"
        change_text = (
            f"{baseline_total} → {current_total} launches"
            if unit == COUNT
            else f"{format_percent(baseline_total)} → {format_percent(current_total)} of the time"
        )
        place_text = f" ({_format_row_places(rows)})" if len(rows[0].labels) > 1 else ""
        yield f"{change_word}: {_format_long_kernel_name(kernel)}, {change_text}{place_text}"


def _describe_part_changes(
    red_rows: Sequence[JudgedRow], current: MetricTable, baseline: MetricTable | None
) -> Iterator[tuple[JudgedRow, str]]:
    """Yield each row with its parts: the change of each part, or the present number if the baseline's is unknown."""
    sides = [dict(table.rows) if table is not None else {} for table in (baseline, current)]
    for row in red_rows:
        row_labels = tuple(row.labels.values())
        baseline_parts, current_parts = (
            {key[-1]: value for key, value in side.items() if key[:-1] == row_labels} for side in sides
        )
        names = sorted({*baseline_parts, *current_parts}, key=make_label_key)
        changes = [(name, Fraction(current_parts.get(name, 0)) - baseline_parts.get(name, 0)) for name in names]
        changes = sorted((item for item in changes if item[1]), key=lambda item: -abs(item[1]))
        more_text = f" and {len(changes) - SHOWN_PARTS} more" if len(changes) > SHOWN_PARTS else ""
        if changes:
            is_signed = baseline is not None
            parts_text = ", ".join(
                _format_part_change(name, change, is_signed=is_signed) for name, change in changes[:SHOWN_PARTS]
            )
            yield row, ("" if is_signed else "now ") + parts_text + more_text


def _format_part_change(name: Label, change: Fraction, *, is_signed: bool) -> str:
    sign = ("+" if change > 0 else "−") if is_signed else ""
    return f"{sign}{abs(change)} {_format_long_kernel_name(name)}"


def _format_row_places(rows: Sequence[JudgedRow]) -> str:
    """Return the places of rows in words, dimension by dimension; without the kernel, which the line names."""
    dimensions = [d for d in rows[0].labels if d != "kernel"]
    texts = []
    for dimension in dimensions:
        # A line names six labels of a dimension, and counts the rest.
        labels = sorted({row.labels[dimension] for row in rows}, key=make_label_key)
        more_text = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
        texts.append(f"{dimension} {', '.join(sanitize_line(str(label), 60) for label in labels[:6])}{more_text}")
    return " ".join(texts)


def _has_same_barriers(stream: SharedStream, baseline: Breakdown) -> bool:
    """Whether as many kernels of the stream's communication were barriers in the baseline."""
    barriers = Counter[str]()
    for part in baseline.rows:
        # A barrier is communication in order with compute of its own stream.
        barriers[part.name] += part.number if part.is_barrier else 0
    return all(barriers[name] >= count for name, count in stream.communication.items())


def _describe_shared_stream(stream: SharedStream) -> str:
    compute_kernels = sorted(stream.compute.items(), key=lambda item: (-item[1][1], item[0]))
    kernel_texts = [
        f"{_format_long_kernel_name(name)} ({format_count(n, 'kernel')}, {format_value(ns, 'ns')})"
        for name, (n, ns) in compute_kernels
    ]
    more_texts = [f"{len(kernel_texts) - SHOWN_KERNELS} more"] if len(kernel_texts) > SHOWN_KERNELS else []
    subject = (
        f"{', '.join([*kernel_texts[:SHOWN_KERNELS], *more_texts])} {'makes' if len(kernel_texts) == 1 else 'make'} "
        "it a compute stream"
    )
    kernel_count = sum(stream.communication.values())
    return (
        f"stream {stream.label}: {subject}, so {format_count(kernel_count, 'communication kernel')} on it count as "
        "barriers"
    )


def describe_first_difference(baseline: Sequence[str] | None, current: Sequence[str]) -> str:
    """Return where two sequences part: the place, counted from 1, the name before and the name now."""
    if baseline is None:
        return "its order before was not kept"
    position = next(i for i, (a, b) in enumerate(zip_longest(baseline, current)) if a != b)
    length_text = f"of {len(baseline)}, now {len(current)}" if len(baseline) != len(current) else f"of {len(current)}"
    return (
        f"kernel {position + 1} {length_text}: {_format_kernel_at(baseline, position)} before, "
        f"{_format_kernel_at(current, position)} now"
        f"{_describe_edit(baseline, current, position)}"
    )


def _format_kernel_at(sequence: Sequence[str], position: int) -> str:
    return _format_long_kernel_name(sequence[position]) if position < len(sequence) else "nothing"


def _describe_edit(baseline: Sequence[str], current: Sequence[str], position: int) -> str:
    """Describe whether a kernel was inserted, removed or replaced, as the next kernels show; empty if unclear."""
    baseline_next, current_next = (
        baseline[position : position + _LOOKAHEAD_KERNELS],
        current[position : position + _LOOKAHEAD_KERNELS],
    )
    if not baseline_next or not current_next:
        return ""
    if _is_same_continuation(baseline_next, current_next[1:]):
        return " (put in)"
    if _is_same_continuation(baseline_next[1:], current_next):
        return " (left out)"
    return " (in its place)" if _is_same_continuation(baseline_next[1:], current_next[1:]) else ""


def _is_same_continuation(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether both sequences begin with the same two or more kernels, or are equal to the end."""
    shared_length = min(len(a), len(b))
    # One equal kernel may be chance, unless it is the last of both.
    return a[:shared_length] == b[:shared_length] and (shared_length > 1 or len(a) == len(b) == 1)
