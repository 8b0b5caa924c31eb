"""``pytest-nsys metrics``: what can be measured?"""

from __future__ import annotations

import click

from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.cli.options import format_option
from pytest_nsys.cli.output import print_answer
from pytest_nsys.reports.tables import CellKind, Column, Format, Table, texts

COLUMNS = (
    *texts("name", "unit", "better"),
    *(Column("dimensions", CellKind.LIST), Column("definition", CellKind.NUMBER), Column("summary")),
)


@click.command()
@format_option
def metrics(format: Format) -> None:
    """List the metrics: name, unit, direction, dimensions, definition."""
    rows = [
        (m.name, str(m.unit), m.better and str(m.better), m.dimensions, m.definition, m.summary.replace("``", ""))
        for m in METRICS.values()
    ]
    print_answer(format, Table(COLUMNS, rows))
