"""With which words is the shape of a JSON report stated, from which its schema is made, and how is it filled?"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=1)]


class Shape(Struct, forbid_unknown_fields=True):
    """An object that has these keys and no other."""


def doc(text: str) -> Meta:
    """What a field holds, for the schema."""
    return Meta(description=text)


def one_of(*words: Any) -> Meta:
    """The only values of a field, for the schema."""
    return Meta(extra_json_schema={"enum": list(words)})


def filled(shape: type[Struct], *sources: object) -> dict[str, Any]:
    """The keys of a shape in its order, each from the first of the ``sources`` that has it: mappings, or objects with
    attributes of that name. Fractions become floats, other values what JSON has.
    """
    return {key: _plain(_found(shape, key, sources)) for key in shape.__struct_encode_fields__}


def _found(shape: type[Struct], key: str, sources: Sequence[object]) -> object:
    for source in sources:
        if isinstance(source, Mapping) and key in source:
            return source[key]
        if not isinstance(source, Mapping) and hasattr(source, key):
            return getattr(source, key)
    raise KeyError(f"{shape.__name__}.{key}: nothing that fills this shape has it")


def _plain(value: object) -> object:
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return [*map(_plain, value)] if isinstance(value, list | tuple) else value
