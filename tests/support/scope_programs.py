"""A training step of some layers whose every kernel is known, in three formats: which module launched it, and in which
pass?

Each layer has a ``norm``, an ``attn`` and an ``mlp``; each runs one kernel forward and one backward, launched by a
thread of autograd. ``slow`` makes those of one (layer, module, pass) longer.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.scopes import Direction
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder

LAYERS, MODULES = 3, {"norm": 2_000, "attn": 10_000, "mlp": 20_000}
CLASSES = {"norm": "RMSNorm", "attn": "Attention", "mlp": "FeedForward"}
PASSES = (Direction.FORWARD, Direction.BACKWARD)
Place = tuple[int, str, Direction]
MAIN, AUTOGRAD = 100, 200


class Launch(NamedTuple):
    """One kernel, in the order of the launches."""

    layer: int
    module: str
    direction: Direction
    launch_ns: int
    start_ns: int
    end_ns: int
    sequence: int


def launches(slow: Mapping[Place, float] | None = None) -> Iterator[Launch]:
    """The kernels of a step: forward through the layers, then backward."""
    forward = [(layer, module) for layer in range(LAYERS) for module in MODULES]
    start = 50_000
    order = [(*each, PASSES[0]) for each in forward] + [(*each, PASSES[1]) for each in reversed(forward)]
    for number, (layer, module, direction) in enumerate(order):
        length = MODULES[module] * (2 if direction is Direction.BACKWARD else 1)
        length = round(length * (slow or {}).get((layer, module, direction), 1))
        yield Launch(
            layer, module, direction, 2_000 + 1_000 * number, start, start + length, 1 + forward.index((layer, module))
        )
        start += length + 100


def write_torch(path: Path, slow: Mapping[Place, float] | None = None) -> Path:
    """As torch.profiler writes it with ``with_modules``."""
    trace, kernels = KinetoBuilder(), [*launches(slow)]
    forward = [each for each in kernels if each.direction is Direction.FORWARD]
    trace.range("ProfilerStep#1", 1_000, 40_000)
    # The profiler numbers instances by their first call in the capture, here from another one than the first layer.
    trace.module("Model_0", 1_500, forward[-1].launch_ns + 900)
    for layer in range(LAYERS):
        own = [each for each in forward if each.layer == layer]
        trace.module(f"Block_{(layer + 1) % LAYERS}", own[0].launch_ns - 300, own[-1].launch_ns + 700)
    for each in kernels:
        at = each.launch_ns
        name = CLASSES[each.module]
        if each.direction is Direction.FORWARD:
            trace.module(f"{name}_{each.layer + 7}", at - 200, at + 600)
            args = {"Sequence number": each.sequence, "Fwd thread id": 0}
            trace.event("cpu_op", f"aten::{each.module}", at - 100, at + 500, args=args)
            trace.event("cpu_op", "aten::mm", at - 50, at + 400, args=args)
            trace.kernel("gemm", each.start_ns, each.end_ns, launch_ns=at, launch_length_ns=100)
        else:
            args = {"Sequence number": each.sequence, "Fwd thread id": 1}
            backward = f"{each.module.title()}Backward0"
            evaluated = f"autograd::engine::evaluate_function: {backward}"
            trace.event("cpu_op", evaluated, at - 200, at + 600, args=args, tid=AUTOGRAD)
            trace.event("cpu_op", backward, at - 100, at + 500, args=args, tid=AUTOGRAD)
            trace.event("cpu_op", "aten::mm", at - 50, at + 400, args={}, tid=AUTOGRAD)
            trace.kernel("gemm", each.start_ns, each.end_ns, launch_ns=at, launch_length_ns=100, thread=AUTOGRAD)
    trace.write(path)
    return path


def write_nsys(path: Path, slow: Mapping[Place, float] | None = None) -> Path:
    """As nsys writes it of a program that marks its modules with NVTX, under ``emit_nvtx``."""
    trace = TraceBuilder()
    gpu = trace.process()
    gpu.range("step", 1_000, 40_000)
    for number, each in enumerate(launches(slow)):
        at, thread = each.launch_ns, None
        if each.direction is Direction.FORWARD:
            gpu.range(f"layers.{each.layer}.{each.module}", at - 200, at + 600)
            gpu.range(f"aten::mm, seq = {each.sequence}, op_id = {number}", at - 50, at + 400)
        else:
            thread = AUTOGRAD
            name = f"{each.module.title()}Backward0"
            gpu.range(f"{name}, seq = {each.sequence}, op_id = {number}", at - 100, at + 500, thread=thread)
            gpu.range(f"aten::mm, op_id = {number}", at - 50, at + 400, thread=thread)
        gpu.kernel("gemm", each.start_ns, each.end_ns, launch_ns=at, launch_length_ns=100, thread=thread)
    return Path(trace.write(path))


def write_jax(path: Path, slow: Mapping[Place, float] | None = None) -> Path:
    """As XProf writes it."""
    trace = JaxBuilder()
    trace.step("train", 1, 1_000, 40_000)
    for number, each in enumerate(launches(slow)):
        passed = "jvp(Model)" if each.direction is Direction.FORWARD else "transpose(jvp(Model))"
        trace.kernel(
            "gemm_fusion",
            each.start_ns,
            each.end_ns,
            launch_ns=each.launch_ns,
            launch_length_ns=100,
            name=f"jit(step)/{passed}/layers_{each.layer}/{each.module}/dot_general",
            hlo_op=f"gemm_fusion_dot.{number}",
            source=f"/home/me/model.py:{10 + list(MODULES).index(each.module)}",
        )
    trace.write(path)
    return path


Writer = Callable[[Path, Mapping[Place, float] | None], Path]
WRITERS: Mapping[str, tuple[str, Writer]] = {
    "torch": ("trace.json", write_torch),
    "nsys": ("trace.sqlite", write_nsys),
    "jax": ("host.trace.json", write_jax),
}


def name_module(format_name: str, layer: int, module: str) -> str:
    """What the path of a module is in a format."""
    return {
        "torch": f"Model/Block[{layer}]/{CLASSES[module]}",
        "nsys": f"layers.{layer}.{module}",
        "jax": f"step/Model/layers_{layer}/{module}",
    }[format_name]
