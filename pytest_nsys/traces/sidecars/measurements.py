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

from pytest_nsys.core.errors import NEXT_LINE, TraceError, UsageMistake, convert_os_errors, suggest_or_list
from pytest_nsys.core.exact import simplify_fraction
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import (
    BARE,
    COMPUTE_RATE,
    COUNT,
    HASH,
    MEMORY_UNIT,
    MICROSECONDS,
    PERCENTAGE_POINTS,
    RATE_UNITS,
    SIZE,
    TIME,
    UNIT_PATTERN,
    WRITTEN_UNITS,
    Quantity,
    format_decimal,
)

# A larger file is some other JSON, which would only fill the memory.
LARGEST_FILE_BYTES = 16 << 20
# No measurement has more digits than this before or behind its point: a larger one would only fill the memory.
MOST_DIGITS = 100

# So many mistakes of one file are shown: more would be of one kind, mostly.
MOST_MISTAKES_SHOWN = 5

ENTRY_KEYS = ("metric", "value", "unit", "better", "labels", "commit", "run")
# These may stand beside plain numbers, and say where they come from.
ORIGIN_KEYS = ("commit", "run")

BETTER_DIRECTIONS = ("lower", "higher")
# A row has these beside its labels, so no label may be called so.
RESERVED_LABELS = ("metric", "value", "unit")

_LABEL_NAME = re.compile(r"[^\W\d]\w{0,59}")
# A rate in words of one's own, and the time that one thing takes.
_RATE_OR_TIME_UNIT = re.compile(r".*/(?:[num]?s|secs?|seconds?|min|minutes?|h|hours?)|[kMGT]?Hz|(?:[num]?s|min|h)/.*")
_COMMIT_HASH = re.compile(r"[0-9a-fA-F]{7,40}")


class Measurement(NamedTuple):
    """Describes one measured value."""

    metric: str
    value: Value
    unit: str  # in which the metric is judged
    written_unit: str  # as the file has it
    better: str | None
    labels: Mapping[str, Label]
    commit: str | None
    run: str | Mapping[str, Label] | None  # a name, or circumstances as the ``run:`` of a gate file states them
    location: str  # file and entry, for messages


class _EntryMistake(ValueError):
    """Reports what is wrong with an entry."""


class _InvalidNumber(NamedTuple):
    """Stands for a number that is none, or too large, until its entry is parsed."""

    text: str


def find_measurement_files(value: str, base: Path) -> tuple[Path, ...]:
    """Return the files of one capture that ``value`` means, a path or a glob relative to ``base``, by name.

    Raises UsageMistake where there are none.
    """
    if not value.strip():
        raise UsageMistake("the path of measurements is empty")
    with convert_os_errors(UsageMistake, f"{sanitize_line(value)}: cannot be read"):
        path = base / Path(value).expanduser()
        is_glob = glob.has_magic(value) and not path.exists()
        names = glob.glob(str(path), recursive=True) if is_glob else [str(path)]
        files = tuple(file for file in map(Path, sorted(names)) if file.is_file())
        if not files:
            problem = "there is no such file"
            if is_glob or path.exists():
                problem = "matches no file" if is_glob else "is not a file: give the file of measurements, or a glob"
            raise UsageMistake(f"{sanitize_line(str(path), 1000)}: {problem}")
        return files


def find_files_by_capture(values: Sequence[str], base: Path) -> tuple[tuple[Path, ...], ...]:
    """Return the files of each capture that the values mean. Raises UsageMistake where one means none."""
    return tuple(find_measurement_files(value, base) for value in values)


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Return the measurements of a file. Raises TraceError with a line for each entry that is wrong."""
    shown_path = sanitize_line(str(path), 1000)
    measurements: list[Measurement] = []
    mistakes: list[str] = []
    for location, entry in _iterate_entries(shown_path, _load_json(path, shown_path)):
        try:
            measurements.append(_parse_entry(entry, location))
        except _EntryMistake as mistake:
            mistakes.append(f"{location}: {mistake}")
    if mistakes:
        omitted_text = (
            [f"and {len(mistakes) - MOST_MISTAKES_SHOWN} more"] if len(mistakes) > MOST_MISTAKES_SHOWN else []
        )
        raise TraceError(NEXT_LINE.join([*mistakes[:MOST_MISTAKES_SHOWN], *omitted_text]))
    if not measurements:
        raise TraceError(f"{shown_path}: holds no measurement")
    return tuple(measurements)


def _load_json(path: Path, shown_path: str) -> Any:
    """Return the JSON of a file. Raises TraceError where it cannot be read, is too large, or is no JSON."""
    with convert_os_errors(TraceError, f"{shown_path}: cannot be read"), path.open("rb") as file:
        content = file.read(LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        raise TraceError(f"{shown_path}: is larger than {LARGEST_FILE_BYTES >> 20} MiB: it holds no measurements")
    try:
        return json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=_check_unique_names,
            parse_float=_parse_number,
            parse_int=_parse_number,
            parse_constant=_InvalidNumber,
        )
    except json.JSONDecodeError as error:
        raise TraceError(f"{shown_path}: is not JSON: line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{shown_path}: is not UTF-8 text") from None
    except RecursionError:
        raise TraceError(f"{shown_path}: is not a list of measurements: it is nested too deeply") from None
    except _EntryMistake as mistake:
        raise TraceError(f"{shown_path}: {mistake}") from None


def _check_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object. Raises _EntryMistake for a name that appears twice, of which JSON keeps the
    last.
    """
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise _EntryMistake(f"'{sanitize_line(name, 60)}' appears twice in one object")
        members[name] = value
    return members


def _parse_number(text: str) -> Value | _InvalidNumber:
    """Return the exact number, or a stand-in for one with too many digits."""
    if len(text) > 2 * MOST_DIGITS or abs((number := Decimal(text)).adjusted()) > MOST_DIGITS:
        return _InvalidNumber(sanitize_line(text, 30))
    return simplify_fraction(Fraction(number))


def _iterate_entries(shown_path: str, data: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each entry with its location: those of a list, or of plain numbers by name. Raises TraceError for
    neither.
    """
    if isinstance(data, list):
        for number, entry in enumerate(data, 1):
            if not isinstance(entry, dict):
                raise TraceError(
                    f"{shown_path}: entry {number} is not an object with a metric and a value: "
                    f"{_format_json_value(entry)}"
                )
            name = entry.get("metric")
            yield (
                f"{shown_path}: entry {number}{f' ({sanitize_line(name, 60)})' if isinstance(name, str) else ''}",
                entry,
            )
    elif isinstance(data, dict) and not {"metric", "value"} <= data.keys():
        origin = {key: data[key] for key in ORIGIN_KEYS if key in data}
        for name, value in data.items():
            if name not in origin:
                yield f"{shown_path}: '{sanitize_line(name, 60)}'", {"metric": name, "value": value, **origin}
    else:
        description = "one entry" if isinstance(data, dict) else _format_json_value(data)
        raise TraceError(f"{shown_path}: is a list of entries, or an object of numbers by name, not {description}")


def _parse_entry(entry: Mapping[str, Any], location: str) -> Measurement:
    """Return the measurement of an entry. Raises _EntryMistake for what is wrong with it."""
    for key in entry:
        if key not in ENTRY_KEYS:
            raise _EntryMistake(
                f"unknown key '{sanitize_line(key, 40)}'{suggest_or_list(key, ENTRY_KEYS, 'an entry has')}"
            )
    name = entry.get("metric")
    if not isinstance(name, str) or not name.split() or len(name) > 200 or not name.isprintable():
        raise _EntryMistake(f'"metric" is the name of what was measured, not {_format_json_value(name)}')
    if "value" not in entry:
        raise _EntryMistake('"value" is missing')
    written_value, written_unit = _parse_value(entry["value"]), _parse_unit(entry.get("unit"))
    unit, value = _convert_unit(written_value, written_unit)
    if _is_impossible(written_value, unit):
        value_text = f"{format_decimal(written_value, 18)} {written_unit}"
        raise _EntryMistake(f"a measured {value_text} is impossible: write what was measured, or leave the entry out")
    better = entry.get("better")
    if better is not None and better not in BETTER_DIRECTIONS:
        raise _EntryMistake(f'"better" is lower or higher, not {_format_json_value(better)}')
    labels = _parse_labels(entry.get("labels"))
    commit, run = _parse_commit(entry.get("commit")), _parse_run(entry.get("run"))
    return Measurement("_".join(name.split()), value, unit, written_unit, better, labels, commit, run, location)


def _parse_value(value: object) -> Value:
    if isinstance(value, _InvalidNumber):
        raise _EntryMistake(f"{value.text} is not a value that can be judged")
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        raise _EntryMistake(f"{_format_json_value(value)} is not a number")
    return value


def _parse_unit(unit: object) -> str:
    """Return the unit as written; ``1`` where there is none. Raises _EntryMistake for text that is no unit."""
    if unit is None:
        return BARE
    if not isinstance(unit, str):
        raise _EntryMistake(f'"unit" is text, not {_format_json_value(unit)}')
    written_unit = MICROSECONDS.sub("us", unit.strip()) or BARE
    if written_unit in (BARE, COUNT) or (written_unit in WRITTEN_UNITS and written_unit != PERCENTAGE_POINTS):
        return written_unit
    similar_units = (
        known_unit
        for known_unit in (COUNT, *WRITTEN_UNITS)
        if known_unit != written_unit and known_unit.lower() == written_unit.lower()
    )
    if similar_unit := next(similar_units, None):
        raise _EntryMistake(f"unknown unit '{sanitize_line(unit, 40)}' (did you mean '{similar_unit}'?)")
    if (
        not re.fullmatch(UNIT_PATTERN, written_unit)
        or len(written_unit) > 40
        or written_unit in (PERCENTAGE_POINTS, HASH)
    ):
        unit_list = ", ".join(known_unit for known_unit in WRITTEN_UNITS if known_unit != PERCENTAGE_POINTS)
        raise _EntryMistake(
            f"'{sanitize_line(unit, 40)}' is not a unit: write {unit_list}, count, or a word such as W or img/s"
        )
    return written_unit


def _convert_unit(value: Value, written_unit: str) -> tuple[str, Value]:
    """Return the unit that a metric is judged in, and the value in it."""
    if written_unit == COUNT and not isinstance(value, int):
        raise _EntryMistake(f"a count is a whole number, not {float(value)}")
    if written_unit in (COUNT, BARE):
        return written_unit, value
    amounts = Quantity(Fraction(value), written_unit, "").amounts
    unit = (MEMORY_UNIT if written_unit.endswith("iB") else SIZE) if SIZE in amounts else next(iter(amounts))
    return unit, simplify_fraction(amounts[unit])


def _is_impossible(value: Value, unit: str) -> bool:
    """Return whether a value is less than nothing, or no time and no rate, which nobody measured; of other units
    False.
    """
    if unit in (COUNT, SIZE, MEMORY_UNIT):
        return value < 0
    return value <= 0 and (unit in (TIME, COMPUTE_RATE, *RATE_UNITS) or _RATE_OR_TIME_UNIT.fullmatch(unit) is not None)


def _parse_labels(labels: object) -> dict[str, Label]:
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        raise _EntryMistake(f'"labels" is an object of names and labels, not {_format_json_value(labels)}')
    for name, label in labels.items():
        shown_name = sanitize_line(name, 40)
        if _LABEL_NAME.fullmatch(name) is None or name in RESERVED_LABELS:
            raise _EntryMistake(f"'{shown_name}' is not a name for a label: write a word such as rank or phase")
        is_integer = isinstance(label, int) and not isinstance(label, bool)
        if not is_integer and not (isinstance(label, str) and label and len(label) <= 200 and label.isprintable()):
            raise _EntryMistake(f"the label {shown_name} is a word or a whole number, not {_format_json_value(label)}")
        if name == "rank" and not (is_integer and 0 <= label < 1 << 31):
            raise _EntryMistake(f"the label rank is the number of a rank, not {_format_json_value(label)}")
    return labels


def _parse_commit(commit: object) -> str | None:
    if commit is not None and not (isinstance(commit, str) and _COMMIT_HASH.fullmatch(commit)):
        raise _EntryMistake(f'"commit" is the hash of a commit, 7 to 40 digits, not {_format_json_value(commit)}')
    return commit


def _parse_run(run: object) -> str | Mapping[str, Label] | None:
    if isinstance(run, dict) and all(isinstance(v, int | str) and not isinstance(v, bool) for v in run.values()):
        return run
    if run is None or (isinstance(run, str) and run):
        return run
    if isinstance(run, int) and not isinstance(run, bool):
        return str(run)
    raise _EntryMistake(
        f'"run" is a name, or circumstances as in {{"gpu": "H100", "world": 8}}, not {_format_json_value(run)}'
    )


def _format_json_value(value: object) -> str:
    """Return a value of the file as JSON has it."""
    if isinstance(value, _InvalidNumber):
        return value.text
    text = json.dumps(
        value, ensure_ascii=False, default=lambda unknown_value: getattr(unknown_value, "text", str(unknown_value))
    )
    return sanitize_line(text, 60)
