"""Does ``metrics`` print the registry, and does the group start without what a command does not need?"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

from pytest_nsys.analysis.metrics import METRICS
from tests.support.commands import run


def test_json_holds_every_metric() -> None:
    rows = json.loads(run("metrics", "--format", "json").stdout)["rows"]
    assert [row["name"] for row in rows] == list(METRICS)
    overlap = next(row for row in rows if row["name"] == "overlap")
    assert (overlap["unit"], overlap["better"], overlap["dimensions"]) == ("%", "higher", ["rank", "stage"])
    assert overlap["definition"] == 1
    assert all(row["summary"] and "``" not in row["summary"] for row in rows)


def test_table_csv_and_markdown() -> None:
    lines = run("metrics").stdout.splitlines()
    assert lines[0].split() == ["name", "unit", "better", "dimensions", "definition", "summary"]
    assert len(lines) == 2 + len(METRICS)
    rows = list(csv.DictReader(io.StringIO(run("metrics", "--format", "csv").stdout)))
    assert [row["name"] for row in rows] == list(METRICS)
    assert rows[0]["better"] == ""
    cells = run("metrics", "--format", "markdown").stdout.splitlines()
    assert {line.replace("\\|", "").count("|") for line in cells} == {7}


def loaded_by(*arguments: str) -> set[str]:
    code = f"import sys; from pytest_nsys.cli import main; main({list(arguments)!r}, standalone_mode=False)"
    shown = f"{code}; print('modules:', *sys.modules)"
    output = subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True, text=True).stdout
    return set(output.rsplit("modules:", 1)[1].split())


def test_commands_are_imported_when_they_are_called() -> None:
    loaded = loaded_by("metrics")
    assert "pytest_nsys.cli.metrics" in loaded
    assert not loaded & {"pytest_nsys.cli.primitives", "pytest_nsys.cli.rows", "pytest_nsys.cli.baseline", "jsonschema"}


def test_help_and_version() -> None:
    assert "overlap" in run("--help").stdout
    assert run("--version").stdout.startswith("pytest-nsys ")
    for command in ("setup", "window", "streams", "overlap", "metrics", "rows"):
        assert run(command, "--help").exit_code == 0
