"""What do the options that every measuring command shares ask for, and can it be meant?"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from pytest_nsys.analysis.captures import CaptureCache, Captures
from pytest_nsys.analysis.parallel import ReadAhead
from pytest_nsys.analysis.reading_plan import Request
from pytest_nsys.analysis.windows import MEDIAN, WindowSpec, spec_under
from pytest_nsys.cli.choosing_convention import convention_for, convention_option
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.model import OPEN_END_NS, KernelsMode, Rank, Span, printable
from pytest_nsys.core.workload import Workload
from pytest_nsys.reports.tables import Format
from pytest_nsys.tools.executors import SERIAL, WAYS, check_executor
from pytest_nsys.tools.progress import on_terminal

LATEST_NS = OPEN_END_NS - 1
_WINDOW_HELP = "median, first, last, steady, run, an index, a pattern (%) of range names, or START:END in ns."
_NUMBERS = re.compile(r"-?[0-9][0-9.:]*")


@dataclass(frozen=True)
class Asked:
    """What the shared options say. ``span`` and ``kernels`` None: as the convention has it; no ``ranks``: all."""

    format: Format
    convention: Convention
    window: str
    span: Span | None
    kernels: KernelsMode | None
    ranks: tuple[int, ...]
    executor: str | None = None

    @contextlib.contextmanager
    def captures(
        self, traces: Sequence[str], workload: Workload | None = None, *, metrics: Sequence[str] = ()
    ) -> Iterator[Captures]:
        """A capture for each path, and the files let go at the end. Of many, what ``metrics`` ask for is read ahead."""
        with contextlib.closing(CaptureCache(opening_of(self.executor, self.format))) as library:
            yield library.captures(traces, Path(), self.convention, workload, self._asks(metrics))

    @contextlib.contextmanager
    def one_run(
        self,
        traces: Sequence[str],
        workload: Workload | None = None,
        *,
        metrics: Sequence[str] = (),
        span: Span | None = None,
    ) -> Iterator[Captures]:
        """One capture of all paths; else as :meth:`captures`. ``span`` is taken where nobody asked for one."""
        with contextlib.closing(CaptureCache(opening_of(self.executor, self.format))) as library:
            yield library.one_run(traces, Path(), self.convention, workload, self._asks(metrics, span))

    def _asks(self, metrics: Sequence[str], span: Span | None = None) -> list[Request]:
        spec = self.spec(span)
        return [Request(metric, spec) for metric in metrics or (None,)]

    def spec(self, span: Span | None = None) -> WindowSpec:
        """The windows that are asked for; ``span`` is taken where nobody asked for one."""
        return spec_under(self.convention, self.window, self.span or span, self.kernels)

    def chosen(self, ranks: Sequence[Rank]) -> dict[int, Rank]:
        """The ranks that were asked for, by number. Raises UsageMistake for one that does not exist."""
        known = {rank.number: rank for rank in ranks}
        chosen = chosen_of(self.ranks, known)
        return {number: rank for number, rank in known.items() if number in chosen}


def chosen_of(asked: Sequence[int], known: Collection[int]) -> frozenset[int]:
    """The ranks that were asked for, all where none was. Raises UsageMistake for one that does not exist."""
    for number in asked:
        if number not in known:
            raise UsageMistake(f"there is no rank {number}: the ranks are {', '.join(map(str, sorted(known)))}")
    return frozenset(asked or known)


executor_option = click.option(
    "--executor", metavar="EXECUTOR", help=f"How the traces of a run are read: {WAYS}. Default: {SERIAL}."
)


def opening_of(executor: str | None, format: Format | str) -> ReadAhead:
    """How traces are opened; JSON is read by programs, to which a terminal shows nothing.

    Raises UsageMistake for what is no executor.
    """
    if executor is not None:
        check_executor(executor)
    return ReadAhead(executor, shown=on_terminal(sys.stderr) and format != "json")


def format_option(command: Callable[..., None]) -> Callable[..., None]:
    """``--format``."""
    choice = click.Choice([f.value for f in Format])
    return click.option("--format", type=choice, default=Format.TABLE.value, help="How rows are printed.")(command)


WINDOW_OPTIONS = (
    click.option("--start", type=int, metavar="NS", help="With --end: this span of every rank."),
    click.option("--end", type=int, metavar="NS", help="End of that span."),
    click.option("--span", type=click.Choice([s.value for s in Span]), help="The anchor's own range, or its period."),
    click.option(
        "--kernels",
        type=click.Choice([m.value for m in KernelsMode]),
        help="Which kernels are in the window: inside it on the GPU, cut at its edges, or launched in it.",
    ),
)
"""The options that say more of a window than which it is."""


def window_option(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--window``; ``default`` is told alone."""
    return click.option("--window", help=f"What is measured: {_WINDOW_HELP} Default: {default}.")


HOW_MEASURED = (
    window_option(MEDIAN),
    *WINDOW_OPTIONS,
    convention_option,
    click.option(
        "--anchor", help="Pattern (% is the wildcard) of the range that repeats, instead of the convention's."
    ),
)
"""The options that say what is measured, and how."""

_OPTIONS = (
    click.option("--rank", "ranks", type=int, metavar="N", multiple=True, help="This rank only (repeatable)."),
    *HOW_MEASURED,
    format_option,
    executor_option,
)


def measuring(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command of ``traces`` the shared options; it gets them as ``asked``."""

    @functools.wraps(command)
    def with_asked(
        format: str,
        ranks: tuple[int, ...],
        window: str | None,
        start: int | None,
        end: int | None,
        span: str | None,
        kernels: str | None,
        convention: str | None,
        anchor: str | None,
        executor: str | None,
        traces: tuple[str, ...],
        **rest: object,
    ) -> None:
        """The options in one, and the rest as it is."""
        asked = Asked(
            format=Format(format),
            convention=convention_for(traces, convention, anchor),
            window=window_of(window, start, end),
            span=Span(span) if span else None,
            kernels=KernelsMode(kernels) if kernels else None,
            ranks=ranks,
            executor=executor,
        )
        command(asked, traces=traces, **rest)

    found: Callable[..., None] = with_asked
    for option in reversed(_OPTIONS):
        found = option(found)
    return found


def window_of(window: str | None, start: int | None, end: int | None) -> str:
    """The window in the words of a gate file."""
    if start is not None or end is not None:
        if start is None or end is None:
            raise UsageMistake("--start and --end go together: both in ns")
        if window is not None:
            raise UsageMistake("--window and --start, --end exclude each other")
        window = f"{start}:{end}"
    elif window is None:
        return MEDIAN
    return _canonical(window.strip())


def _canonical(window: str) -> str:
    if re.fullmatch(r"[0-9]{1,18}", window):
        return str(int(window))
    if explicit := re.fullmatch(r"(-?[0-9]{1,30}):(-?[0-9]{1,30})", window):
        start, end = int(explicit[1]), int(explicit[2])
        if max(abs(start), abs(end)) > LATEST_NS:
            raise UsageMistake(f"no trace has a time of more than {LATEST_NS} ns: {window}")
        if end <= start:
            raise UsageMistake(f"a window ends after its start: {window}")
        return window
    if not window or _NUMBERS.fullmatch(window):
        raise UsageMistake(f"'{printable(window, 40)}' is no window: give {_WINDOW_HELP}")
    return window
