"""What happened, in one sentence? ``Step 12% slower (16.8 → 18.8 ms): flash_fwd_kernel +25% on both ranks``.

What is bad comes first, the worst of each kind: what failed and why, what could not be judged, what kept a file from
being judged. Where nothing is bad, what deserves a look, what held, and the least headroom. The sentence claims no more
than its records: a cause stands behind the row that it explains, and the length of a step comes from a row, or from the
windows that were compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain

from pytest_nsys.analysis.explained import Cause, CauseKind, Explained
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import TIMES, change_words, distance_words, format_apart, percent
from pytest_nsys.core.units import HASH, SHARES, TIME
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.model import JudgedRow, Labels, Outcome
from pytest_nsys.reports.causes import cause_of, cause_words
from pytest_nsys.reports.explanation import apart, rank_ranges, reason_words
from pytest_nsys.reports.session.digest import Digest, counts_words, in_order, nearest, not_run_words, worst_first
from pytest_nsys.reports.session.record import Record

STEP_TIMES = frozenset({"window_ns", "period_ns", "step_time_ns"})
"""Metrics that are the length of a step."""

USUAL = "p50"
"""The quantile of periods that is the length of a step; another one is named."""

ONE_OF_MANY = frozenset({"max", "median", "mean", "min"})
"""Aggregates of lengths of a step that are the length of one."""

DIGITS = 2
"""Of a share of change: who wants more reads the rows."""

LEAST_SHARE = Fraction(5, 1000)
"""A window whose length changed by less is not said to have changed."""

ALIKE = Fraction(5, 100)
"""By no more of the larger one, two shares are told as it."""

LONGEST = 160
"""Of a message; the page has all of it below."""

NOT_JUDGED = (Outcome.ERROR, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.INCONCLUSIVE)


def of_session(digest: Digest) -> str:
    """The sentence of a session, or of a comparison, which says its result where no assertion is bad and yet it is not
    good.
    """
    said = [*_bad(digest.bad, digest.records)]
    if digest.mistakes:
        first, more = digest.mistakes[0], len(digest.mistakes) - 1
        said.append(
            f"not judged: {first.place}: {first.text}" + (f", and {counted(more, 'more mistake')}" if more else "")
        )
    if digest.gate_changes is not None and digest.gate_changes.bad:
        from pytest_nsys.reports.changes import gate_headline

        said.append(gate_headline(digest.gate_changes))
    elif digest.is_loosened:
        said.append(digest.omission)
    if not said and digest.comparison is not None and not digest.good:
        said = [digest.headline]
    if not said:
        said += [digest.ending] if digest.ending else []
        said += _good(digest.records)
        said += [not_run_words(digest.not_run)] if digest.not_run else []
        said += [digest.omission] if digest.records and digest.left_out else []
    return _sentence(said or [digest.headline])


def _sentence(said: Sequence[str]) -> str:
    return as_sentence(printable("; ".join(said), 1000))


_LEADS = {f"{word}:" for word in (*Outcome, "undecided", "warning", "worse")}
"""What stands before a colon and is no name."""


def as_sentence(text: str) -> str:
    """Names of metrics and files, as before a colon, stay as they are written; a plain word begins with a capital."""
    first = text.split(" ", 1)[0]
    plain = first in _LEADS or (first.isalpha() and first != "pytest")
    return text[:1].upper() + text[1:] if plain else text


# What is bad


def _bad(records: Sequence[Record], judged: Sequence[Record]) -> Iterator[str]:
    """What failed, then what could not be judged, of all that was judged."""
    of_state = grouped((record.state, record) for record in worst_first(records))
    if failed := of_state.get(Outcome.FAILED):
        addresses = {record.address for record in judged}
        if len(addresses) == 1:
            yield _led(failed)
        else:
            one_file = len({record.file for record in judged}) == 1
            lead, red = led_by(failed)[0], {record.address for record in failed}
            yield f"{_led(failed)} ({lead.configuration if one_file else lead.address})"
            yield f"{len(red)} of {len(addresses)} {'configurations' if one_file else 'gate files'} failed"
    if accepted := of_state.get(Outcome.ACCEPTED):
        yield _accepted(accepted)
    for outcome in NOT_JUDGED:
        if own := of_state.get(outcome):
            shared = len(own) > 1 and len({record.message for record in own}) == 1
            what = "" if shared else f"{own[0].title}: "
            yield f"{counted(len(own), 'assertion')} {_WORDS[outcome]}: {what}{_in_short(own[0])}"
    if improved := of_state.get(Outcome.IMPROVED):
        yield _improved(improved)


def _accepted(records: Sequence[Record]) -> str:
    """What the branch accepts, and whether that is let pass."""
    still = "" if records[0].good else ", still red"
    return f"accepted on this branch{still}: {_led(records)}"


def _in_short(record: Record) -> str:
    """The first thing that the message says."""
    return printable(record.message.split("; ")[0], LONGEST)


_WORDS = {
    Outcome.ERROR: "not judged",
    Outcome.INCOMPARABLE: "incomparable",
    Outcome.NO_DATA: "without data",
    Outcome.INCONCLUSIVE: "inconclusive",
}


def _led(records: Sequence[Record]) -> str:
    """What the first of these records says, and why; of the length of a step, where one of them is of that."""
    record = led_by(records)[0]
    row, world = _row(record), _world(record)
    explained = next((e for e in record.verdict.causes if row is not None and _is_of(row.labels, e.labels)), None)
    cause = cause_of(explained) if explained is not None else ""
    if _is_step_time(record):
        why = why_words(cause, [record, *records])
        return _joined(_changed(record, "" if why else _ranks_of(record)), why)
    own = _ranks([explained]) if explained is not None else []
    why = why_words(cause, [record, *records], told=own)
    budget = explained.explanation.budget if explained is not None else None
    window = "" if budget is None else _length_words(record, budget.before_ns, budget.now_ns, _on(own, world))
    if budget is None or not window:
        return _joined(_changed(record), why)
    if budget.change_ns < 0:
        return f"{_joined(_changed(record), why)}; {window}"
    return f"{window}; {_joined(_changed(record, but=own), why)}"


def _is_of(labels: Labels, explained: Labels) -> bool:
    """Whether a cause explains the row of these labels; of an aggregate it has those of the row behind it, too."""
    return all(explained.get(dimension) == label for dimension, label in labels.items())


def led_by(records: Iterable[Record]) -> list[Record]:
    """The worst first, but the length of a step above all else."""
    return sorted(worst_first(records), key=lambda record: not (record.is_open and _is_step_time(record)))


def _joined(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what


def _is_step_time(record: Record) -> bool:
    """Whether a record is of the length of a step, and has both lengths."""
    *aggregates, metric = record.subject.split()
    row = _row(record)
    both = row is not None and row.value is not None and bool(row.baseline)
    return metric in STEP_TIMES and ONE_OF_MANY.issuperset(aggregates) and both


def _row(record: Record) -> JudgedRow | None:
    """The row that the texts of a record are of: that with the least margin, of an improvement the best one."""
    rows = [row for row in record.verdict.rows if not row.waived and row.outcome is record.outcome]
    sign = -1 if record.outcome is Outcome.IMPROVED else 1
    judged = [row for row in rows if row.margin is not None]
    return min(judged, key=lambda row: sign * (row.margin or 0), default=next(iter(rows), None))


def _changed(record: Record, on: str = "", but: Sequence[int] = ()) -> str:
    """How the worst row of a record changed; where nothing is stored, how it stands to its limit.

    ``on`` says in which ranks, of the length of a step; ranks in ``but`` are told already.
    """
    row = _row(record)
    if row is None or record.outcome not in (Outcome.FAILED, Outcome.ACCEPTED, Outcome.IMPROVED):
        return f"{record.title}: {_in_short(record)}"
    value, baseline, unit = row.value, row.baseline, record.verdict.unit
    if value is None or baseline is None:
        return f"{record.subject} {reason_words(record.verdict)}"
    if _is_step_time(record):
        quantile = row.labels.get("quantile", USUAL)
        on = f", {quantile}{on}" if quantile != USUAL else on
        same = f"{_noun(record)}{on} {_both(baseline, value, unit)}"
        return _length_words(record, baseline, value, on) or same
    moved = change_words(value, baseline, unit)
    if unit not in (*SHARES, HASH) and baseline and abs(Fraction(value) / baseline) < TIMES:
        moved = _share(Fraction(value) / baseline - 1)
    both = f" ({_both(baseline, value, unit)})" if unit != HASH else ""
    where = place_words({d: label for d, label in row.labels.items() if d != "rank" or label not in but})
    return f"{record.subject} {moved}{both}" + (f", {where}" if where else "")


def _both(before: Value, now: Value, unit: str) -> str:
    """``16.8 → 18.8 ms``."""
    texts = format_apart(before, now, unit)
    number, _, own = texts[0].rpartition(" ")
    return f"{number if number and texts[1].endswith(f' {own}') else texts[0]} → {texts[1]}"


def _share(share: Fraction) -> str:
    return f"{'+' if share > 0 else ''}{percent(share, DIGITS)}"


def _length_words(record: Record, before: Value, now: Value, on: str = "") -> str:
    """``step 12% slower on rank 3 (16.8 → 18.8 ms)``; empty where it is as long as it was."""
    share = Fraction(now) / before - 1 if before else Fraction(0)
    if abs(share) < LEAST_SHARE:
        return ""
    noun = _noun(record)
    longer, shorter = ("slower", "faster") if noun == "step" else ("longer", "shorter")
    words = f"{percent(abs(share), DIGITS)} {longer if share > 0 else shorter}"
    if share + 1 >= TIMES:
        words = f"{round(share + 1)} times as long"
    return f"{noun} {words}{on} ({_both(before, now, TIME)})"


def _noun(record: Record) -> str:
    """What the windows are: steps, as far as their names say so."""
    names = {used.window.name.lower() for used in record.verdict.windows}
    return "step" if all("step" in name or "iteration" in name for name in names) else "window"


# Why


def why_words(cause: str, records: Sequence[Record], told: Sequence[int] = ()) -> str:
    """A cause as it leads in the first of these records, and in which ranks of all it does: ``flash_fwd_kernel +25% on
    both ranks``. Empty without a cause; the ranks are left out where those are ``told`` already.
    """
    if not cause:
        return ""
    of_one = [record for record in records if record.address == records[0].address]
    first, *_ = own = [[row for row in record.verdict.causes if cause_of(row) == cause] for record in of_one]
    ranks = _ranks(chain.from_iterable(own))
    return _cause([part for row in first if (part := row.explanation.leading) is not None]) + (
        _on(ranks, _world(records[0])) if ranks != told else ""
    )


_LENGTHS = (CauseKind.LONGER, CauseKind.SHORTER, CauseKind.COMPUTE, CauseKind.EXPOSED)
LESS_COVER = (CauseKind.COVER_SHRANK, CauseKind.COVER_VANISHED, CauseKind.COVER_LATE, CauseKind.COVER_MOVED)


def _cause(parts: Sequence[Cause]) -> str:
    """One cause in several rows, in few words."""
    part = parts[0]
    kernel = printable(part.kernel, 60)
    if kernel and part.straggler is not None:
        return f"{kernel} waits for rank {part.straggler}"
    if kernel and part.kind in (CauseKind.APPEARED, CauseKind.VANISHED, CauseKind.BARRIER):
        return f"{kernel} {part.kind}"
    if kernel and part.kind in LESS_COVER:
        return f"less overlap with {kernel}"
    if kernel and part.kind in _LENGTHS and all(each.before_ns and each.was == each.kernels for each in parts):
        shares = sorted((Fraction(each.now_ns, each.before_ns) - 1 for each in parts), key=abs)
        alike = abs(shares[-1] - shares[0]) <= abs(shares[-1]) * ALIKE
        exposed = "exposed " if part.kind is CauseKind.EXPOSED else ""
        return f"{kernel} {exposed}{' to '.join(map(_share, shares[-1:] if alike else (shares[0], shares[-1])))}"
    return cause_words(part)


def _ranks(rows: Iterable[Explained | JudgedRow]) -> list[int]:
    return sorted({rank for row in rows if isinstance(rank := row.labels.get("rank"), int)})


def _ranks_of(record: Record) -> str:
    return _on(_ranks(row for row in record.verdict.rows if row.outcome is record.outcome), _world(record))


def _world(record: Record) -> int | None:
    return record.key.world if record.key is not None else None


def _on(ranks: Sequence[int], world: int | None) -> str:
    """`` on both ranks``; empty where there is one rank, or none is known."""
    if not ranks or world == 1:
        return ""
    if len(ranks) == world:
        return " on both ranks" if world == 2 else f" on all {world} ranks"
    return f" on {'rank' if len(ranks) == 1 else 'ranks'} {rank_ranges(ranks)}"


# What is good


def _good(records: Sequence[Record]) -> Iterator[str]:
    """What deserves a look, how many held, and the least headroom."""
    warned = [r for r in worst_first(records) if r.outcome is Outcome.FAILED and r.good and not r.xfailed]
    if warned:
        yield f"warning: {_led(warned)}"
    if accepted := [r for r in worst_first(records) if r.state == Outcome.ACCEPTED]:
        yield _accepted(accepted)
    yield from _better(records)
    if not records:
        return
    counts = in_order(records)
    if len(counts) == 1:
        ((word, count),) = counts
        many = {1: "1 assertion", 2: "both assertions"}.get(count, f"all {count} assertions")
        yield f"{many} {word}"
    else:
        yield counts_words(records)
    yield from _headroom(records)


def _better(records: Sequence[Record]) -> Iterator[str]:
    if improved := [record for record in worst_first(records) if record.state == Outcome.IMPROVED]:
        yield _improved(improved)


def _improved(records: Sequence[Record]) -> str:
    record = led_by(records)[0]
    return f"improved: {_changed(record, _ranks_of(record))}"


def _headroom(records: Iterable[Record]) -> Iterator[str]:
    """The row that is nearest to failing, as a share of its limit."""
    found = [
        (near[0], number, record, near[1])
        for number, record in enumerate(records)
        if (near := nearest(row for row in record.verdict.rows if row.outcome is Outcome.PASSED and not row.waived))
    ]
    if not found:
        return
    _, _, record, row = min(found, key=lambda each: each[:2])
    unit, where = record.verdict.unit, place_words(row.labels)
    value, limit = apart(row, unit)
    held = f"{record.subject} {value}, limit {limit}" + (f", {where}" if where else "")
    yield f"least headroom {distance_words(row.margin or 0, unit)}: {held}"
