"""Are two runs comparable (R0), and in which circumstances do they differ?

Every such circumstance is named; none is passed over quietly. The key of a run (convention, mesh, world size,
micro-batch, sequence length, GPU model) names its baseline file: what a trace does not say is equal only to what
another does not say. The facts (steps, those that are stated, GPUs, launcher, anchor names, the profiler's major
version, the stated pipeline and blocks) are stored in the file, and compared where both sides know them. A gate file
may narrow the list on purpose with ``comparable_on``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from pytest_nsys.core.conventions import KIND_WORDS, Convention, convention_words
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import printable
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


def differences(
    now: Mapping[str, Any], was: Mapping[str, Any], on: Collection[str] | None = None
) -> tuple[Difference, ...]:
    """Return the circumstances that differ, of ``compared_fields`` (None: all), in the order of ``FIELDS``."""
    circumstances = []
    for name in [field for field in FIELDS if field != KIND_WORK and (on is None or field in on)]:
        current_value, baseline_value = now.get(name), was.get(name)
        is_unknown = name in FACT_FIELDS and (current_value is None or baseline_value is None)
        if current_value != baseline_value and not is_unknown:
            circumstances.append(Difference(name, shown(current_value), shown(baseline_value)))
    return tuple(circumstances)


MOST_OTHER_WORK = Fraction(10, 100)
"""By how much an engine's work may differ, in its share of the steps and in the tokens of a step."""


def other_work(
    now: Mapping[str, Any], was: Mapping[str, Any], kind: str | None, on: Collection[str] | None = None
) -> tuple[Difference, ...]:
    """Return how the steps of a kind have other work, or another share of all steps, in any capture of either side.

    Without a kind it is that of all steps, where they are of one. Empty where a side does not say.
    """
    if on is not None and KIND_WORK not in on:
        return ()
    works = [_works(side.get(KIND_WORK)) for side in (now, was)]
    if kind is None and len(kinds := {*works[0], *works[1]}) == 1:
        (kind,) = kinds
    if kind is None:
        return ()
    pairs = product(*(works_of_side.get(kind, ()) for works_of_side in works))
    return next(
        (
            (Difference(kind, current_work.words, baseline_work.words),)
            for current_work, baseline_work in pairs
            if current_work.is_other(baseline_work)
        ),
        (),
    )


def are_alike(
    now: Mapping[str, Any],
    was: Mapping[str, Any],
    on: Collection[str] | None,
    *,
    unit: str,
    window: str,
    kind: str | None = None,
) -> bool:
    """Return whether values of two stored runs may be compared.

    ``unit`` is that of the values. ``window`` is named as a gate file or a series has it, and may end in a kind of
    steps.
    """
    compared_kind = kind or next((word for word in window.split() if word in KIND_WORDS), None)
    return not differences(now, was, on) and not (unit == TIME and other_work(now, was, compared_kind, on))


def all_differences(
    now: Mapping[str, Any], was: Mapping[str, Any], on: Collection[str] | None = None
) -> tuple[Difference, ...]:
    """Return the circumstances that differ, and the other work of every kind that both sides have steps of."""
    kinds = sorted({*_works(now.get(KIND_WORK))} & {*_works(was.get(KIND_WORK))})
    work_differences = (difference for kind in kinds for difference in other_work(now, was, kind, on))
    return (*differences(now, was, on), *work_differences)


class _Work(NamedTuple):
    """Holds the share of a kind in percent and the mean tokens of its steps, and the text that says both."""

    share: int
    tokens: Fraction
    words: str

    def is_other(self, old: _Work) -> bool:
        other_tokens = abs(self.tokens - old.tokens) > MOST_OTHER_WORK * max(self.tokens, old.tokens)
        return other_tokens or abs(self.share - old.share) > 100 * MOST_OTHER_WORK


def _works(said: object) -> Mapping[str, list[_Work]]:
    """Parse the lines of ``RunSteps.describe_work``, by kind, one entry for each capture that says something else."""
    works: dict[str, list[_Work]] = {}
    for line in said if isinstance(said, list | tuple) else ():
        match = re.fullmatch(
            r"(\w+): (([0-9]{1,3})% of the steps(?:, ([0-9]{1,18}(?:\.[0-9])?) tokens each)?)", str(line)
        )
        if match is not None:
            works.setdefault(match[1], []).append(_Work(int(match[3]), Fraction(match[4] or 0), match[2]))
    return works


def agreeing_fields(differing: Iterable[Difference], on: Collection[str] | None = None) -> list[str]:
    """List the fields that must agree without those that differ: what a gate file or a command names to let them
    differ.

    Empty where no field is to blame, and where none would be left: an empty list is a mistake.
    """
    names = {
        difference.name if difference.name in FIELDS else KIND_WORK
        for difference in differing
        if difference.name in _COMPARED
    }
    return [field for field in FIELDS if names and (on is None or field in on) and field not in names]


_COMPARED = {*FIELDS, *KIND_WORDS}
"""Names of differences that a gate file may leave out; other work bears the name of its kind."""


def found_otherwise(gate: GateFile) -> tuple[Difference, ...]:
    """Return, as a difference, that the run alone would be read under another convention than the one found for it."""
    is_compared = gate.comparable_on is None or "convention" in gate.comparable_on
    if not is_compared or gate.found is None or gate.found.alone == gate.convention:
        return ()
    return (Difference("convention", _words(gate.found.alone), _words(gate.resolved_convention)),)


def _words(convention: Convention) -> str:
    return f"{convention_words(convention)}, span {convention.span}, kernels {convention.kernels}"


def told(found: Iterable[Difference], other: str = "baseline") -> str:
    """Return differences in one line; empty where there are none."""
    return "; ".join(f"{difference.name}: now {difference.now}, {other} {difference.baseline}" for difference in found)


def shown(value: object) -> str:
    """Return the value of a circumstance as text."""
    if isinstance(value, Mapping):
        return printable(" ".join(f"{key}={item}" for key, item in value.items()))
    if isinstance(value, list | tuple):
        return printable(", ".join(map(str, value)))
    return "not stated" if value is None else printable(str(value))
