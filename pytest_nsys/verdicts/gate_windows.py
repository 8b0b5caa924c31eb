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
    """The windows of all ranks, or of some, for the assertions of a gate file; of a spec that has none in the run there
    are none.

    Raises NothingMeasured where that leaves nothing, UsageMistake where nothing is judged on a trace, and where the
    windows hold more than ``most_kernels``.
    """
    held: dict[WindowSpec, None] = {}
    lost: NothingMeasured | None = None
    for spec in dict.fromkeys(_looked_at(gate, run)):
        try:
            own = run.measured(spec).filled(ranks)
            held[spec] = None
        except NothingMeasured as error:
            lost = lost or error
            continue
        kernels = sum(len(window) for windows in own.values() for window in windows)
        if most_kernels is not None and kernels > most_kernels:
            raise UsageMistake(f"{spec} holds {counted(kernels, 'kernel')}, of at most {most_kernels}")
    if not held:
        raise lost or UsageMistake(f"{gate.path}: no assertion judges a trace, so there is nothing to cut")
    stages = gate.workload.pipeline
    named = (*(stages.first + stages.second if stages else ()), *gate.workload.blocks)
    return cut(run, list(held), ranks, named)


def _looked_at(gate: GateFile, run: Run) -> Iterator[WindowSpec]:
    """What the assertions are judged on; then the periods that say why a quantile or a step is worse, and
    that of the median, which a baseline keeps.
    """
    own = [(a, spec_for(gate.resolved_convention, a)) for a in gate.assertions if a.outside is None]
    yield from (spec for _, spec in own)
    for assertion, spec in own:
        if "quantile" in assertion.measures.dimensions:
            selector = assertion.where.get("quantile")
            for quantile in (f"p{number}" for number in QUANTILES):
                asked = selector is None or any(matches(value, quantile) for value in selector.values)
                if asked or quantile == MEDIAN_PERIOD:
                    typical = typical_period(run, spec, quantile)
                    yield from () if typical is None else (typical,)
        elif assertion.measures.slowest:
            step = step_of(run, spec)
            yield from () if step is None else (step,)


MOST_KEPT_KERNELS = 50_000
"""At 20 bytes of a packed kernel no more fit beside a baseline; a million would take a minute to find that out."""


def kept_windows(context: GateContext, ranks: frozenset[int] | None = None) -> bytes:
    """What a gate file judges of a run, of all ranks or of some, as the file that is kept beside its baseline.

    Raises NothingMeasured, UsageMistake where there is nothing to keep, or too much.
    """
    return write_cut(gate_windows(context.gate, context.captures.runs[0], MOST_KEPT_KERNELS, ranks)).packed(
        WINDOW_SUFFIX
    )


class TellingRanks(NamedTuple):
    """The ranks that say most of a run: of each judged metric the worst one, and the worst, the middle and the best."""

    worst: frozenset[int]
    spread: frozenset[int]


def telling_ranks(context: GateContext) -> TellingRanks:
    """Of ranks alike the lowest. Of a step time they stand by the length of their own steps, and where no metric is of
    ranks the lowest one tells of all.
    """
    captures = context.captures
    spread: list[tuple[int, int, int]] = []
    for assertion in context.gate.assertions:
        metric = METRICS[PERIOD] if assertion.measures.slowest else assertion.measures
        if assertion.outside is not None or metric.unit == HASH or "rank" not in metric.dimensions:
            continue
        worse = -1 if metric.better is Better.HIGHER else 1
        with suppress(NsysError):  # which is told where it is judged
            rows = meant(captures.rows(metric, spec_for(captures.convention, assertion)), assertion.where)
            each = grouped((int(labels["rank"]), worse * value) for labels, value in rows)
            order = sorted(each, key=lambda rank: (-max(each[rank]), rank))
            spread += [(order[0], order[len(order) // 2], order[-1])] if order else []
    spread = spread or [(min(rank.number for rank in captures.runs[0].ranks),) * 3]
    return TellingRanks(frozenset(worst for worst, *_ in spread), frozenset(chain(*spread)))


class Unheld(NamedTuple):
    """An assertion that has rows in a trace and none in its cut, and why."""

    assertion: Assertion
    why: str


def unheld(trace: GateContext, small: GateContext) -> Iterator[Unheld]:
    """The assertions that cannot be judged on a cut, though they can on its trace.

    Raises TraceError where one would be judged by other rows.
    """
    for assertion in trace.gate.assertions:
        if assertion.outside is not None:
            continue
        there, here = _rows(assertion, trace), _rows(assertion, small)
        if isinstance(there, MetricTable) and isinstance(here, NsysError):
            yield Unheld(assertion, str(here).removeprefix(f"{small.captures.runs[0].path}: "))
        elif _told(there) != _told(here):
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
