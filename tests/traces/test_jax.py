"""Does a trace of JAX give the numbers that are in it, of one process or many, and a broken one a clear line?"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.traces.chrome import jax, json_stream
from pytest_nsys.traces.chrome.jax import JaxTrace
from pytest_nsys.traces.trace_files import find_traces
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.measure import captures, notes, rows, windows
from tests.support.reference_data import REAL
from tests.support.samples.jax import JaxBuilder

JAX = BUILT_IN_CONVENTIONS["jax"]
AT = 9_716_533_018
MS = 1_000_000
Edit = Callable[[JaxBuilder], object]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that every trace of these tests has several, and its end is no special one."""
    for name in ("BLOCK", "FIRST_WINDOW"):
        monkeypatch.setattr(json_stream, name, 700)
    for name in ("PIECE", "TAIL"):
        monkeypatch.setattr(json_stream, name, 300)


def jax_trace(
    gpus: tuple[int, ...] = (0,), *, steps: int = 5, slower_us: int = 0, edit: Edit | None = None
) -> JaxBuilder:
    """Steps of 1 ms; in each, on GPU i, a fusion of 300 + i us and NCCL of 200 us of which the last 50 - i are exposed.
    ``slower_us`` makes NCCL longer, all of it exposed.
    """
    trace = JaxBuilder()
    for k in range(steps):
        begin = AT + MS * k
        trace.step("train", k, begin, begin + 990_000)
        for i in gpus:
            fused = begin + 400_000 + 1_000 * i
            trace.kernel("loop_fusion", begin + 100_000, fused, launch_ns=begin + 20_000, device=i)
            end = begin + 450_000 + 1_000 * slower_us
            name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            trace.kernel(name, begin + 250_000, end, stream=28, launch_ns=begin + 30_000, device=i)
    if edit is not None:
        edit(trace)
    return trace


def exposed(path: Path) -> object:
    return rows(path, "wall_exposed_ns", convention=JAX)


# -- what is in one file


def test_only_the_lanes_of_streams_count(tmp_path: Path) -> None:
    path = jax_trace().write(tmp_path / "host.trace.json.gz")
    assert rows(path, "compute_ns", convention=JAX) == {0: 300_000}
    assert exposed(path) == {0: 50_000}
    with captures(path, convention=JAX) as opened:
        assert len(opened.runs[0].load_whole_run().tracks[0].kernels) == 10


def test_steps_are_the_anchors(tmp_path: Path) -> None:
    (window,) = windows(jax_trace().write(tmp_path / "a.json"), convention=JAX)
    assert (window.name, window.index, window.count) == ("train step_num=2", 2, 5)
    assert (window.start_ns, window.length_ns) == (AT + 2 * MS, MS)


def test_a_kernel_is_of_the_step_that_launched_it(tmp_path: Path) -> None:
    def late(trace: JaxBuilder) -> None:
        trace.kernel("late", AT + 3_500_000, AT + 3_600_000, launch_ns=AT + 2_500_000)

    path = jax_trace(edit=late).write(tmp_path / "a.json")
    assert rows(path, "compute_ns", convention=JAX) == {0: 400_000}
    assert rows(path, "compute_ns", convention=JAX, kernels="contained") == {0: 300_000}


def test_copies_python_and_other_lanes_are_nothing(tmp_path: Path) -> None:
    def more(trace: JaxBuilder) -> None:
        trace.kernel("MemcpyD2D", AT + 2_500_000, AT + 2_600_000, launch_ns=AT + 2_040_000)
        trace.kernel("fill", AT + 2_500_000, AT + 2_600_000, launch_ns=AT + 2_040_000, memset_details="value:0")
        trace.range("$profiler.py:101 start_trace", AT, AT + 9 * MS)
        trace.range("PjitFunction(step)", AT + 2_010_000, AT + 2_020_000)
        trace.api("cuStreamSynchronize", AT + 2_700_000)

    path = jax_trace(edit=more).write(tmp_path / "a.json")
    assert rows(path, "compute_ns", convention=JAX) == {0: 300_000}
    assert rows(path, "syncs", convention=JAX) == {0: 1}
    trace = JaxTrace(path)
    ((pid, found),) = trace.ranges(["%"]).items()
    assert {r.name for r in found} == {*(f"train step_num={k}" for k in range(5)), "PjitFunction(step)"}
    assert pid > 0


def test_lanes_named_after_their_events(tmp_path: Path) -> None:
    text = json.loads(jax_trace().text())
    text["traceEvents"].reverse()
    path = tmp_path / "a.json"
    path.write_text(json.dumps(text))
    assert exposed(path) == {0: 50_000}


def test_kernels_of_a_graph_count_one_by_one(tmp_path: Path) -> None:
    def graph(trace: JaxBuilder) -> None:
        number = trace.api("cuGraphLaunch", AT + 2_050_000)
        for i in range(3):
            begin = AT + 2_500_000 + 20_000 * i
            trace.kernel("node", begin, begin + 10_000, correlation=number, cuda_graph_id="5")

    path = jax_trace(edit=graph).write(tmp_path / "a.json")
    assert rows(path, "compute_ns", convention=JAX) == {0: 330_000}
    with captures(path, convention=JAX) as opened:
        assert sum(opened.runs[0].load_whole_run().tracks[0].kernels.graph_node) == 3


def test_the_last_step_is_left_out_where_its_kernels_are_missing(tmp_path: Path) -> None:
    def cut(trace: JaxBuilder) -> None:
        trace.step("train", 5, AT + 5 * MS, AT + 6 * MS)
        trace.api("cuLaunchKernel", AT + 5_100_000)

    path = jax_trace(edit=cut).write(tmp_path / "a.json")
    assert [w.count for w in windows(path, convention=JAX)] == [5]
    said = notes(path, "overlap", convention=JAX)
    assert any("the last step, train step_num=5, is incomplete and left out" in text for text in said)
    assert any("1 of the 8 GPUs that it names ran a kernel" in text for text in said)


# -- many GPUs, many files


def test_one_process_with_all_gpus_of_its_node(tmp_path: Path) -> None:
    path = jax_trace(gpus=(0, 1, 2, 3)).write(tmp_path / "host.trace.json.gz")
    assert rows(path, "compute_ns", convention=JAX) == {i: 300_000 + 1_000 * i for i in range(4)}
    assert exposed(path) == {i: 50_000 - 1_000 * i for i in range(4)}


def test_one_process_for_each_gpu(tmp_path: Path) -> None:
    for i in (10, 2, 0):
        jax_trace(slower_us=i).write(tmp_path / f"host{i}.trace.json.gz")
    assert exposed(tmp_path) == {0: 50_000, 1: 52_000, 2: 60_000}


@pytest.mark.parametrize("below", ["plugins/profile", "profile", "."])
def test_one_window_may_be_split_over_folders(tmp_path: Path, below: str) -> None:
    for i, host in enumerate(("node1", "node2", "node1")):
        folder = tmp_path / below / f"2025_01_31_23_59_5{i}"
        jax_trace(slower_us=i).write(folder / f"{host}.trace.json.gz")
        (folder / f"{host}.xplane.pb").write_bytes(b"\x0a")
        jax_trace(slower_us=i).write(folder / "perfetto_trace.json.gz")
    assert exposed(tmp_path) == {0: 50_000, 1: 52_000, 2: 51_000}


def test_a_process_that_comes_twice(tmp_path: Path) -> None:
    for second in (1, 2):
        jax_trace().write(tmp_path / f"2025_01_31_23_59_5{second}" / "node.trace.json.gz")
    with pytest.raises(UsageMistake, match=r"hold the same bytes: one process would count twice"):
        exposed(tmp_path)


@pytest.mark.parametrize("folder", ["2025_01_31_23_59_51", "."])
def test_a_profile_without_its_json(tmp_path: Path, folder: str) -> None:
    jax_trace().write(tmp_path / folder / "node1.trace.json.gz")
    (tmp_path / folder / "node2.xplane.pb").write_bytes(b"\x0a")
    with pytest.raises(UsageMistake, match=r"node2\.xplane\.pb without its trace\.json\.gz: .*xprof"):
        find_traces(str(tmp_path), Path())


@pytest.mark.parametrize(
    "given", ["", "plugins", "plugins/profile", "plugins/profile/2025_01_31_23_59_51", "{}/host.xplane.pb"]
)
def test_at_every_level_the_error_says_how_to_convert_a_profile(tmp_path: Path, given: str) -> None:
    folder = tmp_path / "plugins" / "profile" / "2025_01_31_23_59_51"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(b"\x0a")
    line = run("--view=overlap", tmp_path / given.format(folder), code=2).stderr
    assert line.count("\n") == 1
    _, _, command = line.partition("or convert it: python -c ")
    converted: list[object] = []

    def tool(*asked: object) -> tuple[str, str]:
        converted.extend(asked)
        return jax_trace().text(), "application/json"

    module = ModuleType("xprof.convert.raw_to_tool_data")
    module.xspace_to_tool_data = tool  # type: ignore[attr-defined]
    names = ("xprof", "xprof.convert", "xprof.convert.raw_to_tool_data")
    with pytest.MonkeyPatch.context() as patched:
        for name in names:
            patched.setitem(sys.modules, name, module)
        exec(command.strip().strip('"'), {})
    assert converted == [[str(folder / "host.xplane.pb")], "trace_viewer", {}]
    assert exposed(tmp_path) == {0: 50_000}


@pytest.mark.parametrize("below", [0, 1])
def test_the_most_events_of_xprof_are_doubted(project: Project, monkeypatch: pytest.MonkeyPatch, below: int) -> None:
    trace = jax_trace()
    trace.write(project.root / "host.trace.json.gz")
    count = sum(event["ph"] != "M" for event in trace.events)
    monkeypatch.setattr(jax, "MAX_EVENTS", count + below)
    project.gate("convention: jax\ntrace: host.trace.json.gz\nassertions: [wall_exposed_ns < 60us]")
    said = project.pytest(code=0 if below else 1)
    assert (f"holds exactly {count} events, where XProf stops: later events were dropped" in said) is not bool(below)
    assert ("trace quality: events were dropped" in said) is not bool(below)
    told = run("--view=overlap", project.root / "host.trace.json.gz", "--convention=jax", code=0).output
    assert ("later events were dropped" in told) is not bool(below)


# -- the gate


GATE = "convention: jax\nrun: {{world: {}}}{}\nassertions:\n  - wall_exposed_ns < 60us\n"


def test_gpus_are_held_against_the_world_that_the_gate_states(project: Project) -> None:
    for i in (0, 1):
        jax_trace(gpus=(0, 1), slower_us=i).write(project.root / f"run/host{i}.trace.json.gz")
    project.gate(GATE.format(4, ""))
    project.pytest("--nsys-trace=run", code=0)
    project.gate(GATE.format(8, ""))
    said = project.pytest("--nsys-trace=run", code=1)
    assert (
        "trace quality: 4 of 8 GPUs are missing (bound: at most 0): the gate file states world 8, and 4 GPUs ran"
        in " ".join(said.split())
    )
    project.gate(GATE.format(8, "\nquality: {missing_ranks: 4}"))
    project.pytest("--nsys-trace=run", code=0)
    project.gate(GATE.format(2, ""))
    said = project.pytest("--nsys-trace=run", code=1)
    assert (
        "4 GPUs ran kernels in 2 files, but the gate file states world 2: correct run: {world: …}, or give the files "
        "of one profiling window, or each capture by its own --nsys-trace" in " ".join(said.split())
    )


# -- real traces


@pytest.mark.reference
def test_every_kernel_of_the_real_trace_has_its_launch() -> None:
    trace = JaxTrace(REAL / "jax_te_attn.trace.json.gz")
    (lane,) = trace.lanes()
    kernels = trace.kernels({lane: None})[lane]
    launches = trace.launch_calls({lane: kernels})[lane].start_ns
    assert all(0 < launch <= start for launch, start in zip(launches, kernels.start_ns, strict=True))
