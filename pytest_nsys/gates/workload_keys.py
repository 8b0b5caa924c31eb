"""What does a gate file say of the work that was traced, because no trace can?

A configuration of TorchTitan (TOML) says it as well: batch, length of a sample, parallel degrees.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from yaml.nodes import Node

from pytest_nsys.core.errors import UsageMistake, convert_os_errors
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import BANDWIDTH, format_written_limit
from pytest_nsys.core.workload import Parallel, Workload
from pytest_nsys.gates.kinds import MappingEntry
from pytest_nsys.gates.model import Assertion
from pytest_nsys.gates.yaml_nodes import NodeReader

RENAMED_FIELDS = {"step_time": "step_time_ns", "peak": "peak_gb_per_s"}
"""Fields of Workload whose name differs from the key, by key."""


def read_workload(reader: NodeReader, node: Node | None, file_values: Mapping[str, Any], folder: Path) -> Workload:
    """Return the work that the file states under ``workload:`` (``node``) and in ``file_values``, its other keys.

    ``folder`` holds the file. Values of the file override those of its ``config``.
    """
    stated_values = _read_stated(MappingEntry(reader, node, "workload"), folder) if node is not None else {}
    run = file_values.get("run", {})
    stated_values |= {key: run[key] for key in ("sequence_length", "world") if key in run}
    return Workload(**stated_values, **{key: file_values[key] for key in ("pipeline", "blocks") if key in file_values})


def list_stated_options(workload: Workload, view: str) -> list[str]:
    """List the command-line options that state the same work to ``view``."""
    if view == "collectives" and workload.peak_gb_per_s is not None:
        return ["--peak", format_written_limit(workload.peak_gb_per_s, BANDWIDTH)]
    if view != "kernels":
        return []
    options = [] if workload.steps is None else ["--steps", str(workload.steps)]
    return options if workload.step_time_ns is None else [*options, "--step-time", f"{workload.step_time_ns}ns"]


def check_needed_keys(reader: NodeReader, assertions: Iterable[Assertion], stated_keys: Container[str]) -> None:
    """Record each assertion on a metric that needs a key which is not among ``stated_keys``."""
    for assertion in assertions:
        needed_key = assertion.measured_metric.required_key
        if needed_key is not None and needed_key.key not in stated_keys:
            location = assertion.location
            problem = (
                f"{assertion.metric} needs {needed_key.key}: {needed_key.example} in this file: "
                "patterns (%) of range names"
            )
            reader.add_mistake_at(location.line, location.column, problem)


def _read_stated(entry: MappingEntry, folder: Path) -> dict[str, Any]:
    values = entry.read_values()
    fields = _read_config(entry, values.pop("config"), folder) if "config" in values else {}
    if "data_parallel" in values:
        fields["parallel"] = Parallel(shard=values.pop("data_parallel"))
    if "local_samples" in values:
        fields.pop("samples", None)  # the configuration's global batch: the file states the batch of a replica instead
    return fields | {RENAMED_FIELDS.get(key, key): value for key, value in values.items()}


def _read_config(entry: MappingEntry, path_text: str, folder: Path) -> dict[str, Any]:
    try:
        workload = read_torchtitan_config(folder / Path(path_text).expanduser())
    except (UsageMistake, RuntimeError) as mistake:  # expanduser raises RuntimeError for ~nobody
        entry.add_mistake("config", str(mistake))
        return {}
    return {key: value for key, value in workload._asdict().items() if value not in (None, ())}


MAX_CONFIG_BYTES = 1 << 20
# TorchTitan moved its keys between tables over the years: each is looked for wherever it once was.
TORCHTITAN_TABLES = ("parallelism", "training", "experimental")
"""Tables in which the parallel degrees may stand, the newest first."""

DEGREE_KEYS = {
    "replicate": "data_parallel_replicate_degree",
    **{axis: f"{axis}_parallel_degree" for axis in ("tensor", "pipeline", "context", "expert")},
}
"""The key of each parallel degree except sharding, whose key was renamed over time."""

# For a degree: what the other degrees leave of the world. For a global batch: one batch of each replica.
REST_DEGREE = -1


def read_torchtitan_config(path: Path) -> Workload:
    """Return the work that a configuration of TorchTitan states. Raises UsageMistake for an unreadable or contradictory
    one.
    """
    import tomllib  # few gate files name a configuration

    shown_path = sanitize_line(str(path), 1000)
    with convert_os_errors(UsageMistake, f"{shown_path}: cannot be read"), path.open("rb") as file:
        content = file.read(MAX_CONFIG_BYTES + 1)
    if len(content) > MAX_CONFIG_BYTES:
        raise UsageMistake(f"{shown_path}: is larger than {MAX_CONFIG_BYTES} bytes: it is not a configuration")
    try:
        tables = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise UsageMistake(f"{shown_path}: is not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageMistake(f"{shown_path}: is not TOML: {sanitize_line(str(error))}") from None
    return _TorchTitanConfig(shown_path, tables).build_workload()


class _TorchTitanConfig:
    """Reads one configuration of TorchTitan. ``shown_path`` is its path, fit to be printed."""

    def __init__(self, shown_path: str, tables: Mapping[str, Any]) -> None:
        self.shown_path, self.tables = shown_path, tables
        if not any(isinstance(tables.get(name), dict) for name in ("training", "model", "parallelism")):
            raise UsageMistake(f"{shown_path}: has no table [training], [model] or [parallelism]: is it TorchTitan's?")

    def build_workload(self) -> Workload:
        """Return everything that the file says of the work. Raises UsageMistake."""
        local_samples = self._read_number(("training",), ("local_batch_size", "batch_size"))
        samples = self._read_number(("training",), ("global_batch_size",), allow_rest=True)
        shard_degree = self._read_number(
            TORCHTITAN_TABLES, ("data_parallel_shard_degree", "data_parallel_degree"), allow_rest=True
        )
        degrees = {axis: self._read_number(TORCHTITAN_TABLES, (key,)) or 1 for axis, key in DEGREE_KEYS.items()}
        return Workload(
            samples=samples,
            sequence_length=self._read_number(("training",), ("seq_len",)),
            local_samples=local_samples,
            parallel=Parallel(shard=shard_degree, **degrees),
            model=self._read_model(),
        )

    def _read_number(self, tables: tuple[str, ...], keys: tuple[str, ...], *, allow_rest: bool = False) -> int | None:
        """Return the number of the first key found; with ``allow_rest`` −1 is allowed, and reads as None.

        Raises UsageMistake for what is no number.
        """
        for table in tables:
            table_values = self.tables.get(table)
            for key in keys:
                if not isinstance(table_values, dict) or key not in table_values:
                    continue
                value = table_values[key]
                if type(value) is int and (1 <= value < 1 << 31 or (allow_rest and value == REST_DEGREE)):
                    return None if value == REST_DEGREE else value
                expected = "a whole number from 1 on" + (", or -1" if allow_rest else "")
                raise UsageMistake(
                    f"{self.shown_path}: [{table}] {key} is {expected}, not {sanitize_line(repr(value), 40)}"
                )
        return None

    def _read_model(self) -> str | None:
        model_table = self.tables.get("model")
        parts = [model_table.get(key) for key in ("name", "flavor")] if isinstance(model_table, dict) else []
        return "_".join(part for part in parts if isinstance(part, str) and part) or None
