"""What the tests of a history share: a path where there is none yet."""

from pathlib import Path

import pytest


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "perf.db"
