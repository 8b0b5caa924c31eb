"""Which scope of each kind launched a kernel, in which pass? On steps whose every launch is known."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_nsys.analysis.scopes.scope_times import ScopeTimes, find_track_directions, find_track_scopes, sum_scopes
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.scopes import DIRECTIONS, UNATTRIBUTED_REASONS, ScopeKind, UnattributedReason
from tests.support.measure import captures
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.rocpd import RocpdBuilder
from tests.support.scope_programs import WRITERS, launches, name_module

GENERIC = BUILT_IN_CONVENTIONS["generic"]


@contextmanager
def whole_run(path: Path, convention: Convention = GENERIC) -> Iterator[RankWindow]:
    """The whole run of the only rank."""
    with captures(path, convention=convention) as run:
        ((window,),) = run.runs[0].load_windows(run.make_spec("run")).require_filled_windows().values()
        yield window


def told(window: RankWindow, kind: str) -> list[tuple[str, str]]:
    """The path and the pass of each kernel, in the order of their starts; a reason in parentheses."""
    codes, tree = find_track_scopes(window.track, ScopeKind(kind))
    return [
        (tree.texts[code] if code > 0 else f"({UNATTRIBUTED_REASONS[-1 - code]})", str(DIRECTIONS[direction]))
        for code, direction in zip(codes, find_track_directions(window.track), strict=True)
    ]


def scopes(path: Path, kind: str, convention: Convention = GENERIC) -> list[tuple[str, str]]:
    with whole_run(path, convention) as window:
        return told(window, kind)


def times(path: Path, kind: str) -> Mapping[str, int]:
    """The inclusive time of each scope, all passes together."""
    with whole_run(path) as window:
        found: ScopeTimes = sum_scopes(window, ScopeKind(kind))
        return {
            found.tree.texts[number]: sum(usage.time_ns for usage in by_direction.values())
            for number, by_direction in found.inclusive.items()
        }


@pytest.mark.parametrize("format_name", WRITERS)
def test_each_kernel_has_the_module_and_the_pass_of_its_launch(tmp_path: Path, format_name: str) -> None:
    name, write = WRITERS[format_name]
    expected = [(name_module(format_name, each.layer, each.module), str(each.direction)) for each in launches()]
    assert scopes(write(tmp_path / name, None), "module") == expected


def test_operators_and_sources(tmp_path: Path) -> None:
    torch, nsys, jax = (write(tmp_path / name, None) for name, write in WRITERS.values())
    assert scopes(torch, "op")[0] == ("aten::norm/aten::mm", "forward")
    evaluated = "autograd::engine::evaluate_function: MlpBackward0/MlpBackward0/aten::mm"
    assert scopes(torch, "op")[9] == (evaluated, "backward")
    assert scopes(nsys, "op")[0] == ("aten::mm", "forward")
    assert scopes(nsys, "op")[9] == ("MlpBackward0/aten::mm", "backward")
    assert {path for path, _ in scopes(jax, "op")} == {"gemm_fusion_dot"}
    assert scopes(jax, "source")[1] == ("/home/me/model.py(11)", "forward")
    assert {path for path, _ in scopes(jax, "range")} == {"train step_num=1"}
    assert {path for path, _ in scopes(torch, "range")} == {"ProfilerStep#1"}


def backward_op(
    trace: KinetoBuilder, name: str, start: int, end: int, sequence: int | None, *, forward_thread: int = 1
) -> None:
    args = {"Fwd thread id": forward_thread} | ({} if sequence is None else {"Sequence number": sequence})
    trace.event("cpu_op", name, start, end, args=args, tid=200)


def test_of_forward_ops_that_share_a_number_the_innermost_counts(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("Model_0", 1_000, 9_000)
    seventh = {"Sequence number": 7, "Fwd thread id": 0}
    # The outer op begins in the model, the inner one with the same number inside a module of it.
    trace.event("cpu_op", "aten::linear", 1_500, 4_000, args=seventh)
    trace.module("Linear_0", 1_600, 3_900)
    trace.event("cpu_op", "aten::addmm", 1_700, 3_000, args=seventh)
    # The number comes again in a later step, after the backward pass of this one.
    backward_op(trace, "AddmmBackward0", 10_000, 12_000, 7)
    trace.kernel("gemm", 50_000, 51_000, launch_ns=10_500, launch_length_ns=10, thread=200)
    trace.module("Model_0", 20_000, 29_000)
    trace.module("Other_0", 20_100, 28_000)
    trace.event("cpu_op", "aten::addmm", 20_500, 21_000, args=seventh)
    trace.write(path := tmp_path / "trace.json")
    assert scopes(path, "module") == [("Model/Linear", "backward")]


def test_the_thread_that_a_backward_op_names_decides_between_equal_numbers(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    # Two threads run a model each, and autograd numbers the ops of each anew.
    for thread, module in ((300, "Student_0"), (301, "Teacher_0")):
        trace.module(module, 1_000, 9_000, thread=thread)
        for number in range(1, 4):
            if (thread, number) != (301, 3):
                args = {"Sequence number": number, "Fwd thread id": 0}
                trace.event("cpu_op", "aten::mm", 1_000 * number + 100, 1_000 * number + 900, args=args, tid=thread)
    for number, start in ((3, 20_000), (2, 21_000), (1, 22_000)):
        backward_op(trace, "MmBackward0", start, start + 500, number)
        trace.kernel("gemm", start + 40_000, start + 40_100, launch_ns=start + 100, launch_length_ns=10, thread=200)
    trace.write(path := tmp_path / "trace.json")
    # The only one with a third op is the thread that the backward ops mean: it has most of their numbers.
    assert scopes(path, "module") == 3 * [("Student", "backward")]


def test_where_no_thread_is_named_the_last_of_equal_numbers_counts(tmp_path: Path) -> None:
    gpu = (trace := TraceBuilder()).process()
    for thread, start, module in ((300, 1_000, "student.0.mlp"), (301, 2_000, "teacher.0.mlp")):
        gpu.range(module, start, start + 900, thread=thread)
        gpu.range("aten::mm, seq = 7, op_id = 1", start + 100, start + 500, thread=thread)
    gpu.range("MmBackward0, seq = 7, op_id = 2", 5_000, 6_000, thread=400)
    gpu.kernel("gemm", 50_000, 51_000, launch_ns=5_500, thread=400)
    path = Path(trace.write(tmp_path / "trace.sqlite"))
    assert scopes(path, "module") == [("teacher.0.mlp", "backward")]


def test_an_op_inside_a_backward_op_that_says_no_number_belongs_to_that(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("Model_0", 1_000, 2_000)
    trace.event("cpu_op", "Custom", 1_100, 1_900, args={"Sequence number": 4, "Fwd thread id": 0})
    backward_op(trace, "CustomBackward", 10_000, 14_000, 4)
    backward_op(trace, "autograd::engine::evaluate_function: Inner", 11_000, 13_000, None)
    trace.kernel("gemm", 50_000, 51_000, launch_ns=12_000, launch_length_ns=10, thread=200)
    trace.write(path := tmp_path / "trace.json")
    assert scopes(path, "module") == [("Model", "backward")]


def test_what_hooks_launch_and_what_lies_before_the_capture_is_backward_without_a_module(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("Model_0", 1_000, 2_000)
    backward_op(trace, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 10_000, 11_000, None)
    trace.kernel("allreduce", 50_000, 51_000, launch_ns=10_500, launch_length_ns=10, thread=200)
    backward_op(trace, "MmBackward0", 12_000, 13_000, 99)
    trace.kernel("gemm", 52_000, 53_000, launch_ns=12_500, launch_length_ns=10, thread=200)
    trace.write(path := tmp_path / "trace.json")
    assert scopes(path, "module") == 2 * [("(outside of any scope)", "backward")]


def test_an_arrow_from_the_forward_pass_stands_for_a_missing_number(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("Model_0", 1_000, 5_000)
    trace.event("cpu_op", "aten::mm", 1_500, 2_000, args={})
    trace.event("cpu_op", "MmBackward0", 10_000, 11_000, args={}, tid=200)
    for phase, at, thread in (("s", "1.500", 100), ("f", "10.000", 200)):
        arrow = {"ph": phase, "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": 100, "tid": thread}
        trace.events.append({**arrow, "ts": f"<{at}>"})
    trace.kernel("gemm", 50_000, 51_000, launch_ns=10_500, launch_length_ns=10, thread=200)
    trace.write(path := tmp_path / "trace.json")
    assert scopes(path, "module") == [("Model", "backward")]


def test_a_module_that_the_backward_pass_calls_runs_again_whatever_its_ops_say(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("Model_0", 1_000, 9_000)
    trace.event("cpu_op", "CheckpointFunction", 1_500, 4_000, args={"Sequence number": 8, "Fwd thread id": 0})
    trace.module("Block_0", 1_600, 3_900)
    backward_op(trace, "CheckpointFunctionBackward", 20_000, 29_000, 8)
    trace.module("Block_0", 21_000, 24_000, thread=200)
    trace.kernel("gemm", 50_000, 51_000, launch_ns=22_000, launch_length_ns=10, thread=200)
    trace.kernel("gemm", 52_000, 53_000, launch_ns=26_000, launch_length_ns=10, thread=200)
    trace.write(path := tmp_path / "trace.json")
    assert scopes(path, "module") == [("Model/Block", "recompute"), ("Model", "backward")]


def test_a_module_around_the_whole_backward_pass_is_not_what_runs_again(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("Trainer_0", 500, 40_000)
    trace.module("Model_0", 1_000, 9_000)
    trace.event("cpu_op", "CheckpointFunction", 1_500, 4_000, args={"Sequence number": 8, "Fwd thread id": 0})
    args = {"Sequence number": 8, "Fwd thread id": 1}
    trace.event("cpu_op", "CheckpointFunctionBackward", 20_000, 29_000, args=args)
    trace.event("cpu_op", "aten::mm", 22_000, 23_000, args={"Sequence number": 3, "Fwd thread id": 0})
    trace.kernel("gemm", 50_000, 51_000, launch_ns=22_500, launch_length_ns=10)
    trace.write(path := tmp_path / "trace.json")
    assert scopes(path, "module") == [("Trainer/Model", "recompute")]


def checkpointed(path: Path, *, inner_module: bool) -> Path:
    """A block under activation checkpointing: the backward pass calls it again, then its own backward ops."""
    trace = KinetoBuilder()
    trace.module("Model_0", 1_000, 9_000)
    for block, start in ((0, 1_500), (1, 5_000)):
        args = {"Sequence number": 7 + block, "Fwd thread id": 0}
        trace.event("cpu_op", "CheckpointFunction", start, start + 3_000, args=args)
        trace.module(f"Block_{block}", start + 100, start + 2_900)
    backward_op(trace, "CheckpointFunctionBackward", 20_000, 29_000, 8)
    if inner_module:
        trace.module("Block_1", 21_000, 24_000, thread=200)
    args = {"Sequence number": 3, "Fwd thread id": 0}
    trace.event("cpu_op", "aten::mm", 22_000, 23_000, args=args, tid=200)
    trace.kernel("gemm", 50_000, 51_000, launch_ns=22_500, launch_length_ns=10, thread=200)
    backward_op(trace, "MmBackward0", 25_000, 26_000, 3, forward_thread=2)
    trace.kernel("gemm", 52_000, 53_000, launch_ns=25_500, launch_length_ns=10, thread=200)
    trace.write(path)
    return path


def test_what_the_backward_pass_runs_again_is_recompute_in_the_module_of_the_forward_pass(tmp_path: Path) -> None:
    block = "Model/Block[1]"
    with_module = checkpointed(tmp_path / "a.json", inner_module=True)
    assert scopes(with_module, "module") == [(block, "recompute"), (block, "backward")]
    # Without the call of a module there is only the place of the checkpoint.
    assert scopes(checkpointed(tmp_path / "b.json", inner_module=False), "module")[0] == ("Model", "recompute")


def test_modules_are_numbered_by_occurrence_whatever_numbers_the_profiler_gave(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("Model_0", 1_000, 90_000)
    # The second block was called first in the capture, before the model; a module that runs twice is one.
    order = [("Block_1", "Linear_5", "Linear_5"), ("Block_0", "Linear_9", "Linear_2"), ("Block_4", "Norm_0", "Norm_0")]
    for number, (block, *inner) in enumerate(order):
        start = 2_000 + 10_000 * number
        trace.module(block, start, start + 9_000)
        for place, module in enumerate(inner):
            begin = start + 1_000 + 3_000 * place
            trace.module(module, begin, begin + 2_000)
            at = 200_000 + 20_000 * number + 5_000 * place
            trace.kernel("gemm", at, at + 100, launch_ns=begin + 500, launch_length_ns=10)
    trace.write(path := tmp_path / "trace.json")
    # Nothing says more of the pass than that a module is called: forward.
    assert scopes(path, "module") == [
        *2 * [("Model/Block[0]/Linear", "forward")],
        *(("Model/Block[1]/Linear[0]", "forward"), ("Model/Block[1]/Linear[1]", "forward")),
        *2 * [("Model/Block[2]/Norm", "forward")],
    ]


def test_a_compiled_region_alone_is_no_answer(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("GraphModule_0", 1_000, 3_000)
    trace.kernel("gemm", 50_000, 51_000, launch_ns=2_000, launch_length_ns=10)
    trace.module("Model_0", 4_000, 9_000)
    trace.module("GraphModule_1", 4_500, 8_000)
    trace.module("Linear_0", 5_000, 6_000)
    trace.kernel("gemm", 52_000, 53_000, launch_ns=5_500, launch_length_ns=10)
    trace.kernel("gemm", 54_000, 55_000, launch_ns=7_000, launch_length_ns=10)
    trace.write(path := tmp_path / "trace.json")
    assert [scope for scope, _ in scopes(path, "module")] == [
        "(inside a compiled region)",
        "Model/Linear",
        "Model",
    ]


def test_what_an_export_wrote_to_a_kernel_of_a_graph_wins(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    number = trace.api("cudaGraphLaunch", 1_000, 1_500)
    for start, more in ((50_000, {"module_fqn": "model.layers.3.attn"}), (52_000, {})):
        args = {"device": 0, "context": 1, "stream": 7, "correlation": number, "graph node id": 5}
        trace.event("kernel", "gemm", start, start + 1_000, pid=0, tid=7, args={**args, **more})
    trace.kernel("lost", 54_000, 55_000, launch=False)
    trace.write(path := tmp_path / "trace.json")
    reasons = [UnattributedReason.IN_GRAPH, UnattributedReason.NO_LAUNCH]
    assert [scope for scope, _ in scopes(path, "module")] == ["model.layers.3.attn", *(f"({r})" for r in reasons)]


def test_threads_that_are_called_by_name_are_told_apart(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    for thread, module in (("worker", "Left_0"), ("main", "Right_0")):
        trace.event("python_function", f"nn.Module: {module}", 1_000, 9_000, tid=thread)
    for place, thread in enumerate(("main", "worker")):
        number = trace.api("cudaLaunchKernel", 2_000 + 100 * place, 2_050 + 100 * place)
        trace.events[-1]["tid"] = thread
        trace.kernel("gemm", 50_000 + 2_000 * place, 51_000 + 2_000 * place, correlation=number)
    trace.write(path := tmp_path / "trace.json")
    assert [scope for scope, _ in scopes(path, "module")] == ["Right", "Left"]


def test_source_is_the_innermost_function_of_the_users_own_files(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    calls = ("train.py(12): main", "my/model.py(40): forward", "torch/nn/functional.py(9): linear", "<string>(1): f")
    for depth, name in enumerate(calls):
        trace.event("python_function", name, 1_000 + 100 * depth, 9_000 - 100 * depth, args={})
    trace.event("python_function", "/x/site-packages/einops/a.py(3): b", 1_500, 8_500, args={})
    trace.event("python_function", "<built-in function linear>", 1_600, 8_400, args={})
    trace.event("python_function", "contextlib.py(79): inner", 1_700, 8_300, args={})
    trace.event("cpu_op", "aten::mm", 2_000, 3_000, args={"Sequence number": 4, "Fwd thread id": 0})
    trace.kernel("gemm", 50_000, 51_000, launch_ns=2_500, launch_length_ns=10)
    backward_op(trace, "MmBackward0", 10_000, 12_000, 4)
    trace.kernel("gemm", 52_000, 53_000, launch_ns=11_000, launch_length_ns=10, thread=200)
    trace.write(path := tmp_path / "trace.json")
    line = "my/model.py(40): forward"
    assert scopes(path, "source") == [(line, "forward"), (line, "backward")]


def test_ranges_are_those_of_any_thread_the_longest_outermost(tmp_path: Path) -> None:
    gpu = (trace := TraceBuilder()).process()
    gpu.range("step 1", 1_000, 90_000)
    gpu.range("backward", 10_000, 60_000)
    gpu.range("ncclAllReduce", 20_000, 30_000, thread=200)
    gpu.kernel("gemm", 100_000, 101_000, launch_ns=21_000, launch_length_ns=10, thread=200)
    gpu.kernel("gemm", 102_000, 103_000, launch_ns=70_000, launch_length_ns=10, thread=200)
    gpu.kernel("gemm", 104_000, 105_000, launch_ns=95_000, launch_length_ns=10)
    gpu.kernel("lost", 106_000, 107_000, launch=False)
    path = Path(trace.write(tmp_path / "trace.sqlite"))
    assert scopes(path, "range") == [
        ("step 1/backward", "backward"),
        ("step 1", "none"),
        ("(outside of any scope)", "none"),
        ("(no launch in the file)", "none"),
    ]


def test_modules_that_ranges_mark(tmp_path: Path) -> None:
    gpu = (trace := TraceBuilder()).process()
    names = ("{'Module': 'model.layers.3.attn', 'Inputs': [[1, 2]]}", "layer05_stage5_f_layer06_stage1_f", "loss")
    for number, name in enumerate(names):
        start = 1_000 + 10_000 * number
        gpu.range(name, start, start + 5_000)
        gpu.kernel("gemm", start + 100_000, start + 101_000, launch_ns=start + 1_000, thread=200)
    path = Path(trace.write(tmp_path / "trace.sqlite"))
    found = scopes(path, "module", BUILT_IN_CONVENTIONS["pithtrain"])
    assert [scope for scope, _ in found] == ["model.layers.3.attn", "layer06/stage1_f", "(outside of any scope)"]
    stages = scopes(path, "stage", BUILT_IN_CONVENTIONS["pithtrain"])
    assert [scope for scope, _ in stages] == ["(outside of any scope)", "stage1_f", "(outside of any scope)"]


def test_markers_of_rocprofv3_are_ranges_and_modules(tmp_path: Path) -> None:
    trace = RocpdBuilder()
    trace.range("step", 1_000, 90_000)
    trace.range("layers.3.attn", 2_000, 9_000)
    trace.kernel("gemm", 100_000, 101_000, launch_ns=3_000, thread=7)
    path = trace.write(tmp_path / "run_results.db")
    assert scopes(path, "module") == [("layers.3.attn", "none")]
    assert scopes(path, "range") == [("step/layers.3.attn", "none")]


@pytest.mark.parametrize("kind", ScopeKind)
@pytest.mark.parametrize("format_name", WRITERS)
def test_times_of_scopes_sum_to_the_time_of_the_kernels(tmp_path: Path, kind: ScopeKind, format_name: str) -> None:
    name, write = WRITERS[format_name]
    with whole_run(write(tmp_path / name, None)) as window:
        found = sum_scopes(window, kind)
        assert sum(usage.time_ns for usage in found.exclusive.values()) == sum(window.durations_ns)
        assert sum(usage.launches for usage in found.exclusive.values()) == len(window)


def test_a_scope_takes_the_time_of_all_that_is_inside_it(tmp_path: Path) -> None:
    name, write = WRITERS["torch"]
    found = times(write(tmp_path / name, None), "module")
    everything = sum(each.end_ns - each.start_ns for each in launches())
    assert found["Model"] == everything
    assert sum(found[f"Model/Block[{layer}]"] for layer in range(3)) == everything
    assert found["Model/Block[1]/Attention"] == 30_000
