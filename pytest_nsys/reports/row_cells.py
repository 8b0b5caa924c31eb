"""How do the numbers of a judged row read, from its plain record?"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pytest_nsys.core.exact import from_exact
from pytest_nsys.core.units import RATIO, format_apart, format_value
from pytest_nsys.reports.text import change_words

NO_VALUE = "–"


def number_cells(row: Mapping[str, Any], record: Mapping[str, Any], *, stored: bool) -> list[str]:
    """Value, limit with its source, and between them, where a baseline is ``stored``, that and the change."""
    unit = record["unit"]
    value, limit, baseline = (from_exact(row[name]) for name in ("value", "limit", "baseline"))
    now = "gone" if value is None else format_value(value, unit)
    allowed = NO_VALUE if limit is None else format_value(limit, unit)
    if value is not None and limit is not None and value != limit:
        now, allowed = format_apart(value, limit, unit)
    words = f"{record['comparator']} {allowed}" if limit is not None else allowed
    words += f" ({row['limit_source']})" if row["limit_source"] and limit is not None else ""
    between = [] if baseline is None else [format_value(baseline, unit)]
    middle = [*(between or [NO_VALUE]), change_words(value, baseline, unit)] if stored else []
    return [now, *middle, words.strip()]


def margin_cell(row: Mapping[str, Any], unit: str) -> str:
    """What is left to the limit, negative where it is crossed; of a waived row what is left to its ceiling."""
    value, ceiling, margin = (from_exact(row[name]) for name in ("value", "ceiling", "margin"))
    if row["waived"] and value is not None and ceiling is not None:
        return f"{_distance(abs(Fraction(ceiling) - value), unit)} to its ceiling"
    return NO_VALUE if margin is None else _distance(Fraction(margin), unit)


def _distance(amount: Fraction, unit: str) -> str:
    if unit == RATIO:
        return f"{float(100 * amount):.2f} pp".replace("-", "−")
    return format_value(amount, unit).replace("-", "−")
