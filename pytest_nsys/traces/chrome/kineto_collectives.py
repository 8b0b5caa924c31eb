"""What does a torch.profiler trace record of its collectives? Sizes and groups stand in the arguments of their kernels.

Few measurements ask for them, so the file is passed once more when one does, and reading it for the rest costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from msgspec import Raw, field

from pytest_nsys.core.model import NO_LAUNCH, Collective
from pytest_nsys.traces.chrome.json_stream import EventStream, Written
from pytest_nsys.traces.chrome.kineto_events import KERNELS, nanoseconds

UNDEFINED = "undefined"
"""The description of a group that the program gave none."""


class KernelKey(NamedTuple):
    """Which kernel of a file: those of one CUDA graph share their correlation, but not their start."""

    correlation: int
    start_ns: int


class Args(Written, frozen=True):
    """What is read of a kernel's ``args``, and what torch.profiler calls it."""

    correlation: int | None = None
    name: str | None = field(default=None, name="Collective name")
    in_elements: int | None = field(default=None, name="In msg nelems")
    out_elements: int | None = field(default=None, name="Out msg nelems")
    dtype: str | None = None
    group_size: int | None = field(default=None, name="Group size")
    group: str | None = field(default=None, name="Process Group Name")
    description: str | None = field(default=None, name="Process Group Description")
    ranks: str | None = field(default=None, name="Process Group Ranks")


class Event(Written, frozen=True):
    """One event."""

    ARGS = Args

    cat: str | None = None
    ts: Raw = Raw()
    args: Args | None = None


def read_collectives(path: Path) -> dict[KernelKey, Collective]:
    """What is recorded of each kernel with a collective's name. Raises TraceError for a file that cannot be read."""
    found: dict[KernelKey, Collective] = {}
    for events in EventStream(path, Event):
        for event in events:
            if event.cat in KERNELS and event.args is not None and isinstance(event.args.name, str):
                correlation = _whole(event.args.correlation)
                key = KernelKey(NO_LAUNCH if correlation is None else correlation, nanoseconds(event.ts))
                found[key] = _collective(event.args)
    return found


def _collective(args: Args) -> Collective:
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
