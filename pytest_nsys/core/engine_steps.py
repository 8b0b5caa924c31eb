"""How engines that serve requests label a step: the kind of its work, and how many tokens it works on."""

from __future__ import annotations

from typing import NamedTuple


class EngineStepKind(NamedTuple):
    """Describes a kind of step of an engine that serves requests, such as decode.

    The group ``tokens`` of the pattern is the work; if there are several (``tokens1`` …), their sum.
    """

    name: str
    anchor_pattern: str  # expression on the anchor's name


class StepWork(NamedTuple):
    """Holds what an anchor's name says of its step."""

    kind: str
    tokens: int | None  # how many tokens it works on, None: not said


_NO_REQUEST = r"0\([^()]*\)"
_REQUESTS = r"[1-9][0-9]*\((?:sq)?(?P<{}>[0-9]+)[^()]*\)"


def _make_vllm_kind(name: str, context: str, generation: str) -> EngineStepKind:
    return EngineStepKind(name, rf"execute_(?:[0-9]+_)?context_{context}_generation_{generation}")


VLLM_KINDS = (
    _make_vllm_kind("prefill", _REQUESTS.format("tokens"), _NO_REQUEST),
    _make_vllm_kind("decode", _NO_REQUEST, _REQUESTS.format("tokens")),
    _make_vllm_kind("mixed", _REQUESTS.format("tokens1"), _REQUESTS.format("tokens2")),
)
"""``execute_context_1(888)_generation_32(32)`` are requests, and in brackets tokens, of which ``annotate_profile`` of
vLLM's ``gpu_worker.py`` may tell more: ``execute_920_context_1(sq888sk888sqsq788544sqsk788544)_generation_32(sq32…)``
(vllm-project/vllm#37524). A step without a request is of no kind.
"""

SGLANG_KINDS = (
    EngineStepKind("prefill", r"step\[(?:EXTEND|SPLIT_PREFILL) bs=[0-9]+(?: toks=(?P<tokens>[0-9]+))?(?: [^]]*)?\]"),
    EngineStepKind("decode", r"step\[DECODE bs=(?P<tokens>[0-9]+)(?: [^]]*)?\]"),
    EngineStepKind(
        "mixed",
        r"step\[MIXED bs=[0-9]+(?: c=[0-9]+ g=[0-9]+ c_sq=(?P<tokens1>[0-9]+) .*?g_sq=(?P<tokens2>[0-9]+))?"
        r"(?: [^]]*)?\]",
    ),
    EngineStepKind("verify", r"step\[TARGET_VERIFY bs=[0-9]+(?: [^]]*)?\]"),
)
"""Modes of a forward pass (sgl-project/sglang#23419, and #24911 for what ``roofline_annotations`` adds). ``verify`` is
of a target model that decodes speculatively, and its label does not say how many tokens that accepts.
"""
