"""Compares two runs by the gate files that judge them: what moved, what appeared, what vanished.

``verdicts.evaluate`` decides whether a row is worse, with the base in place of a stored baseline. If the runs are not
comparable, their values are shown side by side without a verdict. Without a gate file the built-in assertions judge.
"""

from __future__ import annotations

import contextlib
import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.captures.cache import CaptureCache, CaptureFiles
from pytest_nsys.analysis.captures.captures import Captures, check_one_step_kind
from pytest_nsys.analysis.fact_bounds import Bounds
from pytest_nsys.analysis.metrics.registry import MEASURED_WORD, METRICS, Metric, make_measured_metric
from pytest_nsys.analysis.metrics.stream_sharing import (
    ALL_STREAM_METRICS,
    OWN_STREAM_METRICS,
    WallMetrics,
    choose_wall_metrics,
    measure_sharing,
)
from pytest_nsys.analysis.metrics.structure import ContentItem, ContentKind, count_contents
from pytest_nsys.analysis.metrics.table import NothingSelected, make_label_key, selects_unstaged
from pytest_nsys.analysis.steps.convention_fit import GENERIC, ConventionChoice
from pytest_nsys.analysis.windows.measurements import OutsideMeasurements
from pytest_nsys.analysis.windows.run_conditions import RunKey
from pytest_nsys.analysis.windows.window_selection import MEDIAN, RUN, UsedWindow, WindowSpec
from pytest_nsys.core.conventions import Anchor, Convention
from pytest_nsys.core.errors import NothingMeasured, NsysError, UsageMistake, prefix_errors
from pytest_nsys.core.exact import distance, median, simplify_fraction
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import KernelsMode, Note, Span, Value
from pytest_nsys.core.notebook_display import render_object_as_text
from pytest_nsys.core.text_format import format_count, sanitize_line, shorten_paths
from pytest_nsys.gates import gate_file
from pytest_nsys.gates.assertion_names import clean_name
from pytest_nsys.gates.comparability import find_convention_difference, find_differences
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.hiccups import leave_out_hiccup
from pytest_nsys.gates.judgement import RowKey, fold_table
from pytest_nsys.gates.limits import SentenceMistake
from pytest_nsys.gates.model import (
    Assertion,
    BaselineLimit,
    Comparator,
    Difference,
    GateFile,
    JudgedRow,
    Location,
    Outcome,
    Requirement,
    Severities,
    Severity,
    Verdict,
    build_requests,
    resolve_window_spec,
)
from pytest_nsys.gates.sentences import parse_sentence
from pytest_nsys.traces.trace_files import iterate_duplicate_traces
from pytest_nsys.verdicts.evaluate import GateContext, evaluate, judge_without_baseline, resolve_gate_convention
from pytest_nsys.verdicts.kernel_changes import KernelChanges, compare_kernels
from pytest_nsys.verdicts.references import OtherRun
from pytest_nsys.verdicts.row_records import RowRecord, make_row_records


class Result(enum.StrEnum):
    """The overall result of a comparison. A failed row outweighs undecided ones."""

    NOT_WORSE = "nothing worse"
    WORSE = "worse"
    NOT_SHOWN = "not as claimed"
    INCOMPARABLE = "incomparable"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Side:
    """Describes one of the two runs that are compared."""

    paths: tuple[str, ...]  # as they were given, one for each capture
    key: RunKey  # the circumstances of the run
    ranks: tuple[int, ...]
    profilers: tuple[str, ...]

    @property
    def captures(self) -> int:
        return len(self.paths)


NOT_MEASURED = "not measured"
"""How a constant limit ends on base where nothing can be measured there."""

VerdictRow = tuple[Verdict, JudgedRow]
"""Pairs a row that has the values of both runs with the verdict that it belongs to."""


def counts_as_worse(assertion: Assertion) -> bool:
    """Return whether a row outside the limit makes the comparison worse."""
    return assertion.severity.failed is Severity.FAIL and assertion.xfail is None


def has_changed(row: JudgedRow) -> bool:
    """Return whether head has another value than base."""
    return row.value != row.baseline


def has_moved(row: JudgedRow) -> bool:
    """Return whether a row exceeds its tolerance, is missing on one side or, if nothing was judged, has changed."""
    if row.outcome is Outcome.INCOMPARABLE:
        return has_changed(row)
    return row.outcome is not Outcome.PASSED or row.waived


class OneSidedItem(NamedTuple):
    """Describes a name that only one of the two runs has."""

    kind: ContentKind
    name: str
    ranks: tuple[int, ...]
    all_ranks: bool
    launches: Value  # in the windows of ``ranks``, the median over the captures that have the name
    captures: int  # how many captures have the name


@dataclass(frozen=True)
class Comparison:
    """Holds two runs' comparison: the verdicts of head with base in place of a baseline, and what the verdicts do not
    say.
    """

    base: Side
    head: Side
    verdicts: tuple[Verdict, ...]
    """Holds the verdicts of the assertions on head, in the order of the gate files."""
    not_held: tuple[str, ...]
    """Lists the assertions that are not compared, as another source of limits judges them."""
    circumstances: Mapping[Difference, bool]
    """Holds all circumstances that differ, each with whether it must agree."""
    windows: Mapping[str, tuple[UsedWindow, ...]]
    """Lists the windows of base, by how they were measured."""
    notes: tuple[tuple[str, Note], ...]
    """Holds the notes on either run that belong to no verdict, each with the side."""
    compared_window: str
    """Names the windows that ``appeared``, ``vanished`` and ``kernels`` are about."""
    appeared: tuple[OneSidedItem, ...]
    """Lists the names that only head has."""
    vanished: tuple[OneSidedItem, ...]
    """Lists the names that only base has."""
    kernels: KernelChanges
    """Lists the kernels of both runs whose time differs."""

    __str__ = render_object_as_text  # what print() says

    def __repr__(self) -> str:  # a notebook shows it
        return f"<{type(self).__name__} {self.result}: {len(self.worse)} of {len(self.rows)} rows worse>"

    def to_records(self) -> list[RowRecord]:
        """Return the rows as plain dicts, which ``pandas.DataFrame`` and ``polars.DataFrame`` take."""
        return make_row_records(self.rows)

    @cached_property
    def rows(self) -> tuple[VerdictRow, ...]:
        """Return all rows that may not be worse than base's, each with its verdict, the worst first."""
        held_verdicts = (
            verdict
            for verdict in self.verdicts
            if verdict.assertion.reads_stored_baseline and not verdict.assertion.is_claim
        )
        return tuple(
            sorted(((verdict, row) for verdict in held_verdicts for row in verdict.rows), key=_make_severity_key)
        )

    @cached_property
    def moved(self) -> tuple[VerdictRow, ...]:
        return tuple(verdict_row for verdict_row in self.rows if has_moved(verdict_row[1]))

    @property
    def unmoved(self) -> tuple[VerdictRow, ...]:
        return tuple(verdict_row for verdict_row in self.rows if not has_moved(verdict_row[1]))

    @cached_property
    def worse(self) -> tuple[VerdictRow, ...]:
        """Return the rows that make head worse than base."""
        failed_rows = (verdict_row for verdict_row in self.rows if verdict_row[1].outcome is Outcome.FAILED)
        return tuple(verdict_row for verdict_row in failed_rows if counts_as_worse(verdict_row[0].assertion))

    @property
    def limits_crossed(self) -> tuple[Verdict, ...]:
        """Return the verdicts of constant limits that head breaks."""
        return tuple(v for v in self.verdicts if v.outcome is Outcome.FAILED and not v.assertion.needs_baseline)

    @property
    def claims(self) -> tuple[Verdict, ...]:
        """Return the verdicts of the claims that head is better than base."""
        return tuple(verdict for verdict in self.verdicts if verdict.assertion.is_claim)

    @cached_property
    def incomparable(self) -> tuple[Verdict, ...]:
        """Return the verdicts of assertions that could not be compared with base."""
        return tuple(verdict for verdict in self.verdicts if verdict.outcome is Outcome.INCOMPARABLE)

    @cached_property
    def side_by_side(self) -> bool:
        """Whether nothing was compared with base, so that values stand side by side without a verdict."""
        held_verdicts = (verdict for verdict in self.verdicts if verdict.assertion.needs_baseline and verdict.rows)
        return bool(self.incomparable) and all(verdict.outcome is Outcome.INCOMPARABLE for verdict in held_verdicts)

    @cached_property
    def result(self) -> Result:
        """Return the overall result of all verdicts."""
        if self.worse or any(not verdict.good and verdict.assertion.xfail is None for verdict in self.limits_crossed):
            return Result.WORSE
        if any(verdict.outcome is Outcome.FAILED for verdict in self.claims):
            return Result.NOT_SHOWN
        if self.incomparable:
            return Result.INCOMPARABLE
        has_undecided = any(verdict.outcome in UNDECIDED and not verdict.good for verdict in self.verdicts)
        return Result.UNDECIDED if has_undecided or not (self.rows or self.claims) else Result.NOT_WORSE

    @property
    def fewest_captures(self) -> int:
        return min(self.base.captures, self.head.captures)


def compare_runs(pairs: Sequence[OtherRun], base: Sequence[str], head: Sequence[str]) -> Comparison:
    """Judge head by each gate file, with base in place of a stored baseline. ``base`` and ``head`` are the captures of
    each side as they were given.

    Raises TraceError where a side cannot be judged.
    """
    verdicts: list[Verdict] = []
    not_held: list[str] = []
    for pair in pairs:
        name, context = pair.gate.address, GateContext(pair.captures, pair.gate, pair)
        for side, captures in (("base", pair.base_captures), ("head", pair.captures)):
            with prefix_errors(side):  # before measuring, so that an error names the side
                captures.build_key(pair.gate.run)
        for spec in _group_metrics_by_window(pair):
            check_one_step_kind({"base has": pair.base_captures.runs, "head has": pair.captures.runs}, spec)
        for assertion in pair.gate.assertions:
            if assertion.needs_baseline and not assertion.reads_stored_baseline:
                not_held.append(f"{name}: {assertion.full_name}")
                continue
            with prefix_errors("head"):  # errors of base name it already
                context.measure(context.resolve(assertion))
            verdict = evaluate(assertion, context)
            if assertion.reads_stored_baseline:
                verdicts.append(replace(verdict, rows=tuple(_list_judged_rows(verdict, pair))))
            else:
                verdicts.append(replace(verdict, on_base=_find_base_outcome(assertion, pair)))
    spec, cautions = _find_usual_window(pairs[0]), [caution for verdict in verdicts for caution in verdict.cautions]
    base_contents, head_contents = (
        [count_contents(run, spec) for run in side.runs] for side in (pairs[0].base_captures, pairs[0].captures)
    )
    kernels = KernelChanges()
    with contextlib.suppress(NsysError):  # measuring the windows reports the error
        kernels = compare_kernels(pairs[0].base_captures, pairs[0].captures, spec)
    return Comparison(
        base=_make_side(base, pairs[0].base_captures, pairs[0].gate),
        head=_make_side(head, pairs[0].captures, pairs[0].gate),
        verdicts=tuple(verdicts),
        not_held=tuple(not_held),
        circumstances=_collect_differences(pairs),
        windows={
            str(spec): pair.base_captures.list_windows(spec)
            for pair in pairs
            for spec in _group_metrics_by_window(pair)
        },
        notes=tuple(
            dict.fromkeys((*_list_side_notes(pairs), *(("head", Note(caution, True)) for caution in cautions)))
        ),
        compared_window=str(spec),
        appeared=tuple(_list_one_sided(head_contents, base_contents)),
        vanished=tuple(_list_one_sided(base_contents, head_contents)),
        kernels=kernels,
    )


def _find_base_outcome(assertion: Assertion, pair: OtherRun) -> str:
    try:
        with prefix_errors("base"):
            return str(judge_without_baseline(assertion, GateContext(pair.base_captures, pair.gate)).outcome)
    except NothingMeasured:
        return NOT_MEASURED


# Rows


def _list_judged_rows(verdict: Verdict, pair: OtherRun) -> Sequence[JudgedRow]:
    """Return the judged rows; where an assertion could not be judged at all, the values of both runs as they are."""
    assertion, outcome = verdict.assertion, verdict.outcome
    if verdict.rows or outcome not in (Outcome.INCOMPARABLE, Outcome.NO_DATA):
        return verdict.rows
    base_values, head_values = (
        _fold_rows(assertion, GateContext(side, pair.gate)) for side in (pair.base_captures, pair.captures)
    )
    keys = dict.fromkeys((*head_values, *base_values))
    return [JudgedRow(dict(key), head_values.get(key), None, outcome, baseline=base_values.get(key)) for key in keys]


def _fold_rows(assertion: Assertion, side: GateContext) -> Mapping[RowKey, Value]:
    try:
        return fold_table(side.measure(assertion), assertion)
    except NothingSelected:
        return {}


UNDECIDED = (Outcome.NO_DATA, Outcome.INCONCLUSIVE, Outcome.ERROR)
"""Outcomes that leave open whether the run is worse; *inconclusive* passes unless the gate file says that it fails."""

OUTCOME_ORDER = (
    Outcome.FAILED,
    Outcome.NO_DATA,
    Outcome.INCONCLUSIVE,
    Outcome.INCOMPARABLE,
    Outcome.IMPROVED,
    Outcome.PASSED,
)
"""Lists outcomes from worst to best, as rows are sorted."""


def _make_severity_key(verdict_row: VerdictRow) -> tuple[object, ...]:
    """Return a sort key: first rows that make head worse, then undecided rows, worse rows that are let pass, and better
    rows.
    """
    verdict, row = verdict_row
    assertion = verdict.assertion
    let_pass = row.waived or (row.outcome is Outcome.FAILED and not counts_as_worse(assertion))
    # Between undecided and better rows: it is let pass on purpose, but it is worse.
    place = OUTCOME_ORDER.index(Outcome.IMPROVED) - 0.5 if let_pass else OUTCOME_ORDER.index(row.outcome)
    names = (verdict.address, assertion.name, [(d, *make_label_key(label)) for d, label in row.labels.items()])
    return (place, -_measure_badness(row, assertion.requirement.comparator), *names)


def _measure_badness(row: JudgedRow, comparator: Comparator | None) -> Fraction:
    """Return a measure of badness that compares rows of all metrics: the change divided by the tolerated change."""
    if row.value is None or row.baseline is None:
        return Fraction(0)
    if (tolerance_multiples := row.times_tolerance) is not None:
        return tolerance_multiples
    if row.margin is not None:  # without a tolerance any change fails
        return -Fraction(row.margin) * _LARGE_FACTOR
    relative_change = distance(row.value, row.baseline) / max(abs(Fraction(row.baseline)), Fraction(1, _LARGE_FACTOR))
    rises = row.value > row.baseline
    is_better = rises if comparator is Comparator.GE else not rises
    return -relative_change if is_better and comparator is not Comparator.EQ else relative_change


_LARGE_FACTOR = 1_000_000
"""Sorts a change of a row that may not change above every change that is a multiple of a tolerance."""


# What both sides are


def _make_side(paths: Sequence[str], captures: Captures, gate: GateFile) -> Side:
    return Side(
        paths=(" ".join(paths),) if len(captures.runs) == 1 else tuple(paths),
        key=captures.build_key(gate.run),
        ranks=tuple(rank.number for rank in captures.runs[0].ranks),
        profilers=captures.list_profilers(),
    )


def _group_metrics_by_window(pair: OtherRun) -> dict[WindowSpec, list[str]]:
    """Return the windows in which assertions are compared with base, each with the metrics that are measured in it."""
    held_assertions = (assertion for assertion in pair.gate.assertions if assertion.reads_stored_baseline)
    return group_by_key(
        (resolve_window_spec(pair.base_captures.convention, assertion), assertion.metric)
        for assertion in held_assertions
    )


def _list_side_notes(pairs: Sequence[OtherRun]) -> Iterator[tuple[str, Note]]:
    """Yield notes on either run, as (side, note), without those that head's verdicts hold."""
    first_pair, found_convention = pairs[0], pairs[0].gate.found_convention
    if found_convention:
        yield (
            "base",
            Note(
                found_convention.describe(
                    first_pair.gate.resolved_convention, is_anchored=_has_anchors(first_pair.base_captures)
                )
            ),
        )
    for pair in pairs:
        for spec, metrics in _group_metrics_by_window(pair).items():
            held_metrics = map(pair.base_captures.resolve_metric, dict.fromkeys(metrics))
            yield from (("base", note) for note in pair.base_captures.list_notes(spec, *held_metrics))
    for side, this_side, other_side in (
        ("base", first_pair.base_captures, first_pair.captures),
        ("head", first_pair.captures, first_pair.base_captures),
    ):
        for name in (
            sorted(this_side.measurement_names - other_side.measurement_names) if other_side.measurement_files else ()
        ):
            yield side, Note(f"{MEASURED_WORD} {name}: the other side has none of it", True)
    if same_paths := _list_same_files(first_pair):
        names = ", ".join(shorten_paths(str(path)) for path in same_paths)
        duplicates_text = (
            f"{len(same_paths)} of {format_count(len(first_pair.captures.paths), 'trace')} are those of base"
        )
        yield "head", Note(f"{duplicates_text}, and there is nothing to compare: {names}", True)


def _has_anchors(captures: Captures) -> bool:
    return any(run.find_anchors(rank) for run in captures.runs for rank in run.ranks)


def _list_same_files(pair: OtherRun) -> Sequence[Path]:
    """Return the traces of head whose capture is also one of base's, as the same file or in other bytes."""
    copies = [
        duplicate.second for duplicate in iterate_duplicate_traces([pair.base_captures.paths, pair.captures.paths])
    ]
    return [*dict.fromkeys([*copies, *pair.list_same_files()])]


def _collect_differences(pairs: Sequence[OtherRun]) -> dict[Difference, bool]:
    """Return all circumstances that differ, each with whether it must agree."""
    must_agree: dict[Difference, bool] = {}
    for pair in pairs:
        head_circumstances, base_circumstances = (
            pair.captures.build_circumstances(pair.gate.run),
            pair.base_captures.build_circumstances(pair.gate.run),
        )
        comparable_on = pair.gate.comparable_on
        for difference in (
            *find_convention_difference(pair.gate),
            *find_differences(head_circumstances, base_circumstances),
        ):
            must_agree[difference] = (
                must_agree.get(difference, False) or comparable_on is None or difference.name in comparable_on
            )
    return must_agree


# What only one side has


def _find_usual_window(pair: OtherRun) -> WindowSpec:
    """Return the window in which most assertions of a gate file are compared with base; of equally frequent ones the
    first.
    """
    gate, captures = pair.gate, pair.captures
    trace_assertions = [assertion for assertion in gate.assertions if assertion.outside_metric is None]
    held_assertions = [assertion for assertion in trace_assertions if assertion.reads_stored_baseline]
    specs = Counter(
        resolve_window_spec(captures.convention, assertion) for assertion in held_assertions or trace_assertions
    )
    return specs.most_common(1)[0][0] if specs else captures.make_spec(gate.window, gate.span, gate.kernels)


def _list_one_sided(
    own_contents: Sequence[Mapping[ContentItem, int]], other_contents: Sequence[Mapping[ContentItem, int]]
) -> Iterator[OneSidedItem]:
    """Yield the names, by kind, that some capture of one run has and no capture of the other run.

    For a rank that the other run lacks, only the rank is yielded, not what it ran.
    """
    other_items = {item for capture in other_contents for item in capture}
    all_ranks = {item.rank for capture in own_contents for item in capture}
    missing_ranks = all_ranks - {item.rank for item in other_items}
    ranks_by_name: dict[tuple[ContentKind, str], set[int]] = {}
    for item in {item for capture in own_contents for item in capture} - other_items:
        if item.kind is ContentKind.RANK or item.rank not in missing_ranks:
            ranks_by_name.setdefault((item.kind, item.name), set()).add(item.rank)
    kind_order = [*ContentKind]
    for kind, name in sorted(
        ranks_by_name, key=lambda key: (kind_order.index(key[0]), min(ranks_by_name[key]), key[1])
    ):
        ranks = ranks_by_name[kind, name]
        counts = [sum(capture.get(ContentItem(kind, name, rank), 0) for rank in ranks) for capture in own_contents]
        nonzero_counts = [count for count in counts if count]
        launches = simplify_fraction(Fraction(median(nonzero_counts)))
        yield OneSidedItem(
            kind, name, tuple(sorted(ranks)), ranks == all_ranks - missing_ranks, launches, len(nonzero_counts)
        )


BUILT_IN_PATH = Path(gate_file.__file__).with_name("default.nsys.yaml")
BUILT_IN_GATE = "built-in gate"
"""Takes the place of a gate file's name for the built-in assertions."""


CLAIMS = "claims"
"""Takes the place of a gate file's name for claims."""


def make_claims_gate(sentences: Sequence[str], gate: GateFile) -> GateFile:
    """Return the claims that head is better than base, with the settings of the gate file that judges beside them.

    Raises UsageMistake for a sentence that is no claim.
    """
    path, claims = Path(CLAIMS), list[Assertion]()
    for line, sentence in enumerate(sentences, 1):
        try:
            claim = parse_sentence(sentence, gate, Location(path, line, 1), allows_claims=True)
        except SentenceMistake as mistake:
            shown_sentence = sanitize_line(sentence, 200)
            raise UsageMistake(f"--claim '{shown_sentence}', character {mistake.offset + 1}: {mistake}") from None
        if not claim.is_claim:
            shown_sentence = sanitize_line(sentence, 200)
            raise UsageMistake(
                f"--claim '{shown_sentence}' claims no change to the better, as in 'step time at least 3% below "
                "baseline': write it into a gate file, which --gate names"
            )
        if not claim.reads_stored_baseline:
            shown_limit = sanitize_line(claim.requirement.text, 200)
            raise UsageMistake(f"--claim '{shown_limit}': here head is compared with base: write baseline")
        name = clean_name(sentence)
        claims.append(replace(claim, name=name, full_name=name, sentence=name))
    if len({claim.sentence for claim in claims}) < len(claims):
        raise UsageMistake("a claim is given twice")
    return replace(gate, path=path, assertions=tuple(claims), configuration="", configuration_names=(), matrix=())


@dataclass(frozen=True)
class TwoRuns:
    """Holds the captures of base and head as given on the command line, and the files of measurements that belong to
    each.
    """

    cache: CaptureCache
    base: Sequence[str]
    head: Sequence[str]
    measurements: tuple[CaptureFiles, CaptureFiles] = ((), ())  # of base, of head
    anchor: Anchor | None = None  # of ``--anchor``

    def open_pair(self, gate: GateFile) -> OtherRun:
        """Open both runs under the convention of a gate file, or under that of base where the file names none; an error
        names its side.

        Raises what opening the captures raises.
        """
        if gate.convention is None and not (self.base or self.head):  # measurements without traces need no convention
            gate = replace(gate, convention=GENERIC)
        gate = resolve_gate_convention(
            gate, partial(self._fit_convention, "head"), partial(self._fit_convention, "base")
        )
        base, head = (self._open_side(side, gate) for side in ("base", "head"))
        return OtherRun(head, gate, base, "base", allows_shared_files=True)

    def _open_side(self, side: str, gate: GateFile) -> Captures:
        measurement_files = self.measurements[side == "head"]
        with prefix_errors(side):
            convention, requests = gate.resolved_convention, build_requests(gate)
            captures = self.cache.open_captures(
                getattr(self, side), Path(), convention, gate.workload, requests, measurement_files
            )
            return leave_out_hiccup(captures, gate)

    def _fit_convention(self, side: str, known_conventions: Sequence[Convention] = ()) -> ConventionChoice:
        with prefix_errors(side):
            return self.cache.choose_convention(getattr(self, side), Path(), self.anchor, known_conventions)

    def make_builtin_gate(
        self,
        convention: Convention | None,
        window: str | None = None,
        span: Span | None = None,
        kernels: KernelsMode | None = None,
    ) -> GateFile:
        """Return the built-in assertions under one window, plus one assertion for each name that both runs measured.

        ``window`` None means the median window, or the whole run if the convention has to be found and no range
        repeats. Raises TraceError.
        """
        if window is None:
            window = MEDIAN if convention is not None or self._fit_convention("base").has_anchor else RUN
        name = Path(BUILT_IN_GATE)
        built_in = load_gate_file(BUILT_IN_PATH, display=name)
        trace_assertions = built_in.assertions if self.base or self.head else ()
        assertions = tuple(replace(a, window=window, span=span, kernels=kernels) for a in trace_assertions)
        # Given traces are compared as they are: what they lack is a warning, as in every command.
        quality = Bounds(missing_ranks=None, anchors=None)
        gate = GateFile(
            *(name, assertions, convention),
            quality=quality,
            tolerance=built_in.tolerance,
            window=window,
            span=span,
            kernels=kernels,
        )
        if assertions:
            unused_metrics = (
                OWN_STREAM_METRICS if self._select_wall_metrics(gate) == ALL_STREAM_METRICS else ALL_STREAM_METRICS
            )
            assertions = tuple(
                assertion
                for assertion in assertions
                if assertion.metric not in unused_metrics
                and not (selects_unstaged(assertion.where) and self._has_no_stages(gate))
            )
            gate = replace(gate, assertions=assertions)
        if not all(self.measurements):
            return gate
        base_measurements, head_measurements = (OutsideMeasurements(files[0]) for files in self.measurements)
        measured_assertions = (
            _make_tolerance_assertion(make_measured_metric(name), head_measurements.find_kind(name).better, built_in)
            for name in head_measurements.names
            if name in base_measurements.names
        )
        return replace(gate, assertions=(*assertions, *measured_assertions))

    def _has_no_stages(self, gate: GateFile) -> bool:
        """Return whether no kernel of either side has a stage, so that the assertions of every stage hold them all."""
        with contextlib.suppress(NsysError):  # judging reports the error
            pair = self.open_pair(gate)
            spec = pair.captures.make_spec(gate.window, gate.span, gate.kernels)
            return all(
                side.measure_rows(METRICS["launches"], spec).counts_unstaged
                for side in (pair.base_captures, pair.captures)
            )
        return False

    def _select_wall_metrics(self, gate: GateFile) -> WallMetrics:
        """Return the metrics of a rank's whole communication that fit both runs."""
        with contextlib.suppress(NsysError):  # judging reports the error
            pair = self.open_pair(gate)
            spec = pair.captures.make_spec(gate.window, gate.span, gate.kernels)
            sides = (pair.base_captures, pair.captures)
            return choose_wall_metrics(
                *(measure_sharing(w for run in side.runs for w in run.load_windows(spec)) for side in sides)
            )
        return OWN_STREAM_METRICS


def _make_tolerance_assertion(metric: Metric, better: str | None, built_in: GateFile) -> Assertion:
    """Return an assertion that compares a measurement of head with that of base.

    If neither higher nor lower is better, a change is shown but does not make head worse.
    """
    comparator, text = {
        "lower": (Comparator.LE, "below baseline plus tolerance"),
        "higher": (Comparator.GE, "above baseline minus tolerance"),
    }.get(better or "", (None, "within tolerance of baseline"))
    require = Requirement(comparator, BaselineLimit(built_in.tolerance), text)
    severity = Severities(Severity.FAIL if better else Severity.WARN)
    names, location = (metric.name, metric.name, f"{metric.name} {text}"), Location(Path(BUILT_IN_GATE), 1, 1)
    return Assertion(*names, location, metric.name, require, severity=severity, outside_metric=metric)
