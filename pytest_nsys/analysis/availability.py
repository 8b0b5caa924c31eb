"""Which metrics have rows in a run, and why have the others none? Asked of all of them at once, to tell a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS, Metric, Of
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.grouping import grouped

NO_STREAM = "no communication kernel has a stream of its own in the window"
NO_ROW = "nothing of the kind is in the window"


class Available(NamedTuple):
    """The metrics that one command shows: how many have rows, and those that have none by the reason."""

    view: str
    metrics: int
    with_rows: int
    without: Mapping[str, Sequence[str]]


def available(captures: Captures, spec: WindowSpec) -> Iterator[Available]:
    """Every metric of traces, by the command that shows it, but those that a gate file has to state something for."""
    asked = [metric for metric in METRICS.values() if not metric.outside and metric.needs is None]
    for view, metrics in grouped((metric.view, metric) for metric in asked).items():
        reasons = [(reason, metric.name) for metric in metrics if (reason := _why_none(captures, metric, spec))]
        yield Available(view, len(metrics), len(metrics) - len(reasons), grouped(reasons))


def _why_none(captures: Captures, metric: Metric, spec: WindowSpec) -> str:
    """Why a metric has no row; empty where it has one."""
    try:
        table = captures.rows(metric, spec)
    except NsysError as error:
        return str(error).removeprefix(f"{captures.paths[0]}: ")
    if table.rows:
        return ""
    missing = next((why for _, why in table.missing), "")
    return table.without or missing or (NO_STREAM if metric.of is Of.COMMUNICATION else NO_ROW)
