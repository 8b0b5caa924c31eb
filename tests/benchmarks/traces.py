"""Which traces are measured? Written once into one folder: groups share them, and so do runs that keep it."""

import gzip
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from tests.benchmarks.torch_trace import events
from tests.support.samples.builder import PUSH_POP_RANGE, TraceBuilder
from tests.support.samples.dualpipe import StepShape, process_ids, put_machine, put_rank, serialized, write_dualpipe
from tests.support.samples.schema import KERNEL, NVTX, RUNTIME, STRINGS, Export
from tests.support.samples.sizes import with_kernels

LARGE = ((1_000_000, 5_000_000), (20_000, 60_000))
"""Kernels of the two traces that most figures are about: at full size, and small."""

EIGHT_RANKS = StepShape(pp=2, ep=4, layers=4, text="registered", nccl_ranges=False)
NODE_OF_EIGHT = StepShape(pp=8, ep=1, text="inline")
NODE_OF_ONE = StepShape(pp=1, ep=1, layers=1, chunks=5, kernels_per_stage=1, transfers_per_stage=1, text="inline")


def dualpipe(folder: Path, kernels: int, *, operators: bool = False) -> Path:
    """An export of about so many kernels on eight ranks."""
    name = f"{kernels}{'_operators' if operators else ''}.sqlite"
    shape = with_kernels(EIGHT_RANKS, kernels)

    def write(path: Path) -> None:
        pids = process_ids(shape)
        with (_WithOperators if operators else Export)(path) as export:
            put_machine(export, pids)
            for rank, pid in enumerate(pids):
                put_rank(export, shape, rank, pid)

    return kept(folder / name, write)


def shorter(folder: Path, trace: Path) -> Path:
    """The export with kernels that last 7 ns less: another run, to compare with."""

    def write(path: Path) -> None:
        shutil.copy(trace, path)
        with closing(sqlite3.connect(path)) as export, export:
            export.execute(f"UPDATE {KERNEL} SET end = end - 7 WHERE end - start > 1000")

    return kept(folder / f"shorter_{trace.name}", write)


class _WithOperators(Export):
    """An export with a range around each launch, as of PyTorch's ``emit_nvtx``: no two have the same name."""

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        super().put(table, columns, rows)
        if table == RUNTIME:
            names = map(
                self.strings.id_of, ("cudaLaunchKernel_v7000", "cuLaunchKernelEx", "cudaLaunchKernelExC_v11060")
            )
            of_launch, at = frozenset(names), columns.index("nameId")
            launches = [(self.strings.next_id(), *row[:4]) for row in rows if row[at] in of_launch]
            super().put(STRINGS, ("id", "value"), [(name, f"aten::op, seq = {name}") for name, *_ in launches])
            ranges = [(start - 100, end + 100, PUSH_POP_RANGE, tid, name, 0) for name, start, end, _, tid in launches]
            super().put(NVTX, ("start", "end", "eventType", "globalTid", "textId", "domainId"), ranges)


def distinct_names(folder: Path, kernels: int) -> Path:
    """An export of one process in which each kernel has a name of its own."""
    return kept(folder / f"{kernels}_names.sqlite", lambda path: _of_one_process(path, range(kernels)))


def unmarked(folder: Path, kernels: int, *, shuffled: bool = False) -> Path:
    """An export of one process without a range but that of its start: steps of 64 layers, or kernels in no order."""
    layers = [*range(10, 40)] * 32 + [*range(20, 60)] * 32
    step = [*range(10), *layers, *range(60, 90)]
    numbers = (step * (kernels // len(step) + 1))[:kernels]
    if shuffled:
        Random(1).shuffle(numbers)
    name = f"{kernels}_{'shuffled' if shuffled else 'unmarked'}.sqlite"
    return kept(folder / name, lambda path: _of_one_process(path, numbers))


def _of_one_process(path: Path, numbers: Sequence[int]) -> None:
    """Write kernels that are launched one after the other, each called by its number."""
    pid, kernels = 100, len(numbers)
    process = serialized(pid)
    with Export(path) as export:
        put_machine(export, [pid])
        launch = export.strings.id_of("cudaLaunchKernel_v7000")
        launches = [(10_000 * n, 10_000 * n + 3_000, 0, process | pid, n, launch) for n in range(kernels)]
        export.put(RUNTIME, ("start", "end", "eventClass", "globalTid", "correlationId", "nameId"), launches)
        export.put(
            NVTX,
            ("start", "end", "eventType", "globalTid", "text", "domainId"),
            [(0, 1, PUSH_POP_RANGE, process | pid, "start", 0)],
        )
        names = {number: export.strings.next_id() for number in dict.fromkeys(numbers)}
        export.put(STRINGS, ("id", "value"), [(name, f"void kernel<{number}>(int)") for number, name in names.items()])
        rows = [
            (10_000 * n + 5_000, 10_000 * n + 9_000, n, 0, 1, 7, process, *[names[number]] * 3)
            for n, number in enumerate(numbers)
        ]
        columns = "start end correlationId deviceId contextId streamId globalPid shortName demangledName mangledName"
        export.put(KERNEL, columns.split(), rows)


def nodes(folder: Path, name: str, shape: StepShape, count: int) -> Path:
    """A folder with one export for each node: one is simulated, the others are copies whose ranks are the next ones."""

    def write(path: Path) -> None:
        path.mkdir()
        first = write_dualpipe(path / "node0.sqlite", shape)
        for node in range(1, count):
            shutil.copy(first, path / f"node{node}.sqlite")
        for node in range(count):
            with closing(sqlite3.connect(path / f"node{node}.sqlite")) as export, export:
                export.execute("PRAGMA synchronous = OFF")
                # No kernel of another node lasts as long to the nanosecond: else it would be the same capture.
                export.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end - ? WHERE end - start > 1000", (node,))
                labels = export.execute("SELECT rowid, text FROM NVTX_EVENTS WHERE text LIKE 'rank=%'").fetchall()
                for row, text in labels:
                    rank = int(text.partition(";")[0].removeprefix("rank="))
                    own = text.replace(f"rank={rank};", f"rank={shape.world * node + rank};")
                    own = own.replace("dp=0/1", f"dp={node}/{count}")
                    export.execute("UPDATE NVTX_EVENTS SET text = ? WHERE rowid = ?", (own, row))

    return kept(folder / f"{count}_{name}", write)


def torch(folder: Path, kernels: int) -> Path:
    """A trace of torch.profiler; beside it the same packed, as ``.json.gz``."""

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(events(kernels))

    def pack(path: Path) -> None:
        with plain.open("rb") as file, gzip.open(path, "wb", compresslevel=6) as packed:
            shutil.copyfileobj(file, packed, 1 << 20)

    plain = kept(folder / f"{kernels}_rank0_trace.json", write)
    kept(plain.with_name(f"{plain.name}.gz"), pack)
    return plain


def torch_ranks(folder: Path, kernels: int, ranks: int) -> Path:
    """A folder with a trace of torch.profiler for each rank."""

    def write(path: Path) -> None:
        path.mkdir()
        for rank in range(ranks):
            with (path / f"rank{rank}_trace.json").open("w", encoding="utf-8") as file:
                file.writelines(events(kernels, rank, ranks))

    return kept(folder / f"{ranks}_ranks_of_{kernels}", write)


def crowd(folder: Path, processes: int, streams: int) -> Path:
    """An export of so many processes, with a kernel on each of so many streams of every process, in five steps."""

    def write(path: Path) -> None:
        trace = TraceBuilder()
        for number in range(processes):
            process = trace.process(pid=1 + number)
            process.range(f"rank={number}; pp=0/1 dp={number}/{processes} cp=0/1 ep=0/1; mbs=1 seq=2048", 10, 20)
            for step in range(5):
                at = 1_000 + 1_000_000 * step
                process.range(f"forward chunk {step} (phase1) backward chunk {step} (phase0)", at, at + 900_000)
                for stream in range(streams):
                    begin = at + 10_000 + 50 * stream
                    name = "ncclDevKernel_SendRecv" if stream % 2 else "gemm"
                    process.kernel(name, begin, begin + 100, stream=7 + stream, launch_ns=at + 1 + stream)
        trace.write(path)

    return kept(folder / f"{processes}_processes_{streams}_streams.sqlite", write)


def kept(path: Path, write: Callable[[Path], object]) -> Path:
    """``path``, written where it is not there yet: whole or not at all, and by a process of its own.

    A child's peak of memory is never told as less than that of who started it: the benchmark has to stay small.
    """
    if not path.exists():
        draft = path.with_name(f"draft_{path.name}")
        shutil.rmtree(draft, ignore_errors=True)
        writer = get_context("fork").Process(target=write, args=(draft,))
        writer.start()
        writer.join()
        if writer.exitcode:
            raise RuntimeError(f"{path} could not be written")
        draft.rename(path)
    return path
