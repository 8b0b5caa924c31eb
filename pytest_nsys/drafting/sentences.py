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
    """What the captures hold under one window spec. Raises NothingMeasured where a window is empty."""

    captures: Captures
    spec: WindowSpec

    @property
    def count(self) -> int:
        """The number of captures."""
        return len(self.captures.runs)

    def rows(self, metric: str) -> dict[Labels, Value]:
        """The rows of a metric, medians over the captures; none where some capture lacks a row."""
        measured = self.captures.rows(METRICS[metric], self.spec)
        return {} if measured.missing else {row.labels: row.value for row in measured.rows}

    def each(self, metric: str) -> dict[Labels, list[Value]]:
        """The values of every row, one for each capture."""
        found: dict[Labels, list[Value]] = {labels: [] for labels in self.rows(metric)}
        for one in self.captures.each(METRICS[metric], self.spec):
            for row in one.rows:
                if row.labels in found:
                    found[row.labels].append(row.value)
        return found

    @property
    def windows(self) -> list[RankWindow]:
        """The windows of every rank of every capture."""
        return [window for run in self.captures.runs for window in run.measured(self.spec)]

    def largest(self, metric: str, among: Mapping[Labels, Value] | None = None) -> str:
        """The largest row, of all or of some, in words: ``1 278 us (rank 5 stage4_f)``."""
        rows = self.rows(metric) if among is None else among
        return self.named(metric, max(rows.items(), key=_by_value))

    def smallest(self, metric: str, among: Mapping[Labels, Value]) -> str:
        """The smallest of some rows in words."""
        return self.named(metric, min(among.items(), key=_by_value))

    def named(self, metric: str, row: tuple[Labels, Value]) -> str:
        """A value with the labels of its row."""
        labels, value = row
        where = place_words(zip(METRICS[metric].dimensions, labels, strict=True))
        return f"{format_value(value, METRICS[metric].unit)} ({printable(where, 60)})"


def _by_value(row: tuple[Labels, Value]) -> tuple[Value, str]:
    return row[1], str(row[0])


def by_stage(rows: Mapping[Labels, Value]) -> dict[str, dict[Labels, Value]]:
    """Rows per (rank, stage) by stage, stages ordered by name."""
    found: dict[str, dict[Labels, Value]] = {}
    for labels, value in rows.items():
        found.setdefault(str(labels[1]), {})[labels] = value
    return dict(sorted(found.items()))


# Assertions

STEP_LENGTHS = ("window_ns", "step_time_ns", "period_ns")
NEVER_DROPPED = (*STEP_LENGTHS, "compute_ns")
"""Metrics without which a slower step passes: they are drafted however much captures differ, with a warning."""

MOST = 14
MOST_STAGES = 4
LEAST_PERCENT = 5
"""An overlap limit below it would hold nothing."""

BIG_PERCENT = 2
"""Of the time of all kernels; autotuning picks others for smaller ones."""

Entry = str | Mapping[str, str | Mapping[str, str]]


@dataclass(frozen=True)
class DraftSentence:
    """One entry under ``assertions:``: a sentence, or the keys of a mapping. ``group`` is the heading it stands below.

    ``why`` are comment lines. Of too many the largest ``rank`` goes first; KEPT never does. ``doubt`` is what its
    captures differ by, where that is more than the sentence bears: it is told. ``drafted``: it is written all the same.
    """

    entry: Entry
    why: tuple[str, ...]
    group: str
    rank: int
    doubt: str = ""
    drafted: bool = True

    @property
    def title(self) -> str:
        """How it is called in a message."""
        return self.entry if isinstance(self.entry, str) else str(self.entry.get("id", self.entry["assert"]))


KEPT, PER_STAGE = 0, 99
ENOUGH_FOR_P90 = 2 * FEW_ANCHORS
STRUCTURE, HIDDEN, TIMES = "Structure", "Communication", "Time"
GROUPS = (STRUCTURE, HIDDEN, TIMES)
"""In the order of the file."""


def file_tolerance(figures: Figures) -> Fraction:
    """The relative tolerance of the file: what the window's length needs."""
    return min(MOST_OF_STEP, relative([*figures.each("window_ns").values()], file_smallest_ns(figures)))


def file_smallest_ns(figures: Figures) -> int:
    """The absolute tolerance of times: small beside the shortest window."""
    return smallest_ns(min(figures.rows("window_ns").values()))


def draft_sentences(figures: Figures) -> list[DraftSentence]:
    """The assertions, in the order of the file, and those that are not drafted, with their doubt."""
    windows = figures.windows
    found: list[DraftSentence] = []
    communicates = any(window.communication for window in windows)
    chosen = walls(sharing_in(windows))
    if communicates:
        found += _streams(figures)
    found += _barriers(figures, chosen, communicates=communicates)
    found += _launched(figures)
    found += _syncs(figures)
    found += _pageable(figures)
    if communicates:
        found += _overlaps(figures, chosen)
        found += _exposed(figures, chosen)
    found += _balance(figures)
    found += _times(figures)
    found += _memory(figures)
    while sum(sentence.drafted for sentence in found) > MOST:
        found.remove(max((each for each in found if each.drafted), key=lambda sentence: sentence.rank))
    return sorted(found, key=lambda sentence: GROUPS.index(sentence.group))


def _over_ranks(figures: Figures) -> str:
    ranks = len(figures.captures.runs[0].ranks)
    return "the rank" if ranks == 1 else f"each of {ranks} ranks"


def _streams(figures: Figures) -> Iterator[DraftSentence]:
    rows = figures.rows("comm_streams")
    counts: dict[Label, int] = {}
    for (rank, _), value in rows.items():
        counts[rank] = counts.get(rank, 0) + int(value)
    used = sorted({str(purpose) for (_, purpose), value in rows.items() if value})
    named = printable(f" ({', '.join(used)})", 80) if used != [UNKNOWN] else ""
    many = " to ".join(map(str, sorted({min(counts.values()), max(counts.values())})))
    why = f"Streams that communicate, on {_over_ranks(figures)}: {many}{named}."
    yield DraftSentence("comm streams == baseline", (why,), STRUCTURE, 2)
    if not figures.captures.convention.purposes:
        return
    whys = {
        "mixed": "A stream with two purposes runs in order what could run side by side.",
        "unknown": "New communication would have no purpose yet.",
    }
    for purpose, why in whys.items():
        if not any(value for (_, own), value in rows.items() if own == purpose):
            yield DraftSentence(f"no {purpose} comm streams", (why,), STRUCTURE, 3 if purpose == "mixed" else 9)


def _barriers(figures: Figures, chosen: Walls, *, communicates: bool) -> Iterator[DraftSentence]:
    rows = figures.rows("barrier_ns")
    if rows and not any(rows.values()):
        if communicates:
            why = "Communication on a compute stream would wait for that stream's compute."
            yield DraftSentence("no barrier", (why,), STRUCTURE, 4)
        return
    every = figures.rows(chosen.exposed) if chosen == ALL else {}
    if rows:
        shown = figures.largest("barrier_ns")
        hidden = any(window.hides_barriers for window in figures.windows)
        how = "only other streams' compute can hide it" if hidden else "it never overlaps"
        reasons = [f"{shown} of communication on compute streams: {how}."]
        if not communicates:
            reasons.append("All communication is such, so 'exposed' and 'overlap' have no rows.")
        kept = rows == every or not (hidden or communicates)
        yield _held(figures, "barrier_ns", tuple(reasons), HIDDEN, KEPT if kept else 4)
    if chosen == ALL:
        if not communicates:
            yield from _wall_overlap(figures, chosen.overlap)
        if every and every != rows:  # else 'barrier' holds the same figure, and more
            most = figures.largest(chosen.exposed, every)
            why = f"At most {most} of communication without compute on any stream, 'barrier' included."
            yield _held(figures, chosen.exposed, (why,), HIDDEN, KEPT)


def _launched(figures: Figures) -> Iterator[DraftSentence]:
    """What is exact, so only under a mode that does not depend on when the GPU got to a kernel."""
    if figures.spec.kernels is KernelsMode.LAUNCHED or figures.spec.whole_run:
        yield from (*_launches(figures), *_kernels(figures))
        return
    if figures.captures.convention.kernel_anchor is not None:  # clipped: too few launches are on record
        yield from _kernels(figures)
        return
    own = Figures(figures.captures, replace(figures.spec, kernels=KernelsMode.LAUNCHED))
    if not all(len(window) for window in own.windows):
        return
    also = "Counted where they are launched: when the GPU gets to them moves the edges of a window."
    mode = {"kernels": str(KernelsMode.LAUNCHED)}
    for each in _launches(own):
        yield replace(each, entry=_keys(each.entry) | mode, why=(*each.why, also))
    for each in _kernels(own):
        yield replace(each, entry=_keys(each.entry) | mode)


def _keys(entry: Entry) -> dict[str, str | Mapping[str, str]]:
    return {"assert": entry} if isinstance(entry, str) else dict(entry)


def _unstaged(metric: str, asserted: str, *, alone: bool = False) -> Entry:
    """What is asserted of kernels without a stage, by the name that it has in a comparison; ``alone``: of all."""
    name = metric if alone else f"{metric} without a stage"
    return {"id": name, "assert": f"{metric} of stage {NO_STAGE}{asserted.removeprefix(metric)}"}


def _launches(figures: Figures) -> Iterator[DraftSentence]:
    """Of the kernels with a stage, and of those without one."""
    each = figures.each("launches")
    staged = {labels: captures for labels, captures in each.items() if labels[1] != NO_STAGE}
    unstaged = {labels: captures for labels, captures in each.items() if labels[1] == NO_STAGE}
    changed = "One more or fewer: the program changed."
    if _is_exact(staged):
        why = f"{_launches_in(staged)} in stages. {changed}"
        yield DraftSentence("launches == baseline", (why,), STRUCTURE, KEPT)
    if _is_exact(unstaged):
        why = f"{_launches_in(unstaged)} {'without a stage' if staged else 'in all'}. {changed}"
        sentence = _unstaged("launches", "launches == baseline", alone=not staged)
        yield DraftSentence(sentence, (why,), STRUCTURE, KEPT)


def _is_exact(each: Mapping[Labels, Sequence[Value]]) -> bool:
    """Whether there are rows, and every capture has the same."""
    return bool(each) and all(len(set(captures)) == 1 for captures in each.values())


def _launches_in(each: Mapping[Labels, Sequence[Value]]) -> str:
    return counted(int(sum(captures[0] for captures in each.values())), "kernel")


def _kernels(figures: Figures) -> Iterator[DraftSentence]:
    """Those that have more of the time than any that only some captures ran."""
    each = figures.each("kernel_share")
    chance = [max(captures) for captures in each.values() if len(captures) < figures.count]
    limit = max([BIG_PERCENT, *(ceil(100 * Fraction(share)) for share in chance)])
    big = [(labels, value) for labels, value in figures.rows("kernel_share").items() if 100 * value > limit]
    if big:
        most = figures.largest("kernel_share", dict(big))
        many = f"{len(big)} of {counted(len(each), 'kernel')} {'has' if len(big) == 1 else 'have'}"
        why = f"{many} over {limit}% of the kernel time, most {most}."
        yield DraftSentence(f"no new or vanished kernels above {limit}%", (why,), STRUCTURE, KEPT)


def _syncs(figures: Figures) -> Iterator[DraftSentence]:
    each = figures.each("syncs")
    if each and not any(any(captures) for captures in each.values()):
        why = ["No synchronising call in the window."]
        if not any(_synchronises(window) for window in figures.windows):
            why.append("None in the rest of the trace, either: a profiler that does not record them sees none.")
        yield DraftSentence("no syncs", tuple(why), STRUCTURE, KEPT)
    elif _is_exact(each):
        why = [f"How often the CPU waits for the GPU: at most {figures.largest('syncs')}."]
        yield DraftSentence("syncs <= baseline", tuple(why), STRUCTURE, KEPT)


def _synchronises(window: RankWindow) -> bool:
    """Whether a synchronising call of this rank's process is recorded, whenever it was made."""
    always = {window.rank.process.global_pid: (-LONGEST_NS, LONGEST_NS)}
    calls = window.track.around.trace.api_calls(SYNCHRONISING_CALLS, always) or {}
    return any(waiting_call(call.name) for own in calls.values() for call in own)


def _pageable(figures: Figures) -> Iterator[DraftSentence]:
    each = figures.each("pageable_copies")
    if _is_exact(each) and any(captures[0] for captures in each.values()):
        why = f"Copies from or to pageable host memory: at most {figures.largest('pageable_copies')}."
        yield DraftSentence("pageable copies <= baseline", (why,), STRUCTURE, 1)


def _overlaps(figures: Figures, chosen: Walls) -> Iterator[DraftSentence]:
    """A limit for each stage; for pairs (forward, backward) where there are many; for the rank where there is none."""
    stages = {stage: rows for stage, rows in by_stage(figures.rows("overlap")).items() if stage != NO_STAGE}
    if not stages:
        yield from _wall_overlap(figures, chosen.overlap)
        return
    groups: dict[str, dict[Labels, Value]] = {}
    for stage, rows in stages.items():
        name = stage.rpartition("_")[0] if len(stages) > MOST_STAGES else ""
        groups.setdefault(name or stage, {}).update(rows)
    each = figures.each("overlap")
    limits = {
        name: (percent_below(rows.values(), points([each[labels] for labels in rows])), rows)
        for name, rows in groups.items()
    }
    worst = sorted((limit, name) for name, (limit, _) in limits.items() if limit >= LEAST_PERCENT)[:MOST_STAGES]
    for name in sorted(name for _, name in worst):
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
            why = _why_overlap(figures, metric, rows, limit)
            yield DraftSentence(f"{spoken(METRICS[metric])} >= {limit}%", why, HIDDEN, 4)


def _why_overlap(figures: Figures, metric: str, rows: Mapping[Labels, Value], limit: int) -> tuple[str, ...]:
    away = distance_words(Fraction(min(rows.values())) - Fraction(limit, 100), RATIO)
    least = figures.smallest(metric, rows)
    rest = f", median {percent(median(list(rows.values())))}" if len(rows) > 1 else ""

    def breaks(labels: Labels, value: Value) -> bool:
        return labels in rows and 100 * Fraction(value) < limit

    misses = count_misses(figures.captures, figures.spec, METRICS[metric], breaks)
    return (f"At worst {least}{rest}: headroom {away}.", *_describe(misses))


def _exposed(figures: Figures, chosen: Walls) -> Iterator[DraftSentence]:
    """Per stage, and of what has none; of that alone where nothing has a stage, unless ``chosen`` is held already."""
    by_name = by_stage(figures.rows("exposed_ns"))
    unstaged = by_name.pop(NO_STAGE, {})
    staged = {labels: value for rows in by_name.values() for labels, value in rows.items()}
    if not (rows := staged or (unstaged if chosen == OWN else {})):
        return
    why = f"At most {figures.largest('exposed_ns', rows)} of communication without compute beside it."
    yield _held(figures, "exposed_ns", (why,), HIDDEN, KEPT, rows)
    if staged and unstaged:
        why = f"The same of communication without a stage: at most {figures.largest('exposed_ns', unstaged)}."
        held = _held(figures, "exposed_ns", (why,), HIDDEN, KEPT, unstaged)
        yield replace(held, entry=_unstaged("exposed", held.title))


def _balance(figures: Figures) -> Iterator[DraftSentence]:
    if figures.captures.mesh.sizes.get("pp", 1) < 2 or not figures.rows("compute_ns"):
        return
    tables = figures.captures.each(METRICS["compute_ns"], figures.spec)
    try:
        ratios = [value for table in tables for _, value in balance(table, table.labelled(), "pp")]
    except NothingSelected:
        return
    limit = hundredths_above(max(ratios), points([ratios]))
    shown = f"{float(max(ratios)):.3f}"
    why = f"{shown}: the most compute of a pipeline stage over the least. The slowest stage limits the step."
    yield DraftSentence(f"balance of compute across pp <= {float(limit):.2f}", (why,), TIMES, 5)


def _times(figures: Figures) -> Iterator[DraftSentence]:
    step = _step(figures)
    yield from step
    windows = figures.rows("window_ns")
    if not step or [*figures.rows("step_time_ns").values()] != [max(windows.values())]:  # of one step they are one
        what = "from end to end"
        if any(window.goes_on for window in figures.windows):
            what = "until the next step begins on the GPU"
        elif figures.spec.whole_run or figures.spec.kernels is KernelsMode.LAUNCHED:
            what = "from the first start to the last end of its kernels"
        why = (f"At most {figures.largest('window_ns')}: the window, {what}.",)
        yield _held(figures, "window_ns", why, TIMES, 2 if step else KEPT)
    drafted = [(metric.drafted, metric.name) for metric in METRICS.values() if metric.drafted is not None]
    for (what, rank), name in sorted(drafted, key=lambda each: each[0].rank):
        if figures.rows(name):
            yield _held(figures, name, (f"At most {figures.largest(name)}: {what}.",), TIMES, rank)


def _step(figures: Figures) -> list[DraftSentence]:
    """How long a step takes; where an anchor is a part of one, the period of that. None of a whole run."""
    if figures.spec.window == RUN:
        return []
    if counts := figures.captures.runs[0].steps.shared:
        return list(_step_times(figures, counts))
    if rows := figures.rows("step_time_ns"):
        shown = format_value(rows[()])
        why = f"{shown}: a step of the slowest rank, {_which_steps(figures.windows)}."
        if any(len(window.anchors) == 1 for window in figures.windows):
            why = f"{shown}: the step, on the slowest rank."
        return [_held(figures, "step_time_ns", (why,), TIMES, KEPT), *_slow_steps(figures)]
    rows = _periods(figures, "p50")
    if not rows:
        return []
    worst = figures.largest("period_ns", rows)
    why = f"At most {worst} from one anchor to the next: the median of all but the first."
    return [_held(figures, "period_ns", (why,), TIMES, KEPT, rows, "p50 ")]


def _which_steps(windows: Sequence[RankWindow]) -> str:
    counted_numbers = [len(counted_periods(window.track)) for window in windows]
    if any(len(step_periods(window.track)) > number for window, number in zip(windows, counted_numbers, strict=True)):
        return "the median of all whole steps but the first"
    most = max(counted_numbers)
    return "the only whole one" if most == 1 else f"the median of {most} whole ones"


def _slow_steps(figures: Figures) -> Iterator[DraftSentence]:
    """What slow steps make longer, which a median does not see: the mean, and of enough steps the slow ones."""
    if rows := _periods(figures, "mean"):
        why = f"At most {figures.largest('period_ns', rows)} on average: a median hides slow steps."
        yield _held(figures, "period_ns", (why,), TIMES, KEPT, rows, "mean ", STEP_TIME)
    rows = _periods(figures, "p90")
    if rows and len(figures.windows[0].anchors) >= ENOUGH_FOR_P90:
        why = f"At most {figures.largest('period_ns', rows)} for nine steps in ten: a median hides a slow quarter."
        yield _held(figures, "period_ns", (why,), TIMES, KEPT, rows, "p90 ", STEP_TIME)


def _periods(figures: Figures, quantile: str) -> dict[Labels, Value]:
    return {labels: value for labels, value in figures.rows("period_ns").items() if labels[1] == quantile}


def drafted_kinds(counts: Mapping[str, int], shown: str | None) -> Mapping[str, int]:
    """The kinds of steps that have enough of them for a median, and the one ``shown``; where none has enough, all: a
    rare one that nobody asked for loosens no gate.
    """
    few = max(counts.values(), default=0) < FEW_ANCHORS
    return {kind: count for kind, count in counts.items() if few or count >= FEW_ANCHORS or kind == shown}


def _step_times(figures: Figures, counts: Mapping[str, int]) -> Iterator[DraftSentence]:
    """Of each kind of steps that has enough of them, the most frequent first."""
    for kind, count in by_number(drafted_kinds(counts, figures.spec.kind)):
        own = replace(figures, spec=replace(figures.spec, kind=kind))
        if rows := own.rows("step_time_ns"):
            which = ", the median" if count > 1 else ","
            why = f"{counted(count, f'{kind} step')}{which} {format_value(max(rows.values()))} on the GPU."
            yield _held(own, "step_time_ns", (why,), TIMES, KEPT, which=f"{kind} ")
    if sum(counts.values()) > 1:  # of one step it says what its time says
        yield from _throughput(replace(figures, spec=WindowSpec(RUN)))


def _throughput(figures: Figures) -> Iterator[DraftSentence]:
    """The tokens of an engine in a second over steps of all kinds: which kinds take the time is in no step time."""
    for rate in figures.rows("tokens_per_s").values():
        why = f"{format_value(rate, METRICS['tokens_per_s'].unit)} over steps of all kinds, with the time between them."
        share = min(MOST_OF_STEP, relative([*figures.each("tokens_per_s").values()]))
        sentence = f"tokens_per_s above baseline minus {int(100 * share)}%"
        yield DraftSentence({"assert": sentence, "window": RUN}, (why,), TIMES, KEPT)


def _memory(figures: Figures) -> Iterator[DraftSentence]:
    if figures.rows("peak_allocated_bytes"):
        most = figures.largest("peak_allocated_bytes")
        why = f"At most {most} allocated on the GPU at any moment of the run."
        yield _held(figures, "peak_allocated_bytes", (why,), TIMES, 1)


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
    """A time, or memory, against its baseline, with the file's tolerance where that is wide enough and not too wide.

    ``among`` are the rows that are judged, of which the largest says what its limit is. ``called``: the metric that the
    sentence names, where that means its rows.
    """
    middles = figures.rows(metric) if among is None else among
    rows = [own for labels, own in figures.each(metric).items() if labels in middles]
    rough, is_time = METRICS[metric].rough, METRICS[metric].unit == TIME
    smallest = file_smallest_ns(figures) if is_time else 0
    most, usual = _largest_share(figures, metric, max(middles.values())), file_tolerance(figures)
    guess = ROUGH if rough else GUESS
    own = min(most, relative(rows, smallest, guess))
    doubt, aggregate = _find_doubt(rows, max(own, usual), smallest, METRICS[metric].unit), ""
    if doubt and metric not in STEP_LENGTHS and len(rows) > 1:
        # The largest row of a capture moves less by chance than each of many.
        whole = [[max(captures) for captures in zip(*rows, strict=True)]]
        share = min(most, relative(whole, smallest, guess))
        if not _find_doubt(whole, max(share, usual), smallest, METRICS[metric].unit):
            rows, own, doubt, aggregate = whole, share, "", "max "
    if metric == "compute_ns" and (least := smallest_ns(min(map(min, rows)))) < smallest:
        own, smallest = min(most, relative(rows, least)), least
        words = f"max({int(100 * own)}%, {written_ns(smallest)})"
    elif own <= usual:
        own, words = usual, "tolerance"
    else:
        words = f"max({int(100 * own)}%, {written_ns(smallest)})" if is_time else f"{int(100 * own)}%"
    limit = _limit_words(max(middles.values()), own, smallest, METRICS[metric].unit)
    sentence = f"{aggregate}{which}{spoken(METRICS[called or metric])} below baseline plus {words}"

    def breaks(labels: Labels, value: Value) -> bool:
        middle = middles.get(labels)
        return middle is not None and Fraction(value) > Fraction(middle) + max(
            own * Fraction(middle), Fraction(smallest)
        )

    misses = count_misses(figures.captures, figures.spec, METRICS[metric], breaks)
    told = (f"{why[0]} {limit}", *why[1:], *_describe(misses), *([f"{doubt[:1].upper()}{doubt[1:]}."] if doubt else []))
    is_drafted = not doubt or metric in NEVER_DROPPED
    outlying = figures.captures.outlying(METRICS[metric], figures.spec)
    return DraftSentence(sentence, told, group, rank, doubt or "; ".join(outlying), is_drafted)


def _largest_share(figures: Figures, metric: str, largest: Value) -> Fraction:
    """Return the most that a tolerance may be of a metric: of times a tenth of the step."""
    if metric in STEP_LENGTHS or not largest:
        return MOST_OF_STEP
    if METRICS[metric].unit != TIME:
        return Fraction(1)
    share = MOST_OF_STEP * Fraction(min(figures.rows("window_ns").values())) / Fraction(largest)
    return max(LEAST, Fraction(int(100 * share), 100))


def _find_doubt(rows: Sequence[Sequence[Value]], share: Fraction, smallest: Value, unit: str) -> str:
    """Say what a tolerance cannot see, as captures differ by chance by more than twice as much; empty where none do."""
    blind = []
    for captures in rows:
        noise = noise_of(captures, len(rows))
        tolerance = max(share * abs(Fraction(median(captures))), Fraction(smallest))
        if noise is not None and noise > MOST_EXCUSED * tolerance:
            blind.append((Fraction(noise), tolerance))
    if not blind:
        return ""
    most, allowed = (format_value(exact(each), unit) for each in max(blind))
    alike = "take captures that are more alike, or more of them"
    return f"captures differ by up to {most} by chance, more than twice a tolerance of {allowed}: {alike}"


def _describe(misses: StepMisses | None) -> tuple[str, ...]:
    return () if misses is None else (str(misses),)


def _limit_words(value: Value, share: Fraction, smallest: Value, unit: str) -> str:
    """What a tolerance comes to: ``Limit: 471 us (+12%).``"""
    limit = exact(value + max(share * Fraction(value), Fraction(smallest)))
    more = f" ({change_words(limit, value, unit)})" if value else ""
    return f"Limit: {format_apart(value, limit, unit)[1]}{more}."
