"""How many bytes were allocated on each device, from each change on? From allocations and frees, in their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from pytest_nsys.core.model import Lane, Memory
from pytest_nsys.core.series import Series


class Allocation(NamedTuple):
    """One allocation, or the free of one at ``place``, a process and an address; ``lane`` is None where it is on no
    device, or nothing says on which.
    """

    start_ns: int
    place: tuple[int, int]
    lane: Lane | None
    size_bytes: int
    frees: bool


def levels(each: Iterable[Allocation]) -> dict[Lane, Memory]:
    """What each process had allocated on each device.

    An allocation is freed by its address: what was allocated before the recording began is in no sum, and its free
    takes nothing off.
    """
    held: dict[tuple[int, int], tuple[Lane, int]] = {}
    level: defaultdict[Lane, int] = defaultdict(int)
    changes: defaultdict[Lane, list[tuple[int, int]]] = defaultdict(list)
    earlier: defaultdict[Lane, int] = defaultdict(int)
    for start, place, lane, size, frees in each:
        if place in held and (frees or lane is not None):  # its free may be lost
            where, freed = held.pop(place)
            level[where] -= freed
            changes[where].append((start, level[where]))
        elif frees and lane is not None:
            earlier[lane] += 1
        if not frees and lane is not None:
            held[place] = (lane, size)
            level[lane] += size
            changes[lane].append((start, level[lane]))
    return {lane: Memory(Series.of(changes[lane]), earlier[lane]) for lane in {*changes, *earlier}}
