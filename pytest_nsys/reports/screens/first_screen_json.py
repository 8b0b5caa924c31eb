"""What does a program read of the first screen? One object, as ``first_screen.schema.json`` describes it.

Times are ns, shares between 0 and 1, and nothing is rounded to be read.
"""

from __future__ import annotations

from typing import Any

from pytest_nsys.analysis.steps.words import repeats_words
from pytest_nsys.analysis.summary.findings import Finding
from pytest_nsys.analysis.summary.summary import StepLength, Summary
from pytest_nsys.core.conventions import written_anchor
from pytest_nsys.core.model import Value
from pytest_nsys.reports.screens.findings import sentence
from pytest_nsys.reports.screens.next_steps import next_steps, to_see_more
from pytest_nsys.reports.tables.formats import as_json

VERSION = 1

Json = dict[str, Any]


def as_json_screen(summary: Summary) -> str:
    """Return the first screen as JSON text."""
    return as_json(screen(summary))


def screen(summary: Summary) -> Json:
    """Return the summary as a program reads it."""
    subject, kernels, communication, dominant_activity = (
        summary.subject,
        summary.kernels,
        summary.communication,
        summary.mostly,
    )
    return {
        "version": VERSION,
        "traces": [*summary.traces],
        "subject": {
            "profiler": subject.profiler,
            "framework": subject.framework,
            "gpu": subject.gpu,
            "ranks": [*subject.ranks],
            "absent_ranks": subject.absent,
            "mesh": dict(subject.mesh),
            "files": subject.files,
            "captures": subject.captures,
        },
        "measured": _measured(summary),
        "step": _step(summary.step),
        "ranks": [
            {
                "rank": budget.rank,
                "window_ns": budget.window_ns,
                "parts": [
                    {"part": part, "ns": ns, "share": float(budget.shares[part])} for part, ns in budget.parts.items()
                ],
                "bounded": budget.bounded,
                "why": budget.why,
            }
            for budget in summary.budgets
        ],
        "without": {str(rank): why for rank, why in summary.without.items()},
        "kernels": [
            {
                "name": kernel.name,
                "called": kernel.called,
                "family": kernel.family,
                "ns": _number(kernel.ns),
                "launches": _number(kernel.launches),
                "share": _number(kernel.share),
            }
            for kernel in kernels.largest
        ],
        "other_kernels": kernels.others,
        "other_kernels_ns": _number(kernels.others_ns),
        "communication_by": communication.by,
        "communication_shares_streams": communication.shared,
        "communication": [
            {
                "name": row.name,
                "rank": row.rank,
                "ns": _number(row.ns),
                "exposed_ns": _number(row.exposed_ns),
                "overlap": _number(row.overlap),
                "busbw": _number(row.busbw),
            }
            for row in communication.every
        ],
        "no_communication": communication.why,
        "findings": [_finding(finding, summary) for finding in summary.findings],
        "doubts": [*summary.doubts],
        "mostly": dominant_activity
        and {
            "of": dominant_activity.of,
            "share": float(dominant_activity.share),
            "what": dominant_activity.what,
            "gap_ns": dominant_activity.gap_ns,
        },
        "next": [
            {"command": step.command, "what": step.what}
            for step in next_steps(
                summary.traces, summary.options, summary.first, summary.kind_of_several, is_cut=summary.subject.is_cut
            )
        ],
    }


def _number(value: Value | None) -> int | float | None:
    return value if value is None or isinstance(value, int) else float(value)


def _measured(summary: Summary) -> Json:
    selection = summary.subject.found
    return {
        "convention": selection.convention,
        "anchor": None if selection.anchor is None else written_anchor(selection.anchor),
        "anchors": selection.count,
        "index": selection.index,
        "name": selection.name,
        "part_of_a_step": selection.part,
        "whole_run": selection.whole_run,
        "window": selection.window,
        "span": selection.span,
        "kernels": selection.kernels,
        "repeats": repeats_words(summary.searched),
    }


def _step(step: StepLength) -> Json:
    fastest_rank, fastest_ns = step.fastest or (None, None)
    return {
        "metric": step.metric,
        "ns": _number(step.ns),
        "slowest_rank": step.slowest,
        "fastest_rank": fastest_rank,
        "fastest_ns": _number(fastest_ns),
        "quantiles_ns": {name: _number(ns) for name, ns in step.quantiles.items()},
        "steady": step.steady,
        "steps": step.steps,
        "longest": step.longest and step.longest._asdict(),
        "rates": [{"metric": rate.metric, "value": _number(rate.value), "unit": rate.unit} for rate in step.rates],
        "why": step.why,
        "kinds": [{"kind": kind, "count": number, "ns": _number(ns)} for kind, number, ns in step.kinds],
    }


def _finding(each: Finding, summary: Summary) -> Json:
    figures = each.figures.items()
    return {
        "kind": each.kind,
        "text": sentence(each, beside=summary.kernels.names),
        "rank": each.rank,
        "ranks": [*each.ranks],
        "figures": {name: figure if isinstance(figure, str) else _number(figure) for name, figure in figures},
        "win_ns": each.win_ns,
        "share": None if each.share is None else float(each.share),
        "command": to_see_more(each, summary.first, summary.options),
    }
