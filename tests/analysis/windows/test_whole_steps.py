"""Do steps follow one another without a hole, is the time between them told, and does every step count?"""

import gzip
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_nsys.analysis.budget.budget import find_host_activity, measure_budget
from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.facts.steps import find_slow_steps, has_no_common_step
from pytest_nsys.analysis.metrics.families import count_anchors
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.run_conditions import collect_run_conditions
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.cli.init import DraftTraces
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.model import KernelsMode
from tests.analysis.steps.test_step_search import opened
from tests.support.commands import run as command
from tests.support.reference_data import DATA, STEPS
from tests.support.samples.builder import TraceBuilder

KINETO = BUILT_IN_CONVENTIONS["kineto"]
SAXPY = Convention(name="saxpy", anchor="saxpy", kernels=KernelsMode.LAUNCHED)
EXPECTED = STEPS / "step_windows_expected.json"
US, MS = 1_000, 1_000_000


def window_of(run: Run, index: int | str, rank: int = 0) -> RankWindow:
    group = run.load_windows(WindowSpec(str(index), kernels=run.convention.kernels))
    return group.windows_by_rank[rank][0]


def all_steps(run: Run, rank: int = 0) -> list[RankWindow]:
    count = len(window_of(run, "first", rank).anchors)
    return [window_of(run, index, rank) for index in range(count)]


def rows(window: RankWindow, metric: str) -> dict[tuple[Any, ...], Any]:
    return {row.labels[1:]: row.value for row in METRICS[metric].measure_rows(window)}


# Real traces, against figures that a naive count gave


def _expected() -> Mapping[str, Sequence[Any]]:
    if not EXPECTED.is_file():
        return {}
    return {name: lanes for name, lanes in json.loads(EXPECTED.read_text()).items() if name != "what"}


@pytest.mark.reference
@pytest.mark.parametrize("name", _expected() or [pytest.param("", marks=pytest.mark.skip("no reference traces"))])
@pytest.mark.sampled(3)
def test_windows_and_budgets_of_real_steps_are_those_of_a_naive_count(tmp_path: Path, name: str) -> None:
    with opened(unpacked(DATA / name, tmp_path), SAXPY if "saxpy" in name else KINETO) as run:
        for lane, rank in zip(_expected()[name], run.ranks, strict=True):
            found = all_steps(run, rank.number)
            assert [_figures(window) for window in found] == lane["steps"]
            # of two steps index 0 is judged, the only whole one, where the file says n // 2
            judged = min(lane["judged"], max(0, len(found) - 2))
            assert window_of(run, "median", rank.number).window.index == judged


def unpacked(path: Path, folder: Path) -> Path:
    """An export that is packed, as nsys writes it."""
    if not path.name.endswith(".sqlite.gz"):
        return path
    plain = folder / path.stem
    with gzip.open(path) as packed, plain.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return plain


def _figures(window: RankWindow) -> dict[str, Any]:
    budget = measure_budget(window)
    return {
        "name": window.window.name,
        "window": [window.start_ns, window.end_ns],
        "window_ns": window.length_ns,
        "device_idle_ns": budget.lines.device_idle_ns,
        "compute_busy_ns": budget.lines.compute_busy_ns,
        "compute_absent_ns": budget.lines.compute_absent_ns,
        "launch_starved_ns": budget.lines.launch_starved_ns,
        "blocking_ns": {kind: ns for kind, ns in budget.lines.blocking_ns.items() if ns},
        "dependency_stalled_ns": budget.lines.dependency_stalled_ns,
    }


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "between_us"),
    [
        ("resnet50_dataloader_0_workers", [59_700, 63_300, 58_500, 64_700, 50_700]),
        ("resnet50_dataloader_4_workers", [None, None, None, 10_200, None]),
    ],
)
def test_the_time_between_real_steps(name: str, between_us: Sequence[int | None]) -> None:
    path = STEPS / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip("no reference traces")
    with opened(path, KINETO) as run:
        each = all_steps(run)
        found = [round(rows(window, "between_steps_ns")[()] / 100_000) * 100 for window in each[:-1]]
        assert [us for us, expected in zip(found, between_us, strict=True) if expected is not None] == [
            us for us in between_us if us is not None
        ]
        assert not rows(each[-1], "between_steps_ns")  # the last step has no next one
        assert "0_workers" not in name or "DataLoader" in find_host_activity(each[3])


REAL_TRACES = [
    path
    for path in sorted(DATA.rglob("*"))
    if path.name.endswith((".sqlite", ".sqlite.gz", ".json.gz")) and "cpu" not in path.name
]


@pytest.mark.reference
@pytest.mark.parametrize("path", REAL_TRACES, ids=lambda path: path.name)
@pytest.mark.sampled(8)
def test_the_parts_of_all_steps_sum_to_the_run(tmp_path: Path, path: Path) -> None:
    """As ``init`` finds the steps of each trace; parts of steps may leave time between them."""
    with closing(CaptureCache()) as library:
        traces = DraftTraces(library, (str(unpacked(path, tmp_path)),))
        choice = traces.choose(None)
        run = traces.load_captures(choice.convention).runs[0]
        for rank in run.ranks if choice.spec.picks_steps else ():
            count = len(run.load_windows(replace(choice.spec, window="first")).windows_by_rank[rank.number][0].anchors)
            specs = [replace(choice.spec, window=str(index), kind=None) for index in range(count)]
            each = [run.load_windows(spec).windows_by_rank[rank.number][0] for spec in specs]
            for window in each:
                budget = measure_budget(window)
                waited = (
                    budget.lines.launch_starved_ns
                    + budget.lines.dependency_stalled_ns
                    + sum(budget.lines.blocking_ns.values())
                )
                assert budget.lines.compute_busy_ns + waited == window.length_ns
            if not choice.convention.part:
                assert [window.end_ns for window in each[:-1]] == [window.start_ns for window in each[1:]]


# Steps that a test makes up, against an oracle that shares no code


class Work(NamedTuple):
    """A kernel or copy of a step: launched so long after the step's begin, on a stream, for how long."""

    after_ns: int
    stream: int
    length_ns: int
    copy: bool = False


class Step(NamedTuple):
    """What the host launches in a step that lasts so long on the host."""

    host_ns: int
    work: Sequence[Work]


MAIN = 7
LEAD_NS = 2 * US
works = st.builds(
    Work, st.integers(0, 60).map(US.__mul__), st.sampled_from([MAIN, MAIN, 9, 13]), st.integers(1, 40).map(US.__mul__)
)
steps = st.lists(
    st.builds(Step, st.integers(65, 200).map(US.__mul__), st.lists(works, min_size=1, max_size=8)),
    min_size=2,
    max_size=7,
)


class Ran(NamedTuple):
    step: int
    stream: int
    launch_ns: int
    start_ns: int
    end_ns: int
    copy: bool


def written(path: Path, steps: Sequence[Step]) -> tuple[Path, list[Ran]]:
    """The trace, and what ran: each stream in order of launch, and the main one with a kernel that computes most."""
    trace, ran, at = TraceBuilder(), list[Ran](), 10 * US
    process = trace.process()
    free: dict[int, int] = {}
    for number, step in enumerate(steps):
        launched = sorted({each.after_ns: each for each in step.work}.values())
        # the main stream has one long kernel a step, so that it is the main one whatever else runs
        for own in [*launched, Work(61 * US, MAIN, 400 * US)]:
            launch = at + own.after_ns
            start = max(launch + LEAD_NS, free.get(own.stream, 0))
            end = free[own.stream] = start + own.length_ns
            ran.append(Ran(number, own.stream, launch, start, end, own.copy))
            if own.copy:
                process.memcpy(start, end, stream=own.stream, launch_ns=launch)
            else:
                name = f"kernel_{number}"  # in each step its own, so that no two take turns
                process.kernel(name, start, end, stream=own.stream, launch_ns=launch)
        process.range(f"ProfilerStep#{number}", at, at + step.host_ns - 10)
        at += step.host_ns
    return trace.write(path / "steps.sqlite"), ran


def naive_windows(ran: Sequence[Ran], count: int) -> list[tuple[int, int]]:
    """From the first kernel on the main stream to that of the next step; the last to the end of its work."""
    begins, latest = [], 0
    kernels = [each for each in ran if each.stream == MAIN and not each.copy]
    for number in range(count):
        latest = max(latest, min(each.start_ns for each in kernels if each.step == number))
        begins.append(latest)
    last = max(each.end_ns for each in ran if each.step == count - 1)
    return [*pairwise(begins), (begins[-1], last)]


def naive_length(spans: Sequence[tuple[int, int]], low: int, high: int) -> int:
    """How much of a window some spans cover, each moment once: by the moments at which anything changes."""
    edges = sorted({low, high, *(min(max(at, low), high) for span in spans for at in span)})
    return sum(b - a for a, b in pairwise(edges) if any(start <= a and b <= end for start, end in spans))


@given(steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
def test_steps_follow_one_another_and_nothing_is_lost(tmp_path: Path, steps: Sequence[Step]) -> None:
    path, ran = written(tmp_path, steps)
    with opened(path, KINETO) as run:
        found = all_steps(run)
        assert [(window.start_ns, window.end_ns) for window in found] == naive_windows(ran, len(steps))
        for number, window in enumerate(found):
            _check_step(window, [each for each in ran if each.step == number], ran)
        whole = sum(window.length_ns for window in found)
        assert whole == found[-1].end_ns - found[0].start_ns
        parts = ("launch_starved_ns", "dependency_stalled_ns")
        told = sum(rows(window, metric)[()] for window in found for metric in parts)
        told += sum(measure_budget(window).lines.compute_busy_ns for window in found)
        assert told + sum(sum(rows(window, "blocking_ns").values()) for window in found) == whole


def _check_step(window: RankWindow, own: Sequence[Ran], ran: Sequence[Ran]) -> None:
    budget, low, high = measure_budget(window), window.start_ns, window.end_ns
    spans = [(each.start_ns, each.end_ns) for each in ran]
    kernels = [each for each in own if not each.copy]
    assert len(window) == len(kernels)
    assert rows(window, "window_ns")[()] == high - low
    assert rows(window, "compute_ns")[()] == sum(each.end_ns - each.start_ns for each in kernels)
    ran_kernels = [(each.start_ns, each.end_ns) for each in ran if not each.copy]
    assert high - low - rows(window, "idle_ns")[()] == naive_length(ran_kernels, low, high)
    assert high - low - rows(window, "device_idle_ns")[()] == naive_length(spans, low, high)
    assert rows(window, "idle_ns")[()] <= rows(window, "compute_absent_ns")[()]
    if budget.lines.between_steps_ns is not None:
        own_until = max(each.end_ns for each in own)
        most = max(0, high - own_until) - naive_length(ran_kernels, min(own_until, high), high)
        assert 0 <= budget.lines.between_steps_ns <= min(budget.lines.launch_starved_ns, most)


def test_time_between_steps_begins_after_the_last_copy(tmp_path: Path) -> None:
    """The host launches nothing for 1 ms: of that the copy of 300 us is the step's own work."""
    process = TraceBuilder().process()
    for number in range(6):
        at = 10 * US + number * 1_500 * US
        process.kernel("gemm", at + 10 * US, at + 210 * US, launch_ns=at)
        process.memcpy(at + 210 * US, at + 510 * US, launch_ns=at + 20 * US)
        process.range("load", at + 100 * US, at + 1_480 * US)
        process.range(f"ProfilerStep#{number}", at - 5 * US, at + 1_490 * US)
    with opened(process.trace.write(tmp_path / "t.sqlite"), KINETO) as run:
        window = window_of(run, "median")
        assert window.length_ns == 1_500 * US
        assert rows(window, "between_steps_ns") == {(): 1_000 * US - 10 * US + _call_ns(window)}
        assert find_host_activity(window) == "load"
    shown = command("show", tmp_path / "t.sqlite", code=0).stdout
    assert "between steps" in shown
    assert "of the step: the host is in load" in shown


def _call_ns(window: RankWindow) -> int:
    """A kernel counts as launched when its call has returned."""
    calls = window.track.gpu_track.context_after.launch_calls[window.rank.lane]
    return calls.end_ns[0] - calls.start_ns[0]


def simple(path: Path, lengths_ns: Sequence[int], *, names: str = "ProfilerStep#{}", first: int = 0) -> Path:
    """A step of one kernel for each length, one after the other."""
    trace, at = TraceBuilder(), 10 * US
    process = trace.process()
    for number, length in enumerate(lengths_ns):
        process.kernel("gemm", at + 5 * US, at + 5 * US + length, launch_ns=at)
        process.range(names.format(first + number), at - US, at + US)
        at += length + 10 * US
    return trace.write(path)


def test_every_whole_step_but_the_first_is_counted(tmp_path: Path) -> None:
    lengths = [900, 100, 100, 100, 100, 100, 100, 400, 400, 7]
    with opened(simple(tmp_path / "t.sqlite", [n * US for n in lengths]), KINETO) as run:
        window = window_of(run, "median")
        counted = [(n + 10) * US for n in lengths[1:-1]]
        assert window.length_ns == 110 * US
        assert rows(window, "period_ns") == {
            ("p50",): 110 * US,
            ("p90",): 410 * US,
            ("p99",): 410 * US,
            ("max",): 410 * US,
            ("mean",): Fraction(sum(counted), len(counted)),
        }
        found = find_slow_steps(run.load_windows(window.spec))
        assert found is not None
        said = "rank 0: 2 of 8 steps take over 1.5 times as long as the judged one, 55.4% of the time of all"
        assert str(found) == said


def test_one_step_ends_with_its_range_or_its_work(tmp_path: Path) -> None:
    process = TraceBuilder().process()
    process.kernel("gemm", 30 * US, 90 * US, launch_ns=20 * US)
    process.range("ProfilerStep#3", 10 * US, 150 * US)
    with opened(process.trace.write(tmp_path / "t.sqlite"), KINETO) as run:
        window = window_of(run, "median")
        assert (window.start_ns, window.end_ns) == (30 * US, 150 * US)


def test_a_step_without_a_kernel_on_the_main_stream_is_time_of_the_one_before(tmp_path: Path) -> None:
    process = TraceBuilder().process()
    for number in range(6):
        at = 10 * US + number * 100 * US
        stream = 9 if number == 3 else 7
        process.kernel("gemm", at + 5 * US, at + 55 * US - (40 * US if number == 3 else 0), stream=stream, launch_ns=at)
        process.range(f"ProfilerStep#{number}", at - US, at + 90 * US)
    with opened(process.trace.write(tmp_path / "t.sqlite"), KINETO) as run:
        found = all_steps(run)
        assert [window.window.name for window in found] == [f"ProfilerStep#{n}" for n in (0, 1, 2, 4, 5)]
        assert [window.length_ns for window in found[:-1]] == [100 * US, 100 * US, 200 * US, 100 * US]
        assert len(found[2]) == 2  # its kernels, and those of the step without a window


@pytest.mark.parametrize("before_steps", [True, False])
def test_the_main_stream_is_one_of_the_steps(tmp_path: Path, before_steps: bool) -> None:
    """Though most compute ran before the first of them, or in a few steps on a stream that the others do not use."""
    process = TraceBuilder().process()
    first_ns, slow = 500 * MS, 0 if before_steps else 3
    if before_steps:
        process.kernel("gemm", 10 * MS, 210 * MS, stream=7, launch_ns=5 * MS)
    for number in range(10):
        at = first_ns + number * 40 * MS
        stream, length_ns = (7, 38 * MS) if number < slow else (13, 8 * MS)
        process.kernel("gemm", at + MS, at + MS + length_ns, stream=stream, launch_ns=at + 10 * US)
        process.range(f"ProfilerStep#{number}", at, at + 39 * MS)
    with opened(process.trace.write(tmp_path / "t.sqlite"), KINETO) as run:
        found = all_steps(run)
        assert [window.length_ns for window in found[:-1]] == [40 * MS] * (9 - slow)
        assert rows(window_of(run, "median"), "idle_ns")[()] == 32 * MS


def test_a_last_step_that_is_cut_off_parts_no_group(tmp_path: Path) -> None:
    """Of 12 labels that take turns in pairs the last has lost all kernels but its first."""
    labels = [*[MICRO, LAST] * 5, MICRO, "a"]
    with opened(turns(tmp_path / "t.sqlite", labels), KINETO) as run:
        assert [window.length_ns for window in all_steps(run)[:-1]] == [980 * US] * 5


def test_how_many_labels_a_step_has_is_a_circumstance(tmp_path: Path) -> None:
    """A group of labels and one label are no steps of one length."""
    for number, (labels, said) in enumerate(
        [([MICRO, LAST] * 6, ["5 and more, 2 labels each"]), ([LAST] * 12, ["5 and more"])]
    ):
        with opened(turns(tmp_path / f"{number}.sqlite", labels), KINETO) as run:
            assert collect_run_conditions([run])["steps"] == said


def test_a_span_of_time_holds_as_many_steps_as_groups_of_labels(tmp_path: Path) -> None:
    with opened(turns(tmp_path / "t.sqlite", [MICRO, LAST] * 6), KINETO) as run:
        step = all_steps(run)[2]
        start_ns, end_ns = step.anchors[2].start_ns, step.anchors[2].end_ns
        window = window_of(run, f"{start_ns}:{end_ns}")
        assert count_anchors(window) == 1


def test_labels_of_several_threads_at_one_moment_are_one_step(tmp_path: Path) -> None:
    process = TraceBuilder().process()
    for number in range(6):
        at = 10 * US + number * 100 * US
        process.kernel("gemm", at + 5 * US, at + 55 * US, launch_ns=at)
        for thread in (process.thread, process.thread + 1):
            process.range(f"ProfilerStep#{number}", at - US, at + 90 * US, thread=thread)
    with opened(process.trace.write(tmp_path / "t.sqlite"), replace(KINETO, kernels=KernelsMode.CLIPPED)) as run:
        assert [window.length_ns for window in all_steps(run)[:-1]] == [100 * US] * 5


def test_devices_of_one_process_have_steps_of_their_own(tmp_path: Path) -> None:
    """Device 1 idles in the last step, which takes no kernel from device 0."""
    process = TraceBuilder().process()
    for number in range(9):
        at = 10 * US + number * 100 * US
        for device in (0, 1) if number < 8 else (0,):
            for place in range(3):
                start = at + (5 + 20 * place) * US
                process.kernel("gemm", start, start + 10 * US, launch_ns=at + place * US, device=device)
        process.range(f"ProfilerStep#{number}", at - US, at + 90 * US)
    with opened(process.trace.write(tmp_path / "t.sqlite"), KINETO) as run:
        for index in range(8):
            assert len(window_of(run, index, 0)) == 3
        steady = run.load_windows(WindowSpec("steady", kernels=KernelsMode.LAUNCHED))
        assert {len(window) for window in steady.windows_by_rank[0]} == {3}


def of_ranks(path: Path, firsts: Sequence[int], count: int) -> Path:
    """Ranks that each hold so many steps, from a number of its own on."""
    trace = TraceBuilder()
    for rank, first in enumerate(firsts):
        process = trace.process(pid=100 + rank)
        for number in range(count):
            at = 10 * US + number * 100 * US
            process.kernel("gemm", at + 5 * US, at + 55 * US, launch_ns=at)
            process.range(f"ProfilerStep#{first + number}", at - US, at + 90 * US)
    return trace.write(path)


def test_ranks_that_share_a_part_of_a_step_alone_are_at_other_steps(tmp_path: Path) -> None:
    with opened(of_ranks(tmp_path / "t.sqlite", (1, 5), 5), KINETO) as run:
        assert has_no_common_step(run.load_windows(WindowSpec(kernels=KernelsMode.LAUNCHED)))


def test_ranks_are_compared_at_the_same_number(tmp_path: Path) -> None:
    with opened(of_ranks(tmp_path / "t.sqlite", (3, 5), 6), KINETO) as run:
        group = run.load_windows(WindowSpec("median", kernels=KernelsMode.LAUNCHED))
        assert {own[0].window.name for own in group.windows_by_rank.values()} == {"ProfilerStep#6"}


def turns(path: Path, kernels: Sequence[str], *, first: int = 0) -> Path:
    """A step for each string, which launches a kernel for each letter."""
    trace, at = TraceBuilder(), 10 * US
    process = trace.process()
    for number, letters in enumerate(kernels):
        process.range(f"ProfilerStep#{first + number}", at - US, at + len(letters) * 20 * US - 2 * US)
        for letter in letters:
            process.kernel(f"kernel_{letter}", at + 5 * US, at + 15 * US, launch_ns=at)
            at += 20 * US
    return trace.write(path)


MICRO, LAST = "ab" * 10, "ab" * 10 + "rrroooooo"


@pytest.mark.parametrize("lead", [0, 1, 3], ids=str)
def test_labels_that_take_turns_are_one_step(tmp_path: Path, lead: int) -> None:
    """The capture begins somewhere between two steps of the optimizer."""
    labels = [MICRO, MICRO, MICRO, LAST] * 5
    with opened(turns(tmp_path / "t.sqlite", labels[lead:], first=lead), KINETO) as run:
        found = all_steps(run)
        assert {len(window) for window in found} == {3 * len(MICRO) + len(LAST)}
        assert [window.window.name for window in found[-4:]] == [f"ProfilerStep#{n}" for n in (4, 8, 12, 16)]


def test_kinds_that_take_no_turns_are_told(tmp_path: Path) -> None:
    labels = [MICRO, LAST, MICRO, MICRO, LAST, MICRO, LAST, LAST, MICRO, MICRO, MICRO, LAST]
    trace = turns(tmp_path / "t.sqlite", labels)
    with opened(trace, KINETO) as run:
        assert len(all_steps(run)) == len(labels)
        steps = run.find_rank_steps(run.ranks[0], WindowSpec("median", kernels=KernelsMode.LAUNCHED))
        assert steps is not None
        assert steps.has_mixed_kinds


def test_warm_up_is_no_kind_that_comes_back(tmp_path: Path) -> None:
    with opened(turns(tmp_path / "t.sqlite", [LAST, LAST, *[MICRO] * 8]), KINETO) as run:
        assert len(all_steps(run)) == 10
        steps = run.find_rank_steps(run.ranks[0], WindowSpec(kernels=KernelsMode.LAUNCHED))
        assert steps is not None
        assert not steps.has_mixed_kinds


@pytest.mark.parametrize("mode", [KernelsMode.CONTAINED, KernelsMode.CLIPPED], ids=str)
def test_counted_by_time_a_step_lasts_until_the_next_label(tmp_path: Path, mode: KernelsMode) -> None:
    with opened(simple(tmp_path / "t.sqlite", [100 * US] * 6), Convention(name="x", anchor="ProfilerStep#%")) as run:
        group = run.load_windows(WindowSpec("2", kernels=mode))
        (window,) = group.windows_by_rank[0]
        assert window.length_ns == 110 * US
        assert window.end_ns == window.anchors[3].start_ns
