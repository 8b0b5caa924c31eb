"""Is the documentation true and whole? Generated parts are as the program says them now, examples load, links lead.

``python -m tests.generate_docs`` mends a stale page; what is missing is written by hand.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.windows.run_conditions import RunKey
from pytest_nsys.analysis.windows.window_selection import UsedWindow
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import GateFileError
from pytest_nsys.core.model import KernelsMode, Span, Window
from pytest_nsys.core.units import NANOSECONDS
from pytest_nsys.core.version import DOCUMENTATION
from pytest_nsys.gates.gate_file import parse_gate_file
from pytest_nsys.gates.kinds import KEYS
from pytest_nsys.gates.model import Aggregate, BaselineLimit, GateFile, JudgedRow, Outcome, Tolerance
from pytest_nsys.reports.screens.rank_bars import COLUMN_HEADS
from pytest_nsys.reports.words.glossary import GLOSSARY, Term
from tests.gates.test_gate_file_schema import validates
from tests.generate_docs import GENERATED, MARKED, ROOT, DocsMistake, convention_yaml, pages, rewritten, steady
from tests.support.commands import run
from tests.support.quick_python import quick_python
from tests.support.reports import record

PAGES = [path for path in pages() if path.exists()]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
LINKED = [*PAGES, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY"))]
MOST_WORDS = 26_000
"""Of README.md and docs/, generated parts included."""

HEAD = "version: 1\ntolerance: {rel: 5%, abs: [50us, 1pp, 2]}\n"


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def by_hand(name: str) -> str:
    """A page without its generated parts."""
    return re.sub(r"^<!-- (?:generated|output): .*?^<!-- end -->$", "", page(name), flags=re.MULTILINE | re.DOTALL)


# What the program says itself


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_no_page_is_stale(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", quick_python())
    text = path.read_text(encoding="utf-8")
    assert rewritten(text) == text, f"{name_of(path)}: run python -m tests.generate_docs"


def test_every_page_is_found() -> None:
    assert {name_of(path) for path in PAGES} >= {
        *(f"docs/{name}.md" for name in ("gate-file", "metrics", "commands", "rules")),
        "CONTRIBUTING.md",
    }


@pytest.mark.parametrize(
    "text",
    [
        "<!-- generated: metrics -->\n",
        "<!-- end -->\n",
        "<!-- generated: metrics -->\n<!-- generated: metrics -->\n<!-- end -->\n",
        "<!-- file: a.yaml -->\ntext\n",
        "<!-- generated: nothing -->\n<!-- end -->\n",
        "<!-- output: rm -r . -->\n<!-- end -->\n",
        "<!-- run: rm -r . -->\n",
    ],
)
def test_a_marker_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(DocsMistake):
        rewritten(text)


def test_rewriting_fills_in_and_is_stable() -> None:
    once = rewritten("<!-- generated: pytest options -->\n<!-- end -->\n")
    assert "`nsys_trace`" in once
    assert rewritten(once) == once


def test_a_file_of_the_page_is_there_for_its_commands() -> None:
    text = (
        "<!-- file: a/b.nsys.yaml, mistaken -->\n```yaml\nversion: 1\n```\n\n"
        "<!-- output: pytest a/b.nsys.yaml -->\n<!-- end -->\n"
    )
    assert "a/b.nsys.yaml:1:1: 'assertions' is missing" in rewritten(text)


def test_output_is_the_same_on_every_machine() -> None:
    folder = Path("/somewhere/else")
    first = (
        "plugins: nsys\nrootdir: /a\n=== 2 failed in 0.61s ===\n3 passed in 62.10s (0:01:02)\nat /somewhere/else/x\n"
    )
    assert steady(first, folder) == f"{' 2 failed in …s '.center(100, '=')}\n3 passed in …s\nat x\n"


def test_nothing_is_said_of_a_moment_or_a_commit() -> None:
    said = "from 2026-01-31T02:00:00Z to 2026-02-01T02:00:00Z\nat a3b6bd6 (merge base of main)\n+12%  474e9573e0\n"
    assert steady(said, Path("/x")) == "from … to …\nat … (merge base of main)\n+12%  …\n"
    assert steady("period_ns 0 2000000\nkey 6c55ffc19bff\n\n", Path("/x")) == "period_ns 0 2000000\nkey 6c55ffc19bff\n"


def test_a_page_shows_the_lines_that_it_asks_for() -> None:
    once = rewritten("<!-- run: mkdir x -->\n<!-- output: python -m this | ^Simple|^Flat|^Sparse -->\n<!-- end -->\n")
    assert "$ python -m this\nSimple is better than complex.\n…\nFlat is better than nested.\nSparse " in once
    assert "mkdir" not in once.partition("\n")[2]
    with pytest.raises(DocsMistake, match="no line of the output has 'nothing'"):
        rewritten("<!-- output: mkdir x | nothing -->\n<!-- end -->\n")
    with pytest.raises(DocsMistake, match=re.escape("no line of the output has 'b(l|m)'")):
        rewritten('<!-- output: python -c "print(1)" | [|1]|b(l|m)|\\| -->\n<!-- end -->\n')


def test_commands_that_print_nothing_take_no_line() -> None:
    once = rewritten('<!-- output: mkdir perf && python -c "print(6 * 7)" -->\n<!-- end -->\n')
    assert '$ mkdir perf && python -c "print(6 * 7)"\n42\n```' in once


# Nothing is left out


def test_every_generated_part_is_on_a_page() -> None:
    """Metrics, commands, settings: a table of all there is leaves nothing out. Options are in ``--help``."""
    found = {
        part["what"] for path in PAGES for part in MARKED.finditer(path.read_text()) if part["kind"] == "generated"
    }
    assert found == set(GENERATED)


def test_every_key_of_the_gate_file() -> None:
    text = page("gate-file.md")
    keys = {key for section in KEYS.values() for key in section}
    assert {"rel", "purposes", "micro_batch", "severity", "start"} <= keys
    assert sorted(key for key in keys if f"`{key}` (" not in text and f".{key}` (" not in text) == []


@pytest.mark.parametrize(
    ("name", "shown", "words"),
    [
        ("gate-file.md", "`{}`", ["median", "mean", "max", "min", "sum", "below", "above", "at least", "at most"]),
        ("gate-file.md", "`{}`", NANOSECONDS),
        ("metrics.md", "`{}`", ["median", "first", "last", "steady", "run", *Span, *KernelsMode]),
        ("reading-a-red.md", "| *{}* |", Outcome),
        ("rules.md", "`{}`", RunKey.__dataclass_fields__),
    ],
)
def test_every_word_is_told_by_hand(name: str, shown: str, words: Iterable[object]) -> None:
    text = by_hand(name)
    assert [word for word in words if shown.format(word) not in text] == []


def test_a_median_is_over_all_that_the_sentence_does_not_select() -> None:
    assert Aggregate("median").over is None


def test_every_junit_property() -> None:
    window = UsedWindow(0, 0, Window(0, 1, "step"))
    row = JudgedRow({"rank": 0}, 3, 2, Outcome.FAILED, baseline=1, tolerance=1, margin=-1)
    told: dict[str, Any] = {"windows": (window,), "measured_as": "median", "compared_with": "b", "accepted_for": "a"}
    told |= {"limit": BaselineLimit(Tolerance(Fraction(1), {})), "run": "run"}
    waived = replace(row, waived=True, ceiling=4)
    names = {name for each in (row, waived) for name, _ in record(judged=[each], **told).list_junit_properties()}
    text = by_hand("commands.md")
    assert len(names) == 15
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_part_of_the_package() -> None:
    """Folders and modules that a person meets first; CONTRIBUTING names each."""
    package = ROOT / "pytest_nsys"
    entries = [
        p.name + "/" if p.is_dir() else p.name
        for p in package.iterdir()
        if not p.name.startswith("__") and p.name != "py.typed"
    ]
    text = CONTRIBUTING.read_text(encoding="utf-8")
    assert sorted(entry for entry in entries if f"`{entry}`" not in text) == []


def test_every_file_that_contributing_names() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|ini|json))`", CONTRIBUTING.read_text(encoding="utf-8"))
    assert [name for name in named if not any((ROOT / top / name).exists() for top in ("", "pytest_nsys"))] == []


def test_a_percent_sign_stands_next_to_its_number() -> None:
    """As STYLE.md has it."""
    lines = ((name_of(path), line) for path in LINKED for line in path.read_text(encoding="utf-8").splitlines())
    assert [(name, line) for name, line in lines if re.search(r"\d\s%", line)] == []


def test_the_changelog_tells_of_what_is_new() -> None:
    """Under *Unreleased*, or in the commit of a release under that."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]\n" in text
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    entries = next(found for each in sections if (found := re.split(r"^- ", each, flags=re.MULTILINE)[1:]))
    assert [entry for entry in entries if not entry.rstrip().partition("\n\n")[0].endswith(".")] == []


def _words(path: Path) -> int:
    """What a reader reads: all with a letter or a digit in it, but for the markers of what is generated."""
    text = re.sub(r"^<!--.*-->$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return sum(any(map(str.isalnum, word)) for word in text.split())


def test_the_pages_hold_at_most_so_many_words() -> None:
    """A page is paid for by another: who adds one finds what is said twice."""
    words = {name_of(path): _words(path) for path in PAGES if path != CONTRIBUTING}
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda page: -page[1])


def test_the_index_has_every_page() -> None:
    pages_of_docs = {str(path.relative_to(ROOT / "docs")) for path in PAGES if path.parent != ROOT} - {"README.md"}
    listed = re.findall(r"\]\(([^)#]+)\)", page("README.md"))
    assert sorted(pages_of_docs ^ set(listed)) == ["../CONTRIBUTING.md"]


def test_the_words_of_the_first_screen_are_told_where_its_help_says() -> None:
    (named,) = re.findall(rf"{re.escape(DOCUMENTATION)}([\w-]+)/", run("show", "--help", code=0).stdout)
    told = {*re.findall(r"\*\*([^*]+)\*\*", page(f"{named}.md"))}
    words = {
        *COLUMN_HEADS.values(),
        "step",
        "window",
        "exposed",
        "overlap",
        "at most",
        "doubtful",
        "worst rank of each",
    }
    assert sorted(words - told) == []
    assert {"blocked", "throughput gain", BudgetPart.BESIDE, "launch-starved", "headroom", "anchor", "barrier"} <= told


@pytest.mark.parametrize("term", GLOSSARY, ids=lambda term: term.words[0])
def test_a_word_is_explained_on_two_lines_with_a_page_and_place_that_exist(term: Term) -> None:
    for word in term.words:
        meaning, more = run("--explain", word.upper(), code=0).stdout.splitlines()
        assert meaning == f"{', '.join(term.words)}: {term.meaning}"
        assert more.startswith(f"more: {DOCUMENTATION}{term.page.partition('#')[0]}/")
    name, _, anchor = term.page.partition("#")
    headings = re.findall(r"^#+ (.*)", page(f"{name}.md"), re.MULTILINE)
    places = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert not anchor or anchor in places


def test_no_word_has_two_meanings() -> None:
    words = [word for term in GLOSSARY for word in term.words]
    assert len(words) == len(set(words)) >= 20


@pytest.fixture(scope="module")
def sample_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    run("demo", folder / "demo", code=0)
    return folder / "demo" / "traces" / "good"


TYPED_ELSEWHERE = re.findall(r"^\| [^|]+ \| `pytest-nsys ([^`|]+)` \|", page("other-tools.md"), re.MULTILINE)


@pytest.mark.parametrize("command", dict.fromkeys(TYPED_ELSEWHERE))
def test_what_a_user_of_another_tool_types(sample_run: Path, command: str) -> None:
    typed = command.replace("RUN", str(sample_run)).replace("BASE", str(sample_run.with_name("regressed")))
    result = run(*typed.split(), code=0)
    assert result.stdout


def test_the_words_of_each_tool_have_a_command() -> None:
    assert len(TYPED_ELSEWHERE) >= 25
    assert page("other-tools.md").count("`pytest-nsys ") == len(TYPED_ELSEWHERE), "a command that no test runs"


# Links


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def _anchors(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for path in LINKED:
        for target in re.findall(r"\]\(([^)\s]+)\)", _without_code(path.read_text(encoding="utf-8"))):
            if re.match(r"https?:|mailto:", target):
                continue
            file, _, anchor = target.partition("#")
            leads_to = (path.parent / file).resolve() if file else path
            assert leads_to.exists(), f"{path}: {target}"
            assert leads_to.is_relative_to(ROOT), f"{path}: {target}"
            assert not anchor or anchor in _anchors(leads_to), f"{path}: {target}"


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "images").glob("*.png")), ids=name_of)
def test_a_picture_is_small_and_shown(picture: Path) -> None:
    assert picture.stat().st_size <= 150_000
    assert any(f"images/{picture.name})" in path.read_text(encoding="utf-8") for path in PAGES)


# Examples


def _examples() -> Iterator[Any]:
    for path in PAGES:
        blocks = re.finditer(
            r"^(?P<before>[^\n]*)\n(?P<fence>`{3,})ya?ml\n(?P<code>.*?)^(?P=fence)$",
            path.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
        for n, block in enumerate(blocks):
            mistaken = re.fullmatch(r"<!-- file: \S+, mistaken -->", block["before"]) is not None
            yield pytest.param(block["code"], mistaken, id=f"{path.name}-{n}")


def _load(code: str, folder: Path) -> GateFile | None:
    """The gate file that an example is, or is a part of; None for YAML of something else."""
    content = yaml.load(code, Loader=yaml.BaseLoader)
    if isinstance(content, list):
        code = HEAD + "assertions:\n" + code
    elif content.keys() & {"jobs", "steps", "repos"}:
        return None
    else:
        code += "" if "version" in content else "version: 1\n"
        code += "" if "assertions" in content else "assertions: [no syncs]\n"
    gate = parse_gate_file(code, path=folder / "example.nsys.yaml")
    assert validates(code) == ""
    return gate


@pytest.mark.parametrize(("code", "mistaken"), [*_examples()])
def test_examples_load(code: str, mistaken: bool, tmp_path: Path) -> None:
    if mistaken:
        with pytest.raises(GateFileError):
            _load(code, tmp_path)
    else:
        _load(code, tmp_path)


def test_a_convention_is_what_its_page_spells_out(tmp_path: Path) -> None:
    for convention in BUILT_IN_CONVENTIONS.values():
        gate = _load(convention_yaml(convention), tmp_path)
        assert gate is not None
        assert gate.convention == convention
