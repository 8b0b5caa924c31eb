"""Is a branch red that loosens its own gate? One item judges what it does to gate files, as each assertion is judged.

It is there whatever else is collected, selected or left of a gate file, so that no deleted file is green.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.gates.gate_changes import GateChanges
from pytest_nsys.outcomes import GateFailed
from pytest_nsys.plugin.items import GateItem
from pytest_nsys.plugin.session import session_of
from pytest_nsys.reports.session.gate_changes import SHOWN, change_lines, headline

NAME = "gate changes"


class GateChangesItem(pytest.Item):
    """What the branch does to the gate files of the merge base; it fails where they ask for less."""

    def runtest(self) -> None:
        """Compare the gate files."""
        changes = looked_at(self.session)
        if changes is not None and changes.bad:
            lines = [f"{headline(changes)} (--nsys-gate-changes=fail)", *change_lines(changes, at_most=SHOWN)]
            raise GateFailed("\n  ".join(lines))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any) -> Any:
        """The changes as they are, without a traceback."""
        if isinstance(excinfo.value, GateFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args, **kwargs)

    def reportinfo(self) -> tuple[Path, int, str]:
        """No line of any file: the item is about all of them."""
        return self.path, 0, self.name


def looked_at(session: pytest.Session) -> GateChanges | None:
    """What the branch changes, seen from the gate files that were collected; None without a ref."""
    own = session_of(session.config)
    files = dict.fromkeys(own.shown(item.path) for item in session.items if isinstance(item, GateItem))
    return own.branch.gate_changes(files) if own.branch is not None else None


def guard(session: pytest.Session) -> None:
    """Put the item before all others, after everything that selects: nothing leaves it out.

    Of a session with nothing else it would make a green one, unless there is something to say.
    """
    branch = session_of(session.config).branch
    if branch is None or not branch.refuses_gate_changes or session.config.getoption("collectonly"):
        return
    changes = None if session.items else looked_at(session)
    if session.items or (changes is not None and changes.bad):
        item = GateChangesItem.from_parent(session, name=NAME, nodeid=f"nsys::{NAME}")
        item.add_marker("nsys")
        session.items.insert(0, item)
