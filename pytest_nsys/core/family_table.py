"""Which kernels belong to which family: one table for every vendor and compiler, as data.

The first row with a matching glob counts, whatever its family, so a row comes before those that would take its kernels.
Globs are lower case, and are matched against the lower-case short name and declaration, both without parameters, so
that a parameter's type decides no family.
"""

from __future__ import annotations

from typing import NamedTuple

LIBRARY_PREFIX = "<known library> "
"""Precedes a glob that only matches short names of kernels of the known communication libraries."""


class FamilyRow(NamedTuple):
    """Describes the kernels of one family that one library or compiler brings."""

    family: str
    source: str
    globs: tuple[str, ...]


def _make_family_row(family: str, source: str, globs: str) -> FamilyRow:
    return FamilyRow(family, source, tuple(globs.split()))


_HELPERS = tuple(
    LIBRARY_PREFIX + glob
    for glob in ("*layout*", "*_cast*", "*notify*", "clean_low_latency*", "*prepare*", "*sanitize*")
)

FAMILY_TABLE = (
    _make_family_row("nccl", "NCCL, RCCL", "nccl*"),
    _make_family_row("ragged_all_to_all", "XLA", "*raggedalltoallkernelimpl*"),
    # What prepares and announces the communication of DeepEP and its kin, and moves no data itself.
    FamilyRow("comm_helper", "known libraries", _HELPERS),
    FamilyRow("communication", "known libraries", (LIBRARY_PREFIX + "*",)),
    # A compiler puts the names of the operators that it fuses into that of its kernel, which is none of them: but for
    # products and attention, which it takes from a template.
    _make_family_row("attention", "Inductor", "triton_tem_*flex_attention* triton_tem_*flex_decoding*"),
    _make_family_row("convolution", "Inductor", "triton_tem_*convolution*"),
    _make_family_row("gemm", "Inductor", "triton_mm* triton_bmm* triton_tem_*mm*"),
    _make_family_row("gemm", "XLA", "gemm_fusion* triton_gemm* *cublas_gemm_fusion* *cudnn_gemm_fusion*"),
    _make_family_row("softmax", "XLA", "triton_softmax*"),
    _make_family_row(
        "triton", "Inductor", "triton_poi_* triton_red_* triton_per_* triton_for_* triton_tem_* triton_unk_*"
    ),
    _make_family_row("triton", "Inductor", "triton_spl_*"),
    # PyTorch 2.0 and 2.1 say no category: what follows is the operators, or the signature alone (triton__0d1d2d).
    _make_family_row("triton", "Inductor", "triton_ triton__[0-9]* triton_fused_*"),
    _make_family_row("input_scatter_fusion", "XLA", "input_scatter_fusion*"),
    *(
        _make_family_row(f"loop_{operation}_fusion", "XLA", f"loop_{operation}_fusion*")
        for operation in ("select", "gather", "reduce", "convert", "transpose")
    ),
    _make_family_row("input_reduce_select", "XLA", "input_reduce_select*"),
    _make_family_row("input_broadcast_reduce_select", "XLA", "input_broadcast_reduce_select*"),
    _make_family_row(
        "fusion", "XLA", "fusion fusion[._]* loop_*fusion* input_*fusion* wrapped_* *_fusion *_fusion[._][0-9k]*"
    ),
    # Engines that serve: rotary embeddings and the cache of keys and values, which attention has in its names, too.
    _make_family_row(
        "rope", "every library", "*rotary* *_rope* rope_* *apply_rope* *applyrope* *fusedrope* *mlarope* *qkrope*"
    ),
    _make_family_row("rope", "every library", "*normrope* *ropequant*"),
    _make_family_row("kv_cache", "vLLM", "*reshape_and_cache* *concat_and_cache* *copy_blocks_kernel* *swap_blocks*"),
    _make_family_row(
        "kv_cache", "SGLang, FlashInfer", "*store_kv* *store_cache* *set_mla_kv* *set_kv_buffer* *appendpagedkv*"
    ),
    # Of MoE: the products of the experts are products.
    _make_family_row("gemm", "Triton", "*matmul_ogs* fused_moe_kernel*"),
    _make_family_row("gemm", "TensorRT-LLM", "bmm_*_t[0-9]*x* *moe_gemm* *moegemm* *fused_moe_kernel_sm*"),
    _make_family_row("gemm", "AITER", "*fmoe* *moe_ck2stages* mfma_moe[12]* *moe_mxgemm*"),
    _make_family_row("gemm", "vLLM", "*marlin_moe*"),
    _make_family_row("index", "FBGEMM", "*permute_[0-9]d_* *permute_pooled* *permute_indices* *permute_embeddings*"),
    _make_family_row("moe", "every library", "*moe* permute* *_permute* *::permute* *unpermute* *routing* *expert*"),
    _make_family_row("moe", "vLLM", "*topkgating* *topk_softmax* *topk_sigmoid* *grouped_topk*"),
    _make_family_row("moe", "TensorRT-LLM", "*expandinputrows* *computestrides*"),
    _make_family_row("moe", "Triton", "_topk_forward* _topk_backward* *bitmatrix* _finalize_matmul*"),
    _make_family_row(
        "moe", "Transformer Engine", "*row_id_map* *_sort_chunks_by_* *chunk_sort_map* *fused_topk_with_score*"
    ),
    _make_family_row("moe", "DeepSeek", "*expand_to_fused* *reduce_fused* *fused_mapping*"),
    _make_family_row("moe", "SGLang", "_fwd_kernel_ep_*"),
    _make_family_row("attention", "every library", "*attn* *attention* *fmha* *sdpa* *mha_forward* *mha_backward*"),
    _make_family_row("attention", "FlashAttention", "*flash_[fb]wd* *flash::*"),
    _make_family_row("attention", "FlashMLA, AITER", "*flash_mla* mla_* *::mla_* *_mla_* *mla::*"),
    _make_family_row(
        "attention", "FlashInfer", "*prefillwith*kvcache* *decodewith*kvcache* *mergestate* *lengthmerge*"
    ),
    _make_family_row("attention", "SGLang", "_[fb]wd_kernel _fwd_kernel_stage* _fwd_grouped_kernel*"),
    _make_family_row(
        "attention", "vLLM, SageAttention, DeepGEMM", "reduce_segments* *qk_int*_sv_* *sage_fwd* *mqa_logits*"
    ),
    _make_family_row(
        "state_space", "Mamba, FLA", "*selective_scan* *selective_state* *chunk_scan* *chunk_state* *state_passing*"
    ),
    _make_family_row(
        "state_space", "FLA", "*delta_rule* *gated_delta* *chunk_fwd_kernel_o* *chunk_*_kkt_* *recompute_w_u*"
    ),
    _make_family_row("state_space", "Mamba, FLA", "*causal_conv1d* *chunk_*cumsum*"),
    # s884cudnn, s1688cudnn, i8816cudnn: an instruction, as in cuBLAS' s884gemm. A relu in the name is only fused.
    _make_family_row("convolution", "cuDNN", "*implicit*gemm* *fprop* *convolve* *[0-9hs]cudnn_* *winograd*"),
    _make_family_row("convolution", "cuDNN", "[dw]grad* *[!a-ce-z][dw]grad*"),
    # By FFT, and the offsets that a kernel of its looks up; cuFFT's own kernels are called regular_fft and vector_fft.
    _make_family_row("convolution", "cuDNN", "*fft[12]d_[rc]2[rc]_* flip_filter* *cask_cudnn*offsetskernel*"),
    _make_family_row("convolution", "PyTorch", "*conv_depthwise* *conv[123]d* *im2col* *col2im*"),
    _make_family_row("convolution", "MIOpen", "igemm_* *miopen*conv* *asmconv* *naive_conv* *im[23]d2col* *miopensp3*"),
    # With or without a namespace: a mangled name that was cut has none that can be read.
    _make_family_row("convolution", "composable kernel", "*grouped_conv* *groupedconv* *device_conv*"),
    _make_family_row(
        "norm", "every library", "*layer_norm* *layernorm* *rms_norm* *rmsnorm* *batch_norm* *batchnorm* *group_norm*"
    ),
    _make_family_row(
        "norm", "every library", "*groupnorm* *instance_norm* *weight_norm* *qk_norm* *qknorm* *normalization*"
    ),
    _make_family_row("norm", "cuDNN", "*cudnn::bn_*"),
    _make_family_row("norm", "PyTorch", "*gammabeta* *rowwisemoments* *computefusedparams*"),
    _make_family_row("norm", "Transformer Engine", "*ln_[fb]wd*"),
    _make_family_row("norm", "FLA", "l2norm_[fb]wd*"),
    _make_family_row("quantize", "DeepGEMM", "*_into_ue8m0*"),
    _make_family_row(
        "gemm", "every library", "gemm* *[!b]gemm* *gemv* *matmul* *splitk* *split_k* *scaled_mm* *grouped_mm*"
    ),
    _make_family_row("gemm", "cuBLAS", "nvjet* *xmma* *cublas*"),
    _make_family_row("gemm", "CUTLASS", "cutlass*_tensorop_* cutlass*_simt_*"),
    _make_family_row("gemm", "hipBLASLt, rocBLAS", "*cijk_* *rocblas* *hipblas*"),
    _make_family_row("gemm", "vLLM", "*marlin* *machete* *gptq* llmm1*"),
    _make_family_row("softmax", "every library", "*softmax* *cross_entropy* *crossentropy* *nll_loss*"),
    _make_family_row("memory", "PyTorch", "*multi_tensor_apply*copyfunctor*"),
    _make_family_row(
        "optimizer", "PyTorch, Apex", "*multi_tensor_apply* *fusedoptimizer* *fusedsgd* *fused_sgd* *l2norm*"
    ),
    _make_family_row("optimizer", "every library", "adam* *[!elo]adam* *newton_schulz*"),
    _make_family_row(
        "quantize", "every library", "*quant* *_fp8_* *to_fp8* *fp8_to* *mxfp[468]* *nvfp4* *amax* *hadamard*"
    ),
    _make_family_row("quantize", "Transformer Engine", "*cast_transpose* *swizzle_*_scaling*"),
    _make_family_row("quantize", "FBGEMM", "*_fp8rowwise_* *hfp8*"),
    _make_family_row("quantize", "DeepSeek, DeepGEMM", "*cast_back* *channel_cast* *ue8m0*"),
    _make_family_row(
        "memory", "PyTorch", "*direct_copy* *copy_kernel* *_copy_* *catarraybatched* *chunk_cat* *fillfunctor*"
    ),
    _make_family_row("memory", "every library", "*transpose*"),
    _make_family_row("memory", "cuDNN", "*nchwtonhwc* *nhwctonchw*"),
    _make_family_row("memory", "HIP, MIOpen", "__amd_rocclr_* subtensorop*"),
    _make_family_row("memory", "Transformer Engine", "*_padding_kernel* *remove_pad* *add_pad*"),
    _make_family_row(
        "sort", "CUB, rocPRIM", "*radixsort* *radix_sort* *mergesort* *merge_sort* *segmentedsort* *devicescan*"
    ),
    _make_family_row(
        "sort", "CUB, rocPRIM", "*deviceselect* *devicecompact* *rocprim*scan* *rocprim*sort* *rocprim*partition*"
    ),
    _make_family_row("sort", "PyTorch", "*bitonicsort* *gathertopk* *tensor_kernel_scan* *cumsum* *histogram*"),
    _make_family_row("sort", "FlashInfer, vLLM", "*sampling* *topk* *top_k*"),
    _make_family_row(
        "index", "PyTorch", "*embedding* *index_elementwise* *index_put* *index_select* *index_add* *indexselect*"
    ),
    _make_family_row("index", "PyTorch", "*indexfunc* *indexing_backward* *gather* *scatter*"),
    _make_family_row("index", "FBGEMM", "*linearize_index* *bounds_check_indices*"),
    _make_family_row("index", "SGLang", "*kv_indices*"),
    _make_family_row("pooling", "PyTorch, MIOpen", "*max_pool* *avg_pool* *maxpool* *avgpool* *pooling* *upsample*"),
    _make_family_row("reduce", "every library", "*reduce*"),
    _make_family_row("elementwise", "PyTorch", "*elementwise* *pointwise* *dropout* *arange*"),
    _make_family_row(
        "elementwise", "every library", "*gelu* *silu* *swiglu* *geglu* *activation* *act_and_mul* *gated_act* *relu*"
    ),
    _make_family_row("elementwise", "cuDNN, MIOpen", "*scalepackedtensor* optensor*"),
    _make_family_row("elementwise", "Liger", "*element_mul*"),
)

# Families that no run has which XLA did not compile: they have rows only where one of their kernels ran.
XLA_ONLY_FAMILIES = frozenset(row.family for row in FAMILY_TABLE) - {
    row.family for row in FAMILY_TABLE if row.source != "XLA"
}

_COLLECTIVES = ("allgather", "allreduce", "reducescatter", "alltoall", "a2a")
_PRODUCTS = ("gemm", "matmul", "_mm_", "_bmm_")

FUSED_WITH_COMMUNICATION = (
    *(glob for c in _COLLECTIVES for p in _PRODUCTS for glob in (f"*_{c}*{p}*", f"*{p}*_{c}*", f"*{p}{c}*")),
    # Flux and Triton-distributed say the collective with two letters.
    *("*_ag_*gemm_*", "*_aggemm_*", "*gemm_ag_*", "*gemm_*_ag_kernel*", "*gemm_*_ag_scatter*", "*_ag_matmul_*"),
    *("*gemm_rs_*", "*_gemmrs_*", "*gemm_*gather_rs_*", "*matmul_rs_*", "*gemm_ar_*", "*_gemmar_*", "*matmul_ar_*"),
    # CUTLASS, JAX
    *("*_distributed_gemm_*", "*_dist_gemm_*", "*_distgemm_*", "*_collective_matmul_*", "*_collective_gemm_*"),
)
"""Identifiers of kernels that multiply and communicate in one: of their time nobody can tell which is which.

Held against the words of an identifier in small letters, ``GemmV3AGKernel`` as ``_gemm_v3_ag_kernel_``, where
``all_gather`` and its kin are one word.
"""
