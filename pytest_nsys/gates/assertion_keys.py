"""What does one entry under ``assertions:`` ask for, be it a sentence or a mapping?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from yaml.nodes import Node, ScalarNode

from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.table import Selector
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import KernelsMode, Span, printable
from pytest_nsys.core.units import HASH
from pytest_nsys.gates.assertion import (
    AllowMissing,
    Assertion,
    Constant,
    FromBaseline,
    Location,
    Requirement,
    Tolerance,
)
from pytest_nsys.gates.baseline_keys import read_baseline
from pytest_nsys.gates.kinds import SENTENCE_SAYS, Entry, clean_name
from pytest_nsys.gates.limits import MetricSpec, SentenceMistake, parse_requirement
from pytest_nsys.gates.pipeline_rule import WORD, cannot_rule
from pytest_nsys.gates.selector_keys import SelectorKeys
from pytest_nsys.gates.sentences import Sentence, asserted, judged, not_a_quantity, parse_sentence
from pytest_nsys.gates.value_range import warns_alike
from pytest_nsys.gates.yaml_nodes import Reader

MAX_ID = 200


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the file says for all of its assertions."""

    shown_path: Path
    axes: tuple[str, ...] = ()
    tolerance: Tolerance | None = None
    window: str = "median"
    span: Span | None = None
    kernels: KernelsMode | None = None
    allow_missing: AllowMissing = field(default_factory=dict)

    def location(self, node: Node) -> Location:
        """Where a node stands, as mistakes and reports show it."""
        return Location(self.shown_path, node.start_mark.line + 1, node.start_mark.column + 1)


def read_assertion(reader: Reader, node: Node, defaults: Defaults) -> list[Assertion]:
    """The assertions that one entry stands for: several where it has ``for:``, none where it is mistaken."""
    if isinstance(node, ScalarNode):
        sentence = _read_sentence(reader, node, "an assertion", defaults)
        written = clean_name(node.value)
        return [] if sentence is None else [asserted(sentence, written, written, defaults.location(node), defaults)]
    entry = _Assertion(reader, node, defaults)
    return entry.assertions() if entry.fields else []


def _read_sentence(reader: Reader, node: Node, what: str, defaults: Defaults) -> Sentence | None:
    def parse(text: str) -> Sentence:
        return parse_sentence(text, axes=defaults.axes, tolerance=defaults.tolerance)

    return reader.parsed(node, what, parse)


class _Assertion(Entry):
    """One mapping under ``assertions:``."""

    def __init__(self, reader: Reader, node: Node, defaults: Defaults) -> None:
        super().__init__(reader, node, "assertion", "an assertion")
        self._options = self.values()
        own = self._options.pop("tolerance", defaults.tolerance)
        self._ruled = self._options.pop("pipeline", False)
        self._defaults = dataclasses.replace(defaults, tolerance=own)

    def assertions(self) -> list[Assertion]:
        """All that the entry stands for."""
        name = self._name()
        sentence = self._from_sentence() if "assert" in self.fields else self._from_keys()
        if sentence is None:
            return []
        metric = METRICS[sentence.metric]
        self._check_exact(sentence)
        self._check_delay(sentence)
        keys = SelectorKeys(self, metric, self._defaults.axes)
        where = keys.where(fixed=sentence.where)
        values = judged(metric, sentence.aggregates, sentence.balance_across)
        warn = self._requirement("warn", values, constant=True)
        self._check_early(warn, sentence.require)
        name = name or self._words(sentence, where)
        made = []
        for choice in keys.choices(fixed={**sentence.where, **where}):
            one = dataclasses.replace(sentence, where={**sentence.where, **where, **choice})
            chosen = ",".join(f"{d}={clean_name(selector.values[0])}" for d, selector in choice.items())
            full = f"{name}[{chosen}]" if chosen else name
            text = self._words(sentence, {**where, **choice})
            plain = asserted(one, full, text, self._defaults.location(self.node), self._defaults)
            made.append(dataclasses.replace(plain, warn=warn, **self._options))
        return made

    def _check_exact(self, sentence: Sentence) -> None:
        """Structure is the baseline's, or not: a tolerance beside it would be one that nobody looks at."""
        limit = sentence.require.limit
        if "tolerance" in self.fields and isinstance(limit, FromBaseline) and limit.tolerance is None:
            what = f"'{sentence.require.text}' is exact: it takes no tolerance"
            self.mistake("tolerance", what)

    def _check_delay(self, sentence: Sentence) -> None:
        """Only what noise may explain can wait for the next run, and only where it would be red without waiting."""
        limit = sentence.require.limit
        if "fail_after" not in self.fields:
            return
        if not isinstance(limit, FromBaseline) or limit.tolerance is None:
            what = f"'fail_after' waits out noise: it needs a baseline with a tolerance, and '{sentence.require.text}' "
            self.mistake("fail_after", what + "has none")
        for key, why in (("xfail", "expects the first bad run"), ("inconclusive", "says what becomes of such runs")):
            if key in self.fields:
                self.mistake("fail_after", f"'fail_after' cannot stand beside '{key}', which {why}")

    def _check_early(self, warn: Requirement | None, require: Requirement) -> None:
        """An early limit tells apart what holds the limit."""
        if warn is None or not isinstance(warn.limit, Constant) or not isinstance(require.limit, Constant):
            return
        assert warn.comparator is not None
        assert require.comparator is not None
        limits = (warn.comparator, warn.limit.value, require.comparator, require.limit.value)
        if alike := warns_alike(*limits):
            self.mistake(
                "warn", f"'{warn.text}' {alike} where '{require.text}' holds: write a limit that is reached before it"
            )

    def _name(self) -> str | None:
        """The id as a name; without one the sentence is the name."""
        written = self.text("id")
        if written is None:
            return None
        if "::" in written:
            self.mistake("id", "an id cannot hold '::', which separates the parts of a test's address")
        if not 0 < len(clean_name(written)) <= MAX_ID:
            self.mistake("id", f"an id has 1 to {MAX_ID} characters that can be printed")
        return clean_name(written)

    def _words(self, sentence: Sentence, where: Mapping[str, Selector]) -> str:
        """The sentence that a person reads: as written, with what the keys beside it add."""
        selectors = " ".join(f"{d} {'|'.join(selector.values)}" for d, selector in where.items())
        if "assert" in self.fields:
            added = f" where {selectors}" if selectors else ""
            return clean_name(f"{self.fields['assert'].value}{added}")
        taken = " ".join(f"{a.word} over {', '.join(a.over or ())} of" for a in reversed(sentence.aggregates))
        axis = sentence.balance_across
        what = f"balance of {sentence.metric} across {axis}" if axis else sentence.metric
        what = f"{WORD} {what}" if sentence.pipeline else what
        return clean_name(f"{taken} {selectors} {what} {sentence.require.text}")

    def _from_sentence(self) -> Sentence | None:
        for key in SENTENCE_SAYS:
            if key in self.fields:
                self.mistake(key, f"'{key}' cannot stand beside 'assert': the sentence says it")
        return _read_sentence(self.reader, self.fields["assert"], "assert", self._defaults)

    def _from_keys(self) -> Sentence | None:
        if "metric" not in self.fields:
            self.mistake("", "an assertion needs 'metric' (or 'assert' with a sentence)")
            return None
        if "require" in self.fields and "baseline" in self.fields:
            self.mistake("baseline", "write either 'require' or 'baseline', or two assertions")
        if "require" not in self.fields and "baseline" not in self.fields:
            self.mistake("", "an assertion needs 'require' or 'baseline'")
        metric = self._metric()
        if metric is None:
            return None
        keys = SelectorKeys(self, metric, self._defaults.axes)
        axis = keys.balance()
        across = keys.across()
        values = judged(metric, across, axis)
        if metric.unit == HASH and (across or axis):
            self.mistake("across" if across else "balance", not_a_quantity(metric))
        require = None
        if "baseline" in self.fields:
            require = read_baseline(self, values, self._defaults.tolerance)
        require = self._requirement("require", values) or require
        if require is None:
            return None
        if self._ruled and (what := cannot_rule(metric.name, bool(across or axis), require)):
            self.mistake("pipeline", what)
        return Sentence(metric.name, require, {}, across, axis, self._ruled)

    def _metric(self) -> MetricSpec | None:
        name = self.text("metric")
        if name is None:
            return None
        metric = METRICS.get("_".join(name.split()))
        if metric is None:
            hint = did_you_mean(name, METRICS)
            self.mistake("metric", f"unknown metric '{printable(name, 60)}'{hint}")
        return metric

    def _requirement(self, key: str, values: MetricSpec, *, constant: bool = False) -> Requirement | None:
        if key not in self.fields:
            return None
        node = self.fields[key]

        def parse(text: str) -> Requirement:
            try:
                return parse_requirement(text, values, self._defaults.tolerance, constant=constant)
            except SentenceMistake as mistake:
                if isinstance(node, ScalarNode) and node.style == ">":
                    what = f'{mistake} (YAML reads > as the start of a block: quote it, as in ">= 60%")'
                    raise SentenceMistake(mistake.offset, what) from None
                raise

        return self.reader.parsed(node, key, parse)
