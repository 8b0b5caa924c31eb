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
from typing import Any

from pytest_nsys.core.conventions import Convention, convention_words
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import Difference, GateFile

KEY_FIELDS = ("convention", "mesh", "micro_batch", "sequence_length", "world", "gpu")
FACT_FIELDS = (
    *("steps", "stated_steps", "gpus", "launcher", "anchor", "profiler"),
    *("pipeline", "blocks", "batch", "peak"),
)
KIND_WORK = "kind_work"
"""What an engine did: compared, within ALIKE, for times of a kind alone."""

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


ALIKE = Fraction(10, 100)
"""Of the steps, and of the tokens of a step: by no more an engine's work may differ."""


def other_work(
    now: Mapping[str, Any], was: Mapping[str, Any], kind: str | None, on: Collection[str] | None = None
) -> tuple[Difference, ...]:
    """Return how the steps of a kind have other work, or another share of all steps; nothing where a side does not say,
    or no kind is asked for.
    """
    sides = [_work_of(side.get(KIND_WORK), kind) for side in (now, was)]
    if kind is None or (on is not None and KIND_WORK not in on) or None in sides:
        return ()
    (share, tokens, words), (old_share, old_tokens, old_words) = (side for side in sides if side is not None)
    apart = abs(share - old_share) > 100 * ALIKE or abs(tokens - old_tokens) > ALIKE * max(tokens, old_tokens)
    return (Difference(kind, words, old_words),) if apart else ()


def _work_of(said: object, kind: str | None) -> tuple[int, Fraction, str] | None:
    """The share of a kind in percent and its tokens, as ``RunSteps.work_words`` has them, and in words."""
    for line in said if isinstance(said, list | tuple) else ():
        found = re.fullmatch(
            r"(\w+): (([0-9]{1,3})% of the steps(?:, ([0-9]{1,18}(?:\.[0-9])?) tokens each)?)", str(line)
        )
        if found is not None and found[1] == kind:
            return int(found[3]), Fraction(found[4] or 0), found[2]
    return None


def found_otherwise(gate: GateFile) -> tuple[Difference, ...]:
    """That the run alone would be read under another convention than the one that was found for it."""
    asked = gate.comparable_on is None or "convention" in gate.comparable_on
    if not asked or gate.found is None or gate.found.alone in (None, gate.convention):
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
