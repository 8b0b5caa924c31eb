"""Which types describe a gate file, its assertions, their limits, judged rows and verdicts?"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.explain.breakdown_model import RowExplanation, StepChange
from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS, Bounds
from pytest_nsys.analysis.metrics.registry import Metric, MetricRequest, get_metric
from pytest_nsys.analysis.metrics.table import Selector, make_labels_key
from pytest_nsys.analysis.windows.run_conditions import STATED_RUN_FIELDS
from pytest_nsys.analysis.windows.window_selection import (
    OUTSIDE_TRACE_SPEC,
    ExaminedWindow,
    UsedWindow,
    WindowSpec,
    complete_window_spec,
)
from pytest_nsys.core.conventions import MESH_AXES, Convention
from pytest_nsys.core.exact import distance
from pytest_nsys.core.file_names import GateAddress
from pytest_nsys.core.model import KernelsMode, Label, Note, Span, Value
from pytest_nsys.core.notebook_display import render_object, render_object_as_text
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import ANY_UNIT, BARE
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.found_convention import ConventionOrigin

AllowMissing = Mapping[str, frozenset[int]]
"""Names the ranks that may lack a stage, by a glob of stages; ``*`` also stands for metrics that have no stages."""


class Comparator(enum.StrEnum):
    """Compares a value with its limit exactly, without rounding."""

    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    EQ = "=="
    NE = "!="

    def is_satisfied(self, value: Fraction | int, limit: Fraction | int) -> bool:
        """Return whether ``value`` is in this relation to ``limit``, as in ``value <= limit``."""
        return bool(getattr(operator, self.name.lower())(value, limit))


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Describes how far a value may be from its baseline m: T = max(relative · |m|, the absolute amount of the metric's
    unit).
    """

    relative: Fraction = Fraction(0)
    # By metric unit (ns, %, count, 1), in its base: nanoseconds, or a plain fraction for percentage points.
    absolute: Mapping[str, Fraction] = field(default_factory=dict)
    noise_only: bool = False  # T is 0, and the measured noise alone decides

    def compute_amount(self, baseline: Fraction | int, unit: str) -> Fraction:
        """Return T, the tolerance in ``unit``, of a row with this baseline."""
        return max(self.relative * abs(Fraction(baseline)), self.absolute.get(unit, Fraction(0)))


class Constant(NamedTuple):
    """Holds a limit that the gate file states as a number, in the base of its unit."""

    value: Fraction
    unit: str = ANY_UNIT  # unit of the metrics that it fits, if the metric is unknown until it is measured


@dataclass(frozen=True, slots=True)
class ConstantByModel:
    """Holds one constant for each GPU model: a row is compared with the constant of the GPU of its rank."""

    constants: Mapping[str, Constant]  # by the GPU model as the gate file writes it
    gpu_models: Mapping[int, str] = field(default_factory=dict)  # by rank, in the traces' words; empty until read
    stated_gpu: str = ""  # model that the gate file states, for traces that name none

    def find_model(self, labels: Mapping[str, Label]) -> str:
        """Return the gate file's name for the GPU model of a row. Raises ValueError if none fits, or several do."""
        rank, run_names = labels.get("rank"), {*self.gpu_models.values()} or {self.stated_gpu}
        names = {self.gpu_models[rank]} if isinstance(rank, int) and rank in self.gpu_models else run_names
        if len(names) > 1:
            raise ValueError(f"ranks on {' and '.join(sorted(names))} are taken together: no constant is for both")
        (name,) = names
        if not name:
            raise ValueError("nothing says on which GPU this ran, and the limit hangs on it: write run: {gpu: …}")
        fitting_models = [word for word in self.constants if _is_model(word, name)]
        longest = max((len(split_model_name(word)) for word in fitting_models), default=0)
        longest_models = [word for word in fitting_models if len(split_model_name(word)) == longest]
        if len(longest_models) == 1:
            return longest_models[0]
        tied_models = " and ".join(longest_models)
        constants_text = f"the limit has constants for {', '.join(self.constants)}"
        raise ValueError(
            f"{name} is {tied_models} alike" if longest_models else f"no constant is for {name}: {constants_text}"
        )


def split_model_name(name: str) -> list[str]:
    """Return the words that identify a GPU model: ``NVIDIA H100 80GB HBM3`` is an ``H100``, and no ``GH200``."""
    return re.findall(r"[a-z0-9]+", name.lower())


def _is_model(word: str, name: str) -> bool:
    model_parts, name_parts = split_model_name(word), split_model_name(name)
    return any(name_parts[start : start + len(model_parts)] == model_parts for start in range(len(name_parts)))


class HistoryReference(NamedTuple):
    """Describes which runs of the history take the place of a baseline's accepted runs."""

    run_count: int  # how many of the newest runs
    branch: str | None = None  # None: any
    lag: int = 0  # how many of the newest stay out of it

    @property
    def source(self) -> str:
        """Describe what stands in for the baseline: ``median of the last 10 runs of main before the newest 3``."""
        runs_text = "the last run" if self.run_count == 1 else f"median of the last {self.run_count} runs"
        branch = "" if self.branch is None else f" of {sanitize_line(self.branch, 60)}"
        lag_text = f" before the newest {self.lag}" if self.lag > 1 else " before the newest" * self.lag
        return f"{runs_text}{branch}{lag_text}"

    @property
    def first_comparison(self) -> str:
        """Describe from which run on the history holds a run to compare with."""
        first_run = f"run {self.lag + 2}" if self.lag else "the second"
        return f"each run with --nsys-history adds to it; from {first_run} on, runs are compared"


class UnmatchedRows(enum.StrEnum):
    """Names the rows that only one side has: the present run, or the baseline."""

    NEW = "new"
    VANISHED = "vanished"
    EITHER = "new or vanished"


class BaselineLimit(NamedTuple):
    """Describes a limit that is read from the baseline m of a row: m + T above, m − T below; of a claim the other way
    round, as T is how much better than m a value has to be.
    """

    tolerance: Tolerance | None  # None: exactly m
    history: HistoryReference | None = None  # None: the stored baseline, or the other trace where one is given
    forbidden_rows: UnmatchedRows | None = (
        None  # rows of one side that may not exceed the tolerance; set if the sentence has no other limit
    )
    is_claim: bool = False  # an unchanged run does not hold it: the captures have to show the change

    @property
    def is_exact(self) -> bool:
        """Whether the measured noise plays no part in the limit."""
        return self.tolerance is None or self.forbidden_rows is not None

    @property
    def source(self) -> str:
        """Describe where the limit is read from: ``baseline``, or runs of the history."""
        return self.history.source if self.history is not None else "baseline"


@dataclass(frozen=True, slots=True)
class Requirement:
    """Holds the comparison and the limit that a sentence ends with."""

    comparator: Comparator | None  # None: at most T away from a baseline, on either side
    limit: Constant | ConstantByModel | BaselineLimit
    text: str

    @property
    def is_claim(self) -> bool:
        """Whether it asks for a change to the better."""
        return isinstance(self.limit, BaselineLimit) and self.limit.is_claim

    @property
    def constants(self) -> Sequence[Constant]:
        """List the constants of the limit; empty for one of a baseline."""
        if isinstance(self.limit, BaselineLimit):
            return ()
        return [*self.limit.constants.values()] if isinstance(self.limit, ConstantByModel) else [self.limit]

    def find_constant(self, labels: Mapping[str, Label]) -> Constant:
        """Return the constant that a row with these labels is compared with. Raises ValueError if its GPU model has
        none.
        """
        assert not isinstance(self.limit, BaselineLimit)
        return (
            self.limit.constants[self.limit.find_model(labels)]
            if isinstance(self.limit, ConstantByModel)
            else self.limit
        )

    @property
    def worse_direction(self) -> int:
        """Return which way a value gets worse: 1 up, −1 down, 0 either."""
        return {"<": 1, "<=": 1, ">": -1, ">=": -1}.get(self.comparator or "", 0)


class Aggregate(NamedTuple):
    """Describes how many values become one."""

    word: str  # median, mean, max, min, sum or pNN (nearest rank)
    over: tuple[str, ...] | None = None  # dimensions that it aggregates over; None: all that the sentence does not fix


class LimitTarget(NamedTuple):
    """Describes the values that a limit is set for: their name, unit, better direction and range."""

    name: str
    unit: str
    better: str | None  # "higher" or "lower"
    least: int | None  # ends of the range of possible values; None if unknown
    greatest: int | None


def build_limit_target(
    metric: Metric, aggregates: Collection[Aggregate] = (), balance_across: str | None = None
) -> LimitTarget:
    """Return the target of a limit: values of the metric, their sums, or their balance (maximum over minimum)."""
    if balance_across:
        return LimitTarget(f"balance of {metric.name}", BARE, "lower", 1, None)
    greatest = None if any(step.word == "sum" for step in aggregates) else metric.greatest
    return LimitTarget(metric.name, str(metric.unit), metric.better, metric.least, greatest)


class Severity(enum.StrEnum):
    """Says what an outcome does to the test: ``fail`` makes it fail, ``warn`` lets it pass with a warning."""

    FAIL = "fail"
    WARN = "warn"


class Severities(NamedTuple):
    """Holds the severity of each outcome that may fail the test."""

    failed: Severity = Severity.FAIL
    inconclusive: Severity = Severity.WARN
    improved: Severity = Severity.WARN


class Location(NamedTuple):
    """Says where something stands in its file; line and column count from 1."""

    path: Path
    line: int
    column: int

    @property
    def file_and_line(self) -> str:
        """Return ``file:line``, as a verdict names it."""
        return f"{self.path}:{self.line}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Waiver:
    """Lets rows stay outside their limit for a while, up to ``ceiling`` (down to it, where more is better)."""

    ceiling: Fraction
    expires: date  # it holds until the end of this day, in UTC
    reason: str
    location: Location
    link: str = ""
    where: Mapping[str, Selector] = field(default_factory=dict)  # empty: every row of the assertion
    shared: bool = False  # it covers several items of a ``for:``: an item that does not need it cannot call it unneeded
    unit: str = ANY_UNIT  # see Constant.unit


@dataclass(frozen=True, slots=True)
class Assertion:
    """Describes one sentence of a gate file, which is one pytest item."""

    name: str  # name of the pytest item, unique in its file
    full_name: str  # includes the limit (see assertion_names.py)
    sentence: str
    location: Location
    metric: str
    requirement: Requirement
    where: Mapping[str, Selector] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()
    balance_across: str | None = None
    pipeline: bool = False  # the median period has to be nearer the longer stage than the sum of both, too
    warn: Requirement | None = None  # the early limit
    severity: Severities = Severities()  # noqa: RUF009  a NamedTuple: immutable
    marks: tuple[str, ...] = ()
    xfail: str | None = None
    allow_no_data: bool = False
    allow_missing: AllowMissing = field(default_factory=dict)
    fail_after: int = 1  # which bad run in a row is the first to fail; earlier ones are inconclusive
    waivers: tuple[Waiver, ...] = ()
    window: str = "median"
    span: Span | None = None
    kernels: KernelsMode | None = None
    outside_metric: Metric | None = (
        None  # what is known of a metric measured outside of the traces, see resolve_assertion
    )
    kind: str | None = None  # kind of steps that the sentence names; a selector where the convention has no such kind

    @property
    def measured_metric(self) -> Metric:
        """Return the metric that is measured."""
        return self.outside_metric or get_metric(self.metric)

    @property
    def limit_target(self) -> LimitTarget:
        """Return the target of the limit; its unit is the limit's until the measured metric is known."""
        target = build_limit_target(self.measured_metric, self.aggregates, self.balance_across)
        return target._replace(
            unit=target.unit or next((constant.unit for constant in self.requirement.constants), ANY_UNIT)
        )

    @property
    def is_claim(self) -> bool:
        """Whether it claims that a run is better than its baseline."""
        return self.requirement.is_claim

    @property
    def needs_baseline(self) -> bool:
        """Whether the limit is read from a baseline or from the history."""
        return isinstance(self.requirement.limit, BaselineLimit)

    @property
    def reads_stored_baseline(self) -> bool:
        """Whether the limit is read from the stored baseline, not from the history."""
        return isinstance(self.requirement.limit, BaselineLimit) and self.requirement.limit.history is None


@dataclass(frozen=True, slots=True)
class GateFile:
    """Holds a gate file as it was read and checked, or one configuration of it.

    With a ``matrix`` nothing is judged on the file itself, which then has the assertions of all its configurations:
    each is a gate file with a ``configuration`` and what holds for it.
    """

    path: Path
    assertions: tuple[Assertion, ...]
    convention: Convention | None  # None is auto, until resolve_gate_convention has found one
    traces: tuple[str, ...] = ()  # captures (file, folder or glob), relative to the file
    measurements: tuple[str, ...] = ()  # file, or glob of files, that belongs to each capture
    # What the trace does not say: gpu, world, micro_batch, sequence_length, and mesh sizes by axis.
    run: Mapping[str, Label] = field(default_factory=dict)
    workload: Workload = Workload()  # noqa: RUF009  a NamedTuple: immutable
    comparable_on: tuple[str, ...] | None = None  # circumstances that must agree with a baseline's; None: all
    quality: Bounds = field(
        default_factory=Bounds
    )  # what may be wrong with the traces before nothing is judged on them
    # Defaults of the assertions, each of which may override them.
    tolerance: Tolerance | None = None
    window: str = "median"
    span: Span | None = None
    kernels: KernelsMode | None = None
    allow_missing: AllowMissing = field(default_factory=dict)
    found_convention: ConventionOrigin | None = None  # how auto came by the convention
    configuration: str = ""
    configuration_names: tuple[str, ...] = ()  # of all configurations of the file
    matrix: tuple[GateFile, ...] = ()

    @property
    def judged_gates(self) -> tuple[GateFile, ...]:
        """Return the gate files that are judged: one for each configuration of a matrix, else this one."""
        return self.matrix or (self,)

    @property
    def address(self) -> str:
        """Return the file's path, followed by its configuration if it has one: ``step.nsys.yaml[llama-8b]``."""
        return str(GateAddress(str(self.path), self.configuration))

    @property
    def needs_trace(self) -> bool:
        """Whether a trace must be read: False if all assertions are on measurements made outside of traces."""
        return not self.assertions or any(assertion.outside_metric is None for assertion in self.assertions)

    @property
    def axes(self) -> tuple[str, ...]:
        """Return the mesh axes that the setup label or ``run`` states. While the convention is unknown, return all axes
        that a setup label can state.
        """
        stated_axes = (key for key in self.run if key not in STATED_RUN_FIELDS)
        labelled_axes = MESH_AXES if self.convention is None else self.convention.mesh_axes
        return tuple(dict.fromkeys((*labelled_axes, *stated_axes)))

    @property
    def resolved_convention(self) -> Convention:
        """Return the convention that was named or found. Asserts that there is one."""
        assert self.convention is not None, "the convention of this gate file is not found yet"
        return self.convention


def resolve_window_spec(convention: Convention, assertion: Assertion) -> WindowSpec:
    """Return the window specification (window, span, kernels mode, kind of steps) that the assertion is judged on."""
    if assertion.outside_metric is not None:
        return OUTSIDE_TRACE_SPEC
    return complete_window_spec(convention, assertion.window, assertion.span, assertion.kernels, assertion.kind)


def build_request(gate: GateFile, assertion: Assertion, usual_steps: int | None = 1) -> MetricRequest:
    """Return what an assertion needs measured of a run: metric, window and bounds on the quality of the traces.

    ``usual_steps`` is as in Bounds. It counts where steps were found and the gate file sets no bound on them.
    """
    has_chosen_bound = gate.found_convention is None or gate.quality.anchors != FEW_ANCHORS
    bounds = replace(gate.quality, usual_steps=None if has_chosen_bound else usual_steps)
    return MetricRequest(assertion.metric, resolve_window_spec(gate.resolved_convention, assertion), bounds)


def build_requests(gate: GateFile, assertions: Iterable[Assertion] | None = None) -> list[MetricRequest]:
    """Return what the assertions of a gate file, all by default, need measured of the traces of a run."""
    asked_assertions = gate.assertions if assertions is None else assertions
    return [build_request(gate, assertion) for assertion in asked_assertions if assertion.outside_metric is None]


class Outcome(enum.StrEnum):
    """Names how an assertion ended. Every outcome is reported; none skips the test."""

    PASSED = "passed"
    IMPROVED = "improved"
    INCONCLUSIVE = "inconclusive"
    ACCEPTED = "accepted"  # worse than the merge base, within what the branch refreshed
    FAILED = "failed"
    INCOMPARABLE = "incomparable"
    NO_DATA = "no data"
    ERROR = "error"  # a trace that cannot be judged


OUTCOMES_WORST_FIRST = (
    *(Outcome.ERROR, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.FAILED, Outcome.ACCEPTED),
    *(Outcome.INCONCLUSIVE, Outcome.IMPROVED, Outcome.PASSED),
)
"""Order in which the outcomes of several assertions become one: the first that occurs."""

OUTSIDE_LIMIT = (Outcome.FAILED, Outcome.ACCEPTED)
"""Outcomes of a row that is outside its limit."""


class ClaimFinding(enum.StrEnum):
    """Says what the captures say of a claimed change of one row."""

    SHOWN = "shown"
    WORSE = "not better"
    TOO_SMALL = "smaller than claimed"
    WITHIN_TOLERANCE = "within the tolerance"  # better, and nobody claimed how much
    WITHIN_NOISE = "within the noise"
    OVERLAPPING = "captures overlap"  # beyond the noise, but some captures of base are as good as some of head
    NOT_TESTED = "not tested"  # too few captures, or a noise that nobody measured


class ClaimEvidence(NamedTuple):
    """Holds what a claimed change of one row rests on."""

    finding: ClaimFinding
    captures: str = ""  # of both sides, as in ``3 + 3 captures``; of accepted runs ``4 accepted runs``
    needed_captures: int | None = None  # how many a side would show this change; None where it is not known


JudgedLabels = Mapping[str, Label]
"""Maps the dimensions of a judged row that remain after aggregation to their labels."""


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """Holds one judged value with its limit, both in the unit of the verdict."""

    labels: JudgedLabels
    """The dimensions that are left after aggregation."""
    value: Value | None
    """None where the row is gone."""
    limit: Value | None
    """None if there is no baseline. Of a limit with two sides, the one on the value's side."""
    outcome: Outcome
    """How the row ended; PASSED for a waived row."""
    baseline: Value | None = None
    """The stored value; None for a constant limit, and for a new row."""
    tolerance: Value | None = None
    """How far from the baseline the value may be; None for a constant limit."""
    margin: Value | None = None
    """How far the value may still move before it fails, negative where it fails."""
    early_warning: bool = False
    """Whether the value holds its limit but not the early one."""
    noise: Value | None = None
    """The bound of the measured noise; None where it was not measured."""
    origin: JudgedLabels = field(default_factory=dict)
    """The row that an aggregate took its value from."""
    test: str = ""
    """What decided between two sets of captures."""
    waived: bool = False
    """Whether the value is outside its limit, and a waiver of the gate file allows that."""
    ceiling: Value | None = None
    """How far a waived value may go."""
    serialization: Value | None = None
    """The serialization of the row's rank, which the pipeline rule limits as well; None without that rule."""
    claim: ClaimEvidence | None = None
    """What a claimed change rests on; None where nothing is claimed. Of a claim ``tolerance`` is the change to the
    better that it takes, ``limit`` lies on the better side of the baseline.
    """
    step_ns: Value | None = None
    """The length, in ns, of the step that value and limit are shares of; None if they are no shares of a step."""

    @property
    def visible_change(self) -> Value | None:
        """Return the smallest change that the gate can see; None for a constant limit."""
        return None if self.tolerance is None else max(self.tolerance, self.noise or 0)

    @property
    def allowed_change(self) -> Value | None:
        """Return how far worse than its baseline the row may be before it fails; None where no baseline limits it.

        It is less than ``visible_change`` where the noise exceeds the most that it may add to the tolerance.
        """
        if self.tolerance is None or self.limit is None or self.baseline is None:
            return self.visible_change
        return distance(self.limit, self.baseline)

    @property
    def times_tolerance(self) -> Fraction | None:
        """Return how much worse than the baseline the value is, in units of the allowed change; negative where it is
        better.

        None where the row may not change, or has no limit.
        """
        if not self.allowed_change or self.margin is None:
            return None
        share = Fraction(self.margin) / Fraction(self.allowed_change)
        return 1 - share if self.claim is None else -1 - share

    @property
    def headroom(self) -> Fraction | None:
        """Return the share of its tolerance, or of a constant limit, that a row may still lose before it fails.

        It compares rows of all units: the one with the least headroom is nearest to failing. None if the row may not
        move at all: such a row holds, and is not about to fail. None of a claim, too, which is judged once.
        """
        if self.claim is not None:
            return None
        if self.times_tolerance is not None:
            return 1 - self.times_tolerance
        if self.margin is None or self.limit is None or (not self.margin and self.outcome is Outcome.PASSED):
            return None
        return Fraction(self.margin) / max(abs(Fraction(self.limit)), Fraction(1, 1_000_000))


class Difference(NamedTuple):
    """Describes one circumstance in which a run differs from its base or baseline."""

    name: str
    current: str
    baseline: str  # the value of the base or baseline


@dataclass(frozen=True, slots=True)
class Verdict:
    """Holds the judgement of one assertion."""

    assertion: Assertion
    """The assertion as resolved for the run."""
    outcome: Outcome
    """How the assertion ended."""
    message: str
    """The outcome explained on one line."""
    unit: str
    """The unit of the rows' values; empty if nothing was judged."""
    rows: tuple[JudgedRow, ...] = ()
    """Every row that was judged, the worst first."""
    windows: tuple[UsedWindow, ...] = ()
    """The measured windows, of each capture and rank."""
    measured_as: str = ""
    """Window, span and kernels mode in words."""
    outcome_warnings: tuple[str, ...] = ()
    """Warnings that repeat the outcome."""
    cautions: tuple[str, ...] = ()
    """Warnings about anything but the outcome."""
    notes: tuple[Note, ...] = ()
    """What the reader should know about the traces."""
    next_step: str = ""
    """The command that makes the missing baseline; empty if no command does."""
    is_new: bool = False
    """Whether the baseline has rows of other metrics, and none of this one yet."""
    differences: tuple[Difference, ...] = ()
    """The circumstances that make the run *incomparable*."""
    compared_with: str = ""
    """Where the baseline came from; empty where nothing was compared."""
    details: tuple[str, ...] = ()
    """Which kernels or streams changed behind the failed rows, a line each."""
    causes: tuple[RowExplanation, ...] = ()
    """The kernels that account for the worse rows, in the order of the rows."""
    step: StepChange | None = None
    """How the length of a step changed; None if one side does not know it."""
    examined_window: ExaminedWindow | None = None
    """The windows that explain the worst row."""
    examined_baseline: ExaminedWindow | None = None
    """The windows of the run before that these were compared with."""
    delayed: bool = False
    """Whether it is *inconclusive* only because ``fail_after`` waits for more bad runs."""
    accepted_for: str = ""
    """The branch's reason for the refresh that accepts the worse rows."""
    lets_pass: bool = False
    """Whether the assertion passes because of that refresh."""
    configuration: str = ""
    """The configuration of the gate file's matrix; empty without a matrix."""
    on_base: str = ""
    """How a constant limit ends on the base of a comparison; empty without a comparison, and for other limits."""
    _repr_html_ = render_object  # what a notebook shows
    __str__ = render_object_as_text  # what print() says

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.outcome}: {self.assertion.full_name}: {self.message}>"

    @property
    def address(self) -> str:
        """Return the gate file, with its configuration where it has several."""
        return str(GateAddress(str(self.assertion.location.path), self.configuration))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return all warnings that belong to the line of the assertion."""
        return (*self.outcome_warnings, *self.cautions)

    @property
    def nearest_row(self) -> JudgedRow | None:
        """Return the row that a summary names: the worst failed row, else the row nearest to failing. For an
        improvement, return the best row.
        """
        rows = [row for row in self.rows if row.margin is not None]
        if self.outcome in OUTSIDE_LIMIT:  # a waived row may be further out than the one that failed
            rows = [row for row in rows if not row.waived]
        sign = -1 if self.outcome is Outcome.IMPROVED else 1

        def sort_key(row: JudgedRow) -> tuple[bool, Value, Value, object]:
            headroom = row.headroom if self.outcome is Outcome.PASSED else 0
            return headroom is None, headroom or 0, sign * (row.margin or 0), make_labels_key([*row.labels.values()])

        return min(rows, key=sort_key, default=next(iter(self.rows), None))

    @property
    def margin(self) -> Value | None:
        """Return how far the nearest row may still move before it fails; negative where it fails, None where it is
        unknown.
        """
        return self.nearest_row.margin if self.nearest_row is not None else None

    @property
    def good(self) -> bool:
        """Whether the item passes, by its outcome or by ``severity: warn``."""
        severity = self.assertion.severity
        severities = {
            Outcome.FAILED: severity.failed,
            Outcome.ACCEPTED: Severity.WARN if self.lets_pass else severity.failed,
            Outcome.IMPROVED: severity.improved,
            Outcome.INCONCLUSIVE: severity.inconclusive,
        }
        return self.outcome is Outcome.PASSED or severities.get(self.outcome) is Severity.WARN
