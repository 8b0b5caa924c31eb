"""What one sentence of a gate file means, once its words are understood."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from pytest_nsys.conventions import Convention
from pytest_nsys.model import KernelsMode, Label, Span


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
        return {
            Comparator.LT: value < limit,
            Comparator.LE: value <= limit,
            Comparator.GT: value > limit,
            Comparator.GE: value >= limit,
            Comparator.EQ: value == limit,
            Comparator.NE: value != limit,
        }[self]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far from its baseline m a value may be: T = max(relative · |m|, the absolute part of the metric's unit).

    ``absolute`` maps a metric unit (``ns``, ``%``, ``count``, ``1``) to an amount in that unit's base: nanoseconds,
    a plain fraction for percentage points, a number.
    """

    relative: Fraction = Fraction(0)
    absolute: Mapping[str, Fraction] = field(default_factory=dict)

    def amount(self, baseline: Fraction | int, unit: str) -> Fraction:
        """T for a row whose baseline is ``baseline``."""
        return max(self.relative * abs(Fraction(baseline)), self.absolute.get(unit, Fraction(0)))


@dataclass(frozen=True, slots=True)
class Constant:
    """A limit written in the gate file."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class FromBaseline:
    """A limit read from the stored baseline of the row: m + T above, m − T below. None: exactly m."""

    tolerance: Tolerance | None


@dataclass(frozen=True, slots=True)
class Requirement:
    """``comparator`` None means both sides of a baseline: neither more nor less than T away."""

    comparator: Comparator | None
    limit: Constant | FromBaseline
    text: str


@dataclass(frozen=True, slots=True)
class Selector:
    """The labels that one dimension may have. Each of ``values`` must match a row, else there is no data.

    Text matches exactly, or as a prefix before ``_``, or as a glob; numbers match as numbers.
    """

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One value of many: ``word`` is median, mean, max, min, sum or pNN (nearest rank).

    ``over`` names the dimensions that it takes together; None: all that the sentence does not fix.
    """

    word: str
    over: tuple[str, ...] | None = None


class Severity(enum.StrEnum):
    FAIL = "fail"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Location:
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
class Assertion:
    """One sentence; one pytest item. ``name`` is what the item is called, unique in its file."""

    name: str
    sentence: str
    location: Location
    metric: str
    require: Requirement
    where: Mapping[str, Selector] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()
    balance_across: str | None = None
    warn: Requirement | None = None
    severity: Severity = Severity.FAIL
    marks: tuple[str, ...] = ()
    xfail: str | None = None
    allow_no_data: bool = False
    on_improvement: Severity = Severity.WARN
    window: str = "median"
    span: Span | None = None
    kernels: KernelsMode | None = None

    @property
    def needs_baseline(self) -> bool:
        return isinstance(self.require.limit, FromBaseline)


@dataclass(frozen=True, slots=True)
class GateFile:
    """A gate file, understood. ``traces`` are captures (file, folder or glob), relative to the file.

    ``run`` states what the trace does not say: ``gpu``, ``world``, ``micro_batch``, ``sequence_length`` and mesh
    sizes by axis. ``tolerance``, ``window``, ``span`` and ``kernels`` hold for assertions that say nothing else.
    """

    path: Path
    assertions: tuple[Assertion, ...]
    convention: Convention
    traces: tuple[str, ...] = ()
    run: Mapping[str, Label] = field(default_factory=dict)
    tolerance: Tolerance | None = None
    window: str = "median"
    span: Span | None = None
    kernels: KernelsMode | None = None
