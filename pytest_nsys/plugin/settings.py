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

    from pytest_nsys.verdicts.refresh_modes import Acceptance

ACCEPTANCE: pytest.StashKey[Acceptance] = pytest.StashKey()
"""Key under which ``pytest-nsys baseline`` hands over what is written; pytest itself writes what moved."""


class WorkTree(NamedTuple):
    """Describes what is judged where a merge base judges: a work tree, with the merge base's gate files, baselines and
    ini files in place of its own.
    """

    tree: Path  # of the merge base: its gate files, baselines and ini files
    top: Path  # of the work tree
    branch: Path  # with the baselines of the commit that is checked out
    ref: str  # names the merge base

    def find(self, path: Path) -> Path:
        """Return the place in the work tree of a path in the merge base's tree; any other path as it is."""
        return self.top / path.relative_to(self.tree) if path.is_relative_to(self.tree) else path


JUDGED_TREE: pytest.StashKey[WorkTree] = pytest.StashKey()
"""Key under which the process of a judge knows what it judges; an ordinary session has none."""

OF_THE_RUN = ("nsys_trace", "nsys_measurements", "nsys_history")
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
    many: bool = False  # it may be repeated, and each line of the ini file is one value
    filled: bool = False  # an empty value, as of a variable that nobody set, is a mistake
    check: Callable[[pytest.Config, Setting], None] | None = None  # called where it is given
    starts: str = ""  # the module of this package whose start() then does its work
    writes: str = ""  # the function, as module:name, that makes the text of a report from a Session
    appends: bool = False  # to a file that others write to as well: writes is told the bytes that are left, too

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def module(self) -> str:
        """Return the module of this package that does its work; empty where pytest's hooks do."""
        return self.starts or ("reporting" if self.writes else "")

    @property
    def ini_type(self) -> Literal["linelist", "bool", "string"]:
        return "linelist" if self.many else "string" if self.metavar else "bool"

    def option_words(self) -> dict[str, Any]:
        """Return the keyword arguments of pytest's ``addoption``."""
        arguments: dict[str, Any] = {"help": self.help.replace("%", "%%")}  # argparse fills it in as a format
        arguments |= {"metavar": self.metavar} if self.metavar else {"action": "store_true"}
        return arguments | ({"action": "append"} if self.many else {})


def install(config: pytest.Config, plugin: object, name: str) -> None:
    """Register a plugin of ours. Raises UsageError where ``-p no:NAME`` keeps it out: half of a gate is none."""
    if config.pluginmanager.register(plugin, name) is None:
        raise pytest.UsageError(f"-p no:{name} disables a part of pytest-nsys: remove it, also from addopts")


def given(config: pytest.Config, name: str) -> Any:
    """Return the value of the option, else that of the ini key; None where neither is given."""
    return in_force(config, name)[0]


def in_force(config: pytest.Config, name: str) -> tuple[Any, Path]:
    """Return what :func:`read_setting` does, and the folder that its paths are relative to."""
    if option := config.getoption(name):
        return option, config.invocation_params.dir
    folder = config.inipath.parent if config.inipath is not None else config.rootpath
    if name in OF_THE_RUN and (judged_tree := config.stash.get(JUDGED_TREE, None)) is not None:
        folder = judged_tree.find(folder)
    return (_ini(config, SETTINGS[name]) if SETTINGS[name].ini else None) or None, folder


def _ini(config: pytest.Config, setting: Setting) -> Any:
    try:
        return config.getini(setting.name)
    except ValueError as error:  # pytest 8 leaves it to who asks
        raise pytest.UsageError(f"{setting.name}: {error}") from error


def split(value: str, folder: Path) -> tuple[str, str]:
    """Return the configuration that ``NAME=PATH`` names, empty where it names none, and the path.

    What exists as a whole is a path, and so is ``./NAME=PATH``.
    """
    if "=" not in value:
        return "", value
    from pytest_nsys.core.file_names import CONFIGURATION
    from pytest_nsys.traces.opening import is_there

    name, _, path = value.partition("=")
    if re.fullmatch(CONFIGURATION, name) is None or is_there(value, folder):
        return "", value
    return name, path


def spell_whole_options(values: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield the options that say what is judged, with whole paths, for a pytest that runs elsewhere."""
    for name in ("nsys_trace", "nsys_measurements", "nsys_against", "nsys_against_measurements"):
        for value in values.get(name) or ():
            configuration, path = split(value, folder)
            yield f"{SETTINGS[name].option}={configuration}{'=' * bool(configuration)}{folder / path}"
    if (history := values.get("nsys_history")) is not None:
        yield f"--nsys-history={folder / history}"
    if (executor := values.get("nsys_executor")) is not None:
        yield f"--nsys-executor={executor}"


def paths_of(config: pytest.Config, name: str) -> list[tuple[str, str]]:
    """List the values of an option, each as the configuration that it names and the path."""
    return [split(value, config.invocation_params.dir) for value in config.getoption(name) or ()]


def path_of(config: pytest.Config, name: str) -> Path | None:
    """Return the file or folder that a setting names; None where it names none."""
    value, folder = in_force(config, name)
    return folder / value if value else None


def workers(config: pytest.Config) -> bool:
    """Whether xdist distributes the tests."""
    return bool(config.getoption("numprocesses", default=None)) or config.getoption("dist", default="no") != "no"


def check(config: pytest.Config) -> list[Setting]:
    """Return the settings that are given. Raises pytest.UsageError, UsageMistake for what cannot be meant."""
    given_settings = [
        setting
        for setting in SETTINGS.values()
        if config.getoption(setting.name) not in (None, False) or given(config, setting.name)
    ]
    for name, (choices, _) in BASE_KEYS.items():  # a slip of the pen would turn the key off
        if (value := config.getini(name)) not in ("", *choices):
            ini_place = f"{config.inipath.name}: " if config.inipath is not None else ""
            raise pytest.UsageError(f"{ini_place}{name} is {' or '.join(choices)}, not '{value}'")
    for setting in given_settings:
        option = config.getoption(setting.name)
        values = [] if option is None else option if setting.many else [option]
        if setting.filled and not all(map(str.strip, values)):  # a path would mean this folder
            raise pytest.UsageError(f"{setting.option} is empty: write {setting.option}={setting.metavar}")
        if setting.check is not None:
            setting.check(config, setting)
    return given_settings


def _is_unicode(text: str) -> bool:
    """Whether the bytes that were typed are text."""
    # Python keeps other bytes as halves of a surrogate pair (PEP 383), which no file takes.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_traces(config: pytest.Config, setting: Setting) -> None:
    """Check that each trace is there, and spell it as reports name it. Raises UsageMistake, pytest.UsageError."""
    from pytest_nsys.traces.opening import find_traces

    start_folder, values = config.invocation_params.dir, config.getoption(setting.name)
    if not values:
        return  # what the ini file says is an error of the items
    for value in values:
        if workers(config) and not _is_unicode(value):  # xdist hands options on as text
            problem = "the path is not UTF-8, and workers cannot take it: leave -n out"
            raise pytest.UsageError(f"{setting.option}: {problem}")
    shown_traces = []
    for name, path in paths_of(config, setting.name):
        with _of_configuration(setting, name, path):
            find_traces(path, start_folder)
        # Reports name traces so, and leave the machine: its folders need not.
        shown_traces.append(f"{name}={_from(start_folder, path)}" if name else _from(start_folder, path))
    setattr(config.option, setting.name, shown_traces)


@contextlib.contextmanager
def _of_configuration(setting: Setting, name: str, path: str) -> Iterator[None]:
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
    from pytest_nsys.traces.measurements import find_measurements

    for name, path in paths_of(config, setting.name):
        with _of_configuration(setting, name, path):
            find_measurements(path, config.invocation_params.dir)


def _from(folder: Path, value: str) -> str:
    """Return a path as a person would type it from the folder, where it lies in it."""
    path = Path(value)
    short = str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else value
    return value if short.startswith("~") else short  # there it would be somebody's home


def _check_against(config: pytest.Config, setting: Setting) -> None:
    """Check the runs of the base beside those of the same configuration. Raises UsageMistake, pytest.UsageError."""
    from pytest_nsys.analysis.captures.cache import check_two_runs
    from pytest_nsys.traces.opening import find_traces

    if config.getoption("nsys_baseline_ref"):
        raise pytest.UsageError(
            "--nsys-against and --nsys-baseline-ref both say what the baseline is: give one, or run "
            "pytest-nsys baseline judge REF --against=PATH beside pytest"
        )
    _check_traces(config, setting)
    start_folder = config.invocation_params.dir
    head_paths, base_paths = (paths_of(config, name) for name in ("nsys_trace", setting.name))
    for name in dict.fromkeys(path_name for path_name, _ in head_paths):
        runs = (
            [file for path_name, path in run if path_name == name for file in find_traces(path, start_folder)]
            for run in (head_paths, base_paths)
        )
        check_two_runs(*runs)


def _check_executor(config: pytest.Config, setting: Setting) -> None:
    from pytest_nsys.tools.executors import check_executor

    option = config.getoption(setting.name)
    check_executor(config.getini(setting.name) if option is None else option)


def _check_ref(config: pytest.Config, setting: Setting) -> None:
    ref = config.getoption(setting.name)
    if ref is None:
        return
    if not ref.strip() or ref.startswith("-"):  # empty, as $BASE is where nobody set it; or an option of git
        raise pytest.UsageError(f"--nsys-baseline-ref={ref}: is not a ref: write --nsys-baseline-ref=origin/main")


def _check_update(config: pytest.Config, setting: Setting) -> None:
    from pytest_nsys.core.words import has_words

    reason = config.getoption("nsys_reason") or ""
    if not has_words(reason):
        raise pytest.UsageError(f'{setting.option} needs a reason: --nsys-reason "why the new normal is right"')
    if not _is_unicode(reason):
        raise pytest.UsageError("--nsys-reason is not UTF-8 text, as baselines are: write it again")
    if config.getoption("nsys_baseline_ref"):
        raise pytest.UsageError("--nsys-baseline-ref reads baselines from git, where none can be updated: leave it out")
    if config.getoption("nsys_against") or config.getoption("nsys_against_measurements"):
        raise pytest.UsageError("--nsys-against replaces the stored baselines: nothing to update")
    if workers(config) or hasattr(config, "workerinput"):
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
        many=True,
        filled=True,
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
        many=True,
        filled=True,
        check=_check_measurements,
    ),
    Setting(
        "nsys_against",
        "trace of the base, which replaces the stored baselines. Repeat for its captures; with five or more a side a "
        "test decides.",
        "PATH",
        many=True,
        filled=True,
        check=_check_against,
    ),
    Setting(
        "nsys_against_measurements",
        "measurements of the base: one per --nsys-against in its order, or alone",
        "FILE",
        many=True,
        filled=True,
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
        starts="merge_base",
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
        filled=True,
        writes="pytest_nsys.reports.session.json_report:report_text",
    ),
    Setting(
        "nsys_summary",
        "append a Markdown summary under 1 MiB, as for $GITHUB_STEP_SUMMARY",
        "FILE",
        filled=True,
        writes="pytest_nsys.reports.session.markdown:summary",
        appends=True,
    ),
    Setting(
        "nsys_html",
        "write the HTML page: verdicts, margins, causes, timelines, trend",
        "FILE",
        filled=True,
        writes="pytest_nsys.reports.page.session_page:session_page",
    ),
    Setting(
        "nsys_annotate",
        "print GitHub annotations at gate file lines, at most ten of each kind",
        starts="reporting",
    ),
    Setting(
        "nsys_artifacts",
        "write the window of each failed assertion into this folder as a small trace, beside that of the run before",
        "DIR",
        ini="folder of the windows of failed assertions, relative to the ini file",
        filled=True,
        starts="artifacts",
    ),
    Setting(
        "nsys_history",
        "add the rows and verdicts of this session to this SQLite database",
        "PATH",
        ini="SQLite database of all sessions, relative to the ini file",
        filled=True,
        starts="recorder",
    ),
)
SETTINGS = {setting.name: setting for setting in _TABLE}
