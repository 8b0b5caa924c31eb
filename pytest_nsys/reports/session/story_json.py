"""How does the story of a session leave as JSON? As facts, with each sentence beside what it is made of."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec.structs import asdict

from pytest_nsys.analysis.root_facts import RootChange, RootKind, RootOf
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.session.headline import length_words
from pytest_nsys.reports.session.roots import called_in, root_sentence
from pytest_nsys.reports.session.story import NotJudged, Red, StepTold, Story, StoryRoot
from pytest_nsys.reports.shapes import Number, Shape, doc

LONGEST_NAME = 2000
Configuration = Annotated[str, doc("That of the file's matrix; empty where it has none.")]


class ChangeShape(Shape):
    kind: Annotated[RootKind, doc("What happened.")]
    of: Annotated[RootOf, doc("To what.")]
    name: Annotated[str, doc("Kernel, copy or call; of the host the kernel that the GPU waits for.")]
    stage: Annotated[str, doc("Empty where there is none, and of a sum over stages.")]
    instead_of: Annotated[str, doc("What ran in the same place before; else empty.")]
    rank: Annotated[int, doc("Where it happened.")]
    before_ns: Annotated[int, doc("The quantity that changed, before.")]
    now_ns: Annotated[int, doc("The same now.")]
    was: Annotated[int, doc("Kernels, copies or calls before.")]
    is_now: Annotated[int, doc("The same now.")]
    clock_mhz: Annotated[list[int] | None, doc("The GPU's clock before and now; null where unknown or the same.")]


class RedShape(Shape):
    file: str
    configuration: Configuration
    line: Number
    name: Annotated[str, doc("Of the assertion.")]
    failed_rows: Annotated[int, doc("How many of its failed rows stand here.")]


class ChangedThere(ChangeShape):
    file: str
    configuration: Configuration


class RootShape(Shape):
    text: Annotated[str, doc("What happened, and where.")]
    stages: Annotated[list[str], doc("Those that the changes are sums of.")]
    changes: Annotated[list[ChangedThere], doc("By gate file and rank where it happened.")]
    waiting: Annotated[list[int], doc("Ranks that wait for those ranks.")]
    waits_in: Annotated[str, doc("The kernel in which they do; else empty.")]
    reds: Annotated[list[RedShape], doc("What it explains; empty where all of that stands below a larger root.")]


class StepShape(Shape):
    file: str
    configuration: Configuration
    text: Annotated[str, doc("What happened to it.")]
    noun: Annotated[str, doc("`window` where the windows are no steps.")]
    before_ns: Annotated[int, doc("Of the slowest rank before.")]
    now_ns: Annotated[int, doc("Of the slowest rank now.")]
    unchanged: Annotated[bool, doc("Whether it moved by less than 0.5%.")]


class NotJudgedShape(Shape):
    file: str
    outcome: Outcome
    message: str
    assertions: Annotated[list[str], doc("Those that it keeps from being judged.")]


class StoryShape(Shape):
    steps: Annotated[list[StepShape], doc("Of each gate file and configuration with a red, as far as known.")]
    roots: Annotated[list[RootShape], doc("Largest first, those that explain the length of a step before all others.")]
    unexplained: Annotated[list[RedShape], doc("Failed rows below no root.")]
    not_judged: Annotated[list[NotJudgedShape], doc("Each thing that kept assertions from being judged, once.")]
    warning: Annotated[bool, doc("Whether nothing failed, and all this is of assertions that only warn.")]


def story_json(story: Story) -> StoryShape:
    called = called_in(story)
    return StoryShape(
        steps=[_step(step) for _, step in sorted(story.steps.items())],
        roots=[_root(root, root_sentence(root, story, called)) for root in story.roots],
        unexplained=[*map(_red, story.unexplained)],
        not_judged=[*map(_not_judged, story.not_judged)],
        warning=story.warning,
    )


def change_of(change: RootChange) -> ChangeShape:
    """A change; names are cut, and show no control characters."""
    root = change.root
    return ChangeShape(
        kind=root.kind,
        of=root.of,
        name=printable(root.name, LONGEST_NAME),
        stage=printable(root.stage, LONGEST_NAME),
        instead_of=printable(root.instead_of, LONGEST_NAME),
        rank=change.rank,
        before_ns=change.before_ns,
        now_ns=change.now_ns,
        was=change.was,
        is_now=change.is_now,
        clock_mhz=None if change.clock_mhz is None else [*change.clock_mhz],
    )


def _root(root: StoryRoot, text: str) -> RootShape:
    changes = sorted(root.changes.items())
    return RootShape(
        text=text,
        stages=[printable(stage, LONGEST_NAME) for stage in root.stages],
        changes=[ChangedThere(**asdict(change_of(change)), **_place(address)) for (address, _), change in changes],
        waiting=[*root.waiting],
        waits_in=printable(root.waits_in, LONGEST_NAME),
        reds=[*map(_red, root.reds)],
    )


def _place(address: str) -> dict[str, Any]:
    own = Address.of(address)
    return {"file": printable(own.file, LONGEST_NAME), "configuration": own.configuration}


def _red(red: Red) -> RedShape:
    record = red.record
    return RedShape(
        file=record.file,
        configuration=record.configuration,
        line=record.line,
        name=record.name,
        failed_rows=len(red.rows),
    )


def _step(step: StepTold) -> StepShape:
    return StepShape(
        **_place(step.address),
        text=length_words(step),
        noun=step.noun,
        before_ns=step.before_ns,
        now_ns=step.now_ns,
        unchanged=step.unchanged,
    )


def _not_judged(each: NotJudged) -> NotJudgedShape:
    return NotJudgedShape(
        file=each.records[0].file,
        outcome=each.outcome,
        message=each.message,
        assertions=[record.title for record in each.records],
    )
