"""Reading a torch.profiler (Kineto) trace, of 2021 to 2.13, of CUDA and ROCm: what does it hold in the spans asked for?

The file is passed once, in blocks, when something is first asked, and what counts of it is kept in columns: about a
tenth of the file's size. One file is one process; its rank is what ``distributedInfo`` says.

Sizes and groups of collectives stand in the arguments of their kernels. Few measurements ask for them, so the file is
passed once more when one does, and reading it for the rest costs nothing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msgspec import Raw, field

from pytest_nsys.core.columns import equal, where
from pytest_nsys.core.conventions import COMMUNICATION_PREFIX, like
from pytest_nsys.core.families import known_communication
from pytest_nsys.core.model import (
    NO_LAUNCH,
    Api,
    Collective,
    Copy,
    Interval,
    Lane,
    Memory,
    Range,
    Setup,
    Stream,
    TraceFacts,
)
from pytest_nsys.core.series import Series
from pytest_nsys.core.tables import Kernels, LaunchCalls, StreamWait
from pytest_nsys.traces.answers import idle
from pytest_nsys.traces.chrome.json_stream import EventStream, Written
from pytest_nsys.traces.chrome.kineto_columns import CALL, WAIT
from pytest_nsys.traces.chrome.kineto_content import (
    Content,
    memories_of,
    messages_of,
    models_of,
    setup_of,
    setup_of_name,
    version_of,
)
from pytest_nsys.traces.chrome.kineto_events import KERNELS, nanoseconds
from pytest_nsys.traces.chrome.kineto_kernels import read_as_kernels
from pytest_nsys.traces.chrome.kineto_memory import TO_SEE_MEMORY, read_memory
from pytest_nsys.traces.chrome.kineto_waits import stream_waits
from pytest_nsys.traces.copies_as_kernels import COPY_ID, NAMES, TRANSFERS, merged, told_apart, touching_span

OTHERS = {**NAMES, **TRANSFERS}
"""The names of what is asked for as kernels are, and is none."""

UNDEFINED = "undefined"
"""The description of a group that the program gave none."""


class KernelKey(NamedTuple):
    """Which kernel of a file: those of one CUDA graph share their correlation, but not their start."""

    correlation: int
    start_ns: int


class CollectiveArgs(Written, frozen=True):
    """What is read of a kernel's ``args``, and what torch.profiler calls it."""

    correlation: int | None = None
    name: str | None = field(default=None, name="Collective name")
    in_elements: int | None = field(default=None, name="In msg nelems")
    out_elements: int | None = field(default=None, name="Out msg nelems")
    dtype: str | None = None
    group_size: int | None = field(default=None, name="Group size")
    group: str | None = field(default=None, name="Process Group Name")
    description: str | None = field(default=None, name="Process Group Description")
    ranks: str | None = field(default=None, name="Process Group Ranks")


class CollectiveEvent(Written, frozen=True):
    """One event, as far as it tells of a collective."""

    ARGS = CollectiveArgs

    cat: str | None = None
    ts: Raw = Raw()
    args: CollectiveArgs | None = None


def read_collectives(path: Path) -> dict[KernelKey, Collective]:
    """What is recorded of each kernel with a collective's name. Raises TraceError for a file that cannot be read."""
    found: dict[KernelKey, Collective] = {}
    for events in EventStream(path, CollectiveEvent):
        for event in events:
            if event.cat in KERNELS and event.args is not None and isinstance(event.args.name, str):
                correlation = _whole(event.args.correlation)
                key = KernelKey(NO_LAUNCH if correlation is None else correlation, nanoseconds(event.ts))
                found[key] = _collective(event.args)
    return found


def _collective(args: CollectiveArgs) -> Collective:
    """Members are the ranks as they are written: of a large group they are cut short, and equal on all its ranks."""
    description = _text(args.description)
    name = _text(args.group)
    return Collective(
        name=str(args.name),
        group=name if description in (None, UNDEFINED) else description,
        members=None if name is None and args.ranks is None else f"{name} {args.ranks}",
        group_size=_whole(args.group_size),
        in_elements=_whole(args.in_elements),
        out_elements=_whole(args.out_elements),
        dtype=_text(args.dtype),
    )


def _text(value: object) -> str | None:
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None


TO_SEE_KERNELS = "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a step that uses the GPU"
TO_SEE_SIZES = (
    "the kernels have no argument 'Collective name', which torch.profiler writes since torch 2.2 where "
    "ProfilerActivity.CPU is on"
)
TO_SEE_CLOCKS = "torch.profiler samples no clocks: capture with nsys and --gpu-metrics-devices=all"
TO_SEE_RANGES = "profile with ProfilerActivity.CPU, call prof.step(), and mark the step with record_function"


class Kineto:
    """One trace; the :class:`~pytest_nsys.core.model.Trace` of this format."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        """Let go what was read; reading on reads it again."""
        self.__dict__.pop("_content", None)
        self.__dict__.pop("_collectives", None)
        self.__dict__.pop("_memory", None)

    @cached_property
    def _content(self) -> Content:
        return Content(self.path)

    @cached_property
    def _collectives(self) -> Mapping[KernelKey, Collective]:
        return read_collectives(self.path)

    @cached_property
    def _memory(self) -> Mapping[int, Memory]:
        return read_memory(self.path)

    def facts(self) -> TraceFacts:
        """Version, GPU models, the profiler's own messages, and what became of the last step."""
        content = self._content
        models = models_of(content.members)
        return TraceFacts(
            profiler_version=version_of(content.members),
            gpus={(content.pid, device): models[device] for device in content.kernels if device in models},
            models=sorted(set(models.values())),
            whole_graphs=0,
            diagnostics=messages_of(content.members),
            notes=content.notes,
            to_see_kernels=TO_SEE_KERNELS,
            to_see_ranges=TO_SEE_RANGES,
            to_see_sizes=TO_SEE_SIZES,
            to_see_memory=TO_SEE_MEMORY,
            to_see_clocks=TO_SEE_CLOCKS,
            started_ns=content.started_ns,
            zeros_ns={} if content.zero_ns is None else {None: content.zero_ns},
        )

    def setups(self) -> Mapping[int, Setup]:
        """The rank that ``distributedInfo`` names, else the file's name."""
        setup = setup_of(self._content.members) or setup_of_name(self.path.name)
        return {} if setup is None else {self._content.global_pid: setup}

    def unasked(self) -> Set[int]:
        """None: a trace is of one process."""
        return frozenset()

    def has_kernels(self) -> bool:
        """Whether anything ran on a GPU."""
        return bool(self.lanes())

    def lanes(self) -> Sequence[Lane]:
        """Every device that ran a kernel."""
        return tuple(Lane(self._content.global_pid, device) for device in self._content.kernels)

    def library_kernels(self) -> Set[tuple[str, str]]:
        """The names of the kernels of known communication libraries."""
        called = {
            (own.names[short], own.names[full])
            for own in self._content.kernels.values()
            for short, full in {*zip(own.name, own.full_name, strict=True)}
        }
        return {pair for pair in called if known_communication(*pair) is not None}

    # -- ranges

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Sequence[Range]]:
        """The ranges whose name matches a pattern, open ones too."""
        wanted = [like(pattern) for pattern in patterns]
        found = self._content.ranges(lambda name: any(matches(name) for matches in wanted))
        return {self._content.global_pid: found} if found else {}

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Range]]:
        """The ranges that touch the span, open ones included, NCCL's own left out."""
        span = spans.get(self._content.global_pid)
        if span is None:
            return {}
        found = self._content.ranges(lambda name: not name.startswith(COMMUNICATION_PREFIX), span)
        return {self._content.global_pid: found} if found else {}

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """The names that most ranges have, with their counts."""
        if global_pid != self._content.global_pid:
            return ()
        counts = Counter(self._content.columns.range_name)
        names = self._content.names
        return sorted(((names[i], n) for i, n in counts.items()), key=lambda item: (-item[1], item[0]))

    # -- kernels and calls

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span; None: all of them."""
        return self._chosen(spans, self._content.touching)

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Those of the spans of each lane in which no kernel runs."""

        def times(around: Mapping[Lane, Interval]) -> Mapping[Lane, Iterable[Interval]]:
            return {lane: zip(k.start_ns, k.end_ns, strict=True) for lane, k in self.kernels({**around}).items()}

        return idle(spans, lambda *_: (), times)

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that have a launch row starting in its span, edges included."""
        return self._chosen(spans, self._content.launched)

    def _chosen(
        self,
        spans: Mapping[Lane, Interval | None] | Mapping[Lane, Interval],
        choose: Callable[[int, Interval], list[int]],
    ) -> Mapping[Lane, Kernels]:
        found: dict[Lane, Kernels] = {}
        for lane, span in spans.items():
            if lane.global_pid != self._content.global_pid:
                continue
            devices = self._content.kernels if lane.device is None else (lane.device,)
            own = [(d, self._content.kernels[d]) for d in devices if d in self._content.kernels]
            parts = [k if span is None else k.take(choose(d, span)) for d, k in own]
            if kernels := merged([part for part in parts if len(part)]):
                found[lane] = kernels
        return found

    def launches(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, array[int]]:
        """The start of the earliest call of each kernel, else of the arrow that leads to it."""
        look_up = self._content.launches.get
        found = {lane: array("q", map(look_up, some.correlation)) for lane, some in kernels.items()}
        for lane, some in kernels.items():
            if OTHERS.keys() & some.names.keys():  # the table above is of kernels alone
                called = self._content.calls.of(some.correlation).start_ns
                for i, name in enumerate(some.name):
                    if name in OTHERS:
                        found[lane][i] = called[i]
        return found

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        """The earliest call of each kernel; the start of an arrow that leads to it is all that is known of its call."""
        self._content.refuse_damaged(CALL)
        found = {lane: self._content.calls.of(some.correlation) for lane, some in kernels.items()}
        for lane, launches in self.launches(kernels).items():
            calls = found[lane]
            for i in where(equal(calls.start_ns, NO_LAUNCH)):
                calls.start_ns[i] = calls.end_ns[i] = launches[i]
        return found

    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """Every stream-wait in the order of its place; None where there is none."""
        content = self._content
        content.refuse_damaged(WAIT)
        columns = content.columns
        if not columns.waits:
            return None
        streams = (Stream(*place) for place in (*columns.places, *columns.transfer_places))
        return {content.global_pid: stream_waits(columns.waits, content.calls.starts(), streams)}

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """What the arguments of the kernels record: torch.profiler writes it for most kernels of NCCL, not for all."""
        recorded = self._collectives
        if not recorded:
            return None
        return {
            lane: [recorded.get(KernelKey(*key)) for key in zip(some.correlation, some.start_ns, strict=True)]
            for lane, some in kernels.items()
        }

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """The calls whose name matches a glob and that start in the span, one per correlation."""
        content = self._content
        columns, names = content.columns, content.names
        if not columns.call_start:
            return None
        span = spans.get(content.global_pid)
        if span is None:
            return {}
        wanted = {i for i, name in enumerate(names) if any(fnmatchcase(name, glob) for glob in name_globs)}
        calls: dict[object, Api] = {}
        for i, name in enumerate(columns.call_name):
            start = columns.call_start[i]
            if name in wanted and span[0] <= start <= span[1]:
                correlation = columns.call_correlation[i]
                key = (i,) if correlation == NO_LAUNCH else correlation
                if key not in calls or start < calls[key].start_ns:
                    calls[key] = Api(start, names[name], columns.call_end[i], columns.call_thread[i])
        return {content.global_pid: sorted(calls.values(), key=lambda a: (a.start_ns, a.name))}

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
        """The copies of each lane that were launched in its span: their names say which memories they are between."""
        content = self._content
        columns, names = content.columns, content.names
        found: dict[Lane, list[Copy]] = {}
        devices = [device for device, _, _ in columns.transfer_places]
        launches = content.calls.of(columns.transfer_correlation).start_ns
        for i in where(equal(columns.transfer_kind, COPY_ID)):
            start, device, name = (
                columns.transfer_start[i],
                devices[columns.transfer_place[i]],
                columns.transfer_name[i],
            )
            called = start if launches[i] == NO_LAUNCH else launches[i]
            for lane in (Lane(content.global_pid, device), Lane(content.global_pid, None)):
                if lane in spans and spans[lane][0] <= called <= spans[lane][1]:
                    found.setdefault(lane, []).append(Copy(start, *memories_of(names[name]), called))
        return {lane: sorted(own) for lane, own in found.items()}

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """All copies of these kinds, each named for its kind, by device; the file is passed once more for them."""
        found = read_as_kernels(self.path, self._content.blocks(), kinds)
        return told_apart(self, {Lane(self._content.global_pid, device): own for device, own in found.items()}, kinds)

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """The copies and memsets of each lane that touch its span."""
        found: dict[Lane, Kernels] = {}
        for lane, span in spans.items():
            if lane.global_pid == self._content.global_pid:
                each = self._content.transfers.items()
                own = [touching_span(some, span) for device, some in each if lane.device in (None, device)]
                if transfers := merged([some for some in own if len(some)]):
                    found[lane] = transfers
        return found

    def memory(self) -> Mapping[Lane, Memory] | None:
        """What was allocated on each device; None where no event says it."""
        return {Lane(self._content.global_pid, device): own for device, own in self._memory.items()} or None

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:  # noqa: ARG002
        """None: torch.profiler samples no clocks."""
        return None
