"""A kernel in the place of another is red, also under one short name; what a build changes in names is not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_nsys import Outcome, judge, open_run
from pytest_nsys.analysis.metrics.table import matches_label
from pytest_nsys.core.families import extract_short_name
from pytest_nsys.core.kernel_names import make_row_name
from tests.support.samples.builder import TraceBuilder

SENTENCES = (
    *("no new kernels", "no vanished kernels", "no new or vanished kernels", "no new or vanished kernels above 1%"),
    *("kernel_launches == baseline", "sequence == baseline"),
)


@dataclass(frozen=True)
class Build:
    """What one compilation of the same sources writes into the names of kernels."""

    unnamed: str = "(anonymous namespace)::"
    instance: str = "{lambda(float)#1}"
    tag: int = 1
    number: str = ""
    cast: bool = False

    def name(self, code: Code) -> str:
        tile = ", ".join(f"cute::C<{'(int)' if self.cast else ''}{each}>" for each in code.tile)
        types = ", ".join(f"{self.unnamed}{each}" for each in code.types)
        flags = ", ".join(map(str, code.flags))
        tag = f"__nv_dl_wrapper_t<__nv_dl_tag<void (*)(at::Tensor&), &at::run<{code.tile[0]}>, {self.tag}u> >"
        inside = f"a::Gemm<cute::tuple<{tile}>, {types}, {flags}, a::run()::{self.instance}, {tag} >"
        return f"void a::{code.entry}<{inside} >({inside}::Params)"

    def generated(self, code: Code) -> str:
        return f"gemm_fusion_{code.types[0]}{self.number}.kd"


@dataclass(frozen=True)
class Code:
    """A kernel, of a template that others use, too."""

    entry: str
    tile: tuple[int, ...]
    types: tuple[str, ...]
    flags: tuple[bool, ...]


ENTRIES = (
    *("device_kernel", "Kernel2", "kernel", "Kernel", "kentry", "kernel_gemm_xdl_cshuffle_v3"),
    *("vectorized_elementwise_kernel", "reduce_kernel"),
)
CODE = st.builds(
    Code,
    st.sampled_from(ENTRIES),
    st.lists(st.sampled_from([64, 128, 256]), min_size=3, max_size=60).map(tuple),
    st.lists(st.sampled_from(["RowMajor", "ColumnMajor", "Bf16", "Fp8"]), min_size=3, max_size=4).map(tuple),
    st.lists(st.booleans(), min_size=3, max_size=4).map(tuple),
)
HASHED = st.from_regex(r"_GLOBAL__N__[0-9a-f]{8}_[0-9]{1,2}_gemm_cu_[0-9a-f]{8}(_[0-9]{3,6})?::", fullmatch=True)
BUILDS = st.builds(
    Build,
    HASHED | st.sampled_from(["(anonymous namespace)::", "<unnamed>::", "_INTERNAL_0a1b2c3d_7_gemm_cu_9f8e7d6c::"]),
    st.sampled_from(["{lambda(float)#1}", "{lambda(float)#2}", "[lambda(float) (instance 12)]", "'lambda3'(float)"]),
    st.integers(0, 30),
    st.integers(0, 99).map("_{}".format),
    st.booleans(),
)


def trace(folder: Path, name: str, *kernels: str) -> Path:
    """A step of kernels of 10 us each."""
    process = TraceBuilder().process()
    process.range("step", 0, 1_000_000)
    for at, kernel in enumerate(kernels):
        process.kernel(extract_short_name(kernel), 20_000 * at + 1, 20_000 * at + 10_001 + len(name), demangled=kernel)
    return process.trace.write(folder / f"{name}.sqlite")


def outcomes(folder: Path, before: tuple[str, ...], now: tuple[str, ...]) -> dict[str, Outcome]:
    paths = [trace(folder, *each) for each in (("before", *before), ("now", *now))]
    with open_run(paths[0], anchor="step") as base, open_run(paths[1], anchor="step") as head:
        return {sentence: judge(sentence, head, base).outcome for sentence in SENTENCES}


@given(CODE, st.data(), BUILDS)
def test_a_kernel_of_other_arguments_is_another_in_every_build(code: Code, data: st.DataObject, b: Build) -> None:
    field = data.draw(st.sampled_from(["tile", "types", "flags"]))
    other = replace(code, **{field: getattr(data.draw(CODE), field)})
    assume(other != code)
    names = {make_row_name(extract_short_name(full), full) for full in (Build().name(code), b.name(code))}
    assert len(names) == 1
    assert make_row_name(extract_short_name(b.name(other)), b.name(other)) not in names


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.sampled(4)
def test_a_gate_is_red_for_another_kernel_of_a_template_and_green_for_another_build(tmp_path: Path, entry: str) -> None:
    code = Code(entry, (128, 128, 64), ("RowMajor", "RowMajor", "Bf16"), (True, True, False))
    build = Build("_GLOBAL__N__1a2b3c4d_7_gemm_cu_0a1b2c3d_1234::", "{lambda(float)#3}", 4, "_3")
    before = (Build().name(code), Build().generated(code), "other")
    again = (build.name(code), build.generated(code), "other")
    assert set(outcomes(tmp_path, before, again).values()) == {Outcome.PASSED}
    for change in ({"tile": (128, 64, 64)}, {"types": ("RowMajor", "Bf16", "Bf16")}, {"flags": (True, False, False)}):
        replaced = (build.name(replace(code, **change)), *again[1:])
        assert set(outcomes(tmp_path, before, replaced).values()) == {Outcome.FAILED, Outcome.NO_DATA}


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("device_kernel", True),
        ("device", True),
        ("*_kernel", True),
        ("device_kernel<*128x256*>", True),
        ("device_kernel<Gemm, 128x256, Bf16>", True),
        ("device_kernel<Gemm, 128x*, Fp8>", False),
        ("kernel", False),
        ("ampere_*", False),
    ],
)
def test_patterns_match_a_row_by_its_short_name_and_by_all_of_it(pattern: str, meant: bool) -> None:
    assert matches_label(pattern, "device_kernel<Gemm, 128x256, Bf16>") is meant
