"""How long does it take to look at every kernel of a run?"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pytest_nsys.analysis.metrics.registry import METRICS
from tests.benchmarks.measuring import Bench, Group, Line, Spent, less, seconds
from tests.benchmarks.traces import LARGE, distinct_names, dualpipe, shorter, unmarked

GATE = """version: 1
window: run
assertions: [stage4 overlap >= 1%, no mixed comm streams, wall_exposed_ns below 1000 s]
"""
MOST_SEARCHED = 20
"""Where a raw scan takes 0.3 s, six seconds."""

LINEAR = 1.1
"""How much more than as often as the trace has grown counts as linear."""


def windows(bench: Bench) -> Iterator[Line]:
    """Windows of the whole run."""
    most = 8
    sizes = bench.size(*LARGE)
    small, large = (dualpipe(bench.traces, kernels) for kernels in sizes)
    gates = [bench.gate(f"run{n}", trace, GATE) for n, trace in enumerate((small, large))]
    found = bench.alternate(
        empty=bench.empty,
        start=partial(bench.command, "--version"),
        raw=partial(bench.raw, small),
        gate=gates[0],
        every=partial(bench.command, "rows", *METRICS, f"--trace={small}", "--window=run"),
    )
    ratios = [less(r["gate"], r["empty"]) / r["raw"].seconds for r in found]
    yield Line(f"gate of 3 assertions, {sizes[0]:_} kernels", "× raw scan", ratios, most=most)
    yield _memory("  peak memory", [r["gate"] for r in found], sizes[0])
    grown = sizes[1] / sizes[0]
    once = bench.once(empty=bench.empty, small=gates[0], large=gates[1])
    time = less(once["large"], once["empty"]) / less(once["small"], once["empty"])
    yield Line(f"  time, the trace grown {grown:g} ×", "× the small", [time], most=LINEAR * grown)
    yield _memory(f"  peak memory, {sizes[1]:_} kernels", [once["large"]], sizes[1])
    ratios = [less(r["every"], r["start"]) / r["raw"].seconds for r in found]
    yield Line(f"rows of all {len(METRICS)} metrics, {sizes[0]:_} kernels", "× raw scan", ratios, most=most)
    yield _memory("  peak memory", [r["every"] for r in found], sizes[0])


def scopes(bench: Bench) -> Iterator[Line]:
    """Which part of the program, beside the same window without that question."""
    kernels = bench.size(*LARGE)[0]
    trace = dualpipe(bench.traces, kernels)
    questions = ("time of range forward* below 1000 s", "time of module layer* below 1000 s")
    gates = {"without": bench.gate("without", trace, GATE)}
    for number, question in enumerate(questions):
        gates[question] = bench.gate(f"scope{number}", trace, f"{GATE.rstrip()[:-1]}, {question}]\n")
    found = bench.alternate(empty=bench.empty, **gates)
    for text in questions:
        ratios = [less(r[text], r["empty"]) / less(r["without"], r["empty"]) for r in found]
        yield Line(f"{text}, {kernels:_} kernels", "× without", ratios, most=1.5)


def commands(bench: Bench) -> Iterator[Line]:
    """Commands that look at every kernel."""
    trace = dualpipe(bench.traces, bench.size(*LARGE)[0])
    asked: dict[str, tuple[tuple[str | Path, ...], float | None]] = {
        "pytest-nsys kernels": (("--view=kernels", trace), 6),
        "rows overlap --window steady": (("rows", "overlap", f"--trace={trace}", "--window=steady"), None),
        "  launched in the steps": (
            ("rows", "overlap", f"--trace={trace}", "--window=steady", "--kernels=launched"),
            None,
        ),
        "pytest-nsys": ((trace,), 8),
        "pytest-nsys --view overlap --window run": (("--view=overlap", "--window=run", trace), 8),
        "pytest-nsys --view budget --window run": (("--view=budget", "--window=run", trace), 8),
        "compare": (("compare", trace, shorter(bench.traces, trace)), 10),
        "init": (("init", trace, "--force", f"--output={bench.work / 'drafted.nsys.yaml'}"), 15),
        "rows overlap_tax_ns --window run": (("rows", "overlap_tax_ns", f"--trace={trace}", "--window=run"), None),
    }
    found = bench.alternate(
        start=partial(bench.command, "--version"),
        raw=partial(bench.raw, trace),
        **{name: partial(bench.command, *words) for name, (words, _) in asked.items()},
    )
    yield seconds("raw scan", "raw", found)
    for name, (_, most) in asked.items():
        yield Line(name, "× raw scan", [less(r[name], r["start"]) / r["raw"].seconds for r in found], most=most)
        if "--view" in name:
            yield _memory("  peak memory", [r[name] for r in found], bench.size(*LARGE)[0])


def names(bench: Bench) -> Iterator[Line]:
    """As many names as kernels."""
    for kernels, most in bench.size(((100_000, 6), (1_000_000, 60)), ((1_000, 6), (2_000, 60))):
        once = bench.once(names=partial(bench.command, distinct_names(bench.traces, kernels), "--steps=1"))
        yield Line(f"pytest-nsys, {kernels:_} kernels of as many names", "s", [once["names"].seconds], most=most)


SEARCH = """
import sys, time
from pathlib import Path
from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.steps.convention_fit import OPENING_CONVENTION
from pytest_nsys.analysis.steps.step_search import search_steps
run = CaptureCache().open_one_run([sys.argv[1]], Path(), OPENING_CONVENTION).runs[0]
assert all(len(track.launch_ns) for track in run.load_whole_run().tracks.values())
start = time.CLOCK()
search_steps(run)
print(time.CLOCK() - start)
"""


def steps(bench: Bench) -> Iterator[Line]:
    """The search for steps that nobody marked, of kernels that were read."""
    kernels = bench.size(1_000_000, 20_000)
    traces = {
        name: unmarked(bench.traces, kernels, shuffled=name == "in no order") for name in ("steps", "in no order")
    }
    scans = {f"raw {name}": partial(bench.raw, trace) for name, trace in traces.items()}
    found = bench.alternate(**scans, **{name: partial(bench.clocked, SEARCH, trace) for name, trace in traces.items()})
    for name in traces:
        ratios = [r[name].seconds / r[f"raw {name}"].seconds for r in found]
        yield Line(f"search for steps, {kernels:_} kernels, {name}", "× raw scan", ratios, most=MOST_SEARCHED)


def _memory(what: str, runs: list[Spent], kernels: int) -> Line:
    return Line(what, "MiB/M kernels", [run.peak_mib / kernels * 1_000_000 for run in runs], most=250)


GROUP = Group(
    "whole runs of an nsys export: `pytest`, cold to exit, less its run of one\n"
    "empty test, and `pytest-nsys` less `pytest-nsys --version`; a raw scan is SQLite's, as for the median window",
    (commands, windows, scopes, names, steps),
)
