"""What does an editor offer where a gate file is typed, and what does it say of each? Names, words and snippets.

A snippet is written into the file with its ``${1:…}`` as places to go through; its body is what a gate file may hold.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.windows.window_selection import MEDIAN, RUN, STEADY
from pytest_nsys.gates.convention_keys import AUTO

FOUND: Mapping[str, str] = {AUTO: "The convention and the anchor that the trace fits (default)."}
CONVENTIONS: Mapping[str, str] = {
    "pithtrain": "DualPipeV of PithTrain: chunks of forward and backward, stages stage1_f … stage5_b.",
    "generic": "Kernels and ranges of any program. Give it an anchor.",
    "kineto": "torch.profiler: the steps that it marks (ProfilerStep#%).",
    "torchtitan": "TorchTitan: FSDP and pipeline-parallel ranges as stages and purposes.",
    "jax": "JAX and XLA: the steps that the profiler marks.",
    "sglang": "SGLang: the steps that it labels, prefill and decode apart.",
    "vllm": "vLLM: the steps that it labels, prefill and decode apart.",
}
WINDOWS: Mapping[str, str] = {
    MEDIAN: "The anchor in the middle of all anchors (default).",
    RUN: "Everything that was recorded.",
    STEADY: "The middle half of the anchors; each row is the median over its windows.",
    "first": "The first anchor.",
    "last": "The last anchor.",
}
_DIMENSIONS = {
    "rank": "Number of a rank.",
    "stage": "Stage of the convention, such as stage3_f: exact, a prefix before _, or a glob.",
    "stream": "Number of a stream.",
    "purpose": "What a communication stream is for, such as ep_a2a.",
    "quantile": "p50, p90 or p99.",
    "block": "Pattern under blocks:.",
    "call": "Name of a call that makes the CPU wait, such as cudaStreamSynchronize.",
    "kernel": "Short name of a kernel.",
    "group": "Process group.",
    "collective": "Kind of collective, such as AllReduce.",
    "family": "Family of kernels, such as gemm.",
    "statistic": "median (unless said), mean, min or max over the kernels.",
    "producer": "What compute waited for: collective, copy, memset or compute.",
}
DIMENSIONS: Mapping[str, str] = {
    name: _DIMENSIONS.get(name, f"A {name}.") for metric in METRICS.values() for name in metric.dimensions
}
AXES: Mapping[str, str] = {
    "pp": "Pipeline parallel.",
    "dp": "Data parallel.",
    "cp": "Context parallel.",
    "ep": "Expert parallel.",
    "tp": "Tensor parallel.",
}
"""Mesh axes that are often there; any other name may be one, too."""


def offered(words: Mapping[str, str]) -> dict[str, Any]:
    """The only words of a key, each with what is said of it."""
    return {"enum": [*words], "enumDescriptions": [*words.values()]}


class Snippet(NamedTuple):
    """``body`` is text, or a mapping whose keys and values are written so."""

    label: str
    about: str
    body: Any


SENTENCES = (
    Snippet("a ratio at least …", "Judges every row of a stage.", "${1:stage3} ${2:overlap} >= ${3:60%}"),
    Snippet("a time at most …", "Judges every row.", "${1:step time} <= ${2:20ms}"),
    Snippet(
        "the time of a part of the program",
        "A module, an op, a range or a line of source; * stands for any.",
        "time of ${1:module} ${2:layers.*.attn} <= ${3:3ms}",
    ),
    Snippet("a time in a share of the step", "Over the window of each rank.", "${1:idle} <= ${2:10%} of step"),
    Snippet(
        "no slower than the baseline",
        "With the tolerance of this file.",
        "${1:exposed_ns} below baseline plus tolerance",
    ),
    Snippet(
        "no slower than the baseline by …",
        "The larger of a share and an amount.",
        "${1:window_ns} below baseline plus max(${2:5%}, ${3:100us})",
    ),
    Snippet(
        "a value that the program wrote down",
        "From measurements:, beside the trace or without one.",
        "measured ${1:peak_memory} <= ${2:72GiB}",
    ),
    Snippet("no …", "A time or a count that is zero in every row.", "no ${1:mixed comm streams}"),
    Snippet("no new kernels", "Every kernel is in the baseline, too.", "no new kernels"),
    Snippet(
        "no other large kernels",
        "Those with more of the time are as in the baseline.",
        "no new or vanished kernels above ${1:2%}",
    ),
    Snippet("a median over all rows", "One value of many.", "median ${1:overlap} >= ${2:60%}"),
    Snippet(
        "a balance", "Maximum over minimum across a mesh axis.", "balance of ${1:compute_ns} across ${2:pp} <= ${3:1.1}"
    ),
    Snippet(
        "aggregates in turn",
        "Of each stage the worst rank, and of those the median.",
        "median over ${1:stage} of max over ${2:rank} of ${3:overlap} >= ${4:60%}",
    ),
    Snippet(
        "the last runs of the history",
        "Holds rows against the median of runs in --nsys-history.",
        "${1:window_ns} <= last ${2:10} runs of ${3:main} + ${4:5%}",
    ),
    Snippet(
        "a percentile of the step", "p50, p90 or p99 of the period.", "${1:p50} period_ns below baseline plus ${2:5%}"
    ),
)
"""Sentences for the list of assertions."""

MAPPINGS = (
    Snippet(
        "a sentence with a name",
        "id names the test; where selects rows.",
        {"id": "${1:dispatch is hidden}", "assert": "${2:overlap >= 60%}", "where": {"${3:stage}": "${4:stage2_f}"}},
    ),
    Snippet(
        "one test for each stage",
        "for makes a test of each value.",
        {
            "id": "${1:exposure}",
            "assert": "${2:exposed_ns <= 2ms}",
            "for": {"stage": ["${3:stage2_f}", "${4:stage4_f}"]},
        },
    ),
)
"""Longer entries of the list of assertions."""

WAIVER = Snippet(
    "a waiver",
    "Rows that may stay outside their limit until a day.",
    {
        "assertion": "${1:name of the assertion}",
        "where": {"${2:stage}": "${3:stage2_f}"},
        "ceiling": "${4:3ms}",
        "expires": "${5:2027-01-31}",
        "reason": "${6:why}",
    },
)
FILE = Snippet(
    "a gate file",
    "What a gate file needs.",
    {"version": "1", "trace": "${1:run.sqlite}", "assertions": ["${2:no mixed comm streams}"]},
)
TOLERANCES = (
    Snippet("a share or an amount", "The larger of both counts.", {"rel": "${1:5%}", "abs": "${2:50us}"}),
    Snippet("a share", "Where no baseline is 0.", {"rel": "${1:5%}"}),
)
"""Two, because an editor writes a single one behind the key at once, and indents it wrongly in a list."""


def snippets(some: Iterable[Snippet]) -> list[dict[str, Any]]:
    """As editors read them."""
    return [{"label": each.label, "description": each.about, "body": each.body} for each in some]
