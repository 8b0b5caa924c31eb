"""Can a capture be of the judged commit? A capture that began before that commit was made is of another program."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from time import time_ns

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.fact_bounds import MAX_JOB_NS, Bounds
from pytest_nsys.analysis.facts.fact import Fact, MeasuredFact
from pytest_nsys.analysis.facts.kinds import weigh_fact
from pytest_nsys.core.model import SINCE_1970
from pytest_nsys.core.text_format import format_count
from pytest_nsys.tools.executors import is_in_ci
from pytest_nsys.tools.git import SHORT_HASH_LENGTH, list_heads, read_commit_time_s

_SECOND_NS = 1_000_000_000


def measure_capture_age_at_commit(captures: Captures, folder: Path, bounds: Bounds) -> Fact | None:
    """Return how long before the commit around ``folder`` the oldest capture began.

    None outside of CI, where judging an old trace is normal, if no trace states the time of day, and if git names no
    commit.
    """
    start_times_ns = [facts.started_ns for run in captures.runs for facts in run.facts if facts.started_ns is not None]
    earliest_ns = min((start_ns for start_ns in start_times_ns if start_ns in SINCE_1970), default=None)
    if earliest_ns is None or not is_in_ci():
        return None
    if (ahead_ns := max(start_times_ns) - time_ns()) > MAX_JOB_NS:
        fact_text = (
            f"the capture began at {_format_utc(max(start_times_ns) // _SECOND_NS)}, {_format_age(ahead_ns)} from now"
        )
        reason, remedy = "the clock of its machine is wrong, so nobody knows its age", "set it, and profile this commit"
        return weigh_fact("older_than_commit", MeasuredFact(Fraction(ahead_ns), fact_text, reason, remedy), bounds)
    # If CI merged a pull request to test it, the program may be of the request's last commit, which is older.
    commit_times = [
        (made_s, head) for head in list_heads(folder) if (made_s := read_commit_time_s(folder, head)) is not None
    ]
    if not commit_times or (age_ns := min(commit_times)[0] * _SECOND_NS - earliest_ns) <= 0:
        return None
    made_s, head = min(commit_times)
    started_text, committed_text = _format_utc(earliest_ns // _SECOND_NS), _format_utc(made_s)
    fact_text = (
        f"the capture began at {started_text}, {_format_age(age_ns)} before commit {head[:SHORT_HASH_LENGTH]} "
        f"was made at {committed_text}"
    )
    reason = "it is of an earlier program"
    # Within the bound the cause may be a slow job or an amended commit.
    return weigh_fact(
        "older_than_commit", MeasuredFact(Fraction(age_ns), fact_text, reason, "profile this commit", False), bounds
    )


def _format_age(age_ns: int) -> str:
    hours = age_ns // (3_600 * _SECOND_NS)
    # In days from two full days on: a job that waited over night is given in hours.
    return format_count(hours // 24, "day") if hours >= 48 else format_count(hours, "hour")


def _format_utc(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
