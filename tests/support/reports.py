"""What do the tests of the reports share? Records as an xdist worker hands them over, and the JSON of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

from pytest_nsys.reports.session import json_report
from pytest_nsys.reports.session.digest import Digest
from pytest_nsys.reports.session.record import Record
from tests.support.gates import Project

SCHEMA: dict[str, Any] = json.loads(Path(json_report.__file__).with_name("report.schema.json").read_text())


def checked(path: Path) -> dict[str, Any]:
    """The report in a file, which must be as the shipped schema says: of many rows it is asked of the first few."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    few = json.loads(path.read_text(encoding="ascii"), object_hook=_few_rows)
    jsonschema.Draft202012Validator(SCHEMA).validate(few)
    return found


def _few_rows(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value[:3] if name == "rows" else value for name, value in members.items()}


def report_of(project: Project, *arguments: str | Path, code: int) -> dict[str, Any]:
    """Run pytest here; its JSON report."""
    path = project.root / "report.json"
    path.unlink(missing_ok=True)
    project.pytest(*arguments, f"--nsys-json={path}", code=code)
    return checked(path)


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The assertions of all gate files."""
    return {a["name"]: a for file in report["gate_files"] for a in file["assertions"]}


def record(name: str = "red", outcome: str = "failed", *, good: bool | None = None, **more: Any) -> dict[str, Any]:
    """A plain record, as a report has it."""
    told = {"file": "perf/gate.nsys.yaml", "line": 3, "message": "below its limit", "severity": "fail", **more}
    plain = Record(name=name, outcome=outcome, **told).plain()
    return {**plain, "xfailed": False, "good": outcome == "passed" if good is None else good}


def changed_baseline(text: str = "3 rows") -> dict[str, Any]:
    """A baseline that a branch changes, told by some text."""
    told = {"file": "baselines/a.json", "about": text, "reason": text, "since": text}
    return {**told, "state": "changed", "rows": []}


def digest(*records: dict[str, Any], **more: Any) -> Digest:
    """A session of these records."""
    return Digest(records=records, **more)
