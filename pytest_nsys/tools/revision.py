"""Which commit and branch is a folder at? Asked of git; None wherever git does not say."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_nsys.tools.git import ask_git

BRANCH_VARIABLES = ("GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BRANCH_NAME")
"""Where CI says which branch it checked out by its commit alone: GitHub, GitLab, Jenkins."""

TARGET_VARIABLES = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CHANGE_TARGET")
"""Where CI says which branch a request is to be merged into: GitHub, GitLab, Jenkins."""

TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Revision:
    """What is checked out. ``dirty`` tells of tracked files that differ from the commit."""

    commit: str | None
    branch: str | None
    dirty: bool | None


def commit_of(folder: Path) -> str | None:
    """The commit that is checked out around ``folder``, None where there is no git or no repository."""
    return _git(folder, "rev-parse", "--verify", "-q", "HEAD") or None


def heads_of(folder: Path, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The commits that a program which is measured here may be at: what is checked out, and of a request that CI has
    merged for a try its last commit. Empty where git does not say.
    """
    head = commit_of(folder)
    raw = _git(folder, "cat-file", "commit", "HEAD") if head and _proposed(environment) else None
    parents = re.findall("^parent ([0-9a-f]+)$", (raw or "").partition("\n\n")[0], re.MULTILINE)
    tried = len(parents) == 2 and _merged_by_ci(folder, environment, parents)
    return tuple(commit for commit in (head, *(parents[1:] if tried else ())) if commit)


def _merged_by_ci(folder: Path, environment: Mapping[str, str], parents: Sequence[str]) -> bool:
    """Whether HEAD is a request merged into its target, and not the target merged into the request. The target's
    branch says it; where that is not fetched, as at depth 1, CI names the merge (GitHub) or the request's last commit
    (GitLab).
    """
    target = next((environment[name] for name in TARGET_VARIABLES if environment.get(name)), None)
    for ref in (f"refs/remotes/origin/{target}", f"refs/heads/{target}"):
        besides = [_git(folder, "rev-list", "-1", parent, f"^{ref}") for parent in parents]
        if None not in besides:
            return [bool(own) for own in besides] == [False, True]
    if re.fullmatch(r"\d+/merge", environment.get("GITHUB_REF_NAME") or ""):
        return environment.get("GITHUB_SHA") == commit_of(folder)
    return environment.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") == parents[1]


def revision_of(folder: Path, environment: Mapping[str, str] = os.environ) -> Revision:
    """Commit, branch and state of what is checked out around ``folder``."""
    commit = commit_of(folder)
    if commit is None:
        return Revision(None, None, None)
    branch = _git(folder, "symbolic-ref", "--short", "-q", "HEAD")
    if not branch:  # a detached HEAD, as CI has it
        branch = _proposed(environment) or next((environment[n] for n in BRANCH_VARIABLES if environment.get(n)), None)
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return Revision(commit, branch, None if changed is None else bool(changed))


def branch_named(ref: str, folder: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """The branch that a ref names: ``origin/main`` is main. Of a commit, as HEAD^1, what CI merges into; else None."""
    full = None if ref.startswith("-") else _git(folder, "rev-parse", "--symbolic-full-name", ref)
    found = re.fullmatch(r"refs/(?:heads|remotes/[^/]+)/(.+)", full or "")
    return found[1] if found else next((environment[n] for n in TARGET_VARIABLES if environment.get(n)), None)


def _proposed(environment: Mapping[str, str]) -> str | None:
    """The name of a pull or merge request: its branch may be the ``main`` of a fork, and is not ours."""
    if environment.get("GITHUB_HEAD_REF"):
        return f"pull/{environment.get('GITHUB_REF_NAME') or environment['GITHUB_HEAD_REF']}"
    if environment.get("CI_MERGE_REQUEST_IID"):
        return f"merge-request/{environment['CI_MERGE_REQUEST_IID']}"
    return f"pull/{environment['CHANGE_ID']}" if environment.get("CHANGE_ID") else None


def _git(folder: Path, *words: str) -> str | None:
    """What git answers, None where it cannot."""
    try:
        done = ask_git(folder, words, patience_s=TIMEOUT_S)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None
