"""Which views of a run are there, and what does each show?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.sharing import Sharing, sharing_in
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.model import Note
from pytest_nsys.reports.tables.formats import CellKind, Column, number, numbers, ratios, times
from pytest_nsys.reports.views.budget import GAIN, about_budgets, find_budgets_of_view, list_budget_lines
from pytest_nsys.reports.views.configuration import CONFIG
from pytest_nsys.reports.views.kernels import about_collectives, about_kernels, what_of
from pytest_nsys.reports.views.pipeline import PIPELINE
from pytest_nsys.reports.views.view import PID, AnyColumn, Key, Looked, Paragraph, Part, Picked, View, figure


def picked(looked: Looked) -> Iterator[Picked]:
    """Yield the windows of each requested rank. Kernels are read only where the bounds of a window depend on them."""
    run, spec = looked.run, looked.spec
    # A labelled rank is one without kernels, too; without labels it takes kernels to tell ranks apart.
    for rank in looked.chosen(run.labelled_ranks or run.ranks).values():
        if spec.whole_run or spec.by_launch:
            rank_group = run.measured(spec)
            for window in rank_group.ranks.get(rank.number) or rank_group.filled({rank.number})[rank.number]:
                yield Picked(rank, window.window, (window.start_ns, window.end_ns) if len(window) else None)
        else:
            yield from (Picked(rank, window, (window.start_ns, window.end_ns)) for window in run.windows(rank, spec))


def _windows(looked: Looked) -> Iterator[Key]:
    for rank, window, gpu_bounds_ns in picked(looked):
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


def _of_ranks(looked: Looked) -> Sequence[AnyColumn]:
    """Return the columns of the ranks view.

    Where kernels are chosen by the range that launched them, that range is on the CPU and the measured window is on the
    GPU: the lengths of both are shown.
    """
    title_by_column = (
        {"length_ns": "range (CPU)", "window_ns": "window (GPU)"} if looked.spec.by_launch else {"length_ns": ""}
    )
    return (
        "rank",
        number("pid"),
        "setup",
        *(Column(name, CellKind.DETAIL) for name in ("coordinates", "sizes", "micro_batch", "sequence_length", "file")),
        "window",
        *numbers("index", "count"),
        *(Column(name, CellKind.EXACT) for name in ("start_ns", "end_ns")),
        *(Column(name, CellKind.TIME, title) for name, title in title_by_column.items()),
    )


RANKS = View(
    name="ranks",
    parts=(Part(columns=_of_ranks, keys=_windows),),
    reads=(),
    notes=lambda request: request.captures.notes_of(request.spec, "missing_ranks", "numbering"),
    paragraph=lambda request: Paragraph(windows=tuple(picked(request))),
)

STREAMS = View(
    name="streams",
    parts=(
        Part(
            columns=(
                *("rank", PID, "stream", "purpose"),
                figure("stream_comm_kernels", "comm_kernels"),
                figure("stream_comm_ns", "comm_ns"),
                figure("stream_compute_kernels", "compute_kernels"),
                figure("stream_compute_ns", "compute_ns"),
                *("device", "context"),
            )
        ),
    ),
    reads=("comm_streams",),
    notes=lambda request: request.captures.notes(request.spec, METRICS["comm_streams"]),
)


def _about_stages(looked: Looked) -> Paragraph:
    """Explain why no stage has a row where all communication of a rank is shown; empty where a stage has one."""
    if looked.where or looked.selected(METRICS["comm_ns"]):
        return Paragraph()
    reason, sharing = _why_no_overlap(looked), _sharing(looked)
    # of what is shared the usual notes tell
    return Paragraph(notes=[] if reason == sharing.why_not_in_own else [Note(f"no rows by stage: {reason}")])


def _why_no_overlap(looked: Looked) -> str:
    if any(window.communication for rank_windows in looked.windows.values() for window in rank_windows):
        return f"no communication kernel has a stage under this convention: --where stage={NO_STAGE} shows them"
    return _sharing(looked).why_not_in_own


def _sharing(looked: Looked) -> Sharing:
    return sharing_in(window for rank_windows in looked.windows.values() for window in rank_windows)


OVERLAP = View(
    name="overlap",
    parts=(
        Part(
            columns=(
                *("rank", PID, "stage", figure("comm_ns"), figure("exposed_ns")),
                *(figure("overlap"), figure("overlap_min"), figure("overlap_max"), figure("comm_kernels")),
            ),
            compared=True,
        ),
        Part(
            name="ranks",
            caption="All communication of a rank, that on compute streams (barrier) included:",
            columns=(
                *("rank", PID, figure("wall_overlap_all", title="wall_overlap_all")),
                *(figure("wall_exposed_all_ns", title="wall_exposed_all"), figure("barrier_ns")),
            ),
        ),
    ),
    reads=("overlap",),
    takes=frozenset({"where"}),
    paragraph=_about_stages,
    nothing=_why_no_overlap,
)


def _about_ranks(looked: Looked) -> Sequence[Note]:
    """Return the notes of a view that needs no launches and no purposes of streams."""
    return looked.captures.notes_of(looked.spec, "missing_ranks", "numbering", "unknown_communication")


def _by_kernel(looked: Looked) -> Sequence[AnyColumn]:
    return (
        *("kernel", "family", figure("kernel_ns", "time_ns")),
        figure("kernel_of_window", "of_window", f"of {what_of(looked)}"),
        figure("kernel_share", "share", "of kernels"),
        figure("kernel_launches", "launches"),
        figure("kernel_mean_ns", "mean_ns"),
    )


def _by_family(looked: Looked) -> Sequence[AnyColumn]:
    return (
        *("family", figure("family_ns")),
        figure("family_of_window", "of_window", f"of {what_of(looked)}"),
        figure("family_share", "share", "of kernels"),
        figure("family_launches", title="launches"),
    )


KERNELS = View(
    name="kernels",
    parts=(
        Part(
            columns=_by_kernel,
            caption="Kernels, per GPU and step:",
            by="time_ns",
            most=20,
            more=": --where family=NAME shows one family, --format csv all",
        ),
        Part(
            name="families",
            caption="Families:",
            columns=_by_family,
            by="family_ns",
            filled=True,
        ),
    ),
    reads=("family_ns",),
    one_window="`pytest-nsys rows family_ns` takes medians over them",
    takes=frozenset({"where", "steps", "step_time", "families"}),
    paragraph=about_kernels,
    notes=_about_ranks,
)

COLLECTIVES = View(
    name="collectives",
    parts=(
        Part(
            columns=(
                *("rank", "group", "collective", figure("group_size")),
                *(figure("collective_count", "count"), figure("collective_bytes", "bytes")),
                figure("collective_time_ns", "time_ns"),
                figure("busbw", "busbw_mean", "mean busbw GB/s", statistic="mean"),
                figure("busbw", title="median GB/s", statistic="median"),
                figure("busbw", "busbw_min", "min GB/s", statistic="min"),
                figure("busbw", "busbw_max", "max GB/s", statistic="max"),
                *(figure("traffic_share"), figure("collective_wait_ns", "wait_ns")),
                *(figure("collective_transfer_ns", "transfer_ns"), figure("bandwidth_utilisation", "utilisation")),
            ),
            leads="collective_count",
        ),
    ),
    reads=("collective_bytes", "collective_wait_ns"),
    one_window="`pytest-nsys rows busbw` takes medians over them",
    takes=frozenset({"where", "peak"}),
    paragraph=about_collectives,
    notes=_about_ranks,
    nothing=lambda request: _sharing(request).why_not_in_own,
)


BUDGET = View(
    name="budget",
    parts=(
        Part(
            columns=(
                *("rank", "part", "bound"),
                *times("time_ns"),
                *ratios("share"),
                Column("ceiling", CellKind.RATIO, GAIN),
            ),
            keys=list_budget_lines,
        ),
    ),
    reads=("compute_absent_ns",),
    paragraph=about_budgets,
    nothing=lambda request: find_budgets_of_view(request).without[0].text,
)

VIEWS: Mapping[str, View] = {
    view.name: view for view in (RANKS, OVERLAP, STREAMS, KERNELS, COLLECTIVES, BUDGET, PIPELINE, CONFIG)
}
