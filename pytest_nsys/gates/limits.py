"""What limit do the words after a subject set: ``>= 60%``, ``below baseline plus tolerance``? And does it say anything?

A limit that no value can miss, or that none can meet, says nothing. Without a least and a greatest value no limit is
out of reach.
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
"""Limits to show where the end of the range, strict or turned round, is the weakest or the hardest there is."""


def out_of_reach(comparator: Comparator, limit: Fraction, judged: Judged) -> tuple[str, str] | None:
    """What is wrong with a constant that no value can miss, or none can meet, and the limit to write in its place."""
    low = limit - 1 if judged.least is None else judged.least
    high = limit + 1 if judged.greatest is None else judged.greatest
    held = {comparator.holds(value, limit) for value in (low, high, min(max(low, limit), high))}
    if len(held) > 1:
        return None
    example = None
    if held == {True}:
        what, meant = "cannot fail", _STRICT.get(comparator, comparator)
        if comparator is not Comparator.NE:
            example = _EXAMPLES.get((judged.unit, judged.better or ""))
    else:
        what, meant = "can never hold", _LOOSE.get(comparator, comparator)
    end = judged.least if judged.least is not None and limit <= judged.least else judged.greatest
    assert end is not None
    return f"{what}: {_never(judged, end)}", example or f"{meant} {written_value(Fraction(end), judged.unit)}"


def tolerates_all(comparator: Comparator | None, tolerance: Tolerance, judged: Judged) -> str | None:
    """Why no value can be beyond the tolerance of any baseline, None where one can.

    ``comparator`` None: on both sides.
    """
    if comparator is None:
        both = [tolerates_all(side, tolerance, judged) for side in (Comparator.GE, Comparator.LE)]
        return both[0] if all(both) else None
    floor = comparator in FLOORS
    worst, best = (judged.least, judged.greatest) if floor else (judged.greatest, judged.least)
    if worst is None or comparator is Comparator.EQ:
        return None
    if best is None:  # m − T for every m from the least value on
        tolerated = floor and worst >= 0 and tolerance.relative >= 1
    else:
        amount = tolerance.amount(best, judged.unit)
        tolerated = comparator.holds(worst, best - amount if floor else best + amount)
    return f"cannot fail: {_never(judged, worst)}" if tolerated else None


def warns_alike(early: Comparator, soon: Fraction, late: Comparator, last: Fraction) -> str | None:
    """Why the limit ``early soon`` tells no values apart of those that hold ``late last``; None where it does."""
    if late is not Comparator.EQ and not {early, late} <= {*FLOORS, *CEILINGS}:
        return None
    # Between the two limits, at them and beyond them, one value stands for all.
    values = {(soon + last) / 2, *(limit + step for limit in (soon, last) for step in (-1, 0, 1))}
    holding = {early.holds(value, soon) for value in values if late.holds(value, last)}
    if len(holding) > 1:
        return None
    return "never warns" if True in holding else "always warns"


def impossible(value: Fraction, judged: Judged) -> str | None:
    """What is wrong with a value that the metric cannot have, None where it can have it."""
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
"""What was measured outside of a trace may be of a unit of its own, where it is known and where it is not yet."""

NOISE = "noise"
"""The tolerance that is none of its own: the measured noise alone decides."""

NO_TOLERANCE = "there is no tolerance to add: write one into the gate file, as in tolerance: {rel: 5%, abs: 50us}"

WITHIN = "within"
"""What stands before the tolerance of a baseline that is held on both sides."""

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
    """What is wrong with a sentence, and ``offset``, where in it."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset


@contextmanager
def mistaken_at(offset: int) -> Iterator[None]:
    """What is wrong inside is the mistake of a sentence, at this place in it."""
    try:
        yield
    except ValueError as mistake:
        raise SentenceMistake(offset, str(mistake)) from None


class Word(NamedTuple):
    """A word, and where it stands in its text. ``kind``, of a limit: quantity, word or symbol."""

    text: str
    offset: int
    kind: str = ""

    def mistake(self, what: str) -> SentenceMistake:
        """Return what is wrong at this word, to be raised."""
        return SentenceMistake(self.offset, what)


class _Tokens:
    """The words of a limit, taken one after the other."""

    def __init__(self, text: str, start: int) -> None:
        found = _TOKEN.finditer(text, start)
        self._rest = [Word(m[0].strip(), m.start(), m.lastgroup or "") for m in found]
        self._end = len(text.rstrip())

    def take(self, missing: str) -> Word:
        if not self._rest:
            raise SentenceMistake(self._end, missing)
        return self._rest.pop(0)

    def expect(self, text: str) -> None:
        token = self.take(f"'{text}' is missing")
        if token.text != text:
            raise token.mistake(f"expected '{text}', not '{token.text}'")

    def peek(self, words: Collection[str]) -> Word | None:
        """The next token where it is one of ``words``."""
        return self._rest[0] if self._rest and self._rest[0].text in words else None

    def take_behind(self, text: str) -> Word:
        """The word behind ``text``, which has to be the next one."""
        self.expect(text)
        return self.take(f"'baseline' is missing after '{text}'")

    def take_sign(self) -> Word | None:
        return self._rest.pop(0) if self.peek(_SIGNS) else None

    def end(self) -> None:
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
    """The comparison and limit that ``text`` holds from ``start`` on, for values of ``metric``.

    ``tolerance`` is what ``plus tolerance`` stands for; ``constant`` refuses a baseline.
    """
    text = MICRO.sub("us", text)
    match = _COMPARISON.match(text, start)
    if match is None:
        at = len(text) - len(text[start:].lstrip()) if text[start:].strip() else len(text.rstrip())
        raise SentenceMistake(at, f"the comparison is missing: {EVERY_COMPARISON}")
    at, words = match.start("words"), " ".join(match["words"].split())
    comparator = COMPARISONS.get(words)
    if comparator is None and words != WITHIN:
        hint = f" (did you mean '{_MEANT[words]}'?)" if words in _MEANT else f": {EVERY_COMPARISON}"
        raise SentenceMistake(at, f"'{words}' is not a comparison{hint}")
    tokens = _Tokens(text, match.end())
    first = tokens.take(f"the limit is missing after '{words}'")
    if metric.unit == HASH and (comparator is not Comparator.EQ or first.text != "baseline"):
        what = f"{metric.name} is the same as in the baseline or not: write {metric.name} == baseline"
        raise SentenceMistake(at, what)
    limit: Constant | ByModel | FromBaseline
    amount = None
    if words == WITHIN:
        amount, first = _amount(first, tokens, metric, tolerance), tokens.take_behind("of")
    history = _history(text, first)
    if history is None and first.text != "baseline":
        if words == WITHIN:
            raise first.mistake(f"'{WITHIN}' is for baselines: write {WITHIN} 5% of baseline")
        limit = _constant(first, tokens, metric)
        if tokens.peek(["on"]):
            limit, tokens = _by_model(text, match.end(), metric), _Tokens("", 0)
    else:
        if constant:
            raise first.mistake("only a constant can be written here, not a baseline")
        if metric.unit == OF_STEP:
            time = metric.name.removesuffix(" of step")
            what = f"a share of the step is a constant: write {time} <= 5% of step, or {time} <= baseline + 5%"
            raise first.mistake(what)
        source, runs = ("baseline", None) if history is None else history
        tokens = _Tokens(text, first.offset + len(source))
        if comparator in {"lower": FLOORS, "higher": CEILINGS}.get(metric.better or "", ()):
            worse = "rises" if metric.better == "lower" else "falls"
            meant = _other_side(text, at, words, source, tokens)
            what = f"{metric.better} {metric.name} is better, so this passes however far it {worse}: write {meant}"
            raise SentenceMistake(at, what)
        if comparator is not None:
            comparator = _against_baseline(words, at)
            amount = _tolerance(tokens, comparator, metric, tolerance)
        limit = FromBaseline(amount, runs)
    tokens.end()
    written = " ".join(text[at:].split())
    _check_reach(Requirement(comparator, limit, written), metric, text[:at], at)
    return Requirement(comparator, limit, written)


def _by_model(text: str, start: int, metric: Judged) -> ByModel:
    """The constants of ``412ms on H100, 530ms on A100``."""
    found: dict[str, Constant] = {}
    while text[start:].strip():
        part = _ON_MODEL.match(text, start)
        if part is None:
            at = len(text) - len(text[start:].lstrip())
            raise SentenceMistake(at, "each constant is for a GPU model, as in 412ms on H100, 530ms on A100")
        tokens, model = _Tokens(text[: part.end("constant")], part.start("constant")), part["model"]
        if "on" in model.split():
            at = part.start("model")
            raise SentenceMistake(at, "a comma goes between the models, as in 412ms on H100, 530ms on A100")
        constant = _constant(tokens.take("the limit is missing"), tokens, metric)
        tokens.end()
        if not model_words(model) or any(model_words(model) == model_words(other) for other in found):
            wrong = "is given twice" if model_words(model) else "is no GPU model"
            raise SentenceMistake(part.start("model"), f"'{printable(model, 40)}' {wrong}")
        if constant.unit != next(iter(found.values()), constant).unit:
            raise SentenceMistake(part.start("constant"), "the constants are in one unit")
        found[model], start = constant, part.end()
    return ByModel(found)


def _history(text: str, first: Word) -> tuple[str, FromHistory] | None:
    """The words that name runs of the history from ``first`` on, and those; None where it begins none."""
    match = _HISTORY.match(text, first.offset)
    if match is None:
        return None
    counts = [int(found) if found.isdigit() else 0 for found in (match["runs"] or "1", match["lag"] or "1")]
    if not all(0 < count <= MAX_RUNS for count in counts):
        raise first.mistake(f"write a whole number from 1 to {MAX_RUNS}, as in last 10 runs of main")
    runs, lag = counts
    return match[0], FromHistory(runs, match["branch"], lag if match["before"] else 0)


def held_to(metric: Metric, text: str, start: int = 0) -> Metric:
    """What ``text`` sets a limit for from ``start`` on: the values of ``metric``, or their shares of their steps.

    Raises SentenceMistake where it is no time that could be such a share.
    """
    if (match := _OF_STEP.search(text, start)) is None:
        return metric
    if (shares := held_to_steps(metric)) is not None:
        return shares
    if metric.unit == RATIO:
        meant = f"is not a time: leave out '{match[0][1:].strip()}'"
    elif metric.unit != TIME:
        meant = "is not a time: write wall exposed all <= 5% of step, or another time of a rank"
    elif "rank" in metric.dimensions:
        meant = "is as long as a step, or more: write a time, as in <= 450ms"
    else:
        meant = "has no rank, so no step to be a share of: write a time, as in <= 450ms"
    raise SentenceMistake(match.start(), f"{metric.name} {meant}")


def without_step(text: str) -> str:
    """``10% of step`` as the plain share."""
    return _OF_STEP.sub(RATIO, text)


def _take_step(tokens: _Tokens, share: Word, metric: Judged) -> None:
    """The words behind the number of a share of the step."""
    if metric.unit != OF_STEP:
        return
    if tokens.peek(["of"]) is None:
        raise share.mistake(f"the limit is a share of the step: write {share.text} of step")
    tokens.expect("of")
    if tokens.peek(["the"]):
        tokens.expect("the")
    tokens.expect("step")


def _other_side(text: str, at: int, words: str, source: str, tokens: _Tokens) -> str:
    """The sentence with its baseline, ``source``, on the other side; ``at`` is where the comparison ``words`` stand."""
    mirrored = _MIRRORED[words]
    _, rest = text[at:].split(source, 1)
    if (sign := tokens.peek(_SIGNS)) is not None:
        fits = _SIGNS[sign.text] == ("-" if mirrored in ("above", "at least", ">=") else "+")
        rest = rest.replace(sign.text, sign.text if fits else _MIRRORED[sign.text], 1)
    return " ".join(f"{text[:at]} {mirrored} {source} {rest}".split())


def _check_reach(require: Requirement, metric: Judged, subject: str, at: int) -> None:
    """Raises SentenceMistake for a limit that says nothing, with one that does behind the same ``subject``."""
    comparator, limit = require.comparator, require.limit
    found: tuple[str, str] | None = None
    if not isinstance(limit, FromBaseline):
        assert comparator is not None  # only a baseline has two sides
        each = (out_of_reach(comparator, constant.value, metric) for constant in require.each_constant)
        found = next(filter(None, each), None)
    elif limit.tolerance is not None and (why := tolerates_all(comparator, limit.tolerance, metric)):
        sides = {Comparator.LE: f"<= {limit.source} + 5%", Comparator.GE: f">= {limit.source} - 5%"}
        found = why, sides.get(comparator or Comparator.EQ, f"{WITHIN} 5% of {limit.source}")
    if found is not None:
        what, meant = found[0], " ".join(f"{subject} {found[1]}".split())
        example = not isinstance(limit, FromBaseline) and what.startswith("cannot fail")
        hint = f"did you mean a limit such as {meant}?" if example else f"write {meant}"
        raise SentenceMistake(at, f"'{require.text}' {what}; {hint}")


def gives_something(tolerance: Tolerance, metric: Judged) -> bool:
    """Whether a tolerance says anything for values of ``metric``."""
    fits = metric.unit in tolerance.absolute or (metric.unit == ANY and bool(tolerance.absolute))
    return tolerance.noise or bool(tolerance.relative) or fits


def own_units(tolerance: Tolerance | None) -> list[str]:
    """The units in which a tolerance allows what no metric of a trace is measured in."""
    return [unit for unit in (tolerance.absolute if tolerance is not None else ()) if unit not in _UNITS_OF_TRACES]


def of_no_metric(unit: str) -> str:
    """The mistake of a tolerance that nothing can use."""
    return f"abs in {unit} is for measurements, and this is none: times take 50us, ratios 1pp, counts 2"


def nothing_for(metric: Judged) -> str:
    """The mistake of a tolerance that allows a metric nothing."""
    amount = {TIME: "50us", RATIO: "1pp"}.get(metric.unit, "2")
    return f"the tolerance has nothing for {metric.name}: give it rel, or an abs such as {amount}"


def _constant(token: Word, tokens: _Tokens, metric: Judged) -> Constant:
    """The constant that begins with ``token``."""
    if token.kind == "word":
        hint = did_you_mean(token.text, ["baseline"])
        what = f"'{printable(token.text, 40)}' is not a number or 'baseline'{hint}"
        raise token.mistake(what)
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
    """What a comparison means before ``baseline``."""
    if words in ("<", ">"):
        plain = {"<": "use <= or below", ">": "use >= or above"}[words]
        raise SentenceMistake(offset, f"'{words} baseline' would fail an unchanged run: {plain}")
    if words == "!=":
        raise SentenceMistake(offset, "'!= baseline' would fail an unchanged run")
    return {"below": Comparator.LE, "above": Comparator.GE}.get(words) or COMPARISONS[words]


def _tolerance(tokens: _Tokens, comparator: Comparator, metric: Judged, default: Tolerance | None) -> Tolerance | None:
    """What stands behind ``baseline``: a sign that fits the comparator and an amount, or nothing."""
    sign = tokens.take_sign()
    if sign is None:
        return None
    if comparator is Comparator.EQ:
        raise sign.mistake("== takes the baseline exactly: write <= baseline + … or >= baseline - …")
    wanted = {Comparator.LE: "+", Comparator.GE: "-"}[comparator]
    if _SIGNS[sign.text] != wanted:
        raise SentenceMistake(
            sign.offset,
            f"'{comparator} baseline {sign.text} …' would fail an unchanged run: "
            f"write {comparator} baseline {wanted} …",
        )
    token = tokens.take("the tolerance is missing: write 5%, max(5%, 50us), 'tolerance' or 'noise'")
    return _amount(token, tokens, metric, default)


def _amount(token: Word, tokens: _Tokens, metric: Judged, default: Tolerance | None) -> Tolerance:
    """The tolerance that begins with ``token``."""
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
    if token.text == NOISE:
        what = "the measured noise counts beside every tolerance: write the amounts without it, or 'noise' alone"
        raise token.mistake(what)
    if token.kind != "quantity":
        hint = did_you_mean(token.text, ["tolerance", NOISE])
        what = f"'{printable(token.text, 40)}' is not a tolerance such as 5%{hint}"
        raise token.mistake(what)
    with mistaken_at(token.offset):
        quantity: Quantity = parse_quantity(token.text, any_unit=metric.unit not in _UNITS_OF_TRACES)
        if quantity.unit == RATIO:
            return Tolerance(relative_amount(quantity))
        if metric.unit == ANY:
            return Tolerance(absolute=absolute_amounts(quantity))
        return Tolerance(absolute={metric.unit: absolute_amount(quantity, metric.unit, metric.name)})
