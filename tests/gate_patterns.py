"""How are sentences, limits and amounts written, as expressions that an editor checks?

They follow the grammar of ``pytest_nsys.gates``, and let through what they do not know: what the loader accepts each of
them accepts. Every expression means the same in Python and in JavaScript.
"""

import re
from collections.abc import Callable, Iterable

from pytest_nsys.analysis.metrics.names import METRICS_BY_UNIT, UNITLESS_NAMES
from pytest_nsys.analysis.metrics.registry import MEASURED_WORD, METRICS
from pytest_nsys.core.units import (
    ANY_UNIT,
    BARE,
    COUNT,
    HASH,
    OWN_UNIT_PATTERN,
    RATIO,
    TIME,
    WRITTEN_UNITS,
    Quantity,
    UnitMistake,
    convert_to_absolute,
    convert_to_limit,
    list_absolute_amounts,
    parse_quantity,
)
from pytest_nsys.gates.limits import COMPARISONS
from pytest_nsys.gates.model import UnmatchedRows

_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,18})?"
_ANY = r"[\s\S]*"


_BLANK = r"\s+"
_SAME = r"\s*=="
_BLANKS = r"(?:_|\s+)"


def one_of(texts: Iterable[str]) -> str:
    """An expression for each of these texts, a blank of which may be any."""
    return f"(?:{'|'.join(_BLANK.join(map(re.escape, text.split())) for text in texts)})"


def alone(pattern: str) -> str:
    """The expression of a text that is nothing else."""
    return rf"^\s*{pattern}\s*$"


def amount(units: Iterable[str]) -> str:
    """A number in one of these units; the empty one is none."""
    some = [*units]
    micro = ["[µμ]s"] if "us" in some else []
    named = "|".join([*map(re.escape, filter(None, some)), *micro])
    unit = rf"\s*(?:{named})" if named else ""
    return f"{_NUMBER}(?:{unit})?" if "" in some else _NUMBER + unit


def _fitting(fits: Callable[[Quantity], object]) -> list[str]:
    """The units whose amounts are taken."""
    found = []
    for unit in ("", *WRITTEN_UNITS):
        try:
            fits(parse_quantity(f"1{unit}"))
            found.append(unit)
        except UnitMistake:
            continue
    return found


QUANTITY = rf"{_NUMBER}(?:\s*[^\s0-9._,()<>=+-][^\s,()]*)?"
"""A number in any unit: what was measured outside of a trace may have one of its own."""

SHARE = amount([RATIO])
ABSOLUTE = rf"(?:{amount(_fitting(list_absolute_amounts))}|{_NUMBER}\s*{OWN_UNIT_PATTERN})"


_OTHER_NAMES = [
    *UNITLESS_NAMES.items(),
    *((word, name) for word, names in METRICS_BY_UNIT.items() for name in names.values()),
]


def metric_name(names: Iterable[str]) -> str:
    """The name of a metric, perhaps without its unit; blanks may stand for underscores; the longest first."""
    full = {*names}
    every = full | {word for word, name in _OTHER_NAMES if name in full}
    longest_first = sorted(every, key=lambda name: (-len(name), name))
    return f"(?:{'|'.join(name.replace('_', _BLANKS) for name in longest_first)})"


_SIGNS = [text for text in COMPARISONS if not text[0].isalpha()]
_WORDS = [text for text in COMPARISONS if text[0].isalpha()]
_BY_LENGTH = sorted(_SIGNS, key=len, reverse=True)
_COMPARED = rf"(?:{one_of(_BY_LENGTH)}|{one_of(_WORDS)}\b)"
_BEHIND = rf"(?:\s*{one_of(_BY_LENGTH)}|\s+{one_of(_WORDS)}\b)"
"""A comparison, and one behind a metric."""


_SOURCE = (
    r"(?:baseline|(?:median\s+of\s+)?(?:the\s+)?last\s+(?:[0-9]+\s+)?runs?(?:\s+of\s+\S+)?"
    r"(?:\s+before\s+the\s+newest(?:\s+[0-9]+)?)?)"
)
"""What stands for the accepted value: a baseline, or runs of the history."""


def _tolerance(unit: str) -> str:
    """A tolerance for values of this unit."""
    own = [RATIO, *_fitting(lambda quantity: convert_to_absolute(quantity, unit, ""))]
    part = QUANTITY if unit == ANY_UNIT else amount(own)
    return rf"(?:noise|tolerance|max\s*\(\s*{part}\s*,\s*{part}\s*\)|{part})"


def _constant(unit: str) -> str:
    if unit == ANY_UNIT:
        return QUANTITY
    fits = amount(_fitting(lambda quantity: convert_to_limit(quantity, unit, "")))
    return rf"(?:{fits}|{SHARE}\s+of\s+(?:the\s+)?step)" if unit == TIME else fits


def _constants(unit: str) -> str:
    """A constant, or one for each GPU model."""
    of_model = rf"{_constant(unit)}\s+on\s+[^,]+"
    return rf"(?:{_constant(unit)}|{of_model}(?:,\s*{of_model})*)"


def _compared(unit: str) -> str:
    """A comparison behind a metric, and its limit; fingerprints are the same or not."""
    if unit == HASH:
        return rf"{_SAME}\s*baseline"
    tolerance = _tolerance(unit)
    reference = rf"{_SOURCE}(?:\s*(?:\+|-|plus\b|minus\b)\s*{tolerance})?"
    both_sides = rf"\s+within\s+{tolerance}\s+of\s+{_SOURCE}"
    return rf"(?:{_BEHIND}\s*(?:{reference}|{_constants(unit)})|{both_sides})"


UNITS = tuple(dict.fromkeys((*(str(metric.unit) for metric in METRICS.values()), BARE)))


def of_unit(unit: str) -> list[str]:
    """The metrics whose values are in this unit."""
    return [metric.name for metric in METRICS.values() if metric.unit == unit]


EARLY = alone(rf"{_COMPARED}\s*{_constants(ANY_UNIT)}")
"""What stands behind ``warn:``."""


OUTSIDE = rf"{MEASURED_WORD}\s+[^\s<>=≤≥][^<>=≤≥]*?"
"""What was measured outside of a trace: its name, and perhaps labels."""


PART_OF_PROGRAM = r"(?:time|scope(?:_ns)?)\s+of\s"
"""The time of a module, an operator, a range, a line of source or a stage; those of other metrics have their names."""


def _sentences() -> list[str]:
    kernels = rf"{one_of(f'{each} kernels' for each in UnmatchedRows)}(?:\s+above\s+{SHARE})?"
    zero = [*map(metric_name, (of_unit(TIME), of_unit(COUNT))), kernels, OUTSIDE]
    balance = rf"balance\s+(?:of\s+)?(?:{metric_name(METRICS)}|{OUTSIDE})\s+across\s+[^\s<>=]+"
    found = [
        rf"no\s+(?:{_ANY}\s)?(?:{'|'.join(zero)})(?:\s+where\s{_ANY})?",
        rf"(?:{_ANY}\s)?{balance}{_compared(BARE)}",
    ]
    for unit in UNITS:
        if names := of_unit(unit):
            subject = rf"(?:{_ANY}\s)?{metric_name(names)}(?:\s+of\s{_ANY}?)?"
            found.append(subject + _compared(unit))
    found.append(rf"(?:{_ANY}\s)?{PART_OF_PROGRAM}{_ANY}?{_compared(TIME)}")
    return [*found, rf"(?:{_ANY}\s)?{OUTSIDE}{_compared(ANY_UNIT)}"]


NAMED = rf"(?:^|\s)(?:{metric_name(METRICS)}(?![A-Za-z0-9_])|(?:no|{MEASURED_WORD})\s|{PART_OF_PROGRAM})"
"""What every sentence has in it."""

SENTENCE = alone(f"(?:{'|'.join(_sentences())})")
