"""What every test file may use: a real pytest in a project of its own."""

from __future__ import annotations

import fcntl
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.gates import Project
from tests.quick_python import quick_python

pytest_plugins = ["pytester"]

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")  # a machine that is busy with something else fails no test


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project, in which pytest is started."""
    monkeypatch.setattr(sys, "executable", quick_python())
    return Project(pytester)


@pytest.fixture
def nsys_alone() -> Iterator[None]:
    """No other test of this machine starts a real nsys meanwhile."""
    with (Path(tempfile.gettempdir()) / "pytest-nsys-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
