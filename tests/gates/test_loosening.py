"""Is every way in which a gate file can ask for less told, by its meaning, and nothing else?"""

from __future__ import annotations

import dataclasses
import inspect
from textwrap import dedent

import pytest

from pytest_nsys.analysis.facts.bounds import AT_LEAST, Bounds
from pytest_nsys.analysis.table import Selector
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.gate_changes import GateChange, compared
from pytest_nsys.gates.kinds import KEYS
from pytest_nsys.gates.loosening_rules import ASSERTION_RULES, GATE_RULES
from pytest_nsys.gates.model import Assertion, FromBaseline, FromHistory, GateFile, Requirement, Tolerance, Waiver
from tests.support.gate_files import loaded


def gate(text: str) -> GateFile:
    """A gate file of this text, to which ``version``, ``convention`` where it is not said and, where there is no list,
    ``assertions`` are added.
    """
    text = dedent(text).strip("\n")
    text = text if "assertions:" in text else f"assertions:\n{text}"
    text = text if "convention:" in text else f"convention: pithtrain\n{text}"
    return loaded(f"version: 1\n{text}\n")


def said(old: str, new: str) -> list[str]:
    """Each change in a line: ``loosened tolerance rel: 5% → 30%``."""
    return [f"{c.change.kind} {c.change.key}: {c.change.was} → {c.change.now}" for c in compared(gate(old), gate(new))]


def of_file(key: str, value: str) -> str:
    """A gate file of one assertion that has a key of the file."""
    return f"{key}: {value}\nassertions:\n- overlap >= 60%"


def of_files(key: str, old: str | None, new: str | None) -> tuple[str, str]:
    """Two of them; where a value is None, the key is not said."""
    one, other = (of_file("window", "median") if value is None else of_file(key, value) for value in (old, new))
    return one, other


def extending(old: str, new: str) -> tuple[str, str]:
    """Two of a convention that says so beside what it extends."""
    return of_files("convention", f"{{extends: generic, {old}}}", f"{{extends: generic, {new}}}")


def of_assertion(keys: str, sentence: str = "overlap >= 60%") -> str:
    """A gate file of one assertion that has keys of its own."""
    return f"assertions:\n- {{id: a, assert: '{sentence}'{keys and ', '}{keys}}}"


BASELINE = "exposed_ns below baseline plus 5%"
WAIVER = "{{assertion: exposed_ns < 1 ms, ceiling: {ceiling}, expires: {expires}, reason: r{more}}}"


def waived(ceiling: str = "2ms", expires: str = "2030-01-31", more: str = "") -> str:
    entry = WAIVER.format(ceiling=ceiling, expires=expires, more=more)
    return f"assertions:\n- exposed_ns < 1 ms\nwaivers:\n- {entry}"


def following(history: str) -> str:
    return f"- {{id: a, assert: exposed_ns <= {history} + 5%}}"


def ruled(subject: str) -> str:
    return f"pipeline: {{stage0: [a%], stage1: [b%]}}\nassertions:\n- {{id: a, assert: {subject} >= 0.30}}"


def waived_as(sentence: str, ceiling: str, expires: str = "2030-01-31") -> str:
    entry = f"{{assertion: '{sentence}', ceiling: {ceiling}, expires: {expires}, reason: r}}"
    return f"assertions:\n- {sentence}\nwaivers:\n- {entry}"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # limits
        ("- overlap >= 60%", "- overlap >= 50%", "loosened limit: >= 60% → >= 50%"),
        ("- overlap > 60%", "- overlap >= 60%", "loosened limit: > 60% → >= 60%"),
        ("- exposed_ns <= 1 ms", "- exposed_ns <= 2 ms", "loosened limit: <= 1 ms → <= 2 ms"),
        ("- exposed_ns < 1 ms", "- exposed_ns <= 1 ms", "loosened limit: < 1 ms → <= 1 ms"),
        ("- idle <= 5% of step", "- idle <= 10% of step", "loosened limit: <= 5% of step → <= 10% of step"),
        ("- busy >= 90% of step", "- busy_ns >= 85% of step", "loosened limit: >= 90% of step → >= 85% of step"),
        ("- launches == 4", "- launches <= 4", "loosened limit: == 4 → <= 4"),
        ("- launches == 4", "- launches == 5", "loosened limit: == 4 → == 5"),
        ("- launches != 4", "- launches != 5", "changed limit: != 4 → != 5"),
        ("- overlap >= 60%", "- overlap <= 90%", "loosened limit: >= 60% → <= 90%"),
        ("- exposed_ns < 1 ms", f"- {BASELINE}", "changed limit: < 1 ms → below baseline plus 5%"),
        (f"- {BASELINE}", "- exposed_ns < 1 ms", "changed limit: below baseline plus 5% → < 1 ms"),
        (of_assertion("warn: '>= 80%'"), of_assertion("warn: '>= 70%'"), "loosened warn: >= 80% → >= 70%"),
        (of_assertion("warn: '>= 80%'"), of_assertion(""), "loosened warn: >= 80% → gone"),
        # tolerances
        (f"- {BASELINE}", "- exposed_ns below baseline plus 30%", "loosened tolerance rel: 5% → 30%"),
        (f"- {BASELINE}", "- exposed_ns below baseline plus max(5%, 50us)", "loosened tolerance abs: none → 50us"),
        (f"- {BASELINE}", "- exposed_ns below baseline plus max(3%, 50us)", "loosened tolerance abs: none → 50us"),
        (
            "tolerance: {rel: 5%}\nassertions:\n- exposed_ns below baseline plus tolerance",
            "tolerance: {rel: 30%}\nassertions:\n- exposed_ns below baseline plus tolerance",
            "loosened tolerance rel: 5% → 30%",
        ),
        ("- exposed_ns below baseline plus noise", f"- {BASELINE}", "loosened tolerance: noise → 5%"),
        ("- launches == baseline", "- launches <= baseline", "loosened limit: == baseline → <= baseline"),
        ("- launches <= baseline", "- launches <= baseline + 2", "loosened tolerance: none → 2"),
        ("- launches <= baseline", "- launches <= baseline + noise", "loosened tolerance: none → noise"),
        # where the baseline comes from
        (following("last 10 runs"), following("last 3 runs"), "changed history runs: 10 → 3"),
        (
            "- {id: a, assert: exposed_ns <= baseline + 5%}",
            "- {id: a, assert: exposed_ns <= last 3 runs of main + 5%}",
            "changed baseline: baseline → median of the last 3 runs of main",
        ),
        (
            "- {id: a, assert: no new kernels above 2%}",
            "- {id: a, assert: no new kernels above 5%}",
            "loosened tolerance abs: 2pp → 5pp",
        ),
        (
            "- {id: a, assert: no new kernels}",
            "- {id: a, assert: no vanished kernels}",
            "changed limit: has no new kernels → has no vanished kernels",
        ),
        (following("last 10 runs before the newest 5"), following("last 10 runs"), "changed history lag: 5 → 0"),
        # what is asked of the item
        (
            of_assertion("fail_after: 2", BASELINE),
            of_assertion("fail_after: 3", BASELINE),
            "loosened fail_after: 2 → 3",
        ),
        (of_assertion(""), of_assertion("severity: warn"), "loosened severity failed: fail → warn"),
        (of_assertion(""), of_assertion("xfail: flaky"), "loosened xfail: none → flaky"),
        (of_assertion(""), of_assertion("allow_no_data: true"), "loosened allow_no_data: false → true"),
        (
            of_assertion("allow_missing: {stage1_*: [0]}"),
            of_assertion("allow_missing: {stage1_*: [0, 3]}"),
            "loosened allow_missing: stage1_* 0 → stage1_* 0, 3",
        ),
        (
            *of_files("allow_missing", "{stage1: [0]}", "{stage1_f: [0]}"),
            "loosened allow_missing: stage1 0 → stage1_f 0",
        ),
        (*of_files("allow_missing", None, "{stage1_f: [0]}"), "loosened allow_missing: none → stage1_f 0"),
        (of_assertion("severity: {improved: fail}"), of_assertion(""), "loosened severity improved: fail → warn"),
        (
            of_assertion("severity: {inconclusive: fail}"),
            of_assertion(""),
            "loosened severity inconclusive: fail → warn",
        ),
        (of_assertion("marks: [gpu]"), of_assertion("marks: [slow]"), "changed marks: gpu → slow"),
        (ruled("pipeline overlap_score"), ruled("overlap_score"), "loosened pipeline: true → false"),
        # which rows
        (
            "- {assert: overlap >= 60%, where: {stage: [stage2, stage4]}}",
            "- stage2 overlap >= 60%",
            "loosened rows: stage stage2|stage4 → stage stage2",
        ),
        ("- overlap >= 60%", "- stage2_f overlap >= 60%", "loosened rows: all → stage stage2_f"),
        ("- stage2 overlap >= 60%", "- stage4 overlap >= 60%", "changed rows: stage stage2 → stage stage4"),
        ("- stage2 overlap >= 60%", "- stage2_f overlap >= 60%", "loosened rows: stage stage2 → stage stage2_f"),
        ("- stage2_f overlap >= 60%", "- stage4* overlap >= 60%", "changed rows: stage stage2_f → stage stage4*"),
        ("- stage2 overlap >= 60%", "- stage? overlap >= 60%", "changed rows: stage stage2 → stage stage?"),
        ("- stage none overlap >= 60%", "- overlap >= 60%", "changed rows: stage none → all"),
        ("- overlap >= 60%", "- median overlap >= 60%", "loosened aggregate: every row → median"),
        ("- max overlap >= 60%", "- median overlap >= 60%", "changed aggregate: max → median"),
        ("- sum exposed_ns < 1 ms", "- exposed_ns < 1 ms", "changed aggregate: sum → every row"),
        ("- median stage2 overlap >= 60%", "- median overlap >= 60%", "changed rows: stage stage2 → all"),
        (
            "- {id: a, assert: overlap >= 60%, for: {stage: [stage2, stage4]}}",
            "- {id: a, assert: overlap >= 60%, for: {stage: [stage2]}}",
            "loosened assertion: a[stage=stage4] (stage stage4 overlap >= 60%) → gone",
        ),
        # how it is measured
        (of_assertion(""), of_assertion("window: first"), "changed window: median → first"),
        (of_assertion(""), of_assertion("span: period"), "changed span: range → period"),
        (of_assertion(""), of_assertion("kernels: clipped"), "changed kernels: contained → clipped"),
        (*of_files("window", "median", "first"), "changed window: median → first"),
        # waivers
        ("- exposed_ns < 1 ms", waived(), "loosened waiver: none → up to 2 ms until 2030-01-31"),
        (
            waived(),
            waived(expires="2031-01-31"),
            "loosened waiver: up to 2 ms until 2030-01-31 → up to 2 ms until 2031-01-31",
        ),
        (waived(more=", where: {rank: 1}"), waived(), "loosened waiver: none → up to 2 ms until 2030-01-31"),
        # keys of the file
        (
            *extending("purposes: {a: {range: [x%]}}", "purposes: {a: {range: [y%]}}"),
            "changed convention purposes: a x% → a y%",
        ),
        (
            *extending("families: {gemm: ['*gemm*']}", "families: {gemm: ['*mm*']}"),
            "changed convention families: gemm *gemm* → gemm *mm*",
        ),
        (*extending("communication: [a, b]", "communication: [a, c]"), "changed convention communication: b → c"),
        (*extending("anchor: a%", "anchor: b%"), "changed convention anchor: a% → b%"),
        (
            *extending("anchor: a%", "anchor: {kernel: embed, after: 'f<4>'}"),
            'changed convention anchor: a% → {kernel: embed, after: "f<4>"}',
        ),
        (
            *of_files("convention", "{extends: generic, anchor: a%}", "auto"),
            "changed convention: generic, anchor 'a%' → auto",
        ),
        (*of_files("convention", "auto", "generic"), "changed convention: auto → generic"),
        (
            "convention: auto\n" + of_file("kernels", "clipped"),
            of_file("convention", "auto"),
            "changed kernels: clipped → auto",
        ),
        (*of_files("trace", "a.sqlite", "b.sqlite"), "changed trace: a.sqlite → b.sqlite"),
        (*of_files("trace", "[a, b]", "[a, b, c]"), "changed trace: none → c"),
        (*of_files("run", "{gpu: H100}", "{gpu: H200}"), "changed run gpu: H100 → H200"),
        (*of_files("run", "{world: 8}", "{world: 4}"), "changed run world: 8 → 4"),
        (*of_files("workload", "{steps: 2}", "{steps: 3}"), "changed workload steps: 2 → 3"),
        (*of_files("comparable_on", "[mesh, world]", "[world]"), "loosened comparable_on: mesh, world → world"),
        (*of_files("comparable_on", None, "[world]"), "loosened comparable_on: all → world"),
        (*of_files("quality", "{dropped: 0}", "{dropped: 2}"), "loosened quality dropped: 0 → 2"),
        (*of_files("quality", "{unlaunched: 2%}", None), "loosened quality unlaunched: 2% → 5%"),
        (*of_files("quality", "{unlaunched: 5%}", "{unlaunched: 20%}"), "loosened quality unlaunched: 5% → 20%"),
        (*of_files("quality", "{anchors: 5}", "{anchors: 2}"), "loosened quality anchors: 5 → 2"),
        (*of_files("quality", "{dropped: 0}", "{dropped: off}"), "loosened quality dropped: 0 → off"),
        # assertions
        (
            "- overlap >= 60%\n- no mixed comm streams",
            "- overlap >= 60%",
            "loosened assertion: no mixed comm streams → gone",
        ),
        (
            of_assertion(""),
            of_assertion("", "exposed_ns < 1 ms"),
            "changed assertion: overlap >= 60% → exposed_ns < 1 ms",
        ),
    ],
)
def test_what_asks_for_less_is_told(old: str, new: str, expected: str) -> None:
    assert said(old, new) == [expected]


@pytest.mark.parametrize(
    ("sentence", "old", "new"),
    [
        ("exposed_ns < 1 ms", "2 ms", "3 ms"),
        ("overlap >= 60%", "50%", "40%"),
        ("launches == 4", "6", "5"),
        ("launches == 4", "6", "7"),
        ("measured power < 300 W", "310 W", "310 kW"),
    ],
)
def test_another_ceiling_is_told(sentence: str, old: str, new: str) -> None:
    told = [f"up to {ceiling} until 2030-01-31" for ceiling in (old, new)]
    assert said(waived_as(sentence, old), waived_as(sentence, new)) == [f"loosened waiver: {' → '.join(told)}"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # form
        ("- overlap >= 60%  # why\n- launches <= 4", "# a comment\n- launches <= 4\n- 'overlap >= 60%'"),
        ("- overlap >= 60%", "- {id: other, assert: overlap at least 60%}"),
        ("- exposed_ns < 1 ms", "- exposed_ns below 1000us"),
        ("- stage2 overlap >= 60%", "- {assert: overlap >= 60%, where: {stage: stage2}}"),
        (of_assertion(""), of_assertion("span: range, kernels: contained, window: median, severity: fail")),
        (of_file("tolerance", "{rel: 5%}"), of_file("tolerance", "{rel: 50%}")),  # which no assertion means
        (of_assertion("xfail: flaky"), of_assertion("xfail: 'flaky, issue 7'")),
        (waived(), waived(more=", link: 'https://example.org/7'")),
        # tighter
        ("- overlap >= 60%", "- overlap >= 70%"),
        ("- exposed_ns <= 1 ms", "- exposed_ns < 1 ms"),
        ("- launches <= 4", "- launches == 4"),
        (f"- {BASELINE}", "- exposed_ns below baseline plus 3%"),
        (f"- {BASELINE}", "- exposed_ns below baseline plus noise"),
        ("- launches <= baseline + 2", "- launches <= baseline"),
        ("- launches <= baseline", "- launches == baseline"),
        (of_assertion("severity: warn"), of_assertion("")),
        (of_assertion("xfail: flaky"), of_assertion("")),
        (ruled("overlap_score"), ruled("pipeline overlap_score")),
        (of_assertion("fail_after: 2", BASELINE), of_assertion("", BASELINE)),
        (of_assertion("allow_no_data: true"), of_assertion("")),
        (of_assertion("allow_missing: {stage1_*: [0, 3]}"), of_assertion("allow_missing: {stage1_f: [3]}")),
        (of_assertion("warn: '>= 70%'"), of_assertion("warn: '>= 80%'")),
        (of_assertion(""), of_assertion("warn: '>= 80%', severity: {improved: fail, inconclusive: fail}")),
        (waived(), "- exposed_ns < 1 ms"),
        (waived_as("overlap >= 60%", "50%"), waived_as("overlap >= 60%", "55%")),
        (waived_as("launches == 4", "6"), waived_as("launches == 4", "6", "2030-01-30")),
        (waived(), waived("1500us", "2030-01-30", ", where: {rank: 1}")),
        ("- stage2_f overlap >= 60%", "- stage2 overlap >= 60%"),
        ("- stage2_f overlap >= 60%", "- {assert: overlap >= 60%, where: {stage: [stage2*, stage4]}}"),
        ("- stage2_f overlap >= 60%", "- overlap >= 60%"),
        ("- median overlap >= 60%", "- overlap >= 60%"),
        (of_file("comparable_on", "[world]"), of_file("window", "median")),
        (of_file("comparable_on", "[world]"), of_file("comparable_on", "[world, mesh]")),
        (of_file("window", "median"), of_file("comparable_on", f"[{', '.join(FIELDS)}]")),
        (of_file("quality", "{dropped: 2, anchors: 2, typicality: off}"), of_file("quality", "{typicality: 3}")),
        # new
        ("- overlap >= 60%", "- overlap >= 60%\n- launches <= 4"),
        # said twice: the one that is left asks for all of it
        ("- overlap >= 60%\n- {id: b, assert: overlap >= 50%}", "- overlap >= 60%"),
    ],
)
def test_what_means_the_same_or_more_is_not(old: str, new: str) -> None:
    assert said(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (of_assertion(""), of_assertion("").replace("id: a", "id: b"), ["changed id: a → b"]),
        (of_assertion(""), "- overlap >= 60%", ["changed id: a → overlap >= 60%"]),
        (
            of_assertion("", BASELINE),
            of_assertion("fail_after: 3", BASELINE).replace("id: a", "id: b"),
            ["changed id: a → b", "loosened fail_after: 1 → 3"],
        ),
        (
            "- {id: a, assert: overlap >= 60%, for: {stage: [stage2]}}",
            "- {id: b, assert: overlap >= 60%, for: {stage: [stage2]}}",
            ["changed id: a[stage=stage2] → b[stage=stage2]"],
        ),
        (  # the series goes on under the new id
            "- {id: a, assert: exposed_ns <= last 3 runs + 5%}",
            "- {id: b, assert: exposed_ns <= last 3 runs + 5%}\n- {id: a, assert: exposed_ns < 10ms}",
            ["changed limit: <= last 3 runs + 5% → < 10ms", "changed series of the history: a → b"],
        ),
        (
            "- {id: a, assert: exposed_ns <= last 3 runs + 5%}",
            "- {id: a, assert: exposed_ns <= last 3 runs + 5%}\n- {id: b, assert: exposed_ns <= last 3 runs + 5%}",
            [],
        ),
        (  # no id: the name says the limit
            "- {assert: overlap >= 60%, for: {stage: [stage2]}}",
            "- {assert: overlap >= 70%, for: {stage: [stage2]}}",
            [],
        ),
    ],
)
def test_another_id_is_told(old: str, new: str, expected: list[str]) -> None:
    assert said(old, new) == expected


def test_a_change_of_many_assertions_is_told_once_with_all_their_lines() -> None:
    def text(rel: str) -> str:
        toward = "below baseline plus tolerance"
        lines = f"- exposed_ns {toward}\n- overlap >= 10%\n- wall_exposed_ns {toward}"
        return f"tolerance: {{rel: {rel}}}\nassertions:\n{lines}"

    (changed,) = compared(gate(text("5%")), gate(text("30%")))
    assert changed == GateChange(
        changed.change,
        ("exposed_ns below baseline plus tolerance", "wall_exposed_ns below baseline plus tolerance"),
        (5, 7),
    )


def test_of_several_new_sentences_the_one_with_the_same_rows_stands_in() -> None:
    old = "- stage2 overlap >= 60%\n- exposed_ns < 1 ms"
    new = "- stage4 overlap >= 60%\n- stage2 overlap >= 40%\n- exposed_ns < 1 ms"
    assert said(old, new) == ["loosened limit: >= 60% → >= 40%"]


def test_a_new_sentence_stands_in_for_one_that_is_gone_alone() -> None:
    assert said("- overlap >= 60%\n- overlap <= 99%", "- overlap >= 50%") == [
        "loosened limit: >= 60% → >= 50%",
        "loosened assertion: overlap <= 99% → gone",
    ]


@pytest.mark.parametrize(("rules", "made"), [(ASSERTION_RULES, Assertion), (GATE_RULES, GateFile)])
def test_every_field_has_a_rule(rules: dict[str, object], made: type) -> None:
    """A key that nobody thought of is told as changed; here somebody is made to think of it."""
    assert {field.name for field in dataclasses.fields(made)} == set(rules)


def test_the_parts_that_rules_look_into() -> None:
    """One more of them wants a look at its rule in loosening_rules.py."""
    parts: dict[type, set[str]] = {
        Requirement: {"comparator", "limit", "text"},
        FromBaseline: {"tolerance", "history", "no"},
        FromHistory: {"runs", "branch", "lag"},  # each_part
        Tolerance: {"relative", "absolute", "noise"},
        Selector: {"values"},
        Waiver: {"ceiling", "expires", "reason", "location", "link", "where", "shared", "unit"},
    }
    assert {made: set(inspect.signature(made).parameters) for made in parts} == parts


def test_every_bound_is_ordered() -> None:
    names = {field.name for field in dataclasses.fields(Bounds)}
    assert names - {"world", "usual_steps"} == set(KEYS["quality"])
    assert names >= AT_LEAST


@pytest.mark.parametrize(
    ("was", "now", "kinds"),
    [
        ("measured mfu >= 45%", "measured mfu >= 40%", ["loosened"]),
        ("measured mfu >= 45%", "measured mfu >= 50%", []),
        ("measured mfu >= 45%", "measured mfu >= 0.45", ["changed"]),
        ("measured peak <= 72GiB", "measured peak <= 72GB", []),
        ("measured peak below baseline plus 1GiB", "measured peak below baseline plus 2GiB", ["loosened"]),
        ("measured peak below baseline plus 2GiB", "measured peak below baseline plus 1GiB", []),
        ("measured mfu >= 45%", "measured loss >= 40%", ["changed"]),
    ],
)
def test_a_limit_of_a_measurement_is_loosened_as_any_other(was: str, now: str, kinds: list[str]) -> None:
    then, here = (loaded(f"version: 1\nassertions:\n- {{id: a, assert: {each}}}\n") for each in (was, now))
    assert [change.change.kind for change in compared(then, here)] == kinds


def test_a_statistic_that_nobody_says_is_the_median() -> None:
    """So to leave it out asks for other rows, and to say it is no change."""
    plain, least, middle = (of_assertion("", f"{word}busbw >= 40GB/s") for word in ("", "min ", "median "))
    assert said(least, plain) == ["changed rows: statistic min → statistic median"]
    assert said(plain, least) == ["changed rows: statistic median → statistic min"]
    assert said(plain, middle) == said(middle, plain) == []
