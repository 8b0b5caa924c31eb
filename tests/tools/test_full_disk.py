"""Does a full disk leave every earlier report as it was, with one line; and do pipes and streams take reports?"""

import contextlib
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_nsys.tools.files import append_to_file
from tests.support.gates import Project

EARLIER = "an earlier report\n"
COMMANDS = {
    "compare": ("out.txt", ["compare", "run.sqlite", "other.sqlite", "--output=out.txt"]),
    "cut": ("out.sqlite.gz", ["cut", "run.sqlite", "--output=out.sqlite.gz"]),
    "init": ("out.nsys.yaml", ["init", "run.sqlite", "--force", "--output=out.nsys.yaml"]),
}


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows beyond a few bytes: another error than a full disk's, at the same moment."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_leaves_the_earlier_report(project: Project, case: str) -> None:
    name, arguments = COMMANDS[case]
    for number, trace in enumerate(("run.sqlite", "other.sqlite")):
        project.trace(trace, 200 + 100 * number)
    project.gate("- exposed_ns <= 1s")
    project.pytest("--nsys-trace=run.sqlite", "--nsys-history=perf.db", code=0)
    project.file(name, EARLIER)
    files = project.files()
    with full_disk():
        said = project.command(*arguments, code=2)
    assert [line for line in said.splitlines() if "File too large" in line and line.startswith("error: ")]
    assert (project.root / name).read_text() == EARLIER
    assert project.files() == files


@pytest.mark.parametrize("option", ["json", "html", "summary"])
def test_a_session_leaves_the_earlier_report(project: Project, option: str) -> None:
    project.gate_with_trace("- overlap >= 60%")
    project.file("report.txt", EARLIER)
    project.file(
        "conftest.py",
        """
        import resource

        def pytest_sessionfinish():
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        """,
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        said = project.pytest("--nsys-trace=run.sqlite", f"--nsys-{option}=report.txt", code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "nsys: report report.txt: cannot be written: File too large" in said
    assert (project.root / "report.txt").read_text() == EARLIER


def test_what_a_full_disk_took_of_a_summary_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    append_to_file(path, EARLIER.encode())
    with full_disk(), pytest.raises(OSError, match="too large"):
        append_to_file(path, b"x" * 100)
    assert path.read_text() == EARLIER


def test_a_full_device_is_named(project: Project) -> None:
    project.trace()
    project.trace("other.sqlite", 300)
    said = project.command("compare", "run.sqlite", "other.sqlite", "--output=/dev/full", code=2)
    assert "error: /dev/full: No space left on device" in said


def test_a_report_on_standard_output_stands_before_what_is_said_of_it(project: Project) -> None:
    """In a file that the shell opened: it is neither replaced nor written over."""
    project.trace()
    project.trace("other.sqlite", 300)
    command = [sys.executable, "-m", "pytest_nsys", "compare", "run.sqlite", "other.sqlite", "--output=/dev/stdout"]
    with (project.root / "all.txt").open("wb") as out:
        out.write(EARLIER.encode())
        out.flush()
        subprocess.run(command, cwd=project.root, stdout=out, check=False)
    lines = (project.root / "all.txt").read_text().splitlines()
    assert lines[0] == EARLIER.rstrip()
    assert lines[1].startswith("worse: ")
    assert lines[-1].endswith("written to /dev/stdout")


def test_a_pipe_takes_a_report(project: Project) -> None:
    project.trace()
    project.trace("other.sqlite", 300)
    os.mkfifo(project.root / "pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append((project.root / "pipe").read_text()))
    reader.start()
    project.command("compare", "run.sqlite", "other.sqlite", "--output=pipe", code=1)
    reader.join(20)
    assert found[0].startswith("worse: ")
    assert (project.root / "pipe").is_fifo()
