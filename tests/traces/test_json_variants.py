"""Is every way in which profilers have written JSON read alike: other years, other vendors, other members?"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from tests.support.measure import captures, notes, rows, windows
from tests.support.samples.gpu_state import torch_memory
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder

KINETO, JAX = BUILT_IN_CONVENTIONS["kineto"], BUILT_IN_CONVENTIONS["jax"]
AT = 4_458_676_522_690_655_001
MS = 1_000_000


@pytest.fixture(params=["many", "one by one"], autouse=True)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test reads in both ways: many events at once, and one by one, as what msgspec does not take."""
    if request.param == "one by one":
        monkeypatch.setattr("pytest_nsys.traces.chrome.json_stream.EventStream._decode_pieces", lambda _: iter(()))
    else:
        monkeypatch.setattr("pytest_nsys.traces.chrome.json_stream.TAIL", 300)


def torch_trace(**process: Any) -> KinetoBuilder:
    """Steps of 1 ms, in each a gemm of 300 us."""
    trace = KinetoBuilder(**process)
    for k in range(5):
        begin = AT + MS * k
        trace.range(f"ProfilerStep#{k}", begin, begin + 990_000)
        trace.kernel("gemm", begin + 100_000, begin + 400_001, launch_ns=begin + 20_000)
    return trace


def jax_trace(gpu: int = 0) -> JaxBuilder:
    trace = JaxBuilder()
    for k in range(5):
        begin = MS * (k + 1)
        trace.step("train", k, begin, begin + 990_000)
        trace.kernel("gemm", begin + 100_000, begin + 400_001, launch_ns=begin + 20_000, device=gpu)
    return trace


# -- torch.profiler


@pytest.mark.parametrize(
    "members",
    [
        {"displayTimeUnit": "ns"},
        {"displayTimeUnit": "ms", "baseTimeNanoseconds": 1_711_964_646_000_000_000},
        {"baseTimeNanoseconds": "1711964646000000000", "trace_id": "4A5B", "with_stack": 1, "record_shapes": 0},
        {"roctracer_version": 4, "hip_runtime_version": 60140093, "hip_driver_version": 60140093},
        {"deviceProperties": [], "distributedInfo": {"backend": "gloo"}},
        {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1, "pg_count": 0, "pg_config": []}},
        {"distributedInfo": {"rank": "0", "world_size": "two"}, "deviceProperties": {"id": 0}},
        {"distributedInfo": None, "deviceProperties": [None, 1, {"id": "x"}], "schemaVersion": None},
    ],
)
def test_members_of_the_root_change_no_time(tmp_path: Path, members: Mapping[str, Any]) -> None:
    trace = torch_trace()
    trace.members = dict(members)
    path = trace.write(tmp_path / "trace.json")
    assert rows(path, "compute_ns", convention=KINETO) == {0: 300_001}
    (window,) = windows(path, convention=KINETO)
    assert window.start_ns == AT + 2 * MS


@pytest.mark.parametrize("category", ["ac2g", "async_cpu_to_gpu", "async"])
def test_arrows_of_every_year_lead_to_a_kernel(tmp_path: Path, category: str) -> None:
    trace = torch_trace()
    begin = AT + 2 * MS
    trace.kernel("arrow", AT + 3_500_000, AT + 3_500_007, correlation=900)
    arrow = {"id": 900, "cat": category, "name": category, "pid": 100, "tid": 100}
    trace.events.append({**arrow, "ph": "s", "ts": f"<{(begin + 50_000) // 1000}.001>"})
    trace.events.append({**arrow, "ph": "f", "ts": f"<{(AT + 3_500_000) // 1000}.001>", "bp": "e"})
    assert rows(trace.write(tmp_path / "a.json"), "compute_ns", convention=KINETO) == {0: 300_008}


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "hip_driver"])
def test_calls_of_every_kind_launch(tmp_path: Path, category: str) -> None:
    trace = torch_trace()
    for event in trace.events:
        event["cat"] = category if event["cat"] == "cuda_runtime" else event["cat"]
    path = trace.write(tmp_path / "a.json")
    assert rows(path, "compute_ns", convention=KINETO) == {0: 300_001}
    assert not [text for text in notes(path, "compute_ns", convention=KINETO) if "no launch" in text]


@pytest.mark.parametrize("args", ["odd", 7, [], None])
def test_args_that_are_no_object_say_nothing(tmp_path: Path, args: object) -> None:
    trace = torch_trace()
    torch_memory(trace, AT + 2 * MS + 7, 9_000, 1_000)
    for cat, name in (("cuda_runtime", "cudaFree"), ("gpu_memcpy", "Memcpy"), ("cpu_instant_event", "[memory]")):
        trace.event(cat, name, AT + 2 * MS, AT + 2 * MS + 10, args=args)
    trace.event("kernel", "gemm", AT + 2 * MS + 500_000, AT + 2 * MS + 500_010, pid=0, tid=7, args=args)
    path = trace.write(tmp_path / "trace.json")
    found = {
        metric: rows(path, metric, convention=KINETO)
        for metric in ("peak_allocated_bytes", "collective_bytes", "syncs", "device_idle_ns")
    }
    assert found["peak_allocated_bytes"] == {0: 9_000}
    assert found["collective_bytes"] == {}
    assert rows(path, "compute_ns", convention=KINETO, kernels="clipped") == {0: 300_001 + 10}


@pytest.mark.parametrize("as_list", [False, True])
def test_a_trace_of_nothing_but_the_gpu(tmp_path: Path, as_list: bool) -> None:
    trace = torch_trace(rank=None)
    trace.events = [event for event in trace.events if event["cat"] == "kernel"][::-1]
    path = trace.write(tmp_path / "a.json", as_list=as_list)
    assert rows(path, "compute_ns", convention=KINETO, window="run") == {0: 5 * 300_001}
    assert rows(path, "window_ns", convention=KINETO, window="run") == {0: 4 * MS + 300_001}
    cut = f"{AT + MS + 200_000}:{AT + 2 * MS}"
    assert rows(path, "compute_ns", convention=KINETO, window=cut, kernels="clipped") == {0: 200_001}


def test_a_list_of_2021_without_order(tmp_path: Path) -> None:
    """Lanes are named by texts, also where the stream is no argument, and metadata lies anywhere."""
    trace = torch_trace(rank=None)
    names = {"kernel": "Kernel", "cuda_runtime": "Runtime", "user_annotation": "Operator"}
    for event in trace.events:
        if event["cat"] == "kernel":
            event["tid"], event["pid"] = f"stream {event['args'].pop('stream')}", "0"
            del event["args"]["device"], event["args"]["context"]
        event["cat"] = names[event["cat"]]
    trace.events.reverse()
    trace.events.insert(3, {"ph": "M", "name": "process_labels", "pid": "0", "tid": 0, "args": {"labels": "GPU 0"}})
    trace.events.append(
        {"ph": "X", "cat": "Trace", "ts": 1, "dur": "never", "name": "PyTorch Profiler (0)", "pid": "S"}
    )
    assert rows(trace.write(tmp_path / "a.json", as_list=True), "compute_ns", convention=KINETO) == {0: 300_001}


@pytest.mark.parametrize(
    "names",
    [
        ("rank-34.json.gz", "rank-35.json.gz"),
        ("rank34_trace.json", "rank35_trace.json"),
        ("host_7.worker34.pt.trace.json", "host_7.worker35.pt.trace.json"),
        ("trace.Rank_34.pt.trace.json.gz", "trace.Rank_35.pt.trace.json.gz"),
        ("worker0_rank34.json", "worker1_rank35.json"),
    ],
)
def test_a_rank_is_that_of_the_name_where_the_file_says_none(tmp_path: Path, names: tuple[str, str]) -> None:
    for number, name in enumerate(reversed(names)):
        trace = torch_trace(rank=None)
        trace.range("another", 1, 2 + number)
        trace.write(tmp_path / "iteration_5" / name)
    with captures(tmp_path, convention=KINETO) as opened:
        ranks = opened.runs[0].ranks
        assert [(rank.number, rank.trace.name) for rank in ranks] == list(zip((34, 35), names, strict=True))
        assert not [note for note in opened.runs[0].rank_notes if "numbered" in note.text]


@pytest.mark.parametrize("name", ["trace.json", "frank3.json", "host12.pt.trace.json", "rank.json", "prank-3.json"])
def test_other_names_name_no_rank(tmp_path: Path, name: str) -> None:
    path = torch_trace(rank=None).write(tmp_path / name)
    assert "no setup label: ranks are numbered by (file, process, device)" in notes(path, "overlap", convention=KINETO)
    assert rows(path, "compute_ns", convention=KINETO) == {0: 300_001}


# -- JAX


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r'"metadata": \{\s*"highres-ticks": true\s*\}', '"metadata": {}'),
        (r'"correlation_id": "(\d+)"', r'"correlation_id": \1'),
        (r'"step_num": "(\d+)"', r'"step_num": \1'),
        (r"\(Compute\)", "(MemcpyD2H,Compute)"),
        (r"Stream #7\(Compute\)", "Stream #7"),
        (r'"pid": (\d+)', r'"pid": "\1"'),
        (r'"tid": (\d+)', r'"tid": "\1"'),
    ],
)
def test_spellings_of_xprof(tmp_path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, jax_trace().text())
    assert count
    path = tmp_path / "host.trace.json"
    path.write_text(text)
    assert rows(path, "compute_ns", convention=JAX) == {0: 300_001}


def test_the_last_element_need_not_be_empty(tmp_path: Path) -> None:
    content = json.loads(jax_trace().text())
    assert content["traceEvents"].pop() == {}
    path = tmp_path / "host.trace.json"
    path.write_text(json.dumps(content))
    assert rows(path, "compute_ns", convention=JAX) == {0: 300_001}


def test_lanes_that_repeat_the_time_of_the_kernels(tmp_path: Path) -> None:
    trace = jax_trace()
    for tid, lane in enumerate(("XLA Modules - from #7", "Framework Name Scope", "Source code", "Steps"), 50):
        trace.events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": lane}})
        trace.event("", "gemm", 3 * MS, 3 * MS + 900_000, pid=1, tid=tid, args={"correlation_id": "3"})
    assert rows(trace.write(tmp_path / "a.json"), "compute_ns", convention=JAX) == {0: 300_001}


def test_eight_gpus_are_named_and_the_fifth_is_used(tmp_path: Path) -> None:
    path = jax_trace(gpu=5).write(tmp_path / "a.json")
    assert rows(path, "compute_ns", convention=JAX) == {0: 300_001}
    assert f"{path}: 1 of the 8 GPUs that it names ran a kernel" in notes(path, "overlap", convention=JAX)
    with captures(path, convention=JAX) as opened:
        assert [rank.device for rank in opened.runs[0].ranks] == [5]
