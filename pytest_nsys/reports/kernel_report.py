"""What is said of kernels: what was divided by what, and the rest of the step?

And of the collectives among them: who straggles, and what is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pytest_nsys.analysis.collectives import lacking, transfers
from pytest_nsys.analysis.kernel_families import FamilySums, sums_of
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.analysis.straggling import Matched, agreeing, matched, stragglers
from pytest_nsys.analysis.subject import what_is_measured
from pytest_nsys.core.exact import exact
from pytest_nsys.core.families import FAMILIES
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.core.words import counted, printable, ranks_words
from pytest_nsys.reports.tables import aligned
from pytest_nsys.reports.views import Looked, Paragraph


@dataclass(frozen=True)
class KernelReport:
    """What is said of the kernels of one window. ``window`` says which it is."""

    sums: FamilySums
    window: str
    of: str = "step"

    @property
    def counted(self) -> str:
        """How the steps of the window are known. Nobody states 1 of a run without anchors, but who does is right."""
        sums = self.sums
        if self.of == "window" and sums.steps == 1:
            return "the window counts as one"
        if sums.run.workload.steps is None:
            return "the window is one" if sums.of_one_anchor else "anchors"
        return "stated" if sums.run.workload.steps > 1 or sums.anchored else "the whole run counts as one"

    def head(self) -> Sequence[tuple[str, str]]:
        """What was looked at, and what its sums are divided by."""
        sums = self.sums
        files = sums.run.files
        own = () if self.built_in else (("families", "its own"),)
        which = f"{format_value(Fraction(sums.gpus, files), BARE)} per file"
        if not sums.of_all_ranks:
            which = f"{ranks_words(sums.ranks)}, of {len(sums.run.ranks)}"
        return (
            ("trace files", str(files)),
            ("GPUs", f"{sums.gpus} ({which})"),
            ("steps", f"{sums.steps} ({self.counted})"),
            ("divisor", f"{sums.divisor} = {counted(sums.gpus, 'GPU')} x {counted(sums.steps, 'step')}"),
            ("launcher", str(sums.launcher)),
            ("looked at", self.window),
            *own,
        )

    @property
    def built_in(self) -> bool:
        """Whether kernels are counted by the built-in table."""
        return self.sums.run.convention.families == FAMILIES

    def of_what(self) -> tuple[str, str]:
        """What the columns of shares are of."""
        length = format_value(self.sums.window_ns)
        return ("shares", f"of {self.of}: of {length}, the mean over the ranks; of kernels: of total kernel")

    def rest(self) -> Sequence[tuple[str, str]]:
        """The step beside its kernels; what held it back the budget says."""
        step = self.sums.step_time
        total = ("total kernel", f"{format_value(self.sums.total.ns)} per GPU and step")
        if step is None:
            return (total, ("step - total kernel", "unknown: state the step with --step-time 412ms"))
        left = format_value(exact(Fraction(step.ns) - self.sums.total.ns))
        how = ", stated"
        if step.periods is not None:
            how = f", the median of {counted(step.periods, 'steady period')} without that after the window"
        return (total, ("step - total kernel", f"{left} (of {format_value(step.ns)}{how})"))

    def facts(self) -> dict[str, object]:
        """The same for programs: times in ns, per GPU and step."""
        sums, step = self.sums, self.sums.step_time
        left = None if step is None else exact(Fraction(step.ns) - sums.total.ns)
        return {
            "trace_files": sums.run.files,
            "gpus": sums.gpus,
            "steps": sums.steps,
            "steps_counted": self.counted,
            "window_ns": _number(sums.window_ns),
            "divisor": sums.divisor,
            "launcher": str(sums.launcher),
            "looked_at": self.window,
            "families": "built-in" if self.built_in else "its own",
            "total_kernel_ns": _number(sums.total.ns),
            "total_launches": _number(sums.total.launches),
            "step_ns": None if step is None else _number(step.ns),
            "step_stated": step is not None and step.periods is None,
            "step_minus_kernel_ns": None if left is None else _number(left),
        }


def _number(value: Value) -> int | float:
    return value if isinstance(value, int) else float(value)


def what_of(looked: Looked) -> str:
    """What is measured, of which shares are, in one word."""
    return what_is_measured(looked.captures.convention, looked.spec)


def about_kernels(looked: Looked) -> Paragraph:
    """What the sums are divided by, and the step beside them."""
    sums, run = sums_of(looked.asked_together), looked.run
    report = KernelReport(sums, str(looked.spec), what_of(looked))
    noted = [Note(text) for facts in run.facts for text in facts.notes]
    if looked.spec.whole_run and run.workload.steps is None:
        counts = f"steps are the {counted(sums.steps, 'anchor')} of each rank"
        noted.append(Note(f"{counts}, and kernels outside of them are counted with them: --steps says otherwise"))
    return Paragraph(
        below=aligned([*report.head(), report.of_what(), *report.rest()]), facts=report.facts(), notes=noted
    )


def about_collectives(looked: Looked) -> Paragraph:
    """Who straggles, how well the clocks agree, and what the traces cannot say."""
    report = CollectiveReport(looked.together, frozenset(looked.ranks))
    facts = {"stragglers": report.straggling(), "residuals": report.residuals()}
    said = [Note(line) for line in (*report.agreeing(), *report.unsaid())]
    return Paragraph(below=[*report.lines()], facts=facts, notes=said)


@dataclass(frozen=True)
class CollectiveReport:
    """The collectives of one window of every rank in ``shown``; waits are matched over all ranks."""

    window: RunWindow
    shown: frozenset[int]

    @cached_property
    def waits(self) -> Matched:
        return matched(self.window)

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
