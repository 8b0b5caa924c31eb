"""What does the ini file of the merge base say, by which a branch is judged whatever it writes into its own?

A branch that asks for less in its ini file would be green by construction. So the ref, whether a loosened gate is red,
and which paths are asked where nobody types any are those of the merge base; what is typed can only ask for more.
"""

from __future__ import annotations

import glob
import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from configparser import Error, RawConfigParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.plugin.settings import TARGETS, given
from pytest_nsys.stored.baselines.store import Snapshots

REF, CHANGES = "nsys_baseline_ref", "nsys_gate_changes"
FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""Where pytest looks in each folder, in this order."""

CHOOSING = ("--nsys-", "--co", "--setup-")
"""How options begin that say what is judged and by what, or that nothing is."""

ALONE = FILES[:4]
"""Those that are ini files also where they say nothing."""

_TYPED = "nsys_typed"
_BASES = pytest.StashKey[dict[str, Snapshots]]()


class BaseIni(NamedTuple):
    """What an ini file of a commit says, and the folder that it lay in."""

    said: Mapping[str, Any]
    folder: Path

    def text(self, name: str) -> str:
        return str(self.said.get(name, "")).strip()

    def lines(self, name: str) -> list[str]:
        value = self.said.get(name) or ()
        return [line.strip() for line in value.splitlines() if line.strip()] if isinstance(value, str) else [*value]

    def words(self, name: str) -> list[str]:
        value = self.said.get(name) or ()
        return shlex.split(value) if isinstance(value, str) else [*map(str, value)]

    @property
    def paths(self) -> list[Path]:
        """The ``testpaths``, as pytest finds them."""
        entries = [str(self.folder / word) for word in self.words("testpaths")]
        found = (glob.glob(entry, recursive=True) or [entry] for entry in entries)
        return [Path(os.path.abspath(path)) for paths in found for path in paths]


NOTHING = BaseIni({}, Path())


def words_of(config: pytest.Config) -> list[str]:
    """What a person typed: a worker of xdist is told so by its controller."""
    typed: list[str] | None = getattr(config.option, _TYPED, None)
    return [*map(str, config.invocation_params.args)] if typed is None else typed


def enforce(config: pytest.Config) -> None:
    """Put in force what the merge base says of itself and of what is red. Workers get it with their options."""
    if hasattr(config, "workerinput"):
        return
    typed = words_of(config)
    setattr(config.option, _TYPED, typed)
    if "--nsys-update-baselines" in typed or f"{REF}=" in typed:  # -o nsys_baseline_ref= turns it off once
        return
    ours = given(config, REF)
    if not any(word.startswith("--nsys-baseline-ref") for word in typed):
        targets = (f"origin/{os.environ[name]}" for name in TARGETS if os.environ.get(name))
        said = (at_merge_base(config, ref).text(REF) for ref in (*targets, ours) if ref)
        ours = next((ref for ref in said if ref), ours)
        if ours:
            setattr(config.option, REF, ours)
    if not ours:
        return
    base = at_merge_base(config, ours)
    if "fail" in (base.text(CHANGES), config.getini(CHANGES)):
        setattr(config.option, CHANGES, "fail")
    if config.getoption(CHANGES) == "fail":
        for word in config.getini("addopts"):
            if word.startswith(CHOOSING) and word not in base.words("addopts"):
                what = (
                    "addopts of the merge base has it not, and under nsys_gate_changes = fail a branch does not add it"
                )
                raise pytest.UsageError(f"addopts in the ini file has {word}: {what}: type it")


def asked(config: pytest.Config) -> list[Path]:
    """The files and folders that are to be judged: those typed, else the merge base's ``testpaths``."""
    here = config.invocation_params.dir
    added = {*config.getini("addopts")} - {*words_of(config)}
    typed = [word for word in config.args if word not in added]
    if config.args_source is pytest.Config.ArgsSource.ARGS and typed:
        return [Path(os.path.abspath(here / word.partition("::")[0])) for word in typed]
    base = at_merge_base(config, given(config, REF))
    return (base.paths if base.folder == here else []) or [here]


def snapshots_of(config: pytest.Config, ref: str) -> Snapshots:
    """The merge bases with a ref, each repository asked once in a session."""
    return config.stash.setdefault(_BASES, {}).setdefault(ref, Snapshots(ref))


def at_merge_base(config: pytest.Config, ref: str) -> BaseIni:
    """The ini file that pytest would have found at the merge base with a ref; none where nobody can look."""
    try:
        snapshot = snapshots_of(config, ref).around(config.rootpath)
        places = [*_candidates(config, snapshot.top)]
        held = snapshot.contents(places)
    except BaselineError:  # said where baselines are read
        return NOTHING
    read = (_read(path, content) for path, content in zip(places, held, strict=True) if content is not None)
    return next((found for found in read if found is not None), NOTHING)


def _candidates(config: pytest.Config, top: Path) -> Iterator[Path]:
    here = config.invocation_params.dir
    if config.getoption("inifilename", default=None) and config.inipath is not None:
        yield config.inipath
        return
    paths = [here / word.partition("::")[0] for word in config.args if (here / word.partition("::")[0]).exists()]
    typed = config.args_source is pytest.Config.ArgsSource.ARGS and paths
    start = Path(os.path.commonpath(list(map(os.path.abspath, paths)))) if typed else here
    for folder in (start, *start.parents):
        yield from (folder / name for name in FILES)
        if folder.resolve() == top:
            return


def _read(path: Path, content: bytes) -> BaseIni | None:
    """What it says to pytest; None where it is no ini file of pytest."""
    said: Mapping[str, Any] | None = None
    try:
        text = content.decode()
        if path.suffix == ".toml":
            tables = tomllib.loads(text)
            own = tables.get("tool", {}) if path.name == "pyproject.toml" else tables
            said = own["pytest"].get("ini_options", own["pytest"])
        else:
            parser = RawConfigParser(strict=False, allow_no_value=True)
            parser.read_string(text)
            section = "tool:pytest" if path.name == "setup.cfg" else "pytest"
            said = dict(parser[section]) if parser.has_section(section) else None
    except (ValueError, Error, AttributeError, KeyError):
        pass
    return None if said is None and path.name not in ALONE else BaseIni(said or {}, path.parent)
