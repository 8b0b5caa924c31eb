"""Does GitHub put each verdict at its line, whole, and never more than it takes?"""

import re
from typing import Any
from urllib.parse import unquote

import pytest

from pytest_nsys.core.errors import Mistake
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.session.annotations import MAX_ANNOTATIONS, render_annotations
from pytest_nsys.reports.session.record import AssertionRecord
from tests.support.gates import Project
from tests.support.reports import base_verdict, make_session, record

COMMAND = re.compile(r"::(?P<kind>error|warning|notice) (?P<properties>[^:\n]*)::(?P<text>[^\n]*)")


def understood(line: str) -> dict[str, str]:
    """A workflow command as the runner reads it."""
    match = COMMAND.fullmatch(line)
    assert match is not None, line
    properties = dict(part.split("=", 1) for part in match["properties"].split(","))
    return {"kind": match["kind"], "text": unquote(match["text"])} | {k: unquote(v) for k, v in properties.items()}


def of(*records: AssertionRecord, **more: Any) -> list[dict[str, str]]:
    return [understood(line) for line in render_annotations(make_session(*records, **more))]


def test_each_kind_at_its_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.root.parent))
    project.gate(
        """
        - {id: good, assert: overlap >= 60%}
        - {id: red, assert: overlap >= 99%}
        - {id: soft, assert: overlap >= 99%, severity: warn}
        - {id: known, assert: overlap >= 99%, xfail: a reason}
        - {id: absent, assert: stage5 overlap >= 99%}
        """,
        "perf/gate.nsys.yaml",
    )
    project.trace()
    said = project.pytest("--nsys-annotate", "--nsys-trace=run.sqlite", code=1)
    found = [understood(line) for line in said.splitlines() if line.startswith("::")]
    file = f"{project.root.name}/perf/gate.nsys.yaml"
    assert [(a["kind"], a["file"], a["line"], a["title"]) for a in found] == [
        ("error", file, "4", "failed: red"),
        ("error", file, "7", "no data: absent"),
        ("warning", file, "5", "warned: soft"),
        ("notice", file, "6", "xfailed: known"),
    ]
    assert "rank  stage     now  limit\n" in found[0]["text"]
    sentence = "Overlap 80% < 99%, rank 0 stage2_f; 1 more assertion without data"
    assert found[0]["text"].startswith(f"{sentence}\n  failed: 4 of 4 rows below their limit\n")
    assert sentence not in found[1]["text"]


@pytest.mark.parametrize(
    "name", ["a: b, c=d", "100%", "100%25", "a::error::b", "two\nlines", "\r", "\x1b[31m", "‮", "é 窓"]
)
def test_what_is_escaped(name: str) -> None:
    (line,) = render_annotations(make_session(record(name, file=f"perf/{name}.nsys.yaml", message=name)))
    found = understood(line)
    clean = "".join(c if c.isprintable() else "�" for c in name)
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert found["title"] == f"failed: {clean}"
    assert found["line"] == "3"
    assert set(found) == {"kind", "text", "file", "line", "title"}


@pytest.mark.parametrize(("count", "shown"), [(1, 1), (9, 9), (10, 10), (11, 10), (500, 10)])
def test_at_most_ten_of_a_kind(count: int, shown: int) -> None:
    assert MAX_ANNOTATIONS == 10
    found = of(
        *(record(f"red {n}", line=n) for n in range(1, count + 1)),
        *(record(f"soft {n}", good=True, severity="warn") for n in range(count)),
        *(record(f"known {n}", good=True, xfailed=True) for n in range(count)),
    )
    for kind in ("error", "warning", "notice"):
        own = [a for a in found if a["kind"] == kind]
        assert len(own) == shown
        rest = re.search(r"… and (\d+) more of this kind", own[-1]["text"])
        assert (int(rest[1]) if rest else 0) == count - shown
    assert found[0]["title"] == "failed: red 1"


def test_mistakes_and_a_merge_base_that_is_red() -> None:
    mistakes = (Mistake("test_it.py", "no GPU"), Mistake("a.nsys.yaml", "unknown metric 'overlp'", 3, 5))
    red = base_verdict("1 failed", red=True, accepted_texts=(), judged_gates=(), new_paths=(), notes=(), differences=())
    found = of(mistakes=mistakes, merge_base=red)
    title, told = "nsys gate: not judged", "gate of the merge base: 1 failed"
    assert found == [
        {"kind": "error", "title": "nsys gate: the merge base is red", "text": told},
        {"kind": "error", "file": "test_it.py", "title": title, "text": "no GPU"},
        {"kind": "error", "file": "a.nsys.yaml", "line": "3", "title": title, "text": "unknown metric 'overlp'"},
    ]


def test_what_is_good_says_nothing_and_nothing_judged_does() -> None:
    assert of(record("a", "passed")) == []
    (found,) = of(exit_status=5)
    assert (found["kind"], found["title"]) == ("error", "nsys gate: nothing judged")


def test_a_waiver_is_a_notice_with_its_reason() -> None:
    (found,) = of(
        record(
            "a",
            "passed",
            judged=(JudgedRow({}, 9, 5, Outcome.PASSED, waived=True),),
            cautions=("1 row is waived until 2030-01-01",),
        )
    )
    assert (found["kind"], found["title"]) == ("notice", "waived: a")
    assert found["text"].endswith("1 row is waived until 2030-01-01")


def test_what_leads_stands_first_with_the_sentence() -> None:
    near, far = (
        record(name, line=line, judged=(JudgedRow({}, value, 5, Outcome.FAILED, margin=5 - value),))
        for name, line, value in (("near", 1, 6), ("far", 2, 90))
    )
    found = of(near, far)
    assert [each["title"] for each in found] == ["failed: far", "failed: near"]
    assert [each["text"].startswith("Overlap 90 > 5; and 1 more red\n") for each in found] == [True, False]


def test_a_line_that_failed_in_many_configurations_is_one() -> None:
    found = of(*(record("a", configuration=f"c{n}") for n in range(8)), record("b", line=9))
    titles = sorted((each["title"], each["line"]) for each in found)
    assert titles == [("failed: a in 8 configurations", "3"), ("failed: b", "9")]


def test_what_keeps_many_assertions_from_being_judged_is_one() -> None:
    broken = [record(f"a{n}", "error", line=n, message="run.sqlite: is no trace") for n in range(1, 11)]
    found = of(*broken, record("b", "error", line=20, message="no anchor"))
    assert [(each["title"], each["line"], each["text"]) for each in found] == [
        ("error: 10 assertions", "1", "run.sqlite: is no trace"),
        ("error: b", "20", "no anchor"),
    ]


def test_a_long_text_is_cut() -> None:
    (found,) = of(record(explanation=("x" * 5000,) * 50))
    assert len(found["text"]) <= 4000


def test_an_unclear_and_an_improved_one_are_warnings() -> None:
    found = of(
        record("a", "inconclusive", good=True, cautions=("take more captures",)),
        record("b", "improved", good=True, cautions=("the baseline is stale",)),
    )
    assert [(a["kind"], a["title"]) for a in found] == [("warning", "inconclusive: a"), ("warning", "improved: b")]
    assert found[0]["text"].endswith("take more captures")
