"""Which windows does a gate file look at? All of them, of every rank, as one cut that is judged as the trace is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from pytest_nsys.analysis.captures.cut import RunCut, cut, write_cut
from pytest_nsys.analysis.metrics.registry import METRICS, PERIOD, Better
from pytest_nsys.analysis.metrics.table import MetricTable, matches, meant
from pytest_nsys.analysis.metrics.throughput import QUANTILES
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.errors import NothingMeasured, NsysError, TraceError, UsageMistake
from pytest_nsys.core.file_names import WINDOW_SUFFIX
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.units import HASH
from pytest_nsys.core.words import counted
from pytest_nsys.gates.model import Assertion, GateFile, spec_for
from pytest_nsys.verdicts.apart import MEDIAN_PERIOD, step_of, typical_period
from pytest_nsys.verdicts.evaluate import GateContext


def gate_windows(
    gate: GateFile, run: Run, most_kernels: int | None = None, ranks: frozenset[int] | None = None
) -> RunCut:
    """Cut the windows that the assertions of a gate file look at, of all ranks or of some; specs without a window are
    left out.

    Raises NothingMeasured where that leaves nothing, UsageMistake where no assertion judges a trace, and where the
    windows hold more than ``most_kernels``.
    """
    held_specs: dict[WindowSpec, None] = {}
    first_error: NothingMeasured | None = None
    for spec in dict.fromkeys(_looked_at(gate, run)):
        try:
            windows_by_rank = run.measured(spec).filled(ranks)
            held_specs[spec] = None
        except NothingMeasured as error:
            first_error = first_error or error
            continue
        kernels = sum(len(window) for windows in windows_by_rank.values() for window in windows)
        if most_kernels is not None and kernels > most_kernels:
            raise UsageMistake(f"{spec} holds {counted(kernels, 'kernel')}, of at most {most_kernels}")
    if not held_specs:
        raise first_error or UsageMistake(f"{gate.path}: no assertion judges a trace, so there is nothing to cut")
    stages = gate.workload.pipeline
    range_patterns = (*(stages.first + stages.second if stages else ()), *gate.workload.blocks)
    return cut(run, list(held_specs), ranks, range_patterns)


def _looked_at(gate: GateFile, run: Run) -> Iterator[WindowSpec]:
    """Yield the window specs that the assertions are judged on, then the periods that explain a quantile or a step.

    The period of the median is always among them, as a baseline keeps it.
    """
    assertion_specs = [(a, spec_for(gate.resolved_convention, a)) for a in gate.assertions if a.outside is None]
    yield from (spec for _, spec in assertion_specs)
    for assertion, spec in assertion_specs:
        if "quantile" in assertion.measures.dimensions:
            selector = assertion.where.get("quantile")
            for quantile in (f"p{number}" for number in QUANTILES):
                is_selected = selector is None or any(matches(value, quantile) for value in selector.values)
                if is_selected or quantile == MEDIAN_PERIOD:
                    typical_spec = typical_period(run, spec, quantile)
                    yield from () if typical_spec is None else (typical_spec,)
        elif assertion.measures.slowest:
            step_spec = step_of(run, spec)
            yield from () if step_spec is None else (step_spec,)


MOST_KEPT_KERNELS = 50_000
"""At 20 bytes of a packed kernel no more fit beside a baseline; a million would take a minute to find that out."""


def kept_windows(context: GateContext, ranks: frozenset[int] | None = None) -> bytes:
    """Pack the windows that a gate file judges, of all ranks or of some, as the file that is kept beside its baseline.

    Raises NothingMeasured, UsageMistake where there is nothing to keep, or too much.
    """
    return write_cut(gate_windows(context.gate, context.captures.runs[0], MOST_KEPT_KERNELS, ranks)).packed(
        WINDOW_SUFFIX
    )


class TellingRanks(NamedTuple):
    """Holds the ranks that represent a run best."""

    worst: frozenset[int]  # of each judged metric
    spread: frozenset[int]  # of each judged metric the worst, the middle and the best


def telling_ranks(context: GateContext) -> TellingRanks:
    """Return the ranks that represent a run best: of each judged metric the worst, the middle and the best one.

    Of ranks alike it is the lowest. A step time is represented by the ranks' own step lengths; where no metric has
    ranks, the lowest rank represents all.
    """
    captures = context.captures
    spread: list[tuple[int, int, int]] = []
    for assertion in context.gate.assertions:
        metric = METRICS[PERIOD] if assertion.measures.slowest else assertion.measures
        if assertion.outside is not None or metric.unit == HASH or "rank" not in metric.dimensions:
            continue
        sign = -1 if metric.better is Better.HIGHER else 1  # so that of each metric the largest is the worst
        with suppress(NsysError):  # which is told where it is judged
            rows = meant(captures.rows(metric, spec_for(captures.convention, assertion)), assertion.where)
            values_by_rank = grouped((int(labels["rank"]), sign * value) for labels, value in rows)
            worst_ranks_first = sorted(values_by_rank, key=lambda rank: (-max(values_by_rank[rank]), rank))
            spread += (
                [(worst_ranks_first[0], worst_ranks_first[len(worst_ranks_first) // 2], worst_ranks_first[-1])]
                if worst_ranks_first
                else []
            )
    # No metric has ranks: the lowest one stands for all.
    spread = spread or [(min(rank.number for rank in captures.runs[0].ranks),) * 3]
    return TellingRanks(frozenset(worst for worst, *_ in spread), frozenset(chain(*spread)))


class Unheld(NamedTuple):
    """Names an assertion that has rows in a trace and none in its cut, and says why."""

    assertion: Assertion
    why: str


def unheld(trace: GateContext, small: GateContext) -> Iterator[Unheld]:
    """Yield the assertions that cannot be judged on a cut, though they can on its trace.

    Raises TraceError where one would be judged by other rows.
    """
    for assertion in trace.gate.assertions:
        if assertion.outside is not None:
            continue
        full_rows, cut_rows = _rows(assertion, trace), _rows(assertion, small)
        if isinstance(full_rows, MetricTable) and isinstance(cut_rows, NsysError):
            yield Unheld(assertion, str(cut_rows).removeprefix(f"{small.captures.runs[0].path}: "))
        elif _told(full_rows) != _told(cut_rows):
            raise TraceError(
                f"{assertion.location.at_line}: '{assertion.full_name}' has other rows in a cut of these traces: judge "
                "it on the traces"
            )


def _rows(assertion: Assertion, context: GateContext) -> MetricTable | NsysError:
    try:
        return context.measure(context.resolved(assertion))
    except NsysError as error:
        return error


def _told(found: MetricTable | NsysError) -> object:
    return type(found) if isinstance(found, NsysError) else (found.rows, found.missing, found.unseen)
