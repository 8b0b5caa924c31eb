"""Where may a line break on the page? Nowhere in a word, and in a long name where a reader would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.reports.page.page import LONG, NO_BREAK, broken, unparted


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("exposed_ns below baseline plus tolerance", ["exposed_ns below baseline plus tolerance"]),
        (
            "deep_gemm_fp8_m_grouped_gemm_contiguous longer",
            ["deep_", "gemm_", "fp8_", "m_", "grouped_", "gemm_", "contiguous longer"],
        ),
        ("at::native::elementwise_kernel<float>", ["at::", "native::", "elementwise_", "kernel<", "float>"]),
        ("ncclDevKernelAllReduceSumBf16Ring", ["nccl", "Dev", "Kernel", "All", "Reduce", "Sum", "Bf16", "Ring"]),
        ("0" * (LONG + 1), ["0" * LONG, "0"]),
        ("", [""]),
    ],
)
def test_long_names_break_where_a_reader_would(text: str, parts: list[str]) -> None:
    assert broken(text) == parts


@given(st.text(max_size=80))
def test_nothing_is_lost_and_nothing_stays_too_long(text: str) -> None:
    parts = broken(text)
    assert "".join(parts) == text
    assert all(len(word) <= LONG for part in parts for word in part.split())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("Step 12% slower (16.8 → 18.8 ms): 3 streams", "Step 12% slower (16.8_→_18.8_ms): 3 streams"),
        ("−25.3 pp, 71.2 GiB of 4 kernels", "−25.3_pp, 71.2_GiB of 4 kernels"),
        ("500 us (was 800 us): it got shorter", "500_us (was 800_us): it got shorter"),
    ],
)
def test_no_line_parts_a_number_from_its_unit(text: str, whole: str) -> None:
    assert unparted(text) == whole.replace("_", NO_BREAK)
