"""Does a torch.profiler trace of any year give the numbers that are in it, and a broken one a clear line?"""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.families import extract_short_name
from pytest_nsys.traces.chrome import json_stream
from pytest_nsys.traces.chrome.kineto import KinetoTrace
from pytest_nsys.traces.trace_files import find_traces
from tests.support.measure import STEP, captures, notes, rows, rows_of, windows
from tests.support.samples.kineto import KinetoBuilder

KINETO = BUILT_IN_CONVENTIONS["kineto"]
AT = 4_458_676_522_690_655_000
"""A time of 19 digits."""
NCCL = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "void at::native::(anonymous namespace)::gemm<4, float>(int, float*)"

Edit = Callable[[KinetoBuilder], object]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that every trace of these tests has several, and its end is no special one."""
    for name in ("BLOCK", "FIRST_WINDOW"):
        monkeypatch.setattr(json_stream, name, 700)
    for name in ("PIECE", "TAIL"):
        monkeypatch.setattr(json_stream, name, 300)


def step_trace(steps: int = 5, *, at: int = AT, edit: Edit | None = None, **process: Any) -> KinetoBuilder:
    """Steps of 1 ms, in each a gemm of 300 us, and NCCL of 200 us of which the last 50 are exposed."""
    trace = KinetoBuilder(**process)
    for k in range(steps):
        begin = at + 1_000_000 * k
        trace.range(f"ProfilerStep#{k}", begin, begin + 990_000)
        trace.kernel(GEMM, begin + 100_000, begin + 400_000, launch_ns=begin + 20_000)
        trace.kernel(NCCL, begin + 250_000, begin + 450_000, stream=28, launch_ns=begin + 30_000)
    if edit is not None:
        edit(trace)
    return trace


FIGURES = {"compute_ns": 300_000, "comm_ns": 200_000, "exposed_ns": 50_000, "wall_exposed_ns": 50_000}


def figures(path: Path) -> dict[str, object]:
    """The figures of rank 0 in the median step."""
    with captures(path, convention=KINETO) as opened:
        found = {name: rows_of(opened, name, opened.make_spec("median")) for name in FIGURES}
    return {name: next(iter(values.values()), None) for name, values in found.items()}


# -- every way in which it is written


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "x.pt.trace.json", "x.pt.trace.json.gz", "trace.txt"])
def test_plain_and_packed_under_any_name(tmp_path: Path, name: str) -> None:
    assert figures(step_trace().write(tmp_path / name)) == FIGURES


def test_unsorted_events_odd_rows_and_members_after_the_list(tmp_path: Path) -> None:
    def odd(trace: KinetoBuilder) -> None:
        trace.events.reverse()
        trace.events[3:3] = [{}, None, 7, {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans"}]
        trace.events.append({"ph": "M", "name": "process_name", "pid": "Spans", "tid": 0, "args": {"name": "x"}})
        trace.event("user_annotation", "lane", AT, AT + 5, pid="Spans", tid="PyTorch Profiler")

    trace = step_trace(edit=odd)
    content = json.loads(trace.text(), parse_float=lambda text: f"<{text}>")
    events = content.pop("traceEvents")
    turned = re.sub(r'"<(-?[0-9.]+)>"', r"\1", json.dumps({"traceEvents": events, **content}))
    path = tmp_path / "trace.json"
    path.write_text("\ufeff" + turned, encoding="utf-8")
    assert figures(path) == FIGURES


def test_times_as_integers_and_with_other_digits(tmp_path: Path) -> None:
    text = step_trace(at=1_682_725_898_000_000_000).text()
    text = text.replace(".000", "")
    assert ".0" not in text
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert figures(path) == FIGURES
    path.write_text(re.sub(r'("ts": \d+)', r"\1.0000004", text))
    assert figures(path) == FIGURES
    path.write_text(re.sub(r'"ts": (\d)(\d+)', r'"ts": \1.\2e15', text))
    assert figures(path) == FIGURES


def test_nothing_but_kernels_is_a_kernel(tmp_path: Path) -> None:
    def more(trace: KinetoBuilder) -> None:
        for cat in ("gpu_memcpy", "gpu_memset", "gpu_user_annotation", "python_function", "overhead"):
            trace.event(cat, "nccl:all_reduce", AT + 2_100_000, AT + 2_900_000, pid=0, tid=7)
        trace.event("gpu_user_annotation", "ProfilerStep#2", AT, AT + 900_000, pid=0, tid=7)

    path = step_trace(edit=more).write(tmp_path / "trace.json")
    assert figures(path) == FIGURES
    (window,) = windows(path, convention=KINETO)
    assert (window.name, window.count) == ("ProfilerStep#2", 5)


def test_rocm_calls_and_kernels(tmp_path: Path) -> None:
    def rocm(trace: KinetoBuilder) -> None:
        for event in trace.events:
            event["name"] = event["name"].replace("cudaLaunchKernel", "hipExtModuleLaunchKernel")
            event.get("args", {}).pop("context", None)
        trace.kernel("rcclGenericKernel", AT + 2_500_000, AT + 2_600_000, stream=28, launch_ns=AT + 2_040_000)
        trace.api("hipStreamSynchronize", AT + 2_700_000)
        trace.api("hipMemcpyAsync", AT + 2_800_000)

    path = step_trace(edit=rocm).write(tmp_path / "trace.json")
    assert figures(path) == FIGURES | {"comm_ns": 300_000, "exposed_ns": 150_000, "wall_exposed_ns": 150_000}
    assert rows(path, "syncs", convention=KINETO, kernels="contained") == {0: 1}
    assert not [text for text in notes(path, "overlap", convention=KINETO) if "pattern" in text]


def test_names_with_broken_characters_and_numbers_that_are_none(tmp_path: Path) -> None:
    def odd(trace: KinetoBuilder) -> None:
        trace.range("lone \ud800 surrogate", AT, AT + 10)
        trace.event("gpu_memcpy", "copy", AT, AT + 1, args={"memory bandwidth (GB/s)": "@"})

    text = step_trace(edit=odd).text()
    path = tmp_path / "trace.json"
    for number in ("NaN", "-nan", "inf", "Infinity"):
        path.write_bytes(text.replace('"@"', number).encode().replace(b"gemm<4", b"gemm\xff<4"))
        assert figures(path) == FIGURES
    trace = KinetoTrace(path)
    names = [name for name, _ in trace.common_range_names(100 << 24)]
    assert any(name.startswith("lone ") for name in names)
    assert all(name.encode() for name in names)


# -- ranges, launches, ranks


def test_ranges_are_those_of_the_cpu(tmp_path: Path) -> None:
    def more(trace: KinetoBuilder) -> None:
        trace.range("layer00_stage2_f", AT + 2_025_000, AT + 2_045_000)
        trace.range("nccl:all_gather", AT + 2_026_000, AT + 2_044_000)
        trace.range("aten::stage3_f", AT + 2_015_000, AT + 2_024_000, cat="cpu_op", thread=7)

    path = step_trace(edit=more).write(tmp_path / "trace.json")
    staged = replace(STEP, anchor="ProfilerStep#%", setup=None)
    assert rows(path, "exposed_ns", convention=staged) == {(0, "stage2_f"): 50_000}
    assert rows(path, "launches", convention=staged) == {(0, "stage2_f"): 1, (0, "stage3_f"): 1}
    trace = KinetoTrace(path)
    around = trace.ranges_around({100 << 24: (AT + 2_026_000, AT + 2_027_000)})[100 << 24]
    assert [r.name for r in around] == ["ProfilerStep#2", "layer00_stage2_f"]
    assert list(around[:1]) == [around[0]]


def test_kernels_of_a_graph_share_its_launch(tmp_path: Path) -> None:
    def graph(trace: KinetoBuilder) -> None:
        number = trace.api("cudaGraphLaunch", AT + 2_050_000)
        for k in range(3):
            trace.kernel("node", AT + 2_500_000 + k, AT + 2_500_001 + k, correlation=number)

    path = step_trace(edit=graph).write(tmp_path / "trace.json")
    assert rows(path, "launches", convention=KINETO) == {(0, "none"): 5}
    said = notes(path, "overlap", convention=KINETO, kernels="contained")
    assert any("3 of 5 kernels around the windows ran in CUDA graphs" in text for text in said)


def test_ranks_come_from_the_file_not_from_its_name(tmp_path: Path) -> None:
    for rank in (0, 1):
        step_trace(rank=1 - rank, world=2, pid=200).write(tmp_path / f"rank{rank}_trace.json")
    with captures(tmp_path, convention=KINETO) as opened:
        ranks = opened.runs[0].ranks
        assert [(rank.number, rank.trace.name) for rank in ranks] == [(0, "rank1_trace.json"), (1, "rank0_trace.json")]
        assert opened.runs[0].find_gpu_model() == "NVIDIA H100 80GB HBM3"


def test_files_without_a_rank_are_ordinals_by_number(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        step_trace(rank=None, pid=100 + number).write(tmp_path / f"host{number}.pt.trace.json.gz")
    with captures(tmp_path, convention=KINETO) as opened:
        assert [(rank.number, rank.pid) for rank in opened.runs[0].ranks] == [(0, 101), (1, 102), (2, 110)]


def test_a_setup_label_says_more_than_the_file(tmp_path: Path) -> None:
    def label(trace: KinetoBuilder) -> None:
        trace.range("rank=1; pp=1/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", AT, AT + 5)

    path = step_trace(rank=0, world=2, edit=label).write(tmp_path / "a.json")
    with captures(path, convention=BUILT_IN_CONVENTIONS["pithtrain"]) as opened:
        (rank,) = opened.runs[0].ranks
    assert (rank.number, rank.coordinates["pp"]) == (1, 1)


# -- the last step


def test_a_last_step_without_end_is_left_out_and_said_so(tmp_path: Path) -> None:
    path = step_trace(edit=lambda trace: trace.range("ProfilerStep#5", AT + 5_000_000, None)).write(tmp_path / "a.json")
    assert [w.count for w in windows(path, "last", convention=KINETO)] == [5]
    said = notes(path, "overlap", convention=KINETO)
    assert f"{path}: the last step, ProfilerStep#5, is incomplete and left out: it has no end" in said


# -- TorchTitan


def test_torchtitan_stages_and_purposes(tmp_path: Path) -> None:
    def fsdp(trace: KinetoBuilder) -> None:
        begin = AT + 2_000_000
        trace.range("FSDP::pre_forward (layers.0)", begin + 500_000, begin + 540_000)
        trace.range("FSDP::all_gather (layers.0)", begin + 510_000, begin + 530_000)
        trace.kernel(NCCL, begin + 600_000, begin + 700_000, stream=30, launch_ns=begin + 520_000)
        trace.range("PP:0SEND_F1", begin + 550_000, begin + 560_000)
        trace.kernel(NCCL, begin + 710_000, begin + 720_000, stream=31, launch_ns=begin + 555_000)

    path = step_trace(edit=fsdp).write(tmp_path / "iteration_10" / "rank0_trace.json")
    titan = BUILT_IN_CONVENTIONS["torchtitan"]
    assert rows(path, "exposed_ns", convention=titan) == {(0, "all_gather"): 100_000, (0, "none"): 60_000}
    purposes = rows(path, "comm_streams", convention=titan)
    assert purposes[0, "fsdp_all_gather"] == purposes[0, "pp_p2p"] == purposes[0, "unknown"] == 1


def test_the_one_iteration_of_a_folder_is_a_run(tmp_path: Path) -> None:
    for rank in range(11):
        step_trace(rank=rank, world=11).write(tmp_path / "iteration_10" / f"rank{rank}_trace.json")
    (tmp_path / "iteration_10" / "notes.json").write_text('{"a": 1}')
    (tmp_path / "iteration_20").mkdir()
    found = find_traces(str(tmp_path), Path())
    assert [path.name for path in found] == [f"rank{rank}_trace.json" for rank in range(11)]
    step_trace().write(tmp_path / "iteration_20" / "rank0_trace.json")
    with pytest.raises(
        UsageMistake, match=r"holds the traces of 2 steps \(iteration_10, iteration_20\).*give one of them"
    ):
        find_traces(str(tmp_path), Path())
    with pytest.raises(UsageMistake, match=r"matches no file; .*iteration_10 is a folder, and each folder is a run"):
        find_traces(str(tmp_path / "iteration_*"), Path())


# -- in a gate


# -- what cannot be read


def test_members_and_padding_of_gzip(tmp_path: Path) -> None:
    text = step_trace().text().encode()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text[:3000]) + gzip.compress(text[3000:]) + b"\0" * 100)
    assert figures(path) == FIGURES


def test_a_trace_without_ranges_says_how_to_mark_a_step(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.kernel("gemm", AT, AT + 10)
    path = trace.write(tmp_path / "a.json")
    with pytest.raises(NothingMeasured, match=r"holds no ranges at all: .*record_function"):
        rows(path, "compute_ns", convention=KINETO)
    assert rows(path, "compute_ns", convention=KINETO, window="run") == {0: 10}


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (GEMM, "gemm"),
        (NCCL, "ncclDevKernel_AllGather_RING_LL"),
        ("sm90_xmma_gemm_bf16", "sm90_xmma_gemm_bf16"),
        ("nccl AllReduce", "nccl AllReduce"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, (bool)1>(cublasGemvParams<int>)", "kernel"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("()", "()"),
    ],
)
def test_short_names_are_as_nsys_has_them(full: str, short: str) -> None:
    assert extract_short_name(full) == short
