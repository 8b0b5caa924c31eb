"""Which unit do `show` and `init` name on each real trace, or why is there none? As labels, or eyes, say it is."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.commands import run
from tests.support.reference_data import DUALPIPE, MORE, REAL

pytestmark = pytest.mark.reference


class Named(NamedTuple):
    """What the first line of the first screen says behind the name of the trace, and the convention of the draft."""

    shown: str
    drafted: str


TORCH = "convention kineto, anchor 'ProfilerStep#%'"
NO_STEP = r"no anchor \({0}.*\), window run, all kernels"


def whole(why: str, convention: str) -> Named:
    return Named(f"the whole run is measured: {why}$", f"convention {convention}, {NO_STEP.format(why)}")


def engine(name: str, pattern: str, kind: str, inside: str = "") -> Named:
    """One step of an engine that serves requests."""
    drafted = f"convention {name}, anchor '{re.escape(pattern)}' .*: 1 {kind} step, window first {kind}"
    return Named(f"({kind} )?step = range '{re.escape(pattern[:9])}.*', the only one{inside}", drafted)


VLLM = "execute_%context_%_generation_%"
NAMED: Mapping[Path, Named] = {
    **dict.fromkeys(
        (DUALPIPE / "pp1_cp2_ep2.sqlite", DUALPIPE / "pp2_ep2.sqlite"),
        Named(
            r"part of a step = range 'forward chunk%backward chunk%', one of 1[45] ", "convention pithtrain, anchor '"
        ),
    ),
    MORE / "deepseek_dualpipe_train.json.gz": Named(
        r"step = range 'ProfilerStep#%', the only one \(4 × dispatch\(F\)\)", f"{TORCH} .*window first"
    ),
    MORE / "hta_ns_resolution.json.gz": Named("step = range 'ProfilerStep#%', one of 5 ", f"{TORCH}, window median"),
    REAL / "hta_nccl_data.json.gz": Named("step = range 'ProfilerStep#%', one of 3 ", f"{TORCH}, window median"),
    REAL / "hta_sampled_rank-0.json.gz": Named("step = range 'ProfilerStep#%', one of 2 ", f"{TORCH}, window median"),
    REAL / "hta_sampled_rank-1.json.gz": Named("step = range 'ProfilerStep#%', one of 2 ", f"{TORCH}, window median"),
    MORE / "b200_vllm_eager.json.gz": engine("vllm", VLLM, "prefill", r" \(36 × TransformerBlock\)"),
    MORE / "vllm_decode_full_graph.json.gz": engine("vllm", VLLM, "decode"),
    MORE / "vllm_prefilldecode_piecewise.json.gz": engine(
        "vllm", VLLM, "mixed", r" \(24 × vllm::unified_attention_with_output\)"
    ),
    REAL / "inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz": engine("sglang", "step[%]", "decode"),
    REAL / "jax_te_attn.trace.json.gz": Named(
        "step = range 'PJRT_LoadedExecutable_Execute', one of 5 ",
        "convention jax, anchor 'PJRT_LoadedExecutable_Execute'",
    ),
    REAL / "mfu_2gpu_before.sqlite": whole("17 × blocks, and no step", "generic"),
    REAL / "h100_2gpu_1s.sqlite": whole("its kernels repeat, maybe in parts of a step", "generic"),
    REAL / "mi210__gpu_only_trace__gpu_only_trace.json.gz": whole("no sequence of kernels repeats", "kineto"),
    REAL / "flameox_2025.5.2.sqlite": whole("3 kernels are too few to repeat", "generic"),
    MORE / "hta_cuda_event_sync_multi_stream.json.gz": whole("3 kernels are too few to repeat", "kineto"),
}

NO_GPU = ("torch_2.13.0_cpu_gloo.pt.trace.json.gz", "jax_cpu_0.10.2.trace.json.gz")


@pytest.mark.parametrize("trace", NAMED, ids=lambda trace: trace.name)
@pytest.mark.sampled(9)
def test_the_unit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trace: Path) -> None:
    """What was drafted passes on its own trace, or ``init`` does not write it."""
    monkeypatch.chdir(tmp_path)  # from elsewhere its baseline would lie in what both folders have in common
    shown = run("show", trace, code=0).stdout.splitlines()[:2]
    drafts = run("init", trace, "-o", tmp_path / "gates.nsys.yaml", code=0).stdout
    of_one_line_or_two = (shown[0], " ".join(shown))
    assert any(re.search(f": {NAMED[trace].shown}", text) for text in of_one_line_or_two), shown
    assert re.search(NAMED[trace].drafted, drafts), drafts


@pytest.mark.parametrize("name", NO_GPU)
@pytest.mark.parametrize("command", ["show", "init"])
def test_a_trace_without_kernels_is_told_in_a_line(tmp_path: Path, command: str, name: str) -> None:
    more = ("-o", tmp_path / "gates.nsys.yaml") if command == "init" else ()
    told = run(command, REAL / name, *more, code=3).output.splitlines()
    assert len(told) == 1
    assert ": no kernels: " in told[0]


def test_every_trace_is_in_the_table() -> None:
    """But reports of nsys, which the nsys at hand may be too old to read."""
    found = {
        path for folder in (DUALPIPE, REAL, MORE) for path in folder.iterdir() if path.suffix in (".sqlite", ".gz")
    }
    assert found == NAMED.keys() | {REAL / name for name in NO_GPU}
