"""How does a finding read? One sentence with its figure, the most that fixing it could win, and what shows more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from pytest_nsys.analysis.findings import Finding
from pytest_nsys.analysis.losses import TINY_KERNEL_NS, FindingKind
from pytest_nsys.core.families import OTHER_KIND, kind_of, short_name
from pytest_nsys.core.kernel_names import readable_names
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value, percent
from pytest_nsys.core.units import MEGAHERTZ
from pytest_nsys.core.words import counted, printable, typed
from pytest_nsys.reports.tables import WHOLE_TEXT

NAME_WIDTH = 40
"""Of a kernel's name in a sentence."""


def sentence(finding: Finding, width: int = WHOLE_TEXT, beside: Collection[str] = ()) -> str:
    """What it is, on which rank, with its figures: ``rank 1: 1.2 ms of exposed communication, …``. Where that is more
    than ``width`` characters, as much of it as there is room for. Kernels are named as a table names them ``beside``
    others of these demangled names.
    """
    said = _SENTENCES[finding.kind](_name_kernels(finding, beside))
    several = finding.rank is not None and finding.looked_at > 1
    whose = f"rank {finding.rank}: " if several else ""
    alike, all_ranks = len(finding.ranks), finding.looked_at
    of_all = f" of {all_ranks} ranks" if alike < all_ranks else ""
    worst = f"rank {finding.rank} (the worst of {alike}{of_all}): " if alike > 1 else whose
    each = ["".join(said[:parts]) for parts in range(len(said), 0, -1)]
    forms = [f"{worst if several else ''}{each[0]}", *(f"{whose}{form}" for form in each)]
    return next((form for form in forms if len(form) <= width), printable(forms[-1], width))


def win_words(finding: Finding, of: str = "step") -> str:
    """The most that fixing it could win: ``at most 8.1% of the step``; empty for what casts doubt."""
    return "" if finding.share is None else f"at most {percent(finding.share)} of the {of}"


def command_for(finding: Finding, traces: Sequence[str]) -> str:
    """What to type to see more of it: ``pytest-nsys run.sqlite --view budget``."""
    words = [finding.more, typed(traces)]
    return " ".join(["pytest-nsys", *(reversed(words) if finding.more.startswith("--view") else words)])


def nothing_found(compute: Fraction, of: str = "step") -> str:
    """What stands in place of findings: ``compute`` is its share of the steps."""
    return f"nothing stands out: {percent(compute)} of the {of} computes"


def _ns(finding: Finding, name: str) -> str:
    return format_value(_value(finding, name))


def _value(finding: Finding, name: str) -> Value:
    found = finding.figures[name]
    assert not isinstance(found, str)
    return found


def _count(finding: Finding, name: str, noun: str) -> str:
    return counted(int(_value(finding, name)), noun)


def _name(finding: Finding, name: str) -> str:
    return printable(str(finding.figures[name]), NAME_WIDTH)


_OF_KERNELS = ("before", "kernel", "mostly")
"""The figures that are the demangled name of a kernel."""


def _name_kernels(finding: Finding, beside: Collection[str]) -> Finding:
    """Return it with its kernels by the names that a person reads, and a collective by its kind."""
    names = {figure: str(finding.figures[figure]) for figure in _OF_KERNELS if finding.figures.get(figure)}
    readable = readable_names([*beside, *names.values()], NAME_WIDTH)
    called = {figure: readable[name] for figure, name in names.items()}
    if finding.kind is FindingKind.COMMUNICATION and (kind := kind_of(short_name(names["kernel"]))) != OTHER_KIND:
        called["kernel"] = kind
    return replace(finding, figures={**finding.figures, **called})


def _part(finding: Finding) -> str:
    """What the view has of it."""
    return _ns(finding, "part_ns")


Said = tuple[str, ...]
"""What a finding is, with its first figure, and what else is told of it where there is room."""


def _of_it(finding: Finding, name: str, where: str) -> str:
    """How much of the part lies somewhere: ``, 39.1 ms of it before gemm``."""
    own, whole = _value(finding, name), _value(finding, "part_ns")
    if own >= whole:
        return f", all of it {where}"
    some = format_value(own)
    return f", {'nearly all' if some == _part(finding) else some} of it {where}"


def _before(finding: Finding) -> str:
    if not _value(finding, "before_ns"):
        return ""
    last = finding.figures["before"] == ""
    return _of_it(finding, "before_ns", "after the last kernel" if last else f"before {_name(finding, 'before')}")


def _and_more(finding: Finding, where: str) -> str:
    return f", and {_ns(finding, 'more_ns')} {where}" if finding.figures.get("more_ns") else ""


def _straggler(f: Finding) -> Said:
    what = f"waits {_part(f)} for other ranks in {_name(f, 'collective')}"
    return what, f", longest for rank {f.figures['for_rank']}", _and_more(f, "in other collectives")


def _wrong_stream(f: Finding) -> Said:
    compute, said = _count(f, "compute_kernels", "compute kernel"), f"{_part(f)} of communication"
    if _value(f, "compute_kernels") > _value(f, "comm_kernels"):
        return said, f" on stream {f.figures['stream']}, which it shares with {compute}"
    return said, f" on stream {f.figures['stream']}, among {compute}", f" (mostly {_name(f, 'mostly')})"


def _communication(f: Finding) -> Said:
    stage = f" of {_name(f, 'stage')}" if "stage" in f.figures else ""
    return f"{_part(f)} of exposed communication", f", longest {_name(f, 'kernel')}{stage}"


def _syncs(f: Finding) -> Said:
    calls = f" ({_count(f, 'calls', 'call')})" if "calls" in f.figures else ""
    waits = f"launches nothing for {_part(f)} while the host waits in {_name(f, 'call')}{calls}"
    return waits, _and_more(f, "in other calls")


def _launches(f: Finding) -> Said:
    return f"launch-bound: {_part(f)} launch-starved", _tiny(f), _before(f)


def _between(f: Finding) -> Said:
    share = percent(Fraction(_value(f, "part_ns")) / Fraction(_value(f, "window_ns")))
    said = f"{_part(f)} between steps, {share} of the step"
    host = f"the host is in {_name(f, 'host')}" if "host" in f.figures else "the next step is not launched yet"
    return said, f": {host}"


def _tiny(f: Finding) -> str:
    if "tiny" not in f.figures:
        return ""
    tiny, kernels = _value(f, "tiny"), _count(f, "kernels", "compute kernel")
    return f"; {tiny} of {kernels} take {format_value(TINY_KERNEL_NS)} or less"


def _copies(f: Finding) -> Said:
    host = f"{_ns(f, 'host_ns')} of it while the host copies pageable memory"
    if "producer" not in f.figures:
        return f"launch-starved for {_part(f)}, {host}", _most_copies(f)
    what, other = {"copy": ("copies", "memsets"), "memset": ("memsets", "copies")}[str(f.figures["producer"])]
    beside = _value(f, "blocked_ns") - _value(f, "part_ns")
    more = f", {other} for {format_value(beside)}" if beside else ""
    if not _value(f, "host_ns"):
        return f"{what} block compute for {_part(f)}{more}", "" if more else _before(f), _most_copies(f)
    host = f", {'' if what == 'copies' else 'copies '}the host for {_ns(f, 'host_ns')}"
    return f"{what} block compute for {_part(f)}{host}", " (pageable ones)", more, _most_copies(f)


def _most_copies(f: Finding) -> str:
    if "between" not in f.figures or f.figures.get("producer") == "memset":
        return ""
    return f"; most copies are {_name(f, 'between')}"


def _elsewhere(f: Finding) -> Said:
    where = f"for {_name(f, 'kernel')}"
    return f"compute waits {_part(f)} for another device of its process", _of_it(f, "before_ns", where)


def _stalled(f: Finding) -> Said:
    return f"stalled for {_part(f)} with work launched", _before(f), "; the trace does not say why"


def _clocks(f: Finding) -> Said:
    own, best = (format_value(_value(f, name), MEGAHERTZ) for name in ("sm_clock_mhz", "best_mhz"))
    less = f": at that its compute takes up to {format_value(f.win_ns or 0)} less"
    return f"SMs at {own}, the best of this run is {best}", less


def _uneven(f: Finding) -> Said:
    more = format_value(f.win_ns or 0)
    return f"computes for {_part(f)}", f", {more} longer than the mean of the ranks ({_ns(f, 'mean_ns')})"


def _profiler(f: Finding) -> Said:
    if "recorded" in f.figures:
        return f"recorded {f.figures['recorded']}, which slows the host", ": without it the GPU waits less for launches"
    return f"a step takes {percent(_value(f, 'overhead'))} longer under the profiler", ": trace fewer kinds of events"


_SENTENCES: Mapping[FindingKind, Callable[[Finding], Said]] = {
    FindingKind.STRAGGLER: _straggler,
    FindingKind.WRONG_STREAM: _wrong_stream,
    FindingKind.COMMUNICATION: _communication,
    FindingKind.SYNCS: _syncs,
    FindingKind.LAUNCHES: _launches,
    FindingKind.BETWEEN: _between,
    FindingKind.COPIES: _copies,
    FindingKind.OTHER_DEVICE: _elsewhere,
    FindingKind.STALLED: _stalled,
    FindingKind.CLOCKS: _clocks,
    FindingKind.UNEVEN: _uneven,
    FindingKind.PROFILER: _profiler,
}
