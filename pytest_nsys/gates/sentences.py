"""What does a sentence such as ``median stage2_f overlap >= 60%`` ask for?

    [selectors and aggregates] METRIC                 COMPARISON LIMIT
    [aggregates] METRIC of selectors                  COMPARISON LIMIT
    [selectors] balance of METRIC across AXIS         COMPARISON LIMIT
    [selectors] pipeline overlap_score                COMPARISON LIMIT
    [selectors] measured NAME                         COMPARISON LIMIT
    [selectors and aggregates] [forward] time of module PATH    COMPARISON LIMIT
    no [selectors] METRIC [where selectors]
    no new kernels, no vanished kernels, no new or vanished kernels [above SHARE] [where selectors]

A selector is ``rank 3``, or a bare word for the metric's last dimension, of several labels ``stage2_f|stage4_f``; a
label with blanks stands in double quotes. ``decode`` is a kind of steps where the convention has kinds, and picks the
windows. An aggregate is a word for all that the selectors leave, or ``max over ep of median over pp of``, of which the
last is formed first.

Of a part of the program there are ``time``, ``compute`` and ``exposed``, in one pass (``forward``, ``backward``,
``recompute``) or in all. The part is a ``module``, an ``op``, a ``range``, a line of ``source`` or a ``stage``, which
needs no word of its own: ``compute of stage3_f``. ``each module`` has a row for each.

What is measured outside of a trace has the dimensions that its file says: a gate file knows the name alone. Once it was
measured the sentence is checked as the loader checks those of other metrics: a limit in another unit, or on the better
side of a baseline, is a mistake and no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Self

from pytest_nsys.analysis.explain.budget_lines import BLOCKED_PARTS
from pytest_nsys.analysis.metrics.names import (
    METRICS_BY_UNIT,
    UNITLESS_NAMES,
    format_example,
    propose_sentence,
    resolve_metric,
)
from pytest_nsys.analysis.metrics.registry import (
    MEASURED_WORD,
    METRICS,
    PERIOD_METRIC,
    SCOPE_METRIC_WORDS,
    SCOPE_TIME,
    STEP_TIME_METRIC,
    Metric,
    make_measured_metric,
    make_scope_metric,
)
from pytest_nsys.analysis.metrics.table import STATISTIC_LABELS, Selector
from pytest_nsys.core.conventions import MIXED_PURPOSE, STEP_KIND_NAMES
from pytest_nsys.core.errors import suggest_or_list, suggest_word
from pytest_nsys.core.families import normalize_kind
from pytest_nsys.core.scopes import Direction, ScopeKind, ScopeSelector
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import (
    ANY_UNIT,
    COUNT,
    HASH,
    MICROSECONDS,
    RATIO,
    TIME,
    convert_to_limit,
    parse_quantity,
)
from pytest_nsys.gates.assertion_names import QUOTED_LABEL, split_labels
from pytest_nsys.gates.limits import (
    COMPARISON_HINT,
    WITHIN_WORD,
    SentenceMistake,
    SentenceWord,
    describe_refused_claim,
    locate_mistake,
    parse_requirement,
    resolve_limited_metric,
)
from pytest_nsys.gates.model import (
    Aggregate,
    Assertion,
    BaselineLimit,
    Comparator,
    Constant,
    GateFile,
    Location,
    Requirement,
    Tolerance,
    UnmatchedRows,
    build_limit_target,
)

AGGREGATE_WORDS = ("median", "mean", "max", "min", "sum")
AGGREGATE_SLIPS = {"avg": "mean", "average": "mean", "maximum": "max", "minimum": "min", "total": "sum"}
NUMBERED_DIMENSIONS = frozenset({"rank"})
"""Dimensions whose labels are numbers; mesh axes are too."""

QUANTILE_WORDS = ("p50", "p90", "p99", "mean", "max")

# The file may be untrusted, and parsing time grows with the length.
MAX_SENTENCE_LENGTH = 500
"""The greatest length of a sentence, in characters."""

LAUNCHES_METRIC = "kernel_launches"
"""The metric whose rows are kernels by name."""

SHARE_METRIC = "kernel_share"
"""The metric of the SHARE in ``no new kernels above SHARE``."""

PIPELINE_WORD = "pipeline"
PIPELINE_METRIC = "overlap_score"
"""The metric to which the pipeline rule applies."""

_KERNEL_SENTENCES = {f"{each} kernels": each for each in reversed(UnmatchedRows)}

_LONGEST_NAME = 5
"""The greatest number of words in a metric's name."""

_WORD_PATTERN = re.compile(rf"!=|[<>=≤≥]+|(?:{QUOTED_LABEL}|(?!!=)[^\s<>=≤≥])+")
_PERCENTILE = re.compile(r"p[0-9]+")
_ROW_STATISTICS = {"quantile": re.compile("p[0-9]+|mean|max"), "statistic": re.compile("|".join(STATISTIC_LABELS))}
"""Dimensions that name a statistic of many values, each with the pattern of its words."""


@dataclass(slots=True)
class SentenceSubject:
    """Describes what a sentence judges: the metric, its rows and how they are aggregated."""

    metric: Metric
    axes: Collection[str]  # mesh axes that its words may name
    kinds: Collection[str]  # kinds of steps that its words may name
    where: dict[str, Selector] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()
    balance_across: str | None = None
    pipeline: bool = False
    kind: str | None = None

    def read_prefix(self, words: list[SentenceWord]) -> Self:
        """Read the selectors and aggregates that stand before a metric."""
        dimensions = {dimension for metric in METRICS.values() for dimension in metric.dimensions} | set(self.axes)
        statistic_index = _find_row_statistic(words, self.metric)
        i = 0
        while i < len(words):
            word = words[i]
            next_word = words[i + 1] if i + 1 < len(words) else None
            is_label = (
                _is_before_metric(words, i) and word.text in BLOCKED_PARTS and "producer" in self.metric.dimensions
            )
            names_dimension = not is_label and (
                word.text in dimensions or (next_word is not None and next_word.text.isdigit())
            )
            if not names_dimension and i != statistic_index and _is_aggregate(word):
                i = self._read_aggregate(words, i)
            elif names_dimension or (self.metric.is_outside_trace and next_word is not None):
                self._select_named(word, next_word)
                i += 2
            else:
                self.select_bare(word)
                i += 2 if _is_before_metric(words, i) or (i == statistic_index and words[i + 1].text == "of") else 1
        return self

    def _read_aggregate(self, words: list[SentenceWord], i: int) -> int:
        """Read ``max`` or ``max over ep``, which aggregates the result of the next aggregate, and return the index of
        the next word.
        """
        word, next_words = words[i], [later_word.text for later_word in words[i + 1 :]]
        dimensions: tuple[str, ...] | None = None
        if next_words[:1] == ["over"]:
            if len(next_words) < 2:
                raise SentenceMistake(
                    words[i + 1].offset, "a dimension is missing after 'over', as in 'max over rank of'"
                )
            dimensions = (next_words[1],)
            if problem := self._explain_no_aggregate(word.text, next_words[1]):
                raise words[i + 2].make_mistake(problem)
            i, next_words = i + 2, next_words[2:]
        elif self.aggregates:
            first = self.aggregates[0].word
            suggestion = f"say over what the second takes them, as in '{first} of {word.text} over rank of'"
            raise word.make_mistake(f"one aggregate at a time: '{first}' or '{word.text}'; of two {suggestion}")
        self.aggregates = (Aggregate(word.text, dimensions), *self.aggregates)
        return i + 2 if next_words[:1] == ["of"] else i + 1

    def _explain_no_aggregate(self, word: str, dimension: str) -> str | None:
        """Explain why an aggregate cannot take a dimension together; None where it can."""
        if dimension == "statistic" and not self.metric.is_outside_trace:  # the default is the first statistic
            statistic = word if word in STATISTIC_LABELS else STATISTIC_LABELS[0]
            return f"a statistic is chosen, not aggregated: write {statistic} {self.metric.name}"
        if any(dimension in (step.over or ()) for step in self.aggregates):
            return f"{dimension} is taken together twice"
        return explain_wrong_dimension(dimension, self.metric, self.axes)

    def _select_named(self, word: SentenceWord, value: SentenceWord | None) -> None:
        if problem := explain_wrong_dimension(word.text, self.metric, self.axes):
            raise word.make_mistake(problem)
        if value is None:
            raise word.make_mistake(f"a value is missing after '{word.text}', as in '{word.text} 3'")
        self.select(word.text, value)

    def select_bare(self, word: SentenceWord) -> None:
        """Read a word without its dimension: a kind of steps, a label of the last dimension, or a statistic.

        Raises SentenceMistake for a word that can be none of these.
        """
        other_dimensions, shown_word = (
            [dimension for dimension in self.metric.dimensions if dimension != "rank"],
            sanitize_line(word.text, 40),
        )
        if other_dimensions[-1:] == ["statistic"] and word.text not in STATISTIC_LABELS:
            other_dimensions.pop()
        if self.metric.is_outside_trace:
            problem = f"'{shown_word}' of which label? Write the label before it, as in 'rank 3' or 'phase decode'"
            raise word.make_mistake(problem)
        if word.text in self.kinds and not (word.text == MIXED_PURPOSE and "purpose" in self.metric.dimensions):
            if self.kind is not None:
                raise word.make_mistake(f"one kind of steps at a time: '{self.kind}' or '{shown_word}'")
            self.kind = word.text
            return
        if not other_dimensions:
            name = self.metric.name
            suggestion = suggest_word(word.text, [*self.kinds, *([PIPELINE_WORD] if name == PIPELINE_METRIC else [])])
            raise word.make_mistake(f"'{shown_word}' selects nothing: {name} has no dimension but rank{suggestion}")
        if word.text.isdigit():
            raise word.make_mistake(f"'{shown_word}' of which dimension? Write it as in 'rank {shown_word}'")
        self.select(other_dimensions[-1], word)

    def select(self, dimension: str, value: SentenceWord) -> None:
        """Add a selector of a dimension. Raises SentenceMistake for a second one, or a label that it cannot have."""
        if dimension in self.where:
            first = self.where[dimension].values[0]
            problem = (
                f"{dimension} is selected twice: '{sanitize_line(first, 40)}' and '{sanitize_line(value.text, 40)}'"
            )
            raise value.make_mistake(problem)
        with locate_mistake(value.offset):
            labels = (
                parse_selector_value(self.metric, dimension, label, self.axes) for label in split_labels(value.text)
            )
            self.where[dimension] = Selector(tuple(labels))


def parse_sentence(text: str, gate: GateFile, location: Location, *, allows_claims: bool = False) -> Assertion:
    """Parse ``text`` as an assertion; the gate file gives the defaults. Raises SentenceMistake.

    A claim is a mistake unless ``allows_claims``: in a gate file it fails every run after the next refresh.
    """
    subject, requirement = _parse_parts(text, gate, allows_claims=allows_claims)
    parts = (subject.where, subject.aggregates, subject.balance_across, subject.pipeline)
    defaults = {key: getattr(gate, key) for key in ("window", "span", "kernels", "allow_missing")}
    assertion = Assertion(
        text, text, text, location, subject.metric.name, requirement, *parts, kind=subject.kind, **defaults
    )
    return replace(assertion, outside_metric=subject.metric) if subject.metric.is_outside_trace else assertion


def _parse_parts(text: str, gate: GateFile, *, allows_claims: bool) -> tuple[SentenceSubject, Requirement]:
    """Return what a sentence judges and what it requires. Raises SentenceMistake."""
    kinds = STEP_KIND_NAMES if gate.convention is None else gate.convention.kind_names
    make_subject = partial(SentenceSubject, axes=gate.axes, kinds=kinds)
    if len(text) > MAX_SENTENCE_LENGTH:
        raise SentenceMistake(0, f"a sentence has at most {MAX_SENTENCE_LENGTH} characters")
    text = MICROSECONDS.sub("us", text)
    words = [SentenceWord(m[0], m.start()) for m in _WORD_PATTERN.finditer(text)]
    if not words:
        raise SentenceMistake(0, "the sentence is empty")
    if open_quote := next((word for word in words if word.text.count('"') % 2), None):
        raise open_quote.make_mistake(f"the quote is not closed: {sanitize_line(open_quote.text, 40)}")
    if words[0].text == "no":
        return _parse_no_sentence(words, make_subject)
    comparison_index = next((i for i in range(len(words)) if _is_comparison(words, i)), None)
    if comparison_index is None:
        raise _explain_missing_comparison(text, words)
    if comparison_index == 0:
        raise words[0].make_mistake(f"the metric is missing before '{words[0].text}'")
    subject = _parse_subject(_resolve_metric_by_unit(words[:comparison_index], text), make_subject)
    if subject.metric.unit == HASH and (subject.aggregates or subject.balance_across):
        problem = f"{subject.metric.name} is not a quantity: several cannot be aggregated"
        raise words[0].make_mistake(problem)
    if not subject.balance_across:
        subject.metric = resolve_limited_metric(subject.metric, text, words[comparison_index].offset)
    target = build_limit_target(subject.metric, subject.aggregates, subject.balance_across)
    requirement = parse_requirement(text, target, gate.tolerance, start=words[comparison_index].offset)
    if subject.pipeline and subject.aggregates:
        problem = f"'{PIPELINE_WORD}' judges each rank by itself: leave out what takes ranks together"
        raise words[0].make_mistake(problem)
    if requirement.is_claim and not allows_claims:
        claimed_subject = " ".join(text[: words[comparison_index].offset].split())
        raise words[comparison_index].make_mistake(describe_refused_claim(requirement.text, claimed_subject))
    if subject.pipeline and requirement.is_claim:
        raise words[0].make_mistake(f"'{PIPELINE_WORD}' has a limit of its own: claim {subject.metric.name} without it")
    if subject.pipeline and requirement.worse_direction >= 0:
        raise words[0].make_mistake(f"'{PIPELINE_WORD}' asks for a score of at least so much: write >=")
    return subject, requirement


def _resolve_metric_by_unit(words: list[SentenceWord], text: str) -> list[SentenceWord]:
    """Return the words with a name that several metrics share replaced by the metric in the unit of the limit."""
    *before, last = words
    if (metrics := METRICS_BY_UNIT.get(last.text)) is None:
        return words
    if (metric := next((name for unit, name in metrics.items() if unit in text[last.offset :]), None)) is not None:
        return [*before, last._replace(text=metric)]
    limit = " ".join(text[last.offset + len(last.text) :].split())
    suggestions = [f"{name} {limit}" for name in metrics.values()]
    if "baseline" not in limit:
        number = re.search(r"[0-9][0-9._]*", limit)
        suggestions = [f"{last.text} >= {number[0] if number else 12000} {unit}" for unit in metrics]
    raise last.make_mistake(f"{last.text} in {' or '.join(metrics)}? Write {' or '.join(suggestions)}")


def select_bare_word(assertion: Assertion, word: str, axes: Collection[str]) -> Assertion:
    """Return the assertion with a bare word that is no kind of steps but selects rows. Raises SentenceMistake."""
    subject = SentenceSubject(assertion.measured_metric, axes, (), dict(assertion.where))
    subject.select_bare(SentenceWord(word, 0))
    return replace(assertion, where=subject.where, kind=None)


def explain_wrong_dimension(name: str, metric: Metric, axes: Collection[str]) -> str | None:
    """Return what is wrong with ``name`` as a dimension of ``metric``, as text; None where it is one, or may be."""
    if metric.is_outside_trace and metric.unit == ANY_UNIT:
        return None
    known_dimensions = (*metric.dimensions, *(axes if "rank" in metric.dimensions else ()))
    if name in known_dimensions:
        return None
    return (
        f"{metric.name} has no dimension '{sanitize_line(name, 40)}'{suggest_or_list(name, known_dimensions, 'it has')}"
    )


def parse_selector_value(metric: Metric, dimension: str, text: str, axes: Collection[str]) -> str:
    """Return ``text`` as a label of a metric's ``dimension``. Raises ValueError where it cannot be one."""
    if dimension in NUMBERED_DIMENSIONS or dimension in axes:
        if re.fullmatch(r"-?[0-9]{1,18}", text) is None:
            raise ValueError(f"{dimension} is a number, not '{sanitize_line(text, 40)}'")
        return str(int(text))
    if metric.is_outside_trace:
        return text
    if dimension == "quantile" and text not in QUANTILE_WORDS:
        raise ValueError(f"a quantile is one of {', '.join(QUANTILE_WORDS)}, not '{sanitize_line(text, 40)}'")
    if dimension == "statistic" and text not in STATISTIC_LABELS and not set("*?[") & set(text):
        raise ValueError(f"a statistic is one of {', '.join(STATISTIC_LABELS)}, not '{sanitize_line(text, 40)}'")
    return normalize_kind(text) if dimension == "collective" else text


def is_aggregate_word(text: str) -> bool:
    """Return whether ``text`` is the word of an aggregate. Raises ValueError for a near miss."""
    if text in AGGREGATE_SLIPS:
        raise ValueError(f"'{text}' is not a word here (did you mean '{AGGREGATE_SLIPS[text]}'?)")
    if re.fullmatch(r"p[0-9]+\.[0-9]+", text):
        raise ValueError(f"'{sanitize_line(text, 40)}': percentiles are whole, p1 to p99")
    if _PERCENTILE.fullmatch(text):
        if text[1] == "0" or len(text) > 3:
            raise ValueError(f"'{sanitize_line(text, 40)}': percentiles are p1 to p99")
        return True
    return text in AGGREGATE_WORDS


def _is_comparison(words: list[SentenceWord], i: int) -> bool:
    text = words[i].text
    if text == "at":
        return i + 1 < len(words) and words[i + 1].text in ("least", "most")
    if text == "better":
        return i + 1 < len(words) and words[i + 1].text == "than"
    return text in ("below", "above", WITHIN_WORD) or text[0] in "<>=≤≥" or text == "!="


def _explain_missing_comparison(text: str, words: list[SentenceWord]) -> SentenceMistake:
    """Return the mistake of a sentence without a comparison, or else the mistake in its metric."""
    problem = f"the comparison is missing: {COMPARISON_HINT}"
    last = words[-1]
    if last.text[0].isdigit() and len(words) > 1:
        return last.make_mistake(problem)
    try:
        _split_metric(words)
    except SentenceMistake as mistake:
        return mistake
    return SentenceMistake(len(text.rstrip()), problem)


def _parse_no_sentence(
    words: list[SentenceWord], make_subject: Callable[[Metric], SentenceSubject]
) -> tuple[SentenceSubject, Requirement]:
    """Read ``no syncs``, ``no mixed comm streams``: zero, in every row."""
    if len(words) == 1:
        raise SentenceMistake(words[0].offset + 2, "the metric is missing after 'no'")
    where_index = next((i for i, word in enumerate(words) if word.text == "where"), len(words))
    words, selectors = words[:where_index], [word for word in words[where_index:] if word.text != "where"]
    if (kernels_part := _parse_unmatched_kernels(words)) is not None:
        return make_subject(kernels_part[0]).read_prefix(selectors), kernels_part[1]
    comparison_index = next((i for i in range(len(words)) if _is_comparison(words, i)), None)
    if comparison_index is not None:
        raise words[comparison_index].make_mistake(f"'no …' takes no limit: remove '{words[comparison_index].text}'")
    try:
        prefix, metric = _split_metric(words[1:])
    except SentenceMistake:
        metric_text = sanitize_line(" ".join(word.text for word in words[1:]), 60)
        if suggestion := suggest_word(metric_text, _KERNEL_SENTENCES, 0.8):
            raise words[1].make_mistake(f"unknown metric '{metric_text}'{suggestion}") from None
        raise
    if metric.unit not in (TIME, COUNT, ANY_UNIT):
        raise words[0].make_mistake(f"'no' is for times and counts: {metric.name} is neither")
    subject = make_subject(metric).read_prefix([*prefix, *selectors])
    if subject.aggregates:
        raise words[1].make_mistake(f"'no' asks for zero in every row: leave out '{words[1].text}'")
    return subject, Requirement(Comparator.EQ, Constant(Fraction(0)), "== 0")


def _parse_unmatched_kernels(words: list[SentenceWord]) -> tuple[Metric, Requirement] | None:
    """Read ``no new kernels`` or ``no vanished kernels above 2%``; None for every other sentence."""
    above_index = next((i for i, word in enumerate(words) if word.text == "above"), len(words))
    kernels_text = " ".join(word.text for word in words[1:above_index])
    phrase = next((candidate for candidate in _KERNEL_SENTENCES if f" {kernels_text}".endswith(f" {candidate}")), None)
    if phrase is None:
        return None
    if kernels_text != phrase:
        problem = f"selectors stand behind 'no {phrase}': write no {phrase} where {sanitize_line(words[1].text, 40)} …"
        raise words[1].make_mistake(problem)
    metric, tolerance, limit_text = METRICS[LAUNCHES_METRIC], None, f"has no {phrase}"
    if above_index < len(words):
        metric, above_words = (
            METRICS[SHARE_METRIC],
            " ".join(word.text for word in words[above_index:]).split(maxsplit=1),
        )
        with locate_mistake(words[above_index].offset):
            share = convert_to_limit(parse_quantity(above_words[-1]), RATIO, metric.name)
            if not 0 < share < 1:
                raise ValueError("a share of the time is above 0% and below 100%")
        tolerance, limit_text = Tolerance(absolute={RATIO: share}), f"{limit_text} {' '.join(above_words)}"
    limit = BaselineLimit(tolerance, forbidden_rows=_KERNEL_SENTENCES[phrase])
    return metric, Requirement(Comparator.EQ, limit, limit_text)


def _move_selectors_first(words: list[SentenceWord]) -> list[SentenceWord]:
    """Return ``family_ns of gemm`` in the order of ``gemm family_ns``."""
    for of_index in (i for i, word in enumerate(words[:-1]) if word.text == "of"):
        for start, name in _list_name_candidates(words, of_index):
            if resolve_metric(name) is not None or words[start].text == MEASURED_WORD:
                return [*words[:start], *words[of_index + 1 :], *words[start:of_index]]
    return words


def _parse_subject(words: list[SentenceWord], make_subject: Callable[[Metric], SentenceSubject]) -> SentenceSubject:
    """Return what the words before a comparison ask to be judged. Raises SentenceMistake."""
    balance_index = next((i for i, word in enumerate(words) if word.text == "balance"), None)
    if balance_index is None and (scope_subject := _parse_scope(words, make_subject)) is not None:
        return scope_subject
    if balance_index is None:
        prefix, metric = _split_metric(_move_selectors_first(words))
        other_words = [word for word in prefix if metric.name != PIPELINE_METRIC or word.text != PIPELINE_WORD]
        subject = make_subject(metric)
        subject.pipeline = len(other_words) < len(prefix)
        return _use_step_quantile(subject.read_prefix(other_words), words)
    balance_words = (
        words[balance_index + 2 :]
        if [word.text for word in words[balance_index + 1 : balance_index + 2]] == ["of"]
        else words[balance_index + 1 :]
    )
    if len(balance_words) < 3 or balance_words[-2].text != "across":
        problem = "a balance is written as in 'balance of compute_ns across pp'"
        raise words[balance_index].make_mistake(problem)
    axis = balance_words[-1]
    extra_words, metric = _split_metric(balance_words[:-2])
    if extra_words:
        raise extra_words[0].make_mistake("selectors stand before 'balance'")
    subject = make_subject(metric)
    subject.balance_across = axis.text
    if axis.text not in subject.axes or not (metric.is_outside_trace or "rank" in metric.dimensions):
        raise axis.make_mistake(describe_unknown_axis(axis.text, subject.axes))
    if subject.read_prefix(words[:balance_index]).aggregates:
        raise words[0].make_mistake(f"a balance takes no '{subject.aggregates[0].word}'")
    return subject


_SCOPE_KINDS = tuple(ScopeKind)
_PASS_WORDS = tuple(direction for direction in Direction if direction is not Direction.NONE)
_EACH_WORD = "each"


def _parse_scope(
    words: list[SentenceWord], make_subject: Callable[[Metric], SentenceSubject]
) -> SentenceSubject | None:
    """Read ``forward time of module layers.*.attn``; None for words that ask for no part of the program.

    Raises SentenceMistake where the part is not named, or words follow it.
    """
    metric_index = next(
        (
            i
            for i, (word, next_word) in enumerate(pairwise(words))
            if word.text in SCOPE_METRIC_WORDS and next_word.text == "of"
        ),
        None,
    )
    if metric_index is None or MEASURED_WORD in {word.text for word in words}:
        return None
    longer_names = (name for start, name in _list_name_candidates(words, metric_index + 1) if start < metric_index)
    if any(resolve_metric(name) is not None for name in longer_names):  # ``collective time of AllReduce``
        return None
    metric_word, prefix, part = words[metric_index], words[:metric_index], words[metric_index + 2 :]
    is_each = bool(part) and part[0].text == _EACH_WORD
    part = part[is_each:]
    has_stages = metric_word.text not in _STAGED_WORDS
    if has_stages and not is_each and [word.text for word in part[:1]] == [ScopeKind.STAGE]:
        return None  # ``exposed of stage none`` selects rows, as ``none exposed`` does
    kind = ScopeKind.STAGE
    if part and part[0].text in _SCOPE_KINDS:
        kind, part = ScopeKind(part[0].text), part[1:]
        if not part:
            example = _SCOPE_EXAMPLES[kind]
            raise words[-1].make_mistake(f"the {kind} is missing, as in 'time of {kind} {example}'")
    elif has_stages or len(part) != 1:
        if metric_word.text == "time":
            raise metric_word.make_mistake(_explain_no_part(part))
        return None  # of a metric that has stages a stage is a selector, as ``rank 3`` is of each
    if len(part) > 1:
        raise part[1].make_mistake(
            f"'{sanitize_line(part[1].text, 40)}' comes after the {kind}: write selectors before '{metric_word.text}', "
            'and quote a name with blanks, as in range "forward chunk 0"'
        )
    direction = Direction(prefix.pop().text) if prefix and prefix[-1].text in _PASS_WORDS else None
    with locate_mistake(part[0].offset):
        patterns = split_labels(part[0].text)
        if len(patterns) > 1:
            raise ValueError(f"one {kind} at a time: {' or '.join(patterns)}; '*' stands for several")
    scope = ScopeSelector(kind, patterns[0], direction, is_each)
    return make_subject(make_scope_metric(SCOPE_METRIC_WORDS[metric_word.text], scope)).read_prefix(prefix)


_STAGED_WORDS = frozenset({"time", SCOPE_TIME, "scope", "compute", "compute_ns"})
"""Words behind which a stage needs no word of its own."""

_SCOPE_EXAMPLES = {
    ScopeKind.STAGE: "stage3_f",
    ScopeKind.MODULE: "layers.*.attn",
    ScopeKind.OP: "aten::mm",
    ScopeKind.RANGE: '"loss"',
    ScopeKind.SOURCE: '"model.py(212): forward"',
}


def _explain_no_part(part: list[SentenceWord]) -> str:
    """Return the mistake of a time of something that is no part of a program."""
    shown = sanitize_line(" ".join(word.text for word in part), 40)
    kinds = ", ".join(kind for kind in _SCOPE_KINDS if kind is not ScopeKind.STAGE)
    example = f"time of module {_SCOPE_EXAMPLES[ScopeKind.MODULE]}"
    return f"time of what? Say before '{shown}' which of {kinds} it is, as in {example}"


def _use_step_quantile(subject: SentenceSubject, words: list[SentenceWord]) -> SentenceSubject:
    """Change ``p99 step time`` and ``mean step time`` to the metric with one value for each step."""
    if subject.metric.name != STEP_TIME_METRIC or not subject.aggregates or subject.aggregates[0].over:
        return subject
    if _ROW_STATISTICS["quantile"].fullmatch(subject.aggregates[0].word) is None:
        return subject
    (quantile_word,) = (word for word in words if word.text == subject.aggregates[0].word)
    steps_subject = replace(subject, metric=METRICS[PERIOD_METRIC], aggregates=())
    steps_subject.select("quantile", quantile_word)
    return steps_subject


def describe_unknown_axis(name: str, axes: Collection[str]) -> str:
    """Return the mistake of a balance across something that is no mesh axis."""
    axes_text = f"the mesh axes are {', '.join(axes)}" if axes else "the convention names no mesh axes"
    return f"'{sanitize_line(name, 40)}' is not a mesh axis: {axes_text}{suggest_word(name, axes)}"


def _split_metric(words: list[SentenceWord]) -> tuple[list[SentenceWord], Metric]:
    """Split ``words`` into those before the metric and the metric that ends them; blanks may stand for underscores.

    Raises SentenceMistake where no metric ends them.
    """
    if (measured_index := next((i for i, word in enumerate(words) if word.text == MEASURED_WORD), None)) is not None:
        name = "_".join(word.text for word in words[measured_index + 1 :])
        if not name:
            raise words[measured_index].make_mistake(f"the name is missing after '{MEASURED_WORD}'")
        return words[:measured_index], make_measured_metric(name)
    for start, name in _list_name_candidates(words, len(words)):
        if (metric := resolve_metric(name)) is not None:
            if metric.name == SCOPE_TIME:
                raise words[start].make_mistake(f"{name} of what? Write {format_example(metric)}")
            return words[:start], metric
        if (
            "_" in name and (advice := propose_sentence(name)) is not None
        ):  # 'exposed comm' must not be read as 'comm' of a stage 'exposed'
            raise words[start].make_mistake(advice)
    raise _explain_unknown_metric(words)


def _list_name_candidates(words: list[SentenceWord], end: int) -> Iterator[tuple[int, str]]:
    """Yield what may be a name that ends before word ``end``, the longest first, and where it starts."""
    for start in range(max(0, end - _LONGEST_NAME), end):
        yield start, "_".join(word.text for word in words[start:end])


def _explain_unknown_metric(words: list[SentenceWord]) -> SentenceMistake:
    """Return the mistake of words that do not end in a metric: suggest a metric, or say that a word follows it."""
    for start, name in _list_name_candidates(words, len(words)):
        if (advice := propose_sentence(name)) is not None:
            return words[start].make_mistake(advice)
    for end in range(len(words) - 1, 0, -1):
        for _, name in _list_name_candidates(words, end):
            if (metric := resolve_metric(name)) is not None:
                late_word = sanitize_line(words[end].text, 40)
                move_advice = f"'{late_word}' comes after the metric: write it before '{name}'"
                comparison_advice = f"write: {name} {'>=' if metric.better == 'higher' else '<='} baseline"
                return words[end].make_mistake(comparison_advice if late_word == "no" else move_advice)
    start = len(words) - 1
    suggestion = suggest_word(words[start].text, METRICS)
    for candidate_start, name in _list_name_candidates(words, len(words)):
        similar_names = [
            known_name for known_name in (*UNITLESS_NAMES, *METRICS) if known_name.count("_") == name.count("_")
        ]
        if near_match := suggest_word(name, similar_names, 0.8):
            start, suggestion = candidate_start, near_match
            break
    unknown_name = sanitize_line(" ".join(word.text for word in words[start:]), 60)
    return words[start].make_mistake(f"unknown metric '{unknown_name}'{suggestion}")


def _is_before_metric(words: list[SentenceWord], i: int) -> bool:
    """Whether word ``i`` stands directly before the metric, an ``of`` between them aside."""
    return i == len(words) - 1 or (i == len(words) - 2 and words[i + 1].text == "of")


def _find_row_statistic(words: list[SentenceWord], metric: Metric) -> int | None:
    """Return the index of the word that says a quantile or statistic of each row; None where there is none.

    It is the last such word, if the metric has that dimension and no label of it is selected by name. The words before
    it are aggregates.
    """
    for dimension, pattern in _ROW_STATISTICS.items():
        if dimension in metric.dimensions and dimension not in {word.text for word in words}:
            indices = (i for i, word in enumerate(words) if pattern.fullmatch(word.text))
            return max(
                (i for i in indices if [next_word.text for next_word in words[i + 1 : i + 2]] != ["over"]), default=None
            )
    return None


def _is_aggregate(word: SentenceWord) -> bool:
    with locate_mistake(word.offset):
        return is_aggregate_word(word.text)
