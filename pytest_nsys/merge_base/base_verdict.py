"""What does the gate of the merge base say of a branch: how many assertions hold, which do not, and why?"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core.words import counted, printable
from pytest_nsys.merge_base.differences import FileDifference, FileKind, count_differences

TITLE = "gate of the merge base"
SHOWN_REDS = 20
LAST_WORDS = 20
"""Lines of a pytest that left no report."""

ACCEPTED = "accepted"
TOLD_OF_A_FILE = ("file", "kind", "state", "added", "removed")


class JudgedGate(NamedTuple):
    """A gate file of the merge base, with its configuration, the traces it was judged on, and how it went."""

    name: str
    traces: Sequence[str]
    passed: int
    assertions: int

    @property
    def words(self) -> str:
        """``perf/gate.nsys.yaml: 2 of 3 passed on run.sqlite``."""
        traces = f" on {', '.join(self.traces)}" if self.traces else ""
        return printable(f"{self.name}: {self.passed} of {counted(self.assertions, 'assertion')} passed{traces}", 2000)


@dataclass(frozen=True)
class BaseVerdict:
    """What came of the judge."""

    red: bool
    headline: str
    """The verdict in one line."""

    reds: Sequence[str] = ()
    """What does not hold, with its rows and reasons: a text of one or several lines each."""

    accepted: Sequence[str] = ()
    """Of what is worse and the merge base lets pass: row, change and reason."""

    commit: str = ""
    """The merge base; empty where there is none."""

    judged: Sequence[JudgedGate] = ()
    new: Sequence[str] = ()
    """Typed paths that the merge base lacks: the branch alone judges them."""

    notes: Sequence[str] = ()
    differences: Sequence[FileDifference] = ()
    broken: bool = False
    """Whether nothing could be judged: there is no merge base, or its files are missing."""

    def lines(self, told: Collection[str] = ()) -> Iterator[str]:
        """All of it but the diffs, for a terminal. ``told`` are texts of reds that stand beside it."""
        yield printable(f"{TITLE}: {self.headline}", 2000)
        for red in self.reds[:SHOWN_REDS]:
            lines = red.splitlines()
            yield from (f"  {line}" for line in (lines[:1] if red in told else lines))
        yield from (f"  {line}" for line in self.beside_reds())

    def beside_reds(self) -> Iterator[str]:
        """What it says but its verdict and the reds, a line each."""
        if left := len(self.reds[SHOWN_REDS:]):
            yield f"… and {counted(left, 'more red')}"
        yield from self.accepted
        yield from (gate.words for gate in self.judged)
        yield from (f"new, judged by this branch alone: {printable(path)}" for path in self.new)
        yield from (printable(note, 2000) for note in self.notes)
        if self.differences:
            yield f"differs from the merge base: {count_differences(self.differences)}"
            yield from (f"  {each.words}" for each in self.differences)

    def as_json(self) -> dict[str, Any]:
        """For a report."""
        return {
            "commit": self.commit,
            "good": not self.red,
            "headline": printable(self.headline, 2000),
            "reds": [*self.reds],
            "accepted": [*self.accepted],
            "judged": [gate._asdict() for gate in self.judged],
            "new": [*self.new],
            "notes": [printable(note, 2000) for note in self.notes],
            "differences": [
                {name: str(getattr(each, name)) if name == "kind" else getattr(each, name) for name in TOLD_OF_A_FILE}
                for each in self.differences
            ],
        }


def broken_verdict(why: str) -> BaseVerdict:
    """That of a merge base that cannot be asked."""
    return BaseVerdict(red=True, headline=f"the merge base cannot judge: {why}", broken=True)


def verdict_without_gates(since: str) -> BaseVerdict:
    """That of a merge base that has no gate file where anybody looks."""
    return BaseVerdict(red=False, headline=f"no gate file to judge by at {since}")


def read_verdict(folder: Path, status: int, since: str, differences: Sequence[FileDifference]) -> BaseVerdict:
    """What the process of the judge left in a folder: its report, and what is set at the merge base. ``status`` is its
    exit status, ``since`` names the merge base.
    """
    try:
        session: Mapping[str, Any] = json.loads((folder / "report.json").read_bytes())
        refuses_changes = json.loads((folder / "settings.json").read_bytes())["gate_changes"] == "fail"
    except (OSError, ValueError, KeyError):
        log = (folder / "log").read_text("utf-8", "replace").strip().splitlines()[-LAST_WORDS:]
        said = f"the merge base did not judge: pytest ended with exit status {status} at {since}"
        return BaseVerdict(red=True, headline=said, reds=["\n".join(printable(line, 500) for line in log)], broken=True)
    files = session["gate_files"]
    assertions = [(file, each) for file in files for each in file["assertions"]]
    bad = [(file, each) for file, each in assertions if not each["good"]]
    reds = [f"{_place(each)}: {each['text']}" for each in session["mistakes"]]
    reds += [_describe_red(file, each) for file, each in bad]
    changed = [each for each in differences if each.kind is not FileKind.BASELINE] if refuses_changes else []
    if changed:
        what = f"nsys_gate_changes = fail at the merge base, and this branch changes {count_differences(changed)}"
        reds.insert(0, what)
    good = len(assertions) - len(bad)
    passed = f"{counted(good, 'assertion')} passed of {counted(len(files), 'gate file')} at {since}"
    if not assertions and not reds:
        said = f"nothing was judged, and {since} has gate files: name them, or their folder"
    elif bad:
        said = f"{len(bad)} failed, {passed}"
    elif reds:
        said = f"{printable(reds[0], 300)}; {passed}"
    else:
        said = passed if status == 0 else f"{passed}, and the judge ended with exit status {status}"
    accepted = [each for _, each in assertions if each["outcome"] == ACCEPTED and each["good"]]
    return BaseVerdict(
        red=bool(reds) or not assertions or status != 0,
        headline=said,
        reds=reds,
        accepted=[f"{each['sentence']}: {warning}" for each in accepted for warning in each["warnings"]],
        judged=[_judged_gate(file) for file in files],
    )


def _place(mistake: Mapping[str, Any]) -> str:
    return ":".join(str(mistake[part]) for part in ("file", "line", "column") if mistake[part] is not None)


def _gate_name(file: Mapping[str, Any]) -> str:
    return f"{file['file']}[{file['configuration']}]" if file["configuration"] else str(file["file"])


def _describe_red(file: Mapping[str, Any], assertion: Mapping[str, Any]) -> str:
    place = f"{_gate_name(file)}:{assertion['line']}: {assertion['sentence']}"
    return str(assertion["explanation"]) or f"{assertion['message']}\n{place}"


def _judged_gate(file: Mapping[str, Any]) -> JudgedGate:
    good = sum(each["good"] for each in file["assertions"])
    return JudgedGate(_gate_name(file), file["traces"], good, len(file["assertions"]))
