"""How long does a gate take, and what does it need? Ratios in one run, against SQLite reading the same tables.

    python -m tests.benchmarks.gate_speed              # 1 M and 5 M kernels: minutes, and 3 GB of disk for the traces
    python -m tests.benchmarks.gate_speed --small      # 20 k kernels: does everything run? (what CI does)

A gate is a cold process, so what is timed is a whole ``pytest`` from start to exit, less pytest's own empty run. Other
plugins are left out of both, and byte code is cached as everywhere. The raw scan is ``SELECT sum(end - start)`` on each
of the three tables, one thread, in a fresh process. Runs alternate, and each figure is the median of ratios within one
round, so that a machine whose speed drifts still compares like with like.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pytest_nsys.samples.dualpipe import StepShape, write_dualpipe
from tests.support.samples.sizes import with_kernels

HERE = Path(__file__).parent
TWENTY = HERE / "twenty.yaml"
BYTE_CODE = Path(tempfile.gettempdir()) / "pytest-nsys-benchmark-bytecode"
RAW = """
import sqlite3, sys, time
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
start = time.perf_counter()
for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
    connection.execute(f'SELECT sum("end" - start) FROM {table}').fetchone()
print(time.perf_counter() - start)
"""
IMPORT = "import pytest, time; t = time.perf_counter(); import pytest_nsys.plugin; print(time.perf_counter() - t)"
WHOLE_RUN = """version: 1
window: run
assertions: [stage4 overlap >= 1%, no mixed comm streams, wall_exposed_ns below 1000 s]
"""
REFERENCE_AGAINST_RAW = {1_000_000: 245, 5_000_000: 272}
"""What the reference's four scripts cost, in raw scans, measured once on another machine."""


@dataclass(frozen=True)
class Spent:
    """One process: wall time and peak resident memory."""

    seconds: float
    peak_mib: float


@dataclass(frozen=True)
class Line:
    """One line of the table: a figure, and what it may be. No target where only the two sides are told."""

    what: str
    figure: float
    target: float | None = None
    unit: str = "x"
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self.target is None:
            return ""
        return "met" if (self.figure >= self.target if self.at_least else self.figure <= self.target) else "MISSED"


def spend(words: Sequence[str], folder: Path, good: Sequence[int] = (0,)) -> Spent:
    """Run a command to its end, and account for it. Raises RuntimeError where it did not end well."""
    start = time.perf_counter()
    process = subprocess.Popen(
        words, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in good:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}:\n{said[-3000:]}")
    return Spent(seconds, usage.ru_maxrss / 1024)


def environment() -> dict[str, str]:
    """As a user's: byte code is cached; but of all plugins only ours is loaded."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPYCACHEPREFIX": str(BYTE_CODE)}


def printed_seconds(code: str, *arguments: str) -> float:
    """What a fresh process of this Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, env=environment(), text=True, check=True
    )
    return float(done.stdout)


class Bench:
    """A folder with a gate folder for each question, and the commands on it."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder, self.rounds = folder, rounds
        self.pytest = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_nsys.plugin", "-p", "no:cacheprovider"]
        (folder / "pytest.ini").write_text("[pytest]\nnsys_baseline_dir = baselines\n")
        (folder / "empty").mkdir(exist_ok=True)
        (folder / "empty" / "test_nothing.py").write_text("def test_nothing(): pass\n")

    def gates(self, name: str, text: str, count: int = 1) -> Path:
        """A folder with ``count`` gate files of one text."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for number in range(count):
            (folder / f"gate{number}.nsys.yaml").write_text(text)
        return folder

    def split(self, name: str, text: str) -> Path:
        """A folder with a gate file for each assertion of ``text``."""
        head, assertions = text.split("assertions:\n")
        folder = self.gates(name, text)
        for number, line in enumerate(assertions.splitlines()):
            (folder / f"gate{number}.nsys.yaml").write_text(f"{head}assertions:\n{line}\n")
        return folder

    def accept(self, gates: Path, trace: Path) -> None:
        """Make the trace the baseline of the gates."""
        update = ["--nsys-update-baselines", "--nsys-reason=benchmark"]
        spend([*self.pytest, str(gates), f"--nsys-trace={trace}", *update], self.folder)

    def judge(self, gates: Path, trace: Path) -> Spent:
        """One gate run, cold to exit."""
        return spend([*self.pytest, str(gates), f"--nsys-trace={trace}"], self.folder)

    def empty(self) -> Spent:
        """pytest's own run of one empty test."""
        return spend([*self.pytest, "empty"], self.folder)

    def median(self, once: Callable[[], float]) -> float:
        """The median over the rounds, after one that warms the page cache."""
        once()
        return statistics.median(once() for _ in range(self.rounds))

    def against_raw(self, gates: Path, trace: Path) -> float:
        """Gate less pytest's empty run, in raw scans."""

        def once() -> float:
            raw = printed_seconds(RAW, str(trace))
            return (self.judge(gates, trace).seconds - self.empty().seconds) / raw

        return self.median(once)

    def against(self, gates: Path, trace: Path, other_gates: Path, other: Path) -> float:
        """One gate run in units of another, each less pytest's empty run."""

        def once() -> float:
            empty = self.empty().seconds
            return (self.judge(gates, trace).seconds - empty) / (self.judge(other_gates, other).seconds - empty)

        return self.median(once)


def make(folder: Path, kernels: int, *, operators: bool = False) -> Path:
    """A trace of about so many kernels on eight ranks, made once and kept."""
    path = folder / f"{kernels}{'_operators' if operators else ''}.sqlite"
    if not path.exists():
        shape = StepShape(pp=2, ep=4, layers=4, text="registered", nccl_ranges=False, operator_ranges=operators)
        write_dualpipe(path, with_kernels(shape, kernels))
    return path


def measure(context: Bench, traces: Path, sizes: Sequence[int]) -> list[Line]:
    """All lines of the table."""
    small, large = sizes
    twenty = context.gates("twenty", TWENTY.read_text())
    lines: list[Line] = []
    made = {size: make(traces, size) for size in sizes}
    for size, target, reference in ((small, 2.0, 100), (large, 1.2, 200)):
        context.accept(twenty, made[size])
        ratio = context.against_raw(twenty, made[size])
        lines.append(Line(f"20 assertions, {size:_} kernels, against the raw scan", ratio, target))
        if size in REFERENCE_AGAINST_RAW:
            faster = REFERENCE_AGAINST_RAW[size] / ratio
            lines.append(Line("  the same, faster than the reference's scripts", faster, reference, at_least=True))
        lines.append(Line("  peak memory", context.judge(twenty, made[size]).peak_mib, 100, "MiB"))
    grown = large / small
    context.accept(twenty, made[large])
    memory_large = context.judge(twenty, made[large]).peak_mib
    context.accept(twenty, made[small])
    memory_small = context.judge(twenty, made[small]).peak_mib
    fixed = context.gates("fixed", "version: 1\nassertions: [stage4 overlap >= 1%, no mixed comm streams]\n")
    lines.append(
        Line(
            f"time as the trace grows {grown:.0f} x",
            context.against(fixed, made[large], fixed, made[small]),
            grown,
        )
    )
    lines.append(Line(f"memory as the trace grows {grown:.0f} x", memory_large / memory_small, 1.3))
    operators = make(traces, small, operators=True)
    context.accept(twenty, operators)
    ratio = context.against_raw(twenty, operators)
    lines.append(Line("operator ranges on every kernel, against the raw scan", ratio, 1.7))
    one, many = context.gates("one", TWENTY.read_text()), context.split("many", TWENTY.read_text())
    copies = context.gates("copies", TWENTY.read_text(), 20)
    for gates in (one, many, copies):
        context.accept(gates, made[small])
    ratio = context.against(many, made[small], one, made[small])
    lines.append(Line("the 20 assertions in 20 gate files against in one", ratio, 1.2))
    ratio = context.against(copies, made[small], one, made[small])
    lines.append(Line("20 copies of the gate file (400 assertions) against one", ratio))
    whole = context.gates("whole", WHOLE_RUN)
    lines.append(Line("whole-run windows, against the raw scan", context.against_raw(whole, made[small]), 12))
    lines.append(Line("  peak memory", context.judge(whole, made[small]).peak_mib, None, "MiB"))
    imported = context.median(lambda: printed_seconds(IMPORT) * 1000)
    lines.append(Line("import of the plugin module", imported, 5, "ms"))
    return lines


def machine() -> str:
    """What the figures were measured on."""
    model = (
        next(
            (
                line.split(":")[1].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if "model name" in line
            ),
            platform.processor(),
        )
        if Path("/proc/cpuinfo").exists()
        else platform.processor()
    )
    return (
        f"{os.cpu_count()} cores, {model}; Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"pytest {version('pytest')}"
    )


def main() -> int:
    """Measure and print the table; 1 where a target is missed (never with --small: it has no scale)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--small", action="store_true", help="20 k and 60 k kernels, one round, no verdict")
    parser.add_argument("--traces", type=Path, help="keep the traces in this folder (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    sizes = (20_000, 60_000) if asked.small else (1_000_000, 5_000_000)
    with tempfile.TemporaryDirectory() as scratch:
        traces = asked.traces or Path(scratch)
        traces.mkdir(parents=True, exist_ok=True)
        work = Path(scratch) / "work"
        work.mkdir()
        lines = measure(Bench(work, 1 if asked.small else asked.rounds), traces, sizes)
    print(machine())
    for line in lines:
        wanted = "" if line.target is None else f"{'>=' if line.at_least else '<='} {line.target:g}"
        print(f"{line.what:58} {line.figure:8.2f} {line.unit:4} {wanted:8} {'' if asked.small else line.verdict}")
    missed = any(line.verdict == "MISSED" for line in lines)
    return int(missed and not asked.small)


if __name__ == "__main__":
    sys.exit(main())
