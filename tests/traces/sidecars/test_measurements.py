"""A file of measurements: read exactly, and refused by one line that names file and entry."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.core.errors import TraceError, UsageMistake
from pytest_nsys.traces.sidecars.measurements import LARGEST_FILE_BYTES, find_measurement_files, read_measurements


def written(folder: Path, content: object, name: str = "m.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def entry(**more: Any) -> dict[str, Any]:
    return {"metric": "x", "value": 1, **more}


def test_an_entry_says_metric_value_unit_direction_and_labels(tmp_path: Path) -> None:
    (found,) = read_measurements(
        written(
            tmp_path,
            [
                {
                    "metric": "peak memory",
                    "value": 70.1,
                    "unit": "GiB",
                    "better": "lower",
                    "labels": {"rank": 3, "phase": "decode"},
                    "commit": "0123abc",
                    "run": {"world": 8},
                }
            ],
        )
    )
    assert (found.metric, found.value, found.unit, found.better) == ("peak_memory", Fraction(701, 10), "GiB", "lower")
    assert (found.labels, found.commit, found.run) == ({"rank": 3, "phase": "decode"}, "0123abc", {"world": 8})
    assert found.location == f"{tmp_path}/m.json: entry 1 (peak memory)"


def test_plain_numbers_have_no_unit_and_no_direction_whatever_their_names_end_in(tmp_path: Path) -> None:
    path = written(tmp_path, {"loss": 2.25, "peak_gib": 71, "commit": "0123abc", "run": "night-7"})
    assert [(m.metric, m.value, m.unit, m.better, m.commit, m.run) for m in read_measurements(path)] == [
        ("loss", Fraction(9, 4), "1", None, "0123abc", "night-7"),
        ("peak_gib", 71, "1", None, "0123abc", "night-7"),
    ]


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        ("46.25", "%", (Fraction(37, 80), "%")),
        ("1.5", "ms", (1_500_000, "ns")),
        ("2", "µs", (2000, "ns")),
        ("1536", "MiB", (Fraction(3, 2), "GiB")),
        ("2.5", "GB", (2_500_000_000, "bytes")),
        ("412250", "GFLOP/s", (Fraction(1649, 4), "TFLOP/s")),
        ("1e3", "tokens/s", (1000, "tokens/s")),
        ("12", "count", (12, "count")),
        ("0.1", None, (Fraction(1, 10), "1")),
        ("85", "°C", (85, "°C")),
        ("7", "img/s", (7, "img/s")),
        ("-0.5", "J/token", (Fraction(-1, 2), "J/token")),
        ("-0.5", None, (Fraction(-1, 2), "1")),
        ("-3", "%", (Fraction(-3, 100), "%")),
        ("0", "count", (0, "count")),
        ("0", "bytes", (0, "bytes")),
        ("0", "GiB", (0, "GiB")),
    ],
)
def test_a_value_is_exact_in_the_unit_that_it_is_judged_in(
    tmp_path: Path, value: str, unit: str | None, expected: tuple[object, str]
) -> None:
    path = written(tmp_path, f'[{{"metric": "x", "value": {value}, "unit": {json.dumps(unit)}}}]')
    (found,) = read_measurements(path)
    assert (found.value, found.unit) == expected
    assert isinstance(found.value, int) is isinstance(expected[0], int)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=17, min_value=-(10**20), max_value=10**20))
def test_decimals_are_never_floats(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = written(tmp_path_factory.mktemp("exact"), f'{{"x": {value:f}}}')
    assert read_measurements(path)[0].value == Fraction(str(value))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is not JSON: line 1: Expecting value"),
        ("[\n{]", "is not JSON: line 2: "),
        ("[" * 100_000, "nested too deeply"),
        ("3", "is a list of entries, or an object of numbers by name, not 3"),
        ("[]", "holds no measurement"),
        ("{}", "holds no measurement"),
        ('{"commit": "0123abc"}', "holds no measurement"),
        (entry(), "is a list of entries, or an object of numbers by name, not one entry"),
        ([3], "entry 1 is not an object with a metric and a value: 3"),
        ('{"x": 1, "x": 2}', "'x' appears twice in one object"),
        ('{"x": NaN}', "'x': NaN is not a value that can be judged"),
        ('{"x": -Infinity}', "'x': -Infinity is not a value that can be judged"),
        ('{"x": 1e101}', "'x': 1e101 is not a value that can be judged"),
        ('{"x": 1e-999999999}', "'x': 1e-999999999 is not a value that can be judged"),
        ('{"x": %s}' % ("1" * 5000), "is not a value that can be judged"),
        ({"x": "3"}, "'x': \"3\" is not a number"),
        ({"x": True}, "'x': true is not a number"),
        ({"x": None}, "'x': null is not a number"),
        ({"x": {"y": 1}}, "'x': {\"y\": 1} is not a number"),
        ([entry(value="3")], 'entry 1 (x): "3" is not a number'),
        ([entry(), entry(unti="ms")], "entry 2 (x): unknown key 'unti' (did you mean 'unit'?)"),
        ([{"value": 1}], 'entry 1: "metric" is the name of what was measured, not null'),
        ([{"metric": "x"}], 'entry 1 (x): "value" is missing'),
        ([entry(unit=3)], '"unit" is text, not 3'),
        ([entry(unit="gb")], "unknown unit 'gb' (did you mean 'GB'?)"),
        ([entry(unit="pp")], "'pp' is not a unit"),
        ([entry(unit="USD per token")], "'USD per token' is not a unit: write ns, us, ms, s, %"),
        ([entry(unit="hash")], "'hash' is not a unit"),
        ([entry(value=1.5, unit="count")], "a count is a whole number, not 1.5"),
        ([entry(value=-1, unit="GiB")], "entry 1 (x): a measured -1 GiB is impossible: write what was measured"),
        ([entry(value=-0.5, unit="ms")], "a measured -0.5 ms is impossible"),
        ([entry(value=0, unit="ms")], "a measured 0 ms is impossible"),
        ([entry(value=-5, unit="tokens/s")], "a measured -5 tokens/s is impossible"),
        ([entry(value=0, unit="MHz")], "a measured 0 MHz is impossible"),
        ([entry(value=0.0, unit="GFLOP/s")], "a measured 0 GFLOP/s is impossible"),
        ([entry(value=0, unit="img/s")], "a measured 0 img/s is impossible"),
        ([entry(value=0, unit="tokens/sec")], "a measured 0 tokens/sec is impossible"),
        ([entry(value=0, unit="GHz")], "a measured 0 GHz is impossible"),
        ([entry(value=0, unit="s/it")], "a measured 0 s/it is impossible"),
        ([entry(value=-7, unit="req/min")], "a measured -7 req/min is impossible"),
        ([entry(value=-1, unit="count")], "a measured -1 count is impossible"),
        ([entry(value=-1, unit="bytes")], "a measured -1 bytes is impossible"),
        ([entry(better="up")], '"better" is lower or higher, not "up"'),
        ([entry(labels=[1])], '"labels" is an object of names and labels, not [1]'),
        ([entry(labels={"a b": 1})], "'a b' is not a name for a label"),
        ([entry(labels={"value": 1})], "'value' is not a name for a label"),
        ([entry(labels={"phase": 1.5})], "the label phase is a word or a whole number, not"),
        ([entry(labels={"phase": True})], "the label phase is a word or a whole number, not true"),
        ([entry(labels={"rank": "3"})], 'the label rank is the number of a rank, not "3"'),
        ([entry(labels={"rank": -1})], "the label rank is the number of a rank, not -1"),
        ([entry(commit="main")], '"commit" is the hash of a commit, 7 to 40 digits, not "main"'),
        ([entry(run=[1])], '"run" is a name, or circumstances'),
        ([entry(metric="\x1b[31m")], '"metric" is the name of what was measured'),
    ],
)
def test_a_broken_file_is_one_line_that_names_file_and_entry(tmp_path: Path, content: object, what: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(TraceError) as error:
        read_measurements(path)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{path}: ")
    assert what in line
    assert line.isprintable()


def test_each_broken_entry_has_its_line_up_to_five(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as error:
        read_measurements(written(tmp_path, [entry(value="a")] * 7))
    lines = [line.strip() for line in str(error.value).splitlines()]
    assert [line.split(": ")[1] for line in lines[:5]] == [f"entry {n} (x)" for n in range(1, 6)]
    assert lines[5:] == ["and 2 more"]


def test_a_file_that_is_no_text_too_large_or_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"\xff": 1}')
    (tmp_path / "large.json").write_bytes(b" " * (LARGEST_FILE_BYTES + 1))
    for name, what in {
        "latin.json": "is not UTF-8",
        "large.json": "is larger than 16 MiB",
        "gone": "cannot be read",
    }.items():
        with pytest.raises(TraceError, match=f"{name}: {what}"):
            read_measurements(tmp_path / name)


def test_a_path_means_a_file_and_a_glob_the_files_of_one_capture(tmp_path: Path) -> None:
    for name in ("rank1.json", "rank0.json", "[x].json"):
        written(tmp_path, {"x": 1}, name)
    assert [path.name for path in find_measurement_files("rank*.json", tmp_path)] == ["rank0.json", "rank1.json"]
    assert [path.name for path in find_measurement_files("[x].json", tmp_path)] == ["[x].json"]
    for value, what in {
        "gone.json": "there is no such file",
        "no*.json": "matches no file",
        ".": "is not a file: give",
    }.items():
        with pytest.raises(UsageMistake, match=what):
            find_measurement_files(value, tmp_path)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
KEYS = st.sampled_from(["metric", "value", "unit", "better", "labels", "commit", "run", "x", ""])
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))


@given(VALUES | st.lists(st.dictionaries(KEYS, VALUES, max_size=7), max_size=3))
def test_any_json_is_read_or_refused_by_its_name(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    path = written(tmp_path_factory.mktemp("any"), json.dumps(content))
    try:
        found = read_measurements(path)
    except TraceError as error:
        lines = str(error).splitlines()
        assert all(line.isprintable() for line in lines)
        assert lines[0].startswith(f"{path}: ")
    else:
        assert all(isinstance(each.value, int | Fraction) and each.unit and each.location for each in found)
