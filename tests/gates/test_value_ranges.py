"""Sentences that cannot fail, that cheer a regression, or that no run can meet: each is a mistake where it stands."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.windows.window_selection import RUN
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import KernelsMode
from pytest_nsys.core.workload import TwoStages, Workload
from pytest_nsys.gates.limits import SentenceMistake, explain_boundless_tolerance, find_pointless_limit
from pytest_nsys.gates.model import Comparator, LimitTarget, Tolerance
from tests.support.gate_files import asked, mistakes
from tests.support.gates import MS, Project
from tests.support.measure import STEP, captures
from tests.support.reference_data import REAL, expected_figures
from tests.support.samples.builder import TraceBuilder

FALLS = "higher overlap is better, so this passes however far it falls: write "
RISES = "lower exposed_ns is better, so this passes however far it rises: write "
NO_FAIL = "cannot fail: overlap is never below 0%; write "
SUCH = "did you mean a limit such as "
NO_FLOOR = f"cannot fail: overlap is never below 0%; {SUCH}"


def mistake(text: str, tolerance: Tolerance | None = None) -> tuple[int, str]:
    """Where in the sentence the mistake is, and what it says."""
    with pytest.raises(SentenceMistake) as caught:
        asked(text, ("pp",), tolerance)
    return caught.value.offset, str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("overlap below baseline plus 5%", FALLS + "overlap above baseline minus 5%"),
        ("overlap below baseline", FALLS + "overlap above baseline"),
        ("overlap < baseline", FALLS + "overlap >= baseline"),
        ("overlap <= baseline - 3pp", FALLS + "overlap >= baseline - 3pp"),
        ("overlap <= baseline minus 3pp", FALLS + "overlap >= baseline minus 3pp"),
        ("stage3 overlap at most baseline + 5%", FALLS + "stage3 overlap at least baseline - 5%"),
        ("median overlap <= baseline", FALLS + "median overlap >= baseline"),
        ("exposed_ns above baseline minus noise", RISES + "exposed_ns below baseline plus noise"),
        ("exposed_ns > baseline", RISES + "exposed_ns <= baseline"),
        ("exposed_ns at least baseline", RISES + "exposed_ns at most baseline"),
        ("rank 3 exposed_ns >= baseline - max(5%, 50us)", RISES + "rank 3 exposed_ns <= baseline + max(5%, 50us)"),
        (
            "balance of compute_ns across pp >= baseline - 5%",
            "lower balance of compute_ns is better, so this passes however far it rises: "
            "write balance of compute_ns across pp <= baseline + 5%",
        ),
    ],
)
def test_a_baseline_is_held_on_the_side_on_which_the_metric_gets_worse(text: str, meant: str) -> None:
    comparison = min(text.find(word) for word in ("below", "above", "<", ">", "at ") if word in text)
    assert mistake(text) == (comparison, meant)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("overlap >= 0%", f"'>= 0%' {NO_FLOOR}overlap >= 60%?"),
        ("sum overlap at least 0%", f"'at least 0%' {NO_FLOOR}sum overlap >= 60%?"),
        ("overlap >= baseline - 200%", f"'>= baseline - 200%' {NO_FAIL}overlap >= baseline - 5%"),
        ("overlap >= baseline - 100%", f"'>= baseline - 100%' {NO_FAIL}overlap >= baseline - 5%"),
        ("overlap above baseline minus 100pp", f"'above baseline minus 100pp' {NO_FAIL}overlap >= baseline - 5%"),
        ("busbw >= baseline - 100%", "'>= baseline - 100%' cannot fail: busbw is never below 0GB/s; write "),
        ("kernel_share <= baseline + 100pp", "'<= baseline + 100pp' cannot fail: kernel_share is never above 100%"),
        ("overlap at most 100%", f"'at most 100%' cannot fail: overlap is never above 100%; {SUCH}overlap >= 60%?"),
        ("exposed_ns >= 0ns", f"'>= 0ns' cannot fail: exposed_ns is never below 0ns; {SUCH}exposed_ns <= 1ms?"),
        ("comm_streams >= 0", f"'>= 0' cannot fail: comm_streams is never below 0; {SUCH}comm_streams > 0?"),
        ("overlap != 101%", f"'!= 101%' cannot fail: overlap is never above 100%; {SUCH}overlap != 100%?"),
        ("busbw >= 0GB/s", f"'>= 0GB/s' cannot fail: busbw is never below 0GB/s; {SUCH}busbw > 0GB/s?"),
        (
            "balance of compute_ns across pp >= 0.9",
            "'>= 0.9' cannot fail: balance of compute_ns is never below 1; "
            f"{SUCH}balance of compute_ns across pp <= 1.1?",
        ),
        ("overlap > 100%", "'> 100%' can never hold: overlap is never above 100%; write overlap >= 100%"),
        ("overlap >= 600%", "'>= 600%' can never hold: overlap is never above 100%; write overlap >= 100%"),
        ("overlap == 101%", "'== 101%' can never hold: overlap is never above 100%; write overlap == 100%"),
        ("exposed_ns < 0ns", "'< 0ns' can never hold: exposed_ns is never below 0ns; write exposed_ns <= 0ns"),
        (
            "exposed_ns below 0 us",
            "'below 0 us' can never hold: exposed_ns is never below 0ns; write exposed_ns <= 0ns",
        ),
        ("balance of compute_ns across pp < 1", "'< 1' can never hold: balance of compute_ns is never below 1; write"),
    ],
)
def test_a_limit_that_no_value_can_miss_or_meet_is_a_mistake(text: str, what: str) -> None:
    assert mistake(text)[1].startswith(what)


@pytest.mark.parametrize(
    "text",
    [
        *("overlap > 0%", "overlap >= 100%", "overlap == 0%", "overlap < 100%", "overlap != 100%", "overlap <= 0%"),
        *("exposed_ns <= 0ns", "exposed_ns == 0ns", "no barrier_ns", "comm_streams >= 1", "comm_streams > 0"),
        *("overlap >= baseline - 99%", "overlap >= baseline - 99pp", "exposed_ns <= baseline + 300%"),
        *("sum overlap <= 150%", "sum overlap >= 100%", "pipeline_stage_ns <= 105s"),
        *("step_minus_kernel_ns >= 0ns", "overlap_tax_ns >= 0ns", "serialization < 0.5", "overlap_tax_ns < 0ns"),
        *("launches <= baseline", "launches >= baseline", "comm_ns >= baseline - 5%", "overlap == baseline"),
        *("balance of compute_ns across pp <= 1", "overlap >= baseline - noise", "kernel_share <= baseline + 99pp"),
    ],
)
def test_what_can_fail_and_can_hold_is_none(text: str) -> None:
    asked(text, ("pp",))


def test_the_tolerance_of_the_file_counts() -> None:
    wide = Tolerance(Fraction(2), {"ns": Fraction(50_000)})
    assert mistake("overlap >= baseline minus tolerance", wide)[1].startswith("'>= baseline minus tolerance' cannot")
    asked("exposed_ns below baseline plus tolerance", tolerance=wide)


def test_both_forms_of_a_gate_file_an_early_limit_and_a_ceiling() -> None:
    found = mistakes(
        "version: 1\n"
        "tolerance: {rel: 100%}\n"
        "assertions:\n"
        "  - stage3 overlap below baseline plus tolerance\n"
        "  - {id: a, assert: exposed_ns >= 0ns}\n"
        "  - {id: b, assert: overlap <= baseline + 5%}\n"
        "  - {id: c, assert: overlap >= baseline - tolerance}\n"
        "  - {id: d, assert: overlap >= last 3 runs - 100pp}\n"
        "  - {id: e, assert: kernel_share within 100pp of baseline}\n"
        "  - {id: f, assert: overlap >= 60%, warn: '>= 0%'}\n"
        "  - {id: g, assert: overlap >= 60%, warn: '>= 60%'}\n"
        "  - {id: h, assert: overlap > 60%, warn: < 60%}\n"
        "  - {id: i, assert: overlap == 60%, warn: '>= 50%'}\n"
        "  - {id: j, assert: overlap <= 60%}\n"
        "waivers:\n"
        "  - {assertion: j, ceiling: 101%, expires: 2030-01-01, reason: x}\n"
    )
    reached = "write a limit that is reached before it"
    assert found == [
        f"4:20: {FALLS}stage3 overlap above baseline minus tolerance",
        f"5:32: '>= 0ns' cannot fail: exposed_ns is never below 0ns; {SUCH}exposed_ns <= 1ms?",
        f"6:29: {FALLS}overlap >= baseline - 5%",
        "7:29: '>= baseline - tolerance' cannot fail: overlap is never below 0%; write overlap >= baseline - 5%",
        "8:29: '>= last 3 runs - 100pp' cannot fail: overlap is never below 0%; "
        "write overlap >= median of the last 3 runs - 5%",
        "9:34: 'within 100pp of baseline' cannot fail: kernel_share is never below 0%; "
        "write kernel_share within 5% of baseline",
        f"10:44: '>= 0%' {NO_FLOOR}>= 60%?",
        f"11:44: '>= 60%' never warns where '>= 60%' holds: {reached}",
        f"12:42: '< 60%' always warns where '> 60%' holds: {reached}",
        f"13:44: '>= 50%' never warns where '== 60%' holds: {reached}",
        "16:29: ceiling 101% cannot be right: overlap is never above 100%",
    ]


def test_an_early_limit_warns_beside_a_baseline_too(project: Project) -> None:
    """It was read and never looked at."""
    project.accepted("- {assert: overlap >= baseline - 30pp, warn: '>= 70%'}", 200)
    assert "early warning" not in project.pytest("--nsys-trace=run.sqlite", code=0)
    project.trace(exposed_us={(0, "stage2_f"): 400})
    assert "1 of 4 rows do not reach the early warning >= 70%" in project.pytest("--nsys-trace=run.sqlite", code=0)


HALVES = [Fraction(n, 2) for n in range(9)]


@given(
    st.sampled_from(list(Comparator)),
    st.sampled_from(HALVES),
    st.sampled_from([0, 1, None]),
    st.sampled_from([2, 3, None]),
)
def test_out_of_reach_is_what_all_values_hold_or_none(
    comparator: Comparator, limit: Fraction, least: int | None, greatest: int | None
) -> None:
    low = Fraction(-99 if least is None else least)
    high = Fraction(99 if greatest is None else greatest)
    values = [v for v in (Fraction(-99), *HALVES, Fraction(99)) if low <= v <= high]
    held = {comparator.is_satisfied(value, limit) for value in values}
    assert (find_pointless_limit(comparator, limit, LimitTarget("m", "1", None, least, greatest)) is not None) is (
        len(held) == 1
    )


@given(
    st.sampled_from([Comparator.GE, Comparator.LE, None]),
    st.sampled_from(HALVES),
    st.sampled_from(HALVES),
    st.sampled_from([0, 1]),
    st.sampled_from([2, 3, None]),
)
def test_a_tolerance_tolerates_all_where_no_value_of_any_baseline_is_beyond_it(
    comparator: Comparator | None, relative: Fraction, absolute: Fraction, least: int, greatest: int | None
) -> None:
    tolerance = Tolerance(relative, {"1": absolute})
    values = [v for v in (*HALVES, Fraction(9_999)) if least <= v <= (10_000 if greatest is None else greatest)]

    def beyond(value: Fraction, baseline: Fraction) -> bool:
        t = tolerance.compute_amount(baseline, "1")
        return (comparator is not Comparator.LE and value < baseline - t) or (
            comparator is not Comparator.GE and value > baseline + t
        )

    some = any(beyond(value, baseline) for value in values for baseline in values)
    assert (
        explain_boundless_tolerance(comparator, tolerance, LimitTarget("m", "1", None, least, greatest)) is not None
    ) is not some


STATED = Workload(
    steps=1,
    samples=8,
    sequence_length=64,
    peak_gb_per_s=Fraction(1),
    pipeline=TwoStages(("stage0%",), ("stage1%",), 0),
    blocks=("stage%",),
)


def outside(path: Path, convention: Convention, windows: tuple[str, ...]) -> list[str]:
    """The values beyond the range of their metric."""
    beyond = []
    with captures(path, convention=convention, workload=STATED) as run:
        for window, kernels, metric in product(windows, KernelsMode, METRICS.values()):
            try:
                rows = run.measure_rows(metric, run.make_spec(window, None, kernels)).rows
            except NsysError:
                continue  # an empty window, or nothing to measure there
            least = -(10**30) if metric.least is None else metric.least
            greatest = 10**30 if metric.greatest is None else metric.greatest
            beyond += [f"{metric.name} {row}" for row in rows if not least <= row.value <= greatest]
    return beyond


def chrome_or_nsys(name: str) -> Convention:
    """What each real trace is read by."""
    chosen = "generic" if not name.endswith(".json.gz") else "jax" if name.startswith("jax") else "kineto"
    return BUILT_IN_CONVENTIONS[chosen]


@pytest.mark.reference
@pytest.mark.parametrize("name", sorted(name for name in expected_figures() if (REAL / name).is_file()))
@pytest.mark.sampled(4)
def test_no_value_of_a_real_trace_is_beyond_its_range(name: str) -> None:
    assert outside(REAL / name, chrome_or_nsys(name), (RUN, "median")) == []


KERNELS = st.lists(
    st.tuples(
        st.sampled_from(["gemm", "gelu", "ncclDevKernel_AllReduce_Sum", "ncclDevKernel_SendRecv"]),
        st.sampled_from([7, 28, 29]),
        st.integers(0, 40),
        st.integers(0, 8),
    ),
    max_size=12,
)


@given(KERNELS)
def test_no_value_of_any_trace_is_beyond_its_range(
    tmp_path_factory: pytest.TempPathFactory, kernels: list[tuple[str, int, int, int]]
) -> None:
    """Kernels of 0 to 8 us anywhere around a step of 30 us, the same one in each of six steps."""
    process = TraceBuilder().process()
    for begin in range(MS, 7 * MS, MS):
        process.range("step 0", begin, begin + 30_000)
        for stage in range(5):
            process.range(f"stage{stage}_f", begin + 8_000 * stage, begin + 8_000 * stage + 7_000)
        for name, stream, start_us, length_us in kernels:
            start = begin + 1_000 * start_us
            process.kernel(name, start, start + 1_000 * length_us, stream=stream, launch_ns=start)
    path = process.trace.write(tmp_path_factory.mktemp("any") / "run.sqlite")
    assert outside(path, replace(STEP, setup=None), ("median",)) == []
