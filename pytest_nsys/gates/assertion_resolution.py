"""What does a sentence ask for, once it is known which captures it is judged on?

The file of a measurement says unit, direction and labels. A word such as ``decode`` is a kind of steps if the
convention has that kind. Under any other convention that was found in the trace it selects rows, as any label does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention, describe_convention
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.model import Label
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import ANY_UNIT, UnitMistake, convert_to_limit, format_written_limit, parse_quantity
from pytest_nsys.gates.limits import (
    CEILING_COMPARATORS,
    FLOOR_COMPARATORS,
    SentenceMistake,
    describe_missing_amount,
    has_tolerance_for,
)
from pytest_nsys.gates.model import (
    Assertion,
    BaselineLimit,
    Comparator,
    Constant,
    ConstantByModel,
    LimitTarget,
    Requirement,
)
from pytest_nsys.gates.sentences import explain_wrong_dimension, select_bare_word

if TYPE_CHECKING:
    from pytest_nsys.analysis.captures.captures import Captures


def resolve_assertion(
    assertion: Assertion, captures: Captures, stated_run: Mapping[str, Label] | None = None
) -> Assertion:
    """Return the assertion as it is judged on these captures. ``stated_run`` holds what the gate file states under
    ``run:``.

    Raises NothingMeasured if nothing of that name was measured, TraceError for unusable files of measurements, and
    UsageMistake if the sentence does not fit the measured metric.
    """
    gpu = str((stated_run or {}).get("gpu", ""))
    assertion = replace(
        assertion,
        requirement=_bind_gpu_models(assertion.requirement, captures, gpu),
        warn=None if assertion.warn is None else _bind_gpu_models(assertion.warn, captures, gpu),
    )
    if assertion.outside_metric is None:
        return _resolve_step_kind(assertion, captures.convention, captures.mesh.sizes)
    try:
        return resolve_outside_metric(assertion, captures.resolve_metric(assertion.metric), captures.mesh.sizes)
    except UsageMistake as mistake:
        raise UsageMistake(f"{mistake} (measured in {captures.runs[0].measurements.paths_text})") from None


def _bind_gpu_models(requirement: Requirement, captures: Captures, stated_gpu: str) -> Requirement:
    """Return the requirement; a limit for each GPU model gets the GPUs of these captures."""
    if not isinstance(requirement.limit, ConstantByModel):
        return requirement
    return replace(requirement, limit=replace(requirement.limit, gpu_models=captures.gpu_models, stated_gpu=stated_gpu))


def _resolve_step_kind(assertion: Assertion, convention: Convention, axes: Collection[str]) -> Assertion:
    """Decide by the convention whether a word is a kind of steps or a selector, and return the assertion so resolved.
    Raises UsageMistake.
    """
    kind = assertion.kind
    if kind is None or kind in convention.kind_names:
        return assertion
    try:
        return select_bare_word(assertion, kind, axes)
    except SentenceMistake:
        convention_names = [built_in.name for built_in in BUILT_IN_CONVENTIONS.values() if kind in built_in.kind_names]
        explanation = f"'{kind}' is a kind of steps under convention {' or '.join(convention_names)}"
        raise UsageMistake(f"{explanation}, and this run is read under {describe_convention(convention)}") from None


def resolve_outside_metric(assertion: Assertion, metric: Metric, axes: Collection[str]) -> Assertion:
    """Return an assertion on a measurement with its limits in the unit of ``metric``, the metric that was measured.

    ``axes`` are those of the mesh. Raises UsageMistake.
    """
    resolved_assertion = replace(assertion, outside_metric=metric)
    rank_axes = axes if "rank" in metric.dimensions else ()
    for dimension in _list_named_dimensions(assertion):
        if problem := explain_wrong_dimension(dimension, metric, [*rank_axes]):
            raise UsageMistake(problem)
    target = resolved_assertion.limit_target
    try:
        return replace(
            resolved_assertion,
            requirement=_convert_requirement(assertion.requirement, target),
            warn=None if assertion.warn is None else _convert_requirement(assertion.warn, target),
            waivers=tuple(
                replace(waiver, ceiling=_convert_limit(waiver.ceiling, waiver.unit, target), unit=ANY_UNIT)
                for waiver in assertion.waivers
            ),
        )
    except UnitMistake as mistake:
        raise UsageMistake(str(mistake)) from None


def _list_named_dimensions(assertion: Assertion) -> dict[str, None]:
    """List the dimensions that the gate file names for the assertion."""
    selector_maps: list[Mapping[str, Selector]] = [assertion.where, *(waiver.where for waiver in assertion.waivers)]
    dimensions = [dimension for where in selector_maps for dimension in where]
    dimensions += [dimension for step in assertion.aggregates for dimension in step.over or ()]
    return dict.fromkeys([*dimensions, *(["rank"] if assertion.balance_across else [])])


def _convert_requirement(requirement: Requirement, target: LimitTarget) -> Requirement:
    limit = requirement.limit
    if isinstance(limit, BaselineLimit):
        return _check_baseline_limit(requirement, limit, target)
    if isinstance(limit, Constant):
        return replace(requirement, limit=_convert_constant(limit, target))
    constants = {model: _convert_constant(constant, target) for model, constant in limit.constants.items()}
    return replace(requirement, limit=replace(limit, constants=constants))


def _convert_constant(constant: Constant, target: LimitTarget) -> Constant:
    return Constant(_convert_limit(constant.value, constant.unit, target))


def _check_baseline_limit(requirement: Requirement, limit: BaselineLimit, target: LimitTarget) -> Requirement:
    """Return the requirement, checked. Raises UsageMistake if its tolerance allows nothing, or if the limit is on the
    side on which the metric gets better.
    """
    needs_amount = not limit.is_claim or requirement.comparator in (Comparator.LE, Comparator.GE)
    if limit.tolerance is not None and needs_amount and not has_tolerance_for(limit.tolerance, target):
        raise UsageMistake(describe_missing_amount(target))
    if requirement.comparator in {"lower": FLOOR_COMPARATORS, "higher": CEILING_COMPARATORS}.get(
        target.better or "", ()
    ):
        if limit.is_claim:
            raise UsageMistake(f"{target.better} {target.name} is better: claim the other side of the baseline")
        movement = "rises" if target.better == "lower" else "falls"
        raise UsageMistake(
            f"{target.better} {target.name} is better, so '{requirement.text}' passes however far it {movement}: "
            "write the "
            "other side"
        )
    return requirement


def _convert_limit(value: Fraction, unit: str, target: LimitTarget) -> Fraction:
    """Return a limit in the unit of the judged values. Raises UnitMistake."""
    if unit in (ANY_UNIT, target.unit) or not value:
        return value
    quantity = parse_quantity(format_written_limit(value, unit), allow_any_unit=True)
    return convert_to_limit(quantity._replace(text=format_value(value, unit)), target.unit, target.name)
