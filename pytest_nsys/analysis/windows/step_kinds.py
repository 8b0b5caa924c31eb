"""Steps of an engine that serves requests: which kind each is of, how long it lasts, and how many tokens it works on.

The engine runs one step after the other on one thread, so a step lasts until the next one begins, of whichever kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pytest_nsys.analysis.windows.spans import lasting
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Range

SECOND_NS = 1_000_000_000
FEWEST_WITHOUT_FIRST = 3
"""Steps of which the first is not counted."""


def most_frequent(kinds: Mapping[str, int]) -> str | None:
    """Of several as frequent the convention's first; None where steps have no kinds."""
    return max(kinds, key=kinds.__getitem__, default=None)


def counts_in_words(counts: Mapping[str, int]) -> str:
    """``40 decode and 4 prefill steps``, the most frequent first."""
    *others, last = (f"{count} {name}" for name, count in by_number(counts))
    plural = "step" if sum(counts.values()) == 1 else "steps"
    return f"{', '.join(others)} and {last} {plural}" if others else f"{last} {plural}"


def by_number(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent first."""
    return sorted(counts.items(), key=lambda item: -item[1])


class RunSteps:
    """The steps of a run under a convention whose steps have kinds, from its ``anchors`` by rank number. ``path`` names
    it in messages.
    """

    def __init__(self, convention: Convention, anchors: Mapping[int, Sequence[Range]], path: str) -> None:
        self._path, self._convention = path, convention
        self.by_rank = {number: lasting(own) for number, own in anchors.items()}
        self._by_kind: dict[int, dict[str, list[Range]]] = {}
        for number, steps in self.by_rank.items():
            each = ((work.kind, step) for step in steps if (work := convention.step_of(step.name)) is not None)
            self._by_kind[number] = grouped(each)
        ranks = self._by_kind.values()
        most = {name: max(len(own.get(name, ())) for own in ranks) for name in convention.kind_names if ranks}
        self.counts: Mapping[str, int] = {name: count for name, count in most.items() if count}
        """How many of each kind there are, on the rank that has most."""
        self.shared = {name: count for name, count in self.counts.items() if all(name in own for own in ranks)}
        """The same of the kinds that every rank has."""

        self.usual = most_frequent(self.shared or self.counts)
        """The kind that is looked at where nobody says: the most frequent, of those that every rank has if any is."""

    def work_words(self) -> list[str]:
        """What the engine did, of each kind its share of the steps and its mean tokens: ``decode: 90% of the steps, 8
        tokens each``; without tokens where labels do not say them.
        """
        each = [step for steps in self.by_rank.values() for step in steps]
        known = [work for step in each if (work := self._convention.step_of(step.name)) is not None]
        found = []
        for kind, own in sorted(grouped((work.kind, work.tokens) for work in known).items()):
            tokens = [count for count in own if count is not None]
            tenths = f"{sum(tokens) / len(tokens):.1f}".removesuffix(".0") if tokens else ""
            many = f", {tenths} tokens each" if tokens else ""
            found.append(f"{kind}: {round(100 * len(own) / len(known))}% of the steps{many}")
        return found

    def lacks(self, kind: str | None) -> str | None:
        """That no step is of a kind that is asked for; None where one is."""
        if kind is None or kind in self.counts or not self.counts:
            return None
        return f"the run has no {kind} step, only {counts_in_words(self.counts)}"

    def of(self, rank: int, kind: str | None) -> Sequence[Range]:
        """The steps of a kind on a rank: of the only one that there is, where none is named.

        Raises UsageMistake where there are several, NothingMeasured where no step is of it.
        """
        counts, which = self.counts, kind
        if which is None:
            of_one_kind({f"{self._path}: the run has": counts})
        if not counts:
            raise NothingMeasured(f"{self._path}: no step says of which kind it is")
        if (why := self.lacks(which)) is not None:
            raise NothingMeasured(f"{self._path}: {why}")
        return self._by_kind[rank].get(which or next(iter(counts)), ())


def of_one_kind(steps: Mapping[str, Mapping[str, int]]) -> None:
    """Raises UsageMistake where anybody has steps of several kinds: how many of each, by who has them."""
    if any(len(counts) > 1 for counts in steps.values()):
        first = most_frequent(counted_kinds(steps.values()))
        said = ", ".join(f"{who} {counts_in_words(counts)}" for who, counts in steps.items() if counts)
        raise UsageMistake(
            f"{said}, which share no median: say which, as in '{first} step time <= 30ms' or window: {first} "
            f"(`pytest-nsys TRACE --window {first}`)"
        )


def counted_kinds(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Return how many steps of each kind there are together."""
    return sum(map(Counter, counts), Counter())


def counted_steps(lengths: Mapping[int, int]) -> dict[int, int]:
    """Return the steps that a mean, a median and every quantile count, in ns by index: all but the first where there
    are three or more, for the profiler's start disturbs that.
    """
    known = list(lengths.items())
    return dict(known[1:] if len(known) >= FEWEST_WITHOUT_FIRST else known)
