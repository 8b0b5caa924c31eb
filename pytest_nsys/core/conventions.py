"""How do frameworks name their steps, stages, streams and kernels? Conventions, as data.

There are three kinds of patterns, each where users expect it:

* range names and anchors: ``%`` is the only wildcard and matches anything; ``_`` is literal; case matters;
* kernel names, stages and every selector: shell globs;
* stage and setup expressions: regular expressions with named groups.

A file that states the convention of its rows holds it as a JSON object of its nonempty fields. The object may come from
somebody else's file: an impossible convention raises ValueError.
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache, partial
from typing import Any, NamedTuple

from pytest_nsys.core.engine_steps import SGLANG_KINDS, VLLM_KINDS, EngineStepKind, StepWork
from pytest_nsys.core.expressions import Expression
from pytest_nsys.core.families import FAMILIES, Families, Family, demangle_identifiers, find_communication_library
from pytest_nsys.core.model import KernelsMode, Setup, Span
from pytest_nsys.core.text_format import sanitize_line

NO_STAGE = "none"
"""Stage of a kernel that no stage range encloses."""

COMPUTE_PURPOSE = "compute"
MIXED_PURPOSE = "mixed"
UNKNOWN_PURPOSE = "unknown"
"""Purposes that no convention defines: of a compute stream, of disagreeing kernels, and of kernels without a known
purpose.
"""

# Maximum digits of a number in a setup label: traces are untrusted, and no rank or size has more.
MAX_NUMBER_DIGITS = 18

# A kernel whose short name starts so is communication, under every convention: NCCL and RCCL call theirs so. Case
# counts.
COMMUNICATION_PREFIX = "nccl"


class CopyKind(enum.StrEnum):
    """Names the copies that a convention may count as communication, by their source and destination.

    ``peer`` is from one GPU to another, ``collective`` any copy between or within GPUs that NCCL launched.
    """

    PEER = "peer"
    COLLECTIVE = "collective"
    HOST_TO_DEVICE = "host_to_device"
    DEVICE_TO_HOST = "device_to_host"
    DEVICE_TO_DEVICE = "device_to_device"


COPY_NAMES: Mapping[CopyKind, str] = {kind: f"[{kind.replace('_', ' ')} copy]" for kind in CopyKind}
"""The name of each kind of copy among kernels, whose own names never begin with a bracket."""


class ConventionMistake(ValueError):
    """Says what is wrong with an invalid convention mapping; ``key`` is the invalid key."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class KernelAnchor(NamedTuple):
    """Marks windows from one start of a kernel to the next, for traces in which no range marks a step.

    ``kernel`` and ``after`` are exact names, short or demangled. Only the first kernel of a launch counts, in the order
    of launches; with ``after``, only if that kernel is the one launched directly before it.
    """

    kernel: str
    after: str | None = None

    def __str__(self) -> str:
        return f"{KERNEL_ANCHOR_PREFIX}{self.kernel}" + (f" after {self.after}" if self.after is not None else "")


KERNEL_ANCHOR_PREFIX = "kernel "
"""The prefix of a kernel anchor as text, and so of the names of its windows."""

Anchor = str | KernelAnchor
"""What repeats once per unit of steady work: the pattern of a range, or a kernel."""


YAML_ANCHOR = re.compile(
    r"""\s*(\{.*|\[.*\]|(["']).*\2|[-+]?[0-9.]+|true|false|null|~|kernel:\s.*)\s*""", re.DOTALL | re.IGNORECASE
)
"""Matches ``--anchor`` texts that are read as in a gate file: no name, or a quoted one. Any other text is a literal
name.
"""


def format_anchor(anchor: Anchor) -> str:
    """Format an anchor in the syntax of commands and gate files."""
    if isinstance(anchor, str):
        return json.dumps(anchor, ensure_ascii=False) if YAML_ANCHOR.fullmatch(anchor) else anchor
    members = ((key, value) for key, value in anchor._asdict().items() if value is not None)
    return "{" + ", ".join(f"{key}: {_quote_in_braces(value)}" for key, value in members) + "}"


def _quote_in_braces(name: str) -> str:
    """Quote a name for YAML inside of braces, unless it is a plain word."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{4,}", name) else json.dumps(name, ensure_ascii=False)


class Purpose(NamedTuple):
    """Says what a communication stream is for, by globs on its kernels' stages and patterns on the names of their
    ranges.
    """

    name: str
    stages: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Convention:
    """Describes one framework's naming.

    Every field but ``name`` is part of the fingerprint, except the usual families; ``libraries`` is part of it only if
    it makes a difference.
    """

    name: str
    # What repeats once per unit of steady work: a range's pattern, or a kernel; None: unknown.
    anchor: Anchor | None = None
    # Expression of the setup label: group ``rank``, for each mesh axis ``X`` and ``X_size``, and ``micro_batch``,
    # ``sequence_length``.
    setup: str | None = None
    stage: str | None = None  # Expression whose group ``stage`` is the stage; its last match in a range's name counts.
    purposes: tuple[Purpose, ...] = ()
    communication: tuple[str, ...] = ()  # Globs on the demangled names of kernels that communicate besides NCCL's.
    libraries: bool = False  # Whether the kernels of all known communication libraries communicate.
    span: Span = Span.RANGE
    kernels: KernelsMode = KernelsMode.CONTAINED
    families: Families = FAMILIES  # The table that kernels are counted by.
    copies: tuple[CopyKind, ...] = ()  # Kinds of copies that are communication, too, in the order of CopyKind.
    # Kinds of steps, which are never in one median; an anchor is of the first that fits its name.
    kinds: tuple[EngineStepKind, ...] = ()
    part: bool = False  # Whether an anchor is a part of a step, as a chunk is, and no step.

    def __post_init__(self) -> None:
        if self.stage is not None and "stage" not in _compile_expression("stage", self.stage).groups:
            raise ConventionMistake("stage", "the stage expression needs a group named 'stage': (?P<stage>…)")
        for kind in self.kinds:
            _compile_expression("kinds", kind.anchor_pattern)
        if self.setup is not None and "rank" not in _compile_expression("setup", self.setup).groups:
            raise ConventionMistake("setup", "the setup expression needs a group named 'rank': (?P<rank>[0-9]+)")

    @property
    def range_anchor(self) -> str | None:
        """The pattern of the range that is the anchor; None if a kernel is, or nothing."""
        return self.anchor if isinstance(self.anchor, str) else None

    @property
    def kernel_anchor(self) -> KernelAnchor | None:
        """The kernel that is the anchor; None if a range is, or nothing."""
        return self.anchor if isinstance(self.anchor, KernelAnchor) else None

    @property
    def marks_parts(self) -> bool:
        """Whether a step has several anchors, according to this convention or to a built-in one with the same
        anchor.
        """
        return self.part or self.anchor in PART_ANCHORS

    @property
    def purpose_names(self) -> tuple[str, ...]:
        """Every purpose that a communication stream can have under this convention."""
        return (*(p.name for p in self.purposes), MIXED_PURPOSE, UNKNOWN_PURPOSE)

    @property
    def mesh_axes(self) -> tuple[str, ...]:
        """Axes that the setup label states: the groups ``X`` of its expression for which there is also an
        ``X_size``.
        """
        groups = re.compile(self.setup or "").groupindex
        return tuple(group for group in groups if f"{group}_size" in groups)

    @property
    def setup_pattern(self) -> str | None:
        """A range-name pattern that matches at least the setup labels: the literal start of the expression."""
        if self.setup is None:
            return None
        literal = re.match(r"[A-Za-z0-9 _=;:,/#@-]*", self.setup)
        prefix = literal[0] if literal else ""
        # A quantifier after the literal makes its last character optional; an alternative anywhere, all of it.
        if self.setup[len(prefix) :][:1] in ("?", "*", "{"):
            prefix = prefix[:-1]
        return ("" if "|" in self.setup else prefix) + "%"

    def with_anchor(self, anchor: Anchor | None) -> Convention:
        """Return the convention with another anchor if one is given, and without kinds, which belong to its own
        anchor's names.
        """
        return self if anchor in (None, self.anchor) else dataclasses.replace(self, anchor=anchor, kinds=(), part=False)

    def compute_fingerprint(self, library_names: Collection[str] = ()) -> str:
        """Return a short hash of everything that changes what is measured; the name alone does not.

        ``library_names`` are the libraries whose kernels ran and count as communication only because of ``libraries``:
        if there are none, extending the table of libraries changes nothing.
        """
        facts = {key: value for key, value in encode_convention(self).items() if key not in ("name", "libraries")}
        facts |= {"libraries": sorted(library_names)} if library_names else {}
        facts |= {"part": True} if self.marks_parts else {}
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]

    def parse_setup(self, name: str) -> Setup | None:
        """Parse a range's name as a setup label; return None if it is not one."""
        if self.setup is None:
            return None
        match = _compile_expression("setup", self.setup).fullmatch(name)
        if match is None:
            return None
        groups = match.groupdict(default="").items()
        numbers = {key: int(text) for key, text in groups if text.isdecimal() and len(text) <= MAX_NUMBER_DIGITS}
        if "rank" not in numbers:
            return None
        sizes = {key.removesuffix("_size"): n for key, n in numbers.items() if key.endswith("_size")}
        return Setup(
            text=name,
            rank=numbers["rank"],
            coordinates={axis: numbers[axis] for axis in sizes if axis in numbers},
            sizes=sizes,
            micro_batch=numbers.get("micro_batch"),
            sequence_length=numbers.get("sequence_length"),
        )

    @property
    def kind_names(self) -> tuple[str, ...]:
        """The words for kinds of steps."""
        return tuple(kind.name for kind in self.kinds)

    def parse_step(self, name: str) -> StepWork | None:
        """Parse an anchor's name into the kind of its step and its work; return None for a step of no kind."""
        for kind in self.kinds:
            if (match := _compile_expression("kinds", kind.anchor_pattern).fullmatch(name)) is not None:
                token_texts = [text for group, text in match.groupdict().items() if group.startswith("tokens")]
                token_counts = [
                    int(text) for text in token_texts if text is not None and len(text) <= MAX_NUMBER_DIGITS
                ]
                return StepWork(
                    kind.name, sum(token_counts) if token_counts and len(token_counts) == len(token_texts) else None
                )
        return None

    def make_stage_and_purpose_parser(self) -> Callable[[str], tuple[str, str | None] | None]:
        """Return a function from a range's name to its (stage, purpose), which is None for a name that says nothing.

        Setup labels and the names of NCCL's own ranges say nothing. The result is remembered per name.
        """
        stage = _compile_expression("stage", self.stage) if self.stage is not None else None
        ranges = [(p.name, make_pattern_matcher(pattern)) for p in self.purposes for pattern in p.ranges]
        stages = [(p.name, pattern) for p in self.purposes for pattern in p.stages]

        @lru_cache(maxsize=65536)
        def read_context(name: str) -> tuple[str, str | None] | None:
            """Return the stage and purpose that a range of this name gives, None where it says nothing."""
            if name.startswith(COMMUNICATION_PREFIX):
                return None
            stage_name = (stage.find_last_group(name, "stage") if stage is not None else None) or NO_STAGE
            purpose = next((p for p, matches in ranges if matches(name)), None)
            if purpose is None and stage_name != NO_STAGE:
                purpose = next((p for p, pattern in stages if fnmatch.fnmatchcase(stage_name, pattern)), None)
            is_silent = (stage_name == NO_STAGE and purpose is None) or self.parse_setup(name) is not None
            return None if is_silent else (stage_name, purpose)

        return read_context

    def is_communication(self, short_name: str, full_name: str) -> bool:
        """Return whether a kernel communicates: by its name, or as one of a known library if these count."""
        if self.is_named_communication(short_name, full_name):
            return True
        return self.libraries and find_communication_library(short_name, full_name) is not None

    def is_named_communication(self, short_name: str, full_name: str) -> bool:
        """Return whether a kernel has NCCL's prefix in its short name, matches a glob of the convention, or is a copy
        that counts.
        """
        if short_name.startswith(COMMUNICATION_PREFIX) or any(short_name == COPY_NAMES[kind] for kind in self.copies):
            return True
        names = (full_name, demangle_identifiers(full_name))
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.communication for name in names)


@lru_cache(maxsize=1024)
def _compile_expression(key: str, expression: str) -> Expression:
    try:
        return Expression(key, expression, is_trusted=expression in _TRUSTED_EXPRESSIONS)
    except re.error as error:
        raise ConventionMistake(key, f"not a regular expression: {error}") from error


@lru_cache(maxsize=1024)
def make_pattern_matcher(*patterns: str) -> Callable[[str], bool]:
    """Return a function that says whether a range's name matches one of the ``%`` patterns."""
    matcher = re.compile("|".join(map(_translate_pattern, patterns)), re.DOTALL)
    return lambda name: matcher.fullmatch(name) is not None


def _translate_pattern(pattern: str) -> str:
    """Translate a ``%`` pattern into a regular expression."""
    first, *rest = (re.escape(part) for part in pattern.split("%"))
    # The first place of each part in the middle will do: to look for others as well takes for ever.
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return first + middle + "".join(f".*{part}" for part in rest[-1:])


_PITHTRAIN_SETUP = (
    r"rank=(?P<rank>\d+); "
    + " ".join(rf"{axis}=(?P<{axis}>\d+)/(?P<{axis}_size>\d+)" for axis in ("pp", "dp", "cp", "ep"))
    + r"; mbs=(?P<micro_batch>\d+) seq=(?P<sequence_length>\d+)"
)

_TORCH_STEP = "ProfilerStep#%"
"""The pattern of the ranges with which ``torch.profiler`` itself marks steps."""

# What the reader calls a range of JAX that has a step number: its name, and the number.
_JAX_STEP = "% step_num=%"

# The built-in expressions need no timer.
_TRUSTED_EXPRESSIONS = frozenset({_PITHTRAIN_SETUP, *(kind.anchor_pattern for kind in (*VLLM_KINDS, *SGLANG_KINDS))})

# Kernels of AMD's library that do not keep NVIDIA's names, as most of them do. Named here since before the table of
# libraries: the fingerprint of baselines has it.
_COLLECTIVE_LIBRARIES = ("rccl*",)

_launched_convention = partial(
    Convention, communication=_COLLECTIVE_LIBRARIES, libraries=True, kernels=KernelsMode.LAUNCHED
)
"""The settings that frameworks have in common whose CPU is ahead of the GPU."""

BUILT_IN_CONVENTIONS: Mapping[str, Convention] = {
    c.name: c
    for c in (
        Convention(
            name="pithtrain",
            anchor="forward chunk%backward chunk%",
            part=True,
            setup=_PITHTRAIN_SETUP,
            stage=r"(?P<stage>stage[1-5]_[fbw])",
            purposes=(
                Purpose("ep_a2a", stages=("stage2_*", "stage4_*")),
                Purpose("cp_ring", stages=("stage1_*",)),
                Purpose("pp_p2p", ranges=("pipeline send/recv",)),
            ),
        ),
        Convention(name="generic", libraries=True),
        _launched_convention(name="kineto", anchor=_TORCH_STEP),
        _launched_convention(
            name="torchtitan",
            anchor=_TORCH_STEP,
            stage=r"FSDP::(?P<stage>[a-z_]+)",
            purposes=(
                Purpose("fsdp_all_gather", stages=("all_gather",)),
                Purpose("fsdp_reduce", stages=("post_backward_reduce",)),
                Purpose("pp_p2p", ranges=("PP:%SEND%", "PP:%RECV%")),
            ),
        ),
        _launched_convention(name="jax", anchor=_JAX_STEP),
        _launched_convention(name="sglang", anchor="step[%]", kinds=SGLANG_KINDS),
        _launched_convention(name="vllm", anchor="execute_%context_%_generation_%", kinds=VLLM_KINDS),
    )
}

STEP_KIND_NAMES = tuple(
    dict.fromkeys(word for convention in BUILT_IN_CONVENTIONS.values() for word in convention.kind_names)
)
"""The words that mean a kind of steps under some built-in convention."""

MESH_AXES = tuple(dict.fromkeys(axis for convention in BUILT_IN_CONVENTIONS.values() for axis in convention.mesh_axes))
"""The axes that setup labels can state under some built-in convention."""

PART_ANCHORS = frozenset(c.anchor for c in BUILT_IN_CONVENTIONS.values() if c.part)
"""Anchors that occur several times per step, so that their period is not a step's length."""


def describe_convention(convention: Convention) -> str:
    """Describe a convention by its name and its anchor."""
    anchor = f", anchor '{sanitize_line(format_anchor(convention.anchor), 80)}'" if convention.anchor else ""
    return f"{convention.name}{anchor}"


def encode_convention(convention: Convention) -> dict[str, Any]:
    """Encode a convention as JSON: only fields that differ from their default."""
    members: dict[str, Any] = {}
    for field in fields(convention):
        value = getattr(convention, field.name)
        if field.default is MISSING or value != field.default:
            members[field.name] = _ENCODERS.get(field.name, _keep_value)(value)
    return members


def decode_convention(content: object) -> Convention:
    """Decode a convention from a JSON object. Raises ValueError for an invalid one."""
    if not isinstance(content, Mapping) or not isinstance(content.get("name"), str):
        raise ValueError("a convention is an object with a name")
    unknown = content.keys() - {field.name for field in fields(Convention)}
    if unknown:
        raise ValueError(f"a convention has no '{sorted(unknown)[0]}'")
    try:
        return Convention(**{key: _DECODERS[key](value) for key, value in content.items()})
    except (TypeError, AttributeError, KeyError, RecursionError, OverflowError) as error:
        raise ValueError("it holds no convention that could have been written") from error


def _keep_value(value: Any) -> Any:
    return value


def _check_type(kind: Any, value: Any) -> Any:
    """Return the value. Raises TypeError where it is of another type."""
    if not isinstance(value, kind):
        raise TypeError
    return value


def _check_texts(value: Any) -> tuple[str, ...]:
    return tuple(_check_type(str, text) for text in _check_type(list, value))


def _decode_anchor(value: Any) -> Anchor | None:
    if not isinstance(value, Mapping):
        anchor: str | None = _check_type(str | None, value)
        return anchor
    kernel = KernelAnchor(**{key: _check_type(str, text) for key, text in value.items()})
    if "" in kernel:
        raise TypeError
    return kernel


def _encode_anchor(anchor: Anchor) -> Any:
    if isinstance(anchor, str):
        return anchor
    return {key: value for key, value in anchor._asdict().items() if value is not None}


_ENCODERS: Mapping[str, Callable[[Any], Any]] = {
    "purposes": lambda purposes: {p.name: {"stages": list(p.stages), "ranges": list(p.ranges)} for p in purposes},
    "anchor": _encode_anchor,
    "kinds": lambda kinds: {kind.name: kind.anchor_pattern for kind in kinds},
    "communication": list,
    "copies": lambda copies: [str(kind) for kind in copies],
    "families": lambda families: {family.name: list(family.patterns) for family in families},
    "span": str,
    "kernels": str,
}
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("name", "setup", "stage"), partial(_check_type, str | None)),
    "anchor": _decode_anchor,
    "kinds": lambda value: tuple(EngineStepKind(name, _check_type(str, anchors)) for name, anchors in value.items()),
    "purposes": lambda value: tuple(
        Purpose(name, _check_texts(globs["stages"]), _check_texts(globs["ranges"])) for name, globs in value.items()
    ),
    "communication": _check_texts,
    **dict.fromkeys(("libraries", "part"), partial(_check_type, bool)),
    "span": Span,
    "kernels": KernelsMode,
    "families": lambda value: tuple(Family(name, _check_texts(globs)) for name, globs in value.items()),
    "copies": lambda value: tuple(map(CopyKind, _check_texts(value))),
}
