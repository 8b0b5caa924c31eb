"""Is a window that is kept beside a baseline that of the run it was written of, and is any other one refused?"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_nsys.stored.baselines.baseline_file import WINDOW, load
from pytest_nsys.stored.baselines.store import BaselineStore, digest_of, window_beside
from tests.support.gates import Project


@pytest.fixture
def stored(project: Project) -> Path:
    """The baseline of a gate."""
    project.gate("- exposed_ns <= baseline + 50us")
    project.trace()
    project.refresh("--nsys-trace=run.sqlite")
    (path,) = (project.root / "baselines").rglob("*.json")
    return path


def test_only_the_bytes_that_the_baseline_names_are_its_window(stored: Path) -> None:
    store, baseline = BaselineStore(stored.parent, "gate.nsys.yaml"), load(stored)
    window = window_beside(stored)
    assert window.name == f"{stored.stem}.window.json.gz"
    assert store.kept_window(stored, baseline) is None
    window.write_bytes(b"a cut")
    assert store.kept_window(stored, baseline) is None  # of which is unknown run
    baseline.provenance[WINDOW] = digest_of(b"a cut")
    assert store.kept_window(stored, baseline) == window
    window.write_bytes(b"of another run")
    assert store.kept_window(stored, baseline) is None
    window.unlink()
    assert store.kept_window(stored, baseline) is None
