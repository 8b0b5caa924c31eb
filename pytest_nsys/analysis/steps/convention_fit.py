"""Under which convention does a trace have windows: a built-in one that fits it, or the steps found in it?

A framework's own range of a step is tried first, then what repeats in the kernels, then a range that repeats regularly;
where none is a step, the whole run is measured. The median window decides: an anchor to which no kernel belongs is
none, and the kernels mode is the one under which the window holds its kernels.
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
"""The convention under which a trace is first opened: only their labels may identify the ranks of several files."""

FIRST = "first"


class FitAlike(UsageMistake):
    """Reports that several conventions fit a trace equally well. ``anchors`` are the patterns of their anchors."""

    def __init__(self, what: str, anchors: Collection[str] = ()) -> None:
        super().__init__(what)
        self.anchors = frozenset(anchors)


OpenUnder = Callable[[Convention], Run]


class Allowed(NamedTuple):
    """Describes a bound of quality that a trace crosses, with the value that allows it and what is wrong."""

    value: str  # as a gate file allows it
    words: str


@dataclass(frozen=True)
class Choice:
    """Describes how the windows of a trace are found."""

    convention: Convention
    base: Convention  # the convention that it is, or extends
    window: str = MEDIAN
    candidates: tuple[Candidate, ...] = ()
    rivals: tuple[str, ...] = ()  # names of built-in conventions that fit as well
    searched: Searched = None  # what repeats in the kernels, where anybody searched
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # comment lines by key of the gate file
    quality: Mapping[str, Allowed] = field(default_factory=dict)  # bounds that the trace crosses, by name
    kinds: Mapping[str, int] = field(default_factory=dict)  # number of steps by kind, where steps have kinds
    kind: str | None = None  # the kind that is measured

    @property
    def anchored(self) -> bool:
        """Whether something in the trace is the anchor; else the whole run is measured."""
        return self.window != RUN

    @property
    def told(self) -> str:
        """A sentence that says what was found."""
        kinds_text = f": {counts_in_words(self.kinds)}" if self.kinds else ""
        return found_words(self.convention, "trace", self.searched, anchored=self.anchored) + kinds_text

    @property
    def spec(self) -> WindowSpec:
        """The window that the assertions are judged on."""
        return WindowSpec(self.window, self.convention.span, self.convention.kernels, self.kind)

    def because(self, key: str, *lines: str) -> Choice:
        """Return the choice with more reasons for a key."""
        return replace(self, reasons={**self.reasons, key: (*self.reasons.get(key, ()), *lines)})


def choose(
    run: Run,
    open_under: OpenUnder,
    given: Convention | None,
    usual: Convention = GENERIC,
    known: Sequence[Convention] = (),
) -> Choice:
    """Choose how the windows of ``run``, which is under :data:`OPENING_CONVENTION`, are found.

    ``named_convention`` is one that the person named; ``default_convention`` is what a trace of this format extends
    where no built-in anchor is in it; ``known_conventions`` are those of what the run is compared with. Raises
    NothingMeasured where the named convention does not fit, or the run holds no kernels.
    """
    if given is not None and given.anchor is not None:
        choice = _built_in(open_under, given)
        if choice is None:
            run = open_under(given)
            run.measured(WindowSpec(MEDIAN, given.span, given.kernels, run.steps.usual)).filled()  # says why
            raise NothingMeasured(f"the windows of convention {given.name} hold no kernels")
        return choice
    for conventions in _fitting(run) if given is None else ():
        choices = [
            built_in_choice
            for convention in conventions
            if (built_in_choice := _built_in(open_under, convention)) is not None
        ]
        if choices:
            choice, *other_choices = choices
            return _with_parts(
                run, open_under, replace(choice, rivals=tuple(other_choice.base.name for other_choice in other_choices))
            )
    return _unmarked(run, open_under, given, usual, known)


def found(
    run: Run,
    open_under: OpenUnder,
    usual: Convention = GENERIC,
    anchor: Anchor | None = None,
    known: Sequence[Convention] = (),
) -> Choice:
    """Find how the windows of ``run``, which is under :data:`OPENING_CONVENTION`, are picked where nobody named a
    convention.

    ``anchor`` is one that a person named. Raises UsageMistake where several conventions fit equally well, with the
    options that name each; NothingMeasured for a run without kernels.
    """
    if anchor is not None:
        return _with_anchor(run, open_under, usual, anchor)
    if not run.has_kernels and run.labelled_ranks and (fitting := _fitting(run)):
        return Choice(fitting[0][0], fitting[0][0])  # its ranges are all that there is
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
    """Add to the choice what repeats in the only step: nothing else would say that it was seen."""
    marked_run = open_under(chosen.convention)
    if all(len(marked_run.anchors(rank)) > 1 for rank in marked_run.ranks):
        return chosen
    anchors_by_rank = {rank.number: marked_run.anchors(rank) for rank in marked_run.ranks}
    search_result = search(
        run,
        {number: (anchors[0].start_ns, anchors[0].end_ns) for number, anchors in anchors_by_rank.items() if anchors},
    )
    parts_text = inside_words(search_result)
    chosen = replace(chosen, searched=search_result)
    return (
        chosen.because("convention", f"{parts_text} in one step: the whole step is measured.") if parts_text else chosen
    )


def _with_anchor(run: Run, open_under: OpenUnder, usual: Convention, anchor: Anchor) -> Choice:
    """Choose the convention that fits, with another anchor; where none fits the default one, in the mode that fits the
    trace.
    """
    fitting = _fitting(run)
    base_convention = fitting[0][0] if fitting else _base(run, usual)
    convention = base_convention.with_anchor(anchor) if fitting else replace(base_convention, anchor=anchor)
    if convention.kernel_anchor is not None:
        convention = _by_launch(run, convention)
    elif not fitting:
        mode = Holds(open_under(convention), convention.span).best_mode
        convention = replace(convention, kernels=mode or convention.kernels)
    return Choice(convention, base_convention)


def _by_launch(run: Run, convention: Convention) -> Convention:
    """Return the convention with the mode for a kernel anchor: by launch, or by time where too few are on record."""
    coverages = [track.launched for track in run.whole().tracks.values()]
    is_launch_recorded = all(coverage.without <= MOST_UNLAUNCHED * coverage.kernels for coverage in coverages)
    return replace(convention, kernels=KernelsMode.LAUNCHED if is_launch_recorded else KernelsMode.CLIPPED)


def _fitting(run: Run) -> list[list[Convention]]:
    """List the built-in conventions whose anchors every rank has, in groups that fit equally well, the best group
    first.

    Those that name other ranges of the trace, too, stand before the rest. Of those with one anchor only the first is
    listed.
    """
    anchored_conventions = [c for c in BUILT_IN.values() if c.range_anchor]
    found_anchors = run.have_anchors([c.range_anchor for c in anchored_conventions if c.range_anchor is not None])
    fitting = [c for c in anchored_conventions if c.anchor in found_anchors]
    if len(fitting) < 2:  # reading every range takes longest of all
        return [fitting] if fitting else []
    names = ranges_of(run).names
    naming_conventions = [c for c in fitting if not c.kinds and any(map(c.contexts(), names))]
    engines = [c for c in fitting if c.kinds][:1]  # what labels its steps may run inside another that does
    ordered_groups = [engines, naming_conventions, [c for c in fitting if c not in naming_conventions + engines]]
    return [[*{c.anchor: c for c in reversed(group)}.values()][::-1] for group in ordered_groups if group]


def _built_in(open_under: OpenUnder, convention: Convention) -> Choice | None:
    """Choose a built-in convention with the kernels mode that fits the trace; None where its windows hold nothing."""
    choice = _accept(open_under, Choice(convention, convention), keep=True)
    if choice is None:
        return None
    run = open_under(convention)
    counts = sorted({len(run.anchors(rank)) for rank in run.ranks})
    frequency = counted(counts[0], "time") + (" or more" if len(counts) > 1 else "")
    frequency += f": {counts_in_words(choice.kinds)}" if choice.kinds else ""
    labelled_count = len(run.labelled_ranks) if convention.setup is not None else 0
    setup_text = f", and the setup label of {counted(labelled_count, 'rank')} was read" if labelled_count else ""
    anchor = printable(str(convention.anchor), 60)
    return choice.because(
        "convention", f"{convention.name} fits: every rank has its anchor '{anchor}' ({frequency}){setup_text}."
    )


def _accept(open_under: OpenUnder, choice: Choice, *, keep: bool) -> Choice | None:
    """Return the choice with the kernels mode that fits its windows; None where they hold nothing.

    With ``keep_launched``, a convention that counts by launches and holds kernels so keeps that mode.
    """
    convention = choice.convention
    run = open_under(convention)
    counts = {len(run.anchors(rank)) for rank in run.ranks}
    if not counts or min(counts) < (FEWEST if convention.span is Span.PERIOD else 1):
        return None
    steps_by_kind, kind = run.steps, run.steps.usual
    if convention.kinds and kind is None:
        return None
    contents = Holds(run, convention.span, kind)
    mode: KernelsMode | None = convention.kernels
    # A kind that a rank lacks is reported where it is requested: no other unit stands for it.
    is_shared_kind = kind is None or steps_by_kind.shared
    if is_shared_kind and not (keep and mode is KernelsMode.LAUNCHED and contents[mode].kernels):
        mode = contents.best_mode
    if mode is None:
        return None
    choice = replace(choice, convention=replace(convention, kernels=mode), kinds=steps_by_kind.counts, kind=kind)
    if not keep or mode is not convention.kernels:
        choice = choice.because("kernels", *_why_mode(mode, contents))
    return of_one_step(choice) if counts == {1} else choice


def of_one_step(choice: Choice) -> Choice:
    """Return the choice with window ``first``, as the trace holds a single step."""
    step_noun = f"{choice.kind} step" if choice.kind else "step"
    return replace(choice, window=FIRST).because("window", f"first: the trace holds one {step_noun}.")


def _unmarked(
    run: Run, open_under: OpenUnder, given: Convention | None, usual: Convention, known: Sequence[Convention]
) -> Choice:
    """Choose the step that repeats in the kernels, else a range that does, else the whole run."""
    if (
        known_choice := _known(open_under, [convention for convention in known if convention.kernel_anchor is not None])
    ) is not None:
        return known_choice
    base_convention, search_result = given or _base(run, usual), search(run)
    if isinstance(search_result, FoundUnits) and search_result.what is UnitIs.STEP:
        candidates, choice = tuple[Candidate, ...](), _step(run, open_under, base_convention, search_result)
    else:
        candidates = tuple(_ranges_of_steps(run, base_convention, search_result))
        best_choice = _best(open_under, base_convention, candidates)
        choice, search_result = (
            (None, best_choice) if isinstance(best_choice, NoUnits) else (best_choice, search_result)
        )
    if choice is None:
        choice = _known(open_under, known) or _whole_run(base_convention, search_result)
    return replace(choice, searched=search_result, candidates=candidates)


def _base(run: Run, usual: Convention) -> Convention:
    """Return the built-in convention whose setup label the ranks have, else the default one."""
    texts = [rank.setup.text for rank in run.labelled_ranks if rank.setup is not None]
    return next((c for c in BUILT_IN.values() if any(c.setup_of(text) is not None for text in texts)), usual)


def _known(open_under: OpenUnder, known: Sequence[Convention]) -> Choice | None:
    """Choose the first known convention whose anchor repeats on every rank, so that nobody has to search; None without
    one.
    """
    for convention in known:
        run = open_under(convention)
        if convention.anchor and all(len(run.anchors(rank)) >= FEWEST for rank in run.ranks):
            return Choice(convention, BUILT_IN.get(convention.name, convention))
    return None


def _step(run: Run, open_under: OpenUnder, base: Convention, units: FoundUnits) -> Choice | None:
    """Choose the step that was found: by the range that starts once in each, else by its first kernel.

    Returns None where its windows hold no kernels.
    """
    candidate = None if units.pattern is None else candidate_of(run, units.pattern)
    choice = None if candidate is None else _anchored(open_under, candidate, base)
    if choice is None:
        mode = KernelsMode.LAUNCHED if units.launched else KernelsMode.CLIPPED
        convention = replace(base, anchor=units.anchor, span=Span.RANGE, kernels=mode)
        if not Holds(open_under(convention), Span.RANGE)[mode].kernels:
            return None
        choice = Choice(convention, base).because("anchor", "Each window is from one start of this kernel to the next.")
    choice = choice.because(
        "convention", f"No framework marks a step here. Found in the kernels: {units_words(units)}."
    )
    if units.confidence is Confidence.HIGH:
        return choice
    advice = "look at one with `pytest-nsys cut` before you rely on it"
    return choice.because("convention", f"Confidence {units.confidence}: few of them, or they differ; {advice}.")


def _ranges_of_steps(run: Run, base: Convention, searched: Searched) -> list[Candidate]:
    """List ranges that may be steps though the kernels do not say so, the best first; none where they contradict it."""
    found_parts = searched if isinstance(searched, FoundUnits) and searched.what is not UnitIs.MAYBE_PART else None
    holder = None if found_parts is None or found_parts.inside is None else candidate_of(run, found_parts.inside)
    if holder is not None:
        return [holder]
    candidates = anchor_candidates(run, base.setup_of)
    if not isinstance(searched, FoundUnits):
        return candidates
    return [candidate for candidate in candidates if candidate.alone or (candidate.good and found_parts is None)]


def _best(open_under: OpenUnder, base: Convention, candidates: Sequence[Candidate]) -> Choice | NoUnits | None:
    """Choose the first candidate whose windows hold kernels. Of two that are equally good, neither is a step."""
    usable_candidates = [candidate for candidate in candidates if candidate.usable]
    if len(usable_candidates) > 1 and usable_candidates[0].alike(usable_candidates[1]):
        range_names = " and ".join(f"'{printable(candidate.pattern, 60)}'" for candidate in usable_candidates[:2])
        return NoUnits(f"the ranges {range_names} repeat alike: --anchor names one")
    return next(filter(None, (_anchored(open_under, candidate, base) for candidate in usable_candidates)), None)


def _whole_run(base: Convention, searched: Searched) -> Choice:
    """Choose the whole run as one window, and say why."""
    choice = Choice(base, base, RUN).because("window", f"run, all of it in one window: {why_whole(searched)}.")
    if (units := other_units(searched)) is not None:
        choice = choice.because("window", f"To measure each: --anchor {shlex.quote(written_anchor(units.anchor))}")
    return choice.because("window", "Better: mark the step with a range, and name it as the anchor of a convention.")


def _anchored(open_under: OpenUnder, anchor: Candidate, base: Convention) -> Choice | None:
    """Choose a range as the anchor; None where no mode has kernels in its median windows."""
    choice = Choice(replace(base, anchor=anchor.pattern, span=anchor.span), base)
    subject = "The only step, by its name" if anchor.alone else "The range that repeats"
    range_reason = "range: the anchors enclose their work."
    period_reason = "period: the anchors mark a beginning and enclose little."
    choice = choice.because("anchor", f"{subject}: {anchor}.")
    return _accept(
        open_under, choice.because("span", range_reason if anchor.span is Span.RANGE else period_reason), keep=False
    )


def _why_mode(mode: KernelsMode, holds: Holds) -> tuple[str, ...]:
    """Explain a kernels mode, with the kernels that the windows hold under each."""
    counts_by_mode = ", ".join(f"{name} {holds[name].kernels}" for name in KernelsMode)
    counts_text = f"Kernels in the {holds.place} by mode: {counts_by_mode}."
    if mode is KernelsMode.CONTAINED:
        return ("contained: what a window launches also runs in it.", counts_text)
    if mode is KernelsMode.LAUNCHED:
        return (f"launched: the GPU runs {format_value(holds.lag_ns)} behind the CPU.", counts_text)
    unlaunched_share = format_share(holds.unlaunched)
    return (
        f"clipped: {unlaunched_share} of the kernels have no launch row, so they count where they ran.",
        counts_text,
    )
