"""What does the loader make of a gate file's text, or say of it? Without a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_nsys.core.errors import GateFileError
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.gates.gate_file import loads_gate_file

PATH = Path("gates.nsys.yaml")


def loaded(content: str | bytes) -> GateFile:
    """The gate file that the text is."""
    return loads_gate_file(content, path=PATH)


def mistakes(content: str | bytes) -> list[str]:
    """Its mistakes, ``line:column: what``."""
    with pytest.raises(GateFileError) as caught:
        loaded(content)
    found = list(map(str, caught.value.mistakes))
    assert str(caught.value) == "\n".join(found)
    assert all(mistake.isprintable() for mistake in found)
    return [mistake.removeprefix(f"{PATH}:") for mistake in found]
