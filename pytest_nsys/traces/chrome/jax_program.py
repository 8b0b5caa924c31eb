"""What does a trace of JAX say of each kernel: its path of modules, its op of XLA, its line of source, its pass?

XLA keeps the path of names that JAX traced an operation under, as in
``jit(step)/transpose(jvp(Model))/layers_3/attn/dot_general``: transformations wrap the names that they were applied to,
and the last element is the primitive. ``transpose`` of a ``jvp`` is the backward pass, and ``rematted_computation`` is
the forward pass again. What XLA or JAX puts into the path to call a function or to loop is no module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Raw

from pytest_nsys.core.model import NO_LAUNCH
from pytest_nsys.core.scopes import Direction
from pytest_nsys.core.tables import KernelKey, KernelOrigin
from pytest_nsys.traces.chrome.events import convert_to_ns, parse_whole_number
from pytest_nsys.traces.chrome.json_stream import EventStream, JsonStruct
from pytest_nsys.traces.chrome.kineto_metadata import replace_surrogates
from pytest_nsys.traces.chrome.rank_labels import parse_rank_label

TextOrNumber = int | str


class JaxPathArgs(JsonStruct, frozen=True):
    """Holds what is read of the ``args`` of a kernel, as far as it tells nothing of a machine; XProf writes numbers as
    text.
    """

    correlation_id: TextOrNumber | None = None
    name: TextOrNumber | None = None
    hlo_op: TextOrNumber | None = None
    hlo_module: TextOrNumber | None = None


class JaxProgramArgs(JaxPathArgs, frozen=True):
    """Holds what is read of the ``args`` of a kernel, paths of files too."""

    tf_op: TextOrNumber | None = None
    source: TextOrNumber | None = None


class JaxProgramEvent(JsonStruct, frozen=True):
    """Describes one event, as far as it tells of a kernel's origin."""

    ARGS = JaxProgramArgs

    ph: str = "M"
    pid: TextOrNumber = ""
    ts: Raw = Raw()
    args: JaxProgramArgs | None = None


_WRAPPED = re.compile(r"([A-Za-z_]\w*)\((.*)\)\Z", re.DOTALL)
_JIT = frozenset({"jit", "pjit", "pmap", "xmap"})
_JITTED = "jit_"
_TRANSPOSED, _DIFFERENTIATED = "transpose", "jvp"
_TRANSFORMATIONS = frozenset({*_JIT, _TRANSPOSED, _DIFFERENTIATED, "vmap", "vjp", "remat", "checkpoint", "shard_map"})
_REMATERIALIZED = "rematted_computation"
_NO_MODULES = re.compile(
    r"(?:while|body|cond|body_fun|cond_fun|branch_\d+_fun|scan|remat\d?|checkpoint|rematted_computation|"
    r"closed_call|core_call|custom_jvp_call|custom_vjp_call|custom_vjp_call_jaxpr|pjit|xla_call|shard_map|"
    r"custom_partitioning)\Z"
)
_OP_NUMBER = re.compile(r"(?:\.\d+)+\Z")
_SOURCE_LINE = re.compile(r"(.+):(\d+)\Z")
XLA_NAME = re.compile(
    r"::|\A(?:PjitFunction\(|PJRT_|CommonPjRt|ParseArguments|XlaModule|Thunk|ExecuteGraph)|:XLA \w+ module\Z"
)
"""Matches the spans that JAX and XLA mark themselves on the host: no program named them."""
_INSTALLED = re.compile(r"(?:site|dist)-packages/|\A<")


def strip_op_number(hlo_op: str) -> str:
    """Return the name of an op of XLA without its number, which is another one each time XLA compiles."""
    return _OP_NUMBER.sub("", hlo_op)


def _split_path(path: str) -> Iterator[str]:
    """Yield the elements of a path; a slash inside parentheses separates none."""
    element, depth = "", 0
    for character in path:
        depth += (character == "(") - (character == ")")
        if character == "/" and depth <= 0:
            yield element
            element = ""
        else:
            element += character
    yield element


@lru_cache(1 << 14)
def parse_jax_path(path: str) -> tuple[tuple[str, ...], Direction]:
    """Return the modules of a path, the jitted function first, and the pass that it belongs to."""
    modules: list[str] = []
    transformations: set[str] = set()
    elements = [*_split_path(path.strip())]
    # The last one is the primitive, except of what is the jitted function alone.
    for element in elements[:-1] if len(elements) > 1 else elements:
        name = element
        while (match := _WRAPPED.match(name)) is not None and match[1] in _TRANSFORMATIONS:
            transformations.add(match[1])
            name = match[2]
        if element == _REMATERIALIZED:
            transformations.add(_REMATERIALIZED)
        if name and _NO_MODULES.match(name) is None:
            modules.append(name)
    if _REMATERIALIZED in transformations:
        return tuple(modules), Direction.RECOMPUTE
    if _TRANSPOSED in transformations:
        return tuple(modules), Direction.BACKWARD
    return tuple(modules), Direction.FORWARD if _DIFFERENTIATED in transformations else Direction.NONE


def _is_path(value: object) -> bool:
    return isinstance(value, str) and _WRAPPED.match(value.partition("/")[0]) is not None


@lru_cache(1 << 14)
def _build_origin(path: str | None, hlo_op: str | None, hlo_module: str | None, source: str | None) -> KernelOrigin:
    modules, direction = parse_jax_path(path) if path is not None else ((), None)
    if path is None and hlo_module is not None and hlo_module.startswith(_JITTED):
        modules = (hlo_module.removeprefix(_JITTED),)  # of what XLA made itself only the jitted function is known
    line = _SOURCE_LINE.match(source) if source is not None and _INSTALLED.search(source) is None else None
    return KernelOrigin(
        module_path=modules or None,
        op=strip_op_number(hlo_op) if hlo_op else None,
        source=f"{line[1]}({line[2]})" if line is not None else None,
        direction=direction,
    )


def read_jax_origins(path: Path) -> Mapping[str, Mapping[KernelKey, KernelOrigin]]:
    """Read the origin of each kernel by the label of its process, by correlation and start.

    Raises TraceError for a file that cannot be read.
    """
    origins_by_label: dict[str, dict[KernelKey, KernelOrigin]] = {}
    for events in EventStream(path, JaxProgramEvent):
        for event in events:
            args = event.args
            if args is None or event.ph != "X" or (args.hlo_op is None and args.source is None):
                continue
            correlation = parse_whole_number(args.correlation_id)
            try:
                key = NO_LAUNCH if correlation is None or correlation < 0 else correlation, convert_to_ns(event.ts)
            except ValueError:
                continue
            # ``tf_op`` has the path in some versions, in others a word for the kind of program.
            path_text = next(
                (replace_surrogates(str(value)) for value in (args.name, args.tf_op) if _is_path(value)), None
            )
            texts = (
                str(text) if isinstance(text, str) else None for text in (args.hlo_op, args.hlo_module, args.source)
            )
            origin = _build_origin(path_text, *texts)
            origins_by_label.setdefault(parse_rank_label(event.pid), {})[key] = origin
    return origins_by_label
