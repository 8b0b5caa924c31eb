"""Values that no trace holds, judged as every other metric is: sentences, baselines, captures, and what is refused."""

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import pytest

from pytest_nsys import compare, judge, open_run
from pytest_nsys.core.errors import ArgumentMistake, NoRows, NothingMeasured
from tests.support.gates import Project, with_id
from tests.support.git_project import commit, git, start
from tests.support.sql import execute


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
CALIBRATE = ("baseline", "calibrate", "--gate=gate.nsys.yaml", "--reason=why")


def judge_files(project: Project, cases: Iterable[tuple[str, list[dict[str, Any]]]]) -> list[tuple[str, str]]:
    """Each sentence with its state and reason, of a gate file with measurements of its own."""
    sentences = []
    for number, (sentence, entries) in enumerate(cases):
        measured(project, *entries, name=f"m{number}.json")
        text = f"measurements: m{number}.json\nassertions:\n{with_id(f's{number}', sentence)}"
        project.gate(text, f"{number}.nsys.yaml")
        sentences.append(sentence)
    reasons = project.reasons()
    return [(sentence, reasons[f"s{number}"]) for number, sentence in enumerate(sentences)]


def outcome(project: Project, sentence: str, *arguments: str) -> tuple[str, str]:
    """How the one assertion of a gate file ends, and what was printed."""
    project.gate(f"{FILE}- {sentence}" if not sentence.startswith("measurements") else sentence)
    project.pytest("-v", "--nsys-json=report.json", *arguments)
    report = json.loads((project.root / "report.json").read_text(encoding="utf-8"))
    (found,) = report["gate_files"][0]["assertions"]
    return found["outcome"], project.result.stdout.str()


CONSTANTS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ("measured mfu >= 45%", [entry("mfu", 46.1, "%")], [entry("mfu", 44.9, "%")]),
    ("measured mfu > 45%", [entry("mfu", 45.1, "%")], [entry("mfu", 45, "%")]),
    ("measured step at most 412ms", [entry("step", 0.412, "s")], [entry("step", 412.1, "ms")]),
    ("measured peak <= 72GiB", [entry("peak", 73728, "MiB")], [entry("peak", 73729, "MiB")]),
    ("measured peak <= 72GiB", [entry("peak", 77.3, "GB")], [entry("peak", 77.4, "GB")]),
    ("measured rate >= 400 TFLOP/s", [entry("rate", 0.4, "PFLOP/s")], [entry("rate", 399999, "GFLOP/s")]),
    ("measured loss < 2.5", [entry("loss", 2.49)], [entry("loss", 2.5)]),
    ("measured retries == 0", [entry("retries", 0, "count")], [entry("retries", 1, "count")]),
    ("measured power <= 700W", [entry("power", 700, "W")], [entry("power", 701, "W")]),
    ("measured rate >= 7 img/s", [entry("rate", 7, "img/s")], [entry("rate", 6, "img/s")]),
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
        "{assert: max over rank of measured wait <= 2ms, where: {phase: [decode, prefill]}}",
        [entry("wait", n, "ms", phase=p, rank=n) for n in (1, 2) for p in ("decode", "prefill")],
        [entry("wait", n, "ms", phase=p, rank=n) for n in (1, 3) for p in ("decode", "prefill")],
    ),
    (
        "{assert: measured wait <= 2ms, where: {quantile: p95, collective: AllReduce}}",
        [entry("wait", 1, "ms", quantile="p95", collective="AllReduce")],
        [entry("wait", 3, "ms", quantile="p95", collective="AllReduce")],
    ),
]


@pytest.mark.parametrize("state", ["passed", "failure"])
def test_a_constant(project: Project, state: str) -> None:
    sides = [(sentence, good if state == "passed" else bad) for sentence, good, bad in CONSTANTS]
    reasons = judge_files(project, sides)
    assert [(sentence, reason.partition(":")[0]) for sentence, reason in reasons] == [
        (row[0], state) for row in CONSTANTS
    ]


DIRECTIONS = [
    ("lower", "below baseline plus 1%", "failed", "improved"),
    ("none", "below baseline plus max(0%, 0.5GiB)", "failed", "improved"),
    ("higher", "above baseline minus 0.5GiB", "improved", "failed"),
    ("lower", "== baseline", "failed", "failed"),
    ("lower", "within 1% of baseline", "failed", "failed"),
    ("none", "within 1GiB of baseline", "failed", "failed"),
]


def test_a_baseline_has_a_direction_where_the_file_says_one(project: Project) -> None:
    sides = {"lower": "lower", "higher": "higher", "none": None}

    def outcomes(*values: float) -> list[str]:
        peaks = ((name, better, rank) for name, better in sides.items() for rank in (0, 1))
        measured(project, *(entry(name, values[rank], "GiB", better, rank=rank) for name, better, rank in peaks))
        return [case.properties["nsys_outcome"] for case in project.cases().values()]

    entries = (with_id(f"s{n}", f"measured {name} {limit}") for n, (name, limit, *_) in enumerate(DIRECTIONS))
    project.gate(FILE + "".join(entries))
    assert outcomes(70, 71) == ["no data"] * len(DIRECTIONS)
    project.refresh()
    assert outcomes(70, 71) == ["passed"] * len(DIRECTIONS)
    assert outcomes(70, 73) == [up for _, _, up, _ in DIRECTIONS]
    assert outcomes(68, 71) == [down for _, _, _, down in DIRECTIONS]


@pytest.mark.parametrize(("now", "why"), [(80, "80 GiB > 70.7 GiB, rank 0"), (60, "60 GiB < 69.3 GiB, rank 0")])
def test_a_limit_on_both_sides_is_told_by_the_one_that_is_crossed(project: Project, now: float, why: str) -> None:
    peaks(project, 70, better=None)
    project.gate(FILE + "- {id: peak, assert: measured peak within 1% of baseline}")
    project.refresh()
    peaks(project, now, better=None)
    assert f"\n{why}\ngate.nsys.yaml:" in project.pytest("-v", code=1)


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


UNFIT: list[tuple[str, list[dict[str, Any]], str]] = [
    ("measured mfu >= 0.45", [entry("mfu", 46, "%")], "measured mfu is a ratio: write 45%, not 0.45"),
    ("measured mfu >= 45%", [entry("mfu", 0.46)], "measured mfu is a number without unit: write 0.45, not 45%"),
    ("measured mfu >= 45%", [entry("mfu", 46, "W")], "measured mfu is in W: write 45W"),
    ("measured x <= 1.5", [entry("x", 1, "count")], "measured x is a count: write a whole number, not 1.5"),
    ("measured x <= 700w", [entry("x", 700, "W")], "measured x is in W: write 700W, not 700 w"),
    ("measured mfuu >= 45%", [entry("mfu", 46, "%")], ".json: nothing is called 'mfuu' (did you mean 'mfu'?)"),
    ("measured zzz >= 45%", [entry("mfu", 46, "%")], ".json: nothing is called 'zzz': there are mfu"),
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
    ("measured x <= 3", [entry("x", 1), entry("x", 2)], "entry 2 (x): appears twice: "),
    (
        "measured x <= 3ms",
        [entry("x", 1, "ms", rank=0), entry("x", 2, "s", rank=1)],
        "entry 2 (x): has the unit s, and m11.json: entry 1 (x) has ms",
    ),
    (
        "measured x <= 3",
        [entry("x", 1, None, "lower", rank=0), entry("x", 2, rank=1)],
        "entry 2 (x): has the direction none, and m12.json: entry 1 (x) has lower",
    ),
    (
        "measured x <= 3",
        [entry("x", 1, rank=0), entry("x", 2, rank=1, phase="a")],
        "entry 2 (x): has the labels rank, phase, and m13.json: entry 1 (x) has rank",
    ),
    ("measured x <= 3", [entry("x", "1")], 'entry 1 (x): "1" is not a number'),
]


def test_what_does_not_fit(project: Project) -> None:
    reasons = judge_files(project, [(sentence, entries) for sentence, entries, _ in UNFIT])
    for (sentence, reason), (_, _, expected) in zip(reasons, UNFIT, strict=True):
        assert reason.startswith("error: "), sentence
        assert expected in reason
    assert project.result.ret == 1


def test_a_sentence_that_cannot_be_meant_is_a_mistake_of_the_gate_file(project: Project) -> None:
    for sentence, what in {
        "measured >= 45%": "the name is missing after 'measured'",
        "decode measured x >= 45%": "'decode' of which label?",
        "rank x measured x >= 45%": "rank is a number, not 'x'",
        "rank 1 rank 2 measured x >= 45%": "rank is selected twice",
        "measured x >= 45 °": "'°' comes after the end of the limit",
    }.items():
        project.gate(f"{FILE}- {sentence}")
        assert what in project.pytest(code=2)


def test_a_gate_file_without_measurements_says_how_to_give_them(project: Project) -> None:
    project.gate("- measured mfu >= 45%")
    assert "give pytest --nsys-measurements=FILE, or `pytest-nsys rows` --measurements" in project.pytest(code=1)
    project.trace()
    told = "measured mfu: no measurements: give pytest --nsys-measurements=FILE"
    assert told in project.pytest("--nsys-trace=run.sqlite")


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
    assert "gone.json: there is no such file" in project.pytest("--nsys-measurements=gone.json", code=4)


def test_several_captures_are_medians_and_each_has_its_file(project: Project) -> None:
    for number, value in enumerate((1, 9, 2)):
        measured(project, entry("x", value), name=f"m{number}.json")
        project.trace(f"run{number}.sqlite", 200 + number)
    files = [f"--nsys-measurements=m{number}.json" for number in range(3)]
    traces = [f"--nsys-trace=run{number}.sqlite" for number in range(3)]
    project.gate("- measured x == 2")
    project.pytest(*files, code=0)
    project.pytest(*files, *traces, code=0)
    assert "there are 2 values for 3 captures" in project.pytest(*files[:2], *traces, code=1)
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
    assert "rank1.json: entry 1 (x): appears twice (rank 0): " in project.pytest(code=1)


def test_beside_a_trace_its_ranks_and_its_key_count(project: Project) -> None:
    project.trace()
    peaks(project, 70, 71)
    project.gate("trace: run.sqlite\n" + FILE + "- measured peak below baseline plus 1%\n- pp 1 measured peak <= 71GiB")
    project.refresh()
    assert "gate.nsys.yaml: run.sqlite, m.json (2 ranks, " in project.pytest("-v", code=0)
    (text,) = project.baselines().values()
    assert json.loads(text)["key"]["world"] == 2
    peaks(project, 70)
    said = project.pytest("-v", code=1)
    assert "no data: rank 1 has no row: the baseline has it; 1 row of the baseline gone" in said
    assert "no data: no row has pp 1; pps with a row: 0" in said
    project.gate("trace: run.sqlite\n" + FILE + "- measured peak <= 71GiB", "other.nsys.yaml")
    assert "no data: rank 1 has no row, though rank 0 has" in project.pytest("-v", "other.nsys.yaml", code=1)
    project.gate(FILE + "- measured peak below baseline plus 1%\n")
    said = project.pytest("-v", code=1)
    assert "incomparable" in said
    assert "world: now not stated, baseline 2" in said


# How long a step takes without the profiler: the window of the usual trace has 15 ms

OVERHEAD = (
    "measurements: m.json\nquality: {{profiler_overhead: 25%}}\nworkload: {{steps: 1{0}}}\nassertions:\n- no syncs"
)


@pytest.mark.parametrize(
    ("entries", "stated", "said"),
    [
        ([entry("step_time", 12, "ms")], "", "passed"),
        ([entry("step_time", 11.9, "ms")], "", "26.1%"),
        ([entry("step_time", 0.0119, "s", rank=0), entry("step_time", 0.012, "s", rank=1)], "", "passed"),
        ([entry("step_time", 1, "ms")], ", step_time: 12ms", "passed"),
        ([entry("loss", 2)], ", step_time: 12ms", "passed"),
        (
            [entry("loss", 2)],
            "",
            "no unprofiled step time is given: state workload: {step_time: 412ms} in the gate file, or "
            "measure step_time (pytest --nsys-measurements)",
        ),
        ([entry("step_time", 12)], "", "step_time is not a step time (unit 1, neither side better, labels none)"),
        ([entry("step_time", 0, "ms")], "", "entry 1 (step_time): a measured 0 ms is impossible"),
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
        assert found in ("failed", "no data", "error")
        assert said in printed


def test_a_bound_of_the_overhead_takes_the_measured_step_time(project: Project) -> None:
    project.trace()
    gate = "measurements: m.json\nquality: {profiler_overhead: 24%}\nworkload: {steps: 1}\nassertions:\n- no syncs"
    measured(project, entry("step_time", 12.1, "ms"))
    assert outcome(project, gate, "--nsys-trace=run.sqlite")[0] == "passed"
    measured(project, entry("step_time", 12, "ms"))
    found, printed = outcome(project, gate, "--nsys-trace=run.sqlite")
    assert found == "error"
    assert "trace quality: a step takes 25% longer under the profiler (bound: at most 24%)" in printed


def test_measurements_of_another_commit_are_refused(project: Project) -> None:
    start(project)
    project.gate(f"{FILE}- measured x <= 3")
    here = commit(project.root)
    for said, code in {here: 0, here[:8].upper(): 0, "0" * 40: 1}.items():
        measured(project, {**entry("x", 1), "commit": said})
        told = project.pytest("-v", code=code)
        assert (f"entry 1 (x): was measured at commit {'0' * 40}, and {here[:12]} is checked out" in told) is bool(code)
    measured(project, {**entry("x", 1), "commit": here}, {**entry("y", 1), "commit": "0" * 40})
    assert "entry 2 (y): has the commit 000" in project.pytest("-v", code=1)


@pytest.mark.parametrize(
    ("depth", "ci"),
    [
        ([], {"CHANGE_ID": "12", "CHANGE_TARGET": "main"}),
        (["--depth=1"], {"GITHUB_HEAD_REF": "topic", "GITHUB_REF_NAME": "12/merge", "GITHUB_SHA": "MERGE"}),
        (["--depth=1"], {"CI_MERGE_REQUEST_IID": "12", "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": "HEAD"}),
    ],
    ids=["history", "github", "gitlab"],
)
def test_of_a_merge_that_ci_tries_the_last_commit_of_the_request_may_be_measured(
    project: Project, monkeypatch: pytest.MonkeyPatch, depth: list[str], ci: dict[str, str]
) -> None:
    """A shallow checkout of the merge holds none of its parents, and names them."""
    head, base = two_branches(project)
    git(project.root, "switch", "-q", "--detach")
    git(project.root, "merge", "-q", "--no-ff", "topic", "-m", f"a try\n\nparent {'1' * 40}")
    merge = git(project.root, "rev-parse", "HEAD")
    git(project.root, "clone", "-q", *depth, f"file://{project.root}", "checkout")
    for name, value in ci.items():
        monkeypatch.setenv(name, {"MERGE": merge, "HEAD": head}.get(value, value))
    for said, code in {head: 0, merge: 0, base: 1, "1" * 40: 1}.items():
        measured(project, {**entry("x", 1), "commit": said}, name="checkout/m.json")
        project.pytest("checkout", code=code)
    for name in ci:
        monkeypatch.delenv(name)
    measured(project, {**entry("x", 1), "commit": head}, name="checkout/m.json")
    project.pytest("checkout", code=1)


@pytest.mark.parametrize("target", ["main", "gone"])
@pytest.mark.parametrize("of", ["topic", "main"])
def test_measurements_of_the_target_are_none_of_a_request_it_is_merged_into(
    project: Project, monkeypatch: pytest.MonkeyPatch, target: str, of: str
) -> None:
    _, base = two_branches(project)
    git(project.root, "switch", "-q", "topic")
    git(project.root, "merge", "-q", "main", "-m", "Merge main into topic")
    if of == "main":  # which the request was merged into by a merge of its own
        git(project.root, "switch", "-q", "main")
        git(project.root, "merge", "-q", "--ff-only", "topic")
    monkeypatch.setenv("GITHUB_HEAD_REF", "topic")
    monkeypatch.setenv("GITHUB_BASE_REF", target)
    monkeypatch.setenv("GITHUB_REF_NAME", "12/merge")
    monkeypatch.setenv("GITHUB_SHA", base)
    measured(project, {**entry("x", 1), "commit": base})
    assert f"was measured at commit {base}" in project.pytest(code=1)


def two_branches(project: Project) -> tuple[str, str]:
    """The last commits of topic and of main, which is checked out, where either has one of its own."""
    start(project)
    project.gate(f"{FILE}- measured x <= 3")
    commit(project.root)
    git(project.root, "checkout", "-qb", "topic")
    project.file("topic", "")
    head = commit(project.root, "parent 0000000000000000000000000000000000000000\n\nof nobody")
    git(project.root, "checkout", "-q", "main")
    project.file("main", "")
    return head, commit(project.root)


def test_measurements_of_another_run_are_refused(project: Project) -> None:
    project.gated(f"trace: run.sqlite\n{FILE}- measured x <= 3")
    for run, what in (
        ({"world": 2, "pp": 2, "gpu": "h100"}, ""),
        ("night-7", ""),
        ({"world": 4}, "world is 4 there, and 2 here"),
        ({"pp": 4}, "pp is 4 there, and 2 here"),
        ({"gpu": "A100"}, "gpu is A100 there, and NVIDIA H100 80GB HBM3 here"),
        ({"micro_batch": 9}, "micro_batch is 9 there, and 1 here"),
    ):
        measured(project, {**entry("x", 1), "run": run})
        said = project.pytest("-v", code=1 if what else 0)
        assert not what or f"entry 1 (x): is from a different setup: {what}" in said
    measured(project, {**entry("x", 1), "run": "a"}, {**entry("y", 1), "run": "b"})
    assert "entry 2 (y): has the run b, and m.json: entry 1 (x) has a" in project.pytest("-v", code=1)
    project.gate(f"run: {{world: 8}}\n{FILE}- measured x <= 3", "alone.nsys.yaml")
    measured(project, {**entry("x", 1), "run": {"world": 4}})
    assert "world is 4 there, and 8 here" in project.pytest("-v", "alone.nsys.yaml", code=1)


def test_another_unit_direction_or_labels_are_incomparable(project: Project) -> None:
    project.gate(f"{FILE}- {{id: x, assert: measured x within 1% of baseline}}")
    measured(project, entry("x", 1, "ms", "lower"))
    project.refresh("--nsys-history=h.db")
    for other, what in (
        (entry("x", 1, "W", "lower"), "unit ns, now W"),
        (entry("x", 1, "ms", "higher"), "better lower, now higher"),
        (entry("x", 1, "ms"), "better lower, now not stated"),
        (entry("x", 1, "ms", "lower", rank=0), "dimensions not stated, now rank"),
    ):
        measured(project, other)
        assert f"holds measured x with {what}" in project.pytest("--nsys-history=h.db", code=1)
    project.gate(f"{FILE}- {{id: x, assert: measured x within 1% of last 3 runs}}", "past.nsys.yaml")
    measured(project, entry("x", 1, "ms", "lower"))
    project.pytest("past.nsys.yaml", "--nsys-history=h.db", code=1)
    project.pytest("past.nsys.yaml", "--nsys-history=h.db", code=0)
    measured(project, entry("x", 1, "W", "lower", rank=0))
    assert "holds no comparable run of measured x" in project.pytest("past.nsys.yaml", "--nsys-history=h.db", code=1)
    assert project.command("history", "measured x", "--history=h.db", code=0).count("measured x") >= 2


def test_the_base_has_measurements_of_its_own(project: Project) -> None:
    project.gate("- measured x below baseline plus 5%")
    measured(project, entry("x", 100), name="base.json")
    measured(project, entry("x", 106), name="head.json")
    both = "--nsys-measurements=head.json", "--nsys-against-measurements=base.json"
    assert "106" in project.pytest(*both, code=1)
    project.pytest("--nsys-measurements=base.json", "--nsys-against-measurements=head.json", "-W", "default", code=0)
    same = project.pytest("--nsys-measurements=base.json", "--nsys-against-measurements=base.json", code=1)
    assert "both sides are the same measurements: " in same
    measured(project, entry("x", 100, "ms"), name="base.json")
    assert "measured x in base.json has unit ns, now 1" in project.pytest(*both, code=1)
    project.trace("a.sqlite", 200)
    project.trace("b.sqlite", 300)
    said = project.pytest("--nsys-trace=b.sqlite", "--nsys-against=a.sqlite", "--nsys-measurements=head.json", code=1)
    assert "a.sqlite: measured x: no measurements: give" in said


def test_a_copy_of_the_measurements_is_told_and_with_the_same_trace_refused(project: Project) -> None:
    project.gate("- measured x below baseline plus 5%")
    both = "--nsys-measurements=head.json", "--nsys-against-measurements=base.json"
    for name in ("base", "head"):
        measured(project, entry("x", 100), name=f"{name}.json")
    said = " ".join(project.pytest(*both, code=0).split())
    line = "head.json and {}base.json hold the same bytes"
    assert f"warning: {line.format('')}: what is measured in them cannot differ" in said
    project.pair()
    traces = "--nsys-trace=head.sqlite", "--nsys-against=base.sqlite"
    assert "hold the same bytes: what" in " ".join(project.pytest(*both, *traces, code=0).split())
    (project.root / "head.sqlite").unlink()
    with closing(sqlite3.connect(project.root / "base.sqlite")) as file:
        file.execute(f"VACUUM INTO '{project.root / 'head.sqlite'}'")
    execute(project.root / "head.sqlite", "PRAGMA user_version = 7")
    said = " ".join(project.pytest(*both, *traces, code=1).split())
    assert "both sides are the same measurements: " in said
    assert "kernels are equal to the nanosecond in " in said
    measured(project, entry("x", 101), name="head.json")
    project.pytest(*both, *traces, code=0)


def test_one_of_another_kind_leaves_the_others_to_be_judged(project: Project) -> None:
    project.gate(
        "- measured x below baseline plus 5%\n- measured y below baseline plus 5%\n- measured z below baseline plus 5%"
    )
    measured(project, entry("x", 100), entry("y", 1), entry("z", 1), name="base.json")
    measured(project, entry("x", 106), entry("y", 1, rank=0), name="head.json")
    said = project.pytest("--nsys-measurements=head.json", "--nsys-against-measurements=base.json", code=1)
    assert "measured y in base.json has dimensions not stated, now rank" in said
    assert "nothing is called 'z'" in said
    assert "not below" not in said
    assert "above its limit" in said


def test_a_waiver_and_an_early_warning_know_the_unit(project: Project) -> None:
    project.gate(
        FILE
        + "- {id: x, assert: measured peak below baseline plus 1%}\n"
        + "- {id: y, assert: measured peak <= 72GiB, warn: <= 70GiB}\n"
        + "waivers:\n"
        + "- {assertion: x, ceiling: 75GiB, expires: 2999-12-31, reason: bigger batch}\n"
        + "- {assertion: y, ceiling: 80000MB, expires: 2999-12-31, reason: bigger batch}\n"
    )
    peaks(project, 69)
    project.refresh()
    for value, outcomes, said in (
        (71, ("passed", "passed"), "warned  y"),
        (74.9, ("passed", "failed"), "waived up to 74.5 GiB until 2999-12-31"),
        (75.1, ("failed", "failed"), "waived up to 75 GiB until 2999-12-31"),
    ):
        peaks(project, value)
        assert said in project.pytest("-v", "-W", "default", "--nsys-json=report.json")
        report = json.loads((project.root / "report.json").read_text(encoding="utf-8"))
        assert tuple(each["outcome"] for each in report["gate_files"][0]["assertions"]) == outcomes


def test_noise_is_calibrated_on_measurements(project: Project) -> None:
    project.gate("- {id: x, assert: measured x <= baseline + 1%}")
    files = []
    for number, value in enumerate((100, 102, 98, 101, 99)):
        measured(project, entry("x", value, None, "lower"), name=f"m{number}.json")
        files.append(f"--measurements=m{number}.json")
    project.command(*CALIBRATE, *files, code=0)
    measured(project, entry("x", 102, None, "lower"))
    project.gate(f"{FILE}- {{id: x, assert: measured x <= baseline + 1%}}")
    assert "inconclusive" in project.pytest("-W", "default", code=0)
    assert "give more" in project.command(*CALIBRATE, *files[:4], code=2)


def test_calibration_holds_an_absolute_tolerance_against_the_noise_in_its_unit(
    project: Project,
) -> None:
    peak = "assert: measured peak <= baseline"
    project.gate(f"- {{id: wide, {peak} + 20GiB}}\n- {{id: tight, {peak} + 1GiB}}")
    files = []
    for number, value in enumerate((70, 71, 72, 73, 74)):
        measured(project, entry("peak", value, "GiB", "lower"), name=f"m{number}.json")
        files.append(f"--measurements=m{number}.json")
    said = project.command(*CALIBRATE, *files, code=0)
    assert "wide: the tolerance holds the noise, which is up to 6.49 GiB" in said
    assert (
        "tight: warning: the noise is more than twice the tolerance in 1 of 1 row: 6.49 GiB, tolerance 1 GiB: no"
        in said
    )


def test_a_report_never_replaces_measurements(project: Project) -> None:
    peaks(project, 70)
    project.gate(f"{FILE}- measured peak <= 72GiB")
    assert "is one of the measurements" in project.pytest("--nsys-measurements=m.json", "--nsys-json=m.json", code=4)


def test_commands_take_measurements(project: Project) -> None:
    peaks(project, 70, 71)
    peaks(project, 70, 79, name="next.json")
    project.file("new.json", '{"fresh": 1}')
    shown = project.command("rows", "measured peak", "--measurements=m.json", "--where=rank=1", code=0)
    assert "71" in shown
    assert "70" not in shown
    for words, code, what in (
        (("rows", "measured peek", "--measurements=m.json"), 3, "did you mean 'peak'?"),
        (("rows", "measured peak"), 2, "no trace: pytest-nsys rows"),
        (("rows", "overlap", "--measurements=m.json"), 2, "no trace: pytest-nsys rows"),
        (("rows", "measured peak", "--measurements="), 2, "the path of measurements is empty"),
        (("compare", "--base-measurements=m.json", "--head-measurements=next.json"), 1, "+11.3%"),
        (("compare", "--base-measurements=next.json", "--head-measurements=m.json"), 0, "better"),
        (("compare", "--base-measurements=m.json", "--head-measurements=new.json"), 3, "the other side has none of it"),
        (
            ("compare", "--base-measurements=m.json", "--head-measurements=gone.json"),
            2,
            "gone.json: there is no such file",
        ),
    ):
        assert what in project.command(*words, code=code)
    project.trace("a.sqlite", 200)
    project.trace("b.sqlite", 201)
    beside = "--base-measurements=m.json", "--head-measurements=next.json"
    assert "measured peak" in project.command("compare", "a.sqlite", "b.sqlite", *beside, code=1)
    project.gate("- measured peak <= 72GiB")
    assert "good" in project.command("check", "gate.nsys.yaml", code=0)


def test_a_script_asks_for_measurements(project: Project) -> None:
    peaks(project, 70, 73)
    peaks(project, 70, 71, name="base.json")
    trace = project.trace()
    with (
        open_run(measurements=project.root / "m.json") as alone,
        open_run(trace, measurements=[project.root / "m.json"]) as run,
    ):
        assert alone.ranks == ()
        assert [(row["rank"], row.value, row.unit) for row in alone.rows("measured peak")] == [
            (0, 70, "GiB"),
            (1, 73, "GiB"),
        ]
        assert alone.to_records("measured peak", rank=1) == [
            {"metric": "measured peak", "rank": 1, "value": 73, "unit": "GiB"}
        ]
        assert [row.value for row in run.rows("measured peak", pp=1)] == [73]
        assert judge("max measured peak <= 72GiB", run).outcome == "failed"
        with open_run(measurements=project.root / "base.json") as base:
            assert judge("measured peak below baseline plus 1%", alone, base).outcome == "failed"
        with pytest.raises(NothingMeasured, match="overlap needs a trace, and none is given beside"):
            alone.rows("overlap")
        with pytest.raises(NoRows, match="no row has rank 2"):
            alone.rows("measured peak", rank=2)
        with pytest.raises(ArgumentMistake, match="unknown metric 'measured "):
            alone.rows("measured ")
    with pytest.raises(ArgumentMistake, match="there is no trace"):
        open_run()
    found = compare((), (), base_measurements=project.root / "base.json", head_measurements=project.root / "m.json")
    assert found.result == "nothing worse"
    assert [(row.labels, row.value) for _, row in found.rows][:1] == [({"rank": 1}, 73)]


def test_fixtures_see_measurements(project: Project) -> None:
    peaks(project, 70, 73)
    project.file(
        "test_it.py",
        """
        def test_row(nsys_run):
            assert [row.value for row in nsys_run.rows("measured peak")] == [70, 73]

        def test_good(nsys_gate):
            nsys_gate("min measured peak <= 72GiB")

        def test_bad(nsys_gate):
            nsys_gate("measured peak <= 72GiB")

        def test_trace(nsys_run):
            nsys_run.rows("overlap")
        """,
    )
    said = project.pytest("test_it.py", "--nsys-measurements=m.json", code=1)
    project.result.assert_outcomes(passed=2, failed=2)
    assert "overlap needs a trace, and none is given beside" in said
