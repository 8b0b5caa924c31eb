"""Is the part of the program that became slower named, in each format?"""

from pathlib import Path

import pytest

from pytest_nsys.analysis.scopes.changed_scope import find_changed_scope, list_scope_changes
from pytest_nsys.core.scopes import Direction, ScopeKind
from tests.analysis.scopes.test_paths import whole_run
from tests.support.scope_programs import LAYERS, MODULES, PASSES, WRITERS, Place, launches, name_module

FAULTS: list[Place] = [(layer, module, each) for layer in range(LAYERS) for module in MODULES for each in PASSES]


@pytest.mark.parametrize("format_name", WRITERS)
def test_each_fault_is_named(tmp_path: Path, format_name: str) -> None:
    name, write = WRITERS[format_name]
    assert len(FAULTS) == 18
    base = write(tmp_path / f"base_{name}", None)
    for number, (layer, module, direction) in enumerate(FAULTS):
        head = write(tmp_path / f"{number}_{name}", {(layer, module, direction): 1.2})
        with whole_run(base) as before, whole_run(head) as after:
            change = find_changed_scope(before, after)
            assert change is not None
            assert (change.kind, change.path, change.direction) == (
                ScopeKind.MODULE,
                name_module(format_name, layer, module),
                direction,
            )
            usual = MODULES[module] * (2 if direction is Direction.BACKWARD else 1)
            assert (change.change_ns, change.base.time_ns) == (round(0.2 * usual), usual)


def test_nothing_changed(tmp_path: Path) -> None:
    name, write = WRITERS["torch"]
    path = write(tmp_path / name, None)
    with whole_run(path) as before, whole_run(path) as after:
        assert find_changed_scope(before, after) is None
        changes = list_scope_changes(before, after, ScopeKind.MODULE)
        assert len(changes) == len([*launches()])
        assert {change.change_ns for change in changes} == {0}


def test_a_change_is_as_large_the_other_way_round(tmp_path: Path) -> None:
    name, write = WRITERS["nsys"]
    path = write(tmp_path / name, None)
    without = write(tmp_path / f"gone_{name}", {(1, "attn", Direction.FORWARD): 0})
    with whole_run(without) as before, whole_run(path) as after:
        longer = find_changed_scope(before, after)
        shorter = find_changed_scope(after, before)
    assert longer is not None
    assert shorter is not None
    assert (longer.path, longer.change_ns) == (shorter.path, -shorter.change_ns) == ("layers.1.attn", 10_000)
