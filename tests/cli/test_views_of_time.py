"""The view ``kernels``: what it prints in every format, of several files, and what it says of mistakes.

And ``budget``: a step with known truth in every format, its bars, and what it says where less is known.
"""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_nsys.cli import main
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.families import FAMILIES, list_zero_families
from tests.support.commands import answer, run, screen
from tests.support.kernel_traces import steps_trace, written
from tests.support.measure import rows
from tests.support.one_process import OneProcess
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.known_step import BLOCKS, COPIES, LATE, STALLS, US, known_step
from tests.support.samples.odd_rows import graph_trace


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str | Path, code: int) -> str:
    """What a command prints, its notes after its answer; of JSON the answer alone."""
    done = run(*words, code=code)
    return done.stdout if "--format=json" in words else done.stdout + done.stderr


def table_of(said: str, caption: str = "Kernels") -> list[list[str]]:
    """The rows of the table below a caption, without its head."""
    lines = said.partition(caption)[2].splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("---"))
    return [line.split() for line in lines[rule + 1 : lines.index("", rule)]]


@pytest.mark.parametrize(("window", "of"), [("median", "step"), ("ProfilerStep#%", "step"), ("block%", "window")])
def test_shares_are_of_a_step_where_a_framework_says_so(folder: Path, window: str, of: str) -> None:
    trace = KinetoBuilder()
    for step in range(6):
        start = 10_000 * step
        trace.range(f"ProfilerStep#{step}", start, start + 9_000)
        trace.range(f"block{step}", start + 500, start + 4_000)
        trace.kernel("gemm", start + 1_000, start + 8_000, launch_ns=start + 600)
    path = trace.write(folder / "run.json")
    said = command("--view=kernels", path, f"--window={window}", "--steps=1", code=0)
    assert f"shares               of {of}: " in said
    assert f" of {of} " in command("show", path, f"--window={window}", code=0)


def test_command_prints_what_was_divided_by_what_and_the_families(folder: Path) -> None:
    path = steps_trace(folder / "run.sqlite", 0, 100, 200, ranks=2)
    said = command("--view=kernels", path, "--steps=3", "--step-time=50ns", code=0)
    for line in (
        "trace files          1",
        "GPUs                 2 (2 per file)",
        "steps                3 (stated)",
        "divisor              6 = 2 GPUs x 3 steps",
        "launcher             1-process-per-node",
        "looked at            window run, all kernels",
        "shares               of run: of 260 ns, the mean over the ranks; of kernels: of total kernel",
        "total kernel         60 ns per GPU and step",
        "step - total kernel  −10 ns (of 50 ns, stated)",
    ):
        assert line in said.splitlines(), line
    assert table_of(said) == [["gemm", "gemm", "60", "ns", "69.2%", "100%", "1", "60", "ns"]]
    assert table_of(said, "Families") == [["gemm", "60", "ns", "69.2%", "100%", "1"]]
    found = answer("--view=kernels", path, "--steps=3")["families"]
    assert found[0] == {
        "family": "gemm",
        "family_ns": 60,
        "of_window": 0.6923076923076923,
        "share": 1.0,
        "family_launches": 1,
    }
    assert found[1] == {"family": "nccl", "family_ns": 0, "of_window": 0.0, "share": 0.0, "family_launches": 0}
    assert len(found) == len(list_zero_families(FAMILIES))


def test_kernels_are_those_of_the_first_screen(folder: Path) -> None:
    """Of the same window: the median step, and of a run without steps all of it."""
    path = steps_trace(folder / "run.sqlite", 0, 100, 300, 400, 500, ranks=2)
    options = (path, "--anchor=step%")
    (largest,) = screen(*options).kernels.largest
    found = answer("--view=kernels", *options)
    (row,) = found["rows"]
    assert (row["time_ns"], row["launches"]) == (largest.ns, largest.launch_count)
    assert row["of_window"] == float(largest.share)
    assert (found["steps"], found["steps_counted"], found["divisor"]) == (1, "the window is one", 2)
    assert answer("--view=kernels", *options, "--window=run")["steps_counted"] == "anchors"
    assert answer("--view=kernels", *options, "--steps=2")["divisor"] == 4  # so many has the run
    steady = ("--view=budget", *options, "--window=steady")
    assert "each rank shows one: that with the median time without compute" in command(*steady, code=0)
    assert "each rank shows one" not in command(*steady[:-1], code=0)
    written(folder / "one.sqlite", [(0, 0, "gemm", 0, 30), (0, 0, "gemm", 50, 30)])
    said = command("--view=kernels", "one.sqlite", code=0)
    assert re.search("steps +1 .the whole run counts as one.\n", said)


def test_the_rest_of_the_step_is_told_and_not_judged(folder: Path) -> None:
    """What held the step back the budget says."""
    path = steps_trace(folder / "run.sqlite", 0, 100, 200)
    for time, rest in {"61ns": "1 ns", "60ns": "0 ns", "59ns": "−1 ns"}.items():
        said = command("--view=kernels", path, "--steps=3", f"--step-time={time}", code=0)
        assert f"step - total kernel  {rest} (of {time.replace('ns', ' ns')}, stated)" in said.splitlines()
    timed = command("--view=kernels", path, "--anchor=step%", "--window=run", code=0)
    assert "(of 100 ns, the median of 2 steady periods without that after the window)" in timed
    assert "kernels outside of them are counted with them: --steps says otherwise" in timed


def test_command_shows_the_single_kernels_of_a_family(folder: Path) -> None:
    path = written(
        folder / "run.sqlite",
        [(0, 0, "gemm_a", 0, 30), (0, 0, "gemm_b", 50, 70), (0, 0, "gemm_a", 200, 10), (0, 0, "what", 300, 40)],
    )
    said = command("--view=kernels", path, "--steps=2", "--where=family=gemm", code=0)
    assert table_of(said) == [
        ["gemm_b", "gemm", "35", "ns", "20.6%", "46.7%", "0.5", "70", "ns"],
        ["gemm_a", "gemm", "20", "ns", "11.8%", "26.7%", "1", "20", "ns"],
    ]
    assert table_of(said, "Families") == [["gemm", "55", "ns", "32.4%", "73.3%", "1.5"]]
    whole = table_of(command("--view=kernels", path, "--steps=2", code=0))
    assert [row[:2] for row in whole] == [["gemm_b", "gemm"], ["gemm_a", "gemm"], ["what", "other"]]
    assert table_of(command("--view=kernels", path, "--steps=2", "--where=family=other", code=0))[0][0] == "what"
    said = command("--view=kernels", path, "--steps=2", "--where=family=nccl", code=3)
    assert "no row has family nccl; families with a row: gemm, other" in said
    said = command("--view=kernels", path, "--steps=2", "--where=family=gemmm", code=3)
    assert "no row has family gemmm (did you mean 'gemm'?)" in said


def test_a_window_by_its_times_is_one_and_is_what_is_shown(folder: Path) -> None:
    """Also where it cuts an anchor: of nothing else, and without a word of steps from who asks."""
    path = steps_trace(folder / "run.sqlite", 0, 100, 200)
    largest = screen(path, "--window=110:230").kernels.largest
    view = json.loads(command("--view=kernels", path, "--window=110:230", "--format=json", code=0))
    assert view["looked_at"] == "window 110:230, kernels contained"
    assert (view["steps"], view["steps_counted"]) == (1, "the window counts as one")
    assert [(row["time_ns"], row["of_window"]) for row in view["rows"]] == [
        (kernel.ns, float(kernel.share)) for kernel in largest
    ]
    assert "note: the window counts as one step: --steps N divides by N" in view["notes"]


def test_a_range_on_the_cpu_and_what_is_measured_of_it_have_a_name_each(folder: Path) -> None:
    """A queue that is 400 ns behind: a step of the host begins 500 ns before the GPU is at it."""
    gpu = TraceBuilder().process()
    for n in range(5):
        gpu.range("step", 1_000 * n, 1_000 * n + 90)
        for start in (500, 620):
            gpu.kernel("gemm", 1_000 * n + start, 1_000 * n + start + 30, launch_ns=1_000 * n + 20)
    path = gpu.trace.write(folder / "late.sqlite")
    asked = (path, "--convention=generic", "--anchor=step", "--kernels=launched")
    (row,) = json.loads(command("--view=ranks", *asked, "--format=json", code=0))["rows"]
    (measured,) = json.loads(command("rows", "window_ns", *asked, "--format=json", code=0))["rows"]
    assert (row["start_ns"], row["end_ns"]) == (2_000, 3_000)
    assert (row["length_ns"], row["window_ns"]) == (1_000, 1_000) == (1_000, measured["window_ns"])
    assert "range (CPU)  window (GPU)" in command("--view=ranks", *asked, code=0)
    assert "step 1 us" in command("show", *asked, code=0)
    assert "window (GPU)" not in command("--view=ranks", *asked[:-1], code=0)


def test_command_in_every_format(folder: Path) -> None:
    path = steps_trace(folder / "run.sqlite", 0, 100, 200)
    head, first, *others = command("--view=kernels", path, "--steps=2", "--format=csv", code=0).splitlines()
    assert (head, first) == (
        "table,kernel,family,time_ns,of_window,share,launches,mean_ns,family_ns,family_launches",
        "rows,gemm,gemm,90,0.6923076923076923,1.0,1.5,60,,",
    )
    assert "families,,gemm,,0.6923076923076923,1.0,,,90,1.5" in others
    told = command("--view=kernels", path, "--steps=2", "--format=markdown", code=0)
    assert "| gemm | gemm | 90 ns | 69.2% | 100% | 1.5 | 60 ns |" in told
    assert "| gemm | 90 ns | 69.2% | 100% | 1.5 |" in told
    assert "- divisor 2 = 1 GPU x 2 steps" in told
    found = json.loads(command("--view=kernels", path, "--steps=2", "--step-time=100ns", "--format=json", code=0))
    assert {name: found[name] for name in ("gpus", "steps", "divisor", "total_kernel_ns", "step_minus_kernel_ns")} == {
        "gpus": 1,
        "steps": 2,
        "divisor": 2,
        "total_kernel_ns": 90,
        "step_minus_kernel_ns": 10,
    }
    (row,) = found["rows"]
    assert row.items() >= {"kernel": "gemm", "family": "gemm", "time_ns": 90, "share": 1.0, "launches": 1.5}.items()
    assert (found["steps_counted"], found["window_ns"]) == ("stated", 260)


def test_command_takes_several_files_for_one_run_and_each_once(folder: Path) -> None:
    for number in (1, 2):
        written(folder / f"n{number}.sqlite", [(number, 0, "gemm", 0, 10 * number)])
    said = command("--view=kernels", "n1.sqlite", "n2.sqlite", "--steps=1", code=0)
    assert re.search("trace files +2\n", said)
    assert table_of(said)[0] == ["gemm", "gemm", "15", "ns", "100%", "100%", "1", "15", "ns"]
    assert "is given twice: one process would count twice; give each file of the run once" in command(
        "--view=kernels", "n1.sqlite", "n?.sqlite", "--steps=1", code=2
    )


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (
            ("--convention=generic", "--window=run"),
            3,
            "the window holds no anchor, so the number of steps in it is unknown",
        ),
        (("--steps=0",), 2, "'--steps'"),
        (("--steps=1", "--step-time=3"), 2, "--step-time is a time, as in 412ms, not '3'"),
        (("--steps=1", "--step-time=fast"), 2, "--step-time: 'fast' is not a number"),
        (
            ("--steps=1", "--families=amd"),
            2,
            "'amd' is no table of families and no file; a file has a line for each family: attention: [",
        ),
        (("--steps=1", "--families=bad.yaml"), 2, "bad.yaml:1:1: 'other' cannot be defined as a family"),
        (("--steps=1", "--families=empty.yaml"), 2, "empty.yaml:1:1: "),
        (("--steps=1", "--window=steady"), 2, "--window steady is many windows"),
    ],
)
def test_mistakes_of_the_command(folder: Path, options: tuple[str, ...], code: int, said: str) -> None:
    written(folder / "run.sqlite", [(0, 0, "gemm", 0, 10)])
    Path("bad.yaml").write_text("other: x*\n")
    Path("empty.yaml").write_text("")
    assert said in command("--view=kernels", "run.sqlite", *options, code=code)


def test_families_of_a_file_and_of_a_format(folder: Path) -> None:
    written(folder / "run.sqlite", [(0, 0, "gemm", 0, 10), (0, 0, "\x1b[31mred", 20, 10)])
    Path("mine.yaml").write_text("all of it: '*'\n")
    said = command("--view=kernels", "run.sqlite", "--steps=1", "--families=mine.yaml", code=0)
    assert re.search("families +its own\n", said)
    assert table_of(said, "Families")[0] == ["all", "of", "it", "20", "ns", "66.7%", "100%", "2"]
    assert "\x1b" not in command("--view=kernels", "run.sqlite", "--steps=1", "--where=family=other", code=0)
    jax = JaxBuilder()
    jax.kernel("loop_reduce_fusion", 100, 400)
    jax.write(folder / "h.trace.json.gz")
    said = command("--view=kernels", "h.trace.json.gz", "--steps=1", code=0)
    assert table_of(said, "Families")[0][0] == "loop_reduce_fusion"
    assert not re.search("^families ", said, re.MULTILINE)


def test_a_cut_counts_the_files_that_it_is_of(folder: Path) -> None:
    (folder / "run").mkdir()
    for number in range(3):
        trace = TraceBuilder()
        process = trace.process(pid=100 + number)
        process.range("step 0", 0, 80)
        process.kernel("gemm", 10, 70, launch_ns=1)
        trace.write(folder / "run" / f"rank{number}.sqlite")
    options = ("--convention=generic", "--anchor=step %", "--window=median")
    command("cut", "run", *options, "-o", "cut.sqlite", code=0)
    whole, cut = (command("--view=kernels", trace, *options, code=0).splitlines() for trace in ("run", "cut.sqlite"))
    at = next(i for i, line in enumerate(whole) if re.fullmatch("trace files +3", line))
    assert whole[at : at + 5] == cut[at : at + 5]
    assert re.fullmatch("GPUs +3 .1 per file.", whole[at + 1])


@pytest.fixture
def step(gpu: OneProcess) -> Path:
    """A trace of the known step."""
    known_step(gpu)
    return Path(gpu)


def test_a_step_with_known_truth(step: Path) -> None:
    done = run("--view=budget", step, code=0)
    first, legend, empty, *_ = done.stdout.splitlines()
    assert first == "rank 0  " + "█" * 54 + "·" * 3 + "▓" * 3 + "  10 ms"
    assert legend.startswith("█ compute  · launch-starved  ─ between steps  ▓ blocked  ▒ in comm ")
    assert empty == ""
    words = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        "rank part time share throughput gain",
        "0 window 10 ms 100% -",
        "0 compute 8.95 ms 89.5% -",
        "0 without compute 1.05 ms 10.5% 11.7%",
        "0 launch-starved 0.5 ms 5% 5.26%",
        "0 blocked by collective 0.3 ms 3% 3.09%",
        "0 blocked by copy 0.2 ms 2% 2.04%",
        "0 stalled 0.05 ms 0.5% 0.503%",
        "0 communication alone 0.3 ms 3% -",
        "0 device idle 0.55 ms 5.5% -",
        "rank 0: stage4_b ncclDevKernel_SendRecv blocks grouped_gemm for 0.3 ms in 1 gap",
        "rank 0: copy blocks gelu for 0.2 ms in 1 gap",
        "rank 0: launch-starved before adam for 0.5 ms in 1 gap",
        "rank 0: stalled before layer_norm for 0.05 ms in 1 gap",
    ):
        assert line in words, line
    assert "note: window median, kernels contained" in done.stderr
    assert "(without 10.5% of it: 11.7% more)" in done.stdout
    assert "lower bound" not in done.stderr
    assert "\x1b" not in done.stdout  # colour is for terminals


def test_programs_get_nanoseconds(step: Path) -> None:
    found = answer("--view=budget", step)
    (row,) = found["budgets"]
    assert row["rank"] == 0
    parts = {(line["part"], line["bound"]): line["time_ns"] for line in found["rows"]}
    assert (parts["launch-starved", ""], parts["blocked by collective", ""]) == (LATE, BLOCKS)
    assert row["blocking_ns"] == {"collective": BLOCKS, "copy": COPIES, "memset": 0, "other_device": 0}
    assert (row["launch_starved_ns"], row["dependency_stalled_ns"]) == (LATE, STALLS)
    assert row["blocking_comm_ns"] == {"stage4_b": BLOCKS}
    assert (row["blocking_comm_max_ns"], row["at_least"]) == (BLOCKS, False)
    assert (row["waits"], row["waits_joined"]) == (1, 1)
    assert row["ceilings"]["launch-starved"] == 0.5 / 9.5
    assert row["producers"][0] == {
        "kind": "collective",
        "name": "ncclDevKernel_SendRecv",
        "stage": "stage4_b",
        "waiting": "grouped_gemm",
        "ns": BLOCKS,
        "gaps": 1,
    }
    assert found["windows"][0]["end"] == 10_000 * US
    head, *lines = run("--view=budget", step, "--format=csv", code=0).stdout.splitlines()
    assert head == "rank,part,bound,time_ns,share,ceiling"
    assert f"0,blocked by collective,,{BLOCKS},0.03," in "\n".join(lines)
    told = run("--view=budget", step, "--format=markdown", code=0).stdout
    assert told.startswith("```text\nrank 0  █")
    assert "| 0 | blocked by copy | 0.2 ms | 2% | 2.04% |" in told
    assert "- rank 0: copy blocks gelu for 0.2 ms in 1 gap" in told


def test_the_figures_are_those_of_the_metrics(step: Path) -> None:
    (row,) = answer("--view=budget", step)["budgets"]
    for part in ("device_busy", "compute_absent", "launch_starved", "dependency_stalled", "blocking_comm_max"):
        metric = f"{part}_ns"
        assert rows(step, metric, convention=BUILT_IN_CONVENTIONS["pithtrain"]) == {0: row[metric]}


def test_of_several_windows_each_rank_shows_the_lower_median(tmp_path: Path) -> None:
    gpu = OneProcess(tmp_path / "steps.sqlite")
    for step, late in enumerate((100, 100, 700, 300, 400, 500, 100, 100)):
        known_step(gpu, 20_000 * step * US, late * US)
    found = answer("--view=budget", Path(gpu), "--window=steady")
    assert [row["launch_starved_ns"] for row in found["budgets"]] == [400 * US]
    assert [window["index"] for window in found["windows"]] == [4]


def test_other_windows_and_ranks(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid in (100, 200):
        gpu = trace.process(pid=pid)
        gpu.range("step", 0, 1_000)
        gpu.kernel("gemm", 0, pid, launch_ns=-9_000)
        gpu.kernel("gemm", 900, 1_000, launch_ns=-5_000)
    path = trace.write(tmp_path / "two.sqlite")
    first, second = answer("--view=budget", path, "--anchor=step")["budgets"]
    assert (first["compute_busy_ns"], second["compute_busy_ns"]) == (200, 300)
    (only,) = answer("--view=budget", path, "--rank=1", "--window=0:950", "--kernels=clipped")["budgets"]
    assert (only["rank"], only["window_ns"], only["compute_busy_ns"]) == (1, 950, 250)
    assert "there is no rank 7" in run("--view=budget", path, "--rank=7", "--anchor=step", code=2).output


def test_what_is_unknown_is_said(tmp_path: Path) -> None:
    trace = KinetoBuilder(rank=None)
    trace.range("ProfilerStep#1", 0, 100_000)
    trace.kernel("gemm", 0, 10_000, launch_ns=-20_000)
    trace.kernel("ncclDevKernel_SendRecv", 10_000, 80_000, stream=20, launch_ns=-15_000)
    trace.kernel("gemm", 80_000, 100_000, launch_ns=-10_000)
    done = run(
        "--view=budget", trace.write(tmp_path / "run.json.gz"), "--convention=kineto", "--kernels=clipped", code=0
    )
    words = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert words[0] == "rank 0 " + "█" * 18 + "▒" * 42 + " 100 us"
    assert "0 blocked by collective at least 0 us 0% 0%" in words
    assert "0 blocked by collective at most 70 us 70% 233%" in words
    assert "0 stalled during communication at most 70 us 70% 233%" in words
    assert "blocked and stalled are bounds: the trace records no stream waits" in done.stderr


def test_a_graph_that_was_traced_whole_has_no_budget(gpu: OneProcess) -> None:
    gpu.range("step", 0, 1_000)
    gpu.kernel("gemm", 0, 100)
    graph_trace(gpu, 200, 300)
    done = run("--view=budget", Path(gpu), "--anchor=step", code=3)
    assert "rank 0 has no budget: a CUDA graph in the window was traced whole" in done.output
    assert "--cuda-graph-trace=node" in done.output


def test_a_window_that_takes_no_time_has_no_budget(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 50, 50, launch_ns=10)
    said = run("--view=budget", Path(gpu), "--window=run", code=3).output
    assert "rank 0 has no budget: the window takes no time" in said


def test_a_rank_without_a_budget_leaves_the_others_theirs(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid in (100, 200):
        gpu = trace.process(pid=pid)
        gpu.range("step", 0, 1_000)
        gpu.kernel("gemm", 0, 400, launch_ns=-5_000)
    graph_trace(gpu, 500, 600)
    done = run("--view=budget", trace.write(tmp_path / "two.sqlite"), "--anchor=step", code=0)
    assert "rank 0 " in done.stdout
    assert "rank 1 " not in done.stdout
    assert "note: rank 1 has no budget: a CUDA graph in the window was traced whole" in done.stderr


def test_a_terminal_without_blocks_gets_ascii(step: Path) -> None:
    done = CliRunner(charset="ascii").invoke(main, ["--view=budget", str(step)])
    assert done.stdout.splitlines()[0] == "rank 0  " + "#" * 54 + "." * 3 + "X" * 3 + "  10 ms"
    assert done.stdout.isascii()
