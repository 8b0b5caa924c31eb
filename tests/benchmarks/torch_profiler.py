"""How fast is a torch.profiler trace read, and in how much memory?"""

from collections.abc import Iterator
from functools import partial

from tests.benchmarks.measuring import Bench, Group, Line, seconds
from tests.benchmarks.traces import torch

JSON = "import gc, json, sys; gc.disable(); json.load(open(sys.argv[1]))"
COLUMNS = (
    "import sys; from pathlib import Path; from pytest_nsys.traces.chrome.kineto import KinetoTrace; "
    "KinetoTrace(Path(sys.argv[1])).processes"
)
HTA = "import sys; from hta.trace_analysis import TraceAnalysis; TraceAnalysis(trace_files={0: sys.argv[1]})"


def lines(bench: Bench) -> Iterator[Line]:
    """All lines of torch.profiler."""
    plain = torch(bench.traces, bench.size(317_000, 5_000))
    packed = plain.with_name(f"{plain.name}.gz")
    runs = {
        "columns": partial(bench.python, "-c", COLUMNS, plain),
        "columns, gzip": partial(bench.python, "-c", COLUMNS, packed),
        "pytest-nsys streams": partial(bench.command, "--view=streams", plain),
        "pytest-nsys streams, gzip": partial(bench.command, "--view=streams", packed),
    }
    found = bench.alternate(json=partial(bench.python, "-c", JSON, plain), **runs)
    yield seconds("json.load", "json", found)
    for name in runs:
        what = f"{name}, {plain.stat().st_size / 1e6:.0f} MB"
        yield Line(what, "× json.load", [r[name].seconds / r["json"].seconds for r in found], most=0.35)
    for name in ("pytest-nsys streams", "pytest-nsys streams, gzip"):
        yield Line(f"  peak memory of {name}", "MiB", [r[name].peak_mib for r in found], most=200)
    if not bench.hta:
        yield Line("faster than HolisticTraceAnalysis loads it: --hta PYTHON", "×", (), least=12)
        return
    hta = partial(bench.python, "-c", HTA, plain, executable=bench.hta)
    once = bench.once(streams=runs["pytest-nsys streams"], hta=hta)
    faster = [once["hta"].seconds / once["streams"].seconds]
    yield Line("pytest-nsys streams, faster than HTA loads the trace", "×", faster, least=12)


GROUP = Group(
    "a torch.profiler trace, plain and packed, in whole processes; json.load runs without garbage collection", (lines,)
)
