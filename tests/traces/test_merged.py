"""Does one file that was merged of several ranks' traces give the figures of these, and is another mixture an error?"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import TraceError
from pytest_nsys.traces.chrome import json_stream
from pytest_nsys.traces.chrome.kineto import KinetoTrace
from pytest_nsys.traces.chrome.rank_labels import (
    parse_process_number,
    parse_rank_label,
    resolve_label_ranks,
    sort_labels,
)
from tests.support.measure import captures, notes, rows_of, windows
from tests.support.samples.gpu_state import torch_memory
from tests.support.samples.kineto import KinetoBuilder
from tests.traces.test_cut_trace import cut

KINETO = BUILT_IN_CONVENTIONS["kineto"]
STEP_NS, STEPS = 4_060_000, 5
BASE_NS = 1_700_000_000_000_000_000
METRICS = (
    *("step_time_ns", "period_ns", "window_ns", "compute_ns", "comm_ns", "exposed_ns", "overlap", "launches"),
    *("device_idle_ns", "launch_starved_ns", "blocking_ns", "between_steps_ns", "syncs"),
    *("collective_bytes", "collective_wait_ns", "collective_transfer_ns", "busbw"),
    *("comm_streams", "peak_allocated_bytes"),
)

Label = Callable[[int], str]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that ranks change inside of one, and most events are read many at once."""
    for name, size in {"BLOCK": 4_000, "PIECE": 2_000, "TAIL": 300}.items():
        monkeypatch.setattr(json_stream, name, size)


def rank_trace(
    rank: int, world: int = 2, *, pid: int = 1000, device: int = 0, base: int | None = None
) -> KinetoBuilder:
    """Steps of 4.06 ms. Each rank computes for another time, so that the others wait for the last in its collective;
    the numbers of threads, streams and correlations are those of every rank.
    """
    trace = KinetoBuilder(rank, world, pid=pid, device=device)
    if base is not None:
        trace.members["baseTimeNanoseconds"] = base
    for step in range(STEPS):
        begin = STEP_NS * (step + 1) + 7_000 * rank
        late = 100_000 * rank
        said: dict[str, Any] = {
            "Collective name": "allreduce",
            "In msg nelems": 4096,
            "Out msg nelems": 4096,
            "dtype": "Float",
            "Group size": world,
            "Process Group Name": "0",
            "Process Group Ranks": str(list(range(world))),
        }
        trace.range(f"ProfilerStep#{step}", begin, begin + STEP_NS - 10_000)
        trace.kernel("gemm", begin + 100_000, begin + 2_000_000 + late, launch_ns=begin + 20_000)
        record = trace.event_record(begin + 30_000)
        trace.stream_wait(begin + 31_000, record, stream=28)
        trace.kernel(
            "ncclDevKernel_AllReduce",
            begin + 2_000_000 + late,
            begin + 3_000_000,
            stream=28,
            launch_ns=begin + 40_000,
            **said,
        )
        trace.memcpy(begin + 3_000_000, begin + 3_050_000, launch_ns=begin + 50_000)
        trace.api("cudaDeviceSynchronize", begin + 60_000, begin + 3_060_000)
        torch_memory(trace, begin + 25_000, 1_000 * (rank + 1), 5_000 * (rank + 1) + step)
    trace.recorded_until(STEP_NS * (STEPS + 2))
    return trace


def merged(path: Path, traces: Sequence[KinetoBuilder], label: Label, *, order: Sequence[int] | None = None) -> Path:
    """All traces as one: each process number behind a label, and of the root what the first says."""
    contents = [json.loads(trace.text(), parse_float=lambda text: f"<{text}>") for trace in traces]
    events: list[dict[str, Any]] = []
    members: dict[str, Any] = {}
    for i in order or range(len(traces)):
        events += [{**event, "pid": f"{label(i)}{event.get('pid', '')}"} for event in contents[i]["traceEvents"]]
        members = {**contents[i], **members}
    members["deviceProperties"] = [one for content in contents for one in content["deviceProperties"]]
    text = json.dumps({**members, "traceEvents": events})
    for mark in ('"<', '>"'):
        text = text.replace(mark, "")
    path.write_text(text)
    return path


def figures(path: Path) -> Mapping[str, object]:
    """Every row of all ranks, and the median step of each."""
    with captures(path, convention=KINETO) as opened:
        found: dict[str, object] = {name: rows_of(opened, name, opened.make_spec("median")) for name in METRICS}
        (run,) = opened.runs
        ranks = [(rank.number, rank.pid) for rank in run.ranks]
    spans = [(window.start_ns, window.end_ns, window.count) for window in windows(path, convention=KINETO)]
    return found | {"ranks": ranks, "windows": spans}


def separate(folder: Path, traces: Sequence[KinetoBuilder]) -> Path:
    """The same traces, a file for each."""
    for rank, trace in enumerate(traces):
        trace.write(folder / f"rank{rank}.json")
    return folder


STYLES: Mapping[str, Label] = {
    "sglang": lambda i: f"[TP{i:02d}] ",
    "sglang with data parallelism": lambda i: f"[TP{i:02d}-DP{i // 2:02d}] ",
    "in words": lambda i: f"rank{i} ",
    "joined": lambda i: f"Rank-{i}:",
}
NO_LABEL: Label = ["", ""].__getitem__
OTHER_WORDS: Label = ["worker a ", "worker b "].__getitem__


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("base", [None, BASE_NS], ids=["", "since 1970"])
@pytest.mark.parametrize("same", [True, False], ids=["one number", "own numbers"])
@pytest.mark.sampled(5)
def test_a_merged_file_has_the_figures_of_its_files(tmp_path: Path, style: str, base: int | None, same: bool) -> None:
    numbers: list[dict[str, int]] = [{} if same else {"pid": 1000 + rank, "device": rank} for rank in range(2)]
    traces = [rank_trace(rank, base=base, **own) for rank, own in enumerate(numbers)]
    expected = figures(separate(tmp_path / "run", traces))
    assert expected["compute_ns"] == {0: 1_900_000, 1: 2_000_000}
    assert expected["step_time_ns"]
    for name in ("collective_wait_ns", "peak_allocated_bytes", "collective_bytes"):
        assert expected[name]
    assert figures(merged(tmp_path / "all.json", traces, STYLES[style])) == expected
    backwards = merged(tmp_path / "backwards.json", traces, STYLES[style], order=(1, 0))
    assert figures(backwards) == expected


def test_it_is_told_that_the_file_was_merged(tmp_path: Path) -> None:
    path = merged(tmp_path / "all.json", [rank_trace(rank) for rank in range(2)], STYLES["sglang"])
    assert f"{path}: was merged of 2 ranks: [TP00], [TP01]" in notes(path, "compute_ns", convention=KINETO)


def test_every_rank_of_a_cut_of_a_merged_file_is_there(tmp_path: Path) -> None:
    path = merged(tmp_path / "all.json", [rank_trace(rank) for rank in range(2)], STYLES["sglang"])
    window = cut(path, "--convention=kineto")
    with captures(path, convention=KINETO) as whole, captures(window, convention=KINETO) as part:
        for name in ("compute_ns", "exposed_ns", "window_ns"):
            assert rows_of(part, name, part.make_spec("median")) == rows_of(whole, name, whole.make_spec("median"))


def test_the_rest_of_what_a_process_says_is_its_own_too(tmp_path: Path) -> None:
    """Calls of modules, arrows, and where the recording ended."""
    traces = [rank_trace(rank) for rank in range(2)]
    for rank, trace in enumerate(traces):
        trace.module(f"Block_{rank}", STEP_NS + 10_000, STEP_NS + 20_000)
        trace.kernel("by arrow", 6 * STEP_NS, 6 * STEP_NS + 1_000, correlation=9_000)
        called_ns = 5 * STEP_NS + 1_000 * rank
        trace.event("ac2g", "ac2g", called_ns, called_ns, ph="s", id=9_000)
    traces[1].events = [event for event in traces[1].events if event["name"] != "Record Window End"]
    traces[1].recorded_until(5 * STEP_NS)
    opened = KinetoTrace(merged(tmp_path / "all.json", traces, STYLES["sglang"]))
    assert [own[0].name for own in opened.module_calls().values()] == ["nn.Module: Block_0", "nn.Module: Block_1"]
    launched = [process.launches.build_start_map()[9_000] for process in opened.processes.values()]
    assert launched == [5 * STEP_NS, 5 * STEP_NS + 1_000]
    (note,) = [note for note in opened.facts().notes if "incomplete" in note]
    assert "the recording ended inside it" in note


def test_what_no_axis_tells_apart_is_numbered_in_order(tmp_path: Path) -> None:
    traces = [rank_trace(rank, 4) for rank in range(4)]
    path = merged(tmp_path / "all.json", traces, lambda i: f"[TP{i % 2:02d}-PP{i // 2:02d}] ", order=(3, 1, 0, 2))
    with captures(path, convention=KINETO) as opened:
        (run,) = opened.runs
        assert [rank.number for rank in run.ranks] == [0, 1, 2, 3]
        found = rows_of(opened, "compute_ns", opened.make_spec("median"))
    assert found == {0: 1_900_000, 1: 2_100_000, 2: 2_000_000, 3: 2_200_000}


def test_a_rank_that_no_label_names_is_told_as_missing(tmp_path: Path) -> None:
    traces = [rank_trace(rank, 4) for rank in (1, 3)]
    path = merged(tmp_path / "all.json", traces, lambda i: f"[TP{2 * i + 1:02d}] ")
    with captures(path, convention=KINETO) as opened:
        assert [rank.number for rank in opened.runs[0].ranks] == [1, 3]
    assert any(
        "2 of 4 ranks are missing: no trace holds ranks 0, 2 of the setup labels' mesh" in note
        for note in notes(path, convention=KINETO)
    )


def test_one_label_alone_is_one_rank(tmp_path: Path) -> None:
    path = merged(tmp_path / "all.json", [rank_trace(0)], STYLES["sglang"])
    assert figures(path) == figures(separate(tmp_path / "run", [rank_trace(0)]))


def test_a_process_beside_the_labelled_ones_is_one_of_them(tmp_path: Path) -> None:
    traces = [rank_trace(rank) for rank in range(2)]
    path = merged(tmp_path / "all.json", traces, lambda i: "[TP01] " if i else "")
    text = path.read_text().replace('"pid": "1000"', '"pid": 1000').replace('"pid": "0"', '"pid": 0')
    path.write_text(text)
    assert "was merged of 2 ranks: one without, [TP01]" in " ".join(notes(path, convention=KINETO))
    with captures(path, convention=KINETO) as opened:
        assert rows_of(opened, "compute_ns", opened.make_spec("median")) == {0: 1_900_000, 1: 2_000_000}


# -- what cannot be told apart


@pytest.mark.parametrize(
    ("label", "ends", "numbered_from", "said"),
    [
        (NO_LABEL, True, 0, "holds the ends of 2 recordings under one process number"),
        (NO_LABEL, False, 0, "has 10 correlations with two calls and two kernels each"),
        (NO_LABEL, False, 10_000, "is in ProfilerStep#0 twice at one time under one process number"),
        (OTHER_WORDS, True, 0, "holds API calls of 2 processes, whose correlations cannot be told apart"),
    ],
)
def test_processes_of_one_number(tmp_path: Path, label: Label, ends: bool, numbered_from: int, said: str) -> None:
    traces = [rank_trace(rank) for rank in range(2)]
    for args in (event.get("args", {}) for event in traces[1].events):
        if "correlation" in args:
            args["correlation"] += numbered_from
    for trace in traces if not ends else ():
        trace.events = [event for event in trace.events if event["name"] != "Record Window End"]
    path = merged(tmp_path / "all.json", traces, label)
    with pytest.raises(TraceError, match=f"{said}: a merged trace; give the file of each rank"):
        KinetoTrace(path).lanes()


def test_two_ranks_in_the_root_are_two_traces(tmp_path: Path) -> None:
    text = rank_trace(0).text()
    path = tmp_path / "all.json"
    other = '"distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2}, '
    path.write_text("{" + other + text.lstrip()[1:])
    with pytest.raises(TraceError, match="a second distributedInfo: these are two traces"):
        KinetoTrace(path).lanes()
    path.write_text("{" + other.replace('"rank": 1', '"rank": 0') + text.lstrip()[1:])
    assert KinetoTrace(path).lanes()


# -- labels


@pytest.mark.parametrize(
    ("pid", "label", "number"),
    [
        ("[TP00] 1000", "[TP00]", 1000),
        ("[TP00-DP01-PP02-EP03] 0", "[TP00-DP01-PP02-EP03]", 0),
        ("[Unknown] 7", "[Unknown]", 7),
        ("[TP01] Spans", "[TP01]", None),
        ("[TP01] ", "[TP01]", None),
        ("rank12 1000", "rank12", 1000),
        ("Rank_3: 1000", "Rank_3", 1000),
        ("rank0_1000", "rank0", 1000),
        ("Spans", "", None),
        ("", "", None),
        ("Traces", "", None),
        ("GPU 2", "", 2),
        ("ranking 5", "", 5),
        (1000, "", 1000),
    ],
)
def test_a_label_stands_before_the_number(pid: int | str, label: str, number: int | None) -> None:
    assert (parse_rank_label(pid), parse_process_number(pid)) == (label, number)


def test_labels_are_ordered_by_their_numbers() -> None:
    labels = ["[TP10]", "[TP2]", "", "[TP02-DP01]", "[TP01]"]
    assert sort_labels(labels) == ["", "[TP01]", "[TP2]", "[TP02-DP01]", "[TP10]"]


@pytest.mark.parametrize(
    ("labels", "world", "ranks"),
    [
        (("[TP00]", "[TP01]"), None, (0, 1)),
        (("[TP05]", "[TP07]"), 8, (5, 7)),
        (("[TP05]", "[TP07]"), 6, None),
        (("[TP00-DP00]", "[TP01-DP00]", "[TP02-DP01]"), None, (0, 1, 2)),
        (("[DP00-TP00]", "[DP00-TP01]"), None, (0, 1)),
        (("[TP00-PP00]", "[TP00-PP01]", "[TP01-PP00]", "[TP01-PP01]"), None, None),
        (("rank3", "rank 4"), None, (3, 4)),
        (("", "[TP01]"), None, None),
        (("[a]", "[b]"), None, None),
    ],
)
def test_the_rank_of_a_label(labels: Sequence[str], world: int | None, ranks: Sequence[int] | None) -> None:
    expected = {} if ranks is None else dict(zip(labels, ranks, strict=True))
    assert resolve_label_ranks(labels, world) == expected
