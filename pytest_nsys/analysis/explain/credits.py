"""Which roots are behind a row? Its causes lead to them: to what changed itself, on its rank or on one it waits for.

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
"""The roots of a row account for so much of what all that were found do."""

LEAST_BEHIND = Fraction(1, 20)
"""And each for so much of the row's change, at least."""

NOISE = Fraction(1, 50)
"""What got longer or shorter by less is a root only where nothing else is."""

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
    """What accounts for most of a row's change by its causes of each rank, largest first; empty where nothing does.

    A rank may be waited for because of what is not in its window: then the roots are those ``of_step``.
    """
    for least in (NOISE, Fraction(0)):
        found = _Credits(roots, of_step, least)
        for rank, own in causes.items():
            found.blame(rank, [cause for cause in own if cause.change_ns * change_ns > 0])
        if told := _most(found.sums, abs(change_ns)):
            return told
    return ()


def came_or_went(roots: Roots, ranks: Iterable[int], subject: str, name: str) -> tuple[Change, ...]:
    """Most of what runs more or less often on these ranks, or otherwise, largest first: of what metrics of a subject
    count, and of a kernel's name that alone.
    """
    counted = _COUNTED.get(subject, (What.KERNEL, What.COLLECTIVE))
    every = [each for rank in ranks for each in roots.of(rank) if each.change.root.of in counted]
    found = [each for each in every if each.change.root.kind not in _OF_TIME]
    named = [each for each in found if any(kernel.startswith(name) for kernel in each.through)]
    return _most({each.change: max(each.change.before_ns, each.change.now_ns, 1) for each in (named or found)}, 0)


def _most(credited: Mapping[Change, int], change_ns: int) -> tuple[Change, ...]:
    """The roots with the largest sums over ranks, on each of these, but for such as are little of a change."""
    sums, changes = Counter[Root](), grouped((change.root, change) for change in credited)
    for change, ns in credited.items():
        sums[change.root] += ns
    total, told, found = sums.total(), 0, list[Change]()
    for root, ns in sorted(sums.items(), key=lambda item: (-item[1], item[0])):
        if told >= MOST_BEHIND * total or ns < LEAST_BEHIND * change_ns:
            break
        found += sorted(changes[root], key=lambda change: change.largest_first)
        told += ns
    return tuple(found)


class _Credits:
    """How much of a row is credited to each root: never more than it changed."""

    def __init__(self, roots: Roots, of_step: Callable[[], Roots | None], least: Fraction) -> None:
        self._roots, self._of_step, self._least = roots, of_step, least
        self.sums: Counter[Change] = Counter()

    def blame(self, rank: int, causes: Iterable[Change]) -> None:
        """Credit what each of these causes on a rank leads to, first what it names, then what may have led to it."""
        left = [(cause, self._spread(self._direct(rank, cause), abs(cause.change_ns))) for cause in causes]
        for cause, ns in left if self._least else ():  # of what is within the noise nothing follows
            for found in self._indirect(rank, cause):
                ns = self._spread(found, ns)

    def _spread(self, found: Iterable[Found], ns: int) -> int:
        """Credit roots, each as far as it changed; what is left."""
        for each in found:
            given = min(ns, each.most_ns - self.sums[each.change])
            if given > 0:
                self.sums[each.change] += given
                ns -= given
        return ns

    def _of(self, rank: int, sign: int, of: Collection[What], among: Roots | None = None) -> Iterator[Found]:
        """The roots of a rank that made something longer (1) or shorter (−1), and by more than noise."""
        for each in (among or self._roots).of(rank):
            change = each.change
            noise = change.root.kind in (ChangeKind.LONGER, ChangeKind.SHORTER)
            small = noise and abs(change.change_ns) < self._least * change.before_ns
            along = sign * change.change_ns > 0 or each.otherwise
            if change.root.of in of and along and not small:
                yield each

    def _direct(self, rank: int, cause: Change) -> Iterator[Found]:
        """What acts through the kernel of a cause."""
        kind, of, name, *_ = cause.root
        late = of is What.HOST or (of is What.COVER and kind is ChangeKind.ELSEWHERE)
        less = cause.change_ns < 0 or (of is What.COVER and not late)
        by = (*_HOST, *_COPIES) if late else _GPU
        yield from (each for each in self._of(rank, -1 if less else 1, by) if name in each.through)
        if cause.exposes:  # it hides less of what runs later
            yield from (each for each in self._of(rank, 1, [What.COLLECTIVE]) if cause.exposes in each.through)

    def _indirect(self, rank: int, cause: Change) -> Iterator[Iterator[Found]]:
        """What may have led to a cause, the nearest first."""
        of, last, sign = cause.root.of, cause.straggler, 1 if cause.change_ns > 0 else -1
        if last is not None and last != rank:
            own = [*self._of(last, sign, (*_HOST, *_GPU))]
            yield iter(own)
            if not own and (step := self._of_step()) is not None:
                yield self._of(last, sign, (*_HOST, *_GPU), step)
            yield self._of(rank, -sign, _COMPUTE)  # it comes earlier, and the other when it always did
        elif of is What.COVER and cause.root.kind is ChangeKind.ELSEWHERE:
            yield self._of(rank, sign, (*_HOST, *_GPU))
        elif of in (What.HOST, What.IDLE, What.COLLECTIVE, *_COPIES):
            yield self._of(rank, sign, (*_COPIES, *_HOST, What.COLLECTIVE))
            idle = of in (What.HOST, What.IDLE)  # the more, the less runs
            yield self._of(rank, -sign, (*_COMPUTE, What.COLLECTIVE) if idle else _COMPUTE)
