"""Does a window that was cut measure what it measured in its trace, and is nothing else in it?"""

import gzip
import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.budget.budget import build_budget_facts, measure_budget
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.windows.window_selection import WindowSpec, count_clocks
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.file_names import CUT_MARK_MEMBER
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.traces.nsys.cut import CUT_COLUMNS
from pytest_nsys.traces.nsys.memory import MEMORY_KINDS_TABLE
from tests.support.commands import brief, name_of_cut, run
from tests.support.gates import ANCHOR, Project
from tests.support.measure import captures
from tests.support.one_process import OneProcess
from tests.support.reference_data import DUALPIPE, REAL
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.data_parallel import DataParallelShape, write_data_parallel
from tests.support.samples.gpu_state import allocate, free, sm_clock, torch_memory
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.rocpd import RocpdBuilder

NCCL = "ncclDevKernel_SendRecv"
EPOCH_NS = 1_763_000_000_123_456_789
"""Times of torch.profiler: more digits than a float keeps."""

OF_THE_RUN = {"overlap_tax_ns": "how long a kernel takes alone is a median over the whole run, which is not in a cut"}
"""Metrics that do not survive, with the reason; with window run they do."""


def cut(trace: Path, *options: str | Path, name: str = "window", packed: bool = True) -> Path:
    """The cut of a trace, beside it."""
    target = trace.parent / name_of_cut(trace, name, packed=packed)
    run("cut", trace, "-o", target, *options, code=0)
    return target


def measured(
    trace: Path, named: str | Convention, window: str = "median", span: str | None = None, kernels: str | None = None
) -> tuple[dict[str, Any], object, object]:
    """The rows of every metric, or why it has none; what makes the run comparable; its circumstances."""
    found: dict[str, Any] = {}
    with captures(trace, convention=BUILT_IN_CONVENTIONS[named] if isinstance(named, str) else named) as opened:
        spec = opened.make_spec(window, Span(span) if span else None, KernelsMode(kernels) if kernels else None)
        for name, metric in METRICS.items():
            if name in OF_THE_RUN and window != "run":
                continue
            try:
                rows = opened.measure_rows(metric, spec)
                found[name] = rows.rows, rows.missing
            except NsysError as error:
                found[name] = re.sub(r"\S*[/\\]\S+?: ", "", str(error))
        found["held back"] = _held_back(opened, spec)
        return found, opened.build_key({}), opened.facts


def _held_back(opened: Captures, spec: WindowSpec) -> Any:
    """The budget of each window with all that is told of it, or why it has none."""
    try:
        return [build_budget_facts(measure_budget(window)) for run in opened.runs for window in run.load_windows(spec)]
    except NsysError as error:
        return str(error)


# The same step in every format

COLLECTIVE: dict[str, Any] = {
    "Collective name": "_allgather_base",
    "In msg nelems": 1_024,
    "Out msg nelems": 4_096,
    "Group size": 4,
    "dtype": "BFloat16",
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1, 2, 3]",
}


def put_step(gpu: Any, at: int, number: int) -> None:
    """A step with communication on two streams, a barrier, kernels across its edges, and operators inside stages."""
    gpu.range(ANCHOR.format(number), at, at + 10_003)
    gpu.range("layer00.stage2_f", at + 100, at + 900)
    gpu.range("aten::mm, seq = 7", at + 150, at + 700)
    gpu.range("layer00.stage4_f", at + 1_000, at + 1_900)
    gpu.range("pipeline send/recv", at + 2_000, at + 2_100)
    gpu.kernel(NCCL, at + 2_000, at + 6_001, stream=28, launch_ns=at + 200)
    gpu.kernel("gemm", at + 3_000, at + 5_500, stream=7, launch_ns=at + 1_200)
    gpu.kernel(NCCL, at + 5_000, at + 8_000, stream=29, launch_ns=at + 1_300)
    gpu.kernel("gemm", at + 6_000, at + 8_000, stream=7, launch_ns=at + 1_350)
    gpu.kernel("ncclDevKernel_AllReduce", at + 8_000, at + 8_500, stream=7, launch_ns=at + 1_400)
    gpu.kernel(NCCL, at + 8_600, at + 8_700, stream=30, launch_ns=at + 2_050)
    if number % 2:  # of the others what follows the step ends its last gap
        gpu.kernel("gelu", at + 9_500, at + 10_600, stream=7, launch_ns=at + 1_500)
    if not isinstance(gpu, JaxBuilder):
        relayed = gpu.event_record(at + 1_310, stream=29)
        gpu.stream_wait(at + 1_320, relayed, stream=30)
        gpu.stream_wait(at + 1_340, gpu.event_record(at + 1_330, stream=30), stream=7)
        gpu.stream_wait(at + 1_410, stream=7)
    gpu.kernel("empty", at + 8_550, at + 8_550, stream=7, launch_ns=at + 1_600)
    gpu.api("cudaStreamSynchronize", at + 4_000, **({"end_ns": at + 4_100} if isinstance(gpu, Process) else {}))
    gpu.api("cudaMemcpyAsync", at + 4_200, **({"end_ns": at + 4_300} if isinstance(gpu, Process) else {}))


def nsys(folder: Path) -> Path:
    """Two labelled ranks, with what only an export of nsys has."""
    trace = TraceBuilder()
    for rank in range(2):
        gpu = trace.process(pid=100 + rank)
        trace.gpu("NVIDIA H100 80GB HBM3", process=gpu)
        gpu.range(f"rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", 10, 20)
        gpu.range("the whole program", 5, None)
        for number in range(7):
            at = 10_000 + number * (12_000 + 100 * number)
            put_step(gpu, at, number)
            gpu.range("stage2_b of another thread", at + 140, at + 3_000, thread=900)
            gpu.range("crosses it", at + 2_900, at + 4_000, thread=900)
            gpu.kernel("lost", at + 1_000, at + 1_100, launch=False)
            gpu.kernel("elsewhere", at + 1_000, at + 1_200, context=2, launch_ns=at + 300)
            graph = gpu.kernel("node", at + 7_000, at + 7_100, stream=31, launch_ns=at + 400, graph_node=3)
            gpu.kernel("node", at + 7_100, at + 7_200, stream=31, correlation=graph, graph_node=4)
            gpu.kernel("_ZN4f", at + 7_300, at + 7_400, stream=31, demangled="void ns::f<int>(T)", launch_ns=at + 450)
            gpu.memcpy(at + 7_500, at + 7_600, launch_ns=at + 500)
            allocate(gpu, at + 50, 1_000 * number + rank, address=number)
            allocate(gpu, at + 60, 500, address=99)
            free(gpu, at + 70, 500, address=99)
        sm_clock(trace, *((3_001 * k, 1_500_000_000 + 7 * k) for k in range(40)), gpu=rank)
    return trace.write(folder / "run.sqlite")


def kineto(folder: Path) -> Path:
    """One rank of torch.profiler, on a clock of 19 digits."""
    trace = KinetoBuilder(rank=3, world=4)
    for number in range(6):
        at = EPOCH_NS + number * 12_345
        trace.range(f"ProfilerStep#{number}", at - 17, at + 10_050)
        put_step(trace, at, number)
        trace.kernel("ncclDevKernel_AllGather", at + 8_750, at + 8_800, stream=30, launch_ns=at + 2_080, **COLLECTIVE)
        torch_memory(trace, at + 5_000, 4_000_000_000 + number, number - 7)
        torch_memory(trace, at + 5_100, 3_000_000_000 + number, -1_000_000_000)
        place = {"device": 0, "stream": 7}
        trace.event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at + 9_000, at + 9_100, pid=0, args=place)
        late = place | {"correlation": trace.api("cudaMemcpyAsync", at + 4_400)}  # called in the window, done after it
        trace.event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 11_000, at + 11_100, pid=0, args=late)
    return trace.write(folder / "rank3.pt.trace.json.gz")


def jax(folder: Path) -> Path:
    """Two GPUs of one process of JAX."""
    trace = JaxBuilder(gpus=(0, 1))
    for number in range(6):
        at = 1_000_000 + number * 12_345
        trace.step("train", number, at - 17, at + 10_050)
        put_step(trace, at, number)
        trace.kernel("gemm", at + 3_000, at + 7_000, device=1, launch_ns=at + 160)
        trace.kernel(NCCL, at + 3_000, at + 7_500, device=1, stream=28, launch_ns=at + 170)
    return trace.write(folder / "host.trace.json.gz")


def rocpd(folder: Path) -> Path:
    """Two labelled processes in one database of rocprofv3."""
    traces = [RocpdBuilder(100 + rank, device=rank) for rank in range(2)]
    for rank, trace in enumerate(traces):
        trace.range(f"rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", 10, 20)
        for number in range(7):
            at = 10_000 + number * (12_000 + 100 * number)
            put_step(trace, at, number)
            trace.kernel("lost", at + 1_000, at + 1_100, launch=False)
            graph = trace.api("hipGraphLaunch", at + 400, at + 410)
            for start in (at + 7_000, at + 7_100):
                trace.kernel("node", start, start + 100, stream=31, correlation=graph)
            trace.memcpy(at + 7_500, at + 7_600, launch_ns=at + 500)
            trace.allocate(at + 50, 1_000 * number + rank, address=number)
    return traces[0].write(folder / "merged.db", traces[1])


FORMATS: Mapping[str, Callable[[Path], Path]] = {"pithtrain": nsys, "kineto": kineto, "jax": jax, "rocpd": rocpd}
CONVENTIONS = {"rocpd": "pithtrain"}
"""Of the formats that are not called as theirs."""

PICKS = (
    {"kernels": "launched"},
    {"window": "first"},
    {"window": "5"},
    {"window": "steady"},
    {"window": "steady", "span": "range", "kernels": "clipped"},
    {"window": "run"},
    {"window": "layer00.stage%", "kernels": "launched"},
)


@pytest.mark.parametrize("how", PICKS, ids=lambda how: "-".join(how.values()).replace("%", ""))
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.sampled(5)
def test_a_cut_has_the_metric_of_its_trace(format: str, how: dict[str, str], tmp_path: Path) -> None:
    trace, convention = FORMATS[format](tmp_path), CONVENTIONS.get(format, format)
    options = [f"--{name}={value}" for name, value in how.items()]
    window = cut(trace, f"--convention={convention}", *options)
    before, after = measured(trace, convention, **how), measured(window, convention, **how)
    assert after == before
    held_back, has_waits = before[0]["held back"], format not in ("jax", "rocpd")
    assert [held.waits_joined > 0 for held in held_back] == [has_waits] * len(held_back)
    assert sum(bool(found) and not isinstance(found, str) for found in before[0].values()) > 20


def test_a_span_that_was_given_may_be_as_long_as_it_likes(tmp_path: Path) -> None:
    trace = nsys(tmp_path)
    given_span = f"0:{(1 << 62) + 1}"
    window = cut(trace, f"--window={given_span}")
    assert measured(window, "pithtrain", given_span) == measured(trace, "pithtrain", given_span)


@pytest.mark.parametrize("format", FORMATS)
def test_a_cut_of_a_cut_is_that_cut(format: str, tmp_path: Path) -> None:
    options = [f"--convention={CONVENTIONS.get(format, format)}"]
    once = cut(FORMATS[format](tmp_path), *options)
    assert cut(once, *options, name="again").read_bytes() == once.read_bytes()


def test_the_same_bytes_each_time_whichever_sqlite_writes_them(tmp_path: Path) -> None:
    trace = nsys(tmp_path)
    content = cut(trace, packed=False).read_bytes()
    assert cut(trace, name="again", packed=False).read_bytes() == content
    assert gzip.decompress(cut(trace).read_bytes()) == content
    assert content[24:28] == content[92:96] == (1).to_bytes(4)  # counts of changes
    assert content[96:100] == (3_037_000).to_bytes(4)  # a version of SQLite


def test_it_holds_the_tables_and_columns_that_are_listed_and_no_other(tmp_path: Path) -> None:
    """What an export says of machines, users and programs is in others."""
    with closing(sqlite3.connect(cut(nsys(tmp_path), packed=False))) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        known = {**CUT_COLUMNS, "StringIds": ("id", "value")}
        assert {*tables} == {*known} - {
            "CUPTI_ACTIVITY_KIND_MEMSET",
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            "CUDA_GRAPH_NODE_EVENTS",
            MEMORY_KINDS_TABLE,
        }
        for table in tables:
            columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
            assert columns == [*known[table]]


def test_events_of_torch_stay_as_they_were(tmp_path: Path) -> None:
    trace = kineto(tmp_path)
    small = cut(trace, "--convention=kineto")
    before, after = (json.loads(gzip.decompress(path.read_bytes()), parse_float=str) for path in (trace, small))
    known = {(e.get("name"), e.get("ts"), e.get("dur"), e.get("pid"), e.get("tid")) for e in before["traceEvents"]}
    kept = {(e["name"], e["ts"], e.get("dur"), e["pid"], e["tid"]) for e in after["traceEvents"]}
    assert kept <= known
    assert 20 < len(kept) < len(known)
    assert {*after} == {"schemaVersion", "pytestNsysCut", "traceEvents"}


@pytest.mark.reference
@pytest.mark.parametrize(
    ("path", "convention", "window"),
    [
        (DUALPIPE / "pp1_cp2_ep2.sqlite", "pithtrain", "median"),
        (REAL / "flameox_2025.5.2.sqlite", "generic", "run"),
        (REAL / "mi210__gpu_only_trace__gpu_only_trace.json.gz", "kineto", "run"),
        (REAL / "hta_sampled_rank-0.json.gz", "kineto", "median"),
    ],
    ids=["dualpipe", "flameox", "mi210", "hta"],
)
@pytest.mark.sampled(3)
def test_real_traces(path: Path, convention: str, window: str, tmp_path: Path) -> None:
    target = tmp_path / name_of_cut(path, "window")
    run("cut", path, "-o", target, f"--convention={convention}", f"--window={window}", code=0)
    assert measured(target, convention, window) == measured(path, convention, window)


def test_a_call_may_have_begun_before_the_window(gpu: OneProcess) -> None:
    """The thread stood in it when the window began, and launched the next kernel only then."""
    gpu.range("step", 1_000, 9_000)
    gpu.api("cudaDeviceSynchronize_v3020", 100, 4_000)
    gpu.kernel("before", 200, 900, launch_ns=50)
    gpu.kernel("gemm", 5_000, 6_000, launch_ns=4_100, launch_length_ns=200)
    path = Path(gpu)
    options = ["--convention=generic", "--anchor=step%", "--kernels=clipped", "--format=json"]
    window = cut(path, *options[:3])
    (budget, again) = (
        json.loads(run("--view=budget", one, *options, code=0).stdout)["budgets"] for one in (path, window)
    )
    assert again == budget
    assert budget[0]["in_syncs"] == {"cudaDeviceSynchronize": 3_000}


NAMES = ("<script>alert(1)</script>", "a\x1b[31mb\x00\n", 'quote " \\ "/device:GPU:0', "€ 𝄞", "half \udc80", "")


def test_names_of_every_kind(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.range("ProfilerStep#1", 1_000, 50_000)
    for n, name in enumerate(NAMES):
        trace.range(name, 2_000 + n, 40_000)
        trace.kernel(name or "x", 3_000 + 100 * n, 3_050 + 100 * n, launch_ns=2_500 + n)
    path = trace.write(tmp_path / "rank0.json")
    window = cut(path, "--convention=kineto", packed=False)
    assert measured(window, "kineto") == measured(path, "kineto")


# Which ranks, which file


def test_some_ranks(tmp_path: Path) -> None:
    trace = nsys(tmp_path)
    window = cut(trace, "--rank=1")
    with captures(window, convention=BUILT_IN_CONVENTIONS["pithtrain"]) as opened:
        rows = opened.measure_rows(METRICS["exposed_ns"], opened.make_spec("median")).rows
    assert {row.labels[0] for row in rows} == {1}
    assert "error: there is no rank 7: the ranks are 0, 1" in run("cut", trace, "-o", window, "--rank", "7").output


def test_ranks_without_a_label_keep_their_numbers(tmp_path: Path) -> None:
    window = cut(jax(tmp_path), "--convention=jax", "--rank=1")
    with captures(window, convention=BUILT_IN_CONVENTIONS["jax"]) as opened:
        assert [rank.number for rank in opened.runs[0].ranks] == [1]


def test_several_files_are_one_run(tmp_path: Path) -> None:
    for rank in range(2):
        trace = KinetoBuilder(rank=rank, world=2, pid=100 + rank)
        trace.range("ProfilerStep#1", 1_000, 50_000)
        trace.kernel("gemm", 3_000, 4_000, launch_ns=2_000)
        trace.write(tmp_path / f"rank{rank}.json")
    window = tmp_path / "window.json.gz"
    files = sorted(tmp_path.glob("rank*.json"))
    result = run("cut", *files, "-o", window, "--convention=kineto")
    assert result.output == (
        f"wrote {window}: 2 ranks, 2 kernels, window median, kernels launched\n"
        f"to look at it: pytest-nsys cut {window} --convention kineto --format perfetto\n"
    )
    told = result.output.rpartition("pytest-nsys ")[2].split()
    assert "2 kernels" in run(*told, "-o", tmp_path / "drawing.json", code=0).output
    result = run("cut", files[0], files[0], "-o", window, "--convention=kineto")
    assert (result.exit_code, "is given twice" in result.output) == (2, True)


def test_an_empty_window_writes_nothing(gpu: OneProcess) -> None:
    gpu.range(ANCHOR.format(0), 1_000, 2_000)
    gpu.kernel("gemm", 3_000, 4_000, launch_ns=2_500)
    target = gpu.path.with_name("window.sqlite.gz")
    assert "holds no kernel" in run("cut", Path(gpu), "-o", target, "--convention=pithtrain", code=3).output
    assert not target.exists()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("run.sqlite", "is one of the traces: give another file"),
        ("window.txt", "name a file that ends in .sqlite.gz or .sqlite"),
        ("window.json", "name a file that ends in .sqlite.gz or .sqlite"),
        ("no/window.sqlite", "there is no folder no; make it first"),
        ("folder.sqlite", "name a file that ends in .sqlite.gz or .sqlite"),
        ("other.sqlite", "is a SQLite database: give another file"),
        ("other.sqlite.gz", "is a SQLite database: give another file"),
        ("", "name a file that ends in .sqlite.gz or .sqlite"),
    ],
)
def test_a_file_that_cannot_be_meant(project: Project, target: str, why: str) -> None:
    project.trace()
    (project.root / "folder.sqlite").mkdir()
    other = project.trace("other.sqlite").read_bytes()
    (project.root / "other.sqlite.gz").write_bytes(gzip.compress(other))
    before = {name: (project.root / name).read_bytes() for name in project.files()}
    result = run("cut", "run.sqlite", "-o", target)
    assert (result.exit_code, result.output.partition(why)[0]) == (2, f"error: --output {target}: ")
    assert {name: (project.root / name).read_bytes() for name in project.files()} == before


def test_a_trace_is_never_replaced_and_an_earlier_cut_is(project: Project) -> None:
    KinetoBuilder().write(project.root / "rank0.json")
    said = run("cut", "rank0.json", "-o", "rank0.json", "--convention=kineto").output
    assert said == "error: --output rank0.json: is one of the traces: give another file\n"
    project.trace()
    for _ in range(2):
        run("cut", "run.sqlite", "-o", "window.sqlite", code=0)
    run("cut", "window.sqlite", "-o", "window.sqlite", code=2)
    (project.root / "ranks").mkdir()
    (project.root / "run.sqlite").rename(project.root / "ranks" / "run.sqlite")
    said = run("cut", "ranks", "-o", "ranks/window.sqlite").output
    assert "is in the folder of the traces and would be read as one of them" in said


def test_a_disk_that_takes_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/somewhere/.window.sqlite.x7.tmp")

    project.trace()
    monkeypatch.setattr("pytest_nsys.cli.cut.write_atomically", full)
    said = run("cut", "run.sqlite", "-o", "window.sqlite").output
    assert said == "error: --output window.sqlite: cannot be written: No space left on device\n"


# Beside the trace, where no file is named


BESIDE: dict[str, tuple[tuple[str, ...], str]] = {
    "a file": (("runs/a/rank0.sqlite",), "runs/a/rank0.cut.sqlite.gz"),
    "its second window": (("runs/a/rank0.sqlite", "--window=1"), "runs/a/rank0.1.cut.sqlite.gz"),
    "a pattern, of a rank": (
        ("runs/a", "--window=forward chunk 1 %", "--rank=0"),
        "runs/a/a.forward-chunk-1.rank0.cut.sqlite.gz",
    ),
    "a folder": (("runs/a/",), "runs/a/a.cut.sqlite.gz"),
    "a glob": (("runs/a/*.sqlite",), "runs/a/a.cut.sqlite.gz"),
    "two files": (("runs/a/rank0.sqlite", "runs/a/rank1.sqlite"), "runs/a/a.cut.sqlite.gz"),
    "for a gate": (("runs/a", "--gate=perf/step.nsys.yaml"), "runs/a/a.gate-step.cut.sqlite.gz"),
}


@pytest.mark.parametrize("case", BESIDE)
def test_it_lies_beside_its_trace(project: Project, case: str) -> None:
    """And a folder of traces means the same as before, so that the same command writes the same again."""
    for rank in range(2):
        label = f"rank={rank}; pp=0/1 dp={rank}/2 cp=0/1 ep=0/1; mbs=1 seq=2048"
        project.trace(f"runs/a/rank{rank}.sqlite", ranks=1, label=label)
    project.gate("- exposed_ns <= 1ms", "perf/step.nsys.yaml")
    before, (words, target) = project.files(), BESIDE[case]
    for _ in range(2):
        assert f"wrote {target}" in run("cut", *words, code=0).output
        assert project.files() - before == {target}


def test_it_replaces_nothing_that_it_is_not(project: Project) -> None:
    path = project.trace()
    beside = path.with_name("run.cut.sqlite.gz")
    beside.write_bytes(b"of another day")
    said = run("cut", path.name, code=2).output
    assert said == "error: run.cut.sqlite.gz: is there already, and is not this cut: name another file with -o\n"
    assert beside.read_bytes() == b"of another day"
    run("cut", path.name, "-o", beside.name, code=0)
    assert run("cut", path.name, code=0).output.startswith("wrote run.cut.sqlite.gz: 2 ranks")
    run("cut", beside.name, code=0)
    assert (project.root / "run.cut.cut.sqlite.gz").exists()


def test_a_folder_that_cannot_be_written(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.trace("runs/run.sqlite")

    def full(_: int) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("os.fsync", full)
    said = run("cut", "runs/run.sqlite", code=2).output
    why = "cannot be written: Read-only file system: name a file elsewhere with -o"
    assert said == f"error: runs/run.cut.sqlite.gz: {why}\n"
    monkeypatch.setattr("os.access", lambda *_: False)
    said = run("cut", "runs/run.sqlite", code=2).output
    assert said == "error: runs/run.cut.sqlite.gz: cannot be written: name a file elsewhere with -o\n"


def test_cuts_alone_in_a_folder_are_its_traces(project: Project) -> None:
    project.trace("runs/run.sqlite")
    run("cut", "runs", "-o", "runs/one.cut.sqlite.gz", code=0)
    (project.root / "runs/run.sqlite").unlink()
    assert "runs/one.cut.sqlite.gz" in run("rows", "exposed_ns", "--trace=runs", code=0).output


# Reading a cut


def test_it_says_that_it_is_no_whole_trace(tmp_path: Path) -> None:
    window = cut(nsys(tmp_path))
    result = run("--view=overlap", window)
    assert f"note: {window}: is a cut (window median, kernels contained, convention pithtrain)\n" in result.stderr
    asked: list[list[str | Path]] = [
        ["rows", "overlap_tax_ns", "--trace", window],
        ["--view=overlap", window, "--window=run"],
    ]
    for arguments in asked:
        result = run(*arguments, code=3)
        assert result.stderr == (
            f"error: {window}: is a cut (window median, kernels contained), and this needs the whole run: measure it "
            "on the trace\n"
        )


def test_ranges_of_which_it_has_some_are_no_ranges_of_the_run(tmp_path: Path) -> None:
    window = cut(kineto(tmp_path), "--convention=kineto")
    run("--view=ranks", window, code=0)  # as it was cut
    for other in ("--convention=pithtrain", "--anchor=layer00%"):
        result = run("--view=ranks", window, other, code=3)
        assert f"error: {window}: is a cut (window median, kernels launched, convention kineto), which does not" in (
            result.stderr
        )


def test_clocks_of_several_files_stay_apart(tmp_path: Path) -> None:
    for rank in range(2):
        trace = KinetoBuilder(rank=rank, world=2, pid=100 + rank)
        for number in range(3):
            at = 10_000 + rank * 777 + number * 12_345
            trace.range(f"ProfilerStep#{number}", at - 17, at + 10_050)
            put_step(trace, at, number)
            at += 8_750 + rank * 5
            trace.kernel("ncclDevKernel_AllGather", at, at + 50 + rank, stream=30, launch_ns=at - 7_000, **COLLECTIVE)
        trace.write(tmp_path / "run" / f"rank{rank}.json")
    window = cut(tmp_path / "run", "--convention=kineto")
    before, after = measured(tmp_path / "run", "kineto"), measured(window, "kineto")
    assert after == before
    with captures(window, convention=BUILT_IN_CONVENTIONS["kineto"]) as opened:
        assert count_clocks(opened.runs[0].ranks) == 2


def test_a_cut_knows_the_ties_of_clocks_that_its_few_collectives_cannot_tell(tmp_path: Path) -> None:
    """Two in the median window, of the twelve of the run; of a cut of this cut, too."""
    folder = write_data_parallel(tmp_path / "run", DataParallelShape(late_us=500, hosts=2))
    found = []
    for place, trace in enumerate((folder, tmp_path / "0.json.gz", tmp_path / "1.json.gz")):
        run("cut", trace, "-o", tmp_path / f"{place}.json.gz", "--convention=kineto", code=0)
        with captures(trace, convention=BUILT_IN_CONVENTIONS["kineto"]) as opened:
            table = opened.measure_rows(METRICS["collective_wait_ns"], opened.make_spec("median"))
            found.append((table.rows, table.unseen))
    assert len(found[0][0]) == 3
    assert found[1:] == found[:1] * 2


def test_a_gate_takes_it(project: Project) -> None:
    project.gated("- overlap >= 80%\n- exposed_ns <= 200us")
    cut(project.root / "run.sqlite")
    assert {case.state for case in project.cases("--nsys-trace=window.sqlite.gz", code=0).values()} == {"passed"}


Edit = Callable[[dict[str, Any]], object]


def changed(path: Path, edit: Edit) -> Path:
    """The cut with something wrong in its mark."""
    if ".sqlite" not in path.name:
        root = json.loads(gzip.decompress(path.read_bytes()))
        edit(root["pytestNsysCut"])
        path.write_bytes(gzip.compress(json.dumps(root).encode()))
        return path
    with closing(sqlite3.connect(path)) as database, database:
        ((text,),) = database.execute("SELECT mark FROM PYTEST_NSYS_CUT")
        mark = json.loads(text)
        edit(mark)
        database.execute("UPDATE PYTEST_NSYS_CUT SET mark = ?", (json.dumps(mark),))
    return path


@pytest.mark.parametrize("mark", ["[]", "null", "5", '""'])
def test_a_mark_that_says_nothing_is_no_whole_trace(mark: str, tmp_path: Path) -> None:
    trace = KinetoBuilder(pid=100)
    trace.kernel("gemm", 3_000, 4_000, launch_ns=2_000)
    path = trace.write(tmp_path / "run.json")
    path.write_text(path.read_text().replace("{", f'{{"{CUT_MARK_MEMBER}": {mark}, ', 1))
    assert "is not a complete cut of pytest-nsys" in run(path, code=2).output


@pytest.mark.parametrize(
    "edit",
    [
        lambda mark: mark["ranks"][0].pop("on_gpu"),
        lambda mark: mark["ranks"][0].update(called=[[1]]),
        lambda mark: mark.update(lost=[{"process": 1}]),
        lambda mark: mark["ranks"][0].update(process="x"),
        lambda mark: mark["facts"].clear(),
        lambda mark: mark["ranks"][0].update(units=[[1, 2]]),
        lambda mark: mark["ranks"][0].update(setup="x"),
        lambda mark: mark.pop("ranks"),
        lambda mark: mark.update(ranks=[]),
        lambda mark: mark.pop("measured"),
        lambda mark: mark.update(facts=None),
        lambda mark: mark["facts"].__setitem__(0, 7),
    ],
)
@pytest.mark.parametrize("format", ["pithtrain", "kineto"])
@pytest.mark.sampled(6)
def test_a_cut_that_was_changed_is_one_line(edit: Edit, format: str, tmp_path: Path) -> None:
    packed = format == "kineto"
    window = changed(cut(FORMATS[format](tmp_path), f"--convention={format}", packed=packed), edit)
    result = run("--view=overlap", window, code=2)
    assert result.output == (
        f"error: {window}: is not a complete cut of pytest-nsys: it was changed or truncated; "
        "cut it again from its trace\n"
    )


@pytest.mark.parametrize("format", ["pithtrain", "kineto"])
def test_a_cut_that_is_damaged_is_one_line(format: str, tmp_path: Path) -> None:
    window = cut(FORMATS[format](tmp_path), f"--convention={format}")
    content = window.read_bytes()
    for part in (content[: len(content) // 2], gzip.compress(gzip.decompress(content)[:5_000])):
        window.write_bytes(part)
        result = run("--view=overlap", window, code=2)
        assert result.output.startswith(f"error: {window}: ")
        assert result.output.count("\n") == 1


def test_a_cut_of_another_format_is_one_line(tmp_path: Path) -> None:
    window = changed(cut(nsys(tmp_path), packed=False), lambda mark: mark.update(format=7))
    assert "was cut by another version of pytest-nsys" in run("--view=overlap", window).stderr


def test_a_gate_is_drafted_of_a_whole_run(gpu: OneProcess) -> None:
    for k in range(4):
        gpu.range(ANCHOR.format(k), 10_000 * k + 1_000, 10_000 * k + 9_000)
        gpu.kernel("gemm", 10_000 * k + 3_000, 10_000 * k + 4_000, launch_ns=10_000 * k + 2_500)
    trace = Path(gpu)
    window = cut(trace, "--convention=pithtrain")
    offered = [brief(path)["next"][-3 if path == trace else -2]["command"] for path in (trace, window)]
    assert [command.split()[1] for command in offered] == ["init", "cut"]
    said = run("init", window, code=2).output
    assert said == f"error: {window}: is a cut, and a gate is drafted of a whole run: give its trace\n"
