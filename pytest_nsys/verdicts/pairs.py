"""Two runs that are compared: under which convention are they read, and what judges them where no gate file does?"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_nsys.analysis.capture_cache import CaptureCache, Files
from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.fitting import GENERIC, Choice
from pytest_nsys.analysis.measurements import Measurements
from pytest_nsys.analysis.metrics import METRICS, Bounds, measured
from pytest_nsys.analysis.windows import MEDIAN, RUN
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import NsysError, naming
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.gates import gate_file
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import FromBaseline, GateFile, Location, Requirement, Severity, requests_of
from pytest_nsys.gates.sentences import Subject, asserted
from pytest_nsys.verdicts.references import OtherRun
from pytest_nsys.verdicts.resolving import resolved

BUILT_IN_PATH = Path(gate_file.__file__).with_name("default.nsys.yaml")
BUILT_IN_GATE = "built-in gate"
"""What stands for the name of the gate file that the package brings along."""
WITH_BARRIERS = ("wall_overlap_all", "wall_exposed_all_ns")


@dataclass(frozen=True)
class TwoRuns:
    """The captures of base and head as they were given, and the files of measurements beside each. ``anchor`` is the
    pattern of one that a person named.
    """

    cache: CaptureCache
    base: Sequence[str]
    head: Sequence[str]
    measurements: tuple[Files, Files] = ((), ())
    anchor: str | None = None

    def under(self, gate: GateFile) -> OtherRun:
        """Both under the convention of a gate file, which is that of base where none is named; an error names its side.

        Raises as opening the captures does.
        """
        if gate.convention is None and not (self.base or self.head):  # measurements alone are read under none
            gate = replace(gate, convention=GENERIC)
        gate = resolved(gate, lambda: self._fitting("head").convention, lambda: self._fitting("base").convention)
        base, head = (self._opened(side, gate) for side in ("base", "head"))
        return OtherRun(head, gate, base, "base", partly=True)

    def _opened(self, side: str, gate: GateFile) -> Captures:
        beside = self.measurements[side == "head"]
        with naming(side):
            convention, requests = gate.resolved_convention, requests_of(gate)
            return self.cache.captures(getattr(self, side), Path(), convention, gate.workload, requests, beside)

    def _fitting(self, side: str) -> Choice:
        with naming(side):
            return self.cache.fitting(getattr(self, side), Path(), self.anchor)

    def usual_gate(
        self,
        convention: Convention | None,
        window: str | None = None,
        span: Span | None = None,
        kernels: KernelsMode | None = None,
    ) -> GateFile:
        """The built-in assertions, measured in a certain way, and one for each name that both sides measured.

        Without a ``window`` it is the median one, or the whole run where the convention is to be found and no range
        repeats. Raises TraceError.
        """
        if window is None:
            window = MEDIAN if convention is not None or self._fitting("base").anchored else RUN
        name = Path(BUILT_IN_GATE)
        built_in = load_gate_file(BUILT_IN_PATH, display=name)
        of_trace = built_in.assertions if self.base or self.head else ()
        own = tuple(replace(a, window=window, span=span, kernels=kernels) for a in of_trace)
        # A look at two runs that somebody has: what they lack is a warning, as in every command.
        quality = Bounds(missing_ranks=None, anchors=None)
        gate = GateFile(name, own, convention, quality=quality, window=window, span=span, kernels=kernels)
        if own and not self._shares_streams(gate):
            own = tuple(assertion for assertion in own if assertion.metric not in WITH_BARRIERS)
            gate = replace(gate, assertions=own)
        if not all(self.measurements):
            return gate
        before, now = (Measurements(files[0]) for files in self.measurements)
        require = Requirement(None, FromBaseline(built_in.tolerance), "within the built-in tolerance of baseline")
        held = [
            replace(
                asserted(Subject(measured(name)), require, measured(name).name, Location(gate.path, 1, 1), gate),
                # What is better neither higher nor lower is told where it moves, and not worse by that.
                severity=Severity.FAIL if now.kind(name).better else Severity.WARN,
            )
            for name in now.names
            if name in before.names
        ]
        return replace(gate, assertions=(*own, *held))

    def _shares_streams(self, gate: GateFile) -> bool:
        """Whether communication runs on a stream that computes, on either side: else WITH_BARRIERS say nothing more."""
        with contextlib.suppress(NsysError):  # who judges it is told
            pair = self.under(gate)
            spec = pair.captures.spec(gate.window, gate.span, gate.kernels)
            barriers = (side.rows(METRICS["barrier_ns"], spec) for side in (pair.before, pair.captures))
            return any(value for table in barriers for _, value in table.rows)
        return False
