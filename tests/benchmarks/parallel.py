"""How much faster is a run of many traces read by two processes than by one?"""

from collections.abc import Iterator
from functools import partial

from tests.benchmarks.measuring import Bench, Group, Line
from tests.benchmarks.traces import NODE_OF_EIGHT, nodes, torch_ranks
from tests.support.samples.sizes import with_kernels

COUNT = "n = 0\nwhile n < {0}: n += 1"
AT_ONCE = """
import subprocess, sys
started = [subprocess.Popen([sys.executable, "-c", sys.argv[1]]) for _ in range(int(sys.argv[2]))]
sys.exit(any([process.wait() for process in started]))
"""
NSYS = ("overlap", "exposed_ns", "wall_exposed_ns", "idle_ns")
TORCH = ("wall_overlap", "idle_ns", "window_ns")


def lines(bench: Bench) -> Iterator[Line]:
    """All lines of reading in parallel."""
    (exports, large), (ranks, medium) = bench.size(((12, 300_000), (6, 60_000)), ((3, 3_000), (3, 1_000)))
    asked = {
        f"{exports} exports of nsys": (
            nodes(bench.traces, "exports", with_kernels(NODE_OF_EIGHT, large), exports),
            NSYS,
        ),
        f"{ranks} traces of torch.profiler": (torch_ranks(bench.traces, medium, ranks), TORCH),
    }
    count = COUNT.format(bench.size(30_000_000, 1_000_000))
    for what, (folder, metrics) in asked.items():
        read = partial(bench.command, "rows", *metrics, f"--trace={folder}")
        found = bench.alternate(
            alone=partial(bench.python, "-c", AT_ONCE, count, "1"),
            pair=partial(bench.python, "-c", AT_ONCE, count, "2"),
            serial=partial(read, "--executor=serial"),
            parallel=partial(read, "--executor=processes:2"),
        )
        best = [2 * r["alone"].wall / r["pair"].wall for r in found]
        ratios = [r["serial"].wall / r["parallel"].wall for r in found]
        yield Line(f"{what}, two processes", "× one", ratios)
        yield Line("  two processes that only count, the best there is here", "× one", best)
        shares = [ratio / each for ratio, each in zip(ratios, best, strict=True)]
        yield Line("  of that", "share", shares, least=0.9)


GROUP = Group("reading in parallel: `pytest-nsys rows`, cold to exit, by two processes against by one", (lines,))
