"""How is a verdict put into words: its rows and limits, their table, why it is bad, what to do next?

A terminal, the job summary and the page show the same table of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from pytest_nsys.analysis.explain.breakdown_model import RowExplanation
from pytest_nsys.analysis.metrics.registry import OF_STEP_SUFFIX
from pytest_nsys.analysis.windows.window_selection import UsedWindow, choose_window_noun
from pytest_nsys.core.exact import distance, simplify_fraction
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import NextStep, Note
from pytest_nsys.core.numbers import (
    MINUS,
    Scale,
    choose_scale,
    format_change,
    format_distance,
    format_distinctly,
    format_in_one_unit,
    format_range,
    format_value,
)
from pytest_nsys.core.text_format import format_count, format_labels, format_rank_ranges, limit_lines, sanitize_line
from pytest_nsys.core.units import BARE, HASH, TIME, format_tolerance
from pytest_nsys.gates.judgement import HALFWAY, MOST_EXCUSED_TOLERANCES
from pytest_nsys.gates.model import (
    OUTSIDE_LIMIT,
    Assertion,
    BaselineLimit,
    Comparator,
    ConstantByModel,
    JudgedLabels,
    JudgedRow,
    Outcome,
    Verdict,
)
from pytest_nsys.reports.tables.formats import (
    CellKind,
    Column,
    ColumnFormatter,
    Table,
    build_table,
    build_text_table,
    make_number_column,
)
from pytest_nsys.reports.words.alike_rows import group_alike_rows
from pytest_nsys.reports.words.cause_text import group_by_cause, render_cause_lines

NO_VALUE = "—"
SHOWN_ROWS = 10
SHOWN_WORST_ROWS = 3
"""At most this many rows of an assertion are shown; others are folded."""

SHOWN_DETAILS = 4
SHOWN_WINDOWS = 4
NOTE_PREFIX = "note:   "
ANY_CHANGE = "any change"
ACCEPT_PURPOSE = "accept this run"
"""What the command that refreshes a baseline is for."""

BAD_OUTCOMES = (Outcome.FAILED, Outcome.NO_DATA, Outcome.INCOMPARABLE, Outcome.ERROR)


def select_rows_to_show(verdict: Verdict) -> list[JudgedRow]:
    """Return the rows outside their limits, worst first; if there are none, the accepted rows, else the inconclusive
    ones, else the improved ones.
    """
    for outcomes in (BAD_OUTCOMES, (Outcome.ACCEPTED,), (Outcome.INCONCLUSIVE,), (Outcome.IMPROVED,)):
        if rows := [row for row in verdict.rows if row.outcome in outcomes and not row.waived]:
            return rows
    return []


def find_worst_rank(verdict: Verdict) -> int | None:
    """Return the rank of the worst row outside its limit; None if the row has no single rank."""
    worst_row = next(iter(select_rows_to_show(verdict)), None)
    labels = {**worst_row.origin, **worst_row.labels} if worst_row is not None else {}
    if worst_row is not None and not labels and verdict.causes:  # a step time: the rank that explains it
        labels = {**verdict.causes[0].labels}
    rank = labels.get("rank")
    return rank if isinstance(rank, int) else None


def find_origin(row: JudgedRow, verdict: Verdict) -> JudgedLabels:
    """Return the labels of the row from which an aggregate took its value; for a step time, the rank that explains
    it.
    """
    explained_labels = verdict.causes[0].labels if verdict.causes and not row.labels else {}
    return row.origin or {dimension: label for dimension, label in explained_labels.items() if dimension == "rank"}


def format_row_place(row: JudgedRow, verdict: Verdict | None = None) -> str:
    """Return the place of a row, ``stage stage2_f``, and the origin of its value, ``(rank 3)``."""
    origin = row.origin if verdict is None else find_origin(row, verdict)
    place_text, origin_text = (format_labels(labels) for labels in (row.labels, origin))
    return sanitize_line(f"{place_text} ({origin_text})".lstrip() if origin_text else place_text)


SCOPE_TIME_WORDS = {"scope_ns": "time", "compute_ns": "compute", "exposed_ns": "exposed"}
"""What a sentence calls each time of a part of the program."""


def format_subject(assertion: Assertion) -> str:
    """Return the judged quantity: ``median overlap``, ``balance of compute_ns across pp``."""
    metric, scope = assertion.metric.removesuffix(OF_STEP_SUFFIX), assertion.measured_metric.program_scope
    if scope is not None:
        metric = f"{SCOPE_TIME_WORDS[metric.partition(' ')[0]]} of {scope}"
    if assertion.balance_across is not None:
        return f"balance of {assertion.metric} across {assertion.balance_across}"
    return " ".join([*(step.word for step in reversed(assertion.aggregates)), metric])


def describe_limit_source(assertion: Assertion, unit: str, row: JudgedRow | None = None) -> str:
    """Return the source of a limit: ``baseline + max(5%, 50us)``, or ``on H100`` for a constant of one GPU model; else
    empty.

    Where the noise of ``row`` is more than its tolerance, the limit comes from the noise, up to twice the tolerance.
    """
    limit = assertion.requirement.limit
    if isinstance(limit, ConstantByModel) and row is not None and row.limit is not None:
        return f"on {limit.find_model(row.labels)}"
    if not isinstance(limit, BaselineLimit):
        return ""
    comparator = assertion.requirement.comparator or Comparator.EQ
    tolerance = limit.tolerance
    if limit.is_claim and tolerance is not None:
        amount = format_tolerance(tolerance.relative, tolerance.absolute.get(unit), unit)
        return f"{limit.source} {'+' if assertion.requirement.worse_direction < 0 else MINUS} {amount}"
    sign = {Comparator.LE: "+", Comparator.GE: MINUS}.get(comparator, "±")
    if tolerance is None or assertion.requirement.comparator is Comparator.EQ:
        return limit.source
    amount = format_tolerance(tolerance.relative, tolerance.absolute.get(unit), unit)
    # Noise can raise the limit to at most twice the tolerance; beyond that, the source is not the noise.
    if (
        not tolerance.noise_only
        and row is not None
        and (row.noise or 0) > MOST_EXCUSED_TOLERANCES * (row.tolerance or 0)
    ):
        return f"{limit.source} {sign} {MOST_EXCUSED_TOLERANCES} × {amount}"
    if tolerance.noise_only or (row is not None and row.noise is not None and row.noise > (row.tolerance or 0)):
        return f"{limit.source} {sign} measured noise"
    return f"{limit.source} {sign} {amount}"


def format_baseline_change(row: JudgedRow, unit: str) -> str:
    """Return by how much a row differs from its baseline."""
    return format_change(row.value, row.baseline, unit)


def format_value_and_limit(row: JudgedRow, unit: str, scale: Scale | None = None) -> tuple[str, str]:
    """Return value and limit as texts with enough digits to differ; shares of a step are followed by their times."""
    if row.value is not None and row.limit is not None:
        # A constant limit is shown as written in the gate file; one from a baseline is computed, so rounded.
        texts = format_distinctly(row.value, row.limit, unit, scale, second_as_written=row.baseline is None)
        if row.step_ns is None:
            return texts
        value_ns, limit_ns = (simplify_fraction(Fraction(share) * row.step_ns) for share in (row.value, row.limit))
        times = format_distinctly(value_ns, limit_ns, TIME)
        value, limit = (f"{text} ({time})" for text, time in zip(texts, times, strict=True))
        return value, limit
    value = "gone" if row.value is None else format_value(row.value, unit, scale=scale)
    return value, "—" if row.limit is None else format_value(row.limit, unit, scale=scale)


def describe_one_sided_row(row: JudgedRow, verdict: Verdict) -> str:
    """Return that only one side has the row: ``stage2_w is gone: was 2``; empty if both have it.

    For a kernel, the value is its share of the time.
    """
    is_share_of_kernels = verdict.assertion.measured_metric.name == "kernel_share"
    name = str(row.labels["kernel"]) if is_share_of_kernels and "kernel" in row.labels else format_row_place(row)
    unit_text = " of the time" if is_share_of_kernels else ""
    if row.value is None or (is_share_of_kernels and not row.value and row.baseline):
        baseline_text = (
            f": was {format_value(row.baseline, verdict.unit)}{unit_text}" if row.baseline is not None else ""
        )
        return sanitize_line(f"{name} is gone{baseline_text}".lstrip())
    if is_share_of_kernels and not row.baseline:
        return sanitize_line(f"{name} is new: {format_value(row.value, verdict.unit)}{unit_text}")
    return ""


def format_limit(assertion: Assertion, limit: str) -> str:
    """Return a limit with its comparator: ``>= 60.0%``."""
    comparator = assertion.requirement.comparator
    return f"{comparator} {limit}" if comparator is not None else f"within {limit}"


def format_row_limit(row: JudgedRow, unit: str, scale: Scale | None = None, *, is_two_sided: bool) -> str:
    """Return the limit of a row. If it is limited in both directions, return the range ``9–11 ms``, unless the value is
    rounded to one of its bounds.
    """
    value, limit = format_value_and_limit(row, unit, scale)
    if not is_two_sided or row.baseline is None or row.allowed_change is None or unit == HASH:
        return limit
    low, high = (simplify_fraction(Fraction(row.baseline) + sign * row.allowed_change) for sign in (-1, 1))
    scale = scale or choose_scale([low, high], unit)
    # If a value outside is rounded to a bound, it would seem to be in the range.
    reads_as_one = value in (format_value(end, unit, scale=scale) for end in (low, high))
    return limit if reads_as_one else format_range(low, high, unit, scale)


def describe_row_limit(assertion: Assertion, unit: str, row: JudgedRow) -> str:
    """Return all requirements on a row: its limit with comparator and source, and the rule of a pipeline."""
    if row.limit is None:
        return ""
    source = describe_limit_source(assertion, unit, row)
    limit_text = format_limit(
        assertion, format_row_limit(row, unit, is_two_sided=assertion.requirement.comparator is None)
    )
    return (f"{limit_text} ({source})" if source else limit_text) + format_serialization_rule(row)


def format_serialization_rule(row: JudgedRow) -> str:
    """Return what the rule of a pipeline adds to a limit; empty without such a rule."""
    return "; serialization {}, {}".format(*list_serialization_cells(row)) if row.serialization is not None else ""


def list_serialization_cells(row: JudgedRow) -> list[str]:
    """Return the serialization of a pipeline and its limit, as two cells."""
    if row.serialization is None:
        return ["—", "—"]
    current_text, limit = format_distinctly(row.serialization, HALFWAY, BARE)
    return [current_text, f"< {limit}"]


def format_ordinal(n: int) -> str:
    """Return a number as 1st, 2nd, 3rd, 4th, 11th."""
    suffix = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


ON_CPU = " on the CPU"
"""Follows the length of a range whose kernels are chosen by their launches: on the GPU they take another time."""


def _describe_windows(windows: Sequence[UsedWindow]) -> str:
    """Return the ordinal and the length of windows with the same name and place on several ranks."""
    first, lengths = windows[0], sorted({used.window.length_ns for used in windows})
    name, index, count = first.window.name, first.window.index, first.window.count or 0
    total = str(count)
    if first.kind is not None:
        total = f"{format_count(count, f'{first.kind} step')} (--window '{index} {first.kind}')"
    place_text = sanitize_line(name, 100) + (f", {format_ordinal(index + 1)} of {total}" if index is not None else "")
    low, high = format_in_one_unit([lengths[0], lengths[-1]])
    length = f", {low if low == high else f'{low} to {high}'}{ON_CPU * first.is_by_launch}"
    # If kernels are chosen by launches, a step of a kind waits on the CPU for the previous step's GPU work: its length
    # on the CPU says nothing.
    return place_text if first.kind is not None and first.is_by_launch else place_text + length


@lru_cache(maxsize=256)  # assertions of a gate file share their windows, on up to thousands of ranks
def list_window_lines(windows: tuple[UsedWindow, ...]) -> tuple[str, ...]:
    """Return the judged windows, a line for all with the same name and place: ranks, name, place, lengths."""
    groups = group_by_key(((used.window.name, used.window.index, used.window.count), used) for used in windows).values()
    return tuple(
        f"rank {format_rank_ranges(sorted({used.rank for used in group}))}: {_describe_windows(group)}"
        for group in groups
    )


_OPPOSITE_SIGNS = {
    Comparator.GE: "<",
    Comparator.GT: "<=",
    Comparator.LE: ">",
    Comparator.LT: ">=",
    Comparator.EQ: "!=",
}
"""The sign between a value and the limit that it breaks, by the limit's comparator."""


def describe_reason(verdict: Verdict) -> str:
    """Return why a verdict is bad in a few words: ``34.7% < 60%, rank 3 stage3_b``."""
    row = next(iter(select_rows_to_show(verdict)), None)
    if verdict.assertion.is_claim and verdict.outcome is Outcome.FAILED:
        return sanitize_line(verdict.message, 200)
    if verdict.outcome not in OUTSIDE_LIMIT or row is None or row.value is None or row.limit is None:
        return f"{verdict.outcome}: {sanitize_line(verdict.message, 200)}"
    place_text = format_row_place(row, verdict)
    acceptance = "; accepted on this branch" if verdict.outcome is Outcome.ACCEPTED else ""
    return format_crossed_limit(row, verdict) + (f", {place_text}" if place_text else "") + acceptance


def format_crossed_limit(row: JudgedRow, verdict: Verdict) -> str:
    """Return how a failed row compares to its limit: ``34.7% < 60%``; empty without a limit."""
    if row.value is None or row.limit is None:
        return ""
    value, limit = format_value_and_limit(row, verdict.unit)
    comparator, two_sided_sign = verdict.assertion.requirement.comparator, ">" if row.value > row.limit else "<"
    return f"{value} {_OPPOSITE_SIGNS.get(comparator, '==') if comparator is not None else two_sided_sign} {limit}"


def list_judged_windows(verdict: Verdict, *, verbose: bool = True) -> tuple[str, ...]:
    """Return lines on the window that explains the worst row, on the row's rank if it has one; else on all windows."""
    rank, explaining_window = find_worst_rank(verdict), verdict.examined_window
    windows, measured_as = (
        (explaining_window.windows, str(explaining_window.spec))
        if explaining_window is not None
        else (verdict.windows, verdict.measured_as)
    )
    rank_windows = [used for used in windows if used.rank == rank]
    if len(rank_windows) == 1:
        baseline_text = _describe_other_window(rank_windows[0], verdict)
        measured_text = f" ({measured_as})" if verbose else ""
        return (f"rank {rank}, {_describe_windows(rank_windows)}{measured_text}{baseline_text}",)
    lines = list_window_lines(tuple(rank_windows) or windows)
    return (measured_as, *limit_lines(lines, SHOWN_WINDOWS)) if lines else ()


def _describe_other_window(used: UsedWindow, verdict: Verdict) -> str:
    """Return which window of the run before a window was compared with, if that is another one, and whether both did
    the same work; else empty.
    """
    examined = verdict.examined_baseline
    baseline_windows = [other for other in examined.windows if other.rank == used.rank] if examined is not None else []
    unlike_counts = verdict.step.unlike_counts if verdict.step is not None else None
    is_same = all(other.window.index == used.window.index for other in baseline_windows)
    # Which of many alike steps was compared does not matter.
    if len(baseline_windows) != 1 or (unlike_counts is None and (is_same or choose_window_noun([used]) == "step")):
        return ""
    other_work = "" if unlike_counts is None else " of other work"
    return f"; compared with one{other_work}: {_describe_windows(baseline_windows)}"


def format_margin(row: JudgedRow, verdict: Verdict) -> str:
    """Return how far a value may still change: for a ratio in percentage points, else in the metric's unit.

    Empty if it may not change at all, because a margin of 0 would look like a gate that is about to fail. Empty for a
    waived row, which has a ceiling.
    """
    if row.margin is None or row.waived or verdict.assertion.requirement.comparator in (Comparator.EQ, Comparator.NE):
        return ""
    return format_distance(row.margin, verdict.unit)


def format_waiver_ceiling(row: JudgedRow, verdict: Verdict) -> str:
    """Return the ceiling of a waived row, and the distance from it; empty if the row is not waived."""
    if row.ceiling is None or row.value is None:
        return ""
    room = format_distance(distance(row.ceiling, row.value), verdict.unit)
    return f"{format_value(row.ceiling, verdict.unit)}, {room} left"


def format_smallest_change(row: JudgedRow, verdict: Verdict) -> str:
    """Return the smallest change of a row that the gate can detect, and what determines it; empty for a constant
    limit.
    """
    limit = verdict.assertion.requirement.limit
    if not isinstance(limit, BaselineLimit) or row.visible_change is None:
        return ""
    if limit.tolerance is None:
        return ANY_CHANGE
    change_text = format_distance(row.visible_change, verdict.unit)
    source = sanitize_line(row.test, 100) or ("noise not measured" if row.noise is None else "")
    return f"{change_text} ({source})" if source else change_text


def render_explanation(verdict: Verdict, next_steps: Sequence[NextStep], *, verbose: bool = False) -> list[str]:
    """Return the lines below the sentence of a bad verdict, for a terminal: every row if ``verbose``, else the worst
    few.
    """
    lines = [f"  {verdict.outcome}: {verdict.message}"]
    notable_rows = select_rows_to_show(verdict)
    rows_table, same_text = (
        (build_row_table(verdict, notable_rows, len(notable_rows)), "")
        if verbose
        else fold_alike_rows(verdict, notable_rows)
    )
    is_said_above = bool(same_text) and len(rows_table.rows) == 1 and _have_all_failed(verdict)
    lines[0] += f", all alike{_format_all_ranks(verdict)}" if is_said_above else ""
    for table in (rows_table, build_difference_table(verdict, 100)):
        lines += [f"  {line}" for line in table.render_lines("… {} more")] if table.rows else []
        lines += [f"  {same_text}"] if same_text and table is rows_table and not is_said_above else []
    causes: Sequence[RowExplanation] = verdict.causes
    if same_text and not verbose:  # one row stands for all with its cause
        causes = [first_row for first_row, *_ in group_by_cause(causes)]
    lines += render_reasons(verdict, causes, verbose=verbose)
    lines += _render_block(
        "window:", () if verdict.outcome is Outcome.PASSED else list_judged_windows(verdict, verbose=verbose)
    )
    notes = [*(Note(text, True) for text in verdict.warnings), *verdict.notes]
    lines += [f"  {'' if note.warning else NOTE_PREFIX}{note.sanitize(400)}" for note in notes]
    return lines + _render_block("next:", next_steps)


def _have_all_failed(verdict: Verdict) -> bool:
    return all(row.outcome is Outcome.FAILED for row in verdict.rows)


def _format_all_ranks(verdict: Verdict) -> str:
    """Return the ranks of all rows in parentheses: ``(ranks 0–63)``; empty if rows have none."""
    ranks = sorted({rank for row in verdict.rows if isinstance(rank := row.labels.get("rank"), int)})
    return f" (ranks {sanitize_line(format_rank_ranges(ranks), 40)})" if ranks else ""


def fold_alike_rows(verdict: Verdict, rows: Sequence[JudgedRow]) -> tuple[Table, str]:
    """Return the table of the worst few of ``rows``, and the ranks on which they are the same: ``the same on ranks
    1–63``.

    The text is empty if no other rank is alike.
    """
    groups = group_alike_rows(rows)
    shown_groups, other_groups = groups[:SHOWN_WORST_ROWS], groups[SHOWN_WORST_ROWS:]
    table = build_row_table(verdict, [worst for worst, _ in shown_groups], SHOWN_WORST_ROWS)
    ranks_by_place = {
        sanitize_line(
            format_labels({dimension: label for dimension, label in worst.labels.items() if dimension != "rank"}), 40
        ): _format_on_ranks(ranks)
        for worst, ranks in shown_groups
        if ranks
    }
    is_same_everywhere = len(ranks_by_place) == len(shown_groups) and len({*ranks_by_place.values()}) == 1
    ranks_text = "; ".join(
        [*ranks_by_place.values()][:1]
        if is_same_everywhere
        else (f"{place} {on_ranks}".strip() for place, on_ranks in ranks_by_place.items())
    )
    omitted_count = sum(1 + len(ranks) for _, ranks in other_groups)
    return replace(
        table, omitted_count=omitted_count
    ), f"the same{':' if ranks_by_place and not is_same_everywhere else ''} {ranks_text}" if ranks_by_place else ""


def _format_on_ranks(ranks: Sequence[int]) -> str:
    return f"on {'rank' if len(ranks) == 1 else 'ranks'} {sanitize_line(format_rank_ranges(ranks), 40)}"


def render_reasons(verdict: Verdict, causes: Sequence[RowExplanation], *, verbose: bool = False) -> list[str]:
    """Return lines on what changed in the trace, and on the causes of the rows that ``causes`` explain."""
    max_details = len(verdict.details) if verbose else SHOWN_DETAILS
    details = limit_lines(
        [sanitize_line(line, 1000) for line in verdict.details],
        max_details,
        "… {} more (all of them in the JSON report)",
    )
    return [*_render_block("change:", details), *_render_block("why:", render_cause_lines(causes, verbose=verbose))]


def _render_block(title: str, lines: Iterable[object]) -> list[str]:
    """Return lines below each other; the first follows the title."""
    return [f"  {'' if number else title:<7} {line}" for number, line in enumerate(lines)]


def build_difference_table(verdict: Verdict, max_length: int) -> Table:
    """Return a table of the differences that make the runs incomparable."""
    columns = [Column(name, CellKind.NAME) for name in ("differs", "now", "baseline")]
    return build_text_table("", columns, verdict.differences, max_length=max_length)


def build_row_table(verdict: Verdict, rows: Sequence[JudgedRow], limit: int, *, with_headroom: bool = False) -> Table:
    """Return a table of the first ``limit`` of ``rows``: place, value, and limit with source.

    If there is a baseline, it and the change stand before the limit. After the limit follow the headroom if
    ``with_headroom``, the result of a test between two sets of captures, and the rule of a pipeline.
    """
    unit, assertion = verdict.unit, verdict.assertion
    comparator = assertion.requirement.comparator or ""
    scale = choose_scale([value for row in rows[:limit] for value in (row.value, row.baseline, row.limit)], unit)

    def format_limit_cell(row: JudgedRow) -> str:
        if row.limit is None:
            return NO_VALUE
        source = describe_limit_source(assertion, unit, row)
        limit_text = format_row_limit(row, unit, scale, is_two_sided=not comparator)
        return f"{comparator} {limit_text} {f'({source})' if source else ''}".strip()

    def format_baseline_cell(row: JudgedRow) -> str:
        return NO_VALUE if row.baseline is None else format_value(row.baseline, unit, scale=scale)

    columns: list[ColumnFormatter[JudgedRow]] = [
        *build_label_columns([row.labels for row in rows], lambda row: row.labels),
        *build_label_columns(
            [find_origin(row, verdict) for row in rows], lambda row: find_origin(row, verdict), "({})"
        ),
        (make_number_column("now"), lambda row: format_value_and_limit(row, unit, scale)[0]),
    ]
    if rows and assertion.needs_baseline:
        columns += [
            (make_number_column("baseline"), format_baseline_cell),
            (make_number_column("change"), lambda row: format_baseline_change(row, unit)),
        ]
    columns.append(("limit", format_limit_cell))
    if with_headroom:
        columns.append((make_number_column("headroom"), lambda row: _format_headroom(row, unit)))
    if any(row.test for row in rows):
        columns.append(("test", lambda row: row.test))
    if any(row.serialization is not None for row in rows):
        columns.append(("serialization", lambda row: list_serialization_cells(row)[0]))
        columns.append(("limit", lambda row: list_serialization_cells(row)[1]))
    return build_table("", columns, rows, limit)


def build_label_columns(
    labels: Iterable[Mapping[str, Any]], read_labels: Callable[[Any], Mapping[str, Any]], title_format: str = "{}"
) -> list[ColumnFormatter[Any]]:
    """Return a column for each dimension of these labels, in the metric's order."""

    def make_cell_formatter(dimension: str) -> Callable[[Any], str]:
        return lambda row: str(read_labels(row).get(dimension, ""))

    dimensions = dict.fromkeys(dimension for row_labels in labels for dimension in row_labels)
    return [
        (Column(title_format.format(dimension), CellKind.LABEL), make_cell_formatter(dimension))
        for dimension in dimensions
    ]


def _format_headroom(row: JudgedRow, unit: str) -> str:
    """Return the distance to the limit, negative if it is crossed; for a waived row, the distance to its ceiling."""
    if row.waived and row.value is not None and row.ceiling is not None:
        return f"{format_distance(distance(row.ceiling, row.value), unit)} to its ceiling"
    return NO_VALUE if row.margin is None else format_distance(row.margin, unit)
