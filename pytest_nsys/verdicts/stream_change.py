"""A communication stream that computes, too, is a compute stream: its rows vanish, and barriers come. Who did it?

Looked up for a red alone, of the metrics that tell the two kinds of streams apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_nsys.analysis.breakdown import Breakdown
from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS, Of
from pytest_nsys.analysis.structure import SharedStream, shared_streams
from pytest_nsys.core.model import counted, printable
from pytest_nsys.core.units import format_value
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.judgement import Judgement
from pytest_nsys.gates.requests import spec_for
from pytest_nsys.gates.verdict import JudgedRow, Outcome
from pytest_nsys.verdicts.references import ReferenceSource

OFF = (Outcome.FAILED, Outcome.NO_DATA)
SHOWN = 3


def explain_streams(
    assertion: Assertion, judgement: Judgement, now: Captures, before: ReferenceSource | None
) -> tuple[str, ...]:
    """What made compute streams of those whose kernels mostly communicate, as lines; those that it was before are left
    out where ``before`` can tell.
    """
    metric = METRICS[assertion.metric]
    if judgement.outcome not in OFF or metric.of not in (Of.COMMUNICATION, Of.STREAMS):
        return ()
    found: dict[str, dict[int, None]] = {}
    ranks = [*_ranks(assertion, judgement.rows, now, before)]
    if not ranks and judgement.outcome is Outcome.NO_DATA:
        ranks = [(rank.number, None) for rank in now.runs[0].ranks]
    for rank, was in ranks:
        for window in now.middle_windows(spec_for(now.convention, assertion), rank):
            for shared in shared_streams(window):
                if was is None or not _as_before(shared, was):
                    found.setdefault(_words(shared), {})[rank] = None
    return tuple(f"rank {', '.join(map(str, ranks))} {said}" for said, ranks in found.items())


def _ranks(
    assertion: Assertion, rows: Iterable[JudgedRow], now: Captures, before: ReferenceSource | None
) -> Iterator[tuple[int, Breakdown | None]]:
    """The ranks whose rows are gone, or tell of streams, each with what it was before where that is known."""
    metric, spec = METRICS[assertion.metric], spec_for(now.convention, assertion)
    for row in rows:
        labels = {**row.origin, **row.labels}
        rank = labels.get("rank")
        if row.outcome not in OFF or row.waived or not isinstance(rank, int):
            continue
        if row.value is None or metric.of is Of.STREAMS:
            if before is None or row.baseline is None:
                yield rank, None
            else:
                yield rank, before.breakdown(metric, spec, labels, row.baseline)


def _as_before(shared: SharedStream, was: Breakdown) -> bool:
    """Whether as many kernels of its communication were barriers."""
    barriers = {name: own.kernels for name, own in was.barriers.items()}
    return all(barriers.get(name, 0) >= count for name, count in shared.communication.items())


def _words(shared: SharedStream) -> str:
    compute = sorted(shared.compute.items(), key=lambda item: (-item[1][1], item[0]))
    each = [f"{printable(name, 80)} ({counted(n, 'kernel')}, {format_value(ns, 'ns')})" for name, (n, ns) in compute]
    more = [f"{len(each) - SHOWN} more"] if len(each) > SHOWN else []
    who = f"{', '.join([*each[:SHOWN], *more])} {'makes' if len(each) == 1 else 'make'} it a compute stream"
    number = sum(shared.communication.values())
    return f"stream {shared.label}: {who}, so {counted(number, 'communication kernel')} on it count as barriers"
