"""Does ``--view config`` tell throughput, overlap, network load and traffic of a run, as one report?"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.commands import run
from tests.support.reference_data import REAL
from tests.support.samples.builder import TraceBuilder
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


REPORT = """\
began                    model      gpus  traced  dp_replicate  dp_shard  tp  pp  cp  ep
-----------------------  ---------  ----  ------  ------------  --------  --  --  --  --
2026-01-02 12:00:00 UTC  llama3_8B     2       2             2         1   1   1   1   1

Throughput:
step_time  samples_per_s  tokens_per_s  tokens_per_s_per_gpu
---------  -------------  ------------  --------------------
   100 ms             40         40000                 20000

Overlap, the share of the communication during which compute runs:
rank  overlap  exposed
----  -------  -------
   0       0%    50 ms
   1      50%    25 ms

Network load and traffic of all ranks:
                                                          algbw  busbw   busbw  busbw  busbw
                                                           mean   mean  median    min    max
group       collective  group_size  count   size    time   GB/s   GB/s    GB/s   GB/s   GB/s
----------  ----------  ----------  -----  -----  ------  -----  -----  ------  -----  -----
default_pg  AllReduce            2     10  10 MB  100 ms    0.1    0.1     0.1    0.1    0.1

group       collective  utilisation  traffic_share
----------  ----------  -----------  -------------
default_pg  AllReduce           50%           100%

overlap: average 25%, minimum 0% (rank 0), maximum 50% (rank 1)
"""


def test_the_report_of_a_run_is_printed_or_written(tmp_path: Path, config: Path) -> None:
    run = write_run(tmp_path / "run")
    assert report(run, "--config", config, "--peak=0.2GB/s").stdout == REPORT
    assert report(run, "--config", config, "-o", tmp_path / "run.txt", "--peak=0.2GB/s").stdout == ""
    assert (tmp_path / "run.txt").read_text() == REPORT


def test_programs_read_the_same(tmp_path: Path, config: Path) -> None:
    said = json.loads(report(write_run(tmp_path / "run"), "--config", config, "--format=json").stdout)
    assert said["rows"][0]["model"] == "llama3_8B"
    assert said["throughput"] == [
        {"step_time_ns": 100 * MS, "samples_per_s": 40, "tokens_per_s": 40_000, "tokens_per_s_per_gpu": 20_000}
    ]
    (load,) = said["collectives"]
    assert (load["count"], load["bytes"], load["busbw_median"], load["traffic_share"]) == (10, 10_000_000, 0.1, 1)
    assert load["utilisation"] is None
    assert "note: no utilisation: --peak 400GB/s states the bandwidth of the network per GPU" in said["notes"]


def test_the_straggler_is_named(tmp_path: Path, config: Path) -> None:
    said = report(write_run(tmp_path / "run", late_us=2_000), "--config", config).stdout
    assert "straggler of default_pg AllReduce: rank 1 waits 10 ms less than the longest\n" in said


def test_each_iteration_of_torchtitan_is_a_run(tmp_path: Path, config: Path) -> None:
    for number in (10, 2):
        write_run(tmp_path / "profile" / f"iteration_{number}")
    assert "holds the traces of 2 steps" in report(tmp_path / "profile", "--config", config, code=2).stderr
    assert "llama3_8B" in report(tmp_path / "profile" / "iteration_2", "--config", config).stdout


def test_what_is_not_known_is_said(tmp_path: Path, config: Path) -> None:
    done = report(write_run(tmp_path / "run", base_ns=None), "--config", config)
    assert "began" not in done.stdout
    assert "note: no time: no trace says when it was taken" in done.stderr
    trace = TraceBuilder()
    for pid in (100, 101):
        trace.process(pid).kernel("gemm", 1_000, 2_000)
    done = report(trace.write(tmp_path / "a.sqlite"), "--config", config)
    assert "overlap: nothing communicates" in done.stdout
    assert "note: no tokens_per_s: " in done.stderr


def test_a_part_of_the_ranks_has_the_world_of_its_configuration(tmp_path: Path, config: Path) -> None:
    """An export of nsys does not say how many ranks there were; all degrees of the configuration do."""
    process = TraceBuilder().process(100)
    for k in range(5):
        process.range(f"step {k}", 100 * MS * k, 100 * MS * k + MS)
        process.kernel("gemm", 100 * MS * k + 10, 100 * MS * k + 20, launch_ns=100 * MS * k + 1)
    path = process.trace.write(tmp_path / "a.sqlite")
    config.write_text(CONFIG + "data_parallel_shard_degree = 2\n")
    said = report(path, "--config", config, "--convention=generic", "--anchor=step %", "--format=json").stdout
    (run,), (rates,) = (json.loads(said)[name] for name in ("rows", "throughput"))
    assert (run["gpus"], run["traced"]) == (4, 1)
    assert (rates["samples_per_s"], rates["tokens_per_s_per_gpu"]) == (80, 20_000)


def of_the_config(text: str) -> Callable[[Path, Path], list[str | Path]]:
    def arguments(run: Path, config: Path) -> list[str | Path]:
        config.write_text(text)
        return [run, "--config", config]

    return arguments


def of_degrees(**degrees: int) -> Callable[[Path, Path], list[str | Path]]:
    return of_the_config("[parallelism]\n" + "".join(f"{name}_degree = {n}\n" for name, n in degrees.items()))


MAKE = "rank0_trace.json.gz: the parallel degrees of the configuration make"


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
        (lambda run, config: [run, "--config", config, "--rank=0"], "the view config is of all ranks"),
        (lambda _, config: [config.parent / "empty", "--config", config], "empty: holds no trace"),
    ],
)
def test_mistakes(tmp_path: Path, config: Path, arguments: Callable[[Path, Path], list[str | Path]], what: str) -> None:
    (tmp_path / "empty").mkdir()
    done = report(*arguments(write_run(tmp_path / "run"), config), code=2)
    assert what in done.output
    assert len(done.output.splitlines()) == 1
    assert not [*tmp_path.glob("*.txt")]


@pytest.mark.reference
def test_a_real_trace(config: Path) -> None:
    done = report(REAL / "hta_nccl_data.json.gz", "--config", config)
    assert "307 MB" in done.stdout
    assert "no waits of group default_pg: it has 2 ranks, of which 1 are here" in done.stderr
