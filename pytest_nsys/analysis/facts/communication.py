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
    """Yield a fact whose text is the share before ``subject``; nothing where the total is 0."""
    if whole:
        yield Measured(Fraction(part, whole), f"{share_of(part, whole)} of {whole} {what}", why, remedy)


def measure_unstaged(ground: Ground) -> Iterator[Measured]:
    """Yield the share of the windows' kernels that were launched in no stage."""
    unstaged = sum(len(window.all_by_stage.get(NO_STAGE, ())) for window in ground.group)
    subject, reason = "kernels of the windows have no stage", "they are in no stage's rows"
    yield from _share(
        unstaged, sum(map(len, ground.group)), subject, reason, "correct the convention's stage expression"
    )


def measure_unclassified(ground: Ground) -> Iterator[Measured]:
    """Yield the share of the windows' communication kernels that fit no purpose of the convention."""
    whole = sum(len(window.communication) for window in ground.group)
    unclassified = sum(
        number
        for window in ground.group
        for (_, purpose), number in window.contexts_of(window.communication).items()
        if purpose is None
    )
    subject, reason = "communication kernels have no purpose", "no rule of the convention says what they are for"
    yield from _share(unclassified, whole, subject, reason, "add a purpose to the convention")


def measure_unknown_communication(ground: Ground) -> Iterator[Measured]:
    """Yield what communicates and does not count so, a share each.

    Of the kernel time: kernels of known libraries, and those that multiply as well. Of the time of kernels and copies:
    copies between GPUs.
    """
    if (uncounted_kernels := uncounted(ground.group)) is not None:
        yield Measured(
            uncounted_kernels.share,
            uncounted_kernels.words,
            uncounted_kernels.why,
            uncounted_kernels.remedy(ground.run.convention),
        )
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
        says = "says by name that it multiplies and communicates" if kernels == 1 else ""
        subject = f"{counted(kernels, 'kernel')} {says or 'say by name that they multiply and communicate'} in one"
        share = Fraction(sum(times.values()), whole or 1)
        words = f"{subject}, {percent(share)} of the kernel time ({_longest(times)})"
        reason = "all of it counts as compute, and what communication costs in it cannot be told"
        yield Measured(share, words, reason, "judge the step by its length")


def _measure_copies(run: Run, group: WindowGroup) -> Iterator[Measured]:
    """Yield the time of copies between GPUs that the convention leaves out, as a share of that of kernels and copies.

    They are copies that a collective launched, or that go from GPU to GPU where a process group communicates.
    """
    times: Counter[str] = Counter()
    copy_count = 0
    for window in group:
        copies_in_window = touching_span(window.track.copies_between_gpus, (window.start_ns, window.end_ns))
        copies_in_window = copies_in_window.cut(window.start_ns, window.end_ns)
        for name, ns in zip(
            copies_in_window.name, minus(copies_in_window.end_ns, copies_in_window.start_ns), strict=True
        ):
            times[copies_in_window.names[name]] += ns
        copy_count += len(copies_in_window)
    if not copy_count or not (COPY_NAMES[CopyKind.COLLECTIVE] in times or _has_process_group(run, group)):
        return
    whole = sum(times.values()) + sum(total(window.durations_ns) for window in group)
    share = Fraction(sum(times.values()), whole or 1)
    copy_times = ", ".join(f"{name.strip('[]')} {format_value(ns)}" for name, ns in sorted(times.items()))
    verb = "is" if copy_count == 1 else "are"
    number = "1 copy" if copy_count == 1 else f"{copy_count} copies"
    words = f"{number} between GPUs {verb} no communication under this convention, "
    words += f"{percent(share)} of the time of kernels and copies ({copy_times})"
    kinds = [*run.convention.copies, *(kind for kind in BETWEEN_GPUS if COPY_NAMES[kind] in times)]
    kind_list = ", ".join(kind for kind in CopyKind if kind in kinds)
    reason = "what the copy engines move is in no exposed time and no overlap"
    yield Measured(share, words, reason, extended(run.convention, f"copies: [{kind_list}]"))


def _has_process_group(run: Run, group: WindowGroup) -> bool:
    """Whether several processes work together, or kernels of a collective ran."""
    has_several_processes = len({rank.process for rank in run.ranks}) > 1 or any(
        rank.number for rank in run.labelled_ranks
    )
    return has_several_processes or any(window.communication for window in group)


def measure_unsized_collectives(ground: Ground) -> Iterator[Measured]:
    """Yield the kind of collective of which some have no group or size on record, with the greatest share of these."""
    sizes = ground.metric.reads_sizes
    windows = [window for window in ground.group if transfers(window) and window.track.collectives is not None]
    unrecorded_shares = [
        (Fraction(*n), window, kind) for window in windows for kind, n in unrecorded(window, sizes=sizes).items()
    ]
    if unrecorded_shares:
        share, window, kind = max(unrecorded_shares, key=lambda item: (item[0], -item[1].rank.number, item[2]))
        missing_text = f"no {'size' if sizes else 'group'} on record"
        words = f"rank {window.rank.number}: {percent(share)} of the {kind} kernels have {missing_text}"
        remedy = "begin the capture before the process groups are made, and profile whole steps"
        yield Measured(share, words, f"{'bandwidths' if sizes else 'rows by group'} are of the others alone", remedy)


def measure_missing_sizes(ground: Ground) -> Iterator[Measured]:
    """Yield what traces lack of the sizes of collectives: kinds without any, and traces without any, have no rows."""
    windows = [window for window in ground.group if transfers(window)]
    unsized_windows = [window for window in windows if window.track.collectives is None]
    if unsized_windows:
        traces = list(dict.fromkeys(str(window.rank.trace) for window in unsized_windows))
        rest_text = f" and {len(traces) - 1} more" if len(traces) > 1 else ""
        words = f"{traces[0]}{rest_text}: no bytes and no bandwidths"
        yield Measured(len(traces), words, unsized_windows[0].track.around.facts.to_see_sizes, doubtful=False)
    for window in windows:
        if window.track.collectives is not None:
            for line in lacking(window):
                yield Measured(1, f"rank {window.rank.number}: {line}", doubtful=False)


def measure_unordered_streams(ground: Ground) -> Iterator[Measured]:
    """Yield the stream that shows most that kernels of it run beside each other."""
    tracks = ground.group.tracks.items()
    unordered = [(share, number, stream) for number, track in tracks for stream, share in track.unordered.items()]
    if unordered:
        share, number, stream = max(unordered, key=lambda item: (item[0], -item[1]))
        rest_text = f", and {counted(len(unordered) - 1, 'more such stream')}" if len(unordered) > 1 else ""
        stream_text = f"stream {stream.number} of rank {number}, {percent(share)} of its kernel time"
        words = f"kernels run inside other kernels of {stream_text}{rest_text}"
        reason = "so it keeps no order, and its communication is counted by time, not as a barrier"
        yield Measured(share, words, reason, doubtful=False)


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
    if reason := (sharing := sharing_in(window for window in ground.group if len(window))).why_not_in_own:
        share = Fraction(sharing.ns, sharing.of_ns) if sharing.of_ns else 1
        yield Measured(share, reason, doubtful=ground.metric.of is Of.COMMUNICATION and sharing.of > 0)


# Names and lines of one kind that a sentence has.
SHOWN = 3


class Uncounted(NamedTuple):
    """Describes kernels of known communication libraries that the convention counts as compute."""

    times_ns: Mapping[str, int]  # by qualified name
    kernels: int
    whole_ns: int  # time of all kernels
    known: frozenset[KnownLibrary]  # their libraries, and the globs that mean them

    @property
    def share(self) -> Value:
        """Their share of the time of all kernels."""
        return Fraction(sum(self.times_ns.values()), self.whole_ns or 1)

    @property
    def why(self) -> str:
        return "communication that runs beside them looks hidden"

    @property
    def libraries(self) -> str:
        """The libraries whose kernels they are."""
        return ", ".join(sorted({match.library for match in self.known}))

    @property
    def words(self) -> str:
        """How many they are, of which library, how long they take, and which take longest."""
        count = "counts" if self.kernels == 1 else "count"
        subject = f"{counted(self.kernels, 'kernel')} of {self.libraries} {count} as compute"
        return f"{subject}, {percent(self.share)} of the kernel time ({_longest(self.times_ns)})"

    def globs(self, convention: Convention) -> tuple[str, ...]:
        """List the globs that the convention names so far, and those of these kernels."""
        return (*convention.communication, *sorted({match.glob for match in self.known}))

    def remedy(self, convention: Convention) -> str:
        """Format the line that makes them communication."""
        return extended(convention, f"communication: {json.dumps(self.globs(convention), ensure_ascii=False)}")


def uncounted(group: WindowGroup) -> Uncounted | None:
    """Find the kernels of known libraries that count as compute in the windows of a group; None for none."""
    times, kernels = _times_of(group, [_called(window) for window in group])
    if not kernels:
        return None
    matches_and_usage = ((window.track.uncounted, window.by_name) for window in group)
    library_matches = frozenset(
        matches_by_name[key]
        for matches_by_name, usage_by_name in matches_and_usage
        if matches_by_name
        for key in matches_by_name.keys() & usage_by_name.keys()
    )
    return Uncounted(times, kernels, sum(total(window.durations_ns) for window in group), library_matches)


def _called(window: RankWindow) -> Mapping[tuple[int, int], str]:
    """Return the qualified names of a window's uncounted kernels, by their (short, demangled) name ids."""
    names = window.kernels.names
    return {key: qualified_name(names.get(key[1], "") or names[key[0]]) for key in window.track.uncounted}


def _times_of(group: WindowGroup, called: Sequence[Mapping[tuple[int, int], str]]) -> tuple[Mapping[str, int], int]:
    """Return the time in ns of kernels by what they are called, and how many there are.

    ``names_by_window`` has their names by name ids, for each window.
    """
    times: Counter[str] = Counter()
    kernels = 0
    for window, names_by_id in zip(group, called, strict=True):
        for key in names_by_id.keys() & window.by_name.keys() if names_by_id else ():
            ns, count = window.by_name[key]
            times[names_by_id[key]] += ns
            kernels += count
    return times, kernels


def _longest(times_ns: Mapping[str, int]) -> str:
    """Return the names that take longest, each with its time, and how many more there are."""
    longest_first = sorted(times_ns.items(), key=lambda item: (-item[1], item[0]))
    name_times = [f"{printable(name, 80)} {format_value(ns)}" for name, ns in longest_first[:SHOWN]]
    return ", ".join([*name_times, *([f"{len(longest_first) - SHOWN} more"] if len(longest_first) > SHOWN else [])])


def extended(convention: Convention, key: str) -> str:
    """Return the line that gives a convention one more key."""
    if convention == BUILT_IN.get(convention.name):
        return f"write convention: {{extends: {convention.name}, {key}}}"
    return f"write {key} in the convention"
