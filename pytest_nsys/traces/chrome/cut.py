"""Reading a window that ``pytest-nsys cut`` wrote: ranks, kernels, launches, ranges and calls are those of its trace.

The file is Chrome's JSON of some megabytes, one process for each rank. What no event shows stands under ``CUT``: who
the ranks are, the anchors elsewhere in the run, the clock. Where it holds a base and a head, head is read.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_nsys.core.conventions import COMMUNICATION_PREFIX, like
from pytest_nsys.core.errors import NothingMeasured, TraceError
from pytest_nsys.core.families import known_communication
from pytest_nsys.core.model import (
    NO_LAUNCH,
    OPEN_END_NS,
    Api,
    Collective,
    Copy,
    Interval,
    Kernels,
    Lane,
    Range,
    Setup,
    TraceFacts,
    printable,
)
from pytest_nsys.traces.chrome.cut_process import CutEvent, CutKernel, CutProcess
from pytest_nsys.traces.chrome.json_stream import EventStream

CUT = "pytestNsysCut"
"""The first member of the file, which says what was cut."""
MARK = re.compile(rb'\A\s*\{\s*"' + CUT.encode() + rb'"\s*:')
FORMAT = 2
BASE, HEAD = "base", "head"
AGAIN = "cut it again from its trace"


class CutTrace:
    """One file; the :class:`~pytest_nsys.core.model.Trace` of this format."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        """Let go what was read; reading on reads it again."""
        self.__dict__.pop("_content", None)

    @cached_property
    def _content(self) -> tuple[Mapping[str, Any], dict[int, CutProcess]]:
        """What was cut, and its ranks by serialised process id."""
        stream = EventStream(self.path, CutEvent)
        try:
            parts = iter(stream)
            events = [event for part in parts for event in part]
            about = stream.members[CUT]
            if about["format"] != FORMAT:
                raise TraceError(f"{self.path}: was cut by another version of pytest-nsys: {AGAIN}")
            if not all(isinstance(kind, str) for kind in about.get("copies", ())):
                raise ValueError("no kinds of copies")
            processes = {int(p["pid"]): CutProcess(p) for p in about["processes"] if p["side"] != BASE}
            for event in events:
                if (process := processes.get(event.pid)) is not None:
                    process.add(event)
            for process in processes.values():
                process.finish()
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError):
            raise TraceError(
                f"{self.path}: is no whole cut of pytest-nsys: it was changed or cut short; {AGAIN}"
            ) from None
        return about, {process.global_pid: process for process in processes.values()}

    @property
    def convention(self) -> str:
        """The name of the convention that it was cut under."""
        return str(self._content[0]["convention"])

    @property
    def fingerprint(self) -> str:
        """What tells that convention from another one of the same name."""
        return str(self._content[0]["fingerprint"])

    @property
    def _processes(self) -> dict[int, CutProcess]:
        return self._content[1]

    def facts(self) -> TraceFacts:
        """What the trace said of its profiler and GPUs, and that this is no whole trace."""
        about, processes = self._content
        told = [process.about for process in processes.values()]
        both = "; it holds base and head, and head is read" if {p["side"] for p in about["processes"]} > {HEAD} else ""
        return TraceFacts(
            profiler_version=next((p["profiler"] for p in told if p["profiler"] is not None), None),
            gpus={(int(p["pid"]), int(device)): model for p in told for device, model in p["gpus"].items()},
            models=sorted({model for p in told for model in p["models"]}),
            whole_graphs=max((int(p["whole_graphs"]) for p in told), default=0),
            diagnostics=(),
            notes=(f"{self.path}: is a cut ({about['measured']}, convention {about['convention']}){both}",),
            files=int(about["files"]),
            to_see_kernels=AGAIN,
            to_see_ranges=AGAIN,
        )

    def setups(self) -> Mapping[int, Setup]:
        """Every rank by its number, also where the trace had none."""
        return {pid: process.setup for pid, process in self._processes.items()}

    def has_kernels(self) -> bool:
        """Whether anything ran on a GPU: copies that count as communication are kernels to who asks for them."""
        return any(process.ran for process in self._processes.values())

    def lanes(self) -> Sequence[Lane]:
        """Every (process, device) that ran a kernel."""
        found = {Lane(pid, k.stream.device) for pid, process in self._processes.items() for k in process.ran}
        return sorted(found, key=lambda lane: (lane.global_pid, lane.device or 0))

    def library_kernels(self) -> Set[tuple[str, str]]:
        """The names of the kernels of known communication libraries, those elsewhere in the run too."""
        about, processes = self._content
        held = {(k.name, k.full_name) for process in processes.values() for k in process.kernels}
        named = {(str(short), str(full)) for short, full in about.get("libraries", ())}
        return named | {pair for pair in held if known_communication(*pair) is not None}

    def unasked(self) -> Set[int]:
        """None: every process is a rank."""
        return frozenset()

    def work_after(self, moments: Mapping[Lane, int]) -> Set[Lane]:
        """All of them: a cut keeps the kernels of its window alone, and says nothing of later ones."""
        return set(moments)

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Sequence[Range]]:
        """The anchors and setup labels of the run.

        Raises NothingMeasured for another pattern: of other ranges only those around the window are here.
        """
        about = self._content[0]
        if others := [pattern for pattern in patterns if pattern not in about["ranges"]]:
            raise NothingMeasured(
                f"{self.path}: is a cut ({about['measured']}, convention {about['convention']}), which does not hold "
                f"all ranges like '{printable(others[0], 80)}': measure under that convention, or on the trace"
            )
        wanted = [like(pattern) for pattern in patterns]
        return self._ranges(self._processes, lambda _, r: any(matches(r.name) for matches in wanted))

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Range]]:
        """The ranges of each process that touch its span, NCCL's own left out."""

        def touches(pid: int, r: Range) -> bool:
            low, high = spans[pid]
            return r.start_ns <= high and r.end_ns >= low and not r.name.startswith(COMMUNICATION_PREFIX)

        return self._ranges(spans, touches)

    def _ranges(self, pids: Iterable[int], wanted: Callable[[int, Range], bool]) -> dict[int, list[Range]]:
        own = {pid: self._processes[pid].ranges for pid in pids if pid in self._processes}
        found = {pid: [r for r in ranges if wanted(pid, r)] for pid, ranges in own.items()}
        return {pid: ranges for pid, ranges in found.items() if ranges}

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """The names that most ranges of a process have, with their counts."""
        process = self._processes.get(global_pid)
        counts = Counter(r.name for r in process.ranges) if process is not None else Counter[str]()
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span.

        Raises NothingMeasured where more is asked for than the file holds: that would be another number.
        """
        about = self._content[0]
        if None in spans.values() and not about["whole_run"]:
            raise NothingMeasured(
                f"{self.path}: is a cut ({about['measured']}), and this needs the whole run: measure it on the trace"
            )
        self._check_held(spans, launched=False)

        def touching(span: Interval | None) -> Callable[[CutKernel], bool]:
            low, high = span if span is not None else (NO_LAUNCH, OPEN_END_NS)
            return lambda k: k.start_ns <= high and k.end_ns >= low

        return self._chosen({lane: touching(span) for lane, span in spans.items()})

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that were launched in its span, edges included. Raises as :meth:`kernels` does."""

        self._check_held(spans, launched=True)

        def launched(span: Interval) -> Callable[[CutKernel], bool]:
            return lambda k: k.launch_ns != NO_LAUNCH and span[0] <= k.launch_ns <= span[1]

        return self._chosen({lane: launched(span) for lane, span in spans.items()})

    def _check_held(self, spans: Mapping[Lane, Interval | None], *, launched: bool) -> None:
        """Of windows of launches also the kernels are here that ran while theirs did."""
        about = self._content[0]
        if about["whole_run"]:
            return
        for lane, span in spans.items():
            process = self._processes.get(lane.global_pid)
            if process is None or span is None or (about["launched"] and not launched and span == process.on_gpu):
                continue
            if about["launched"] is not launched or not process.holds(span):
                raise NothingMeasured(
                    f"{self.path}: is a cut ({about['measured']}), and does not hold all kernels of this window: "
                    "measure the same window, span and kernels, or measure on the trace"
                )

    def _chosen(self, wanted: Mapping[Lane, Callable[[CutKernel], bool]]) -> Mapping[Lane, Kernels]:
        found = {
            lane: self._processes[lane.global_pid].chosen(lane.device, choose)
            for lane, choose in wanted.items()
            if lane.global_pid in self._processes
        }
        return {lane: kernels for lane, kernels in found.items() if len(kernels)}

    def launches(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, array[int]]:
        """When each kernel was launched, NO_LAUNCH where nothing says."""
        found: dict[Lane, array[int]] = {}
        for lane, some in kernels.items():
            process = self._processes[lane.global_pid]
            known = {k.correlation: k.launch_ns for k in process.ran}
            found[lane] = array("q", [known.get(correlation, NO_LAUNCH) for correlation in some.correlation])
        return found

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """The calls whose name matches a glob and that start in the span; None where the trace recorded none."""
        if not self._recorded("calls"):
            return None
        return {
            pid: [
                call
                for call in self._processes[pid].calls
                if low <= call.start_ns <= high and any(fnmatchcase(call.name, glob) for glob in name_globs)
            ]
            for pid, (low, high) in spans.items()
            if pid in self._processes
        }

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
        """The copies of each lane that were launched in its span; None where the trace says of none what they join."""
        if not self._recorded("copies"):
            return None
        own = {lane: self._processes[lane.global_pid].copies for lane in spans if lane.global_pid in self._processes}
        found = {lane: [c for c in own[lane] if spans[lane][0] <= c.launch_ns <= spans[lane][1]] for lane in own}
        return {lane: copies for lane, copies in found.items() if copies}

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """The copies that counted as communication.

        Raises NothingMeasured where other kinds of copies did: those of these kinds may not all be here.
        """
        about = self._content[0]
        held = about.get("copies", [])
        if set(held) != set(kinds):
            raise NothingMeasured(
                f"{self.path}: is a cut ({about['measured']}, convention {about['convention']}) with "
                f"{', '.join(map(printable, held)) or 'no'} copies as communication, not {', '.join(kinds)}: measure "
                "under that convention, or on the trace"
            )
        each = {pid: process.copies_by_device() for pid, process in self._processes.items()}
        return {Lane(pid, device): own for pid, found in each.items() for device, own in found.items()}

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """For each kernel what its trace recorded of it as a collective; None where that records no sizes."""
        if not self._recorded("collectives"):
            return None
        found: dict[Lane, list[Collective | None]] = {}
        for lane, some in kernels.items():
            known = {(k.start_ns, k.end_ns, k.stream): k.collective for k in self._processes[lane.global_pid].kernels}
            streams = map(some.streams.__getitem__, some.stream)
            found[lane] = [known.get(key) for key in zip(some.start_ns, some.end_ns, streams, strict=True)]
        return found

    def _recorded(self, what: str) -> bool:
        """Whether the trace had a record of such events, if there were any."""
        return any(process.about[what] for process in self._processes.values())
