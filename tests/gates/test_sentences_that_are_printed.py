"""What is printed of an assertion can be written as one: the sentence of every entry means what the entry means."""

import re
from collections.abc import Mapping

import pytest
import yaml
from hypothesis import assume, event, given
from hypothesis import strategies as st

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.errors import GateFileError
from pytest_nsys.core.units import COUNT, HASH, RATIO, TIME
from pytest_nsys.gates.assertion_names import quote_labels, split_labels
from pytest_nsys.gates.model import Assertion
from tests.support.gate_files import loaded

HEAD = {
    "version": 1,
    "run": {"pp": 2, "ep": 4},
    "convention": "sglang",
    "tolerance": {"rel": "5%", "abs": ["50us", "1pp", 2]},
    "pipeline": {"stage0": "a%", "stage1": "b%"},
    "blocks": "a%",
}
AXES = ("pp", "ep")
WORDS = ("median", "mean", "max", "min", "sum", "p90")
LABELS = ("stage2_f", "a|b", 'say "x"', "void f<int>(float *)", "below", "max", "over", "of", "no", "3", "st*", "[!=]")


def meaning(assertion: Assertion) -> tuple[object, ...]:
    """What an assertion asks for, however it is written."""
    require = assertion.requirement
    where = sorted((dimension, selector.values) for dimension, selector in assertion.where.items())
    subject = (assertion.metric, where, assertion.aggregates, assertion.balance_across, assertion.pipeline)
    return (*subject, assertion.kind, require.comparator, require.limit, assertion.outside_metric)


def read(entry: str | Mapping[str, object]) -> Assertion:
    (assertion,) = loaded(yaml.safe_dump({**HEAD, "assertions": [entry]}, allow_unicode=True)).assertions
    return assertion


@st.composite
def limits(draw: st.DrawFn, unit: str) -> str:
    """A comparison and a limit for values of a unit, most of which make sense."""
    if unit == HASH:
        return "== baseline"
    amount = {TIME: "300us", RATIO: "60%", COUNT: "10"}.get(unit, "3" if unit == "1" else f"3{unit}")
    own = {TIME: "50us", RATIO: "3pp", COUNT: "2"}.get(unit, amount)
    tolerance = draw(st.sampled_from(["5%", own, "noise", "tolerance", f"max(5%, {own})"]))
    source = draw(
        st.sampled_from(["baseline", "last run", "last 10 runs of main", "the last 3 runs before the newest 2"])
    )
    above = draw(st.booleans())
    comparison = draw(st.sampled_from([">=", "above", "at least"] if above else ["<=", "below", "at most"]))
    sign = draw(st.sampled_from(["-", "minus"] if above else ["+", "plus"]))
    return draw(
        st.sampled_from(
            [f"{comparison} {amount}", f"{comparison} {source} {sign} {tolerance}", f"within {tolerance} of {source}"]
        )
    )


@st.composite
def entries(draw: st.DrawFn) -> tuple[str, dict[str, list[str]]]:
    """A sentence, and what stands beside it under ``where:``."""
    metric = draw(st.sampled_from([*METRICS.values()]))
    dimensions = [*metric.dimensions, *(AXES if "rank" in metric.dimensions else ())]
    numbers = ("rank", *AXES)
    where = {
        dimension: draw(
            st.lists(st.sampled_from(("0", "1", "7") if dimension in numbers else LABELS), min_size=1, max_size=3)
        )
        for dimension in dimensions
        if draw(st.integers(0, 3)) == 0 and dimension not in ("quantile", "statistic")
    }
    form = draw(st.sampled_from(["plain", "word", "over", "balance", "no"]))
    kind = draw(st.sampled_from(["", "", "decode "]))
    limit = draw(limits("1" if form == "balance" else metric.unit))
    name = draw(st.sampled_from([metric.name, metric.name.replace("_", " ")]))
    taken = [d for d in dimensions if d not in ("statistic", *where)]
    if form == "over" and taken:
        each = draw(st.lists(st.sampled_from(taken), min_size=1, max_size=3, unique=True))
        name = "".join(f"{draw(st.sampled_from(WORDS))} over {d} of " for d in each) + name
    elif form == "word":
        name = f"{draw(st.sampled_from(WORDS))} {name}"
    elif form == "balance":
        name = f"balance of {name} across pp"
    return (f"no {name}" if form == "no" else f"{kind}{name} {limit}"), where


@given(entries())
def test_the_sentence_of_an_entry_means_the_entry(entry: tuple[str, dict[str, list[str]]]) -> None:
    sentence, where = entry
    try:
        asked = read({"assert": sentence, **({"where": where} if where else {})})
    except GateFileError:
        event("refused")
        assume(False)
    event("accepted")
    again = read(asked.sentence)
    assert meaning(again) == meaning(asked)
    assert again.name == asked.name
    assert again.sentence == asked.sentence


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1))
def test_labels_are_read_as_they_are_written(labels: list[str]) -> None:
    assert split_labels(quote_labels(labels)) == labels


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("{assert: no barrier_ns, where: {rank: [0, 1]}}", "no barrier_ns where rank 0|1"),
        ("{assert: no barrier_ns where rank 0, where: {pp: 1}}", "no barrier_ns where rank 0 where pp 1"),
        (
            "{assert: no new kernels above 2%, where: {kernel: [a, b c]}}",
            'no new kernels above 2% where kernel a|"b c"',
        ),
        ("{assert: busbw of AllReduce >= 3GB/s, where: {group: a}}", "group a busbw of AllReduce >= 3GB/s"),
        ("{assert: pipeline overlap_score >= 0.3, where: {rank: 0}}", "rank 0 pipeline overlap_score >= 0.3"),
        ("{assert: max measured wait <= 2ms, where: {phase: [a, b]}}", "phase a|b max measured wait <= 2ms"),
        ("{assert: exposed <= 10% of step, where: {pp: 0}}", "pp 0 exposed <= 10% of step"),
    ],
)
def test_what_is_selected_beside_a_sentence_is_said_in_it(entry: str, sentence: str) -> None:
    asked = read(yaml.safe_load(entry))
    assert asked.sentence == sentence
    assert meaning(read(sentence)) == meaning(asked)


WRITE = re.compile(r"(?:write:?|such as) ((?:[\w|]+ )*[\w]+ (?:[<>=]=?|above|below|within) [^;:?(]+?)(?:,? or .*|\?|$)")


def test_what_a_mistake_says_to_write_can_be_written() -> None:
    """Of every metric, held on its better side, to a limit that says nothing, and in the unit of another."""
    told: set[str] = set()
    for metric in METRICS.values():
        for limit in (
            "<= baseline",
            ">= baseline + 5%",
            "<= last 3 runs of main - 5%",
            ">= 0%",
            "< 0ns",
            "<= 3",
            "<= 3pp",
        ):
            sentence = f"{metric.name} {limit}"
            try:
                read(sentence)
            except GateFileError as error:
                (mistake,) = error.mistakes
                if (found := WRITE.search(mistake.text)) is not None:
                    told.add(found[1].strip())
    assert len(told) > 40
    for sentence in told:
        read(sentence)
