"""Is a report, or a folder of Parquet, read as its export would be, exported once, and is each failure one line?"""

import fcntl
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import TraceError, UsageMistake
from pytest_nsys.tools.nsys_command import REPORT_MAGIC, _find_last_words, parse_version, shorten_version
from pytest_nsys.traces.nsys import parquet as nsys_parquet
from pytest_nsys.traces.nsys.export_cache import (
    CACHE_FOLDER,
    _read_report_starts,
    export_report,
    find_or_write_export,
    is_export_of,
)
from pytest_nsys.traces.trace_files import find_traces, open_trace
from tests.support.fake_nsys import (
    CUT,
    FULL,
    NEWER,
    NO_DATABASE,
    VERSION,
    FakeNsys,
    fake_on_path,
    needs_nsys,
    needs_pyarrow,
    to_parquet,
    write_report,
)
from tests.support.gates import Project, write_trace
from tests.support.measure import captures
from tests.support.reference_data import REAL
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.sql import ask, execute

GATE = "- {id: hidden, assert: stage2 overlap >= 60%}\n- {id: exposed, assert: exposed_ns < 1ms}"


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNsys:
    """A fake that exports a trace that passes."""
    fake = fake_on_path(tmp_path / "bin", monkeypatch)
    fake.tell(content=write_trace(tmp_path / "export" / "good.sqlite"))
    return fake


def cached(report: Path, folder: Path | None = None) -> list[str]:
    """What lies in the cache, hidden helpers left out."""
    found = (folder or report.parent / CACHE_FOLDER).glob("*")
    return sorted(path.name for path in found if not path.name.startswith("."))


def partial(folder: Path) -> list[Path]:
    return list(folder.rglob("*.partial*"))


# Once, and the right one


def test_a_report_is_judged_and_exported_once(project: Project, nsys: FakeNsys) -> None:
    project.gate(GATE)
    report = write_report(project.root / "run.nsys-rep")
    for _ in range(2):
        project.pytest("--nsys-trace=run.nsys-rep", code=0)
        project.result.assert_outcomes(passed=2)
    assert len(nsys.asked("export")) == 1
    assert len(cached(report)) == 1
    assert partial(project.root) == []


@pytest.mark.usefixtures("nsys")
def test_what_the_cache_holds_is_out_of_the_way_of_git(tmp_path: Path) -> None:
    report = write_report(tmp_path / "run.nsys-rep")
    export = find_or_write_export(report)
    assert export.path.parent == tmp_path / CACHE_FOLDER
    assert (tmp_path / CACHE_FOLDER / ".gitignore").read_text().splitlines()[-1] == "*"
    assert export.note is None


@pytest.mark.usefixtures("nsys")
def test_another_content_is_exported_again_and_the_old_export_goes(tmp_path: Path) -> None:
    report = write_report(tmp_path / "run.nsys-rep", "first")
    neighbour = find_or_write_export(write_report(tmp_path / "run.nsys-rep-2.nsys-rep")).path
    first = find_or_write_export(report).path
    status = report.stat()
    write_report(report, "other")
    os.utime(report, ns=(status.st_atime_ns, status.st_mtime_ns))  # neither time nor length tells
    second = find_or_write_export(report).path
    assert first != second
    assert (first.exists(), second.exists(), neighbour.exists()) == (False, True, True)


def test_another_nsys_exports_again(tmp_path: Path, nsys: FakeNsys) -> None:
    report = write_report(tmp_path / "run.nsys-rep")
    first = find_or_write_export(report).path
    nsys.tell(content=tmp_path / "export" / "good.sqlite", version="2025.5.1.121")
    second = find_or_write_export(report).path
    assert first != second
    assert second.name.endswith("-2025.5.1.121.sqlite")
    assert len(cached(report)) == 2


def test_without_nsys_the_newest_export_in_the_cache_is_read(tmp_path: Path, nsys: FakeNsys) -> None:
    report = write_report(tmp_path / "run.nsys-rep")
    for version in ("2023.10.1", "2023.4.4.54"):
        nsys.tell(content=tmp_path / "export" / "good.sqlite", version=version)
        find_or_write_export(report)
    (nsys.folder / "nsys").unlink()
    assert find_or_write_export(report).path.name.endswith("-2023.10.1.sqlite")


def test_two_workers_export_once(project: Project, nsys: FakeNsys) -> None:
    project.gate(GATE)
    write_report(project.root / "run.nsys-rep")
    project.pytest_in_a_process("--nsys-trace=run.nsys-rep", "-n", "2", code=0)
    assert len(nsys.asked("export")) == 1


def test_who_comes_second_waits_for_the_first(tmp_path: Path, nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> None:
    report = write_report(tmp_path / "run.nsys-rep")
    export = find_or_write_export(report).path
    kept = export.rename(tmp_path / "kept")

    def flock(_: int, how: int) -> None:
        if how & fcntl.LOCK_NB:
            raise BlockingIOError
        kept.rename(export)  # what the first one, which held the lock, has done meanwhile

    monkeypatch.setattr(fcntl, "flock", flock)
    assert find_or_write_export(report).path == export
    assert len(nsys.asked("export")) == 1


def test_a_disk_without_locks_is_written_too(tmp_path: Path, nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(37, "No locks available")))
    assert find_or_write_export(write_report(tmp_path / "run.nsys-rep")).path.is_file()
    assert len(nsys.asked("export")) == 1


@pytest.mark.usefixtures("nsys")
def test_what_a_killed_export_left_is_cleared_away(tmp_path: Path) -> None:
    report = write_report(tmp_path / "run.nsys-rep")
    export = find_or_write_export(report).path
    start = export.name.removesuffix(f"{VERSION}.sqlite")
    export.rename(export.with_name(f".{start}123.partial"))
    assert find_or_write_export(report).path == export
    assert partial(tmp_path) == []


@pytest.mark.parametrize("blobs", [True, False])
def test_payloads_are_asked_for_where_nsys_knows_them(tmp_path: Path, nsys: FakeNsys, blobs: bool) -> None:
    nsys.tell(content=tmp_path / "export" / "good.sqlite", blobs=blobs)
    find_or_write_export(write_report(tmp_path / "run.nsys-rep"))
    (words,) = nsys.asked("export")
    assert ("--include-blobs=true" in words) == blobs


@pytest.mark.usefixtures("nsys")
def test_a_name_that_begins_with_a_dash(project: Project) -> None:
    write_report(project.root / "--help.nsys-rep")
    project.command("export", "--", "--help.nsys-rep", code=0)
    assert (project.root / "--help.sqlite").is_file()


# The user's own export


def make_older(path: Path, than: Path) -> None:
    ns = than.stat().st_mtime_ns - 1_000_000_000
    os.utime(path, ns=(ns, ns))


def test_an_export_beside_its_report_is_read(tmp_path: Path, nsys: FakeNsys) -> None:
    report, own = write_report(tmp_path / "run.nsys-rep"), write_trace(tmp_path / "run.sqlite")
    make_older(report, own)
    assert find_or_write_export(report).path == own
    assert nsys.asked("export") == []


def why_not_without_nsys(report: Path, nsys: FakeNsys) -> str:
    """What is said of a report where neither nsys nor its export is there."""
    (nsys.folder / "nsys").unlink()
    shutil.rmtree(report.parent / CACHE_FOLDER)
    with pytest.raises(TraceError) as caught:
        find_or_write_export(report)
    return str(caught.value)


def test_an_export_older_than_its_report_is_not_read(tmp_path: Path, nsys: FakeNsys) -> None:
    stale, report = write_trace(tmp_path / "run.sqlite", 900), write_report(tmp_path / "run.nsys-rep")
    make_older(stale, report)
    assert find_or_write_export(report).path.parent == tmp_path / CACHE_FOLDER
    assert len(nsys.asked("export")) == 1
    said = why_not_without_nsys(report, nsys)
    assert "is not on PATH; run.sqlite beside it is older than the report, so it is not read: install" in said


def of_session(start_ns: int) -> str:
    """What a report says of its session, among other things."""
    digits = f"-{start_ns}"
    return f'of a run 9"\x0f281474976710656"\x00*{chr(len(digits))}{digits}2\x06Offset and so on'


def export_of_session(path: Path, start_ns: int) -> Path:
    def details(trace: TraceBuilder, _: list[Process]) -> None:
        trace.insert("ANALYSIS_DETAILS", globalVid=1, duration=10**9, startTime=start_ns, stopTime=start_ns + 10**9)

    return write_trace(path, edit=details)


def test_a_newer_export_of_another_capture_is_not_read(tmp_path: Path, nsys: FakeNsys) -> None:
    """A green of yesterday's rows: by its time it could be the export of this report."""
    export = export_of_session(tmp_path / "run.sqlite", 657_382_416)
    report = write_report(tmp_path / "run.nsys-rep", of_session(618_815_714))
    make_older(report, export)
    assert find_or_write_export(report).path.parent == tmp_path / CACHE_FOLDER
    assert len(nsys.asked("export")) == 1
    said = why_not_without_nsys(report, nsys)
    assert "run.sqlite beside it is the export of another capture, so it is not read" in said


def test_the_export_of_the_same_session_is_read_whatever_its_time(tmp_path: Path, nsys: FakeNsys) -> None:
    export = export_of_session(tmp_path / "run.sqlite", 657_382_416)
    report = write_report(tmp_path / "run.nsys-rep", of_session(657_382_416))
    make_older(export, report)
    assert find_or_write_export(report) == (export, None)
    assert nsys.asked("export") == []


@pytest.mark.usefixtures("nsys")
def test_where_neither_says_it_is_told_whose_rows_these_are(project: Project) -> None:
    make_older(write_report(project.root / "run.nsys-rep"), project.trace("run.sqlite"))
    line = "run.nsys-rep: the rows are those of run.sqlite, which does not say that it is its export"
    assert line in project.command("--view=overlap", "run.nsys-rep", code=0)


@pytest.mark.reference
def test_real_reports_state_their_session(tmp_path: Path) -> None:
    assert _read_report_starts(Path(shutil.copy(REAL / "mordred.qdrep", tmp_path / "run.qdrep"))) == {248_600_000}
    assert _read_report_starts(REAL / "jtb_pdl_2p2c.nsys-rep") == {1_051_102_214_536_768}


@needs_nsys
def test_a_real_report_and_its_export_state_the_same_session(tmp_path: Path) -> None:
    report, other = tmp_path / "run.nsys-rep", tmp_path / "other.nsys-rep"
    for target in (report, other):
        words = ["nsys", "profile", "--trace=osrt", "--sample=none", "--cpuctxsw=none", f"--output={target}", "true"]
        if subprocess.run(words, capture_output=True, check=False).returncode or not target.is_file():
            pytest.skip("this nsys cannot profile here")
    export = tmp_path / "run.sqlite"
    export_report(report, export)
    assert is_export_of(export, report) is True
    assert is_export_of(export, other) is False


def test_a_folder_with_reports_and_exports_counts_each_rank_once(tmp_path: Path, nsys: FakeNsys) -> None:
    label, run = "rank={0}; pp={0}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", tmp_path / "run"
    for rank in range(2):
        export = write_trace(run / f"node{rank}.sqlite", ranks=1, label=label.format(rank))
        make_older(write_report(run / f"node{rank}.nsys-rep", f"of node {rank}"), export)
    (run / "node1.sqlite").unlink()
    nsys.tell(content=write_trace(tmp_path / "one.sqlite", ranks=1, label=label.format(1)))
    for value in ("run", "run/*"):
        found = find_traces(value, tmp_path)
        assert [path.name for path in found] == ["node0.nsys-rep", "node1.nsys-rep"]
        with captures(tmp_path / value, convention=BUILT_IN_CONVENTIONS["pithtrain"]) as opened:
            assert [rank.number for run in opened.runs for rank in run.ranks] == [0, 1]
    assert [path.name for path in find_traces("run/*.sqlite", tmp_path)] == ["node0.sqlite"]


# Where it cannot be written


def test_beside_a_report_in_a_folder_that_is_read_only(tmp_path: Path, nsys: FakeNsys) -> None:
    report = write_report(tmp_path / "traces" / "run.nsys-rep")
    report.parent.chmod(0o555)
    try:
        first, second = find_or_write_export(report), find_or_write_export(report)
    finally:
        report.parent.chmod(0o755)
    assert first == second
    assert first.note == f"{report}: its export lies at {first.path}, not beside it"
    assert len(nsys.asked("export")) == 1
    assert len(cached(report, nsys.folder / "cache" / "pytest-nsys")) == 1
    assert not (report.parent / CACHE_FOLDER).exists()


@pytest.mark.usefixtures("nsys")
def test_no_place_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = write_report(tmp_path / "traces" / "run.nsys-rep")
    (report.parent / CACHE_FOLDER).write_text("a file")
    (tmp_path / "file").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(TraceError, match=r"there is no place for its export: .*File exists.*Not a directory"):
        find_or_write_export(report)


# Each failure is one line


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "newer": ({"code": 1, "says": NEWER}, "report was made by a newer nsys (2025.5) than the one on PATH (2023.4): "),
    "truncated": ({"code": 1, "says": CUT}, "is truncated or damaged (nsys: Section Table Reference magic number"),
    "not written": ({"code": 1, "says": NO_DATABASE}, "nsys cannot write its export to"),
    "disk full": ({"code": 0, "says": FULL, "bytes": 0}, "disk full: nsys could not write its export to"),
    "nothing written": ({"code": 0, "content": None}, "ended with 0, but its export cannot be read"),
    "empty": ({"code": 0, "bytes": 0}, "ended with 0, but its export is cut short (0 bytes)"),
    "cut": ({"code": 0, "bytes": 20_000}, "ended with 0, but its export is cut short (20000 bytes)"),
    "killed": ({"signal": 9}, "nsys was ended by signal 9"),
    "unknown": ({"code": 1, "says": "Exportation error: \x1b[31mOops."}, "`nsys export` ended with 1: �[31mOops"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failed_export_is_one_line_and_leaves_nothing(tmp_path: Path, nsys: FakeNsys, case: str) -> None:
    behaviour, line = FAILURES[case]
    nsys.tell(**{"content": write_trace(tmp_path / "good.sqlite"), **behaviour})
    report = write_report(tmp_path / "run.nsys-rep")
    with pytest.raises(TraceError) as caught:
        find_or_write_export(report)
    said = str(caught.value)
    assert said.startswith(f"{report}: ")
    assert line in said
    assert "\n" not in said
    assert cached(report) == []
    assert partial(tmp_path) == []


def test_a_report_without_nsys(tmp_path: Path, nsys: FakeNsys) -> None:
    (nsys.folder / "nsys").unlink()
    with pytest.raises(TraceError) as caught:
        find_or_write_export(write_report(tmp_path / "run.nsys-rep"))
    assert (
        "is a report, and nsys, which must export it, is not on PATH: install Nsight Systems, or run `nsys export "
        "--type=sqlite -o run.sqlite run.nsys-rep` elsewhere"
    ) in str(caught.value)


@pytest.mark.parametrize("there", [True, False])
def test_what_is_no_report(tmp_path: Path, nsys: FakeNsys, there: bool) -> None:
    nsys.tell(code=1, says="Exportation error: Version tag does not contain a delimiter.")
    if not there:
        (nsys.folder / "nsys").unlink()
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"date,loss\n")
    with pytest.raises(TraceError, match=r"run.nsys-rep: is not an Nsight Systems report$"):
        open_trace(path)


def test_an_empty_report(tmp_path: Path, nsys: FakeNsys) -> None:
    path = tmp_path / "run.nsys-rep"
    path.touch()
    with pytest.raises(TraceError, match=r"is empty \(0 bytes\)"):
        open_trace(path)
    assert nsys.asked() == []


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("#!/bin/sh\necho NSYS: a solver\n", "is not Nsight Systems: `nsys --version` says 'NSYS: a solver"),
        ("#!/no/such/interpreter\n", "cannot be started"),
    ],
)
def test_a_program_that_is_not_this_nsys(tmp_path: Path, nsys: FakeNsys, program: str, why: str) -> None:
    (nsys.folder / "nsys").write_text(program)
    with pytest.raises(TraceError, match=why):
        open_trace(write_report(tmp_path / "run.nsys-rep"))


def test_raw_data_in_place_of_a_report(tmp_path: Path) -> None:
    raw = tmp_path / "a.qdstrm"
    raw.write_bytes(b"raw")
    with pytest.raises(TraceError, match=r"is raw data that nsys did not turn into .*QdstrmImporter -i a\.qdstrm`"):
        open_trace(raw)
    with pytest.raises(UsageMistake, match=r"holds no trace, but a\.qdstrm, which nsys could not turn into a report"):
        find_traces(".", tmp_path)


def test_what_nsys_said_last() -> None:
    assert _find_last_words("Processing 3 events: [==10%  ]\rProcessing 3 events: [====100%]\n") == "no word"
    assert (
        _find_last_words("unrecognised option '--x'\n\nusage: nsys export\nTry 'nsys'\n") == "unrecognised option '--x'"
    )


def test_versions_are_shown_as_releases_and_ordered_as_numbers() -> None:
    assert shorten_version("2025.5.1.121-255136380782v0") == "2025.5"
    assert sorted(["2023.10.1", "2023.4.4.54", "2022.12"], key=parse_version) == ["2022.12", "2023.4.4.54", "2023.10.1"]


# On a terminal


def test_a_terminal_is_shown_how_far_the_export_is(project: Project, nsys: FakeNsys) -> None:
    project.gate(GATE)
    write_report(project.root / "run.nsys-rep")
    shown, terminal = pty.openpty()
    words = [sys.executable, "-m", "pytest", "-q", "--nsys-trace=run.nsys-rep"]
    with subprocess.Popen(words, cwd=project.root, stdout=subprocess.DEVNULL, stderr=terminal) as process:
        pass
    os.close(terminal)
    said = os.read(shown, 65536).decode()
    os.close(shown)
    assert process.returncode == 0
    assert said.startswith(f"\rexporting run.nsys-rep (0.0 MB) with nsys {VERSION}: 0%\r")
    assert said.endswith(": 100%\r\n")
    assert len(nsys.asked("export")) == 1


@pytest.mark.usefixtures("nsys")
def test_nothing_is_shown_where_there_is_no_terminal(project: Project) -> None:
    write_report(project.root / "run.nsys-rep")
    assert "exporting" not in project.command("--view=overlap", "run.nsys-rep", code=0)


# With a real nsys


@needs_nsys
@pytest.mark.reference
def test_a_real_report_gives_the_figures_of_its_export(project: Project) -> None:
    shutil.copyfile(REAL / "mordred.qdrep", project.root / "mordred.qdrep")
    said = project.command(
        *("rows", "compute_ns", "--trace", "mordred.qdrep", "--convention", "generic", "--window", "run"),
        *("--format", "csv"),
        code=0,
    )
    assert "compute_ns,0,6128761,ns\n" in said
    (export,) = (project.root / CACHE_FOLDER).glob("*.sqlite")
    assert ask(export, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(12,)]


@needs_nsys
@pytest.mark.reference
def test_the_real_nsys_says_what_the_fake_says(tmp_path: Path) -> None:
    whole = (REAL / "mordred.qdrep").read_bytes()
    assert whole.startswith(REPORT_MAGIC)
    cut = tmp_path / "cut.qdrep"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match="is truncated or damaged"):
        open_trace(cut)
    flipped = tmp_path / "flipped.qdrep"
    flipped.write_bytes(whole[:150_000] + bytes(b ^ 0xFF for b in whole[150_000:150_200]) + whole[150_200:])
    with pytest.raises(TraceError, match="is truncated or damaged"):
        open_trace(flipped)


@needs_nsys
@pytest.mark.reference
def test_a_report_of_an_nsys_newer_than_the_one_at_hand(tmp_path: Path) -> None:
    report = tmp_path / "jtb.nsys-rep"
    shutil.copyfile(REAL / "jtb_pdl_2p2c.nsys-rep", report)
    said = subprocess.run(["nsys", "--version"], capture_output=True, text=True, check=True).stdout
    if parse_version(said) >= (2025, 5):
        pytest.skip("this nsys is not older than the report")
    with pytest.raises(TraceError, match=r"report was made by a newer nsys \(2025.5\) than the one on PATH \(20"):
        open_trace(report)


SECRETS = "TARGET_INFO_SYSTEM_ENV"


@needs_pyarrow
def test_a_gate_judges_it_as_it_judges_the_sqlite_export(project: Project) -> None:
    project.gate(GATE)
    export = project.trace("export/run.sqlite")
    to_parquet(export, project.root / "run_pqtdir")
    of_export = project.judged(str(export))
    assert {case.state for case in of_export.values()} == {"passed"}
    for _ in range(2):
        assert project.judged("run_pqtdir") == of_export
    assert len(list((project.root / CACHE_FOLDER).glob("*.sqlite"))) == 1


@needs_pyarrow
def test_every_row_is_that_of_the_sqlite_export(tmp_path: Path) -> None:
    export = write_trace(tmp_path / "run.sqlite")
    for table, column in (("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"), ("NVTX_EVENTS", "globalTid")):
        execute(export, f"UPDATE {table} SET {column} = {column} | (1 << 63)")  # as ids of other hardware are
    found = nsys_parquet.export_parquet(to_parquet(export, tmp_path / "a_pqtdir")).path
    tables = [name for (name,) in ask(found, "SELECT name FROM sqlite_master")]
    assert {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"} <= set(tables)
    for table in tables:
        assert ask(export, f'SELECT * FROM "{table}"') == ask(found, f'SELECT * FROM "{table}"')


@needs_pyarrow
def test_another_content_is_written_anew_and_the_environment_never(tmp_path: Path) -> None:
    folder = to_parquet(write_trace(tmp_path / "run.sqlite"), tmp_path / "run_pqtdir")
    shutil.copyfile(folder / "StringIds.parquet", folder / f"{SECRETS}.parquet")
    first = nsys_parquet.export_parquet(folder).path
    assert ask(first, f"SELECT * FROM sqlite_master WHERE name = '{SECRETS}'") == []
    to_parquet(write_trace(tmp_path / "other.sqlite", 900), folder)
    assert nsys_parquet.export_parquet(folder).path != first
    assert not first.exists()


def folder_of(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "StringIds.parquet").write_bytes(b"PAR1, and then no more")
    return path


def test_folders_of_parquet_are_traces(project: Project) -> None:
    for name in ("run/a_pqtdir", "run/b_pqtdir", "run/c_pqtdir", "named"):
        folder_of(project.root / name)
    project.trace("run/b.sqlite")
    project.file("run/c.nsys-rep", "report")

    def found(value: str) -> list[str]:
        return [path.name for path in find_traces(value, project.root)]

    assert found("run") == ["b.sqlite", "c.nsys-rep", "a_pqtdir"]  # not the same trace twice
    assert found("run/a_pqtdir") == ["a_pqtdir"]
    assert found("run/*_pqtdir") == ["a_pqtdir", "b_pqtdir", "c_pqtdir"]
    assert found("named") == ["named"]


@needs_pyarrow
def test_a_damaged_table(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"StringIds.parquet: is damaged, or no Parquet file \(.*\): export the"):
        open_trace(folder_of(tmp_path / "run_pqtdir"))
    assert not list((tmp_path / CACHE_FOLDER).glob("*.sqlite"))


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TraceError, match=r"reading Parquet needs pyarrow: pip install 'pytest-nsys\[parquet\]'"):
        open_trace(folder_of(tmp_path / "run_pqtdir"))


def test_a_folder_of_that_name_without_tables(tmp_path: Path) -> None:
    (tmp_path / "run_pqtdir").mkdir()
    with pytest.raises(TraceError, match=r"run_pqtdir: holds no table of an Nsight Systems export \(\*\.parquet\)"):
        open_trace(tmp_path / "run_pqtdir")


@needs_nsys
@needs_pyarrow
@pytest.mark.reference
def test_what_a_real_nsys_writes(project: Project) -> None:
    words = ["nsys", "export", "--type=parquetdir", "--output=mordred_pqtdir", str(REAL / "mordred.qdrep")]
    done = subprocess.run(words, cwd=project.root, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this nsys writes no Parquet")
    said = project.command(
        *("rows", "compute_ns", "--trace", "mordred_pqtdir", "--convention", "generic", "--window", "run"),
        *("--format", "csv"),
        code=0,
    )
    assert "compute_ns,0,6128761,ns\n" in said
