"""What does a drafted convention say besides its anchor? Libraries, stages, purposes, bounds of quality.

Of stages only well-known ways of naming are tried, and kept only where enough of the windows' kernels get a stage by
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS
from pytest_nsys.analysis.facts.communication import uncounted
from pytest_nsys.analysis.facts.fact import Weight
from pytest_nsys.analysis.facts.ground import Ground
from pytest_nsys.analysis.facts.kinds import facts_of
from pytest_nsys.analysis.facts.steps import anchor_counts, is_one
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.steps.convention_fit import Allowed, Choice
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import RUN
from pytest_nsys.core.conventions import BUILT_IN, COMPUTE, MIXED, NO_STAGE, UNKNOWN, Convention, Purpose
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.numbers import share_of
from pytest_nsys.core.words import counted, printable
from pytest_nsys.drafting.sentences import drafted_kinds


def with_libraries(choice: Choice, run: Run) -> Choice:
    """Add patterns for kernels of known communication libraries that the convention takes for compute."""
    uncounted_kernels = uncounted(run.measured(choice.spec))
    if uncounted_kernels is None:
        reason = f"Kernels of {', '.join(sorted(run.libraries))} communicate, too."
        return choice.because("convention", reason) if run.libraries else choice
    convention = replace(choice.convention, communication=uncounted_kernels.globs(choice.convention))
    reason = f"Kernels of {uncounted_kernels.libraries} communicate, too; NCCL's are known anyway."
    return replace(choice, convention=convention).because("communication", reason)


def with_bounds(choice: Choice, run: Run) -> Choice:
    """Add the bounds of quality that this trace crosses, set on purpose, each with what would be better.

    Raises TraceError for a fact that no bound may let through.
    """
    metric = replace(METRICS["exposed_ns"], dimensions=("rank", "stage", "purpose"))
    quality: dict[str, Allowed] = {}
    errors = [fact for fact in facts_of(Ground(run, choice.spec, metric)) if fact.weight is Weight.ERROR]
    if forbidden := next((fact for fact in errors if fact.name in NEVER_BORNE), None):
        raise TraceError(f"{run.path}: {forbidden.sentence}")
    for fact in errors:
        words = printable(fact.words, 120)
        quality[fact.name] = Allowed(fact.lets_through, words)
        choice = choice.because("quality", f"{fact.name}: {words}; better: {fact.found.remedy}.")
    counts = anchor_counts(run.measured(choice.spec))
    fewest = min(
        (*(count for _, count in counts), *drafted_kinds(choice.kinds, choice.kind).values()), default=FEW_ANCHORS
    )
    if "anchors" not in quality and choice.window != RUN and not is_one(counts) and fewest < FEW_ANCHORS:
        quality["anchors"] = Allowed(str(fewest), f"only {counted(fewest, 'step' if choice.kinds else 'anchor')}")
        choice = choice.because("quality", f"anchors: {quality['anchors'].words}; better: profile more steps.")
    return replace(choice, quality=quality)


# Facts for which no gate is drafted: the next trace would be held to what is missing or wrong in this one.
NEVER_BORNE = frozenset({"launches_without_work", "processes_without_kernels", "impossible_rows"})

# Ways of naming stages, the most special first.
EXPRESSIONS = (
    *(c.stage for c in BUILT_IN.values() if c.stage is not None),
    r"\b(?P<stage>forward|backward|optimizer|dispatch|combine|attention|mlp|moe|loss)\b",
)

# Tenths of the windows' kernels that must get a stage, or no expression is worth its line.
LEAST_STAGED = 3


def with_stages(choice: Choice, open_under: Callable[[Convention], Run]) -> Choice:
    """Add a stage expression to the drafted convention, and purposes, where the trace has a pattern for them."""
    if choice.convention.stage is not None or choice.convention.anchor is None or choice.kinds:
        return choice
    for expression in EXPRESSIONS:
        choice_with_stages = replace(choice, convention=replace(choice.convention, stage=expression))
        run = open_under(choice_with_stages.convention)
        windows = [*run.measured(choice.spec)]
        stages = sorted({stage for window in windows for stage in window.all_by_stage} - {NO_STAGE})
        kernel_count = sum(len(window) for window in windows)
        unstaged_count = sum(len(window.all_by_stage.get(NO_STAGE, ())) for window in windows)
        if len(stages) < 2 or 10 * (kernel_count - unstaged_count) < LEAST_STAGED * kernel_count:
            continue
        stage_list = printable(", ".join(stages[:8]), 100)
        share = share_of(kernel_count - unstaged_count, kernel_count)
        reason = f"Stages from range names: {stage_list}; {share} of the window's kernels have one."
        return _with_purposes(choice_with_stages.because("stage", reason), run, open_under)
    return choice


def _with_purposes(choice: Choice, run: Run, open_under: Callable[[Convention], Run]) -> Choice:
    """Add a purpose for each stage that communicates, where every communication stream then serves one purpose."""
    windows = [*run.measured(choice.spec)]
    stage_names = sorted({stage for window in windows for stage in window.by_stage} - {NO_STAGE})
    if not stage_names or {COMPUTE, MIXED, UNKNOWN} & set(stage_names):
        return choice
    convention = replace(choice.convention, purposes=tuple(Purpose(stage, stages=(stage,)) for stage in stage_names))
    measured_windows = open_under(convention).measured(choice.spec)
    if any(use.purpose in (MIXED, UNKNOWN) for window in measured_windows for use in window.streams):
        return choice
    reason = "Each communication stream serves one stage, which is taken for its purpose."
    return replace(choice, convention=convention).because("purposes", reason)
