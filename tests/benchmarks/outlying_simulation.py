"""How often is a capture called an outlier that is none, and how often is one named that is 20 % off?

    python -m tests.benchmarks.outlying_simulation    # a minute

Each capture has rows of one size, or of sizes from 20 us to 5 ms. Their noise is normal: each row's own, or half of its
variance common to all rows of a capture, as in :mod:`~tests.benchmarks.noise_simulation`.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random
from typing import NamedTuple

from pytest_nsys.analysis.captures.outliers import find_outliers
from tests.benchmarks.noisy_traces import COMMON, EXPOSED_NS, OUTLYING_BY

TRIALS = 2_000
LEAST_NS, MOST_NS = 20_000, 5_000_000


def _alike(_: Random) -> float:
    return EXPOSED_NS


def _differing(random: Random) -> float:
    return math.exp(random.uniform(math.log(LEAST_NS), math.log(MOST_NS)))


GATES: dict[str, tuple[int, Callable[[Random], float]]] = {
    "1 row": (1, _alike),
    "8 rows": (8, _alike),
    "8 rows that differ in size": (8, _differing),
}
"""How many rows, and what draws their size."""


class Cell(NamedTuple):
    """One line of the table: ``common`` is the share of the variance that all rows of a capture have in common."""

    cv: float
    common: float
    gate: str
    captures: int

    def drawn(self, random: Random, sizes: Sequence[float]) -> list[float]:
        """The rows of a capture."""
        shared = math.sqrt(self.common) * random.gauss(0, 1)
        own = math.sqrt(1 - self.common)
        return [size * (1 + self.cv * (shared + own * random.gauss(0, 1))) for size in sizes]

    def shares(self, trials: int) -> tuple[float, float]:
        """Of unchanged captures how often one is named, and of one that is 20 % off how often it alone is."""
        random, cried, named = Random(str(self)), 0, 0
        rows, size = GATES[self.gate]
        for _ in range(trials):
            sizes = [size(random) for _ in range(rows)]
            captures = [self.drawn(random, sizes) for _ in range(self.captures)]
            cried += bool(find_outliers([*map(_rows, captures)]))
            captures[0] = [value * (1 + OUTLYING_BY) for value in captures[0]]
            named += [each.capture_index for each in find_outliers([*map(_rows, captures)])] == [0]
        return cried / trials, named / trials


def _rows(values: Sequence[float]) -> dict[int, int]:
    return {n: round(value) for n, value in enumerate(values)}


CELLS = tuple(Cell(*each) for each in product((0.02, 0.05), (0.0, COMMON), GATES, (3, 5)))


def table(trials: int) -> Iterator[str]:
    """Markdown: a line for each cell."""
    yield "| noise | in common | rows | captures | unchanged: named | 20 % off: named |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for cell in CELLS:
        cried, named = cell.shares(trials)
        yield (f"| {cell.cv:.0%} | {cell.common:.0%} | {cell.gate} | {cell.captures} | {cried:.1%} | {named:.1%} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"of each line (default: {TRIALS})")
    print("\n".join(table(parser.parse_args(arguments).trials)))


if __name__ == "__main__":
    main()
