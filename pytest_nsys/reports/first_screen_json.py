"""What does a program read of the first screen: one object, or flat rows for a table?

Times are ns, shares between 0 and 1, and nothing is rounded to be read.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct, to_builtins

from pytest_nsys.analysis.communication import Communicated
from pytest_nsys.analysis.findings import Finding
from pytest_nsys.analysis.step_words import repeats_words
from pytest_nsys.analysis.summary import STEP, KernelShare, RankBudget, StepLength, Summary
from pytest_nsys.core.conventions import written_anchor
from pytest_nsys.core.model import Value
from pytest_nsys.reports.findings import sentence
from pytest_nsys.reports.next_steps import next_steps, to_see_more
from pytest_nsys.reports.shapes import Count, doc
from pytest_nsys.reports.tables import as_json

VERSION = 1

Exactly = int | float


class Traced(Struct):
    """What was traced, and with what."""

    profiler: str
    framework: Annotated[str | None, doc("None where neither kernels nor the profiler say.")]
    gpu: str | None
    ranks: Annotated[list[int], doc("Those that have figures.")]
    absent_ranks: Annotated[Count, doc("Ranks of the mesh that no trace holds.")]
    mesh: Annotated[dict[str, int], doc("Size of each axis.")]
    files: Count
    captures: Annotated[Count, doc("Of so many runs of the program figures are medians.")]


class HowMeasured(Struct):
    """How the windows were found."""

    convention: str
    anchor: Annotated[str | None, doc("What begins the steps, as --anchor takes it; None where nothing repeats.")]
    anchors: Count
    index: Annotated[int | None, doc("Of the anchor that is the window; None where it is none, or several are.")]
    name: Annotated[str | None, doc("Of that range on the first rank.")]
    part_of_a_step: bool
    whole_run: bool
    window: str
    span: str
    kernels: str
    repeats: Annotated[
        str | None, doc("What repeats, by modules or ranges, else the kernels; None: nothing does, or nobody looked.")
    ]


class RateOfWork(Struct):
    """What is known of the work done in a second."""

    metric: str
    value: Exactly
    unit: str


class OneStep(Struct):
    """A step that stands out."""

    ns: Count
    rank: int
    window: Annotated[int, doc("Of `--window`.")]


class StepsOfAKind(Struct):
    """Steps of one kind, as decode."""

    kind: str
    count: Annotated[Count, doc("Of one rank.")]
    ns: Annotated[Exactly | None, doc("The median of the slowest rank; None where a rank has none.")]


class LengthOfStep(Struct):
    """How long a step takes."""

    metric: Annotated[str, doc(f"{STEP}, or window_ns where a step is not known.")]
    ns: Exactly
    slowest_rank: int
    fastest_rank: int | None
    fastest_ns: Exactly | None
    quantiles_ns: Annotated[dict[str, Exactly], doc("Of the steady periods of the slowest rank.")]
    steady: Annotated[Count, doc("How many periods these are of.")]
    steps: Annotated[Count, doc("Of the slowest rank.")]
    longest: Annotated[OneStep | None, doc("Of all ranks, where it is 1.2 times the median of its rank or more.")]
    rates: list[RateOfWork]
    why: Annotated[str, doc("Why a step is not known.")]
    kinds: Annotated[list[StepsOfAKind], doc("Where there are several: the rest is of the first.")]


class PartOfTime(Struct):
    """A part of a window."""

    part: str
    ns: Exactly
    share: Exactly


class TimeOfRank(Struct):
    """Where the time of a rank's window goes: the shares of its parts add up to 1."""

    rank: int
    window_ns: Exactly
    parts: list[PartOfTime]
    bounded: Annotated[bool, doc("What is blocked is at least, and what is stalled at most, what is said.")]
    why: Annotated[str, doc("Why it has no parts.")]


class KernelOfRun(Struct):
    """Kernels of one name, the mean over the ranks."""

    name: str
    called: Annotated[str, doc("The name as the screen has it.")]
    family: str
    ns: Exactly
    launches: Exactly
    share: Annotated[Exactly, doc("Of the window; kernels of several streams may take more than all of it.")]


class CommunicationOf(Struct):
    """Communication of one name on the rank that exposes it longest."""

    name: str
    rank: int
    ns: Exactly
    exposed_ns: Exactly
    overlap: Exactly | None
    busbw: Annotated[Exactly | None, doc("Median bandwidth of the links in GB/s; None where it is not known.")]


class FindingTold(Struct):
    """What to look at."""

    kind: str
    text: str
    rank: Annotated[int | None, doc("Of which it is told; None: of the run.")]
    ranks: Annotated[list[int], doc("All on which it is worth telling.")]
    figures: Annotated[dict[str, Exactly | str], doc("What the text says, exactly; which there are is by kind.")]
    win_ns: Annotated[int | None, doc("The most that fixing it could win of the window.")]
    share: Annotated[Exactly | None, doc("The same as a share of it.")]
    command: Annotated[str, doc("What shows more.")]


class MostOfTime(Struct):
    """One thing that takes most of what was measured."""

    of: Annotated[str, doc("copies, idle, or one kernel.")]
    share: Exactly
    what: Annotated[str, doc("Between which memories most copies go, or the kernel.")]
    gap_ns: Annotated[Count | None, doc("One gap that is most of the idle time.")]


class NextStep(Struct):
    """A command that leads on."""

    command: str
    what: str


class RunSummary(Struct):
    """What `pytest-nsys TRACE… --format json` prints."""

    version: Annotated[int, doc("Of this shape: 1.")]
    traces: list[str]
    subject: Traced
    measured: HowMeasured
    step: LengthOfStep
    ranks: list[TimeOfRank]
    without: Annotated[dict[str, str], doc("Why ranks have no figures.")]
    kernels: list[KernelOfRun]
    other_kernels: Count
    other_kernels_ns: Exactly
    communication_by: Annotated[str, doc("stage or collective.")]
    communication_shares_streams: Annotated[bool, doc("The figures are those of the metrics …_all.")]
    communication: Annotated[list[CommunicationOf], doc("The first is all of it, the others are parts.")]
    no_communication: Annotated[str, doc("Why there is none.")]
    findings: list[FindingTold]
    doubts: list[str]
    mostly: Annotated[MostOfTime | None, doc("What takes most of the time; null where nothing does.")]
    next: list[NextStep]


def screen(summary: Summary) -> dict[str, Any]:
    """The summary as a program reads it."""
    subject, kernels, communication, mostly = summary.subject, summary.kernels, summary.communication, summary.mostly
    told = RunSummary(
        version=VERSION,
        traces=[*summary.traces],
        subject=Traced(
            profiler=subject.profiler,
            framework=subject.framework,
            gpu=subject.gpu,
            ranks=[*subject.ranks],
            absent_ranks=subject.absent,
            mesh=dict(subject.mesh),
            files=subject.files,
            captures=subject.captures,
        ),
        measured=_measured(summary),
        step=_step(summary.step),
        ranks=[*map(_rank, summary.budgets)],
        without={str(rank): why for rank, why in summary.without.items()},
        kernels=[*map(_kernel, kernels.largest)],
        other_kernels=kernels.others,
        other_kernels_ns=_number(kernels.others_ns),
        communication_by=communication.by,
        communication_shares_streams=communication.shared,
        communication=[*map(_communication, communication.every)],
        no_communication=communication.why,
        findings=[_finding(each, summary) for each in summary.findings],
        doubts=[*summary.doubts],
        mostly=None if mostly is None else MostOfTime(mostly.of, float(mostly.share), mostly.what, mostly.gap_ns),
        next=[
            NextStep(each.command, each.what)
            for each in next_steps(summary.traces, summary.options, summary.first, summary.kind_of_several)
        ],
    )
    whole: dict[str, Any] = to_builtins(told)
    return whole


def _number(value: Value) -> Exactly:
    return value if isinstance(value, int) else float(value)


def _measured(summary: Summary) -> HowMeasured:
    found = summary.subject.found
    return HowMeasured(
        convention=found.convention,
        anchor=None if found.anchor is None else written_anchor(found.anchor),
        anchors=found.count,
        index=found.index,
        name=found.name,
        part_of_a_step=found.part,
        whole_run=found.whole_run,
        window=found.window,
        span=found.span,
        kernels=found.kernels,
        repeats=repeats_words(summary.searched),
    )


def _step(step: StepLength) -> LengthOfStep:
    fastest_rank, fastest_ns = step.fastest or (None, None)
    return LengthOfStep(
        metric=step.metric,
        ns=_number(step.ns),
        slowest_rank=step.slowest,
        fastest_rank=fastest_rank,
        fastest_ns=None if fastest_ns is None else _number(fastest_ns),
        quantiles_ns={name: _number(ns) for name, ns in step.quantiles.items()},
        steady=step.steady,
        steps=step.steps,
        longest=None if step.longest is None else OneStep(*step.longest),
        rates=[RateOfWork(rate.metric, _number(rate.value), rate.unit) for rate in step.rates],
        why=step.why,
        kinds=[StepsOfAKind(kind, number, None if ns is None else _number(ns)) for kind, number, ns in step.kinds],
    )


def _rank(budget: RankBudget) -> TimeOfRank:
    shares = budget.shares
    return TimeOfRank(
        rank=budget.rank,
        window_ns=budget.window_ns,
        parts=[PartOfTime(part, ns, float(shares[part])) for part, ns in budget.parts.items()],
        bounded=budget.bounded,
        why=budget.why,
    )


def _kernel(each: KernelShare) -> KernelOfRun:
    return KernelOfRun(
        name=each.name,
        called=each.called,
        family=each.family,
        ns=_number(each.ns),
        launches=_number(each.launches),
        share=_number(each.share),
    )


def _communication(each: Communicated) -> CommunicationOf:
    return CommunicationOf(
        name=each.name,
        rank=each.rank,
        ns=_number(each.ns),
        exposed_ns=_number(each.exposed_ns),
        overlap=None if each.overlap is None else _number(each.overlap),
        busbw=None if each.busbw is None else _number(each.busbw),
    )


def _finding(each: Finding, summary: Summary) -> FindingTold:
    figures = each.figures.items()
    return FindingTold(
        kind=each.kind,
        text=sentence(each, beside=summary.kernels.names),
        rank=each.rank,
        ranks=[*each.ranks],
        figures={name: figure if isinstance(figure, str) else _number(figure) for name, figure in figures},
        win_ns=each.win_ns,
        share=None if each.share is None else float(each.share),
        command=to_see_more(each, summary.first, summary.options),
    )


def as_json_screen(summary: Summary) -> str:
    """One object."""
    return as_json(screen(summary))
