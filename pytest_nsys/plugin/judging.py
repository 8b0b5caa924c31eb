"""What does a pytest session that judges for the merge base read in the work tree, and what does it hand back?

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
    """Register the option by which the judge is told what it judges."""
    parser.addoption("--nsys-judge", metavar="FILE", help="what the merge base judges, as JSON")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Judge what lies in the work tree, also gate files that the branch removed, and hand back what is set here."""
    request = json.loads(Path(config.getoption("nsys_judge")).read_bytes())
    tree, top, branch = (Path(request[name]) for name in ("tree", "top", "branch"))
    config.stash[JUDGED_TREE] = WorkTree(tree, top, branch, request["ref"])
    requested_paths = [config.invocation_params.dir / word for word in config.args]
    missing_paths = (
        path
        for path in map(Path, request["gone"])
        if not any(path.is_relative_to(requested_path) for requested_path in requested_paths)
    )
    config.args = [*config.args, *map(str, missing_paths)]
    _check_held_against(config, top, request["changed"])
    settings = {name.removeprefix("nsys_"): config.getini(name) for name in BASE_KEYS}
    Path(request["result"]).write_text(json.dumps(settings))


def _check_held_against(config: pytest.Config, top: Path, changed: Collection[str]) -> None:
    """Raise pytest.UsageError where the branch commits what its run is compared with.

    That is a history, or a run of the base, or a file that is read with it.
    """
    base_paths = [(setting, Path(path)) for setting in HELD_AGAINST for _, path in paths_of(config, setting)]
    if (history := path_of(config, HISTORY)) is not None:
        base_paths.append((HISTORY, history))
    for setting, path in base_paths:
        try:
            place = place_in(top, path)
        except BaselineError:  # outside of the repository
            continue
        changed_file = next(
            (candidate for candidate in changed if _is_read_with(PurePosixPath(candidate), PurePosixPath(place))), None
        )
        if changed_file is not None:
            problem = (
                f"{SETTINGS[setting].option} is what a run is held against, and this branch changes {changed_file}"
            )
            raise pytest.UsageError(printable(f"{problem}: keep it out of git, or change it on main first", 1000))


def _is_read_with(file: PurePosixPath, named: PurePosixPath) -> bool:
    """Whether ``file`` is read when ``named_path`` is.

    It is the one that is named, lies in it, has it below as a link, matches its pattern, or lies beside it as a log of
    SQLite or an export of it does.
    """
    export = named.suffix != "" and (file.parent, file.name) == (named.parent, f"{named.stem}.sqlite")
    lies_beside = export or str(file).startswith(f"{named}-")
    return lies_beside or file.is_relative_to(named) or named.is_relative_to(file) or fnmatchcase(str(file), str(named))
