"""How does a plain pytest run judge by the merge base? By one test, whatever the branch collects, selects or leaves
out.

The judge starts before any conftest.py is loaded and runs beside the session. When all other tests are done its verdict
is reported as a test of its own: no collection, selection or worker of xdist has a part in it. What a program of the
branch does to this process it can still do to the report; ``pytest-nsys baseline judge`` has no such program in it.
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
# A worker is told that it is one only after its conftest files are loaded.
WORKER_VARIABLE = "PYTEST_XDIST_WORKER"
"""Variable that xdist sets in the environment of its workers."""

NO_TEST_OPTIONS = ("help", "version", "collectonly", "nsys_update_baselines", "nsys_against")
"""Options under which no test runs, or which exclude a ref."""

GREEN_OR_EMPTY = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
_JUDGE = pytest.StashKey[JudgeProcess | BaseVerdict]()
_TYPED = pytest.StashKey[Any]()
"""Options as a person typed them, read before any conftest.py."""


def start_before_conftests(config: pytest.Config, parser: pytest.Parser) -> None:
    """Start the judge of the ref that a person typed. Raises pytest.UsageError for one that an ini file names."""
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
    """Start the judge, or keep the verdict that it cannot start."""
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
    """Have the verdict of the merge base reported, once in a session: by the controller where xdist distributes it."""
    if hasattr(config, "workerinput"):
        return
    if _JUDGE not in config.stash:
        if any(config.getoption(name, default=None) for name in NO_TEST_OPTIONS):  # as typed: addopts are the branch's
            return
        _start_judge(config, config.stash[_TYPED])  # config.option is what a conftest.py may have changed
    install(config, MergeBaseGate(config), MERGE_BASE_PLUGIN)


def find_base_verdict(config: pytest.Config) -> BaseVerdict | None:
    """Return the verdict of the merge base in this session; None where nobody asked or it is not known yet."""
    gate = config.pluginmanager.get_plugin(MERGE_BASE_PLUGIN)
    return gate.verdict if isinstance(gate, MergeBaseGate) else None


@dataclass(eq=False)
class MergeBaseGate:
    """Waits for the judge, as a plugin of pytest, and reports its verdict."""

    config: pytest.Config
    verdict: BaseVerdict | None = field(default=None, init=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Report behind all other tests, also where the session broke off for one of them."""
        # Registered last, so around the hooks of every conftest.py: what they set is set before this looks.
        self.config.pluginmanager.register(ExitStatusPlugin(self), f"{MERGE_BASE_PLUGIN}-exit-status")
        session.testscollected += session.testscollected > 0  # for the percentages; of none, pytest says so
        collected_count = session.testscollected
        try:
            result = yield
        except (Exception, session.Interrupted):  # the latter where a file cannot be collected
            self._report_verdict()
            raise
        if session.testscollected != collected_count:  # xdist has counted what its workers collected
            session.testscollected += 1
        self._report_verdict()
        return result

    def _report_verdict(self) -> None:
        """Wait for the verdict, and report it as a test that pytest ran."""
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
        """Return what pytest shows of a red verdict; None where it is not red."""
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
    """Has the last word on the exit status, as a plugin of pytest: a red of the merge base is one of the session."""

    gate: MergeBaseGate

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        verdict = self.gate.verdict
        if verdict is not None and verdict.is_red and session.exitstatus in GREEN_OR_EMPTY:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
