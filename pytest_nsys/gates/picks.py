"""What is an assertion judged on, and what does a gate file ask of a run?"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_nsys.analysis.reading_plan import Ask
from pytest_nsys.analysis.windows import Pick, pick_under
from pytest_nsys.core.conventions import Convention
from pytest_nsys.gates.assertion import Assertion, GateFile


def pick_for(convention: Convention, assertion: Assertion) -> Pick:
    """What the assertion is judged on."""
    return pick_under(convention, assertion.window, assertion.span, assertion.kernels)


def asks_of(gate: GateFile, assertions: Iterable[Assertion] | None = None) -> list[Ask]:
    """What the assertions of a gate file, all by default, will ask of a run."""
    chosen = gate.assertions if assertions is None else assertions
    return [Ask(each.metric, pick_for(gate.convention, each), gate.quality) for each in chosen]
