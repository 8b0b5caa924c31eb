"""Kernel families per GPU and step: what is a kernel of, what are sums divided by, and does it all add up exactly?"""

import gzip
import json
import sqlite3
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_nsys.analysis.metrics.families import FamilySums
from pytest_nsys.analysis.windows.run_conditions import Launcher
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.families import (
    FAMILIES,
    OTHER_FAMILY,
    Families,
    Family,
    list_family_names,
    list_zero_families,
    make_classifier,
)
from tests.support.kernel_traces import PLAIN, Kernel, ran, steps_trace, sums, written
from tests.support.measure import rows
from tests.support.reference_data import REAL
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder

# -- classification


def test_the_first_match_counts_with_case_on_either_name() -> None:
    table = (Family("first", ("*gemm*",)), Family("second", ("*gemm*", "short", "*LN*")))
    family_of = make_classifier(table)
    assert family_of("x", "void gemm()") == "first"
    assert family_of("short", "void x()") == "second"
    assert family_of("ln", "void ln()") == OTHER_FAMILY
    assert make_classifier(table[::-1])("x", "void gemm()") == "second"


GLOBS = [
    *("*a[Bb]c*", "b?c*", "[!a]*", "*", "a*b*c", "*[*]*", "abc", "a[b"),
    *("[]a]bc", "[!]a]b*", "[]a", "<known library> a*"),
]


@given(st.lists(st.sampled_from(GLOBS)), st.text("abcB*[]!-", max_size=6), st.text("abcB*[]!-", max_size=6))
def test_what_is_looked_for_quickly_is_what_the_globs_match(globs: list[str], short: str, full: str) -> None:
    table = tuple(Family(f"family{i}", (glob,)) for i, glob in enumerate(globs))
    matching = (family.name for family in table if any(fnmatchcase(n, family.patterns[0]) for n in (short, full)))
    assert make_classifier(table)(short, full) == next(matching, OTHER_FAMILY)


def test_no_family_is_a_selector_of_another() -> None:
    """A selector means every label that it is the beginning of, up to an underscore."""
    names = list_family_names(FAMILIES)
    assert len(set(names)) == len(names)
    assert [(a, b) for a in names for b in names if b.startswith(a + "_")] == []


# -- conventions


@pytest.mark.parametrize("name", BUILT_IN_CONVENTIONS)
def test_baselines_of_before_the_families_stay_valid(name: str) -> None:
    """Of a convention with its usual ones, whose fingerprint test_conventions.py has."""
    convention = BUILT_IN_CONVENTIONS[name]
    assert convention.families == FAMILIES
    own = (Family("gemm", ("*gemm*",)),)
    assert replace(convention, families=own).compute_fingerprint() != convention.compute_fingerprint()


# -- sums

KERNELS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from(["a_gemm", "gemm_b", "norm", "copy", "what"]),
        st.integers(1, 1000),  # a kernel from 0 to 0 was not timed
        st.integers(0, 300),
    ),
    min_size=1,
    max_size=12,
)
TABLES_OF = st.permutations([Family("gemm", ("*gemm*",)), Family("a", ("a_*", "copy")), Family("norm", ("n?rm",))])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kernels=KERNELS, families=TABLES_OF, steps=st.integers(1, 7))
def test_the_families_are_what_counting_by_hand_says_and_sum_to_the_total(
    kernels: list[Kernel], families: list[Family], steps: int
) -> None:
    matching = {"a_gemm": ("gemm", "a"), "gemm_b": ("gemm",), "norm": ("norm",), "copy": ("a",), "what": ()}
    expected = {family.name: [Fraction(0), Fraction(0)] for family in [*families, Family(OTHER_FAMILY, ())]}
    divisor = len({kernel[:2] for kernel in kernels}) * steps
    for _, _, name, _, length in kernels:
        own = next((family.name for family in families if family.name in matching[name]), OTHER_FAMILY)
        expected[own][0] += Fraction(length, divisor)
        expected[own][1] += Fraction(1, divisor)
    with TemporaryDirectory() as folder:
        path = written(Path(folder) / "run.sqlite", kernels)
        with sums(path, convention=replace(PLAIN, families=tuple(families)), steps=steps) as found:
            assert {name: [*usage] for name, usage in found.usage_by_family.items()} == expected
            assert list(found.usage_by_family) == [*(family.name for family in families), OTHER_FAMILY]
            assert sum(usage.time_ns for usage in found.usage_by_family.values()) == found.total.time_ns
            assert sum(usage.launches for usage in found.usage_by_family.values()) == found.total.launches
            for name, usage in found.usage_by_family.items():
                single = found.list_kernels(name)
                assert sum(own.time_ns for _, own in single) == usage.time_ns
                assert sum(own.launches for _, own in single) == usage.launches


def test_gpus_are_devices_of_processes_of_files(tmp_path: Path) -> None:
    one = written(tmp_path / "a.sqlite", [(0, 0, "gemm", 0, 10), (0, 1, "gemm", 0, 10), (1, 0, "gemm", 0, 10)])
    two = written(tmp_path / "b.sqlite", [(2, 0, "gemm", 0, 30)])
    with sums(one, two, steps=3) as found:
        assert (found.gpu_count, found.step_count, found.divisor) == (4, 3, 12)
        assert ran(found) == {"gemm": (5, Fraction(1, 3))}


def test_a_labelled_process_of_two_devices_is_two_gpus(tmp_path: Path) -> None:
    process = TraceBuilder().process()
    process.range("rank=0; pp=0/1 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", 0, 1)
    for device in (0, 1):
        process.kernel("gemm", 10, 20, device=device)
    with sums(
        process.trace.write(tmp_path / "a.sqlite"), convention=BUILT_IN_CONVENTIONS["pithtrain"], steps=1
    ) as found:
        assert (found.gpu_count, found.total.time_ns) == (2, 10)


@pytest.mark.parametrize(
    ("gpus", "files", "expected"),
    [
        (2, 1, Launcher.PER_NODE),
        (16, 2, Launcher.PER_NODE),
        (15, 8, Launcher.UNCLEAR),
        (8, 8, Launcher.PER_GPU),
        (21, 20, Launcher.PER_GPU),
        (19, 20, Launcher.PER_GPU),
        (18, 20, Launcher.UNCLEAR),
        (107, 100, Launcher.UNCLEAR),
    ],
)
def test_launcher(gpus: int, files: int, expected: Launcher) -> None:
    assert Launcher.classify(gpus, files) is expected


def test_copies_and_the_lanes_that_repeat_kernels_are_no_kernels(tmp_path: Path) -> None:
    jax = JaxBuilder()
    jax.kernel("loop_reduce_fusion", 100, 400)
    for name in ("MemcpyD2D", "Memset"):
        jax.kernel(name, 500, 900)
    with sums(jax.write(tmp_path / "h.trace.json.gz"), convention=BUILT_IN_CONVENTIONS["jax"], steps=1) as found:
        assert ran(found) == {"loop_reduce_fusion": (300, 1)}
        assert (found.gpu_count, found.launcher) == (1, Launcher.PER_GPU)
    kineto = KinetoBuilder()
    kineto.kernel("ncclDevKernel_AllReduce", 1_000, 4_000)
    place = {"device": 0, "stream": 7, "correlation": 77}
    for cat in ("gpu_memcpy", "gpu_memset", "gpu_user_annotation"):
        kineto.event(cat, "nccl:all_reduce", 1_000, 4_000, pid=0, tid=7, args=place)
    with sums(kineto.write(tmp_path / "rank0_trace.json"), convention=BUILT_IN_CONVENTIONS["kineto"], steps=1) as found:
        assert ran(found) == {"nccl": (3_000, 1)}


def test_the_metrics_say_what_the_sums_say(tmp_path: Path) -> None:
    path = steps_trace(tmp_path / "a.sqlite", 0, 100, 200)
    family_ns, launches = (
        rows(path, name, convention=PLAIN, window="run") for name in ("family_ns", "family_launches")
    )
    assert list(family_ns) == list(list_zero_families(FAMILIES))
    assert {name: value for name, value in family_ns.items() if value} == {"gemm": 60}
    assert {name: value for name, value in launches.items() if value} == {"gemm": 1}
    assert rows(path, "step_minus_kernel_ns", convention=PLAIN, window="run") == {(): 40}


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
@pytest.mark.sampled(3)
def test_real_traces_sum_to_what_their_files_hold(name: str) -> None:
    by_name, count = counted_by_hand(REAL / name)
    convention = BUILT_IN_CONVENTIONS[REAL_TRACES[name]]
    with sums(REAL / name, convention=convention, steps=1) as found:
        assert found.total.time_ns * found.gpu_count == sum(by_name.values())
        assert found.total.launches * found.gpu_count == count
        expected = dict.fromkeys(list_zero_families(convention.families, found.family_by_name.values()), 0)
        for kernel, ns in by_name.items():
            expected[family_by_hand(kernel, convention.families, found)] += ns
        assert {family: usage.time_ns * found.gpu_count for family, usage in found.usage_by_family.items()} == expected


def family_by_hand(full: str, table: Families, found: FamilySums) -> str:
    """The family by the name that the file has, its short one being what the reader calls it."""
    shorts = {known_full or short: short for short, known_full in found.usage_by_name}
    return make_classifier(table)(shorts[full], full)


@pytest.mark.reference
def test_the_jax_trace_gives_the_sum_of_its_stream_lanes_alone() -> None:
    expected = json.loads((REAL / "expected.json").read_text())["traces"]["jax_te_attn.trace.json.gz"]
    (lanes,) = expected.values()
    with sums(REAL / "jax_te_attn.trace.json.gz", convention=BUILT_IN_CONVENTIONS["jax"], steps=5) as found:
        assert found.total.time_ns == Fraction(lanes["Stream #2"]["sum_ns"], 5)
        assert found.total.launches == Fraction(lanes["Stream #2"]["n"], 5)
