"""How does a command end? With an exit code, and an error on one line. Only this module turns errors into both.

Commands are found by name and imported when called, so that no command waits for the imports of others.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from importlib import import_module
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import NEXT_LINE, GateFileError, NothingMeasured, NsysError, UsageMistake, suggest_word
from pytest_nsys.core.text_format import configure_plain_output, sanitize_line
from pytest_nsys.core.version import VERSION

# An error is one line; a name in it may be of any length.
LONGEST_ERROR_LINE = 4000


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    GOOD = 0
    WORSE = 1
    MISTAKE = 2
    NO_DATA = 3
    # As in a shell: 128 plus the signal that ended the program, Ctrl-C (SIGINT, 2) or a closed pipe (SIGPIPE, 13).
    INTERRUPTED = 130
    BROKEN_PIPE = 141


def print_error(line: object) -> None:
    """Print an error as one line."""
    echo(f"error: {sanitize_line(str(line), LONGEST_ERROR_LINE)}", err=True)


# The command for a path without a command.
DEFAULT_COMMAND = "show"

COMMAND_GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Look": {
        DEFAULT_COMMAND: ("show", "Show what is in a run: one screen, or one part in full (--view)."),
        "rows": ("rows", "Print the rows of metrics."),
        "metrics": ("rows", "List the metrics: ten for a first gate, and the names of the rest."),
        "compare": ("compare", "Compare two runs, worst regressions first."),
        "cut": ("cut", "Write the measured window of a run as a small trace."),
    },
    "Gate": {
        "init": ("init", "Write a gate file and its baseline for a trace."),
        "check": ("check", "Check gate files, traces and what is installed."),
        "baseline": ("baseline", "Accept a run as the normal, and see what is stored."),
        "history": ("history", "Show earlier runs: how each row moved."),
        "demo": ("demo", "Write sample traces and a gate, and print what to type."),
    },
    "Record": {
        "capture": ("capture", "Run PROGRAM under nsys, and export the report."),
        "export": ("capture", "Export reports of nsys (.nsys-rep, .qdrep) to SQLite."),
    },
}
"""The commands by heading of the help and by name: the module of this package with the command, and the first sentence
of its help. So the list is printed without importing them.
"""

COMMANDS = {name: entry for group in COMMAND_GROUPS.values() for name, entry in group.items()}

# Suggestions for words that are commands of other tools, but not of this one.
SUGGESTED_COMMANDS = {
    **dict.fromkeys(("summary", "stats", "analyze", "info", "view", "open"), "pytest-nsys TRACE…"),
    **dict.fromkeys(("gate", "draft", "new"), "pytest-nsys init TRACE…"),
    **dict.fromkeys(("test", "judge"), "pytest GATE --nsys-trace=TRACE"),
    **dict.fromkeys(("validate", "verify"), "pytest-nsys check GATE"),
    "diff": "pytest-nsys compare BASE HEAD",
    **dict.fromkeys(("refresh", "update", "accept"), 'pytest-nsys baseline refresh GATE --trace=TRACE --reason "…"'),
    "calibrate": 'pytest-nsys baseline calibrate TRACES… --reason "…"',
    **dict.fromkeys(("profile", "record", "run"), "pytest-nsys capture -- PROGRAM"),
    "help": "pytest-nsys --help",
    "version": "pytest-nsys --version",
}

# The environment variable that makes internal errors show a traceback.
DEBUG_VARIABLE = "PYTEST_NSYS_DEBUG"


# Click cuts a sentence of a help at 45 characters unless it is told otherwise.
UNLIMITED_HELP_LENGTH = 1000


class ListingGroup(click.Group):
    """A group whose help lists the full first sentence of every command; click would cut it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group of commands as a section."""
        for title, names in self.group_names(ctx).items():
            with formatter.section(title):
                formatter.write_dl([(name, self.get_sentence(name)) for name in names])

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's name
        """Return the commands in the order of their module, the most used first."""
        return list(self.commands)

    def group_names(self, ctx: click.Context) -> Mapping[str, Iterable[str]]:
        """Return the names of the commands by heading of the help."""
        return {"Commands": self.list_commands(ctx)}

    def get_sentence(self, name: str) -> str:
        """Return the first sentence of a command's help."""
        return self.commands[name].get_short_help_str(UNLIMITED_HELP_LENGTH)


class LazyGroup(ListingGroup):
    """A group that imports each of ``COMMANDS`` when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's name
        return list(COMMANDS)

    def group_names(self, ctx: click.Context) -> Mapping[str, Iterable[str]]:  # noqa: ARG002
        return COMMAND_GROUPS

    def get_sentence(self, name: str) -> str:
        return COMMANDS[name][1]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usage with the form that most people type first: a path."""
        formatter.write_usage(ctx.command_path, "TRACE…")
        formatter.write_usage(ctx.command_path, "COMMAND …", prefix=" " * len("Usage: "))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"pytest_nsys.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names with the sentences of the help: click would import every command for them."""
        names = [CompletionItem(name, help=self.get_sentence(name)) for name in COMMANDS if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse like click, but pass a path, and options that this group lacks, to ``show``."""
        option_names = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        first_word = args[0] if args else ""
        if (
            is_path(first_word, self.list_commands(ctx))
            if not first_word.startswith("-")
            else first_word not in option_names
        ):
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. Raises UsageMistake with what to type instead, or click's error with the most similar
        command.
        """
        commands = self.list_commands(ctx)
        word = args[0] if args else ""
        if word in commands and os.path.lexists(word):
            echo(f"note: {word} is the command; for the path {word} write ./{word}", err=True)
        elif word in SUGGESTED_COMMANDS:
            raise UsageMistake(f"no command and no file '{word}': type {SUGGESTED_COMMANDS[word]}")
        elif word and word not in commands:
            suggestion = suggest_word(word, [*commands, *_list_current_folder()])
            ctx.fail(f"no command and no file '{sanitize_line(word, 40)}'{suggestion}")
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Make the context like click, with errors turned into exit codes; ``--help`` and ``--version`` print during
        this.
        """
        with turn_errors_into_exit_codes():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with turn_errors_into_exit_codes():
            return super().invoke(ctx)


def is_path(word: str, commands: Collection[str]) -> bool:
    """Return whether the first argument is a trace: not a command, and an existing file, or a word with a separator or
    glob.
    """
    if word in commands or not word:
        return False
    return any(sign in word for sign in "/*?[" + os.sep) or word.startswith("~") or os.path.lexists(word)


def _list_current_folder() -> list[str]:
    try:
        return [sanitize_line(name) for name in os.listdir()]
    except OSError:
        return []


@contextlib.contextmanager
def turn_errors_into_exit_codes() -> Iterator[None]:
    """End the program with an exit code, one line for each expected error, and no traceback."""
    for stream in (sys.stdout, sys.stderr):
        configure_plain_output(stream)  # names with characters that the encoding lacks must not fail
    try:
        yield
    except GateFileError as error:
        _exit_with_errors(ExitCode.MISTAKE, *map(str, error.mistakes))
    except NothingMeasured as error:
        _exit_with_errors(ExitCode.NO_DATA, str(error))
    except NsysError as error:
        _exit_with_errors(ExitCode.MISTAKE, *str(error).split(NEXT_LINE))
    except BrokenPipeError:
        # Python flushes the streams at exit, which must not hit the closed pipe again.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.BROKEN_PIPE)
    except OSError as error:
        problem = error.strerror or str(error)
        _exit_with_errors(
            ExitCode.MISTAKE, f"{error.filename}: {problem}" if error.filename else f"cannot write or read: {problem}"
        )
    except click.exceptions.Exit:
        raise
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)  # the message contains typed words
        echo(message.getvalue(), err=True, nl=False)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):  # click would end with 1
        echo("\ninterrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:  # Python would end with 1, which is a verdict: "worse"
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        description = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _exit_with_errors(
            ExitCode.MISTAKE,
            f"this is a bug in pytest-nsys, please report it: {description} ({DEBUG_VARIABLE}=1 shows where)",
        )


def _exit_with_errors(code: ExitCode, *lines: str) -> NoReturn:
    for line in lines:
        print_error(line)
    sys.exit(code)


def show_version(ctx: click.Context, _parameter: click.Parameter, is_requested: bool) -> None:
    """Print the version of the installed distribution, for the ``--version`` option."""
    if is_requested:
        echo(f"pytest-nsys {VERSION}")
        ctx.exit()


def explain_typed_word(ctx: click.Context, _parameter: click.Parameter, word: str | None) -> None:
    """Print what a word means on two lines, for the ``--explain`` option. Raises UsageMistake for an unknown word."""
    if word is not None:
        from pytest_nsys.reports.words.glossary import explain_word  # imported only for a word

        for line in explain_word(word):
            echo(line)
        ctx.exit()
