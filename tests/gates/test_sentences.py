"""Sentences: what each one asks for, and what a mistaken one is told, with the column."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.gates.limits import SentenceMistake, parse_requirement
from pytest_nsys.gates.model import (
    Aggregate,
    Assertion,
    BaselineLimit,
    Comparator,
    Constant,
    Tolerance,
    build_limit_target,
)
from pytest_nsys.gates.sentences import is_aggregate_word
from tests.support.gate_files import asked

AXES = ("pp", "dp", "cp", "ep")
SIXTY = Fraction(3, 5)
WOULD = "would fail an unchanged run:"
TOLERANCE = Tolerance(Fraction(1, 20), {"ns": Fraction(50_000)})
TOLERANCE_US = Tolerance(absolute={"ns": Fraction(50_000)})


def parsed(text: str, tolerance: Tolerance | None = TOLERANCE) -> Assertion:
    return asked(text, AXES, tolerance)


def labels(sentence: Assertion) -> dict[str, tuple[str, ...]]:
    return {dimension: selector.values for dimension, selector in sentence.where.items()}


def test_whole_percentiles_are_aggregates() -> None:
    assert [is_aggregate_word(word) for word in ("p1", "p9", "p10", "p99", "median", "stage3", "p")] == [True] * 5 + [
        False
    ] * 2
    for word in ("p0", "p00", "p01", "p099", "p100", "p990", "p1000", "p" + "9" * 6_000):
        with pytest.raises(ValueError, match="percentiles are p1 to p99"):
            is_aggregate_word(word)
    with pytest.raises(ValueError, match="percentiles are whole"):
        is_aggregate_word("p99.9")


@pytest.mark.parametrize(
    ("text", "metric", "where", "word", "comparator", "limit"),
    [
        ("stage3 overlap >= 60%", "overlap", {"stage": "stage3"}, None, ">=", SIXTY),
        ("stage2_* overlap>=60%", "overlap", {"stage": "stage2_*"}, None, ">=", SIXTY),
        ("[!s]* overlap != 60%", "overlap", {"stage": "[!s]*"}, None, "!=", SIXTY),
        ("median stage2_f overlap >= 60%", "overlap", {"stage": "stage2_f"}, "median", ">=", SIXTY),
        ("median of stage2_f overlap >= 60%", "overlap", {"stage": "stage2_f"}, "median", ">=", SIXTY),
        ("stage2_f max overlap >= 60%", "overlap", {"stage": "stage2_f"}, "max", ">=", SIXTY),
        ("rank 3 exposed_ns < 2ms", "exposed_ns", {"rank": "3"}, None, "<", 2_000_000),
        ("rank 03 exposed_ns < 2ms", "exposed_ns", {"rank": "3"}, None, "<", 2_000_000),
        ("stage2_f rank 0 overlap at least 60%", "overlap", {"stage": "stage2_f", "rank": "0"}, None, ">=", SIXTY),
        ("stage stage2_f overlap at  most 60 %", "overlap", {"stage": "stage2_f"}, None, "<=", SIXTY),
        ("pp 1 compute_ns < 30ms", "compute_ns", {"pp": "1"}, None, "<", 30_000_000),
        ("exposed_ns below 2 ms", "exposed_ns", {}, None, "<", 2_000_000),
        ("wall overlap above 60%", "wall_overlap", {}, None, ">", SIXTY),
        ("p90 wall overlap above 60%", "wall_overlap", {}, "p90", ">", SIXTY),
        ("comm_streams == 3", "comm_streams", {}, None, "==", 3),
        ("ep_a2a comm streams == 2", "comm_streams", {"purpose": "ep_a2a"}, None, "==", 2),
        ("p50 period_ns < 50ms", "period_ns", {"quantile": "p50"}, None, "<", 50_000_000),
        ("p50 of period_ns < 50ms", "period_ns", {"quantile": "p50"}, None, "<", 50_000_000),
        ("p90 p50 period_ns < 50ms", "period_ns", {"quantile": "p50"}, "p90", "<", 50_000_000),
        ("max quantile p99 period_ns < 1s", "period_ns", {"quantile": "p99"}, "max", "<", 1_000_000_000),
        ("p50 rank 3 period_ns < 50ms", "period_ns", {"quantile": "p50", "rank": "3"}, None, "<", 50_000_000),
        ("busbw >= 40GB/s", "busbw", {}, None, ">=", 40),
        ("min busbw >= 40GB/s", "busbw", {"statistic": "min"}, None, ">=", 40),
        ("min AllReduce busbw >= 40GB/s", "busbw", {"statistic": "min", "collective": "AllReduce"}, None, ">=", 40),
        ("AllReduce min busbw >= 40GB/s", "busbw", {"statistic": "min", "collective": "AllReduce"}, None, ">=", 40),
        ("min of busbw of AllReduce >= 4GB/s", "busbw", {"statistic": "min", "collective": "AllReduce"}, None, ">=", 4),
        ("min median busbw >= 40GB/s", "busbw", {"statistic": "median"}, "min", ">=", 40),
        ("median max busbw >= 40GB/s", "busbw", {"statistic": "max"}, "median", ">=", 40),
        ("p10 busbw >= 40GB/s", "busbw", {}, "p10", ">=", 40),
        ("min statistic mean busbw >= 40GB/s", "busbw", {"statistic": "mean"}, "min", ">=", 40),
        ("statistic * busbw >= 40GB/s", "busbw", {"statistic": "*"}, None, ">=", 40),
        ("no mixed comm streams", "comm_streams", {"purpose": "mixed"}, None, "==", 0),
        ("no unknown comm_streams", "comm_streams", {"purpose": "unknown"}, None, "==", 0),
        ("no barrier_ns", "barrier_ns", {}, None, "==", 0),
        ("no syncs", "syncs", {}, None, "==", 0),
    ],
)
def test_sentences_with_constants(
    text: str, metric: str, where: dict[str, str], word: str | None, comparator: str, limit: Fraction
) -> None:
    sentence = parsed(text)
    assert sentence.metric == metric
    assert labels(sentence) == {dimension: (value,) for dimension, value in where.items()}
    assert sentence.aggregates == ((Aggregate(word),) if word else ())
    assert sentence.requirement.comparator == Comparator(comparator)
    assert sentence.requirement.limit == Constant(Fraction(limit))
    assert sentence.balance_across is None


@pytest.mark.parametrize(
    ("text", "comparator", "tolerance"),
    [
        ("exposed_ns below baseline plus tolerance", "<=", TOLERANCE),
        ("exposed_ns <= baseline + tolerance", "<=", TOLERANCE),
        ("overlap above baseline minus tolerance", ">=", TOLERANCE),
        ("max exposed_ns <= baseline + max(5%, 50us)", "<=", TOLERANCE),
        ("exposed_ns <= baseline+max( 50us ,5% )", "<=", TOLERANCE),
        ("exposed_ns at most baseline plus 5%", "<=", Tolerance(Fraction(1, 20))),
        ("exposed_ns <= baseline + 50us", "<=", TOLERANCE_US),
        ("overlap >= baseline - 3pp", ">=", Tolerance(absolute={"%": Fraction(3, 100)})),
        ("launches <= baseline + 2", "<=", Tolerance(absolute={"count": Fraction(2)})),
        ("exposed_ns <= baseline + noise", "<=", Tolerance(noise_only=True)),
        ("exposed_ns below baseline plus noise", "<=", Tolerance(noise_only=True)),
        ("overlap >= baseline - noise", ">=", Tolerance(noise_only=True)),
        ("median overlap at least baseline minus noise", ">=", Tolerance(noise_only=True)),
        ("launches == baseline", "==", None),
        ("exposed_ns <= baseline", "<=", None),
        ("exposed_ns below baseline", "<=", None),
    ],
)
def test_sentences_with_a_baseline(text: str, comparator: str, tolerance: Tolerance | None) -> None:
    sentence = parsed(text)
    assert sentence.requirement.comparator == Comparator(comparator)
    assert sentence.requirement.limit == BaselineLimit(tolerance)


def test_a_balance_is_judged_as_a_bare_ratio() -> None:
    sentence = parsed("balance of compute_ns across pp <= 1.1")
    assert (sentence.metric, sentence.balance_across) == ("compute_ns", "pp")
    assert sentence.requirement.limit == Constant(Fraction(11, 10))
    chosen = parsed("stage2_f balance of comm_ns across dp <= baseline + 0.1")
    assert labels(chosen) == {"stage": ("stage2_f",)}
    assert chosen.requirement.limit == BaselineLimit(Tolerance(absolute={"1": Fraction(1, 10)}))


def test_the_requirement_keeps_its_words() -> None:
    assert parsed("exposed_ns   below baseline  plus tolerance").requirement.text == "below baseline plus tolerance"
    assert parsed("no syncs").requirement.text == "== 0"
    assert parse_requirement(" >=  60%", build_limit_target(METRICS["overlap"])).text == ">= 60%"
    assert parsed("stage3 overlap >= 60%").where["stage"] == Selector(("stage3",))


@pytest.mark.parametrize(
    ("text", "offset", "what"),
    [
        ("", 0, "the sentence is empty"),
        ("a " * 251 + ">= 60%", 0, "a sentence has at most 500 characters"),
        ("avg overlap >= 60%", 0, "'avg' is not a word here (did you mean 'mean'?)"),
        ("overlp >= 60%", 0, "unknown metric 'overlp' (did you mean 'overlap'?)"),
        ("stage3 overlp >= 60%", 7, "unknown metric 'overlp' (did you mean 'overlap'?)"),
        ("no mixed com streams", 9, "unknown metric 'com streams' (did you mean 'comm_streams'?)"),
        ("stage3 zzz >= 60%", 7, "unknown metric 'zzz'"),
        ("overlap stage3 >= 60%", 8, "'stage3' comes after the metric: write it before 'overlap'"),
        ("exposed_ns no worse than baseline", 11, "write: exposed_ns <= baseline"),
        ("overlap no worse than baseline", 8, "write: overlap >= baseline"),
        (">= 60%", 0, "the metric is missing before '>='"),
        (
            "stage3 overlap",
            14,
            "the comparison is missing: write one of <, <=, ==, !=, >=, >, below, above, at least, at most",
        ),
        ("overlap >=", 10, "the limit is missing after '>='"),
        ("overlap at least", 16, "the limit is missing after 'at least'"),
        ("overlap >= 60% please", 15, "'please' comes after the end of the limit"),
        ("overlap >= 60", 11, "overlap is a ratio: write 60%, not 60"),
        ("overlap >= nan", 11, "'nan' is not a number or 'baseline'"),
        ("overlap >= basline", 11, "'basline' is not a number or 'baseline' (did you mean 'baseline'?)"),
        ("exposed_ns < -5ms", 13, "a limit has no sign: write a number from 0 on, or baseline"),
        ("exposed_ns < 1_000 ns", 13, "'1_000 ns' is not a number: write it as in 60%, 1.5ms or 1000"),
        ("exposed_ns < 1,000 ns", 13, "'1,000 ns' is not a number"),
        ("overlap => 60%", 8, "'=>' is not a comparison (did you mean '>='?)"),
        ("overlap = 60%", 8, "'=' is not a comparison (did you mean '=='?)"),
        ("overlap ≥ 60%", 8, "'≥' is not a comparison (did you mean '>='?)"),
        ("exposed_ns <= baseline - 5%", 23, f"'<= baseline - …' {WOULD} write <= baseline + …"),
        ("overlap above baseline plus 3pp", 23, f"'>= baseline plus …' {WOULD} write >= baseline - …"),
        ("exposed_ns < baseline + 5%", 11, f"'< baseline' {WOULD} use <= or below"),
        ("overlap > baseline", 8, f"'> baseline' {WOULD} use >= or above"),
        ("launches != baseline", 9, "'!= baseline' would fail an unchanged run"),
        ("launches == baseline + 2", 21, "== takes the baseline exactly: write <= baseline + … or >= baseline - …"),
        ("exposed_ns <= baseline + 3pp", 25, "exposed_ns is a time: write it in ns, us, ms or s, not 3pp"),
        ("exposed_ns <= baseline + max(5%)", 31, "expected ',', not ')'"),
        ("exposed_ns <= baseline + max(5%, 6%)", 33, "max(…) takes one share and one amount, as in max(5%, 50us)"),
        ("exposed_ns <= baseline + max(5%, 50us", 37, "')' is missing"),
        ("exposed_ns <= baseline +", 24, "the tolerance is missing: write 5%, max(5%, 50us), 'tolerance' or 'noise'"),
        ("exposed_ns <= baseline + max(noise, 50us)", 29, "the measured noise counts beside every tolerance"),
        ("exposed_ns <= baseline + max(5%, noise)", 33, "the measured noise counts beside every tolerance"),
        ("exposed_ns <= baseline + noise + 5%", 31, "'+' comes after the end of the limit"),
        ("exposed_ns <= baseline - noise", 23, "'<= baseline - …' would fail an unchanged run"),
        ("exposed_ns <= noise", 14, "'noise' is not a number or 'baseline'"),
        ("exposed_ns <= baseline + nois", 25, "'nois' is not a tolerance such as 5% (did you mean 'noise'?)"),
        (
            "exposed_ns <= baseline + tolerence",
            25,
            "'tolerence' is not a tolerance such as 5% (did you mean 'tolerance'?)",
        ),
        ("rnk 3 exposed_ns < 2ms", 0, "exposed_ns has no dimension 'rnk' (did you mean 'rank'?)"),
        ("stage stage2_f barrier_ns < 2ms", 0, "barrier_ns has no dimension 'stage'"),
        ("rank exposed_ns < 2ms", 0, "a value is missing after 'rank', as in 'rank 3'"),
        ("rank x exposed_ns < 2ms", 5, "rank is a number, not 'x'"),
        ("3 exposed_ns < 2ms", 0, "'3' of which dimension? Write it as in 'rank 3'"),
        ("stage3 barrier_ns < 2ms", 0, "'stage3' selects nothing: barrier_ns has no dimension but rank"),
        ("stage2 stage3 overlap >= 60%", 7, "stage is selected twice: 'stage2' and 'stage3'"),
        ("max median overlap >= 60%", 4, "one aggregate at a time: 'max' or 'median'"),
        ("p100 overlap >= 60%", 0, "'p100': percentiles are p1 to p99"),
        ("p0 overlap >= 60%", 0, "'p0': percentiles are p1 to p99"),
        ("p75 period_ns < 2ms", 0, "a quantile is one of p50, p90, p99, mean, max, not 'p75'"),
        ("no", 2, "the metric is missing after 'no'"),
        ("no overlap", 0, "'no' is for times and counts: overlap is neither"),
        ("no syncs < 3", 9, "'no …' takes no limit: remove '<'"),
        ("statistic total busbw >= 4GB/s", 10, "a statistic is one of median, mean, min, max, not 'total'"),
        ("mean min median busbw >= 4GB/s", 5, "one aggregate at a time: 'mean' or 'min'"),
        ("no syncs here", 9, "'here' comes after the metric: write it before 'syncs'"),
        ("balance of compute_ns <= 1.1", 0, "a balance is written as in 'balance of compute_ns across pp'"),
        ("balance of compute_ns across tp <= 1.1", 29, "'tp' is not a mesh axis: the mesh axes are pp, dp, cp, ep"),
        (
            "balance of compute_ns across pp <= 10%",
            35,
            "balance of compute_ns is a number without unit: write 0.1, not 10%",
        ),
        ("max balance of compute_ns across pp <= 1.1", 0, "a balance takes no 'max'"),
        ("overlap >= baseline minus tolerance", 26, "the tolerance has nothing for overlap"),
    ],
)
def test_a_mistake_says_what_and_where(text: str, offset: int, what: str) -> None:
    with pytest.raises(SentenceMistake) as caught:
        parsed(text, TOLERANCE_US)
    assert caught.value.offset == offset
    assert str(caught.value).startswith(what)


def test_plus_tolerance_needs_one_in_the_file() -> None:
    with pytest.raises(SentenceMistake, match="there is no tolerance to add") as caught:
        parsed("exposed_ns below baseline plus tolerance", None)
    assert caught.value.offset == 31


def test_a_tolerance_that_is_the_noise_fits_every_metric() -> None:
    for sentence in ("exposed_ns below baseline plus tolerance", "overlap >= baseline - tolerance"):
        assert parsed(sentence, Tolerance(noise_only=True)).requirement.limit == BaselineLimit(
            Tolerance(noise_only=True)
        )


def test_a_warning_takes_constants_only() -> None:
    with pytest.raises(SentenceMistake, match="only a constant") as caught:
        parse_requirement(">= baseline", build_limit_target(METRICS["overlap"]), constant=True)
    assert caught.value.offset == 3


@pytest.mark.parametrize(("text", "offset"), [("60%", 0), ("  60%", 2), ("   ", 0)])
def test_a_requirement_needs_its_comparison(text: str, offset: int) -> None:
    with pytest.raises(SentenceMistake, match="the comparison is missing") as caught:
        parse_requirement(text, build_limit_target(METRICS["overlap"]))
    assert caught.value.offset == offset


WORDS = (
    "no max of median p50 p0 rank 3 stage stage2_f * overlap exposed_ns comm streams period_ns balance across "
    "pp below above at least most >= <= == != = < baseline plus minus + - tolerance noise max( 5% , 50us ) 3pp 2"
)


def offset_of_mistake(text: str) -> int:
    """Where the mistake in ``text`` is, 0 without one."""
    try:
        parsed(text)
    except SentenceMistake as mistake:
        return mistake.offset
    return 0


@given(st.lists(st.sampled_from(WORDS.split()), max_size=9).map(" ".join) | st.text(max_size=30))
def test_any_words_are_a_sentence_or_a_mistake_inside_them(text: str) -> None:
    assert 0 <= offset_of_mistake(text) <= len(text)
