"""How are many ranges kept? As columns: a range takes some thirty bytes in them, as an object two hundred."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import overload

from pytest_nsys.core.model import Range


class Ranges(Sequence[Range]):
    """Ranges as parallel columns, each made when it is looked at."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        numbers: dict[str, int] = {}
        self._start, self._end, self._thread, self._name = array("q"), array("q"), array("q"), array("q")
        for start, end, thread, name in ranges:
            self._start.append(start)
            self._end.append(end)
            self._thread.append(thread)
            self._name.append(numbers.setdefault(name, len(numbers)))
        self._names = list(numbers)

    def __len__(self) -> int:
        return len(self._start)

    @overload
    def __getitem__(self, index: int) -> Range: ...
    @overload
    def __getitem__(self, index: slice) -> list[Range]: ...
    def __getitem__(self, index: int | slice) -> Range | list[Range]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return Range(self._start[index], self._end[index], self._thread[index], self._names[self._name[index]])
