"""Which keys has what is written for a program, or to be read again? They are data: no renaming of code changes one.

``frozen_data.json`` holds them, but for what another file holds: the schemas, which require every key of a report of
a session, of a comparison, of ``check`` and of the first screen, and allow no other; and ``gate_file.keys.ini``, which
has the keys of a convention that is stored, too. What xdist carries is pickled and read in one session by the same
code, and nothing keeps it.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_nsys.core.file_names import CUT_MARK_MEMBER, CUT_MARK_TABLE
from pytest_nsys.tools.nvidia_smi import GpuState
from pytest_nsys.traces.cut_trace import LostWork
from pytest_nsys.traces.sidecars.gpu_log import GpuLog, write_gpu_log
from tests.analysis.metrics.test_pipeline import GATE as STAGES
from tests.cli.test_report_command import CONFIG, write_run
from tests.support.commands import answer, run
from tests.support.gates import Project
from tests.support.samples.two_stages import write_two_stages
from tests.support.sql import ask

FROZEN: dict[str, list[str]] = json.loads(Path(__file__).with_name("frozen_data.json").read_text(encoding="utf-8"))
ANY = "{}"
"""In a path of keys, one that the trace or the gate file gives, such as a stage or an axis of the mesh."""

GOOD, BAD, PIPELINE = "nsys-demo/traces/good", "nsys-demo/traces/regressed", "dual/traces/regressed.sqlite"
VIEWS = ("ranks", "overlap", "streams", "kernels", "collectives", "budget", "program")
HEAD = ("trace", "kernels", "definition", "windows", "notes")
"""What every command that measures says first."""


def list_keys(value: object, known: frozenset[str], path: str = "") -> Iterator[str]:
    """Yield the path of every key in a value of JSON. A list adds ``[]`` to the path."""
    if isinstance(value, dict):
        any_key = f"{path}.{ANY}"
        for key, inner in value.items():
            here = any_key if any_key in known else f"{path}.{key}".lstrip(".")
            yield here
            yield from list_keys(inner, known, here)
    elif isinstance(value, list):
        for inner in value:
            yield from list_keys(inner, known, f"{path}[]")


def read_json(path: str | Path) -> Any:
    """Return what a file of JSON holds, packed or not."""
    content = Path(path).read_bytes()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def split_head(name: str, measured: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the head of what a command measured by a name that all have, and the rest."""
    yield "head of what is measured", {key: measured.pop(key) for key in HEAD}
    yield name, measured


def write_everything(project: Project) -> Iterator[tuple[str, object]]:
    """Yield what is written of two runs of the demo, each with its name in the frozen data."""
    run("demo", code=0)
    run("demo", "--dualpipe", "dual", code=0)
    for trace in (BAD, PIPELINE):
        yield from split_head("rows", answer("rows", "exposed_ns", "--trace", trace))
        for view in VIEWS:
            yield from split_head(f"view {view}", answer(trace, "--view", view))
    stages = write_two_stages(project.root / "stages.sqlite")
    project.file("stages.nsys.yaml", f"version: 1\n{STAGES}assertions: [no syncs]\n")
    yield from split_head("view pipeline", answer(stages, "--view", "pipeline", "--gate", "stages.nsys.yaml"))
    project.file("run.toml", CONFIG)
    configured = write_run(project.root / "configured")
    yield from split_head("view config", answer(configured, "--view", "config", "--config", "run.toml"))

    run("init", GOOD, "-o", "gate/step.nsys.yaml", code=0)
    (baseline,) = Path("baselines").rglob("*.json")
    yield "baseline", read_json(baseline)
    yield "baseline show", answer("baseline", "show", "gate")

    for trace in (GOOD, BAD):
        project.pytest("gate", f"--nsys-trace={trace}", "--nsys-history=perf.db", "--nsys-artifacts=windows")
    for window in Path("windows").iterdir():
        yield "drawing for Perfetto", read_json(window)
    yield "history", answer("history")
    for table in ("runs", "rows", "verdicts"):
        columns = ask(Path("perf.db"), f"PRAGMA table_info({table})")
        yield "tables of a history", {table: dict.fromkeys(name for _, name, *_ in columns)}
    for (facts,) in ask(Path("perf.db"), "SELECT facts FROM runs"):
        yield "facts of a run in a history", json.loads(facts)

    run("cut", BAD, "-o", "cut.json.gz", code=0)
    yield "mark of a cut", read_json("cut.json.gz")[CUT_MARK_MEMBER]
    run("cut", PIPELINE, "-o", "cut.sqlite", code=0)
    ((mark,),) = ask(Path("cut.sqlite"), f"SELECT mark FROM {CUT_MARK_TABLE}")
    yield "mark of a cut", json.loads(mark)
    yield "mark of a cut", {"lost": [msgspec.to_builtins(LostWork(process=1, called_ns=None, records=[]))]}
    run("cut", BAD, "--format", "perfetto", "-o", "drawn.json", code=0)
    yield "drawing for Perfetto", read_json("drawn.json")

    state = GpuState(0, "NVIDIA H100", "555.42", 1980, 1980, 0)
    yield "log of GPUs", read_json(write_gpu_log(project.root / "run.nsys-rep", GpuLog([state], [state])))


def test_no_key_of_what_is_written_changes(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    found: dict[str, set[str]] = {}
    for name, value in write_everything(project):
        found.setdefault(name, set()).update(list_keys(value, frozenset(FROZEN.get(name, ()))))
    changed = {
        name: {"gone": sorted({*FROZEN.get(name, ())} - keys), "new": sorted(keys - {*FROZEN.get(name, ())})}
        for name, keys in found.items()
        if keys != {*FROZEN.get(name, ())}
    }
    assert changed == {}
    assert sorted(found) == sorted(FROZEN)
