"""A step whose budget is known: each of its gaps has one cause."""

from pathlib import Path

from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.formats import Format
from tests.support.samples.kineto import KinetoBuilder

US = 1_000
LATE, BLOCKS, COPIES, STALLS = 500 * US, 300 * US, 200 * US, 50 * US
"""How long each gap takes, in ns."""


def known_step(
    gpu: Process | KinetoBuilder,
    base_ns: int = 0,
    late_ns: int = LATE,
    *,
    blocks_ns: int = BLOCKS,
    copies_ns: int = COPIES,
    stalls_ns: int = STALLS,
) -> None:
    """A step of 10 ms in which a launch is late, a collective blocks through an event, a copy blocks on its own
    stream, and a kernel starts for no known reason later than it could; the last kernel ends with the step. Each takes
    its time from the kernel after it.
    """

    def at(moment_us: int) -> int:
        return base_ns + moment_us * US

    def kernel(name: str, start_ns: int, end_us: int, launch_us: int, stream: int = 7) -> None:
        launch_ns = at(launch_us)
        gpu.kernel(name, start_ns, at(end_us), launch_ns=launch_ns, launch_length_ns=US, stream=stream)

    gpu.range("forward chunk 0 backward chunk 0", at(0), at(10_000))
    gpu.range("layer00.stage4_b", at(100), at(118))
    kernel("gemm", at(0), 2_000, -20)
    gpu.kernel(
        "ncclDevKernel_SendRecv", at(1_000), at(2_000) + blocks_ns, launch_ns=at(110), launch_length_ns=US, stream=20
    )
    record = gpu.event_record(at(115), stream=20)
    gpu.stream_wait(at(120), record, stream=7)
    kernel("grouped_gemm", at(2_000) + blocks_ns, 4_000, 130)
    if copies_ns:
        gpu.memcpy(at(4_000), at(4_000) + copies_ns, launch_ns=at(140), stream=7)
    kernel("gelu", at(4_000) + copies_ns, 6_000, 150)
    kernel("layer_norm", at(6_000) + stalls_ns, 8_000, 160)
    issued_ns = at(8_000) + late_ns
    gpu.kernel("adam", issued_ns, at(10_000), launch_ns=issued_ns - US, launch_length_ns=US)


def write_known_step(path: Path, format: Format | str = Format.NSYS) -> Path:
    """A trace of one rank with the known step."""
    trace = TraceBuilder() if format == Format.NSYS else KinetoBuilder(rank=None)
    known_step(trace.process() if isinstance(trace, TraceBuilder) else trace, 1_000 * US)
    path.parent.mkdir(exist_ok=True)
    return trace.write(path)
