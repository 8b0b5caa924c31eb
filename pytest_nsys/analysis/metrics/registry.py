"""What can be measured, as one table: name, definition, unit, direction, dimensions, and where its function is.

A new metric is one function in this package and one entry here; nothing else distinguishes metrics by name. The
definition number of a metric rises whenever its values change their meaning; values of two definitions are never
compared.

The table alone is enough to check a gate file: no function is imported before a trace is measured.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_nsys.analysis.fact_bounds import Bounds
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core import units
from pytest_nsys.core.model import Label, Row, RowBelowError, Value
from pytest_nsys.core.scopes import ScopeSelector, parse_scope_selector
from pytest_nsys.core.units import BANDWIDTH, BARE, COUNT, HASH, MEGAHERTZ, RATIO, SAMPLE_RATE, SIZE, TIME, TOKEN_RATE

if TYPE_CHECKING:
    from pytest_nsys.analysis.explain.causes import RowExplainer
    from pytest_nsys.analysis.windows.rank_window import RankWindow
    from pytest_nsys.analysis.windows.run import Run, RunWindow
    from pytest_nsys.analysis.windows.window_selection import WindowSpec
    from pytest_nsys.core.model import Note


class MetricScope(enum.StrEnum):
    """Says what one call of a metric's function measures: one rank's window, the windows of all ranks, or a whole
    run.
    """

    RANK = "rank"
    RUN = "run"
    CAPTURE = "capture"


class Better(enum.StrEnum):
    """Says which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


class MetricSource(enum.StrEnum):
    """Says what a metric is read from; this decides its notes, doubts and explanations, and the command that shows
    it.
    """

    KERNELS = "kernels"
    STAGE = "all kernels of a stage"
    COMMUNICATION = "communication on streams of its own"  # no row if no communication has a stream of its own
    STREAMS = "which kind each stream is"
    FAMILIES = "families of kernels"  # kernels whatever their stream, stage and launch
    ANCHORS = "anchors alone"
    RANGES = "named ranges alone"
    GPU = "the state of the GPU, whatever runs"
    OUTSIDE = "no trace: measurements beside it"


class RequiredKey(NamedTuple):
    """Names a key that a gate file must have for a metric, with an example of its value."""

    key: str
    example: str


class DraftHint(NamedTuple):
    """Says what ``init`` writes after a time that it compares with the baseline."""

    reason: str
    priority: int  # if there are too many sentences, the last is dropped


def _import_from_analysis(import_path: str) -> Any:
    """Return the object at ``package.module:name`` in ``analysis``; the module is imported on first use."""
    module, _, name = import_path.partition(":")
    return getattr(import_module(f"pytest_nsys.analysis.{module}"), name)


MetricValues = Value | Mapping[Any, Value] | Iterable[Row | RowBelowError] | None
"""Names what a metric's function returns: the value of its only row, None if there is no row, or several values by
labels.

Several labels are a tuple, without that of the rank. If a value may be less than its error, the function makes rows
itself.
"""


def _make_rows(values: MetricValues, rank: tuple[Label, ...]) -> Iterator[Row | RowBelowError]:
    if isinstance(values, Mapping):
        for labels, value in values.items():
            yield Row((*rank, *(labels if isinstance(labels, tuple) else (labels,))), value)
    elif isinstance(values, int | Fraction):
        yield Row(rank, values)
    elif values is not None:
        yield from values


@dataclass(frozen=True, slots=True)
class Metric:
    """Describes one measured quantity; it has the name of its function."""

    import_path: str  # of the function, as ``room.module:name`` in ``analysis``
    unit: str  # one of Unit; a measurement outside of a trace may have its own
    better: Better | None  # None: neither direction is an improvement by itself
    dimensions: tuple[str, ...]
    definition: int = 1
    # No value is below ``least`` or above ``greatest``, in the base of the unit; None: no such end is known.
    least: int | None = 0
    greatest: int | None = None
    scope: MetricScope = MetricScope.RANK
    source: MetricSource = MetricSource.KERNELS
    counts_unstaged: bool = False  # of those by stage: kernels without a stage count where nothing selects one
    sum_of: str = ""  # the metric whose rows, with one more dimension, add up to those of this one
    required_key: RequiredKey | None = None
    irrelevant_facts: tuple[str, ...] = ()  # facts about the trace that do not affect it
    notes_path: str = ""  # import path of the function that lists notes on it
    parts_path: str = ""  # import path of the object that breaks its rows down
    draft_hint: DraftHint | None = None
    is_noisy: bool = False  # a difference of times, or a wait, which varies more than others
    of_slowest_rank: bool = False  # its only row is the step of the slowest rank, whose parts explain it
    no_row_reason: str = ""  # why a window may have no row
    is_sparse: bool = False  # a row that is missing in a window or capture is 0 there
    # The metric that chooses one of several windows or captures of each rank: the one whose row of that metric is the
    # lower median. Empty: the median is taken row by row.
    median_window_metric: str = ""
    compares_clocks: bool = False  # it compares ranks on clocks with an alignment error: a rank may rightly have no row
    depends_on_order: bool = False  # its values depend on which streams keep order
    fits_in_window: bool = False  # it is never longer than its window
    reads_all_steps: bool = False  # it looks at every step of the run, whichever window is judged
    reads_sizes: bool = False  # it depends on how many bytes a collective moves
    example: str = ""  # an example sentence, if the usual one of its unit does not fit
    synonyms: str = ""  # comma-separated synonyms, which are answered with that sentence
    question: str = ""  # the question it answers, for the ten metrics of a first gate
    program_scope: ScopeSelector | None = None  # the part of the program whose kernels alone count
    subject: str = ""

    @property
    def is_share_of_step(self) -> bool:
        """Whether its rows are shares of their windows."""
        return self.unit == units.OF_STEP

    @property
    def name(self) -> str:
        scope_text = "" if self.program_scope is None else f"{_OF}{self.program_scope}"
        return self.import_path.partition(":")[2] + scope_text + OF_STEP_SUFFIX * self.is_share_of_step

    @property
    def function(self) -> Callable[..., MetricValues]:
        """Return what measures a RankWindow; with scope ``run`` a RunWindow, with ``capture`` a Run."""
        if self.is_outside_trace:
            written_name = self.name.removeprefix(f"{MEASURED_WORD} ")
            return lambda run: run.measurements.list_rows(written_name)
        function: Callable[..., MetricValues] = _import_from_analysis(self.import_path)
        return function if self.program_scope is None else partial(function, scope=self.program_scope)

    def iterate_rows(self, window: Any) -> Iterator[Row | RowBelowError]:
        """Yield the rows of one window of the metric's scope, and a RowBelowError for each row whose value is less than
        its error.
        """
        rows = _make_rows(self.function(window), (window.rank.number,) if self.scope is MetricScope.RANK else ())
        yield from (
            _import_from_analysis("metrics.step_shares:divide_by_step")(rows, window) if self.is_share_of_step else rows
        )

    @property
    def summary(self) -> str:
        """Return the first sentence of the function's own documentation."""
        function = _import_from_analysis(self.import_path) if self.program_scope is not None else self.function
        return " ".join((function.__doc__ or "").split("\n\n")[0].split())

    @property
    def notes_function(self) -> Callable[[Sequence[Run], WindowSpec], Iterable[Note]] | None:
        """Return the function that lists notes on the metric, for all captures under a window spec; None without
        one.
        """
        return _import_from_analysis(self.notes_path) if self.notes_path else None

    @property
    def parts(self) -> RowExplainer | None:
        """Return how its rows are broken down into parts; None if they are not."""
        return _import_from_analysis(self.parts_path) if self.parts_path else None

    @property
    def counts_kernels(self) -> bool:
        """Whether its rows say which kernels there are and how many, independently of their time."""
        return self.unit in (COUNT, HASH) or "kernel" in self.dimensions

    @property
    def underlying_parts(self) -> RowExplainer | None:
        """Return how the time that its rows depend on is broken down, even if the rows themselves are not; None if
        nothing is.
        """
        if self.program_scope is not None:  # explained by its kernels, without a breakdown of the window
            return None
        base = METRICS.get(self.name.removesuffix(OF_STEP_SUFFIX), self)
        import_path = base.parts_path or _PARTS_BY_SUBJECT.get(base.subject, "")
        return _import_from_analysis(import_path) if import_path else None

    @property
    def is_explained(self) -> bool:
        """Whether the breakdown of windows explains why its rows changed."""
        has_parts = self.underlying_parts is not None or self.program_scope is not None
        return not self.is_outside_trace and (self.counts_kernels or has_parts)

    @property
    def reads_kernels(self) -> bool:
        """Whether one kernel more or less changes its rows."""
        return self.source not in (MetricSource.ANCHORS, MetricSource.RANGES, MetricSource.GPU, MetricSource.OUTSIDE)

    @property
    def is_outside_trace(self) -> bool:
        """Whether its values come from a measurement file, so that no window, kernel or doubt about the trace affects
        them.
        """
        return self.source is MetricSource.OUTSIDE

    @property
    def launch_lookups(self) -> frozenset[str]:
        """Return what is looked up at the launches of kernels: ``stage``, ``purpose``."""
        return frozenset({"stage", "purpose"} & set(self.dimensions) if self.reads_kernels else ())

    @property
    def view(self) -> str:
        """Return the view that shows what is behind its rows, or ``cut`` if a trace viewer is needed."""
        if self.program_scope is not None or self.name == SCOPE_TIME:
            return PROGRAM_VIEW
        if self.source in _VIEW_BY_SOURCE:
            return _VIEW_BY_SOURCE[self.source]
        if self.median_window_metric:
            return "budget"
        dimension_views = (view for dimension, view in _VIEW_BY_DIMENSION.items() if dimension in self.dimensions)
        return next(dimension_views, "kernels" if self.subject == "kernels" else "streams")

    def measure_rows(self, window: RankWindow | RunWindow | Run) -> list[Row]:
        """Return the rows of one window of the metric's scope."""
        return [row for row in self.iterate_rows(window) if isinstance(row, Row)]


_OF = " of "
OF_STEP_SUFFIX = f"{_OF}step"
"""Follows the name of a time if its rows are shares of their windows."""

WINDOW_LENGTH_METRIC = "window_ns"
"""Names the metric for the length of windows."""

PERIOD_METRIC = "period_ns"
"""Names the metric for the length of the steps between anchors."""

STEP_TIME_METRIC = "step_time_ns"
"""Names the metric for the step length of the slowest rank."""

MEASURED_WORD = "measured"
"""Precedes the name of a metric that was measured outside of a trace, in sentences and wherever metrics are named."""


def make_measured_metric(
    name: str, unit: str = units.ANY_UNIT, better: Better | None = None, dimensions: tuple[str, ...] = ()
) -> Metric:
    """Return a metric for values measured outside of a trace; a gate file knows only its name, not its unit and
    dimensions.
    """
    return Metric(
        f"windows.measurements:{MEASURED_WORD} {name}",
        unit,
        better,
        dimensions,
        least=None,
        scope=MetricScope.CAPTURE,
        source=MetricSource.OUTSIDE,
        counts_unstaged=True,
    )


@cache
def make_step_share(metric: Metric) -> Metric | None:
    """Return the metric for a metric's rows as shares of their steps; None unless they are times of ranks within
    windows.
    """
    is_window_time = (
        metric.source not in (MetricSource.ANCHORS, MetricSource.RANGES, MetricSource.GPU, MetricSource.OUTSIDE)
        and metric.name != WINDOW_LENGTH_METRIC
    )
    if not is_window_time or metric.is_share_of_step or metric.unit != TIME or metric.dimensions[:1] != ("rank",):
        return None
    greatest = 1 if metric.fits_in_window else metric.greatest
    return replace(
        metric, unit=units.OF_STEP, greatest=greatest, parts_path="", draft_hint=None, sum_of="", fits_in_window=False
    )


def get_metric(name: str) -> Metric:
    """Return the metric with a name. Raises KeyError for an unknown name."""
    if (metric := find_metric(name)) is None:
        raise KeyError(name)
    return metric


def find_metric(name: str) -> Metric | None:
    """Return the metric with a name, from a trace or measured outside of it; None for an unknown name."""
    first_word, _, measured_name = name.strip().partition(" ")
    if first_word == MEASURED_WORD and measured_name:
        return make_measured_metric("_".join(measured_name.split()))
    base = name.strip().removesuffix(OF_STEP_SUFFIX)
    metric = METRICS.get("_".join(base.split())) or _find_scope_metric(base)
    return metric if metric is None or base == name.strip() else make_step_share(metric)


SCOPE_TIME = "scope_ns"
"""Names the metric for the time of all kernels of a part of the program."""


def _find_scope_metric(name: str) -> Metric | None:
    """Return the metric of a part of the program, ``compute_ns of module layers.*.attn`` or as a sentence says it,
    ``backward time of op aten::mm``, or of all of its parts; None for any other name.
    """
    if name == SCOPE_TIME:
        return SCOPE_METRICS[name]
    base, _, scope_text = name.partition(_OF)
    direction, _, time_word = base.rpartition(" ")
    scope = parse_scope_selector(f"{direction} {scope_text}".strip())
    metric_name = SCOPE_METRIC_WORDS.get(time_word)
    return None if scope is None or metric_name is None else make_scope_metric(metric_name, scope)


@cache
def make_scope_metric(base: str, scope: ScopeSelector) -> Metric:
    """Return one of SCOPE_METRICS for the kernels that one part of the program launched."""
    dimensions = ("rank", "scope") if scope.is_each else ("rank",)
    return replace(SCOPE_METRICS[base], dimensions=dimensions, program_scope=scope)


CUT = "cut"
PROGRAM_VIEW = "program"
_VIEW_BY_SOURCE = {
    MetricSource.FAMILIES: "kernels",
    MetricSource.STAGE: "kernels",
    MetricSource.RANGES: "pipeline",
    MetricSource.GPU: CUT,
}
_VIEW_BY_DIMENSION = {"collective": "collectives", "stream": "streams", "kernel": "kernels", "stage": "overlap"}
ONE_WINDOW_VIEWS = ("kernels", "collectives", "pipeline")
"""Lists the views that only work with a single window."""

_RANK, _RANK_AND_STAGE = ("rank",), ("rank", "stage")
_LOWER, _HIGHER = Better.LOWER, Better.HIGHER
_NS, _RATIO, _COUNT, _NUMBER = TIME, RATIO, COUNT, BARE
_NO_COMM_STREAM = "no stream mostly communicates; 'barrier' is the communication on compute streams"
_STEADINESS_FACTS = ("uneven_anchors", "typicality")
_NO_STEP_TIME = (
    "the step time is unknown: no steady anchors give a period, or an anchor is not a step; set "
    "workload: {step_time: 412ms} in the gate file, or look with `pytest-nsys TRACE --view kernels --step-time 412ms`"
)
_NO_COPY_MEMORY = "the trace does not say which memory the window's copies read and write"

_NO_TRANSFERS = "the trace does not say when and where copies and memsets ran"

_time_metric = partial(Metric, unit=_NS, better=_LOWER, dimensions=_RANK)
_window_time_metric = partial(_time_metric, fits_in_window=True)
_budget_metric = partial(_window_time_metric, median_window_metric="compute_absent_ns")
_blocking_metric = partial(
    _budget_metric,
    depends_on_order=True,
    is_noisy=True,
    notes_path="budget.budget:blocking_notes",
    no_row_reason=_NO_TRANSFERS,
)
_communication_metric = partial(Metric, source=MetricSource.COMMUNICATION, depends_on_order=True)
_exposed_metric = partial(_window_time_metric, source=MetricSource.COMMUNICATION, depends_on_order=True, is_noisy=True)
_stream_metric = partial(Metric, source=MetricSource.STREAMS, depends_on_order=True)
_anchor_metric = partial(Metric, source=MetricSource.ANCHORS)
_run_metric = partial(Metric, scope=MetricScope.RUN)
_family_metric = partial(_run_metric, source=MetricSource.FAMILIES)
_stage_metric = partial(
    _run_metric,
    source=MetricSource.RANGES,
    required_key=RequiredKey("pipeline", "{stage0: …, stage1: …}"),
    notes_path="metrics.pipeline:pipeline_notes",
    no_row_reason="no stages are stated: pipeline: {stage0: …, stage1: …} in the gate file",
)
_block_metric = partial(
    _run_metric,
    source=MetricSource.RANGES,
    required_key=RequiredKey("blocks", "[…]"),
    no_row_reason="no blocks are stated: blocks: […] in the gate file",
)
_collective_metric = partial(Metric, dimensions=("rank", "group", "collective"))
_METRICS_BY_SUBJECT: Mapping[str, Iterable[Metric]] = {
    "time of the step": (
        _run_metric(
            "metrics.throughput:step_time_ns",
            _NS,
            _LOWER,
            (),
            parts_path="explain.causes:WHOLE",
            of_slowest_rank=True,
            reads_all_steps=True,
            example="step time <= 450ms",
            synonyms="step, steps, step duration, step latency, iteration, iteration time, latency, duration, "
            "wall time, wall clock, e2e time, time, step length, time per step, longest step",
            question="Is a step slower?",
        ),
        _time_metric("metrics.activity:window_ns", parts_path="explain.causes:WHOLE", example="window <= 450ms"),
        _anchor_metric(
            "metrics.throughput:period_ns",
            _NS,
            _LOWER,
            ("rank", "quantile"),
            parts_path="explain.causes:WHOLE",
            irrelevant_facts=_STEADINESS_FACTS,
            reads_all_steps=True,
            example="p50 period <= 450ms",
        ),
        _run_metric(
            "metrics.throughput:samples_per_s",
            SAMPLE_RATE,
            _HIGHER,
            (),
            reads_all_steps=True,
            example="throughput >= 64 samples/s",
            synonyms="samples per second, samples per sec, samples/s, images per second, qps",
        ),
        _run_metric(
            "metrics.throughput:tokens_per_s",
            TOKEN_RATE,
            _HIGHER,
            (),
            reads_all_steps=True,
            example="throughput >= 12000 tokens/s",
            synonyms="throughput, tps, tokens per second, tokens per sec, tokens/s, tok/s, goodput, tgs",
            question="How many tokens a second?",
        ),
        _anchor_metric(
            "metrics.throughput:anchors", _COUNT, None, _RANK, irrelevant_facts=("anchors", *_STEADINESS_FACTS)
        ),
    ),
    "communication": (
        _exposed_metric(
            "metrics.overlap:exposed_ns",
            dimensions=_RANK_AND_STAGE,
            parts_path="explain.causes:EXPOSED",
            fits_in_window=False,
            synonyms="stage wall exposed",
            question="How long does communication run without compute beside it?",
        ),
        _communication_metric(
            "metrics.overlap:overlap",
            _RATIO,
            _HIGHER,
            _RANK_AND_STAGE,
            greatest=1,
            parts_path="explain.causes:EXPOSED",
            example="overlap >= 75%",
            synonyms="overlap ratio, overlap percent, overlap rate, comm overlap, communication overlap, "
            "comm compute overlap, compute communication overlap, hidden communication",
            question="How much of the communication is hidden?",
        ),
        _communication_metric(
            "metrics.overlap:comm_ns", _NS, None, _RANK_AND_STAGE, parts_path="explain.causes:COMMUNICATION"
        ),
        _communication_metric("metrics.overlap:overlap_min", _RATIO, _HIGHER, _RANK_AND_STAGE, greatest=1),
        _communication_metric("metrics.overlap:overlap_max", _RATIO, _HIGHER, _RANK_AND_STAGE, greatest=1),
        _exposed_metric("metrics.overlap:wall_exposed_ns", parts_path="explain.causes:COVER"),
        _communication_metric(
            "metrics.overlap:wall_overlap", _RATIO, _HIGHER, _RANK, greatest=1, parts_path="explain.causes:EXPOSED"
        ),
        _window_time_metric(
            "metrics.overlap:wall_exposed_all_ns",
            parts_path="explain.causes:ALL_EXPOSED",
            is_noisy=True,
            synonyms="exposed communication, exposed comm, exposed nccl, exposed time, non overlapped communication",
            question="The same where communication shares streams with compute.",
        ),
        Metric(
            "metrics.overlap:wall_overlap_all",
            _RATIO,
            _HIGHER,
            _RANK,
            greatest=1,
            parts_path="explain.causes:ALL_EXPOSED",
        ),
        _time_metric(
            "metrics.overlap:barrier_ns",
            source=MetricSource.STREAMS,
            depends_on_order=True,
            parts_path="explain.causes:BARRIERS",
            is_noisy=True,
            synonyms="barriers",
        ),
        _budget_metric("budget.budget:comm_alone_ns", no_row_reason=_NO_TRANSFERS, synonyms="communication alone"),
        _blocking_metric(
            "budget.budget:blocking_ns",
            dimensions=("rank", "producer"),
            parts_path="explain.causes:BLOCKING",
            synonyms="blocked, blocked time",
        ),
        _blocking_metric(
            "budget.budget:blocking_comm_ns",
            dimensions=_RANK_AND_STAGE,
            counts_unstaged=True,
            parts_path="explain.causes:BLOCKING_COMM",
            synonyms="blocked by collective, collective, blocking communication, blocking collectives",
        ),
        _blocking_metric(
            "budget.budget:blocking_comm_max_ns",
            parts_path="explain.causes:BLOCKING_COMM_MAX",
            draft_hint=DraftHint("no compute, the next kernel launched, and communication ran", 11),
            synonyms="in comm, stalled during communication",
        ),
        Metric(
            "metrics.overlap:overlap_tax_ns",
            _NS,
            _LOWER,
            _RANK_AND_STAGE,
            least=None,
            notes_path="metrics.overlap:tax_notes",
        ),
        _stream_metric("metrics.activity:comm_streams", _COUNT, None, ("rank", "purpose"), synonyms="compute streams"),
    ),
    "launches and gaps": (
        _window_time_metric(
            "metrics.activity:idle_ns",
            parts_path="explain.causes:IDLE",
            is_noisy=True,
            draft_hint=DraftHint("no kernel runs", 3),
            example="idle <= 10% of step",
            synonyms="idle time, idle ratio, gpu idle, gpu idle time, idleness, busy, busy time, utilization, "
            "utilisation, gpu utilization, gpu utilisation, gpu util, gpu usage, gpu time, active time, duty cycle, "
            "kernel time, gpu kernel time, cuda time",
            question="How long does no kernel run?",
        ),
        _budget_metric(
            "budget.budget:launch_starved_ns",
            is_noisy=True,
            notes_path="budget.budget:host_notes",
            parts_path="explain.causes:STARVED",
            draft_hint=DraftHint("no compute, and the next compute kernel not launched yet", 10),
            synonyms="starved, launch overhead, launch latency, launch bound, cpu overhead, cpu bound, host overhead, "
            "host bound, python overhead, dispatch overhead, mean kernel, kernel duration, average kernel time, "
            "avg kernel duration",
            question="How long does the GPU wait for the next launch?",
        ),
        _budget_metric(
            "budget.budget:between_steps_ns",
            is_noisy=True,
            parts_path="explain.causes:BETWEEN",
            draft_hint=DraftHint("no compute between two steps: the next is not launched yet", 9),
            no_row_reason="only a whole step that another one follows has time between steps",
        ),
        _blocking_metric(
            "budget.budget:dependency_stalled_ns",
            parts_path="explain.causes:STALLED",
            synonyms="stall, stalls, stall time, stalled",
        ),
        _budget_metric(
            "budget.budget:compute_absent_ns",
            is_noisy=True,
            parts_path="explain.causes:COMPUTE_ABSENT",
            example="compute absent <= 10% of step",
            # a stage that waits for its neighbour runs a communication kernel meanwhile: it is not idle
            synonyms="bubble, bubbles, bubble ratio, bubble rate, bubble time, pipeline bubble, without compute, "
            "no compute, compute busy, gpu gap, gpu gaps, gap, gaps, kernel gaps",
        ),
        _budget_metric(
            "budget.budget:device_idle_ns", is_noisy=True, no_row_reason=_NO_TRANSFERS, synonyms="device busy"
        ),
        _family_metric("metrics.families:step_minus_kernel_ns", _NS, None, (), least=None, no_row_reason=_NO_STEP_TIME),
        Metric(
            "metrics.activity:syncs",
            _COUNT,
            _LOWER,
            _RANK,
            sum_of="sync_calls",
            synonyms="sync, sync calls, synchronization, synchronizations, synchronisation, cuda synchronize, "
            "device synchronize",
            question="Does the CPU wait for the GPU?",
        ),
    ),
    "pipeline": (
        _stage_metric("metrics.pipeline:pipeline_stage_ns", _NS, _LOWER, _RANK_AND_STAGE),
        _stage_metric(
            "metrics.pipeline:overlap_score",
            _NUMBER,
            _HIGHER,
            _RANK,
            greatest=1,
            example="pipeline overlap_score >= 0.6",
        ),
        _stage_metric(
            "metrics.pipeline:serialization", _NUMBER, _LOWER, _RANK, least=None, example="serialization <= 0.5"
        ),
        _block_metric("metrics.pipeline:share", _RATIO, None, ("rank", "block"), greatest=1),
    ),
    "kernels": (
        _time_metric(
            "metrics.activity:compute_ns",
            parts_path="explain.causes:COMPUTE",
            draft_hint=DraftHint("the compute kernels, summed", 0),
            example="compute <= baseline + 5%",
            synonyms="computation, computation time, compute time, compute kernel time, stream compute",
        ),
        _family_metric("metrics.families:total_kernel_ns", _NS, _LOWER, ()),
        _family_metric(
            "metrics.families:family_ns",
            _NS,
            _LOWER,
            ("family",),
            example="gemm family_ns <= 200ms",
            synonyms="gemm, gemm time, matmul, matmul time",
        ),
        _family_metric(
            "metrics.structure:kernel_share",
            _RATIO,
            None,
            ("kernel",),
            greatest=1,
            is_sparse=True,
            example="no new or vanished kernels above 2%",
        ),
    ),
    "collectives": (
        _collective_metric(
            "metrics.collectives:busbw",
            BANDWIDTH,
            _HIGHER,
            dimensions=("rank", "group", "collective", "statistic"),
            reads_sizes=True,
            synonyms="bandwidth, bus bandwidth, network bandwidth, nccl bandwidth, bw, busbw gbps, algbw, "
            "algorithm bandwidth, alg bandwidth, bandwidth utilisation, bandwidth utilization",
        ),
        _collective_metric(
            "metrics.collectives:collective_time_ns",
            _NS,
            _LOWER,
            example="collective time <= 20% of step",
            synonyms="nccl, nccl time, communication, communication time, comm time, comms, rccl time, collectives",
        ),
        _collective_metric(
            "metrics.collectives:collective_bytes", SIZE, None, reads_sizes=True, synonyms="traffic share"
        ),
        _collective_metric(
            "metrics.collective_waits:collective_wait_ns",
            _NS,
            _LOWER,
            scope=MetricScope.RUN,
            notes_path="metrics.collective_waits:wait_notes",
            compares_clocks=True,
            synonyms="wait, wait time, waiting, nccl wait, barrier wait, collective transfer, straggler lag, "
            "straggler, stragglers, straggling, straggling rank, skew, rank skew",
        ),
    ),
    "structure": (
        Metric(
            "metrics.activity:launches",
            _COUNT,
            None,
            _RANK_AND_STAGE,
            source=MetricSource.STAGE,
            sum_of="kernel_launches",
            synonyms="kernels, kernel count, num kernels, number of kernels, launch count, kernel launch count",
            question="Is it still the same program?",
        ),
        Metric(
            "metrics.structure:kernel_launches",
            _COUNT,
            None,
            ("rank", "stage", "kernel"),
            counts_unstaged=True,
            synonyms="collective count, family launches",
        ),
        Metric("metrics.structure:sequence", HASH, None, ("rank", "stage", "stream"), counts_unstaged=True),
        _stream_metric(
            "metrics.structure:compute_on_comm_streams",
            _COUNT,
            _LOWER,
            ("rank", "stream"),
            notes_path="metrics.structure:barrier_notes",
            no_row_reason=_NO_COMM_STREAM,
        ),
    ),
    "machine": (
        Metric(
            "metrics.gpu_state:peak_allocated_bytes",
            SIZE,
            _LOWER,
            _RANK,
            source=MetricSource.GPU,
            notes_path="metrics.gpu_state:memory_notes",
            irrelevant_facts=("sm_clock", "profiler_overhead"),
            synonyms="memory, gpu memory, peak memory, max memory, memory usage, peak allocated memory, hbm, vram, oom",
            question="Does it need more memory?",
        ),
        Metric(
            "metrics.structure:pageable_copies",
            _COUNT,
            _LOWER,
            _RANK,
            no_row_reason=_NO_COPY_MEMORY,
            synonyms="pageable, pageable memory, pageable memcpy",
        ),
        Metric(
            "metrics.gpu_state:sm_clock_mhz",
            MEGAHERTZ,
            _HIGHER,
            _RANK,
            source=MetricSource.GPU,
            irrelevant_facts=("sm_clock",),
            synonyms="clock, clocks, gpu clock, clock speed, frequency, gpu frequency, throttling",
        ),
    ),
}
_PARTS_BY_SUBJECT = {
    "time of the step": "explain.causes:WHOLE",
    "communication": "explain.causes:ALL_EXPOSED",
    "launches and gaps": "explain.causes:IDLE",
    "pipeline": "explain.causes:WHOLE",
    "kernels": "explain.causes:COMPUTE",
    "collectives": "explain.causes:COMMUNICATION",
}
METRICS: Mapping[str, Metric] = {
    metric.name: replace(metric, subject=subject) for subject, own in _METRICS_BY_SUBJECT.items() for metric in own
}


_scope_metric = partial(_time_metric, subject="program")
SCOPE_METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        _scope_metric(
            "scopes.scope_rows:scope_ns",
            dimensions=("rank", "kind", "scope", "direction"),
            example="time of module layers.*.attn <= 3ms",
        ),
        _scope_metric("scopes.scope_rows:compute_ns"),
        _scope_metric("scopes.scope_rows:exposed_ns", source=MetricSource.COMMUNICATION, depends_on_order=True),
    )
}
"""Lists the times that a part of the program has: of all its kernels, of those that compute, of its communication
without compute beside it. Only the first has rows where nobody names the part.
"""

SCOPE_METRIC_WORDS: Mapping[str, str] = {
    "time": SCOPE_TIME,
    **{word: name for name in SCOPE_METRICS for word in (name, name.removesuffix("_ns"))},
}
"""Maps the words for times that a part of the program has to the metric."""


class MetricRequest(NamedTuple):
    """Requests a metric under a window spec and quality bounds; without a metric, only the windows."""

    metric: str | None
    spec: WindowSpec
    bounds: Bounds = Bounds()
