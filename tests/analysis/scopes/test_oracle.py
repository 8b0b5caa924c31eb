"""Do the paths of real traces agree with those of a program that knows nothing of this one, and are they complete?

The oracle reads the events of a file itself and looks at every call for every kernel.
"""

import gzip
import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.scopes.scope_times import find_track_directions, find_track_scopes, sum_scopes
from pytest_nsys.core.columns import sum_column
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import KernelsMode
from pytest_nsys.core.scopes import DIRECTIONS, ScopeKind
from tests.analysis.scopes.test_paths import whole_run
from tests.support.measure import captures
from tests.support.reference_data import DUALPIPE, DUALPIPE_RUNS, MORE, REAL, STEPS

Json = Any
WITH_MODULES = (
    MORE / "b200_vllm_eager.json.gz",
    MORE / "vllm_decode_full_graph.json.gz",
    MORE / "vllm_prefilldecode_piecewise.json.gz",
    REAL / "inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz",
    STEPS / "qwen_0.5b_mi300.json.gz",
    STEPS / "switch_transformer_one_forward.json.gz",
    STEPS / "vllm_graph_capture.pt.trace.json.gz",
)
pytestmark = pytest.mark.reference


def read_events(path: Path) -> list[Json]:
    """The events of a file, times as whole nanoseconds."""
    content = path.read_bytes()
    text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    events: list[Json] = json.loads(text, parse_float=str)["traceEvents"]
    for event in events:
        for key in ("ts", "dur"):
            if key in event:
                whole, _, fraction = str(event[key]).partition(".")
                event[key] = int(whole) * 1000 + int((fraction + "000")[:3])
    return events


def find_module_paths(path: Path) -> dict[tuple[int, int], str]:
    """The path of the module whose call holds the launch of each kernel, by (correlation, start)."""
    events = read_events(path)
    calls = [e for e in events if e.get("cat") == "python_function" and e["name"].startswith("nn.Module: ")]
    calls.sort(key=lambda e: (e["ts"], -e["dur"]))
    chains: list[list[Json]] = []
    for place, call in enumerate(calls):
        around = [e for e in calls[:place] if e["tid"] == call["tid"] and e["ts"] + e["dur"] > call["ts"]]
        chains.append([*around, call])

    def split(call: Json) -> tuple[str, str]:
        name = call["name"].removeprefix("nn.Module: ")
        return name.rpartition("_")[0], name

    chains = [[e for e in chain if split(e)[0] != "GraphModule"] for chain in chains]
    children: defaultdict[int, list[Json]] = defaultdict(list)
    for chain in chains:
        if len(chain) > 1 and all(chain[-1] is not e for e in children[id(chain[-2])]):
            children[id(chain[-2])].append(chain[-1])
        if len(chain) == 1 and all(chain[0] is not e for e in children[0]):
            children[0].append(chain[0])

    def number(parent: int, call: Json) -> int:
        seen = dict.fromkeys(split(e)[1] for e in children[parent] if split(e)[0] == split(call)[0])
        return [*seen].index(split(call)[1])

    def key_of(chain: list[Json]) -> tuple[tuple[str, int], ...]:
        parents = [0, *(id(e) for e in chain)]
        return tuple((split(e)[0], number(parent, e)) for parent, e in zip(parents, chain, strict=False))

    keys = [key_of(chain) for chain in chains]
    most: defaultdict[tuple[Json, str], int] = defaultdict(int)
    for key in keys:
        for depth, (name, occurrence) in enumerate(key):
            most[key[:depth], name] = max(most[key[:depth], name], occurrence)

    def text_of(key: tuple[tuple[str, int], ...]) -> str:
        return "/".join(
            f"{name}[{occurrence}]" if most[key[:depth], name] else name for depth, (name, occurrence) in enumerate(key)
        )

    launches: dict[int, Json] = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver", "hip_runtime"):
            number_of_call = event["args"].get("correlation")
            if number_of_call not in launches or event["ts"] < launches[number_of_call]["ts"]:
                launches[number_of_call] = event
    paths = {}
    for kernel in events:
        launch = launches.get(kernel.get("args", {}).get("correlation")) if kernel.get("cat") == "kernel" else None
        if launch is not None:
            inside = [
                place
                for place, e in enumerate(calls)
                if e["tid"] == launch["tid"] and e["ts"] <= launch["ts"] <= e["ts"] + e["dur"]
            ]
            key = keys[inside[-1]] if inside else ()
            paths[kernel["args"]["correlation"], kernel["ts"]] = text_of(key)
    return paths


@pytest.mark.parametrize("path", WITH_MODULES, ids=lambda path: path.name.partition(".")[0])
def test_modules_of_real_traces(path: Path) -> None:
    expected = find_module_paths(path)
    with whole_run(path) as window:
        codes, tree = find_track_scopes(window.track, ScopeKind.MODULE)
        kernels = window.track.kernels
        found = {
            (correlation, start): tree.texts[code] if code > 0 else ""
            for correlation, start, code in zip(kernels.correlation, kernels.start_ns, codes, strict=True)
        }
    assert {key: found[key] for key in expected} == expected


def read_nsys_ranges(path: Path) -> tuple[list[Json], list[Json]]:
    """The ranges of an export that are no operators and not NCCL's: (start, end, process, name); and its launches:
    (process, correlation, start).
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        ranges = database.execute(
            "SELECT start, ifnull(end, 1 << 62), globalTid & ~0xffffff, "
            "ifnull(text, (SELECT value FROM StringIds WHERE id = textId)) FROM NVTX_EVENTS "
            "WHERE eventType IN (59, 60, 70, 71) AND start >= 0"
        ).fetchall()
        launches = database.execute(
            "SELECT globalTid & ~0xffffff, correlationId, min(start) FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY 1, 2"
        ).fetchall()
    named = [row for row in ranges if not row[3].startswith(("nccl", "rank=")) and "::" not in row[3]]
    return named, launches


@pytest.mark.parametrize("run", DUALPIPE_RUNS)
def test_ranges_of_real_traces(run: str) -> None:
    path = DUALPIPE / f"{run}.sqlite"
    ranges, launches = read_nsys_ranges(path)
    launch_by_kernel = {(process, correlation): start for process, correlation, start in launches}
    with captures(path, convention=BUILT_IN_CONVENTIONS["pithtrain"]) as opened:
        windows = opened.runs[0].load_windows(opened.make_spec("median")).require_filled_windows()
        for (window,) in windows.values():
            process = window.rank.process.global_pid
            own = [(end - start, -start, name, start, end) for start, end, of, name in ranges if of == process]
            codes, tree = find_track_scopes(window.track, ScopeKind.RANGE)
            for i, code in enumerate(codes):
                at = launch_by_kernel[process, window.track.kernels.correlation[i]]
                around = sorted((row for row in own if row[3] <= at <= row[4]), reverse=True)
                assert tree.texts[max(code, 0)] == "/".join(name for _, _, name, _, _ in around)


@pytest.mark.parametrize("name", ["real/hta_nccl_data", "more/hta_ns_resolution", "real/hta_sampled_rank-0"])
def test_the_pass_of_a_kernel_is_that_of_the_operators_around_its_launch(name: str) -> None:
    path = REAL.parent / f"{name}.json.gz"
    events = read_events(path)
    ops: defaultdict[Json, list[Json]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "cpu_op":
            ops[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"], event["args"]))
    for listed in ops.values():
        listed.sort(key=lambda op: op[0])
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    with whole_run(path) as window:
        directions, kernels = find_track_directions(window.track), window.track.kernels
        compared = 0
        for i in range(0, len(kernels), 7):
            launch = launches[kernels.correlation[i]]
            around = [op for op in ops[launch["tid"]] if op[0] <= launch["ts"] <= op[1]]
            is_backward = any(
                op[3].get("Fwd thread id") or op[2].startswith("autograd::engine::evaluate_function") for op in around
            )
            is_forward = any("Sequence number" in op[3] for op in around)
            if is_backward or is_forward:
                compared += 1
                assert DIRECTIONS[directions[i]] == ("backward" if is_backward else "forward")
        assert compared > len(kernels) // 14


@pytest.mark.parametrize(
    ("path", "least"),
    [(MORE / "b200_vllm_eager.json.gz", 0.99), (STEPS / "switch_transformer_one_forward.json.gz", 0.99)],
)
def test_nearly_all_time_of_launched_kernels_has_a_module_below_the_root(path: Path, least: float) -> None:
    with whole_run(path) as window:
        found = sum_scopes(window, ScopeKind.MODULE)
        below = sum(
            usage.time_ns for (code, _), usage in found.exclusive.items() if code > 0 and found.tree.depths[code] > 1
        )
        launched = sum_column(window.durations_ns) - sum(
            usage.time_ns for reason, usage in found.unattributed.items() if reason == "no launch in the file"
        )
        assert below >= least * launched
        if "b200" in path.name:
            (moe,) = {
                text: found for text in found.list_paths() if text.endswith("TransformerBlock[0]/MLPBlock/FusedMoE")
            }
            experts = sum(
                usage.time_ns for usage in found.sum_matching(lambda text: text.endswith("/FusedMoE")).values()
            )
            assert moe
            assert round(experts / 1000) == 7441


@pytest.mark.parametrize("run", DUALPIPE_RUNS)
def test_nearly_all_time_of_a_chunk_has_a_chunk_and_a_stage(run: str) -> None:
    with captures(DUALPIPE / f"{run}.sqlite", convention=BUILT_IN_CONVENTIONS["pithtrain"]) as opened:
        # By time a window also holds what was launched between chunks, by ``pipeline send/recv``.
        spec = opened.make_spec("median", kernels=KernelsMode.LAUNCHED)
        windows = opened.runs[0].load_windows(spec).require_filled_windows()
        for (window,) in windows.values():
            total = sum_column(window.durations_ns)
            chunks = sum_scopes(window, ScopeKind.RANGE).sum_matching(
                lambda path: path.startswith(("forward chunk", "backward chunk"))
            )
            assert sum(usage.time_ns for usage in chunks.values()) >= 0.995 * total
            for kind in (ScopeKind.STAGE, ScopeKind.MODULE):
                staged = sum_scopes(window, kind)
                unattributed = sum(usage.time_ns for usage in staged.unattributed.values())
                assert total - unattributed >= 0.96 * total
            # Stages are those that every other metric has.
            stages = sum_scopes(window, ScopeKind.STAGE)
            by_stage = {
                stage: sum(window.durations_ns[i] for i in rows) for stage, rows in window.kernels_by_stage.items()
            }
            assert {
                stages.tree.texts[n]: sum(u.time_ns for u in by.values()) for n, by in stages.inclusive.items()
            } == {stage: time for stage, time in by_stage.items() if stage != "none"}


def test_nearly_all_time_of_jax_has_a_path() -> None:
    with whole_run(REAL / "jax_te_attn.trace.json.gz") as window:
        found = sum_scopes(window, ScopeKind.MODULE)
        total = sum_column(window.durations_ns)
        assert sum(usage.time_ns for usage in found.unattributed.values()) <= 0.02 * total
        backward = sum(usage.time_ns for (_, direction), usage in found.exclusive.items() if direction == "backward")
        assert backward >= 0.5 * total


TRACES = [path for folder in (DUALPIPE, REAL, MORE, STEPS) for path in sorted(folder.glob("*.*")) if folder.is_dir()]


@pytest.mark.parametrize(
    "path", [path for path in TRACES if path.name.endswith((".json.gz", ".sqlite"))], ids=lambda path: path.name
)
def test_times_of_scopes_sum_to_the_time_of_the_kernels_in_every_trace(path: Path) -> None:
    if path.name.startswith(("jax_cpu", "torch_2.13.0_cpu")):  # nothing ran on a GPU
        with pytest.raises(NsysError), whole_run(path):
            pass
        return
    with captures(path, convention=BUILT_IN_CONVENTIONS["generic"]) as run:
        windows = run.runs[0].load_windows(run.make_spec("run")).require_filled_windows()
        for (window,) in windows.values():
            total = sum_column(window.durations_ns)
            assert len(find_track_directions(window.track)) == len(window)
            for kind in ScopeKind:
                found = sum_scopes(window, kind)
                assert sum(usage.time_ns for usage in found.exclusive.values()) == total
                assert sum(usage.compute_ns for usage in found.exclusive.values()) == sum_column(
                    window.durations_ns
                ) - sum(window.durations_ns[i] for i in window.all_communication)
