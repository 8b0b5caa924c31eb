"""What does a torch.profiler trace record of its collectives? Sizes and groups stand in the arguments of their kernels.

Few measurements ask for them, so the file is passed once more when one does, and reading it for the rest costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core.model import NO_LAUNCH, Collective
from pytest_nsys.traces.chrome.json_stream import EventStream
from pytest_nsys.traces.chrome.kineto_events import KERNELS, nanoseconds
from pytest_nsys.traces.chrome.typed_json import Decoder, Field, Piece, typed_decoder

WRITTEN = {
    "correlation": "correlation",
    "name": "Collective name",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "dtype": "dtype",
    "group_size": "Group size",
    "group": "Process Group Name",
    "description": "Process Group Description",
    "ranks": "Process Group Ranks",
}
"""What torch.profiler calls each argument that is read."""

UNDEFINED = "undefined"
"""The description of a group that the program gave none."""


class KernelKey(NamedTuple):
    """Which kernel of a file: those of one CUDA graph share their correlation, but not their start."""

    correlation: int
    start_ns: int


class Args(NamedTuple):
    """What is read of a kernel's ``args``."""

    correlation: object = None
    name: object = None
    in_elements: object = None
    out_elements: object = None
    dtype: object = None
    group_size: object = None
    group: object = None
    description: object = None
    ranks: object = None


class Event(NamedTuple):
    """One event, as the standard library decodes it."""

    cat: object
    ts: object
    args: Args


def read_collectives(path: Path) -> dict[KernelKey, Collective]:
    """What is recorded of each kernel with a collective's name. Raises TraceError for a file that cannot be read."""
    found: dict[KernelKey, Collective] = {}
    for decoded in EventStream(path, fast_decoder()):
        for event in _events(decoded):
            if event.cat in KERNELS and event.args is not None and isinstance(event.args.name, str):
                correlation = _whole(event.args.correlation)
                key = KernelKey(NO_LAUNCH if correlation is None else correlation, nanoseconds(event.ts))
                found[key] = _collective(event.args)
    return found


def _collective(args: Any) -> Collective:
    """Members are the ranks as they are written: of a large group they are cut short, and equal on all its ranks."""
    description = _text(args.description)
    name = _text(args.group)
    return Collective(
        name=str(args.name),
        group=name if description in (None, UNDEFINED) else description,
        members=None if name is None and args.ranks is None else f"{name} {args.ranks}",
        group_size=_whole(args.group_size),
        in_elements=_whole(args.in_elements),
        out_elements=_whole(args.out_elements),
        dtype=_text(args.dtype),
    )


def _text(value: object) -> str | None:
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _events(decoded: Sequence[Any]) -> Iterator[Any]:
    if not (decoded and isinstance(decoded[0], dict)):
        yield from decoded
        return
    for found in decoded:
        args = found.get("args") if isinstance(found, dict) else None
        if isinstance(args, dict) and isinstance(found.get("cat"), str):
            yield Event(found["cat"], found.get("ts"), Args(*map(args.get, WRITTEN.values())))


def fast_decoder() -> Decoder | None:
    """Decodes to events by msgspec; None where that is not installed."""
    numbers = dict.fromkeys(("correlation", "in_elements", "out_elements", "group_size"), int | None)
    args: list[Field] = [(name, numbers.get(name, str | None), None) for name in WRITTEN]
    return typed_decoder([("cat", str | None, None), ("ts", Piece, None)], args, WRITTEN)
