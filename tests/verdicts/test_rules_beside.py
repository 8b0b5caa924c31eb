"""The rule beside a pipeline's score, the circumstances that are compared, and the values that a metric cannot have."""

import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_nsys.analysis.captures import captures as evaluation
from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.structure import ContentItem, ContentKind, SharedStream
from pytest_nsys.analysis.metrics.table import MetricTable
from pytest_nsys.analysis.windows.run_conditions import RunKey, build_run_key
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.model import KernelsMode, Label, Row, Setup, Span, Value
from pytest_nsys.gates.comparability import find_differences, format_circumstance
from pytest_nsys.gates.judgement import (
    BadRuns,
    Judgement,
    PastRun,
    apply_pipeline_rule,
    is_limit_reached,
    summarize_rows,
)
from pytest_nsys.gates.limits import describe_impossible_value
from pytest_nsys.gates.model import (
    Assertion,
    Comparator,
    Constant,
    JudgedRow,
    Location,
    Outcome,
    Requirement,
    build_limit_target,
)
from pytest_nsys.stored.baselines.baseline_file import Baseline, SeriesId, StoredSeries
from pytest_nsys.stored.baselines.row_changes import list_row_changes
from pytest_nsys.stored.baselines.store import BaselineStore, find_orphans
from pytest_nsys.tools import git
from pytest_nsys.verdicts.comparison import OneSidedItem, TwoRuns, _list_one_sided, _measure_badness
from pytest_nsys.verdicts.evaluate import GateContext, _describe_earlier_runs, _format_pipeline_message, evaluate
from pytest_nsys.verdicts.references import OtherRun
from pytest_nsys.verdicts.refresh import GateBaselineRefresh, Refusal, WrittenBaseline
from pytest_nsys.verdicts.refresh_modes import RefreshMode
from pytest_nsys.verdicts.stored_baseline import StoredBaseline
from pytest_nsys.verdicts.structure_diff import _describe_shared_stream
from tests.support.gate_files import loaded
from tests.support.gates import write_trace

KEY = (("rank", 0),)


def ruled(serialization: Value | None, outcome: Outcome = Outcome.PASSED, value: Value | None = 1) -> Judgement:
    row = JudgedRow({"rank": 0}, value, Fraction(1, 2), outcome, margin=Fraction(1, 4))
    return apply_pipeline_rule(summarize_rows([row]), {} if serialization is None else {KEY: serialization})


@pytest.mark.parametrize(
    ("serialization", "outcome", "margin"),
    [
        (Fraction(1, 10), Outcome.PASSED, Fraction(1, 4)),
        (Fraction(2, 5), Outcome.PASSED, Fraction(1, 10)),
        (Fraction(1, 2), Outcome.FAILED, 0),  # halfway is not nearer
        (Fraction(3, 5), Outcome.FAILED, Fraction(-1, 10)),
    ],
)
def test_a_row_is_held_to_the_rule_beside_its_limit(serialization: Value, outcome: Outcome, margin: Value) -> None:
    found = ruled(serialization)
    assert (found.outcome, found.rows[0].margin) == (outcome, margin)
    assert ruled(serialization, Outcome.FAILED).outcome is Outcome.FAILED


def test_a_row_whose_stages_are_not_known_is_no_data() -> None:
    assert ruled(None).outcome is Outcome.NO_DATA
    lost = ruled(Fraction(3, 5), Outcome.NO_DATA, None)
    assert (lost.outcome, lost.rows[0].outcome) == (Outcome.NO_DATA, Outcome.NO_DATA)
    nothing = Judgement(Outcome.PASSED)
    assert apply_pipeline_rule(nothing, {}) is nothing


def test_circumstances_that_differ_are_told_in_words() -> None:
    now = {"world": 4, "gpu": None, "mesh": {"pp": 2, "dp": 2}, "batch": 3}
    was = {"world": 8, "gpu": "H100", "mesh": {"pp": 4, "dp": 1}, "batch": None}
    found = {d.name: (d.current, d.baseline) for d in find_differences(now, was)}
    assert found == {"world": ("4", "8"), "gpu": ("not stated", "H100"), "mesh": ("pp=2 dp=2", "pp=4 dp=1")}
    assert [d.name for d in find_differences(now, was, ("gpu",))] == ["gpu"]
    assert (format_circumstance(["a", 1]), format_circumstance(0)) == ("a, 1", "0")


@pytest.mark.parametrize(
    ("value", "wrong"), [(0, False), (1, False), (Fraction(101, 100), True), (Fraction(-1, 100), True)]
)
def test_a_ratio_is_between_nothing_and_all(value: Value, wrong: bool) -> None:
    assert (describe_impossible_value(Fraction(value), build_limit_target(METRICS["overlap"])) is not None) is wrong


# What is said of a red


RULED = Assertion(
    "hidden",
    "hidden",
    "hidden",
    Location(Path("g"), 1, 1),
    "overlap_score",
    Requirement(Comparator.GE, Constant(Fraction(1, 2)), ""),
)


def bad_runs(branch: str, *days: int) -> BadRuns:
    return BadRuns(branch, tuple(PastRun(f"2026-01-0{day}T00:00:00Z", None, True) for day in days))


def earlier(
    fail_after: int, before: BadRuns | None, there: BadRuns | None, *, history: bool = True, branch: str | None = None
) -> str:
    past: Any = SimpleNamespace(
        path=Path("h.db") if history else None, branch=branch, find_base_bad_runs=lambda _: there
    )
    return _describe_earlier_runs(replace(RULED, fail_after=fail_after), past, before)


@pytest.mark.parametrize(
    ("before", "there", "said"),
    [
        (bad_runs("dev"), None, "; bad run 1 of 2 in a row on dev (fail_after)"),
        (bad_runs("dev", 9), None, "; bad run 2 of 2 in a row on dev, since 2026-01-09 (fail_after)"),
        (bad_runs("dev", 9, 8), None, "; bad run 3 in a row on dev, since 2026-01-08 (fail_after)"),
        (bad_runs("dev"), bad_runs("main"), "; bad run 1 of 2 in a row on dev (fail_after)"),
        (bad_runs("main"), bad_runs("main", 7), "; bad run 1 of 2 in a row on main (fail_after)"),
        (
            bad_runs("dev"),
            bad_runs("main", 7),
            "; bad run 1 of 2 in a row on dev (fail_after); already red on main since 2026-01-07",
        ),
        (None, None, "; fail_after counts the runs of a branch, and git names none here: the first bad run fails"),
    ],
)
def test_a_red_says_its_place_in_a_row_of_reds(before: BadRuns | None, there: BadRuns | None, said: str) -> None:
    assert earlier(2, before, there) == said


def test_without_fail_after_only_the_other_branch_is_told_of() -> None:
    assert earlier(1, None, bad_runs("main", 7)) == "; already red on main since 2026-01-07"
    assert (earlier(1, None, None), earlier(1, None, bad_runs("main"))) == ("", "")
    in_no_history = "; fail_after counts in a history (--nsys-history), and none is given here: the first bad run fails"
    assert earlier(2, None, None, history=False) == _describe_earlier_runs(replace(RULED, fail_after=2), None, None)
    assert earlier(2, None, None, history=False, branch="dev") == in_no_history
    begun = "; fail_after counts the earlier runs of a branch, and the history has none of dev: the first bad run fails"
    assert earlier(2, None, None, branch="dev") == begun


def test_a_pipeline_says_which_half_of_its_sentence_does_not_hold_and_where() -> None:
    low = JudgedRow({"rank": 0}, Fraction(1, 3), Fraction(1, 2), Outcome.FAILED, serialization=Fraction(1, 4))
    serial = JudgedRow({"rank": 1}, 1, Fraction(1, 2), Outcome.FAILED, serialization=Fraction(1, 2))
    fine = replace(serial, outcome=Outcome.PASSED, serialization=Fraction(1, 4))
    waived = replace(low, outcome=Outcome.PASSED)
    rule = "the period is not nearer to the longer stage than to the sum of both"
    assert [
        _format_pipeline_message(RULED, rows, "below") for rows in ([low], [serial], [low, fine], [serial, waived])
    ] == [
        "the score is below its limit",
        rule,
        "the score is below its limit in 1 of 2 rows",
        f"{rule} in 1 of 2 rows",
    ]
    both = f"the score is below its limit in 1 of 3 rows, and {rule} in 1 of 3 rows"
    assert _format_pipeline_message(RULED, [low, serial, fine], "below") == both


def baseline(*values: Value) -> Baseline:
    rows: dict[tuple[Any, ...], list[Value]] = {(0,): list(values)}
    return Baseline({}, "g", series={NS: StoredSeries("ns", "lower", ("rank",), rows)} if values else {})


NS = SeriesId("comm_ns", 1, "median", "anchor", "contained")


@pytest.mark.parametrize(
    ("mode", "old", "new", "saved", "words"),
    [
        (RefreshMode.ALL, None, baseline(5), True, "new file, 1 row"),
        (RefreshMode.ALL, baseline(4), baseline(5), True, "1 row changed"),
        (RefreshMode.ALL, baseline(5), baseline(5), False, "every row has its value already; unchanged"),
        (RefreshMode.MOVED, baseline(5), baseline(5), False, "no row moved beyond its tolerance; unchanged"),
        (RefreshMode.ACCEPT_RUN, baseline(5), baseline(5, 6), True, "run accepted, 2 runs kept"),
        (RefreshMode.ACCEPT_RUN, baseline(5), baseline(), True, "run accepted, 0 runs kept"),
        (
            RefreshMode.CALIBRATE,
            baseline(5),
            baseline(5),
            True,
            "the accepted runs are as they were, their noise is new",
        ),
        (RefreshMode.CALIBRATE, baseline(4), baseline(5), True, "1 row changed"),
    ],
)
def test_a_refresh_tells_of_the_file(
    mode: RefreshMode, old: Baseline | None, new: Baseline, saved: bool, words: str
) -> None:
    assert WrittenBaseline(Path("b.json"), mode, old, new, saved).summary == words


def test_a_measurement_that_is_not_stored_is_told_from_one_that_was_made_in_another_way() -> None:
    store: Any = SimpleNamespace(files=SimpleNamespace(origin=""))
    source = StoredBaseline(cast(Any, None), cast(Any, None), store)
    stored = baseline(5)
    wanted = NS._replace(window="run", kernels="clipped")
    told = source._describe_missing_series("idle_ns", wanted, Path("b.json"), stored)
    assert (told.outcome, told.reason) == (Outcome.NO_DATA, "b.json holds no idle_ns")
    told = source._describe_missing_series("comm_ns", wanted, Path("b.json"), stored)
    how = "comm_ns in b.json was measured with window median, now run, kernels contained, now clipped"
    assert (told.outcome, told.reason) == (Outcome.INCOMPARABLE, how)
    assert [(d.name, d.current, d.baseline) for d in told.differences] == [
        ("window", "run", "median"),
        ("kernels", "clipped", "contained"),
    ]


def test_a_row_without_value_or_limit_is_not_off_it() -> None:
    row = JudgedRow({}, Fraction(1, 3), Fraction(1, 2), Outcome.FAILED)
    both = replace(RULED, requirement=replace(RULED.requirement, comparator=None))
    assert [is_limit_reached(each, RULED) for each in (row, replace(row, value=None), replace(row, limit=None))] == [
        False,
        True,
        True,
    ]
    assert is_limit_reached(row, both)


# What only one side of a comparison has


def test_of_a_rank_that_the_other_side_lacks_only_the_rank_is_told() -> None:
    def capture(*ranks: int, **launches: int) -> dict[ContentItem, int]:
        kernels = {ContentItem(ContentKind.KERNEL, name, rank): n for name, n in launches.items() for rank in ranks}
        return {ContentItem(ContentKind.RANK, "", rank): 1 for rank in ranks} | kernels

    here, there = capture(0, 1, 2, gemm=3), capture(0, 1, gemm=3)
    here[ContentItem(ContentKind.KERNEL, "own", 2)] = 9
    assert list(_list_one_sided([here], [there])) == [OneSidedItem(ContentKind.RANK, "", (2,), False, 1, 1)]
    assert list(_list_one_sided([there], [here])) == []
    here |= {ContentItem(ContentKind.KERNEL, name, rank): rank + 2 for name in ("norm",) for rank in (0, 1)}
    assert list(_list_one_sided([here, there], [there]))[1:] == [
        OneSidedItem(ContentKind.KERNEL, "norm", (0, 1), True, 5, 1)
    ]


def test_a_gate_is_measured_in_another_way_in_all_of_its_parts() -> None:
    runs = TwoRuns(CaptureCache(), ["base.sqlite"], ["head.sqlite"])
    found = runs.make_builtin_gate(BUILT_IN_CONVENTIONS["pithtrain"], "run", Span.RANGE, KernelsMode.CLIPPED)
    assert found.convention is BUILT_IN_CONVENTIONS["pithtrain"]
    ways = {(found.window, found.span, found.kernels), *((a.window, a.span, a.kernels) for a in found.assertions)}
    assert ways == {("run", Span.RANGE, KernelsMode.CLIPPED)}


def test_of_the_size_of_a_run_the_trace_counts_before_what_is_stated() -> None:
    def key(stated: Mapping[str, Label], setup: Setup | None, gpu: str | None = None) -> RunKey:
        capture: Any = SimpleNamespace(
            ranks=[SimpleNamespace(setup=setup)] * 3,
            convention=BUILT_IN_CONVENTIONS["generic"],
            libraries=frozenset(),
            find_gpu_model=lambda: gpu,
            traces=[None],
        )
        return build_run_key([capture], stated)

    stated: dict[str, Label] = {"micro_batch": 4, "sequence_length": 8, "world": 5, "gpu": "A100", "tp": 7}
    told = key(stated, None)
    assert (told.micro_batch, told.sequence_length, told.world, told.gpu) == (4, 8, 5, "A100")
    assert told.mesh == {"tp": 7}
    own = key(stated, Setup("", 0, {"tp": 0}, {"tp": 2}, micro_batch=1, sequence_length=2), "H100")
    assert (own.micro_batch, own.sequence_length, own.world, own.gpu, own.mesh) == (1, 2, 3, "H100", {"tp": 2})
    none = key({}, None)
    assert (none.micro_batch, none.sequence_length, none.world, none.gpu, none.mesh) == (None, None, 3, None, None)


def test_a_row_that_changed_has_both_values_and_one_that_came_or_went_one() -> None:
    def rows(**values: int) -> dict[SeriesId, StoredSeries]:
        return {NS: StoredSeries("ns", "lower", ("stage",), {(name,): [value] for name, value in values.items()})}

    found = list_row_changes(rows(kept=1, moved=2, gone=3), rows(kept=1, moved=4, new=5))
    assert [(each.labels["stage"], each.old_value, each.new_value) for each in found] == [
        ("gone", 3, None),
        ("moved", 2, 4),
        ("new", None, 5),
    ]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("fatal: detected dubious ownership in repository at '/x'", "does not trust the repository around"),
        ("fatal: not a git repository (or any parent)", "is not in a git repository"),
        ("fatal: this operation must be run in a work tree", "git finds no work tree here: this operation must"),
        ("", "git finds no work tree here: it ended with 128"),
    ],
)
def test_why_git_knows_no_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, told: str) -> None:
    answer = subprocess.CompletedProcess[bytes]([], 128, b"", said.encode())
    monkeypatch.setattr(git, "_run_git_or_fail", lambda *_: answer)
    with pytest.raises(BaselineError, match=told):
        git.find_repository(tmp_path / "new" / "folder")
    (tmp_path / ".git").mkdir()
    top = f"{tmp_path}\n".encode()
    answer = subprocess.CompletedProcess[bytes]([], 0, top, b"warning: not a git repository, says a hook")
    assert git.find_repository(tmp_path) == tmp_path


@pytest.mark.parametrize("many", [1, 3, 4, 6])
def test_of_the_kernels_that_make_a_compute_stream_three_are_named_the_longest_first(many: int) -> None:
    compute = {f"k{n}": (1, 100 * n) for n in range(1, many + 1)}
    said = _describe_shared_stream(SharedStream(28, compute, {"nccl": 2}))
    named = [f"k{n} (1 kernel, {100 * n} ns)" for n in range(many, max(0, many - 3), -1)]
    more = [f"{many - 3} more"] if many > 3 else []
    verb = "makes" if many == 1 else "make"
    assert said.startswith(f"stream 28: {', '.join([*named, *more])} {verb} it a compute stream, so 2 ")


def test_of_a_capture_rows_are_missing_of_the_ranks_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metric = METRICS["collective_wait_ns"]
    labels = [(rank, "dp", "AllReduce") for rank in (0, 1, 2)]
    rows = tuple(Row(each, 5) for each in labels)
    found = MetricTable(
        metric.dimensions, rows, {}, no_row_reason="why", missing=tuple((each, "lost") for each in labels)
    )
    monkeypatch.setattr(evaluation, "_measure_window", lambda *_: found)
    capture: Any = SimpleNamespace(load_windows=lambda _: SimpleNamespace(list_run_windows=lambda *_: [None]))
    some = evaluation._measure_run(capture, metric, WindowSpec(), frozenset({1, 2}), found)
    assert ([row.labels for row in some.rows], [lost for lost, _ in some.missing], some.no_row_reason) == (
        labels[1:],
        labels[1:],
        "why",
    )
    assert evaluation._measure_run(capture, metric, WindowSpec(), None, found) is found


@pytest.mark.parametrize(
    ("value", "baseline", "comparator", "badness"),
    [
        (6, 4, Comparator.LE, Fraction(1, 2)),
        (2, 4, Comparator.LE, Fraction(-1, 2)),
        (2, 4, Comparator.GE, Fraction(1, 2)),
        (6, 4, Comparator.GE, Fraction(-1, 2)),
        (2, 4, Comparator.EQ, Fraction(1, 2)),
        (0, 0, Comparator.LE, 0),
        (Fraction(1, 2), Fraction(1, 4), Comparator.LE, 1),
        (1, 0, Comparator.LE, 1_000_000),
        (None, 4, Comparator.LE, 0),
        (4, None, Comparator.LE, 0),
    ],
)
def test_a_row_without_a_tolerance_is_as_bad_as_its_share_of_the_baseline(
    value: Value | None, baseline: Value | None, comparator: Comparator, badness: Value
) -> None:
    row = JudgedRow({}, value, None, Outcome.FAILED, baseline=baseline)
    assert _measure_badness(row, comparator) == badness
    known = value is not None and baseline is not None
    assert _measure_badness(replace(row, margin=-5, tolerance=2), comparator) == (Fraction(7, 2) if known else 0)
    assert _measure_badness(replace(row, margin=-3), comparator) == (3_000_000 if known else 0)


@dataclass
class Captured:
    """A context with so many captures."""

    captures: Any


@pytest.mark.parametrize(
    ("traces", "refusal"),
    [
        (4, Refusal("noise is measured on 5 or more traces, not on 4", Outcome.ERROR)),
        (5, Refusal("b.sqlite: gone", Outcome.NO_DATA)),
    ],
)
def test_a_calibration_is_refused_for_too_few_traces_or_by_one_of_them(
    monkeypatch: pytest.MonkeyPatch, traces: int, refusal: Refusal
) -> None:
    context: Any = Captured(SimpleNamespace(runs=range(traces), capture_count=traces))
    refresh = GateBaselineRefresh(cast(Any, None), context, "why", RefreshMode.CALIBRATE)
    monkeypatch.setitem(vars(refresh), "_captures_by_file", {"a.sqlite": 1, "b.sqlite": 2})
    gone = Refusal("gone", Outcome.NO_DATA)
    monkeypatch.setattr(GateBaselineRefresh, "_find_refusal", lambda _, of: gone if of.captures == 2 else None)
    assert refresh.refresh_refusal == refusal


def test_of_several_broken_baselines_the_first_is_told(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path, "g.nsys.yaml")
    for name in "abc":
        (tmp_path / f"{name}.json").write_text("{")
    with pytest.raises(BaselineError, match=r"a\.json"):
        store.load_all()


def test_baselines_of_a_gate_that_is_gone_are_orphans_where_each_is_a_plain_file(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    store = BaselineStore(folder / "gone", "gone.nsys.yaml")
    for name in ("b", "a"):
        store.save(store.folder / f"{name}.json", replace(baseline(5), gate="gone.nsys.yaml"))
    (found,) = find_orphans(folder, tmp_path, ())
    assert (found.gate, [path.name for path in found.files]) == ("gone.nsys.yaml", ["a.json", "b.json"])
    assert find_orphans(folder, tmp_path, [store]) == []
    (store.folder / "c.json").symlink_to(store.folder / "a.json")
    assert find_orphans(folder, tmp_path, ()) == []
    (store.folder / "c.json").unlink()
    (store.folder / "notes.txt").write_text((store.folder / "a.json").read_text())
    assert find_orphans(folder, tmp_path, ()) == []


@pytest.mark.parametrize(
    ("keys", "exposed_us", "history", "outcome"),
    [
        ("fail_after: 2", 400, True, Outcome.INCONCLUSIVE),
        ("fail_after: 3", 400, True, Outcome.INCONCLUSIVE),
        ("fail_after: 2", 400, False, Outcome.FAILED),
        ("fail_after: 2", 210, True, Outcome.PASSED),
        ("severity: fail", 400, True, Outcome.FAILED),
    ],
)
def test_earlier_runs_are_asked_for_what_waits_for_them(
    tmp_path: Path, keys: str, exposed_us: int, history: bool, outcome: Outcome
) -> None:
    sentence = f"{{assert: exposed_ns <= baseline + 50us, {keys}}}"
    gate = loaded(f"version: 1\nconvention: pithtrain\nassertions:\n- {sentence}")
    asked: list[str] = []

    def here(assertion: Assertion) -> BadRuns:
        asked.append(assertion.name)
        return bad_runs("dev")

    past: Any = SimpleNamespace(
        path=Path("h.db"), branch="dev", find_own_bad_runs=here, find_base_bad_runs=lambda _: None
    )
    with closing(CaptureCache()) as cache:
        was, now = (
            cache.open_captures([str(write_trace(tmp_path / name, exposed))], Path(), gate.resolved_convention)
            for name, exposed in (("was.sqlite", 200), ("now.sqlite", exposed_us))
        )
        context = GateContext(now, gate, OtherRun(now, gate, was), past if history else None)
        found = evaluate(gate.assertions[0], context)
    assert found.outcome is outcome
    waits = history and exposed_us == 400 and "fail_after" in keys
    assert asked == [gate.assertions[0].name] * waits
