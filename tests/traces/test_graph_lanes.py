"""Does a CUDA graph whose kernels the exporter annotated and moved to lanes give the figures of its eager twin?"""

import json
from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.budget.operations import Operations
from pytest_nsys.analysis.metrics.collectives import DTYPE_BYTES
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Purpose
from pytest_nsys.traces.chrome import json_stream
from pytest_nsys.traces.chrome.kineto import KinetoTrace
from pytest_nsys.traces.chrome.kineto_metadata import normalize_dtype
from tests.analysis.scopes.test_paths import scopes, whole_run
from tests.support.commands import run
from tests.support.measure import captures, rows_of
from tests.support.samples.kineto import KinetoBuilder

KINETO = BUILT_IN_CONVENTIONS["kineto"]
STEP_NS, STEPS = 1_000_000, 5
COMPUTE, COMMUNICATION, LANE = 7, 28, 61
METRICS = (
    *("overlap", "exposed_ns", "barrier_ns", "wall_exposed_ns", "compute_ns", "comm_ns"),
    *("collective_count", "collective_bytes", "collective_wait_ns", "collective_transfer_ns", "busbw"),
    *("comm_streams", "device_idle_ns", "comm_alone_ns"),
)

Args = dict[str, Any]
Spelling = Callable[[Args], Args]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that events are read many at once, as those of a real trace are."""
    for name, size in {"BLOCK": 4_000, "PIECE": 2_000, "TAIL": 300}.items():
        monkeypatch.setattr(json_stream, name, size)


def collective(ranks: int) -> Args:
    """What torch.profiler records of the kernel of an eager all-gather."""
    return {
        "Collective name": "_allgather_base",
        "In msg nelems": 1024,
        "Out msg nelems": 1024 * ranks,
        "Group size": ranks,
        "dtype": "BFloat16",
        "Process Group Name": "3",
        "Process Group Description": "mesh_dp",
        "Process Group Ranks": f"[{', '.join(map(str, range(ranks)))}]"
        if ranks <= 30
        else "[{}, ..., {}]".format(", ".join(map(str, range(29))), ranks - 1),
    }


def as_text(args: Args) -> Args:
    """The same as an annotation says it: every value as text."""
    return {name: str(value) for name, value in args.items()} | {"dtype": "bfloat16", "Is asynchronized op": "False"}


def with_all_ranks(args: Args) -> Args:
    """The same by a version that does not shorten the list of ranks."""
    ranks = int(args["Group size"])
    return as_text(args) | {"Process Group Ranks": str(list(range(ranks))), "dtype": "torch.bfloat16"}


def with_numbers(args: Args) -> Args:
    """The same with the ranks as a list, and without spaces between them."""
    return {**args, "Process Group Ranks": list(range(int(args["Group size"]))), "dtype": "c10::BFloat16"}


def written(folder: Path, spell: Spelling | None, ranks: int = 2, *, moved: bool = True) -> Path:
    """The traces of two ranks, of which the second comes late to its collectives: eager, or as replays of a graph."""
    for rank in (0, 1):
        trace = KinetoBuilder(rank, 2, pid=100 + rank)
        for step in range(STEPS):
            begin = STEP_NS * (step + 1)
            late = 40_000 * rank
            trace.range(f"ProfilerStep#{step}", begin, begin + STEP_NS - 10_000)
            graph = None if spell is None else trace.api("cudaGraphLaunch", begin + 10_000)
            kernels = [
                ("gemm", COMPUTE, 100_000, 400_000 + late, {}),
                ("ncclDevKernel_AllGather", COMMUNICATION, 300_000 + late, 600_000, collective(ranks)),
                ("gemm", COMPUTE, 600_000, 700_000, {}),
                ("ncclDevKernel_AllGather", COMPUTE, 700_000 + late, 800_000, collective(ranks)),
            ]
            for node, (name, stream, start, end, args) in enumerate(kernels, 1):
                more: dict[str, Any] = dict(args if spell is None or not args else spell(args))
                if graph is not None:
                    more |= {"graph node id": node, "graph id": 5, "module_fqn": "layers.0.attention.wq"}
                if graph is not None and moved:
                    more |= {"original_stream": stream}
                    stream = LANE if name == "gemm" else COMPUTE
                called = begin + 20_000 + 1_000 * node
                trace.kernel(
                    name, begin + start, begin + end, stream=stream, launch_ns=called, correlation=graph, **more
                )
        trace.write(folder / f"rank{rank}.json")
    return folder


def figures(folder: Path) -> Mapping[str, object]:
    """Every row of the median step, the groups of the collectives included."""
    with captures(folder, convention=KINETO) as opened:
        found: dict[str, object] = {name: rows_of(opened, name, opened.make_spec("median")) for name in METRICS}
    trace = KinetoTrace(folder / "rank0.json")
    (known,) = (trace.collectives(trace.kernels(dict.fromkeys(trace.lanes()))) or {}).values()
    return found | {"records": sorted(filter(None, known))}


@pytest.mark.parametrize("moved", [True, False], ids=["moved to lanes", "on their streams"])
@pytest.mark.parametrize("spell", [as_text, with_all_ranks, with_numbers])
@pytest.mark.parametrize("ranks", [2, 40])
def test_a_graph_has_the_figures_of_its_eager_twin(tmp_path: Path, spell: Spelling, ranks: int, moved: bool) -> None:
    eager = figures(written(tmp_path / "eager", None, ranks))
    assert eager["barrier_ns"] == {0: 100_000, 1: 60_000}
    assert eager["exposed_ns"] == {(0, "none"): 200_000, (1, "none"): 160_000}
    assert eager["collective_bytes"] == {(r, "mesh_dp", "AllGather"): 2 * 2 * 1024 * ranks for r in (0, 1)}
    assert bool(eager["collective_wait_ns"]) == (ranks == 2)  # of 40 ranks two are here
    assert figures(written(tmp_path / "graph", spell, ranks, moved=moved)) == eager


PARTS = replace(
    KINETO,
    stage=r"(?P<stage>layers\.\d+\.\w+)",
    purposes=(Purpose("gather", stages=("*.attention",)), Purpose("dispatch", stages=("*.moe",))),
)
OF_STAGES = ("exposed_ns", "overlap", "kernel_launches", "comm_streams", "compute_ns", "collective_bytes", "idle_ns")
WITHOUT_STAGE = "lm_head"
Module = Callable[[str], object]


def staged(folder: Path, name_module: Module | None, *, around: str | None = None) -> Path:
    """The trace of a program whose stages are ranges, or what ``name_module`` writes of the module of each kernel of a
    graph that is launched in a range ``around``.
    """
    trace = KinetoBuilder(0, 1)
    for step in range(STEPS):
        begin = STEP_NS * (step + 1)
        trace.range(f"ProfilerStep#{step}", begin, begin + STEP_NS - 10_000)
        graph = None if name_module is None else trace.api("cudaGraphLaunch", begin + 10_000, begin + 11_000)
        if around is not None:
            trace.range(around, begin + 9_000, begin + 12_000)
        kernels = [
            ("gemm", COMPUTE, 100_000, 400_000, "layers.0.attention.wq", {}),
            ("ncclDevKernel_AllGather", COMMUNICATION, 300_001, 600_000, "layers.0.attention.wo", collective(2)),
            ("gemm", COMPUTE, 610_003, 700_000, "layers.1.moe.experts", {}),
            ("ncclDevKernel_AllGather", COMMUNICATION, 650_000, 800_002, "layers.1.moe", collective(2)),
            ("gemm", COMPUTE, 820_000, 830_000, WITHOUT_STAGE, {}),
        ]
        for node, (name, stream, start, end, module, sizes) in enumerate(kernels, 1):
            called, more = begin + 20_000 + 3_000 * node, dict(sizes)
            if name_module is None:
                trace.range(module, called - 500, called + 1_500)
            else:
                more = as_text(sizes) if sizes else {}
                more |= {"graph node id": node, "graph id": 5, "module_fqn": name_module(module)}
            trace.kernel(name, begin + start, begin + end, stream=stream, launch_ns=called, correlation=graph, **more)
    return trace.write(folder / "rank0.json")


def find_stages(path: Path) -> Mapping[str, object]:
    """What the stages of all steps are measured to be, and the stage and purpose of each kernel of the run."""
    with captures(path, convention=PARTS) as opened:
        found: dict[str, object] = {
            f"{metric} {window}": rows_of(opened, metric, opened.make_spec(window))
            for metric in OF_STAGES
            for window in ("median", "run")
        }
    with whole_run(path, PARTS) as window:
        contexts, count = window.track.contexts, len(window.track.kernels)
        operations = Operations(window.track, with_following=True, with_other_devices=True)
        codes, stages = operations.find_stages(array("q", range(count)))
        found["of the budget"] = [stages[code] for code in codes]
        return found | {"contexts": [contexts.get_context(i) for i in range(count)]}


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    made = [tmp_path / name for name in ("eager", "graph")]
    for folder in made:
        folder.mkdir()
    return made


def test_the_modules_of_a_graph_are_the_stages_of_its_eager_twin(folders: list[Path]) -> None:
    eager, graph = staged(folders[0], None), staged(folders[1], str)
    stages = ["layers.0.attention", "layers.0.attention", "layers.1.moe", "layers.1.moe", "none"]
    purposes = ["gather", "gather", "dispatch", "dispatch", None]
    expected = find_stages(eager)
    assert expected["contexts"] == STEPS * [*zip(stages, purposes, strict=True)]
    assert expected["of the budget"] == STEPS * stages
    assert find_stages(graph) == expected
    by_stage = [scopes(path, "stage", PARTS) for path in (eager, graph)]
    assert by_stage[0][:5] == [(stage, "none") for stage in stages[:4]] + [("(outside of any scope)", "none")]
    assert by_stage[1] == [
        ("(inside a graph)" if path.startswith("(") else path, direction) for path, direction in by_stage[0]
    ]


def test_a_cut_of_a_graph_keeps_its_modules(folders: list[Path]) -> None:
    path, cut = staged(folders[0], str), folders[1] / "cut.json"
    run("cut", path, "--convention", "kineto", "--window", "run", "-o", cut, code=0)
    assert find_stages(cut)["contexts"] == find_stages(path)["contexts"]
    assert scopes(cut, "module", PARTS) == scopes(path, "module", PARTS)


def test_the_range_of_a_replay_wins_over_its_modules(folders: list[Path]) -> None:
    found = find_stages(staged(folders[0], str, around="layers.7.moe"))
    assert found["contexts"] == 5 * STEPS * [("layers.7.moe", "dispatch")]


@pytest.mark.parametrize("named", [7, None, "", ["layers.0.attention"], "layers"], ids=str)
def test_what_names_no_module_gives_no_stage(folders: list[Path], named: object) -> None:
    found = find_stages(staged(folders[0], lambda _: named))
    assert found["contexts"] == 5 * STEPS * [("none", None)]


def test_times_written_as_text_keep_their_modules(folders: list[Path]) -> None:
    path = staged(folders[0], str)
    expected, trace = find_stages(path), json.loads(path.read_text())
    for event in trace["traceEvents"]:
        event["ts"] = str(event["ts"])
    path.write_text(json.dumps(trace))
    assert find_stages(path) == expected


def test_a_broken_character_in_the_name_of_a_module_is_replaced(folders: list[Path]) -> None:
    path = staged(folders[0], lambda module: f"{module}.\ud800")
    assert scopes(path, "module", PARTS)[0] == ("layers.0.attention.wq.?", "none")
    assert find_stages(path)["contexts"] == find_stages(staged(folders[1], str))["contexts"]


def test_a_copy_of_a_graph_is_on_its_own_stream_too(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.kernel("gemm", 1_000, 2_000)
    trace.memcpy(3_000, 4_000, stream=LANE)
    trace.events[-1]["args"] |= {"original_stream": 13, "graph node id": 2}
    opened = KinetoTrace(trace.write(tmp_path / "trace.json"))
    (copies,) = (opened.transfers(dict.fromkeys(opened.lanes())) or {}).values()
    assert [stream.number for stream in copies.streams] == [13]


@pytest.mark.parametrize(
    ("spellings", "word"),
    [
        (("bfloat16", "BFloat16", "c10::BFloat16", "torch.bfloat16", "at::BFloat16", " BFLOAT16 "), "BFloat16"),
        (("float16", "Half", "half", "c10::Half", "torch.half"), "Half"),
        (("float32", "float", "Float", "torch.float32"), "Float"),
        (("float64", "double", "Double"), "Double"),
        (("int64", "long", "Long", "long int"), "Long"),
        (("int32", "int", "Int", "torch.int32"), "Int"),
        (("uint8", "Byte", "unsigned char", "torch.uint8"), "Byte"),
        (("int8", "Char", "signed char"), "Char"),
        (("bool", "Bool"), "Bool"),
        (("float8_e4m3fn", "Float8_e4m3fn", "c10::Float8_e4m3fn", "torch.float8_e4m3fn"), "Float8_e4m3fn"),
        (("float8_e5m2fnuz", "c10::Float8_e5m2fnuz"), "Float8_e5m2fnuz"),
        (("float4_e2m1fn_x2", "c10::Float4_e2m1fn_x2"), "Float4_e2m1fn_x2"),
        (("complex64", "c10::complex<float>"), "ComplexFloat"),
    ],
)
def test_every_spelling_of_a_type_is_the_word_of_c10(spellings: tuple[str, ...], word: str) -> None:
    assert {normalize_dtype(spelt) for spelt in spellings} == {word}
    assert word in DTYPE_BYTES


def test_every_type_whose_size_is_known_keeps_its_name() -> None:
    assert {name: normalize_dtype(name) for name in DTYPE_BYTES} == {name: name for name in DTYPE_BYTES}
    assert {normalize_dtype(name.lower()) for name in DTYPE_BYTES} == {*DTYPE_BYTES}
    assert normalize_dtype("float3_new") == "float3_new"
