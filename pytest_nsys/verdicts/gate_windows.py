"""Which windows does a gate file look at? They are cut from every rank into one small trace with the same verdict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from pytest_nsys.analysis.captures.trace_cut import RunCut, cut_run, render_cut
from pytest_nsys.analysis.metrics.registry import METRICS, PERIOD_METRIC, Better
from pytest_nsys.analysis.metrics.table import MetricTable, matches_label, select_meant_rows
from pytest_nsys.analysis.metrics.throughput import QUANTILES
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.errors import NothingMeasured, NsysError, TraceError, UsageMistake
from pytest_nsys.core.file_names import WINDOW_SUFFIX
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.text_format import format_count
from pytest_nsys.core.units import HASH
from pytest_nsys.gates.model import Assertion, GateFile, resolve_window_spec
from pytest_nsys.verdicts.evaluate import GateContext
from pytest_nsys.verdicts.window_breakdowns import MEDIAN_PERIOD, find_step_spec, find_typical_step


def cut_gate_windows(
    gate: GateFile, run: Run, most_kernels: int | None = None, ranks: frozenset[int] | None = None
) -> RunCut:
    """Cut the windows that the assertions of a gate file look at, of all ranks or of some; specs without a window are
    left out.

    Raises NothingMeasured where that leaves nothing, UsageMistake where no assertion judges a trace, and where the
    windows hold more than ``most_kernels``.
    """
    held_specs: dict[WindowSpec, None] = {}
    first_error: NothingMeasured | None = None
    for spec in dict.fromkeys(_list_gate_specs(gate, run)):
        try:
            windows_by_rank = run.load_windows(spec).require_filled_windows(ranks)
            held_specs[spec] = None
        except NothingMeasured as error:
            first_error = first_error or error
            continue
        kernels = sum(len(window) for windows in windows_by_rank.values() for window in windows)
        if most_kernels is not None and kernels > most_kernels:
            raise UsageMistake(f"{spec} holds {format_count(kernels, 'kernel')}, of at most {most_kernels}")
    if not held_specs:
        raise first_error or UsageMistake(f"{gate.path}: no assertion judges a trace, so there is nothing to cut")
    stages = gate.workload.pipeline
    range_patterns = (*(stages.first + stages.second if stages else ()), *gate.workload.blocks)
    return cut_run(run, list(held_specs), ranks, range_patterns)


def _list_gate_specs(gate: GateFile, run: Run) -> Iterator[WindowSpec]:
    """Yield the window specs that the assertions are judged on, then the periods that explain a quantile or a step.

    The median period is always among them, as a baseline keeps it.
    """
    assertion_specs = [
        (a, resolve_window_spec(gate.resolved_convention, a)) for a in gate.assertions if a.outside_metric is None
    ]
    yield from (spec for _, spec in assertion_specs)
    for assertion, spec in assertion_specs:
        if "quantile" in assertion.measured_metric.dimensions:
            selector = assertion.where.get("quantile")
            for quantile in (f"p{number}" for number in QUANTILES):
                is_selected = selector is None or any(matches_label(value, quantile) for value in selector.values)
                if is_selected or quantile == MEDIAN_PERIOD:
                    typical_spec = find_typical_step(run, spec, quantile)
                    yield from () if typical_spec is None else (typical_spec,)
        elif assertion.measured_metric.of_slowest_rank:
            step_spec = find_step_spec(run, spec)
            yield from () if step_spec is None else (step_spec,)


MOST_KEPT_KERNELS = 50_000
"""At 20 bytes a packed kernel no more fit into a baseline's window file; packing a million to find that out takes a
minute.
"""


def pack_gate_windows(context: GateContext, ranks: frozenset[int] | None = None) -> bytes:
    """Pack the windows that a gate file judges, of all ranks or of some, as the file that is kept next to its baseline.

    Raises NothingMeasured, UsageMistake where there is nothing to keep, or too much.
    """
    return render_cut(cut_gate_windows(context.gate, context.captures.runs[0], MOST_KEPT_KERNELS, ranks)).pack(
        WINDOW_SUFFIX
    )


class RepresentativeRanks(NamedTuple):
    """Holds the numbers of the ranks that represent a run: of each judged metric the worst, and the worst, the middle
    and the best.
    """

    worst: frozenset[int]  # the worst rank of each judged metric
    spread: frozenset[int]  # the worst, the middle and the best rank of each judged metric


def select_representative_ranks(context: GateContext) -> RepresentativeRanks:
    """Return the ranks that represent a run best: of each judged metric the worst, the middle and the best one.

    Of equal ranks the lowest number counts. A step time is represented by the ranks' own step lengths; where no metric
    has ranks, the lowest rank represents all.
    """
    captures = context.captures
    spread: list[tuple[int, int, int]] = []
    for assertion in context.gate.assertions:
        metric = METRICS[PERIOD_METRIC] if assertion.measured_metric.of_slowest_rank else assertion.measured_metric
        if assertion.outside_metric is not None or metric.unit == HASH or "rank" not in metric.dimensions:
            continue
        sign = -1 if metric.better is Better.HIGHER else 1  # so that of each metric the largest is the worst
        with suppress(NsysError):  # judging reports the error
            rows = select_meant_rows(
                captures.measure_rows(metric, resolve_window_spec(captures.convention, assertion)), assertion.where
            )
            values_by_rank = group_by_key((int(labels["rank"]), sign * value) for labels, value in rows)
            worst_ranks_first = sorted(values_by_rank, key=lambda rank: (-max(values_by_rank[rank]), rank))
            spread += (
                [(worst_ranks_first[0], worst_ranks_first[len(worst_ranks_first) // 2], worst_ranks_first[-1])]
                if worst_ranks_first
                else []
            )
    # No metric has ranks: the lowest one stands for all.
    spread = spread or [(min(rank.number for rank in captures.runs[0].ranks),) * 3]
    return RepresentativeRanks(frozenset(worst for worst, *_ in spread), frozenset(chain(*spread)))


class UnjudgedAssertion(NamedTuple):
    """Names an assertion that has rows in a trace and none in the trace's cut, with the reason."""

    assertion: Assertion
    reason: str


def list_unjudged_assertions(full_context: GateContext, cut_context: GateContext) -> Iterator[UnjudgedAssertion]:
    """Yield the assertions that cannot be judged on a cut, though they can on its trace.

    Raises TraceError if an assertion would be judged by other rows than on the trace.
    """
    for assertion in full_context.gate.assertions:
        if assertion.outside_metric is not None:
            continue
        full_rows, cut_rows = _measure_or_error(assertion, full_context), _measure_or_error(assertion, cut_context)
        if isinstance(full_rows, MetricTable) and isinstance(cut_rows, NsysError):
            yield UnjudgedAssertion(assertion, str(cut_rows).removeprefix(f"{cut_context.captures.runs[0].path}: "))
        elif _make_rows_key(full_rows) != _make_rows_key(cut_rows):
            raise TraceError(
                f"{assertion.location.file_and_line}: '{assertion.full_name}' has other rows in a cut of these "
                "traces: judge "
                "it on the traces"
            )


def _measure_or_error(assertion: Assertion, context: GateContext) -> MetricTable | NsysError:
    try:
        return context.measure(context.resolve(assertion))
    except NsysError as error:
        return error


def _make_rows_key(table_or_error: MetricTable | NsysError) -> object:
    return (
        type(table_or_error)
        if isinstance(table_or_error, NsysError)
        else (table_or_error.rows, table_or_error.missing, table_or_error.unseen)
    )
