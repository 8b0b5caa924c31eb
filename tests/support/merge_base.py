"""A judge of the merge base without a process of its own, which costs ten times as much."""

import contextlib
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from pytest_nsys.merge_base.base_verdict import BaseVerdict
from pytest_nsys.merge_base.judge_process import JudgeRequest, start_judge
from pytest_nsys.plugin.settings import SETTINGS, format_whole_options
from tests.support.gates import LEFT_OUT, Project
from tests.support.git_project import commit, git, start

FILE, RUN = "perf/gate.nsys.yaml", "run.sqlite"

PYTEST = ("-I", "-m", "pytest")


def branch_off(project: Project, gate: str, ini: str) -> None:
    """Make a repository whose main has a gate file, its baseline and an ini file, and check a branch of it out."""
    start(project)
    project.gate(gate, FILE)
    project.file("pytest.ini", ini)
    project.trace()
    project.refresh(f"--nsys-trace={RUN}")
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")


class InThisProcess:
    """What stands for ``subprocess.Popen``: pytest runs where it is made."""

    def __init__(self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: BinaryIO, **_: Any) -> None:
        assert tuple(words[1:4]) == PYTEST
        with pytest.MonkeyPatch.context() as patch, contextlib.chdir(cwd), warnings.catch_warnings():
            warnings.simplefilter("default")  # not the filters of the suite around it
            patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"])
            with (
                contextlib.redirect_stdout(Path(stdout.name).open("a", encoding="utf-8")) as said,
                contextlib.redirect_stderr(said),
            ):
                self.status = int(pytest.main([*LEFT_OUT, *words[4:]]))
                said.close()

    def poll(self) -> int:
        """It has ended."""
        return self.status

    def wait(self, _: float | None = None) -> int:
        """It has ended."""
        return self.status


def judge(
    project: Project, trace: str = "", *paths: str, ref: str = "main", here: Path | None = None, **more: Any
) -> BaseVerdict:
    """What the merge base says of a trace. ``more`` are settings of pytest, and fields of the request."""
    here = here or project.root
    given = {"nsys_trace": [trace] if trace else []} | {name: more.pop(name) for name in [*more] if name in SETTINGS}
    options = [*format_whole_options(given, here)]
    request = JudgeRequest(ref, here, paths, options, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", _popen())
        return start_judge(request).wait()


def _popen() -> Any:
    real = subprocess.Popen

    def start(words: Any, *more: Any, **named: Any) -> Any:
        if tuple(words[1:4]) == PYTEST:
            return InThisProcess(words, **named)
        return real(words, *more, **named)

    return start
