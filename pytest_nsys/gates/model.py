"""What passes through a gate: what its sentences mean and ask of a run, gate files, judged rows and verdicts."""

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

from pytest_nsys.analysis.explain.parts import Explained, StepChange
from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS, Bounds
from pytest_nsys.analysis.metrics.registry import Metric, Request, known_metric
from pytest_nsys.analysis.metrics.table import Selector, row_key
from pytest_nsys.analysis.windows.circumstances import RUN_FACTS
from pytest_nsys.analysis.windows.spans import OUTSIDE, LookedAt, UsedWindow, WindowSpec, spec_under
from pytest_nsys.core.conventions import MESH_AXES, Convention
from pytest_nsys.core.exact import distance
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.model import KernelsMode, Label, Note, Span, Value
from pytest_nsys.core.shown import html_of
from pytest_nsys.core.units import ANY, BARE
from pytest_nsys.core.words import printable
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.found_convention import FoundConvention

AllowMissing = Mapping[str, frozenset[int]]
"""Ranks that may lack the stages that a glob matches; ``*`` also stands for metrics that know no stage."""


class Comparator(enum.StrEnum):
    """How a value is held against its limit; exact, never rounded."""

    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    EQ = "=="
    NE = "!="

    def holds(self, value: Fraction | int, limit: Fraction | int) -> bool:
        """Whether ``value`` stands to ``limit`` as this comparator says."""
        return bool(getattr(operator, self.name.lower())(value, limit))


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far from its baseline m a value may be: T = max(relative · |m|, the absolute part of the metric's unit).

    ``absolute`` maps a metric unit (``ns``, ``%``, ``count``, ``1``) to an amount in that unit's base: nanoseconds,
    a plain fraction for percentage points, a number. ``noise``: T is 0, and the measured noise alone decides.
    """

    relative: Fraction = Fraction(0)
    absolute: Mapping[str, Fraction] = field(default_factory=dict)
    noise: bool = False

    def amount(self, baseline: Fraction | int, unit: str) -> Fraction:
        """T for a row whose baseline is ``baseline``."""
        return max(self.relative * abs(Fraction(baseline)), self.absolute.get(unit, Fraction(0)))


class Constant(NamedTuple):
    """A limit written in the gate file, in the base of its unit.

    ``unit`` is the metric's unit that it fits, where the gate file alone does not know the metric's.
    """

    value: Fraction
    unit: str = ANY


@dataclass(frozen=True, slots=True)
class ByModel:
    """A constant for each GPU model: a row is held to that of the GPU of its rank.

    ``constants`` are by the words that the gate file has for a model. ``models`` are the GPUs of the run by rank, as
    its traces name them, once it is known on what is judged; ``stated`` is what the gate file says where they do not.
    """

    constants: Mapping[str, Constant]
    models: Mapping[int, str] = field(default_factory=dict)
    stated: str = ""

    def word_for(self, labels: Mapping[str, Label]) -> str:
        """The model in the gate file that the GPU of a row is. Raises ValueError where there is none, or several."""
        rank, usual = labels.get("rank"), {*self.models.values()} or {self.stated}
        names = {self.models[rank]} if isinstance(rank, int) and rank in self.models else usual
        if len(names) > 1:
            raise ValueError(f"ranks on {' and '.join(sorted(names))} are taken together: no constant is for both")
        (name,) = names
        if not name:
            raise ValueError("nothing says on which GPU this ran, and the limit hangs on it: write run: {gpu: …}")
        fitting = [word for word in self.constants if _is_model(word, name)]
        longest = max((len(model_words(word)) for word in fitting), default=0)
        found = [word for word in fitting if len(model_words(word)) == longest]
        if len(found) == 1:
            return found[0]
        several = " and ".join(found)
        given = f"the limit has constants for {', '.join(self.constants)}"
        raise ValueError(f"{name} is {several} alike" if found else f"no constant is for {name}: {given}")


def model_words(name: str) -> list[str]:
    """What the name of a GPU model is told by: ``NVIDIA H100 80GB HBM3`` is an ``H100``, and no ``GH200``."""
    return re.findall(r"[a-z0-9]+", name.lower())


def _is_model(word: str, name: str) -> bool:
    asked, found = model_words(word), model_words(name)
    return any(found[at : at + len(asked)] == asked for at in range(len(found)))


class FromHistory(NamedTuple):
    """The last ``runs`` runs of the history on ``branch`` (None: any) stand for the accepted runs of a baseline.

    The newest ``lag`` of them stay out of it.
    """

    runs: int
    branch: str | None = None
    lag: int = 0

    @property
    def source(self) -> str:
        """What stands in for the baseline, in words: ``median of the last 10 runs of main before the newest 3``."""
        runs = "the last run" if self.runs == 1 else f"median of the last {self.runs} runs"
        where = "" if self.branch is None else f" of {printable(self.branch, 60)}"
        lag = f" before the newest {self.lag}" if self.lag > 1 else " before the newest" * self.lag
        return f"{runs}{where}{lag}"

    @property
    def begins(self) -> str:
        """When there will be something to compare with, in words."""
        first = f"run {self.lag + 2}" if self.lag else "the second"
        return f"each run with --nsys-history adds to it; from {first} on, runs are compared"


class Unmatched(enum.StrEnum):
    """Rows of one side alone: those that now has, or those that the baseline has."""

    NEW = "new"
    VANISHED = "vanished"
    EITHER = "new or vanished"


class FromBaseline(NamedTuple):
    """A limit read from the baseline of the row: m + T above, m − T below. Tolerance None: exactly m.

    ``history`` None: the stored baseline, or the other trace where one is given. ``no``: nothing is asked of the
    values, but that there is no such row above the tolerance.
    """

    tolerance: Tolerance | None
    history: FromHistory | None = None
    no: Unmatched | None = None

    @property
    def exact(self) -> bool:
        """Whether noise has no part in it."""
        return self.tolerance is None or self.no is not None

    @property
    def source(self) -> str:
        """Where the limit is read, in words: ``baseline``, or runs of the history."""
        return self.history.source if self.history is not None else "baseline"


@dataclass(frozen=True, slots=True)
class Requirement:
    """``comparator`` None means both sides of a baseline: neither more nor less than T away."""

    comparator: Comparator | None
    limit: Constant | ByModel | FromBaseline
    text: str

    @property
    def each_constant(self) -> Sequence[Constant]:
        """The constants that are written in it."""
        if isinstance(self.limit, FromBaseline):
            return ()
        return [*self.limit.constants.values()] if isinstance(self.limit, ByModel) else [self.limit]

    def constant(self, labels: Mapping[str, Label]) -> Constant:
        """The constant that a row is held to. Raises ValueError where none is for its GPU."""
        assert not isinstance(self.limit, FromBaseline)
        return self.limit.constants[self.limit.word_for(labels)] if isinstance(self.limit, ByModel) else self.limit

    @property
    def worse(self) -> int:
        """Which way a value gets worse: 1 up, −1 down, 0 either."""
        return {"<": 1, "<=": 1, ">": -1, ">=": -1}.get(self.comparator or "", 0)


class Aggregate(NamedTuple):
    """One value of many: ``word`` is median, mean, max, min, sum or pNN (nearest rank).

    ``over`` names the dimensions that it takes together; None: all that the sentence does not fix.
    """

    word: str
    over: tuple[str, ...] | None = None


class Judged(NamedTuple):
    """What a limit is set for: values from ``least`` to ``greatest``, None where no such end is known."""

    name: str
    unit: str
    better: str | None
    least: int | None
    greatest: int | None


def judged(metric: Metric, aggregates: Collection[Aggregate] = (), balance_across: str | None = None) -> Judged:
    """What a limit is set for: values of the metric, their sums, or their balance, maximum over minimum."""
    if balance_across:
        return Judged(f"balance of {metric.name}", BARE, "lower", 1, None)
    greatest = None if any(step.word == "sum" for step in aggregates) else metric.greatest
    return Judged(metric.name, str(metric.unit), metric.better, metric.least, greatest)


class Severity(enum.StrEnum):
    FAIL = "fail"
    WARN = "warn"


class Severities(NamedTuple):
    """What becomes of the item by outcome; WARN: it passes with a warning."""

    failed: Severity = Severity.FAIL
    inconclusive: Severity = Severity.WARN
    improved: Severity = Severity.WARN


class Location(NamedTuple):
    """Where a thing stands in its file; line and column count from 1."""

    path: Path
    line: int
    column: int

    @property
    def at_line(self) -> str:
        """``file:line``, as a verdict names it."""
        return f"{self.path}:{self.line}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Waiver:
    """Rows that may stay outside their limit for a while, up to ``ceiling`` (down to it, where more is better).

    ``where`` empty: every row of the assertion. The waiver holds until the end of the day ``expires``, in UTC.
    ``shared``: it stands for several items of a ``for:``, none of which can tell whether another needs it. ``unit`` is
    as that of a Constant.
    """

    ceiling: Fraction
    expires: date
    reason: str
    location: Location
    link: str = ""
    where: Mapping[str, Selector] = field(default_factory=dict)
    shared: bool = False
    unit: str = ANY


@dataclass(frozen=True, slots=True)
class Assertion:
    """One sentence; one pytest item. ``name`` is what the item is called, unique in its file; ``full_name`` says its
    limit too (``gates/names.py``).

    ``pipeline``: beside the limit the median period has to be nearer the longer stage than the sum of both.
    ``fail_after``: of bad runs in a row the first that fails; the ones before are *inconclusive*. ``outside`` is what
    is known of a metric that was measured outside of the traces, ``kind`` the kind of steps that the sentence names:
    ``settling.settled`` completes the one, and makes a selector of the other where the convention has no such kind.
    """

    name: str
    full_name: str
    sentence: str
    location: Location
    metric: str
    require: Requirement
    where: Mapping[str, Selector] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()
    balance_across: str | None = None
    pipeline: bool = False
    warn: Requirement | None = None
    severity: Severities = Severities()  # noqa: RUF009  a NamedTuple: immutable
    marks: tuple[str, ...] = ()
    xfail: str | None = None
    allow_no_data: bool = False
    allow_missing: AllowMissing = field(default_factory=dict)
    fail_after: int = 1
    waivers: tuple[Waiver, ...] = ()
    window: str = "median"
    span: Span | None = None
    kernels: KernelsMode | None = None
    outside: Metric | None = None
    kind: str | None = None

    @property
    def measures(self) -> Metric:
        """Its metric."""
        return self.outside or known_metric(self.metric)

    @property
    def judged(self) -> Judged:
        """What its limit is set for; as long as nobody has looked at what was measured, in the unit of the limit."""
        values = judged(self.measures, self.aggregates, self.balance_across)
        return values._replace(unit=values.unit or next((each.unit for each in self.require.each_constant), ANY))

    @property
    def needs_baseline(self) -> bool:
        return isinstance(self.require.limit, FromBaseline)

    @property
    def reads_stored(self) -> bool:
        """Whether its limit comes from the stored baseline, not from the history."""
        return isinstance(self.require.limit, FromBaseline) and self.require.limit.history is None


@dataclass(frozen=True, slots=True)
class GateFile:
    """A gate file, understood. ``traces`` are captures (file, folder or glob), relative to the file; ``measurements``
    the file, or glob of files, beside each.

    ``convention`` None is ``auto``: :func:`~pytest_nsys.verdicts.evaluate.resolved` makes it the gate file of a run,
    under the convention ``found``.
    ``run`` states what the trace does not say: ``gpu``, ``world``, ``micro_batch``, ``sequence_length`` and mesh
    sizes by axis; ``workload`` what no trace can say of the work. ``tolerance``, ``window``, ``span``, ``kernels`` and
    ``allow_missing`` hold for assertions that say nothing else.
    ``quality`` bounds what may be wrong with the traces before nothing is judged on them.
    ``comparable_on`` names the circumstances that must agree with a baseline's (None: all of them).
    With a ``matrix`` nothing is judged on the file itself, which then has the assertions of all its configurations:
    each is a gate file with a ``configuration``, one of ``names``, and what holds for it.
    """

    path: Path
    assertions: tuple[Assertion, ...]
    convention: Convention | None
    traces: tuple[str, ...] = ()
    measurements: tuple[str, ...] = ()
    run: Mapping[str, Label] = field(default_factory=dict)
    workload: Workload = Workload()  # noqa: RUF009  a NamedTuple: immutable
    comparable_on: tuple[str, ...] | None = None
    quality: Bounds = field(default_factory=Bounds)
    tolerance: Tolerance | None = None
    window: str = "median"
    span: Span | None = None
    kernels: KernelsMode | None = None
    allow_missing: AllowMissing = field(default_factory=dict)
    found: FoundConvention | None = None
    configuration: str = ""
    names: tuple[str, ...] = ()
    matrix: tuple[GateFile, ...] = ()

    @property
    def each(self) -> tuple[GateFile, ...]:
        """The gate files that are judged: one for each configuration of a matrix, else this one."""
        return self.matrix or (self,)

    @property
    def address(self) -> str:
        """Its path, with its configuration where it is one: ``step.nsys.yaml[llama-8b]``."""
        return str(Address(str(self.path), self.configuration))

    @property
    def needs_trace(self) -> bool:
        """Whether a trace has to be read for it: an assertion is of more than measurements beside one."""
        return not self.assertions or any(assertion.outside is None for assertion in self.assertions)

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that the setup label or ``run`` states, those that it can state where the convention is to be
        found.
        """
        stated = (key for key in self.run if key not in RUN_FACTS)
        labelled = MESH_AXES if self.convention is None else self.convention.mesh_axes
        return tuple(dict.fromkeys((*labelled, *stated)))

    @property
    def resolved_convention(self) -> Convention:
        """That of a gate file whose convention was named or found."""
        assert self.convention is not None, "the convention of this gate file is not found yet"
        return self.convention


def spec_for(convention: Convention, assertion: Assertion) -> WindowSpec:
    """What the assertion is judged on."""
    if assertion.outside is not None:
        return OUTSIDE
    return spec_under(convention, assertion.window, assertion.span, assertion.kernels, assertion.kind)


def request_of(gate: GateFile, assertion: Assertion, usual_steps: int | None = 1) -> Request:
    """What an assertion asks of a run; ``usual_steps`` as in Bounds, where steps were found and nobody bounds them."""
    chosen = gate.found is None or gate.quality.anchors != FEW_ANCHORS
    bounds = replace(gate.quality, usual_steps=None if chosen else usual_steps)
    return Request(assertion.metric, spec_for(gate.resolved_convention, assertion), bounds)


def requests_of(gate: GateFile, assertions: Iterable[Assertion] | None = None) -> list[Request]:
    """What the assertions of a gate file, all by default, will ask of the traces of a run."""
    chosen = gate.assertions if assertions is None else assertions
    return [request_of(gate, each) for each in chosen if each.outside is None]


class Outcome(enum.StrEnum):
    """How an assertion ended. ACCEPTED is worse than the merge base, within what the branch refreshed; ERROR is a trace
    that cannot be judged. No state is silent and none is a skip.
    """

    PASSED = "passed"
    IMPROVED = "improved"
    INCONCLUSIVE = "inconclusive"
    ACCEPTED = "accepted"
    FAILED = "failed"
    INCOMPARABLE = "incomparable"
    NO_DATA = "no data"
    ERROR = "error"


WORST_FIRST = (
    *(Outcome.ERROR, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.FAILED, Outcome.ACCEPTED),
    *(Outcome.INCONCLUSIVE, Outcome.IMPROVED, Outcome.PASSED),
)
"""By which several assertions are one word."""

WORSE = (Outcome.FAILED, Outcome.ACCEPTED)
"""Outcomes of a row that is outside its limit."""

Labels = Mapping[str, Label]
"""The dimensions of a judged row: those that are left after aggregation."""


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """Holds one value against its limit; the unit is that of its verdict."""

    labels: Labels
    """The dimensions that are left after aggregation."""
    value: Value | None
    """None where the row is gone."""
    limit: Value | None
    """None where there is no baseline; where one is held on both sides, the limit on the value's side."""
    outcome: Outcome
    """How the row ended; of a waived one PASSED."""
    baseline: Value | None = None
    """What is stored; None for a constant limit, and for a row that is new."""
    tolerance: Value | None = None
    """How far from the baseline the value may be; None for a constant limit."""
    margin: Value | None = None
    """How far the value may still move before it fails, negative where it fails."""
    early_warning: bool = False
    """Whether it holds, but not the limit of the early warning."""
    noise: Value | None = None
    """The bound of the measured noise; None where it was not measured."""
    origin: Labels = field(default_factory=dict)
    """The row that an aggregate took its value from."""
    test: str = ""
    """What decided between two sets of captures."""
    waived: bool = False
    """Whether it is outside its limit as a waiver of the gate file allows."""
    ceiling: Value | None = None
    """How far a waived value may go."""
    serialization: Value | None = None
    """What a pipeline's rule holds the row to as well; None where there is none."""
    step_ns: Value | None = None
    """The length of the step that value and limit are shares of; None where they are none."""

    @property
    def sees(self) -> Value | None:
        """The smallest change that the gate can see; None for a constant limit."""
        return None if self.tolerance is None else max(self.tolerance, self.noise or 0)

    @property
    def reach(self) -> Value | None:
        """How far worse than its baseline the row may be before it fails; None where it has no limit of a baseline.

        It is less than ``sees`` where the noise is more than a tolerance may be exceeded for it.
        """
        if self.tolerance is None or self.limit is None or self.baseline is None:
            return self.sees
        return distance(self.limit, self.baseline)

    @property
    def times_tolerance(self) -> Fraction | None:
        """How much worse the value is than the baseline, in units of what it may be, negative where it is better; None
        where it may not change, or has no limit.
        """
        return None if not self.reach or self.margin is None else 1 - Fraction(self.margin) / Fraction(self.reach)

    @property
    def headroom(self) -> Fraction | None:
        """How much of its tolerance, or of a constant limit, a row may still lose before it fails: of rows of any unit
        the least is nearest to failing. None where it may not move at all: it holds, and is not about to fail.
        """
        if self.times_tolerance is not None:
            return 1 - self.times_tolerance
        if self.margin is None or self.limit is None or (not self.margin and self.outcome is Outcome.PASSED):
            return None
        return Fraction(self.margin) / max(abs(Fraction(self.limit)), Fraction(1, 1_000_000))


class Difference(NamedTuple):
    """One circumstance in which a run and what it is compared with differ."""

    name: str
    now: str
    baseline: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Holds the judgement of one assertion."""

    assertion: Assertion
    """As it was resolved for the run."""
    outcome: Outcome
    """How it ended."""
    message: str
    """The one line that says it."""
    unit: str
    """Of the values of its rows; empty where nothing was judged."""
    rows: tuple[JudgedRow, ...] = ()
    """Every row that was judged, the worst first."""
    windows: tuple[UsedWindow, ...] = ()
    """What was measured: of each capture and rank."""
    measured_as: str = ""
    """Window, span and kernels mode in words."""
    restated: tuple[str, ...] = ()
    """Warnings that tell the outcome again."""
    cautions: tuple[str, ...] = ()
    """Warnings of something else."""
    notes: tuple[Note, ...] = ()
    """What a person should know of the traces."""
    next_step: str = ""
    """The command that makes its baseline; empty where none does."""
    differences: tuple[Difference, ...] = ()
    """The circumstances that make it *incomparable*."""
    compared_with: str = ""
    """Where the baseline came from; empty where nothing was compared."""
    details: tuple[str, ...] = ()
    """What changed behind the rows, a line each."""
    causes: tuple[Explained, ...] = ()
    """The kernels that account for the rows that are worse, in their order."""
    step: StepChange | None = None
    """How long a step was and is, where both sides know it."""
    looked_at: LookedAt | None = None
    """The windows that explain the worst row."""
    delayed: bool = False
    """Whether it is *inconclusive* only because ``fail_after`` waits for more bad runs."""
    accepted_for: str = ""
    """The reason of the refresh by which a branch accepts what is worse."""
    lets_pass: bool = False
    """Whether the check is green by that."""
    configuration: str = ""
    """Of the gate file's matrix; empty where it has none."""
    on_base: str = ""
    """How a constant limit ends on the other run of a comparison; empty without one, and of any other limit."""
    _repr_html_ = html_of  # what a notebook shows

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.outcome}: {self.assertion.full_name}: {self.message}>"

    @property
    def address(self) -> str:
        """The gate file, with its configuration where it has several."""
        return str(Address(str(self.assertion.location.path), self.configuration))

    @property
    def warnings(self) -> tuple[str, ...]:
        """All that belongs to the line of the assertion."""
        return (*self.restated, *self.cautions)

    @property
    def nearest(self) -> JudgedRow | None:
        """The row that a summary names: nearest to failing, or failing worst; of an improvement the best."""
        judged = [row for row in self.rows if row.margin is not None]
        if self.outcome in WORSE:  # a waived row may be further out than the one that failed
            judged = [row for row in judged if not row.waived]
        sign = -1 if self.outcome is Outcome.IMPROVED else 1

        def key(row: JudgedRow) -> tuple[bool, Value, Value, object]:
            used = row.headroom if self.outcome is Outcome.PASSED else 0
            return used is None, used or 0, sign * (row.margin or 0), row_key([*row.labels.values()])

        return min(judged, key=key, default=next(iter(self.rows), None))

    @property
    def margin(self) -> Value | None:
        """How far the nearest row may still move before it fails, negative where it fails; None where it is unknown."""
        return self.nearest.margin if self.nearest is not None else None

    @property
    def good(self) -> bool:
        """Whether the item passes: by outcome, by ``severity: warn``, never by silence."""
        asked = self.assertion.severity
        said = {
            Outcome.FAILED: asked.failed,
            Outcome.ACCEPTED: Severity.WARN if self.lets_pass else asked.failed,
            Outcome.IMPROVED: asked.improved,
            Outcome.INCONCLUSIVE: asked.inconclusive,
        }
        return self.outcome is Outcome.PASSED or said.get(self.outcome) is Severity.WARN
