"""Does each format of ``pytest-nsys compare`` say the same, whole, to the byte, with every foreign name harmless?"""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_nsys import compare
from pytest_nsys.reports.page.templating import NO_BREAK
from pytest_nsys.reports.session import json_report as comparison_json
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.page import Page
from tests.support.samples.builder import Process, TraceBuilder

FORMATS = ("table", "markdown", "json", "html")
SCHEMA: dict[str, Any] = json.loads(
    Path(comparison_json.__file__).with_name("report.schema.json").read_text(encoding="utf-8")
)
EVIL = '<script>alert("1")</script>@all&|`*_\x1b[31m\x07</td>'


def report(*arguments: str, code: int = 1) -> str:
    return run("compare", *arguments, code=code).stdout


def regression(project: Project) -> tuple[str, str]:
    """A pair with rows worse, gone and better, and names that somebody else chose."""

    def evil(_: TraceBuilder, processes: list[Process]) -> None:
        for k in range(5):
            at = 20_000_000 * k + 12_001_000
            processes[1].kernel(EVIL, at + 20_000, at + 30_000, launch_ns=at + 10_000)

    project.trace("base.sqlite", {(0, "stage2_f"): 800})
    project.trace("head.sqlite", {(1, "stage4_f"): 700, (0, "stage4_f"): None}, edit=evil, gpu=EVIL)
    return "base.sqlite", "head.sqlite"


AS_ONE = ("--comparable-on=mesh",)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_tells_of_the_worst_row_and_of_both_sides_in_the_same_bytes(project: Project, format: str) -> None:
    words = (*regression(project), *AS_ONE, f"--format={format}", "-v")
    said = report(*words)
    assert report(*words) == said
    assert "alert" in said
    assert not {"\x1b", "\x07"} & set(said)
    values = ("200000", "700000") if format == "json" else ("200 us", "700 us")
    said = said.replace(NO_BREAK, " ")
    for word in ("base.sqlite", "head.sqlite", "exposed_ns", "NVIDIA H100", "appeared", *values):
        assert word in said, word


# Text


def sections(text: str) -> dict[str, list[str]]:
    """The lines of each table by its caption."""
    found: dict[str, list[str]] = {}
    for block in text.split("\n\n"):
        caption, *lines = block.splitlines()
        found[caption] = lines
    return found


def test_text_is_aligned(project: Project) -> None:
    said = report(*regression(project), *AS_ONE)
    assert re.match(r"worse: \d+ rows of \d+ outside the limit\n.*\nno test possible", said)
    head, *lines = sections(said)["What moved, worst first"]
    for column in ("metric", "row", "base", "head", "change", "limit"):
        at = re.search(rf"(?<=  ){column}\b", head)
        assert at is not None
        assert all(line[at.start() - 2 : at.start()] == "  " and line[at.start() :][:1] != " " for line in lines)


def test_text_shows_twenty_rows_and_counts_the_rest(project: Project) -> None:
    project.pair(200, 700, ranks=8)
    lines = sections(report("base.sqlite", "head.sqlite"))["What moved, worst first"]
    moved = compare("base.sqlite", "head.sqlite").moved
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == f"  … {len(moved) - 20} more (-v shows them)"
    verbose = sections(report("base.sqlite", "head.sqlite", "-v"))
    assert len(verbose["What moved, worst first"]) == 1 + len(moved)


def test_verbose_adds_what_changed_within_its_limit(project: Project) -> None:
    project.pair(200, 210)
    assert "What changed within its limit" not in report("base.sqlite", "head.sqlite", code=0)
    said = sections(report("base.sqlite", "head.sqlite", "-v", code=0))
    assert any("exposed_ns" in line and "210 us" in line for line in said["What changed within its limit"])


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_longer_than_the_terminal(project: Project, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    base, head = regression(project)
    whole = sections(report(base, head, *AS_ONE))["What moved, worst first"]
    monkeypatch.setenv("COLUMNS", str(columns))
    said = report(base, head, *AS_ONE)
    assert [line for line in said.splitlines() if len(line) > columns] == []
    lines = sections(said)["What moved, worst first"]
    assert len(whole) <= len(lines) <= len(whole) + 1  # a row has one line; what found no room is told
    for fitted, line in zip(lines[1:], whole[1:], strict=False):
        state_and_figures = [
            [cells[n] for n in (0, 3, 4, 5)] for cells in (re.split("  +", each.strip()) for each in (fitted, line))
        ]
        assert state_and_figures[0] == state_and_figures[1]


def test_two_paths_are_shortened_alike_and_in_the_middle(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a_capture_of_the_training_step_{letter}_seen_on_host_17.sqlite" for letter in "ab"]
    for name in names:
        project.trace(name)
    monkeypatch.setenv("COLUMNS", "80")
    (line,) = [line for line in sections(report(*names, code=0))["The two sides"] if line.startswith("  trace")]
    base, head = line.split()[1:]
    assert abs(len(base) - len(head)) <= 1
    assert [base[:5], base[-7:], head[-7:]] == ["a_cap", ".sqlite", ".sqlite"]
    monkeypatch.setenv("COLUMNS", "200")
    assert all(name in report(*names, code=0) for name in names)


# Markdown


def test_markdown_has_whole_tables_and_no_markup_of_others(project: Project) -> None:
    said = report(*regression(project), *AS_ONE, "--format=markdown", "-v")
    outside_code = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", said)
    assert "<script" not in outside_code
    assert "</td>" not in outside_code
    assert "@all" not in outside_code  # which would tell everybody
    assert said.count("<details>") == said.count("</details>") > 0
    widths: list[int] = []
    for line in said.splitlines():
        if not line.startswith("|"):
            widths = []
            continue
        widths.append(len(re.findall(r"(?<!\\)\|", line)))
        assert widths[-1] == widths[0], line


# JSON


@pytest.mark.parametrize(
    ("arguments", "code", "result"),
    [
        ((*AS_ONE,), 1, "worse"),
        ((), 3, "incomparable"),
        (("--gate=gone.nsys.yaml", *AS_ONE), 3, "undecided"),
        (("--gate=constant.nsys.yaml", *AS_ONE), 1, "worse"),
        (("--gate=structure.nsys.yaml", *AS_ONE), 0, "nothing worse"),
    ],
)
def test_json_keeps_to_its_schema(project: Project, arguments: tuple[str, ...], code: int, result: str) -> None:
    project.gate("- stage4 exposed_ns below baseline plus 900%\n- rank 0 launches == baseline\n", "gone.nsys.yaml")
    project.gate("- exposed_ns < 1us\n- comm_streams == baseline\n", "constant.nsys.yaml")
    project.gate("- comm_streams == baseline\n", "structure.nsys.yaml")
    paths = regression(project)
    project.trace("head.sqlite", {(1, "stage4_f"): 700, (0, "stage4_f"): None}, gpu=EVIL)
    found = json.loads(report(*paths, *arguments, "--format=json", code=code))
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert found["comparison"]["result"] == result
    assert found["good"] == (code == 0)


def test_the_schema_is_one_and_names_every_field(project: Project) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    found = json.loads(report(*regression(project), *AS_ONE, "--format=json"))
    assert found.keys() == SCHEMA["properties"].keys()
    kinds = SCHEMA["$defs"]
    sides = found["comparison"]
    assert sides.keys() == kinds["Comparison"]["properties"].keys()
    assert sides["base"].keys() == kinds["Side"]["properties"].keys()
    assert sides["appeared"][0].keys() == kinds["OneSided"]["properties"].keys()
    assert found["gate_files"][0]["assertions"][0].keys() == kinds["Assertion"]["properties"].keys()


# HTML


def page(project: Project) -> Page:
    return Page(report(*regression(project), *AS_ONE, "--format=html"))


def test_the_page_is_well_formed_and_holds_names_as_text(project: Project) -> None:
    found = page(project)
    found.asks_for_nothing()
    assert [attrs for tag, attrs in found.tags if tag == "script" and attrs != {"type": "application/json"}] == [{}]
    assert not any("<script" in text for text in found.texts["script"])
    assert any('<script>alert("1")</script>' in cell for cell in found.texts["td"])


def test_the_page_is_for_every_screen_and_paper(project: Project) -> None:
    found = page(project)
    (style,) = found.texts["style"]
    for query in ("light-dark(", "max-width", "@media print"):
        assert query in style
    assert "width=device-width, initial-scale=1" in found.attributes("content")
    assert ("html", {"lang": "en"}) in found.tags


def test_every_table_has_a_caption_and_named_columns(project: Project) -> None:
    found = page(project)
    tables = len(found.texts["table"])
    assert tables == len([text for text in found.texts["caption"] if text.strip()])
    assert all(text.strip() for text in found.texts["th"])
    assert {attrs.get("scope") for tag, attrs in found.tags if tag == "th"} == {"col"}


def test_runs_that_are_not_judged_stand_side_by_side(project: Project) -> None:
    paths = regression(project)
    assert "× tolerance" in report(*paths, *AS_ONE, "--format=html")
    said = report(*paths, "--format=html", code=3)
    assert "Side by side, not judged" in said
    assert "× tolerance" not in said


def test_cells_of_the_two_sides_keep_their_place_on_a_narrow_screen(project: Project) -> None:
    """A second trace has no name of its own in front: that cell is empty, and the table stays one."""
    (style,) = page(project).texts["style"]
    narrow = style.partition("@media (max-width")[2].partition("@media")[0]
    hidden = [line for line in narrow.splitlines() if "td:empty" in line]
    assert len(hidden) == 1
    assert all(":not(.kept)" in line for line in hidden)


def test_the_page_leaves_no_row_out(project: Project) -> None:
    project.pair(200, 700, ranks=8)
    moved = compare("base.sqlite", "head.sqlite").moved
    text = report("base.sqlite", "head.sqlite", "--format=html")
    table = text.partition("What moved, worst first</caption>")[2].partition("</table>")[0]
    assert table.count('<tr role="row" class="') == len(moved) > 20


# Into a file


@pytest.mark.parametrize(
    ("name", "start"),
    [("r.html", "<!doctype html>"), ("r.MD", "## "), ("r.json", "{"), ("r.txt", "worse: "), ("report", "worse: ")],
)
def test_a_file_is_written_in_the_format_of_its_name(project: Project, name: str, start: str) -> None:
    said = report(*regression(project), *AS_ONE, f"--output={name}")
    assert (project.root / name).read_text(encoding="utf-8").startswith(start)
    assert re.fullmatch(rf"worse: \d+ rows of \d+ outside the limit; written to {name}\n", said)


def test_the_format_asked_for_wins_over_the_name(project: Project) -> None:
    report(*regression(project), *AS_ONE, "--output=r.txt", "--format=json")
    assert json.loads((project.root / "r.txt").read_text(encoding="utf-8"))["format"] == 1
    report(*regression(project), *AS_ONE, "--output=r.foo", "--format=json")
    assert (project.root / "r.foo").read_bytes() == (project.root / "r.txt").read_bytes()


def test_text_waits_for_no_template_engine(project: Project) -> None:
    paths = regression(project)
    code = (
        "import sys; from pytest_nsys.cli import main\n"
        f"try: main(['compare', *{list(paths)!r}])\n"
        "except SystemExit: print(sorted({'jinja2', 'jsonschema', 'sqlite_utils'} & sys.modules.keys()))\n"
    )
    project.result = project.pytester.runpython_c(code)
    assert project.result.stdout.lines[-1] == "[]"


def test_a_format_that_never_was_is_told_with_those_that_are() -> None:
    assert "'table', 'markdown', 'json', 'brief', 'html'" in run("compare", "a", "b", "--format=xml", code=2).stderr
