"""Is every kind of row told by its root, on all ranks where that is, and alike against what is stored and a trace?"""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.cli.init import store_rows
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.reports.session.headline import format_headline
from pytest_nsys.reports.session.record import make_record
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.words.verdict_text import render_explanation
from pytest_nsys.stored.baselines.store import find_store
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.gate_windows import pack_gate_windows
from pytest_nsys.verdicts.references import OtherRun
from pytest_nsys.verdicts.stored_baseline import StoredBaseline
from tests.support.fault_programs import ADAM, ALL_REDUCE, ATTENTION, NORM, data_parallel
from tests.support.fault_runs import US, Do, Op, Program, kernel
from tests.support.faults import Change, both, put, stretched, stretched_compute
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import Format


def told(
    folder: Path,
    change: Change,
    gate: Sequence[str],
    *,
    steps: int = 3,
    window: str = "median",
    alike: Change = lambda _: None,
) -> list[str]:
    """The sentences of a run that is worse, held to what was stored of the run before, and to its trace. ``alike`` is
    how both runs differ from a plain program.
    """
    sides: list[list[str]] = []
    for side, edit in (("base", None), ("head", change)):
        program = data_parallel(steps=steps)
        alike(program)
        if edit is not None:
            edit(program)
        sides.append([str(program.write(folder / side, Format.KINETO, len(sides)))])
    path = folder / "gates.nsys.yaml"
    sentences = "".join(f"  - {sentence}\n" for sentence in gate)
    path.write_text(
        f"version: 1\nconvention: kineto\nquality: {{anchors: 1}}\nwindow: {window}\nassertions:\n{sentences}",
        encoding="utf-8",
    )
    with contextlib.closing(CaptureCache()) as library:
        file = load_gate_file(path)
        was, now = (library.open_captures(side, folder, file.resolved_convention) for side in sides)
        store = find_store(path, folder / "baselines", folder)
        store_rows(file, was, store, keep=pack_gate_windows)
        found = []
        for before in (StoredBaseline(now, file, store, capture_cache=library), OtherRun(now, file, was)):
            context = GateContext(now, file, before)
            records = [make_record(evaluate(assertion, context), "run") for assertion in file.assertions]
            found.append(format_headline(Session(records=tuple(records))))
    return found


SLOW_RANK, SLOW_REDUCE = stretched(ATTENTION, 60, [1]), stretched(ALL_REDUCE, 60)
LATE = put(ATTENTION, Op(Do.WORK, ns=3_000 * US))


@pytest.mark.parametrize(
    ("sentence", "change", "says"),
    [
        ("compute_absent <= baseline + 10%", SLOW_REDUCE, "AllReduce 60% longer on all 4 ranks"),
        (
            "compute_absent <= baseline + 10%",
            SLOW_RANK,
            "rank 1: flash_fwd_kernel 60% longer; peers wait in AllReduce for it",
        ),
        ("compute_absent <= baseline + 10%", LATE, "the GPU waits for the host before flash_fwd_kernel"),
        ("max wall_exposed <= baseline + 5%", SLOW_REDUCE, "AllReduce 60% longer on all 4 ranks"),
        ("collective_time <= baseline + 10%", SLOW_REDUCE, "AllReduce 60% longer on all 4 ranks"),
        ("sequence == baseline", put(ATTENTION, kernel("debug_check", 5)), "new kernel debug_check (6 times"),
    ],
)
def test_rows_of_any_metric_have_a_root(tmp_path: Path, sentence: str, change: Change, says: str) -> None:
    stored, against = told(tmp_path, change, [sentence])
    assert says in stored
    assert says in against


@pytest.mark.parametrize("sentence", ["wall_exposed <= 10% of step", "blocking comm max <= 10% of step"])
def test_a_share_of_the_step_has_the_root_of_its_time(tmp_path: Path, sentence: str) -> None:
    told_so = told(tmp_path, SLOW_REDUCE, [sentence, "window_ns <= baseline + 500%"])
    assert [said.partition(": ")[2] for said in told_so] == ["AllReduce 60% longer on all 4 ranks"] * 2


def test_a_root_is_told_of_all_ranks_on_which_it_is_though_the_row_of_one_alone_is_red(tmp_path: Path) -> None:
    for said in told(tmp_path, stretched(ATTENTION, 30), ["max compute <= baseline + 1%"]):
        assert "flash_fwd_kernel 30% longer on all 4 ranks" in said
        assert "wait" not in said


def test_two_slow_ranks_are_both_named(tmp_path: Path) -> None:
    for said in told(tmp_path, stretched(ATTENTION, 60, [1, 2]), ["wall_exposed <= baseline + 5%"]):
        assert "ranks 1–2: flash_fwd_kernel 60% longer; peers wait in AllReduce for it" in said


def test_a_step_time_is_of_a_step_whatever_its_window_is(tmp_path: Path) -> None:
    for said in told(tmp_path, SLOW_REDUCE, ["step time <= baseline + 1%"], window="run"):
        assert said.startswith("Step 5")
    for said in told(tmp_path, SLOW_REDUCE, ["p50 period_ns <= baseline + 1%"], window="run"):
        assert said.startswith("Period 5")


def test_a_run_of_one_step_says_why_it_is_longer(tmp_path: Path) -> None:
    gate = ["step time <= baseline + 1%", "p90 period_ns <= baseline + 1%"]
    for said in told(tmp_path, SLOW_REDUCE, gate, steps=1):
        assert re.search("AllReduce 6[01]% longer on all 4 ranks", said)


def test_a_rank_that_comes_earlier_and_waits_has_what_is_shorter(tmp_path: Path) -> None:
    for said in told(tmp_path, stretched(ATTENTION, -60, [1]), ["wall_exposed <= baseline + 5%"]):
        assert "flash_fwd_kernel 60% shorter" in said
        assert said.endswith("on rank 1")


def test_peers_that_wait_for_a_rare_step_of_one_rank_a_step_later_blame_nothing_of_their_own(tmp_path: Path) -> None:
    rare = put(ADAM, kernel("checkpoint_pack", 3_000), steps=[5, 9], ranks=[2])
    for said in told(tmp_path, rare, ["p90 period_ns <= baseline + 5%"], steps=12):
        assert "new kernel checkpoint_pack" in said
        assert "shorter" not in said
        assert "longer" not in said


def grow(on: Program) -> None:
    """Each step has one kernel more than the one before, and is longer by it."""
    for number in range(1, 6):
        put(ADAM, *(kernel("expert_gemm", 1_000) for _ in range(number)), steps=[number])(on)


def test_steps_of_other_work_are_not_compared(tmp_path: Path) -> None:
    """A hiccup in a short step makes another step the median, which has more to do: both runs are compared by it."""
    worse = both(put(NORM, kernel("hiccup", 20_000), every=100, steps=[1]), stretched_compute(20))
    for said in told(tmp_path, worse, ["p50 period_ns <= baseline + 5%"], steps=6, alike=grow):
        assert "instead of" not in said
        assert re.search(r"all (kernels alike|compute) \+[12]\d%", said), said


def loop(path: Path, steps: int, ns: int) -> Path:
    """One range around so many steps of four kernels, each of so many ns."""
    gpu = TraceBuilder().process()
    names = [name for _ in range(steps) for name in ("gemm", "norm", "gelu", "softmax")]
    for number, name in enumerate(names, 1):
        gpu.kernel(name, number * ns, (number + 1) * ns - 500, stream=7, launch_ns=number * ns - 500)
    gpu.range("train loop", ns - 1_000, (len(names) + 1) * ns)
    return gpu.trace.write(path)


def test_a_range_of_half_the_steps_is_not_called_faster(tmp_path: Path) -> None:
    """Each step is 43 % slower."""
    path = tmp_path / "gate.nsys.yaml"
    text = "version: 1\nconvention: {anchor: train loop}\nquality: {anchors: 1}\nassertions:\n"
    path.write_text(f"{text}- window_ns within 5% of baseline\n", encoding="utf-8")
    traces = loop(tmp_path / "base.sqlite", 10, 1_000_000), loop(tmp_path / "head.sqlite", 5, 1_430_000)
    with contextlib.closing(CaptureCache()) as library:
        gate = load_gate_file(path)
        was, now = (library.open_captures([str(trace)], tmp_path, gate.resolved_convention) for trace in traces)
        context = GateContext(now, gate, OtherRun(now, gate, was))
        record = make_record(evaluate(gate.assertions[0], context), "run")
    said = "Windows of unlike work (40 → 20 kernels, 40 → 28.6 ms): compare windows of the same work"
    assert format_headline(Session(records=(record,))) == said
    (window,) = (line for line in render_explanation(record.verdict, ()) if line.startswith("  window:"))
    assert "28.6 ms; compared with one of other work: train loop, 1st of 1, 40 ms" in window
