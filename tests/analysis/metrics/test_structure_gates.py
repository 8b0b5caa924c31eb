"""Gates on what a step launches: they have no noise, see every change, and show the first one."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.metrics import structure
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.kernel_names import make_plain_name
from pytest_nsys.stored.baselines import baseline_file
from pytest_nsys.stored.baselines.baseline_file import load_baseline
from pytest_nsys.verdicts.refresh_modes import RefreshMode
from pytest_nsys.verdicts.structure_diff import describe_first_difference
from tests.support.commands import run
from tests.support.gate_files import mistakes
from tests.support.gates import MS, Edit, Project, write_trace
from tests.support.measure import captures, rows
from tests.support.one_process import OneProcess
from tests.support.reports import checked
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.odd_rows import raw
from tests.support.samples.schema import MEMCPY
from tests.support.sql import execute

AT = 46 * MS
"""A time in the median window, after the communication of stage4_f."""


def kernels(*names: str, stream: int = 9, stage: str = "stage4_f", ranks: tuple[int, ...] = (0,)) -> Edit:
    """More kernels in the median window, 10 us each, launched for a stage."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        launched = {"stage2_f": 41, "stage4_f": 45}.get(stage, 40)
        for rank in ranks:
            for i, name in enumerate(names):
                start = AT + 20_000 * i
                launch = launched * MS + 10_000 + i
                processes[rank].kernel(name, start, start + 10_000, stream=stream, launch_ns=launch)

    return edit


def against(
    project: Project, gate: str, before: Edit | None, now: Edit | None, code: int, *more: str, windows: bool = True
) -> str:
    """What pytest said of ``now`` once ``before`` was accepted."""
    project.gated(gate, name="base.sqlite", edit=before)
    project.refresh("--nsys-trace=base.sqlite", keeps_windows=windows)
    project.trace(edit=now)
    return project.pytest("--nsys-trace=run.sqlite", "-v", *more, code=code)


def change(said: str) -> list[str]:
    """The lines that explain a red."""
    lines = said.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  change: "))
    found = [lines[at][10:]]
    for line in lines[at + 1 :]:
        if not line.startswith("          "):
            break
        found.append(line.strip())
    return found


# The order of kernels

PLACE = "rank 0 stage stage4_f stream 9: "


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("abcd", "abdc", "kernel 3 of 4: c before, d now"),
        ("abcd", "abxcd", "kernel 3 of 4, now 5: c before, x now (put in)"),
        ("abxcd", "abcd", "kernel 3 of 5, now 4: x before, c now (left out)"),
        ("abcde", "abxde", "kernel 3 of 5: c before, x now (in its place)"),
        ("abc", "abcd", "kernel 4 of 3, now 4: nothing before, d now"),
        ("abc", "ab", "kernel 3 of 3, now 2: c before, nothing now"),
    ],
)
def test_where_an_order_first_departs(before: str, now: str, said: str) -> None:
    assert describe_first_difference(before, now) == said


def test_a_stream_that_came_and_one_that_went(project: Project) -> None:
    said = against(project, "- sequence == baseline", kernels("a"), kernels("a", "b", stream=10), 1)
    assert change(said) == [
        "rank 0 stage stage4_f stream 9: no kernel any more (1 kernel, the first a)",
        "rank 0 stage stage4_f stream 10: no kernel before (2 kernels, the first a)",
    ]


def test_one_change_of_many_ranks_is_told_once(project: Project) -> None:
    before, now = kernels(*"abc", ranks=(0, 1)), kernels(*"axc", ranks=(0, 1))
    said = against(project, "- sequence == baseline", before, now, 1)
    assert change(said) == ["rank 0, 1 stage stage4_f stream 9: kernel 2 of 3: b before, x now (in its place)"]
    assert "failed: 2 of 10 rows" in said


def test_kernels_without_a_stage_are_part_of_the_structure(project: Project) -> None:
    before, now = kernels("a", stage="none"), kernels("b", stage="none")
    gate = "- sequence == baseline\n- no new kernels\n- no vanished kernels"
    said = against(project, gate, before, now, 1)
    assert "rank 0 stage none stream 9: kernel 1 of 1: a before, b now" in said
    assert "new: b, 0 → 1 launches (rank 0 stage none)" in said
    assert "vanished: a, 1 → 0 launches (rank 0 stage none)" in said


def test_captures_of_unlike_order_are_no_data(project: Project) -> None:
    project.accepted("- sequence == baseline", name="base.sqlite", edit=kernels(*"ab"))
    project.trace("one.sqlite", edit=kernels(*"ab"))
    project.trace("two.sqlite", edit=kernels(*"ba"))
    said = project.pytest("--nsys-trace=one.sqlite", "--nsys-trace=two.sqlite", code=1)
    assert "no data: rank 0 stage4_f stream 9: it is not the same in all 2 captures" in said


def test_kernels_of_a_cuda_graph_are_in_the_order_too(project: Project) -> None:
    def graph(*names: str) -> Edit:
        def edit(_: TraceBuilder, processes: list[Process]) -> None:
            number = processes[0].api("cudaGraphLaunch_v10000", 45 * MS + 10_000, 45 * MS + 20_000)
            for i, name in enumerate(names):
                start = AT + 20_000 * i
                processes[0].kernel(name, start, start + 5_000, stream=9, correlation=number, graph_node=i + 1)

        return edit

    gate = "- sequence == baseline\n- no new kernels"
    said = against(project, gate, graph(*"abc"), graph(*"aBc"), 1)
    assert PLACE + "kernel 2 of 3: b before, B now (in its place)" in said
    assert "new: B, 0 → 1 launches" in said


# Names


@pytest.mark.parametrize(
    ("short", "plain"),
    [
        ("vectorized_elementwise_kernel", "vectorized_elementwise_kernel"),
        ("triton_poi_fused_add_mul_12", "triton_poi_fused_add_mul"),
        ("triton_red_fused__to_copy_3d4d5", "triton_red_fused__to_copy"),
        ("loop_add_fusion_7", "loop_add_fusion"),
        ("input_reduce_fusion.12.3", "input_reduce_fusion"),
        ("wrapped_add_3", "wrapped_add"),
        ("nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT", "nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT"),
        ("sm80_xmma_gemm_tilesize64x256x8_stage3", "sm80_xmma_gemm_tilesize64x256x8_stage3"),
        ("gemm_128", "gemm_128"),
        ("callback_0x7f001234abcd", "callback_0x"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    ],
)
def test_plain_name_leaves_out_what_differs_from_build_to_build(short: str, plain: str) -> None:
    assert make_plain_name(short) == plain


def test_running_numbers_of_generated_kernels_are_no_change_nor_is_how_long_any_takes(project: Project) -> None:
    before, now = kernels("triton_poi_fused_add_1", "b"), kernels("triton_poi_fused_add_7", "b")
    against(project, "- sequence == baseline\n- no new kernels\n- no vanished kernels", before, now, 0)
    project.trace(exposed_us=700, edit=now)
    project.pytest("--nsys-trace=run.sqlite", code=0)


# New and vanished kernels


def test_new_kernels_are_listed_with_their_counts(project: Project) -> None:
    said = against(project, "- no new kernels", kernels("a"), kernels("a", "new", "new", ranks=(0, 1)), 1)
    assert "failed: new kernels in 3 rows (of 12)" in said
    assert change(said) == [
        "new: new, 0 → 4 launches (rank 0, 1 stage stage4_f)",
        "new: a, 0 → 1 launches (rank 1 stage stage4_f)",
    ]


def test_each_sentence_looks_at_its_own_side_alone(project: Project) -> None:
    against(project, "- no new kernels", kernels("a", "old"), kernels("a", "a"), 0)
    against(project, "- no vanished kernels", kernels("a"), kernels("a", "a", "new"), 0)


def test_one_sentence_looks_at_both_sides(project: Project) -> None:
    said = against(project, "- no new or vanished kernels", kernels("a"), kernels("b"), 1)
    assert "failed: new or vanished kernels in 2 rows (of 10)" in said
    against(project, "- no new or vanished kernels", kernels("a"), kernels("a", "a"), 0)


@pytest.mark.parametrize("sentence", ["no new or vanished kernels above 0.1%", "no new kernels", "no vanished kernels"])
def test_what_passed_says_how_many_kernels_were_judged(project: Project, sentence: str) -> None:
    against(project, f"- {sentence}", kernels("a"), kernels("a"), 0, "--nsys-summary=summary.md")
    summary = project.root / "summary.md"
    rows = [line for line in summary.read_text().replace("\u00a0", " ").splitlines() if f"`{sentence}`" in line]
    assert rows == [  # base and head of all assertions, then the gate file
        f"| ✅ passed | `{sentence}` |  | none of 3 kernels |  |  |  |",
        f"| ✅ passed | `{sentence}` | none of 3 kernels |  |  |  |  |",
    ]
    against(project, f"- {sentence}", kernels("a", "b"), kernels("a", "c"), 1, "--nsys-summary=summary.md")
    assert summary.read_text().count("none of") == 2  # the summary goes on, and a red shows its kernel


def test_small_kernels_may_come_and_go(project: Project) -> None:
    """Of the 3.62 ms that the kernels of rank 0 run in the window, each of these has 10 us; rank 1 has none of them."""
    gate = "- no new or vanished kernels above {}%"
    against(project, gate.format(1), kernels("a", "b"), kernels("a", "c"), 0)
    said = against(project, gate.format("0.1"), kernels("a", "b"), kernels("a", "c"), 1)
    assert "failed: new or vanished kernels above 0.1% in 2 rows (of 5)" in said
    assert sorted(change(said)) == ["new: c, 0% → 0.276% of the time", "vanished: b, 0.276% → 0% of the time"]


def test_a_kernel_that_one_capture_lacks_has_no_share_there(project: Project) -> None:
    """So what autotuning picks in one of three captures is no row that the others lack."""
    project.accepted("- no new or vanished kernels above 1%", name="base.sqlite", edit=kernels("a"))
    for name in ("one", "two", "three"):
        project.trace(f"{name}.sqlite", edit=kernels(name))
    project.pytest(*(f"--nsys-trace={name}.sqlite" for name in ("one", "two", "three")), code=0)


def test_new_kernels_of_a_stage_are_selected_by_its_key(project: Project) -> None:
    gate = "- {id: one, assert: no new kernels, where: {stage: stage2_f}}\n- {id: all, assert: no new kernels}"
    project.accepted(gate, name="base.sqlite")
    project.trace(edit=kernels("new"))
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert {name: case.state for name, case in cases.items()} == {"one": "passed", "all": "failure"}


def test_a_waiver_lets_a_new_kernel_pass_up_to_its_count(project: Project) -> None:
    waiver = "waivers: [{assertion: a, where: {kernel: new}, ceiling: 2, expires: 2999-12-31, reason: being moved}]"
    gate = "assertions: [{id: a, assert: no new kernels}]\n" + waiver
    against(project, gate, None, kernels("new", "new"), 0)
    against(project, gate, None, kernels("new", "new", "new"), 1)


# Numbers of launches


def test_launches_are_exact_both_ways_and_their_parts_are_named(project: Project) -> None:
    gate = "- launches == baseline\n- kernel_launches >= baseline - 9"
    assert "  change: rank 0 stage stage4_f: +2 b, −1 a" in against(project, gate, kernels("a"), kernels("b", "b"), 1)


@pytest.mark.parametrize("windows", [True, False])
def test_launches_need_no_windows_to_be_judged(project: Project, windows: bool) -> None:
    said = against(project, "- launches == baseline", kernels("a"), kernels("a", "b"), 1, windows=windows)
    assert "failed: 1 of 4 rows" in said
    what = "+1 b" if windows else "now 1 a, 1 b, 1 gemm, 1 ncclDevKernel_SendRecv"
    assert f"change: rank 0 stage stage4_f: {what}\n" in said


def test_syncs_name_the_calls(project: Project) -> None:
    """Under a constant those of now; where the other side is at hand what came and went."""

    def calling(*names: str) -> Edit:
        def edit(trace: TraceBuilder, processes: list[Process]) -> None:
            for name in names:
                number = processes[0].api(f"{name}_v3020", 50 * MS, 51 * MS)
                if "Memcpy" in name:
                    trace.insert(MEMCPY, **processes[0].gpu_span(50 * MS, 51 * MS, number), bytes=4, copyKind=1)

        return edit

    project.gated("- no syncs\n- syncs <= baseline", name="base.sqlite", edit=calling("cudaMemcpy"))
    project.trace("head.sqlite", edit=calling("cudaStreamSynchronize", "cudaStreamSynchronize", "cudaMemcpyAsync"))
    cases = project.cases("--nsys-trace=head.sqlite", "--nsys-against=base.sqlite", code=1)
    assert "change: rank 0: now 2 cudaStreamSynchronize\n" in cases["no syncs"].text
    assert "change: rank 0: +2 cudaStreamSynchronize, −1 cudaMemcpy\n" in cases["syncs <= baseline"].text


def test_another_trace_names_the_parts_by_itself(project: Project) -> None:
    project.gate("- launches == baseline\n- sequence == baseline\n- no new kernels\n- no vanished kernels")
    project.trace("base.sqlite", edit=kernels("a", "b"))
    project.trace(edit=kernels("a", "c", "d"))
    said = project.pytest("-v", "--nsys-trace=run.sqlite", "--nsys-against=base.sqlite", code=1)
    assert "rank 0 stage stage4_f: −1 b, +1 c, +1 d" in said
    assert PLACE + "kernel 2 of 2, now 3: b before, c now" in said
    assert "new: c, 0 → 1 launches (rank 0 stage stage4_f)" in said
    assert "vanished: b, 1 → 0 launches (rank 0 stage stage4_f)" in said


# Mistakes


@pytest.mark.parametrize(
    ("entry", "mistake"),
    [
        ("- no new kernel", "3:6: unknown metric 'new kernel' (did you mean 'new kernels'?)"),
        ("- no vanishd kernels", "3:6: unknown metric 'vanishd kernels' (did you mean 'vanished kernels'?)"),
        (
            "- no stage2 new kernels",
            "3:6: selectors stand behind 'no new kernels': write no new kernels where stage2 …",
        ),
        ("- no new kernels == 0", "3:18: 'no …' takes no limit: remove '=='"),
        (
            "- sequence <= baseline + 5%",
            "3:12: sequence is the same as in the baseline or not: write sequence == baseline",
        ),
        ("- sequence == 12", "3:12: sequence is the same as in the baseline or not: write sequence == baseline"),
        ("- no sequence", "3:3: 'no' is for times and counts: sequence is neither"),
        ("- max sequence == baseline", "3:3: sequence is not a quantity: several cannot be aggregated"),
        ("- max over rank of sequence == baseline", "3:3: sequence is not a quantity: several cannot be aggregated"),
        (
            "- sequence within tolerance of baseline",
            "3:12: sequence is the same as in the baseline or not: write sequence == baseline",
        ),
        ("- no stage2 new or vanished kernels", "3:6: selectors stand behind 'no new or vanished kernels': write"),
        ("- no new kernels above 2us", "3:18: kernel_share is a ratio: write 2%, not 2us"),
        ("- no new kernels above 0%", "3:18: a share of the time is above 0% and below 100%"),
        ("- no new kernels above 100%", "3:18: a share of the time is above 0% and below 100%"),
        ("- no new kernels above", "3:18: 'above' is not a number"),
    ],
)
def test_mistake_is_told_at_its_line(entry: str, mistake: str) -> None:
    assert any(each.startswith(mistake) for each in mistakes(f"version: 1\nassertions:\n{entry}\n"))


# Copies


def copy(process: Process, launch_ns: int, start_ns: int, source: int | None, target: int | None) -> None:
    """A copy of four bytes and its call."""
    number = process.api("cudaMemcpyAsync_v3020", launch_ns, launch_ns + 10)
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": number}
    memories = {"copyKind": 1, "srcKind": source, "dstKind": target}
    raw(process, "CUPTI_ACTIVITY_KIND_MEMCPY", start=start_ns, end=start_ns + 5, bytes=4, **place, **memories)


def copies(*kinds: tuple[int | None, int | None]) -> Edit:
    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for i, (source, target) in enumerate(kinds):
            copy(processes[0], AT + 1_000 * i, AT + 1_000 * i + 100, source, target)

    return edit


@pytest.mark.parametrize(
    ("kinds", "value"),
    [
        ((), {0: 0}),
        (((1, 2), (2, 1), (2, 2)), {0: 0}),
        (((1, 2), (0, 2)), {0: 1}),
        (((2, 0),), {0: 1}),
        (((0, 2), (None, None)), {0: 1}),
        (((1, 2), (None, None)), {}),
    ],
)
def test_pageable_copies_of_an_export(
    tmp_path: Path, kinds: tuple[tuple[int | None, int | None], ...], value: object
) -> None:
    path = write_trace(tmp_path / "run.sqlite", ranks=1, edit=copies(*kinds))
    assert rows(path, "pageable_copies", convention=BUILT_IN_CONVENTIONS["pithtrain"]) == value


def test_kinds_of_memory_are_as_the_export_numbers_them(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 10, 20)
    for source, called, at in ((1, 30, 35), (0, 40, 140), (0, 101, 105)):  # the last was launched after the window
        copy(gpu, called, at, source, 2)
    path = Path(gpu)
    assert rows(path, "pageable_copies") == {0: 1}
    execute(
        path,
        "CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER, name TEXT, label TEXT)",
        "INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'x', 'Device'), (1, 'y', 'Pageable'), (2, 'z', 'Pinned')",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET srcKind = 1 WHERE start = 140",
    )
    assert rows(path, "pageable_copies") == {0: 2}
    execute(path, "ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN srcKind")
    assert rows(path, "pageable_copies") == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Memcpy HtoD (Pageable -> Device)", {0: 1}),
        ("Memcpy DtoH (Device -> Pageable)", {0: 1}),
        ("Memcpy HtoD (Pinned -> Device)", {0: 0}),
        ("Memcpy DtoH (Device -> Host)", {}),
        ("CopyDeviceToHost", {}),
    ],
)
@pytest.mark.parametrize("category", ["gpu_memcpy", "Memcpy"])
def test_pageable_copies_of_kineto(tmp_path: Path, name: str, value: object, category: str) -> None:
    trace = KinetoBuilder()
    trace.range("ProfilerStep#1", 0, 100_000)
    trace.kernel("gemm", 10_000, 20_000)
    trace.event(category, name, 30_000, 31_000, pid=0, tid=7, args={"device": 0, "stream": 7, "bytes": 4})
    trace.event(category, name, 130_000, 131_000, pid=0, tid=7, args={"device": 0, "stream": 7, "bytes": 4})
    assert (
        rows(trace.write(tmp_path / "rank0.json"), "pageable_copies", convention=BUILT_IN_CONVENTIONS["kineto"])
        == value
    )


@pytest.mark.parametrize(
    ("details", "value"),
    [
        ("kind_src:pageable kind_dst:device size:4 dest:0 async:1", {0: 1}),
        ("kind_src:pinned kind_dst:device size:4 dest:0 async:1", {0: 0}),
        (None, {}),
    ],
)
def test_pageable_copies_of_jax(tmp_path: Path, details: str | None, value: object) -> None:
    trace = JaxBuilder()
    trace.step("train", 1, 0, 100_000)
    trace.kernel("gemm", 10_000, 20_000)
    trace.kernel("MemcpyH2D", 30_000, 31_000, memcpy_details=details)
    trace.kernel("Memset", 40_000, 41_000, memset_details="kind:device size:4")
    path = trace.write(tmp_path / "host.trace.json.gz")
    assert rows(path, "pageable_copies", convention=BUILT_IN_CONVENTIONS["jax"]) == value
    assert rows(path, "kernel_launches", convention=BUILT_IN_CONVENTIONS["jax"]) == {(0, "none", "gemm"): 1}


# Communication streams and barriers


def test_compute_on_a_communication_stream_fails_and_every_such_stream_has_a_row(project: Project) -> None:
    project.gated("- {id: a, assert: no compute on comm streams}")
    assert project.cases("--nsys-trace=run.sqlite", code=0)["a"].properties["nsys_rows"] == "2"
    project.trace(edit=kernels("gelu", stream=28))
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert "failed: 1 of 2 rows off their limit" in said
    assert "  0     28      1    == 0" in said


def test_communication_on_compute_streams_is_said_to_be_barriers(project: Project) -> None:
    def barriers(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            process.kernel("ncclDevKernel_AllReduce", AT, AT + 1_000, launch_ns=45 * MS + 10_000)

    project.gated("- no compute on comm streams\n- barrier > 0ns", edit=barriers)
    said = project.pytest("-v", "--nsys-trace=run.sqlite", code=0)
    assert "rank 0 stream 7 has 1 communication kernel among 2 compute kernels: these are barriers" in said
    project.gate("quality: {empty_anchors: off}\nassertions:\n- no compute on comm streams\n- barrier > 0ns")
    project.trace(stages=(), edit=only_barriers)
    said = project.pytest("-v", "--nsys-trace=run.sqlite", code=1)
    assert "no stream mostly communicates; 'barrier' is the communication on compute streams" in said


def only_barriers(_: TraceBuilder, processes: list[Process]) -> None:
    """One among three compute kernels of a stream in the median window, and compute to the end of the trace."""
    for process in processes:
        process.kernel("gemm", 85 * MS, 86 * MS, launch_ns=85 * MS - 20_000)
        for i, name in enumerate(("gemm", "ncclDevKernel_AllReduce", "gemm", "gemm")):
            process.kernel(name, AT + 10_000 * i, AT + 10_000 * i + 5_000, launch_ns=45 * MS + 20_000)


# What is stored

EVERYTHING = (
    "- sequence == baseline\n- no new kernels\n- launches == baseline\n- barrier_ns == baseline\n- syncs == baseline"
)


def test_a_refresh_without_a_change_writes_the_same_bytes(project: Project) -> None:
    against(project, EVERYTHING, kernels(*"aab"), kernels(*"aab"), 0)
    stored = project.baselines()
    for mode in (RefreshMode.MOVED, RefreshMode.ALL):
        project.refresh("--nsys-trace=run.sqlite", mode=mode)
        assert project.baselines() == stored


def test_a_refresh_takes_the_new_order_and_forgets_the_old(project: Project) -> None:
    against(project, EVERYTHING, kernels(*"aab"), kernels(*"aac"), 1)
    project.refresh("--nsys-trace=run.sqlite")
    (text,) = project.baselines().values()
    assert '"c"' in text
    assert '"b"' not in text
    project.pytest("--nsys-trace=run.sqlite", code=0)


def test_of_several_accepted_runs_each_order_is_accepted(project: Project) -> None:
    against(project, "- sequence == baseline", kernels(*"ab"), kernels(*"ba"), 1)
    project.refresh("--nsys-trace=run.sqlite", mode=RefreshMode.ACCEPT_RUN)
    for names in ("ab", "ba"):
        project.trace(edit=kernels(*names))
        project.pytest("--nsys-trace=run.sqlite", code=0)
    project.trace(edit=kernels(*"bc"))
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert change(said) == [PLACE + "kernel 2 of 2: a before, c now"]


def test_without_the_windows_of_before_an_order_is_judged(project: Project) -> None:
    against(project, "- sequence == baseline", kernels(*"ab"), kernels(*"ab"), 0)
    (window,) = (project.root / "baselines").rglob("*.window.*")
    window.unlink()
    project.pytest("--nsys-trace=run.sqlite", code=0)
    project.trace(edit=kernels(*"ac"))
    assert change(project.pytest("--nsys-trace=run.sqlite", code=1)) == [PLACE + "its order before was not kept"]


def test_what_is_stored_is_as_its_schema_says(project: Project) -> None:
    against(project, EVERYTHING, kernels(*"aab"), None, 1)
    (path,) = (project.root / "baselines").rglob("*.json")
    schema = json.loads(Path(baseline_file.__file__).with_name("baseline.schema.json").read_text())
    jsonschema.validate(json.loads(path.read_text()), schema)
    assert load_baseline(path).serialize() == path.read_text()


@pytest.mark.slow
def test_baseline_of_eight_ranks_of_two_thousand_kernels_stays_small(project: Project) -> None:
    def layers(_: TraceBuilder, processes: list[Process]) -> None:
        for rank, process in enumerate(processes):
            for i in range(2_000):
                start = AT + 500 * i
                name = f"kernel_of_the_layer_number_{(i * i + rank) % 40}_of_forty"
                process.kernel(name, start, start + 400, launch_ns=45 * MS + 10_000 + i)

    project.gate("- sequence == baseline\n- no new kernels")
    label = "rank={rank}; pp={rank}/8 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
    project.trace(edit=layers, ranks=8, label=label)
    project.refresh("--nsys-trace=run.sqlite")
    (path,) = (project.root / "baselines").rglob("*.json")
    size = path.stat().st_size
    assert 1_000 < size < 10_000, size


# Reports


def test_the_terminal_has_a_few_lines_and_the_report_all(project: Project) -> None:
    said = against(project, "- no new kernels", None, kernels(*"abcdefgh"), 1, "--nsys-json=report.json", "-q")
    assert len(change(said)) == 5
    assert change(said)[-1] == "… 4 more (all of them in the JSON report)"
    report = checked(project.root / "report.json")
    (assertion,) = report["gate_files"][0]["assertions"]
    assert [line.split(",")[0] for line in assertion["details"]] == [f"new: {name}" for name in "abcdefgh"]


def test_names_are_made_fit_for_a_terminal(project: Project) -> None:
    said = against(project, "- no new kernels\n- sequence == baseline", None, kernels("\x1b[31mred"), 1)
    assert "\x1b[31m" not in said


def test_compare_tells_of_the_order_without_calling_it_worse(project: Project) -> None:
    project.trace("base.sqlite", edit=kernels(*"ab"))
    project.trace("head.sqlite", edit=kernels(*"ba"))
    assert "change: " + PLACE + "kernel 1 of 2: a before, b now" in compared()
    for format in ("markdown", "html"):
        assert "kernel 1 of 2: a before, b now" in compared(f"--format={format}")
    (file,) = json.loads(compared("--format=json"))["gate_files"]
    details = {each["name"]: each["details"] for each in file["assertions"]}
    assert details["sequence"] == [PLACE + "kernel 1 of 2: a before, b now"]


def compared(*options: str) -> str:
    return run("compare", "base.sqlite", "head.sqlite", *options, code=0).stdout


# Other formats


@pytest.mark.parametrize("trace", [KinetoBuilder(), JaxBuilder()])
def test_structure_of_chrome_traces(tmp_path: Path, trace: KinetoBuilder | JaxBuilder) -> None:
    trace.kernel("void at::native::fill<4, float>(int, float*)", 20_000, 30_000)
    trace.kernel("a", 40_000, 50_000)
    path = trace.write(tmp_path / ("run.trace.json.gz" if isinstance(trace, JaxBuilder) else "run.json"))
    with captures(path, convention=BUILT_IN_CONVENTIONS["generic"]) as run:
        (order,) = run.map_names_by_fingerprint(run.make_spec("run")).values()
    assert order == ("fill", "a")


# The functions beneath

NAMES = st.lists(st.sampled_from("abc"), max_size=12).map(tuple)


@given(NAMES, NAMES)
def test_first_difference_is_the_first(before: tuple[str, ...], now: tuple[str, ...]) -> None:
    if before == now:
        return
    said = describe_first_difference(before, now)
    place = 0
    while place < len(before) and place < len(now) and before[place] == now[place]:
        place += 1
    assert said.startswith(f"kernel {place + 1} of")
    was, is_now = (each[place] if place < len(each) else "nothing" for each in (before, now))
    assert f": {was} before, {is_now} now" in said


@given(NAMES, NAMES)
def test_fingerprints_differ_with_the_order(a: tuple[str, ...], b: tuple[str, ...]) -> None:
    assert (structure.make_fingerprint(a) == structure.make_fingerprint(b)) == (a == b)
    assert 0 <= structure.make_fingerprint(a) < 1 << structure.HASH_BITS
