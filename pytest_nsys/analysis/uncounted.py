"""Which kernels of the windows are of a known communication library, and count as compute?

What they cover of other communication is then told as hidden, and what they leave exposed themselves is told of nobody.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.run import WindowGroup
from pytest_nsys.core.conventions import BUILT_IN, Convention
from pytest_nsys.core.families import KnownLibrary, qualified_name
from pytest_nsys.core.model import Value, counted, printable

SHOWN = 3
WHY_UNCOUNTED = "communication that runs beside them looks hidden"


class Uncounted(NamedTuple):
    """Time in ns of such kernels by qualified name, how many there are, and the time of all kernels."""

    times_ns: Mapping[str, int]
    kernels: int
    whole_ns: int
    known: frozenset[KnownLibrary]

    @property
    def share(self) -> Value:
        """Of the time of all kernels."""
        return Fraction(sum(self.times_ns.values()), self.whole_ns or 1)

    @property
    def libraries(self) -> str:
        """Whose kernels they are."""
        return ", ".join(sorted({known.library for known in self.known}))

    @property
    def words(self) -> str:
        """How many, of whom, how long, and which take longest."""
        order = sorted(self.times_ns.items(), key=lambda item: (-item[1], item[0]))
        each = [f"{printable(name, 80)} {round(ns / 1e6, 3)} ms" for name, ns in order[:SHOWN]]
        more = [f"{len(order) - SHOWN} more"] if len(order) > SHOWN else []
        count = "counts" if self.kernels == 1 else "count"
        who = f"{counted(self.kernels, 'kernel')} of {self.libraries} {count} as compute"
        return f"{who}, {round(float(100 * self.share), 1)} % of the kernel time ({', '.join([*each, *more])})"

    def globs(self, convention: Convention) -> tuple[str, ...]:
        """What the convention names so far, and them."""
        return (*convention.communication, *sorted({known.glob for known in self.known}))

    def remedy(self, convention: Convention) -> str:
        """The line that makes them communication."""
        key = f"communication: {json.dumps(self.globs(convention), ensure_ascii=False)}"
        if convention == BUILT_IN.get(convention.name):
            return f"write convention: {{extends: {convention.name}, {key}}}"
        return f"write {key} in the convention"


def uncounted(group: WindowGroup) -> Uncounted | None:
    """Such kernels in the windows of a group; None for none."""
    times: Counter[str] = Counter()
    found: set[KnownLibrary] = set()
    kernels = 0
    for window in group:
        names, own = window.kernels.names, window.track.uncounted
        for key in own.keys() & window.by_name.keys() if own else ():
            ns, count = window.by_name[key]
            times[qualified_name(names.get(key[1], "") or names[key[0]])] += ns
            found.add(own[key])
            kernels += count
    if not kernels:
        return None
    whole = sum(sum(window.durations_ns) for window in group)
    return Uncounted(times, kernels, whole, frozenset(found))
