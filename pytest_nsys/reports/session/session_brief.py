"""How is a session, or a comparison, told in brief? Its story: the step, at most five roots, reds, doubts, commands."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_nsys.analysis.explain.breakdown_model import VIEW_BY_ACTIVITY
from pytest_nsys.core.model import NextStep
from pytest_nsys.core.text_format import quote_command
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.session.headline import format_headline
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.root_sentence import choose_story_names, format_root_sentence
from pytest_nsys.reports.session.session import Session, describe_not_run
from pytest_nsys.reports.session.story import select_failed_rows, sort_by_severity
from pytest_nsys.reports.tables.brief import (
    Brief,
    BriefCommand,
    BriefRanks,
    BriefRed,
    BriefRoot,
    BriefStep,
    BriefSubject,
    format_brief_ranks,
    format_brief_text,
    render_brief,
)
from pytest_nsys.reports.words.change_text import format_place

MAX_STEPS = 3
"""The most gate files, or configurations, whose step is told."""

MAX_COMMANDS = 5


def render_session_brief(session: Session) -> str:
    """Return the brief of a session as JSON text of at most 8 kB."""
    return render_brief(build_session_brief(session))


def build_session_brief(session: Session) -> Brief:
    """Return the brief of a session of pytest, or of a comparison."""
    story, comparison = session.story, session.comparison
    display_names = choose_story_names(story)
    bad_records = sort_by_severity(session.bad)
    steps = sorted(story.steps.values(), key=lambda step: (-abs(step.share), step.address))
    return Brief(
        subject=BriefSubject.SESSION if comparison is None else BriefSubject.COMPARISON,
        verdict=session.verdict if comparison is None else str(comparison.result),
        headline=format_brief_text(format_headline(session)),
        steps=[
            BriefStep(format_brief_text(step.address), step.noun, step.before_ns, step.now_ns)
            for step in steps[:MAX_STEPS]
        ],
        ranks=_build_ranks(session, bad_records),
        roots=[
            BriefRoot(
                text=format_brief_text(format_root_sentence(root, story, display_names)),
                kind=str(root.root.kind),
                name=format_brief_text(root.root.name),
                ranks=format_brief_ranks(root.ranks),
                waiting=format_brief_ranks(root.waiting_ranks),
                stages=[format_brief_text(stage) for stage in root.stages[:MAX_STEPS]],
                scope=format_brief_text(format_place(root.place).removeprefix(" in ")),
                amount_ns=root.largest.change_ns,
            )
            for root in story.roots
        ],
        reds=[_build_red(record) for record in bad_records],
        doubtful=[*map(format_brief_text, _list_doubts(session))],
        next=[
            BriefCommand(format_brief_text(step.command), format_brief_text(step.purpose))
            for step in list(dict.fromkeys(_list_commands(session, bad_records)))[:MAX_COMMANDS]
        ],
    )


def _build_ranks(session: Session, bad_records: list[AssertionRecord]) -> BriefRanks:
    """Return the number of ranks of the largest run, the slowest of the worst red, and the ranks that failed."""
    red_ranks = {
        rank
        for record in bad_records
        for row in select_failed_rows(record)
        if isinstance(rank := {**row.origin, **row.labels}.get("rank"), int)
    }
    lengths_by_rank = next(
        (record.verdict.step.current_ns for record in bad_records if record.verdict.step is not None), {}
    )
    return BriefRanks(
        max((world for world in session.story.world_sizes.values() if world is not None), default=None),
        max(sorted(lengths_by_rank), key=lambda rank: lengths_by_rank[rank], default=None),
        format_brief_ranks(red_ranks),
    )


def _list_commands(session: Session, bad_records: list[AssertionRecord]) -> Iterator[NextStep]:
    """Yield what to type next: the steps of the reds, with what writes a baseline at the end; of a comparison the view
    of each root, on head and on base.
    """
    steps = [step for record in bad_records for step in record.next_steps if step.is_typed]
    yield from sorted(steps, key=lambda step: step.command.startswith("pytest-nsys baseline "))
    if (comparison := session.comparison) is None:
        return
    for root in session.story.roots:
        view, rank = VIEW_BY_ACTIVITY.get(root.root.activity, "budget"), root.largest.rank
        for name, side in (("head", comparison.head), ("base", comparison.base)):
            for path in side.paths[:1]:
                command = quote_command(["pytest-nsys", path, "--view", view, "--rank", str(rank)])
                yield NextStep(command, f"where it happened, on the {name}")


def _build_red(record: AssertionRecord) -> BriefRed:
    item_name = f"{record.name}[{record.configuration}]" if record.configuration else record.name
    worst = record.worst
    value_text = ", ".join(filter(None, (worst["value"], worst["row"])))
    return BriefRed(
        format_brief_text(f"{record.file}::{item_name}"),
        format_brief_text(worst["limit"] or record.assertion.requirement.text),
        format_brief_text(value_text or record.message),
    )


def _list_doubts(session: Session) -> Iterator[str]:
    """Yield, each once, mistakes in gate files, what was not judged and why, and doubts about the traces."""
    mistakes = (f"{mistake.place}: {mistake.text}" for mistake in session.mistakes)
    unjudged_reasons = (
        f"{reason.outcome}: {reason.message}" for reason in session.story.not_judged if reason.outcome != Outcome.FAILED
    )
    trace_doubts = (note.text for record in session.records for note in record.verdict.notes if note.warning)
    not_run = [describe_not_run(session.not_run)] if session.not_run else []
    yield from dict.fromkeys((*mistakes, *not_run, *unjudged_reasons, *trace_doubts))
