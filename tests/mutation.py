"""Would a test notice if a rule were another? ``python -m tests.mutation gates/limits.py --sample 50 --seed 1``.

Each mutant is one small change of the code, by the operators of mutmut and a few more. It lives in a fork of a Python
that has collected the tests, where only those run that cover the changed line, the quickest first; nothing on the disk
changes. ``--cover`` first runs the tests that it is given (without any, all) and records which lines each one covers:
do it again after either changed. Left out is what only prints: texts, and the words of what is raised.

mutmut itself leaves out all that is decorated (each ``cached_property``) and all tables of a module, chooses tests by
function instead of by line, and starts pytest anew for each mutant; cosmic-ray starts a process for each.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest

from tests.mutants import Mutant, Mutants
from tests.support.quick_python import import_everything

PACKAGE = Path(__file__).parents[1] / "pytest_nsys"
MEASURED = ("core", "analysis", "gates", "stored", "traces", "verdicts")
"""What is measured where no file is named."""

RECORD = PACKAGE.parent / ".mutation.json"
"""Where it is kept which tests cover a line, and how long they take."""

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
QUIET = ("-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "tmp_path_retention_policy=none")
MEMORY_BYTES = 8 << 30


@dataclass
class Record:
    """``lines``: of each file of the package the tests by line; ``seconds``: of each test that passes."""

    lines: dict[str, dict[str, list[str]]]
    seconds: dict[str, float]

    @classmethod
    def load(cls, path: Path) -> Record:
        """As it was saved; empty where it was not."""
        if not path.exists():
            return cls({}, {})
        stored = json.loads(path.read_text())
        names = list(stored["seconds"])
        lines = {
            file: {line: [names[i] for i in tests] for line, tests in by_line.items()}
            for file, by_line in stored["lines"].items()
        }
        return cls(lines, stored["seconds"])

    def save(self, path: Path) -> None:
        """Each test by its place: their names are long, and most lines have hundreds."""
        places = {name: i for i, name in enumerate(self.seconds)}
        lines = {
            file: {line: [places[test] for test in tests if test in places] for line, tests in by_line.items()}
            for file, by_line in self.lines.items()
        }
        path.write_text(json.dumps({"lines": lines, "seconds": self.seconds}))

    def covering(self, file: str, lines: Iterable[int]) -> list[str]:
        """The tests that run any of the lines, the quickest first."""
        by_line = self.lines.get(file, {})
        found = {test for line in lines for test in by_line.get(str(line), ()) if test in self.seconds}
        return sorted(found, key=lambda test: (self.seconds[test], test))


class Covering:
    """Records which test covers which lines, and how long it takes. Each is a context of coverage.py."""

    def __init__(self) -> None:
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=[f"{PACKAGE}/*"])
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtestloop(self) -> None:
        self.coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()


def cover(tests: Sequence[str], path: Path) -> None:
    """Run the tests, and put what they cover in the place of what was recorded of their files."""
    covering = Covering()
    pytest.main([*QUIET, *tests], plugins=[covering])
    record = Record.load(path)
    again = {test.partition("::")[0] for test in covering.seconds}
    old = {test for test in record.seconds if test.partition("::")[0] in again}
    for by_line in record.lines.values():
        for tests_of in by_line.values():
            tests_of[:] = [test for test in tests_of if test not in old]
    record.seconds = {test: s for test, s in record.seconds.items() if test not in old}
    record.seconds |= {test: s for test, s in covering.seconds.items() if test not in covering.failed}
    data = covering.coverage.get_data()
    for file in data.measured_files():
        by_line = record.lines.setdefault(Path(file).relative_to(PACKAGE).as_posix(), {})
        for line, contexts in data.contexts_by_lineno(file).items():
            by_line.setdefault(str(line), []).extend(context for context in contexts if context)
    record.save(path)


@dataclass(frozen=True)
class Trial:
    """A mutant, and the tests that may kill it."""

    mutant: Mutant
    tests: tuple[str, ...]


# -- in a fork


class Verdict:
    """Ends this process with 1 at the first test that fails, of which no smaller example is wanted."""

    def pytest_collection(self) -> None:
        import hypothesis  # pytest warns of one that it has not imported itself

        wanted = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutants", phases=wanted, database=None, report_multiple_bugs=False)
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(1)

    def pytest_internalerror(self) -> None:
        os._exit(1)


def _forked(body: Callable[[], object], seconds: float) -> str:
    """Run ``body`` in a fork: survived, killed, or timeout."""
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silence, number)
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        with contextlib.suppress(BaseException):
            body()
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # what a test has started, and not ended
    if os.WIFSIGNALED(status):
        return "timeout" if os.WTERMSIG(status) == signal.SIGALRM else "killed"
    return "killed" if os.WEXITSTATUS(status) else "survived"


class Warm:
    """In the place of running the tests: for each mutant a fork, in which its function has other code."""

    def __init__(self, trials: Sequence[Trial], tell: Callable[[Trial, str], None], patience: float) -> None:
        self.trials, self.tell, self.patience = trials, tell, patience

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.freeze()  # a fork copies less
        for trial in self.trials:
            some = [items[test] for test in trial.tests if test in items]
            self.tell(trial, _forked(lambda trial=trial, some=some: _run(trial.mutant, some), self.patience))  # type: ignore[misc]
        return True


def _run(mutant: Mutant, items: Sequence[pytest.Item]) -> None:
    _exchange(mutant)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)


def _exchange(mutant: Mutant) -> None:
    """Give the function the code that it has in the mutant."""
    module = importlib.import_module(mutant.module)
    path = str(PACKAGE / mutant.file)
    new = _code(compile(mutant.source, path, "exec", dont_inherit=True), mutant.function)
    owner: Any = module
    for name in mutant.function.split("."):
        owner = vars(owner)[name]
    while not isinstance(owner, FunctionType):
        owner = next(
            inner
            for name in ("func", "fget", "__wrapped__", "__func__")
            if (inner := getattr(owner, name, None)) is not None
        )
    while hasattr(owner, "__wrapped__"):
        owner = owner.__wrapped__
    owner.__code__ = new


def _code(tree: CodeType, name: str) -> CodeType:
    for inner in tree.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_qualname == name:
                return inner
            if name.startswith(f"{inner.co_qualname}."):
                return _code(inner, name)
    raise LookupError(name)


class Imported(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Where the mutant is in no function: its module is imported as the mutant has it."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        sys.meta_path.insert(0, self)  # before pytest, which rewrites the assertions of its plugins

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        place = str(PACKAGE / self.mutant.file)
        return importlib.util.spec_from_file_location(name, place, loader=self) if name == self.mutant.module else None

    def exec_module(self, module: Any) -> None:
        exec(compile(self.mutant.source, str(PACKAGE / self.mutant.file), "exec", dont_inherit=True), vars(module))


def _cold(trial: Trial) -> None:
    status = pytest.main([*QUIET, *trial.tests], plugins=[Imported(trial.mutant), Verdict()])
    os._exit(0 if status in (0, 5) else 1)


# -- what is asked


def sources(words: Sequence[str]) -> list[Path]:
    """The files that the words name, within the package."""
    found = [PACKAGE / word.removeprefix("pytest_nsys/") for word in words or MEASURED]
    files = [file for path in found for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [file for file in files if file.name != "__init__.py"]


def room(file: str) -> str:
    """The folder that a file is measured with."""
    return file.partition("/")[0]


def equivalents() -> set[tuple[str, str, str]]:
    """(file, line, what it becomes) of the mutants that are no other program, each with its reason in the file.

    Says of which the code has become another: such an entry excuses nothing, and goes.
    """
    found = set()
    for file, entries in tomllib.loads(EQUIVALENT.read_text()).items():
        code = " ".join((PACKAGE / file).read_text().split()) if (PACKAGE / file).exists() else ""
        found |= {(file, entry["was"], entry["now"]) for entry in entries if entry["why"]}
        for entry in entries:
            if " ".join(entry["was"].split()) not in code:
                print(f"{EQUIVALENT.name}: {file} has no longer: {entry['was']}", file=sys.stderr)
    return found


def chosen(options: argparse.Namespace, record: Record) -> tuple[list[Trial], Counter[tuple[str, str]]]:
    """The mutants to try, and how many were left out as equivalent, by room."""
    known, counts = equivalents(), Counter[tuple[str, str]]()
    trials: list[Trial] = []
    for path in sources(options.files):
        file = path.relative_to(PACKAGE).as_posix()
        for mutant in _sample(Mutants(file, path.read_text()), options):
            if (file, mutant.was, mutant.now) in known:
                counts[room(file), "equivalent"] += 1
                continue
            tests = record.covering(file, [mutant.line]) if mutant.function else []
            tests = tests or record.covering(file, mutant.lines if mutant.function else range(1, 10_000))
            trials.append(Trial(mutant, tuple(_within(tests, record, options.budget))))
    return trials, counts


def _sample(every: Mutants, options: argparse.Namespace) -> list[Mutant]:
    """So many mutants as are asked for, the same with the same seed, by line."""
    some = [each for each in every if not options.only or options.only in every.line(each[0])]
    random.Random(f"{options.seed} {every.file}").shuffle(some)
    made = (mutant for each in some if (mutant := every.mutant(*each)) is not None)
    return sorted({mutant.source: mutant for mutant in islice(made, options.sample)}.values(), key=lambda m: m.line)


def _within(tests: Sequence[str], record: Record, budget: float) -> Iterator[str]:
    """The tests that take no longer than ``budget`` seconds together."""
    for test in tests:
        budget -= record.seconds[test]
        if budget < 0:
            return
        yield test


def measure(options: argparse.Namespace) -> int:
    """Try the mutants, print the survivors, and the share that was killed by room."""
    record, terminal = Record.load(options.record), sys.stdout
    trials, counts = chosen(options, record)

    def tell(trial: Trial, outcome: str) -> None:
        mutant = trial.mutant
        counts[room(mutant.file), outcome] += 1
        if outcome in ("survived", "uncovered"):
            where = f"{mutant.file}:{mutant.line}: {outcome} ({len(trial.tests)} tests)"
            print(f"{where}\n    - {mutant.was}\n    + {mutant.now}", file=terminal, flush=True)

    for trial in trials:
        if not trial.tests:
            tell(trial, "uncovered")
    covered = [trial for trial in trials if trial.tests]
    _import_what_others_made()
    for trial in covered:
        if not trial.mutant.function:
            tell(trial, _forked(lambda trial=trial: _cold(trial), options.patience))  # type: ignore[misc]
    warm = [trial for trial in covered if trial.mutant.function]
    if warm:
        _in_a_collected_session(warm, tell, options.patience)
    _summary(counts)
    return 0


def _import_what_others_made() -> None:
    """The libraries that the package needs, so that a fork imports the package alone."""
    import_everything()
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE.name]:
        del sys.modules[name]


def _in_a_collected_session(trials: Sequence[Trial], tell: Callable[[Trial, str], None], patience: float) -> None:
    files = sorted({test.partition("::")[0] for trial in trials for test in trial.tests})
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main([*QUIET, *files], plugins=[Warm(trials, tell, patience), Verdict()])


def _summary(counts: Mapping[tuple[str, str], int]) -> None:
    for name in dict.fromkeys(name for name, _ in counts):
        of = {outcome: n for (other, outcome), n in counts.items() if other == name}
        dead = of.get("killed", 0) + of.get("timeout", 0)
        living = of.get("survived", 0) + of.get("uncovered", 0)
        words = ", ".join(f"{n} {outcome}" for outcome, n in sorted(of.items()))
        print(f"{name}: {sum(of.values())} sampled: {words}; killed {dead / max(1, dead + living):.1%} of the others")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="of the package, as gates or gates/limits.py; with --cover: tests")
    parser.add_argument("--cover", action="store_true", help="record which lines the tests cover")
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants of each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE", help="what --cover writes")
    parser.add_argument("--only", metavar="TEXT", help="mutants of lines with this text")
    parser.add_argument("--budget", type=float, default=20, metavar="SECONDS", help="of the tests of one mutant")
    parser.add_argument("--patience", type=float, default=300, metavar="SECONDS", help="before a mutant counts as hung")
    options = parser.parse_args(words)
    if not options.cover and not options.record.exists():
        parser.error("nothing says yet which tests cover a line: run it with --cover first")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder  # other sessions clear the usual one
        began = time.monotonic()
        if options.cover:
            cover(options.files, options.record)
        else:
            measure(options)
        print(f"in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
