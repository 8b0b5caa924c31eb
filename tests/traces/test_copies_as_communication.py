"""Copies under a convention with ``copies:``: do they count as kernels that communicate do, in every format?"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.captures.parallel import TraceJob, query_all, read_trace_job
from pytest_nsys.analysis.metrics.registry import METRICS, MetricRequest
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, COPY_NAMES, Convention, CopyKind
from pytest_nsys.core.errors import NothingMeasured, NsysError, TraceError
from pytest_nsys.core.families import FAMILIES, OTHER_FAMILY, Family, make_classifier
from pytest_nsys.core.model import KernelsMode
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.chrome.kineto_metadata import parse_copy_kind
from pytest_nsys.traces.copies_as_kernels import add_copies
from pytest_nsys.traces.recorded_trace import RecordedTrace
from pytest_nsys.traces.trace_files import open_trace
from tests.support.commands import name_of_cut
from tests.support.gates import MS, Project
from tests.support.measure import captures, rows
from tests.support.one_process import OneProcess
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import Format, write_one
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.nccl import NcclRanges
from tests.support.samples.odd_rows import raw
from tests.support.sql import execute

PLAIN = replace(BUILT_IN_CONVENTIONS["generic"], anchor="step%")
PEER = replace(PLAIN, copies=(CopyKind.PEER,))
COLLECTIVE = replace(PLAIN, copies=(CopyKind.COLLECTIVE,))

TO_PEER, TO_DEVICE, TO_HOST, WITHIN = "PtoP", "HtoD", "DtoH", "DtoD"
CUPTI = {TO_DEVICE: 1, TO_HOST: 2, WITHIN: 8, TO_PEER: 10}
XPROF = {TO_DEVICE: "MemcpyH2D", TO_HOST: "MemcpyD2H", WITHIN: "MemcpyD2D", TO_PEER: "MemcpyP2P"}
KINDS = {
    TO_DEVICE: CopyKind.HOST_TO_DEVICE,
    TO_HOST: CopyKind.DEVICE_TO_HOST,
    WITHIN: CopyKind.DEVICE_TO_DEVICE,
    TO_PEER: CopyKind.PEER,
}


class Copied(NamedTuple):
    """One copy of a test; ``launch_ns`` None: nothing says what launched it."""

    kind: str
    start_ns: int
    end_ns: int
    stream: int = 28
    launch_ns: int | None = 500


Ranges = tuple[tuple[str, int, int], ...]
STEP: Ranges = (("step", 0, 10_000),)


def put_copy(gpu: Any, kind: str, start: int, end: int, stream: int, launch: int | None) -> None:
    """A copy as each profiler writes it, whatever its kind, with or without a call."""
    if isinstance(gpu, JaxBuilder):
        details: Any = {"memcpy_details": "kind_src:device kind_dst:device size:4 dest:1 async:1"}
        gpu.kernel(XPROF[kind], start, end, stream=stream, launch_ns=launch, launch=launch is not None, **details)
    elif launch is not None:
        gpu.memcpy(start, end, kind=CUPTI[kind], stream=stream, launch_ns=launch)
    elif isinstance(gpu, KinetoBuilder):
        place = {"device": 0, "context": 1, "stream": stream, "correlation": 999}
        gpu.event("gpu_memcpy", f"Memcpy {kind} (Device -> Device)", start, end, pid=0, tid=stream, args=place)
    else:
        place = {"deviceId": 0, "contextId": 1, "streamId": stream, "correlationId": 999}
        raw(gpu, "CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, bytes=4, copyKind=CUPTI[kind], **place)


def write(format: Format, path: Path, copies: list[Copied], ranges: Ranges = STEP) -> Path:
    def put(gpu: Any) -> None:
        for name, start, end in ranges:
            gpu.range(name, start, end)
        gpu.kernel("gemm", 1_000, 3_000, stream=7, launch_ns=400)
        for copy in copies:
            put_copy(gpu, *copy)

    return write_one(path, format, put)


Write = Callable[[Path, list[Copied]], Path]
nsys, kineto, jax = (partial(write, format) for format in (Format.NSYS, Format.KINETO, Format.JAX))
in_every_format = pytest.mark.parametrize("write", [nsys, kineto, jax], ids=["nsys", "kineto", "jax"])


# -- where they run


@in_every_format
def test_on_a_stream_of_their_own_and_beside_compute(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, [Copied(TO_PEER, 2_000, 5_000), Copied(TO_DEVICE, 6_000, 7_000)])
    assert rows(path, "exposed_ns", convention=PLAIN) == {}
    for mode in KernelsMode:
        asked = {"convention": PEER, "kernels": mode}
        assert rows(path, "comm_ns", **asked) == {(0, "none"): 3_000}  # type: ignore[arg-type]
        assert rows(path, "exposed_ns", **asked) == {(0, "none"): 2_000}  # type: ignore[arg-type]
        assert rows(path, "compute_ns", **asked) == {0: 2_000}  # type: ignore[arg-type]
        assert rows(path, "barrier_ns", **asked) == {0: 0}  # type: ignore[arg-type]
        assert rows(path, "launches", **asked) == {(0, "none"): 2}  # type: ignore[arg-type]
        assert rows(path, "comm_streams", **asked) == {  # type: ignore[arg-type]
            (0, "mixed"): 0,
            (0, "unknown"): 1,
        }
    both = replace(PEER, copies=(CopyKind.PEER, CopyKind.HOST_TO_DEVICE))
    assert rows(path, "comm_ns", convention=both) == {(0, "none"): 4_000}


@in_every_format
def test_on_the_stream_of_compute_they_are_barriers(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, [Copied(TO_PEER, 3_000, 5_000, stream=7)])
    assert rows(path, "barrier_ns", convention=PEER) == {0: 2_000}
    assert rows(path, "exposed_ns", convention=PEER) == {}
    assert rows(path, "busy_ns", convention=PEER) == {0: 4_000}


@in_every_format
def test_without_a_launch_they_are_where_they_ran(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, [Copied(TO_PEER, 4_000, 5_000, launch_ns=None), Copied(TO_PEER, 8_000, 8_500)])
    assert rows(path, "comm_ns", convention=PEER, kernels="contained") == {(0, "none"): 1_500}
    assert rows(path, "comm_ns", convention=PEER, kernels="launched") == {(0, "none"): 500}
    with captures(path, convention=PEER) as opened:
        notes = opened.list_notes(opened.make_spec("median", None, KernelsMode.LAUNCHED), METRICS["launches"])
    assert any(
        "1 of 3 kernels around the windows, 28.6% of their time, has no launch on record" in note.text for note in notes
    )


def test_devices_and_contexts_of_one_labelled_process(gpu: OneProcess) -> None:
    gpu.range("rank=0; pp=0/1 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", 1, 2)
    gpu.range("step", 10, 10_000)
    for device in (0, 1):
        gpu.kernel("gemm", 1_000, 2_000, device=device, launch_ns=400)
        gpu.memcpy(3_000, 3_100 + device, kind=10, device=device, context=1, launch_ns=500)
        gpu.memcpy(4_000, 4_010 + device, kind=10, device=device, context=2, launch_ns=500)
    labelled = replace(BUILT_IN_CONVENTIONS["pithtrain"], anchor="step%", copies=(CopyKind.PEER,))
    assert rows(gpu, "barrier_ns", convention=labelled) == {0: 201}
    assert rows(gpu, "comm_ns", convention=labelled) == {(0, "none"): 21}


def test_processes_and_devices_without_labels_keep_to_themselves(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid, devices in ((100, (0, 1)), (200, (0,))):
        gpu = trace.process(pid=pid)
        gpu.range("step", 10, 10_000)
        for device in devices:
            gpu.kernel("gemm", 1_000, 2_000, device=device, launch_ns=400)
            gpu.memcpy(3_000, 3_000 + pid + device, kind=10, stream=28, device=device, launch_ns=500)
    path = trace.write(tmp_path / "run.sqlite")
    lengths = {(0, "none"): 100, (1, "none"): 101, (2, "none"): 200}
    assert rows(path, "comm_ns", convention=PEER) == lengths


@in_every_format
def test_only_those_of_a_span_are_read_into_it(tmp_path: Path, write: Write) -> None:
    times = [(500, 900), (900, 1_000), (950, 2_500), (1_500, 1_600), (2_000, 3_000), (2_001, 3_000)]
    trace = open_trace(write(tmp_path, [Copied(TO_PEER, *t, launch_ns=100 * i) for i, t in enumerate(times, 1)]))
    with contextlib.closing(trace):
        (lane,) = trace.lanes()
        copies = add_copies(trace, [CopyKind.PEER])
        touching = copies.kernels({lane: (1_000, 2_000)})[lane]
        assert list(zip(touching.start_ns, touching.end_ns, strict=True)) == [*times[1:3], (1_000, 3_000), *times[3:5]]
        launched = copies.kernels_launched({lane: (200, 300)})[lane]
        assert list(launched.start_ns) == [900, 950]
        assert copies.kernels_launched({lane: (700, 800)}) == {}
        assert add_copies(trace, []) is trace


def test_a_kernel_keeps_the_launch_that_only_an_arrow_tells(tmp_path: Path) -> None:
    trace = KinetoBuilder(rank=None)
    trace.range("step", 0, 10_000)
    trace.kernel("gemm", 1_000, 3_000, correlation=77)
    trace.events.append({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 77, "pid": 100, "tid": 100, "ts": 0.5})
    place = {"device": 0, "context": 1, "stream": 28, "correlation": trace.api("cudaMemcpyAsync", 600)}
    trace.event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 2_000, 5_000, pid=0, tid=28, args=place)
    path = trace.write(tmp_path / "run.json")
    assert rows(path, "compute_ns", convention=PEER, kernels="launched") == {0: 2_000}
    assert rows(path, "comm_ns", convention=PEER, kernels="launched") == {(0, "none"): 3_000}


def test_copies_of_jax_on_lanes_that_are_named_last(tmp_path: Path) -> None:
    path = jax(tmp_path, [Copied(TO_PEER, 2_000, 5_000)])
    content = json.loads(path.read_text())
    content["traceEvents"].sort(key=lambda event: event.get("ph") == "M")
    path.write_text(json.dumps(content))
    assert rows(path, "comm_ns", convention=PEER) == {(0, "none"): 3_000}


# -- which they are


def test_what_profilers_call_copies() -> None:
    named = {
        "Memcpy PtoP (Device -> Device)": CopyKind.PEER,
        "Memcpy HtoD (Pageable -> Device)": CopyKind.HOST_TO_DEVICE,
        "Memcpy DtoH (Device -> Pinned)": CopyKind.DEVICE_TO_HOST,
        "Memcpy DtoD (Device -> Device)": CopyKind.DEVICE_TO_DEVICE,
        "MemcpyP2P (device -> device)": CopyKind.PEER,
        "MemcpyD2D": CopyKind.DEVICE_TO_DEVICE,
        "CopyDeviceToHost": CopyKind.DEVICE_TO_HOST,
        "Memcpy HtoH (Pageable -> Pinned)": None,
        "Memcpy AtoA": None,
        "Memset (Device)": None,
        "": None,
    }
    assert {name: parse_copy_kind(name) for name in named} == named


@in_every_format
def test_a_collective_of_the_copy_engines_is_launched_inside_a_range_of_nccl(
    tmp_path: Path, write: Callable[[Path, list[Copied], Ranges], Path]
) -> None:
    ranges = (*STEP, ("ncclAllGather", 500, 700), ("ncclGroupEnd", 550, 650), ("nccl open", 5_000, 5_001))
    path = write(
        tmp_path,
        [
            Copied(WITHIN, 4_000, 4_001, launch_ns=600),
            Copied(TO_PEER, 4_100, 4_110, launch_ns=700),
            Copied(TO_DEVICE, 4_200, 4_300, launch_ns=600),
            Copied(WITHIN, 5_000, 6_000, launch_ns=701),
            Copied(TO_PEER, 7_000, 8_000, launch_ns=499),
            Copied(WITHIN, 8_000, 8_000, launch_ns=None),
        ],
        ranges,
    )
    assert rows(path, "comm_ns", convention=COLLECTIVE) == {(0, "none"): 11}
    both = replace(COLLECTIVE, copies=(CopyKind.PEER, CopyKind.COLLECTIVE))
    assert rows(path, "comm_ns", convention=both) == {(0, "none"): 1_011}
    assert rows(path, "kernel_launches", convention=both) == {
        (0, "none", "gemm"): 1,
        (0, "none", "[collective copy]"): 2,
        (0, "none", "[peer copy]"): 1,
    }


def test_a_range_of_nccl_that_was_never_closed_takes_no_copy(gpu: OneProcess) -> None:
    gpu.range("step", 0, 10_000)
    gpu.range("ncclAllGather", 10, None)
    gpu.kernel("gemm", 1_000, 3_000, launch_ns=400)
    gpu.memcpy(4_000, 5_000, kind=8, stream=28, launch_ns=500)
    assert rows(gpu, "comm_ns", convention=COLLECTIVE) == {}


def test_a_copy_is_no_collective_with_a_size(gpu: OneProcess) -> None:
    gpu.range("step", 0, 10_000)
    gpu.kernel("gemm", 1_000, 3_000, launch_ns=400)
    nccl = NcclRanges(gpu.trace)
    nccl.communicator(gpu, number=7, ranks=2)
    nccl.call(gpu, "ncclAllGather", 2_000, 2_100, 7, size_bytes=1_024)
    gpu.kernel("ncclDevKernel_AllGather", 4_000, 5_000, stream=28, launch_ns=2_050)
    gpu.memcpy(5_000, 6_000, kind=10, stream=28, launch_ns=2_060)
    path = Path(gpu)
    sizes = rows(path, "collective_bytes", convention=PLAIN)
    assert sizes
    assert rows(path, "collective_bytes", convention=PEER) == sizes


# -- an oracle: the same times as kernels of NCCL

TIMES = st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda t: (100 * t[0] + 100, 100 * (t[0] + t[1]) + 100))
COPIES = st.lists(
    st.builds(
        lambda kind, span, stream, launch: Copied(kind, span[0], span[1], stream, launch),
        st.sampled_from(sorted(CUPTI)),
        TIMES,
        st.sampled_from([7, 20, 28]),
        st.none() | st.integers(10, 90),
    ),
    max_size=6,
)
NOT_ALIKE = (
    *("kernel_launches", "kernel_share", "sequence", "pageable_copies"),
    *("device_idle_ns", "comm_alone_ns"),
    *("family_ns", "family_launches", "total_kernel_ns", "step_minus_kernel_ns"),
    *("blocking_ns", "dependency_stalled_ns", "blocking_comm_ns", "blocking_comm_max_ns"),
)
"""Metrics that tell kernels by their names, that count copies anyhow, or that leave them out."""


def measured(path: Path, convention: Convention, window: str, mode: KernelsMode) -> dict[str, object]:
    found: dict[str, object] = {}
    with captures(path, convention=convention) as opened:
        spec = opened.make_spec(window, None, mode)
        for name, metric in METRICS.items():
            if name not in NOT_ALIKE:
                try:
                    found[name] = opened.measure_rows(metric, spec).rows
                except NsysError as error:
                    found[name] = type(error)
    return found


@given(copies=COPIES, asked=st.sets(st.sampled_from(sorted(KINDS))), write=st.sampled_from([nsys, kineto, jax]))
def test_every_metric_is_what_it_were_if_they_were_kernels_of_nccl(
    tmp_path_factory: pytest.TempPathFactory, copies: list[Copied], asked: set[str], write: Write
) -> None:
    folder = tmp_path_factory.mktemp("copies")
    path = write(folder, copies)
    trace = TraceBuilder() if write is nsys else KinetoBuilder(rank=None) if write is kineto else JaxBuilder()
    gpu = trace.process() if isinstance(trace, TraceBuilder) else trace
    gpu.range("step", 0, 10_000)
    gpu.kernel("gemm", 1_000, 3_000, stream=7, launch_ns=400)
    for kind, start, end, stream, launch in copies:
        if kind in asked:
            gpu.kernel("ncclCopy", start, end, stream=stream, launch_ns=launch, launch=launch is not None)
    (folder / "oracle").mkdir()
    oracle = trace.write(folder / "oracle" / path.name)
    convention = replace(PLAIN, copies=tuple(kind for kind in CopyKind if kind in {KINDS[k] for k in asked}))
    for window, mode in (
        ("median", KernelsMode.CLIPPED),
        ("median", KernelsMode.LAUNCHED),
        ("run", KernelsMode.CLIPPED),
    ):
        assert measured(path, convention, window, mode) == measured(oracle, PLAIN, window, mode)


# -- families


def test_families_are_free_of_copies_unless_one_asks_for_them(tmp_path: Path) -> None:
    path = nsys(tmp_path, [Copied(TO_PEER, 2_000, 5_000)])
    assert rows(path, "total_kernel_ns", convention=PEER) == rows(path, "total_kernel_ns", convention=PLAIN)
    assert rows(path, "family_ns", convention=PEER) == rows(path, "family_ns", convention=PLAIN)
    own = replace(PEER, families=(Family("copies", ("*peer copy*",)),))
    assert rows(path, "family_ns", convention=own) == {"copies": 3_000, "other": 2_000}
    assert rows(path, "total_kernel_ns", convention=own) == {(): 5_000}


def test_no_built_in_family_takes_a_copy() -> None:
    classify = make_classifier(FAMILIES)
    assert {classify(name, name) for name in COPY_NAMES.values()} == {OTHER_FAMILY}


# -- as a gate and a person see it


def test_a_gate_goes_red_on_exposed_copies(project: Project) -> None:
    head = "convention: {extends: pithtrain, copies: [peer]}\nassertions:\n"
    gate = head + "  - {id: copies, assert: stage2_f exposed_ns < 300us}"

    def copy_ms(length: int) -> None:
        begin = 40 * MS + 3 * MS
        project.trace(
            edit=lambda _, gpus: gpus[0].memcpy(
                begin, begin + length * MS // 10, kind=10, stream=28, launch_ns=41 * MS + 2_000
            )
        )

    project.gate(gate)
    for tenths, outcome in ((0, "passed"), (5, "failed")):
        copy_ms(tenths)
        assert project.cases("--nsys-trace=run.sqlite")["copies"].properties["nsys_outcome"] == outcome
    project.gate("quality: {unknown_communication: 10%}\n" + gate.replace(", copies: [peer]", ""))
    assert project.cases("--nsys-trace=run.sqlite")["copies"].properties["nsys_outcome"] == "passed"


def test_a_drafted_gate_keeps_them(project: Project) -> None:
    project.trace(edit=lambda _, gpus: gpus[0].memcpy(44 * MS, 44 * MS + 9_000, kind=10, stream=30))
    project.file("own.yaml", "extends: pithtrain\ncopies: peer\n")
    project.command("init", "run.sqlite", "--convention=own.yaml", "-o", "own.nsys.yaml", code=0)
    assert "\n  copies: [peer]\n" in (project.root / "own.nsys.yaml").read_text()


def test_the_order_of_kinds_means_nothing(project: Project) -> None:
    project.file("a.yaml", "extends: generic\ncopies: [peer, collective, peer]\n")
    project.file("b.yaml", "extends: generic\ncopies: [collective, peer]\n")
    project.file("c.yaml", "extends: generic\ncopies: peers\n")
    nsys(project.root, [Copied(TO_PEER, 2_000, 5_000)])
    said = [
        project.command("--view=streams", "run.sqlite", f"--convention={name}.yaml", "--window=run", code=0)
        for name in "ab"
    ]
    assert said[0] == said[1]
    mistake = project.command("--view=streams", "run.sqlite", "--convention=c.yaml", "--window=run", code=2)
    assert "c.yaml:2:9: copies is peer or collective or" in mistake
    assert "did you mean 'peer'?" in mistake


def test_a_trace_without_such_copies_says_so(project: Project) -> None:
    nsys(project.root, [Copied(TO_DEVICE, 2_000, 5_000)])
    project.file("peer.yaml", "extends: generic\ncopies: peer\n")
    said = project.command("--view=streams", "run.sqlite", "--convention=peer.yaml", "--window=run", code=0)
    assert "run.sqlite: has no copy that counts as communication (peer)" in said
    assert "counts as communication" not in project.command(
        "--view=streams", "run.sqlite", "--convention=generic", code=3
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("ALTER TABLE {0} DROP COLUMN contextId", "lacks the column contextId, so its copies cannot count as"),
        ("UPDATE {0} SET streamId = 'seven'", "holds a value that cannot be"),
    ],
)
def test_an_export_whose_copies_cannot_be_kernels_is_one_line(project: Project, change: str, what: str) -> None:
    execute(nsys(project.root, [Copied(TO_PEER, 2_000, 5_000)]), change.format("CUPTI_ACTIVITY_KIND_MEMCPY"))
    project.file("peer.yaml", "extends: generic\ncopies: peer\n")
    said = project.command("--view=streams", "run.sqlite", "--convention=peer.yaml", "--window=run", code=2)
    assert what in said
    assert said.count("\n") == 1
    project.command("--view=streams", "run.sqlite", "--convention=generic", "--window=run", code=0)


def test_a_damaged_copy_of_torch_is_one_line(project: Project) -> None:
    trace = KinetoBuilder(rank=None)
    trace.kernel("gemm", 1_000, 3_000)
    place = {"device": 0, "stream": 28, "correlation": 9}
    trace.event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 2_000, 2_500, pid=0, tid=28, args=place, dur="soon")
    trace.write(project.root / "run.json")
    project.file("peer.yaml", "extends: generic\ncopies: peer\n")
    said = project.command("--view=streams", "run.json", "--convention=peer.yaml", "--window=run", code=2)
    assert "'Memcpy PtoP (Device -> Device)' at ts 2.000 has no duration that can be read" in said
    assert said.count("\n") == 1
    project.command("--view=streams", "run.json", "--convention=generic", "--window=run", code=0)


# -- through a cut, and through another process


@in_every_format
def test_they_survive_a_cut(project: Project, write: Callable[[Path, list[Copied], Ranges], Path]) -> None:
    copies = [Copied(TO_PEER, 2_000, 5_000), Copied(WITHIN, 5_000, 5_500, launch_ns=600), Copied(WITHIN, 6_000, 7_000)]
    path = write(project.root, copies, (*STEP, ("ncclAllGather", 550, 650)))
    names = {CopyKind.PEER: "peer", CopyKind.COLLECTIVE: "collective"}
    convention = replace(PLAIN, copies=tuple(names))
    project.file("own.yaml", "extends: generic\nanchor: step%\ncopies: [peer, collective]\n")
    cut = project.root / name_of_cut(path, "cut", packed=False)
    for mode in (KernelsMode.LAUNCHED, KernelsMode.CONTAINED):
        project.command("cut", path.name, "-o", cut.name, "--convention=own.yaml", f"--kernels={mode}", code=0)
        before = measured(path, convention, "median", mode)
        after = measured(cut, convention, "median", mode)
        alone = {"overlap_tax_ns"}  # needs the whole run
        assert {k: v for k, v in before.items() if k not in alone} == {k: v for k, v in after.items() if k not in alone}
    assert rows(cut, "comm_ns", convention=convention) == {(0, "none"): 3_500}
    assert rows(cut, "compute_ns", convention=PLAIN) == {0: 2_000}
    assert rows(cut, "exposed_ns", convention=PLAIN) == {}
    with pytest.raises(NothingMeasured, match="with peer, collective copies as communication, not peer: measure under"):
        rows(cut, "comm_ns", convention=PEER)


def test_a_cut_of_copies_alone(project: Project) -> None:
    ranges = (("step", 0, 10_000), ("step", 20_000, 30_000))
    path = nsys(project.root, [Copied(TO_PEER, 22_000, 25_000, launch_ns=20_600)], ranges)
    project.file("own.yaml", "extends: generic\nanchor: step%\ncopies: [peer]\n")
    how = ("--convention=own.yaml", "--kernels=launched", "--window=last")
    project.command("cut", path.name, "-o", "cut.sqlite", *how, code=0)
    for trace in (path.name, "cut.sqlite"):
        project.command("rows", "comm_ns", "--trace", trace, "--where=stage=none", *how, "--format=json", code=0)
        assert [row["comm_ns"] for row in json.loads(project.result.stdout.str())["rows"]] == [3_000]


def cut_of(project: Project, copies: str = "copies: peer\n") -> Path:
    """A cut of one copy between devices, under a convention that counts it unless it is told otherwise."""
    path = nsys(project.root, [Copied(TO_PEER, 2_000, 5_000)])
    project.file("own.yaml", f"extends: generic\nanchor: step%\n{copies}")
    project.command("cut", path.name, "-o", "cut.sqlite", "--convention=own.yaml", code=0)
    return project.root / "cut.sqlite"


def test_a_cut_without_copies_is_no_trace_of_them(project: Project) -> None:
    with pytest.raises(NothingMeasured, match="with no copies as communication, not peer"):
        rows(cut_of(project, copies=""), "comm_ns", convention=PEER)


@pytest.mark.parametrize("held", [5, [5], None])
def test_a_cut_that_was_changed_is_one_line(project: Project, held: object) -> None:
    cut = cut_of(project)
    execute(cut, f"UPDATE PYTEST_NSYS_CUT SET mark = json_set(mark, '$.copies', json('{json.dumps(held)}'))")
    with pytest.raises(TraceError, match="is not a complete cut of pytest-nsys"):
        rows(cut, "comm_ns", convention=PEER)


@in_every_format
def test_what_another_process_read_answers_without_the_file(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, [Copied(TO_PEER, 2_000, 5_000)])
    with captures(path, convention=PEER) as opened:
        spec = opened.make_spec("median", None, KernelsMode.LAUNCHED)
        expected = opened.measure_rows(METRICS["exposed_ns"], spec).rows
    outcome = read_trace_job(TraceJob(path, partial(query_all, PEER, Workload(), (MetricRequest("exposed_ns", spec),))))

    def closed(_: Path) -> Trace:
        raise AssertionError("the file was opened again")

    from pytest_nsys.analysis.windows.run import Run

    trace = cast(Trace, RecordedTrace(path, closed, outcome.recording))
    assert Captures([Run([trace], PEER)]).measure_rows(METRICS["exposed_ns"], spec).rows == expected
    # What nobody foresaw is asked of the file, which must know the launches of copies that it was not asked for.
    late = cast(Trace, RecordedTrace(path, open_trace, outcome.recording))
    with captures(path, convention=PEER) as opened:
        whole = opened.make_spec("run", None, None)
        assert (
            Captures([Run([late], PEER)]).measure_rows(METRICS["launches"], whole).rows
            == opened.measure_rows(METRICS["launches"], whole).rows
        )
    late.close()


def test_nothing_is_read_of_copies_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_nsys.traces.nsys.sqlite import NsysSqlite

    def read(*_: object) -> None:
        raise AssertionError("copies were read")

    monkeypatch.setattr(NsysSqlite, "copies_as_kernels", read)
    path = nsys(tmp_path, [Copied(TO_PEER, 2_000, 5_000)])
    assert rows(path, "compute_ns", convention=PLAIN) == {0: 2_000}
    with pytest.raises(AssertionError):
        rows(path, "compute_ns", convention=PEER)
