"""What does the ini file of the merge base say, by which a branch is judged whatever it writes into its own?

A branch that asks for less in its ini file would be green by construction. So the ref, whether a loosened gate
or a gate without a trace is red, and which paths are asked where nobody types any are those of the merge base; what is
typed can only ask for more.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import glob
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from configparser import Error, RawConfigParser
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.file_names import is_passed_over
from pytest_nsys.core.words import printable
from pytest_nsys.gates.accepted import LET_PASS
from pytest_nsys.outcomes import NsysWarning
from pytest_nsys.plugin.settings import SETTINGS, TARGETS, given
from pytest_nsys.stored.baselines.store import Snapshots

REF, CHANGES, STRICT, ACCEPTED = "nsys_baseline_ref", "nsys_gate_changes", "nsys_strict", "nsys_accepted"
TRUE = ("y", "yes", "t", "true", "on", "1")
"""What pytest takes for true in an ini file."""

FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""Where pytest looks in each folder, in this order."""

CHOOSING = re.compile(
    r"--nsys-.*|--(?:co|collect-?only|setup-.*|help|version|markers|fixtures.*|funcargs|cache-show.*)|-[xvqsl]*[hV].*"
)
"""Options that say what is judged and by what, or that nothing is."""

ALONE = FILES[:4]
"""Those that are ini files also where they say nothing."""

IGNORING = ("collect_ignore", "collect_ignore_glob")
"""What a conftest.py calls the files that pytest passes over."""

_TYPED, _LET_PASS = "nsys_typed", "nsys_let_pass"
_BASES = pytest.StashKey[dict[str, Snapshots]]()
_INI_FILES = pytest.StashKey[dict[str, "BaseIni"]]()


class BaseIni(NamedTuple):
    """What an ini file of a commit says, the folder that it lay in, and why nobody can tell, where it is broken."""

    said: Mapping[str, Any]
    folder: Path
    broken: str = ""

    def text(self, name: str) -> str:
        """What it says last."""
        return self.texts(name)[-1]

    def texts(self, name: str) -> list[str]:
        """All that it says: its own line, empty where it has none, and its ``addopts`` behind that."""
        return [str(self.said.get(name, "")).strip(), *_values(self.words("addopts"), SETTINGS[name].option)]

    def lines(self, name: str) -> list[str]:
        value = self.said.get(name) or ()
        return [line.strip() for line in value.splitlines() if line.strip()] if isinstance(value, str) else [*value]

    def words(self, name: str) -> list[str]:
        value = self.said.get(name) or ()
        return shlex.split(value) if isinstance(value, str) else [*map(str, value)]

    def passes_over(self, folder: Path) -> bool:
        """Whether pytest looks into such a folder only where it is told to, by its ``norecursedirs``."""
        if "norecursedirs" not in self.said:
            return is_passed_over(folder.name)
        return any(matches(folder, pattern) for pattern in self.words("norecursedirs"))

    @property
    def paths(self) -> list[Path]:
        """The ``testpaths``, as pytest finds them."""
        entries = [str(self.folder / word) for word in self.words("testpaths")]
        found = (glob.glob(entry, recursive=True) or [entry] for entry in entries)
        return [Path(os.path.abspath(path)) for paths in found for path in paths]


def _values(words: Sequence[str], option: str) -> list[str]:
    """What stands behind an option, wherever it stands: ``--option=VALUE`` or ``--option VALUE``."""
    pairs = pairwise([*words, ""])
    return [word.partition("=")[2] or after for word, after in pairs if word.partition("=")[0] == option]


def matches(folder: Path, pattern: str) -> bool:
    """Whether one of ``norecursedirs`` means this folder."""
    anywhere = pattern if os.path.isabs(pattern) else f"*{os.sep}{pattern}"
    return fnmatch(str(folder), anywhere) if os.sep in pattern else fnmatch(folder.name, pattern)


NOTHING = BaseIni({}, Path())


def words_of(config: pytest.Config) -> list[str]:
    """What a person typed: a worker of xdist is told so by its controller."""
    typed: list[str] | None = getattr(config.option, _TYPED, None)
    return [*map(str, config.invocation_params.args)] if typed is None else typed


def enforce(config: pytest.Config) -> None:
    """Put in force what the merge base says of itself and of what is red. Workers are told it."""
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
    if base.broken:
        why = f"the ini file of the merge base is broken, and says nothing: {base.broken}"
        config.issue_config_time_warning(NsysWarning(why), 2)
    if "fail" in (*base.texts(CHANGES), config.getini(CHANGES)):
        setattr(config.option, CHANGES, "fail")
    if base.text(STRICT).lower() in TRUE or SETTINGS[STRICT].option in base.words("addopts"):
        setattr(config.option, STRICT, True)
    setattr(config.option, _LET_PASS, _let_pass(config, base))
    if config.getoption(CHANGES) == "fail":
        _refuse_addopts(config, base)


def accepted_red(config: pytest.Config) -> str:
    """What has to be done before the verdict *accepted* is green; empty where it is. Red as long as nobody asked."""
    return str(getattr(config.option, _LET_PASS, LET_PASS))


def _let_pass(config: pytest.Config, base: BaseIni) -> str:
    """What :func:`accepted_red` says: all have to say ``pass``, the merge base first, and nobody ``fail``."""
    if {*filter(None, base.texts(ACCEPTED))} != {"pass"}:
        return LET_PASS
    ours = {config.getoption(ACCEPTED), config.getini(ACCEPTED)} - {None, ""}
    if config.getoption(ACCEPTED) == "fail":
        return f"leave out {SETTINGS[ACCEPTED].option}=fail"
    return "" if ours == {"pass"} else f"put {ACCEPTED} = pass back into the ini file of this branch"


def _refuse_addopts(config: pytest.Config, base: BaseIni) -> None:
    """A branch does not change what addopts say of what is judged. Raises pytest.UsageError."""
    if any(re.match(r"(-o|--override-ini=)?addopts=", word) for word in _typed_or_environment(config)):
        return
    now, was = (_choosing(words) for words in (config.getini("addopts"), base.words("addopts")))
    now += [f"-o {word}" for word in config.getoption("override_ini") or () if word.startswith("addopts=")]
    why = "and under nsys_gate_changes = fail a branch does not"
    for word in (word for word in now if word not in was):
        told = f"addopts of the merge base lacks it, {why} add it"
        raise pytest.UsageError(f"addopts in the ini file has {word}: {told}: type it")
    for word in (word for word in was if word.startswith("--nsys-") and word not in now):
        told = f"addopts of the merge base has it, {why} drop it"
        raise pytest.UsageError(f"addopts in the ini file has no {word}: {told}: type it, or -o addopts=")


def _choosing(words: Sequence[str]) -> list[str]:
    """Those of the words of addopts that say what is judged, each with a value that stands behind it."""
    pairs = ((word, after) for word, after in pairwise([*words, ""]) if CHOOSING.fullmatch(word))
    return [word if "=" in word or after.startswith("-") else f"{word} {after}".strip() for word, after in pairs]


def _typed_or_environment(config: pytest.Config) -> list[str]:
    return [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *words_of(config)]


def asked(config: pytest.Config) -> list[Path]:
    """The files and folders that are to be judged: those typed, else the merge base's ``testpaths``."""
    here = config.invocation_params.dir
    if typed := _paths_typed(config):
        return typed
    base = at_merge_base(config, given(config, REF))
    return (base.paths if base.folder == here else []) or [here]


def _paths_typed(config: pytest.Config) -> list[Path]:
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return []
    added = {*config.getini("addopts")} - {*words_of(config)}
    typed = (word.partition("::")[0] for word in config.args if word not in added)
    return [Path(os.path.abspath(config.invocation_params.dir / word)) for word in typed]


def snapshots_of(config: pytest.Config, ref: str) -> Snapshots:
    """The merge bases with a ref, each repository asked once in a session."""
    return config.stash.setdefault(_BASES, {}).setdefault(ref, Snapshots(ref))


def at_merge_base(config: pytest.Config, ref: str) -> BaseIni:
    """The ini file that pytest would have found at the merge base with a ref; none where nobody can look."""
    known = config.stash.setdefault(_INI_FILES, {})
    if ref not in known:
        known[ref] = _at_merge_base(config, ref)
    return known[ref]


def _at_merge_base(config: pytest.Config, ref: str) -> BaseIni:
    try:
        snapshot = snapshots_of(config, ref).around(config.rootpath)
        places = [*_candidates(config, snapshot.top)]
        held = snapshot.contents(places)
    except BaselineError:  # said where baselines are read
        return NOTHING
    read = (_read(path, content) for path, content in zip(places, held, strict=True) if content is not None)
    return next((found for found in read if found is not None), NOTHING)


def narrowing(words: Sequence[str]) -> dict[str, Any]:
    """The options among these words that leave tests out, by pytest's names for them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-k", dest="keyword", default="")
    parser.add_argument("-m", dest="markexpr", default="")
    for name in ("deselect", "ignore", "ignore-glob"):
        parser.add_argument(f"--{name}", action="append")
    parser.add_argument("--lf", "--last-failed", dest="lf", action="store_true")
    parser.add_argument("--sw", "--stepwise", dest="stepwise", action="store_true")
    parser.add_argument("-x", "-v", "-q", "-s", "-l", dest="letters", action="count")  # they may stand in one word
    found = vars(parser.parse_known_args(list(words))[0])
    return {name: value for name, value in found.items() if name != "letters"}


def hidden_before(config: pytest.Config, path: Path) -> bool:
    """Whether pytest passed over this file or folder at the merge base: for what its ini file says, or a list that a
    conftest.py spells out.
    """
    if not (ref := given(config, REF)):
        return False
    base, here = at_merge_base(config, ref), config.invocation_params.dir
    said = narrowing(base.words("addopts"))
    lists = [(here, said["ignore"] or [], said["ignore_glob"] or [])]
    with contextlib.suppress(BaselineError):
        snapshot = snapshots_of(config, ref).around(path.parent)
        files = [folder / "conftest.py" for folder in path.parents if folder.is_relative_to(snapshot.top)]
        for file, content in zip(files, snapshot.contents(files), strict=True):
            names, globs = (_spelled_out(content or b"", name) for name in IGNORING)
            lists.append((file.parent, names, globs))
    return (path.is_dir() and base.passes_over(path)) or any(
        path in (Path(os.path.abspath(folder / each)) for each in names)
        or any(fnmatch(str(path), str(folder / each)) for each in globs)
        for folder, names, globs in lists
    )


def _spelled_out(content: bytes, name: str) -> list[str]:
    """The list that a module gives this name once, and does not touch again; else none."""
    with contextlib.suppress(SyntaxError, ValueError):
        tree = ast.parse(content)
        if sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree)) == 1:
            for node in tree.body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                    return [str(each) for each in ast.literal_eval(node.value)]
    return []


def _candidates(config: pytest.Config, top: Path) -> Iterator[Path]:
    words = _typed_or_environment(config)  # pytest looks for the file before it reads addopts
    if config.inipath is not None and any(re.match(r"-[xvqsl]*c|--config-file(=|$)", word) for word in words):
        yield config.inipath
        return
    paths = [path for path in _paths_typed(config) if path.exists()]
    start = Path(os.path.commonpath(paths)) if paths else config.invocation_params.dir
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
    except (AttributeError, KeyError):  # it says nothing to pytest
        pass
    except (ValueError, Error) as error:  # pytest ends there, and nobody knows what it was to say
        return BaseIni({}, path.parent, printable(f"{path.name}: {error}", 300))
    return None if said is None and path.name not in ALONE else BaseIni(said or {}, path.parent)
