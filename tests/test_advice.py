"""Can people type what the program tells them to? Commands and options of help, messages and recorded outputs."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from pytest_nsys.core.version import DOCUMENTATION
from pytest_nsys.reports.views.all_views import VIEWS
from tests.repository import PROJECT, ROOT
from tests.support.advice import (
    ANY,
    PYTEST,
    Printed,
    find_mistakes,
    lines_of_docs,
    lines_of_help,
    messages,
    own_options,
)
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.samples.builder import TraceBuilder
from tests.support.sql import execute
from tests.support.summaries import RUNS, bare_kernels

TEXTS: dict[str, Callable[[], Iterator[Printed]]] = {"help": lines_of_help, "docs": lines_of_docs, "messages": messages}


def list_mistakes(lines: Iterable[Printed], config: pytest.Config) -> list[str]:
    own = own_options(config)
    return [f"{line.place}: {mistake}: {line.text}" for line in lines for mistake in find_mistakes(line, own)]


@pytest.mark.parametrize("texts", TEXTS)
def test_what_is_told_can_be_typed(texts: str, pytestconfig: pytest.Config) -> None:
    lines = list(TEXTS[texts]())
    assert len(lines) > 50
    assert list_mistakes(lines, pytestconfig) == []


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.sampled(3)
def test_what_the_commands_print_of_a_run_can_be_typed(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    path = RUNS[name](tmp_path)
    kind = ".json.gz" if name.split()[0] in ("kineto", "jax") else ".sqlite.gz"
    asked: dict[str, list[tuple[object, ...]]] = {
        "show": [(), *(("--view", view) for view in VIEWS), ("--window", "1"), ("--rank", "0")],
        "check": [("--format", "json"), ("--format", "json", "--convention", "generic")],  # in whole lines
        "rows": [("family_ns", "mfu"), ("exposed", "--window", "0:1000"), ("measured mfu",)],
        "init": [("-o", tmp_path / "perf")],
        "cut": [("-o", tmp_path / f"cut{kind}")],
    }
    lines = [
        Printed(command, line, f"{command} {more}")
        for command, each in asked.items()
        for more in each
        for line in run(command, *more, path).output.splitlines()
    ]
    assert list_mistakes(lines, pytestconfig) == []


WRONG = {
    "rows has no option --steps": ("rows", "set workload: {steps: N}, or --steps N"),
    "show has no option --nsys-trace": ("show", "rank 1 appears twice: give each capture its own --nsys-trace"),
    "check has no option --steps": ("check", "the whole run counts as one step: --steps N divides by N"),
    "init has no option --rank": (ANY, "pytest-nsys init run --rank 3"),
    "init: No such option '--rank'.": (ANY, "pytest-nsys init run --rank 3"),
    "--view overlap refuses --steps": (ANY, "  1. pytest-nsys run.sqlite --view overlap --steps 3  # more"),
    "show: --view has no kernel": (ANY, "`pytest-nsys run.sqlite --view kernel` shows more"),
    "there is no command baseline list": (ANY, "run pytest-nsys baseline list"),
    "pytest has no option --nsys-tracee": (PYTEST, "pytest perf --nsys-tracee=run"),
    "no command has no option --nsys-mode": (ANY, "give --nsys-mode"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_what_cannot_be_typed_is_found(mistake: str, pytestconfig: pytest.Config) -> None:
    """On lines that were printed once, and on some that never were."""
    by, text = WRONG[mistake]
    found = list(find_mistakes(Printed(by, text, "here"), own_options(pytestconfig)))
    assert any(each.startswith(mistake) for each in found), found


@pytest.mark.parametrize(
    "text",
    [
        'pytest-nsys baseline refresh perf --trace=RUN --reason "…"',
        "capture with --trace=cuda,nvtx, and export with `nsys export --type=sqlite`",
        "`pytest-nsys TRACE` says which --anchor measures each",
        "give pytest --nsys-measurements=FILE, or `pytest-nsys rows` --measurements FILE",
        "pytest perf/gates.nsys.yaml --nsys-trace=run -q --maxfail=1",
        "pytest-nsys --version",
    ],
)
def test_what_can_be_typed_is_none(text: str, pytestconfig: pytest.Config) -> None:
    assert list(find_mistakes(Printed(ANY, text, "here"), own_options(pytestconfig))) == []


# Advice that nobody could follow


def test_no_text_names_a_page_that_an_installed_package_lacks() -> None:
    told = [*lines_of_help(), *messages()]
    assert [line for line in told if re.search(r"(?<![\w/.])docs/[\w-]+\.md", line.text)] == []
    assert PROJECT["urls"]["Documentation"] == DOCUMENTATION
    named = {page for line in told for page in re.findall(rf"{re.escape(DOCUMENTATION)}([\w-]+)/", line.text)}
    assert "glossary" in named
    assert [page for page in named if not (ROOT / "docs" / f"{page}.md").exists()] == []


def test_the_number_of_steps_is_asked_for_where_it_can_be_typed(tmp_path: Path) -> None:
    gpu = TraceBuilder().process()
    for at in range(0, 5_000, 1_000):
        gpu.range(f"ProfilerStep#{at}", at, at + 900)
        gpu.kernel("gemm", at + 100, at + 500)
    path = gpu.trace.write(tmp_path / "run.sqlite")
    said = run("rows", "family_ns", path, "--window", "950:2500", code=3).output
    assert said.endswith("in the gate file, or look with `pytest-nsys TRACE --view kernels --steps N`\n")
    run(path, "--window", "950:2500", "--view", "kernels", "--steps", 2, code=0)


def test_files_of_several_captures_are_told_from_a_run_without_an_option_that_is_not_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        bare_kernels(tmp_path / name)
    both = [next((tmp_path / name).iterdir()) for name in ("a", "b")]
    execute(both[1], "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + 1")
    for command in ("show", "check"):
        said = run(command, *both, code=2).output
        assert "no setup label tells them apart: these are captures of one rank: give the files of one run\n" in said


def test_pytest_names_its_option_for_captures_and_a_refresh_that_of_its_own(project: Project) -> None:
    for name in ("a", "b"):
        project.trace(f"run/{name}.sqlite", label=None)
    project.gate("convention: pithtrain\nassertions: [compute below baseline plus 5%]")
    project.file(
        "test_fixture.py",
        """
        def test_rows(nsys_run):
            nsys_run.under("pithtrain").rows("compute_ns")
        """,
    )
    given = "give the files of one run, or each capture by its own "
    assert " ".join(project.pytest("--nsys-trace=run", code=1).split()).count(f"{given}--nsys-trace") >= 2
    said = project.command("baseline", "refresh", project.name, "--trace=run", "--reason=first", code=2)
    assert f"{given}--trace" in " ".join(said.split())
