"""How is a library's kernel called for people, if its name contains its whole configuration?

``nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN`` is ``nvjet 192x192 bias TNN``, and an attention kernel of 4 000
characters ``flash_fwd<hdim128, causal>``: what it computes, on what, in which tiles. Each library has one rule, which
gives several names, the shortest first; a longer one is used if two kernels would have the same. If a library changes
its naming, the rule no longer matches, and the name is shortened like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

Match = re.Match[str]
DisplayNames = tuple[str, ...]


class NameRule(NamedTuple):
    """Says how the kernels of one library are called; ``pattern`` matches a demangled name without casts."""

    pattern: re.Pattern[str]
    make_names: Callable[[Match], DisplayNames]


_TYPE = re.compile(r"tf32|bf16|f16|f32|f64|e4m3|e5m2|e2m1|[iu]8")
_TYPES_IN_CPP = {
    "bfloat16_t": "bf16",
    "half_t": "f16",
    "float": "f32",
    "tfloat32_t": "tf32",
    "float_e4m3_t": "e4m3",
    "float_e5m2_t": "e5m2",
    "int8_t": "i8",
}
# The type that an operation says where no type stands beside it.
_TYPES_BY_OPERATION = {"sgemm": "f32", "dgemm": "f64", "hgemm": "f16", "s1688": "tf32", "d884": "f64", "h": "f16"}

_KIND = "gemm|fprop|dgrad|wgrad"


def _join_words(*words: str | None) -> str:
    return " ".join(word for word in words if word)


def _find_type(operation: str) -> str:
    """Return the type of a product; empty if its operation does not say it."""
    if match := _TYPE.search(operation):
        return match[0]
    return next((name for start, name in _TYPES_BY_OPERATION.items() if operation.startswith(start)), "")


def _name_tensorop(m: Match) -> DisplayNames:
    """Name ``cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align8`` by tile, depth x stages and layout."""
    short = _join_words(m["kind"], _find_type(m["op"]), f"{m['tile']}x{m['depth']}", m["layout"])
    return short, _join_words(short, f"stages{m['stages']}", m["rest"].replace("_", " ").strip())


def _name_cutlass3(m: Match) -> DisplayNames:
    short = _join_words(m["kind"], _find_type(m["types"]), m["tile"], m["layout"])
    return short, _join_words(short, m["rest"].replace("_", " ").strip())


def _name_xmma(m: Match) -> DisplayNames:
    split = "splitK" if "split_k" in m["rest"] else ""
    short = _join_words(m["kind"], _find_type(m["types"]), m["tile"], m["layout"] or m["conv"], split)
    details = re.findall(r"stage\d+|align[abc]\d+", m["rest"])
    return short, _join_words(short, "indexed" if m["indexed"] else "", *details)


def _name_cublas(m: Match) -> DisplayNames:
    depth = re.search(r"stages_(\d+)x(\d+)_", m["rest"])
    if depth is None:
        return (m[0],)
    short = _join_words("gemm", _find_type(m["op"]), f"{m['tile']}x{depth[1]}", m["layout"])
    return short, _join_words(short, f"stages{depth[2]}"), m[0]


def _name_nvjet(m: Match) -> DisplayNames:
    return _join_words("nvjet", m["tile"], *re.findall(r"bias|splitK", m["rest"]), m["layout"]), m[0]


def _name_tensile(m: Match) -> DisplayNames:
    short = f"Cijk_… {m['tile']}"
    return short, f"{short}<{', '.join((m['product'].removeprefix('Cijk_'), *m['rest'].split('_')))}>"


def _name_bmm(m: Match) -> DisplayNames:
    short = _join_words("bmm", m["inputs"], m["tile"], m["layout"], "swiGlu" if "swiGlu" in m["rest"] else "")
    return short, f"{short} -> {m['output']}"


def _name_matmul_ogs(m: Match) -> DisplayNames:
    split = "" if m["split"] == "1" else f"splitK{m['split']}"
    short = _join_words("matmul_ogs", m["inputs"], m["tile"], split, m["rest"].replace("_", " ").strip())
    return short, _join_words(short, m["layout"], f"-> {m['output']}")


def _name_fmha_gen(m: Match) -> DisplayNames:
    mask = {"SlidingOrChunkedCausal": "sliding", "Causal": "causal", "Dense": "dense"}[m["mask"]]
    phase = {"Context": "prefill", "ForGen": "decode"}.get(m["phase"] or "", "")
    details = (m["type"], f"hdim{m['hdim']}", mask, phase)
    return f"fmha<{', '.join(filter(None, details))}>", m[0]


def _format_flash(direction: str, hdim: str, causal: str) -> str:
    return f"flash_{direction}<hdim{hdim}{', causal' if causal in ('true', '1') else ''}>"


def _name_flash2(m: Match) -> DisplayNames:
    bools = re.findall(r"\b(?:true|false|[01])\b", m["rest"])
    causal_index = (
        0 if m["name"] in ("flash_fwd_splitkv_kernel", "compute_attn_ws") else 1
    )  # dropout first, in the others
    causal = bools[causal_index] if len(bools) > causal_index else ""
    direction = {"compute_attn_ws": "fwd", "flash_fwd_kernel": "fwd", "flash_fwd_splitkv_kernel": "fwd_splitkv"}
    return (_format_flash(direction.get(m["name"], "bwd"), m["hdim"], causal),)


def _name_flash3(m: Match) -> DisplayNames:
    return (_format_flash(m["direction"].lower(), m["hdim"], m["causal"]),)


def _name_cutlass3_template(m: Match) -> DisplayNames:
    schedule = re.search(r"Kernel\w*WarpSpecialized(Pingpong|Cooperative)", m[0])
    grouped_prefix = "grouped " if "GroupProblemShape" in m[0] else ""
    tile = f"{m['m']}x{m['n']}x{m['k']}"
    short = _join_words(f"{grouped_prefix}gemm", _TYPES_IN_CPP[m["type"]], tile)
    return short, _join_words(short, schedule and schedule[1])


def _name_cutlass3_stable(m: Match) -> DisplayNames:
    """Name a kernel of CUTLASS 3 by the name that baselines use."""
    short = _join_words("gemm", m["type"].lower(), m["tile"])
    schedule = re.search(r"Pingpong|Cooperative", m[0])
    return short, _join_words(short, schedule and schedule[0])


def _name_deep_gemm(m: Match) -> DisplayNames:
    return (f"{m['name']}<{m['n']}x{m['k']}>",)


def _name_igemm(m: Match) -> DisplayNames:
    return _join_words("igemm", m["direction"], m["layout"], m["type"], m["tile"]), m[0]


def _name_sdpa(m: Match) -> DisplayNames:
    short = _join_words("cudnn sdpa", m["direction"], m["tile"])
    return short, _join_words(short, m["arch"]), m[0]


def _make_template_namer(template: str) -> Callable[[Match], DisplayNames]:
    """Return a function that names a kernel by a template of the match's groups."""
    return lambda m: (m.expand(template),)


_TILE, _TILE3 = r"(?P<tile>\d+x\d+)", r"(?P<tile>\d+x\d+x\d+)"


def _make_cute_pattern(m: str = r"\d+", n: str = r"\d+", k: str = r"\d+") -> str:
    """Return the pattern of a shape of CuTe."""
    return f"cute::tuple<cute::C<{m}>, ?cute::C<{n}>, ?cute::C<{k}> ?>"


def _compile_rules(*rules: tuple[str, Callable[[Match], DisplayNames]]) -> tuple[NameRule, ...]:
    return tuple(NameRule(re.compile(pattern), make_names) for pattern, make_names in rules)


WORD_RULES = _compile_rules(
    (
        rf"cutlass_(?:\d+_)?(?:wmma_)?(?:tensorop|simt)_(?P<op>\w*?(?P<kind>{_KIND})\w*?)_{_TILE}"
        r"_(?P<depth>\d+)x(?P<stages>\d+)_(?P<layout>[tn]{2}|n\w*?hwc|nchw)(?P<rest>\w*)",
        _name_tensorop,
    ),
    (
        rf"cutlass3x_sm\d+_\w*?(?P<kind>{_KIND})_(?P<types>\w*?)_{_TILE3}_\d+x\d+x\d+_\d+_(?P<layout>[tn]{{3}})(?P<rest>\w*)",
        _name_cutlass3,
    ),
    (
        rf"sm\d+_xmma_(?P<kind>{_KIND})(?:_implicit_gemm)?(?P<indexed>_indexed)?_(?P<types>[a-z0-9]+)_\w*?"
        rf"(?:(?P<layout>[tn]{{2}})_n|nhwckrsc_(?P<conv>n\w+?))_tilesize{_TILE3}(?P<rest>\w*)",
        _name_xmma,
    ),
    (
        rf"(?:ampere|turing|volta|hopper|maxwell)_(?P<op>\w*?gemm\w*?)_{_TILE}_(?P<rest>\w*?)(?P<layout>[tn]{{2}})$",
        _name_cublas,
    ),
    (rf"nvjet_(?:sm\d+_)?[a-z]+_(?:mma_)?{_TILE}(?P<rest>\w*)_(?P<layout>[NT]{{3,4}})$", _name_nvjet),
    (
        rf"bmm_(?P<output>[A-Za-z0-9]+)_(?P<inputs>\w+?)_Fp32_\w*?t{_TILE3}\w*?_(?P<layout>[TN]{{2}})_(?P<rest>\w*)",
        _name_bmm,
    ),
    (
        rf"_?matmul_ogs_(?P<layout>[NT]{{3}})_(?P<output>[a-z0-9]+?)x(?P<inputs>[a-z0-9]+)_{_TILE3}x(?P<split>\d+)"
        r"(?P<rest>\w*)",
        _name_matmul_ogs,
    ),
    (
        r"fmhaSm\d+[a-z]?Kernel_Q(?:kv)?(?P<type>[A-Z]\w*?)O[A-Z]\w*?H(?:Qk)?(?P<hdim>\d+)\w*?"
        r"(?P<mask>SlidingOrChunkedCausal|Causal|Dense)\w*?(?P<phase>Context|ForGen)?$",
        _name_fmha_gen,
    ),
    (r"kernel_cutlass_[a-z0-9_]*(?P<class>[A-Z]\w*?)_object_at_", _make_template_namer(r"\g<class>")),
    (r"kernel_cutlass_(?P<function>\w+?)_(?:tensor|Tiled|CopyAtom)", _make_template_namer(r"\g<function>")),
    (rf"igemm_(?P<direction>fwd|bwd|wrw)_gtc\w*?_(?P<layout>n\w+?)_(?P<type>[a-z0-9]+)_\w*?bt{_TILE3}\w*", _name_igemm),
    (rf"cudnn_generated_fort_native_sdpa_(?P<arch>sm\d+)_flash_(?P<direction>[fb]prop)\w*?_{_TILE3}\w*", _name_sdpa),
    (r"cudnn_(?:infer|train)_(?P<name>\w+?)(?:_v\d+)?$", _make_template_namer(r"\g<name>")),
)
"""Rules that match a word of the name."""

TEMPLATE_RULES = _compile_rules(
    (r"\b(?P<product>C[a-z]+_A[a-z]+_B[a-z]+_[A-Z0-9]+)_\w*?(?P<tile>MT\d+x\d+x\d+)_?(?P<rest>\w*)", _name_tensile),
    (
        r"\b(?P<name>flash_fwd_kernel|flash_fwd_splitkv_kernel|compute_attn_ws|flash_bwd_dq_dk_dv\w*)"
        r"<[^<]*kernel_traits<(?P<hdim>\d+)[^>]*>(?P<rest>[^(]*)",
        _name_flash2,
    ),
    (
        rf"\bCollectiveMainloop(?P<direction>Fwd|Bwd)(?:Sm\d+)?<(?:\d+, )+{_make_cute_pattern()}, "
        rf"{_make_cute_pattern(k='(?P<hdim>[0-9]+)')}"
        r".*?cutlass::arch::Sm\d+, (?P<causal>true|false|[01])\b",
        _name_flash3,
    ),
    (
        r"\bGemmUniversal<.*?CollectiveMma<.*?>, "
        rf"{_make_cute_pattern('(?P<m>[0-9]+)', '(?P<n>[0-9]+)', '(?P<k>[0-9]+)')}, "
        rf"(?:cutlass::)?(?P<type>{'|'.join(_TYPES_IN_CPP)})\b",
        _name_cutlass3_template,
    ),
    # The same by the name that tells it in a baseline.
    (
        r"^device_kernel<[^>]*?(?P<tile>\d+x\d+x\d+), [^>]*?SM\d+_[\dx]+_[A-Z]*\d+(?P<type>B?F16|TF32|E[45]M[23])",
        _name_cutlass3_stable,
    ),
    (
        r"\bdeep_gemm::(?P<name>\w*?gemm\w*?)(?:_impl|_kernel)?<[^>]*?\b(?P<n>\d{2,})u?, (?P<k>\d{2,})u?\b",
        _name_deep_gemm,
    ),
    (r"\brocprim::.*?wrapped_(?P<what>\w+?)_config", _make_template_namer(r"rocprim \g<what>")),
)
"""Rules that match inside the brackets of a template, or a word of any length."""

# Characters of a name that are searched: what is told stands there, and a stranger's name takes no long.
SEARCHED_LENGTH = 2048

# Shorter words are of no library's kernel, and no pattern takes long on a word of this length.
_WORD = re.compile(r"\w{10,256}")
_MAX_SEARCHED_WORDS = 12


def find_library_names(name: str) -> DisplayNames:
    """Return display names for a kernel with this demangled name, the shortest first; empty if its library is
    unknown.
    """
    beginning = name[:SEARCHED_LENGTH]
    for word in islice(_WORD.finditer(beginning), _MAX_SEARCHED_WORDS):
        for pattern, make_names in WORD_RULES:
            if (match := pattern.match(word[0])) is not None:
                return make_names(match)
    for pattern, make_names in TEMPLATE_RULES:
        if (match := pattern.search(beginning)) is not None:
            return make_names(match)
    return ()
