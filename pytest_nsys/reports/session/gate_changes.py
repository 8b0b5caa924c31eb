"""How is it shown that a branch loosens its own gate? One line for each change, first of all that a report says."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.gate_changes import GateChange, GateChanges
from pytest_nsys.gates.loosening_rules import ChangeKind

TITLES = {ChangeKind.LOOSENED: "this PR loosens", ChangeKind.CHANGED: "this PR changes, and may loosen"}
SHOWN = 20
"""Changes in a terminal, and in the message of a failure."""

UNTOLD = "what this PR loosens cannot be told"


def place(change: GateChange) -> str:
    """``perf/gate.nsys.yaml:9``: where it stands now, or stood."""
    return f"{change.file}:{change.lines[0]}" if change.lines else change.file


def words(change: GateChange) -> str:
    """``tolerance rel 5% → 30%``."""
    return f"{change.change.key} {change.change.was} → {change.change.now}"


def of_which(change: GateChange) -> str:
    """The assertions that have it: ``overlap >= 60% and 3 more``; empty for what is the file's."""
    more = len(change.assertions) - 1
    return "" if more < 0 else printable(change.assertions[0]) + (f" and {more} more" if more else "")


def sentence(change: GateChange) -> str:
    """The change and the assertions that have it, in a line."""
    which = of_which(change)
    return words(change) + (f" ({which})" if which else "")


def change_lines(changes: GateChanges, *, at_most: int | None = None) -> Iterator[str]:
    """Each change in a line that tells all of it, the first of them where there are more than ``at_most``."""
    for change in changes.found[:at_most]:
        yield printable(f"{TITLES[change.change.kind]}: {place(change)} {sentence(change)}", 1000)
    if left := len(changes.found[len(changes.found) if at_most is None else at_most :]):
        yield f"… and {counted(left, 'more change')}, in the reports"
    if changes.problem:
        yield printable(f"{UNTOLD}: {changes.problem}", 1000)


def terminal_lines(changes: GateChanges | None, *, judged: bool) -> list[str]:
    """The same for a terminal, also where nothing is loosened, so that it is seen to be looked at.

    A session that ``judged`` no gate file does not tell why nobody can look.
    """
    if changes is None or not (judged or changes.found):
        return []
    return list(change_lines(changes, at_most=SHOWN)) or ["gate files of the merge base: none asks for less"]


def headline(changes: GateChanges) -> str:
    """How many, in a few words: ``this PR loosens its gate: 2 changes``."""
    if not changes.found:
        return UNTOLD
    verb = "loosens" if any(each.change.kind is ChangeKind.LOOSENED for each in changes.found) else "may loosen"
    return f"this PR {verb} its gate: {counted(len(changes.found), 'change')}"
