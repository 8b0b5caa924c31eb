"""How alike are segments, which are of one kind, and does the answer hang on names, clocks or the order of rows?"""

import random
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from statistics import median

import numpy
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_nsys.analysis.steps.anchor_candidates import ClosedRanges, RankRanges
from pytest_nsys.analysis.steps.search_result import UnitType
from pytest_nsys.analysis.steps.segments import RankSequence, UnitMarker, cut_segments, find_markers
from pytest_nsys.analysis.steps.unit_choice import RepeatedUnit, choose_units
from pytest_nsys.analysis.steps.unit_type import UnitsAmongRanges, determine_unit_type
from pytest_nsys.analysis.windows.kernel_anchors import KernelLaunches, order_kernels
from pytest_nsys.core.tables import Ranges
from tests.support.kernel_tapes import LAYER, STEP, kernel_ns, tape

letters = st.text("abcde", min_size=8, max_size=60)


def worked(text: str, shift_ns: int = 0) -> RankSequence:
    return RankSequence(tape([ord(letter) for letter in text], shift_ns=shift_ns))


def numbered(text: str) -> list[int]:
    """The letters by their order."""
    order = {letter: number for number, letter in enumerate(sorted({*text}))}
    return [order[letter] for letter in text]


def naively_alike(a: Counter[int], b: Counter[int], weights: Sequence[int]) -> Fraction:
    """The smaller of both measures, as STEPS tells them."""
    names = a.keys() | b.keys()
    plain = Fraction(sum(abs(a[n] - b[n]) for n in names), sum(a[n] + b[n] for n in names))
    heavy = Fraction(sum(weights[n] * abs(a[n] - b[n]) for n in names), sum(weights[n] * (a[n] + b[n]) for n in names))
    return 1 - max(plain, heavy)


def naive_kinds(each: Sequence[Counter[int]], weights: Sequence[int]) -> list[int] | None:
    """The kind of each segment but for the last one's end; None of more than twelve kinds."""
    leaders: list[Counter[int]] = []
    found: dict[tuple[tuple[int, int], ...], int] = {}
    for own in each:
        key = tuple(sorted(own.items()))
        if key in found:
            continue
        near = [(naively_alike(leader, own, weights), -number) for number, leader in enumerate(leaders)]
        if near and max(near)[0] >= Fraction(9, 10):
            found[key] = -max(near)[1]
        else:
            found[key] = len(leaders)
            leaders.append(own)
    kinds = [found[tuple(sorted(own.items()))] for own in each]
    return kinds if len(leaders) <= 12 else None


@given(letters, st.data())
def test_segments_are_of_the_kinds_that_a_naive_count_says(text: str, data: st.DataObject) -> None:
    work, names = worked(text), numbered(text)
    places = sorted(data.draw(st.sets(st.sampled_from(range(len(text))), min_size=2)))
    edges = [*places, len(text)]
    each = [Counter(names[low:high]) for low, high in pairwise(edges)]
    weights = work.weights_ns.tolist()
    expected = naive_kinds(each, weights)
    found = cut_segments(work, UnitMarker(numpy.array(places), 0, numpy.empty((0, len(places)), numpy.int64)))
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    assert found.kinds[:-1].tolist() == expected[:-1]
    sizes = [high - low for low, high in pairwise(edges)]
    lengths = [1000 * size for size in sizes[:-1]] + [1000 * (sizes[-1] - 1)]
    same = [i for i, kind in enumerate(expected) if kind == expected[-1]]
    middle = median(lengths[i] for i in same)
    whole = len(same) > 1 and sizes[-1] >= 0.95 * median(sizes[i] for i in same)
    whole = whole and 0.98 * middle <= lengths[-1] <= 1.1 * middle
    assert found.kinds[-1] == (expected[-1] if whole else -1)


@given(letters)
def test_likeness_is_that_of_a_naive_count(text: str) -> None:
    work, names, half = worked(text), numbered(text), len(text) // 2
    edges = numpy.array([0, half, len(text)])
    one, other = work.count_names(edges[:-1], edges[1:])
    expected = naively_alike(Counter(names[:half]), Counter(names[half:]), work.weights_ns.tolist())
    assert float(work.measure_similarity(one, other[None])[0]) == pytest.approx(float(expected), abs=1e-12)
    assert float(work.measure_similarity(other, one[None])[0]) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("text", "votes"),
    [
        ("abcddd" * 5, {(0, 6, 12, 18, 24): 3}),
        ("abcddd" * 5 + "ab", {(2, 8, 14, 20, 26): 1, (0, 6, 12, 18, 24, 30): 2}),
    ],
)
def test_names_that_take_turns_are_one_marker(text: str, votes: dict[tuple[int, ...], int]) -> None:
    found = [(tuple(marker.positions.tolist()), marker.votes) for marker in find_markers(worked(text), 0)]
    assert found == [*votes.items()]


def test_two_names_are_a_marker_by_the_second() -> None:
    found = {tuple(marker.positions.tolist()) for marker in find_markers(worked("xaxbxaxbxaxb"), 1)}
    assert (1, 5, 9) in found


# what the answer hangs on


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, int]:
    """(kernels, kernels in a step): layers that repeat, and take most of its time, between what comes once."""
    layers = draw(st.text(LAYER, min_size=3, max_size=8)) * draw(st.integers(4, 10))
    once = "tuv"[: draw(st.integers(1, 3))], "xyz"[: draw(st.integers(1, 3))]
    assume(sum(map(kernel_ns, map(ord, layers))) > sum(map(kernel_ns, map(ord, "".join(once)))))
    step = layers.join(once)
    return step * draw(st.integers(4, 9)), len(step)


def size_of(unit: RepeatedUnit) -> int:
    return int(numpy.median(numpy.diff(unit.segments.edges)[unit.segment_numbers]))


def told(work: RankSequence) -> tuple[UnitType, int] | None:
    """What is found without any range, and its kernels."""
    found = choose_units(work)
    if not found:
        return None
    alone = UnitsAmongRanges(found[0].spans_ns, RankRanges(ClosedRanges({}), Ranges.from_ranges(()), work.order.track))
    return determine_unit_type(found[0], alone)[0], size_of(found[0])


@given(programs())
def test_a_program_of_steps_has_its_steps(program: tuple[str, int]) -> None:
    text, size = program
    assert told(worked(text)) == (UnitType.STEP, size)


@given(programs(), st.integers(0, 400), st.integers(0, 400))
def test_a_cut_has_the_same_step_or_none(program: tuple[str, int], first: int, last: int) -> None:
    text, size = program
    cut = text[first : len(text) - last]
    if len(cut) < max(
        8, 3 * size
    ):  # of fewer than three steps what repeats inside them is the step, as far as one sees
        return
    found = told(worked(cut))
    assert found is None or found[0] is not UnitType.STEP or found[1] == size


@given(st.one_of(letters, programs().map(lambda program: program[0])), st.sampled_from([-(10**15), 10**6, 10**18]))
def test_a_clock_changes_nothing(text: str, shift_ns: int) -> None:
    assert places_of(worked(text)) == places_of(worked(text, shift_ns=shift_ns))


@given(st.one_of(letters, programs().map(lambda program: program[0])), st.randoms(use_true_random=False))
def test_names_change_nothing_but_names(text: str, shuffler: random.Random) -> None:
    spelled = [f"other_{number:03}" for number in range(256)]
    shuffler.shuffle(spelled)
    renamed = tape([ord(letter) for letter in text], spelled=spelled)
    assert places_of(worked(text)) == places_of(RankSequence(renamed))


def places_of(work: RankSequence) -> list[tuple[list[int], list[int]]]:
    return [(unit.segments.edges.tolist(), unit.segment_numbers.tolist()) for unit in choose_units(work)]


@pytest.mark.parametrize("launched", [True, False])
@given(text=programs().map(lambda program: program[0]), shuffler=st.randoms(use_true_random=False))
def test_kernels_that_start_together_stand_in_any_order(launched: bool, text: str, shuffler: random.Random) -> None:
    track = tape([ord(letter) for letter in text], launched=launched).track
    kernels = replace(track.kernels, start_ns=array("q", [start // 3000 * 3000 for start in track.kernels.start_ns]))
    rows = list(range(len(text)))
    shuffler.shuffle(rows)
    rows.sort(key=kernels.start_ns.__getitem__)
    other = KernelLaunches(kernels.take(rows), array("q", [track.launch_ns[row] for row in rows]))
    one = order_kernels(KernelLaunches(kernels, track.launch_ns))
    assert places_of(RankSequence(one)) == places_of(RankSequence(order_kernels(other)))


def test_many_shuffled_kernels_have_no_step() -> None:
    names = random.Random(7).choices(range(40), k=200_000)
    assert choose_units(RankSequence(tape(names))) == []


def test_a_step_that_is_shuffled_each_time_has_no_order() -> None:
    text = "".join("".join(random.Random(seed).sample(STEP, len(STEP))) for seed in range(20))
    assert choose_units(worked(text)) == []
