"""Do the commands give the figures that others found on the same real traces of torch.profiler?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pytest_nsys.cli import main
from tests.reference_data import REAL, expected_chrome_traces, needs_reference_data

pytestmark = needs_reference_data

KINETO = {name: figures for name, figures in expected_chrome_traces().items() if "full" in figures}
ANCHORED = {name: figures for name, figures in KINETO.items() if "anchor user_annotation" in figures}
MODES = {"contained": "contained", "clipped": "clipped", "launched": "launched_any_thread"}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def answer(*arguments: str | Path) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def figures_of(name: str, expected: dict[str, Any], *options: str) -> dict[str, Any]:
    """What the commands say, under the names of the expected figures."""
    metrics = ["busy_ns", "idle_ns", "window_ns", "compute_ns"]
    metrics += ["wall_exposed_ns"] if expected["n_comm"] else []
    options = ("--convention", "kineto", *options)
    found = answer("rows", *metrics, "--trace", REAL / name, *options)
    rows = list(found["rows"])
    if expected["n_comm"]:  # of no stage, as nothing here names one
        unstaged = ("--where", "stage=none", *options)
        rows += answer("rows", "exposed_ns", "comm_ns", "--trace", REAL / name, *unstaged)["rows"]
    values = {key: value for row in rows for key, value in row.items() if key not in ("rank", "stage")}
    streams = answer("streams", REAL / name, *options)["rows"]
    (window,) = found["windows"]
    return {
        "busy_ns": values["busy_ns"],
        "idle_ns": values["idle_ns"],
        "window_ns": values["window_ns"],
        "comp_sum_ns": values["compute_ns"],
        "comm_sum_ns": values.get("comm_ns", 0),
        "exposed_sum_ns": values.get("exposed_ns", 0),
        "exposed_union_ns": values.get("wall_exposed_ns", 0),
        "n_comm": sum(row["n_comm"] for row in streams),
        "n_comp": sum(row["n_comp"] for row in streams),
        "window": [window["start"], window["end"]],
        "name": window["name"],
        "index": window["index"],
        "n": window["count"],
    }


def shared(found: dict[str, Any], expected: dict[str, Any], *left_out: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both, of the figures that both have."""
    names = (found.keys() & expected.keys()) - set(left_out)
    return {name: found[name] for name in names}, {name: expected[name] for name in names}


@pytest.mark.parametrize("name", KINETO)
def test_the_whole_run(name: str) -> None:
    expected = KINETO[name]["full"]
    found, wanted = shared(figures_of(name, expected, "--window", "run"), expected)
    assert found == wanted
    assert len(wanted) >= 10


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ANCHORED)
def test_the_median_step(name: str, mode: str) -> None:
    anchored = ANCHORED[name]["anchor user_annotation"]
    expected = anchored[MODES[mode]]
    # The anchors of the trace without steps are both of its annotations, which no other range's name is like.
    anchor = "ProfilerStep#%" if anchored["name"].startswith("ProfilerStep") else "%32%"
    found = figures_of(name, expected, "--anchor", anchor, "--kernels", mode)
    # The window in GPU time of the mode launched is ours alone.
    ours, theirs = shared(found, expected, *(("window_ns", "idle_ns") if mode == "launched" else ()))
    assert ours == theirs
    assert len(theirs) >= 7
    ours, theirs = shared(found, anchored)
    assert ours == theirs
    assert theirs.keys() == {"window", "name", "index", "n"}


@pytest.mark.parametrize("name", KINETO)
def test_streams_and_ranks(name: str) -> None:
    expected = KINETO[name]
    rows = answer("streams", REAL / name, "--window", "run", "--convention", "kineto")["rows"]
    found = {
        f"dev {row['device']} stream {row['stream']}": {
            "n": row["n_comm"] + row["n_comp"],
            "n_comm": row["n_comm"],
            "sum_ns": row["comm_ns"] + row["comp_ns"],
        }
        for row in rows
    }
    assert found == expected["streams"]
    (rank,) = answer("setup", REAL / name, "--convention", "kineto")["rows"]
    assert str(rank["rank"]) == (expected["rank"] or "0")
    assert (rank["setup"] is None) == (expected["rank"] is None)


def test_files_of_one_job_are_one_run(tmp_path: Path) -> None:
    for name in ("hta_sampled_rank-0.json.gz", "hta_sampled_rank-1.json.gz"):
        (tmp_path / name).symlink_to(REAL / name)
    found = answer("rows", "compute_ns", "--trace", tmp_path, "--convention", "kineto")
    assert [(row["rank"], row["compute_ns"]) for row in found["rows"]] == [(0, 104068000), (1, 136425000)]


def test_a_profile_without_gpu_lanes_is_one_line() -> None:
    path = REAL / "torch_2.13.0_cpu_gloo.pt.trace.json.gz"
    for command in ("window", "streams", "overlap"):
        result = run(command, path, "--convention", "kineto")
        assert result.exit_code == 3
        assert result.stderr.count("\n") == 1
        assert "no kernels: profile with activities=" in result.stderr
