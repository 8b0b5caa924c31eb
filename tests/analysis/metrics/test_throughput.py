"""How many steps does a window hold, how long is one, and are samples and tokens per second those of the steps?"""

from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys import open_run
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import GateFileError, NothingMeasured, UsageMistake
from pytest_nsys.core.model import KernelsMode
from pytest_nsys.core.workload import Parallel, Workload
from pytest_nsys.gates.gate_file import parse_gate_file
from pytest_nsys.gates.workload_keys import read_torchtitan_config
from tests.support.gates import Project, write_trace
from tests.support.kernel_traces import steps_trace, sums
from tests.support.measure import captures, why
from tests.support.reference_data import DEEPSEEK, MORE, REAL
from tests.support.samples.builder import Process
from tests.support.samples.kineto import KinetoBuilder

MS = 1_000_000

NEW = """
[job]
description = "Llama 3 8B training"
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
global_batch_size = -1
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
pipeline_parallel_degree = 1
context_parallel_degree = 1
expert_parallel_degree = 8
"""

OLD = """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 2
seq_len = 8192
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
[experimental]
pipeline_parallel_degree = 1
context_parallel_degree = 1
"""


def torch_run(
    folder: Path, starts_ms: tuple[int, ...], ranks: int = 2, slower: int = 0, world: int | None = None
) -> Path:
    """Ranks whose steps begin at ``starts_ms``; each later rank's periods are ``slower`` ns longer than the last's."""
    for rank in range(ranks):
        trace = KinetoBuilder(rank, ranks if world is None else world)
        for k, start in enumerate(starts_ms):
            begin = start * MS + slower * rank * k
            trace.range(f"ProfilerStep#{1_000 + k}", begin, begin + MS)
            trace.kernel("gemm", begin + 100, begin + 500, launch_ns=begin + 50)
        trace.write(folder / f"rank{rank}_trace.json")
    return folder


def value(path: Path, metric: str, workload: Workload, window: str = "run", convention: str = "kineto") -> Any:
    with captures(path, convention=BUILT_IN_CONVENTIONS[convention], workload=workload) as run:
        found = run.measure_rows(METRICS[metric], run.make_spec(window))
    assert len(found.rows) == 1, found.no_row_reason
    assert found.rows[0].labels == ()
    return found.rows[0].value


why_none = partial(why, convention=BUILT_IN_CONVENTIONS["kineto"], window="run")


STATED = Workload(samples=64, sequence_length=8192)


def test_known_answers(tmp_path: Path) -> None:
    """Steps of 250 ms: 4 a second. The file counts a thousand of them, which says nothing."""
    run = torch_run(tmp_path / "run", (0, 250, 500, 750, 1_000, 1_250))
    assert value(run, "step_time_ns", STATED) == 250 * MS
    assert value(run, "samples_per_s", STATED) == 256
    assert value(run, "tokens_per_s", STATED) == 256 * 8192


def test_the_steady_steps_count(tmp_path: Path) -> None:
    """The first and the last quarter of the steps are left out."""
    run = torch_run(tmp_path / "run", (0, 900, 1_000, 1_100, 1_200, 1_300, 1_400, 3_000))
    assert value(run, "step_time_ns", STATED) == 100 * MS


def test_the_slowest_rank_counts(tmp_path: Path) -> None:
    run = torch_run(tmp_path / "run", (0, 100, 200, 300, 400), ranks=3, slower=5)
    assert value(run, "step_time_ns", STATED) == 100 * MS + 10


def test_steps_that_are_stated_divide_the_window(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.sqlite")
    stated = STATED._replace(steps=3)
    assert value(trace, "step_time_ns", stated, window="median", convention="pithtrain") == 5 * MS


def test_a_part_of_a_step_is_not_taken_for_a_step(tmp_path: Path) -> None:
    said = why(
        write_trace(tmp_path / "a.sqlite"),
        "tokens_per_s",
        convention=BUILT_IN_CONVENTIONS["pithtrain"],
        workload=STATED,
    )
    assert said.startswith("an anchor of the convention pithtrain is a part of a step")


@pytest.mark.parametrize(
    ("window", "kernels", "length"),
    [
        *((window, "contained", 4 * MS) for window in ("median", "first", "last", "steady", "0")),
        ("0:20000000", "contained", 4 * MS),
        *((window, "launched", 5 * MS) for window in ("median", "run")),
    ],
)
def test_a_single_step_is_its_window_or_its_range(tmp_path: Path, window: str, kernels: str, length: int) -> None:
    """Of the ranks the longest; kernels that are launched in it may end later."""
    for rank, end in enumerate((3 * MS, 4 * MS)):
        trace = KinetoBuilder(rank, 2)
        trace.range("ProfilerStep#7", 0, end)
        trace.kernel("gemm", 100, 5 * MS + 100, launch_ns=50)
        trace.kernel("gelu", 100, 190, launch_ns=30)
        trace.write(tmp_path / "run" / f"rank{rank}_trace.json")
    with captures(tmp_path / "run", convention=BUILT_IN_CONVENTIONS["kineto"], workload=STATED) as run:
        spec = run.make_spec(window, kernels=KernelsMode(kernels))
        assert [row.value for row in run.measure_rows(METRICS["step_time_ns"], spec).rows] == [length]
        assert [row.value for row in run.measure_rows(METRICS["samples_per_s"], spec).rows] == [
            Fraction(64 * 1_000 * MS, length)
        ]


@pytest.mark.parametrize(
    ("workload", "per_s"),
    [
        (Workload(samples=8, local_samples=99), 80),
        (Workload(local_samples=3, parallel=Parallel(shard=4)), 120),
        (Workload(local_samples=3, parallel=Parallel(replicate=2, shard=4)), 240),
        (Workload(local_samples=3, parallel=Parallel(replicate=2, tensor=4)), 3 * 8 * 10),  # of 32 ranks
        (Workload(local_samples=3, parallel=Parallel(tensor=2), world=6), 90),
    ],
)
def test_the_batch_of_all_replicas(tmp_path: Path, workload: Workload, per_s: int) -> None:
    assert value(torch_run(tmp_path / "run", (0, 100, 200), world=32), "samples_per_s", workload) == per_s


def test_the_setup_label_knows_replicas_and_sequence(tmp_path: Path) -> None:
    label = "rank={rank}; pp=0/1 dp={rank}/{ranks} cp=0/1 ep=0/1; mbs=1 seq=2048"
    trace = write_trace(tmp_path / "a.sqlite", label=label)
    stated = Workload(steps=1, local_samples=3)  # 15 ms
    found = value(trace, "tokens_per_s", stated, window="median", convention="pithtrain")
    assert found == Fraction(2 * 3 * 2048 * 1_000, 15)


UNDIVIDED = "2 ranks cannot be divided by the parallel degrees of the configuration"


@pytest.mark.parametrize(
    ("metric", "workload", "why"),
    [
        ("samples_per_s", Workload(), "no batch is stated: write workload: {samples: N}"),
        ("samples_per_s", Workload(local_samples=2), "the data-parallel degree is not known"),
        ("tokens_per_s", Workload(samples=2), "the tokens of a sample are not known"),
        ("samples_per_s", Workload(local_samples=2, parallel=Parallel(tensor=3)), f"{UNDIVIDED}, 3 together"),
        ("samples_per_s", Workload(local_samples=2, parallel=Parallel(shard=8)), f"{UNDIVIDED}, 8 together"),
    ],
)
def test_what_is_not_stated_is_said(tmp_path: Path, metric: str, workload: Workload, why: str) -> None:
    assert why_none(torch_run(tmp_path / "run", (0, 100, 200)), metric, workload=workload).startswith(why)


# -- the configuration of TorchTitan


def test_a_configuration_of_today_and_one_of_yesterday(tmp_path: Path) -> None:
    (tmp_path / "new.toml").write_text(NEW)
    (tmp_path / "old.toml").write_text(OLD)
    new, old = (read_torchtitan_config(tmp_path / name) for name in ("new.toml", "old.toml"))
    assert new == Workload(
        sequence_length=8192, local_samples=2, model="llama3_8B", parallel=Parallel(2, None, 4, 1, 1, 8)
    )
    assert old == new._replace(parallel=Parallel(2, None, 4, 1, 1, 1))


def test_the_oldest_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[training]\nbatch_size = 8\ndata_parallel_degree = 4\n[model]\nname = 'llama2'\n")
    assert read_torchtitan_config(tmp_path / "a.toml") == Workload(
        local_samples=8, parallel=Parallel(shard=4), model="llama2"
    )


def test_the_global_batch_is_that_of_all_replicas(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[training]\nlocal_batch_size = 8\nglobal_batch_size = 512\n")
    assert read_torchtitan_config(tmp_path / "a.toml").samples == 512


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[training\n", "is not TOML: Expected ']'"),
        ("", "has no table [training], [model] or [parallelism]: is it TorchTitan's?"),
        ("training = 3\n", "has no table [training], [model] or [parallelism]"),
        ("[training]\nseq_len = '8k'\n", "[training] seq_len is a whole number from 1 on, not '8k'"),
        ("[training]\nseq_len = -1\n", "[training] seq_len is a whole number from 1 on, not -1"),
        ("[training]\nlocal_batch_size = 0\n", "[training] local_batch_size is a whole number from 1 on, not 0"),
        ("[training]\nlocal_batch_size = true\n", "[training] local_batch_size is a whole number from 1 on, not True"),
        ("[training]\nglobal_batch_size = 0\n", "global_batch_size is a whole number from 1 on, or -1, not 0"),
        (
            "[parallelism]\ntensor_parallel_degree = 2.0\n",
            "tensor_parallel_degree is a whole number from 1 on, not 2.0",
        ),
        (
            "[parallelism]\ndata_parallel_shard_degree = -2\n",
            "data_parallel_shard_degree is a whole number from 1 on, or",
        ),
        (f"[training]\nx = {'[' * 5_000}\n", "is not TOML"),
    ],
)
def test_a_configuration_that_cannot_be_meant(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(UsageMistake) as caught:
        read_torchtitan_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"#" * ((1 << 20) + 1), "is larger than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: bytes | None, what: str) -> None:
    path = tmp_path / "a.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageMistake, match=what):
        read_torchtitan_config(path)


# -- the gate file


def gate_workload(tmp_path: Path, text: str) -> Workload:
    path = tmp_path / "gates" / "a.nsys.yaml"
    path.parent.mkdir(exist_ok=True)
    content = f"version: 1\n{text}\nassertions: [tokens_per_s >= 1tokens/s]\n"
    return parse_gate_file(content, path=path).workload


def test_the_gate_file_names_a_configuration_beside_it(tmp_path: Path) -> None:
    (tmp_path / "llama.toml").write_text(NEW)
    found = gate_workload(tmp_path, "workload: {config: ../llama.toml, peak: 400GB/s}")
    assert [found.local_samples, found.sequence_length, found.peak_gb_per_s] == [2, 8192, 400]


def test_what_the_gate_file_states_counts_first(tmp_path: Path) -> None:
    (tmp_path / "llama.toml").write_text(NEW.replace("global_batch_size = -1", "global_batch_size = 512"))
    config = "config: ../llama.toml"
    assert gate_workload(tmp_path, f"workload: {{{config}}}").samples == 512
    assert gate_workload(tmp_path, f"workload: {{samples: 7, {config}}}").samples == 7
    assert gate_workload(tmp_path, f"workload: {{{config}}}\nrun: {{sequence_length: 100}}").sequence_length == 100
    local = gate_workload(tmp_path, f"workload: {{local_samples: 3, {config}}}")
    assert (local.samples, local.local_samples) == (None, 3)
    assert gate_workload(tmp_path, f"workload: {{data_parallel: 3, {config}}}").parallel == Parallel(shard=3)


def test_a_mistake_in_the_configuration_is_one_of_the_gate_file(tmp_path: Path) -> None:
    with pytest.raises(GateFileError) as caught:
        gate_workload(tmp_path, "workload: {config: missing.toml}")
    (mistake,) = caught.value.mistakes
    assert mistake.text.endswith("missing.toml: cannot be read: No such file or directory")
    assert (mistake.file, mistake.line, mistake.column) == (str(tmp_path / "gates" / "a.nsys.yaml"), 2, 20)


def test_a_gate_on_throughput(project: Project) -> None:
    torch_run(project.root / "run", (0, 250, 500, 750, 1_000), world=2)
    project.file("llama.toml", NEW.replace("tensor_parallel_degree = 4", "tensor_parallel_degree = 1"))
    project.gate(
        """\
        convention: kineto
        trace: run
        workload: {config: llama.toml}
        assertions:
          - tokens_per_s >= 131072tokens/s
          - tokens_per_s >= 131073tokens/s
          - step_time_ns <= 250ms
        """
    )
    first, second, third = project.cases(code=1).values()
    assert [case.state for case in (first, second, third)] == ["passed", "failure", "passed"]
    assert "131072 tokens/s" in second.text


def test_a_baseline_of_another_batch_is_incomparable(project: Project) -> None:
    torch_run(project.root / "run", (0, 250, 500, 750, 1_000), world=2)
    gate = "convention: kineto\ntrace: run\nworkload: {{samples: {}}}\nassertions: [samples_per_s >= baseline]"
    project.gate(gate.format(8))
    project.refresh()
    project.pytest(code=0)
    project.gate(gate.format(16))
    assert "batch" in project.pytest(code=1)


def test_steps_are_stated_or_the_anchors_of_the_window(tmp_path: Path) -> None:
    path = steps_trace(tmp_path / "a.sqlite", 0, 100, 200, 300, ranks=2)
    for window, steps in (("run", 4), ("median", 1), ("first", 1), ("100:280", 2), ("step%", 1)):
        with sums(path, window=window) as found:
            assert (found.step_count, found.total.time_ns, found.total.launches) == (steps, 60, 1), window
    with sums(path, steps=3) as found:
        assert (found.step_count, found.total.time_ns) == (3, 80)


def anchorless(rank: int, process: Process) -> None:
    if rank:
        process.range("step 9", 900, 980)


@pytest.mark.parametrize(
    ("window", "why", "trace"),
    [
        ("run", "the window holds no anchor", {"starts": ()}),
        ("85:98", "the window holds no anchor", {}),
        ("0:130", "the window cuts an anchor", {}),
        ("run", "the ranks have from 3 to 4 anchors in the window", {"edit": anchorless}),
    ],
)
def test_steps_are_never_guessed(tmp_path: Path, window: str, why: str, trace: dict[str, Any]) -> None:
    def edit(rank: int, process: Process) -> None:
        process.kernel("gemm", 90, 95)
        trace.get("edit", lambda *_: None)(rank, process)

    path = steps_trace(tmp_path / "a.sqlite", *trace.get("starts", (0, 100, 200)), ranks=2, edit=edit)
    with sums(path, window=window) as found, pytest.raises(NothingMeasured) as error:
        _ = found.step_count
    said = str(error.value)
    assert said.startswith(f"{path}: {why}, so the number of steps in it is unknown; set ")
    assert "--steps N" in said
    with sums(path, window=window, steps=5) as found:
        assert found.step_count == 5


def test_the_step_is_timed_on_anchors_but_the_one_after_the_window(tmp_path: Path) -> None:
    """What was recorded of the window is written while the next step runs, which takes longer."""
    path = steps_trace(tmp_path / "a.sqlite", 0, 100, 200, 350, 450, 550)
    with sums(path) as found:
        assert found.step_time == (100, 4), "of 100, 150, 100 and 100"
    with sums(path, window="1") as found:
        assert found.step_time == (100, 3)
    with sums(path, window="1", step_time_ns=77) as found:
        assert found.step_time == (77, None)
    slow = steps_trace(tmp_path / "b.sqlite", 0, 100, 200, 390)
    with sums(slow, window="1") as found:
        assert found.step_time == (100, 1), "anchor 2, of 190 ns, is the one after; 1 alone is steady besides"


def test_an_anchor_that_is_no_step_times_none(tmp_path: Path) -> None:
    path = steps_trace(tmp_path / "a.sqlite", 0, 100, 200)
    with sums(path, steps=1) as found:
        assert found.step_time is None
    with sums(path, steps=3) as found:
        assert found.step_time is not None


@pytest.mark.reference
@pytest.mark.parametrize(
    ("path", "length"),
    [
        (MORE / "b200_vllm_eager.json.gz", 83_649_731),  # of one step, as the next of vLLM
        (MORE / "hta_ns_resolution.json.gz", 95_664_027),
        (MORE / "vllm_prefilldecode_piecewise.json.gz", 156_353_058),
        (REAL / "hta_nccl_data.json.gz", 220_893_483),
        (REAL / "hta_sampled_rank-0.json.gz", 606_564_000),
        (REAL / "jax_te_attn.trace.json.gz", 2_526_769),
        (DEEPSEEK, 128_537_000),  # of one step
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
@pytest.mark.sampled(3)
def test_the_step_of_real_traces(path: Path, length: Fraction) -> None:
    with open_run(path) as run:
        assert [row.value for row in run.rows("step time")] == [length]


@pytest.mark.reference
def test_blocks_of_a_real_trace_are_no_steps() -> None:
    with open_run(REAL / "mfu_2gpu_before.sqlite") as run, pytest.raises(NothingMeasured, match="names no anchor"):
        run.rows("step time")
