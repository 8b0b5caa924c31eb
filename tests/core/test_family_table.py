"""The built-in families: kernels of every vendor and compiler as their traces name them, and what they are."""

from fractions import Fraction

import pytest

from pytest_nsys.analysis.metrics.families import FamilySums
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.families import (
    FAMILIES,
    OTHER_FAMILY,
    extract_short_name,
    list_family_names,
    list_zero_families,
    make_classifier,
    strip_parameters,
)
from pytest_nsys.core.family_table import FAMILY_TABLE, XLA_ONLY_FAMILIES
from tests.support.kernel_traces import sums
from tests.support.reference_data import MORE, REAL

NATIVE = "void at::native::"
CK = "ck::tensor_operation::device::"
CUTE = "cute::tuple<cute::C<128>, cute::C<256>, cute::C<64>>"
KERNELS = {
    "NCCL, RCCL and what else communicates": [
        ("nccl", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
        ("nccl", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"),
        ("communication", "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)"),
        ("comm_helper", "void deep_ep::internode::notify_dispatch<false, 8>(int const*)"),
        ("communication", "void primus_turbo::deep_ep::internode::combine<8>()"),
        ("communication", "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)"),
        ("ragged_all_to_all", "void stream_executor::gpu::RaggedAllToAllKernelImpl<long>()"),
        ("communication", "void stream_executor::gpu::AllReduceKernelImpl<float, (xla::ReductionKind)0>(float*)"),
        ("communication", "stream_executor::gpu::MultiGpuBarrierKernelImpl(long, long)"),
        ("communication", "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, float>(float*)"),
        ("communication", "void tensorrt_llm::kernels::mnnvl::twoshotAllreduceKernel<8, float>(float*)"),
        ("communication", "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8, false>(int const*)"),
        ("comm_helper", "moeA2APrepareDispatchKernel(int*)"),
        ("communication", "void mori::moe::EpDispatchIntraNodeKernel<float>(mori::moe::EpDispatchCombineArgs<float>)"),
        ("communication", "EpCombineIntraNodeKernel_bf16"),
        ("communication", "void a2a_dispatch_send_kernel<true, 8>(unsigned long)"),
        ("communication", "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataE"),
        ("communication", "_ZN12primus_turbo7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4"),
        ("communication", "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)"),
        ("communication", "c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**, int)"),
        ("communication", "c10d::nvshmem_extension::exchangeSplitAndOffset(long*, int, int)"),
        ("nccl", "ncclSymkDevKernel_ReduceScatter_LDMC_sum_bf16(ncclSymkDevWorkArgs4K)"),
    ],
    "Inductor": [
        ("triton", "triton_poi_fused_add_mul_12"),
        ("triton", "triton_per_fused_native_layer_norm_0"),
        ("triton", "triton_red_fused__log_softmax_3"),
        ("triton", "triton_red_fused__to_copy_nccl_all_reduce_mul_3"),
        ("triton", "triton_poi_fused_all_gather_into_tensor_wait_tensor_2"),
        ("triton", "triton_spl_fused_cumsum_1"),
        ("gemm", "triton_mm"),
        ("gemm", "triton_tem_fused_addmm_relu_7"),
        ("attention", "triton_tem_fused_flex_attention_0"),
        ("convolution", "triton_tem_fused_convolution_4"),
        ("triton", "triton__0d1d2d3de"),
        ("triton", "triton_"),
        ("triton", "triton_fused_relu_7_0d1d2d"),
        ("gemm", "triton_mm_0d1d2d"),
    ],
    "XLA": [
        ("gemm", "gemm_fusion_dot_6.kd"),
        ("gemm", "triton_gemm_dot.12"),
        ("softmax", "triton_softmax.3"),
        ("input_scatter_fusion", "input_scatter_fusion_2"),
        ("loop_select_fusion", "loop_select_fusion"),
        ("loop_gather_fusion", "loop_gather_fusion_7.kd"),
        ("loop_reduce_fusion", "loop_reduce_fusion_1"),
        ("loop_convert_fusion", "loop_convert_fusion"),
        ("loop_transpose_fusion", "loop_transpose_fusion_3"),
        ("input_reduce_select", "input_reduce_select_fusion_1"),
        ("input_broadcast_reduce_select", "input_broadcast_reduce_select_fusion"),
        ("fusion", "fusion"),
        ("fusion", "fusion.123"),
        ("fusion", "input_concatenate_fusion.kd"),
        ("fusion", "loop_add_multiply_fusion"),
        ("fusion", "wrapped_convert.kd"),
        ("attention", "mha_forward_kernel"),
    ],
    "Triton by hand": [
        ("gemm", "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu"),
        ("gemm", "fused_moe_kernel"),
        ("gemm", "_w8a8_block_fp8_matmul"),
        ("moe", "_topk_forward"),
        ("moe", "_sum_bitmatrix_rows"),
        ("moe", "_combined_routing_compute"),
        ("attention", "kernel_unified_attention_2d"),
        ("attention", "_fwd_grouped_kernel_stage1"),
        ("attention", "_attn_fwd"),
        ("attention", "sage_fwd"),
        ("attention", "_sage_fwd_mask"),
        ("state_space", "chunk_gated_delta_rule_fwd_kernel_h_blockdim64"),
        ("state_space", "_chunk_scan_fwd_kernel"),
        ("state_space", "chunk_global_cumsum_scalar_kernel"),
        ("norm", "_layer_norm_fwd_1pass_kernel"),
        ("norm", "_rms_norm_forward_kernel"),
        ("norm", "l2norm_fwd_kernel"),
        ("softmax", "liger_cross_entropy_kernel"),
        ("rope", "_triton_rope"),
        ("elementwise", "_swiglu_forward_kernel"),
        ("elementwise", "element_mul_kernel"),
        ("quantize", "_per_token_group_quant_8bit"),
    ],
    "cuBLAS and CUTLASS": [
        ("gemm", "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"),
        ("gemm", "nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_splitK_TNT"),
        ("gemm", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_ffma_execute_kernel__5x_cublas"),
        ("gemm", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"),
        ("gemm", "volta_sgemm_64x64_nt"),
        ("gemm", "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align8>(Params)"),
        ("gemm", "cutlass3x_sm100_tensorop_s128x256x16gemm_f16_f16_f32_f16_f16_128x256x64_2x1x1_0_tnn_align8"),
        ("gemm", f"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<{CUTE}>>(Params)"),
        ("gemm", "kernel_cutlass_kernel___main__PersistentDenseGemmKernel_object_at__TiledMMA_ThrLayout_0"),
        ("gemm", "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)"),
        ("gemm", "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, float>(T13)"),
        ("gemm", "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 8192u>(float*)"),
        ("gemm", "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_TN_swiGlu_dynBatch_sm100f"),
        ("gemm", "void marlin_moe_wna16::Marlin<__nv_bfloat16>(int4*)"),
        ("gemm", "void cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<cutlass::MatrixShape<4, 128>>>(P)"),
        ("gemm", "void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>(int)"),
        ("quantize", "void deep_gemm::transpose_and_pack_fp32_into_ue8m0<512u>(float const*)"),
    ],
    "attention on NVIDIA's GPUs": [
        ("attention", "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, false, true>(Params)"),
        ("attention", "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Traits>(Params)"),
        ("attention", f"void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<{CUTE}>>>(P)"),
        ("attention", "flash::prepare_varlen_num_blocks_kernel(int, int)"),
        ("attention", "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__t_0"),
        ("attention", "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0"),
        ("attention", "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<x>::Params)"),
        ("attention", "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext"),
        ("attention", "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(PosEncodingMode)0, 2u>(Params)"),
        ("attention", "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(float*)"),
        ("attention", "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>>(Params)"),
        ("attention", "void deep_gemm::sm90_fp8_mqa_logits<32u, 128u>(int)"),
        ("attention", "void qk_int_sv_f8_attn_kernel<128u, 64u, 32u, 64u, 128u, (QuantGranularity)2>(signed char*)"),
        ("attention", "void qk_int8_sv_f16_accum_f32<128u>(signed char*)"),
    ],
    "what serves": [
        ("rope", "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)"),
        ("rope", "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128u>(float*)"),
        ("rope", "void tensorrt_llm::kernels::fusedQKNormRopeKernel<128, true>(void*)"),
        ("kv_cache", "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16>(int)"),
        ("kv_cache", "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>(int)"),
        ("kv_cache", "void flashinfer::AppendPagedKVCacheKernel<128u, 8u>(int)"),
        ("moe", "void vllm::moe::topkGatingSoftmax<8, 256, 4, 16, int>(float const*)"),
        ("moe", "void vllm::moe::moe_align_block_size_kernel<int>(int const*)"),
        ("moe", "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<float>(float const*)"),
        ("moe", "void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<float>>(int)"),
        ("norm", "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)"),
        ("norm", "kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel_object_at__t_0"),
        ("elementwise", "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel, true>(float*)"),
        ("quantize", "void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16>(int)"),
        ("sort", "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>(float*)"),
    ],
    "AMD": [
        ("gemm", "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1"),
        ("gemm", "Custom_Cijk_Alik_Bljk_HHS_BH_MT256x256x64"),
        ("attention", "_ZN5aiter39mla_a16w16_qh16_m16x4_n16x1_coex0_mask1E"),
        ("gemm", "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<Row, Col>>(Argument)"),
        ("gemm", "_ZN2ck27kernel_gemm_xdl_cshuffle_v3INS_30GridwiseGemm_xdl_cshuffle_v3EEEvT_"),
        ("gemm", "void ck_tile::kentry<1, ck_tile::GemmKernel<ck_tile::GemmPipeline>>()"),
        ("gemm", "_ZN5aiter42fmoe_bf16_blockscaleFp8_g1u1_vs_silu_32x256E"),
        ("gemm", "void ck::kernel_moe_gemm<ck::GridwiseMoeGemm<Row, Col>>(Argument)"),
        ("gemm", "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 1, 16, 8, 4, 1>(int, int)"),
        # CK builds attention of its GEMMs and names them in the template.
        ("attention", "void ck_tile::kentry<2, ck_tile::FmhaFwdKernel<ck_tile::BlockGemmARegBRegCRegV1<float>>>()"),
        ("attention", "_ZN5aiter37fmha_bwd_hd128_bf16_causal_a32_rtne_pE"),
        ("attention", "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>(int)"),
        ("norm", "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_8PipelineEEEEEvT0_"),
        ("norm", "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_"),
        ("norm", "MIOpenBatchNormFwdTrainSpatial"),
        ("moe", "void ck_tile::kentry<2, ck_tile::MoeSortingKernel<ck_tile::MoeSortingProblem<int>>>()"),
        ("convolution", "igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt64x64x64_wt16x16x16_ws1x1_wr2x2"),
        ("convolution", "MIOpenConvUni"),
        ("convolution", "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1"),
        ("convolution", "gcnAsmConv1x1U"),
        ("convolution", "Im3d2Col"),
        ("convolution", "void ck::kernel_grouped_conv_fwd_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<Row>>(T)"),
        ("convolution", f"void {CK}(anonymous namespace)::kernel_grouped_conv_bwd_weight_xdl<ck::GridwiseGemm>(T)"),
        ("convolution", "_ZN2ck49kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffleINS_23GridwiseGemmMultipleABDEEEvT_"),
        # As a file has it that cuts long names, or that leaves the namespaces out.
        ("convolution", "_ZN2ck46kernel_grouped_conv_bwd_weight_xdl_cshuffle_v3INS_30GridwiseGemm_xdl"),
        ("convolution", "kernel_grouped_conv_bwd_weight_xdl_cshuffle_v3.kd"),
        ("convolution", "kernel_grouped_conv_fwd_xdl_gemm"),
        ("gemm", "_ZN2ck23kernel_grouped_gemm_xdlINS_12GridwiseGemmEEEvT_"),
        ("memory", "SubTensorOpWithScalar1d"),
        ("memory", "batched_transpose_16x64_pack_1x4_ediv_1x2_half"),
        ("memory", "__amd_rocclr_fillBufferAligned.kd"),
        ("sort", "void rocprim::detail::trampoline_kernel<rocprim::detail::wrapped_scan_config<int>>(int)"),
        ("elementwise", "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16EEvPT_"),
    ],
    "Transformer Engine and DeepSeek": [
        ("norm", "void transformer_engine::normalization::rmsnorm_fwd_general_kernel<Traits>(Params)"),
        ("norm", "void layer_norm::ln_fwd_kernel<layer_norm::Kernel_traits<float>>(layer_norm::FwdParams)"),
        ("quantize", "void transformer_engine::detail::cast_transpose_general_kernel<8, 4, float>(float const*)"),
        ("softmax", "void scaled_aligned_causal_masked_softmax_warp_forward<float, float, 9>(float*)"),
        ("moe", "_sort_chunks_by_map_kernel"),
        ("moe", "_make_chunk_sort_map_kernel"),
        ("moe", "void transformer_engine::fused_router::fused_topk_with_score_function_forward_kernel<float>(float*)"),
        ("quantize", "void cuda::per_channel_cast_and_transpose<256, 128, true>(void const*)"),
        ("moe", "cuda::expand_to_fused_with_scales_impl(int4 const*)"),
    ],
    "cuDNN": [
        ("convolution", "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_nhwc_tilesize128x128x16_execute_kernel_cudnn"),
        ("convolution", "void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_256x128>(Params)"),
        ("convolution", "void wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)"),
        ("convolution", "cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"),
        ("convolution", "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_exp_interior_nhwc_tn_v1"),
        ("convolution", "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_interior_nhwc2nchw_tn_v1"),
        ("convolution", "turing_int8_i8816cudnn_int8_256x64_ldg16_relu_singleBuffer_medium_nt_v1"),
        ("convolution", "volta_h884cudnn_256x64_sliced1x2_ldg8_relu_exp_small_nhwc_tn_v1"),
        ("convolution", "maxwell_fp16_hcudnn_fp16_128x64_relu_small_nn_v1"),
        ("convolution", "volta_scudnn_128x64_relu_small_nn_v1"),
        ("convolution", "maxwell_scudnn_128x128_relu_interior_nn_v1"),
        ("gemm", "volta_fp16_s884gemm_fp16_128x128_ldg8_relu_f2f_tn"),
        ("gemm", "turing_h1688gemm_128x128_ldg8_relu_stages_32x1_tn"),
        ("convolution", "void fft2d_r2c_32x32<float, false, 5u, false>(float2*, float const*, int)"),
        ("convolution", "void fft2d_c2r_32x32<float, false, false, 0u, false, false>(float*, float2 const*, int)"),
        ("convolution", "void fft1d_r2c_32<float, float, float2, false, false>(float2*, float const*, int)"),
        ("convolution", "void flip_filter<float, float>(float*, float const*, int, int, int, int)"),
        ("convolution", "cask_cudnn::computeWgradSplitKOffsetsKernel(cask_cudnn::ComputeSplitKOffsetsParams)"),
        ("convolution", "void cask_cudnn_infer::computeOffsetsKernel<true, false>(cask_cudnn_infer::Params)"),
        ("norm", "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true>(cudnn::bn_fw_tr_1C11_args<float>)"),
        ("memory", "void cudnn::ops::nchwToNhwcKernel<float, float, float>(float const*)"),
    ],
    "PyTorch": [
        ("norm", f"{NATIVE}vectorized_layer_norm_kernel<float, float>(int)"),
        ("softmax", "void (anonymous namespace)::softmax_warp_forward<float, float, float, 6>(float*)"),
        ("optimizer", f"{NATIVE}multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>(int)"),
        ("memory", f"{NATIVE}multi_tensor_apply_kernel<TensorListMetadata<2>, CopyFunctor<float, float, 2>>(int)"),
        ("memory", f"{NATIVE}elementwise_kernel<128, 4, direct_copy_kernel_cuda(TensorIteratorBase&)::f>(int)"),
        ("sort", "void cub::DeviceRadixSortOnesweepKernel<cub::Policy800, false, long, int>(int*)"),
        ("sort", f"{NATIVE}sbtopk::gatherTopK<float, unsigned int, 2, false>(int)"),
        ("index", f"{NATIVE}vectorized_gather_kernel<16, long>(char*)"),
        ("pooling", f"{NATIVE}(anonymous namespace)::max_pool_backward_nchw<float, float>(float const*)"),
        ("reduce", f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(int)"),
        ("elementwise", f"{NATIVE}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"),
    ],
    "FBGEMM, whose name is no GEMM": [
        ("index", "void split_embedding_codegen_forward_unweighted_kernel<c10::Half>(fbgemm_gpu::Accessor<float>)"),
        ("index", "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)"),
        ("quantize", "void fbgemm_gpu::(anonymous namespace)::_compute_FP8_quantize_cuda_kernel<float>(float const*)"),
    ],
    "what nobody knows": [
        ("other", "my_kernel(int)"),
        ("other", "void vector_fft<0u, EPT<3u>, 1u, 8u>(kernel_arguments_t<unsigned int>)"),  # cuFFT's
        ("other", "triton_kernel_of_mine"),
        ("other", "add_one(const float *, float *, int)"),
        ("other", "void mine(cutlass::gemm::Params, flash::Params)"),
    ],
}  # fmt: skip
FAMILY_OF = make_classifier(FAMILIES)


@pytest.mark.parametrize("source", KERNELS)
def test_what_a_kernel_is(source: str) -> None:
    found = [(FAMILY_OF(extract_short_name(full), full), full) for _, full in KERNELS[source]]
    assert found == KERNELS[source]


@pytest.mark.parametrize("source", KERNELS)
def test_what_communicates_is_of_a_family_that_does(source: str) -> None:
    """A kernel of another that counts as communication would be exposed time, one that does not would hide it."""
    families = {"nccl", "communication", "comm_helper", "ragged_all_to_all"}
    does = [
        full
        for _, full in KERNELS[source]
        if BUILT_IN_CONVENTIONS["kineto"].is_communication(extract_short_name(full), full)
    ]
    assert does == [full for family, full in KERNELS[source] if family in families]


def test_every_family_has_a_kernel() -> None:
    assert {family for own in KERNELS.values() for family, _ in own} == {*list_family_names(FAMILIES)}


def test_globs_are_in_small_letters_and_stand_once() -> None:
    globs = [glob for row in FAMILY_TABLE for glob in row.globs]
    assert [glob for glob in globs if glob != glob.lower()] == []
    assert len({*globs}) == len(globs)


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        ("void a::f<b(int)>(c::d*)", "void a::f<b(int)>"),
        ("void (anonymous namespace)::f<int>(int)", "void f<int>"),
        ("enable_if<(((8)>(0)))&&x, void>::type v::f<8>(int)", "enable_if<(((8)>(0)))&&x, void>::type v::f<8>"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_parameters_of_a_kernel_are_left_out(full: str, expected: str) -> None:
    assert strip_parameters(full) == expected


def test_families_of_xla_have_rows_of_0_only_where_it_compiled_a_kernel() -> None:
    everywhere = {*list_zero_families(FAMILIES, {"gemm"})}
    assert everywhere.isdisjoint(XLA_ONLY_FAMILIES)
    assert everywhere >= {"gemm", "attention", "triton", "nccl", "other"}
    assert {*list_zero_families(FAMILIES, {"loop_reduce_fusion"})} == everywhere | XLA_ONLY_FAMILIES


# -- real traces

RIGHTLY_OTHER = {"flameox_2025.5.2.sqlite": {"add_one"}}
"""Kernels of somebody's own of which a trace is mostly made."""

TRACES = {
    **dict.fromkeys(("flameox_2025.5.2.sqlite", "h100_2gpu_1s.sqlite", "mfu_2gpu_before.sqlite"), "generic"),
    "jax_te_attn.trace.json.gz": "jax",
    **dict.fromkeys(("hta_nccl_data.json.gz", "hta_sampled_rank-0.json.gz", "hta_sampled_rank-1.json.gz"), "kineto"),
    "inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz": "kineto",
    "mi210__gpu_only_trace__gpu_only_trace.json.gz": "kineto",
    "b200_vllm_eager.json.gz": "kineto",
    "deepseek_dualpipe_train.json.gz": "kineto",
    "hta_cuda_event_sync_multi_stream.json.gz": "kineto",
    "hta_ns_resolution.json.gz": "kineto",
    "vllm_decode_full_graph.json.gz": "kineto",
    "vllm_prefilldecode_piecewise.json.gz": "kineto",
}


def unknown(found: FamilySums) -> tuple[Fraction, set[str]]:
    """The share of the time of kernels that is *other*, and those that take a hundredth of it each."""
    whole = Fraction(found.total.time_ns)
    own = found.list_kernels(OTHER_FAMILY)
    share = sum((Fraction(usage.time_ns) for _, usage in own), Fraction(0)) / whole
    return share, {extract_short_name(name) for name, usage in own if usage.time_ns > whole / 100}


@pytest.mark.reference
@pytest.mark.parametrize("name", TRACES)
@pytest.mark.sampled(4)
def test_of_a_real_trace_nearly_all_kernels_have_a_family(name: str) -> None:
    path = next(folder / name for folder in (REAL, MORE) if (folder / name).exists())
    with sums(path, convention=BUILT_IN_CONVENTIONS[TRACES[name]], steps=1) as found:
        share, kernels = unknown(found)
    assert kernels == RIGHTLY_OTHER.get(name, set())
    assert share <= Fraction(1, 100) or kernels


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz", {"gemm": 59, "attention": 21, "norm": 7}),
        ("vllm_prefilldecode_piecewise.json.gz", {"gemm": 89, "attention": 3, "norm": 2}),
        ("b200_vllm_eager.json.gz", {"gemm": 55, "communication": 19, "moe": 6}),
        ("mi210__gpu_only_trace__gpu_only_trace.json.gz", {"convolution": 30, "norm": 26, "memory": 24}),
        ("jax_te_attn.trace.json.gz", {"attention": 54, "gemm": 34, "loop_reduce_fusion": 7}),
        ("hta_sampled_rank-0.json.gz", {"nccl": 65, "index": 15, "gemm": 11}),
    ],
)
def test_what_real_traces_are_made_of(name: str, least: dict[str, int]) -> None:
    """The largest families of each, in per cent of the time of all kernels."""
    path = next(folder / name for folder in (REAL, MORE) if (folder / name).exists())
    with sums(path, convention=BUILT_IN_CONVENTIONS[TRACES[name]], steps=1) as found:
        shares = {
            family: 100 * Fraction(usage.time_ns) / found.total.time_ns
            for family, usage in found.usage_by_family.items()
        }
    ordered = sorted(shares, key=lambda family: -shares[family])
    assert {family: int(shares[family]) for family in ordered[:3]} == least
