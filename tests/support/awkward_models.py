"""What does a transformer run, kernel by kernel? Pieces of programs: a forward, a backward, an optimizer, a token.

Names are those of real libraries. Operators stand around the kernels, FSDP's ranges around the collectives of a layer:
they repeat by layer, and so mark no step.
"""

from tests.support.fault_runs import COMM, COMPUTE, SIDE, Do, Op, Step, collective, joined, kernel, within

AUTOGRAD = 113
"""The thread of the backward."""

_FULL = {
    "vectorized_elementwise_kernel": "void at::native::vectorized_elementwise_kernel<8, at::native::{}, 3>"
    "(int, at::native::{}, std::array<char*, 3ul>)",
    "multi_tensor_apply_kernel": "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
    "at::native::(anonymous namespace)::TensorListMetadata<4>, at::native::(anonymous namespace)::{}<float, 4>>"
    "(at::native::(anonymous namespace)::TensorListMetadata<4>)",
    "reduce_kernel": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::{}>>"
    "(at::native::ReduceOp<float, at::native::{}>)",
}

ALL_GATHER = "ncclDevKernel_AllGather_RING_LL"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_TREE_LL"
ALL_REDUCE_BF16 = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
ADAM = "FusedAdamMathFunctor"
VECTORIZED = "vectorized_elementwise_kernel"


def aten(operator: str, name: str, us: float, what: str = "", stream: int = COMPUTE) -> Step:
    """A kernel in its operator; of one template's kernels ``what`` tells which."""
    full = _FULL[name].format(*[what] * 2) if what else ""
    return within(f"aten::{operator}", kernel(name, us, stream, full))


def forward(stream: int = COMPUTE, size: float = 1.0) -> Step:
    """A layer."""
    ops = [
        *aten("rms_norm", "triton_red_fused__to_copy_mean_mul_pow_rsqrt_0", 38),
        *aten("linear", "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT", 260),
        *aten("mul", "triton_poi_fused_cat_mul_neg_1", 31),
        *aten("_flash_attention_forward", "flash_fwd_kernel", 190),
        *aten("linear", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", 120),
        *aten("add", VECTORIZED, 22, "CUDAFunctor_add<c10::BFloat16>"),
        *aten("rms_norm", "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", 41),
        *aten("linear", "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT", 410),
        *aten("silu", "triton_poi_fused_mul_silu_3", 36),
        *aten("linear", "nvjet_tst_128x192_64x5_1x2_h_bz_coopA_TNT", 215),
        *aten("add", VECTORIZED, 22, "CUDAFunctor_add<c10::BFloat16>"),
    ]
    return scaled(ops, size, stream)


def backward(stream: int = COMPUTE, size: float = 1.0) -> Step:
    """The same layer, on the thread of the autograd engine."""
    ops = [
        *aten("mm", "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT", 230),
        *aten("mm", "nvjet_tst_192x192_64x4_1x2_h_bz_coopB_NTT", 225),
        *aten("silu_backward", "triton_poi_fused_mul_silu_silu_backward_4", 58),
        *aten("mm", "nvjet_tst_192x208_64x4_2x1_v_bz_coopB_NNT", 400),
        *aten("mm", "nvjet_tst_224x128_64x4_1x2_h_bz_coopB_NTT", 405),
        *aten("rms_norm_backward", "triton_red_fused_mul_pow_sum_5", 57),
        *aten("sum", "reduce_kernel", 14, "sum_functor<float>"),
        *aten("mm", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", 118),
        *aten("mm", "nvjet_tst_128x128_64x6_2x1_v_bz_NTT", 116),
        *aten("_flash_attention_backward", "flash_bwd_dot_do_o_kernel", 21),
        *aten("_flash_attention_backward", "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 480),
        *aten("_flash_attention_backward", "flash_bwd_convert_dq_kernel", 16),
        *aten("mul", "triton_poi_fused_cat_mul_neg_slice_backward_6", 44),
        *aten("mm", "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NNT", 250),
        *aten("mm", "nvjet_tst_256x160_64x4_2x1_h_bz_coopA_NTT", 255),
        *aten("rms_norm_backward", "triton_red_fused_add_mul_pow_sum_7", 60),
    ]
    return scaled(ops, size, stream, AUTOGRAD)


def embedding(stream: int = COMPUTE) -> Step:
    """Tokens become vectors."""
    ops = [
        *aten("arange", "elementwise_kernel_with_index", 4),
        *aten("embedding", "vectorized_gather_kernel", 35),
        *aten("cos", VECTORIZED, 6, "cos_kernel_cuda"),
    ]
    return scaled(ops, 1, stream)


def head(stream: int = COMPUTE) -> Step:
    """The last norm, the projection on all words, and how wrong it was."""
    ops = [
        *aten("rms_norm", "triton_red_fused__to_copy_mean_mul_pow_rsqrt_8", 38),
        *aten("linear", "nvjet_tst_256x256_64x3_2x1_v_bz_coopA_TNT", 900),
        *aten("_log_softmax", "cunn_SoftMaxForward", 210),
        *aten("nll_loss", "nll_loss_forward_reduce_cuda_kernel_2d", 9),
    ]
    return scaled(ops, 1, stream)


def head_backward() -> Step:
    """The backward of :func:`head`."""
    ops = [
        *aten("nll_loss_backward", "nll_loss_backward_reduce_cuda_kernel_2d", 12),
        *aten("_log_softmax_backward_data", "cunn_SoftMaxBackward", 260),
        *aten("mm", "nvjet_tst_256x256_64x3_2x1_v_bz_coopA_NNT", 880),
        *aten("mm", "nvjet_tst_256x256_64x3_1x2_h_bz_coopA_NTT", 890),
    ]
    return scaled(ops, 1, COMPUTE, AUTOGRAD)


def optimizer(*, ranks: bool = True) -> Step:
    """The norm of all gradients, and Adam in three calls."""
    ops = [
        *aten("_foreach_norm", "multi_tensor_apply_kernel", 130, "LpNormFunctor"),
        *aten("linalg_vector_norm", "reduce_kernel", 8, "NormTwoOps<float, float>"),
        *(collective(ALL_REDUCE, 40) if ranks else []),
        *(joined() if ranks else []),
        *aten("clamp", VECTORIZED, 5, "clamp_scalar_kernel_impl"),
        *aten("_foreach_mul_", "multi_tensor_apply_kernel", 120, "BinaryOpListAlphaFunctor"),
    ]
    for _ in range(3):
        ops += aten("_fused_adam_", "multi_tensor_apply_kernel", 210, ADAM)
    return [*ops, *aten("zero_", VECTORIZED, 60, "FillFunctor<float>")]


def gathered(layers: int, *, size: float = 1.0, stream: int = COMPUTE) -> Step:
    """The forward of all layers, each of which gathers its weights beside the layer before."""

    def gather(layer: int) -> Step:
        return within(f"FSDP::all_gather (layers.{layer})", Op(Do.COLLECTIVE, ALL_GATHER, 900_000, COMM))

    ops = gather(0)
    for layer in range(layers):
        ops += [*joined(), *(gather(layer + 1) if layer + 1 < layers else []), *forward(stream, size)]
    return ops


def scattered(layers: int) -> Step:
    """The backward of all layers, each of which scatters its gradients beside the next."""
    ops: Step = []
    for layer in reversed(range(layers)):
        ops += backward()
        ops += within(f"FSDP::post_backward_reduce (layers.{layer})", *collective(REDUCE_SCATTER, 1_700, SIDE))
    return [*ops, *joined(SIDE)]


def trained(layers: int = 4) -> Step:
    """A step of FSDP: a batch, forward, backward, optimizer, and the host reads the loss."""
    ops = [Op(Do.COPY, "HtoD", 90_000), *embedding(), *gathered(layers), *head()]
    return [*ops, *head_backward(), *scattered(layers), *optimizer(), Op(Do.SYNC, "cudaStreamSynchronize")]


def served(layers: int, attention: str, size: float, *, ranks: bool = True) -> Step:
    """A layer's worth of serving, so many times: sums over the ranks of a tensor-parallel engine in each."""
    ops: Step = []
    for _ in range(layers):
        ops += aten("rms_norm", "fused_add_rms_norm_kernel", 12 * size)
        ops += aten(
            "linear", "nvjet_tst_64x16_64x16_4x1_v_bz_TNT" if size < 2 else "nvjet_tst_192x192_64x4_TNT", 40 * size
        )
        ops += [kernel("rotary_embedding_kernel", 8 * size), kernel("reshape_and_cache_flash_kernel", 7 * size)]
        ops += [kernel(attention, 35 * size)]
        ops += aten("linear", "nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", 22 * size)
        ops += collective(ALL_REDUCE_BF16, 18 * size, COMPUTE) if ranks else []
        ops += aten("rms_norm", "fused_add_rms_norm_kernel", 12 * size)
        ops += aten("linear", "nvjet_tst_128x16_64x12_4x1_v_bz_TNT", 60 * size)
        ops += aten("silu", "act_and_mul_kernel", 9 * size)
        ops += aten("linear", "nvjet_tst_64x16_64x16_2x1_v_bz_splitK_TNT", 35 * size)
        ops += collective(ALL_REDUCE_BF16, 18 * size, COMPUTE) if ranks else []
    return ops


def tokens() -> Step:
    """What stands before the layers of an engine: the requests of this step."""
    return [
        Op(Do.COPY, "HtoD", 3_000),
        *aten("index_select", "indexSelectSmallIndex", 6),
        *aten("embedding", "vectorized_gather_kernel", 8),
        *aten("add", VECTORIZED, 4, "CUDAFunctorOnSelf_add<long>"),
        kernel("_compute_slot_mapping_kernel", 5),
    ]


def sampled() -> Step:
    """What stands behind them: a word for each request, which the host reads."""
    return [
        *aten("rms_norm", "rms_norm_kernel", 8),
        *aten("linear", "nvjet_tst_256x16_64x8_2x1_v_bz_TNT", 190),
        *aten("div_", VECTORIZED, 9, "MulFunctor<float>"),
        kernel("topKMaskLogitsKernel", 21),
        *aten("_softmax", "cunn_SoftMaxForwardSmem", 30),
        *aten("sort", "DeviceRadixSortOnesweepKernel", 45),
        *aten("exponential_", "distribution_elementwise_grid_stride_kernel", 12),
        *aten("argmax", "reduce_kernel", 15, "ArgMaxOps<float>"),
        Op(Do.COPY, "DtoH", 2_000, kind=2),
        Op(Do.SYNC, "cudaStreamSynchronize"),
    ]


def scaled(ops: Step, size: float, stream: int, thread: int = 0) -> Step:
    """The same ops, all longer or shorter by as much, on a stream and a thread."""
    for op in ops:
        op.ns, op.stream, op.thread = round(op.ns * size), stream, thread
    return ops
