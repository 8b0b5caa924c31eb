"""What does one entry under ``assertions:`` ask for, be it a sentence or a mapping: which rows, and what limit?"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from yaml.nodes import MappingNode, Node, ScalarNode

from pytest_nsys.analysis.metric_names import metric_named, unknown
from pytest_nsys.analysis.metrics import OF_STEP, Metric
from pytest_nsys.analysis.table import STATISTICS, Selector
from pytest_nsys.core.conventions import KIND_WORDS
from pytest_nsys.core.errors import did_you_mean
from pytest_nsys.core.units import ANY, HASH, format_tolerance
from pytest_nsys.core.words import printable
from pytest_nsys.gates.kinds import KEYS, SENTENCE_SAYS, Entry, tolerance_of
from pytest_nsys.gates.limits import (
    NO_TOLERANCE,
    NOISE,
    SentenceMistake,
    exact_alone,
    gives_something,
    held_to,
    nothing_for,
    of_no_metric,
    own_units,
    parse_requirement,
    tolerates_all,
    warns_alike,
)
from pytest_nsys.gates.model import (
    Aggregate,
    Assertion,
    Comparator,
    Constant,
    FromBaseline,
    FromHistory,
    GateFile,
    Judged,
    Requirement,
    Severity,
    Tolerance,
    judged,
)
from pytest_nsys.gates.names import clean_name, comparison, without_limit
from pytest_nsys.gates.sentences import (
    AGGREGATE_WORDS,
    WORD,
    Subject,
    aggregate_word,
    asserted,
    cannot_rule,
    check_dimension,
    not_a_quantity,
    parse_sentence,
    selector_value,
    unknown_axis,
)
from pytest_nsys.gates.yaml_nodes import NodeReader, is_empty


def read_baseline(assertion: Entry, judged: Judged, default: Tolerance | None) -> Requirement | None:
    """A limit from the baseline, on the side on which the metric gets worse.

    ``default`` is the tolerance that holds where ``baseline:`` gives none.
    """
    node = assertion.fields["baseline"]
    empty = is_empty(node) or (isinstance(node, MappingNode) and not node.value)
    if isinstance(node, ScalarNode) and not empty:
        word = NOISE if node.value.strip() == NOISE else "{rel: 5%}"
        shown = printable(node.value, 40)
        what = f"baseline is empty or a mapping, not '{shown}': write tolerance: {word} beside it"
        assertion.mistake("baseline", what)
        return None
    entry = None if empty else Entry(assertion.reader, node, "baseline")
    if entry is not None and not entry.fields:
        return None
    if judged.unit == HASH:
        assertion.mistake("baseline", exact_alone(judged))
        return None
    history = _history(entry) if entry is not None else None
    tolerance = _tolerance(assertion, entry, judged, default)
    if tolerance is None:
        return None
    limit = FromBaseline(tolerance, history)
    amount = format_tolerance(
        tolerance.relative, tolerance.absolute.get(judged.unit), judged.unit, noise=tolerance.noise
    )
    the_source = f"the {limit.source}" if history is not None else limit.source
    comparator, text = {
        "lower": (Comparator.LE, f"<= {limit.source} + {amount}"),
        "higher": (Comparator.GE, f">= {limit.source} - {amount}"),
    }.get(judged.better or "", (None, f"within {amount} of {the_source}"))
    if why := tolerates_all(comparator, tolerance, judged):
        assertion.mistake("baseline", f"'{text}' {why}; write a smaller tolerance, such as {{rel: 5%}}")
    return Requirement(comparator, limit, text)


def _history(entry: Entry) -> FromHistory | None:
    said = entry.values()
    if "history" not in entry.fields:
        for key, example in (("branch", "branch: main"), ("lag", "lag: 3")):
            if key in entry.fields:
                what = f"'{key}' says which runs of the history count"
                entry.mistake(key, f"{what}: it needs 'history', as in {{history: 10, {example}}}")
    return FromHistory(said["history"], said.get("branch"), said.get("lag", 0)) if "history" in said else None


def _tolerance(assertion: Entry, entry: Entry | None, judged: Judged, default: Tolerance | None) -> Tolerance | None:
    if entry is None or not any(key in entry.fields for key in KEYS["tolerance"]):
        if default is None:
            assertion.mistake("baseline", NO_TOLERANCE)
        elif not gives_something(default, judged):
            assertion.mistake("baseline", nothing_for(judged))
        return default
    if "tolerance" in assertion.fields:
        assertion.mistake("tolerance", "the tolerance is given twice: here and under 'baseline'")
    tolerance = tolerance_of(entry)
    if tolerance.absolute and judged.unit not in (ANY, *tolerance.absolute):
        assertion.mistake("baseline", nothing_for(judged))
    elif judged.unit != ANY and (foreign := own_units(tolerance)):
        assertion.mistake("baseline", of_no_metric(foreign[0]))
    return tolerance


MAX_ITEMS = 1000
"""Most items that one ``for:`` may make."""


class Selecting(Entry):
    """A mapping that names rows of a metric, with ``where``, ``for``, ``across`` and ``balance``.

    ``gate`` is what the file says for all of its assertions.
    """

    def __init__(self, reader: NodeReader, node: Node, gate: GateFile, section: str, what: str) -> None:
        super().__init__(reader, node, section, what)
        self.gate = gate

    def balance(self, metric: Metric) -> str | None:
        """The mesh axis across which the metric is to be balanced."""
        axis = self.text("balance")
        if axis is None:
            return None
        if axis.strip() not in self.gate.axes or not (metric.outside or "rank" in metric.dimensions):
            self.mistake("balance", unknown_axis(axis.strip(), self.gate.axes))
        if "across" in self.fields:
            self.mistake("across", "'across' and 'balance' cannot be used together")
        return axis.strip()

    def across(self, metric: Metric) -> tuple[Aggregate, ...]:
        """One aggregate for each dimension that is named, in the order written."""
        found = []
        for dimension, node in self._dimensions(metric, "across", fixed=()):
            word = self.reader.parsed(node, "across", _word)
            if dimension == "statistic" and not metric.outside:  # of which one is meant where nobody says
                meant = word if word in STATISTICS else STATISTICS[0]
                self.reader.mistake(node, f"a statistic is chosen, not aggregated: write where: {{statistic: {meant}}}")
            elif word is not None:
                found.append(Aggregate(word, (dimension,)))
        return tuple(found)

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
            if wrong is None or key == "across":  # whose words are looked at all the same
                yield word.value, node

    def _labels(self, metric: Metric, dimension: str, nodes: Iterable[Node]) -> list[str]:
        def parse(text: str) -> str:
            return selector_value(metric, dimension, text.strip(), self.gate.axes)

        found = (self.reader.parsed(node, dimension, parse) for node in nodes)
        return [label for label in found if label is not None]


def _word(text: str) -> str:
    word = text.strip()
    if not aggregate_word(word):
        known = did_you_mean(word, AGGREGATE_WORDS) or f": words are {', '.join(AGGREGATE_WORDS)}, p1 … p99"
        raise ValueError(f"'{printable(word, 40)}' is not an aggregate{known}")
    return word


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
        self._own: Tolerance | None = self._options.pop("tolerance", None)
        own = self._own or gate.tolerance
        self._ruled = self._options.pop("pipeline", False)
        self.gate = dataclasses.replace(gate, tolerance=own)

    def assertions(self) -> list[Assertion]:
        """All that the entry stands for."""
        name = self._name()
        sentence = self._from_sentence() if "assert" in self.fields else self._from_keys()
        if sentence is None:
            return []
        metric = sentence.measures
        if not metric.outside and (foreign := own_units(self._own)):
            self.mistake("tolerance", of_no_metric(foreign[0]))
        self._check_exact(sentence)
        self._check_delay(sentence)
        self._check_kind(sentence.kind)
        where = self.where(metric, fixed=sentence.where)
        warn = self._requirement("warn", sentence.judged, constant=True)
        self._check_early(warn, sentence.require)
        full_name = name or self._words(sentence, where)
        name = name or self._words(sentence, where, with_limit=False)
        made = []
        for choice in self.choices(metric, fixed={**sentence.where, **where}):
            chosen = ",".join(f"{d}={clean_name(selector.values[0])}" for d, selector in choice.items())
            item = f"[{chosen}]" if chosen else ""
            one = dataclasses.replace(
                sentence,
                name=name + item,
                full_name=full_name + item,
                sentence=self._words(sentence, {**where, **choice}),
                location=self.reader.location(self.node),
                where={**sentence.where, **where, **choice},
                warn=warn,
                **self._options,
            )
            made.append(one)
        return made

    def _check_exact(self, sentence: Assertion) -> None:
        """Structure is the baseline's, or not: a tolerance beside it would be one that nobody looks at."""
        limit = sentence.require.limit
        if "tolerance" in self.fields and isinstance(limit, FromBaseline) and limit.exact:
            what = f"'{sentence.require.text}' is exact: it takes no tolerance"
            self.mistake("tolerance", what)

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
        """The id as a name; None without one."""
        written = self.text("id")
        if written is None:
            return None
        if "::" in written:
            self.mistake("id", "an id cannot hold '::', which separates the parts of a test's address")
        if not 0 < len(clean_name(written)) <= MAX_ID:
            self.mistake("id", f"an id has 1 to {MAX_ID} printable characters")
        return clean_name(written)

    def _words(self, sentence: Assertion, where: Mapping[str, Selector], *, with_limit: bool = True) -> str:
        """The sentence that a person reads: as written, with what the keys beside it add, or up to its comparison."""
        selectors = " ".join(f"{d} {'|'.join(selector.values)}" for d, selector in where.items())
        if "assert" in self.fields:
            written = self.fields["assert"].value
            short = written if with_limit else without_limit(written)
            if short != written:
                return clean_name(f"{selectors} {short}")
            return clean_name(f"{written} where {selectors}" if selectors else written)
        taken = " ".join(f"{a.word} over {', '.join(a.over or ())} of" for a in reversed(sentence.aggregates))
        axis = sentence.balance_across
        what = f"balance of {sentence.metric} across {axis}" if axis else sentence.metric.removesuffix(OF_STEP)
        what = f"{WORD} {what}" if sentence.pipeline else what
        limit = sentence.require.text
        return clean_name(f"{taken} {selectors} {what} {limit if with_limit else comparison(limit)}")

    def _from_sentence(self) -> Assertion | None:
        for key in SENTENCE_SAYS:
            if key in self.fields:
                self.mistake(key, f"'{key}' cannot be used with 'assert': write it in the sentence")
        return _read_sentence(self.reader, self.fields["assert"], "assert", self.gate)

    def _from_keys(self) -> Assertion | None:
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
        axis = self.balance(metric)
        across = self.across(metric)
        held = metric if axis else self._held_to(metric)
        if held is None:
            return None
        metric, values = held, judged(held, across, axis)
        if metric.unit == HASH and (across or axis):
            self.mistake("across" if across else "balance", not_a_quantity(metric))
        require = None
        if "baseline" in self.fields:
            require = read_baseline(self, values, self.gate.tolerance)
        require = self._requirement("require", values) or require
        if require is None:
            return None
        if self._ruled and (what := cannot_rule(metric.name, bool(across or axis), require)):
            self.mistake("pipeline", what)
        subject = Subject(metric, {}, across, axis, self._ruled)
        return asserted(subject, require, "", self.reader.location(self.node), self.gate)

    def _metric(self) -> Metric | None:
        name = self.text("metric")
        if name is None:
            return None
        metric = metric_named(name)
        if metric is None:
            self.mistake("metric", unknown(name))
        return metric

    def _held_to(self, metric: Metric) -> Metric | None:
        """What ``require`` sets a limit for: the metric, or its shares of the step; None where that is a mistake."""
        node = self.fields.get("require")
        return metric if node is None else self.reader.parsed(node, "require", partial(held_to, metric))

    def _requirement(self, key: str, values: Judged, *, constant: bool = False) -> Requirement | None:
        if key not in self.fields:
            return None
        node = self.fields[key]

        def parse(text: str) -> Requirement:
            try:
                return parse_requirement(text, values, self.gate.tolerance, constant=constant)
            except SentenceMistake as mistake:
                if isinstance(node, ScalarNode) and node.style == ">":
                    what = f'{mistake} (YAML reads > as the start of a block: quote it, as in ">= 60%")'
                    raise SentenceMistake(mistake.offset, what) from None
                raise

        return self.reader.parsed(node, key, parse)
