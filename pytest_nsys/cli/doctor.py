"""``pytest-nsys doctor``: why is there nothing? What is installed, what pytest does here, and what traces hold."""

from __future__ import annotations

import contextlib
import io
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_nsys.analysis.captures import Captures, available
from pytest_nsys.analysis.metrics import METRICS, Bounds
from pytest_nsys.analysis.quality import crossed
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.cli.group import Exit
from pytest_nsys.cli.options import MeasureOptions, convention_option, executor_option
from pytest_nsys.core.errors import NothingMeasured, NsysError
from pytest_nsys.core.version import VERSION
from pytest_nsys.core.words import printable
from pytest_nsys.reports.doctor_report import (
    Diagnosis,
    Group,
    Plugin,
    RunShape,
    Surroundings,
    TraceFile,
    as_json_report,
    as_text,
    problems_of,
)
from pytest_nsys.tools.nsys_command import find_nsys
from pytest_nsys.traces.measurements import find_measurements, read_measurements
from pytest_nsys.traces.opening import format_of

if TYPE_CHECKING:
    import pytest

EXTRAS = {"fast": "adbc_driver_sqlite", "parquet": "pyarrow", "dask": "distributed", "xdist": "xdist"}
"""By name of an extra, or of a plugin that is often meant, a module of it."""

PLUGIN, MODULE = "nsys", "pytest_nsys.plugin"
AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"


@click.command()
@click.argument("traces", metavar="[TRACES…]", nargs=-1)
@convention_option
@click.option("--anchor", help="Pattern (% is the wildcard) of the range that repeats, instead of the convention's.")
@click.option("--format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@executor_option
@click.pass_context
def doctor(
    context: click.Context,
    traces: tuple[str, ...],
    convention: str | None,
    anchor: str | None,
    format: str,
    executor: str | None,
) -> None:
    """Diagnose missing results: what is installed, whether the plugin is active here, what TRACES hold.

    TRACES: files, folders or globs of one run.

    Shows their format and version, ranks, convention, anchor, crossed quality bounds, and for the metrics of each
    command whether they have rows or which capture option is missing.

    Exit codes: 0 no problem; 1 no plugin, no anchor or a crossed bound; 2 a mistake or an unreadable trace;
    3 no kernels.
    """
    surroundings, run, code, unreadable = look_around(), None, Exit.GOOD, []
    if traces:
        asked = MeasureOptions(convention=convention, anchor=anchor, executor=executor)
        try:
            with asked.one_run(traces, may_be_a_step=True) as (captures, spec):
                run = _looked_at(captures, spec, asked)
        except NsysError as error:
            code = Exit.NO_DATA if isinstance(error, NothingMeasured) else Exit.MISTAKE
            unreadable = [*_measurements(traces)] or str(error).splitlines()
    problems = problems_of(surroundings, run, unreadable)
    found = Diagnosis(1, not problems, problems, surroundings, run)
    click.echo(as_json_report(found) if format == "json" else as_text(found), nl=False)
    context.exit(code or (Exit.WORSE if problems else Exit.GOOD))


def _measurements(values: Sequence[str]) -> Iterator[str]:
    """What among the traces are measurements, each with the option that takes it."""
    for value in values:
        with contextlib.suppress(NsysError):
            for path in find_measurements(value, Path()):
                read_measurements(path)
                yield f"{path}: holds measurements, no trace: give it as --nsys-measurements={value}"


def _looked_at(captures: Captures, spec: WindowSpec, asked: MeasureOptions) -> RunShape:
    (run,) = captures.runs
    files = [
        TraceFile(str(trace.path), format_of(trace.path), facts.profiler_version)
        for trace, facts in zip(run.traces, run.facts, strict=True)
    ]
    groups = [
        Group(one.view.split()[0], one.metrics, one.with_rows, {why: list(names) for why, names in one.without.items()})
        for one in available(captures, spec)
    ]
    return RunShape(
        files=files,
        ranks=[rank.number for rank in run.ranks],
        gpu=run.gpu_model(),
        convention=asked.notes[0].text if asked.notes else captures.convention_words,
        anchored=not spec.whole_run,
        measured_as=str(spec),
        quality=crossed(run, spec, Bounds(), METRICS["exposed_ns"]),
        groups=groups,
    )


# What is installed


class Looking:
    """A plugin of a session that ends before anything is collected: it sees how pytest was configured."""

    config: pytest.Config | None = None

    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """All that pytest does: a hook that answers is the last."""
        self.config = config
        return 0


def look_around() -> Surroundings:
    """What is installed, and what pytest does in this folder."""
    import pytest

    nsys: str | None = None
    try:
        found = find_nsys()
        nsys = None if found is None else f"{found.version} ({found.path})"
    except NsysError as error:
        nsys = str(error)
    return Surroundings(
        pytest_nsys=VERSION,
        python=platform.python_version(),
        executable=sys.executable,
        pytest=pytest.__version__,
        plugin=_plugin(),
        nsys=nsys,
        extras={name: find_spec(module) is not None for name, module in EXTRAS.items()},
        notes=[*_about_path()],
    )


def _plugin() -> Plugin:
    """Whether pytest loads the plugin here; pytest is asked, as options and ini files of many kinds decide it."""
    import pytest

    probe, said = Looking(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = pytest.main([], plugins=[probe])
    config = probe.config
    if config is None:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        telling = [line for line in lines if "error: " in line.lower() and "usage:" not in line] or lines
        why = printable(telling[0] if telling else f"it ended with {code}", 300)
        return Plugin(active=False, why_not=f"pytest does not start here: {why}", rootdir=None, inifile=None)
    inifile, why = str(config.inipath) if config.inipath is not None else None, _why_inactive(config)
    return Plugin(active=not why, why_not=why, rootdir=str(config.rootpath), inifile=inifile)


def _why_inactive(config: pytest.Config) -> str:
    """Why pytest has not loaded the plugin; empty where it has."""
    manager = config.pluginmanager
    if any(getattr(plugin, "__name__", "") == MODULE for _, plugin in manager.list_name_plugin()):
        return ""
    if manager.is_blocked(PLUGIN) or manager.is_blocked(MODULE):
        return f"-p no:{PLUGIN} is in {_who_says(config, 'no:')}: take it out"
    if not entry_points(group="pytest11", name=PLUGIN):
        return f"{sys.executable} has no entry point of it: pip install pytest-nsys there"
    if os.environ.get(AUTOLOAD):
        return f"{AUTOLOAD} is set: unset it, or write -p {MODULE} into addopts"
    who = _who_says(config, "--disable-plugin-autoload")
    return f"--disable-plugin-autoload is in {who}: take it out, or write -p {MODULE} beside it"


def _about_path() -> Iterator[str]:
    """That the pytest that a person types is another one."""
    typed = shutil.which("pytest")
    if typed is not None and Path(typed).parent.resolve() != Path(sys.executable).parent.resolve():
        yield f"the pytest on PATH ({typed}) is not of this Python: `python -m pytest` is"


def _who_says(config: pytest.Config, word: str) -> str:
    if word in os.environ.get("PYTEST_ADDOPTS", ""):
        return "PYTEST_ADDOPTS"
    return f"addopts of {config.inipath}" if config.inipath is not None else "the options"
