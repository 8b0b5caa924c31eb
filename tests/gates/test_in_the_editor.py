"""What does a person see who types a gate file in an editor? Asked of yaml-language-server, where it is installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_nsys.analysis.windows.window_selection import WINDOW_WORDS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.drafting.gate_text import SCHEMA_NAME
from pytest_nsys.gates.convention_keys import AUTO
from tests.gate_completions import MAPPINGS, SENTENCES
from tests.gate_schema import PATH
from tests.support.gates import Project
from tests.support.language_server import CURSOR, LanguageServer, program

pytestmark = pytest.mark.skipif(program() is None, reason="there is no yaml-language-server")


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    """An editor whose settings name the schema of the package for gate files."""
    with LanguageServer(tmp_path_factory.mktemp("editor"), PATH) as server:
        yield server


def offered(editor: LanguageServer, typed: str, below: str = "assertions:\n  - no syncs\n") -> list[str]:
    """What is offered at the end of what was typed."""
    return [each.label for each in editor.proposals(f"version: 1\n{typed}{CURSOR}\n{below}")]


def test_words_are_offered(editor: LanguageServer) -> None:
    assert set(offered(editor, "window: ")) == {*WINDOW_WORDS}
    assert set(offered(editor, "convention: ")) == {AUTO, *BUILT_IN_CONVENTIONS}
    assert set(offered(editor, "convention:\n  extends: ")) == {*BUILT_IN_CONVENTIONS}
    assert set(offered(editor, "assertions:\n  - assert: no syncs\n    where:\n      ", "")) >= {"rank", "stage", "pp"}
    assert {"warn", "fail"} <= set(offered(editor, "assertions:\n  - assert: no syncs\n    severity: ", ""))
    assert set(offered(editor, "span: ")) == {"range", "period"}


def test_each_is_explained(editor: LanguageServer) -> None:
    assert all(p.about for p in editor.proposals(f"version: 1\nwindow: {CURSOR}\n"))
    said = editor.about(f"version: 1\nwind{CURSOR}ow: steady\nassertions:\n  - no syncs\n")
    assert "The span of each rank that is judged" in said


def test_sentences_are_snippets(editor: LanguageServer) -> None:
    found = {each.label: each for each in editor.proposals(f"version: 1\nassertions:\n  - {CURSOR}\n")}
    assert {each.label for each in (*SENTENCES, *MAPPINGS)} <= found.keys()
    assert found["no slower than the baseline"].text == "${1:exposed_ns} below baseline plus tolerance"
    named = "id: ${1:dispatch is hidden}\n  assert: ${2:overlap >= 60%}\n  where:\n    ${3:stage}: ${4:stage2_f}"
    assert found["a sentence with a name"].text == named


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("windw: last", "2: Property windw is not allowed."),
        ("window: [first]", "2: "),
        ("kernels: all", '2: Value is not accepted. Valid values: "contained", "clipped", "launched".'),
        ("convention: pithtran", '2: Value is not accepted. Valid values: "auto", "pithtrain"'),
        ("tolerance: {rel: 5}", "2: no share of the baseline, such as 5%"),
        ("tolerance: {abs: 5%}", "2: no amount such as 50us, 1pp or 2"),
        ("trace: {a: b}", "2: "),
    ],
)
def test_mistakes_are_underlined(editor: LanguageServer, line: str, what: str) -> None:
    (found,) = editor.mistakes(f"version: 1\n{line}\nassertions:\n  - no syncs\n")
    assert found.startswith(what)


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("stage3 overlp >= 60%", "names no metric: `pytest-nsys metrics` lists them"),
        ("stage3 overlap >= 60", "no sentence such as 'stage3 overlap >= 60%'"),
        ("assert: stage3 overlap >= 60", "no sentence such as 'stage3 overlap >= 60%'"),
        ("{assert: exposed_ns < 2ms, warn: 1ms}", "no constant limit such as >= 70%"),
    ],
)
def test_a_wrong_metric_or_unit_is_underlined_and_named(editor: LanguageServer, entry: str, what: str) -> None:
    (found,) = editor.mistakes(f"version: 1\nassertions:\n  - no syncs\n  - {entry}\n")
    assert found.startswith(f"4: {what}")


def test_nothing_is_underlined_where_all_is_well(editor: LanguageServer) -> None:
    for path in sorted((Path(__file__).parents[2] / "examples").rglob("*.nsys.yaml")):
        assert editor.mistakes(path.read_text(encoding="utf-8")) == [], path


def test_what_init_writes_names_its_schema(project: Project) -> None:
    """Without any setting, by its first line."""
    project.trace()
    project.command("init", "run.sqlite", "-o", "perf.nsys.yaml", code=0)
    text = (project.root / "perf.nsys.yaml").read_text(encoding="utf-8")
    assert (project.root / SCHEMA_NAME).read_bytes() == PATH.read_bytes()
    with LanguageServer(project.root, None) as editor:
        assert editor.mistakes(text) == []
        wrong = text.replace("\nwindow: ", "\nwindw: ")
        assert ["Property windw is not allowed." in each for each in editor.mistakes(wrong)] == [True]
        first = text.splitlines()[0]
        assert {each.label for each in editor.proposals(f"{first}\nversion: 1\nwindow: {CURSOR}\n")} == {*WINDOW_WORDS}
