"""How do kernels read: their families, what was divided by what, and the rest of the step?

And the collectives among them: a row for each rank, group and kind, who straggles, and what is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pytest_nsys.analysis.collectives import lacking, shares, sized, transfers
from pytest_nsys.analysis.kernel_families import FamilySums, Usage
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.analysis.straggling import Matched, agreeing, matched, stragglers
from pytest_nsys.core.exact import exact, mean, median
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.core.words import counted, printable
from pytest_nsys.reports.tables import (
    CellKind,
    Column,
    Format,
    Row,
    Table,
    aligned,
    escape_markdown,
    numbers,
    ratios,
    texts,
    times,
)

OF_FAMILIES = (*texts("family"), *times("family_ns"), *numbers("family_launches"), *ratios("share"))
OF_KERNELS = (*texts("kernel"), *times("kernel_ns"), *numbers("kernel_launches"), *ratios("share"))


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
        if format in (Format.JSON, Format.CSV):
            return Table(columns, self._rows()).render(format, {**about, **self._facts()})
        total = self._row("total" if self.family is None else f"all of {self.family}", self._whole)
        table = Table(columns, [*self._rows(), total]).render(format)
        head, rest = (_listed(format, facts) for facts in (self._head(), self._rest()))
        return f"{head}\n{table}\n{rest}"

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

    def _head(self) -> Sequence[tuple[str, str]]:
        """What was looked at, and what its sums are divided by."""
        sums = self.sums
        files, said = sums.run.files, "stated" if sums.run.workload.steps else "anchors"
        per_file = f"{format_value(Fraction(sums.gpus, files), BARE)} per file"
        return (
            ("trace files", str(files)),
            ("GPUs", f"{sums.gpus} ({per_file})"),
            ("steps", f"{sums.steps} ({said})"),
            ("divisor", f"{sums.divisor} = {counted(sums.gpus, 'GPU')} x {counted(sums.steps, 'step')}"),
            ("launcher", str(sums.launcher)),
            ("looked at", self.window),
            ("families", self.table),
        )

    def _rest(self) -> Sequence[tuple[str, str]]:
        """The step beside its kernels, and what the sign of the difference means."""
        step = self.sums.step_time
        total = ("total kernel", f"{format_value(self.sums.total.ns)} per GPU and step")
        if step is None:
            return (total, ("step", "unknown: state it with --step-time 412ms"))
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
    if left > 0:
        return "positive, a kernel blocks the main stream"
    return "negative, streams overlap" if left < 0 else "zero, the kernels fill the step"


def _number(value: Value) -> int | float:
    return value if isinstance(value, int) else float(value)


def _listed(format: Format, facts: Sequence[tuple[str, str]]) -> str:
    if format is Format.MARKDOWN:
        return "".join(f"- {name}: {escape_markdown(said)}\n" for name, said in facts)
    return "".join(f"{line}\n" for line in aligned(facts))


COLLECTIVES = (
    *(*numbers("rank"), *texts("group", "collective")),
    *(*numbers("group_size", "count"), Column("bytes", CellKind.SIZE), *times("time_ns")),
    *numbers("busbw_mean", "busbw", "busbw_min", "busbw_max"),
    *(*ratios("traffic_share"), *times("wait_ns", "transfer_ns"), *ratios("utilisation")),
)
"""Bandwidths are in GB/s, 1e9 bytes a second; ``busbw`` is the median. What is not known is absent."""


@dataclass(frozen=True)
class CollectiveReport:
    """The collectives of one window of every rank in ``shown``; waits are matched over all ranks."""

    window: RunWindow
    shown: frozenset[int]

    @cached_property
    def waits(self) -> Matched:
        return matched(self.window)

    def rows(self) -> list[Row]:
        """A row for each rank, group and kind, in that order."""
        return [row for number in sorted(self.shown) for row in self._rows_of(number)]

    def _rows_of(self, number: int) -> Iterator[Row]:
        found = transfers(self.window.by_rank[number])
        known, share_of_bytes = sized(found), shares(found)
        peak = self.window.run.workload.peak_gb_per_s
        for (group, kind), own in found.items():
            speeds: list[Value] = [speed for t in own.recorded if (speed := t.bus_gb_per_s) is not None]
            share = self.waits.shares.get((number, group, kind))
            yield (
                *(number, group, kind, own.group_size, own.kernels, known.get((group, kind))),
                own.in_window_ns,
                *(exact(Fraction(take(speeds))) if speeds else None for take in (mean, median, min, max)),
                share_of_bytes.get((group, kind)),
                *((None, None) if share is None else map(share.seen, (share.wait_ns, share.transfer_ns))),
                exact(Fraction(median(speeds)) / peak) if peak is not None and speeds else None,
            )

    def straggling(self) -> list[Mapping[str, str | int]]:
        found = stragglers(self.waits)
        return [{"group": g, "collective": k, "rank": rank, "lag_ns": lag} for (g, k), rank, lag in found]

    def residuals(self) -> list[Mapping[str, str | int]]:
        """How well the clocks of each group are one, where these are several."""
        known = sorted(self.waits.agreements.items())
        return [{"group": g, "clocks": a.clocks, "ends": a.ends, "residual_ns": a.residual_ns} for g, a in known]

    def agreeing(self) -> Sequence[str]:
        """The same in lines, and whose waits are too short to be told by them."""
        return list(agreeing(self.window))

    def lines(self) -> Iterator[str]:
        for found in self.straggling():
            lag = format_value(int(found["lag_ns"]), TIME)
            group = printable(str(found["group"]), 60)
            yield f"straggler of {group} {found['collective']}: rank {found['rank']} waits {lag} less than the longest"

    def unsaid(self) -> Iterator[str]:
        """What the traces cannot say, each in one line."""
        windows = [self.window.by_rank[number] for number in sorted(self.shown)]
        blind = [w for w in windows if w.track.collectives is None and transfers(w)]
        if blind:
            yield f"no bytes, bandwidths and waits: {blind[0].track.around.facts.to_see_sizes}"
        for window in windows:
            if window.track.collectives is not None:
                yield from (f"rank {window.rank.number}: {line}" for line in lacking(window))
        yield from (f"no waits of {line}" for line in self.waits.unmatched)
        if self.window.run.workload.peak_gb_per_s is None:
            yield "no utilisation: --peak 400GB/s states the bandwidth of the network per GPU"
