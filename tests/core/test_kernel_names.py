"""What a kernel is called on a screen: a table of real shapes, and that no two names become one."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_nsys.core.kernel_names import (
    DISPLAY_NAME_WIDTH,
    MIN_DISPLAY_WIDTH,
    STABLE_NAME_LENGTH,
    make_display_names,
    make_stable_name,
)

NATIVE = "at::native::"
ADD = f"void {NATIVE}vectorized_elementwise_kernel<4, {NATIVE}CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, T2)"
COPY = (
    f"void {NATIVE}elementwise_kernel<(int)128, (int)4, void {NATIVE}gpu_kernel_impl_nocast<{NATIVE}"
    "direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::"
    "[lambda(c10::BFloat16) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)"
)
THRESHOLD = (
    f"void {NATIVE}vectorized_elementwise_kernel<4, {NATIVE}BinaryFunctor<float, float, float, {NATIVE}(anonymous "
    "namespace)::threshold_kernel_impl<float>(at::TensorIteratorBase&, float, float)::{lambda(float, float)#1}> >(int)"
)
TUNED = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1_SN_LDSB1_AFC1_NTD4_WG64_4_1"


@pytest.mark.parametrize(
    ("names", "called"),
    [
        pytest.param(["ncclDevKernel_AllReduce_f32_RING_LL(Args)"], ["ncclDevKernel_AllReduce_f32_RING_LL"]),
        pytest.param(["triton_poi_fused_add_mul_12"], ["triton_poi_fused_add_mul_12"]),
        pytest.param(["void flash::flash_fwd_kernel<Traits<128>, false>(Params)"], ["flash_fwd_kernel"]),
        pytest.param([ADD], ["vectorized_elementwise<add>"]),
        pytest.param([COPY], ["elementwise<direct_copy>"]),
        pytest.param([THRESHOLD], ["vectorized_elementwise<threshold>"]),
        pytest.param(
            ["void cutlass::Kernel2<cutlass_80_wmma_bf16_s161616gemm_align8>(Params)"],
            ["cutlass_80_wmma_bf16_s161616gemm_align8"],
        ),
        pytest.param(
            ["void ep::dispatch<false, 8>(int4*)", "void ep::dispatch<true, 8>(int4*)"],
            ["dispatch<false>", "dispatch<true>"],
            id="what would read alike gets its arguments",
        ),
        pytest.param(
            ["a::scale<float>(int)", "b::scale<float>(int)"],
            ["a::scale<float>(int)", "b::scale<float>(int)"],
            id="and its namespaces",
        ),
        pytest.param(["_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_"], ["add_rmsnorm_quant_kernel"]),
        pytest.param(["_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_8PipelineEEEEEvT0_"], ["Rmsnorm2dFwd"]),
        pytest.param(["_Z6vecAddPfS_S_i"], ["vecAdd"]),
        pytest.param(["_Z", "_Z99x"], ["_Z", "_Z99x"], id="what only looks mangled"),
        pytest.param([TUNED], ["Cijk_… MT32x32x256"], id="a product and its tile"),
        pytest.param(["x" * 80], ["x" * 22 + "…" + "x" * 33], id="cut in the middle"),
        pytest.param(["gemm\x1b\n"], ["gemm��"], id="what commands a terminal"),
        pytest.param(["operator<", "f<a(b>"], ["operator", "f"], id="brackets that do not close"),
        pytest.param([""], [""], id="no name at all"),
    ],
)  # fmt: skip
def test_a_name_as_a_person_reads_it(names: list[str], called: list[str]) -> None:
    assert list(make_display_names(names).values()) == called


GEMM_OF = (
    "cute::tuple<int, int, int, int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmma"
    "WarpSpecialized<4, cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >, cutlass::gemm::KernelTmaWarpSpecialized>"
)
NVJET = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB"
FLASH = "Flash_fwd_kernel_traits<{0}, (int)128, (int)64, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t, Base<{0}>>"
CUTE = "cute::tuple<cute::C<{}>, cute::C<{}>, cute::C<{}> >"
MAINLOOP = f"{CUTE.format(1, 1, 1)}, {CUTE.format(64, 128, 192)}, cutlass::bfloat16_t, float, cutlass::arch::Sm90"


@pytest.mark.parametrize(
    ("name", "called"),
    [
        (f"{NVJET}_TNN", "nvjet 192x192 TNN"),
        ("nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_splitK_TNT", "nvjet 64x32 splitK TNT"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align8>(Params)",
            "gemm bf16 256x128x64 tn",
        ),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(P)", "gemm tf32 64x64x16 tn"),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(P)", "gemm f32 128x32x8 nn"),
        (
            "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_64x128_32x3_nhwc_align4>(P)",
            "dgrad tf32 64x128x32 nhwc",
        ),
        (
            "cutlass3x_sm100_tensorop_s128x256x16gemm_f16_f16_f32_f16_f16_128x256x64_2x1x1_0_tnn_align8_2sm",
            "gemm f16 128x256x64 tnn",
        ),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_execute_kernel__5x_cublas",
            "gemm f32 64x256x8 tn",
        ),
        (
            "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_execute",
            "wgrad tf32 128x128x16 nhwc",
        ),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "gemm bf16 128x64x64 tn"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        (
            f"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<{GEMM_OF}, {CUTE.format(64, 128, 32)}, "
            "cutlass::bfloat16_t, Stride> > >(Params)",
            "gemm bf16 64x128x32",
        ),
        (
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_rM_TN_transOut_swiGlu_dynBatch_sm100f",
            "bmm MxE2m1MxE4m3 128x16x256 TN swiGlu",
        ),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", "matmul_ogs bf16xmxfp4 16x128x256 swiglu"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x4", "matmul_ogs bf16xmxfp4 16x128x256 splitK4"),
        (
            "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
            "fmha<E4m3, hdim64, causal, prefill>",
        ),
        (
            "fmhaSm100fKernel_QkvBfloat16OBfloat16HQk576HV512PagedKvDenseP64MultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen",
            "fmha<Bfloat16, hdim576, dense, decode>",
        ),
        (f"void flash::flash_fwd_kernel<{FLASH.format(128)}, (bool)0, (bool)1>(Params)", "flash_fwd<hdim128, causal>"),
        (f"void flash::flash_fwd_kernel<{FLASH.format(64)}, false, false, true>(Params)", "flash_fwd<hdim64>"),
        (
            f"void flash::flash_fwd_splitkv_kernel<{FLASH.format(96)}, true, false>(Params)",
            "flash_fwd_splitkv<hdim96, causal>",
        ),
        (
            f"void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{FLASH.format(128)}, false, true>(Params)",
            "flash_bwd<hdim128, causal>",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90"
            f"<2, {MAINLOOP}, true, false> > > >(P)",
            "flash_fwd<hdim192, causal>",
        ),
        (
            "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor000o11_0",
            "FlashAttentionForwardSm100",
        ),
        ("kernel_cutlass__convert_kernel_tensorptrf16gmemalign16o125611101000256", "_convert_kernel"),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
            "cudnn sdpa fprop 64x128x128",
        ),
        ("cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1", "volta_scudnn_128x64_relu_small_nn"),
        (
            "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 8192u, 1u>(float*)",
            "sm90_fp8_gemm_1d2d<4096x8192>",
        ),
        ("igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt64x128x32_wt16x16x16_ws1x1", "igemm fwd nhwc bf16 64x128x32"),
        ("void rocprim::detail::trampoline_kernel<rocprim::detail::wrapped_scan_config<int>>(int)", "rocprim scan"),
        ("void ck_tile::kentry<1, ck_tile::FmhaFwdKernel<ck_tile::Pipeline<float>>>(Args)", "FmhaFwdKernel"),
        ("void cutlass::device_kernel<dpsk::cuda::fp8_ptp128c::GemmKernel>(P)", "fp8_ptp128c::GemmKernel"),
        ("gemm_fusion_dot_6.kd", "gemm_fusion_dot_6"),
        (f"void {NATIVE}reduce_kernel<512, 1, {NATIVE}ReduceOp<float, {NATIVE}MeanOps<float> > >(int)", "reduce<Mean>"),
        (
            f"void {NATIVE}vectorized_elementwise_kernel<4, {NATIVE}AUnaryFunctor<float, float, float, "
            f"{NATIVE}MulFunctor<float> > >(int)",
            "vectorized_elementwise<scalar Mul>",
        ),
    ],
)
def test_a_kernel_of_a_library_is_called_as_a_person_calls_it(name: str, called: str) -> None:
    assert make_display_names([name]) == {name: called}


@pytest.mark.parametrize(
    ("names", "called"),
    [
        (
            [f"{NVJET}_TNN", "nvjet_tst_192x192_64x6_1x2_h_bz_TNN"],
            [f"{NVJET}_TNN", "nvjet_tst_192x192_64x6_1x2_h_bz_TNN"],
        ),
        (
            [f"Cijk_Alik_Bljk_BBS_BH_UserArgs_MT32x32x256_MI16x16x1_NEPBS{n}_WG64_4_1" for n in (8, 16)],
            [f"Cijk_… MT32x32x256<NEPBS{n}>" for n in (8, 16)],
        ),
        (
            [f"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x{n}_tn_align4>(P)" for n in (5, 6)],
            [f"gemm tf32 64x64x16 tn stages{n} align4" for n in (5, 6)],
        ),
        (
            [ADD, ADD.replace("float", "long")],
            ["vectorized_elementwise<add, float>", "vectorized_elementwise<add, long>"],
        ),
        (
            [
                f"void {NATIVE}reduce_kernel<{n}, 1, {NATIVE}ReduceOp<float, {NATIVE}MeanOps<float> > >(int)"
                for n in (128, 512)
            ],
            [f"reduce<Mean, float, {n}, 1>" for n in (128, 512)],
        ),
        (
            [f"_ZN7ck_tile6kentryILi1ENS_4NormINS_4KindELNS_4KindE{n}EEEEvT0_" for n in (0, 1)],
            [f"Norm<{n}>" for n in (0, 1)],
        ),
    ],
)
def test_of_kernels_that_are_called_alike_each_says_what_differs(names: list[str], called: list[str]) -> None:
    assert list(make_display_names(names, 70).values()) == called


def test_a_kernel_of_cutlass_is_called_alike_beside_itself_and_in_a_baseline() -> None:
    assert [*make_display_names([gemm(64)]).values()] == [*make_display_names([make_stable_name(gemm(64))]).values()]


def test_of_many_that_differ_late_each_shows_where() -> None:
    names = [f"sm80_xmma_gemm_{'f32' * 30}_tilesize{n}x64_execute_{'kernel' * 9}" for n in (64, 128)]
    assert [text.partition("…")[2][:8] for text in make_display_names(names).values()] == ["64x64_ex", "128x64_e"]


def test_of_kernels_of_one_template_each_shows_the_arguments_that_the_others_lack() -> None:
    two = [make_stable_name(gemm(64)), make_stable_name(gemm(128))]
    assert [*make_display_names(two).values()] == ["gemm bf16 64x128x64", "gemm bf16 128x128x64"]
    eight = [gemm(*each) for each in product((64, 128), ("Pingpong", "Cooperative"), ("Bias", "Gelu"))]
    called = [*make_display_names([make_stable_name(each) for each in eight]).values()]
    assert called[:2] == ["device_kernel<Pingpong, 64x128x64, Bias>", "device_kernel<Pingpong, 64x128x64, Gelu>"]
    assert len({*called}) == 8


words = st.sampled_from(
    ["f", "g<", ">", "<", "(", ")", "::", "a", "int", "4", ", ", "_Z", "1x", "…", " ", "\n", "elementwise_kernel<"]
)


@given(
    st.lists(st.one_of(st.text(max_size=90), st.lists(words, max_size=40).map("".join)), max_size=12),
    st.integers(0, 70),
)
@example(["elementwise_kernel", "void a::elementwise_kernel<4>(int)", "b::elementwise_kernel<4>(int)"], 12)
@example(["\n", "\r", "�"], 56)
def test_names_stay_distinct_short_and_harmless(names: list[str], width: int) -> None:
    called = make_display_names(names, width)
    assert list(called) == list(dict.fromkeys(names))
    assert len(set(called.values())) == len(called)
    assert all(len(text) <= max(width, MIN_DISPLAY_WIDTH) and is_harmless(text) for text in called.values())
    assert make_display_names(names, width) == called


def is_harmless(text: str) -> bool:
    """Return whether a terminal takes nothing in it for a command; a space that breaks no line is none."""
    return text.replace("\u00a0", " ").replace("\u202f", " ").isprintable()


def test_a_name_of_another_width_is_the_same_where_it_fits() -> None:
    assert make_display_names([ADD, COPY], 100) == make_display_names([ADD, COPY], DISPLAY_NAME_WIDTH)


GEMM = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
    "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4, "
    "cute::tuple<cute::C<2>, cute::C<1>, cute::C<1>>, cutlass::gemm::KernelTmaWarpSpecialized{schedule}>, "
    "cute::tuple<cute::C<{tile}>, cute::C<128>, cute::C<64>>, cutlass::bfloat16_t, cute::tuple<long, cute::C<1>, "
    "long>, cute::TiledMMA<cute::MMA_Atom<cute::SM90_64x128x16_F32BF16BF16_SS<(cute::GMMA::Major)0, "
    "(cute::GMMA::Major)1>>, cute::Layout<cute::tuple<cute::C<1>, cute::C<0>>>>, cute::SM90_TMA_LOAD, "
    "cute::ComposedLayout<cute::Swizzle<3, 4, 3>, cute::smem_ptr_flag_bits<16>>, cute::identity>, "
    "{epilogue}>>(Params)"
)
"""A kernel of CUTLASS 3, of which a model has 150."""


def gemm(tile: int, schedule: str = "Pingpong", epilogue: str = "Bias") -> str:
    return GEMM.format(tile=tile, schedule=schedule, epilogue=epilogue)


TELLING_GEMM = "device_kernel<4x2, Pingpong, 64x128x64, SM90_64x128x16_F32BF16BF16_SS, 3x4x3, 16, Bias…id558662>"
COPIES = "elementwise_kernel<128, 4, direct_copy_kernel_cuda, BFloat16, int>"


@pytest.mark.parametrize(
    ("full", "telling"),
    [
        ("ncclDevKernel_AllReduce_f32_RING_LL(Args)", "ncclDevKernel_AllReduce_f32_RING_LL"),
        ("triton_poi_fused_add_mul_12", "triton_poi_fused_add_mul"),
        (ADD, "vectorized_elementwise_kernel<4, CUDAFunctor_add, float, char, 3>"),
        (COPY, COPIES),
        (COPY.replace("(instance 3)", "(instance 4)"), COPIES),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_", "add_rmsnorm_quant_kernel<256>"),
        ("a::scale(int)", "scale"),
        (TUNED, TUNED),
        (TUNED + "_WG" * 40, "Cijk_Alik_Bljk_BBS…MT32x32x256…id323bd5"),
        (gemm(64), TELLING_GEMM),
        ("void cutlass::device_kernel<a::fp8_ptp128c::GemmKernel>(P)", "device_kernel<fp8_ptp128c::GemmKernel>"),
        ("void cutlass::device_kernel<a::m_grouped::GemmKernel>(P)", "device_kernel<m_grouped::GemmKernel>"),
        ("void norm<c10::BFloat16>(P)", "norm<BFloat16>"),
        ("", ""),
    ],
)
def test_a_telling_name_is_the_same_whatever_runs_beside_it(full: str, telling: str) -> None:
    assert make_stable_name(full) == telling


@given(st.one_of(st.text(max_size=300), st.lists(words, max_size=80).map("".join)))
def test_a_telling_name_is_short_and_harmless(full: str) -> None:
    found = make_stable_name(full)
    assert len(found) <= STABLE_NAME_LENGTH
    assert is_harmless(found)
