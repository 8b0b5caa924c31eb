"""How are the windows of this trace found? A built-in convention that fits it, else one drafted from its ranges.

What is chosen is what the median window shows: an anchor that no kernel belongs to is none, and the kernels mode is the
one under which the window holds its kernels. Of stages only well-known ways of naming are tried, and kept only where
enough of the windows' kernels get a stage by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_nsys.analysis.candidates import (
    FEWEST,
    Candidate,
    Held,
    Lag,
    Ranges,
    all_ranges,
    anchor_candidates,
    best_mode,
    held,
    lag_of,
)
from pytest_nsys.analysis.doubts import uncounted
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.quality import FEW_ANCHORS, Bounds, Subject, doubts
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import MEDIAN, RUN, WindowSpec
from pytest_nsys.core.conventions import BUILT_IN, COMPUTE, MIXED, NO_STAGE, UNKNOWN, Convention, Purpose
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.model import KernelsMode, Span, Value
from pytest_nsys.core.units import format_value
from pytest_nsys.core.words import counted, printable

GENERIC = BUILT_IN["generic"]
FIRST = "first"
OWN = "own"

Ask = Callable[[Sequence[Candidate]], Candidate]
OpenUnder = Callable[[Convention], Run]


@dataclass(frozen=True)
class Choice:
    """How the windows of a trace are found. ``base`` is the convention that it is or extends.

    ``reasons`` are comment lines by key of the file or the convention; ``quality`` are bounds that the trace crosses.
    """

    convention: Convention
    base: Convention
    window: str = MEDIAN
    candidates: tuple[Candidate, ...] = ()
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quality: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> WindowSpec:
        """What the assertions are judged on."""
        return WindowSpec(self.window, self.convention.span, self.convention.kernels)

    def because(self, key: str, *lines: str) -> Choice:
        """The same with more reasons for a key."""
        return replace(self, reasons={**self.reasons, key: (*self.reasons.get(key, ()), *lines)})


def choose(run: Run, open_under: OpenUnder, given: Convention | None, ask: Ask) -> Choice:
    """How the windows of ``run`` (under the generic convention) are found.

    ``given`` is a convention that the person named; ``ask`` picks one of several good anchors. Raises NothingMeasured
    where the named convention does not fit, or the run holds no kernels.
    """
    if given is not None and given.anchor is not None:
        chosen = _built_in(open_under, given)
        if chosen is None:
            open_under(given).measured(WindowSpec(MEDIAN, given.span, given.kernels)).filled()  # says why
            raise NothingMeasured(f"the windows of convention {given.name} hold no kernels")
        return chosen
    for convention in _fitting(run) if given is None else ():
        if (chosen := _built_in(open_under, convention)) is not None:
            return chosen
    return _drafted(run, all_ranges(run), open_under, given, ask)


def _fitting(run: Run) -> list[Convention]:
    """The built-in conventions whose anchors every rank has; those that name more of the ranges first."""
    found = [c for c in BUILT_IN.values() if c.anchor and all(run.anchors(rank, c.anchor) for rank in run.ranks)]
    if len(found) < 2:  # reading every range takes longest of all
        return found
    names = all_ranges(run).names
    contexts = {c.name: c.contexts() for c in found}
    return sorted(found, key=lambda c: all(contexts[c.name](name) is None for name in names))


def _built_in(open_under: OpenUnder, convention: Convention) -> Choice | None:
    """The convention with the kernels mode that fits the trace; None where its windows hold nothing."""
    run = open_under(convention)
    counts = [len(run.anchors(rank)) for rank in run.ranks]
    anchors = min(counts, default=0)
    if not anchors or (convention.span is Span.PERIOD and anchors < FEWEST):
        return None
    holds, lag = held(run, convention.span), lag_of(run, convention.span)
    mode = best_mode(holds, lag)
    if convention.kernels is KernelsMode.LAUNCHED and holds[KernelsMode.LAUNCHED].kernels:
        mode = KernelsMode.LAUNCHED
    if mode is None:
        return None
    assert convention.anchor is not None
    often = counted(anchors, "time") + ("" if len(set(counts)) == 1 else " or more")
    labelled = len(run.labelled_ranks) if convention.setup is not None else 0
    setup = f", and the setup label of {counted(labelled, 'rank')} was read" if labelled else ""
    what = f"{convention.name} fits: every rank has its anchor '{printable(convention.anchor, 60)}' ({often}){setup}."
    choice = Choice(replace(convention, kernels=mode), convention).because("convention", what)
    if mode is not convention.kernels:
        choice = choice.because("kernels", *_why_mode(mode, holds, lag))
    if anchors == 2:
        choice = replace(choice, window=FIRST).because(
            "window", "first: of only two anchors the last one may be cut short by the end of the profile."
        )
    return choice


def _drafted(run: Run, ranges: Ranges, open_under: OpenUnder, given: Convention | None, ask: Ask) -> Choice:
    """A convention with the best anchor that the ranges have, else the whole run."""
    labelled = next((c for c in BUILT_IN.values() if c.setup and any(c.setup_of(n) for n in ranges.names)), None)
    base = given or labelled or GENERIC
    setups = {name for name in ranges.names if base.setup_of(name) is not None}
    candidates = tuple(anchor_candidates(run, ranges, setups))
    possible = [candidate for candidate in candidates if candidate.usable]
    while possible:
        best = [candidate for candidate in possible if candidate.good] or possible
        anchor = ask(best) if len(best) > 1 else best[0]
        chosen = _anchored(open_under, anchor, base)
        if chosen is not None:
            return replace(chosen, candidates=(anchor, *(other for other in candidates if other is not anchor)))
        possible.remove(anchor)
    whole = Choice(base, base, RUN, candidates)
    if not ranges.names:
        return whole.because("window", "run: the trace holds no ranges (NVTX), so everything it ran is one window.")
    why = "no range of this trace repeats regularly around its kernels"
    if any(candidate.usable for candidate in candidates):
        why = "the ranges that repeat hold no kernels in their median window"
    return whole.because(
        "window",
        f"run: {why}, so everything it ran is one window.",
        "Mark the step (NVTX, record_function) and name it as the anchor of a convention: windows then are steps.",
    )


def _anchored(open_under: OpenUnder, anchor: Candidate, base: Convention) -> Choice | None:
    """The convention with this anchor; None where no mode has kernels in its median windows."""
    start = replace(base, name=OWN, anchor=anchor.pattern, span=anchor.span)
    run = open_under(start)
    holds, lag = held(run, anchor.span), lag_of(run, anchor.span)
    mode = best_mode(holds, lag)
    if mode is None:
        return None
    choice = Choice(replace(start, kernels=mode), base)
    why = "No built-in convention fits this trace; this one was drafted from its ranges."
    choice = choice.because("convention", why)
    choice = choice.because("anchor", *_why_anchor(anchor))
    choice = choice.because("span", *_why_span(anchor))
    return choice.because("kernels", *_why_mode(mode, holds, lag))


def _share(value: Value) -> str:
    return f"{round(100 * float(value))} %"


def candidate_words(candidate: Candidate) -> str:
    """A candidate in a line: its pattern, how often, how long, how much of the kernels' time."""
    return (
        f"'{printable(candidate.pattern, 60)}': {candidate.count} times, {format_value(candidate.length_ns)} every "
        f"{format_value(candidate.period_ns)}, {_share(candidate.covered)} of the kernels' time"
    )


def _why_anchor(anchor: Candidate) -> tuple[str, ...]:
    often = f"{counted(anchor.count, 'time')} a rank, every {format_value(anchor.period_ns)}"
    return (
        f"The range that repeats: {often} (typically",
        f"within {_share(anchor.spread)}), covering {_share(anchor.covered)} of the kernels' time.",
    )


def _why_span(anchor: Candidate) -> tuple[str, ...]:
    length, period = format_value(anchor.length_ns), format_value(anchor.period_ns)
    if anchor.span is Span.RANGE:
        return (f"range: the anchors themselves enclose their work ({length} of a period of {period}).",)
    return (f"period: the anchors mark a beginning and enclose little ({length} of a period of {period}).",)


def _why_mode(mode: KernelsMode, holds: Mapping[KernelsMode, Held], lag: Lag) -> tuple[str, ...]:
    counts = ", ".join(f"{name} {holds[name].kernels}" for name in KernelsMode)
    seen = f"Kernels in the median window by mode: {counts}."
    if mode is KernelsMode.CONTAINED:
        return ("contained: what a window launches also runs in it.", seen)
    if mode is KernelsMode.LAUNCHED:
        return (f"launched: the GPU runs {format_value(lag.median_ns)} behind the CPU.", seen)
    return (f"clipped: {_share(lag.without)} of the kernels have no launch row, so they count where they ran.", seen)


# What a convention says besides


def with_libraries(choice: Choice, run: Run) -> Choice:
    """The choice with patterns for kernels of known communication libraries that its convention takes for compute."""
    found = uncounted(run.measured(choice.spec))
    if found is None:
        said = f"Kernels of {', '.join(sorted(run.libraries))} communicate, too."
        return choice.because("convention", said) if run.libraries else choice
    convention = replace(choice.convention, communication=found.globs(choice.convention))
    said = f"Kernels of {found.libraries} communicate, too; NCCL's are known anyway."
    return replace(choice, convention=convention).because("communication", said)


def with_bounds(choice: Choice, run: Run) -> Choice:
    """The choice with the bounds of quality that this trace crosses set on purpose, each with what would be better."""
    group = run.measured(choice.spec)
    metric = replace(METRICS["exposed_ns"], dimensions=("rank", "stage", "purpose"))
    quality: dict[str, str] = {}
    for fact, _ in doubts(Subject(run, group, metric), Bounds()):
        quality[fact.check] = fact.lets_through
        choice = choice.because("quality", f"{fact.check}: {printable(fact.words, 120)}; better {fact.remedy}.")
    counts = [len(track.anchors) for track in group.tracks.values() if track.anchors]
    if "anchors" not in quality and choice.window != RUN and min(counts, default=FEW_ANCHORS) < FEW_ANCHORS:
        quality["anchors"] = str(min(counts))
        choice = choice.because("quality", f"anchors: only {min(counts)} of them; better profile more steps.")
    return replace(choice, quality=quality)


EXPRESSIONS = (
    *(c.stage for c in BUILT_IN.values() if c.stage is not None),
    r"\b(?P<stage>forward|backward|optimizer|dispatch|combine|attention|mlp|moe|loss)\b",
)
"""Ways of naming stages, the most special first."""

LEAST_STAGED = 3
"""Tenths of the windows' kernels that must get a stage, or no expression is worth its line."""


def with_stages(choice: Choice, open_under: Callable[[Convention], Run]) -> Choice:
    """The drafted convention with a stage expression, and with purposes, where the trace has a pattern for them."""
    if choice.convention.stage is not None or choice.convention.anchor is None:
        return choice
    for expression in EXPRESSIONS:
        staged = replace(choice, convention=replace(choice.convention, stage=expression))
        run = open_under(staged.convention)
        windows = [*run.measured(choice.spec)]
        stages = sorted({stage for window in windows for stage in window.all_by_stage} - {NO_STAGE})
        whole = sum(len(window) for window in windows)
        without = sum(len(window.all_by_stage.get(NO_STAGE, ())) for window in windows)
        if len(stages) < 2 or 10 * (whole - without) < LEAST_STAGED * whole:
            continue
        shown = printable(", ".join(stages[:8]), 100)
        share = round(100 * (whole - without) / whole)
        said = f"Stages from range names: {shown}; {share} % of the window's kernels have one."
        return _with_purposes(staged.because("stage", said), run, open_under)
    return choice


def _with_purposes(choice: Choice, run: Run, open_under: Callable[[Convention], Run]) -> Choice:
    """A purpose for each stage that communicates, where every communication stream then serves one purpose."""
    windows = [*run.measured(choice.spec)]
    communicating = sorted({stage for window in windows for stage in window.by_stage} - {NO_STAGE})
    if not communicating or {COMPUTE, MIXED, UNKNOWN} & set(communicating):
        return choice
    convention = replace(choice.convention, purposes=tuple(Purpose(stage, stages=(stage,)) for stage in communicating))
    again = open_under(convention).measured(choice.spec)
    if any(use.purpose in (MIXED, UNKNOWN) for window in again for use in window.streams):
        return choice
    said = "Each communication stream serves one stage, which is taken for its purpose."
    return replace(choice, convention=convention).because("purposes", said)
