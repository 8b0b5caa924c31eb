"""How is a trace told in brief? Its step, its findings, what makes figures doubtful, and the commands to type next."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pytest_nsys.analysis.summary.findings import Finding
from pytest_nsys.analysis.summary.summary import Summary
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import NextStep
from pytest_nsys.core.numbers import format_percent, format_value
from pytest_nsys.core.text_format import shorten_paths
from pytest_nsys.reports.screens.findings import format_finding
from pytest_nsys.reports.screens.next_steps import format_detail_command, list_next_steps
from pytest_nsys.reports.tables.brief import (
    Brief,
    BriefCommand,
    BriefRanks,
    BriefRoot,
    BriefStep,
    BriefSubject,
    format_brief_ranks,
    format_brief_text,
)

KERNEL_FIGURES = ("kernel", "collective", "mostly", "call", "before")
"""The figures of a finding that name what it is about, the most specific first."""


SAME_LENGTH_SHARE = Fraction(5, 100)
"""A window whose length differs by more of the step's is named beside it."""

FINDING_PURPOSE = "more of this finding"
"""What a command for a finding is for."""


def build_trace_brief(summary: Summary) -> Brief:
    """Return the brief of a run."""
    step = summary.step
    noun = "step" if step.metric.startswith("step") else "window"
    if summary.summarized_step_kind:
        noun = f"{summary.summarized_step_kind} {noun}"
    return Brief(
        subject=BriefSubject.TRACE,
        verdict="measured",
        headline=format_brief_text(_describe_run(summary, noun)),
        steps=[BriefStep("", noun, None, round(step.ns))],
        ranks=BriefRanks(len(summary.environment.ranks) + summary.environment.absent_rank_count, step.slowest_rank, ""),
        roots=[_build_root(finding, summary) for finding in summary.findings],
        reds=[],
        doubtful=[*map(format_brief_text, _list_doubts(summary))],
        next=[BriefCommand(format_brief_text(each.command), each.purpose) for each in _list_commands(summary)],
    )


def _describe_run(summary: Summary, noun: str) -> str:
    """Return the sentence of a run: ``Step 17.8 ms on rank 1 of 2: 16.3% of it collective``."""
    step, environment = summary.step, summary.environment
    rank_text = f" on rank {step.slowest_rank}, the slowest of {len(environment.ranks)}" * (len(environment.ranks) > 1)
    text = f"{noun.capitalize()} {format_value(step.ns)}{rank_text}"
    budget = next((budget for budget in summary.budgets if budget.rank == step.slowest_rank), None)
    if budget is None or not budget.parts:
        return f"{text} ({environment.profiler}, {environment.gpu_model or 'unknown GPU'})"
    shares = sorted(budget.shares.items(), key=lambda item: (-item[1], item[0]))
    shown_shares = [f"{part} {format_percent(share)}" for part, share in shares[:3] if share >= 0.01]
    is_other_length = distance(budget.window_ns, step.ns) > SAME_LENGTH_SHARE * Fraction(step.ns)
    if is_other_length and not environment.selection.is_whole_run:  # shares are of the judged window
        window_option = environment.selection.numbered_window_option
        text += f"; of the window of {format_value(budget.window_ns)} (--window {window_option})"
    return f"{text}: {', '.join(shown_shares)}"


def _build_root(finding: Finding, summary: Summary) -> BriefRoot:
    names = (str(finding.figures[name]) for name in KERNEL_FIGURES if finding.figures.get(name))
    return BriefRoot(
        text=format_brief_text(format_finding(finding, other_names=summary.kernels.names)),
        kind=str(finding.kind),
        name=format_brief_text(next(names, "")),
        ranks=format_brief_ranks(finding.ranks),
        waiting="",
        stages=[format_brief_text(str(finding.figures["stage"]))] if finding.figures.get("stage") else [],
        scope="",
        amount_ns=finding.win_ns,
    )


def _list_doubts(summary: Summary) -> Iterator[str]:
    """Yield what makes figures doubtful, then why the step or ranks could not be measured."""
    yield from summary.doubts
    if summary.step.reason:
        yield f"step: {shorten_paths(summary.step.reason)}"
    yield from (f"rank {rank}: {reason}" for rank, reason in summary.unmeasured_ranks.items())


def _list_commands(summary: Summary) -> Iterator[NextStep]:
    """Yield the command that shows more of each finding, then those of the first screen."""
    commands = [
        format_detail_command(finding, summary.first_capture_paths, summary.options) for finding in summary.findings
    ]
    yield from (NextStep(command, FINDING_PURPOSE) for command in dict.fromkeys(commands))
    yield from list_next_steps(
        summary.traces,
        summary.options,
        summary.first_capture_paths,
        summary.summarized_step_kind,
        is_cut=summary.environment.is_cut,
    )
