"""How is told what a gate file would have caught: a line for each run, and how many reds there were?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.explanation import reason_words
from pytest_nsys.reports.tables import Cell, texts
from pytest_nsys.stored.history.reading import StoredRun
from pytest_nsys.verdicts.replay import Replay, Replayed, ReplayedRun

DEFINITION = 1
"""Of the JSON that is printed."""

NOT_JUDGED = "not judged"
COLUMNS = (*texts("gate", "run", "commit", "branch", "then", "replay", "why", "assertion", "after"),)
_SHORT_COMMIT = 10
_WORST_FIRST = (Outcome.NO_DATA, Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.IMPROVED, Outcome.PASSED)


def worst(run: ReplayedRun) -> Replayed | None:
    """What a line tells of a run: a red before anything else."""
    return min(run.found, key=lambda each: (not each.red, _WORST_FIRST.index(each.verdict.outcome)), default=None)


def outcome_of(run: ReplayedRun) -> str:
    """The run in one word."""
    found = worst(run)
    return NOT_JUDGED if found is None else str(found.verdict.outcome)


def cells(run: ReplayedRun, gate: str | None) -> list[Cell]:
    """A line; the gate file's name where there are several."""
    found, own = worst(run), run.run
    told = found is not None and (found.red or found.verdict.outcome is not Outcome.PASSED)
    more = sum(each.red for each in run.found) - 1
    line: list[Cell] = [
        own.time[:16].replace("T", " "),
        _commit(own),
        own.branch,
        own.outcome,
        outcome_of(run),
        _why(found) if told and found is not None else None,
        found.verdict.assertion.name + (f" and {more} more" if more > 0 else "")
        if told and found is not None
        else None,
        str(found.after) if found is not None and found.after is not None else None,
    ]
    return line if gate is None else [gate, *line]


def _why(found: Replayed) -> str:
    return reason_words(found.verdict).removeprefix(f"{found.verdict.outcome}: ")


def _commit(run: StoredRun) -> str | None:
    return run.commit[:_SHORT_COMMIT] + ("+" if run.dirty else "") if run.commit else None


def sentences(replay: Replay, gate: str) -> Iterator[str]:
    """What there was in all, and what could not be replayed."""
    judged = [run for run in replay.runs if run.found]
    reds = [run for run in judged if run.red]
    head = f"{gate}: " if gate else ""
    if judged:
        left = len(replay.runs) - len(judged)
        span = f"{judged[0].run.time[:10]} to {judged[-1].run.time[:10]}"
        yield f"{head}{counted(len(judged), 'run')} judged ({span}), {len(reds)} red" + (
            f"; {counted(left, 'run')} not judged" if left else ""
        )
        after = Counter(
            str(found.after) for run in reds for found in run.found if found.red and found.after is not None
        )
        if after:
            yield f"  of the failed assertions: {', '.join(f'{number} {what}' for what, number in after.items())}"
    else:
        yield f"{head}no run could be judged"
    for name, why in replay.not_replayed.items():
        yield f"  not replayed: {printable(name, 100)}: {printable(why, 400)}"


def about(replays: Sequence[tuple[str, Replay]]) -> Mapping[str, object]:
    """What JSON says of all runs together."""
    runs = [run for _, replay in replays for run in replay.runs]
    return {
        "definition": DEFINITION,
        "judged": sum(bool(run.found) for run in runs),
        "red": sum(run.red for run in runs),
        "not_replayed": [
            {"gate": gate, "assertion": name, "why": why}
            for gate, replay in replays
            for name, why in replay.not_replayed.items()
        ],
    }


def json_run(run: ReplayedRun, gate: str) -> Mapping[str, object]:
    """A run, with what each assertion says of it."""
    own = run.run
    return {
        "gate": gate,
        "run": own.id,
        "time": own.time,
        "commit": own.commit,
        "branch": own.branch,
        "then": own.outcome,
        "replay": outcome_of(run),
        "red": run.red,
        "assertions": [
            {
                "name": each.verdict.assertion.name,
                "outcome": str(each.verdict.outcome),
                "red": each.red,
                "why": _why(each),
                "against": each.against.id if each.against is not None else None,
                "after": str(each.after) if each.after is not None else None,
            }
            for each in run.found
        ],
    }
