"""How are many ranges kept? As columns: a range takes some thirty bytes in them, as an object two hundred."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import overload

from pytest_nsys.core.columns import take
from pytest_nsys.core.model import Range


class Ranges(Sequence[Range]):
    """Ranges as parallel columns, each made when it is looked at. ``name`` holds indices into ``names``."""

    __slots__ = ("end_ns", "name", "names", "start_ns", "thread")

    def __init__(
        self, start_ns: array[int], end_ns: array[int], thread: array[int], name: array[int], names: Sequence[str]
    ) -> None:
        self.start_ns, self.end_ns, self.thread, self.name, self.names = start_ns, end_ns, thread, name, names

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Ranges:
        """The same ranges in the same order."""
        if isinstance(ranges, Ranges):
            return ranges
        numbers: dict[str, int] = {}
        columns = array("q"), array("q"), array("q"), array("q")
        for start, end, thread, name in ranges:
            for column, value in zip(
                columns, (start, end, thread, numbers.setdefault(name, len(numbers))), strict=True
            ):
                column.append(value)
        return cls(*columns, list(numbers))

    def take(self, rows: array[int]) -> Ranges:
        """The ranges at ``rows``, in that order; names are shared."""
        start, end, thread, name = (take(each, rows) for each in (self.start_ns, self.end_ns, self.thread, self.name))
        return Ranges(start, end, thread, name, self.names)

    def __len__(self) -> int:
        return len(self.start_ns)

    @overload
    def __getitem__(self, index: int) -> Range: ...
    @overload
    def __getitem__(self, index: slice) -> list[Range]: ...
    def __getitem__(self, index: int | slice) -> Range | list[Range]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return Range(self.start_ns[index], self.end_ns[index], self.thread[index], self.names[self.name[index]])
