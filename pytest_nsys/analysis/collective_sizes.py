"""What kind of collective is it, how large is its message, and how much of that crosses the network?

Profilers and libraries spell a collective in many ways (``_allgather_base``, ``ncclDevKernel_AllGather_RING_LL``,
``all-gather-start``); here each has one name, NCCL's own: ``AllGather``. The factors are those of nccl-tests.
"""

from __future__ import annotations

import re
from fractions import Fraction

from pytest_nsys.core.model import Collective

OTHER = "Other"
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

DTYPE_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8"), 1),
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float8_e8m0fnu"), 1),
    "Float4_e2m1fn_x2": 1,
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(("Float", "Int", "UInt32", "QInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Double", "Long", "UInt64", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
"""Bytes of an element by c10's name of its type."""

_WHOLE_MESSAGE = ("AllGather", "ReduceScatter")
"""Their message is what all ranks together give or get: the larger side."""


def kind_of(name: str) -> str:
    """The collective that a name stands for, ``Other`` where none is known."""
    letters = _LETTERS.sub("", name.lower())
    return next((kind for spelling, kind in _SPELLINGS.items() if spelling in letters), OTHER)


def spelt(text: str) -> str:
    """A selector's word as the kinds are spelt: ``AllReduce`` for ``all_reduce``; any other word as it is."""
    kinds = {kind.lower(): kind for kind in (*KINDS, OTHER)}
    return kinds.get(_LETTERS.sub("", text.lower()), text)


def message_bytes(kind: str, collective: Collective) -> int | None:
    """Bytes of the message; None where the type of its elements is unknown, or their number is not recorded."""
    size = DTYPE_BYTES.get(collective.dtype or "")
    given, got = collective.in_elements, collective.out_elements
    if kind in _WHOLE_MESSAGE:
        elements = None if given is None or got is None else max(given, got)
    elif kind == "SendRecv":
        elements = max((n for n in (given, got) if n is not None), default=None)
    else:
        elements = given
    return None if size is None or elements is None else size * elements


def bus_factor(kind: str, group_size: int | None) -> Fraction | None:
    """What the bandwidth of the message is multiplied by to be that of the links; None where there is no such factor.

    A group of one rank sends nothing.
    """
    if kind in ("SendRecv", "Broadcast", "Reduce"):
        return Fraction(1)
    if group_size is None or group_size < 1:
        return None
    share = Fraction(group_size - 1, group_size)
    if kind == "AllReduce":
        return 2 * share
    return share if kind in ("AllGather", "ReduceScatter", "AllToAll", "Gather", "Scatter") else None
