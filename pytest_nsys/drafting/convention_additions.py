"""What does a drafted convention say besides its anchor? Libraries, stages, purposes, quality bounds.

Only well-known patterns of stage names are tried. One is kept if it gives enough of the windows' kernels a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS
from pytest_nsys.analysis.facts.communication import find_uncounted_kernels
from pytest_nsys.analysis.facts.fact import Weight
from pytest_nsys.analysis.facts.kinds import measure_facts
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.analysis.facts.steps import count_rank_anchors, is_single_step
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.steps.convention_fit import AllowedQuality, ConventionChoice
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import RUN
from pytest_nsys.core.conventions import (
    BUILT_IN_CONVENTIONS,
    COMPUTE_PURPOSE,
    MIXED_PURPOSE,
    NO_STAGE,
    UNKNOWN_PURPOSE,
    Convention,
    Purpose,
)
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.numbers import format_percent_of
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.drafting.sentences import select_drafted_kinds


def add_libraries(choice: ConventionChoice, run: Run) -> ConventionChoice:
    """Add patterns for kernels of known communication libraries that the convention takes for compute."""
    uncounted_kernels = find_uncounted_kernels(run.load_windows(choice.spec))
    if uncounted_kernels is None:
        reason = f"Kernels of {', '.join(sorted(run.libraries))} communicate, too."
        return choice.add_reason("convention", reason) if run.libraries else choice
    convention = replace(choice.convention, communication=uncounted_kernels.list_globs(choice.convention))
    reason = f"Kernels of {uncounted_kernels.libraries} communicate, too; NCCL's are known anyway."
    return replace(choice, convention=convention).add_reason("communication", reason)


def add_bounds(choice: ConventionChoice, run: Run) -> ConventionChoice:
    """Add a quality bound for each default bound that this trace breaks, with a comment on how to avoid it.

    Raises TraceError for a fact that no bound may let through.
    """
    metric = replace(METRICS["exposed_ns"], dimensions=("rank", "stage", "purpose"))
    quality: dict[str, AllowedQuality] = {}
    errors = [fact for fact in measure_facts(QualityContext(run, choice.spec, metric)) if fact.weight is Weight.ERROR]
    if forbidden := next((fact for fact in errors if fact.name in UNBOUNDABLE_FACTS), None):
        raise TraceError(f"{run.path}: {forbidden.sentence}")
    for fact in errors:
        words = sanitize_line(fact.words, 120)
        quality[fact.name] = AllowedQuality(fact.passing_bound, words)
        choice = choice.add_reason("quality", f"{fact.name}: {words}; better: {fact.measurement.remedy}.")
    counts = count_rank_anchors(run.load_windows(choice.spec))
    fewest = min(
        (*(count for _, count in counts), *select_drafted_kinds(choice.counts_by_kind, choice.kind).values()),
        default=FEW_ANCHORS,
    )
    if "anchors" not in quality and choice.window != RUN and not is_single_step(counts) and fewest < FEW_ANCHORS:
        quality["anchors"] = AllowedQuality(
            str(fewest), f"only {format_count(fewest, 'step' if choice.counts_by_kind else 'anchor')}"
        )
        choice = choice.add_reason("quality", f"anchors: {quality['anchors'].problem}; better: profile more steps.")
    return replace(choice, allowed_quality=quality)


# Facts that stop drafting: limits from a trace with missing or wrong data would be wrong for the next trace.
UNBOUNDABLE_FACTS = frozenset({"launches_without_work", "processes_without_kernels", "impossible_rows"})

# Patterns of stage names, the most specific first.
STAGE_EXPRESSIONS = (
    *(c.stage for c in BUILT_IN_CONVENTIONS.values() if c.stage is not None),
    r"\b(?P<stage>forward|backward|optimizer|dispatch|combine|attention|mlp|moe|loss)\b",
)

# The least share, in tenths, of the windows' kernels that a drafted stage expression must give a stage.
MIN_STAGED_TENTHS = 3


def add_stages(choice: ConventionChoice, open_run_under: Callable[[Convention], Run]) -> ConventionChoice:
    """Add a stage expression and purposes to the drafted convention, if range names follow a known pattern."""
    if choice.convention.stage is not None or choice.convention.anchor is None or choice.counts_by_kind:
        return choice
    for expression in STAGE_EXPRESSIONS:
        choice_with_stages = replace(choice, convention=replace(choice.convention, stage=expression))
        run = open_run_under(choice_with_stages.convention)
        windows = [*run.load_windows(choice.spec)]
        stages = sorted({stage for window in windows for stage in window.kernels_by_stage} - {NO_STAGE})
        kernel_count = sum(len(window) for window in windows)
        unstaged_count = sum(len(window.kernels_by_stage.get(NO_STAGE, ())) for window in windows)
        if len(stages) < 2 or 10 * (kernel_count - unstaged_count) < MIN_STAGED_TENTHS * kernel_count:
            continue
        stage_list = sanitize_line(", ".join(stages[:8]), 100)
        share = format_percent_of(kernel_count - unstaged_count, kernel_count)
        reason = f"Stages from range names: {stage_list}; {share} of the window's kernels have one."
        return _add_purposes(choice_with_stages.add_reason("stage", reason), run, open_run_under)
    return choice


def _add_purposes(choice: ConventionChoice, run: Run, open_run_under: Callable[[Convention], Run]) -> ConventionChoice:
    """Add a purpose for each stage that communicates, if every communication stream then serves a single purpose."""
    windows = [*run.load_windows(choice.spec)]
    stage_names = sorted({stage for window in windows for stage in window.communication_by_stage} - {NO_STAGE})
    if not stage_names or {COMPUTE_PURPOSE, MIXED_PURPOSE, UNKNOWN_PURPOSE} & set(stage_names):
        return choice
    convention = replace(choice.convention, purposes=tuple(Purpose(stage, stages=(stage,)) for stage in stage_names))
    measured_windows = open_run_under(convention).load_windows(choice.spec)
    if any(
        use.purpose in (MIXED_PURPOSE, UNKNOWN_PURPOSE) for window in measured_windows for use in window.stream_uses
    ):
        return choice
    reason = "Each communication stream serves one stage, which is taken for its purpose."
    return replace(choice, convention=convention).add_reason("purposes", reason)
