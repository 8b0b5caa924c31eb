"""Ten programs in which nobody marked a step: is the right one named, and is the drafted gate red where it should be?

The truth stands beside each program in ``tests/support/awkward.py``. Where no step can be told, none may be claimed.
"""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_nsys.analysis.capture_cache import CaptureCache
from pytest_nsys.analysis.fitting import LABELLED
from pytest_nsys.analysis.step_facts import FoundUnits, UnitIs
from pytest_nsys.analysis.step_search import search
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.exact import distance, median
from pytest_nsys.core.model import Value
from tests.support.awkward import AWKWARD, LABELS
from tests.support.samples.formats import Format

FORMATS = (Format.NSYS, Format.KINETO)
EACH = pytest.mark.parametrize(("name", "format"), [(name, format) for name in AWKWARD for format in FORMATS])


@EACH
def test_what_repeats_is_found(tmp_path: Path, name: str, format: Format) -> None:
    """As often and as far apart as labels have it that the search does not see, on each rank; and what it is."""
    case = AWKWARD[name]
    own, labelled = case.write(tmp_path / "own", format), case.write(tmp_path / "labelled", format, labelled=True)
    with closing(CaptureCache()) as library:
        found = search(library.captures([str(own)], tmp_path, LABELLED).runs[0])
        truth = library.captures([str(labelled)], tmp_path, BUILT_IN["generic"].with_anchor(LABELS)).runs[0]
        starts = {rank.number: [each.start_ns for each in truth.anchors(rank)] for rank in truth.ranks}
    assert isinstance(found, FoundUnits)
    assert found.what is case.found
    if case.found is UnitIs.STEP:
        lost = {steps - case.odd - found.units[rank] for rank, steps in enumerate(case.steps)}
        assert lost in ({0}, {1}, {2})  # at either end one, which nothing of the trace begins or ends
        period: Value = max(median([b - a for a, b in pairwise(each)]) for each in starts.values())
        assert 100 * distance(found.period_ns, period) <= period
