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
last is formed first. What is measured outside of a trace has the
dimensions that its file says: a gate file knows the name alone. What it says is checked when it was measured, as the
loader checks it of other metrics: a limit in another unit, or on the better side of a baseline, is a mistake and no
verdict.
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

MAX_LENGTH = 500
"""Most characters of a sentence: nobody reads a longer one, and the file may be a stranger's."""

KERNELS = "kernel_launches"
"""The metric whose rows are kernels by name."""

BIG_KERNELS = "kernel_share"
"""The metric of which a limit says how small a kernel may be."""

WORD = "pipeline"
RULED = "overlap_score"
"""The metric that the rule goes with."""

_KERNEL_SENTENCES = {f"{each} kernels": each for each in reversed(Unmatched)}

_LONGEST_NAME = 5
"""Most words that the name of a metric is looked for in."""

_WORD = re.compile(rf"!=|[<>=≤≥]+|(?:{QUOTED}|(?!!=)[^\s<>=≤≥])+")
_PERCENTILE = re.compile(r"p[0-9]+")
_OF_ROWS = {"quantile": re.compile("p[0-9]+|mean|max"), "statistic": re.compile("|".join(STATISTICS))}
"""Dimensions of what a row takes of many values, and the words for it."""


@dataclass(slots=True)
class Subject:
    """What a sentence judges. ``axes`` are the mesh axes, ``kinds`` the kinds of steps, that its words may name."""

    metric: Metric
    axes: Collection[str]
    kinds: Collection[str]
    where: dict[str, Selector] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()
    balance_across: str | None = None
    pipeline: bool = False
    kind: str | None = None

    def read_prefix(self, words: list[Word]) -> Self:
        """Reads selectors and the aggregate word that stand before a metric."""
        every = {d for metric in METRICS.values() for d in metric.dimensions} | set(self.axes)
        of_row = _word_of_a_row(words, self.metric)
        i = 0
        while i < len(words):
            word = words[i]
            following = words[i + 1] if i + 1 < len(words) else None
            is_label = _last(words, i) and word.text in BLOCKED and "producer" in self.metric.dimensions
            is_named = not is_label and (word.text in every or (following is not None and following.text.isdigit()))
            if not is_named and i != of_row and _is_aggregate(word):
                i = self._read_aggregate(words, i)
            elif is_named or (self.metric.outside and following is not None):
                self._select_named(word, following)
                i += 2
            else:
                self.select_bare(word)
                i += 2 if _last(words, i) or (i == of_row and words[i + 1].text == "of") else 1
        return self

    def _read_aggregate(self, words: list[Word], i: int) -> int:
        """Reads ``max``, or ``max over ep``, of what the next one makes, and returns where the next word is."""
        word, rest = words[i], [each.text for each in words[i + 1 :]]
        over: tuple[str, ...] | None = None
        if rest[:1] == ["over"]:
            if len(rest) < 2:
                raise SentenceMistake(
                    words[i + 1].offset, "a dimension is missing after 'over', as in 'max over rank of'"
                )
            over = (rest[1],)
            if wrong := self._not_taken_together(word.text, rest[1]):
                raise words[i + 2].mistake(wrong)
            i, rest = i + 2, rest[2:]
        elif self.aggregates:
            first = self.aggregates[0].word
            meant = f"say over what the second takes them, as in '{first} of {word.text} over rank of'"
            raise word.mistake(f"one aggregate at a time: '{first}' or '{word.text}'; of two {meant}")
        self.aggregates = (Aggregate(word.text, over), *self.aggregates)
        return i + 2 if rest[:1] == ["of"] else i + 1

    def _not_taken_together(self, word: str, dimension: str) -> str | None:
        """Why a dimension cannot be taken together; None where it can."""
        if dimension == "statistic" and not self.metric.outside:  # of which one is meant where nobody says
            meant = word if word in STATISTICS else STATISTICS[0]
            return f"a statistic is chosen, not aggregated: write {meant} {self.metric.name}"
        if any(dimension in (step.over or ()) for step in self.aggregates):
            return f"{dimension} is taken together twice"
        return check_dimension(dimension, self.metric, self.axes)

    def _select_named(self, word: Word, value: Word | None) -> None:
        if wrong := check_dimension(word.text, self.metric, self.axes):
            raise word.mistake(wrong)
        if value is None:
            raise word.mistake(f"a value is missing after '{word.text}', as in '{word.text} 3'")
        self.select(word.text, value)

    def select_bare(self, word: Word) -> None:
        """A word without its dimension is a kind of steps, selects on the metric's last one, or is a statistic."""
        others, shown = [d for d in self.metric.dimensions if d != "rank"], printable(word.text, 40)
        if others[-1:] == ["statistic"] and word.text not in STATISTICS:
            others.pop()
        if self.metric.outside:
            what = f"'{shown}' of which label? Write the label before it, as in 'rank 3' or 'phase decode'"
            raise word.mistake(what)
        if word.text in self.kinds and not (word.text == MIXED and "purpose" in self.metric.dimensions):
            if self.kind is not None:
                raise word.mistake(f"one kind of steps at a time: '{self.kind}' or '{shown}'")
            self.kind = word.text
            return
        if not others:
            name = self.metric.name
            meant = did_you_mean(word.text, [*self.kinds, *([WORD] if name == RULED else [])])
            raise word.mistake(f"'{shown}' selects nothing: {name} has no dimension but rank{meant}")
        if word.text.isdigit():
            raise word.mistake(f"'{shown}' of which dimension? Write it as in 'rank {shown}'")
        self.select(others[-1], word)

    def select(self, dimension: str, value: Word) -> None:
        if dimension in self.where:
            first = self.where[dimension].values[0]
            what = f"{dimension} is selected twice: '{printable(first, 40)}' and '{printable(value.text, 40)}'"
            raise value.mistake(what)
        with mistaken_at(value.offset):
            each = (selector_value(self.metric, dimension, label, self.axes) for label in labels_of(value.text))
            self.where[dimension] = Selector(tuple(each))


def parse_sentence(text: str, gate: GateFile, location: Location) -> Assertion:
    """What ``text`` asks for: an assertion of the gate file, which says the rest. Raises SentenceMistake."""
    subject, require = _parse(text, gate)
    said = (subject.where, subject.aggregates, subject.balance_across, subject.pipeline)
    usual = {key: getattr(gate, key) for key in ("window", "span", "kernels", "allow_missing")}
    made = Assertion(text, text, text, location, subject.metric.name, require, *said, kind=subject.kind, **usual)
    return replace(made, outside=subject.metric) if subject.metric.outside else made


def _parse(text: str, gate: GateFile) -> tuple[Subject, Requirement]:
    kinds = KIND_WORDS if gate.convention is None else gate.convention.kind_names
    subject_of = partial(Subject, axes=gate.axes, kinds=kinds)
    if len(text) > MAX_LENGTH:
        raise SentenceMistake(0, f"a sentence has at most {MAX_LENGTH} characters")
    text = MICRO.sub("us", text)
    words = [Word(m[0], m.start()) for m in _WORD.finditer(text)]
    if not words:
        raise SentenceMistake(0, "the sentence is empty")
    if open_quote := next((word for word in words if word.text.count('"') % 2), None):
        raise open_quote.mistake(f"the quote is not closed: {printable(open_quote.text, 40)}")
    if words[0].text == "no":
        return _parse_none(words, subject_of)
    cut = next((i for i in range(len(words)) if _compares(words, i)), None)
    if cut is None:
        raise _no_comparison(text, words)
    if cut == 0:
        raise words[0].mistake(f"the metric is missing before '{words[0].text}'")
    subject = _parse_subject(_by_unit(words[:cut], text), subject_of)
    if subject.metric.unit == HASH and (subject.aggregates or subject.balance_across):
        what = f"{subject.metric.name} is not a quantity: several cannot be aggregated"
        raise words[0].mistake(what)
    if not subject.balance_across:
        subject.metric = held_to(subject.metric, text, words[cut].offset)
    values = judged(subject.metric, subject.aggregates, subject.balance_across)
    require = parse_requirement(text, values, gate.tolerance, start=words[cut].offset)
    if subject.pipeline and subject.aggregates:
        what = f"'{WORD}' judges each rank by itself: leave out what takes ranks together"
        raise words[0].mistake(what)
    if subject.pipeline and require.worse >= 0:
        raise words[0].mistake(f"'{WORD}' asks for a score of at least so much: write >=")
    return subject, require


def _by_unit(words: list[Word], text: str) -> list[Word]:
    """The words, with the metric that the unit at the end of the sentence says in place of one for several."""
    *before, last = words
    if (metrics := BY_UNIT.get(last.text)) is None:
        return words
    if (metric := next((name for unit, name in metrics.items() if unit in text[last.offset :]), None)) is not None:
        return [*before, last._replace(text=metric)]
    limit = " ".join(text[last.offset + len(last.text) :].split())
    ways = [f"{name} {limit}" for name in metrics.values()]
    if "baseline" not in limit:
        number = re.search(r"[0-9][0-9._]*", limit)
        ways = [f"{last.text} >= {number[0] if number else 12000} {unit}" for unit in metrics]
    raise last.mistake(f"{last.text} in {' or '.join(metrics)}? Write {' or '.join(ways)}")


def selecting(assertion: Assertion, word: str, axes: Collection[str]) -> Assertion:
    """The assertion with a bare word that is no kind of steps there. Raises SentenceMistake."""
    subject = Subject(assertion.measures, axes, (), dict(assertion.where))
    subject.select_bare(Word(word, 0))
    return replace(assertion, where=subject.where, kind=None)


def check_dimension(name: str, metric: Metric, axes: Collection[str]) -> str | None:
    """What is wrong with ``name`` as a dimension of ``metric``, None where it is one, or may be."""
    if metric.outside and metric.unit == ANY:
        return None
    known = (*metric.dimensions, *(axes if "rank" in metric.dimensions else ()))
    if name in known:
        return None
    return f"{metric.name} has no dimension '{printable(name, 40)}'{hint(name, known, 'it has')}"


def selector_value(metric: Metric, dimension: str, text: str, axes: Collection[str]) -> str:
    """``text`` as a label of a metric's ``dimension``; ValueError says why it cannot be one."""
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
    """Whether ``text`` takes many values together; ValueError where it nearly does."""
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
    missing = f"the comparison is missing: {EVERY_COMPARISON}"
    last = words[-1]
    if last.text[0].isdigit() and len(words) > 1:
        return last.mistake(missing)
    try:
        _split_metric(words)
    except SentenceMistake as mistake:
        return mistake
    return SentenceMistake(len(text.rstrip()), missing)


def _parse_none(words: list[Word], subject_of: Callable[[Metric], Subject]) -> tuple[Subject, Requirement]:
    """``no syncs``, ``no mixed comm streams``: zero, in every row."""
    if len(words) == 1:
        raise SentenceMistake(words[0].offset + 2, "the metric is missing after 'no'")
    at = next((i for i, word in enumerate(words) if word.text == "where"), len(words))
    words, selectors = words[:at], [word for word in words[at:] if word.text != "where"]
    if (unmatched := _unmatched_kernels(words)) is not None:
        return subject_of(unmatched[0]).read_prefix(selectors), unmatched[1]
    cut = next((i for i in range(len(words)) if _compares(words, i)), None)
    if cut is not None:
        raise words[cut].mistake(f"'no …' takes no limit: remove '{words[cut].text}'")
    try:
        prefix, metric = _split_metric(words[1:])
    except SentenceMistake:
        written = printable(" ".join(word.text for word in words[1:]), 60)
        if meant := did_you_mean(written, _KERNEL_SENTENCES, 0.8):
            raise words[1].mistake(f"unknown metric '{written}'{meant}") from None
        raise
    if metric.unit not in (TIME, COUNT, ANY):
        raise words[0].mistake(f"'no' is for times and counts: {metric.name} is neither")
    subject = subject_of(metric).read_prefix([*prefix, *selectors])
    if subject.aggregates:
        raise words[1].mistake(f"'no' asks for zero in every row: leave out '{words[1].text}'")
    return subject, Requirement(Comparator.EQ, Constant(Fraction(0)), "== 0")


def _unmatched_kernels(words: list[Word]) -> tuple[Metric, Requirement] | None:
    """``no new kernels``, ``no vanished kernels above 2%``: against the baseline; None for every other sentence."""
    cut = next((i for i, word in enumerate(words) if word.text == "above"), len(words))
    written = " ".join(word.text for word in words[1:cut])
    asked = next((each for each in _KERNEL_SENTENCES if f" {written}".endswith(f" {each}")), None)
    if asked is None:
        return None
    if written != asked:
        what = f"selectors stand behind 'no {asked}': write no {asked} where {printable(words[1].text, 40)} …"
        raise words[1].mistake(what)
    metric, tolerance, said = METRICS[KERNELS], None, f"has no {asked}"
    if cut < len(words):
        metric, above = METRICS[BIG_KERNELS], " ".join(word.text for word in words[cut:]).split(maxsplit=1)
        with mistaken_at(words[cut].offset):
            share = limit_value(parse_quantity(above[-1]), RATIO, metric.name)
            if not 0 < share < 1:
                raise ValueError("a share of the time is above 0% and below 100%")
        tolerance, said = Tolerance(absolute={RATIO: share}), f"{said} {' '.join(above)}"
    limit = FromBaseline(tolerance, no=_KERNEL_SENTENCES[asked])
    return metric, Requirement(Comparator.EQ, limit, said)


def _selectors_first(words: list[Word]) -> list[Word]:
    """``family_ns of gemm`` in the order of ``gemm family_ns``."""
    for of in (i for i, word in enumerate(words[:-1]) if word.text == "of"):
        for start, name in _names(words, of):
            if metric_named(name) is not None or words[start].text == MEASURED:
                return [*words[:start], *words[of + 1 :], *words[start:of]]
    return words


def _parse_subject(words: list[Word], subject_of: Callable[[Metric], Subject]) -> Subject:
    at = next((i for i, word in enumerate(words) if word.text == "balance"), None)
    if at is None:
        prefix, metric = _split_metric(_selectors_first(words))
        others = [word for word in prefix if metric.name != RULED or word.text != WORD]
        subject = subject_of(metric)
        subject.pipeline = len(others) < len(prefix)
        return _of_steps(subject.read_prefix(others), words)
    rest = words[at + 2 :] if [w.text for w in words[at + 1 : at + 2]] == ["of"] else words[at + 1 :]
    if len(rest) < 3 or rest[-2].text != "across":
        what = "a balance is written as in 'balance of compute_ns across pp'"
        raise words[at].mistake(what)
    axis = rest[-1]
    beside, metric = _split_metric(rest[:-2])
    if beside:
        raise beside[0].mistake("selectors stand before 'balance'")
    subject = subject_of(metric)
    subject.balance_across = axis.text
    if axis.text not in subject.axes or not (metric.outside or "rank" in metric.dimensions):
        raise axis.mistake(unknown_axis(axis.text, subject.axes))
    if subject.read_prefix(words[:at]).aggregates:
        raise words[0].mistake(f"a balance takes no '{subject.aggregates[0].word}'")
    return subject


def _of_steps(subject: Subject, words: list[Word]) -> Subject:
    """``p99 step time`` and ``mean step time`` are those of the steps, not of the one step time of a run."""
    if subject.metric.name != STEP_TIME or not subject.aggregates or subject.aggregates[0].over:
        return subject
    if _OF_ROWS["quantile"].fullmatch(subject.aggregates[0].word) is None:
        return subject
    (asked,) = (word for word in words if word.text == subject.aggregates[0].word)
    found = replace(subject, metric=METRICS[PERIOD], aggregates=())
    found.select("quantile", asked)
    return found


def unknown_axis(name: str, axes: Collection[str]) -> str:
    """The mistake of a balance across something that is no mesh axis."""
    known = f"the mesh axes are {', '.join(axes)}" if axes else "the convention names no mesh axes"
    return f"'{printable(name, 40)}' is not a mesh axis: {known}{did_you_mean(name, axes)}"


def _split_metric(words: list[Word]) -> tuple[list[Word], Metric]:
    """The metric that ends ``words`` (blanks may stand for underscores) and the words before it."""
    if (at := next((i for i, word in enumerate(words) if word.text == MEASURED), None)) is not None:
        name = "_".join(word.text for word in words[at + 1 :])
        if not name:
            raise words[at].mistake(f"the name is missing after '{MEASURED}'")
        return words[:at], measured(name)
    for start, name in _names(words, len(words)):
        if (metric := metric_named(name)) is not None:
            return words[:start], metric
        if "_" in name and (told := sentence_for(name)) is not None:  # 'exposed comm' is no comm of a stage 'exposed'
            raise words[start].mistake(told)
    raise _unknown_metric(words)


def _names(words: list[Word], end: int) -> Iterator[tuple[int, str]]:
    """What may be a name that ends before word ``end``, the longest first, and where it starts."""
    for start in range(max(0, end - _LONGEST_NAME), end):
        yield start, "_".join(word.text for word in words[start:end])


def _unknown_metric(words: list[Word]) -> SentenceMistake:
    for start, name in _names(words, len(words)):
        if (told := sentence_for(name)) is not None:
            return words[start].mistake(told)
    for end in range(len(words) - 1, 0, -1):
        for _, name in _names(words, end):
            if (metric := metric_named(name)) is not None:
                late = printable(words[end].text, 40)
                before = f"'{late}' comes after the metric: write it before '{name}'"
                compared = f"write: {name} {'>=' if metric.better == 'higher' else '<='} baseline"
                return words[end].mistake(compared if late == "no" else before)
    start = len(words) - 1
    meant = did_you_mean(words[start].text, METRICS)
    for first, name in _names(words, len(words)):
        as_long = [known for known in (*SHORT, *METRICS) if known.count("_") == name.count("_")]
        if nearly := did_you_mean(name, as_long, 0.8):
            start, meant = first, nearly
            break
    written = printable(" ".join(w.text for w in words[start:]), 60)
    return words[start].mistake(f"unknown metric '{written}'{meant}")


def _last(words: list[Word], i: int) -> bool:
    """Whether word ``i`` stands directly before the metric, an ``of`` between them aside."""
    return i == len(words) - 1 or (i == len(words) - 2 and words[i + 1].text == "of")


def _word_of_a_row(words: list[Word], metric: Metric) -> int | None:
    """Which of these words says a quantile or statistic of each row: the last one, where the metric has any and none is
    selected by name. What stands before it takes rows together.
    """
    for dimension, fits in _OF_ROWS.items():
        if dimension in metric.dimensions and dimension not in {word.text for word in words}:
            fitting = (i for i, word in enumerate(words) if fits.fullmatch(word.text))
            return max((i for i in fitting if [w.text for w in words[i + 1 : i + 2]] != ["over"]), default=None)
    return None


def _is_aggregate(word: Word) -> bool:
    with mistaken_at(word.offset):
        return aggregate_word(word.text)
