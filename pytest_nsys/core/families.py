"""How is a kernel called, which library's is it, of which family, which collective? Tables of names and globs, as data.

``void at::native::(anonymous namespace)::fill<4>(int, float*)`` is ``at::native::fill`` by its qualified name, and
``fill`` in short: that is how Nsight Systems shortens the demangled name.

``LIBRARIES`` are the kernels that communicate beside NCCL's. A glob of theirs is held against the qualified name of a
kernel (without return type, template arguments and parameters) from any namespace on, with case: so ``nvshmem*`` is
``nvshmemi_barrier`` and ``a::nvshmem::put``, and no kernel that has a parameter of NVSHMEM.

In a table of families the first one with a matching glob counts. There a glob is held against the demangled name as it
is, and against the short one. What no family matches is ``other``. Of a family whose globs are wide, those that are
narrower stand before it.

Each kind of collective has one name, NCCL's own: ``AllGather``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from functools import cache, lru_cache
from typing import NamedTuple

_CLOSING = {"(": ")", "<": ">", "[": "]", "{": "}"}


def short_name(full: str) -> str:
    """The name without return type, namespaces, template arguments and parameters; as it is where it has none."""
    words = _without_brackets(full)
    return words[-1].rsplit("::", 1)[-1] or full if words else full


def qualified_name(full: str) -> str:
    """The name with its namespaces alone; as it is where it has no brackets."""
    words = _without_brackets(full)
    return words[-1] if words else full


def _without_brackets(full: str) -> list[str]:
    """The words before the parameters, without what stands in brackets; none where nothing does."""
    text = full.replace("(anonymous namespace)::", "").replace("{anonymous}::", "")
    kept: list[str] = []
    open_brackets: list[str] = []
    for character in text:
        if open_brackets:
            if character in _CLOSING:
                open_brackets.append(_CLOSING[character])
            elif character == open_brackets[-1]:
                open_brackets.pop()
        elif character == "(" and kept:
            break
        elif character in _CLOSING:
            open_brackets.append(_CLOSING[character])
        else:
            kept.append(character)
    else:
        if len(kept) == len(text):
            return []
    return "".join(kept).split()


class CommunicationLibrary(NamedTuple):
    """A library whose kernels communicate, those too that only prepare or announce it."""

    name: str
    globs: tuple[str, ...]


LIBRARIES = (
    CommunicationLibrary(
        "DeepEP",
        ("deep_ep::*", "dpsk::ep::*", "ep::internode*", "ep::intranode*", "internode_ll*", "intranode*"),
    ),
    CommunicationLibrary("HybridEP", ("hybrid_ep::*",)),
    CommunicationLibrary("NVSHMEM", ("nvshmem*",)),
    CommunicationLibrary("MSCCL++", ("mscclpp*",)),
    CommunicationLibrary("UCCL", ("uccl*",)),
    CommunicationLibrary("pplx", ("pplx*::*dispatch*", "pplx*::*combine*")),  # flash attention has a combine of its own
    CommunicationLibrary("vLLM or sglang", ("*cross_device_reduce_*", "*quickreduce*")),
    CommunicationLibrary(
        "TensorRT-LLM or FlashInfer", ("*allreduce_fusion*", "*oneShotAllReduce*", "*twoShotAllReduce*", "*moe_comm*")
    ),
    CommunicationLibrary("torch symmetric memory", ("one_shot_all_reduce*", "two_shot_all_reduce*", "multimem_*")),
    CommunicationLibrary("TransformerEngine", ("*userbuffers*",)),
    CommunicationLibrary("oneCCL", ("*oneccl*",)),
    CommunicationLibrary("RCCL", ("rccl*",)),  # what of it is not called as NCCL's kernels are
)
"""A library that is added here counts from then on, and makes its runs another convention to their baselines."""


class KnownLibrary(NamedTuple):
    """Of a kernel that communicates: the library, and a glob on demangled names that means such kernels."""

    library: str
    glob: str


def _longest_text(glob: str) -> str:
    """What a name that matches has in it at least: quick to look for, as the names of kernels are long."""
    return max(re.split(r"\[!?\]?[^]]*\]|[*?]", glob), key=len)


_MATCHERS = [
    (re.compile(rf"(?:.*::)?{translate(glob)}", re.DOTALL), _longest_text(glob), name, glob)
    for name, globs in LIBRARIES
    for glob in globs
]


@lru_cache(maxsize=65_536)
def known_communication(short: str, full: str) -> KnownLibrary | None:
    """Of which known library a kernel is, by its short and its demangled name; None for NCCL's, and for any other."""
    both = f"{full}\n{short}"
    possible = [each for each in _MATCHERS if each[1] in both]
    path = qualified_name(full or short) if possible else ""
    for matcher, _, library, glob in possible:
        if matcher.match(path):
            return KnownLibrary(library, f"*{glob.removeprefix('*')}")
    return None


OTHER = "other"
"""The family of a kernel that no family of the table matches."""


LIBRARY = "<known library> "
"""Stands before a glob of a family that is held against the short names of the known libraries' kernels alone."""


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
    Family("nccl", ("nccl*",)),
    # What prepares and announces the communication of DeepEP and its kin, and moves no data itself.
    Family("comm_helper", tuple(LIBRARY + glob for glob in ("*layout*", "*_cast*", "*notify*", "clean_low_latency*"))),
    Family("communication", (LIBRARY + "*",)),
    # Inductor puts the names of the operators that it fuses into that of its kernel, which is neither of them.
    Family("triton", ("triton_*",)),
    Family("moe", ("*moe*", "*Mo[eE]*", "*permute*")),
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


def zero_filled(families: Families) -> tuple[str, ...]:
    """The families that have a row of 0 where none of their kernels ran.

    Not those of the known libraries: they came later, and would be rows that the baselines of all other runs lack.
    """
    later = {family.name for family in families if any(glob.startswith(LIBRARY) for glob in family.patterns)}
    return tuple(name for name in names_of(families) if name not in later)


def classifier(families: Families) -> Callable[[str, str], str]:
    """A function from a kernel's (short name, demangled name) to its family; it remembers what it said."""
    table = [
        (_longest_text(pattern), re.compile(translate(pattern)).match, name)
        for name, patterns in families
        for pattern in patterns
    ]

    @cache
    def family_of(short: str, full: str) -> str:
        known = LIBRARY + short if known_communication(short, full) is not None else short
        both = f"{full}\n{known}"
        for text, matches, name in table:
            if text in both and (matches(full) or matches(short) or matches(known)):
                return name
        return OTHER

    return family_of


OTHER_KIND = "Other"
"""A kernel that communicates, and is no collective that is known here: of DeepEP, say."""

_SPELLINGS = {
    "allreduce": "AllReduce",
    "crossdevicereduce": "AllReduce",
    "allgather": "AllGather",
    "reducescatter": "ReduceScatter",
    "alltoall": "AllToAll",
    "sendrecv": "SendRecv",
    "send": "SendRecv",
    "recv": "SendRecv",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "barrier": "Barrier",
    "gather": "Gather",
    "scatter": "Scatter",
}
"""What a name holds when only its letters count; the first that it holds decides."""

KINDS = tuple(dict.fromkeys(_SPELLINGS.values()))
_LETTERS = re.compile(r"[^a-z]+")


def kind_of(name: str) -> str:
    """The collective that a name stands for, ``Other`` where none is known."""
    letters = _LETTERS.sub("", name.lower())
    return next((kind for spelling, kind in _SPELLINGS.items() if spelling in letters), OTHER_KIND)


def spelt(text: str) -> str:
    """A selector's word as the kinds are spelt: ``AllReduce`` for ``all_reduce``; any other word as it is."""
    kinds = {kind.lower(): kind for kind in (*KINDS, OTHER_KIND)}
    return kinds.get(_LETTERS.sub("", text.lower()), text)
