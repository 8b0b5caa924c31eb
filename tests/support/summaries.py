"""What is in the summary of a trace, as `pytest-nsys TRACE…` finds it?"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.summary.summary import Summary, summarize_captures
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.cli.options import MeasureOptions
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.data_parallel import DataParallelShape, write_data_parallel
from tests.support.samples.formats import Format, write_one, write_step
from tests.support.samples.fsdp import FsdpShape, write_fsdp
from tests.support.samples.known_step import write_known_step
from tests.support.samples.step import StepShape

SMALL = StepShape(pp=2, cp=1, ep=1, chunks=7, layers=2, kernels_per_stage=2, transfers_per_stage=1)


@contextmanager
def summarised(*traces: Path | str, window: str | None = None) -> Iterator[tuple[Captures, WindowSpec, Summary]]:
    """The captures, what they are measured on, and the summary."""
    asked = MeasureOptions(window=window)
    with asked.open_one_run([*map(str, traces)]) as (captures, spec):
        yield captures, spec, summarize_captures(captures, spec, [*map(str, traces)])


def summary(*traces: Path | str, window: str | None = None) -> Summary:
    with summarised(*traces, window=window) as (_, _, found):
        return found


def bare_kernels(folder: Path) -> Path:
    """A run without any range."""
    return write_one(folder, Format.NSYS, lambda gpu: [gpu.kernel("gemm", at, at + 500) for at in (0, 1_000, 2_000)])


def rank_without_kernels(folder: Path) -> Path:
    """Three labelled ranks, of which the second ran nothing."""
    trace = TraceBuilder()
    for rank in range(3):
        gpu = trace.process(pid=100 + rank)
        gpu.range(f"rank={rank}; pp=0/1 dp={rank}/3 cp=0/1 ep=0/1; mbs=1 seq=8", 1, 2)
        for step in range(5):
            gpu.range(f"forward chunk {step} backward chunk {step}", 10_000 * step, 10_000 * step + 9_000)
            if rank != 1:
                gpu.kernel("gemm", 10_000 * step + 100, 10_000 * step + 6_000 + rank)
    return trace.write(folder / "three.sqlite")


def one_anchor(folder: Path) -> Path:
    return write_known_step(folder / "one.sqlite")


RUNS = {
    **{
        f"{format} of a pipeline": lambda folder, format=format: write_step(folder, format, SMALL)  # type: ignore[misc]
        for format in Format
    },
    "FSDP": lambda folder: write_fsdp(folder, FsdpShape(ranks=2, steps=5)),
    "data parallel": lambda folder: write_data_parallel(folder, DataParallelShape(late_us=800)),
    "no range": bare_kernels,
    "one anchor": one_anchor,
    "a rank without kernels": rank_without_kernels,
}
"""Runs by what they are, each a function of the folder that it is written into."""
