"""What do the keys mean that a whole gate file and a single assertion both have: window, tolerance, missing rows?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pytest_nsys.analysis.windows import WORDS as WINDOW_WORDS
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import printable
from pytest_nsys.core.units import Quantity, UnitMistake, absolute_amounts, parse_quantity, relative_amount
from pytest_nsys.gates.assertion import AllowMissing, Tolerance
from pytest_nsys.gates.limits import NOISE
from pytest_nsys.gates.yaml_nodes import Reader

TOLERANCE_KEYS = ("rel", "abs")
WINDOW_KEYS = ("start", "end")

_ANYTHING = Tolerance(Fraction(1, 100))
"""Stands for a mistaken tolerance, so that the sentences that use it are not blamed as well."""

_NUMBERS = re.compile(r"-?[0-9][0-9.:]*")


def read_window(reader: Reader, node: Node) -> str | None:
    """The window as canonical text: a word, an index, ``START:END`` in ns, or a pattern of range names."""
    if isinstance(node, MappingNode):
        return _read_span(reader, node)
    text = reader.text(node, "window")
    if text is None:
        return None
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,18}", text):
        return str(int(text))
    if _NUMBERS.fullmatch(text):
        what = f"a window is an index from 0 on, a word, or {{start: NS, end: NS}}, not '{printable(text, 40)}'"
        reader.mistakes.at(node, what)
        return None
    hint = "" if text in WINDOW_WORDS or "%" in text else did_you_mean(text, WINDOW_WORDS, cutoff=0.75)
    if hint:
        reader.mistakes.at(node, f"unknown window '{printable(text, 40)}'{hint}")
        return None
    return text


def _read_span(reader: Reader, node: Node) -> str | None:
    fields = reader.mapping(node, "window", WINDOW_KEYS)
    if len(fields) < len(WINDOW_KEYS):
        reader.mistakes.at(node, "a window needs both start and end, in ns")
        return None
    start = reader.whole(fields["start"], "start")
    end = reader.whole(fields["end"], "end")
    if start is None or end is None:
        return None
    if end <= start:
        reader.mistakes.at(fields["end"], "a window ends after its start")
        return None
    return f"{start}:{end}"


def read_allow_missing(reader: Reader, node: Node) -> AllowMissing:
    """``{stage1_*: [0], stage5_b: 7}``: the ranks that may lack these stages."""
    found: dict[str, frozenset[int]] = {}
    for key, value in reader.entries(node, "allow_missing"):
        nodes = reader.items(value, key.value) if isinstance(value, SequenceNode) else [value]
        ranks = [reader.whole(each, "a rank") for each in nodes]
        found[key.value] = frozenset(rank for rank in ranks if rank is not None)
    return found


def read_tolerance(reader: Reader, node: Node) -> Tolerance:
    """``{rel: 5%, abs: [50us, 1pp, 2]}``, or ``noise``."""
    if not isinstance(node, ScalarNode):
        return tolerance_of(reader, reader.mapping(node, "tolerance", TOLERANCE_KEYS))
    text = reader.text(node, "tolerance")
    if text == NOISE:
        return Tolerance(noise=True)
    if text is not None:
        hint = did_you_mean(text, [NOISE])
        what = f"tolerance is noise, or a mapping such as {{rel: 5%, abs: 50us}}, not '{printable(text, 40)}'{hint}"
        reader.mistakes.at(node, what)
    return _ANYTHING


def tolerance_of(reader: Reader, fields: Mapping[str, Node]) -> Tolerance:
    """The tolerance that the keys ``rel`` and ``abs`` of a mapping give together."""
    relative = _read_relative(reader, fields["rel"]) if "rel" in fields else Fraction(0)
    absolute: dict[str, Fraction] | None = {}
    if "abs" in fields:
        amounts = fields["abs"]
        nodes = reader.items(amounts, "abs") if isinstance(amounts, SequenceNode) else [amounts]
        absolute = _read_absolute(reader, nodes)
    if not any(key in fields for key in TOLERANCE_KEYS) or relative is None or absolute is None:
        return _ANYTHING
    return Tolerance(relative, absolute)


def _read_relative(reader: Reader, node: Node) -> Fraction | None:
    quantity = _read_quantity(reader, node, "rel")
    try:
        return None if quantity is None else relative_amount(quantity)
    except UnitMistake as mistake:
        reader.mistakes.at(node, str(mistake))
        return None


def _read_absolute(reader: Reader, nodes: Iterable[Node]) -> dict[str, Fraction] | None:
    """Amounts by unit, of which each may be given once; None where one is a mistake."""
    found: dict[str, Fraction] = {}
    good = True
    for node in nodes:
        quantity = _read_quantity(reader, node, "abs")
        try:
            amounts = {} if quantity is None else absolute_amounts(quantity)
        except UnitMistake as mistake:
            reader.mistakes.at(node, str(mistake))
            amounts = {}
        if amounts.keys() & found.keys():
            reader.mistakes.at(node, "abs takes one amount of each kind, as in [50us, 1pp, 2]")
        good = good and bool(amounts)
        found.update(amounts)
    return found if good else None


def _read_quantity(reader: Reader, node: Node, what: str) -> Quantity | None:
    text = reader.text(node, what)
    if text is None:
        return None
    try:
        return parse_quantity(text)
    except UnitMistake as mistake:
        reader.mistakes.at(node, str(mistake))
        return None
