"""What do the tests of waivers share? A gate file with waivers on one assertion, loaded."""

from __future__ import annotations

from datetime import date

from pytest_nsys.gates.assertion import Assertion, GateFile
from tests.support.gate_files import loaded

MS = 1_000_000
ON_TIME = date(2026, 12, 31)
TOO_LATE = date(2027, 1, 1)
ENTRY = "ceiling: 3ms, expires: 2026-12-31, reason: a new driver, link: 'https://example.org/12'"
FOR = "assertions:\n- {id: a, assert: exposed_ns < 2ms, for: {stage: [stage2, stage4]}}\nwaivers:\n"


def load(text: str) -> GateFile:
    return loaded(f"version: 1\n{text}")


def assertion(*waivers: str, entry: str = "{id: gate, assert: exposed_ns < 2ms}") -> Assertion:
    written = "".join(f"- {{assertion: gate, {waiver}}}\n" for waiver in waivers)
    (found,) = load(f"assertions:\n- {entry}\nwaivers:\n{written}").assertions
    return found
