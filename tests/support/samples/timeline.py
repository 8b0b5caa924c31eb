"""When does what run on one rank? The clocks of the CPU and of the GPU's streams, and the rows they leave.

The CPU launches and goes on; a stream runs its kernels one after the other; whoever has to wait for another
stream says until when. Everything else (which kernel, how long, what it waits for) is the program's business.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.support.samples import schema
from tests.support.samples.builder import DOMAIN_CREATE, DRIVER_API, PUSH_POP_RANGE, RUNTIME_API
from tests.support.samples.schema import Cell, Export

COMPUTE_STREAM = 7
USER_DOMAIN, NCCL_DOMAIN = 0, 1

_API_GAP_NS = 400
_LAUNCH_NS = 3_600
_NCCL_LAUNCH_NS = 7_200
_SHORT_CALL_NS = 650
_START_LATENCY_NS = 2_500
_STREAM_GAP_NS = 1_500
_SHARE_DRIVER, _SHARE_CAPTURING = 0.3, 0.48  # of compute launches, cumulated

_SPAN = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_COLUMNS = {
    schema.KERNEL: (*_SPAN, "demangledName", "shortName"),
    schema.RUNTIME: ("start", "end", "eventClass", "globalTid", "correlationId", "nameId"),
    schema.NVTX: ("start", "end", "eventType", "text", "globalTid", "textId", "domainId"),
    schema.SYNCHRONIZATION: _SPAN,
}


class Timeline:
    """One rank in time. Rows wait in memory until :meth:`flush`."""

    def __init__(
        self,
        export: Export,
        global_pid: int,
        device: int,
        start_ns: int,
        *,
        registered: bool = False,
        nccl_ranges: bool = False,
    ) -> None:
        self.now_ns = start_ns
        self.export = export
        self.random = Random(0).random
        self._global_pid = global_pid
        self._device = device
        self._main = global_pid | (global_pid >> 24 & 0xFFFFFF)
        self._autograd = self._main + 113
        self._registered = registered
        self._nccl_ranges = nccl_ranges
        self._busy_until_ns: dict[int, int] = {}
        self._correlation = 1_000
        self._names: dict[str, tuple[int, int]] = {}
        self._rows: dict[str, list[tuple[Cell, ...]]] = {table: [] for table in _COLUMNS}
        self._id_of = export.strings.id_of

    def compute_end_ns(self) -> int:
        """When the compute stream has done all that it was given."""
        return self._busy_until_ns.get(COMPUTE_STREAM, self.now_ns)

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Push a range around what the CPU does inside."""
        start_ns = self.now_ns
        self.now_ns += _API_GAP_NS
        yield
        self.add_range(name, start_ns, self.now_ns)
        self.now_ns += _API_GAP_NS

    def add_range(self, name: str, start_ns: int, end_ns: int) -> None:
        """A range of the user, which is known only now."""
        text, text_id = (None, self._id_of(name)) if self._registered else (name, None)
        self._rows[schema.NVTX].append((start_ns, end_ns, PUSH_POP_RANGE, text, self._main, text_id, USER_DOMAIN))

    def add_nccl_range(self, name: str, start_ns: int, end_ns: int) -> None:
        """A range of NCCL: in its own domain, with a registered name."""
        text_id = self._id_of(name)
        self._rows[schema.NVTX].append((start_ns, end_ns, PUSH_POP_RANGE, None, self._main, text_id, NCCL_DOMAIN))

    def add_nccl_domain(self) -> None:
        """The row that names NCCL's domain: no range, though it has a text."""
        self._rows[schema.NVTX].append((self.now_ns, None, DOMAIN_CREATE, "NCCL", self._main, None, NCCL_DOMAIN))

    def compute(self, kernel: str, duration_ns: int, *, autograd: bool = False) -> int:
        """Launch a compute kernel; returns when it ends. ``autograd``: from the autograd engine's thread."""
        thread = self._autograd if autograd else self._main
        draw = self.random()
        api, api_class = "cudaLaunchKernel_v7000", RUNTIME_API
        if draw < _SHARE_DRIVER:
            self._call("cuKernelGetAttribute", 260, thread, DRIVER_API)
            api, api_class = "cuLaunchKernelEx", DRIVER_API
        elif draw < _SHARE_CAPTURING:
            self._call("cudaStreamIsCapturing_v10000", 240, thread)
        launch_ns = self.now_ns + _API_GAP_NS
        correlation = self._call(api, _LAUNCH_NS + int(draw * 800), thread, api_class)
        return self._run(kernel, COMPUTE_STREAM, launch_ns, duration_ns, correlation)

    def communicate(self, kernel: str, stream: int, duration_ns: int, *, after_ns: int = 0, peers: int = 1) -> int:
        """Launch a kernel of NCCL that waits until ``after_ns``; returns when it ends."""
        self._call("cudaEventRecordWithFlags_v11010", _SHORT_CALL_NS, self._main)
        self._call("cudaStreamWaitEvent_v3020", _SHORT_CALL_NS, self._main)
        began_ns = self.now_ns
        launch_ns = began_ns + _API_GAP_NS
        correlation = self._call("cudaLaunchKernelExC_v11060", _NCCL_LAUNCH_NS, self._main)
        if self._nccl_ranges:
            self._add_group_ranges(began_ns, peers)
        self._call("cudaEventRecordWithFlags_v11010", _SHORT_CALL_NS, self._main)
        return self._run(kernel, stream, launch_ns, duration_ns, correlation, after_ns)

    def wait(self, until_ns: int) -> None:
        """Let the compute stream wait for an event of another stream; the CPU goes on."""
        self._call("cudaStreamWaitEvent_v3020", _SHORT_CALL_NS, self._main)
        self._busy_until_ns[COMPUTE_STREAM] = max(until_ns, self._busy_until_ns.get(COMPUTE_STREAM, 0))

    def synchronize(self) -> None:
        """Let the CPU wait for the compute stream."""
        start_ns = self.now_ns + _API_GAP_NS
        length_ns = max(1_000, self.compute_end_ns() + 5_000 - start_ns)
        correlation = self._call("cudaEventSynchronize_v3020", length_ns, self._main)
        span = (start_ns + 200, self.now_ns - 200)
        self._rows[schema.SYNCHRONIZATION].append((*span, self._device, COMPUTE_STREAM, correlation, self._global_pid))

    def flush(self) -> None:
        """Hand the rows to the export."""
        for table, rows in self._rows.items():
            if rows:
                self.export.put(table, _COLUMNS[table], rows)
                rows.clear()

    def _call(self, name: str, length_ns: int, thread: int, event_class: int = RUNTIME_API) -> int:
        self._correlation = correlation = self._correlation + 1
        start_ns = self.now_ns + _API_GAP_NS
        self.now_ns = end_ns = start_ns + length_ns
        self._rows[schema.RUNTIME].append((start_ns, end_ns, event_class, thread, correlation, self._id_of(name)))
        return correlation

    def _run(
        self, kernel: str, stream: int, launch_ns: int, duration_ns: int, correlation: int, after_ns: int = 0
    ) -> int:
        queued_ns = max(after_ns, self._busy_until_ns.get(stream, 0)) + _STREAM_GAP_NS
        start_ns = max(launch_ns + _START_LATENCY_NS, queued_ns)
        self._busy_until_ns[stream] = end_ns = start_ns + duration_ns
        place = (self._device, stream, correlation, self._global_pid)
        self._rows[schema.KERNEL].append((start_ns, end_ns, *place, *self._kernel_names(kernel)))
        return end_ns

    def _kernel_names(self, short: str) -> tuple[int, int]:
        """Ids of the demangled and the short name."""
        known = self._names.get(short)
        if known is None:
            arguments = "ncclDevKernelArgsStorage<4096>" if short.startswith("nccl") else "Params"
            known = self._names[short] = (self._id_of(f"{short}({arguments})"), self._id_of(short))
        return known

    def _add_group_ranges(self, began_ns: int, peers: int) -> None:
        """What NCCL pushes for a group of sends and receives: the launch lies in the group's end."""
        at_ns = began_ns - 50 * (2 * peers + 1)
        self.add_nccl_range("ncclGroupStart", at_ns - 50, at_ns)
        for name in ("ncclSend", "ncclRecv") * peers:
            self.add_nccl_range(name, at_ns, at_ns + 40)
            at_ns += 50
        self.add_nccl_range("ncclGroupEnd", began_ns, self.now_ns + 100)
