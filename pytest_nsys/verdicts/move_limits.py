"""The limits of a gate file that a run broke are written anew: whole or not at all, and what changed as a diff."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_nsys.core.errors import NsysError, one_line
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.gate_file import loads_gate_file
from pytest_nsys.gates.model import Location
from pytest_nsys.gates.moved_limits import LimitEdit, with_limits
from pytest_nsys.tools.files import write_whole

CONTEXT = 1
"""Lines around a change in the diff."""


@dataclass(frozen=True)
class MovedLimits:
    """A gate file before and after; ``stay`` says of limits why they are as they were. ``others`` are configurations
    that have the moved ones, too, and that nobody measured.
    """

    shown: Path
    before: str
    after: str
    stay: Mapping[Location, str]
    others: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """How many limits moved, the unified diff, and what stays."""
        was, now = self.before.splitlines(), self.after.splitlines()
        diff = [*difflib.unified_diff(was, now, str(self.shown), str(self.shown), n=CONTEXT, lineterm="")]
        moved = sum(line.startswith("+") for line in diff) - 1
        head = [f"{self.shown}: {counted(moved, 'limit')} moved"] if diff else []
        stay = [f"{place.at_line}: the limit stays as it is: {why}" for place, why in sorted(self.stay.items())]
        too = f"{self.shown}: looser for {', '.join(self.others)}, too, which this run did not measure"
        return [*head, *(printable(line, 1000) for line in diff), *([too] if diff and self.others else []), *stay]


def move_limits(path: Path, shown: Path, edits: Sequence[LimitEdit], measured: Collection[str] = ()) -> MovedLimits:
    """Write them; ``measured`` are the addresses of what was judged. Raises NsysError where the file cannot be read or
    written; then it is as it was.
    """
    with one_line(NsysError, f"{shown}: cannot be written", "; no limit was moved"):
        before = path.read_bytes()
        each = loads_gate_file(before, path=path).each  # where its lines stood before they were edited
        after, stay = with_limits(before, path, shown, edits)
        if after != before:
            with path.open("r+b"):  # a read-only file is left, where its folder would let it be replaced
                write_whole(path, after)
    moved = {edit.location[1:] for edit in edits if edit.location not in stay}
    others = tuple(
        gate.configuration
        for gate in each
        if gate.configuration and gate.address not in measured and any(a.location[1:] in moved for a in gate.assertions)
    )
    return MovedLimits(shown, before.decode("utf-8-sig"), after.decode("utf-8-sig"), stay, others)
