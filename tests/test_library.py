"""Does a script get the same rows and the same verdicts as a gate, and errors that it can tell apart?"""

import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

import pytest_nsys
from pytest_nsys import NoRows, NsysError, NsysRun, compare, judge, open_run
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention, KernelAnchor
from pytest_nsys.core.errors import ArgumentMistake, NothingMeasured, TraceError, UsageMistake
from pytest_nsys.core.notebook_display import render_object
from pytest_nsys.gates.model import GateFile, JudgedRow, Outcome, Verdict
from pytest_nsys.library import RunMetrics, build_assertion
from pytest_nsys.reports.screens.trace_brief import build_trace_brief
from pytest_nsys.reports.words.notebook import BAD_COLOUR, DOUBTFUL_COLOUR, GOOD_COLOUR
from pytest_nsys.verdicts.comparison import Result
from pytest_nsys.verdicts.row_records import coerce_types, make_row_records
from tests.support.commands import run as command
from tests.support.gates import Exposed, write_trace
from tests.support.samples.builder import TraceBuilder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def trace(folder: Path) -> Callable[..., Path]:
    """Writes a trace, once under each name."""

    def written(name: str = "run.sqlite", exposed_us: Exposed = 200, **more: Any) -> Path:
        path = folder / name
        return path if path.exists() else write_trace(path, exposed_us, **more)

    return written


@pytest.fixture(scope="module")
def run(trace: Callable[..., Path]) -> NsysRun:
    return open_run(trace("one.sqlite", {(1, "stage4_f"): 333}))


def test_what_is_exported_is_there_and_typed() -> None:
    assert {name for name in pytest_nsys.__all__ if getattr(pytest_nsys, name, None) is None} == set()
    assert set(pytest_nsys.__all__) <= set(dir(pytest_nsys))
    assert issubclass(ArgumentMistake, ValueError)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = pytest_nsys.nothing


def test_without_pytest() -> None:
    said = "import sys; from pytest_nsys import open_run, judge, compare; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_a_run_is(run: NsysRun) -> None:
    assert run.ranks == (0, 1)
    assert [used.window.index for used in run.windows()] == [2, 2]
    assert [used.window.length_ns for used in run.windows("first", span="period")] == [20_000_000] * 2
    assert [note.text for note in run.notes] == []
    assert repr(run).startswith("<NsysRun ")
    assert repr(run).endswith("one.sqlite>")
    assert repr(run.under("generic", "layer00.stage2_f")) == repr(run)


def test_rows_are_selected_as_by_a_gate(run: NsysRun) -> None:
    rows = run.rows("overlap", stage="stage4")
    assert [(row["rank"], row["stage"], row.value, str(row.unit)) for row in rows] == [
        (0, "stage4_f", Fraction(4, 5), "1"),
        (1, "stage4_f", Fraction(667, 1000), "1"),
    ]
    assert [row.value for row in run.rows("exposed_ns", rank=1)] == [200_000, 333_000]
    assert [row["stage"] for row in run.rows("exposed_ns", rank=[0], stage=["stage2_f", "st*4_f"])] == [
        "stage2_f",
        "stage4_f",
    ]
    assert len(run.rows("exposed_ns", pp=1)) == 2
    assert {row.value for row in run.rows("window_ns", kernels="launched")} == {5_000_000}


def test_records_are_plain(run: NsysRun) -> None:
    ns, ratio = run.to_records("exposed_ns", rank=0)[0], run.to_records("overlap", rank=1, stage="stage4")[0]
    assert ns == {"metric": "exposed_ns", "rank": 0, "stage": "stage2_f", "value": 200_000, "unit": "ns"}
    assert ratio == {"metric": "overlap", "rank": 1, "stage": "stage4_f", "value": 0.667, "unit": "1"}
    assert [type(value) for value in ratio.values()] == [str, int, str, float, str]
    assert type(run.to_records("overlap_max", rank=0)[0]["value"]) is float


def test_several_captures_are_medians(trace: Callable[..., Path]) -> None:
    paths = [trace(f"{n}.sqlite", n) for n in (100, 150, 400)]
    with open_run([str(paths[0]), *paths[1:]]) as run:
        assert {row.value for row in run.rows("exposed_ns")} == {150_000}


def test_under_another_convention(run: NsysRun, trace: Callable[..., Path], folder: Path) -> None:
    own = Convention("own", anchor="layer00.stage2_f", stage="(?P<stage>stage2)")
    assert {row["stage"] for row in run.under(own).rows("launches")} == {"stage2"}
    assert run.under("generic").rows("compute_ns", window="run")
    yaml = folder / "own.yaml"
    yaml.write_text("name: own\nanchor: layer00.stage2_f\n")
    for said in (str(yaml), yaml, BUILT_IN_CONVENTIONS["generic"]):
        with open_run(trace(), convention=said, anchor="layer00.stage2_f") as other:
            assert other.windows()[0].window.name == "layer00.stage2_f"


def test_a_run_that_was_closed_is_opened_again(trace: Callable[..., Path]) -> None:
    with open_run(trace()) as run:
        before = run.rows("exposed_ns")
    assert run.rows("exposed_ns") == before
    run.close()


ARGUMENTS: list[tuple[Callable[[NsysRun], object], str]] = [
    (lambda run: run.rows("overlp"), "unknown metric 'overlp' (did you mean 'overlap'?)"),
    (lambda run: run.rows(cast(Any, ["overlap"])), "a metric is a name, as in 'exposed_ns', not ["),
    (lambda run: run.rows("overlap", window=cast(Any, 3)), "window= is text, as in 'median' or '3'"),
    (lambda run: run.rows("overlap", stage=[]), "stage= is a label or a list of labels, as in"),
    (lambda run: run.rows("overlap", rank=cast(Any, 0.0)), "rank= is a label or a list of labels"),
    (
        lambda run: run.rows("overlap", allow_missing={"*": cast(Any, "0")}),
        "allow_missing= names ranks by their numbers, not {'*': '0'}",
    ),
    (
        lambda run: run.rows("overlap", allow_missing=cast(Any, ["*"])),
        "allow_missing= maps stages to ranks, as {'stage1_*': [0]}, not ['*']",
    ),
    (lambda run: run.under(cast(Any, 3)), "convention= is a name, the path of a YAML file or a Convention, not 3"),
    (lambda run: run.under("pithtrain", anchor=cast(Any, 3)), "anchor= is the name of a range, as"),
    (
        lambda _: open_run("no.sqlite", convention="pithtrain", workload=cast(Any, {"steps": 2})),
        "workload= is a pytest_nsys.core.workload.Workload, not {'steps': 2}",
    ),
    (lambda run: run.rows("overlap", span="half"), "'half' is none of range, period"),
    (lambda run: run.under("pithtrian"), "is no convention and no file (did you mean 'pith"),
    (lambda run: run.under(Path("none.yaml")), "'none.yaml' is no convention and no file"),
    (lambda run: run.under("generic", ""), "anchor is empty"),
    (lambda run: run.under("generic", KernelAnchor("")), "anchor is empty"),
    (lambda run: run.rows("overlap", stag="stage2"), "overlap has no dimension 'stag' (did you mean"),
    (lambda run: run.rows("overlap", window="medan"), "unknown window 'medan' (did you mean 'median'"),
    (lambda run: judge("overlp >= 60%", run), "'overlp >= 60%', character 1: unknown metric"),
    (lambda run: judge("overlap >= 60", run), "character 12: overlap is a ratio: write 60%"),
    (lambda run: judge("compute_ns <= baseline + 1%", run), "a baseline is another run: judge(sente"),
    (lambda run: judge("perf/a.nsys.yaml", run), "is a gate file: judge(Path(…), run)"),
    (lambda _: judge("overlap >= 60%", cast(Any, "run.sqlite")), "is a run: judge(sentence, open"),
    (lambda run: judge("overlap >= 60%", run, cast(Any, "b")), "is a run: judge(sentence, open"),
    (lambda run: judge("overlap >= 60%", run, quality=cast(Any, 3)), 'quality= maps names to bounds, as {"missing'),
    (lambda run: judge("overlap >= 60%", run, quality={"missing": 3}), "quality=: unknown key 'missing'"),
    (lambda run: judge("overlap >= 60%", run, quality={"unlaunched": "x"}), "quality=: unlaunched is a share, as"),
    (lambda run: compare(cast(Any, run), "b"), "a trace is a path, or a list of them, not NsysRun"),
    (lambda _: open_run([]), "there is no trace: give a path"),
]
OTHERS: list[tuple[Callable[[NsysRun], object], type[NsysError], str]] = [
    (lambda run: run.under("generic").windows(), TraceError, "anchor"),
    (lambda run: run.rows("overlap", stage="stage3"), NoRows, "stage stage3; stages with a row: stage2_f"),
    (
        lambda run: run.rows("overlap", window="99"),
        TraceError,
        "there is no anchor 99: the rank has 5, numbered from 0",
    ),
    (lambda run: judge("compute_ns <= baseline + 1%", run, run), UsageMistake, "both sides are the same trace"),
    (lambda _: open_run("nowhere.sqlite"), UsageMistake, "there is no such file"),
    (lambda _: compare("", "b"), UsageMistake, "the path of a trace is empty"),
    (lambda _: compare("a", "b", "c.nsys.yaml", anchor="x"), NsysError, "a: there is no such file"),
]


@pytest.mark.parametrize(
    ("asked", "kind", "said"), [*((asked, ArgumentMistake, said) for asked, said in ARGUMENTS), *OTHERS]
)
def test_mistake_lines(run: NsysRun, asked: Callable[[NsysRun], object], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        asked(run)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_that_one_capture_or_rank_lacks_are_no_shorter_list(trace: Callable[..., Path]) -> None:
    less = trace("less.sqlite", stages=("stage2_f",))
    with open_run([trace(), less]) as run:
        with pytest.raises(NoRows, match="rank 0 stage4_f: only 1 of 2 captures have this row"):
            run.rows("overlap")
        assert len(run.rows("overlap", stage="stage2")) == 2
    two = "rank={rank}; pp=0/1 dp={rank}/{ranks} cp=0/1 ep=0/1; mbs=1 seq=2048"
    with open_run(trace("lost.sqlite", {(1, "stage4_f"): None}, label=two)) as run:
        with pytest.raises(NoRows, match="rank 1 has no row"):
            run.rows("overlap")
        assert len(run.rows("overlap", allow_missing={"stage4_*": [1]})) == 3


def test_one_capture_in_other_bytes_is_one_sample(trace: Callable[..., Path], folder: Path) -> None:
    path = trace()
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA page_size = 8192")
        file.execute(f"VACUUM INTO '{folder / 'twin.sqlite'}'")
    with open_run([path, folder / "twin.sqlite"]) as run, pytest.raises(UsageMistake, match="one trace is one sample"):
        run.rows("overlap")


def test_a_verdict(run: NsysRun) -> None:
    verdict = judge("stage4 overlap >= 70%", run)
    assert (verdict.outcome, verdict.good, verdict.message) == (Outcome.FAILED, False, "1 of 2 rows below their limit")
    assert repr(verdict) == "<Verdict failed: stage4 overlap >= 70%: 1 of 2 rows below their limit>"
    assert (verdict.margin, verdict.rows[0].labels) == (Fraction(-33, 1000), {"rank": 1, "stage": "stage4_f"})
    assert judge("stage2 overlap >= 60%", run).margin == Fraction(1, 5)
    assert judge("stage5 overlap >= 60%", run).outcome is Outcome.NO_DATA


def sampled(folder: Path) -> Path:
    """Two ranks of 128, as their labels say."""
    path = folder / "sampled.sqlite"
    label = "rank={rank}; pp={rank}/2 dp=0/64 cp=0/1 ep=0/1; mbs=1 seq=2048"
    return path if path.exists() else write_trace(path, 200, label=label)


def test_a_sample_of_ranks_is_judged_where_the_argument_says_so(folder: Path) -> None:
    with open_run(sampled(folder)) as run:
        with pytest.raises(TraceError) as caught:
            judge("exposed_ns <= 300us", run)
        assert str(caught.value).endswith('profile all ranks, or judge with quality={"missing_ranks": 126}')
        assert "in the gate file" not in str(caught.value)
        for bound in (126, "126", "off"):
            assert judge("exposed_ns <= 300us", run, quality={"missing_ranks": bound}).outcome is Outcome.PASSED
        for quality in ({}, {"missing_ranks": 125}, {"shared_gpus": 3}):
            with pytest.raises(TraceError, match="126 of 128 ranks are missing"):
                judge("exposed_ns <= 300us", run, quality=cast(Any, quality))


def test_the_argument_replaces_bounds_of_a_gate_file(folder: Path) -> None:
    gate = folder / "sampled.nsys.yaml"
    gate.write_text(
        "version: 1\nconvention: pithtrain\nquality: {missing_ranks: 3}\nassertions: [exposed_ns <= 300us]\n"
    )
    with open_run(sampled(folder)) as run:
        with pytest.raises(TraceError, match=r"or write quality: \{missing_ranks: 126\} in the gate file"):
            judge(gate, run)
        assert [verdict.good for verdict in judge(gate, run, quality={"missing_ranks": 126})] == [True]


def test_print_shows_a_verdict_with_its_rows_and_its_cause(run: NsysRun, trace: Callable[..., Path]) -> None:
    head, columns, row, *_ = str(judge("stage4 overlap >= 70%", run)).splitlines()
    assert head == "failed: stage4 overlap >= 70%: 66.7% < 70%, rank 1 stage4_f"
    assert columns.split() == ["rank", "stage", "now", "limit", "headroom"]
    assert row.split()[:3] == ["1", "stage4_f", "66.7%"]
    assert str(judge("stage2 overlap >= 60%", run)).startswith("passed: stage2 overlap >= 60%: all ")
    assert str(judge("stage5 overlap >= 60%", run)).startswith("no data: stage5 overlap >= 60%: no row has stage")
    with open_run(trace("base.sqlite", 210)) as base:
        assert "\n  why:    rank 1 stage4_f" in str(judge("exposed_ns <= baseline + 5%", run, against=base))


def test_print_shows_what_a_comparison_found(trace: Callable[..., Path]) -> None:
    found = compare(trace("base.sqlite", 210), trace("worse.sqlite", 900))
    head, worst, *others = str(found).splitlines()
    assert head == f"worse: {len(found.worse)} of {len(found.rows)} rows worse"
    assert worst.startswith("  ")
    assert f"{found.rows[0][1].labels['rank']}" in worst
    assert others[-1] == f"  … {len(found.worse) - 5} more: to_records() has every row"
    assert str(compare(trace("base.sqlite", 210), trace("same.sqlite", 210))).count("\n") == 0


def test_a_verdict_against_another_run(run: NsysRun, trace: Callable[..., Path]) -> None:
    with open_run(trace("base.sqlite", 210)) as base:
        verdict = judge("exposed_ns <= baseline + 5%", run, against=base)
        assert (verdict.outcome, verdict.margin) == (Outcome.FAILED, 220_500 - 333_000)
        assert [cause.labels["rank"] for cause in verdict.causes] == [1]


def test_a_gate_file_under_its_own_convention(run: NsysRun, folder: Path) -> None:
    gate = folder / "a.nsys.yaml"
    gate.write_text(
        "version: 1\nconvention: {extends: pithtrain, anchor: layer00.stage2_f}\nwindow: first\n"
        "assertions:\n  - window_ns == 20ms\n  - compute_ns <= baseline + 5%\n"
    )
    verdicts = judge(gate, run)
    assert [verdict.outcome for verdict in verdicts] == [Outcome.PASSED, Outcome.NO_DATA]
    assert verdicts[1].message == "no baseline is at hand here"


def test_two_runs(trace: Callable[..., Path], folder: Path) -> None:
    base, head = trace("base.sqlite", 210), trace("worse.sqlite", 900)
    gate = folder / "two.nsys.yaml"
    gate.write_text("version: 1\nassertions: [exposed_ns <= baseline + 5%]\n")
    found = compare(base, [head], gate)
    assert (found.result, len(found.worse)) == (Result.WORSE, 4)
    assert repr(found) == "<Comparison worse: 4 of 4 rows worse>"
    assert compare(head, base, gate).result is Result.NOT_WORSE
    assert compare(base, head).result is Result.WORSE
    with pytest.raises(ArgumentMistake, match="the gate file says the convention"):
        compare(base, head, gate, anchor="x")


# -- in a notebook


def test_rows_of_a_comparison_are_flat_records_with_the_same_keys(trace: Callable[..., Path], folder: Path) -> None:
    gate = folder / "records.nsys.yaml"
    gate.write_text(
        "version: 1\nassertions:\n- exposed_ns <= baseline + 5%\n- stage2 overlap >= baseline - 1pp\n"
        "- sequence == baseline\n- rank 0 window_ns <= baseline + 1%\n- overlap >= 10%\n"
        "waivers:\n- {assertion: rank 0 window_ns <= baseline + 1%, ceiling: 1s, expires: 2100-01-01, reason: known}\n"
    )
    longer = trace("longer.sqlite", 900, chunks_ms=(17,) * 5)
    records = compare(trace("base.sqlite", 210), longer, gate).to_records()
    keys = ["gate", "assertion", "metric", "rank", "stage", "stream"]
    keys += ["base", "head", "change", "limit", "unit", "verdict"]
    assert [list(record) for record in records] == [keys] * len(records)
    assert {type(value) for record in records for value in record.values()} == {str, int, float, type(None)}
    by_row = {(record["metric"], record["rank"], record["stage"]): record for record in records}
    name = "exposed_ns <= baseline + 5%"
    assert by_row["exposed_ns", 0, "stage2_f"] == {
        "gate": by_row["exposed_ns", 0, "stage2_f"]["gate"],
        "assertion": name,
        "metric": "exposed_ns",
        "rank": 0,
        "stage": "stage2_f",
        "stream": None,
        "base": 210_000,
        "head": 900_000,
        "change": 690_000,
        "limit": 220_500,
        "unit": "ns",
        "verdict": "failed",
    }
    share = by_row["overlap", 1, "stage2_f"]
    assert [share[key] for key in ("base", "head", "limit", "unit")] == [0.79, 0.1, 0.78, "1"]
    assert share["change"] == pytest.approx(-0.69)
    assert by_row["window_ns", 0, None]["verdict"] == "waived"
    hashes = [record for record in records if record["metric"] == "sequence"]
    assert {(record["unit"], record["change"], record["verdict"]) for record in hashes} == {("hash", None, "passed")}


def test_a_dimension_that_is_called_as_a_key_ends_otherwise() -> None:
    gate = GateFile(Path("a.nsys.yaml"), (), None)
    asked = build_assertion("measured tokens == baseline", gate)
    row = JudgedRow({"limit": "a", "node": "b"}, 5, None, Outcome.NO_DATA)
    (record,) = make_row_records([(Verdict(asked, Outcome.NO_DATA, "", "1"), row)])
    assert (record["limit_"], record["limit"], record["node"]) == ("a", None, "b")
    assert (record["head"], record["base"], record["change"], record["verdict"]) == (5.0, None, None, "no data")


def test_a_column_of_records_has_one_type() -> None:
    """polars goes by the first hundred rows: it would cut the decimals of the others, or refuse them."""
    assert coerce_types([{"rank": 0, "stream": 7, "value": 1}, {"rank": 1, "stream": "0/1/7", "value": 1.5}]) == [
        {"rank": 0, "stream": "7", "value": 1.0},
        {"rank": 1, "stream": "0/1/7", "value": 1.5},
    ]
    assert [type(value) for value in coerce_types([{"a": 1}, {"a": 1.5}, {"a": None}])[0].values()] == [float]
    assert coerce_types([]) == []


@pytest.mark.parametrize(
    ("sentence", "colour", "said"),
    [
        (
            "stage2 overlap >= 60%",
            GOOD_COLOUR,
            ["passed", "stage2 overlap &gt;= 60%", ">80%</td>", "headroom", ">20 pp<"],
        ),
        ("stage4 overlap >= 70%", BAD_COLOUR, ["failed", "1 of 2 rows below", ">66.7%</td>", "stage4_f"]),
        ("stage5 overlap >= 60%", BAD_COLOUR, ["no data"]),
    ],
)
def test_a_notebook_shows_a_verdict_with_its_rows(run: NsysRun, sentence: str, colour: str, said: list[str]) -> None:
    shown = judge(sentence, run)._repr_html_()
    assert [colour in shown for colour in (colour, *({BAD_COLOUR, GOOD_COLOUR, DOUBTFUL_COLOUR} - {colour}))] == [
        True,
        False,
        False,
    ]
    assert [each for each in said if each not in shown] == []


def test_a_notebook_shows_why_a_verdict_is_red(run: NsysRun, trace: Callable[..., Path]) -> None:
    with open_run(trace("base.sqlite", 210)) as base:
        red = judge("exposed_ns <= baseline + 5%", run, against=base)._repr_html_()
        amber = judge("exposed_ns <= baseline + 5%", base, against=run)._repr_html_()
    assert "baseline</th>" in red
    assert "<pre>  why:" in red
    assert "333" in red
    assert f'{DOUBTFUL_COLOUR}">improved' in amber


def test_names_of_others_are_no_markup(run: NsysRun) -> None:
    row = JudgedRow({"stage": "<script>alert(1)</script>"}, 5, 4, Outcome.FAILED, margin=-1)
    shown = replace(judge("exposed_ns <= 1ms", run), rows=(row,), outcome=Outcome.FAILED)._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown


def test_what_nobody_knows_to_show_is_its_repr() -> None:
    assert render_object(Fraction(1, 2)) == "<pre>Fraction(1, 2)</pre>"


def test_a_run_sums_itself_up(run: NsysRun) -> None:
    found = run.summary()
    assert repr(found).startswith("<Summary of ")
    assert [budget.rank for budget in found.budgets] == [*run.ranks]
    assert run.summary("first").environment.selection.index == 0
    assert run.summary("run").environment.selection.is_whole_run


def test_a_notebook_shows_a_run_as_its_first_screen(run: NsysRun, folder: Path) -> None:
    assert run._repr_html_() == run.summary()._repr_html_()
    assert "largest kernels" in run._repr_html_()
    assert "pytest-nsys init" in run._repr_html_()
    bare = TraceBuilder()
    bare.process().range("forward <b>", 0, 10)
    shown = open_run(bare.write(folder / "bare.sqlite"), convention="generic")._repr_html_()
    assert "no kernels" in shown
    assert "<b>" not in shown


def test_a_view_has_records_text_and_html(run: NsysRun) -> None:
    shown = run.view("overlap", rank=1)
    assert [(row["rank"], row["stage"], row["exposed_ns"]) for row in shown.to_records()] == [
        (row["rank"], row["stage"], row.value) for row in run.rows("exposed_ns", rank=1)
    ]
    assert "wall_overlap_all" in str(shown)
    assert shown._repr_html_().count("<table>") == 2
    assert {row["stage"] for row in run.view("overlap", stage="stage4").to_records()} == {"stage4_f"}
    assert run.view("kernels").to_records()[0].keys() == {
        *("kernel", "family", "time_ns", "of_window", "share", "launches", "mean_ns")
    }
    assert str(run.view("budget")).startswith("rank 0")
    with pytest.raises(ArgumentMistake, match="there is no view 'kernel'"):
        run.view("kernel")
    with pytest.raises(NothingMeasured, match="no row has stage stage9"):
        run.view("overlap", stage="stage9")


@pytest.mark.parametrize("window", [None, "run", "100:300"])
def test_kernels_of_a_run_without_steps_are_those_of_one(folder: Path, window: str | None) -> None:
    """As the command has it: a script got an error where the screen shows the kernels."""
    bare = TraceBuilder()
    bare.process().kernel("gemm", 100, 300)
    with open_run(bare.write(folder / "bare.sqlite")) as run:
        (kernel,) = run.view("kernels", window=window).to_records()
    assert (kernel["kernel"], kernel["time_ns"], kernel["launches"]) == ("gemm", 200, 1)


def test_a_view_of_several_captures_is_of_the_first_in_all_of_its_tables(folder: Path) -> None:
    paths = [write_trace(folder / f"capture{n}.sqlite", 100 * n) for n in (1, 2, 3)]
    with open_run(paths) as several, open_run(paths[0]) as first:
        for view in ("ranks", "overlap", "streams", "kernels", "budget"):
            assert several.view(view).to_records() == first.view(view).to_records()


def test_the_commands_of_a_summary_of_captures_run(folder: Path) -> None:
    """What is found and cut is of the first capture: commands would take all of them for files of one run."""
    paths = [str(write_trace(folder / f"capture{n}.sqlite", 100 * n)) for n in (1, 2)]
    with open_run(paths) as several:
        found = build_trace_brief(several.summary("first"))
    *finding_commands, init, cut, compared = (step.command for step in found.next)
    assert finding_commands
    for told in finding_commands:
        assert "--window first" in told
        command(*shlex.split(told)[1:], code=0)
    assert all(path in init and path in compared for path in paths)
    command(*shlex.split(cut)[1:], "-o", folder / "cut.json.gz", code=0)


def test_a_view_of_kernels_sums_over_the_ranks_that_are_asked_for(run: NsysRun) -> None:
    def total_ns(*ranks: int) -> float:
        return float(str(run.view("kernels", rank=ranks).summary.facts["total_kernel_ns"]))

    assert total_ns(0) != total_ns(1)
    assert 2 * total_ns() == 2 * total_ns(0, 1) == total_ns(0) + total_ns(1)
    by_family = [float(row.value) for row in run.rows("family_ns")]
    assert sum(by_family) == total_ns()


def test_records_of_a_view_are_plain(run: NsysRun) -> None:
    for view in ("ranks", "overlap", "streams", "kernels", "budget"):
        values = [value for record in run.view(view).to_records() for value in record.values()]
        assert {type(value) for value in values} <= {int, float, str, type(None)}


def test_a_path_with_a_comma_is_one_path(folder: Path) -> None:
    (folder / "a, b").mkdir()
    path = str(write_trace(folder / "a, b" / "run.sqlite", 100))
    assert open_run(path).summary().traces == (path,)


def test_the_metrics_of_a_run_are_those_with_rows(run: NsysRun) -> None:
    found = run.metrics
    assert {"overlap", "exposed_ns", "compute_ns"} <= {*found}
    assert "overlap_score" not in found
    assert found["overlap"].dimensions == ("rank", "stage")
    assert all(run.rows(name) for name in ("overlap", "compute_ns"))


def test_print_shows_the_metrics_of_a_run_as_a_table(run: NsysRun) -> None:
    head, _, *rows = str(run.metrics).splitlines()
    assert head.split() == ["metric", "unit", "of", "each", "measures"]
    told = dict(zip((row.split()[0] for row in rows), rows, strict=True))
    assert {*told} == {*run.metrics}
    assert told["overlap"].split(maxsplit=4)[1:4] == ["%", "rank,", "stage"]
    assert "Metric(" not in repr(run.metrics)
    assert max(map(len, rows)) < 160
    assert "<td>exposed_ns</td>" in cast(Any, run.metrics)._repr_html_()


def test_print_of_no_metrics_says_so() -> None:
    assert str(RunMetrics()) == "no metric has rows"
