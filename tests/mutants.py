"""Which small changes of a module are tried on it? The operators of mutmut, and what a slip in a rule looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider
from mutmut.mutation.mutators import mutation_operators

TEXTS = (cst.BaseString, cst.FormattedString, cst.Raise, cst.Annotation, cst.Decorator, cst.ImportFrom, cst.Import)
"""What prints, or only names."""

GUARD = "strict"
"""The argument of ``zip`` that finds columns of different lengths, of which there are none."""

FUNCTIONS = (cst.FunctionDef, cst.Lambda)

SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
TURNED: dict[type[cst.CSTNode], type[cst.BaseCompOp]] = {
    cst.LessThan: cst.GreaterThan,
    cst.GreaterThan: cst.LessThan,
    cst.LessThanEqual: cst.GreaterThanEqual,
    cst.GreaterThanEqual: cst.LessThanEqual,
}


@dataclass(frozen=True)
class Mutant:
    """A module with one change. ``function`` is the qualified name of the outermost one around it; empty for none, and
    where a function in it is made when the module is imported: as a rule in a table, it would keep its code.
    """

    file: str
    line: int
    lines: range
    function: str
    was: str
    now: str
    source: str

    @property
    def module(self) -> str:
        return "pytest_nsys." + self.file.removesuffix(".py").replace("/", ".")


def _one_less(node: cst.Integer) -> Iterator[cst.CSTNode]:
    if node.evaluated_value > 0:
        yield node.with_changes(value=repr(node.evaluated_value - 1))


def _other_function(node: cst.Call) -> Iterator[cst.CSTNode]:
    if isinstance(node.func, cst.Name) and node.func.value in SWAPPED:
        args = node.args[:1] if node.func.value == "sorted" else node.args
        yield node.with_changes(func=cst.Name(SWAPPED[node.func.value]), args=args)


def _other_way(node: cst.ComparisonTarget) -> Iterator[cst.CSTNode]:
    if (turned := TURNED.get(type(node.operator))) is not None:
        yield node.with_changes(operator=turned())


def _one_side(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    yield node.left
    yield node.right


def _always(node: cst.If | cst.CompIf) -> Iterator[cst.CSTNode]:
    for word in ("True", "False"):
        space = cst.SimpleWhitespace(" ")
        name = "whitespace_before_test"
        yield node.with_changes(test=cst.Name(word), **{name: space})


OPERATORS: list[tuple[Any, Callable[[Any], Any]]] = [
    *mutation_operators,
    (cst.Integer, _one_less),
    (cst.Call, _other_function),
    (cst.ComparisonTarget, _other_way),
    (cst.BooleanOperation, _one_side),
    (cst.If, _always),
    (cst.CompIf, _always),
]


class Mutants(list[tuple[cst.CSTNode, cst.CSTNode]]):
    """Every change of a module, as its old and its new node, in the order of the code."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.source = file, source
        wrapper = MetadataWrapper(cst.parse_module(source))
        self.module = wrapper.module
        self.places, self.parents = wrapper.resolve(PositionProvider), wrapper.resolve(ParentNodeProvider)
        self.called_at_import = {
            name for each in self.module.body if not isinstance(each, cst.FunctionDef) for name in _called(each)
        }
        self._visit(self.module)

    def _visit(self, node: cst.CSTNode) -> None:
        if isinstance(node, TEXTS) or (isinstance(node, cst.Arg) and _guards(node)):
            return
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                self.extend((node, changed) for changed in operator(node) if _guarded(node) == _guarded(changed))
        for child in node.children:
            self._visit(child)

    def mutant(self, node: cst.CSTNode, changed: cst.CSTNode) -> Mutant | None:
        """The module with one change; None where that is no other program."""
        mutated = self.module.deep_replace(node, changed).code
        was, now = _difference(self.source, mutated)
        if was == now or not _compiles(mutated):
            return None
        around = _around(node, self.parents)
        place = next(self.places[each] for each in around if each in self.places)
        outer = self.places[next(each for each in around if isinstance(each, cst.BaseStatement | cst.Module))]
        lines = range(outer.start.line, outer.end.line + 1)
        function = _function(around)
        made = function in self.called_at_import and sum(isinstance(each, FUNCTIONS) for each in around) > 1
        return Mutant(self.file, place.start.line, lines, "" if made else function, was, now, mutated)

    def line(self, node: cst.CSTNode) -> str:
        """The line in which a node begins."""
        number: int = next(self.places[each] for each in _around(node, self.parents) if each in self.places).start.line
        return self.source.splitlines()[number - 1]


def _called(node: cst.CSTNode) -> Iterator[str]:
    """The names of the functions that are called in it."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        yield node.func.value
    for child in node.children:
        yield from _called(child)


def _guards(arg: cst.Arg) -> bool:
    return arg.keyword is not None and arg.keyword.value == GUARD


def _guarded(node: cst.CSTNode) -> list[str]:
    args = node.args if isinstance(node, cst.Call) else ()
    return [cst.Module([]).code_for_node(arg.value) for arg in args if _guards(arg)]


def _around(node: cst.CSTNode, parents: Any) -> list[cst.CSTNode]:
    """The node, and all that it is in, from the inside out."""
    found = [node]
    while (parent := parents.get(found[-1])) is not None:
        found.append(parent)
    return found


def _function(around: list[cst.CSTNode]) -> str:
    """The qualified name of the outermost function whose body holds the node; empty where none does."""
    names: list[str] = []
    for inner, outer in zip(reversed(around[:-1]), reversed(around[1:]), strict=True):
        if isinstance(outer, cst.ClassDef):
            names.append(outer.name.value)
        elif isinstance(outer, cst.FunctionDef):
            return ".".join([*names, outer.name.value]) if inner is outer.body else ""
    return ""


def _difference(one: str, other: str) -> tuple[str, str]:
    """The lines that differ, in one line each."""
    old, new = one.splitlines(), other.splitlines()
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    last = next((i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), 0)
    last = min(last, len(old) - first, len(new) - first)
    return tuple(" ".join(" ".join(each[first : len(each) - last]).split()) for each in (old, new))  # type: ignore[return-value]


def _compiles(source: str) -> bool:
    try:
        compile(source, "", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
