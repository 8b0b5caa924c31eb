"""Can text of a file, or of an option, command the terminal or the CI system that it is printed in?

Hostile text stands in each text of each format that is read, one after the other, and every output is looked at.
"""

import ast
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pytest_nsys
from pytest_nsys.core.text_format import sanitize_text
from pytest_nsys.stored.history.database import append_session
from tests.fuzz.databases import tables
from tests.fuzz.kinds import MEASURED, OF_MEASUREMENTS, write_good
from tests.support.commands import run
from tests.support.gates import Project, built_once
from tests.support.histories import entry, series

HOSTILE = "a\n::stop-commands::x\r\n ::error::y\x1b]0;title\x07\x1b[31m\u202eb\u2066\x9b2J ##[error]z"
"""A workflow command at the start of a line, the title of a window, colours, marks of direction, a control of C1."""

OF_OLD = re.compile(r"##\w*\[")


def commands_in(text: str) -> list[str]:
    """The lines in which a terminal or a runner finds what it obeys."""

    def obeyed(line: str) -> bool:
        shown = line.replace("\u00a0", " ").replace("\u202f", " ")
        return not shown.isprintable() or line.lstrip().startswith("::") or bool(OF_OLD.search(line))

    return [line for line in text.split("\n") if obeyed(line)]


def looked_at(project: Project, *words: str) -> Iterator[str]:
    """What a session says on the terminal and in its files for people and programs."""
    files = {kind: project.root / f"report.{kind}" for kind in ("json", "summary")}
    yield project.pytest(*words, "-v", "-rA", *(f"--nsys-{kind}={path}" for kind, path in files.items()))
    for kind, path in files.items():
        if path.exists():
            text = path.read_text()
            assert kind != "json" or json.loads(text)
            yield text
            path.unlink()


def texts_of(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each text in a JSON document; of a list that to its first entries."""
    if isinstance(node, str):
        yield place
    elif isinstance(node, dict):
        for key, inner in node.items():
            yield from texts_of(inner, (*place, key))
    elif isinstance(node, list):
        for number, inner in enumerate(node[:12]):
            yield from texts_of(inner, (*place, number))


def planted(document: Any, place: tuple[Any, ...]) -> str:
    """The document with hostile text at one place."""
    whole = json.loads(json.dumps(document))
    node = whole
    for step in place[:-1]:
        node = node[step]
    node[place[-1]] = HOSTILE
    return json.dumps(whole)


def each_kind(document: Any) -> list[tuple[Any, ...]]:
    """One way to each kind of text: places that differ in a number are one kind."""
    kinds: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for place in texts_of(document):
        kinds.setdefault(tuple("#" if isinstance(step, int) and n < 2 else step for n, step in enumerate(place)), place)
    return [*kinds.values()]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n::error::x", "a\n: :error::x"),
        ("\x1b[31mred\x1b[0m\u202e", "�[31mred�[0m�"),
        ("1\u00a0000\tms\r\n", "1\u00a0000�ms�\n"),
        ("as it is\n\n  ok", "as it is\n\n  ok"),
    ],
)
def test_lines_that_are_fit_to_print(text: str, shown: str) -> None:
    assert sanitize_text(text) == shown


def test_colours_of_ours_stay() -> None:
    assert sanitize_text("\x1b[33mgold\x1b[0m\x1b]0;t\x07", keep_colours=True) == "\x1b[33mgold\x1b[0m�]0;t�"


ALLOWED = {
    "cli/terminal_text.py": {"click.echo"},
    "plugin/terminal_text.py": {"terminalreporter.line", "terminalreporter.write"},
    "plugin/reporting.py": {"terminalreporter.line"},  # commands of ours to GitHub
    **{
        each: {"print"} for each in ("cli/options.py", "tools/executors.py", "traces/nsys/export_cache.py")
    },  # how far it is
}
PRINTS = re.compile(r"print|click\.(echo|secho)|(terminal)?reporter\.(line|write|write_line)")


def test_only_one_function_of_the_commands_and_one_of_the_plugin_prints() -> None:
    top = Path(pytest_nsys.__file__).parent
    found: dict[str, set[str]] = {}
    for path in top.rglob("*.py"):
        calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        if printing := {name for call in calls if PRINTS.fullmatch(name := ast.unparse(call.func))}:
            found[path.relative_to(top).as_posix()] = printing
    assert found == ALLOWED


PARTS = pytest.mark.parametrize("part", range(4))
"""Every fourth place, from this one on: the suite plants in a quarter of them, ``-m slow`` in the others."""


# What is stored


@pytest.fixture
@built_once
def accepted(project: Project) -> Project:
    project.accepted("- exposed_ns <= baseline + 5%\n- sequence == baseline\n- no new kernels\n")
    project.trace(exposed_us=900)
    return project


@PARTS
@pytest.mark.sampled(4)
def test_in_a_baseline(accepted: Project, part: int) -> None:
    (path,) = (accepted.root / "baselines").rglob("*.json")
    whole = path.read_text()
    document = json.loads(whole)
    found = {}
    for place in each_kind(document)[part::4]:
        path.write_text(planted(document, place))
        said = [run("baseline", "show", f"--format={form}").output for form in ("table", "markdown", "csv", "json")]
        said += looked_at(accepted, "--nsys-trace=run.sqlite")
        said.append(accepted.refresh("--nsys-trace=run.sqlite", code=None))
        path.write_text(whole)
        found[place] = [line for text in said for line in commands_in(text)]
    assert {place: lines for place, lines in found.items() if lines} == {}
    assert len(found) >= 5


@pytest.mark.parametrize("table", ["runs", "rows", "verdicts"])
def test_in_a_history(project: Project, table: str) -> None:
    project.gated("- exposed_ns <= median of last 3 runs of main + 5%\n- exposed_ns < 1 ms\n", 900)
    path = project.root / "perf.db"
    append_session(path, [entry(verdict={"message": "m", "unit": "ns", "value": "1", "row": "rank 0"})] * 3)
    whole = path.read_bytes()
    with closing(sqlite3.connect(path)) as database:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})") if row[2] == "TEXT"]
    found = {}
    for column in columns:
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"UPDATE {table} SET {column} = ?", (HOSTILE,))
        said = [run("history", f"--format={form}").output for form in ("table", "markdown", "csv", "json")]
        said += looked_at(project, "--nsys-trace=run.sqlite", "--nsys-history=perf.db")
        found[column] = [line for text in said for line in commands_in(text)]
    assert {column: lines for column, lines in found.items() if lines} == {}
    assert len(found) >= 8


GATE = {
    "version": 1,
    "trace": "run.sqlite",
    "convention": {
        "extends": "pithtrain",
        "stage": "(?P<stage>stage[1-5]_[fbw])",
        "purposes": {"a2a": ["stage2_*"], "other": {"range": ["pipeline%"]}},
        "communication": ["my_dispatch*"],
        "families": {"gemm": ["*gemm*"], "rest": ["nccl*"]},
    },
    "run": {"gpu": "H100", "world": 2},
    "tolerance": {"rel": "5%", "abs": "50us"},
    "window": "median",
    "quality": {"typicality": "50"},
    "comparable_on": ["gpu"],
    "assertions": [
        "exposed_ns <= 1us",
        {"id": "named", "assert": "exposed_ns <= 1us", "where": {"stage": ["stage2_f"]}},
        {"assert": "comm_ns <= 1us", "xfail": "why"},
        {"assert": "compute_ns <= baseline + 5%", "severity": "warn"},
        {"assert": "overlap >= 99%", "for": {"stage": ["stage2_f", "stage4_f"]}, "marks": ["slow"]},
        "exposed_ns <= last 3 runs of main + 10%",
    ],
    "waivers": [
        {"assertion": "named", "where": {"stage": "stage2_f"}, "ceiling": "3ms", "expires": "2030-01-01", "reason": "r"}
    ],
}


@PARTS
@pytest.mark.sampled(4)
def test_in_a_gate_file(project: Project, part: int) -> None:
    project.trace()
    path, found = project.root / "gate.nsys.yaml", {}
    places = list(texts_of(GATE))
    for place in [*places[part::4], None]:
        path.write_text(json.dumps(GATE) if place is None else planted(GATE, place))  # JSON is YAML
        said = [run("check", f"--format={form}", "gate.nsys.yaml").output for form in ("table", "json")]
        said += looked_at(project, "--nsys-trace=run.sqlite")
        found[place] = [line for text in said for line in commands_in(text)]
        if place is None:
            assert "good, 7 assertions" in said[0], said[0]
    assert {place: lines for place, lines in found.items() if lines} == {}
    assert len(found) >= 8


def test_in_measurements(project: Project) -> None:
    (project.root / "gate.nsys.yaml").write_text(OF_MEASUREMENTS.replace("1000000000 W", "1 W"))
    document = [{**each, "commit": "0" * 40, "run": "a run"} for each in json.loads(MEASURED)]
    path, found = project.root / "m.json", {}
    (project.root / "whole.json").write_text(MEASURED)
    for place in each_kind(document):
        path.write_text(planted(document, place))
        said = [*looked_at(project, "--nsys-measurements=m.json")]
        said += [
            run("compare", "--base-measurements=whole.json", "--head-measurements=m.json", f"--format={form}").output
            for form in ("table", "markdown", "json")
        ]
        found[place] = [line for text in said for line in commands_in(text)]
    assert {place: lines for place, lines in found.items() if lines} == {}


# Traces


def in_database(path: Path, table: str, column: str) -> None:
    """Append hostile text to every text of a column."""
    with closing(sqlite3.connect(path)) as database, database:
        set_to = f'"{column}" = "{column}" || ?'
        database.execute(f'UPDATE OR IGNORE "{table}" SET {set_to} WHERE typeof("{column}") = ?', (HOSTILE, "text"))


def plants_of(path: Path) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Ways to plant hostile text in a trace: in each text column of a database, or each kind of text of JSON."""
    if path.suffix == ".json":
        document = json.loads(path.read_text())
        for place in each_kind(document):
            yield "/".join(map(str, place)), partial(Path.write_text, data=planted(document, place))
        return
    with closing(sqlite3.connect(path)) as database:
        database.text_factory = bytes
        for table in tables(database):
            for name in (row[1].decode() for row in database.execute(f'PRAGMA table_info("{table}")').fetchall()):
                asked = f'SELECT 1 FROM "{table}" WHERE typeof("{name}") = ? LIMIT 1'
                if database.execute(asked, ("text",)).fetchone():
                    yield f"{table}.{name}", partial(in_database, table=table, column=name)


VIEWS: tuple[list[str], ...] = (
    *(["--view=ranks"], ["--view=streams", "--window=run"], ["--view=kernels", "--window=run"], []),
    *(["--view=overlap", "--format=markdown", "--window=run"], ["--view=collectives", "--window=run"]),
    *(["--view=budget", "--window=run"], ["--format=json"]),
)


@pytest.mark.parametrize(
    "name",
    ["kineto.json", "jax.json", *(pytest.param(each, marks=pytest.mark.slow) for each in ("good.sqlite", "good.db"))],
)
@PARTS
@pytest.mark.sampled(4)
def test_in_a_trace(project: Project, name: str, part: int) -> None:
    whole = write_good(project.root / f"whole_{name}")
    trace, found = project.root / name, {}
    project.gate("- exposed_ns <= 0ns\n- overlap >= 100%\n- compute_ns <= 0ns\n- no new kernels\n- syncs <= 0")
    for what, plant in [*plants_of(whole)][part::4]:
        shutil.copy(whole, trace)
        plant(trace)
        said = [run(*view, trace).output for view in VIEWS]
        said += [run("compare", whole, trace).output, run("check", trace).output]
        said += [run("init", trace, "-o", "new.nsys.yaml", "--force").output]
        said += [
            run("cut", trace, "-o", f"cut{'.json' if name.endswith('.json') else '.sqlite'}", "--window=run").output
        ]
        said += [run("rows", "family_ns", f"--trace={trace}", "--window=run").output]
        said += looked_at(project, f"--nsys-trace={trace.name}", f"--nsys-against={whole.name}")
        found[what] = [line for text in said for line in commands_in(text)]
    assert {what: lines for what, lines in found.items() if lines} == {}
    assert found


# Options

OPTIONS = (
    *(["show", "run.sqlite", f"--{name}={HOSTILE}"] for name in ("view", "window", "convention", "anchor", "where")),
    *(["show", HOSTILE], [HOSTILE], ["rows", HOSTILE, "--trace=run.sqlite"], ["show", "run.sqlite", f"--{HOSTILE}"]),
    *(["compare", "run.sqlite", HOSTILE], ["check", HOSTILE], ["init", HOSTILE], ["init", "run.sqlite", "-o", HOSTILE]),
    *(["history", f"--{name}={HOSTILE}"] for name in ("history", "of", "branch", "key", "gate", "last", "where")),
    *(["baseline", "show", HOSTILE], ["baseline", "diff", HOSTILE], ["baseline", "prune", HOSTILE]),
    *(["baseline", "refresh", "gate.nsys.yaml", f"--{name}={HOSTILE}", "--reason=r"] for name in ("only", "trace")),
    *(["cut", "run.sqlite", "-o", f"{HOSTILE}.json"], ["export", HOSTILE], ["show", "run.sqlite", f"--rank={HOSTILE}"]),
)


def test_in_an_option_of_a_command(accepted: Project) -> None:
    append_session(accepted.root / "perf.db", [entry(every=[series({(0, "stage2_f"): "1"})])])
    found = {" ".join(words): commands_in(run(*words).output) for words in OPTIONS}
    assert {words: lines for words, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "words",
    [
        ["--nsys-update-baselines", f"--nsys-reason={HOSTILE}", "--nsys-trace=run.sqlite"],
        *([f"--nsys-{name}={HOSTILE}"] for name in ("trace", "against", "measurements", "baseline-ref", "executor")),
        *([f"--nsys-{name}={HOSTILE}", "--nsys-trace=run.sqlite"] for name in ("json", "history", "baseline-dir")),
        ["--nsys-trace=run.sqlite", "--nsys-artifacts", HOSTILE],
    ],
)
def test_in_an_option_of_pytest(accepted: Project, words: list[str]) -> None:
    said = accepted.pytest(*words, "-v")

    assert commands_in(said) == []
    if "--nsys-update-baselines" in words:
        assert "stop-commands" in said
        assert commands_in(run("baseline", "show").output) == []
        assert commands_in(run("baseline", "show", "--format=markdown").output) == []
        accepted.trace(exposed_us=1_500)
        for text in looked_at(accepted, "--nsys-trace=run.sqlite"):
            assert commands_in(text) == []
