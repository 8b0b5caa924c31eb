"""Does ``--view config`` write one page per run, named after the traces' own time, over nothing else?"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.commands import run
from tests.support.reference_data import REAL
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder

MS = 1_000_000
NOON = 1_767_355_200_000_000_000
"""2026-01-02 12:00:00 UTC, in ns since 1970."""

CONFIG = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 1000
[parallelism]
data_parallel_replicate_degree = 2
tensor_parallel_degree = 1
"""
NAME = "20260102T120000Z_llama3_8B_dp2x1_tp1_gpu2.txt"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "llama3_8b.toml"
    path.write_text(CONFIG)
    return path


def write_run(folder: Path, *, base_ns: int | None = NOON, ranks: int = 2, late_us: int = 0) -> Path:
    """Steps of 100 ms: a gemm of 40 ms, and a sum of 1 MB in 10 ms of which rank 1 hides half, rank 0 nothing."""
    for rank in range(ranks):
        trace = KinetoBuilder(rank, ranks)
        if base_ns is not None:
            trace.members["baseTimeNanoseconds"] = base_ns
        for k in range(5):
            begin = 100 * MS * k
            trace.range(f"ProfilerStep#{k}", begin, begin + 90 * MS)
            trace.kernel("gemm", begin + MS, begin + 41 * MS, launch_ns=begin)
            start = begin + (41 - 5 * rank) * MS
            trace.kernel(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                start + 1_000 * late_us * rank,
                start + 10 * MS,
                stream=28,
                launch_ns=begin,
                **_record(ranks),
            )
        trace.write(folder / f"rank{rank}_trace.json.gz")
    return folder


def _record(ranks: int) -> dict[str, Any]:
    """What torch.profiler writes of a sum of 1 MB."""
    return {
        "Collective name": "allreduce",
        "In msg nelems": 250_000,
        "Out msg nelems": 250_000,
        "Group size": ranks,
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": str([*range(ranks)]),
    }


def report(*arguments: str | Path, code: int = 0) -> Result:
    """Run the command here."""
    return run("--view=config", *arguments, code=code)


PAGE = """\
run        run
began      2026-01-02 12:00:00 UTC
model      llama3_8B
parallel   dp 2x1, tp 1, pp 1, cp 1, ep 1
GPUs       2, of which 2 are in 2 files
looked at  window run, all kernels

Throughput
----------
step_time_ns   100 ms
samples_per_s  40 samples/s
tokens_per_s   40000 tokens/s
per GPU        20000 tokens/s

Overlap: share of the communication during which compute runs
-------------------------------------------------------------
average  25%
minimum  0% (rank 0)
maximum  50% (rank 1)

rank  overlap  exposed
0     0%       50 ms
1     50%      25 ms

Network load: bandwidth of the links (busbw) in GB/s
----------------------------------------------------
group       collective  kernels  time    average  median  minimum  maximum  of peak
default_pg  AllReduce   10       100 ms  0.1      0.1     0.1      0.1      50%

Traffic distribution
--------------------
group       collective  bytes  share
default_pg  AllReduce   10 MB  100%
all                     10 MB
"""


def test_the_page_of_a_run_which_may_be_written_again(tmp_path: Path, config: Path) -> None:
    run = write_run(tmp_path / "run")
    assert report(run, "--config", config, "--peak=0.2GB/s").stdout == PAGE
    for _ in range(2):
        done = report(run, "--config", config, "-o", tmp_path / "out", "--peak=0.2GB/s")
        assert done.stdout == f"{tmp_path / 'out' / NAME}\n"
        assert (tmp_path / "out" / NAME).read_text() == PAGE
    assert [path.name for path in tmp_path.rglob("*.txt")] == [NAME]


def test_the_straggler_is_named(tmp_path: Path, config: Path) -> None:
    report(write_run(tmp_path / "run", late_us=2_000), "--config", config, "-o", tmp_path)
    said = (tmp_path / NAME).read_text()
    assert "straggler of default_pg AllReduce: rank 1 waits 10 ms less than the longest" in said.replace(
        "10 ms", "10 ms"
    )


def test_nothing_is_written_over_other_content(tmp_path: Path, config: Path) -> None:
    run = write_run(tmp_path / "run")
    (tmp_path / NAME).write_text("mine")
    done = report(run, "--config", config, "-o", tmp_path, code=2)
    assert f"{tmp_path / NAME}: exists with other content" in done.output
    assert (tmp_path / NAME).read_text() == "mine"


def test_a_link_is_not_followed(tmp_path: Path, config: Path) -> None:
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere.txt")
    report(write_run(tmp_path / "run"), "--config", config, "-o", tmp_path, code=2)
    assert not (tmp_path / "elsewhere.txt").exists()


def test_each_iteration_of_torchtitan_is_a_run(tmp_path: Path, config: Path) -> None:
    for number, hour in ((10, 0), (2, 1)):
        write_run(tmp_path / "profile" / f"iteration_{number}", base_ns=NOON + hour * 3_600 * 10**9)
    done = report(tmp_path / "profile", "--config", config, "-o", tmp_path / "out")
    assert [Path(line).name[:16] for line in done.stdout.splitlines()] == ["20260102T130000Z", "20260102T120000Z"]


def test_runs_in_folders_of_one_second_are_told_apart(tmp_path: Path, config: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / "runs" / name)
    report(tmp_path / "runs", "--config", config, "-o", tmp_path / "out")
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == [NAME.replace(".txt", f"_{name}.txt") for name in ("a", "b")]


def test_an_unknown_time_has_a_name_of_its_own(tmp_path: Path, config: Path) -> None:
    report(write_run(tmp_path / "run", base_ns=None), "--config", config, "-o", tmp_path)
    (path,) = tmp_path.glob("*.txt")
    assert path.name == NAME.replace("20260102T120000Z", "time-unknown")
    assert "began      not known" in path.read_text()
    assert "- the time: no trace says when it was taken" in path.read_text()


def test_times_since_1970_need_no_base(tmp_path: Path, config: Path) -> None:
    trace = KinetoBuilder(0, 2)
    trace.kernel("gemm", NOON, NOON + 10)
    trace.write(tmp_path / "run" / "rank0.json")
    report(tmp_path / "run", "--config", config, "-o", tmp_path)
    assert (tmp_path / NAME).is_file()


def test_a_run_of_nsys_is_named_after_its_session(tmp_path: Path, config: Path) -> None:
    trace = TraceBuilder()
    for pid in (100, 101):
        trace.process(pid).kernel("gemm", 1_000, 2_000)
    trace.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=NOON + 999_999_999)
    path = trace.write(tmp_path / "a.sqlite")
    report(path, "--config", config, "-o", tmp_path)
    text = (tmp_path / NAME).read_text()
    assert "nothing communicates" in text
    assert "tokens_per_s   not known: " in text


def test_a_part_of_the_ranks_has_the_world_of_its_configuration(tmp_path: Path, config: Path) -> None:
    """An export of nsys does not say how many ranks there were; all degrees of the configuration do."""
    trace = TraceBuilder()
    process = trace.process(100)
    for k in range(5):
        process.range(f"step {k}", 100 * MS * k, 100 * MS * k + MS)
        process.kernel("gemm", 100 * MS * k + 10, 100 * MS * k + 20, launch_ns=100 * MS * k + 1)
    path = trace.write(tmp_path / "a.sqlite")
    config.write_text(CONFIG + "data_parallel_shard_degree = 2\n")
    said = report(path, "--config", config, "--convention=generic", "--anchor=step %").stdout
    for line in (
        "GPUs       4, of which 1 are in 1 file",
        "samples_per_s  80 samples/s",
        "per GPU        20000 tokens/s",
    ):
        assert line in said.splitlines(), said


def test_a_run_of_jax_is_named_after_its_folder(tmp_path: Path, config: Path) -> None:
    folder = tmp_path / "plugins" / "profile" / "2026_01_02_12_00_00"
    trace = JaxBuilder()
    for gpu in (0, 1):
        trace.kernel("gemm", 1_000, 2_000, device=gpu)
    trace.write(folder / "host.trace.json.gz")
    report(tmp_path, "--config", config, "-o", tmp_path)
    assert (tmp_path / NAME).is_file()


def of_the_config(text: str) -> Callable[[Path, Path], list[str | Path]]:
    def arguments(run: Path, config: Path) -> list[str | Path]:
        config.write_text(text)
        return [run, "--config", config]

    return arguments


def of_degrees(**degrees: int) -> Callable[[Path, Path], list[str | Path]]:
    return of_the_config("[parallelism]\n" + "".join(f"{name}_degree = {n}\n" for name, n in degrees.items()))


MAKE = "run: the parallel degrees of the configuration make"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (of_degrees(data_parallel_shard=8), f"{MAKE} 8 ranks, and the run has 2"),
        (of_degrees(data_parallel_shard=1), f"{MAKE} 1 rank, and the run has 2"),
        (lambda run, _: [run, "--config", run / "none.toml"], "none.toml: cannot be read: No such file or directory"),
        (of_the_config("[x"), "is not TOML"),
        (of_degrees(tensor_parallel=3), "2 ranks cannot be divided by the parallel degrees"),
        (lambda run, config: [run / "none", "--config", config], "none: there is no such file or folder"),
        (lambda run, config: [run, "--config", config, "--peak=fast"], "--peak: 'fast' is not a number"),
        (lambda run, config: [run, "--config", config, "--window=steady"], "--window steady is many windows"),
        (lambda run, config: [run, "--config", config, "-o", config], "llama3_8b.toml"),
        (lambda _, config: [config.parent / "empty", "--config", config], "empty: holds no trace"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, config: Path, arguments: Callable[[Path, Path], list[str | Path]], what: str
) -> None:
    (tmp_path / "empty").mkdir()
    done = report(*arguments(write_run(tmp_path / "run"), config), code=2)
    assert what in done.output
    assert len(done.output.splitlines()) == 1
    assert not [*tmp_path.glob("*.txt")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path, config: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o555)
    done = report(write_run(tmp_path / "run"), "--config", config, "-o", tmp_path / "out", code=2)
    assert "Permission denied" in done.output


@pytest.mark.reference
def test_a_real_trace(tmp_path: Path, config: Path) -> None:
    report(REAL / "hta_nccl_data.json.gz", "--config", config, "-o", tmp_path)
    (path,) = tmp_path.glob("*.txt")
    assert path.name == "20240523T001522Z_llama3_8B_dp2x1_tp1_gpu2.txt"
    text = path.read_text()
    assert "307 MB" in text
    assert "- no waits of group default_pg: it has 2 ranks, of which 1 are here" in text
