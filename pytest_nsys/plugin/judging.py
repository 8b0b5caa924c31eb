"""A pytest session that judges for the merge base: what does it read in the work tree, and what does it hand back?

Only :mod:`pytest_nsys.merge_base.judge_process` loads this, by ``-p``, in the process of the judge.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import pytest

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.words import printable
from pytest_nsys.plugin.settings import BASE_KEYS, JUDGED_TREE, SETTINGS, WorkTree, path_of, paths_of
from pytest_nsys.tools.git import place_in

HISTORY = "nsys_history"
HELD_AGAINST = ("nsys_against", "nsys_against_measurements")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option by which the judge is told what it judges."""
    parser.addoption("--nsys-judge", metavar="FILE", help="what the merge base judges, as JSON")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take the work tree for what is judged, add the gate files that the branch lacks, and tell what is set here."""
    request = json.loads(Path(config.getoption("nsys_judge")).read_bytes())
    tree, top, branch = (Path(request[name]) for name in ("tree", "top", "branch"))
    config.stash[JUDGED_TREE] = WorkTree(tree, top, branch, request["ref"])
    asked = [config.invocation_params.dir / word for word in config.args]
    lacking = (path for path in map(Path, request["gone"]) if not any(path.is_relative_to(each) for each in asked))
    config.args = [*config.args, *map(str, lacking)]
    _check_held_against(config, top, request["changed"])
    settings = {name.removeprefix("nsys_"): config.getini(name) for name in BASE_KEYS}
    Path(request["result"]).write_text(json.dumps(settings))


def _check_held_against(config: pytest.Config, top: Path, changed: Collection[str]) -> None:
    """Raises pytest.UsageError where the branch commits what its run is held against: a history, or a run of the base,
    or a file that is read with it.
    """
    named = [(setting, Path(path)) for setting in HELD_AGAINST for _, path in paths_of(config, setting)]
    if (history := path_of(config, HISTORY)) is not None:
        named.append((HISTORY, history))
    for setting, path in named:
        try:
            place = place_in(top, path)
        except BaselineError:  # outside of the repository
            continue
        found = next((each for each in changed if _is_read_with(PurePosixPath(each), PurePosixPath(place))), None)
        if found is not None:
            what = f"{SETTINGS[setting].option} is what a run is held against, and this branch changes {found}"
            raise pytest.UsageError(printable(f"{what}: keep it out of git, or change it on main first", 1000))


def _is_read_with(file: PurePosixPath, named: PurePosixPath) -> bool:
    """Whether a file is the one that is named, lies in it, has it below as a link, matches its pattern, or lies beside
    it as a log of SQLite or an export of it does.
    """
    export = named.suffix != "" and (file.parent, file.name) == (named.parent, f"{named.stem}.sqlite")
    beside = export or str(file).startswith(f"{named}-")
    return beside or file.is_relative_to(named) or named.is_relative_to(file) or fnmatchcase(str(file), str(named))
