"""What does ``--where DIM=VALUE`` select, and can it be meant?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import click

from pytest_nsys.analysis.table import Selector
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.hints import hint
from pytest_nsys.core.model import printable


def where_option(command: Callable[..., None]) -> Callable[..., None]:
    """``--where``."""
    said = "Rows of this label only. Repeated for one dimension: any of them; for several: all."
    return click.option("--where", multiple=True, metavar="DIM=VALUE", help=said)(command)


def selectors_of(where: Sequence[str]) -> dict[str, Selector]:
    """One selector per dimension; the same dimension twice means either."""
    values: dict[str, list[str]] = {}
    for text in where:
        dimension, equals, value = (part.strip() for part in text.partition("="))
        if not (dimension and equals and value):
            raise UsageMistake(f"--where is DIM=VALUE, not '{printable(text, 60)}'")
        values.setdefault(dimension, []).append(value)
    return {dimension: Selector(tuple(own)) for dimension, own in values.items()}


def check_dimensions(
    metric: str, dimensions: Sequence[str], axes: Sequence[str], selectors: Mapping[str, Selector]
) -> None:
    """Raises UsageMistake for a selector of a dimension that the metric lacks; ``axes`` are those of its ranks."""
    known = (*dimensions, *(axes if "rank" in dimensions else ()))
    for dimension in selectors:
        if dimension not in known:
            told = hint(dimension, known, "it has")
            raise UsageMistake(f"{metric} has no dimension '{printable(dimension, 40)}'{told}")
