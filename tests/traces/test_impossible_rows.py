"""Is an operation whose times cannot be counted, named and left out of every figure, in each format?"""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import ImpossibleRows
from pytest_nsys.traces.trace_files import open_trace
from tests.support.measure import captures, rows_of
from tests.support.samples import schema
from tests.support.samples.formats import Format, write_one
from tests.support.samples.kineto import KinetoBuilder
from tests.support.sql import execute
from tests.traces.test_cut_trace import cut

GENERIC = BUILT_IN_CONVENTIONS["generic"]
METRICS = ("window_ns", "compute_ns", "comm_ns", "exposed_ns", "idle_ns", "device_idle_ns")
SINCE_1970_NS = 1_700_000_000_000_000_000

Put = Callable[[Any], object]

in_every_format = pytest.mark.parametrize("format", list(Format))


def good(gpu: Any) -> None:
    """Two kernels, of which one communicates, a copy, and a kernel that takes no time."""
    gpu.kernel("gemm", 10_000, 20_000, launch_ns=9_000)
    gpu.kernel("ncclDevKernel_AllGather", 15_000, 30_000, stream=28, launch_ns=9_500)
    gpu.memcpy(32_000, 34_000, launch_ns=9_600)
    gpu.kernel("empty", 33_000, 33_000, launch_ns=9_700)


def figures(path: Path) -> Mapping[str, object]:
    """The rows of the whole run."""
    with captures(path, convention=GENERIC) as opened:
        return {name: rows_of(opened, name, opened.make_spec("run")) for name in METRICS}


def impossible(path: Path) -> ImpossibleRows:
    """What the reader left out."""
    with closing(open_trace(path)) as trace:
        return trace.facts().impossible_rows


def check_left_out(folder: Path, format: Format, bad: Put) -> ImpossibleRows:
    """What the reader says of the bad rows, without which a trace has the same figures."""

    def both(gpu: Any) -> None:
        bad(gpu)
        good(gpu)
        bad(gpu)

    (folder / "good").mkdir()
    (folder / "bad").mkdir()
    without = write_one(folder / "good", format, good)
    assert impossible(without) == ImpossibleRows(0, "")
    path = write_one(folder / "bad", format, both)
    assert figures(path) == figures(without)
    return impossible(path)


@in_every_format
@pytest.mark.parametrize(("start", "end"), [(25_000, 12_000), (25_000, 24_999), (25_000, 0), (0, 0)])
def test_a_kernel_that_ends_early_or_was_not_timed(tmp_path: Path, format: Format, start: int, end: int) -> None:
    found = check_left_out(tmp_path, format, lambda gpu: gpu.kernel("lost", start, end, launch_ns=9_800))
    assert found == ImpossibleRows(2, f"kernel lost on stream 7: start {start}, end {end}")


@in_every_format
@pytest.mark.parametrize(("start", "end"), [(25_000, 12_000), (0, 0)])
def test_a_copy_that_ends_early_or_was_not_timed(tmp_path: Path, format: Format, start: int, end: int) -> None:
    found = check_left_out(tmp_path, format, lambda gpu: gpu.memcpy(start, end, launch_ns=9_800))
    assert found.number == 2
    assert found.first_row.startswith("copy ")
    assert found.first_row.endswith(f" on stream 7: start {start}, end {end}")


@pytest.mark.parametrize("format", [Format.NSYS, Format.KINETO, Format.JAX])
def test_a_memset_that_was_not_timed(tmp_path: Path, format: Format) -> None:
    found = check_left_out(tmp_path, format, lambda gpu: gpu.memset(0, 0, launch_ns=9_800))
    assert found.number == 2
    assert found.first_row.startswith("memset")


@in_every_format
def test_the_first_of_the_kernels_is_named(tmp_path: Path, format: Format) -> None:
    def bad(gpu: Any) -> None:
        gpu.kernel("first", 24_000, 12_000, launch_ns=9_800, stream=9)
        gpu.kernel("second", 25_000, 12_000, launch_ns=9_800)
        gpu.memcpy(0, 0, launch_ns=9_800)

    found = check_left_out(tmp_path, format, bad)
    assert found == ImpossibleRows(6, "kernel first on stream 9: start 24000, end 12000")


def test_a_graph_that_was_traced_whole_and_not_timed(tmp_path: Path) -> None:
    path = write_one(tmp_path, Format.NSYS, good)
    columns = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
    graphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    execute(
        path,
        f"CREATE TABLE {graphs} AS SELECT {columns} FROM {schema.KERNEL} LIMIT 1",
        f"UPDATE {graphs} SET start = 0, end = 0",
    )
    assert impossible(path) == ImpossibleRows(1, "graph replay on stream 7: start 0, end 0")


@pytest.mark.parametrize(("column", "value"), [("end", "'late'"), ("start", "'soon'")])
def test_a_time_that_is_no_number_is_damage(tmp_path: Path, column: str, value: str) -> None:
    path = write_one(tmp_path, Format.NSYS, good)
    execute(path, f"UPDATE {schema.KERNEL} SET {column} = {value} WHERE rowid = 1")
    assert impossible(path) == ImpossibleRows(0, "")
    with pytest.raises(TraceError, match="holds a value that cannot be"):
        figures(path)


# -- torch.profiler alone


def of_torch(folder: Path, *, at: int, base: int | None = None, **members: Any) -> tuple[Path, Path]:
    """A trace whose kernels begin at some time, with and without one that has these members."""
    paths = []
    for name in ("good", "bad"):
        trace = KinetoBuilder(rank=None)
        if base is not None:
            trace.members["baseTimeNanoseconds"] = base
        trace.kernel("gemm", at + 10_000, at + 20_000)
        trace.memcpy(at + 20_000, at + 21_000)
        if name == "bad":
            trace.kernel("lost", at + 12_000, at + 13_000, launch_ns=at + 11_000)
            trace.events[-1] |= members
        paths.append(trace.write(folder / f"{name}.json"))
    return paths[0], paths[1]


@pytest.mark.parametrize("dur", [None, "none at all"])
def test_a_kernel_without_a_duration(tmp_path: Path, dur: str | None) -> None:
    without, path = of_torch(tmp_path, at=0, dur=dur)
    if dur is not None:
        path.write_text(path.read_text().replace(f', "dur": "{dur}"', ""))
    assert impossible(path) == ImpossibleRows(1, "kernel lost on stream 7: start 12000, no end")
    assert figures(path) == figures(without)


def test_a_kernel_in_1970_beside_others_of_today(tmp_path: Path) -> None:
    """Today: a window of 54 years."""
    without, path = of_torch(tmp_path, at=SINCE_1970_NS, ts="<0.000>")
    assert impossible(path) == ImpossibleRows(1, "kernel lost on stream 7: start 0, end 1000")
    assert figures(path) == figures(without)


def test_a_kernel_in_1970_on_a_clock_that_began_later(tmp_path: Path) -> None:
    base = SINCE_1970_NS
    without, path = of_torch(tmp_path, at=0, base=base, ts=f"<-{base // 1000}.000>")
    assert impossible(path) == ImpossibleRows(1, f"kernel lost on stream 7: start -{base}, end {1_000 - base}")
    assert figures(path) == figures(without)


def test_a_copy_in_1970_beside_kernels_of_today(tmp_path: Path) -> None:
    trace = KinetoBuilder(rank=None)
    trace.kernel("gemm", SINCE_1970_NS, SINCE_1970_NS + 10_000)
    trace.memcpy(0, 500, launch_ns=SINCE_1970_NS)
    trace.memset(SINCE_1970_NS + 1_000, SINCE_1970_NS + 2_000)
    path = trace.write(tmp_path / "trace.json")
    assert impossible(path) == ImpossibleRows(1, "copy Memcpy HtoD (Pageable -> Device) on stream 7: start 0, end 500")
    assert figures(path)["device_idle_ns"] == {0: 0}


@pytest.mark.parametrize("base", [None, 0, SINCE_1970_NS])
def test_a_kernel_at_the_zero_of_a_clock_that_began_with_the_trace_is_one(tmp_path: Path, base: int | None) -> None:
    without, path = of_torch(tmp_path, at=0, base=base, ts="<0.000>")
    assert impossible(path) == ImpossibleRows(0, "")
    assert figures(path)["compute_ns"] == {0: 11_000}
    assert figures(without)["compute_ns"] == {0: 10_000}


# -- beside the reader


@in_every_format
def test_a_cut_keeps_how_many_there_were(tmp_path: Path, format: Format) -> None:
    def put(gpu: Any) -> None:
        good(gpu)
        gpu.kernel("lost", 0, 0, launch_ns=9_800)
        gpu.kernel("lost", 25_000, 12_000, launch_ns=9_800)

    path = write_one(tmp_path, format, put)
    window = cut(path, "--convention=generic", "--window=run")
    assert impossible(window) == ImpossibleRows(2, "kernel lost on stream 7: start 0, end 0")
    again = cut(window, "--convention=generic", "--window=run", name="again")
    assert impossible(again) == impossible(window)
