"""What is the result of a whole session: how many assertions ended in which state, and the verdict in one word?

It holds the records of its assertions, and what kept a gate file from being judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.core.errors import Mistake
from pytest_nsys.core.file_names import GateAddress
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.text_format import format_count
from pytest_nsys.gates.model import OUTCOMES_WORST_FIRST, Outcome
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.story import Story, build_story
from pytest_nsys.reports.words.verdict_text import list_window_lines

if TYPE_CHECKING:
    from pytest_nsys.merge_base.base_verdict import BaseVerdict
    from pytest_nsys.reports.drawings.pictures import PicturesByAssertion
    from pytest_nsys.verdicts.comparison import Comparison

NOTHING_JUDGED = "nothing judged"
STATES = (*map(str, Outcome), "warned", "waived", "xfailed")
"""All values of :attr:`pytest_nsys.reports.session.record.AssertionRecord.state`."""

EXIT_MEANINGS = {1: "something failed", 2: "interrupted", 3: "internal error", 4: "usage error", 5: "no tests"}
"""What pytest's exit statuses mean."""

UNFINISHED_EXITS = (2, 3, 4)
"""Exit statuses of a session that did not get to its end."""

BAD_STATES = frozenset(map(str, (Outcome.ERROR, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.FAILED)))
"""States that are always bad: an assertion that is allowed to fail has another state."""


class NotRunFile(NamedTuple):
    """Describes a gate file, or one configuration of it, that was not judged because no trace was given."""

    file: str
    assertions: tuple[str, ...]  # their names
    why: str  # the sentence that reports show
    configuration: str = ""

    @property
    def name(self) -> str:
        return str(GateAddress(self.file, self.configuration))


class PageLink(NamedTuple):
    """Says where a person who reads a summary finds the page of the session."""

    url: str
    place: str  # in words


@dataclass(frozen=True)
class Session:
    """Holds the results of a pytest session or of a comparison: every output is a function of it."""

    records: tuple[AssertionRecord, ...]
    """The assertions that were judged, by file, line and name."""
    mistakes: tuple[Mistake, ...] = ()
    """What kept gate files from being judged."""
    exit_status: int = 0
    """The exit status of pytest; for a comparison 1 if it is not good."""
    refreshed: tuple[str, ...] = ()
    """Lines about the baselines that this session wrote."""
    merge_base: BaseVerdict | None = None
    """The verdict of the merge base's gate; None if it was not requested."""
    not_run: tuple[NotRunFile, ...] = ()
    """Gate files or configurations without a trace."""
    pictures: PicturesByAssertion = field(default_factory=dict)
    """What the page draws of each assertion, by the record's ``identity``."""
    history_path: Path | None = None
    """The database of the history; None without one."""
    checkout: Path | None = None
    """A folder in the git checkout of the judged program; its commit is shown."""
    comparison: Comparison | None = None
    """The comparison that this session shows; None in a session of pytest."""
    page_link: PageLink | None = None
    """Where CI keeps the page that this session writes; None where no page is written, or no such place is known."""

    @cached_property
    def story(self) -> Story:
        """What happened in the session: the basis of every output."""
        return build_story(self.records)

    @property
    def bad(self) -> list[AssertionRecord]:
        """The assertions that pytest takes as failed."""
        return [record for record in self.records if not record.good or record.state in BAD_STATES]

    @property
    def counts(self) -> Counter[str]:
        return Counter(record.state for record in self.records)

    @property
    def verdict(self) -> str:
        """The session in one word: the worst state that pytest takes as failed, else the worst that deserves a look.

        It is *error* if the session failed and no assertion explains it, so that a session that is not good never reads
        as a success.
        """
        if self.mistakes or self.exit_status in UNFINISHED_EXITS:
            return str(Outcome.ERROR)
        if self.is_red_at_base and self.merge_base is not None and self.merge_base.is_broken:
            return str(Outcome.ERROR)
        if not self.records and not self.is_red_at_base:
            return NOTHING_JUDGED
        bad_states = {record.state for record in self.bad} | ({str(Outcome.FAILED)} if self.is_red_at_base else set())
        if bad_states:
            return str(next((outcome for outcome in OUTCOMES_WORST_FIRST if outcome in bad_states), Outcome.FAILED))
        if self.exit_status and self.comparison is not None:
            return NOTHING_JUDGED
        if self.exit_status:  # another test, a worker that crashed, a report that could not be written
            return str(Outcome.ERROR)
        counts = self.counts
        return str(
            next(
                (outcome for outcome in (Outcome.ACCEPTED, Outcome.INCONCLUSIVE, Outcome.IMPROVED) if counts[outcome]),
                Outcome.PASSED,
            )
        )

    @property
    def is_red_at_base(self) -> bool:
        """Whether the gate of the merge base is red."""
        return self.merge_base is not None and self.merge_base.is_red

    @property
    def good(self) -> bool:
        """Whether assertions were judged, and neither they nor anything else in the session was bad."""
        is_clean = not self.mistakes and not self.bad and not self.is_red_at_base
        return bool(self.records) and is_clean and self.exit_status == 0

    @property
    def has_only_passed(self) -> bool:
        """Whether there is nothing to look at."""
        return self.good and all(record.state == Outcome.PASSED for record in self.records)

    @property
    def headline(self) -> str:
        """The session in one line: ``7 assertions: 1 failed, 6 passed``."""
        if self.comparison is not None:
            from pytest_nsys.reports.session.comparison_tables import describe_result

            return describe_result(self.comparison)
        sentences = []
        if self.merge_base is not None and self.merge_base.is_red:
            sentences.append(f"gate of the merge base: {self.merge_base.headline}")
        if self.mistakes:
            sentences.append(f"{format_count(len(self.mistakes), 'mistake')} kept files from being judged")
        if self.records:
            sentences.append(format_counts(self.records))
        elif not self.refreshed and not self.mistakes and not self.not_run:
            sentences.append("no assertion of a gate file was judged")
        if self.not_run:
            sentences.append(describe_not_run(self.not_run))
        sentences += [self.exit_note] if self.exit_note else []
        return "; ".join(sentences) or "baselines were refreshed, and nothing was judged"

    @property
    def summary_line(self) -> str:
        """The verdict word and the headline. The word is *failed* if any assertion failed, even if others could not be
        judged.
        """
        if self.comparison is not None:
            return f"pytest-nsys compare: {self.headline}"
        has_failed = self.verdict in (Outcome.NO_DATA, Outcome.INCOMPARABLE) and Outcome.FAILED in self.counts
        return f"Performance gate: {Outcome.FAILED if has_failed else self.verdict}. {self.headline}."

    @property
    def exit_note(self) -> str:
        """How pytest ended, if that is bad and no assertion explains it; else empty."""
        if not self.exit_status or self.bad or self.mistakes or self.is_red_at_base or self.comparison is not None:
            return ""
        words = EXIT_MEANINGS.get(self.exit_status, "")
        return f"pytest ended with exit status {self.exit_status}" + (f" ({words})" if words else "")

    @property
    def records_by_address(self) -> dict[str, list[AssertionRecord]]:
        """The records of each gate file, or of each configuration of it, by its address."""
        return group_by_address(self.records)


def group_by_address(records: Iterable[AssertionRecord]) -> dict[str, list[AssertionRecord]]:
    """Return the records of each gate file, or of each configuration of it, by its address."""
    return group_by_key((record.address, record) for record in records)


def find_run_record(records: Sequence[AssertionRecord]) -> AssertionRecord:
    """Return a record that knows the run of its gate file: the first that was judged, else the first."""
    return next((record for record in records if record.run), records[0])


def list_baselines(records: Iterable[AssertionRecord]) -> list[str]:
    """Return the baselines that these records were compared with, each once."""
    return list(dict.fromkeys(filter(None, (record.verdict.compared_with for record in records))))


def list_window_sets(records: Iterable[AssertionRecord]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each set of windows once, as pairs of how it was measured and its lines."""
    verdicts = (record.verdict for record in records if record.verdict.measured_as)
    return list(dict.fromkeys((verdict.measured_as, list_window_lines(verdict.windows)) for verdict in verdicts))


def describe_not_run(files: Sequence[NotRunFile], tests: int = 0) -> str:
    """Return how many gate files had no trace: ``not run: 1 gate file, no trace given``. ``tests`` counts other tests
    that needed a trace.
    """
    configurations = sum(bool(file.configuration) for file in files)
    count_by_noun = {"gate file": len(files) - configurations, "configuration": configurations, "test": tests}
    return f"not run: {' and '.join(format_count(n, noun) for noun, n in count_by_noun.items() if n)}, no trace given"


def list_state_counts(records: Iterable[AssertionRecord]) -> list[tuple[str, int]]:
    """Return the states that occur, worst first, each with its number of assertions."""
    counts = Counter(record.state for record in records)
    *bad_states, improved_state, passed_state = map(str, OUTCOMES_WORST_FIRST)
    ordered_states = (*bad_states, "warned", "waived", "xfailed", improved_state, passed_state)
    return [(state, counts[state]) for state in ordered_states if counts[state]]


def format_counts(records: Sequence[AssertionRecord]) -> str:
    """Return the number of assertions by state: ``7 assertions: 1 failed, 6 passed``."""
    count_text = ", ".join(f"{count} {state}" for state, count in list_state_counts(records))
    return f"{format_count(len(records), 'assertion')}: {count_text}"


def sort_records(records: Iterable[AssertionRecord]) -> tuple[AssertionRecord, ...]:
    """Return the records sorted by file, line and name, so that the order of execution does not matter."""
    return tuple(sorted(records, key=lambda record: record.identity))
