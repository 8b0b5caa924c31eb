"""Traces of torch.profiler of a data-parallel step: each rank gathers weights, computes, and sums up its gradients."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.samples.kineto import KinetoBuilder

BASE_NS = 1_767_355_200_000_000_000
"""Noon of 2 January 2026 (UTC)."""

NS_PER_US = 1_000


@dataclass(frozen=True)
class DataParallelShape:
    """The ranks and steps of a run. The last rank computes ``late_us`` longer, and the others wait for it.

    Of several ``hosts`` each has its share of the ranks, and a clock that is 1 500 us ahead of that of the host before;
    then the sessions of the ranks begin at moments of their own, and a collective ends within 6 us on all of them.
    """

    ranks: int = 4
    steps: int = 6
    step_us: int = 20_000
    late_us: int = 0
    hosts: int = 1

    def host(self, rank: int) -> int:
        return rank * self.hosts // self.ranks

    def clock_us(self, rank: int) -> int:
        """What the times of a rank's file are more than those of a run on one host."""
        return 250_000 * self.host(rank) + 3_000 * rank if self.hosts > 1 else 0

    def base_ns(self, rank: int) -> int:
        """The moment from which they count, by the rank's host."""
        return BASE_NS + (1_500 * self.host(rank) - self.clock_us(rank)) * NS_PER_US

    def late_end_us(self, rank: int, step: int) -> int:
        """How much later a collective ends on a rank than the typical one does."""
        return (5 * step * (rank + 1) + 3 * rank) % 7 - 3 if self.hosts > 1 else 0


def write_data_parallel(folder: Path, shape: DataParallelShape) -> Path:
    """Write a file per rank; the folder. In a step 60 MB are gathered in 1 ms, and 100 MB summed up in 2 ms."""
    for rank in range(shape.ranks):
        trace = KinetoBuilder(rank, shape.ranks)
        trace.members["baseTimeNanoseconds"] = shape.base_ns(rank)
        late_us = shape.late_us if rank == shape.ranks - 1 else 0
        gather, reduce = _record(shape, "_allgather_base", 30_000_000), _record(shape, "allreduce", 50_000_000)
        gather["In msg nelems"] //= shape.ranks
        for step in range(shape.steps):
            at, end_us = shape.clock_us(rank) + shape.step_us * step, shape.late_end_us(rank, step)
            trace.range(f"ProfilerStep#{step}", at * NS_PER_US, (at + shape.step_us - 1) * NS_PER_US)
            _kernel(trace, "ncclDevKernel_AllGather_RING_LL", at, (500, 1_500 + end_us), gather)
            _kernel(trace, "gemm", at, (1_000, 14_000 + late_us), {}, rank)
            _kernel(
                trace,
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                at,
                (13_000 + late_us, 15_000 + shape.late_us + end_us),
                reduce,
            )
        trace.write(folder / f"rank{rank}_trace.json.gz")
    return folder


def _kernel(
    trace: KinetoBuilder, name: str, at_us: int, span_us: tuple[int, int], record: dict[str, Any], late_ns: int = 0
) -> None:
    start, end = ((at_us + t) * NS_PER_US + late_ns for t in span_us)
    trace.kernel(name, start, end, stream=28 if record else 7, launch_ns=(at_us + 100) * NS_PER_US, **record)


def _record(shape: DataParallelShape, name: str, elements: int) -> dict[str, Any]:
    """What torch.profiler writes of a collective of all ranks."""
    return {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": shape.ranks,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": str([*range(shape.ranks)]),
    }
