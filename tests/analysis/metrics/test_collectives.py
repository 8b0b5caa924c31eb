"""Are bytes, bandwidths and waits of collectives those that are in the trace, and is what it cannot say left out?"""

import gzip
import json
import shlex
import sqlite3
import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.metrics import collectives
from pytest_nsys.analysis.metrics.collective_waits import MatchedWaits, WaitShare, _measure_waits, find_stragglers
from pytest_nsys.analysis.metrics.collectives import (
    SYMMETRIC_KINDS,
    Transfer,
    _check_same_collectives,
    _group_by_members,
    count_message_bytes,
    find_bus_factor,
)
from pytest_nsys.analysis.metrics.table import STATISTIC_LABELS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.families import COLLECTIVE_KINDS, find_collective_kind, normalize_kind
from pytest_nsys.core.model import Collective, Value
from tests.support.commands import run
from tests.support.fake_nsys import needs_pyarrow, to_parquet
from tests.support.gates import Project
from tests.support.measure import notes, rows, why
from tests.support.reference_data import REAL
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.nccl import FIRST_SCHEMA, INIT, NCCL_DOMAIN, NcclRanges
from tests.support.samples.versions import schema_of
from tests.support.sql import execute

KINETO = BUILT_IN_CONVENTIONS["kineto"]
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COMM = (1 << 63) + 7
"""An id as NCCL makes them: of 64 bits, without a sign."""


def recorded(
    name: str, given: int, got: int | None = None, *, dtype: str = "Float", ranks: Sequence[int] = (0, 1)
) -> dict[str, Any]:
    """The arguments of a kernel as torch.profiler writes them."""
    return {
        "Collective name": name,
        "In msg nelems": given,
        "Out msg nelems": given if got is None else got,
        "Group size": len(ranks),
        "dtype": dtype,
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": "3",
        "Process Group Description": "mesh_dp",
        "Process Group Ranks": json.dumps(list(ranks)),
    }


def torch_trace(path: Path, *kernels: tuple[str, int, int, dict[str, Any]], rank: int = 0, world: int = 2) -> Path:
    """A trace of one rank: (name, start, end, arguments) of each kernel, in ns."""
    trace = KinetoBuilder(rank, world)
    for name, start, end, args in kernels:
        trace.kernel(name, start, end, stream=28, launch_ns=start, **args)
    return trace.write(path)


def whole(path: Path, metric: str, **more: Any) -> Any:
    """The rows of a metric over all kernels."""
    return rows(path, metric, convention=KINETO, window="run", **more)


def alike(labels: tuple[Any, ...], value: Value) -> dict[Any, Value]:
    """Rows of bandwidth whose every statistic is this."""
    return {(*labels, statistic): value for statistic in STATISTIC_LABELS}


why_none = partial(why, convention=KINETO, window="run")


# -- what a name stands for, how large a message is


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "AllReduce"),
        ("all_reduce", "AllReduce"),
        ("allreduce_coalesced", "AllReduce"),
        ("_allgather_base", "AllGather"),
        ("all_gather_into_tensor", "AllGather"),
        ("_reduce_scatter_base", "ReduceScatter"),
        ("reduce_scatter_tensor_coalesced", "ReduceScatter"),
        ("all_to_allv", "AllToAll"),
        ("ncclAlltoAll", "AllToAll"),
        ("RaggedAllToAllKernelImpl", "AllToAll"),
        ("send", "SendRecv"),
        ("recv", "SendRecv"),
        ("ncclDevKernel_SendRecv", "SendRecv"),
        ("broadcast", "Broadcast"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", "Broadcast"),
        ("barrier", "Barrier"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "Reduce"),
        ("reduce", "Reduce"),
        ("gather", "Gather"),
        ("scatter", "Scatter"),
        (ALL_REDUCE, "AllReduce"),
        ("ncclSymDevKernel_AllGather_LL", "AllGather"),
        ("void vllm::cross_device_reduce_1stage<float, 2>", "AllReduce"),
        ("all-gather-start.1", "AllGather"),
        ("ncclDevKernel_Generic", "Other"),
        ("deep_ep::intranode::dispatch", "Other"),
    ],
)
def test_every_spelling_has_one_name(name: str, kind: str) -> None:
    assert find_collective_kind(name) == kind
    assert kind in (*COLLECTIVE_KINDS, "Other")


@pytest.mark.parametrize("word", ["all_reduce", "allreduce", "ALLREDUCE", "AllReduce"])
def test_a_selector_may_be_spelt_in_any_way(word: str) -> None:
    assert normalize_kind(word) == "AllReduce"
    assert normalize_kind("All*") == "All*"


@pytest.mark.parametrize(
    ("kind", "size", "factor"),
    [
        ("AllReduce", 4, Fraction(3, 2)),
        ("AllGather", 4, Fraction(3, 4)),
        ("ReduceScatter", 4, Fraction(3, 4)),
        ("AllToAll", 8, Fraction(7, 8)),
        ("SendRecv", 8, 1),
        ("Broadcast", 8, 1),
        ("AllReduce", 1, 0),
        ("AllReduce", 0, None),
        ("AllReduce", None, None),
        ("SendRecv", None, 1),
        ("Barrier", 8, None),
        ("Other", 8, None),
    ],
)
def test_factors_of_the_links(kind: str, size: int | None, factor: Fraction | None) -> None:
    assert find_bus_factor(kind, size) == factor


@pytest.mark.parametrize(
    ("name", "given", "got", "dtype", "size"),
    [
        ("allreduce", 100, 100, "BFloat16", 200),
        ("_allgather_base", 100, 800, "Half", 1_600),
        ("_reduce_scatter_base", 800, 100, "Float", 3_200),
        ("all_to_all", 60, 90, "Float8_e4m3fn", 60),
        ("broadcast", 10, 10, "Long", 80),
        ("send", 5, 0, "Double", 40),
        ("recv", 0, 5, "Double", 40),
        ("ncclDevKernel_SendRecv", 60, 90, "Byte", 90),
        ("ncclDevKernel_SendRecv", 90, 60, "Byte", 90),
        ("allreduce", 5, 5, "Float3_e2m0", None),
        ("_allgather_base", 5, None, "Float", None),
        ("allreduce", None, None, "Float", None),
    ],
)
def test_bytes_of_a_message(name: str, given: int | None, got: int | None, dtype: str, size: int | None) -> None:
    record = Collective(name, in_elements=given, out_elements=got, dtype=dtype)
    assert count_message_bytes(find_collective_kind(name), record) == size


# -- torch.profiler


def test_a_torch_trace_with_known_answers(tmp_path: Path) -> None:
    """Three sums of 4 MB in 1, 2 and 4 ms, and a gather of 1 MB from each of four ranks in 1 ms."""
    path = torch_trace(
        tmp_path / "rank0_trace.json.gz",
        (ALL_REDUCE, 1_000_000, 2_000_000, recorded("allreduce", 1_000_000)),
        (ALL_REDUCE, 2_000_000, 4_000_000, recorded("allreduce", 1_000_000)),
        (ALL_REDUCE, 4_000_000, 8_000_000, recorded("allreduce", 1_000_000)),
        ("ncclDevKernel_AllGather", 9_000_000, 10_000_000, recorded("_allgather_base", 250_000, 10**6, ranks=range(4))),
    )
    sums, gather = (0, "mesh_dp", "AllReduce"), (0, "mesh_dp", "AllGather")
    expected = {
        "collective_count": {gather: 1, sums: 3},
        "collective_bytes": {gather: 4_000_000, sums: 12_000_000},
        "collective_time_ns": {gather: 1_000_000, sums: 7_000_000},
        "busbw": {  # 3/4, and 2(2-1)/2
            **alike(gather, 3),
            (*sums, "median"): 2,
            (*sums, "mean"): Fraction(7, 3),
            (*sums, "min"): 1,
            (*sums, "max"): 4,
        },
        "traffic_share": {gather: Fraction(1, 4), sums: Fraction(3, 4)},
    }
    assert {metric: whole(path, metric) for metric in expected} == expected


SUM, UNKNOWN = (0, "mesh_dp", "AllReduce"), (0, "unknown", "AllReduce")
KNOWN = (ALL_REDUCE, 0, 1_000, recorded("allreduce", 250))
OF_A_TRACE: dict[str, tuple[Sequence[Any], dict[str, Any]]] = {
    "the group tells its size, not the number of files": (
        [(ALL_REDUCE, 0, 1_000, recorded("allreduce", 250, ranks=range(16)))],
        {"busbw": alike(SUM, Fraction(30, 16))},
    ),
    "a group without a description goes by its name": (
        [(ALL_REDUCE, 0, 1_000, recorded("allreduce", 250) | {"Process Group Description": "undefined"})],
        {"busbw": alike((0, "3", "AllReduce"), 1)},
    ),
    "a kernel without a record counts but has no bytes": (
        [KNOWN, (ALL_REDUCE, 2_000, 3_000, {})],
        {
            "collective_count": {SUM: 1, UNKNOWN: 1},
            "collective_time_ns": {SUM: 1_000, UNKNOWN: 1_000},
            "collective_bytes": {SUM: 1_000},
            "busbw": alike(SUM, 1),
        },
    ),
    "one unknown type leaves no sum that is too small": (
        [KNOWN, (ALL_REDUCE, 2_000, 3_000, recorded("allreduce", 250, dtype="Quad"))],
        {"collective_bytes": {}, "busbw": alike(SUM, 1)},
    ),
    **{
        f"odd arguments are no sizes: {odd}": (
            [
                (
                    *KNOWN[:3],
                    recorded("allreduce", 250) | dict.fromkeys(("In msg nelems", "Out msg nelems", "Group size"), odd),
                )
            ],
            {"collective_count": {SUM: 1}, "collective_bytes": {}},
        )
        for odd in ("no number", -5, 2.5, None, [1], 1 << 80)
    },
}


@pytest.mark.parametrize(("kernels", "expected"), OF_A_TRACE.values(), ids=OF_A_TRACE)
def test_what_a_torch_trace_records(tmp_path: Path, kernels: Sequence[Any], expected: dict[str, Any]) -> None:
    path = torch_trace(tmp_path / "a.json", *kernels, world=1)
    assert {metric: whole(path, metric) for metric in expected} == expected


def test_what_a_torch_trace_lacks_is_told(tmp_path: Path) -> None:
    odd = ("ncclDevKernel_Broadcast", 4_000, 5_000, recorded("broadcast", 250, dtype="Float3_\x1b[31m"))
    path = torch_trace(tmp_path / "a.json", KNOWN, (ALL_REDUCE, 2_000, 3_000, {}), odd)
    assert whole(path, "collective_bytes") == {SUM: 1_000}
    said = notes(path, "busbw", convention=KINETO, window="run")
    partly = "rank 0: 50% of the AllReduce kernels have no size on record: bandwidths are of the others alone"
    assert any(each.startswith(f"{partly}; begin the capture before the process groups are made") for each in said)
    assert "rank 0: 1 of 3 communication kernels have no record of their size" in said
    (line,) = (text for text in said if "element type" in text)
    assert line.startswith("rank 0: 1 kernel of element type 'Float3_")
    assert "\x1b" not in line


def test_a_kernel_of_no_length_divides_nothing(tmp_path: Path) -> None:
    path = torch_trace(tmp_path / "a.json", (ALL_REDUCE, 5, 5, recorded("allreduce", 250)), ("gemm", 0, 10, {}))
    assert whole(path, "collective_bytes") == {SUM: 1_000}
    assert why_none(path, "busbw") == "every kernel has a length of 0"


def test_a_window_cuts_the_time_and_not_the_bandwidth(tmp_path: Path) -> None:
    path = torch_trace(tmp_path / "a.json", (ALL_REDUCE, 0, 1_000, recorded("allreduce", 250)))
    cut = {"convention": KINETO, "window": "0:400", "kernels": "clipped"}
    assert rows(path, "collective_time_ns", **cut) == {(0, "mesh_dp", "AllReduce"): 400}  # type: ignore[arg-type]
    assert rows(path, "busbw", **cut) == alike((0, "mesh_dp", "AllReduce"), 1)  # type: ignore[arg-type]


# -- who waits for whom


def of_two(tmp_path: Path, first: Sequence[Any], second: Sequence[Any]) -> Path:
    """A run of two files."""
    torch_trace(tmp_path / "run" / "rank0_trace.json", *first, rank=0)
    torch_trace(tmp_path / "run" / "rank1_trace.json", *second, rank=1)
    return tmp_path / "run"


def test_over_files_the_ends_make_one_clock(tmp_path: Path) -> None:
    """Their clocks are an hour apart, and nothing depends on it."""
    hour, own = 3_600 * 10**9, recorded("allreduce", 250)
    ends, first, second = range(1_000, 11_000, 2_000), (1_000, 500, 500, 500, 500), (400, 700, 500, 500, 500)
    run = of_two(
        tmp_path,
        [(ALL_REDUCE, end - length, end, own) for end, length in zip(ends, first, strict=True)],
        [(ALL_REDUCE, hour + end - length, hour + end, own) for end, length in zip(ends, second, strict=True)],
    )
    zero, one = (0, "mesh_dp", "AllReduce"), (1, "mesh_dp", "AllReduce")
    assert whole(run, "collective_wait_ns") == {zero: 600, one: 200}
    assert whole(run, "collective_transfer_ns") == {zero: 2_400, one: 2_400}


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [(2, 1, "its ranks have from 1 to 2 collectives in their windows"), (1, 0, "it has 2 ranks, of which 1 are here")],
)
def test_a_group_that_cannot_be_matched_has_no_waits(tmp_path: Path, first: int, second: int, why: str) -> None:
    own = recorded("allreduce", 250)
    each = [[(ALL_REDUCE, 2_000 * k, 2_000 * k + 1_000, own) for k in range(n)] for n in (first, second)]
    run = of_two(tmp_path, [*each[0], ("gemm", 0, 1, {})], [*each[1], ("gemm", 0, 1, {})])
    assert why_none(run, "collective_wait_ns") == f"group mesh_dp: {why}"


ALL_GATHER = ALL_REDUCE.replace("AllReduce", "AllGather")


def kinds(letters: str, *starts: int, size: int = 250) -> list[Any]:
    """Collectives of 100 ns in this order: R reduces, G gathers."""
    named = {"R": (ALL_REDUCE, "allreduce"), "G": (ALL_GATHER, "allgather")}
    return [
        (named[letter][0], at, at + 100 * (k + 1), recorded(named[letter][1], size))
        for k, (letter, at) in enumerate(zip(letters, starts, strict=True))
    ]


def test_collectives_of_several_kinds_are_matched_in_the_order_in_which_they_ran(tmp_path: Path) -> None:
    """The n-th of a group is the n-th of all its kinds, however a file lists them."""
    some = kinds("RGRGG", *range(0, 5_000, 1_000))
    run = of_two(tmp_path, some, some[::-1])
    reduce, gather = "AllReduce", "AllGather"
    assert whole(run, "collective_wait_ns") == {
        (rank, "mesh_dp", kind): 0 for rank in (0, 1) for kind in (reduce, gather)
    }
    assert whole(run, "collective_transfer_ns")[1, "mesh_dp", reduce] == 100 + 300


def test_the_straggler_is_the_rank_with_the_largest_lag_of_its_group_and_kind() -> None:
    lags = {
        (0, "dp", "R"): 5,
        (1, "dp", "R"): 7,
        (2, "dp", "R"): 7,
        (0, "dp", "G"): 9,
        (1, "dp", "G"): 3,
        (0, "tp", "R"): 0,
    }
    known = {key: WaitShare() for key in lags}
    assert list(find_stragglers(MatchedWaits(known, lags))) == [(("dp", "G"), 0, 9), (("dp", "R"), 1, 7)]
    unsure = known | {(0, "dp", "G"): WaitShare(error_ns=10), (1, "dp", "R"): WaitShare(error_ns=8)}
    assert list(find_stragglers(MatchedWaits(unsure, lags))) == [(("dp", "G"), 1, 3), (("dp", "R"), 2, 7)]


def one(kind: str = "AllReduce", *, at: int = 0, end: int = 10, size: int | None = 2, **more: Any) -> Transfer:
    """A collective of a group of two, of 8 bytes."""
    record = Collective(kind, **{"group": "dp", "members": "0,1", "group_size": size} | more)
    return Transfer(0, at, end, end - at, kind, record, 8)


def grouped(monkeypatch: pytest.MonkeyPatch, *windows: Sequence[Transfer]) -> Any:
    """The groups of ranks whose windows hold these."""
    monkeypatch.setattr(collectives, "list_recorded_transfers", iter)
    return _group_by_members(cast(Any, dict(enumerate(windows))))


def test_collectives_of_a_group_stand_by_start_then_end_then_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a trace lists them: the n-th of one rank is held against the n-th of another."""
    ordered = [one(end=5), one("AllGather", end=9), one("AllReduce", end=9), one(at=3, end=4), one("AllGather", at=8)]
    assert grouped(monkeypatch, ordered, ordered[::-1]) == {"0,1": {0: ordered, 1: ordered}}


def test_unknown_groups_and_exchanges_of_more_than_two_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair, four = one("SendRecv"), one("SendRecv", size=4, members="0,1,2,3")
    reduced = one(size=4, members="0,1,2,3")
    odd = [one(members=None), one(group=None), one("SendRecv", size=None)]
    assert grouped(monkeypatch, [*odd, four, reduced, pair]) == {"0,1": {0: [pair]}, "0,1,2,3": {0: [reduced]}}


DIFFERENT = "its ranks have different collectives in their windows"


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ([[one()], [one()]], None),
        ([[one(size=None)], [one(size=None)]], "its size is not recorded"),
        ([[one(size=3)], [one(size=3)]], "it has 3 ranks, of which 2 are here"),
        ([[one(size=1)], [one(size=1)]], "it has 1 ranks, of which 2 are here"),
        ([[one(size=4)], [one(size=3), one(size=None)]], "it has 3, 4 ranks, of which 2 are here"),
        ([[one(size=3)] * n for n in (2, 1, 3)], "its ranks have from 1 to 3 collectives in their windows"),
        ([[one("AllGather")], [one("AllReduce")]], DIFFERENT),
        ([[one(), one("AllGather")], [one("AllGather"), one()]], DIFFERENT),
    ],
)
def test_only_what_all_ranks_of_a_group_have_is_matched(ranks: Sequence[Sequence[Transfer]], why: str | None) -> None:
    with pytest.raises(ValueError, match=f"^{why}$") if why else nullcontext():
        _check_same_collectives(dict(enumerate(ranks)))


def test_sizes_are_held_against_each_other_where_every_rank_records_the_same() -> None:
    for kind in COLLECTIVE_KINDS:
        ranks = {0: [one(kind)], 1: [replace(one(kind), bytes=9)]}
        with pytest.raises(ValueError, match="different") if kind in SYMMETRIC_KINDS else nullcontext():
            _check_same_collectives(ranks)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6))
def test_a_rank_waits_while_it_runs_and_the_last_one_has_not_begun(spans: list[tuple[int, int]]) -> None:
    """Ns by ns."""
    last = max(start for start, _ in spans)
    expected = [sum(t < last for t in range(start, start + length)) for start, length in spans]
    assert _measure_waits([start for start, _ in spans], [length for _, length in spans]) == expected


# -- nsys


def nsys_trace(
    path: Path,
    edit: Callable[[NcclRanges, Process], object],
    *,
    init: bool = True,
    ranks: int = 1,
    schema: str = "3.25",
) -> Path:
    """A trace of some processes, each made by ``edit``."""
    trace = TraceBuilder(schema_of(schema))
    nccl = NcclRanges(trace)
    for rank in range(ranks):
        process = trace.process(pid=100 + rank, device=rank)
        if init:
            nccl.communicator(process, COMM, ranks=2, rank=rank)
        edit(nccl, process)
    return trace.write(path)


def call_and_kernel(nccl: NcclRanges, process: Process, call: str, size: int, at: int = 1_000) -> None:
    """A call, and its kernel of 1 us."""
    nccl.call(process, call, at, at + 500, COMM, size)
    process.kernel("ncclDevKernel_" + call.removeprefix("nccl"), at + 1_000, at + 2_000, launch_ns=at + 200)


@pytest.mark.parametrize(
    ("call", "kind", "size", "bandwidth"),
    [
        ("ncclAllReduce", "AllReduce", 4_000, 4),
        ("ncclAllGather", "AllGather", 8_000, 4),  # NCCL tells the part of one rank
        ("ncclReduceScatter", "ReduceScatter", 8_000, 4),
        ("ncclAlltoAll", "AllToAll", 8_000, 4),
        ("ncclBroadcast", "Broadcast", 4_000, 4),
    ],
)
def test_payloads_of_nccl(tmp_path: Path, call: str, kind: str, size: int, bandwidth: int) -> None:
    path = nsys_trace(tmp_path / "a.sqlite", lambda n, p: call_and_kernel(n, p, call, 4_000))
    assert whole(path, "collective_bytes") == {(0, "comm0", kind): size}
    assert whole(path, "busbw") == alike((0, "comm0", kind), bandwidth)


def exchange(nccl: NcclRanges, process: Process, peers: Sequence[int], thread: int | None = None) -> None:
    """Sends and receives of 1 000 bytes in a group, and the one kernel that it launches."""
    nccl.plain(process, "ncclGroupStart", 5_000, 5_010, thread=thread)
    for k, peer in enumerate(peers):
        at = 5_100 + 100 * k
        nccl.call(process, "ncclSend", at, at + 20, COMM, 1_000, peer=peer, thread=thread)
        nccl.call(process, "ncclRecv", at + 30, at + 50, COMM, 1_000, peer=peer, thread=thread)
    nccl.plain(process, "ncclGroupEnd", 6_000, 6_500, thread=thread)
    process.kernel("ncclDevKernel_SendRecv", 7_000, 8_000, launch_ns=6_200, thread=thread)


def of_two_threads(nccl: NcclRanges, process: Process) -> None:
    exchange(nccl, process, [1], thread=55)
    nccl.call(process, "ncclAllReduce", 4_900, 6_900, COMM, 64)  # around all of it, on the main thread
    process.kernel("ncclDevKernel_AllReduce", 9_000, 9_500, launch_ns=6_600)


def in_torch(nccl: NcclRanges, process: Process) -> None:
    process.range("nccl:all_reduce", 900, 2_000)
    call_and_kernel(nccl, process, "ncclAllReduce", 4_000)


def two_kernels(nccl: NcclRanges, process: Process) -> None:
    nccl.plain(process, "ncclGroupStart", 5_000, 5_010)
    nccl.call(process, "ncclAllReduce", 5_100, 5_120, COMM, 1_000)
    nccl.call(process, "ncclAllReduce", 5_200, 5_220, COMM, 3_000)
    nccl.plain(process, "ncclGroupEnd", 6_000, 6_500)
    process.kernel("ncclDevKernel_AllReduce", 7_000, 8_000, launch_ns=6_100)
    process.kernel("ncclDevKernel_AllReduce", 8_000, 9_000, launch_ns=6_200)


OF_NCCL = (0, "comm0", "AllReduce")
OF_CALLS: dict[str, tuple[Callable[[NcclRanges, Process], object], dict[str, Any]]] = {
    "a group of calls launches at its end": (
        lambda nccl, process: exchange(nccl, process, [1]),
        {"collective_bytes": {(0, "comm0", "SendRecv"): 1_000}, "busbw": alike((0, "comm0", "SendRecv"), 1)},
    ),
    "an exchange with all ranks is an AllToAll": (
        lambda nccl, process: exchange(nccl, process, [0, 1]),
        {"collective_bytes": {(0, "comm0", "AllToAll"): 2_000}, "busbw": alike((0, "comm0", "AllToAll"), 1)},
    ),
    "calls of two threads are kept apart": (
        of_two_threads,
        {"collective_bytes": {OF_NCCL: 64, (0, "comm0", "SendRecv"): 1_000}},
    ),
    "ranges of torch around a call are not the call": (in_torch, {"collective_bytes": {OF_NCCL: 4_000}}),
    "two kernels of a group have a call each": (
        two_kernels,
        {"busbw": alike(OF_NCCL, 2) | {(*OF_NCCL, "min"): 1, (*OF_NCCL, "max"): 3}},
    ),
}


@pytest.mark.parametrize(("edit", "expected"), OF_CALLS.values(), ids=OF_CALLS)
def test_calls_and_their_kernels(
    tmp_path: Path, edit: Callable[[NcclRanges, Process], object], expected: dict[str, Any]
) -> None:
    path = nsys_trace(tmp_path / "a.sqlite", edit)
    assert {metric: whole(path, metric) for metric in expected} == expected


def test_what_a_communicator_of_unknown_size_lacks(tmp_path: Path) -> None:
    path = nsys_trace(tmp_path / "a.sqlite", lambda n, p: call_and_kernel(n, p, "ncclAllReduce", 4_000), init=False)
    assert why_none(path, "busbw") == "1 kernel of a group whose size is not recorded: it was made before the capture"
    path = nsys_trace(tmp_path / "b.sqlite", lambda n, p: call_and_kernel(n, p, "ncclAllGather", 4_000), init=False)
    assert why_none(path, "collective_bytes") == "1 kernel with only a part of the message's size recorded"


@pytest.mark.parametrize("end", [3_000, 3_500])
def test_on_one_clock_a_rank_waits_for_the_last_start_however_long_that_one_runs(tmp_path: Path, end: int) -> None:
    spans = iter([(2_000, 3_000), (2_300, end)])

    def edit(nccl: NcclRanges, process: Process) -> None:
        nccl.call(process, "ncclAllReduce", 1_000, 1_500, COMM, 64)
        process.kernel("ncclDevKernel_AllReduce", *next(spans), launch_ns=1_200)

    path = nsys_trace(tmp_path / "a.sqlite", edit, ranks=2)
    zero, one = (0, "comm0", "AllReduce"), (1, "comm0", "AllReduce")
    assert whole(path, "collective_wait_ns") == {zero: 300, one: 0}
    assert whole(path, "collective_transfer_ns") == {zero: 700, one: end - 2_300}


def test_a_wait_goes_by_the_name_that_its_rank_has_for_the_communicator(tmp_path: Path) -> None:
    """Communicators are named by their order in a process, and rank 1 made another one before."""
    trace = TraceBuilder()
    nccl = NcclRanges(trace)
    for rank, ids in enumerate(((COMM,), (9, COMM))):
        process = trace.process(pid=100 + rank, device=rank)
        for communicator in ids:
            nccl.communicator(process, communicator, ranks=2, rank=rank)
        nccl.call(process, "ncclAllReduce", 1_000, 1_500, COMM, 64)
        process.kernel("ncclDevKernel_AllReduce", 2_000 + 300 * rank, 3_000, launch_ns=1_200)
    path = trace.write(tmp_path / "a.sqlite")
    zero, one = (0, "comm0", "AllReduce"), (1, "comm1", "AllReduce")
    assert whole(path, "collective_bytes") == {zero: 64, one: 64}
    assert whole(path, "collective_wait_ns") == {zero: 300, one: 0}


def test_two_machines_in_one_file_are_two_clocks(tmp_path: Path) -> None:
    """Their kernels do not even overlap; the one that is longer at equal ends waited."""
    trace = TraceBuilder()
    nccl = NcclRanges(trace)
    for rank, at in enumerate((2_000, 500_000)):
        process = trace.process(pid=100, hardware_id=1 + rank)
        nccl.communicator(process, COMM, ranks=2, rank=rank)
        for k in range(5):
            nccl.call(process, "ncclAllReduce", 1_000 + 10 * k, 1_008 + 10 * k, COMM, 64)
            start, end = at + 2_000 * k + 400 * rank, at + 2_000 * k + 1_000
            process.kernel("ncclDevKernel_AllReduce", start, end, launch_ns=1_002 + 10 * k)
    path = trace.write(tmp_path / "a.sqlite")
    zero, one = (0, "comm0", "AllReduce"), (1, "comm0", "AllReduce")
    assert whole(path, "collective_wait_ns") == {zero: 2_000, one: 0}


@pytest.mark.parametrize("late_ns", [0, 50_000])
def test_two_reports_of_nsys_from_two_hosts(tmp_path: Path, late_ns: int) -> None:
    """Rank 3 is late to each of eight sums, or no rank is; the host of ranks 2 and 3 ends each at odds by some us."""
    (tmp_path / "run").mkdir()
    for host in range(2):
        trace = TraceBuilder()
        trace.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_767_355_200_000_000_000 - 10_000_000 * host)
        nccl = NcclRanges(trace)
        for rank in (2 * host, 2 * host + 1):
            process = trace.process(pid=100 + rank, device=rank % 2)
            nccl.communicator(process, COMM, ranks=4, rank=rank)
            for k in range(8):
                at = 1_000_000 * k + 10_000_000 * host
                nccl.call(process, "ncclAllReduce", at + 100, at + 200, COMM, 64)
                start, end = at + 400_000 + late_ns * (rank == 3), at + 600_000 + 1_000 * host * (k % 3 - 1)
                process.kernel("ncclDevKernel_AllReduce", start, end, launch_ns=at + 150)
        trace.write(tmp_path / "run" / f"host{host}.sqlite")
    waits = whole(tmp_path / "run", "collective_wait_ns")
    assert waits == {(rank, "comm0", "AllReduce"): 8 * late_ns for rank in range(3) if late_ns}
    said = notes(tmp_path / "run", "collective_wait_ns", convention=KINETO, window="run")
    assert "group comm0: waits are accurate to 1 us per collective, by 8 matched ends on 2 clocks" in said


def test_without_payloads_there_are_counts_and_a_reason(tmp_path: Path) -> None:
    path = nsys_trace(tmp_path / "a.sqlite", lambda n, p: call_and_kernel(n, p, "ncclAllReduce", 4_000))
    execute(path, "UPDATE NVTX_EVENTS SET binaryData = NULL")
    assert whole(path, "collective_count") == {(0, "unknown", "AllReduce"): 1}
    assert "--include-blobs=true" in why_none(path, "busbw")


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\0" * 31,
        struct.pack("<QQQQ", NCCL_DOMAIN, FIRST_SCHEMA + 4, 1 << 60, 32),
        struct.pack("<QQQQ", NCCL_DOMAIN, 99, 16, 32) + b"\1" * 16,
        struct.pack("<QQQQ", NCCL_DOMAIN, FIRST_SCHEMA + 4, 4, 32) + b"\1" * 4,
    ],
    ids=["empty", "short", "cut", "of no schema", "smaller than its schema"],
)
def test_a_payload_that_no_schema_fits_says_nothing(tmp_path: Path, blob: bytes) -> None:
    path = nsys_trace(tmp_path / "a.sqlite", lambda n, p: call_and_kernel(n, p, "ncclAllReduce", 4_000))
    execute(path, f"UPDATE NVTX_EVENTS SET binaryData = X'{blob.hex()}' WHERE start > 0")
    assert whole(path, "collective_bytes") == {}
    assert whole(path, "collective_count") == {(0, "unknown", "AllReduce"): 1}


def test_a_schema_of_two_meanings_is_not_used(tmp_path: Path) -> None:
    path = nsys_trace(tmp_path / "a.sqlite", lambda n, p: call_and_kernel(n, p, "ncclAllReduce", 4_000))
    columns = "domainId, schemaId, idx, type, name, offset"
    values = f"{NCCL_DOMAIN}, {FIRST_SCHEMA + 4}, 1, 22, 'Message size [bytes]', 0"
    execute(path, f"INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES ({columns}) VALUES ({values})")
    assert whole(path, "collective_bytes") == {}


def test_tables_of_decoded_payloads_are_read(tmp_path: Path) -> None:
    """As nsys 2026.4 writes them with --dynamic-tables=all."""
    path = nsys_trace(tmp_path / "a.sqlite", lambda n, p: call_and_kernel(n, p, "ncclAllGather", 4_000), schema="3.28")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE NVTX_EVENTS SET eventId = rowid, binaryData = NULL")
        for schema, columns in (
            (INIT, {"NCCL_communicator_ID": COMM - (1 << 64), "No__of_ranks": 2, "Rank": 0}),
            (FIRST_SCHEMA + 4, {"NCCL_communicator_ID": COMM - (1 << 64), "Message_size__bytes_": 4_000}),
        ):
            table, names = f"DYNAMIC_NVTXPAYLOAD_DATATYPE_1_{NCCL_DOMAIN}_{schema}", ", ".join(columns)
            database.execute(f"CREATE TABLE {table} (eventId INTEGER, {names})")
            where = "start < 0" if schema == INIT else "start > 0"
            values = ", ".join(map(str, columns.values()))
            database.execute(f"INSERT INTO {table} SELECT eventId, {values} FROM NVTX_EVENTS WHERE {where}")
    database.close()
    assert whole(path, "collective_bytes") == {(0, "comm0", "AllGather"): 8_000}
    assert whole(path, "busbw") == alike((0, "comm0", "AllGather"), 4)


@needs_pyarrow
def test_payloads_in_parquet(tmp_path: Path) -> None:
    """nsys declares these bytes as text, which no reader of text takes."""
    path = nsys_trace(tmp_path / "a.sqlite", lambda n, p: call_and_kernel(n, p, "ncclAllReduce", 4_000))
    folder = to_parquet(path, tmp_path / "a_pqtdir")
    assert whole(folder, "collective_bytes") == {(0, "comm0", "AllReduce"): 4_000}


def test_jax_has_counts_and_says_why_no_more(tmp_path: Path) -> None:
    trace = JaxBuilder()
    trace.kernel("ncclDevKernel_AllGather_RING_LL", 1_000, 2_000)
    path = trace.write(tmp_path / "host.trace.json.gz")
    jax = BUILT_IN_CONVENTIONS["jax"]
    assert rows(path, "collective_count", convention=jax, window="run") == {(0, "unknown", "AllGather"): 1}
    said = notes(path, "busbw", convention=jax, window="run")
    assert [text for text in said if "a trace of JAX has no record of the sizes of collectives" in text]


# -- the command, and the gate


def run_of_two(project: Project) -> None:
    """Rank 1 comes late to the last of five sums."""
    own = recorded("allreduce", 250_000)
    first = [(ALL_REDUCE, at, at + 1_000_000, own) for at in range(0, 8_000_000, 2_000_000)]
    of_two(
        project.root,
        [*first, (ALL_REDUCE, 8_000_000, 10_000_000, own)],
        [*first, (ALL_REDUCE, 9_000_000, 10_000_000, own)],
    )


def test_the_command(project: Project) -> None:
    run_of_two(project)
    said = project.command("--view=collectives", "run", "--peak=2GB/s", code=0)
    first, below = (line.split() for line in said.splitlines() if line.lstrip().startswith("0  mesh_dp  AllReduce"))
    assert [*first, *below[3:]] == [
        *("0", "mesh_dp", "AllReduce", "2", "5", "5", "MB", "6", "ms"),
        *("0.9", "1", "0.5", "1", "100%", "1", "ms", "5", "ms", "50%"),
    ]
    assert max(map(len, said.partition("\n\n")[0].splitlines())) <= 100
    assert "straggler of mesh_dp AllReduce: rank 1 waits 1 ms less than the longest" in said
    assert "no utilisation" not in said


@pytest.mark.parametrize("dtype", ["Float", "Quad"])
def test_shares_of_the_command(project: Project, dtype: str) -> None:
    """Where one size is unknown there are none: of the rest each would be too large."""
    kernels = (
        (ALL_REDUCE, 0, 1_000, recorded("allreduce", 250)),
        ("ncclDevKernel_AllGather", 2_000, 3_000, recorded("_allgather_base", 250, 500)),
        ("ncclDevKernel_AllGather", 4_000, 5_000, recorded("_allgather_base", 250, 500, dtype=dtype)),
        ("ncclDevKernel_ReduceScatter", 6_000, 7_000, recorded("_reduce_scatter_base", 750, 375)),
    )
    path = torch_trace(project.root / "a.json", *kernels)
    project.command("--view=collectives", path, "--format=json", code=0)
    shares = {row["collective"]: row["traffic_share"] for row in json.loads(project.result.stdout.str())["rows"]}
    if dtype == "Quad":
        assert set(shares.values()) == {None}
        assert "1 kernel of element type 'Quad', whose size is not known" in project.result.stdout.str()
    else:
        assert shares == {"AllGather": 0.5, "AllReduce": 0.125, "ReduceScatter": 0.375}


def test_the_command_for_programs(project: Project) -> None:
    run_of_two(project)
    project.command("--view=collectives", "run", "--rank=1", "--format=json", code=0)
    found = json.loads(project.result.stdout.str())
    (row,) = found["rows"]
    assert row == {
        "rank": 1,
        "group": "mesh_dp",
        "collective": "AllReduce",
        "group_size": 2,
        "count": 5,
        "bytes": 5_000_000,
        "time_ns": 5_000_000,
        **dict.fromkeys(("busbw_mean", "busbw", "busbw_min", "busbw_max"), 1),
        "traffic_share": 1.0,
        "wait_ns": 0,
        "transfer_ns": 5_000_000,
        "utilisation": None,
    }
    assert found["stragglers"] == [{"group": "mesh_dp", "collective": "AllReduce", "rank": 1, "lag_ns": 1_000_000}]
    assert found["residuals"] == [{"group": "mesh_dp", "clocks": 2, "ends": 5, "residual_ns": 0}]
    assert any("no utilisation" in line for line in found["notes"])


def test_the_command_says_what_the_trace_cannot(project: Project) -> None:
    torch_trace(project.root / "a.json", (ALL_REDUCE, 0, 1_000, {}))
    said = project.command("--view=collectives", "a.json", code=0)
    assert said.count("no bytes, bandwidths and waits: the kernels have no argument 'Collective name'") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["--peak=400"], 2, "--peak is a bandwidth, as in 400GB/s, not '400'"),
        (["--peak=0GB/s"], 2, "--peak is a bandwidth"),
        (["--peak=fast"], 2, "--peak: 'fast' is not a number"),
        (["--rank=7"], 2, "there is no rank 7: the ranks are 0, 1"),
        (["--window=steady"], 2, "--window steady is many windows"),
        ([""], 2, "the path of a trace is empty"),
    ],
)
def test_mistakes_of_the_command(tmp_path: Path, arguments: list[str], code: int, what: str) -> None:
    own = (ALL_REDUCE, 0, 1_000, recorded("allreduce", 250))
    done = run("--view=collectives", of_two(tmp_path, [own], [own]), *arguments)
    assert (done.exit_code, what in done.output) == (code, True), done.output


def test_a_run_that_does_not_communicate(tmp_path: Path) -> None:
    path = torch_trace(tmp_path / "a.json", ("gemm", 0, 1_000, {}))
    assert "a.json: no communication kernel in the window" in run("--view=collectives", path, code=3).output


def test_a_sentence_selects_a_collective_however_it_is_spelt(project: Project) -> None:
    run_of_two(project)
    project.gate(
        """\
        convention: kineto
        trace: run
        window: run
        assertions:
          - AllReduce busbw >= 0.75GB/s
          - group mesh_dp all_reduce min busbw >= 0.5GB/s
          - rank 0 AllReduce collective_bytes <= 5MB
          - {assert: busbw >= 1GB/s, where: {collective: [allreduce], statistic: max}}
          - min busbw >= 1.02GB/s
          - AllGather busbw >= 1GB/s
        """
    )
    cases = project.cases(code=1)
    assert [case.state for case in cases.values()] == ["passed"] * 4 + ["failure"] * 2
    *_, few, none = cases.values()
    assert "1.02" in few.text
    assert "no row has collective AllGather; collectives with a row: AllReduce" in none.text


@pytest.mark.parametrize("window", ["run", "steady"])
def test_a_failed_sentence_leads_to_the_command(project: Project, window: str) -> None:
    for rank in (0, 1):
        trace = KinetoBuilder(rank, 2)
        for k in range(5):
            begin = 10_000_000 * k
            trace.range(f"ProfilerStep#{k}", begin, begin + 9_000_000)
            trace.kernel(ALL_REDUCE, begin + 10, begin + 1_000_010, launch_ns=begin, **recorded("allreduce", 250_000))
        trace.write(project.root / "run" / f"rank{rank}.json")
    project.gate(
        f"convention: kineto\ntrace: run\nwindow: {window}\nworkload: {{peak: 2.5GB/s}}\n"
        "assertions: [busbw >= 1.25GB/s]"
    )
    step = next(line for line in project.pytest(code=1).splitlines() if "next:" in line)
    words = shlex.split(step.split("pytest-nsys ")[1])
    assert words[:4] == ["show", "run", "--view", "collectives"]
    assert "40%" in project.command(*words, code=0)


def four_ranks(project: Project, name: str, late_us: int) -> None:
    """A file for each of four ranks, hours apart: rank 3 computes longer, and the others wait in their AllReduce."""
    for rank in range(4):
        own = late_us if rank == 3 else 0
        trace = KinetoBuilder(rank, 4)
        for k in range(5):
            begin = (10_000_000 + 1_000 * late_us) * k + 3_600 * 10**9 * rank
            trace.range(f"ProfilerStep#{k}", begin, begin + 9_000_000)
            trace.kernel("gemm", begin + 100_000 + rank, begin + 600_000 + 1_000 * own, stream=7, launch_ns=begin)
            start, end = begin + 700_000 + 1_000 * own, begin + 1_000_000 + 1_000 * late_us
            args = recorded("allreduce", 250_000, ranks=(0, 1, 2, 3))
            trace.kernel(ALL_REDUCE, start, end, stream=28, launch_ns=begin, **args)
        trace.write(project.root / name / f"rank{rank}.json")


@pytest.mark.parametrize(("metric", "against"), [("wall_exposed_ns", False), ("window_ns", True)])
def test_a_straggler_over_files_is_named_and_next_leads_to_it(project: Project, metric: str, against: bool) -> None:
    four_ranks(project, "base", 0)
    four_ranks(project, "head", 400)
    project.gate(f"convention: kineto\ntrace: base\nassertions: [rank 0 {metric} <= baseline + 1%]")
    project.refresh()
    said = project.pytest("-v", "--nsys-trace=head", *(["--nsys-against=base"] if against else []), code=1)
    assert "+400 us  AllReduce waits for rank 3: 300 → 700 us" in said
    why, _, parts = said.partition("why:")[2].partition("window:")[0].partition("in parts:")
    assert "rank 3: gemm 80% longer (500 → 900 us); rank 0 waits in AllReduce for it" in why
    assert "longer" not in parts
    step = next(line for line in said.splitlines() if "next:" in line)
    words = shlex.split(step.split("pytest-nsys ")[1])
    assert words[-4:] == ["--view", "kernels", "--rank", "3"]
    (gemm,) = [line for line in project.command(*words, code=0).splitlines() if line.lstrip().startswith("gemm  ")][:1]
    assert "  900 us  600 us  " in gemm  # on rank 3, and on the mean of the ranks
    told = project.command("head", "--view=collectives", code=0)
    assert "straggler of mesh_dp AllReduce: rank 3 waits 400 us less than the longest" in told


# -- real traces


@pytest.mark.reference
def test_sums_of_a_real_trace() -> None:
    """Against a sum over the file's events that shares no code with the reader."""
    path = REAL / "hta_nccl_data.json.gz"
    sizes = {"Float": 4, "Long": 8}
    expected: dict[str, list[Decimal]] = {}
    with gzip.open(path) as file:
        for event in json.load(file, parse_float=Decimal)["traceEvents"]:
            args = event.get("args", {})
            if event.get("cat") == "kernel" and "Collective name" in args:
                sums = expected.setdefault(args["Collective name"], [Decimal(0)] * 3)
                size = args["In msg nelems"] * sizes[args["dtype"]]
                sums[0] += 1
                sums[1] += size
                sums[2] += event["dur"] * 1000
    assert {"allreduce", "broadcast"} == set(expected)
    for i, metric in enumerate(("collective_count", "collective_bytes", "collective_time_ns")):
        found = whole(path, metric)
        assert found == {
            (0, "default_pg", "AllReduce"): expected["allreduce"][i],
            (0, "default_pg", "Broadcast"): expected["broadcast"][i],
        }


@pytest.mark.reference
def test_real_traces_without_sizes_have_counts_and_times() -> None:
    for rank in (0, 1):
        name = f"hta_sampled_rank-{rank}.json.gz"
        assert whole(REAL / name, "collective_count") == {(rank, "unknown", "SendRecv"): 10}
        assert whole(REAL / name, "busbw") == {}
