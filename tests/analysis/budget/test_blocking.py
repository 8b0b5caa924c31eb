"""Is the time without compute split as METRICS.md, section 9, says? Held against an oracle that goes gap by gap."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget.budget import Budget, measure_budget
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import NoRows, NothingMeasured
from pytest_nsys.core.model import KernelsMode
from tests.support.measure import captures
from tests.support.reference_data import DUALPIPE, MORE, REAL
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.kineto import KinetoBuilder

PLAIN = replace(BUILT_IN_CONVENTIONS["generic"], anchor="step%")
NCCL = "ncclDevKernel_SendRecv"


# -- a small machine: a host thread that issues work, and streams that run it in order


class Queue(NamedTuple):
    """A stream of a device."""

    device: int
    stream: int


class Op(NamedTuple):
    """What ran: ``compute``, ``collective``, ``copy`` or ``memset``. Its call has a row where ``called`` is known."""

    what: str
    queue: Queue
    start: int
    end: int
    called: int | None
    returned: int


class Record(NamedTuple):
    """Where an event was recorded."""

    queue: Queue
    at: int


class Wait(NamedTuple):
    """From when on a stream waits for a record; None: the trace does not hold it."""

    queue: Queue
    at: int
    on: Record | None


@dataclass
class Machine:
    """One call after the other, each at a time of its own; ``obeys``: whether streams wait as they are told to."""

    obeys: bool = True
    now: int = 0
    ops: list[Op] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    _ready: dict[Queue, int] = field(default_factory=dict)
    _recorded: list[int] = field(default_factory=list)

    def run(
        self, what: str, queue: Queue, after: int = 1, takes: int = 1, slack: int = 0, length: int = 5, row: bool = True
    ) -> None:
        self.now += after
        start = max(self._ready.get(queue, 0), self.now) + slack
        called = self.now if row else None
        self.ops.append(Op(what, queue, start, start + length, called, self.now + takes))
        self._ready[queue] = start + max(length, 1)

    def record(self, queue: Queue) -> None:
        self.now += 1
        self.records.append(Record(queue, self.now))
        self._recorded.append(self._ready.get(queue, 0))

    def wait(self, queue: Queue, pick: int, known: bool = True) -> None:
        """For a record that was made, or that will be made where the machine does not obey."""
        self.now += 1
        if self.records:
            pick %= len(self.records)
            self.waits.append(Wait(queue, self.now, self.records[pick] if known else None))
            if self.obeys:
                self._ready[queue] = max(self._ready.get(queue, 0), self._recorded[pick])


# -- the oracle


class Part(NamedTuple):
    """One gap, and what held it up: (kind, from, until)."""

    start: int
    issued: int
    end: int
    held: tuple[tuple[str, int, int], ...] = ()
    odd: bool = False


def last_before(ops: Sequence[Op], queue: Queue, moment: int) -> Op | None:
    own = [(op.called, op) for op in ops if op.queue == queue and op.called is not None and op.called < moment]
    return max(own)[1] if own else None


def through_waits(machine: Machine, op: Op) -> Iterator[Op]:
    """What an operation waited for: by the waits between the last one launched there before it, and itself."""
    todo, seen = [Record(op.queue, -1 if op.called is None else op.called)], set[Record]()
    while todo:
        queue, moment = todo.pop()
        before = last_before(machine.ops, queue, moment)
        since = -1 if before is None or before.called is None else before.called
        for wait in machine.waits:
            if wait.queue == queue and since < wait.at < moment and wait.on is not None and wait.on not in seen:
                seen.add(wait.on)
                todo.append(wait.on)
                if (last := last_before(machine.ops, *wait.on)) is not None:
                    yield last


def depends_on(machine: Machine, kernel: Op, moment: int) -> tuple[set[Op], bool]:
    """D(N) of METRICS.md, section 9: all that is reached, through what started after the moment; whether something that
    is waited for starts later.
    """
    found, todo, odd = set[Op](), [kernel], False
    while todo:
        op = todo.pop()
        own = [each for each in machine.ops if each.queue == op.queue and (each.start, each.end) < (op.start, op.end)]
        for each in (*sorted(own, key=lambda op: (op.start, op.end))[-1:], *through_waits(machine, op)):
            if each not in found and (each.start < op.start or each in own):
                found.add(each)
                todo += [each] if each.start > moment else []
            odd |= each.start >= op.start and each not in own
    return found, odd


def gaps(compute: Sequence[Op], low: int, high: int) -> Iterator[tuple[int, int]]:
    busy = {tick for op in compute for tick in range(op.start, op.end)}
    start = None
    for tick in range(low, high + 1):
        if tick in busy or tick == high:
            if start is not None:
                yield start, tick
            start = None
        elif start is None:
            start = tick


def contradicted(machine: Machine, device: int, low: int, high: int) -> int:
    return sum(part.odd for part in parts_of(machine, device, low, high))


def expected(machine: Machine, device: int, low: int, high: int) -> list[Part]:
    return [part._replace(odd=False) for part in parts_of(machine, device, low, high)]


def parts_of(machine: Machine, device: int, low: int, high: int) -> list[Part]:
    compute = [op for op in machine.ops if op.what == "compute" and op.queue.device == device and op.end > op.start]
    return [part(machine, device, compute, a, b) for a, b in gaps(compute, low, high)]


def part(machine: Machine, device: int, compute: Sequence[Op], a: int, b: int) -> Part:
    follows = [op for op in compute if op.start >= b]
    if not follows:
        return Part(a, b, b)
    n = min(follows, key=lambda op: (op.start, op.called is None, op.called or 0))
    issued = a if n.called is None else min(b, max(a, n.returned))
    producers, odd = depends_on(machine, n, issued)
    held: list[tuple[str, int, int]] = []
    last: Op | None = None
    for tick in range(issued, b):
        running = [op for op in producers if op.start <= tick < op.end]
        by = min(running, key=lambda op: (-op.end, op.start, op.queue), default=None)
        if by is not None:
            kind = by.what if by.queue.device == device else "other_device"
            if by == last and held[-1][2] == tick:
                held[-1] = (kind, held[-1][1], tick + 1)
            else:
                held.append((kind, tick, tick + 1))
        last = by
    return Part(a, issued, b, tuple(held), odd and issued < b)


# -- the same as a trace


def issued(gpu: Any, machine: Machine, windows: Sequence[tuple[int, int]]) -> Iterator[tuple[Op, int]]:
    """Writes what the host did; each operation, and the correlation of its call."""

    def on(queue: Queue) -> dict[str, int]:
        return {"stream": queue.stream} | ({"context": 1 + queue.device} if isinstance(gpu, Process) else {})

    for low, high in windows:
        gpu.range("step", low, high)
    numbers = {record: gpu.event_record(record.at, **on(record.queue)) for record in machine.records}
    for wait in machine.waits:
        gpu.stream_wait(wait.at, None if wait.on is None else numbers[wait.on], **on(wait.queue))
    for op in machine.ops:
        yield op, 9_999_999 if op.called is None else gpu.api("cudaLaunchKernel", op.called, op.returned)


def nsys(folder: Path, machine: Machine, windows: Sequence[tuple[int, int]]) -> Path:
    gpu = TraceBuilder().process()
    for op, number in issued(gpu, machine, windows):
        place: dict[str, Any] = {"stream": op.queue.stream, "device": op.queue.device, "context": 1 + op.queue.device}
        if op.what in NAMES:
            gpu.kernel(NAMES[op.what], op.start, op.end, correlation=number, launch=False, **place)
        else:
            kind, more = ("MEMCPY", {"copyKind": 1}) if op.what == "copy" else ("MEMSET", {})
            span = gpu.gpu_span(op.start, op.end, number, **place)
            gpu.trace.insert(f"CUPTI_ACTIVITY_KIND_{kind}", **span, **more, bytes=4)
    return gpu.trace.write(folder / "run.sqlite")


NAMES = {"compute": "gemm", "collective": NCCL}


def kineto(folder: Path, machine: Machine, windows: Sequence[tuple[int, int]]) -> Path:
    trace = KinetoBuilder(rank=None)
    for op, number in issued(trace, machine, windows):
        stream = op.queue.stream
        if op.what in NAMES:
            trace.kernel(NAMES[op.what], op.start, op.end, stream=stream, correlation=number)
        else:
            place: dict[str, Any] = {"device": 0, "context": 1, "stream": stream, "correlation": number}
            category, name = {"copy": ("gpu_memcpy", "Memcpy HtoD"), "memset": ("gpu_memset", "Memset")}[op.what]
            trace.event(category, name, op.start, op.end, pid=0, tid=stream, args=place)
    return trace.write(folder / "run.json.gz")


def budgets(path: Path, kernels: KernelsMode, window: str) -> Iterator[tuple[int, int, int, Budget | None]]:
    """Device, bounds and budget of every window that holds kernels; None for one without."""
    with captures(path, convention=PLAIN) as run:
        try:
            ranks = run.runs[0].load_windows(run.make_spec(window, None, kernels)).windows_by_rank
        except NothingMeasured:
            return
        for number, windows in ranks.items():
            for own in windows:
                if len(own):
                    try:
                        yield number, own.start_ns, own.end_ns, measure_budget(own)
                    except NoRows:
                        yield number, own.start_ns, own.end_ns, None


def said(budget: Budget) -> list[Part]:
    """The gaps, whose parts follow each other; between two gaps compute runs."""
    found: list[Part] = []
    for start, end, part, _, by in budget.list_gap_parts():
        gap = found.pop() if found and found[-1].end == start else Part(start, start, start)
        held = (*gap.held, (by.kind, start, end)) if by is not None else gap.held
        starved = part in (BudgetPart.STARVED, BudgetPart.BETWEEN)
        found.append(Part(gap.start, end if starved else gap.issued, end, held))
    return found


def check_adds_up(budget: Budget) -> None:
    parts, lines = said(budget), budget.lines
    assert lines.window_ns == budget.window.length_ns
    assert all(gap.start < gap.end and gap.start <= gap.issued <= gap.end for gap in parts)
    for gap in parts:
        edges = [gap.issued, *(edge for _, start, end in gap.held for edge in (start, end)), gap.end]
        assert edges == sorted(edges)
    assert sum(gap.end - gap.start for gap in parts) == lines.compute_absent_ns
    held_ns = Counter[str]()
    for gap in parts:
        for kind, start, end in gap.held:
            held_ns[kind] += end - start
    assert +held_ns == +Counter(lines.blocking_ns)
    blocking = held_ns.total()
    assert lines.launch_starved_ns + blocking + lines.dependency_stalled_ns == lines.compute_absent_ns
    collective = lines.blocking_ns["collective"]
    assert sum(budget.blocking_comm_ns.values()) == collective <= budget.blocking_comm_max_ns
    assert (
        0 <= lines.stalled_beside_comm_ns <= min(budget.blocking_comm_max_ns - collective, lines.dependency_stalled_ns)
    )
    assert budget.tail_ns <= lines.launch_starved_ns
    assert sum(each.ns for each in budget.list_producers()) == blocking
    assert (
        sum(each.ns for each in budget.list_delays(BudgetPart.BESIDE, BudgetPart.STALLED))
        == lines.dependency_stalled_ns
    )
    assert None not in (lines.device_busy_ns, lines.device_idle_ns)


def check_no_kind_is_blamed_for_longer_than_it_ran(
    machine: Machine, device: int, low: int, high: int, b: Budget
) -> None:
    """Whatever the definition says: what did not run, or ran beside compute, held nothing up."""
    ticks: dict[str, set[int]] = defaultdict(set)
    for op in machine.ops:
        kind = op.what if op.queue.device == device else "other_device"
        ticks[kind] |= {tick for tick in range(op.start, op.end) if low <= tick < high}
    alone = {kind: len(own - ticks["compute"]) for kind, own in ticks.items()}
    assert all(ns <= alone[kind] for kind, ns in b.lines.blocking_ns.items() if ns)
    assert b.blocking_comm_max_ns <= alone.get("collective", 0)


# -- one kernel, and for what it waited

C, A, B = Queue(0, 7), Queue(0, 20), Queue(0, 33)
FIRST, LAST = Op("compute", C, 0, 10, 1, 2), Op("compute", C, 100, 110, 14, 15)


def ran(what: str, queue: Queue, start: int, end: int, called: int) -> Op:
    return Op(what, queue, start, end, called, called + 1)


ON_A, ON_B = ran("collective", A, 5, 40, 3), ran("copy", B, 5, 60, 3)
CASES: dict[str, tuple[list[Op], list[Wait], list[tuple[str, int, int]]]] = {
    "nothing": ([ON_A, ON_B], [], []),
    "its own stream": ([ran("memset", C, 20, 30, 4)], [], [("memset", 20, 30)]),
    "another stream": ([ON_A], [Wait(C, 9, Record(A, 8))], [("collective", 15, 40)]),
    "each for as long as it ran, on its own stream": (
        [ran("collective", C, 20, 70, 4), ran("memset", C, 70, 71, 5)],
        [],
        [("collective", 20, 70), ("memset", 70, 71)],
    ),
    "each for as long as it ran, before a record": (
        [ON_A, ran("copy", A, 42, 45, 4)],
        [Wait(C, 9, Record(A, 8))],
        [("collective", 15, 40), ("copy", 42, 45)],
    ),
    "not what was launched after the record": (
        [ON_A, ran("copy", A, 40, 80, 9)],
        [Wait(C, 12, Record(A, 8))],
        [("collective", 15, 40)],
    ),
    "of two at once the one that ends last": (
        [ON_A, ON_B],
        [Wait(C, 9, Record(B, 7)), Wait(C, 10, Record(A, 8))],
        [("copy", 15, 60)],
    ),
    "of two at once, waited for the other way round": (
        [ON_A, ON_B],
        [Wait(C, 9, Record(A, 7)), Wait(C, 10, Record(B, 8))],
        [("copy", 15, 60)],
    ),
    "of two at once, from when the second one runs": (
        [ON_A, ran("copy", B, 30, 60, 3)],
        [Wait(C, 9, Record(A, 7)), Wait(C, 10, Record(B, 8))],
        [("collective", 15, 30), ("copy", 30, 60)],
    ),
    "of two that end at once the one that started first": (
        [ran("memset", C, 20, 40, 4), ON_A],
        [Wait(C, 9, Record(A, 8))],
        [("collective", 15, 40)],
    ),
    "of two that run at once the one of the first stream": (
        [ran("copy", B, 5, 40, 3), ON_A],
        [Wait(C, 9, Record(B, 7)), Wait(C, 10, Record(A, 8))],
        [("collective", 15, 40)],
    ),
    "a third stream by a relay": ([ON_B], [Wait(A, 7, Record(B, 6)), Wait(C, 9, Record(A, 8))], [("copy", 15, 60)]),
    "what a producer waited for, if that started late": (
        [ran("copy", B, 5, 35, 3), ran("collective", A, 40, 60, 8)],
        [Wait(A, 7, Record(B, 6)), Wait(C, 10, Record(A, 9))],
        [("copy", 15, 35), ("collective", 40, 60)],
    ),
    "not what a producer waited for that was running": (
        [ran("copy", B, 5, 90, 3), ran("collective", A, 12, 30, 8)],
        [Wait(A, 7, Record(B, 6)), Wait(C, 10, Record(A, 9))],
        [("collective", 15, 30)],
    ),
    "a relay over two streams, and the streams before it": (
        [
            ran("memset", B, 16, 20, 3),
            ran("copy", B, 22, 30, 4),
            ran("collective", A, 33, 50, 7),
            ran("memset", C, 55, 58, 11),
        ],
        [Wait(A, 6, Record(B, 5)), Wait(C, 10, Record(A, 9))],
        [("memset", 16, 20), ("copy", 22, 30), ("collective", 33, 50), ("memset", 55, 58)],
    ),
    "no wait from before the operation": (
        [ran("copy", B, 5, 90, 3), ON_A, ran("compute", C, 12, 20, 6)],
        [Wait(C, 5, Record(B, 4)), Wait(C, 9, Record(A, 8))],
        [("collective", 20, 40)],
    ),
    "no wait from after the launch": ([ON_A], [Wait(C, 55, Record(A, 8))], []),
    "a circle of waits": (
        [ON_B, ran("memset", A, 5, 20, 3)],
        [Wait(A, 7, Record(B, 12)), Wait(B, 11, Record(A, 8)), Wait(C, 13, Record(A, 8))],
        [("copy", 15, 60)],
    ),
    "nothing that started after it": (
        [ran("copy", A, 101, 200, 3), ran("memset", C, 20, 30, 4)],
        [Wait(C, 9, Record(A, 8))],
        [("memset", 20, 30)],
    ),
    "what started after it hides nothing that did not": (
        [ran("copy", B, 101, 200, 3), ON_A],
        [Wait(C, 9, Record(B, 7)), Wait(C, 10, Record(A, 8))],
        [("collective", 15, 40)],
    ),
    "nor does it by a relay": (
        [ran("copy", B, 101, 200, 3), ON_A],
        [Wait(A, 6, Record(B, 5)), Wait(C, 10, Record(A, 8))],
        [("collective", 15, 40)],
    ),
    "nothing that started after a producer": (
        [ran("copy", B, 50, 90, 3), ran("collective", A, 20, 40, 8)],
        [Wait(A, 7, Record(B, 6)), Wait(C, 10, Record(A, 9))],
        [("collective", 20, 40)],
    ),
    "what runs beyond it blocks as long as the gap is": ([ran("copy", C, 20, 120, 4)], [], [("copy", 20, 100)]),
    "of what starts with it, what takes no time came before": ([ran("memset", C, 100, 100, 4)], [], []),
    "a record that is not known": ([ON_A], [Wait(C, 9, None)], []),
}


@pytest.mark.parametrize("write", [nsys, kineto])
@pytest.mark.parametrize("case", CASES)
def test_for_what_a_kernel_waited(tmp_path: Path, write: Any, case: str) -> None:
    ops, waits, held = CASES[case]
    machine = Machine(ops=[FIRST, *ops, LAST], waits=waits)
    machine.records = sorted({wait.on for wait in waits if wait.on is not None}, key=lambda record: record.at)
    ((_, low, high, budget),) = budgets(write(tmp_path, machine, [(0, 105)]), KernelsMode.CLIPPED, "median")
    assert budget is not None
    gap = said(budget)[-1]
    assert (gap.end, list(gap.held)) == (100, held)
    assert said(budget) == expected(machine, 0, low, high)
    check_adds_up(budget)


def test_a_chain_of_waits_is_told_by_name_and_by_gap(tmp_path: Path) -> None:
    ops = [ran("memset", C, 20, 30, 4), ran("memset", C, 40, 45, 5), ran("copy", C, 50, 60, 6)]
    machine = Machine(ops=[FIRST, *ops, LAST, ran("memset", C, 112, 118, 15), ran("compute", C, 120, 130, 16)])
    ((*_, budget),) = budgets(nsys(tmp_path, machine, [(0, 130)]), KernelsMode.CLIPPED, "median")
    assert budget is not None
    told = [(each.kind, each.name, each.waiting, each.ns, each.gaps) for each in budget.list_producers()]
    assert told == [("memset", "memset", "gemm", 21, 2), ("copy", "copy", "gemm", 10, 1)]
    assert [(late.ns, late.gaps) for late in budget.list_delays(BudgetPart.BESIDE, BudgetPart.STALLED)] == [(60 + 4, 2)]
    assert (budget.lines.dependency_stalled_ns, budget.lines.contradicted) == (64, 0)


@pytest.mark.parametrize(("start", "end"), [(5, 60), (5, 150), (120, 150)])
def test_a_copy_of_a_device_that_runs_no_kernel_meanwhile_blocks(tmp_path: Path, start: int, end: int) -> None:
    other = Queue(1, 7)
    ops = [ran("compute", C, 10, 20, 6), ran("copy", other, start, end, 7), ran("compute", C, end, 300, 10)]
    machine = Machine(ops=[ran("compute", other, 0, 1, 1), *ops], waits=[Wait(C, 9, Record(other, 8))])
    machine.records = [Record(other, 8)]
    found = budgets(nsys(tmp_path, machine, [(12, 100)]), KernelsMode.CLIPPED, "median")
    ((device, low, high, budget),) = found
    assert budget is not None
    held = (("other_device", max(20, start), min(end, 100)),) if start < 100 else ()
    assert said(budget) == expected(machine, device, low, high) == [Part(20, 20, min(end, 100), held)]


def test_what_another_device_ran_outside_of_its_own_launches_blocks(tmp_path: Path) -> None:
    other, aside = Queue(1, 7), Queue(1, 20)
    ops = [ran("compute", C, 100, 110, 51), ran("compute", C, 200, 300, 56), ran("compute", other, 60, 70, 52)]
    waits = [Wait(C, 54, Record(aside, 53))]
    machine = Machine(ops=[ran("copy", aside, 120, 190, 45), *ops], waits=waits, records=[Record(aside, 53)])
    device, low, high, budget = next(budgets(nsys(tmp_path, machine, [(50, 58)]), KernelsMode.LAUNCHED, "median"))
    assert budget is not None
    told = [Part(110, 110, 200, (("other_device", 120, 190),))]
    assert said(budget) == expected(machine, device, low, high) == told


QUEUES = st.builds(Queue, st.sampled_from([0, 0, 0, 1]), st.sampled_from([7, 20, 33]))
RUNS = st.tuples(
    st.sampled_from(["compute", "compute", "compute", "collective", "copy", "memset"]),
    QUEUES,
    st.integers(1, 12),
    st.integers(1, 25),
    st.sampled_from([0, 0, 0, 1, 9]),
    st.sampled_from([0, 1, 3, 8, 20, 45, 90]),
    st.sampled_from([True, True, True, True, False]),
)
WAITS = st.tuples(QUEUES, st.integers(0, 60), st.sampled_from([True, True, True, True, False]))
EDGES = st.tuples(QUEUES, QUEUES)
"""One stream records, and at once another waits for it."""
STEPS = st.lists(st.one_of(RUNS, RUNS, RUNS, EDGES, EDGES, QUEUES, WAITS), min_size=3, max_size=40)


def played(steps: Sequence[Any], *, obeys: bool = True, devices: int = 2) -> Machine:
    machine = Machine(obeys)
    for device in range(devices):
        machine.run("compute", Queue(device, 7))  # by the kernels of a context its device is known
    for step in steps:
        if isinstance(step, Queue):
            machine.record(step._replace(device=step.device % devices))
        elif len(step) == 2:
            on, queue = (each._replace(device=each.device % devices) for each in step)
            machine.record(on)
            machine.wait(queue, -1)
        elif isinstance(step[0], Queue):
            machine.wait(step[0]._replace(device=step[0].device % devices), *step[1:])
        else:
            machine.run(step[0], step[1]._replace(device=step[1].device % devices), *step[2:])
    return machine


MODES = [*(("steady", mode) for mode in KernelsMode), ("run", KernelsMode.CLIPPED)]


@pytest.mark.parametrize(("write", "devices"), [(nsys, 2), (nsys, 1), (kineto, 1)])
@given(steps=STEPS, length=st.integers(5, 90))
def test_every_gap_is_what_the_text_says(
    tmp_path_factory: pytest.TempPathFactory, write: Any, devices: int, steps: list[Any], length: int
) -> None:
    machine = played(steps, devices=devices)
    windows = [(at, at + length) for at in range(0, 4 * length, length)]
    path = write(tmp_path_factory.mktemp("gaps"), machine, windows)
    for window, mode in MODES:
        for device, low, high, budget in budgets(path, mode, window):
            parts = expected(machine, device, low, high)
            if budget is not None:
                assert said(budget) == parts
                check_adds_up(budget)
                check_no_kind_is_blamed_for_longer_than_it_ran(machine, device, low, high, budget)


@given(steps=STEPS, turns=st.randoms(use_true_random=False))
def test_circles_and_late_producers(tmp_path_factory: pytest.TempPathFactory, steps: list[Any], turns: Any) -> None:
    machine = played(steps, obeys=False)
    known = [wait for wait in machine.waits if wait.on is not None]
    records = [wait.on for wait in known]
    turns.shuffle(records)
    waits = {wait.at: wait for wait in machine.waits}
    waits |= {wait.at: wait._replace(on=on) for wait, on in zip(known, records, strict=True)}
    machine.waits = list(waits.values())
    path = nsys(tmp_path_factory.mktemp("circles"), machine, [(0, 50)])
    for device, low, high, budget in budgets(path, KernelsMode.CLIPPED, "run"):
        if budget is not None:
            assert said(budget) == expected(machine, device, low, high)
            assert budget.lines.contradicted == contradicted(machine, device, low, high)
            check_adds_up(budget)
            check_no_kind_is_blamed_for_longer_than_it_ran(machine, device, low, high, budget)
    for _, _, _, budget in budgets(path, KernelsMode.CLIPPED, "median"):
        if budget is not None:
            check_adds_up(budget)


REAL_TRACES = sorted(
    path for folder in (REAL, MORE, DUALPIPE) for end in ("sqlite", "gz") for path in folder.glob(f"*.{end}")
)


@pytest.mark.reference
@pytest.mark.parametrize("path", REAL_TRACES, ids=lambda path: path.name)
@pytest.mark.sampled(5)
def test_every_real_trace_adds_up(path: Path) -> None:
    for _, _, _, budget in budgets(path, KernelsMode.CLIPPED, "run"):
        assert budget is not None
        check_adds_up(budget)
