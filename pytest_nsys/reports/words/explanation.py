"""How does a verdict read: its rows and limits in words, the table of them, why it is bad, what to do next?

A terminal, the job summary and the page show the same table of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from pytest_nsys.analysis.explain.parts import Explained
from pytest_nsys.analysis.metrics.registry import OF_STEP
from pytest_nsys.analysis.windows.spans import UsedWindow
from pytest_nsys.core.exact import distance, exact
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Note, Step
from pytest_nsys.core.numbers import (
    MINUS,
    Scale,
    change_words,
    distance_words,
    format_apart,
    format_range,
    format_together,
    format_value,
    scale_of,
)
from pytest_nsys.core.units import BARE, HASH, TIME, format_tolerance
from pytest_nsys.core.words import counted, first_of, place_words, printable, rank_ranges
from pytest_nsys.gates.judgement import HALFWAY, MOST_EXCUSED
from pytest_nsys.gates.model import (
    WORSE,
    Assertion,
    ByModel,
    Comparator,
    FromBaseline,
    JudgedRow,
    Labels,
    Outcome,
    Verdict,
)
from pytest_nsys.reports.tables.formats import CellKind, Column, Table, Told, number, table_by, table_of
from pytest_nsys.reports.words.alike_rows import group_alike
from pytest_nsys.reports.words.causes import by_cause, cause_lines

NO_VALUE = "—"
SHOWN_ROWS = 10
WORST_ROWS = 3
"""So many rows of an assertion are shown where others are folded."""

SHOWN_DETAILS = 4
SHOWN_WINDOWS = 4
NOTE = "note:   "
ANY_CHANGE = "any change"
ACCEPT = "accept this run as the new normal"
"""What the command that refreshes a baseline is for."""

BAD = (Outcome.FAILED, Outcome.NO_DATA, Outcome.INCOMPARABLE, Outcome.ERROR)


def rows_to_show(verdict: Verdict) -> list[JudgedRow]:
    """Return the rows that do not hold, worst first; where all hold, those accepted, else those unclear, else those
    improved.
    """
    for outcomes in (BAD, (Outcome.ACCEPTED,), (Outcome.INCONCLUSIVE,), (Outcome.IMPROVED,)):
        if rows := [row for row in verdict.rows if row.outcome in outcomes and not row.waived]:
            return rows
    return []


def worst_rank(verdict: Verdict) -> int | None:
    """Return the rank of the worst row that does not hold; None where it is of no single rank."""
    worst_row = next(iter(rows_to_show(verdict)), None)
    labels = {**worst_row.origin, **worst_row.labels} if worst_row is not None else {}
    if worst_row is not None and not labels and verdict.causes:  # a step time is that of the rank that explains it
        labels = {**verdict.causes[0].labels}
    rank = labels.get("rank")
    return rank if isinstance(rank, int) else None


def origin_of(row: JudgedRow, verdict: Verdict) -> Labels:
    """Return the labels of the row that an aggregate took its value from; of a step time the rank that explains it."""
    explained_labels = verdict.causes[0].labels if verdict.causes and not row.labels else {}
    return row.origin or {dimension: label for dimension, label in explained_labels.items() if dimension == "rank"}


def place(row: JudgedRow, verdict: Verdict | None = None) -> str:
    """Return where a row is, ``stage stage2_f``, and where its value is from, ``(rank 3)``."""
    origin = row.origin if verdict is None else origin_of(row, verdict)
    place_text, origin_text = (place_words(labels) for labels in (row.labels, origin))
    return printable(f"{place_text} ({origin_text})".lstrip() if origin_text else place_text)


def subject(assertion: Assertion) -> str:
    """Return what of the metric is judged: ``median overlap``, ``balance of compute_ns across pp``."""
    metric = assertion.metric.removesuffix(OF_STEP)
    if assertion.balance_across is not None:
        return f"balance of {assertion.metric} across {assertion.balance_across}"
    return " ".join([*(step.word for step in reversed(assertion.aggregates)), metric])


def limit_source(assertion: Assertion, unit: str, row: JudgedRow | None = None) -> str:
    """Return where a limit comes from: ``baseline + max(5%, 50us)``; ``on H100`` of a constant of a GPU model; else
    empty.

    Where the noise of ``row`` is more than its tolerance, the limit comes from the noise, up to twice the tolerance.
    """
    limit = assertion.require.limit
    if isinstance(limit, ByModel) and row is not None and row.limit is not None:
        return f"on {limit.word_for(row.labels)}"
    if not isinstance(limit, FromBaseline):
        return ""
    sign = {Comparator.LE: "+", Comparator.GE: MINUS}.get(assertion.require.comparator or Comparator.EQ, "±")
    tolerance = limit.tolerance
    if tolerance is None or assertion.require.comparator is Comparator.EQ:
        return limit.source
    amount = format_tolerance(tolerance.relative, tolerance.absolute.get(unit), unit)
    if not tolerance.noise and row is not None and (row.noise or 0) > MOST_EXCUSED * (row.tolerance or 0):
        return f"{limit.source} {sign} {MOST_EXCUSED} × {amount}"
    if tolerance.noise or (row is not None and row.noise is not None and row.noise > (row.tolerance or 0)):
        return f"{limit.source} {sign} measured noise"
    return f"{limit.source} {sign} {amount}"


def change(row: JudgedRow, unit: str) -> str:
    """Return by how much a row differs from its baseline."""
    return change_words(row.value, row.baseline, unit)


def apart(row: JudgedRow, unit: str, scale: Scale | None = None) -> tuple[str, str]:
    """Return value and limit with as many digits as tell them apart; shares of a step have their times behind them."""
    if row.value is not None and row.limit is not None:
        texts = format_apart(row.value, row.limit, unit, scale, written=row.baseline is None)
        if row.step_ns is None:
            return texts
        value_ns, limit_ns = (exact(Fraction(share) * row.step_ns) for share in (row.value, row.limit))
        times = format_apart(value_ns, limit_ns, TIME)
        value, limit = (f"{text} ({time})" for text, time in zip(texts, times, strict=True))
        return value, limit
    value = "gone" if row.value is None else format_value(row.value, unit, scale=scale)
    return value, "—" if row.limit is None else format_value(row.limit, unit, scale=scale)


def came_or_went(row: JudgedRow, verdict: Verdict) -> str:
    """Return what a row is that one side alone has: ``stage2_w is gone: was 2``; empty where both have it.

    A kernel that came or went has its share of the time.
    """
    is_share_of_kernels = verdict.assertion.measures.name == "kernel_share"
    name = str(row.labels["kernel"]) if is_share_of_kernels and "kernel" in row.labels else place(row)
    unit_text = " of the time" if is_share_of_kernels else ""
    if row.value is None or (is_share_of_kernels and not row.value and row.baseline):
        baseline_text = (
            f": was {format_value(row.baseline, verdict.unit)}{unit_text}" if row.baseline is not None else ""
        )
        return printable(f"{name} is gone{baseline_text}".lstrip())
    if is_share_of_kernels and not row.baseline:
        return printable(f"{name} is new: {format_value(row.value, verdict.unit)}{unit_text}")
    return ""


def limit_words(assertion: Assertion, limit: str) -> str:
    """Return a limit with its comparator: ``>= 60.0%``."""
    comparator = assertion.require.comparator
    return f"{comparator} {limit}" if comparator is not None else f"within {limit}"


def limit_of(row: JudgedRow, unit: str, scale: Scale | None = None, *, two_sided: bool) -> str:
    """Return the limit of a row; where both sides are limited the range, ``9–11 ms``, unless the value reads as a
    bound.
    """
    value, limit = apart(row, unit, scale)
    if not two_sided or row.baseline is None or row.reach is None or unit == HASH:
        return limit
    low, high = (exact(Fraction(row.baseline) + sign * row.reach) for sign in (-1, 1))
    scale = scale or scale_of([low, high], unit)
    reads_as_one = value in (format_value(end, unit, scale=scale) for end in (low, high))
    return limit if reads_as_one else format_range(low, high, unit, scale)


def limit_cell(assertion: Assertion, unit: str, row: JudgedRow) -> str:
    """Return all that a row is held to: its limit with the comparator, where that comes from, and the rule of a
    pipeline.
    """
    if row.limit is None:
        return ""
    source = limit_source(assertion, unit, row)
    limit_text = limit_words(assertion, limit_of(row, unit, two_sided=assertion.require.comparator is None))
    return (f"{limit_text} ({source})" if source else limit_text) + rule_words(row)


def rule_words(row: JudgedRow) -> str:
    """Return what the rule of a pipeline adds to a limit; empty where there is none."""
    return "; serialization {}, {}".format(*serialization_cells(row)) if row.serialization is not None else ""


def serialization_cells(row: JudgedRow) -> list[str]:
    """Return the serialization of a pipeline and its limit, as two cells."""
    if row.serialization is None:
        return ["—", "—"]
    current_text, limit = format_apart(row.serialization, HALFWAY, BARE)
    return [current_text, f"< {limit}"]


def ordinal(n: int) -> str:
    """Return a number as 1st, 2nd, 3rd, 4th, 11th."""
    suffix = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


ON_CPU = " on the CPU"
"""Stands behind the length of a range whose kernels are chosen by their launches: they run for another time than it."""


def _place_and_length(alike: Sequence[UsedWindow]) -> str:
    """Return which of its kind a window is and how long, of windows of one name and place on several ranks."""
    first, lengths = alike[0], sorted({used.window.length_ns for used in alike})
    name, index, count = first.window.name, first.window.index, first.window.count or 0
    total = str(count)
    if first.kind is not None:
        total = f"{counted(count, f'{first.kind} step')} (--window '{index} {first.kind}')"
    place_text = printable(name, 100) + (f", {ordinal(index + 1)} of {total}" if index is not None else "")
    low, high = format_together([lengths[0], lengths[-1]])
    length = f", {low if low == high else f'{low} to {high}'}{ON_CPU * first.by_launch}"
    # A step of a kind whose kernels are chosen by launches waits on the CPU for the GPU of the step before: its length
    # there says nothing.
    return place_text if first.kind is not None and first.by_launch else place_text + length


@lru_cache(maxsize=256)  # assertions of one gate file share their windows, of up to thousands of ranks
def window_lines(windows: tuple[UsedWindow, ...]) -> tuple[str, ...]:
    """Return the windows that were judged, a line for those of one name and place: ranks, name, place, lengths."""
    groups = grouped(((used.window.name, used.window.index, used.window.count), used) for used in windows).values()
    return tuple(
        f"rank {rank_ranges(sorted({used.rank for used in group}))}: {_place_and_length(group)}" for group in groups
    )


_CROSSED = {Comparator.GE: "<", Comparator.GT: "<=", Comparator.LE: ">", Comparator.LT: ">=", Comparator.EQ: "!="}
"""The sign between a value and a limit that it does not hold, by the comparator."""


def reason_words(verdict: Verdict) -> str:
    """Return why a verdict is bad in a few words: ``34.7% < 60%, rank 3 stage3_b``."""
    row = next(iter(rows_to_show(verdict)), None)
    if verdict.outcome not in WORSE or row is None or row.value is None or row.limit is None:
        return f"{verdict.outcome}: {printable(verdict.message, 200)}"
    place_text = place(row, verdict)
    acceptance = "; accepted on this branch" if verdict.outcome is Outcome.ACCEPTED else ""
    return crossed_words(row, verdict) + (f", {place_text}" if place_text else "") + acceptance


def crossed_words(row: JudgedRow, verdict: Verdict) -> str:
    """Return how a row that failed stands to its limit: ``34.7% < 60%``; empty where it has no limit."""
    if row.value is None or row.limit is None:
        return ""
    value, limit = apart(row, verdict.unit)
    comparator, two_sided_sign = verdict.assertion.require.comparator, ">" if row.value > row.limit else "<"
    return f"{value} {_CROSSED.get(comparator, '==') if comparator is not None else two_sided_sign} {limit}"


def shown_windows(verdict: Verdict, *, verbose: bool = True) -> tuple[str, ...]:
    """Return lines on the window that explains the worst row, of its rank where it has one, else on all windows."""
    rank, explaining = worst_rank(verdict), verdict.looked_at
    windows, measured_as = (
        (explaining.windows, str(explaining.spec)) if explaining is not None else (verdict.windows, verdict.measured_as)
    )
    rank_windows = [used for used in windows if used.rank == rank]
    if len(rank_windows) == 1:
        return (f"rank {rank}, {_place_and_length(rank_windows)}" + (f" ({measured_as})" if verbose else ""),)
    lines = window_lines(tuple(rank_windows) or windows)
    return (measured_as, *first_of(lines, SHOWN_WINDOWS)) if lines else ()


def margin_words(row: JudgedRow, verdict: Verdict) -> str:
    """Return how far a value may still change, in percentage points of a ratio, else in the metric's unit.

    Empty where it may not change at all, for a margin of 0 would read as a gate that is about to fail; empty for a
    waived row, which has a ceiling.
    """
    if row.margin is None or row.waived or verdict.assertion.require.comparator in (Comparator.EQ, Comparator.NE):
        return ""
    return distance_words(row.margin, verdict.unit)


def ceiling_words(row: JudgedRow, verdict: Verdict) -> str:
    """Return how far a waived row may go, and what is left to there; empty where the row is not waived."""
    if row.ceiling is None or row.value is None:
        return ""
    room = distance_words(distance(row.ceiling, row.value), verdict.unit)
    return f"{format_value(row.ceiling, verdict.unit)}, {room} left"


def sees_words(row: JudgedRow, verdict: Verdict) -> str:
    """Return the smallest change that the gate can see in a row, and by what; empty for a constant limit."""
    limit = verdict.assertion.require.limit
    if not isinstance(limit, FromBaseline) or row.sees is None:
        return ""
    if limit.tolerance is None:
        return ANY_CHANGE
    change_text = distance_words(row.sees, verdict.unit)
    source = printable(row.test, 100) or ("noise not measured" if row.noise is None else "")
    return f"{change_text} ({source})" if source else change_text


def explanation(verdict: Verdict, next_steps: Sequence[Step], *, verbose: bool = False) -> list[str]:
    """Return the lines of a bad verdict below its sentence, for a terminal; every row if ``verbose``, else the worst
    few.
    """
    lines = [f"  {verdict.outcome}: {verdict.message}"]
    notable_rows = rows_to_show(verdict)
    rows_table, same_text = (
        (row_table(verdict, notable_rows, len(notable_rows)), "") if verbose else folded_table(verdict, notable_rows)
    )
    for table in (rows_table, difference_table(verdict, 100)):
        lines += [f"  {line}" for line in table.lines("… {} more")] if table.rows else []
        lines += [f"  {same_text}"] if same_text and table is rows_table else []
    causes: Sequence[Explained] = verdict.causes
    if same_text and not verbose:  # of the rows with one cause the first: below the table it says where it is the same
        causes = [first_row for first_row, *_ in by_cause(causes)]
    lines += reasons(verdict, causes, verbose=verbose)
    lines += _block("window:", () if verdict.outcome is Outcome.PASSED else shown_windows(verdict, verbose=verbose))
    notes = [*(Note(text, True) for text in verdict.warnings), *verdict.notes]
    lines += [f"  {'' if note.warning else NOTE}{note.printable(400)}" for note in notes]
    return lines + _block("next:", next_steps)


def folded_table(verdict: Verdict, rows: Sequence[JudgedRow]) -> tuple[Table, str]:
    """Return the table of the worst few of ``rows``, and the ranks on which they are the same: ``the same on ranks
    1–63``.

    The text is empty where no other rank is alike.
    """
    groups = group_alike(rows)
    shown_groups, other_groups = groups[:WORST_ROWS], groups[WORST_ROWS:]
    table = row_table(verdict, [worst for worst, _ in shown_groups], WORST_ROWS)
    ranks_by_place = {
        printable(
            place_words({dimension: label for dimension, label in worst.labels.items() if dimension != "rank"}), 40
        ): _ranks(ranks)
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
        table, more=omitted_count
    ), f"the same{':' if ranks_by_place and not is_same_everywhere else ''} {ranks_text}" if ranks_by_place else ""


def _ranks(ranks: Sequence[int]) -> str:
    return f"on {'rank' if len(ranks) == 1 else 'ranks'} {printable(rank_ranges(ranks), 40)}"


def reasons(verdict: Verdict, causes: Sequence[Explained], *, verbose: bool = False) -> list[str]:
    """Return lines on what changed behind the rows, and on the causes of those rows that ``causes`` explain."""
    max_details = len(verdict.details) if verbose else SHOWN_DETAILS
    details = first_of(
        [printable(line, 1000) for line in verdict.details], max_details, "… {} more (all of them in the JSON report)"
    )
    return [*_block("change:", details), *_block("why:", cause_lines(causes, verbose=verbose))]


def _block(title: str, lines: Iterable[object]) -> list[str]:
    """Return lines below each other, the first behind the title."""
    return [f"  {'' if number else title:<7} {line}" for number, line in enumerate(lines)]


def difference_table(verdict: Verdict, longest: int) -> Table:
    """Return a table of the circumstances that make the runs incomparable."""
    columns = [Column(name, CellKind.NAME) for name in ("differs", "now", "baseline")]
    return table_of("", columns, verdict.differences, longest=longest)


def row_table(verdict: Verdict, rows: Sequence[JudgedRow], limit: int, *, margins: bool = False) -> Table:
    """Return a table of the first ``limit`` of these ``rows``: where each is, its value, its limit with its source.

    Where something is stored, baseline and change stand before the limit. Behind it stand the headroom if
    ``with_headroom``, what a test says of two sets of captures, and the rule of a pipeline.
    """
    unit, assertion = verdict.unit, verdict.assertion
    comparator = assertion.require.comparator or ""
    scale = scale_of([value for row in rows[:limit] for value in (row.value, row.baseline, row.limit)], unit)

    def format_limit_cell(row: JudgedRow) -> str:
        if row.limit is None:
            return NO_VALUE
        source = limit_source(assertion, unit, row)
        limit_text = limit_of(row, unit, scale, two_sided=not comparator)
        return f"{comparator} {limit_text} {f'({source})' if source else ''}".strip()

    def format_baseline_cell(row: JudgedRow) -> str:
        return NO_VALUE if row.baseline is None else format_value(row.baseline, unit, scale=scale)

    columns: list[Told[JudgedRow]] = [
        *labels_columns([row.labels for row in rows], lambda row: row.labels),
        *labels_columns([origin_of(row, verdict) for row in rows], lambda row: origin_of(row, verdict), "({})"),
        (number("now"), lambda row: apart(row, unit, scale)[0]),
    ]
    if rows and assertion.needs_baseline:
        columns += [(number("baseline"), format_baseline_cell), (number("change"), lambda row: change(row, unit))]
    columns.append(("limit", format_limit_cell))
    if margins:
        columns.append((number("headroom"), lambda row: _margin(row, unit)))
    if any(row.test for row in rows):
        columns.append(("test", lambda row: row.test))
    if any(row.serialization is not None for row in rows):
        columns.append(("serialization", lambda row: serialization_cells(row)[0]))
        columns.append(("limit", lambda row: serialization_cells(row)[1]))
    return table_by("", columns, rows, limit)


def labels_columns(
    labels: Iterable[Mapping[str, Any]], of: Callable[[Any], Mapping[str, Any]], called: str = "{}"
) -> list[Told[Any]]:
    """Return a column for each dimension of these labels, in the order of the metric."""

    def make_cell_formatter(dimension: str) -> Callable[[Any], str]:
        return lambda row: str(of(row).get(dimension, ""))

    dimensions = dict.fromkeys(dimension for row_labels in labels for dimension in row_labels)
    return [
        (Column(called.format(dimension), CellKind.LABEL), make_cell_formatter(dimension)) for dimension in dimensions
    ]


def _margin(row: JudgedRow, unit: str) -> str:
    """Return what is left to the limit, negative where it is crossed; of a waived row what is left to its ceiling."""
    if row.waived and row.value is not None and row.ceiling is not None:
        return f"{distance_words(distance(row.ceiling, row.value), unit)} to its ceiling"
    return NO_VALUE if row.margin is None else distance_words(row.margin, unit)
