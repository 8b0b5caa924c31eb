"""Does every bad trace end in one clear line, by reader, command and gate: never green, no traceback, no waiting?"""

import gzip
import os
import re
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import NsysError
from pytest_nsys.traces.chrome import json_stream
from tests.support.bad_traces import BAD, BOMBS, FORMATS, good, text
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.measure import notes
from tests.support.samples.builder import TraceBuilder


def refused(path: Path, format: str, said: str, code: int) -> None:
    """Commands say one line that names the file, on stderr, and nothing else."""
    for command in (["--view=ranks", str(path)], ["rows", "compute_ns", "--trace", str(path), "--window=run"]):
        result = run(*command, f"--convention={format}", code=code)
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert str(path) in result.stderr
        assert re.search(said, result.stderr), result.stderr


@pytest.mark.parametrize("case", BAD)
def test_reader_and_command_say_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """The reader with blocks so small that a file has several, the command as it is."""
    bad = BAD[case]
    path = bad.write(tmp_path / f"run{bad.suffix}")
    before = path.read_bytes()
    result = run("rows", bad.metric, "--trace", path, f"--convention={bad.convention}")
    assert (result.exit_code, result.stdout) == (bad.code, "")
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert str(path) in line
    assert re.search(bad.said, line), line
    for name, size in (("BLOCK", 700), ("FIRST_WINDOW", 700), ("PIECE", 300), ("TAIL", 300)):
        monkeypatch.setattr(json_stream, name, size)
    with pytest.raises(NsysError, match=bad.said) as caught:
        notes(path, bad.metric, convention=BUILT_IN_CONVENTIONS[bad.convention])
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("convention", ["pithtrain", *FORMATS])
@pytest.mark.sampled(3)
def test_a_gate_says_what_is_wrong_and_refreshes_nothing(project: Project, convention: str) -> None:
    """All at once: a gate file for each."""
    cases = {case: bad for case, bad in BAD.items() if bad.convention == convention}
    paths = {case: project.root / f"run{number:02}{bad.suffix}" for number, (case, bad) in enumerate(cases.items())}
    for case, bad in cases.items():
        path = bad.write(paths[case])
        gate = f"trace: {path.name}\nconvention: {convention}\n"
        sentences = ("overlap > 0%", "exposed_ns <= baseline + 1s")
        if bad.metric == "blocking_ns":
            sentences = ("blocking_ns > 0ns", "blocking_ns <= baseline + 1s")
        listed = "".join(f"  - {sentence}\n" for sentence in sentences)
        project.gate(f"{gate}assertions:\n{listed}", f"{path.name}.nsys.yaml")
    files = project.files()
    assert {item.state for item in project.cases("-v", code=1).values()} == {"error"}
    refreshed = [project.refresh("-v", code=1)] if convention == "pithtrain" else []  # the same of all
    for said in (project.result.stdout.str(), *refreshed):
        errors = {line for line in said.splitlines() if line.startswith("error: ")}
        for case, bad in cases.items():
            (line,) = [line for line in errors if paths[case].name in line]
            assert re.search(bad.said, line), case
    assert project.files() == files


@pytest.mark.parametrize(("case", "format"), list(zip(BOMBS, ("kineto", "jax", "kineto", "jax"), strict=True)))
@pytest.mark.sampled(3)
def test_ten_gib_are_told_from_their_first_part(tmp_path: Path, case: str, format: str) -> None:
    path = tmp_path / "trace.json.gz"
    content = BOMBS[case].make(format)
    assert isinstance(content, bytes)
    assert len(content) < 12 << 20
    path.write_bytes(content)
    tracemalloc.start()
    try:
        result = run("--view=ranks", path, f"--convention={format}")
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert result.exit_code == 2
    assert re.fullmatch(rf"error: {re.escape(str(path))}: [^\n]*{BOMBS[case].said}[^\n]*\n", result.stderr)


# -- files that are none


@pytest.mark.parametrize("name", ["pipe", "pipe.json", "pipe.json.gz", "pipe.sqlite", "pipe.nsys-rep"])
def test_a_pipe_is_no_trace(tmp_path: Path, name: str) -> None:
    """Nobody writes to it: who opens it waits for ever."""
    path = tmp_path / name
    os.mkfifo(path)
    done = threading.Thread(target=refused, args=(path, "kineto", r"is not a plain file|is empty", 2))
    done.daemon = True
    done.start()
    done.join(20)
    assert not done.is_alive()


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_a_device_is_no_trace(path: str) -> None:
    refused(Path(path), "kineto", r"is not a plain file", 2)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = good("kineto").write(tmp_path / "trace.json")
    opened = Path.open

    def denied(self: Path, *arguments: Any, **more: Any) -> Any:
        if self.name == "trace.json":
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", denied)  # these tests may run as root, who may read
    refused(path, "kineto", r"trace\.json: cannot be read: Permission denied", 2)


def test_a_file_that_is_gone_after_collection(project: Project) -> None:
    for name, trace in (("a.json", good("kineto")), ("b.json", good("jax"))):
        trace.write(project.root / name)
    TraceBuilder().write(project.root / "c.sqlite")
    for name in ("a.json", "b.json", "c.sqlite"):
        project.gate(f"trace: {name}\nconvention: kineto\nassertions: [compute_ns > 0ns]", f"{name[0]}.nsys.yaml")
    project.file(
        "conftest.py",
        """
        def pytest_collection_finish(session):
            for name in ("a.json", "b.json", "c.sqlite"):
                (session.config.rootpath / name).unlink()
        """,
    )
    said = project.pytest("--nsys-strict", code=1)
    for name in ("a.json", "b.json", "c.sqlite"):
        (line,) = [line for line in said.splitlines() if name in line and line.startswith("error: ")]
        assert "no such file" in line.lower()


# -- runs that are none


@pytest.mark.parametrize(("first", "second"), [("kineto", "jax"), ("nsys", "kineto"), ("nsys", "jax")])
def test_two_formats_in_one_run(project: Project, first: str, second: str) -> None:
    for name in (first, second):
        if name == "nsys":
            trace = TraceBuilder()
            trace.process().kernel("gemm", 10_000, 20_000)
            project.file("run/notes.txt", "\n")
            trace.write(project.root / "run" / "a.sqlite")
        else:
            good(name).write(project.root / "run" / f"{name}.json")
    refused(project.root / "run", "kineto", r"are of two formats: one run is of one profiler: give the files of one", 2)
    project.gate("convention: kineto\nassertions: [compute_ns > 0ns]")
    told = "one run is of one profiler: give the files of one, or each capture by its own --nsys-trace"
    assert told in " ".join(project.pytest("--nsys-trace=run", code=1).split())


def test_a_protobuf_of_jax_alone(project: Project) -> None:
    project.file("run/host.xplane.pb", "\n")
    project.gate("convention: jax\nassertions: [compute_ns > 0ns]")
    for path in (project.root / "run", project.root / "run" / "host.xplane.pb"):
        refused(path, "jax", r"host\.xplane\.pb without its trace\.json\.gz: .*install xprof", 2)
    assert "install xprof" in project.pytest("--nsys-trace=run", code=4)
    assert "install xprof" in project.pytest("--nsys-trace=run/host.xplane.pb", code=1)


# -- odd, and yet readable


def _earlier(time: re.Match[str]) -> str:
    """A time so much earlier that the median step begins below zero."""
    whole, fraction = time[2].split(".")
    return time[0] if time[1] == "dur" else f'"ts": {int(whole) % 100_000_000 - 100_000_000}.{fraction}'


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_odd_is_read(tmp_path: Path, format: str) -> None:
    """The same figure, however it is written."""
    plain = text(format)
    time = r'"(ts|dur)": (-?[0-9.]+)'
    odd = {
        "a mark of bytes": b"\xef\xbb\xbf" + plain.encode(),
        "packed without a name for it": gzip.compress(plain.encode()),
        "times as texts": re.sub(time, r'"\1": "\2"', plain).encode(),
        "times with an exponent": re.sub(time, r'"\1": \2e0', plain).encode(),
        "a key twice: the last one counts": re.sub(time, r'"\1": "never", "\1": \2', plain).encode(),
        "an integer of 5000 digits": plain.replace('"args": {', '"args": {"x": ' + "9" * 5000 + ", ", 1).encode(),
        "padding": plain.encode() + b"\n\0\0\0",
        "before the clock's zero": re.sub(time, _earlier, plain).encode(),
    }
    for case, content in odd.items():
        path = tmp_path / "trace.json"
        path.write_bytes(content)
        result = run("rows", "compute_ns", "--trace", path, f"--convention={format}")
        assert result.exit_code == 0, (case, result.output)
        assert result.stdout.split()[-2:] == ["300", "us"], case
