"""What do the tests of the reports share? Records of verdicts, and the JSON of a run."""

import json
import re
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema

from pytest_nsys.analysis.windows.run_conditions import RunKey
from pytest_nsys.gates.model import (
    Assertion,
    BaselineLimit,
    Comparator,
    Constant,
    Location,
    Outcome,
    Requirement,
    Severities,
    Severity,
    Verdict,
)
from pytest_nsys.merge_base.base_verdict import BaseVerdict, JudgedGate
from pytest_nsys.merge_base.differences import FileDifference, FileKind
from pytest_nsys.reports.session import json_report
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.session import Session
from tests.support.gates import ByName, Project

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
    return ByName({a["name"]: a for file in report["gate_files"] for a in file["assertions"]})


def record(name: str = "red", outcome: str = "failed", *, good: bool | None = None, **more: Any) -> AssertionRecord:
    """The record of a verdict on the rows that were ``judged``. ``more`` are fields of the record, of the verdict, or
    of what is asserted, whose metric is the ``subject``.
    """
    rows = tuple(more.pop("judged", ()))
    own = {"rows": len(rows)} | {
        each.name: more.pop(each.name) for each in fields(AssertionRecord) if each.name in more
    }
    own["good"] = outcome == "passed" if good is None else good
    judged = {each.name: more.pop(each.name) for each in fields(Verdict) if each.name in more}
    assertion = _assertion(name, **more)
    told = {"message": "below its limit", "unit": "count", "rows": rows, **judged}
    return AssertionRecord(Verdict(assertion, Outcome(outcome), **told), **own)


def _assertion(
    name: str,
    subject: str = "overlap",
    file: str = "perf/gate.nsys.yaml",
    line: int = 3,
    severity: str = "fail",
    sentence: str = "",
    comparator: str = "<=",
    limit: Constant | BaselineLimit | None = None,
) -> Assertion:
    balance = re.fullmatch(r"balance of (\w+) across (\w+)", subject)
    return Assertion(
        name,
        name,
        sentence,
        Location(Path(file), line, 3),
        balance[1] if balance else subject,
        Requirement(Comparator(comparator), limit or Constant(Fraction(0)), ""),
        severity=Severities(Severity(severity)),
        balance_across=balance[2] if balance else None,
    )


def key(world: int) -> RunKey:
    """The key of a run that says nothing but its size."""
    return RunKey(None, None, None, None, world, None)


def base_verdict(text: str = "3 rows", *, red: bool = False, **more: Any) -> BaseVerdict:
    """What a merge base says, told by some text."""
    told: dict[str, Any] = {
        "headline": text,
        "accepted_texts": [text],
        "judged_gates": [JudgedGate(text, [text], 1, 2)],
        "new_paths": [text],
        "notes": [text],
        "differences": [FileDifference(text, FileKind.GATE_FILE, 1, 2, "changed")],
    }
    return BaseVerdict(is_red=red, **told | more)


def make_session(*records: AssertionRecord, **more: Any) -> Session:
    """A session of these records."""
    return Session(records=records, **more)
