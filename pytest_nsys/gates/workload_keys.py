"""What does a gate file say of the work that was traced, because no trace can?

A configuration of TorchTitan (TOML) says it as well: batch, length of a sample, parallel degrees. Its keys have moved
between tables over the years, and some were renamed: each is looked for wherever it once was. A degree of −1 is what
the others leave of the world, a global batch of −1 that of all replicas with one batch each.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from yaml.nodes import Node

from pytest_nsys.core.errors import UsageMistake, one_line
from pytest_nsys.core.units import BANDWIDTH, written_value
from pytest_nsys.core.words import printable
from pytest_nsys.core.workload import Parallel, Workload
from pytest_nsys.gates.kinds import Entry
from pytest_nsys.gates.model import Assertion
from pytest_nsys.gates.yaml_nodes import NodeReader

FIELDS = {"step_time": "step_time_ns", "peak": "peak_gb_per_s"}
"""Keys whose field of a Workload has another name."""


def read_workload(reader: NodeReader, stated: Node | None, file: Mapping[str, Any], folder: Path) -> Workload:
    """What the file, which lies in ``folder``, states under ``workload:``, and in other keys that count here.

    What it states itself counts before what its ``config`` says.
    """
    found = _read_stated(Entry(reader, stated, "workload"), folder) if stated is not None else {}
    run = file.get("run", {})
    found |= {key: run[key] for key in ("sequence_length", "world") if key in run}
    return Workload(**found, **{key: file[key] for key in ("pipeline", "blocks") if key in file})


def options_of(workload: Workload, view: str) -> list[str]:
    """What a person types to state the same to a view that divides by it."""
    if view == "collectives" and workload.peak_gb_per_s is not None:
        return ["--peak", written_value(workload.peak_gb_per_s, BANDWIDTH)]
    if view != "kernels":
        return []
    words = [] if workload.steps is None else ["--steps", str(workload.steps)]
    return words if workload.step_time_ns is None else [*words, "--step-time", f"{workload.step_time_ns}ns"]


def check_needed(reader: NodeReader, assertions: Iterable[Assertion], stated: Container[str]) -> None:
    """Notes each assertion on a metric that takes a key which the file, whose keys are ``stated``, lacks."""
    for assertion in assertions:
        needs = assertion.measures.needs
        if needs is not None and needs.key not in stated:
            place = assertion.location
            what = f"{assertion.metric} needs {needs.key}: {needs.example} in this file: patterns (%) of range names"
            reader.mistake_at(place.line, place.column, what)


def _read_stated(entry: Entry, folder: Path) -> dict[str, Any]:
    said = entry.values()
    found = _read_config(entry, said.pop("config"), folder) if "config" in said else {}
    if "data_parallel" in said:
        found["parallel"] = Parallel(shard=said.pop("data_parallel"))
    if "local_samples" in said:
        found.pop("samples", None)  # of the configuration: the batch of a replica is stated instead
    return found | {FIELDS.get(key, key): value for key, value in said.items()}


def _read_config(entry: Entry, written: str, folder: Path) -> dict[str, Any]:
    try:
        said = read_config(folder / Path(written).expanduser())
    except (UsageMistake, RuntimeError) as mistake:  # the latter of ~nobody
        entry.mistake("config", str(mistake))
        return {}
    return {key: value for key, value in said._asdict().items() if value not in (None, ())}


MAX_BYTES = 1 << 20
TABLES = ("parallelism", "training", "experimental")
"""Where the parallel degrees stand, the newest place first."""

DEGREES = {
    "replicate": "data_parallel_replicate_degree",
    **{axis: f"{axis}_parallel_degree" for axis in ("tensor", "pipeline", "context", "expert")},
}
"""The key of each parallel degree but that of sharding, which was renamed."""

REST = -1


def read_config(path: Path) -> Workload:
    """What the file says. Raises UsageMistake for one that cannot be read, or that says what cannot be."""
    import tomllib  # few gate files name a configuration

    shown = printable(str(path), 1000)
    with one_line(UsageMistake, f"{shown}: cannot be read"), path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UsageMistake(f"{shown}: is larger than {MAX_BYTES} bytes: it is not a configuration")
    try:
        found = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise UsageMistake(f"{shown}: is not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageMistake(f"{shown}: is not TOML: {printable(str(error))}") from None
    return _Config(shown, found).workload()


class _Config:
    """One file. ``shown`` is its path, fit to be printed."""

    def __init__(self, shown: str, tables: Mapping[str, Any]) -> None:
        self.shown, self.tables = shown, tables
        if not any(isinstance(tables.get(name), dict) for name in ("training", "model", "parallelism")):
            raise UsageMistake(f"{shown}: has no table [training], [model] or [parallelism]: is it TorchTitan's?")

    def workload(self) -> Workload:
        """Everything that the file says of the work."""
        local = self._number(("training",), ("local_batch_size", "batch_size"))
        whole = self._number(("training",), ("global_batch_size",), rest=True)
        shard = self._number(TABLES, ("data_parallel_shard_degree", "data_parallel_degree"), rest=True)
        degrees = {axis: self._number(TABLES, (key,)) or 1 for axis, key in DEGREES.items()}
        return Workload(
            samples=whole,
            sequence_length=self._number(("training",), ("seq_len",)),
            local_samples=local,
            parallel=Parallel(shard=shard, **degrees),
            model=self._model(),
        )

    def _number(self, tables: tuple[str, ...], keys: tuple[str, ...], *, rest: bool = False) -> int | None:
        """The first of the keys that is there; with ``rest`` it may be −1, which says no number."""
        for table in tables:
            own = self.tables.get(table)
            for key in keys:
                if not isinstance(own, dict) or key not in own:
                    continue
                value = own[key]
                if type(value) is int and (1 <= value < 1 << 31 or (rest and value == REST)):
                    return None if value == REST else value
                wanted = "a whole number from 1 on" + (", or -1" if rest else "")
                raise UsageMistake(f"{self.shown}: [{table}] {key} is {wanted}, not {printable(repr(value), 40)}")
        return None

    def _model(self) -> str | None:
        own = self.tables.get("model")
        parts = [own.get(key) for key in ("name", "flavor")] if isinstance(own, dict) else []
        return "_".join(part for part in parts if isinstance(part, str) and part) or None
