"""How is a kernel called on a screen? Short enough for a column, and different from those beside it.

What a person calls the kernels of a library ``display_name_rules`` knows. Any other name loses its return type,
parameters, namespaces and template arguments. What then says nothing by itself (``elementwise_kernel``, ``kentry``)
keeps the first of its arguments that does: ``elementwise<Mul>``. Names that would read alike get their arguments back,
first the type, and where that is not enough their namespaces. A mangled name is read as far as its identifiers go.

Two runs are compared by :func:`make_stable_name`, which does not depend on what is beside a kernel; rows of metrics by
:func:`make_row_name`, which is that where the short name says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import compress, groupby

from pytest_nsys.core.display_name_rules import find_library_names
from pytest_nsys.core.families import demangle_identifiers, extract_short_name
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.text_format import sanitize_line

# Characters of a name, unless somebody has less room.
DISPLAY_NAME_WIDTH = 56

MIN_DISPLAY_WIDTH = 12
ELLIPSIS = "…"
# Characters of a name that are read: honest ones are far shorter.
_MAX_READ_LENGTH = 1 << 16

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
# What stands in template arguments and is the same in most kernels of a library.
_SCAFFOLD = re.compile(
    r"gpu_kernel_impl\w*|[Aa]rray|lambda\d*|operator|const|void|decltype|typename|TensorIteratorBase|T\d+|"
    r"ReduceOp|func_wrapper_t|__nv_h?dl_\w+"
)

# Which lambda of a function: a number that another lambda above it raises. Of a tag of nvcc all but that is kept.
_INSTANCE = re.compile(r"\(instance \d+\)|#\d+|(?P<tag>__nv_dl_tag<[^<>]*(?:<[^<>]*>[^<>]*)*), \d+u?(?=>)")


_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|_GLOBAL__N_\w*|_INTERNAL_\w+)::")
# A matrix product of AMD's libraries: which one, and by which tile; the rest is how it was tuned.
_TENSILE = re.compile(r"(C[a-z]+_A[a-z]+_B[a-z]+_[A-Z]+)_\w*?(MT\d+x\d+x\d+)_.*")

_OPENING_BRACKETS, _CLOSING_BRACKETS = "(<[{", ")>]}"

_HEX_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_GENERATED = re.compile(r"triton_|.*fusion|wrapped_")
_ORDINAL = re.compile(r"(?:[._]\d+(?:d\w*)?)+(?=$|\.kd$)")

# What only starts the kernel that its argument names.
_ENTRY = re.compile(r"(?:[Dd]evice_?)?[Kk]ernel(?:Ex|\d*)|kentry|_?kernel_agent|trampoline_kernel")

# What a stable name has first of a kernel of CUTLASS: how it is scheduled, and no name.
_SCHEDULES = ("Pingpong", "Cooperative")

# What stands around the name of an operation of PyTorch.
_OPERATION_AFFIX = re.compile(
    r"^CUDAFunctor_|^launch_|(?:_?[Ff]unctor|_?[Oo]ps|_kernel_cuda|_kernel_impl|_kernel|_impl|_cuda|(?:CUDA)?KernelImpl|CUDAKernel)$"
)

_SCALAR = re.compile(r"\b(?P<first>AUnaryFunctor<)|\b(?P<second>BUnaryFunctor<|CUDAFunctorOnSelf_)")
_OPERANDS = re.compile(r"\b(?:Binary|AUnary|BUnary|Unary)Functor<")
_DTYPE = re.compile(
    r"\b(?:float|double|long|int|bool|char|[Hh]alf|b?float16_t|BFloat16|__half|__nv_bfloat16)\b(?! ?[:(])"
)
_PATH_ALONE = re.compile(r"[\w:]+")

# What CUTLASS says around what tells its kernels apart.
_LAYOUT = re.compile(
    r"Collective\w+|MMA_Atom|TiledMMA|\w*Layout|Underscore|Swizzle|smem_ptr_flag_bits|identity|ScaleIn|Major|Params|"
    r"SM\d+_TMA_\w+|[01](?:x[01])*"
)
_DIGEST = re.compile(r"id[0-9a-f]{6}")
_STRIDES = re.compile(r"(?:x[01])+$")
# What CUTLASS puts before how a kernel is scheduled.
_SCHEDULE = re.compile(r"(?:Mainloop|Kernel|Sm\d+)\w*WarpSpecialized")

# Characters of a stable name: of 150 kernels of one template a baseline keeps no more than a few pages.
STABLE_NAME_LENGTH = 160


@lru_cache(maxsize=65_536)
def make_plain_name(short: str) -> str:
    """Return a kernel's short name without addresses, and without the running number of a generated one."""
    name = _HEX_ADDRESS.sub("0x", short)
    return (_ORDINAL.sub("", name) or name) if _GENERATED.match(name) else name


@lru_cache(maxsize=65_536)
def make_row_name(short: str, full: str) -> str:
    """Return a kernel's name in the rows of metrics: its plain name, or the stable one if the plain one says
    nothing.
    """
    return make_stable_name(full) if full and _SAYS_NOTHING.fullmatch(short) else make_plain_name(short)


@lru_cache(maxsize=65_536)
def make_stable_name(full: str) -> str:
    """Return the name by which a kernel is found in two runs and in a baseline: the same whatever runs beside it.

    It is the plain name and the names and numbers of its template arguments, which tell 150 ``device_kernel`` apart;
    without namespaces (but that of a kernel which an entry starts), parameters, and what differs from build to build.
    What is longer than STABLE_NAME_LENGTH loses words of layout and repeated ones, is cut in the middle, and ends in a
    digest of it all.
    """
    short, inside = _split_name(full[:_MAX_READ_LENGTH])[1:]
    plain = make_plain_name(short)
    words = (_ENTRY.fullmatch(short) and _find_namespace_path(inside)) or _join_tokens(inside)
    whole = sanitize_line(f"{plain}<{words}>" if words else plain, _MAX_READ_LENGTH)
    if len(whole) <= STABLE_NAME_LENGTH:
        return whole
    mark = f"{ELLIPSIS}id{sha256(whole.encode('utf-8', 'surrogateescape')).hexdigest()[:6]}"
    if product := _TENSILE.fullmatch(whole):
        return f"{product[1]}{ELLIPSIS}{product[2]}{mark}"
    head, end = (f"{plain}<{_shorten_words(words.split(', '))}", ">") if words else (plain, "")
    return f"{shorten_middle(head, STABLE_NAME_LENGTH - len(mark) - len(end))}{mark}{end}"


def _shorten_words(words: Sequence[str]) -> str:
    """Join the words that tell kernels apart, each once, with numbers in a row as one: ``128x256x64``."""
    distinctive = (_SCHEDULE.sub("", word) for word in words if not _WRAPPER.fullmatch(word))
    runs = (
        [_STRIDES.sub("", "x".join(run))] if is_number else run
        for is_number, run in groupby(distinctive, str.isdecimal)
    )
    return ", ".join(dict.fromkeys(word for run in runs for word in run if word and not _LAYOUT.fullmatch(word)))


def _split_name(name: str) -> tuple[str, str, str]:
    """Split a name into how it is spelled demangled, its short form, and its template arguments."""
    plain = _UNNAMED.sub("", demangle_identifiers(name))
    short = extract_short_name(plain)
    position = plain.find(f"{short}<")
    return plain, short, _CAST.sub("", _extract_brackets(plain, position + len(short))) if position >= 0 else ""


def make_display_names(names: Collection[str], width: int = DISPLAY_NAME_WIDTH) -> dict[str, str]:
    """Return a display name for each name (demangled, or as in the trace), all of them distinct.

    None has more than ``width`` characters (at least 12), or characters that control a terminal.
    """
    width = max(width, MIN_DISPLAY_WIDTH)
    forms = {name: list(_list_name_forms(name[:_MAX_READ_LENGTH], name)) for name in dict.fromkeys(names)}
    form_index = dict.fromkeys(forms, 0)
    while alike := _group_alike({name: forms[name][index] for name, index in form_index.items()}):
        longer = [name for group in alike for name in group if form_index[name] + 1 < len(forms[name])]
        if not longer:
            break
        for name in longer:
            form_index[name] += 1
    full_forms = {name: forms[name][index] for name, index in form_index.items()}
    display_names = {name: shorten_middle(text, width) for name, text in full_forms.items()}
    heads = {name: text.partition("<")[0] for name, text in full_forms.items()}
    with_arguments = (n for n, text in full_forms.items() if len(text) > width or forms[n][0] == heads[n] != text)
    for group in group_by_key((heads[name], name) for name in with_arguments).values():
        display_names |= (
            zip(group, _shorten_template_names([full_forms[name] for name in group], width), strict=True)
            if len(group) > 1
            else ()
        )
    for group in _group_alike(display_names):
        display_names |= zip(group, _shorten_distinctly([full_forms[name] for name in group], width), strict=True)
    return _number_duplicates(display_names, width)


def match_display_name(text: str, names: Collection[str]) -> list[str]:
    """List the names whose display name among all is ``text``; else those that may have that display name elsewhere.

    Elsewhere means among fewer names, at a smaller width, or in a baseline.
    """
    exact_matches = [name for name, display_name in make_display_names(names).items() if display_name == text]
    return exact_matches or [name for name in names if _can_be_called(text, name)]


def _can_be_called(text: str, name: str) -> bool:
    head, ellipsis, end = text.partition(ELLIPSIS)
    forms = (make_stable_name(name), *_list_name_forms(name[:_MAX_READ_LENGTH], name))
    is_cut = ellipsis and head and end
    return text in forms or bool(is_cut and any(form.startswith(head) and form.endswith(end) for form in forms))


def _group_alike(display_names: dict[str, str]) -> list[list[str]]:
    """Group the names that are called alike; names called by one name alone are left out."""
    return [
        group for group in group_by_key((text, name) for name, text in display_names.items()).values() if len(group) > 1
    ]


@lru_cache(maxsize=4096)
def _list_name_forms(text: str, whole: str) -> tuple[str, ...]:
    """List what a name may be called, the shortest first; the last is all of it."""
    plain = sanitize_line(text, _MAX_READ_LENGTH)
    full_name, short, inside = _split_name(text)
    forms = [*find_library_names(_CAST.sub("", full_name))]
    if not forms:
        is_silent = inside and _SAYS_NOTHING.fullmatch(short)
        forms = _name_by_argument(short, inside) if is_silent else [short.removesuffix(".kd")]
    if inside:
        forms += [f"{short}<{_join_tokens(inside)}>", f"{short}<{inside}>"]
    return tuple(
        dict.fromkeys(sanitize_line(form, _MAX_READ_LENGTH) for form in (*forms, plain, whole) if form.strip())
    ) or (plain,)


def _name_by_argument(short: str, inside: str) -> list[str]:
    """List names for a kernel whose own name says nothing, from the template argument that says what it computes."""
    names = (match for match in _NAME.finditer(inside) if not _WRAPPER.fullmatch(match[0]))
    operation = next(names, None)
    if operation is not None and operation[0] in _SCHEDULES:
        return [short]
    if _ENTRY.fullmatch(short):
        return list(_list_entry_names(operation, inside)) or [short]
    outer = _OPERATION_AFFIX.sub("", short) or short
    if operation is None:
        return [outer]
    operation_name = _OPERATION_AFFIX.sub("", _OPERATION_AFFIX.sub("", operation[0])) or operation[0]
    if scalar := _SCALAR.search(inside):
        operation_name = (
            f"scalar {operation_name}"
            if scalar["first"]
            else f"{operation_name.removeprefix('CUDAFunctorOnSelf_')} scalar"
        )
    operands = _OPERANDS.search(inside)
    sizes = re.match(r"(?:\d+(?:, )?)*", inside)
    details = (
        *_DTYPE.findall(inside, operands.end() if operands else operation.end())[:1],
        *re.findall(r"\d+", sizes[0] if sizes else ""),
    )
    instance = re.findall(r"(?:instance |#)(\d+)", inside)[-1:]
    variants = [
        [operation_name],
        [operation_name, *details[:1]],
        [operation_name, *details],
        [f"{operation_name} #{instance[0]}" if instance else operation_name, *details],
    ]
    return [f"{outer}<{', '.join(parts)}>" for parts in variants]


def _list_entry_names(operation: re.Match[str] | None, inside: str) -> Iterator[str]:
    """Yield names for the kernel that an entry starts: its own name, then with what stands around it."""
    if operation is not None:
        yield operation[0]
    if path := _find_namespace_path(inside):
        yield path
    if operation is not None and (arguments := _join_tokens(inside[operation.end() :])):
        yield f"{operation[0]}<{arguments}>"


def _find_namespace_path(inside: str) -> str:
    """Return a name without arguments of its own, with its innermost namespace; empty where it has none."""
    path = inside.split("::") if _PATH_ALONE.fullmatch(inside) else []
    return "::".join(path[-2:]) if len(path) > 1 else ""


def _extract_brackets(text: str, opening: int) -> str:
    """Return what stands between the bracket at ``opening`` and the one that closes it; the rest where none does."""
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] in _OPENING_BRACKETS) - (text[position] in _CLOSING_BRACKETS)
        if not depth:
            return text[opening + 1 : position].strip()
    return text[opening + 1 :].strip()


def _join_tokens(inside: str) -> str:
    """Join numbers and names of template arguments in their order, without namespaces."""
    words = (match[1] or match[0] for match in _TOKEN.finditer(_INSTANCE.sub(r"\g<tag>", inside)))
    return ", ".join(word for word in words if not _SCAFFOLD.fullmatch(word))


def shorten_middle(text: str, width: int) -> str:
    """Shorten a text to at most ``width`` characters: it keeps the beginning and the end, where names mostly differ."""
    if len(text) <= width:
        return text
    # Two fifths for the beginning: ends differ more often.
    head = (width - 1) * 2 // 5
    return f"{text[:head]}{ELLIPSIS}{text[head + 1 - width :]}"


def _shorten_template_names(texts: Sequence[str], width: int) -> list[str]:
    """Shorten texts of one template to the first arguments that tell them apart, of those that differ.

    Where texts have different numbers of arguments, those count that others lack.
    """
    short = texts[0].partition("<")[0]
    arguments = [text[len(short) :].strip("<>").split(", ") for text in texts]
    if len({*map(len, arguments)}) == 1:
        is_distinctive = [len({*column}) > 1 for column in zip(*arguments, strict=True)]
        distinctive = [[*compress(own_arguments, is_distinctive)] for own_arguments in arguments]
    else:
        common = set.intersection(*map(set, arguments))
        distinctive = [
            [argument for argument in own_arguments if argument not in common] for own_arguments in arguments
        ]
    distinct_texts = [*texts]
    for argument_count in range(1, max(map(len, distinctive)) + 1):
        candidates = [_add_arguments(short, own_arguments[:argument_count]) for own_arguments in distinctive]
        if len({*candidates}) == len(candidates):
            distinct_texts = candidates
            break
    texts_in_width = [
        text if len(text) <= width else distinct_text
        for text, distinct_text in zip(distinct_texts, _shorten_distinctly(distinct_texts, width), strict=True)
    ]
    return [
        fitted_text if texts_in_width.count(fitted_text) == 1 else shorten_middle(text, width)
        for fitted_text, text in zip(texts_in_width, texts, strict=True)
    ]


def _add_arguments(short: str, arguments: Sequence[str]) -> str:
    telling_arguments = [argument for argument in arguments if not _DIGEST.fullmatch(argument)]
    return f"{short}<{', '.join(telling_arguments)}>" if telling_arguments else short


def _shorten_distinctly(texts: Sequence[str], width: int) -> Iterator[str]:
    """Yield texts that read alike where they are cut: each with its beginning, and from where they differ on."""
    # What the least and the greatest share, all share.
    first, last = min(texts), max(texts)  # what these two share all share
    shared_length = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    head = min(shared_length, (width - 2) // 3)
    for text in texts:
        rest = text[shared_length:]
        room = width - head - 1
        yield f"{text[:head]}{ELLIPSIS}{rest if len(rest) <= room else rest[: room - 1] + ELLIPSIS}"


def _number_duplicates(display_names: dict[str, str], width: int) -> dict[str, str]:
    """Add a number to each display name that another has already."""
    used: set[str] = set()
    unique_names: dict[str, str] = {}
    for name, text in display_names.items():
        number, unique = 1, text
        while unique in used:
            number += 1
            mark = f" ({number})"
            unique = f"{text[: width - len(mark)]}{mark}"
        used.add(unique)
        unique_names[name] = unique
    return unique_names
