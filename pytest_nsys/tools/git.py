"""What does git say: what did the baselines look like at a commit? From its objects alone, no work tree, no index.

Asked in a folder, of the repository that the folder lies in and of no other. Only plumbing, with argument lists and
bounded time: one listing for a baseline folder and one reading for a gate file, each remembered, however many
assertions ask.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.file_names import BASELINE_SUFFIX, GATE_SUFFIX
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import printable

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


MOST_BYTES = 256 << 20
SHORT = 7
MOST_LINKS = 8
LINK, SUBMODULE = "120000", "160000"
_LISTED = re.compile(
    rb"(?P<mode>\d{6}) (?P<kind>\w+) (?P<name>[0-9a-f]{40,64})(?: +(?P<size>\d+|-))?\t(?P<path>.+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a tree: ``name`` is its object's, ``size`` in bytes."""

    mode: str
    name: str
    size: int

    def holds(self, content: bytes) -> bool:
        """Whether it is a file with this very content."""
        return self.mode not in (LINK, SUBMODULE) and self.names(content)

    def names(self, content: bytes) -> bool:
        """Whether it stands for this very content, told by its object's name; that of a link is where it leads."""
        digest = hashlib.sha1 if len(self.name) == 40 else hashlib.sha256
        return digest(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == self.name


def _git(folder: Path, words: Sequence[str], question: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Ask git in a folder. Raises BaselineError where there is no git, or no answer in time."""
    try:
        return ask_git(folder, words, question)
    except subprocess.TimeoutExpired as error:
        raise BaselineError(f"git {words[0]} gave no answer within {PATIENCE_S} s in {folder}") from error
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
        raise BaselineError(f"{folder} lies in no git repository: baselines of a ref are read from one")
    raise BaselineError(f"{folder}: git finds no work tree here: {why}")


@dataclass
class Snapshot:
    """The files of a repository at a commit, read as a Shelf reads them. ``of_merge_base``: of ``ref`` and HEAD."""

    top: Path
    commit: str
    ref: str
    of_merge_base: bool = True
    _known: dict[str, Entry | None] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The commit for people: ``1234abc (merge base of origin/main)``."""
        what = f"merge base of {self.ref}" if self.of_merge_base else self.ref
        return printable(f"{self.commit[:SHORT]} ({what})")

    @property
    def origin(self) -> str:
        """What follows a path, to say of when its content is."""
        return f" at {self.words}"

    @property
    def note(self) -> str:
        """Nothing: the words of the commit say it."""
        return ""

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

    def gate_file(self, path: Path) -> bytes | None:
        """What a gate file held at the commit, through links; None where the commit does not have it.

        Raises BaselineError.
        """
        entry = self.gate_files.get(self.top / self.place(path))
        place = self.place(path)
        for _ in range(MOST_LINKS):
            if entry is None or entry.mode != LINK:
                break
            place = posixpath.normpath(posixpath.join(posixpath.dirname(place), os.fsdecode(self._blob(entry))))
            entry = None if place.startswith(("../", "/")) else self.entries([self.top / place]).get(self.top / place)
        return None if entry is None or entry.mode in (LINK, SUBMODULE) else self._blob(entry)

    def _blob(self, entry: Entry) -> bytes:
        return self._ask(["cat-file", "blob", entry.name])

    def entries(self, paths: Sequence[Path]) -> dict[Path, Entry]:
        """What these paths are at the commit, in one question; those that are not there are left out."""
        places = {path: self.place(path) for path in paths}
        unknown = sorted({place for place in places.values() if place} - {*self._known})
        if unknown:
            answer = self._ask(["ls-tree", "-z", "-l", "--full-tree", self.commit, "--", *unknown])
            self._known |= dict.fromkeys(unknown) | dict(_entries(answer))
        return {path: entry for path, place in places.items() if (entry := self._known.get(place)) is not None}

    @cached_property
    def gate_files(self) -> dict[Path, Entry]:
        """Every gate file of the commit, sorted. Raises BaselineError."""
        # Without sizes, for which git has to look at every file of the repository.
        answer = self._ask(["ls-tree", "-r", "-z", "--full-tree", self.commit])
        found = sorted((place, entry) for place, entry in _entries(answer) if place.endswith(GATE_SUFFIX))
        return {self.top / place: entry for place, entry in found}

    def checked_out(self) -> dict[str, bool]:
        """Every file of the work tree that git knows or would add, and whether it is there: a sparse checkout leaves
        some out. Raises BaselineError.
        """
        answer = self._ask(["ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard"])
        return {os.fsdecode(line[2:]): not line.startswith(b"S") for line in answer.split(b"\0") if line}

    def below(self, folder: Path) -> list[Path]:
        """Every baseline file below a folder, sorted. Raises BaselineError where a link or submodule hides them."""
        listing = self._listing(folder)
        skip = len(self.place(folder)) + 1 if self.place(folder) else 0
        return sorted(folder / place[skip:] for place in listing if place.endswith(BASELINE_SUFFIX))

    def names(self, folder: Path) -> Sequence[str]:
        """The names of the baseline files in a folder, sorted. Raises BaselineError."""
        return [name.rpartition("/")[2] for name in self._names(folder)]

    def _names(self, folder: Path) -> list[str]:
        listing, place = self._listing(self._listed_with(folder)), self.place(folder)
        if place in listing:
            raise self._detour(folder, place, listing[place])
        return sorted(name for name in listing if name.rpartition("/")[0] == place and name.endswith(BASELINE_SUFFIX))

    def _listed_with(self, folder: Path) -> Path:
        """The folder whose one listing answers for all gate files beside this one; never the whole repository."""
        return folder.parent if "/" in self.place(folder) else folder

    def holds(self, path: Path, content: bytes) -> bool:
        """Whether the file is byte for byte the same at the commit, told without reading it there."""
        entry = self._listing(self._listed_with(path.parent)).get(self.place(path))
        return entry is not None and entry.holds(content)

    def read(self, path: Path) -> bytes | None:
        """The content of a baseline file, None where there is none. Raises BaselineError."""
        place, beside = self.place(path), self._names(path.parent)
        if place not in beside:
            return None
        entry = self._listing(self._listed_with(path.parent))[place]
        if entry.mode in (LINK, SUBMODULE):
            what = "a symbolic link" if entry.mode == LINK else "a submodule"
            raise BaselineError(f"{path}{self.origin}: is {what}: make it a plain file")
        return self._read_all(path.parent)[place]

    @kept
    def _listing(self, folder: Path) -> dict[str, Entry]:
        place = self.place(folder)
        words = ["ls-tree", "-r", "-z", "-l", "--full-tree", self.commit, *(["--", place] if place else [])]
        found = dict(_entries(self._ask(words)))
        if set(found) <= {place}:  # nothing is below it: it is not there, or is no folder
            self._refuse_detours(folder, place)
            found = {}
        return {
            name: entry
            for name, entry in found.items()
            if name.endswith(BASELINE_SUFFIX) or entry.mode in (LINK, SUBMODULE)
        }

    def _refuse_detours(self, folder: Path, place: str) -> None:
        """Raises BaselineError where a part of the path is a link or a submodule, which the commit does not hold."""
        parts = place.split("/") if place else []
        prefixes = [self.top.joinpath(*parts[: n + 1]) for n in range(len(parts))]
        for path, entry in self.entries(prefixes).items():
            if entry.mode in (LINK, SUBMODULE):
                raise self._detour(folder, self.place(path), entry)

    def _detour(self, folder: Path, place: str, entry: Entry) -> BaselineError:
        what = "symbolic link" if entry.mode == LINK else "submodule" if entry.mode == SUBMODULE else "file"
        return BaselineError(
            f"{folder}{self.origin} lies behind the {what} {place}, of which the commit holds no files: keep the "
            "baselines in the repository of their gate files"
        )

    @kept
    def _read_all(self, folder: Path) -> dict[str, bytes]:
        listing = self._listing(self._listed_with(folder))
        places = [name for name in self._names(folder) if listing[name].mode not in (LINK, SUBMODULE)]
        if sum(listing[place].size for place in places) > MOST_BYTES:
            raise BaselineError(
                f"{folder}{self.origin}: holds more than {MOST_BYTES >> 20} MiB: these are no baselines"
            )
        question = "".join(f"{listing[place].name}\n" for place in places)
        answer = self._ask(["cat-file", "--batch"], question.encode())
        found, at = {}, 0
        for place in places:
            end = answer.find(b"\n", at)
            head = answer[at:end].split()
            if end < 0 or head[1:2] != [b"blob"]:
                raise BaselineError(f"{place}{self.origin}: git holds no content of it: fetch the repository whole")
            found[place] = answer[end + 1 : end + 1 + int(head[2])]
            at = end + 2 + int(head[2])
        return found

    def _ask(self, words: Sequence[str], question: bytes = b"") -> bytes:
        answer = _git(self.top, words, question)
        if answer.returncode != 0:
            raise BaselineError(f"{self.top}: git cannot read {self.words}: {_complaint(answer)}")
        return answer.stdout


def _entries(answer: bytes) -> Iterator[tuple[str, Entry]]:
    for line in answer.split(b"\0"):
        if match := _LISTED.fullmatch(line):
            size = int(match["size"]) if match["size"] not in (None, b"-") else 0
            yield os.fsdecode(match["path"]), Entry(match["mode"].decode(), match["name"].decode(), size)


def snapshot_of(folder: Path, ref: str, *, merge_base: bool = True) -> Snapshot:
    """The repository around a folder at the merge base of ``ref`` and HEAD, or at ``ref`` itself.

    Raises BaselineError where there is no git, no repository, no such ref, or no merge base.
    """
    top = repository_around(folder)
    commit = _commit(top, ref)
    return Snapshot(top, _merge_base(top, ref, commit) if merge_base else commit, ref, merge_base)


def _commit(top: Path, ref: str) -> str:
    shown = printable(ref, 100)
    if not ref.strip() or ref.startswith("-"):
        raise BaselineError(f"'{shown}' is no ref: write a branch, tag or commit, as origin/main")
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
