"""What does a session tell beside its verdicts where its baseline is another run? The two sides, what moved between
them, the worst row of all metrics first, and what only one of them has.

``pytest-nsys compare`` is such a session: every report of it has these tables above the verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pytest_nsys.analysis.windows.circumstances import profiler_shown
from pytest_nsys.core.kernel_names import readable_names
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import change_words, format_apart, format_signed, format_value, scale_of
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.core.words import counted, rank_ranges
from pytest_nsys.gates.comparability import agreeing_fields, shown
from pytest_nsys.gates.model import Outcome
from pytest_nsys.gates.noise import FEWEST_FOR_A_TEST, FEWEST_FOR_SEPARATION, IMPOSSIBLE
from pytest_nsys.reports.tables.formats import Table, Told, number, table_by, table_of
from pytest_nsys.reports.words.explanation import (
    apart,
    change,
    limit_cell,
    place,
    subject,
    window_lines,
)
from pytest_nsys.verdicts.comparison import (
    BUILT_IN_GATE,
    Comparison,
    OneSided,
    Result,
    Side,
    VerdictRow,
    counts_as_worse,
    has_changed,
)
from pytest_nsys.verdicts.kernel_changes import KernelChange

SHOWN_ROWS = 20
LONGEST_NOTE = 400
UNDECIDED = {Outcome.NO_DATA: "no data", Outcome.INCONCLUSIVE: "inconclusive"}


def result_words(comparison: Comparison) -> str:
    """The result, and what it rests on."""
    worse, crossed = len(comparison.worse), len(comparison.limits_crossed)
    match comparison.result:
        case Result.WORSE:
            why = [f"{counted(worse, 'row')} of {len(comparison.rows)} outside the limit"] if worse else []
            why += [f"{counted(crossed, 'constant limit')} broken by head"] if crossed else []
            why += [_why_incomparable(comparison)] if comparison.incomparable else []
            return f"worse: {'; '.join(why)}"
        case Result.INCOMPARABLE:
            return f"incomparable: {_why_incomparable(comparison)}"
        case Result.UNDECIDED:
            return f"undecided: {_why_undecided(comparison)}"
    unclear = sum(row.outcome is Outcome.INCONCLUSIVE for _, row in comparison.rows)
    noise = f", {unclear} beyond the tolerance but within the noise (inconclusive)" if unclear else ""
    return f"nothing worse: {counted(len(comparison.rows) - unclear, 'row')} within the limits{noise}"


def _why_incomparable(comparison: Comparison) -> str:
    names = dict.fromkeys(difference.name for each in comparison.incomparable for difference in each.differences)
    number = counted(len(comparison.incomparable), "assertion")
    lost = "nothing was held" if comparison.side_by_side else f"{number} not held"
    return f"the runs differ in {', '.join(names)}; {lost} against base"


def _why_undecided(comparison: Comparison) -> str:
    if not comparison.rows:
        return "nothing was compared: no assertion with a baseline has a row"
    outcomes = [verdict.outcome for verdict in comparison.verdicts]
    counts = {words: outcomes.count(outcome) for outcome, words in UNDECIDED.items()}
    return ", ".join(f"{counted(count, 'assertion')} {words}" for words, count in counts.items() if count)


def beside(comparison: Comparison) -> Iterator[str]:
    """What changed most where nothing is worse, what so many captures can tell, and how much did not move."""
    yield from _largest(comparison)
    changed = len(_within(comparison))
    same = len(comparison.unmoved) - changed
    if comparison.side_by_side:
        yield f"{counted(same, 'row')} the same on both sides"
        if fields := agreeing_fields(comparison.circumstances):
            yield f"where this may differ on purpose, add {' '.join(f'--comparable-on={field}' for field in fields)}"
    else:
        yield significance(comparison)
        yield f"{counted(changed, 'row')} changed within the limits, {same} not at all"


LARGEST = 3
LEAST_SHARE = Fraction(1, 100)
"""Smaller changes are not worth a line."""


def _largest(comparison: Comparison) -> Iterator[str]:
    """What changed most where nothing is worse: rows within their limits, and kernels."""
    if comparison.result is not Result.NOT_WORSE:
        return
    rows = [(v, row) for v, row in _within(comparison) if v.unit == TIME and row.baseline]
    rows = [(v, row) for v, row in rows if _share(row.value, row.baseline) >= LEAST_SHARE]
    rows.sort(key=lambda each: -_share(each[1].value, each[1].baseline))
    if rows:
        told = (f"{subject(v.assertion)} {place(row)} {change(row, v.unit)}" for v, row in rows[:LARGEST])
        yield f"largest changes within the limits: {', '.join(told)}"
    kernels = [each for each in comparison.kernels.kernels if _share(each.head_ns, each.base_ns) >= LEAST_SHARE]
    if kernels:
        called = readable_names([each.name for each in comparison.kernels.kernels])
        told = (_kernel_words(called[each.name], each) for each in kernels[:LARGEST])
        yield f"kernels that changed most, {comparison.kernels.per}: {', '.join(told)}"


def _share(value: Value | None, baseline: Value | None) -> Fraction:
    return abs(Fraction(value or 0) / baseline - 1) if baseline else Fraction(0)


def _kernel_words(name: str, each: KernelChange) -> str:
    """``flash_fwd_kernel +20% (7.52 → 9.02 ms)``."""
    base, head = format_apart(each.base_ns, each.head_ns, TIME)
    return f"{name} {change_words(each.head_ns, each.base_ns, TIME)} ({base} → {head})"


def significance(comparison: Comparison) -> str:
    """What so many captures can tell."""
    captures = f"{comparison.base.captures} + {comparison.head.captures} captures"
    if max(comparison.base.captures, comparison.head.captures) == 1:
        return f"{IMPOSSIBLE}: one trace a side is one sample"
    if comparison.fewest_captures < FEWEST_FOR_SEPARATION:
        return f"{IMPOSSIBLE} with {captures}: it takes {FEWEST_FOR_SEPARATION} on each side to tell change from noise"
    if comparison.fewest_captures < FEWEST_FOR_A_TEST:
        return f"{captures}: what is worse must also be completely separated; no test with fewer than 5 on each side"
    too_many = "where these are too many, complete separation beyond their noise decides"
    return f"{captures}: exact rank-sum test at 0.05, Holm over all rows; {too_many}"


def tables(comparison: Comparison, *, verbose: bool) -> list[Table]:
    """The tables in order; without ``verbose`` the first rows of each, and none that hold."""
    limit = None if verbose else SHOWN_ROWS
    moved = "What moved, worst first"
    if comparison.side_by_side:
        moved = "Side by side, not judged: the runs are not comparable"
    within = _within(comparison) if verbose else []
    found = [
        _circumstances_table(comparison),
        _row_table(moved, comparison.moved, comparison, limit),
        _row_table("What changed within its limit", within, comparison, folded=True),
        _things_table(comparison, limit),
        _sides_table(comparison),
        _notes_table(comparison),
    ]
    return [table for table in found if table.rows]


def _sides_table(comparison: Comparison) -> Table:
    traces = max(comparison.base.captures, comparison.head.captures, 1)
    rows = zip(_side_cells(comparison.base, traces), _side_cells(comparison.head, traces), strict=True)
    cells = ((name, base, head) for (name, base), (_, head) in rows if base or head)
    return table_of("The two sides", ("of the run", "base", "head"), cells)


def _side_cells(side: Side, traces: int) -> Iterator[tuple[str, str]]:
    """Name and content of each line, with a line for each of ``traces``, of which a side may have fewer."""
    key = side.key
    yield "captures", str(side.captures)
    for n in range(traces):
        yield ("" if n else "trace"), side.paths[n] if n < len(side.paths) else ""
    yield "ranks", f"{key.world} ({rank_ranges(side.ranks)})" if side.ranks else shown(key.world)
    yield "mesh", shown(key.mesh) if key.mesh else ""
    yield "micro-batch", "" if key.micro_batch is None else str(key.micro_batch)
    yield "sequence length", "" if key.sequence_length is None else str(key.sequence_length)
    yield "GPU", shown(key.gpu)
    yield "profiler", ", ".join(map(profiler_shown, side.profilers))


def _circumstances_table(comparison: Comparison) -> Table:
    rows = (
        (d.name, d.baseline, d.now, "must agree" if must_agree else "not compared, on purpose")
        for d, must_agree in comparison.circumstances.items()
    )
    return table_of("Circumstances that differ", ("differs", "base", "head", "meaning"), rows)


# Rows


def _within(comparison: Comparison) -> list[VerdictRow]:
    """The rows that changed by no more than they may."""
    return [each for each in comparison.unmoved if has_changed(each[1])]


def _row_table(
    caption: str, rows: Sequence[VerdictRow], comparison: Comparison, limit: int | None = None, *, folded: bool = False
) -> Table:
    judged = not comparison.side_by_side
    tested = judged and comparison.fewest_captures >= FEWEST_FOR_SEPARATION
    limits: list[Told[VerdictRow]] = [
        ("limit", lambda each: limit_cell(each[0].assertion, each[0].unit, each[1]) or "—"),
        (number("× tolerance"), _times_words),
    ]
    test: Told[VerdictRow] = ("significance", lambda e: e[1].test or ("exact" if e[1].limit is not None else ""))
    columns: list[Told[VerdictRow]] = [
        ("", word),
        ("metric", lambda each: subject(each[0].assertion)),
        ("row", lambda each: place(each[1])),
        (number("base"), lambda each: _both(each)[0]),
        (number("head"), lambda each: _both(each)[1]),
        (number("change"), lambda each: change(each[1], each[0].unit)),
        *(limits if judged else ()),
        *((test,) if tested else ()),
    ]
    if any(verdict.address != BUILT_IN_GATE for verdict, _ in rows):
        columns.append(("asserted in", lambda each: each[0].assertion.location.at_line))
    return table_by(caption, columns, rows, limit, folded=folded)


def _both(each: VerdictRow) -> tuple[str, str]:
    """Base and head with as many digits as tell them apart, head from its limit too."""
    row, unit = each[1], each[0].unit
    if row.baseline is None or row.value is None:
        base, head = ("—" if value is None else format_value(value, unit) for value in (row.baseline, row.value))
        return base, head
    scale = scale_of([row.baseline, row.value], unit)
    base, head = format_apart(row.baseline, row.value, unit, scale)
    plain = format_value(row.value, unit, scale=scale)
    return base, apart(row, unit, scale)[0] if row.limit is not None and head == plain else head


def word(each: VerdictRow) -> str:
    verdict, row = each
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


def _times_words(each: VerdictRow) -> str:
    """How much worse, in units of the tolerance; negative where better."""
    _, row = each
    times = row.times_tolerance
    if row.limit is None:
        return ""
    if times is None:
        return "any change" if row.sees == 0 else ""
    return format_signed(times, BARE)


# What only one side has, and what is known of one


def _things_table(comparison: Comparison, limit: int | None) -> Table:
    """What only head has, then what only base has."""
    found = [("appeared", thing, comparison.head) for thing in comparison.appeared]
    found += [("vanished", thing, comparison.base) for thing in comparison.vanished]
    captures = max(comparison.base.captures, comparison.head.captures) > 1
    columns = ("", "what", "name", "ranks", number("launches"), *(("captures",) if captures else ()))
    rows = ((which, *_thing_cells(thing, side)[: len(columns) - 1]) for which, thing, side in found)
    return table_of(f"Appeared and vanished ({comparison.looked_at})", columns, rows, limit, folded=True)


def _thing_cells(thing: OneSided, side: Side) -> tuple[str, ...]:
    ranks = "all" if thing.all_ranks and len(thing.ranks) > 1 else rank_ranges(thing.ranks)
    launches = format_value(thing.launches, "count")
    return str(thing.kind), thing.name, ranks, launches, f"{thing.captures} of {side.captures}"


def _notes_table(comparison: Comparison) -> Table:
    """The windows of base, and what casts doubt on either side and stands below no verdict."""
    rows = [("base", f"{how}: {line}") for how, used in comparison.windows.items() for line in window_lines(used)]
    rows += [(side, str(note)) for side, note in comparison.notes]
    rows += [("", f"compared with the history, not judged here: {name}") for name in comparison.not_held]
    return table_of("Windows of base, and notes", ("side", "note"), rows, folded=True, longest=LONGEST_NOTE)
