"""Does the benchmark tell what it is asked to tell? What it measures, CI runs small."""

from pathlib import Path

import pytest

from tests.benchmarks.__main__ import GROUPS, main
from tests.benchmarks.measuring import Bench, Group, Line
from tests.benchmarks.outlying_simulation import CELLS, Cell, table


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (Line("time", "s", [1.0, 9.0, 2.0], most=2), "met"),
        (Line("time", "s", [1.0, 9.0, 2.1], most=2), "MISSED"),
        (Line("gain", "×", [12.0], least=12), "met"),
        (Line("gain", "×", [11.9], least=12), "MISSED"),
        (Line("gain", "×", [], least=12), "not measured"),
        (Line("told", "s", [5.0]), ""),
    ],
)
def test_a_verdict_is_of_the_median_against_the_target(line: Line, verdict: str) -> None:
    assert line.verdict == verdict
    assert line.text().endswith(verdict)


def test_the_help_lists_the_groups_and_what_they_divide_by(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert all(f"  {name}" in told and group.about.partition("\n")[0] in told for name, group in GROUPS.items())


def test_a_missed_target_or_a_part_that_fails_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(GROUPS, "gate", Group("of one", [lambda _: [Line("quick", "s", [1.0], most=2)]]))
    monkeypatch.setitem(GROUPS, "whole", Group("of two", [lambda _: [Line("slow", "s", [3.0], most=2)]]))
    monkeypatch.setitem(
        GROUPS, "many", Group("of three", [lambda bench: [Line(bench.python("-c", "1 / 0").said, "s", [])]])
    )
    assert main(["--only", "gate"]) == 0
    assert main(["--only", "gate", "whole"]) == 1
    assert main(["--only", "whole", "--small"]) == 0
    capsys.readouterr()
    assert main(["--only", "many", "gate", "--small"]) == 1
    told = capsys.readouterr().out
    assert "ZeroDivisionError" in told
    assert "quick" in told


def test_a_process_is_accounted_for(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    bench = Bench(tmp_path, tmp_path, small=True)
    held = bench.python("-c", "held = b'x' * (200 << 20); any(range(1_000_000))")
    assert held.peak_mib > 200
    assert held.processor > 0
    assert held.seconds == held.wall > 0
    waits = Bench(tmp_path / "again", tmp_path / "again", processor=True).python("-c", "import time; time.sleep(0.3)")
    assert waits.seconds == waits.processor < waits.wall
    with pytest.raises(RuntimeError, match="ended with 7"):
        bench.python("-c", "raise SystemExit(7)")


def test_the_simulation_of_outliers_has_a_line_for_each_cell() -> None:
    head, _, *lines = table(trials=5)
    assert len(lines) == len(CELLS)
    assert {line.count("|") for line in lines} == {head.count("|")}
    assert Cell(0.0, 0.0, "8 rows", 3).shares(5) == (0.0, 1.0)
