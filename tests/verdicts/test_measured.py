"""Values that no trace holds, judged as every other metric is: sentences, baselines, captures, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.gates import Project


def entry(
    metric: str, value: object, unit: str | None = None, better: str | None = None, **labels: Any
) -> dict[str, Any]:
    said = {"unit": unit, "better": better, "labels": labels}
    return {"metric": metric, "value": value, **{key: word for key, word in said.items() if word}}


def measured(project: Project, *entries: dict[str, Any], name: str = "m.json") -> None:
    project.file(name, json.dumps(entries))


def peaks(project: Project, *values: float, name: str = "m.json", better: str | None = "lower") -> None:
    own = [entry("peak", value, "GiB", better, rank=rank) for rank, value in enumerate(values)]
    measured(project, *own, name=name)


FILE = "measurements: m.json\nassertions:\n"


def outcome(project: Project, sentence: str, *arguments: str) -> tuple[str, str]:
    """How the one assertion of a gate file ends, and what was printed."""
    project.gate(f"{FILE}- {sentence}" if not sentence.startswith("measurements") else sentence)
    project.pytest("--nsys-json=report.json", *arguments)
    report = json.loads((project.root / "report.json").read_text(encoding="utf-8"))
    (found,) = report["gate_files"][0]["assertions"]
    return found["outcome"], project.result.stdout.str()


@pytest.mark.parametrize(
    ("sentence", "good", "bad"),
    [
        ("measured mfu >= 45%", [entry("mfu", 46.1, "%")], [entry("mfu", 44.9, "%")]),
        ("measured mfu > 45%", [entry("mfu", 45.1, "%")], [entry("mfu", 45, "%")]),
        ("measured step at most 412ms", [entry("step", 0.412, "s")], [entry("step", 412.1, "ms")]),
        ("measured peak <= 72GiB", [entry("peak", 73728, "MiB")], [entry("peak", 73729, "MiB")]),
        ("measured peak <= 72GiB", [entry("peak", 77.3, "GB")], [entry("peak", 77.4, "GB")]),
        ("measured rate >= 400 TFLOP/s", [entry("rate", 0.4, "PFLOP/s")], [entry("rate", 399999, "GFLOP/s")]),
        ("measured loss < 2.5", [entry("loss", 2.49)], [entry("loss", 2.5)]),
        ("measured retries == 0", [entry("retries", 0, "count")], [entry("retries", 1, "count")]),
        ("no measured retries", [entry("retries", 0, "count")], [entry("retries", 2)]),
        ("measured power <= 700W", [entry("power", 700, "W")], [entry("power", 701, "W")]),
        (
            "measured rate of rank 1 >= 7 img/s",
            [entry("rate", 7, "img/s", rank=1)],
            [entry("rate", 6, "img/s", rank=1)],
        ),
        (
            "rank 3 measured peak <= 72GiB",
            [entry("peak", 90, "GiB", rank=1), entry("peak", 70, "GiB", rank=3)],
            [entry("peak", 70, "GiB", rank=1), entry("peak", 90, "GiB", rank=3)],
        ),
        (
            "median measured wait <= 2ms",
            [entry("wait", n, "ms", rank=n) for n in (1, 2, 9)],
            [entry("wait", n, "ms", rank=n) for n in (1, 3, 9)],
        ),
        (
            "p90 phase decode measured wait <= 2ms",
            [entry("wait", 1, "ms", phase="decode", n=n) for n in range(3)] + [entry("wait", 9, "ms", phase="x", n=0)],
            [entry("wait", 3, "ms", phase="decode", n=n) for n in range(3)],
        ),
        (
            "{metric: measured wait, where: {phase: [decode, prefill]}, across: {rank: max}, require: '<= 2ms'}",
            [entry("wait", n, "ms", phase=p, rank=n) for n in (1, 2) for p in ("decode", "prefill")],
            [entry("wait", n, "ms", phase=p, rank=n) for n in (1, 3) for p in ("decode", "prefill")],
        ),
        (
            "{assert: measured wait <= 2ms, where: {quantile: p95, collective: AllReduce}}",
            [entry("wait", 1, "ms", quantile="p95", collective="AllReduce")],
            [entry("wait", 3, "ms", quantile="p95", collective="AllReduce")],
        ),
    ],
)
def test_a_constant_is_green_and_red(
    project: Project, sentence: str, good: list[dict[str, Any]], bad: list[dict[str, Any]]
) -> None:
    measured(project, *good)
    assert outcome(project, sentence)[0] == "passed"
    measured(project, *bad)
    assert outcome(project, sentence)[0] == "failed"


@pytest.mark.parametrize(
    ("sentence", "better", "up", "down"),
    [
        ("measured peak below baseline plus 1%", "lower", "failed", "improved"),
        ("measured peak below baseline plus max(0%, 0.5GiB)", None, "failed", "improved"),
        ("measured peak above baseline minus 0.5GiB", "higher", "improved", "failed"),
        ("measured peak == baseline", "lower", "failed", "failed"),
        ("{id: x, metric: measured peak, baseline: {rel: 1%}}", "lower", "failed", "improved"),
        ("{id: x, metric: measured peak, baseline: {rel: 1%}}", "higher", "improved", "failed"),
        ("{id: x, metric: measured peak, baseline: {rel: 1%}}", None, "failed", "failed"),
        ("{id: x, metric: measured peak, baseline: {abs: 1GiB}}", "lower", "failed", "improved"),
    ],
)
def test_a_baseline_has_a_direction_where_the_file_says_one(
    project: Project, sentence: str, better: str | None, up: str, down: str
) -> None:
    peaks(project, 70, 71, better=better)
    project.gate(f"{FILE}- {sentence}")
    project.refresh()
    assert outcome(project, sentence)[0] == "passed"
    peaks(project, 70, 73, better=better)
    assert outcome(project, sentence)[0] == up
    peaks(project, 68, 71, better=better)
    assert outcome(project, sentence)[0] == down


def test_a_stored_baseline_is_the_value_itself_and_no_window(project: Project) -> None:
    peaks(project, 70.1)
    project.gate(f"window: steady\n{FILE}- measured peak below baseline plus 1%")
    project.refresh()
    (text,) = project.baselines().values()
    series = json.loads(text)["series"]
    assert [(s["metric"], s["window"], s["unit"], s["better"], s["rows"]) for s in series] == [
        ("measured peak", "none", "GiB", "lower", [[0, ["701/10"]]])
    ]
    assert json.loads(text)["key"] == dict.fromkeys(
        ("convention", "mesh", "micro_batch", "sequence_length", "world", "gpu")
    )
    project.gate(f"window: last\n{FILE}- measured peak below baseline plus 1%")
    project.pytest(code=0)


@pytest.mark.parametrize(
    ("sentence", "entries", "what"),
    [
        ("measured mfu >= 0.45", [entry("mfu", 46, "%")], "measured mfu is a ratio: write 45%, not 0.45"),
        ("measured mfu >= 45%", [entry("mfu", 0.46)], "measured mfu is a number without unit: write 0.45, not 45.0%"),
        ("measured mfu >= 45%", [entry("mfu", 46, "W")], "measured mfu is in W: write 45W"),
        ("measured x <= 1.5", [entry("x", 1, "count")], "measured x is a count: write a whole number, not 1.5"),
        ("measured x <= 700w", [entry("x", 700, "W")], "measured x is in W: write 700W, not 700 w"),
        ("measured mfuu >= 45%", [entry("mfu", 46, "%")], "m.json: nothing is called 'mfuu' (did you mean 'mfu'?)"),
        ("measured zzz >= 45%", [entry("mfu", 46, "%")], "m.json: nothing is called 'zzz': there are mfu"),
        ("phase x measured mfu >= 45%", [entry("mfu", 46, "%")], "measured mfu has no dimension 'phase': it has none"),
        (
            "measured x below baseline plus 1%",
            [entry("x", 1, None, "higher")],
            "higher measured x is better, so 'below baseline plus 1%' passes however far it falls",
        ),
        (
            "measured x below baseline plus 5ms",
            [entry("x", 1, "GiB")],
            "the tolerance has nothing for measured x: give it rel, or an abs such as 2",
        ),
        ("measured x <= 3", [entry("x", 1), entry("x", 2)], "entry 2 (x): comes twice: "),
        (
            "measured x <= 3ms",
            [entry("x", 1, "ms", rank=0), entry("x", 2, "s", rank=1)],
            "entry 2 (x): has the unit s, and m.json: entry 1 (x) has ms",
        ),
        (
            "measured x <= 3",
            [entry("x", 1, None, "lower", rank=0), entry("x", 2, rank=1)],
            "entry 2 (x): has the direction none, and m.json: entry 1 (x) has lower",
        ),
        (
            "measured x <= 3",
            [entry("x", 1, rank=0), entry("x", 2, rank=1, phase="a")],
            "entry 2 (x): has the labels rank, phase, and m.json: entry 1 (x) has rank",
        ),
        ("measured x <= 3", [entry("x", "1")], 'entry 1 (x): "1" is no number'),
    ],
)
def test_what_does_not_fit_is_an_error_of_one_line(
    project: Project, sentence: str, entries: list[dict[str, Any]], what: str
) -> None:
    measured(project, *entries)
    verdict, said = outcome(project, sentence)
    assert (verdict, project.result.ret) == ("error", 1)
    assert what in said


def test_a_sentence_that_cannot_be_meant_is_a_mistake_of_the_gate_file(project: Project) -> None:
    for sentence, what in {
        "measured >= 45%": "the name is missing after 'measured'",
        "decode measured x >= 45%": "'decode' of which label?",
        "rank x measured x >= 45%": "rank is a number, not 'x'",
        "rank 1 rank 2 measured x >= 45%": "rank is selected twice",
        "measured x >= 45 °": "'°' is too much",
    }.items():
        project.gate(f"{FILE}- {sentence}")
        assert what in project.pytest(code=2)


def test_a_gate_file_without_measurements_says_how_to_give_them(project: Project) -> None:
    project.gate("- measured mfu >= 45%")
    assert "give --nsys-measurements=FILE, or `measurements:` in the gate file" in project.pytest(code=1)
    project.trace()
    assert "measured mfu: no measurements: give --nsys-measurements=FILE" in project.pytest("--nsys-trace=run.sqlite")


def test_the_command_line_counts_before_the_gate_file_and_that_before_the_ini_file(project: Project) -> None:
    for name, value in {"ini": 1, "m": 2, "line": 3}.items():
        measured(project, entry("x", value), name=f"{name}.json")
    project.file("pytest.ini", "[pytest]\nnsys_measurements = ini.json\n")
    project.gate("- {id: ini, assert: measured x == 1}", "a.nsys.yaml")
    project.gate(f"{FILE}- {{id: file, assert: measured x == 2}}", "b.nsys.yaml")
    project.pytest(code=0)
    project.gate("- {id: line, assert: measured x == 3}", "a.nsys.yaml")
    project.pytest("a.nsys.yaml", "--nsys-measurements=line.json", code=0)
    project.pytest("b.nsys.yaml", "--nsys-measurements=line.json", code=1)
    assert "gone.json: is no file" in project.pytest("--nsys-measurements=gone.json", code=4)


def test_several_captures_are_medians_and_each_has_its_file(project: Project) -> None:
    for number, value in enumerate((1, 9, 2)):
        measured(project, entry("x", value), name=f"m{number}.json")
        project.trace(f"run{number}.sqlite", 200 + number)
    files = [f"--nsys-measurements=m{number}.json" for number in range(3)]
    traces = [f"--nsys-trace=run{number}.sqlite" for number in range(3)]
    project.gate("- measured x == 2")
    project.pytest(*files, code=0)
    project.pytest(*files, *traces, code=0)
    said = project.pytest(*files[:2], *traces, code=1)
    assert "there are 2 values of --nsys-measurements for 3 captures" in said
    measured(project, entry("x", 9, "ms"), name="m1.json")
    assert "m1.json: x has unit ns, neither side better, labels none, and in m0.json unit 1" in project.pytest(*files)
    measured(project, entry("y", 9), name="m1.json")
    assert "m1.json: nothing is called 'x'" in project.pytest(*files, code=1)


def test_files_of_one_capture_are_taken_together(project: Project) -> None:
    for rank in (0, 1):
        measured(project, entry("x", rank, rank=rank), name=f"rank{rank}.json")
    project.gate("measurements: rank*.json\nassertions:\n- sum measured x == 1")
    project.pytest(code=0)
    measured(project, entry("x", 1, rank=0), name="rank1.json")
    assert "rank1.json: entry 1 (x): comes twice (rank 0): " in project.pytest(code=1)


def test_beside_a_trace_its_ranks_and_its_key_count(project: Project) -> None:
    project.trace()
    peaks(project, 70, 71)
    project.gate("trace: run.sqlite\n" + FILE + "- measured peak below baseline plus 1%\n- pp 1 measured peak <= 71GiB")
    project.refresh()
    project.pytest(code=0)
    (text,) = project.baselines().values()
    assert json.loads(text)["key"]["world"] == 2
    peaks(project, 70)
    said = project.pytest(code=1)
    assert "no data: 1 row of the baseline gone, the first rank 1" in said
    assert "no data: no row has pp 1; pps with a row: 0" in said
    project.gate("trace: run.sqlite\n" + FILE + "- measured peak <= 71GiB", "other.nsys.yaml")
    assert "no data: rank 1 has no row, though rank 0 has" in project.pytest("other.nsys.yaml", code=1)
    (project.root / "gate.nsys.yaml").write_text(
        "version: 1\n" + FILE + "- measured peak below baseline plus 1%\n", encoding="utf-8"
    )
    said = project.pytest(code=1)
    assert "incomparable" in said
    assert "world: now not stated, baseline 2" in said


# How long a step takes without the profiler: the window of the usual trace has 15 ms

OVERHEAD = "measurements: m.json\nworkload: {{steps: 1{0}}}\nassertions:\n- profiler_overhead <= 25%"


@pytest.mark.parametrize(
    ("entries", "stated", "said"),
    [
        ([entry("step_time", 12, "ms")], "", "passed"),
        ([entry("step_time", 11.9, "ms")], "", "26.05%"),
        ([entry("step_time", 0.0119, "s", rank=0), entry("step_time", 0.012, "s", rank=1)], "", "passed"),
        ([entry("step_time", 1, "ms")], ", step_time: 12ms", "passed"),
        ([entry("loss", 2)], ", step_time: 12ms", "passed"),
        (
            [entry("loss", 2)],
            "",
            "nobody says how long a step takes without it: state workload: {step_time: 412ms} in the gate file, or "
            "measure step_time (--nsys-measurements)",
        ),
        ([entry("step_time", 12)], "", "step_time is no time of a step (unit 1, neither side better, labels none)"),
        ([entry("step_time", 0, "ms")], "", "step_time is no time of a step"),
        ([entry("step_time", 12, "ms", phase="decode")], "", "labels phase): write one in ms or s, or one per rank"),
    ],
)
def test_a_measured_step_time_is_what_the_profiled_one_is_held_against(
    project: Project, entries: list[dict[str, Any]], stated: str, said: str
) -> None:
    project.trace()
    measured(project, *entries)
    found, printed = outcome(project, OVERHEAD.format(stated), "--nsys-trace=run.sqlite")
    if said == "passed":
        assert found == said
    else:
        assert found in ("failed", "no data")
        assert said in printed


def test_a_bound_of_the_overhead_takes_the_measured_step_time(project: Project) -> None:
    project.trace()
    gate = "measurements: m.json\nquality: {profiler_overhead: 24%}\nworkload: {steps: 1}\nassertions:\n- no syncs"
    measured(project, entry("step_time", 12.1, "ms"))
    assert outcome(project, gate, "--nsys-trace=run.sqlite")[0] == "passed"
    measured(project, entry("step_time", 12, "ms"))
    found, printed = outcome(project, gate, "--nsys-trace=run.sqlite")
    assert found == "error"
    assert "trace quality: a step takes 25.0% longer under the profiler (bound: at most 24%)" in printed
