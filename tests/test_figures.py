"""Does every metric still say what it said, to the nanosecond? Without the reference traces, of the traces at hand.

``python -m tests.support.figures`` writes figures.json again, where a figure is meant to change.
"""

import json

import pytest

from pytest_nsys.analysis.metrics.registry import METRICS
from tests.support.figures import CONVENTIONS, FILE, figures
from tests.support.samples.formats import Format

AGAIN = "python -m tests.support.figures writes figures.json again"

KEPT = json.loads(FILE.read_text(encoding="utf-8"))


def test_every_format_has_figures() -> None:
    assert {*CONVENTIONS} == {*Format}


def test_every_figure() -> None:
    found = figures()
    assert list(found) == list(KEPT)
    for view, metrics in found.items():
        assert metrics.keys() == KEPT[view].keys(), f"{view}: a metric is new or gone: {AGAIN}"
        assert metrics == KEPT[view], f"{view}: a figure changed; where that is meant: {AGAIN}"


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_a_figure_that_is_not_zero(metric: str) -> None:
    values = {value for metrics in KEPT.values() for value in metrics.get(metric, {}).values()}
    assert values, f"{metric}: in no view; where it is new: {AGAIN}"
    lacks = "no trace of tests/support/figures.py has what it measures: add one to traces()"
    assert values - {"0"}, f"{metric}: 0 in every view, as {lacks}; then {AGAIN}"
