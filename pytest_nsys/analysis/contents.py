"""What is in the windows of a run, by name: ranks, stages, streams with their purposes, kernels, and how often?

Two runs that are compared are first of all two lists of names. Only windows that were measured anyway are looked at.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.model import stream_labels


class ContentKind(enum.StrEnum):
    """What a name is the name of."""

    RANK = "rank"
    STAGE = "stage"
    STREAM = "stream"
    KERNEL = "kernel"


class Item(NamedTuple):
    """One named thing on one rank."""

    kind: ContentKind
    name: str
    rank: int


def contents(run: Run, spec: WindowSpec) -> Mapping[Item, int]:
    """What the windows of every rank hold, with the number of kernels that were launched for it."""
    found: Counter[Item] = Counter()
    for rank, windows in run.measured(spec).filled().items():
        for window in windows:
            found[Item(ContentKind.RANK, str(rank), rank)] += len(window)
            for (kind, name), launches in _named(window).items():
                found[Item(kind, name, rank)] += launches
    return found


def _named(window: RankWindow) -> Mapping[tuple[ContentKind, str], int]:
    found: Counter[tuple[ContentKind, str]] = Counter()
    for stage, members in window.all_by_stage.items():
        if stage != NO_STAGE:
            found[ContentKind.STAGE, stage] += len(members)
    labels = stream_labels(use.stream for use in window.streams)
    for use in window.streams:
        name = f"{labels[use.stream]} ({use.purpose})"
        found[ContentKind.STREAM, name] += use.communication_kernels + use.compute_kernels
    names = window.kernels.names
    for (short, full), launches in Counter(zip(window.kernels.name, window.kernels.full_name, strict=True)).items():
        found[ContentKind.KERNEL, names.get(full) or names[short]] += launches
    return found
