"""Which metric does a person mean? By its name, by its name without the unit, or by a word that no metric has.

A blank stands for an underscore. ``exposed`` is ``exposed_ns``: a name may lack its unit where exactly one metric fits,
and where the rest is neither a metric nor a dimension. ``throughput`` is what its unit says. What is stored and printed
has full names alone.

A word that people bring from other tools is answered with a sentence to write.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_nsys.analysis.metrics import MEASURED, METRICS, OF_STEP, Metric, Unit, held_to_steps, metric_called
from pytest_nsys.core.errors import did_you_mean
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.words import printable

_ENDINGS = ("_ns", "_bytes", "_mhz", "_per_s")


def _without_units() -> dict[str, str]:
    dimensions = {dimension for metric in METRICS.values() for dimension in metric.dimensions}
    stems = grouped((name.removesuffix(end), name) for name in METRICS for end in _ENDINGS if name.endswith(end))
    taken = {*METRICS, *dimensions}
    return {stem: names[0] for stem, names in stems.items() if len(names) == 1 and stem not in taken}


SHORT: Mapping[str, str] = _without_units()
"""The metric of each name that may lack its unit."""

BY_UNIT: Mapping[str, Mapping[str, str]] = {
    "throughput": {Unit.TOKENS_PER_S: "tokens_per_s", Unit.SAMPLES_PER_S: "samples_per_s"}
}
"""Words for several metrics, of which the unit of the limit says one."""

_STEP = "step time <= 450ms"
_ABSENT = "compute absent <= 10% of step"
_IDLE, _BUSY, _STARVED = "idle <= 10% of step", "busy >= 90% of step", "launch starved <= 5% of step"
_EXPOSED, _COMMUNICATION = "wall exposed all <= 5% of step", "collective time <= 20% of step"
_RATE, _MEMORY, _CLOCK = "throughput >= 12000 tokens/s", "peak allocated <= 72GiB", "sm clock >= 1700MHz"
_SPOKEN = {
    _STEP: "step, steps, step duration, step latency, iteration, iteration time, latency, duration, wall time, "
    "wall clock, e2e time, time, step length, time per step, longest step",
    _RATE: "throughput, tps, tokens per second, tokens per sec, tokens/s, tok/s, goodput, tgs",
    "throughput >= 64 samples/s": "samples per second, samples per sec, samples/s, images per second, qps",
    # a stage that waits for its neighbour runs a communication kernel meanwhile: it is not idle
    _ABSENT: "bubble, bubbles, bubble ratio, bubble rate, bubble time, pipeline bubble, without compute, no compute",
    _IDLE: "idle time, idle ratio, gpu idle, gpu idle time, idleness",
    _BUSY: "utilization, utilisation, gpu utilization, gpu utilisation, gpu util, gpu usage, busy time, gpu time, "
    "active time, duty cycle, kernel time, gpu kernel time, cuda time",
    _EXPOSED: "exposed communication, exposed comm, exposed nccl, exposed time, non overlapped communication",
    _COMMUNICATION: "nccl, nccl time, communication, communication time, comm time, comms, rccl time, collectives",
    "overlap >= 75%": "overlap ratio, overlap percent, overlap rate, comm overlap, communication overlap, "
    "comm compute overlap, compute communication overlap, hidden communication",
    "busbw >= 40GB/s": "bandwidth, bus bandwidth, network bandwidth, nccl bandwidth, bw, busbw gbps",
    "algbw >= 40GB/s": "algorithm bandwidth, alg bandwidth",
    "compute busy >= 75% of step": "computation, computation time, compute time, compute kernel time",
    "launches <= 5000": "kernels, kernel count, num kernels, number of kernels, launch count, kernel launch count",
    "mean kernel >= 20us": "kernel duration, average kernel time, avg kernel duration",
    _STARVED: "starved, launch overhead, launch latency, launch bound, cpu overhead, cpu bound, host overhead, "
    "host bound, python overhead, dispatch overhead",
    "dependency stalled <= 5% of step": "stall, stalls, stall time, stalled",
    "blocking <= 5% of step": "blocked, blocked time",
    "blocking comm <= 5% of step": "blocked by collective, collective, blocking communication, blocking collectives",
    "copy blocking <= 5% of step": "blocked by copy, copy, copies, memcpy, copy time, memcpy time",
    "blocking comm max <= 5% of step": "in comm, stalled during communication",
    "comm alone <= 5% of step": "communication alone",
    "gpu gap <= 5% of step": "gap, gaps, gpu gaps, kernel gaps",
    "straggler lag <= 1% of step": "straggler, stragglers, straggling, straggling rank, skew, rank skew",
    "collective wait <= 5% of step": "wait, wait time, waiting, nccl wait, barrier wait",
    "balance of compute across pp <= 1.1": "imbalance, load imbalance, load balance",
    "no syncs": "sync, synchronization, synchronizations, synchronisation, cuda synchronize, device synchronize",
    "no pageable copies": "pageable, pageable memory, pageable memcpy",
    _MEMORY: "memory, gpu memory, peak memory, max memory, memory usage, peak allocated memory, hbm, vram, oom",
    _CLOCK: "clock, clocks, gpu clock, clock speed, frequency, gpu frequency, throttling",
    "gemm family_ns <= 200ms": "gemm, gemm time, matmul, matmul time",
    "attention family_ns <= 100ms": "attention, attention time, flash attention",
    "measured mfu >= 40%": "mfu, hfu, model flops utilization, model flops utilisation",
    "measured tflops >= 400TFLOP/s": "tflops, tflop, flops, tflops per gpu, tflop per s, flop rate",
    "measured loss <= 2.5": "loss, train loss, training loss",
    "measured power <= 700W": "power, power draw, watts",
    "measured temperature <= 80": "temperature, gpu temperature",
    "measured occupancy >= 50%": "occupancy, sm occupancy, achieved occupancy, sm utilization, sm efficiency, "
    "tensor core utilization, tensor active",
    "measured memory_bandwidth >= 2000GB/s": "memory bandwidth, hbm bandwidth, dram bandwidth",
}
SPOKEN: Mapping[str, str] = {
    spoken.replace(" ", "_"): sentence for sentence, each in _SPOKEN.items() for spoken in each.split(", ")
}
"""What to write for words that people type, blanks as underscores, and no metric has."""


def metric_named(name: str) -> Metric | None:
    """The metric that a person calls so, None where no metric is meant."""
    if (found := metric_called(name)) is not None:
        return found
    base = name.removesuffix(OF_STEP)
    full = SHORT.get("_".join(base.split()), "")
    return metric_called(full + name[len(base) :])


FIRST: Mapping[str, str] = {
    "step_time_ns": "Is a step slower?",
    "tokens_per_s": "How many tokens a second?",
    "exposed_ns": "How long does communication run without compute beside it?",
    "overlap": "How much of the communication is hidden?",
    "wall_exposed_all_ns": "The same where communication shares streams with compute.",
    "idle_ns": "How long does no kernel run?",
    "launch_starved_ns": "How long does the GPU wait for the next launch?",
    "syncs": "Does the CPU wait for the GPU?",
    "launches": "Is it still the same program?",
    "peak_allocated_bytes": "Does it need more memory?",
}
"""The ten that a first gate needs, and what each answers: how long a step takes, what makes it longer, and whether it
is the same step.
"""

_LIMITS: Mapping[tuple[str, str | None], str] = {
    (Unit.RATIO, "higher"): ">= 60%",
    (Unit.RATIO, "lower"): "<= 5%",
    (Unit.RATIO, None): "<= 40%",
    (Unit.COUNT, None): "== baseline",
    (Unit.NUMBER, "lower"): "<= 5",
    (Unit.NUMBER, "higher"): ">= 0.6",
    (Unit.BYTES, "lower"): "<= 72GiB",
    (Unit.BYTES, None): "== baseline",
    (Unit.GB_PER_S, "higher"): ">= 40GB/s",
    (Unit.TOKENS_PER_S, "higher"): ">= 12000 tokens/s",
    (Unit.SAMPLES_PER_S, "higher"): ">= 64 samples/s",
    (Unit.MHZ, "higher"): ">= 1700MHz",
    (Unit.HASH, None): "== baseline",
}
_SENTENCES: Mapping[str, str] = {
    "step_time_ns": _STEP,
    "tokens_per_s": "throughput >= 12000 tokens/s",
    "samples_per_s": "throughput >= 64 samples/s",
    "period_ns": "p50 period <= 450ms",
    "window_ns": "window <= 450ms",
    "busy_ns": "busy >= 90% of step",
    "device_busy_ns": "device busy >= 90% of step",
    "compute_busy_ns": "compute busy >= 75% of step",
    "compute_ns": "compute <= baseline + 5%",
    "idle_ns": "idle <= 10% of step",
    "kernel_share": "no new or vanished kernels above 2%",
    "family_ns": "gemm family_ns <= 200ms",
    "family_launches": "gemm family_launches == baseline",
    "mean_kernel_ns": "mean kernel >= 20us",
    "serialization": "serialization <= 0.5",
    "overlap_score": "pipeline overlap_score >= 0.6",
}


def spoken(metric: Metric) -> str:
    """A metric as a sentence has it: in words, without its unit where it is known without."""
    short = next((stem for stem, name in SHORT.items() if name == metric.name), metric.name)
    return short if short.endswith("_ns") else short.replace("_", " ")


def example(metric: Metric) -> str:
    """A sentence to write of a metric."""
    if metric.name in _SENTENCES:
        return _SENTENCES[metric.name]
    if metric.unit == Unit.COUNT and metric.better == "lower":
        return f"no {spoken(metric)}"
    usual = "<= 5% of step" if held_to_steps(metric) else "<= baseline + 5%"
    return f"{spoken(metric)} {_LIMITS.get((metric.unit, metric.better), usual)}"


def sentence_for(name: str) -> str | None:
    """What to write instead of a name that no metric has: as a mistake says it."""
    key = "_".join(name.lower().replace("-", " ").split())
    hyphened = metric_named(key) if "-" in name else None
    if sentence := example(hyphened) if hyphened is not None else SPOKEN.get(key):
        shown = printable(name.replace("_", " "), 60)
        lacks = f"no trace holds '{shown}'" if sentence.startswith(f"{MEASURED} ") else f"no metric is called '{shown}'"
        return f"{lacks}: write {sentence}"
    return None


def unknown(name: str, otherwise: str = "") -> str:
    """The mistake of a name that means no metric; ``otherwise`` ends it where nothing is close."""
    if several := BY_UNIT.get("_".join(name.lower().split())):
        words = " or ".join(several.values())
        return f"'{printable(name, 60)}' goes by the unit of its limit, and there is none here: write {words}"
    return sentence_for(name) or f"unknown metric '{printable(name, 60)}'{did_you_mean(name, METRICS) or otherwise}"
