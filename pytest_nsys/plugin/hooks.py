"""The pytest hooks: options, ini keys, collection, header, summary.

This module loads in every pytest run of every project that has the plugin: it imports nothing of its own but what a
hook needs, when the hook needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_nsys.library import NsysRun
    from pytest_nsys.plugin.fixtures import NsysGate

__all__ = [
    "nsys_gate",
    "nsys_run",
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_nsys_after_options",
    "pytest_nsys_before_options",
    "pytest_report_collectionfinish",
    "pytest_report_header",
    "pytest_runtest_makereport",
    "pytest_runtestloop",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
]

GATE_SUFFIX = ".nsys.yaml"
_REPORTS = ("nsys_json", "nsys_summary", "nsys_html", "nsys_annotate")
UPDATE_MODES = ("moved", "all", "new-only", "accept-run", "ratchet", "calibrate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and ini keys.

    https://docs.pytest.org/en/stable/reference/reference.html#pytest.hookspec.pytest_addoption
    """
    from pytest_nsys.plugin import import_ordinarily

    import_ordinarily()  # also in a later session of this process
    group = parser.getgroup("nsys", "performance gates on Nsight Systems traces")
    group.addoption(
        "--nsys-trace",
        action="append",
        metavar="PATH",
        help="trace to judge (file, folder or glob: one run). Repeated: captures of one program; rows are medians. "
        "Write --nsys-trace=PATH, with the equals sign.",
    )
    group.addoption(
        "--nsys-against",
        action="append",
        metavar="PATH",
        help="trace of the base, in place of the stored baselines: every assertion with a baseline is held against it. "
        "Repeated: its captures; five or more on each side are tested.",
    )
    group.addoption(
        "--nsys-executor",
        metavar="EXECUTOR",
        help="how the traces of a run are read: serial (default), processes:N on this machine, or dask:ADDRESS",
    )
    group.addoption("--nsys-baseline-dir", metavar="DIR", help="folder of the stored baselines (default: baselines/)")
    group.addoption(
        "--nsys-baseline-ref",
        metavar="REF",
        help="read the baselines from git as they were at the merge base of REF and HEAD (REF: origin/main), so that a "
        "branch that rewrites them is not its own judge",
    )
    group.addoption(
        "--nsys-gate-changes",
        choices=("warn", "fail"),
        help="with --nsys-baseline-ref: whether a branch that loosens the gate files of the merge base is told of it "
        "(warn, default) or fails",
    )
    _add_update_options(group)
    _add_report_options(group)
    parser.addini("nsys_trace", "traces to judge, one capture a line, relative to the ini file", type="linelist")
    parser.addini("nsys_executor", "how the traces of a run are read, as --nsys-executor says it", type="string")
    parser.addini("nsys_baseline_ref", "ref whose merge base with HEAD the baselines are read from", type="string")
    parser.addini("nsys_gate_changes", "warn or fail, as --nsys-gate-changes says it", type="string")
    parser.addini("nsys_baseline_dir", "folder of the stored baselines, relative to the ini file", type="string")
    parser.addini("nsys_artifacts", "folder of failed assertions' windows, relative to the ini file", type="string")
    parser.addini("nsys_history", "database of every session's rows, relative to the ini file", type="string")


def _add_update_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--nsys-update-baselines",
        action="store_true",
        help="write the rows of this run as the new baselines instead of judging them; needs --nsys-reason",
    )
    group.addoption("--nsys-reason", metavar="TEXT", help="why the baselines change; stored with them")
    group.addoption(
        "--nsys-update-mode",
        choices=UPDATE_MODES,
        help="which rows --nsys-update-baselines writes: those that moved beyond their tolerance (default), all, only "
        "what is not stored, the run as one more accepted run, only what improved, or the noise of five or more "
        "captures",
    )
    group.addoption(
        "--nsys-update-only",
        action="append",
        metavar="NAME",
        help="write the rows of this assertion or metric alone (name or glob; repeatable), and judge the others",
    )


def _add_report_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--nsys-history",
        metavar="PATH",
        help="SQLite database that gets the rows and verdicts of this session, with commit and branch",
    )
    group.addoption(
        "--nsys-json",
        metavar="FILE",
        help="write every assertion with all of its rows as JSON (its schema is in the package), whatever the verdicts",
    )
    group.addoption(
        "--nsys-summary",
        metavar="FILE",
        help="append a summary in Markdown, under 1 MiB, as $GITHUB_STEP_SUMMARY takes it, whatever the verdicts",
    )
    group.addoption("--nsys-html", metavar="FILE", help="write one page: verdicts, margins, causes, timelines, trend")
    group.addoption(
        "--nsys-annotate",
        action="store_true",
        help="print GitHub annotations at the lines of the gate files, at most ten of each kind",
    )
    group.addoption(
        "--nsys-artifacts",
        metavar="DIR",
        help="write the window of each failed assertion into this folder, as a small trace for Perfetto; with "
        "--nsys-against that of the base beside it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse what cannot be meant, before anything runs."""
    config.addinivalue_line("markers", "nsys: an assertion of a gate file (*.nsys.yaml) on an Nsight Systems trace")
    _refuse_stray_traces(config)
    if config.getoption("nsys_update_baselines"):
        _check_update(config)
    else:
        _check_no_update(config)
    _check_ref(config)
    if config.getoption("nsys_executor") is not None or config.getini("nsys_executor"):
        from pytest_nsys.plugin.session import executor_asked

        executor_asked(config)
    for option in ("nsys_trace", "nsys_against"):
        if config.getoption(option):
            _check_traces(config, option)
    if config.getoption("nsys_trace") and config.getoption("nsys_against"):
        _check_two_runs(config)
    if any(config.getoption(name) not in (None, False) for name in _REPORTS):
        from pytest_nsys.plugin import reporting

        reporting.start(config)
    if config.getoption("nsys_artifacts") is not None or config.getini("nsys_artifacts"):
        from pytest_nsys.plugin import artifacts

        artifacts.start(config)
    if config.getoption("nsys_history") is not None or config.getini("nsys_history"):
        from pytest_nsys.plugin import recorder

        recorder.start(config)


def _check_traces(config: pytest.Config, option: str) -> None:
    from pytest_nsys.plugin.session import usage_errors
    from pytest_nsys.traces.opening import find_traces

    name = "--" + option.replace("_", "-")
    with usage_errors():
        for value in config.getoption(option):
            if not value.strip():  # as $TRACE is where nobody set it; the path would mean this folder
                raise pytest.UsageError(f"{name} is empty: write {name}=PATH")
            if _workers(config) and not _is_unicode(value):  # xdist hands options on as text
                raise pytest.UsageError(f"{name}: the path is no UTF-8, which workers cannot take: leave -n out")
            find_traces(value, config.invocation_params.dir)
    # Reports name traces so, and leave the machine: its folders need not.
    typed = [_from(config.invocation_params.dir, value) for value in config.getoption(option)]
    setattr(config.option, option, typed)


def _from(folder: Path, value: str) -> str:
    """A path as a person would type it from the folder, of what lies in it."""
    path = Path(value)
    short = str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else value
    return value if short.startswith("~") else short  # there it would be somebody's home


def _check_two_runs(config: pytest.Config) -> None:
    from pytest_nsys.analysis.capture_cache import check_two_runs
    from pytest_nsys.plugin.session import usage_errors
    from pytest_nsys.traces.opening import find_traces

    here = config.invocation_params.dir
    with usage_errors():
        now, before = (
            [path for value in config.getoption(option) for path in find_traces(value, here)]
            for option in ("nsys_trace", "nsys_against")
        )
        check_two_runs(now, before)


def _check_ref(config: pytest.Config) -> None:
    ref = config.getoption("nsys_baseline_ref")
    if config.getini("nsys_gate_changes") not in ("", "warn", "fail"):
        raise pytest.UsageError(f"nsys_gate_changes is warn or fail, not '{config.getini('nsys_gate_changes')}'")
    if config.getoption("nsys_gate_changes") == "fail" and not (ref or config.getini("nsys_baseline_ref")):
        raise pytest.UsageError("--nsys-gate-changes=fail compares with a merge base: give --nsys-baseline-ref too")
    if ref is None:
        return
    if not ref.strip() or ref.startswith("-"):  # empty, as $BASE is where nobody set it; or an option of git
        raise pytest.UsageError(f"--nsys-baseline-ref={ref}: is no ref: write --nsys-baseline-ref=origin/main")
    told = config.getoption("nsys_gate_changes") or config.getini("nsys_gate_changes")
    if config.getoption("nsys_against") and not told:
        raise pytest.UsageError(
            "--nsys-against and --nsys-baseline-ref both say what the baseline is: give one, or --nsys-gate-changes "
            "too, for which the ref is that of the gate files alone"
        )


NSYS_SUFFIXES = (".sqlite", ".nsys-rep", ".qdrep", ".qdstrm")


def _refuse_stray_traces(config: pytest.Config) -> None:
    """A trace as a positional argument: pytest would say that it found no tests in it."""
    for argument in config.getoption("file_or_dir", default=None) or ():
        if str(argument).endswith((*NSYS_SUFFIXES, "_trace.json", ".pt.trace.json", ".json.gz")):
            raise pytest.UsageError(
                f"{argument} is a trace, not a test: write --nsys-trace={argument} (a glob in quotes)"
            )


def _check_update(config: pytest.Config) -> None:
    if not (config.getoption("nsys_reason") or "").strip():
        raise pytest.UsageError('--nsys-update-baselines needs a reason: --nsys-reason "why the new normal is right"')
    if not _is_unicode(config.getoption("nsys_reason")):
        raise pytest.UsageError("--nsys-reason is no text in UTF-8, as baselines are: write it again")
    if config.getoption("nsys_baseline_ref"):
        raise pytest.UsageError("--nsys-baseline-ref reads baselines from git, where none can be updated: leave it out")
    if config.getoption("nsys_against"):
        raise pytest.UsageError("--nsys-against stands for the stored baselines: nothing to update")
    if _workers(config) or hasattr(config, "workerinput"):
        raise pytest.UsageError("--nsys-update-baselines writes from one process: run it without -n (or with -n 0)")


def _workers(config: pytest.Config) -> bool:
    """Whether xdist distributes the tests."""
    return bool(config.getoption("numprocesses", default=None)) or config.getoption("dist", default="no") != "no"


def _is_unicode(text: str) -> bool:
    """Whether the bytes that were typed are text: Python keeps others as halves of a pair, which no file takes."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_no_update(config: pytest.Config) -> None:
    for option in ("nsys_update_mode", "nsys_update_only"):
        if config.getoption(option):
            name = "--" + option.replace("_", "-")
            raise pytest.UsageError(f"{name} says what --nsys-update-baselines writes: give that too")
    if config.getoption("nsys_reason") is not None:
        raise pytest.UsageError("--nsys-reason says why baselines change: give --nsys-update-baselines too")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a name to update that no gate file knows; where noise is measured, nothing else is judged.

    https://docs.pytest.org/en/stable/reference/reference.html#pytest.hookspec.pytest_collection_modifyitems
    """
    calibrating = config.getoption("nsys_update_mode") == "calibrate"
    if not calibrating and not config.getoption("nsys_update_only"):
        return
    from pytest_nsys.plugin.items import GateItem
    from pytest_nsys.plugin.session import session_of, usage_errors

    gates = {item.path: item.gate for item in items if isinstance(item, GateItem)}
    if gates and not session.testsfailed:  # a mistake in a gate file is told first
        with usage_errors():
            session_of(config).check_only(gates.values())
    if calibrating:
        others = [i for i in items if not isinstance(i, GateItem) or not session_of(config).updates(i.assertion)]
        items[:] = [item for item in items if item not in others]
        if others:
            config.hook.pytest_deselected(items=others)


@pytest.hookimpl(specname="pytest_collection_modifyitems")
def pytest_nsys_before_options(config: pytest.Config, items: list[pytest.Item]) -> None:
    """See what conftest files leave of the tests, before pytest's own options choose: its hooks are older."""
    if (selection := config.pluginmanager.get_plugin("nsys-selection")) is not None:
        selection.look(items)


@pytest.hookimpl(specname="pytest_collection_modifyitems", trylast=True)
def pytest_nsys_after_options(config: pytest.Config, items: list[pytest.Item]) -> None:
    """See what pytest's own options leave of the tests."""
    pytest_nsys_before_options(config, items)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Gate files are ``*.nsys.yaml``. One that ends in ``.nsys.yml`` is a mistake, or it would be green unseen.

    https://docs.pytest.org/en/stable/reference/reference.html#pytest.hookspec.pytest_collect_file
    """
    if not file_path.name.endswith((GATE_SUFFIX, ".nsys.yml")):
        return None
    from pytest_nsys.plugin.items import GateFileNode

    return GateFileNode.from_parent(parent, path=file_path)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What will be judged, where it is given for the whole session."""
    traces = config.getoption("nsys_trace") or config.getini("nsys_trace")
    folder = config.getoption("nsys_baseline_dir") or config.getini("nsys_baseline_dir")
    if not traces and not folder:
        return []
    where = ", ".join(traces) if traces else "as each gate file says"
    if against := config.getoption("nsys_against"):
        return [f"nsys: trace {where}; against {', '.join(against)}"]
    lines = [f"nsys: trace {where}; baselines {folder or 'in the nearest baselines/ above each gate file'}"]
    updating = config.getoption("nsys_update_baselines")
    ref = config.getoption("nsys_baseline_ref") or config.getini("nsys_baseline_ref")
    if ref and not updating:
        lines[0] += f", as of the merge base of {ref}"
    if updating:
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Judge what the branch does to gate files, too, where that is asked for.

    Here, because nothing selects items after it; first, because terminal and xdist workers tell what they see here.

    https://docs.pytest.org/en/stable/reference/reference.html#pytest.hookspec.pytest_collection_finish
    """
    if session.config.getoption("nsys_gate_changes") or session.config.getini("nsys_gate_changes"):
        from pytest_nsys.plugin.gate_guard import guard

        guard(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Say what will be judged, so that it is read at once; on a terminal, read it before the first item.

    While items run, pytest keeps what goes to the terminal, such as how far an export or a long read is.

    https://docs.pytest.org/en/stable/reference/reference.html#pytest.hookspec.pytest_runtestloop
    """
    if session.testsfailed or session.config.getoption("collectonly"):
        return
    judged = [item for item in session.items if item.path.name.endswith(GATE_SUFFIX)]
    if not judged:
        return
    from pytest_nsys.plugin.items import GateItem
    from pytest_nsys.plugin.session import session_of

    own = session_of(session.config)
    plan = [(item.gate, item.assertion) for item in judged if isinstance(item, GateItem)]
    own.plan(plan)
    if sys.stderr.isatty():
        gates = {gate.path: gate for gate, _ in plan}.values()
        own.export_reports(gates)
        own.read(gates)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hand the verdict's record to the report, which also carries it from an xdist worker."""
    report = yield
    record = getattr(item, "record", None)
    if record is not None and item.path.name.endswith(GATE_SUFFIX) and (report.when == "call" or report.failed):
        report.nsys = {**record.plain(), "xfailed": hasattr(report, "wasxfail") and report.skipped}  # type: ignore[attr-defined]
    if (pictures := getattr(item, "pictures", None)) is not None and report.when == "call":
        report.nsys_pictures = pictures  # type: ignore[attr-defined]
    entry = getattr(item, "history", None)
    if entry is not None and (report.when == "call" or report.failed):
        report.nsys_history = {**entry, "xfailed": hasattr(report, "wasxfail") and report.skipped}  # type: ignore[attr-defined]
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write refreshed baselines, once per file; a file that cannot be written fails the session.

    A session that was interrupted did not see all of its assertions, and writes nothing.
    """
    finished = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not session.shouldfail
    if not session.config.getoption("nsys_update_baselines") or not finished:
        return
    from pytest_nsys.plugin.session import session_of

    if not session_of(session.config).write_refreshes() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was judged and by how much it held, also when everything is green."""
    stats = {category: reports for category, reports in terminalreporter.stats.items() if category != "rerun"}
    judged = [report for reports in stats.values() for report in reports if hasattr(report, "nsys")]
    ref = config.getoption("nsys_baseline_ref") or config.getini("nsys_baseline_ref")
    if not judged and not ref and not config.getoption("nsys_update_baselines"):
        return
    from pytest_nsys.reports.session.digest import keep
    from pytest_nsys.reports.session.summary import summary_lines

    kept: dict[str, dict[str, Any]] = {}
    for report in judged:
        keep(kept, report.nodeid, {**report.nsys, "good": not report.failed})
    records = list(kept.values())
    width = config.get_terminal_writer().fullwidth if terminalreporter.isatty else None
    lines = summary_lines(records, verbose=config.get_verbosity() > 0, width=width)
    if ref:
        from pytest_nsys.plugin.session import session_of
        from pytest_nsys.reports.session.gate_changes import terminal_lines

        own, files = session_of(config), [record["file"] for record in records]
        lines = terminal_lines(own.gate_changes(files), judged=bool(files)) + lines + own.baseline_change_lines(files)
    if config.getoption("nsys_update_baselines"):
        from pytest_nsys.plugin.session import session_of

        lines += session_of(config).refresh_lines(folded=config.get_verbosity() <= 0)
    if lines:
        terminalreporter.section("nsys gate")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def nsys_run(pytestconfig: pytest.Config) -> NsysRun:
    """The run under test: ``nsys_run.rows("overlap", stage="stage2_f")``."""
    from pytest_nsys.plugin.fixtures import RunUnderTest

    return RunUnderTest.of(pytestconfig)


@pytest.fixture(scope="session")
def nsys_gate(pytestconfig: pytest.Config) -> NsysGate:
    """Judge a sentence: ``nsys_gate("stage3 overlap >= 60%")``."""
    from pytest_nsys.plugin.fixtures import NsysGate

    return NsysGate(pytestconfig)
