"""A project in a git repository of its own, which knows no settings of whoever runs the tests."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gates import Project

IGNORED = "*.sqlite\n__pycache__/\n.pytest_cache/\nstdout\nstderr\njunit.xml\n"


def isolate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git without the settings of the machine, and without a repository around the temporary folder."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for number, name in enumerate(("maintenance.auto", "gc.auto")):  # each commit would start two more processes
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", "0")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A Developer")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "dev@example.org")


def git(folder: Path, *words: str | Path) -> str:
    """What git says."""
    done = subprocess.run(["git", *map(str, words)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(folder: Path, why: str = "a change") -> str:
    """Commit all that there is; the commit's name."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", why)
    head = folder / ".git" / "HEAD"  # a process less than asking git, where a branch has just moved
    branch = head.read_text().removeprefix("ref: ").strip() if head.is_file() else ""
    moved = folder / ".git" / branch
    return moved.read_text().strip() if branch.startswith("refs/") else git(folder, "rev-parse", "HEAD")


def start(project: Project) -> None:
    """An empty repository on main."""
    git(project.root, "init", "-q", "-b", "main")
    project.file(".gitignore", IGNORED)


@contextlib.contextmanager
def on_main(project: Project) -> Iterator[None]:
    """What is written meanwhile is committed on main, and the branch begins anew there."""
    git(project.root, "switch", "-q", "main")
    yield
    commit(project.root)
    git(project.root, "switch", "-qC", "feature")


def watch_git(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gets a line for each git that is started from now on."""
    real = next(Path(p, "git") for p in os.environ["PATH"].split(os.pathsep) if Path(p, "git").is_file())
    log = project.root / ".git" / "started"
    folder = project.root / ".git" / "watching"
    folder.mkdir()
    fake = folder / "git"
    fake.write_text(f'#!/bin/sh\necho "$*" >> "{log}"\nexec "{real}" "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return log
