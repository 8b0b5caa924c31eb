"""What is a trace of one process? Its rows, which are written to a file wherever a test asks for its path."""

from pathlib import Path

import pytest

from tests.support.samples.builder import Process, TraceBuilder


class OneProcess(Process):
    """A process of a trace of its own, which stands where a path does."""

    def __init__(self, path: Path) -> None:
        self.__dict__ = TraceBuilder().process().__dict__
        self.path = path

    def __fspath__(self) -> str:
        """The file, with all rows until now."""
        return str(self.trace.write(self.path))


@pytest.fixture
def gpu(tmp_path: Path) -> OneProcess:
    return OneProcess(tmp_path / "trace.sqlite")
