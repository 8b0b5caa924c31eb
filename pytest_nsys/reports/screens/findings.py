"""How is a finding put into words? As a sentence with its figures, the most that fixing it could gain, and the command
that shows more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from string import Formatter

from pytest_nsys.analysis.summary.findings import Finding
from pytest_nsys.analysis.summary.lost_time import TINY_KERNEL_NS, FindingKind
from pytest_nsys.core.families import OTHER_KIND, extract_short_name, find_collective_kind
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_percent, format_value
from pytest_nsys.core.text_format import format_count, quote_command, sanitize_line
from pytest_nsys.core.units import MEGAHERTZ
from pytest_nsys.reports.tables.formats import UNLIMITED_LENGTH

FINDING_NAME_WIDTH = 40
"""The most characters of a kernel's name in a sentence."""


def format_finding(finding: Finding, width: int = UNLIMITED_LENGTH, other_names: Collection[str] = ()) -> str:
    """Return the rank, kind and figures of a finding: ``rank 1: 1.2 ms of exposed communication, …``.

    The text is shortened to ``width`` characters. Kernels have the same short names as in a table with the kernels
    ``other_names`` (demangled).
    """
    words = _fill_words(finding, other_names)
    pieces = [
        piece.format_map(words) for piece in _SENTENCE_PIECES[finding.kind] if _find_fields(piece) <= words.keys()
    ]
    has_several_ranks = finding.rank is not None and finding.rank_count > 1
    rank_text = f"rank {finding.rank}: " if has_several_ranks else ""
    alike_count, rank_count = len(finding.ranks), finding.rank_count
    of_text = f" of {rank_count} ranks" if alike_count < rank_count else ""
    worst_text = f"rank {finding.rank} (the worst of {alike_count}{of_text}): " if alike_count > 1 else rank_text
    versions = ["".join(pieces[:parts]) for parts in range(len(pieces), 0, -1)]
    forms = [f"{worst_text if has_several_ranks else ''}{versions[0]}", *(f"{rank_text}{form}" for form in versions)]
    return next((form for form in forms if len(form) <= width), sanitize_line(forms[-1], width))


def format_win(finding: Finding, noun: str = "step") -> str:
    """Return the most that fixing a finding could gain: ``at most 8.1% of the step``; empty for doubts about the
    trace.
    """
    return "" if finding.share is None else f"at most {format_percent(finding.share)} of the {noun}"


def format_finding_command(finding: Finding, traces: Sequence[str]) -> str:
    """Return the command that shows more of a finding: ``pytest-nsys run.sqlite --view budget``."""
    words = [finding.detail_command, quote_command(traces)]
    return " ".join(["pytest-nsys", *(reversed(words) if finding.detail_command.startswith("--view") else words)])


def describe_no_findings(compute_share: Fraction, noun: str = "step") -> str:
    """Return the line that replaces the findings, with the share of compute in the steps."""
    return f"nothing stands out: {format_percent(compute_share)} of the {noun} computes"


_SENTENCE_PIECES: Mapping[FindingKind, Sequence[str]] = {
    FindingKind.STRAGGLER: (
        "waits {part_ns} for other ranks in {collective}",
        ", longest for rank {for_rank}",
        ", and {more_ns} in other collectives",
    ),
    FindingKind.WRONG_STREAM: ("{part_ns} of communication", " on stream {stream}, {beside}", " (mostly {mostly})"),
    FindingKind.COMMUNICATION: ("{part_ns} of exposed communication", ", longest {kernel}", " of {stage}"),
    FindingKind.SYNCS: (
        "launches nothing for {part_ns} while the host waits in {call}",
        " ({calls})",
        ", and {more_ns} in other calls",
    ),
    FindingKind.LAUNCHES: ("{bound}{part_ns} launch-starved", "; {tiny}", "{at}"),
    FindingKind.BETWEEN: ("{part_ns} between steps, {share} of the step", ": {host}"),
    FindingKind.COPIES: ("{blocked}", "{whose}", "{at}", "{more}", "; most copies are {between}"),
    FindingKind.OTHER_DEVICE: ("compute waits {part_ns} for another device of its process", "{at}"),
    FindingKind.STALLED: ("stalled for {part_ns} with work launched", "{at}", "; the trace does not say why"),
    FindingKind.CLOCKS: (
        "SMs at {sm_clock_mhz}",
        ", the best of this run is {best_mhz}",
        ": at that its compute takes up to {win_ns} less",
    ),
    FindingKind.UNEVEN: ("computes for {part_ns}", ", {win_ns} longer than the mean of the ranks ({mean_ns})"),
    FindingKind.PROFILER: ("{slower}", ": {instead}"),
}
"""The sentence of each kind of finding: its first figure, then more pieces as far as they fit.

A piece is left out if a figure in it is missing.
"""

_KERNEL_FIGURES = ("before", "kernel", "mostly")
"""The figures that are demangled names of kernels."""


def _find_fields(piece: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(piece) if name}


def _fill_words(finding: Finding, other_names: Collection[str]) -> dict[str, str]:
    """Return the words for the sentence of a finding: its figures as text (without times of 0), and phrases that
    combine several figures.

    Kernels have their display names; a collective is named by its kind.
    """
    figures = finding.figures
    numbers = {name: figure for name, figure in figures.items() if not isinstance(figure, str)}
    words = {
        name: sanitize_line(figure, FINDING_NAME_WIDTH) for name, figure in figures.items() if isinstance(figure, str)
    }
    words |= {name: str(number) for name, number in numbers.items()}
    words |= {name: format_value(numbers[name], MEGAHERTZ) for name in numbers if name.endswith("_mhz")}
    for name, ns in {**numbers, "win_ns": finding.win_ns or 0}.items():
        if name.endswith("_ns"):
            words[name] = format_value(ns)
    kernels = {name: str(figures[name]) for name in _KERNEL_FIGURES if figures.get(name)}
    readable = make_display_names([*other_names, *kernels.values()], FINDING_NAME_WIDTH)
    words |= {figure: readable[name] for figure, name in kernels.items()}
    if not numbers.get("more_ns"):  # 0 ns of something else is not worth a clause
        words.pop("more_ns", None)
    if numbers.get("before_ns"):
        # A gap at the end has no kernel after it.
        place_text = "after the last kernel" if figures["before"] == "" else f"before {words['before']}"
        words["at"] = _describe_share(words, numbers, place_text)
    match finding.kind:
        case FindingKind.WRONG_STREAM:
            compute_text = format_count(int(numbers["compute_kernels"]), "compute kernel")
            is_shared = numbers["compute_kernels"] > numbers["comm_kernels"]
            words["beside"] = f"which it shares with {compute_text}" if is_shared else f"among {compute_text}"
            if is_shared:
                del words["mostly"]
        case FindingKind.COMMUNICATION if (
            kind := find_collective_kind(extract_short_name(kernels["kernel"]))
        ) != OTHER_KIND:
            words["kernel"] = kind
        case FindingKind.SYNCS if "calls" in numbers:
            words["calls"] = format_count(int(numbers["calls"]), "call")
        case FindingKind.LAUNCHES:
            # After the last kernel nothing more is to be launched: the host is not too slow.
            is_mostly_tail = figures.get("before") == "" and 2 * numbers["before_ns"] > numbers["part_ns"]
            words["bound"] = "" if is_mostly_tail else "launch-bound: "
            if "tiny" in numbers:
                of_text = (
                    f"of {format_count(int(numbers['kernels']), 'compute kernel')} take "
                    f"{format_value(TINY_KERNEL_NS)} or less"
                )
                words["tiny"] += f" {of_text}"
        case FindingKind.BETWEEN:
            words["share"] = format_percent(Fraction(numbers["part_ns"]) / Fraction(numbers["window_ns"]))
            words["host"] = (
                f"the host is in {words['host']}" if "host" in words else "the next step is not launched yet"
            )
        case FindingKind.COPIES:
            words |= _describe_copies(words, numbers)
            if words.get("producer") == "memset":  # a memset has no source, so "from … to …" applies only to copies
                words.pop("between", None)
            if "more" in words or "whose" in words:
                words.pop("at", None)
        case FindingKind.OTHER_DEVICE:
            words["at"] = _describe_share(words, numbers, f"for {words['kernel']}")
        case FindingKind.PROFILER if "recorded" in words:
            words["slower"] = f"recorded {words['recorded']}, which slows the host"
            words["instead"] = "without it the GPU waits less for launches"
        case FindingKind.PROFILER:
            words["slower"] = f"a step takes {format_percent(numbers['overhead'])} longer under the profiler"
            words["instead"] = "trace fewer kinds of events"
    return words


def _describe_share(words: Mapping[str, str], numbers: Mapping[str, Value], place_text: str) -> str:
    """Return how much of a part lies at one place: ``, 39.1 ms of it before gemm``."""
    if numbers["before_ns"] >= numbers["part_ns"]:
        return f", all of it {place_text}"
    length_text = words["before_ns"]
    return f", {'nearly all' if length_text == words['part_ns'] else length_text} of it {place_text}"


def _describe_copies(words: Mapping[str, str], numbers: Mapping[str, Value]) -> dict[str, str]:
    """Return what copies and memsets block: compute, the host, or both."""
    if "producer" not in words:
        host_text = f"{words['host_ns']} of it while the host copies pageable memory"
        return {"blocked": f"launch-starved for {words['part_ns']}, {host_text}"}
    producers, other_producers = ("copies", "memsets") if words["producer"] == "copy" else ("memsets", "copies")
    texts = {"blocked": f"{producers} block compute for {words['part_ns']}"}
    if numbers["host_ns"]:
        texts["blocked"] += f", {'' if producers == 'copies' else 'copies '}the host for {words['host_ns']}"
        texts["whose"] = " (pageable ones)"
    if rest_ns := numbers["blocked_ns"] - numbers["part_ns"]:
        texts["more"] = f", {other_producers} for {format_value(rest_ns)}"
    return texts
