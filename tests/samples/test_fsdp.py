"""Is the FSDP step of the demo one: does a layer wait for its weights, and what does prefetch change?"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_nsys import open_run
from pytest_nsys.samples.fsdp import GATHER, FsdpShape, write_fsdp


def test_the_same_call_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = (write_fsdp(tmp_path / name, FsdpShape()) for name in ("one", "two"))
    written = {path.name: path.read_bytes() for path in one.iterdir()}
    assert written.keys() == {"rank0_trace.json.gz", "rank1_trace.json.gz"}
    assert {path.name: path.read_bytes() for path in two.iterdir()} == written


@pytest.mark.parametrize(("prefetch", "exposed"), [(True, 1), (False, 4)])
def test_the_gathers_that_nothing_hides(tmp_path: Path, prefetch: bool, exposed: int) -> None:
    """Of each step: the first one with prefetch, that of every layer of the forward without; the last layer is kept."""
    write_fsdp(tmp_path / "run", FsdpShape(jitter=1e-5, forward_prefetch=prefetch))
    with open_run(tmp_path / "run") as run:
        length = min(row.value for row in run.rows("mean_kernel_ns", stage="all_gather"))
        launches = {row.value for row in run.rows("kernel_launches", kernel=GATHER)}
        alone = {row.value for row in run.rows("exposed_ns", stage="all_gather")}
    assert launches == {7}
    assert all(-100 < value - exposed * length < 10_000 for value in alone)  # and the gaps between two kernels
