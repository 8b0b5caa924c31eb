"""What do many traces, many processes and many streams cost?"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path

from pytest_nsys.stored.history.database import append_session
from tests.benchmarks.measuring import Bench, Group, Line, Spent, less
from tests.benchmarks.traces import NODE_OF_ONE, crowd, kept, nodes
from tests.support.histories import entry

LINEAR = 1.2
"""How much more than in proportion ten times as many may cost."""


def traces(bench: Bench) -> Iterator[Line]:
    """A run of many traces, a rank each."""
    return _grown(bench, "traces in one run", {n: _rows(bench, path, "overlap") for n, path in _runs(bench).items()})


def processes(bench: Bench) -> Iterator[Line]:
    """One export of many processes."""
    made = {n: crowd(bench.traces, n, 2) for n in bench.size((500, 5_000), (4, 12))}
    runs = {n: _rows(bench, path, "wall_overlap") for n, path in made.items()}
    return _grown(bench, "processes in one export", runs)


def streams(bench: Bench) -> Iterator[Line]:
    """One process of many streams."""
    made = {n: crowd(bench.traces, 1, n) for n in bench.size((1_000, 10_000), (10, 30))}
    runs = {n: _rows(bench, path, "compute_ns") for n, path in made.items()}
    return _grown(bench, "streams of one process", runs)


def init(bench: Bench) -> Iterator[Line]:
    """A first gate file for a run of many traces."""
    drafts = count()

    def draft(path: Path, executor: str = "serial") -> Spent:
        folder = bench.work / f"init{next(drafts)}"
        folder.mkdir()
        words = (f"--output={folder / 'gates.nsys.yaml'}", f"--baseline-dir={folder / 'baselines'}")
        return bench.command("init", path, *words, f"--executor={executor}")

    runs = _runs(bench)
    yield from _grown(bench, "traces, init", {n: partial(draft, path) for n, path in runs.items()})
    *_, many = runs.values()
    once = bench.once(serial=partial(draft, many), shared=partial(draft, many, "processes"))
    faster = once["serial"].wall / once["shared"].wall
    yield Line("  --executor processes, on the clock, faster than serial", "×", [faster])


def history(bench: Bench) -> Iterator[Line]:
    """The trend of a row over many runs, and one run more."""

    def write(runs: int, path: Path) -> None:
        append_session(path, [entry(str(200_000 + 7_919 * n % 5_000), commit=f"{n:040}") for n in range(runs)])

    sizes = bench.size((1_000, 10_000), (5, 10))
    made = {n: kept(bench.traces / f"{n}_runs.db", partial(write, n)) for n in sizes}
    yield from _grown(
        bench, "runs of a history", {n: partial(bench.command, "history", "--history", made[n]) for n in made}
    )


def _runs(bench: Bench) -> dict[int, Path]:
    return {n: nodes(bench.traces, "nodes", NODE_OF_ONE, n) for n in bench.size((128, 1_024), (2, 6))}


def _rows(bench: Bench, path: Path, metric: str) -> Callable[[], Spent]:
    return partial(bench.command, "rows", metric, f"--trace={path}")


def _grown(bench: Bench, what: str, runs: Mapping[int, Callable[[], Spent]]) -> Iterator[Line]:
    """What many cost, and how often they cost as much as few."""
    (few, first), (many, last) = runs.items()
    once = bench.once(start=partial(bench.command, "--version"), few=first, many=last)
    yield Line(f"{many:_} {what}", "s", [once["many"].seconds])
    ratio = less(once["many"], once["start"]) / less(once["few"], once["start"])
    yield Line(f"  time, against {few}", "× the few", [ratio], most=LINEAR * many / few)
    yield Line("  peak memory", "MiB", [once["many"].peak_mib])


GROUP = Group(
    "many small things: `pytest-nsys`, cold to exit; growth is told less `pytest-nsys --version`",
    (traces, processes, streams, init, history),
)
