"""Which root causes are behind a row's change: what changed itself, on its rank or on one that it waits for?

Each cause is credited to the roots that act through its kernel, as far as they changed; what only follows from
something else, as a kernel that moved, to the largest of those that may have moved it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.explain.parts import Change, ChangeKind, Root, What
from pytest_nsys.analysis.explain.roots import Found, Roots
from pytest_nsys.core.kept import grouped

MOST_BEHIND = Fraction(4, 5)
"""The share of all that was credited which the root causes of a row account for."""

LEAST_BEHIND = Fraction(1, 20)
"""The share of the row's change which each root cause accounts for, at least."""

NOISE = Fraction(1, 50)
"""The share by which something has to get longer or shorter to be a root cause where others are."""

_HOST: Collection[What] = (What.HOST, What.CALL)
_COPIES: Collection[What] = (What.COPY, What.MEMSET)
_COMPUTE: Collection[What] = (What.KERNEL, What.ALL)
_GPU: Collection[What] = (*_COMPUTE, What.COLLECTIVE, *_COPIES)
_OF_TIME = (ChangeKind.LONGER, ChangeKind.SHORTER, ChangeKind.LATER)
_COUNTED = {"launches and gaps": (What.CALL,), "machine": (What.COPY,)}


def behind(
    roots: Roots,
    causes: Mapping[int, Sequence[Change]],
    change_ns: int,
    of_step: Callable[[], Roots | None] = lambda: None,
) -> tuple[Change, ...]:
    """Find what accounts for most of a row's change, by its causes on each rank, largest first; empty where nothing
    does.

    A rank may be waited for because of what is not in its window: then ``find_step_roots`` gives the root causes of the
    step.
    """
    for noise_share in (NOISE, Fraction(0)):
        ledger = _Credits(roots, of_step, noise_share)
        for rank, rank_causes in causes.items():
            ledger.blame(rank, [cause for cause in rank_causes if cause.change_ns * change_ns > 0])
        if root_changes := _most(ledger.sums, abs(change_ns)):
            return root_changes
    return ()


def came_or_went(roots: Roots, ranks: Iterable[int], subject: str, name: str) -> tuple[Change, ...]:
    """Find most of what runs more or less often on these ranks, or otherwise, largest first.

    It looks at what metrics of a subject count, and for a kernel's name at that alone.
    """
    activities = _COUNTED.get(subject, (What.KERNEL, What.COLLECTIVE))
    candidates = [candidate for rank in ranks for candidate in roots.of(rank) if candidate.change.root.of in activities]
    count_changes = [candidate for candidate in candidates if candidate.change.root.kind not in _OF_TIME]
    named_changes = [
        candidate for candidate in count_changes if any(kernel.startswith(name) for kernel in candidate.through)
    ]
    return _most(
        {
            candidate.change: max(candidate.change.before_ns, candidate.change.now_ns, 1)
            for candidate in (named_changes or count_changes)
        },
        0,
    )


def _most(credited: Mapping[Change, int], change_ns: int) -> tuple[Change, ...]:
    """Return the root causes with the largest sums over ranks, on each of these; little ones are left out."""
    sums, changes = Counter[Root](), grouped((change.root, change) for change in credited)
    for change, ns in credited.items():
        sums[change.root] += ns
    total, selected_ns, selected_changes = sums.total(), 0, list[Change]()
    for root, ns in sorted(sums.items(), key=lambda item: (-item[1], item[0])):
        if selected_ns >= MOST_BEHIND * total or ns < LEAST_BEHIND * change_ns:
            break
        selected_changes += sorted(changes[root], key=lambda change: change.largest_first)
        selected_ns += ns
    return tuple(selected_changes)


class _Credits:
    """Counts how much of a row is credited to each root cause: never more than it changed."""

    def __init__(self, roots: Roots, of_step: Callable[[], Roots | None], least: Fraction) -> None:
        self._roots, self._of_step, self._least = roots, of_step, least
        self.sums: Counter[Change] = Counter()

    def blame(self, rank: int, causes: Iterable[Change]) -> None:
        """Credit what each of these causes on a rank leads to: first what it names, then what may have led to it."""
        uncredited = [(cause, self._spread(self._direct(rank, cause), abs(cause.change_ns))) for cause in causes]
        for cause, ns in uncredited if self._least else ():  # of what is within the noise nothing follows
            for candidates in self._indirect(rank, cause):
                ns = self._spread(candidates, ns)

    def _spread(self, found: Iterable[Found], ns: int) -> int:
        """Credit candidates, each as far as it changed. Return what is left, in ns."""
        for candidate in found:
            credited_ns = min(ns, candidate.most_ns - self.sums[candidate.change])
            if credited_ns > 0:
                self.sums[candidate.change] += credited_ns
                ns -= credited_ns
        return ns

    def _of(self, rank: int, sign: int, of: Collection[What], among: Roots | None = None) -> Iterator[Found]:
        """Yield the candidates of a rank that made something longer (1) or shorter (−1), and by more than noise."""
        for candidate in (among or self._roots).of(rank):
            change = candidate.change
            is_length_change = change.root.kind in (ChangeKind.LONGER, ChangeKind.SHORTER)
            is_noise = is_length_change and abs(change.change_ns) < self._least * change.before_ns
            has_direction = sign * change.change_ns > 0 or candidate.otherwise
            if change.root.of in of and has_direction and not is_noise:
                yield candidate

    def _direct(self, rank: int, cause: Change) -> Iterator[Found]:
        """Yield the candidates that act through the kernel of a cause."""
        kind, activity, name, *_ = cause.root
        is_late = activity is What.HOST or (activity is What.COVER and kind is ChangeKind.ELSEWHERE)
        is_less = cause.change_ns < 0 or (activity is What.COVER and not is_late)
        activities = (*_HOST, *_COPIES) if is_late else _GPU
        yield from (
            candidate for candidate in self._of(rank, -1 if is_less else 1, activities) if name in candidate.through
        )
        if cause.exposes:  # it hides less of what runs later
            yield from (
                candidate for candidate in self._of(rank, 1, [What.COLLECTIVE]) if cause.exposes in candidate.through
            )

    def _indirect(self, rank: int, cause: Change) -> Iterator[Iterator[Found]]:
        """Yield the candidates that may have led to a cause, the nearest group first."""
        activity, straggler, sign = cause.root.of, cause.straggler, 1 if cause.change_ns > 0 else -1
        if straggler is not None and straggler != rank:
            straggler_roots = [*self._of(straggler, sign, (*_HOST, *_GPU))]
            yield iter(straggler_roots)
            if not straggler_roots and (step_roots := self._of_step()) is not None:
                yield self._of(straggler, sign, (*_HOST, *_GPU), step_roots)
            yield self._of(rank, -sign, _COMPUTE)  # it comes earlier, and the other when it always did
        elif activity is What.COVER and cause.root.kind is ChangeKind.ELSEWHERE:
            yield self._of(rank, sign, (*_HOST, *_GPU))
        elif activity in (What.HOST, What.IDLE, What.COLLECTIVE, *_COPIES):
            yield self._of(rank, sign, (*_COPIES, *_HOST, What.COLLECTIVE))
            is_idle = activity in (What.HOST, What.IDLE)  # the more, the less runs
            yield self._of(rank, -sign, (*_COMPUTE, What.COLLECTIVE) if is_idle else _COMPUTE)
