"""Does a budget read right: one unit, three digits, bounds as bounds, bars that add up, who blocks whom?"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.explain.budget_lines import (
    BudgetFacts,
    BudgetPart,
    LaunchDelay,
    ProducerDelay,
    compute_throughput_ceiling,
    describe_uncertain_edges,
)
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.core.numbers import Scale, format_percent, format_value
from pytest_nsys.reports.page.budget_view import build_budget_view
from pytest_nsys.reports.tables.bars import distribute_cells
from pytest_nsys.reports.views.budget import (
    BAR_WIDTH,
    BudgetReport,
    build_budget_lines,
    describe_blocking,
    format_producer,
)

BOUNDS = "blocked and stalled are bounds"
COMBINE = ProducerDelay(
    kind="collective", name="combine", stage="stage4_b", waiting="grouped_gemm", ns=1_020_000, gaps=12
)

LATE = LaunchDelay(part="launch-starved", waiting="gelu", stage="stage3_f", ns=1_000_000, gaps=1)


PARTS: dict[BudgetPart, int] = {
    BudgetPart.COMPUTE: 6_000_000,
    BudgetPart.STARVED: 1_000_000,
    BudgetPart.BETWEEN: 0,
    BudgetPart.COLLECTIVE: 1_020_000,
    BudgetPart.COPY: 500_000,
    BudgetPart.MEMSET: 0,
    BudgetPart.ELSEWHERE: 0,
    BudgetPart.BESIDE: 980_000,
    BudgetPart.STALLED: 500_000,
}
"""10 ms."""


def facts(parts: Mapping[BudgetPart, int] | None = None, **more: Any) -> BudgetFacts:
    """The budget of PARTS, or of others, without a record of waits."""
    known: dict[str, Any] = {
        "parts": PARTS | dict(parts or {}),
        "has_next": False,
        "device_busy_ns": 8_000_000,
        "comm_alone_ns": 1_500_000,
        "tail_ns": 0,
        "in_syncs": {},
        "blocking_comm_ns": {"stage4_b": 1_020_000},
        "blocking_comm_max_ns": 2_000_000,
        "gaps": 40,
        "gaps_without_launch": 0,
        "contradicted": 0,
        "unordered": 0,
        "waits_recorded": False,
        "waits": 0,
        "waits_joined": 0,
        "producers": [COMBINE],
        "before": [LATE],
    }
    return BudgetFacts(**known | more)


def lines(parts: Mapping[BudgetPart, int] | None = None, **more: Any) -> dict[str, list[str]]:
    """What the table of one budget says by part; of a part with two lines, of both."""
    found: dict[str, list[str]] = {}
    for line in build_budget_lines(facts(parts, **more)):
        above = "" if line.ceiling is None else f"+{format_percent(line.ceiling)}"
        words = (line.bound, format_value(line.duration_ns), format_percent(line.share), above)
        found.setdefault(line.part, []).append(" ".join(filter(None, words)))
    return found


def test_a_table_has_bounds_shares_and_ceilings() -> None:
    assert lines() == {
        "window": ["10 ms 100%"],
        "compute": ["6 ms 60%"],
        "without compute": ["4 ms 40% +66.7%"],
        "launch-starved": ["1 ms 10% +11.1%"],
        "blocked by collective": ["at least 1.02 ms 10.2% +11.4%", "at most 2 ms 20% +25%"],
        "blocked by copy": ["at least 500 us 5% +5.26%"],
        "stalled during communication": ["at most 980 us 9.8% +10.9%"],
        "stalled": ["at most 500 us 5% +5.26%"],
        "communication alone": ["1.5 ms 15%"],
        "device idle": ["2 ms 20%"],
    }


def test_where_every_edge_is_known_communication_alone_has_bounds() -> None:
    found = lines(waits_recorded=True)
    assert found["blocked by copy"] == ["500 us 5% +5.26%"]
    assert found["stalled"] == ["500 us 5% +5.26%"]
    assert found["blocked by collective"] == ["at least 1.02 ms 10.2% +11.4%", "at most 2 ms 20% +25%"]


def test_what_nothing_is_known_of_or_is_no_time_has_no_line() -> None:
    nothing = {BudgetPart.COLLECTIVE: 0, BudgetPart.COPY: 0}
    found = lines({**nothing, BudgetPart.BESIDE: 0}, comm_alone_ns=None, device_busy_ns=None, blocking_comm_max_ns=0)
    assert [*found] == ["window", "compute", "without compute", "launch-starved", "stalled"]
    assert "blocked by collective" in lines(nothing)  # nothing is proven, and 2 ms may be


def test_what_launch_starved_time_went_to_is_told_and_is_no_part_of_its_own() -> None:
    found = lines(
        {BudgetPart.STARVED: 900_000, BudgetPart.BETWEEN: 100_000},
        has_next=True,
        tail_ns=200_000,
        in_syncs={"cudaStreamSynchronize": 700_000, "evil\x1b[31m": 1_000},
    )
    assert found["launch-starved"] == ["1 ms 10% +11.1%"]
    assert found["launch-starved: between steps"] == ["100 us 1% +1.01%"]
    assert found["launch-starved: after the last kernel"] == ["200 us 2% +2.04%"]
    assert found["launch-starved: in cudaStreamSynchronize"] == ["700 us 7% +7.53%"]
    assert found["launch-starved: in evil\ufffd[31m"] == ["1 us 0.01% +0.01%"]


def test_a_window_without_any_compute_has_no_ceiling() -> None:
    assert lines(dict.fromkeys(PARTS, 0) | {BudgetPart.STARVED: 10_000_000})["without compute"] == ["10 ms 100%"]
    assert compute_throughput_ceiling(10, 10) is None
    assert compute_throughput_ceiling(0, 10) == 0
    assert compute_throughput_ceiling(1, 4) == Fraction(1, 3)


def test_programs_get_nanoseconds_and_ceilings() -> None:
    (row,) = json.loads(json.dumps(BudgetReport({3: facts()}).build_json_rows()))
    assert row["rank"] == 3
    assert (row["window_ns"], row["launch_starved_ns"], row["between_steps_ns"]) == (10_000_000, 1_000_000, None)
    assert (row["blocking_comm_max_ns"], row["at_least"], row["ceilings"]["launch-starved"]) == (2_000_000, True, 1 / 9)
    assert row["producers"] == [asdict(COMBINE)]


def test_the_page_has_the_table_in_one_unit_with_signs_for_bounds() -> None:
    shown = build_budget_view([("", facts())], "rank 0", 0)
    assert shown is not None
    (table,) = shown["tables"]
    assert [column.name for column in table.columns] == ["part", "time", "share", "ceiling"]
    assert [row for row in table.rows if row[0].startswith(("compute", "blocked by coll"))] == [
        ("compute", "6 ms", "60%", "–"),
        ("blocked by collective", ">= 1.02 ms", "10.2%", "+11.4%"),
        ("blocked by collective", "<= 2 ms", "20%", "+25%"),
    ]


def test_kernels_are_called_as_a_person_reads_them() -> None:
    mangled, product = (
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bLi256EEvPT0_",
        "void cutlass::Kernel<cutlass_80_gemm>(int)",
    )
    copy = ProducerDelay("copy", "copy", "none", mangled, 1_000_000, 1)
    late = LaunchDelay("stalled", product, "none", 1_000_000, 1)
    scale = Scale("ms", Fraction(1_000_000))
    assert describe_blocking(facts(producers=[copy], before=[late]), scale) == [
        "copy blocks add_rmsnorm_quant_kernel for 1 ms in 1 gap",
        "stalled before cutlass_80_gemm for 1 ms in 1 gap",
    ]


@pytest.mark.parametrize(
    ("each", "said"),
    [
        (COMBINE, "stage4_b combine blocks grouped_gemm for 1.02 ms in 12 gaps"),
        (replace(COMBINE, stage="none", gaps=1), "combine blocks grouped_gemm for 1.02 ms in 1 gap"),
        (replace(COMBINE, name="a\x1b[1mb"), "stage4_b a\ufffd blocks grouped_gemm for 1.02 ms in 12 gaps"),
    ],
)
def test_a_producer_is_a_sentence(each: ProducerDelay, said: str) -> None:
    called = make_display_names([each.name, each.waiting])
    assert format_producer(each, Scale("ms", Fraction(1_000_000)), called) == said


def test_who_blocked_and_what_was_late_are_told_by_rank() -> None:
    assert list(BudgetReport({0: facts(), 3: facts(producers=[])}).describe_producers()) == [
        "rank 0: stage4_b combine blocks grouped_gemm for 1.02 ms in 12 gaps",
        "rank 0: launch-starved before stage3_f gelu for 1 ms in 1 gap",
        "rank 3: launch-starved before stage3_f gelu for 1 ms in 1 gap",
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"waits_recorded": True}, []),
        ({"waits_recorded": True, "unordered": 1}, [f"{BOUNDS}: kernels that overlap on one stream prove nothing"]),
        ({}, [f"{BOUNDS}: the trace records no stream waits"]),
        (
            {"waits_recorded": True, "waits": 98, "waits_joined": 90, "device_busy_ns": None},
            [
                f"{BOUNDS}: 8 of 98 stream waits have no event record",
                f"{BOUNDS}: the trace does not say when copies and memsets ran",
            ],
        ),
        (
            {"waits_recorded": True, "gaps_without_launch": 3, "contradicted": 1},
            [
                "3 of 40 gaps end in a kernel without a launch row: they count as launched at once",
                "1 of 40 gaps end before what their kernel waited for began: it blocked nothing",
            ],
        ),
    ],
)
def test_why_figures_are_bounds(more: Mapping[str, Any], said: list[str]) -> None:
    assert list(describe_uncertain_edges([facts(**more)])) == said


def test_bars_are_as_long_as_their_windows_and_tell_the_parts_apart() -> None:
    report = BudgetReport({0: facts(), 11: facts({BudgetPart.COMPUTE: 1_000_000})})
    first, second, legend = ("".join(text for _, text in line) for line in report.draw_bars("utf-8"))
    assert first == "rank 0   " + "█" * 36 + "·" * 6 + "▓" * 9 + "▒" * 6 + "░" * 3 + "  10 ms"
    assert second == "rank 11  " + ("█" * 6 + "·" * 6 + "▓" * 9 + "▒" * 6 + "░" * 3).ljust(BAR_WIDTH) + "  5 ms"
    assert legend.split("  ")[:2] == ["█ compute", "· launch-starved"]
    plain = ["".join(text for _, text in line) for line in report.draw_bars("ascii")]
    assert plain[0] == "rank 0   " + "#" * 36 + "." * 6 + "X" * 9 + "x" * 6 + "-" * 3 + "  10 ms"
    assert all(line.isascii() for line in plain)


@given(
    st.lists(st.integers(0, 10**12), min_size=len(BudgetPart), max_size=len(BudgetPart)).filter(any),
    st.integers(1, 100),
)
def test_a_bar_has_its_cells_and_no_part_is_off_by_one(lengths: list[int], cells: int) -> None:
    parts = dict(zip(BudgetPart, lengths, strict=True))
    found = distribute_cells(parts, cells)
    assert sum(found.values()) == cells
    for part, ns in parts.items():
        assert abs(found[part] - Fraction(ns * cells, sum(lengths))) < 1
