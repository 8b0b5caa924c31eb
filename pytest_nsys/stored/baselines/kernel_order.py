"""How are the kernel sequences behind fingerprints stored in a baseline, and where do two of them part?

Stored are the names, once and sorted, and of each sequence its fingerprint, its length, and its kernels as numbers of
names, repetitions counted: ``0 1*12 2``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any

from pytest_nsys.analysis.structure import KEPT_KERNELS, KernelSequence
from pytest_nsys.core.model import counted, printable

NAMES, SEQUENCES = "names", "sequences"
"""Keys of a series that has them."""

_RUN = re.compile(r"([0-9]{1,9})(?:\*([1-9][0-9]{0,8}))?")


def as_text(sequences: Mapping[int, KernelSequence]) -> str:
    """The members of a series' JSON object that hold its sequences, a line each; empty where there are none."""
    if not sequences:
        return ""
    names = sorted({name for sequence in sequences.values() for name in sequence.names})
    numbers = {name: number for number, name in enumerate(names)}
    lines = [json.dumps([h, s.length, _runs(s, numbers)]) for h, s in sorted(sequences.items())]
    spelt = ",\n ".join(json.dumps(name, ensure_ascii=False) for name in names)
    return f', "{NAMES}": [\n {spelt}\n], "{SEQUENCES}": [\n ' + ",\n ".join(lines) + "\n]"


def _runs(sequence: KernelSequence, numbers: Mapping[str, int]) -> str:
    runs = ((numbers[name], len(list(same))) for name, same in groupby(sequence.names))
    return " ".join(str(number) if count == 1 else f"{number}*{count}" for number, count in runs)


def from_json(entry: Mapping[str, Any]) -> dict[int, KernelSequence]:
    """The sequences of a series. Raises ValueError for what :func:`as_text` did not write."""
    names, found = entry.get(NAMES, []), {}
    for stored in entry.get(SEQUENCES, []):
        fingerprint, length, runs = stored
        if not isinstance(fingerprint, int) or not isinstance(length, int) or not isinstance(runs, str):
            raise ValueError(f"{printable(json.dumps(stored), 60)} is no sequence of kernels")
        kernels: list[str] = []
        for run in runs.split():
            match = _RUN.fullmatch(run)
            if match is None or int(match[1]) >= len(names) or len(kernels) + int(match[2] or 1) > KEPT_KERNELS:
                raise ValueError(f"'{printable(run, 30)}' is no run of kernels in a sequence")
            kernels += [str(names[int(match[1])])] * int(match[2] or 1)
        found[fingerprint] = KernelSequence(tuple(kernels), length)
    return found


def first_difference(before: KernelSequence | None, now: KernelSequence | None) -> str:
    """Where two sequences part, in words: the place, counted from 1, the name before and the name now."""
    if before is None or now is None:
        which = "before" if before is None else "now"
        return f"its order {which} was not kept"
    place = next((i for i, (a, b) in enumerate(zip_longest(before.names, now.names)) if a != b), None)
    of = f"of {before.length}, now {now.length}" if before.length != now.length else f"of {now.length}"
    kept = min(len(before.names), len(now.names))
    if place is None or (place == kept and _cut(before, now, kept)):
        return f"the first {counted(kept, 'kernel')} are the same, and no more are kept ({of})"
    return f"kernel {place + 1} {of}: {_at(before, place)} before, {_at(now, place)} now{_way(before, now, place)}"


def _cut(before: KernelSequence, now: KernelSequence, kept: int) -> bool:
    """Whether a sequence goes on beyond what is kept of it."""
    return any(len(each.names) == kept < each.length for each in (before, now))


def _at(sequence: KernelSequence, place: int) -> str:
    return printable(sequence.names[place], 80) if place < len(sequence.names) else "nothing"


def _way(before: KernelSequence, now: KernelSequence, place: int) -> str:
    """Whether the next kernels tell that one was put in, left out or replaced."""
    was, new = before.names[place : place + _AHEAD], now.names[place : place + _AHEAD]
    if not was or not new:
        return ""
    if _follows(was, new[1:]):
        return " (put in)"
    if _follows(was[1:], new):
        return " (left out)"
    return " (in its place)" if _follows(was[1:], new[1:]) else ""


_AHEAD = 4


def _follows(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether the two go on alike: for two kernels at least, or to the end of both."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter] and (shorter > 1 or len(a) == len(b) == 1)
