"""Which views of a run are there, and what does each show?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.stream_sharing import StreamSharing, measure_sharing
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.model import Note
from pytest_nsys.reports.tables.formats import (
    CellKind,
    Column,
    make_number_column,
    make_number_columns,
    make_ratio_columns,
    make_time_columns,
)
from pytest_nsys.reports.views.budget import GAIN_TITLE, find_budgets_of_view, list_budget_rows, summarize_budgets
from pytest_nsys.reports.views.configuration import CONFIG
from pytest_nsys.reports.views.kernels import describe_measured, summarize_collectives, summarize_kernels
from pytest_nsys.reports.views.pipeline import PIPELINE
from pytest_nsys.reports.views.program import PROGRAM
from pytest_nsys.reports.views.view import (
    PID_COLUMN,
    AnyColumn,
    RowCells,
    ShownWindow,
    View,
    ViewRequest,
    ViewSummary,
    ViewTable,
    make_metric_column,
)


def list_view_windows(request: ViewRequest) -> Iterator[ShownWindow]:
    """Yield the windows of each requested rank. Kernels are read only where the bounds of a window depend on them."""
    run, spec = request.run, request.spec
    # A labelled rank counts even without kernels; without labels, ranks are distinguished by their kernels.
    for rank in request.select_ranks(run.labelled_ranks or run.ranks).values():
        if spec.is_whole_run or spec.is_by_launch:
            rank_group = run.load_windows(spec)
            for window in (
                rank_group.windows_by_rank.get(rank.number)
                or rank_group.require_filled_windows({rank.number})[rank.number]
            ):
                yield ShownWindow(rank, window.window, (window.start_ns, window.end_ns) if len(window) else None)
        else:
            yield from (
                ShownWindow(rank, window, (window.start_ns, window.end_ns)) for window in run.pick_windows(rank, spec)
            )


def _list_window_rows(request: ViewRequest) -> Iterator[RowCells]:
    for rank, window, gpu_bounds_ns in list_view_windows(request):
        label = rank.setup
        yield {
            "rank": rank.number,
            "pid": rank.pid,
            "setup": label and label.text,
            "file": str(rank.trace),
            "coordinates": label and label.coordinates,
            "sizes": label and label.sizes,
            "micro_batch": label and label.micro_batch,
            "sequence_length": label and label.sequence_length,
            "window": window.name,
            "index": window.index,
            "count": window.count,
            "start_ns": window.start_ns,
            "end_ns": window.end_ns,
            "length_ns": window.length_ns,
            "window_ns": None if gpu_bounds_ns is None else gpu_bounds_ns[1] - gpu_bounds_ns[0],
        }


def _list_rank_columns(request: ViewRequest) -> Sequence[AnyColumn]:
    """Return the columns of the ranks view.

    Where kernels are chosen by the range that launched them, that range is on the CPU and the measured window is on the
    GPU: the lengths of both are shown.
    """
    title_by_column = (
        {"length_ns": "range (CPU)", "window_ns": "window (GPU)"} if request.spec.is_by_launch else {"length_ns": ""}
    )
    return (
        "rank",
        make_number_column("pid"),
        "setup",
        *(Column(name, CellKind.DETAIL) for name in ("coordinates", "sizes", "micro_batch", "sequence_length", "file")),
        "window",
        *make_number_columns("index", "count"),
        *(Column(name, CellKind.EXACT) for name in ("start_ns", "end_ns")),
        *(Column(name, CellKind.TIME, title) for name, title in title_by_column.items()),
    )


RANKS = View(
    name="ranks",
    tables=(ViewTable(columns=_list_rank_columns, list_rows=_list_window_rows),),
    metric_names=(),
    list_notes=lambda request: request.captures.list_notes_of(request.spec, "missing_ranks", "numbering"),
    summarize=lambda request: ViewSummary(windows=tuple(list_view_windows(request))),
)

STREAMS = View(
    name="streams",
    tables=(
        ViewTable(
            columns=(
                *("rank", PID_COLUMN, "stream", "purpose"),
                make_metric_column("stream_comm_kernels", "comm_kernels"),
                make_metric_column("stream_comm_ns", "comm_ns"),
                make_metric_column("stream_compute_kernels", "compute_kernels"),
                make_metric_column("stream_compute_ns", "compute_ns"),
                *("device", "context"),
            )
        ),
    ),
    metric_names=("comm_streams",),
    list_notes=lambda request: request.captures.list_notes(request.spec, METRICS["comm_streams"]),
)


def _summarize_stages(request: ViewRequest) -> ViewSummary:
    """Explain why only the communication of whole ranks is shown and no stage has a row; empty if a stage has one."""
    if request.where or request.select_rows(METRICS["comm_ns"]):
        return ViewSummary()
    reason, sharing = _explain_no_overlap(request), _find_stream_sharing(request)
    # the usual notes already explain shared streams
    return ViewSummary(notes=[] if reason == sharing.left_out_reason else [Note(f"no rows by stage: {reason}")])


def _explain_no_overlap(request: ViewRequest) -> str:
    if any(window.communication for rank_windows in request.windows.values() for window in rank_windows):
        return f"no communication kernel has a stage under this convention: --where stage={NO_STAGE} shows them"
    return _find_stream_sharing(request).left_out_reason


def _find_stream_sharing(request: ViewRequest) -> StreamSharing:
    return measure_sharing(window for rank_windows in request.windows.values() for window in rank_windows)


OVERLAP = View(
    name="overlap",
    tables=(
        ViewTable(
            columns=(
                *("rank", PID_COLUMN, "stage", make_metric_column("comm_ns"), make_metric_column("exposed_ns")),
                *(
                    make_metric_column("overlap"),
                    make_metric_column("overlap_min"),
                    make_metric_column("overlap_max"),
                    make_metric_column("comm_kernels"),
                ),
            ),
            reports_missing_rows=True,
        ),
        ViewTable(
            name="ranks",
            caption="All communication of a rank, that on compute streams (barrier) included:",
            columns=(
                *("rank", PID_COLUMN, make_metric_column("wall_overlap_all", title="wall_overlap_all")),
                *(
                    make_metric_column("wall_exposed_all_ns", title="wall_exposed_all"),
                    make_metric_column("barrier_ns"),
                ),
            ),
        ),
    ),
    metric_names=("overlap",),
    option_names=frozenset({"where"}),
    summarize=_summarize_stages,
    explain_empty=_explain_no_overlap,
)


def _list_rank_notes(request: ViewRequest) -> Sequence[Note]:
    """Return the notes of a view that uses neither launches nor the roles of streams."""
    return request.captures.list_notes_of(request.spec, "missing_ranks", "numbering", "unknown_communication")


MEAN_OF_RANKS = replace(make_metric_column("kernel_ns", "ranks_time_ns", "mean of ranks"), of_all_ranks=True)
"""What a rank's kernels are compared with: a straggler is above it."""


def _list_kernel_columns(request: ViewRequest) -> Sequence[AnyColumn]:
    return (
        *("kernel", "family", make_metric_column("kernel_ns", "time_ns")),
        *([MEAN_OF_RANKS] if request.leaves_out_ranks else []),
        make_metric_column("kernel_of_window", "of_window", f"of {describe_measured(request)}"),
        make_metric_column("kernel_share", "share", "of kernels"),
        make_metric_column("kernel_launches", "launches"),
        make_metric_column("kernel_mean_ns", "mean_ns"),
    )


def _list_family_columns(request: ViewRequest) -> Sequence[AnyColumn]:
    return (
        *("family", make_metric_column("family_ns")),
        make_metric_column("family_of_window", "of_window", f"of {describe_measured(request)}"),
        make_metric_column("family_share", "share", "of kernels"),
        make_metric_column("family_launches", title="launches"),
    )


KERNELS = View(
    name="kernels",
    tables=(
        ViewTable(
            columns=_list_kernel_columns,
            caption="Kernels, per GPU and step:",
            sort_column="time_ns",
            max_rows=20,
            more_hint=": --where family=NAME shows one family, --format csv all",
        ),
        ViewTable(
            name="families",
            caption="Families:",
            columns=_list_family_columns,
            sort_column="family_ns",
            skips_zero_rows=True,
        ),
    ),
    metric_names=("family_ns",),
    one_window_reason="`pytest-nsys rows family_ns` takes medians over them",
    option_names=frozenset({"where", "steps", "step_time", "families"}),
    summarize=summarize_kernels,
    list_notes=_list_rank_notes,
)

COLLECTIVES = View(
    name="collectives",
    tables=(
        ViewTable(
            columns=(
                *("rank", "group", "collective", make_metric_column("group_size")),
                *(make_metric_column("collective_count", "count"), make_metric_column("collective_bytes", "bytes")),
                make_metric_column("collective_time_ns", "time_ns"),
                make_metric_column("busbw", "busbw_mean", "mean busbw GB/s", statistic="mean"),
                make_metric_column("busbw", title="median GB/s", statistic="median"),
                make_metric_column("busbw", "busbw_min", "min GB/s", statistic="min"),
                make_metric_column("busbw", "busbw_max", "max GB/s", statistic="max"),
                *(make_metric_column("traffic_share"), make_metric_column("collective_wait_ns", "wait_ns")),
                *(
                    make_metric_column("collective_transfer_ns", "transfer_ns"),
                    make_metric_column("bandwidth_utilisation", "utilisation"),
                ),
            ),
            row_metric_name="collective_count",
        ),
    ),
    metric_names=("collective_bytes", "collective_wait_ns"),
    one_window_reason="`pytest-nsys rows busbw` takes medians over them",
    option_names=frozenset({"where", "peak"}),
    summarize=summarize_collectives,
    list_notes=_list_rank_notes,
    explain_empty=lambda request: _find_stream_sharing(request).left_out_reason,
)


BUDGET = View(
    name="budget",
    tables=(
        ViewTable(
            columns=(
                *("rank", "part", "bound"),
                *make_time_columns("time_ns"),
                *make_ratio_columns("share"),
                Column("ceiling", CellKind.RATIO, GAIN_TITLE),
            ),
            list_rows=list_budget_rows,
        ),
    ),
    metric_names=("compute_absent_ns",),
    summarize=summarize_budgets,
    explain_empty=lambda request: find_budgets_of_view(request).missing_notes[0].text,
)

VIEWS: Mapping[str, View] = {
    view.name: view for view in (RANKS, OVERLAP, STREAMS, KERNELS, COLLECTIVES, BUDGET, PROGRAM, PIPELINE, CONFIG)
}
