"""Two processes on one GPU, as under MPS: are they told, and is the GPU counted once?"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_nsys.analysis.facts.kinds import measure_facts
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.workload import Workload
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.measure import captures
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.rocpd import RocpdBuilder
from tests.support.samples.schema import Cell

LABEL = "rank={rank}; pp=0/1 dp={rank}/2 cp=0/1 ep=0/1; mbs=1 seq=2048"
PLAIN = replace(BUILT_IN_CONVENTIONS["generic"], anchor="step%")
MODEL = "NVIDIA H100 80GB HBM3"


def worker(trace: TraceBuilder, pid: int, label: str = "", gpu: int = 0, device: int = 0, **uuid: Cell) -> None:
    """A process with a kernel of 2 us a step, on a device that it calls so."""
    process = trace.process(pid=pid)
    if label:
        process.range(label, 1, 2)
    for step in range(5):
        process.range("step", 10_000 * step + 10, 10_000 * step + 9_000)
        process.kernel(
            "gemm", 10_000 * step + 1_000, 10_000 * step + 3_000, device=device, launch_ns=10_000 * step + 400
        )
    trace.insert("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=device, pid=pid, **uuid)


def gpu(trace: TraceBuilder, number: int, **columns: Cell) -> None:
    trace.insert("TARGET_INFO_GPU", id=number, name=MODEL, **columns)


def nsys_by_device(folder: Path, uuids: Sequence[str]) -> Path:
    """The UUID beside the device, as since 2025.5, of one file."""
    trace = TraceBuilder()
    for number, uuid in enumerate(uuids):
        gpu(trace, number)
        worker(trace, 100 + number, gpu=number, uuid=uuid)
    return trace.write(folder / "run.sqlite")


def nsys_by_gpu(folder: Path, uuids: Sequence[str]) -> Path:
    """The UUID of the GPU, of a file a process."""
    for number, uuid in enumerate(uuids):
        trace = TraceBuilder()
        gpu(trace, 0, uuid=uuid)
        worker(trace, 100 + number)
        trace.write(folder / f"rank{number}.sqlite")
    return folder


def nsys_by_number(folder: Path, uuids: Sequence[str]) -> Path:
    """Without any UUID, of one file."""
    trace, numbers = TraceBuilder(), {uuid: number for number, uuid in enumerate(dict.fromkeys(uuids))}
    for number in numbers.values():
        gpu(trace, number)
    for number, uuid in enumerate(uuids):
        worker(trace, 100 + number, gpu=numbers[uuid])
    return trace.write(folder / "run.sqlite")


def nsys_with_labels(folder: Path, uuids: Sequence[str]) -> Path:
    """Of labelled ranks, which are whole processes."""
    trace = TraceBuilder()
    for number, uuid in enumerate(uuids):
        gpu(trace, number)
        worker(trace, 100 + number, LABEL.format(rank=number), gpu=number, uuid=uuid)
        trace.insert("TARGET_INFO_CUDA_DEVICE", gpuId=9, cudaId=1, pid=100 + number, uuid="GPU-9")  # it is not used
    return trace.write(folder / "run.sqlite")


def rocpd(folder: Path, uuids: Sequence[str]) -> Path:
    """By machine and place in it, of a file a process."""
    numbers = {uuid: number for number, uuid in enumerate(dict.fromkeys(uuids))}
    for number, uuid in enumerate(uuids):
        trace = RocpdBuilder(pid=100 + number, device=numbers[uuid], gpus=2)
        for step in range(5):
            trace.range("step", 10_000 * step + 10, 10_000 * step + 9_000)
            trace.kernel("gemm", 10_000 * step + 1_000, 10_000 * step + 3_000, launch_ns=10_000 * step + 400)
        trace.write(folder / f"{number}_results.db")
    return folder


Write = Callable[[Path, Sequence[str]], Path]
in_every_format = pytest.mark.parametrize(
    "write", [nsys_by_device, nsys_by_gpu, nsys_by_number, nsys_with_labels, rocpd]
)
SHARED, APART = ("GPU-5a", "GPU-5a"), ("GPU-5a", "GPU-5b")


def told(path: Path, **more: str) -> list[str]:
    convention = replace(BUILT_IN_CONVENTIONS["pithtrain"], anchor="step%") if more else PLAIN
    with captures(path, convention=convention) as opened:
        ground = QualityContext(opened.runs[0], opened.make_spec("median", None, None), METRICS["idle_ns"])
        return [fact.words for fact in measure_facts(ground, ["shared_gpus"])]


@in_every_format
def test_one_gpu_under_two_processes_is_told(tmp_path: Path, write: Write) -> None:
    labels = {"labels": "yes"} if write is nsys_with_labels else {}
    assert told(write(tmp_path, SHARED), **labels) == ["ranks 0, 1 ran on one GPU"]


@in_every_format
def test_two_gpus_are_none(tmp_path: Path, write: Write) -> None:
    labels = {"labels": "yes"} if write is nsys_with_labels else {}
    assert told(write(tmp_path, APART), **labels) == []


def test_several_gpus_are_one_line(tmp_path: Path) -> None:
    path = nsys_by_device(tmp_path, ("GPU-1", "GPU-2", "GPU-1", "GPU-2", "GPU-3"))
    assert told(path) == ["ranks 0, 2 ran on one GPU, and 1 more GPU is shared"]


def test_a_uuid_of_zeros_says_nothing(tmp_path: Path) -> None:
    zeros = "GPU-00000000-0000-0000-0000-000000000000"
    assert told(nsys_by_gpu(tmp_path, (zeros, zeros))) == []


def test_a_process_number_of_two_machines_says_nothing(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for machine in (1, 2):
        process = trace.process(pid=100, hardware_id=machine)
        process.range("step", 10, 9_000)
        process.kernel("gemm", 1_000, 3_000, launch_ns=400)
    trace.process(pid=300).kernel("gemm", 1_000, 3_000)
    gpu(trace, 0)
    for pid in (100, 300):
        trace.insert("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=pid, uuid="GPU-1")
    assert told(trace.write(tmp_path / "run.sqlite")) == []


@pytest.mark.parametrize("write", [nsys_by_device, rocpd])
def test_the_gpu_is_counted_once(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, SHARED)
    how = ("--convention=generic", "--anchor=step%")
    screen = " ".join(run(path, *how, code=0).output.split())
    assert "1 × " in screen
    assert ", 2 processes" in screen
    assert "ranks 0, 1 ran on one GPU: each waits for kernels of the other" in screen
    with captures(path, convention=PLAIN, workload=Workload(steps=1)) as opened:
        (row,) = opened.measure_rows(METRICS["total_kernel_ns"], opened.make_spec("median", None, None)).rows
    assert row.value == 4_000  # both of one step, on one GPU
    (tmp_path / "apart").mkdir()
    other = write(tmp_path / "apart", APART)
    screen = " ".join(run(other, *how, code=0).output.split())
    assert "2 × " in screen
    assert "processes" not in screen
    with captures(other, convention=PLAIN, workload=Workload(steps=1)) as opened:
        (row,) = opened.measure_rows(METRICS["total_kernel_ns"], opened.make_spec("median", None, None)).rows
    assert row.value == 2_000


def test_a_gate_refuses_it_and_can_accept_it(project: Project) -> None:
    nsys_by_device(project.root, SHARED)
    gate = "convention: {extends: generic, anchor: step%}\nassertions:\n  - {id: a, assert: compute_ns <= 3us}\n"
    project.gate(gate)
    said = " ".join(project.pytest("--nsys-trace=run.sqlite", code=1).split())
    assert "ranks 0, 1 ran on one GPU (bound: at most 0): each waits for kernels of the other" in said
    assert "give each process a GPU of its own, or write quality: {shared_gpus: 1} in the gate file" in said
    project.gate("quality: {shared_gpus: 1}\n" + gate)
    project.pytest("--nsys-trace=run.sqlite", code=0)


@pytest.mark.parametrize("write", [nsys_by_device, nsys_by_gpu, rocpd])
@pytest.mark.parametrize("uuids", [SHARED, APART])
def test_a_cut_knows_it_too(tmp_path: Path, write: Write, uuids: Sequence[str]) -> None:
    (tmp_path / "run").mkdir()
    path, cut = write(tmp_path / "run", uuids), tmp_path / "cut.sqlite"
    run("cut", path, "--convention=generic", "--anchor=step%", "-o", cut, code=0)
    assert told(cut) == told(path)
    assert b"GPU-5" not in cut.read_bytes()
