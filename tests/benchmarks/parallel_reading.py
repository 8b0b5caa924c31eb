"""How much faster is a run of many traces read by two processes than by one? Ratios in one run.

    python -m tests.benchmarks.parallel_reading           # 12 exports and 6 torch traces, 1.4 GB: minutes
    python -m tests.benchmarks.parallel_reading --small   # does everything run? (what CI does)

Each figure is the whole command ``pytest-nsys rows`` in a process of its own. What the machine gives at best stands
beside it: two processes that only count against one, measured in the same rounds. Figures are medians over rounds.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_nsys.samples.dualpipe import StepShape, write_dualpipe
from tests.benchmarks.kineto_speed import write as write_kineto
from tests.support.samples.sizes import with_kernels

TARGET = 2.0
COUNT = "n = 0\nwhile n < {0}: n += 1"
LOOPS, SMALL_LOOPS = 30_000_000, 1_000_000
NSYS = ("overlap", "exposed_ns", "wall_exposed_ns", "idle_ns")
KINETO = ("wall_overlap", "idle_ns", "busy_ns")


@dataclass(frozen=True)
class Size:
    """How many traces of how many kernels."""

    exports: int
    export_kernels: int
    torch: int
    torch_kernels: int
    loops: int


FULL = Size(12, 300_000, 6, 60_000, LOOPS)
SMALL = Size(3, 3_000, 3, 1_000, SMALL_LOOPS)


def write_exports(folder: Path, size: Size) -> Path:
    """One export of eight ranks for each node: the first is simulated, the others are copies with other ranks."""
    folder.mkdir()
    first = write_dualpipe(
        folder / "node0.sqlite", with_kernels(StepShape(pp=8, ep=1, text="inline"), size.export_kernels)
    )
    for node in range(size.exports):
        path = folder / f"node{node}.sqlite"
        if node:
            shutil.copy(first, path)
    for node in range(size.exports):
        trace = sqlite3.connect(folder / f"node{node}.sqlite")
        with trace:
            for number, text in trace.execute(
                "SELECT rowid, text FROM NVTX_EVENTS WHERE text LIKE 'rank=%'"
            ).fetchall():
                rank = int(text.partition(";")[0].removeprefix("rank="))
                own = text.replace(f"rank={rank};", f"rank={8 * node + rank};").replace(
                    "dp=0/1", f"dp={node}/{size.exports}"
                )
                trace.execute("UPDATE NVTX_EVENTS SET text = ? WHERE rowid = ?", (own, number))
        trace.close()
    return folder


def write_torch(folder: Path, size: Size) -> Path:
    """One trace for each rank."""
    folder.mkdir()
    scratch = folder.with_name("scratch.json")
    write_kineto(scratch, size.torch_kernels)
    text = scratch.read_text(encoding="utf-8")
    for rank in range(size.torch):
        own = text.replace('"rank": 0, "world_size": 8', f'"rank": {rank}, "world_size": {size.torch}')
        (folder / f"rank{rank}_trace.json").write_text(own, encoding="utf-8")
    return folder


def _seconds(*commands: list[str]) -> float:
    """How long the commands take, all at once."""
    start = time.perf_counter()
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands]
    if any(process.wait() for process in started):
        raise SystemExit(f"a command failed: {' '.join(commands[0])}")
    return time.perf_counter() - start


def _read(folder: Path, metrics: tuple[str, ...], convention: str, executor: str) -> float:
    words = [sys.executable, "-m", "pytest_nsys", "rows", *metrics, f"--trace={folder}", f"--convention={convention}"]
    return _seconds([*words, f"--executor={executor}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a few small traces")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    size, rounds = (SMALL, 1) if options.small else (FULL, options.rounds)
    count = [sys.executable, "-c", COUNT.format(size.loops)]
    with tempfile.TemporaryDirectory() as scratch:
        exports, torch = write_exports(Path(scratch, "exports"), size), write_torch(Path(scratch, "torch"), size)
        asked: dict[str, Callable[[str], float]] = {
            f"{size.exports} exports of nsys": lambda executor: _read(exports, NSYS, "pithtrain", executor),
            f"{size.torch} traces of torch.profiler": lambda executor: _read(torch, KINETO, "kineto", executor),
        }
        best: list[float] = []
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
        for _, (name, read) in itertools.product(range(rounds), asked.items()):
            best.append(2 * _seconds(count) / _seconds(count, count))
            found[name].append((read("serial"), read("processes:2")))
    print(f"{'':28}{'one':>8}{'two':>8}{'ratio':>8}{'target':>8}")
    for name, pairs in found.items():
        one, two = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(serial / parallel for serial, parallel in pairs)
        print(f"{name:28}{one:8.2f}{two:8.2f}{ratio:8.2f}{TARGET:8.1f}")
    print(f"two processes that only count, against one: {statistics.median(best):.2f}, the best that there is here")


if __name__ == "__main__":
    main()
