"""One input through reader, gate and commands: what may come of it, and what is a failure of ours."""

import contextlib
import faulthandler
import signal
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from click.testing import CliRunner

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.cli import main
from pytest_nsys.core.errors import NEXT_LINE, GateFileError, NsysError
from pytest_nsys.core.model import Label, Value
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import GateFile, resolve_window_spec
from pytest_nsys.reports.session.record import make_record
from pytest_nsys.reports.words.verdict_text import render_explanation
from pytest_nsys.stored.baselines.store import find_store
from pytest_nsys.traces.sidecars.measurements import find_files_by_capture
from pytest_nsys.verdicts.evaluate import GateContext, evaluate, resolve_gate_convention
from pytest_nsys.verdicts.references import PastRuns
from pytest_nsys.verdicts.stored_baseline import StoredBaseline

LIMIT_S = 20.0
"""Of one step of one input, of the processor's time: a hundred times what most take."""

LONGEST = 8_000
OF_THE_RUN = ("trace quality: ", "no rows under ")
"""What is said of all traces together."""

Rows = Mapping[str, Mapping[tuple[Label, ...], Value]]
"""By metric, the rows of what was judged green."""


class Hang(BaseException):
    """The time of a step is over."""


@dataclass
class Finding:
    """What came of one input: its failures, each a line or a traceback, and what was green."""

    failures: list[str] = field(default_factory=list)
    hung: bool = False
    tracebacks: int = 0
    lies: int = 0
    """Green on damaged rows."""
    green: Rows | None = None

    def fail(self, what: str) -> None:
        """One more failure."""
        self.failures.append(what)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Nothing but what is documented leaves this, and in time."""
        before = signal.signal(signal.SIGPROF, _hang)
        faulthandler.dump_traceback_later(10 * LIMIT_S, exit=True)  # for what looks for no signals
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        try:
            yield
        except Hang:
            self.hung = True
            self.fail(f"{name}: hangs\n{traceback.format_exc()}")
        except Exception:
            self.tracebacks += 1
            self.fail(f"{name}:\n{traceback.format_exc()}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
            signal.signal(signal.SIGPROF, before)


def _hang(*_: object) -> None:
    raise Hang


def command(finding: Finding, arguments: Sequence[str], broken: Path) -> None:
    """A command ends with a documented code, and where it is a mistake with a line that names the file."""
    name = f"pytest-nsys {' '.join(arguments)}"
    with finding.step(name):
        done = CliRunner().invoke(main, list(arguments))
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        if "this is a defect" in done.stderr or (done.exception and not isinstance(done.exception, SystemExit)):
            finding.tracebacks += 1
            finding.fail(f"{name}: {done.stderr or done.exception!r}")
        elif done.exit_code not in (0, 1, 2, 3):
            finding.fail(f"{name}: exit code {done.exit_code}")
        elif (done.exit_code == 2 and not errors) or (done.exit_code == 3 and not done.output.strip()):
            finding.fail(f"{name}: exit code {done.exit_code}, and nothing is said")
        elif errors and not any(_names(line, broken) for line in errors):
            finding.fail(f"{name}: exit code {done.exit_code}, and no line names the file: {done.stderr}")


def gate(
    finding: Finding,
    path: Path,
    trace: Path,
    broken: Path | None,
    history: Path | None = None,
    measurements: tuple[str, ...] = (),
) -> None:
    """Judge every assertion of a gate file, in each configuration; what each says of itself is made, as a red shows it.

    ``broken`` is what errors name, None where that is the gate file and its conventions.
    """
    with finding.step(f"gate {path.name}"), contextlib.closing(CaptureCache()) as library:
        try:
            beside = find_files_by_capture(measurements, Path())
            for one in load_gate_file(path).judged_gates:
                loaded = resolve_gate_convention(one, partial(library.choose_convention, [str(trace)], Path(), None))
                captures = library.open_captures(
                    [str(trace)], Path(), loaded.resolved_convention, loaded.workload, (), beside
                )
                finding.green = _judged(loaded, captures, history)
        except GateFileError as error:
            for line in map(str, error.mistakes):
                if not line.startswith(f"{path}:") or "\n" in line or len(line) > LONGEST:
                    finding.fail(f"no clear line: {line[:500]!r}")
        except NsysError as error:
            _check_said(finding, str(error), broken)


def _judged(loaded: GateFile, captures: Captures, history: Path | None) -> Rows | None:
    """The rows of every metric that was asked for, None where one assertion is not green. Raises NsysError."""
    folder = loaded.path.parent
    store = find_store(loaded.path, folder / "baselines", folder, configuration=loaded.configuration)
    past = PastRuns(captures, loaded, loaded.path.name, history)
    context = GateContext(captures, loaded, StoredBaseline(captures, loaded, store), past)
    rows: dict[str, dict[tuple[Label, ...], Value]] = {}
    good = True
    error: NsysError | None = None
    for assertion in loaded.assertions:
        try:
            verdict = evaluate(assertion, context)
            render_explanation(make_record(verdict).verdict, ())
            good = good and verdict.good
            measured = captures.measure_rows(
                captures.resolve_metric(assertion.metric), resolve_window_spec(captures.convention, assertion)
            )
            rows[assertion.metric] = {row.labels: row.value for row in measured.rows}
        except NsysError as one:
            error = one
    if error is not None:
        raise error
    return rows if good else None


def _names(line: str, broken: Path) -> bool:
    return broken.name in line or line.removeprefix("error: ").removeprefix("head: ").startswith(OF_THE_RUN)


def _check_said(finding: Finding, said: str, broken: Path | None) -> None:
    if broken is not None and not _names(said, broken):
        finding.fail(f"no line names {broken.name}: {said}")
    if len(said) > LONGEST or "\n" in said.replace(NEXT_LINE, ""):
        finding.fail(f"no clear line: {said[:500]!r}")


def total_time(rows: Rows) -> dict[Label, tuple[Value, Value]]:
    """By rank, how many kernels were judged, and the sum of their lengths."""
    launches, lengths = Counter[Label](), Counter[Label]()
    for metric, sums in (
        ("launches", launches),
        *((name, lengths) for name in ("compute_ns", "comm_ns", "barrier_ns")),
    ):
        for (rank, *_), value in rows.get(metric, {}).items():
            sums[rank] += int(value)
    return {rank: (count, lengths[rank]) for rank, count in launches.items()}
