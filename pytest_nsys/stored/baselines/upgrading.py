"""What do newer rules change for a gate file that is in use, as far as its stored baselines tell? Without a trace.

A baseline keeps the rows of every rank, and of the kernels of its windows the short names: what names no library, such
as the ``dispatch`` of DeepEP, shows in a run alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from math import prod
from typing import NamedTuple

from pytest_nsys.analysis.table import Coordinates, Table
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.families import KnownLibrary, known_communication
from pytest_nsys.core.model import Row
from pytest_nsys.gates.model import Assertion, GateFile
from pytest_nsys.gates.selection import Absence, absences, excuse
from pytest_nsys.stored.baselines.baseline_file import Baseline, Series, kept_by, series_for


class Upgrade(NamedTuple):
    """What changes, the line of the gate file that it is about, and what to write or run."""

    line: int
    what: str
    remedy: str


def upgrades(gate: GateFile, stored: Sequence[Baseline], refresh: str) -> list[Upgrade]:
    """What the rules of today say otherwise of the runs behind the baselines, each once.

    ``refresh`` is the command that stores the baselines anew.
    """
    read = [(replace(gate, convention=c), b) for b in stored if (c := gate.convention or kept_by(b)) is not None]
    found = [one for own, baseline in read for one in _libraries(own.resolved_convention, baseline, refresh)]
    excused: dict[str, list[tuple[Assertion, Absence]]] = {}
    for assertion in gate.assertions:
        lacking = {absence: None for own, baseline in read for absence in _lacking(own, assertion, baseline)}
        if lacking:
            excused.setdefault(excuse(lacking), []).append((assertion, next(iter(lacking))))
    for write, about in excused.items():
        assertion, absence = about[0]
        more = f", here and in {len(about) - 1} more of the file" if about[1:] else ""
        found.append(
            Upgrade(assertion.location.line, f"'{assertion.name}' is no data now: {absence}{more}", f"write {write}")
        )
    return list(dict.fromkeys(found))


def _libraries(convention: Convention, baseline: Baseline, refresh: str) -> Iterator[Upgrade]:
    """Kernels of known libraries that were compute when the baseline was stored."""
    times: Counter[str] = Counter()
    kernels = whole = 0
    known: set[KnownLibrary] = set()
    for breakdown in (each for ranks in baseline.breakdowns.values() for each in ranks.values()):
        whole += sum(kernel.length_ns for own in breakdown.communication.values() for kernel in own)
        whole += sum(barrier.length_ns for barrier in breakdown.barriers.values())
        for name, compute in breakdown.compute.items():
            whole += compute.length_ns
            if (library := known_communication(name, name)) is not None:
                known.add(library)
                times[name] += compute.length_ns
                kernels += compute.kernels
    if not known:
        return
    from pytest_nsys.analysis.doubts import Uncounted

    found = Uncounted(times, kernels, whole, frozenset(known))
    if all(convention.is_communication(name, name) for name in times):
        what = f"the stored baseline has {found.words}, and they are communication now: no run is comparable with it"
        yield Upgrade(1, what, f"run {refresh}")
    else:
        yield Upgrade(1, f"the stored baseline has {found.words}: an error now", found.remedy(convention))


def _lacking(gate: GateFile, assertion: Assertion, baseline: Baseline) -> Iterator[Absence]:
    """The ranks without a row that the assertion means, however the ranks lie on the pipeline."""
    series = baseline.series.get(series_for(gate.resolved_convention, assertion))
    if series is None:
        return
    pipelines = [_table(assertion, series, places) for places in _layouts(baseline.key)]
    each = [absences(table, assertion.where, assertion.allow_missing) for table in pipelines]
    for found in each[0]:
        stages = tuple(s for s in found.stages if all((found.rank, s) in _pairs(other) for other in each[1:]))
        if stages:
            yield found._replace(stages=stages)


def _pairs(found: Sequence[Absence]) -> set[tuple[int, str]]:
    return {(absence.rank, stage) for absence in found for stage in absence.stages}


def _table(assertion: Assertion, series: Series, places: Coordinates) -> Table:
    metric = assertion.measures
    return Table(
        series.dimensions, [*starmap(Row, series.middles.items())], places, {}, metric.every_stage, metric.without
    )


def _layouts(key: Mapping[str, object]) -> list[Coordinates]:
    """Where the ranks may stand in the pipeline, which no baseline says: in blocks, or in turn."""
    world, mesh = key.get("world"), key.get("mesh")
    sizes = mesh if isinstance(mesh, dict) else {}
    if not isinstance(world, int) or (sizes and prod(sizes.values()) != world):
        return [{}]
    pp = sizes.get("pp", 1)
    return [
        {rank: {"pp": rank * pp // world} for rank in range(world)},
        {rank: {"pp": rank % pp} for rank in range(world)},
    ]
