"""Is the communication of a run known for what it is? Its kernels, streams, stages, purposes and sizes.

What kernels of a known communication library cover of other communication, while they count as compute, is told as
hidden, and what they leave exposed themselves is told of nobody.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.facts.fact import Measured
from pytest_nsys.analysis.facts.ground import Ground
from pytest_nsys.analysis.metrics.collectives import lacking, transfers, unrecorded
from pytest_nsys.analysis.metrics.registry import Of
from pytest_nsys.analysis.metrics.sharing import sharing_in
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, WindowGroup
from pytest_nsys.core.columns import minus, total
from pytest_nsys.core.conventions import BUILT_IN, COPY_NAMES, NO_STAGE, Convention, CopyKind
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.families import KnownLibrary, qualified_name
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value, percent, share_of
from pytest_nsys.core.words import counted, printable
from pytest_nsys.traces.copies_as_kernels import BETWEEN_GPUS, touching_span


def _share(part: int, whole: int, what: str, why: str, remedy: str) -> Iterator[Measured]:
    """Yield ``what`` with the share before it; nothing of nothing."""
    if whole:
        yield Measured(Fraction(part, whole), f"{share_of(part, whole)} of {whole} {what}", why, remedy)


def measure_unstaged(ground: Ground) -> Iterator[Measured]:
    """Yield the share of the windows' kernels that were launched in no stage."""
    none = sum(len(window.all_by_stage.get(NO_STAGE, ())) for window in ground.group)
    what, why = "kernels of the windows have no stage", "they are in no stage's rows"
    yield from _share(none, sum(map(len, ground.group)), what, why, "correct the convention's stage expression")


def measure_unclassified(ground: Ground) -> Iterator[Measured]:
    """Yield the share of the windows' communication kernels that fit no purpose of the convention."""
    whole = sum(len(window.communication) for window in ground.group)
    none = sum(
        number
        for window in ground.group
        for (_, purpose), number in window.contexts_of(window.communication).items()
        if purpose is None
    )
    what, why = "communication kernels have no purpose", "no rule of the convention says what they are for"
    yield from _share(none, whole, what, why, "add a purpose to the convention")


def measure_unknown_communication(ground: Ground) -> Iterator[Measured]:
    """Yield what communicates and does not count so, a share each: of the kernel time kernels of known libraries and
    those that multiply as well, of the time of kernels and copies copies between GPUs.
    """
    if (found := uncounted(ground.group)) is not None:
        yield Measured(found.share, found.words, found.why, found.remedy(ground.run.convention))
    yield from _measure_fused(ground.group)
    try:
        yield from _measure_copies(ground.run, ground.group)
    except TraceError as error:
        if _has_process_group(ground.run, ground.group):
            words = f"what copies move between GPUs is unknown: {error}"
            yield Measured(None, words, "they may be communication that nothing counts")


def _measure_fused(group: WindowGroup) -> Iterator[Measured]:
    """Yield the share of the kernel time of kernels whose names say that they multiply and communicate in one."""
    times, kernels = _times_of(group, [window.track.fused for window in group])
    if kernels:
        whole = sum(total(window.durations_ns) for window in group)
        say = "says by name that it multiplies and communicates" if kernels == 1 else ""
        what = f"{counted(kernels, 'kernel')} {say or 'say by name that they multiply and communicate'} in one"
        share = Fraction(sum(times.values()), whole or 1)
        words = f"{what}, {percent(share)} of the kernel time ({_longest(times)})"
        why = "all of it counts as compute, and what communication costs in it cannot be told"
        yield Measured(share, words, why, "judge the step by its length")


def _measure_copies(run: Run, group: WindowGroup) -> Iterator[Measured]:
    """Yield the share of the time of kernels and copies of those copies that a collective launched, or that go from GPU
    to GPU where a process group communicates, and that the convention leaves out.
    """
    times: Counter[str] = Counter()
    copies = 0
    for window in group:
        own = touching_span(window.track.copies_between_gpus, (window.start_ns, window.end_ns))
        own = own.cut(window.start_ns, window.end_ns)
        for name, ns in zip(own.name, minus(own.end_ns, own.start_ns), strict=True):
            times[own.names[name]] += ns
        copies += len(own)
    if not copies or not (COPY_NAMES[CopyKind.COLLECTIVE] in times or _has_process_group(run, group)):
        return
    whole = sum(times.values()) + sum(total(window.durations_ns) for window in group)
    share = Fraction(sum(times.values()), whole or 1)
    which = ", ".join(f"{name.strip('[]')} {format_value(ns)}" for name, ns in sorted(times.items()))
    are_left = "is" if copies == 1 else "are"
    number = "1 copy" if copies == 1 else f"{copies} copies"
    words = f"{number} between GPUs {are_left} no communication under this convention, "
    words += f"{percent(share)} of the time of kernels and copies ({which})"
    kinds = [*run.convention.copies, *(kind for kind in BETWEEN_GPUS if COPY_NAMES[kind] in times)]
    listed = ", ".join(kind for kind in CopyKind if kind in kinds)
    why = "what the copy engines move is in no exposed time and no overlap"
    yield Measured(share, words, why, extended(run.convention, f"copies: [{listed}]"))


def _has_process_group(run: Run, group: WindowGroup) -> bool:
    """Whether several processes work together, or kernels of a collective ran."""
    several = len({rank.process for rank in run.ranks}) > 1 or any(rank.number for rank in run.labelled_ranks)
    return several or any(window.communication for window in group)


def measure_unsized_collectives(ground: Ground) -> Iterator[Measured]:
    """Yield the kind of collective of which some have no group or size on record, with the greatest share of these."""
    sizes = ground.metric.reads_sizes
    windows = [window for window in ground.group if transfers(window) and window.track.collectives is not None]
    each = [(Fraction(*n), window, kind) for window in windows for kind, n in unrecorded(window, sizes=sizes).items()]
    if each:
        share, window, kind = max(each, key=lambda found: (found[0], -found[1].rank.number, found[2]))
        lacks = f"no {'size' if sizes else 'group'} on record"
        words = f"rank {window.rank.number}: {percent(share)} of the {kind} kernels have {lacks}"
        remedy = "begin the capture before the process groups are made, and profile whole steps"
        yield Measured(share, words, f"{'bandwidths' if sizes else 'rows by group'} are of the others alone", remedy)


def measure_missing_sizes(ground: Ground) -> Iterator[Measured]:
    """Yield what the traces lack of the sizes of collectives: of kinds without any, and traces without any, there are
    no rows.
    """
    windows = [window for window in ground.group if transfers(window)]
    blind = [window for window in windows if window.track.collectives is None]
    if blind:
        traces = list(dict.fromkeys(str(window.rank.trace) for window in blind))
        more = f" and {len(traces) - 1} more" if len(traces) > 1 else ""
        words = f"{traces[0]}{more}: no bytes and no bandwidths"
        yield Measured(len(traces), words, blind[0].track.around.facts.to_see_sizes, doubtful=False)
    for window in windows:
        if window.track.collectives is not None:
            for line in lacking(window):
                yield Measured(1, f"rank {window.rank.number}: {line}", doubtful=False)


def measure_unordered_streams(ground: Ground) -> Iterator[Measured]:
    """Yield the stream that shows most that kernels of it run beside each other."""
    tracks = ground.group.tracks.items()
    found = [(share, number, stream) for number, track in tracks for stream, share in track.unordered.items()]
    if found:
        share, number, stream = max(found, key=lambda each: (each[0], -each[1]))
        more = f", and {counted(len(found) - 1, 'more such stream')}" if len(found) > 1 else ""
        which = f"stream {stream.number} of rank {number}, {percent(share)} of its kernel time"
        words = f"kernels run inside other kernels of {which}{more}"
        why = "so it keeps no order, and its communication is counted by time, not as a barrier"
        yield Measured(share, words, why, doubtful=False)


def measure_unmatched_patterns(ground: Ground) -> Iterator[Measured]:
    """Yield the communication patterns of a person's convention that fit no kernel."""
    windows = [window for window in ground.group if len(window)]
    # A pattern of a built-in convention is for whichever library there is; one that a person wrote is meant to match.
    built_in = {pattern for convention in BUILT_IN.values() for pattern in convention.communication}
    for pattern in ground.run.convention.communication:
        names = {name for window in windows for name in window.kernels.names.values()}
        if pattern not in built_in and not any(fnmatchcase(name, pattern) for name in names):
            words = f"no kernel around the windows is like the communication pattern '{printable(pattern)}'"
            yield Measured(1, words, "what it was written for may count as compute", "correct it")


def measure_shared_streams(ground: Ground) -> Iterator[Measured]:
    """Yield the share of communication time on streams that compute, which the plain metrics leave out."""
    if why := (found := sharing_in(window for window in ground.group if len(window))).why_not_in_own:
        share = Fraction(found.ns, found.of_ns) if found.of_ns else 1
        yield Measured(share, why, doubtful=ground.metric.of is Of.COMMUNICATION and found.of > 0)


SHOWN = 3
"""Names and lines of one kind that a sentence has."""


class Uncounted(NamedTuple):
    """Time in ns of such kernels by qualified name, how many there are, and the time of all kernels."""

    times_ns: Mapping[str, int]
    kernels: int
    whole_ns: int
    known: frozenset[KnownLibrary]

    @property
    def share(self) -> Value:
        """Of the time of all kernels."""
        return Fraction(sum(self.times_ns.values()), self.whole_ns or 1)

    @property
    def why(self) -> str:
        return "communication that runs beside them looks hidden"

    @property
    def libraries(self) -> str:
        """Whose kernels they are."""
        return ", ".join(sorted({known.library for known in self.known}))

    @property
    def words(self) -> str:
        """How many, of whom, how long, and which take longest."""
        count = "counts" if self.kernels == 1 else "count"
        who = f"{counted(self.kernels, 'kernel')} of {self.libraries} {count} as compute"
        return f"{who}, {percent(self.share)} of the kernel time ({_longest(self.times_ns)})"

    def globs(self, convention: Convention) -> tuple[str, ...]:
        """What the convention names so far, and them."""
        return (*convention.communication, *sorted({known.glob for known in self.known}))

    def remedy(self, convention: Convention) -> str:
        """The line that makes them communication."""
        return extended(convention, f"communication: {json.dumps(self.globs(convention), ensure_ascii=False)}")


def uncounted(group: WindowGroup) -> Uncounted | None:
    """Such kernels in the windows of a group; None for none."""
    times, kernels = _times_of(group, [_called(window) for window in group])
    if not kernels:
        return None
    each = ((window.track.uncounted, window.by_name) for window in group)
    found = frozenset(own[key] for own, ran in each if own for key in own.keys() & ran.keys())
    return Uncounted(times, kernels, sum(total(window.durations_ns) for window in group), found)


def _called(window: RankWindow) -> Mapping[tuple[int, int], str]:
    """Return the qualified names of a window's uncounted kernels, by their (short, demangled) name ids."""
    names = window.kernels.names
    return {key: qualified_name(names.get(key[1], "") or names[key[0]]) for key in window.track.uncounted}


def _times_of(group: WindowGroup, called: Sequence[Mapping[tuple[int, int], str]]) -> tuple[Mapping[str, int], int]:
    """Return the time in ns of kernels by what they are called, by name ids in each window, and how many there are."""
    times: Counter[str] = Counter()
    kernels = 0
    for window, own in zip(group, called, strict=True):
        for key in own.keys() & window.by_name.keys() if own else ():
            ns, count = window.by_name[key]
            times[own[key]] += ns
            kernels += count
    return times, kernels


def _longest(times_ns: Mapping[str, int]) -> str:
    """Return the names that take longest, each with its time, and how many more there are."""
    order = sorted(times_ns.items(), key=lambda item: (-item[1], item[0]))
    each = [f"{printable(name, 80)} {format_value(ns)}" for name, ns in order[:SHOWN]]
    return ", ".join([*each, *([f"{len(order) - SHOWN} more"] if len(order) > SHOWN else [])])


def extended(convention: Convention, key: str) -> str:
    """Return the line that gives a convention one more key."""
    if convention == BUILT_IN.get(convention.name):
        return f"write convention: {{extends: {convention.name}, {key}}}"
    return f"write {key} in the convention"
