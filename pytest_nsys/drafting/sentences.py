"""Which assertions does a first gate file hold, with which limits, and why each? At most fourteen, each on data.

Structure is exact; a ratio is held by a constant; times, which differ from machine to machine, by the baseline. What
would let a slower step pass stays whatever the number: step time, compute, exposed time, launches, syncs, the kernels.
Where stages have a sentence, what has no stage has one beside it: no row of theirs would tell of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS
from pytest_nsys.analysis.metrics.activity import SYNCHRONISING_CALLS, waiting_call
from pytest_nsys.analysis.metrics.names import spoken
from pytest_nsys.analysis.metrics.registry import METRICS, STEP_TIME
from pytest_nsys.analysis.metrics.sharing import ALL, OWN, Walls, sharing_in, walls
from pytest_nsys.analysis.metrics.table import NothingSelected
from pytest_nsys.analysis.metrics.throughput import counted_periods, step_periods
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.spans import RUN, WindowSpec
from pytest_nsys.analysis.windows.step_kinds import by_number
from pytest_nsys.analysis.windows.tracks import LONGEST_NS
from pytest_nsys.core.conventions import NO_STAGE, UNKNOWN
from pytest_nsys.core.exact import exact, median
from pytest_nsys.core.model import KernelsMode, Label, Value
from pytest_nsys.core.numbers import change_words, distance_words, format_apart, format_value, percent
from pytest_nsys.core.units import RATIO, TIME
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.drafting.margins import (
    GUESS,
    LEAST,
    MOST_OF_STEP,
    ROUGH,
    hundredths_above,
    noise_of,
    percent_below,
    points,
    relative,
    smallest_ns,
    written_ns,
)
from pytest_nsys.drafting.steady_steps import StepMisses, count_misses
from pytest_nsys.gates.judgement import MOST_EXCUSED
from pytest_nsys.gates.selection import balance

Labels = tuple[Label, ...]


@dataclass(frozen=True)
class Figures:
    """Reads what the captures hold under one window spec. Raises NothingMeasured where a window is empty."""

    captures: Captures
    spec: WindowSpec

    @property
    def count(self) -> int:
        """The number of captures."""
        return len(self.captures.runs)

    def rows(self, metric: str) -> dict[Labels, Value]:
        """Return the rows of a metric, medians over the captures; none where some capture lacks a row."""
        table = self.captures.rows(METRICS[metric], self.spec)
        return {} if table.missing else {row.labels: row.value for row in table.rows}

    def each(self, metric: str) -> dict[Labels, list[Value]]:
        """List the values of every row, one for each capture."""
        values_by_row: dict[Labels, list[Value]] = {labels: [] for labels in self.rows(metric)}
        for table in self.captures.each(METRICS[metric], self.spec):
            for row in table.rows:
                if row.labels in values_by_row:
                    values_by_row[row.labels].append(row.value)
        return values_by_row

    @property
    def windows(self) -> list[RankWindow]:
        """The windows of every rank of every capture."""
        return [window for run in self.captures.runs for window in run.measured(self.spec)]

    def largest(self, metric: str, among: Mapping[Labels, Value] | None = None) -> str:
        """Describe the largest row, of all or of some: ``1 278 us (rank 5 stage4_f)``."""
        rows = self.rows(metric) if among is None else among
        return self.named(metric, max(rows.items(), key=_by_value))

    def smallest(self, metric: str, among: Mapping[Labels, Value]) -> str:
        """Describe the smallest of some rows."""
        return self.named(metric, min(among.items(), key=_by_value))

    def named(self, metric: str, row: tuple[Labels, Value]) -> str:
        """Describe a value with the labels of its row."""
        labels, value = row
        place = place_words(zip(METRICS[metric].dimensions, labels, strict=True))
        return f"{format_value(value, METRICS[metric].unit)} ({printable(place, 60)})"


def _by_value(row: tuple[Labels, Value]) -> tuple[Value, str]:
    return row[1], str(row[0])


def by_stage(rows: Mapping[Labels, Value]) -> dict[str, dict[Labels, Value]]:
    """Group rows per (rank, stage) by stage, stages ordered by name."""
    rows_by_stage: dict[str, dict[Labels, Value]] = {}
    for labels, value in rows.items():
        rows_by_stage.setdefault(str(labels[1]), {})[labels] = value
    return dict(sorted(rows_by_stage.items()))


# Assertions

STEP_LENGTHS = ("window_ns", "step_time_ns", "period_ns")
# Metrics without which a slower step passes: they are drafted however much captures differ, with a warning.
NEVER_DROPPED = (*STEP_LENGTHS, "compute_ns")

# More sentences nobody reads in a first gate file.
MOST = 14
MOST_STAGES = 4
# An overlap limit below it would hold nothing.
LEAST_PERCENT = 5

# A share of the time of all kernels; autotuning picks others for smaller ones.
BIG_PERCENT = 2

Entry = str | Mapping[str, str | Mapping[str, str]]


@dataclass(frozen=True)
class DraftSentence:
    """Holds one entry under ``assertions:``: a sentence, or the keys of a mapping."""

    entry: Entry
    why: tuple[str, ...]  # comment lines
    group: str  # the heading it stands below
    rank: int  # of too many the largest goes first, NEVER_OMITTED never does
    doubt: str = ""  # what its captures differ by, where that is more than the sentence bears: it is told
    drafted: bool = True  # it is written all the same

    @property
    def title(self) -> str:
        """The name of the sentence in a message."""
        return self.entry if isinstance(self.entry, str) else str(self.entry.get("id", self.entry["assert"]))


# Ranks of sentences: of too many the largest goes first, and 0 never does.
KEPT, PER_STAGE = 0, 99
# Of fewer steps the slowest tenth is one step or none.
ENOUGH_FOR_P90 = 2 * FEW_ANCHORS
STRUCTURE, HIDDEN, TIMES = "Structure", "Communication", "Time"
# In the order of the file.
GROUPS = (STRUCTURE, HIDDEN, TIMES)


def file_tolerance(figures: Figures) -> Fraction:
    """Choose the relative tolerance of the file: what the window's length needs."""
    return min(MOST_OF_STEP, relative([*figures.each("window_ns").values()], file_smallest_ns(figures)))


def file_smallest_ns(figures: Figures) -> int:
    """Choose the absolute tolerance of times, in ns: small beside the shortest window."""
    return smallest_ns(min(figures.rows("window_ns").values()))


def draft_sentences(figures: Figures) -> list[DraftSentence]:
    """Draft the assertions, in the order of the file, and those that are not drafted, with their doubt."""
    windows = figures.windows
    sentences: list[DraftSentence] = []
    communicates = any(window.communication for window in windows)
    wall_metrics = walls(sharing_in(windows))
    if communicates:
        sentences += _streams(figures)
    sentences += _barriers(figures, wall_metrics, communicates=communicates)
    sentences += _launched(figures)
    sentences += _syncs(figures)
    sentences += _pageable(figures)
    if communicates:
        sentences += _overlaps(figures, wall_metrics)
        sentences += _exposed(figures, wall_metrics)
    sentences += _balance(figures)
    sentences += _times(figures)
    sentences += _memory(figures)
    while sum(sentence.drafted for sentence in sentences) > MOST:
        sentences.remove(
            max((sentence for sentence in sentences if sentence.drafted), key=lambda sentence: sentence.rank)
        )
    return sorted(sentences, key=lambda sentence: GROUPS.index(sentence.group))


def _over_ranks(figures: Figures) -> str:
    ranks = len(figures.captures.runs[0].ranks)
    return "the rank" if ranks == 1 else f"each of {ranks} ranks"


def _streams(figures: Figures) -> Iterator[DraftSentence]:
    rows = figures.rows("comm_streams")
    counts: dict[Label, int] = {}
    for (rank, _), value in rows.items():
        counts[rank] = counts.get(rank, 0) + int(value)
    used_purposes = sorted({str(purpose) for (_, purpose), value in rows.items() if value})
    purpose_list = printable(f" ({', '.join(used_purposes)})", 80) if used_purposes != [UNKNOWN] else ""
    count_text = " to ".join(map(str, sorted({min(counts.values()), max(counts.values())})))
    reason = f"Streams that communicate, on {_over_ranks(figures)}: {count_text}{purpose_list}."
    yield DraftSentence("comm streams == baseline", (reason,), STRUCTURE, 2)
    if not figures.captures.convention.purposes:
        return
    reasons = {
        "mixed": "A stream with two purposes runs in order what could run side by side.",
        "unknown": "New communication would have no purpose yet.",
    }
    for purpose, reason in reasons.items():
        if not any(value for (_, row_purpose), value in rows.items() if row_purpose == purpose):
            yield DraftSentence(f"no {purpose} comm streams", (reason,), STRUCTURE, 3 if purpose == "mixed" else 9)


def _barriers(figures: Figures, chosen: Walls, *, communicates: bool) -> Iterator[DraftSentence]:
    rows = figures.rows("barrier_ns")
    if rows and not any(rows.values()):
        if communicates:
            reason = "Communication on a compute stream would wait for that stream's compute."
            yield DraftSentence("no barrier", (reason,), STRUCTURE, 4)
        return
    exposed_rows = figures.rows(chosen.exposed) if chosen == ALL else {}
    if rows:
        largest_text = figures.largest("barrier_ns")
        is_hidden = any(window.hides_barriers for window in figures.windows)
        effect = "only other streams' compute can hide it" if is_hidden else "it never overlaps"
        reasons = [f"{largest_text} of communication on compute streams: {effect}."]
        if not communicates:
            reasons.append("All communication is such, so 'exposed' and 'overlap' have no rows.")
        is_never_omitted = rows == exposed_rows or not (is_hidden or communicates)
        yield _held(figures, "barrier_ns", tuple(reasons), HIDDEN, KEPT if is_never_omitted else 4)
    if chosen == ALL:
        if not communicates:
            yield from _wall_overlap(figures, chosen.overlap)
        if exposed_rows and exposed_rows != rows:  # else 'barrier' holds the same figure, and more
            largest_exposed = figures.largest(chosen.exposed, exposed_rows)
            reason = f"At most {largest_exposed} of communication without compute on any stream, 'barrier' included."
            yield _held(figures, chosen.exposed, (reason,), HIDDEN, KEPT)


def _launched(figures: Figures) -> Iterator[DraftSentence]:
    """Draft what is exact, so only under a mode that does not depend on when the GPU got to a kernel."""
    if figures.spec.kernels is KernelsMode.LAUNCHED or figures.spec.whole_run:
        yield from (*_launches(figures), *_kernels(figures))
        return
    if figures.captures.convention.kernel_anchor is not None:  # clipped: too few launches are on record
        yield from _kernels(figures)
        return
    launched_figures = Figures(figures.captures, replace(figures.spec, kernels=KernelsMode.LAUNCHED))
    if not all(len(window) for window in launched_figures.windows):
        return
    edge_reason = "Counted where they are launched: when the GPU gets to them moves the edges of a window."
    mode_key = {"kernels": str(KernelsMode.LAUNCHED)}
    for sentence in _launches(launched_figures):
        yield replace(sentence, entry=_keys(sentence.entry) | mode_key, why=(*sentence.why, edge_reason))
    for sentence in _kernels(launched_figures):
        yield replace(sentence, entry=_keys(sentence.entry) | mode_key)


def _keys(entry: Entry) -> dict[str, str | Mapping[str, str]]:
    return {"assert": entry} if isinstance(entry, str) else dict(entry)


def _unstaged(metric: str, asserted: str, *, alone: bool = False) -> Entry:
    """Make the entry for kernels without a stage, by the name that it has in a comparison; ``is_of_all``: for all
    kernels.
    """
    name = metric if alone else f"{metric} without a stage"
    return {"id": name, "assert": f"{metric} of stage {NO_STAGE}{asserted.removeprefix(metric)}"}


def _launches(figures: Figures) -> Iterator[DraftSentence]:
    """Draft sentences on the launches with a stage, and on those without one."""
    launches = figures.each("launches")
    with_stage = {labels: captures for labels, captures in launches.items() if labels[1] != NO_STAGE}
    without_stage = {labels: captures for labels, captures in launches.items() if labels[1] == NO_STAGE}
    change_text = "One more or fewer: the program changed."
    if _is_exact(with_stage):
        reason = f"{_launches_in(with_stage)} in stages. {change_text}"
        yield DraftSentence("launches == baseline", (reason,), STRUCTURE, KEPT)
    if _is_exact(without_stage):
        reason = f"{_launches_in(without_stage)} {'without a stage' if with_stage else 'in all'}. {change_text}"
        sentence = _unstaged("launches", "launches == baseline", alone=not with_stage)
        yield DraftSentence(sentence, (reason,), STRUCTURE, KEPT)


def _is_exact(each: Mapping[Labels, Sequence[Value]]) -> bool:
    """Whether there are rows, and every capture has the same."""
    return bool(each) and all(len(set(captures)) == 1 for captures in each.values())


def _launches_in(each: Mapping[Labels, Sequence[Value]]) -> str:
    return counted(int(sum(captures[0] for captures in each.values())), "kernel")


def _kernels(figures: Figures) -> Iterator[DraftSentence]:
    """Draft a sentence on kernels that have more of the time than any that only some captures ran."""
    shares = figures.each("kernel_share")
    chance_shares = [max(captures) for captures in shares.values() if len(captures) < figures.count]
    limit = max([BIG_PERCENT, *(ceil(100 * Fraction(share)) for share in chance_shares)])
    big_rows = [(labels, value) for labels, value in figures.rows("kernel_share").items() if 100 * value > limit]
    if big_rows:
        largest_text = figures.largest("kernel_share", dict(big_rows))
        count_text = f"{len(big_rows)} of {counted(len(shares), 'kernel')} {'has' if len(big_rows) == 1 else 'have'}"
        reason = f"{count_text} over {limit}% of the kernel time, most {largest_text}."
        yield DraftSentence(f"no new or vanished kernels above {limit}%", (reason,), STRUCTURE, KEPT)


def _syncs(figures: Figures) -> Iterator[DraftSentence]:
    syncs = figures.each("syncs")
    if syncs and not any(any(captures) for captures in syncs.values()):
        reasons = ["No synchronising call in the window."]
        if not any(_synchronises(window) for window in figures.windows):
            reasons.append("None in the rest of the trace, either: a profiler that does not record them sees none.")
        yield DraftSentence("no syncs", tuple(reasons), STRUCTURE, KEPT)
    elif _is_exact(syncs):
        reasons = [f"How often the CPU waits for the GPU: at most {figures.largest('syncs')}."]
        yield DraftSentence("syncs <= baseline", tuple(reasons), STRUCTURE, KEPT)


def _synchronises(window: RankWindow) -> bool:
    """Whether a synchronising call of this rank's process is recorded, whenever it was made."""
    whole_span = {window.rank.process.global_pid: (-LONGEST_NS, LONGEST_NS)}
    calls = window.track.around.trace.api_calls(SYNCHRONISING_CALLS, whole_span) or {}
    return any(waiting_call(call.name) for process_calls in calls.values() for call in process_calls)


def _pageable(figures: Figures) -> Iterator[DraftSentence]:
    copies = figures.each("pageable_copies")
    if _is_exact(copies) and any(captures[0] for captures in copies.values()):
        reason = f"Copies from or to pageable host memory: at most {figures.largest('pageable_copies')}."
        yield DraftSentence("pageable copies <= baseline", (reason,), STRUCTURE, 1)


def _overlaps(figures: Figures, chosen: Walls) -> Iterator[DraftSentence]:
    """Draft a limit for each stage; for pairs (forward, backward) where there are many; for the rank where there is
    none.
    """
    stages = {stage: rows for stage, rows in by_stage(figures.rows("overlap")).items() if stage != NO_STAGE}
    if not stages:
        yield from _wall_overlap(figures, chosen.overlap)
        return
    groups: dict[str, dict[Labels, Value]] = {}
    for stage, rows in stages.items():
        name = stage.rpartition("_")[0] if len(stages) > MOST_STAGES else ""
        groups.setdefault(name or stage, {}).update(rows)
    overlaps = figures.each("overlap")
    limits = {
        name: (percent_below(rows.values(), points([overlaps[labels] for labels in rows])), rows)
        for name, rows in groups.items()
    }
    worst_limits = sorted((limit, name) for name, (limit, _) in limits.items() if limit >= LEAST_PERCENT)[:MOST_STAGES]
    for name in sorted(name for _, name in worst_limits):
        limit, rows = limits[name]
        entry: Entry = f"{name} overlap >= {limit}%"
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is None:
            entry = {"id": f"overlap of {name}", "assert": f"overlap >= {limit}%", "where": {"stage": name}}
        yield DraftSentence(entry, _why_overlap(figures, "overlap", rows, limit), HIDDEN, PER_STAGE)


def _wall_overlap(figures: Figures, metric: str) -> Iterator[DraftSentence]:
    rows = figures.rows(metric)
    if rows:
        limit = percent_below(rows.values(), points([*figures.each(metric).values()]))
        if limit >= LEAST_PERCENT:
            reasons = _why_overlap(figures, metric, rows, limit)
            yield DraftSentence(f"{spoken(METRICS[metric])} >= {limit}%", reasons, HIDDEN, 4)


def _why_overlap(figures: Figures, metric: str, rows: Mapping[Labels, Value], limit: int) -> tuple[str, ...]:
    headroom = distance_words(Fraction(min(rows.values())) - Fraction(limit, 100), RATIO)
    smallest_text = figures.smallest(metric, rows)
    median_text = f", median {percent(median(list(rows.values())))}" if len(rows) > 1 else ""

    def breaks_limit(labels: Labels, value: Value) -> bool:
        return labels in rows and 100 * Fraction(value) < limit

    misses = count_misses(figures.captures, figures.spec, METRICS[metric], breaks_limit)
    return (f"At worst {smallest_text}{median_text}: headroom {headroom}.", *_describe(misses))


def _exposed(figures: Figures, chosen: Walls) -> Iterator[DraftSentence]:
    """Draft limits of exposed time per stage, and of what has none.

    Of that alone where nothing has a stage, unless ``wall_metrics`` hold it already.
    """
    by_name = by_stage(figures.rows("exposed_ns"))
    without_stage = by_name.pop(NO_STAGE, {})
    with_stage = {labels: value for rows in by_name.values() for labels, value in rows.items()}
    if not (rows := with_stage or (without_stage if chosen == OWN else {})):
        return
    reason = f"At most {figures.largest('exposed_ns', rows)} of communication without compute beside it."
    yield _held(figures, "exposed_ns", (reason,), HIDDEN, KEPT, rows)
    if with_stage and without_stage:
        reason = f"The same of communication without a stage: at most {figures.largest('exposed_ns', without_stage)}."
        sentence = _held(figures, "exposed_ns", (reason,), HIDDEN, KEPT, without_stage)
        yield replace(sentence, entry=_unstaged("exposed", sentence.title))


def _balance(figures: Figures) -> Iterator[DraftSentence]:
    if figures.captures.mesh.sizes.get("pp", 1) < 2 or not figures.rows("compute_ns"):
        return
    tables = figures.captures.each(METRICS["compute_ns"], figures.spec)
    try:
        ratios = [value for table in tables for _, value in balance(table, table.labelled(), "pp")]
    except NothingSelected:
        return
    limit = hundredths_above(max(ratios), points([ratios]))
    ratio_text = f"{float(max(ratios)):.3f}"
    reason = f"{ratio_text}: the most compute of a pipeline stage over the least. The slowest stage limits the step."
    yield DraftSentence(f"balance of compute across pp <= {float(limit):.2f}", (reason,), TIMES, 5)


def _times(figures: Figures) -> Iterator[DraftSentence]:
    step_sentences = _step(figures)
    yield from step_sentences
    windows = figures.rows("window_ns")
    # Of one step its time and the window's are one.
    if not step_sentences or [*figures.rows("step_time_ns").values()] != [max(windows.values())]:
        extent = "from end to end"
        if any(window.goes_on for window in figures.windows):
            extent = "until the next step begins on the GPU"
        elif figures.spec.whole_run or figures.spec.kernels is KernelsMode.LAUNCHED:
            extent = "from the first start to the last end of its kernels"
        reasons = (f"At most {figures.largest('window_ns')}: the window, {extent}.",)
        yield _held(figures, "window_ns", reasons, TIMES, 2 if step_sentences else KEPT)
    drafted_metrics = [(metric.drafted, metric.name) for metric in METRICS.values() if metric.drafted is not None]
    for (extent, rank), name in sorted(drafted_metrics, key=lambda item: item[0].rank):
        if figures.rows(name):
            yield _held(figures, name, (f"At most {figures.largest(name)}: {extent}.",), TIMES, rank)


def _step(figures: Figures) -> list[DraftSentence]:
    """Draft how long a step takes; where an anchor is a part of one, the period of that. None of a whole run."""
    if figures.spec.window == RUN:
        return []
    if counts := figures.captures.runs[0].steps.shared:
        return list(_step_times(figures, counts))
    if rows := figures.rows("step_time_ns"):
        length_text = format_value(rows[()])
        reason = f"{length_text}: a step of the slowest rank, {_which_steps(figures.windows)}."
        if any(len(window.anchors) == 1 for window in figures.windows):
            reason = f"{length_text}: the step, on the slowest rank."
        return [_held(figures, "step_time_ns", (reason,), TIMES, KEPT), *_slow_steps(figures)]
    rows = _periods(figures, "p50")
    if not rows:
        return []
    largest_text = figures.largest("period_ns", rows)
    reason = f"At most {largest_text} from one anchor to the next: the median of all but the first."
    return [_held(figures, "period_ns", (reason,), TIMES, KEPT, rows, "p50 ")]


def _which_steps(windows: Sequence[RankWindow]) -> str:
    """Describe of which steps the step time is the median."""
    step_counts = [len(counted_periods(window.track)) for window in windows]
    if any(len(step_periods(window.track)) > number for window, number in zip(windows, step_counts, strict=True)):
        return "the median of all whole steps but the first"
    max_count = max(step_counts)
    return "the only whole one" if max_count == 1 else f"the median of {max_count} whole ones"


def _slow_steps(figures: Figures) -> Iterator[DraftSentence]:
    """Draft what slow steps make longer, which a median does not see: the mean, and of enough steps the slow ones."""
    if rows := _periods(figures, "mean"):
        reason = f"At most {figures.largest('period_ns', rows)} on average: a median hides slow steps."
        yield _held(figures, "period_ns", (reason,), TIMES, KEPT, rows, "mean ", STEP_TIME)
    rows = _periods(figures, "p90")
    if rows and len(figures.windows[0].anchors) >= ENOUGH_FOR_P90:
        reason = f"At most {figures.largest('period_ns', rows)} for nine steps in ten: a median hides a slow quarter."
        yield _held(figures, "period_ns", (reason,), TIMES, KEPT, rows, "p90 ", STEP_TIME)


def _periods(figures: Figures, quantile: str) -> dict[Labels, Value]:
    return {labels: value for labels, value in figures.rows("period_ns").items() if labels[1] == quantile}


def drafted_kinds(counts: Mapping[str, int], shown: str | None) -> Mapping[str, int]:
    """Select the kinds of steps that have enough of them for a median, and the one that is shown.

    Where none has enough all are: a rare one that nobody asked for loosens no gate.
    """
    has_few_steps = max(counts.values(), default=0) < FEW_ANCHORS
    return {kind: count for kind, count in counts.items() if has_few_steps or count >= FEW_ANCHORS or kind == shown}


def _step_times(figures: Figures, counts: Mapping[str, int]) -> Iterator[DraftSentence]:
    """Draft a limit for each kind of steps that has enough of them, the most frequent first."""
    for kind, count in by_number(drafted_kinds(counts, figures.spec.kind)):
        kind_figures = replace(figures, spec=replace(figures.spec, kind=kind))
        if rows := kind_figures.rows("step_time_ns"):
            median_text = ", the median" if count > 1 else ","
            reason = f"{counted(count, f'{kind} step')}{median_text} {format_value(max(rows.values()))} on the GPU."
            yield _held(kind_figures, "step_time_ns", (reason,), TIMES, KEPT, which=f"{kind} ")
    if sum(counts.values()) > 1:  # of one step it says what its time says
        yield from _throughput(replace(figures, spec=WindowSpec(RUN)))


def _throughput(figures: Figures) -> Iterator[DraftSentence]:
    """Draft the tokens of an engine per second over steps of all kinds: which kinds take the time no step time says."""
    for rate in figures.rows("tokens_per_s").values():
        reason = (
            f"{format_value(rate, METRICS['tokens_per_s'].unit)} over steps of all kinds, with the time between them."
        )
        share = min(MOST_OF_STEP, relative([*figures.each("tokens_per_s").values()]))
        sentence = f"tokens_per_s above baseline minus {int(100 * share)}%"
        yield DraftSentence({"assert": sentence, "window": RUN}, (reason,), TIMES, KEPT)


def _memory(figures: Figures) -> Iterator[DraftSentence]:
    if figures.rows("peak_allocated_bytes"):
        largest_text = figures.largest("peak_allocated_bytes")
        reason = f"At most {largest_text} allocated on the GPU at any moment of the run."
        yield _held(figures, "peak_allocated_bytes", (reason,), TIMES, 1)


def _held(
    figures: Figures,
    metric: str,
    why: tuple[str, ...],
    group: str,
    rank: int,
    among: Mapping[Labels, Value] | None = None,
    which: str = "",
    called: str = "",
) -> DraftSentence:
    """Draft a limit of a time, or memory, above its baseline, with the file's tolerance where that fits.

    It fits where it is wide enough and not too wide. ``subset`` are the rows that are judged, of which the largest says
    what its limit is. ``named_metric``: the metric that the sentence names, where that means its rows.
    """
    medians = figures.rows(metric) if among is None else among
    rows = [captures for labels, captures in figures.each(metric).items() if labels in medians]
    is_rough, is_time = METRICS[metric].rough, METRICS[metric].unit == TIME
    absolute = file_smallest_ns(figures) if is_time else 0
    max_share, file_share = _largest_share(figures, metric, max(medians.values())), file_tolerance(figures)
    guessed_share = ROUGH if is_rough else GUESS
    row_share = min(max_share, relative(rows, absolute, guessed_share))
    doubt, aggregate = _find_doubt(rows, max(row_share, file_share), absolute, METRICS[metric].unit), ""
    if doubt and metric not in STEP_LENGTHS and len(rows) > 1:
        # The largest row of a capture moves less by chance than each of many.
        largest_rows = [[max(captures) for captures in zip(*rows, strict=True)]]
        share = min(max_share, relative(largest_rows, absolute, guessed_share))
        if not _find_doubt(largest_rows, max(share, file_share), absolute, METRICS[metric].unit):
            rows, row_share, doubt, aggregate = largest_rows, share, "", "max "
    if metric == "compute_ns" and (compute_absolute := smallest_ns(min(map(min, rows)))) < absolute:
        row_share, absolute = min(max_share, relative(rows, compute_absolute)), compute_absolute
        words = f"max({int(100 * row_share)}%, {written_ns(absolute)})"
    elif row_share <= file_share:
        row_share, words = file_share, "tolerance"
    else:
        words = f"max({int(100 * row_share)}%, {written_ns(absolute)})" if is_time else f"{int(100 * row_share)}%"
    limit = _limit_words(max(medians.values()), row_share, absolute, METRICS[metric].unit)
    sentence = f"{aggregate}{which}{spoken(METRICS[called or metric])} below baseline plus {words}"

    def breaks_limit(labels: Labels, value: Value) -> bool:
        median_value = medians.get(labels)
        return median_value is not None and Fraction(value) > Fraction(median_value) + max(
            row_share * Fraction(median_value), Fraction(absolute)
        )

    misses = count_misses(figures.captures, figures.spec, METRICS[metric], breaks_limit)
    comment_lines = (
        f"{why[0]} {limit}",
        *why[1:],
        *_describe(misses),
        *([f"{doubt[:1].upper()}{doubt[1:]}."] if doubt else []),
    )
    must_draft = not doubt or metric in NEVER_DROPPED
    outlying_captures = figures.captures.outlying(METRICS[metric], figures.spec)
    return DraftSentence(sentence, comment_lines, group, rank, doubt or "; ".join(outlying_captures), must_draft)


def _largest_share(figures: Figures, metric: str, largest: Value) -> Fraction:
    """Choose the most that a tolerance may be of a metric: of times a tenth of the step."""
    if metric in STEP_LENGTHS or not largest:
        return MOST_OF_STEP
    if METRICS[metric].unit != TIME:
        return Fraction(1)
    share = MOST_OF_STEP * Fraction(min(figures.rows("window_ns").values())) / Fraction(largest)
    return max(LEAST, Fraction(int(100 * share), 100))


def _find_doubt(rows: Sequence[Sequence[Value]], share: Fraction, smallest: Value, unit: str) -> str:
    """Find what a tolerance cannot see, as captures differ by chance by over twice as much; empty where none do."""
    hidden_noise = []
    for captures in rows:
        noise = noise_of(captures, len(rows))
        tolerance = max(share * abs(Fraction(median(captures))), Fraction(smallest))
        if noise is not None and noise > MOST_EXCUSED * tolerance:
            hidden_noise.append((Fraction(noise), tolerance))
    if not hidden_noise:
        return ""
    noise_text, tolerance_text = (format_value(exact(amount), unit) for amount in max(hidden_noise))
    advice = "take captures that are more alike, or more of them"
    return f"captures differ by up to {noise_text} by chance, more than twice a tolerance of {tolerance_text}: {advice}"


def _describe(misses: StepMisses | None) -> tuple[str, ...]:
    return () if misses is None else (str(misses),)


def _limit_words(value: Value, share: Fraction, smallest: Value, unit: str) -> str:
    """Describe what a tolerance comes to: ``Limit: 471 us (+12%).``"""
    limit = exact(value + max(share * Fraction(value), Fraction(smallest)))
    change_text = f" ({change_words(limit, value, unit)})" if value else ""
    return f"Limit: {format_apart(value, limit, unit)[1]}{change_text}."
