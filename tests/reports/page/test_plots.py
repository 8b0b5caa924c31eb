"""Are the drawings true, readable and safe: a sparkline in a terminal, an SVG that stands alone?"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_nsys.core.model import Value
from pytest_nsys.reports.page.plots import (
    HEIGHT,
    SPARK_WIDTH,
    WIDTH,
    list_trend_notes,
    render_sparkline,
    render_trend_svg,
)
from pytest_nsys.reports.words.trend import Trend, TrendPoint, fit_axis
from pytest_nsys.stored.history.shifts import find_shifts


def trend(values: Sequence[Value], unit: str = "ns", title: str = "exposed_ns rank 0", **more: Any) -> Trend:
    """A row over time, on a scale of its own; ``more`` by run is what is known of it."""
    told = more.get("told", {})
    moments = [
        TrendPoint(value, f"2026-01-{n + 1:02d} 03:00", "abc", **told.get(n, {})) for n, value in enumerate(values)
    ]
    quantity = more.get("quantity", "exposed_ns")
    return fit_axis(Trend(title, quantity, unit, tuple(moments), find_shifts(values, unit)))


def texts(drawing: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(drawing).iter("text")]


def dots(drawing: str) -> list[tuple[float, float]]:
    found = ElementTree.fromstring(drawing).iter("circle")
    return [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in found]


def of_class(drawing: str, name: str) -> list[ElementTree.Element]:
    return [node for node in ElementTree.fromstring(drawing).iter() if node.attrib.get("class") == name]


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([7], "▄"),
        ([7, 7, 7], "▄▄▄"),
        ([0, 0], "▄▄"),
        ([1, 8], "▁█"),
        ([1, 2, 3, 4, 5, 6, 7, 8], "▁▂▃▄▅▆▇█"),
        ([-7, 0], "▁█"),
        ([Fraction(1, 3), Fraction(2, 3), Fraction(1, 2)], "▁█▅"),
    ],
)
def test_a_sparkline_goes_from_minimum_to_maximum(values: list[Value], drawn: str) -> None:
    assert render_sparkline(values) == drawn


def test_a_long_sparkline_shows_the_newest() -> None:
    drawn = render_sparkline([1_000, *range(SPARK_WIDTH)])
    assert (len(drawn), drawn[0], drawn[-1]) == (SPARK_WIDTH, "▁", "█")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no such encoding"])
def test_a_sparkline_where_the_terminal_lacks_the_ticks(encoding: str) -> None:
    assert render_sparkline([1, 2, 3, 4, 5, 6, 7, 8], encoding) == "_.:-=+*#"
    assert render_sparkline([1, 8], "utf-16") == "▁█"


def test_a_plot_has_a_title_units_on_its_axis_and_a_point_for_each_value() -> None:
    drawing = render_trend_svg(trend([900_000, 950_000, 1_500_000]), "trend-1")
    root = ElementTree.fromstring(drawing)
    assert root.attrib["role"] == "img"
    assert (
        {node.attrib["id"] for node in root if "id" in node.attrib} == {root.attrib["aria-labelledby"]} == {"trend-1"}
    )
    assert root.findtext("title") == "exposed_ns rank 0, 3 values from 900 us to 1.5 ms"
    written = texts(drawing)
    assert [text for text in written if text.endswith(" us")] == ["1000 us", "1200 us", "1400 us"]
    assert "2026-01-01 03:00" in written
    assert "2026-01-03 03:00" in written
    xs, ys = zip(*dots(drawing), strict=True)
    assert list(xs) == sorted(xs)
    assert ys[0] > ys[1] > ys[2]  # a larger value stands higher
    assert "2026-01-02 03:00, 950 us, abc" in drawing


@pytest.mark.parametrize(
    ("values", "unit", "ticks"),
    [
        ([Fraction(1, 2), Fraction(3, 4)], "%", ["50%", "60%", "70%"]),
        ([0, 0], "ns", ["-0.02 ns", "0 ns", "0.02 ns"]),
        ([0, 2], "count", ["0", "1", "2"]),
        ([Fraction(101, 100), Fraction(106, 100)], "1", ["1.02", "1.04", "1.06"]),
        ([10**13], "ns", ["9800 s", "10000 s", "10200 s"]),
        ([12, 40], "GB/s", ["20 GB/s", "30 GB/s", "40 GB/s"]),
    ],
)
def test_ticks_are_round_have_their_unit_and_lie_on_the_plot(values: list[Value], unit: str, ticks: list[str]) -> None:
    drawing = render_trend_svg(trend(values, unit), "t")
    assert [text for text in texts(drawing)[1:] if text and "2026" not in text] == ticks
    assert all(0 <= y <= HEIGHT and 0 <= x <= WIDTH for x, y in dots(drawing))


def test_the_limit_the_run_that_moved_and_what_was_accepted_are_drawn_and_told() -> None:
    told = {n: {"limit": 1_050} for n in range(4)} | {4: {"limit": 1_190, "acceptance_reason": "a new kernel"}}
    found = trend([1_000, 1_002, 998, 1_000, 1_200, 1_201, 1_199, 1_200], told=told)
    drawing = render_trend_svg(found, "t")
    (limit,) = of_class(drawing, "limit")
    assert limit.attrib["d"].count("M") == 8
    (moved,) = of_class(drawing, "shift")
    (accepted,) = of_class(drawing, "accepted")
    assert float(moved.attrib["x1"]) == dots(drawing)[4][0]
    assert accepted.attrib["d"].startswith(f"M{moved.attrib['x1']} ")
    assert list_trend_notes(found) == [
        "moved 1 us → 1.2 us (+20%) at abc, 2026-01-05",
        "accepted at abc, 2026-01-05: a new kernel",
    ]
    last = replace(found, points=(*found.points[:-1], replace(found.points[-1], limit=9_000)))
    assert list_trend_notes(last)[-1] == "limit 9 us, above the picture"
    assert "limit 9 us" in render_trend_svg(last, "t")


def test_a_regression_is_seen_over_the_limit_beside_other_rows_of_its_unit() -> None:
    """14 runs of 46.5 ms, 53.7 from the 12th, over a limit of 48.8: the line crosses the limit, drawn throughout."""
    values = [46_500_000 + 10_000 * (n % 3) for n in range(11)] + [53_700_000] * 3
    found = trend(values, told={13: {"limit": 48_800_000}})
    drawing = render_trend_svg(found, "t")
    (limit,) = of_class(drawing, "limit")
    assert limit.attrib["d"].count("M") == len(values)
    height = float(limit.attrib["d"].partition(" ")[2].partition("H")[0])
    heights = [y for _, y in dots(drawing)]
    assert min(heights[:11]) - max(heights[11:]) > HEIGHT / 3
    assert max(heights[11:]) < height < min(heights[:11])
    assert [node.attrib["class"] for node in ElementTree.fromstring(drawing).iter("circle")][-1] == "dot today"
    assert drawing.count('tabindex="0"') == len(values)


def test_text_of_somebody_else_is_only_text() -> None:
    evil = 'a<script>alert("1")</script>&\x1b[31m\x00\ud800]]>'
    moments = (TrendPoint(1, evil, evil, acceptance_reason=evil), TrendPoint(2, evil, evil, limit=1))
    drawing = render_trend_svg(fit_axis(Trend(evil, evil, "ns", moments)), "t")
    root = ElementTree.fromstring(drawing)
    assert {node.tag for node in root.iter()} <= {"svg", "title", "text", "line", "polyline", "circle", "path", "g"}
    assert "\x1b" not in drawing
    assert drawing.encode()


def test_a_plot_fetches_nothing() -> None:
    drawing = render_trend_svg(trend([1, 2]), "t")
    assert re.findall(r"(?:href|src|url\(|@import)", drawing) == []
    assert "<script" not in drawing


def test_the_same_values_give_the_same_bytes() -> None:
    values = [Fraction(n * n, 7) for n in range(1, 30)]
    assert render_trend_svg(trend(values), "t") == render_trend_svg(trend(list(values)), "t")
    assert all(
        re.fullmatch(r"-?[0-9]+(\.[0-9])?", n)
        for n in re.findall(r'c[xy]="([^"]*)"', render_trend_svg(trend(values), "t"))
    )
