"""Does a budget read right: one unit, three digits, bounds as bounds, bars that add up, who blocks whom?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget_facts import Blocking, BudgetFacts, BudgetPart, Delayed, about_edges, ceiling, parts_of
from pytest_nsys.core.kernel_names import readable_names
from pytest_nsys.core.numbers import Scale
from pytest_nsys.reports.bars import shared_out
from pytest_nsys.reports.budget_report import WIDTH, BudgetReport, held_up, producer_words
from pytest_nsys.reports.tables import Format

BOUNDS = "blocked and stalled are bounds"
COMBINE = Blocking(kind="collective", name="combine", stage="stage4_b", waiting="grouped_gemm", ns=1_020_000, gaps=12)

LATE = Delayed(part="launch-starved", waiting="gelu", stage="stage3_f", ns=1_000_000, gaps=1)


def facts(**more: Any) -> BudgetFacts:
    """10 ms: compute 6, launch-starved 1, blocked by collectives 1.02 and by copies 0.5, the rest stalled, of which
    communication runs during 0.98.
    """
    known: dict[str, Any] = {
        "window_ns": 10_000_000,
        "device_busy_ns": 8_000_000,
        "device_idle_ns": 2_000_000,
        "compute_busy_ns": 6_000_000,
        "compute_absent_ns": 4_000_000,
        "comm_alone_ns": 1_500_000,
        "launch_starved_ns": 1_000_000,
        "between_steps_ns": None,
        "tail_ns": 0,
        "in_syncs": {},
        "blocking_ns": {"collective": 1_020_000, "copy": 500_000, "memset": 0, "other_device": 0},
        "blocking_comm_ns": {"stage4_b": 1_020_000},
        "blocking_comm_max_ns": 2_000_000,
        "dependency_stalled_ns": 1_480_000,
        "stalled_beside_comm_ns": 980_000,
        "at_least": True,
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


def table(*budgets: BudgetFacts) -> list[list[str]]:
    """The table for people, without its head."""
    found = BudgetReport(dict(enumerate(budgets))).table(Format.TABLE).render(Format.CSV)
    return [line.split(",") for line in found.splitlines()]


def lines(**more: Any) -> dict[str, list[str]]:
    """What the table of one budget says by part; of a part with two lines, of both."""
    found: dict[str, list[str]] = {}
    for _, part, *cells in table(facts(**more))[1:]:
        found.setdefault(part, []).append(" ".join(cells).strip())
    return found


def test_a_table_has_one_unit_three_digits_shares_and_ceilings() -> None:
    assert table(facts())[0] == ["rank", "part", "time", "share", "ceiling"]
    assert lines() == {
        "window": ["10 ms 100%"],
        "compute": ["6 ms 60%"],
        "without compute": ["4 ms 40% +66.7%"],
        "launch-starved": ["1 ms 10% +11.1%"],
        "blocked by collective": [">= 1.02 ms 10.2% +11.4%", "<= 2 ms 20% +25%"],
        "blocked by copy": [">= 0.5 ms 5% +5.26%"],
        "stalled during communication": ["<= 0.98 ms 9.8% +10.9%"],
        "stalled": ["<= 0.5 ms 5% +5.26%"],
        "communication alone": ["1.5 ms 15%"],
        "device idle": ["2 ms 20%"],
    }


def test_where_every_edge_is_known_communication_alone_has_bounds() -> None:
    found = lines(at_least=False)
    assert found["blocked by copy"] == ["0.5 ms 5% +5.26%"]
    assert found["stalled"] == ["0.5 ms 5% +5.26%"]
    assert found["blocked by collective"] == [">= 1.02 ms 10.2% +11.4%", "<= 2 ms 20% +25%"]


def test_what_nothing_is_known_of_or_is_no_time_has_no_line() -> None:
    nothing = {"collective": 0, "copy": 0, "memset": 0, "other_device": 0}
    found = lines(
        comm_alone_ns=None, device_idle_ns=None, blocking_ns=nothing, blocking_comm_max_ns=0, stalled_beside_comm_ns=0
    )
    assert [*found] == ["window", "compute", "without compute", "launch-starved", "stalled"]
    assert "blocked by collective" in lines(blocking_ns=nothing)  # nothing is proven, and 2 ms may be


def test_what_launch_starved_time_went_to_is_told_and_is_no_part_of_its_own() -> None:
    found = lines(tail_ns=200_000, in_syncs={"cudaStreamSynchronize": 700_000, "evil\x1b[31m": 1_000})
    assert found["launch-starved: after the last kernel"] == ["0.2 ms 2% +2.04%"]
    assert found["launch-starved: in cudaStreamSynchronize"] == ["0.7 ms 7% +7.53%"]
    assert found["launch-starved: in evil\ufffd[31m"] == ["0.001 ms 0.01% +0.01%"]


def test_a_window_without_any_compute_has_no_ceiling() -> None:
    gone = lines(compute_busy_ns=0, compute_absent_ns=10_000_000, launch_starved_ns=10_000_000)
    assert gone["without compute"] == ["10 ms 100%"]
    assert ceiling(10, 10) is None
    assert ceiling(0, 10) == 0
    assert ceiling(1, 4) == Fraction(1, 3)


def test_programs_get_nanoseconds_bounds_and_fractions() -> None:
    report = BudgetReport({3: facts()})
    head, *rest = report.table(Format.CSV).render(Format.CSV).splitlines()
    assert head == "rank,part,bound,time_ns,share,ceiling"
    assert "3,blocked by collective,at least,1020000,0.102," in rest[4]
    assert rest[5].startswith("3,blocked by collective,at most,2000000,0.2,0.25")
    assert rest[0] == "3,window,,10000000,1.0,"
    (row,) = json.loads(json.dumps(report.json_rows()))
    assert row["rank"] == 3
    assert (row["blocking_comm_max_ns"], row["at_least"], row["ceilings"]["launch-starved"]) == (2_000_000, True, 1 / 9)
    assert row["producers"] == [asdict(COMBINE)]


def test_the_longest_window_chooses_the_unit_of_all() -> None:
    found = table(facts(), facts(window_ns=900_000_000))
    assert [row[2] for row in found if row[1] == "window"] == ["10 ms", "900 ms"]


def test_kernels_are_called_as_a_person_reads_them() -> None:
    mangled, product = (
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bLi256EEvPT0_",
        "void cutlass::Kernel<cutlass_80_gemm>(int)",
    )
    copy = Blocking("copy", "copy", "none", mangled, 1_000_000, 1)
    late = Delayed("stalled", product, "none", 1_000_000, 1)
    scale = Scale("ms", Fraction(1_000_000))
    assert held_up(facts(producers=[copy], before=[late]), scale) == [
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
def test_a_producer_is_a_sentence(each: Blocking, said: str) -> None:
    called = readable_names([each.name, each.waiting])
    assert producer_words(each, Scale("ms", Fraction(1_000_000)), called) == said


def test_who_blocked_and_what_was_late_are_told_by_rank() -> None:
    assert list(BudgetReport({0: facts(), 3: facts(producers=[])}).producers()) == [
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
    assert list(about_edges([facts(**more)])) == said


def test_bars_are_as_long_as_their_windows_and_tell_the_parts_apart() -> None:
    report = BudgetReport({0: facts(), 11: facts(window_ns=5_000_000, compute_busy_ns=1_000_000)})
    first, second, legend = ("".join(text for _, text in line) for line in report.bars("utf-8"))
    assert first == "rank 0   " + "█" * 36 + "·" * 6 + "▓" * 9 + "▒" * 6 + "░" * 3 + "  10 ms"
    assert second == "rank 11  " + ("█" * 6 + "·" * 6 + "▓" * 9 + "▒" * 6 + "░" * 3).ljust(WIDTH) + "  5 ms"
    assert legend.split("  ")[:2] == ["█ compute", "· launch-starved"]
    plain = ["".join(text for _, text in line) for line in report.bars("ascii")]
    assert plain[0] == "rank 0   " + "#" * 36 + "." * 6 + "X" * 9 + "x" * 6 + "-" * 3 + "  10 ms"
    assert all(line.isascii() for line in plain)


@given(
    st.lists(st.integers(0, 10**12), min_size=len(BudgetPart), max_size=len(BudgetPart)).filter(any),
    st.integers(1, 100),
)
def test_a_bar_has_its_cells_and_no_part_is_off_by_one(lengths: list[int], cells: int) -> None:
    parts = dict(zip(BudgetPart, lengths, strict=True))
    found = shared_out(parts, cells)
    assert sum(found.values()) == cells
    for part, ns in parts.items():
        assert abs(found[part] - Fraction(ns * cells, sum(lengths))) < 1


def test_the_parts_are_the_window() -> None:
    found = parts_of(facts())
    assert sum(found.values()) == 10_000_000
    assert (found[BudgetPart.BESIDE], found[BudgetPart.STALLED]) == (980_000, 500_000)
