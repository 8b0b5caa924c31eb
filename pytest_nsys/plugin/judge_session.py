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
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.plugin.settings import BASE_KEYS, JUDGED_TREE, SETTINGS, WorkTree, find_setting_path, list_option_paths
from pytest_nsys.tools.git import resolve_path_in_repository

HISTORY_SETTING = "nsys_history"
BASE_RUN_SETTINGS = ("nsys_against", "nsys_against_measurements")


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
    _check_base_unchanged(config, top, request["changed"])
    settings = {name.removeprefix("nsys_"): config.getini(name) for name in BASE_KEYS}
    Path(request["result"]).write_text(json.dumps(settings))


def _check_base_unchanged(config: pytest.Config, top: Path, changed_files: Collection[str]) -> None:
    """Raise pytest.UsageError where the branch commits what its run is compared with.

    That is a history, or a run of the base, or a file that is read with it.
    """
    base_paths = [
        (setting, Path(path)) for setting in BASE_RUN_SETTINGS for _, path in list_option_paths(config, setting)
    ]
    if (history := find_setting_path(config, HISTORY_SETTING)) is not None:
        base_paths.append((HISTORY_SETTING, history))
    for setting, path in base_paths:
        try:
            place = resolve_path_in_repository(top, path)
        except BaselineError:  # outside of the repository
            continue
        changed_file = next(
            (candidate for candidate in changed_files if _is_read_with(PurePosixPath(candidate), PurePosixPath(place))),
            None,
        )
        if changed_file is not None:
            problem = (
                f"{SETTINGS[setting].option} is what a run is held against, and this branch changes {changed_file}"
            )
            raise pytest.UsageError(sanitize_line(f"{problem}: keep it out of git, or change it on main first", 1000))


def _is_read_with(file: PurePosixPath, named_path: PurePosixPath) -> bool:
    """Whether ``file`` is read when ``named_path`` is.

    It is the one that is named, lies in it, has it below as a link, matches its pattern, or lies beside it as a log of
    SQLite or an export of it does.
    """
    export = named_path.suffix != "" and (file.parent, file.name) == (named_path.parent, f"{named_path.stem}.sqlite")
    lies_beside = export or str(file).startswith(f"{named_path}-")
    return (
        lies_beside
        or file.is_relative_to(named_path)
        or named_path.is_relative_to(file)
        or fnmatchcase(str(file), str(named_path))
    )
