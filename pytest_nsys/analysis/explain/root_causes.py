"""What changed by itself between two windows of a rank: which rows are longer, more or fewer, or elsewhere?

Something that only waited for another rank, moved, was blocked or hid less because of something else is no root cause.
The length of communication therefore counts without its waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explain.breakdown_model import (
    AT_END,
    NEXT_STEP,
    Breakdown,
    BreakdownRow,
    Change,
    ChangeKind,
    RootCause,
    RowActivity,
)
from pytest_nsys.analysis.explain.causes import classify_change
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.memoize import group_by_key, memoize_method

MIN_COMMON_SHARE = Fraction(1, 50)
"""The minimum share by which all compute changes to count as a common change."""

MIN_COMMON_KERNELS = 3  # fewer are named one by one
"""The minimum number of kernels that count as all compute."""

NEARLY_ALL = Fraction(9, 10)
"""The share that counts as nearly all of the compute time without the largest kernel; and of a change, for it to belong
to one stage.
"""

MIN_LATE_KERNELS = 3
"""If at least this many kernels are launched later, and none of them accounts for most of it, all launches count as
later.
"""

PAGEABLE = "pageable"

_COPY_ACTIVITIES = (RowActivity.COPY, RowActivity.MEMSET)

FindBreakdown = Callable[[int], Breakdown | None]
"""Returns the breakdown of a rank's window; None without one."""


class RootCauseCandidate(NamedTuple):
    """Describes a possible root cause on one rank, and the kernels through which it acts."""

    change: Change
    acting_kernels: frozenset[str]  # kernels that it consists of, or before which the GPU waits

    @property
    def runs_otherwise(self) -> bool:
        """Whether it holds something up without running longer: it runs elsewhere or, for communication, in other
        pieces.
        """
        root, _, baseline_ns, current_ns, baseline_count, current_count, *_ = self.change
        # At least a third fewer pieces or half as many more, in about the same time (within a fifth).
        has_other_pieces = root.activity is RowActivity.COLLECTIVE and 0 < 3 * min(
            baseline_count, current_count
        ) <= 2 * max(baseline_count, current_count)
        return root.kind is ChangeKind.ELSEWHERE or (
            has_other_pieces and 5 * abs(current_ns - baseline_ns) <= baseline_ns
        )

    @property
    def max_credit_ns(self) -> int:
        """The maximum time that it may account for; if it runs differently, all of its time."""
        return (
            max(self.change.baseline_ns, self.change.current_ns) if self.runs_otherwise else abs(self.change.change_ns)
        )


class RootCauses:
    """Finds the root causes of what changed between two runs in a window, once for each rank.

    ``ranks`` are those that both runs have.
    """

    def __init__(self, find_baseline: FindBreakdown, find_current: FindBreakdown, ranks: Collection[int] = ()) -> None:
        self._find_baseline, self._find_current, self._ranks = find_baseline, find_current, sorted(ranks)

    @memoize_method
    def find_both_sides(self, rank: int) -> tuple[Breakdown, Breakdown] | None:
        """Return the (baseline, current) breakdowns of a rank; None if one side has none."""
        baseline, current = self._find_baseline(rank), self._find_current(rank)
        return None if baseline is None or current is None else (baseline, current)

    @memoize_method
    def list_candidates(self, rank: int) -> tuple[RootCauseCandidate, ...]:
        """List everything that changed by itself on a rank, largest first."""
        sides = self.find_both_sides(rank)
        candidates = () if sides is None else _RankDifference(rank, *sides).find_candidates()
        return tuple(sorted(candidates, key=lambda candidate: candidate.change.sort_key))

    @memoize_method
    def list_alike_changes(self, root: RootCause) -> tuple[Change, ...]:
        """List the changes by a root cause on every rank where it is at least half as large as on the rank where it is
        largest.
        """
        changes = [
            candidate.change
            for rank in self._ranks
            for candidate in self.list_candidates(rank)
            if candidate.change.root == root
        ]
        largest_ns = max((abs(change.change_ns) for change in changes), default=0)
        return tuple(change for change in changes if 2 * abs(change.change_ns) >= largest_ns)


class _CountAndTime(NamedTuple):
    """Holds the number of kernels, copies or calls, and their total length without waits."""

    number: int = 0
    ns: int = 0


def _add_lengths(
    lengths: Iterable[_CountAndTime], *, lengths_to_subtract: Iterable[_CountAndTime] = ()
) -> _CountAndTime:
    added_lengths, subtracted_lengths = [*lengths], [*lengths_to_subtract]
    return _CountAndTime(
        *(sum(length[n] for length in added_lengths) - sum(length[n] for length in subtracted_lengths) for n in (0, 1))
    )


_RowKey = tuple[RowActivity, str, str]
"""Identifies what a root cause belongs to: its activity, its name and, for communication, its stage."""


def _make_key(row: BreakdownRow) -> _RowKey:
    return row.activity, row.name, row.stage if row.activity is RowActivity.COLLECTIVE and row.stage != NO_STAGE else ""


class _RankDifference:
    """Compares the rows of one rank in two runs."""

    def __init__(self, rank: int, baseline: Breakdown, current: Breakdown) -> None:
        self._rank, self._sides = rank, (baseline, current)
        known_activities = {RowActivity.KERNEL, RowActivity.COLLECTIVE, *_COPY_ACTIVITIES, RowActivity.CALL} - {
            *baseline.unrecorded,
            *current.unrecorded,
        }
        self._rows = [[row for row in side.rows if row.activity in known_activities] for side in self._sides]
        self._unmatched_names = {row.name for side in self._rows for row in side if row.wait_ns_by_rank is None}
        self._rows_by_key = [group_by_key((_make_key(row), row) for row in side) for side in self._rows]
        keys = sorted({*self._rows_by_key[0], *self._rows_by_key[1]})
        self._lengths = {
            key: [_add_lengths(map(self._measure, side.get(key, ()))) for side in self._rows_by_key] for key in keys
        }
        self._late_kernels = self._find_late_kernels()

    def find_candidates(self) -> Iterator[RootCauseCandidate]:
        """Yield everything that changed by itself."""
        moved_compute, moved_communication = (
            self._find_moved(RowActivity.KERNEL),
            self._find_moved(RowActivity.COLLECTIVE),
        )
        for name in moved_compute:
            yield self._make_moved_candidate(RowActivity.KERNEL, name, [name, *moved_communication])
        if not moved_compute:  # otherwise communication did not move itself
            yield from (
                self._make_moved_candidate(RowActivity.COLLECTIVE, name, [name]) for name in moved_communication
            )
        common_kernels = self._find_common_change()
        if common_kernels:
            yield self._make_common_candidate(common_kernels)
        explained_keys = {(RowActivity.KERNEL, name) for name in common_kernels} | {
            (RowActivity.COLLECTIVE, name) for name in moved_communication if not moved_compute
        }
        changes = [*self._find_changed(explained_keys)]
        calls = [candidate for candidate in changes if candidate.change.root.activity is RowActivity.CALL]
        host_holders = [
            candidate
            for candidate in changes
            if PAGEABLE in candidate.change.root.name and candidate.change.change_ns > 0
        ] or calls
        # Calls are no root causes if the host waits in a copy of pageable memory.
        yield from (candidate for candidate in changes if candidate not in calls or host_holders is calls)
        yield from self._find_late_launches(sum(candidate.change.change_ns for candidate in host_holders))
        yield from self._find_late_communication()

    def _measure(self, row: BreakdownRow | None) -> _CountAndTime:
        """Measure the count and the length of a row, without waits if both sides know all of them."""
        if row is None:
            return _CountAndTime()
        waits_ns = 0 if row.name in self._unmatched_names else sum((row.wait_ns_by_rank or {}).values())
        return _CountAndTime(row.number, row.length_ns - waits_ns)

    def _make_candidate(
        self, root: RootCause, lengths: Iterable[_CountAndTime], acting_kernels: Iterable[str]
    ) -> RootCauseCandidate:
        baseline, current = lengths
        return RootCauseCandidate(
            Change(root, self._rank, baseline.ns, current.ns, baseline.number, current.number),
            frozenset(acting_kernels),
        )

    # Elsewhere

    def _find_moved(self, activity: RowActivity) -> list[str]:
        """Find the names of kernels that run as often as before, but mostly on other streams."""
        rows = [group_by_key((row.name, row) for row in side if row.activity is activity) for side in self._rows]
        stream_matches = self._match_streams(activity)
        moved_names = []
        for name in sorted(rows[0].keys() & rows[1].keys()):
            baseline_rows, current_rows = (side[name] for side in rows)
            count = sum(row.number for row in current_rows)
            streams = {row.stream for row in baseline_rows}
            moved_count = sum(row.number for row in current_rows if stream_matches.get(row.stream) not in streams)
            if sum(row.number for row in baseline_rows) == count < 2 * moved_count:
                moved_names.append(name)
        return moved_names

    def _match_streams(self, activity: RowActivity) -> dict[int, int]:
        """Return for each stream the baseline stream that did most of the same work; a new stream has none."""
        if activity is RowActivity.COLLECTIVE:  # what matters is whether it holds compute up, not its stream
            return {row.stream: row.stream for side in self._rows for row in side}
        rows_by_name = group_by_key((row.name, row) for row in self._rows[0] if row.activity is activity)
        shared_ns = Counter[tuple[int, int]]()
        for current_row in self._rows[1]:
            for baseline_row in rows_by_name.get(current_row.name, ()) if current_row.activity is activity else ():
                shared_ns[baseline_row.stream, current_row.stream] += min(baseline_row.length_ns, current_row.length_ns)
        matches: dict[int, int] = {}
        for (baseline_stream, current_stream), _ in sorted(shared_ns.items(), key=lambda item: (-item[1], item[0])):
            if current_stream not in matches and baseline_stream not in matches.values():
                matches[current_stream] = baseline_stream
        return matches

    def _make_moved_candidate(
        self, activity: RowActivity, name: str, acting_kernels: Iterable[str]
    ) -> RootCauseCandidate:
        baseline_rows, current_rows = (
            [row for row in side if (row.activity, row.name) == (activity, name)] for side in self._rows
        )
        stages = {row.stage for row in current_rows}
        stage = stages.pop() if len(stages) == 1 and NO_STAGE not in stages else ""
        lengths = [_add_lengths(map(self._measure, side)) for side in (baseline_rows, current_rows)]
        return self._make_candidate(RootCause(ChangeKind.ELSEWHERE, activity, name, stage), lengths, acting_kernels)

    # All compute alike

    def _find_common_change(self) -> frozenset[str]:
        """Find the compute kernels that changed by about one share; empty unless nearly all did, even without the
        largest kernel.
        """
        rows = {
            name: side_pair
            for (activity, name, _), side_pair in self._lengths.items()
            if activity is RowActivity.KERNEL
        }
        lengths_by_name = {
            name: (baseline.ns, current.ns)
            for name, (baseline, current) in rows.items()
            if baseline.number == current.number and baseline.ns
        }
        baseline_ns = sum(baseline for baseline, _ in lengths_by_name.values())
        common_share = Fraction(sum(current for _, current in lengths_by_name.values()) - baseline_ns, baseline_ns or 1)
        common_kernels = {
            name
            for name, (baseline, current) in lengths_by_name.items()
            if 2 * abs(Fraction(current - baseline, baseline) - common_share) <= abs(common_share)
        }
        largest = max(rows, key=lambda name: (rows[name][0].ns, name), default="")
        rest_ns = sum(baseline.ns for name, (baseline, _) in rows.items() if name != largest)
        # Without the largest kernel at least a tenth must remain: less says nothing about all compute.
        is_common = (
            len(common_kernels) >= MIN_COMMON_KERNELS
            and abs(common_share) > MIN_COMMON_SHARE
            and 10 * rest_ns >= baseline_ns
        )
        common_ns = sum(lengths_by_name[name][0] for name in common_kernels - {largest})
        return frozenset(
            common_kernels if is_common and largest in common_kernels and common_ns >= NEARLY_ALL * rest_ns else ()
        )

    def _make_common_candidate(self, common_kernels: Collection[str]) -> RootCauseCandidate:
        baseline, current = (
            _add_lengths(self._lengths[RowActivity.KERNEL, name, ""][n] for name in common_kernels) for n in (0, 1)
        )
        root = RootCause(classify_change((0, 0), current.ns - baseline.ns), RowActivity.ALL, "")
        candidate = self._make_candidate(root, (baseline, current), common_kernels)
        baseline_mhz, current_mhz = (side.clock_mhz for side in self._sides)
        clocks = (
            None
            if baseline_mhz is None or current_mhz is None or baseline_mhz == current_mhz
            else (baseline_mhz, current_mhz)
        )
        return candidate._replace(change=candidate.change._replace(clock_mhz=clocks))

    # Replaced, longer or shorter, more or fewer

    def _find_changed(self, explained_keys: Collection[tuple[RowActivity, str]]) -> Iterator[RootCauseCandidate]:
        """Yield, by pair, the kernels that another one replaced; then every other change of names that are not
        explained yet.
        """
        rows = {key: [*side_pair] for key, side_pair in self._lengths.items()}
        pairs = dict[tuple[_RowKey, _RowKey], tuple[_CountAndTime, _CountAndTime]]()
        for gone_rows, new_rows in self._list_replaced():
            lost_length, new_length = self._subtract_lengths(*gone_rows), self._subtract_lengths(*reversed(new_rows))
            keys = next(_make_key(row) for row in gone_rows if row), next(_make_key(row) for row in new_rows if row)
            lost_before, new_before = pairs.get(keys, (_CountAndTime(), _CountAndTime()))
            pairs[keys] = _add_lengths([lost_before, lost_length]), _add_lengths([new_before, new_length])
            rows[keys[0]][0] = _add_lengths([rows[keys[0]][0]], lengths_to_subtract=[lost_length])
            rows[keys[1]][1] = _add_lengths([rows[keys[1]][1]], lengths_to_subtract=[new_length])
        for (old_key, new_key), lengths in sorted(pairs.items()):
            root = RootCause(ChangeKind.REPLACED, new_key[0], new_key[1], self._find_main_stage(new_key), old_key[1])
            yield self._make_candidate(
                root, lengths, self._list_acting_kernels(old_key) | self._list_acting_kernels(new_key)
            )
        for key, (baseline, current) in rows.items():
            if key[:2] not in explained_keys and baseline != current:
                kind = classify_change((baseline.number, current.number), current.ns - baseline.ns)
                yield self._make_candidate(
                    RootCause(kind, key[0], key[1], self._find_main_stage(key)),
                    (baseline, current),
                    self._list_acting_kernels(key),
                )

    def _list_replaced(self) -> Iterator[tuple[_RowPair, _RowPair]]:
        """List the pairs of kernels where one is gone from a place and the other came there."""
        sides = [
            {
                (row.activity, row.stage, row.stream, row.name): row
                for row in side
                if row.activity is not RowActivity.CALL
            }
            for side in self._rows
        ]
        places = group_by_key(
            (row_key[:3], (sides[0].get(row_key), sides[1].get(row_key))) for row_key in sorted({*sides[0], *sides[1]})
        )
        for rows in places.values():
            pairs_by_name = {row.name: row_pair for row_pair in rows for row in row_pair if row}
            growth_by_name = {
                name: (_measure_growth(row_pair, "number"), _measure_growth(row_pair, "order"))
                for name, row_pair in pairs_by_name.items()
            }
            gone_names = [(name, -number, -order) for name, (number, order) in growth_by_name.items() if number < 0]
            new_names = [(name, number, order) for name, (number, order) in growth_by_name.items() if number > 0]
            yield from ((pairs_by_name[old], pairs_by_name[new]) for old, new in _match_in_place(gone_names, new_names))

    def _subtract_lengths(self, larger: BreakdownRow | None, smaller: BreakdownRow | None) -> _CountAndTime:
        """Return by how many kernels the larger row exceeds the smaller one, and their length if the others are no
        longer than before.
        """
        number, ns = _add_lengths([self._measure(larger)], lengths_to_subtract=[self._measure(smaller)])
        return _CountAndTime(number, max(0, ns))

    def _find_main_stage(self, key: _RowKey) -> str:
        """Return the stage of a change: its own, or the one that has nearly all of it; empty if there is none."""
        stages = Counter[str]()
        for sign, side in zip((-1, 1), self._rows_by_key, strict=True):
            for row in side.get(key, ()):
                stages[row.stage or NO_STAGE] += sign * row.length_ns
        total = sum(map(abs, stages.values()))
        stage = max(sorted(stages), key=lambda stage: abs(stages[stage]), default=NO_STAGE)
        return key[2] or (stage if stage != NO_STAGE and abs(stages[stage]) >= NEARLY_ALL * total else "")

    def _list_acting_kernels(self, key: _RowKey) -> set[str]:
        """Return the kernels through which a change acts.

        They are its own kernels; for copies, those that they block; for a call, and for a copy that the host waits in,
        those that are launched later.
        """
        activity, name, _ = key
        kernels = {name}
        if activity in _COPY_ACTIVITIES:
            kernels |= {
                str(activity),
                *(
                    blocked_kernel
                    for side in self._rows_by_key
                    for row in side.get(key, ())
                    for blocked_kernel in row.ns_by_kernel
                ),
            }
        return kernels | {*(self._late_kernels if activity is RowActivity.CALL or PAGEABLE in name else ())}

    # Launched later

    def _find_late_kernels(self) -> dict[str, tuple[int, int]]:
        """Return how long the GPU waits for each kernel that is launched later, as (baseline, current) in ns by kernel.

        The window's end and the next step count as kernels.
        """
        baseline, current = self._sides
        by_name = [
            {key[1]: rows for key, rows in side.items() if key[0] is RowActivity.KERNEL} for side in self._rows_by_key
        ]
        means = [{name: _measure_average_launch(rows) for name, rows in side.items()} for side in by_name]
        waits_by_kernel = {
            name: (baseline.time_ns.get((RowActivity.HOST, name), 0), ns)
            for (activity, name), ns in current.time_ns.items()
            if activity is RowActivity.HOST
            and (means[1].get(name) or 0) > (means[0].get(name) or means[1].get(name) or 0)
        }
        # If the kernels before it are shorter, the GPU also waits, for a launch at its usual time.
        longer_ns = max(0, current.length_ns - baseline.length_ns)
        for end_key in ((RowActivity.IDLE, AT_END), (RowActivity.HOST, NEXT_STEP)):
            baseline_ns, current_ns = (side.time_ns.get(end_key, 0) for side in self._sides)
            waits_by_kernel[end_key[1]] = baseline_ns, min(current_ns, baseline_ns + longer_ns)
        return {name: wait_pair for name, wait_pair in sorted(waits_by_kernel.items()) if wait_pair[1] > wait_pair[0]}

    def _find_late_launches(self, explained_ns: int) -> Iterator[RootCauseCandidate]:
        """Yield kernels that are launched later, less the time that calls and copies account for, the longest first.

        A shorter time between two steps is also one, if the step is shorter.
        """
        late_kernels: dict[str, tuple[int, int]] = {}
        for name, (baseline_ns, current_ns) in sorted(
            self._late_kernels.items(), key=lambda item: (item[1][0] - item[1][1], item[0])
        ):
            credited_ns = min(explained_ns, current_ns - baseline_ns)
            explained_ns -= credited_ns
            # A delay belongs to calls and copies if they account for at least three quarters of it.
            if 4 * credited_ns < 3 * (current_ns - baseline_ns):
                late_kernels[name] = baseline_ns, current_ns - credited_ns
        longer = [current_ns - baseline_ns for baseline_ns, current_ns in late_kernels.values()]
        # Many kernels are late, and none has most of the delay: the host is late as a whole.
        if len(late_kernels) >= MIN_LATE_KERNELS and 2 * max(longer) < sum(longer):
            late_kernels = {
                "": (
                    sum(baseline_ns for baseline_ns, _ in late_kernels.values()),
                    sum(current_ns for _, current_ns in late_kernels.values()),
                )
            }
        for name, wait_pair in sorted(late_kernels.items()):
            lengths = (_CountAndTime(ns=ns) for ns in wait_pair)
            yield self._make_candidate(
                RootCause(ChangeKind.LATER, RowActivity.HOST, name), lengths, [name] if name else self._late_kernels
            )
        baseline_ns, current_ns = (side.time_ns.get((RowActivity.HOST, NEXT_STEP), 0) for side in self._sides)
        if current_ns < baseline_ns and self._sides[1].length_ns < self._sides[0].length_ns:
            root = RootCause(ChangeKind.SHORTER, RowActivity.HOST, NEXT_STEP)
            yield self._make_candidate(root, (_CountAndTime(ns=baseline_ns), _CountAndTime(ns=current_ns)), [NEXT_STEP])

    def _find_late_communication(self) -> Iterator[RootCauseCandidate]:
        """Yield communication that is launched later, after more compute than was added, which exposes more of it."""
        launched_counts = [
            sum(row.launched_count for row in side if row.activity is RowActivity.KERNEL) for side in self._rows
        ]
        added_launches = max(0, launched_counts[1] - launched_counts[0])
        for key in sorted(self._rows_by_key[0].keys() & self._rows_by_key[1].keys()):
            baseline_rows, current_rows = ([row for row in side[key] if row.is_hideable] for side in self._rows_by_key)
            is_known = all(row.launched_count == row.number for row in (*baseline_rows, *current_rows))
            later_launches = sum(row.launches_before for row in current_rows) - sum(
                row.launches_before for row in baseline_rows
            )
            baseline, current = (
                _CountAndTime(sum(row.number for row in side), sum(row.exposed_ns for row in side))
                for side in (baseline_rows, current_rows)
            )
            if (
                is_known
                and baseline.number == current.number
                and later_launches > added_launches * current.number
                and current.ns > baseline.ns
            ):
                yield self._make_candidate(RootCause(ChangeKind.LATER, *key), (baseline, current), [key[1]])


def _measure_average_launch(rows: Sequence[BreakdownRow]) -> Fraction | None:
    """Return the mean launch time of kernels, in ns from the window's start; None if none has a launch."""
    launched_count = sum(row.launched_count for row in rows)
    return Fraction(sum(row.launch_sum_ns for row in rows), launched_count) if launched_count else None


_RowPair = tuple[BreakdownRow | None, BreakdownRow | None]
"""A row in the (baseline, current) run; None if a run does not have it."""


def _measure_growth(row_pair: _RowPair, field: str) -> int:
    """Return by how much a column of a row grew."""
    baseline, current = (getattr(row, field) if row else 0 for row in row_pair)
    return int(current - baseline)


_PlacedKernels = tuple[str, int, int]
"""The kernels of a name that came to, or are gone from, one place: (name, their number, the sum of their positions in
its order).
"""


def _match_in_place(
    gone_kernels: Iterable[_PlacedKernels], new_kernels: Iterable[_PlacedKernels]
) -> Iterator[tuple[str, str]]:
    """Match kernels that are gone from a place with kernels that came there.

    Both kernels of a pair have the same count, and their positions are as near as possible.
    """
    sorted_gone, sorted_new = sorted(gone_kernels), sorted(new_kernels)
    changed_count = sum(number for _, number, _ in (*sorted_gone, *sorted_new))
    pairs = sorted((abs(a[2] - b[2]), a[0], b[0], a[1]) for a in sorted_gone for b in sorted_new if a[1] == b[1])
    matched_names: set[str] = set()
    for distance, a, b, number in pairs:
        # At most the other kernels that came or went may lie between the two.
        if distance <= number * (changed_count - 2 * number) and not matched_names & {a, b}:
            matched_names |= {a, b}
            yield a, b
