"""The pytest hooks: options, ini keys, collection, header, summary.

This module loads in every pytest run of every project that has the plugin: it imports nothing of its own but what a
hook needs, when the hook needs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_nsys.fixtures import NsysGate, NsysRun

GATE_SUFFIX = ".nsys.yaml"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and ini keys.

    https://docs.pytest.org/en/stable/reference/reference.html#pytest.hookspec.pytest_addoption
    """
    group = parser.getgroup("nsys", "performance gates on Nsight Systems traces")
    group.addoption(
        "--nsys-trace",
        action="append",
        metavar="PATH",
        help="trace to judge (file, folder or glob: one run). Repeated: captures of one program; rows are medians. "
        "Write --nsys-trace=PATH, with the equals sign.",
    )
    group.addoption("--nsys-baseline-dir", metavar="DIR", help="folder of the stored baselines (default: baselines/)")
    group.addoption(
        "--nsys-update-baselines",
        action="store_true",
        help="write the rows of this run as the new baselines instead of judging them; needs --nsys-reason",
    )
    group.addoption("--nsys-reason", metavar="TEXT", help="why the baselines change; stored with them")
    parser.addini("nsys_trace", "traces to judge, one capture a line, relative to the ini file", type="linelist")
    parser.addini("nsys_baseline_dir", "folder of the stored baselines, relative to the ini file", type="string")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse what cannot be meant, before anything runs."""
    config.addinivalue_line("markers", "nsys: an assertion of a gate file (*.nsys.yaml) on an Nsight Systems trace")
    _refuse_stray_traces(config)
    if config.getoption("nsys_update_baselines"):
        _check_update(config)
    if config.getoption("nsys_trace"):
        from pytest_nsys.session import usage_errors
        from pytest_nsys.traces.opening import find_traces

        with usage_errors():
            for value in config.getoption("nsys_trace"):
                if not value.strip():  # as $TRACE is where nobody set it; the path would mean this folder
                    raise pytest.UsageError("--nsys-trace is empty: write --nsys-trace=PATH")
                find_traces(value, config.invocation_params.dir)


def _refuse_stray_traces(config: pytest.Config) -> None:
    """A trace as a positional argument: pytest would say that it found no tests in it."""
    for argument in config.getoption("file_or_dir", default=None) or ():
        if str(argument).endswith((".sqlite", ".nsys-rep", ".qdrep")):
            raise pytest.UsageError(
                f"{argument} is a trace, not a test: write --nsys-trace={argument} (a glob in quotes)"
            )


def _check_update(config: pytest.Config) -> None:
    if not (config.getoption("nsys_reason") or "").strip():
        raise pytest.UsageError('--nsys-update-baselines needs a reason: --nsys-reason "why the new normal is right"')
    distributed = config.getoption("numprocesses", default=None) or config.getoption("dist", default="no") != "no"
    if distributed or hasattr(config, "workerinput"):
        raise pytest.UsageError("--nsys-update-baselines writes from one process: run it without -n (or with -n 0)")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Gate files are ``*.nsys.yaml``.

    https://docs.pytest.org/en/stable/reference/reference.html#pytest.hookspec.pytest_collect_file
    """
    if not file_path.name.endswith(GATE_SUFFIX):
        return None
    from pytest_nsys.items import GateFileNode

    return GateFileNode.from_parent(parent, path=file_path)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What will be judged, where it is given for the whole session."""
    traces = config.getoption("nsys_trace") or config.getini("nsys_trace")
    folder = config.getoption("nsys_baseline_dir") or config.getini("nsys_baseline_dir")
    if not traces and not folder:
        return []
    where = ", ".join(traces) if traces else "as each gate file says"
    lines = [f"nsys: trace {where}; baselines {folder or 'in the nearest baselines/ above each gate file'}"]
    if config.getoption("nsys_update_baselines"):
        lines.append(f"nsys: baselines are updated: {config.getoption('nsys_reason')}")
    return lines


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """A warning where pytest lost the ini file that stands above the gate files."""
    if config.inipath is not None:
        return []
    gates = {item.path for item in items if item.path.name.endswith(GATE_SUFFIX)}
    for gate in sorted(gates):
        for folder in gate.parents:
            if (folder / "pyproject.toml").is_file():
                lost = folder / "pyproject.toml"
                return [
                    f"nsys: warning: {lost} stands above {gate.name}, but pytest found no ini file: its nsys_ keys are "
                    "not in force (write options with an equals sign, or give --rootdir)"
                ]
    return []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hand the verdict's record to the report, which also carries it from an xdist worker."""
    report = yield
    record = getattr(item, "record", None)
    if record is not None and item.path.name.endswith(GATE_SUFFIX) and (report.when == "call" or report.failed):
        report.nsys = {**record.plain(), "xfailed": hasattr(report, "wasxfail") and report.skipped}  # type: ignore[attr-defined]
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write refreshed baselines, once per file; a file that cannot be written fails the session.

    A session that was interrupted did not see all of its assertions, and writes nothing.
    """
    finished = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not session.shouldfail
    if not session.config.getoption("nsys_update_baselines") or not finished:
        return
    from pytest_nsys.session import session_of

    if not session_of(session.config).write_refreshes() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was judged and by how much it held, also when everything is green."""
    records = [
        report.nsys for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "nsys")
    ]
    if not records and not config.getoption("nsys_update_baselines"):
        return
    from pytest_nsys.reports.summary import summary_lines

    lines = summary_lines(records, verbose=config.get_verbosity() > 0)
    if config.getoption("nsys_update_baselines"):
        from pytest_nsys.session import session_of

        lines += session_of(config).refresh_lines()
    if lines:
        terminalreporter.section("nsys gate")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def nsys_run(pytestconfig: pytest.Config) -> NsysRun:
    """The run under test: ``nsys_run.rows("overlap", stage="stage2_f")``."""
    from pytest_nsys.fixtures import NsysRun

    return NsysRun.of(pytestconfig)


@pytest.fixture(scope="session")
def nsys_gate(pytestconfig: pytest.Config) -> NsysGate:
    """Judge a sentence: ``nsys_gate("stage3 overlap >= 60%")``."""
    from pytest_nsys.fixtures import NsysGate

    return NsysGate(pytestconfig)
