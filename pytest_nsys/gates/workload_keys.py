"""What does a gate file say of the work that was traced, because no trace can?"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from yaml.nodes import Node

from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.core.units import format_value
from pytest_nsys.core.workload import Parallel, Workload
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.kinds import Entry
from pytest_nsys.gates.yaml_nodes import Mistakes, Reader

BANDWIDTH = "GB/s"
FIELDS = {"step_time": "step_time_ns", "peak": "peak_gb_per_s"}
"""Keys whose field of a Workload has another name."""


def read_workload(reader: Reader, stated: Node | None, file: Mapping[str, Any], folder: Path) -> Workload:
    """What the file, which lies in ``folder``, states under ``workload:``, and in other keys that count here.

    What it states itself counts before what its ``config`` says.
    """
    found = _read_stated(Entry(reader, stated, "workload"), folder) if stated is not None else {}
    run = file.get("run", {})
    found |= {key: run[key] for key in ("sequence_length", "world") if key in run}
    return Workload(**found, **{key: file[key] for key in ("pipeline", "blocks") if key in file})


def options_of(workload: Workload, command: str) -> list[str]:
    """What a person types to state the same to a command that divides by it."""
    if command == "collectives" and workload.peak_gb_per_s is not None:
        return ["--peak", format_value(workload.peak_gb_per_s, BANDWIDTH, 15).replace(" ", "")]
    if command != "kernels":
        return []
    words = [] if workload.steps is None else ["--steps", str(workload.steps)]
    return words if workload.step_time_ns is None else [*words, "--step-time", f"{workload.step_time_ns}ns"]


def check_needed(mistakes: Mistakes, assertions: Iterable[Assertion], stated: Container[str]) -> None:
    """Notes each assertion on a metric that takes a key which the file, whose keys are ``stated``, lacks."""
    for assertion in assertions:
        needs = METRICS[assertion.metric].needs if assertion.metric in METRICS else None
        if needs is not None and needs.key not in stated:
            place = assertion.location
            what = f"{assertion.metric} needs {needs.key}: {needs.example} in this file: patterns (%) of range names"
            mistakes.add(place.line, place.column, what)


def _read_stated(entry: Entry, folder: Path) -> dict[str, Any]:
    said = entry.values()
    found = _read_config(entry, said.pop("config"), folder) if "config" in said else {}
    if "data_parallel" in said:
        found["parallel"] = Parallel(shard=said.pop("data_parallel"))
    if "local_samples" in said:
        found.pop("samples", None)  # of the configuration: the batch of a replica is stated instead
    return found | {FIELDS.get(key, key): value for key, value in said.items()}


def _read_config(entry: Entry, written: str, folder: Path) -> dict[str, Any]:
    from pytest_nsys.gates.titan_config import ConfigMistake, read_config

    try:
        said = read_config(folder / Path(written).expanduser())
    except (ConfigMistake, RuntimeError) as mistake:  # the latter of ~nobody
        entry.mistake("config", str(mistake))
        return {}
    return {key: value for key, value in said._asdict().items() if value not in (None, ())}
