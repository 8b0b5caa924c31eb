"""Can a sentence on each kind of scope be red and green, and what is said where nothing is in the scope?"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_nsys import judge, open_run
from pytest_nsys.core.scopes import Direction
from pytest_nsys.gates.model import Outcome, Verdict
from pytest_nsys.reports.stored.unresolved_failures import build_accepting_sentence
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.scope_programs import WRITERS, Place, write_jax, write_nsys, write_torch

SLOW: Mapping[Place, float] = {(1, "attn", Direction.FORWARD): 1.2}


def verdict(trace: Path, sentence: str, base: Path | None = None, convention: str = "generic") -> Verdict:
    """What becomes of a sentence on the whole run."""
    gate = trace.parent / "gate.nsys.yaml"
    gate.write_text(
        f"version: 1\nconvention: {convention}\nwindow: run\nassertions: [{json.dumps(sentence)}]\n", encoding="utf-8"
    )
    with open_run(trace) as run:
        if base is None:
            return judge(gate, run)[0]
        with open_run(base) as other:
            return judge(gate, run, against=other)[0]


# Three layers, each: norm 2 us, attn 10 us and mlp 20 us forward, twice as long backward.
CASES = [
    ("torch", "time of module Block[*]/Attention <= 90us", "time of module Block[*]/Attention <= 89us"),
    ("torch", "time of module Attention <= 90us", "time of module Block[1]/Attention <= 29us"),
    ("torch", "time of each module Attention <= 30us", "time of each module Attention <= 29us"),
    ("torch", "forward time of module Attention <= 30us", "forward time of module Attention <= 29us"),
    ("torch", "backward time of module Attention <= 60us", "backward time of module Attention <= 59us"),
    ("torch", "time of op aten::mm <= 288us", "time of op aten::mm <= 287us"),
    ("torch", "forward time of op aten::attn <= 30us", "forward time of op aten::attn <= 29us"),
    ("torch", 'time of range "ProfilerStep#1" <= 288us', 'time of range "ProfilerStep#1" <= 287us'),
    ("torch", "compute of module Attention <= 90us", "compute of module Attention <= 89us"),
    ("nsys", "time of module layers.*.attn <= 90us", "time of module layers.*.attn <= 89us"),
    ("nsys", "backward time of module layers.2.attn <= 20us", "backward time of module layers.2.attn <= 19us"),
    ("nsys", "time of op aten::mm <= 288us", "time of op aten::mm <= 287us"),
    ("nsys", "time of range step <= 288us", "time of range step <= 287us"),
    ("jax", "time of module layers.*.attn <= 90us", "time of module layers.*.attn <= 89us"),
    ("jax", "forward time of module Model <= 96us", "forward time of module Model <= 95us"),
    ("jax", "time of op gemm_fusion_dot <= 288us", "time of op gemm_fusion_dot <= 287us"),
    ("jax", 'time of source "model.py(11)" <= 90us', 'time of source "model.py(11)" <= 89us'),
    ("jax", "time of module layers_0 <= 34% of step", "time of module layers_0 <= 32% of step"),
]


@pytest.mark.parametrize(("format_name", "green", "red"), CASES, ids=[green for _, green, _ in CASES])
def test_every_kind_can_go_red(tmp_path: Path, format_name: str, green: str, red: str) -> None:
    name, write = WRITERS[format_name]
    path = write(tmp_path / name, None)
    assert verdict(path, green).outcome is Outcome.PASSED
    assert verdict(path, red).outcome is Outcome.FAILED


def test_an_operator_keeps_its_colons_where_a_sentence_is_to_be_written(tmp_path: Path) -> None:
    """The name of a test cannot hold them."""
    name, write = WRITERS["torch"]
    failed = verdict(write(tmp_path / name, None), "time of op aten::mm <= 287us")
    assert failed.assertion.full_name == "time of op aten:mm <= 287us"
    assert build_accepting_sentence(failed) == "time of op aten::mm <= 300us"


@pytest.mark.parametrize("format_name", WRITERS)
def test_a_baseline_of_a_part_of_the_program(tmp_path: Path, format_name: str) -> None:
    name, write = WRITERS[format_name]
    module = "Attention" if format_name == "torch" else "attn"
    base, head = write(tmp_path / f"base_{name}", None), write(tmp_path / name, SLOW)
    sentence = f"forward time of module {module} below baseline plus 5%"
    failed = verdict(head, sentence, base)
    assert failed.outcome is Outcome.FAILED
    assert (failed.rows[0].value, failed.rows[0].baseline) == (32_000, 30_000)
    assert verdict(head, f"backward time of module {module} below baseline plus 5%", base).outcome is Outcome.PASSED
    assert "of forward module" in failed.assertion.metric


def test_a_stage_needs_no_word_of_its_own(tmp_path: Path) -> None:
    gpu = (trace := TraceBuilder()).process()
    gpu.range("forward chunk 0 backward chunk 0", 0, 90_000)
    gpu.range("layer01.stage3_f", 1_000, 5_000)
    gpu.kernel("gemm", 10_000, 20_000, launch_ns=2_000)
    gpu.kernel("ncclDevKernel_SendRecv", 20_000, 24_000, launch_ns=3_000, stream=28)
    gpu.kernel("gemm", 30_000, 35_000, launch_ns=6_000)
    path = Path(trace.write(tmp_path / "trace.sqlite"))
    for sentence, limit in (("compute of stage3_f", 10), ("time of stage3_f", 14), ("time of stage stage3_f", 14)):
        assert verdict(path, f"{sentence} <= {limit}us", convention="pithtrain").outcome is Outcome.PASSED
        assert verdict(path, f"{sentence} < {limit}us", convention="pithtrain").outcome is Outcome.FAILED
    # Of the communication that the stage launched nothing hides.
    assert verdict(path, "exposed of module layer01 <= 4us", convention="pithtrain").outcome is Outcome.PASSED
    assert verdict(path, "exposed of module layer01 < 4us", convention="pithtrain").outcome is Outcome.FAILED
    nothing = verdict(path, "exposed of range forward* <= 4us", convention="pithtrain")
    assert nothing.outcome is Outcome.PASSED
    no_communication = TraceBuilder()
    lone = no_communication.process()
    lone.range("loss", 0, 90_000)
    lone.kernel("gemm", 30_000, 35_000, launch_ns=6_000)
    other = Path(no_communication.write(tmp_path / "other.sqlite"))
    silent = verdict(other, "exposed of range loss <= 4us")
    assert silent.outcome is Outcome.NO_DATA
    assert "range loss launches no communication on a stream of its own" in silent.message


NOTHING = [
    (write_torch, "time of module Block[*]/Atention <= 1ms", "the nearest: Block[*]/Attention"),
    (write_nsys, "time of module layer.*.attn <= 1ms", "the nearest: layers.*.attn"),
    (write_jax, "time of module layers.*.atn <= 1ms", "the nearest: layers_*/attn"),
    (write_nsys, "time of op aten::nn <= 1ms", "the nearest: aten::mm"),
    (
        write_nsys,
        "recompute time of module attn <= 1ms",
        "has no recompute kernel in the window, only forward, backward",
    ),
    (
        write_nsys,
        "time of range attn <= 1ms",
        "there is a module of that name: write 'of module attn'",
    ),
    (
        write_nsys,
        "time of source model.py <= 1ms",
        "no kernel of the window has a source: profile with with_stack=True",
    ),
    (write_jax, "compute of stage3_f <= 1ms", "the convention names no stage, or no range states one"),
]


@pytest.mark.parametrize(("write", "sentence", "said"), NOTHING, ids=[sentence for _, sentence, _ in NOTHING])
def test_no_kernel_in_the_scope_is_no_data_with_the_nearest_names(
    tmp_path: Path, write: object, sentence: str, said: str
) -> None:
    (name,) = (name for name, writer in WRITERS.values() if writer is write)
    assert callable(write)
    found = verdict(write(tmp_path / name, None), sentence)
    assert found.outcome is Outcome.NO_DATA
    assert said in found.message


def test_a_rank_without_the_part_is_told(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for rank in range(2):
        gpu = trace.process(pid=100 + rank)
        gpu.range(f"rank={rank}; pp=0/1 dp={rank}/2 cp=0/1 ep=0/1; mbs=1 seq=8", 0, 90_000)
        gpu.range("loss" if rank else "head", 1_000, 5_000)
        gpu.kernel("gemm", 10_000, 20_000, launch_ns=2_000)
    path = Path(trace.write(tmp_path / "trace.sqlite"))
    found = verdict(path, "time of range loss <= 1ms", convention="pithtrain")
    assert found.outcome is Outcome.NO_DATA
    assert "rank 0 has no row, though rank 1 has" in found.message
    assert verdict(path, "rank 1 time of range loss <= 10us", convention="pithtrain").outcome is Outcome.PASSED


def test_the_program_is_only_read_where_a_sentence_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_torch(tmp_path / "trace.json")

    def refuse(*_: object) -> None:
        raise AssertionError("the file is read once more")

    monkeypatch.setattr("pytest_nsys.traces.chrome.kineto.read_kineto_program", refuse)
    assert verdict(path, "compute <= 1ms").outcome is Outcome.PASSED
    with pytest.raises(AssertionError, match="once more"):
        verdict(path, "time of module Attention <= 1ms")


def test_copies_of_a_merged_file_do_not_share_scopes(tmp_path: Path) -> None:
    events = []
    for rank, length in ((0, 1_000), (1, 3_000)):
        trace = KinetoBuilder(rank=None)
        trace.module("Model_0", 1_000, 5_000)
        trace.kernel("gemm", 10_000, 10_000 + length, launch_ns=2_000, launch_length_ns=10)
        content = json.loads(trace.text())
        events += [{**event, "pid": f"[TP0{rank}] {event['pid']}"} for event in content["traceEvents"]]
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    assert verdict(path, "time of module Model <= 3us").outcome is Outcome.PASSED
    assert verdict(path, "sum time of module Model <= 3us").outcome is Outcome.FAILED


def half_recorded(path: Path, *, in_graph: bool) -> Path:
    """Two layers, of which the second runs eagerly or as a node of a graph whose creation nobody recorded."""
    trace = TraceBuilder()
    gpu = trace.process()
    gpu.range("layers.0.attn", 1_500, 2_500)
    gpu.kernel("gemm", 10_000, 20_000, launch_ns=2_000)
    if not in_graph:
        gpu.range("layers.1.attn", 3_500, 4_500)
    gpu.kernel("gemm", 20_000, 80_000, launch_ns=4_000, graph_node=1 if in_graph else None)
    return Path(trace.write(path))


@pytest.mark.parametrize(
    "sentence", ["time of module layers.*.attn <= 30us", "compute of module attn <= 30us", "time of module attn <= 1ms"]
)
def test_what_was_not_recorded_may_be_of_the_part(tmp_path: Path, sentence: str) -> None:
    eager, graph = (half_recorded(tmp_path / f"{each}.sqlite", in_graph=each) for each in (False, True))
    assert verdict(eager, sentence).outcome is (Outcome.PASSED if "1ms" in sentence else Outcome.FAILED)
    said = verdict(graph, sentence)
    assert said.outcome is Outcome.NO_DATA
    assert "86% of the kernels' time is of no known module (inside a graph): some may be of this one" in said.message


def test_less_of_a_part_on_record_is_no_improvement(tmp_path: Path) -> None:
    eager, graph = (half_recorded(tmp_path / f"{each}.sqlite", in_graph=each) for each in (False, True))
    assert verdict(graph, "time of module attn below baseline plus 5%", eager).outcome is Outcome.NO_DATA


def test_a_backward_pass_without_its_forward_may_be_of_the_part(tmp_path: Path) -> None:
    """The forward operators of the first layer lie before the capture: nothing says whose their backward is."""
    path = write_torch(tmp_path / "trace.json", None)
    found = json.loads(path.read_text())
    found["traceEvents"] = [
        event
        for event in found["traceEvents"]
        if event.get("cat") != "cpu_op"
        or event["args"].get("Fwd thread id") != 0
        or event["args"].get("Sequence number", 0) > len(("norm", "attn", "mlp"))
    ]
    (tmp_path / "part.json").write_text(json.dumps(found), encoding="utf-8")
    for sentence in ("backward time of module Attention <= 45us", "time of module Attention <= 75us"):
        assert verdict(path, sentence).outcome is Outcome.FAILED
        said = verdict(tmp_path / "part.json", sentence)
        assert said.outcome is Outcome.NO_DATA
        assert "33% of the backward pass is of no known module" in said.message
    assert verdict(tmp_path / "part.json", "forward time of module Attention <= 30us").outcome is Outcome.PASSED
