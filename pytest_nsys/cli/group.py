"""How does a command end? With its exit code, and an error as one line: the one place that turns errors into both.

Commands are found by name and imported when they are called, so that one does not wait for another's imports.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import click

from pytest_nsys.cli.ending import Exit, complain
from pytest_nsys.core.errors import GOES_ON, GateFileError, NothingMeasured, NsysError
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import printable
from pytest_nsys.core.version import VERSION

COMMANDS = {
    "setup": "primitives",
    "window": "primitives",
    "streams": "primitives",
    "overlap": "primitives",
    "kernels": "kernels",
    "pipeline": "pipeline",
    "collectives": "collectives",
    "report": "report",
    "metrics": "metrics",
    "rows": "rows",
    "baseline": "baseline",
    "compare": "compare",
    "cut": "cut",
    "history": "history",
    "export": "export",
    "capture": "capture",
    "init": "init",
    "lint": "lint",
    "bisect-exit": "bisect_exit",
    "demo": "demo",
}
"""Module of this package that holds each command, under the command's own name."""

DEBUG = "PYTEST_NSYS_DEBUG"
"""Variable of the environment that has a defect show its traceback."""


ANY_LENGTH = 1000


class ListingGroup(click.Group):
    """A group whose help has the whole first sentence of every command, which click would cut."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section ``Commands``."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        listed = [(name, command.get_short_help_str(ANY_LENGTH)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(listed)


class LazyGroup(ListingGroup):
    """The commands of ``COMMANDS``; those whose module does not exist are not offered."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's name
        return [name for name, module in COMMANDS.items() if find_spec(_path(module))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = getattr(import_module(_path(COMMANDS[cmd_name])), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, or the mistake with the one that was perhaps meant."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"no command '{printable(args[0], 40)}'{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """As click does it; here ``--help`` and ``--version`` print."""
        with errors_as_exit_codes():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with errors_as_exit_codes():
            return super().invoke(ctx)


def _path(module: str) -> str:
    return f"pytest_nsys.cli.{module}"


@contextlib.contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """Every expected error ends the program with one line each and no traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal's encoding lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    except GateFileError as error:
        _end(Exit.MISTAKE, *map(str, error.mistakes))
    except NothingMeasured as error:
        _end(Exit.NO_DATA, str(error))
    except NsysError as error:
        _end(Exit.MISTAKE, *str(error).split(GOES_ON))
    except BrokenPipeError:
        # What Python flushes at its own exit must not meet the closed pipe once more.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.BROKEN_PIPE)
    except OSError as error:
        what = error.strerror or str(error)
        _end(Exit.MISTAKE, f"{error.filename}: {what}" if error.filename else f"cannot write or read: {what}")
    except (click.exceptions.Exit, click.ClickException):
        raise
    except (click.Abort, KeyboardInterrupt):  # click would end with 1
        click.echo("\ninterrupted", err=True)
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:  # Python would end with 1, which is a verdict: "worse"
        if os.environ.get(DEBUG):
            traceback.print_exc()
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _end(Exit.MISTAKE, f"this is a defect of pytest-nsys, please report it: {said} ({DEBUG}=1 shows where)")


def _end(code: Exit, *lines: str) -> NoReturn:
    for line in lines:
        complain(line)
    sys.exit(code)


def show_version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """The ``--version`` option: the version of the installed distribution."""
    if asked:
        click.echo(f"pytest-nsys {VERSION}")
        ctx.exit()
