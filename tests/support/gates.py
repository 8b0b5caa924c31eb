"""What do the tests of the gate share? A trace on one screen, a project with gate files, and what pytest said of it."""

import contextlib
import functools
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar
from xml.etree import ElementTree
from zlib import crc32

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.cli import main
from pytest_nsys.cli.pytest_session import BaselineUpdatePlugin
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.file_names import WINDOW_SUFFIX
from pytest_nsys.core.trace import Trace
from pytest_nsys.gates.assertion_names import strip_limit
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import Assertion
from pytest_nsys.reports.session.record import make_record
from pytest_nsys.reports.words.verdict_text import render_explanation
from pytest_nsys.stored.baselines.store import find_store
from pytest_nsys.traces import trace_files
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.verdicts.evaluate import GateContext, evaluate, resolve_gate_convention
from pytest_nsys.verdicts.refresh_modes import RefreshOptions
from pytest_nsys.verdicts.stored_baseline import StoredBaseline
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.schema import CURRENT

ANCHOR = "forward chunk {0} (phase1) backward chunk {0} (phase0)"
GPU = "NVIDIA H100 80GB HBM3"
MS = 1_000_000

_NOT_OF_A_GATE = (
    *("cacheprovider", "doctest", "faulthandler", "hypothesispytest", "legacypath", "logging", "monkeypatch"),
    *("pastebin", "platformdirs", "recwarn", "setuponly", "setupplan"),
    *("stepwise", "subtests", "threadexception", "unittest", "unraisableexception", "xdist", "xdist.looponfail"),
)
LEFT_OUT = tuple(word for name in _NOT_OF_A_GATE for word in ("-p", f"no:{name}"))
"""Plugins that have nothing to do with a gate, and cost more in each run than all the rest of it, or leave files."""

Found = TypeVar("Found")
Exposed = int | Mapping[tuple[int, str], int | None]
Edit = Callable[[TraceBuilder, list[Process]], object]


def write_trace(
    path: Path,
    exposed_us: Exposed = 200,
    *,
    ranks: int = 2,
    stages: tuple[str, ...] = ("stage2_f", "stage4_f"),
    chunks_ms: Sequence[int] = (15,) * 5,
    every_ms: int = 20,
    label: str | None = "rank={rank}; pp={rank}/{ranks} dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048",
    gpu: str | None = GPU,
    edit: Edit | None = None,
    profiler: str = CURRENT.product,
) -> Path:
    """Ranks that repeat one chunk of 15 ms every 20 ms; the median is the third, from 40 ms on. In each stage of it
    communication runs for 1 ms on stream 28, hidden behind a gemm on stream 7 but for its last ``exposed_us``: of all,
    or by (rank, stage), then 200 elsewhere. So 200 is an overlap of 80%, and None is no kernel at all. ``edit`` adds
    what the test is about. The last chunk starts some ns late, by the file's name: no two runs take the same time.
    """
    trace = TraceBuilder(CURRENT._replace(product=profiler))
    processes = []
    own = _number_of(path)
    for rank in range(ranks):
        process = trace.process(pid=100 + rank)
        processes.append(process)
        if gpu is not None:
            trace.gpu(gpu, process=process)
        if label is not None:
            process.range(label.format(rank=rank, ranks=ranks), 10, 20)
        for k, length_ms in enumerate(chunks_ms):
            begin = every_ms * MS * k + 1_000
            late = own % 1_000 if k and k == len(chunks_ms) - 1 else 0
            process.range(ANCHOR.format(k), begin + late, begin + late + length_ms * MS)
            for i, stage in enumerate(stages):
                at = begin + MS + 4 * MS * i + late
                exposed = exposed_us if isinstance(exposed_us, int) else exposed_us.get((rank, stage), 200)
                process.range(f"layer00.{stage}", at, at + 2 * MS)
                if exposed is None:
                    continue
                process.kernel("ncclDevKernel_SendRecv", at + 10_000, at + 10_000 + MS, stream=28, launch_ns=at + 1_000)
                process.kernel("gemm", at + 10_000, at + 10_000 + MS - 1_000 * exposed, launch_ns=at + 5_000)
    if edit is not None:
        edit(trace, processes)
    path.parent.mkdir(parents=True, exist_ok=True)
    return sign(trace.write(path))


def sign(path: Path) -> Path:
    """Put the name into the file, where SQLite keeps a number for the user: no two captures have the same bytes."""
    with path.open("r+b") as file:
        file.seek(60)
        file.write(_number_of(path).to_bytes(4, "big"))
    return path


def _number_of(path: Path) -> int:
    return crc32("/".join(path.parts[-2:]).encode())


ACCEPTING = ("--nsys-update-baselines", "--nsys-reason=a new normal")
"""Options of a run that is accepted as the new normal."""

STARTING = ("capture", "baseline", "export")
"""Commands that start other programs, whose words come past this process."""


@dataclass(frozen=True)
class Case:
    """One item as JUnit tells of it: ``state`` is passed, failure, error or skipped."""

    state: str
    text: str
    properties: Mapping[str, str]


@dataclass
class Project:
    """A user's repository in a temporary folder, in which a real pytest runs."""

    pytester: pytest.Pytester
    name: str = "gate.nsys.yaml"
    result: pytest.RunResult = field(init=False)

    @property
    def root(self) -> Path:
        return self.pytester.path

    def gate(self, text: str, name: str | None = None) -> Path:
        """Write a gate file: ``text`` is a list of assertions, or the whole file without its version."""
        path = self.root / (name or self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        body = dedent(text).strip("\n")
        head = "version: 1\nassertions:\n" if body.startswith("-") else "version: 1\n"
        path.write_text(head + body + "\n", encoding="utf-8")
        return path

    def file(self, name: str, text: str) -> Path:
        """Write any other file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        # Written anew within a second at the same length, a test file would run from the bytecode of what it was.
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            stale.unlink()
        return path

    def gate_with_trace(self, text: str, name: str | None = None) -> None:
        """Write a gate file, and ``run.sqlite`` for it to judge."""
        self.gate(text, name)
        self.trace()

    def trace(self, name: str = "run.sqlite", exposed_us: Exposed = 200, **more: object) -> Path:
        """Write a trace: see :func:`write_trace`."""
        return write_trace(self.root / name, exposed_us, **more)  # type: ignore[arg-type]

    def gated(self, gate: str, exposed_us: Exposed = 200, *, name: str = "run.sqlite", **more: object) -> Path:
        """Write a gate file and a trace that it judges."""
        self.gate(gate)
        return self.trace(name, exposed_us, **more)

    def accepted(self, gate: str, exposed_us: Exposed = 200, *, name: str = "run.sqlite", **more: object) -> str:
        """The same, with the trace accepted as the normal; what the refresh said."""
        self.gated(gate, exposed_us, name=name, **more)
        return self.refresh(f"--nsys-trace={name}")

    def pair(self, base: Exposed = 200, head: Exposed = 200, **more: Any) -> tuple[str, str]:
        """Write a trace of each side of a comparison; their names."""
        self.trace("base.sqlite", base, **more)
        self.trace("head.sqlite", head, **more)
        return "base.sqlite", "head.sqlite"

    def commands_on_the_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """``pytest`` and ``pytest-nsys`` can be typed, as in an environment that is active."""
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def pytest(self, *arguments: str | Path, code: int | None = None, plugins: Sequence[object] = ()) -> str:
        """Run pytest here; what it printed. Never a traceback, never an internal error."""
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # not the filters of the suite around it
            self.result = self.pytester.runpytest_inprocess(*LEFT_OUT, *map(str, arguments), plugins=plugins)
        return self._said(code)

    def pytest_in_a_process(self, *arguments: str | Path, code: int | None = None) -> str:
        """The same in a process of its own, as xdist needs it."""
        self.result = self.pytester.runpytest_subprocess(*map(str, arguments))
        return self._said(code)

    def command(self, *arguments: str | Path, code: int | None = None) -> str:
        """Run ``pytest-nsys``; what it printed. In this process where the command starts no other: that is quicker."""
        words = [str(word) for word in arguments]
        if not words or words[0] in STARTING or any(word.startswith("--executor") for word in words):
            return self.command_in_a_process(*words, code=code)
        printed, complaints = io.StringIO(), io.StringIO()
        began = time.perf_counter()
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
            warnings.simplefilter("default")
            try:
                main(words, prog_name="pytest-nsys")
                status: object = 0
            except SystemExit as end:
                status = end.code
        said, told = (text.getvalue().splitlines() for text in (printed, complaints))
        self.result = pytest.RunResult(int(str(status or 0)), said, told, time.perf_counter() - began)
        return self._said(code)

    def command_in_a_process(self, *arguments: str | Path, code: int | None = None) -> str:
        """The same in a process of its own."""
        self.result = self.pytester.run(sys.executable, "-m", "pytest_nsys", *map(str, arguments))
        return self._said(code)

    def cases(self, *arguments: str | Path, code: int | None = None) -> dict[str, Case]:
        """Run pytest here; its JUnit report by item."""
        self.pytest(*arguments, f"--junitxml={self.root / 'junit.xml'}", code=code)
        return self.junit()

    def reasons(self, *arguments: str | Path, code: int | None = None) -> dict[str, str]:
        """Run pytest here; by the name of each item without its file ``STATE: REASON`` on one line."""
        cases = self.cases(*arguments, code=code).items()
        return {name.rpartition("::")[2]: " ".join(f"{case.state}: {case.text}".split()) for name, case in cases}

    def junit(self) -> dict[str, Case]:
        """What the JUnit report says."""
        return ByName(_case(element) for element in ElementTree.parse(self.root / "junit.xml").iter("testcase"))

    def judged(self, trace: str = "run.sqlite") -> dict[str, Case]:
        """By full name, without a pytest around it, which costs five times as much: held against what is stored."""
        gate = load_gate_file(self.root / self.name)
        with contextlib.closing(CaptureCache()) as cache:
            store = find_store(gate.path, self.root / "baselines", self.root)
            try:
                gate = resolve_gate_convention(
                    gate, partial(cache.choose_convention, [trace], self.root, None), store=store
                )
            except NsysError as error:
                return {assertion.full_name: _error(error) for assertion in gate.assertions}
            captures = cache.open_captures([trace], self.root, gate.resolved_convention, gate.workload)
            stored = StoredBaseline(captures, gate, store, capture_cache=cache)
            context = GateContext(captures, gate, stored)
            return {assertion.full_name: _judged(assertion, context) for assertion in gate.assertions}

    def refresh(self, *arguments: str | Path, code: int | None = 0, **accepting: Any) -> str:
        """Accept a run as the new normal; ``accepting`` is what ``pytest-nsys baseline`` hands over."""
        plugins = [BaselineUpdatePlugin(RefreshOptions(**accepting))] if accepting else []
        return self.pytest(*ACCEPTING, *arguments, code=code, plugins=plugins)

    def baselines(self, folder: str = "baselines") -> dict[str, str]:
        """The text of every file in the baseline folder, by path, but for windows that are kept."""
        found = sorted(path for path in (self.root / folder).rglob("*") if path.is_file())
        shown = [path for path in found if not path.name.endswith(WINDOW_SUFFIX)]
        return {path.relative_to(self.root / folder).as_posix(): path.read_text(errors="replace") for path in shown}

    def contents(self) -> dict[Path, bytes]:
        """Every file in the baseline folder, windows too."""
        return {path: path.read_bytes() for path in (self.root / "baselines").rglob("*") if path.is_file()}

    def files(self) -> set[str]:
        """Every file of the project but what Python, pytest and these tests leave for themselves."""
        found = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        own = {"__pycache__", ".pytest_cache", "stdout", "stderr", "junit.xml"}
        return {path.as_posix() for path in found if not own & set(path.parts)}

    def _said(self, code: int | None) -> str:
        said = self.result.stdout.str() + "\n" + self.result.stderr.str()
        assert "INTERNALERROR" not in said
        assert "Traceback" not in said
        if code is not None:
            assert self.result.ret == code, said
        return said


def built_once(build: Callable[[Project], Project]) -> Callable[[Project], Project]:
    """A fixture that fills an empty project: what it writes for its first test is copied for each of the others."""
    kept: list[Path] = []

    @functools.wraps(build)
    def copied(project: Project) -> Project:
        if not kept:
            build(project)
            kept.append(Path(tempfile.mkdtemp(dir=project.root.parent), "project"))
            shutil.copytree(project.root, kept[0], symlinks=True)
        else:
            shutil.copytree(kept[0], project.root, symlinks=True, dirs_exist_ok=True)
            if (project.root / ".git").exists():  # knows files by where they lie on the disk
                subprocess.run(["git", "update-index", "-q", "--refresh"], cwd=project.root, check=True)
        return project

    return copied


def with_id(name: str, entry: str) -> str:
    """Return the line of a gate file for an assertion, which is a sentence or a mapping in braces."""
    return f"- {{id: {name}, {entry[1:]}\n" if entry.startswith("{") else f"- id: {name}\n  assert: {entry}\n"


class ByName(dict[str, Found]):
    """What was found of each assertion, by its name. A whole sentence finds it, too."""

    def __missing__(self, sentence: str) -> Found:
        """Raises KeyError where no assertion is meant."""
        brackets = re.search(r"(\[.*\])?$", sentence)
        assert brackets is not None
        name = strip_limit(sentence) + brackets[0]
        if name == sentence:
            raise KeyError(sentence)
        return self[name]


def _judged(assertion: Assertion, context: GateContext) -> Case:
    try:
        verdict = evaluate(assertion, context)
    except NsysError as error:
        return _error(error)
    record = make_record(verdict, "run")
    properties = {name: str(value) for name, value in record.list_junit_properties()}
    return Case("passed" if verdict.good else "failure", "\n".join(render_explanation(record.verdict, ())), properties)


def _error(error: NsysError) -> Case:
    return Case("error", str(error), {"nsys_outcome": "error"})


def _case(element: ElementTree.Element) -> tuple[str, Case]:
    properties = {p.get("name", ""): p.get("value", "") for p in element.iter("property")}
    state, text = "passed", ""
    for child in element:
        if child.tag in ("failure", "error", "skipped"):
            state, text = child.tag, f"{child.get('message', '')}\n{child.text or ''}"
    return element.get("name", ""), Case(state, text, properties)


def heard(terminal: int) -> str:
    """What was written to a terminal, until its other end is closed."""
    said = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while more := os.read(terminal, 1 << 16):
            said += more
    return said.decode()


def watch_openings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A list that gets the path of every trace that is opened from now on."""
    opened: list[Path] = []

    def read(path: Path) -> Trace:
        opened.append(path)
        return NsysSqlite(path)

    monkeypatch.setattr(trace_files, "READERS", {".sqlite": read})
    return opened
