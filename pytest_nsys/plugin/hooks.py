"""Which pytest hooks does the plugin implement? Those for settings, collection, header, reports and summary.

This module is loaded in every pytest run of every project with the plugin, so hooks import the rest of the package only
when they need it.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_nsys.plugin.settings import ACCEPTANCE, BASE_KEYS, SETTINGS, check_settings, read_setting

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_nsys.library import NsysRun
    from pytest_nsys.plugin.fixtures import NsysGate

GATE_SUFFIX = ".nsys.yaml"
# Copied from the readers of traces, which must not be imported here; tests/plugin/test_options.py compares them.
TRACE_SUFFIXES = (
    *(".sqlite", ".nsys-rep", ".qdrep", ".qdstrm", "_results.db"),
    *(".sqlite.gz", "_trace.json", ".pt.trace.json", ".json.gz"),
)

LONGEST_HEADER_LINE = 4000  # of the header: a glob may match any number of traces


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options and ini keys."""
    from pytest_nsys.plugin.ordinary_import import import_ordinarily

    import_ordinarily()  # needed again in a later session of this process
    group = parser.getgroup("nsys", "performance gates on Nsight Systems traces")
    for setting in SETTINGS.values():
        group.addoption(setting.option, **setting.build_option_arguments())
        if setting.ini:
            parser.addini(setting.name, setting.ini, type=setting.ini_type)
    for name, (choices, description) in BASE_KEYS.items():
        parser.addini(name, f"{' or '.join(choices)}: {description}")
    parser.addini("nsys_baseline_ref", "refused: type --nsys-baseline-ref")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> None:
    """Start the judge of the merge base before any code of the branch is loaded."""
    if early_config.known_args_namespace.nsys_baseline_ref is not None or early_config.getini("nsys_baseline_ref"):
        from pytest_nsys.plugin.merge_base import start_before_conftests

        start_before_conftests(early_config, parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, reject invalid settings before anything runs, and start the requested features."""
    config.addinivalue_line("markers", "nsys: an assertion of a gate file (*.nsys.yaml), checked against a trace")
    _refuse_stray_traces(config)
    if not (sys.stdout.encoding or "utf-8").lower().startswith("utf"):
        from pytest_nsys.core.text_format import configure_plain_output

        configure_plain_output(sys.stdout)  # else pytest escapes a whole line for one unknown character
    with _convert_usage_errors():
        given_settings = check_settings(config)
        _resolve_sentence_arguments(config)
        modules = dict.fromkeys(setting.module for setting in given_settings if setting.module)
        for module in modules:
            import_module(f"pytest_nsys.plugin.{module}").start(config)


def _resolve_sentence_arguments(config: pytest.Config) -> None:
    """Replace node ids on the command line that contain a whole sentence by the collected node ids."""
    if any(".nsys.yaml::" in argument for argument in config.args):
        from pytest_nsys.plugin.items import resolve_node_id

        start_folder = config.invocation_params.dir
        config.args = [
            resolve_node_id(argument, start_folder) if ".nsys.yaml::" in argument else argument
            for argument in config.args
        ]


@contextlib.contextmanager
def _convert_usage_errors() -> Generator[None]:
    """Turn a UsageMistake into pytest's usage error, with a text that cannot control the terminal."""
    try:
        yield
    except Exception as error:
        from pytest_nsys.core.errors import UsageMistake
        from pytest_nsys.core.text_format import sanitize_text

        if not isinstance(error, UsageMistake | pytest.UsageError):
            raise
        raise pytest.UsageError(sanitize_text(str(error))) from error


def _refuse_stray_traces(config: pytest.Config) -> None:
    """Reject a trace as a positional argument: pytest would only report that it contains no tests."""
    for argument in config.getoption("file_or_dir", default=None) or ():
        if str(argument).endswith(TRACE_SUFFIXES):
            raise pytest.UsageError(
                f"{argument} is a trace, not a test: write --nsys-trace={argument} (a glob in quotes)"
            )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """When noise is measured, deselect all items whose rows are not written."""
    acceptance = config.stash.get(ACCEPTANCE, None)
    if acceptance is None or acceptance.mode != "calibrate":
        return
    from pytest_nsys.plugin.items import GateItem

    sides: tuple[list[pytest.Item], list[pytest.Item]] = [], []
    for item in items:
        sides[isinstance(item, GateItem) and item.is_written].append(item)
    other_items, items[:] = sides
    if other_items:
        config.hook.pytest_deselected(items=other_items)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect gate files, ``*.nsys.yaml``, and misspelt ones, which would otherwise be ignored silently."""
    if ".nsys." not in file_path.name.lower():
        return None
    from pytest_nsys.core.file_names import has_gate_name

    if not has_gate_name(file_path.name):
        return None
    from pytest_nsys.plugin.items import GateFileNode

    return GateFileNode.from_parent(parent, path=file_path)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a header line on what will be judged, if that is given for the whole session."""
    traces, folder = read_setting(config, "nsys_trace"), read_setting(config, "nsys_baseline_dir")
    measurements = read_setting(config, "nsys_measurements")
    if not traces and not folder and not measurements:
        return []
    from pytest_nsys.core.text_format import sanitize_line

    description = ", ".join(traces) if traces else "as each gate file says"
    description += f"; measurements {', '.join(measurements)}" if measurements else ""
    if base_files := [
        *(config.getoption("nsys_against") or ()),
        *(config.getoption("nsys_against_measurements") or ()),
    ]:
        return [sanitize_line(f"nsys: trace {description}; against {', '.join(base_files)}", LONGEST_HEADER_LINE)]
    lines = [f"nsys: trace {description}; baselines in {folder or 'the nearest baselines/ above each gate file'}"]
    is_updating = config.getoption("nsys_update_baselines")
    if (ref := config.getoption("nsys_baseline_ref")) and not is_updating:
        lines.append(f"nsys: the merge base of {ref} judges beside this branch")
    if is_updating:
        lines.append(f"nsys: baselines are updated: {config.getoption('nsys_reason')}")
    return [sanitize_line(line, LONGEST_HEADER_LINE) for line in lines]


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Warn if pytest does not read the ini file in a folder above the gate files."""
    if config.inipath is not None:
        return []
    gates = {item.path for item in items if item.path.name.endswith(GATE_SUFFIX)}
    for gate in sorted(gates):
        for folder in gate.parents:
            if (folder / "pyproject.toml").is_file():
                unread_file = folder / "pyproject.toml"
                return [
                    f"nsys: warning: {unread_file} stands above {gate.name}, but pytest found no ini file: its "
                    "nsys_ keys are not in force (write options with an equals sign, or give --rootdir)"
                ]
    return []


@pytest.hookimpl(tryfirst=True)
def pytest_warning_recorded(warning_message: warnings.WarningMessage) -> None:
    """Sanitize the line of a gate file that pytest shows below a warning."""
    if warning_message.category.__module__ == "pytest_nsys.outcomes":
        from pytest_nsys.core.text_format import sanitize_text

        line = linecache.getline(warning_message.filename, warning_message.lineno)
        warning_message.line = sanitize_text(line.strip())


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Announce what will be judged, so that traces are read together; on a terminal, read them before the first item.

    While items run, pytest captures output such as the progress of an export or a long read.
    """
    if session.testsfailed or session.config.getoption("collectonly"):
        return
    gate_items = [item for item in session.items if item.path.name.endswith(GATE_SUFFIX)]
    if not gate_items:
        return
    from pytest_nsys.plugin.items import GateItem
    from pytest_nsys.plugin.session import get_nsys_session

    nsys_session = get_nsys_session(session.config)
    plan = [(item.gate, item.assertion) for item in gate_items if isinstance(item, GateItem)]
    nsys_session.plan_requests(plan)
    if sys.stderr.isatty():
        gates = {gate.address: gate for gate, _ in plan}.values()
        nsys_session.export_reports(gates)
        nsys_session.read_ahead(gates)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Attach the mistakes of a gate file to the report, which also carries them from an xdist worker."""
    report = yield
    report.nsys_mistakes = getattr(collector, "mistakes", ())
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the verdict's record to the report, which also carries it from an xdist worker."""
    report = yield
    if report.skipped and call.excinfo is not None:
        from pytest_nsys.outcomes import NotRun

        if isinstance(call.excinfo.value, NotRun):
            from pytest_nsys.plugin.not_run import attach_not_run

            attach_not_run(item, call.excinfo.value, report)
    record = getattr(item, "record", None)
    is_xfailed = hasattr(report, "wasxfail") and report.skipped and not getattr(item, "forced", "")
    if record is not None and item.path.name.endswith(GATE_SUFFIX):
        if report.when == "setup" and report.failed and call.excinfo is not None:
            from pytest_nsys.plugin.items import format_failure  # the item is ours, so it is loaded already

            # Show what is wrong without the name of pytest's exception.
            report.longrepr = format_failure(item, call.excinfo, str(call.excinfo.value))
        if report.when == "call" or report.failed:
            deciding_marks = item.forced  # type: ignore[attr-defined]
            report.nsys = replace(record, xfailed=is_xfailed, deciding_marks=deciding_marks)  # type: ignore[attr-defined]
        if report.when == "teardown":
            item.drop_rows()  # type: ignore[attr-defined]
    if (pictures := getattr(item, "pictures", None)) is not None and report.when == "call":
        report.nsys_pictures = pictures  # type: ignore[attr-defined]
    entry = getattr(item, "history", None)
    if entry is not None and (report.when == "call" or report.failed):
        report.nsys_history = entry._replace(xfailed=is_xfailed)  # type: ignore[attr-defined]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(
    config: pytest.Config, report: pytest.CollectReport | pytest.TestReport
) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """Pickle our attributes of a report on an xdist worker. Other callers write JSON, and get only the JUnit
    properties.
    """
    data = yield
    if data is not None and (own_attributes := _select_own_attributes(report)):
        if hasattr(config, "workerinput"):
            import pickle

            return data | {name: pickle.dumps(value) for name, value in own_attributes.items()}
        return {name: value for name, value in data.items() if name not in own_attributes}
    return data


@pytest.hookimpl(wrapper=True)
def pytest_report_from_serializable(config: pytest.Config) -> Generator[None, Any, Any]:
    """Restore our attributes of a report from a worker of this session, which runs the same code."""
    report = yield
    # Only the controller of xdist has this plugin, so data from a file of reports is never unpickled.
    if config.pluginmanager.hasplugin("dsession") and (own_attributes := _select_own_attributes(report)):
        import pickle

        vars(report).update({name: pickle.loads(value) for name, value in own_attributes.items()})
    return report


def _select_own_attributes(report: object) -> dict[str, Any]:
    """Return the attributes that this plugin has attached to a report."""
    return {name: value for name, value in getattr(report, "__dict__", {}).items() if name.startswith("nsys")}


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """Count a gate file without a trace as one skip."""
    if not hasattr(report, "nsys_not_run"):
        return None
    from pytest_nsys.plugin.not_run import find_report_status

    return find_report_status(report, config)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Drop most rows of a report after all plugins have seen it; the summary needs only rows that do not hold or are
    nearest to failing.
    """
    record = getattr(report, "nsys", None)
    if record is not None:  # pytest keeps all reports to the end, maybe thousands
        report.nsys = record.keep_notable_rows()  # type: ignore[attr-defined]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write refreshed baselines, once per file; a file that cannot be written fails the session.

    An interrupted session has not judged all of its assertions, and writes nothing.
    """
    is_finished = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not session.shouldfail
    if not session.config.getoption("nsys_update_baselines") or not is_finished:
        return
    from pytest_nsys.plugin.baseline_refresh import get_session_refresh
    from pytest_nsys.plugin.items import GateItem
    from pytest_nsys.plugin.session import get_nsys_session

    gates = {item.gate.address: item.gate for item in session.items if isinstance(item, GateItem)}
    is_written = get_session_refresh(get_nsys_session(session.config)).write_baselines(gates.values())
    if not is_written and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


_ALL_REPORTS = pytest.StashKey[dict[str, list[Any]]]()
"""All reports by pytest's categories, kept for the summary of the gates."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Generator[None, Any, Any]:
    """Keep pytest from showing a section for each failed assertion: the summary of the gates shows all."""
    reports_seen = (report for reports in terminalreporter.stats.values() for report in reports)
    has_gate_option = config.getoption("nsys_baseline_ref") or config.getoption("nsys_update_baselines")
    if not has_gate_option and not any(
        hasattr(report, "nsys") or hasattr(report, "nsys_not_run") for report in reports_seen
    ):
        return (yield)
    from pytest_nsys.plugin.terminal_summary import fold_sections

    with fold_sections(terminalreporter, config) as config.stash[_ALL_REPORTS]:
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True, specname="pytest_terminal_summary")
def pytest_nsys_terminal_summary(
    terminalreporter: Any, exitstatus: int, config: pytest.Config
) -> Generator[None, Any, Any]:
    """Print what was judged and with what margin, even if everything passed. It comes last before pytest's own
    lines.
    """
    all_reports = config.stash.get(_ALL_REPORTS, None)
    if all_reports is None:
        return (yield)
    from pytest_nsys.plugin.terminal_summary import print_gate_summary

    terminalreporter.stats |= all_reports  # for other plugins
    result = yield
    print_gate_summary(terminalreporter, exitstatus, config, all_reports)
    return result


@pytest.fixture(scope="session")
def nsys_run(pytestconfig: pytest.Config) -> NsysRun:
    """The run under test: ``nsys_run.rows("overlap", stage="stage2_f")``."""
    from pytest_nsys.plugin.fixtures import RunUnderTest

    return RunUnderTest.from_config(pytestconfig)


@pytest.fixture(scope="session")
def nsys_gate(pytestconfig: pytest.Config) -> NsysGate:
    """Judge a sentence: ``nsys_gate("stage3 overlap >= 60%")``."""
    from pytest_nsys.plugin.fixtures import NsysGate

    return NsysGate(pytestconfig)


__all__ = [name for name in dir() if name.startswith(("pytest_", "nsys_"))]
"""The names that pytest sees of this module: its hooks and fixtures."""
