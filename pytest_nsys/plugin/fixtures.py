"""Which fixtures does pytest get? The run under test, and a judge of sentences that turns a test red."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.core.conventions import Anchor
from pytest_nsys.core.errors import ArgumentMistake, GateFileError, NoRows, NoTraceGiven, NsysError
from pytest_nsys.core.model import Step
from pytest_nsys.gates.convention_keys import Named, convention_of
from pytest_nsys.gates.gate_file import load_one
from pytest_nsys.gates.hiccups import leave_out_hiccup
from pytest_nsys.gates.model import GateFile, Outcome, Verdict
from pytest_nsys.library import MetricRow, NsysRun, assertion_of
from pytest_nsys.outcomes import GateFailed, GateNotJudged, NotRun, NsysWarning
from pytest_nsys.plugin.session import session_of
from pytest_nsys.plugin.settings import given
from pytest_nsys.reports.session.record import record_of
from pytest_nsys.reports.words.explanation import explanation, reason_words
from pytest_nsys.verdicts.evaluate import GateContext, evaluate


class RunUnderTest(NsysRun):
    """Gives tests the run under test under one convention: the one that it fits unless ``under`` says otherwise."""

    explain: Callable[[NsysError], str] = str

    @classmethod
    def of(cls, config: pytest.Config) -> RunUnderTest:
        """Return the run that the options and the ini file name."""
        session = session_of(config)
        run = cls(session.captures, None, resolve=session.resolved, paths=given(config, "nsys_trace") or ())
        run.explain = session.explain_error
        return run

    def under(self, convention: Named, anchor: Anchor | None = None) -> Self:
        run = super().under(convention, anchor)
        run.explain = self.explain
        return run

    @property
    def captures(self) -> Captures:
        """Return the opened captures.

        A trace that cannot be opened fails the test by one line; where none is given the test is skipped.
        """
        try:
            return super().captures
        except NoTraceGiven as nothing:
            raise NotRun(str(nothing)) from None
        except NsysError as error:
            raise pytest.fail.Exception(self.explain(error), pytrace=False) from None

    def rows(self, metric: str, **selectors: Any) -> list[MetricRow]:
        """Return the rows as of any run. Raises GateNotJudged where there is none, pytest's Failed where the trace
        cannot be read.
        """
        __tracebackhide__ = True
        try:
            return super().rows(metric, **selectors)
        except ArgumentMistake:
            raise
        except NoRows as nothing:
            raise GateNotJudged(str(nothing)) from None
        except NsysError as error:
            raise pytest.fail.Exception(self.explain(error), pytrace=False) from None


class NsysGate:
    """Judges sentences: ``nsys_gate("stage3 overlap >= 60%")``; raises GateFailed where one does not hold."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __call__(
        self,
        sentence: str,
        gate_file: str | os.PathLike[str] | None = None,
        *,
        convention: Named | None = None,
        anchor: Anchor | None = None,
    ) -> Verdict:
        """Judge ``sentence`` and return its verdict, where it is good.

        ``gate_file`` (of a matrix one configuration, ``step.nsys.yaml[llama-8b]``) lends its convention, window,
        tolerance and baselines; without one only constants are judged, under ``convention`` (default: the one that the
        run fits), with another ``anchor`` where one is given. A relative path is relative to the root directory.

        Raises GateFailed where the sentence does not hold, GateNotJudged where it cannot be judged.
        """
        __tracebackhide__ = True
        session, gate = session_of(self._config), self._gate(gate_file, convention, anchor)
        assertion = assertion_of(sentence, gate)
        if assertion.needs_baseline and gate_file is None:
            raise ArgumentMistake("a baseline belongs to a gate file: nsys_gate(sentence, gate_file=…)")
        try:
            if gate_file is not None:
                context = session.context(gate)
            else:
                gate = session.resolved(gate, anchor)
                context = GateContext(leave_out_hiccup(session.captures(gate), gate), gate)
            verdict = evaluate(assertion, context)
        except NoTraceGiven as nothing:
            raise NotRun(str(nothing)) from None
        except NsysError as error:
            raise pytest.fail.Exception(f"{sentence}\n  error: {session.explain_error(error)}", pytrace=False) from None
        if not verdict.good:
            has_failed = verdict.outcome in (Outcome.FAILED, Outcome.ACCEPTED, Outcome.IMPROVED)
            steps = [Step(verdict.next_step)] if verdict.next_step else []
            record_verdict = record_of(verdict).verdict
            lines = [reason_words(verdict), f"nsys_gate: {sentence}", *explanation(record_verdict, steps)]
            raise (GateFailed if has_failed else GateNotJudged)("\n".join(lines))
        for text in verdict.warnings:
            warnings.warn(NsysWarning(f"{sentence}: {text}"), stacklevel=2)
        return verdict

    def _gate(
        self, gate_file: str | os.PathLike[str] | None, convention: Named | None, anchor: Anchor | None
    ) -> GateFile:
        """Return the gate file that lends baselines and conventions; without one an empty gate file under the
        convention.
        """
        if gate_file is None:
            return GateFile(self._config.rootpath, (), convention_of(convention, anchor))
        if convention is not None or anchor is not None:
            raise ArgumentMistake("the gate file says the convention: give gate_file=, or convention= and anchor=")
        try:
            gate = load_one(Path(self._config.rootpath, gate_file))
            session_of(self._config).sources.names.update(gate.names)
            return gate
        except GateFileError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
