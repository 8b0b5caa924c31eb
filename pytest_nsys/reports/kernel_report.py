"""How do families of kernels read: what was divided by what, the families, and the rest of the step?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.analysis.kernel_families import FamilySums, Usage
from pytest_nsys.core.model import Value, counted
from pytest_nsys.core.statistics import exact
from pytest_nsys.core.units import format_value
from pytest_nsys.reports import tables
from pytest_nsys.reports.tables import CellKind, Column, Format, Row, aligned

MEASURED = (
    Column("family_ns", CellKind.NUMBER),
    Column("family_launches", CellKind.NUMBER),
    Column("share", CellKind.RATIO),
)
OF_FAMILIES = (Column("family"), *MEASURED)
OF_KERNELS = (
    Column("kernel"),
    Column("kernel_ns", CellKind.NUMBER),
    Column("kernel_launches", CellKind.NUMBER),
    Column("share", CellKind.RATIO),
)


@dataclass(frozen=True)
class KernelReport:
    """The kernels of one window. ``window`` and ``table`` say which it is and by what they were counted; ``family`` is
    the one whose single kernels are shown, None for all families.
    """

    sums: FamilySums
    window: str
    table: str
    family: str | None

    def text(self, format: Format, about: Mapping[str, object]) -> str:
        """The report. ``about`` is what JSON has besides; CSV is the rows alone."""
        columns = OF_FAMILIES if self.family is None else OF_KERNELS
        match format:
            case Format.JSON:
                rows = tables.json_rows(columns, self._rows())
                return tables.as_json({**about, **self._facts(), "rows": rows})
            case Format.CSV:
                return tables.as_csv(columns, self._rows())
            case Format.MARKDOWN:
                head, rest = (_as_list(lines) for lines in (self._head(), self._rest()))
                return f"{head}\n{tables.as_markdown(columns, [*self._rows(), self._total_row()])}\n{rest}"
            case Format.TABLE:
                head, rest = ("".join(f"{line}\n" for line in aligned(lines)) for lines in (self._head(), self._rest()))
                return f"{head}\n{tables.as_table(columns, [*self._rows(), self._total_row()])}\n{rest}"

    @property
    def _whole(self) -> Usage:
        """What the shares are of."""
        return self.sums.total if self.family is None else self.sums.families[self.family]

    def _rows(self) -> list[Row]:
        """The families, or the kernels of one, the longest time first, and equal ones in the order of the table."""
        if self.family is not None:
            return [self._row(*kernel) for kernel in self.sums.kernels_of(self.family)]
        return [self._row(*item) for item in sorted(self.sums.families.items(), key=lambda item: -item[1].ns)]

    def _row(self, name: str, usage: Usage) -> Row:
        share = exact(Fraction(usage.ns) / self._whole.ns) if self._whole.ns else None
        return (name, usage.ns, usage.launches, share)

    def _total_row(self) -> Row:
        return self._row("total" if self.family is None else f"all of {self.family}", self._whole)

    def _head(self) -> Sequence[Sequence[str]]:
        """What was looked at, and what its sums are divided by."""
        sums = self.sums
        files, said = sums.run.files, "stated" if sums.run.workload.steps else "anchors"
        per_file = f"{float(Fraction(sums.gpus, files)):.3g} per file"
        return (
            ("trace files", str(files)),
            ("GPUs", f"{sums.gpus} ({per_file})"),
            ("steps", f"{sums.steps} ({said})"),
            ("divisor", f"{sums.divisor} = {counted(sums.gpus, 'GPU')} x {counted(sums.steps, 'step')}"),
            ("launcher", str(sums.launcher)),
            ("looked at", self.window),
            ("families", self.table),
        )

    def _rest(self) -> Sequence[Sequence[str]]:
        """The step beside its kernels, and what the sign of the difference means."""
        step = self.sums.step_time
        total = ("total kernel", f"{format_value(self.sums.total.ns)} per GPU and step")
        if step is None:
            return (total, ("step", "not known, nor what is left of it: --step-time 412ms says it"))
        how = "stated" if step.periods is None else f"median of {counted(step.periods, 'steady period')}, profiled"
        left = exact(Fraction(step.ns) - self.sums.total.ns)
        return (
            total,
            ("step", f"{format_value(step.ns)} ({how})"),
            ("step - total kernel", f"{format_value(left)}: {_meaning(left)}"),
        )

    def _facts(self) -> dict[str, object]:
        """The same for programs: times in ns, per GPU and step."""
        sums, step = self.sums, self.sums.step_time
        left = None if step is None else exact(Fraction(step.ns) - sums.total.ns)
        return {
            "trace_files": sums.run.files,
            "gpus": sums.gpus,
            "steps": sums.steps,
            "steps_stated": sums.run.workload.steps is not None,
            "divisor": sums.divisor,
            "launcher": str(sums.launcher),
            "looked_at": self.window,
            "families": self.table,
            "family": self.family,
            "total_kernel_ns": _number(sums.total.ns),
            "total_launches": _number(sums.total.launches),
            "step_ns": None if step is None else _number(step.ns),
            "step_stated": step is not None and step.periods is None,
            "step_minus_kernel_ns": None if left is None else _number(left),
            "meaning": None if left is None else _meaning(left),
        }


def _meaning(left: Value) -> str:
    """What the sign of step − total kernel says."""
    if left > 0:
        return "positive, a kernel blocks the main stream"
    return "negative, streams overlap" if left < 0 else "zero, the kernels fill the step"


def _number(value: Value) -> int | float:
    return value if isinstance(value, int) else float(value)


def _as_list(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"- {name}: {tables.escape_markdown(said)}\n" for name, said in lines)
