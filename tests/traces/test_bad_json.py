"""Does every bad trace in JSON end in one clear line, by command and by gate: never green, no traceback, no waiting?"""

from __future__ import annotations

import gzip
import os
import re
import sqlite3
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from pytest_nsys.cli import main
from pytest_nsys.samples.builder import TraceBuilder
from pytest_nsys.samples.jax import JaxBuilder
from pytest_nsys.samples.kineto import KinetoBuilder
from tests.support.gates import Project

AT = 4_458_676_522_690_655_000
FORMATS = ("kineto", "jax")
HEAD = {
    "kineto": b'{"schemaVersion": 1, "traceEvents": [',
    "jax": b'{"metadata": {"highres-ticks": true}, "traceEvents": [',
}
GIB = 1 << 30

Edit = Callable[[KinetoBuilder], object]


def good(format: str, edit: Edit | None = None, **more: Any) -> KinetoBuilder:
    """Five steps of 1 ms with a gemm in each."""
    trace = JaxBuilder() if format == "jax" else KinetoBuilder(**more)
    at = 10_000_000 if format == "jax" else AT
    for k in range(5):
        begin = at + 1_000_000 * k
        if isinstance(trace, JaxBuilder):
            trace.step("train", k, begin, begin + 990_000)
        else:
            trace.range(f"ProfilerStep#{k}", begin, begin + 990_000)
        trace.kernel("gemm", begin + 100_000, begin + 400_000, launch_ns=begin + 20_000)
    if edit is not None:
        edit(trace)
    return trace


def text(format: str, edit: Edit | None = None) -> str:
    return good(format, edit).text()


def of_kernel(format: str, **members: str) -> str:
    """The trace with members of its last kernel as this text of JSON."""

    def change(trace: KinetoBuilder) -> None:
        names = {e["tid"]: e["args"]["name"] for e in trace.events if e["name"] == "thread_name"}
        kernels = [e for e in trace.events if e["name"] == "gemm" and not names.get(e["tid"], "").startswith("XLA")]
        kernels[-1].update({name: f"@{name}@" for name in members})

    changed = text(format, change)
    for name, written in members.items():
        changed = changed.replace(f'"@{name}@"', written)
    return changed


def bomb(start: bytes, filling: bytes) -> bytes:
    """Ten GiB of a filling, packed: members of 16 MiB."""
    size = 16 << 20
    member = gzip.compress((filling * (size // len(filling) + 1))[:size])
    return gzip.compress(start) + member * (10 * GIB // size)


def nothing_of_gpu(format: str) -> str:
    def only_ranges(trace: KinetoBuilder) -> None:
        trace.events[:] = [e for e in trace.events if "step_num" in str(e) or e.get("cat") == "user_annotation"]
        trace.events.append({"ph": "M", "name": "process_name", "pid": trace.pid, "args": {"name": "/host:CPU"}})

    return text(format, only_ranges)


class Bad(NamedTuple):
    """How to make the content from the name of the format, what is said of it, and the exit code of a command."""

    make: Callable[[str], str | bytes]
    said: str
    code: int = 2


BAD = {
    "empty": Bad(lambda _: b"", r"is empty \(0 bytes\): profile again"),
    "blank": Bad(lambda _: b" \n\t", r"is no JSON: give what torch.profiler or the profiler of JAX wrote"),
    "a web page": Bad(lambda _: b"<html>", r"is no JSON"),
    "a number": Bad(lambda _: b"12", r"is no JSON"),
    "zip": Bad(lambda _: b"PK\x03\x04" + bytes(100), r"is no JSON"),
    "JSON of something else": Bad(lambda _: b'{"a": 1}', r"is JSON, but no trace of torch.profiler or JAX"),
    "cut in the middle": Bad(
        lambda f: text(f)[: len(text(f)) // 2], r"its JSON ends in the middle \(after \d+ bytes\)"
    ),
    "cut before its end": Bad(lambda f: text(f).rstrip()[:-1], r"its JSON ends in the middle"),
    "truncated gzip": Bad(
        lambda f: gzip.compress(text(f).encode())[:-30], r"its gzip stream ends in the middle: .*copy"
    ),
    "gzip of two bytes": Bad(lambda _: b"\x1f\x8b", r"its gzip stream ends in the middle"),
    "damaged gzip": Bad(lambda f: gzip.compress(text(f).encode())[:-8] + bytes(8), r"its gzip stream is damaged"),
    "rest behind gzip": Bad(lambda f: gzip.compress(text(f).encode()) + b"rest", r"its gzip stream is damaged"),
    "packed twice": Bad(lambda f: gzip.compress(gzip.compress(text(f).encode())), r"is no JSON"),
    "UTF-16": Bad(lambda f: text(f).encode("utf-16"), r"is text in UTF-16 or UTF-32: write it as UTF-8"),
    "UTF-16 without a mark": Bad(lambda f: text(f).encode("utf-16-le"), r"is text in UTF-16 or UTF-32"),
    "UTF-32": Bad(lambda f: text(f).encode("utf-32-be"), r"is text in UTF-16 or UTF-32"),
    "brackets": Bad(lambda _: b"[" * 10**6, r"is JSON, but no trace"),
    "brackets as event": Bad(lambda f: HEAD[f] + b"[" * 10**6, r"is nested deeper than any trace"),
    "objects as event": Bad(lambda f: HEAD[f] + b'{"a":' * 10**6, r"is nested deeper than any trace"),
    "closed brackets": Bad(
        lambda f: text(f).replace('"args": {', '"args": {"x": ' + "[" * 10**6 + "]" * 10**6 + ", ", 1),
        r"is nested deeper than any trace",
    ),
    "no events": Bad(
        lambda f: HEAD[f].partition(b', "traceEvents"')[0] + b"}", r"holds no traceEvents: it is no trace"
    ),
    "events are null": Bad(lambda f: HEAD[f][:-1] + b"null}", r"holds no traceEvents: it is no trace"),
    "two lists of events": Bad(
        lambda f: text(f).rstrip()[:-1] + ', "traceEvents": []}', r"a second list of traceEvents: these are two traces"
    ),
    "two traces": Bad(lambda f: text(f) + text(f), r"the file goes on after its end: these are two traces"),
    "a rest": Bad(lambda f: text(f) + '"dur": 1}]}', r"the file goes on after its end"),
    "no GPU lanes": Bad(nothing_of_gpu, r"no kernels: (profile with activities=|there is no lane 'Stream #')", 3),
    "no length": Bad(
        lambda f: of_kernel(f, dur="null"), r"kernel 'gemm' at ts [0-9.]+ has no duration .*\(dur missing\)"
    ),
    "NaN as length": Bad(
        lambda f: of_kernel(f, dur="NaN"), r"kernel 'gemm' .*has no duration that can be read \(dur NaN\)"
    ),
    "endless": Bad(lambda f: of_kernel(f, dur="Infinity"), r"kernel 'gemm' .*has no duration that can be read"),
    "NaN as time": Bad(lambda f: of_kernel(f, ts="NaN"), r"kernel 'gemm' at ts NaN has no time that can be read"),
    "enormous time": Bad(lambda f: of_kernel(f, ts="9" * 5000), r"kernel 'gemm' .*has no time that can be read"),
    "time beyond 64 bits": Bad(lambda f: of_kernel(f, ts="9223372036854775.999"), r"kernel 'gemm' .* lies outside"),
    "enormous exponent": Bad(lambda f: of_kernel(f, ts="1e999999999"), r"kernel 'gemm' .*has no time that can be read"),
    "negative length": Bad(lambda f: of_kernel(f, dur="-1.5"), r"kernel 'gemm' .*ends before it starts"),
    "a word as time": Bad(lambda f: of_kernel(f, ts='"noon"'), r"kernel 'gemm' .*has no time that can be read"),
    "digits of another script": Bad(lambda f: of_kernel(f, dur='"\u0661"'), r"kernel 'gemm' .*has no duration"),
    "a list as length": Bad(lambda f: of_kernel(f, dur="[1]"), r"kernel 'gemm' .*has no duration that can be read"),
}

BOMBS = {
    "10 GiB of zeros": Bad(lambda _: bomb(b"", b"\0"), r"is no JSON"),
    "10 GiB of spaces": Bad(lambda f: bomb(HEAD[f], b" "), r"unpacks to more than 100 times its size, .*refused"),
    "10 GiB in a text": Bad(lambda f: bomb(HEAD[f] + b'{"name": "', b"a"), r"one event has more than 16 MiB"),
    "10 GiB in a member": Bad(
        lambda f: bomb(HEAD[f].partition(b'"traceEvents"')[0] + b'"x": "', b"a"), r"one value has more than 16 MiB"
    ),
}


def refused(path: Path, format: str, said: str, code: int) -> None:
    """Commands say one line that names the file, on stderr, and nothing else."""
    for command in (["window", str(path)], ["rows", "compute_ns", "--trace", str(path), "--window=run"]):
        result = CliRunner().invoke(main, [*command, f"--convention={format}"])
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert str(path) in result.stderr
        assert re.search(said, result.stderr), result.stderr


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", BAD)
def test_a_command_says_what_is_wrong(tmp_path: Path, case: str, format: str) -> None:
    path = tmp_path / "trace.json"
    content = BAD[case].make(format)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    refused(path, format, BAD[case].said, BAD[case].code)


@pytest.mark.parametrize(("case", "format"), list(zip(BOMBS, ("kineto", "jax", "kineto", "jax"), strict=True)))
def test_ten_gib_are_told_from_their_first_part(tmp_path: Path, case: str, format: str) -> None:
    path = tmp_path / "trace.json.gz"
    content = BOMBS[case].make(format)
    assert isinstance(content, bytes)
    assert len(content) < 12 << 20
    path.write_bytes(content)
    tracemalloc.start()
    try:
        result = CliRunner().invoke(main, ["window", str(path), f"--convention={format}"])
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert result.exit_code == 2
    assert re.fullmatch(rf"error: {re.escape(str(path))}: [^\n]*{BOMBS[case].said}[^\n]*\n", result.stderr)


@pytest.mark.parametrize("format", FORMATS)
def test_a_gate_says_what_is_wrong(project: Project, format: str) -> None:
    """All at once: a gate file for each."""
    for number, case in enumerate(BAD):
        content = BAD[case].make(format)
        path = project.root / f"trace{number:02}.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        project.gate(
            f"trace: {path.name}\nconvention: {format}\nassertions: [compute_ns > 0ns]", f"g{number:02}.nsys.yaml"
        )
    cases = project.cases(code=1)
    assert {item.state for item in cases.values()} == {"error"}
    said = project.result.stdout.lines
    for number, case in enumerate(BAD):
        path = project.root / f"trace{number:02}.json"
        (line,) = {line for line in said if str(path) in line and line.startswith("  error: ")}
        assert re.search(BAD[case].said, line), case


# -- files that are none


@pytest.mark.parametrize("name", ["pipe", "pipe.json", "pipe.json.gz", "pipe.sqlite", "pipe.nsys-rep"])
def test_a_pipe_is_no_trace(tmp_path: Path, name: str) -> None:
    """Nobody writes to it: who opens it waits for ever."""
    path = tmp_path / name
    os.mkfifo(path)
    done = threading.Thread(target=refused, args=(path, "kineto", r"is no plain file|is empty", 2))
    done.daemon = True
    done.start()
    done.join(20)
    assert not done.is_alive()


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_a_device_is_no_trace(path: str) -> None:
    refused(Path(path), "kineto", r"is no plain file", 2)


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
    said = project.pytest(code=1)
    for name in ("a.json", "b.json", "c.sqlite"):
        (line,) = [line for line in said.splitlines() if name in line and line.startswith("  error: ")]
        assert "no such file" in line.lower()


# -- runs that are none


def test_ranks_that_come_twice(project: Project) -> None:
    for name in ("a.json", "b.json"):
        good("kineto", rank=1, world=2, pid=ord(name[0])).write(project.root / "run" / name)
    refused(project.root / "run", "kineto", r"rank 1 comes twice in this run \(.*a\.json, process 97; .*b\.json", 2)
    project.gate("convention: kineto\nassertions: [compute_ns > 0ns]")
    assert "rank 1 comes twice in this run" in project.pytest("--nsys-trace=run", code=1)


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
    refused(project.root / "run", "kineto", r"are of two formats: one run is of one profiler; give each its own", 2)
    project.gate("convention: kineto\nassertions: [compute_ns > 0ns]")
    assert "are of two formats" in project.pytest("--nsys-trace=run", code=1)


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
        result = CliRunner().invoke(main, ["rows", "compute_ns", "--trace", str(path), f"--convention={format}"])
        assert result.exit_code == 0, (case, result.output)
        assert "300000 ns" in result.stdout, case


def test_sqlite_under_the_name_of_json(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    sqlite3.connect(path).execute("CREATE TABLE a (b)").connection.close()
    refused(path, "kineto", r"is no JSON", 2)
