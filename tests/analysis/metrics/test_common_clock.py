"""Are clocks of several files one to within what is told, and is what cannot be told left out?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_nsys.analysis.metrics import collectives
from pytest_nsys.analysis.metrics.collective_waits import MatchedWaits, describe_clock_agreement, match_waits
from pytest_nsys.analysis.metrics.collectives import Transfer
from pytest_nsys.analysis.metrics.common_clock import FEWEST_MATCHED_ENDS, CommonClock, align_clocks
from pytest_nsys.analysis.windows.run import Run, RunWindow, WindowGroup
from pytest_nsys.analysis.windows.window_selection import RUN, WindowSpec
from pytest_nsys.core.model import Clock, Collective, ProcessId, Rank, TraceFacts

Span = tuple[int, int]
NOON = 1_767_355_200_000_000_000


def collective(span: Span, group: Sequence[int], kind: str = "AllReduce") -> Transfer:
    record = Collective(kind, group=f"g{len(group)}", members=str(group), group_size=len(group))
    return Transfer(0, *span, span[1] - span[0], kind, record, 8)


@dataclass
class Files:
    """The windows of a run: of each rank the file that it is in, and its collectives on the clock of that."""

    clocks: Sequence[int]
    transfers: Mapping[int, Sequence[Transfer]]
    zeros: Mapping[int, int] = field(default_factory=dict)

    def _rank(self, number: int) -> Rank:
        return Rank(number, ProcessId(self.clocks[number], number << 24), 0, None, Path(f"{self.clocks[number]}.json"))

    def _facts(self, trace: int) -> TraceFacts:
        zeros: dict[int | None, int] = {None: self.zeros[trace]} if trace in self.zeros else {}
        return TraceFacts(None, {}, (), 0, (), clock_zeros_ns=zeros)

    def window(self) -> RunWindow:
        facts = [self._facts(trace) for trace in range(max(self.clocks) + 1)]
        windows = {n: Own(self._rank(n), own) for n, own in sorted(self.transfers.items())}
        run = cast(Run, SimpleNamespace(facts=facts, ranks=[own.rank for own in windows.values()]))
        group = Group(run, windows)
        return RunWindow(run, cast(Any, windows), cast(WindowGroup, group))

    def measured(self) -> tuple[CommonClock, MatchedWaits]:
        window = self.window()
        with mock.patch.object(collectives, "list_recorded_transfers", lambda own: iter(own.transfers)):
            return align_clocks(window.group), match_waits(window)

    def said(self) -> list[str]:
        window = self.window()
        with mock.patch.object(collectives, "list_recorded_transfers", lambda own: iter(own.transfers)):
            return list(describe_clock_agreement(window))


@dataclass
class Own:
    rank: Rank
    transfers: Sequence[Transfer]


class Group:
    """All windows of a run, as it is asked for them."""

    spec = WindowSpec(RUN)

    def __init__(self, run: Run, windows: Mapping[int, Own]) -> None:
        self.run, self.windows = run, windows

    def __iter__(self) -> Iterator[Own]:
        return iter(self.windows.values())

    def list_run_windows(self) -> list[RunWindow]:
        return [RunWindow(self.run, cast(Any, self.windows), cast(WindowGroup, self))]


def of_one_group(
    clocks: Sequence[int], spans: Sequence[Sequence[Span]], ahead: Mapping[int, int], **more: Any
) -> Files:
    """Ranks with the spans of their collectives in true time; ``ahead`` is what each clock shows more."""
    everyone = range(len(clocks))
    shown = {
        n: [collective((a + ahead[clocks[n]], b + ahead[clocks[n]]), everyone) for a, b in own]
        for n, own in enumerate(spans)
    }
    return Files(clocks, shown, **more)


def true_waits(spans: Sequence[Sequence[Span]]) -> list[int]:
    """Σ per rank of how long it ran before the last of each collective had started."""
    last = [max(start for start, _ in together) for together in zip(*spans, strict=True)]
    return [sum(min(at - a, b - a) for at, (a, b) in zip(last, own, strict=True)) for own in spans]


@st.composite
def several_files(draw: st.DrawFn) -> tuple[list[int], list[list[Span]], dict[int, int]]:
    """The files of ranks, their collectives in true time, each ending within 9 ns, what clocks show more."""
    clocks = [0, 1, *draw(st.lists(st.integers(0, 2), max_size=3))]
    n = draw(st.integers(FEWEST_MATCHED_ENDS, 12))
    spans: list[list[Span]] = []
    for _ in clocks:
        own = draw(st.lists(st.tuples(st.integers(0, 60), st.integers(-4, 4)), min_size=n, max_size=n))
        spans.append([(200 * k - length, 200 * k + late) for k, (length, late) in enumerate(own)])
    spans = [[(min(a, b), b) for a, b in own] for own in spans]
    return clocks, spans, {clock: draw(st.integers(-(10**15), 10**15)) for clock in range(3)}


def ends_of(clocks: Sequence[int], spans: Sequence[Sequence[Span]]) -> dict[int, list[int]]:
    """By clock when the last of its ranks ended each collective."""
    found: dict[int, list[int]] = {}
    for clock in dict.fromkeys(clocks):
        own = [rank for rank, at in zip(spans, clocks, strict=True) if at == clock]
        found[clock] = [max(end for _, end in together) for together in zip(*own, strict=True)]
    return found


@given(several_files())
def test_clocks_and_waits_are_within_their_error(
    files: tuple[list[int], list[list[Span]], dict[int, int]],
) -> None:
    """Where not every end of one clock is late against the other: that nobody could tell from its clock."""
    clocks, spans, ahead = files
    ends = ends_of(clocks, spans)
    for one, other in combinations(ends.values(), 2):
        late = [b - a for a, b in zip(one, other, strict=True)]
        assume(min(late) <= 0 <= max(late))
    clock, found = of_one_group(clocks, spans, ahead).measured()
    for at in ends:
        placed = clock.placements[Clock(at, 0)]
        assert placed.root_clock == Clock(0, 0)
        assert abs(placed.ahead_ns - (ahead[at] - ahead[0])) <= placed.error_ns
    (agreement,) = found.agreements.values()
    longest = max(waits := true_waits(spans))
    for rank, (key, share) in enumerate(found.shares.items()):
        assert share.error_ns == sum(agreement.errors_ns)
        assert abs(share.wait_ns - waits[rank]) <= share.error_ns
        assert abs(found.lags_ns[key] - (longest - waits[rank])) <= share.error_ns
        assert share.wait_ns + share.transfer_ns == sum(b - a for a, b in spans[rank])


@given(several_files())
def test_a_residual_is_what_ends_leave_by_the_text(
    files: tuple[list[int], list[list[Span]], dict[int, int]],
) -> None:
    """Of two clocks the exact median of the differences is taken off; what is left of 95 in 100 is the residual."""
    clocks, spans, ahead = files
    clocks = [min(clock, 1) for clock in clocks]
    shown = {clock: [end + ahead[clock] for end in own] for clock, own in ends_of(clocks, spans).items()}
    differences = sorted(b - a for a, b in zip(shown[0], shown[1], strict=True))
    n = len(differences)
    median = Fraction(differences[(n - 1) // 2] + differences[n // 2], 2) // 1
    left = [abs(b - a - median) for a, b in zip(shown[0], shown[1], strict=True)]
    residual = next(each for each in sorted(left) if 100 * sum(own <= each for own in left) >= 95 * n)
    clock, found = of_one_group(clocks, spans, ahead).measured()
    (agreement,) = found.agreements.values()
    assert clock.find_alignment(Clock(1, 0)).ahead_ns == median
    assert (agreement.clock_count, agreement.end_count, agreement.residual_ns) == (2, n, residual)
    assert agreement.errors_ns == [max(residual, each) for each in left]


@given(several_files(), st.randoms(use_true_random=False))
def test_the_order_of_files_is_nothing(files: tuple[list[int], list[list[Span]], dict[int, int]], random: Any) -> None:
    clocks, spans, ahead = files
    found = of_one_group(clocks, spans, ahead).measured()[1]
    places = [0, 1, 2]
    random.shuffle(places)
    other = of_one_group([places[clock] for clock in clocks], spans, {places[n]: ns for n, ns in ahead.items()})
    assert other.measured()[1] == found


@given(
    st.lists(st.integers(0, 900), min_size=FEWEST_MATCHED_ENDS, max_size=15),
    st.lists(st.integers(0, 900), min_size=15, max_size=15),
    st.integers(-300, 300),
)
def test_a_drifting_clock_widens_errors_and_no_wait(here: list[int], there: list[int], per_collective_ns: int) -> None:
    """One clock gains that much from one collective to the next."""
    spans = [[(10_000 * k - a, 10_000 * k) for k, a in enumerate(own)] for own in (here, there[: len(here)])]
    n = len(here)
    drifting = [(a + per_collective_ns * k, b + per_collective_ns * k) for k, (a, b) in enumerate(spans[1])]
    found = of_one_group([0, 1], [spans[0], drifting], {0: 0, 1: 7}).measured()[1]
    (agreement,) = found.agreements.values()
    assert 2 * agreement.residual_ns >= abs(per_collective_ns) * (n - 1)
    for share, wait in zip(found.shares.values(), true_waits(spans), strict=True):
        assert abs(share.wait_ns - wait) <= share.error_ns


# -- what is told, and what is left out


IRREGULAR = (0, 1_000, 2_500, 4_000, 7_000, 8_000, 12_000)
APART = 10**12


def spans_of(ends: Sequence[int], *lengths: int) -> list[list[Span]]:
    return [[(end - length, end) for end in ends] for length in lengths]


def test_ranks_of_one_file_stand_on_one_clock_and_nothing_is_left_out() -> None:
    """However their ends differ, and however few they are."""
    found = of_one_group([0, 0], [[(0, 50)], [(20, 900)]], {0: 5}).measured()[1]
    assert {key[0]: (*share,) for key, share in found.shares.items()} == {0: (20, 30, 0), 1: (0, 880, 0)}
    assert found.agreements == {}


def test_less_than_the_residual_is_no_wait_and_said_so() -> None:
    """Rank 1 is 30 ns late to each of seven, and ends of one are 40 ns apart."""
    spans = spans_of(IRREGULAR, 500, 470)
    spans[1][2] = (spans[1][2][0], spans[1][2][1] + 40)
    files = of_one_group([0, 1], spans, {0: 0, 1: APART})
    found = files.measured()[1]
    shares = [share for _, share in sorted(found.shares.items())]
    assert [share.wait_ns for share in shares] == [7 * 30, 0]
    assert [share.error_ns for share in shares] == [7 * 40] * 2
    assert [share.drop_uncertain(share.wait_ns) for share in shares] == [None, None]
    assert files.said() == [
        "group g2: waits are accurate to 40 ns per collective, by 7 matched ends on 2 clocks",
        "group g2 AllReduce: no wait of ranks 0, 1: it is below the error of 280 ns",
    ]


def why_not(files: Files) -> str:
    found = files.measured()[1]
    assert not found.shares
    (why,) = found.unmatched_reasons
    return why


@pytest.mark.parametrize("kind", ["AllReduce", "Broadcast", "SendRecv"])
def test_clocks_that_nothing_ties_have_no_waits(kind: str) -> None:
    """Too few collectives, or such as the root leaves when it likes."""
    n = FEWEST_MATCHED_ENDS - 1 if kind == "AllReduce" else len(IRREGULAR)
    own = [[collective(span, (0, 1), kind) for span in rank[:n]] for rank in spans_of(IRREGULAR, 500, 400)]
    files = Files([0, 1], dict(enumerate(own)), {0: NOON, 1: NOON})
    assert why_not(files).startswith("group g2: its ranks use 2 clocks, and fewer than 5 matched ends")


def test_one_group_may_tie_the_clocks_of_another() -> None:
    """Ranks 0 and 2 exchange; both sum up with rank 1, with ends 10 and 20 ns apart at most."""
    first, second = (
        [[collective(span, group) for span in rank] for rank in spans_of(IRREGULAR, 300, 300)]
        for group in ((0, 1), (1, 2))
    )
    first[1][3] = collective((3_700, 4_010), (0, 1))
    second[1][4] = collective((6_700, 7_020), (1, 2))
    pair = [[collective((20_000 - length, 20_000), (0, 2), "SendRecv")] for length in (500, 400)]
    files = Files([0, 1, 2], {0: first[0] + pair[0], 1: first[1] + second[0], 2: second[1] + pair[1]})
    found = files.measured()[1]
    assert [*found.shares[0, "g2", "SendRecv"]] == [100, 400, 10 + 20]
    assert found.shares[0, "g2", "AllReduce"].error_ns == 7 * 10


def test_a_collective_that_was_matched_wrongly_counts_with_its_own_error() -> None:
    """One of forty ends 5 us from its match: the residual is that of the others."""
    spans = spans_of(range(0, 400_000, 10_000), 300, 200)
    spans[1][7] = (74_800, 75_000)
    found = of_one_group([0, 1], spans, {0: 0, 1: 9}).measured()[1]
    (agreement,) = found.agreements.values()
    assert (agreement.residual_ns, sum(agreement.errors_ns)) == (0, 5_000)


# -- starts of sessions


@pytest.mark.parametrize(
    ("zeros", "doubted"),
    [
        ({0: NOON, 1: NOON + APART - 1_000}, False),  # as the ends say
        ({0: NOON, 1: NOON - 1_000}, True),
        ({0: NOON, 1: NOON - 1_480}, True),
        ({0: NOON, 1: NOON - 400}, False),  # nearer to the match
        ({0: NOON, 1: NOON - 86_400 * 10**9}, False),  # a day off: no other match is any nearer
        ({0: NOON}, False),
        ({}, False),
    ],
)
def test_a_match_is_doubted_where_another_one_fits_as_well(zeros: dict[int, int], doubted: bool) -> None:
    """A file that began a collective later, all of which are alike."""
    spans = spans_of(range(0, 20_000, 1_000), 300, 200)
    apart = APART if zeros.get(1, 0) > NOON else 0
    files = of_one_group([0, 1], spans, {0: 0, 1: -apart + 1_000 if apart else 0}, zeros=zeros)
    if doubted:
        assert "by the starts of their sessions its files are 1 collective apart" in why_not(files)
    else:
        assert files.measured()[1].shares


@pytest.mark.parametrize(("late", "doubted"), [((0, 0, 1, 1, 1, 1), True), ((0, 300, 0, 300, 0, 300), False)])
def test_a_match_is_kept_where_the_ends_fit_it_much_better(late: Sequence[int], doubted: bool) -> None:
    """Ends that are late in the same way on both: another match leaves what two neighbours differ by."""
    here = [1_000 * k + late[k % 6] for k in range(24)]
    there = [end + k % 2 for k, end in enumerate(here)]
    spans = [[(end - 50, end) for end in own] for own in (here, there)]
    files = of_one_group([0, 1], spans, {0: 0, 1: 0}, zeros={0: NOON, 1: NOON + 1_000})
    assert bool(files.measured()[1].unmatched_reasons) is doubted


def test_a_match_is_not_doubted_where_the_ends_fit_it_better() -> None:
    spans = spans_of([*IRREGULAR, *(20_000 + 3 * end for end in IRREGULAR)], 300, 200)
    assert of_one_group([0, 1], spans, {0: 0, 1: 0}, zeros={0: NOON, 1: NOON + 3_000}).measured()[1].shares


def test_without_matched_ends_the_starts_of_sessions_place_a_clock() -> None:
    own = {n: [collective((0, 10), (n,))] for n in range(3)}
    clock, _ = Files([0, 1, 2], own, {0: NOON, 1: NOON - 70}).measured()
    assert [clock.find_alignment(Clock(n, 0)).ahead_ns for n in range(3)] == [0, 70, None]


def test_what_ends_and_starts_of_sessions_disagree_by_is_known() -> None:
    spans = spans_of(IRREGULAR, 300, 200)
    clock, _ = of_one_group([0, 1], spans, {0: 0, 1: 50}, zeros={0: NOON, 1: NOON - 30}).measured()
    assert clock.disagreement_ns == 20
