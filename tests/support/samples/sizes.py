"""How large does a simulated step have to be to have so many kernels? For benchmarks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.support.samples import schema
from tests.support.samples.dualpipe import put_rank
from tests.support.samples.schema import Cell, Export
from tests.support.samples.step import StepShape


def with_kernels(shape: StepShape, kernels: int) -> StepShape:
    """``shape`` with as many chunks as it takes to have about ``kernels`` kernels."""
    few, more = (_kernels_of_rank_0(replace(shape, chunks=chunks)) for chunks in (2, 12))
    per_chunk = (more - few) / 10
    return replace(shape, chunks=max(1, round((kernels / shape.world - few) / per_chunk) + 2))


class _Counter(Export):
    """An export that only counts: nothing is opened, nothing is written."""

    kernels = 0

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:  # noqa: ARG002
        self.kernels += len(rows) if table == schema.KERNEL else 0


def _kernels_of_rank_0(shape: StepShape) -> int:
    counter = _Counter(Path("unwritten"))
    put_rank(counter, shape, 0, 1)
    return counter.kernels
