"""Is a run of many traces one run? The same verdicts whoever reads it; who is missing, doubled or broken is named."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.parallel import MIN_READ_AHEAD_TRACES, ReadAhead
from pytest_nsys.analysis.metrics.registry import METRICS, MetricRequest
from pytest_nsys.analysis.windows.window_selection import complete_window_spec
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.tools.executors import is_on_terminal
from pytest_nsys.traces.recorded_trace import RecordedTrace
from pytest_nsys.traces.sqlite import file as sqlite_file
from tests.support.gates import Project, heard
from tests.support.many_traces import KILLER, kill_whoever_reads_it, write_nodes
from tests.support.samples.kineto import KinetoBuilder
from tests.support.sql import execute

GATE = """
    - stage2 overlap >= 50%
    - exposed_ns < 100us
    - no mixed comm streams
    - {assert: overlap_tax_ns < 1s, window: steady}
    - {assert: launches > 0, window: run}
"""


def report(project: Project, name: str, *options: str) -> str:
    """The JSON report of a gate run, which has every row."""
    project.pytest(*options, f"--nsys-json={name}", code=1)
    return (project.root / name).read_text(encoding="utf-8")


def test_processes_reach_the_same_verdicts_as_one(project: Project) -> None:
    write_nodes(project.root / "run", 4, ranks=2)
    project.gate("trace: run\nassertions:" + GATE.replace("\n    ", "\n  "))
    serial = report(project, "serial.json")
    assert report(project, "parallel.json", "--nsys-executor=processes:2") == serial
    assert '"failed"' in serial


@pytest.mark.parametrize("command", ["--view=ranks", "--view=overlap"])
def test_a_command_prints_the_same_whoever_reads(project: Project, command: str) -> None:
    write_nodes(project.root / "run", 3, ranks=2)
    serial = project.command(command, "run", code=0)
    assert project.command(command, "run", "--executor=processes:2", code=0) == serial
    assert len(serial.splitlines()) >= 2 + 6  # the header, and a row of each rank


def test_compare_prints_the_same_whoever_reads(project: Project) -> None:
    write_nodes(project.root / "base", 2, ranks=2)
    for path in write_nodes(project.root / "head", 2, ranks=2):
        # the gemm that hides it ends earlier
        execute(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end - 300000 WHERE streamId = 7")
    serial = project.command("compare", "base", "head", code=1)
    assert project.command("compare", "base", "head", "--executor=processes:2", code=1) == serial


def opened_here(traces: Path, convention: str, metrics: list[str], executor: str | None) -> tuple[list[object], int]:
    """The rows and notes of some metrics, and how many files this process had to open for them."""
    spec = complete_window_spec(BUILT_IN_CONVENTIONS[convention], "median", None, None)
    library = CaptureCache(ReadAhead(executor))
    captures = library.open_captures(
        [str(traces)], Path(), BUILT_IN_CONVENTIONS[convention], requests=[MetricRequest(m, spec) for m in metrics]
    )
    found: list[object] = [captures.build_key({}), captures.facts]
    for name in metrics:
        found += [
            captures.measure_rows(METRICS[name], spec),
            captures.list_notes(spec, METRICS[name]),
            captures.list_windows(spec),
        ]
    files = sum("_file" in trace.__dict__ for trace in captures.runs[0].traces)
    library.close()
    return found, files


def test_what_nobody_foresaw_is_read_from_the_file(tmp_path: Path) -> None:
    write_nodes(tmp_path, 3, ranks=2)
    spec = complete_window_spec(BUILT_IN_CONVENTIONS["pithtrain"], "median", None, None)
    library = CaptureCache(ReadAhead("processes:2"))
    captures = library.open_captures(
        [str(tmp_path)], Path(), BUILT_IN_CONVENTIONS["pithtrain"], requests=[MetricRequest("anchors", spec)]
    )
    rows = captures.measure_rows(METRICS["overlap"], spec)
    assert all(isinstance(trace, RecordedTrace) and "_file" in trace.__dict__ for trace in captures.runs[0].traces)
    library.close()
    plain = CaptureCache()
    assert rows == plain.open_captures([str(tmp_path)], Path(), BUILT_IN_CONVENTIONS["pithtrain"]).measure_rows(
        METRICS["overlap"], spec
    )
    plain.close()


def write_kineto(folder: Path, ranks: int) -> None:
    """One trace per rank."""
    for rank in range(ranks):
        trace = KinetoBuilder(rank=rank, world=ranks, pid=100 + rank)
        for step in range(6):
            begin = 1_000_000 * step
            trace.range(f"ProfilerStep#{step}", begin, begin + 900_000)
            trace.kernel("ncclDevKernel_AllReduce", begin + 100_000, begin + 300_000, stream=28)
            trace.kernel("gemm", begin + 100_000, begin + 200_000 + 1_000 * rank)
        trace.write(folder / f"rank{rank}_trace.json")


@pytest.mark.parametrize(
    ("convention", "metrics"),
    [
        ("pithtrain", ["overlap", "comm_streams", "overlap_tax_ns", "syncs", "period_ns", "launches"]),
        ("kineto", ["wall_overlap", "idle_ns", "period_ns"]),
    ],
)
def test_what_was_read_ahead_needs_no_file_here(tmp_path: Path, convention: str, metrics: list[str]) -> None:
    """Also the launches, the ranges, the calls and the kernels of the whole run."""
    if convention == "kineto":
        write_kineto(tmp_path, 3)
    else:
        write_nodes(tmp_path, 3, ranks=2)
    serial, _ = opened_here(tmp_path, convention, metrics, None)
    ahead, opened = opened_here(tmp_path, convention, metrics, "processes:2")
    assert ahead == serial
    assert opened == 0


def test_many_traces_are_let_go_one_by_one_in_one_process_too(tmp_path: Path) -> None:
    write_nodes(tmp_path, MIN_READ_AHEAD_TRACES, ranks=2)
    few, _ = opened_here(tmp_path, "pithtrain", ["overlap"], "processes:2")
    serial, opened = opened_here(tmp_path, "pithtrain", ["overlap"], None)
    assert serial == few
    assert opened == 0


# Who is who


def test_a_rank_that_no_trace_holds_is_named(project: Project) -> None:
    paths = write_nodes(project.root / "run", 3, ranks=2)
    paths[1].unlink()
    project.gate("trace: run\nassertions:\n  - stage2 overlap >= 50%")
    said = project.pytest("--nsys-executor=processes:2", code=1)
    assert "2 of 6 ranks are missing" in said
    assert "ranks 2, 3 of the setup labels' mesh" in said


# What fails


def test_a_trace_that_fails_says_the_same_in_any_process(project: Project) -> None:
    paths = write_nodes(project.root / "run", 4, ranks=2)
    content = paths[2].read_bytes()
    paths[2].write_bytes(content[: len(content) // 2])
    serial = project.command("--view=overlap", "run", code=2)
    assert "node002.sqlite" in serial
    assert project.command("--view=overlap", "run", "--executor=processes:2", code=2) == serial
    paths[2].write_bytes(b"")
    serial = project.command("--view=overlap", "run", code=2)
    assert "node002.sqlite: is empty" in serial
    assert project.command("--view=overlap", "run", "--executor=processes:2", code=2) == serial


def test_of_a_process_that_dies_the_trace_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_nodes(project.root / "run", 6, ranks=2)
    paths[3].rename(paths[3].with_name(KILLER))
    kill_whoever_reads_it(project.root, monkeypatch)
    project.gate("trace: run\nassertions:\n  - stage2 overlap >= 50%\n  - exposed_ns < 1s")
    said = project.pytest_in_a_process("--nsys-executor=processes:2", code=1)
    assert f"{KILLER}: cannot be read: the process that read it died (signal 9)" in said
    assert "2 errors in" in said
    said = project.command("--view=overlap", "run", "--executor=processes:2", code=2)
    assert [line for line in said.splitlines() if KILLER in line] == [line for line in said.splitlines() if line]
    assert project.command("--view=overlap", "run", code=0)  # this process lives


# Small systems, and terminals


@pytest.mark.slow
def test_a_thousand_files_are_no_thousand_descriptors(tmp_path: Path) -> None:
    write_nodes(tmp_path / "run", 300, ranks=1)  # more than there may be
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); from pathlib import Path; "
        "from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS as B; "
        "from pytest_nsys.analysis.captures.cache import CaptureCache; "
        "from pytest_nsys.analysis.metrics.registry import METRICS as M; "
        "e = CaptureCache().open_captures(['run'], Path(), B['pithtrain']); "
        "print(len(e.measure_rows(M['overlap'], e.make_spec('median')).rows))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "600\n", done.stderr


def test_a_file_that_is_being_read_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "MOST_OPEN_FILES", 1)
    monkeypatch.setattr(sqlite_file, "CHUNK_ROWS", 1)
    first, second = (sqlite_file.SqliteFile(path) for path in write_nodes(tmp_path, 2, ranks=1))
    sql = "SELECT text FROM NVTX_EVENTS ORDER BY rowid"
    rows = first.fetch_chunks(sql)
    read = [next(rows)]
    other = [[row] for row in second.fetch_rows(sql)]
    read += rows
    assert len(read) == len(other) > 1
    first.close()
    second.close()


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


SLOW = "import pytest_nsys.tools.executors as p; p.BAR_DELAY_S = 0.0; "
OVERLAP = SLOW + "from pytest_nsys.cli import main; main(['--view=overlap', 'run', '--executor=processes:2'])"
GATES = SLOW + "import pytest; raise SystemExit(pytest.main(['--nsys-executor=processes:2', *{options}]))"


@pytest.mark.parametrize(
    ("code", "shown"), [(OVERLAP, True), (GATES.format(options=[]), True), (GATES.format(options=["-q"]), False)]
)
@pytest.mark.sampled(3)
def test_a_bar_on_a_terminal_is_wiped_out(project: Project, terminal: tuple[int, int], code: str, shown: bool) -> None:
    write_nodes(project.root / "run", 3, ranks=1)
    project.gate("trace: run\nassertions:\n  - stage2 overlap >= 50%")
    ours, theirs = terminal
    known = {name: value for name, value in os.environ.items() if name != "CI"}
    words = [sys.executable, "-c", code]
    subprocess.run(words, cwd=project.root, env=known, stdout=subprocess.PIPE, stderr=theirs, check=True)
    os.close(theirs)
    said = heard(ours)
    assert ("\rreading traces [" in said) == shown
    if shown:
        assert "\r\x1b[K" in said.split(" of 3\x1b[K")[-1]


def test_a_terminal_is_one_where_a_person_looks_at_it(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with os.fdopen(terminal[1], "w") as stream, (tmp_path / "log").open("w") as log:
        assert (is_on_terminal(stream), is_on_terminal(log)) == (True, False)
        monkeypatch.setenv("CI", "true")
        assert not is_on_terminal(stream)


def test_a_command_that_prints_json_shows_no_bar(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write_nodes(project.root / "run", 1, ranks=1)
    seen: list[bool] = []

    def watched(executor: str | None, shows_progress: bool) -> ReadAhead:
        seen.append(shows_progress)
        return ReadAhead(executor)

    monkeypatch.setattr("pytest_nsys.cli.options.is_on_terminal", lambda _: True)
    monkeypatch.setattr("pytest_nsys.cli.options.ReadAhead", watched)
    for options in ([], ["--format=json"]):
        project.command("--view=overlap", "run", *options, code=0)
    assert seen == [True, False]


def test_no_bar_before_two_seconds_have_passed(project: Project, terminal: tuple[int, int]) -> None:
    write_nodes(project.root / "run", 2, ranks=1)
    ours, theirs = terminal
    words = [sys.executable, "-m", "pytest_nsys", "--view=ranks", "run", "--executor=serial"]
    subprocess.run(words, cwd=project.root, stdout=subprocess.PIPE, stderr=theirs, check=True)
    os.close(theirs)
    assert b"reading traces" not in os.read(ours, 1 << 16)
