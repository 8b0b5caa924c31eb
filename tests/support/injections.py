"""What may go wrong with a run, put into any trace: a slower step, lost kernels, longer communication, more syncs.

A :class:`Tape` is what all formats have in common: kernels that can be changed one by one, and a clock that can be
stretched. :class:`SqliteTape` reads and writes exports of nsys, :class:`JsonTape` events of torch.profiler and JAX,
with a file for each process. A fault changes a tape in place.
"""

import gzip
import json
import sqlite3
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from shutil import copyfile
from typing import Any

from pytest_nsys.analysis.windows.run import Run

Clock = Callable[[int], int]

SYNC = "cudaDeviceSynchronize"
ROUNDED_NS = 1_000
"""By how much less a float of microseconds since 1970 is off."""


@dataclass
class Kernel:
    """A kernel of a process. ``at`` is where its record stands; a copy of a kernel has the same."""

    process: int
    name: str
    start_ns: int
    end_ns: int
    at: Any

    @property
    def communicates(self) -> bool:
        return "nccl" in self.name.lower()

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


class Tape(ABC):
    """The kernels of a trace by start, and by process the starts of its steps, of which there may be none."""

    def __init__(self, kernels: Iterable[Kernel], steps: Mapping[int, Sequence[int]]) -> None:
        self.kernels = sorted(kernels, key=lambda kernel: (kernel.start_ns, kernel.end_ns))
        self.steps = {process: sorted(starts) for process, starts in steps.items()}

    @property
    def processes(self) -> list[int]:
        """Those with kernels."""
        return sorted({kernel.process for kernel in self.kernels})

    @property
    def span(self) -> tuple[int, int]:
        """From the first start to the last end of all kernels."""
        return self.kernels[0].start_ns, max(kernel.end_ns for kernel in self.kernels)

    def of(self, *, communicating: bool) -> list[Kernel]:
        """The kernels that communicate, or all others."""
        return [kernel for kernel in self.kernels if kernel.communicates is communicating]

    def lose(self, lost: Iterable[Kernel]) -> None:
        """They were never recorded."""
        gone = set(map(id, lost))
        self.kernels = [kernel for kernel in self.kernels if id(kernel) not in gone]

    def pass_on(self, clock: Clock, process: int | None = None, *, rigid: bool = True) -> None:
        """Everything of the process, or of all, happens when the clock says; ``rigid`` kernels keep their lengths."""
        for kernel in self.kernels:
            if process in (None, kernel.process):
                length, kernel.start_ns = kernel.length_ns, clock(kernel.start_ns)
                kernel.end_ns = kernel.start_ns + length if rigid else clock(kernel.end_ns)
        self._pass_on(clock, process)

    @abstractmethod
    def _pass_on(self, clock: Clock, process: int | None) -> None:
        """The same for all that is no kernel."""

    @abstractmethod
    def sync(self, process: int, at_ns: int) -> None:
        """The CPU waits for the GPU."""

    @abstractmethod
    def allocate_double(self) -> None:
        """Every allocation takes twice the memory."""

    @abstractmethod
    def write(self, path: Path) -> Path:
        """Write the trace as it is now, under this name without its endings; its path."""


class SqliteTape(Tape):
    """An export of nsys."""

    def __init__(self, path: Path, steps: Mapping[int, Sequence[int]]) -> None:
        self.path, self._doubled = path, False
        self._clocks: list[tuple[Clock, int | None]] = []
        self._syncs: list[tuple[int, int]] = []
        with closing(sqlite3.connect(path)) as database:
            kernels = database.execute(
                "SELECT k.rowid, globalPid, value, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                "JOIN StringIds s ON s.id = k.shortName"
            ).fetchall()
        super().__init__((Kernel(pid, name, start, end, at) for at, pid, name, start, end in kernels), steps)

    def _pass_on(self, clock: Clock, process: int | None) -> None:
        self._clocks.append((clock, process))

    def sync(self, process: int, at_ns: int) -> None:
        self._syncs.append((process, at_ns))

    def allocate_double(self) -> None:
        self._doubled = True

    def write(self, path: Path) -> Path:
        path = path.with_suffix(".sqlite")
        copyfile(self.path, path)
        path.chmod(0o644)
        with closing(sqlite3.connect(path)) as database, database:
            self._write_times(database)
            self._write_kernels(database)
            self._write_syncs(database)
            if self._doubled:
                database.execute("UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET bytes = 2 * bytes")
        return path

    def _write_times(self, database: sqlite3.Connection) -> None:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for clock, process in self._clocks:

            def moved(time_ns: int | None, owner: int | None, clock: Clock = clock, only: int | None = process) -> Any:
                own = only is None or (owner is not None and owner & ~0xFFFFFF == only)
                return clock(time_ns) if own and time_ns is not None and time_ns > 0 else time_ns

            database.create_function("moved", 2, moved)
            for table in tables:
                columns = {column for _, column, *_ in database.execute(f"PRAGMA table_info({table})")}
                owner = next((each for each in ("globalTid", "globalPid") if each in columns), None)
                if "start" in columns and owner and not table.endswith("_KERNEL"):
                    sets = ", ".join(f"{each} = moved({each}, {owner})" for each in ("start", "end") if each in columns)
                    database.execute(f"UPDATE {table} SET {sets}")

    def _write_kernels(self, database: sqlite3.Connection) -> None:
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        columns = [f'"{name}"' for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
        rows = {
            row[0]: dict(zip(columns, row[1:], strict=True))
            for row in database.execute(f"SELECT rowid, * FROM {table}")
        }
        names = {name: number for number, name in database.execute("SELECT id, value FROM StringIds")}
        fresh = max(names.values()) + 1
        database.execute(f"DELETE FROM {table}")
        for kernel in self.kernels:
            row = {**rows[kernel.at], '"start"': kernel.start_ns, '"end"': kernel.end_ns}
            if kernel.name not in names:
                names[kernel.name], fresh = fresh, fresh + 1
                database.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (names[kernel.name], kernel.name))
            if row['"shortName"'] != names[kernel.name]:
                row |= dict.fromkeys(('"shortName"', '"demangledName"'), names[kernel.name])
            places = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", [*row.values()])

    def _write_syncs(self, database: sqlite3.Connection) -> None:
        if not self._syncs:
            return
        (number,) = database.execute("SELECT max(id) + 1 FROM StringIds").fetchone()
        database.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (number, SYNC))
        for process, at_ns in self._syncs:
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, nameId, returnValue) "
                "VALUES (?, ?, 0, (SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid & ~16777215 = ? "
                "LIMIT 1), ?, 0)",
                (at_ns, at_ns + 1_000, process, number),
            )


class JsonTape(Tape):
    """Events of torch.profiler or JAX: a file, or a folder with one for each process."""

    def __init__(self, path: Path, steps: Mapping[int, Sequence[int]]) -> None:
        self.path = path
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        self._roots = {each.name: json.loads(gzip.decompress(each.read_bytes())) for each in files}
        kernels: list[Kernel] = []
        self._others: list[tuple[int, dict[str, Any]]] = []
        for process, root in enumerate(self._roots.values()):
            lanes = {
                (event["pid"], event.get("tid"))
                for event in root["traceEvents"]
                if event.get("name") == "thread_name" and event["args"]["name"].startswith("Stream #")
            }
            for event in root["traceEvents"]:
                if event.get("ph") == "X" and (event.get("cat") == "kernel" or (event["pid"], event["tid"]) in lanes):
                    start, end = _ns(event["ts"]), _ns(event["ts"]) + _ns(event["dur"])
                    kernels.append(Kernel(process, event["name"], start, end, event))
                elif "ts" in event:
                    self._others.append((process, event))
        super().__init__(kernels, steps)

    def _pass_on(self, clock: Clock, process: int | None) -> None:
        for own, event in self._others:
            if process in (None, own):
                start = _ns(event["ts"])
                if "dur" in event:
                    event["dur"] = (clock(start + _ns(event["dur"])) - clock(start)) / 1000
                event["ts"] = clock(start) / 1000

    def sync(self, process: int, at_ns: int) -> None:
        calls = [event for own, event in self._others if own == process and _is_call(event)]
        name = SYNC if "cat" in calls[0] else "hipDeviceSynchronize"
        place = {key: value for key, value in calls[0].items() if key in ("ph", "cat", "pid", "tid")}
        self._others.append((process, {**place, "name": name, "ts": at_ns / 1000, "dur": 1, "args": {}}))

    def allocate_double(self) -> None:
        for _, event in self._others:
            if event["name"] == "[memory]":
                event["args"] |= {key: 2 * event["args"][key] for key in ("Bytes", "Total Allocated")}

    def write(self, path: Path) -> Path:
        for process, (name, root) in enumerate(self._roots.items()):
            events = [event for event in root["traceEvents"] if "ts" not in event]
            events += [event for own, event in self._others if own == process]
            events += [_event(kernel) for kernel in self.kernels if kernel.process == process]
            target = path / name if self.path.is_dir() else path.with_name(f"{path.name}.json.gz")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(gzip.compress(json.dumps({**root, "traceEvents": events}).encode(), 1))
        return path if self.path.is_dir() else target


def _ns(microseconds: float) -> int:
    return round(1000 * microseconds)


def _is_call(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "cuda_runtime" or ("cat" not in event and str(event.get("name")).startswith("hip"))


def _event(kernel: Kernel) -> dict[str, Any]:
    return {**kernel.at, "name": kernel.name, "ts": kernel.start_ns / 1000, "dur": kernel.length_ns / 1000}


def tape(path: Path, run: Run | None = None) -> Tape:
    """The tape of a trace, whose steps begin at the anchors of ``run``: the same trace, opened."""
    ranks = () if run is None else run.ranks
    steps = {rank.process: [each.start_ns - ROUNDED_NS for each in run.find_anchors(rank)] for rank in ranks if run}
    if path.suffix == ".sqlite":
        return SqliteTape(path, {process.global_pid: starts for process, starts in steps.items()})
    return JsonTape(path, {process.trace: starts for process, starts in steps.items()})


# The faults


def _later(at: Sequence[int], by_ns: int) -> Clock:
    """A clock that stands still for ``by_ns`` at each of these times."""
    return lambda time_ns: time_ns + by_ns * bisect_right(at, time_ns)


def _slower(origin: int, percent: int) -> Clock:
    return lambda time_ns: time_ns + max(0, time_ns - origin) * percent // 100


def longer_step(on: Tape) -> None:
    """Everything takes 10 % longer."""
    on.pass_on(_slower(on.span[0], 10), rigid=False)


def slow_rank(on: Tape) -> None:
    """On the last rank everything takes 15 % longer."""
    on.pass_on(_slower(on.span[0], 15), on.processes[-1], rigid=False)


def loader_stall(on: Tape) -> None:
    """Before each step but the first nothing happens for 31 % of a step."""
    for process, starts in on.steps.items():
        usual = (starts[-1] - starts[0]) // max(1, len(starts) - 1)
        on.pass_on(_later(starts[1:], usual * 31 // 100), process)


def stretched_gaps(on: Tape) -> None:
    """Each kernel is launched a little later after the one before, together 10 % of the time."""
    begin, end = on.span
    for process in on.processes:
        starts = [kernel.start_ns for kernel in on.kernels if kernel.process == process]
        on.pass_on(_later(starts, (end - begin) // (10 * len(starts))), process)


def slower_compute(on: Tape) -> None:
    """Each compute kernel runs 10 % longer and nothing moves: it hides more communication."""
    for kernel in on.of(communicating=False):
        kernel.end_ns += kernel.length_ns // 10


def stretched(on: Tape, name: str, percent: int, processes: Collection[int] | None = None) -> None:
    """Each kernel whose name holds ``name`` takes so much longer, and so does what its process does from then on."""
    for process in on.processes if processes is None else processes:
        own = [kernel for kernel in on.kernels if kernel.process == process and name in kernel.name]
        own.sort(key=lambda kernel: kernel.end_ns)
        more = [kernel.length_ns * percent // 100 for kernel in own]
        on.pass_on(partial(_after, [kernel.end_ns for kernel in own], [*accumulate(more, initial=0)]), process)
        for kernel, ns in zip(own, more, strict=True):
            kernel.end_ns += ns


def _after(ends: Sequence[int], added: Sequence[int], time_ns: int) -> int:
    """``added`` is how much later it is from each of the ends on."""
    return time_ns + added[bisect_right(ends, time_ns)]


def half_lost(on: Tape) -> None:
    """Every second kernel."""
    on.lose(on.kernels[::2])


def third_replaced(on: Tape) -> None:
    """Every third kernel is another one, as long as it was."""
    for number, kernel in enumerate(on.of(communicating=False)[::3]):
        kernel.name = f"another_kernel_{number % 7}"


def renamed_communication(on: Tape) -> None:
    """Nobody knows that it communicates any more."""
    for kernel in on.of(communicating=True):
        kernel.name = "transport_kernel"


def no_communication(on: Tape) -> None:
    """Nothing communicates."""
    on.lose(on.of(communicating=True))


def half_communication(on: Tape) -> None:
    """Every second communication kernel."""
    on.lose(on.of(communicating=True)[::2])


def longer_communication(on: Tape) -> None:
    """Each communication kernel runs twice as long."""
    for kernel in on.of(communicating=True):
        kernel.end_ns += kernel.length_ns


def longest_communication_lost(on: Tape) -> None:
    """The longest fifth of the communication kernels."""
    by_length = sorted(on.of(communicating=True), key=lambda kernel: -kernel.length_ns)
    on.lose(by_length[: len(by_length) // 5])


def duplicated(on: Tape) -> None:
    """Each kernel is there twice."""
    on.kernels += [replace(kernel) for kernel in on.kernels]


def hole(on: Tape) -> None:
    """The fifth in the middle."""
    on.lose(on.kernels[2 * len(on.kernels) // 5 : 3 * len(on.kernels) // 5])


def late_start(on: Tape) -> None:
    """The first 40 %."""
    on.lose(on.kernels[: 2 * len(on.kernels) // 5])


def more_syncs(on: Tape) -> None:
    """60 on each rank, evenly over the run."""
    begin, end = on.span
    for process in on.processes:
        for number in range(60):
            on.sync(process, begin + (end - begin) * number // 60)


def doubled_memory(on: Tape) -> None:
    """Every allocation takes twice the memory."""
    on.allocate_double()


def noise(on: Tape) -> None:
    """No fault: on each rank everything takes up to 4 % longer, more or less of it in each hundredth of the run."""
    begin, end = on.span
    marks = [begin + (end - begin) * part // 100 for part in range(100)]
    for process in on.processes:
        random = Random(process)
        added = [*accumulate((random.randrange((end - begin) // 2_500) for _ in marks), initial=0)]
        on.pass_on(partial(_at_many_speeds, marks, added), process, rigid=False)


def _at_many_speeds(marks: Sequence[int], added: Sequence[int], time_ns: int) -> int:
    """``added`` is how much later it is at each mark; between two of them the clock goes evenly."""
    place = bisect_right(marks, time_ns) - 1
    if place < 0:
        return time_ns
    along = (added[place + 1] - added[place]) * (time_ns - marks[place]) // (marks[1] - marks[0])
    return time_ns + added[place] + along


FAULTS: Mapping[str, Callable[[Tape], None]] = {
    "step +10%": longer_step,
    "loader stall between steps": loader_stall,
    "compute +10% in place": slower_compute,
    "half the kernels": half_lost,
    "a third replaced": third_replaced,
    "NCCL renamed": renamed_communication,
    "one rank +15%": slow_rank,
    "60 syncs more": more_syncs,
    "launch gaps stretched": stretched_gaps,
    "communication removed": no_communication,
    "communication halved": half_communication,
    "communication twice as long": longer_communication,
    "longest fifth of communication lost": longest_communication_lost,
    "kernels duplicated": duplicated,
    "a hole": hole,
    "first 40% lost": late_start,
    "memory doubled": doubled_memory,
}
