"""Which rows does a mapping under ``assertions:`` pick, and which does it take together?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

from yaml.nodes import Node

from pytest_nsys.analysis.table import Selector
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import printable
from pytest_nsys.gates.assertion import Aggregate
from pytest_nsys.gates.kinds import Entry
from pytest_nsys.gates.limits import MetricSpec
from pytest_nsys.gates.sentences import AGGREGATE_WORDS, aggregate_word, check_dimension, selector_value, unknown_axis

MAX_ITEMS = 1000
"""Most items that one ``for:`` may make."""


class SelectorKeys(NamedTuple):
    """Reads ``where``, ``for``, ``across`` and ``balance`` of one assertion on one metric."""

    entry: Entry
    metric: MetricSpec
    axes: Collection[str]

    def balance(self) -> str | None:
        """The mesh axis across which the metric is to be balanced."""
        axis = self.entry.text("balance")
        if axis is None:
            return None
        if axis.strip() not in self.axes or "rank" not in self.metric.dimensions:
            self.entry.mistake("balance", unknown_axis(axis.strip(), self.axes))
        if "across" in self.entry.fields:
            self.entry.mistake("across", "'across' and 'balance' cannot stand together")
        return axis.strip()

    def across(self) -> tuple[Aggregate, ...]:
        """One aggregate for each dimension that is named, in the order written."""
        found = []
        for dimension, node in self._dimensions("across", fixed=()):
            word = self.entry.reader.parsed(node, "across", _word)
            if word is not None:
                found.append(Aggregate(word, (dimension,)))
        return tuple(found)

    def where(self, fixed: Collection[str]) -> dict[str, Selector]:
        """The selectors of ``where:``; ``fixed`` are dimensions that a sentence selects already."""
        found = {}
        for dimension, node in self._dimensions("where", fixed):
            found[dimension] = Selector(tuple(self._labels(dimension, self.entry.reader.one_or_items(node, dimension))))
        return found

    def choices(self, fixed: Collection[str]) -> list[dict[str, Selector]]:
        """The selectors of each item that ``for:`` makes; without it one choice of nothing."""
        labels: dict[str, list[str]] = {}
        for dimension, node in self._dimensions("for", fixed):
            some = self._labels(dimension, self.entry.reader.items(node, f"for {printable(dimension, 40)}"))
            labels[dimension] = list(dict.fromkeys(some))
            if len(labels[dimension]) < len(some):
                self.entry.reader.mistakes.at(node, f"for {dimension} names a value twice")
        count = math.prod(len(some) for some in labels.values())
        if count > MAX_ITEMS:
            self.entry.mistake("for", f"this makes {count} items: at most {MAX_ITEMS} are allowed")
            return []
        products = itertools.product(*labels.values())
        return [{d: Selector((one,)) for d, one in zip(labels, p, strict=True)} for p in products]

    def _dimensions(self, key: str, fixed: Collection[str]) -> Iterable[tuple[str, Node]]:
        """The dimensions of the metric that stand under a key, of which none is selected elsewhere."""
        if key not in self.entry.fields:
            return
        for word, node in self.entry.reader.entries(self.entry.fields[key], key):
            wrong = check_dimension(word.value, self.metric, self.axes)
            if wrong is None and word.value in fixed:
                wrong = f"'{word.value}' is selected already"
            if wrong is not None:
                self.entry.reader.mistakes.at(word, wrong)
            if wrong is None or key == "across":  # whose words are looked at all the same
                yield word.value, node

    def _labels(self, dimension: str, nodes: Iterable[Node]) -> list[str]:
        def parse(text: str) -> str:
            return selector_value(dimension, text.strip(), self.axes)

        found = (self.entry.reader.parsed(node, dimension, parse) for node in nodes)
        return [label for label in found if label is not None]


def _word(text: str) -> str:
    word = text.strip()
    if not aggregate_word(word):
        known = did_you_mean(word, AGGREGATE_WORDS) or f": words are {', '.join(AGGREGATE_WORDS)}, p1 … p99"
        raise ValueError(f"'{printable(word, 40)}' takes nothing together{known}")
    return word
