"""When do the copies of a trace of torch.profiler or of JAX run that a convention may count as communication?"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.model import Kernels
from pytest_nsys.traces.chrome.kineto_columns import Columns
from pytest_nsys.traces.chrome.kineto_events import COPIES, POINTLESS, Event
from pytest_nsys.traces.chrome.kineto_kernels import kernels_by_device
from pytest_nsys.traces.copies_as_kernels import NAME_IDS, NAMES, kinds_to_read

_BETWEEN = re.compile(r"memcpy ?([HDP])(?:to|2)([HDP])|copy(Host|Device)To(Host|Device)", re.IGNORECASE)
"""``Memcpy PtoP (Device -> Device)`` of CUDA, ``MemcpyP2P`` of XProf, ``CopyDeviceToHost`` of ROCm."""

_KINDS = {
    "hd": CopyKind.HOST_TO_DEVICE,
    "dh": CopyKind.DEVICE_TO_HOST,
    "dd": CopyKind.DEVICE_TO_DEVICE,
    "pp": CopyKind.PEER,
}


def kind_of(name: str) -> CopyKind | None:
    """The kind of copy that a profiler calls so; None for any other."""
    found = _BETWEEN.match(name)
    source, target = [end for end in found.groups() if end] if found else ("", "")
    return _KINDS.get((source[:1] + target[:1]).lower())


def read_as_kernels(path: Path, blocks: Iterable[Sequence[Event]], kinds: Sequence[str]) -> Mapping[int, Kernels]:
    """The copies of :func:`kinds_to_read`, each as a kernel, by device, ordered by start. Raises TraceError."""
    columns = _Copies(path, frozenset(kinds_to_read(kinds)))
    for events in blocks:
        columns.add(events)
    return copies_by_device(columns, lambda name: NAME_IDS[kind_of(name) or ""])


def copies_by_device(columns: Columns, id_of: Callable[[str], int]) -> Mapping[int, Kernels]:
    """Copies that were read as if they were kernels, each with the name of its kind, whose number ``id_of`` knows."""
    texts = columns.names.texts()
    found: dict[int, Kernels] = {}
    for device, copies in kernels_by_device(columns, texts).items():
        names = array("q", [id_of(texts[name]) for name in copies.full_name])
        found[device] = replace(copies, name=names, full_name=names, names=NAMES)
    return found


class _Copies(Columns):
    """The copies of some kinds, while they are read as if they were kernels. Raises TraceError for a damaged one."""

    def __init__(self, path: Path, kinds: frozenset[CopyKind]) -> None:
        super().__init__(path)
        self._kinds = kinds

    def add(self, events: Sequence[Event]) -> None:
        """The copies among more events."""
        copies = [
            event
            for event in events
            if event.cat in COPIES and event.ph not in POINTLESS and kind_of(str(event.name)) in self._kinds
        ]
        try:
            self._add_kernels(copies)
        except (TypeError, ValueError, OverflowError, AttributeError):  # before anything of them was added
            for event in copies:
                self._add_kernel(event)
