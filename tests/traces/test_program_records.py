"""What of a program is read of events that a profiler wrote oddly? What can be; nothing ends in a traceback."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.tables import NO_SEQUENCE, ProgramRecords
from pytest_nsys.traces.chrome.jax import JaxTrace
from pytest_nsys.traces.chrome.jax_program import parse_jax_path, strip_op_number
from pytest_nsys.traces.chrome.kineto import KinetoTrace
from pytest_nsys.traces.chrome.program_records import is_users_function

PLACE = {"ph": "X", "pid": 100, "tid": 100}
KERNEL = {**PLACE, "cat": "kernel", "name": "gemm", "ts": 50, "dur": 1}
ON_GPU = {"device": 0, "stream": 7, "correlation": 1}


def records(path: Path, *events: dict[str, Any]) -> ProgramRecords:
    content = {"traceEvents": [{**KERNEL, "args": ON_GPU}, *events]}
    path.write_bytes(gzip.compress(json.dumps(content).encode("utf-8", "surrogatepass")))
    trace = KinetoTrace(path)
    (found,) = trace.program_records({}).values()
    return found


@pytest.mark.parametrize("number", ["7", 7, None, "x", [7], {"a": 1}, -3, 1 << 70, 7.5])
def test_odd_numbers_of_ops(tmp_path: Path, number: object) -> None:
    args = {"Sequence number": number, "Fwd thread id": number}
    op = {**PLACE, "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5, "args": args}
    ops = records(tmp_path / "trace.json.gz", op, {**op, "args": None}, {**op, "args": []}).ops
    known = 7 if number in (7, "7") else None
    assert [*ops.sequence] == [NO_SEQUENCE if known is None else known, NO_SEQUENCE, NO_SEQUENCE]
    assert [*ops.forward_thread] == [known or 0, 0, 0]
    assert [*ops.is_backward] == [known is not None, 0, 0]


@pytest.mark.parametrize(
    "broken",
    [
        {"ts": "soon"},
        {"ts": None},
        {"dur": -5},
        {"dur": None},
        {"ts": 1e300},
        {"name": "nn.Module: \udcff_0"},
        {"tid": "worker"},
        {"name": 5},
        {"cat": None},
    ],
)
def test_a_broken_call_is_left_out_alone(tmp_path: Path, broken: dict[str, Any]) -> None:
    call = {**PLACE, "cat": "python_function", "name": "nn.Module: Block_0", "ts": 1, "dur": 5}
    found = records(tmp_path / "trace.json.gz", call, {**call, **broken}, {**call, "name": "nn.Module: Last_0"})
    names = [found.modules.names[number] for number in found.modules.name]
    assert names[0] == "Block_0"
    assert names[-1] == "Last_0"
    assert all(name.isprintable() for name in names)


@pytest.mark.parametrize("written", [5, ["a"], {"a": 1}, "", None])
def test_an_odd_path_of_a_module_says_nothing(tmp_path: Path, written: object) -> None:
    kernel = {**KERNEL, "ts": 60, "args": {**ON_GPU, "module_fqn": written}}
    assert records(tmp_path / "trace.json.gz", kernel).origins == {}


@pytest.mark.parametrize("number", [[1], {"a": 1}, None, "1", 1])
def test_odd_arrows(tmp_path: Path, number: object) -> None:
    arrows = [{**PLACE, "cat": "fwdbwd", "name": "fwdbwd", "ph": ph, "id": number, "ts": 3} for ph in "sf"]
    found = records(tmp_path / "trace.json.gz", *arrows, {**arrows[0], "ts": "never"})
    assert len(found.links) == (number in ("1", 1))


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("model.py(212): forward", True),
        ("my/model.py(212): forward", True),
        ("/home/me/model.py(212): forward", True),
        ("<frozen importlib._bootstrap>(1390): _handle_fromlist", False),
        ("<string>(2): __init__", False),
        ("<built-in function len>", False),
        ("torch/nn/functional.py(5): linear", False),
        ("threading.py(1032): _bootstrap", False),
        ("/usr/lib/python3.11/site-packages/einops/einops.py(3): reduce", False),
        ("/usr/lib/python3.11/logging/__init__.py(3): debug", False),
        ("C:\\me\\model.py(1): f", True),
        ("nn.Module: Block_0", False),
    ],
)
def test_which_functions_are_the_users_own(name: str, own: bool) -> None:
    assert is_users_function(name) is own


@pytest.mark.parametrize(
    ("path", "modules", "direction"),
    [
        ("jit(step)/jvp(Model)/layers_3/attn/dot_general", "step Model layers_3 attn", "forward"),
        ("jit(step)/transpose(jvp(Model))/layers_3/attn/dot_general", "step Model layers_3 attn", "backward"),
        (
            "jit(step)/transpose(jvp(Model))/rematted_computation/layers_3/dot_general",
            "step Model layers_3",
            "recompute",
        ),
        ("jit(step)/jvp(Model)/checkpoint/layers_3/dot_general", "step Model layers_3", "forward"),
        ("jit(step)/while/body/closed_call/jvp(Model)/mlp/add", "step Model mlp", "forward"),
        ("jit(step)/vmap(transpose(jvp(Model)))/mlp/add", "step Model mlp", "backward"),
        ("jit(f)/jvp(bsd,de->bse)/dot_general", "f bsd,de->bse", "forward"),
        ("jit(f)/jvp()/add", "f", "forward"),
        ("jit(f)/jvp(a/b)/add", "f a/b", "forward"),
        ("jit(f)", "f", "none"),
        ("jit(f)/conv", "f", "none"),
    ],
)
def test_paths_of_jax(path: str, modules: str, direction: str) -> None:
    assert parse_jax_path(path) == (tuple(modules.split()), direction)


def test_what_xla_and_jax_mark_on_the_host_is_no_range(tmp_path: Path) -> None:
    names = ("ThunkExecutor::Execute", "PjitFunction(step)", "jit_step:XLA GPU module", "gemm_fusion.3", "load batch")
    lanes = [(1, "process_name", "/device:GPU:0"), (701, "process_name", "/host:CPU")]
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": kind, "pid": pid, "args": {"name": name}} for pid, kind, name in lanes
    ]
    events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "Stream #1"}})
    events += [{"ph": "X", "name": name, "pid": 701, "tid": 7, "ts": 1, "dur": 9} for name in names]
    args = {"correlation_id": "1", "hlo_op": "gemm_fusion.3", "hlo_module": "jit_step", "name": 5, "tf_op": "\udcff"}
    events.append({"ph": "X", "name": "gemm", "pid": 1, "tid": 1, "ts": 20, "dur": 5, "args": args})
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode("utf-8", "surrogatepass")))
    (found,) = JaxTrace(path).program_records({}).values()
    assert found.ranges is not None
    assert [found.ranges.names[number] for number in found.ranges.name] == ["load batch"]
    (origin,) = found.origins.values()
    assert (origin.module_path, origin.op, origin.source) == (("step",), "gemm_fusion", None)
    assert strip_op_number("custom-call.1.2") == "custom-call"
