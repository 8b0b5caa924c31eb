"""What does a sentence ask for, now that it is known what it is judged on?

Of a measurement its file says unit, direction and labels. A word such as ``decode`` is a kind of steps under a
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
    """The assertion as it is judged on these captures. ``stated`` is what the gate file says of the run.

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
    """The limit, of one for each GPU model with the GPUs that these captures are of."""
    if not isinstance(require.limit, ByModel):
        return require
    return replace(require, limit=replace(require.limit, models=captures.gpu_models, stated=stated))


def _of_kind(assertion: Assertion, convention: Convention, axes: Collection[str]) -> Assertion:
    """The assertion as the convention reads the word that may be a kind of steps."""
    kind = assertion.kind
    if kind is None or kind in convention.kind_names:
        return assertion
    try:
        return selecting(assertion, kind, axes)
    except SentenceMistake:
        having = [each.name for each in BUILT_IN.values() if kind in each.kind_names]
        said = f"'{kind}' is a kind of steps under convention {' or '.join(having)}"
        raise UsageMistake(f"{said}, and this run is read under {convention_words(convention)}") from None


def settled_as(assertion: Assertion, metric: Metric, axes: Collection[str]) -> Assertion:
    """An assertion on what was measured outside of a trace as it is judged, where that is known to be ``metric``, on a
    mesh of these ``axes``. Raises UsageMistake.
    """
    known = replace(assertion, outside=metric)
    mesh = axes if "rank" in metric.dimensions else ()
    for dimension in _named(assertion):
        if wrong := check_dimension(dimension, metric, [*mesh]):
            raise UsageMistake(wrong)
    values = known.judged
    try:
        return replace(
            known,
            require=_requirement(assertion.require, values),
            warn=None if assertion.warn is None else _requirement(assertion.warn, values),
            waivers=tuple(replace(w, ceiling=_in_unit(w.ceiling, w.unit, values), unit=ANY) for w in assertion.waivers),
        )
    except UnitMistake as mistake:
        raise UsageMistake(str(mistake)) from None


def _named(assertion: Assertion) -> dict[str, None]:
    """The dimensions that the gate file names."""
    selected: list[Mapping[str, Selector]] = [assertion.where, *(waiver.where for waiver in assertion.waivers)]
    named = [dimension for where in selected for dimension in where]
    named += [dimension for step in assertion.aggregates for dimension in step.over or ()]
    return dict.fromkeys([*named, *(["rank"] if assertion.balance_across else [])])


def _requirement(require: Requirement, values: Judged) -> Requirement:
    limit = require.limit
    if isinstance(limit, FromBaseline):
        return _held(require, limit, values)
    if isinstance(limit, Constant):
        return replace(require, limit=_converted(limit, values))
    constants = {model: _converted(each, values) for model, each in limit.constants.items()}
    return replace(require, limit=replace(limit, constants=constants))


def _converted(constant: Constant, values: Judged) -> Constant:
    return Constant(_in_unit(constant.value, constant.unit, values))


def _held(require: Requirement, limit: FromBaseline, values: Judged) -> Requirement:
    """Against a baseline, on the side on which the metric gets worse."""
    if limit.tolerance is not None and not gives_something(limit.tolerance, values):
        raise UsageMistake(nothing_for(values))
    if require.comparator in {"lower": FLOORS, "higher": CEILINGS}.get(values.better or "", ()):
        worse = "rises" if values.better == "lower" else "falls"
        raise UsageMistake(
            f"{values.better} {values.name} is better, so '{require.text}' passes however far it {worse}: write the "
            "other side"
        )
    return require


def _in_unit(value: Fraction, unit: str, values: Judged) -> Fraction:
    """A limit in the unit of what is judged. Raises UnitMistake."""
    if unit in (ANY, values.unit) or not value:
        return value
    written = parse_quantity(written_value(value, unit), any_unit=True)
    return limit_value(written._replace(text=format_value(value, unit)), values.unit, values.name)
