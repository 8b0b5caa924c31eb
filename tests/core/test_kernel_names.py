"""What a kernel is called on a screen: a table of real shapes, and that no two names become one."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_nsys.core.kernel_names import LEAST_WIDTH, TELLING, WIDTH, readable_names, telling_name

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
        pytest.param([ADD], ["vectorized_elementwise_kernel<CUDAFunctor_add>"]),
        pytest.param([COPY], ["elementwise_kernel<direct_copy_kernel_cuda>"]),
        pytest.param([THRESHOLD], ["vectorized_elementwise_kernel<threshold_kernel_impl>"]),
        pytest.param(
            ["void cutlass::Kernel2<cutlass_80_wmma_bf16_s161616gemm_align8>(Params)"],
            ["Kernel2<cutlass_80_wmma_bf16_s161616gemm_align8>"],
        ),
        pytest.param(
            ["void ep::dispatch<false, 8>(int4*)", "void ep::dispatch<true, 8>(int4*)"],
            ["dispatch<false, 8>", "dispatch<true, 8>"],
            id="what would read alike gets its arguments",
        ),
        pytest.param(
            ["a::scale<float>(int)", "b::scale<float>(int)"],
            ["a::scale<float>(int)", "b::scale<float>(int)"],
            id="and its namespaces",
        ),
        pytest.param(["_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_"], ["add_rmsnorm_quant_kernel"]),
        pytest.param(["_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_8PipelineEEEEEvT0_"], ["kentry<Rmsnorm2dFwd>"]),
        pytest.param(["_Z6vecAddPfS_S_i"], ["vecAdd"]),
        pytest.param(["_Z", "_Z99x"], ["_Z", "_Z99x"], id="what only looks mangled"),
        pytest.param([TUNED], ["Cijk_Alik_Bljk_BBS…MT32x32x256"], id="a product and its tile"),
        pytest.param(["x" * 80], ["x" * 22 + "…" + "x" * 33], id="cut in the middle"),
        pytest.param(["gemm\x1b\n"], ["gemm��"], id="what commands a terminal"),
        pytest.param(["operator<", "f<a(b>"], ["operator", "f"], id="brackets that do not close"),
        pytest.param([""], [""], id="no name at all"),
    ],
)  # fmt: skip
def test_a_name_as_a_person_reads_it(names: list[str], called: list[str]) -> None:
    assert list(readable_names(names).values()) == called


def test_of_many_that_differ_late_each_shows_where() -> None:
    names = [f"sm80_xmma_gemm_{'f32' * 30}_tilesize{n}x64_execute_{'kernel' * 9}" for n in (64, 128)]
    assert [text.partition("…")[2][:8] for text in readable_names(names).values()] == ["64x64_ex", "128x64_e"]


def test_of_kernels_of_one_template_each_shows_the_arguments_that_the_others_lack() -> None:
    two = [telling_name(gemm(64)), telling_name(gemm(128))]
    assert [*readable_names(two).values()] == ["device_kernel<64x128x64>", "device_kernel<128x128x64>"]
    eight = [gemm(*each) for each in product((64, 128), ("Pingpong", "Cooperative"), ("Bias", "Gelu"))]
    called = [*readable_names([telling_name(each) for each in eight]).values()]
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
    called = readable_names(names, width)
    assert list(called) == list(dict.fromkeys(names))
    assert len(set(called.values())) == len(called)
    assert all(len(text) <= max(width, LEAST_WIDTH) and text.isprintable() for text in called.values())
    assert readable_names(names, width) == called


def test_a_name_of_another_width_is_the_same_where_it_fits() -> None:
    assert readable_names([ADD, COPY], 100) == readable_names([ADD, COPY], WIDTH)


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


TELLING_GEMM = "device_kernel<4x2, Pingpong, 64x128x64, SM90_64x128x16_F32BF16BF16_SS, 3x4x3, 16, Bias…idba29dc>"
COPIES = "elementwise_kernel<128, 4, direct_copy_kernel_cuda, 10, BFloat16, int>"


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
        ("", ""),
    ],
)
def test_a_telling_name_is_the_same_whatever_runs_beside_it(full: str, telling: str) -> None:
    assert telling_name(full) == telling


@given(st.one_of(st.text(max_size=300), st.lists(words, max_size=80).map("".join)))
def test_a_telling_name_is_short_and_harmless(full: str) -> None:
    found = telling_name(full)
    assert len(found) <= TELLING
    assert found.isprintable()
