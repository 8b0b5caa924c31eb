"""What can be set on the command line and in the ini file? One table defines it for pytest, the checks and the docs.

This module is loaded in every pytest run of every project with the plugin, so checks import what they need themselves.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_nsys.verdicts.refresh_modes import RefreshOptions

ACCEPTANCE: pytest.StashKey[RefreshOptions] = pytest.StashKey()
"""The key under which ``pytest-nsys baseline`` passes which rows to write; without it, rows that changed are
written.
"""


class WorkTree(NamedTuple):
    """Describes a work tree that is judged with the merge base's gate files, baselines and ini files."""

    base_tree: Path  # the merge base's gate files, baselines and ini files
    top: Path  # the root of the work tree
    branch_tree: Path  # the baselines of the commit that is checked out
    ref: str  # names the merge base

    def find_path(self, path: Path) -> Path:
        """Return the path in the work tree for a path in the merge base's tree; any other path unchanged."""
        return self.top / path.relative_to(self.base_tree) if path.is_relative_to(self.base_tree) else path


JUDGED_TREE: pytest.StashKey[WorkTree] = pytest.StashKey()
"""The key under which a judge's process stores the judged work tree; unset in an ordinary session."""

WORK_TREE_SETTINGS = ("nsys_trace", "nsys_measurements", "nsys_history")
"""Settings whose paths are in the work tree even if the merge base's ini file sets them."""

# A branch must not decide how it is judged.
BASE_KEYS = {
    "nsys_accepted": (("fail", "pass"), "what a branch refreshed with a reason; read at the merge base"),
    "nsys_gate_changes": (("warn", "fail"), "a branch that changes gate files, ini sections or conftests; as above"),
}
"""Keys that are only read from the merge base's ini file, with their allowed values and a description."""


class Setting(NamedTuple):
    """Describes one option, and the ini key of the same name if ``ini`` has a help text."""

    name: str
    help: str
    metavar: str = ""  # empty for a flag
    ini: str = ""  # help text of the ini key
    is_repeatable: bool = False  # repeatable; in the ini file, one value per line
    needs_value: bool = False  # an empty value, e.g. from an unset variable, is an error
    check: Callable[[pytest.Config, Setting], None] | None = None  # called if the setting is given
    plugin_module: str = ""  # the module of this package whose start() is then called
    report_function: str = ""  # the function (module:name) that renders a report from a Session
    is_appended: bool = False  # appended to a shared file: the function also gets the bytes left

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def module(self) -> str:
        """Return the module of this package that implements the setting; empty if pytest's hooks do."""
        return self.plugin_module or ("reporting" if self.report_function else "")

    @property
    def ini_type(self) -> Literal["linelist", "bool", "string"]:
        return "linelist" if self.is_repeatable else "string" if self.metavar else "bool"

    def build_option_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of pytest's ``addoption``."""
        arguments: dict[str, Any] = {"help": self.help.replace("%", "%%")}  # argparse treats help as a format
        arguments |= {"metavar": self.metavar} if self.metavar else {"action": "store_true"}
        return arguments | ({"action": "append"} if self.is_repeatable else {})


def install(config: pytest.Config, plugin: object, name: str) -> None:
    """Register one of our plugins. Raises UsageError if ``-p no:NAME`` blocks it, because the gate would be
    incomplete.
    """
    if config.pluginmanager.register(plugin, name) is None:
        raise pytest.UsageError(f"-p no:{name} disables a part of pytest-nsys: remove it, also from addopts")


def read_setting(config: pytest.Config, name: str) -> Any:
    """Return the value of the option, else of the ini key; None if neither is given."""
    return read_setting_and_folder(config, name)[0]


def read_setting_and_folder(config: pytest.Config, name: str) -> tuple[Any, Path]:
    """Return the value from :func:`read_setting`, and the folder to which its paths are relative."""
    if option := config.getoption(name):
        return option, config.invocation_params.dir
    folder = config.inipath.parent if config.inipath is not None else config.rootpath
    if name in WORK_TREE_SETTINGS and (judged_tree := config.stash.get(JUDGED_TREE, None)) is not None:
        folder = judged_tree.find_path(folder)
    return (_read_ini(config, SETTINGS[name]) if SETTINGS[name].ini else None) or None, folder


def _read_ini(config: pytest.Config, setting: Setting) -> Any:
    try:
        return config.getini(setting.name)
    except ValueError as error:  # pytest 8 does not handle it
        raise pytest.UsageError(f"{setting.name}: {error}") from error


def split_configuration(value: str, folder: Path) -> tuple[str, str]:
    """Return configuration and path of ``NAME=PATH``; the configuration is empty if none is named.

    If the whole value exists, it is a path, and so is ``./NAME=PATH``.
    """
    if "=" not in value:
        return "", value
    from pytest_nsys.core.file_names import CONFIGURATION_PATTERN
    from pytest_nsys.traces.trace_files import matches_anything

    name, _, path = value.partition("=")
    if re.fullmatch(CONFIGURATION_PATTERN, name) is None or matches_anything(value, folder):
        return "", value
    return name, path


def format_whole_options(values: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield the options that name the judged files, with absolute paths, for a pytest in another folder."""
    for name in ("nsys_trace", "nsys_measurements", "nsys_against", "nsys_against_measurements"):
        for value in values.get(name) or ():
            configuration, path = split_configuration(value, folder)
            yield f"{SETTINGS[name].option}={configuration}{'=' * bool(configuration)}{folder / path}"
    if (history := values.get("nsys_history")) is not None:
        yield f"--nsys-history={folder / history}"
    if (executor := values.get("nsys_executor")) is not None:
        yield f"--nsys-executor={executor}"


def list_option_paths(config: pytest.Config, name: str) -> list[tuple[str, str]]:
    """List the values of an option as pairs of configuration and path."""
    return [split_configuration(value, config.invocation_params.dir) for value in config.getoption(name) or ()]


def find_setting_path(config: pytest.Config, name: str) -> Path | None:
    """Return the file or folder that a setting names; None if it names none."""
    value, folder = read_setting_and_folder(config, name)
    return folder / value if value else None


def is_distributed(config: pytest.Config) -> bool:
    """Whether xdist distributes the tests."""
    return bool(config.getoption("numprocesses", default=None)) or config.getoption("dist", default="no") != "no"


def check_settings(config: pytest.Config) -> list[Setting]:
    """Return the given settings. Raises pytest.UsageError, UsageMistake for invalid ones."""
    given_settings = [
        setting
        for setting in SETTINGS.values()
        if config.getoption(setting.name) not in (None, False) or read_setting(config, setting.name)
    ]
    for name, (choices, _) in BASE_KEYS.items():  # a typing error would disable the key
        if (value := config.getini(name)) not in ("", *choices):
            ini_place = f"{config.inipath.name}: " if config.inipath is not None else ""
            raise pytest.UsageError(f"{ini_place}{name} is {' or '.join(choices)}, not '{value}'")
    for setting in given_settings:
        option = config.getoption(setting.name)
        values = [] if option is None else option if setting.is_repeatable else [option]
        if setting.needs_value and not all(map(str.strip, values)):  # an empty path would be this folder
            raise pytest.UsageError(f"{setting.option} is empty: write {setting.option}={setting.metavar}")
        if setting.check is not None:
            setting.check(config, setting)
    return given_settings


def _is_utf8_text(text: str) -> bool:
    """Whether the typed bytes are valid text."""
    # Python represents other bytes as lone surrogates (PEP 383), which cannot be encoded.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_traces(config: pytest.Config, setting: Setting) -> None:
    """Check that each trace exists, and spell it as reports show it. Raises UsageMistake, pytest.UsageError."""
    from pytest_nsys.traces.trace_files import find_traces

    start_folder, values = config.invocation_params.dir, config.getoption(setting.name)
    if not values:
        return  # the items report errors in the ini file
    for value in values:
        if is_distributed(config) and not _is_utf8_text(value):  # xdist passes options on as text
            problem = "the path is not UTF-8, and workers cannot take it: leave -n out"
            raise pytest.UsageError(f"{setting.option}: {problem}")
    shown_traces = []
    for name, path in list_option_paths(config, setting.name):
        with _explain_configuration(setting, name, path):
            find_traces(path, start_folder)
        # Reports show traces this way: they leave the machine and should not reveal its folders.
        shown_traces.append(
            f"{name}={_shorten_path(start_folder, path)}" if name else _shorten_path(start_folder, path)
        )
    setattr(config.option, setting.name, shown_traces)


@contextlib.contextmanager
def _explain_configuration(setting: Setting, name: str, path: str) -> Iterator[None]:
    """Add to an error how the value was interpreted, because it may have been meant as a path."""
    try:
        yield
    except Exception as error:
        from pytest_nsys.core.errors import UsageMistake

        if not name or not isinstance(error, UsageMistake):
            raise
        reading_text = f"read as NAME=PATH of the configuration {name}; a path with '=' is written ./{name}={path}"
        raise UsageMistake(f"{setting.option}={name}={path}: {error} ({reading_text})") from error


def _check_measurements(config: pytest.Config, setting: Setting) -> None:
    from pytest_nsys.traces.sidecars.measurements import find_measurement_files

    for name, path in list_option_paths(config, setting.name):
        with _explain_configuration(setting, name, path):
            find_measurement_files(path, config.invocation_params.dir)


def _shorten_path(folder: Path, value: str) -> str:
    """Return a path as a person would type it from the folder, if it lies in the folder."""
    path = Path(value)
    short = str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else value
    return value if short.startswith("~") else short  # "~" would be a home folder


def _check_against(config: pytest.Config, setting: Setting) -> None:
    """Check the runs of the base together with those of head in the same configuration. Raises UsageMistake,
    pytest.UsageError.
    """
    from pytest_nsys.analysis.captures.cache import check_distinct_runs
    from pytest_nsys.traces.trace_files import find_traces

    if config.getoption("nsys_baseline_ref"):
        raise pytest.UsageError(
            "--nsys-against and --nsys-baseline-ref both say what the baseline is: give one, or run "
            "pytest-nsys baseline judge REF --against=PATH beside pytest"
        )
    _check_traces(config, setting)
    start_folder = config.invocation_params.dir
    head_paths, base_paths = (list_option_paths(config, name) for name in ("nsys_trace", setting.name))
    for name in dict.fromkeys(path_name for path_name, _ in head_paths):
        runs = (
            [file for path_name, path in run if path_name == name for file in find_traces(path, start_folder)]
            for run in (head_paths, base_paths)
        )
        check_distinct_runs(*runs)


def _check_executor(config: pytest.Config, setting: Setting) -> None:
    from pytest_nsys.tools.executors import parse_executor

    option = config.getoption(setting.name)
    parse_executor(config.getini(setting.name) if option is None else option)


def _check_ref(config: pytest.Config, setting: Setting) -> None:
    ref = config.getoption(setting.name)
    if ref is None:
        return
    if not ref.strip() or ref.startswith("-"):  # empty like an unset $BASE, or an option of git
        raise pytest.UsageError(f"--nsys-baseline-ref={ref}: is not a ref: write --nsys-baseline-ref=origin/main")


def _check_update(config: pytest.Config, setting: Setting) -> None:
    from pytest_nsys.core.text_format import has_words

    reason = config.getoption("nsys_reason") or ""
    if not has_words(reason):
        raise pytest.UsageError(f'{setting.option} needs a reason: --nsys-reason "why the new normal is right"')
    if not _is_utf8_text(reason):
        raise pytest.UsageError("--nsys-reason is not UTF-8 text, as baselines are: write it again")
    if config.getoption("nsys_baseline_ref"):
        raise pytest.UsageError("--nsys-baseline-ref reads baselines from git, where none can be updated: leave it out")
    if config.getoption("nsys_against") or config.getoption("nsys_against_measurements"):
        raise pytest.UsageError("--nsys-against replaces the stored baselines: nothing to update")
    if is_distributed(config) or hasattr(config, "workerinput"):
        raise pytest.UsageError(f"{setting.option} writes from one process: run it without -n (or with -n 0)")


def _check_reason(config: pytest.Config, setting: Setting) -> None:
    if not config.getoption("nsys_update_baselines"):
        raise pytest.UsageError(f"{setting.option} says why baselines change: give --nsys-update-baselines too")


_TABLE = (
    Setting(
        "nsys_trace",
        "trace to judge: a file, folder or glob is one run. Repeat for captures of one program: rows are medians. "
        "Write the equals sign. NAME=PATH: a configuration of a gate file's matrix, also in the options below.",
        "PATH",
        ini="traces to judge, one capture a line, relative to the ini file",
        is_repeatable=True,
        needs_value=True,
        check=_check_traces,
    ),
    Setting(
        "nsys_strict",
        "fail gate files without a trace instead of skipping them; implied where CI is set",
        ini="fail gate files without a trace",
    ),
    Setting(
        "nsys_measurements",
        "JSON with values of the program, for sentences such as 'measured mfu >= 45%': a file or glob. Repeat for each "
        "capture, in the order of the traces.",
        "FILE",
        ini="measurements, those of one capture a line, relative to the ini file",
        is_repeatable=True,
        needs_value=True,
        check=_check_measurements,
    ),
    Setting(
        "nsys_against",
        "trace of the base, which replaces the stored baselines. Repeat for its captures; with five or more a side a "
        "test decides.",
        "PATH",
        is_repeatable=True,
        needs_value=True,
        check=_check_against,
    ),
    Setting(
        "nsys_against_measurements",
        "measurements of the base: one per --nsys-against in its order, or alone",
        "FILE",
        is_repeatable=True,
        needs_value=True,
        check=_check_measurements,
    ),
    Setting(
        "nsys_executor",
        "how to read the traces: serial (default), processes:N, or dask:ADDRESS",
        "EXECUTOR",
        ini="how to read the traces",
        check=_check_executor,
    ),
    Setting(
        "nsys_baseline_dir",
        "folder of the stored baselines (default: baselines/)",
        "DIR",
        ini="folder of the stored baselines, relative to the ini file",
    ),
    Setting(
        "nsys_baseline_ref",
        "also judge by the gate files and baselines at the git merge base of REF (origin/main) and HEAD",
        "REF",
        check=_check_ref,
        plugin_module="merge_base",
    ),
    Setting(
        "nsys_update_baselines",
        "write the rows that moved, and the windows, of this run as the new baselines instead of judging them; needs "
        "--nsys-reason",
        check=_check_update,
    ),
    Setting("nsys_reason", "why the baselines change; stored with them", "TEXT", check=_check_reason),
    Setting(
        "nsys_json",
        "write every assertion with all rows as JSON",
        "FILE",
        needs_value=True,
        report_function="pytest_nsys.reports.session.json_report:render_report",
    ),
    Setting(
        "nsys_brief",
        "write the session in brief, JSON under 8 kB",
        "FILE",
        needs_value=True,
        report_function="pytest_nsys.reports.session.session_brief:render_session_brief",
    ),
    Setting(
        "nsys_summary",
        "append a Markdown summary under 1 MiB, as for $GITHUB_STEP_SUMMARY",
        "FILE",
        needs_value=True,
        report_function="pytest_nsys.reports.session.markdown:render_summary",
        is_appended=True,
    ),
    Setting(
        "nsys_html",
        "write the HTML page: verdicts, margins, causes, timelines, trend",
        "FILE",
        needs_value=True,
        report_function="pytest_nsys.reports.page.session_page:render_session_page",
    ),
    Setting(
        "nsys_annotate",
        "print GitHub annotations at gate file lines, at most ten of each kind",
        plugin_module="reporting",
    ),
    Setting(
        "nsys_artifacts",
        "write the window of each failed assertion into this folder as a small trace, beside that of the base",
        "DIR",
        ini="folder of the windows of failed assertions, relative to the ini file",
        needs_value=True,
        plugin_module="artifacts",
    ),
    Setting(
        "nsys_history",
        "add the rows and verdicts of this session to this SQLite database",
        "PATH",
        ini="SQLite database of all sessions, relative to the ini file",
        needs_value=True,
        plugin_module="recorder",
    ),
)
SETTINGS = {setting.name: setting for setting in _TABLE}
