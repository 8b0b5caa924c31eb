"""What do the ``[memory]`` events of a torch.profiler trace say: how many bytes were allocated on each GPU, and when?

Each is an instant at which PyTorch's allocator gave or took memory. ``Total Allocated`` is what the tensors of its
device have after it; what the allocator keeps beside them (``Total Reserved``) does not count. Events of the CPU's
memory look alike, and do not count either. Few measurements ask, so the file is passed once more for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from msgspec import Raw, field

from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Memory
from pytest_nsys.core.series import ALWAYS_NS, Series
from pytest_nsys.core.words import printable
from pytest_nsys.traces.chrome.json_stream import EventStream, Written
from pytest_nsys.traces.chrome.kineto_events import nanoseconds

MEMORY = "[memory]"
CPU = 0
"""The ``Device Type`` of the host; that of CUDA is 1, which ROCm's has, too."""

TO_SEE_MEMORY = "profile with profile_memory=True"


class MemoryArgs(Written, frozen=True):
    """What is read of an event's ``args``."""

    kind: int | None = field(default=None, name="Device Type")
    device: int | None = field(default=None, name="Device Id")
    size: int | None = field(default=None, name="Bytes")
    total: int | None = field(default=None, name="Total Allocated")


class MemoryEvent(Written, frozen=True):
    """One event, as far as it tells of memory."""

    ARGS = MemoryArgs

    name: str = ""
    ts: Raw = Raw()
    args: MemoryArgs | None = None


def read_memory(path: Path) -> Mapping[int, Memory]:
    """What was allocated on each device from each change on; before the first one what it changed.

    Raises TraceError for a file that cannot be read, or holds an event that cannot be.
    """
    found: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for events in EventStream(path, MemoryEvent):
        for event in events:
            if event.name == MEMORY and event.args is not None and _on_gpu(event.args):
                found[_whole(path, event.args.device)].append(_change(path, event))
    return {device: Memory(_levels(changes)) for device, changes in sorted(found.items())}


def _on_gpu(args: MemoryArgs) -> bool:
    """Whether it is of a GPU, and says its total: versions before 1.10 did not."""
    return args.total is not None and args.kind != CPU and args.device is not None and args.device != -1


def _change(path: Path, event: MemoryEvent) -> tuple[int, int, int]:
    """When it was, the bytes that are allocated after it, and those that it added."""
    assert event.args is not None
    total, size = _whole(path, event.args.total), _whole(path, event.args.size or 0)
    try:
        at = nanoseconds(event.ts)
    except ValueError:
        at = OPEN_END_NS
    if total < 0 or not NO_LAUNCH < at < OPEN_END_NS:
        what = f"{total} bytes allocated" if total < 0 else "no time that can be read"
        raise TraceError(f"{path}: a {MEMORY} event has {what}: damaged; profile again")
    return at, total, size


def _whole(path: Path, value: object) -> int:
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        shown = printable(str(value), 40)
        raise TraceError(f"{path}: a {MEMORY} event says '{shown}' where a number belongs: damaged; profile again")
    return value


def _levels(changes: list[tuple[int, int, int]]) -> Series:
    """In the order of time; of one moment in the order of the file."""
    changes.sort(key=lambda change: change[0])
    _, total, size = changes[0]
    return Series.of([(ALWAYS_NS, max(total - size, 0)), *((at, total) for at, total, _ in changes)])
