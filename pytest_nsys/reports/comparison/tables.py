"""What does a comparison say, cell by cell? The words and tables that its text, Markdown and HTML share.

Every cell is text of one line without control characters; each format escapes it in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.analysis.causes import Explanation
from pytest_nsys.core.model import Note, counted, printable
from pytest_nsys.core.units import format_apart, format_value
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.before_after import FEWEST_FOR_A_TEST, FEWEST_FOR_SEPARATION, IMPOSSIBLE
from pytest_nsys.gates.comparability import shown
from pytest_nsys.gates.verdict import Outcome, Verdict
from pytest_nsys.reports.causes import cause_words, signed
from pytest_nsys.reports.text import (
    apart,
    change,
    limit_source,
    limit_words,
    place,
    rank_ranges,
    rule_words,
    window_lines,
)
from pytest_nsys.verdicts.comparison import ComparedRow, Comparison, OnHead, Result, Side, Thing

SHOWN_ROWS = 20
LONGEST_CELL = 200
BUILT_IN_GATE = "built-in gate"
"""What stands for the name of the gate file that the package brings along."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells below a caption. ``more`` rows were left out."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0


def headline(comparison: Comparison) -> str:
    """The result in one line, with how many rows make it."""
    worse = len(comparison.worse)
    failed = sum(verdict.outcome is Outcome.FAILED for verdict in (each.verdict for each in comparison.constants))
    match comparison.result:
        case Result.WORSE:
            said = [f"{counted(worse, 'row')} of {len(comparison.rows)} outside the limit"] if worse else []
            said += [f"{counted(failed, 'constant limit')} not kept by head"] if failed else []
            said += [_why_incomparable(comparison)] if comparison.incomparable else []
            return f"worse: {'; '.join(said)}"
        case Result.INCOMPARABLE:
            return f"incomparable: {_why_incomparable(comparison)}"
        case Result.UNDECIDED:
            return f"undecided: {_why_undecided(comparison)}"
    unclear = sum(row.row.outcome is Outcome.INCONCLUSIVE for row in comparison.rows)
    noise = f", {unclear} beyond the tolerance but within the noise (inconclusive)" if unclear else ""
    return f"nothing worse: {counted(len(comparison.rows) - unclear, 'row')} within the limits{noise}"


def _why_incomparable(comparison: Comparison) -> str:
    names = [each.difference.name for each in comparison.circumstances if each.compared]
    return f"the runs differ in {', '.join(names)}; nothing was held against base"


def _why_undecided(comparison: Comparison) -> str:
    if not comparison.rows:
        return "nothing was compared: no assertion with a baseline has a row"
    verdicts = [*(verdict for _, verdict in comparison.verdicts), *(each.verdict for each in comparison.constants)]
    said = []
    for outcome, words in ((Outcome.NO_DATA, "no data"), (Outcome.INCONCLUSIVE, "inconclusive")):
        if count := sum(verdict.outcome is outcome for verdict in verdicts):
            said.append(f"{counted(count, 'assertion')} {words}")
    return ", ".join(said)


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
    decides = f"exact rank-sum test at 0.05, Holm over all rows; {too_many}"
    return f"{captures}: {decides}"


def sides_table(comparison: Comparison) -> Table:
    """Both runs, a line for each thing to know of them."""
    traces = max(comparison.base.captures, comparison.head.captures, 1)
    rows = zip(_side_cells(comparison.base, traces), _side_cells(comparison.head, traces), strict=True)
    cells = tuple((name, base, head) for (name, base), (_, head) in rows if base or head)
    return Table("The two sides", ("of the run", "base", "head"), cells)


def _side_cells(side: Side, traces: int) -> Iterator[tuple[str, str]]:
    """Name and content of each line, with a line for each of ``traces``, of which a side may have fewer."""
    key = side.key
    yield "captures", str(side.captures)
    for number in range(traces):
        path = side.paths[number] if number < len(side.paths) else ""
        yield ("trace" if number == 0 else ""), printable(path, LONGEST_CELL)
    ranks = rank_ranges(side.ranks)
    yield "ranks", f"{key.world} ({ranks})"
    yield "mesh", shown(key.mesh) if key.mesh else ""
    yield "micro-batch", "" if key.micro_batch is None else str(key.micro_batch)
    yield "sequence length", "" if key.sequence_length is None else str(key.sequence_length)
    yield "GPU", shown(key.gpu)
    yield "profiler", shown(list(side.profilers)) if side.profilers else ""


def circumstances_table(comparison: Comparison) -> Table:
    """In what the runs differ, whether or not that makes them incomparable."""
    rows = tuple(
        (*map(_cell, (d.name, d.baseline, d.now)), "must agree" if each.compared else "not compared, on purpose")
        for each in comparison.circumstances
        for d in [each.difference]
    )
    return Table("Circumstances that differ", ("differs", "base", "head", "meaning"), rows)


# Rows


def moved_table(comparison: Comparison, limit: int | None) -> Table:
    """The rows that moved, worst first."""
    caption = "What moved, worst first"
    if comparison.incomparable:
        caption = "Side by side, not judged: the runs are not comparable"
    return _row_table(caption, comparison.moved, comparison, limit)


def within_table(comparison: Comparison, limit: int | None) -> Table:
    """The rows that changed by no more than they may."""
    rows = [row for row in comparison.unmoved if row.changed]
    return _row_table("What changed within its limit", rows, comparison, limit)


def unmoved_words(comparison: Comparison) -> str:
    """How many rows did not move."""
    changed = sum(row.changed for row in comparison.unmoved)
    same = len(comparison.unmoved) - changed
    if comparison.incomparable:
        return f"{counted(same, 'row')} the same on both sides"
    return f"{counted(changed, 'row')} changed within the limits, {same} not at all"


def _row_table(caption: str, rows: Sequence[ComparedRow], comparison: Comparison, limit: int | None) -> Table:
    judged = not comparison.incomparable
    tested = judged and comparison.fewest_captures >= FEWEST_FOR_SEPARATION
    named = any(row.gate != BUILT_IN_GATE for row in rows)
    chosen = rows if limit is None else rows[:limit]
    columns = ["", "metric", "row", "base", "head", "change", *(("limit", "× tolerance") if judged else ())]
    columns += ["significance"] if tested else []
    columns += ["asserted in"] if named else []
    cells = []
    for row in chosen:
        own = [*row_cells(row), *(_limit_cells(row) if judged else ())]
        own += [row.row.test or ("exact" if row.row.limit is not None else "")] if tested else []
        own += [row.assertion.location.at_line] if named else []
        cells.append(tuple(map(_cell, own)))
    return Table(caption, tuple(columns), tuple(cells), len(rows) - len(chosen))


def row_cells(each: ComparedRow) -> tuple[str, ...]:
    """Word, metric, place, base, head, change."""
    row, unit = each.row, each.unit
    if row.baseline is None or row.value is None:
        base, head = ("—" if value is None else format_value(value, unit) for value in (row.baseline, row.value))
    else:
        base, head = format_apart(row.baseline, row.value, unit)
        if row.limit is not None and head == format_value(row.value, unit):
            head = apart(row, unit)[0]
    return word(each), subject(each.assertion), place(row), base, head, change(row, unit)


def _limit_cells(each: ComparedRow) -> tuple[str, str]:
    """The limit with its source, and the change in units of the tolerance."""
    row, unit = each.row, each.unit
    if row.limit is None:
        return "—", ""
    source = limit_source(each.assertion, unit, row)
    words = limit_words(each.assertion, apart(row, unit)[1])
    return (f"{words} ({source})" if source else words) + rule_words(row), times_words(each)


def word(each: ComparedRow) -> str:
    """What happened to a row, in one word."""
    row = each.row
    if row.waived:
        return "waived"
    match row.outcome:
        case Outcome.FAILED:
            return "worse" if each.counts else "warned" if each.assertion.xfail is None else "expected"
        case Outcome.NO_DATA:
            return "gone" if row.value is None else "new" if row.baseline is None else "not judged"
        case Outcome.IMPROVED:
            return "better"
        case Outcome.INCOMPARABLE:
            return "not judged"
        case Outcome.PASSED:
            return "within"
    return str(row.outcome)


def subject(assertion: Assertion) -> str:
    """What of the metric is judged: ``median overlap``, ``balance of compute_ns across pp``."""
    if assertion.balance_across is not None:
        return f"balance of {assertion.metric} across {assertion.balance_across}"
    return " ".join([*(step.word for step in reversed(assertion.aggregates)), assertion.metric])


def times_words(each: ComparedRow) -> str:
    """How much worse, in units of the tolerance; negative where better."""
    times = each.times_limit
    if times is None:
        return "any change" if each.row.limit is not None and each.row.sees == 0 else ""
    return f"{float(times):+.1f}" if abs(times) < Fraction(100) else f"{float(times):+.0f}"


# Assertions


def assertion_table(comparison: Comparison) -> Table:
    """Every assertion that was held against base, with what was decided."""
    rows = tuple(
        tuple(
            map(
                _cell,
                (verdict.outcome, verdict.assertion.name, str(len(verdict.rows)), verdict.message, _at(gate, verdict)),
            )
        )
        for gate, verdict in comparison.verdicts
    )
    return Table("Assertions held against base", ("", "assertion", "rows", "what was decided", "asserted in"), rows)


def undecided_table(comparison: Comparison) -> Table:
    """The assertions that could not be judged, with why."""
    undecided = (Outcome.NO_DATA, Outcome.INCONCLUSIVE, Outcome.ERROR)
    rows = tuple(
        tuple(map(_cell, (verdict.outcome, verdict.assertion.name, verdict.message)))
        for _, verdict in comparison.verdicts
        if verdict.outcome in undecided
    )
    return Table("Assertions that are not decided", ("", "assertion", "why"), rows)


def structure_table(comparison: Comparison, limit: int | None) -> Table:
    """What changed behind the rows about structure: kernels that came or went, where an order departs."""
    found = [(verdict.assertion.name, line) for _, verdict in comparison.verdicts for line in verdict.details]
    chosen = found if limit is None else found[:limit]
    rows = tuple(tuple(map(_cell, cells)) for cells in chosen)
    return Table("Structure that changed", ("assertion", "what"), rows, len(found) - len(chosen))


def causes_table(comparison: Comparison, limit: int | None) -> Table:
    """Why the rows that are worse are so: the kernels that account for each, largest part first."""
    metrics: dict[tuple[str, Explanation], list[str]] = {}
    for _, verdict in comparison.verdicts:
        for labels, explanation in verdict.causes:
            where = " ".join(f"{name} {label}" for name, label in labels.items())
            metrics.setdefault((where, explanation), []).append(verdict.assertion.metric)
    found = []
    for (where, (change_ns, causes, unexplained_ns)), names in metrics.items():
        row = (", ".join(dict.fromkeys(names)), where, signed(change_ns))
        parts = [(signed(cause.change_ns), cause_words(cause)) for cause in causes]
        parts += [(signed(unexplained_ns), "not explained")] if unexplained_ns else []
        found += [(*(row if n == 0 else ("", "", "")), *part) for n, part in enumerate(parts)]
    chosen = found if limit is None else found[:limit]
    rows = tuple(tuple(map(_cell, cells)) for cells in chosen)
    return Table("Why", ("metric", "row", "change", "part", "cause"), rows, len(found) - len(chosen))


def constants_table(comparison: Comparison) -> Table:
    """The assertions with constant limits, which are judged on head."""
    rows = tuple(tuple(map(_cell, _constant_cells(each))) for each in comparison.constants)
    columns = ("", "assertion", "head", "limit", "row", "base", "asserted in")
    return Table("Constant limits, judged on head", columns, rows)


def _constant_cells(each: OnHead) -> Iterator[str]:
    verdict = each.verdict
    worst = verdict.nearest
    yield str(verdict.outcome)
    yield verdict.assertion.name
    if worst is not None and worst.limit is not None:
        value, limit = apart(worst, verdict.unit)
        yield from (value, limit_words(verdict.assertion, limit) + rule_words(worst), place(worst))
    else:
        yield from ("", verdict.message, "")
    yield "not measured" if each.base is None else str(each.base)
    yield _at(each.gate, verdict)


def _at(gate: str, verdict: Verdict) -> str:
    return "" if gate == BUILT_IN_GATE else verdict.assertion.location.at_line


# The rest


def things_table(comparison: Comparison, limit: int | None) -> Table:
    """What only head has, then what only base has."""
    found = [("appeared", thing, comparison.head) for thing in comparison.appeared]
    found += [("vanished", thing, comparison.base) for thing in comparison.vanished]
    chosen = found if limit is None else found[:limit]
    captures = max(comparison.base.captures, comparison.head.captures) > 1
    columns = ("", "what", "name", "ranks", "launches", *(("captures",) if captures else ()))
    rows = tuple(tuple(map(_cell, _thing_cells(*each, captures))) for each in chosen)
    return Table(f"Appeared and vanished ({comparison.looked_at})", columns, rows, len(found) - len(chosen))


def _thing_cells(which: str, thing: Thing, side: Side, captures: bool) -> Iterator[str]:
    yield which
    yield str(thing.kind)
    yield thing.name
    yield "all" if thing.all_ranks and len(thing.ranks) > 1 else rank_ranges(thing.ranks)
    yield format_value(thing.launches, "count")
    if captures:
        yield f"{thing.captures} of {side.captures}"


def windows_table(comparison: Comparison) -> Table:
    """The windows that were judged, of both sides."""
    rows = tuple(
        (name, _cell(measured_as), line)
        for name, side in (("base", comparison.base), ("head", comparison.head))
        for measured_as, windows in side.windows
        for line in window_lines(windows)
    )
    return Table("Windows", ("side", "measured as", "window"), rows)


def notes_table(comparison: Comparison) -> Table:
    """What casts doubt on what was measured, or should be known of it."""
    rows = [
        (name, str(note.printable(400)))
        for name, side in (("base", comparison.base), ("head", comparison.head))
        for note in side.notes
    ]
    said = dict.fromkeys((gate, caution) for gate, verdict in comparison.verdicts for caution in verdict.cautions)
    rows += [("head", str(Note(caution, True).printable(400))) for _, caution in said]
    rows = list(dict.fromkeys(rows))
    rows += [("", f"held against the history, not judged here: {_cell(name)}") for name in comparison.not_held]
    return Table("Notes", ("side", "note"), tuple(rows))


def _cell(text: str) -> str:
    return printable(text, LONGEST_CELL)
