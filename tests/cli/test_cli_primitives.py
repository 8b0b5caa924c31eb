"""Do the views ranks, streams and overlap, and the list of metrics, show what is there, in every format?"""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_nsys.analysis.metrics.names import FIRST_GATE_QUESTIONS, format_example, format_spoken_name
from pytest_nsys.analysis.metrics.registry import METRICS, OF_STEP_SUFFIX, SCOPE_TIME, Metric
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.gates.model import GateFile, Location
from pytest_nsys.gates.sentences import parse_sentence
from tests.support.commands import answer, run
from tests.support.samples.builder import Process, TraceBuilder

SETUP = "rank={}; pp=0/1 dp=0/1 cp=0/1 ep={}/2; mbs=1 seq=2048"
ANCHOR = "forward chunk {} (phase1) backward chunk {} (phase0)"
PRIMITIVES = ("ranks", "streams", "overlap")
NCCL = "ncclDevKernel_SendRecv"

Trace = Callable[[TraceBuilder], Path]


def step(gpu: Process, number: int, *, purpose_stage: str = "layer00.stage2_f") -> None:
    """A chunk of 10 us from ``number`` · 10 us: 4 us of dispatch, of which compute hides 3 us, and a barrier."""
    at = number * 10_000
    gpu.range(ANCHOR.format(number, number), at, at + 10_000)
    gpu.range(purpose_stage, at + 100, at + 900)
    gpu.kernel(NCCL, at + 2_000, at + 6_000, stream=28, launch_ns=at + 200)
    gpu.range("layer00.stage3_f", at + 1_000, at + 1_900)
    gpu.kernel("gemm", at + 3_000, at + 8_000, stream=7, launch_ns=at + 1_200)
    gpu.kernel("ncclDevKernel_AllReduce", at + 8_000, at + 8_500, stream=7, launch_ns=at + 1_300)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Rank 1 in process 100 and rank 0 in process 200, five chunks each."""
    builder = TraceBuilder()
    for rank, pid in ((1, 100), (0, 200)):
        gpu = builder.process(pid=pid, device=rank)
        gpu.range(SETUP.format(rank, rank), 10, 20)
        for number in range(5):
            step(gpu, number)
    return builder.write(tmp_path / "run.sqlite")


def test_tables_begin_with_the_rank(trace: Path) -> None:
    heads = {view: run(f"--view={view}", trace).stdout.splitlines()[0].split() for view in PRIMITIVES}
    assert heads["ranks"][:4] == ["rank", "pid", "setup", "window"]
    assert heads["streams"][:6] == ["rank", "pid", "stream", "purpose", "comm_kernels", "comm"]
    assert heads["overlap"][:6] == ["rank", "pid", "stage", "comm", "exposed", "overlap"]


def test_table_is_padded_and_ordered_by_rank(trace: Path) -> None:
    assert run("--view=overlap", trace).stdout == (
        "rank  pid  stage     comm  exposed  overlap  overlap_min  overlap_max  comm_kernels\n"
        "----  ---  --------  ----  -------  -------  -----------  -----------  ------------\n"
        "   0  200  stage2_f  4 us     1 us      75%          75%          75%             1\n"
        "   1  100  stage2_f  4 us     1 us      75%          75%          75%             1\n"
        "\n"
        "All communication of a rank, that on compute streams (barrier) included:\n"
        "rank  pid  wall_overlap_all  wall_exposed_all  barrier\n"
        "----  ---  ----------------  ----------------  -------\n"
        "   0  200             66.7%            1.5 us   0.5 us\n"
        "   1  100             66.7%            1.5 us   0.5 us\n"
    )


def test_json_of_overlap(trace: Path) -> None:
    found = answer("--view=overlap", trace, "--rank", "1")
    assert (found["trace"], found["kernels"], found["definition"]) == (str(trace), "contained", 1)
    assert found["notes"] == [
        "note: convention pithtrain, anchor 'forward chunk%backward chunk%' (found in the trace)",
        "note: window median, kernels contained",
        "warning: 2 of 4 communication kernels share stream 7 with compute (1 us): "
        "only wall_exposed_all and wall_overlap_all count them",
    ]
    assert found["windows"] == [
        {
            "rank": 1,
            "pid": 100,
            "name": ANCHOR.format(2, 2),
            "start": 20_000,
            "end": 30_000,
            "index": 2,
            "count": 5,
            "gpu_start": 20_000,
            "gpu_end": 30_000,
        }
    ]
    assert found["rows"] == [
        {
            "rank": 1,
            "pid": 100,
            "stage": "stage2_f",
            "comm_ns": 4_000,
            "exposed_ns": 1_000,
            "overlap": 0.75,
            "overlap_min": 0.75,
            "overlap_max": 0.75,
            "comm_kernels": 1,
        }
    ]
    (rank,) = found["ranks"]
    assert (rank["rank"], rank["wall_exposed_all_ns"], rank["barrier_ns"]) == (1, 1_500, 500)
    assert rank["wall_overlap_all"] == 2 / 3


def test_json_of_setup(trace: Path) -> None:
    _, first = answer("--view=ranks", trace)["rows"]
    assert (first["pid"], first["rank"], first["setup"]) == (100, 1, SETUP.format(1, 1))
    assert first["sizes"] == {"pp": 1, "dp": 1, "cp": 1, "ep": 2}
    assert first["coordinates"] == {"pp": 0, "dp": 0, "cp": 0, "ep": 1}
    assert (first["micro_batch"], first["sequence_length"]) == (1, 2048)


def test_a_stream_that_communicates_and_computes_is_shared(trace: Path) -> None:
    rows = answer("--view=streams", trace, "--rank", "0")["rows"]
    assert [
        (r["stream"], r["comm_kernels"], r["compute_kernels"], r["comm_ns"], r["compute_ns"], r["purpose"])
        for r in rows
    ] == [(7, 1, 1, 500, 5_000, "shared"), (28, 1, 0, 4_000, 0, "ep_a2a")]


@pytest.mark.parametrize("view", PRIMITIVES[1:])
def test_csv_carries_the_columns_of_the_table(trace: Path, view: str) -> None:
    table = run(f"--view={view}", trace).stdout.splitlines()
    rows = list(csv.reader(io.StringIO(run(f"--view={view}", trace, "--format", "csv").stdout)))
    own, head = table[0].split(), [name.removesuffix("_ns") for name in rows[0]]
    if view == "streams":
        assert (head, len(rows)) == (own, len(table) - 1)
    else:
        assert head == ["table", *own, "wall_overlap_all", "wall_exposed_all", "barrier"]
        assert [row[0] for row in rows[1:]] == ["rows"] * table[2:].index("") + ["ranks"] * 2
        assert rows[1][4:7] == ["4000", "1000", "0.75"]


def test_markdown(trace: Path) -> None:
    assert run("--view=overlap", trace, "--rank", "1", "--format", "markdown").stdout.startswith(
        "| rank | pid | stage | comm | exposed | overlap | overlap_min | overlap_max | comm_kernels |\n"
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| 1 | 100 | stage2_f | 4 us | 1 us | 75% | 75% | 75% | 1 |\n"
        "\nAll communication of a rank, "
    )


def test_html_is_a_page_that_escapes_what_a_trace_says(tmp_path: Path) -> None:
    gpu = TraceBuilder().process()
    gpu.kernel("<script>alert(1)</script>", 1_000, 5_000)
    path = gpu.trace.write(tmp_path / "run.sqlite")
    for view in ("kernels", "streams", "budget"):
        page = run(f"--view={view}", path, "--format=html", code=0).stdout
        assert page.startswith("<!doctype html>")
        assert page.rstrip().endswith("</html>")
        assert "<script" not in page
    assert 'class="n">4&nbsp;us</td>'.replace("&nbsp;", "\u00a0") in run("--view=kernels", path, "--format=html").stdout
    assert "<table>" in run("metrics", "--format=html", code=0).stdout


def test_explicit_window(trace: Path) -> None:
    found = answer("--view=overlap", trace, "--window", "20000:25000", "--kernels", "clipped")
    assert {(w["start"], w["end"], w["index"]) for w in found["windows"]} == {(20_000, 25_000, None)}
    assert {(row["exposed_ns"], row["comm_ns"]) for row in found["rows"]} == {(1_000, 3_000)}


def test_launched_window_is_bounded_by_its_kernels(trace: Path) -> None:
    (first, _) = answer("--view=ranks", trace, "--kernels", "launched")["windows"]
    assert (first["start"], first["end"]) == (20_000, 30_000)
    assert (first["gpu_start"], first["gpu_end"]) == (22_000, 28_500)


def test_steady_has_medians_of_its_windows(trace: Path) -> None:
    found = answer("--view=overlap", trace, "--window", "steady", "--rank", "1")
    assert [row["exposed_ns"] for row in found["rows"]] == [1_000]
    assert [window["index"] for window in found["windows"]] == [1, 2, 3]
    assert [row["index"] for row in answer("--view=ranks", trace, "--window=steady", "--rank=1")["rows"]] == [1, 2, 3]


def test_anchor_and_period(trace: Path) -> None:
    (row,) = answer("--view=ranks", trace, "--anchor", "layer%stage3_f", "--span", "period", "--rank", "0")["rows"]
    assert (row["start_ns"], row["end_ns"], row["count"]) == (21_000, 31_000, 5)


def test_kernels_without_a_stage_are_shown_on_demand(tmp_path: Path) -> None:
    gpu = TraceBuilder().process(pid=100)
    step(gpu, 0)
    gpu.range("pipeline send/recv", 9_000, 9_100)
    gpu.kernel(NCCL, 9_200, 9_700, stream=40, launch_ns=9_050)
    path = gpu.trace.write(tmp_path / "run.sqlite")
    assert [row["stage"] for row in answer("--view=overlap", path)["rows"]] == ["stage2_f"]
    assert [row["stage"] for row in answer("--view=overlap", path, "--where", "stage=none")["rows"]] == ["none"]
    both = answer("--view=overlap", path, "--where", "stage=none", "--where", "stage=stage2")["rows"]
    assert [row["stage"] for row in both] == ["none", "stage2_f"]
    nothing = run("--view=overlap", path, "--where", "stage=stage4", code=3)
    assert "no row has stage stage4; stages with a row: stage2_f" in nothing.stderr


def test_communication_without_any_stage_is_shown(trace: Path) -> None:
    own = trace.with_name("own.yaml")
    own.write_text("{extends: generic, anchor: forward%, stage: '(?P<stage>no_such)'}")
    options = ("--view=overlap", trace, "--convention", own)
    assert {row["stage"] for row in answer(*options)["rows"]} == {"none"}
    assert "wall_overlap_all" in run(*options, code=0).stdout


def test_a_convention_without_stages_shows_its_communication(trace: Path) -> None:
    rows = answer("--view=overlap", trace, "--convention", "generic", "--anchor", "forward%")["rows"]
    assert {row["stage"] for row in rows} == {"none"}
    assert (
        rows
        == answer("--view=overlap", trace, "--convention", "generic", "--anchor", "forward%", "--where=stage=none")[
            "rows"
        ]
    )


def test_trace_without_kernels(tmp_path: Path) -> None:
    gpu = TraceBuilder().process(pid=100)
    gpu.range(SETUP.format(0, 0), 10, 20)
    gpu.range(ANCHOR.format(0, 0), 30, 40, registered=True)
    path = gpu.trace.write(tmp_path / "run.sqlite")
    (row,) = answer("--view=ranks", path)["rows"]
    assert (row["pid"], row["rank"]) == (100, 0)
    run("--view=streams", path, code=3)


def test_unlabelled_ranks(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for pid in (300, 200):
        step(builder.process(pid=pid), 0)
    path = builder.write(tmp_path / "run.sqlite")
    assert [(r["pid"], r["rank"], r["setup"]) for r in answer("--view=ranks", path)["rows"]] == [
        (200, 0, None),
        (300, 1, None),
    ]
    assert run("--view=ranks", path).stdout.splitlines()[2].split()[:3] == [
        "0",
        "200",
        "forward",
    ]  # and no column of setups
    assert "note: no setup label" in run("--view=ranks", path).stderr


@pytest.mark.parametrize(
    "text",
    [
        "anchor: forward chunk%\nstage: (?P<stage>stage[0-9])\nkernels: clipped\n",
        "version: 1\nconvention: {anchor: forward chunk%, stage: '(?P<stage>stage[0-9])', kernels: clipped}\n",
    ],
)
def test_convention_from_a_file(trace: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "convention.yaml"
    path.write_text(text)
    found = answer("--view=overlap", trace, "--convention", path)
    assert found["kernels"] == "clipped"
    assert {row["stage"] for row in found["rows"]} == {"stage2"}


def test_communication_on_streams_that_compute_is_shown_by_the_figures_that_count_it(tmp_path: Path) -> None:
    """No communication stream, so no row by stage: the rows that programs get are those of the ranks."""
    gpu = TraceBuilder().process()
    gpu.kernel("ncclDevKernel_SendRecv", 1_000, 5_000, stream=27)
    gpu.kernel("cast", 6_000, 7_000, stream=27)
    asked = (gpu.trace.write(tmp_path / "alone.sqlite"), "--convention=generic", "--window=run")
    found = run("--view=overlap", *asked, code=0)
    assert found.stdout.splitlines()[1].split() == ["rank", "pid", "wall_overlap_all", "wall_exposed_all", "barrier"]
    assert found.stdout.splitlines()[3].split()[2:] == ["0%", "4", "us", "4", "us"]
    assert "the only communication kernel shares stream 27 with compute (4 us)" in found.stderr
    gpu.kernel("gemm", 1_000, 4_000, stream=7)
    asked = (gpu.trace.write(tmp_path / "two.sqlite"), *asked[1:])
    (rank,) = answer("--view=overlap", *asked)["rows"]
    assert (rank["wall_overlap_all"], rank["wall_exposed_all_ns"], rank["barrier_ns"]) == (0.75, 1_000, 4_000)
    said = run("--view=overlap", *asked).stderr
    assert "shares stream 27 with compute (4 us): only wall_exposed_all and wall_overlap_all count it" in said


@pytest.mark.parametrize(
    ("asked", "lacks"),
    [
        ((), True),
        (("--rank", "0", "--rank", "1"), True),
        (("--where", "stage=stage2"), True),
        (("--rank", "0"), False),
        (("--where", "stage=none"), False),
    ],
)
def test_a_rank_without_the_row_of_others_is_warned_of(tmp_path: Path, asked: tuple[str, ...], lacks: bool) -> None:
    """Its kernels of communication are gone; of those without a stage it has as many as the other."""
    builder = TraceBuilder()
    for rank, pid in ((0, 200), (1, 100)):
        gpu = builder.process(pid=pid, device=rank)
        gpu.range(SETUP.format(rank, rank), 10, 20)
        gpu.range(ANCHOR.format(0, 0), 1_000, 20_000)
        gpu.kernel(NCCL, 2_000, 3_000, stream=28, launch_ns=1_500)
        if rank == 0:
            gpu.range("layer00.stage2_f", 3_000, 4_000)
            gpu.kernel(NCCL, 4_000, 5_000, stream=28, launch_ns=3_500)
    result = run("--view=overlap", builder.write(tmp_path / "run.sqlite"), *asked, code=0)
    warned = "warning: overlap: rank 1 has no row, though rank 0 has" in result.stderr
    assert warned is lacks
    assert ("has no row" in result.stderr) is lacks


def test_json_holds_every_metric() -> None:
    rows = json.loads(run("metrics", "--format", "json").stdout)["rows"]
    assert [row["name"] for row in rows] == [*METRICS, SCOPE_TIME]
    overlap = next(row for row in rows if row["name"] == "overlap")
    assert (overlap["unit"], overlap["better"], overlap["dimensions"]) == ("%", "higher", ["rank", "stage"])
    assert overlap["definition"] == 1
    assert all(row["summary"] and "``" not in row["summary"] for row in rows)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_the_sentence_of_a_metric_can_be_written(metric: Metric) -> None:
    gate = GateFile(Path("g"), (), BUILT_IN_CONVENTIONS["pithtrain"])
    found = parse_sentence(format_example(metric), gate, Location(Path("g"), 1, 1))
    assert found.metric.removesuffix(OF_STEP_SUFFIX) == metric.name


def test_the_list_begins_with_what_a_first_gate_needs() -> None:
    said = run("metrics", code=0).stdout
    first, _, rest = said.partition("\n\n")
    each = zip(first.splitlines()[2:], FIRST_GATE_QUESTIONS.items(), strict=True)
    assert all(
        line.startswith(f"{format_example(METRICS[name])} ") and answers in line for line, (name, answers) in each
    )
    assert len(FIRST_GATE_QUESTIONS) == 10
    assert [line.split(":")[0] for line in rest.splitlines() if line[:1].isalpha()] == [
        *dict.fromkeys(metric.subject for metric in METRICS.values()),
        "program",
    ]
    assert all(
        format_spoken_name(metric) in rest.replace("\n ", "")
        for name, metric in METRICS.items()
        if name not in FIRST_GATE_QUESTIONS
    )
    assert max(map(len, said.splitlines())) <= 100
    rows = json.loads(run("metrics", "--format", "json").stdout)["rows"]
    assert [row["subject"] for row in rows] == [*(metric.subject for metric in METRICS.values()), "program"]
    assert METRICS["wall_overlap"].summary in run("metrics", "--all", code=0).stdout


def test_a_list_is_one_cell_of_csv() -> None:
    rows = csv.DictReader(io.StringIO(run("metrics", "--format", "csv").stdout))
    assert {row["name"]: row["dimensions"] for row in rows}["overlap"] == "rank stage"


def loaded_by(*arguments: str) -> set[str]:
    code = f"import sys; from pytest_nsys.cli import main; main({list(arguments)!r}, standalone_mode=False)"
    shown = f"{code}; print('modules:', *sys.modules)"
    output = subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True, text=True).stdout
    return set(output.rsplit("modules:", 1)[1].split())


def test_commands_are_imported_when_they_are_called() -> None:
    loaded = loaded_by("show", "--help")
    assert "pytest_nsys.cli.show" in loaded
    others = {"pytest_nsys.cli.rows", "pytest_nsys.cli.baseline", "jsonschema"}
    assert not loaded & {*others, "pytest_nsys.library", "pytest_nsys.verdicts", "multiprocessing"}


def test_help_and_version() -> None:
    assert "show" in run("--help").stdout
    assert run("--version").stdout.startswith("pytest-nsys ")
    for command in ("show", "metrics", "rows"):
        run(command, "--help", code=0)
