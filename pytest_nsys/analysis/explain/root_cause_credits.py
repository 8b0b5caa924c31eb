"""Which root causes are behind a row's change: what changed itself, on its rank or on one that it waits for?

Each cause is credited to the root causes that act through its kernel, at most by how much they changed. A cause that
only follows from something else, such as a kernel that moved, is credited to the largest candidates that may have moved
it. Idle time for which nothing accounts is a root cause itself. What explains less than half of a row is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.explain.breakdown_model import Change, ChangeKind, RootCause, RowActivity
from pytest_nsys.analysis.explain.root_causes import MIN_LATE_KERNELS, RootCauseCandidate, RootCauses
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Label

EXPLAINED_SHARE = Fraction(4, 5)
"""The share of all credits that the listed root causes of a row account for."""

MIN_CREDITED_SHARE = Fraction(1, 20)
"""The minimum share of the row's change that each root cause accounts for."""

NOISE_SHARE = Fraction(1, 50)
"""The minimum share by which something becomes longer or shorter to be a root cause when there are others."""

_HOST: Collection[RowActivity] = (RowActivity.HOST, RowActivity.CALL)
_COPIES: Collection[RowActivity] = (RowActivity.COPY, RowActivity.MEMSET)
_COMPUTE: Collection[RowActivity] = (RowActivity.KERNEL, RowActivity.ALL)
_GPU: Collection[RowActivity] = (*_COMPUTE, RowActivity.COLLECTIVE, *_COPIES)
_TIME_CHANGES = (ChangeKind.LONGER, ChangeKind.SHORTER, ChangeKind.LATER)
_SIDES = ("baseline_ns", "current_ns")
_COUNTED_ACTIVITIES = {"launches and gaps": (RowActivity.CALL,), "machine": (RowActivity.COPY,)}


def find_root_causes(
    roots: RootCauses,
    causes: Mapping[int, Sequence[Change]],
    change_ns: int,
    find_step_roots: Callable[[], RootCauses | None] = lambda: None,
    stage: Label | None = None,
) -> tuple[Change, ...]:
    """Find what accounts for most of a row's change, from its causes on each rank, largest first; empty if nothing
    accounts for half of it.

    A rank may be waited for because of something outside its window; for that case ``find_step_roots`` returns the root
    causes of the step. ``stage`` is that of a row of one stage: communication of another one does not explain it.
    """
    for noise_share in (NOISE_SHARE, Fraction(0)):
        ledger = _CreditLedger(roots, find_step_roots, noise_share, stage)
        for rank, rank_causes in causes.items():
            ledger.credit_causes(rank, [cause for cause in rank_causes if cause.change_ns * change_ns > 0])
        if 2 * ledger.credited_ns.total() < abs(change_ns):
            ledger.credit_gaps()
        if 2 * ledger.credited_ns.total() >= abs(change_ns):
            return select_most_credited(ledger.credited_ns, abs(change_ns))
    return ()


def find_count_changes(roots: RootCauses, ranks: Iterable[int], subject: str, name: str) -> tuple[Change, ...]:
    """Find most of what runs more or less often on these ranks, or differently, largest first.

    It looks at what metrics of ``subject`` count; for a kernel's name, only at that kernel.
    """
    activities = _COUNTED_ACTIVITIES.get(subject, (RowActivity.KERNEL, RowActivity.COLLECTIVE))
    candidates = [
        candidate
        for rank in ranks
        for candidate in roots.list_candidates(rank)
        if candidate.change.root.activity in activities
    ]
    count_changes = [candidate for candidate in candidates if candidate.change.root.kind not in _TIME_CHANGES]
    named_changes = [
        candidate for candidate in count_changes if any(kernel.startswith(name) for kernel in candidate.acting_kernels)
    ]
    return select_most_credited(
        {
            candidate.change: max(candidate.change.baseline_ns, candidate.change.current_ns, 1)
            for candidate in (named_changes or count_changes)
        },
        0,
    )


def select_most_credited(credited_ns: Mapping[Change, int], change_ns: int) -> tuple[Change, ...]:
    """Return the root causes with the largest sums over ranks, as changes on each rank; small ones are left out."""
    sums, changes = Counter[RootCause](), group_by_key((change.root, change) for change in credited_ns)
    for change, ns in credited_ns.items():
        sums[change.root] += ns
    total, selected_ns, selected_changes = sums.total(), 0, list[Change]()
    for root, ns in sorted(sums.items(), key=lambda item: (-item[1], item[0])):
        if selected_ns >= EXPLAINED_SHARE * total or ns < MIN_CREDITED_SHARE * change_ns:
            break
        selected_changes += sorted(changes[root], key=lambda change: change.sort_key)
        selected_ns += ns
    return tuple(selected_changes)


class _CreditLedger:
    """Counts how much of a row is credited to each root cause, never more than it changed."""

    def __init__(
        self,
        roots: RootCauses,
        find_step_roots: Callable[[], RootCauses | None],
        noise_share: Fraction,
        stage: Label | None = None,
    ) -> None:
        self._roots, self._find_step_roots, self._noise_share = roots, find_step_roots, noise_share
        self._stage = None if stage is None else "" if stage == NO_STAGE else str(stage)
        self._gaps_by_rank: dict[int, list[tuple[Change, int]]] = {}
        self.credited_ns: Counter[Change] = Counter()

    def credit_causes(self, rank: int, causes: Iterable[Change]) -> None:
        """Credit the root causes of each cause on a rank: first those that it names, then those that may have led to
        it.
        """
        uncredited = [
            (cause, self._credit_candidates(self._find_direct_roots(rank, cause), abs(cause.change_ns)))
            for cause in causes
        ]
        gaps = self._gaps_by_rank.setdefault(rank, [])
        for cause, ns in uncredited:
            # Nothing follows from a change within the noise.
            for candidates in self._find_indirect_roots(rank, cause) if self._noise_share else ():
                ns = self._credit_candidates(candidates, ns)
            if ns and (cause.root.activity is RowActivity.IDLE or self._is_uncovered(rank, cause)):
                gaps.append((cause._replace(rank=rank), ns))

    def _is_uncovered(self, rank: int, cause: Change) -> bool:
        """Whether communication runs alone for longer although it takes no longer itself: compute paused beside it."""
        kind, activity, name, *_ = cause.root
        sides = self._roots.find_both_sides(rank)
        if activity is not RowActivity.COLLECTIVE or cause.straggler is not None or self._stage is not None:
            return False
        if sides is None or kind not in (ChangeKind.LONGER, ChangeKind.ELSEWHERE):
            return False
        lengths = [sum(row.length_ns for row in side.rows if row.name == name) for side in sides]
        return 10 * abs(lengths[1] - lengths[0]) <= abs(cause.change_ns)

    def credit_gaps(self) -> None:
        """Credit the idle time that nothing accounts for to the gaps themselves; many of them, none of which has most
        of it, are one root cause without a name. So are gaps while communication runs.
        """
        for rank, gaps in self._gaps_by_rank.items():
            idle_gaps = [(gap, ns) for gap, ns in gaps if gap.root.activity is RowActivity.IDLE]
            total_ns, idle_ns = (sum(ns for _, ns in some_gaps) for some_gaps in (gaps, idle_gaps))
            # Compute that only pauses while communication runs may have waited for it.
            if 4 * idle_ns < total_ns:
                gaps = idle_gaps
            is_one_root = len(gaps) >= MIN_LATE_KERNELS and 2 * max(ns for _, ns in idle_gaps) < total_ns
            if is_one_root or len(gaps) > len(idle_gaps):
                baseline_ns, current_ns = (sum(getattr(gap, side) for gap, _ in gaps) for side in _SIDES)
                root = RootCause(idle_gaps[0][0].root.kind, RowActivity.IDLE, "")
                gaps = [(Change(root, rank, baseline_ns, current_ns), total_ns)]
            for gap, ns in gaps:
                self.credited_ns[gap] += ns

    def _credit_candidates(self, candidates: Iterable[RootCauseCandidate], ns: int) -> int:
        """Credit ``ns`` to candidates, to each at most by how much it changed. Return the remainder in ns."""
        for candidate in candidates:
            credited_ns = min(ns, candidate.max_credit_ns - self.credited_ns[candidate.change])
            if credited_ns > 0:
                self.credited_ns[candidate.change] += credited_ns
                ns -= credited_ns
        return ns

    def _select_candidates(
        self,
        rank: int,
        sign: int,
        activities: Collection[RowActivity],
        roots: RootCauses | None = None,
        *,
        of_any_stage: bool = False,
    ) -> Iterator[RootCauseCandidate]:
        """Yield the candidates of a rank that became longer (``sign`` 1) or shorter (−1) by more than noise.

        Unless ``of_any_stage``, communication of another stage than the row's is left out.
        """
        for candidate in (roots or self._roots).list_candidates(rank):
            change = candidate.change
            is_communication = change.root.activity is RowActivity.COLLECTIVE
            if is_communication and not of_any_stage and self._stage not in (None, change.root.stage):
                continue
            is_length_change = change.root.kind in (ChangeKind.LONGER, ChangeKind.SHORTER)
            is_noise = is_length_change and abs(change.change_ns) < self._noise_share * change.baseline_ns
            has_direction = sign * change.change_ns > 0 or candidate.runs_otherwise
            if change.root.activity in activities and has_direction and not is_noise:
                yield candidate

    def _find_direct_roots(self, rank: int, cause: Change) -> Iterator[RootCauseCandidate]:
        """Yield the possible root causes on a rank that act directly on the kernel whose change is to be explained."""
        kind, activity, name, *_ = cause.root
        is_late = activity is RowActivity.HOST or (activity is RowActivity.COVER and kind is ChangeKind.ELSEWHERE)
        is_less = cause.change_ns < 0 or (activity is RowActivity.COVER and not is_late)
        activities = (*_HOST, *_COPIES) if is_late else _GPU
        yield from (
            candidate
            for candidate in self._select_candidates(rank, -1 if is_less else 1, activities)
            if name in candidate.acting_kernels
        )
        if cause.exposed_kernel:  # the compute hides less because the communication runs later
            yield from (
                candidate
                for candidate in self._select_candidates(rank, 1, [RowActivity.COLLECTIVE])
                if cause.exposed_kernel in candidate.acting_kernels
            )

    def _find_indirect_roots(self, rank: int, cause: Change) -> Iterator[Iterator[RootCauseCandidate]]:
        """Yield the candidates that may have led to a cause, the nearest group first."""
        activity, straggler, sign = cause.root.activity, cause.straggler, 1 if cause.change_ns > 0 else -1
        if straggler is not None and straggler != rank:
            straggler_roots = [*self._select_candidates(straggler, sign, (*_HOST, *_GPU), of_any_stage=True)]
            yield iter(straggler_roots)
            if not straggler_roots and (step_roots := self._find_step_roots()) is not None:
                yield self._select_candidates(straggler, sign, (*_HOST, *_GPU), step_roots, of_any_stage=True)
            yield self._select_candidates(
                rank, -sign, _COMPUTE
            )  # the kernel comes earlier, the other at its usual time
        elif activity is RowActivity.COVER and cause.root.kind is ChangeKind.ELSEWHERE:
            yield self._select_candidates(rank, sign, (*_HOST, *_GPU))
            # Communication of another stage that is longer makes what follows it late, if nothing else accounts for it.
            yield self._select_candidates(rank, sign, [RowActivity.COLLECTIVE], of_any_stage=True)
        elif activity in (RowActivity.HOST, RowActivity.IDLE, RowActivity.COLLECTIVE, *_COPIES):
            yield self._select_candidates(rank, sign, (*_COPIES, *_HOST, RowActivity.COLLECTIVE))
            is_idle = activity in (RowActivity.HOST, RowActivity.IDLE)  # idle time grows as less runs
            yield self._select_candidates(rank, -sign, (*_COMPUTE, RowActivity.COLLECTIVE) if is_idle else _COMPUTE)
