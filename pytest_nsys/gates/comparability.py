"""Are two runs comparable (R0)? Every circumstance in which they differ is named; none is passed over quietly.

The key of a run (convention, mesh, world size, micro-batch, sequence length, GPU model) names its baseline file: what a
trace does not say is equal only to what another does not say. The facts (steps, those that are stated, GPUs,
launcher, anchor names, the profiler's major version, the stated pipeline and blocks) are stored in the file, and
compared where both sides know them. A gate file may narrow the list on purpose with ``comparable_on``.
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
"""What an engine did: compared, within MOST_OTHER_WORK, for times of a kind alone."""

FIELDS = (*KEY_FIELDS, *FACT_FIELDS, KIND_WORK)
"""What a gate file may name under ``comparable_on``."""


def differences(
    now: Mapping[str, Any], was: Mapping[str, Any], on: Collection[str] | None = None
) -> tuple[Difference, ...]:
    """The circumstances that differ, of those that are compared ``on`` (None: all), in the order of ``FIELDS``."""
    found = []
    for name in [f for f in FIELDS if f != KIND_WORK and (on is None or f in on)]:
        a, b = now.get(name), was.get(name)
        unknown = name in FACT_FIELDS and (a is None or b is None)
        if a != b and not unknown:
            found.append(Difference(name, shown(a), shown(b)))
    return tuple(found)


MOST_OTHER_WORK = Fraction(10, 100)
"""Of the steps, and of the tokens of a step: by no more an engine's work may differ."""


def other_work(
    now: Mapping[str, Any], was: Mapping[str, Any], kind: str | None, on: Collection[str] | None = None
) -> tuple[Difference, ...]:
    """Return how the steps of a kind have other work, or another share of all steps, in any capture of either side.

    Without a kind it is that of all steps, where they are of one. Nothing where a side does not say.
    """
    if on is not None and KIND_WORK not in on:
        return ()
    works = [_works(side.get(KIND_WORK)) for side in (now, was)]
    if kind is None and len(kinds := {*works[0], *works[1]}) == 1:
        (kind,) = kinds
    if kind is None:
        return ()
    pairs = product(*(each.get(kind, ()) for each in works))
    return next(((Difference(kind, own.words, old.words),) for own, old in pairs if own.is_other(old)), ())


def are_alike(
    now: Mapping[str, Any],
    was: Mapping[str, Any],
    on: Collection[str] | None,
    *,
    unit: str,
    window: str,
    kind: str | None = None,
) -> bool:
    """Return whether values of two stored runs may be compared, in a unit and of a window as a gate file or a series
    names it, which may end in a kind of steps.
    """
    asked = kind or next((word for word in window.split() if word in KIND_WORDS), None)
    return not differences(now, was, on) and not (unit == TIME and other_work(now, was, asked, on))


def all_differences(
    now: Mapping[str, Any], was: Mapping[str, Any], on: Collection[str] | None = None
) -> tuple[Difference, ...]:
    """Return the circumstances that differ, and the other work of every kind that both sides have steps of."""
    kinds = sorted({*_works(now.get(KIND_WORK))} & {*_works(was.get(KIND_WORK))})
    other = (difference for kind in kinds for difference in other_work(now, was, kind, on))
    return (*differences(now, was, on), *other)


class _Work(NamedTuple):
    """The share of a kind in percent and the mean tokens of its steps, and both in words."""

    share: int
    tokens: Fraction
    words: str

    def is_other(self, old: _Work) -> bool:
        other_tokens = abs(self.tokens - old.tokens) > MOST_OTHER_WORK * max(self.tokens, old.tokens)
        return other_tokens or abs(self.share - old.share) > 100 * MOST_OTHER_WORK


def _works(said: object) -> Mapping[str, list[_Work]]:
    """What ``RunSteps.work_words`` says, by kind, once for each capture that says something else."""
    found: dict[str, list[_Work]] = {}
    for line in said if isinstance(said, list | tuple) else ():
        words = re.fullmatch(
            r"(\w+): (([0-9]{1,3})% of the steps(?:, ([0-9]{1,18}(?:\.[0-9])?) tokens each)?)", str(line)
        )
        if words is not None:
            found.setdefault(words[1], []).append(_Work(int(words[3]), Fraction(words[4] or 0), words[2]))
    return found


def agreeing_fields(differing: Iterable[Difference], on: Collection[str] | None = None) -> list[str]:
    """Return all that must agree but what differs: by these fields, named by a gate file or a command, it need not.

    None where no field says so, and where none would be left: an empty list is a mistake.
    """
    names = {each.name if each.name in FIELDS else KIND_WORK for each in differing if each.name in _COMPARED}
    return [field for field in FIELDS if names and (on is None or field in on) and field not in names]


_COMPARED = {*FIELDS, *KIND_WORDS}
"""What differs by these names a gate file may leave out; of other work the name is that of the kind."""


def found_otherwise(gate: GateFile) -> tuple[Difference, ...]:
    """That the run alone would be read under another convention than the one that was found for it."""
    asked = gate.comparable_on is None or "convention" in gate.comparable_on
    if not asked or gate.found is None or gate.found.alone == gate.convention:
        return ()
    return (Difference("convention", _words(gate.found.alone), _words(gate.resolved_convention)),)


def _words(convention: Convention) -> str:
    return f"{convention_words(convention)}, span {convention.span}, kernels {convention.kernels}"


def told(found: Iterable[Difference], other: str = "baseline") -> str:
    """Differences in words; empty where there are none."""
    return "; ".join(f"{d.name}: now {d.now}, {other} {d.baseline}" for d in found)


def shown(value: object) -> str:
    """A circumstance in words."""
    if isinstance(value, Mapping):
        return printable(" ".join(f"{k}={v}" for k, v in value.items()))
    if isinstance(value, list | tuple):
        return printable(", ".join(map(str, value)))
    return "not stated" if value is None else printable(str(value))
