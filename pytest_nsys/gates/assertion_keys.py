"""What does one entry under ``assertions:`` ask for: a sentence, alone or with keys that say more of it?"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Mapping

from yaml.nodes import Node, ScalarNode

from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.core.conventions import KIND_WORDS
from pytest_nsys.core.words import printable
from pytest_nsys.gates.kinds import Entry
from pytest_nsys.gates.limits import (
    SentenceMistake,
    parse_requirement,
    warns_alike,
)
from pytest_nsys.gates.model import (
    Assertion,
    Constant,
    FromBaseline,
    GateFile,
    Requirement,
    Severity,
)
from pytest_nsys.gates.names import clean_name, without_limit, written_labels
from pytest_nsys.gates.sentences import (
    check_dimension,
    parse_sentence,
    selector_value,
)
from pytest_nsys.gates.yaml_nodes import NodeReader

MAX_ITEMS = 1000
"""Most items that one ``for:`` may make."""


class Selecting(Entry):
    """A mapping that names rows of a metric, with ``where`` and ``for``.

    ``gate`` is what the file says for all of its assertions.
    """

    def __init__(self, reader: NodeReader, node: Node, gate: GateFile, section: str, what: str) -> None:
        super().__init__(reader, node, section, what)
        self.gate = gate

    def where(self, metric: Metric, fixed: Collection[str]) -> dict[str, Selector]:
        """The selectors of ``where:``; ``fixed`` are dimensions that a sentence selects already."""
        found = {}
        for dimension, node in self._dimensions(metric, "where", fixed):
            nodes = self.reader.one_or_items(node, dimension)
            found[dimension] = Selector(tuple(self._labels(metric, dimension, nodes)))
        return found

    def choices(self, metric: Metric, fixed: Collection[str]) -> list[dict[str, Selector]]:
        """The selectors of each item that ``for:`` makes; without it one choice of nothing."""
        labels: dict[str, list[str]] = {}
        for dimension, node in self._dimensions(metric, "for", fixed):
            some = self._labels(metric, dimension, self.reader.items(node, f"for {printable(dimension, 40)}"))
            labels[dimension] = list(dict.fromkeys(some))
            if len(labels[dimension]) < len(some):
                self.reader.mistake(node, f"for {dimension} names a value twice")
        count = math.prod(len(some) for some in labels.values())
        if count > MAX_ITEMS:
            self.mistake("for", f"this makes {count} items: at most {MAX_ITEMS} are allowed")
            return []
        products = itertools.product(*labels.values())
        return [{d: Selector((one,)) for d, one in zip(labels, p, strict=True)} for p in products]

    def _dimensions(self, metric: Metric, key: str, fixed: Collection[str]) -> Iterable[tuple[str, Node]]:
        """The dimensions of the metric that stand under a key, of which none is selected elsewhere."""
        if key not in self.fields:
            return
        for word, node in self.reader.entries(self.fields[key], key):
            wrong = check_dimension(word.value, metric, self.gate.axes)
            if wrong is None and word.value in fixed:
                wrong = f"'{word.value}' is selected already"
            if wrong is not None:
                self.reader.mistake(word, wrong)
            else:
                yield word.value, node

    def _labels(self, metric: Metric, dimension: str, nodes: Iterable[Node]) -> list[str]:
        def parse(text: str) -> str:
            return selector_value(metric, dimension, text.strip(), self.gate.axes)

        found = (self.reader.parsed(node, dimension, parse) for node in nodes)
        return [label for label in found if label is not None]


MAX_ID = 200


def read_assertion(reader: NodeReader, node: Node, gate: GateFile) -> list[Assertion]:
    """The assertions that one entry stands for: several where it has ``for:``, none where it is mistaken.

    ``gate`` is what the file says for all of its own.
    """
    if isinstance(node, ScalarNode):
        sentence = _read_sentence(reader, node, "an assertion", gate)
        if sentence is None:
            return []
        written, short = clean_name(node.value), clean_name(without_limit(node.value))
        return [dataclasses.replace(sentence, name=short, full_name=written, sentence=written)]
    entry = _AssertionEntry(reader, node, gate)
    return entry.assertions() if entry.fields else []


def _read_sentence(reader: NodeReader, node: Node, what: str, gate: GateFile) -> Assertion | None:
    return reader.parsed(node, what, lambda text: parse_sentence(text, gate, reader.location(node)))


class _AssertionEntry(Selecting):
    """One mapping under ``assertions:``."""

    def __init__(self, reader: NodeReader, node: Node, gate: GateFile) -> None:
        super().__init__(reader, node, gate, "assertion", "an assertion")
        self._options = self.values()

    def assertions(self) -> list[Assertion]:
        """All that the entry stands for."""
        name = self._name()
        if "assert" not in self.fields:
            self.mistake("", "an assertion needs 'assert' with a sentence")
            return []
        sentence = _read_sentence(self.reader, self.fields["assert"], "assert", self.gate)
        if sentence is None:
            return []
        metric = sentence.measures
        self._check_delay(sentence)
        self._check_kind(sentence.kind)
        where = self.where(metric, fixed=sentence.where)
        warn = self._warn(sentence)
        full_name = name or self._words(where)
        name = name or self._words(where, with_limit=False)
        made = []
        for choice in self.choices(metric, fixed={**sentence.where, **where}):
            chosen = ",".join(f"{d}={clean_name(selector.values[0])}" for d, selector in choice.items())
            item = f"[{chosen}]" if chosen else ""
            one = dataclasses.replace(
                sentence,
                name=name + item,
                full_name=full_name + item,
                sentence=self._words({**where, **choice}),
                location=self.reader.location(self.node),
                where={**sentence.where, **where, **choice},
                warn=warn,
                **self._options,
            )
            made.append(one)
        return made

    def _check_delay(self, sentence: Assertion) -> None:
        """Only what noise may explain can wait for the next run, and only where it would be red without waiting."""
        limit = sentence.require.limit
        if "fail_after" not in self.fields:
            return
        if not isinstance(limit, FromBaseline) or limit.exact:
            what = f"'fail_after' waits out noise: it needs a baseline with a tolerance, and '{sentence.require.text}' "
            self.mistake("fail_after", what + "has none")
        if "xfail" in self.fields:
            self.mistake("fail_after", "'fail_after' cannot be used with 'xfail', which expects the first bad run")
        if self._options.get("severity", sentence.severity).inconclusive is Severity.FAIL:
            what = "'fail_after' makes bad runs inconclusive: it cannot be used with severity: {inconclusive: fail}"
            self.mistake("fail_after", what)

    def _check_kind(self, kind: str | None) -> None:
        """A window of its own that picks steps of another kind than the sentence would be passed over."""
        other = self._options.get("window", "").rpartition(" ")[2]
        known = KIND_WORDS if self.gate.convention is None else self.gate.convention.kind_names
        if kind is not None and other in known and other != kind:
            self.mistake("window", f"one kind of steps at a time: '{kind}' in the sentence, or '{other}' here")

    def _name(self) -> str | None:
        """The id as a name; None without one."""
        written = self.text("id")
        if written is None:
            return None
        if "::" in written:
            self.mistake("id", "an id cannot hold '::', which separates the parts of a test's address")
        if not 0 < len(clean_name(written)) <= MAX_ID:
            self.mistake("id", f"an id has 1 to {MAX_ID} printable characters")
        return clean_name(written)

    def _words(self, where: Mapping[str, Selector], *, with_limit: bool = True) -> str:
        """The sentence that a person reads: as written, with what the keys beside it select, or up to its comparison.
        It can be written in place of the entry.
        """
        written: str = self.fields["assert"].value
        words = written if with_limit else without_limit(written)
        selectors = " ".join(f"{d} {written_labels(selector.values)}" for d, selector in where.items())
        before, behind = (selectors, "") if not written.startswith("no ") else ("", f"where {selectors}" * bool(where))
        return clean_name(f"{before} {words} {behind}")

    def _warn(self, sentence: Assertion) -> Requirement | None:
        """The early limit, which has to tell apart what holds the limit."""
        node = self.fields.get("warn")
        if node is None:
            return None

        def parse(text: str) -> Requirement:
            try:
                return parse_requirement(text, sentence.judged, constant=True)
            except SentenceMistake as mistake:
                if isinstance(node, ScalarNode) and node.style == ">":
                    what = f'{mistake} (YAML reads > as the start of a block: quote it, as in ">= 60%")'
                    raise SentenceMistake(mistake.offset, what) from None
                raise

        warn, require = self.reader.parsed(node, "warn", parse), sentence.require
        if warn is None or not isinstance(warn.limit, Constant) or not isinstance(require.limit, Constant):
            return warn
        assert warn.comparator is not None
        assert require.comparator is not None
        if alike := warns_alike(warn.comparator, warn.limit.value, require.comparator, require.limit.value):
            what = f"'{warn.text}' {alike} where '{require.text}' holds: write a limit that is reached before it"
            self.mistake("warn", what)
        return warn
