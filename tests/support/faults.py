"""What goes wrong with a training step, and what is at its root: each fault, put into a program, as a table.

``FAULTS`` names what a red must lead with; nothing else that ran was changed, so nothing else may be blamed.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from pytest_nsys.analysis.explain.breakdown_model import NEXT_STEP, ChangeKind, RowActivity
from tests.support.fault_programs import (
    ADAM,
    ALL_GATHER,
    ALL_REDUCE,
    ATTENTION,
    ATTENTION_BACK,
    BACK_GEMM,
    FORWARD_GEMM,
    GATE,
    GROUPED,
    NORM,
    SYNC,
    WEIGHTS,
    data_parallel,
    dense,
    dualpipe,
    fsdp,
    launch_bound,
    on_amd,
)
from tests.support.fault_runs import COMM, COMPUTE, US, Do, Op, Program, Step, collective, copied, kernel
from tests.support.samples.formats import Format

NSYS, TORCH = Format.NSYS, Format.KINETO
Change = Callable[[Program], object]


@dataclass(frozen=True)
class Expected:
    """A root: ``name`` is found in its name, ``instead`` in that of what it replaced. ``ranks`` may have it, all
    where none is named.
    """

    kind: ChangeKind
    of: RowActivity
    name: str = ""
    ranks: tuple[int, ...] = ()
    stage: str = ""
    instead: str = ""


@dataclass(frozen=True)
class Fault:
    """``change`` makes the program worse. ``root`` must lead the worst red, ``beside`` are others that were injected as
    well. ``says`` are patterns of the sentence; ``step`` is how it begins. ``gate`` are sentences beside the drafted.
    """

    program: Callable[[], Program]
    change: Change
    root: Expected
    says: tuple[str, ...]
    step: str = r"Step \d+(\.\d+)?% slower"
    formats: Collection[Format] = (NSYS, TORCH)
    beside: tuple[Expected, ...] = ()
    gate: tuple[str, ...] = ()


# What changes


def stretched(name: str, percent: int, ranks: Collection[int] = ()) -> Change:
    """Ops of that name take so much longer."""

    def change(on: Program) -> None:
        for op in on.ops(name, ranks):
            op.ns += op.ns * percent // 100

    return change


def stretched_compute(percent: int, ranks: Collection[int] = (), mhz: int | None = None) -> Change:
    """All kernels that compute."""

    def change(on: Program) -> None:
        on.mhz = on.mhz and mhz
        for op in on.ops("", ranks, do=(Do.KERNEL,)):
            op.ns += op.ns * percent // 100

    return change


def put(before: str, *ops: Op, ranks: Collection[int] = (), every: int = 1, steps: Collection[int] = ()) -> Change:
    """Ops before every so many-th of a name."""

    def in_step(step: Step) -> Step:
        found: Step = []
        seen = 0
        for op in step:
            if op.name == before:
                found += [copied(each) for each in ops] if seen % every == 0 else []
                seen += 1
            found.append(op)
        return found

    return lambda on: on.edit(in_step, ranks, steps)


def gone(name: str, times: int = 1_000) -> Change:
    """The first so many of a name are launched no more."""

    def in_step(step: Step) -> Step:
        lost = [id(op) for op in step if op.name == name][:times]
        return [op for op in step if id(op) not in lost]

    return lambda on: on.edit(in_step)


def another(name: str, instead: str, percent: int) -> Change:
    """Another kernel takes the place of one, and so much more time."""

    def change(on: Program) -> None:
        for op in on.ops(name):
            op.name, op.ns = instead, op.ns * (100 + percent) // 100

    return change


def moved(name: str, stream: int) -> Change:
    """It runs on another stream, and waits for nothing there but what ran before."""

    def change(on: Program) -> None:
        for op in on.ops(name):
            op.stream = stream

    return change


def pageable(on: Program) -> None:
    """The copy of the batch takes longer, and the host stands in it."""
    for op in on.ops(do=(Do.COPY,)):
        op.pinned, op.ns = False, 1_900 * US


def one_bucket(on: Program) -> None:
    """What was summed up in pieces beside the backward is at its end, in one."""

    def in_step(step: Step) -> Step:
        pieces = [op for op in step if op.do is Do.COLLECTIVE]
        last = max(n for n, op in enumerate(step) if op.do is Do.COLLECTIVE)
        pieces[-1].ns = sum(op.ns for op in pieces)
        return [op for n, op in enumerate(step) if op not in pieces[:-1] or n == last]

    on.edit(in_step)


def without_prefetch(on: Program) -> None:
    """The weights of a layer are gathered when the layer before has computed."""
    on.steps = fsdp(prefetch=False).steps


def stretched_calls(on: Program) -> None:
    """A call that synchronises returns 2 ms after the GPU has done its work."""
    for op in on.ops(do=(Do.SYNC,)):
        op.ns += 2_000 * US


def slow_host(on: Program) -> None:
    """A launch takes the host three times as long."""
    for rank in on.launch_ns:
        on.launch_ns[rank] = on.launch_ns[rank] * 3


def both(*changes: Change) -> Change:
    """One change after the other."""

    def change(on: Program) -> None:
        for one in changes:
            one(on)

    return change


def clocked() -> Program:
    """The trace has the clock of the GPU."""
    program = dense()
    program.mhz = 1_980
    return program


UNCHANGED = r"(Step|Window) unchanged \(\S+ ms\)"
LONGER, SHORTER, NEW, GONE = ChangeKind.LONGER, ChangeKind.SHORTER, ChangeKind.NEW, ChangeKind.GONE
KERNEL, COLLECTIVE = RowActivity.KERNEL, RowActivity.COLLECTIVE

FAULTS: Mapping[str, Fault] = {
    "one CUTLASS kernel of many +20 %": Fault(
        dense,
        stretched("cute::C<96>, cute::C<64>", 20),
        Expected(LONGER, KERNEL, "96"),
        says=(r"96",),
        step=rf"(?:{UNCHANGED}|Step \d+(\.\d+)?% slower)",
        gate=("compute_ns <= baseline + 0.5%",),
    ),
    "a new kernel": Fault(
        dense,
        put(ATTENTION, kernel("debug_check_finite_kernel", 300)),
        Expected(NEW, KERNEL, "debug_check_finite_kernel"),
        says=("debug_check_finite_kernel",),
    ),
    "a synchronising call": Fault(
        dense,
        put(GATE, Op(Do.SYNC, "cudaDeviceSynchronize", 150 * US)),
        Expected(NEW, RowActivity.CALL, "cudaDeviceSynchronize"),
        says=("cudaDeviceSynchronize",),
    ),
    "one slow rank": Fault(
        data_parallel,
        stretched_compute(15, [3]),
        Expected(LONGER, RowActivity.ALL, "", (3,)),
        says=("rank 3", r"all compute \+1[456]%", "AllReduce|all_reduce"),
    ),
    "the clock is throttled": Fault(
        clocked,
        stretched_compute(8, mhz=1_830),
        Expected(LONGER, RowActivity.ALL),
        says=(r"all (compute|kernels)", r"\+[789](\.\d+)?%"),
        formats=(NSYS,),
    ),
    "all kernels +8 %": Fault(
        dense,
        stretched_compute(8),
        Expected(LONGER, RowActivity.ALL),
        says=(r"all (compute|kernels)", r"\+[789](\.\d+)?%"),
        formats=(TORCH,),
    ),
    "another algorithm": Fault(
        dense,
        another(BACK_GEMM, "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8", 30),
        Expected(ChangeKind.REPLACED, KERNEL, "cutlass_80_wmma", instead="nvjet_tst_192x192"),
        says=("nvjet 192x192 TNN", "gemm bf16 16x16x128 tn"),
    ),
    "compute that got shorter": Fault(
        partial(dense, pace_ms=30),
        stretched(BACK_GEMM, -50),
        Expected(SHORTER, KERNEL, BACK_GEMM),
        says=("nvjet 192x192 TNN", "50% shorter, and the GPU idles instead: "),
        step=UNCHANGED,
        gate=("idle_ns <= baseline + 5%",),
    ),
    "one dispatch more": Fault(
        launch_bound,
        put(ADAM, Op(Do.WORK, ns=2_000 * US)),
        Expected(ChangeKind.LATER, RowActivity.HOST, ADAM),
        says=("multi_tensor_apply_kernel",),
        gate=("compute_absent_ns <= baseline + 10%",),
    ),
    "a copy inserted": Fault(
        dense,
        put(ATTENTION, Op(Do.COPY, "DtoD", 280 * US, kind=8)),
        Expected(NEW, RowActivity.COPY, "(?i)d2d|DtoD|device"),
        says=("(?i)copy|memcpy",),
    ),
    "NCCL +30 %": Fault(
        fsdp,
        stretched("nccl", 30),
        Expected(LONGER, COLLECTIVE, "nccl"),
        beside=(Expected(LONGER, COLLECTIVE, "nccl"),),
        says=("(?i)all_?gather|reduce_?scatter",),
        formats=(TORCH,),
    ),
    "a period's p90": Fault(
        partial(dense, steps=12),
        put(ADAM, kernel("checkpoint_pack_kernel", 3_000), steps=[5, 9]),
        Expected(NEW, KERNEL, "checkpoint_pack_kernel"),
        says=("p90", "checkpoint_pack_kernel"),
        step=UNCHANGED,
        gate=("p90 period_ns <= baseline + 5%",),
    ),
    "a collective +30 %, the step unchanged": Fault(
        partial(data_parallel, pace_ms=30, reduce_us=3_000),
        stretched(ALL_REDUCE, 30),
        Expected(LONGER, COLLECTIVE, "AllReduce"),
        says=("AllReduce|all_reduce", r"(29|30|31)%", "all 4 ranks|4 of 4 ranks|all ranks"),
        step=UNCHANGED,
    ),
    "RCCL +40 % on AMD": Fault(
        on_amd,
        stretched("ncclDevKernel_Generic", 40),
        Expected(LONGER, COLLECTIVE, "ncclDevKernel_Generic"),
        says=("(?i)nccl|rccl|all_reduce", r"(39|40|41)%"),
        step=r"Step (unchanged|\d+(\.\d+)?% slower)",
        formats=(TORCH,),
    ),
    "one rank calls what synchronises": Fault(
        data_parallel,
        put(FORWARD_GEMM, Op(Do.SYNC, "cudaDeviceSynchronize", 400 * US), ranks=[2]),
        Expected(NEW, RowActivity.CALL, "cudaDeviceSynchronize", (2,)),
        says=("rank 2", "cudaDeviceSynchronize"),
    ),
    "one rank reads its batch late": Fault(
        data_parallel,
        put(NORM, Op(Do.WORK, ns=2_000 * US), ranks=[2], every=100),
        Expected(ChangeKind.LATER, RowActivity.HOST, NEXT_STEP, (2,)),  # before the first kernel of a step
        says=("rank 2", "between steps"),
    ),
    "a kernel on the communication stream": Fault(
        data_parallel,
        moved(ATTENTION_BACK, COMM),
        Expected(ChangeKind.ELSEWHERE, KERNEL, ATTENTION_BACK),
        says=("flash_bwd",),
        step=rf"(?:{UNCHANGED}|Step \d+(\.\d+)?% (slower|faster))",
    ),
    "a barrier added": Fault(
        data_parallel,
        put(NORM, *collective("ncclDevKernel_AllReduce_Sum_f32_TREE_LL", 150, COMPUTE)),
        Expected(NEW, COLLECTIVE, "ncclDevKernel_AllReduce_Sum_f32_TREE_LL"),
        says=("AllReduce",),
    ),
    "what hid it went away": Fault(
        dualpipe,
        gone(WEIGHTS),
        Expected(GONE, KERNEL, WEIGHTS),
        says=(
            "weight_grad_gemm_kernel is gone",
            "so SendRecv of stage2_f is exposed",
            "1 more assertion without data$",
        ),
        step=UNCHANGED,
    ),
    "FSDP all_gather longer": Fault(
        fsdp,
        stretched(ALL_GATHER, 150),
        Expected(LONGER, COLLECTIVE, "AllGather", stage="all_gather"),
        says=("(?i)all_?gather",),
        formats=(TORCH,),
    ),
    "FSDP without prefetch": Fault(
        fsdp,
        without_prefetch,
        Expected(ChangeKind.LATER, COLLECTIVE, "AllGather", stage="all_gather"),
        beside=(
            Expected(ChangeKind.LATER, RowActivity.HOST, NEXT_STEP),
        ),  # by which a step is ready sooner than the host
        says=("(?i)all_?gather", "later|after"),
        formats=(TORCH,),
    ),
    "compute beside an exchange got shorter": Fault(
        dualpipe,
        stretched(WEIGHTS, -45),
        Expected(SHORTER, KERNEL, WEIGHTS),
        says=("weight_grad_gemm_kernel",),
        step=rf"(?:{UNCHANGED}|Step \d+(\.\d+)?% faster|Window)",
        formats=(NSYS,),
    ),
    "an exchange on one rank of a DualPipe": Fault(
        dualpipe,
        stretched(GROUPED, 40, [1]),
        Expected(LONGER, KERNEL, GROUPED, (1,)),
        says=("deep_gemm", "rank 1"),
        step=r"(?:Step \d+(\.\d+)?% slower|Window)",
        formats=(NSYS,),
    ),
    "copies of pageable memory": Fault(
        dense,
        pageable,
        Expected(ChangeKind.REPLACED, RowActivity.COPY, "pageable", instead="pinned"),
        says=("(?i)copy|memcpy",),
    ),
    "a slower host": Fault(
        launch_bound, slow_host, Expected(ChangeKind.LATER, RowActivity.HOST), says=("(?i)launch|host",)
    ),
    "a kernel fused away": Fault(
        dense,
        both(gone(GATE), stretched(BACK_GEMM, 60)),
        Expected(LONGER, KERNEL, BACK_GEMM),
        beside=(Expected(GONE, KERNEL, GATE),),
        says=("nvjet 192x192 TNN",),
    ),
    "a renamed kernel": Fault(
        dense,
        both(another(ATTENTION_BACK, "flash_bwd_v3_kernel", 0), stretched(BACK_GEMM, 25)),
        Expected(LONGER, KERNEL, BACK_GEMM),
        beside=(Expected(ChangeKind.REPLACED, KERNEL, "flash_bwd_v3_kernel", instead=ATTENTION_BACK),),
        says=("nvjet 192x192 TNN",),
    ),
    "one bucket of gradients": Fault(
        data_parallel,
        one_bucket,
        Expected(ChangeKind.RARELY, COLLECTIVE, "AllReduce"),
        says=("AllReduce runs once instead of 3 times",),
    ),
    "a kernel new on one rank": Fault(
        data_parallel,
        put(ATTENTION, kernel("debug_nan_check_kernel", 250), ranks=[1]),
        Expected(NEW, KERNEL, "debug_nan_check_kernel", (1,)),
        says=("rank 1: new kernel debug_nan_check_kernel", "AllReduce"),
        formats=(TORCH,),
    ),
    "memory set before each attention": Fault(
        dense,
        put(ATTENTION, Op(Do.MEMSET, "memset", 250 * US)),
        Expected(ChangeKind.OFTEN, RowActivity.MEMSET, "memset"),
        says=("memset runs 7 times instead of 1",),
        formats=(NSYS,),
    ),
    "two at once": Fault(
        data_parallel,
        both(stretched(ALL_REDUCE, 50), stretched(ATTENTION_BACK, 25)),
        Expected(LONGER, COLLECTIVE, "AllReduce"),
        beside=(Expected(LONGER, KERNEL, ATTENTION_BACK),),
        says=("AllReduce|flash_bwd", "1 more cause"),
        formats=(NSYS,),
    ),
    "the host waits longer in a call": Fault(
        dense,
        stretched_calls,
        Expected(LONGER, RowActivity.CALL, SYNC),
        says=(r"GPU waits 2(\.0\d)? ms longer while the host is in cudaStreamSynchronize",),
        formats=(TORCH,),
    ),
}
