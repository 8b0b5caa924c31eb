"""Asks git: which files does a commit have, and which commit and branch is checked out around a folder?

Files of a commit are read from git's objects, not from work tree or index. Git is asked about the repository that holds
the folder and no other, by plumbing commands, with argument lists and a time limit.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.file_names import BASELINE_SUFFIX
from pytest_nsys.core.text_format import sanitize_line

# A large repository on a slow disk is slow; longer is a hang.
GIT_TIMEOUT_S = 60
REPOSITORY_VARIABLES = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX"),
        *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE"),
        *("GIT_REPLACE_REF_BASE", "GIT_NO_REPLACE_OBJECTS", "GIT_ATTR_SOURCE", "GIT_QUARANTINE_PATH"),
        *("GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
    }
)
"""Variables by which a git hook, or a caller, names a repository that git would use in place of the folder's own.

They are those of ``git rev-parse --local-env-vars``, and those that change how paths are read. The user's own settings
stay.
"""

_GIT_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_PAGER": "cat",
    "GIT_NO_REPLACE_OBJECTS": "1",  # objects must match their hashes
}


def run_git(
    folder: Path, arguments: Sequence[str], standard_input: bytes = b"", timeout_s: float = GIT_TIMEOUT_S
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder, in English and without a pager. Raises OSError, ValueError, subprocess.TimeoutExpired."""
    environment = {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}
    return subprocess.run(
        ["git", "--no-pager", *arguments],
        cwd=folder,
        env=environment | _GIT_ENVIRONMENT,
        input=standard_input,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )


# Characters of a hash in messages, as in git's own short hashes.
SHORT_HASH_LENGTH = 7
# Modes in a tree: a symbolic link, and the commit of a submodule.
LINK_MODE, SUBMODULE_MODE = "120000", "160000"

_TREE_LINE = re.compile(rb"(?P<mode>\d{6}) \w+ (?P<name>[0-9a-f]{40,64})\t(?P<path>.+)", re.DOTALL)


class TreeEntry(NamedTuple):
    """Describes one entry of a commit's tree."""

    mode: str
    object_name: str  # hash of the object, which ``store`` holds
    store: Path  # folder of the repository


def _run_git_or_fail(
    folder: Path, arguments: Sequence[str], standard_input: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder. Raises BaselineError if git is missing or does not answer in time."""
    try:
        return run_git(folder, arguments, standard_input)
    except subprocess.TimeoutExpired as error:
        raise BaselineError(f"git {arguments[0]} did not answer within {GIT_TIMEOUT_S} s in {folder}") from error
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and folder.is_dir():
            raise BaselineError(
                "git is not installed, or not on the PATH: baselines of a ref are read with it"
            ) from error
        raise BaselineError(f"git cannot be asked in {folder}: {error}") from error


def _read_line(answer: subprocess.CompletedProcess[bytes]) -> str:
    return os.fsdecode(answer.stdout).removesuffix("\n")


def _read_complaint(answer: subprocess.CompletedProcess[bytes]) -> str:
    """Return the first line of git's standard error."""
    first_line = answer.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
    return sanitize_line(first_line.removeprefix("fatal: ") or f"it ended with {answer.returncode}", 300)


def find_repository(folder: Path) -> Path:
    """Return the top of the work tree around ``folder``; the folder itself need not exist. Raises BaselineError."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    answer = _run_git_or_fail(folder, ["rev-parse", "--show-toplevel"])
    if answer.returncode == 0:
        return _check_top(Path(_read_line(answer)), folder)
    complaint = _read_complaint(answer)
    if "dubious ownership" in complaint:
        raise BaselineError(
            f"git does not trust the repository around {folder}, which is another user's: "
            f"git config --global --add safe.directory {shlex.quote(str(folder))} (its top folder) allows it"
        )
    if "not a git repository" in complaint:
        raise BaselineError(f"{folder} is not in a git repository: baselines of a ref are read from one")
    raise BaselineError(f"{folder}: git finds no work tree here: {complaint}")


def _check_top(top: Path, folder: Path) -> Path:
    """Return ``top`` if it is the top of a work tree around ``folder``.

    Raises BaselineError if git takes a folder without ``.git`` for a repository: any commit can contain a folder that
    looks like a bare repository.
    """
    if (top / ".git").exists() and folder.resolve().is_relative_to(top.resolve()):
        return top
    raise BaselineError(f"{folder} is taken for a repository by git, and has no .git: rename its files HEAD and config")


def find_outermost_repository(folder: Path) -> Path:
    """Return the top of the outermost repository that holds this one as a submodule, or this one's own top. Raises
    BaselineError.
    """
    top = find_repository(folder)
    while outer := _read_line(_run_git_or_fail(top, ["rev-parse", "--show-superproject-working-tree"])):
        top = _check_top(Path(outer), top)
    return top


def resolve_path_in_repository(top: Path, path: Path) -> str:
    """Return the path relative to the top of a repository, as git spells it; empty for the top itself. Raises
    BaselineError for a path outside of it.
    """
    real = Path(os.path.abspath(path))
    if real.is_relative_to(top):  # a link below the top belongs to the repository and is not followed
        return "" if real == top else real.relative_to(top).as_posix()
    for parent in (real, *real.parents):
        if parent.resolve() == top:
            return "" if real == parent else real.relative_to(parent).as_posix()
    raise BaselineError(f"{path} lies outside the repository {top}")


def find_git_folder(top: Path) -> Path:
    """Return the git folder of a single work tree. Raises BaselineError."""
    return Path(_read_line(run_git_checked(top, ["rev-parse", "--absolute-git-dir"])))


def find_shared_git_folder(top: Path) -> Path:
    """Return the git folder that all work trees share, with objects, submodules and LFS files. Raises BaselineError."""
    return Path(_read_line(run_git_checked(top, ["rev-parse", "--path-format=absolute", "--git-common-dir"])))


def list_tree(store: Path, commit: str) -> dict[str, TreeEntry]:
    """List every file of a commit by its path, also links and submodules. Raises BaselineError."""
    answer = run_git_checked(store, ["ls-tree", "-r", "-z", "--full-tree", commit]).stdout
    matches = (match for line in answer.split(b"\0") if (match := _TREE_LINE.fullmatch(line)))
    return {os.fsdecode(m["path"]): TreeEntry(m["mode"].decode(), m["name"].decode(), store) for m in matches}


def read_blobs(store: Path, names: Sequence[str]) -> list[bytes]:
    """Read the content of objects as stored, unchanged by attributes and filters. Raises BaselineError."""
    request = "".join(f"{name}\n" for name in names).encode()
    answer, contents, position = run_git_checked(store, ["cat-file", "--batch"], request).stdout, list[bytes](), 0
    for name in names:
        end = answer.find(b"\n", position)
        size = re.fullmatch(rb"\w+ blob (\d+)", answer[position:end])
        if size is None:
            raise BaselineError(
                f"{store}: git has no object {name[:SHORT_HASH_LENGTH]}: fetch it, as with git fetch --unshallow"
            )
        position = end + 1 + int(size[1])
        contents.append(answer[end + 1 : position])
        position += 1
    return contents


def has_commit(store: Path, commit: str) -> bool:
    """Whether a repository holds a commit."""
    return _run_git_or_fail(store, ["cat-file", "-e", f"{commit}^{{commit}}"]).returncode == 0


def run_git_checked(
    folder: Path, arguments: Sequence[str], standard_input: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder. Raises BaselineError where it fails."""
    answer = _run_git_or_fail(folder, arguments, standard_input)
    if answer.returncode != 0:
        raise BaselineError(f"git {arguments[0]} in {folder}: {_read_complaint(answer)}")
    return answer


def find_merge_base(top: Path, ref: str) -> str:
    """Find the merge base of a ref and HEAD. Raises BaselineError if there is no such ref, or no merge base."""
    return _find_merge_base_of_commit(top, ref, resolve_commit(top, ref))


def resolve_commit(top: Path, ref: str) -> str:
    """Resolve a ref to its commit. Raises BaselineError, which names the fetch command that is missing."""
    printable_ref = sanitize_line(ref, 100)
    if not ref.strip() or ref.startswith("-"):
        raise BaselineError(f"'{printable_ref}' is not a ref: write a branch, tag or commit, as origin/main")
    remote, _, branch = ref.partition("/")
    # A tag or branch named origin/main would win over the branch main of origin, and anybody may push one.
    full = (
        f"refs/remotes/{ref}"
        if branch and remote in _read_line(_run_git_or_fail(top, ["remote"])).splitlines()
        else ref
    )
    arguments = ["-c", "core.warnAmbiguousRefs=true", "rev-parse", "--verify", "--end-of-options", f"{full}^{{commit}}"]
    answer = _run_git_or_fail(top, arguments)
    if answer.returncode == 0:
        if b"is ambiguous" in answer.stderr and ref != "HEAD" and not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", ref):
            raise BaselineError(
                f"'{printable_ref}' is the name of several refs in {top}, as a tag and a branch: write the whole of "
                "the one that is meant, as refs/remotes/origin/main"
            )
        return _read_line(answer)
    # In a clone of a single branch, fetching another by its name alone stores no ref of it.
    source = (remote, f"{branch}:refs/remotes/{ref}") if branch else ("origin", f"{ref}:{ref}")
    fetch = shlex.join(["git", "fetch", *source])
    if ref == "HEAD":
        raise BaselineError(f"{top} has no commit yet")
    advice = (
        f"fetch it: {sanitize_line(fetch)}" if re.fullmatch(r"[\w./-]+", ref) else "in a shallow clone: fetch-depth: 0"
    )
    raise BaselineError(f"{top} has no commit '{printable_ref}': {advice}")


def _find_merge_base_of_commit(top: Path, ref: str, commit: str) -> str:
    answer = _run_git_or_fail(top, ["merge-base", commit, resolve_commit(top, "HEAD")])
    if answer.returncode == 0:
        return _read_line(answer)
    if answer.stderr.strip():
        raise BaselineError(f"{top}: git finds no merge base of {sanitize_line(ref, 100)}: {_read_complaint(answer)}")
    if _read_line(_run_git_or_fail(top, ["rev-parse", "--is-shallow-repository"])) == "true":
        raise BaselineError(
            f"{top} is a shallow clone without the merge base of {sanitize_line(ref, 100)} and HEAD: check out with "
            "fetch-depth: 0, or git fetch --unshallow"
        )
    raise BaselineError(f"{sanitize_line(ref, 100)} and HEAD have unrelated histories in {top}: there is no merge base")


def format_merge_advice(folder: Path) -> str | None:
    """Format the line for .gitattributes that keeps git from merging baselines line by line.

    None if the folder is in no git work tree, or has such a line already.
    """
    try:
        top = find_repository(folder)
        folder_path = resolve_path_in_repository(top, folder)
        probe = f"{folder_path}/gate/0{BASELINE_SUFFIX}".removeprefix("/")
        answer = _run_git_or_fail(top, ["check-attr", "-z", "merge", "--", probe])
    except BaselineError:
        return None
    attribute = answer.stdout.split(b"\0")[2:3]
    if answer.returncode != 0 or attribute in ([b"unset"], [b"binary"]):
        return None
    pattern = f"{folder_path}/**/*{BASELINE_SUFFIX}".removeprefix("/")
    if not re.fullmatch(r"[^\s\"\\]+", pattern):
        pattern = '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return sanitize_line(
        f"git would merge two edits of a baseline line by line: add to .gitattributes: {pattern} -merge"
    )


# What is checked out; None wherever git does not say

BRANCH_VARIABLES = ("GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BRANCH_NAME")
"""Variables in which CI names the branch when it checks out a bare commit: GitHub, GitLab, Jenkins."""

TARGET_VARIABLES = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CHANGE_TARGET")
"""Variables in which CI names the target branch of a pull or merge request: GitHub, GitLab, Jenkins."""

# Facts that only accompany a result are given up sooner.
QUICK_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Revision:
    """Describes what is checked out: commit, branch and state."""

    commit: str | None
    branch: str | None
    dirty: bool | None  # whether tracked files differ from the commit


def find_commit(folder: Path) -> str | None:
    """Return the commit that is checked out around ``folder``; None without git or a repository."""
    return _read_git_output(folder, "rev-parse", "--verify", "-q", "HEAD") or None


def read_commit_time_s(folder: Path, commit: str) -> int | None:
    """Read when a commit was made, in seconds since 1970, by the committer's date, as a rebase keeps the author's."""
    head = (_read_git_output(folder, "cat-file", "commit", commit) or "").partition("\n\n")[0]
    match = re.search(r"^committer .* ([0-9]{1,15}) [+-][0-9]{4}$", head, re.MULTILINE)
    return int(match[1]) if match else None


def list_heads(folder: Path, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """List the commits that a program measured here may be built from; empty if git does not know.

    They are the commit that is checked out and, if CI merged a pull request to test it, the request's last commit.
    """
    head = find_commit(folder)
    commit_text = (
        _read_git_output(folder, "cat-file", "commit", "HEAD") if head and _find_request_name(environment) else None
    )
    parents = re.findall("^parent ([0-9a-f]+)$", (commit_text or "").partition("\n\n")[0], re.MULTILINE)
    is_merged_by_ci = len(parents) == 2 and _is_merged_by_ci(folder, environment, parents)
    return tuple(commit for commit in (head, *(parents[1:] if is_merged_by_ci else ())) if commit)


def _is_merged_by_ci(folder: Path, environment: Mapping[str, str], parents: Sequence[str]) -> bool:
    """Whether HEAD is a request merged into its target, and not the target merged into the request.

    The target branch decides. If it is not fetched, as at depth 1, the merge (GitHub) or the request's last commit
    (GitLab) that CI names decides.
    """
    target = next((environment[name] for name in TARGET_VARIABLES if environment.get(name)), None)
    for ref in (f"refs/remotes/origin/{target}", f"refs/heads/{target}"):
        commits_beside = [_read_git_output(folder, "rev-list", "-1", parent, f"^{ref}") for parent in parents]
        if None not in commits_beside:
            return [bool(commit) for commit in commits_beside] == [False, True]
    if re.fullmatch(r"\d+/merge", environment.get("GITHUB_REF_NAME") or ""):
        return environment.get("GITHUB_SHA") == find_commit(folder)
    return environment.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") == parents[1]


def read_revision(folder: Path, environment: Mapping[str, str] = os.environ) -> Revision:
    """Read commit, branch and state of what is checked out around ``folder``."""
    commit = find_commit(folder)
    if commit is None:
        return Revision(None, None, None)
    branch = _read_git_output(folder, "symbolic-ref", "--short", "-q", "HEAD")
    if not branch:  # a detached HEAD, as in CI
        branch = _find_request_name(environment) or next(
            (environment[n] for n in BRANCH_VARIABLES if environment.get(n)), None
        )
    status = _read_git_output(folder, "status", "--porcelain", "--untracked-files=no")
    return Revision(commit, branch, None if status is None else bool(status))


def resolve_branch(ref: str, folder: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the branch that a ref names: ``origin/main`` is main. For a commit such as HEAD^1, return the target
    branch that CI names, else None.
    """
    full_ref = None if ref.startswith("-") else _read_git_output(folder, "rev-parse", "--symbolic-full-name", ref)
    match = re.fullmatch(r"refs/(?:heads|remotes/[^/]+)/(.+)", full_ref or "")
    return match[1] if match else next((environment[n] for n in TARGET_VARIABLES if environment.get(n)), None)


def _find_request_name(environment: Mapping[str, str]) -> str | None:
    """Return the name of a pull or merge request: the request's branch may be the ``main`` of a fork."""
    if environment.get("GITHUB_HEAD_REF"):
        return f"pull/{environment.get('GITHUB_REF_NAME') or environment['GITHUB_HEAD_REF']}"
    if environment.get("CI_MERGE_REQUEST_IID"):
        return f"merge-request/{environment['CI_MERGE_REQUEST_IID']}"
    return f"pull/{environment['CHANGE_ID']}" if environment.get("CHANGE_ID") else None


def _read_git_output(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, stripped; None where it fails."""
    try:
        completed = run_git(folder, arguments, timeout_s=QUICK_TIMEOUT_S)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.decode("utf-8", "replace").strip() if completed.returncode == 0 else None
