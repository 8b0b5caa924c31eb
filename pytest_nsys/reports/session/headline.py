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
"""The most characters of a message in the sentence; the page has all of it below."""


def of_session(session: Session) -> str:
    """Return the sentence of a session, or of a comparison.

    A comparison in which no assertion is bad and that is not good all the same has its result as the sentence.
    """
    story = session.story
    sentences = [*_bad(session, story)]
    if session.mistakes:
        first, other_count = session.mistakes[0], len(session.mistakes) - 1
        sentences.append(
            f"not judged: {first.place}: {first.text}"
            + (f", and {counted(other_count, 'more mistake')}" if other_count else "")
        )
    if session.merge_base is not None and session.merge_base.red:
        sentences.append(f"gate of the merge base: {session.merge_base.headline}")
    if not sentences and session.comparison is not None and not session.good:
        sentences = [session.headline]
    if not sentences:
        sentences += [session.ending] if session.ending else []
        sentences += _good(session, story)
        sentences += [not_run_words(session.not_run)] if session.not_run else []
    return as_sentence(printable("; ".join(sentences or [session.headline]), 1000), called_in(story).values())


_LEADS = {f"{word}:" for word in (*Outcome, "undecided", "warning", "worse")}
"""Words before a colon that are no names of metrics or files."""


def as_sentence(text: str, names: Collection[str] = ()) -> str:
    """Return text that begins with a capital; names of metrics and files, and those of ``names``, stay as they are
    written.
    """
    first = text.split(" ", 1)[0]
    is_plain_word = first in _LEADS or (first.isalpha() and first not in ("pytest", *names))
    return text[:1].upper() + text[1:] if is_plain_word else text


# What is bad


def _bad(session: Session, story: Story) -> Iterator[str]:
    """Yield what failed, then what could not be judged."""
    if story.reds and not story.warning:
        faster_text = _faster(session, story)
        first_part, *other_parts = story_sentence(story._replace(steps={}) if faster_text else story).split("; and ")
        says_all = faster_text.endswith(f": {first_part}")  # one root made the step faster and these rows red
        yield "; and ".join(
            [faster_text if says_all else f"{faster_text}; {first_part}" if faster_text else first_part, *other_parts]
        )
    yield from _accepted(session.bad, session)
    unjudged_reasons = [reason for reason in story.not_judged if not all(record.good for record in reason.records)]
    for outcome, reasons in grouped((reason.outcome, reason) for reason in unjudged_reasons).items():
        count = sum(len(reason.records) for reason in reasons)
        if story.reds and not story.warning:
            yield f"{counted(count, 'more assertion')} {_WORDS[outcome]}"
            continue
        title_text = "" if len(reasons[0].records) > 1 else f"{reasons[0].records[0].title}: "
        other_reasons = f", and {counted(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
        message = _in_short(reasons[0].message)
        yield f"{counted(count, 'assertion')} {_WORDS[outcome]}: {title_text}{message}{other_reasons}"
    yield from _improved(session, session.bad, told=bool(story.reds) and story.step is not None)


def _faster(session: Session, story: Story) -> str:
    """Return why the step of a comparison is faster; empty where it is not, or where its reds are about that."""
    improved_records = [record for record in session.records if record.state == Outcome.IMPROVED]
    if (
        session.comparison is None
        or story.step is None
        or story.step.unchanged
        or story.step.share >= 0
        or not improved_records
    ):
        return ""
    improved_story = story_of(session.records, improved_records)
    if not improved_story.roots or not _accounts_for(improved_story.roots[0], story.step):
        return ""
    return _joined(_step_words(story), _root(improved_story, effect=False), ": ")


def _accepted(records: Iterable[Record], session: Session) -> Iterator[str]:
    """Yield what the branch accepts, and whether that is let pass."""
    accepted_records = [record for record in records if record.state == Outcome.ACCEPTED]
    if accepted_records:
        still_red = "" if accepted_records[0].good else ", still red"
        yield f"accepted on this branch{still_red}: {story_sentence(story_of(session.records, accepted_records))}"


def _in_short(message: str) -> str:
    """Return the first part of a message."""
    return printable(message.split("; ")[0], LONGEST)


_WORDS = {
    Outcome.ERROR: "not judged",
    Outcome.INCOMPARABLE: "incomparable",
    Outcome.NO_DATA: "without data",
    Outcome.INCONCLUSIVE: "inconclusive",
}


def story_sentence(story: Story) -> str:
    """Return what happened to the step, then what is at the root of it and where, of a story that has reds."""
    step, is_improvement = story.step, any(red.record.outcome is Outcome.IMPROVED for red in story.reds[:1])
    if not story.roots:
        sentence = _unexplained(story)
    elif step is None or step.unchanged:
        sentence = _joined(_step_words(story), _root(story, effect=True), ": ")
    else:
        is_cause = (step.share < 0) is is_improvement and _is_behind(story.roots[0], step)
        explains_little = is_cause and _leaves_most(story, step)
        separator = ", most of it not explained; " if explains_little else ": " if is_cause else "; "
        sentence = _joined(_step_words(story), _root(story, effect=not is_cause), separator)
    other_causes = max(len(story.roots) - 1, 0)
    # Improvements are counted in a part of their own; without roots the first red is the sentence itself.
    unexplained_count = 0 if is_improvement else len(story.rootless) - (not story.roots)
    other_parts = [counted(other_causes, "more cause")] if other_causes else []
    other_parts += (
        [
            f"{counted(unexplained_count, 'red')} without a known cause"
            if story.roots
            else counted(unexplained_count, "more red")
        ]
        if unexplained_count
        else []
    )
    return "; and ".join([sentence, *other_parts])


def _joined(step: str, what: str, between: str) -> str:
    return f"{step}{between}{what}" if step else what


def _step_words(story: Story) -> str:
    """Return what happened to the step, of several configurations with its name; empty where no baseline is known."""
    step = story.step
    if step is None:
        return ""
    return length_words(step, f", {printable(_short_address(step.address))}" if len(story.leading) > 1 else "")


def length_words(step: StepTold, of: str = "") -> str:
    """Return what happened to the length of a step: ``step 12% slower (16.8 → 18.8 ms)``."""
    if step.unchanged:
        return f"{step.noun} unchanged ({format_value(step.now_ns)}{of})"
    longer, shorter = ("slower", "faster") if step.noun.endswith("step") else ("longer", "shorter")
    change_text = f"{share_words(abs(step.share))} {longer if step.share > 0 else shorter}"
    if step.share + 1 >= TIMES:
        change_text = f"{round(step.share + 1)} times as long"
    return f"{step.noun} {change_text} ({_both(step.before_ns, step.now_ns, TIME)}{of})"


def _short_address(address: str) -> str:
    parsed = Address.of(address)
    return parsed.configuration or parsed.file


def _is_behind(root: StoryRoot, step: StepTold) -> bool:
    """Whether a root explains the change of a step's length: by a row, or as it changed the same way by half of it."""
    return root.of_step or _accounts_for(root, step)


def _accounts_for(root: StoryRoot, step: StepTold) -> bool:
    step_change_ns, change = step.now_ns - step.before_ns, root.largest.change_ns
    return step_change_ns * change > 0 and 2 * abs(change) >= abs(step_change_ns)


def _leaves_most(story: Story, step: StepTold) -> bool:
    """Whether all roots of a step together are less than half of what its length changed by."""
    changes = [root.largest for root in story.roots if root.of_step]
    # What runs in more pieces or on another stream changes the step by more than its own length.
    is_moved_elsewhere = any(change.more or change.root.kind is ChangeKind.ELSEWHERE for change in changes)
    explained_ns = sum(abs(change.change_ns) for change in changes)
    return bool(changes) and not is_moved_elsewhere and 2 * explained_ns < abs(step.now_ns - step.before_ns)


def _root(story: Story, *, effect: bool) -> str:
    root = story.roots[0]
    reds = sorted(
        root.reds, key=lambda red: red.record.subject.split()[-1] == WINDOW
    )  # a window's length says no more than the step does
    display_names = called_in(story)
    effect_text = next(filter(None, (_effect(red, root, display_names) for red in reds)), "") if effect else ""
    return root_sentence(root, story, display_names, effect_text)


_LESS = (ChangeKind.SHORTER, ChangeKind.RARELY, ChangeKind.GONE)
_IDLE = frozenset({"idle_ns", "launch_starved_ns"})


def _effect(red: Red, told: StoryRoot, called: Mapping[str, str]) -> str:
    """Return what became of the worst row of an assertion, ``, exposed 2 → 4.4 ms``; empty where its metric says no
    more.
    """
    row, unit = red.rows[0] if red.rows else None, red.record.verdict.unit
    if row is None or row.value is None or unit == HASH:
        return ""
    subject = red.record.subject.removesuffix("_ns").replace("_", " ") if unit == TIME else red.record.subject
    if quantile := row.labels.get("quantile"):
        subject = f"{quantile} of {subject}"
    if is_of_kernels(red.record):
        subject = "the kernels of the step"
    if row.baseline is None:
        return f", {subject} {crossed_words(row, red.record.verdict)}"
    change_text = _both(row.baseline, row.value, unit)
    if told.root.kind in _LESS and red.record.subject in _IDLE and row.value > row.baseline:
        return f", and the GPU idles instead: {change_text}"
    if told.root.kind in _LESS and red.record.subject == "exposed_ns" and (exposed_text := _exposed(red, row, called)):
        return f", so {exposed_text} is exposed {change_text},"
    return f", {subject} {change_text}"


def _exposed(red: Red, row: JudgedRow, called: Mapping[str, str]) -> str:
    """Return the communication of a row of which less is hidden, ``SendRecv of stage2_f``; empty where unknown."""
    leading_causes = (
        explained.explanation.leading for explained in red.record.verdict.causes if explained.labels == row.labels
    )
    name = next((cause.exposes for cause in leading_causes if cause is not None), "")
    stage = row.labels.get("stage", NO_STAGE)
    return called.get(name, name) + (f" of {stage}" if name and stage != NO_STAGE else "")


def _unexplained(story: Story) -> str:
    """Return how the first red below no root changed; of the length of a step what happened to the step."""
    record, step = story.unexplained[0].record, story.step
    is_step_change = is_step_time(record) and step is not None and not step.unchanged
    ranks_text = _ranks_of(record) if is_step_change else ""
    sentence = (
        f"{_step_words(story)}{ranks_text}" if is_step_change else _joined(_step_words(story), _changed(record), "; ")
    )
    if len(story.worlds) == 1:
        return sentence
    return f"{sentence} in {in_how_many(story.failed, story)}"


def _row(record: Record) -> JudgedRow | None:
    """Return the row that the texts of a record are of: that with the least margin, of an improvement the best one."""
    rows = [row for row in record.verdict.rows if not row.waived and row.outcome is record.outcome]
    sign = -1 if record.outcome is Outcome.IMPROVED else 1
    rows_with_margin = [row for row in rows if row.margin is not None]
    return min(rows_with_margin, key=lambda row: sign * (row.margin or 0), default=next(iter(rows), None))


def _changed(record: Record) -> str:
    """Return how the worst row of a record changed; where nothing is stored, how it stands to its limit."""
    row = _row(record)
    if row is None or record.outcome not in MOVED:
        return f"{record.title}: {_in_short(record.message)}"
    value, baseline, unit = row.value, row.baseline, record.verdict.unit
    if value is None or baseline is None:
        return f"{record.of_kind} {reason_words(record.verdict)}"
    change_text = change_words(value, baseline, unit)
    if unit not in (*SHARES, HASH) and baseline and abs(Fraction(value) / baseline) < TIMES:
        change_text = _share(Fraction(value) / baseline - 1)
    values_text = f" ({_both(baseline, value, unit)})" if unit != HASH else ""
    subject, place = _row_words(record, row)
    return f"{subject} {change_text}{values_text}" + (f", {place}" if place else "")


def _row_words(record: Record, row: JudgedRow) -> tuple[str, str]:
    """Return what a row is of, ``p90 of period_ns``, and where it stands, ``rank 3``."""
    place_labels = {name: label for name, label in row.labels.items() if name != "quantile"}
    quantile_text = f"{row.labels['quantile']} of " if "quantile" in row.labels else ""
    return f"{quantile_text}{record.of_kind}", place_words(place_labels)


def _both(before: Value, now: Value, unit: str) -> str:
    """Return two values of a unit: ``16.8 → 18.8 ms``."""
    return both_words(*format_apart(before, now, unit))


def _share(share: Fraction) -> str:
    return f"{'+' if share > 0 else ''}{percent(share, DIGITS)}"


def _ranks_of(record: Record) -> str:
    """Return on which ranks a record is red, `` on both ranks``; empty where there is one rank, or none is known."""
    labels = (row.labels for row in record.verdict.rows if row.outcome is record.outcome)
    ranks = sorted({rank for row_labels in labels if isinstance(rank := row_labels.get("rank"), int)})
    world = record.key.world if record.key is not None else None
    if not ranks or world == 1:
        return ""
    if len(ranks) == world:
        return " on both ranks" if world == 2 else f" on all {world} ranks"
    return f" on {'rank' if len(ranks) == 1 else 'ranks'} {rank_ranges(ranks)}"


# What is good


def _good(session: Session, story: Story) -> Iterator[str]:
    """Yield what deserves a look, how many assertions held, and the least headroom."""
    records = session.records
    if story.warning:
        yield f"warning: {story_sentence(story)}"
    yield from _accepted(session.records, session)
    yield from _improved(session, records)
    if not records:
        return
    counts = in_order(records)
    if len(counts) == 1:
        ((state, count),) = counts
        assertion_text = {1: "1 assertion", 2: "both assertions"}.get(count, f"all {count} assertions")
        yield f"{assertion_text} {state}"
    else:
        yield counts_words(records)
    yield from _headroom(records)


def _improved(session: Session, records: Iterable[Record], *, told: bool = False) -> Iterator[str]:
    """Yield what improved; where the step is not faster, what happened to that and why, unless the step
    ``is_step_told``.
    """
    improved_records = [record for record in records if record.state == Outcome.IMPROVED]
    if not improved_records:
        return
    story, word = (
        story_of(session.records, improved_records),
        "improved" if improved_records[0].good else "improved and red",
    )
    step, first = story.step, led_by(improved_records)[0]
    if told:
        yield f"{word}: {_changed(first)}"
    elif step is not None and step.share < 0 and not step.unchanged:
        yield f"{word}: {story_sentence(story)}"
    else:
        reason = _root(story, effect=False) if story.roots else ""
        cost = _joined(_step_words(story), reason, ": ") if reason else _step_words(story)
        yield "; ".join(filter(None, [f"{word}: {_changed(first)}", cost]))


def _headroom(records: Iterable[Record]) -> Iterator[str]:
    """Yield which row has least left of what it may lose, and how much that is."""
    candidates = [
        (row.headroom, number, record, row)
        for number, record in enumerate(sorted(records, key=lambda record: record.known_by))
        for row in record.verdict.rows
        if row.headroom is not None and row.outcome is Outcome.PASSED and not row.waived
    ]
    if not candidates:
        return
    headroom, _, record, row = min(candidates, key=lambda candidate: candidate[:2])
    value, limit = apart(row, record.verdict.unit)
    subject, place = _row_words(record, row)
    limit_kind = "tolerance" if row.times_tolerance is not None else "limit"
    row_text = f"{subject} {value}, limit {limit}" + (f", {place}" if place else "")
    yield f"least headroom {percent(headroom, DIGITS)} of {limit_kind}: {row_text}"
