"""What does a sentence such as ``median stage2_f overlap >= 60%`` ask for?

    [selectors and aggregates] METRIC                 COMPARISON LIMIT
    [aggregates] METRIC of selectors                  COMPARISON LIMIT
    [selectors] balance of METRIC across AXIS         COMPARISON LIMIT
    [selectors] pipeline overlap_score                COMPARISON LIMIT
    [selectors] measured NAME                         COMPARISON LIMIT
    no [selectors] METRIC [where selectors]
    no new kernels, no vanished kernels, no new or vanished kernels [above SHARE] [where selectors]

A selector is ``rank 3``, or a bare word for the metric's last dimension, of several labels ``stage2_f|stage4_f``; a
label with blanks stands in double quotes. ``decode`` is a kind of steps where the convention has kinds, and picks the
windows. An aggregate is a word for all that the selectors leave, or ``max over ep of median over pp of``, of which the
last is formed first.

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
from typing import Self

from pytest_nsys.analysis.explain.budget_lines import BLOCKED
from pytest_nsys.analysis.metrics.names import BY_UNIT, SHORT, metric_named, sentence_for
from pytest_nsys.analysis.metrics.registry import MEASURED, METRICS, PERIOD, STEP_TIME, Metric, measured
from pytest_nsys.analysis.metrics.table import STATISTICS, Selector
from pytest_nsys.core.conventions import KIND_WORDS, MIXED
from pytest_nsys.core.errors import did_you_mean, hint
from pytest_nsys.core.families import spelt
from pytest_nsys.core.units import (
    ANY,
    COUNT,
    HASH,
    MICRO,
    RATIO,
    TIME,
    limit_value,
    parse_quantity,
)
from pytest_nsys.core.words import printable
from pytest_nsys.gates.limits import (
    EVERY_COMPARISON,
    WITHIN,
    SentenceMistake,
    Word,
    held_to,
    mistaken_at,
    parse_requirement,
)
from pytest_nsys.gates.model import (
    Aggregate,
    Assertion,
    Comparator,
    Constant,
    FromBaseline,
    GateFile,
    Location,
    Requirement,
    Tolerance,
    Unmatched,
    judged,
)
from pytest_nsys.gates.names import QUOTED, labels_of

AGGREGATE_WORDS = ("median", "mean", "max", "min", "sum")
NEARLY_AGGREGATES = {"avg": "mean", "average": "mean", "maximum": "max", "minimum": "min", "total": "sum"}
NUMBERED = frozenset({"rank"})
"""Dimensions whose labels are numbers; mesh axes are too."""

QUANTILES = ("p50", "p90", "p99", "mean", "max")

# Nobody reads a longer one, and the file may be a stranger's.
MAX_LENGTH = 500
"""Most characters of a sentence."""

KERNELS = "kernel_launches"
"""Metric whose rows are kernels by name."""

BIG_KERNELS = "kernel_share"
"""Metric in which a limit says how small a kernel may be."""

WORD = "pipeline"
RULED = "overlap_score"
"""Metric that the pipeline rule goes with."""

_KERNEL_SENTENCES = {f"{each} kernels": each for each in reversed(Unmatched)}

_LONGEST_NAME = 5
"""Most words of the name of a metric."""

_WORD = re.compile(rf"!=|[<>=≤≥]+|(?:{QUOTED}|(?!!=)[^\s<>=≤≥])+")
_PERCENTILE = re.compile(r"p[0-9]+")
_OF_ROWS = {"quantile": re.compile("p[0-9]+|mean|max"), "statistic": re.compile("|".join(STATISTICS))}
"""Dimensions that say what a row takes of many values, and the words for it."""


@dataclass(slots=True)
class Subject:
    """Describes what a sentence judges: the metric, its rows and how they are aggregated."""

    metric: Metric
    axes: Collection[str]  # mesh axes that its words may name
    kinds: Collection[str]  # kinds of steps that its words may name
    where: dict[str, Selector] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()
    balance_across: str | None = None
    pipeline: bool = False
    kind: str | None = None

    def read_prefix(self, words: list[Word]) -> Self:
        """Read the selectors and aggregates that stand before a metric."""
        dimensions = {dimension for metric in METRICS.values() for dimension in metric.dimensions} | set(self.axes)
        statistic_index = _word_of_a_row(words, self.metric)
        i = 0
        while i < len(words):
            word = words[i]
            next_word = words[i + 1] if i + 1 < len(words) else None
            is_label = _last(words, i) and word.text in BLOCKED and "producer" in self.metric.dimensions
            names_dimension = not is_label and (
                word.text in dimensions or (next_word is not None and next_word.text.isdigit())
            )
            if not names_dimension and i != statistic_index and _is_aggregate(word):
                i = self._read_aggregate(words, i)
            elif names_dimension or (self.metric.outside and next_word is not None):
                self._select_named(word, next_word)
                i += 2
            else:
                self.select_bare(word)
                i += 2 if _last(words, i) or (i == statistic_index and words[i + 1].text == "of") else 1
        return self

    def _read_aggregate(self, words: list[Word], i: int) -> int:
        """Read ``max`` or ``max over ep``, which takes what the next one makes, and return where the next word is."""
        word, next_words = words[i], [later_word.text for later_word in words[i + 1 :]]
        dimensions: tuple[str, ...] | None = None
        if next_words[:1] == ["over"]:
            if len(next_words) < 2:
                raise SentenceMistake(
                    words[i + 1].offset, "a dimension is missing after 'over', as in 'max over rank of'"
                )
            dimensions = (next_words[1],)
            if problem := self._not_taken_together(word.text, next_words[1]):
                raise words[i + 2].mistake(problem)
            i, next_words = i + 2, next_words[2:]
        elif self.aggregates:
            first = self.aggregates[0].word
            suggestion = f"say over what the second takes them, as in '{first} of {word.text} over rank of'"
            raise word.mistake(f"one aggregate at a time: '{first}' or '{word.text}'; of two {suggestion}")
        self.aggregates = (Aggregate(word.text, dimensions), *self.aggregates)
        return i + 2 if next_words[:1] == ["of"] else i + 1

    def _not_taken_together(self, word: str, dimension: str) -> str | None:
        """Explain why an aggregate cannot take a dimension together; None where it can."""
        if dimension == "statistic" and not self.metric.outside:  # of which one is meant where nobody says
            statistic = word if word in STATISTICS else STATISTICS[0]
            return f"a statistic is chosen, not aggregated: write {statistic} {self.metric.name}"
        if any(dimension in (step.over or ()) for step in self.aggregates):
            return f"{dimension} is taken together twice"
        return check_dimension(dimension, self.metric, self.axes)

    def _select_named(self, word: Word, value: Word | None) -> None:
        if problem := check_dimension(word.text, self.metric, self.axes):
            raise word.mistake(problem)
        if value is None:
            raise word.mistake(f"a value is missing after '{word.text}', as in '{word.text} 3'")
        self.select(word.text, value)

    def select_bare(self, word: Word) -> None:
        """Read a word without its dimension: a kind of steps, a label of the last dimension, or a statistic.

        Raises SentenceMistake for a word that can be none of these.
        """
        other_dimensions, shown_word = (
            [dimension for dimension in self.metric.dimensions if dimension != "rank"],
            printable(word.text, 40),
        )
        if other_dimensions[-1:] == ["statistic"] and word.text not in STATISTICS:
            other_dimensions.pop()
        if self.metric.outside:
            problem = f"'{shown_word}' of which label? Write the label before it, as in 'rank 3' or 'phase decode'"
            raise word.mistake(problem)
        if word.text in self.kinds and not (word.text == MIXED and "purpose" in self.metric.dimensions):
            if self.kind is not None:
                raise word.mistake(f"one kind of steps at a time: '{self.kind}' or '{shown_word}'")
            self.kind = word.text
            return
        if not other_dimensions:
            name = self.metric.name
            suggestion = did_you_mean(word.text, [*self.kinds, *([WORD] if name == RULED else [])])
            raise word.mistake(f"'{shown_word}' selects nothing: {name} has no dimension but rank{suggestion}")
        if word.text.isdigit():
            raise word.mistake(f"'{shown_word}' of which dimension? Write it as in 'rank {shown_word}'")
        self.select(other_dimensions[-1], word)

    def select(self, dimension: str, value: Word) -> None:
        """Add a selector of a dimension. Raises SentenceMistake for a second one, or a label that it cannot have."""
        if dimension in self.where:
            first = self.where[dimension].values[0]
            problem = f"{dimension} is selected twice: '{printable(first, 40)}' and '{printable(value.text, 40)}'"
            raise value.mistake(problem)
        with mistaken_at(value.offset):
            labels = (selector_value(self.metric, dimension, label, self.axes) for label in labels_of(value.text))
            self.where[dimension] = Selector(tuple(labels))


def parse_sentence(text: str, gate: GateFile, location: Location) -> Assertion:
    """Return the assertion that ``text`` is; the gate file says what the sentence does not. Raises SentenceMistake."""
    subject, requirement = _parse(text, gate)
    parts = (subject.where, subject.aggregates, subject.balance_across, subject.pipeline)
    defaults = {key: getattr(gate, key) for key in ("window", "span", "kernels", "allow_missing")}
    assertion = Assertion(
        text, text, text, location, subject.metric.name, requirement, *parts, kind=subject.kind, **defaults
    )
    return replace(assertion, outside=subject.metric) if subject.metric.outside else assertion


def _parse(text: str, gate: GateFile) -> tuple[Subject, Requirement]:
    """Return what a sentence judges and what it requires. Raises SentenceMistake."""
    kinds = KIND_WORDS if gate.convention is None else gate.convention.kind_names
    make_subject = partial(Subject, axes=gate.axes, kinds=kinds)
    if len(text) > MAX_LENGTH:
        raise SentenceMistake(0, f"a sentence has at most {MAX_LENGTH} characters")
    text = MICRO.sub("us", text)
    words = [Word(m[0], m.start()) for m in _WORD.finditer(text)]
    if not words:
        raise SentenceMistake(0, "the sentence is empty")
    if open_quote := next((word for word in words if word.text.count('"') % 2), None):
        raise open_quote.mistake(f"the quote is not closed: {printable(open_quote.text, 40)}")
    if words[0].text == "no":
        return _parse_none(words, make_subject)
    comparison_index = next((i for i in range(len(words)) if _compares(words, i)), None)
    if comparison_index is None:
        raise _no_comparison(text, words)
    if comparison_index == 0:
        raise words[0].mistake(f"the metric is missing before '{words[0].text}'")
    subject = _parse_subject(_by_unit(words[:comparison_index], text), make_subject)
    if subject.metric.unit == HASH and (subject.aggregates or subject.balance_across):
        problem = f"{subject.metric.name} is not a quantity: several cannot be aggregated"
        raise words[0].mistake(problem)
    if not subject.balance_across:
        subject.metric = held_to(subject.metric, text, words[comparison_index].offset)
    target = judged(subject.metric, subject.aggregates, subject.balance_across)
    requirement = parse_requirement(text, target, gate.tolerance, start=words[comparison_index].offset)
    if subject.pipeline and subject.aggregates:
        problem = f"'{WORD}' judges each rank by itself: leave out what takes ranks together"
        raise words[0].mistake(problem)
    if subject.pipeline and requirement.worse >= 0:
        raise words[0].mistake(f"'{WORD}' asks for a score of at least so much: write >=")
    return subject, requirement


def _by_unit(words: list[Word], text: str) -> list[Word]:
    """Return the words with one metric in place of a name for several: the one in whose unit the sentence ends."""
    *before, last = words
    if (metrics := BY_UNIT.get(last.text)) is None:
        return words
    if (metric := next((name for unit, name in metrics.items() if unit in text[last.offset :]), None)) is not None:
        return [*before, last._replace(text=metric)]
    limit = " ".join(text[last.offset + len(last.text) :].split())
    suggestions = [f"{name} {limit}" for name in metrics.values()]
    if "baseline" not in limit:
        number = re.search(r"[0-9][0-9._]*", limit)
        suggestions = [f"{last.text} >= {number[0] if number else 12000} {unit}" for unit in metrics]
    raise last.mistake(f"{last.text} in {' or '.join(metrics)}? Write {' or '.join(suggestions)}")


def selecting(assertion: Assertion, word: str, axes: Collection[str]) -> Assertion:
    """Return the assertion with a bare word that is no kind of steps but selects rows. Raises SentenceMistake."""
    subject = Subject(assertion.measures, axes, (), dict(assertion.where))
    subject.select_bare(Word(word, 0))
    return replace(assertion, where=subject.where, kind=None)


def check_dimension(name: str, metric: Metric, axes: Collection[str]) -> str | None:
    """Return what is wrong with ``name`` as a dimension of ``metric``, as text; None where it is one, or may be."""
    if metric.outside and metric.unit == ANY:
        return None
    known_dimensions = (*metric.dimensions, *(axes if "rank" in metric.dimensions else ()))
    if name in known_dimensions:
        return None
    return f"{metric.name} has no dimension '{printable(name, 40)}'{hint(name, known_dimensions, 'it has')}"


def selector_value(metric: Metric, dimension: str, text: str, axes: Collection[str]) -> str:
    """Return ``text`` as a label of a metric's ``dimension``. Raises ValueError where it cannot be one."""
    if dimension in NUMBERED or dimension in axes:
        if re.fullmatch(r"-?[0-9]{1,18}", text) is None:
            raise ValueError(f"{dimension} is a number, not '{printable(text, 40)}'")
        return str(int(text))
    if metric.outside:
        return text
    if dimension == "quantile" and text not in QUANTILES:
        raise ValueError(f"a quantile is one of {', '.join(QUANTILES)}, not '{printable(text, 40)}'")
    if dimension == "statistic" and text not in STATISTICS and not set("*?[") & set(text):
        raise ValueError(f"a statistic is one of {', '.join(STATISTICS)}, not '{printable(text, 40)}'")
    return spelt(text) if dimension == "collective" else text


def aggregate_word(text: str) -> bool:
    """Return whether ``text`` is a word that takes many values together. Raises ValueError where it nearly is."""
    if text in NEARLY_AGGREGATES:
        raise ValueError(f"'{text}' is not a word here (did you mean '{NEARLY_AGGREGATES[text]}'?)")
    if re.fullmatch(r"p[0-9]+\.[0-9]+", text):
        raise ValueError(f"'{printable(text, 40)}': percentiles are whole, p1 to p99")
    if _PERCENTILE.fullmatch(text):
        if text[1] == "0" or len(text) > 3:
            raise ValueError(f"'{printable(text, 40)}': percentiles are p1 to p99")
        return True
    return text in AGGREGATE_WORDS


def _compares(words: list[Word], i: int) -> bool:
    text = words[i].text
    if text == "at":
        return i + 1 < len(words) and words[i + 1].text in ("least", "most")
    return text in ("below", "above", WITHIN) or text[0] in "<>=≤≥" or text == "!="


def _no_comparison(text: str, words: list[Word]) -> SentenceMistake:
    """Return the mistake of a sentence without a comparison, or the one that its metric has."""
    problem = f"the comparison is missing: {EVERY_COMPARISON}"
    last = words[-1]
    if last.text[0].isdigit() and len(words) > 1:
        return last.mistake(problem)
    try:
        _split_metric(words)
    except SentenceMistake as mistake:
        return mistake
    return SentenceMistake(len(text.rstrip()), problem)


def _parse_none(words: list[Word], subject_of: Callable[[Metric], Subject]) -> tuple[Subject, Requirement]:
    """Read ``no syncs``, ``no mixed comm streams``: zero, in every row."""
    if len(words) == 1:
        raise SentenceMistake(words[0].offset + 2, "the metric is missing after 'no'")
    where_index = next((i for i, word in enumerate(words) if word.text == "where"), len(words))
    words, selectors = words[:where_index], [word for word in words[where_index:] if word.text != "where"]
    if (kernels_part := _unmatched_kernels(words)) is not None:
        return subject_of(kernels_part[0]).read_prefix(selectors), kernels_part[1]
    comparison_index = next((i for i in range(len(words)) if _compares(words, i)), None)
    if comparison_index is not None:
        raise words[comparison_index].mistake(f"'no …' takes no limit: remove '{words[comparison_index].text}'")
    try:
        prefix, metric = _split_metric(words[1:])
    except SentenceMistake:
        metric_text = printable(" ".join(word.text for word in words[1:]), 60)
        if suggestion := did_you_mean(metric_text, _KERNEL_SENTENCES, 0.8):
            raise words[1].mistake(f"unknown metric '{metric_text}'{suggestion}") from None
        raise
    if metric.unit not in (TIME, COUNT, ANY):
        raise words[0].mistake(f"'no' is for times and counts: {metric.name} is neither")
    subject = subject_of(metric).read_prefix([*prefix, *selectors])
    if subject.aggregates:
        raise words[1].mistake(f"'no' asks for zero in every row: leave out '{words[1].text}'")
    return subject, Requirement(Comparator.EQ, Constant(Fraction(0)), "== 0")


def _unmatched_kernels(words: list[Word]) -> tuple[Metric, Requirement] | None:
    """Read ``no new kernels`` or ``no vanished kernels above 2%``; None for every other sentence."""
    above_index = next((i for i, word in enumerate(words) if word.text == "above"), len(words))
    kernels_text = " ".join(word.text for word in words[1:above_index])
    phrase = next((candidate for candidate in _KERNEL_SENTENCES if f" {kernels_text}".endswith(f" {candidate}")), None)
    if phrase is None:
        return None
    if kernels_text != phrase:
        problem = f"selectors stand behind 'no {phrase}': write no {phrase} where {printable(words[1].text, 40)} …"
        raise words[1].mistake(problem)
    metric, tolerance, limit_text = METRICS[KERNELS], None, f"has no {phrase}"
    if above_index < len(words):
        metric, above_words = (
            METRICS[BIG_KERNELS],
            " ".join(word.text for word in words[above_index:]).split(maxsplit=1),
        )
        with mistaken_at(words[above_index].offset):
            share = limit_value(parse_quantity(above_words[-1]), RATIO, metric.name)
            if not 0 < share < 1:
                raise ValueError("a share of the time is above 0% and below 100%")
        tolerance, limit_text = Tolerance(absolute={RATIO: share}), f"{limit_text} {' '.join(above_words)}"
    limit = FromBaseline(tolerance, no=_KERNEL_SENTENCES[phrase])
    return metric, Requirement(Comparator.EQ, limit, limit_text)


def _selectors_first(words: list[Word]) -> list[Word]:
    """Return ``family_ns of gemm`` in the order of ``gemm family_ns``."""
    for of_index in (i for i, word in enumerate(words[:-1]) if word.text == "of"):
        for start, name in _names(words, of_index):
            if metric_named(name) is not None or words[start].text == MEASURED:
                return [*words[:start], *words[of_index + 1 :], *words[start:of_index]]
    return words


def _parse_subject(words: list[Word], subject_of: Callable[[Metric], Subject]) -> Subject:
    """Return what the words before a comparison ask to be judged. Raises SentenceMistake."""
    balance_index = next((i for i, word in enumerate(words) if word.text == "balance"), None)
    if balance_index is None:
        prefix, metric = _split_metric(_selectors_first(words))
        other_words = [word for word in prefix if metric.name != RULED or word.text != WORD]
        subject = subject_of(metric)
        subject.pipeline = len(other_words) < len(prefix)
        return _of_steps(subject.read_prefix(other_words), words)
    balance_words = (
        words[balance_index + 2 :]
        if [word.text for word in words[balance_index + 1 : balance_index + 2]] == ["of"]
        else words[balance_index + 1 :]
    )
    if len(balance_words) < 3 or balance_words[-2].text != "across":
        problem = "a balance is written as in 'balance of compute_ns across pp'"
        raise words[balance_index].mistake(problem)
    axis = balance_words[-1]
    extra_words, metric = _split_metric(balance_words[:-2])
    if extra_words:
        raise extra_words[0].mistake("selectors stand before 'balance'")
    subject = subject_of(metric)
    subject.balance_across = axis.text
    if axis.text not in subject.axes or not (metric.outside or "rank" in metric.dimensions):
        raise axis.mistake(unknown_axis(axis.text, subject.axes))
    if subject.read_prefix(words[:balance_index]).aggregates:
        raise words[0].mistake(f"a balance takes no '{subject.aggregates[0].word}'")
    return subject


def _of_steps(subject: Subject, words: list[Word]) -> Subject:
    """Return ``p99 step time`` and ``mean step time`` as those of the steps, not of the one step time of a run."""
    if subject.metric.name != STEP_TIME or not subject.aggregates or subject.aggregates[0].over:
        return subject
    if _OF_ROWS["quantile"].fullmatch(subject.aggregates[0].word) is None:
        return subject
    (quantile_word,) = (word for word in words if word.text == subject.aggregates[0].word)
    steps_subject = replace(subject, metric=METRICS[PERIOD], aggregates=())
    steps_subject.select("quantile", quantile_word)
    return steps_subject


def unknown_axis(name: str, axes: Collection[str]) -> str:
    """Return the mistake of a balance across something that is no mesh axis."""
    axes_text = f"the mesh axes are {', '.join(axes)}" if axes else "the convention names no mesh axes"
    return f"'{printable(name, 40)}' is not a mesh axis: {axes_text}{did_you_mean(name, axes)}"


def _split_metric(words: list[Word]) -> tuple[list[Word], Metric]:
    """Split ``words`` into those before the metric and the metric that ends them; blanks may stand for underscores.

    Raises SentenceMistake where no metric ends them.
    """
    if (measured_index := next((i for i, word in enumerate(words) if word.text == MEASURED), None)) is not None:
        name = "_".join(word.text for word in words[measured_index + 1 :])
        if not name:
            raise words[measured_index].mistake(f"the name is missing after '{MEASURED}'")
        return words[:measured_index], measured(name)
    for start, name in _names(words, len(words)):
        if (metric := metric_named(name)) is not None:
            return words[:start], metric
        if "_" in name and (advice := sentence_for(name)) is not None:  # 'exposed comm' is no comm of a stage 'exposed'
            raise words[start].mistake(advice)
    raise _unknown_metric(words)


def _names(words: list[Word], end: int) -> Iterator[tuple[int, str]]:
    """Yield what may be a name that ends before word ``end``, the longest first, and where it starts."""
    for start in range(max(0, end - _LONGEST_NAME), end):
        yield start, "_".join(word.text for word in words[start:end])


def _unknown_metric(words: list[Word]) -> SentenceMistake:
    """Return the mistake of words that end in no metric: what may be meant, or that a word comes after the metric."""
    for start, name in _names(words, len(words)):
        if (advice := sentence_for(name)) is not None:
            return words[start].mistake(advice)
    for end in range(len(words) - 1, 0, -1):
        for _, name in _names(words, end):
            if (metric := metric_named(name)) is not None:
                late_word = printable(words[end].text, 40)
                move_advice = f"'{late_word}' comes after the metric: write it before '{name}'"
                comparison_advice = f"write: {name} {'>=' if metric.better == 'higher' else '<='} baseline"
                return words[end].mistake(comparison_advice if late_word == "no" else move_advice)
    start = len(words) - 1
    suggestion = did_you_mean(words[start].text, METRICS)
    for candidate_start, name in _names(words, len(words)):
        similar_names = [known_name for known_name in (*SHORT, *METRICS) if known_name.count("_") == name.count("_")]
        if near_match := did_you_mean(name, similar_names, 0.8):
            start, suggestion = candidate_start, near_match
            break
    unknown_name = printable(" ".join(word.text for word in words[start:]), 60)
    return words[start].mistake(f"unknown metric '{unknown_name}'{suggestion}")


def _last(words: list[Word], i: int) -> bool:
    """Whether word ``i`` stands directly before the metric, an ``of`` between them aside."""
    return i == len(words) - 1 or (i == len(words) - 2 and words[i + 1].text == "of")


def _word_of_a_row(words: list[Word], metric: Metric) -> int | None:
    """Return the index of the word that says a quantile or statistic of each row; None where there is none.

    It is the last such word, where the metric has that dimension and no label of it is selected by name. What stands
    before it takes rows together.
    """
    for dimension, pattern in _OF_ROWS.items():
        if dimension in metric.dimensions and dimension not in {word.text for word in words}:
            indices = (i for i, word in enumerate(words) if pattern.fullmatch(word.text))
            return max(
                (i for i in indices if [next_word.text for next_word in words[i + 1 : i + 2]] != ["over"]), default=None
            )
    return None


def _is_aggregate(word: Word) -> bool:
    with mistaken_at(word.offset):
        return aggregate_word(word.text)
