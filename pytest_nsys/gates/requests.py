"""What is an assertion judged on, and what does a gate file ask of a run?"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_nsys.analysis.reading_plan import Request
from pytest_nsys.analysis.windows import WindowSpec, spec_under
from pytest_nsys.core.conventions import Convention
from pytest_nsys.gates.assertion import Assertion, GateFile


def spec_for(convention: Convention, assertion: Assertion) -> WindowSpec:
    """What the assertion is judged on."""
    return spec_under(convention, assertion.window, assertion.span, assertion.kernels)


def request_of(gate: GateFile, assertion: Assertion) -> Request:
    """What one assertion of a gate file asks of a run."""
    return Request(assertion.metric, spec_for(gate.convention, assertion), gate.quality)


def requests_of(gate: GateFile, assertions: Iterable[Assertion] | None = None) -> list[Request]:
    """What the assertions of a gate file, all by default, will ask of a run."""
    chosen = gate.assertions if assertions is None else assertions
    return [request_of(gate, each) for each in chosen]
