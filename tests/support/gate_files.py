"""What does the loader make of a gate file's text, or say of it? Without a file."""

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import GateFileError
from pytest_nsys.gates.gate_file import parse_gate_file
from pytest_nsys.gates.model import Assertion, GateFile, Location, Tolerance
from pytest_nsys.gates.sentences import parse_sentence
from tests.gate_patterns import NAMED, SENTENCE

PATH = Path("gates.nsys.yaml")


def loaded(content: str | bytes) -> GateFile:
    """The gate file that the text is."""
    return parse_gate_file(content, path=PATH)


def mistakes(content: str | bytes) -> list[str]:
    """Its mistakes, ``line:column: what``."""
    with pytest.raises(GateFileError) as caught:
        loaded(content)
    found = list(map(str, caught.value.mistakes))
    assert str(caught.value) == "\n".join(found)
    assert all(mistake.isprintable() for mistake in found)
    return [mistake.removeprefix(f"{PATH}:") for mistake in found]


def asked(text: str, axes: Collection[str] = (), tolerance: Tolerance | None = None) -> Assertion:
    """What a sentence asks for where the mesh has these axes and the file this tolerance. Editors accept it, too."""
    run = dict.fromkeys(axes, 2)
    gate = GateFile(PATH, (), BUILT_IN_CONVENTIONS["generic"], run=run, tolerance=tolerance)
    found = parse_sentence(text, gate, Location(PATH, 1, 1))
    assert re.search(NAMED, text), text
    assert re.search(SENTENCE, text), text
    return found
