"""What do the views of kernels and collectives say below their tables?

For kernels: the divisor of the sums, and the rest of the step. For collectives: the stragglers, and what is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.metrics.collective_waits import describe_clock_agreement, find_stragglers, match_waits
from pytest_nsys.analysis.metrics.collectives import group_transfers, list_missing_sizes
from pytest_nsys.analysis.metrics.families import FamilySums, sum_families
from pytest_nsys.analysis.summary.trace_environment import name_measured_unit
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.exact import simplify_fraction
from pytest_nsys.core.families import FAMILIES
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, format_ranks, sanitize_line
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.reports.tables.formats import align_rows
from pytest_nsys.reports.views.view import ViewRequest, ViewSummary


def _explain_step_count(sums: FamilySums, measured: str) -> str:
    """Return the source of the number of steps in the window."""
    if measured == "window" and sums.step_count == 1:
        return "the window counts as one"
    if sums.run.workload.steps is None:
        return "the window is one" if sums.is_one_anchor else "anchors"
    return "stated" if sums.run.workload.steps > 1 or sums.has_anchors else "the whole run counts as one"


def _list_sums(sums: FamilySums, facts: Mapping[str, object], measured: str) -> Iterator[tuple[str, str]]:
    """Yield what was measured, the divisor of its sums, and the part of the step without kernels, as pairs of name and
    text.
    """
    gpu_source = f"{format_value(Fraction(sums.gpu_count, sums.run.file_count), BARE)} per file"
    if not sums.has_all_ranks:
        gpu_source = f"{format_ranks(sums.rank_numbers)}, of {len(sums.run.ranks)}"
    yield "trace files", str(sums.run.file_count)
    yield "GPUs", f"{sums.gpu_count} ({gpu_source})"
    yield "steps", f"{sums.step_count} ({facts['steps_counted']})"
    yield "divisor", f"{sums.divisor} = {format_count(sums.gpu_count, 'GPU')} x {format_count(sums.step_count, 'step')}"
    yield "launcher", str(sums.launcher)
    yield "looked at", str(facts["looked_at"])
    if facts["families"] != BUILT_IN:
        yield "families", str(facts["families"])
    yield (
        "shares",
        f"of {measured}: of {format_value(sums.window_ns)}, the mean over the ranks; of kernels: of total kernel",
    )
    yield "total kernel", f"{format_value(sums.total.time_ns)} per GPU and step"
    step, rest_text = sums.step_time, "unknown: state the step with --step-time 412ms"
    if step is not None:
        source = ", stated"
        if step.period_count is not None:
            source = f", the median of {format_count(step.period_count, 'steady period')} without that after the window"
        rest_text = f"{format_value(_subtract_kernels(sums))} (of {format_value(step.length_ns)}{source})"
    yield "step - total kernel", rest_text


def _subtract_kernels(sums: FamilySums) -> Value:
    """Return the time of the step minus that of its kernels, in ns; 0 if unknown."""
    return (
        simplify_fraction(Fraction(sums.step_time.length_ns) - sums.total.time_ns) if sums.step_time is not None else 0
    )


BUILT_IN = "built-in"


def _build_facts(sums: FamilySums, request: ViewRequest) -> dict[str, object]:
    """Return the facts about the sums for programs: times in ns, per GPU and step."""
    step = sums.step_time
    return {
        "trace_files": sums.run.file_count,
        "gpus": sums.gpu_count,
        "steps": sums.step_count,
        "steps_counted": _explain_step_count(sums, describe_measured(request)),
        "window_ns": _to_plain_number(sums.window_ns),
        "divisor": sums.divisor,
        "launcher": str(sums.launcher),
        "looked_at": str(request.spec),
        "families": BUILT_IN if sums.run.convention.families == FAMILIES else "its own",
        "total_kernel_ns": _to_plain_number(sums.total.time_ns),
        "total_launches": _to_plain_number(sums.total.launches),
        "step_ns": None if step is None else _to_plain_number(step.length_ns),
        "step_stated": step is not None and step.period_count is None,
        "step_minus_kernel_ns": None if step is None else _to_plain_number(_subtract_kernels(sums)),
    }


def _to_plain_number(value: Value) -> int | float:
    return value if isinstance(value, int) else float(value)


def describe_measured(request: ViewRequest) -> str:
    """Return in one word what is measured; shares are parts of it."""
    return name_measured_unit(request.captures.convention, request.spec)


def summarize_kernels(request: ViewRequest) -> ViewSummary:
    """Return the lines on the divisor of the sums, and on the part of the step without kernels."""
    sums, run = sum_families(request.requested_ranks_window), request.run
    facts = _build_facts(sums, request)
    notes = [Note(text) for facts_of_run in run.facts for text in facts_of_run.notes]
    if request.spec.is_whole_run and run.workload.steps is None:
        step_source = f"steps are the {format_count(sums.step_count, 'anchor')} of each rank"
        notes.append(Note(f"{step_source}, and kernels outside of them are counted with them: --steps says otherwise"))
    return ViewSummary(
        lines_below=align_rows([*_list_sums(sums, facts, describe_measured(request))]), facts=facts, notes=notes
    )


def summarize_collectives(request: ViewRequest) -> ViewSummary:
    """Return the stragglers, how well the clocks agree, and what the traces do not contain."""
    window, clocks = request.all_ranks_window, match_waits(request.all_ranks_window)
    straggler_rows = [
        {"group": group, "collective": collective, "rank": rank, "lag_ns": lag_ns}
        for (group, collective), rank, lag_ns in find_stragglers(clocks)
    ]
    residual_rows = [
        {
            "group": group,
            "clocks": agreement.clock_count,
            "ends": agreement.end_count,
            "residual_ns": agreement.residual_ns,
        }
        for group, agreement in sorted(clocks.agreements.items())
    ]
    lines = [
        f"straggler of {sanitize_line(group, 60)} {collective}: rank {rank} waits {format_value(lag_ns, TIME)} less "
        "than "
        "the longest"
        for (group, collective), rank, lag_ns in find_stragglers(clocks)
    ]
    notes = [
        *describe_clock_agreement(window),
        *_list_unknown_transfers([window.by_rank[rank] for rank in sorted({*request.ranks})]),
    ]
    notes += [f"no waits of {line}" for line in clocks.unmatched_reasons]
    if window.run.workload.peak_gb_per_s is None:
        notes.append("no utilisation: --peak 400GB/s states the bandwidth of the network per GPU")
    return ViewSummary(
        lines_below=lines, facts={"stragglers": straggler_rows, "residuals": residual_rows}, notes=[*map(Note, notes)]
    )


def _list_unknown_transfers(windows: Sequence[RankWindow]) -> Iterator[str]:
    """Yield a line for each fact about transfers that the traces do not contain."""
    # Without message sizes no bandwidth can be computed on any rank: one line says so.
    windows_without_sizes = [
        window for window in windows if window.track.collectives is None and group_transfers(window)
    ]
    if windows_without_sizes:
        yield f"no bytes, bandwidths and waits: {windows_without_sizes[0].track.trace_context.facts.to_see_sizes}"
    for window in windows:
        if window.track.collectives is not None:
            yield from (f"rank {window.rank.number}: {line}" for line in list_missing_sizes(window))
