"""Write run/tensorboard: what JAX leaves of MaxText on two GPUs; and slower/tensorboard, with a slower scatter."""

from pathlib import Path

from tests.support.samples.jax import JaxBuilder

STEP_NS = 5_000_000


def write(folder: Path, scatter_ns: int) -> None:
    """In each step a GEMM, beside it a gather of weights, attention, and a scatter."""
    trace = JaxBuilder(gpus=range(2))
    for step in range(6):
        at = 1_000_000 + step * STEP_NS
        trace.step("train", 10 + step, at, at + 600_000)
        for gpu in range(2):
            t = at + 200_000 + gpu * 10_000
            on = {"launch_ns": at + 100_000 + gpu * 1_000, "device": gpu}
            trace.kernel("void ck::kernel_gemm_xdl_cshuffle", t, t + 2_000_000, **on)
            trace.kernel("flash_attn_fwd", t + 2_000_000, t + 3_000_000, **on)
            trace.kernel("input_scatter_fusion_3", t + 3_000_000, t + 3_000_000 + scatter_ns, **on)
            trace.kernel("ncclDevKernel_AllGather_RING_LL", t + 1_500_000, t + 2_500_000, stream=28, **on)
    trace.write(folder / "plugins" / "profile" / "2026_01_31_02_00_00" / "host0.trace.json.gz")


write(Path("run/tensorboard"), scatter_ns=400_000)
write(Path("slower/tensorboard"), scatter_ns=900_000)
