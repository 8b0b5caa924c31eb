"""Does a table fit where it is read? Names give way, figures never."""

import io
from pathlib import Path

import pytest

from pytest_nsys.reports.tables.bars import Pen
from pytest_nsys.reports.tables.formats import CellKind, Column, Format, Row, Table, make_time_columns
from tests.support.commands import run
from tests.support.samples.builder import TraceBuilder

LONG = "void at::native::" + "a_very_long_name_of_a_kernel_" * 3
FIGURES = [Column(f"figure {i}", CellKind.NUMBER) for i in range(4)]


def lines(table: Table, width: int) -> list[str]:
    return table.render(Format.TABLE, width=width).splitlines()


@pytest.mark.parametrize("width", [80, 90, 100, 140])
@pytest.mark.parametrize("many", [1, 4, 12])
def test_a_table_fits_with_all_of_its_figures(width: int, many: int) -> None:
    columns = [
        Column("kernel", CellKind.KERNEL),
        Column("family"),
        *make_time_columns(*(f"figure_{i}_ns" for i in range(many))),
    ]
    rows: list[Row] = [(f"{LONG}{end}(int)", "communication", *(1_000_000 + i for i in range(many))) for end in "ab"]
    said = lines(Table(columns, rows), width)
    assert max(map(len, said)) <= width
    assert sum(line.count("1 ms") for line in said) == 2 * many
    names = [line.split()[0] for line in said if "1 ms" in line]
    assert len({*names}) == 2 * len({*said}.intersection(line for line in said if set(line) <= {"-", " "} and line))


def test_heads_take_several_lines_before_names_are_cut() -> None:
    columns = [Column("name"), *(Column(f"{'long ' * 4}head", CellKind.NUMBER) for _ in range(4))]
    said = lines(Table(columns, [("x" * 50, 1, 2, 3, 4)]), 80)
    assert "x" * 50 in said[-1]
    assert said[-1].split()[1:] == ["1", "2", "3", "4"]


def test_what_has_no_figures_stays_whole() -> None:
    said = lines(Table([Column("write"), Column("to answer")], [("x" * 90, "y" * 90)]), 80)
    assert said[-1] == f"{'x' * 90}  {'y' * 90}"


@pytest.mark.parametrize(("columns", "expected"), [("", 100), ("80", 80), ("40", 80), ("200", 200)])
def test_a_terminal_says_how_wide_it_is(monkeypatch: pytest.MonkeyPatch, columns: str, expected: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert Pen.from_stream(io.StringIO()).columns == expected


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_the_screen_and_the_views_fit_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    process = TraceBuilder().process()
    for i in range(12):
        name = f"{LONG}{i}"
        process.kernel("kernel", 100 * i, 100 * i + 90, launch_ns=50 * i, demangled=f"{name}(int)")
    process.trace.write(Path("a.sqlite"))
    screen = run("a.sqlite", code=0).stdout.splitlines()
    assert max(map(len, screen)) <= min(columns, 100)
    assert len(screen) <= 40
    for view in ("kernels", "streams", "ranks", "budget"):
        assert max(map(len, run("a.sqlite", f"--view={view}", code=0).stdout.splitlines())) <= columns
