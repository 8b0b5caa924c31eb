"""Is every figure that others found on the real traces had by a command, or named here with why it is not?"""

import json
import re
import shutil
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.facts.launches import find_unlaunched
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from tests.support.commands import answer, run
from tests.support.fake_nsys import needs_nsys
from tests.support.measure import captures
from tests.support.reference_data import DUALPIPE, DUALPIPE_RUNS, REAL, expected_figures

pytestmark = [pytest.mark.reference, pytest.mark.usefixtures("read_once")]

EXPORTS = {name: figures for name, figures in expected_figures().items() if "result" in figures}
TORCH = {name: figures for name, figures in expected_figures().items() if "full" in figures}
CPU_ONLY = {
    "jax_cpu_0.10.2.trace.json.gz": ("jax", "no kernels: there is no lane 'Stream #' of a GPU"),
    "torch_2.13.0_cpu_gloo.pt.trace.json.gz": ("kineto", "no kernels: profile with activities="),
}
MODES = {
    "contained": ("--kernels=contained",),
    "clipped": ("--kernels=clipped",),
    "launched": ("--kernels=launched",),
    "launched_any_thread": ("--kernels=launched",),
    "period": ("--span=period", "--kernels=clipped"),
    "period_launched": ("--span=period", "--kernels=launched"),
}
GENERIC = ("--convention=generic",)
PER_RANK = ("idle_ns", "window_ns", "compute_ns", "barrier_ns")
NOT_HAD = {
    "backend": "the library behind torch.distributed changes nothing that is measured",
    "baseTimeNanoseconds": "times stay on the file's own clock, on which all of one file is compared",
    "bytes": "no metric counts the bytes of copies",
    "collectives": "held by the tests of the collectives",
    "_all_lines_sum_ns": "the lanes of XLA repeat the time of the kernels",
    "kind": "a stream with any compute is a compute stream: the purpose says so",
}
"""Figures that no command of these tests prints, and why."""
NO_COMMUNICATION_STREAM = ("compute", "shared")
"""The reference calls a stream that communicates and computes `compute`: on it nothing hides the other."""
COPIES = "full_memcpy_H2D_D2H_P2P_as_comm"
"""The figures under a convention with copies of these kinds: see test_copies_as_communication."""

Figures = dict[str, Any]


def wanted(expected: Mapping[str, Any]) -> Figures:
    """The figures that a command should give."""
    return {name: figure for name, figure in expected.items() if name not in NOT_HAD}


def figures_of(path: Path, *options: str) -> Figures:
    """What the commands say of one rank's window, under the names of the expected figures; {}: it holds no kernel."""
    asked = run("rows", *PER_RANK, "--trace", path, *options, "--format=json")
    if asked.exit_code == 3:
        assert "holds no kernel" in asked.stderr
        assert asked.stdout == ""
        return {}
    assert asked.exit_code == 0, asked.stderr
    found = json.loads(asked.stdout)
    values = {name: row[name] for row in found["rows"] for name in PER_RANK if name in row}
    busy_ns = values["window_ns"] - values["idle_ns"]
    streams = answer("--view=streams", path, *options)["rows"]
    n_comm = sum(row["comm_kernels"] for row in streams)
    sums, walls = _communication(path, n_comm, *options)
    beside = sum(row["comm_ns"] for row in streams if row["purpose"] in NO_COMMUNICATION_STREAM)
    assert beside == values["barrier_ns"]
    (window,) = found["windows"]
    return {
        **{name: values[name] for name in ("idle_ns", "window_ns")},
        "busy_ns": busy_ns,
        "comp_sum_ns": values["compute_ns"],
        "comp_union_ns": busy_ns - walls["exposed_union_ns"],
        "comm_sum_ns": sum(row["comm_ns"] for row in streams),
        "exposed_sum_ns": walls["exposed_union_ns"] if sums is None else sums,
        **walls,
        "n_comm": n_comm,
        "n_comp": sum(row["compute_kernels"] for row in streams),
        "n_kernels": n_comm + sum(row["compute_kernels"] for row in streams),
        "barrier_ns": values["barrier_ns"],
        "comm_streams": sorted(row["stream"] for row in streams if row["purpose"] not in NO_COMMUNICATION_STREAM),
        "comp_streams": sorted(row["stream"] for row in streams if row["purpose"] in NO_COMMUNICATION_STREAM),
        "exposed_ns": sums or 0,
        "window": [window["start"], window["end"]],
        "gpu_span": [window["gpu_start"], window["gpu_end"]] if "gpu_start" in window else None,
    }


def _communication(path: Path, n_comm: int, *options: str) -> tuple[int | None, Figures]:
    """Σ exposed of communication streams (None: there are none, all is barrier), and the unions."""
    if not n_comm:
        return 0, dict.fromkeys(("exposed_union_ns", "overlap_ns", "comm_union_ns"), 0)
    rows = answer("rows", "wall_exposed_all_ns", "wall_overlap_all", "--trace", path, *options)["rows"]
    values = {name: value for row in rows for name, value in row.items()}
    exposed, share = values["wall_exposed_all_ns"], values["wall_overlap_all"]
    union = round(exposed / (1 - share))
    staged = run("rows", "exposed_ns", "--where=stage=none", "--trace", path, *options, "--format=json")
    sums = sum(row["exposed_ns"] for row in json.loads(staged.stdout)["rows"]) if staged.exit_code == 0 else None
    return sums, {"exposed_union_ns": exposed, "overlap_ns": union - exposed, "comm_union_ns": union}


def check_mode(path: Path, mode: str, expected: Mapping[str, Any], *options: str) -> None:
    found = figures_of(path, *options, *MODES[mode])
    if mode == "launched_any_thread":  # the window in GPU time of this mode is ours alone
        assert not {"idle_ns", "window_ns", "window"} & expected.keys()
    window = answer("--view=ranks", path, *options, *MODES[mode])["rows"]
    if not found:
        found = dict.fromkeys(expected, 0) | {"comm_streams": [], "comp_streams": []}
        found |= dict.fromkeys(("idle_ns", "window_ns"), window[0]["length_ns"])
    found["window"] = [window[0]["start_ns"], window[0]["end_ns"]]
    assert {name: found[name] for name in wanted(expected)} == wanted(expected)


def check_anchored(path: Path, anchored: Figures, *options: str) -> None:
    """One anchor of one rank: its window, and every mode that others measured."""
    (row,) = answer("--view=ranks", path, *options)["rows"]
    said = {name: row[key] for name, key in (("index", "index"), ("n", "count"), ("name", "window"))}
    said |= {"window": [row["start_ns"], row["end_ns"]], "duration_ns": row["length_ns"]}
    modes = {mode: figures for mode, figures in anchored.items() if mode in MODES}
    rest = {name: figure for name, figure in anchored.items() if name not in (*modes, "pithtrain")}
    assert {name: figure for name, figure in rest.items() if not name.startswith("dur_")} == said
    for mode, figures in modes.items():
        check_mode(path, mode, figures, *options)
    if "pithtrain" in anchored:
        check_mode(path, "contained", anchored["pithtrain"], *options)


def check_export(path: Path, expected: Figures) -> None:
    """Every figure of an export of nsys."""
    ranks = sorted(expected["result"].items(), key=lambda item: int(item[0].removeprefix("pid ")))
    counts = [check_process(path, rank, pid, figures) for rank, (pid, figures) in enumerate(ranks)]
    assert sum(counts) == expected["n_kernels"]
    unlaunched = sum(figures["kernels_without_launch_row"] for _, figures in ranks)
    with captures(path, convention=BUILT_IN_CONVENTIONS["generic"]) as opened:
        found = find_unlaunched(opened.runs[0].load_windows(opened.make_spec("run")))
    assert (found.unlaunched_count, found.kernel_count) == (unlaunched, sum(counts))
    assert expected.keys() == {"n_kernels", "result"}


def check_process(path: Path, rank: int, pid: str, figures: Figures) -> int:
    """Every figure of one process; how many kernels it has."""
    options = (*GENERIC, f"--rank={rank}")
    streams = answer("--view=streams", path, *options, "--window=run")["rows"]
    assert {f"pid {row['pid']}" for row in streams} == {pid}
    assert {row["device"] for row in streams} == set(figures["devices"])
    found = {str(row["stream"]): _stream(row) for row in streams}
    assert found == {name: wanted(stream) for name, stream in figures["streams"].items()}
    full = figures_of(path, *options, "--window=run")
    assert {name: full[name] for name in figures["full"]} == figures["full"]
    for anchor, anchored in figures["anchors"].items():
        check_anchored(path, anchored, *options, f"--window={anchor}")
    checked = {"anchors", "devices", "full", "streams", "kernels_without_launch_row"}
    assert figures.keys() - NOT_HAD.keys() - {COPIES} == checked
    kernels: int = full["n_kernels"]
    return kernels


def _stream(row: Figures) -> Figures:
    return {
        "n": row["comm_kernels"] + row["compute_kernels"],
        "n_comm": row["comm_kernels"],
        "sum_ns": row["comm_ns"] + row["compute_ns"],
    }


@pytest.mark.parametrize("name", [name for name in EXPORTS if name.endswith(".sqlite")])
@pytest.mark.sampled(3)
def test_an_export(name: str) -> None:
    check_export(REAL / name, EXPORTS[name])


def test_copies_as_communication(tmp_path: Path) -> None:
    convention = tmp_path / "copies.yaml"
    convention.write_text("extends: generic\ncopies: [host_to_device, device_to_host, peer]\n")
    found = 0
    for name, expected in EXPORTS.items():
        ranks = sorted(expected["result"].items(), key=lambda item: int(item[0].removeprefix("pid ")))
        for rank, (_, figures) in enumerate(ranks):
            if COPIES in figures:
                found += 1
                options = (f"--convention={convention}", "--window=run", f"--rank={rank}")
                had, copies = figures_of(REAL / name, *options), wanted(figures[COPIES])
                assert {figure: had[figure] for figure in copies} == copies
    assert found == 2


@needs_nsys
def test_a_report(tmp_path: Path) -> None:
    """Others exported it by two versions, with the same figures."""
    first, *more = [figures for name, figures in EXPORTS.items() if name.startswith("mordred.qdrep")]
    assert more == [first]
    check_export(Path(shutil.copyfile(REAL / "mordred.qdrep", tmp_path / "mordred.qdrep")), first)


def test_the_durations_of_all_anchors(tmp_path: Path) -> None:
    path, rank = REAL / "mfu_2gpu_before.sqlite", EXPORTS["mfu_2gpu_before.sqlite"]["result"]["pid 144"]
    anchor = "FSDP::pre_forward (blocks.%"
    figures = rank["anchors"][anchor]
    parts = tmp_path / "parts.yaml"
    parts.write_text(f"extends: generic\nanchor: {json.dumps(anchor)}\npart: true\n")
    options = (f"--convention={parts}", "--rank=0")
    rows = [answer("--view=ranks", path, *options, f"--window={k}")["rows"][0] for k in range(figures["n"])]
    lengths = [row["length_ns"] for row in rows]
    assert (min(lengths), max(lengths)) == (figures["dur_min_ns"], figures["dur_max_ns"])
    assert statistics.median(lengths) == figures["dur_median_ns"]


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.sampled(3)
def test_a_trace_of_torch(name: str) -> None:
    path, expected = REAL / name, wanted(TORCH[name])
    options = ("--convention=kineto",)
    whole = (*options, "--window=run")
    full = figures_of(path, *whole)
    assert {figure: full[figure] for figure in expected["full"]} == expected["full"]
    streams = answer("--view=streams", path, *whole)["rows"]
    assert {f"dev {row['device']} stream {row['stream']}": _stream(row) for row in streams} == expected["streams"]
    assert full["n_kernels"] == expected["n_kernels"]
    (rank,) = answer("--view=ranks", path, *whole)["rows"]
    if expected["rank"] is None:
        assert (rank["setup"], expected["world_size"]) == (None, None)
    else:
        assert str(rank["rank"]) == expected["rank"]
        assert f"rank {expected['rank']} of {expected['world_size']}" in rank["setup"]
    if "anchor user_annotation" in expected:
        anchored = expected["anchor user_annotation"]
        # The anchors of the trace without steps are both of its annotations, which no other range's name is like.
        anchor = "ProfilerStep#%" if anchored["name"].startswith("ProfilerStep") else "%32%"
        check_anchored(path, anchored, *options, f"--window={anchor}")
    assert expected.keys() <= {"full", "streams", "n_kernels", "rank", "world_size", "anchor user_annotation"}


def test_a_trace_of_jax() -> None:
    name = "jax_te_attn.trace.json.gz"
    ((device, lanes),) = expected_figures()[name].items()
    options = ("--window=run", "--convention=jax")
    (row,) = answer("--view=streams", REAL / name, *options)["rows"]
    stream = lanes[f"Stream #{row['stream']}"]
    assert device == f"/device:GPU:{row['device']}"
    assert _stream(row) == {"n": stream["n"], "n_comm": 0, "sum_ns": stream["sum_ns"]}
    assert stream["sum_ns"] == lanes["_kernel_sum_ns"]
    assert figures_of(REAL / name, *options)["busy_ns"] == stream["union_ns"]
    repeated = {lane for lane in wanted(lanes) if not lane.startswith(("Stream #", "_"))}
    kinds = ("Framework Name Scope", "Framework Ops", "XLA Modules", "XLA Ops")
    assert repeated == {f"{kind} - from #2" for kind in kinds}


def test_files_of_one_job_are_one_run(tmp_path: Path) -> None:
    for name in ("hta_sampled_rank-0.json.gz", "hta_sampled_rank-1.json.gz"):
        (tmp_path / name).symlink_to(REAL / name)
    found = answer("rows", "compute_ns", "--trace", tmp_path, "--convention", "kineto")
    assert [(row["rank"], row["compute_ns"]) for row in found["rows"]] == [(0, 106252000), (1, 135548000)]


def test_every_file_is_accounted_for() -> None:
    named = {name.split(" ")[0] for name in expected_figures()}
    beside = {path.name for path in REAL.iterdir()} - named - {"expected.json", "SOURCES.md"}
    assert beside == {*CPU_ONLY, "jtb_pdl_2p2c.nsys-rep"}  # the report of a newer nsys: see test_nsys_reports


@pytest.mark.parametrize("name", CPU_ONLY)
def test_a_profile_of_a_cpu_is_one_line(name: str) -> None:
    convention, why = CPU_ONLY[name]
    for command in (["--view=ranks"], ["--view=streams"], ["--view=overlap"], ["rows", "idle_ns", "--trace"]):
        result = run(*command, REAL / name, f"--convention={convention}")
        assert result.exit_code == 3
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert f"{(REAL / name).resolve()}: {why}" in result.stderr


PRINTED = {
    "show_setup": ("ranks", ("pid", "setup")),
    "find_window": ("ranks", ("pid", "start_ns", "end_ns", "window")),
    "classify_streams": (
        "streams",
        ("pid", "stream", "comm_kernels", "compute_kernels", "comm_ns", "compute_ns", "purpose"),
    ),
    "compute_overlap": ("overlap", ("pid", "stage", "exposed_ns", "overlap", "overlap_min", "overlap_max")),
}
"""What each script of the reference prints: the view that has it, and its columns."""
OVERLAPS = ("overlap", "exposed_ns", "comm_ns", "wall_overlap", "wall_exposed_ns")


def _by_process(figures: Figures) -> list[Figures]:
    """The figures of each rank: without labels the order is that of processes."""
    return [figures["result"][pid] for pid in sorted(figures["result"], key=lambda name: int(name.split()[1]))]


ANCHORS = [
    pytest.param(REAL / name, rank, anchor, mode, figures["anchors"][anchor], id=f"{name}-rank{rank}-{anchor}-{mode}")
    for name, trace in EXPORTS.items()
    if name.endswith(".sqlite")
    for rank, figures in enumerate(_by_process(trace))
    for anchor in figures["anchors"]
    for mode in MODES
    if mode in figures["anchors"][anchor]
]


def _as_printed(value: object) -> str:
    """As the scripts have it: a ratio to the hundredth of a percent."""
    return f"{round(100 * value, 2)}%" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("script", PRINTED)
@pytest.mark.parametrize("name", DUALPIPE_RUNS)
def test_dualpipe_views_have_the_figures_of_the_reference(name: str, script: str) -> None:
    view, columns = PRINTED[script]
    _, rule, *lines = (DUALPIPE / f"{name}.{script}.txt").read_text().rstrip("\n").splitlines()
    ends = [match.span() for match in re.finditer("-+", rule)]
    reference = [tuple(line[start:end].strip() for start, end in ends) for line in lines]
    rows = answer(f"--view={view}", DUALPIPE / f"{name}.sqlite")["rows"]
    for row in rows:
        if row.get("purpose") in NO_COMMUNICATION_STREAM:
            row["purpose"] = "compute"
    assert sorted(tuple(_as_printed(row[name]) for name in columns) for row in rows) == sorted(reference)


@pytest.mark.parametrize("name", DUALPIPE_RUNS)
def test_one_rank_is_its_lines_of_the_whole(name: str) -> None:
    everything = run("--view=overlap", DUALPIPE / f"{name}.sqlite", "--format", "csv").stdout.splitlines()
    one = run("--view=overlap", DUALPIPE / f"{name}.sqlite", "--format", "csv", "--rank", "3").stdout.splitlines()
    column = everything[0].split(",").index("rank")
    assert one == [everything[0], *(line for line in everything[1:] if line.split(",")[column] == "3")]


def _expected_kernels(figures: dict[str, Any]) -> int:
    kernels: int = figures["n_kernels"] if "n_kernels" in figures else figures["n_comm"] + figures["n_comp"]
    return kernels


@pytest.mark.parametrize(("path", "rank", "anchor", "mode", "anchored"), ANCHORS)
@pytest.mark.sampled(5)
def test_without_communication_no_overlap(
    path: Path, rank: int, anchor: str, mode: str, anchored: dict[str, Any]
) -> None:
    """All communication of these traces is barrier, so no overlap may be claimed, of whatever definition."""
    options = ("--convention", "generic", "--window", anchor, "--rank", str(rank), *MODES[mode])
    result = run("rows", *OVERLAPS, "--where", "rank=" + str(rank), "--trace", path, *options)
    assert result.exit_code == 3
    if _expected_kernels(anchored[mode]):
        barriers = bool(anchored[mode].get("comm_sum_ns"))
        view = run("--view=overlap", path, *options, "--format", "json", code=0 if barriers else 3)
        if barriers:
            found = json.loads(view.stdout)
            assert found["rows"] == found["ranks"]
            assert {row["rank"] for row in found["ranks"]} == {rank}
            assert "): only wall_exposed_all and wall_overlap_all count " in view.stderr
            assert "): only wall_exposed_all and wall_overlap_all count " in result.stderr
        else:
            assert "no communication kernel in the window" in view.stderr
        assert run("--view=overlap", path, *options, "--where", "stage=none").exit_code == 3
    else:
        assert "holds no kernel" in result.stderr
