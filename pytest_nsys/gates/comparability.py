"""Are two runs comparable (rule R0), and in which circumstances do they differ?

Every difference is reported. The key of a run (convention, mesh, world size, micro-batch, sequence length, GPU model)
names its baseline file: a circumstance that one trace does not state equals only one that the other does not state
either. The facts (steps, those that are stated, GPUs, launcher, anchor names, the profiler's major version, the stated
pipeline and blocks) are stored in the file, and compared where both sides know them. A gate file may narrow the list on
purpose with ``comparable_on``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from pytest_nsys.core.conventions import STEP_KIND_NAMES, Convention, describe_convention
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import Difference, GateFile

KEY_FIELDS = ("convention", "mesh", "micro_batch", "sequence_length", "world", "gpu")
FACT_FIELDS = (
    *("steps", "stated_steps", "gpus", "launcher", "anchor", "profiler"),
    *("pipeline", "blocks", "batch", "peak"),
)
KIND_WORK = "kind_work"
"""Name of the work of an engine: compared, within MOST_OTHER_WORK, only for times of one kind of steps."""

FIELDS = (*KEY_FIELDS, *FACT_FIELDS, KIND_WORK)
"""Circumstances that a gate file may name under ``comparable_on``."""


def find_differences(
    current: Mapping[str, Any], baseline: Mapping[str, Any], compared_fields: Collection[str] | None = None
) -> tuple[Difference, ...]:
    """Return the circumstances that differ, of ``compared_fields`` (None: all), in the order of ``FIELDS``."""
    circumstances = []
    for name in [
        field for field in FIELDS if field != KIND_WORK and (compared_fields is None or field in compared_fields)
    ]:
        current_value, baseline_value = current.get(name), baseline.get(name)
        is_unknown = name in FACT_FIELDS and (current_value is None or baseline_value is None)
        if current_value != baseline_value and not is_unknown:
            circumstances.append(
                Difference(name, format_circumstance(current_value), format_circumstance(baseline_value))
            )
    return tuple(circumstances)


MOST_OTHER_WORK = Fraction(10, 100)
"""How far an engine's work may differ: its share of the steps as a difference, the tokens of a step relatively."""


def find_work_difference(
    current: Mapping[str, Any],
    baseline: Mapping[str, Any],
    kind: str | None,
    compared_fields: Collection[str] | None = None,
) -> tuple[Difference, ...]:
    """Return how the work of the steps of a kind, or their share of all steps, differs in any capture of either side.

    ``kind`` None means the only kind of both sides. Empty if there are several, or if a side does not state its work.
    """
    if compared_fields is not None and KIND_WORK not in compared_fields:
        return ()
    works = [_parse_kind_work(side.get(KIND_WORK)) for side in (current, baseline)]
    if kind is None and len(kinds := {*works[0], *works[1]}) == 1:
        (kind,) = kinds
    if kind is None:
        return ()
    pairs = product(*(works_of_side.get(kind, ()) for works_of_side in works))
    return next(
        (
            (Difference(kind, current_work.text, baseline_work.text),)
            for current_work, baseline_work in pairs
            if current_work.is_other(baseline_work)
        ),
        (),
    )


def is_comparable(
    current: Mapping[str, Any],
    baseline: Mapping[str, Any],
    compared_fields: Collection[str] | None,
    *,
    unit: str,
    window: str,
    kind: str | None = None,
) -> bool:
    """Return whether values of two stored runs may be compared.

    ``unit`` is the unit of the values. ``window`` is in gate-file syntax, and may end in a kind of steps.
    """
    compared_kind = kind or next((word for word in window.split() if word in STEP_KIND_NAMES), None)
    return not find_differences(current, baseline, compared_fields) and not (
        unit == TIME and find_work_difference(current, baseline, compared_kind, compared_fields)
    )


def find_all_differences(
    current: Mapping[str, Any], baseline: Mapping[str, Any], compared_fields: Collection[str] | None = None
) -> tuple[Difference, ...]:
    """Return every circumstance in which two runs differ, and for each kind of step that both have, how its work
    differs.
    """
    kinds = sorted({*_parse_kind_work(current.get(KIND_WORK))} & {*_parse_kind_work(baseline.get(KIND_WORK))})
    work_differences = (
        difference for kind in kinds for difference in find_work_difference(current, baseline, kind, compared_fields)
    )
    return (*find_differences(current, baseline, compared_fields), *work_differences)


class _StepKindWork(NamedTuple):
    """Holds the share of a kind in percent and the mean tokens of its steps, and the text that says both."""

    share_percent: int
    tokens: Fraction
    text: str

    def is_other(self, baseline: _StepKindWork) -> bool:
        other_tokens = abs(self.tokens - baseline.tokens) > MOST_OTHER_WORK * max(self.tokens, baseline.tokens)
        return other_tokens or abs(self.share_percent - baseline.share_percent) > 100 * MOST_OTHER_WORK


def _parse_kind_work(work_lines: object) -> Mapping[str, list[_StepKindWork]]:
    """Parse the lines of ``StepsByKind.describe_work`` into entries by kind of step: one for each different line."""
    works: dict[str, list[_StepKindWork]] = {}
    for line in work_lines if isinstance(work_lines, list | tuple) else ():
        match = re.fullmatch(
            r"(\w+): (([0-9]{1,3})% of the steps(?:, ([0-9]{1,18}(?:\.[0-9])?) tokens each)?)", str(line)
        )
        if match is not None:
            works.setdefault(match[1], []).append(_StepKindWork(int(match[3]), Fraction(match[4] or 0), match[2]))
    return works


def list_agreeing_fields(
    differences: Iterable[Difference], compared_fields: Collection[str] | None = None
) -> list[str]:
    """List the compared fields without those that differ: the ``comparable_on`` that lets them differ.

    Empty if no field is to blame, or if none would be left: an empty ``comparable_on`` is a mistake.
    """
    names = {
        difference.name if difference.name in FIELDS else KIND_WORK
        for difference in differences
        if difference.name in _COMPARED_NAMES
    }
    return [
        field
        for field in FIELDS
        if names and (compared_fields is None or field in compared_fields) and field not in names
    ]


_COMPARED_NAMES = {*FIELDS, *STEP_KIND_NAMES}
"""Names of differences that a gate file may leave out; other work bears the name of its kind."""


def find_convention_difference(gate: GateFile) -> tuple[Difference, ...]:
    """Return, as a difference, that the run alone would be read under another convention than the one found for it."""
    is_compared = gate.comparable_on is None or "convention" in gate.comparable_on
    if not is_compared or gate.found_convention is None or gate.found_convention.run_convention == gate.convention:
        return ()
    return (
        Difference(
            "convention",
            _describe_read_convention(gate.found_convention.run_convention),
            _describe_read_convention(gate.resolved_convention),
        ),
    )


def _describe_read_convention(convention: Convention) -> str:
    return f"{describe_convention(convention)}, span {convention.span}, kernels {convention.kernels}"


def describe_differences(differences: Iterable[Difference], other_side: str = "baseline") -> str:
    """Return differences in one line; empty where there are none."""
    return "; ".join(
        f"{difference.name}: now {difference.current}, {other_side} {difference.baseline}" for difference in differences
    )


def format_circumstance(value: object) -> str:
    """Return the value of a circumstance as text."""
    if isinstance(value, Mapping):
        return sanitize_line(" ".join(f"{key}={item}" for key, item in value.items()))
    if isinstance(value, list | tuple):
        return sanitize_line(", ".join(map(str, value)))
    return "not stated" if value is None else sanitize_line(str(value))
