"""Which collective does a name stand for? Each kind has one name, NCCL's own: ``AllGather``."""

from __future__ import annotations

import re

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


def kind_of(name: str) -> str:
    """The collective that a name stands for, ``Other`` where none is known."""
    letters = _LETTERS.sub("", name.lower())
    return next((kind for spelling, kind in _SPELLINGS.items() if spelling in letters), OTHER)


def spelt(text: str) -> str:
    """A selector's word as the kinds are spelt: ``AllReduce`` for ``all_reduce``; any other word as it is."""
    kinds = {kind.lower(): kind for kind in (*KINDS, OTHER)}
    return kinds.get(_LETTERS.sub("", text.lower()), text)
