"""What was found and got no verdict, or not its own: which assertions, which whole gate files, and who left them out?

pytest calls hooks that change the list of tests in the reverse order of their registration: those of conftest files,
then those of ``plugin.py``, then its own, which obey ``-k``, ``-m`` and ``--deselect``. What a hook of ``plugin.py``
does not see any more was dropped by the repository; what is gone behind pytest's own, by an option.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.file_names import gate_files_below, named_as_gate
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.words import counted, printable
from pytest_nsys.outcomes import NotRun
from pytest_nsys.plugin.base_ini import hidden_before, matches, narrowing, words_of
from pytest_nsys.plugin.items import GateItem
from pytest_nsys.plugin.saying import say
from pytest_nsys.plugin.session import session_of
from pytest_nsys.plugin.settings import install
from pytest_nsys.plugin.sources import GIVEN_BY, NOT_GIVEN
from pytest_nsys.reports.session.digest import (
    BROKEN_OFF,
    By,
    LeftOut,
    NotRunFile,
    left_out_groups,
    left_out_words,
    not_run_words,
)
from pytest_nsys.reports.session.record import Record

NAME = "nsys-selection"
SELECTED, TYPED, BY_OPTION, DROPPED = "selected", "typed", "by option", "dropped"
OUTPUT = "nsys_selection"
"""The name under which an xdist worker hands over what became of the assertions."""

ENVIRONMENTS = ("pyvenv.cfg", "conda-meta/history")
HIDING = ("collect_ignore", "collect_ignore_glob", "pytest_ignore_collect", "pytest_collect_directory")
"""What in a conftest.py can hide a file."""


def start(config: pytest.Config) -> None:
    """Have seen what gets no verdict, once in a session, unless it only collects."""
    if not config.getoption("collectonly", default=False) and not config.pluginmanager.has_plugin(NAME):
        install(config, Selection(config), NAME)


@dataclass(eq=False)
class Selection:
    """The plugin that sees which assertions pytest collects, and which of them got no verdict in the end."""

    config: pytest.Config
    fates: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """By node id: gate file, name, and what became of the assertion."""

    found: tuple[LeftOut, ...] = ()
    """Everything that was left out, by file and name, once the session ended."""

    _seen: list[set[str]] = field(default_factory=list)
    _typed: set[str] = field(default_factory=set)
    _judged: set[str] = field(default_factory=set)
    _mistaken: set[str] = field(default_factory=set)
    _why: dict[str, str] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """The assertions of a gate file are seen where it makes them: another such hook may drop some. Its mistakes go
        with the report, also from an xdist worker.
        """
        report = yield
        for item in getattr(collector, "made", ()):
            self.fates[item.nodeid] = (str(item.assertion.location.path), item.name, DROPPED)
        report.nsys_mistakes = getattr(collector, "mistakes", ())
        return report

    def look(self, items: Sequence[pytest.Item]) -> None:
        """Called before and after pytest's own options choose."""
        if not self._seen:
            typed = narrowing(words_of(self.config))
            self._typed = {item.nodeid for item in items if item.nodeid in self.fates and leaves_out(typed, item)}
        self._seen.append({item.nodeid for item in items})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Nothing is dropped any more; a worker tells the controller."""
        self.finish(session.items)
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[OUTPUT] = [[nodeid, *fate] for nodeid, fate in self.fates.items()]

    def finish(self, items: Iterable[pytest.Item]) -> None:
        """These are selected."""
        selected = {item.nodeid for item in items}
        chosen = self._seen[0] - self._seen[-1] if self._seen else set()
        asked = self._typed_ids()
        for nodeid, (file, name, _) in self.fates.items():
            others = asked.get(_place(Path(file)), set())
            typed = nodeid in self._typed or (others and nodeid.partition("::")[2] not in others)
            by = TYPED if typed else BY_OPTION if nodeid in chosen else DROPPED
            self.fates[nodeid] = (file, name, SELECTED if nodeid in selected else by)

    def _typed_ids(self) -> dict[Path, set[str]]:
        """By gate file what a person typed behind its ``::``; nothing of a file that is asked for as a whole, too."""
        typed, found = {*words_of(self.config)}, dict[Path, set[str]]()
        for path, _, name in (argument.partition("::") for argument in self.config.args):
            found.setdefault(_place(self._folders[0] / path), set()).add(name)
        whole = [place for place, names in found.items() if "" in names]
        return {
            place: {name for name in names if any(word.endswith(f"::{name}") for word in typed)}
            for place, names in found.items()
            if not any(place.is_relative_to(each) for each in whole)
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker of xdist found; all of them find the same."""
        told: Mapping[str, Any] = getattr(node, "workeroutput", {})
        self.fates |= {nodeid: (file, name, fate) for nodeid, file, name, fate in told.get(OUTPUT, ())}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._mistaken.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Which assertions got a verdict, and which of those is not the one that pytest tells."""
        record: Record | None = getattr(report, "nsys", None)
        if record is not None and str(report.outcome) != "rerun":
            self._judged.add(report.nodeid)
            self._why.pop(report.nodeid, None)
            if record.forced:
                self._why[report.nodeid] = f"marked {record.forced} by a conftest.py or a plugin"
            elif not record.good and not report.failed and not record.xfailed:
                why = f"its verdict is {record.outcome}, and a conftest.py or a plugin says {report.outcome}"
                self._why[report.nodeid] = why
        elif hasattr(report, "nsys_not_run"):
            self._judged.add(report.nodeid)
        elif report.failed:
            self._mistaken.add(report.nodeid)
        elif report.skipped and isinstance(report.longrepr, tuple):
            reason = printable(report.longrepr[2].removeprefix("Skipped: "), 400)
            self._why.setdefault(report.nodeid, f"skipped: {reason}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """What the repository left out is red where that is asked for."""
        if hasattr(self.config, "workerinput") or self.config.getoption("nsys_update_baselines"):
            return  # where baselines are written nothing is to have a verdict
        failed = session.exitstatus != pytest.ExitCode.OK
        ended = session.exitstatus in BROKEN_OFF or (failed and bool(session.shouldfail or session.shouldstop))
        self.found = tuple(self.left_out(self._judged - {*self._why}, ended=ended))
        branch = session_of(self.config).branch
        if branch is None or not branch.refuses_gate_changes or failed:
            return
        # Also what the item of gate changes says, which a conftest may have kept from it.
        if any(map(is_refused, self.found)) or branch.gate_changes({file for file, _, _ in self.fates.values()}).bad:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What was left out, but for what a person asked for."""
        for line in lines(one for one in self.found if one.by is not By.ARGUMENTS):
            say(terminalreporter, f"nsys: left out: {line}", yellow=True)

    def left_out(self, judged: Iterable[str], *, ended: bool = False) -> Iterator[LeftOut]:
        """Everything that was found and got no verdict, by file and name. ``judged`` are node ids; ``ended``: the
        session broke off, or was told to stop at a failure.
        """
        told = {*judged, *self._mistaken} - {*self._why}
        for nodeid, (file, name, fate) in sorted(self.fates.items(), key=lambda each: each[1]):
            if nodeid not in told:
                yield LeftOut(file, name, *self._why_one(nodeid, fate, ended))
        known = {_place(folder / file) for file in self._told_of() for folder in self._folders}
        own, branch = session_of(self.config), session_of(self.config).branch
        there = [*(branch.gate_files_asked() if branch is not None else ()), *found_files(self.config)]
        for path, spelled in sorted({_place(each): each for each in there}.items()):
            if path not in known:
                yield LeftOut(own.shown(spelled), "", *self._why_whole(path, ended))

    def refused(self, items: Sequence[pytest.Item]) -> list[LeftOut]:
        """What the repository leaves out, as far as it can be told before any of ``items`` runs."""
        self.finish(items)
        return [*filter(is_refused, self.left_out(item.nodeid for item in items))]

    def _why_one(self, nodeid: str, fate: str, ended: bool) -> tuple[By, str]:
        if fate == TYPED:
            return By.ARGUMENTS, "deselected by the arguments"
        if fate == BY_OPTION and any(self._in_force.values()):
            by, whose = self._whose
            return by, f"deselected by {whose}"
        if fate == DROPPED and (option := self._again):
            return option
        if fate != SELECTED:
            return By.REPOSITORY, "dropped by a conftest.py or a plugin"
        if nodeid in self._why:
            return By.REPOSITORY, self._why[nodeid]
        return (By.SESSION, "the session ended before it") if ended else (By.REPOSITORY, "not run")

    def _why_whole(self, path: Path, ended: bool) -> tuple[By, str]:
        asked = self._in_force
        ignored = [_place(self._folders[0] / each) for each in asked["ignore"] or ()]
        globs = [os.path.abspath(self._folders[0] / each) for each in asked["ignore_glob"] or ()]
        if any(path.is_relative_to(each) for each in ignored) or any(fnmatch(str(path), each) for each in globs):
            by, whose = self._whose
            return self._repository(path) if by is By.REPOSITORY else by, f"ignored by {whose}"
        if ended:
            return By.SESSION, "the session ended before it"
        return self._again or (self._repository(path), f"not collected: {self._hidden_by(path)}")

    def _repository(self, path: Path) -> By:
        """The merge base where that left the file out already, else the branch."""
        above = self._asked_above(path)
        top = max(above, key=lambda each: len(each.parts), default=path)
        inside = [each for each in (*reversed(path.parents), path) if each != top and each.is_relative_to(top)]
        return By.MERGE_BASE if any(map(self._hidden_before, inside)) else By.REPOSITORY

    def _asked_above(self, path: Path) -> list[Path]:
        """What pytest was to run that the path is, or lies in."""
        asked = (_place(self._folders[0] / each.partition("::")[0]) for each in self.config.args)
        return [each for each in asked if path.is_relative_to(each)]

    @kept
    def _hidden_before(self, path: Path) -> bool:
        return hidden_before(self.config, path)

    def _hidden_by(self, path: Path) -> str:
        """What in the repository keeps pytest from a file."""
        own = session_of(self.config)
        above = self._asked_above(path)
        if not above:
            said = "addopts names" if self.config.args_source is pytest.Config.ArgsSource.ARGS else "testpaths is"
            return f"{said} {', '.join(self.config.args)}"
        for folder in path.parents:
            for name in (name for name in ENVIRONMENTS if (folder / name).is_file()):
                return f"{own.shown(folder / name)} makes its folder a virtual environment"
            for pattern in self.config.getini("norecursedirs"):
                if folder not in above and matches(folder, pattern):
                    return f"norecursedirs has {pattern}"
            if folder in above:
                break
        for plugin in self.config.pluginmanager.get_plugins():
            file = Path(getattr(plugin, "__file__", None) or os.devnull)
            if file.name == "conftest.py" and path.is_relative_to(_place(file).parent):
                for name in (name for name in HIDING if hasattr(plugin, name)):
                    return f"{name} of {own.shown(_place(file))}"
        return "a conftest.py or a plugin"

    @property
    def _again(self) -> tuple[By, str] | None:
        """Whose wish it is that only what failed the last time runs."""
        chosen = any(self.config.getoption(name, default=False) for name in ("lf", "stepwise"))
        return (self._whose[0], f"left out by {self._whose[1]}") if chosen else None

    @property
    def _folders(self) -> tuple[Path, Path]:
        return self.config.invocation_params.dir, self.config.rootpath

    @property
    def _in_force(self) -> dict[str, Any]:
        return {name: self.config.getoption(name, default=none) for name, none in narrowing(()).items()}

    @property
    def _whose(self) -> tuple[By, str]:
        """Whose options leave tests out: the arguments' where they alone say what is in force."""
        if self._in_force == narrowing(words_of(self.config)):
            return By.ARGUMENTS, "the arguments"
        environment = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
        if narrowing(environment) != narrowing(()):
            return By.ENVIRONMENT, "PYTEST_ADDOPTS"
        return By.REPOSITORY, "addopts in the ini file"

    def _told_of(self) -> Iterator[str]:
        """The gate files of which pytest told anything, as they are shown or in node ids."""
        yield from (file for file, _, _ in self.fates.values())
        yield from (nodeid.partition("::")[0] for nodeid in (*self.fates, *self._mistaken))


def is_refused(one: LeftOut) -> bool:
    """Whether the repository left it out, and neither a person nor an early end."""
    return one.by is By.REPOSITORY


def lines(left_out: Iterable[LeftOut]) -> list[str]:
    """What was left out, each file with its reason in a line: ``gate.nsys.yaml: 1 assertion, skipped: slow``."""
    groups = left_out_groups(left_out).items()
    return [printable(f"{file}: {left_out_words(group)}", 1000) for (file, _), group in groups]


def _place(path: Path) -> Path:
    """Where a file lies, whichever links lead to its folder; it may be a link itself."""
    plain = Path(os.path.abspath(path))
    return plain.parent.resolve() / plain.name


def leaves_out(options: Mapping[str, Any], item: pytest.Item) -> bool:
    """Whether these options alone leave a test out, as far as names and marks without arguments say."""
    marks, names = {mark.name for mark in item.iter_markers()}, {*item.keywords, *item.extra_keyword_matches}
    return (
        item.nodeid.startswith(tuple(options["deselect"] or ()))
        or not _holds(options["markexpr"], marks.__contains__)
        or not _holds(options["keyword"], lambda word: any(word.lower() in name.lower() for name in names))
    )


def _holds(expression: str, of: Any) -> bool:
    """Whether an expression of ``-k`` or ``-m`` is true; also where nobody can say."""
    words = re.findall(r"[()]|[^\s()]+", expression)
    said = [word if word in ("(", ")", "and", "or", "not") else str(of(word)) for word in words]
    try:
        return not words or bool(eval(" ".join(said), {"__builtins__": {}}))  # of True, False, and, or, not
    except (SyntaxError, TypeError):
        return True


def found_files(config: pytest.Config) -> Iterator[Path]:
    """The gate files that stand in, or below, what pytest was to run, with the names that are mistakes, too."""
    for argument in config.args:
        path = Path(os.path.abspath(config.invocation_params.dir / argument.partition("::")[0]))
        if path.is_dir():
            yield from gate_files_below(path, named_as_gate)
        elif named_as_gate(path.name):
            yield path


# What had no trace: a gate file is one skip, however many assertions it has. Each of these runs and is skipped in its
# set-up, on whichever worker it is. The terminal counts the first of a gate file for all of them.

_FIRST = pytest.StashKey[dict[tuple[str, str], str]]()
_SILENT = "skipped", "", "SKIPPED"
"""Category, letter and word, which -v shows, of a skip that stands for none of its own."""


class NotRunTest(NamedTuple):
    """A test that had no trace: an assertion of a gate file, or another, of which no file is said. ``line`` is that of
    the file.
    """

    file: str
    configuration: str
    line: int
    name: str
    why: str


def hand_over(item: pytest.Item, why: NotRun, report: pytest.TestReport) -> None:
    """Have the report say which gate file was not run, and skip at its line."""
    line, file, configuration = (report.location[1] or 0) + 1, "", ""
    if isinstance(item, GateItem):
        file, configuration = str(item.assertion.location.path), item.gate.configuration
    report.nsys_not_run = NotRunTest(file, configuration, line, item.name, str(why))  # type: ignore[attr-defined]
    report.longrepr = (str(item.path), line, f"Skipped: {why}")


def _counts(report: Any, config: pytest.Config) -> bool:
    """Whether it is the first of its gate file, or of its configuration."""
    file = report.nsys_not_run[:2]
    return not file[0] or config.stash.setdefault(_FIRST, {}).setdefault(file, report.nodeid) == report.nodeid


def not_run_status(report: Any, config: pytest.Config) -> tuple[str, str, str] | None:
    """How pytest shows a report of a test that had no trace; None as any skip."""
    return None if _counts(report, config) else _SILENT


def count_once(stats: dict[str, list[Any]], config: pytest.Config) -> None:
    """Leave one skip of each gate file in what the terminal counts and lists."""
    stats["skipped"] = [each for each in stats["skipped"] if not hasattr(each, "nsys_not_run") or _counts(each, config)]


def not_run_files(reports: Iterable[Any]) -> list[NotRunFile]:
    """The gate files that had no trace, by path, each with the names of its assertions in order."""
    told: list[NotRunTest] = sorted(
        (report.nsys_not_run for report in reports), key=lambda test: (test.line, test.name)
    )
    found = grouped(((test.file, test.configuration, test.why), test.name) for test in told if test.file)
    return [NotRunFile(file, (*dict.fromkeys(names),), why, own) for (file, own, why), names in sorted(found.items())]


def not_run_lines(reports: Iterable[Any]) -> Iterator[str]:
    """What had no trace, and what gives it one."""
    told = list(reports)
    tests = len({report.nodeid for report in told if not report.nsys_not_run.file})
    if told:
        files = not_run_files(told)
        named = any(file.configuration for file in files)
        yield f"{not_run_words(files, tests)} {GIVEN_BY.replace('PATH', 'NAME=PATH') if named else GIVEN_BY}"
        for file in files:
            yield f"  {file.name}: {counted(len(file.assertions), 'assertion')}" + file.why.removeprefix(NOT_GIVEN)
