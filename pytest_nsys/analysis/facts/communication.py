"""Is the communication of a run fully identified? Its kernels, streams, stages, purposes and sizes.

Kernels of a known communication library that count as compute make other communication under them look hidden, and
their own exposed time is not reported.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.facts.fact import MeasuredFact
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.analysis.metrics.collectives import count_unrecorded, group_transfers, list_missing_sizes
from pytest_nsys.analysis.metrics.registry import MetricSource
from pytest_nsys.analysis.metrics.stream_sharing import measure_sharing
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, WindowGroup
from pytest_nsys.core.columns import subtract, sum_column
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, COPY_NAMES, NO_STAGE, Convention, CopyKind
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.families import LibraryMatch, extract_qualified_name
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_percent, format_percent_of, format_value
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.traces.copies_as_kernels import INTER_GPU_COPY_KINDS, select_touching


def _yield_share(count: int, total_count: int, subject: str, reason: str, remedy: str) -> Iterator[MeasuredFact]:
    """Yield a fact whose text is the share followed by ``subject``; nothing if the total is 0."""
    if total_count:
        yield MeasuredFact(
            Fraction(count, total_count),
            f"{format_percent_of(count, total_count)} of {total_count} {subject}",
            reason,
            remedy,
        )


def measure_unstaged(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the share of the windows' kernels that were launched in no stage."""
    unstaged = sum(len(window.kernels_by_stage.get(NO_STAGE, ())) for window in context.group)
    subject, reason = "kernels of the windows have no stage", "they are in no stage's rows"
    yield from _yield_share(
        unstaged, sum(map(len, context.group)), subject, reason, "correct the convention's stage expression"
    )


def measure_unclassified(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the share of the windows' communication kernels that match no purpose of the convention."""
    whole = sum(len(window.communication) for window in context.group)
    unclassified = sum(
        number
        for window in context.group
        for (_, purpose), number in window.count_contexts(window.communication).items()
        if purpose is None
    )
    subject, reason = "communication kernels have no purpose", "no rule of the convention says what they are for"
    yield from _yield_share(unclassified, whole, subject, reason, "add a purpose to the convention")


def measure_unknown_communication(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield kernels and copies that communicate but do not count as communication, each as a share.

    The share is of the kernel time for kernels of known libraries, and for those that also multiply; it is of the time
    of kernels and copies for copies between GPUs.
    """
    if (uncounted_kernels := find_uncounted_kernels(context.group)) is not None:
        yield MeasuredFact(
            uncounted_kernels.share,
            uncounted_kernels.words,
            uncounted_kernels.reason,
            uncounted_kernels.format_remedy(context.run.convention),
        )
    yield from _measure_fused(context.group)
    try:
        yield from _measure_copies(context.run, context.group)
    except TraceError as error:
        if _has_process_group(context.run, context.group):
            words = f"what copies move between GPUs is unknown: {error}"
            yield MeasuredFact(None, words, "they may be communication that nothing counts")


def _measure_fused(group: WindowGroup) -> Iterator[MeasuredFact]:
    """Yield the share of the kernel time that is in kernels whose names say that they multiply and communicate in
    one.
    """
    times, kernels = _sum_times_by_name(group, [window.track.fused_identifiers for window in group])
    if kernels:
        whole = sum(sum_column(window.durations_ns) for window in group)
        says = "says by name that it multiplies and communicates" if kernels == 1 else ""
        subject = f"{format_count(kernels, 'kernel')} {says or 'say by name that they multiply and communicate'} in one"
        share = Fraction(sum(times.values()), whole or 1)
        words = f"{subject}, {format_percent(share)} of the kernel time ({_format_longest(times)})"
        reason = "all of it counts as compute, and what communication costs in it cannot be told"
        yield MeasuredFact(share, words, reason, "judge the step by its length")


def _measure_copies(run: Run, group: WindowGroup) -> Iterator[MeasuredFact]:
    """Yield the time of copies between GPUs that the convention leaves out, as a share of that of kernels and copies.

    They are copies that a collective launched, or that go from GPU to GPU where a process group communicates.
    """
    times: Counter[str] = Counter()
    copy_count = 0
    for window in group:
        copies_in_window = select_touching(window.track.read_copies_between_gpus, (window.start_ns, window.end_ns))
        copies_in_window = copies_in_window.clip(window.start_ns, window.end_ns)
        for name, ns in zip(
            copies_in_window.name, subtract(copies_in_window.end_ns, copies_in_window.start_ns), strict=True
        ):
            times[copies_in_window.names[name]] += ns
        copy_count += len(copies_in_window)
    if not copy_count or not (COPY_NAMES[CopyKind.COLLECTIVE] in times or _has_process_group(run, group)):
        return
    whole = sum(times.values()) + sum(sum_column(window.durations_ns) for window in group)
    share = Fraction(sum(times.values()), whole or 1)
    copy_times = ", ".join(f"{name.strip('[]')} {format_value(ns)}" for name, ns in sorted(times.items()))
    verb = "is" if copy_count == 1 else "are"
    number = "1 copy" if copy_count == 1 else f"{copy_count} copies"
    words = f"{number} between GPUs {verb} no communication under this convention, "
    words += f"{format_percent(share)} of the time of kernels and copies ({copy_times})"
    kinds = [*run.convention.copies, *(kind for kind in INTER_GPU_COPY_KINDS if COPY_NAMES[kind] in times)]
    kind_list = ", ".join(kind for kind in CopyKind if kind in kinds)
    reason = "what the copy engines move is in no exposed time and no overlap"
    yield MeasuredFact(share, words, reason, format_extended_convention(run.convention, f"copies: [{kind_list}]"))


def _has_process_group(run: Run, group: WindowGroup) -> bool:
    """Whether several processes work together, or kernels of a collective ran."""
    has_several_processes = len({rank.process for rank in run.ranks}) > 1 or any(
        rank.number for rank in run.labelled_ranks
    )
    return has_several_processes or any(window.communication for window in group)


def measure_unsized_collectives(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the kind of collective with the largest share of calls without a group or size on record."""
    sizes = context.metric.reads_sizes
    windows = [window for window in context.group if group_transfers(window) and window.track.collectives is not None]
    unrecorded_shares = [
        (Fraction(*n), window, kind) for window in windows for kind, n in count_unrecorded(window, sizes=sizes).items()
    ]
    if unrecorded_shares:
        share, window, kind = max(unrecorded_shares, key=lambda item: (item[0], -item[1].rank.number, item[2]))
        missing_text = f"no {'size' if sizes else 'group'} on record"
        words = f"rank {window.rank.number}: {format_percent(share)} of the {kind} kernels have {missing_text}"
        remedy = "begin the capture before the process groups are made, and profile whole steps"
        yield MeasuredFact(
            share, words, f"{'bandwidths' if sizes else 'rows by group'} are of the others alone", remedy
        )


def measure_missing_sizes(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield which sizes of collectives the traces lack: kinds without any size, and traces without any, have no
    rows.
    """
    windows = [window for window in context.group if group_transfers(window)]
    unsized_windows = [window for window in windows if window.track.collectives is None]
    if unsized_windows:
        traces = list(dict.fromkeys(str(window.rank.trace) for window in unsized_windows))
        rest_text = f" and {len(traces) - 1} more" if len(traces) > 1 else ""
        words = f"{traces[0]}{rest_text}: no bytes and no bandwidths"
        yield MeasuredFact(
            len(traces), words, unsized_windows[0].track.trace_context.facts.to_see_sizes, is_doubtful=False
        )
    for window in windows:
        if window.track.collectives is not None:
            for line in list_missing_sizes(window):
                yield MeasuredFact(1, f"rank {window.rank.number}: {line}", is_doubtful=False)


def measure_unordered_streams(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the stream with the strongest sign that its kernels run concurrently."""
    tracks = context.group.tracks.items()
    unordered = [
        (share, number, stream) for number, track in tracks for stream, share in track.unordered_streams.items()
    ]
    if unordered:
        share, number, stream = max(unordered, key=lambda item: (item[0], -item[1]))
        rest_text = f", and {format_count(len(unordered) - 1, 'more such stream')}" if len(unordered) > 1 else ""
        stream_text = f"stream {stream.number} of rank {number}, {format_percent(share)} of its kernel time"
        words = f"kernels run inside other kernels of {stream_text}{rest_text}"
        reason = "so it keeps no order, and its communication is counted by time, not as a barrier"
        yield MeasuredFact(share, words, reason, is_doubtful=False)


def measure_unmatched_patterns(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the communication patterns of a user's convention that match no kernel."""
    windows = [window for window in context.group if len(window)]
    # Built-in patterns cover many libraries; a pattern that a user wrote is meant to match.
    built_in = {pattern for convention in BUILT_IN_CONVENTIONS.values() for pattern in convention.communication}
    for pattern in context.run.convention.communication:
        names = {name for window in windows for name in window.kernels.names.values()}
        if pattern not in built_in and not any(fnmatchcase(name, pattern) for name in names):
            words = f"no kernel around the windows is like the communication pattern '{sanitize_line(pattern)}'"
            yield MeasuredFact(1, words, "what it was written for may count as compute", "correct it")


def measure_shared_streams(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the share of communication time on streams that compute, which the plain metrics leave out."""
    if reason := (sharing := measure_sharing(window for window in context.group if len(window))).left_out_reason:
        share = Fraction(sharing.shared_ns, sharing.all_ns) if sharing.all_ns else 1
        yield MeasuredFact(
            share, reason, is_doubtful=context.metric.source is MetricSource.COMMUNICATION and sharing.all_kernels > 0
        )


# Maximum number of names, or lines of one kind, in a sentence.
MAX_NAMES = 3


class UncountedKernels(NamedTuple):
    """Describes kernels of known communication libraries that the convention counts as compute."""

    times_ns: Mapping[str, int]  # by qualified name
    kernel_count: int
    whole_ns: int  # time of all kernels
    library_matches: frozenset[LibraryMatch]  # their libraries, and globs that match them

    @property
    def share(self) -> Value:
        """Their share of the time of all kernels."""
        return Fraction(sum(self.times_ns.values()), self.whole_ns or 1)

    @property
    def reason(self) -> str:
        return "communication that runs beside them looks hidden"

    @property
    def libraries(self) -> str:
        """The libraries whose kernels they are."""
        return ", ".join(sorted({match.library for match in self.library_matches}))

    @property
    def words(self) -> str:
        """Their number, library, total time, and the names that take longest."""
        count = "counts" if self.kernel_count == 1 else "count"
        subject = f"{format_count(self.kernel_count, 'kernel')} of {self.libraries} {count} as compute"
        return f"{subject}, {format_percent(self.share)} of the kernel time ({_format_longest(self.times_ns)})"

    def list_globs(self, convention: Convention) -> tuple[str, ...]:
        """List the communication globs of the convention, and those for these kernels."""
        return (*convention.communication, *sorted({match.glob for match in self.library_matches}))

    def format_remedy(self, convention: Convention) -> str:
        """Format the gate-file line that makes them count as communication."""
        return format_extended_convention(
            convention, f"communication: {json.dumps(self.list_globs(convention), ensure_ascii=False)}"
        )


def find_uncounted_kernels(group: WindowGroup) -> UncountedKernels | None:
    """Find the kernels of known libraries that count as compute in the windows of a group; None if there are none."""
    times, kernels = _sum_times_by_name(group, [_list_uncounted_names(window) for window in group])
    if not kernels:
        return None
    matches_and_usage = ((window.track.uncounted_libraries, window.totals_by_name) for window in group)
    library_matches = frozenset(
        matches_by_name[key]
        for matches_by_name, usage_by_name in matches_and_usage
        if matches_by_name
        for key in matches_by_name.keys() & usage_by_name.keys()
    )
    return UncountedKernels(times, kernels, sum(sum_column(window.durations_ns) for window in group), library_matches)


def _list_uncounted_names(window: RankWindow) -> Mapping[tuple[int, int], str]:
    """Return the qualified names of a window's uncounted kernels, by their (short, demangled) name ids."""
    names = window.kernels.names
    return {
        key: extract_qualified_name(names.get(key[1], "") or names[key[0]]) for key in window.track.uncounted_libraries
    }


def _sum_times_by_name(
    group: WindowGroup, names_by_window: Sequence[Mapping[tuple[int, int], str]]
) -> tuple[Mapping[str, int], int]:
    """Return the time in ns of kernels by name, and the number of kernels.

    ``names_by_window`` has their names by name ids, for each window.
    """
    times: Counter[str] = Counter()
    kernels = 0
    for window, names_by_id in zip(group, names_by_window, strict=True):
        for key in names_by_id.keys() & window.totals_by_name.keys() if names_by_id else ():
            ns, count = window.totals_by_name[key]
            times[names_by_id[key]] += ns
            kernels += count
    return times, kernels


def _format_longest(times_ns: Mapping[str, int]) -> str:
    """Return the names that take longest, each with its time, and how many more there are."""
    longest_first = sorted(times_ns.items(), key=lambda item: (-item[1], item[0]))
    name_times = [f"{sanitize_line(name, 80)} {format_value(ns)}" for name, ns in longest_first[:MAX_NAMES]]
    return ", ".join(
        [*name_times, *([f"{len(longest_first) - MAX_NAMES} more"] if len(longest_first) > MAX_NAMES else [])]
    )


def format_extended_convention(convention: Convention, key: str) -> str:
    """Format the gate-file line that adds a key to a convention."""
    if convention == BUILT_IN_CONVENTIONS.get(convention.name):
        return f"write convention: {{extends: {convention.name}, {key}}}"
    return f"write {key} in the convention"
