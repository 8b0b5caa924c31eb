"""What a profiler stored of machine, user and command line stays in the trace: no report, cut or baseline has it."""

import gzip
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.traces.profiler_messages import hide_names, list_private_names
from tests.support.commands import name_of_cut
from tests.support.gates import ACCEPTING, MS, Project, write_trace
from tests.support.git_project import commit, git, start
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.odd_rows import diagnostic
from tests.support.samples.rocpd import RocpdBuilder
from tests.support.sql import execute

HOST, USER = "gpu-node-4711", "alice-cooper"
HOME = f"/home/{USER}/top-secret-model"
COMMAND = f"python {HOME}/train.py --token=hunter2"
PRIVATE = re.compile(rf"{HOST}|{USER}|top-secret|hunter2|--token", re.IGNORECASE)
SAID = f"Failed on {HOST}: cannot open {HOME}/run.nsys-rep of '{COMMAND}', C:\\Users\\{USER}\\x.txt; 3 events were lost"
"""A message of the profiler, which people are told, though not all of it."""


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (SAID, "Failed on …: cannot open … of …; 3 events were lost"),
        ("Launched python train.py --token secret on hydra for bob@x.org", "Launched python … on … for …"),
        ("hydra: 5 records dropped at 10.0.0.17", "…: 5 records dropped at …"),
        ("node17.cluster.example.com is busy", "… is busy"),
        *(
            (kept, kept)
            for kept in (
                "Installed CUDA driver version (13.2) is not supported by this build of Nsight Systems.",
                "Not all NVTX events might have been collected; didn't flush. It can't.",
                "Scheduling information is absent. The activity is deduced based on OS runtime libraries traces.",
                "Number of CUDA events collected: 37.",
            )
        ),
    ],
)
def test_a_message_of_the_profiler_is_told_without_names(message: str, told: str) -> None:
    assert (
        hide_names(message, list_private_names([("DEVICE_DISPLAY_NAME", "hydra"), ("NODE", None), ("CpuCores", "8")]))
        == told
    )


TABLES = {
    "TARGET_INFO_SYSTEM_ENV": [("Hostname", HOST), ("UserName", USER), ("TOKEN", "hunter2"), ("PWD", HOME)],
    "META_DATA_CAPTURE": [
        *(("DEVICE_DISPLAY_NAME", HOST), ("PROCESS_0:COMMAND", COMMAND), ("PROCESS_0:WORKING_DIR", HOME)),
        ("PROCESS_0:ENVIRONMENT", "TOKEN=hunter2"),
    ],
    "META_DATA_EXPORT": [("EXPORT_SOURCE", f"{HOME}/run.nsys-rep"), ("EXPORT_HOST", HOST), ("EXPORT_USER", USER)],
    "ANALYSIS_FILE": [(f"{HOME}/nsys.log", COMMAND)],
    "TARGET_INFO_NETWORK_DEVICES": [(HOST, HOME)],
    "SCRIPTS_RUN": [(COMMAND, HOME)],
}
"""Rows of (name, value) as nsys writes them, and tables that a later version may have."""


def nsys(path: Path, exposed_us: int = 200) -> Path:
    """An export in which every table that can hold such a thing does."""

    def edit(trace: TraceBuilder, processes: list[Process]) -> None:
        diagnostic(trace, 2, SAID)
        for process in processes:
            process.range(f"domain of {HOST}", 30, 40)

    write_trace(path, exposed_us, edit=edit)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE NVTX_EVENTS SET eventType = 75, domainId = 7 WHERE text LIKE 'domain of %'")
        db.execute(f"UPDATE PROCESSES SET name = '{HOME}/bin/python3'")
        db.execute(f"INSERT INTO StringIds VALUES (77777, '{COMMAND}')")
        for table, rows in TABLES.items():
            db.execute(f"CREATE TABLE IF NOT EXISTS {table} (name TEXT, value TEXT)")
            db.executemany(f"INSERT INTO {table} (name, value) VALUES (?, ?)", rows)
        db.commit()
    return path


def stepped(trace: Any, exposed_us: int, begins: Iterator[int]) -> None:
    for begin in begins:
        trace.kernel("ncclDevKernel_SendRecv", begin + MS, begin + 2 * MS, stream=28, launch_ns=begin + 10_000)
        trace.kernel("gemm", begin + MS, begin + 2 * MS - 1_000 * exposed_us, launch_ns=begin + 20_000)


def kineto(path: Path, exposed_us: int = 200) -> Path:
    """A trace of torch.profiler with all that it may say of where it ran."""
    trace = KinetoBuilder()
    trace.members |= {"hostname": HOST, "host_name": HOST, "cmdline": COMMAND, "with_stack": 1, "WARNING": [SAID]}
    trace.members["distributedInfo"] |= {"master_addr": HOST, "hostname": HOST}
    for name, args in (("process_name", {"name": COMMAND}), ("process_labels", {"labels": HOST})):
        trace.events.append({"name": name, "ph": "M", "ts": 0, "pid": 100, "tid": 0, "args": args})
    for k in range(5):
        begin = 20 * MS * k
        trace.range(f"ProfilerStep#{k}", begin, begin + 15 * MS)
        trace.event("python_function", f"{HOME}/train.py(12): step", begin, begin + 14 * MS)
        trace.event("cpu_op", "aten::mm", begin, begin + MS, args={"Call stack": f"{HOME}/train.py(12): step"})
    stepped(trace, exposed_us, iter(range(0, 100 * MS, 20 * MS)))
    text = trace.text().replace('"trace.json"', f'"{HOME}/trace.json"')
    path.write_bytes(gzip.compress(text.encode()))
    return path


def jax(path: Path, exposed_us: int = 200) -> Path:
    """A trace of JAX with sources of its operations, and what its host is called."""
    trace = JaxBuilder(gpus=range(1))
    trace.members["metadata"] |= {"hostname": HOST, "command_line": COMMAND}
    trace._name("process_name", f"/host:{HOST}", pid=999)
    for k in range(5):
        begin = 20 * MS * k
        trace.step("train", k, begin, begin + 15 * MS)
        trace.event("", f"{HOME}/train.py:12 step", begin, begin + MS, pid=999, tid=5)
    stepped(trace, exposed_us, iter(range(0, 100 * MS, 20 * MS)))
    for event in trace.events:
        event.setdefault("args", {}).update({"source": f"{HOME}/train.py:12", "tf_op": f"{HOME}/train.py"})
    return trace.write(path)


def rocpd(path: Path, exposed_us: int = 200) -> Path:
    """A database of rocprofv3, which keeps the environment, the command and the name of the host."""
    trace = RocpdBuilder(host=HOST, environment={"USER": USER, "HOME": HOME, "RANK": "0", "WORLD_SIZE": "1"})
    trace.insert("info_code_object", uri=f"file://{HOME}/kernels.co")
    for k in range(5):
        begin = 20 * MS * k
        trace.range(f"forward chunk {k} (phase0) backward chunk {k} (phase1)", begin, begin + 15 * MS)
    stepped(trace, exposed_us, iter(range(0, 100 * MS, 20 * MS)))
    trace.write(path)
    changed = f"UPDATE {trace.table('info_process')} SET command = '{COMMAND}', extdata = '{{\"cwd\": \"{HOME}\"}}'"
    execute(path, changed, f"UPDATE {trace.table('info_node')} SET system_name = '{HOST}'")
    return path


FORMATS: dict[str, tuple[Callable[..., Path], str]] = {
    "pithtrain": (nsys, ".sqlite"),
    "rocpd": (rocpd, "_results.db"),
    "kineto": (kineto, ".json.gz"),
    "jax": (jax, ".trace.json.gz"),
}

GATE = """version: 1
convention: {convention}
quality: {{anchors: off, dropped: off}}
assertions:
  - wall_overlap >= 50%
  - wall_exposed_ns below baseline plus 5%
  - sequence == baseline
  - no new kernels
"""
LOOKS = (
    *((f"--view={view}",) for view in ("ranks", "streams", "overlap", "kernels", "collectives")),
    *((f"--view={view}", "--format=json") for view in ("ranks", "kernels")),
    ("rows", "launches", "kernel_launches", "--trace"),
)
KINDS = {"json": "json", "summary": "md", "html": "html"}
REPORTS = ("--nsys-json=r.json", "--nsys-summary=r.md", "--nsys-html=r.html", "--nsys-annotate", "--junitxml=r.xml")


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """All files of the project but its traces, as text; packed ones unpacked."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and "private" not in path.parts and "__pycache__" not in path.parts:
            content = path.read_bytes()
            content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
            yield path.relative_to(root).as_posix(), content.decode("utf-8", "replace")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.sampled(3)
def test_what_a_profiler_stored_of_its_machine_stays_in_the_trace(project: Project, format: str) -> None:
    make, suffix = FORMATS[format]
    convention = "pithtrain" if format == "rocpd" else format
    (project.root / "private").mkdir()
    base = make(project.root / f"private/base{suffix}").relative_to(project.root).as_posix()
    head = make(project.root / f"private/head{suffix}", 800).relative_to(project.root).as_posix()
    (project.root / "gate.nsys.yaml").write_text(GATE.format(convention=convention))
    said = {"refresh": project.pytest(*ACCEPTING, f"--nsys-trace={base}", code=0)}
    kept = (f"--nsys-trace={head}", "--nsys-history=h.db", "--nsys-artifacts=kept", *REPORTS, "-vv", "-rA")
    said["red"] = project.pytest(*kept, code=1)
    assert "failed  wall_overlap >= 50%" in said["red"]
    strict = GATE.format(convention=convention).replace("dropped: off", "diagnostics: 0, dropped: 0")
    (project.root / "strict.nsys.yaml").write_text(strict)
    said["error"] = project.pytest("strict.nsys.yaml", *kept[:1], "--nsys-json=e.json", "--nsys-summary=e.md")
    for look in LOOKS:
        said[" ".join(look)] = project.command(*look, head)
    for output in ("md", "html", "json", "txt"):
        project.command("compare", base, head, f"--output=c.{output}", "--gate=gate.nsys.yaml", code=1)
    said["compare"] = project.command("compare", base, head)
    small = name_of_cut(project.root / head, "cut", packed=False)
    said["cut"] = project.command("cut", head, f"--output={small}", code=0)
    said["init"] = project.command("init", head, "--output=draft.nsys.yaml")
    said["report"] = project.command("--view=config", "private")
    said["history"] = project.command("history", "list", "--history=h.db")
    written = dict(texts(project.root))
    assert {"r.json", "r.md", "r.html", "r.xml", "e.json", "h.db", "c.md", "c.html", "c.json", small} <= {*written}
    assert [name for name in written if name.startswith("kept/")]
    leaks = {name: sorted({*PRIVATE.findall(text)}) for name, text in {**said, **written}.items()}
    assert {name: found for name, found in leaks.items() if found} == {}
    del written["r.xml"]  # holds what the terminal has, which names the root directory
    assert [name for name, text in written.items() if str(project.root.parent) in text] == []


def test_a_trace_in_the_folder_is_named_from_there_however_it_is_typed(project: Project) -> None:
    (project.root / "private").mkdir()
    base = nsys(project.root / "private/base.sqlite")
    head = nsys(project.root / "private/head.sqlite", 800)
    (project.root / "gate.nsys.yaml").write_text(GATE.format(convention="pithtrain"))
    project.pytest(*ACCEPTING, f"--nsys-trace={base}", code=0)
    project.pytest(f"--nsys-trace={head}", "--nsys-history=h.db", *REPORTS, code=1)
    project.pytest(f"--nsys-trace={head}", f"--nsys-against={base}", "--nsys-json=a.json", "--nsys-html=a.html", code=1)
    project.pytest(f"--nsys-trace={project.root}/private/h*.sqlite", "--nsys-json=g.json", code=1)
    written = dict(texts(project.root))
    assert "private/head.sqlite" in written["g.json"]
    assert {"r.json", "r.md", "r.html", "h.db", "a.json", "a.html"} <= {*written}
    del written["r.xml"]
    assert [name for name, text in written.items() if str(project.root.parent) in text] == []


def test_folders_above_the_repository_stay_here(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    start(project)
    project.file("pytest.ini", "[pytest]\n")
    (project.root / "private").mkdir()
    nsys(project.root / "private/base.sqlite")
    (project.root / "perf").mkdir()
    (project.root / "perf/gate.nsys.yaml").write_text(GATE.format(convention="pithtrain"))
    project.pytest(*ACCEPTING, "--nsys-trace=private/base.sqlite", code=0)
    commit(project.root)
    (stored,) = (project.root / "baselines").rglob("*.json")
    kept = stored.read_text()
    stored.write_text("{")
    commit(project.root, "break")
    git(project.root, "tag", "broken")
    stored.write_text(kept)
    for started, up in ((project.root / "perf", "../"), (project.root, "")):
        monkeypatch.chdir(started)
        trace = f"--nsys-trace={up}private/base.sqlite"
        for name, ref, code in (("green", "", 0), ("unknown", "nosuch", 1), ("broken", "broken", 1)):
            asked = [f"--nsys-baseline-ref={ref}"] if ref else []
            reports = [f"--nsys-{kind}={up}{name}.{end}" for kind, end in KINDS.items()]
            project.pytest(trace, *asked, *reports, f"--nsys-history={up}h.db", code=code)
        written = dict(texts(project.root))
        assert f'"{up}baselines/' in written["green.json"]
        assert f"{project.root.name} has no commit 'nosuch'" in written["unknown.json"]
        assert f"{up}baselines/{stored.relative_to(project.root / 'baselines')}: " in written["broken.json"]
        made = {f"{name}.{end}" for name in ("green", "unknown", "broken") for end in KINDS.values()} | {"h.db"}
        assert [name for name in made if str(project.root.parent) in written[name]] == []
