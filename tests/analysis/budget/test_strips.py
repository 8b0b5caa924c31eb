"""Is the strip of a rank that of the window that is asked for?"""

from pathlib import Path

from pytest_nsys.analysis.budget.strips import list_rank_strips
from tests.support.measure import captures
from tests.support.samples.builder import TraceBuilder

MS = 1_000_000


def test_each_window_has_its_strip(tmp_path: Path) -> None:
    trace = TraceBuilder()
    gpu = trace.process()
    at = 0
    for length_ms in (10, 10, 10, 20, 10, 10, 10, 10):
        gpu.range("step", at * MS, (at + length_ms) * MS)
        gpu.kernel("gemm", at * MS + 1_000, (at + 9) * MS, launch_ns=at * MS + 500)
        at += length_ms
    path = trace.write(tmp_path / "run.sqlite")
    with captures(path) as opened:
        run, spec = opened.runs[0], opened.make_spec("steady")
        count = len(run.load_windows(spec).require_filled_windows({0})[0])
        strips = [next(list_rank_strips(run, spec, [0], index)) for index in range(count + 1)]
    assert 20 * MS in [strip.length_ns for strip in strips[:count]]
    assert strips[count].length_ns == 10 * MS  # beyond the last one it is the typical one
