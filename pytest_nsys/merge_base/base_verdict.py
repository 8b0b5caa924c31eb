"""How does a branch do under the gate files of its merge base: how many assertions hold, which do not, and why?"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.merge_base.differences import FileDifference, FileKind, count_differences

TITLE = "gate of the merge base"
MAX_SHOWN_REDS = 20
LAST_LOG_LINES = 20
"""How many lines of the log are shown if pytest left no report."""

ACCEPTED_OUTCOME = "accepted"
# Names of the fields of FileDifference that a report holds, under the same keys.
REPORTED_FILE_FIELDS = ("file", "kind", "state", "added", "removed")


class JudgedGate(NamedTuple):
    """Describes a gate file of the merge base, with its configuration, the traces it was judged on, and how it went."""

    name: str
    traces: Sequence[str]
    passed: int
    assertions: int

    @property
    def text(self) -> str:
        """The result on one line: ``perf/gate.nsys.yaml: 2 of 3 passed on run.sqlite``."""
        traces = f" on {', '.join(self.traces)}" if self.traces else ""
        return sanitize_line(
            f"{self.name}: {self.passed} of {format_count(self.assertions, 'assertion')} passed{traces}", 2000
        )


@dataclass(frozen=True)
class BaseVerdict:
    """Holds what the gate of the merge base decided."""

    is_red: bool
    headline: str
    """The verdict on one line."""

    reds: Sequence[str] = ()
    """The failed assertions, each as a text of one or several lines with rows and reasons."""

    accepted_texts: Sequence[str] = ()
    """The rows that are worse and accepted at the merge base, each with change and reason."""

    commit: str = ""
    """The commit of the merge base; empty where there is none."""

    judged_gates: Sequence[JudgedGate] = ()
    new_paths: Sequence[str] = ()
    """Paths from the command line that the merge base lacks, so that only the branch judges them."""

    notes: Sequence[str] = ()
    differences: Sequence[FileDifference] = ()
    is_broken: bool = False
    """Whether nothing could be judged: there is no merge base, or its files are missing."""

    def render_lines(self, shown_texts: Collection[str] = ()) -> Iterator[str]:
        """Yield the verdict without the diffs, line by line, for a terminal.

        ``shown_texts`` are failures that the terminal shows already: for these one line is enough.
        """
        yield sanitize_line(f"{TITLE}: {self.headline}", 2000)
        for red in self.reds[:MAX_SHOWN_REDS]:
            red_lines = red.splitlines()
            yield from (f"  {line}" for line in (red_lines[:1] if red in shown_texts else red_lines))
        yield from (f"  {line}" for line in self.list_remarks())

    def list_remarks(self) -> Iterator[str]:
        """Yield the remarks that are neither headline nor failures, a line each."""
        if hidden_count := len(self.reds[MAX_SHOWN_REDS:]):
            yield f"… and {format_count(hidden_count, 'more red')}"
        yield from self.accepted_texts
        yield from (gate.text for gate in self.judged_gates)
        yield from (f"new, judged by this branch alone: {sanitize_line(path)}" for path in self.new_paths)
        yield from (sanitize_line(note, 2000) for note in self.notes)
        if self.differences:
            yield f"differs from the merge base: {count_differences(self.differences)}"
            yield from (f"  {difference.text}" for difference in self.differences)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a report stores it."""
        return {
            "commit": self.commit,
            "good": not self.is_red,
            "headline": sanitize_line(self.headline, 2000),
            "reds": [*self.reds],
            "accepted": [*self.accepted_texts],
            "judged": [gate._asdict() for gate in self.judged_gates],
            "new": [*self.new_paths],
            "notes": [sanitize_line(note, 2000) for note in self.notes],
            "differences": [
                {
                    name: str(getattr(difference, name)) if name == "kind" else getattr(difference, name)
                    for name in REPORTED_FILE_FIELDS
                }
                for difference in self.differences
            ],
        }


def build_broken_verdict(problem: str) -> BaseVerdict:
    """Build the verdict for a merge base that cannot judge."""
    return BaseVerdict(is_red=True, headline=f"the merge base cannot judge: {problem}", is_broken=True)


def build_verdict_without_gates(base_text: str) -> BaseVerdict:
    """Build the verdict for a merge base that has no gate file under the judged paths."""
    return BaseVerdict(is_red=False, headline=f"no gate file to judge by at {base_text}")


def read_verdict(folder: Path, status: int, base_text: str, differences: Sequence[FileDifference]) -> BaseVerdict:
    """Read the verdict from the folder that the judge process wrote: its report, and the settings of the merge base.

    ``status`` is its exit status, ``base_text`` names the merge base.
    """
    try:
        session: Mapping[str, Any] = json.loads((folder / "report.json").read_bytes())
        refuses_changes = json.loads((folder / "settings.json").read_bytes())["gate_changes"] == "fail"
    # If pytest crashed, or did not start, there is only its log.
    except (OSError, ValueError, KeyError):
        log = (folder / "log").read_text("utf-8", "replace").strip().splitlines()[-LAST_LOG_LINES:]
        headline = f"the merge base did not judge: pytest ended with exit status {status} at {base_text}"
        return BaseVerdict(
            is_red=True, headline=headline, reds=["\n".join(sanitize_line(line, 500) for line in log)], is_broken=True
        )
    files = session["gate_files"]
    assertions = [(file, assertion) for file in files for assertion in file["assertions"]]
    bad_assertions = [(file, assertion) for file, assertion in assertions if not assertion["good"]]
    reds = [f"{_format_mistake_place(mistake)}: {mistake['text']}" for mistake in session["mistakes"]]
    reds += [_describe_red(file, assertion) for file, assertion in bad_assertions]
    changed_files = (
        [difference for difference in differences if difference.kind is not FileKind.BASELINE]
        if refuses_changes
        else []
    )
    if changed_files:
        change_text = (
            f"nsys_gate_changes = fail at the merge base, and this branch changes {count_differences(changed_files)}"
        )
        reds.insert(0, change_text)
    good_count = len(assertions) - len(bad_assertions)
    passed_text = (
        f"{format_count(good_count, 'assertion')} passed of {format_count(len(files), 'gate file')} at {base_text}"
    )
    if not assertions and not reds:
        headline = f"nothing was judged, and {base_text} has gate files: name them, or their folder"
    elif bad_assertions:
        headline = f"{len(bad_assertions)} failed, {passed_text}"
    elif reds:
        headline = f"{sanitize_line(reds[0], 300)}; {passed_text}"
    else:
        headline = passed_text if status == 0 else f"{passed_text}, and the judge ended with exit status {status}"
    accepted_assertions = [
        assertion for _, assertion in assertions if assertion["outcome"] == ACCEPTED_OUTCOME and assertion["good"]
    ]
    return BaseVerdict(
        is_red=bool(reds) or not assertions or status != 0,
        headline=headline,
        reds=reds,
        accepted_texts=[
            f"{assertion['sentence']}: {warning}"
            for assertion in accepted_assertions
            for warning in assertion["warnings"]
        ],
        judged_gates=[_build_judged_gate(file) for file in files],
    )


def _format_mistake_place(mistake: Mapping[str, Any]) -> str:
    return ":".join(str(mistake[part]) for part in ("file", "line", "column") if mistake[part] is not None)


def _format_gate_name(file: Mapping[str, Any]) -> str:
    return f"{file['file']}[{file['configuration']}]" if file["configuration"] else str(file["file"])


def _describe_red(file: Mapping[str, Any], assertion: Mapping[str, Any]) -> str:
    place = f"{_format_gate_name(file)}:{assertion['line']}: {assertion['sentence']}"
    return str(assertion["explanation"]) or f"{assertion['message']}\n{place}"


def _build_judged_gate(file: Mapping[str, Any]) -> JudgedGate:
    good_count = sum(assertion["good"] for assertion in file["assertions"])
    return JudgedGate(_format_gate_name(file), file["traces"], good_count, len(file["assertions"]))
