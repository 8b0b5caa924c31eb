"""What is a part of a model, and never a step? Its modules say it, by the profiler's record or by ranges."""

from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase

import pytest

from pytest_nsys.analysis.steps.search_result import FoundUnits, NoUnits, RepeatedPart, UnitType
from tests.analysis.steps.test_step_search import searched
from tests.support.commands import run
from tests.support.kernel_tapes import EVERY_NS, LAYER, STEP
from tests.support.reference_data import MORE, STEPS
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.kineto import KinetoBuilder

Mark = Callable[[str, int, int], None]
LEAD_NS = 3_000
"""From a launch to its kernel: modules enclose launches."""


def play(trace: KinetoBuilder, text: str, start_ns: int) -> int:
    """Write a kernel for each letter; return when the next would be launched."""
    for letter in text:
        trace.kernel(f"kernel_{letter}", start_ns + LEAD_NS, start_ns + LEAD_NS + 800, launch_ns=start_ns)
        start_ns += EVERY_NS
    return start_ns


def forward(trace: KinetoBuilder, start_ns: int, *, mark: Mark, blocks: int = 10, first: int = 0) -> int:
    """One forward: each block is a unit of kernels that repeats, and nothing else does. Returns its end."""
    at = start_ns
    for number in range(blocks):
        end = play(trace, STEP, at)
        mark(f"SwitchTransformerBlock_{first + number}", at - 100, end - 200)
        mark(f"Attention_{first + number}", at - 50, at + 5 * EVERY_NS)
        at = end
    mark("SwitchTransformer_0", start_ns - 300, at)
    return at


def first_line(command: str, *words: object) -> str:
    return run(command, *words, code=0).stdout.splitlines()[0]


def test_a_block_of_one_forward_is_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trace = KinetoBuilder()
    forward(trace, 10_000, mark=trace.module)
    path = trace.write(tmp_path / "forward.json")
    found = searched(path)
    assert isinstance(found, FoundUnits)
    assert (found.unit_type, found.holder) == (UnitType.PART, "SwitchTransformer")
    assert found.repeated_part == RepeatedPart("SwitchTransformerBlock", 10, "SwitchTransformer")
    told = "10 × SwitchTransformerBlock, and no step"
    assert first_line("show", path).endswith(f"the whole run is measured: {told}")
    assert told in run("init", path, "-o", "gate.nsys.yaml", code=0).stdout
    assert told in (tmp_path / "gate.nsys.yaml").read_text()
    assert told in " ".join(run("check", path, code=0).stdout.split())


def test_the_same_kernels_without_modules_are_steps(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    forward(trace, 10_000, mark=lambda *_: None)
    found = searched(trace.write(tmp_path / "forward.json"))
    assert isinstance(found, FoundUnits)
    assert found.unit_type is UnitType.STEP


def test_a_module_that_each_step_calls_once_makes_it_no_part(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    at = 10_000
    for _ in range(8):
        start = at
        at = play(trace, STEP, at)
        for layer in range(6):
            low = start + EVERY_NS + layer * len(LAYER) * EVERY_NS
            trace.module(f"Block_{layer}", low - 50, low + len(LAYER) * EVERY_NS - 60)
        trace.module("Model_0", start - 100, at - 200)
    found = searched(trace.write(tmp_path / "steps.json"))
    assert isinstance(found, FoundUnits)
    assert (found.unit_type, found.repeated_part) == (UnitType.STEP, None)
    assert len(found.units_by_rank[0]) == 8


@pytest.mark.parametrize("name", ["nn.Module: {}", "{}", "{}.forward"])
def test_ranges_that_hooks_push_for_modules_are_parts(tmp_path: Path, name: str) -> None:
    trace = KinetoBuilder()
    forward(trace, 10_000, mark=lambda own, start, end: trace.range(name.format(own), start, end))
    found = searched(trace.write(tmp_path / "forward.json"))
    assert isinstance(found, FoundUnits)
    assert (found.unit_type, found.repeated_part) == (
        UnitType.PART,
        RepeatedPart("SwitchTransformerBlock", 10, "SwitchTransformer"),
    )


@pytest.mark.parametrize("name", ["layer_{}", "decoder.layers.{}", "DecoderLayer {}", "block{}"])
def test_ranges_that_number_their_layers_are_parts(tmp_path: Path, name: str) -> None:
    process = TraceBuilder().process()
    at = 10_000
    for number in range(10):
        start = at
        for letter in STEP:
            process.kernel(f"kernel_{letter}", at + LEAD_NS, at + LEAD_NS + 800, launch_ns=at)
            at += EVERY_NS
        process.range(name.format(number), start - 100, at - 200)
    found = searched(process.trace.write(tmp_path / "layers.sqlite"))
    assert isinstance(found, FoundUnits)
    assert found.unit_type is UnitType.PART
    assert found.repeated_part is not None
    assert found.repeated_part.part_count == 10


@pytest.mark.parametrize("around", ["TrainEpoch_0", "epoch_0", "MyBenchmark", "WarmUp"])
def test_a_range_of_the_programs_own_around_its_steps_makes_them_no_parts(tmp_path: Path, around: str) -> None:
    trace = KinetoBuilder()

    def mark(name: str, start: int, end: int) -> None:
        if name.startswith("SwitchTransformerBlock"):
            trace.range(name.replace("SwitchTransformerBlock", "MyIteration"), start, end)
            trace.range("AttentionBlock", start + 10, end - 10)

    trace.range(around, 9_000, forward(trace, 10_000, mark=mark))
    found = searched(trace.write(tmp_path / "steps.json"))
    assert isinstance(found, FoundUnits)
    assert (found.unit_type, found.pattern) == (UnitType.STEP, "MyIteration_%")


def test_blocks_of_several_forwards_are_told_of_each(tmp_path: Path) -> None:
    """Kernels that are all alike say nothing of where a forward begins."""
    trace = KinetoBuilder()
    at = 10_000
    for _ in range(3):
        at = forward(trace, at, mark=trace.module, blocks=8) + 500
    found = searched(trace.write(tmp_path / "forwards.json"))
    assert isinstance(found, FoundUnits)
    assert found.unit_type is UnitType.PART
    assert str(found.repeated_part) == "8 × SwitchTransformerBlock in each of 3 × SwitchTransformer"


def test_of_forwards_whose_layers_are_nearly_all_the_forward_is_the_step(tmp_path: Path) -> None:
    """Layers hold as much of the kernels: without modules they are what repeats."""
    kernels = ascii_lowercase * 5
    trace = KinetoBuilder()
    at = 10_000
    for _ in range(4):
        start, at = at, play(trace, "E", at)
        for layer in range(8):
            low, at = at, play(trace, kernels, at)
            trace.module(f"Block_{layer}", low - 50, at - 60)
        trace.module("Model_0", start - 100, at - 10)
        at += 500
    found = searched(trace.write(tmp_path / "forwards.json"))
    assert isinstance(found, FoundUnits)
    assert (found.unit_type, found.count_by_rank) == (UnitType.STEP, {0: 4})


def test_no_number_is_said_of_forwards_that_differ(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    at = 10_000
    for blocks in (8, 7, 8):
        at = forward(trace, at, mark=trace.module, blocks=blocks) + 500
    found = searched(trace.write(tmp_path / "forwards.json"))
    assert isinstance(found, FoundUnits)
    assert (found.unit_type, found.repeated_part) == (UnitType.PART, None)


def test_the_only_step_says_what_repeats_in_it_by_its_module(tmp_path: Path) -> None:
    """Two kernels of each block repeat alike, as half blocks: their number is no number of blocks."""
    trace = KinetoBuilder()
    end = play(trace, "u" * 3, forward(trace, 10_000, mark=trace.module))
    trace.range("ProfilerStep#3", 9_000, end + 50_000)
    shown = first_line("show", trace.write(tmp_path / "step.json"))
    assert "step = range 'ProfilerStep#%', the only one (10 × SwitchTransformerBlock)" in shown


def test_kernels_that_repeat_in_the_only_step_have_no_number_where_nothing_says_what_they_are(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    end = forward(trace, 10_000, mark=lambda *_: None)
    trace.range("ProfilerStep#3", 9_000, end + 50_000)
    shown = first_line("show", trace.write(tmp_path / "step.json"))
    assert "step = range 'ProfilerStep#%', the only one" in shown
    assert "×" not in shown


def test_modules_say_what_repeats_where_kernels_do_not(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    at = 10_000
    for number in range(6):
        end = play(trace, "".join(chr(ord("A") + 8 * number + i) for i in range(8)), at)
        trace.module(f"Block_{number}", at - 50, end - 60)
        at = end
    trace.module("Model_0", 9_000, at)
    found = searched(trace.write(tmp_path / "forward.json"))
    assert found == NoUnits("no sequence of kernels repeats", RepeatedPart("Block", 6, "Model"))


def test_calls_of_modules_are_read_for_the_search_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} was passed for its modules")

    monkeypatch.setattr("pytest_nsys.traces.chrome.kineto.read_module_calls", refuse)
    trace = KinetoBuilder()
    at = 10_000
    for number in range(6):
        start, at = at, forward(trace, at, mark=trace.module, blocks=2) + 500
        trace.range(f"ProfilerStep#{number}", start - 400, at - 300)
    path = trace.write(tmp_path / "steps.json")
    assert "one of 6" in first_line("show", path)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (
            STEPS / "switch_transformer_one_forward.json.gz",
            "the whole run is measured: 10 × SwitchTransformerBlock, and no step",
        ),
        (STEPS / "vllm_graph_capture.pt.trace.json.gz", "the whole run is measured: 24 × GraphModule, and no step"),
        (STEPS / "qwen_0.5b_mi300.json.gz", "the only one (24 × Qwen2DecoderLayer)"),
        (MORE / "b200_vllm_eager.json.gz", "the only one (36 × TransformerBlock)"),
    ],
    ids=str,
)
def test_a_real_trace_says_what_repeats_by_its_modules(path: Path, shown: str) -> None:
    assert shown in " ".join(run("show", path, code=0).stdout.splitlines()[:2])
