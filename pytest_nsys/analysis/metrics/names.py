"""Which metric does a user mean? By its name, by its name without the unit, or by a word that is no metric's name.

A blank stands for an underscore. ``exposed`` is ``exposed_ns``: a name may lack its unit if exactly one metric fits,
and if the rest is neither a metric nor a dimension. ``throughput`` depends on the unit that follows. Only full names
are stored and printed.

A word that people bring from other tools is answered with a sentence to write.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_nsys.analysis.fact_bounds import DEFAULT_BOUNDS, find_fact_unit
from pytest_nsys.analysis.metrics.registry import (
    MEASURED_WORD,
    METRICS,
    OF_STEP_SUFFIX,
    Metric,
    find_metric,
    make_step_share,
)
from pytest_nsys.core.errors import suggest_word
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import BANDWIDTH, BARE, COUNT, HASH, MEGAHERTZ, RATIO, SAMPLE_RATE, SIZE, TIME, TOKEN_RATE

_ENDINGS = ("_ns", "_bytes", "_mhz", "_per_s")


def _collect_unitless_names() -> dict[str, str]:
    dimensions = {dimension for metric in METRICS.values() for dimension in metric.dimensions}
    stems = group_by_key(
        (name.removesuffix(ending), name) for name in METRICS for ending in _ENDINGS if name.endswith(ending)
    )
    reserved_names = {*METRICS, *dimensions}
    # A stem of two metrics is ambiguous; one that is a name means the metric of that name.
    return {stem: names[0] for stem, names in stems.items() if len(names) == 1 and stem not in reserved_names}


UNITLESS_NAMES: Mapping[str, str] = _collect_unitless_names()
"""Maps each metric name without its unit to the metric."""

METRICS_BY_UNIT: Mapping[str, Mapping[str, str]] = {
    "throughput": {TOKEN_RATE: "tokens_per_s", SAMPLE_RATE: "samples_per_s"}
}
"""Maps words that several metrics share to the metric for each unit of a limit."""


def resolve_metric(name: str) -> Metric | None:
    """Return the metric that a name means; None for an unknown name."""
    if (metric := find_metric(name)) is not None:
        return metric
    base = name.removesuffix(OF_STEP_SUFFIX)
    full_name = UNITLESS_NAMES.get("_".join(base.split()), "")
    return find_metric(full_name + name[len(base) :])


FIRST_GATE_QUESTIONS: Mapping[str, str] = {
    metric.name: metric.question for metric in METRICS.values() if metric.question
}
"""Lists the ten metrics that a first gate needs, with the question that each answers: how long a step takes, what makes
it longer, and whether it is the same step.
"""

_EXAMPLE_LIMITS: Mapping[tuple[str, str | None], str] = {
    (RATIO, "higher"): ">= 60%",
    (RATIO, "lower"): "<= 5%",
    (RATIO, None): "<= 40%",
    (COUNT, None): "== baseline",
    (BARE, "lower"): "<= 5",
    (BARE, "higher"): ">= 0.6",
    (SIZE, "lower"): "<= 72GiB",
    (SIZE, None): "== baseline",
    (BANDWIDTH, "higher"): ">= 40GB/s",
    (TOKEN_RATE, "higher"): ">= 12000 tokens/s",
    (SAMPLE_RATE, "higher"): ">= 64 samples/s",
    (MEGAHERTZ, "higher"): ">= 1700MHz",
    (HASH, None): "== baseline",
}


def format_spoken_name(metric: Metric) -> str:
    """Return a metric's name as it appears in a sentence: in words, without its unit if it is clear without."""
    short_name = next((stem for stem, name in UNITLESS_NAMES.items() if name == metric.name), metric.name)
    return short_name if short_name.endswith("_ns") else short_name.replace("_", " ")


def format_example(metric: Metric) -> str:
    """Return an example sentence about a metric."""
    if metric.example:
        return metric.example
    if metric.unit == COUNT and metric.better == "lower":
        return f"no {format_spoken_name(metric)}"
    usual_limit = "<= 5% of step" if make_step_share(metric) else "<= baseline + 5%"
    return f"{format_spoken_name(metric)} {_EXAMPLE_LIMITS.get((metric.unit, metric.better), usual_limit)}"


_OTHER_SENTENCES = {
    "copy blocking <= 5% of step": "blocked by copy, copy, copies, memcpy, copy time, memcpy time",
    "attention family_ns <= 100ms": "attention, attention time, flash attention",
    "time of module layers.*.attn <= 3ms": "module, modules, module time, layer, layers, layer time, time per layer",
    "time of op aten::mm <= 3ms": "op, ops, op time, operator, operators, operator time",
    'time of range "loss" <= 2ms': "range, ranges, range time, nvtx, nvtx range, nvtx ranges, nvtx time",
    "backward time of module layers.*.attn <= 3ms": "forward, forward time, backward, backward time, recompute",
    "balance of compute across pp <= 1.1": "imbalance, load imbalance, load balance",
    "measured mfu >= 40%": "mfu, hfu, model flops utilization, model flops utilisation",
    "measured tflops >= 400TFLOP/s": "tflops, tflop, flops, tflops per gpu, tflop per s, flop rate",
    "measured loss <= 2.5": "loss, train loss, training loss",
    "measured power <= 700W": "power, power draw, watts",
    "measured temperature <= 80": "temperature, gpu temperature",
    "measured occupancy >= 50%": "occupancy, sm occupancy, achieved occupancy, sm utilization, sm efficiency, "
    "tensor core utilization, tensor active",
    "measured memory_bandwidth >= 2000GB/s": "memory bandwidth, hbm bandwidth, dram bandwidth",
}
"""Lists words for what is no metric by itself, with the sentence to write."""

SENTENCES_BY_WORD: Mapping[str, str] = {
    word.replace(" ", "_"): sentence
    for sentence, words in (
        *((format_example(metric), metric.synonyms) for metric in METRICS.values() if metric.synonyms),
        *_OTHER_SENTENCES.items(),
    )
    for word in words.split(", ")
}
"""Maps words that people type, blanks as underscores, and no metric has, to what they should write."""

_EXAMPLE_BOUNDS = {RATIO: "10%", TIME: "10s", MEGAHERTZ: "1500MHz", BARE: "5"}


def _propose_bound(key: str) -> str | None:
    """Return what to write for a fact about the trace, which sentences cannot name; None if the key is no fact."""
    fact = key.removeprefix("window_")
    return f"quality: {{{fact}: {_EXAMPLE_BOUNDS.get(find_fact_unit(fact), '0')}}}" if fact in DEFAULT_BOUNDS else None


def propose_sentence(name: str) -> str | None:
    """Return what to write instead of a name that is no metric's, worded for an error message; None if nothing is
    known.
    """
    key = "_".join(name.lower().replace("-", " ").split())
    shown_name = sanitize_line(name.replace("_", " "), 60)
    if "-" in name and (hyphenated_metric := resolve_metric(key)) is not None:
        sentence: str | None = format_example(hyphenated_metric)
    else:
        stems = (key, *(key.removesuffix(ending) for ending in _ENDINGS if key.endswith(ending)))
        sentence = next((SENTENCES_BY_WORD[stem] for stem in stems if stem in SENTENCES_BY_WORD), None)
    if sentence is not None:
        problem = (
            f"no trace holds '{shown_name}'"
            if sentence.startswith(f"{MEASURED_WORD} ")
            else f"no metric is called '{shown_name}'"
        )
        return f"{problem}: write {sentence}"
    if (bound := _propose_bound(key)) is not None:
        return f"'{shown_name}' is a fact about the trace: write {bound} beside the assertions"
    return None


def describe_unknown_metric(name: str, fallback: str = "") -> str:
    """Return the error message for an unknown metric name; ``fallback`` ends it if no name is close."""
    if unit_metrics := METRICS_BY_UNIT.get("_".join(name.lower().split())):
        names_text = " or ".join(unit_metrics.values())
        return f"'{sanitize_line(name, 60)}' goes by the unit of its limit, and there is none here: write {names_text}"
    return (
        propose_sentence(name) or f"unknown metric '{sanitize_line(name, 60)}'{suggest_word(name, METRICS) or fallback}"
    )
