"""Which rank does an event belong to, in a file that was merged of several ranks' traces?

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

from pytest_nsys.core.text_format import sanitize_line

UNLABELLED = ""
"""The label of a process that has none, as in a file that was not merged."""

_RANK_LABEL = re.compile(r"(\[[^\[\]]{1,80}\]|rank[ _.-]?\d{1,9}(?!\d))(?=[ _.:/-]|\Z)", re.IGNORECASE)
_LABEL_AXES = re.compile(r"([A-Za-z]+)[ _.:=-]?(\d{1,9})")
# 18 digits fit into 64 bits.
_LAST_NUMBER = re.compile(r"(?<!\d)\d{1,18}\Z")
_DIGIT_RUNS = re.compile(r"\d+")


class HasPid(Protocol):
    """Describes an event that says which process it belongs to."""

    @property
    def pid(self) -> int | str: ...


E = TypeVar("E", bound=HasPid)


@lru_cache(1 << 12)  # millions of events, few processes
def parse_rank_label(pid: int | str) -> str:
    """Return the label of a rank that stands before a process's number; empty where there is none."""
    match = _RANK_LABEL.match(pid) if isinstance(pid, str) else None
    return UNLABELLED if match is None else match[1]


def parse_process_number(pid: int | str) -> int | None:
    """Return the number of a process, which a label may stand before; None where it has none."""
    if isinstance(pid, int):
        return pid
    match = _LAST_NUMBER.search(pid)
    return None if match is None else int(match[0])


def group_by_label(events: Sequence[E]) -> Mapping[str, Sequence[E]]:
    """Group events by the label of their process."""
    labels = {parse_rank_label(pid) for pid in {event.pid for event in events}}
    if len(labels) == 1:
        return {labels.pop(): events}
    events_by_label: defaultdict[str, list[E]] = defaultdict(list)
    for event in events:
        events_by_label[parse_rank_label(event.pid)].append(event)
    return events_by_label


def sort_labels(labels: Collection[str]) -> list[str]:
    """Sort labels by the numbers in them."""
    return sorted(labels, key=lambda label: ([*map(int, _DIGIT_RUNS.findall(label))], label))


def resolve_label_ranks(labels: Sequence[str], world_size: int | None) -> Mapping[str, int]:
    """Return the rank of each label: its number on the first axis on which all labels differ, mostly ``TP`` or
    ``rank``.

    Empty where no axis tells all labels apart, or a rank would be beyond the world size.
    """
    axes_of_labels = [{axis.upper(): int(number) for axis, number in _LABEL_AXES.findall(label)} for label in labels]
    # Another axis may have one number on several ranks, as ``DP`` has on those of one replica.
    for axis in axes_of_labels[0]:
        numbers = [axes.get(axis, -1) for axes in axes_of_labels]
        if len({*numbers}) == len(labels) and min(numbers) >= 0 and (world_size is None or max(numbers) < world_size):
            return dict(zip(labels, numbers, strict=True))
    return {}


def describe_labels(labels: Sequence[str], limit: int = 4) -> str:
    """Return the labels of a file as a short list, the first ``limit`` of them."""
    label_text = ", ".join(sanitize_line(label, 40) or "one without" for label in labels[:limit])
    return f"{label_text} …" if len(labels) > limit else label_text
