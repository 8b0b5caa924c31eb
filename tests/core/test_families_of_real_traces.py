"""Do the families of real traces sum to what their files hold, counted another way?"""

from __future__ import annotations

import gzip
import json
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.analysis.kernel_families import FamilySums
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.families import Families, classifier, zero_filled
from tests.support.kernel_traces import sums
from tests.support.reference_data import REAL


def counted_by_hand(path: Path) -> tuple[dict[str, int], int]:
    """Time by kernel name in ns, and the number of kernels, from the file as it is."""
    by_name: dict[str, int] = {}
    count = 0
    if path.suffix == ".sqlite":
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            sql = (
                "SELECT s.value, sum(k.end - k.start), count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1"
            )
            rows = database.execute(sql).fetchall()
        database.close()
        return {name: ns for name, ns, _ in rows}, sum(n for _, _, n in rows)
    root = json.loads(gzip.decompress(path.read_bytes()), parse_float=Fraction, parse_int=Fraction)
    events = root if isinstance(root, list) else root["traceEvents"]
    lanes = {(e["pid"], e.get("tid")): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    for event in events:
        if event.get("ph") != "X":
            continue
        of_jax = "cat" not in event and lanes.get((event["pid"], event["tid"]), "").startswith("Stream #")
        if event.get("cat", "").lower() == "kernel" or of_jax:
            ns = Fraction(event["dur"]) * 1000
            by_name[event["name"]] = by_name.get(event["name"], 0) + round(ns)
            count += 1
    return by_name, count


REAL_TRACES = {
    "jax_te_attn.trace.json.gz": "jax",
    "mfu_2gpu_before.sqlite": "generic",
    "h100_2gpu_1s.sqlite": "generic",
    "hta_nccl_data.json.gz": "kineto",
    "hta_sampled_rank-0.json.gz": "kineto",
    "inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz": "kineto",
    "mi210__gpu_only_trace__gpu_only_trace.json.gz": "kineto",
}


@pytest.mark.reference
@pytest.mark.parametrize("name", REAL_TRACES)
def test_real_traces_sum_to_what_their_files_hold(name: str) -> None:
    by_name, count = counted_by_hand(REAL / name)
    convention = BUILT_IN[REAL_TRACES[name]]
    with sums(REAL / name, convention=convention, steps=1) as found:
        assert found.total.ns * found.gpus == sum(by_name.values())
        assert found.total.launches * found.gpus == count
        expected = dict.fromkeys(zero_filled(convention.families), 0)
        for kernel, ns in by_name.items():
            expected[family_by_hand(kernel, convention.families, found)] += ns
        assert {family: usage.ns * found.gpus for family, usage in found.families.items()} == expected


def family_by_hand(full: str, table: Families, found: FamilySums) -> str:
    """The family by the name that the file has, its short one being what the reader calls it."""
    shorts = {known_full or short: short for short, known_full in found.by_name}
    return classifier(table)(shorts[full], full)


@pytest.mark.reference
def test_the_jax_trace_gives_the_sum_of_its_stream_lanes_alone() -> None:
    expected = json.loads((REAL / "expected.json").read_text())["traces"]["jax_te_attn.trace.json.gz"]
    (lanes,) = expected.values()
    with sums(REAL / "jax_te_attn.trace.json.gz", convention=BUILT_IN["jax"], steps=5) as found:
        assert found.total.ns == Fraction(lanes["Stream #2"]["sum_ns"], 5)
        assert found.total.launches == Fraction(lanes["Stream #2"]["n"], 5)
