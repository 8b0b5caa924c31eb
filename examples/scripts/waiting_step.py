"""Write step.sqlite, in which the host waits for the GPU in each step, and fixed.sqlite, in which it does not."""

from pathlib import Path

from tests.support.samples.builder import Process, TraceBuilder

US = 1_000


def step(gpu: Process, begin_us: int, waits: bool) -> None:
    def kernel(name: str, start: int, end: int, launch: int, stream: int = 7) -> None:
        start, end, launch = ((begin_us + time) * US for time in (start, end, launch))
        gpu.kernel(name, start, end, launch_ns=launch, launch_length_ns=5 * US, stream=stream)

    def call(moment_us: int) -> int:
        return (begin_us + moment_us) * US

    late = 500 if waits else 0
    gpu.range("forward chunk 0 backward chunk 0", call(0), call(9_500 + late))
    kernel("flash_fwd_kernel", 0, 2_000, -50)
    gpu.range("layer00.stage2_f", call(100), call(200))
    kernel("dispatch", 800, 2_300, 110, stream=20)
    arrived = gpu.event_record(call(120), stream=20)
    gpu.stream_wait(call(140), arrived, stream=7)
    gpu.range("layer00.stage3_f", call(210), call(300))
    kernel("grouped_gemm", 2_300, 5_000, 220)
    gpu.memcpy(call(5_000), call(5_200), stream=7, launch_ns=call(310))
    kernel("cross_entropy", 5_200, 7_000, 320)
    if waits:
        gpu.api("cudaStreamSynchronize_v3020", call(400), call(7_490))
    kernel("layer_norm_bwd", 7_000 + late, 8_000 + late, 6_995 + late)
    kernel("adamw", 8_050 + late, 9_500 + late, 7_010 + late)


for name, waits in (("step", True), ("fixed", False)):
    trace = TraceBuilder()
    gpu = trace.process()
    for number in range(5):
        step(gpu, 20_000 * number, waits)
    trace.write(Path(f"{name}.sqlite"))
