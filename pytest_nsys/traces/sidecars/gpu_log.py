"""What did nvidia-smi say before and after a capture? A file beside the report has clocks, throttling and the driver.

It is shown beside what is judged, and decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core.model import Note
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import MEGAHERTZ
from pytest_nsys.tools.files import write_atomically
from pytest_nsys.tools.nvidia_smi import LIMIT_REASONS, GpuState

GPU_LOG_SUFFIX = ".nvidia-smi.json"
# A larger file is no log of a node's GPUs, and would only fill the memory.
LARGEST_LOG_BYTES = 1 << 20


class GpuLog(NamedTuple):
    """Holds the states of a node's GPUs before and after a run."""

    before: Sequence[GpuState]
    after: Sequence[GpuState]


def build_log_path(trace: Path) -> Path:
    """Return where the log of a report, or of its export, is."""
    return trace.with_suffix(GPU_LOG_SUFFIX)


def write_gpu_log(report: Path, log: GpuLog) -> Path:
    """Write the log beside its report, and return its path. Raises OSError."""
    path = build_log_path(report)
    states_by_moment = {moment: [state._asdict() for state in states] for moment, states in log._asdict().items()}
    write_atomically(path, json.dumps(states_by_moment, indent=1).encode() + b"\n")
    return path


def read_gpu_log(trace: Path) -> GpuLog | None:
    """Return the log beside a trace, None where there is none. Raises ValueError for a file that is none."""
    path = build_log_path(trace)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_LOG_BYTES)
    except OSError:
        return None
    try:
        states_by_moment = json.loads(content)
        return GpuLog(
            *(tuple(_parse_state(**members) for members in states_by_moment[moment]) for moment in GpuLog._fields)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"{path}: is not a log of nvidia-smi: delete it, or capture again") from None


def _parse_state(**members: Any) -> GpuState:
    """Return the state of one GPU. Raises ValueError for a member of the wrong type, TypeError for one that is none."""
    state = GpuState(**members)
    texts, numbers = (state.name, state.driver), (state.gpu, state.sm_mhz, state.most_mhz, state.reasons)
    # true of JSON is an int to isinstance, and no number here.
    if state.gpu is None or any(type(n) is not int for n in numbers if n is not None):
        raise ValueError("no number")
    if any(not isinstance(text, str) for text in texts if text is not None):
        raise ValueError("no text")
    return state


def make_gpu_notes(trace: Path) -> Iterator[Note]:
    """Yield what the log beside a trace says: a warning for each reason for which a GPU was throttled."""
    try:
        log = read_gpu_log(trace)
    except ValueError as error:
        yield Note(str(error), True)
        return
    if log is None:
        return
    for moment, states in zip(("before", "after"), log, strict=True):
        reasons = dict.fromkeys(reason for state in states for reason in state.throttle_reasons)
        for reason in reasons:
            gpus = _format_gpus([state.gpu for state in states if reason in state.throttle_reasons])
            yield Note(f"{trace}: {gpus} throttled {moment} the run, says nvidia-smi: {reason}", True)
    if summary := "; ".join(_describe_states(log)):
        yield Note(f"{trace}: {summary}")


def _format_gpus(numbers: Sequence[int]) -> str:
    return f"GPU{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _describe_states(log: GpuLog) -> Iterator[str]:
    """Yield what both states of the GPUs say of the driver, the SM clock and settings, each as a phrase."""
    states = [*log.before, *log.after]
    if drivers := dict.fromkeys(sanitize_line(state.driver, 40) for state in states if state.driver is not None):
        yield f"driver {', '.join(drivers)}"
    clocks = {
        moment: _format_clock_range([state.sm_mhz for state in moment_states])
        for moment, moment_states in log._asdict().items()
    }
    if clock_texts := [f"{clock} {moment} the run" for moment, clock in clocks.items() if clock]:
        highest_clock = _format_clock_range([state.most_mhz for state in states])
        yield f"SM clock {' and '.join(clock_texts)}" + (f", at most {highest_clock}" if highest_clock else "")
    for bit, reason in LIMIT_REASONS.items():
        if gpus := sorted({state.gpu for state in states if (state.reasons or 0) & bit}):
            yield f"{reason} on {_format_gpus(gpus)}"


def _format_clock_range(clocks: Sequence[int | None]) -> str:
    """Return the lowest and the highest of the clocks that are known, as text in MHz; empty where none is."""
    known_clocks = sorted({clock for clock in clocks if clock is not None})
    ends = (
        [format_value(clock, MEGAHERTZ) for clock in dict.fromkeys((known_clocks[0], known_clocks[-1]))]
        if known_clocks
        else []
    )
    return " to ".join(ends).replace(f" {MEGAHERTZ} to", " to")
