"""Does the summary read well on GitHub: everything in it, nothing of it markup by accident, never too long?"""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.windows.window_selection import UsedWindow
from pytest_nsys.core.errors import Mistake
from pytest_nsys.core.model import NextStep, Note, Window
from pytest_nsys.gates.model import Difference, JudgedRow, Outcome
from pytest_nsys.merge_base.differences import FileDifference, FileKind
from pytest_nsys.reports.session.markdown import (
    MAX_BYTES,
    cut_to_size,
    escape_prose,
    format_code,
    format_code_cell,
    render_summary,
)
from pytest_nsys.reports.session.session import PageLink
from pytest_nsys.reports.words.verdict_text import SHOWN_WORST_ROWS
from tests.support.commands import run
from tests.support.faults import FAULTS
from tests.support.gates import Project
from tests.support.reports import base_verdict, make_session, record
from tests.support.samples.formats import Format

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - overlap >= 60%
  - exposed_ns below baseline plus tolerance
"""


def summary_of(project: Project, *arguments: str | Path, code: int) -> str:
    """Run pytest here; the summary that it appends to a new file."""
    path = project.root / "summary.md"
    path.unlink(missing_ok=True)
    project.pytest(*arguments, f"--nsys-summary={path}", code=code)
    return path.read_text(encoding="utf-8")


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table; a bar behind a backslash is no border."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        found.append([[each.strip() for each in row] for row in rows])
    return found


def row(value: int, **more: Any) -> JudgedRow:
    """One judged row of a constant limit."""
    return JudgedRow(**{"labels": {"rank": value}, "value": value, "limit": 5, "outcome": Outcome.FAILED, **more})


def test_a_green_summary(project: Project) -> None:
    project.accepted(GATE)
    text = summary_of(project, "--nsys-trace=run.sqlite", code=0)
    head, first, status, fold, *_ = text.split("\n\n")
    least = "least headroom 33% of limit: overlap 80%, limit 60%, rank 0 stage2\\_f"
    assert head == f"## ✅ Both assertions passed; {least}"
    assert first.splitlines()[2:] == [
        "| ✅\u00a0passed | `overlap >= 60%` | — | 80% |  | &gt;=\u00a060% | rank 0 stage2\\_f |",
        "| ✅\u00a0passed | `exposed_ns below baseline plus tolerance` | 200\u00a0us | 200\u00a0us | 0% | "
        "&lt;=\u00a0250\u00a0us | rank 0 stage2\\_f |",
    ]
    assert status == "Performance gate: passed. 2 assertions: 2 passed."
    assert fold == "<details><summary><code>gate.nsys.yaml</code>: 2 assertions: 2 passed</summary>"
    found = "pithtrain (found in the baseline)"
    assert f"run `run.sqlite (2 ranks, pp=2 dp=1 cp=1 ep=1, NVIDIA H100 80GB HBM3, {found})`; against `base" in text
    _, table = tables(text)
    assert table[0] == ["verdict", "assertion", "value", "limit", "headroom", "smallest change", "worst row"]
    assert table[2] == [*("✅ passed", "`overlap >= 60%`", "80%", "&gt;= 60%", "20 pp", ""), "rank 0 stage2\\_f"]
    assert table[3][5] == "≥ 50 us (noise not measured)"
    assert "rank 0–1: forward chunk 2 (phase1) backward chunk 2 (phase0), 3rd of 5, 15 ms" in text
    assert "####" not in text


def test_a_red_summary(project: Project) -> None:
    project.accepted(GATE, name="base.sqlite")
    project.trace(exposed_us={(1, "stage4_f"): 401})
    text = summary_of(project, "--nsys-trace=run.sqlite", code=1)
    head, *_ = text.split("\n\n")
    exposed = "so SendRecv of stage4\\_f is exposed 200 → 401 us, on rank 1"
    assert head == f"## ❌ Window unchanged (15 ms): gemm in stage4\\_f 13% shorter, {exposed}"
    first, waterfall, baseline, constant, _, every = tables(text.replace("\u00a0", " "))
    assert first[0] == ["", "assertion", "base", "head", "change", "limit", "where"]
    assert first[2:] == [
        [
            *("❌ failed", "`exposed_ns below baseline plus tolerance`", "200 us", "401 us"),
            *("+100.5%", "&lt;= 250 us", "rank 1 stage4\\_f"),
        ],
        ["❌ failed", "`overlap >= 60%`", "—", "59.9%", "", "&gt;= 60%", "rank 1 stage4\\_f"],
    ]
    assert [line[0] for line in every[2:]] == ["❌ failed", "❌ failed"]
    assert constant == [
        ["`rank`", "`stage`", "now", "limit"],
        ["---", "---", "---:", "---"],
        ["`1`", "`stage4_f`", "59.9%", "&gt;= 60%"],
    ]
    assert baseline[0] == ["`rank`", "`stage`", "now", "baseline", "change", "limit"]
    assert baseline[2:] == [
        ["`1`", "`stage4_f`", "401 us", "200 us", "+100.5%", "&lt;= 250 us (baseline + max(5%, 50us))"]
    ]
    assert [[amount, bar] for amount, bar, _ in waterfall[2:]] == [
        ["200 us", "`██████████░░░░░░░░░░`"],
        ["+201 us", "`░░░░░░░░░░██████████`"],
        ["401 us", "`████████████████████`"],
    ]
    assert "**What changed: exposed\\_ns, rank 1 stage4\\_f**" in text
    title = "The rows of <code>exposed_ns below baseline plus tolerance</code> (line 5)"
    assert f"<details><summary>{title}</summary>" in text
    assert "#### failed: `exposed_ns below baseline plus tolerance` (line 5)\n\n1 of 4 rows above their limit." in text
    assert "- `pytest-nsys run.sqlite --view overlap --rank 1`\n" in text
    assert text.count("To accept this run: `pytest-nsys baseline refresh") == 1
    places = [
        text.index(words) for words in ("\nPerformance gate: failed", "\nRun `run.sqlite", "What changed", "Next:")
    ]
    assert places == sorted(places)
    assert places[-1] < text.index("<details>")
    assert not any("`" in summary for summary in re.findall("<summary>(.*?)</summary>", text))


def test_the_page_is_linked_where_ci_keeps_it() -> None:
    link = PageLink("https://ci.example/run/1#artifacts", "in the artifacts of this run")
    text = render_summary(replace(make_session(record()), page_link=link))
    assert (
        "\n[The page with both timelines](https://ci.example/run/1#artifacts) is in the artifacts of this run.\n"
        in text
    )
    assert "](" not in render_summary(make_session(record()))


def test_the_first_table_has_room_for_some_assertions_and_counts_the_others() -> None:
    records = [record(f"n{n}", "passed" if n else "failed", good=bool(n), line=n + 1) for n in range(20)]
    text = render_summary(make_session(*records))
    first = tables(text.replace("\u00a0", " "))[0]
    assert [cells[0] for cells in first[2:]] == ["❌ failed", *["✅ passed"] * 11]
    assert "… 8 more rows.\n" in text


def test_a_mistake_and_nothing_judged() -> None:
    text = render_summary(
        make_session(mistakes=(Mistake("gate.nsys.yaml", "unknown metric 'overlp'", 3, 3),), exit_status=2)
    )
    head = "## ❌ Not judged: gate.nsys.yaml:3:3: unknown metric 'overlp'\n\nPerformance gate: error. "
    head += "1 mistake kept files from being judged.\n\n### Not judged\n\n"
    assert text.startswith(f"{head}- `gate.nsys.yaml:3:3`: unknown metric 'overlp'\n")
    text = render_summary(make_session(exit_status=5))
    assert text.startswith(
        "## ⚠️ pytest ended with exit status 5 (no tests)\n\nPerformance gate: nothing judged. no assertion"
    )


def test_it_is_appended(project: Project) -> None:
    project.gated("- overlap >= 60%")
    project.file("summary.md", "# What others said\n")
    for _ in range(2):
        project.pytest("--nsys-trace=run.sqlite", "--nsys-summary=summary.md", code=0)
    text = (project.root / "summary.md").read_text()
    assert text.startswith("# What others said\n")
    assert text.count("\nPerformance gate: passed. ") == 2


def test_what_others_wrote_counts(project: Project) -> None:
    project.gated("\n".join(f"- {{id: n{n}, assert: overlap >= 60%}}" for n in range(300)))
    (project.root / "summary.md").write_bytes(b"x" * (MAX_BYTES - 1000))
    project.pytest("--nsys-trace=run.sqlite", "--nsys-summary=summary.md", code=0)
    text = (project.root / "summary.md").read_text()
    assert "300 assertions: 300 passed" in text
    assert "Cut here" in text
    assert len(text.encode()) < 2**20


@pytest.mark.parametrize("room", [0, 10, 500])
@pytest.mark.sampled(3)
def test_a_file_that_is_full_already_stays_below_the_limit_of_github(project: Project, room: int) -> None:
    project.gated("\n".join(f"- {{id: n{n}, assert: overlap >= 60%}}" for n in range(300)))
    (project.root / "summary.md").write_bytes(b"x" * (2**20 - room))
    said = project.pytest("--nsys-trace=run.sqlite", "--nsys-summary=summary.md", code=0)
    text = (project.root / "summary.md").read_text()
    assert len(text.encode()) <= 2**20
    assert ("left out" in text) == (room == 500)
    assert "nsys: report summary.md: no room for the summary: the file has " in said
    assert "nsys: wrote summary.md" not in said


def test_warned_improved_waived_and_expected() -> None:
    text = render_summary(
        make_session(
            record("a", "failed", good=True, severity="warn"),
            record("b", "improved", good=True),
            record("c", "passed", judged=(row(9, waived=True),)),
            record("d", "failed", good=True, xfailed=True),
            record("e", "inconclusive", good=True),
        )
    )
    assert [line[0] for line in tables(text.replace("\u00a0", " "))[0][2:]] == [
        *("⚠️ warned", "✅ improved", "✅ xfailed", "⚠️ inconclusive", "⚠️ waived")
    ]
    assert "5 assertions: 1 inconclusive, 1 warned, 1 waived, 1 xfailed, 1 improved." in text


def test_at_most_some_rows() -> None:
    text = render_summary(make_session(record(judged=tuple(row(n) for n in range(100)), unit="count")))
    assert len(tables(text)[1]) == 2 + SHOWN_WORST_ROWS
    assert f"… {100 - SHOWN_WORST_ROWS} more rows.\n" in text


def test_what_decided_between_captures_is_a_column() -> None:
    text = render_summary(make_session(record(judged=(row(9, test="p 0.004"),), unit="count")))
    assert tables(text)[1][0][-1] == "test"
    assert tables(text)[1][2][-1] == "p 0.004"


def test_what_the_merge_base_says_is_a_section() -> None:
    changed = FileDifference("perf/a.nsys.yaml", FileKind.GATE_FILE, 1, 1, "changed", ["- overlap >= 60%"])
    base = base_verdict("1 failed", red=True, reds=["50% < 60%\n  more"], differences=[changed])
    text = render_summary(make_session(record(), merge_base=base, refreshed=("b.json: new",)))
    assert "### Gate of the merge base: red\n\n1 failed.\n" in text
    assert "```\n50% < 60%\n  more\n```" in text
    assert "- perf/a.nsys.yaml: changed, +1 -1\n" in text
    assert "```diff\n- overlap >= 60%\n```" in text
    assert "### Baselines that this run wrote\n\n- b.json: new\n" in text


HOSTILE = [
    "a|b",
    "a\\|b",
    "`tick`",
    "``two``",
    "`",
    "<script>alert(1)</script>",
    "<!-- nothing",
    "</details>",
    "[a](javascript:x)",
    "![](http://example.org/x.png)",
    "@everyone",
    "#1",
    "$x$",
    "_a_ *b* ~c~",
    "line\n## heading",
    "\x1b[31m",
    "::error::x",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_somebody_elses_text_is_never_markup(text: str) -> None:
    hostile = record(
        text,
        message=text,
        run=text,
        compared_with=text,
        file=text,
        measured_as=text,
        notes=(Note(text),),
        sentence=f"{text}!",
        rows=2,
        judged=(row(9, labels={"stage": text}),),
        differences=(Difference(text, text, text),),
        next_steps=(NextStep(text, text),),
        windows=(UsedWindow(0, 0, Window(0, 1, text)),),
    )
    shown = render_summary(make_session(hostile, mistakes=(Mistake(text, text, 1, 1),), merge_base=base_verdict(text)))
    assert [{len(line) for line in table} for table in tables(shown)] == [{7}, {3}, {3}, {7}]
    titles = re.findall(r"<summary>(.*?)</summary>", shown)  # of HTML: no Markdown is read in them
    assert titles
    for title in titles:
        assert set(re.findall(r"<[^>]*>?", title.replace("<!-- -->", ""))) <= {"<code>", "</code>"}
        assert not re.search(r"`|[@#$](?!<!-- -->)", title.replace("&#x27;", ""))
    untitled = re.sub(r"<summary>.*?</summary>", "<summary></summary>", shown)
    outside = re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", untitled)  # of code spans, in which nothing is markup
    outside = re.sub(r"\\[!-/:-@\[-`{-~]", "", outside).replace("@<!-- -->", "")
    own = {"<details>", "</details>", "<summary>", "</summary>"}
    assert set(re.findall(r"<[^>]*>?", outside)) <= own
    assert outside.count("<details>") == outside.count("</details>")
    assert not re.search(r"[`*$@~\x1b]|\]\(", outside)
    assert "\n## heading" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", "`a`"),
        ("a`b", "``a`b``"),
        ("`a`", "`` `a` ``"),
        ("``", "``` `` ```"),
        (" a ", "`  a  `"),
        (" ", ""),
        ("", ""),
    ],
)
def test_code_holds_any_backtick(text: str, shown: str) -> None:
    assert format_code(text) == shown


def test_a_sentence_is_as_long_as_it_is() -> None:
    assert escape_prose("long " * 300) == "long " * 300


def test_a_bar_in_a_cell() -> None:
    assert (format_code("a|b"), format_code_cell("a|b"), escape_prose("a|b")) == ("`a|b`", "`a\\|b`", "a\\|b")


@pytest.mark.parametrize("letter", ["x", "é", "�", "|"])
@pytest.mark.sampled(3)
def test_it_is_never_too_long(letter: str) -> None:
    many = [record(f"n{n} {letter * 350}", message=letter * 1900, line=n) for n in range(2000)]
    text = render_summary(make_session(*many))
    assert len(text.encode()) <= MAX_BYTES < 2**20
    assert len(text.encode()) > MAX_BYTES - 20_000
    assert "\n\nPerformance gate: failed. 2000 assertions: 2000 failed.\n" in text
    assert text.endswith("more lines; the JSON report holds everything.\n")
    assert "**Cut here: too long for GitHub.**" in text


def test_what_fits_is_not_cut() -> None:
    parts = ["a" * 9] * 12  # 120 bytes
    for room in range(100, 140):
        text = cut_to_size(parts, room)
        assert len(text) <= room
        assert ("Cut here" not in text) == (room >= 120)


def test_what_failed_is_said_beside_what_has_no_data() -> None:
    gone = record("gone", "no data", message="2 rows of the baseline gone", line=4)
    assert "\nPerformance gate: failed. 2 assertions: 1 no data, 1 failed." in render_summary(
        make_session(record(), gone)
    )
    assert "\nPerformance gate: no data. " in render_summary(make_session(gone))


def test_a_slow_rank_of_several_leads_to_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # from elsewhere the baseline would lie in what both folders have in common
    fault = FAULTS["one slow rank"]
    base, worse = fault.program().write(tmp_path / "base", Format.NSYS, 1), fault.program()
    fault.change(worse)
    head = worse.write(tmp_path / "head", Format.NSYS, 2)
    run("init", base, code=0)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--nsys-trace={head}", "--nsys-summary=summary.md", "."]
    subprocess.run([sys.executable, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, check=False)
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    first = "\nNext:\n\n- `nvidia-smi -q -d PERFORMANCE` (on the node of rank 3: clocks, power, temperature"
    assert text.count(first) == 1
    assert text.count("To accept this run: ") == 1
