"""How does a plain pytest run judge by the merge base? With one extra test, whatever the branch collects, selects or
deselects.

The judge starts before any conftest.py is loaded and runs in parallel to the session. After all other tests its verdict
is reported as a separate test, independent of collection, selection and xdist workers. Code of the branch in this
process could still change the report; ``pytest-nsys baseline judge`` runs no such code.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.text_format import shorten_paths
from pytest_nsys.merge_base.base_verdict import TITLE, BaseVerdict, build_broken_verdict
from pytest_nsys.merge_base.judge_process import JudgeProcess, JudgeRequest, start_judge
from pytest_nsys.outcomes import GateFailed, NsysWarning
from pytest_nsys.plugin.settings import format_whole_options, install

MERGE_BASE_PLUGIN = "nsys-merge-base"
NODE_ID = f"nsys::{TITLE}"
REF_SETTING = "nsys_baseline_ref"
# The configuration says that it is a worker only after conftest files are loaded, so the variable is used.
WORKER_VARIABLE = "PYTEST_XDIST_WORKER"
"""The environment variable that xdist sets in its workers."""

NO_TEST_OPTIONS = ("help", "version", "collectonly", "nsys_update_baselines", "nsys_against")
"""Options with which no test runs, or which cannot be combined with a ref."""

GREEN_OR_EMPTY = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
_JUDGE = pytest.StashKey[JudgeProcess | BaseVerdict]()
_TYPED = pytest.StashKey[Any]()
"""The typed options, read before any conftest.py."""


def start_before_conftests(config: pytest.Config, parser: pytest.Parser) -> None:
    """Start the judge for the typed ref. Raises pytest.UsageError for a ref from an ini file."""
    typed_options = parser.parse_known_args(
        [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    )
    ref: str | None = typed_options.nsys_baseline_ref
    if ref is None or config.getini(REF_SETTING):
        raise pytest.UsageError(
            f"{REF_SETTING} in an ini file protects nobody, as a branch writes its own: take it out, and type "
            "--nsys-baseline-ref=REF"
        )
    config.stash[_TYPED] = typed_options
    if WORKER_VARIABLE not in os.environ and not any(getattr(typed_options, name, None) for name in NO_TEST_OPTIONS):
        _start_judge(config, typed_options)


def _start_judge(config: pytest.Config, typed_options: Any) -> None:
    """Start the judge, or keep a verdict that says why it cannot start."""
    start_folder = config.invocation_params.dir
    paths = [word.partition("::")[0] for word in typed_options.file_or_dir or ()]
    request = JudgeRequest(
        typed_options.nsys_baseline_ref,
        start_folder,
        paths=[path for path in paths if not typed_options.pyargs or (start_folder / path).exists()],
        options=[*format_whole_options(vars(typed_options), start_folder)],
        baseline_dir=typed_options.nsys_baseline_dir,
        ini_file=typed_options.inifilename,
    )
    try:
        judge = start_judge(request)
    except BaselineError as error:
        config.stash[_JUDGE] = build_broken_verdict(shorten_paths(str(error), start_folder, config.rootpath))
    else:
        config.stash[_JUDGE] = judge
        config.add_cleanup(judge.stop)


def start(config: pytest.Config) -> None:
    """Let the merge base's verdict be reported, once per session: under xdist by the controller."""
    if hasattr(config, "workerinput"):
        return
    if _JUDGE not in config.stash:
        if any(config.getoption(name, default=None) for name in NO_TEST_OPTIONS):  # as typed: addopts are the branch's
            return
        _start_judge(config, config.stash[_TYPED])  # not config.option, which a conftest.py may have changed
    install(config, MergeBaseGate(config), MERGE_BASE_PLUGIN)


def find_base_verdict(config: pytest.Config) -> BaseVerdict | None:
    """Return the merge base's verdict in this session; None if it is not requested or not known yet."""
    gate = config.pluginmanager.get_plugin(MERGE_BASE_PLUGIN)
    return gate.verdict if isinstance(gate, MergeBaseGate) else None


@dataclass(eq=False)
class MergeBaseGate:
    """A pytest plugin that waits for the judge and reports its verdict."""

    config: pytest.Config
    verdict: BaseVerdict | None = field(default=None, init=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Report after all other tests, even if the session was aborted."""
        # Registered last, so it wraps the hooks of every conftest.py and sees what they set.
        self.config.pluginmanager.register(ExitStatusPlugin(self), f"{MERGE_BASE_PLUGIN}-exit-status")
        session.testscollected += session.testscollected > 0  # for the percentages; 0 stays, so that pytest reports it
        collected_count = session.testscollected
        try:
            result = yield
        except (Exception, session.Interrupted):  # the latter if a file cannot be collected
            self._report_verdict()
            raise
        if session.testscollected != collected_count:  # xdist has counted its workers' items
            session.testscollected += 1
        self._report_verdict()
        return result

    def _report_verdict(self) -> None:
        """Wait for the verdict, and report it like a test."""
        judge = self.config.stash[_JUDGE]
        try:
            self.verdict = judge if isinstance(judge, BaseVerdict) else judge.wait()
        except BaselineError as error:
            self.verdict = build_broken_verdict(str(error))
        failure = self._build_failure(self.verdict)
        location, hook = ("", 0, TITLE), self.config.hook
        hook.pytest_runtest_logstart(nodeid=NODE_ID, location=location)
        for phase in ("setup", "call", "teardown"):
            phase_failure = failure if phase == "call" else None
            report = pytest.TestReport(
                NODE_ID,
                location,
                {"nsys": 1},
                "failed" if phase_failure is not None else "passed",
                phase_failure,
                phase,
            )
            report.nsys_merge_base = self.verdict  # type: ignore[attr-defined]
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=NODE_ID, location=location)

    def _build_failure(self, verdict: BaseVerdict) -> Any:
        """Return what pytest shows for a failed verdict; None if it has not failed."""
        lines = [*verdict.render_lines()]
        try:
            for warning_text in verdict.accepted_texts:
                self.config.issue_config_time_warning(NsysWarning(f"{TITLE}: {warning_text}"), 2)
            if verdict.is_red:
                raise GateFailed("\n".join(lines))
        except (GateFailed, NsysWarning) as error:  # the latter under -W error
            representation = pytest.ExceptionInfo.from_exception(error).getrepr(style="value")
            if (crash := getattr(representation, "reprcrash", None)) is not None:
                crash.message = str(error).partition("\n")[0]
            return representation
        return None


@dataclass(eq=False)
class ExitStatusPlugin:
    """A pytest plugin that sets the exit status last: a failure at the merge base is a failure of the session."""

    gate: MergeBaseGate

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        verdict = self.gate.verdict
        if verdict is not None and verdict.is_red and session.exitstatus in GREEN_OR_EMPTY:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
