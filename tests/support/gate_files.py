"""What does the loader make of a gate file's text, or say of it? Without a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_nsys.core.errors import GateFileError
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.gates.gate_file import loads_gate_file
from pytest_nsys.gates.limits import MetricSpec
from tests.support.fake_metrics import METRICS

PATH = Path("gates.nsys.yaml")


def loaded(content: str | bytes, metrics: Mapping[str, MetricSpec] = METRICS) -> GateFile:
    """The gate file that the text is."""
    return loads_gate_file(content, metrics, path=PATH)


def mistakes(content: str | bytes, metrics: Mapping[str, MetricSpec] = METRICS) -> list[str]:
    """Its mistakes, ``line:column: what``."""
    with pytest.raises(GateFileError) as caught:
        loaded(content, metrics)
    found = list(map(str, caught.value.mistakes))
    assert str(caught.value) == "\n".join(found)
    assert all(mistake.isprintable() for mistake in found)
    return [mistake.removeprefix(f"{PATH}:") for mistake in found]
