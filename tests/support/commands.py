"""What does the command ``pytest-nsys`` print, run in this process?"""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from pytest_nsys.cli import main


def run(*arguments: object) -> Result:
    """A command with its arguments as text: what it wrote on both streams, and its exit code."""
    return CliRunner().invoke(main, list(map(str, arguments)))


def answer(*arguments: object) -> dict[str, Any]:
    """The answer of a command in JSON."""
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed
