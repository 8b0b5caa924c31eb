"""Ten programs whose steps nobody marked, and what is true of each: where a step begins is known to this file alone.

A labelled copy of each says how long a step is (``write(..., labelled=True)``): the same kernels to the nanosecond,
with a range around each step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_nsys.analysis.steps.search_result import UnitType
from tests.support.awkward_models import (
    aten,
    embedding,
    forward,
    gathered,
    head,
    head_backward,
    optimizer,
    sampled,
    scaled,
    scattered,
    served,
    tokens,
    trained,
)
from tests.support.fault_runs import MS, Do, Op, Program, Step, collective, joined, kernel
from tests.support.samples.formats import Format

LABEL = "labelled step {}"
LABELS = LABEL.format("%")
TEACHER = 13
"""The stream of the other model."""


@dataclass(frozen=True)
class Awkward:
    """A program and the truth of it. ``steps`` are whole steps in the trace, by rank. ``found``: what the largest unit
    is that its kernels repeat, None where none does; only a step is written as the anchor. ``odd`` are among ``steps``
    those that hold something more. ``says``: patterns of what the first screen says where no step can be named.
    """

    program: Callable[[], Program]
    steps: tuple[int, ...]
    found: UnitType | None = UnitType.STEP
    odd: int = 0

    def write(self, folder: Path, format: Format, seed: int = 1, *, labelled: bool = False) -> Path:
        """The trace, of which ``seed`` says how long everything took this time."""
        program = self.program()
        program.jitter, program.anchor = 0.02, LABEL if labelled else ""
        program.launches |= labelled
        return program.write(folder, format, seed)


def _of(ranks: int, *steps: Callable[[], Step]) -> Program:
    """Ranks that run the same steps."""
    own = {rank: [step() for step in steps] for rank in range(ranks)}
    return Program(own, launch_ns={rank: 7_000 + 400 * rank for rank in own})


def warm_up() -> Program:
    """Two steps first that try out kernels and compile, and three that are only slow; then seven like each other."""

    def tuned() -> Step:
        ops = []
        for op in trained():
            ops.append(op)
            if op.do is Do.KERNEL and "nvjet" in op.name:
                ops += [kernel(f"{op.name}_try{number}", 60) for number in range(3)]
            if op.do is Do.KERNEL and "triton" in op.name:
                ops += [Op(Do.WORK, ns=300_000), *aten("clone", "memory_copy_kernel", 90)]
        return ops

    def slow() -> Step:
        return [Op(Do.WORK, ns=4 * MS), *trained(), Op(Do.WORK, ns=2 * MS)]

    return _of(2, tuned, tuned, slow, *[trained] * 7)


def cut_off() -> Program:
    """The profiler stopped in the backward of the last step."""

    def cut() -> Step:
        ops = trained()
        return [*ops[: len(ops) * 6 // 10], Op(Do.OFF), *ops[len(ops) * 6 // 10 :]]

    return _of(2, *[trained] * 7, cut)


def validation() -> Program:
    """Before each third step two batches are only looked at."""

    def looked_at() -> Step:
        ops: Step = []
        for _ in range(2):
            ops += [Op(Do.COPY, "HtoD", 90_000), *embedding(), *gathered(4), *head()]
            ops += aten("argmax", "reduce_kernel", 30, "ArgMaxOps<float>")
        ops += collective("ncclDevKernel_AllReduce_Sum_f64_TREE_LL", 20)
        return [*ops, *joined(), *trained()]

    return _of(2, *[trained, trained, looked_at] * 4, trained, trained)


def accumulation() -> Program:
    """Four micro-batches a step, whose gradients are summed up once."""

    def step() -> Step:
        ops: Step = []
        for _ in range(4):
            ops += [Op(Do.COPY, "HtoD", 90_000), *embedding(), *(op for _ in range(3) for op in forward()), *head()]
            ops += [*head_backward(), *scattered(3)]
        return [*ops, *optimizer(), Op(Do.SYNC, "cudaStreamSynchronize")]

    return _of(2, *[step] * 6)


def two_models() -> Program:
    """A teacher on a stream of its own, from which a student learns: of the same kernels, but a longer forward."""

    def step() -> Step:
        ops = [Op(Do.COPY, "HtoD", 90_000), *embedding(TEACHER)]
        ops += [op for _ in range(6) for op in forward(TEACHER, 1.6)]
        ops += scaled(aten("linear", "nvjet_tst_256x256_64x3_2x1_v_bz_coopA_TNT", 900), 1, TEACHER)
        ops += [*embedding(), *gathered(5), *head()]
        ops += [Op(Do.RECORD, "taught", stream=TEACHER), Op(Do.WAIT, "taught")]
        ops += aten("kl_div", "triton_red_fused__log_softmax_exp_mul_sub_sum_9", 120)
        return [*ops, *head_backward(), *scattered(5), *optimizer(), Op(Do.SYNC, "cudaStreamSynchronize")]

    return _of(2, *[step] * 8)


def other_starts() -> Program:
    """The profiler of one rank began a step earlier."""
    program = _of(2, *[trained] * 9)
    for rank, steps in program.steps.items():
        steps[rank + 1].insert(0, Op(Do.ON))
    return program


def unnamed_layers() -> Program:
    """One prefill of 24 layers that are all alike."""
    return _of(2, lambda: [*tokens(), *served(24, "flash_fwd_splitkv_kernel", 4), *sampled()])


def half_a_graph() -> Program:
    """The layers are one CUDA graph, what stands before and behind them is not."""

    def step() -> Step:
        nodes = tuple(op for op in served(12, "paged_attention_v2_kernel", 1, ranks=False) if op.do is Do.KERNEL)
        return [*tokens(), Op(Do.GRAPH, nodes=nodes), *sampled()]

    return _of(1, *[step] * 12)


def serving() -> Program:
    """Prefills, and between two of them as many decodes as there happen to be."""

    def prefill() -> Step:
        return [*tokens(), *served(8, "flash_fwd_kernel", 5), *sampled()]

    def decode() -> Step:
        return [*tokens(), *served(8, "flash_fwd_splitkv_kernel", 1.4), *sampled()]

    order = "PDDDPDDPDDDDDPPDDPDDDPDD"
    return _of(2, *[prefill if each == "P" else decode for each in order])


def gpu_only() -> Program:
    """Of the host nothing was recorded: no launch, no range."""
    program = _of(2, *[trained] * 8)
    program.launches = False
    return program


AWKWARD: Mapping[str, Awkward] = {
    "warm-up steps": Awkward(warm_up, (7, 7)),
    "a last step cut off": Awkward(cut_off, (7, 7)),
    "validation every third step": Awkward(validation, (14, 14), odd=4),
    "gradient accumulation": Awkward(accumulation, (6, 6)),
    "two models": Awkward(two_models, (8, 8)),
    "ranks that start at other steps": Awkward(other_starts, (8, 7)),
    "layers without names": Awkward(unnamed_layers, (1, 1), UnitType.MAYBE_PART),
    "a graph for half of the step": Awkward(half_a_graph, (12,)),
    "prefill and decode by turns": Awkward(serving, (24, 24), UnitType.KINDS),
    "no launches": Awkward(gpu_only, (8, 8)),
}
