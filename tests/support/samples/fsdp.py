"""What does a trace of an FSDP step look like, good or with a regression in it?

Two ranks train four layers, recorded by ``torch.profiler``, one file for each rank. A layer gathers its weights before
it computes, in the forward and in the backward, and reduces its gradients after the backward. The good run gathers the
weights of the next layer while the layer before still computes; the regressed one does not in its forward.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.support.samples.kineto import KinetoBuilder

COMPUTE_STREAM, GATHER_STREAM, REDUCE_STREAM = 7, 20, 24

FORWARD_US = {"flash_fwd_kernel": 420, "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT": 780}
BACKWARD_US = {"flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel": 900, "nvjet_tst_192x192_64x4_2x1_v_bz_TNN": 1_500}
GATHER, GATHER_US = "ncclDevKernel_AllGather_RING_LL", 560
REDUCE, REDUCE_US = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", 700
OPTIMIZER, OPTIMIZER_US = "multi_tensor_apply_kernel", 350

_NS_PER_US = 1_000
_LAUNCH_GAP_NS, _START_LATENCY_NS, _STREAM_GAP_NS = 12_000, 4_000, 1_500
_BETWEEN_STEPS_NS = 60_000


@dataclass(frozen=True)
class FsdpShape:
    """A run of so many ranks; ``jitter`` is the largest relative deviation of a kernel's duration.

    Without ``forward_prefetch`` a layer of the forward gathers its weights after the layer before has computed.
    """

    ranks: int = 2
    steps: int = 6
    layers: int = 4
    forward_prefetch: bool = True
    jitter: float = 0.02


def write_fsdp(folder: Path, shape: FsdpShape) -> Path:
    """Write a file for each rank, ``rank0_trace.json.gz`` and so on; the folder."""
    for rank in range(shape.ranks):
        _Rank(shape, rank).run().write(folder / f"rank{rank}_trace.json.gz")
    return folder


class _Rank:
    """One rank in time: the CPU launches and goes on, a stream runs its kernels one after the other."""

    def __init__(self, shape: FsdpShape, rank: int) -> None:
        self.shape = shape
        self.trace = KinetoBuilder(rank, shape.ranks, pid=4_100 + rank, device=rank)
        self.cpu_ns = 1_000_000
        self.random = Random(f"fsdp:{rank}:19")
        self.free_ns = dict.fromkeys((COMPUTE_STREAM, GATHER_STREAM, REDUCE_STREAM), 0)
        self.gathered: dict[int, tuple[int, int]] = {}  # by layer, the event after its weights

    def run(self) -> KinetoBuilder:
        for step in range(self.shape.steps):
            began_ns = self.cpu_ns
            self._step()
            self.cpu_ns = max(self.cpu_ns, *self.free_ns.values()) + _BETWEEN_STEPS_NS  # loss.item()
            self.trace.range(f"ProfilerStep#{step}", began_ns, self.cpu_ns - 2_000)
        return self.trace

    def _step(self) -> None:
        layers = [*range(self.shape.layers)]
        self._pass(layers, self._forward, prefetch=self.shape.forward_prefetch)
        self.gathered[layers[-1]] = self._record(GATHER_STREAM)  # the backward begins with this one: it is kept
        self._pass(layers[::-1], self._backward, prefetch=True)
        self._wait(COMPUTE_STREAM, self._record(REDUCE_STREAM))
        self._kernel(OPTIMIZER, OPTIMIZER_US, COMPUTE_STREAM)

    def _pass(self, layers: list[int], compute: Callable[[int], None], *, prefetch: bool) -> None:
        """Layer by layer: its weights, those of the next layer too where they are prefetched, then compute."""
        for layer, following in zip(layers, [*layers[1:], None], strict=True):
            if layer not in self.gathered:
                self._wait(GATHER_STREAM, self._record(COMPUTE_STREAM))
                self._gather(layer)
            if prefetch and following is not None:
                self._gather(following)
            self._wait(COMPUTE_STREAM, self.gathered.pop(layer))
            compute(layer)

    def _forward(self, layer: int) -> None:
        began_ns = self.cpu_ns
        for name, length_us in FORWARD_US.items():
            self._kernel(name, length_us, COMPUTE_STREAM)
        self.trace.range(f"layers.{layer} forward", began_ns, self.cpu_ns)

    def _backward(self, layer: int) -> None:
        for name, length_us in BACKWARD_US.items():
            self._kernel(name, length_us, COMPUTE_STREAM)
        began_ns = self.cpu_ns
        self._wait(REDUCE_STREAM, self._record(COMPUTE_STREAM))
        self._kernel(REDUCE, REDUCE_US, REDUCE_STREAM)
        self.trace.range(f"FSDP::post_backward_reduce (layers.{layer})", began_ns, self.cpu_ns)

    def _gather(self, layer: int) -> None:
        began_ns = self.cpu_ns
        self._kernel(GATHER, GATHER_US, GATHER_STREAM)
        self.trace.range(f"FSDP::all_gather (layers.{layer})", began_ns, self.cpu_ns)
        self.gathered[layer] = self._record(GATHER_STREAM)

    def _kernel(self, name: str, length_us: int, stream: int) -> None:
        launch_ns = self.cpu_ns
        self.cpu_ns += _LAUNCH_GAP_NS
        start_ns = max(launch_ns + _START_LATENCY_NS, self.free_ns[stream] + _STREAM_GAP_NS)
        varied = 1.0 + self.shape.jitter * (2.0 * self.random.random() - 1.0)
        self.free_ns[stream] = start_ns + int(length_us * _NS_PER_US * varied)
        self.trace.kernel(name, start_ns, self.free_ns[stream], stream=stream, launch_ns=launch_ns)

    def _record(self, stream: int) -> tuple[int, int]:
        """An event on a stream: its number in the trace, and when the stream gets there."""
        self.cpu_ns += _LAUNCH_GAP_NS
        return self.trace.event_record(self.cpu_ns - _LAUNCH_GAP_NS, stream=stream), self.free_ns[stream]

    def _wait(self, stream: int, event: tuple[int, int]) -> None:
        """What is launched on the stream from here on starts after the event."""
        number, reached_ns = event
        self.trace.stream_wait(self.cpu_ns, number, stream=stream)
        self.cpu_ns += _LAUNCH_GAP_NS
        self.free_ns[stream] = max(self.free_ns[stream], reached_ns)
