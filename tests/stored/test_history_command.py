"""Does ``pytest-nsys history`` tell how rows moved, in every format, and what is not there?"""

import csv
import io
import json
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_nsys.cli import main
from pytest_nsys.stored.history import database
from pytest_nsys.stored.history.database import RunEntry, append_session
from tests.support.gates import Project
from tests.support.histories import FIRST, KEY, SID, Rows, entry, nightly, series
from tests.support.sql import execute

TWO: Rows = {(0, "stage2_f"): "200000", (1, "stage2_f"): "300000"}


def run(path: Path | None, *arguments: str | Path, charset: str = "utf-8", code: int | None = None) -> Result:
    words = ["history", *map(str, arguments), *(["--history", str(path)] if path is not None else [])]
    result = CliRunner(charset=charset).invoke(main, words)
    assert code is None or result.exit_code == code, result.output
    return result


def good(path: Path, *arguments: str | Path) -> str:
    return run(path, *arguments, code=0).stdout


def lines(text: str) -> list[list[str]]:
    """The cells of a table, which are told apart by the dashes under the head."""
    head, dashes, *rest = text.splitlines()
    spans = [match.span() for match in re.finditer("-+", dashes)]
    return [[line[start:end].strip() for start, end in spans] for line in (head, *rest)]


@pytest.fixture
def filled(history: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three nights: rank 0 rises by half in the last, rank 1 stays."""
    nights = [series({**TWO, (0, "stage2_f"): value}) for value in ("200000", "220000", "315000")]
    return nightly(history, monkeypatch, [entry(every=[night]) for night in nights])


def test_a_line_for_each_row(filled: Path) -> None:
    result = run(filled, code=0)
    assert lines(result.stdout) == [
        ["metric", "row", "trend", "runs", "first", "median", "last", "change"],
        ["exposed_ns", "rank 0 stage stage2_f", "▁▂█", "3", "200 us", "220 us", "315 us", "+50%"],
        ["exposed_ns", "rank 1 stage stage2_f", "▅▅▅", "3", "300 us", "300 us", "300 us", "0%"],
    ]
    assert "note: 3 runs from 2026-01-01T02:00:00Z to 2026-01-03T02:00:00Z at 2222222222" in result.stderr
    assert "note: gate.nsys.yaml, key 0123456789ab: convention abc, gpu NVIDIA H100" in result.stderr


def test_a_small_change_is_flat(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One scale for a unit, in parts of each row: a row of 24 ms and one of half a millisecond compare."""
    rows: list[Rows] = [
        {(0, "step"): "24000000", (1, "all_gather"): "566000"},
        {(0, "step"): "23976000", (1, "all_gather"): "566000"},
        {(0, "step"): "23976000", (1, "all_gather"): "2250000"},
    ]
    found = lines(good(nightly(history, monkeypatch, [entry(every=[series(each)]) for each in rows])))
    assert [(line[2], line[7]) for line in found[1:]] == [("▅▅▅", "−0.05%"), ("▁▁█", "+298%")]


def moved(history: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight nights: a refresh in the third, 12 % longer from the sixth on; another row that only varies."""
    us = [(1100, 500), (1104, 520), (1098, 495), (1102, 505), (1100, 515), (1232, 498), (1230, 510), (1235, 512)]
    nights: list[Rows] = [{(0, "stage2_f"): f"{a}000", (1, "stage2_f"): f"{b}000"} for a, b in us]
    measured = database.format_measurement(SID)
    runs = []
    for n, rows in enumerate(nights):
        said = {"measured": measured, "message": "a slower link" if n == 2 else "holds"}
        said |= {"row": "rank 0 stage stage2_f", "limit_value": "1210000"} if n != 2 else {}
        runs.append(entry(every=[series(rows)], outcome="refresh" if n == 2 else "passed", verdict=said))
    return nightly(history, monkeypatch, runs)


def test_the_commit_of_a_move_its_limit_and_acceptances(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(moved(history, monkeypatch), code=0)
    head, first, second = lines(said.stdout)
    assert head[7:] == ["change", "limit", "moved"]
    assert first[7:] == ["+12.1%", "1.21 ms", "+12% at 5555555555, 2026-01-06"]
    assert second[8:] == ["-", "-"]
    assert "note: accepted at 2222222222, 2026-01-03: a slower link (exposed_ns)\n" in said.stderr


def test_json_has_the_limit_the_reason_and_the_shift(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = json.loads(good(moved(history, monkeypatch), "--format", "json"))["rows"]
    assert first["moved"] == [{"run": 6, "commit": "5" * 40, "before": 1100000, "after": 1232000}]
    assert second["moved"] == []
    values = first["values"]
    assert [each["limit"] for each in values] == [1210000, 1210000, None, *[1210000] * 5]
    assert [each["accepted"] for each in values] == [None, None, "a slower link", *[None] * 5]
    assert {each["limit"] for each in second["values"]} == {None}


def test_the_default_is_perf_db(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(filled.parent)
    assert run(None).stdout == good(filled)


def test_a_terminal_without_the_ticks_gets_ascii(filled: Path) -> None:
    assert "_.#" in run(filled, charset="ascii").stdout
    assert "+++" not in run(filled, charset="ascii").stdout
    assert "===" not in good(filled)


def test_gate_key_and_measurement_are_named_where_they_differ(history: Path) -> None:
    append_session(
        history, [entry("1"), entry("2", gate="other.nsys.yaml"), entry("3", digest="ffff", key={**KEY, "gpu": "B200"})]
    )
    append_session(history, [entry("4", window="first"), entry("5")])
    found = lines(good(history))
    assert found[0][:5] == ["gate", "key", "metric", "row", "measured"]
    assert [(line[0], line[1], line[4], line[7]) for line in found[1:]] == [
        ("gate.nsys.yaml", "0123456789ab", "window first", "4 ns"),
        ("gate.nsys.yaml", "0123456789ab", "window median", "1 ns"),
        ("gate.nsys.yaml", "ffff", "window median", "3 ns"),
        ("other.nsys.yaml", "0123456789ab", "window median", "2 ns"),
    ]
    assert [line[4] for line in lines(good(history, "--of", "other*"))[1:]] == ["2 ns"]
    assert len(lines(good(history, "--key", "ff"))) == 2


def test_a_metric_may_lack_its_unit(filled: Path) -> None:
    assert good(filled, "exposed") == good(filled, "exposed_ns")
    said = run(filled, "step time", code=2).stderr
    assert "no run has the metric 'step_time_ns': stored are exposed_ns" in said


def test_markdown_is_the_table(filled: Path) -> None:
    head, _, first, *_ = good(filled, "--format", "markdown").splitlines()
    assert head.split("|")[1:4] == [" metric ", " row ", " trend "]
    assert "▁▂█" in first


def test_ratios_move_in_percentage_points(history: Path) -> None:
    append_session(history, [entry("4/5", metric="overlap", unit="%", better="higher", commit="")])
    assert lines(good(history))[1][2:] == ["▅", "1", "80%", "80%", "80%", "-"]
    append_session(history, [entry("3/4", metric="overlap", unit="%", better="higher")])
    assert lines(good(history))[1][4:8] == ["80%", "77.5%", "75%", "−5 pp"]


def documented(number: int) -> list[str]:
    """The lines of a console's block of the page: the command, and what it prints."""
    text = (
        (Path(__file__).parents[2] / "docs" / "runs-over-time.md")
        .read_text(encoding="utf-8")
        .partition("## History")[2]
    )
    return text.split("```console\n")[1 + number].partition("```")[0].splitlines()


def test_the_example_in_the_documentation_is_true(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, *said = documented(0)
    key = {**KEY, "convention": "ff6209a313ff", "world": 4}
    nights_us = (1106.2, 1106.2, 1125, 1106.9, 1108, 1125, 1110, 1108.4, 1109, 1215.074)
    for night, us in enumerate(nights_us):
        monkeypatch.setattr(database, "read_clock", lambda at=FIRST + timedelta(days=night): at)
        rows = [series({(3, "stage2_f"): str(round(1000 * us)), (0, "stage2_f"): "5"})]
        commit = "474e9573e0" + 30 * "0"
        append_session(
            history, [entry(gate="perf/step.nsys.yaml", key=key, digest="6c55ffc19bff", commit=commit, every=rows)]
        )
    result = run(history, *shlex.split(command)[3:])
    printed = [*result.stdout.splitlines(), *result.stderr.splitlines()]
    assert [line.rstrip() for line in printed] == said


def test_rows_without_a_stage_are_shown_where_the_gate_had_no_others(tmp_path: Path) -> None:
    path = tmp_path / "perf.db"
    append_session(path, [entry(every=[series({(0, "none"): "5", (1, "none"): "6"})])])
    assert ranks(good(path)) == ["rank 0 stage none", "rank 1 stage none"]
    append_session(path, [entry(every=[series({(0, "none"): "5", (1, "stage2_f"): "6"})])])
    assert ranks(good(path)) == ["rank 1 stage stage2_f"]


def ranks(text: str) -> list[str]:
    return [line[1] for line in lines(text)[1:]]


def test_a_metric_goes_without_its_unit(filled: Path) -> None:
    assert good(filled, "exposed") == good(filled, "exposed_ns")


def test_a_metric_of_two_words_is_typed_as_it_is_said(history: Path) -> None:
    step = series({(): "5"}, metric="step_time_ns", dimensions=[])
    append_session(history, [entry(every=[series(TWO), step])])
    assert good(history, "step", "time") == good(history, "step time") == good(history, "step_time_ns")
    assert len(lines(good(history, "step time", "exposed"))) == 4


def test_where_selects_as_a_gate_does(filled: Path) -> None:
    rank_1 = ["rank 1 stage stage2_f"]
    assert ranks(good(filled, "--where", "rank=1")) == rank_1
    assert ranks(good(filled, "--where", "pp=1", "--where", "stage=stage2")) == rank_1
    assert ranks(good(filled, "exposed_ns", "--where", "rank=0", "--where", "rank=1")) == [
        "rank 0 stage stage2_f",
        *rank_1,
    ]
    nothing = run(filled, "--where", "rank=7", code=3)
    assert "exposed_ns of gate.nsys.yaml: no row has rank 7; ranks with a row: 0, 1" in nothing.stderr


def test_a_metric_without_the_dimension_is_left_out_unless_it_was_named(history: Path) -> None:
    compute = series({(0,): "5"}, metric="compute_ns", dimensions=["rank"])
    append_session(history, [entry(every=[series(TWO), compute])])
    assert len(ranks(good(history))) == 3
    assert len(ranks(good(history, "--where", "stage=stage2"))) == 2
    named = run(history, "compute_ns", "--where", "stage=stage2", code=2)
    assert "compute_ns has no dimension 'stage': it has rank, pp" in named.stderr


def test_runs_of_one_branch_and_the_last_ones(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branches = ["main", "topic", "main", "main"]
    nightly(history, monkeypatch, [entry(str(n), branch=branch) for n, branch in enumerate(branches)])

    def values(*arguments: str) -> list[int]:
        return [
            value["value"] for value in json.loads(good(history, "--format", "json", *arguments))["rows"][0]["values"]
        ]

    assert values() == [0, 1, 2, 3]
    assert values("--branch", "main") == [0, 2, 3]
    assert values("--branch", "main", "--last", "2") == [2, 3]
    assert values("--last", "1") == [3]


def test_json_is_everything(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [entry("7/2"), entry("4", outcome="failed")]
    answer = json.loads(good(nightly(history, monkeypatch, runs), "--format", "json"))
    assert answer["definition"] == 1
    first, second = answer["runs"]
    assert first == {
        "id": 1,
        "time": "2026-01-01T02:00:00Z",
        "commit": "0" * 40,
        "branch": "main",
        "dirty": False,
        "gate": "gate.nsys.yaml",
        "digest": "0123456789ab",
        "key": KEY,
        "facts": {},
        "trace": "run.sqlite",
        "profiler": "",
        "captures": None,
        "outcome": "passed",
        "version": first["version"],
        "verdicts": first["verdicts"],
    }
    assert (second["outcome"], second["verdicts"][0]["outcome"], second["verdicts"][0]["xfailed"]) == (
        "failed",
        "failed",
        False,
    )
    (row,) = answer["rows"]
    assert row["labels"] == {"rank": 0, "stage": "stage2_f"}
    assert (row["metric"], row["unit"], row["better"], row["window"]) == ("exposed_ns", "ns", "lower", "median")
    assert [(value["run"], value["value"], value["exact"]) for value in row["values"]] == [(1, 3.5, "7/2"), (2, 4, "4")]
    assert (row["median"], row["earlier"]) == (3.75, 3.5)


# For change-point tools


def table(path: Path, *arguments: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(good(path, "--format", "csv", *arguments))))


def test_csv_has_a_line_for_each_run_and_a_column_for_each_row(filled: Path) -> None:
    found = table(filled)
    assert list(found[0]) == [
        "time",
        "commit",
        "branch",
        "exposed_ns rank 0 stage stage2_f",
        "exposed_ns rank 1 stage stage2_f",
    ]
    assert [list(line.values()) for line in found] == [
        ["2026-01-01 02:00:00 +0000", "0" * 40, "main", "200000", "300000"],
        ["2026-01-02 02:00:00 +0000", "1" * 40, "main", "220000", "300000"],
        ["2026-01-03 02:00:00 +0000", "2" * 40, "main", "315000", "300000"],
    ]
    when = datetime.strptime(found[0]["time"], "%Y-%m-%d %H:%M:%S %z")
    assert when == datetime(2026, 1, 1, 2, tzinfo=UTC)


def with_rows(labels: Sequence[str]) -> RunEntry:
    return entry(every=[series({(0, stage): "1" for stage in labels})])


def test_csv_has_no_hole(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nights = [["a", "b"], ["a", "b"], ["a"], ["a", "b"], ["a", "b", "new"]]
    nightly(history, monkeypatch, [with_rows(night) for night in nights])
    result = run(history, "--format", "csv")
    found = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [line["time"][8:10] for line in found] == ["01", "02", "04", "05"]
    assert list(found[0])[3:] == ["exposed_ns rank 0 stage a", "exposed_ns rank 0 stage b"]
    assert all(value for line in found for value in line.values())
    assert (
        "warning: 1 column left out, which less than half of the 5 runs have: exposed_ns rank 0 stage new"
        in result.stderr
    )
    assert "warning: 1 run of 5 left out, which lack a column that the others have" in result.stderr
    assert [line["time"][8:10] for line in table(history, "--where", "stage=new")] == ["05"]


def test_csv_tells_two_measurements_of_a_metric_apart(history: Path) -> None:
    append_session(history, [entry(every=[series({(0, "a"): "1"}), series({(0, "a"): "2"}, window="first")])])
    (line,) = table(history)
    assert line["exposed_ns rank 0 stage a (window first)"] == "2"
    assert line["exposed_ns rank 0 stage a (window median)"] == "1"


def test_csv_is_of_one_gate_file_and_of_the_newest_key(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [entry("1", digest="aaaa"), entry("2", digest="bbbb"), entry("3", digest="bbbb", branch="topic")]
    nightly(history, monkeypatch, [*runs, entry("4", gate="other.nsys.yaml")])
    several = run(history, "--format", "csv")
    assert (several.exit_code, several.stdout) == (2, "")
    assert "perf.db: csv is of one gate file: give --of; stored are gate.nsys.yaml, other.nsys.yaml" in several.stderr
    result = run(history, "--format", "csv", "--of", "gate.nsys.yaml")
    assert [line["branch"] for line in csv.DictReader(io.StringIO(result.stdout))] == ["main", "topic"]
    assert "warning: left out: runs of another key, aaaa; --key chooses" in result.stderr
    assert "warning: runs of several branches, main, topic: --branch chooses" in result.stderr
    assert len(table(history, "--of", "gate.nsys.yaml", "--key", "aaaa")) == 1


# Mistakes, and what is not there


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["exposed_n"], 2, "no run has the metric 'exposed_n' (did you mean 'exposed_ns'?)"),
        (["overlap"], 2, "no run has the metric 'overlap': stored are exposed_ns"),
        (
            ["--of", "gat.nsys.yaml"],
            2,
            "there is no run of the gate file 'gat.nsys.yaml' (did you mean 'gate.nsys.yaml'?)",
        ),
        (["--key", "f"], 2, "perf.db: there is no run of the key 'f': stored are 0123456789ab"),
        (["--where", "rank"], 2, "--where is DIM=VALUE, not 'rank'"),
        (["exposed_ns", "--where", "rnk=1"], 2, "exposed_ns has no dimension 'rnk' (did you mean 'rank'?)"),
        (["--where", "rnk=1"], 2, "what is stored has no dimension 'rnk' (did you mean 'rank'?)"),
        (["--branch", "topic"], 3, "holds no run of the branch topic; there are main"),
        (["--branch", "mian"], 3, "holds no run of the branch mian (did you mean 'main'?); there are main"),
    ],
)
def test_mistakes(filled: Path, arguments: list[str], code: int, line: str) -> None:
    result = run(filled, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert line in result.stderr
    assert result.stderr.count("\n") == 1


def test_runs_of_no_branch_are_told_from_no_run(filled: Path) -> None:
    execute(filled, "UPDATE runs SET branch = NULL")
    result = run(filled, "--branch", "nope")
    told = "holds no run of the branch nope; none of its runs is of a known branch"
    assert (result.exit_code, result.stderr) == (3, f"error: {filled}: {told}\n")


def test_a_branch_that_only_another_gate_file_has(filled: Path) -> None:
    execute(filled, "UPDATE runs SET branch = 'topic', gate = 'other.nsys.yaml' WHERE id = 1")
    result = run(filled, "--branch", "topic", "--of", "gate.nsys.yaml")
    assert "holds no run of the branch topic in gate.nsys.yaml; there are main, topic" in result.stderr


def test_runs_without_rows_are_no_data(history: Path) -> None:
    history.touch()
    assert (run(history).exit_code, run(history).stderr) == (3, f"error: {history}: holds no run\n")
    broken = entry(outcome="error")
    broken.facts, broken.series = None, []
    append_session(history, [broken])
    assert "no row is stored: none of the runs could be judged" in run(history, code=3).stderr


def test_without_a_history_it_says_how_to_record_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(None, code=2).stderr == "error: no history at perf.db: record one with pytest --nsys-history=perf.db\n"


def test_one_reason_for_all_metrics_is_said_once(history: Path) -> None:
    compute = series({(0,): "5"}, metric="compute_ns", dimensions=["rank"])
    idle = series({(0,): "5"}, metric="idle_ns", dimensions=["rank"])
    append_session(history, [entry(every=[compute, idle])])
    result = run(history, "--where", "rank=9", code=3)
    assert result.stderr.count("has rank 9") == 1
    assert "compute_ns of gate.nsys.yaml, idle_ns of gate.nsys.yaml: no row" in result.stderr


def test_it_reads_what_a_session_wrote(project: Project) -> None:
    project.gated("- exposed_ns < 1 ms", {(1, "stage4_f"): 500})
    project.pytest("--nsys-trace=run.sqlite", "--nsys-history=perf.db", code=0)
    said = project.command_in_a_process("history", "exposed_ns", "--where", "rank=1", code=0)
    (line,) = [line for line in said.splitlines() if "stage4_f" in line]
    assert " ".join(line.split()) == "exposed_ns rank 1 stage stage4_f ▅ 1 500 us 500 us 500 us - 1 ms"
