"""Does a red tell what is at its root? Faults put into programs whose every op is known, judged by a drafted gate."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.analysis.explain.breakdown_model import Change, ChangeKind, Explanation
from tests.support.drafted import Drafted
from tests.support.faults import FAULTS, Expected, Fault
from tests.support.injections import stretched, tape
from tests.support.reference_data import DUALPIPE, REAL
from tests.support.samples.formats import Format

pytestmark = pytest.mark.slow


def fits(found: Change, expected: Expected) -> bool:
    root = found.root
    return (
        (root.kind, root.activity) == (expected.kind, expected.of)
        and (not expected.ranks or found.rank in expected.ranks)
        and (not expected.stage or root.stage == expected.stage)
        and all(
            re.search(want, name) for want, name in ((expected.name, root.name), (expected.instead, root.instead_of))
        )
    )


def check_sums(why: Explanation) -> None:
    """The causes account for nearly all of the change, none for more than it ran, and the budget for the window's."""
    assert why.change_ns == sum(cause.change_ns for cause in why.causes) + why.unexplained_ns
    assert abs(why.unexplained_ns) * 20 <= abs(why.change_ns)
    assert [cause for cause in why.causes if abs(cause.change_ns) > max(cause.baseline_ns, cause.current_ns)] == []
    if why.budget_change is not None:
        assert why.budget_change.change_ns == sum(by for _, by in why.budget_change.parts)


def cells() -> list[Any]:
    return [
        pytest.param(fault, format, id=f"{name}, {format}")
        for name, fault in FAULTS.items()
        for format in fault.formats
    ]


@pytest.mark.parametrize(("fault", "format"), cells())
def test_a_red_leads_with_what_was_injected(tmp_path: Path, fault: Fault, format: Format) -> None:
    base = fault.program().write(tmp_path / "base", format, 1)
    worse = fault.program()
    fault.change(worse)
    drafted = Drafted.of(base, tmp_path, fault.gate)
    red, sentence = drafted.told(worse.write(tmp_path / "head", format, 2))
    assert red
    rows = [row for record in red for row in record.verdict.causes]
    for row in rows:
        check_sums(row.explanation)
    injected = (fault.root, *fault.beside)
    wrong = [found for row in rows for found in row.root_causes if not any(fits(found, each) for each in injected)]
    assert wrong == []
    first = next((row.root_causes[0] for row in rows if row.root_causes), None)
    assert first is not None
    assert fits(first, fault.root), first
    assert re.match(fault.step, sentence), sentence
    assert [pattern for pattern in fault.says if not re.search(pattern, sentence)] == [], sentence
    assert "without a known cause" not in sentence


class RealFault(NamedTuple):
    """Kernels of a real trace that take longer, with all that follows. ``says`` are patterns of the sentence."""

    trace: Path
    kernel: str
    percent: int
    says: tuple[str, ...]


REAL_FAULTS = {
    "DualPipe, one kernel": RealFault(DUALPIPE / "pp2_ep2.sqlite", "deep_gemm", 60, ("deep_gemm",)),
    "FSDP, one kernel": RealFault(REAL / "mfu_2gpu_before.sqlite", "flash_fwd", 20, ("flash_fwd_kernel",)),
    "FSDP, NCCL": RealFault(REAL / "mfu_2gpu_before.sqlite", "nccl", 200, ("SendRecv",)),
    "AMD, one kernel of Tensile": RealFault(
        REAL / "inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz", "MT256x32x64", 60, ("MT256x32x64",)
    ),
    "two of 128 ranks": RealFault(REAL, "ncclKernel_SendRecv", 40, ("SendRecv",)),
}


@pytest.mark.reference
@pytest.mark.parametrize("fault", REAL_FAULTS.values(), ids=REAL_FAULTS)
def test_what_was_put_into_a_real_trace_is_named(tmp_path: Path, fault: RealFault) -> None:
    trace = fault.trace
    if trace.is_dir():
        trace = tmp_path / "own"
        trace.mkdir()
        for path in fault.trace.glob("hta_sampled_rank-*.json.gz"):
            (trace / path.name).symlink_to(path)
    on = tape(trace)
    stretched(on, fault.kernel, fault.percent)
    red, sentence = Drafted.of(trace, tmp_path).told(on.write(tmp_path / "run"))
    first = next((row.root_causes[0] for record in red for row in record.verdict.causes if row.root_causes), None)
    assert first is not None
    assert fault.kernel in first.root.name, first
    assert (first.root.kind, first.change_ns > 0) == (ChangeKind.LONGER, True)
    assert [pattern for pattern in fault.says if not re.search(pattern, sentence)] == [], sentence
