"""The ``pytest-nsys`` command: a thin face over the functions that the gates use."""

from __future__ import annotations

import click

from pytest_nsys.cli.group import LazyGroup, show_version


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Measure and gate traces of GPU training.

    Exit codes: 0 good; 1 worse or failed; 2 a mistake or an unreadable trace; 3 no data, or not comparable.
    """
