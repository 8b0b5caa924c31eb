"""What was the program doing when it launched a kernel? The nouns: kinds of scopes, directions, paths and patterns.

A scope is a path of elements from the outermost named thing inwards, as in
``GptOssForCausalLM/TransformerBlock[3]/OAIAttention``. A kernel has at most one path of each kind, and belongs to every
scope on it.

A pattern names a scope by the end of its path: ``OAIAttention``, ``TransformerBlock[*]/OAIAttention``. ``*`` stands for
anything within one element. Of modules ``.`` and ``/`` mean the same, and so do ``layers.3`` and ``layers_3``, which
frameworks spell differently; an element without a number in brackets means each of that class.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class ScopeKind(enum.StrEnum):
    """Says what kind of named thing a scope is."""

    STAGE = "stage"  # of a convention
    MODULE = "module"
    OP = "op"
    RANGE = "range"
    SOURCE = "source"  # the innermost line of the user's own files


class Direction(enum.StrEnum):
    """Says which pass of a training step launched a kernel."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"  # forward again, for activation checkpointing
    NONE = "none"


class KernelPlace(NamedTuple):
    """Says where in the program a kernel is launched."""

    kind: ScopeKind
    pattern: str  # of one scope its path, of several that differ in their number alone a pattern for all
    direction: Direction | None  # None: in several passes
    source: str | None  # the line of the user's files; None where there are several, or none is known

    @property
    def source_line(self) -> str | None:
        """Return the line as people write it, without folders: ``model.py:212``; None where it is not known."""
        if self.source is None or (match := _SOURCE_LINE.fullmatch(self.source)) is None:
            return None
        return f"{match['file']}:{match['line'] or match['line_in_brackets']}"


# torch.profiler writes "model.py(212): forward", JAX "train/model.py:212".
_SOURCE_LINE = re.compile(r"(?:.*[\\/])?(?P<file>[^\\/]+?)(?:\((?P<line_in_brackets>\d+)\).*|:(?P<line>\d+))")

DIRECTIONS = tuple(Direction)
"""Lists the directions by their number in columns."""


class UnattributedReason(enum.StrEnum):
    """Says why a kernel has no scope of a kind."""

    NO_LAUNCH = "no launch in the file"
    OUTSIDE = "outside of any scope"
    IN_GRAPH = "inside a graph"
    IN_COMPILED_REGION = "inside a compiled region"


UNATTRIBUTED_REASONS = tuple(UnattributedReason)
"""Lists the reasons by their number in columns."""

ROOT = 0
"""The number of the tree's root, which is no scope: the path of what has none."""


class ScopeTree:
    """Numbers the scopes of one kind: parents before their children, and the root, which is none, is 0."""

    def __init__(self) -> None:
        self.parents = [ROOT]
        self.texts = [""]
        """The whole path of each scope."""
        self.depths = [0]
        self.names = [""]
        self._number_by_text: dict[tuple[int, str], int] = {}

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, parent: int, element: str, separator: str = "/") -> int:
        """Return the number of the scope that is called ``element`` inside another one, and number it if it is new."""
        text = f"{self.texts[parent]}{separator}{element}" if parent else element
        number = self._number_by_text.get((parent, text))
        if number is None:
            number = self._number_by_text[parent, text] = len(self.parents)
            self.parents.append(parent)
            self.texts.append(text)
            self.depths.append(self.depths[parent] + 1)
            self.names.append(element)
        return number

    def add_path(self, elements: Sequence[str], separator: str = "/", parent: int = ROOT) -> int:
        """Return the number of the scope at the end of a path below ``parent``."""
        for element in elements:
            parent = self.add(parent, element, separator)
        return parent

    def list_ancestors(self, number: int) -> list[int]:
        """Return a scope and all that it lies in, the innermost first, without the root."""
        ancestors = []
        while number:
            ancestors.append(number)
            number = self.parents[number]
        return ancestors

    def list_names(self, number: int) -> list[str]:
        """Return the name of a scope and of all that it lies in, the outermost first."""
        return [self.names[ancestor] for ancestor in reversed(self.list_ancestors(number))]

    def find_outermost(self, matches: Callable[[str], bool]) -> list[int]:
        """Return for each scope the outermost one on its path that matches; ROOT where none does."""
        outermost = [ROOT]
        for number in range(1, len(self.parents)):
            around = outermost[self.parents[number]]
            outermost.append(around or (number if matches(self.texts[number]) else ROOT))
        return outermost


_OCCURRENCE = re.compile(r"\[(\d+|\*)\]\Z")
_NUMBERED_NAME = re.compile(r"_(\d+|\*)(?=/|\Z)")
_WILDCARD = "*"


def unify_separators(kind: ScopeKind, text: str) -> str:
    """Return a path of modules in the one spelling that patterns are compared in; other kinds stay as they are."""
    # A dot inside the brackets of an index or the parentheses of a call is no separator, and neither occurs in a name.
    return _NUMBERED_NAME.sub(r"/\1", text.replace(".", "/")) if kind is ScopeKind.MODULE else text


def _translate_element(element: str) -> str:
    occurrence = _OCCURRENCE.search(element)
    name = element[: occurrence.start()] if occurrence is not None else element
    expression = "[^/]*".join(re.escape(part) for part in name.split(_WILDCARD))
    if occurrence is None or occurrence[1] == _WILDCARD:
        return expression + r"(?:\[\d+\])?"
    # The only one of its class bears no number.
    return expression + (r"(?:\[0\])?" if occurrence[1] == "0" else rf"\[{occurrence[1]}\]")


def make_scope_matcher(kind: ScopeKind, pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a path ends in what the pattern names."""
    unified_pattern = unify_separators(kind, pattern.strip())
    if kind is ScopeKind.MODULE:
        expression = "/".join(map(_translate_element, unified_pattern.split("/")))
    else:
        expression = "[^/]*".join(re.escape(part) for part in unified_pattern.split(_WILDCARD))
    matches_end = re.compile(rf"(?:^|.*/){expression}\Z", re.DOTALL).match

    def matches(path: str) -> bool:
        return matches_end(unify_separators(kind, path)) is not None

    return matches


_FOLDED_NUMBERS = {
    ScopeKind.MODULE: re.compile(r"(?<=\[)\d+(?=\])|(?<=[./_])\d+(?=[./]|\Z)"),
    ScopeKind.RANGE: re.compile(r"\d+"),
}


def fold_numbers(kind: ScopeKind, path: str) -> str:
    """Return a path, or one name of it, with ``*`` for the numbers by which alike scopes differ: a pattern for all of
    them.
    """
    numbers = _FOLDED_NUMBERS.get(kind)
    return path if numbers is None else numbers.sub(_WILDCARD, path)


class ScopeSelector(NamedTuple):
    """Says whose kernels count: those of one pass, or of all, in what a pattern names, taken together or each."""

    kind: ScopeKind
    pattern: str
    direction: Direction | None = None
    is_each: bool = False  # whether each scope that the pattern names has a row of its own

    def __str__(self) -> str:
        words = [*(["each"] if self.is_each else []), *([self.direction] if self.direction else [])]
        return " ".join([*words, self.kind, self.pattern])


_SELECTOR = re.compile(
    rf"(?P<each>each )?(?:(?P<direction>{'|'.join(DIRECTIONS)}) )?(?P<kind>{'|'.join(ScopeKind)}) (?P<pattern>.+)",
    re.DOTALL,
)


def parse_scope_selector(text: str) -> ScopeSelector | None:
    """Return the selector that is written as ``str`` of it; None for any other text."""
    if (match := _SELECTOR.fullmatch(text)) is None:
        return None
    direction = None if match["direction"] is None else Direction(match["direction"])
    return ScopeSelector(ScopeKind(match["kind"]), match["pattern"], direction, match["each"] is not None)


_STAGE_DIRECTION = re.compile(r"stage\w*?_([fbw])(?![A-Za-z0-9])")
_DIRECTION_WORD = re.compile(
    r"(?<![A-Za-z])(?:(?P<recompute>recompute|recomputation|remat)|(?P<forward>forward|fwd|fprop|[Ff](?=\)))"
    r"|(?P<backward>backward|bwd|bprop|[BWbw](?=\))))(?![a-z])",
    re.IGNORECASE,
)
_DIRECTION_BY_STAGE_LETTER = {"f": Direction.FORWARD, "b": Direction.BACKWARD, "w": Direction.BACKWARD}


def find_direction_word(name: str) -> Direction | None:
    """Return the direction that the name of a range states; None for one that states none, or several.

    ``layer05_stage5_f_layer06_stage1_b`` states that of its last stage, ``forward chunk 0 backward chunk 1`` several.
    """
    if letters := _STAGE_DIRECTION.findall(name):
        return _DIRECTION_BY_STAGE_LETTER[letters[-1]]
    stated = {match.lastgroup for match in _DIRECTION_WORD.finditer(name)}
    return Direction(stated.pop() or "none") if len(stated) == 1 else None
