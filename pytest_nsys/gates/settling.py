"""What does a sentence ask for, once it is known which captures it is judged on?

The file of a measurement says unit, direction and labels. A word such as ``decode`` is a kind of steps under a
convention that has it; under another that was found in the trace it selects rows, as any word does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.core.conventions import BUILT_IN, Convention, convention_words
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.model import Label
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import ANY, UnitMistake, limit_value, parse_quantity, written_value
from pytest_nsys.gates.limits import CEILINGS, FLOORS, SentenceMistake, gives_something, nothing_for
from pytest_nsys.gates.model import Assertion, ByModel, Constant, FromBaseline, Judged, Requirement
from pytest_nsys.gates.sentences import check_dimension, selecting

if TYPE_CHECKING:
    from pytest_nsys.analysis.captures.captures import Captures


def settled(assertion: Assertion, captures: Captures, stated: Mapping[str, Label] | None = None) -> Assertion:
    """Return the assertion as it is judged on these captures. ``stated_run`` is what the gate file says of the run.

    Raises NothingMeasured where nothing of the name was measured, TraceError for files that cannot be meant,
    UsageMistake where the sentence does not fit what was measured.
    """
    gpu = str((stated or {}).get("gpu", ""))
    assertion = replace(
        assertion,
        require=_on_gpus(assertion.require, captures, gpu),
        warn=None if assertion.warn is None else _on_gpus(assertion.warn, captures, gpu),
    )
    if assertion.outside is None:
        return _of_kind(assertion, captures.convention, captures.mesh.sizes)
    try:
        return settled_as(assertion, captures.metric(assertion.metric), captures.mesh.sizes)
    except UsageMistake as mistake:
        raise UsageMistake(f"{mistake} (measured in {captures.runs[0].measurements.shown})") from None


def _on_gpus(require: Requirement, captures: Captures, stated: str) -> Requirement:
    """Return the requirement with the GPUs of these captures, where it has a limit for each GPU model."""
    if not isinstance(require.limit, ByModel):
        return require
    return replace(require, limit=replace(require.limit, models=captures.gpu_models, stated=stated))


def _of_kind(assertion: Assertion, convention: Convention, axes: Collection[str]) -> Assertion:
    """Return the assertion as the convention reads the word that may be a kind of steps. Raises UsageMistake."""
    kind = assertion.kind
    if kind is None or kind in convention.kind_names:
        return assertion
    try:
        return selecting(assertion, kind, axes)
    except SentenceMistake:
        convention_names = [built_in.name for built_in in BUILT_IN.values() if kind in built_in.kind_names]
        explanation = f"'{kind}' is a kind of steps under convention {' or '.join(convention_names)}"
        raise UsageMistake(f"{explanation}, and this run is read under {convention_words(convention)}") from None


def settled_as(assertion: Assertion, metric: Metric, axes: Collection[str]) -> Assertion:
    """Return an assertion on a measurement with its limits in the unit of ``metric``, as which it was measured.

    ``axes`` are those of the mesh. Raises UsageMistake.
    """
    resolved_assertion = replace(assertion, outside=metric)
    rank_axes = axes if "rank" in metric.dimensions else ()
    for dimension in _named(assertion):
        if problem := check_dimension(dimension, metric, [*rank_axes]):
            raise UsageMistake(problem)
    target = resolved_assertion.judged
    try:
        return replace(
            resolved_assertion,
            require=_requirement(assertion.require, target),
            warn=None if assertion.warn is None else _requirement(assertion.warn, target),
            waivers=tuple(
                replace(waiver, ceiling=_in_unit(waiver.ceiling, waiver.unit, target), unit=ANY)
                for waiver in assertion.waivers
            ),
        )
    except UnitMistake as mistake:
        raise UsageMistake(str(mistake)) from None


def _named(assertion: Assertion) -> dict[str, None]:
    """List the dimensions that the gate file names for the assertion."""
    selector_maps: list[Mapping[str, Selector]] = [assertion.where, *(waiver.where for waiver in assertion.waivers)]
    dimensions = [dimension for where in selector_maps for dimension in where]
    dimensions += [dimension for step in assertion.aggregates for dimension in step.over or ()]
    return dict.fromkeys([*dimensions, *(["rank"] if assertion.balance_across else [])])


def _requirement(require: Requirement, values: Judged) -> Requirement:
    limit = require.limit
    if isinstance(limit, FromBaseline):
        return _held(require, limit, values)
    if isinstance(limit, Constant):
        return replace(require, limit=_converted(limit, values))
    constants = {model: _converted(constant, values) for model, constant in limit.constants.items()}
    return replace(require, limit=replace(limit, constants=constants))


def _converted(constant: Constant, values: Judged) -> Constant:
    return Constant(_in_unit(constant.value, constant.unit, values))


def _held(require: Requirement, limit: FromBaseline, values: Judged) -> Requirement:
    """Return the requirement of a baseline. Raises UsageMistake where its tolerance allows nothing, or where it is on
    the side on which the metric gets better.
    """
    if limit.tolerance is not None and not gives_something(limit.tolerance, values):
        raise UsageMistake(nothing_for(values))
    if require.comparator in {"lower": FLOORS, "higher": CEILINGS}.get(values.better or "", ()):
        movement = "rises" if values.better == "lower" else "falls"
        raise UsageMistake(
            f"{values.better} {values.name} is better, so '{require.text}' passes however far it {movement}: write the "
            "other side"
        )
    return require


def _in_unit(value: Fraction, unit: str, values: Judged) -> Fraction:
    """Return a limit in the unit of what is judged. Raises UnitMistake."""
    if unit in (ANY, values.unit) or not value:
        return value
    quantity = parse_quantity(written_value(value, unit), any_unit=True)
    return limit_value(quantity._replace(text=format_value(value, unit)), values.unit, values.name)
