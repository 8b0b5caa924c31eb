"""How does one write a trace of JAX of a few events, so that a reader of the test sees what is in it?

    trace = JaxBuilder()
    trace.step("train", 3, 1_000, 9_000)
    trace.kernel("ncclDevKernel_SendRecv", 4_000, 8_000, stream=28, launch_ns=2_000)
    trace.write(tmp_path / "host.trace.json.gz")

Its calls are those of the builder of torch.profiler's traces, and the lanes are those that XProf writes: a lane of XLA
beside each stream repeats its kernels. The same calls give the same bytes.
"""

from collections.abc import Sequence
from typing import Any

from tests.support.samples.kineto import KinetoBuilder

Json = Any
HOST_PID, HOST_THREAD = 701, 7
COPIES = {1: "MemcpyH2D", 2: "MemcpyD2H", 8: "MemcpyD2D", 10: "MemcpyP2P"}
"""What a copy is called, by the number of its kind."""


class JaxBuilder(KinetoBuilder):
    """A trace of one process in memory, event by event, until :meth:`write`. It names ``gpus``, used or not."""

    launch_name, launch_lead_ns = "cuLaunchKernelEx", 1_000
    call_length_ns = 500
    main_thread = HOST_THREAD

    def __init__(self, gpus: Sequence[int] = range(8)) -> None:
        super().__init__(rank=None, pid=HOST_PID, device=next(iter(gpus), 0), gpu=None)
        self.members = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
        self._lanes: dict[tuple[int, str], int] = {}
        for gpu in gpus:
            self._name("process_name", f"/device:GPU:{gpu}", pid=1 + gpu)
        self._name("process_name", "/host:CPU", pid=HOST_PID)

    def event(self, cat: str, name: str, start_ns: int, end_ns: int, **more: Json) -> dict[str, Json]:
        """Any event with a duration; the category is not written."""
        event = super().event(cat, name, start_ns, end_ns, **more)
        del event["cat"]
        return event

    def step(self, name: str, number: int, start_ns: int, end_ns: int) -> None:
        """A step, as ``StepTraceAnnotation`` makes it."""
        self.event("", name, start_ns, end_ns, tid=HOST_THREAD, args={"step_num": str(number)})

    def _run(self, name: str, start_ns: int, end_ns: int, device: int, stream: int, number: int, args: Json) -> None:
        """XLA repeats the kernel in a lane of its own."""
        own = {"correlation_id": str(number), "hlo_op": name, "hlo_module": "jit_step", **args}
        for lane in (f"Stream #{stream}(Compute)", f"XLA Ops - from #{stream}"):
            self.event("", name, start_ns, end_ns, pid=1 + device, tid=self._lane(1 + device, lane), args=own)

    def memcpy(
        self,
        start_ns: int,
        end_ns: int,
        *,
        kind: int = 1,
        stream: int | None = 7,
        launch_ns: int | None = None,
        **_: Json,
    ) -> int:
        """A copy, which is a kernel to XProf; it says nothing of the call."""
        return self.kernel(COPIES[kind], start_ns, end_ns, stream=stream or 0, launch_ns=launch_ns)

    def memset(self, start_ns: int, end_ns: int, *, stream: int | None = 7, launch_ns: int | None = None) -> int:
        """A memset, which is a kernel to XProf."""
        details = "kind:device size:4"
        return self.kernel("Memset", start_ns, end_ns, stream=stream or 0, launch_ns=launch_ns, memset_details=details)

    def _joined(self, correlation: int) -> Json:
        return {"correlation_id": str(correlation)}

    def text(self, *, as_list: bool = False) -> str:
        """The trace as JSON, its list closed by an empty object as XProf does."""
        events = self.events
        self.events = [*(e for e in events if e["ph"] == "M"), *(e for e in events if e["ph"] != "M"), {}]
        try:
            return super().text(as_list=as_list)
        finally:
            self.events = events

    def _name(self, kind: str, name: str, **where: int) -> None:
        self.events.append({"ph": "M", "name": kind, "args": {"name": name}, **where})

    def _lane(self, pid: int, name: str) -> int:
        if (pid, name) not in self._lanes:
            self._lanes[pid, name] = tid = 1 + len(self._lanes)
            self._name("thread_name", name, pid=pid, tid=tid)
        return self._lanes[pid, name]
