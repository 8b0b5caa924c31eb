"""What every test file may use: a real pytest in a project of its own."""

from __future__ import annotations

import pytest

from tests.gates import Project

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """An empty project, in which pytest is started."""
    return Project(pytester)
