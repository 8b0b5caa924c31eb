"""What judged a gate file before a branch gave it other configurations, and to which of their baselines is it held?

A new configuration beside unchanged ones is new, as a new gate file is. One that took the place of others, or of the
file without a matrix, is held to their baselines of its own key: else a branch would be its own judge by a new name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core.errors import BaselineError, GateFileError
from pytest_nsys.gates.comparability import differences, told
from pytest_nsys.gates.gate_file import load_gate_file, loads_gate_file
from pytest_nsys.gates.loosening_rules import Change, ChangeKind
from pytest_nsys.gates.model import GateFile
from pytest_nsys.stored.baselines.baseline_file import Baseline
from pytest_nsys.stored.baselines.store import BaselineStore, MergeBase

Key = Mapping[str, Any]


class Before(NamedTuple):
    """A configuration that is gone, or the file without one, and the keys of its baselines at the merge base."""

    gate: GateFile
    store: BaselineStore
    keys: Sequence[Key]


def gate_file_at(base: MergeBase) -> GateFile | None:
    """The gate file as it was; None where it was not there, or is of another version. Raises BaselineError."""
    text = base.snapshot.gate_file(base.gate)
    try:
        return loads_gate_file(text, path=base.gate) if text is not None else None
    except GateFileError:
        return None


def held_to(gate: GateFile, store: BaselineStore, key: Key) -> Before | None:
    """What a configuration took the place of, and is comparable with. None: it took nobody's place, or nobody can say
    whose. Raises BaselineError.
    """
    return _chosen(gate, key, _replaced(gate, store))


def then_and_now(gate: GateFile, store: BaselineStore) -> Iterator[tuple[Path, Baseline, Baseline]]:
    """Each baseline of a configuration in the work tree, and the one of the merge base whose place it takes: of one
    that replaced another configuration, the other one's. Raises BaselineError.
    """
    replaced = _replaced(gate, store)
    for path, now in store.here.all():
        if (before := _chosen(gate, now.key, replaced)) is None:
            with suppress(BaselineError):  # said where it is read
                if (then := store.at(path)) is not None:
                    yield path, then, now
        else:
            alike = (each for _, each in before.store.all() if not differences(now.key, each.key, gate.comparable_on))
            yield from ((path, then, now) for then in alike)


def not_held(path: Path, store_of: Callable[[GateFile], BaselineStore]) -> Iterator[Change]:
    """The configurations of a gate file that took the place of others, and are their own judges."""
    try:
        configurations = load_gate_file(path).each
    except GateFileError:  # said where it is collected
        return
    for gate in configurations:
        store = store_of(gate)
        before = _replaced(gate, store)
        known = [key for one in before for key in one.keys]
        for _, own in store.here.all() if known else ():
            if _chosen(gate, own.key, before) is None:
                fields = min((differences(own.key, key, gate.comparable_on) for key in known), key=len)
                why = told(fields) or "several had its key"
                was = ", ".join(one.gate.configuration for one in before if one.gate.configuration) or "the file"
                yield Change(
                    ChangeKind.LOOSENED, f"baseline [{gate.configuration}]", f"that of {was}", f"its own: {why}"
                )


def _replaced(gate: GateFile, store: BaselineStore) -> list[Before]:
    """What judged the file at the merge base and does so no more, where the configuration is new."""
    if store.base is None or store.base.is_as_it_was or (then := gate_file_at(store.base)) is None:
        return []
    before = {each.configuration: each for each in then.each}
    if gate.configuration in before:
        return []
    gone = {name: each for name, each in before.items() if name not in gate.names}
    stores = {name: store.of(name) for name in gone}
    return [Before(each, stores[name], [own.key for _, own in stores[name].all()]) for name, each in gone.items()]


def _chosen(gate: GateFile, key: Key, before: Sequence[Before]) -> Before | None:
    """The one of the same key; of several the one of the same trace."""
    alike = [one for one in before if any(not differences(key, each, gate.comparable_on) for each in one.keys)]
    same = [one for one in alike if one.gate.traces == gate.traces]
    return next((found[0] for found in (alike, same) if len(found) == 1), None)
