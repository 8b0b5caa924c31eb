"""What does a YAML file say, and where, before its keys are typed?

Scalars stay text: YAML 1.1 would make 8 of ``010`` and false of ``no``. The reader of a key converts its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pytest_nsys.core.errors import GateFileError, Mistake, suggest_or_list
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.model import Location

MAX_FILE_BYTES = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 50

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_YAML_TYPES = ("null", "bool", "int", "float", "str", "timestamp", "value", "seq", "map", "merge")
_PLAIN_TAGS = frozenset(_TAG + kind for kind in _YAML_TYPES)
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")

_TYPE_NOUNS = {"int": "a number", "float": "a number", "bool": "true or false"}
_LEADING_STAR = re.compile(r"(?:^|[-:,\[{])\s*\*")

T = TypeVar("T")


def _find_column_offset(node: Node, offset: int) -> int:
    """Return ``offset`` in a scalar's text as a distance in its line; 0 where escapes or line breaks lie between."""
    start, end = node.start_mark, node.end_mark
    if not isinstance(node, ScalarNode) or start.line != end.line:
        return 0
    quotes = 2 if node.style in ("'", '"') else 0
    return offset + quotes // 2 if end.column - start.column - quotes == len(node.value) else 0


def compose(content: bytes, reader: NodeReader) -> MappingNode:
    """Return the mapping that a YAML file holds, safe to walk: small, without tags, alias bombs and cycles.

    Raises GateFileError.
    """
    text = _decode_text(content, reader)
    try:
        _check_depth(text, reader)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise reader.build_error(_explain_yaml_error(error, text)) from None
    except yaml.YAMLError:
        raise reader.build_error((1, 1, "this cannot be read as YAML")) from None
    if root is None:
        raise reader.build_error((1, 1, "the file is empty: write version: 1 and assertions"))
    _check_tree(root, reader)
    if not isinstance(root, MappingNode):
        reader.add_mistake(root, "a gate file is a mapping: version: 1, assertions: …")
        raise reader.build_error()
    return root


def read_file_bytes(path: Path, reader: NodeReader) -> bytes:
    """Return the bytes of the file, up to one more than a gate file may have. Raises GateFileError."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise reader.build_error((1, 1, f"cannot be read: {error.strerror or error}")) from None


def _decode_text(content: bytes, reader: NodeReader) -> str:
    """Decode the content of a file. Raises GateFileError for what is too long, not UTF-8, or no text."""
    if len(content) > MAX_FILE_BYTES:
        raise reader.build_error((1, 1, f"the file is larger than {MAX_FILE_BYTES:_} bytes".replace("_", " ")))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise reader.build_error((line, 1, "this is not UTF-8 text")) from None
    unreadable = _CONTROL_CHARACTERS.search(text)
    if unreadable is not None:
        line = text.count("\n", 0, unreadable.start()) + 1
        column = unreadable.start() - (text.rfind("\n", 0, unreadable.start()) + 1) + 1
        raise reader.build_error(
            (line, column, f"a control character (U+{ord(unreadable[0]):04X}): this is not a text file")
        )
    return text


def _check_depth(text: str, reader: NodeReader) -> None:
    """Refuse deep nesting before a tree is made of it."""
    depth = 0
    # PyYAML's C composer recurses until it crashes.
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            mark = event.start_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise reader.build_error((line, column, f"nested deeper than {MAX_DEPTH} levels"))


def _explain_yaml_error(error: yaml.MarkedYAMLError, text: str) -> tuple[int, int, str]:
    """Return line, column and explanation of an error of PyYAML, with the hint that sentences most often need."""
    problem, context = error.problem or "", error.context or ""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    glob = _LEADING_STAR.search("".join(text.splitlines()[line : line + 1]))
    if "block scalar" in context and error.context_mark:
        explanation = 'YAML reads > and | as the start of a block: quote it, as in ">= 60%"'
        return error.context_mark.line + 1, error.context_mark.column + 1, explanation
    if glob and glob.end() <= column + 1:
        explanation = 'YAML reads a leading * as an alias: quote it, as in "*stage*"'
        return line + 1, glob.end(), explanation
    if "another document" in problem:
        explanation = "a gate file is one document: remove what follows '---'"
    elif "cannot start any token" in problem and "\t" in "".join(text.splitlines()[line : line + 1])[: column + 1]:
        explanation = "a tab: indent YAML with spaces"
    elif "cannot start any token" in problem:
        explanation = "text cannot start with this character in YAML: quote it"
    elif "mapping values are not allowed" in problem:
        explanation = "a ':' where YAML allows none: quote the text that holds it, or correct the indentation"
    else:
        explanation = sanitize_line(f"not YAML: {f'{context}, ' if context else ''}{problem}")
    return line + 1, column + 1, explanation


def _check_tree(root: Node, reader: NodeReader) -> None:
    """Refuse trees that are slow or unsafe to walk: with cycles, tags, or aliases that expand to very many nodes."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def count_nodes(node: Node, depth: int) -> int:
        """Count this node and the nodes below it, each alias as the nodes that it stands for. Raises GateFileError for
        a cycle.
        """
        if id(node) in open_nodes:
            reader.add_mistake(node, "this holds an alias of itself")
            raise reader.build_error()
        if depth > MAX_DEPTH:
            reader.add_mistake(node, f"nested deeper than {MAX_DEPTH} levels")
            raise reader.build_error()
        if id(node) not in sizes:
            if node.tag not in _PLAIN_TAGS:
                shown_tag = sanitize_line(node.tag.replace(_TAG, "!!"), 40)
                reader.add_mistake(node, f"YAML tags are not allowed: '{shown_tag}' (quote text that begins with !)")
            open_nodes.add(id(node))
            sizes[id(node)] = 1 + sum(count_nodes(child, depth + 1) for child in _list_children(node))
            open_nodes.discard(id(node))
        return sizes[id(node)]

    if count_nodes(root, 0) > MAX_NODES:
        limit_text = f"{MAX_NODES:_}".replace("_", " ")
        raise reader.build_error((1, 1, f"the file holds more than {limit_text} nodes, its aliases expanded"))


def _list_children(node: Node) -> Iterator[Node]:
    for child in node.value if isinstance(node, (MappingNode, SequenceNode)) else ():
        if isinstance(child, tuple):
            yield from child
        else:
            yield child


def is_empty(node: Node) -> bool:
    """Whether a key has no value: nothing behind the colon, ``~`` or ``null``."""
    return isinstance(node, ScalarNode) and node.tag == _TAG + "null"


class NodeReader:
    """Reads the nodes of one file as typed values, and collects all mistakes, each with its place.

    A value of the wrong type is recorded as a mistake, and reads as None or as empty.
    """

    def __init__(self, shown_path: Path) -> None:
        self._shown_path = shown_path
        self._mistakes: set[tuple[int, int, str]] = set()

    def locate(self, node: Node) -> Location:
        """Return where a node stands, as mistakes and reports show it."""
        return Location(self._shown_path, node.start_mark.line + 1, node.start_mark.column + 1)

    def add_mistake_at(self, line: int, column: int, text: str) -> None:
        """Record a mistake; ``line`` and ``column`` count from 1."""
        self._mistakes.add((line, column, text))

    def add_mistake(self, node: Node, text: str, offset: int = 0) -> None:
        """Record a mistake ``offset`` characters into a node, or at its start where that cannot be counted."""
        self.add_mistake_at(
            node.start_mark.line + 1, node.start_mark.column + 1 + _find_column_offset(node, offset), text
        )

    def build_error(self, *final_mistakes: tuple[int, int, str]) -> GateFileError:
        """Return all mistakes as one error, in the order of the file; ``final_mistakes`` are those after which nothing
        could be read.
        """
        file = sanitize_line(str(self._shown_path), 1000)
        mistakes = sorted(self._mistakes | {*final_mistakes})
        return GateFileError([Mistake(file, text, line, column) for line, column, text in mistakes])

    def raise_mistakes(self) -> None:
        """Raise GateFileError where a mistake was noted."""
        if self._mistakes:
            raise self.build_error()

    def read_mapping(
        self, node: Node, noun: str, keys: Collection[str], suggestions: Mapping[str, str] | None = None
    ) -> dict[str, Node]:
        """Return the values of a mapping by key, and note keys that are not among ``keys``.

        ``suggestions`` says what to write for such keys.
        """
        nodes = {}
        for key, value in self.read_entries(node, noun):
            if key.value in keys:
                nodes[key.value] = value
            elif isinstance(node, MappingNode) and node.flow_style and key.value and is_empty(value):
                shown_key = sanitize_line(key.value, 40)
                self.add_mistake(key, f"in {{ }} a comma ends a value: quote the one that '{shown_key}' is a part of")
            else:
                suggestion = (suggestions or {}).get(key.value)
                advice = f": write {suggestion}" if suggestion else suggest_or_list(key.value, keys, f"{noun} has")
                self.add_mistake(key, f"unknown key '{sanitize_line(key.value, 40)}'{advice}")
        return nodes

    def read_entries(self, node: Node, noun: str) -> list[tuple[ScalarNode, Node]]:
        """Return the pairs of a mapping whose keys are free words, each of them once."""
        if not isinstance(node, MappingNode) or not node.value:
            self.add_mistake(node, f"{noun} is a mapping, as in {{key: value}}")
            return []
        entries: dict[str, tuple[ScalarNode, Node]] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self.add_mistake(key, "a key is one word")
            elif key.tag == _TAG + "merge":
                self.add_mistake(key, "merge keys (<<) are not allowed: write the keys out")
            elif key.value in entries:
                first_line = entries[key.value][0].start_mark.line + 1
                shown_key = sanitize_line(key.value, 40)
                self.add_mistake(key, f"'{shown_key}' is given twice (first on line {first_line})")
            else:
                entries[key.value] = (key, value)
        return list(entries.values())

    def read_text(self, node: Node, noun: str) -> str | None:
        """Return the text of a scalar as written; None if it is empty or no scalar."""
        if not isinstance(node, ScalarNode):
            kind = "a list" if isinstance(node, SequenceNode) else "a mapping"
            self.add_mistake(node, f"{noun} is text, not {kind}")
            return None
        if is_empty(node) or not node.value.strip():
            self.add_mistake(node, f"{noun} is empty")
            return None
        value: str = node.value
        return value

    def read_name(self, node: Node, noun: str) -> str | None:
        """Return a text; record a mistake for an unquoted one that YAML reads as a number, boolean or null."""
        text = self.read_text(node, noun)
        if text is not None and (kind := _TYPE_NOUNS.get(node.tag.removeprefix(_TAG))):
            self.add_mistake(
                node, f"{noun} is a name, not {kind}: quote it, as in {json.dumps(sanitize_line(text, 40))}"
            )
        return None if text is None else text.strip()

    def read_parsed(self, node: Node, noun: str, parse: Callable[[str], T]) -> T | None:
        """Return what ``parse`` makes of a text. A ValueError of ``parse`` is recorded as a mistake, at its ``offset``
        into the text.
        """
        text = self.read_text(node, noun)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as mistake:
            self.add_mistake(node, str(mistake), getattr(mistake, "offset", 0))
            return None

    def read_items(self, node: Node, noun: str) -> list[Node]:
        """Return the nodes of a list; empty, with a mistake, where there is none."""
        if not isinstance(node, SequenceNode) or not node.value:
            empty = isinstance(node, SequenceNode) or is_empty(node)
            self.add_mistake(node, f"{noun} is empty" if empty else f"{noun} is a list, as in [one, two]")
            return []
        return list(node.value)

    def read_one_or_items(self, node: Node, noun: str) -> list[Node]:
        """Return a scalar alone, or the nodes of a list."""
        return [node] if isinstance(node, ScalarNode) else self.read_items(node, noun)

    def read_texts(self, node: Node, noun: str) -> tuple[str, ...]:
        """Return one text, or those of a list, without the blanks around them."""
        texts = (self.read_text(item, noun) for item in self.read_one_or_items(node, noun))
        return tuple(text.strip() for text in texts if text is not None)
