"""Training programs to put faults into: dense on one GPU, data-parallel and FSDP on several, and a DualPipe chunk.

A step of each takes about 20 ms, and the GPU, not the host, bounds it; only ``paced`` ones wait for their data.
"""

from tests.support.fault_runs import COMM, COMPUTE, MS, SIDE, Do, Op, Program, Step, collective, joined, kernel, within

STEPS, CHUNKS = 7, 8
LAYERS = 6

TILES = (64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 256)
"""By which the kernels of one template are told apart."""

ATTENTION, ATTENTION_BACK = "flash_fwd_kernel", "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel"
FORWARD_GEMM, BACK_GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "nvjet_tst_192x192_64x4_2x1_v_bz_TNN"
NORM, GATE, ADAM = "rms_norm_kernel", "silu_and_mul_kernel", "multi_tensor_apply_kernel"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
SEND_RECV = "ncclDevKernel_SendRecv"
GROUPED = "deep_gemm_fp8_m_grouped_gemm_contiguous"
WEIGHTS = "weight_grad_gemm_kernel"
ROCM = {
    FORWARD_GEMM: "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1",
    BACK_GEMM: "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1",
    ALL_REDUCE: "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
}
SYNC = "cudaStreamSynchronize"


def cutlass(tile: int, us: float) -> Op:
    """A kernel whose short name is that of every kernel of CUTLASS."""
    full = (
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
        "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4>, "
        f"cute::tuple<cute::C<128>, cute::C<{tile}>, cute::C<64>>, cutlass::bfloat16_t>>>"
        "(cutlass::gemm::kernel::GemmUniversal::Params)"
    )
    return kernel("device_kernel", us, full=full)


def loss(pace_ms: int = 0) -> Step:
    """The host waits for the loss, and where the step is paced for the next batch."""
    return [Op(Do.SYNC, SYNC), *([Op(Do.PACE, ns=pace_ms * MS)] if pace_ms else [])]


def dense(pace_ms: int = 0, steps: int = STEPS) -> Program:
    """One GPU: a batch is copied, forward, backward, optimizer; twelve kernels of CUTLASS share one short name."""

    def step() -> Step:
        ops = [Op(Do.COPY, "HtoD", 120_000)]
        for layer in range(LAYERS):
            first = layer % 4 * 3
            ops += [kernel(NORM, 60), cutlass(TILES[first], 400), kernel(ATTENTION, 300)]
            ops += [cutlass(TILES[first + 1], 250), kernel(NORM, 60), cutlass(TILES[first + 2], 500), kernel(GATE, 90)]
        for _ in range(LAYERS):
            ops += [kernel(GATE, 100), kernel(BACK_GEMM, 900), kernel(ATTENTION_BACK, 550), kernel(NORM, 80)]
        return [*ops, Op(Do.MEMSET, "memset", 15_000), kernel(ADAM, 700), *loss(pace_ms)]

    return Program.of(1, steps, step, anchor="step {}", label="")


def data_parallel(
    ranks: int = 4, pace_ms: int = 0, reduce_us: int = 1_600, steps: int = STEPS, layers: int = LAYERS
) -> Program:
    """Gradients are summed up beside the backward; the last sum is exposed."""

    def step() -> Step:
        ops: Step = []
        for _ in range(layers):
            ops += [kernel(NORM, 60), kernel(FORWARD_GEMM, 700), kernel(ATTENTION, 400)]
        for layer in range(layers):
            ops += [kernel(BACK_GEMM, 1_000), kernel(ATTENTION_BACK, 500), kernel(NORM, 80)]
            if layer % 2:
                ops += collective(ALL_REDUCE, reduce_us)
        return [*ops, *joined(), kernel(ADAM, 700), *loss(pace_ms)]

    return Program.of(ranks, steps, step, anchor="ProfilerStep#{}")


def on_amd() -> Program:
    """The same on GPUs of AMD, whose kernels have names of their own."""
    program = data_parallel(2)
    program.rocm = True
    for op in program.ops():
        op.name = ROCM.get(op.name, op.name)
    return program


def fsdp(ranks: int = 2, *, prefetch: bool = True) -> Program:
    """A layer's weights are gathered beside the compute of the layer before (without ``prefetch`` after it), and copied
    out of what was gathered; its gradients are scattered after it.
    """

    def gather(layer: int) -> Step:
        ops = [Op(Do.COLLECTIVE, ALL_GATHER, 560_000, COMM)] if prefetch else collective(ALL_GATHER, 560)
        return within(f"FSDP::all_gather (layers.{layer})", *ops)

    def step() -> Step:
        ops = [*gather(0)]
        for layer in range(LAYERS):
            following = gather(layer + 1) if layer + 1 < LAYERS else []
            compute = [kernel(NORM, 40), kernel(FORWARD_GEMM, 600), kernel(ATTENTION, 300)]
            ops += [*joined(), *(following if prefetch else []), Op(Do.COPY, ns=40_000, kind=8), *compute]
            ops += [] if prefetch else following
        for layer in range(LAYERS):
            ops += [kernel(BACK_GEMM, 900), kernel(ATTENTION_BACK, 500)]
            ops += within(f"FSDP::post_backward_reduce (layers.{layer})", *collective(REDUCE_SCATTER, 700, SIDE))
        return [*ops, *joined(SIDE), kernel(ADAM, 500), *loss()]

    return Program.of(ranks, STEPS, step, anchor="ProfilerStep#{}")


def dualpipe(ranks: int = 2) -> Program:
    """Chunks in which tokens go to their experts beside the weight gradients, and come back beside the attention."""

    def step() -> Step:
        ops: Step = []
        for layer in ("layer00", "layer01"):
            ops += within(f"{layer}.stage1_f", kernel(NORM, 80), kernel(ATTENTION, 900))
            ops += within(f"{layer}.stage2_f", *collective(SEND_RECV, 1_000))
            ops += within(f"{layer}.stage3_w", kernel(WEIGHTS, 900))
            ops += joined()
            ops += within(f"{layer}.stage3_f", kernel(GROUPED, 1_200), kernel(GATE, 120))
            ops += within(f"{layer}.stage4_f", *collective(SEND_RECV, 1_000))
            ops += within(f"{layer}.stage1_b", kernel(ATTENTION_BACK, 850))
            ops += joined()
            ops += within(f"{layer}.stage5_f", kernel("unpermute_kernel", 150))
        return [*ops, *loss()]

    label = "rank={0}; pp=0/1 dp=0/1 cp=0/1 ep={0}/{1}; mbs=1 seq=2048"
    return Program.of(ranks, CHUNKS, step, anchor="forward chunk {0} (phase1) backward chunk {0} (phase0)", label=label)


def launch_bound() -> Program:
    """Many small kernels, for which the host is only just quick enough."""

    def step() -> Step:
        ops: Step = []
        for _ in range(60):
            ops += [kernel(NORM, 9), kernel("fused_qkv_kernel", 15), kernel(ATTENTION, 20), kernel(GATE, 8)]
        return [*ops, kernel(ADAM, 60, COMPUTE), *loss()]

    return Program.of(1, STEPS, step, anchor="step {}")
