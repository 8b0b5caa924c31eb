"""Is a trace given twice under two names? A copy is no second sample of what a program does.

Real traces are all of different sizes, so nothing is read of them: only files of one size are compared, up to the first
byte in which they differ.
"""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class Twice(NamedTuple):
    """Two paths that are one trace: one file, or two with the same bytes."""

    first: Path
    second: Path

    @property
    def is_copy(self) -> bool:
        return self.first.resolve() != self.second.resolve()


def in_both(here: Iterable[Path], there: Iterable[Path]) -> Twice | None:
    """The first trace of one run that is a trace of the other run too; None where there is none."""
    by_size: dict[object, list[Path]] = {}
    for path in here:
        by_size.setdefault(_size(path), []).append(path)
    for second in there:
        for first in by_size.get(_size(second), ()):
            if first.resolve() == second.resolve() or _same_bytes(first, second):
                return Twice(first, second)
    return None


def given_twice(captures: Sequence[Sequence[Path]]) -> Twice | None:
    """The first trace that two of the captures share; None where there is none."""
    for number, capture in enumerate(captures):
        earlier = [path for other in captures[:number] for path in other]
        if earlier and (found := in_both(earlier, capture)):
            return found
    return None


def _files(path: Path) -> Iterator[Path]:
    """The files of a trace, which may be a folder of them."""
    return iter(sorted(path.rglob("*.parquet"))) if path.is_dir() else iter([path])


def _size(path: Path) -> object:
    """What two traces of the same bytes have in common; one without a byte has nothing in common with any other."""
    try:
        sizes = tuple((str(file.relative_to(path)), file.stat().st_size) for file in _files(path))
    except OSError:  # the reader says why
        return path
    return sizes if any(size for _, size in sizes) else path


def _same_bytes(first: Path, second: Path) -> bool:
    try:
        pairs = zip(_files(first), _files(second), strict=True)
        return all(filecmp.cmp(a, b, shallow=False) for a, b in pairs)
    except OSError:
        return False
