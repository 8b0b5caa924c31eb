"""Are the drawings true, readable and safe: a sparkline in a terminal, an SVG that stands alone?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from xml.etree import ElementTree

import pytest

from pytest_nsys.core.model import Value
from pytest_nsys.reports.page.plots import HEIGHT, SPARK_WIDTH, WIDTH, Panel, Point, panel_svg, sparkline


def panel(values: Sequence[Value], unit: str = "ns", title: str = "exposed_ns rank 0", **more: str) -> Panel:
    points = tuple(Point(value, f"2026-01-{n + 1:02d}", "abc") for n, value in enumerate(values))
    return Panel(title, more.get("quantity", "exposed_ns"), unit, points)


def texts(drawing: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(drawing).iter("text")]


def dots(drawing: str) -> list[tuple[float, float]]:
    found = ElementTree.fromstring(drawing).iter("circle")
    return [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in found]


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
    assert sparkline(values) == drawn


def test_a_long_sparkline_shows_the_newest() -> None:
    drawn = sparkline([1_000, *range(SPARK_WIDTH)])
    assert (len(drawn), drawn[0], drawn[-1]) == (SPARK_WIDTH, "▁", "█")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no such encoding"])
def test_a_sparkline_where_the_terminal_lacks_the_ticks(encoding: str) -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], encoding) == "_.:-=+*#"
    assert sparkline([1, 8], "utf-16") == "▁█"


def test_a_plot_has_a_title_axes_with_units_and_a_point_for_each_value() -> None:
    drawing = panel_svg(panel([900_000, 950_000, 1_500_000]), "trend-1")
    root = ElementTree.fromstring(drawing)
    assert root.attrib["role"] == "img"
    assert (
        {node.attrib["id"] for node in root if "id" in node.attrib} == {root.attrib["aria-labelledby"]} == {"trend-1"}
    )
    assert root.findtext("title") == "exposed_ns rank 0, 3 values from 900 us to 1.5 ms"
    written = texts(drawing)
    assert "exposed_ns in us" in written
    assert "run, oldest first (UTC)" in written
    assert [text for text in written if text.isdigit()] == ["800", "1000", "1200", "1400", "1600"]
    assert "2026-01-01" in written
    assert "2026-01-03" in written
    xs, ys = zip(*dots(drawing), strict=True)
    assert list(xs) == sorted(xs)
    assert ys[0] > ys[1] > ys[2]  # a larger value stands higher
    assert "2026-01-02, 950 us, abc" in drawing


@pytest.mark.parametrize(
    ("values", "unit", "axis", "ticks"),
    [
        ([Fraction(1, 2), Fraction(3, 4)], "%", "overlap in %", ["50", "60", "70", "80"]),
        ([0, 0], "ns", "overlap in ns", ["-1", "-0.5", "0", "0.5", "1"]),
        ([3, 3], "count", "overlap in count", ["2", "3", "4"]),
        ([0, 2], "count", "overlap in count", ["0", "1", "2"]),
        ([Fraction(101, 100), Fraction(103, 100)], "1", "overlap", ["1.01", "1.015", "1.02", "1.025", "1.03"]),
        ([10**13], "ns", "overlap in s", ["9000", "9500", "10000", "10500", "11000"]),
        ([12, 40], "GB/s", "overlap in GB/s", ["10", "20", "30", "40"]),
    ],
)
def test_ticks_are_round_and_enclose_the_values(values: list[Value], unit: str, axis: str, ticks: list[str]) -> None:
    drawing = panel_svg(panel(values, unit, quantity="overlap"), "t")
    written = texts(drawing)
    assert axis in written
    assert [text for text in written if re.fullmatch(r"-?[0-9.]+", text)] == ticks
    assert all(0 <= y <= HEIGHT and 0 <= x <= WIDTH for x, y in dots(drawing))


def test_text_of_somebody_else_is_only_text() -> None:
    evil = 'a<script>alert("1")</script>&\x1b[31m\x00\ud800]]>'
    drawing = panel_svg(Panel(evil, evil, "ns", (Point(1, evil, evil), Point(2, evil, evil))), "t")
    root = ElementTree.fromstring(drawing)
    assert {node.tag for node in root.iter()} <= {"svg", "title", "text", "line", "polyline", "circle"}
    assert "\x1b" not in drawing
    assert drawing.encode()


def test_a_plot_fetches_nothing() -> None:
    drawing = panel_svg(panel([1, 2]), "t")
    assert re.findall(r"(?:href|src|url\(|@import)", drawing) == []
    assert "<script" not in drawing


def test_the_same_values_give_the_same_bytes() -> None:
    values = [Fraction(n * n, 7) for n in range(1, 30)]
    assert panel_svg(panel(values), "t") == panel_svg(panel(list(values)), "t")
    assert all(
        re.fullmatch(r"-?[0-9]+(\.[0-9])?", n) for n in re.findall(r'c[xy]="([^"]*)"', panel_svg(panel(values), "t"))
    )
