"""Does a red say what the host is in while the GPU waits for the next step, where that is true of all ranks?"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.gates import Project
from tests.support.samples.builder import TraceBuilder

US = 1_000
STEPS = 7


def write_run(path: Path, loading_us: int, ranges: Sequence[str]) -> None:
    """Write the steps of a rank for each range, in which its host loads before the next step."""
    trace = TraceBuilder()
    for rank, name in enumerate(ranges):
        gpu = trace.process(pid=100 + rank, device=rank)
        now_ns = 1_000 * US
        for number in range(STEPS):
            gpu.range(f"ProfilerStep#{number}", now_ns, now_ns + 110 * US)
            gpu.kernel("gemm", now_ns + 10 * US, now_ns + 105 * US, launch_ns=now_ns + 2 * US)
            gpu.api("cudaDeviceSynchronize_v3020", now_ns + 20 * US, now_ns + 108 * US)
            gpu.range(name, now_ns + 112 * US, now_ns + (118 + loading_us) * US)
            now_ns += (120 + loading_us) * US
    trace.write(path)


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        (("load a", "load a"), "between steps: 20 → 320 us in load a on both ranks"),
        (("load a", "load b"), "between steps: 20 → 320 us on both ranks"),
    ],
)
@pytest.mark.parametrize(
    "sentence", ["between_steps_ns <= baseline + 5%", "mean over rank of between_steps_ns <= baseline + 5%"]
)
def test_what_the_host_is_in(project: Project, sentence: str, ranges: Sequence[str], told: str) -> None:
    write_run(project.root / "base.sqlite", 0, ranges)
    write_run(project.root / "run.sqlite", 300, ranges)
    project.gate(f"convention: torchtitan\nassertions:\n- {sentence}\n")
    project.pytest("--nsys-trace=base.sqlite", "--nsys-update-baselines", "--nsys-reason=x", code=0)
    said = " ".join(project.pytest("--nsys-trace=run.sqlite", code=1).split())
    assert told in said


def test_the_time_of_several_ranks_or_windows_is_told_as_such(project: Project) -> None:
    write_run(project.root / "two.sqlite", 300, ("load a", "load a"))
    write_run(project.root / "one.sqlite", 300, ("load a",))
    say = ("rows", "launch_starved_ns", "--convention=torchtitan")
    assert "on 2 ranks together, of which" in project.command(*say, "two.sqlite", code=0)
    assert " windows together, of which" in project.command(*say, "one.sqlite", "--window=steady", code=0)
    assert "together" not in project.command(*say, "one.sqlite", code=0)
