"""Which fixtures does the plugin provide? The run under test, and a judge of sentences that makes a test fail."""

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
from pytest_nsys.core.model import NextStep
from pytest_nsys.gates.convention_keys import ConventionSource, load_convention
from pytest_nsys.gates.gate_file import load_configuration
from pytest_nsys.gates.hiccups import leave_out_hiccup
from pytest_nsys.gates.model import GateFile, Outcome, Verdict
from pytest_nsys.library import MetricRow, NsysRun, build_assertion
from pytest_nsys.outcomes import GateFailed, GateNotJudged, NotRun, NsysWarning
from pytest_nsys.plugin.session import get_nsys_session
from pytest_nsys.plugin.settings import read_setting
from pytest_nsys.reports.session.record import make_record
from pytest_nsys.reports.words.verdict_text import describe_reason, render_explanation
from pytest_nsys.verdicts.evaluate import GateContext, evaluate


class RunUnderTest(NsysRun):
    """The run under test, read with one convention: the one that it fits, unless ``under`` sets another."""

    explain_error: Callable[[NsysError], str] = str

    @classmethod
    def from_config(cls, config: pytest.Config) -> RunUnderTest:
        """Return the run that the options and the ini file name."""
        session = get_nsys_session(config)
        run = cls(
            session.open_captures, None, resolve=session.resolve_gate, paths=read_setting(config, "nsys_trace") or ()
        )
        run.explain_error = session.explain_error
        return run

    def under(self, convention: ConventionSource, anchor: Anchor | None = None) -> Self:
        run = super().under(convention, anchor)
        run.explain_error = self.explain_error
        return run

    @property
    def captures(self) -> Captures:
        """Return the opened captures.

        A trace that cannot be opened fails the test with a one-line message; without a trace the test is skipped.
        """
        try:
            return super().captures
        except NoTraceGiven as nothing:
            raise NotRun(str(nothing)) from None
        except NsysError as error:
            raise pytest.fail.Exception(self.explain_error(error), pytrace=False) from None

    def rows(self, metric: str, **selectors: Any) -> list[MetricRow]:
        """Return rows like :meth:`NsysRun.rows`. Raises GateNotJudged if there are none, pytest's Failed if the trace
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
            raise pytest.fail.Exception(self.explain_error(error), pytrace=False) from None


class NsysGate:
    """Judges sentences: ``nsys_gate("stage3 overlap >= 60%")`` raises GateFailed if the sentence does not hold."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __call__(
        self,
        sentence: str,
        gate_file: str | os.PathLike[str] | None = None,
        *,
        convention: ConventionSource | None = None,
        anchor: Anchor | None = None,
    ) -> Verdict:
        """Judge ``sentence`` and return its verdict if it is good.

        ``gate_file`` (with a matrix: one configuration, ``step.nsys.yaml[llama-8b]``) provides convention, window,
        tolerance and baselines. Without one only constants are judged, with ``convention`` (default: the one that the
        run fits), whose anchor ``anchor`` replaces. A relative path is relative to pytest's root directory.

        Raises GateFailed if the sentence does not hold, GateNotJudged if it cannot be judged.
        """
        __tracebackhide__ = True
        session, gate = get_nsys_session(self._config), self._load_gate(gate_file, convention, anchor)
        assertion = build_assertion(sentence, gate)
        if assertion.needs_baseline and gate_file is None:
            raise ArgumentMistake("a baseline belongs to a gate file: nsys_gate(sentence, gate_file=…)")
        try:
            if gate_file is not None:
                context = session.get_context(gate)
            else:
                gate = session.resolve_gate(gate, anchor)
                context = GateContext(leave_out_hiccup(session.open_captures(gate), gate), gate)
            verdict = evaluate(assertion, context)
        except NoTraceGiven as nothing:
            raise NotRun(str(nothing)) from None
        except NsysError as error:
            raise pytest.fail.Exception(f"{sentence}\n  error: {session.explain_error(error)}", pytrace=False) from None
        if not verdict.good:
            has_failed = verdict.outcome in (Outcome.FAILED, Outcome.ACCEPTED, Outcome.IMPROVED)
            steps = [NextStep(verdict.next_step)] if verdict.next_step else []
            record_verdict = make_record(verdict).verdict
            lines = [describe_reason(verdict), f"nsys_gate: {sentence}", *render_explanation(record_verdict, steps)]
            raise (GateFailed if has_failed else GateNotJudged)("\n".join(lines))
        for text in verdict.warnings:
            warnings.warn(NsysWarning(f"{sentence}: {text}"), stacklevel=2)
        return verdict

    def _load_gate(
        self, gate_file: str | os.PathLike[str] | None, convention: ConventionSource | None, anchor: Anchor | None
    ) -> GateFile:
        """Return the gate file that provides baselines and convention; without one, an empty gate file with
        ``convention``.
        """
        if gate_file is None:
            return GateFile(self._config.rootpath, (), load_convention(convention, anchor))
        if convention is not None or anchor is not None:
            raise ArgumentMistake("the gate file says the convention: give gate_file=, or convention= and anchor=")
        try:
            gate = load_configuration(Path(self._config.rootpath, gate_file))
            get_nsys_session(self._config).sources.configuration_names.update(gate.configuration_names)
            return gate
        except GateFileError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
