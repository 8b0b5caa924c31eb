"""Can what the program tells people to type be typed? Each command that a text names, and each option, is looked up.

An option belongs to the command that is named before it in its line; where none is, to the command that printed it.
"""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from pytest_nsys.cli import main
from pytest_nsys.cli.command_group import COMMANDS, DEFAULT_COMMAND
from pytest_nsys.cli.show import list_takers
from pytest_nsys.plugin.settings import SETTINGS
from tests.cli.test_surface import leaves
from tests.generate_docs import MARKED, ROOT, pages

PYTEST = "pytest"
FILLED_IN = "NAME"
"""What stands in a message for what is not known before it is said."""

ANY = ""
"""Who prints a text where several commands do: an option of it is one of any of them."""

_OWNER = re.compile(
    r"(?<![\w/.-])(?:(?P<ours>pytest-nsys(?![\w./:@\[-]))|(?P<pytest>pytest(?![\w./:@\[-]))"
    r"|(?P<other>nsys (?:profile|export)|nsys(?: and|$)|nsys --version|Nsight Systems|[Cc]apture with|export with"
    r"|rocprofv3|nvidia-smi|git [a-z]|srun|sbatch|torchrun|pip install))"
)
_OPTION = re.compile(r"(?<![\w=-])--[a-z][a-z0-9-]*")
_END = re.compile(r"`|  +[#(]|\)|;|\||&&|$|, |: |\. |\.$")
"""Where a command ends in a line of prose."""


_OF_OTHERS = {"--cuda-graph-trace", "--cuda-flush-interval", "--gpu-metrics-frequency", "--ntasks-per-node"}
"""Options of nsys and srun that messages name without them."""


class Printed(NamedTuple):
    """A line that the program prints. ``by`` is the command that does, as it is typed."""

    by: str
    text: str
    place: str


@cache
def commands() -> Mapping[str, click.Command]:
    """Return every command that does something, by what is typed behind ``pytest-nsys``."""
    return dict(leaves(main))


def options_of(command: str, own: frozenset[str]) -> frozenset[str]:
    """Return the options of a command with their dashes; ``own`` are those that pytest has without the plugin."""
    if command == ANY:
        return frozenset(own.union(*(options_of(name, own) for name in (PYTEST, *commands()))))
    if command not in (PYTEST, *commands()):
        return frozenset()
    if command == PYTEST:
        return own | {setting.option for setting in SETTINGS.values()}
    parameters = [*commands()[command].params, *main.params]
    return frozenset({"--help", *(name for each in parameters for name in each.opts)})


def own_options(config: pytest.Config) -> frozenset[str]:
    """Return the options that pytest and its plugins have here."""
    parser = config._parser  # nothing public lists them
    groups = [parser._anonymous, *parser._groups]
    return frozenset(name for group in groups for option in group.options for name in option.names())


def find_mistakes(line: Printed, own: frozenset[str]) -> Iterator[str]:
    """Yield what cannot be typed of the commands and options that a line names."""
    owners = [*_OWNER.finditer(line.text)]
    for owner in owners:
        if owner["ours"]:
            yield from _mistakes_of(line.text[owner.start() :])
    for option in _OPTION.finditer(line.text):
        before = [owner for owner in owners if owner.end() <= option.start()]
        if (before and before[-1]["other"]) or option[0] in _OF_OTHERS:
            continue
        takers_of_it = {line.by}
        if before:
            named = PYTEST if before[-1]["pytest"] else _named(_words(line.text[before[-1].start() :]))[0]
            takers_of_it = {named} | ({line.by} - {ANY})
        if not any(option[0] in options_of(name, own) for name in takers_of_it):
            yield f"{' and '.join(filter(None, takers_of_it)) or 'no command'} has no option {option[0]}"


def _words(text: str) -> list[str]:
    """The words of the command that a text begins with."""
    text = text[: next(end.start() for end in _END.finditer(text))]
    try:
        return shlex.split(text)
    except ValueError:  # an apostrophe of prose
        return text.split()


def _named(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command of a line that begins with ``pytest-nsys``, and the words behind it."""
    rest = [*words[1:]]
    if not rest or rest[0] not in COMMANDS:
        return DEFAULT_COMMAND, rest
    name = rest.pop(0)
    if name not in commands():
        name = f"{name} {rest.pop(0)}" if rest else name
    return name, rest


def _mistakes_of(text: str) -> Iterator[str]:
    """What a command has no use for: of a view what it refuses."""
    name, rest = _named(_words(text))
    if FILLED_IN in name or {*rest[:1]} & {option for parameter in main.params for option in parameter.opts}:
        return
    if name not in commands():
        if name not in COMMANDS:  # else it is a group, whose commands it lists
            yield f"there is no command {name}"
        return
    command = commands()[name]
    context = click.Context(command, info_name=name)
    try:
        given, _, order = command.make_parser(context).parse_args(rest)
    except click.BadOptionUsage as error:
        if not _words(text)[-1].startswith(error.option_name):  # named alone, as "--all" may be, it is no mistake
            yield f"{name}: {error.format_message()}"
        return
    except click.UsageError as error:
        yield f"{name}: {error.format_message()}"
        return
    for parameter in order:
        value = given.get(parameter.name or "")
        stated = isinstance(value, str) and not value.isupper()  # FILE stands for one
        if stated and isinstance(parameter.type, click.Choice) and value not in parameter.type.choices:
            yield f"{name}: {parameter.opts[-1]} has no {value}"
    view = given.get("view")
    if name == DEFAULT_COMMAND and isinstance(view, str) and not view.isupper():
        typed = [each for each in order if isinstance(each, click.Option) and given.get(each.name or "") is not None]
        yield from (
            f"--view {view} refuses {each.opts[-1]}" for each in typed if view not in list_takers(each.name or "")
        )


# What is printed


def lines_of_help() -> Iterator[Printed]:
    """Yield the help of each command and of each option of pytest, a paragraph each."""
    for name, command in commands().items():
        context = click.Context(command, info_name=name)
        for paragraph in command.get_help(context).split("\n\n"):
            yield Printed(name, " ".join(paragraph.split()), f"{name} --help")
    for setting in SETTINGS.values():
        yield Printed(PYTEST, str(setting.build_option_arguments().get("help", "")), f"pytest --help, {setting.option}")


def lines_of_docs() -> Iterator[Printed]:
    """Yield what commands print on the pages, as it is recorded there."""
    for page in pages():
        for part in MARKED.finditer(page.read_text(encoding="utf-8")):
            if part["kind"] == "output":
                yield from _of_output(part["body"], page.name)


def _of_output(body: str, place: str) -> Iterator[Printed]:
    by = ANY
    for line in re.sub(r"\\\n\s*", "", body).splitlines():
        if line.startswith("$ "):
            yield Printed(ANY, line[2:], place)
            by = next((name for name, is_it in _LAST.items() if is_it in line), ANY)
            if by == "ours":
                by = _named(_words(line[line.rindex("pytest-nsys") :]))[0]
        else:
            yield Printed(by, line, place)


_LAST = {"ours": "pytest-nsys ", PYTEST: "pytest "}


def messages() -> Iterator[Printed]:
    """Yield the texts in the package's code that name a command or an option; several commands may print them."""
    for path in sorted((ROOT / "pytest_nsys").rglob("*.py")):
        for text, line in _texts(path):
            if " " in text and any(
                sign in text for sign in ("pytest-nsys ", "--", "docs/")
            ):  # alone it is a word of a call
                yield from (Printed(ANY, own, f"{path.relative_to(ROOT)}:{line}") for own in text.splitlines())


def _texts(path: Path) -> Iterator[tuple[str, int]]:
    """The texts of a module that are no docstring, with FILLED_IN for what is filled in."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said | parts:
            yield node.value, node.lineno
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else FILLED_IN for p in node.values), node.lineno
