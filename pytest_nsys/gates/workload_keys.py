"""What does a gate file say of the work that was traced, because no trace can?"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from yaml.nodes import Node

from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.core.model import Label, printable
from pytest_nsys.core.units import NANOSECONDS, UnitMistake, format_value, parse_quantity
from pytest_nsys.core.workload import Parallel, TwoStages, Workload
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.titan_config import ConfigMistake, read_config
from pytest_nsys.gates.yaml_nodes import Mistakes, Reader

WORKLOAD_KEYS = ("config", "steps", "step_time", "samples", "local_samples", "data_parallel", "peak")
PIPELINE_KEYS = ("stage0", "stage1", "warmup")
BANDWIDTH = "GB/s"


def read_workload(reader: Reader, fields: Mapping[str, Node], run: Mapping[str, Label], folder: Path) -> Workload:
    """What the file, which lies in ``folder``, states; ``run`` is what it says of the run, of which a part counts here.

    What it states itself counts before what its ``config`` says.
    """
    found: dict[str, Any] = {key: run[key] for key in ("sequence_length", "world") if key in run}
    if "workload" in fields:
        found = _read_stated(reader, fields["workload"], folder) | found
    if "pipeline" in fields:
        found["pipeline"] = _read_pipeline(reader, fields["pipeline"])
    if "blocks" in fields:
        found["blocks"] = reader.texts(fields["blocks"], "blocks")
    return Workload(**found)


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


def _read_stated(reader: Reader, node: Node, folder: Path) -> dict[str, Any]:
    fields = reader.mapping(node, "workload", WORKLOAD_KEYS)
    found = _read_config(reader, fields["config"], folder) if "config" in fields else {}
    for key, value in fields.items():
        match key:
            case "config":
                pass
            case "data_parallel":
                degree = reader.whole(value, key, at_least=1)
                found["parallel"] = Parallel(shard=degree)
            case "local_samples":
                found[key] = reader.whole(value, key, at_least=1)
                if "samples" not in fields:
                    found.pop("samples", None)  # of the configuration: the batch of a replica is stated instead
            case "step_time":
                found["step_time_ns"] = _read_time(reader, value)
            case "peak":
                found["peak_gb_per_s"] = _read_bandwidth(reader, value)
            case _:
                found[key] = reader.whole(value, key, at_least=1)
    return found


def _read_config(reader: Reader, node: Node, folder: Path) -> dict[str, Any]:
    text = reader.text(node, "config")
    if text is None:
        return {}
    try:
        said = read_config(folder / Path(text.strip()).expanduser())
    except (ConfigMistake, RuntimeError) as mistake:  # the latter of ~nobody
        reader.mistakes.at(node, str(mistake))
        return {}
    return {key: value for key, value in said._asdict().items() if value not in (None, ())}


def _read_time(reader: Reader, node: Node) -> int | None:
    amount = _read_amount(reader, node, "step_time", tuple(NANOSECONDS), "a time, as in 412ms")
    return None if amount is None else round(amount)


def _read_bandwidth(reader: Reader, node: Node) -> Fraction | None:
    return _read_amount(reader, node, "peak", (BANDWIDTH,), "a bandwidth per GPU, as in 400GB/s")


def _read_amount(reader: Reader, node: Node, key: str, units: tuple[str, ...], wanted: str) -> Fraction | None:
    text = reader.text(node, key)
    if text is None:
        return None
    try:
        quantity = parse_quantity(text)
    except UnitMistake as mistake:
        reader.mistakes.at(node, str(mistake))
        return None
    if quantity.unit not in units or not quantity.value:
        reader.mistakes.at(node, f"{key} is {wanted}, not '{printable(text.strip(), 40)}'")
        return None
    return quantity.value * NANOSECONDS.get(quantity.unit, 1)


def _read_pipeline(reader: Reader, node: Node) -> TwoStages | None:
    fields = reader.mapping(node, "pipeline", PIPELINE_KEYS)
    missing = [key for key in ("stage0", "stage1") if key not in fields]
    if missing:
        what = f"pipeline needs {' and '.join(missing)}: patterns (%) of the ranges that make up the stage"
        reader.mistakes.at(node, what)
        return None
    first, second = (reader.texts(fields[key], key) for key in ("stage0", "stage1"))
    warm_up = reader.whole(fields["warmup"], "warmup", at_least=0) if "warmup" in fields else None
    return TwoStages(first, second) if warm_up is None else TwoStages(first, second, warm_up)
