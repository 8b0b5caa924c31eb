"""Which command shows a person the trace behind a verdict, measured as the verdict was?"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from pytest_nsys.analysis.windows import MEDIAN, STEADY
from pytest_nsys.core.conventions import BUILT_IN, Convention
from pytest_nsys.core.errors import NsysError
from pytest_nsys.gates.assertion import Assertion, GateFile
from pytest_nsys.gates.workload_keys import options_of
from pytest_nsys.traces.opening import find_traces, usual_convention

OF_THE_WHOLE_RUN = ("kernels", "collectives")
"""Commands that measure the whole run where they are given no window."""


def look_command(
    command: str,
    trace: str,
    usual: Convention | None,
    gate_file: str,
    gate: GateFile,
    assertion: Assertion,
    rank: int | None,
) -> str:
    """The words to type. ``trace`` and ``gate_file`` are as a person gives them; ``usual`` as :func:`usual_of` says."""
    words = ["pytest-nsys", command, trace]
    words += ["--rank", str(rank)] if rank is not None else []
    if gate.convention != usual:
        words += ["--convention", gate_file]
    of_the_run = command in OF_THE_WHOLE_RUN
    one_window = of_the_run or command == "pipeline"
    window = MEDIAN if one_window and assertion.window == STEADY else assertion.window
    words += ["--window", window] if of_the_run or window != MEDIAN else []
    words += options_of(gate.workload, command)
    words += ["--gate", gate_file] if command == "pipeline" else []
    if assertion.span not in (None, gate.convention.span):
        words += ["--span", str(assertion.span)]
    if assertion.kernels not in (None, gate.convention.kernels):
        words += ["--kernels", str(assertion.kernels)]
    return shlex.join(words)


def usual_of(trace: str, base: Path) -> Convention | None:
    """What a command takes where it is given no convention; None where the files cannot be looked at any more."""
    with contextlib.suppress(NsysError):
        return BUILT_IN[usual_convention(find_traces(trace, base)[0])]
    return None
