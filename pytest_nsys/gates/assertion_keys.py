"""What does one entry under ``assertions:`` ask for, be it a sentence or a mapping?"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaml.nodes import Node, ScalarNode

from pytest_nsys.analysis.table import Selector
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import KernelsMode, Span, no_command, printable
from pytest_nsys.core.units import HASH
from pytest_nsys.gates.assertion import (
    AllowMissing,
    Assertion,
    Constant,
    FromBaseline,
    Location,
    Requirement,
    Severity,
    Tolerance,
)
from pytest_nsys.gates.baseline_keys import read_baseline, runs_of
from pytest_nsys.gates.limits import MetricSpec, SentenceMistake, parse_requirement
from pytest_nsys.gates.pipeline_rule import WORD, cannot_rule
from pytest_nsys.gates.selector_keys import SelectorKeys
from pytest_nsys.gates.sentences import Sentence, judged, not_a_quantity, parse_sentence
from pytest_nsys.gates.setting_keys import read_allow_missing, read_tolerance, read_window
from pytest_nsys.gates.value_range import warns_alike
from pytest_nsys.gates.yaml_nodes import Reader

ASSERTION_KEYS = (
    *("id", "assert", "metric", "where", "across", "balance", "pipeline", "for", "require", "warn", "baseline"),
    *("tolerance", "severity", "marks", "xfail", "allow_no_data", "allow_missing", "on_improvement", "inconclusive"),
    "fail_after",
    *("window", "span", "kernels"),
)
SENTENCE_SAYS = ("metric", "across", "balance", "pipeline", "require", "baseline")
"""Keys that an ``assert:`` sentence stands for: they cannot stand beside it."""

MAX_ID = 200
FORBIDDEN_MARKS = ("skip", "skipif", "xfail", "parametrize", "usefixtures")


class Reaction(enum.StrEnum):
    """What becomes of the item where a verdict is neither good nor bad: improved, inconclusive."""

    PASS = "pass"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the file says for all of its assertions."""

    shown_path: Path
    metrics: Mapping[str, MetricSpec]
    axes: tuple[str, ...] = ()
    tolerance: Tolerance | None = None
    window: str = "median"
    span: Span | None = None
    kernels: KernelsMode | None = None
    allow_missing: AllowMissing = field(default_factory=dict)


def clean_name(text: str) -> str:
    """``text`` as a part of a test's name: one line, no control characters, no ``::``, no command of CI."""
    visible = "".join(c for c in text if c.isprintable() or c.isspace())
    name = " ".join(visible.split())
    while "::" in name:
        name = name.replace("::", ":")
    return no_command(name)


def read_assertion(reader: Reader, node: Node, defaults: Defaults) -> list[Assertion]:
    """The assertions that one entry stands for: several where it has ``for:``, none where it is mistaken."""
    if isinstance(node, ScalarNode):
        sentence = _read_sentence(reader, node, "an assertion", defaults)
        written = clean_name(node.value)
        return [] if sentence is None else [_assertion(node, written, written, sentence, defaults)]
    fields = reader.mapping(node, "an assertion", ASSERTION_KEYS)
    return _Entry(reader, node, fields, defaults).assertions() if fields else []


def _assertion(node: Node, name: str, text: str, sentence: Sentence, defaults: Defaults) -> Assertion:
    mark = node.start_mark
    return Assertion(
        name=name,
        sentence=text,
        location=Location(defaults.shown_path, mark.line + 1, mark.column + 1),
        metric=sentence.metric,
        require=sentence.require,
        where=sentence.where,
        aggregates=sentence.aggregates,
        balance_across=sentence.balance_across,
        pipeline=sentence.pipeline,
        window=defaults.window,
        span=defaults.span,
        kernels=defaults.kernels,
        allow_missing=defaults.allow_missing,
    )


def _read_sentence(reader: Reader, node: Node, what: str, defaults: Defaults) -> Sentence | None:
    text = reader.text(node, what)
    if text is None:
        return None
    try:
        return parse_sentence(text, defaults.metrics, axes=defaults.axes, tolerance=defaults.tolerance)
    except SentenceMistake as mistake:
        reader.mistakes.at(node, str(mistake), mistake.offset)
        return None


class _Entry:
    """One mapping under ``assertions:``, read key by key."""

    def __init__(self, reader: Reader, node: Node, fields: dict[str, Node], defaults: Defaults) -> None:
        self._reader = reader
        self._node = node
        self._fields = fields
        if "tolerance" in fields:
            own = read_tolerance(reader, fields["tolerance"])
            defaults = dataclasses.replace(defaults, tolerance=own)
        self._defaults = defaults

    def _mistake(self, key: str, what: str) -> None:
        self._reader.mistakes.at(self._fields.get(key, self._node), what)

    def assertions(self) -> list[Assertion]:
        """All that the entry stands for."""
        name = self._name()
        options = self._options()
        sentence = self._from_sentence() if "assert" in self._fields else self._from_keys()
        if sentence is None:
            return []
        metric = self._defaults.metrics[sentence.metric]
        self._check_exact(sentence)
        self._check_delay(sentence)
        keys = SelectorKeys(self._reader, self._fields, metric, self._defaults.axes)
        where = keys.where(fixed=sentence.where)
        values = judged(metric, sentence.aggregates, sentence.balance_across)
        options["warn"] = self._requirement("warn", values, constant=True)
        self._check_early(options["warn"], sentence.require)
        name = name or self._text(sentence, where)
        made = []
        for choice in keys.choices(fixed={**sentence.where, **where}):
            one = dataclasses.replace(sentence, where={**sentence.where, **where, **choice})
            chosen = ",".join(f"{d}={clean_name(selector.values[0])}" for d, selector in choice.items())
            full = f"{name}[{chosen}]" if chosen else name
            text = self._text(sentence, {**where, **choice})
            plain = _assertion(self._node, full, text, one, self._defaults)
            made.append(dataclasses.replace(plain, **options))
        return made

    def _check_exact(self, sentence: Sentence) -> None:
        """Structure is the baseline's, or not: a tolerance beside it would be one that nobody looks at."""
        limit = sentence.require.limit
        if "tolerance" in self._fields and isinstance(limit, FromBaseline) and limit.tolerance is None:
            what = f"'{sentence.require.text}' is exact: it takes no tolerance"
            self._mistake("tolerance", what)

    def _check_delay(self, sentence: Sentence) -> None:
        """Only what noise may explain can wait for the next run, and only where it would be red without waiting."""
        limit = sentence.require.limit
        if "fail_after" not in self._fields:
            return
        if not isinstance(limit, FromBaseline) or limit.tolerance is None:
            what = f"'fail_after' waits out noise: it needs a baseline with a tolerance, and '{sentence.require.text}' "
            self._mistake("fail_after", what + "has none")
        for key, why in (("xfail", "expects the first bad run"), ("inconclusive", "says what becomes of such runs")):
            if key in self._fields:
                self._mistake("fail_after", f"'fail_after' cannot stand beside '{key}', which {why}")

    def _check_early(self, warn: Requirement | None, require: Requirement) -> None:
        """An early limit tells apart what holds the limit."""
        if warn is None or not isinstance(warn.limit, Constant) or not isinstance(require.limit, Constant):
            return
        assert warn.comparator is not None
        assert require.comparator is not None
        limits = (warn.comparator, warn.limit.value, require.comparator, require.limit.value)
        if alike := warns_alike(*limits):
            self._mistake(
                "warn", f"'{warn.text}' {alike} where '{require.text}' holds: write a limit that is reached before it"
            )

    def _name(self) -> str | None:
        """The id as a name; without one the sentence is the name."""
        written = self._reader.text(self._fields["id"], "id") if "id" in self._fields else None
        if written is None:
            return None
        if "::" in written:
            self._mistake("id", "an id cannot hold '::', which separates the parts of a test's address")
        if not 0 < len(clean_name(written)) <= MAX_ID:
            self._mistake("id", f"an id has 1 to {MAX_ID} characters that can be printed")
        return clean_name(written)

    def _text(self, sentence: Sentence, where: Mapping[str, Selector]) -> str:
        """The sentence that a person reads: as written, with what the keys beside it add."""
        selectors = " ".join(f"{d} {'|'.join(selector.values)}" for d, selector in where.items())
        if "assert" in self._fields:
            added = f" where {selectors}" if selectors else ""
            return clean_name(f"{self._fields['assert'].value}{added}")
        taken = " ".join(f"{a.word} over {', '.join(a.over or ())} of" for a in reversed(sentence.aggregates))
        axis = sentence.balance_across
        what = f"balance of {sentence.metric} across {axis}" if axis else sentence.metric
        what = f"{WORD} {what}" if sentence.pipeline else what
        return clean_name(f"{taken} {selectors} {what} {sentence.require.text}")

    def _from_sentence(self) -> Sentence | None:
        for key in SENTENCE_SAYS:
            if key in self._fields:
                self._mistake(key, f"'{key}' cannot stand beside 'assert': the sentence says it")
        return _read_sentence(self._reader, self._fields["assert"], "assert", self._defaults)

    def _from_keys(self) -> Sentence | None:
        if "metric" not in self._fields:
            self._mistake("", "an assertion needs 'metric' (or 'assert' with a sentence)")
            return None
        if "require" in self._fields and "baseline" in self._fields:
            self._mistake("baseline", "write either 'require' or 'baseline', or two assertions")
        if "require" not in self._fields and "baseline" not in self._fields:
            self._mistake("", "an assertion needs 'require' or 'baseline'")
        metric = self._metric()
        if metric is None:
            return None
        keys = SelectorKeys(self._reader, self._fields, metric, self._defaults.axes)
        axis = keys.balance()
        across = keys.across()
        values = judged(metric, across, axis)
        if metric.unit == HASH and (across or axis):
            self._mistake("across" if across else "balance", not_a_quantity(metric))
        require = None
        if "baseline" in self._fields:
            require = read_baseline(self._reader, self._fields, values, self._defaults.tolerance)
        require = self._requirement("require", values) or require
        if require is None:
            return None
        ruled = "pipeline" in self._fields and self._reader.flag(self._fields["pipeline"], "pipeline")
        if ruled and (what := cannot_rule(metric.name, bool(across or axis), require)):
            self._mistake("pipeline", what)
        return Sentence(metric.name, require, {}, across, axis, bool(ruled))

    def _metric(self) -> MetricSpec | None:
        name = self._reader.text(self._fields["metric"], "metric")
        if name is None:
            return None
        metric = self._defaults.metrics.get("_".join(name.split()))
        if metric is None:
            hint = did_you_mean(name, self._defaults.metrics)
            self._mistake("metric", f"unknown metric '{printable(name, 60)}'{hint}")
        return metric

    def _requirement(self, key: str, values: MetricSpec, *, constant: bool = False) -> Requirement | None:
        node = self._fields.get(key)
        text = self._reader.text(node, key) if node is not None else None
        if node is None or text is None:
            return None
        try:
            return parse_requirement(text, values, self._defaults.tolerance, constant=constant)
        except SentenceMistake as mistake:
            folded = isinstance(node, ScalarNode) and node.style == ">"
            hint = ' (YAML reads > as the start of a block: quote it, as in ">= 60%")' if folded else ""
            self._reader.mistakes.at(node, f"{mistake}{hint}", mistake.offset)
            return None

    def _options(self) -> dict[str, Any]:
        """The keys that change how the item behaves, as fields of an Assertion."""
        reader, fields = self._reader, self._fields
        found: dict[str, Any] = {}
        if "severity" in fields:
            found["severity"] = reader.choice(fields["severity"], "severity", Severity)
        for key in ("on_improvement", "inconclusive"):
            if key in fields:
                choice = reader.choice(fields[key], key, Reaction)
                found[key] = Severity.FAIL if choice is Reaction.FAIL else Severity.WARN
        if "fail_after" in fields:
            found["fail_after"] = runs_of(reader, fields["fail_after"], "fail_after")
        if "allow_no_data" in fields:
            found["allow_no_data"] = reader.flag(fields["allow_no_data"], "allow_no_data")
        if "allow_missing" in fields:
            found["allow_missing"] = read_allow_missing(reader, fields["allow_missing"])
        if "xfail" in fields:
            found["xfail"] = clean_name(reader.text(fields["xfail"], "xfail") or "")
        if "marks" in fields:
            found["marks"] = self._marks(fields["marks"])
        if "window" in fields:
            found["window"] = read_window(reader, fields["window"])
        if "span" in fields:
            found["span"] = reader.choice(fields["span"], "span", Span)
        if "kernels" in fields:
            found["kernels"] = reader.choice(fields["kernels"], "kernels", KernelsMode)
        return found

    def _marks(self, node: Node) -> tuple[str, ...]:
        found = []
        for item in self._reader.items(node, "marks"):
            text = self._reader.text(item, "a mark")
            if text is None:
                continue
            name = text.strip()
            if name in FORBIDDEN_MARKS:
                why = "use the key 'xfail'" if name == "xfail" else "nothing is ever skipped or multiplied here"
                self._reader.mistakes.at(item, f"'{name}' cannot be a mark: {why}")
            elif not (name.isascii() and name.isidentifier()) or name.startswith("_"):
                self._reader.mistakes.at(item, f"a mark is a plain name, not '{printable(name, 40)}'")
            found.append(name)
        return tuple(found)
