"""How often is a table passed, and what does it cost that there are many of something? Counted, never timed."""

import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_nsys.analysis.facts.steps import find_empty_anchors
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.model import OPEN_END_NS
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.sqlite.file import SqliteFile
from tests.support.bad_traces import waiting
from tests.support.gates import ANCHOR, MS, Project
from tests.support.samples.builder import TraceBuilder

TABLE = re.compile(r'FROM "?(CUPTI_ACTIVITY_KIND_(?:KERNEL|RUNTIME|MEMCPY|SYNCHRONIZATION|CUDA_EVENT)|NVTX_EVENTS)')

AT_ONCE = re.compile(r"^SELECT 1 |max\(rowid\)|WHERE rowid IN|BETWEEN \S+ AND \S+ AND end >|LIMIT 0$")
"""What asks for a row, for the last, for one of some or for none: at once, however large the table is."""

THAT_HAVE_NO_WORK = 1
"""The pass that looks for calls whose kernels were lost."""

Passes = Callable[[], Counter[str]]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """How many statements read each large table so far."""
    asked: list[str] = []
    connect = SqliteFile._connect

    def traced(file: SqliteFile) -> sqlite3.Connection:
        connection = connect(file)
        connection.set_trace_callback(asked.append)
        return connection

    monkeypatch.setattr(SqliteFile, "_connect", traced)

    def counted() -> Counter[str]:
        tables = (TABLE.search(sql) for sql in asked if not AT_ONCE.search(sql))
        return Counter(table[1] for table in tables if table is not None)

    return counted


def test_a_gate_on_one_window_passes_kernels_and_calls_once(project: Project, passes: Passes) -> None:
    project.trace(edit=waiting)
    project.gate(
        "convention: pithtrain\n"
        "assertions:\n  - stage2 overlap >= 1%\n  - no mixed comm streams\n  - p90 idle_ns < 1 s\n"
        "  - balance of compute_ns across pp <= 2\n  - p50 period_ns < 1 s\n  - anchors >= 3\n  - barrier_ns < 1 s"
    )
    assert {case.state for case in project.judged().values()} == {"passed"}
    labels_and_anchors, around_the_window, for_impossible_rows = 1, 1, 1
    assert passes() == {
        "CUPTI_ACTIVITY_KIND_KERNEL": around_the_window + for_impossible_rows,
        "CUPTI_ACTIVITY_KIND_RUNTIME": 1 + THAT_HAVE_NO_WORK,
        "NVTX_EVENTS": labels_and_anchors + around_the_window,
    }


def test_the_budget_of_one_window_passes_waits_and_their_records_once(project: Project, passes: Passes) -> None:
    project.trace(edit=waiting)
    parts = ("launch_starved_ns", "blocking_ns", "dependency_stalled_ns", "blocking_comm_ns", "blocking_comm_max_ns")
    project.gate("convention: pithtrain\nassertions:\n" + "".join(f"  - {part} < 1 s\n" for part in parts))
    assert {case.state for case in project.judged().values()} == {"passed"}
    in_the_window, behind_the_window, where_events_are = 1, 1, 1
    all_contexts, for_impossible_rows = 1, 1
    labels_and_anchors, around_the_window = 1, 1
    assert passes() == {
        "CUPTI_ACTIVITY_KIND_KERNEL": in_the_window + behind_the_window + all_contexts + for_impossible_rows,
        "CUPTI_ACTIVITY_KIND_RUNTIME": in_the_window + behind_the_window + where_events_are + THAT_HAVE_NO_WORK,
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": 1,
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": 1,
        "NVTX_EVENTS": labels_and_anchors + around_the_window,
    }


def test_a_gate_on_the_budget_of_one_window_reads_on_to_the_next_compute(project: Project, passes: Passes) -> None:
    project.trace()
    project.gate(
        "convention: pithtrain\nassertions:\n  - launch_starved_ns <= 14ms\n  - blocking_ns of copy <= 1us\n"
        "  - dependency_stalled_ns <= 1ms\n  - blocking_comm_ns <= 1ms\n  - blocking_comm_max_ns <= 1ms\n"
        "  - compute_absent_ns <= 14ms"
    )
    assert {case.state for case in project.judged().values()} == {"passed"}
    labels_and_anchors, around_the_window, after_it, for_impossible_rows = 1, 1, 1, 1
    assert passes() == {
        "CUPTI_ACTIVITY_KIND_KERNEL": around_the_window + after_it + for_impossible_rows,
        "CUPTI_ACTIVITY_KIND_RUNTIME": around_the_window + after_it + THAT_HAVE_NO_WORK,
        "NVTX_EVENTS": labels_and_anchors + around_the_window,
    }


def test_copies_are_passed_once_for_all_ranks(tmp_path: Path, passes: Passes) -> None:
    trace = TraceBuilder()
    for number in range(4):
        process = trace.process(pid=1 + number)
        process.range(f"rank={number}; pp=0/1 dp={number}/4 cp=0/1 ep=0/1; mbs=1 seq=2048", 1, 2)
        for step in range(3):
            process.range(ANCHOR.format(step), (1 + step) * MS, (1 + step) * MS + MS // 2)
            process.kernel("gemm", (1 + step) * MS + 20, (1 + step) * MS + 30, launch_ns=(1 + step) * MS + 10)
            process.memcpy((1 + step) * MS + 40, (1 + step) * MS + 50, launch_ns=(1 + step) * MS + 35)
    run = Run([NsysSqlite(trace.write(tmp_path / "trace.sqlite"))], BUILT_IN_CONVENTIONS["pithtrain"])
    windows = [*run.load_windows(WindowSpec("steady"))]
    before = passes()
    spans = [(window.window.start_ns, window.window.end_ns) for window in windows]
    found = [window.track.select_copies(span) for window, span in zip(windows, spans, strict=True)]
    assert [[copy.start_ns - low for copy in own or ()] for own, (low, _) in zip(found, spans, strict=True)] == [
        [40]
    ] * len(windows)
    assert passes() - before == {"CUPTI_ACTIVITY_KIND_MEMCPY": 1, "CUPTI_ACTIVITY_KIND_RUNTIME": 1}


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.sampled(2)
def test_more_processes_than_sqlite_may_nest_comparisons(tmp_path: Path, passes: Passes, labelled: bool) -> None:
    count = 1_200  # an expression of SQLite may be 1 000 deep
    trace = TraceBuilder()
    for number in range(count):
        process = trace.process(pid=1_000 + number)
        if labelled:
            process.range(f"rank={number}; pp=0/1 dp={number}/{count} cp=0/1 ep=0/1; mbs=1 seq=2048", 1, 2)
        for step in range(2):
            process.range(ANCHOR.format(step), step * MS + number, step * MS + number + MS // 2)
        process.kernel("gemm", MS + number + 20, MS + number + 30, launch_ns=MS + number + 10)
        process.kernel("gemm", number + 20, number + 30, launch_ns=number + 10)
    run = Run([NsysSqlite(trace.write(tmp_path / "trace.sqlite"))], BUILT_IN_CONVENTIONS["pithtrain"])
    group = run.load_windows(WindowSpec())
    windows = list(group)
    assert len(windows) == count
    for number, window in enumerate(windows):
        assert list(window.kernels.start_ns) == [MS + number + 20]
        assert list(window.track.launch_ns) == [MS + number + 10]
        assert window.communication_by_stage == {}
    assert find_empty_anchors(group) == []
    late = {rank.lane: [(MS + rank.number + 30 - rank.number % 2, OPEN_END_NS)] for rank in run.ranks}
    assert {*run.traces[0].idle(late)} == {rank.lane for rank in run.ranks if not rank.number % 2}
    assert max(passes().values()) <= 16
