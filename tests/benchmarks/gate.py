"""How long does a gate of the median window take, and what does it need?"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.measuring import Bench, Group, Line, Round, less, seconds
from tests.benchmarks.traces import LARGE, dualpipe

TWENTY = Path(__file__).with_name("twenty.yaml").read_text()
FIXED = "version: 1\nassertions: [stage4 overlap >= 1%, no mixed comm streams]\n"
REFERENCE = (245, 272)
"""What the reference's four scripts cost at 1 M and 5 M, in raw scans, measured once on another machine."""


def window(bench: Bench) -> Iterator[Line]:
    """Twenty assertions on a trace, and on a larger one."""
    peaks = []
    for kernels, most, reference, faster in zip(bench.size(*LARGE), (1.6, 1.2), REFERENCE, (100, 200), strict=True):
        found = _with_raw(bench, f"twenty{kernels}", dualpipe(bench.traces, kernels))
        yield seconds(f"raw scan, {kernels:_} kernels", "raw", found)
        ratios, peak = _against_raw(found)
        yield Line(f"20 assertions, {kernels:_} kernels", "× raw scan", ratios, most=most)
        if not bench.small:
            yield Line("  faster than the reference", "×", [reference / ratio for ratio in ratios], least=faster)
        yield Line("  peak memory", "MiB", peak, most=100)
        peaks.append(peak)
    growth = [large / small for small, large in zip(*peaks, strict=True)]
    yield Line("memory, of the larger trace", "× the small", growth, most=1.3)


def growth(bench: Bench) -> Iterator[Line]:
    """The window decides what it costs, not the trace."""
    few, many = bench.size(*LARGE)
    gates = {f"of{n}": bench.gate(f"fixed{n}", dualpipe(bench.traces, n), FIXED) for n in (few, many)}
    found = bench.alternate(empty=bench.empty, **gates)
    ratios = [less(r[f"of{many}"], r["empty"]) / less(r[f"of{few}"], r["empty"]) for r in found]
    yield Line(f"time, the trace grown {many / few:g} ×", "× the small", ratios, most=many / few)


def operators(bench: Bench) -> Iterator[Line]:
    """A range around every kernel."""
    kernels, _ = bench.size(*LARGE)
    found = _with_raw(bench, "operators", dualpipe(bench.traces, kernels, operators=True))
    ratios, peak = _against_raw(found)
    yield Line(f"operator ranges on every kernel, {kernels:_} kernels", "× raw scan", ratios, most=1.7)
    yield Line("  peak memory", "MiB", peak, most=100)


def files(bench: Bench) -> Iterator[Line]:
    """Many gate files of one trace."""
    trace = dualpipe(bench.traces, bench.size(*LARGE)[0])
    head, assertions = TWENTY.split("assertions:\n")
    each = [f"{head}assertions:\n{line}\n" for line in assertions.splitlines()]
    texts = {"one": [TWENTY], "split": each, "copies": [TWENTY] * 20}
    gates = {name: bench.gate(name, trace, *of) for name, of in texts.items()}
    found = bench.alternate(empty=bench.empty, **gates)
    for what, name, most in (
        ("the 20 assertions in 20 files", "split", 1.2),
        ("20 copies of the file", "copies", None),
    ):
        ratios = [less(r[name], r["empty"]) / less(r["one"], r["empty"]) for r in found]
        yield Line(what, "× one file", ratios, most=most)


def _with_raw(bench: Bench, name: str, trace: Path) -> list[Round]:
    gate = bench.gate(name, trace, TWENTY)
    return bench.alternate(empty=bench.empty, raw=partial(bench.raw, trace), gate=gate)


def _against_raw(found: Sequence[Round]) -> tuple[list[float], list[float]]:
    """The gate in raw scans, and its peak memory in MiB."""
    ratios = [less(r["gate"], r["empty"]) / r["raw"].seconds for r in found]
    return ratios, [r["gate"].peak_mib for r in found]


GROUP = Group(
    "the median window of an nsys export: `pytest`, cold to exit, less its run of one empty test;\n"
    "a raw scan is SQLite's sum(end - start) of KERNEL, RUNTIME and NVTX_EVENTS, on one thread",
    (window, growth, operators, files),
)
