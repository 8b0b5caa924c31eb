"""Gate files that can be meant: every key, and what becomes of it."""

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Purpose
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.gates.model import (
    Aggregate,
    Assertion,
    BaselineLimit,
    Comparator,
    Constant,
    HistoryReference,
    Location,
    Severities,
    Severity,
    Tolerance,
)
from tests.support.gate_files import PATH, loaded

DESIGN = """\
version: 1
trace: traces/*.sqlite         # relative to this file; --nsys-trace wins
convention: pithtrain          # built in, or a mapping that may `extends:` one
window: median
tolerance: {rel: 5%, abs: 50us}

assertions:
  - stage3 overlap >= 60%
  - no mixed comm streams
  - exposed_ns below baseline plus tolerance

  - id: dispatch stays hidden
    assert: median over rank of overlap >= 60%   # one value per stage: the median over ranks
    where: {stage: [stage2_f, stage2_b]}
    warn: ">= 70%"
    marks: [slow]
  - id: combine exposure
    for: {stage: [stage4_f, stage4_b]}   # two items: combine exposure[stage=stage4_f] …
    assert: max over rank of exposed_ns <= baseline + max(10%, 100us)
    severity: warn
"""


def entries(entry: str, head: str = "") -> tuple[Assertion, ...]:
    """The assertions of one entry, indented below ``- ``."""
    body = entry.replace("\n", "\n    ")
    return loaded(f"version: 1\n{head}assertions:\n  - {body}\n").assertions


def one(entry: str, head: str = "") -> Assertion:
    (assertion,) = entries(entry, head)
    return assertion


def test_the_file_of_the_design() -> None:
    gates = loaded(DESIGN)
    assert gates.path == PATH
    assert gates.traces == ("traces/*.sqlite",)
    assert gates.resolved_convention is not None
    assert gates.resolved_convention == BUILT_IN_CONVENTIONS["pithtrain"]
    assert [(a.full_name, str(a.location)) for a in gates.assertions] == [
        ("stage3 overlap >= 60%", "gates.nsys.yaml:8:5"),
        ("no mixed comm streams", "gates.nsys.yaml:9:5"),
        ("exposed_ns below baseline plus tolerance", "gates.nsys.yaml:10:5"),
        ("dispatch stays hidden", "gates.nsys.yaml:12:5"),
        ("combine exposure[stage=stage4_f]", "gates.nsys.yaml:17:5"),
        ("combine exposure[stage=stage4_b]", "gates.nsys.yaml:17:5"),
    ]
    third, hidden, combine = gates.assertions[2:5]
    assert third.requirement.limit == BaselineLimit(Tolerance(Fraction(1, 20), {"ns": Fraction(50_000)}))
    assert hidden.where["stage"].values == ("stage2_f", "stage2_b")
    assert hidden.aggregates == (Aggregate("median", ("rank",)),)
    assert hidden.warn is not None
    assert hidden.warn.limit == Constant(Fraction(7, 10))
    assert hidden.marks == ("slow",)
    assert hidden.sentence == "stage stage2_f|stage2_b median over rank of overlap >= 60%"
    assert combine.where["stage"].values == ("stage4_f",)
    assert combine.requirement.comparator is Comparator.LE
    assert combine.requirement.text == "<= baseline + max(10%, 100us)"
    assert combine.severity == Severities(Severity.WARN)
    assert combine.needs_baseline


def test_what_is_not_said_has_defaults() -> None:
    gates = loaded("version: 1\nassertions: [no syncs]\n")
    (assertion,) = gates.assertions
    assert (gates.traces, gates.run, gates.convention) == ((), {}, None)
    assert (assertion.window, assertion.span, assertion.kernels) == ("median", None, None)
    assert assertion.severity == Severities(failed=Severity.FAIL, inconclusive=Severity.WARN, improved=Severity.WARN)
    assert assertion.location == Location(Path("gates.nsys.yaml"), 2, 14)


def test_settings_of_the_file_hold_unless_the_assertion_has_its_own() -> None:
    head = "window: steady\nspan: period\nkernels: clipped\ntolerance: {rel: 5%}\n"
    plain = one("no syncs", head)
    assert (plain.window, plain.span, plain.kernels) == ("steady", Span.PERIOD, KernelsMode.CLIPPED)
    own = one("assert: exposed_ns below baseline plus 1ms\nwindow: 3\nspan: range\nkernels: launched", head)
    assert (own.window, own.span, own.kernels) == ("3", Span.RANGE, KernelsMode.LAUNCHED)
    assert own.requirement.limit == BaselineLimit(Tolerance(absolute={"ns": Fraction(1_000_000)}))


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("last", "last"),
        ("010", "10"),
        ("{start: 5, end: 0100}", "5:100"),
        ('"forward chunk 3%"', "forward chunk 3%"),
        ("no", "no"),
    ],
)
def test_windows_are_canonical_text(written: str, window: str) -> None:
    assert one("no syncs", f"window: {written}\n").window == window


def test_a_tolerance_has_an_amount_for_each_kind() -> None:
    assertion = one("overlap above baseline minus tolerance", "tolerance: {rel: 0.5%, abs: [50us, 1pp, 2]}\n")
    assert assertion.requirement.limit == BaselineLimit(
        Tolerance(
            Fraction(1, 200), {"ns": Fraction(50_000), "%": Fraction(1, 100), "1": Fraction(2), "count": Fraction(2)}
        )
    )


def test_scalars_are_text_until_a_key_types_them() -> None:
    gates = loaded("version: 01\nrun: {world: 010, gpu: no}\nassertions: [{id: no, assert: no syncs}]\n")
    assert gates.run == {"world": 10, "gpu": "no"}
    assert gates.assertions[0].name == "no"


def test_a_convention_may_extend_another() -> None:
    gates = loaded(
        "version: 1\n"
        "convention:\n"
        "  extends: pithtrain\n"
        "  name: ours\n"
        "  anchor: step%\n"
        "  purposes:\n"
        "    a2a: [stage2_*, stage4_*]\n"
        "    weights: stage3_*\n"
        "    p2p: {range: [send%, recv%], stage: stage9}\n"
        '  communication: "*deep_ep*"\n'
        "  span: period\n"
        "  kernels: launched\n"
        "assertions: [no syncs]\n"
    )
    ours = gates.resolved_convention
    assert (ours.name, ours.anchor, ours.setup) == ("ours", "step%", BUILT_IN_CONVENTIONS["pithtrain"].setup)
    assert ours.purposes == (
        Purpose("a2a", ("stage2_*", "stage4_*")),
        Purpose("weights", ("stage3_*",)),
        Purpose("p2p", ("stage9",), ("send%", "recv%")),
    )
    assert (ours.communication, ours.span, ours.kernels) == (("*deep_ep*",), Span.PERIOD, KernelsMode.LAUNCHED)


def test_mesh_axes_come_from_the_setup_label_and_from_run() -> None:
    assert one("balance of compute_ns across pp <= 1.1").balance_across == "pp"
    head = "convention: generic\nrun: {tp: 4}\n"
    assert one("balance of compute_ns across tp <= 1.1", head).balance_across == "tp"
    balanced = one("{assert: balance of compute_ns across tp <= 1.1, where: {tp: 01}}", head)
    assert balanced.balance_across == "tp"
    assert balanced.where["tp"].values == ("1",)
    assert balanced.full_name == "tp 1 balance of compute_ns across tp <= 1.1"


@pytest.mark.parametrize(
    ("sentence", "tolerance", "comparator"),
    [
        ("exposed_ns below baseline plus tolerance", Tolerance(noise_only=True), Comparator.LE),
        ("overlap >= baseline - 5%", Tolerance(Fraction(1, 20)), Comparator.GE),
        ("launches within tolerance of baseline", Tolerance(noise_only=True), None),
        ("exposed within max(5%, 50us) of baseline", Tolerance(Fraction(1, 20), {"ns": Fraction(50_000)}), None),
        ("overlap within noise of baseline", Tolerance(noise_only=True), None),
    ],
)
def test_a_baseline_has_one_side_or_both(sentence: str, tolerance: Tolerance, comparator: Comparator | None) -> None:
    require = one(f"'{sentence}'", "tolerance: noise\n").requirement
    assert (require.comparator, require.limit) == (comparator, BaselineLimit(tolerance))


@pytest.mark.parametrize(
    ("limit", "history"),
    [
        ("<= last 010 runs of main + max(5%, 50us)", HistoryReference(10, "main")),
        ("<= median of the last 10 runs of main before the newest 3 + 5%", HistoryReference(10, "main", 3)),
        ("below last run before the newest plus 5%", HistoryReference(1, lag=1)),
        ("<= the last 3 runs + noise", HistoryReference(3)),
        ("<= last run of no + noise", HistoryReference(1, "no")),
        ("<= last 3 runs of feature/a-b", HistoryReference(3, "feature/a-b")),
        ("within 2% of the last 2 runs", HistoryReference(2)),
    ],
)
def test_runs_of_the_history_stand_for_the_baseline(limit: str, history: HistoryReference) -> None:
    assertion = one(f"'exposed_ns {limit}'")
    assert isinstance(assertion.requirement.limit, BaselineLimit)
    assert assertion.requirement.limit.history == history
    assert assertion.requirement.text == limit
    assert assertion.needs_baseline
    again = one(f"'exposed_ns <= {history.source} + 5%'")  # as messages name them
    assert isinstance(again.requirement.limit, BaselineLimit)
    assert again.requirement.limit.history == history


def test_how_many_bad_runs_in_a_row_it_takes() -> None:
    assert one("assert: overlap >= baseline - 5%\nfail_after: 003").fail_after == 3
    assert one("assert: overlap >= baseline - 5%").fail_after == 1


def test_what_a_baseline_must_agree_on_can_be_narrowed() -> None:
    gates = loaded("version: 1\ncomparable_on: [gpu, mesh]\nassertions: [no syncs]\n")
    assert gates.comparable_on == ("mesh", "gpu")
    assert loaded("version: 1\nassertions: [no syncs]\n").comparable_on is None


def test_for_makes_every_combination() -> None:
    made = entries("assert: overlap >= 60%\nfor: {stage: [stage2_f, stage2_b], rank: [0, 1]}\nwhere: {pp: [0, 1]}")
    assert [a.full_name for a in made] == [
        f"pp 0|1 overlap >= 60%[stage={stage},rank={rank}]" for stage in ("stage2_f", "stage2_b") for rank in (0, 1)
    ]
    assert made[1].sentence == "pp 0|1 stage stage2_f rank 1 overlap >= 60%"
    assert {d: s.values for d, s in made[1].where.items()} == {"pp": ("0", "1"), "stage": ("stage2_f",), "rank": ("1",)}


def test_aggregates_keep_their_order() -> None:
    assertion = one("p90 over pp of min over stage of overlap >= 60%")
    assert assertion.aggregates == (Aggregate("min", ("stage",)), Aggregate("p90", ("pp",)))


def test_behaviour_of_the_item() -> None:
    assertion = one(
        "assert: overlap >= 60%\nxfail: known, see 12\nallow_no_data: true\n"
        "severity: {failed: warn, improved: fail}\nmarks: [slow, nightly]"
    )
    assert assertion.xfail == "known, see 12"
    assert assertion.allow_no_data
    assert assertion.severity == Severities(Severity.WARN, improved=Severity.FAIL)
    assert assertion.marks == ("slow", "nightly")
    assert one("assert: no syncs\nseverity: {inconclusive: fail}").severity.inconclusive is Severity.FAIL
    assert one("assert: no syncs\nseverity: fail").severity == one("assert: no syncs").severity
    assert not one("assert: no syncs\nallow_no_data: False").allow_no_data


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("stage3   overlap\n  >= 60%", "stage3 overlap >="),
        ("'std::sort overlap >= 60%'", "std:sort overlap >="),
        ("'std:::x overlap >= 60%'", "std:x overlap >="),
        ('{id: "\\e[31mred\\a", assert: no syncs}', "[31mred"),
        ("comm streams == 3", "comm streams =="),
        ("{id: a  b, assert: no syncs}", "a b"),
    ],
)
def test_names_are_one_clean_line(entry: str, name: str) -> None:
    assert one(entry).name == name


def test_a_few_aliases_are_fine() -> None:
    gates = loaded(
        "version: 1\nassertions:\n"
        "- {assert: overlap >= 60%, where: &w {stage: stage2_f}}\n"
        "- {assert: exposed_ns < 2ms, where: *w}\n"
    )
    assert [a.where["stage"].values for a in gates.assertions] == [("stage2_f",)] * 2


def test_a_byte_order_mark_and_carriage_returns_are_no_mistakes() -> None:
    (assertion,) = loaded(b"\xef\xbb\xbfversion: 1\r\nassertions: [no syncs]\r\n").assertions
    assert assertion.location == Location(PATH, 2, 14)


def test_limits_of_two_kinds_are_never_alike() -> None:
    """They are tuples, which are the same where their parts are: so no two kinds have as many parts."""
    kinds = [Constant._fields, BaselineLimit._fields]
    assert len({len(fields) for fields in kinds}) == len(kinds)


def test_a_gate_file_is_understood_without_what_opens_traces() -> None:
    """Collecting and linting gate files starts sooner for it."""
    code = "import sys, pytest_nsys.gates.gate_file; "
    code += "print({'sqlite3', 'concurrent.futures', 'numpy', 'pytest_nsys.analysis.windows.run'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
