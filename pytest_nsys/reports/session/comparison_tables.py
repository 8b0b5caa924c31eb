"""What does a session show above its verdicts if its baseline is another run? The two sides, what changed between them
(the worst row of all metrics first), and what only one side has.

``pytest-nsys compare`` is such a session: every report of it has these tables above the verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pytest_nsys.analysis.windows.run_conditions import format_profiler_version
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import choose_scale, format_change, format_distinctly, format_signed, format_value
from pytest_nsys.core.text_format import format_count, format_rank_ranges, sanitize_line
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.gates.comparability import format_circumstance, list_agreeing_fields
from pytest_nsys.gates.model import Outcome
from pytest_nsys.gates.noise import FEWEST_FOR_A_TEST, FEWEST_FOR_SEPARATION, IMPOSSIBLE
from pytest_nsys.reports.tables.formats import (
    CellKind,
    Column,
    ColumnFormatter,
    Table,
    build_table,
    build_text_table,
    make_number_column,
)
from pytest_nsys.reports.words.verdict_text import (
    describe_row_limit,
    format_baseline_change,
    format_row_place,
    format_subject,
    format_value_and_limit,
    list_window_lines,
)
from pytest_nsys.verdicts.comparison import (
    BUILT_IN_GATE,
    Comparison,
    OneSidedItem,
    Result,
    Side,
    VerdictRow,
    counts_as_worse,
    has_changed,
)
from pytest_nsys.verdicts.kernel_changes import KernelChange

SHOWN_ROWS = 20
LONGEST_NOTE = 400
MOVED_CAPTIONS = ("What moved, worst first", "Side by side, not judged: the runs are not comparable")
"""The captions of the table from base to head: of rows that are judged, and of rows that are not."""
UNDECIDED_WORDS = {Outcome.NO_DATA: "no data", Outcome.INCONCLUSIVE: "inconclusive"}


def describe_result(comparison: Comparison) -> str:
    """Return the result of a comparison and what became of its claims, with the evidence; what is bad comes first."""
    rows, claims = _describe_held_rows(comparison), describe_claims(comparison)
    return "; ".join([*claims, rows] if comparison.result is Result.NOT_SHOWN else [rows, *claims])


def describe_claims(comparison: Comparison) -> list[str]:
    """Return what became of each claim, those that fail first: ``step time at least 3% below baseline: not so: 2%
    slower``.
    """
    claims = sorted(comparison.claims, key=lambda verdict: verdict.outcome is Outcome.PASSED)
    return [sanitize_line(f"{v.assertion.full_name}: {v.message}", LONGEST_NOTE) for v in claims]


def _describe_held_rows(comparison: Comparison) -> str:
    """Return what became of the rows that may not be worse than base's."""
    worse_count, crossed_count = len(comparison.worse), len(comparison.limits_crossed)
    match comparison.result:
        case Result.WORSE:
            reasons = (
                [f"{format_count(worse_count, 'row')} of {len(comparison.rows)} outside the limit"]
                if worse_count
                else []
            )
            reasons += [f"{format_count(crossed_count, 'constant limit')} broken by head"] if crossed_count else []
            reasons += [_explain_incomparable(comparison)] if comparison.incomparable else []
            return f"worse: {'; '.join(reasons)}"
        case Result.INCOMPARABLE:
            return f"incomparable: {_explain_incomparable(comparison)}"
        case Result.UNDECIDED:
            return f"undecided: {_explain_undecided(comparison)}"
    unclear_count = sum(row.outcome is Outcome.INCONCLUSIVE for _, row in comparison.rows)
    noise = f", {unclear_count} beyond the tolerance but within the noise (inconclusive)" if unclear_count else ""
    return f"nothing worse: {format_count(len(comparison.rows) - unclear_count, 'row')} within the limits{noise}"


def _explain_incomparable(comparison: Comparison) -> str:
    names = dict.fromkeys(difference.name for verdict in comparison.incomparable for difference in verdict.differences)
    assertion_count = format_count(len(comparison.incomparable), "assertion")
    consequence = "nothing was held" if comparison.side_by_side else f"{assertion_count} not held"
    return f"the runs differ in {', '.join(names)}; {consequence} against base"


def _explain_undecided(comparison: Comparison) -> str:
    if not comparison.rows:
        return "nothing was compared: no assertion with a baseline has a row"
    outcomes = [verdict.outcome for verdict in comparison.verdicts]
    counts = {description: outcomes.count(outcome) for outcome, description in UNDECIDED_WORDS.items()}
    return ", ".join(
        f"{format_count(count, 'assertion')} {description}" for description, count in counts.items() if count
    )


def describe_comparison(comparison: Comparison) -> Iterator[str]:
    """Yield what changed most if nothing is worse, how significant a change is with this many captures, and how many
    rows did not change.
    """
    yield from _describe_largest_changes(comparison)
    changed_count = len(_select_changed_within(comparison))
    same_count = len(comparison.unmoved) - changed_count
    if comparison.side_by_side:
        yield f"{format_count(same_count, 'row')} the same on both sides"
        if fields := list_agreeing_fields(comparison.circumstances):
            yield f"where this may differ on purpose, add {' '.join(f'--comparable-on={field}' for field in fields)}"
    else:
        yield describe_significance(comparison)
        yield f"{format_count(changed_count, 'row')} changed within the limits, {same_count} not at all"


MAX_LARGEST_CHANGES = 3
MIN_CHANGE_SHARE = Fraction(1, 100)
"""Smaller changes are not worth a line."""


def _describe_largest_changes(comparison: Comparison) -> Iterator[str]:
    """Yield what changed most if nothing is worse: rows within their limits, and kernels."""
    if comparison.result is not Result.NOT_WORSE:
        return
    rows = [
        (verdict, row) for verdict, row in _select_changed_within(comparison) if verdict.unit == TIME and row.baseline
    ]
    rows = [
        (verdict, row) for verdict, row in rows if _measure_change_share(row.value, row.baseline) >= MIN_CHANGE_SHARE
    ]
    rows.sort(key=lambda verdict_row: -_measure_change_share(verdict_row[1].value, verdict_row[1].baseline))
    if rows:
        change_texts = (
            f"{format_subject(verdict.assertion)} {format_row_place(row)} {format_baseline_change(row, verdict.unit)}"
            for verdict, row in rows[:MAX_LARGEST_CHANGES]
        )
        yield f"largest changes within the limits: {', '.join(change_texts)}"
    kernels = [
        kernel
        for kernel in comparison.kernels.kernels
        if _measure_change_share(kernel.head_ns, kernel.base_ns) >= MIN_CHANGE_SHARE
    ]
    if kernels:
        display_names = make_display_names([kernel.name for kernel in comparison.kernels.kernels])
        change_texts = (
            _describe_kernel_change(display_names[kernel.name], kernel) for kernel in kernels[:MAX_LARGEST_CHANGES]
        )
        yield f"kernels that changed most, {comparison.kernels.per_text}: {', '.join(change_texts)}"


def _measure_change_share(value: Value | None, baseline: Value | None) -> Fraction:
    return abs(Fraction(value or 0) / baseline - 1) if baseline else Fraction(0)


def _describe_kernel_change(name: str, kernel: KernelChange) -> str:
    """Return how the time of a kernel changed: ``flash_fwd_kernel +20% (7.52 → 9.02 ms)``."""
    base, head = format_distinctly(kernel.base_ns, kernel.head_ns, TIME)
    return f"{name} {format_change(kernel.head_ns, kernel.base_ns, TIME)} ({base} → {head})"


def describe_significance(comparison: Comparison) -> str:
    """Return what evidence this number of captures allows: none, separation, or a test."""
    captures = f"{comparison.base.captures} + {comparison.head.captures} captures"
    if max(comparison.base.captures, comparison.head.captures) == 1:
        return f"{IMPOSSIBLE}: one trace a side is one sample"
    if comparison.fewest_captures < FEWEST_FOR_SEPARATION:
        return f"{IMPOSSIBLE} with {captures}: it takes {FEWEST_FOR_SEPARATION} on each side to tell change from noise"
    if comparison.fewest_captures < FEWEST_FOR_A_TEST:
        return f"{captures}: what is worse must also be completely separated; no test with fewer than 5 on each side"
    too_many = "where these are too many, complete separation beyond their noise decides"
    return f"{captures}: exact rank-sum test at 0.05, Holm over all rows; {too_many}"


def build_comparison_tables(comparison: Comparison, *, verbose: bool) -> list[Table]:
    """Return the tables of a comparison in order; without ``verbose`` only the first rows of each, and no rows within
    their limits.
    """
    limit = None if verbose else SHOWN_ROWS
    caption = MOVED_CAPTIONS[comparison.side_by_side]
    changed_within = _select_changed_within(comparison) if verbose else []
    all_tables = [
        _build_circumstances_table(comparison),
        _build_moved_table(caption, comparison.moved, comparison, limit),
        _build_moved_table("What changed within its limit", changed_within, comparison, folded=True),
        _build_one_sided_table(comparison, limit),
        _build_sides_table(comparison),
        _build_notes_table(comparison),
    ]
    return [table for table in all_tables if table.rows]


def _build_sides_table(comparison: Comparison) -> Table:
    traces = max(comparison.base.captures, comparison.head.captures, 1)
    rows = zip(_list_side_cells(comparison.base, traces), _list_side_cells(comparison.head, traces), strict=True)
    cells = ((name, base, head) for (name, base), (_, head) in rows if base or head)
    return build_text_table(
        "The two sides", ("of the run", Column("base", CellKind.NAME), Column("head", CellKind.NAME)), cells
    )


def _list_side_cells(side: Side, traces: int) -> Iterator[tuple[str, str]]:
    """Yield the name and content of each line that describes a side. ``traces`` is the number of trace lines; they are
    empty where the side has fewer traces.
    """
    key = side.key
    yield "captures", str(side.captures)
    for n in range(traces):
        yield ("" if n else "trace"), side.paths[n] if n < len(side.paths) else ""
    yield "ranks", f"{key.world} ({format_rank_ranges(side.ranks)})" if side.ranks else format_circumstance(key.world)
    yield "mesh", format_circumstance(key.mesh) if key.mesh else ""
    yield "micro-batch", "" if key.micro_batch is None else str(key.micro_batch)
    yield "sequence length", "" if key.sequence_length is None else str(key.sequence_length)
    yield "GPU", format_circumstance(key.gpu)
    yield "profiler", ", ".join(map(format_profiler_version, side.profilers))


def _build_circumstances_table(comparison: Comparison) -> Table:
    rows = (
        (
            difference.name,
            difference.baseline,
            difference.current,
            "must agree" if must_agree else "not compared, on purpose",
        )
        for difference, must_agree in comparison.circumstances.items()
    )
    return build_text_table("Circumstances that differ", ("differs", "base", "head", "meaning"), rows)


# Rows


def _select_changed_within(comparison: Comparison) -> list[VerdictRow]:
    """Return the rows that changed, but stayed within their limits."""
    return [verdict_row for verdict_row in comparison.unmoved if has_changed(verdict_row[1])]


def _build_moved_table(
    caption: str, rows: Sequence[VerdictRow], comparison: Comparison, limit: int | None = None, *, folded: bool = False
) -> Table:
    is_judged = not comparison.side_by_side
    is_tested = is_judged and comparison.fewest_captures >= FEWEST_FOR_SEPARATION
    limits: list[ColumnFormatter[VerdictRow]] = [
        (
            Column("limit", CellKind.LIMIT, dispensable=True),
            lambda verdict_row: (
                describe_row_limit(verdict_row[0].assertion, verdict_row[0].unit, verdict_row[1]) or "—"
            ),
        ),
        (Column("× tolerance", CellKind.NUMBER, dispensable=True), _format_tolerance_multiple),
    ]
    test: ColumnFormatter[VerdictRow] = (
        "significance",
        lambda verdict_row: verdict_row[1].test or ("exact" if verdict_row[1].limit is not None else ""),
    )
    columns: list[ColumnFormatter[VerdictRow]] = [
        ("", find_row_state),
        ("metric", lambda verdict_row: format_subject(verdict_row[0].assertion)),
        (Column("row", CellKind.NAME), lambda verdict_row: format_row_place(verdict_row[1])),
        (make_number_column("base"), lambda verdict_row: _format_base_and_head(verdict_row)[0]),
        (make_number_column("head"), lambda verdict_row: _format_base_and_head(verdict_row)[1]),
        (make_number_column("change"), lambda verdict_row: format_baseline_change(verdict_row[1], verdict_row[0].unit)),
        *(limits if is_judged else ()),
        *((test,) if is_tested else ()),
    ]
    if any(verdict.address != BUILT_IN_GATE for verdict, _ in rows):
        columns.append(
            (
                Column("asserted in", CellKind.NAME, dispensable=True),
                lambda verdict_row: verdict_row[0].assertion.location.file_and_line,
            )
        )
    return build_table(caption, columns, rows, limit, folded=folded)


def _format_base_and_head(verdict_row: VerdictRow) -> tuple[str, str]:
    """Return the texts of base and head, with enough digits to distinguish them from each other, and head from its
    limit.
    """
    row, unit = verdict_row[1], verdict_row[0].unit
    if row.baseline is None or row.value is None:
        base, head = ("—" if value is None else format_value(value, unit) for value in (row.baseline, row.value))
        return base, head
    scale = choose_scale([row.baseline, row.value], unit)
    base, head = format_distinctly(row.baseline, row.value, unit, scale)
    plain = format_value(row.value, unit, scale=scale)
    return base, format_value_and_limit(row, unit, scale)[0] if row.limit is not None and head == plain else head


def find_row_state(verdict_row: VerdictRow) -> str:
    """Return the state of a row in one word: *worse*, *better*, *within*, *gone*, *new*."""
    verdict, row = verdict_row
    if row.waived:
        return "waived"
    match row.outcome:
        case Outcome.FAILED:
            if counts_as_worse(verdict.assertion):
                return "worse"
            return "warned" if verdict.assertion.xfail is None else "expected"
        case Outcome.NO_DATA:
            return "gone" if row.value is None else "new" if row.baseline is None else "not judged"
        case Outcome.IMPROVED:
            return "better"
        case Outcome.INCOMPARABLE:
            return "not judged"
        case Outcome.PASSED:
            return "within"
    return str(row.outcome)


def _format_tolerance_multiple(verdict_row: VerdictRow) -> str:
    """Return by what multiple of its tolerance a row is worse, negative if it is better; empty without a limit."""
    _, row = verdict_row
    times = row.times_tolerance
    if row.limit is None:
        return ""
    if times is None:
        return "any change" if row.visible_change == 0 else ""
    return format_signed(times, BARE)


# What only one side has, and notes on each side


def _build_one_sided_table(comparison: Comparison, limit: int | None) -> Table:
    """Return a table of what only head has, then of what only base has."""
    labelled_things = [("appeared", thing, comparison.head) for thing in comparison.appeared]
    labelled_things += [("vanished", thing, comparison.base) for thing in comparison.vanished]
    has_several_captures = max(comparison.base.captures, comparison.head.captures) > 1
    columns = (
        "",
        "what",
        Column("name", CellKind.KERNEL),
        "ranks",
        make_number_column("launches"),
        *(("captures",) if has_several_captures else ()),
    )
    rows = ((label, *_list_one_sided_cells(thing, side)[: len(columns) - 1]) for label, thing, side in labelled_things)
    return build_text_table(f"Appeared and vanished ({comparison.compared_window})", columns, rows, limit, folded=True)


def _list_one_sided_cells(thing: OneSidedItem, side: Side) -> tuple[str, ...]:
    ranks = "all" if thing.all_ranks and len(thing.ranks) > 1 else format_rank_ranges(thing.ranks)
    launches = format_value(thing.launches, "count")
    return str(thing.kind), thing.name, ranks, launches, f"{thing.captures} of {side.captures}"


def _build_notes_table(comparison: Comparison) -> Table:
    """Return a table of the windows of base, and of the doubts about either side that no verdict shows."""
    rows = [
        ("base", f"{measured_as}: {line}")
        for measured_as, windows in comparison.windows.items()
        for line in list_window_lines(windows)
    ]
    rows += [(side, str(note)) for side, note in comparison.notes]
    rows += [("", f"compared with the history, not judged here: {name}") for name in comparison.not_held]
    return build_text_table("Windows of base, and notes", ("side", "note"), rows, folded=True, max_length=LONGEST_NOTE)
