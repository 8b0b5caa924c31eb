"""What do the shapes of the JSON reports share? Each is a Struct; its schema is generated, its keys come from here."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=1)]
Coordinates = dict[str, int | str]


class Shape(Struct, forbid_unknown_fields=True):
    """An object that has these keys and no other."""


def doc(text: str) -> Meta:
    """What a field holds, for the schema."""
    return Meta(description=text)


def one_of(*words: Any) -> Meta:
    """The only values of a field, for the schema."""
    return Meta(extra_json_schema={"enum": list(words)})


def filled(shape: type[Struct], *sources: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a shape in its order, each from the first of the ``sources`` that has it."""
    found = ChainMap(*map(dict, sources))
    return {key: found[key] for key in shape.__struct_encode_fields__}
