"""`pytest-nsys TRACE…`: the screen, its formats and its exit codes."""

import json
import shlex
from pathlib import Path

import jsonschema
import pytest

from pytest_nsys import reports
from pytest_nsys.analysis.summary.findings import Finding
from pytest_nsys.analysis.summary.lost_time import FindingKind
from pytest_nsys.cli import options
from pytest_nsys.cli.options import MeasureOptions
from pytest_nsys.reports.screens.first_screen import MAX_LINES
from pytest_nsys.reports.screens.next_steps import format_detail_command
from pytest_nsys.reports.screens.trace_brief import FINDING_PURPOSE
from pytest_nsys.reports.tables.formats import Format
from tests.support.bad_traces import BAD
from tests.support.commands import brief, run
from tests.support.samples.builder import TraceBuilder
from tests.support.summaries import RUNS, bare_kernels, summary

SCHEMA = json.loads(
    Path(reports.__file__).with_name("tables").joinpath("brief.schema.json").read_text(encoding="utf-8")
)


def test_a_bare_path_and_show_print_the_same_screen(tmp_path: Path) -> None:
    trace = RUNS["nsys of a pipeline"](tmp_path)
    screen = run(trace, code=0)
    assert screen.stdout == run("show", trace, code=0).stdout
    assert not screen.stderr
    assert len(screen.stdout.splitlines()) <= MAX_LINES


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.sampled(4)
def test_the_brief_follows_its_schema_and_agrees_with_the_summary(tmp_path: Path, kind: str) -> None:
    trace = RUNS[kind](tmp_path)
    found, expected = brief(trace), summary(trace)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    (step,) = found["steps"]
    assert (step["before_ns"], step["now_ns"]) == (None, round(expected.step.ns))
    assert found["ranks"]["slowest"] == expected.step.slowest_rank
    assert [root["amount_ns"] for root in found["roots"]] == [finding.win_ns for finding in expected.findings]
    assert all(doubt[:80] in " ".join(found["doubtful"]) for doubt in expected.doubts)
    assert found["reds"] == []


def test_the_brief_is_for_the_first_screen_and_json_for_views(tmp_path: Path) -> None:
    trace = bare_kernels(tmp_path)
    said = run(trace, "--format=json", code=2).stderr
    assert said == "error: the first screen is no table: give --format brief, or --view NAME --format json\n"
    said = run(trace, "--view=kernels", "--format=brief", code=2).stderr
    assert said == "error: brief is a format of the first screen: leave out --view, or give --format json\n"


def test_the_screen_is_no_table(tmp_path: Path) -> None:
    said = run(bare_kernels(tmp_path), "--format=csv", code=2).stderr
    assert said == "error: the first screen is no table: give --format brief, or --view NAME --format csv\n"


def test_markdown_is_the_screen_in_a_fence(tmp_path: Path) -> None:
    trace = bare_kernels(tmp_path)
    first, *lines, last = run(trace, "--format=markdown", code=0).stdout.splitlines()
    assert (first, last) == ("```text", "```")
    assert lines == run(trace, code=0).stdout.splitlines()


def test_what_cannot_be_read_is_2_and_what_holds_nothing_3(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"SQLite format 3\x00" + b"x" * 5000)
    assert run(broken, code=2).stderr.startswith(f"error: {broken}")
    assert run("show", tmp_path / "none.sqlite", code=2).stderr.startswith("error: ")
    trace = TraceBuilder()
    trace.process().range("forward", 0, 10)
    assert "no kernels" in run(trace.write(tmp_path / "empty.sqlite"), code=3).stderr


def test_ranks_can_be_chosen(tmp_path: Path) -> None:
    trace = RUNS["data parallel"](tmp_path)
    assert brief(trace, "--rank", 2)["ranks"]["slowest"] == 2
    assert "there is no rank 9" in run(trace, "--rank", 9, code=2).stderr


def test_an_option_of_a_view_names_the_view(tmp_path: Path) -> None:
    told = run(bare_kernels(tmp_path), "--where", "family=gemm", code=2).stderr
    assert "--where goes with --view overlap or kernels" in told


def test_the_commands_of_the_last_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trace = RUNS["FSDP"](tmp_path / "my run")
    found = brief(trace, "--window", "3", "--rank", "1", "--convention", "kineto")
    (cut,) = [step["command"] for step in found["next"] if " cut " in step["command"]]
    assert cut.endswith("--rank 1 --window 3 --convention kineto")
    for step in (*brief(trace)["next"], *found["next"]):
        program, *arguments = shlex.split(step["command"])
        assert program == "pytest-nsys"
        if "OTHER_RUN" not in arguments:
            arguments += ["--force"] if arguments[0] == "init" else []
            more = ("--format", "perfetto", "-o", "window.json.gz") if arguments[0] == "cut" else ()
            run(*arguments, *more, code=0)


@pytest.mark.parametrize("asked", [("--window", "steady"), ("--window", "1000000:6500000"), ("--rank", "0"), ()])
def test_what_a_finding_names_runs_whatever_was_measured(tmp_path: Path, asked: tuple[str, ...]) -> None:
    """Its view and command: of these windows a view of all ranks would know no number of steps."""
    gpu = TraceBuilder().process()
    for at in range(1_000_000, 16_000_000, 3_000_000):
        gpu.range(f"ProfilerStep#{at}", at, at + 2_000_000)
        for start in range(at + 20_000, at + 1_200_000, 20_000):
            gpu.kernel("tiny", start, start + 3_000, launch_ns=start - 5_000)
    found = brief(gpu.trace.write(tmp_path / "tiny.sqlite"), *asked)
    assert found["roots"]
    for step in (each for each in found["next"] if each["purpose"] == FINDING_PURPOSE):
        run(*shlex.split(step["command"])[1:], code=0)


def test_shares_of_a_window_that_is_not_as_long_as_the_step_name_it(tmp_path: Path) -> None:
    """The step is a median over all, and what it is made of is measured in the window in the middle."""
    trace = TraceBuilder()
    gpu = trace.process()
    start_ns = 0
    for number, length_ns in enumerate((26_000, 25_000, 27_000, 4_000, 26_000, 45_000, 26_000)):
        gpu.range(f"ProfilerStep#{number}", start_ns, start_ns + length_ns)
        gpu.kernel("gemm", start_ns + 10, start_ns + length_ns - 10, launch_ns=start_ns)
        start_ns += length_ns
    found = brief(trace.write(tmp_path / "uneven.sqlite"))
    assert "; of the window of 4" in found["headline"]
    assert "(--window 3): compute" in found["headline"]


def test_what_a_command_shows_of_a_finding_is_measured_as_it_was() -> None:
    slow = Finding(FindingKind.CLOCKS, 1, (1,), 2, 100, 10)
    first = [("--window", "first")]
    assert format_detail_command(slow, ["run"], first) == "pytest-nsys rows sm_clock_mhz run --window first"
    late = Finding(FindingKind.STRAGGLER, 1, (0, 1), 2, 100, 10)
    of_one = {"steady": "", "steady decode": " --window decode", "2 decode": " --window '2 decode'"}
    for typed, asked in of_one.items():
        assert (
            format_detail_command(late, ["run"], [("--window", typed)]) == f"pytest-nsys run{asked} --view collectives"
        )
    slow = Finding(FindingKind.PROFILER, None, (0, 1), 2, 0, None)
    given = [("--rank", "1"), ("--window", "first"), ("--convention", "kineto")]
    assert format_detail_command(slow, ["run"], given) == "pytest-nsys check run --convention kineto"


@pytest.mark.parametrize(
    ("window", "said"), [("0:5000", "the window 0:5000 ns is measured: "), ("run", "the whole run ")]
)
def test_a_window_that_is_stated_is_not_called_the_run(tmp_path: Path, window: str, said: str) -> None:
    first, _, length, *screen = run(bare_kernels(tmp_path), "--window", window, code=0).stdout.splitlines()
    assert said in first
    what = "run" if window == "run" else "window"
    assert length.startswith(what)
    assert any(f"of {what}  launches" in line for line in screen)


def test_a_terminal_is_told_what_is_measured_on_one_line_that_goes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "is_on_terminal", lambda _: True)
    for format in (Format.TABLE, Format.JSON):
        with MeasureOptions(format=format).show_progress() as tell:
            tell("kernels")
    assert capsys.readouterr().err == "\rkernels …\x1b[K\r\x1b[K"


def test_a_workload_says_how_much_a_step_does(tmp_path: Path) -> None:
    trace = RUNS["data parallel"](tmp_path)
    config = tmp_path / "job.toml"
    config.write_text("[training]\nlocal_batch_size = 2\nseq_len = 1000\n", encoding="utf-8")
    said = run(trace, "--config", config, code=0).stdout
    assert "400000 tokens/s" in said
    assert "400 samples/s" in said
    assert run(trace, "--config", tmp_path / "none.toml", code=2).stderr.startswith("error: ")


@pytest.mark.parametrize("case", BAD)
@pytest.mark.sampled(5)
def test_a_bad_trace_is_one_line_or_a_screen_that_says_what_it_lacks(tmp_path: Path, case: str) -> None:
    bad = BAD[case]
    shown = run(bad.write(tmp_path / f"run{bad.suffix}"), f"--convention={bad.convention}")
    if shown.exit_code:
        (error,) = [line for line in shown.stderr.splitlines() if line.startswith("error: ")]
        assert (shown.exit_code, shown.stdout) == (bad.code, "")
        assert "defect" not in error
    else:
        assert "nothing measured of rank" in shown.stdout


def test_html_is_a_page_of_its_own(tmp_path: Path) -> None:
    page = run(bare_kernels(tmp_path), "--format=html", code=0).stdout
    assert page.startswith("<!doctype html>")
    assert "<title>run.sqlite: " in page
    assert "The kernels that take longest" in page
