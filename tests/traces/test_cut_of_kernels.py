"""Does a cut of windows that a kernel begins measure what they measured in their trace?"""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, KernelAnchor, format_anchor
from pytest_nsys.core.model import KernelsMode
from pytest_nsys.traces.trace_files import open_trace
from tests.support.commands import run
from tests.support.kernel_steps import PLAIN, written
from tests.traces.test_cut_trace import CONVENTIONS, FORMATS, NCCL, cut, measured

ANCHOR = KernelAnchor(NCCL, "gemm")


@pytest.mark.parametrize("kernels", KernelsMode)
@pytest.mark.parametrize("window", ["median", "steady"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.sampled(5)
def test_a_cut_has_the_metric_of_its_trace(format: str, window: str, kernels: str, tmp_path: Path) -> None:
    trace, name = FORMATS[format](tmp_path), CONVENTIONS.get(format, format)
    convention = BUILT_IN_CONVENTIONS[name].with_anchor(ANCHOR)
    how = {"window": window, "kernels": str(kernels)}
    options = [f"--{key}={value}" for key, value in how.items()]
    small = cut(trace, f"--convention={name}", f"--anchor={format_anchor(ANCHOR)}", *options)
    before = measured(trace, convention, **how)
    assert measured(small, convention, **how) == before
    assert sum(bool(found) and not isinstance(found, str) for found in before[0].values()) > 20


def test_a_cut_knows_its_kernel_and_no_other(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [PLAIN] * 9)
    small = cut(trace, "--anchor={kernel: embed}")
    assert run("--view=ranks", small, code=0).stdout == run("--view=ranks", trace, "--anchor={kernel: embed}").stdout
    assert "this needs the whole run" in run("--view=ranks", small, "--anchor={kernel: adam}", code=3).stderr
    assert len(next(iter(open_trace(small).facts().cut_steps.values())).host_spans) == 9


@pytest.mark.parametrize("kernels", KernelsMode)
def test_an_odd_window_may_lie_between(kernels: str, tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [*[PLAIN] * 4, [*PLAIN, *["gemm"] * 5], *[PLAIN] * 4])
    convention = replace(BUILT_IN_CONVENTIONS["generic"], anchor=KernelAnchor("embed"))
    options = ["--convention=generic", "--anchor={kernel: embed}", "--window=steady", f"--kernels={kernels}"]
    before = measured(trace, convention, "steady", None, kernels)
    assert measured(cut(trace, *options), convention, "steady", None, kernels) == before
    assert not isinstance(before[0]["window_ns"], str)
