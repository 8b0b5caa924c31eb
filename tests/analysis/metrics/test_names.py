"""Names without their units, names that are gone, words of other tools: which metric, or which sentence to write?"""

from pathlib import Path

import pytest

from pytest_nsys import ArgumentMistake, judge, open_run
from pytest_nsys.analysis.metrics.names import METRICS_BY_UNIT, SENTENCES_BY_WORD, UNITLESS_NAMES, resolve_metric
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.gates.limits import SentenceMistake
from tests.support.gate_files import asked, mistakes
from tests.support.gates import write_trace
from tests.support.samples.builder import TraceBuilder

DIMENSIONS = {dimension for metric in METRICS.values() for dimension in metric.dimensions}


@pytest.mark.parametrize(
    ("sentence", "metric"),
    [
        ("exposed <= 2ms", "exposed_ns"),
        ("stage2_f exposed <= 2ms", "exposed_ns"),
        ("max exposed of stage2_f <= 2ms", "exposed_ns"),
        ("median wall exposed <= 2ms", "wall_exposed_ns"),
        ("overlap >= 75%", "overlap"),
        ("idle <= 40ms", "idle_ns"),
        ("device idle <= 40ms", "device_idle_ns"),
        ("step time <= 450ms", "step_time_ns"),
        ("step_time_ns <= 450ms", "step_time_ns"),
        ("p50 period <= 450ms", "period_ns"),
        ("balance of compute across pp <= 1.1", "compute_ns"),
        ("no pageable copies", "pageable_copies"),
        ("no idle", "idle_ns"),
        ("sm clock >= 1700MHz", "sm_clock_mhz"),
        ("peak allocated <= 72GiB", "peak_allocated_bytes"),
        ("tokens >= 12000 tokens/s", "tokens_per_s"),
        ("throughput >= 12000 tokens/s", "tokens_per_s"),
        ("throughput >= 12000tokens/s", "tokens_per_s"),
        ("throughput at least 64 samples/s", "samples_per_s"),
        ("throughput >= baseline - 3 samples/s", "samples_per_s"),
    ],
)
def test_a_name_without_its_unit_is_the_metric(sentence: str, metric: str) -> None:
    assert asked(sentence, ["pp"]).metric == metric


def test_both_spellings_are_one_metric() -> None:
    for short, full in UNITLESS_NAMES.items():
        assert full.startswith(f"{short}_")
        assert resolve_metric(short) is resolve_metric(short.replace("_", " ")) is METRICS[full]
        assert short not in METRICS
        assert short not in DIMENSIONS
        assert sum(name.removeprefix(short) in ("_ns", "_bytes", "_mhz", "_per_s") for name in METRICS) == 1


def test_a_sentence_and_a_script_take_the_same_names(tmp_path: Path) -> None:
    with open_run(write_trace(tmp_path / "a.sqlite")) as run:
        assert [row.value for row in run.rows("idle")] == [row.value for row in run.rows("idle_ns")]
        with pytest.raises(ArgumentMistake, match="no metric is called 'bubble': write compute absent <= 10% of step"):
            run.rows("bubble")
        with pytest.raises(ArgumentMistake, match="there is none here: write tokens_per_s or samples_per_s"):
            run.rows("throughput")
    said = mistakes("version: 1\nassertions:\n- iteration time <= 1ms\n")
    assert said == ["3:3: no metric is called 'iteration time': write step time <= 450ms"]


def test_what_is_written_for_a_bubble_is_red_on_a_stage_that_waits_for_its_neighbour(tmp_path: Path) -> None:
    """The kernel that receives runs while the stage waits: the GPU is never idle."""
    gpu = TraceBuilder().process()
    for step in range(5):
        at = step * 10_000_000
        gpu.range(f"ProfilerStep#{step}", at, at + 10_000_000)
        gpu.kernel("gemm", at + 10_000, at + 3_500_000, stream=7)
        gpu.kernel("ncclDevKernel_SendRecv", at + 3_500_000, at + 9_990_000, stream=20)
    advised = SENTENCES_BY_WORD["bubble"]
    with open_run(gpu.trace.write(tmp_path / "run.sqlite")) as run:
        assert not judge(advised, run).good
        assert judge("idle <= 10% of step", run).good
    assert {SENTENCES_BY_WORD[word] for word in SENTENCES_BY_WORD if "bubble" in word} == {advised}


@pytest.mark.parametrize(
    ("sentence", "offset", "what"),
    [
        ("mfu >= 40%", 0, "no trace holds 'mfu': write measured mfu >= 40%"),
        ("median MFU >= 40%", 7, "no trace holds 'MFU': write measured mfu >= 40%"),
        ("rank 3 GPU utilization >= 90%", 7, "no metric is called 'GPU utilization': write idle <= 10% of step"),
        ("launch-starved <= 5%", 0, "no metric is called 'launch-starved': write launch starved <= 5% of step"),
        ("starved <= 5%", 0, "no metric is called 'starved': write launch starved <= 5% of step"),
        ("exposed comm <= 2ms", 0, "no metric is called 'exposed comm': write wall exposed all <= 5% of step"),
        ("stalled during communication <= 5%", 0, "no metric is called 'stalled during communication': write blocking"),
        ("without compute <= 5%", 0, "no metric is called 'without compute': write compute absent <= 10% of step"),
        ("blocked by copy <= 5%", 0, "no metric is called 'blocked by copy': write copy blocking <= 5% of step"),
        ("tokens/s >= 5", 0, "no metric is called 'tokens/s': write throughput >= 12000 tokens/s"),
        ("no bubble", 3, "no metric is called 'bubble': write compute absent <= 10% of step"),
        ("throughput >= 12000", 0, "throughput in tokens/s or samples/s? Write throughput >= 12000 tokens/s or "),
        ("throughput >= 40%", 0, "throughput in tokens/s or samples/s? Write throughput >= 40 tokens/s or throughput"),
        (
            "throughput >= baseline - 3%",
            0,
            "throughput in tokens/s or samples/s? Write tokens_per_s >= baseline - 3% or samples_per_s >= baseline",
        ),
        ("throughput", 0, "no metric is called 'throughput': write throughput >= 12000 tokens/s"),
        ("family <= 5ms", 0, "unknown metric 'family'"),
        ("rank 0 step timee <= 5ms", 7, "unknown metric 'step timee' (did you mean 'step_time'?)"),
        ("exposd <= 5ms", 0, "unknown metric 'exposd' (did you mean 'exposed'?)"),
    ],
)
def test_what_no_metric_has(sentence: str, offset: int, what: str) -> None:
    with pytest.raises(SentenceMistake) as caught:
        asked(sentence)
    assert caught.value.offset == offset
    assert str(caught.value).startswith(what)


def test_every_sentence_that_is_offered_is_one() -> None:
    assert [
        sentence for sentence in {*SENTENCES_BY_WORD.values()} if not asked(sentence, ["pp"]).requirement.text
    ] == []


def test_a_word_of_another_tool_is_no_name() -> None:
    for word in {*SENTENCES_BY_WORD} - {*METRICS_BY_UNIT}:
        assert resolve_metric(word) is None, word
