"""How often is a claim shown where nothing changed, and how often where something did?

    python -m tests.benchmarks.claim_simulation    # two minutes

A pair is two sets of captures of one row, before and after, with normal noise. Any capture may be a hiccup: it takes a
fifth to three fifths longer. The verdict is the judge's, after hiccups are left out as a gate leaves them out. Against
accepted runs, the captures before are accepted runs and one capture is judged.
"""

import argparse
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

from pytest_nsys.analysis.metrics.table import MetricTable
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Row, Value
from pytest_nsys.gates.hiccups import find_judged_hiccup
from pytest_nsys.gates.judgement import Judgement, Reference, RowKey, judge_rows
from pytest_nsys.gates.model import Assertion, ClaimFinding, GateFile, Location, Tolerance
from pytest_nsys.gates.noise import Trial, decide_claim
from pytest_nsys.gates.sentences import parse_sentence

TRIALS = 2_000
STEP_NS, CV = 20_000_000, 0.02
HICCUPS = (0.0, 0.05, 0.1)
CAPTURES = (3, 4, 5, 8)
KEY: RowKey = (("rank", 0),)
SMALL, BETTER = "window_ns at least 0.01% below baseline", "window_ns better than baseline"


def claimed(sentence: str, tolerance: Tolerance | None = None, axes: Collection[str] = ()) -> Assertion:
    """A claim, as ``compare --claim`` reads it where the mesh has these axes and the gate this tolerance."""
    run = dict.fromkeys(axes, 2)
    gate = GateFile(Path("claims"), (), BUILT_IN_CONVENTIONS["generic"], run=run, tolerance=tolerance)
    return parse_sentence(sentence, gate, Location(gate.path, 1, 1), allows_claims=True)


def table_of(*values: Value) -> MetricTable:
    """The rows of so many ranks."""
    return MetricTable(("rank",), [Row((rank,), value) for rank, value in enumerate(values)], {})


def judged_pair(claim: Assertion, before: Sequence[Value], after: Sequence[Value]) -> Judgement:
    """The judgement of a claim between two sets of captures of one row, without the hiccup of either."""
    sides, left_out = [], []
    for values in (before, after):
        hiccup = find_judged_hiccup([(claim, [table_of(value) for value in values])])
        sides.append([value for n, value in enumerate(values) if hiccup is None or n != hiccup.capture_index])
        left_out.append(int(hiccup is not None))
    trial = Trial(tuple(sides[0]), tuple(sides[1]), claim.requirement.worse_direction, (left_out[0], left_out[1]))
    reference = Reference([table_of(median(sides[0]))], decisions={KEY: decide_claim(trial)})
    return judge_rows(claim, table_of(median(sides[1])), reference)


def judged_run(claim: Assertion, accepted: Sequence[Value], calibration: Sequence[Value], now: Value) -> Judgement:
    """The judgement of a claim that one run is better than accepted ones."""
    tables = [table_of(value) for value in accepted]
    return judge_rows(claim, table_of(now), Reference(tables, [table_of(value) for value in calibration]))


class Draw(NamedTuple):
    """Draws captures whose noise has this share of hiccups."""

    hiccups: float
    random: Random

    def captures(self, count: int, change: float = 0.0) -> list[int]:
        values = []
        for _ in range(count):
            hiccup = self.random.uniform(1.2, 1.6) if self.random.random() < self.hiccups else 1.0
            values.append(round(STEP_NS * (1 + change) * (1 + CV * self.random.gauss(0, 1)) * hiccup))
        return values


def count_shown(sentence: str, captures: int, hiccups: float, trials: int, change: float = 0.0) -> int:
    """Of so many pairs of captures, how many show the claim? Without a ``change`` every one of them is wrong."""
    claim, draw = claimed(sentence), Draw(hiccups, Random(f"{sentence} {captures} {hiccups} {change}"))
    pairs = ((draw.captures(captures), draw.captures(captures, change)) for _ in range(trials))
    return sum(_is_shown(judged_pair(claim, *pair)) for pair in pairs)


def count_shown_of_accepted(
    sentence: str, accepted: int, calibration: int, hiccups: float, trials: int, change: float = 0.0
) -> int:
    """The same of one run against accepted ones."""
    claim, draw = claimed(sentence), Draw(hiccups, Random(f"{sentence} {accepted} {calibration} {hiccups} {change}"))
    return sum(
        _is_shown(judged_run(claim, draw.captures(accepted), draw.captures(calibration), draw.captures(1, change)[0]))
        for _ in range(trials)
    )


def _is_shown(judgement: Judgement) -> bool:
    (row,) = judgement.rows
    return row.claim is not None and row.claim.finding is ClaimFinding.SHOWN


def table(trials: int) -> Iterator[str]:
    """Markdown: a line for each number of captures and share of hiccups."""
    yield "| captures | hiccups | unchanged: shown | 5 % faster: shown |"
    yield "| --- | --- | --- | --- |"
    for captures, hiccups in product(CAPTURES, HICCUPS):
        shown = [count_shown(SMALL, captures, hiccups, trials, change) / trials for change in (0.0, -0.05)]
        yield f"| {captures} + {captures} | {hiccups:.0%} | {shown[0]:.1%} | {shown[1]:.1%} |"
    for accepted, hiccups in product((3, 5), HICCUPS):
        shown = [
            count_shown_of_accepted(SMALL, accepted, 5, hiccups, trials, change) / trials for change in (0.0, -0.05)
        ]
        yield f"| {accepted} accepted, calibrated | {hiccups:.0%} | {shown[0]:.1%} | {shown[1]:.1%} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"of each line (default: {TRIALS})")
    print("\n".join(table(parser.parse_args(arguments).trials)))


if __name__ == "__main__":
    main()
