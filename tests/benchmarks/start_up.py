"""What does a start cost, and an assertion where there are many?"""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.measuring import Bench, Group, Line, Spent, spend

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "examples" / "traces" / "dualpipe.sqlite"
SENTENCES = ("overlap >= 1%", "exposed_ns < 100ms", "window_ns < 10s")
TESTS = "import pytest\n\n@pytest.mark.parametrize('n', range({0}))\ndef test_nothing(n):\n    pass\n"
IMPORT = "import pytest, time; t = time.process_time(); import pytest_nsys.plugin; print(time.process_time() - t)"
COMPLETED = """
import os, runpy
os.environ |= {"_PYTEST_NSYS_COMPLETE": "bash_complete", "COMP_WORDS": "pytest-nsys c", "COMP_CWORD": "1"}
runpy.run_module("pytest_nsys", run_name="__main__")
"""


class Program:
    """The package as pip installs it, with what it needs and nothing else; and a project beside it."""

    def __init__(self, folder: Path) -> None:
        self.site, self.project = folder / "site", folder / "project"
        self.project.mkdir(parents=True)
        (self.project / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        pip = ("-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", self.site, ROOT)
        spend([sys.executable, *pip], folder, os.environ)

    def python(self, *words: str, writes: bool = True) -> Spent:
        """``python WORDS`` without what else is installed here; no tests (5) is no failure."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.site), "HOME": str(self.project)}
        environment |= {} if writes else {"PYTHONDONTWRITEBYTECODE": "1"}
        return spend([sys.executable, "-S", *words], self.project, environment, good=(0, 5))

    def pytest(self, *words: str, writes: bool = True) -> Spent:
        """``pytest WORDS``."""
        return self.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *words, writes=writes)

    def first(self, *words: str, writes: bool = True) -> Spent:
        """The same as where pytest never ran with the package: what it left beside the byte code is gone."""
        for path in (self.site / "pytest_nsys").rglob("*-pytest-*.pyc"):
            path.unlink()
        return self.pytest(*words, writes=writes)

    def gates(self, name: str, files: int, sentences: Sequence[str]) -> None:
        """A folder of gate files of one text, and the trace."""
        (self.project / name).mkdir()
        shutil.copy(TRACE, self.project / name)
        text = f"version: 1\ntrace: {TRACE.name}\nassertions:\n" + "".join(f"  - {each}\n" for each in sentences)
        for number in range(files):
            (self.project / name / f"gate{number}.nsys.yaml").write_text(text, encoding="utf-8")


def lines(bench: Bench) -> Iterator[Line]:
    """All lines of the start."""
    program = Program(bench.work / "installed")
    program.gates("gate", 1, SENTENCES)
    (program.project / "empty").mkdir()
    program.pytest("gate")  # what pytest and others write for themselves
    found = bench.alternate(
        first=partial(program.first, "gate"),
        second=partial(program.pytest, "gate"),
        unwritten=partial(program.first, "gate", writes=False),
        empty=partial(program.pytest, "-p", "no:nsys", "empty"),
        nothing=partial(program.python, "-c", "pass"),
        help=partial(program.python, "-m", "pytest_nsys", "--help"),
        completed=partial(program.python, "-c", COMPLETED),
        plugin=partial(bench.clocked, IMPORT),
    )
    used = [{name: spent.processor for name, spent in r.items()} for r in found]
    again = [r["first"] / r["second"] for r in used]
    yield Line("first gate run after `pip install`", "× the second", again, most=1.2)
    unwritten = [r["unwritten"] / r["second"] for r in used]
    yield Line("  with PYTHONDONTWRITEBYTECODE=1", "× the second", unwritten, most=1.2)
    own = [(r["second"] - r["empty"]) / r["empty"] for r in used]
    yield Line("gate of 3 assertions, less pytest's empty run", "× that run", own, most=0.5)
    helped = [1000 * (r["help"] - r["nothing"]) for r in used]
    yield Line("pytest-nsys --help, less `python -c pass`", "ms", helped, most=150)
    completed = [1000 * (r["completed"] - r["nothing"]) for r in used]
    yield Line("completion of a command, less `python -c pass`", "ms", completed, most=100)
    yield Line("import of the plugin in a run of pytest", "ms", [1000 * r["plugin"].seconds for r in found], most=5)

    files, each = bench.size((1_000, 20), (10, 20))
    program.gates("many", files, [f"overlap >= {n}%" for n in range(1, each + 1)])
    (program.project / "plain").mkdir()
    for number in range(files):
        (program.project / "plain" / f"test_{number}.py").write_text(TESTS.format(each), encoding="utf-8")
    program.pytest("plain")  # compiles them
    plain, many = partial(program.pytest, "-p", "no:nsys", "plain"), partial(program.pytest, "many")
    once = bench.once(plain=plain, many=many)
    item = 1000 * (once["many"].processor - once["plain"].processor) / (files * each)
    yield Line(f"{files} gate files × {each} assertions, beyond empty tests", "ms an item", [item], most=1.5)
    yield Line("  peak memory", "MiB", [once["many"].peak_mib], most=400)


GROUP = Group(
    "the start, in processor time (user and system), of the package as pip installs it, without other packages",
    (lines,),
)
