"""The library as fixtures: the run that pytest was told of, and a red test where a sentence does not hold."""

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
    """The run under test under one convention (the one that it fits unless ``under`` says otherwise).

    ``explain`` makes of an error the text that a person gets.
    """

    explain: Callable[[NsysError], str] = str

    @classmethod
    def of(cls, config: pytest.Config) -> RunUnderTest:
        """The run that the options and the ini file name."""
        session = session_of(config)
        found = cls(session.captures, None, resolve=session.resolved, paths=given(config, "nsys_trace") or ())
        found.explain = session.explain_error
        return found

    def under(self, convention: Named, anchor: Anchor | None = None) -> Self:
        found = super().under(convention, anchor)
        found.explain = self.explain
        return found

    @property
    def captures(self) -> Captures:
        """The opened captures; a trace that cannot be opened fails the test by one line, and where none is given it is
        skipped.
        """
        try:
            return super().captures
        except NoTraceGiven as nothing:
            raise NotRun(str(nothing)) from None
        except NsysError as error:
            raise pytest.fail.Exception(self.explain(error), pytrace=False) from None

    def rows(self, metric: str, **asked: Any) -> list[MetricRow]:
        """As of any run; where there is nothing to judge, or the trace cannot be judged, the test fails."""
        __tracebackhide__ = True
        try:
            return super().rows(metric, **asked)
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
        """The verdict of ``sentence``, where it is good.

        ``gate_file`` (of a matrix one configuration, ``step.nsys.yaml[llama-8b]``) lends its convention, window,
        tolerance and baselines; without one only constants are judged, under ``convention`` (default: the one that the
        run fits), with another ``anchor`` where one is given. A relative path is relative to the root directory.
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
            failed = verdict.outcome in (Outcome.FAILED, Outcome.ACCEPTED, Outcome.IMPROVED)
            steps = [Step(verdict.next_step)] if verdict.next_step else []
            told = record_of(verdict).verdict
            lines = [reason_words(verdict), f"nsys_gate: {sentence}", *explanation(told, steps)]
            raise (GateFailed if failed else GateNotJudged)("\n".join(lines))
        for text in verdict.warnings:
            warnings.warn(NsysWarning(f"{sentence}: {text}"), stacklevel=2)
        return verdict

    def _gate(
        self, gate_file: str | os.PathLike[str] | None, convention: Named | None, anchor: Anchor | None
    ) -> GateFile:
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
