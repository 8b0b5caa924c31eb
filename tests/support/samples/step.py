"""In which order does one rank work through a DualPipeV step? Chunks, stages, and what waits for what.

A steady chunk interleaves a forward and a backward pass so that the communication of one hides behind the
compute of the other. The CPU runs ahead and waits once per layer, after ``stage1_f``, where the router needs
the token counts. What the step is made of, and what can go wrong in it, are the parameters of the simulation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from tests.support.samples.schema import Export
from tests.support.samples.timeline import COMPUTE_STREAM, Timeline


@dataclass(frozen=True)
class StepShape:
    """The step: the mesh, the work per rank, and how the trace tells of it.

    ``chunks`` is the number of steady anchors (a forward and a backward chunk in one), ``layers`` those of
    one chunk, and ``transfers_per_stage`` the communication kernels of one stage. ``jitter`` is the largest
    relative deviation of a kernel's duration. ``text`` says how NVTX names its ranges; ``both``: inline on
    even ranks, registered on odd ones.
    """

    pp: int = 2
    dp: int = 1
    cp: int = 1
    ep: int = 2
    chunks: int = 15
    layers: int = 4
    kernels_per_stage: int = 3
    transfers_per_stage: int = 2
    micro_batch: int = 1
    sequence_length: int = 2048
    seed: int = 1
    jitter: float = 0.15
    text: Literal["inline", "registered", "both"] = "both"
    stage3_communication: bool = False
    nccl_ranges: bool = True

    @property
    def world(self) -> int:
        return self.pp * self.dp * self.cp * self.ep

    def registered(self, rank: int) -> bool:
        """Whether the ranges of ``rank`` are named by registered strings."""
        return self.text == "registered" or (self.text == "both" and rank % 2 == 1)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where ``rank`` stands in the mesh: the last axis runs fastest."""
        sizes = {"pp": self.pp, "dp": self.dp, "cp": self.cp, "ep": self.ep}
        found = {}
        for axis, size in reversed(sizes.items()):
            rank, found[axis] = divmod(rank, size)
        return {axis: found[axis] for axis in sizes}

    def setup_label(self, rank: int) -> str:
        at = self.coordinates(rank)
        return (
            f"rank={rank}; pp={at['pp']}/{self.pp} dp={at['dp']}/{self.dp} cp={at['cp']}/{self.cp} "
            f"ep={at['ep']}/{self.ep}; mbs={self.micro_batch} seq={self.sequence_length}"
        )


@dataclass(frozen=True)
class Regression:
    """What a bad change does to some ranks; without ``ranks``, to all. The keys are stages (``stage4_f``).

    ``communication`` and ``compute`` are factors on durations, ``stream`` moves a stage's communication to
    another stream, ``missing`` stages (2 to 4) are never entered, ``extra_launches`` adds so many short compute
    kernels to each visit of a stage.
    """

    ranks: frozenset[int] | None = None
    communication: Mapping[str, float] = field(default_factory=dict)
    compute: Mapping[str, float] = field(default_factory=dict)
    stream: Mapping[str, int] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    extra_launches: Mapping[str, int] = field(default_factory=dict)


FORWARD_STREAM, BACKWARD_STREAM, RING_STREAM = 28, 32, 36
PIPELINE_STREAM, GRADIENT_STREAM, WEIGHTS_STREAM = 40, 44, 48
PIPELINE_RANGE = "pipeline send/recv"

_CAPTURE_START_NS = 1_200_000_000
_NS_PER_US = 1_000

COMPUTE_US = {
    "stage1_f": 1_700, "stage3_f": 2_000, "stage5_f": 900,
    "stage1_b": 2_300, "stage3_b": 2_100, "stage5_b": 1_000, "stage3_w": 1_500,
}  # fmt: skip
COMMUNICATION_US = {
    "stage1_f": 700, "stage2_f": 1_900, "stage3_f": 1_850, "stage4_f": 2_900,
    "stage1_b": 900, "stage2_b": 1_900, "stage3_b": 1_900, "stage4_b": 1_900,
}  # fmt: skip
PIPELINE_US, GRADIENT_US, UPDATE_US, LOSS_US, BARRIER_US, EXTRA_US = 500, 1_800, 400, 60, 20, 4
STREAM = {
    "stage1_f": RING_STREAM, "stage1_b": RING_STREAM,
    "stage2_f": FORWARD_STREAM, "stage4_f": FORWARD_STREAM,
    "stage2_b": BACKWARD_STREAM, "stage4_b": BACKWARD_STREAM,
    "stage3_f": WEIGHTS_STREAM, "stage3_b": WEIGHTS_STREAM,
}  # fmt: skip
_ATTENTION = ("flash_fwd_kernel", "vectorized_elementwise_kernel", "nvjet_tst_192x192_64x4_2x1_v_bz_TNN")
_ATTENTION_BACKWARD = ("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "elementwise_kernel", "reduce_kernel")
_EXPERTS = ("deep_gemm_fp8_m_grouped_gemm_contiguous", "_silu_mul_fwd_kernel", "_padded_index_gather_kernel")
_UNPERMUTE = ("_token_scatter_kernel", "unrolled_elementwise_kernel", "CatArrayBatchedCopy_vectorized")
KERNELS = {
    "stage1_f": _ATTENTION, "stage1_b": _ATTENTION_BACKWARD, "stage3_f": _EXPERTS, "stage3_b": _EXPERTS,
    "stage3_w": _EXPERTS, "stage5_f": _UNPERMUTE, "stage5_b": _UNPERMUTE,
}  # fmt: skip
_SEND_RECV = "ncclDevKernel_SendRecv"
_ALL_GATHER = "ncclDevKernel_AllGather_RING_LL"
_REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"


class RankStep:
    """One rank's step, from the setup label to the optimizer."""

    def __init__(self, shape: StepShape, rank: int, defects: Regression, export: Export, global_pid: int) -> None:
        self.shape = shape
        self.rank = rank
        self.stage_index = shape.coordinates(rank)["pp"]
        self.defects = defects
        self.time = Timeline(
            export,
            global_pid,
            rank,
            _CAPTURE_START_NS + rank * 1_700_000,
            registered=shape.registered(rank),
            nccl_ranges=shape.nccl_ranges,
        )
        self._arrived_ns: dict[str, int] = {}  # when the last communication of a stage was there

    def run(self) -> None:
        """Put the whole step of the rank into the export."""
        shape, time = self.shape, self.time
        self._initialise_nccl()
        began_ns = time.now_ns
        ahead = shape.pp - self.stage_index + 1
        for chunk in range(ahead):
            self._forward_chunk(chunk)
        backwards = [0, 0]  # chunks done per phase
        for anchor in range(shape.chunks):
            phase = anchor % 2
            self._forward_and_backward_chunk(ahead + anchor // 2, phase, backwards[1 - phase])
            backwards[1 - phase] += 1
        for chunk in range(backwards[0], backwards[0] + ahead):
            self._backward_chunk(chunk)
        self._optimize()
        time.add_range(shape.setup_label(self.rank), began_ns - 500, time.now_ns)
        time.flush()

    def _initialise_nccl(self) -> None:
        """Communicators are made before the capture: nsys puts that before zero."""
        self._draw("init")
        at_ns = -9_000_000_000
        for _ in range(4):
            end_ns = at_ns + 400_000_000 + int(self.time.random() * 600_000_000)
            self.time.add_nccl_range("ncclCommInitRankConfig", at_ns, end_ns)
            at_ns = end_ns + 140
        self.time.add_nccl_domain()
        self.time.now_ns += 1_000

    def _forward_chunk(self, chunk: int) -> None:
        self._draw(f"forward {chunk}")
        self._pipeline_transfer()
        with self.time.range(f"forward chunk {chunk} (phase0)"):
            for layer in self._layers(0):
                self._attention(f"layer{layer:02}.stage1_f")
                self._exchange(layer, "stage2_f")
                self._experts(layer, "stage3_f", "stage2_f")
                self._exchange(layer, "stage4_f")
                with self.time.range(f"layer{layer:02}.stage5_f"):
                    self._compute("stage5_f", after="stage4_f")
        self.time.flush()

    def _forward_and_backward_chunk(self, chunk: int, phase: int, backward_chunk: int) -> None:
        self._draw(f"chunk {chunk} phase {phase}")
        nested = phase == 1  # every other transfer is asked for inside a stage
        if not nested:
            self._pipeline_transfer()
        name = f"forward chunk {chunk} (phase{phase}) backward chunk {backward_chunk} (phase{1 - phase})"
        with self.time.range(name):
            if phase == 0 and self.stage_index == 0:
                with self.time.range("loss1.backward()"):
                    self.time.compute("reduce_kernel", self._length_ns(LOSS_US), autograd=True)
            self._interleave(self._layers(phase), self._layers(1 - phase)[::-1], nested)
        self.time.flush()

    def _interleave(self, forward: list[int], backward: list[int], transfer: bool) -> None:
        """Both passes layer by layer, as DualPipeV pairs them: while one communicates, the other computes."""
        self._combine_backward(f"layer{backward[0]:02}.stage5_b", transfer)
        self._exchange(backward[0], "stage4_b")
        self._attention(f"layer{forward[0]:02}.stage1_f")
        for i, (ahead, back) in enumerate(zip(forward, backward, strict=True)):
            last = i == len(forward) - 1
            self._experts(back, "stage3_b", "stage4_b")
            self._exchange(ahead, "stage2_f", after_ns=0)  # the CPU has just seen its tokens ready
            self._exchange(back, "stage2_b")
            with self.time.range(f"layer{back:02}.stage3_w"):
                self._compute("stage3_w")
            self._experts(ahead, "stage3_f", "stage2_f")
            experts_done_ns = self.time.compute_end_ns()
            if last:
                self._exchange(ahead, "stage4_f")
                self._attention_backward(f"layer{back:02}.stage1_b", fused=False)
                with self.time.range(f"layer{ahead:02}.stage5_f"):
                    self._compute("stage5_f", after="stage4_f")
            else:
                then = backward[i + 1]
                self._attention_backward(f"layer{then:02}_stage5_b_layer{back:02}_stage1_b", fused=True)
                self._exchange(ahead, "stage4_f", after_ns=experts_done_ns)
                self._exchange(then, "stage4_b")
                self._attention(f"layer{ahead:02}_stage5_f_layer{forward[i + 1]:02}_stage1_f", fused=True)

    def _backward_chunk(self, chunk: int) -> None:
        """The drain: backward without a forward to hide behind, the weight gradients put off."""
        self._draw(f"backward {chunk}")
        with self.time.range(f"backward chunk {chunk} (phase0)"):
            for layer in self._layers(0)[::-1]:
                self._combine_backward(f"layer{layer:02}.stage5_b")
                self._exchange(layer, "stage4_b")
                self._experts(layer, "stage3_b", "stage4_b")
                self._exchange(layer, "stage2_b")
                self._attention_backward(f"layer{layer:02}.stage1_b", fused=False)
        with self.time.range("weight chunk"):
            for _ in range(self.shape.layers):
                self._compute("stage3_w")
        self.time.flush()

    def _optimize(self) -> None:
        self._draw("optimizer")
        with self.time.range("optimizer.step"):
            done_ns = self.time.compute_end_ns()
            for _ in range(2 * self.shape.layers):
                length_ns = self._length_ns(GRADIENT_US)
                done_ns = self.time.communicate(_REDUCE_SCATTER, GRADIENT_STREAM, length_ns, after_ns=done_ns)
            self.time.wait(done_ns)
            for _ in range(self.shape.kernels_per_stage):
                self.time.compute("vectorized_elementwise_kernel", self._length_ns(UPDATE_US))
            self.time.synchronize()
        self.time.flush()

    def _attention(self, name: str, *, fused: bool = False) -> None:
        """``stage1_f``, after ``stage5_f`` of the layer before where both are fused; then the CPU waits."""
        with self.time.range(name):
            if fused:
                self._compute("stage5_f", after="stage4_f")
            self._ring("stage1_f")
            self._compute("stage1_f")
            self._wait_for_ring("stage1_f")
            self.time.communicate(_ALL_GATHER, COMPUTE_STREAM, self._length_ns(BARRIER_US), peers=0)
            self.time.synchronize()

    def _combine_backward(self, name: str, transfer: bool = False) -> None:
        with self.time.range(name):
            if transfer:
                self._pipeline_transfer()
            self._compute("stage5_b", autograd=True)

    def _attention_backward(self, name: str, *, fused: bool) -> None:
        """``stage1_b``, then ``stage5_b`` of the layer below where both are fused."""
        with self.time.range(name):
            self.time.wait(self._arrived_ns.get("stage2_b", 0))
            self._ring("stage1_b")
            self._compute("stage1_b", autograd=True)
            self._wait_for_ring("stage1_b")
            if fused:
                self._compute("stage5_b", autograd=True)

    def _experts(self, layer: int, stage: str, after: str) -> None:
        """``stage3``: the experts' compute, beside it their weights on the way where the shape has that."""
        if stage in self.defects.missing:
            return
        with self.time.range(f"layer{layer:02}.{stage}"):
            self.time.wait(self._arrived_ns.get(after, 0))
            arrived_ns = 0
            if self.shape.stage3_communication:
                arrived_ns = self._communicate(stage, self.time.compute_end_ns())
            self._compute(stage, autograd=stage.endswith("_b"))
            if arrived_ns:
                self.time.wait(arrived_ns)

    def _exchange(self, layer: int, stage: str, after_ns: int | None = None) -> None:
        """``stage2`` or ``stage4``: tokens to their experts or back, once the compute before is done."""
        if stage in self.defects.missing:
            return
        with self.time.range(f"layer{layer:02}.{stage}"):
            ready_ns = self.time.compute_end_ns() if after_ns is None else after_ns
            self._arrived_ns[stage] = self._communicate(stage, ready_ns)

    def _ring(self, stage: str) -> None:
        if self.shape.cp > 1:
            self._arrived_ns[stage] = self._communicate(stage, self.time.compute_end_ns())

    def _wait_for_ring(self, stage: str) -> None:
        if self.shape.cp > 1:
            self.time.wait(self._arrived_ns[stage])

    def _pipeline_transfer(self) -> None:
        if self.shape.pp > 1:
            with self.time.range(PIPELINE_RANGE):
                length_ns = self._length_ns(PIPELINE_US)
                done_ns = self.time.compute_end_ns()
                self.time.communicate(_SEND_RECV, PIPELINE_STREAM, length_ns, after_ns=done_ns)

    def _compute(self, stage: str, *, after: str | None = None, autograd: bool = False) -> None:
        if after is not None:
            self.time.wait(self._arrived_ns.get(after, 0))
        count, names = self.shape.kernels_per_stage, KERNELS[stage]
        mean_us = COMPUTE_US[stage] / count * self.defects.compute.get(stage, 1.0)
        for i in range(count):
            self.time.compute(names[i % len(names)], self._length_ns(mean_us), autograd=autograd)
        for _ in range(self.defects.extra_launches.get(stage, 0)):
            self.time.compute("elementwise_kernel", EXTRA_US * _NS_PER_US, autograd=autograd)

    def _communicate(self, stage: str, after_ns: int) -> int:
        count = self.shape.transfers_per_stage
        factor = self.defects.communication.get(stage, 1.0)
        mean_us = COMMUNICATION_US[stage] / count * factor
        stream = self.defects.stream.get(stage, STREAM[stage])
        for _ in range(count):
            length_ns, peers = self._length_ns(mean_us), max(1, self.shape.ep - 1)
            after_ns = self.time.communicate(_SEND_RECV, stream, length_ns, after_ns=after_ns, peers=peers)
        return after_ns

    def _length_ns(self, mean_us: float) -> int:
        return int(mean_us * _NS_PER_US * (1.0 + self.shape.jitter * (2.0 * self.time.random() - 1.0)))

    def _draw(self, what: str) -> None:
        """Begin a stream of random numbers of its own, so that a defect shifts no draw beyond its chunk."""
        self.time.random = Random(f"{self.shape.seed}:{self.rank}:{what}").random

    def _layers(self, phase: int) -> list[int]:
        """The layers that this rank holds in ``phase``: down one leg of the V, up the other."""
        leg = self.stage_index if phase == 0 else 2 * self.shape.pp - 1 - self.stage_index
        return list(range(leg * self.shape.layers, (leg + 1) * self.shape.layers))
