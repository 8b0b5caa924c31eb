"""What does git say: what did the baselines look like at a commit, and at which commit and branch is a folder?

The former from its objects alone, no work tree, no index. Asked in a folder, of the repository that the folder lies in
and of no other. Only plumbing, with argument lists and bounded time: one listing for all gate files and baselines, and
one reading for each that is asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.file_names import BASELINE_SUFFIX, GATE_SUFFIX, WINDOW_SUFFIX
from pytest_nsys.core.kept import kept
from pytest_nsys.core.words import printable

PATIENCE_S = 60
ELSEWHERE = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX"),
        *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE"),
        *("GIT_REPLACE_REF_BASE", "GIT_NO_REPLACE_OBJECTS", "GIT_ATTR_SOURCE", "GIT_QUARANTINE_PATH"),
        *("GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
    }
)
"""What a hook of git, or whoever started this, says of a repository: it would be asked in place of the folder's own.

All of ``git rev-parse --local-env-vars``, and what changes how paths are understood. A user's own settings stay.
"""

_SETTINGS = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_PAGER": "cat",
}


def ask_git(
    folder: Path, words: Sequence[str], question: bytes = b"", patience_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[bytes]:
    """What git answers, in English and without a pause. Raises OSError, ValueError, subprocess.TimeoutExpired."""
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    return subprocess.run(
        ["git", "--no-pager", *words],
        cwd=folder,
        env=environment | _SETTINGS,
        input=question,
        capture_output=True,
        timeout=patience_s,
        check=False,
    )


SHORT = 7
LINK, SUBMODULE = "120000", "160000"
ELSEWHERE_MODES = {LINK: "symbolic link", SUBMODULE: "submodule"}
"""Entries of a tree whose content the commit does not hold."""

_LISTED = re.compile(rb"(?P<mode>\d{6}) \w+ (?P<name>[0-9a-f]{40,64})\t(?P<path>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a tree: ``name`` is its object's."""

    mode: str
    name: str

    def holds(self, content: bytes) -> bool:
        """Whether it is a file with this very content."""
        return self.mode not in ELSEWHERE_MODES and self.names(content)

    def names(self, content: bytes) -> bool:
        """Whether it stands for this very content, told by its object's name; that of a link is where it leads."""
        digest = hashlib.sha1 if len(self.name) == 40 else hashlib.sha256
        return digest(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == self.name


def _git(folder: Path, words: Sequence[str], question: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Ask git in a folder. Raises BaselineError where there is no git, or no answer in time."""
    try:
        return ask_git(folder, words, question)
    except subprocess.TimeoutExpired as error:
        raise BaselineError(f"git {words[0]} did not answer within {PATIENCE_S} s in {folder}") from error
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and folder.is_dir():
            raise BaselineError(
                "git is not installed, or not on the PATH: baselines of a ref are read with it"
            ) from error
        raise BaselineError(f"git cannot be asked in {folder}: {error}") from error


def _line(answer: subprocess.CompletedProcess[bytes]) -> str:
    return os.fsdecode(answer.stdout).removesuffix("\n")


def _complaint(answer: subprocess.CompletedProcess[bytes]) -> str:
    first = answer.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
    return printable(first.removeprefix("fatal: ") or f"it ended with {answer.returncode}", 300)


def repository_around(folder: Path) -> Path:
    """The top of the work tree that ``folder`` lies in, which need not exist itself. Raises BaselineError."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    answer = _git(folder, ["rev-parse", "--show-toplevel"])
    if answer.returncode == 0:
        return Path(_line(answer))
    why = _complaint(answer)
    if "dubious ownership" in why:
        raise BaselineError(
            f"git does not trust the repository around {folder}, which is another user's: "
            f"git config --global --add safe.directory {shlex.quote(str(folder))} (its top folder) allows it"
        )
    if "not a git repository" in why:
        raise BaselineError(f"{folder} is not in a git repository: baselines of a ref are read from one")
    raise BaselineError(f"{folder}: git finds no work tree here: {why}")


@dataclass
class Snapshot:
    """The files of a repository at the merge base of ``ref`` and HEAD, which is ``commit``. ``recorded``: these are of
    the repository around this one, which has it as a submodule at that commit.
    """

    top: Path
    commit: str
    ref: str
    recorded: bool = False

    @property
    def words(self) -> str:
        """The commit for people: ``1234abc (merge base of origin/main)``."""
        what = f"merge base of {self.ref}"
        what = f"recorded at the {what}" if self.recorded else what
        return printable(f"{self.commit[:SHORT]} ({what})")

    @property
    def origin(self) -> str:
        """What follows a path, to say of when its content is."""
        return f" at {self.words}"

    def place(self, path: Path) -> str:
        """The path inside the repository, as git spells it. Raises BaselineError for one outside of it."""
        real = path if path.is_absolute() else Path.cwd() / path
        for parent in real.parents:  # as typed first: a link below the top is refused, not followed
            if parent == self.top or parent.resolve() == self.top:
                return real.relative_to(parent).as_posix()
        resolved = real.resolve()
        if resolved == self.top:
            return ""
        if resolved.is_relative_to(self.top):
            return resolved.relative_to(self.top).as_posix()
        raise BaselineError(
            f"{path} lies outside the repository {self.top}, whose history is to say what the baseline was: "
            "keep the baselines beside their gate files, or read them without a ref"
        )

    @cached_property
    def _tree(self) -> dict[str, TreeEntry]:
        """Gate files, baselines, their windows, and what may stand in their way, by place: one listing for all."""
        # Without sizes, for which git has to look at every file of the repository.
        answer = self._ask(["ls-tree", "-r", "-z", "--full-tree", self.commit])
        listed = (match for line in answer.split(b"\0") if (match := _LISTED.fullmatch(line)))
        every = ((os.fsdecode(m["path"]), TreeEntry(m["mode"].decode(), m["name"].decode())) for m in listed)
        known = (GATE_SUFFIX, BASELINE_SUFFIX, WINDOW_SUFFIX)
        return {place: own for place, own in every if place.endswith(known) or own.mode in ELSEWHERE_MODES}

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(str(folder) for place in self._tree for folder in PurePosixPath(place).parents)

    @cached_property
    def gate_files(self) -> dict[Path, TreeEntry]:
        """Every gate file of the commit, sorted. Raises BaselineError."""
        found = sorted(place for place in self._tree if place.endswith(GATE_SUFFIX))
        return {self.top / place: self._tree[place] for place in found}

    @cached_property
    def submodules(self) -> dict[Path, TreeEntry]:
        """Every submodule of the commit, sorted: its entry names the commit of its own that is recorded."""
        found = sorted(place for place, entry in self._tree.items() if entry.mode == SUBMODULE)
        return {self.top / place: self._tree[place] for place in found}

    def gate_file(self, path: Path) -> bytes | None:
        """What a gate file held at the commit, through links; None where the commit does not have it.

        Raises BaselineError.
        """
        place = self.place(path)
        entry = self._tree.get(place)
        if entry is None or entry.mode == SUBMODULE:
            return None
        return self._blob(entry) if entry.mode != LINK else self.contents([path])[0]

    def contents(self, paths: Sequence[Path]) -> list[bytes | None]:
        """What these files of any name held at the commit, through links; None where it has no such file.

        Raises BaselineError.
        """
        return self._batch([f"{self.commit}:{self.place(path)}" for path in paths])

    def since(self, path: Path) -> list[bytes | None]:
        """What a file held in each commit from here to HEAD that touched it, in their order, and at HEAD.

        Raises BaselineError.
        """
        place = self.place(path)
        listed = self._ask(["rev-list", "--reverse", f"{self.commit}..HEAD", "--", place]).decode().split()
        return self._batch([f"{commit}:{place}" for commit in (*listed, "HEAD")])

    def _batch(self, names: Sequence[str]) -> list[bytes | None]:
        """The files of these names, which say their commits."""
        asked = [os.fsencode(f"{name}\n") for name in names]
        answer, found = self._ask(["cat-file", "--batch", "--follow-symlinks"], b"".join(asked)), []
        for _ in asked:
            head, _, answer = answer.partition(b"\n")
            said = re.fullmatch(rb"(?:\w+ (?P<kind>\w+)|dangling|loop|notdir|symlink) (?P<bytes>\d+)", head)
            size = int(said["bytes"]) + 1 if said is not None else 0
            found.append(answer[: size - 1] if said is not None and said["kind"] == b"blob" else None)
            answer = answer[size:]
        return found

    @kept
    def _blob(self, entry: TreeEntry) -> bytes:
        return self._ask(["cat-file", "blob", entry.name])

    def had(self, folder: Path) -> bool:
        """Whether the commit has something of ours in a folder, or another thing in its place. Raises BaselineError."""
        place = self.place(folder)
        return place in self._folders or place in self._tree

    def checked_out(self) -> dict[str, bool]:
        """Every file of the work tree that git knows or would add, and whether it is there: a sparse checkout leaves
        some out. Raises BaselineError.
        """
        answer = self._ask(["ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard"])
        return {os.fsdecode(line[2:]): not line.startswith(b"S") for line in answer.split(b"\0") if line}

    def below(self, folder: Path) -> list[Path]:
        """Every baseline file below a folder, sorted. Raises BaselineError where a link or submodule hides them."""
        place = self._in_the_open(folder)
        prefix = f"{place}/" if place else ""
        own = (each for each in self._tree if each.startswith(prefix) and each.endswith(BASELINE_SUFFIX))
        return sorted(folder / each.removeprefix(prefix) for each in own)

    def names(self, folder: Path) -> Sequence[str]:
        """The names of the baseline files in a folder, sorted. Raises BaselineError."""
        return [path.name for path in self.below(folder) if path.parent == folder]

    def holds(self, path: Path, content: bytes) -> bool:
        """Whether the file is byte for byte the same at the commit, told without reading it there."""
        entry = self._tree.get(self.place(path))
        return entry is not None and entry.holds(content)

    def read(self, path: Path) -> bytes | None:
        """The content of a baseline file, None where there is none. Raises BaselineError."""
        self._in_the_open(path.parent)
        entry = self._tree.get(self.place(path))
        if entry is not None and entry.mode in ELSEWHERE_MODES:
            raise BaselineError(f"{path}{self.origin}: is a {ELSEWHERE_MODES[entry.mode]}: make it a plain file")
        return None if entry is None else self._blob(entry)

    def _in_the_open(self, folder: Path) -> str:
        """The place of a folder. Raises BaselineError behind a link or a submodule, whose files no commit holds."""
        place = self.place(folder)
        for above in (place, *map(str, PurePosixPath(place).parents)):
            if above in self._tree and (what := ELSEWHERE_MODES.get(self._tree[above].mode)):
                raise BaselineError(
                    f"{folder}{self.origin} lies behind the {what} {above}, of which the commit holds no files: keep "
                    "the baselines in the repository of their gate files"
                )
        return place

    def _ask(self, words: Sequence[str], question: bytes = b"") -> bytes:
        answer = _git(self.top, words, question)
        if answer.returncode != 0:
            raise BaselineError(f"{self.top}: git cannot read {self.words}: {_complaint(answer)}")
        return answer.stdout


def snapshot_of(folder: Path, ref: str) -> Snapshot:
    """The repository around a folder at the merge base of ``ref`` and HEAD.

    A submodule is the pull request's own: its merge base is that of the repository around it, and of it the commit that
    is recorded there. Raises BaselineError where there is no git, no repository, no such ref, or no merge base.
    """
    top = repository_around(folder)
    if outer := _line(_git(top, ["rev-parse", "--show-superproject-working-tree"])):
        return _recorded(snapshot_of(Path(outer), ref), top)
    commit = _commit(top, ref)
    return Snapshot(top, _merge_base(top, ref, commit), ref)


def _recorded(outer: Snapshot, top: Path) -> Snapshot:
    """A submodule as the repository around it records it; that one where there was no submodule."""
    entry = outer.submodules.get(top)
    if entry is None:
        return outer
    if _git(top, ["cat-file", "-e", f"{entry.name}^{{commit}}"]).returncode != 0:
        fetch = shlex.join(["git", "-C", str(top), "fetch", "origin", entry.name])
        raise BaselineError(
            f"the submodule {top} has no commit {entry.name[:SHORT]}, which {outer.top} records at {outer.words}: "
            f"fetch it: {printable(fetch, 1000)}"
        )
    return Snapshot(top, entry.name, outer.ref, recorded=True)


def _commit(top: Path, ref: str) -> str:
    shown = printable(ref, 100)
    if not ref.strip() or ref.startswith("-"):
        raise BaselineError(f"'{shown}' is not a ref: write a branch, tag or commit, as origin/main")
    answer = _git(top, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"])
    if answer.returncode == 0:
        return _line(answer)
    remote, _, branch = ref.partition("/")
    fetch = shlex.join(["git", "fetch", *((remote, branch) if branch else ("origin", ref))])
    if ref == "HEAD":
        raise BaselineError(f"{top} has no commit yet")
    hint = f"fetch it: {printable(fetch)}" if re.fullmatch(r"[\w./-]+", ref) else "in a shallow clone: fetch-depth: 0"
    raise BaselineError(f"{top} has no commit '{shown}': {hint}")


def _merge_base(top: Path, ref: str, commit: str) -> str:
    answer = _git(top, ["merge-base", commit, _commit(top, "HEAD")])
    if answer.returncode == 0:
        return _line(answer)
    if answer.stderr.strip():
        raise BaselineError(f"{top}: git finds no merge base of {printable(ref, 100)}: {_complaint(answer)}")
    if _line(_git(top, ["rev-parse", "--is-shallow-repository"])) == "true":
        raise BaselineError(
            f"{top} is a shallow clone without the merge base of {printable(ref, 100)} and HEAD: check out with "
            "fetch-depth: 0, or git fetch --unshallow"
        )
    raise BaselineError(f"{printable(ref, 100)} and HEAD have unrelated histories in {top}: there is no merge base")


def merge_advice(folder: Path) -> str | None:
    """What to write into .gitattributes so that git does not merge baselines line by line.

    None where the folder is in no git work tree, or this is said already.
    """
    try:
        top = repository_around(folder)
        place = Snapshot(top, "", "").place(folder)
        probe = f"{place}/gate/0{BASELINE_SUFFIX}".removeprefix("/")
        answer = _git(top, ["check-attr", "-z", "merge", "--", probe])
    except BaselineError:
        return None
    said = answer.stdout.split(b"\0")[2:3]
    if answer.returncode != 0 or said in ([b"unset"], [b"binary"]):
        return None
    pattern = f"{place}/**/*{BASELINE_SUFFIX}".removeprefix("/")
    if not re.fullmatch(r"[^\s\"\\]+", pattern):
        pattern = '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return printable(f"git would merge two edits of a baseline line by line: add to .gitattributes: {pattern} -merge")


# What is checked out; None wherever git does not say

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
    return _said(folder, "rev-parse", "--verify", "-q", "HEAD") or None


def made_at_s(folder: Path, commit: str) -> int | None:
    """When a commit was made, in seconds since 1970: by its committer, as a rebase leaves the author's date."""
    head = (_said(folder, "cat-file", "commit", commit) or "").partition("\n\n")[0]
    found = re.search(r"^committer .* ([0-9]{1,15}) [+-][0-9]{4}$", head, re.MULTILINE)
    return int(found[1]) if found else None


def heads_of(folder: Path, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The commits that a program which is measured here may be at: what is checked out, and of a request that CI has
    merged for a try its last commit. Empty where git does not say.
    """
    head = commit_of(folder)
    raw = _said(folder, "cat-file", "commit", "HEAD") if head and _proposed(environment) else None
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
        besides = [_said(folder, "rev-list", "-1", parent, f"^{ref}") for parent in parents]
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
    branch = _said(folder, "symbolic-ref", "--short", "-q", "HEAD")
    if not branch:  # a detached HEAD, as CI has it
        branch = _proposed(environment) or next((environment[n] for n in BRANCH_VARIABLES if environment.get(n)), None)
    changed = _said(folder, "status", "--porcelain", "--untracked-files=no")
    return Revision(commit, branch, None if changed is None else bool(changed))


def branch_named(ref: str, folder: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """The branch that a ref names: ``origin/main`` is main. Of a commit, as HEAD^1, what CI merges into; else None."""
    full = None if ref.startswith("-") else _said(folder, "rev-parse", "--symbolic-full-name", ref)
    found = re.fullmatch(r"refs/(?:heads|remotes/[^/]+)/(.+)", full or "")
    return found[1] if found else next((environment[n] for n in TARGET_VARIABLES if environment.get(n)), None)


def _proposed(environment: Mapping[str, str]) -> str | None:
    """The name of a pull or merge request: its branch may be the ``main`` of a fork, and is not ours."""
    if environment.get("GITHUB_HEAD_REF"):
        return f"pull/{environment.get('GITHUB_REF_NAME') or environment['GITHUB_HEAD_REF']}"
    if environment.get("CI_MERGE_REQUEST_IID"):
        return f"merge-request/{environment['CI_MERGE_REQUEST_IID']}"
    return f"pull/{environment['CHANGE_ID']}" if environment.get("CHANGE_ID") else None


def _said(folder: Path, *words: str) -> str | None:
    """What git answers, None where it cannot."""
    try:
        done = ask_git(folder, words, patience_s=TIMEOUT_S)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None
