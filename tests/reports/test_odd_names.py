"""Is a trace judged, told and recorded whose file name is not UTF-8?"""

import json
import os
import sys
from xml.etree import ElementTree

import pytest

from pytest_nsys.reports.tables.formats import sanitize_json
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.sql import ask

NAME = os.fsdecode(b"nb\xff.sqlite")
SHOWN = "nb�.sqlite"
TRACE = f"--nsys-trace={NAME}"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="file names are text on this system")


@pytest.fixture
def odd(project: Project) -> Project:
    project.gated("- overlap >= 60%\n- overlap >= 90%\n- exposed_ns below baseline plus 5%\n")
    (project.root / "run.sqlite").rename(project.root / NAME)
    return project


def strict(text: str) -> str:
    """The JSON, of which no escape is half of a pair."""
    return json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8").decode()


def test_in_every_report_of_a_session(odd: Project) -> None:
    odd.refresh(TRACE, code=1)
    options = [
        "--nsys-json=j.json",
        "--nsys-summary=s.md",
        "--nsys-history=h.db",
        "--junitxml=x.xml",
        "--nsys-annotate",
    ]
    said = odd.pytest(TRACE, *options, code=1)
    assert "1 failed, 2 passed" in said
    assert SHOWN in said
    assert SHOWN in strict((odd.root / "j.json").read_text())
    assert "overlap" in (odd.root / "s.md").read_text(encoding="utf-8")
    assert len(list(ElementTree.parse(odd.root / "x.xml").iter("testcase"))) == 3
    assert ask(odd.root / "h.db", "SELECT trace FROM runs") == [("nb\\udcff.sqlite",)]


def test_from_workers(odd: Project) -> None:
    (odd.root / "run").mkdir()
    (odd.root / NAME).rename(odd.root / "run" / NAME)
    said = odd.pytest_in_a_process("-n1", "--nsys-trace=run", "--nsys-json=j.json", "-k", "overlap", code=1)
    assert "1 failed, 1 passed" in said
    said = odd.pytest_in_a_process("-n1", f"--nsys-trace=run/{NAME}", code=4)
    assert "--nsys-trace: the path is not UTF-8, and workers cannot take it" in said


def test_as_the_base(odd: Project) -> None:
    odd.trace("head.sqlite", 205)
    said = odd.pytest(
        "--nsys-trace=head.sqlite", f"--nsys-against={NAME}", "--nsys-json=j.json", "-k", "exposed", code=0
    )
    assert "1 passed" in said
    strict((odd.root / "j.json").read_text())


@pytest.mark.parametrize("format", ["table", "markdown", "json", "html"])
@pytest.mark.sampled(3)
def test_in_a_comparison(odd: Project, format: str) -> None:
    odd.trace("head.sqlite", 205)
    words = ["compare", NAME, "head.sqlite", f"--format={format}"]
    result = run(*words, code=0)
    assert SHOWN in (strict(result.stdout) if format == "json" else result.stdout)
    run(*words, "--output=report", code=0)
    assert (odd.root / "report").read_text(encoding="utf-8") == result.stdout


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("command", ["--view=overlap", "--view=ranks", "--view=streams"])
def test_in_a_look_at_a_trace(command: str) -> None:
    for format in ("table", "json"):
        run(command, NAME, f"--format={format}", code=0)


def test_a_history_of_such_a_name(odd: Project) -> None:
    history = os.fsdecode(b"h\xff.db")
    odd.pytest(TRACE, f"--nsys-history={history}", "-k", "overlap", code=1)
    result = run("history", "--history", history)
    assert (result.exit_code, "overlap" in result.stdout) == (0, True), result.output


@pytest.mark.parametrize(
    "text", ["\udcff", "a\ud83d", "\ud83d\udcff", "\udcff\ud83d\udcff", "\\udcff", "\\\udcff", "é😀"]
)
def test_json_without_halves_of_pairs(text: str) -> None:
    whole = json.loads(sanitize_json(json.dumps(text)))
    assert whole == json.loads(json.dumps(text)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
