"""What does a pytest session that judges for the merge base read from the work tree, and what does it return?

Only :mod:`pytest_nsys.merge_base.judge_process` loads this module (with ``-p``), in the judge's process.
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
    """Register the option that tells the judge what to judge."""
    parser.addoption("--nsys-judge", metavar="FILE", help="what the merge base judges, as JSON")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Judge the work tree, including gate files that the branch removed, and return the settings in effect."""
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
    """Raise pytest.UsageError if the branch commits the data that its run is compared with.

    Such data are a history, a run of the base, or a file that is read along with one.
    """
    base_paths = [
        (setting, Path(path)) for setting in BASE_RUN_SETTINGS for _, path in list_option_paths(config, setting)
    ]
    if (history := find_setting_path(config, HISTORY_SETTING)) is not None:
        base_paths.append((HISTORY_SETTING, history))
    for setting, path in base_paths:
        try:
            place = resolve_path_in_repository(top, path)
        except BaselineError:  # outside the repository
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
    """Whether reading ``named_path`` also reads ``file``.

    That is so if it is the named file, lies in the named folder, is a link above it, matches its pattern, or is a
    SQLite log or an export next to it.
    """
    export = named_path.suffix != "" and (file.parent, file.name) == (named_path.parent, f"{named_path.stem}.sqlite")
    lies_beside = export or str(file).startswith(f"{named_path}-")
    return (
        lies_beside
        or file.is_relative_to(named_path)
        or named_path.is_relative_to(file)
        or fnmatchcase(str(file), str(named_path))
    )
