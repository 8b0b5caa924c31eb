"""What limit do the words after a sentence's subject set, such as ``>= 60%`` or ``below baseline plus tolerance``?

A limit that every value holds, or that no value can hold, is a mistake. A metric without a least or greatest value can
reach every limit in that direction.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.metrics.registry import Metric, make_step_share
from pytest_nsys.core.errors import suggest_word
from pytest_nsys.core.exact import distance
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import (
    ANY_UNIT,
    BARE,
    COUNT,
    HASH,
    MICROSECONDS,
    OF_STEP,
    RATIO,
    TIME,
    UNIT_PATTERN,
    WRITTEN_UNITS,
    Quantity,
    convert_to_absolute,
    convert_to_limit,
    convert_to_relative,
    format_written_limit,
    list_absolute_amounts,
    parse_quantity,
)
from pytest_nsys.gates.model import (
    BaselineLimit,
    Comparator,
    Constant,
    ConstantByModel,
    HistoryReference,
    LimitTarget,
    Requirement,
    Tolerance,
    split_model_name,
)

FLOOR_COMPARATORS = (Comparator.GT, Comparator.GE)
CEILING_COMPARATORS = (Comparator.LT, Comparator.LE)
_STRICT = {Comparator.GE: Comparator.GT, Comparator.LE: Comparator.LT}
_MIRRORED = {
    Comparator.LT: Comparator.GT,
    Comparator.LE: Comparator.GE,
    Comparator.GT: Comparator.LT,
    Comparator.GE: Comparator.LE,
}
_LOOSE = {strict: loose for loose, strict in _STRICT.items()}
_EXAMPLES = {
    (TIME, "lower"): "<= 1ms",
    (RATIO, "higher"): ">= 60%",
    (COUNT, "lower"): "<= 10",
    (BARE, "lower"): "<= 1.1",
    (BARE, "higher"): ">= 0.6",
}
"""Limits to suggest where neither end of the range makes a useful limit."""


def find_pointless_limit(comparator: Comparator, limit: Fraction, target: LimitTarget) -> tuple[str, str] | None:
    """Return what is wrong with a constant that no value can miss, or none can meet, and the limit to write in its
    place.

    None where the constant tells values apart.
    """
    low = limit - 1 if target.least is None else target.least
    high = limit + 1 if target.greatest is None else target.greatest
    results = {comparator.is_satisfied(value, limit) for value in (low, high, min(max(low, limit), high))}
    if len(results) > 1:
        return None
    example = None
    if results == {True}:
        problem, better_comparator = "cannot fail", _STRICT.get(comparator, comparator)
        if comparator is not Comparator.NE:
            example = _EXAMPLES.get((target.unit, target.better or ""))
    else:
        problem, better_comparator = "can never hold", _LOOSE.get(comparator, comparator)
    range_end = target.least if target.least is not None and limit <= target.least else target.greatest
    assert range_end is not None
    return (
        f"{problem}: {_describe_range_end(target, range_end)}",
        example or f"{better_comparator} {format_written_limit(Fraction(range_end), target.unit)}",
    )


def explain_boundless_tolerance(comparator: Comparator | None, tolerance: Tolerance, target: LimitTarget) -> str | None:
    """Return the reason why no value can be beyond the tolerance of any baseline; None where one can.

    ``comparator`` None: on both sides.
    """
    if comparator is None:
        reasons = [explain_boundless_tolerance(side, tolerance, target) for side in (Comparator.GE, Comparator.LE)]
        return reasons[0] if all(reasons) else None
    is_floor = comparator in FLOOR_COMPARATORS
    worst_value, best_value = (target.least, target.greatest) if is_floor else (target.greatest, target.least)
    if worst_value is None or comparator is Comparator.EQ:
        return None
    if best_value is None:  # m − T for every m from the least value on
        tolerates_worst = is_floor and worst_value >= 0 and tolerance.relative >= 1
    else:
        amount = tolerance.compute_amount(best_value, target.unit)
        tolerates_worst = comparator.is_satisfied(worst_value, best_value - amount if is_floor else best_value + amount)
    return f"cannot fail: {_describe_range_end(target, worst_value)}" if tolerates_worst else None


def describe_useless_warning(
    warn_comparator: Comparator, warn_limit: Fraction, comparator: Comparator, limit: Fraction
) -> str | None:
    """Describe an early limit that warns of all values that hold the limit, or of none; None if it warns of some."""
    if comparator is not Comparator.EQ and not {warn_comparator, comparator} <= {
        *FLOOR_COMPARATORS,
        *CEILING_COMPARATORS,
    }:
        return None
    # One value between the two limits, one at each and one beyond each represent all values.
    values = {
        (warn_limit + limit) / 2,
        *(tested_limit + step for tested_limit in (warn_limit, limit) for step in (-1, 0, 1)),
    }
    results = {
        warn_comparator.is_satisfied(value, warn_limit) for value in values if comparator.is_satisfied(value, limit)
    }
    if len(results) > 1:
        return None
    return "never warns" if True in results else "always warns"


def describe_impossible_value(value: Fraction, target: LimitTarget) -> str | None:
    """Return what is wrong with a value that the metric cannot have, as text; None where it can have it."""
    if target.greatest is not None and value > target.greatest:
        return _describe_range_end(target, target.greatest)
    return _describe_range_end(target, target.least) if target.least is not None and value < target.least else None


def _describe_range_end(target: LimitTarget, range_end: int) -> str:
    side = "below" if range_end == target.least else "above"
    return f"{target.name} is never {side} {format_written_limit(Fraction(range_end), target.unit)}"


COMPARISONS: dict[str, Comparator] = {
    **{str(c): c for c in Comparator},
    "below": Comparator.LT,
    "above": Comparator.GT,
    "at least": Comparator.GE,
    "at most": Comparator.LE,
}
"""How a sentence writes each comparator; before a baseline, ``below`` and ``above`` include it."""

COMPARISON_HINT = "write one of <, <=, ==, !=, >=, >, below, above, at least, at most"

_UNITS_OF_TRACES = frozenset((RATIO, OF_STEP, COUNT, BARE, HASH, *WRITTEN_UNITS))
"""Units of metrics of a trace. What was measured outside may have a unit of its own, or one that is not known yet."""

NOISE_WORD = "noise"
"""The word for a tolerance that has no amount: the measured noise alone decides."""

NO_TOLERANCE_MISTAKE = (
    "there is no tolerance to add: write one into the gate file, as in tolerance: {rel: 5%, abs: 50us}"
)

WITHIN_WORD = "within"
"""Stands before the tolerance of a baseline that limits both sides."""

BETTER_WORDS = "better than"
"""The comparison of a claim that does not say how much better."""

_CLAIMED_SIDES = {"below": "lower", "above": "higher"}
"""The words for the side of the baseline that a claimed change leads to, each with the direction that it is."""

MAX_HISTORY_RUNS = 9999
"""The greatest number of runs that a sentence may take a median of or leave out of it, and the greatest ``fail_after``.
"""

_COMPARISON = re.compile(
    rf"\s*(?P<words>!=|[<>=≤≥]+|below\b|above\b|{WITHIN_WORD}\b|at\s+least\b|at\s+most\b|better\s+than\b)"
)
_MODEL_CONSTANT = re.compile(r"\s*(?P<constant>\S.*?)\s+on\s+(?P<model>[^,]*[^\s,])\s*(?:,|$)")
_HISTORY_WORDS = re.compile(
    r"(?:median\s+of\s+)?(?:the\s+)?last\s+(?:(?P<runs>\S+)\s+)?runs?\b(?:\s+of\s+(?P<branch>\S+))?"
    r"(?P<before>\s+before\s+the\s+newest(?:\s+(?P<lag>[0-9]+))?)?"
)
_COMPARISON_SLIPS = {"=": "==", "=>": ">=", "=<": "<=", "≥": ">=", "≤": "<=", "===": "==", "<>": "!="}
_LIMIT_TOKEN = re.compile(
    rf"(?P<quantity>[0-9.](?:[0-9_.]|,(?=[0-9]{{3}}\b))*\s*(?:%|(?!(?:of|on|below|above|better)\b){UNIT_PATTERN})?)|(?P<word>[^\W\d]\w*)|(?P<symbol>\S)"
)
_OF_STEP = re.compile(r"%\s+of\s+(?:the\s+)?step(?=\s*$|\s+on\s)")
_SIGNS = {"+": "+", "plus": "+", "-": "-", "minus": "-"}
_SIDES = (("below", "above"), ("at most", "at least"), ("<=", ">="), ("plus", "minus"), ("+", "-"))
_OTHER_SIDES = {**dict(_SIDES), **{high: low for low, high in _SIDES}, "<": ">=", ">": "<="}
"""For each word of a limit, the word for the other side of the baseline."""


class SentenceMistake(ValueError):
    """Says what is wrong with a sentence; ``offset`` is the place in it, in characters."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset = offset


@contextmanager
def locate_mistake(offset: int) -> Iterator[None]:
    """Turn a ValueError of the block into a SentenceMistake at this place of the sentence."""
    try:
        yield
    except ValueError as mistake:
        raise SentenceMistake(offset, str(mistake)) from None


class SentenceWord(NamedTuple):
    """Holds a word and where it stands in its text. ``kind``, in a limit: quantity, word or symbol."""

    text: str
    offset: int
    kind: str = ""

    def make_mistake(self, problem: str) -> SentenceMistake:
        """Return the mistake at this word, to be raised."""
        return SentenceMistake(self.offset, problem)


class _LimitTokens:
    """Hands out the words of a limit one after the other."""

    def __init__(self, text: str, start: int) -> None:
        matches = _LIMIT_TOKEN.finditer(text, start)
        self._remaining_words = [SentenceWord(m[0].strip(), m.start(), m.lastgroup or "") for m in matches]
        self._text_end = len(text.rstrip())

    def take(self, problem: str) -> SentenceWord:
        """Return the next word and take it. Raises SentenceMistake, with ``problem``, where there is none."""
        if not self._remaining_words:
            raise SentenceMistake(self._text_end, problem)
        return self._remaining_words.pop(0)

    def expect(self, text: str) -> None:
        """Take the next word. Raises SentenceMistake where it is another one than ``text``."""
        token = self.take(f"'{text}' is missing")
        if token.text != text:
            raise token.make_mistake(f"expected '{text}', not '{token.text}'")

    def peek(self, words: Collection[str]) -> SentenceWord | None:
        """Return the next token where it is one of ``words``, and leave it there."""
        return self._remaining_words[0] if self._remaining_words and self._remaining_words[0].text in words else None

    def take_after(self, text: str) -> SentenceWord:
        """Take ``text``, which has to be the next word, and return the word behind it."""
        self.expect(text)
        return self.take(f"'baseline' is missing after '{text}'")

    def take_sign(self) -> SentenceWord | None:
        return self._remaining_words.pop(0) if self.peek(_SIGNS) else None

    def check_end(self) -> None:
        """Raise SentenceMistake where a word is left."""
        if self._remaining_words:
            token = self._remaining_words[0]
            raise token.make_mistake(f"'{sanitize_line(token.text, 40)}' comes after the end of the limit")


def parse_requirement(
    text: str,
    target: LimitTarget,
    tolerance: Tolerance | None = None,
    *,
    start: int = 0,
    constant: bool = False,
) -> Requirement:
    """Return the comparison and limit that ``text`` holds from ``start`` on, for values of ``target``.

    ``tolerance`` is what ``plus tolerance`` stands for; ``constant`` refuses a baseline. Raises SentenceMistake.
    """
    text = MICROSECONDS.sub("us", text)
    match = _COMPARISON.match(text, start)
    if match is None:
        comparison_start = len(text) - len(text[start:].lstrip()) if text[start:].strip() else len(text.rstrip())
        raise SentenceMistake(comparison_start, f"the comparison is missing: {COMPARISON_HINT}")
    comparison_start, comparison = match.start("words"), " ".join(match["words"].split())
    comparator = COMPARISONS.get(comparison)
    if comparator is None and comparison not in (WITHIN_WORD, BETTER_WORDS):
        hint = (
            f" (did you mean '{_COMPARISON_SLIPS[comparison]}'?)"
            if comparison in _COMPARISON_SLIPS
            else f": {COMPARISON_HINT}"
        )
        raise SentenceMistake(comparison_start, f"'{comparison}' is not a comparison{hint}")
    tokens = _LimitTokens(text, match.end())
    first = tokens.take(f"the limit is missing after '{comparison}'")
    if target.unit == HASH and (comparator is not Comparator.EQ or first.text != "baseline"):
        problem = f"{target.name} is the same as in the baseline or not: write {target.name} == baseline"
        raise SentenceMistake(comparison_start, problem)
    is_claim = comparison == BETTER_WORDS or (comparator is Comparator.GE and tokens.peek([*_CLAIMED_SIDES, "better"]))
    if is_claim and constant:
        raise SentenceMistake(comparison_start, "only a constant can be written here, not a claim")
    if is_claim:
        return _parse_claim(text, comparison_start, first, tokens, target, tolerance)
    limit: Constant | ConstantByModel | BaselineLimit
    amount = None
    if comparison == WITHIN_WORD:
        amount, first = _parse_tolerance(first, tokens, target, tolerance), tokens.take_after("of")
    history = _parse_history_reference(text, first)
    if history is None and first.text != "baseline":
        if comparison == WITHIN_WORD:
            raise first.make_mistake(f"'{WITHIN_WORD}' is for baselines: write {WITHIN_WORD} 5% of baseline")
        limit = _parse_constant(first, tokens, target)
        if tokens.peek(["on"]):
            limit, tokens = _parse_constants_by_model(text, match.end(), target), _LimitTokens("", 0)
    else:
        if constant:
            raise first.make_mistake("only a constant can be written here, not a baseline")
        if target.unit == OF_STEP:
            time = target.name.removesuffix(" of step")
            problem = f"a share of the step is a constant: write {time} <= 5% of step, or {time} <= baseline + 5%"
            raise first.make_mistake(problem)
        source, runs = ("baseline", None) if history is None else history
        tokens = _LimitTokens(text, first.offset + len(source))
        if comparator in {"lower": FLOOR_COMPARATORS, "higher": CEILING_COMPARATORS}.get(target.better or "", ()):
            movement = "rises" if target.better == "lower" else "falls"
            suggestion = _suggest_other_side(text, comparison_start, comparison, source, tokens)
            problem = (
                f"{target.better} {target.name} is better, so this passes however far it {movement}: write {suggestion}"
            )
            raise SentenceMistake(comparison_start, problem)
        if comparator is not None:
            subject = " ".join(text[:comparison_start].split())
            comparator = _parse_baseline_comparator(comparison, comparison_start, subject)
            amount = _parse_signed_tolerance(tokens, comparator, target, tolerance, subject)
        limit = BaselineLimit(amount, runs)
    tokens.check_end()
    limit_text = " ".join(text[comparison_start:].split())
    _check_limit_reach(Requirement(comparator, limit, limit_text), target, text[:comparison_start], comparison_start)
    return Requirement(comparator, limit, limit_text)


def _parse_claim(
    text: str,
    comparison_start: int,
    first: SentenceWord,
    tokens: _LimitTokens,
    target: LimitTarget,
    tolerance: Tolerance | None,
) -> Requirement:
    """Return the requirement of a claim, ``at least 3% below baseline`` or ``better than baseline``.

    ``first`` is the word behind its comparison. Without an amount the change has to be beyond ``tolerance``. Raises
    SentenceMistake.
    """
    if target.better is None and target.unit != ANY_UNIT:
        raise SentenceMistake(comparison_start, f"neither less nor more {target.name} is better: it cannot be claimed")
    better_side = next((side for side, better in _CLAIMED_SIDES.items() if better == target.better), None)
    amount, side, reference_word = tolerance or Tolerance(), better_side, first
    limit_text = " ".join(text[comparison_start:].split())
    if (side_word := tokens.peek([*_CLAIMED_SIDES, "better"])) is not None:
        amount = _parse_tolerance_part(first, target)
        if not amount.relative and not any(amount.absolute.values()):
            raise first.make_mistake(f"a change of 0 is none: write {BETTER_WORDS} baseline")
        tokens.expect(side_word.text)
        if side_word.text == "better":
            tokens.expect("than")
        elif better_side not in (None, side_word.text):
            problem = f"{target.better} {target.name} is better: write at least {first.text} {better_side} baseline"
            raise side_word.make_mistake(problem)
        else:
            side = side_word.text
        reference_word = tokens.take(f"'baseline' is missing after '{side_word.text}'")
    if side is None:
        problem = f"nothing says yet which way {target.name} gets better: write at least 3% below baseline, or above"
        raise SentenceMistake(comparison_start, problem)
    history = _parse_history_reference(text, reference_word)
    if history is None and reference_word.text != "baseline":
        raise reference_word.make_mistake("a claim is about a baseline: write at least 3% below baseline")
    source, runs = ("baseline", None) if history is None else history
    comparators = {"below": (Comparator.LE, Comparator.LT), "above": (Comparator.GE, Comparator.GT)}[side]
    comparator = comparators[side_word is None]  # what is better than m is not m itself
    if side_word is not None and _is_out_of_reach(comparator, amount, target):
        problem = f"can never hold: {_describe_range_end(target, _find_best_value(comparator, target) or 0)}"
        raise first.make_mistake(f"'{limit_text}' {problem}")
    _LimitTokens(text, reference_word.offset + len(source)).check_end()
    return Requirement(comparator, BaselineLimit(amount, runs, is_claim=True), limit_text)


def _find_best_value(comparator: Comparator, target: LimitTarget) -> int | None:
    return target.least if comparator in CEILING_COMPARATORS else target.greatest


def _is_out_of_reach(comparator: Comparator, amount: Tolerance, target: LimitTarget) -> bool:
    """Whether no value can be so much better than any baseline."""
    best_value, worst_value = _find_best_value(comparator, target), _find_best_value(_MIRRORED[comparator], target)
    if best_value is None:
        return False
    if comparator in CEILING_COMPARATORS and best_value == 0 and amount.relative >= 1:
        return True
    return worst_value is not None and amount.absolute.get(target.unit, Fraction(0)) > distance(best_value, worst_value)


def describe_refused_claim(text: str, subject: str) -> str:
    """Return why the claim ``text``, of what ``subject`` says, cannot stand in a gate file, and where it belongs."""
    sentence = sanitize_line(f"{subject} {text}".strip(), 200)
    return f"'{text}' would fail an unchanged run, as every run after the next refresh: {_suggest_claim(sentence)}"


def _suggest_claim(sentence: str) -> str:
    return f"claim it in pytest-nsys compare BASE HEAD --claim '{sentence}', or in a test with nsys_gate(…)"


def _parse_constants_by_model(text: str, start: int, target: LimitTarget) -> ConstantByModel:
    """Return the constants of ``412ms on H100, 530ms on A100``, by GPU model. Raises SentenceMistake."""
    constants: dict[str, Constant] = {}
    while text[start:].strip():
        match = _MODEL_CONSTANT.match(text, start)
        if match is None:
            offset = len(text) - len(text[start:].lstrip())
            raise SentenceMistake(offset, "each constant is for a GPU model, as in 412ms on H100, 530ms on A100")
        tokens, model = _LimitTokens(text[: match.end("constant")], match.start("constant")), match["model"]
        if "on" in model.split():
            offset = match.start("model")
            raise SentenceMistake(offset, "a comma goes between the models, as in 412ms on H100, 530ms on A100")
        constant = _parse_constant(tokens.take("the limit is missing"), tokens, target)
        tokens.check_end()
        if not split_model_name(model) or any(
            split_model_name(model) == split_model_name(known_model) for known_model in constants
        ):
            problem = "is given twice" if split_model_name(model) else "is no GPU model"
            raise SentenceMistake(match.start("model"), f"'{sanitize_line(model, 40)}' {problem}")
        if constant.unit != next(iter(constants.values()), constant).unit:
            raise SentenceMistake(match.start("constant"), "the constants are in one unit")
        constants[model], start = constant, match.end()
    return ConstantByModel(constants)


def _parse_history_reference(text: str, first: SentenceWord) -> tuple[str, HistoryReference] | None:
    """Return the words from ``first`` on that name runs of the history, and these runs; None where it begins none."""
    match = _HISTORY_WORDS.match(text, first.offset)
    if match is None:
        return None
    counts = [int(number) if number.isdigit() else 0 for number in (match["runs"] or "1", match["lag"] or "1")]
    if not all(0 < count <= MAX_HISTORY_RUNS for count in counts):
        raise first.make_mistake(f"write a whole number from 1 to {MAX_HISTORY_RUNS}, as in last 10 runs of main")
    runs, lag = counts
    return match[0], HistoryReference(runs, match["branch"], lag if match["before"] else 0)


def resolve_limited_metric(metric: Metric, text: str, start: int = 0) -> Metric:
    """Return the metric that the limit of ``text`` is for: ``metric`` itself, or its share of the step (``5% of
    step``).

    ``start`` is where the limit begins. Raises SentenceMistake where the metric is no time that could be such a share.
    """
    if (match := _OF_STEP.search(text, start)) is None:
        return metric
    if (share_metric := make_step_share(metric)) is not None:
        return share_metric
    if metric.unit == RATIO:
        problem = f"is not a time: leave out '{match[0][1:].strip()}'"
    elif metric.unit != TIME:
        problem = "is not a time: write wall exposed all <= 5% of step, or another time of a rank"
    elif "rank" in metric.dimensions:
        problem = "is as long as a step, or more: write a time, as in <= 450ms"
    else:
        problem = "has no rank, so no step to be a share of: write a time, as in <= 450ms"
    raise SentenceMistake(match.start(), f"{metric.name} {problem}")


def strip_step_suffix(text: str) -> str:
    """Return ``10% of step`` as the plain share, ``10%``."""
    return _OF_STEP.sub(RATIO, text)


def _take_step_words(tokens: _LimitTokens, share: SentenceWord, target: LimitTarget) -> None:
    """Take the words ``of step`` behind a number that is a share of the step."""
    if target.unit != OF_STEP:
        return
    if tokens.peek(["of"]) is None:
        raise share.make_mistake(f"the limit is a share of the step: write {share.text} of step")
    tokens.expect("of")
    if tokens.peek(["the"]):
        tokens.expect("the")
    tokens.expect("step")


def _suggest_other_side(text: str, comparison_start: int, comparison: str, source: str, tokens: _LimitTokens) -> str:
    """Return the sentence with its baseline, ``source``, on the other side.

    ``comparison_start`` is where the words of the comparison stand.
    """
    other_comparison = _OTHER_SIDES[comparison]
    _, remainder = text[comparison_start:].split(source, 1)
    if (sign := tokens.peek(_SIGNS)) is not None:
        fits = _SIGNS[sign.text] == ("-" if other_comparison in ("above", "at least", ">=") else "+")
        remainder = remainder.replace(sign.text, sign.text if fits else _OTHER_SIDES[sign.text], 1)
    return " ".join(f"{text[:comparison_start]} {other_comparison} {source} {remainder}".split())


def _check_limit_reach(requirement: Requirement, target: LimitTarget, subject: str, offset: int) -> None:
    """Raise SentenceMistake for a limit that says nothing, and suggest one that does behind the same ``subject``."""
    comparator, limit = requirement.comparator, requirement.limit
    finding: tuple[str, str] | None = None
    if not isinstance(limit, BaselineLimit):
        assert comparator is not None  # only a baseline has two sides
        findings = (find_pointless_limit(comparator, constant.value, target) for constant in requirement.constants)
        finding = next(filter(None, findings), None)
    elif limit.tolerance is not None and (reason := explain_boundless_tolerance(comparator, limit.tolerance, target)):
        sides = {Comparator.LE: f"<= {limit.source} + 5%", Comparator.GE: f">= {limit.source} - 5%"}
        finding = reason, sides.get(comparator or Comparator.EQ, f"{WITHIN_WORD} 5% of {limit.source}")
    if finding is not None:
        problem, suggestion = finding[0], " ".join(f"{subject} {finding[1]}".split())
        is_example = not isinstance(limit, BaselineLimit) and problem.startswith("cannot fail")
        hint = f"did you mean a limit such as {suggestion}?" if is_example else f"write {suggestion}"
        raise SentenceMistake(offset, f"'{requirement.text}' {problem}; {hint}")


def has_tolerance_for(tolerance: Tolerance, target: LimitTarget) -> bool:
    """Whether a tolerance allows values of ``target`` anything."""
    has_amount = target.unit in tolerance.absolute or (target.unit == ANY_UNIT and bool(tolerance.absolute))
    return tolerance.noise_only or bool(tolerance.relative) or has_amount


def list_measurement_units(tolerance: Tolerance | None) -> list[str]:
    """List the units of a tolerance in which no metric of a trace is measured."""
    return [unit for unit in (tolerance.absolute if tolerance is not None else ()) if unit not in _UNITS_OF_TRACES]


def describe_unusable_unit(unit: str) -> str:
    """Return the mistake of a tolerance in a unit that no assertion of the file can use."""
    return f"abs in {unit} is for measurements, and this is none: times take 50us, ratios 1pp, counts 2"


def describe_missing_amount(target: LimitTarget) -> str:
    """Return the mistake of a tolerance that allows a metric nothing."""
    amount = {TIME: "50us", RATIO: "1pp"}.get(target.unit, "2")
    return f"the tolerance has nothing for {target.name}: give it rel, or an abs such as {amount}"


def _parse_constant(token: SentenceWord, tokens: _LimitTokens, target: LimitTarget) -> Constant:
    """Parse the constant that begins with ``token``."""
    if token.kind == "word":
        hint = suggest_word(token.text, ["baseline"])
        problem = f"'{sanitize_line(token.text, 40)}' is not a number or 'baseline'{hint}"
        raise token.make_mistake(problem)
    if token.text in _SIGNS:
        raise token.make_mistake("a limit has no sign: write a number from 0 on, or baseline")
    with locate_mistake(token.offset):
        quantity = parse_quantity(token.text, allow_any_unit=target.unit not in _UNITS_OF_TRACES)
        if target.unit == ANY_UNIT:
            unit, value = next(iter(quantity.amounts.items()))
            return Constant(value, unit)
        value = convert_to_limit(quantity, target.unit, target.name)
    _take_step_words(tokens, token, target)
    return Constant(value)


def _parse_baseline_comparator(comparison: str, offset: int, subject: str) -> Comparator:
    """Return the comparator that a comparison means before ``baseline``. Raises SentenceMistake for one that an
    unchanged run would fail.
    """
    if comparison in ("<", ">"):
        advice = {"<": "use <= or below", ">": "use >= or above"}[comparison]
        claim = _suggest_claim(sanitize_line(f"{subject} {BETTER_WORDS} baseline", 200))
        raise SentenceMistake(offset, f"'{comparison} baseline' would fail an unchanged run: {advice}, or {claim}")
    if comparison == "!=":
        raise SentenceMistake(offset, "'!= baseline' would fail an unchanged run")
    return {"below": Comparator.LE, "above": Comparator.GE}.get(comparison) or COMPARISONS[comparison]


def _parse_signed_tolerance(
    tokens: _LimitTokens, comparator: Comparator, target: LimitTarget, default: Tolerance | None, subject: str
) -> Tolerance | None:
    """Parse what stands behind ``baseline``: a sign that fits the comparator and an amount; None for nothing."""
    sign = tokens.take_sign()
    if sign is None:
        return None
    if comparator is Comparator.EQ:
        raise sign.make_mistake("== takes the baseline exactly: write <= baseline + … or >= baseline - …")
    fitting_sign = {Comparator.LE: "+", Comparator.GE: "-"}[comparator]
    if _SIGNS[sign.text] != fitting_sign:
        side, subject = "below" if comparator is Comparator.LE else "above", sanitize_line(subject, 200)
        claim = _suggest_claim(f"{subject} at least 3% {side} baseline")
        raise SentenceMistake(
            sign.offset,
            f"'{comparator} baseline {sign.text} …' would fail an unchanged run: "
            f"write {comparator} baseline {fitting_sign} …, or {claim}",
        )
    token = tokens.take("the tolerance is missing: write 5%, max(5%, 50us), 'tolerance' or 'noise'")
    return _parse_tolerance(token, tokens, target, default)


def _parse_tolerance(
    token: SentenceWord, tokens: _LimitTokens, target: LimitTarget, default: Tolerance | None
) -> Tolerance:
    """Parse the tolerance that begins with ``token``."""
    if token.text == NOISE_WORD:
        return Tolerance(noise_only=True)
    if token.text == "tolerance":
        if default is None:
            raise token.make_mistake(NO_TOLERANCE_MISTAKE)
        if not has_tolerance_for(default, target):
            raise token.make_mistake(describe_missing_amount(target))
        return default
    if token.text != "max":
        return _parse_tolerance_part(token, target)
    tokens.expect("(")
    first = tokens.take("max(…) takes two amounts, as in max(5%, 50us)")
    tokens.expect(",")
    second = tokens.take("max(…) takes two amounts, as in max(5%, 50us)")
    tokens.expect(")")
    parts = _parse_tolerance_part(first, target), _parse_tolerance_part(second, target)
    if bool(parts[0].absolute) == bool(parts[1].absolute):
        raise second.make_mistake("max(…) takes one share and one amount, as in max(5%, 50us)")
    relative, absolute = sorted(parts, key=lambda part: bool(part.absolute))
    return Tolerance(relative.relative, absolute.absolute)


def _parse_tolerance_part(token: SentenceWord, target: LimitTarget) -> Tolerance:
    """Parse one amount of a tolerance: a share of the baseline, or an amount in the unit of the metric."""
    if token.text == NOISE_WORD:
        problem = "the measured noise counts beside every tolerance: write the amounts without it, or 'noise' alone"
        raise token.make_mistake(problem)
    if token.kind != "quantity":
        hint = suggest_word(token.text, ["tolerance", NOISE_WORD])
        problem = f"'{sanitize_line(token.text, 40)}' is not a tolerance such as 5%{hint}"
        raise token.make_mistake(problem)
    with locate_mistake(token.offset):
        quantity: Quantity = parse_quantity(token.text, allow_any_unit=target.unit not in _UNITS_OF_TRACES)
        if quantity.unit == RATIO:
            return Tolerance(convert_to_relative(quantity))
        if target.unit == ANY_UNIT:
            return Tolerance(absolute=list_absolute_amounts(quantity))
        return Tolerance(absolute={target.unit: convert_to_absolute(quantity, target.unit, target.name)})
