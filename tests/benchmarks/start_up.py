"""What does a start cost? Each figure is a ratio of runs that alternate in one go, so that a busy machine moves both.

    python -m tests.benchmarks.start_up           # 15 rounds, and 20 000 assertions: minutes
    python -m tests.benchmarks.start_up --small   # does everything run? (what CI does)

The package is installed with what it needs, and nothing else, into a folder of its own. What pytest leaves there beside
Python's bytecode is deleted before each *first* run, as on a fresh machine. Figures are medians of processor time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "examples" / "traces" / "dualpipe.sqlite"
SENTENCES = ("overlap >= 1%", "exposed_ns < 100ms", "window_ns < 10s")
TESTS = "import pytest\n\n@pytest.mark.parametrize('n', range({0}))\ndef test_nothing(n):\n    pass\n"
MIB = 1024

# Of the wished figures: at most.
AGAIN, GATE, HELP, ITEM_MS, ITEMS_MIB = 1.2, 0.5, 0.15, 1.5, 400


class Program:
    """The package as it is installed in ``site``, in a folder of its own where ``project`` lies."""

    def __init__(self, site: Path, project: Path) -> None:
        self.site, self.project = site, project
        self.kept = 0.0
        """The most memory that a run took so far, in MiB."""

    def seconds(self, *words: str, writes: bool = True) -> float:
        """The processor time of ``python WORDS``. Raises SystemExit where it fails; no tests (5) is no failure."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.site), "HOME": str(self.project)}
        if not writes:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        child = subprocess.Popen(
            [sys.executable, "-S", *words],  # without what else is installed here
            cwd=self.project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert child.stdout is not None
        said = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 5):
            raise SystemExit(f"{' '.join(words)}: exit code {child.returncode}\n{said.decode()}")
        self.kept = used.ru_maxrss / MIB
        return used.ru_utime + used.ru_stime

    def pytest(self, *words: str, writes: bool = True) -> float:
        """The same of pytest."""
        return self.seconds("-m", "pytest", "-q", "-p", "no:cacheprovider", *words, writes=writes)

    def forget(self, pattern: str = "*-pytest-*.pyc") -> None:
        """As on a machine where pytest never ran with the package."""
        for path in (self.site / "pytest_nsys").rglob(pattern):
            path.unlink()


def install(folder: Path) -> Path:
    """The package as pip installs it, bytecode and all."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(folder)]
    subprocess.run([*pip, str(ROOT)], check=True)
    return folder


def medians(rounds: int, **runs: Callable[[], float]) -> dict[str, float]:
    """Median seconds of each run; they alternate."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(run())
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def tell(what: str, value: float, target: float, unit: str = "×") -> None:
    """One line of the result."""
    print(f"{what:66}{value:9.2f} {unit:4}≤ {target:<6}{'good' if value <= target else 'MISSED'}")


def starts(program: Program, rounds: int) -> None:
    """What a gate of three assertions, and the command, cost to start."""
    gate = program.project / "gate" / "three.nsys.yaml"
    gate.parent.mkdir()
    shutil.copy(TRACE, gate.parent)
    gate.write_text(_gate(SENTENCES, TRACE.name), encoding="utf-8")
    (program.project / "empty").mkdir()

    def first(*, writes: bool) -> float:
        program.forget()
        return program.pytest("gate", writes=writes)

    program.pytest("gate")  # what pytest and others write for themselves
    found = medians(
        rounds,
        first=lambda: first(writes=True),
        second=lambda: program.pytest("gate"),
        unwritten=lambda: first(writes=False),
        empty=lambda: program.pytest("-p", "no:nsys", "empty"),
        nothing=lambda: program.seconds("-c", "pass"),
        help=lambda: program.seconds("-m", "pytest_nsys", "--help"),
    )
    print("   ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in found.items()))
    tell("first gate run after `pip install`, to the second", found["first"] / found["second"], AGAIN)
    tell("with PYTHONDONTWRITEBYTECODE=1, to the second", found["unwritten"] / found["second"], AGAIN)
    tell("a gate less pytest's empty run, to that", (found["second"] - found["empty"]) / found["empty"], GATE)
    tell("pytest-nsys --help, more than `python -c pass`", found["help"] - found["nothing"], HELP, "s")


def many(program: Program, files: int, each: int) -> None:
    """What an assertion costs where there are many, beyond a test that does nothing."""
    folder = program.project / "many"
    folder.mkdir()
    shutil.copy(TRACE, folder)
    for number in range(files):
        sentences = [f"overlap >= {n}%" for n in range(1, each + 1)]
        (folder / f"gate{number}.nsys.yaml").write_text(_gate(sentences, TRACE.name), encoding="utf-8")
    plain = program.project / "plain"
    plain.mkdir()
    count = files * each
    for number in range(files):
        (plain / f"test_{number}.py").write_text(TESTS.format(each), encoding="utf-8")
    program.pytest("plain")
    own = program.pytest("-p", "no:nsys", "plain")
    gates = program.pytest("many")
    what = f"{files} gate files × {each} assertions"
    tell(f"{what}: an item beyond pytest's own", (gates - own) / count * 1000, ITEM_MS, "ms")
    tell(f"{what}: memory", program.kept, ITEMS_MIB, "MiB")


def _gate(sentences: Sequence[str], trace: str) -> str:
    return f"version: 1\ntrace: {trace}\nassertions:\n" + "".join(f"  - {sentence}\n" for sentence in sentences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="one round, few files")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--site", type=Path, help="folder of an earlier `pip install --target`, to measure that")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch, "project")
        project.mkdir()
        (project / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        program = Program(options.site or install(Path(scratch, "site")), project)
        starts(program, 1 if options.small else options.rounds)
        many(program, *((10, 20) if options.small else (1000, 20)))


if __name__ == "__main__":
    main()
