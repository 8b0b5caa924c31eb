"""What was found and got no verdict: which assertions, which whole gate files, and who left them out?

pytest calls hooks that change the list of tests in the reverse order of their registration: those of conftest files,
then those of ``plugin.py``, then its own, which obey ``-k``, ``-m`` and ``--deselect``. What a hook of ``plugin.py``
does not see any more was dropped by the repository; what is gone behind pytest's own, by an option.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.file_names import GATE_SUFFIX, gate_files_below, named_as_gate
from pytest_nsys.reports.session.digest import By, LeftOut

SELECTED, BY_OPTION, DROPPED = "selected", "by option", "dropped"
OUTPUT = "nsys_selection"
"""The name under which an xdist worker hands over what became of the assertions."""


@dataclass(eq=False)
class Selection:
    """The plugin that sees which assertions pytest collects, and which of them got no verdict in the end."""

    config: pytest.Config
    fates: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """By node id: gate file, name, and what became of the assertion."""

    _seen: list[set[str]] = field(default_factory=list)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        assertion = getattr(item, "assertion", None)
        if assertion is not None and item.path.name.endswith(GATE_SUFFIX):
            self.fates[item.nodeid] = (str(assertion.location.path), item.name, DROPPED)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """The mistakes of a gate file go with its report, also from an xdist worker."""
        report = yield
        report.nsys_mistakes = [list(mistake) for mistake in getattr(collector, "mistakes", ())]
        return report

    def look(self, items: Iterable[pytest.Item]) -> None:
        """Called before and after pytest's own options choose."""
        self._seen.append({item.nodeid for item in items})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Nothing is dropped any more; a worker tells the controller."""
        selected = {item.nodeid for item in session.items}
        chosen = self._seen[0] - self._seen[-1] if self._seen else set()
        for nodeid, (file, name, _) in self.fates.items():
            fate = SELECTED if nodeid in selected else BY_OPTION if nodeid in chosen else DROPPED
            self.fates[nodeid] = (file, name, fate)
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[OUTPUT] = [[nodeid, *fate] for nodeid, fate in self.fates.items()]

    def hear(self, output: Mapping[str, Any]) -> None:
        """What a worker found; all of them find the same."""
        self.fates |= {nodeid: (file, name, fate) for nodeid, file, name, fate in output.get(OUTPUT, ())}

    def left_out(
        self, judged: Collection[str], skipped: Mapping[str, str], mistaken: Collection[str], *, ended: bool
    ) -> Iterator[LeftOut]:
        """Everything that was found and got no verdict, by file and name.

        ``judged`` and ``mistaken`` are node ids; ``skipped`` has reasons by node id. ``ended``: the session broke off,
        or was told to stop at a failure.
        """
        for nodeid, (file, name, fate) in sorted(self.fates.items(), key=lambda each: each[1]):
            if nodeid not in judged and nodeid not in mistaken:
                yield LeftOut(file, name, *self._why(fate, skipped.get(nodeid), ended))
        here = self.config.invocation_params.dir
        for path in sorted(set(found_files(self.config)) - self._known(mistaken)):
            shown = str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
            yield LeftOut(shown, "", *self._why_whole(path, ended))

    def _why(self, fate: str, skipped: str | None, ended: bool) -> tuple[By, str]:
        if fate == BY_OPTION and any(self._in_force.values()):
            by, whose = self._whose
            return by, f"deselected by {whose}"
        if fate != SELECTED:
            return By.REPOSITORY, "dropped by a conftest.py or a plugin"
        if skipped is not None:
            return By.REPOSITORY, f"skipped: {skipped}"
        return (By.SESSION, "the session ended before it") if ended else (By.REPOSITORY, "not run")

    def _why_whole(self, path: Path, ended: bool) -> tuple[By, str]:
        here, asked = self.config.invocation_params.dir, self._in_force
        paths = [Path(os.path.abspath(here / each)) for each in asked["ignore"] or ()]
        globs = [os.path.abspath(here / each) for each in asked["ignore_glob"] or ()]
        if any(path.is_relative_to(each) for each in paths) or any(fnmatch(str(path), each) for each in globs):
            by, whose = self._whose
            return by, f"ignored by {whose}"
        if ended:
            return By.SESSION, "the session ended before it"
        return By.REPOSITORY, "not collected: collect_ignore, norecursedirs, a conftest.py or a plugin"

    @property
    def _in_force(self) -> dict[str, Any]:
        return {name: self.config.getoption(name) for name in narrowing(())}

    @property
    def _whose(self) -> tuple[By, str]:
        """Whose options leave tests out: the arguments' where they alone say what is in force."""
        if self._in_force == narrowing(list(map(str, self.config.invocation_params.args))):
            return By.ARGUMENTS, "the arguments"
        environment = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
        if narrowing(environment) != narrowing(()):
            return By.ENVIRONMENT, "PYTEST_ADDOPTS"
        return By.REPOSITORY, "addopts in the ini file"

    def _known(self, mistaken: Collection[str]) -> set[Path]:
        """The gate files of which pytest told anything."""
        here, root = self.config.invocation_params.dir, self.config.rootpath
        files = {file for file, _, _ in self.fates.values()} | {nodeid.partition("::")[0] for nodeid in mistaken}
        return {Path(os.path.abspath(folder / file)) for file in files for folder in (here, root)}


def narrowing(words: Sequence[str]) -> dict[str, Any]:
    """The options among these words that leave tests out, by pytest's names for them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-k", dest="keyword", default="")
    parser.add_argument("-m", dest="markexpr", default="")
    for name in ("deselect", "ignore", "ignore-glob"):
        parser.add_argument(f"--{name}", action="append")
    parser.add_argument("-x", "-v", "-q", "-s", "-l", dest="letters", action="count")  # they may stand in one word
    found = vars(parser.parse_known_args(list(words))[0])
    return {name: value for name, value in found.items() if name != "letters"}


def found_files(config: pytest.Config) -> Iterator[Path]:
    """The gate files that stand in, or below, what pytest was to run, with the ending that is a mistake too."""
    for argument in config.args:
        path = Path(os.path.abspath(config.invocation_params.dir / argument.partition("::")[0]))
        if path.is_dir():
            yield from gate_files_below(path, named_as_gate)
        elif named_as_gate(path.name):
            yield path
