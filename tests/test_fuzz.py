"""Does broken input end in clear lines, and never in green? Some hundred inputs; ``python -m tests.fuzz`` runs more."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.fuzz.kinds import KINDS, LOOSE, OF_ROCPD, good, run
from tests.fuzz.trial import Finding, gate, total_time
from tests.fuzz.truth import Damaged, totals

INPUTS = {
    "exports": 12,
    "kineto": 20,
    "jax": 20,
    "rocpd": 12,
    "gates": 30,
    "matrices": 20,
    "sentences": 30,
    "measurements": 20,
    "baselines": 12,
    "histories": 7,
}
OF_NO_TRACE = ("gates", "matrices", "sentences", "measurements", "baselines", "histories")
"""These leave the trace whole, and break what is beside it."""


@pytest.mark.parametrize("kind", KINDS)
def test_some_inputs_of_each_kind(kind: str) -> None:
    found = {f"--seed 0 --kind {kind} --only {number}": run(kind, 0, number) for number in range(INPUTS[kind])}
    assert {which: each.failures for which, each in found.items() if each.failures} == {}
    if kind not in OF_NO_TRACE:
        some = any(each.green is not None for each in found.values())
        assert some, "no input is green: its gate file is red on the undamaged trace"


@pytest.mark.parametrize(
    ("kind", "seed", "number"), [("baselines", 12, 19), ("histories", 22, 253), ("histories", 23, 922)]
)
def test_inputs_that_failed_once(kind: str, seed: int, number: int) -> None:
    assert run(kind, seed, number).failures == []


def test_an_input_is_the_same_for_the_same_seed() -> None:
    assert run("exports", 0, 3).green == run("exports", 0, 3).green


@pytest.mark.parametrize(("name", "text"), [("good.sqlite", LOOSE), ("good.db", OF_ROCPD)])
def test_the_oracle_finds_what_the_reader_finds(tmp_path: Path, name: str, text: str) -> None:
    found = Finding()
    (tmp_path / "gate.nsys.yaml").write_text(text)
    gate(found, tmp_path / "gate.nsys.yaml", good(name), good(name))
    assert found.failures == []
    assert found.green is not None
    assert sorted(totals(good(name)).values()) == sorted(total_time(found.green).values())


@pytest.mark.parametrize("change", ["start = NULL", "globalPid = 'a'", "shortName = 9e999", "correlationId = X'00'"])
def test_the_oracle_sees_damage(tmp_path: Path, change: str) -> None:
    path = Path(shutil.copy(good(), tmp_path / "damaged.sqlite"))
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE new AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        database.execute("ALTER TABLE new RENAME TO CUPTI_ACTIVITY_KIND_KERNEL")
        database.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {change} WHERE rowid = 2")
        database.commit()
    with pytest.raises(Damaged):
        totals(path)
