"""Which metric does a person mean? By its name, by its name without the unit, or by a word that no metric has.

A blank stands for an underscore. ``exposed`` is ``exposed_ns``: a name may lack its unit where exactly one metric fits,
and where the rest is neither a metric nor a dimension. ``throughput`` is what its unit says. What is stored and printed
has full names alone.

A word that people bring from other tools is answered with a sentence to write.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_nsys.analysis.fact_bounds import DEFAULTS, unit_of
from pytest_nsys.analysis.metrics.registry import MEASURED, METRICS, OF_STEP, Metric, held_to_steps, metric_called
from pytest_nsys.core.errors import did_you_mean
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.units import BANDWIDTH, BARE, COUNT, HASH, MEGAHERTZ, RATIO, SAMPLE_RATE, SIZE, TIME, TOKEN_RATE
from pytest_nsys.core.words import printable

_ENDINGS = ("_ns", "_bytes", "_mhz", "_per_s")


def _without_units() -> dict[str, str]:
    dimensions = {dimension for metric in METRICS.values() for dimension in metric.dimensions}
    stems = grouped(
        (name.removesuffix(ending), name) for name in METRICS for ending in _ENDINGS if name.endswith(ending)
    )
    reserved_names = {*METRICS, *dimensions}
    # A stem of two metrics would be ambiguous, one that is a name means that.
    return {stem: names[0] for stem, names in stems.items() if len(names) == 1 and stem not in reserved_names}


SHORT: Mapping[str, str] = _without_units()
"""Maps each name that may lack its unit to its metric."""

BY_UNIT: Mapping[str, Mapping[str, str]] = {"throughput": {TOKEN_RATE: "tokens_per_s", SAMPLE_RATE: "samples_per_s"}}
"""Maps words for several metrics to the metric of each unit that a limit may have."""


def metric_named(name: str) -> Metric | None:
    """Return the metric that a person calls so, None where no metric is meant."""
    if (metric := metric_called(name)) is not None:
        return metric
    base = name.removesuffix(OF_STEP)
    full_name = SHORT.get("_".join(base.split()), "")
    return metric_called(full_name + name[len(base) :])


FIRST: Mapping[str, str] = {metric.name: metric.question for metric in METRICS.values() if metric.question}
"""Lists the ten metrics that a first gate needs, with the question that each answers: how long a step takes, what makes
it longer, and whether it is the same step.
"""

_LIMITS: Mapping[tuple[str, str | None], str] = {
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


def spoken(metric: Metric) -> str:
    """Return a metric's name as a sentence has it: in words, without its unit where it is known without."""
    short_name = next((stem for stem, name in SHORT.items() if name == metric.name), metric.name)
    return short_name if short_name.endswith("_ns") else short_name.replace("_", " ")


def example(metric: Metric) -> str:
    """Return a sentence to write of a metric."""
    if metric.example:
        return metric.example
    if metric.unit == COUNT and metric.better == "lower":
        return f"no {spoken(metric)}"
    usual_limit = "<= 5% of step" if held_to_steps(metric) else "<= baseline + 5%"
    return f"{spoken(metric)} {_LIMITS.get((metric.unit, metric.better), usual_limit)}"


_OTHER_SENTENCES = {
    "copy blocking <= 5% of step": "blocked by copy, copy, copies, memcpy, copy time, memcpy time",
    "attention family_ns <= 100ms": "attention, attention time, flash attention",
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

SPOKEN: Mapping[str, str] = {
    word.replace(" ", "_"): sentence
    for sentence, words in (
        *((example(metric), metric.words) for metric in METRICS.values() if metric.words),
        *_OTHER_SENTENCES.items(),
    )
    for word in words.split(", ")
}
"""Maps words that people type, blanks as underscores, and no metric has, to what they should write."""

_BOUNDS = {RATIO: "10%", TIME: "10s", MEGAHERTZ: "1500MHz", BARE: "5"}


def _fact_for(key: str) -> str | None:
    """Return what to write of a fact about the trace, which no sentence asks for; None where the key is no fact."""
    fact = key.removeprefix("window_")
    return f"quality: {{{fact}: {_BOUNDS.get(unit_of(fact), '0')}}}" if fact in DEFAULTS else None


def sentence_for(name: str) -> str | None:
    """Return what to write instead of a name that no metric has, as a mistake says it; None where nothing is known."""
    key = "_".join(name.lower().replace("-", " ").split())
    shown_name = printable(name.replace("_", " "), 60)
    if "-" in name and (hyphenated_metric := metric_named(key)) is not None:
        sentence: str | None = example(hyphenated_metric)
    else:
        stems = (key, *(key.removesuffix(ending) for ending in _ENDINGS if key.endswith(ending)))
        sentence = next((SPOKEN[stem] for stem in stems if stem in SPOKEN), None)
    if sentence is not None:
        problem = (
            f"no trace holds '{shown_name}'"
            if sentence.startswith(f"{MEASURED} ")
            else f"no metric is called '{shown_name}'"
        )
        return f"{problem}: write {sentence}"
    if (bound := _fact_for(key)) is not None:
        return f"'{shown_name}' is a fact about the trace: write {bound} beside the assertions"
    return None


def unknown(name: str, otherwise: str = "") -> str:
    """Return the mistake of a name that means no metric; ``fallback`` ends it where nothing is close."""
    if unit_metrics := BY_UNIT.get("_".join(name.lower().split())):
        names_text = " or ".join(unit_metrics.values())
        return f"'{printable(name, 60)}' goes by the unit of its limit, and there is none here: write {names_text}"
    return sentence_for(name) or f"unknown metric '{printable(name, 60)}'{did_you_mean(name, METRICS) or otherwise}"
