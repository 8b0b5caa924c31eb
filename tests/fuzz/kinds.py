"""What is broken, how, and what is asked of it: one function for each kind of input."""

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.cli.init import store_rows
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.stored.baselines.store import find_store
from pytest_nsys.stored.history.database import RunEntry, append_session, collect_run_facts, collect_series_facts
from pytest_nsys.tools.git import Revision
from pytest_nsys.verdicts.evaluate import resolve_gate_convention
from tests.fuzz import databases, texts, truth
from tests.fuzz.trial import Finding, command, gate, total_time
from tests.support.gates import MS, write_trace
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.gpu_state import allocate, free, sm_clock, torch_memory
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.nccl import NcclRanges
from tests.support.samples.odd_rows import diagnostic, raw
from tests.support.samples.rocpd import HSA, RCCL, RocpdBuilder
from tests.support.samples.schema import MEMCPY

LOOSE = """version: 1
quality: {unknown_communication: 50%}
assertions:
  - exposed_ns <= 1s
  - overlap >= 1%
  - compute_ns <= 1s
  - comm_ns <= 1s
  - barrier_ns <= 1s
  - launches <= 100000
  - syncs <= 1000
  - pageable_copies <= 1000
  - launch_starved_ns <= 1s
  - blocking_ns <= 1s
  - dependency_stalled_ns <= 1s
"""
"""Nothing that a few rows can break: what is lost in silence stays green."""

CONTAINED = LOOSE.replace("assertions:", "kernels: contained\nassertions:")
"""As the oracle counts: where a damaged kernel is far from its window, ``auto`` would measure what was launched."""

OF_EXPORTS = CONTAINED + "  - peak_allocated_bytes <= 80GB\n  - sm_clock_mhz <= 9999MHz\n"

OF_ROCPD = CONTAINED.replace("  - pageable_copies <= 1000\n", "  - peak_allocated_bytes <= 80GB\n")

RICH = """version: 1
trace: good.sqlite
convention:
  extends: pithtrain
  stage: '(?P<stage>stage[1-5]_[fbw])'
  purposes:
    ep_a2a: [stage2_*, stage4_*]
    other: {range: ["pipeline%"]}
  communication: [my_dispatch*]
  families: {gemm: ["*gemm*"], rest: ["nccl*"]}
run: {gpu: H100, world: 2}
tolerance: {rel: 5%, abs: [50us, 1pp, 2]}
window: median
quality: {typicality: 50, missing_ranks: 1}
comparable_on: [gpu, world]
assertions:
  - exposed_ns <= baseline plus tolerance
  - stage2_f overlap >= 60%
  - assert: wall_exposed_ns <= 1s
    window: 2
    kernels: clipped
    id: wall
    severity: warn
  - {assert: p90 exposed_ns <= 5ms, where: {rank: [0, 1]}, xfail: known}
  - no mixed comm streams
  - {assert: exposed_ns <= last 3 runs of main + 10%, window: steady}
"""
MATRIX = """version: 1
convention: pithtrain
tolerance: {rel: 5%, abs: 50us}
matrix:
  llama-8b: good.sqlite
  mixtral: {trace: [good.sqlite, other.sqlite], run: {gpu: H100}, window: first}
  dsv3:
assertions:
  - overlap >= 1%
  - {assert: exposed_ns <= baseline plus tolerance, matrix: mixtral}
  - {assert: compute_ns <= 1s, matrix: ["llama*", dsv3], severity: warn}
waivers:
  - {assertion: overlap >= 1%, matrix: dsv3, ceiling: 0.5%, expires: 2030-01-01, reason: r}
"""
OF_MEASUREMENTS = """version: 1
assertions:
  - measured mfu >= 1%
  - measured peak_memory <= 1000GiB
  - phase train measured step_time <= 1000000 s
  - measured power <= 1000000000 W
"""
MEASURED = """[
  {"metric": "mfu", "value": 46.125, "unit": "%", "better": "higher"},
  {"metric": "peak_memory", "value": 70.5, "unit": "GiB", "better": "lower", "labels": {"rank": 0}},
  {"metric": "peak_memory", "value": 71, "unit": "GiB", "better": "lower", "labels": {"rank": 1}},
  {"metric": "step_time", "value": 412.5, "unit": "ms", "better": "lower", "labels": {"phase": "train"}},
  {"metric": "power", "value": 650, "unit": "W", "better": "lower"}
]
"""
SENTENCES = (
    *("stage2_f overlap >= 60%", "no mixed comm streams", "exposed_ns below baseline plus 5%"),
    *(
        "balance of compute_ns across pp <= 1.2",
        "sequence == baseline",
        "exposed_ns <= median of last 5 runs of main + 2%",
    ),
    *("AllReduce busbw >= 150GB/s", "family_ns of gemm <= 180ms", "syncs at most 3", "tokens_per_s >= 1tokens/s"),
)
AGAINST = """version: 1
quality: {unknown_communication: 50%}
assertions: [exposed_ns <= baseline + 5%, compute_ns <= baseline + 5%, sequence == baseline]
"""
PAST = """version: 1
quality: {unknown_communication: 50%}
assertions:
  - exposed_ns <= last 3 runs + 50%
  - compute_ns <= 1s
"""
LOOKS = (
    *(
        ["--view=ranks"],
        ["--view=streams"],
        ["--view=overlap"],
        ["--view=kernels"],
        ["--view=collectives"],
        ["--view=overlap", "--window=run"],
    ),
    *(["--view=budget"], ["--view=budget", "--window=run", "--format=json"], ["--view=budget", "--kernels=launched"]),
    *(
        ["--view=ranks", "--kernels=launched"],
        ["--view=streams", "--window=steady"],
        ["--view=kernels", "--format=json"],
    ),
)


def rich(trace: TraceBuilder, processes: list[Process]) -> None:
    """Copies, calls and streams that wait, registered names, NCCL's payloads, memory and clocks, in the window and
    around it.
    """
    nccl = NcclRanges(trace)
    for gpu, process in enumerate(processes):
        for number in range(8):
            allocate(process, 10 * MS * number + 1, 1_000_001 + gpu, address=number)
            free(process, 10 * MS * number + 12 * MS, 1_000_001 + gpu, address=number)
        sm_clock(trace, *((MS * at, 1_410_000_000 + 1_000 * at) for at in range(0, 100, 7)), gpu=gpu)
        nccl.communicator(process, 0xABC, ranks=2)
        process.range("pipeline send/recv", 50 * MS, 51 * MS, registered=True)
        for kind, source in ((1, 1), (10, 2)):
            number = process.api("cudaMemcpyAsync_v3020", 42 * MS, 42 * MS + 10)
            copy = {"start": 42 * MS, "end": 43 * MS, "deviceId": 0, "contextId": 1, "streamId": 7, "bytes": 4096}
            raw(process, MEMCPY, **copy, copyKind=kind, srcKind=source, dstKind=2, correlationId=number)
        process.api("cudaStreamSynchronize_v3020", 44 * MS, 45 * MS)
        nccl.call(process, "ncclAllReduce", 46 * MS, 47 * MS, 0xABC, 4096)
        process.kernel("ncclDevKernel_AllReduce", 48 * MS, 49 * MS, stream=28, launch_ns=46 * MS + 10)
        process.stream_wait(46 * MS + 30, process.event_record(46 * MS + 20, stream=28), stream=7)
        process.stream_wait(46 * MS + 40, stream=7)
    diagnostic(trace, 2, "a warning")


@functools.cache
def good(name: str = "good.sqlite") -> Path:
    """The undamaged trace, made once; ``name`` tells its format."""
    return write_good(Path(tempfile.mkdtemp(prefix="pytest-nsys-fuzz-")) / name)


def write_good(path: Path) -> Path:
    """Five steps with a collective of a known size each; the path's name tells the format."""
    if path.suffix == ".sqlite":
        return write_trace(path, edit=rich)
    if path.suffix == ".db":
        return rocm_step().write(path, views=False)
    trace = JaxBuilder(gpus=[0]) if "jax" in path.name else KinetoBuilder(world=1)
    first = 10 * MS if "jax" in path.name else 4_458_676_522_690_655_000
    for k in range(5):
        at = first + 20 * MS * k
        if isinstance(trace, JaxBuilder):
            trace.step("train", k, at, at + 15 * MS)
        else:
            trace.range(f"ProfilerStep#{k}", at, at + 15 * MS)
            trace.range("FSDP::all_gather", at + 10, at + 5 * MS)
        trace.kernel("gemm", at + MS, at + 3 * MS, launch_ns=at + 1_000)
        sizes: dict[str, Any] = {
            "Collective name": "allreduce",
            "In msg nelems": 1024,
            "dtype": "Float",
            "Group size": 2,
        }
        if isinstance(trace, KinetoBuilder) and not isinstance(trace, JaxBuilder):
            torch_memory(trace, at + 2 * MS, 5_000_000_000 + k, 1_000_000)
            torch_memory(trace, at + 9 * MS, 4_000_000_000 + k, -1_000_000_000)
        trace.kernel("ncclDevKernel_AllReduce", at + 2 * MS, at + 4 * MS, stream=28, launch_ns=at + 2_000, **sizes)
        if not isinstance(trace, JaxBuilder):
            trace.stream_wait(at + 6_000, trace.event_record(at + 5_500, stream=28), stream=7)
    return trace.write(path)


def rocm_step() -> RocpdBuilder:
    """Five chunks, with what rocprofv3 records beside kernels: calls of HSA and RCCL, copies, allocations."""
    trace = RocpdBuilder()
    trace.range("rank=0; pp=0/1 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", 10, 20)
    for k in range(5):
        at = 20 * MS * k + MS
        trace.range(f"forward chunk {k} (phase0) backward chunk {k} (phase1)", at, at + 15 * MS)
        trace.range("layer00.stage2_f", at + 1_000, at + 90_000)
        trace.api("ncclAllReduce", at + 2_000, at + 9_000, category=RCCL)
        trace.kernel("ncclDevKernel_AllReduce", at + 3 * MS, at + 5 * MS + k, stream=28, launch_ns=at + 4_000)
        trace.kernel("gemm", at + MS, at + 4 * MS, launch_ns=at + 20_000)
        outer = trace.api("hipLaunchKernel", at + 30_000, at + 35_000)
        inner = trace.api("hsa_signal_store", at + 31_000, at + 32_000, category=HSA, parent=outer)
        trace.kernel("gelu", at + 6 * MS, at + 7 * MS, correlation=inner)
        trace.memcpy(at + 7 * MS, at + 8 * MS, launch_ns=at + 40_000)
        trace.api("hipStreamSynchronize", at + 50_000, at + 60_000)
        trace.allocate(at + MS, 1_000_001, address=k)
        trace.free(at + 9 * MS, address=k)
    return trace


@functools.cache
def _figures(name: str, text: str) -> Finding:
    """What the undamaged trace says: everything is green."""
    found = Finding()
    path = _gate(good(name).parent, text)
    gate(found, path, good(name), good(name))
    assert found.green, found.failures
    return found


def _gate(folder: Path, text: str | bytes, name: str = "gate.nsys.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path


def exports(random: Random, folder: Path, found: Finding) -> None:
    """A damaged SQLite export."""
    trace = Path(shutil.copy(good(), folder / "broken.sqlite"))
    ways = databases.damage(random, trace)
    gate(found, _gate(folder, OF_EXPORTS), trace, trace)
    _check_green(found, trace, ways)
    command(found, [*random.choice(LOOKS), str(trace)], trace)
    more = (
        ["cut", str(trace), f"--output={folder / 'cut.sqlite'}"],
        ["rows", "overlap_tax_ns", f"--trace={trace}"],
        ["compare", str(good()), str(trace)],
        ["init", str(trace), f"--output={folder / 'new.nsys.yaml'}", f"--baseline-dir={folder / 'stored'}"],
    )
    if random.random() < 0.2:
        command(found, random.choice(more), trace)


def rocpd(random: Random, folder: Path, found: Finding) -> None:
    """A damaged database of rocprofv3."""
    trace = Path(shutil.copy(good("good.db"), folder / "broken.db"))
    ways = databases.damage(random, trace)
    gate(found, _gate(folder, OF_ROCPD), trace, trace)
    _check_green(found, trace, ways, "good.db", OF_ROCPD)
    command(found, [*random.choice(LOOKS), str(trace)], trace)


def _check_green(found: Finding, trace: Path, ways: int, whole: str = "good.sqlite", text: str = OF_EXPORTS) -> None:
    """Green on damaged rows is a failure, unless every figure is that of the undamaged trace.

    Of a file that was changed in several ways nobody knows what its figures would be without the damage.
    """
    if found.green is None:
        return
    try:
        really = truth.totals(trace)
    except truth.Damaged as damage:
        if ways == 1 and found.green != _figures(whole, text).green:
            found.lies += 1
            found.fail(f"green on damaged rows: {damage}")
        return
    if sorted(really.values()) != sorted(total_time(found.green).values()):
        found.lies += 1
        found.fail(f"green, and not what it holds: {really}, {total_time(found.green)}")


def _json(random: Random, folder: Path, found: Finding, kind: str) -> None:
    text = LOOSE.replace("assertions:", f"convention: {kind}\nassertions:")
    for metric in ("exposed_ns", "overlap", "launches", "comm_ns"):
        text = text.replace(f"- {metric}", f"- stage none {metric}")
    whole = good(f"{kind}.json")
    trace = folder / "broken.json"
    trace.write_bytes(texts.broken_json(random, whole.read_text()))
    gate(found, _gate(folder, text), trace, trace)
    look = random.choice([look for look in LOOKS if "steady" not in str(look)])
    command(found, [*look, str(trace), f"--convention={kind}"], trace)


def kineto(random: Random, folder: Path, found: Finding) -> None:
    """A damaged trace of torch.profiler."""
    _json(random, folder, found, "kineto")


def jax(random: Random, folder: Path, found: Finding) -> None:
    """A damaged trace of JAX."""
    _json(random, folder, found, "jax")


def gates(random: Random, folder: Path, found: Finding) -> None:
    """A broken gate file, judged on a good trace."""
    path = _gate(folder, texts.broken_gate(random, random.choice((RICH, RICH, LOOSE))), "broken.nsys.yaml")
    gate(found, path, good(), None)


def matrices(random: Random, folder: Path, found: Finding) -> None:
    """A broken gate file over a matrix, each configuration of it judged on a good trace."""
    path = _gate(folder, texts.broken_gate(random, MATRIX), "broken.nsys.yaml")
    gate(found, path, good(), None)


def measurements(random: Random, folder: Path, found: Finding) -> None:
    """Damaged measurements beside a good trace, alone in a gate, and as one side of a comparison."""
    path = folder / "broken.json"
    path.write_bytes(texts.broken_json(random, MEASURED))
    gate(found, _gate(folder, OF_MEASUREMENTS), good(), path, measurements=(str(path),))
    if found.green is not None and (why := truth.unlike_measurements(path, found.green)):
        found.lies += 1
        found.fail(f"green, and not what it holds: {why}")
    whole = folder / "whole.json"
    whole.write_text(MEASURED)
    sides = [f"--base-measurements={whole}", f"--head-measurements={path}"]
    command(found, ["compare", *random.sample(sides, 2)], path)


def sentences(random: Random, folder: Path, found: Finding) -> None:
    """A sentence that nobody meant."""
    sentence = texts.broken_sentence(random, random.choice(SENTENCES))
    path = _gate(folder, f"version: 1\nassertions:\n  - {sentence!r}\n", "broken.nsys.yaml")
    gate(found, path, good(), None)


@functools.cache
def _stored() -> tuple[Path, str]:
    """The path of the baseline of AGAINST within its folder, and its text."""
    folder = Path(tempfile.mkdtemp(prefix="pytest-nsys-fuzz-"))
    loaded = load_gate_file(_gate(folder, AGAINST))
    with contextlib.closing(CaptureCache()) as library:
        loaded = resolve_gate_convention(loaded, partial(library.choose_convention, [str(good())], Path(), None))
        captures = library.open_captures([str(good())], Path(), loaded.resolved_convention)
        written = store_rows(loaded, captures, find_store(loaded.path, folder / "baselines", folder))
    assert written is not None
    return written.path.relative_to(folder), written.path.read_text()


def baselines(random: Random, folder: Path, found: Finding) -> None:
    """A damaged baseline, and a trace that is held against it."""
    where, text = _stored()
    path = folder / where
    path.parent.mkdir(parents=True)
    path.write_bytes(texts.broken_json(random, text))
    file, trace = _gate(folder, AGAINST), random.choice((good(), _worse()))
    gate(found, file, trace, path)
    command(found, ["baseline", "show", f"--format={random.choice(('table', 'json', 'markdown'))}", str(path)], path)
    with found.step("refreshed"), contextlib.suppress(BaselineError), contextlib.closing(CaptureCache()) as library:
        loaded = resolve_gate_convention(
            load_gate_file(file), partial(library.choose_convention, [str(trace)], Path(), None)
        )
        captures = library.open_captures([str(trace)], Path(), loaded.resolved_convention)
        store_rows(loaded, captures, find_store(loaded.path, folder / "baselines", folder))


@functools.cache
def _worse() -> Path:
    return write_trace(Path(tempfile.mkdtemp(prefix="pytest-nsys-fuzz-")) / "worse.sqlite", 500, edit=rich)


@functools.cache
def _history() -> Path:
    """Three runs of PAST on the good trace, as a session writes them."""
    path = Path(tempfile.mkdtemp(prefix="pytest-nsys-fuzz-")) / "history.db"
    loaded = load_gate_file(_gate(path.parent, PAST))
    with contextlib.closing(CaptureCache()) as library:
        loaded = resolve_gate_convention(loaded, partial(library.choose_convention, [str(good())], Path(), None))
        captures = library.open_captures([str(good())], Path(), loaded.resolved_convention)
        verdict = {"assertion": "exposed_ns", "line": 3, "outcome": "passed", "xfailed": 0}
        for commit in "123":
            series = [collect_series_facts(assertion, captures) for assertion in loaded.assertions]
            revision = Revision(commit * 40, "main", False)
            facts = collect_run_facts(captures, {})
            append_session(path, [RunEntry(loaded.path.name, "run.sqlite", revision, facts, series, {"one": verdict})])
    return path


def histories(random: Random, folder: Path, found: Finding) -> None:
    """A damaged history, listed, and asked for a limit."""
    path = Path(shutil.copy(_history(), folder / "broken.db"))
    databases.damage(random, path)
    gate(found, _gate(folder, PAST), good(), path, path)
    form = random.choice(("table", "json", "csv", "markdown"))
    command(found, ["history", f"--history={path}", f"--format={form}"], path)


KINDS: Mapping[str, Callable[[Random, Path, Finding], None]] = {
    each.__name__: each
    for each in (exports, kineto, jax, rocpd, gates, matrices, sentences, measurements, baselines, histories)
}


def run(kind: str, seed: int, number: int) -> Finding:
    """One input, the same for the same three values."""
    found = Finding()
    with tempfile.TemporaryDirectory(prefix="pytest-nsys-fuzz-") as folder:
        KINDS[kind](Random(f"{seed}/{kind}/{number}"), Path(folder), found)
    return found
