"""What does the ``pytest-nsys`` command do? It calls the functions that the gates use."""

from __future__ import annotations

import click

from pytest_nsys.cli.command_group import LazyGroup, explain_typed_word, show_version


@click.group(
    "pytest-nsys", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version and exit.",
)
@click.option(
    "--explain",
    metavar="WORD",
    is_eager=True,
    expose_value=False,
    callback=explain_typed_word,
    help="Say what a word of a screen, or a metric, means.",
)
def main() -> None:
    """See what is in a trace of GPU training, and hold it to limits in pytest.

    \b
    pytest-nsys TRACE…        what is in a run, on one screen
    pytest-nsys init TRACE…   a gate file for it, and then: pytest
    pytest-nsys demo          traces to try it on, and what to type

    TRACE is a report or an export of Nsight Systems, JSON of torch.profiler or JAX, or a database of rocprofv3: files,
    folders or globs of one run.

    Exit codes: 0 good; 1 worse or failed; 2 a mistake or an unreadable trace; 3 no data, or not comparable.
    """
