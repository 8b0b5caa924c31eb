"""How is the first screen given to programs? As one JSON object, described by ``first_screen.schema.json``.

Times are in ns, shares between 0 and 1, and nothing is rounded.
"""

from __future__ import annotations

from typing import Any

from pytest_nsys.analysis.steps.search_text import describe_repeats
from pytest_nsys.analysis.summary.findings import Finding
from pytest_nsys.analysis.summary.summary import StepLength, Summary
from pytest_nsys.core.conventions import format_anchor
from pytest_nsys.core.model import Value
from pytest_nsys.reports.screens.findings import format_finding
from pytest_nsys.reports.screens.next_steps import format_detail_command, list_next_steps
from pytest_nsys.reports.tables.formats import render_json

SCREEN_SCHEMA_VERSION = 1

Json = dict[str, Any]


def render_screen_json(summary: Summary) -> str:
    """Return the first screen as JSON text."""
    return render_json(build_screen_object(summary))


def build_screen_object(summary: Summary) -> Json:
    """Return the summary as an object for programs."""
    subject, kernels, communication, dominant_activity = (
        summary.environment,
        summary.kernels,
        summary.communication,
        summary.dominant_activity,
    )
    return {
        "version": SCREEN_SCHEMA_VERSION,
        "traces": [*summary.traces],
        "subject": {
            "profiler": subject.profiler,
            "framework": subject.framework,
            "gpu": subject.gpu_model,
            "ranks": [*subject.ranks],
            "absent_ranks": subject.absent_rank_count,
            "mesh": dict(subject.mesh_sizes),
            "files": subject.file_count,
            "captures": subject.capture_count,
        },
        "measured": _build_measured_object(summary),
        "step": _build_step_object(summary.step),
        "ranks": [
            {
                "rank": budget.rank,
                "window_ns": budget.window_ns,
                "parts": [
                    {"part": part, "ns": ns, "share": float(budget.shares[part])} for part, ns in budget.parts.items()
                ],
                "bounded": budget.is_bounded,
                "why": budget.reason,
            }
            for budget in summary.budgets
        ],
        "without": {str(rank): why for rank, why in summary.unmeasured_ranks.items()},
        "kernels": [
            {
                "name": kernel.name,
                "called": kernel.display_name,
                "family": kernel.family,
                "ns": _make_json_number(kernel.ns),
                "launches": _make_json_number(kernel.launch_count),
                "share": _make_json_number(kernel.share),
            }
            for kernel in kernels.largest
        ],
        "other_kernels": kernels.other_count,
        "other_kernels_ns": _make_json_number(kernels.others_ns),
        "communication_by": communication.grouping,
        "communication_shares_streams": communication.counts_shared_streams,
        "communication": [
            {
                "name": row.name,
                "rank": row.rank,
                "ns": _make_json_number(row.total_ns),
                "exposed_ns": _make_json_number(row.exposed_ns),
                "overlap": _make_json_number(row.overlap_share),
                "busbw": _make_json_number(row.bus_gb_per_s),
            }
            for row in communication.total_and_parts
        ],
        "no_communication": communication.reason,
        "findings": [_build_finding_object(finding, summary) for finding in summary.findings],
        "doubts": [*summary.doubts],
        "mostly": dominant_activity
        and {
            "of": dominant_activity.kind,
            "share": float(dominant_activity.share),
            "what": dominant_activity.subject,
            "gap_ns": dominant_activity.gap_ns,
        },
        "next": [
            {"command": step.command, "what": step.purpose}
            for step in list_next_steps(
                summary.traces,
                summary.options,
                summary.first_capture_paths,
                summary.summarized_step_kind,
                is_cut=summary.environment.is_cut,
            )
        ],
    }


def _make_json_number(value: Value | None) -> int | float | None:
    return value if value is None or isinstance(value, int) else float(value)


def _build_measured_object(summary: Summary) -> Json:
    selection = summary.environment.selection
    return {
        "convention": selection.convention,
        "anchor": None if selection.anchor is None else format_anchor(selection.anchor),
        "anchors": selection.anchor_count,
        "index": selection.index,
        "name": selection.anchor_name,
        "part_of_a_step": selection.is_part_of_step,
        "whole_run": selection.is_whole_run,
        "window": selection.window,
        "span": selection.span,
        "kernels": selection.kernels,
        "repeats": describe_repeats(summary.searched),
    }


def _build_step_object(step: StepLength) -> Json:
    fastest_rank, fastest_ns = step.fastest_rank or (None, None)
    return {
        "metric": step.metric,
        "ns": _make_json_number(step.ns),
        "slowest_rank": step.slowest_rank,
        "fastest_rank": fastest_rank,
        "fastest_ns": _make_json_number(fastest_ns),
        "quantiles_ns": {name: _make_json_number(ns) for name, ns in step.quantiles.items()},
        "steady": step.steady_count,
        "steps": step.step_count,
        "longest": step.longest and step.longest._asdict(),
        "rates": [
            {"metric": rate.metric, "value": _make_json_number(rate.value), "unit": rate.unit} for rate in step.rates
        ],
        "why": step.reason,
        "kinds": [{"kind": kind, "count": number, "ns": _make_json_number(ns)} for kind, number, ns in step.kinds],
    }


def _build_finding_object(finding: Finding, summary: Summary) -> Json:
    figures = finding.figures.items()
    return {
        "kind": finding.kind,
        "text": format_finding(finding, other_names=summary.kernels.names),
        "rank": finding.rank,
        "ranks": [*finding.ranks],
        "figures": {name: figure if isinstance(figure, str) else _make_json_number(figure) for name, figure in figures},
        "win_ns": finding.win_ns,
        "share": None if finding.share is None else float(finding.share),
        "command": format_detail_command(finding, summary.first_capture_paths, summary.options),
    }
