"""What the tests of a capture share: an nsys that is none, outside of SLURM."""

import os

import pytest

from tests.support.fake_nsys import FakeNsys, fake_on_path
from tests.support.gates import Project, write_trace


@pytest.fixture
def nsys(project: Project, monkeypatch: pytest.MonkeyPatch) -> FakeNsys:
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    temporary = project.root / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    fake = fake_on_path(project.root / "bin", monkeypatch)
    fake.tell(content=write_trace(project.root / "bin" / "good.sqlite"))
    return fake
