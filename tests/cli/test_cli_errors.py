"""Does every bad input end in one clear line and its exit code, whatever the command?"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pytest_nsys.cli import main
from pytest_nsys.cli.command_group import COMMANDS as LISTED
from pytest_nsys.cli.command_group import SUGGESTED_COMMANDS
from tests.support.commands import run
from tests.support.samples.builder import TraceBuilder
from tests.support.sql import execute

ANCHOR = "forward chunk {0} (phase1) backward chunk {0} (phase0)"
COMMANDS = (("--view=ranks",), ("--view=streams",), ("--view=overlap",), ("rows", "overlap", "--trace"))
MEASURING = COMMANDS[2:]
ESCAPE = "\x1b[31mred\x07\n| `<b>&\u202e"


def good(path: Path, anchor: str = ANCHOR.format(0), stage: str = "layer00.stage2_f") -> Path:
    gpu = TraceBuilder().process()
    gpu.range(anchor, 0, 100_000)
    gpu.range(stage, 1_000, 2_000)
    gpu.kernel("ncclDevKernel_SendRecv", 10_000, 20_000, stream=28, launch_ns=1_500)
    gpu.kernel("gemm", 10_000, 20_000, launch_ns=1_500)
    return gpu.trace.write(path)


PATHS = {
    "absent.sqlite": "there is no such file or folder",
    "empty.sqlite": "is empty (0 bytes)",
    "folder": "holds no trace",
    "*.db": "matches no file",
    "run.nsys-rep": "is not an Nsight Systems report",
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("name", PATHS)
def test_a_path_without_a_trace(tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "run.nsys-rep").write_bytes(b"report")
    result = run(*command, tmp_path / name, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert PATHS[name] in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_empty_path(command: tuple[str, ...]) -> None:
    run(*command, "", code=2)


@pytest.mark.parametrize("command", MEASURING, ids=lambda command: command[0])
def test_no_data(tmp_path: Path, command: tuple[str, ...]) -> None:
    builder = TraceBuilder()
    builder.process().kernel("gemm", 10_000, 20_000)
    path = builder.write(tmp_path / "run.sqlite")
    result = run(*command, path, "--convention=pithtrain", code=3)
    assert result.stdout == ""
    assert re.fullmatch("error: .*the trace holds no ranges at all.*\n", result.stderr)


@pytest.mark.parametrize("window", ["1:", "5:5", "5:1"])
def test_half_a_window(tmp_path: Path, window: str) -> None:
    run("--view=overlap", good(tmp_path / "run.sqlite"), "--window", window, code=2)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--window", ""), "'' is not a window"),
        (("--window", "medan"), "unknown window 'medan' (did you mean 'median'?)"),
        (("--window", "1:" + "9" * 25), "no trace has a time of more than"),
        (("--anchor", " "), "--anchor is empty"),
        (("--anchor", "{after: a}"), "--anchor {after: a}: anchor needs kernel: the name of the kernel that begins"),
        (("--anchor", "{kernel: a, from: b}"), "--anchor {kernel: a, from: b}: unknown key 'from': anchor has kernel"),
        (
            ("--anchor", "{kernel: f<4>(a, b)}"),
            "--anchor {kernel: f<4>(a, b)}: in { } a comma ends a value: quote the one that 'b)' is a part of",
        ),
        (("--anchor", "{kernel: a"), "--anchor {kernel: a: not YAML: while parsing a flow mapping"),
        (("--anchor", "{}"), "--anchor {}: anchor needs kernel: the name of the kernel that begins"),
        (("--anchor", "[a]"), "--anchor [a]: anchor is text, not a list"),
        (("--anchor", "3"), '--anchor 3: anchor is a name, not a number: quote it, as in "3"'),
        (("--anchor", "true"), "--anchor true: anchor is a name, not true or false: quote it"),
        (("--anchor", '""'), '--anchor "": anchor is empty'),
        (("--anchor", "kernel: a"), "--anchor kernel: a: a kernel stands in braces: write {kernel: a}"),
        (("--convention", "pithtrian"), "'pithtrian' is no convention and no file (did you mean 'pithtrain'?)"),
        (("--rank", "-1"), "there is no rank -1: the ranks are 0"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_mistakes(tmp_path: Path, command: tuple[str, ...], options: tuple[str, ...], line: str) -> None:
    result = run(*command, good(tmp_path / "run.sqlite"), *options, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {line}")


def test_every_mistake_of_a_convention_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "convention.yaml"
    path.write_text("ancor: x%\nspan: preiod\n")
    result = run("--view=overlap", good(tmp_path / "run.sqlite"), "--convention", path, code=2)
    assert result.stderr.splitlines() == [
        f"error: {path}:1:1: unknown key 'ancor' (did you mean 'anchor'?)",
        f"error: {path}:2:7: span is range or period, not 'preiod' (did you mean 'period'?)",
    ]


def test_the_list_of_commands_cuts_no_sentence() -> None:
    for group in ((), ("baseline",)):
        shown = run(*group, "--help").output
        assert "..." not in shown.partition("Look:" if not group else "Commands:")[2]
    assert "on five or more TRACES of one commit." in " ".join(shown.split())


def test_the_help_begins_with_what_a_newcomer_types() -> None:
    """And has a line for each command, in three groups, on a terminal of 80 columns."""
    head, *groups = re.split(r"^(?:Look|Gate|Record):\n", run("--help", code=0).output, flags=re.MULTILINE)
    assert head.startswith("Usage: pytest-nsys TRACE…\n       pytest-nsys COMMAND …\n")
    assert re.findall(r"^  pytest-nsys (\S+)", head, re.MULTILINE) == ["TRACE…", "init", "demo"]
    assert [line.split()[0] for group in groups for line in group.strip().splitlines()] == [*LISTED]


def test_a_word_of_another_tool_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, instead in SUGGESTED_COMMANDS.items():
        assert run(name, "x", code=2).stderr == f"error: no command and no file '{name}': type {instead}\n"
        assert set(instead.split()[:2]) & {"pytest", *LISTED, "TRACE…", "--help", "--version"}
    assert not {*SUGGESTED_COMMANDS} & {*LISTED}
    monkeypatch.chdir(tmp_path)
    good(tmp_path / "run")
    run("run", "--view=ranks", code=0)  # a path before a word


def test_a_gate_file_in_place_of_a_trace_says_so(tmp_path: Path) -> None:
    (tmp_path / "step.nsys.yaml").write_text("version: 1\nassertions: [no syncs]\n")
    said = run(tmp_path / "step.nsys.yaml", code=2).stderr
    assert "step.nsys.yaml: is a gate file, not a trace: pytest judges by it, `pytest-nsys check` checks it" in said


def test_command_with_a_typo() -> None:
    assert "did you mean 'compare'?" in run("compre", "x", code=2).stderr


@pytest.mark.parametrize("format", ["table", "json", "csv", "markdown"])
def test_control_characters_never_reach_the_terminal(tmp_path: Path, format: str) -> None:
    path = good(tmp_path / "run.sqlite", anchor=f"forward chunk {ESCAPE} backward chunk 0")
    result = run("--view=ranks", path, "--format", format, code=0)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.stdout)
    if format == "json":
        assert json.loads(result.stdout)["rows"][0]["window"] == f"forward chunk {ESCAPE} backward chunk 0"
    elif format == "markdown":
        assert "red��\\| \\`&lt;b&gt;&amp;�" in result.stdout
        assert len(result.stdout.splitlines()) == 3
    else:
        assert "red��| `<b>&�" in result.stdout


def test_an_interruption_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_nsys.cli.options.CaptureCache", interrupted)
    result = run("--view=overlap", good(tmp_path / "run.sqlite"))
    assert (result.exit_code, result.output) == (130, "\ninterrupted\n")


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    path = good(tmp_path / "run.sqlite")
    name = b"forward chunk \xff backward chunk 0".hex()
    execute(path, f"UPDATE NVTX_EVENTS SET text = CAST(X'{name}' AS TEXT) WHERE text LIKE 'forward%'")
    for format in ("table", "json", "csv", "markdown"):
        assert "forward chunk" in run("--view=ranks", path, "--format", format, code=0).stdout


def test_a_defect_of_ours_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("of \x1b[31m\nours")

    monkeypatch.setattr("pytest_nsys.cli.show.print_notes", broken)
    path = good(tmp_path / "run.sqlite")
    result = run("--view=overlap", path, code=2)
    assert result.stderr.startswith("error: this is a bug in pytest-nsys, please report it: ZeroDivisionError: of ")
    assert "\x1b" not in result.stderr
    assert result.stderr.count("\n") == 1
    monkeypatch.setenv("PYTEST_NSYS_DEBUG", "1")
    result = run("--view=overlap", path)
    assert (result.exit_code, "Traceback" in result.stderr) == (2, True)


def process(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_nsys", *map(str, arguments)]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment, **options)  # type: ignore[call-overload,no-any-return]


def test_terminal_that_lacks_characters(tmp_path: Path) -> None:
    path = good(tmp_path / "run.sqlite", anchor="forward chunk → backward chunk 0")
    found = process("--view=ranks", path, stdout=subprocess.PIPE)
    assert found.returncode == 0
    assert "forward chunk ->" in found.stdout


PRINTING = [["run.sqlite", "--view=ranks"], ["--help"], ["--version"], ["show", "--help"]]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_output_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    good(tmp_path / "run.sqlite")
    monkeypatch.chdir(tmp_path)
    with open("/dev/full", "w") as full:
        found = process(*words, stdout=full)
    assert found.returncode == 2
    assert found.stderr.startswith("error: ")
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_closed_pipe_is_quiet_and_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    good(tmp_path / "run.sqlite")
    monkeypatch.chdir(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        found = process(*words, stdout=pipe)
    assert found.returncode == 141
    assert "Traceback" not in found.stderr
    assert "error" not in found.stderr


def test_the_list_of_commands_has_their_own_words() -> None:
    context = click.Context(main)
    for name, (_, sentence) in LISTED.items():
        command = main.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(1000) == sentence


def test_a_misspelt_path_names_what_is_there(tmp_path: Path) -> None:
    good(tmp_path / "regressed.sqlite")
    said = run(tmp_path / "regresed.sqlite", code=2).stderr
    assert said.endswith("regresed.sqlite: there is no such file or folder (did you mean 'regressed.sqlite'?)\n")
    assert run(tmp_path / "nowhere" / "regresed.sqlite", code=2).stderr.endswith("there is no such file or folder\n")
