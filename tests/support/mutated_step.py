"""A training step whose every number a test knows, and what can go wrong in it, to the nanosecond."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.gates import ANCHOR, GPU, MS
from tests.support.samples.builder import Process, TraceBuilder

CHUNKS, MEDIAN, RANKS = 5, 2, 4
RING, EXCHANGE, COMPUTE = 36, 28, 7
STREAM = {"stage1_f": RING, "stage2_f": EXCHANGE, "stage4_f": EXCHANGE}
STAGES = ("stage1_f", "stage2_f", "stage4_f", "stage5_f")


@dataclass
class Visit:
    """A stage of a rank in each chunk: communication and compute start together, so what is longer is exposed."""

    comm_ns: int
    compute_ns: int
    stream: int
    launches: int = 0

    @classmethod
    def of(cls, stage: str) -> Visit:
        """An overlap of 80%, 200 us exposed; the last stage computes only."""
        return cls(MS, 800_000, STREAM[stage]) if stage in STREAM else cls(0, MS, COMPUTE)


@dataclass
class Step:
    """The step of two pipeline stages by two expert ranks: in each chunk 3.4 ms of compute on each rank."""

    visits: dict[tuple[int, str], Visit] = field(
        default_factory=lambda: {(rank, stage): Visit.of(stage) for rank in range(RANKS) for stage in STAGES}
    )
    empty: set[tuple[int, int]] = field(default_factory=set)

    def write(self, path: Path) -> None:
        trace = TraceBuilder()
        for rank in range(RANKS):
            process = trace.process(pid=100 + rank, device=rank)
            trace.gpu(GPU, process=process, device=rank)
            process.range(f"rank={rank}; pp={rank // 2}/2 dp=0/1 cp=0/1 ep={rank % 2}/2; mbs=1 seq=2048", 10, 20)
            for chunk in range(CHUNKS):
                begin = 20 * MS * chunk + 1_000
                process.range(ANCHOR.format(chunk), begin, begin + 15 * MS)
                if (rank, chunk) not in self.empty:
                    self._chunk(process, rank, begin)
        trace.write(path)

    def _chunk(self, process: Process, rank: int, begin_ns: int) -> None:
        for i, stage in enumerate(STAGES):
            visit = self.visits.get((rank, stage))
            if visit is None:
                continue
            at = begin_ns + MS + 3 * MS * i
            start = at + 10_000
            process.range(f"layer00.{stage}", at, at + 2_900_000)
            if visit.comm_ns:
                name = "ncclDevKernel_SendRecv"
                process.kernel(name, start, start + visit.comm_ns, stream=visit.stream, launch_ns=at + 1_000)
            # A stream runs one after the other.
            begin = start + visit.comm_ns if visit.stream == COMPUTE else start
            process.kernel("gemm", begin, begin + visit.compute_ns, stream=COMPUTE, launch_ns=at + 5_000)
            for k in range(visit.launches):
                late = start + 2_500_000 + 10 * k
                process.kernel("tiny", late, late + 1, stream=COMPUTE, launch_ns=at + 6_000 + k)


Mutation = Callable[[Step], object]


def longer(step: Step, rank: int, stage: str, by_ns: int) -> None:
    """The communication takes longer, and no compute runs meanwhile."""
    step.visits[rank, stage].comm_ns += by_ns


def less_to_hide_behind(step: Step, rank: int, stage: str, by_ns: int) -> None:
    """The compute beside a communication gets shorter."""
    step.visits[rank, stage].compute_ns -= by_ns


def slower(step: Step, rank: int, by_ns: int) -> None:
    """One rank computes longer where nothing communicates."""
    step.visits[rank, "stage5_f"].compute_ns += by_ns


def moved(step: Step, rank: int, stage: str, stream: int) -> None:
    step.visits[rank, stage].stream = stream


def launched(step: Step, rank: int, stage: str, more: int) -> None:
    """Kernels of a nanosecond."""
    step.visits[rank, stage].launches += more


def missing(step: Step, stage: str, ranks: Iterable[int] = range(RANKS)) -> None:
    for rank in ranks:
        del step.visits[rank, stage]


def emptied(step: Step, rank: int, chunk: int) -> None:
    step.empty.add((rank, chunk))
