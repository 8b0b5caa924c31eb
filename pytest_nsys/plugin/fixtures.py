"""The same judgement for Python tests: rows of any metric, and sentences judged by the gate's own rules."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.table import NothingSelected, Selector
from pytest_nsys.core.conventions import BUILT_IN, DEFAULT, Convention
from pytest_nsys.core.errors import GateFileError, NsysError
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import KernelsMode, Label, Span, Step, Value
from pytest_nsys.gates.absence import complete
from pytest_nsys.gates.assertion import Assertion, GateFile, Location
from pytest_nsys.gates.gate_file import known_axes, load_gate_file
from pytest_nsys.gates.judgement import lacking
from pytest_nsys.gates.limits import SentenceMistake
from pytest_nsys.gates.sentences import parse_sentence
from pytest_nsys.gates.verdict import Outcome, Verdict
from pytest_nsys.outcomes import GateFailed, GateNotJudged, NsysWarning
from pytest_nsys.plugin.session import session_of
from pytest_nsys.reports.text import explanation
from pytest_nsys.verdicts.evaluate import GateContext, evaluate


@dataclass(frozen=True)
class MetricRow:
    """One value with its dimensions: nanoseconds and counts are int, ratios are exact fractions."""

    labels: Mapping[str, Label]
    value: Value

    def __getitem__(self, dimension: str) -> Label:
        return self.labels[dimension]


class NsysRun:
    """The run under test under one convention (``pithtrain`` unless :meth:`under` says otherwise)."""

    def __init__(self, config: pytest.Config, convention: Convention) -> None:
        self._config, self.convention = config, convention

    @classmethod
    def of(cls, config: pytest.Config) -> NsysRun:
        """The run that the options and the ini file name."""
        return cls(config, BUILT_IN[DEFAULT])

    def under(self, convention: str | Convention) -> NsysRun:
        """The same run read with another convention: a built-in name, or one of your own."""
        if isinstance(convention, Convention):
            return NsysRun(self._config, convention)
        if convention not in BUILT_IN:
            raise ValueError(f"unknown convention {convention!r}{did_you_mean(convention, BUILT_IN)}")
        return NsysRun(self._config, BUILT_IN[convention])

    @property
    def captures(self) -> Captures:
        """The opened captures."""
        try:
            return session_of(self._config).captures(convention=self.convention)
        except NsysError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    def rows(
        self,
        metric: str,
        *,
        window: str = "median",
        span: Span | str | None = None,
        kernels: KernelsMode | str | None = None,
        allow_missing: Mapping[str, Collection[int]] | None = None,
        **where: Label | Sequence[Label],
    ) -> list[MetricRow]:
        """The rows of a metric, selected as a gate file would: ``stage="stage3"``, ``rank=[0, 1]``.

        Fails the test where a selector matches nothing, a row that not every capture has, or a rank has no row where
        others have one: a list that lacks rows would let a loop of assertions pass. ``allow_missing={"stage1_*": [0]}``
        names ranks that may lack stages.
        """
        __tracebackhide__ = True
        if metric not in METRICS:
            raise ValueError(f"unknown metric {metric!r}{did_you_mean(metric, METRICS)}")
        captures = self.captures
        spec = captures.spec(window, Span(span) if span else None, KernelsMode(kernels) if kernels else None)
        excused = {glob: frozenset(ranks) for glob, ranks in (allow_missing or {}).items()}
        selectors = {d: Selector(tuple(map(str, _listed(labels)))) for d, labels in where.items()}
        try:
            table = captures.rows(METRICS[metric], spec)
            if lost := lacking(table, selectors):
                raise NothingSelected(lost)
            return [MetricRow(labels, value) for labels, value in complete(table, selectors, excused)]
        except NothingSelected as nothing:
            raise GateNotJudged(f"{metric}: no data: {nothing}") from None
        except NsysError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None


def _listed(labels: Label | Sequence[Label]) -> Sequence[Label]:
    return [labels] if isinstance(labels, int | str) else labels


class NsysGate:
    """Judges sentences: ``nsys_gate("stage3 overlap >= 60%")``; raises GateFailed where one does not hold."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __call__(self, sentence: str, gate_file: str | Path | None = None) -> Verdict:
        """The verdict of ``sentence``, where it is good.

        ``gate_file`` lends its convention, window, tolerance and baselines; without one only constants are judged,
        under the default convention. A relative path is relative to the root directory.
        """
        __tracebackhide__ = True
        session = session_of(self._config)
        gate = self._gate(gate_file)
        assertion = self._assertion(sentence, gate)
        if assertion.needs_baseline and gate_file is None:
            raise ValueError("a baseline belongs to a gate file: nsys_gate(sentence, gate_file=…)")
        try:
            context = session.context(gate) if gate_file is not None else GateContext(session.captures(gate), gate)
            verdict = evaluate(assertion, context)
        except NsysError as error:
            raise pytest.fail.Exception(f"{sentence}\n  error: {error}", pytrace=False) from None
        if not verdict.good:
            failed = verdict.outcome in (Outcome.FAILED, Outcome.IMPROVED)
            steps = [Step(verdict.next_step)] if verdict.next_step else []
            lines = [f"nsys_gate: {sentence}", *explanation(verdict, steps)]
            raise (GateFailed if failed else GateNotJudged)("\n".join(lines))
        for text in verdict.warnings:
            warnings.warn(NsysWarning(f"{sentence}: {text}"), stacklevel=2)
        return verdict

    def _gate(self, gate_file: str | Path | None) -> GateFile:
        if gate_file is None:
            return GateFile(self._config.rootpath, (), BUILT_IN[DEFAULT])
        path = Path(self._config.rootpath, gate_file)
        try:
            return load_gate_file(path, METRICS)
        except GateFileError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    @staticmethod
    def _assertion(sentence: str, gate: GateFile) -> Assertion:
        try:
            axes = known_axes(gate.convention, gate.run)
            meant = parse_sentence(sentence, METRICS, axes=axes, tolerance=gate.tolerance)
        except SentenceMistake as mistake:
            raise ValueError(f"{sentence!r}, character {mistake.offset + 1}: {mistake}") from None
        return Assertion(
            name=sentence,
            sentence=sentence,
            location=Location(gate.path, 1, 1),
            metric=meant.metric,
            require=meant.require,
            where=meant.where,
            aggregates=meant.aggregates,
            balance_across=meant.balance_across,
            pipeline=meant.pipeline,
            window=gate.window,
            span=gate.span,
            kernels=gate.kernels,
            allow_missing=gate.allow_missing,
        )
