"""How does a convention stand in a file that says what its rows were measured under? As a JSON object.

Only what is not empty is spelled; a built-in table of families stands under its name. What is read comes from somebody
else's file: a convention that nobody can have written is a ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from pytest_nsys.core.conventions import Convention, CopyKind, Purpose
from pytest_nsys.core.families import TABLES, Families, Family
from pytest_nsys.core.model import KernelsMode, Span

Spelled = Mapping[str, Any]


def spelled_convention(convention: Convention) -> dict[str, Any]:
    """What JSON holds of a convention."""
    found: dict[str, Any] = {}
    for field in fields(convention):
        value = getattr(convention, field.name)
        if field.default is MISSING or value != field.default:
            found[field.name] = _WRITTEN.get(field.name, _as_it_is)(value)
    return found


def read_convention(said: object) -> Convention:
    """The convention that a JSON object holds. Raises ValueError."""
    if not isinstance(said, Mapping) or not isinstance(said.get("name"), str):
        raise ValueError("a convention is an object with a name")
    unknown = said.keys() - {field.name for field in fields(Convention)}
    if unknown:
        raise ValueError(f"a convention has no '{sorted(unknown)[0]}'")
    try:
        return Convention(**{key: _READ[key](value) for key, value in said.items()})
    except (TypeError, AttributeError, KeyError, RecursionError, OverflowError) as error:
        raise ValueError("it holds no convention that could have been written") from error


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: Any) -> str | None:
    if not isinstance(value, str | None):
        raise TypeError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError
    return tuple(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _purposes(value: Any) -> tuple[Purpose, ...]:
    return tuple(Purpose(name, _texts(own["stages"]), _texts(own["ranges"])) for name, own in value.items())


def _families(value: Any) -> Families:
    if isinstance(value, str):
        return TABLES[value]
    return tuple(Family(name, _texts(globs)) for name, globs in value.items())


def _families_written(families: Families) -> Any:
    built_in = next((name for name, table in TABLES.items() if table == families), None)
    return built_in or {family.name: list(family.patterns) for family in families}


_WRITTEN: Mapping[str, Callable[[Any], Any]] = {
    "purposes": lambda purposes: {p.name: {"stages": list(p.stages), "ranges": list(p.ranges)} for p in purposes},
    "communication": list,
    "copies": lambda copies: [str(kind) for kind in copies],
    "families": _families_written,
    "span": str,
    "kernels": str,
}
_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("name", "anchor", "setup", "stage"), _text),
    "purposes": _purposes,
    "communication": _texts,
    "libraries": _flag,
    "span": Span,
    "kernels": KernelsMode,
    "families": _families,
    "copies": lambda value: tuple(map(CopyKind, _texts(value))),
}
