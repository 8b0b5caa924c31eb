"""What nvidia-smi said before and after a capture stands in a file beside its report: clocks, throttling, the driver.

It is told beside what is judged, and decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core.model import Note
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import MEGAHERTZ
from pytest_nsys.core.words import printable
from pytest_nsys.tools.files import write_whole
from pytest_nsys.tools.nvidia_smi import SET, GpuState

ENDING = ".nvidia-smi.json"
LARGEST_BYTES = 1 << 20


class GpuLog(NamedTuple):
    """The GPUs of a node before and after a run."""

    before: Sequence[GpuState]
    after: Sequence[GpuState]


def log_of(trace: Path) -> Path:
    """Where the log of a report, or of its export, is."""
    return trace.with_suffix(ENDING)


def write_log(report: Path, log: GpuLog) -> Path:
    """Put the log beside its report. Raises OSError."""
    path = log_of(report)
    said = {when: [state._asdict() for state in states] for when, states in log._asdict().items()}
    write_whole(path, json.dumps(said, indent=1).encode() + b"\n")
    return path


def read_log(trace: Path) -> GpuLog | None:
    """The log beside a trace, None where there is none. Raises ValueError for a file that is none."""
    path = log_of(trace)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES)
    except OSError:
        return None
    try:
        said = json.loads(content)
        return GpuLog(*(tuple(_state(**each) for each in said[when]) for when in GpuLog._fields))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"{path}: is not a log of nvidia-smi: delete it, or capture again") from None


def _state(**said: Any) -> GpuState:
    state = GpuState(**said)
    texts, numbers = (state.name, state.driver), (state.gpu, state.sm_mhz, state.most_mhz, state.reasons)
    if state.gpu is None or any(type(n) is not int for n in numbers if n is not None):
        raise ValueError("no number")
    if any(not isinstance(text, str) for text in texts if text is not None):
        raise ValueError("no text")
    return state


def notes_on_gpus(trace: Path) -> Iterator[Note]:
    """What the log beside a trace says: a warning for each reason for which a GPU was throttled."""
    try:
        log = read_log(trace)
    except ValueError as error:
        yield Note(str(error), True)
        return
    if log is None:
        return
    for when, states in zip(("before", "after"), log, strict=True):
        reasons = dict.fromkeys(reason for state in states for reason in state.throttled)
        for reason in reasons:
            which = _gpus([state.gpu for state in states if reason in state.throttled])
            yield Note(f"{trace}: {which} throttled {when} the run, says nvidia-smi: {reason}", True)
    if told := "; ".join(_told(log)):
        yield Note(f"{trace}: {told}")


def _gpus(numbers: Sequence[int]) -> str:
    return f"GPU{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _told(log: GpuLog) -> Iterator[str]:
    states = [*log.before, *log.after]
    if drivers := dict.fromkeys(printable(state.driver, 40) for state in states if state.driver is not None):
        yield f"driver {', '.join(drivers)}"
    clocks = {when: _span([state.sm_mhz for state in each]) for when, each in log._asdict().items()}
    if said := [f"{clock} {when} the run" for when, clock in clocks.items() if clock]:
        most = _span([state.most_mhz for state in states])
        yield f"SM clock {' and '.join(said)}" + (f", at most {most}" if most else "")
    for bit, words in SET.items():
        if own := sorted({state.gpu for state in states if (state.reasons or 0) & bit}):
            yield f"{words} on {_gpus(own)}"


def _span(clocks: Sequence[int | None]) -> str:
    """From the lowest to the highest of those that are known."""
    known = sorted({clock for clock in clocks if clock is not None})
    ends = [format_value(clock, MEGAHERTZ) for clock in dict.fromkeys((known[0], known[-1]))] if known else []
    return " to ".join(ends).replace(f" {MEGAHERTZ} to", " to")
