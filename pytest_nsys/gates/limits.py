"""What limit do the words behind a subject set, such as ``>= 60%`` or ``below baseline plus tolerance``?

A limit that no value can miss, or that none can meet, says nothing: it is a mistake. Where the metric has no least or
greatest value no limit is out of reach.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.metrics.registry import Metric, held_to_steps
from pytest_nsys.core.errors import did_you_mean
from pytest_nsys.core.units import (
    ANY,
    BARE,
    COUNT,
    HASH,
    MICRO,
    OF_STEP,
    RATIO,
    TIME,
    UNIT,
    WRITTEN_UNITS,
    Quantity,
    absolute_amount,
    absolute_amounts,
    limit_value,
    parse_quantity,
    relative_amount,
    written_value,
)
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import (
    ByModel,
    Comparator,
    Constant,
    FromBaseline,
    FromHistory,
    Judged,
    Requirement,
    Tolerance,
    model_words,
)

FLOORS = (Comparator.GT, Comparator.GE)
CEILINGS = (Comparator.LT, Comparator.LE)
_STRICT = {Comparator.GE: Comparator.GT, Comparator.LE: Comparator.LT}
_LOOSE = {strict: loose for loose, strict in _STRICT.items()}
_EXAMPLES = {
    (TIME, "lower"): "<= 1ms",
    (RATIO, "higher"): ">= 60%",
    (COUNT, "lower"): "<= 10",
    (BARE, "lower"): "<= 1.1",
    (BARE, "higher"): ">= 0.6",
}
"""Limits to suggest where the end of the range, strict or turned round, is the weakest or the hardest there is."""


def out_of_reach(comparator: Comparator, limit: Fraction, judged: Judged) -> tuple[str, str] | None:
    """Return what is wrong with a constant that no value can miss, or none can meet, and the limit to write in its
    place.

    None where the constant tells values apart.
    """
    low = limit - 1 if judged.least is None else judged.least
    high = limit + 1 if judged.greatest is None else judged.greatest
    results = {comparator.holds(value, limit) for value in (low, high, min(max(low, limit), high))}
    if len(results) > 1:
        return None
    example = None
    if results == {True}:
        problem, better_comparator = "cannot fail", _STRICT.get(comparator, comparator)
        if comparator is not Comparator.NE:
            example = _EXAMPLES.get((judged.unit, judged.better or ""))
    else:
        problem, better_comparator = "can never hold", _LOOSE.get(comparator, comparator)
    range_end = judged.least if judged.least is not None and limit <= judged.least else judged.greatest
    assert range_end is not None
    return (
        f"{problem}: {_never(judged, range_end)}",
        example or f"{better_comparator} {written_value(Fraction(range_end), judged.unit)}",
    )


def tolerates_all(comparator: Comparator | None, tolerance: Tolerance, judged: Judged) -> str | None:
    """Return the reason why no value can be beyond the tolerance of any baseline; None where one can.

    ``comparator`` None: on both sides.
    """
    if comparator is None:
        reasons = [tolerates_all(side, tolerance, judged) for side in (Comparator.GE, Comparator.LE)]
        return reasons[0] if all(reasons) else None
    is_floor = comparator in FLOORS
    worst_value, best_value = (judged.least, judged.greatest) if is_floor else (judged.greatest, judged.least)
    if worst_value is None or comparator is Comparator.EQ:
        return None
    if best_value is None:  # m − T for every m from the least value on
        tolerates_worst = is_floor and worst_value >= 0 and tolerance.relative >= 1
    else:
        amount = tolerance.amount(best_value, judged.unit)
        tolerates_worst = comparator.holds(worst_value, best_value - amount if is_floor else best_value + amount)
    return f"cannot fail: {_never(judged, worst_value)}" if tolerates_worst else None


def warns_alike(early: Comparator, soon: Fraction, late: Comparator, last: Fraction) -> str | None:
    """Return that an early limit always or never warns where the limit holds; None where it tells values apart."""
    if late is not Comparator.EQ and not {early, late} <= {*FLOORS, *CEILINGS}:
        return None
    # Between the two limits, at them and beyond them, one value stands for all.
    values = {(soon + last) / 2, *(tested_limit + step for tested_limit in (soon, last) for step in (-1, 0, 1))}
    results = {early.holds(value, soon) for value in values if late.holds(value, last)}
    if len(results) > 1:
        return None
    return "never warns" if True in results else "always warns"


def impossible(value: Fraction, judged: Judged) -> str | None:
    """Return what is wrong with a value that the metric cannot have, as text; None where it can have it."""
    if judged.greatest is not None and value > judged.greatest:
        return _never(judged, judged.greatest)
    return _never(judged, judged.least) if judged.least is not None and value < judged.least else None


def _never(judged: Judged, end: int) -> str:
    side = "below" if end == judged.least else "above"
    return f"{judged.name} is never {side} {written_value(Fraction(end), judged.unit)}"


COMPARISONS: dict[str, Comparator] = {
    **{str(c): c for c in Comparator},
    "below": Comparator.LT,
    "above": Comparator.GT,
    "at least": Comparator.GE,
    "at most": Comparator.LE,
}
"""How a sentence writes each comparator; before a baseline, ``below`` and ``above`` include it."""

EVERY_COMPARISON = "write one of <, <=, ==, !=, >=, >, below, above, at least, at most"

_UNITS_OF_TRACES = frozenset((RATIO, OF_STEP, COUNT, BARE, HASH, *WRITTEN_UNITS))
"""Units of metrics of a trace. What was measured outside may have a unit of its own, or one that is not known yet."""

NOISE = "noise"
"""How a tolerance is written that is no amount: the measured noise alone decides."""

NO_TOLERANCE = "there is no tolerance to add: write one into the gate file, as in tolerance: {rel: 5%, abs: 50us}"

WITHIN = "within"
"""Stands before the tolerance of a baseline that limits both sides."""

MAX_RUNS = 9999
"""Most runs of the history that a median is taken of, that stay out of it, or that are bad before one fails."""

_COMPARISON = re.compile(rf"\s*(?P<words>!=|[<>=≤≥]+|below\b|above\b|{WITHIN}\b|at\s+least\b|at\s+most\b)")
_ON_MODEL = re.compile(r"\s*(?P<constant>\S.*?)\s+on\s+(?P<model>[^,]*[^\s,])\s*(?:,|$)")
_HISTORY = re.compile(
    r"(?:median\s+of\s+)?(?:the\s+)?last\s+(?:(?P<runs>\S+)\s+)?runs?\b(?:\s+of\s+(?P<branch>\S+))?"
    r"(?P<before>\s+before\s+the\s+newest(?:\s+(?P<lag>[0-9]+))?)?"
)
_MEANT = {"=": "==", "=>": ">=", "=<": "<=", "≥": ">=", "≤": "<=", "===": "==", "<>": "!="}
_TOKEN = re.compile(
    rf"(?P<quantity>[0-9.](?:[0-9_.]|,(?=[0-9]{{3}}\b))*\s*(?:%|(?!of\b|on\b){UNIT})?)|(?P<word>[^\W\d]\w*)|(?P<symbol>\S)"
)
_OF_STEP = re.compile(r"%\s+of\s+(?:the\s+)?step(?=\s*$|\s+on\s)")
_SIGNS = {"+": "+", "plus": "+", "-": "-", "minus": "-"}
_SIDES = (("below", "above"), ("at most", "at least"), ("<=", ">="), ("plus", "minus"), ("+", "-"))
_MIRRORED = {**dict(_SIDES), **{high: low for low, high in _SIDES}, "<": ">=", ">": "<="}
"""How the other side of a baseline is written."""


class SentenceMistake(ValueError):
    """Says what is wrong with a sentence, and ``offset``, where in it."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset


@contextmanager
def mistaken_at(offset: int) -> Iterator[None]:
    """Raise a ValueError of the block as a SentenceMistake at this place of the sentence."""
    try:
        yield
    except ValueError as mistake:
        raise SentenceMistake(offset, str(mistake)) from None


class Word(NamedTuple):
    """Holds a word and where it stands in its text. ``kind``, in a limit: quantity, word or symbol."""

    text: str
    offset: int
    kind: str = ""

    def mistake(self, what: str) -> SentenceMistake:
        """Return the mistake at this word, to be raised."""
        return SentenceMistake(self.offset, what)


class _Tokens:
    """Hands out the words of a limit one after the other."""

    def __init__(self, text: str, start: int) -> None:
        matches = _TOKEN.finditer(text, start)
        self._rest = [Word(m[0].strip(), m.start(), m.lastgroup or "") for m in matches]
        self._end = len(text.rstrip())

    def take(self, missing: str) -> Word:
        """Return the next word and take it. Raises SentenceMistake, with ``problem``, where there is none."""
        if not self._rest:
            raise SentenceMistake(self._end, missing)
        return self._rest.pop(0)

    def expect(self, text: str) -> None:
        """Take the next word. Raises SentenceMistake where it is another one than ``text``."""
        token = self.take(f"'{text}' is missing")
        if token.text != text:
            raise token.mistake(f"expected '{text}', not '{token.text}'")

    def peek(self, words: Collection[str]) -> Word | None:
        """Return the next token where it is one of ``words``, and leave it there."""
        return self._rest[0] if self._rest and self._rest[0].text in words else None

    def take_behind(self, text: str) -> Word:
        """Take ``text``, which has to be the next word, and return the word behind it."""
        self.expect(text)
        return self.take(f"'baseline' is missing after '{text}'")

    def take_sign(self) -> Word | None:
        return self._rest.pop(0) if self.peek(_SIGNS) else None

    def end(self) -> None:
        """Raise SentenceMistake where a word is left."""
        if self._rest:
            token = self._rest[0]
            raise token.mistake(f"'{printable(token.text, 40)}' comes after the end of the limit")


def parse_requirement(
    text: str,
    metric: Judged,
    tolerance: Tolerance | None = None,
    *,
    start: int = 0,
    constant: bool = False,
) -> Requirement:
    """Return the comparison and limit that ``text`` holds from ``start`` on, for values of ``target``.

    ``tolerance`` is what ``plus tolerance`` stands for; ``constant`` refuses a baseline. Raises SentenceMistake.
    """
    text = MICRO.sub("us", text)
    match = _COMPARISON.match(text, start)
    if match is None:
        comparison_start = len(text) - len(text[start:].lstrip()) if text[start:].strip() else len(text.rstrip())
        raise SentenceMistake(comparison_start, f"the comparison is missing: {EVERY_COMPARISON}")
    comparison_start, comparison = match.start("words"), " ".join(match["words"].split())
    comparator = COMPARISONS.get(comparison)
    if comparator is None and comparison != WITHIN:
        hint = f" (did you mean '{_MEANT[comparison]}'?)" if comparison in _MEANT else f": {EVERY_COMPARISON}"
        raise SentenceMistake(comparison_start, f"'{comparison}' is not a comparison{hint}")
    tokens = _Tokens(text, match.end())
    first = tokens.take(f"the limit is missing after '{comparison}'")
    if metric.unit == HASH and (comparator is not Comparator.EQ or first.text != "baseline"):
        problem = f"{metric.name} is the same as in the baseline or not: write {metric.name} == baseline"
        raise SentenceMistake(comparison_start, problem)
    limit: Constant | ByModel | FromBaseline
    amount = None
    if comparison == WITHIN:
        amount, first = _amount(first, tokens, metric, tolerance), tokens.take_behind("of")
    history = _history(text, first)
    if history is None and first.text != "baseline":
        if comparison == WITHIN:
            raise first.mistake(f"'{WITHIN}' is for baselines: write {WITHIN} 5% of baseline")
        limit = _constant(first, tokens, metric)
        if tokens.peek(["on"]):
            limit, tokens = _by_model(text, match.end(), metric), _Tokens("", 0)
    else:
        if constant:
            raise first.mistake("only a constant can be written here, not a baseline")
        if metric.unit == OF_STEP:
            time = metric.name.removesuffix(" of step")
            problem = f"a share of the step is a constant: write {time} <= 5% of step, or {time} <= baseline + 5%"
            raise first.mistake(problem)
        source, runs = ("baseline", None) if history is None else history
        tokens = _Tokens(text, first.offset + len(source))
        if comparator in {"lower": FLOORS, "higher": CEILINGS}.get(metric.better or "", ()):
            movement = "rises" if metric.better == "lower" else "falls"
            suggestion = _other_side(text, comparison_start, comparison, source, tokens)
            problem = (
                f"{metric.better} {metric.name} is better, so this passes however far it {movement}: write {suggestion}"
            )
            raise SentenceMistake(comparison_start, problem)
        if comparator is not None:
            comparator = _against_baseline(comparison, comparison_start)
            amount = _tolerance(tokens, comparator, metric, tolerance)
        limit = FromBaseline(amount, runs)
    tokens.end()
    limit_text = " ".join(text[comparison_start:].split())
    _check_reach(Requirement(comparator, limit, limit_text), metric, text[:comparison_start], comparison_start)
    return Requirement(comparator, limit, limit_text)


def _by_model(text: str, start: int, metric: Judged) -> ByModel:
    """Return the constants of ``412ms on H100, 530ms on A100``, by GPU model. Raises SentenceMistake."""
    constants: dict[str, Constant] = {}
    while text[start:].strip():
        match = _ON_MODEL.match(text, start)
        if match is None:
            offset = len(text) - len(text[start:].lstrip())
            raise SentenceMistake(offset, "each constant is for a GPU model, as in 412ms on H100, 530ms on A100")
        tokens, model = _Tokens(text[: match.end("constant")], match.start("constant")), match["model"]
        if "on" in model.split():
            offset = match.start("model")
            raise SentenceMistake(offset, "a comma goes between the models, as in 412ms on H100, 530ms on A100")
        constant = _constant(tokens.take("the limit is missing"), tokens, metric)
        tokens.end()
        if not model_words(model) or any(model_words(model) == model_words(known_model) for known_model in constants):
            problem = "is given twice" if model_words(model) else "is no GPU model"
            raise SentenceMistake(match.start("model"), f"'{printable(model, 40)}' {problem}")
        if constant.unit != next(iter(constants.values()), constant).unit:
            raise SentenceMistake(match.start("constant"), "the constants are in one unit")
        constants[model], start = constant, match.end()
    return ByModel(constants)


def _history(text: str, first: Word) -> tuple[str, FromHistory] | None:
    """Return the words from ``first`` on that name runs of the history, and these runs; None where it begins none."""
    match = _HISTORY.match(text, first.offset)
    if match is None:
        return None
    counts = [int(number) if number.isdigit() else 0 for number in (match["runs"] or "1", match["lag"] or "1")]
    if not all(0 < count <= MAX_RUNS for count in counts):
        raise first.mistake(f"write a whole number from 1 to {MAX_RUNS}, as in last 10 runs of main")
    runs, lag = counts
    return match[0], FromHistory(runs, match["branch"], lag if match["before"] else 0)


def held_to(metric: Metric, text: str, start: int = 0) -> Metric:
    """Return the metric that the limit of ``text`` is for: ``metric`` itself, or its share of the step (``5% of
    step``).

    ``start`` is where the limit begins. Raises SentenceMistake where the metric is no time that could be such a share.
    """
    if (match := _OF_STEP.search(text, start)) is None:
        return metric
    if (share_metric := held_to_steps(metric)) is not None:
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


def without_step(text: str) -> str:
    """Return ``10% of step`` as the plain share, ``10%``."""
    return _OF_STEP.sub(RATIO, text)


def _take_step(tokens: _Tokens, share: Word, metric: Judged) -> None:
    """Take the words ``of step`` behind a number that is a share of the step."""
    if metric.unit != OF_STEP:
        return
    if tokens.peek(["of"]) is None:
        raise share.mistake(f"the limit is a share of the step: write {share.text} of step")
    tokens.expect("of")
    if tokens.peek(["the"]):
        tokens.expect("the")
    tokens.expect("step")


def _other_side(text: str, at: int, words: str, source: str, tokens: _Tokens) -> str:
    """Return the sentence with its baseline, ``source``, on the other side.

    ``comparison_start`` is where the words of the comparison stand.
    """
    other_comparison = _MIRRORED[words]
    _, remainder = text[at:].split(source, 1)
    if (sign := tokens.peek(_SIGNS)) is not None:
        fits = _SIGNS[sign.text] == ("-" if other_comparison in ("above", "at least", ">=") else "+")
        remainder = remainder.replace(sign.text, sign.text if fits else _MIRRORED[sign.text], 1)
    return " ".join(f"{text[:at]} {other_comparison} {source} {remainder}".split())


def _check_reach(require: Requirement, metric: Judged, subject: str, at: int) -> None:
    """Raise SentenceMistake for a limit that says nothing, and suggest one that does behind the same ``subject``."""
    comparator, limit = require.comparator, require.limit
    finding: tuple[str, str] | None = None
    if not isinstance(limit, FromBaseline):
        assert comparator is not None  # only a baseline has two sides
        findings = (out_of_reach(comparator, constant.value, metric) for constant in require.each_constant)
        finding = next(filter(None, findings), None)
    elif limit.tolerance is not None and (reason := tolerates_all(comparator, limit.tolerance, metric)):
        sides = {Comparator.LE: f"<= {limit.source} + 5%", Comparator.GE: f">= {limit.source} - 5%"}
        finding = reason, sides.get(comparator or Comparator.EQ, f"{WITHIN} 5% of {limit.source}")
    if finding is not None:
        problem, suggestion = finding[0], " ".join(f"{subject} {finding[1]}".split())
        is_example = not isinstance(limit, FromBaseline) and problem.startswith("cannot fail")
        hint = f"did you mean a limit such as {suggestion}?" if is_example else f"write {suggestion}"
        raise SentenceMistake(at, f"'{require.text}' {problem}; {hint}")


def gives_something(tolerance: Tolerance, metric: Judged) -> bool:
    """Whether a tolerance allows values of ``target`` anything."""
    has_amount = metric.unit in tolerance.absolute or (metric.unit == ANY and bool(tolerance.absolute))
    return tolerance.noise or bool(tolerance.relative) or has_amount


def own_units(tolerance: Tolerance | None) -> list[str]:
    """List the units of a tolerance in which no metric of a trace is measured."""
    return [unit for unit in (tolerance.absolute if tolerance is not None else ()) if unit not in _UNITS_OF_TRACES]


def of_no_metric(unit: str) -> str:
    """Return the mistake of a tolerance in a unit that no assertion of the file can use."""
    return f"abs in {unit} is for measurements, and this is none: times take 50us, ratios 1pp, counts 2"


def nothing_for(metric: Judged) -> str:
    """Return the mistake of a tolerance that allows a metric nothing."""
    amount = {TIME: "50us", RATIO: "1pp"}.get(metric.unit, "2")
    return f"the tolerance has nothing for {metric.name}: give it rel, or an abs such as {amount}"


def _constant(token: Word, tokens: _Tokens, metric: Judged) -> Constant:
    """Parse the constant that begins with ``token``."""
    if token.kind == "word":
        hint = did_you_mean(token.text, ["baseline"])
        problem = f"'{printable(token.text, 40)}' is not a number or 'baseline'{hint}"
        raise token.mistake(problem)
    if token.text in _SIGNS:
        raise token.mistake("a limit has no sign: write a number from 0 on, or baseline")
    with mistaken_at(token.offset):
        quantity = parse_quantity(token.text, any_unit=metric.unit not in _UNITS_OF_TRACES)
        if metric.unit == ANY:
            unit, value = next(iter(quantity.amounts.items()))
            return Constant(value, unit)
        value = limit_value(quantity, metric.unit, metric.name)
    _take_step(tokens, token, metric)
    return Constant(value)


def _against_baseline(words: str, offset: int) -> Comparator:
    """Return the comparator that a comparison means before ``baseline``. Raises SentenceMistake for one that an
    unchanged run would fail.
    """
    if words in ("<", ">"):
        advice = {"<": "use <= or below", ">": "use >= or above"}[words]
        raise SentenceMistake(offset, f"'{words} baseline' would fail an unchanged run: {advice}")
    if words == "!=":
        raise SentenceMistake(offset, "'!= baseline' would fail an unchanged run")
    return {"below": Comparator.LE, "above": Comparator.GE}.get(words) or COMPARISONS[words]


def _tolerance(tokens: _Tokens, comparator: Comparator, metric: Judged, default: Tolerance | None) -> Tolerance | None:
    """Parse what stands behind ``baseline``: a sign that fits the comparator and an amount; None for nothing."""
    sign = tokens.take_sign()
    if sign is None:
        return None
    if comparator is Comparator.EQ:
        raise sign.mistake("== takes the baseline exactly: write <= baseline + … or >= baseline - …")
    fitting_sign = {Comparator.LE: "+", Comparator.GE: "-"}[comparator]
    if _SIGNS[sign.text] != fitting_sign:
        raise SentenceMistake(
            sign.offset,
            f"'{comparator} baseline {sign.text} …' would fail an unchanged run: "
            f"write {comparator} baseline {fitting_sign} …",
        )
    token = tokens.take("the tolerance is missing: write 5%, max(5%, 50us), 'tolerance' or 'noise'")
    return _amount(token, tokens, metric, default)


def _amount(token: Word, tokens: _Tokens, metric: Judged, default: Tolerance | None) -> Tolerance:
    """Parse the tolerance that begins with ``token``."""
    if token.text == NOISE:
        return Tolerance(noise=True)
    if token.text == "tolerance":
        if default is None:
            raise token.mistake(NO_TOLERANCE)
        if not gives_something(default, metric):
            raise token.mistake(nothing_for(metric))
        return default
    if token.text != "max":
        return _part(token, metric)
    tokens.expect("(")
    first = tokens.take("max(…) takes two amounts, as in max(5%, 50us)")
    tokens.expect(",")
    second = tokens.take("max(…) takes two amounts, as in max(5%, 50us)")
    tokens.expect(")")
    parts = _part(first, metric), _part(second, metric)
    if bool(parts[0].absolute) == bool(parts[1].absolute):
        raise second.mistake("max(…) takes one share and one amount, as in max(5%, 50us)")
    relative, absolute = sorted(parts, key=lambda part: bool(part.absolute))
    return Tolerance(relative.relative, absolute.absolute)


def _part(token: Word, metric: Judged) -> Tolerance:
    """Parse one amount of a tolerance: a share of the baseline, or an amount in the unit of the metric."""
    if token.text == NOISE:
        problem = "the measured noise counts beside every tolerance: write the amounts without it, or 'noise' alone"
        raise token.mistake(problem)
    if token.kind != "quantity":
        hint = did_you_mean(token.text, ["tolerance", NOISE])
        problem = f"'{printable(token.text, 40)}' is not a tolerance such as 5%{hint}"
        raise token.mistake(problem)
    with mistaken_at(token.offset):
        quantity: Quantity = parse_quantity(token.text, any_unit=metric.unit not in _UNITS_OF_TRACES)
        if quantity.unit == RATIO:
            return Tolerance(relative_amount(quantity))
        if metric.unit == ANY:
            return Tolerance(absolute=absolute_amounts(quantity))
        return Tolerance(absolute={metric.unit: absolute_amount(quantity, metric.unit, metric.name)})
