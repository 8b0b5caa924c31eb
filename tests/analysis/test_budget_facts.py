"""Does the plain data of a budget add up, and does it name what its gaps say, one by one?"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget import Budget, budget_of, facts_of
from pytest_nsys.analysis.budget_facts import MOST, Before, Part, parts_of
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import KernelsMode
from tests.support.measure import captures
from tests.support.samples.builder import TraceBuilder

NAMES = ("gemm", "gelu", "ncclDevKernel_AllReduce")
kernels = st.tuples(
    st.sampled_from(NAMES), st.integers(-20, 110), st.integers(1, 30), st.integers(1, 2), st.integers(1, 40)
)


def one_by_one(budget: Budget) -> dict[Part, list[Before]]:
    """What the parts of gaps without a producer lay before, part by part."""
    found: dict[Part, dict[tuple[str, str], Counter[int]]] = {Part.STARVED: {}, Part.STALLED: {}}
    for start, end, part, waiting, by in budget.each():
        if waiting is not None and by is None:
            own = found[Part.STALLED if part is Part.BESIDE else part].setdefault(
                (waiting.name, waiting.stage), Counter()
            )
            own[waiting.start_ns] += end - start
    return {
        part: sorted(
            (
                Before(part=part.value, waiting=name, stage=stage, ns=own.total(), gaps=len(own))
                for (name, stage), own in each.items()
            ),
            key=lambda one: (-one.ns, one.waiting, one.stage),
        )
        for part, each in found.items()
    }


@given(st.lists(kernels, min_size=1, max_size=12))
def test_what_is_named_is_what_the_gaps_say(some: list[tuple[str, int, int, int, int]]) -> None:
    trace = TraceBuilder()
    gpu = trace.process()
    gpu.range("step", 0, 100)
    gpu.range("layer00.stage2_f", 10, 50)
    for name, start, length, stream, lead in some:
        gpu.kernel(name, start, start + length, stream=stream, launch_ns=start - lead, launch_length_ns=lead // 2)
    with tempfile.TemporaryDirectory() as folder, captures(trace.write(Path(folder) / "run.sqlite")) as run:
        for spec in (run.spec("median", None, KernelsMode.CLIPPED), run.spec("run")):
            for window in run.runs[0].measured(spec):
                if not len(window):
                    continue
                budget = budget_of(window)
                facts, expected = facts_of(budget), one_by_one(budget)
                late = budget.before(Part.STARVED)
                assert late == expected[Part.STARVED]
                assert budget.before(Part.BESIDE, Part.STALLED) == expected[Part.STALLED]
                assert sum(one.ns for one in late) + facts.tail_ns == facts.launch_starved_ns
                assert sum(parts_of(facts).values()) == facts.window_ns
                assert len(facts.before) == min(MOST, sum(map(len, expected.values())))
                longest = defaultdict(int, {one.part: one.ns for one in reversed(facts.before)})
                for part, each in expected.items():
                    assert not each or longest[part.value] in (0, each[0].ns)


def test_a_window_of_no_length_has_no_facts() -> None:
    trace = TraceBuilder()
    gpu = trace.process()
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 50, 50, launch_ns=10)
    with tempfile.TemporaryDirectory() as folder, captures(trace.write(Path(folder) / "run.sqlite")) as run:
        (window,) = run.runs[0].measured(run.spec("run"))
        with pytest.raises(NoRows, match="takes no time"):
            facts_of(budget_of(window))
