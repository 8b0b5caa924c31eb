"""Which values does a noisy trace give? A pool of them for each level of noise, written and measured."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from pytest_nsys.analysis.captures.captures import Captures, OmittedCapture
from pytest_nsys.analysis.metrics.registry import METRICS, Metric, MetricRequest
from pytest_nsys.analysis.metrics.table import MetricTable
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.run_conditions import RunKey
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.model import Label
from pytest_nsys.traces.trace_files import open_trace
from tests.support.samples.builder import TraceBuilder

METRIC = METRICS["exposed_ns"]
RANKS = 2
STAGES = tuple(f"stage{n}_{way}" for n in (1, 2, 3, 4) for way in "bf")
LABELS = tuple((rank, stage) for rank in range(RANKS) for stage in STAGES)
ONE_ROW = LABELS.index((0, "stage2_f"))
"""The row that the gate of one row judges, and that changes where one alone does."""

US = 1_000
EXPOSED_NS, HIDDEN_NS = 400 * US, 300 * US
CHUNKS, CHUNK_NS = 5, 16_000 * US
CV = 0.02
COMMON = 0.5
"""The share of the variance that all rows of a trace have in common: clocks, the node, the network."""

SLOW_CLOCKS, CLOCKS_APART, CLOCKS_CV = 0.3, 0.05, 0.005
OUTLYING, OUTLYING_BY = 0.05, 0.2
"""How many rows, or captures, are outliers, and how far out they lie on the slow side."""

TAIL_FREEDOM = 3
"""Of Student's t with heavy tails: the fewest degrees of freedom with a variance."""

Factors = tuple[float, ...]
Values = tuple[int, ...]


def normal(random: Random) -> Factors:
    """What each row of a trace is multiplied by."""
    common = math.sqrt(COMMON) * random.gauss(0, 1)
    return tuple(1 + CV * (common + math.sqrt(1 - COMMON) * random.gauss(0, 1)) for _ in LABELS)


def lognormal(random: Random) -> Factors:
    """The same with a longer tail to the slow side."""
    return tuple(math.exp(factor - 1) for factor in normal(random))


def bimodal(random: Random) -> Factors:
    """The clocks of the whole trace are fast or slow; each row has little noise of its own."""
    clock = 1 + CLOCKS_APART * (random.random() < SLOW_CLOCKS)
    return tuple(clock * random.gauss(1, CLOCKS_CV) for _ in LABELS)


def heavy_tails(random: Random) -> Factors:
    """Student's t in place of the normal distribution, of the same variance."""
    common = math.sqrt(COMMON) * _student(random)
    return tuple(1 + CV * (common + math.sqrt(1 - COMMON) * _student(random)) for _ in LABELS)


def _student(random: Random) -> float:
    """A draw of t of variance 1."""
    squares = sum(random.gauss(0, 1) ** 2 for _ in range(TAIL_FREEDOM))
    return random.gauss(0, 1) * math.sqrt((TAIL_FREEDOM - 2) / squares)


def outlying_rows(random: Random) -> Factors:
    """Normal, but each row by itself may be an outlier."""
    return tuple(factor * _outlying(random) for factor in normal(random))


def outlying_captures(random: Random) -> Factors:
    """Normal, but all rows of a trace may be outliers together."""
    all_rows = _outlying(random)
    return tuple(factor * all_rows for factor in normal(random))


def _outlying(random: Random) -> float:
    return 1 + OUTLYING_BY * (random.random() < OUTLYING)


SHAPES: Mapping[str, Callable[[Random], Factors]] = {
    shape.__name__: shape for shape in (normal, lognormal, bimodal, heavy_tails, outlying_rows, outlying_captures)
}


@dataclass(frozen=True)
class Level:
    """What a pool's traces have in common: the shape of their noise, drift and change, and whether one row changes."""

    shape: str
    drift: float = 0.0
    change: float = 0.0
    one_row: bool = False

    def factors(self, random: Random) -> Factors:
        noise = SHAPES[self.shape](random)
        moved = [i == ONE_ROW or not self.one_row for i in range(len(LABELS))]
        return tuple(f * (1 + self.drift) * (1 + self.change * m) for f, m in zip(noise, moved, strict=True))


def measured_pool(asked: tuple[Level, int, int, int]) -> list[Values]:
    """The values of traces ``first`` to ``last`` of a level, each written, opened, measured and forgotten."""
    level, seed, first, last = asked
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.sqlite"
        for number in range(first, last):
            write_trace(path, level.factors(Random(f"{seed}:{level}:{number}")))
            rows = measured(path).rows
            assert tuple(row.labels for row in rows) == LABELS
            found.append(tuple(int(row.value) for row in rows))
    return found


def write_trace(path: Path, factors: Factors) -> None:
    """In each stage of each rank's median chunk one communication, hidden but for what the factor scales."""
    trace = TraceBuilder()
    for rank in range(RANKS):
        process = trace.process(pid=100 + rank)
        process.range(f"rank={rank}; pp={rank}/{RANKS} dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", 10, 20)
        for chunk in range(CHUNKS):
            name = f"forward chunk {chunk} (phase1) backward chunk {chunk} (phase0)"
            process.range(name, CHUNK_NS * chunk + US, CHUNK_NS * (chunk + 1) - US)
            process.kernel("gemm", CHUNK_NS * chunk + 10 * US, CHUNK_NS * chunk + 20 * US)
        for i, stage in enumerate(STAGES):
            begin = CHUNK_NS * (CHUNKS // 2) + 1_000 * US + 1_500 * US * i
            exposed_ns = round(EXPOSED_NS * factors[LABELS.index((rank, stage))])
            process.range(f"layer00.{stage}", begin, begin + 1_400 * US)
            start, hidden = begin + 10 * US, begin + 10 * US + HIDDEN_NS
            process.kernel("ncclDevKernel_SendRecv", start, hidden + exposed_ns, stream=28, launch_ns=begin + 1_000)
            process.kernel("gemm", start, hidden, launch_ns=begin + 5_000)
    trace.write(path)


def measured(path: Path) -> MetricTable:
    """The rows of a trace, as a gate measures them."""
    captures = opened(path)
    try:
        return captures.measure_rows(METRIC, captures.make_spec("median"))
    finally:
        captures.close()


def opened(path: Path) -> Captures:
    return Captures([Run([open_trace(path)], BUILT_IN_CONVENTIONS["pithtrain"])])


class Drawn(Captures):
    """Captures that were measured before; what they are captures of, a trace that is still open says."""

    def __init__(self, like: Captures, drawn: Sequence[Values]) -> None:
        super().__init__(like.runs)
        self.mesh, self.facts = like.mesh, like.facts
        self._like = like
        self._values = tuple(drawn)
        self._drawn = [like.build_stored_table(METRIC, dict(zip(LABELS, values, strict=True))) for values in drawn]

    @property
    def capture_count(self) -> int:
        return len(self._drawn) + (self.omitted_capture is not None)

    def omit_capture(self, place: int, why: str) -> Drawn:
        others = Drawn(self._like, [values for n, values in enumerate(self._values) if n != place])
        others.omitted_capture = OmittedCapture(place, why)
        return others

    @property
    def values(self) -> Sequence[Values]:
        """Those of each capture that counts."""
        return self._values

    def measure_each_capture(
        self,
        metric: Metric,  # noqa: ARG002
        spec: WindowSpec,  # noqa: ARG002
        ranks: frozenset[int] | None = None,  # noqa: ARG002
    ) -> Sequence[MetricTable]:
        return self._drawn

    def build_key(self, stated: Mapping[str, Label]) -> RunKey:
        return self._like.build_key(stated)

    def measure(self, request: MetricRequest) -> MetricTable:
        self._like.measure(request)
        return super().measure_rows(METRIC, request.spec)


@lru_cache(maxsize=1)
def example() -> Captures:
    """A trace of the simulation, which stays open."""
    with tempfile.TemporaryDirectory() as folder:
        write_trace(Path(folder) / "trace.sqlite", (1.0,) * len(LABELS))
        captures = opened(Path(folder) / "trace.sqlite")
        captures.measure_rows(METRIC, captures.make_spec("median"))
        captures.build_key({})
        return captures
