"""Does ``rows`` give the rows that a gate would see, selected, exact, over one capture or several?"""

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import commands
from tests.support.commands import answer
from tests.support.samples.builder import TraceBuilder
from tests.support.scope_programs import WRITERS

SETUP = "rank={}; pp={}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
ANCHOR = "forward chunk {0} (phase1) backward chunk {0} (phase0)"


run = partial(commands.run, "rows")


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer("rows", *arguments)["rows"]
    return found


def write(path: Path, exposed_ns: int, stages: tuple[str, ...] = ("stage2_f", "stage4_f")) -> Path:
    """Two ranks of one chunk: communication of 3 us in each stage, ``exposed_ns`` · (1 + rank) of it not hidden."""
    builder = TraceBuilder()
    for rank in (0, 1):
        gpu = builder.process(pid=100 + rank, device=rank)
        gpu.range(SETUP.format(rank, rank), 10, 20)
        gpu.range(ANCHOR.format(0), 0, 100_000)
        for i, stage in enumerate(stages):
            at = 20_000 * (i + 1)
            gpu.range(f"layer00.{stage}", at, at + 1_000)
            gpu.kernel("ncclDevKernel_SendRecv", at + 2_000, at + 5_000, stream=28, launch_ns=at + 10)
            gpu.kernel("gemm", at + 2_000 + exposed_ns * (1 + rank), at + 5_000, launch_ns=at + 20)
    return builder.write(path)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "run.sqlite", 1_000)


def test_a_row_is_its_dimensions_and_its_value(trace: Path) -> None:
    assert rows("exposed_ns", "--trace", trace) == [
        {"rank": 0, "stage": "stage2_f", "exposed_ns": 1_000},
        {"rank": 0, "stage": "stage4_f", "exposed_ns": 1_000},
        {"rank": 1, "stage": "stage2_f", "exposed_ns": 2_000},
        {"rank": 1, "stage": "stage4_f", "exposed_ns": 2_000},
    ]


@pytest.mark.parametrize(
    ("spoken", "name"),
    [
        ("time of op aten::mm", "scope_ns of op aten::mm"),
        ("backward time of module Block[*]/Attention", "scope_ns of backward module Block[*]/Attention"),
        ("compute of module Attention", "compute_ns of module Attention"),
    ],
)
def test_a_part_of_the_program_is_named_as_in_a_sentence(tmp_path: Path, spoken: str, name: str) -> None:
    """Its pattern may look like a path."""
    write_name, write = WRITERS["torch"]
    trace = write(tmp_path / write_name, None)
    found, expected = (commands.run("rows", words, trace, "--window=run", code=0).stdout for words in (spoken, name))
    assert found == expected
    assert name in found


def test_ratios_are_unrounded_fractions(trace: Path) -> None:
    (row,) = rows("overlap", "--trace", trace, "--rank", "1", "--where", "stage=stage2")
    assert row == {"rank": 1, "stage": "stage2_f", "overlap": 1 / 3}


def test_table_of_several_metrics(trace: Path) -> None:
    assert run("overlap", "compute_ns", "--trace", trace, "--rank", "1").stdout == (
        "metric      rank  stage     value\n"
        "----------  ----  --------  -----\n"
        "overlap     1     stage2_f  33.3%\n"
        "overlap     1     stage4_f  33.3%\n"
        "compute_ns  1     -          2 us\n"
    )


def test_csv_is_raw(trace: Path) -> None:
    found = run("overlap", "compute_ns", "--trace", trace, "--rank", "0", "--format", "csv").stdout
    assert [(r["metric"], r["stage"], r["value"], r["unit"]) for r in csv.DictReader(io.StringIO(found))] == [
        ("overlap", "stage2_f", repr(2 / 3), "1"),
        ("overlap", "stage4_f", repr(2 / 3), "1"),
        ("compute_ns", "", "4000", "ns"),
    ]


def test_selectors(trace: Path) -> None:
    def places(*where: str) -> list[tuple[int, str]]:
        options = [text for one in where for text in ("--where", one)]
        return [(row["rank"], row["stage"]) for row in rows("exposed_ns", "--trace", trace, *options)]

    assert places("rank=1", "stage=stage4") == [(1, "stage4_f")]
    assert places("stage=stage2_f", "stage=stage4_f", "rank=0") == [(0, "stage2_f"), (0, "stage4_f")]
    assert places("stage=*_f", "pp=1") == [(1, "stage2_f"), (1, "stage4_f")]


def test_launches_without_a_stage_only_when_asked_or_where_none_has_one(tmp_path: Path) -> None:
    gpu = TraceBuilder().process()
    gpu.kernel("gemm", 10_000, 20_000)
    path = gpu.trace.write(tmp_path / "run.sqlite")
    options = ("--trace", path, "--window", "run", "--convention", "generic")
    for asked in ((), ("--where", "stage=none")):
        assert rows("launches", *options, *asked) == [{"rank": 0, "stage": "none", "launches": 1}]
    run("launches", *options, "--where", "stage=*", code=3)


def test_captures_give_medians(tmp_path: Path) -> None:
    traces = [write(tmp_path / f"{n}.sqlite", exposed) for n, exposed in enumerate((1_000, 1_100, 1_201))]
    options = [text for path in traces for text in ("--trace", path)]
    assert rows("exposed_ns", *options, "--where", "stage=stage2")[0]["exposed_ns"] == 1_100
    assert rows("exposed_ns", *options[:4], "--where", "stage=stage2")[0]["exposed_ns"] == 1_050
    assert rows("exposed_ns", *options[2:], "--where", "stage=stage2")[0]["exposed_ns"] == 1_150.5
    answer = json.loads(run("exposed_ns", *options, "--format", "json").stdout)
    assert answer["trace"] == [str(path) for path in traces]
    assert [(w["capture"], w["rank"]) for w in answer["windows"]] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_row_that_one_capture_lacks_is_told(tmp_path: Path) -> None:
    one = write(tmp_path / "1.sqlite", 1_000)
    other = write(tmp_path / "2.sqlite", 1_000, stages=("stage2_f",))
    result = run("exposed_ns", "--trace", one, "--trace", other, "--rank", "0", code=0)
    assert "stage4_f" not in result.stdout
    assert "warning: exposed_ns: rank 0 stage4_f: only 1 of 2 captures have this row" in result.stderr


def test_no_row_says_why(trace: Path) -> None:
    result = run("overlap", "--trace", trace, "--where", "stage=stage3", code=3)
    assert result.stdout == ""
    assert result.stderr == (
        "error: no rows under window median, kernels contained: overlap: no row has stage stage3; "
        "stages with a row: stage2_f, stage4_f\n"
    )


def test_a_metric_without_rows_beside_one_with_rows_is_told(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.process().kernel("gemm", 10_000, 20_000)
    path = builder.write(tmp_path / "run.sqlite")
    result = run("overlap", "compute_ns", "--trace", path, "--window", "run", code=0)
    assert "compute_ns" in result.stdout
    assert "warning: overlap: it has no row in the window" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["overlp"], "unknown metric 'overlp' (did you mean 'overlap'?)"),
        (["overlap", "--where", "stge=stage2"], "overlap has no dimension 'stge' (did you mean 'stage'?)"),
        (["compute_ns", "--where", "stage=stage2"], "compute_ns has no dimension 'stage': it has rank, cp, dp, ep, pp"),
        (["total_kernel_ns", "--where", "rank=0"], "total_kernel_ns has no dimension 'rank': it has none"),
        (["overlap", "--where", "stage"], "--where is DIM=VALUE, not 'stage'"),
        (["overlap", "--where", "stage="], "--where is DIM=VALUE, not 'stage='"),
        (["overlap", "--rank", "7"], "there is no rank 7: the ranks are 0, 1"),
        (["overlap", "--window", "1:"], "'1:' is not a window"),
        (["overlap", "--window", "9:3"], "a window must end after it starts: 9:3"),
    ],
)
def test_mistakes(trace: Path, arguments: list[str], line: str) -> None:
    result = run(*arguments, "--trace", trace, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {line}")


def test_traces_stand_behind_the_metrics(trace: Path) -> None:
    said = commands.run("rows", "overlap", "exposed_ns", trace, code=0).stdout
    assert said == commands.run("rows", "overlap", "exposed_ns", "--trace", trace, code=0).stdout
    for words, lack in ((("overlap",), "no trace: pytest-nsys rows METRIC… TRACES…"), ((trace,), "no metric: ")):
        assert lack in commands.run("rows", *words, code=2).stderr
    assert "unknown metric 'overlpa' (did you mean 'overlap'?)" in commands.run("rows", "overlpa", trace, code=2).stderr
    assert "there is no such file" in commands.run("rows", "overlap", "none.sqlite", code=2).stderr


def test_other_ranks_may_be_empty(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for rank in (0, 1):
        gpu = builder.process(pid=100 + rank, device=rank)
        gpu.range(SETUP.format(rank, rank), 10, 20)
        gpu.range(ANCHOR.format(0), 0, 100_000)
        gpu.kernel("gemm", 200_000 * rank + 10_000, 200_000 * rank + 20_000, launch_ns=1_000)
    path = builder.write(tmp_path / "run.sqlite")
    contained = ("--trace", path, "--kernels", "contained")
    run("compute_ns", *contained, code=3)
    assert rows("compute_ns", *contained, "--rank", "0") == [{"rank": 0, "compute_ns": 10_000}]
    run("compute_ns", *contained, "--rank", "1", code=3)
    assert len(rows("compute_ns", "--trace", path)) == 2  # the mode is the one that fits
