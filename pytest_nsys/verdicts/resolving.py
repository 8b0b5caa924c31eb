"""Under which convention is a gate file of ``convention: auto`` judged? Resolved once, before a key is formed of it.

The baseline that is stored says it, as it keeps the convention it was measured under; else the base; else the run
itself. Where the run alone would be read otherwise, the two are not comparable: an anchor that is another one measures
something else, and would be green by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_nsys.analysis.fitting import FitAlike
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import BaselineError, NsysError
from pytest_nsys.gates.model import Found, GateFile
from pytest_nsys.stored.baselines.baseline_file import BEFORE_AUTO, Baseline, kept_by
from pytest_nsys.stored.baselines.store import BaselineStore

Fitting = Callable[[], Convention]
"""Looks for the convention that a run fits. Raises UsageMistake, TraceError."""


def resolved(
    gate: GateFile,
    alone: Fitting,
    base: Fitting | None = None,
    store: BaselineStore | None = None,
    *,
    renewing: bool = False,
) -> GateFile:
    """The gate file with its convention: as it is, where that is named.

    ``alone`` is what the run is read under by itself, ``base`` what it is compared with is, ``store`` has the baselines
    it is held against; ``renewing``: it becomes one of them. Raises as the looking does.
    """
    if gate.convention is not None:
        return gate
    if base is not None:
        return _under(gate, base(), "base", alone)
    stored: list[Baseline] = []
    if store is not None:
        with contextlib.suppress(BaselineError):  # told by the assertions that are held against one
            stored = [baseline for _, baseline in store.all()]
    kept = [(convention, baseline) for baseline in stored if (convention := kept_by(baseline)) is not None]
    if not kept:
        return _under(gate, alone(), "trace", alone)
    known = [convention for convention, _ in kept]
    of_before = any(baseline.convention is None for _, baseline in kept)
    try:
        own = _alone(alone, known)
    except NsysError:
        if not of_before:
            raise
        own = None  # as it was before, when nobody looked
    if own is not None and own in known:
        return replace(gate, convention=own, found=Found("baseline", own))
    if of_before:
        return replace(gate, convention=BEFORE_AUTO, found=Found("baseline", None))
    return replace(gate, convention=own if renewing else known[0], found=Found("baseline", own))


def _under(gate: GateFile, convention: Convention, where: str, alone: Fitting) -> GateFile:
    return replace(gate, convention=convention, found=Found(where, _alone(alone, [convention])))


def _alone(alone: Fitting, others: Sequence[Convention]) -> Convention:
    """What the run alone is read under. Where it fits several alike and one of the ``others`` is among them, that."""
    try:
        return alone()
    except FitAlike as tie:
        among = next((convention for convention in others if convention.anchor in tie.anchors), None)
        if among is None:
            raise
        return among
