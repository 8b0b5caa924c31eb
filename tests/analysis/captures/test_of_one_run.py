"""Are the files of a run of one run? Not where they were written a day apart, and not where one is another's copy."""

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pytest_nsys.analysis.facts.recording import find_file_gap
from pytest_nsys.analysis.metrics.registry import MetricRequest
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import TraceError, UsageMistake
from tests.support.commands import run
from tests.support.gate_files import loaded
from tests.support.gates import MS, Edit, Project, write_trace
from tests.support.measure import captures
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.data_parallel import BASE_NS, DataParallelShape, write_data_parallel

LABEL = "rank={rank}; pp=0/1 dp={rank}/2 cp=0/1 ep=0/1; mbs=1 seq=2048"
DAY_NS = 86_400 * 10**9
TWO = DataParallelShape(ranks=2)
STEPS_NS = 6 * 20 * MS - 1_000


def rewritten(path: Path, change: Callable[[str], str]) -> None:
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()).decode()).encode()))


def torch(folder: Path, apart_ns: int) -> Path:
    write_data_parallel(folder, TWO)
    rewritten(folder / "rank1_trace.json.gz", lambda text: text.replace(str(BASE_NS), str(BASE_NS + apart_ns)))
    return folder


def begun(zero_ns: int, session_ns: int | None = None) -> Edit:
    def edit(trace: TraceBuilder, processes: list[Process]) -> None:
        trace.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=zero_ns)
        if session_ns is not None:
            trace.insert("ANALYSIS_DETAILS", globalVid=1, duration=session_ns, startTime=0, stopTime=session_ns)
        processes[0].kernel("gemm", 41 * MS, 41 * MS + len(trace._rows) + zero_ns % 1_000, stream=7)

    return edit


def nsys(folder: Path, apart_ns: int, session_ns: int | None = None) -> Path:
    for rank in (0, 1):
        label = LABEL.format(rank=rank)
        edit = begun(BASE_NS + rank * apart_ns, session_ns)
        write_trace(folder / f"rank{rank}.sqlite", ranks=1, label=label, edit=edit)
    return folder


def doubt(folder: Path, convention: str, quality: str = "") -> str:
    bounds = loaded(f"version: 1\nquality: {{anchors: 1{quality}}}\nassertions: [window_ns >= 1ns]").quality
    with captures(folder, convention=BUILT_IN_CONVENTIONS[convention]) as read:
        try:
            read.measure(MetricRequest("window_ns", read.make_spec("median"), bounds))
        except TraceError as error:
            return str(error).replace(f"{folder}/", "")
    return ""


def test_files_a_day_apart_are_of_two_runs(tmp_path: Path) -> None:
    folder = torch(tmp_path, -DAY_NS)
    line = doubt(folder, "kineto")
    assert line == (
        "trace quality: rank1_trace.json.gz ends 86400 s before rank0_trace.json.gz begins (bound: at most 0s): files "
        "of one run overlap in time, and one of these is of another run; give the files that were written together, or "
        "write quality: {apart: 86399.9s} in the gate file"
    )
    assert doubt(folder, "kineto", ", apart: 86399.9s") == ""
    assert doubt(folder, "kineto", ", apart: 86399.8s") != ""
    assert doubt(folder, "kineto", ", apart: off") == ""


def test_every_command_tells_of_it(tmp_path: Path) -> None:
    said = " ".join(run("--view=overlap", torch(tmp_path, -DAY_NS), code=0).output.split())
    assert "begins: files of one run overlap in time" in said


@pytest.mark.parametrize(("apart_ns", "gap_ns"), [(STEPS_NS, None), (STEPS_NS + 1, 1), (-STEPS_NS - 1, 1), (0, None)])
def test_a_nanosecond_between_them_is_one(tmp_path: Path, apart_ns: int, gap_ns: int | None) -> None:
    with captures(torch(tmp_path, apart_ns), convention=BUILT_IN_CONVENTIONS["kineto"]) as read:
        found = find_file_gap(read.runs[0].load_windows(read.make_spec("median")))
    assert (found and found.gap_ns) == gap_ns


def test_an_export_of_nsys_is_as_long_as_its_session(tmp_path: Path) -> None:
    assert "rank0.sqlite ends 86400 s before rank1.sqlite begins" in doubt(nsys(tmp_path / "a", DAY_NS), "pithtrain")
    assert "begins" in doubt(nsys(tmp_path / "b", 2 * 10**9, 10**9), "pithtrain")
    assert doubt(nsys(tmp_path / "c", 2 * 10**9, 2 * 10**9), "pithtrain") == ""


def test_clocks_that_count_from_anywhere_say_nothing(tmp_path: Path) -> None:
    write_data_parallel(tmp_path, TWO)
    early = str(BASE_NS - 10**18)
    rewritten(tmp_path / "rank1_trace.json.gz", lambda text: text.replace(str(BASE_NS), early))
    assert doubt(tmp_path, "kineto") == ""


def test_a_cut_of_two_runs_is_no_one_run(tmp_path: Path) -> None:
    folder = torch(tmp_path, -DAY_NS)
    (tmp_path / "cut").mkdir()
    run("cut", folder, "--convention=kineto", "-o", tmp_path / "cut" / "window.json.gz", code=0)
    assert "ends 86400 s before" in doubt(tmp_path / "cut", "kineto")


# One file that is the other


def test_a_copy_of_another_rank_is_refused(project: Project) -> None:
    """Rank 1's file is rank 0's but for what names the rank, and for where its clock stands."""
    folder = write_data_parallel(project.root / "run", TWO)
    copy = gzip.decompress((folder / "rank0_trace.json.gz").read_bytes()).decode()
    content = json.loads(copy)
    content["distributedInfo"]["rank"] = 1
    content["baseTimeNanoseconds"] += 7_000
    (folder / "rank1_trace.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    project.gate("convention: kineto\nassertions: [window_ns <= 1s]")
    said = " ".join(project.pytest("--nsys-trace=run", code=1).split())
    assert "run/rank0_trace.json.gz and run/rank1_trace.json.gz are the same capture: " in said
    assert "kernels are equal to the nanosecond; one trace is one rank" in said
    assert "are the same capture" in project.command("rows", "compute_ns", "--trace=run", code=2)
    assert "are the same capture" in project.command("init", "run", code=2)
    for words in (["check"], ["show", "--view=kernels"], ["show"], ["cut", "-o", "window.json.gz"]):
        assert "are the same capture" in project.command(*words, "run", code=2)
    assert "are the same capture" in project.command("cut", "run", "--gate=gate.nsys.yaml", code=2)


def test_a_rank_of_another_capture_is_no_second_sample(project: Project) -> None:
    """Of two captures one rank is new, and the other one's file was not: it would scatter by nothing."""
    for capture in ("a", "b"):
        for rank in (0, 1):
            label = LABEL.format(rank=rank)
            project.trace(f"{capture}/{rank}.sqlite", 200 + ord(capture), ranks=1, label=label)
    with closing(sqlite3.connect(project.root / "a" / "1.sqlite")) as file:
        (project.root / "b" / "1.sqlite").unlink()
        file.execute(f"VACUUM INTO '{project.root / 'b' / '1.sqlite'}'")
    project.gate("- window_ns <= 1s")
    said = " ".join(project.pytest("--nsys-trace=a", "--nsys-trace=b", code=1).split())
    assert "a/1.sqlite and b/1.sqlite are the same capture: 20 kernels are equal to the nanosecond" in said


def test_ranks_of_one_file_may_be_alike(tmp_path: Path) -> None:
    write_trace(tmp_path / "run.sqlite", stages=("stage1_f", "stage2_f", "stage3_f", "stage4_f"))
    with captures(tmp_path / "run.sqlite", convention=BUILT_IN_CONVENTIONS["pithtrain"]) as read:
        assert len(next(iter(read.runs[0].load_windows(read.make_spec("median")))).kernels) == 8
        read.check_no_twins(read.make_spec("median"))


def test_a_nanosecond_or_fewer_kernels_tell_ranks_apart(tmp_path: Path) -> None:
    """Of few kernels in the window those of the whole run count; the last chunk of these files starts by their name."""
    for stages in (3, 4):
        for rank in (0, 1):
            each = tuple(f"stage{n}_f" for n in range(1, stages + 1))
            path = tmp_path / str(stages) / f"rank{rank}.sqlite"
            write_trace(path, ranks=1, label=LABEL.format(rank=rank), stages=each, chunks_ms=(20,) * 5, every_ms=25)
    with captures(tmp_path / "3", convention=BUILT_IN_CONVENTIONS["pithtrain"]) as read:
        read.check_no_twins(read.make_spec("median"))
    with captures(tmp_path / "4", convention=BUILT_IN_CONVENTIONS["pithtrain"]) as read:
        with pytest.raises(UsageMistake, match="8 kernels are equal to the nanosecond; one trace is one rank"):
            read.check_no_twins(read.make_spec("median"))
        read.check_no_twins(read.make_spec("run"))
