"""How is everything here measured and told? Cold processes, runs that alternate, and lines with a target.

A figure is the median over rounds of what one round gives. What is divided and what it is divided by ran in the same
round, one after the other, so a machine whose speed drifts still compares like with like.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
BYTE_CODE = Path(tempfile.gettempdir()) / "pytest-nsys-benchmark-bytecode"
RAW = """
import sqlite3, sys, time
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
start = time.CLOCK()
for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
    connection.execute(f'SELECT sum("end" - start) FROM {table}').fetchone()
print(time.CLOCK() - start)
"""


@dataclass(frozen=True)
class Spent:
    """What one process cost, in ``seconds`` of the clock that was asked for, and of memory; and what it said."""

    seconds: float
    wall: float
    processor: float
    """Of user and system, over all threads and cores."""

    peak_mib: float
    said: str


Round = Mapping[str, Spent]


@dataclass(frozen=True)
class Line:
    """One line of the table: a figure of each round, in which unit, and what it may be at most or must be at least."""

    what: str
    unit: str
    figures: Sequence[float]
    most: float | None = None
    least: float | None = None

    @property
    def figure(self) -> float:
        """The median."""
        return statistics.median(self.figures)

    @property
    def verdict(self) -> str:
        """Whether the target is met; empty where there is none."""
        if self.most is None and self.least is None:
            return ""
        if not self.figures:
            return "not measured"
        above = self.most is not None and self.figure > self.most
        below = self.least is not None and self.figure < self.least
        return "MISSED" if above or below else "met"

    def text(self, *, verdict: bool = True) -> str:
        """As it is printed."""
        found = "–"
        if self.figures:
            found = f"{self.figure:.2f}"
            if len(self.figures) > 1:
                found += f" ({min(self.figures):.2f}–{max(self.figures):.2f})"
        wanted = f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}" if self.least is not None else ""
        return f"  {self.what:60} {found:22} {self.unit:12} {wanted:7} {self.verdict if verdict else ''}".rstrip()


@dataclass(frozen=True)
class Group:
    """What belongs together: ``about`` says what the lines divide by. Where a part fails, the others are measured."""

    about: str
    parts: Sequence[Callable[[Bench], Iterable[Line]]]


def spend(
    words: Sequence[str | Path], folder: Path, environment: Mapping[str, str], good: Sequence[int] = (0,)
) -> Spent:
    """Run a command to its end, and account for it. Raises RuntimeError where it did not end well."""
    start = time.perf_counter()
    process = subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in good:
        command = " ".join(map(str, words))
        raise RuntimeError(f"{command} ended with {process.returncode}:\n{said[-3000:]}")
    return Spent(wall, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said)


class Bench:
    """What a group measures with: a folder for traces, one for all else, and the ways to run a process.

    Children are as a user's: byte code is cached; but of its plugins ``pytest`` loads only ours.
    """

    def __init__(
        self, traces: Path, work: Path, *, rounds: int = 5, small: bool = False, processor: bool = False, hta: str = ""
    ) -> None:
        self.traces, self.work, self.small, self.processor, self.hta = traces, work, small, processor, hta
        self.rounds = 1 if small else rounds
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environment = {**kept, "PYTHONPYCACHEPREFIX": str(BYTE_CODE)}
        (work / "pytest.ini").write_text("[pytest]\nnsys_baseline_dir = baselines\n")
        (work / "empty").mkdir()
        (work / "empty" / "test_nothing.py").write_text("def test_nothing(): pass\n")

    def size(self, full: T, small: T) -> T:
        """One of the two."""
        return small if self.small else full

    def alternate(self, **runs: Callable[[], Spent]) -> list[Round]:
        """The runs in turn, round after round; at full size each runs once before, for the caches."""
        if not self.small:
            self.once(**runs)
        return [self.once(**runs) for _ in range(self.rounds)]

    def once(self, **runs: Callable[[], Spent]) -> Round:
        """The runs one after the other: what takes long, on caches that other lines have warmed."""
        return {name: run() for name, run in runs.items()}

    def python(self, *words: str | Path, executable: str = sys.executable, **set: str) -> Spent:
        """A cold Python."""
        spent = spend([executable, *words], self.work, {**self._environment, **set})
        return replace(spent, seconds=spent.processor) if self.processor else spent

    def command(self, *words: str | Path) -> Spent:
        """``pytest-nsys WORDS``, cold to exit."""
        return self.python("-m", "pytest_nsys", *words)

    def pytest(self, *words: str | Path) -> Spent:
        """``pytest WORDS`` with the plugin, cold to exit."""
        own = ("-q", "-p", "pytest_nsys.plugin", "-p", "no:cacheprovider")
        return self.python("-m", "pytest", *own, *words, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")

    def empty(self) -> Spent:
        """pytest's own run of one empty test."""
        return self.pytest("empty")

    def raw(self, trace: Path) -> Spent:
        """SQLite's scan of the three large tables in a fresh process, one thread, without the start of Python."""
        return self.clocked(RAW, trace)

    def clocked(self, code: str, *words: str | Path) -> Spent:
        """A fresh Python that prints the seconds that count, by ``time.CLOCK()`` of its code."""
        clock = "process_time" if self.processor else "perf_counter"
        spent = self.python("-c", code.replace("CLOCK", clock), *words)
        return replace(spent, seconds=float(spent.said))

    def gate(self, name: str, trace: Path, *texts: str) -> Callable[[], Spent]:
        """A run of as many gate files as there are texts; where they ask for a baseline, the trace is its own."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for number, text in enumerate(texts):
            (folder / f"gate{number}.nsys.yaml").write_text(text)
        words = (name, f"--nsys-trace={trace}")
        if any("baseline" in text for text in texts):
            self.pytest(*words, "--nsys-update-baselines", "--nsys-reason=benchmark")
        return lambda: self.pytest(*words)


def less(spent: Spent, start: Spent) -> float:
    """Seconds beyond those of ``start``."""
    return spent.seconds - start.seconds


def seconds(what: str, run: str, rounds: Sequence[Round]) -> Line:
    """What a run took, mostly one that others are divided by."""
    return Line(what, "s", [r[run].seconds for r in rounds])
