"""What is a kernel called on a screen? Short enough for a column, and told apart from those beside it.

What a person calls the kernels of a library ``spoken_names`` knows. Any other name loses its return type, parameters,
namespaces and template arguments. What then says nothing by itself (``elementwise_kernel``, ``kentry``) keeps the first
of its arguments that does: ``elementwise<Mul>``. Names that would read alike get their arguments back, first the type,
and where that is not enough their namespaces. A mangled name is read as far as its identifiers go.

Two runs are held against each other by :func:`telling_name`, which does not depend on what is beside a kernel; rows of
metrics by :func:`row_name`, which is that where the short name says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import compress, groupby

from pytest_nsys.core.families import short_name, spelled
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.spoken_names import spoken
from pytest_nsys.core.words import printable

WIDTH = 56
"""Of a name, in characters, unless somebody has less room."""

LEAST_WIDTH = 12
CUT = "…"
_LONGEST = 1 << 16
"""Of a name that is looked into: honest ones are far shorter."""

_SAYS_NOTHING = re.compile(
    r".*elementwise_kernel.*|(?:[Dd]evice_?)?[Kk]ernel(?:Ex|\d*)|kentry|reduce_kernel|multi_tensor_apply_kernel|"
    r".*DeviceReduce.*|_?kernel_agent|trampoline_kernel|for_each.*|parallel_for|launch_\w*kernel|"
    r"kernel_(?:\w+_)?(?:xdl|wmma|(?:moe|mx|grouped|batched)_gemm)\w*"
)
_WRAPPER = re.compile(
    r"gpu_kernel_impl\w*|[Aa]rray|lambda|instance|operator|const|unnamed|anonymous|void|decltype|nullptr|typename|"
    r"(?:un)?signed|u?int(?:\d+(?:_t)?)?|long|short|char|bool|float\d*(?:_t)?|double|half|size_t|"
    r"Half|BFloat16|\w*b?float16_t|tfloat32_t|__(?:half|nv_bfloat16)|"
    r"TensorIteratorBase|(?:Unary|Binary|AUnary|BUnary)Functor|ReduceOp|func_wrapper_t|TensorListMetadata\w*|"
    r"Gemm(?:Kernel|Universal)?|[Kk]ernel|tuple|C|integral_constant|std|T\d+|gfx\w+|__\w+"
)
"""What stands in template arguments around the name that says what is computed."""

_NAME = re.compile(r"\b[A-Za-z_]\w*(?!\w*\s*::)")
_CAST = re.compile(r"\((?:int|bool|unsigned int|long|unsigned long|char|short)\)\s*(?=[-\d])")
_TOKEN = re.compile(r"(?<!\w)(?:\d+(?:x\d+)+\b|(-?\d+(?:\.\d+)?)(?:[uU]?[lL]{0,2}\b)?|[A-Za-z_]\w*(?!\w*\s*::))")
_SCAFFOLD = re.compile(
    r"gpu_kernel_impl\w*|[Aa]rray|lambda\d*|operator|const|void|decltype|typename|TensorIteratorBase|T\d+|"
    r"ReduceOp|func_wrapper_t|__nv_h?dl_\w+"
)
"""What stands there and is the same in most kernels of a library."""

_INSTANCE = re.compile(r"\(instance \d+\)|#\d+|(?P<tag>__nv_dl_tag<[^<>]*(?:<[^<>]*>[^<>]*)*), \d+u?(?=>)")
"""Which lambda of a function: a number that another lambda above it raises. Of a tag of nvcc all but that is kept."""


_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|_GLOBAL__N_\w*|_INTERNAL_\w+)::")
_TENSILE = re.compile(r"(C[a-z]+_A[a-z]+_B[a-z]+_[A-Z]+)_\w*?(MT\d+x\d+x\d+)_.*")
"""A matrix product of AMD's libraries: which one, and by which tile; the rest is how it was tuned."""

_OPENING, _CLOSING = "(<[{", ")>]}"

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_GENERATED = re.compile(r"triton_|.*fusion|wrapped_")
_ORDINAL = re.compile(r"(?:[._]\d+(?:d\w*)?)+(?=$|\.kd$)")

_ENTRY = re.compile(r"(?:[Dd]evice_?)?[Kk]ernel(?:Ex|\d*)|kentry|_?kernel_agent|trampoline_kernel")
"""What only starts the kernel that its argument names."""

_SCHEDULES = ("Pingpong", "Cooperative")
"""What a telling name has first of a kernel of CUTLASS: how it is scheduled, and no name."""

_AROUND = re.compile(
    r"^CUDAFunctor_|^launch_|(?:_?[Ff]unctor|_?[Oo]ps|_kernel_cuda|_kernel_impl|_kernel|_impl|_cuda|(?:CUDA)?KernelImpl|CUDAKernel)$"
)
"""What stands around the name of an operation of PyTorch."""

_SCALAR = re.compile(r"\b(?P<first>AUnaryFunctor<)|\b(?P<second>BUnaryFunctor<|CUDAFunctorOnSelf_)")
_OPERANDS = re.compile(r"\b(?:Binary|AUnary|BUnary|Unary)Functor<")
_DTYPE = re.compile(
    r"\b(?:float|double|long|int|bool|char|[Hh]alf|b?float16_t|BFloat16|__half|__nv_bfloat16)\b(?! ?[:(])"
)
_PLAIN = re.compile(r"[\w:]+")

_LAYOUT = re.compile(
    r"Collective\w+|MMA_Atom|TiledMMA|\w*Layout|Underscore|Swizzle|smem_ptr_flag_bits|identity|ScaleIn|Major|Params|"
    r"SM\d+_TMA_\w+|[01](?:x[01])*"
)
_DIGEST = re.compile(r"id[0-9a-f]{6}")
_STRIDES = re.compile(r"(?:x[01])+$")
_SCHEDULE = re.compile(r"(?:Mainloop|Kernel|Sm\d+)\w*WarpSpecialized")
"""What CUTLASS says around what tells its kernels apart, and what it puts before how one is scheduled."""

TELLING = 160
"""Of a telling name, in characters: of 150 kernels of one template a baseline keeps no more than a few pages."""


@lru_cache(maxsize=65_536)
def plain_name(short: str) -> str:
    """A kernel's short name without addresses, and without the running number of a generated one (Triton, XLA)."""
    name = _ADDRESS.sub("0x", short)
    return (_ORDINAL.sub("", name) or name) if _GENERATED.match(name) else name


@lru_cache(maxsize=65_536)
def row_name(short: str, full: str) -> str:
    """What a kernel is called in the rows of metrics: its plain name, or the telling one where that says nothing."""
    return telling_name(full) if full and _SAYS_NOTHING.fullmatch(short) else plain_name(short)


@lru_cache(maxsize=65_536)
def telling_name(full: str) -> str:
    """What a kernel is known by in two runs, and in a baseline: the same whatever runs beside it.

    The plain name and the names and numbers of its template arguments, which tell 150 ``device_kernel`` apart; without
    namespaces (but that of a kernel which an entry starts), parameters, and what differs from build to build. What is
    longer than TELLING loses words of layout and repeated ones, is cut in the middle, and ends in a digest of it all.
    """
    short, inside = _parted(full[:_LONGEST])[1:]
    plain = plain_name(short)
    words = (_ENTRY.fullmatch(short) and _path(inside)) or _tokens(inside)
    found = printable(f"{plain}<{words}>" if words else plain, _LONGEST)
    if len(found) <= TELLING:
        return found
    mark = f"{CUT}id{sha256(found.encode('utf-8', 'surrogateescape')).hexdigest()[:6]}"
    if product := _TENSILE.fullmatch(found):
        return f"{product[1]}{CUT}{product[2]}{mark}"
    head, end = (f"{plain}<{_briefly(words.split(', '))}", ">") if words else (plain, "")
    return f"{in_the_middle(head, TELLING - len(mark) - len(end))}{mark}{end}"


def _briefly(words: Sequence[str]) -> str:
    """The words that tell, each once, with numbers in a row as one: ``128x256x64``."""
    telling = (_SCHEDULE.sub("", word) for word in words if not _WRAPPER.fullmatch(word))
    runs = (
        [_STRIDES.sub("", "x".join(own))] if is_number else own for is_number, own in groupby(telling, str.isdecimal)
    )
    return ", ".join(dict.fromkeys(word for own in runs for word in own if word and not _LAYOUT.fullmatch(word)))


def _parted(name: str) -> tuple[str, str, str]:
    """A name as it is spelled demangled, its short form, and its template arguments."""
    plain = _UNNAMED.sub("", spelled(name))
    short = short_name(plain)
    at = plain.find(f"{short}<")
    return plain, short, _CAST.sub("", _enclosed(plain, at + len(short))) if at >= 0 else ""


def readable_names(names: Collection[str], width: int = WIDTH) -> dict[str, str]:
    """What each of these names (demangled, or as the trace has it) is called beside the others.

    No two are called alike, and none has more than ``width`` characters (at least 12) or any that commands a terminal.
    """
    width = max(width, LEAST_WIDTH)
    forms = {name: list(_forms(name[:_LONGEST], name)) for name in dict.fromkeys(names)}
    chosen = dict.fromkeys(forms, 0)
    while alike := _alike({name: forms[name][at] for name, at in chosen.items()}):
        longer = [name for own in alike for name in own if chosen[name] + 1 < len(forms[name])]
        if not longer:
            break
        for name in longer:
            chosen[name] += 1
    found = {name: forms[name][at] for name, at in chosen.items()}
    called = {name: in_the_middle(text, width) for name, text in found.items()}
    heads = {name: text.partition("<")[0] for name, text in found.items()}
    with_arguments = (n for n, text in found.items() if len(text) > width or forms[n][0] == heads[n] != text)
    for own in grouped((heads[name], name) for name in with_arguments).values():
        called |= zip(own, _of_template([found[name] for name in own], width), strict=True) if len(own) > 1 else ()
    for own in _alike(called):
        called |= zip(own, _told_apart([found[name] for name in own], width), strict=True)
    return _numbered(called, width)


def called_so(text: str, names: Collection[str]) -> list[str]:
    """Those of the names that a screen calls so beside the others; else those that may be called so, by fewer beside
    them, in less room, or in a baseline.
    """
    beside = [name for name, called in readable_names(names).items() if called == text]
    return beside or [name for name in names if _may_be_called(text, name)]


def _may_be_called(text: str, name: str) -> bool:
    head, cut, end = text.partition(CUT)
    forms = (telling_name(name), *_forms(name[:_LONGEST], name))
    is_cut = cut and head and end
    return text in forms or bool(is_cut and any(each.startswith(head) and each.endswith(end) for each in forms))


def _alike(called: dict[str, str]) -> list[list[str]]:
    """The names that are called alike, together."""
    return [own for own in grouped((text, name) for name, text in called.items()).values() if len(own) > 1]


@lru_cache(maxsize=4096)
def _forms(text: str, whole: str) -> tuple[str, ...]:
    """What a name may be called, the shortest first; the last is all of it."""
    plain = printable(text, _LONGEST)
    demangled, short, inside = _parted(text)
    found = [*spoken(_CAST.sub("", demangled))]
    if not found:
        silent = inside and _SAYS_NOTHING.fullmatch(short)
        found = _of_argument(short, inside) if silent else [short.removesuffix(".kd")]
    if inside:
        found += [f"{short}<{_tokens(inside)}>", f"{short}<{inside}>"]
    return tuple(dict.fromkeys(printable(each, _LONGEST) for each in (*found, plain, whole) if each.strip())) or (
        plain,
    )


def _of_argument(short: str, inside: str) -> list[str]:
    """What a kernel is called that says nothing without the argument that tells what it computes."""
    names = (match for match in _NAME.finditer(inside) if not _WRAPPER.fullmatch(match[0]))
    what = next(names, None)
    if what is not None and what[0] in _SCHEDULES:
        return [short]
    if _ENTRY.fullmatch(short):
        return list(_of_entry(what, inside)) or [short]
    outer = _AROUND.sub("", short) or short
    if what is None:
        return [outer]
    said = _AROUND.sub("", _AROUND.sub("", what[0])) or what[0]
    if scalar := _SCALAR.search(inside):
        said = f"scalar {said}" if scalar["first"] else f"{said.removeprefix('CUDAFunctorOnSelf_')} scalar"
    operands = _OPERANDS.search(inside)
    sizes = re.match(r"(?:\d+(?:, )?)*", inside)
    more = (
        *_DTYPE.findall(inside, operands.end() if operands else what.end())[:1],
        *re.findall(r"\d+", sizes[0] if sizes else ""),
    )
    which = re.findall(r"(?:instance |#)(\d+)", inside)[-1:]
    told = [[said], [said, *more[:1]], [said, *more], [f"{said} #{which[0]}" if which else said, *more]]
    return [f"{outer}<{', '.join(each)}>" for each in told]


def _of_entry(what: re.Match[str] | None, inside: str) -> Iterator[str]:
    """What the kernel is called that an entry starts: by its own name, then with what stands around it."""
    if what is not None:
        yield what[0]
    if path := _path(inside):
        yield path
    if what is not None and (own := _tokens(inside[what.end() :])):
        yield f"{what[0]}<{own}>"


def _path(inside: str) -> str:
    """A name without arguments of its own, with its innermost namespace; empty where it is no such, or has none."""
    path = inside.split("::") if _PLAIN.fullmatch(inside) else []
    return "::".join(path[-2:]) if len(path) > 1 else ""


def _enclosed(text: str, at: int) -> str:
    """What stands between the bracket at ``at`` and the one that closes it; all to the end where none does."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in _OPENING) - (text[place] in _CLOSING)
        if not depth:
            return text[at + 1 : place].strip()
    return text[at + 1 :].strip()


def _tokens(inside: str) -> str:
    """Numbers and names of template arguments in their order, without namespaces."""
    words = (match[1] or match[0] for match in _TOKEN.finditer(_INSTANCE.sub(r"\g<tag>", inside)))
    return ", ".join(word for word in words if not _SCAFFOLD.fullmatch(word))


def in_the_middle(text: str, width: int) -> str:
    """A text of at most ``width`` characters: of one that is too long the beginning and the end, where what differs
    mostly stands.
    """
    if len(text) <= width:
        return text
    head = (width - 1) * 2 // 5
    return f"{text[:head]}{CUT}{text[head + 1 - width :]}"


def _of_template(texts: Sequence[str], width: int) -> list[str]:
    """Texts of one template: by the first arguments that tell them apart, of those that differ; where texts have not as
    many, of those that others lack.
    """
    short = texts[0].partition("<")[0]
    arguments = [text[len(short) :].strip("<>").split(", ") for text in texts]
    if len({*map(len, arguments)}) == 1:
        differ = [len({*each}) > 1 for each in zip(*arguments, strict=True)]
        rest = [[*compress(own, differ)] for own in arguments]
    else:
        shared = set.intersection(*map(set, arguments))
        rest = [[each for each in own if each not in shared] for own in arguments]
    told = [*texts]
    for many in range(1, max(map(len, rest)) + 1):
        some = [_with(short, own[:many]) for own in rest]
        if len({*some}) == len(some):
            told = some
            break
    cut = [whole if len(whole) <= width else apart for whole, apart in zip(told, _told_apart(told, width), strict=True)]
    return [one if cut.count(one) == 1 else in_the_middle(text, width) for one, text in zip(cut, texts, strict=True)]


def _with(short: str, arguments: Sequence[str]) -> str:
    told = [each for each in arguments if not _DIGEST.fullmatch(each)]
    return f"{short}<{', '.join(told)}>" if told else short


def _told_apart(texts: Sequence[str], width: int) -> Iterator[str]:
    """Texts that read alike where they are cut: the beginning, and from where they differ on."""
    first, last = min(texts), max(texts)  # what these two share all share
    shared = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    head = min(shared, (width - 2) // 3)
    for text in texts:
        rest = text[shared:]
        room = width - head - 1
        yield f"{text[:head]}{CUT}{rest if len(rest) <= room else rest[: room - 1] + CUT}"


def _numbered(called: dict[str, str], width: int) -> dict[str, str]:
    """The same, with a number where two are alike all the same."""
    taken: set[str] = set()
    found: dict[str, str] = {}
    for name, text in called.items():
        number, own = 1, text
        while own in taken:
            number += 1
            mark = f" ({number})"
            own = f"{text[: width - len(mark)]}{mark}"
        taken.add(own)
        found[name] = own
    return found
