"""Which family is a kernel of? Tables of names and globs, as data; the first family with a matching glob counts.

A glob is held against the demangled name of a kernel and against its short one, with case. What no family matches is
``other``. Of a family whose globs are wide, those that are narrower stand before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

OTHER = "other"
"""The family of a kernel that no family of the table matches."""


class Family(NamedTuple):
    """Kernels of one kind. ``patterns`` are shell globs, of which any may match."""

    name: str
    patterns: tuple[str, ...]


Families = tuple[Family, ...]

MAXTEXT: Families = (
    Family("ragged_all_to_all", ("*RaggedAllToAllKernelImpl*",)),
    Family("deep_ep", ("*primus_turbo::deep_ep*",)),
    Family("input_scatter_fusion", ("*input_scatter_fusion*",)),
    *(
        Family(f"loop_{what}_fusion", (f"*loop_{what}_fusion*",))
        for what in ("select", "gather", "reduce", "convert", "transpose")
    ),
    Family("input_reduce_select", ("*input_reduce_select*",)),
    Family("input_broadcast_reduce_select", ("*input_broadcast_reduce_select*",)),
    Family("rccl", ("*ncclDevKernel*",)),
    # CK builds attention of its GEMMs and names them in the template: attention is told first.
    Family("flash_attn", ("*flash_attn*", "*[Ff]lash[Aa]ttn*", "*[Ff]mha*")),
    Family("gemm", ("*ck::*[Gg]emm*", "*ck_tile*[Gg]emm*", "*2ck*[Gg]emm*", "*primus*[Gg]emm*")),
)
"""XLA's fusions, and the libraries that MaxText calls on AMD's GPUs."""

NVIDIA: Families = (
    Family("nccl", ("nccl*", "*nvshmem*", "*multimem_*", "*cross_device_reduce*")),
    # Inductor puts the names of the operators that it fuses into that of its kernel, which is neither of them.
    Family("triton", ("triton_*",)),
    Family("moe", ("*deep_ep*", "*moe*", "*Mo[eE]*", "*permute*")),
    Family("attention", ("*[Aa]ttn*", "*[Aa]ttention*", "*[Ff]mha*", "*flash_[fb]wd*", "*sdpa*")),
    Family("convolution", ("*implicit_gemm*", "*ImplicitGemm*", "*[dw]grad*", "*fprop*", "*convolve*", "*scudnn*")),
    Family(
        "norm",
        (
            *("*[Ll]ayer_[Nn]orm*", "*[Ll]ayer[Nn]orm*", "*[Rr][Mm][Ss]_[Nn]orm*", "*[Rr][Mm][Ss][Nn]orm*"),
            *("*[Bb]atch_norm*", "*[Gg]roup[Nn]orm*", "*normalization*", "*GammaBeta*", "*cudnn::bn_*", "*ln_[fb]wd*"),
        ),
    ),
    Family("gemm", ("*[Gg]emm*", "*GEMM*", "nvjet*", "*xmma*", "*gemv*", "*[Ss]plit[Kk]*", "*split_k*")),
    Family("softmax", ("*[Ss]oft[Mm]ax*", "*[Cc]ross_[Ee]ntropy*", "*[Cc]ross[Ee]ntropy*", "*nll_loss*")),
    Family("optimizer", ("*multi_tensor_apply*", "*[Aa]dam*", "*FusedSgd*", "*fused_sgd*", "*l2norm*")),
    Family(
        "memory",
        (
            *("*direct_copy*", "*copy_kernel*", "*_copy_*", "*CatArrayBatched*", "*chunk_cat*", "*[Tt]ranspose*"),
            *("*FillFunctor*", "*nchwToNhwc*", "*nhwcToNchw*"),
        ),
    ),
    Family(
        "index",
        (
            *("*[Ee]mbedding*", "*index_elementwise*", "*index_put*", "*index_select*", "*index_add*"),
            *("*indexSelect*", "*indexFunc*", "*indexing_backward*", "*gather*", "*scatter*"),
        ),
    ),
    Family("reduce", ("*[Rr]educe*",)),
    Family("elementwise", ("*elementwise*", "*pointwise*", "*dropout*", "*[Gg]elu*", "*[Ss]ilu*", "*[Ss]wi[Gg]lu*")),
)
"""What trains on NVIDIA's GPUs: PyTorch, cuBLAS, cuDNN, CUTLASS, Triton, Transformer Engine, DeepEP."""

TABLES: Mapping[str, Families] = {"maxtext": MAXTEXT, "nvidia": NVIDIA}
"""The tables that a gate file and a command know by name."""


def names_of(families: Families) -> tuple[str, ...]:
    """The families of a table in its order, ``other`` last."""
    return (*(family.name for family in families), OTHER)


def classifier(families: Families) -> Callable[[str, str], str]:
    """A function from a kernel's (short name, demangled name) to its family; it remembers what it said."""

    @cache
    def family_of(short: str, full: str) -> str:
        for name, patterns in families:
            if any(fnmatchcase(full, pattern) or fnmatchcase(short, pattern) for pattern in patterns):
                return name
        return OTHER

    return family_of
