"""``pytest-nsys bisect-exit``: the verdicts of a gate as ``git bisect run`` takes them.

Good is 0, bad is 1, a commit that cannot be judged is 125, and from 128 on git stops: after a mistake that every commit
would repeat, an answer would be a guess. Pytest's own exit status cannot tell *failed* from *no data*, so the verdicts
are read from the JSON report, which the command's pytest is asked for through ``PYTEST_ADDOPTS``.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.model import Outcome

REPORT = "--nsys-json"

GOOD, BAD, SKIP, STOP = 0, 1, 125, 129
USAGE_ERROR, NO_TESTS = 4, 5
"""Exit statuses of pytest for what it was told to do, not for what it found."""

ABORTS = 128
"""What a script returns to stop the bisection, as `git bisect run` has it."""

UNJUDGED = (Outcome.ERROR, Outcome.NO_DATA, Outcome.INCOMPARABLE, Outcome.INCONCLUSIVE)


class BisectExit(NamedTuple):
    """What git is told, and why."""

    code: int
    why: str


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.pass_context
def bisect_exit(context: click.Context, command: tuple[str, ...]) -> None:
    """Run COMMAND, which runs pytest on gate files, and exit as `git bisect run` expects.

    Exit codes: 0 good; 1 bad: an assertion failed; 125 cannot be judged: no build, trace or data, not comparable,
    within the noise; 129 stop: a mistake in the gate file or the command, or no gate was judged.
    """
    answer = _run(command)
    word = {GOOD: "good", BAD: "bad", SKIP: "cannot be judged"}.get(answer.code, "stop")
    click.echo(f"bisect-exit: {word} ({answer.code}): {printable(answer.why, 400)}", err=True)
    context.exit(answer.code)


def _run(command: Sequence[str]) -> BisectExit:
    if any(REPORT in word for word in command):
        return BisectExit(STOP, f"remove {REPORT} from the command: bisect-exit writes its own report")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        words = [os.environ.get("PYTEST_ADDOPTS", ""), shlex.quote(f"{REPORT}={report}")]
        environment = {**os.environ, "PYTEST_ADDOPTS": " ".join(word for word in words if word)}
        try:
            code = subprocess.run(list(command), env=environment, check=False).returncode
        except KeyboardInterrupt:
            return BisectExit(STOP, "interrupted")
        except OSError as error:
            return BisectExit(STOP, f"{command[0]}: cannot be run: {error.strerror}")
        try:
            found = json.loads(report.read_text(encoding="utf-8"))
        except OSError:
            return without_report(code)
        return of_report(found, code)


def without_report(code: int) -> BisectExit:
    """The answer where no pytest left a report, from the exit status of the command (negative: a signal)."""
    if code == 0:
        return BisectExit(STOP, "the command exited 0, but no gate ran: make it run pytest on a gate file")
    if code == ABORTS:
        return BisectExit(STOP, f"the command ended in {ABORTS}, which stops the bisection")
    if code in (USAGE_ERROR, NO_TESTS):
        return BisectExit(STOP, f"the command ended in {code}, a usage error of pytest")
    what = f"signal {-code}" if code < 0 else f"{code}"
    return BisectExit(SKIP, f"the command ended in {what} before any gate ran")


def of_report(report: Mapping[str, Any], code: int) -> BisectExit:
    """The answer of a JSON report (``report.schema.json``), and of the exit status of the command that made it."""
    in_gates = [m for m in report["mistakes"] if m["file"].partition("::")[0].endswith(GATE_SUFFIX)]
    if in_gates:
        first = in_gates[0]
        return BisectExit(STOP, f"{counted(len(in_gates), 'mistake')} in gate files: {first['file']}: {first['text']}")
    assertions = [each for gate in report["gate_files"] for each in gate["assertions"]]
    if failed := _named(assertions, "failed"):
        return BisectExit(BAD, f"failed: {failed}")
    for outcome in UNJUDGED:
        if named := _named(assertions, str(outcome)):
            return BisectExit(SKIP, f"{outcome}: {named}")
    if not_run := report.get("not_run"):
        return BisectExit(SKIP, f"not run: {not_run[0]['file']}: {not_run[0]['why']}")
    if report["mistakes"] or (code and assertions):
        why = report["mistakes"][0]["text"] if report["mistakes"] else f"the command ended in {code} all the same"
        return BisectExit(SKIP, f"no assertion failed, but {why}")
    if not assertions:
        return BisectExit(STOP, "pytest ran, but no gate was judged: name the gate file in the command")
    return BisectExit(GOOD, report["headline"])


def _named(assertions: Sequence[Mapping[str, Any]], state: str) -> str:
    """The names of the assertions in a state, with what was said of the first."""
    own = [each for each in assertions if each["state"] == state]
    if not own:
        return ""
    more = f", and {len(own) - 1} more" if len(own) > 1 else ""
    return f"'{own[0]['name']}' ({own[0]['message']}){more}"
