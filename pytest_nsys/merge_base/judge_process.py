"""How is pytest run on the gate files of the merge base, so that nothing of the branch can change what it says?

In a process of its own, isolated from the environment and from the working directory, with this plugin alone and no
conftest.py, in a folder that holds the files of the merge base. What is judged lies in the work tree: the traces, the
measurements, and the history, which is only read.
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
from pytest_nsys.core.words import printable
from pytest_nsys.merge_base.base_files import Comparison, write_base, write_baselines
from pytest_nsys.merge_base.base_verdict import BaseVerdict, read_verdict, verdict_without_gates
from pytest_nsys.merge_base.differences import FileDifference, list_differences
from pytest_nsys.tools.git import ask_checked, commit_named, git_folder, outermost_repository, place_in

ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP", "USER", "LOGNAME"),
    *("LD_LIBRARY_PATH", "SYSTEMROOT", "XDG_CACHE_HOME"),
    *("CI", "GITHUB_ACTIONS", "GITHUB_BASE_REF", "GITHUB_HEAD_REF", "GITHUB_REF_NAME", "GITHUB_SHA"),
    *("CI_COMMIT_REF_NAME", "CI_MERGE_REQUEST_IID", "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"),
    *("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "BRANCH_NAME", "CHANGE_ID", "CHANGE_TARGET"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"),
)
"""What the judge sees of its environment: where programs and settings lie, and what CI says of the commit."""

TURNED_OFF = (
    *("addopts", "pythonpath", "python_files", "filterwarnings", "required_plugins", "nsys_artifacts"),
    *("strict_config=false", "strict_markers=false", "strict=false"),
)
"""Keys of the merge base's ini file that are for a pytest with its plugins and its own tests."""

PATIENCE_S = 3600


@dataclass(frozen=True)
class JudgeRequest:
    """What a person typed. ``here`` is where: paths are relative to it.

    ``paths`` are the gate files and folders that are to be judged, none: those of pytest by itself. ``options`` are
    those of pytest that say what is judged, with whole paths. ``gates_alone``: a path that is neither a gate file nor a
    folder is a mistake; of pytest's own paths others may be tests.
    """

    ref: str
    here: Path
    paths: Sequence[str] = ()
    options: Sequence[str] = ()
    baseline_dir: str | None = None
    ini_file: str | None = None
    gates_alone: bool = False


@dataclass
class Judge:
    """A judge at work, or one that has nothing to judge. :meth:`wait` says what came of it, :meth:`stop` ends it."""

    comparison: Comparison
    folder: Path
    differences: Sequence[FileDifference] = ()
    new: Sequence[str] = ()
    notes: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    _verdict: BaseVerdict | None = field(default=None, init=False)

    def wait(self) -> BaseVerdict:
        """What the merge base says. Asked again, the same."""
        if self._verdict is None:
            try:
                self._verdict = self._finish()
            finally:
                self.stop()
        return self._verdict

    def _finish(self) -> BaseVerdict:
        since = self.comparison.words
        if self.process is None:
            verdict = verdict_without_gates(since)
        else:
            try:
                status = self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise BaselineError(f"the gate of {since} did not end within {PATIENCE_S} s") from None
            verdict = read_verdict(self.folder, status, since, self.differences)
        commit = self.comparison.base.commit
        return replace(verdict, commit=commit, differences=self.differences, new=self.new, notes=self.notes)

    def stop(self) -> None:
        """End the process if it runs, and remove its files."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_judge(request: JudgeRequest) -> Judge:
    """Write the files of the merge base, and run pytest on its gate files. Raises BaselineError."""
    comparison = Comparison.of(_find_repository(request), request.ref)
    folder = Path(tempfile.mkdtemp(prefix="pytest-nsys-judge-")).resolve()
    judge = Judge(comparison, folder)
    try:
        _start(request, judge)
    except BaseException:
        judge.stop()
        raise
    return judge


def _find_repository(request: JudgeRequest) -> Path:
    """A folder of the repository that is judged: that of the first path, which may lie elsewhere. Raises BaselineError
    for a path of one repository that a link, or a repository made inside of it, leads to another: a branch can do that.
    """
    path = Path(os.path.abspath(request.here / request.paths[0])) if request.paths else request.here
    tops = list[Path]()
    for folder in (path, *(each.parent for each in (path, *path.parents) if each.is_symlink())):
        with contextlib.suppress(BaselineError):
            tops.append(outermost_repository(folder))
    with contextlib.suppress(BaselineError):
        top = outermost_repository(request.here)
        if tops[:1] != [top]:
            ask_checked(top, ["cat-file", "-e", f"{commit_named(top, request.ref)}:{place_in(top, path)}"])
            tops.append(top)
    if other := next((top for top in tops if top != tops[0]), None):
        what = f"of {other}, and leads to another repository, {tops[0]}: take the link or its .git away"
        raise BaselineError(f"{path} is a path {what}, or type where the gate files lie")
    return tops[0] if tops else request.here


def _start(request: JudgeRequest, judge: Judge) -> None:
    base, head, folder = judge.comparison.base, judge.comparison.head, judge.folder
    tree, branch, gone = folder / "tree", folder / "branch", judge.comparison.gone
    tree.mkdir()
    here = place_in(base.top, request.here) if _is_inside(request.here, base.top) else ""
    asked, judge.new = _find_asked(request, judge.comparison)
    inside = asked if request.paths else [here]
    missing = _unknown_submodules(judge.comparison, inside)
    judged = [p for p in base.gate_files if p in gone or any(_is_below(p, each) for each in inside)]
    judge.differences = list_differences(judge.comparison)
    if not judged:
        judge.notes = missing
        return
    ini = [place_in(base.top, request.here / request.ini_file)] if request.ini_file is not None else []
    absent = write_base(base, tree, ini)
    judge.notes = [*missing, *(f"{place} is not in git at the merge base, whose gate names it" for place in absent)]
    write_baselines(head, branch)
    # Git answers there as in the work tree, and no file above the top is taken for one of the repository.
    (tree / ".git").write_text(f"gitdir: {git_folder(base.top)}\n")
    (folder / "pytest.ini").write_text("")  # where the merge base has no ini file, none above it is one
    (tree / here).mkdir(parents=True, exist_ok=True)
    settings = {
        "tree": str(tree),
        "top": str(base.top),
        "here": str(request.here),
        "branch": str(branch),
        "gone": [str(tree / place) for place in gone],
        "changed": judge.comparison.changed,
        "result": str(folder / "settings.json"),
        "ref": request.ref,
    }
    (folder / "request.json").write_text(json.dumps(settings))

    def in_base(path: str) -> Path:
        """Where the merge base has what a person typed; what lies outside of the repository stays."""
        full = Path(os.path.abspath(request.here / path))
        return tree / place_in(base.top, full) if _is_inside(full, base.top) else full

    in_the_base = {"nsys-baseline-dir": request.baseline_dir, "config-file": request.ini_file}
    words = [
        *(sys.executable, "-I", "-m", "pytest", "-p", "pytest_nsys.plugin", "-p", "pytest_nsys.plugin.judging"),
        *("--noconftest", f"--nsys-judge={folder / 'request.json'}", "--nsys-strict"),
        *(word for key in TURNED_OFF for word in ("-o", key if "=" in key else f"{key}=")),
        *("-o", f"cache_dir={folder / 'cache'}", f"--nsys-json={folder / 'report.json'}", "--color=no", "-q"),
        *request.options,
        *(f"--{option}={in_base(path)}" for option, path in in_the_base.items() if path is not None),
        *("--", *(str(tree / place) for place in (asked or gone if request.paths else []))),
    ]
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    with (folder / "log").open("wb") as log:
        judge.process = subprocess.Popen(
            words,
            cwd=tree / here,
            env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _is_inside(path: Path, top: Path) -> bool:
    try:
        place_in(top, path)
    except BaselineError:
        return False
    return True


def _is_below(place: str, above: str) -> bool:
    return not above or place == above or place.startswith(f"{above}/")


def _find_asked(request: JudgeRequest, comparison: Comparison) -> tuple[list[str], list[str]]:
    """What of the typed paths the merge base has, as paths in the repository, and which gate files and folders it
    lacks: those are the branch's own. Raises BaselineError for one that is nowhere, or nothing to judge by.
    """
    base, asked, new = comparison.base, list[str](), list[str]()
    for word in request.paths:
        path = Path(os.path.abspath(request.here / word))
        place = base.resolve(place_in(base.top, path)) if _is_inside(path, base.top) else None
        if place is not None and (place in base.gate_files or base.is_folder(place)):
            asked.append(place)
        elif not path.exists() and place not in base.entries:
            what = f"no such file or folder, neither here nor at {comparison.words}"
            raise BaselineError(f"{printable(word)}: {what}")
        elif place not in base.entries and (path.is_dir() or path.name.endswith(".nsys.yaml")):
            new.append(printable(word))
        elif request.gates_alone:
            raise BaselineError(f"{printable(word)}: is no gate file (*.nsys.yaml) and no folder")
    return asked, new


def _unknown_submodules(comparison: Comparison, asked: Sequence[str]) -> list[str]:
    """What is told of submodules around or below what is asked whose files are not here: CI checks none of them out.

    Raises BaselineError for one that the branch takes away or moves, as then nobody can tell what its gate files asked.
    """
    base, now, told = comparison.base, comparison.head.own, []
    for place, why in base.unknown.items():
        if any(_is_below(place, each) or _is_below(each, place) for each in asked):
            if place not in now or now[place].mode != base.own[place].mode or "commit" in why:
                raise BaselineError(f"the submodule {printable(place)} of {comparison.words} {why}")
            told.append(f"{place}: the submodule {why}: its gate files are not judged")
    return told
