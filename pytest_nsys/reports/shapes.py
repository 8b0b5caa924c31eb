"""With which words is the shape of a JSON report stated, from which its schema is made?"""

from __future__ import annotations

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
