"""Is a file of a profiler that is not read called by its name, with the way out? And a trace without its GPU side?"""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import run
from tests.support.gates import write_trace
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.rocpd import RocpdBuilder
from tests.support.sql import execute

ROCPROF = '"Index","KernelName","gpu-id","queue-id","queue-index","BeginNs","EndNs"\n0,"gemm",0,0,0,5,9\n'
ROCPROF_V2 = "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Kernel_Name,Start_Timestamp,End_Timestamp\n1,4,1,7,7,gemm,5,9\n"


def process(number: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}


def ran(name: str, number: int, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": number, "tid": 3, "ts": "10.5", "dur": "4.0", "args": {}, **more}


MSPROF = json.dumps([process(1, "CANN"), process(4, "Ascend Hardware"), ran("MatMulV2", 4)])
TORCH_NPU = json.dumps([ran("aten::mm", 1, cat="cpu_op"), ran("torch_to_npu", 1, ph="s", cat="async_npu", id=7)])
ROCPROF_JSON = json.dumps({"traceEvents": [{}, process(2, "CPU HIP API"), process(6, "GPU0"), ran("gemm", 6)]})

FILES: dict[str, tuple[str, str | bytes, Sequence[str]]] = {
    "perfetto": ("trace.pftrace", b"\x0a\x10", ["Perfetto", "export_chrome_trace", "rocprofv3 -f rocpd"]),
    "ncu": ("kernels.ncu-rep", b"NVR\0", ["Nsight Compute", "nsys profile"]),
    "rocprof": ("results.csv", ROCPROF, ["rocprof,", "rocprofv3 -f rocpd"]),
    "rocprofv2": ("results_run.csv", ROCPROF_V2, ["rocprof,", "rocprofv3 -f rocpd"]),
    "rocprof as JSON": ("results.json", ROCPROF_JSON, ["rocprof (results.json),", "rocprofv3 -f rocpd"]),
    "msprof": ("msprof_2025.json", MSPROF, ["Ascend NPU", "MindStudio"]),
    "torch_npu": ("trace_view.json", TORCH_NPU, ["Ascend NPU", "MindStudio"]),
}


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_what_is_not_read_is_named_with_the_way_out(tmp_path: Path, case: str, folder: bool) -> None:
    name, content, words = FILES[case]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    told = run("show", tmp_path if folder else path, code=2).stderr.splitlines()
    assert len(told) == 1
    assert all(word in told[0] for word in words), told


def test_any_other_csv_is_no_trace_of_rocprof(tmp_path: Path) -> None:
    (tmp_path / "loss.csv").write_text("step,loss\n1,2.5\n")
    assert "rocprof," not in run("show", tmp_path / "loss.csv", code=2).stderr


def test_a_packed_export_is_read_where_its_name_says_so(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.sqlite")
    for name, code in (("t.sqlite.gz", 0), ("t.json.gz", 2)):
        (tmp_path / name).write_bytes(gzip.compress(trace.read_bytes()))
        said = run("--view=overlap", tmp_path / name, code=code)
    assert said.stderr.endswith("is a packed SQLite database: unpack it (gunzip t.json.gz)\n")


# The host side alone


def without_kernels(trace: KinetoBuilder) -> None:
    trace.events = [each for each in trace.events if each.get("cat") != "kernel" and each["pid"] != 1]


def nsys(path: Path) -> Path:
    """One launch is there twice, as CUDA backtraces repeat it; the GPU's own rows were never written."""
    process = TraceBuilder().process()
    for at in range(10_000, 15_000, 1_000):
        process.kernel("gemm", at, at + 500)
    written = process.trace.write(path / "t.sqlite")
    calls = "CUPTI_ACTIVITY_KIND_RUNTIME"
    again = f"INSERT INTO {calls} SELECT * FROM {calls} LIMIT 1"
    execute(written, "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", again)
    return written


def torch(path: Path) -> Path:
    trace = KinetoBuilder()
    for at in range(10_000, 15_000, 1_000):
        trace.kernel("gemm", at, at + 500)
    trace.api("cudaDeviceSynchronize", 20_000)
    without_kernels(trace)
    return trace.write(path / "t.json")


def jax(path: Path) -> Path:
    trace = JaxBuilder([0])
    for at in range(10_000, 15_000, 1_000):
        trace.api(trace.launch_name, at)
    return trace.write(path / "t.trace.json.gz")


def rocpd(path: Path) -> Path:
    trace = RocpdBuilder()
    for at in range(10_000, 15_000, 1_000):
        trace.kernel("gemm", at, at + 500)
    written = trace.write(path / "7_results.db")
    execute(written, f"DELETE FROM {trace.table('kernel_dispatch')}")
    return written


@pytest.mark.parametrize(
    ("write", "instead"),
    [
        (nsys, "--cuda-flush-interval"),
        (torch, "torch.cuda.synchronize()"),
        (jax, "jax.block_until_ready"),
        (rocpd, "rocprofv3 --kernel-trace"),
    ],
)
def test_launches_without_kernels_are_counted(tmp_path: Path, write: Callable[[Path], Path], instead: str) -> None:
    told = run("show", write(tmp_path), code=3).stderr.splitlines()
    assert len(told) == 1
    assert "no kernels: 5 launches are on record, but the GPU side was not recorded: " in told[0]
    assert instead in told[0]


def test_one_launch_is_told_in_the_singular(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.kernel("gemm", 10_000, 10_500)
    without_kernels(trace)
    assert "1 launch is on record" in run("show", trace.write(tmp_path / "t.json"), code=3).stderr


# Other devices


def tpu(path: Path) -> Path:
    trace = JaxBuilder([])
    trace.events = [each for each in trace.events if each.get("ph") != "M"]
    trace._name("process_name", "/device:TPU:0", pid=3)
    trace._name("process_name", "/host:CPU", pid=701)
    trace.step("train", 3, 1_000, 9_000)
    return trace.write(path / "tpu.trace.json.gz")


def of_category(*categories: str) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        trace = KinetoBuilder(gpu=None)
        trace.range("ProfilerStep#3", 1_000, 9_000)
        for category in categories:
            trace.event(category, "op", 2_000, 3_000)
        return trace.write(path / "t.json")

    return write


@pytest.mark.parametrize(
    ("write", "device"),
    [
        (tpu, "/device:TPU:0"),
        (of_category("mtia_runtime", "mtia_ccp_events"), "MTIA"),
        (of_category("hpu_op"), "a Gaudi HPU"),
    ],
)
def test_a_trace_of_another_device_is_none_of_a_cpu(tmp_path: Path, write: Callable[[Path], Path], device: str) -> None:
    told = run("show", write(tmp_path), code=3).stderr
    assert f"no kernels: the trace is of {device}, and only GPUs of NVIDIA and AMD are measured: " in told
    assert "CPU" not in told
    assert len(told.splitlines()) == 1
