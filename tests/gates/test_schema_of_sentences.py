"""What an editor checks of sentences, limits and amounts, and what it offers: never more, or other, than the loader."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import event, given
from hypothesis import strategies as st

import pytest_nsys
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.windows.window_selection import WINDOW_WORDS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.units import WRITTEN_UNITS
from pytest_nsys.gates.limits import COMPARISONS, SentenceMistake
from tests.gate_completions import CONVENTIONS, DIMENSIONS, FILE, MAPPINGS, SENTENCES, TOLERANCES, WAIVER, WINDOWS
from tests.gate_patterns import EARLY, NAMED, SENTENCE, UNITS, of_unit
from tests.gates.test_gate_file_schema import loads, validates
from tests.support.gate_files import asked

HEAD = "version: 1\nrun: {pp: 2}\ntolerance: {rel: 5%, abs: [50us, 1pp, 2]}\nassertions:\n"

REFUSED = [
    *("stage3 overlp >= 60%", "stage3 overlap >= 60", "stage3 overlap >= 3pp", "exposed_ns <= 2"),
    *("exposed_ns <= 2 min", "exposed_ns <= 2msec", "exposed_ns <= -2ms", "exposed_ns below baseline plus 3pp"),
    *("exposed_ns below baseline plus 5 apples", "exposed_ns below baseline plus max(5%, 3pp)"),
    *("exposed_ns below", "exposed_ns", "exposed_ns 2ms", "launches <= 3ms", "overlap_score >= 60%"),
    *("busbw >= 400", "busbw >= 400GB", "samples_per_s >= 3 tokens/s", "balance of compute_ns across pp <= 5%"),
    *("no overlap", "no overlp", "no busbw", "sequence == 3", "sequence <= baseline", "3ms"),
]


REFUSED_KEYS = ["assert: overlap >= 60%, warn: 70%", *(f"id: x, assert: '{sentence}'" for sentence in REFUSED)]


def test_a_metric_or_a_unit_that_is_wrong() -> None:
    wrong = [f"{HEAD}- {entry}\n" for entry in (*REFUSED, *(f"{{{keys}}}" for keys in REFUSED_KEYS))]
    assert [text for text in wrong if not loads(text)] == [], "the loader takes them"
    assert [text for text in wrong if not validates(text)] == [], "the schema takes them"


SELECTORS = [
    *("", "stage3", "rank 3", "rank 3 stage2_f", "pp 1", "ep_a2a"),
    *("gemm", "median", "p90", "p50", "max of", "mixed", "max over pp of min over rank of", "stage2_f|stage4_f"),
]
MEASURED = ["measured mfu", "measured peak memory", "phase decode measured rate", "measured", "measured rate of rank 3"]
NAMES = sorted({*METRICS, *(name.replace("_", " ") for name in METRICS), "overlp", *MEASURED})
BEHIND = ["", "of stage3", "across pp"]
AMOUNTS = [
    f"{number}{gap}{unit}"
    for number in ("3", "0.5")
    for gap in ("", " ")
    for unit in ("", "µs", "W", "img/s", "°C", *WRITTEN_UNITS)
]
LIMITS = st.one_of(
    st.sampled_from(AMOUNTS),
    st.builds(
        "baseline {} {}".format,
        st.sampled_from(["+", "-", "plus", "minus"]),
        st.one_of(
            st.sampled_from(["noise", "tolerance", *AMOUNTS]),
            st.builds("max({}, {})".format, st.sampled_from(["5%", *AMOUNTS]), st.sampled_from(AMOUNTS)),
        ),
    ),
    st.just("baseline"),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["last run", "the last 3 runs of main", "median of the last 3 runs before the newest"]),
        st.sampled_from(["+", "minus"]),
        st.sampled_from(["noise", *AMOUNTS]),
    ),
)
WRITTEN = st.one_of(
    st.builds(
        "{} {} {} {} {}".format,
        st.sampled_from([*SELECTORS, "balance of", "balance", "pipeline"]),
        st.sampled_from(NAMES),
        st.sampled_from(BEHIND),
        st.sampled_from([*COMPARISONS]),
        LIMITS,
    ),
    st.builds(
        "{} {} within {} of {}".format,
        st.sampled_from(SELECTORS),
        st.sampled_from(NAMES),
        st.sampled_from(["noise", "tolerance", "max(5%, 50us)", *AMOUNTS]),
        st.sampled_from(["baseline", "last 3 runs of main"]),
    ),
    st.builds(
        "no {} {}".format,
        st.sampled_from(SELECTORS),
        st.sampled_from([*NAMES, "new kernels", "vanished kernels", "new or vanished kernels above 2%"]),
    ),
)


@given(WRITTEN)
def test_what_the_loader_accepts_an_editor_accepts(sentence: str) -> None:
    try:
        asked(sentence, ["pp"])  # which looks at the expressions
        event("accepted")
    except SentenceMistake:
        event("refused")


@pytest.mark.parametrize("unit", UNITS)
def test_some_sentence_of_each_unit_is_accepted(unit: str) -> None:
    """So that the test above looks at something: of every unit, under every comparison that it takes."""
    found = []
    for name in of_unit(unit) or ["balance of compute_ns across pp"]:
        for comparison in COMPARISONS:
            for limit in ("3ms", "60%", "3", "3GiB", "3GB/s", "3samples/s", "3tokens/s", "0.3", "baseline"):
                try:
                    asked(f"{name} {comparison} {limit}", ["pp"])
                except SentenceMistake:
                    continue
                found.append((comparison, limit))
                assert limit == "baseline" or re.search(EARLY, f"{comparison} {limit}")
    assert found


def expressions() -> Iterator[str]:
    """Every expression of the schemas of the package."""
    for path in Path(pytest_nsys.__file__).parent.rglob("*.schema.json"):
        todo: list[Any] = [json.loads(path.read_text(encoding="utf-8"))]
        while todo:
            part = todo.pop()
            if isinstance(part, dict):
                yield from (part[key] for key in ("pattern",) if isinstance(part.get(key), str))
            todo += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []


def test_expressions_are_those_of_javascript_too() -> None:
    regress = pytest.importorskip("regress")
    found = {*expressions()}
    assert {SENTENCE, NAMED} <= found
    for expression in found:
        editors = regress.Regex(expression, "u")
        for text in [*REFUSED, "stage3 overlap >= 60%", "no mixed comm streams", "exposed ns < 50 µs", ">= 60%", "5%"]:
            assert (editors.find(text) is not None) == (re.search(expression, text) is not None), (expression, text)


def test_no_text_keeps_an_expression_busy() -> None:
    """A sentence of the greatest length that nearly fits."""
    for text in ("overlap " * 62, "no " * 166, "a " * 240 + "exposed_ns of", "balance of compute_ns across pp " * 15):
        assert re.search(SENTENCE, text + " < 3x") is None


# -- what is offered


def filled(body: Any) -> Any:
    """A snippet as it is written where nothing is typed over its places."""
    if isinstance(body, dict):
        return {filled(key): filled(value) for key, value in body.items()}
    if isinstance(body, list):
        return [filled(each) for each in body]
    return re.sub(r"\$\{[0-9]+:([^}]*)\}", r"\1", body)


def written(**keys: Any) -> str:
    """A gate file."""
    whole = {"version": 1, "run": {"pp": 2}, "tolerance": {"rel": "5%", "abs": "50us"}, "assertions": ["no syncs"]}
    return yaml.safe_dump(whole | keys, sort_keys=False)


WAIVED = {"id": filled(WAIVER.body)["assertion"], "assert": "exposed_ns < 2ms"}


@pytest.mark.parametrize(
    "text",
    [
        *(written(assertions=[filled(each.body)]) for each in (*SENTENCES, *MAPPINGS)),
        *(written(tolerance=filled(each.body)) for each in TOLERANCES),
        written(assertions=[WAIVED], waivers=[filled(WAIVER.body)]),
        yaml.safe_dump(filled(FILE.body)),
    ],
)
def test_snippets_are_what_a_gate_file_may_hold(text: str) -> None:
    assert (loads(text), validates(text)) == ("", "")


def test_places_of_a_snippet_are_gone_through_in_order() -> None:
    for each in (*SENTENCES, *MAPPINGS, *TOLERANCES, WAIVER, FILE):
        places = [int(number) for number in re.findall(r"\$\{([0-9]+):", json.dumps(each.body))]
        assert places == [*range(1, len(places) + 1)], each.label


def test_everything_is_offered() -> None:
    assert [*CONVENTIONS] == [*BUILT_IN_CONVENTIONS]
    assert {*WINDOWS} == {*WINDOW_WORDS}
    assert {*DIMENSIONS} == {dimension for metric in METRICS.values() for dimension in metric.dimensions}
