"""How often does a gate cry wolf, and how often does it see a change? R3 and R4 on traces whose noise is known.

    python -m tests.benchmarks.noise_simulation              # about ten minutes on two cores
    python -m tests.benchmarks.noise_simulation --hiccups    # two minutes: one capture of five is a hiccup
    python -m tests.benchmarks.noise_simulation --small      # seconds: does everything run? (what CI does)

Every value is measured: each trace is an SQLite export of two ranks with eight stages, written by the builder and read
through the reader, the windows and the metric ``exposed_ns``; the limits come from sentences of gate files, and the
verdict is the judge's. Only the draw is cheap: a pool of traces is measured once for each noise model and level, and
the captures of a trial are drawn from the pools without replacement, so no trace stands on both sides of a verdict. The
trace that is judged is another in each trial, as far as the pool goes. Trials share the other traces; the intervals
(Wilson, 95 %) take them for independent.

Noise is 2 % between traces, one half of its variance common to all rows of a trace and one half each row's own. Drift
between sessions lies between the session in which baseline and calibration were taken and that of the judged trace;
drift within a job goes on from each capture to the next. Outliers lie 20 % on the slow side: one row in twenty, or all
rows of one capture in twenty. The change is of all rows, or of one alone where it says so.

Exits 1 where one of the targets is missed; with ``--small`` only where the whole interval misses it.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from random import Random

from pytest_nsys.core.model import Label, Value
from pytest_nsys.gates.hiccups import leave_out_hiccup
from pytest_nsys.gates.judgement import NotComparable, Reference, judge_rows
from pytest_nsys.gates.model import GateFile, Outcome, resolve_window_spec
from pytest_nsys.stored.baselines.baseline_file import StoredSeries, build_reference
from pytest_nsys.verdicts.references import OtherRun
from tests.benchmarks.noisy_traces import LABELS, METRIC, Drawn, Level, Values, example, measured_pool
from tests.support.gate_files import loaded

DRIFT_BETWEEN, DRIFT_WITHIN = 0.02, 0.03


@dataclass(frozen=True)
class Noise:
    """A noise model: the drift of each capture, where one is. ``sessions``: before the judged trace, ± where both.

    With a ``hiccup`` one capture of these ``sides`` takes so much longer: of the accepted runs and of the calibration,
    or of those before; of those that are judged.
    """

    name: str
    shape: str = "normal"
    sessions: tuple[float, ...] = (0.0,)
    order: str = ""
    hiccup: float = 0.0
    sides: str = ""


@dataclass(frozen=True)
class Rule:
    """``stored`` accepted runs with or without calibration (R3), or ``captures`` on each side (R4).

    Of R3 ``now`` captures are judged as one run, by their medians; with ``fail_after`` so many runs are, one after the
    other, and only if each of them is bad the last one is red.
    """

    name: str
    tolerance: str
    stored: int = 0
    calibrated: bool = False
    captures: int = 0
    on_its_own: bool = False
    now: int = 1
    fail_after: int = 1

    @property
    def judged(self) -> int:
        """How many captures a trial judges."""
        return self.captures or self.now * self.fail_after


R3 = Rule("R3, K = 5, calibrated", "5%", stored=5, calibrated=True)
R4 = Rule("R4, 5 + 5", "2%", captures=5)
RULES = (
    Rule("5 %, one against one", "5%", stored=1),
    R3,
    Rule("R3, K = 5, not calibrated", "5%", stored=5),
    Rule("R3, K = 1, calibrated", "5%", stored=1, calibrated=True),
    R4,
    Rule("R4, 3 + 3", "2%", captures=3),
    Rule("R4, 1 + 1", "2%", captures=1),
)
OWN_FIVE = Rule("R3, calibrated on its own 5 runs", "5%", stored=5, on_its_own=True)
OWN_TEN = Rule("R3, calibrated on its own 10 runs", "5%", stored=10, on_its_own=True)
TIGHT = Rule("R3, K = 5, calibrated, tolerance 2 %", "2%", stored=5, calibrated=True)
OF_THREE = replace(R3, name="R3, K = 5, calibrated, medians of 3 captures", now=3)
OF_FIVE = replace(R3, name="R3, K = 5, calibrated, medians of 5 captures", now=5)
TWICE = replace(R3, name="R3, K = 5, calibrated, fail_after: 2", fail_after=2)
THRICE = replace(R3, name="R3, K = 5, calibrated, fail_after: 3", fail_after=3)
MAIN = (RULES[0], R3, R4)
R4_OF_5 = replace(R4, name="R4, 5 + 5, tolerance 5 %", tolerance="5%")
HELPS = (R3, OF_THREE, OF_FIVE, TWICE, THRICE, R4)
CALIBRATION = 5
MOST_OF_A_LEVEL = 15
"""Captures that one trial draws from one pool."""

TRIALS, SMALL, PART = 2_000, 20, 250
CHANGES = (0.0, 0.05, 0.10)

GATES = {"1 row": "rank 0 stage2_f exposed_ns", "8 rows": "rank 0 exposed_ns", "16 rows": "exposed_ns"}
MEDIAN = "median of 8 rows"
GATES[MEDIAN] = "median rank 0 exposed_ns"
ONE_OF = ", one changes"

PLAIN = Noise("normal, CV 2 %")
LOGNORMAL = Noise("lognormal, CV 2 %", "lognormal")
HEAVY = Noise("heavy tails (Student's t, ν = 3), CV 2 %", "heavy_tails")
OUTLYING_ROWS = Noise("normal, 5 % of rows +20 %", "outlying_rows")
OUTLYING_CAPTURES = Noise("normal, 5 % of captures +20 %", "outlying_captures")
ABOUT: Sequence[tuple[Noise, Mapping[str, Sequence[Rule]]]] = (
    (
        PLAIN,
        {
            "1 row": (*RULES, TIGHT, OWN_FIVE, OWN_TEN),
            "8 rows": (*MAIN, R4_OF_5, OWN_TEN, OF_THREE, OF_FIVE, TWICE, THRICE),
            "8 rows" + ONE_OF: (*MAIN, OWN_TEN, OF_THREE, OF_FIVE, TWICE),
            "16 rows": (*MAIN, R4_OF_5, OWN_TEN),
            MEDIAN: (R3,),
            MEDIAN + ONE_OF: (R3,),
        },
    ),
    (LOGNORMAL, {"1 row": MAIN, "8 rows": MAIN}),
    (HEAVY, {"1 row": MAIN, "8 rows": HELPS, MEDIAN: (R3,)}),
    (
        OUTLYING_ROWS,
        {
            "1 row": MAIN,
            "8 rows": (RULES[0], *HELPS, R4_OF_5),
            "8 rows" + ONE_OF: (*HELPS, R4_OF_5),
            MEDIAN: (R3, R4),
            MEDIAN + ONE_OF: (R3,),
        },
    ),
    (OUTLYING_CAPTURES, {"1 row": MAIN, "8 rows": HELPS, MEDIAN: (R3,)}),
    (Noise("bimodal clocks", "bimodal"), {"1 row": RULES, "8 rows": MAIN}),
    (Noise("+2 % between sessions", sessions=(DRIFT_BETWEEN,)), {"1 row": MAIN[:2]}),
    (Noise("±2 % between sessions", sessions=(-DRIFT_BETWEEN, DRIFT_BETWEEN)), {"1 row": MAIN[:2]}),
    (Noise("+3 % within the job, AAAAABBBBB", order="AAAAABBBBB"), {"1 row": (R4,)}),
    (Noise("+3 % within the job, ABBA", order="ABBAABBAAB"), {"1 row": (R4,)}),
)
"""What the table shows: drift between sessions does not reach one job, nor drift within a job a stored baseline."""


@dataclass(frozen=True)
class Target:
    """What is asked of a rule."""

    rule: Rule
    change: float
    share: float
    at_least: bool = False
    gate: str = "1 row"
    noise: Noise = PLAIN

    def verdict(self, trials: Trials) -> str:
        """met, MISSED, or MISSED? where so few trials cannot tell."""
        low, high = trials.interval(Outcome.FAILED)
        share = trials.share(Outcome.FAILED)
        if share >= self.share if self.at_least else share <= self.share:
            return "met"
        return "MISSED" if (high < self.share if self.at_least else low > self.share) else "MISSED?"


TARGETS = (
    Target(R3, 0.0, 0.01),
    Target(R3, 0.10, 0.85, at_least=True),
    Target(R4, 0.0, 0.05),
    Target(R4, 0.05, 0.90, at_least=True),
    Target(R3, 0.0, 0.01, gate="8 rows"),
    Target(R3, 0.0, 0.03, gate="16 rows"),  # B is about 2T, and a bound of 2T in half of the trials
    *(Target(R3, 0.10, 0.85, at_least=True, gate=gate) for gate in ("8 rows", "16 rows")),
    *(Target(R4_OF_5, 0.0, 0.03, gate=gate) for gate in ("8 rows", "16 rows")),
    *(Target(R4, 0.05, 0.90, at_least=True, gate=gate) for gate in ("8 rows", "16 rows")),
    Target(R3, 0.0, 0.01, noise=LOGNORMAL),
    Target(R3, 0.0, 0.02, gate="8 rows", noise=LOGNORMAL),
    Target(OF_THREE, 0.0, 0.08, gate="8 rows", noise=OUTLYING_ROWS),
    Target(OF_FIVE, 0.0, 0.06, gate="8 rows", noise=OUTLYING_ROWS),
    Target(R4_OF_5, 0.0, 0.04, gate="8 rows", noise=OUTLYING_ROWS),
    Target(R3, 0.0, 0.01, gate=MEDIAN, noise=OUTLYING_ROWS),
    *(Target(rule, 0.10, 0.85, at_least=True, gate="8 rows", noise=OUTLYING_ROWS) for rule in (OF_THREE, OF_FIVE, R4)),
)


@lru_cache(maxsize=64)
def gate_of(subject: str, tolerance: str) -> GateFile:
    """A gate file of one sentence."""
    return loaded(f"version: 1\nconvention: pithtrain\nassertions:\n  - {subject} <= baseline + {tolerance}\n")


def outcome(rule: Rule, gate: GateFile, before: Sequence[Values], after: Sequence[Values]) -> Outcome:
    """The verdict on ``after``. Of a rule with accepted runs ``before`` are these, then the calibration.

    A baseline that was made by its calibration was calibrated on its own runs.
    """
    (assertion,) = gate.assertions
    now = leave_out_hiccup(Drawn(example(), after), gate)
    spec = resolve_window_spec(now.convention, assertion)
    reference: Reference | NotComparable
    if rule.captures:
        was = leave_out_hiccup(Drawn(example(), before), gate)
        reference = OtherRun(now, gate, was).find_reference(assertion)
    else:
        accepted, calibration = before[: rule.stored], before[rule.stored :]
        calibration = accepted if rule.on_its_own else calibration
        accepted, calibration = (_without_hiccup(gate, values) for values in (accepted, calibration))
        series = StoredSeries("ns", "lower", METRIC.dimensions, by_row(accepted), by_row(calibration))
        reference = build_reference(series, partial(now.build_stored_table, METRIC))
    table = now.measure_rows(METRIC, spec)
    return judge_rows(assertion, table, reference).outcome


def _without_hiccup(gate: GateFile, runs: Sequence[Values]) -> Sequence[Values]:
    """The runs that count, as of a calibration and of accepted runs."""
    found = leave_out_hiccup(Drawn(example(), runs), gate)
    assert isinstance(found, Drawn)
    return found.values


def by_row(runs: Sequence[Values]) -> dict[tuple[Label, ...], list[Value]]:
    """The runs as a baseline stores them."""
    return {labels: [values[i] for values in runs] for i, labels in enumerate(LABELS)} if runs else {}


@dataclass(frozen=True)
class Cell:
    """One share of the table: what is drawn from which level, and how it is judged."""

    noise: Noise
    gate: str
    rule: Rule
    change: float

    @property
    def captures(self) -> tuple[list[Level], list[list[Level]]]:
        """The level of each capture before; of each after, one of those that it is drawn from in turn."""
        shape, one_row = self.noise.shape, ONE_OF in self.gate
        if self.noise.order:
            drifts = [DRIFT_WITHIN * i / (len(self.noise.order) - 1) for i in range(len(self.noise.order))]
            sides = list(zip(self.noise.order, drifts, strict=True))
            before = [Level(shape, drift) for side, drift in sides if side == "A"]
            return before, [[Level(shape, drift, self.change)] for side, drift in sides if side == "B"]
        rule = self.rule
        count = rule.captures or rule.stored + (CALIBRATION if rule.calibrated else 0)
        levels = [Level(shape, drift, self.change, one_row and self.change > 0) for drift in self.noise.sessions]
        before, after = [Level(shape)] * count, [levels] * rule.judged
        if "before" in self.noise.sides:
            for place in {0, rule.stored} if rule.calibrated else {0}:
                before[place] = Level(shape, self.noise.hiccup)
        if "after" in self.noise.sides:
            after[0] = [replace(level, drift=self.noise.hiccup) for level in levels]
        return before, after

    @property
    def levels(self) -> set[Level]:
        """The pools that it draws from."""
        before, after = self.captures
        return {*before, *(level for levels in after for level in levels)}

    def pool_size(self, trials: int) -> int:
        """Most where false alarms are counted, least where each of the ten captures of a job has a pool of its own."""
        if self.noise.order:
            return trials // len(self.noise.order)
        return trials // 2 if self.change else trials


@dataclass(frozen=True)
class Trials:
    """How many trials had which outcome."""

    count: int
    outcomes: Mapping[Outcome, int]

    def share(self, outcome: Outcome) -> float:
        return self.outcomes.get(outcome, 0) / self.count

    def interval(self, outcome: Outcome) -> tuple[float, float]:
        """Wilson's interval of the share, 95 %."""
        z, n, share = 1.96, self.count, self.share(outcome)
        middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))

    def words(self, outcome: Outcome) -> str:
        low, high = self.interval(outcome)
        return f"{100 * self.share(outcome):.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def tried(asked: tuple[Cell, Mapping[Level, Sequence[Values]], int, int]) -> Trials:
    """The trials of a cell."""
    cell, pools, trials, seed = asked
    random = Random(f"{seed}:{cell}")
    subject = GATES[cell.gate.removesuffix(ONE_OF)]
    gate = gate_of(subject, cell.rule.tolerance)
    before, after = cell.captures
    judged = {level: random.sample(range(len(pools[level])), len(pools[level])) for levels in after for level in levels}
    found: Counter[Outcome] = Counter()
    for trial in range(trials):
        now = [levels[trial % len(levels)] for levels in after]
        first = {level: judged[level][trial % len(judged[level])] for level in now}
        drawn = draw(random, pools, [*now, *before], first)
        found[last_of(cell.rule, gate, drawn[len(now) :], drawn[: len(now)])] += 1
    return Trials(trials, found)


def last_of(rule: Rule, gate: GateFile, before: Sequence[Values], after: Sequence[Values]) -> Outcome:
    """The verdict on the last run: *inconclusive* where it is bad, and not as many in a row are as it takes."""
    size = len(after) // rule.fail_after
    *earlier, last = (outcome(rule, gate, before, after[n : n + size]) for n in range(0, len(after), size))
    in_a_row = all(each is Outcome.FAILED for each in earlier)
    return Outcome.INCONCLUSIVE if last is Outcome.FAILED and not in_a_row else last


def draw(
    random: Random, pools: Mapping[Level, Sequence[Values]], levels: Sequence[Level], first: Mapping[Level, int]
) -> list[Values]:
    """A trace for each level, none twice; the first one of a level in ``first`` is that one."""
    taken: set[tuple[Level, int]] = set()
    drawn = []
    for level in levels:
        number = first.get(level, -1)
        while number < 0 or (level, number) in taken:
            number = random.randrange(len(pools[level]))
        taken.add((level, number))
        drawn.append(pools[level][number])
    return drawn


HALF_MORE, FIFTH_MORE = 0.7, 0.2
HICCUPS = (
    PLAIN,
    Noise("one capture × 1.7 before", hiccup=HALF_MORE, sides="before"),
    Noise("one capture × 1.7 after", hiccup=HALF_MORE, sides="after"),
    Noise("one capture × 1.7 on either side", hiccup=HALF_MORE, sides="before after"),
    Noise("one capture × 1.2 on either side", hiccup=FIFTH_MORE, sides="before after"),
)
OF_HICCUPS = (R3, OF_FIVE, R4_OF_5)
BEYOND = (0.0, 0.05, 0.10, 0.15)
"""Nothing, T, 2T and 3T: the last is promised whatever one capture does."""

PROMISED = 0.01
"""Of verdicts that a hiccup may change."""


def hiccup_cells() -> Iterator[Cell]:
    """The shares of the table of hiccups. A single capture that is judged is itself, whatever it is."""
    for rule in OF_HICCUPS:
        for noise in HICCUPS:
            if rule.judged > 1 or "after" not in noise.sides:
                yield from (Cell(noise, "8 rows", rule, change) for change in BEYOND)


def hiccup_table(found: Mapping[Cell, Trials]) -> Iterator[str]:
    """Markdown: false alarms, and what is missed, a line for each rule and noise."""
    yield "| rule | noise | no change: red | " + " | ".join(f"+{c:.0%}: not red" for c in BEYOND[1:]) + " |"
    yield "| --- " * (2 + len(BEYOND)) + "|"
    for rule, noise in dict.fromkeys((cell.rule, cell.noise) for cell in found):
        red = [found[Cell(noise, "8 rows", rule, change)].share(Outcome.FAILED) for change in BEYOND]
        shares = [red[0], *(1 - share for share in red[1:])]
        yield f"| {rule.name} | {noise.name} | " + " | ".join(f"{100 * share:.1f} %" for share in shares) + " |"


def broken_promises(found: Mapping[Cell, Trials]) -> Iterator[str]:
    """What hiccups change at three tolerances, or make red where nothing changed, in more trials than is promised."""
    for cell, trials in found.items():
        plain, (low, high) = found[replace(cell, noise=PLAIN)].share(Outcome.FAILED), trials.interval(Outcome.FAILED)
        if (not cell.change and low > plain + PROMISED) or (cell.change == BEYOND[-1] and high < plain - PROMISED):
            red = trials.words(Outcome.FAILED)
            yield f"{cell.rule.name}, {cell.noise.name}, {cell.change:+.0%}: {red} red, {plain:.1%} without"


def cells() -> Iterator[Cell]:
    """All shares of the table, in its order."""
    for noise, gates in ABOUT:
        for gate, rules in gates.items():
            yield from (Cell(noise, gate, rule, change) for rule in rules for change in CHANGES)


def simulate(asked: Sequence[Cell], trials: int, seed: int) -> dict[Cell, Trials]:
    """All trials of some cells, on all cores; the same for a seed on whatever machine."""
    sizes: dict[Level, int] = {}
    for cell in asked:
        for level in cell.levels:
            sizes[level] = max(sizes.get(level, MOST_OF_A_LEVEL + 1), cell.pool_size(trials))
    levels = sorted(sizes, key=str)
    parts = [
        (level, seed, first, min(first + PART, sizes[level]))
        for level in levels
        for first in range(0, sizes[level], PART)
    ]
    with multiprocessing.Pool() as workers:
        pools: dict[Level, list[Values]] = {level: [] for level in levels}
        for (level, *_), values in zip(parts, workers.imap(measured_pool, parts), strict=True):
            pools[level] += values
        works = [(cell, {level: pools[level] for level in cell.levels}, trials, seed) for cell in asked]
        return dict(zip(asked, workers.imap(tried, works), strict=True))


def table(found: Mapping[Cell, Trials]) -> Iterator[str]:
    """Markdown: a line for each noise, gate and rule."""
    heads = [f"{change}: {verdict}" for change in ("no change", "+5 %", "+10 %") for verdict in ("red", "inconclusive")]
    yield "| noise | gate | rule | " + " | ".join(heads) + " |"
    yield "| --- " * (3 + len(heads)) + "|"
    for noise, gate, rule in dict.fromkeys((cell.noise, cell.gate, cell.rule) for cell in found):
        cells = [found[Cell(noise, gate, rule, change)] for change in CHANGES]
        shares = [trials.words(out) for trials in cells for out in (Outcome.FAILED, Outcome.INCONCLUSIVE)]
        yield f"| {noise.name} | {gate} | {rule.name} | " + " | ".join(shares) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the targets; 1 where one is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"of each cell of the table (default: {TRIALS})")
    parser.add_argument("--small", action="store_true", help=f"{SMALL} trials of each cell")
    parser.add_argument("--hiccups", action="store_true", help="the table of hiccups alone")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    trials = SMALL if asked.small else asked.trials
    hiccups = simulate(list(hiccup_cells()), trials, asked.seed)
    print(f"{trials} trials a cell, seed {asked.seed}\n")
    print("\n".join(hiccup_table(hiccups)) + "\n")
    broken = list(broken_promises(hiccups))
    print("\n".join(f"MISSED   {line}" for line in broken))
    if asked.hiccups:
        return int(bool(broken))
    found = simulate(list(cells()), trials, asked.seed)
    print("Shares with their 95 % intervals\n")
    print("\n".join(table(found)) + "\n")
    verdicts = []
    for target in TARGETS:
        cell = found[Cell(target.noise, target.gate, target.rule, target.change)]
        verdicts.append(target.verdict(cell))
        requests = f"at {'least' if target.at_least else 'most'} {100 * target.share:g} %"
        where = f"{target.rule.name}, {target.noise.name}, {target.gate}, {target.change:+.0%}"
        print(f"{verdicts[-1]:8} {where}: {cell.words(Outcome.FAILED)} red, {requests}")
    return int(bool(broken) or "MISSED" in verdicts or ("MISSED?" in verdicts and not asked.small))


if __name__ == "__main__":
    sys.exit(main())
