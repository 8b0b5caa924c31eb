"""Does a newcomer get to green and to red by typing what is printed, and are the examples what the builder writes?"""

import gzip
import re
import shlex
import shutil
import sqlite3
from pathlib import Path

import pytest

from pytest_nsys import open_run
from pytest_nsys.core.file_names import WINDOW_SUFFIX
from tests.support.gates import Project
from tests.support.samples.dualpipe import SAMPLE_SHAPE, write_dualpipe

CHECKOUT = Path(__file__).parents[2]
EXAMPLE = CHECKOUT / "examples" / "dualpipe.nsys.yaml"


@pytest.fixture(autouse=True)
def _commands_on_the_path(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.commands_on_the_path(monkeypatch)


def kept(root: Path) -> list[Path]:
    """The windows that are kept below a folder of baselines."""
    return sorted((root / "baselines").rglob(f"*{WINDOW_SUFFIX}"))


def printed_commands(said: str) -> list[list[str]]:
    return [shlex.split(line) for line in said.splitlines() if line.startswith("  pytest")]


def type_in(project: Project, words: list[str], code: int) -> str:
    project.result = project.pytester.run(*words)
    assert project.result.ret == code, project.result.stdout.str()
    return project.result.stdout.str()


def test_the_demo_can_be_typed_as_it_is_printed(project: Project) -> None:
    green, red, page, look, accept = printed_commands(project.command("demo", code=0))
    assert project.files() == {
        "nsys-demo/pytest.ini",
        "nsys-demo/fsdp.nsys.yaml",
        *(f"nsys-demo/traces/{run}/rank{rank}_trace.json.gz" for run in ("good", "regressed") for rank in range(2)),
        *(f"nsys-demo/baselines/{name}" for name in project.baselines("nsys-demo/baselines")),
        *(f"nsys-demo/baselines/{path.parent.name}/{path.name}" for path in kept(project.root / "nsys-demo")),
    }
    said = type_in(project, green, 0)
    assert "all 4 assertions passed; least headroom " in said
    project.result.assert_outcomes(passed=4, warnings=0)
    assert "warning" not in said
    said = type_in(project, red, 1)
    project.result.assert_outcomes(passed=1, failed=3, warnings=0)
    assert "warning" not in said
    type_in(project, page, 1)
    shown = (project.root / "nsys-demo" / "red.html").read_text(encoding="utf-8")
    assert "Step 10% slower (16.1 → 17.8 ms)" in shown
    assert '<div class="side">base</div>' in shown  # of the run that its baseline was written of
    assert "post_backward_reduce" in type_in(project, look, 0)
    assert "  write: all_gather overlap >= 41%\n" in type_in(project, accept, 1)
    gate = project.root / "nsys-demo" / "fsdp.nsys.yaml"
    gate.write_text(gate.read_text().replace("all_gather overlap >= 75%", "all_gather overlap >= 41%"))
    assert "failed" not in type_in(project, red, 0)


def test_the_demo_of_a_pipeline_can_be_typed_as_it_is_printed(project: Project) -> None:
    green, red, page, look, accept = printed_commands(project.command("demo", "--dualpipe", code=0))
    assert project.files() == {
        "nsys-demo/pytest.ini",
        "nsys-demo/dualpipe.nsys.yaml",
        "nsys-demo/traces/dualpipe.sqlite",
        "nsys-demo/traces/regressed.sqlite",
        *(f"nsys-demo/baselines/{name}" for name in project.baselines("nsys-demo/baselines")),
        *(f"nsys-demo/baselines/{path.parent.name}/{path.name}" for path in kept(project.root / "nsys-demo")),
    }
    assert "all 7 assertions passed; least headroom " in type_in(project, green, 0)
    project.result.assert_outcomes(passed=7, warnings=0)
    said = type_in(project, red, 1)
    assert "exposed_ns below baseline plus tolerance\n  failed: " in said
    assert "window: rank 3, forward chunk" in said
    type_in(project, page, 1)
    assert "stage4_f" in type_in(project, look, 0)
    assert "  write: stage3 overlap >= 33%\n" in type_in(project, accept, 1)
    gate = project.root / "nsys-demo" / "dualpipe.nsys.yaml"
    gate.write_text(gate.read_text().replace("stage3 overlap >= 60%", "stage3 overlap >= 33%"))
    assert "failed" not in type_in(project, red, 0)


def test_of_a_demo_that_cannot_be_written_nothing_is_left(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("pytest_nsys.cli.demo.store_rows", full)
    said = project.command("demo", code=2)
    assert said.strip() == "error: nsys-demo: the demo cannot be written: database or disk is full; nothing was left"
    assert project.files() == set()


def test_the_regression_of_the_demo_is_in_the_forward_alone(project: Project) -> None:
    project.command("demo", code=0)

    def exposed(name: str) -> dict[object, object]:
        with open_run(project.root / "nsys-demo" / "traces" / name) as run:
            return {(row.labels["rank"], row.labels["stage"]): row.value for row in run.rows("exposed_ns")}

    good, regressed = exposed("good"), exposed("regressed")
    assert good.keys() == regressed.keys() == {(r, s) for r in (0, 1) for s in ("all_gather", "post_backward_reduce")}
    assert {key for key in good if good[key] != regressed[key]} == {(0, "all_gather"), (1, "all_gather")}


@pytest.mark.parametrize("name", ["full", "file"])
def test_the_demo_overwrites_nothing(project: Project, name: str) -> None:
    project.file("full/notes.txt", "mine")
    project.file("file", "mine")
    files = project.files()
    assert f"error: {name}: exists and is not empty: give a new folder" in project.command("demo", name, code=2)
    assert project.files() == files


def test_the_demo_takes_an_empty_folder(project: Project) -> None:
    (project.root / "here").mkdir()
    project.command("demo", "here", code=0)


def test_the_example_is_the_packaged_one() -> None:
    assert EXAMPLE.read_bytes() == (CHECKOUT / "pytest_nsys" / "samples" / EXAMPLE.name).read_bytes()


def test_the_trace_of_the_example_can_be_made_again(tmp_path: Path) -> None:
    again = write_dualpipe(tmp_path / "again.sqlite", SAMPLE_SHAPE)
    assert again.read_bytes() == (CHECKOUT / "examples" / "traces" / "dualpipe.sqlite").read_bytes()


def test_the_examples_are_green_without_warnings(project: Project) -> None:
    for folder in ("examples", "baselines"):
        shutil.copytree(CHECKOUT / folder, project.root / folder)
    before = project.files()
    said = project.pytest("examples", "-W", "error", code=0)
    project.result.assert_outcomes(passed=7, warnings=0)
    assert "warning:" not in said
    assert project.files() == before


def test_the_baseline_of_the_example_is_up_to_date(project: Project) -> None:
    """With its windows, which zlib may pack to other bytes elsewhere, so that they have another digest."""
    for folder in ("examples", "baselines"):
        shutil.copytree(CHECKOUT / folder, project.root / folder)

    def stored() -> tuple[str, bytes]:
        (text,), (window,) = project.baselines().values(), kept(project.root)
        return re.sub(r"[0-9a-f]{64}", "", text), gzip.decompress(window.read_bytes())

    before = stored()
    shutil.rmtree(project.root / "baselines")
    (project.root / "baselines").mkdir()
    project.refresh("examples", "--nsys-reason=first baseline of the sample step")
    assert stored() == before
