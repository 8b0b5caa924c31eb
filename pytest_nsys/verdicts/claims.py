"""How is it said whether a claimed change to the better is shown, and how many captures would show it?"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pytest_nsys.analysis.metrics.registry import PERIOD_METRIC, STEP_TIME_METRIC
from pytest_nsys.core.exact import distance, simplify_fraction
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_distance, format_distinctly, format_percent, format_value
from pytest_nsys.core.text_format import format_labels, sanitize_line
from pytest_nsys.core.units import RATIO, SHARE_UNITS, TIME
from pytest_nsys.gates.model import Assertion, BaselineLimit, ClaimFinding, JudgedRow, Outcome
from pytest_nsys.gates.noise import FEWEST_FOR_A_TEST, FEWEST_FOR_SEPARATION, FEWEST_RUNS, MOST_NEEDED_CAPTURES

_OPEN_FINDINGS = (
    *(ClaimFinding.NOT_TESTED, ClaimFinding.OVERLAPPING),
    *(ClaimFinding.WITHIN_NOISE, ClaimFinding.WITHIN_TOLERANCE),
)
"""Findings that leave open whether the claim holds."""


def describe_claim(assertion: Assertion, rows: Sequence[JudgedRow]) -> str:
    """Return what became of a claim, by its worst row: ``shown: 4.1% ± 0.6% faster``, ``not so: 2% slower``."""
    row = rows[0]
    place = sanitize_line(format_labels(row.labels or row.origin))
    change = _describe_row(assertion, row)
    failed_count = sum(judged_row.outcome is Outcome.FAILED for judged_row in rows)
    assert row.claim is not None
    if not failed_count:
        scope = (
            f" in {'both' if len(rows) == 2 else f'all {len(rows)}'} rows, least in {place}" if len(rows) > 1 else ""
        )
        return f"shown{scope}: {change}"
    scope = f" in {failed_count} of {len(rows)} rows, the first {place}" if len(rows) > 1 else ""
    return f"{'not shown' if row.claim.finding in _OPEN_FINDINGS else 'not so'}{scope}: {change}"


def _describe_row(assertion: Assertion, row: JudgedRow) -> str:
    """Return how a row changed, and what that lacks to show the claim."""
    assert row.claim is not None
    change = _describe_change(assertion, row)
    match row.claim.finding:
        case ClaimFinding.TOO_SMALL:
            return f"{change}, less than claimed ({assertion.requirement.text})"
        case ClaimFinding.WITHIN_TOLERANCE:
            tolerance = _format_amount(assertion, row, row.tolerance or 0)
            return f"{change}, within the tolerance of {tolerance}: claim an amount instead"
        case ClaimFinding.WITHIN_NOISE:
            return f"{change}, within the noise of {row.claim.captures}: {_describe_needed_captures(row)}"
        case ClaimFinding.OVERLAPPING:
            test = f" ({row.test})" if row.test.startswith("p") else ""
            captures = f"some of {row.claim.captures} overlap{test}"
            return f"{change}, and {captures}: {_describe_needed_captures(row)}"
        case ClaimFinding.NOT_TESTED if row.test:
            captures = row.claim.captures or "captures that lack this row"
            return f"{change}, and {captures} are no test: {_describe_needed_captures(row)}"
        case ClaimFinding.NOT_TESTED:
            reason, remedy = _describe_missing_noise(assertion, row)
            side = f"{FEWEST_FOR_SEPARATION} captures a side"
            return f"{change} than {row.claim.captures}, and {reason}: {remedy}, or compare {side}"
    return change


def _describe_missing_noise(assertion: Assertion, row: JudgedRow) -> tuple[str, str]:
    """Return why the runs of a baseline, or of the history, cannot show a change, and what to do."""
    limit = assertion.requirement.limit
    if isinstance(limit, BaselineLimit) and limit.history is not None:
        return "their noise is not known", f"write last {FEWEST_RUNS} runs or more"
    if row.noise is None:
        return "the noise is not measured", "calibrate the baseline"
    return "one of them may be a hiccup", f"accept {FEWEST_FOR_SEPARATION} runs"


def _describe_needed_captures(row: JudgedRow) -> str:
    """Return how many captures a side would show the change."""
    assert row.claim is not None
    if row.claim.needed_captures is not None:
        return f"{row.claim.needed_captures} captures a side would show it"
    if row.noise is not None:
        return f"not even {MOST_NEEDED_CAPTURES} captures a side would show it"
    return (
        f"{FEWEST_FOR_SEPARATION} captures a side show it where all are apart, {FEWEST_FOR_A_TEST} by a test, "
        "and more where the noise is large"
    )


def _describe_change(assertion: Assertion, row: JudgedRow) -> str:
    """Return how a row changed, with the noise of the change if it is to the better: ``4.1% ± 0.6% faster``."""
    assert row.claim is not None
    assert row.value is not None
    assert row.baseline is not None
    if row.value == row.baseline:
        return "unchanged"
    is_more, name = row.value > row.baseline, assertion.metric
    words = ("lower", "higher")
    if assertion.limit_target.unit == TIME:
        words = ("faster", "slower") if name in (STEP_TIME_METRIC, PERIOD_METRIC) else ("shorter", "longer")
    change, claimed = distance(row.value, row.baseline), row.tolerance or 0
    tested_findings = (ClaimFinding.SHOWN, ClaimFinding.OVERLAPPING, ClaimFinding.WITHIN_NOISE)
    has_noise = row.noise is not None and row.claim.finding in tested_findings
    noise = f" ± {_format_amount(assertion, row, row.noise or 0)}" if has_noise else ""
    text = _format_amount(assertion, row, change, claimed)
    return f"{text}{noise} {words[is_more]}"


def _format_amount(assertion: Assertion, row: JudgedRow, amount: Value, other: Value | None = None) -> str:
    """Return an amount as the claim says its own: as a share of the baseline, or in the unit of the row.

    ``other`` is an amount that it must not look like.
    """
    limit, unit = assertion.requirement.limit, assertion.limit_target.unit
    assert isinstance(limit, BaselineLimit)
    assert limit.tolerance is not None
    is_relative = bool(limit.tolerance.relative) or (unit not in SHARE_UNITS and not limit.tolerance.absolute)
    if is_relative and row.baseline:
        shares = [
            simplify_fraction(Fraction(value) / abs(Fraction(row.baseline)))
            for value in (amount, other)
            if value is not None
        ]
        text = format_percent(shares[0], 2)
        is_alike = len(shares) > 1 and shares[0] != shares[1] and text == format_percent(shares[1], 2)
        return format_distinctly(shares[0], shares[1], RATIO)[0] if is_alike else text
    if other is None or unit in SHARE_UNITS:
        return format_distance(amount, unit)
    is_alike = amount != other and format_value(amount, unit) == format_value(other, unit)
    return format_distinctly(amount, other, unit)[0] if is_alike else format_value(amount, unit)
