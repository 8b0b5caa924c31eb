"""What is drawn of a verdict, as plain data: the windows of the ranks that matter, the steady windows, its series."""

from __future__ import annotations

from typing import Any, TypedDict

from pytest_nsys.analysis.timeline import Timeline


class Picture(TypedDict):
    """The window of one rank; the same ``key`` is the same picture. ``head`` is None where it was handed over before,
    ``why`` says why there is none at all.
    """

    key: str
    rank: int
    base: Timeline | None
    head: Timeline | None
    why: str


class Spread(TypedDict):
    """The values of one row over the steady windows, as (index of the anchor, value as text); ``median`` is the anchor
    that the default window is. ``why`` there are none. ``limit`` is that of the row, as text.
    """

    row: str
    limit: str | None
    values: list[list[Any]]
    median: int
    why: str


class Pictures(TypedDict):
    """All that is drawn of one assertion. ``series`` names its worst row in a history, None where that has none."""

    windows: list[Picture]
    spread: Spread | None
    series: dict[str, Any] | None
