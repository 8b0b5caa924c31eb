"""What do several accepted runs of a row amount to, and which stored baseline is the nearest to a run?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_nsys.analysis.circumstances import Key
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.model import Value
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.gates.judgement import NotComparable
from pytest_nsys.gates.verdict import Outcome
from pytest_nsys.stored.baselines.baseline_file import Baseline, RowLabels, Series, loads
from pytest_nsys.stored.baselines.store import BaselineStore
from pytest_nsys.verdicts.references import StoredBaseline


def series(unit: str, *runs: Sequence[Value], calibration: Sequence[Sequence[Value]] = ()) -> Series:
    """Two rows, rank 0 and 1, of which each run has a pair of values."""
    rows: dict[RowLabels, list[Value]] = {(rank,): [run[rank] for run in runs] for rank in (0, 1)}
    noise: dict[RowLabels, list[Value]] = {}
    if calibration:
        noise = {(rank,): [run[rank] for run in calibration] for rank in (0, 1)}
    return Series(unit, "lower", ("rank",), rows, noise)


def test_of_several_accepted_runs_the_median_counts_by_row() -> None:
    three = series("ns", (1, 30), (5, 10), (2, 20))
    assert three.middles == {(0,): 2, (1,): 20}
    assert series("ns", (1, 30), (4, 10)).middles == {(0,): Fraction(5, 2), (1,): 20}
    assert three.runs == [{(0,): 1, (1,): 30}, {(0,): 5, (1,): 10}, {(0,): 2, (1,): 20}]


def test_of_several_accepted_fingerprints_the_newest_counts() -> None:
    """They are no amounts: neither the oldest nor what lies between two of them ran last."""
    assert series("hash", (10, 11), (30, 31), (20, 21)).middles == {(0,): 20, (1,): 21}


def test_accepted_runs_that_are_traces_of_the_calibration_are_told_by_all_of_their_rows() -> None:
    found = series("ns", (1, 2), (1, 3), (4, 5), (5, 4), calibration=[(4, 5), (1, 3), (9, 9), (9, 8), (7, 7)])
    assert found.among_calibration == {1, 2}
    assert series("ns", (1, 2)).among_calibration == frozenset()
    assert series("ns").runs == []


HOW = '"window": "median", "span": "range", "kernels": "contained"'
FILE = f"""{{
"format": 1,
"gate": "g.nsys.yaml",
"key": {{"world": 2}},
"facts": {{"anchor": ["step"]}},
"provenance": {{"reason": "why"}},
"series": [
{{"metric": "busy_ns", "definition": 1, {HOW}, "unit": "ns", "better": null, "dimensions": ["rank", "stage"], "rows": [
 [0, "stage2_f", [200000]],
 [0, "stage4_f", [200000]]
]}},
{{"metric": "comm_ns", "definition": 1, {HOW}, "unit": "ns", "better": "lower", "dimensions": ["rank"], "rows": [
 [0, [1, 3], [1, 2, 3, 4, 5]],
 [1, ["5/2", 4], [5, 4, 3, 2, 1]]
]}}
],
"breakdowns": [
{{{HOW}, "names": ["gemm"], "parts": [
 [0, "compute of window", [[0, 5]]],
 [0, "exposed of window", []],
 [0, "launch of window", []],
 [0, "idle of window", []],
 [0, "compute", []],
 [0, "barriers", []]
]}}
]
}}
"""


def test_a_file_is_read_to_what_was_written() -> None:
    baseline = loads(FILE.encode(), "b.json")
    one, two = baseline.series.values()
    assert one.rows == {(0, "stage2_f"): [200_000], (0, "stage4_f"): [200_000]}
    assert two.rows == {(0,): [1, 3], (1,): [Fraction(5, 2), 4]}
    assert two.calibration == {(0,): [1, 2, 3, 4, 5], (1,): [5, 4, 3, 2, 1]}
    assert baseline.dumps() == FILE


ROW = '[0, "stage2_f", [200000]]'
BROKEN = {
    "cut short": (FILE[300:], FILE[300:320], "line "),
    "a merge conflict": (ROW, f"<<<<<<< HEAD\n{ROW}\n=======\n{ROW}\n>>>>>>> branch", "line "),
    "no object": (FILE, "[]", "the file is no object"),
    "nothing": (FILE, "", "line 1: "),
    "no series": ('"series"', '"serie"', "$: 'series' is a required property"),
    "a later format": ('"format": 1', '"format": 2', "format 2 is not 1: written by another"),
    "a format that is no number": ('"format": 1', '"format": true', "format True is not 1"),
    "a key twice": ('"gate":', '"format": 1, "gate":', "a key comes twice"),
    "a series twice": ("comm_ns", "busy_ns", "a series comes twice"),
    "a row twice": ('[0, "stage4_f"', '[0, "stage2_f"', 'the row [0, "stage2_f"] of busy_ns comes twice'),
    "a row without values": ("[200000]", "[]", "does not fit its dimensions"),
    "values that are no list": ("[200000]", "5", "does not fit its dimensions"),
    "a row too short": ('[0, "stage2_f", ', "[0, ", "does not fit its dimensions"),
    "a row of labels alone": (', "stage2_f", [200000]]', "]", "does not fit its dimensions"),
    "a row too long": ("[200000]]", "[200000], [1, 2, 3, 4, 5], [6]]", "does not fit its dimensions"),
    "a calibration of nothing": ("[1, 2, 3, 4, 5]", "[]", "does not fit its dimensions"),
    "a calibration of four": ("[1, 2, 3, 4, 5]", "[1, 2, 3, 4]", "has 4 calibration values, and 5 are the fewest"),
    "calibrations of several lengths": ("[1, 2, 3, 4, 5]", "[1, 2, 3, 4, 5, 6]", "different numbers of calibration"),
    "rows of several accepted runs": ("[200000]", "[1, 2]", "different numbers of accepted runs"),
    "a number with a point": ("200000", "200000.5", "200000.5 is no value"),
    "not a number": ("200000", "NaN", "NaN is no value"),
    "text for a number": ("200000", '"1/0"', "'1/0' is no value"),
    "an endless number": ("200000", "1e999", "1e999 is no value"),
    "an endless number in a breakdown": ('[0, "compute of', '[1e999, "compute of', "1e999 is no value"),
    "a value of null": ("200000", "null", "None is no value"),
    "a label that is a list": ('"stage2_f"', "[]", "a label that is no text or number"),
    "a label with a point": ('"stage2_f"', "0.5", "a label that is no text or number"),
    "facts that are a list": ('{"anchor"', '[[1], {"anchor"', "line "),
    "facts that are a number": ('{"anchor": ["step"]}', "3", "$.facts: 3 is not of type 'object'"),
    "nested without end": (FILE, "[" * 100_000, ""),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_in_a_baseline_is_said_in_one_line(case: str) -> None:
    old, new, what = BROKEN[case]
    assert old in FILE
    with pytest.raises(BaselineError) as caught:
        loads(FILE.replace(old, new, 1).encode(), "b.json")
    said = str(caught.value)
    assert said.startswith("b.json: is no baseline: ")
    assert what in said
    assert said.endswith("restore it from git, or delete it and refresh")
    assert "\n" not in said


# The nearest of several stored keys


def key(**differing: object) -> Key:
    own: dict[str, Any] = {"convention": "c", "mesh": None, "micro_batch": 1, "sequence_length": 2, "world": 4}
    return Key(**{**own, "gpu": "H100", **differing})


class Run:
    """What a baseline is asked for on behalf of a run: its key and the circumstances beside it."""

    facts: Mapping[str, object] = {}
    convention = SimpleNamespace(name="pithtrain")

    def key(self, _: object) -> Key:
        return key()


def stored(folder: Path, *keys: Key, comparable_on: tuple[str, ...] | None = None) -> StoredBaseline:
    store = BaselineStore(folder / "g", "g.nsys.yaml")
    for each in keys:
        store.save(store.path(each), Baseline(each.as_json(), "g.nsys.yaml"))
    gate = GateFile(folder / "g.nsys.yaml", (), BUILT_IN["pithtrain"], comparable_on=comparable_on)
    return StoredBaseline(Run(), gate, store)  # type: ignore[arg-type]


def why(source: StoredBaseline) -> NotComparable:
    found = source._found
    assert isinstance(found, NotComparable)
    return found


FAR, NEAR = key(world=8, gpu="A100", micro_batch=2), key(world=16)


@pytest.mark.parametrize("keys", [(FAR, NEAR), (NEAR, FAR), (NEAR, FAR, key(world=8, gpu="B200"))])
def test_of_several_stored_keys_the_nearest_says_what_differs(tmp_path: Path, keys: tuple[Key, ...]) -> None:
    found = why(stored(tmp_path, *keys))
    assert found.outcome is Outcome.INCOMPARABLE
    assert [(d.name, d.now, d.baseline) for d in found.differences] == [("world", "4", "16")]
    assert f"{NEAR.digest}.json is of another run (world: now 4, baseline 16)" in found.reason


def test_the_own_key_is_taken_whatever_else_is_stored(tmp_path: Path) -> None:
    source = stored(tmp_path, NEAR, key(), FAR)
    assert source.path == tmp_path / "g" / f"{key().digest}.json"


def test_nothing_stored_is_no_data(tmp_path: Path) -> None:
    found = why(stored(tmp_path))
    assert (found.outcome, found.differences) == (Outcome.NO_DATA, ())
    assert stored(tmp_path).path is None


def test_the_one_that_agrees_on_what_is_named_is_taken(tmp_path: Path) -> None:
    one = stored(tmp_path, FAR, NEAR, comparable_on=("gpu",))
    assert one.path == tmp_path / "g" / f"{NEAR.digest}.json"


def test_two_that_agree_alike_are_a_mistake(tmp_path: Path) -> None:
    both = stored(tmp_path, NEAR, key(world=32), FAR, comparable_on=("gpu",))
    names = ", ".join(sorted(f"{each.digest}.json" for each in (NEAR, key(world=32))))
    with pytest.raises(BaselineError, match=f"{names} agree alike on what comparable_on names"):
        _ = both.path
