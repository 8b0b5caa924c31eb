"""What the tests of a history share: a path where there is none yet."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "perf.db"
