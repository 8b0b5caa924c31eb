"""Reading a trace of JAX (``trace.json.gz`` of XProf): what does it hold in the spans asked for?

Its events become those of torch.profiler, lane by lane, and are kept and asked in the same way. One file is one process
with one GPU or with several; each GPU that ran a kernel is a rank, for the file names no ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any

from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import Kernels, Lane, Setup, TraceFacts, counted
from pytest_nsys.traces.chrome.jax_events import STEP_MARK, JaxEvent, Lanes
from pytest_nsys.traces.chrome.json_stream import EventStream
from pytest_nsys.traces.chrome.kineto import Kineto
from pytest_nsys.traces.chrome.kineto_columns import Columns
from pytest_nsys.traces.chrome.kineto_content import Content
from pytest_nsys.traces.chrome.kineto_events import Event

TO_SEE_KERNELS = (
    "there is no lane 'Stream #' of a GPU, so JAX ran on the CPU or its profiler could not trace the GPU: profile a "
    "step that uses the GPU"
)
TO_SEE_RANGES = "profile with jax.profiler.StepTraceAnnotation('train', step_num=n) around each step"
FOLDER_TIME = re.compile(r"(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)")
"""How JAX names the folder of a profile: ``2025_03_01_12_00_00``."""

PROCESS_BITS = 39
"""Of a serialised id, without its sign: the files of a run are told apart by them."""


class JaxContent(Content):
    """What counts of one file, read in one pass. Raises TraceError where that fails."""

    STEP = re.compile(rf".*{STEP_MARK}\d+", re.DOTALL)

    def _read(self, columns: Columns) -> EventStream[Any]:
        # Every file calls its process 701: its place in the file system tells it from the others of the run.
        self.lanes = lanes = Lanes(process=0)
        stream = EventStream(self.path, JaxEvent)
        for events in stream:
            columns.add(lanes.events(events))
        columns.add(lanes.waiting())
        if stream.has_events and not lanes.gpus and not lanes.hosts:
            raise TraceError(f"{self.path}: is a trace of JAX (XProf) that names no CPU and no GPU: profile again")
        return stream

    def blocks(self) -> Iterator[Sequence[Event]]:
        """The events once more, in the terms of torch.profiler, a block at a time."""
        lanes = Lanes(process=0)
        for events in EventStream(self.path, JaxEvent):
            yield lanes.events(events)
        yield lanes.waiting()

    def _process(self) -> int:
        digest = sha256(str(self.path.resolve()).encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") >> (64 - PROCESS_BITS)

    def _follow_arrows(self) -> None:
        """There are none: a call and its kernels share a correlation."""


class Jax(Kineto):
    """One trace; the :class:`~pytest_nsys.core.model.Trace` of this format."""

    @cached_property
    def _content(self) -> JaxContent:
        return JaxContent(self.path)

    def facts(self) -> TraceFacts:
        """How many of the GPUs that the file names ran a kernel, and what became of the last step."""
        content = self._content
        named, used = len(set(content.lanes.gpus.values())), len(content.kernels)
        idle = (f"{self.path}: {used} of the {counted(named, 'GPU')} that it names ran a kernel",)
        return TraceFacts(
            profiler_version=None,
            gpus={},
            models=(),
            whole_graphs=0,
            diagnostics=(),
            notes=(*(idle if used < named else ()), *content.notes),
            to_see_kernels=TO_SEE_KERNELS,
            to_see_ranges=TO_SEE_RANGES,
            to_see_sizes="a trace of JAX has no record of the sizes of collectives",
            counts_gpus=True,
            started_ns=self._started(),
        )

    def _started(self) -> int | None:
        """When the profile began, as its folder is called: by the clock and in the time zone of its machine."""
        named = FOLDER_TIME.match(self.path.parent.name)
        try:
            began = datetime(*map(int, named.groups()), tzinfo=UTC) if named else None  # type: ignore[arg-type, misc]
        except ValueError:
            return None
        return None if began is None else int(began.timestamp()) * 1_000_000_000

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> None:
        """None: XProf writes no sizes."""

    def setups(self) -> Mapping[int, Setup]:
        """None: nothing in the file names a rank."""
        return {}
