"""Does the surface fit in a head? What a person may type is counted; CONTRIBUTING says what an addition replaces."""

from collections.abc import Iterator

import click

from pytest_nsys.cli import main
from pytest_nsys.plugin.settings import SETTINGS

MOST_COMMANDS, MOST_OPTIONS, MOST_OPTIONS_OF_PYTEST = 16, 121, 17


def leaves(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, by what is typed."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        below = command.get_command(context, each)
        assert below is not None
        yield from leaves(below, f"{name} {each}".strip())


def options() -> dict[str, list[click.Option]]:
    """The options of each command."""
    return {name: [p for p in own.params if isinstance(p, click.Option)] for name, own in leaves(main)}


def test_there_are_few_commands_and_options() -> None:
    every = options()
    assert len(every) <= MOST_COMMANDS, sorted(every)
    assert sum(map(len, every.values())) <= MOST_OPTIONS, {name: len(own) for name, own in every.items()}
    assert len(SETTINGS) <= MOST_OPTIONS_OF_PYTEST, sorted(SETTINGS)


def test_an_option_has_one_spelling_and_a_short_one_means_the_same_everywhere() -> None:
    short: dict[str, set[str]] = {}
    for name, own in options().items():
        for option in own:
            long = [each for each in option.opts if each.startswith("--")]
            alone = option.opts == ["-k"]  # as pytest has it
            assert (len(long), option.secondary_opts) == (not alone, []), f"{name}: {option.opts}"
            for each in {*option.opts} - {*long} - {"-k"}:
                short.setdefault(each, set()).add(long[0])
    assert {each: long for each, long in short.items() if len(long) > 1} == {}
    outputs = [name for name, own in options().items() if any("--output" in option.opts for option in own)]
    assert all("-o" in option.opts for name in outputs for option in options()[name] if "--output" in option.opts)
