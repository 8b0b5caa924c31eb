"""Lists of JSON events decoded by msgspec, where that is installed, in a third of the standard library's time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Decoder = Callable[[bytes], Sequence[Any] | None]
"""From the text of a list to its events; None for a text that msgspec does not take."""

Field = tuple[str, object, object]
"""Name, type and default of a member."""


class Piece:
    """Type of a member that stays as it is written: a number keeps all of its digits."""


def typed_decoder(
    event: Sequence[Field], args: Sequence[Field], written: dict[str, str] | None = None
) -> Decoder | None:
    """A decoder of events with these members, whose ``args`` has those; None where msgspec is not installed.

    ``written`` is what the file calls a member of ``args`` that has another name here.
    """
    try:
        import msgspec
    except ImportError:
        return None
    names = written or {}
    own = msgspec.defstruct(
        "Args",
        [(name, kind, msgspec.field(default=default, name=names.get(name))) for name, kind, default in args],
        gc=False,
        frozen=True,
    )
    raw = msgspec.Raw()
    members = [(name, msgspec.Raw, raw) if kind is Piece else (name, kind, default) for name, kind, default in event]
    whole = msgspec.defstruct("Event", [*members, ("args", own | None, own())], gc=False)
    decoder = msgspec.json.Decoder(list[whole])  # type: ignore[valid-type]

    def decode(text: bytes) -> Sequence[Any] | None:
        try:
            found: Sequence[Any] = decoder.decode(text)
        except (msgspec.MsgspecError, ValueError):  # the latter of bytes that are no UTF-8
            return None
        return found

    return decode
