"""What does a comparison say, in a terminal, a pull request, a job summary? Sentences and tables, the worst row first.

Its page shares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.circumstances import profiler_shown
from pytest_nsys.core.model import Note
from pytest_nsys.core.numbers import format_apart, format_signed, format_value, scale_of
from pytest_nsys.core.units import BARE
from pytest_nsys.core.words import counted
from pytest_nsys.gates.comparability import shown
from pytest_nsys.gates.model import Outcome, Verdict
from pytest_nsys.gates.noise import FEWEST_FOR_A_TEST, FEWEST_FOR_SEPARATION, IMPOSSIBLE
from pytest_nsys.reports.causes import labels_words, part_cells
from pytest_nsys.reports.explanation import (
    apart,
    change,
    limit_cell,
    limit_words,
    place,
    rank_ranges,
    rule_words,
    subject,
    window_lines,
)
from pytest_nsys.reports.headline import of_comparison
from pytest_nsys.reports.tables import Format, Table, Told, escape_markdown, number, table_by, table_of
from pytest_nsys.verdicts.comparison import BUILT_IN_GATE, ComparedRow, Comparison, HeadVerdict, Result, Side, Thing

if TYPE_CHECKING:
    from pytest_nsys.reports.page.pictures import Picture

SHOWN_ROWS = 20
FOLDED = 5
"""From so many rows on, a table that may be folded away is, in Markdown."""

LONGEST_NOTE = 400
UNDECIDED = {Outcome.NO_DATA: "no data", Outcome.INCONCLUSIVE: "inconclusive"}


class Shown(NamedTuple):
    """What a format tells of: ``verbose`` leaves no row out; ``windows`` are drawn where it draws."""

    comparison: Comparison
    verbose: bool
    windows: Sequence[Picture] = ()


def sections(comparison: Comparison, *, verbose: bool) -> list[str | Table]:
    """What stands below the headline, in order, but tables without a row; without ``verbose`` the first rows of a
    table, and none that hold.
    """
    limit = None if verbose else SHOWN_ROWS
    found: list[str | Table] = [
        sides_table(comparison),
        circumstances_table(comparison),
        moved_table(comparison, limit),
        unmoved_words(comparison),
        *([within_table(comparison), assertion_table(comparison)] if verbose else [undecided_table(comparison)]),
        causes_table(comparison, limit),
        structure_table(comparison, limit),
        constants_table(comparison),
        things_table(comparison, limit),
        windows_table(comparison),
        notes_table(comparison),
    ]
    return [part for part in found if isinstance(part, str) or part.rows]


def as_text(shown: Shown) -> str:
    """The report; a verbose one leaves no row out, and adds those within their limits."""
    comparison = shown.comparison
    lines = [headline(comparison)]
    if not comparison.incomparable:
        lines.append(significance(comparison))
    for part in sections(comparison, verbose=shown.verbose):
        below = [f"  {line}" for line in part.lines("… {} more (-v shows them)")] if isinstance(part, Table) else []
        lines += ["", part.caption if isinstance(part, Table) else part, *below]
    return "\n".join(lines) + "\n"


def as_markdown_report(shown: Shown) -> str:
    """The same in GitHub's Markdown, every name escaped."""
    comparison = shown.comparison
    result = headline(comparison)
    parts = [f"## {escape_markdown(of_comparison(comparison, result), 2000)}\n"]
    parts.append(f"pytest-nsys compare: {escape_markdown(result)}\n")
    if not comparison.incomparable:
        parts.append(f"{escape_markdown(significance(comparison))}\n")
    found = sections(comparison, verbose=shown.verbose)
    parts += [_section(part) if isinstance(part, Table) else f"{escape_markdown(part)}\n" for part in found]
    return "\n".join(parts)


def _section(table: Table) -> str:
    text = table.render(Format.MARKDOWN)
    if table.more:
        text += f"\n… {table.more} more\n"
    caption = escape_markdown(table.caption)
    if table.folded and len(table.rows) > FOLDED:
        return f"<details><summary>{caption} ({len(table.rows) + table.more})</summary>\n\n{text}\n</details>\n"
    return f"### {caption}\n\n{text}"


def headline(comparison: Comparison) -> str:
    worse = len(comparison.worse)
    failed = len(comparison.limits_crossed)
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
    names = [difference.name for difference, compared in comparison.circumstances.items() if compared]
    return f"the runs differ in {', '.join(names)}; nothing was held against base"


def _why_undecided(comparison: Comparison) -> str:
    if not comparison.rows:
        return "nothing was compared: no assertion with a baseline has a row"
    outcomes = [each.verdict.outcome for each in comparison.verdicts]
    counts = {words: outcomes.count(outcome) for outcome, words in UNDECIDED.items()}
    return ", ".join(f"{counted(count, 'assertion')} {words}" for words, count in counts.items() if count)


def significance(comparison: Comparison) -> str:
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


def circumstances_table(comparison: Comparison) -> Table:
    rows = (
        (d.name, d.baseline, d.now, "must agree" if compared else "not compared, on purpose")
        for d, compared in comparison.circumstances.items()
    )
    return table_of("Circumstances that differ", ("differs", "base", "head", "meaning"), rows)


# Rows


def moved_table(comparison: Comparison, limit: int | None = None) -> Table:
    caption = "What moved, worst first"
    if comparison.incomparable:
        caption = "Side by side, not judged: the runs are not comparable"
    return _row_table(caption, comparison.moved, comparison, limit)


def within(comparison: Comparison) -> list[ComparedRow]:
    """The rows that changed by no more than they may."""
    return [row for row in comparison.unmoved if row.changed]


def within_table(comparison: Comparison) -> Table:
    return _row_table("What changed within its limit", within(comparison), comparison, folded=True)


def unmoved_words(comparison: Comparison) -> str:
    changed = len(within(comparison))
    same = len(comparison.unmoved) - changed
    if comparison.incomparable:
        return f"{counted(same, 'row')} the same on both sides"
    return f"{counted(changed, 'row')} changed within the limits, {same} not at all"


def _row_table(
    caption: str, rows: Sequence[ComparedRow], comparison: Comparison, limit: int | None = None, *, folded: bool = False
) -> Table:
    judged = not comparison.incomparable
    tested = judged and comparison.fewest_captures >= FEWEST_FOR_SEPARATION
    limits: list[Told[ComparedRow]] = [
        ("limit", lambda each: limit_cell(each.assertion, each.unit, each.row) or "—"),
        (number("× tolerance"), _times_words),
    ]
    test: Told[ComparedRow] = ("significance", lambda e: e.row.test or ("exact" if e.row.limit is not None else ""))
    columns: list[Told[ComparedRow]] = [
        ("", word),
        ("metric", lambda each: subject(each.assertion)),
        ("row", lambda each: place(each.row)),
        (number("base"), lambda each: _both(each)[0]),
        (number("head"), lambda each: _both(each)[1]),
        (number("change"), lambda each: change(each.row, each.unit)),
        *(limits if judged else ()),
        *((test,) if tested else ()),
    ]
    if any(row.gate != BUILT_IN_GATE for row in rows):
        columns.append(("asserted in", lambda each: each.assertion.location.at_line))
    return table_by(caption, columns, rows, limit, folded=folded)


def _both(each: ComparedRow) -> tuple[str, str]:
    """Base and head with as many digits as tell them apart, head from its limit too."""
    row, unit = each.row, each.unit
    if row.baseline is None or row.value is None:
        base, head = ("—" if value is None else format_value(value, unit) for value in (row.baseline, row.value))
        return base, head
    scale = scale_of([row.baseline, row.value], unit)
    base, head = format_apart(row.baseline, row.value, unit, scale)
    plain = format_value(row.value, unit, scale=scale)
    return base, apart(row, unit, scale)[0] if row.limit is not None and head == plain else head


def word(each: ComparedRow) -> str:
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


def _times_words(each: ComparedRow) -> str:
    """How much worse, in units of the tolerance; negative where better."""
    times = each.row.times_tolerance
    if each.row.limit is None:
        return ""
    if times is None:
        return "any change" if each.row.sees == 0 else ""
    return format_signed(times, BARE)


# Assertions


def _held(comparison: Comparison) -> list[tuple[str, Verdict]]:
    return [(each.gate, each.verdict) for each in comparison.verdicts if each.verdict.assertion.needs_baseline]


def assertion_table(comparison: Comparison) -> Table:
    rows = (
        (verdict.outcome, verdict.assertion.name, str(len(verdict.rows)), verdict.message, _at(gate, verdict))
        for gate, verdict in _held(comparison)
    )
    columns = ("", "assertion", "rows", "what was decided", "asserted in")
    return table_of("Assertions held against base", columns, rows, folded=True)


def undecided_table(comparison: Comparison) -> Table:
    rows = (
        (verdict.outcome, verdict.assertion.name, verdict.message)
        for _, verdict in _held(comparison)
        if verdict.outcome in (*UNDECIDED, Outcome.ERROR)
    )
    return table_of("Assertions that are not decided", ("", "assertion", "why"), rows)


def structure_table(comparison: Comparison, limit: int | None = None) -> Table:
    """What changed behind the rows about structure: kernels that came or went, where an order departs."""
    rows = ((verdict.assertion.name, line) for _, verdict in _held(comparison) for line in verdict.details)
    return table_of("Structure that changed", ("assertion", "what"), rows, limit, folded=True)


def causes_table(comparison: Comparison, limit: int | None = None) -> Table:
    """Why the rows that are worse are so: the kernels that account for each, largest part first."""
    metrics: dict[tuple[str, str, tuple[tuple[str, str], ...]], dict[str, None]] = {}
    for _, verdict in _held(comparison):
        for row in verdict.causes:
            told = (labels_words(row.labels), format_signed(row.explanation.change_ns), (*part_cells(row.explanation),))
            metrics.setdefault(told, {})[verdict.assertion.metric] = None
    rows = []
    for (where, moved, parts), names in metrics.items():
        head = (", ".join(names), where, moved)
        rows += [(*(("", "", "") if n else head), *part) for n, part in enumerate(parts)]
    return table_of("Why", ("metric", "row", number("change"), number("part"), "cause"), rows, limit)


def constants_table(comparison: Comparison) -> Table:
    columns = ("", "assertion", "head", "limit", "row", "base", "asserted in")
    rows = (_constant_cells(each) for each in comparison.verdicts if not each.verdict.assertion.needs_baseline)
    return table_of("Constant limits, judged on head", columns, rows, folded=True)


def _constant_cells(each: HeadVerdict) -> tuple[str, ...]:
    verdict = each.verdict
    worst = verdict.nearest
    judged = ("", verdict.message, "")
    if worst is not None and worst.limit is not None:
        value, limit = apart(worst, verdict.unit)
        judged = (value, limit_words(verdict.assertion, limit) + rule_words(worst), place(worst))
    base = "not measured" if each.on_base is None else str(each.on_base)
    return (verdict.outcome, verdict.assertion.name, *judged, base, _at(each.gate, verdict))


def _at(gate: str, verdict: Verdict) -> str:
    return "" if gate == BUILT_IN_GATE else verdict.assertion.location.at_line


# The rest


def things_table(comparison: Comparison, limit: int | None = None) -> Table:
    """What only head has, then what only base has."""
    found = [("appeared", thing, comparison.head) for thing in comparison.appeared]
    found += [("vanished", thing, comparison.base) for thing in comparison.vanished]
    captures = max(comparison.base.captures, comparison.head.captures) > 1
    columns = ("", "what", "name", "ranks", number("launches"), *(("captures",) if captures else ()))
    rows = ((which, *_thing_cells(thing, side)[: len(columns) - 1]) for which, thing, side in found)
    return table_of(f"Appeared and vanished ({comparison.looked_at})", columns, rows, limit, folded=True)


def _thing_cells(thing: Thing, side: Side) -> tuple[str, ...]:
    ranks = "all" if thing.all_ranks and len(thing.ranks) > 1 else rank_ranges(thing.ranks)
    launches = format_value(thing.launches, "count")
    return str(thing.kind), thing.name, ranks, launches, f"{thing.captures} of {side.captures}"


def windows_table(comparison: Comparison) -> Table:
    rows = (
        (name, measured_as, line)
        for name, side in _sides(comparison).items()
        for measured_as, windows in side.windows
        for line in window_lines(windows)
    )
    return table_of("Windows", ("side", "measured as", "window"), rows, folded=True, longest=LONGEST_NOTE)


def notes_table(comparison: Comparison) -> Table:
    """What casts doubt on what was measured, or should be known of it; no outcome, which other tables tell."""
    notes = [(name, note) for name, side in _sides(comparison).items() for note in side.notes]
    said = dict.fromkeys((gate, caution) for gate, verdict in _held(comparison) for caution in verdict.cautions)
    notes += [("head", Note(caution, True)) for _, caution in said]
    rows = [(name, str(note)) for name, note in dict.fromkeys(notes)]
    rows += [("", f"held against the history, not judged here: {name}") for name in comparison.not_held]
    return table_of("Notes", ("side", "note"), rows, folded=True, longest=LONGEST_NOTE)


def _sides(comparison: Comparison) -> Mapping[str, Side]:
    return {"base": comparison.base, "head": comparison.head}
