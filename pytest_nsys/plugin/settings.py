"""What can be set on the command line and in the ini file? One table says it: pytest, the checks and the docs go by it.

This module loads in every pytest run of every project that has the plugin: what a check needs is imported by it.
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
"""Key under which ``pytest-nsys baseline`` hands over what is written; pytest itself writes what moved."""


class WorkTree(NamedTuple):
    """Describes what is judged where a merge base judges: a work tree, with the merge base's gate files, baselines and
    ini files in place of its own.
    """

    base_tree: Path  # of the merge base: its gate files, baselines and ini files
    top: Path  # of the work tree
    branch_tree: Path  # with the baselines of the commit that is checked out
    ref: str  # names the merge base

    def find_path(self, path: Path) -> Path:
        """Return the place in the work tree of a path in the merge base's tree; any other path as it is."""
        return self.top / path.relative_to(self.base_tree) if path.is_relative_to(self.base_tree) else path


JUDGED_TREE: pytest.StashKey[WorkTree] = pytest.StashKey()
"""Key under which the process of a judge knows what it judges; an ordinary session has none."""

WORK_TREE_SETTINGS = ("nsys_trace", "nsys_measurements", "nsys_history")
"""Settings whose files are those of the work tree, also where the ini file of a merge base names them."""

# A branch does not decide how it is judged.
BASE_KEYS = {
    "nsys_accepted": (("fail", "pass"), "what a branch refreshed with a reason; read at the merge base"),
    "nsys_gate_changes": (("warn", "fail"), "a branch that changes gate files, ini sections or conftests; as above"),
}
"""Keys that count in the ini file of the merge base alone, with their values and what they are about."""


class Setting(NamedTuple):
    """Describes one option, and the ini key of the same name where ``ini`` has a help for it."""

    name: str
    help: str
    metavar: str = ""  # an option without one is a flag
    ini: str = ""  # help of the ini key
    is_repeatable: bool = False  # it may be repeated, and each line of the ini file is one value
    needs_value: bool = False  # an empty value, as of a variable that nobody set, is a mistake
    check: Callable[[pytest.Config, Setting], None] | None = None  # called where it is given
    plugin_module: str = ""  # the module of this package whose start() then does its work
    report_function: str = ""  # the function, as module:name, that makes the text of a report from a Session
    is_appended: bool = False  # to a file that others write to as well: writes is told the bytes that are left, too

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def module(self) -> str:
        """Return the module of this package that does its work; empty where pytest's hooks do."""
        return self.plugin_module or ("reporting" if self.report_function else "")

    @property
    def ini_type(self) -> Literal["linelist", "bool", "string"]:
        return "linelist" if self.is_repeatable else "string" if self.metavar else "bool"

    def build_option_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of pytest's ``addoption``."""
        arguments: dict[str, Any] = {"help": self.help.replace("%", "%%")}  # argparse fills it in as a format
        arguments |= {"metavar": self.metavar} if self.metavar else {"action": "store_true"}
        return arguments | ({"action": "append"} if self.is_repeatable else {})


def install(config: pytest.Config, plugin: object, name: str) -> None:
    """Register a plugin of ours. Raises UsageError where ``-p no:NAME`` keeps it out: half of a gate is none."""
    if config.pluginmanager.register(plugin, name) is None:
        raise pytest.UsageError(f"-p no:{name} disables a part of pytest-nsys: remove it, also from addopts")


def read_setting(config: pytest.Config, name: str) -> Any:
    """Return the value of the option, else that of the ini key; None where neither is given."""
    return read_setting_and_folder(config, name)[0]


def read_setting_and_folder(config: pytest.Config, name: str) -> tuple[Any, Path]:
    """Return what :func:`read_setting` does, and the folder that its paths are relative to."""
    if option := config.getoption(name):
        return option, config.invocation_params.dir
    folder = config.inipath.parent if config.inipath is not None else config.rootpath
    if name in WORK_TREE_SETTINGS and (judged_tree := config.stash.get(JUDGED_TREE, None)) is not None:
        folder = judged_tree.find_path(folder)
    return (_read_ini(config, SETTINGS[name]) if SETTINGS[name].ini else None) or None, folder


def _read_ini(config: pytest.Config, setting: Setting) -> Any:
    try:
        return config.getini(setting.name)
    except ValueError as error:  # pytest 8 leaves it to who asks
        raise pytest.UsageError(f"{setting.name}: {error}") from error


def split_configuration(value: str, folder: Path) -> tuple[str, str]:
    """Return the configuration that ``NAME=PATH`` names, empty where it names none, and the path.

    What exists as a whole is a path, and so is ``./NAME=PATH``.
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
    """Yield the options that say what is judged, with whole paths, for a pytest that runs elsewhere."""
    for name in ("nsys_trace", "nsys_measurements", "nsys_against", "nsys_against_measurements"):
        for value in values.get(name) or ():
            configuration, path = split_configuration(value, folder)
            yield f"{SETTINGS[name].option}={configuration}{'=' * bool(configuration)}{folder / path}"
    if (history := values.get("nsys_history")) is not None:
        yield f"--nsys-history={folder / history}"
    if (executor := values.get("nsys_executor")) is not None:
        yield f"--nsys-executor={executor}"


def list_option_paths(config: pytest.Config, name: str) -> list[tuple[str, str]]:
    """List the values of an option, each as the configuration that it names and the path."""
    return [split_configuration(value, config.invocation_params.dir) for value in config.getoption(name) or ()]


def find_setting_path(config: pytest.Config, name: str) -> Path | None:
    """Return the file or folder that a setting names; None where it names none."""
    value, folder = read_setting_and_folder(config, name)
    return folder / value if value else None


def is_distributed(config: pytest.Config) -> bool:
    """Whether xdist distributes the tests."""
    return bool(config.getoption("numprocesses", default=None)) or config.getoption("dist", default="no") != "no"


def check_settings(config: pytest.Config) -> list[Setting]:
    """Return the settings that are given. Raises pytest.UsageError, UsageMistake for what cannot be meant."""
    given_settings = [
        setting
        for setting in SETTINGS.values()
        if config.getoption(setting.name) not in (None, False) or read_setting(config, setting.name)
    ]
    for name, (choices, _) in BASE_KEYS.items():  # a slip of the pen would turn the key off
        if (value := config.getini(name)) not in ("", *choices):
            ini_place = f"{config.inipath.name}: " if config.inipath is not None else ""
            raise pytest.UsageError(f"{ini_place}{name} is {' or '.join(choices)}, not '{value}'")
    for setting in given_settings:
        option = config.getoption(setting.name)
        values = [] if option is None else option if setting.is_repeatable else [option]
        if setting.needs_value and not all(map(str.strip, values)):  # a path would mean this folder
            raise pytest.UsageError(f"{setting.option} is empty: write {setting.option}={setting.metavar}")
        if setting.check is not None:
            setting.check(config, setting)
    return given_settings


def _is_utf8_text(text: str) -> bool:
    """Whether the bytes that were typed are text."""
    # Python keeps other bytes as halves of a surrogate pair (PEP 383), which no file takes.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_traces(config: pytest.Config, setting: Setting) -> None:
    """Check that each trace is there, and spell it as reports name it. Raises UsageMistake, pytest.UsageError."""
    from pytest_nsys.traces.trace_files import find_traces

    start_folder, values = config.invocation_params.dir, config.getoption(setting.name)
    if not values:
        return  # what the ini file says is an error of the items
    for value in values:
        if is_distributed(config) and not _is_utf8_text(value):  # xdist hands options on as text
            problem = "the path is not UTF-8, and workers cannot take it: leave -n out"
            raise pytest.UsageError(f"{setting.option}: {problem}")
    shown_traces = []
    for name, path in list_option_paths(config, setting.name):
        with _explain_configuration(setting, name, path):
            find_traces(path, start_folder)
        # Reports name traces so, and leave the machine: its folders need not.
        shown_traces.append(
            f"{name}={_shorten_path(start_folder, path)}" if name else _shorten_path(start_folder, path)
        )
    setattr(config.option, setting.name, shown_traces)


@contextlib.contextmanager
def _explain_configuration(setting: Setting, name: str, path: str) -> Iterator[None]:
    """Let an error inside say how the value was read, where a path may have been meant."""
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
    """Return a path as a person would type it from the folder, where it lies in it."""
    path = Path(value)
    short = str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else value
    return value if short.startswith("~") else short  # there it would be somebody's home


def _check_against(config: pytest.Config, setting: Setting) -> None:
    """Check the runs of the base beside those of the same configuration. Raises UsageMistake, pytest.UsageError."""
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
    if not ref.strip() or ref.startswith("-"):  # empty, as $BASE is where nobody set it; or an option of git
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
        "write the window of each failed assertion into this folder as a small trace, beside that of the run before",
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
