"""Which name, library, family and collective does a kernel have? Tables of names and globs, as data.

``void at::native::(anonymous namespace)::fill<4>(int, float*)`` is ``at::native::fill`` by its qualified name, and
``fill`` in short: that is how Nsight Systems shortens the demangled name.

``LIBRARIES`` are the kernels that communicate beside NCCL's. A glob of theirs is held against the qualified name of a
kernel (without return type, template arguments and parameters) from any namespace on, with case: so ``nvshmem*`` is
``nvshmemi_barrier`` and ``a::nvshmem::put``, and no kernel that has a parameter of NVSHMEM.

In a table of families the first one with a matching glob counts. In one that a user wrote a glob is held against the
demangled name as it is, and against the short one; of the built-in one ``family_table`` says how. What no family
matches is ``other``.

Each kind of collective has one name, NCCL's own: ``AllGather``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple

from pytest_nsys.core.family_table import FAMILY_TABLE, FUSED_WITH_COMMUNICATION, LIBRARY_PREFIX, XLA_ONLY_FAMILIES

_CLOSING_BY_OPENING = {"(": ")", "<": ">", "[": "]", "{": "}"}


# Inductor can make a hundred thousand names, and a cache that a run's names outgrow remembers none of them in turn.
NAME_CACHE_SIZE = 1 << 18


def extract_short_name(full: str) -> str:
    """Return a name without return type, namespaces, template arguments and parameters; as it is where it has none."""
    words = _list_outer_words(full)
    return words[-1].rsplit("::", 1)[-1] or full if words else full


def extract_qualified_name(full: str) -> str:
    """Return only the name with its namespaces; unchanged if it has no brackets."""
    words = _list_outer_words(full)
    return words[-1] if words else full


# What stands before the parameters, if no bracket in it is inside another: found in a tenth of the time that the
# characters one by one take.
_FLAT = re.compile(r"[^()<>\[\]{}]+(?:<[^()<>\[\]{}]*>[^()<>\[\]{}]*)*(?=\()")


def strip_parameters(full: str) -> str:
    """Return the name as it is but for its parameters: with return type, namespaces and template arguments."""
    text = _strip_anonymous(full)
    flat = _FLAT.match(text)
    return flat[0] if flat else text[: _find_parameters(text)[0]]


_ENUMERATOR = re.compile(r"E(?:0|\d{1,3}E[A-Z0-9_]*)")
_LITERAL = re.compile(r"L[a-z]n?\d+E|DF\d+[a-z]?|S[0-9A-Z]*_|\d+")


@lru_cache(maxsize=NAME_CACHE_SIZE)
def demangle_identifiers(mangled: str) -> str:
    """Return the identifiers of a mangled name as it would read demangled, with its template arguments. Any other name
    stays.

    Values of enumerators (``LNS_4KindE1E``) are among the arguments.
    """
    if not mangled.startswith("_Z"):
        return mangled
    parts: list[tuple[str, bool]] = []
    position, previous_end = 0, -1
    while match := _LITERAL.search(mangled, position):
        position = match.end()
        if match[0].isdecimal():
            # No identifier is longer than 5 digits can say: a stranger's name may have a number of any length.
            identifier_end = position + int(match[0][:5])
            if identifier_end > len(mangled):
                return mangled
            if _ENUMERATOR.fullmatch(mangled[match.start() - 1 : identifier_end]):
                parts.append((match[0], False))
                continue
            parts.append((mangled[position:identifier_end], match.start() == previous_end))
            position = previous_end = identifier_end
        elif match[0][0] == "L":
            parts.append((re.sub(r"\D", "", match[0]), False))
    words: list[str] = []
    for text, continues_previous in parts:
        if continues_previous and words:
            words[-1] += f"::{text}"
        else:
            words.append(text)
    if not words:
        return mangled
    first, *rest = words
    return f"{first}<{', '.join(rest)}>" if rest else first


def _strip_anonymous(full: str) -> str:
    """Return the name without the marks of anonymous namespaces."""
    return full.replace("(anonymous namespace)::", "").replace("{anonymous}::", "")


def _list_outer_words(full: str) -> list[str]:
    """List the words before the parameters, without what stands in brackets; none where nothing does."""
    text = _strip_anonymous(full)
    _, characters = _find_parameters(text)
    return [] if len(characters) == len(text) else "".join(characters).split()


def _find_parameters(text: str) -> tuple[int, list[str]]:
    """Return where the parameters begin, and the characters before that are in no bracket."""
    characters: list[str] = []
    open_brackets: list[str] = []
    for position, character in enumerate(text):
        if open_brackets:
            if character in _CLOSING_BY_OPENING:
                open_brackets.append(_CLOSING_BY_OPENING[character])
            elif character == open_brackets[-1]:
                open_brackets.pop()
        elif character == "(" and characters:
            return position, characters
        elif character in _CLOSING_BY_OPENING:
            open_brackets.append(_CLOSING_BY_OPENING[character])
        else:
            characters.append(character)
    return len(text), characters


class CommunicationLibrary(NamedTuple):
    """Describes a library whose kernels communicate, including those that only prepare or announce communication."""

    name: str
    globs: tuple[str, ...]


LIBRARIES = (
    CommunicationLibrary(
        "DeepEP",
        ("deep_ep::*", "dpsk::ep::*", "ep::internode*", "ep::intranode*", "internode_ll*", "intranode*"),
    ),
    CommunicationLibrary("HybridEP", ("hybrid_ep::*",)),
    CommunicationLibrary("NVSHMEM", ("nvshmem*",)),
    CommunicationLibrary("rocSHMEM", ("rocshmem*",)),
    CommunicationLibrary("MSCCL++", ("mscclpp*",)),
    CommunicationLibrary("UCCL", ("uccl*",)),
    # flash attention has a combine of its own
    CommunicationLibrary("pplx", ("pplx*::*dispatch*", "pplx*::*combine*", "a2a_dispatch_*", "a2a_combine_*")),
    CommunicationLibrary("MORI", ("mori::*", "EpDispatch*", "EpCombine*")),
    CommunicationLibrary("vLLM or sglang", ("*cross_device_reduce_*", "*quickreduce*", "sp_collective::*")),
    CommunicationLibrary("AITER", ("aiter::allgather_*", "aiter::reduce_scatter_*")),
    CommunicationLibrary(
        "TensorRT-LLM or FlashInfer",
        (
            *("*allreduce_fusion*", "*one[Ss]hotAll[Rr]educe*", "*two[Ss]hotAll[Rr]educe*", "lamport_*_all_reduce_*"),
            *("*moe_comm*", "moeA2A*", "mixed_comm::*"),
        ),
    ),
    CommunicationLibrary(
        "torch symmetric memory",
        ("one_shot_all_reduce*", "two_shot_all_reduce*", "multimem_*", "symmetric_memory::*"),
    ),
    CommunicationLibrary(
        "XLA",
        ("RaggedAllToAllKernelImpl*", "gpu::AllReduceKernelImpl*", "gpu::MultiGpuBarrierKernelImpl*"),
    ),
    CommunicationLibrary("TransformerEngine", ("*userbuffers*",)),
    CommunicationLibrary("oneCCL", ("*oneccl*",)),
    CommunicationLibrary("RCCL", ("rccl*", "mscclKernel_*")),  # what of it is not called as NCCL's kernels are
)
"""All known libraries. A library that is added changes the convention of its runs relative to their baselines."""


class LibraryMatch(NamedTuple):
    """Names the library of a kernel that communicates, and a glob that matches the demangled names of such kernels."""

    library: str
    glob: str


def _find_longest_literal(glob: str) -> str:
    """Return the longest text that every matching name contains, which is quick to search for in long kernel names."""
    return max(re.split(r"\[!?\]?[^]]*\]|[*?]", glob), key=len)


_MATCHERS = [
    (re.compile(rf"(?:.*::)?{translate(glob)}", re.DOTALL), _find_longest_literal(glob), name, glob)
    for name, globs in LIBRARIES
    for glob in globs
]


# Inductor puts the operators that it fuses into the name of its kernel, which is none of them.
_INDUCTOR_FUSED = re.compile(r"triton_[a-z]{3}_fused")


@lru_cache(maxsize=NAME_CACHE_SIZE)
def find_communication_library(short: str, full: str) -> LibraryMatch | None:
    """Return the known library of a kernel, by its short and its demangled name; None for NCCL's kernels, and for any
    other.
    """
    full = demangle_identifiers(full or short)
    names = f"{full}\n{short}"
    possible = [matcher for matcher in _MATCHERS if matcher[1] in names and not _INDUCTOR_FUSED.match(full)]
    path = extract_qualified_name(full) if possible else ""
    for matcher, _, library, glob in possible:
        if matcher.match(path):
            return LibraryMatch(library, f"*{glob.removeprefix('*')}")
    return None


_FUSED_WITH_COMMUNICATION = re.compile("|".join(map(translate, FUSED_WITH_COMMUNICATION)))
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_COLLECTIVE_WORDS = re.compile(r"(?<=_)(all|reduce)_(gather|reduce|scatter|to_all)(?=_)")


@lru_cache(maxsize=NAME_CACHE_SIZE)
def find_fused_communication(full: str) -> str:
    """Return the identifier in a kernel's name that says that it multiplies and communicates in one; empty without one.

    Its parameters do not count.
    """
    text = demangle_identifiers(full)
    identifiers = [] if _INDUCTOR_FUSED.match(text) else re.findall(r"\w+", strip_parameters(text))
    return next(filter(_is_fused, identifiers), "")


@lru_cache(maxsize=NAME_CACHE_SIZE)
def _is_fused(identifier: str) -> bool:
    """Whether an identifier names a product and a collective."""
    words = re.split(r"_+", _CAMEL.sub("_", identifier).lower())
    joined_words = _COLLECTIVE_WORDS.sub(lambda match: match[0].replace("_", ""), f"_{'_'.join(filter(None, words))}_")
    return _FUSED_WITH_COMMUNICATION.fullmatch(joined_words) is not None


OTHER_FAMILY = "other"
"""The family of a kernel that no family of the table matches."""


class Family(NamedTuple):
    """Describes kernels of one kind. ``patterns`` are shell globs, any of which may match."""

    name: str
    patterns: tuple[str, ...]


Families = tuple[Family, ...]

FAMILIES: Families = tuple(Family(row.family, row.globs) for row in FAMILY_TABLE)
"""The built-in table, which applies unless a gate file or a command gives its own."""


def list_family_names(families: Families) -> tuple[str, ...]:
    """List the families of a table in its order, ``other`` last."""
    return (*dict.fromkeys(family.name for family in families), OTHER_FAMILY)


def list_zero_families(families: Families, ran_families: Collection[str] = ()) -> tuple[str, ...]:
    """List the families that get a row of 0 if none of their kernels ran, in a run with kernels of ``ran_families``.

    Families of known libraries are left out: they were added later, and the baselines of all other runs lack their
    rows. So are families of the built-in table that only XLA has, if XLA did not compile the run.
    """
    without_row = {
        family.name for family in families if any(glob.startswith(LIBRARY_PREFIX) for glob in family.patterns)
    }
    if families == FAMILIES and XLA_ONLY_FAMILIES.isdisjoint(ran_families):
        without_row |= XLA_ONLY_FAMILIES
    return tuple(name for name in list_family_names(families) if name not in without_row)


@lru_cache(maxsize=4)  # a table is compiled in milliseconds, longer than most traces take
def make_classifier(families: Families) -> Callable[[str, str], str]:
    """Return a function from a kernel's (short name, demangled name) to its family; it remembers its results."""
    table = [
        (_find_longest_literal(pattern), re.compile(translate(pattern)).match, name)
        for name, patterns in families
        for pattern in patterns
    ]
    built_in = families == FAMILIES

    @lru_cache(maxsize=NAME_CACHE_SIZE)
    def classify(short: str, full: str) -> str:
        is_known = find_communication_library(short, full) is not None
        if built_in:
            short, full = short.lower(), strip_parameters(demangle_identifiers(full)).lower()
        library_name = LIBRARY_PREFIX + short if is_known else short
        names = f"{full}\n{library_name}"
        for text, matches, name in table:
            if text in names and (matches(full) or matches(short) or matches(library_name)):
                return name
        return OTHER_FAMILY

    return classify


OTHER_KIND = "Other"
"""The kind of a kernel that communicates but runs no known collective, such as one of DeepEP."""

# What a name holds when only its letters count; the first that it holds decides, so longer words stand before those in
# them.
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

COLLECTIVE_KINDS = tuple(dict.fromkeys(_SPELLINGS.values()))
_LETTERS = re.compile(r"[^a-z]+")


def find_collective_kind(name: str) -> str:
    """Return the kind of collective that a name implies; ``Other`` if none is known."""
    letters = _LETTERS.sub("", name.lower())
    return next((kind for spelling, kind in _SPELLINGS.items() if spelling in letters), OTHER_KIND)


def normalize_kind(text: str) -> str:
    """Return a selector's word in the spelling of the kinds: ``AllReduce`` for ``all_reduce``; any other word
    unchanged.
    """
    kinds = {kind.lower(): kind for kind in (*COLLECTIVE_KINDS, OTHER_KIND)}
    return kinds.get(_LETTERS.sub("", text.lower()), text)
