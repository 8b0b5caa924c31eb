"""Under which convention does this trace have windows? A built-in one that fits it, else the steps found in it.

A framework's own range of a step goes first, then what repeats in the kernels, then a range that repeats regularly;
where none is a step, the whole run is measured. What is chosen is what the median window shows: an anchor that no
kernel belongs to is none, and the kernels mode is the one under which the window holds its kernels.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pytest_nsys.analysis.steps.candidates import (
    FEWEST,
    Candidate,
    Holds,
    anchor_candidates,
    candidate_of,
    format_share,
    ranges_of,
)
from pytest_nsys.analysis.steps.facts import Confidence, FoundUnits, NoUnits, UnitIs
from pytest_nsys.analysis.steps.search import search
from pytest_nsys.analysis.steps.words import (
    Searched,
    found_words,
    inside_words,
    other_units,
    units_words,
    why_whole,
)
from pytest_nsys.analysis.windows.kernel_anchors import MOST_UNLAUNCHED
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import MEDIAN, RUN, WindowSpec
from pytest_nsys.analysis.windows.step_kinds import counts_in_words
from pytest_nsys.core.conventions import BUILT_IN, Anchor, Convention, written_anchor
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import counted, printable

GENERIC = BUILT_IN["generic"]

LABELLED = replace(GENERIC, setup=BUILT_IN["pithtrain"].setup)
"""What a trace is first opened under: the ranks of several files may be told apart by their labels alone."""

FIRST = "first"


class FitAlike(UsageMistake):
    """Several conventions fit a trace alike. ``anchors`` are the patterns of theirs."""

    def __init__(self, what: str, anchors: Collection[str] = ()) -> None:
        super().__init__(what)
        self.anchors = frozenset(anchors)


OpenUnder = Callable[[Convention], Run]


class Allowed(NamedTuple):
    """A bound of quality that a trace crosses, as a gate file lets it through, and what is wrong in words."""

    value: str
    words: str


@dataclass(frozen=True)
class Choice:
    """How the windows of a trace are found. ``base`` is the convention that it is or extends.

    ``kinds`` are how many steps of each kind there are, where steps have kinds, of which ``kind`` is looked at.
    ``rivals`` are built-in conventions that fit as well. ``searched`` is what repeats in the kernels, where anybody
    looked. ``reasons`` are comment lines by key of the file or the
    convention; ``quality`` are bounds that the trace crosses.
    """

    convention: Convention
    base: Convention
    window: str = MEDIAN
    candidates: tuple[Candidate, ...] = ()
    rivals: tuple[str, ...] = ()
    searched: Searched = None
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quality: Mapping[str, Allowed] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    kind: str | None = None

    @property
    def anchored(self) -> bool:
        """Whether something of the trace is the anchor; else the whole run is measured."""
        return self.window != RUN

    @property
    def told(self) -> str:
        """What was found, in words."""
        of_kinds = f": {counts_in_words(self.kinds)}" if self.kinds else ""
        return found_words(self.convention, "trace", self.searched, anchored=self.anchored) + of_kinds

    @property
    def spec(self) -> WindowSpec:
        """What the assertions are judged on."""
        return WindowSpec(self.window, self.convention.span, self.convention.kernels, self.kind)

    def because(self, key: str, *lines: str) -> Choice:
        """The same with more reasons for a key."""
        return replace(self, reasons={**self.reasons, key: (*self.reasons.get(key, ()), *lines)})


def choose(
    run: Run,
    open_under: OpenUnder,
    given: Convention | None,
    usual: Convention = GENERIC,
    known: Sequence[Convention] = (),
) -> Choice:
    """How the windows of ``run`` (under :data:`LABELLED`) are found.

    ``given`` is a convention that the person named; ``usual`` is what a trace of this format extends where no built-in
    anchor is in it; ``known`` are those of what the run is held against. Raises NothingMeasured where the named
    convention does not fit, or the run holds no kernels.
    """
    if given is not None and given.anchor is not None:
        chosen = _built_in(open_under, given)
        if chosen is None:
            run = open_under(given)
            run.measured(WindowSpec(MEDIAN, given.span, given.kernels, run.steps.usual)).filled()  # says why
            raise NothingMeasured(f"the windows of convention {given.name} hold no kernels")
        return chosen
    for alike in _fitting(run) if given is None else ():
        fitting = [choice for convention in alike if (choice := _built_in(open_under, convention)) is not None]
        if fitting:
            chosen, *others = fitting
            return _with_parts(run, open_under, replace(chosen, rivals=tuple(other.base.name for other in others)))
    return _unmarked(run, open_under, given, usual, known)


def found(
    run: Run,
    open_under: OpenUnder,
    usual: Convention = GENERIC,
    anchor: Anchor | None = None,
    known: Sequence[Convention] = (),
) -> Choice:
    """How the windows of ``run`` (under :data:`LABELLED`) are found where nobody said.

    ``anchor`` is one that a person named. Raises UsageMistake where several conventions fit alike, with the options
    that name each; NothingMeasured for a run without kernels.
    """
    if anchor is not None:
        return _with_anchor(run, open_under, usual, anchor)
    if not run.has_kernels and run.labelled_ranks and (named := _fitting(run)):
        return Choice(named[0][0], named[0][0])  # its ranges are all that there is
    choice = choose(run, open_under, None, usual, known)
    if choice.rivals:
        names = (choice.base.name, *choice.rivals)
        anchors = [anchor for name in names if (anchor := BUILT_IN[name].range_anchor) is not None]
        flags = " or ".join(f"--convention {name}" for name in names)
        raise FitAlike(
            f"{run.traces[0].path}: {len(names)} conventions fit equally well ({'; '.join(names)}): add {flags}; "
            f"in a gate file, convention: {names[0]}",
            anchors,
        )
    return choice


def _with_parts(run: Run, open_under: OpenUnder, chosen: Choice) -> Choice:
    """The choice with what repeats in the only step that there is: nothing else would say that it was seen."""
    marked = open_under(chosen.convention)
    if all(len(marked.anchors(rank)) > 1 for rank in marked.ranks):
        return chosen
    firsts = {rank.number: marked.anchors(rank) for rank in marked.ranks}
    searched = search(run, {number: (own[0].start_ns, own[0].end_ns) for number, own in firsts.items() if own})
    parts = inside_words(searched)
    chosen = replace(chosen, searched=searched)
    return chosen.because("convention", f"{parts} in one step: the whole step is measured.") if parts else chosen


def _with_anchor(run: Run, open_under: OpenUnder, usual: Convention, anchor: Anchor) -> Choice:
    """The convention that fits, with another anchor; where none does the usual one, in the mode that fits the trace."""
    fitting = _fitting(run)
    base = fitting[0][0] if fitting else _base(run, usual)
    convention = base.with_anchor(anchor) if fitting else replace(base, anchor=anchor)
    if convention.kernel_anchor is not None:
        convention = _by_launch(run, convention)
    elif not fitting:
        mode = Holds(open_under(convention), convention.span).best_mode
        convention = replace(convention, kernels=mode or convention.kernels)
    return Choice(convention, base)


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
    names = ranges_of(run).names
    naming = [c for c in fitting if not c.kinds and any(map(c.contexts(), names))]
    engines = [c for c in fitting if c.kinds][:1]  # what labels its steps may run inside another that does
    both = [engines, naming, [c for c in fitting if c not in naming + engines]]
    return [[*{c.anchor: c for c in reversed(own)}.values()][::-1] for own in both if own]


def _built_in(open_under: OpenUnder, convention: Convention) -> Choice | None:
    """The convention with the kernels mode that fits the trace; None where its windows hold nothing."""
    choice = _accept(open_under, Choice(convention, convention), keep=True)
    if choice is None:
        return None
    run = open_under(convention)
    counts = sorted({len(run.anchors(rank)) for rank in run.ranks})
    often = counted(counts[0], "time") + (" or more" if len(counts) > 1 else "")
    often += f": {counts_in_words(choice.kinds)}" if choice.kinds else ""
    labelled = len(run.labelled_ranks) if convention.setup is not None else 0
    setup = f", and the setup label of {counted(labelled, 'rank')} was read" if labelled else ""
    anchor = printable(str(convention.anchor), 60)
    return choice.because(
        "convention", f"{convention.name} fits: every rank has its anchor '{anchor}' ({often}){setup}."
    )


def _accept(open_under: OpenUnder, choice: Choice, *, keep: bool) -> Choice | None:
    """The choice with the kernels mode that fits the windows of its convention; None where they hold nothing. One that
    counts by launches and holds kernels so is to ``keep`` that.
    """
    convention = choice.convention
    run = open_under(convention)
    counts = {len(run.anchors(rank)) for rank in run.ranks}
    if not counts or min(counts) < (FEWEST if convention.span is Span.PERIOD else 1):
        return None
    steps, kind = run.steps, run.steps.usual
    if convention.kinds and kind is None:
        return None
    holds = Holds(run, convention.span, kind)
    mode: KernelsMode | None = convention.kernels
    shared = kind is None or steps.shared  # else it is told where one is asked for: no other unit stands for it
    if shared and not (keep and mode is KernelsMode.LAUNCHED and holds[mode].kernels):
        mode = holds.best_mode
    if mode is None:
        return None
    choice = replace(choice, convention=replace(convention, kernels=mode), kinds=steps.counts, kind=kind)
    if not keep or mode is not convention.kernels:
        choice = choice.because("kernels", *_why_mode(mode, holds))
    return of_one_step(choice) if counts == {1} else choice


def of_one_step(choice: Choice) -> Choice:
    """The choice where there is one step that it could be of."""
    one = f"{choice.kind} step" if choice.kind else "step"
    return replace(choice, window=FIRST).because("window", f"first: the trace holds one {one}.")


def _unmarked(
    run: Run, open_under: OpenUnder, given: Convention | None, usual: Convention, known: Sequence[Convention]
) -> Choice:
    """A convention with the step that repeats in the kernels, else with a range that does, else the whole run."""
    if (again := _known(open_under, [each for each in known if each.kernel_anchor is not None])) is not None:
        return again
    base, searched = given or _base(run, usual), search(run)
    if isinstance(searched, FoundUnits) and searched.what is UnitIs.STEP:
        candidates, chosen = tuple[Candidate, ...](), _step(run, open_under, base, searched)
    else:
        candidates = tuple(_ranges_of_steps(run, base, searched))
        best = _best(open_under, base, candidates)
        chosen, searched = (None, best) if isinstance(best, NoUnits) else (best, searched)
    if chosen is None:
        chosen = _known(open_under, known) or _whole_run(base, searched)
    return replace(chosen, searched=searched, candidates=candidates)


def _base(run: Run, usual: Convention) -> Convention:
    """The convention whose setup label the ranks have, else the usual one."""
    texts = [rank.setup.text for rank in run.labelled_ranks if rank.setup is not None]
    return next((c for c in BUILT_IN.values() if any(c.setup_of(text) is not None for text in texts)), usual)


def _known(open_under: OpenUnder, known: Sequence[Convention]) -> Choice | None:
    """The first convention of what the run is held against whose anchor repeats on every rank: nobody has to look."""
    for convention in known:
        run = open_under(convention)
        if convention.anchor and all(len(run.anchors(rank)) >= FEWEST for rank in run.ranks):
            return Choice(convention, BUILT_IN.get(convention.name, convention))
    return None


def _step(run: Run, open_under: OpenUnder, base: Convention, units: FoundUnits) -> Choice | None:
    """The convention with the step that was found: by the range that starts once in each, else by its first kernel."""
    marks = None if units.pattern is None else candidate_of(run, units.pattern)
    chosen = None if marks is None else _anchored(open_under, marks, base)
    if chosen is None:
        mode = KernelsMode.LAUNCHED if units.launched else KernelsMode.CLIPPED
        convention = replace(base, anchor=units.anchor, span=Span.RANGE, kernels=mode)
        if not Holds(open_under(convention), Span.RANGE)[mode].kernels:
            return None
        chosen = Choice(convention, base).because("anchor", "Each window is from one start of this kernel to the next.")
    chosen = chosen.because(
        "convention", f"No framework marks a step here. Found in the kernels: {units_words(units)}."
    )
    if units.confidence is Confidence.HIGH:
        return chosen
    look = "look at one with `pytest-nsys cut` before you rely on it"
    return chosen.because("convention", f"Confidence {units.confidence}: few of them, or they differ; {look}.")


def _ranges_of_steps(run: Run, base: Convention, searched: Searched) -> list[Candidate]:
    """Ranges that may be steps though the kernels do not say so, the best first; none where they say that it is not."""
    parts = searched if isinstance(searched, FoundUnits) and searched.what is not UnitIs.MAYBE_PART else None
    around = None if parts is None or parts.inside is None else candidate_of(run, parts.inside)
    if around is not None:
        return [around]
    found = anchor_candidates(run, base.setup_of)
    if not isinstance(searched, FoundUnits):
        return found
    return [each for each in found if each.alone or (each.good and parts is None)]


def _best(open_under: OpenUnder, base: Convention, candidates: Sequence[Candidate]) -> Choice | NoUnits | None:
    """The convention with the first anchor that holds kernels. Of two that are alike, neither is a step."""
    possible = [each for each in candidates if each.usable]
    if len(possible) > 1 and possible[0].alike(possible[1]):
        both = " and ".join(f"'{printable(each.pattern, 60)}'" for each in possible[:2])
        return NoUnits(f"the ranges {both} repeat alike: --anchor names one")
    return next(filter(None, (_anchored(open_under, each, base) for each in possible)), None)


def _whole_run(base: Convention, searched: Searched) -> Choice:
    choice = Choice(base, base, RUN).because("window", f"run, all of it in one window: {why_whole(searched)}.")
    if (units := other_units(searched)) is not None:
        choice = choice.because("window", f"To measure each: --anchor {shlex.quote(written_anchor(units.anchor))}")
    return choice.because("window", "Better: mark the step with a range, and name it as the anchor of a convention.")


def _anchored(open_under: OpenUnder, anchor: Candidate, base: Convention) -> Choice | None:
    """The convention with this anchor; None where no mode has kernels in its median windows."""
    choice = Choice(replace(base, anchor=anchor.pattern, span=anchor.span), base)
    which = "The only step, by its name" if anchor.alone else "The range that repeats"
    encloses = "range: the anchors enclose their work."
    marks = "period: the anchors mark a beginning and enclose little."
    choice = choice.because("anchor", f"{which}: {anchor}.")
    return _accept(open_under, choice.because("span", encloses if anchor.span is Span.RANGE else marks), keep=False)


def _why_mode(mode: KernelsMode, holds: Holds) -> tuple[str, ...]:
    counts = ", ".join(f"{name} {holds[name].kernels}" for name in KernelsMode)
    seen = f"Kernels in the {holds.place} by mode: {counts}."
    if mode is KernelsMode.CONTAINED:
        return ("contained: what a window launches also runs in it.", seen)
    if mode is KernelsMode.LAUNCHED:
        return (f"launched: the GPU runs {format_value(holds.lag_ns)} behind the CPU.", seen)
    without = format_share(holds.unlaunched)
    return (f"clipped: {without} of the kernels have no launch row, so they count where they ran.", seen)
