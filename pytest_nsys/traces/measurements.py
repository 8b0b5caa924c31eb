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

MAX_BYTES = 16 << 20
LARGEST = 100
"""No measurement has more digits than this before or behind its point: a larger one would only fill the memory."""

SHOWN = 5
"""Mistakes of one file that are told."""

KEYS = ("metric", "value", "unit", "better", "labels", "commit", "run")
ORIGIN = ("commit", "run")
"""What may stand beside plain numbers, and says where they come from."""

BETTER = ("lower", "higher")
RESERVED = ("metric", "value", "unit")
"""What a label cannot be called: a row has these beside its labels."""

_LABEL = re.compile(r"[^\W\d]\w{0,59}")
_TIMED = re.compile(r".*/(?:[num]?s|secs?|seconds?|min|minutes?|h|hours?)|[kMGT]?Hz|(?:[num]?s|min|h)/.*")
"""A rate in words of one's own, and the time that one thing takes."""
_COMMIT = re.compile(r"[0-9a-fA-F]{7,40}")


class Measurement(NamedTuple):
    """One value. ``unit`` is what its metric is judged in, ``written`` what the file has; ``place`` is file and entry.

    ``commit`` and ``run``, where they are given, say what was measured: ``run`` by a name, or by circumstances as the
    ``run:`` of a gate file states them.
    """

    metric: str
    value: Value
    unit: str
    written: str
    better: str | None
    labels: Mapping[str, Label]
    commit: str | None
    run: str | Mapping[str, Label] | None
    place: str


class _Mistake(ValueError):
    """What is wrong with an entry."""


class _NoValue(NamedTuple):
    """Stands for a number that is none, or too large, until its entry is looked at."""

    text: str


def find_measurements(value: str, base: Path) -> tuple[Path, ...]:
    """The files of one capture that ``value`` means, a path or a glob relative to ``base``.

    Raises UsageMistake where there are none.
    """
    if not value.strip():
        raise UsageMistake("the path of measurements is empty")
    with one_line(UsageMistake, f"{printable(value)}: cannot be read"):
        path = base / Path(value).expanduser()
        is_glob = glob.has_magic(value) and not path.exists()
        names = glob.glob(str(path), recursive=True) if is_glob else [str(path)]
        found = tuple(file for file in map(Path, sorted(names)) if file.is_file())
        if not found:
            what = "there is no such file"
            if is_glob or path.exists():
                what = "matches no file" if is_glob else "is not a file: give the file of measurements, or a glob"
            raise UsageMistake(f"{printable(str(path), 1000)}: {what}")
        return found


def measurements_of(values: Sequence[str], base: Path) -> tuple[tuple[Path, ...], ...]:
    """The files of each capture that the values mean. Raises UsageMistake."""
    return tuple(find_measurements(value, base) for value in values)


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """The measurements of a file. Raises TraceError: a line for each entry that is wrong."""
    shown = printable(str(path), 1000)
    found: list[Measurement] = []
    mistakes: list[str] = []
    for place, entry in _entries(shown, _decoded(path, shown)):
        try:
            found.append(_measurement(entry, place))
        except _Mistake as mistake:
            mistakes.append(f"{place}: {mistake}")
    if mistakes:
        more = [f"and {len(mistakes) - SHOWN} more"] if len(mistakes) > SHOWN else []
        raise TraceError(GOES_ON.join([*mistakes[:SHOWN], *more]))
    if not found:
        raise TraceError(f"{shown}: holds no measurement")
    return tuple(found)


def _decoded(path: Path, shown: str) -> Any:
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
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Mistake(f"'{printable(name, 60)}' appears twice in one object")
        found[name] = value
    return found


def _number(text: str) -> Value | _NoValue:
    if len(text) > 2 * LARGEST or abs((number := Decimal(text)).adjusted()) > LARGEST:
        return _NoValue(printable(text, 30))
    return exact(Fraction(number))


def _entries(shown: str, data: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each entry with its place: those of a list, or of plain numbers by name. Raises TraceError for neither."""
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
        what = "one entry" if isinstance(data, dict) else _shown(data)
        raise TraceError(f"{shown}: is a list of entries, or an object of numbers by name, not {what}")


def _measurement(entry: Mapping[str, Any], place: str) -> Measurement:
    for key in entry:
        if key not in KEYS:
            raise _Mistake(f"unknown key '{printable(key, 40)}'{hint(key, KEYS, 'an entry has')}")
    name = entry.get("metric")
    if not isinstance(name, str) or not name.split() or len(name) > 200 or not name.isprintable():
        raise _Mistake(f'"metric" is the name of what was measured, not {_shown(name)}')
    if "value" not in entry:
        raise _Mistake('"value" is missing')
    said, written = _value(entry["value"]), _unit(entry.get("unit"))
    unit, value = _in_unit(said, written)
    if _impossible(said, unit):
        what = f"{decimal(said, 18)} {written}"
        raise _Mistake(f"a measured {what} is impossible: write what was measured, or leave the entry out")
    better = entry.get("better")
    if better is not None and better not in BETTER:
        raise _Mistake(f'"better" is lower or higher, not {_shown(better)}')
    labels = _labels(entry.get("labels"))
    commit, run = _commit(entry.get("commit")), _run(entry.get("run"))
    return Measurement("_".join(name.split()), value, unit, written, better, labels, commit, run, place)


def _value(value: object) -> Value:
    if isinstance(value, _NoValue):
        raise _Mistake(f"{value.text} is not a value that can be judged")
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        raise _Mistake(f"{_shown(value)} is not a number")
    return value


def _unit(unit: object) -> str:
    """The unit as written; ``1`` where there is none."""
    if unit is None:
        return BARE
    if not isinstance(unit, str):
        raise _Mistake(f'"unit" is text, not {_shown(unit)}')
    written = MICRO.sub("us", unit.strip()) or BARE
    if written in (BARE, COUNT) or (written in WRITTEN_UNITS and written != POINTS):
        return written
    same = (known for known in (COUNT, *WRITTEN_UNITS) if known != written and known.lower() == written.lower())
    if meant := next(same, None):
        raise _Mistake(f"unknown unit '{printable(unit, 40)}' (did you mean '{meant}'?)")
    if not re.fullmatch(UNIT, written) or len(written) > 40 or written in (POINTS, HASH):
        known = ", ".join(each for each in WRITTEN_UNITS if each != POINTS)
        raise _Mistake(f"'{printable(unit, 40)}' is not a unit: write {known}, count, or a word such as W or img/s")
    return written


def _in_unit(value: Value, written: str) -> tuple[str, Value]:
    """The unit that a metric is judged in, and the value in it."""
    if written == COUNT and not isinstance(value, int):
        raise _Mistake(f"a count is a whole number, not {float(value)}")
    if written in (COUNT, BARE):
        return written, value
    amounts = Quantity(Fraction(value), written, "").amounts
    unit = (MEMORY if written.endswith("iB") else SIZE) if SIZE in amounts else next(iter(amounts))
    return unit, exact(amounts[unit])


def _impossible(value: Value, unit: str) -> bool:
    """Less than nothing, or no time and no rate, which nobody measured; of other units nobody knows."""
    if unit in (COUNT, SIZE, MEMORY):
        return value < 0
    return value <= 0 and (unit in (TIME, COMPUTE_RATE, *RATES) or _TIMED.fullmatch(unit) is not None)


def _labels(labels: object) -> dict[str, Label]:
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        raise _Mistake(f'"labels" is an object of names and labels, not {_shown(labels)}')
    for name, label in labels.items():
        shown = printable(name, 40)
        if _LABEL.fullmatch(name) is None or name in RESERVED:
            raise _Mistake(f"'{shown}' is not a name for a label: write a word such as rank or phase")
        whole = isinstance(label, int) and not isinstance(label, bool)
        if not whole and not (isinstance(label, str) and label and len(label) <= 200 and label.isprintable()):
            raise _Mistake(f"the label {shown} is a word or a whole number, not {_shown(label)}")
        if name == "rank" and not (whole and 0 <= label < 1 << 31):
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
    """A value of the file as JSON has it."""
    if isinstance(value, _NoValue):
        return value.text
    text = json.dumps(value, ensure_ascii=False, default=lambda other: getattr(other, "text", str(other)))
    return printable(text, 60)
