"""Under which convention does a trace have windows: a built-in one that fits it, or the steps found in it?

A framework's own step range is tried first, then what repeats in the kernels, then a range that repeats regularly. If
none of them is a step, the whole run is measured. The median window decides: an anchor whose windows hold no kernel is
rejected, and of the kernels modes the one is chosen under which the window holds its kernels.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pytest_nsys.analysis.steps.anchor_candidates import (
    MIN_ANCHORS,
    AnchorCandidate,
    MedianWindowContents,
    build_anchor_candidate,
    format_share,
    list_anchor_candidates,
    read_closed_ranges,
)
from pytest_nsys.analysis.steps.search_result import Confidence, FoundUnits, NoUnits, UnitType
from pytest_nsys.analysis.steps.search_text import (
    SearchResult,
    describe_chosen_convention,
    describe_units,
    explain_whole_run,
    format_repeated_part,
    select_other_units,
)
from pytest_nsys.analysis.steps.step_search import search_steps
from pytest_nsys.analysis.windows.kernel_anchors import MAX_UNLAUNCHED_SHARE
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.step_kinds import format_kind_counts
from pytest_nsys.analysis.windows.window_selection import MEDIAN, RUN, WindowSpec
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Anchor, Convention, format_anchor
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, sanitize_line

GENERIC = BUILT_IN_CONVENTIONS["generic"]

OPENING_CONVENTION = replace(GENERIC, setup=BUILT_IN_CONVENTIONS["pithtrain"].setup)
"""The convention under which a trace is first opened: only PithTrain's setup labels identify the ranks of several
files.
"""

FIRST_WINDOW = "first"


class AmbiguousConventions(UsageMistake):
    """Reports that several conventions fit a trace equally well. ``anchors`` are the patterns of their anchors."""

    def __init__(self, message: str, anchors: Collection[str] = ()) -> None:
        super().__init__(message)
        self.anchors = frozenset(anchors)


RunOpener = Callable[[Convention], Run]


class AllowedQuality(NamedTuple):
    """Describes a quality bound that a trace crosses: the value that allows it, and what is wrong."""

    value: str  # as written in a gate file
    problem: str


@dataclass(frozen=True)
class ConventionChoice:
    """Describes how the windows of a trace are found."""

    convention: Convention
    base_convention: Convention  # the convention that is used or extended
    window: str = MEDIAN
    candidates: tuple[AnchorCandidate, ...] = ()
    rival_names: tuple[str, ...] = ()  # names of built-in conventions that fit as well
    search_result: SearchResult = None  # what repeats in the kernels; None if nothing was searched
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # comment lines by key of the gate file
    allowed_quality: Mapping[str, AllowedQuality] = field(
        default_factory=dict
    )  # bounds that the trace crosses, by name
    counts_by_kind: Mapping[str, int] = field(default_factory=dict)  # number of steps by kind, where steps have kinds
    kind: str | None = None  # the kind that is measured

    @property
    def has_anchor(self) -> bool:
        """Whether an anchor was found in the trace; otherwise the whole run is measured."""
        return self.window != RUN

    @property
    def description(self) -> str:
        """A sentence that says what was found."""
        kinds_text = f": {format_kind_counts(self.counts_by_kind)}" if self.counts_by_kind else ""
        return (
            describe_chosen_convention(self.convention, "trace", self.search_result, has_anchor=self.has_anchor)
            + kinds_text
        )

    @property
    def spec(self) -> WindowSpec:
        """The spec of the windows that assertions are judged on."""
        return WindowSpec(self.window, self.convention.span, self.convention.kernels, self.kind)

    def add_reason(self, key: str, *lines: str) -> ConventionChoice:
        """Return the choice with more reasons for a key."""
        return replace(self, reasons={**self.reasons, key: (*self.reasons.get(key, ()), *lines)})


def choose_convention(
    run: Run,
    open_under: RunOpener,
    named_convention: Convention | None,
    default_convention: Convention = GENERIC,
    known_conventions: Sequence[Convention] = (),
) -> ConventionChoice:
    """Choose how the windows of ``run``, which is under :data:`OPENING_CONVENTION`, are found.

    ``named_convention`` is one that the user named. ``default_convention`` is extended if the trace has no built-in
    anchor. ``known_conventions`` are those of the runs it is compared with. Raises NothingMeasured if the named
    convention does not fit, or the run holds no kernels.
    """
    if named_convention is not None and named_convention.anchor is not None:
        choice = _try_built_in(open_under, named_convention)
        if choice is None:
            run = open_under(named_convention)
            run.load_windows(
                WindowSpec(MEDIAN, named_convention.span, named_convention.kernels, run.steps_by_kind.default_kind)
            ).require_filled_windows()  # raises the reason
            raise NothingMeasured(f"the windows of convention {named_convention.name} hold no kernels")
        return choice
    for conventions in _list_fitting_conventions(run) if named_convention is None else ():
        choices = [
            built_in_choice
            for convention in conventions
            if (built_in_choice := _try_built_in(open_under, convention)) is not None
        ]
        if choices:
            choice, *other_choices = choices
            return _add_repeated_parts(
                run,
                open_under,
                replace(choice, rival_names=tuple(other_choice.base_convention.name for other_choice in other_choices)),
            )
    return _choose_unmarked(run, open_under, named_convention, default_convention, known_conventions)


def find_convention(
    run: Run,
    open_under: RunOpener,
    default_convention: Convention = GENERIC,
    anchor: Anchor | None = None,
    known_conventions: Sequence[Convention] = (),
) -> ConventionChoice:
    """Find how the windows of ``run``, which is under :data:`OPENING_CONVENTION`, are picked if the user named no
    convention.

    ``anchor`` is one that the user named. Raises UsageMistake if several conventions fit equally well, with the options
    that name each, and NothingMeasured for a run without kernels.
    """
    if anchor is not None:
        return _choose_with_anchor(run, open_under, default_convention, anchor)
    if not run.has_kernels and run.labelled_ranks and (fitting := _list_fitting_conventions(run)):
        return ConventionChoice(fitting[0][0], fitting[0][0])  # without kernels, its ranges are all there is
    choice = choose_convention(run, open_under, None, default_convention, known_conventions)
    if choice.rival_names:
        names = (choice.base_convention.name, *choice.rival_names)
        anchors = [anchor for name in names if (anchor := BUILT_IN_CONVENTIONS[name].range_anchor) is not None]
        flags = " or ".join(f"--convention {name}" for name in names)
        raise AmbiguousConventions(
            f"{run.traces[0].path}: {len(names)} conventions fit equally well ({'; '.join(names)}): add {flags}; "
            f"in a gate file, convention: {names[0]}",
            anchors,
        )
    return choice


def _add_repeated_parts(run: Run, open_under: RunOpener, choice: ConventionChoice) -> ConventionChoice:
    """Add to the choice what repeats inside the only step, so that a report can mention it."""
    marked_run = open_under(choice.convention)
    if all(len(marked_run.find_anchors(rank)) > 1 for rank in marked_run.ranks):
        return choice
    anchors_by_rank = {rank.number: marked_run.find_anchors(rank) for rank in marked_run.ranks}
    search_result = search_steps(
        run,
        {number: (anchors[0].start_ns, anchors[0].end_ns) for number, anchors in anchors_by_rank.items() if anchors},
    )
    parts_text = format_repeated_part(search_result)
    choice = replace(choice, search_result=search_result)
    return (
        choice.add_reason("convention", f"{parts_text} in one step: the whole step is measured.")
        if parts_text
        else choice
    )


def _choose_with_anchor(
    run: Run, open_under: RunOpener, default_convention: Convention, anchor: Anchor
) -> ConventionChoice:
    """Choose the convention that fits, with another anchor; if none fits, the default one, in the mode that fits the
    trace.
    """
    fitting = _list_fitting_conventions(run)
    base_convention = fitting[0][0] if fitting else _find_base_convention(run, default_convention)
    convention = base_convention.with_anchor(anchor) if fitting else replace(base_convention, anchor=anchor)
    if convention.kernel_anchor is not None:
        convention = _set_kernel_anchor_mode(run, convention)
    elif not fitting:
        mode = MedianWindowContents(open_under(convention), convention.span).best_mode
        convention = replace(convention, kernels=mode or convention.kernels)
    return ConventionChoice(convention, base_convention)


def _set_kernel_anchor_mode(run: Run, convention: Convention) -> Convention:
    """Return the convention with the mode for a kernel anchor: by launch, or by time if too few launches are on
    record.
    """
    coverages = [track.launch_coverage for track in run.load_whole_run().tracks.values()]
    is_launch_recorded = all(
        coverage.unlaunched_count <= MAX_UNLAUNCHED_SHARE * coverage.kernel_count for coverage in coverages
    )
    return replace(convention, kernels=KernelsMode.LAUNCHED if is_launch_recorded else KernelsMode.CLIPPED)


def _list_fitting_conventions(run: Run) -> list[list[Convention]]:
    """List the built-in conventions whose anchors every rank has, in groups that fit equally well, the best group
    first.

    Conventions that also match other ranges of the trace come first. Of conventions with the same anchor only the first
    is listed.
    """
    anchored_conventions = [c for c in BUILT_IN_CONVENTIONS.values() if c.range_anchor]
    found_anchors = run.select_common_anchors(
        [c.range_anchor for c in anchored_conventions if c.range_anchor is not None]
    )
    fitting = [c for c in anchored_conventions if c.anchor in found_anchors]
    if len(fitting) < 2:  # reading every range is the slowest part
        return [fitting] if fitting else []
    names = read_closed_ranges(run).names
    naming_conventions = [c for c in fitting if not c.kinds and any(map(c.make_stage_and_purpose_parser(), names))]
    engines = [c for c in fitting if c.kinds][:1]  # an engine that labels its steps may run inside another that does
    ordered_groups = [engines, naming_conventions, [c for c in fitting if c not in naming_conventions + engines]]
    return [[*{c.anchor: c for c in reversed(group)}.values()][::-1] for group in ordered_groups if group]


def _try_built_in(open_under: RunOpener, convention: Convention) -> ConventionChoice | None:
    """Choose a built-in convention with the kernels mode that fits the trace; None if its windows hold no kernels."""
    choice = _choose_kernels_mode(open_under, ConventionChoice(convention, convention), keep_launched=True)
    if choice is None:
        return None
    run = open_under(convention)
    counts = sorted({len(run.find_anchors(rank)) for rank in run.ranks})
    frequency = format_count(counts[0], "time") + (" or more" if len(counts) > 1 else "")
    frequency += f": {format_kind_counts(choice.counts_by_kind)}" if choice.counts_by_kind else ""
    labelled_count = len(run.labelled_ranks) if convention.setup is not None else 0
    setup_text = f", and the setup label of {format_count(labelled_count, 'rank')} was read" if labelled_count else ""
    anchor = sanitize_line(str(convention.anchor), 60)
    return choice.add_reason(
        "convention", f"{convention.name} fits: every rank has its anchor '{anchor}' ({frequency}){setup_text}."
    )


def _choose_kernels_mode(
    open_under: RunOpener, choice: ConventionChoice, *, keep_launched: bool
) -> ConventionChoice | None:
    """Return the choice with the kernels mode that fits its windows; None if they hold no kernels.

    With ``keep_launched``, a convention that counts by launch keeps that mode if its windows then hold kernels.
    """
    convention = choice.convention
    run = open_under(convention)
    counts = {len(run.find_anchors(rank)) for rank in run.ranks}
    if not counts or min(counts) < (MIN_ANCHORS if convention.span is Span.PERIOD else 1):
        return None
    steps_by_kind, kind = run.steps_by_kind, run.steps_by_kind.default_kind
    if convention.kinds and kind is None:
        return None
    contents = MedianWindowContents(run, convention.span, kind)
    mode: KernelsMode | None = convention.kernels
    # A kind that a rank lacks is reported on request; no other unit replaces it.
    is_shared_kind = kind is None or steps_by_kind.shared_counts
    if is_shared_kind and not (keep_launched and mode is KernelsMode.LAUNCHED and contents[mode].kernel_count):
        mode = contents.best_mode
    if mode is None:
        return None
    choice = replace(
        choice, convention=replace(convention, kernels=mode), counts_by_kind=steps_by_kind.counts_by_kind, kind=kind
    )
    if not keep_launched or mode is not convention.kernels:
        choice = choice.add_reason("kernels", *_explain_mode(mode, contents))
    return choose_first_window(choice) if counts == {1} else choice


def choose_first_window(choice: ConventionChoice) -> ConventionChoice:
    """Return the choice with window ``first``, as the trace holds a single step."""
    step_noun = f"{choice.kind} step" if choice.kind else "step"
    return replace(choice, window=FIRST_WINDOW).add_reason("window", f"first: the trace holds one {step_noun}.")


def _choose_unmarked(
    run: Run,
    open_under: RunOpener,
    named_convention: Convention | None,
    default_convention: Convention,
    known_conventions: Sequence[Convention],
) -> ConventionChoice:
    """Choose the step that repeats in the kernels, else a range that does, else the whole run."""
    if (
        known_choice := _find_known_convention(
            open_under, [convention for convention in known_conventions if convention.kernel_anchor is not None]
        )
    ) is not None:
        return known_choice
    base_convention, search_result = (
        named_convention or _find_base_convention(run, default_convention),
        search_steps(run),
    )
    if isinstance(search_result, FoundUnits) and search_result.unit_type is UnitType.STEP:
        candidates, choice = (
            tuple[AnchorCandidate, ...](),
            _choose_found_step(run, open_under, base_convention, search_result),
        )
    else:
        candidates = tuple(_list_step_ranges(run, base_convention, search_result))
        best_choice = _choose_best_candidate(open_under, base_convention, candidates)
        choice, search_result = (
            (None, best_choice) if isinstance(best_choice, NoUnits) else (best_choice, search_result)
        )
    if choice is None:
        choice = _find_known_convention(open_under, known_conventions) or _choose_whole_run(
            base_convention, search_result
        )
    return replace(choice, search_result=search_result, candidates=candidates)


def _find_base_convention(run: Run, default_convention: Convention) -> Convention:
    """Return the built-in convention whose setup label the ranks have, else the default one."""
    texts = [rank.setup.text for rank in run.labelled_ranks if rank.setup is not None]
    return next(
        (c for c in BUILT_IN_CONVENTIONS.values() if any(c.parse_setup(text) is not None for text in texts)),
        default_convention,
    )


def _find_known_convention(open_under: RunOpener, known_conventions: Sequence[Convention]) -> ConventionChoice | None:
    """Choose the first known convention whose anchor repeats on every rank, which saves the search; None if there is
    none.
    """
    for convention in known_conventions:
        run = open_under(convention)
        if convention.anchor and all(len(run.find_anchors(rank)) >= MIN_ANCHORS for rank in run.ranks):
            return ConventionChoice(convention, BUILT_IN_CONVENTIONS.get(convention.name, convention))
    return None


def _choose_found_step(
    run: Run, open_under: RunOpener, base_convention: Convention, units: FoundUnits
) -> ConventionChoice | None:
    """Choose the step that the search found, anchored by the range that starts once in each step, else by its first
    kernel.

    Returns None if the windows hold no kernels.
    """
    candidate = None if units.pattern is None else build_anchor_candidate(run, units.pattern)
    choice = None if candidate is None else _choose_range_anchor(open_under, candidate, base_convention)
    if choice is None:
        mode = KernelsMode.LAUNCHED if units.is_by_launch else KernelsMode.CLIPPED
        convention = replace(base_convention, anchor=units.anchor, span=Span.RANGE, kernels=mode)
        if not MedianWindowContents(open_under(convention), Span.RANGE)[mode].kernel_count:
            return None
        choice = ConventionChoice(convention, base_convention).add_reason(
            "anchor", "Each window is from one start of this kernel to the next."
        )
    choice = choice.add_reason(
        "convention", f"No framework marks a step here. Found in the kernels: {describe_units(units)}."
    )
    if units.confidence is Confidence.HIGH:
        return choice
    advice = "look at one with `pytest-nsys cut` before you rely on it"
    return choice.add_reason("convention", f"Confidence {units.confidence}: few of them, or they differ; {advice}.")


def _list_step_ranges(run: Run, base_convention: Convention, search_result: SearchResult) -> list[AnchorCandidate]:
    """List ranges that may be steps although the kernels do not show it, the best first; none if the kernels contradict
    it.
    """
    found_parts = (
        search_result
        if isinstance(search_result, FoundUnits) and search_result.unit_type is not UnitType.MAYBE_PART
        else None
    )
    holder = (
        None if found_parts is None or found_parts.holder is None else build_anchor_candidate(run, found_parts.holder)
    )
    if holder is not None:
        return [holder]
    candidates = list_anchor_candidates(run, base_convention.parse_setup)
    if not isinstance(search_result, FoundUnits):
        return candidates
    return [
        candidate for candidate in candidates if candidate.is_single or (candidate.is_reliable and found_parts is None)
    ]


def _choose_best_candidate(
    open_under: RunOpener, base_convention: Convention, candidates: Sequence[AnchorCandidate]
) -> ConventionChoice | NoUnits | None:
    """Choose the first candidate whose windows hold kernels. If two are equally good, neither is taken as the step."""
    usable_candidates = [candidate for candidate in candidates if candidate.is_usable]
    if len(usable_candidates) > 1 and usable_candidates[0].is_similar(usable_candidates[1]):
        range_names = " and ".join(f"'{sanitize_line(candidate.pattern, 60)}'" for candidate in usable_candidates[:2])
        return NoUnits(f"the ranges {range_names} repeat alike: --anchor names one")
    return next(
        filter(None, (_choose_range_anchor(open_under, candidate, base_convention) for candidate in usable_candidates)),
        None,
    )


def _choose_whole_run(base_convention: Convention, search_result: SearchResult) -> ConventionChoice:
    """Choose the whole run as one window, and say why."""
    choice = ConventionChoice(base_convention, base_convention, RUN).add_reason(
        "window", f"run, all of it in one window: {explain_whole_run(search_result)}."
    )
    if (units := select_other_units(search_result)) is not None:
        choice = choice.add_reason("window", f"To measure each: --anchor {shlex.quote(format_anchor(units.anchor))}")
    return choice.add_reason("window", "Better: mark the step with a range, and name it as the anchor of a convention.")


def _choose_range_anchor(
    open_under: RunOpener, candidate: AnchorCandidate, base_convention: Convention
) -> ConventionChoice | None:
    """Choose a range as the anchor; None if under no mode its median windows hold kernels."""
    choice = ConventionChoice(replace(base_convention, anchor=candidate.pattern, span=candidate.span), base_convention)
    subject = "The only step, by its name" if candidate.is_single else "The range that repeats"
    range_reason = "range: the anchors enclose their work."
    period_reason = "period: the anchors mark a beginning and enclose little."
    choice = choice.add_reason("anchor", f"{subject}: {candidate}.")
    return _choose_kernels_mode(
        open_under,
        choice.add_reason("span", range_reason if candidate.span is Span.RANGE else period_reason),
        keep_launched=False,
    )


def _explain_mode(mode: KernelsMode, contents: MedianWindowContents) -> tuple[str, ...]:
    """Explain a kernels mode, with the kernels that the windows hold under each."""
    counts_by_mode = ", ".join(f"{name} {contents[name].kernel_count}" for name in KernelsMode)
    counts_text = f"Kernels in the {contents.windows_text} by mode: {counts_by_mode}."
    if mode is KernelsMode.CONTAINED:
        return ("contained: what a window launches also runs in it.", counts_text)
    if mode is KernelsMode.LAUNCHED:
        return (f"launched: the GPU runs {format_value(contents.lag_ns)} behind the CPU.", counts_text)
    unlaunched_share = format_share(contents.share_without_launch_record)
    return (
        f"clipped: {unlaunched_share} of the kernels have no launch row, so they count where they ran.",
        counts_text,
    )
