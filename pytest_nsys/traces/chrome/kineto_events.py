"""What is one event of a torch.profiler trace, and when was it, in whole nanoseconds?

Kernels (category ``kernel``), calls of the CUDA or HIP API, ranges of CPU time (``user_annotation`` and ``cpu_op``),
and the starts of the arrows from a launch to its kernel. Copies and memsets are no kernels; ``gpu_user_annotation``
repeats ranges on the GPU's time; functions of Python are no ranges. Times are decimals of a microsecond and become
integers of nanoseconds without a float between.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from decimal import Decimal, DecimalException
from operator import itemgetter
from typing import Any, NamedTuple

from pytest_nsys.traces.chrome.typed_json import Decoder, Field, Piece, typed_decoder

KERNELS = frozenset({"kernel", "Kernel"})
CALLS = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "hip_driver"})
RANGES = frozenset({"user_annotation", "cpu_op", "Operator"})
COPIES = frozenset({"gpu_memcpy", "Memcpy"})
ARROWS = frozenset({"ac2g", "async_cpu_to_gpu", "async"})
ARROW_START = "s"
SPANS = frozenset({"Trace"})
WINDOW_END = "Record Window End"
WANTED = KERNELS | CALLS | RANGES | COPIES | ARROWS | SPANS

NO_CATEGORY = ""
POINTLESS = frozenset({"i", "I", "R", "M", "E"})
"""Phases of an instant, of metadata, and of the end of a range: they have no length."""


class Args(NamedTuple):
    """What is read of an event's ``args``."""

    device: object = None
    context: object = None
    stream: object = None
    correlation: object = None
    graph_node: object = None


class Event(NamedTuple):
    """One event, as the standard library decodes it: numbers with a fraction are text."""

    ph: object = "X"
    cat: object = NO_CATEGORY
    name: object = None
    pid: object = None
    tid: object = None
    ts: object = None
    dur: object = None
    id: object = None
    args: Args = Args()


GRAPH_NODE = "graph node id"
NO_ARGS = Args()


def events_of(decoded: Sequence[Any]) -> list[Event]:
    """The events that count among decoded elements of the list."""
    return [
        _event(found)
        for found in decoded
        if isinstance(found, dict) and (_category(found) in WANTED or found.get("name") == WINDOW_END)
    ]


def _category(found: dict[str, Any]) -> str | None:
    category = found.get("cat")
    return category if isinstance(category, str) else None


def _text(value: object, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _event(found: dict[str, Any]) -> Event:
    args = found.get("args")
    own = NO_ARGS
    if isinstance(args, dict):
        get = args.get
        own = Args(get("device"), get("context"), get("stream"), get("correlation"), get(GRAPH_NODE))
    get = found.get
    return Event(
        _text(get("ph"), "X"),
        _category(found) or NO_CATEGORY,
        _text(get("name"), ""),
        get("pid", ""),
        get("tid", ""),
        get("ts"),
        get("dur"),
        get("id"),
        own,
    )


def fast_decoder() -> Decoder | None:
    """Decodes to events by msgspec; None where that is not installed."""
    label = int | str
    event: list[Field] = [("ph", str, "X"), ("cat", str | None, NO_CATEGORY), ("name", str, "")]
    event += [("pid", label, ""), ("tid", label, ""), ("ts", Piece, None), ("dur", Piece, None)]
    event.append(("id", label | None, None))
    args: list[Field] = [(name, int | None, None) for name in Args._fields]
    return typed_decoder(event, args, {"graph_node": GRAPH_NODE})


def nanoseconds(microseconds: object) -> int:
    """An integer of nanoseconds from microseconds as text, bytes or an int. Raises ValueError for what is no number."""
    if type(microseconds) is int:
        return 1000 * microseconds
    if isinstance(microseconds, str):
        text = microseconds
    elif isinstance(microseconds, bool) or microseconds is None:
        raise ValueError("no number")
    else:  # a piece of the file, as msgspec gives it
        try:
            text = bytes(microseconds).decode("ascii", "replace")  # type: ignore[call-overload]
        except TypeError:
            raise ValueError("no number") from None
    if len(text) > 40 or not text.isascii():  # 19 digits and a fraction; a million digits would take minutes
        raise ValueError("no time")
    try:
        found = Decimal(text.strip('"')).scaleb(3)
        if not found.is_finite() or found.adjusted() > 18:
            raise ValueError("no time")
        return int(found.to_integral_value())
    except DecimalException:
        raise ValueError("no number") from None


_BEFORE_MILLI = itemgetter(-4)
_DOT = {ord(".")}


def column_of_ns(pieces: Sequence[Any]) -> array[int]:
    """Nanoseconds of many numbers, all at once where that is exact. Raises ValueError where one is no number."""
    if not pieces:
        return array("q")
    if type(pieces[0]) is int or not (texts := _texts(pieces)):
        return array("q", map(nanoseconds, pieces))
    return array("q", map(int, texts))


def _texts(pieces: Sequence[Any]) -> list[bytes] | None:
    """The numbers without their point, where all have three digits after it: these are nanoseconds already."""
    joined = ",".join(pieces).encode() if type(pieces[0]) is str else b",".join(pieces)
    texts = joined.split(b",")
    try:
        exact = len(texts) == len(pieces) and set(map(_BEFORE_MILLI, texts)) == _DOT
    except IndexError:
        return None
    return joined.replace(b".", b"").split(b",") if exact else None
