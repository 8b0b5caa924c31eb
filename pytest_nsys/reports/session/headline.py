"""What happened, in one sentence? ``Step 12% slower (16.8 → 18.8 ms): flash_fwd_kernel 25% longer on both ranks``.

What is bad comes first: what happened to the step, the root that leads and where, what could not be judged, what kept a
file from being judged. Where nothing is bad, what deserves a look, what held, and the least headroom. The sentence
claims no more than its records: it names only what is at the root of a red.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction

from pytest_nsys.analysis.explain.parts import ChangeKind
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import TIMES, change_words, format_apart, format_value, percent
from pytest_nsys.core.units import HASH, SHARES, TIME
from pytest_nsys.core.words import counted, place_words, printable, rank_ranges
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.roots import called_in, in_how_many, root_sentence
from pytest_nsys.reports.session.session import Session, counts_words, in_order, not_run_words
from pytest_nsys.reports.session.story import (
    MOVED,
    WINDOW,
    Red,
    StepTold,
    Story,
    StoryRoot,
    is_of_kernels,
    is_step_time,
    led_by,
    story_of,
)
from pytest_nsys.reports.words.explanation import apart, crossed_words, reason_words
from pytest_nsys.reports.words.roots import DIGITS, both_words, share_words

LONGEST = 160
"""Of a message; the page has all of it below."""


def of_session(session: Session) -> str:
    """The sentence of a session, or of a comparison, which says its result where no assertion is bad and yet it is not
    good.
    """
    story = session.story
    said = [*_bad(session, story)]
    if session.mistakes:
        first, more = session.mistakes[0], len(session.mistakes) - 1
        said.append(
            f"not judged: {first.place}: {first.text}" + (f", and {counted(more, 'more mistake')}" if more else "")
        )
    if session.merge_base is not None and session.merge_base.red:
        said.append(f"gate of the merge base: {session.merge_base.headline}")
    if not said and session.comparison is not None and not session.good:
        said = [session.headline]
    if not said:
        said += [session.ending] if session.ending else []
        said += _good(session, story)
        said += [not_run_words(session.not_run)] if session.not_run else []
    return as_sentence(printable("; ".join(said or [session.headline]), 1000), called_in(story).values())


_LEADS = {f"{word}:" for word in (*Outcome, "undecided", "warning", "worse")}
"""What stands before a colon and is no name."""


def as_sentence(text: str, names: Collection[str] = ()) -> str:
    """Names of metrics and files, as before a colon, and of ``names`` stay as they are written; a plain word begins
    with a capital.
    """
    first = text.split(" ", 1)[0]
    plain = first in _LEADS or (first.isalpha() and first not in ("pytest", *names))
    return text[:1].upper() + text[1:] if plain else text


# What is bad


def _bad(session: Session, story: Story) -> Iterator[str]:
    """What failed, then what could not be judged."""
    if story.reds and not story.warning:
        faster = _faster(session, story)
        what, *left = story_sentence(story._replace(steps={}) if faster else story).split("; and ")
        told = faster.endswith(f": {what}")  # one root made the step faster and these rows red
        yield "; and ".join([faster if told else f"{faster}; {what}" if faster else what, *left])
    yield from _accepted(session.bad, session)
    unjudged = [each for each in story.not_judged if not all(record.good for record in each.records)]
    for outcome, own in grouped((each.outcome, each) for each in unjudged).items():
        count = sum(len(each.records) for each in own)
        if story.reds and not story.warning:
            yield f"{counted(count, 'more assertion')} {_WORDS[outcome]}"
            continue
        what = "" if len(own[0].records) > 1 else f"{own[0].records[0].title}: "
        more = f", and {counted(len(own) - 1, 'other reason')}" if len(own) > 1 else ""
        yield f"{counted(count, 'assertion')} {_WORDS[outcome]}: {what}{_in_short(own[0].message)}{more}"
    yield from _improved(session, session.bad, told=bool(story.reds) and story.step is not None)


def _faster(session: Session, story: Story) -> str:
    """Why the step of a comparison is faster, where that is not what its reds are about; else empty."""
    better = [record for record in session.records if record.state == Outcome.IMPROVED]
    if session.comparison is None or story.step is None or story.step.unchanged or story.step.share >= 0 or not better:
        return ""
    own = story_of(session.records, better)
    if not own.roots or not _accounts_for(own.roots[0], story.step):
        return ""
    return _joined(_step_words(story), _root(own, effect=False), ": ")


def _accepted(records: Iterable[Record], session: Session) -> Iterator[str]:
    """What the branch accepts, and whether that is let pass."""
    accepted = [record for record in records if record.state == Outcome.ACCEPTED]
    if accepted:
        still = "" if accepted[0].good else ", still red"
        yield f"accepted on this branch{still}: {story_sentence(story_of(session.records, accepted))}"


def _in_short(message: str) -> str:
    """The first thing that a message says."""
    return printable(message.split("; ")[0], LONGEST)


_WORDS = {
    Outcome.ERROR: "not judged",
    Outcome.INCOMPARABLE: "incomparable",
    Outcome.NO_DATA: "without data",
    Outcome.INCONCLUSIVE: "inconclusive",
}


def story_sentence(story: Story) -> str:
    """What happened to the step, then what is at the root of it, and where; of a story with reds."""
    step, better = story.step, any(red.record.outcome is Outcome.IMPROVED for red in story.reds[:1])
    if not story.roots:
        said = _unexplained(story)
    elif step is None or step.unchanged:
        said = _joined(_step_words(story), _root(story, effect=True), ": ")
    else:
        because = (step.share < 0) is better and _is_behind(story.roots[0], step)
        little = because and _leaves_most(story, step)
        between = ", most of it not explained; " if little else ": " if because else "; "
        said = _joined(_step_words(story), _root(story, effect=not because), between)
    more = max(len(story.roots) - 1, 0)
    unknown = 0 if better else len(story.rootless) - (not story.roots)  # what improved is counted behind
    left = [counted(more, "more cause")] if more else []
    left += (
        [f"{counted(unknown, 'red')} without a known cause" if story.roots else counted(unknown, "more red")]
        if unknown
        else []
    )
    return "; and ".join([said, *left])


def _joined(step: str, what: str, between: str) -> str:
    return f"{step}{between}{what}" if step else what


def _step_words(story: Story) -> str:
    """What happened to the step, of several configurations with the name of the one; empty where no length before is
    known.
    """
    step = story.step
    if step is None:
        return ""
    return length_words(step, f", {printable(_short_address(step.address))}" if len(story.leading) > 1 else "")


def length_words(step: StepTold, of: str = "") -> str:
    """``step 12% slower (16.8 → 18.8 ms)``."""
    if step.unchanged:
        return f"{step.noun} unchanged ({format_value(step.now_ns)}{of})"
    longer, shorter = ("slower", "faster") if step.noun.endswith("step") else ("longer", "shorter")
    words = f"{share_words(abs(step.share))} {longer if step.share > 0 else shorter}"
    if step.share + 1 >= TIMES:
        words = f"{round(step.share + 1)} times as long"
    return f"{step.noun} {words} ({_both(step.before_ns, step.now_ns, TIME)}{of})"


def _short_address(address: str) -> str:
    own = Address.of(address)
    return own.configuration or own.file


def _is_behind(root: StoryRoot, step: StepTold) -> bool:
    """Whether the length of a step moved by what a root did: a row says so, or it went the same way by half of it."""
    return root.of_step or _accounts_for(root, step)


def _accounts_for(root: StoryRoot, step: StepTold) -> bool:
    moved, change = step.now_ns - step.before_ns, root.largest.change_ns
    return moved * change > 0 and 2 * abs(change) >= abs(moved)


def _leaves_most(story: Story, step: StepTold) -> bool:
    """Whether all roots of a step together are less than half of what its length moved by."""
    changes = [root.largest for root in story.roots if root.of_step]
    elsewhere = any(change.more or change.root.kind is ChangeKind.ELSEWHERE for change in changes)  # in other pieces
    told_ns = sum(abs(change.change_ns) for change in changes)
    return bool(changes) and not elsewhere and 2 * told_ns < abs(step.now_ns - step.before_ns)


def _root(story: Story, *, effect: bool) -> str:
    root = story.roots[0]
    reds = sorted(root.reds, key=lambda red: red.record.subject.split()[-1] == WINDOW)  # says no more than the step
    called = called_in(story)
    did = next(filter(None, (_effect(red, root, called) for red in reds)), "") if effect else ""
    return root_sentence(root, story, called, did)


_LESS = (ChangeKind.SHORTER, ChangeKind.RARELY, ChangeKind.GONE)
_IDLE = frozenset({"idle_ns", "launch_starved_ns"})


def _effect(red: Red, told: StoryRoot, called: Mapping[str, str]) -> str:
    """What became of the worst row of an assertion: `` exposed 2 → 4.4 ms``; empty where its metric says no more."""
    row, unit = red.rows[0] if red.rows else None, red.record.verdict.unit
    if row is None or row.value is None or unit == HASH:
        return ""
    spoken = red.record.subject.removesuffix("_ns").replace("_", " ") if unit == TIME else red.record.subject
    if quantile := row.labels.get("quantile"):
        spoken = f"{quantile} of {spoken}"
    if is_of_kernels(red.record):
        spoken = "the kernels of the step"
    if row.baseline is None:
        return f", {spoken} {crossed_words(row, red.record.verdict)}"
    both = _both(row.baseline, row.value, unit)
    if told.root.kind in _LESS and red.record.subject in _IDLE and row.value > row.baseline:
        return f", and the GPU idles instead: {both}"
    if told.root.kind in _LESS and red.record.subject == "exposed_ns" and (what := _exposed(red, row, called)):
        return f", so {what} is exposed {both},"
    return f", {spoken} {both}"


def _exposed(red: Red, row: JudgedRow, called: Mapping[str, str]) -> str:
    """The communication of a row of which less is hidden: ``SendRecv of stage2_f``; empty where it is not known."""
    causes = (each.explanation.leading for each in red.record.verdict.causes if each.labels == row.labels)
    name = next((cause.exposes for cause in causes if cause is not None), "")
    stage = row.labels.get("stage", NO_STAGE)
    return called.get(name, name) + (f" of {stage}" if name and stage != NO_STAGE else "")


def _unexplained(story: Story) -> str:
    """What is red below no root: how it changed, of the length of a step its own."""
    record, step = story.unexplained[0].record, story.step
    own = is_step_time(record) and step is not None and not step.unchanged
    where = _ranks_of(record) if own else ""
    said = f"{_step_words(story)}{where}" if own else _joined(_step_words(story), _changed(record), "; ")
    if len(story.worlds) == 1:
        return said
    return f"{said} in {in_how_many(story.failed, story)}"


def _row(record: Record) -> JudgedRow | None:
    """The row that the texts of a record are of: that with the least margin, of an improvement the best one."""
    rows = [row for row in record.verdict.rows if not row.waived and row.outcome is record.outcome]
    sign = -1 if record.outcome is Outcome.IMPROVED else 1
    judged = [row for row in rows if row.margin is not None]
    return min(judged, key=lambda row: sign * (row.margin or 0), default=next(iter(rows), None))


def _changed(record: Record) -> str:
    """How the worst row of a record changed; where nothing is stored, how it stands to its limit."""
    row = _row(record)
    if row is None or record.outcome not in MOVED:
        return f"{record.title}: {_in_short(record.message)}"
    value, baseline, unit = row.value, row.baseline, record.verdict.unit
    if value is None or baseline is None:
        return f"{record.of_kind} {reason_words(record.verdict)}"
    moved = change_words(value, baseline, unit)
    if unit not in (*SHARES, HASH) and baseline and abs(Fraction(value) / baseline) < TIMES:
        moved = _share(Fraction(value) / baseline - 1)
    both = f" ({_both(baseline, value, unit)})" if unit != HASH else ""
    what, where = _row_words(record, row)
    return f"{what} {moved}{both}" + (f", {where}" if where else "")


def _row_words(record: Record, row: JudgedRow) -> tuple[str, str]:
    """What a row is of, and where it stands: ``p90 of period_ns`` and ``rank 3``; either is one of several rows."""
    places = {name: label for name, label in row.labels.items() if name != "quantile"}
    of = f"{row.labels['quantile']} of " if "quantile" in row.labels else ""
    return f"{of}{record.of_kind}", place_words(places)


def _both(before: Value, now: Value, unit: str) -> str:
    """``16.8 → 18.8 ms``."""
    return both_words(*format_apart(before, now, unit))


def _share(share: Fraction) -> str:
    return f"{'+' if share > 0 else ''}{percent(share, DIGITS)}"


def _ranks_of(record: Record) -> str:
    """`` on both ranks``; empty where there is one rank, or none is known."""
    labels = (row.labels for row in record.verdict.rows if row.outcome is record.outcome)
    ranks = sorted({rank for own in labels if isinstance(rank := own.get("rank"), int)})
    world = record.key.world if record.key is not None else None
    if not ranks or world == 1:
        return ""
    if len(ranks) == world:
        return " on both ranks" if world == 2 else f" on all {world} ranks"
    return f" on {'rank' if len(ranks) == 1 else 'ranks'} {rank_ranges(ranks)}"


# What is good


def _good(session: Session, story: Story) -> Iterator[str]:
    """What deserves a look, how many held, and the least headroom."""
    records = session.records
    if story.warning:
        yield f"warning: {story_sentence(story)}"
    yield from _accepted(session.records, session)
    yield from _improved(session, records)
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


def _improved(session: Session, records: Iterable[Record], *, told: bool = False) -> Iterator[str]:
    """What is better, and what it cost: where the step is not faster, what happened to that and why. ``told``: the
    step is spoken of already.
    """
    better = [record for record in records if record.state == Outcome.IMPROVED]
    if not better:
        return
    story, word = story_of(session.records, better), "improved" if better[0].good else "improved and red"
    step, first = story.step, led_by(better)[0]
    if told:
        yield f"{word}: {_changed(first)}"
    elif step is not None and step.share < 0 and not step.unchanged:
        yield f"{word}: {story_sentence(story)}"
    else:
        why = _root(story, effect=False) if story.roots else ""
        cost = _joined(_step_words(story), why, ": ") if why else _step_words(story)
        yield "; ".join(filter(None, [f"{word}: {_changed(first)}", cost]))


def _headroom(records: Iterable[Record]) -> Iterator[str]:
    """The row that has least left of what it may lose, and how much that is."""
    found = [
        (row.headroom, number, record, row)
        for number, record in enumerate(sorted(records, key=lambda record: record.known_by))
        for row in record.verdict.rows
        if row.headroom is not None and row.outcome is Outcome.PASSED and not row.waived
    ]
    if not found:
        return
    left, _, record, row = min(found, key=lambda each: each[:2])
    value, limit = apart(row, record.verdict.unit)
    what, where = _row_words(record, row)
    of = "tolerance" if row.times_tolerance is not None else "limit"
    held = f"{what} {value}, limit {limit}" + (f", {where}" if where else "")
    yield f"least headroom {percent(left, DIGITS)} of {of}: {held}"
