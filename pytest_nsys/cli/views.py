"""``ranks``, ``streams``, ``overlap``: the questions with which a person begins to read a trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.table import Selector, matches
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.cli.group import Exit
from pytest_nsys.cli.options import (
    MeasureOptions,
    Said,
    about_windows,
    json_window,
    print_answer,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.model import KernelsMode, Note, Rank, Value, Window
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import printable
from pytest_nsys.gates.selection import absences
from pytest_nsys.reports.tables import CellKind, Column, Row, Table, numbers, texts, times

RANKS = (
    *(*numbers("rank", "pid"), *texts("setup")),
    *(Column(name, CellKind.DETAIL) for name in ("coordinates", "sizes", "micro_batch", "sequence_length", "file")),
    *(*texts("window"), *numbers("index", "count", "start_ns", "end_ns"), *times("length_ns")),
)
STREAMS = (
    *numbers("pid", "stream", "n_comm", "n_comp", "comm_ns", "comp_ns"),
    *(*texts("purpose"), *numbers("rank", "device", "context", "index")),
)
OVERLAP = (
    *(*numbers("pid"), *texts("stage"), *numbers("exposed_ns")),
    *(Column(name, CellKind.PERCENT) for name in ("overlap", "overlap_min", "overlap_max")),
    *numbers("rank", "comm_ns", "n_comm", "index"),
)


def _by_pid(ranks: Iterable[Rank]) -> list[Rank]:
    return sorted(ranks, key=lambda rank: (rank.pid, rank.number))


def ranks(asked: MeasureOptions, traces: tuple[str, ...], said: Said) -> None:  # noqa: ARG001  every view's
    """List the ranks of a run, their setup labels, and the window that each is measured in."""
    with asked.one_run(traces) as (captures, spec):
        (run,) = captures.runs
        # A labelled rank is one without kernels, too; without labels it takes kernels to tell ranks apart.
        chosen = asked.chosen(run.labelled_ranks or run.ranks)
        rows, windows = [], []
        for rank in chosen.values():
            for w, gpu_ns in _windows_of(run, rank, spec):
                rows.append((*_setup(rank), w.name, w.index, w.count, w.start_ns, w.end_ns, w.length_ns))
                windows.append(json_window(rank, w, gpu_ns))
        notes = [*asked.notes, Note(str(spec)), *run.rank_notes]
        print_answer(asked.format, Table(RANKS, rows), about_windows(traces, spec, windows), notes)


def _setup(rank: Rank) -> Row:
    label = rank.setup
    if label is None:
        return (rank.number, rank.pid, None, None, None, None, None, str(rank.trace))
    parts = (label.coordinates, label.sizes, label.micro_batch, label.sequence_length)
    return (rank.number, rank.pid, label.text, *parts, str(rank.trace))


def _windows_of(run: Run, rank: Rank, spec: WindowSpec) -> Iterator[tuple[Window, tuple[int, int] | None]]:
    """The windows of a rank with their bounds on the GPU; kernels are read only where those depend on them."""
    if spec.whole_run or spec.kernels is KernelsMode.LAUNCHED:
        group = run.measured(spec)
        for measured in group.ranks.get(rank.number) or group.filled({rank.number})[rank.number]:
            yield measured.window, (measured.start_ns, measured.end_ns) if len(measured) else None
    else:
        for w in run.windows(rank, spec):
            yield w, (w.start_ns, w.end_ns)


def _measured(asked: MeasureOptions, run: Run, spec: WindowSpec) -> list[RankWindow]:
    """Every window of the ranks asked for, by process; none of them is empty."""
    ranks = asked.chosen(run.ranks)
    filled = run.measured(spec).filled(ranks)
    return [w for rank in _by_pid(ranks.values()) for w in filled[rank.number]]


def _notes(asked: MeasureOptions, captures: Captures, spec: WindowSpec, metric: str) -> list[Note]:
    return [*asked.notes, Note(str(spec)), *captures.notes(spec, METRICS[metric])]


def _json_windows(windows: Sequence[RankWindow]) -> list[dict[str, object]]:
    return [json_window(w.rank, w.window, (w.start_ns, w.end_ns)) for w in windows]


def streams(asked: MeasureOptions, traces: tuple[str, ...], said: Said) -> None:  # noqa: ARG001  every view's
    """Show what each stream ran in the window, and its purpose."""
    with asked.one_run(traces, metrics=["comm_streams"]) as (captures, spec):
        windows = _measured(asked, captures.runs[0], spec)
        rows = [row for w in windows for row in _stream_rows(w)]
        about = about_windows(traces, spec, _json_windows(windows))
        print_answer(asked.format, Table(STREAMS, rows), about, _notes(asked, captures, spec, "comm_streams"))


def _stream_rows(w: RankWindow) -> Iterator[Row]:
    for use in sorted(w.streams, key=lambda use: (use.stream.number, use.stream.device, use.stream.context)):
        counts = (use.communication_kernels, use.compute_kernels, use.communication_ns, use.compute_ns)
        place = (w.rank.number, use.stream.device, use.stream.context, w.window.index)
        yield (w.rank.pid, use.stream.number, *counts, use.purpose, *place)


def overlap(asked: MeasureOptions, traces: tuple[str, ...], said: Said) -> None:
    """Show how much of its communication each stage overlaps with compute."""
    stages = said.labels("overlap", "stage")
    with asked.one_run(traces, metrics=["overlap"]) as (captures, spec):
        windows = _measured(asked, captures.runs[0], spec)
        shown = _shown_stages(windows, stages)
        rows = [row for w in windows for row in _overlap_rows(w, shown)]
        shared = list(_with_barriers(windows, alone=not stages and not any(w.communication for w in windows)))
        why = _absent(captures, spec, windows, shown) if rows else [_why_no_overlap(windows)]
        notes = [*_notes(asked, captures, spec, "overlap"), *why, *shared]
        print_answer(asked.format, Table(OVERLAP, rows), about_windows(traces, spec, _json_windows(windows)), notes)
    if not rows and not shared:
        click.get_current_context().exit(Exit.NO_DATA)


def _shown_stages(windows: Sequence[RankWindow], asked: Sequence[str]) -> set[str]:
    """The stages to show: those asked for, else all but ``none``, which counts where the convention names no stages.

    Raises NothingMeasured for one without a kernel.
    """
    found = {stage for w in windows for stage in w.by_stage}
    if not asked or not found:
        return found - {NO_STAGE} if any(w.track.convention.stage for w in windows) else found
    selectable = found if NO_STAGE in asked else found - {NO_STAGE}
    shown: set[str] = set()
    for element in asked:
        meant = {stage for stage in selectable if matches(element, stage)}
        if not meant:
            exist = ", ".join(printable(stage) for stage in sorted(found))
            raise NothingMeasured(f"no communication kernel has stage {element}; stages with communication: {exist}")
        shown |= meant
    return shown


def _overlap_rows(w: RankWindow, shown: set[str]) -> Iterator[Row]:
    columns: dict[str, dict[object, Value]] = {}
    for name in ("exposed_ns", "overlap", "overlap_min", "overlap_max", "comm_ns"):
        columns[name] = {row.labels[1]: row.value for row in METRICS[name].rows(w)}
    for stage, members in w.by_stage.items():
        if stage in shown:
            exposed, *ratios, length = (values.get(stage) for values in columns.values())
            yield (w.rank.pid, stage, exposed, *ratios, w.rank.number, length, len(members), w.window.index)


def _absent(captures: Captures, spec: WindowSpec, windows: Sequence[RankWindow], shown: set[str]) -> Iterator[Note]:
    """The ranks of the table that lack a row which others of it have."""
    ranks = frozenset(w.rank.number for w in windows)
    table = captures.rows(METRICS["overlap"], spec, ranks)
    for each in absences(table, {"stage": Selector(tuple(sorted(shown)))}):
        if each.rank in ranks:
            yield Note(f"overlap: {each}", True)


def _with_barriers(windows: Sequence[RankWindow], *, alone: bool) -> Iterator[Note]:
    """The figures that count barriers, which the table leaves out, where compute of other streams may hide these, or
    where they are ``alone``.
    """
    for w in windows:
        figures = [(METRICS[name], METRICS[name].rows(w)) for name in ("wall_overlap_all", "wall_exposed_all_ns")]
        said = [f"{metric.name} {format_value(row.value, metric.unit)}" for metric, rows in figures for row in rows]
        if said and (w.hides_barriers or (alone and w.barriers)):
            whose = f"rank {w.rank.number}" + ("" if w.window.index is None else f", window {w.window.index}")
            yield Note(f"{whose}, with communication on streams that also compute: {', '.join(said)}")


def _why_no_overlap(windows: Sequence[RankWindow]) -> Note:
    """Why the table is empty, of the windows that it would show."""
    if any(w.communication for w in windows):
        why = f"no communication kernel has a stage under this convention: --where stage={NO_STAGE} shows them"
    elif any(w.barriers for w in windows):
        why = "overlap counts communication streams alone; `pytest-nsys rows barrier_ns` has the rest"
    else:
        why = "no communication kernel in the windows shown"
    return Note(f"no rows: {why}")
