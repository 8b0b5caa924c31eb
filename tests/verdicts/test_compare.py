"""Does ``pytest-nsys compare`` find what got worse between two runs, say what it cannot tell, and exit accordingly?"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pytest_nsys
from pytest_nsys.analysis.metrics.registry import METRICS, Better
from pytest_nsys.cli.demo import write_demo
from pytest_nsys.core.text_format import format_labels
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import Comparator, Severity
from pytest_nsys.reports.session.comparison_tables import find_row_state
from pytest_nsys.verdicts.comparison import BUILT_IN_PATH
from tests.support import commands
from tests.support.gates import MS, Edit, Exposed, Project, watch_openings
from tests.support.reference_data import DUALPIPE
from tests.support.samples.builder import Process, TraceBuilder

ONE_SAMPLE = "no test possible: one trace a side is one sample"


compare, answer = partial(commands.run, "compare"), partial(commands.answer, "compare")


def assertions(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for file in found["gate_files"] for each in file["assertions"]]


def held(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The metric and the rows of what is held against base."""
    return ((each["metric"], row) for each in assertions(found) if not each["on_base"] for row in each["rows"])


def moved(base: str, head: str, metric: str, gate: str | None = None) -> dict[str, str]:
    """The word for each row of a metric that moved, by its labels."""
    rows = [each for each in pytest_nsys.compare(base, head, gate).moved if each[0].assertion.metric == metric]
    return {format_labels(each[1].labels): find_row_state(each) for each in rows}


def captures(project: Project, base: Sequence[int], head: Sequence[int]) -> list[str]:
    """Traces of one rank and one stage, and the options that name them."""
    options = []
    for side, values in (("base", base), ("head", head)):
        for k, exposed in enumerate(values):
            project.trace(f"{side}{k}.sqlite", exposed, ranks=1, stages=("stage2_f",))
            options.append(f"--{side}={side}{k}.sqlite")
    return options


def everywhere(name: str, stream: int = 7, stage: str | None = None) -> Edit:
    """One more kernel in every chunk of rank 1, in a stage of its own where one is given."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for k in range(5):
            at = 20_000_000 * k + 1_000 + 12_000_000
            if stage is not None:
                processes[1].range(f"layer00.{stage}", at, at + 100_000)
            processes[1].kernel(name, at + 20_000, at + 30_000, stream=stream, launch_ns=at + 10_000)

    return edit


# Verdict and exit code


def test_two_runs_of_the_same_values_are_nothing_worse(project: Project) -> None:
    said = compare(*project.pair(), code=0).stdout
    assert said.startswith("nothing worse: ")
    assert ", 0 not at all" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        *(("base.sqlite", "./base.sqlite"), ("base.sqlite", "copy.sqlite"), ("*.sqlite", "head.sqlite")),
        ("--base=head.sqlite", "--base=base.sqlite", "--head=copy.sqlite"),
    ],
)
def test_a_run_is_not_compared_with_itself(project: Project, arguments: tuple[str, ...]) -> None:
    project.pair()
    shutil.copy(project.root / "base.sqlite", project.root / "copy.sqlite")
    said = compare(*arguments, code=2).stderr
    assert said.startswith("error: both sides are the same trace: ")
    assert said.endswith("; there is nothing to compare\n")


def of_one_rank(project: Project, side: str, rank: int, exposed_us: int = 200, ranks: int = 3) -> Path:
    label = f"rank={rank}; pp={rank}/{ranks} dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
    return project.trace(f"{side}/rank{rank}.sqlite", exposed_us, ranks=1, label=label)


def test_ranks_that_are_copies_are_named_and_the_others_compared(project: Project) -> None:
    """Of a folder of files, one a rank. A gate refuses it: it would be green on ranks that are not of this run."""
    for rank in range(3):
        of_one_rank(project, "base", rank)
    of_one_rank(project, "head", 1, 900)
    for rank in (0, 2):
        shutil.copy(project.root / f"base/rank{rank}.sqlite", project.root / f"head/rank{rank}.sqlite")
    said = "2 of 3 traces are those of base, and there is nothing to compare: head/rank0.sqlite, head/rank2.sqlite"
    assert moved("base", "head", "exposed_ns") == {f"rank 1 {stage}": "worse" for stage in ("stage2_f", "stage4_f")}
    assert any(said in note for note in answer("base", "head", code=1)["comparison"]["head"]["notes"])
    assert f"head  warning: {said}" in compare("base", "head", code=1).stdout
    assert pytest_nsys.compare("base", "head").result == "worse"
    project.gate("- exposed_ns below baseline plus 5%\n")
    told = project.pytest("--nsys-trace=head", "--nsys-against=base", code=4)
    assert "2 of 3 traces are on both sides, the first " in told
    shutil.copy(project.root / "base/rank1.sqlite", project.root / "head/rank1.sqlite")
    assert "both sides are the same trace: " in compare("base", "head", code=2).stderr


def test_a_row_that_got_worse_is_named_with_both_values(project: Project) -> None:
    paths = project.pair(200, {(1, "stage4_f"): 400})
    found = answer(*paths, code=1)
    assert found["comparison"]["result"] == "worse"
    assert moved(*paths, "exposed_ns") == {"rank 1 stage4_f": "worse"}
    row, *_ = [row for metric, row in held(found) if metric == "exposed_ns"]
    assert [row[name]["exact"] for name in ("baseline", "value", "limit")] == [200_000, 400_000, 250_000]
    assert (row["outcome"], row["margin"]["exact"], row["times_tolerance"]) == ("failed", -150_000, 4.0)


AT = (1, "stage4_f")


@pytest.mark.parametrize(
    ("base", "head", "code", "verdict", "result", "word"),
    [
        ({}, {AT: 100}, 0, "improved", "nothing worse", "better"),
        ({}, {AT: None}, 3, "no data", "undecided", "gone"),
        ({AT: None}, {}, 3, "no data", "undecided", "new"),
        (
            {},
            {AT: None, (0, "stage2_f"): 300},
            1,
            "no data",
            "worse",
            "gone",
        ),  # a failed row outweighs one that is gone
    ],
)
def test_a_row_that_is_better_gone_or_new(
    project: Project, base: Exposed, head: Exposed, code: int, verdict: str, result: str, word: str
) -> None:
    project.gate("- exposed_ns below baseline plus 5%\n")
    paths = project.pair(base, head)
    found = answer(*paths, "--gate=gate.nsys.yaml", code=code)
    assert (found["verdict"], found["good"]) == (verdict, code == 0)
    assert found["comparison"]["result"] == result
    assert moved(*paths, "exposed_ns", "gate.nsys.yaml")["rank 1 stage4_f"] == word
    said = compare(*paths, "--gate=gate.nsys.yaml", code=code).stdout
    assert ("1 row of the baseline gone" in said) == (word == "gone")


def test_a_change_within_the_tolerance_is_nothing_worse(project: Project) -> None:
    found = pytest_nsys.compare(*project.pair(200, 220))
    assert found.moved == ()
    assert [find_row_state(each) for each in found.unmoved if each[0].assertion.metric == "exposed_ns"] == [
        "within"
    ] * 4


def test_the_worst_row_comes_first_over_all_metrics(project: Project) -> None:
    rows = pytest_nsys.compare(*project.pair(200, {(0, "stage2_f"): 290, (1, "stage4_f"): 900})).moved
    times = [Fraction(each[1].times_tolerance or 0) for each in rows if find_row_state(each) == "worse"]
    assert times == sorted(times, reverse=True)
    assert rows[0][1].labels["rank"] == 1
    words = [*map(find_row_state, rows)]
    assert words == sorted(words, key=["worse", "warned", "better"].index)


def test_what_is_let_pass_stands_between_the_worse_and_the_better(project: Project) -> None:
    project.gate(
        "- {assert: overlap >= baseline - 1pp, severity: warn}\n"
        "- stage4 exposed_ns below baseline plus 5%\n"
        "- compute_ns below baseline plus 5%\n"
    )
    words = [*map(find_row_state, pytest_nsys.compare(*project.pair(200, 500), "gate.nsys.yaml").moved)]
    assert words == ["worse"] * 2 + ["warned"] * 4 + ["better"] * 2


def test_a_gate_without_a_baseline_compares_nothing(project: Project) -> None:
    project.gate("- exposed_ns < 1ms\n")
    paths = project.pair()
    assert "undecided: nothing was compared" in compare(*paths, "--gate=gate.nsys.yaml", code=3).stdout
    found = answer(*paths, "--gate=gate.nsys.yaml", code=3)
    assert (found["verdict"], found["good"], found["comparison"]["result"]) == ("nothing judged", False, "undecided")
    page = compare(*paths, "--gate=gate.nsys.yaml", "--format=html", code=3).stdout
    assert "<title>undecided: Undecided: nothing was compared" in page


# The built-in gate


def test_the_built_in_gate_points_the_way_that_each_metric_gets_worse() -> None:
    gate = load_gate_file(BUILT_IN_PATH)
    worse = {Better.LOWER: Comparator.LE, Better.HIGHER: Comparator.GE}
    for assertion in gate.assertions:
        better = METRICS[assertion.metric].better
        assert assertion.needs_baseline
        assert better is None or assertion.requirement.comparator is worse[better], assertion.name


@pytest.mark.parametrize(
    ("edit", "metric", "row", "said"),
    [
        (everywhere("gemm", stage="stage2_f"), "launches", "rank 1 stage2_f", "worse"),
        (everywhere("gemm", stage="stage3_f"), "launches", "rank 1 stage3_f", "new"),
        (everywhere("gemm"), "launches", "rank 1 no stage", "new"),
        (everywhere("ncclDevKernel_SendRecv", stream=40), "comm_streams", "rank 1 purpose unknown", "worse"),
    ],
)
def test_structure_is_held_exactly(project: Project, edit: Edit, metric: str, row: str, said: str) -> None:
    project.trace("base.sqlite")
    project.trace("head.sqlite", edit=edit)
    assert moved("base.sqlite", "head.sqlite", metric) == {row: said}


def test_a_slower_step_is_worse(project: Project) -> None:
    project.trace("base.sqlite")
    project.trace("head.sqlite", chunks_ms=(17,) * 5, every_ms=23)
    assert moved("base.sqlite", "head.sqlite", "window_ns") == {"rank 0": "worse", "rank 1": "worse"}
    assert moved("base.sqlite", "head.sqlite", "period_ns")["rank 0 p50"] == "worse"


def test_a_trace_without_communication_is_compared_by_what_it_has(project: Project) -> None:
    def compute(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            for k in range(5):
                process.kernel(
                    "gemm", 20_000_000 * k + 2_000_000, 20_000_000 * k + 9_000_000, launch_ns=20_000_000 * k + 1_500_000
                )

    found = answer(*project.pair(stages=(), edit=compute), code=0)
    assert {metric for metric, _ in held(found)} >= {"compute_ns", "idle_ns", "window_ns"}


def test_longer_communication_alone_is_a_hint() -> None:
    gate = load_gate_file(BUILT_IN_PATH)
    assert [a.metric for a in gate.assertions if a.severity.failed is Severity.WARN] == [
        "comm_ns",
        "period_ns",
        "sequence",
    ]


# Gate files


def test_baselines_of_gate_files_judge_and_their_constants_are_judged_on_head(project: Project) -> None:
    project.gate("- exposed_ns below baseline plus 50%\n- max exposed_ns < 250us\n")
    project.gate("- overlap >= baseline - 1pp\n", "other.nsys.yaml")
    found = answer(*project.pair(260, 270), "--gate=gate.nsys.yaml", "--gate=other.nsys.yaml", code=1)
    assert "max exposed 270 us >= 250 us" in found["headline"]
    (constant,) = [each for each in assertions(found) if each["on_base"]]
    assert (constant["outcome"], constant["on_base"]) == ("failed", "failed")
    assert [each["file"] for each in found["gate_files"]] == ["gate.nsys.yaml", "other.nsys.yaml"]


def test_a_folder_means_the_gate_files_below_it(project: Project) -> None:
    project.gate("- exposed_ns below baseline plus 50%\n", "perf/gate.nsys.yaml")
    project.gate("- overlap >= baseline - 1pp\n", "perf/deep/other.nsys.yaml")
    project.gate("- compute_ns == baseline\n", "perf/.hidden/other.nsys.yaml")
    paths = project.pair(200, 240)
    found = answer(*paths, "--gate=perf", code=1)
    assert {each["file"] for each in found["gate_files"]} == {"perf/gate.nsys.yaml", "perf/deep/other.nsys.yaml"}
    said = compare(*paths, "--gate=perf", "--gate=perf/gate.nsys.yaml", code=2).stderr
    assert "a gate file is given twice" in said
    (project.root / "empty").mkdir()
    assert "empty: holds no gate file (*.nsys.yaml)" in compare(*paths, "--gate=empty", code=2).stderr


def test_severity_and_xfail_let_a_row_pass(project: Project) -> None:
    project.gate(
        "- {assert: exposed_ns below baseline plus 5%, severity: warn}\n"
        "- {assert: overlap >= baseline - 1pp, xfail: known}\n"
    )
    paths = project.pair(200, 400)
    found = answer(*paths, "--gate=gate.nsys.yaml", code=0)
    assert [each["state"] for each in assertions(found)] == ["warned", "xfailed"]
    assert set(moved(*paths, "exposed_ns", "gate.nsys.yaml").values()) == {"warned"}
    assert set(moved(*paths, "overlap", "gate.nsys.yaml").values()) == {"expected"}


def test_what_the_history_judges_is_said_to_be_left_out(project: Project) -> None:
    project.gate("- exposed_ns below baseline plus 5%\n- {id: trend, assert: compute_ns <= last 10 runs + 5%}\n")
    found = answer(*project.pair(), "--gate=gate.nsys.yaml", code=0)
    assert found["comparison"]["not_held"] == ["gate.nsys.yaml: trend"]


def test_options_of_measuring_hold_for_the_built_in_gate_alone(project: Project) -> None:
    project.gate("- exposed_ns below baseline plus 5%\n")
    paths = project.pair()
    found = answer(*paths, "--window=first", "--kernels=launched", code=0)
    measured = [*found["comparison"]["windows"], *found["gate_files"][0]["windows"]]
    assert [each["measured_as"] for each in measured] == ["window first, kernels launched"] * 2
    said = compare(*paths, "--gate=gate.nsys.yaml", "--window=first", code=2).stderr
    assert "--window is what the gate file says" in said


def test_another_convention(project: Project) -> None:
    found = answer(*project.pair(), "--convention=generic", "--anchor=forward chunk%", code=0)
    assert [*held(found)]


def test_mistakes_of_a_gate_file_are_told(project: Project) -> None:
    project.gate("- exposed_nss below baseline plus 5%\n")
    said = compare(*project.pair(), "--gate=gate.nsys.yaml", code=2).stderr
    assert "gate.nsys.yaml:3:" in said
    assert "exposed_ns" in said


# Comparability


def test_runs_of_two_meshes_stand_side_by_side_without_a_verdict(project: Project) -> None:
    project.trace("base.sqlite", 200)
    project.trace("head.sqlite", 900, label="rank={rank}; pp=0/1 dp={rank}/{ranks} cp=0/1 ep=0/1; mbs=1 seq=2048")
    found = answer("base.sqlite", "head.sqlite", code=3)
    assert (found["verdict"], found["comparison"]["result"]) == ("incomparable", "incomparable")
    differs = found["comparison"]["circumstances"]
    assert [(each["name"], each["must_agree"]) for each in differs] == [("mesh", True)]
    rows = [row for metric, row in held(found) if metric == "exposed_ns"]
    assert {(row["baseline"]["exact"], row["value"]["exact"], row["limit"]) for row in rows} == {
        (200_000, 900_000, None)
    }
    assert set(moved("base.sqlite", "head.sqlite", "exposed_ns").values()) == {"not judged"}
    said = compare("base.sqlite", "head.sqlite", code=3).stdout
    assert "Side by side, not judged" in said
    assert "worse" not in said
    (line,) = (line for line in said.splitlines() if line.startswith("where this may differ on purpose, add "))
    pasted = line.removeprefix("where this may differ on purpose, add ").split()
    assert "--comparable-on=mesh" not in pasted
    assert compare("base.sqlite", "head.sqlite", *pasted, code=1).stdout.startswith("worse: ")


def test_comparable_on_narrows_what_must_agree_and_still_tells(project: Project) -> None:
    project.trace("base.sqlite", gpu="NVIDIA A100")
    project.trace("head.sqlite")
    compare("base.sqlite", "head.sqlite", code=3)
    said = compare("base.sqlite", "head.sqlite", "--comparable-on=mesh", "--comparable-on=world", code=0).stdout
    assert "not compared, on purpose" in said
    assert "NVIDIA A100" in said


def test_a_constant_is_judged_on_head_of_an_incomparable_pair_too(project: Project) -> None:
    project.gated("- exposed_ns below baseline plus 5%\n- exposed_ns < 100us\n", name="base.sqlite", gpu="NVIDIA A100")
    project.trace("head.sqlite")
    said = compare("base.sqlite", "head.sqlite", "--gate=gate.nsys.yaml", code=1).stdout
    assert said.startswith("worse: 1 constant limit broken by head; the runs differ in gpu; nothing was held")


def test_what_hangs_on_a_lost_order_alone_is_not_held(project: Project) -> None:
    def inside_one_another(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            process.kernel("long", 49 * MS, 50 * MS, stream=28, launch_ns=40 * MS + 1_100)
            process.kernel("short", 49 * MS + 100, 49 * MS + 800_000, stream=28, launch_ns=40 * MS + 1_200)

    project.trace("base.sqlite")
    project.trace("head.sqlite", edit=inside_one_another)
    said = compare("base.sqlite", "head.sqlite", code=1).stdout
    lost = said.count("\nincomparable: ")
    assert re.match(
        rf"worse: \d+ rows of \d+ outside the limit; "
        rf"the runs differ in streams of overlapping kernels; {lost} assertions not held against base\n",
        said,
    )
    assert re.search(r"worse +compute_ns +rank 0 +1.6 ms +3.4 ms +\+112% +<= ", said)
    assert re.search(r"not judged +comm_streams +rank 0 ep_a2a +1 +0 +−100% +—", said)
    assert "not comparable" not in said


def test_a_constant_needs_no_window_in_base(project: Project) -> None:
    project.gated("- exposed_ns below baseline plus 5%\n- {assert: overlap >= 1%, window: '6'}\n", name="base.sqlite")
    project.trace("head.sqlite", chunks_ms=(15,) * 7)
    options = ("base.sqlite", "head.sqlite", "--gate=gate.nsys.yaml", "--comparable-on=mesh")
    (constant,) = [each for each in assertions(answer(*options, code=0)) if each["on_base"]]
    assert (constant["outcome"], constant["on_base"]) == ("passed", "not measured")
    assert "not measured" in compare(*options, code=0).stdout


# What only one side has


def test_a_stage_a_stream_and_a_kernel_that_appear_or_vanish(project: Project) -> None:
    project.trace("base.sqlite", edit=everywhere("old_kernel"))
    project.trace("head.sqlite", edit=everywhere("new_kernel", stream=40, stage="stage3_f"))
    found = answer("base.sqlite", "head.sqlite", code=3)["comparison"]
    assert [(each["kind"], each["name"], each["ranks"], each["launches"]) for each in found["appeared"]] == [
        ("stage", "stage3_f", [1], 1),
        ("stream", "40 (compute)", [1], 1),
        ("kernel", "new_kernel", [1], 1),
    ]
    assert [(each["kind"], each["name"]) for each in found["vanished"]] == [("kernel", "old_kernel")]
    said = compare("base.sqlite", "head.sqlite", code=3).stdout
    assert "Appeared and vanished (window median, kernels contained)" in said


def test_a_stream_of_another_purpose_vanishes_and_appears(project: Project) -> None:
    project.trace("base.sqlite", edit=everywhere("ncclDevKernel_AllGather", stream=40, stage="stage1_f"))
    project.trace("head.sqlite", edit=everywhere("ncclDevKernel_AllGather", stream=40, stage="stage2_b"))
    found = answer("base.sqlite", "head.sqlite", code=1)["comparison"]
    assert ("stream", "40 (ep_a2a)") in [(each["kind"], each["name"]) for each in found["appeared"]]
    assert ("stream", "40 (cp_ring)") in [(each["kind"], each["name"]) for each in found["vanished"]]


# Captures


@pytest.mark.parametrize("format", ["table", "markdown", "json", "html"])
def test_one_trace_a_side_is_called_one_sample(project: Project, format: str) -> None:
    assert ONE_SAMPLE in compare(*project.pair(), f"--format={format}", code=0).stdout


@pytest.mark.parametrize(
    ("base", "head", "code", "label"),
    [
        ([200, 201], [300, 301], 1, "no test possible with 2 + 2 captures"),
        ([200, 201, 202], [300, 301, 302], 1, "  separated"),
        ([200, 201, 310], [300, 301, 302], 0, "  overlap"),
        ([200, 201, 202, 203, 204], [300, 301, 302, 303, 304], 1, "  p = 0.004"),
        ([200, 201, 202, 310, 311], [199, 198, 300, 301, 302], 0, "p = "),
    ],
)
def test_captures_tell_it_from_noise(project: Project, base: list[int], head: list[int], code: int, label: str) -> None:
    project.gate("- exposed_ns below baseline plus 30%\n")
    said = compare(*captures(project, base, head), "--gate=gate.nsys.yaml", code=code).stdout
    assert label in said
    assert ("0 rows within the limits, 1 beyond the tolerance but within the noise" in said) == (code == 0)


def test_a_gate_file_may_ask_that_inconclusive_is_not_nothing(project: Project) -> None:
    project.gate("- {assert: exposed_ns below baseline plus 30%, severity: {inconclusive: fail}}\n")
    sides = captures(project, [200, 201, 310], [300, 301, 302])
    assert "undecided: 1 assertion inconclusive" in compare(*sides, "--gate=gate.nsys.yaml", code=3).stdout


@pytest.mark.parametrize("format", ["table", "markdown", "html", "json"])
@pytest.mark.parametrize(("base", "head"), [([200], [200, 201]), ([200, 201, 202], [200])])
@pytest.mark.sampled(3)
def test_the_sides_may_have_unequal_captures(project: Project, base: list[int], head: list[int], format: str) -> None:
    said = compare(*captures(project, base, head), f"--format={format}", code=0).stdout
    for name in (f"base{len(base) - 1}.sqlite", f"head{len(head) - 1}.sqlite"):
        assert name in said


def test_captures_of_two_programs_are_a_mistake_that_names_the_side(project: Project) -> None:
    options = captures(project, [200, 200], [200])
    project.trace("base1.sqlite", ranks=2)
    said = compare(*options, code=2).stderr
    assert "error: base: the captures differ in mesh, world" in said


def test_each_trace_is_opened_once_for_all_gates(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.gate("- exposed_ns below baseline plus 5%\n")
    project.gate("- overlap >= baseline - 3pp\n", "other.nsys.yaml")
    paths = project.pair()
    opened = watch_openings(monkeypatch)
    compare(*paths, "--gate=gate.nsys.yaml", "--gate=other.nsys.yaml", code=0)
    assert Counter(path.name for path in opened) == {"base.sqlite": 1, "head.sqlite": 1}


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "BASE and HEAD are missing"),
        (["base.sqlite"], "HEAD is missing"),
        (["--base=base.sqlite"], "HEAD is missing"),
        (["--head=head.sqlite"], "BASE is missing"),
        (["base.sqlite", "head.sqlite", "third.sqlite"], "quote a glob"),
        (["base.sqlite", "--head=head.sqlite"], "not both"),
        (["base.sqlite", ""], "the path of a trace is empty"),
        (["base.sqlite", "no.sqlite"], "no.sqlite: there is no such file"),
        (["base.sqlite", "broken.sqlite"], "error: head: "),
        (["--base=base.sqlite", "--base=base.sqlite", "--head=head.sqlite"], "base: a capture is given twice"),
        (["base.sqlite", "head.sqlite", "--gate=no.nsys.yaml"], "no.nsys.yaml"),
        (["base.sqlite", "head.sqlite", "--gate=g.nsys.yaml", "--gate=./g.nsys.yaml"], "given twice"),
        (["base.sqlite", "head.sqlite", "--output="], "--output is empty"),
        (["base.sqlite", "head.sqlite", "--output=c.foo"], "c.foo: .foo is not a known format: give --format, or one"),
        (["base.sqlite", "head.sqlite", "--output=./base.sqlite"], "is one of the traces"),
        (["base.sqlite", "head.sqlite", "--output=no/such/folder.md"], "there is no folder no/such; make it first"),
        (["base.sqlite", "head.sqlite", "--comparable-on=weather"], "comparable-on"),
        (["base.sqlite", "head.sqlite", "--window=5:1"], "a window must end after it starts"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_the_traces_alone(project: Project, arguments: list[str], said: str) -> None:
    project.pair()
    (project.root / "broken.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    before = (project.root / "base.sqlite").read_bytes()
    result = compare(*arguments, code=2)
    assert said in result.stderr
    assert result.stdout == ""
    assert (project.root / "base.sqlite").read_bytes() == before


def test_a_report_of_torch_profiler_goes_into_a_file(tmp_path: Path) -> None:
    write_demo(tmp_path)
    traces, report = tmp_path / "traces", tmp_path / "moved.md"
    assert compare(traces / "good", traces / "regressed", "-o", report, code=1).stdout.startswith("worse: ")
    assert "| profiler | `schema 1` | `schema 1` |" in report.read_text()


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_trace_below_a_quality_bound_is_named_by_its_side(project: Project, side: str) -> None:
    project.gate("quality: {anchors: 4}\nassertions:\n  - exposed_ns below baseline plus 5%\n")
    project.pair()
    project.trace(f"{side}.sqlite", chunks_ms=(15,) * 3)
    options = ["--gate=gate.nsys.yaml", "--comparable-on=world"]
    said = compare("base.sqlite", "head.sqlite", *options, code=2).stderr
    assert said.startswith(f"error: {side}: ")
    assert "have 3 anchors (bound: at least 4)" in said


def test_an_empty_window_is_no_data(project: Project) -> None:
    said = compare(*project.pair(), "--window=1:2", code=3).stderr
    assert said.startswith("error: ")
    assert "base.sqlite" in said or "head.sqlite" in said


@pytest.mark.reference
def test_real_traces_of_two_meshes_are_not_comparable() -> None:
    first, second = sorted(DUALPIPE.glob("*.sqlite"))
    assert answer(first, second, code=3)["comparison"]["result"] == "incomparable"


def test_each_doubt_of_a_trace_is_a_line(project: Project) -> None:
    for name in ("base.sqlite", "head.sqlite"):
        project.trace(name, ranks=1, chunks_ms=(15,) * 4, label="rank=0; pp=0/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048")
    said = project.command("compare", "base.sqlite", "head.sqlite", code=0)
    assert "base  warning: rank 0 has 4 anchors" in said
    assert "\n  warning: rank 0 has 4 anchors" in said  # of head, where its verdicts are
    project.gate("- exposed_ns below baseline plus 5%")
    project.command("compare", "base.sqlite", "head.sqlite", "--gate=gate.nsys.yaml", code=2)
    first, second = project.result.errlines
    assert first.startswith("error: head: trace quality: 1 of 2 ranks")
    assert second.startswith("error: trace quality: rank 0 has 4 anchors")


# What is told where nothing is worse


SUM = "ncclDevKernel_AllReduce"


def _two_kernels(path: Path, second_us: int, steps: int = 8, second: str = "attention") -> Path:
    """Steps of 20 ms, with 10 ms of one kernel and some of another."""
    process = TraceBuilder().process()
    for k in range(steps):
        at = 20 * MS * k + 1_000
        if steps > 1:
            process.range(f"step {k}", at, at + 18 * MS)
        process.kernel("gemm", at + 100_000, at + 10 * MS, launch_ns=at + 10_000)
        process.kernel(second, at + 11 * MS, at + 11 * MS + second_us * 1_000, launch_ns=at + 20_000, demangled=second)
    return process.trace.write(path)


def test_a_slower_kernel_within_the_limits_is_named(tmp_path: Path) -> None:
    base = _two_kernels(tmp_path / "base.sqlite", 1_000)
    said = compare(str(base), str(_two_kernels(tmp_path / "head.sqlite", 1_200)), code=0).stdout
    assert "nothing worse: " in said
    assert "compute_ns rank 0 +1.8" in next(
        line for line in said.splitlines() if line.startswith("largest changes within")
    )
    assert "kernels that changed most, per GPU and step: attention +20% (1 ms → 1.2 ms)\n" in said
    sides = str(base), str(tmp_path / "head.sqlite")
    for other in ("markdown", "html"):
        shown = compare(*sides, f"--format={other}", code=0).stdout.replace("\\_", "_").replace("\u00a0", " ")
        assert "attention +20% (1 ms → 1.2 ms)" in shown, other
    found = json.loads(compare(*sides, "--format=json", code=0).stdout)["comparison"]
    assert found["kernels"] == [{"name": "attention", "base_ns": 1_000_000, "head_ns": 1_200_000}]
    assert found["kernels_per"] == "per GPU and step"
    same = compare(str(base), str(_two_kernels(tmp_path / "same.sqlite", 1_001)), code=0).stdout
    assert "largest changes" not in same
    assert "changed most" not in same


def test_no_anchor_is_told_where_none_is_found(tmp_path: Path) -> None:
    base = _two_kernels(tmp_path / "base.sqlite", 1_000, steps=1)
    said = compare(str(base), str(_two_kernels(tmp_path / "head.sqlite", 1_200, steps=1)), code=0).stdout
    assert "kernels that changed most, per GPU in the window: attention +20% (1 ms → 1.2 ms)\n" in said
    assert "convention generic, no anchor (" in said
    assert "(found in the base)" not in said


def test_a_limit_that_cannot_fail_is_not_shown(tmp_path: Path) -> None:
    """Of an overlap of 0%, 3 points less."""
    paths = [_two_kernels(tmp_path / name, 1_000 + k, second=SUM) for k, name in enumerate(("b.sqlite", "h.sqlite"))]
    said = compare(*map(str, paths), code=0).stdout
    assert "wall_exposed_all_ns" in said
    assert "  wall_overlap_all " not in said
