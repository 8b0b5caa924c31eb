"""What does ``quality:`` in a gate file ask of a trace before anything is judged on it?"""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import Any

from yaml.nodes import Node

from pytest_nsys.analysis.quality import Bounds
from pytest_nsys.core.model import printable
from pytest_nsys.core.units import Quantity, UnitMistake, parse_quantity
from pytest_nsys.gates.yaml_nodes import Reader

OFF = "off"
SHARES = ("unlaunched", "unstaged", "unclassified", "unknown_communication", "empty_anchors")
NUMBERS = ("typicality",)
COUNTS = {
    **dict.fromkeys(("missing_ranks", "whole_graphs", "dropped", "diagnostics", "uneven_anchors"), 0),
    "anchors": 1,
    "clocks": 1,
}
"""Whole numbers, and the least that each can be."""

QUALITY_KEYS = (
    *("missing_ranks", "unlaunched", "unstaged", "unclassified", "unknown_communication", "whole_graphs", "dropped"),
    *("diagnostics", "anchors", "empty_anchors", "uneven_anchors", "typicality", "clocks"),
)


def read_quality(reader: Reader, node: Node) -> Bounds:
    """``{missing_ranks: 6, unlaunched: 20%, typicality: off}``; what is not given keeps its default."""
    found: dict[str, Any] = {}
    for key, value in reader.mapping(node, "quality", QUALITY_KEYS).items():
        text = reader.text(value, key)
        if text is None:
            continue
        if text.strip().lower() == OFF:
            found[key] = None
        elif key in COUNTS:
            found[key] = _read_count(reader, value, key, text.strip())
        else:
            found[key] = _read_number(reader, value, key, text)
    return Bounds(**found)


def _read_count(reader: Reader, node: Node, key: str, text: str) -> int:
    least = COUNTS[key]
    if text.isascii() and text.isdecimal() and len(text) < 19 and int(text) >= least:
        return int(text)
    what = f"{key} is a whole number from {least} on, or off, not '{printable(text, 40)}'"
    reader.mistakes.at(node, what)
    return least


def _read_number(reader: Reader, node: Node, key: str, text: str) -> Fraction:
    share = key in SHARES
    wanted = "a share, as in 10%" if share else "a number of MAD, as in 5"
    quantity: Quantity | None = None
    with contextlib.suppress(UnitMistake):
        quantity = parse_quantity(text)
    if quantity is None or quantity.unit != ("%" if share else "") or (share and quantity.value > 100):
        reader.mistakes.at(node, f"{key} is {wanted}, or off, not '{printable(text.strip(), 40)}'")
        return Fraction(0)
    return quantity.value / 100 if share else quantity.value
