"""How is pytest run on the gate files of the merge base, so that no code of the branch can change the verdict?

It runs in a process of its own, isolated from the environment and from the working directory, with this plugin alone
and no conftest.py, in a folder that holds the files of the merge base. The judged files lie in the work tree: the
traces, the measurements, and the history, which is only read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.merge_base.base_files import BaseComparison, write_base_files, write_baselines
from pytest_nsys.merge_base.base_verdict import BaseVerdict, build_verdict_without_gates, read_verdict
from pytest_nsys.merge_base.differences import FileDifference, list_differences
from pytest_nsys.tools.git import (
    find_git_folder,
    find_outermost_repository,
    resolve_commit,
    resolve_path_in_repository,
    run_git_checked,
)

PASSED_ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP", "USER", "LOGNAME"),
    *("LD_LIBRARY_PATH", "SYSTEMROOT", "XDG_CACHE_HOME"),
    *("CI", "GITHUB_ACTIONS", "GITHUB_BASE_REF", "GITHUB_HEAD_REF", "GITHUB_REF_NAME", "GITHUB_SHA"),
    *("CI_COMMIT_REF_NAME", "CI_MERGE_REQUEST_IID", "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"),
    *("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "BRANCH_NAME", "CHANGE_ID", "CHANGE_TARGET"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"),
)
"""The environment variables that the judge process gets: where programs and settings lie, and what CI says about the
commit.
"""

DISABLED_INI_KEYS = (
    *("addopts", "pythonpath", "python_files", "filterwarnings", "required_plugins", "nsys_artifacts"),
    *("strict_config=false", "strict_markers=false", "strict=false"),
)
"""The keys of the merge base's ini file that the judge process ignores, as they are meant for a pytest with other
plugins and tests.
"""

MAX_WAIT_S = 3600  # after that the judge is killed


@dataclass(frozen=True)
class JudgeRequest:
    """Describes the command line that asks for a branch to be judged."""

    ref: str
    working_folder: Path  # where the command was typed: paths are relative to it
    paths: Sequence[str] = ()  # gate files and folders to judge; empty: those that pytest collects by default
    options: Sequence[str] = ()  # options of pytest that select what is judged, with absolute paths
    baseline_dir: str | None = None
    ini_file: str | None = None
    # Whether a path must be a gate file or a folder; on pytest's own command line it may also be a test.
    gates_only: bool = False


@dataclass
class JudgeProcess:
    """Represents a running judge process, or none if there is nothing to judge.

    :meth:`wait` returns the verdict, :meth:`stop` ends the process.
    """

    comparison: BaseComparison
    folder: Path
    differences: Sequence[FileDifference] = ()
    new_paths: Sequence[str] = ()
    notes: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    _verdict: BaseVerdict | None = field(default=None, init=False)

    def wait(self) -> BaseVerdict:
        """Wait for the process and return the verdict; a second call returns the same."""
        if self._verdict is None:
            try:
                self._verdict = self._finish()
            finally:
                self.stop()
        return self._verdict

    def _finish(self) -> BaseVerdict:
        base_text = self.comparison.base_text
        if self.process is None:
            verdict = build_verdict_without_gates(base_text)
        else:
            try:
                status = self.process.wait(MAX_WAIT_S)
            except subprocess.TimeoutExpired:
                raise BaselineError(f"the gate of {base_text} did not end within {MAX_WAIT_S} s") from None
            verdict = read_verdict(self.folder, status, base_text, self.differences)
        commit = self.comparison.base.commit
        return replace(verdict, commit=commit, differences=self.differences, new_paths=self.new_paths, notes=self.notes)

    def stop(self) -> None:
        """Kill the process if it runs, and remove its files."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_judge(request: JudgeRequest) -> JudgeProcess:
    """Write the files of the merge base, and run pytest on its gate files. Raises BaselineError."""
    comparison = BaseComparison.find(_find_repository(request), request.ref)
    folder = Path(tempfile.mkdtemp(prefix="pytest-nsys-judge-")).resolve()
    judge = JudgeProcess(comparison, folder)
    try:
        _start_process(request, judge)
    except BaseException:
        judge.stop()
        raise
    return judge


def _find_repository(request: JudgeRequest) -> Path:
    """Return a folder of the judged repository: the one that holds the first path, which may lie outside the working
    folder.

    Raises BaselineError for a path that leads into another repository by a link or a nested repository, as a branch
    could redirect the judge so.
    """
    path = Path(os.path.abspath(request.working_folder / request.paths[0])) if request.paths else request.working_folder
    repositories = list[Path]()
    for folder in (path, *(parent.parent for parent in (path, *path.parents) if parent.is_symlink())):
        with contextlib.suppress(BaselineError):
            repositories.append(find_outermost_repository(folder))
    with contextlib.suppress(BaselineError):
        repository = find_outermost_repository(request.working_folder)
        if repositories[:1] != [repository]:
            run_git_checked(
                repository,
                [
                    "cat-file",
                    "-e",
                    f"{resolve_commit(repository, request.ref)}:{resolve_path_in_repository(repository, path)}",
                ],
            )
            repositories.append(repository)
    if other_repository := next((repository for repository in repositories if repository != repositories[0]), None):
        problem = (
            f"of {other_repository}, and leads to another repository, {repositories[0]}: take the link or its .git away"
        )
        raise BaselineError(f"{path} is a path {problem}, or type where the gate files lie")
    return repositories[0] if repositories else request.working_folder


def _start_process(request: JudgeRequest, judge: JudgeProcess) -> None:
    base, head, folder = judge.comparison.base, judge.comparison.head, judge.folder
    base_tree, branch_folder, missing_gates = folder / "tree", folder / "branch", judge.comparison.missing_gate_files
    base_tree.mkdir()
    start_place = (
        resolve_path_in_repository(base.top, request.working_folder)
        if _is_inside(request.working_folder, base.top)
        else ""
    )
    typed_places, judge.new_paths = _resolve_typed_paths(request, judge.comparison)
    judged_places = typed_places if request.paths else [start_place]
    submodule_notes = _describe_unknown_submodules(judge.comparison, judged_places)
    judged_gates = [
        p
        for p in base.gate_files
        if p in missing_gates or any(_is_below(p, judged_place) for judged_place in judged_places)
    ]
    judge.differences = list_differences(judge.comparison)
    if not judged_gates:
        judge.notes = submodule_notes
        return
    ini_places = (
        [resolve_path_in_repository(base.top, request.working_folder / request.ini_file)]
        if request.ini_file is not None
        else []
    )
    untracked_paths = write_base_files(base, base_tree, ini_places)
    judge.notes = [
        *submodule_notes,
        *(f"{place} is not in git at the merge base, whose gate names it" for place in untracked_paths),
    ]
    write_baselines(head, branch_folder)
    # Git answers there as in the work tree, and pytest takes no file above the top for one of the repository.
    (base_tree / ".git").write_text(f"gitdir: {find_git_folder(base.top)}\n")
    (folder / "pytest.ini").write_text("")  # if the merge base has no ini file, pytest must not find one above it
    (base_tree / start_place).mkdir(parents=True, exist_ok=True)
    settings = {
        "tree": str(base_tree),
        "top": str(base.top),
        "here": str(request.working_folder),
        "branch": str(branch_folder),
        "gone": [str(base_tree / place) for place in missing_gates],
        "changed": judge.comparison.changed_paths,
        "result": str(folder / "settings.json"),
        "ref": request.ref,
    }
    (folder / "request.json").write_text(json.dumps(settings))

    def map_into_base(path: str) -> Path:
        """Return the typed path inside the merge base's folder; a path outside of the repository unchanged."""
        full_path = Path(os.path.abspath(request.working_folder / path))
        return (
            base_tree / resolve_path_in_repository(base.top, full_path)
            if _is_inside(full_path, base.top)
            else full_path
        )

    path_options = {"nsys-baseline-dir": request.baseline_dir, "config-file": request.ini_file}
    command = [
        *(sys.executable, "-I", "-m", "pytest", "-p", "pytest_nsys.plugin", "-p", "pytest_nsys.plugin.judge_session"),
        *("--noconftest", f"--nsys-judge={folder / 'request.json'}", "--nsys-strict"),
        *(argument for key in DISABLED_INI_KEYS for argument in ("-o", key if "=" in key else f"{key}=")),
        *("-o", f"cache_dir={folder / 'cache'}", f"--nsys-json={folder / 'report.json'}", "--color=no", "-q"),
        *request.options,
        *(f"--{option}={map_into_base(path)}" for option, path in path_options.items() if path is not None),
        *("--", *(str(base_tree / place) for place in (typed_places or missing_gates if request.paths else []))),
    ]
    environment = {name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ}
    with (folder / "log").open("wb") as log:
        judge.process = subprocess.Popen(
            command,
            cwd=base_tree / start_place,
            env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _is_inside(path: Path, top: Path) -> bool:
    try:
        resolve_path_in_repository(top, path)
    except BaselineError:
        return False
    return True


def _is_below(place: str, folder: str) -> bool:
    return not folder or place == folder or place.startswith(f"{folder}/")


def _resolve_typed_paths(request: JudgeRequest, comparison: BaseComparison) -> tuple[list[str], list[str]]:
    """Return the typed paths that the merge base has, as paths in the repository, and the gate files and folders that
    only the branch has.

    Raises BaselineError for a path that neither has, or that is neither gate file nor folder.
    """
    base, places, new_paths = comparison.base, list[str](), list[str]()
    for typed_path in request.paths:
        path = Path(os.path.abspath(request.working_folder / typed_path))
        place = base.resolve(resolve_path_in_repository(base.top, path)) if _is_inside(path, base.top) else None
        if place is not None and (place in base.gate_files or base.is_folder(place)):
            places.append(place)
        elif not path.exists() and place not in base.entries:
            problem = f"no such file or folder, neither here nor at {comparison.base_text}"
            raise BaselineError(f"{sanitize_line(typed_path)}: {problem}")
        elif place not in base.entries and (path.is_dir() or path.name.endswith(".nsys.yaml")):
            new_paths.append(sanitize_line(typed_path))
        elif request.gates_only:
            raise BaselineError(f"{sanitize_line(typed_path)}: is no gate file (*.nsys.yaml) and no folder")
    return places, new_paths


def _describe_unknown_submodules(comparison: BaseComparison, judged_places: Sequence[str]) -> list[str]:
    """Describe the submodules around or below the judged paths whose files are not here: CI checks none of them out.

    Raises BaselineError for one that the branch removes or moves, as its gate files at the merge base are unknown.
    """
    base, head_entries, notes = comparison.base, comparison.head.own_entries, []
    for place, reason in base.unknown_submodules.items():
        if any(_is_below(place, judged_place) or _is_below(judged_place, place) for judged_place in judged_places):
            if (
                place not in head_entries
                or head_entries[place].mode != base.own_entries[place].mode
                or "commit" in reason
            ):
                raise BaselineError(f"the submodule {sanitize_line(place)} of {comparison.base_text} {reason}")
            notes.append(f"{place}: the submodule {reason}: its gate files are not judged")
    return notes
