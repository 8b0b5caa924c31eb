"""Which step is found in kernels that nobody marked? The largest unit that repeats, on every rank, or none.

Programs are texts, a letter a kernel: what a step is, is known.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.steps.convention_fit import OPENING_CONVENTION
from pytest_nsys.analysis.steps.search_result import Confidence, FoundUnits, NoUnits, UnitType
from pytest_nsys.analysis.steps.step_search import search_steps
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.conventions import Convention, KernelAnchor
from pytest_nsys.core.model import KernelsMode
from pytest_nsys.core.workload import Workload
from tests.support.kernel_tapes import EVERY_NS, LAYER, STEP, play
from tests.support.one_process import OneProcess
from tests.support.samples.builder import TraceBuilder


@contextmanager
def opened(trace: PathLike[str], convention: Convention = OPENING_CONVENTION) -> Iterator[Run]:
    with closing(CaptureCache()) as library:
        yield library.open_one_run([str(Path(trace))], Path(), convention, Workload()).runs[0]


def searched(trace: PathLike[str]) -> FoundUnits | NoUnits:
    with opened(trace) as run:
        return search_steps(run)


def found_in(trace: PathLike[str]) -> FoundUnits:
    found = searched(trace)
    assert isinstance(found, FoundUnits)
    return found


TUNED = "".join(f"{letter}xyx" for letter in STEP)
MICRO_BATCH = f"t{LAYER * 6}l"
PREFILL, DECODE = (f"t{layer * 6}s" for layer in ("abcPefgh", "abcDefG"))
FORWARD, BACKWARD = "abcd", "ijklmn"

PROGRAMS: dict[str, tuple[str, int, UnitType]] = {
    "a plain loop": (STEP * 8, 8, UnitType.STEP),
    "three steps": (STEP * 3, 3, UnitType.STEP),
    "two steps": (STEP * 2, 2, UnitType.STEP),
    "warm-up that tries kernels": (TUNED + STEP * 8, 8, UnitType.STEP),
    "the last step cut off": (STEP * 8 + STEP[:30], 8, UnitType.STEP),
    "the first step cut off": (STEP[20:] + STEP * 8, 8, UnitType.STEP),
    "an optimizer after four micro-batches": ((MICRO_BATCH * 4 + "oooooo") * 6, 6, UnitType.STEP),
    "an optimizer after four micro-batches, between cut steps": (
        MICRO_BATCH * 2 + "Opq" + (MICRO_BATCH * 4 + "Opq") * 3 + MICRO_BATCH * 2,
        3,
        UnitType.STEP,
    ),
    "one kernel of an optimizer after two micro-batches": ((MICRO_BATCH * 2 + "O") * 6, 6, UnitType.STEP),
    "one kernel of an optimizer after four micro-batches": ((MICRO_BATCH * 4 + "O") * 6, 6, UnitType.STEP),
    "micro-batches of one step": (MICRO_BATCH * 6 + "OOO", 6, UnitType.MAYBE_PART),
    "micro-batches of two steps": (MICRO_BATCH * 3 + "OOO" + MICRO_BATCH * 4, 7, UnitType.MAYBE_PART),
    "one step, and updates that iterate": (
        f"t{LAYER * 4}l" + "ijklmnpqrs" * 4 + f"u{'vwx' * 5}y" * 24,
        24,
        UnitType.MAYBE_PART,
    ),
    "forward and backward of layers that share a kernel": (
        ("t" + f"{FORWARD}g" * 6 + "l" + f"{BACKWARD}g" * 6 + "o") * 6,
        6,
        UnitType.STEP,
    ),
    "layers between an embedding and a head": ("eu" + LAYER * 24 + "nvs", 23, UnitType.MAYBE_PART),
    "one step": (STEP, 6, UnitType.MAYBE_PART),
    "nothing but layers": (LAYER * 24, 24, UnitType.MAYBE_PART),
    "prefill and decode by turns": (
        "".join(PREFILL if each == "P" else DECODE for each in "PDDDPDDPDDDDDPPDDPDDDPDD"),
        24,
        UnitType.KINDS,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("launch", [True, False], ids=["launches", "no launches"])
def test_the_largest_unit_that_repeats_is_found(gpu: OneProcess, name: str, launch: bool) -> None:
    text, units, what = PROGRAMS[name]
    play(gpu, text, launch=launch)
    found = found_in(gpu)
    assert (found.unit_type, found.is_by_launch) == (what, launch)
    assert units - found.count_by_rank[0] in (0, 1)
    if what is UnitType.STEP:
        assert found.period_ns in range(41 * EVERY_NS, 207 * EVERY_NS, EVERY_NS)


OTHER = f"t{'pqrsuv' * 8}lo"
"""As long as a step, which begins as one does."""


def partly_shuffled(places: int) -> str:
    """Steps in which so many kernels of the 51 come in no order."""
    each = [STEP[1:] for _ in range(16)]
    mixed = ("".join(random.Random(seed).sample(own[:places], places)) for seed, own in enumerate(each))
    return "".join(f"t{head}{own[places:]}" for head, own in zip(mixed, each, strict=True))


SIDES: dict[str, tuple[str, int | None]] = {
    "two of nearly all": ("uvwxyz" + STEP * 2, 2),
    "two of less": ("uvwxyzUVWXYZ" * 2 + STEP * 2, 2),
    "two of less that differ": ("uvwxyzUVWXYZ" * 2 + STEP + STEP.replace("bc", "BC", 1), None),
    "two between the ends of others": (STEP[-20:] + STEP * 2 + STEP[:20], 2),
    "one other among 22": (STEP * 11 + OTHER + STEP * 10, 21),
    "one other among nine": (STEP * 4 + OTHER + STEP * 4, None),
    "a tenth without an order": (partly_shuffled(6), 16),
    "a third without an order": (partly_shuffled(18), None),
    "one prefill to two decodes": ((PREFILL + DECODE * 2) * 8, 24),
}
"""Programs on either side of a threshold: of how many units each is, if any."""


@pytest.mark.parametrize("name", SIDES)
def test_a_threshold_lies_where_it_does(gpu: OneProcess, name: str) -> None:
    text, units = SIDES[name]
    play(gpu, text)
    found = searched(gpu)
    if units is None:
        assert isinstance(found, NoUnits)
    else:
        assert isinstance(found, FoundUnits)
        assert units - found.count_by_rank[0] in (0, 1)


NOTHING: dict[str, tuple[str, str]] = {
    "too few kernels": ("abcab", "5 kernels are too few to repeat"),
    "one kernel over and over": ("a" * 40, "no sequence of kernels repeats"),
    "no order": ("".join(random.Random(1).choices("abcdefghijklmnop", k=3000)), "no sequence of kernels repeats"),
    "each step shuffled": (
        "".join("".join(random.Random(seed).sample(STEP, len(STEP))) for seed in range(20)),
        "no sequence of kernels repeats",
    ),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_found_rather_than_a_wrong_step(gpu: OneProcess, name: str) -> None:
    text, why = NOTHING[name]
    play(gpu, text)
    assert searched(gpu) == NoUnits(why)


def test_a_run_finds_the_same_steps_by_the_anchor_that_is_written_down(gpu: OneProcess) -> None:
    play(gpu, TUNED + STEP * 8)
    found = found_in(gpu)
    with opened(gpu, replace(OPENING_CONVENTION.with_anchor(found.anchor), kernels=KernelsMode.LAUNCHED)) as run:
        anchors = run.find_anchors(run.ranks[0])
    assert [each.start_ns for each in anchors][1:] == [each.start_ns for each in found.units_by_rank[0]]


def test_many_steps_that_three_kernels_begin_are_sure(gpu: OneProcess) -> None:
    play(gpu, STEP * 8)
    found = found_in(gpu)
    assert found.confidence is Confidence.HIGH
    assert found.anchor == KernelAnchor("kernel_t")
    assert (found.kind_count, found.pattern, found.holder) == (1, None, None)


def test_three_steps_are_not_sure(gpu: OneProcess) -> None:
    play(gpu, STEP * 3)
    assert found_in(gpu).confidence is Confidence.MEDIUM


def test_two_names_begin_a_unit_where_none_is_in_it_once(gpu: OneProcess) -> None:
    """Each kernel is there twice and more; only after the last layer comes b after c."""
    play(gpu, ("aabbcc" + "abc" * 8) * 6)
    found = found_in(gpu)
    assert found.anchor.after is not None
    assert found.count_by_rank[0] in (5, 6)


def test_steps_of_two_speeds_are_told(gpu: OneProcess) -> None:
    start = 10_000
    for number in range(16):
        start = play(gpu, STEP, start_ns=start, every_ns=EVERY_NS * (1 + number // 8))
    found = found_in(gpu)
    assert (found.unit_type, found.confidence) == (UnitType.TWO_SPEEDS, Confidence.LOW)


def test_a_kernel_is_called_by_its_full_name_where_its_short_one_is_another_s_too(gpu: OneProcess) -> None:
    for step in range(8):
        start = 100_000 * (step + 1)
        gpu.kernel("gemm", start, start + 500, demangled="gemm<first>")
        play(gpu, LAYER * 6, start_ns=start + 1000)
        gpu.kernel("gemm", start + 80_000, start + 80_500, demangled="gemm<last>")
    assert found_in(gpu).anchor == KernelAnchor("gemm<first>")


# CUDA graphs


def graph(gpu: OneProcess, text: str, start_ns: int) -> int:
    """One launch of many kernels."""
    launch = None
    for node, letter in enumerate(text):
        launch = gpu.kernel(f"kernel_{letter}", start_ns, start_ns + 800, graph_node=node + 1, correlation=launch)
        start_ns += EVERY_NS
    return start_ns


def test_a_step_that_is_one_graph_begins_with_its_first_kernel(gpu: OneProcess) -> None:
    start = 10_000
    for _ in range(8):
        start = graph(gpu, LAYER * 6, start)
    found = found_in(gpu)
    assert (found.anchor, found.count_by_rank[0]) == (KernelAnchor("kernel_a"), 7)


def test_inside_of_a_graph_nothing_begins(gpu: OneProcess) -> None:
    end = graph(gpu, LAYER * 60, play(gpu, "tu"))
    play(gpu, "so", start_ns=end)
    assert isinstance(searched(gpu), NoUnits)


# several ranks


def ranks(path: Path, *each: Callable[[TraceBuilder], object]) -> Path:
    trace = TraceBuilder()
    for own in each:
        own(trace)
    return trace.write(path)


def rank(number: int, text: str, *, launch: bool = True, start_ns: int = 10_000) -> Callable[[TraceBuilder], object]:
    return lambda trace: play(trace.process(pid=100 + number), text, launch=launch, start_ns=start_ns)


def test_ranks_may_start_at_other_steps(tmp_path: Path) -> None:
    found = found_in(ranks(tmp_path / "t.sqlite", rank(0, STEP * 7), rank(1, STEP[30:] + STEP * 8), rank(2, STEP * 6)))
    assert [found.count_by_rank[number] for number in (0, 1, 2)] == [7, 8, 6]
    assert found.unit_type is UnitType.STEP


def test_a_kernel_that_begins_the_step_on_every_rank_is_taken(tmp_path: Path) -> None:
    """Each stage of a pipeline has kernels of its own, and the first rank's best one is not on the other."""
    first, last = STEP.replace("l", ""), STEP.replace("t", "") + "s"
    found = found_in(ranks(tmp_path / "t.sqlite", rank(0, first * 8), rank(1, last * 8)))
    assert found.anchor.kernel == "kernel_o"
    assert {*found.count_by_rank.values()} <= {7, 8}


def test_a_rank_of_which_the_unit_is_none_is_named(tmp_path: Path) -> None:
    trace = ranks(tmp_path / "t.sqlite", rank(0, STEP * 8), rank(1, "ijklmnij" * 20))
    assert searched(trace) == NoUnits(
        "kernels repeat on rank 0 from kernel kernel_t to the next, on rank 1 they do not"
    )


@pytest.mark.parametrize(
    "other", [rank(1, STEP * 8, launch=False), rank(1, f"t{LAYER * 16}lo" * 4)], ids=["no launches", "longer steps"]
)
def test_ranks_whose_units_are_not_the_same_have_none(tmp_path: Path, other: Callable[[TraceBuilder], object]) -> None:
    assert isinstance(searched(ranks(tmp_path / "t.sqlite", rank(0, STEP * 9), other)), NoUnits)


def test_the_period_is_that_of_the_slowest_rank(tmp_path: Path) -> None:
    def slow(trace: TraceBuilder) -> None:
        play(trace.process(pid=101), STEP * 8, every_ns=1200)

    found = found_in(ranks(tmp_path / "t.sqlite", rank(0, STEP * 8), slow))
    assert found.period_ns == 1200 * len(STEP)


# ranges


def marked(gpu: OneProcess, name: str, *, steps: int = 8, thread: Callable[[int], int | None] = lambda _: None) -> None:
    """Steps in ranges, which begin a little before their first launch."""
    for number in range(steps):
        start = 10_000 + 60_000 * number
        gpu.range(name.format(number), start - 5000, start + 52_000, thread=thread(number))
        play(gpu, STEP, start_ns=start)


def test_a_range_that_starts_once_in_each_step_is_named(gpu: OneProcess) -> None:
    marked(gpu, "my loop {}")
    found = found_in(gpu)
    assert (found.unit_type, found.pattern) == (UnitType.STEP, "my loop %")


def test_of_such_ranges_the_one_with_most_time_is_named(gpu: OneProcess) -> None:
    marked(gpu, "my loop {}")
    for number in range(8):
        gpu.range("inner", 10_000 + 60_000 * number, 20_000 + 60_000 * number)
    assert found_in(gpu).pattern == "my loop %"


@pytest.mark.parametrize("left_out", [0, 3])
def test_a_range_that_a_step_has_not_is_not_named(gpu: OneProcess, left_out: int) -> None:
    for number in range(8):
        start = 10_000 + 60_000 * number
        if number != left_out + 1:
            gpu.range("my loop", start - 5000, start + 52_000)
        play(gpu, STEP, start_ns=start)
    assert found_in(gpu).pattern is None


def test_a_range_that_never_ends_is_not_named(gpu: OneProcess) -> None:
    marked(gpu, "my loop {}")
    gpu.range("never closed", 5000, None)
    assert found_in(gpu).pattern == "my loop %"


def test_a_range_on_two_threads_is_not_named(gpu: OneProcess) -> None:
    marked(gpu, "my loop", thread=lambda number: 1 + number % 2)
    assert found_in(gpu).pattern is None


def test_several_in_each_known_step_are_parts_of_it(gpu: OneProcess) -> None:
    text = "eu" + LAYER * 24 + "nvs"
    for number in range(1):
        gpu.range(f"ProfilerStep#{number}", 5000, 400_000)
        play(gpu, text)
    found = found_in(gpu)
    assert (found.unit_type, found.holder, found.confidence) == (UnitType.PART, "ProfilerStep#0", Confidence.MEDIUM)


def test_units_that_are_numbered_modules_are_layers(gpu: OneProcess) -> None:
    start = 10_000
    for layer in range(12):
        gpu.range(f"FSDP::pre_forward (layers.{layer})", start - 5000, start - 4000)
        start = play(gpu, STEP, start_ns=start)
    found = found_in(gpu)
    assert (found.unit_type, found.holder) == (UnitType.PART, None)


def test_modules_that_each_step_goes_through_make_it_no_layer(gpu: OneProcess) -> None:
    start = 10_000
    for _ in range(8):
        for layer in range(4):
            gpu.range(f"forward (layers.{layer})", start + 9000 * layer, start + 9000 * layer + 1000)
        start = play(gpu, STEP, start_ns=start)
    assert found_in(gpu).unit_type is UnitType.STEP
