"""Stored rows of accepted runs, one JSON file for each gate file and key: what does now have to stand up to?

Raw rows are stored, of every rank; aggregates are formed at the verdict, for now and for each accepted run alike. The
key is what makes two runs comparable. A file is sorted, a row a line, without time stamps: the same rows give the same
bytes, and a changed row is a changed line in review.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from pytest_nsys.analysis.statistics import exact
from pytest_nsys.errors import BaselineError
from pytest_nsys.gates.selection import label_key
from pytest_nsys.model import Label, Value, printable

FORMAT = 1
GATE_SUFFIX = ".nsys.yaml"
_RATIO = re.compile(r"(-?\d{1,40})/([1-9]\d{0,40})")

RowLabels = tuple[Label, ...]


@dataclass(frozen=True, slots=True, order=True)
class SeriesId:
    """What was measured, and how: rows of another definition, window, span or mode are never compared."""

    metric: str
    definition: int
    window: str
    span: str
    kernels: str


@dataclass(slots=True)
class Series:
    """The rows of one measurement; of each row the value in every accepted run, oldest first."""

    unit: str
    better: str | None
    dimensions: tuple[str, ...]
    rows: dict[RowLabels, list[Value]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Key:
    """What makes runs comparable. None where the trace does not say; None is equal only to None."""

    convention: str
    mesh: Mapping[str, int] | None
    micro_batch: int | None
    sequence_length: int | None
    world: int
    gpu: str | None

    def as_json(self) -> dict[str, Any]:
        """The key in clear, as it stands in the file."""
        return {
            "convention": self.convention,
            "mesh": None if self.mesh is None else dict(sorted(self.mesh.items())),
            "micro_batch": self.micro_batch,
            "sequence_length": self.sequence_length,
            "world": self.world,
            "gpu": self.gpu,
        }

    @property
    def digest(self) -> str:
        """The first 12 digits of the hash that names the file."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:12]


@dataclass(slots=True)
class Baseline:
    """One file. ``provenance`` says where its values came from; it is shown and never compared."""

    key: dict[str, Any]
    gate: str
    provenance: dict[str, Any] = field(default_factory=dict)
    series: dict[SeriesId, Series] = field(default_factory=dict)

    def dumps(self) -> str:
        """The file's text: sorted, one row a line."""
        head = {"format": FORMAT, "gate": self.gate, "key": self.key, "provenance": self.provenance}
        lines = [json.dumps(name) + ": " + json.dumps(value, ensure_ascii=False) for name, value in head.items()]
        blocks = [_series_text(sid, self.series[sid]) for sid in sorted(self.series)]
        return "{\n" + ",\n".join(lines) + ',\n"series": [\n' + ",\n".join(blocks) + "\n]\n}\n"


def _series_text(sid: SeriesId, series: Series) -> str:
    head = {
        "metric": sid.metric,
        "definition": sid.definition,
        "window": sid.window,
        "span": sid.span,
        "kernels": sid.kernels,
        "unit": series.unit,
        "better": series.better,
        "dimensions": list(series.dimensions),
    }
    ordered = sorted(series.rows.items(), key=lambda item: [label_key(label) for label in item[0]])
    rows = [json.dumps([*labels, [_written(v) for v in values]], ensure_ascii=False) for labels, values in ordered]
    return json.dumps(head, ensure_ascii=False)[:-1] + ', "rows": [\n ' + ",\n ".join(rows) + "\n]}"


def _written(value: Value) -> int | str:
    return value if isinstance(value, int) else f"{value.numerator}/{value.denominator}"


def _value(text: object) -> Value:
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if isinstance(text, str) and (match := _RATIO.fullmatch(text)):
        return exact(Fraction(int(match[1]), int(match[2])))
    raise ValueError(f'{text!r} is no value: a whole number or "a/b"')


def load(path: Path) -> Baseline:
    """The baseline in a file. Raises BaselineError with what is wrong in it and what to do."""
    data: Any = None
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, object_pairs_hook=_no_duplicates)
        if not isinstance(data, dict):
            raise ValueError("the file is no object")
        if data.get("format") != FORMAT:
            raise ValueError(
                f"format {data.get('format')!r} is not {FORMAT}: written by another version of pytest-nsys"
            )
        series = dict(_series(entry) for entry in data["series"])
        if len(series) != len(data["series"]):
            raise ValueError("a series comes twice")
        return Baseline(dict(data["key"]), str(data["gate"]), dict(data["provenance"]), series)
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BaselineError(
            f"{path}: is no baseline: {_problem(error, data)}; restore it from git, or delete it and refresh"
        ) from error


def _problem(error: Exception, data: Any) -> str:
    """What is wrong, in words: of a wrong shape the schema knows the place better than an exception does."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}: {error.msg}"
    if isinstance(error, KeyError | TypeError):
        import jsonschema  # only a broken file pays for this import

        schema = json.loads(Path(__file__).with_name("baseline.schema.json").read_text(encoding="utf-8"))
        found = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(data))
        if found is not None:
            return printable(f"{found.json_path}: {found.message}", 300)
    return str(error)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice, as after a merge by hand")
    return found


def _series(entry: Mapping[str, Any]) -> tuple[SeriesId, Series]:
    sid = SeriesId(
        metric=str(entry["metric"]),
        definition=int(entry["definition"]),
        window=str(entry["window"]),
        span=str(entry["span"]),
        kernels=str(entry["kernels"]),
    )
    dimensions = tuple(str(d) for d in entry["dimensions"])
    series = Series(str(entry["unit"]), entry["better"], dimensions)
    for row in entry["rows"]:
        *labels, values = row
        if len(labels) != len(dimensions) or not isinstance(values, list) or not values:
            raise ValueError(f"the row {json.dumps(row)} of {sid.metric} does not fit its dimensions")
        if not all(isinstance(label, int | str) for label in labels):
            raise ValueError(f"the row {json.dumps(row)} of {sid.metric} has a label that is no text or number")
        if tuple(labels) in series.rows:
            raise ValueError(f"the row {json.dumps(labels)} of {sid.metric} comes twice")
        series.rows[tuple(labels)] = [_value(v) for v in values]
    if len({len(values) for values in series.rows.values()}) > 1:
        raise ValueError(f"the rows of {sid.metric} hold different numbers of accepted runs")
    return sid, series


@dataclass(frozen=True, slots=True)
class Shelf:
    """The folder of one gate file's baselines, one file a key.

    ``gate`` is the gate file's path as stored, relative to the folder that holds the baseline folder.
    """

    folder: Path
    gate: str

    def path(self, key: Key) -> Path:
        """Where the baseline of a key lies."""
        return self.folder / f"{key.digest}.json"

    def load(self, key: Key) -> Baseline | None:
        """The baseline of a key, None where there is none."""
        path = self.path(key)
        try:
            if not path.exists():
                return None
        except OSError as error:
            raise BaselineError(f"{path}: cannot be read: {error.strerror}") from error
        self._inside(path)
        found = load(path)
        if found.key != key.as_json():
            raise BaselineError(
                f"{path}: holds another key than its name says; restore it from git, or delete it and refresh"
            )
        if found.gate != self.gate:
            raise BaselineError(f"{path}: is the baseline of another gate file, {found.gate}: move it, or rename one")
        return found

    def others(self) -> Iterator[tuple[Path, Baseline]]:
        """Every readable baseline of the gate file, by name of its file."""
        if self.folder.is_dir():
            for path in sorted(self.folder.glob("*.json")):
                with contextlib.suppress(BaselineError):
                    self._inside(path)
                    yield path, load(path)

    def _inside(self, path: Path) -> None:
        root = self.folder.parent.resolve()
        if not path.resolve().is_relative_to(root):
            raise BaselineError(f"{path}: leads out of the baseline folder {root}: make it a plain file")

    def save(self, key: Key, baseline: Baseline) -> bool:
        """Write the file whole, or not at all. Returns whether its bytes changed. Raises BaselineError."""
        path = self.path(key)
        text = baseline.dumps()
        try:
            if path.exists() and path.read_text(encoding="utf-8") == text:
                return False
            self.folder.mkdir(parents=True, exist_ok=True)
            self._inside(path)
            _write_atomically(path, text)
        except OSError as error:
            raise BaselineError(f"{path}: cannot be written: {error.strerror}; nothing was changed") from error
        return True

    def writable(self) -> None:
        """Raises BaselineError where the folder cannot be written, before anything is measured in vain."""
        folder = self.folder
        while not folder.exists():
            folder = folder.parent
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return
        why = f"no permission for {folder}" if folder.is_dir() else f"{folder} is no folder"
        raise BaselineError(f"{self.folder}: cannot be written: {why}; nothing was changed")


def _write_atomically(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def shelf_of(gate_file: Path, folder: Path, root: Path) -> Shelf:
    """The shelf of a gate file in a baseline folder.

    Named by the gate file's path relative to what holds the baseline folder, so that it does not depend on where pytest
    was started; by the path relative to ``root`` where the gate file lies elsewhere.
    """
    for anchor in (folder.parent, root):
        if gate_file.is_relative_to(anchor):
            relative = gate_file.relative_to(anchor).as_posix()
            break
    else:
        relative = gate_file.name
    name = relative.removesuffix(GATE_SUFFIX).replace("/", "__")
    return Shelf(folder / name, relative)


def differences(wanted: Key, stored: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(field, now, stored) of each field of the key that differs."""
    now = wanted.as_json()
    return [(name, now[name], stored.get(name)) for name in now if now[name] != stored.get(name)]


def nearest(key: Key, shelf: Shelf) -> tuple[Path, Baseline, list[tuple[str, Any, Any]]] | None:
    """The stored baseline whose key differs in the fewest fields, with those fields.

    Raises BaselineError where there are files but none can be read.
    """
    found = [(path, baseline, differences(key, baseline.key)) for path, baseline in shelf.others()]
    for path in sorted(shelf.folder.glob("*.json")) if not found else ():
        load(path)  # a folder whose files cannot be read is not one without a baseline
    return min(found, key=lambda item: (len(item[2]), item[0].name), default=None)


def accepted_runs(series: Series) -> Sequence[Mapping[RowLabels, Value]]:
    """The rows of each accepted run."""
    count = max((len(values) for values in series.rows.values()), default=0)
    return [{labels: values[k] for labels, values in series.rows.items()} for k in range(count)]
