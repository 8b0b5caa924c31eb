"""Of which rank is an event of a file that was merged of several ranks' traces?

SGLang and scripts like its merger write all events of all ranks into one list, and put the rank before the process
number: ``[TP00] 1000``, ``[TP01-DP01] 1001``, ``rank1 1000``. Each such label is one process with GPUs of its own; what
they count from 0 (devices, streams, correlations) is counted anew under each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, TypeVar

from pytest_nsys.core.words import printable

UNLABELLED = ""
"""The label of a process that has none: of each one of a file that was not merged."""

_LABEL = re.compile(r"(\[[^\[\]]{1,80}\]|rank[ _.-]?\d{1,9}(?!\d))(?=[ _.:/-]|\Z)", re.IGNORECASE)
_PARTS = re.compile(r"([A-Za-z]+)[ _.:=-]?(\d{1,9})")
_NUMBER = re.compile(r"(?<!\d)\d{1,18}\Z")
_DIGITS = re.compile(r"\d+")


class OfProcess(Protocol):
    """An event, as far as it says of which process it is."""

    @property
    def pid(self) -> int | str: ...


E = TypeVar("E", bound=OfProcess)


@lru_cache(1 << 12)
def label_of(pid: int | str) -> str:
    """What stands before the number of a process, for its rank."""
    found = _LABEL.match(pid) if isinstance(pid, str) else None
    return UNLABELLED if found is None else found[1]


def number_of(pid: int | str) -> int | None:
    """The number of a process, which a label may stand before; None where it has none."""
    if isinstance(pid, int):
        return pid
    found = _NUMBER.search(pid)
    return None if found is None else int(found[0])


def by_label(events: Sequence[E]) -> Mapping[str, Sequence[E]]:
    """The events of each label."""
    labels = {label_of(pid) for pid in {event.pid for event in events}}
    if len(labels) == 1:
        return {labels.pop(): events}
    found: defaultdict[str, list[E]] = defaultdict(list)
    for event in events:
        found[label_of(event.pid)].append(event)
    return found


def in_order(labels: Collection[str]) -> list[str]:
    """The labels by the numbers in them."""
    return sorted(labels, key=lambda label: ([*map(int, _DIGITS.findall(label))], label))


def ranks_of(labels: Sequence[str], world: int | None) -> Mapping[str, int]:
    """The rank of each label: the number of the first of its axes by which all differ, as ``TP`` and ``rank`` mostly
    do. None of any where no axis tells all of them apart, or one would be beyond the ``world``.
    """
    each = [{axis.upper(): int(number) for axis, number in _PARTS.findall(label)} for label in labels]
    for axis in each[0]:
        numbers = [own.get(axis, -1) for own in each]
        if len({*numbers}) == len(labels) and min(numbers) >= 0 and (world is None or max(numbers) < world):
            return dict(zip(labels, numbers, strict=True))
    return {}


def describe_labels(labels: Sequence[str], most: int = 4) -> str:
    """The labels of a file, as a person is told of them."""
    shown = ", ".join(printable(label, 40) or "one without" for label in labels[:most])
    return f"{shown} …" if len(labels) > most else shown
