"""Makes the records of a comparison for pandas and polars: a flat dict of each row, with the same keys in all rows.

The keys are ``gate``, ``assertion`` and ``metric``; each dimension that some row has, None where another row has not;
``base`` and ``head``, the ``change`` from one to the other and the ``limit``, None where there is none, all in
``unit``; and the ``verdict``: the outcome of the row, or ``waived``. Values are int or float, all else is text but
labels that are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_nsys.core.model import Label
from pytest_nsys.core.units import HASH, find_stored_unit, to_plain_number
from pytest_nsys.gates.model import JudgedRow, Verdict

RowRecord = dict[str, Label | float | None]

RECORD_KEYS = ("gate", "assertion", "metric", "base", "head", "change", "limit", "unit", "verdict")
"""The keys of every record, besides its dimensions. A dimension of a measurement with one of these names gets a ``_``
appended.
"""

WAIVED = "waived"
"""The verdict of a row that a waiver lets pass, in place of its outcome."""


def coerce_types(records: list[RowRecord]) -> list[RowRecord]:
    """Return the records with values of one type for each key, apart from None.

    A key becomes float where some values are whole numbers, and text where some labels are numbers.
    """
    for key in records[0] if records else ():
        types = {type(record[key]) for record in records if record[key] is not None}
        # polars infers a column's type from its first hundred rows, and truncates later decimals.
        cast = float if types == {int, float} else str
        for record in records if len(types) > 1 else ():
            record[key] = None if (value := record[key]) is None else cast(value)
    return records


def make_row_records(rows: Sequence[tuple[Verdict, JudgedRow]]) -> list[RowRecord]:
    """Return a record of each row, in their order."""
    dimensions = dict.fromkeys(dimension for _, row in rows for dimension in row.labels)
    return coerce_types([_make_row_record(verdict, row, dimensions) for verdict, row in rows])


def _make_row_record(verdict: Verdict, row: JudgedRow, dimensions: Iterable[str]) -> RowRecord:
    unit, base, head = verdict.unit, row.baseline, row.value
    # The difference of two fingerprints has no meaning.
    change = None if base is None or head is None or unit == HASH else head - base
    values = {"base": base, "head": head, "change": change, "limit": row.limit}
    return {
        "gate": verdict.address,
        "assertion": verdict.assertion.full_name,
        "metric": verdict.assertion.metric,
        **{f"{name}_" if name in RECORD_KEYS else name: row.labels.get(name) for name in dimensions},
        **{name: None if value is None else to_plain_number(value, unit) for name, value in values.items()},
        "unit": find_stored_unit(unit),
        "verdict": WAIVED if row.waived else str(row.outcome),
    }
