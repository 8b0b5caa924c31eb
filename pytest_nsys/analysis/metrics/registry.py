"""What can be measured, as one table: name, definition, unit, direction, dimensions, and where its function stands.

A new metric is one function in this room and one entry here: nothing else tells metrics apart by their names. The
definition number of a metric rises whenever its values mean something else; values of two are never compared.

These are facts alone, by which a gate file is checked: no function is imported before a trace is measured.
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
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core import units
from pytest_nsys.core.model import Label, Row, Unseen, Value
from pytest_nsys.core.units import BANDWIDTH, BARE, COUNT, HASH, MEGAHERTZ, RATIO, SAMPLE_RATE, SIZE, TIME, TOKEN_RATE

if TYPE_CHECKING:
    from pytest_nsys.analysis.explain.causes import Parts
    from pytest_nsys.analysis.windows.rank_window import RankWindow
    from pytest_nsys.analysis.windows.run import Run, RunWindow
    from pytest_nsys.analysis.windows.spans import WindowSpec
    from pytest_nsys.core.model import Note


class Scope(enum.StrEnum):
    """Says what a metric's function makes rows of: one rank's window, the windows of all ranks together, or a run
    whatever its windows.
    """

    RANK = "rank"
    RUN = "run"
    CAPTURE = "capture"


class Better(enum.StrEnum):
    """Says which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


class Of(enum.StrEnum):
    """Says what a metric is read off: by this its notes, doubts and explanations are chosen, and the command that shows
    it.
    """

    KERNELS = "kernels"
    STAGE = "all kernels of a stage"
    COMMUNICATION = "communication on streams of its own"  # no row where none has a stream of its own
    STREAMS = "which kind each stream is"
    FAMILIES = "families of kernels"  # kernels whatever their stream, stage and launch
    ANCHORS = "anchors alone"
    RANGES = "named ranges alone"
    GPU = "the state of the GPU, whatever runs"
    OUTSIDE = "no trace: measurements beside it"


class Need(NamedTuple):
    """Names a key that a gate file must have for a metric, with an example of its value."""

    key: str
    example: str


class Drafted(NamedTuple):
    """Says what ``init`` writes beside a time that it compares with the baseline."""

    why: str
    rank: int  # of too many sentences the last goes


def _standing_at(place: str) -> Any:
    """Return the object at ``room.module:name`` in ``analysis``, whose module is imported when it is first asked
    for.
    """
    module, _, name = place.partition(":")
    return getattr(import_module(f"pytest_nsys.analysis.{module}"), name)


Values = Value | Mapping[Any, Value] | Iterable[Row | Unseen] | None
"""Names what a metric's function returns: the value of its only row, None where there is none, or several by their
labels.

Several labels are a tuple, that of the rank aside. Where a row may not be told from 0 the function makes rows itself.
"""


def _rows_of(values: Values, rank: tuple[Label, ...]) -> Iterator[Row | Unseen]:
    if isinstance(values, Mapping):
        for labels, value in values.items():
            yield Row((*rank, *(labels if isinstance(labels, tuple) else (labels,))), value)
    elif isinstance(values, int | Fraction):
        yield Row(rank, values)
    elif values is not None:
        yield from values


@dataclass(frozen=True, slots=True)
class Metric:
    """Describes one measured quantity, called as its function is."""

    place: str  # of the function, as ``room.module:name`` in ``analysis``
    unit: str  # one of Unit; of what was measured outside of a trace perhaps one of its own
    better: Better | None  # None: neither direction is an improvement by itself
    dimensions: tuple[str, ...]
    definition: int = 1
    # No value is below ``least`` or above ``greatest``, in the base of the unit; None: no such end is known.
    least: int | None = 0
    greatest: int | None = None
    scope: Scope = Scope.RANK
    of: Of = Of.KERNELS
    every_stage: bool = False  # of those by stage: kernels without a stage count where nothing selects one
    sums: str = ""  # what has the rows, of one dimension more, that add up to those of this one
    needs: Need | None = None
    untouched: tuple[str, ...] = ()  # facts about the trace that say nothing against it
    notes: str = ""  # the place of the function that tells a person what to know of it
    explained_by: str = ""  # the place of the object that takes its rows apart
    drafted: Drafted | None = None
    rough: bool = False  # a time that is the rest of something else, or waits for others, and moves more
    slowest: bool = False  # its only row is the step of the slowest rank, and explained by the parts of that one
    without: str = ""  # why a window may have no row
    sparse: bool = False  # a row that a window or capture lacks is 0 there
    # The metric by which one window of each rank is chosen, of several windows or captures: the one whose row of that
    # metric is the lower median. Empty: each row is the median of its own.
    window_by: str = ""
    over_clocks: bool = False  # it compares ranks whose clocks are one only so well: a rank may rightly have no row
    by_order: bool = False  # it hangs on which streams keep order, not only groups by them
    within: bool = False  # it is never longer than its window
    of_all_steps: bool = False  # it looks at every step of the run, whichever window is judged
    reads_sizes: bool = False  # it hangs on how many bytes a collective moves
    example: str = ""  # a sentence to write of it, where the usual one of its unit is none
    words: str = ""  # what people call it who are told that sentence, with commas between
    question: str = ""  # what one of the ten metrics of a first gate answers
    subject: str = ""

    @property
    def of_step(self) -> bool:
        """Whether its rows are shares of their windows."""
        return self.unit == units.OF_STEP

    @property
    def name(self) -> str:
        return self.place.partition(":")[2] + OF_STEP * self.of_step

    @property
    def function(self) -> Callable[..., Values]:
        """Return what measures a RankWindow; with scope ``run`` a RunWindow, with ``capture`` a Run."""
        if self.outside:
            written_name = self.name.removeprefix(f"{MEASURED} ")
            return lambda run: run.measurements.rows(written_name)
        function: Callable[..., Values] = _standing_at(self.place)
        return function

    def all_rows(self, window: Any) -> Iterator[Row | Unseen]:
        """Yield the rows of one window, of what the scope says, and an Unseen for each row whose value is less than its
        error.
        """
        rows = _rows_of(self.function(window), (window.rank.number,) if self.scope is Scope.RANK else ())
        yield from _standing_at("metrics.shares:of_step")(rows, window) if self.of_step else rows

    @property
    def summary(self) -> str:
        """Return the first sentence of the function's own documentation."""
        return " ".join((self.function.__doc__ or "").split("\n\n")[0].split())

    @property
    def about(self) -> Callable[[Sequence[Run], WindowSpec], Iterable[Note]] | None:
        """Return the function that tells a person what to know of the metric, of all captures under a window spec; None
        without one.
        """
        return _standing_at(self.notes) if self.notes else None

    @property
    def parts(self) -> Parts | None:
        """Return how its rows are broken down into parts; None where they are not."""
        return _standing_at(self.explained_by) if self.explained_by else None

    @property
    def counts(self) -> bool:
        """Whether its rows say which kernels there are, and how many, whatever they take."""
        return self.unit in (COUNT, HASH) or "kernel" in self.dimensions

    @property
    def hangs_on(self) -> Parts | None:
        """Return how the time that its rows depend on is broken down, also where the rows themselves are not; None
        where nothing is.
        """
        base = METRICS.get(self.name.removesuffix(OF_STEP), self)
        import_path = base.explained_by or _HANGS_ON.get(base.subject, "")
        return _standing_at(import_path) if import_path else None

    @property
    def is_explained(self) -> bool:
        """Whether what windows were made of says why its rows moved."""
        return not self.outside and (self.counts or self.hangs_on is not None)

    @property
    def of_kernels(self) -> bool:
        """Whether a kernel more or less makes a difference."""
        return self.of not in (Of.ANCHORS, Of.RANGES, Of.GPU, Of.OUTSIDE)

    @property
    def outside(self) -> bool:
        """Whether its values stand in a file beside the trace, which no window, kernel or doubt of it changes."""
        return self.of is Of.OUTSIDE

    @property
    def looks_up(self) -> frozenset[str]:
        """Return what is looked up of kernels at their launches: ``stage``, ``purpose``."""
        return frozenset({"stage", "purpose"} & set(self.dimensions) if self.of_kernels else ())

    @property
    def view(self) -> str:
        """Return the view that shows what is behind its rows, or ``cut``, which any viewer of traces does."""
        if self.of in _VIEWS:
            return _VIEWS[self.of]
        if self.window_by:
            return "budget"
        dimension_views = (view for dimension, view in _VIEWS_BY.items() if dimension in self.dimensions)
        return next(dimension_views, "kernels" if self.subject == "kernels" else "streams")

    def rows(self, window: RankWindow | RunWindow | Run) -> list[Row]:
        """Return the rows of one window, of what the metric's scope says."""
        return [row for row in self.all_rows(window) if isinstance(row, Row)]


OF_STEP = " of step"
"""Stands behind the name of a time, where its rows are shares of their windows."""

STEP = "window_ns"
"""Names the metric of how long windows are."""

PERIOD = "period_ns"
"""Names the metric of how long the steps of anchors are."""

STEP_TIME = "step_time_ns"
"""Names the metric of how long a step of the slowest rank is."""

MEASURED = "measured"
"""Stands before the name of what was measured outside of a trace, in sentences and wherever metrics are named."""


def measured(
    name: str, unit: str = units.ANY, better: Better | None = None, dimensions: tuple[str, ...] = ()
) -> Metric:
    """Return a metric for what was measured outside of a trace, as far as it is known: a gate file knows its name
    alone.
    """
    return Metric(
        f"windows.measurements:{MEASURED} {name}",
        unit,
        better,
        dimensions,
        least=None,
        scope=Scope.CAPTURE,
        of=Of.OUTSIDE,
        every_stage=True,
    )


@cache
def held_to_steps(metric: Metric) -> Metric | None:
    """Return the metric of the shares of their steps that a metric's rows are; None where they are no times of ranks
    within windows.
    """
    is_window_time = metric.of not in (Of.ANCHORS, Of.RANGES, Of.GPU, Of.OUTSIDE) and metric.name != STEP
    if not is_window_time or metric.of_step or metric.unit != TIME or metric.dimensions[:1] != ("rank",):
        return None
    greatest = 1 if metric.within else metric.greatest
    return replace(metric, unit=units.OF_STEP, greatest=greatest, explained_by="", drafted=None, sums="", within=False)


def known_metric(name: str) -> Metric:
    """Return the metric of a name that is one. Raises KeyError."""
    if (metric := metric_called(name)) is None:
        raise KeyError(name)
    return metric


def metric_called(name: str) -> Metric | None:
    """Return the metric of a name, of those that a trace gives or of those beside it; None where there is none."""
    first_word, _, measured_name = name.strip().partition(" ")
    if first_word == MEASURED and measured_name:
        return measured("_".join(measured_name.split()))
    base = name.strip().removesuffix(OF_STEP)
    metric = METRICS.get("_".join(base.split()))
    return metric if metric is None or base == name.strip() else held_to_steps(metric)


CUT = "cut"
_VIEWS = {Of.FAMILIES: "kernels", Of.STAGE: "kernels", Of.RANGES: "pipeline", Of.GPU: CUT}
_VIEWS_BY = {"collective": "collectives", "stream": "streams", "kernel": "kernels", "stage": "overlap"}
OF_ONE_WINDOW = ("kernels", "collectives", "pipeline")
"""Lists the views that many windows do not go with."""

_RANK, _STAGE = ("rank",), ("rank", "stage")
_LOWER, _HIGHER = Better.LOWER, Better.HIGHER
_NS, _RATIO, _COUNT, _NUMBER = TIME, RATIO, COUNT, BARE
_SHARED = "no stream mostly communicates; 'barrier' is the communication on compute streams"
_STEADY = ("uneven_anchors", "typicality")
_STEP_TIME = (
    "the step time is unknown: no steady anchors give a period, or an anchor is not a step; set "
    "workload: {step_time: 412ms} in the gate file, or look with `pytest-nsys TRACE --view kernels --step-time 412ms`"
)
_MEMORY = "the trace does not say which memory the window's copies read and write"

_TRANSFERS = "the trace does not say when and where copies and memsets ran"

_time = partial(Metric, unit=_NS, better=_LOWER, dimensions=_RANK)
_within = partial(_time, within=True)
_budget = partial(_within, window_by="compute_absent_ns")
_blocking = partial(_budget, by_order=True, rough=True, notes="budget.budget:blocking_notes", without=_TRANSFERS)
_communication = partial(Metric, of=Of.COMMUNICATION, by_order=True)
_exposed = partial(_within, of=Of.COMMUNICATION, by_order=True, rough=True)
_streams = partial(Metric, of=Of.STREAMS, by_order=True)
_anchors = partial(Metric, of=Of.ANCHORS)
_of_run = partial(Metric, scope=Scope.RUN)
_families = partial(_of_run, of=Of.FAMILIES)
_stages = partial(
    _of_run,
    of=Of.RANGES,
    needs=Need("pipeline", "{stage0: …, stage1: …}"),
    notes="metrics.pipeline:pipeline_notes",
    without="no stages are stated: pipeline: {stage0: …, stage1: …} in the gate file",
)
_blocks = partial(
    _of_run,
    of=Of.RANGES,
    needs=Need("blocks", "[…]"),
    without="no blocks are stated: blocks: […] in the gate file",
)
_collective = partial(Metric, dimensions=("rank", "group", "collective"))
_BY_SUBJECT: Mapping[str, Iterable[Metric]] = {
    "time of the step": (
        _of_run(
            "metrics.throughput:step_time_ns",
            _NS,
            _LOWER,
            (),
            explained_by="explain.causes:WHOLE",
            slowest=True,
            of_all_steps=True,
            example="step time <= 450ms",
            words="step, steps, step duration, step latency, iteration, iteration time, latency, duration, wall time, "
            "wall clock, e2e time, time, step length, time per step, longest step",
            question="Is a step slower?",
        ),
        _time("metrics.activity:window_ns", explained_by="explain.causes:WHOLE", example="window <= 450ms"),
        _anchors(
            "metrics.throughput:period_ns",
            _NS,
            _LOWER,
            ("rank", "quantile"),
            explained_by="explain.causes:WHOLE",
            untouched=_STEADY,
            of_all_steps=True,
            example="p50 period <= 450ms",
        ),
        _of_run(
            "metrics.throughput:samples_per_s",
            SAMPLE_RATE,
            _HIGHER,
            (),
            of_all_steps=True,
            example="throughput >= 64 samples/s",
            words="samples per second, samples per sec, samples/s, images per second, qps",
        ),
        _of_run(
            "metrics.throughput:tokens_per_s",
            TOKEN_RATE,
            _HIGHER,
            (),
            of_all_steps=True,
            example="throughput >= 12000 tokens/s",
            words="throughput, tps, tokens per second, tokens per sec, tokens/s, tok/s, goodput, tgs",
            question="How many tokens a second?",
        ),
        _anchors("metrics.throughput:anchors", _COUNT, None, _RANK, untouched=("anchors", *_STEADY)),
    ),
    "communication": (
        _exposed(
            "metrics.overlap:exposed_ns",
            dimensions=_STAGE,
            explained_by="explain.causes:EXPOSED",
            within=False,
            words="stage wall exposed",
            question="How long does communication run without compute beside it?",
        ),
        _communication(
            "metrics.overlap:overlap",
            _RATIO,
            _HIGHER,
            _STAGE,
            greatest=1,
            explained_by="explain.causes:EXPOSED",
            example="overlap >= 75%",
            words="overlap ratio, overlap percent, overlap rate, comm overlap, communication overlap, "
            "comm compute overlap, compute communication overlap, hidden communication",
            question="How much of the communication is hidden?",
        ),
        _communication("metrics.overlap:comm_ns", _NS, None, _STAGE, explained_by="explain.causes:COMMUNICATION"),
        _communication("metrics.overlap:overlap_min", _RATIO, _HIGHER, _STAGE, greatest=1),
        _communication("metrics.overlap:overlap_max", _RATIO, _HIGHER, _STAGE, greatest=1),
        _exposed("metrics.overlap:wall_exposed_ns", explained_by="explain.causes:COVER"),
        _communication(
            "metrics.overlap:wall_overlap", _RATIO, _HIGHER, _RANK, greatest=1, explained_by="explain.causes:EXPOSED"
        ),
        _within(
            "metrics.overlap:wall_exposed_all_ns",
            explained_by="explain.causes:ALL_EXPOSED",
            rough=True,
            words="exposed communication, exposed comm, exposed nccl, exposed time, non overlapped communication",
            question="The same where communication shares streams with compute.",
        ),
        Metric(
            "metrics.overlap:wall_overlap_all",
            _RATIO,
            _HIGHER,
            _RANK,
            greatest=1,
            explained_by="explain.causes:ALL_EXPOSED",
        ),
        _time(
            "metrics.overlap:barrier_ns",
            of=Of.STREAMS,
            by_order=True,
            explained_by="explain.causes:BARRIERS",
            rough=True,
            words="barriers",
        ),
        _budget("budget.budget:comm_alone_ns", without=_TRANSFERS, words="communication alone"),
        _blocking(
            "budget.budget:blocking_ns",
            dimensions=("rank", "producer"),
            explained_by="explain.causes:BLOCKING",
            words="blocked, blocked time",
        ),
        _blocking(
            "budget.budget:blocking_comm_ns",
            dimensions=_STAGE,
            every_stage=True,
            explained_by="explain.causes:BLOCKING_COMM",
            words="blocked by collective, collective, blocking communication, blocking collectives",
        ),
        _blocking(
            "budget.budget:blocking_comm_max_ns",
            explained_by="explain.causes:BLOCKING_COMM_MAX",
            drafted=Drafted("no compute, the next kernel launched, and communication ran", 11),
            words="in comm, stalled during communication",
        ),
        Metric("metrics.overlap:overlap_tax_ns", _NS, _LOWER, _STAGE, least=None, notes="metrics.overlap:tax_notes"),
        _streams("metrics.activity:comm_streams", _COUNT, None, ("rank", "purpose"), words="compute streams"),
    ),
    "launches and gaps": (
        _within(
            "metrics.activity:idle_ns",
            explained_by="explain.causes:IDLE",
            rough=True,
            drafted=Drafted("no kernel runs", 3),
            example="idle <= 10% of step",
            words="idle time, idle ratio, gpu idle, gpu idle time, idleness, busy, busy time, utilization, "
            "utilisation, gpu utilization, gpu utilisation, gpu util, gpu usage, gpu time, active time, duty cycle, "
            "kernel time, gpu kernel time, cuda time",
            question="How long does no kernel run?",
        ),
        _budget(
            "budget.budget:launch_starved_ns",
            rough=True,
            notes="budget.budget:host_notes",
            explained_by="explain.causes:STARVED",
            drafted=Drafted("no compute, and the next compute kernel not launched yet", 10),
            words="starved, launch overhead, launch latency, launch bound, cpu overhead, cpu bound, host overhead, "
            "host bound, python overhead, dispatch overhead, mean kernel, kernel duration, average kernel time, "
            "avg kernel duration",
            question="How long does the GPU wait for the next launch?",
        ),
        _budget(
            "budget.budget:between_steps_ns",
            rough=True,
            explained_by="explain.causes:BETWEEN",
            drafted=Drafted("no compute between two steps: the next is not launched yet", 9),
            without="only a whole step that another one follows has time between steps",
        ),
        _blocking(
            "budget.budget:dependency_stalled_ns",
            explained_by="explain.causes:STALLED",
            words="stall, stalls, stall time, stalled",
        ),
        _budget(
            "budget.budget:compute_absent_ns",
            rough=True,
            explained_by="explain.causes:COMPUTE_ABSENT",
            example="compute absent <= 10% of step",
            # a stage that waits for its neighbour runs a communication kernel meanwhile: it is not idle
            words="bubble, bubbles, bubble ratio, bubble rate, bubble time, pipeline bubble, without compute, "
            "no compute, compute busy, gpu gap, gpu gaps, gap, gaps, kernel gaps",
        ),
        _budget("budget.budget:device_idle_ns", rough=True, without=_TRANSFERS, words="device busy"),
        _families("metrics.families:step_minus_kernel_ns", _NS, None, (), least=None, without=_STEP_TIME),
        Metric(
            "metrics.activity:syncs",
            _COUNT,
            _LOWER,
            _RANK,
            sums="sync_calls",
            words="sync, sync calls, synchronization, synchronizations, synchronisation, cuda synchronize, "
            "device synchronize",
            question="Does the CPU wait for the GPU?",
        ),
    ),
    "pipeline": (
        _stages("metrics.pipeline:pipeline_stage_ns", _NS, _LOWER, _STAGE),
        _stages(
            "metrics.pipeline:overlap_score",
            _NUMBER,
            _HIGHER,
            _RANK,
            greatest=1,
            example="pipeline overlap_score >= 0.6",
        ),
        _stages("metrics.pipeline:serialization", _NUMBER, _LOWER, _RANK, least=None, example="serialization <= 0.5"),
        _blocks("metrics.pipeline:share", _RATIO, None, ("rank", "block"), greatest=1),
    ),
    "kernels": (
        _time(
            "metrics.activity:compute_ns",
            explained_by="explain.causes:COMPUTE",
            drafted=Drafted("the compute kernels, summed", 0),
            example="compute <= baseline + 5%",
            words="computation, computation time, compute time, compute kernel time, stream compute",
        ),
        _families("metrics.families:total_kernel_ns", _NS, _LOWER, ()),
        _families(
            "metrics.families:family_ns",
            _NS,
            _LOWER,
            ("family",),
            example="gemm family_ns <= 200ms",
            words="gemm, gemm time, matmul, matmul time",
        ),
        _families(
            "metrics.structure:kernel_share",
            _RATIO,
            None,
            ("kernel",),
            greatest=1,
            sparse=True,
            example="no new or vanished kernels above 2%",
        ),
    ),
    "collectives": (
        _collective(
            "metrics.collectives:busbw",
            BANDWIDTH,
            _HIGHER,
            dimensions=("rank", "group", "collective", "statistic"),
            reads_sizes=True,
            words="bandwidth, bus bandwidth, network bandwidth, nccl bandwidth, bw, busbw gbps, algbw, "
            "algorithm bandwidth, alg bandwidth, bandwidth utilisation, bandwidth utilization",
        ),
        _collective(
            "metrics.collectives:collective_time_ns",
            _NS,
            _LOWER,
            example="collective time <= 20% of step",
            words="nccl, nccl time, communication, communication time, comm time, comms, rccl time, collectives",
        ),
        _collective("metrics.collectives:collective_bytes", SIZE, None, reads_sizes=True, words="traffic share"),
        _collective(
            "metrics.straggling:collective_wait_ns",
            _NS,
            _LOWER,
            scope=Scope.RUN,
            notes="metrics.straggling:wait_notes",
            over_clocks=True,
            words="wait, wait time, waiting, nccl wait, barrier wait, collective transfer, straggler lag, straggler, "
            "stragglers, straggling, straggling rank, skew, rank skew",
        ),
    ),
    "structure": (
        Metric(
            "metrics.activity:launches",
            _COUNT,
            None,
            _STAGE,
            of=Of.STAGE,
            sums="kernel_launches",
            words="kernels, kernel count, num kernels, number of kernels, launch count, kernel launch count",
            question="Is it still the same program?",
        ),
        Metric(
            "metrics.structure:kernel_launches",
            _COUNT,
            None,
            ("rank", "stage", "kernel"),
            every_stage=True,
            words="collective count, family launches",
        ),
        Metric("metrics.structure:sequence", HASH, None, ("rank", "stage", "stream"), every_stage=True),
        _streams(
            "metrics.structure:compute_on_comm_streams",
            _COUNT,
            _LOWER,
            ("rank", "stream"),
            notes="metrics.structure:barrier_notes",
            without=_SHARED,
        ),
    ),
    "machine": (
        Metric(
            "metrics.gpu_state:peak_allocated_bytes",
            SIZE,
            _LOWER,
            _RANK,
            of=Of.GPU,
            notes="metrics.gpu_state:memory_notes",
            untouched=("sm_clock", "profiler_overhead"),
            words="memory, gpu memory, peak memory, max memory, memory usage, peak allocated memory, hbm, vram, oom",
            question="Does it need more memory?",
        ),
        Metric(
            "metrics.structure:pageable_copies",
            _COUNT,
            _LOWER,
            _RANK,
            without=_MEMORY,
            words="pageable, pageable memory, pageable memcpy",
        ),
        Metric(
            "metrics.gpu_state:sm_clock_mhz",
            MEGAHERTZ,
            _HIGHER,
            _RANK,
            of=Of.GPU,
            untouched=("sm_clock",),
            words="clock, clocks, gpu clock, clock speed, frequency, gpu frequency, throttling",
        ),
    ),
}
_HANGS_ON = {
    "time of the step": "explain.causes:WHOLE",
    "communication": "explain.causes:ALL_EXPOSED",
    "launches and gaps": "explain.causes:IDLE",
    "pipeline": "explain.causes:WHOLE",
    "kernels": "explain.causes:COMPUTE",
    "collectives": "explain.causes:COMMUNICATION",
}
METRICS: Mapping[str, Metric] = {
    metric.name: replace(metric, subject=subject) for subject, own in _BY_SUBJECT.items() for metric in own
}


class Request(NamedTuple):
    """Asks for a metric under a window spec, within the bounds of its quality; without a metric, for the windows
    alone.
    """

    metric: str | None
    spec: WindowSpec
    bounds: Bounds = Bounds()
