"""What do the views of kernels and collectives say below their tables?

Of kernels: what the sums are divided by, and the rest of the step. Of collectives: which ranks straggle, and what is
not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.metrics.collectives import lacking, transfers
from pytest_nsys.analysis.metrics.families import FamilySums, sums_of
from pytest_nsys.analysis.metrics.straggling import agreeing, matched, stragglers
from pytest_nsys.analysis.summary.subject import what_is_measured
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.exact import exact
from pytest_nsys.core.families import FAMILIES
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.core.words import counted, printable, ranks_words
from pytest_nsys.reports.tables.formats import aligned
from pytest_nsys.reports.views.view import Looked, Paragraph


def _explain_step_count(sums: FamilySums, of: str) -> str:
    """Return how the number of steps of the window is known."""
    if of == "window" and sums.steps == 1:
        return "the window counts as one"
    if sums.run.workload.steps is None:
        return "the window is one" if sums.of_one_anchor else "anchors"
    return "stated" if sums.run.workload.steps > 1 or sums.anchored else "the whole run counts as one"


def _list_sums(sums: FamilySums, facts: Mapping[str, object], of: str) -> Iterator[tuple[str, str]]:
    """Yield what was measured, what its sums are divided by, and the step beside its kernels, as pairs of name and
    text.
    """
    gpu_source = f"{format_value(Fraction(sums.gpus, sums.run.files), BARE)} per file"
    if not sums.of_all_ranks:
        gpu_source = f"{ranks_words(sums.ranks)}, of {len(sums.run.ranks)}"
    yield "trace files", str(sums.run.files)
    yield "GPUs", f"{sums.gpus} ({gpu_source})"
    yield "steps", f"{sums.steps} ({facts['steps_counted']})"
    yield "divisor", f"{sums.divisor} = {counted(sums.gpus, 'GPU')} x {counted(sums.steps, 'step')}"
    yield "launcher", str(sums.launcher)
    yield "looked at", str(facts["looked_at"])
    if facts["families"] != BUILT_IN:
        yield "families", str(facts["families"])
    yield "shares", f"of {of}: of {format_value(sums.window_ns)}, the mean over the ranks; of kernels: of total kernel"
    yield "total kernel", f"{format_value(sums.total.ns)} per GPU and step"
    step, rest_text = sums.step_time, "unknown: state the step with --step-time 412ms"
    if step is not None:
        source = ", stated"
        if step.periods is not None:
            source = f", the median of {counted(step.periods, 'steady period')} without that after the window"
        rest_text = f"{format_value(_subtract_kernels(sums))} (of {format_value(step.ns)}{source})"
    yield "step - total kernel", rest_text


def _subtract_kernels(sums: FamilySums) -> Value:
    """Return the time of the step without its kernels, in ns; 0 where it is not known."""
    return exact(Fraction(sums.step_time.ns) - sums.total.ns) if sums.step_time is not None else 0


BUILT_IN = "built-in"


def _build_facts(sums: FamilySums, looked: Looked) -> dict[str, object]:
    """Return the facts about the sums that programs get: times in ns, per GPU and step."""
    step = sums.step_time
    return {
        "trace_files": sums.run.files,
        "gpus": sums.gpus,
        "steps": sums.steps,
        "steps_counted": _explain_step_count(sums, what_of(looked)),
        "window_ns": _plain_number(sums.window_ns),
        "divisor": sums.divisor,
        "launcher": str(sums.launcher),
        "looked_at": str(looked.spec),
        "families": BUILT_IN if sums.run.convention.families == FAMILIES else "its own",
        "total_kernel_ns": _plain_number(sums.total.ns),
        "total_launches": _plain_number(sums.total.launches),
        "step_ns": None if step is None else _plain_number(step.ns),
        "step_stated": step is not None and step.periods is None,
        "step_minus_kernel_ns": None if step is None else _plain_number(_subtract_kernels(sums)),
    }


def _plain_number(value: Value) -> int | float:
    return value if isinstance(value, int) else float(value)


def what_of(looked: Looked) -> str:
    """Return in one word what is measured, of which the shares are."""
    return what_is_measured(looked.captures.convention, looked.spec)


def about_kernels(looked: Looked) -> Paragraph:
    """Return the lines on what the sums are divided by, and on the step beside them."""
    sums, run = sums_of(looked.asked_together), looked.run
    facts = _build_facts(sums, looked)
    notes = [Note(text) for facts_of_run in run.facts for text in facts_of_run.notes]
    if looked.spec.whole_run and run.workload.steps is None:
        step_source = f"steps are the {counted(sums.steps, 'anchor')} of each rank"
        notes.append(Note(f"{step_source}, and kernels outside of them are counted with them: --steps says otherwise"))
    return Paragraph(below=aligned([*_list_sums(sums, facts, what_of(looked))]), facts=facts, notes=notes)


def about_collectives(looked: Looked) -> Paragraph:
    """Return which ranks straggle, how well the clocks agree, and what the traces cannot say."""
    window, clocks = looked.together, matched(looked.together)
    straggler_rows = [
        {"group": group, "collective": collective, "rank": rank, "lag_ns": lag_ns}
        for (group, collective), rank, lag_ns in stragglers(clocks)
    ]
    residual_rows = [
        {"group": group, "clocks": agreement.clocks, "ends": agreement.ends, "residual_ns": agreement.residual_ns}
        for group, agreement in sorted(clocks.agreements.items())
    ]
    lines = [
        f"straggler of {printable(group, 60)} {collective}: rank {rank} waits {format_value(lag_ns, TIME)} less than "
        "the longest"
        for (group, collective), rank, lag_ns in stragglers(clocks)
    ]
    notes = [*agreeing(window), *_list_unknown_transfers([window.by_rank[rank] for rank in sorted({*looked.ranks})])]
    notes += [f"no waits of {line}" for line in clocks.unmatched]
    if window.run.workload.peak_gb_per_s is None:
        notes.append("no utilisation: --peak 400GB/s states the bandwidth of the network per GPU")
    return Paragraph(
        below=lines, facts={"stragglers": straggler_rows, "residuals": residual_rows}, notes=[*map(Note, notes)]
    )


def _list_unknown_transfers(windows: Sequence[RankWindow]) -> Iterator[str]:
    """Yield what the traces cannot say of transfers, each in one line."""
    # Without sizes of messages in the trace no bandwidth can be computed, whichever rank it is: one line says so.
    windows_without_sizes = [window for window in windows if window.track.collectives is None and transfers(window)]
    if windows_without_sizes:
        yield f"no bytes, bandwidths and waits: {windows_without_sizes[0].track.around.facts.to_see_sizes}"
    for window in windows:
        if window.track.collectives is not None:
            yield from (f"rank {window.rank.number}: {line}" for line in lacking(window))
