"""Do the commands give the figures that others found on the same real traces?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import answer, run
from tests.support.reference_data import DUALPIPE, DUALPIPE_RUNS, REAL, expected_traces

pytestmark = [pytest.mark.reference, pytest.mark.usefixtures("read_once")]

COMMANDS = {
    "setup": "show_setup",
    "window": "find_window",
    "streams": "classify_streams",
    "overlap": "compute_overlap",
}
MODES = {
    "contained": ("--kernels", "contained"),
    "clipped": ("--kernels", "clipped"),
    "launched": ("--kernels", "launched"),
    "period": ("--span", "period", "--kernels", "clipped"),
    "period_launched": ("--span", "period", "--kernels", "launched"),
}
OVERLAPS = ("overlap", "exposed_ns", "comm_ns", "wall_overlap", "wall_exposed_ns", "stage_wall_exposed_ns")


def ranks_of(figures: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rank number and figures of each process: without labels the order is that of processes."""
    for rank, pid in enumerate(sorted(figures["result"], key=lambda name: int(name.split()[1]))):
        yield rank, figures["result"][pid]


ANCHORS = [
    pytest.param(REAL / name, rank, anchor, mode, figures["anchors"][anchor], id=f"{name}-rank{rank}-{anchor}-{mode}")
    for name, trace in expected_traces().items()
    for rank, figures in ranks_of(trace)
    for anchor in figures["anchors"]
    for mode in MODES
    if mode in figures["anchors"][anchor]
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", DUALPIPE_RUNS)
def test_dualpipe_primitives_print_the_reference(name: str, command: str) -> None:
    result = run(command, DUALPIPE / f"{name}.sqlite")
    assert result.exit_code == 0, result.stderr
    reference = (DUALPIPE / f"{name}.{COMMANDS[command]}.txt").read_text().rstrip("\n").splitlines()
    lines = result.stdout.splitlines()
    assert [ours[: len(theirs)] for ours, theirs in zip(lines, reference, strict=True)] == reference
    assert all(ours[len(theirs)] == " " for ours, theirs in zip(lines, reference, strict=True))


@pytest.mark.parametrize("name", DUALPIPE_RUNS)
def test_one_rank_is_its_lines_of_the_whole(name: str) -> None:
    everything = run("overlap", DUALPIPE / f"{name}.sqlite", "--format", "csv").stdout.splitlines()
    one = run("overlap", DUALPIPE / f"{name}.sqlite", "--format", "csv", "--rank", "3").stdout.splitlines()
    column = everything[0].split(",").index("rank")
    assert one == [everything[0], *(line for line in everything[1:] if line.split(",")[column] == "3")]


@pytest.mark.parametrize("name", DUALPIPE_RUNS)
def test_ratios_are_not_rounded(name: str) -> None:
    for row in answer("overlap", DUALPIPE / f"{name}.sqlite")["rows"]:
        assert row["overlap"] == pytest.approx(1 - row["exposed_ns"] / row["comm_ns"], abs=1e-15)
        assert 0 <= row["overlap_min"] <= row["overlap"] <= row["overlap_max"] <= 1


def _expected_kernels(figures: dict[str, Any]) -> int:
    kernels: int = figures["n_kernels"] if "n_kernels" in figures else figures["n_comm"] + figures["n_comp"]
    return kernels


@pytest.mark.parametrize(("path", "rank", "anchor", "mode", "anchored"), ANCHORS)
def test_no_communication_stream_gives_no_overlap(
    path: Path, rank: int, anchor: str, mode: str, anchored: dict[str, Any]
) -> None:
    """All communication of these traces is barrier, so no overlap may be claimed, of whatever definition."""
    options = ("--convention", "generic", "--anchor", anchor, "--rank", str(rank), *MODES[mode])
    result = run("rows", *OVERLAPS, "--where", "rank=" + str(rank), "--trace", path, *options)
    assert result.exit_code == 3
    if _expected_kernels(anchored[mode]):
        primitive = run("overlap", path, *options, "--stage", "none", "--format", "json")
        assert primitive.exit_code == 3
        assert json.loads(primitive.stdout)["rows"] == []
        why = "all communication is barrier" if anchored[mode].get("comm_sum_ns") else "no communication kernel"
        assert f"note: 0 communication streams{',' if 'all' in why else ':'} {why}" in primitive.stderr
    else:
        assert "holds no kernel" in result.stderr
