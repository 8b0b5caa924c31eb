"""Which kind is each step of an engine that serves requests, how long does it last, and how many tokens does it have?

The engine runs one step after the other on one thread, so a step lasts until the next one begins, of any kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pytest_nsys.analysis.windows.window_selection import build_step_spans
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Range

SECOND_NS = 1_000_000_000
MIN_STEPS_TO_DROP_FIRST = 3
"""The minimum number of steps at which the first one is left out of means, medians and quantiles."""


def find_most_frequent_kind(counts: Mapping[str, int]) -> str | None:
    """Return the most frequent kind; of equally frequent ones the first in the convention. None if steps have no
    kinds.
    """
    return max(counts, key=counts.__getitem__, default=None)


def format_kind_counts(counts: Mapping[str, int]) -> str:
    """Format the number of steps of each kind, the most frequent first: ``40 decode and 4 prefill steps``."""
    *earlier_texts, last_text = (f"{count} {name}" for name, count in sort_by_count(counts))
    plural = "step" if sum(counts.values()) == 1 else "steps"
    return f"{', '.join(earlier_texts)} and {last_text} {plural}" if earlier_texts else f"{last_text} {plural}"


def sort_by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Sort (kind, count) pairs by count, the most frequent first."""
    return sorted(counts.items(), key=lambda item: -item[1])


class StepsByKind:
    """Holds the steps of a run under a convention whose steps have kinds, by rank and by kind.

    ``anchors`` are the steps by rank number. ``path`` names the run in messages.
    """

    def __init__(self, convention: Convention, anchors: Mapping[int, Sequence[Range]], path: str) -> None:
        self._path, self._convention = path, convention
        self.by_rank = {number: build_step_spans(rank_anchors) for number, rank_anchors in anchors.items()}
        self._by_kind: dict[int, dict[str, list[Range]]] = {}
        for number, steps in self.by_rank.items():
            kind_steps = ((work.kind, step) for step in steps if (work := convention.parse_step(step.name)) is not None)
            self._by_kind[number] = group_by_key(kind_steps)
        kinds_of_ranks = self._by_kind.values()
        highest_counts = {
            name: max(len(rank_kinds.get(name, ())) for rank_kinds in kinds_of_ranks)
            for name in convention.kind_names
            if kinds_of_ranks
        }
        self.counts_by_kind: Mapping[str, int] = {name: count for name, count in highest_counts.items() if count}
        """The number of steps of each kind, on the rank that has most."""
        self.shared_counts = {
            name: count
            for name, count in self.counts_by_kind.items()
            if all(name in rank_kinds for rank_kinds in kinds_of_ranks)
        }
        """The same numbers, of those kinds that every rank has."""

        # Ranks are compared on one kind, so a kind that all of them have is preferred.
        self.default_kind = find_most_frequent_kind(self.shared_counts or self.counts_by_kind)
        """The kind that is measured by default: the most frequent, of those that every rank has if any is."""

    def describe_work(self) -> list[str]:
        """Describe, per kind, its share of the steps and its mean tokens: ``decode: 90% of the steps, 8 tokens each``.

        The tokens are left out if the labels do not say them.
        """
        all_steps = [step for steps in self.by_rank.values() for step in steps]
        works = [work for step in all_steps if (work := self._convention.parse_step(step.name)) is not None]
        texts = []
        for kind, token_counts in sorted(group_by_key((work.kind, work.tokens) for work in works).items()):
            tokens = [count for count in token_counts if count is not None]
            mean_tokens = f"{sum(tokens) / len(tokens):.1f}".removesuffix(".0") if tokens else ""
            tokens_text = f", {mean_tokens} tokens each" if tokens else ""
            texts.append(f"{kind}: {round(100 * len(token_counts) / len(works))}% of the steps{tokens_text}")
        return texts

    def explain_missing_kind(self, kind: str | None) -> str | None:
        """Explain that the run has no step of the requested kind; None if it has one."""
        if kind is None or kind in self.counts_by_kind or not self.counts_by_kind:
            return None
        return f"the run has no {kind} step, only {format_kind_counts(self.counts_by_kind)}"

    def select_steps(self, rank: int, kind: str | None) -> Sequence[Range]:
        """Return the steps of a kind on a rank; without a kind, those of the only kind there is.

        Raises UsageMistake if there are several kinds and none is given, NothingMeasured if no step is of the kind.
        """
        counts, chosen_kind = self.counts_by_kind, kind
        if chosen_kind is None:
            check_single_kind({f"{self._path}: the run has": counts})
        if not counts:
            raise NothingMeasured(f"{self._path}: no step says of which kind it is")
        if (missing_reason := self.explain_missing_kind(chosen_kind)) is not None:
            raise NothingMeasured(f"{self._path}: {missing_reason}")
        return self._by_kind[rank].get(chosen_kind or next(iter(counts)), ())


def check_single_kind(counts_by_owner: Mapping[str, Mapping[str, int]]) -> None:
    """Raise UsageMistake if an owner has steps of several kinds. ``counts_by_owner`` has the counts by kind, by owner's
    name.
    """
    if any(len(counts) > 1 for counts in counts_by_owner.values()):
        kind = find_most_frequent_kind(sum_kind_counts(counts_by_owner.values()))
        counts_text = ", ".join(
            f"{owner} {format_kind_counts(counts)}" for owner, counts in counts_by_owner.items() if counts
        )
        raise UsageMistake(
            f"{counts_text}, which share no median: say which, as in '{kind} step time <= 30ms' or window: {kind} "
            f"(`pytest-nsys TRACE --window {kind}`)"
        )


def sum_kind_counts(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Return the total number of steps of each kind."""
    return sum(map(Counter, counts), Counter())


def drop_first_step(lengths_ns: Mapping[int, int]) -> dict[int, int]:
    """Return the step lengths, in ns by index, that count in means, medians and quantiles: of three or more all but the
    first.
    """
    items = list(lengths_ns.items())
    # The start of the profiler disturbs the first step.
    return dict(items[1:] if len(items) >= MIN_STEPS_TO_DROP_FIRST else items)
