"""How does a finding read? One sentence with its figure, the most that mending it could win, and what shows more."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.findings import Finding
from pytest_nsys.analysis.losses import TINY_KERNEL_NS, FindingKind
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value, percent
from pytest_nsys.core.units import MEGAHERTZ
from pytest_nsys.core.words import counted, printable

LONGEST_NAME = 50


def sentence(finding: Finding) -> str:
    """What it is, on which rank, with its figures: ``rank 1: communication runs without compute for 1.2 ms, …``."""
    where = "" if finding.rank is None else f"rank {finding.rank}: "
    return where + _SENTENCES[finding.kind](finding)


def win_words(finding: Finding) -> str:
    """The most that mending it could win: ``at most 8.1% of the step (3.72 ms)``; what casts doubt wins nothing."""
    if finding.win_ns is None or finding.share is None:
        return ""
    return f"at most {percent(finding.share)} of the step ({format_value(finding.win_ns)})"


def command_for(finding: Finding, traces: Sequence[str]) -> str:
    """What to type to see more of it: ``pytest-nsys run.sqlite --view budget``."""
    paths = shlex.join(traces)
    return f"pytest-nsys {paths} --view {finding.view}" if finding.view else f"pytest-nsys {finding.command} {paths}"


def nothing_found(compute: Fraction) -> str:
    """What stands in place of findings: ``compute`` is its share of the steps."""
    return f"nothing stands out: {percent(compute)} of the step computes"


def _ns(finding: Finding, name: str) -> str:
    return format_value(_value(finding, name))


def _value(finding: Finding, name: str) -> Value:
    found = finding.figures[name]
    assert not isinstance(found, str)
    return found


def _count(finding: Finding, name: str, noun: str) -> str:
    return counted(int(_value(finding, name)), noun)


def _name(finding: Finding, name: str) -> str:
    return printable(str(finding.figures[name]), LONGEST_NAME)


def _win(finding: Finding) -> str:
    return format_value(finding.win_ns or 0)


def _straggler(f: Finding) -> str:
    return (
        f"waits {_win(f)} for rank {f.figures['for_rank']}, {_ns(f, 'collective_ns')} of it in {_name(f, 'collective')}"
    )


def _wrong_stream(f: Finding) -> str:
    kernels = _count(f, "compute_kernels", "compute kernel")
    what = f"{kernels} on communication stream {f.figures['stream']} (mostly {_name(f, 'kernel')})"
    return f"{what}: its communication waits in line, exposed for {_win(f)}"


def _communication(f: Finding) -> str:
    name = " ".join(_name(f, key) for key in ("stage", "kernel") if key in f.figures)
    return f"communication runs without compute for {_win(f)}, {_ns(f, 'kernel_ns')} of it {name}"


def _syncs(f: Finding) -> str:
    calls = f" ({_count(f, 'calls', 'call')})" if "calls" in f.figures else ""
    return f"{_name(f, 'call')}{calls} keeps the host from launching: no compute for {_win(f)}"


def _tiny(f: Finding) -> str:
    tiny, kernels = _value(f, "tiny"), _count(f, "kernels", "compute kernel")
    return f"{tiny} of {kernels} run {format_value(TINY_KERNEL_NS)} or less, with {_win(f)} of gaps before them"


def _launches(f: Finding) -> str:
    longest = f"{_ns(f, 'before_ns')} of it before {_name(f, 'before')}"
    if not f.figures["before"]:
        longest = f"{_ns(f, 'before_ns')} of it after the last kernel"
    return f"launch-bound: the GPU waits {_win(f)} for launches, {longest}"


def _copies(f: Finding) -> str:
    pageable = f", and {_value(f, 'pageable')} copies use pageable memory" if f.figures.get("pageable") else ""
    what = {"copy": "copies block", "memset": "memsets block"}[str(f.figures["producer"])]
    longest = f"{_ns(f, 'before_ns')} of it before {_name(f, 'before')}"
    return f"{what} compute for {_win(f)}, {longest}{pageable}"


def _elsewhere(f: Finding) -> str:
    return f"waits {_win(f)} for another device of its process, {_ns(f, 'before_ns')} of it for {_name(f, 'kernel')}"


def _stalled(f: Finding) -> str:
    longest = f"{_ns(f, 'before_ns')} of it before {_name(f, 'before')}"
    return f"launched kernels do not start for {_win(f)}, and the trace does not say why, {longest}"


def _clocks(f: Finding) -> str:
    own, best = (format_value(_value(f, name), MEGAHERTZ) for name in ("sm_clock_mhz", "best_mhz"))
    return f"the SMs run at {own}, the fastest of this run at {best}"


def _uneven(f: Finding) -> str:
    others = f"the mean of the ranks is {_ns(f, 'mean_ns')}, the least {_ns(f, 'least_ns')}"
    return f"computes {_ns(f, 'compute_ns')}: {others}"


def _profiler(f: Finding) -> str:
    return f"a step takes {percent(_value(f, 'overhead'))} longer under the profiler: trace fewer kinds of events"


def _doubt(f: Finding) -> str:
    fact = f.doubt
    assert fact is not None
    return f"{fact.words}: {fact.why}" + (f"; {fact.remedy}" if fact.remedy else "")


_SENTENCES: Mapping[FindingKind, Callable[[Finding], str]] = {
    FindingKind.STRAGGLER: _straggler,
    FindingKind.WRONG_STREAM: _wrong_stream,
    FindingKind.COMMUNICATION: _communication,
    FindingKind.SYNCS: _syncs,
    FindingKind.TINY_KERNELS: _tiny,
    FindingKind.LAUNCHES: _launches,
    FindingKind.COPIES: _copies,
    FindingKind.OTHER_DEVICE: _elsewhere,
    FindingKind.STALLED: _stalled,
    FindingKind.CLOCKS: _clocks,
    FindingKind.UNEVEN: _uneven,
    FindingKind.PROFILER: _profiler,
    FindingKind.DOUBT: _doubt,
}
