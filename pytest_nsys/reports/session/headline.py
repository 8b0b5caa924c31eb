"""What happened, in one sentence? ``Step 12% slower (16.8 → 18.8 ms): flash_fwd_kernel 25% longer on both ranks``.

What is bad comes first: what happened to the step, the leading root cause and where it happened, what could not be
judged, what kept a file from being judged. If nothing is bad: what deserves a look, how many assertions held, and the
least headroom. The sentence claims no more than its records: it names only root causes of failed assertions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction

from pytest_nsys.analysis.explain.breakdown_model import ChangeKind, RowActivity
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.file_names import GateAddress
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import MULTIPLE_FROM, format_change, format_distinctly, format_percent, format_value
from pytest_nsys.core.text_format import format_count, format_labels, format_rank_ranges, sanitize_line
from pytest_nsys.core.units import HASH, SHARE_UNITS, TIME
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.root_sentence import choose_story_names, describe_addresses, format_root_sentence
from pytest_nsys.reports.session.session import Session, describe_not_run, format_counts, list_state_counts
from pytest_nsys.reports.session.story import (
    CHANGED_OUTCOMES,
    WINDOW_METRIC,
    RedAssertion,
    Story,
    StoryRoot,
    StoryStep,
    build_story,
    is_step_time,
    measures_kernel_span,
    sort_by_severity,
)
from pytest_nsys.reports.words.change_text import SHARE_DIGITS, format_before_after, format_change_share
from pytest_nsys.reports.words.verdict_text import describe_reason, format_crossed_limit, format_value_and_limit

MAX_MESSAGE_LENGTH = 160
"""The most characters of a message in the sentence; the page shows the full message below."""


def format_headline(session: Session) -> str:
    """Return the sentence of a session, or of a comparison.

    For a comparison that is not good although no assertion is bad, the sentence is the comparison's result.
    """
    story = session.story
    sentences = [*_describe_bad(session, story)]
    if session.mistakes:
        first, other_count = session.mistakes[0], len(session.mistakes) - 1
        sentences.append(
            f"not judged: {first.place}: {first.text}"
            + (f", and {format_count(other_count, 'more mistake')}" if other_count else "")
        )
    if session.merge_base is not None and session.merge_base.is_red:
        sentences.append(f"gate of the merge base: {session.merge_base.headline}")
    if not sentences and session.comparison is not None and not session.good:
        sentences = [session.headline]
    if not sentences:
        sentences += [session.exit_note] if session.exit_note else []
        sentences += _describe_good(session, story)
        sentences += [describe_not_run(session.not_run)] if session.not_run else []
    return as_sentence(
        sanitize_line("; ".join(sentences or [session.headline]), 1000), choose_story_names(story).values()
    )


_LEADING_WORDS = {f"{word}:" for word in (*Outcome, "undecided", "warning", "worse")}
"""Words before a colon that are not the name of a metric or file."""


def as_sentence(text: str, names: Collection[str] = ()) -> str:
    """Return text that begins with a capital letter, unless it begins with the name of a metric or file, or one of
    ``names``.
    """
    first = text.split(" ", 1)[0]
    # "pytest" is the name of a command, which is written in small letters.
    is_plain_word = first in _LEADING_WORDS or (first.isalpha() and first not in ("pytest", *names))
    return text[:1].upper() + text[1:] if is_plain_word else text


# What is bad


def _describe_bad(session: Session, story: Story) -> Iterator[str]:
    """Yield what failed, then what could not be judged."""
    if story.reds and not story.is_warning:
        faster_text = _describe_faster_step(session, story)
        first_part, *other_parts = describe_story(story._replace(steps={}) if faster_text else story).split("; and ")
        says_all = faster_text.endswith(f": {first_part}")  # one root cause made the step faster and these rows fail
        yield "; and ".join(
            [faster_text if says_all else f"{faster_text}; {first_part}" if faster_text else first_part, *other_parts]
        )
    yield from _describe_accepted(session.bad, session)
    unjudged_reasons = [reason for reason in story.not_judged if not all(record.good for record in reason.records)]
    for outcome, reasons in group_by_key((reason.outcome, reason) for reason in unjudged_reasons).items():
        count = sum(len(reason.records) for reason in reasons)
        if story.reds and not story.is_warning:
            yield f"{format_count(count, 'more assertion')} {_UNJUDGED_WORDS[outcome]}"
            continue
        title_text = "" if len(reasons[0].records) > 1 else f"{reasons[0].records[0].title}: "
        other_reasons = f", and {format_count(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
        message = _shorten_message(reasons[0].message)
        yield f"{format_count(count, 'assertion')} {_UNJUDGED_WORDS[outcome]}: {title_text}{message}{other_reasons}"
    yield from _describe_improved(
        session, session.bad, is_step_told=bool(story.reds) and story.most_changed_step is not None
    )


def _describe_faster_step(session: Session, story: Story) -> str:
    """Return why the step of a comparison is faster. Empty if it is not, or if the leading root of what improved does
    not explain it.
    """
    improved_records = [record for record in session.records if record.state == Outcome.IMPROVED]
    if (
        session.comparison is None
        or story.most_changed_step is None
        or not story.most_changed_step.is_faster
        or not improved_records
    ):
        return ""
    improved_story = build_story(session.records, improved_records)
    if not improved_story.roots or not _explains_half_of_step(improved_story.roots[0], story.most_changed_step):
        return ""
    return _join_step_and_text(_describe_step(story), _describe_leading_root(improved_story, with_effect=False), ": ")


def _describe_accepted(records: Iterable[AssertionRecord], session: Session) -> Iterator[str]:
    """Yield which failures the branch accepts, and whether they pass."""
    accepted_records = [record for record in records if record.state == Outcome.ACCEPTED]
    if accepted_records:
        red_text = "" if accepted_records[0].good else ", still red"
        yield f"accepted on this branch{red_text}: {describe_story(build_story(session.records, accepted_records))}"


def _shorten_message(message: str) -> str:
    """Return the first part of a message."""
    return sanitize_line(message.split("; ")[0], MAX_MESSAGE_LENGTH)


_UNJUDGED_WORDS = {
    Outcome.ERROR: "not judged",
    Outcome.INCOMPARABLE: "incomparable",
    Outcome.NO_DATA: "without data",
    Outcome.INCONCLUSIVE: "inconclusive",
}


def describe_story(story: Story) -> str:
    """Return what happened to the step, then what is at the root of it and where, of a story that has reds."""
    step, is_improvement = (
        story.most_changed_step,
        any(red.record.outcome is Outcome.IMPROVED for red in story.reds[:1]),
    )
    if not story.roots:
        sentence = _describe_unexplained(story)
    elif step is not None and step.unlike_counts is not None:
        return f"{_describe_step(story)}: compare windows of the same work"  # else each kernel would be a cause
    elif step is None or step.is_unchanged:
        sentence = _join_step_and_text(_describe_step(story), _describe_leading_root(story, with_effect=True), ": ")
    else:
        is_cause = (step.share < 0) is is_improvement and _is_root_of_step(story.roots[0], step)
        explains_little = is_cause and _leaves_most_unexplained(story, step)
        separator = ", most of it not explained; " if explains_little else ": " if is_cause else "; "
        sentence = _join_step_and_text(
            _describe_step(story), _describe_leading_root(story, with_effect=not is_cause), separator
        )
    other_causes = max(len(story.roots) - 1, 0)
    # Improvements are counted elsewhere; without roots, the sentence itself is about the first failed assertion.
    unexplained_count = 0 if is_improvement else len(story.rootless_records) - (not story.roots)
    other_parts = [format_count(other_causes, "more cause")] if other_causes else []
    other_parts += (
        [
            f"{format_count(unexplained_count, 'red')} without a known cause"
            if story.roots
            else format_count(unexplained_count, "more red")
        ]
        if unexplained_count
        else []
    )
    return "; and ".join([sentence, *other_parts])


def _join_step_and_text(step: str, text: str, separator: str) -> str:
    return f"{step}{separator}{text}" if step else text


def _describe_step(story: Story) -> str:
    """Return what happened to the step, of several configurations with its name; empty where no baseline is known."""
    step = story.most_changed_step
    if step is None:
        return ""
    return describe_step_length(
        step, f", {sanitize_line(_shorten_address(step.address))}" if len(story.leading_addresses) > 1 else ""
    )


def describe_step_length(step: StoryStep, suffix: str = "") -> str:
    """Return what happened to the length of a step: ``step 12% slower (16.8 → 18.8 ms)``.

    If its lengths are of two ranks, the text says so; of windows of unlike work it says nothing else.
    """
    if step.ranks is not None:
        before_rank, now_rank = step.ranks
        suffix = f", rank {before_rank}{f' → rank {now_rank}' if now_rank != before_rank else ''}{suffix}"
    if step.unlike_counts is not None:
        before, now = step.unlike_counts
        values_text = _format_values(step.before_ns, step.now_ns, TIME)
        return f"windows of unlike work ({before} → {now} kernels, {values_text}{suffix})"
    if step.is_unchanged:
        return f"{step.noun} unchanged ({format_value(step.now_ns)}{suffix})"
    longer, shorter = ("slower", "faster") if step.noun.endswith("step") else ("longer", "shorter")
    change_text = f"{format_change_share(abs(step.share))} {longer if step.share > 0 else shorter}"
    if step.share + 1 >= MULTIPLE_FROM:
        change_text = f"{round(step.share + 1)} times as long"
    return f"{step.noun} {change_text} ({_format_values(step.before_ns, step.now_ns, TIME)}{suffix})"


def _shorten_address(address: str) -> str:
    parsed_address = GateAddress.parse_file_and_configuration(address)
    return parsed_address.configuration or parsed_address.file


def _is_root_of_step(root: StoryRoot, step: StoryStep) -> bool:
    """Whether a root explains the change of a step's length: a row attributes it to the root, or the root changed in
    the same direction by at least half as much.
    """
    return root.explains_step or _explains_half_of_step(root, step)


def _explains_half_of_step(root: StoryRoot, step: StoryStep) -> bool:
    step_change_ns, change = step.now_ns - step.before_ns, root.largest.change_ns
    # A root that explains less than half of a change is not named as its cause.
    return step_change_ns * change > 0 and 2 * abs(change) >= abs(step_change_ns)


def _leaves_most_unexplained(story: Story, step: StoryStep) -> bool:
    """Whether all roots of a step together explain less than half of the change of its length."""
    changes = [root.largest for root in story.roots if root.explains_step]
    # Work split into more kernels, or moved to another stream, can change the step by more than its own duration.
    is_moved_elsewhere = any(change.count_change or change.root.kind is ChangeKind.ELSEWHERE for change in changes)
    explained_ns = sum(abs(change.change_ns) for change in changes)
    return bool(changes) and not is_moved_elsewhere and 2 * explained_ns < abs(step.now_ns - step.before_ns)


def _describe_leading_root(story: Story, *, with_effect: bool) -> str:
    root = story.roots[0]
    reds = sorted(
        root.reds, key=lambda red: red.record.subject.split()[-1] == WINDOW_METRIC
    )  # the length of a window would repeat what is said of the step
    display_names = choose_story_names(story)
    effect_text = (
        next(filter(None, (_describe_effect(red, root, display_names) for red in reds)), "") if with_effect else ""
    )
    return format_root_sentence(root, story, display_names, effect_text)


_LESS_KINDS = (ChangeKind.SHORTER, ChangeKind.RARELY, ChangeKind.GONE)
_IDLE_METRICS = frozenset({"idle_ns", "launch_starved_ns"})


def _describe_effect(red: RedAssertion, story_root: StoryRoot, display_names: Mapping[str, str]) -> str:
    """Return how the worst row of an assertion changed, ``, exposed 2 → 4.4 ms``; empty if its metric adds nothing to
    the sentence.
    """
    row, unit = red.rows[0] if red.rows else None, red.record.verdict.unit
    is_told = story_root.root.activity is RowActivity.IDLE and red.record.subject in _IDLE_METRICS
    if row is None or row.value is None or unit == HASH or is_told:
        return ""
    subject = red.record.subject.removesuffix("_ns").replace("_", " ") if unit == TIME else red.record.subject
    if quantile := row.labels.get("quantile"):
        subject = f"{quantile} of {subject}"
    if measures_kernel_span(red.record):
        subject = "the kernels of the step"
    if row.baseline is None:
        return f", {subject} {format_crossed_limit(row, red.record.verdict)}"
    change_text = _format_values(row.baseline, row.value, unit)
    if story_root.root.kind in _LESS_KINDS and red.record.subject in _IDLE_METRICS and row.value > row.baseline:
        return f", and the GPU idles instead: {change_text}"
    if (
        story_root.root.kind in _LESS_KINDS
        and red.record.subject == "exposed_ns"
        and (exposed_text := _describe_exposed(red, row, display_names))
    ):
        return f", so {exposed_text} is exposed {change_text},"
    return f", {subject} {change_text}"


def _describe_exposed(red: RedAssertion, row: JudgedRow, display_names: Mapping[str, str]) -> str:
    """Return the row's communication that compute hides less than before, ``SendRecv of stage2_f``; empty if
    unknown.
    """
    leading_causes = (
        explained_row.explanation.leading_cause
        for explained_row in red.record.verdict.causes
        if explained_row.labels == row.labels
    )
    name = next((cause.exposed_kernel for cause in leading_causes if cause is not None), "")
    stage = row.labels.get("stage", NO_STAGE)
    return display_names.get(name, name) + (f" of {stage}" if name and stage != NO_STAGE else "")


def _describe_unexplained(story: Story) -> str:
    """Return how the first red below no root changed; of the length of a step what happened to the step."""
    record, step = story.unexplained_reds[0].record, story.most_changed_step
    is_step_change = is_step_time(record) and step is not None and not step.is_unchanged
    ranks_text = _format_red_ranks(record) if is_step_change else ""
    sentence = (
        f"{_describe_step(story)}{ranks_text}"
        if is_step_change
        else _join_step_and_text(_describe_step(story), _describe_row_change(record), "; ")
    )
    if len(story.world_sizes) == 1:
        return sentence
    return f"{sentence} in {describe_addresses(story.failed_addresses, story)}"


def _find_leading_row(record: AssertionRecord) -> JudgedRow | None:
    """Return the row that the texts of a record describe: the one with the least margin, or for an improvement the best
    one.
    """
    rows = [row for row in record.verdict.rows if not row.waived and row.outcome is record.outcome]
    sign = -1 if record.outcome is Outcome.IMPROVED else 1
    rows_with_margin = [row for row in rows if row.margin is not None]
    return min(rows_with_margin, key=lambda row: sign * (row.margin or 0), default=next(iter(rows), None))


def _describe_row_change(record: AssertionRecord) -> str:
    """Return how the worst row of a record changed; without a baseline, how its value compares to its limit."""
    row = _find_leading_row(record)
    if row is None or record.outcome not in CHANGED_OUTCOMES:
        return f"{record.title}: {_shorten_message(record.message)}"
    value, baseline, unit = row.value, row.baseline, record.verdict.unit
    if value is None or baseline is None:
        return f"{record.subject_with_kind} {describe_reason(record.verdict)}"
    change_text = format_change(value, baseline, unit)
    if unit not in (*SHARE_UNITS, HASH) and baseline and abs(Fraction(value) / baseline) < MULTIPLE_FROM:
        change_text = _format_signed_share(Fraction(value) / baseline - 1)
    values_text = f" ({_format_values(baseline, value, unit)})" if unit != HASH else ""
    subject, place = _describe_row(record, row)
    return f"{subject} {change_text}{values_text}" + (f", {place}" if place else "")


def _describe_row(record: AssertionRecord, row: JudgedRow) -> tuple[str, str]:
    """Return what a row measures, ``p90 of period_ns``, and its place, ``rank 3``."""
    place_labels = {name: label for name, label in row.labels.items() if name != "quantile"}
    quantile_text = f"{row.labels['quantile']} of " if "quantile" in row.labels else ""
    return f"{quantile_text}{record.subject_with_kind}", format_labels(place_labels)


def _format_values(baseline: Value, current: Value, unit: str) -> str:
    """Return two values of a unit: ``16.8 → 18.8 ms``."""
    return format_before_after(*format_distinctly(baseline, current, unit))


def _format_signed_share(share: Fraction) -> str:
    return f"{'+' if share > 0 else ''}{format_percent(share, SHARE_DIGITS)}"


def _format_red_ranks(record: AssertionRecord) -> str:
    """Return on which ranks an assertion failed, `` on both ranks``; empty if there is only one rank, or none is
    known.
    """
    labels = (row.labels for row in record.verdict.rows if row.outcome is record.outcome)
    ranks = sorted({rank for row_labels in labels if isinstance(rank := row_labels.get("rank"), int)})
    world = record.key.world if record.key is not None else None
    if not ranks or world == 1:
        return ""
    if len(ranks) == world:
        return " on both ranks" if world == 2 else f" on all {world} ranks"
    return f" on {'rank' if len(ranks) == 1 else 'ranks'} {format_rank_ranges(ranks)}"


# What is good


def _describe_good(session: Session, story: Story) -> Iterator[str]:
    """Yield what deserves a look, how many assertions held, and the least headroom."""
    records = session.records
    if session.comparison is not None:
        from pytest_nsys.reports.session.comparison_tables import describe_claims  # it measures, and a gate need not

        yield from describe_claims(session.comparison)
    if story.is_warning:
        yield f"warning: {describe_story(story)}"
    yield from _describe_accepted(session.records, session)
    yield from _describe_improved(session, records)
    if not records:
        return
    counts = list_state_counts(records)
    if len(counts) == 1:
        ((state, count),) = counts
        assertion_text = {1: "1 assertion", 2: "both assertions"}.get(count, f"all {count} assertions")
        yield f"{assertion_text} {state}"
    else:
        yield format_counts(records)
    yield from _describe_headroom(records)


def _describe_improved(
    session: Session, records: Iterable[AssertionRecord], *, is_step_told: bool = False
) -> Iterator[str]:
    """Yield what improved. If the step is not faster, also yield what happened to it and why, unless ``is_step_told``:
    the sentence says so already.
    """
    improved_records = [record for record in records if record.state == Outcome.IMPROVED]
    if not improved_records:
        return
    story, word = (
        build_story(session.records, improved_records),
        "improved" if improved_records[0].good else "improved and red",
    )
    step, first = story.most_changed_step, sort_by_severity(improved_records)[0]
    if is_step_told:
        yield f"{word}: {_describe_row_change(first)}"
    elif step is not None and step.is_faster:
        yield f"{word}: {describe_story(story)}"
    else:
        reason = _describe_leading_root(story, with_effect=False) if story.roots else ""
        cost = _join_step_and_text(_describe_step(story), reason, ": ") if reason else _describe_step(story)
        yield "; ".join(filter(None, [f"{word}: {_describe_row_change(first)}", cost]))


def _describe_headroom(records: Iterable[AssertionRecord]) -> Iterator[str]:
    """Yield which row has the least headroom, as a share of its tolerance or limit."""
    # Of rows with equal headroom, take the first by file, line and name: the order of execution must not matter.
    candidates = [
        (row.headroom, number, record, row)
        for number, record in enumerate(sorted(records, key=lambda record: record.identity))
        for row in record.verdict.rows
        if row.headroom is not None and row.outcome is Outcome.PASSED and not row.waived
    ]
    if not candidates:
        return
    headroom, _, record, row = min(candidates, key=lambda candidate: candidate[:2])
    value, limit = format_value_and_limit(row, record.verdict.unit)
    subject, place = _describe_row(record, row)
    limit_kind = "tolerance" if row.times_tolerance is not None else "limit"
    row_text = f"{subject} {value}, limit {limit}" + (f", {place}" if place else "")
    yield f"least headroom {format_percent(headroom, SHARE_DIGITS)} of {limit_kind}: {row_text}"
