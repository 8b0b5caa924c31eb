"""Does every output of a session tell a red by the same cause, in the same words?"""

import contextlib
import json
import os
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.support.commands import run
from tests.support.fault_programs import GROUPED, dualpipe
from tests.support.faults import stretched
from tests.support.quick_python import quick_python
from tests.support.samples.formats import Format

RED = "exposed below baseline plus max(10%, 50us)"
"""A red of the ranks that wait for the one whose kernel is longer."""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each output says of a four-rank DualPipe, a kernel of whose rank 2 takes longer; as a person reads it."""
    folder = tmp_path_factory.mktemp("one-cause")
    base = dualpipe(4).write(folder / "base", Format.NSYS, 1)
    worse = dualpipe(4)
    stretched(GROUPED, 40, [2])(worse)
    head = worse.write(folder / "head", Format.NSYS, 2)
    with contextlib.chdir(folder):
        run("init", base, code=0)
    files = {"page": "page.html", "Markdown": "summary.md", "JSON": "report.json"}
    options = ["--nsys-annotate"]
    options += [f"--nsys-html={files['page']}", f"--nsys-summary={files['Markdown']}", f"--nsys-json={files['JSON']}"]
    words = [quick_python(), "-m", "pytest", "-v", "-p", "no:cacheprovider", f"--nsys-trace={head}", *options, "."]
    environment = {**os.environ, "COLUMNS": "400", "GITHUB_ACTIONS": "true"}
    said = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout
    commands = [line for line in said.splitlines() if line.startswith("::")]
    told = {name: (folder / file).read_text(encoding="utf-8") for name, file in files.items()}
    return {
        "terminal": said,
        "annotations": unquote("\n".join(commands)),
        "Markdown": unescape(told["Markdown"].replace("\\", "")),
        "page": read_page(told["page"]),
        "JSON": told["JSON"],
        "folder": str(folder),
    }


def read_page(page: str) -> str:
    shown = re.sub(r"<script.*?</script>|<svg.*?</svg>|<wbr>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", shown)).replace("\u00a0", " ").split())


def find_red(report: dict[str, Any]) -> dict[str, Any]:
    (found,) = (each for file in report["gate_files"] for each in file["assertions"] if each["sentence"] == RED)
    return dict(found)


@pytest.mark.parametrize("output", ["terminal", "annotations", "Markdown", "page"])
def test_the_cause_of_a_row_is_the_same_in_every_output(outputs: dict[str, str], output: str) -> None:
    worst = find_red(json.loads(outputs["JSON"]))["causes"][0]
    (cause,) = worst["why"]
    assert worst["labels"]["rank"] != 2
    assert "rank 2: deep_gemm_fp8_m_grouped_gemm_contiguous" in cause["text"]
    assert cause["text"] in outputs[output]


@pytest.mark.parametrize("output", ["terminal", "annotations", "Markdown", "page"])
def test_the_sentence_is_the_same_in_every_output(outputs: dict[str, str], output: str) -> None:
    report = json.loads(outputs["JSON"])
    (root,) = (each for each in report["story"]["roots"] if each["reds"])
    assert root["text"] in report["headline"]
    assert report["headline"] in " ".join(outputs[output].split())


def test_no_row_has_a_cause_in_another_place_that_it_does_not_wait_for(outputs: dict[str, str]) -> None:
    """Only the rank whose kernel is longer does not wait, and all that it is red by is its own."""
    report = json.loads(outputs["JSON"])
    rows = [row for file in report["gate_files"] for each in file["assertions"] for row in each["causes"]]
    assert {change["name"].partition("<")[0] for row in rows for change in row["roots"]} == {GROUPED.partition("<")[0]}


def read_next(said: str) -> list[str]:
    """What to do next of the worst red, a step a line."""
    lines = said[said.index("  next:") :].splitlines()
    steps = [lines[0], *(line for line in lines[1:])]
    end = next(number for number, line in enumerate(steps) if number and not line.startswith(" " * 9))
    return [line.removeprefix("  next:").strip() for line in steps[:end]]


def test_next_looks_by_the_cause_then_in_perfetto_and_accepts_or_waives_last(outputs: dict[str, str]) -> None:
    steps = read_next(outputs["terminal"])
    beginnings = ["pytest-nsys ", "pytest ", "pytest-nsys baseline refresh ", "waivers: [{assertion: "]
    assert [step.startswith(begin) for step, begin in zip(steps, beginnings, strict=True)] == [True] * 4, steps
    assert steps[1].endswith("--nsys-artifacts=windows  # both windows in Perfetto")
    assert re.search(r"expires: \d{4}-\d\d-\d\d.* # in .*to silence it$", steps[3])


def test_the_command_for_perfetto_is_one_that_runs(outputs: dict[str, str]) -> None:
    command, folder = read_next(outputs["terminal"])[1].partition("  # ")[0], Path(outputs["folder"])
    words = [quick_python(), "-m", *command.split(), "-q", "-p", "no:cacheprovider"]
    subprocess.run(words, cwd=folder, stdout=subprocess.DEVNULL, check=False)
    assert list((folder / "windows").glob("*.json.gz"))
