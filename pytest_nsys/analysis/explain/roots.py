"""What changed by itself between two windows of a rank: which rows are longer, more or fewer, or elsewhere?

What only waited for another rank, moved, was blocked or hid less because of something else is no root cause: of
communication what is left of its length without its waits counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explain.causes import classify_change
from pytest_nsys.analysis.explain.parts import (
    AT_END,
    NEXT_STEP,
    Breakdown,
    Change,
    ChangeKind,
    Part,
    Root,
    What,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.kept import grouped, kept

ALIKE_LEAST = Fraction(1, 50)
"""The share by which all compute has to change to have changed alike."""

FEWEST_ALIKE = 3  # of fewer each is named
"""How many kernels at least count as all compute."""

NEARLY_ALL = Fraction(9, 10)
"""The share that counts as nearly all: of the time of compute, and of that beside the largest kernel; of a change, for
it to be of one stage.
"""

FEWEST_LATE = 3
"""Of how many kernels that are launched later, none of them by most of it, all launches count as later."""

PAGEABLE = "pageable"

_COPIES = (What.COPY, What.MEMSET)

Side = Callable[[int], Breakdown | None]
"""Returns the breakdown of a rank's window, None where there is none."""


class Found(NamedTuple):
    """Describes a possible root cause on one rank, and the kernels through which it acts."""

    change: Change
    through: frozenset[str]  # the kernels whose time it is, or before which the GPU waits

    @property
    def otherwise(self) -> bool:
        """Whether it is in the way without running longer: elsewhere, or, as what is communicated, in other pieces."""
        root, _, baseline_ns, current_ns, baseline_count, current_count, *_ = self.change
        # At least a third fewer pieces or half as many more, in about the same time: a fifth is the limit.
        has_other_pieces = root.of is What.COLLECTIVE and 0 < 3 * min(baseline_count, current_count) <= 2 * max(
            baseline_count, current_count
        )
        return root.kind is ChangeKind.ELSEWHERE or (
            has_other_pieces and 5 * abs(current_ns - baseline_ns) <= baseline_ns
        )

    @property
    def most_ns(self) -> int:
        """The time it may account for at most; of what runs otherwise all of its time."""
        return max(self.change.before_ns, self.change.now_ns) if self.otherwise else abs(self.change.change_ns)


class Roots:
    """Finds the root causes of what changed between two sides of a window, once for each rank.

    ``ranks`` are all that both sides know.
    """

    def __init__(self, was: Side, now: Side, ranks: Collection[int] = ()) -> None:
        self._was, self._now, self._ranks = was, now, sorted(ranks)

    @kept
    def both(self, rank: int) -> tuple[Breakdown, Breakdown] | None:
        """Return the breakdowns of a rank in the baseline and now; None where one side does not know it."""
        baseline, current = self._was(rank), self._now(rank)
        return None if baseline is None or current is None else (baseline, current)

    @kept
    def of(self, rank: int) -> tuple[Found, ...]:
        """List all that changed by itself on a rank, largest first."""
        sides = self.both(rank)
        candidates = () if sides is None else _RankDifference(rank, *sides).find()
        return tuple(sorted(candidates, key=lambda candidate: candidate.change.largest_first))

    @kept
    def alike(self, root: Root) -> tuple[Change, ...]:
        """List the changes by a root cause on every rank where it is half as large as the largest, or larger."""
        changes = [
            candidate.change for rank in self._ranks for candidate in self.of(rank) if candidate.change.root == root
        ]
        largest_ns = max((abs(change.change_ns) for change in changes), default=0)
        return tuple(change for change in changes if 2 * abs(change.change_ns) >= largest_ns)


class _Length(NamedTuple):
    """Holds how many kernels, copies or calls there are, and how long they are in all, by themselves."""

    number: int = 0
    ns: int = 0


def _add(lengths: Iterable[_Length], *, less: Iterable[_Length] = ()) -> _Length:
    added_lengths, subtracted_lengths = [*lengths], [*less]
    return _Length(
        *(sum(length[n] for length in added_lengths) - sum(length[n] for length in subtracted_lengths) for n in (0, 1))
    )


_Key = tuple[What, str, str]
"""What a root cause is of: its activity, its name, and of communication its stage."""


def _make_key(part: Part) -> _Key:
    return part.what, part.name, part.stage if part.what is What.COLLECTIVE and part.stage != NO_STAGE else ""


class _RankDifference:
    """Compares the rows of one rank in two runs."""

    def __init__(self, rank: int, was: Breakdown, now: Breakdown) -> None:
        self._rank, self._sides = rank, (was, now)
        known_activities = {What.KERNEL, What.COLLECTIVE, *_COPIES, What.CALL} - {*was.unknown, *now.unknown}
        self._rows = [[row for row in side.parts if row.what in known_activities] for side in self._sides]
        self._unmatched = {row.name for side in self._rows for row in side if row.waits_ns is None}
        self._by_key = [grouped((_make_key(row), row) for row in side) for side in self._rows]
        keys = sorted({*self._by_key[0], *self._by_key[1]})
        self._lengths = {key: [_add(map(self._measure, side.get(key, ()))) for side in self._by_key] for key in keys}
        self._late = self._find_late()

    def find(self) -> Iterator[Found]:
        """Yield all that changed by itself."""
        moved_compute, moved_communication = self._find_moved(What.KERNEL), self._find_moved(What.COLLECTIVE)
        for name in moved_compute:
            yield self._describe_moved(What.KERNEL, name, [name, *moved_communication])
        if not moved_compute:  # else what communicates is what it was, though it is in the way of compute
            yield from (self._describe_moved(What.COLLECTIVE, name, [name]) for name in moved_communication)
        common_kernels = self._find_alike()
        if common_kernels:
            yield self._describe_alike(common_kernels)
        explained_keys = {(What.KERNEL, name) for name in common_kernels} | {
            (What.COLLECTIVE, name) for name in moved_communication if not moved_compute
        }
        changes = [*self._find_changed(explained_keys)]
        calls = [candidate for candidate in changes if candidate.change.root.of is What.CALL]
        host_holders = [
            candidate
            for candidate in changes
            if PAGEABLE in candidate.change.root.name and candidate.change.change_ns > 0
        ] or calls
        # Calls are no root causes where the host stands in a copy of pageable memory.
        yield from (candidate for candidate in changes if candidate not in calls or host_holders is calls)
        yield from self._find_late_launches(sum(candidate.change.change_ns for candidate in host_holders))
        yield from self._find_behind_compute()

    def _measure(self, part: Part | None) -> _Length:
        """Measure the count and the length of a row, without waits where both sides know those of all."""
        if part is None:
            return _Length()
        waits_ns = 0 if part.name in self._unmatched else sum((part.waits_ns or {}).values())
        return _Length(part.number, part.length_ns - waits_ns)

    def _make_root(self, root: Root, lengths: Iterable[_Length], through: Iterable[str]) -> Found:
        baseline, current = lengths
        return Found(
            Change(root, self._rank, baseline.ns, current.ns, baseline.number, current.number), frozenset(through)
        )

    # Elsewhere

    def _find_moved(self, what: What) -> list[str]:
        """Find the names of what runs as often as before, and for the most part on other streams."""
        rows = [grouped((row.name, row) for row in side if row.what is what) for side in self._rows]
        stream_matches = self._match_streams(what)
        moved_names = []
        for name in sorted(rows[0].keys() & rows[1].keys()):
            baseline_rows, current_rows = (side[name] for side in rows)
            count = sum(row.number for row in current_rows)
            streams = {row.stream for row in baseline_rows}
            moved_count = sum(row.number for row in current_rows if stream_matches.get(row.stream) not in streams)
            if sum(row.number for row in baseline_rows) == count < 2 * moved_count:
                moved_names.append(name)
        return moved_names

    def _match_streams(self, what: What) -> dict[int, int]:
        """Return for each stream the one of the baseline that did most of the same; a new one has none."""
        if what is What.COLLECTIVE:  # it is in the way of compute, on whichever stream, or is not
            return {row.stream: row.stream for side in self._rows for row in side}
        rows_by_name = grouped((row.name, row) for row in self._rows[0] if row.what is what)
        shared_ns = Counter[tuple[int, int]]()
        for current_row in self._rows[1]:
            for baseline_row in rows_by_name.get(current_row.name, ()) if current_row.what is what else ():
                shared_ns[baseline_row.stream, current_row.stream] += min(baseline_row.length_ns, current_row.length_ns)
        matches: dict[int, int] = {}
        for (baseline_stream, current_stream), _ in sorted(shared_ns.items(), key=lambda item: (-item[1], item[0])):
            if current_stream not in matches and baseline_stream not in matches.values():
                matches[current_stream] = baseline_stream
        return matches

    def _describe_moved(self, what: What, name: str, through: Iterable[str]) -> Found:
        baseline_rows, current_rows = (
            [row for row in side if (row.what, row.name) == (what, name)] for side in self._rows
        )
        stages = {row.stage for row in current_rows}
        stage = stages.pop() if len(stages) == 1 and NO_STAGE not in stages else ""
        lengths = [_add(map(self._measure, side)) for side in (baseline_rows, current_rows)]
        return self._make_root(Root(ChangeKind.ELSEWHERE, what, name, stage), lengths, through)

    # All compute alike

    def _find_alike(self) -> frozenset[str]:
        """Find the compute kernels that changed by about one share, where nearly all did, also of what is beside the
        largest.
        """
        rows = {name: side_pair for (activity, name, _), side_pair in self._lengths.items() if activity is What.KERNEL}
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
        # What is beside the largest kernel has to be a tenth at least: less says nothing of all compute.
        is_common = (
            len(common_kernels) >= FEWEST_ALIKE and abs(common_share) > ALIKE_LEAST and 10 * rest_ns >= baseline_ns
        )
        common_ns = sum(lengths_by_name[name][0] for name in common_kernels - {largest})
        return frozenset(
            common_kernels if is_common and largest in common_kernels and common_ns >= NEARLY_ALL * rest_ns else ()
        )

    def _describe_alike(self, alike: Collection[str]) -> Found:
        baseline, current = (_add(self._lengths[What.KERNEL, name, ""][n] for name in alike) for n in (0, 1))
        root = Root(classify_change((0, 0), current.ns - baseline.ns), What.ALL, "")
        candidate = self._make_root(root, (baseline, current), alike)
        baseline_mhz, current_mhz = (side.clock_mhz for side in self._sides)
        clocks = (
            None
            if baseline_mhz is None or current_mhz is None or baseline_mhz == current_mhz
            else (baseline_mhz, current_mhz)
        )
        return candidate._replace(change=candidate.change._replace(clock_mhz=clocks))

    # Replaced, longer or shorter, more or fewer

    def _find_changed(self, told: Collection[tuple[What, str]]) -> Iterator[Found]:
        """Yield what gave way to another in its place, by pair; then what else changed of each name that is not
        explained yet.
        """
        rows = {key: [*side_pair] for key, side_pair in self._lengths.items()}
        pairs = dict[tuple[_Key, _Key], tuple[_Length, _Length]]()
        for gone_rows, new_rows in self._pair_replaced():
            lost_length, new_length = self._subtract(*gone_rows), self._subtract(*reversed(new_rows))
            keys = next(_make_key(row) for row in gone_rows if row), next(_make_key(row) for row in new_rows if row)
            lost_before, new_before = pairs.get(keys, (_Length(), _Length()))
            pairs[keys] = _add([lost_before, lost_length]), _add([new_before, new_length])
            rows[keys[0]][0] = _add([rows[keys[0]][0]], less=[lost_length])
            rows[keys[1]][1] = _add([rows[keys[1]][1]], less=[new_length])
        for (old_key, new_key), lengths in sorted(pairs.items()):
            root = Root(ChangeKind.REPLACED, new_key[0], new_key[1], self._find_stage(new_key), old_key[1])
            yield self._make_root(root, lengths, self._list_acted_on(old_key) | self._list_acted_on(new_key))
        for key, (baseline, current) in rows.items():
            if key[:2] not in told and baseline != current:
                kind = classify_change((baseline.number, current.number), current.ns - baseline.ns)
                yield self._make_root(
                    Root(kind, key[0], key[1], self._find_stage(key)), (baseline, current), self._list_acted_on(key)
                )

    def _pair_replaced(self) -> Iterator[tuple[_Both, _Both]]:
        """List what is gone from a place, each with what came there."""
        sides = [
            {(row.what, row.stage, row.stream, row.name): row for row in side if row.what is not What.CALL}
            for side in self._rows
        ]
        places = grouped(
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

    def _subtract(self, more: Part | None, less: Part | None) -> _Length:
        """Return how many kernels there are more, and how long those are, where the others are no longer than they
        were.
        """
        number, ns = _add([self._measure(more)], less=[self._measure(less)])
        return _Length(number, max(0, ns))

    def _find_stage(self, key: _Key) -> str:
        """Return the stage of a change: its own, or the one in which nearly all of it is; empty where there is none."""
        stages = Counter[str]()
        for sign, side in zip((-1, 1), self._by_key, strict=True):
            for row in side.get(key, ()):
                stages[row.stage or NO_STAGE] += sign * row.length_ns
        total = sum(map(abs, stages.values()))
        stage = max(sorted(stages), key=lambda stage: abs(stages[stage]), default=NO_STAGE)
        return key[2] or (stage if stage != NO_STAGE and abs(stages[stage]) >= NEARLY_ALL * total else "")

    def _list_acted_on(self, key: _Key) -> set[str]:
        """Return the kernels through which a change acts.

        They are its own; of copies those that they block; of a call, and of a copy that the host stands in, those that
        are launched later.
        """
        activity, name, _ = key
        kernels = {name}
        if activity in _COPIES:
            kernels |= {
                str(activity),
                *(
                    blocked_kernel
                    for side in self._by_key
                    for row in side.get(key, ())
                    for blocked_kernel in row.beside_ns
                ),
            }
        return kernels | {*(self._late if activity is What.CALL or PAGEABLE in name else ())}

    # Launched later

    def _find_late(self) -> dict[str, tuple[int, int]]:
        """Return how long the GPU waits for each kernel that is launched later, in the baseline and now, in ns.

        The window's end, and the next step, count as kernels.
        """
        baseline, current = self._sides
        by_name = [{key[1]: rows for key, rows in side.items() if key[0] is What.KERNEL} for side in self._by_key]
        means = [{name: _average_launch(rows) for name, rows in side.items()} for side in by_name]
        waits_by_kernel = {
            name: (baseline.time_ns.get((What.HOST, name), 0), ns)
            for (activity, name), ns in current.time_ns.items()
            if activity is What.HOST and (means[1].get(name) or 0) > (means[0].get(name) or means[1].get(name) or 0)
        }
        # Where the kernels before it are shorter the GPU waits, too: for a launch that came when it always did.
        longer_ns = max(0, current.length_ns - baseline.length_ns)
        for end_key in ((What.IDLE, AT_END), (What.HOST, NEXT_STEP)):
            baseline_ns, current_ns = (side.time_ns.get(end_key, 0) for side in self._sides)
            waits_by_kernel[end_key[1]] = baseline_ns, min(current_ns, baseline_ns + longer_ns)
        return {name: wait_pair for name, wait_pair in sorted(waits_by_kernel.items()) if wait_pair[1] > wait_pair[0]}

    def _find_late_launches(self, told_ns: int) -> Iterator[Found]:
        """Yield kernels that are launched later, less what is known to be of calls and copies, the longest first.

        Less time between two steps is one too, where the step is shorter.
        """
        late_kernels: dict[str, tuple[int, int]] = {}
        for name, (baseline_ns, current_ns) in sorted(
            self._late.items(), key=lambda item: (item[1][0] - item[1][1], item[0])
        ):
            credited_ns = min(told_ns, current_ns - baseline_ns)
            told_ns -= credited_ns
            # Where calls and copies account for three quarters of a delay or more, it is theirs.
            if 4 * credited_ns < 3 * (current_ns - baseline_ns):
                late_kernels[name] = baseline_ns, current_ns - credited_ns
        longer = [current_ns - baseline_ns for baseline_ns, current_ns in late_kernels.values()]
        # Many kernels are late, none of them by most of it: the host is late as a whole.
        if len(late_kernels) >= FEWEST_LATE and 2 * max(longer) < sum(longer):
            late_kernels = {
                "": (
                    sum(baseline_ns for baseline_ns, _ in late_kernels.values()),
                    sum(current_ns for _, current_ns in late_kernels.values()),
                )
            }
        for name, wait_pair in sorted(late_kernels.items()):
            lengths = (_Length(ns=ns) for ns in wait_pair)
            yield self._make_root(Root(ChangeKind.LATER, What.HOST, name), lengths, [name] if name else self._late)
        baseline_ns, current_ns = (side.time_ns.get((What.HOST, NEXT_STEP), 0) for side in self._sides)
        if current_ns < baseline_ns and self._sides[1].length_ns < self._sides[0].length_ns:
            root = Root(ChangeKind.SHORTER, What.HOST, NEXT_STEP)
            yield self._make_root(root, (_Length(ns=baseline_ns), _Length(ns=current_ns)), [NEXT_STEP])

    def _find_behind_compute(self) -> Iterator[Found]:
        """Yield communication that is launched later, after more compute than was added, so more of it is exposed."""
        launched_counts = [sum(row.launched for row in side if row.what is What.KERNEL) for side in self._rows]
        added_launches = max(0, launched_counts[1] - launched_counts[0])
        for key in sorted(self._by_key[0].keys() & self._by_key[1].keys()):
            baseline_rows, current_rows = ([row for row in side[key] if row.is_hidden] for side in self._by_key)
            is_known = all(row.launched == row.number for row in (*baseline_rows, *current_rows))
            later_launches = sum(row.after for row in current_rows) - sum(row.after for row in baseline_rows)
            baseline, current = (
                _Length(sum(row.number for row in side), sum(row.exposed_ns for row in side))
                for side in (baseline_rows, current_rows)
            )
            if (
                is_known
                and baseline.number == current.number
                and later_launches > added_launches * current.number
                and current.ns > baseline.ns
            ):
                yield self._make_root(Root(ChangeKind.LATER, *key), (baseline, current), [key[1]])


def _average_launch(parts: Sequence[Part]) -> Fraction | None:
    """Return when kernels are launched on average, in ns from the window's start; None where none has a launch."""
    launched_count = sum(row.launched for row in parts)
    return Fraction(sum(row.launch_ns for row in parts), launched_count) if launched_count else None


_Both = tuple[Part | None, Part | None]
"""A row in the baseline and now."""


def _measure_growth(both: _Both, field: str) -> int:
    """Return by how much a column of a row grew."""
    baseline, current = (getattr(row, field) if row else 0 for row in both)
    return int(current - baseline)


_Placed = tuple[str, int, int]
"""A name, how many kernels of it there are fewer, or more, in one place, and the sum of their numbers in its order."""


def _match_in_place(gone: Iterable[_Placed], came: Iterable[_Placed]) -> Iterator[tuple[str, str]]:
    """Match kernels that are gone from a place with kernels that came there.

    A pair is of one number, and as near in the order as can be.
    """
    sorted_gone, sorted_new = sorted(gone), sorted(came)
    changed_count = sum(number for _, number, _ in (*sorted_gone, *sorted_new))
    pairs = sorted((abs(a[2] - b[2]), a[0], b[0], a[1]) for a in sorted_gone for b in sorted_new if a[1] == b[1])
    matched_names: set[str] = set()
    for distance, a, b, number in pairs:
        # Others that came or went may lie between the two, so many and no more.
        if distance <= number * (changed_count - 2 * number) and not matched_names & {a, b}:
            matched_names |= {a, b}
            yield a, b
