"""Which roots are behind a row? Its causes lead to them: to what changed itself, on its rank or on one it waits for.

Each cause is credited to the roots that act through its kernel, as far as they changed; what only follows from
something else, as a kernel that moved, to the largest of those that may have moved it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.explained import Cause, CauseKind
from pytest_nsys.analysis.found_roots import Found
from pytest_nsys.analysis.root_facts import Root, RootChange, RootKind, RootOf
from pytest_nsys.analysis.roots import Roots, largest_first
from pytest_nsys.core.kept import grouped

MOST_BEHIND = Fraction(4, 5)
"""The roots of a row account for so much of what all that were found do."""

LEAST_BEHIND = Fraction(1, 20)
"""And each for so much of the row's change, at least."""

NOISE = Fraction(1, 50)
"""What got longer or shorter by less is a root only where nothing else is."""

_LATE = (CauseKind.LAUNCH_BOUND, CauseKind.STARVED, CauseKind.BETWEEN)
_LESS_COVER = (CauseKind.COVER_SHRANK, CauseKind.COVER_VANISHED)
_WAITED = (CauseKind.IDLE, CauseKind.STALLED, CauseKind.BESIDE, CauseKind.BLOCKS)
_OTHERWISE = (RootKind.APPEARED, RootKind.VANISHED, RootKind.REPLACED, RootKind.ELSEWHERE)
_COUNTED = {"launches and gaps": (RootOf.CALL,), "machine": (RootOf.COPY,)}
_BY_HOST: Collection[RootOf] = (RootOf.HOST, RootOf.CALL)
_COPIES = (RootOf.COPY, RootOf.MEMSET)
_BY_GPU: Collection[RootOf] = (RootOf.KERNEL, RootOf.ALL, RootOf.COLLECTIVE, *_COPIES)


def behind(
    roots: Roots,
    causes: Mapping[int, Sequence[Cause]],
    change_ns: int,
    of_step: Callable[[], Roots | None] = lambda: None,
) -> tuple[RootChange, ...]:
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


def came_or_went(roots: Roots, ranks: Iterable[int], subject: str, name: str) -> tuple[RootChange, ...]:
    """Most of what runs more or less often on these ranks, or otherwise, largest first: of what metrics of a subject
    count, and of a kernel's name that alone.
    """
    counted = _COUNTED.get(subject, (RootOf.KERNEL, RootOf.COLLECTIVE))
    every = [each for rank in ranks for each in roots.of(rank) if each.of in counted]
    found = [each for each in every if each.change.root.kind in _OTHERWISE]
    named = [each for each in found if any(kernel.startswith(name) for kernel in each.through)]
    return _most({each.change: max(each.change.before_ns, each.change.now_ns, 1) for each in (named or found)}, 0)


def _most(credited: Mapping[RootChange, int], change_ns: int) -> tuple[RootChange, ...]:
    """The roots with the largest sums over ranks, on each of these, but for such as are little of a change."""
    sums, changes = Counter[Root](), grouped((change.root, change) for change in credited)
    for change, ns in credited.items():
        sums[change.root] += ns
    total, told, found = sums.total(), 0, list[RootChange]()
    for root, ns in sorted(sums.items(), key=lambda item: (-item[1], item[0])):
        if told >= MOST_BEHIND * total or ns < LEAST_BEHIND * change_ns:
            break
        found += sorted(changes[root], key=largest_first)
        told += ns
    return tuple(found)


class _Credits:
    """How much of a row is credited to each root: never more than it changed."""

    def __init__(self, roots: Roots, of_step: Callable[[], Roots | None], least: Fraction) -> None:
        self._roots, self._of_step, self._least = roots, of_step, least
        self.sums: Counter[RootChange] = Counter()

    def blame(self, rank: int, causes: Iterable[Cause]) -> None:
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

    def _of(self, rank: int, sign: int, of: Collection[RootOf], among: Roots | None = None) -> Iterator[Found]:
        """The roots of a rank that made something longer (1) or shorter (−1), and by more than noise."""
        for each in (among or self._roots).of(rank):
            change = each.change
            noise = change.root.kind in (RootKind.LONGER, RootKind.SHORTER)
            small = noise and abs(change.change_ns) < self._least * change.before_ns
            along = sign * change.change_ns > 0 or each.otherwise
            if each.of in of and along and not small:
                yield each

    def _direct(self, rank: int, cause: Cause) -> Iterator[Found]:
        """What acts through the kernel of a cause."""
        sign = 1 if cause.change_ns > 0 and cause.kind not in _LESS_COVER else -1
        by_host = cause.kind in _LATE or cause.kind is CauseKind.COVER_MOVED
        of = (*_BY_HOST, *_COPIES) if by_host else _BY_GPU
        yield from (each for each in self._of(rank, sign, of) if cause.kernel in each.through)
        if cause.exposes:  # it hides less of what runs later
            yield from (each for each in self._of(rank, 1, [RootOf.COLLECTIVE]) if cause.exposes in each.through)

    def _indirect(self, rank: int, cause: Cause) -> Iterator[Iterator[Found]]:
        """What may have led to a cause, the nearest first."""
        last = cause.straggler
        if last is None:
            last = self._roots.waits_for(rank, cause.kernel, abs(cause.change_ns) // 2)
        if last is not None and last != rank:
            own = [*self._of(last, 1, (*_BY_HOST, *_BY_GPU))]
            yield iter(own)
            if not own and (step := self._of_step()) is not None:
                yield self._of(last, 1, (*_BY_HOST, *_BY_GPU), step)
            yield self._of(rank, -1, (RootOf.KERNEL, RootOf.ALL))  # it comes earlier, and the other when it always did
            return
        if cause.kind in _LATE or cause.kind in _WAITED:
            yield self._of(rank, 1, (*_COPIES, *_BY_HOST, RootOf.COLLECTIVE))
            yield self._of(rank, -1, (RootOf.KERNEL, RootOf.ALL))
        elif cause.kind is CauseKind.EXPOSED:
            yield self._of(rank, -1, (RootOf.KERNEL, RootOf.ALL))
        elif cause.kind is CauseKind.COVER_MOVED:
            yield self._of(rank, 1, (*_BY_HOST, *_BY_GPU))
