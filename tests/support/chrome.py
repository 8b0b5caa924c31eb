"""Is a file a Chrome trace that viewers open, and what is in it? The rules that Perfetto and chrome://tracing go by."""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

Event = Mapping[str, Any]


class Chrome(NamedTuple):
    """A checked trace: its events, the names of its processes, and the lanes of each by their names."""

    events: Sequence[Event]
    processes: Mapping[int, str]
    lanes: Mapping[tuple[int, int], str]

    def spans(self, category: str) -> list[Event]:
        """The events of a category that have a length."""
        return [event for event in self.events if event["ph"] == "X" and event["cat"] == category]

    def lane(self, name: str) -> list[Event]:
        """The events with a length on the lanes of a name, of all processes."""
        return [e for e in self.events if e["ph"] == "X" and self.lanes[e["pid"], e["tid"]] == name]


def nanoseconds(time: Decimal) -> int:
    """A time of the file: microseconds with exactly three decimals."""
    assert time.as_tuple().exponent == -3, time
    return int(time.scaleb(3))


def chrome(path: Path) -> Chrome:
    """The trace in a file; every rule is an assertion."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("ascii")
    root = json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    json.dumps(root, default=str).encode()  # no half of a pair is in it
    events = root["traceEvents"]
    named = [e for e in events if e["ph"] == "M"]
    processes = {e["pid"]: e["args"]["name"] for e in named if e["name"] == "process_name"}
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in named if e["name"] == "thread_name"}
    assert len(set(processes.values())) == len(processes)
    assert len({tid for _, tid in lanes}) == len(lanes)  # viewers take threads of one number for one
    for event in events:
        assert event["ph"] in "XsfMC"
        assert event["pid"] in processes
        assert event["pid"] > 0
        assert event["ph"] in "MC" or (event["pid"], event["tid"]) in lanes
        if event["ph"] != "M":
            assert nanoseconds(event["ts"]) >= 0
    _check_nesting(events)
    _check_arrows(events)
    return Chrome(events, processes, lanes)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def _check_nesting(events: Sequence[Event]) -> None:
    """Events of one lane follow each other or nest, in the order of the file."""
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start, length = nanoseconds(event["ts"]), nanoseconds(event["dur"])
            assert length >= 0
            lanes[event["pid"], event["tid"]].append((start, start + length))
    for spans in lanes.values():
        assert spans == sorted(spans, key=lambda span: (span[0], -span[1]))
        open_until: list[int] = []
        for start, end in spans:
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def _check_arrows(events: Sequence[Event]) -> None:
    """Each has both ends, and each end is bound to the event that stands before it, of the same lane and time."""
    ends = [event for event in events if event["ph"] in "sf"]
    counts = Counter((event["cat"], event["id"], event["ph"]) for event in ends)
    assert set(counts.values()) <= {1}
    assert {e["id"] for e in ends if e["ph"] == "s"} == {e["id"] for e in ends if e["ph"] == "f"}
    bound: Event | None = None
    for event in events:
        if event["ph"] == "X":
            bound = event
        elif event["ph"] in "sf":
            assert bound is not None
            assert (event["pid"], event["tid"], event["ts"]) == (bound["pid"], bound["tid"], bound["ts"])
