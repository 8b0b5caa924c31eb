"""Under which convention does this trace have windows? A built-in one that fits it, else one drafted from its ranges.

What is chosen is what the median window shows: an anchor that no kernel belongs to is none, and the kernels mode is the
one under which the window holds its kernels. ``pytest-nsys init`` asks a person where several anchors are good;
``found`` asks nobody: it takes the best, and where two are alike it says what to type.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import itemgetter
from typing import NamedTuple

from pytest_nsys.analysis.candidates import (
    FEWEST,
    Candidate,
    ClosedRanges,
    Holds,
    all_ranges,
    anchor_candidates,
)
from pytest_nsys.analysis.kernel_anchors import MOST_UNLAUNCHED
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import MEDIAN, RUN, WindowSpec
from pytest_nsys.core.conventions import BUILT_IN, Anchor, Convention, convention_words
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.model import KernelsMode, Span, Value
from pytest_nsys.core.numbers import format_value, percent
from pytest_nsys.core.words import counted, printable

GENERIC = BUILT_IN["generic"]

LABELLED = replace(GENERIC, setup=BUILT_IN["pithtrain"].setup)
"""What a trace is first opened under: the ranks of several files may be told apart by their labels alone."""

FIRST = "first"


class FitAlike(UsageMistake):
    """Several conventions, or anchors, fit a trace alike. ``anchors`` are the patterns of theirs."""

    def __init__(self, what: str, anchors: Collection[str] = ()) -> None:
        super().__init__(what)
        self.anchors = frozenset(anchors)


Ask = Callable[[Sequence[Candidate]], Candidate]
OpenUnder = Callable[[Convention], Run]


class Allowed(NamedTuple):
    """A bound of quality that a trace crosses, as a gate file lets it through, and what is wrong in words."""

    value: str
    words: str


@dataclass(frozen=True)
class Choice:
    """How the windows of a trace are found. ``base`` is the convention that it is or extends.

    ``rivals`` are built-in conventions that fit as well. ``reasons`` are comment lines by key of the file or the
    convention; ``quality`` are bounds that the trace crosses.
    """

    convention: Convention
    base: Convention
    window: str = MEDIAN
    candidates: tuple[Candidate, ...] = ()
    rivals: tuple[str, ...] = ()
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quality: Mapping[str, Allowed] = field(default_factory=dict)

    @property
    def anchored(self) -> bool:
        """Whether a range of the trace is the anchor; else the whole run is measured."""
        return self.window != RUN

    @property
    def told(self) -> str:
        """What was found, in words."""
        if not self.anchored:
            return f"convention {self.convention.name}, no anchor (no range of the trace repeats around its kernels)"
        return f"convention {convention_words(self.convention)} (found in the trace)"

    @property
    def spec(self) -> WindowSpec:
        """What the assertions are judged on."""
        return WindowSpec(self.window, self.convention.span, self.convention.kernels)

    def because(self, key: str, *lines: str) -> Choice:
        """The same with more reasons for a key."""
        return replace(self, reasons={**self.reasons, key: (*self.reasons.get(key, ()), *lines)})


def choose(run: Run, open_under: OpenUnder, given: Convention | None, ask: Ask, usual: Convention = GENERIC) -> Choice:
    """How the windows of ``run`` (under :data:`LABELLED`) are found.

    ``given`` is a convention that the person named; ``ask`` picks one of several good anchors; ``usual`` is what a
    trace of this format extends where no built-in anchor is in it. Raises NothingMeasured where the named convention
    does not fit, or the run holds no kernels.
    """
    if given is not None and given.anchor is not None:
        chosen = _built_in(open_under, given)
        if chosen is None:
            open_under(given).measured(WindowSpec(MEDIAN, given.span, given.kernels)).filled()  # says why
            raise NothingMeasured(f"the windows of convention {given.name} hold no kernels")
        return chosen
    for alike in _fitting(run) if given is None else ():
        fitting = [found for found in (_built_in(open_under, convention) for convention in alike) if found is not None]
        if fitting:
            return replace(fitting[0], rivals=tuple(other.base.name for other in fitting[1:]))
    return _drafted(run, all_ranges(run), open_under, given, ask, usual)


def found(run: Run, open_under: OpenUnder, usual: Convention = GENERIC, anchor: Anchor | None = None) -> Choice:
    """How the windows of ``run`` (under :data:`LABELLED`) are found where nobody is asked, and nobody said.

    ``anchor`` is the pattern of one that a person named. Raises UsageMistake where several fit alike, with the options
    that name each; NothingMeasured for a run without kernels.
    """
    if anchor is not None:
        return _with_anchor(run, open_under, usual, anchor)
    if not run.has_kernels and run.labelled_ranks and (named := _fitting(run)):
        return Choice(named[0][0], named[0][0])  # its ranges are all that there is
    choice = choose(run, open_under, None, itemgetter(0), usual)
    if choice.rivals:
        names = (choice.base.name, *choice.rivals)
        said = f"convention: {names[0]}"
        anchors = [anchor for name in names if (anchor := BUILT_IN[name].range_anchor) is not None]
        raise FitAlike(_tie(run, "conventions", names, [f"--convention {name}" for name in names], said), anchors)
    chosen, *others = choice.candidates if choice.anchored and choice.candidates else (None,)
    equal = [other for other in others if chosen is not None and chosen.alike(other)]
    if chosen is not None and equal:
        both = [chosen, *equal]
        said = f"convention: {{extends: {choice.base.name}, anchor: '{printable(chosen.pattern, 60)}'}}"
        flags = [f"--anchor {shlex.quote(each.pattern)}" for each in both]
        told = _tie(run, "anchors", [candidate_words(each) for each in both], flags, said)
        raise FitAlike(told, [each.pattern for each in both])
    return choice


def _tie(run: Run, what: str, each: Sequence[str], flags: Sequence[str], said: str) -> str:
    return (
        f"{run.traces[0].path}: {len(each)} {what} fit equally well ({'; '.join(each)}): add {' or '.join(flags)}; "
        f"in a gate file, {said}"
    )


def _with_anchor(run: Run, open_under: OpenUnder, usual: Convention, anchor: Anchor) -> Choice:
    """The convention that fits, with another anchor; where none does the usual one, in the mode that fits the trace."""
    for alike in _fitting(run):
        convention = replace(alike[0], anchor=anchor)
        return Choice(_by_launch(run, convention) if convention.kernel_anchor else convention, alike[0])
    texts = [rank.setup.text for rank in run.labelled_ranks if rank.setup is not None]
    base = next((c for c in BUILT_IN.values() if any(c.setup_of(text) is not None for text in texts)), usual)
    convention = replace(base, anchor=anchor)
    if convention.kernel_anchor is not None:
        return Choice(_by_launch(run, convention), base)
    mode = Holds(open_under(convention), convention.span).best_mode
    return Choice(replace(convention, kernels=mode or convention.kernels), base)


def _by_launch(run: Run, convention: Convention) -> Convention:
    """The same with the mode in which a kernel anchors: by launches, or where too few are on record by GPU time."""
    ran = [track.launched for track in run.whole().tracks.values()]
    launched = all(each.without <= MOST_UNLAUNCHED * each.kernels for each in ran)
    return replace(convention, kernels=KernelsMode.LAUNCHED if launched else KernelsMode.CLIPPED)


def _fitting(run: Run) -> list[list[Convention]]:
    """The built-in conventions whose anchors every rank has, those that name other ranges too before the rest; of those
    with one anchor the first.
    """
    anchored = [c for c in BUILT_IN.values() if c.range_anchor]
    has = run.have_anchors([c.range_anchor for c in anchored if c.range_anchor is not None])
    fitting = [c for c in anchored if c.anchor in has]
    if len(fitting) < 2:  # reading every range takes longest of all
        return [fitting] if fitting else []
    names = all_ranges(run).names
    contexts = {c.name: c.contexts() for c in fitting}
    naming = [c for c in fitting if any(contexts[c.name](name) is not None for name in names)]
    both = [naming, [c for c in fitting if c not in naming]]
    return [[*{c.anchor: c for c in reversed(own)}.values()][::-1] for own in both if own]


def _built_in(open_under: OpenUnder, convention: Convention) -> Choice | None:
    """The convention with the kernels mode that fits the trace; None where its windows hold nothing."""
    run = open_under(convention)
    counts = [len(run.anchors(rank)) for rank in run.ranks]
    anchors = min(counts, default=0)
    if not anchors or (convention.span is Span.PERIOD and anchors < FEWEST):
        return None
    holds = Holds(run, convention.span)
    usual = convention.kernels is KernelsMode.LAUNCHED and holds[KernelsMode.LAUNCHED].kernels
    mode = KernelsMode.LAUNCHED if usual else holds.best_mode
    if mode is None:
        return None
    assert convention.anchor is not None
    often = counted(anchors, "time") + ("" if len(set(counts)) == 1 else " or more")
    labelled = len(run.labelled_ranks) if convention.setup is not None else 0
    setup = f", and the setup label of {counted(labelled, 'rank')} was read" if labelled else ""
    what = (
        f"{convention.name} fits: every rank has its anchor '{printable(str(convention.anchor), 60)}' ({often}){setup}."
    )
    choice = Choice(replace(convention, kernels=mode), convention).because("convention", what)
    if mode is not convention.kernels:
        choice = choice.because("kernels", *_why_mode(mode, holds))
    if anchors == 2:
        choice = replace(choice, window=FIRST).because(
            "window", "first: of only two anchors the last one may be cut short by the end of the profile."
        )
    return choice


def _drafted(
    run: Run, ranges: ClosedRanges, open_under: OpenUnder, given: Convention | None, ask: Ask, usual: Convention
) -> Choice:
    """A convention with the best anchor that the ranges have, else the whole run."""
    labelled = next((c for c in BUILT_IN.values() if c.setup and any(c.setup_of(n) for n in ranges.names)), None)
    base = given or labelled or usual
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
        return whole.because("window", "run: the trace holds no ranges, so everything it ran is one window.")
    why = "no range of this trace repeats regularly around its kernels"
    if any(candidate.usable for candidate in candidates):
        why = "the ranges that repeat hold no kernels in their median window"
    return whole.because(
        "window",
        f"run: {why}, so everything it ran is one window.",
        "Mark the step with a range and name it as the anchor of a convention: then each window is a step.",
    )


def _anchored(open_under: OpenUnder, anchor: Candidate, base: Convention) -> Choice | None:
    """The convention with this anchor; None where no mode has kernels in its median windows."""
    start = replace(base, anchor=anchor.pattern, span=anchor.span)
    run = open_under(start)
    holds = Holds(run, anchor.span)
    mode = holds.best_mode
    if mode is None:
        return None
    choice = Choice(replace(start, kernels=mode), base)
    why = "No anchor of a built-in convention is in this trace; this one was found in its ranges."
    choice = choice.because("convention", why)
    choice = choice.because("anchor", *_why_anchor(anchor))
    choice = choice.because("span", *_why_span(anchor))
    return choice.because("kernels", *_why_mode(mode, holds))


def _share(value: Value) -> str:
    return percent(Fraction(round(100 * value), 100))


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


def _why_mode(mode: KernelsMode, holds: Holds) -> tuple[str, ...]:
    counts = ", ".join(f"{name} {holds[name].kernels}" for name in KernelsMode)
    seen = f"Kernels in the median window by mode: {counts}."
    if mode is KernelsMode.CONTAINED:
        return ("contained: what a window launches also runs in it.", seen)
    if mode is KernelsMode.LAUNCHED:
        return (f"launched: the GPU runs {format_value(holds.lag.median_ns)} behind the CPU.", seen)
    return (
        f"clipped: {_share(holds.lag.without)} of the kernels have no launch row, so they count where they ran.",
        seen,
    )
