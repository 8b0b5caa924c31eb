"""What is in a file of measurements, which a training program or a benchmark wrote beside its trace? JSON, small.

A list of entries ``{"metric", "value", "unit", "better", "labels"}``, of which ``commit`` and ``run`` may say where
they come from; or one object of plain numbers by name. Decimals are read as they are written, never as floats.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core.errors import GOES_ON, TraceError, UsageMistake, hint, one_line
from pytest_nsys.core.exact import exact
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.units import (
    BARE,
    COMPUTE_RATE,
    COUNT,
    HASH,
    MEMORY,
    MICRO,
    POINTS,
    RATES,
    SIZE,
    TIME,
    UNIT,
    WRITTEN_UNITS,
    Quantity,
    decimal,
)
from pytest_nsys.core.words import printable

# A larger file is some other JSON, which would only fill the memory.
MAX_BYTES = 16 << 20
# No measurement has more digits than this before or behind its point: a larger one would only fill the memory.
LARGEST = 100

# So many mistakes of one file are shown: more would be of one kind, mostly.
SHOWN = 5

KEYS = ("metric", "value", "unit", "better", "labels", "commit", "run")
# These may stand beside plain numbers, and say where they come from.
ORIGIN = ("commit", "run")

BETTER = ("lower", "higher")
# A row has these beside its labels, so no label may be called so.
RESERVED = ("metric", "value", "unit")

_LABEL = re.compile(r"[^\W\d]\w{0,59}")
# A rate in words of one's own, and the time that one thing takes.
_TIMED = re.compile(r".*/(?:[num]?s|secs?|seconds?|min|minutes?|h|hours?)|[kMGT]?Hz|(?:[num]?s|min|h)/.*")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,40}")


class Measurement(NamedTuple):
    """Describes one measured value."""

    metric: str
    value: Value
    unit: str  # in which the metric is judged
    written: str  # as the file has it
    better: str | None
    labels: Mapping[str, Label]
    commit: str | None
    run: str | Mapping[str, Label] | None  # a name, or circumstances as the ``run:`` of a gate file states them
    place: str  # file and entry, for messages


class _Mistake(ValueError):
    """Reports what is wrong with an entry."""


class _NoValue(NamedTuple):
    """Stands for a number that is none, or too large, until its entry is parsed."""

    text: str


def find_measurements(value: str, base: Path) -> tuple[Path, ...]:
    """Return the files of one capture that ``value`` means, a path or a glob relative to ``base``, by name.

    Raises UsageMistake where there are none.
    """
    if not value.strip():
        raise UsageMistake("the path of measurements is empty")
    with one_line(UsageMistake, f"{printable(value)}: cannot be read"):
        path = base / Path(value).expanduser()
        is_glob = glob.has_magic(value) and not path.exists()
        names = glob.glob(str(path), recursive=True) if is_glob else [str(path)]
        files = tuple(file for file in map(Path, sorted(names)) if file.is_file())
        if not files:
            problem = "there is no such file"
            if is_glob or path.exists():
                problem = "matches no file" if is_glob else "is not a file: give the file of measurements, or a glob"
            raise UsageMistake(f"{printable(str(path), 1000)}: {problem}")
        return files


def measurements_of(values: Sequence[str], base: Path) -> tuple[tuple[Path, ...], ...]:
    """Return the files of each capture that the values mean. Raises UsageMistake where one means none."""
    return tuple(find_measurements(value, base) for value in values)


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Return the measurements of a file. Raises TraceError with a line for each entry that is wrong."""
    shown_path = printable(str(path), 1000)
    measurements: list[Measurement] = []
    mistakes: list[str] = []
    for location, entry in _entries(shown_path, _decoded(path, shown_path)):
        try:
            measurements.append(_measurement(entry, location))
        except _Mistake as mistake:
            mistakes.append(f"{location}: {mistake}")
    if mistakes:
        omitted_text = [f"and {len(mistakes) - SHOWN} more"] if len(mistakes) > SHOWN else []
        raise TraceError(GOES_ON.join([*mistakes[:SHOWN], *omitted_text]))
    if not measurements:
        raise TraceError(f"{shown_path}: holds no measurement")
    return tuple(measurements)


def _decoded(path: Path, shown: str) -> Any:
    """Return the JSON of a file. Raises TraceError where it cannot be read, is too large, or is no JSON."""
    with one_line(TraceError, f"{shown}: cannot be read"), path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TraceError(f"{shown}: is larger than {MAX_BYTES >> 20} MiB: it holds no measurements")
    try:
        return json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=_once,
            parse_float=_number,
            parse_int=_number,
            parse_constant=_NoValue,
        )
    except json.JSONDecodeError as error:
        raise TraceError(f"{shown}: is not JSON: line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{shown}: is not UTF-8 text") from None
    except RecursionError:
        raise TraceError(f"{shown}: is not a list of measurements: it is nested too deeply") from None
    except _Mistake as mistake:
        raise TraceError(f"{shown}: {mistake}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object. Raises _EntryMistake for a name that appears twice, of which JSON keeps the
    last.
    """
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise _Mistake(f"'{printable(name, 60)}' appears twice in one object")
        members[name] = value
    return members


def _number(text: str) -> Value | _NoValue:
    """Return the exact number, or a stand-in for one with too many digits."""
    if len(text) > 2 * LARGEST or abs((number := Decimal(text)).adjusted()) > LARGEST:
        return _NoValue(printable(text, 30))
    return exact(Fraction(number))


def _entries(shown: str, data: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each entry with its location: those of a list, or of plain numbers by name. Raises TraceError for
    neither.
    """
    if isinstance(data, list):
        for number, entry in enumerate(data, 1):
            if not isinstance(entry, dict):
                raise TraceError(f"{shown}: entry {number} is not an object with a metric and a value: {_shown(entry)}")
            name = entry.get("metric")
            yield f"{shown}: entry {number}{f' ({printable(name, 60)})' if isinstance(name, str) else ''}", entry
    elif isinstance(data, dict) and not {"metric", "value"} <= data.keys():
        origin = {key: data[key] for key in ORIGIN if key in data}
        for name, value in data.items():
            if name not in origin:
                yield f"{shown}: '{printable(name, 60)}'", {"metric": name, "value": value, **origin}
    else:
        description = "one entry" if isinstance(data, dict) else _shown(data)
        raise TraceError(f"{shown}: is a list of entries, or an object of numbers by name, not {description}")


def _measurement(entry: Mapping[str, Any], place: str) -> Measurement:
    """Return the measurement of an entry. Raises _EntryMistake for what is wrong with it."""
    for key in entry:
        if key not in KEYS:
            raise _Mistake(f"unknown key '{printable(key, 40)}'{hint(key, KEYS, 'an entry has')}")
    name = entry.get("metric")
    if not isinstance(name, str) or not name.split() or len(name) > 200 or not name.isprintable():
        raise _Mistake(f'"metric" is the name of what was measured, not {_shown(name)}')
    if "value" not in entry:
        raise _Mistake('"value" is missing')
    written_value, written_unit = _value(entry["value"]), _unit(entry.get("unit"))
    unit, value = _in_unit(written_value, written_unit)
    if _impossible(written_value, unit):
        value_text = f"{decimal(written_value, 18)} {written_unit}"
        raise _Mistake(f"a measured {value_text} is impossible: write what was measured, or leave the entry out")
    better = entry.get("better")
    if better is not None and better not in BETTER:
        raise _Mistake(f'"better" is lower or higher, not {_shown(better)}')
    labels = _labels(entry.get("labels"))
    commit, run = _commit(entry.get("commit")), _run(entry.get("run"))
    return Measurement("_".join(name.split()), value, unit, written_unit, better, labels, commit, run, place)


def _value(value: object) -> Value:
    if isinstance(value, _NoValue):
        raise _Mistake(f"{value.text} is not a value that can be judged")
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        raise _Mistake(f"{_shown(value)} is not a number")
    return value


def _unit(unit: object) -> str:
    """Return the unit as written; ``1`` where there is none. Raises _EntryMistake for text that is no unit."""
    if unit is None:
        return BARE
    if not isinstance(unit, str):
        raise _Mistake(f'"unit" is text, not {_shown(unit)}')
    written_unit = MICRO.sub("us", unit.strip()) or BARE
    if written_unit in (BARE, COUNT) or (written_unit in WRITTEN_UNITS and written_unit != POINTS):
        return written_unit
    similar_units = (
        known_unit
        for known_unit in (COUNT, *WRITTEN_UNITS)
        if known_unit != written_unit and known_unit.lower() == written_unit.lower()
    )
    if similar_unit := next(similar_units, None):
        raise _Mistake(f"unknown unit '{printable(unit, 40)}' (did you mean '{similar_unit}'?)")
    if not re.fullmatch(UNIT, written_unit) or len(written_unit) > 40 or written_unit in (POINTS, HASH):
        unit_list = ", ".join(known_unit for known_unit in WRITTEN_UNITS if known_unit != POINTS)
        raise _Mistake(f"'{printable(unit, 40)}' is not a unit: write {unit_list}, count, or a word such as W or img/s")
    return written_unit


def _in_unit(value: Value, written: str) -> tuple[str, Value]:
    """Return the unit that a metric is judged in, and the value in it."""
    if written == COUNT and not isinstance(value, int):
        raise _Mistake(f"a count is a whole number, not {float(value)}")
    if written in (COUNT, BARE):
        return written, value
    amounts = Quantity(Fraction(value), written, "").amounts
    unit = (MEMORY if written.endswith("iB") else SIZE) if SIZE in amounts else next(iter(amounts))
    return unit, exact(amounts[unit])


def _impossible(value: Value, unit: str) -> bool:
    """Return whether a value is less than nothing, or no time and no rate, which nobody measured; of other units
    False.
    """
    if unit in (COUNT, SIZE, MEMORY):
        return value < 0
    return value <= 0 and (unit in (TIME, COMPUTE_RATE, *RATES) or _TIMED.fullmatch(unit) is not None)


def _labels(labels: object) -> dict[str, Label]:
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        raise _Mistake(f'"labels" is an object of names and labels, not {_shown(labels)}')
    for name, label in labels.items():
        shown_name = printable(name, 40)
        if _LABEL.fullmatch(name) is None or name in RESERVED:
            raise _Mistake(f"'{shown_name}' is not a name for a label: write a word such as rank or phase")
        is_integer = isinstance(label, int) and not isinstance(label, bool)
        if not is_integer and not (isinstance(label, str) and label and len(label) <= 200 and label.isprintable()):
            raise _Mistake(f"the label {shown_name} is a word or a whole number, not {_shown(label)}")
        if name == "rank" and not (is_integer and 0 <= label < 1 << 31):
            raise _Mistake(f"the label rank is the number of a rank, not {_shown(label)}")
    return labels


def _commit(commit: object) -> str | None:
    if commit is not None and not (isinstance(commit, str) and _COMMIT.fullmatch(commit)):
        raise _Mistake(f'"commit" is the hash of a commit, 7 to 40 digits, not {_shown(commit)}')
    return commit


def _run(run: object) -> str | Mapping[str, Label] | None:
    if isinstance(run, dict) and all(isinstance(v, int | str) and not isinstance(v, bool) for v in run.values()):
        return run
    if run is None or (isinstance(run, str) and run):
        return run
    if isinstance(run, int) and not isinstance(run, bool):
        return str(run)
    raise _Mistake(f'"run" is a name, or circumstances as in {{"gpu": "H100", "world": 8}}, not {_shown(run)}')


def _shown(value: object) -> str:
    """Return a value of the file as JSON has it."""
    if isinstance(value, _NoValue):
        return value.text
    text = json.dumps(
        value, ensure_ascii=False, default=lambda unknown_value: getattr(unknown_value, "text", str(unknown_value))
    )
    return printable(text, 60)
