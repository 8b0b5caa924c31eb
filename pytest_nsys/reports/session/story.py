"""What happened in a session? The change of the step, every failed assertion below its root cause, and what was not
judged.

All outputs show this, each as much as fits; the first line comes from :mod:`pytest_nsys.reports.session.headline`.
Nothing depends on the order of the records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from pytest_nsys.analysis.explain.breakdown_model import UNCHANGED_SHARE, Change, RootCause, RowExplanation, StepChange
from pytest_nsys.analysis.metrics.registry import PERIOD_METRIC, STEP_TIME_METRIC, find_metric
from pytest_nsys.analysis.windows.window_selection import RUN, choose_window_noun
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import KernelsMode, Label
from pytest_nsys.core.scopes import KernelPlace
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.session.record import AssertionRecord

MIN_ROOT_SHARE = Fraction(5, 100)
"""A root that explains no failed assertion, and is less than this share of the largest root, is not shown."""

WINDOW_METRIC = "window_ns"
STEP_TIMES = frozenset({WINDOW_METRIC, PERIOD_METRIC, STEP_TIME_METRIC})
"""Metrics that are the length of a step."""

MEDIAN_QUANTILE = "p50"
"""The quantile of periods that is the length of a step."""

SINGLE_STEP_AGGREGATES = frozenset({"max", "median", "mean", "min"})
"""Aggregates of step lengths that are the length of a single step."""

NEARLY_UNCHANGED_SHARE = Fraction(1, 100)
"""A step that changed by less than this share counts as unchanged if the median of all steps is unchanged."""

KERNEL_WINDOW_SUFFIX = f"kernels {KernelsMode.LAUNCHED}"
"""The ending of the measurement text of windows that reach from their first kernel to the last: such a window is
shorter than the step.
"""

CHANGED_OUTCOMES = (Outcome.FAILED, Outcome.ACCEPTED, Outcome.IMPROVED)
"""Outcomes of an assertion with rows that changed or are outside their limits."""

EXPOSED_EXPLAINER = "explain.causes:EXPOSED"
EXPOSED_EXPLAINERS = (EXPOSED_EXPLAINER, "explain.causes:COVER", "explain.causes:ALL_EXPOSED")
"""The explainers of exposed time and of its shares. They have the same causes, so a row of one also explains a row of
another.
"""

UNJUDGED_OUTCOMES = (Outcome.ERROR, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.INCONCLUSIVE)


class StoryStep(NamedTuple):
    """Holds the change of the step of a gate file or configuration, on the slowest rank."""

    address: str
    """The gate file, with its configuration."""
    before_ns: int
    """The step's length in the baseline."""
    now_ns: int
    """The step's length in the judged run."""
    noun: str = "step"
    """What is measured: *window* if the windows are not steps, *p90 step* for a quantile, *decode step* for a kind."""
    ranks: tuple[int, int] | None = None
    """The ranks of the two lengths, if they are not both of the slowest rank; None where that need not be said."""
    unlike_counts: tuple[int, int] | None = None
    """The number of kernels in the windows, if they are of unlike work: then their lengths say nothing."""

    @property
    def share(self) -> Fraction:
        """The change of the length as a share of the baseline, negative if the step is shorter."""
        return Fraction(self.now_ns, self.before_ns) - 1

    @property
    def is_unchanged(self) -> bool:
        return abs(self.share) < UNCHANGED_SHARE and self.unlike_counts is None

    @property
    def is_faster(self) -> bool:
        return self.share < 0 and not self.is_unchanged and self.unlike_counts is None


class RedAssertion(NamedTuple):
    """Holds a failed assertion, and those of its failed rows that one root explains, worst first."""

    record: AssertionRecord
    rows: tuple[JudgedRow, ...]


class StoryRoot(NamedTuple):
    """Holds a root cause, and every failed assertion that it explains."""

    root: RootCause
    """What changed, merged over all stages."""
    stages: tuple[str, ...]
    """The stages in which it changed."""
    changes: Mapping[tuple[str, int], Change]
    """How much it changed, by address (gate file or configuration) and rank."""
    reds: tuple[RedAssertion, ...] = ()
    """The failed assertions that it explains; empty if a larger root explains all of them."""
    waiting_ranks: tuple[int, ...] = ()
    """The ranks that wait for a rank on which it changed."""
    waiting_kernel: str = ""
    """The kernel in which the waiting ranks wait."""
    place: KernelPlace | None = None
    """Where in the program its kernels are launched; None where the traces do not say, or not of all its stages."""

    @property
    def ranks(self) -> list[int]:
        return sorted({rank for _, rank in self.changes})

    @property
    def gate_addresses(self) -> list[str]:
        """The gate files, or configurations of them, in which it happened."""
        return sorted({address for address, _ in self.changes})

    @property
    def explains_step(self) -> bool:
        """Whether it explains a failed assertion on the length of a step."""
        return any(is_step_time(red.record) for red in self.reds)

    @property
    def largest(self) -> Change:
        """The change of the rank on which most changed."""
        return min(self.changes.values(), key=lambda change: (-abs(change.change_ns), change.rank))


class NotJudged(NamedTuple):
    """Holds one reason why assertions of a gate file could not be judged, and those assertions."""

    outcome: Outcome
    message: str
    records: tuple[AssertionRecord, ...]


class Story(NamedTuple):
    """Holds what happened in a session, as facts."""

    steps: Mapping[str, StoryStep]
    """The change of the step by gate file or configuration, if its length in a baseline is known."""
    roots: tuple[StoryRoot, ...]
    """The root causes: first those that explain the length of a step, last those without a failed assertion; within
    each group, the largest first.
    """
    unexplained_reds: tuple[RedAssertion, ...]
    """The failed rows that no root explains, by assertion."""
    not_judged: tuple[NotJudged, ...]
    """Each reason why assertions could not be judged, once."""
    world_sizes: Mapping[str, int | None]
    """The number of ranks by address (gate file or configuration), for all judged addresses."""
    is_warning: bool = False
    """Whether nothing failed, and the story is about assertions that only warn."""

    @property
    def most_changed_step(self) -> StoryStep | None:
        """What happened to the step, of several the one that moved most: where what leads happened, if there is any."""
        return find_most_changed_step(
            self.steps[address] for address in self.leading_addresses if address in self.steps
        )

    @property
    def leading_addresses(self) -> list[str]:
        """Return the addresses of the gate files (``perf/step.nsys.yaml[llama-8b]``) of the leading root; of all that
        failed where there is no root.
        """
        return self.roots[0].gate_addresses if self.roots else self.failed_addresses

    @property
    def reds(self) -> list[RedAssertion]:
        return [*(red for root in self.roots for red in root.reds), *self.unexplained_reds]

    @property
    def rootless_records(self) -> list[AssertionRecord]:
        """The failed assertions of which no row has a root."""
        rooted_identities = {red.record.identity for root in self.roots for red in root.reds}
        return [red.record for red in self.unexplained_reds if red.record.identity not in rooted_identities]

    @property
    def failed_addresses(self) -> list[str]:
        """The addresses with a failed assertion."""
        return sorted({red.record.address for red in self.reds})


def build_story(records: Iterable[AssertionRecord], told_records: Sequence[AssertionRecord] = ()) -> Story:
    """Return what happened in a session with these ``records``. If nothing failed, the story is about the warnings.

    With ``told_records``, the story is about these of the records instead.
    """
    # Workers of xdist finish in any order: the story must not depend on it.
    records = sorted(records, key=lambda record: record.identity)
    # A claim that is not shown is no regression: nothing got worse, and the result says what became of it.
    failed_records = [record for record in records if record.state == Outcome.FAILED and not record.assertion.is_claim]
    warned_records = [
        record for record in records if record.outcome is Outcome.FAILED and record.good and not record.xfailed
    ]
    is_warning = not told_records and not failed_records and bool(warned_records)
    told_records = sort_by_severity(
        sorted(told_records, key=lambda record: record.identity) or failed_records or warned_records
    )
    root_index = _RootIndex(told_records)
    rootless_reds = (RedAssertion(record, root_index.list_rootless_rows(record)) for record in told_records)
    median_step_by_address = {
        step.address: step for record in records if (step := _find_median_step(record)) is not None
    }
    steps = group_by_key(
        (step.address, _choose_steady_step(step, median_step_by_address))
        for told_record in told_records
        if (step := find_story_step(told_record)) is not None
    )
    return Story(
        {
            address: step
            for address, address_steps in steps.items()
            if (step := find_most_changed_step(address_steps)) is not None
        },
        tuple(_select_notable_roots(_build_story_roots(told_records, root_index))),
        tuple(red for red in rootless_reds if red.rows or not select_failed_rows(red.record)),
        tuple(_list_unjudged(records)),
        {record.address: _find_world_size(record) for record in records if not record.assertion.is_claim},
        is_warning=is_warning,
    )


def _find_world_size(record: AssertionRecord) -> int | None:
    """Return how many ranks a record's run has; if unknown, how many were judged; None if none were."""
    return record.key.world if record.key is not None else len({used.rank for used in record.verdict.windows}) or None


def sort_worst_first(records: Iterable[AssertionRecord]) -> list[AssertionRecord]:
    """Return the failed records, then those that deserve a look, then the rest; each group sorted by least headroom."""

    def rate_record(record: AssertionRecord) -> tuple[int, Fraction]:
        headrooms = [row.headroom for row in record.verdict.rows if row.headroom is not None]
        # A record without a headroom is far from failing: 2^62 puts it last.
        return 2 if not record.needs_attention else int(record.good), min(headrooms, default=Fraction(1 << 62))

    return sorted(records, key=rate_record)


def sort_by_severity(records: Iterable[AssertionRecord]) -> list[AssertionRecord]:
    """Return the records worst first, but those that judge the length of a step before all others."""
    return sorted(sort_worst_first(records), key=lambda record: not (record.needs_attention and is_step_time(record)))


def is_step_time(record: AssertionRecord) -> bool:
    """Whether a record judges the length of a step."""
    *aggregates, metric = record.subject.split()
    return metric in STEP_TIMES and SINGLE_STEP_AGGREGATES.issuperset(aggregates)


def measures_kernel_span(record: AssertionRecord) -> bool:
    """Whether a record is of how long the kernels of a step take, from the first to the last, and not of the step
    itself.
    """
    return record.subject.split()[-1] == WINDOW_METRIC and record.verdict.measured_as.endswith(KERNEL_WINDOW_SUFFIX)


# The step


def find_most_changed_step(steps: Iterable[StoryStep]) -> StoryStep | None:
    """Return the step whose length changed most, preferring whole steps to windows and quantiles; None without
    steps.
    """
    # "step" and "decode step" are whole steps; "p90 step" and "window" are not.
    is_whole_step = re.compile(r"(?!p\d).*step").fullmatch
    return min(
        steps,
        key=lambda step: (not is_whole_step(step.noun), -abs(step.share), step.address, -step.before_ns),
        default=None,
    )


def find_story_step(record: AssertionRecord) -> StoryStep | None:
    """Return the change of the step in the windows of an assertion; None if no length in a baseline is known."""
    rows = select_failed_rows(record)
    step = record.verdict.step or _measure_step_change(rows if is_step_time(record) else ())
    baseline_ns, current_ns = step.slowest_ns
    quantile = (
        rows[0].labels.get("quantile", MEDIAN_QUANTILE) if rows and record.verdict.step is None else MEDIAN_QUANTILE
    )
    noun = _find_step_noun(record) if quantile == MEDIAN_QUANTILE else f"{quantile} step"
    noun = f"{record.kind} {noun}" if record.kind and noun.endswith("step") else noun
    if not baseline_ns:
        return None
    story_step = StoryStep(record.address, baseline_ns, current_ns, noun, step.slowest_ranks, step.unlike_counts)
    return _find_step_of_row(record, rows[0], story_step) if rows and is_step_time(record) else story_step


def _find_step_of_row(record: AssertionRecord, row: JudgedRow, step: StoryStep) -> StoryStep:
    """Return the length of the step on the rank of a failed row, if the slowest rank's did not change, or not in the
    row's direction; else ``step``.
    """
    labels = _merge_origin_labels(row)
    rank, is_median = labels.get("rank"), labels.get("quantile", MEDIAN_QUANTILE) == MEDIAN_QUANTILE
    if not row.baseline or row.value is None or not isinstance(rank, int) or not is_median:
        return step
    if step.unlike_counts is not None or _find_world_size(record) == 1:
        return step
    change = row.value - row.baseline
    if not step.is_unchanged and (step.now_ns - step.before_ns) * change > 0:
        return step
    return step._replace(before_ns=round(row.baseline), now_ns=round(row.value), ranks=(rank, rank))


def _find_median_step(record: AssertionRecord) -> StoryStep | None:
    """Return the change of the median step; None if the assertion does not judge its length, or no baseline is
    stored.
    """
    rows = record.verdict.rows if record.subject.split()[-1] in (PERIOD_METRIC, STEP_TIME_METRIC) else ()
    baseline_ns, current_ns = _measure_step_change(
        row for row in rows if _merge_origin_labels(row).get("quantile", MEDIAN_QUANTILE) == MEDIAN_QUANTILE
    ).slowest_ns
    noun = "window" if choose_window_noun(record.verdict.windows) == "window" and _is_of_steps(record) else "step"
    return StoryStep(record.address, baseline_ns, current_ns, noun) if baseline_ns else None


def _is_of_steps(record: AssertionRecord) -> bool:
    """Whether an assertion is judged on steps or parts of them, and not on the whole run."""
    return all(used.window.name != RUN for used in record.verdict.windows)


def _choose_steady_step(step: StoryStep, median_step_by_address: Mapping[str, StoryStep]) -> StoryStep:
    """Return the median step instead of ``step`` if it is unchanged and ``step`` nearly so: a single step need not be
    typical.
    """
    median_step = median_step_by_address.get(step.address)
    return (
        median_step
        if median_step is not None and median_step.is_unchanged and abs(step.share) < NEARLY_UNCHANGED_SHARE
        else step
    )


def _find_step_noun(record: AssertionRecord) -> str:
    """Return the noun for the lengths that an assertion judges: ``step`` for step times, whatever its window is."""
    metric, windows = record.assertion.metric, record.verdict.windows
    if metric == PERIOD_METRIC and any(used.window.name == RUN for used in windows):
        return "period"
    return "step" if metric == STEP_TIME_METRIC else choose_window_noun(windows)


def _measure_step_change(rows: Iterable[JudgedRow]) -> StepChange:
    """Return the lengths of steps by rank, in the baseline and now, as far as these rows contain them."""
    lengths_by_rank = {
        _find_rank_number(row.labels): (round(row.baseline), round(row.value or 0)) for row in rows if row.baseline
    }
    return StepChange(
        {rank: lengths_ns[0] for rank, lengths_ns in lengths_by_rank.items()},
        {rank: lengths_ns[1] for rank, lengths_ns in lengths_by_rank.items()},
    )


def _find_rank_number(labels: Mapping[str, Label]) -> int:
    """Return the rank of a row; 0 for a row without a single rank."""
    rank = labels.get("rank")
    return rank if isinstance(rank, int) else 0


# The roots


class _RootIndex:
    """Finds the root of a failed row.

    It is the row's own root, or the root of a row with the same place and kind in another assertion. For a row that
    waits for a rank, it is what made that rank late.
    """

    def __init__(self, reds: Sequence[AssertionRecord]) -> None:
        self._root_by_place: dict[tuple[object, ...], Change] = {}
        self._changes: dict[str, dict[Change, None]] = {}
        # The first failed assertion is the worst: it comes last here, so that its root overwrites the others.
        for record in reversed(reds):
            for row in select_explained_rows(record):
                self._changes.setdefault(record.address, {}).update(dict.fromkeys(row.root_causes))
                if row.root_causes:
                    self._root_by_place[self._make_key(record, row.labels)] = row.root_causes[0]

    @staticmethod
    def _make_key(record: AssertionRecord, labels: Mapping[str, Label]) -> tuple[object, ...]:
        """Return a key for the row's place and explainer, equal in all assertions; overlap has the explainer of exposed
        time.
        """
        metric = find_metric(record.assertion.metric)
        explainer = metric.parts_path if metric is not None else ""
        return record.address, EXPOSED_EXPLAINER if explainer in EXPOSED_EXPLAINERS else explainer, _make_place(labels)

    def find_root(self, record: AssertionRecord, row: JudgedRow) -> Change | None:
        """Return the root of a failed row; None if it is unknown."""
        labels = _merge_origin_labels(row)
        if not labels:
            return next(
                (explained.root_causes[0] for explained in select_explained_rows(record) if explained.root_causes), None
            )
        return self._root_by_place.get(self._make_key(record, labels)) or self._find_late_change(record, labels)

    def _find_late_change(self, record: AssertionRecord, labels: Mapping[str, Label]) -> Change | None:
        """Return what made the rank late for which a row waits; None if no row shows it."""
        # Use only windows that show the change on the late rank: another window may begin only when that rank arrives.
        same_place = (
            candidate for candidate in record.verdict.causes if _make_place(candidate.labels) == _make_place(labels)
        )
        leading_cause = next((candidate.explanation.leading_cause for candidate in same_place), None)
        late_rank = leading_cause.straggler if leading_cause is not None else None
        changes = self._changes.get(record.address, {})
        late_changes = (candidate for candidate in changes if candidate.rank == late_rank and candidate.change_ns > 0)
        return max(late_changes, key=lambda candidate: (candidate.change_ns, candidate), default=None)

    def group_by_root(self, record: AssertionRecord) -> dict[RootCause, list[JudgedRow]]:
        """Return the failed rows of a record by root. Rows without a root come last, below a root of the same place on
        another rank.
        """
        rooted_rows, rootless_rows = self._split_by_root(record)
        rows_by_root = group_by_key((_drop_stage(change.root), row) for change, row in rooted_rows)
        root_by_place = {
            _make_place_without_rank(row): root for root, rows in reversed(rows_by_root.items()) for row in rows
        }
        for row in rootless_rows:
            if root := root_by_place.get(_make_place_without_rank(row)):
                rows_by_root[root].append(row)
        return rows_by_root

    def list_rootless_rows(self, record: AssertionRecord) -> tuple[JudgedRow, ...]:
        """Return the failed rows that have no root, and whose place has no root on any other rank either."""
        rooted_rows, rootless_rows = self._split_by_root(record)
        rooted_places = {_make_place_without_rank(row) for _, row in rooted_rows}
        return tuple(row for row in rootless_rows if _make_place_without_rank(row) not in rooted_places)

    def _split_by_root(self, record: AssertionRecord) -> tuple[list[tuple[Change, JudgedRow]], list[JudgedRow]]:
        """Return the failed rows with a root, as pairs of root and row, and the failed rows without one."""
        pairs = [(self.find_root(record, row), row) for row in select_failed_rows(record)]
        return [(change, row) for change, row in pairs if change], [row for change, row in pairs if not change]


def select_failed_rows(record: AssertionRecord) -> list[JudgedRow]:
    """Return the rows that make an assertion failed, accepted or improved, worst first."""
    rows = record.verdict.rows if record.outcome in CHANGED_OUTCOMES else ()
    return [row for row in rows if row.outcome is record.outcome and not row.waived]


def select_explained_rows(record: AssertionRecord) -> list[RowExplanation]:
    """Return the failed rows that are explained, in their order."""
    failed_places = {_make_place(_merge_origin_labels(row)) for row in select_failed_rows(record)}
    return [
        explained
        for explained in record.verdict.causes
        if _make_place({}) in failed_places or _make_place(explained.labels) in failed_places
    ]


def _make_place(labels: Mapping[str, Label]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((dimension, str(label)) for dimension, label in labels.items()))


def _make_place_without_rank(row: JudgedRow) -> tuple[tuple[str, str], ...]:
    return _make_place(
        {dimension: label for dimension, label in _merge_origin_labels(row).items() if dimension != "rank"}
    )


def _merge_origin_labels(row: JudgedRow) -> dict[str, Label]:
    """Return the labels of the failed row that was explained; empty for a step time, which one rank explains."""
    return {**row.origin, **row.labels}


def _build_story_roots(reds: Sequence[AssertionRecord], root_index: _RootIndex) -> Iterator[StoryRoot]:
    reds_by_root = group_by_key(
        (root, RedAssertion(record, tuple(rows)))
        for record in reds
        for root, rows in root_index.group_by_root(record).items()
    )
    explained_by_root = group_by_key(
        (_drop_stage(change.root), (record.address, row, change))
        for record in reds
        for row in select_explained_rows(record)
        for change in row.root_causes
    )
    for root, explained_changes in explained_by_root.items():
        alike_changes = (
            (address, alike_change)
            for address, row, _ in explained_changes
            for alike_change in row.alike_on_all_ranks
            if _drop_stage(alike_change.root) == root
        )
        changes = _sum_changes(chain(((address, change) for address, _, change in explained_changes), alike_changes))
        waiting_rows = [
            row
            for address, row, change in explained_changes
            if (address, row.labels.get("rank", change.rank)) not in changes
        ]
        ranks = sorted({_find_rank_number(row.labels) for row in waiting_rows})
        stages = sorted({change.root.stage for _, _, change in explained_changes} - {"", NO_STAGE})
        yield StoryRoot(
            root,
            tuple(stages),
            changes,
            tuple(reds_by_root.get(root, ())),
            tuple(ranks),
            _find_waiting_kernel(waiting_rows),
            _find_place(explained_changes),
        )


def _find_place(explained_changes: Iterable[tuple[str, RowExplanation, Change]]) -> KernelPlace | None:
    """Return the place that all rows name for the changes of one root; None where they name several, or none."""
    places = {row.places.get(change.root) for _, row, change in explained_changes}
    return places.pop() if len(places) == 1 else None


def _drop_stage(root: RootCause) -> RootCause:
    return root._replace(stage="")


def _sum_changes(addressed_changes: Iterable[tuple[str, Change]]) -> dict[tuple[str, int], Change]:
    """Return the sum of the changes over stages, by address and rank."""
    largest: dict[tuple[str, int, str], Change] = {}
    for address, change in addressed_changes:
        key = address, change.rank, change.root.stage
        # Several rows show the same change, each only within its own windows: the largest is the whole change.
        largest[key] = max(
            largest.get(key, change), change, key=lambda candidate: (abs(candidate.change_ns), candidate)
        )
    total_by_rank: dict[tuple[str, int], Change] = {}
    for (address, rank, _), change in sorted(largest.items()):
        known_change = total_by_rank.get((address, rank))
        total_by_rank[address, rank] = (
            change._replace(root=_drop_stage(change.root))
            if known_change is None
            else _add_changes(known_change, change)
        )
    return total_by_rank


def _add_changes(change: Change, other_change: Change) -> Change:
    baseline_ns, current_ns = change.baseline_ns + other_change.baseline_ns, change.current_ns + other_change.current_ns
    return change._replace(
        baseline_ns=baseline_ns,
        current_ns=current_ns,
        baseline_count=change.baseline_count + other_change.baseline_count,
        current_count=change.current_count + other_change.current_count,
    )


def _find_waiting_kernel(rows: Sequence[RowExplanation]) -> str:
    """Return the kernel in which most of these rows wait; empty if unknown."""
    names = [cause.root.name for row in rows for cause in row.explanation.causes[:1] if cause.root.name]
    # Ties are broken by name, so that the output is stable.
    return max(sorted(set(names)), key=names.count, default="")


def _select_notable_roots(roots: Iterable[StoryRoot]) -> Iterator[StoryRoot]:
    """Yield the roots to show, largest first; those that explain a step's length lead, those without a failed assertion
    come last.

    Small roots without a failed assertion are left out.
    """
    sorted_roots = sorted(
        roots, key=lambda root: (not root.explains_step, not root.reds, -abs(root.largest.change_ns), root.root)
    )
    # A root with a failed assertion is shown however small it is.
    min_ns = max((abs(root.largest.change_ns) for root in sorted_roots), default=0) * MIN_ROOT_SHARE
    return (root for root in sorted_roots if root.reds or abs(root.largest.change_ns) >= min_ns)


# What was not judged


def _list_unjudged(records: Sequence[AssertionRecord]) -> Iterator[NotJudged]:
    """Yield each reason why assertions of a gate file could not be judged, once for all assertions that share it."""
    for outcome in UNJUDGED_OUTCOMES:
        records_by_reason = group_by_key(
            ((record.file, _normalize_message(record)), record) for record in records if record.state == outcome
        )
        for records_alike in records_by_reason.values():
            yield NotJudged(outcome, records_alike[0].message, tuple(records_alike))


def _normalize_message(record: AssertionRecord) -> str:
    """Return the message without the names of trace and configuration, so that equal problems are equal."""
    message = record.message
    for name in filter(None, (*record.traces, record.configuration)):
        message = message.replace(name, "")
    return message
