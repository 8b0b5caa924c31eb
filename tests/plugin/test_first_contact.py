"""What people tripped over: signs that a log lacks, one error told many times, two-sided limits, near misses."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_nsys.core.numbers import format_range
from pytest_nsys.core.text_format import configure_plain_output
from pytest_nsys.reports.screens.check import CheckResult, Plugin, RunShape, Surroundings, TraceFile, render_check_text
from tests.support.commands import run
from tests.support.gate_files import loaded, mistakes
from tests.support.gates import Project
from tests.support.reference_data import REAL

JAX = REAL / "jax_te_attn.trace.json.gz"


# Signs


def test_signs_that_an_encoding_lacks_are_plain() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    configure_plain_output(stream)
    stream.write("\u221210 pp \u2265 5 \u2026 \u2192 \u00e9")
    stream.flush()
    assert raw.getvalue() == b"-10 pp >= 5 ... -> \\xe9"


def test_a_session_in_ascii_shows_signs_and_no_escapes(project: Project) -> None:
    project.gated("- overlap >= 60%", 500)
    for words in (["-m", "pytest", "--nsys-trace=run.sqlite"], ["-m", "pytest_nsys", "--view=overlap", "run.sqlite"]):
        said = subprocess.run(
            [sys.executable, *words],
            cwd=project.root,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
        assert b"\\u2" not in said.stdout + said.stderr
    project.pytest("--nsys-trace=run.sqlite", code=1)


# Errors


def test_one_error_of_many_assertions_is_told_once(project: Project) -> None:
    project.gate("- overlap >= 60%\n- exposed_ns < 1ms\n- no mixed comm streams")
    said = project.pytest("--nsys-strict", code=1)
    project.result.assert_outcomes(errors=3)
    why = "no trace: give --nsys-trace=PATH, or `trace:` in the gate file, or nsys_trace in the ini file"
    told = " ".join(said.partition("= nsys gate =")[2].partition("short test summary")[0].split())
    assert f"error: {why} (3 assertions of gate.nsys.yaml)" in told
    cases = project.cases("--nsys-strict", code=1)
    assert all(case.properties["nsys_message"] == why for case in cases.values())


def test_an_error_of_another_gate_file_is_told_again(project: Project) -> None:
    project.gate("- overlap >= 60%", "one.nsys.yaml")
    project.gate("- overlap >= 60%", "two.nsys.yaml")
    assert "above" not in project.pytest("--nsys-strict", code=1)


# Limits on both sides


def test_both_bounds_in_one_unit() -> None:
    assert format_range(9_000_000, 11_000_000, "ns") == "9–11 ms"
    assert format_range(-5_000, 15_000, "ns") == "\u22125 us to 15 us"
    assert format_range(2, 4, "count") == "2–4"


def test_a_limit_on_both_sides_shows_both(project: Project) -> None:
    project.accepted("tolerance: {rel: 10%, abs: 20us}\nassertions:\n- comm_ns within tolerance of baseline")
    said = project.pytest("--nsys-trace=run.sqlite", "-v", "--nsys-summary=s.md", code=0)
    assert "within 0.9–1.1 ms (baseline ± max(10%, 20us))" in said
    project.trace(
        "other.sqlite",
        edit=lambda _, processes: processes[0].kernel("ncclDevKernel_SendRecv", 47_000_000, 47_600_000, stream=28),
    )
    said = project.pytest("--nsys-trace=other.sqlite", code=1)
    assert "–" in next(line for line in said.splitlines() if "(baseline ± max(10%, 20us))" in line)


# Near misses


def test_auto_is_among_the_conventions() -> None:
    text = "version: 1\nconvention: {}\nassertions: [no syncs]"
    assert mistakes(text.format("autoo")) == ["2:13: unknown convention 'autoo' (did you mean 'auto'?)"]
    (told,) = mistakes(text.format("xyz"))
    assert told.startswith("2:13: unknown convention 'xyz': built in are auto, pithtrain,")


def test_collective_is_a_producer_where_collectives_are_no_dimension() -> None:
    one, other = loaded(
        "version: 1\nassertions: [collective blocking_ns < 1ms, producer collective blocking_ns < 2ms]"
    ).assertions
    assert one.where == other.where
    assert list(one.where) == ["producer"]


def test_a_measurement_without_its_word_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text('{"mfu": 0.45}')
    said = run("rows", "mfu", "--measurements", tmp_path / "m.json", code=2)
    assert said.stderr == "error: 'mfu' is a measurement: write 'measured mfu'\n"
    assert "unknown metric 'mfx'" in run("rows", "mfx", "--measurements", tmp_path / "m.json", code=2).stderr


def test_check_says_what_takes_measurements(project: Project) -> None:
    project.file("m.json", '{"mfu": 0.45}')
    said = project.command("check", "m.json", code=2)
    assert "problem: m.json: holds measurements, not a trace: pytest takes it as --nsys-measurements=m.json" in said


def test_check_tells_of_a_schema_of_another_version(project: Project) -> None:
    project.trace()
    project.command("init", "run.sqlite", "-o", "perf/own.nsys.yaml", code=0)
    assert "copy of the schema" not in project.command("check", "perf/own.nsys.yaml", code=0)
    copy = project.root / "perf/nsys-gate-file.schema.json"
    copy.write_text(copy.read_text().replace("matrix", "matricks"))
    said = project.command("check", "perf/own.nsys.yaml", code=0)
    assert "warning: perf/own.nsys.yaml: its copy of the schema is of another version: cp " in said
    assert "perf/nsys-gate-file.schema.json\n\nno problem found\n" in said


def test_the_commit_of_a_measurement_outside_of_git_is_unchecked_and_told(project: Project) -> None:
    project.file("m.json", '{"mfu": 0.45, "commit": "abcdef1"}')
    project.gate("- measured mfu >= 0.40")
    said = project.pytest("--nsys-measurements=m.json", "-v", code=0)
    assert "is of commit abcdef1, which is not checked: git names no commit here" in said


def test_the_markdown_of_a_measurement_alone_has_no_windows_and_no_row(project: Project) -> None:
    project.file("m.json", '{"mfu": 0.45}')
    project.gate("- measured mfu >= 0.40")
    project.pytest("--nsys-measurements=m.json", "--nsys-summary=s.md", code=0)
    text = (project.root / "s.md").read_text()
    assert "Windows" not in text
    assert "holds" not in text


@pytest.mark.reference
def test_init_extends_what_the_commands_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # from elsewhere its baseline would lie in what both folders have in common
    run("init", JAX, "-o", tmp_path / "jax.nsys.yaml", code=0)
    assert "extends: jax" in (tmp_path / "jax.nsys.yaml").read_text()
    assert "convention jax" in run("--view=ranks", JAX, code=0).stderr


@pytest.mark.parametrize(
    ("version", "told"), [("1", "torch.profiler schema 1"), ("2.8", "torch.profiler 2.8"), (None, "torch.profiler")]
)
def test_check_names_the_version_of_a_format(version: str | None, told: str) -> None:
    file = TraceFile("a.json", "torch.profiler", version)
    plugin = Plugin(active=True, why_not="", rootdir="/", inifile=None)
    around = Surroundings("1", "3.12", "python", "9", plugin, None, {}, [])
    held = RunShape(
        [file],
        [0],
        None,
        "convention kineto",
        anchored=True,
        measured_as="window median",
        quality=[],
        doubts=[],
        groups=[],
    )
    text = render_check_text(
        CheckResult(1, good=True, problems=[], surroundings=around, gate_files=[], not_collected=[], run=held)
    )
    assert f"trace        a.json: {told}\n" in text
    assert text.endswith("\nno problem found\n")
