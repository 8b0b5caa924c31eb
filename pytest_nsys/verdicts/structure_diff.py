"""A red about what a window launches, explained: which kernels came or went, and where the order first departs.

Looked up for a red alone: the two sides hold the names, by kernel in ``kernel_launches``, in order behind ``sequence``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS, Of, Unit
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.structure import KernelSequence, shared_streams
from pytest_nsys.analysis.table import Table, label_key
from pytest_nsys.core.model import Label, Value, counted, printable
from pytest_nsys.gates.absence import absences
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.judgement import Judgement
from pytest_nsys.gates.requests import spec_for
from pytest_nsys.gates.verdict import JudgedRow, Outcome
from pytest_nsys.stored.baselines.kernel_order import first_difference
from pytest_nsys.verdicts.references import ReferenceSource

SHOWN_PARTS = 8
OFF = (Outcome.FAILED, Outcome.NO_DATA)


def explain(
    assertion: Assertion, judgement: Judgement, now: Captures, before: ReferenceSource | None
) -> tuple[str, ...]:
    """What stands behind the rows that do not hold, worst first, as lines; none where the metric is no structure.

    ``before`` is None under a constant limit.
    """
    off = [row for row in judgement.rows if row.outcome in OFF and not row.waived]
    spec = spec_for(now.convention, assertion)
    metric = METRICS[assertion.metric]
    of_a_stage = metric.of in (Of.COMMUNICATION, Of.STAGE) and "stage" in metric.dimensions
    if of_a_stage and judgement.outcome is Outcome.NO_DATA:
        return _gone(assertion, off, now)
    if not off or assertion.aggregates or assertion.balance_across is not None:
        return ()
    if metric.unit is Unit.HASH and before is not None:
        return _departures(off, now.sequences(spec), before.sequences(spec))
    if "kernel" in metric.dimensions and before is not None:
        return _by_kernel(off)
    if metric.sums:
        parts = METRICS[metric.sums]
        accepted = before.table(parts, spec) if before is not None else None
        return _parts(off, now.rows(parts, spec), accepted)
    return ()


def _gone(assertion: Assertion, off: Sequence[JudgedRow], now: Captures) -> tuple[str, ...]:
    """What became of the stages that have no row now; the same of several ranks on one line."""
    metric, spec = METRICS[assertion.metric], spec_for(now.convention, assertion)
    table = now.rows(metric, spec)
    places = [(row.labels["rank"], row.labels["stage"]) for row in off if {"rank", "stage"} <= row.labels.keys()]
    places += [(a.rank, s) for a in absences(table, assertion.where, assertion.allow_missing) for s in a.stages]
    held = {labels for labels, _ in table.rows}
    found: dict[str, dict[Label, None]] = {}
    for rank, stage in places:
        for window in now.middle_windows(spec, rank) if (rank, stage) not in held else ():
            if said := _fate(window, str(stage)):
                found.setdefault(said, {})[rank] = None
    return tuple(f"rank {', '.join(map(str, ranks))}: {said}" for said, ranks in found.items())


def _fate(window: RankWindow, stage: str) -> str:
    """Why a stage has no row about communication, or at all; empty where a shared stream says it by itself."""
    members, name = window.all_by_stage.get(stage, ()), printable(stage, 60)
    if not members:
        return f"no kernel of the window is launched in stage {name}"
    communicating = sum(window.communicates[i] for i in members)
    if not communicating:
        if len(members) == 1:
            return f"the 1 kernel of stage {name} does not communicate"
        return f"none of the {len(members)} kernels of stage {name} communicates"
    if any(shared_streams(window)):
        return ""
    return f"the {counted(communicating, 'communication kernel')} of stage {name} run on compute streams, as barriers"


def _departures(
    off: Sequence[JudgedRow], now: Mapping[int, KernelSequence], before: Mapping[int, KernelSequence]
) -> tuple[str, ...]:
    """Where each sequence departs; the same for several rows on one line."""
    places: dict[str, list[JudgedRow]] = {}
    for row in off:
        if row.value is None or row.baseline is None:
            own = before.get(_whole(row.baseline)) if row.value is None else now.get(_whole(row.value))
            count = f" ({counted(own.length, 'kernel')}, the first {printable(own.names[0], 80)})" if own else ""
            said = f"{'no kernel any more' if row.value is None else 'no kernel before'}{count}"
        else:
            said = first_difference(before.get(_whole(row.baseline)), now.get(_whole(row.value)))
        places.setdefault(said, []).append(row)
    return tuple(f"{_where(rows)}: {said}" for said, rows in places.items())


def _whole(value: Value | None) -> int:
    assert isinstance(value, int)
    return value


def _by_kernel(off: Sequence[JudgedRow]) -> tuple[str, ...]:
    """The change of each kernel in all rows together."""
    found: dict[Label, list[JudgedRow]] = {}
    for row in off:
        found.setdefault(row.labels["kernel"], []).append(row)
    lines = []
    for kernel, rows in found.items():
        was, is_now = _total(row.baseline for row in rows), _total(row.value for row in rows)
        what = "new" if not was else "vanished" if not is_now else "changed"
        counts = f"{_number(was)} → {_number(is_now)} launches"
        lines.append(f"{what}: {printable(str(kernel), 80)}, {counts} ({_where(rows)})")
    return tuple(lines)


def _total(values: Iterable[Value | None]) -> Fraction:
    return sum((Fraction(value or 0) for value in values), Fraction(0))


def _parts(off: Sequence[JudgedRow], now: Table, before: Table | None) -> tuple[str, ...]:
    """What each row that is off is made of: of each part the change, or how many there are where nothing says what was.

    The same for several rows on one line.
    """
    sides = [dict(table.rows) if table is not None else {} for table in (before, now)]
    places: dict[str, list[JudgedRow]] = {}
    for row in off:
        place = tuple(row.labels.values())
        was, is_now = ({key[-1]: value for key, value in side.items() if key[:-1] == place} for side in sides)
        names = sorted({*was, *is_now}, key=label_key)
        moved = [(name, Fraction(is_now.get(name, 0)) - was.get(name, 0)) for name in names]
        moved = sorted((each for each in moved if each[1]), key=lambda each: -abs(each[1]))
        more = f" and {len(moved) - SHOWN_PARTS} more" if len(moved) > SHOWN_PARTS else ""
        if moved:
            signed = before is not None
            parts = ("" if signed else "now ") + ", ".join(_part(n, by, signed=signed) for n, by in moved[:SHOWN_PARTS])
            places.setdefault(parts + more, []).append(row)
    return tuple(f"{_where(rows)}: {parts}" for parts, rows in places.items())


def _part(name: Label, by: Fraction, *, signed: bool) -> str:
    sign = ("+" if by > 0 else "−") if signed else ""
    return f"{sign}{_number(abs(by))} {printable(str(name), 80)}"


def _number(value: Fraction) -> str:
    return str(value if value.denominator > 1 else value.numerator)


def _where(rows: Sequence[JudgedRow]) -> str:
    """The places of rows, dimension by dimension; the kernel, which the line names, left out."""
    dimensions = [d for d in rows[0].labels if d != "kernel"]
    said = []
    for dimension in dimensions:
        labels = sorted({row.labels[dimension] for row in rows}, key=label_key)
        more = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
        said.append(f"{dimension} {', '.join(printable(str(label), 60) for label in labels[:6])}{more}")
    return " ".join(said)
