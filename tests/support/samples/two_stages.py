"""What does a pipeline of two stages look like, in every format? A decode that hides behind an encode, or does not.

Each unit of work is a range ``unit N``; in it ``encode`` runs on one thread while ``decode`` works off the unit before
on another. How long a unit takes from start to start says how much of the shorter stage is hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import Format, write_process

ANCHOR = "unit %"
"""Pattern of the range that repeats."""

FIRST_NS = 1_000_000
ENCODE_THREAD, DECODE_THREAD = 100, 101


@dataclass(frozen=True)
class TwoStageShape:
    """Length of each stage and of a unit's period, and how many units there are; a ``warm_up`` takes twice as long."""

    units: int = 24
    stage0_ns: int = 3_000_000
    stage1_ns: int = 2_000_000
    period_ns: int = 3_200_000
    warm_up: int = 2

    def starts_ns(self) -> list[int]:
        """Where each unit begins, and one more, which closes the last one's period."""
        lengths = [self.period_ns * (2 if k < self.warm_up else 1) for k in range(self.units)]
        starts = [FIRST_NS]
        for length in lengths:
            starts.append(starts[-1] + length)
        return starts


def write_two_stages(
    path: Path, shapes: TwoStageShape | Sequence[TwoStageShape] = (), format: Format | str = Format.NSYS
) -> Path:
    """Write a trace of one rank, or with nsys of one rank for each shape."""
    chosen = [shapes] if isinstance(shapes, TwoStageShape) else list(shapes) or [TwoStageShape()]
    if format == Format.NSYS:
        export = TraceBuilder()
        for rank, shape in enumerate(chosen):
            _put(export.process(pid=100 + rank), shape)
        return export.write(path)
    (shape,) = chosen
    return write_process(path, format, partial(_put, shape=shape))


def _put(trace: Any, shape: TwoStageShape) -> None:
    """Ranges and kernels of one rank, by the calls that all builders have."""
    starts = shape.starts_ns()
    for k, start in enumerate(starts):
        trace.range(f"unit {k}", start, start + shape.stage0_ns, thread=ENCODE_THREAD)
        trace.range("encode", start, start + shape.stage0_ns, thread=ENCODE_THREAD)
        trace.range("decode", start, start + shape.stage1_ns, thread=DECODE_THREAD)
        trace.range("sample", start, start + shape.stage1_ns // 4, thread=DECODE_THREAD)
        trace.kernel("encode_kernel", start + 10_000, start + shape.stage0_ns - 10_000, launch_ns=start + 5_000)
        trace.kernel("decode_kernel", start + 20_000, start + shape.stage1_ns, launch_ns=start + 8_000, stream=9)
