"""What does the command ``pytest-nsys`` print, run in this process?"""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner, Result

from pytest_nsys.analysis.summary.summary import Summary
from pytest_nsys.cli import first_screen, main
from pytest_nsys.reports.screens.trace_brief import build_trace_brief
from pytest_nsys.reports.tables.brief import MAX_BRIEF_BYTES, Brief
from pytest_nsys.traces.trace_files import find_traces, is_table_trace


def run(*arguments: object, code: int | None = None) -> Result:
    """A command with its arguments as text: what it wrote on both streams, and its exit code, which may be stated."""
    result = CliRunner().invoke(main, list(map(str, arguments)))
    if code is not None:
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
    return result


def answer(*arguments: object, code: int = 0) -> dict[str, Any]:
    """The answer of a command in JSON."""
    parsed: dict[str, Any] = json.loads(run(*arguments, "--format=json", code=code).stdout)
    return parsed


def brief(*arguments: object, code: int = 0) -> dict[str, Any]:
    """The answer of a command in brief."""
    text = run(*arguments, "--format=brief", code=code).stdout
    assert len(text) <= MAX_BRIEF_BYTES
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def screen(*arguments: object) -> Summary:
    """What the first screen shows, before it becomes text."""
    shown: list[Summary] = []

    def keep(summary: Summary) -> Brief:
        shown.append(summary)
        return build_trace_brief(summary)

    with patch.object(first_screen, "build_trace_brief", keep):
        run("show", *arguments, "--format=brief", code=0)
    (found,) = shown
    return found


def name_of_cut(trace: Path, stem: str, *, packed: bool = True) -> str:
    """What a cut of a trace, or of the traces in a folder, may be called."""
    (first, *_) = find_traces(str(trace), Path())
    return f"{stem}{'.sqlite' if is_table_trace(first) else '.json'}{'.gz' * packed}"
