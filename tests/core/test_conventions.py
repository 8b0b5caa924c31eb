"""Does a convention mean what it says: anchors, stages, purposes, communication kernels, setup labels?"""

import json
from dataclasses import fields, replace

import pytest

from pytest_nsys.core.conventions import (
    BUILT_IN_CONVENTIONS,
    NO_STAGE,
    Convention,
    ConventionMistake,
    CopyKind,
    KernelAnchor,
    Purpose,
    decode_convention,
    encode_convention,
    make_pattern_matcher,
)
from pytest_nsys.core.engine_steps import EngineStepKind
from pytest_nsys.core.families import Family
from pytest_nsys.core.model import KernelsMode, Span
from tests.support.measure import rows, windows
from tests.support.one_process import OneProcess

PITHTRAIN, GENERIC = BUILT_IN_CONVENTIONS["pithtrain"], BUILT_IN_CONVENTIONS["generic"]


# -- anchors and range names


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("step", "step", True),
        ("step", "step 1", False),
        ("step%", "step", True),
        ("step%", "Step 1", False),
        ("%step", "a step", True),
        ("%step", "a step more", False),
        ("a%b%c", "a 1 b 2 c", True),
        ("a%b%c", "a 1 c 2 b", False),
        ("step_1", "step_1", True),
        ("step_1", "stepX1", False),
        ("s.ep", "step", False),
        ("s?ep*", "step", False),
        ("[step]", "s", False),
        ("step%", "step\n1", True),
        ("forward chunk%backward chunk%", "forward chunk 17 (phase1) backward chunk 14 (phase0)", True),
        ("forward chunk%backward chunk%", "forward chunk 0 (phase0)", False),
    ],
)
@pytest.mark.parametrize("registered", [False, True], ids=["inline", "registered"])
def test_only_percent_is_a_wildcard(gpu: OneProcess, pattern: str, name: str, matches: bool, registered: bool) -> None:
    assert make_pattern_matcher(pattern)(name) is matches

    gpu.kernel("gemm", 1, 2, launch_ns=0)
    gpu.range(name, 10, 20, registered=registered)
    gpu.range(pattern, 30, 40)  # a name matches itself
    found = windows(gpu, "first", convention=replace(GENERIC, anchor=pattern))
    assert found[0].name == (name if matches else pattern)


@pytest.mark.parametrize("name", ["a [1]* of 3?", "a [1]*"])
def test_characters_of_globs_are_themselves_behind_a_leading_wildcard(gpu: OneProcess, name: str) -> None:
    gpu.kernel("gemm", 1, 2, launch_ns=0)
    gpu.range("a 1", 5, 8)
    gpu.range(name, 10, 20)
    (window,) = windows(gpu, convention=replace(GENERIC, anchor="%[1%"))
    assert (window.name, window.count) == (name, 1)


# -- stages and purposes


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("layer05_stage5_f_layer06_stage1_f", ("stage1_f", "cp_ring")),
        ("layer00.stage2_b", ("stage2_b", "ep_a2a")),
        ("stage3_w", ("stage3_w", None)),
        ("stage2_f", ("stage2_f", "ep_a2a")),
        ("stage4_b", ("stage4_b", "ep_a2a")),
        ("stage1_w", ("stage1_w", "cp_ring")),
        ("stage5_f", ("stage5_f", None)),
        ("pipeline send/recv", (NO_STAGE, "pp_p2p")),
        *((name, None) for name in ("stage6_f", "stage0_f", "Stage1_f", "stage1_", "aten::mm", "nccl stage1_f")),
        ("rank=0; pp=0/1 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=1", None),
    ],
)
def test_the_stage_is_the_last_match_and_says_the_purpose(name: str, context: tuple[str, str | None] | None) -> None:
    assert PITHTRAIN.make_stage_and_purpose_parser()(name) == context


def test_stage_is_the_named_group_of_a_users_own_expression() -> None:
    own = Convention("own", stage=r"(?P<block>[a-z]+)/(?P<stage>fwd|bwd)(?P<more>!)?")
    assert own.make_stage_and_purpose_parser()("attn/fwd moe/bwd!") == ("bwd", None)
    assert own.make_stage_and_purpose_parser()("attn/opt") is None


def test_optional_stage_group_that_matched_nothing_says_nothing() -> None:
    own = Convention("own", stage=r"block(?P<stage>_[a-z]+)?")
    assert own.make_stage_and_purpose_parser()("block_a block") == ("_a", None)
    assert own.make_stage_and_purpose_parser()("block") is None


def test_purpose_by_range_wins_over_one_by_stage_and_the_first_of_a_kind_wins() -> None:
    own = Convention(
        "own",
        stage=r"(?P<stage>s[0-9]_[ab])",
        purposes=(
            Purpose("first", stages=("s1_*",)),
            Purpose("second", stages=("s?_a", "s[23]_b")),
            Purpose("named", ranges=("send%", "exact")),
        ),
    )
    assert own.purpose_names == ("first", "second", "named", "mixed", "unknown")
    context = own.make_stage_and_purpose_parser()
    assert context("s1_a") == ("s1_a", "first")
    assert context("s2_a") == ("s2_a", "second")
    assert context("s3_b") == ("s3_b", "second")
    assert context("s4_b") == ("s4_b", None)
    assert context("send s1_a") == ("s1_a", "named")
    assert context("exact") == ("none", "named")
    assert context("not exact") is None


# -- communication kernels


def test_communication_globs_are_held_against_the_demangled_name(gpu: OneProcess) -> None:
    gpu.range("step", 0, 900)
    gpu.kernel("dispatch", 10, 20, launch_ns=1, stream=20, demangled="void deep_ep::intranode::dispatch<8>(int*)")
    gpu.kernel("deep_ep_like", 10, 22, launch_ns=1, stream=21, demangled="void other::kernel()")
    gpu.kernel("ncclKernel", 10, 24, launch_ns=1, stream=22, demangled="void renamed()")
    gpu.kernel("renamed", 10, 26, launch_ns=1, stream=23, demangled="ncclDevKernel()")

    plain = Convention("own", anchor="step")
    assert rows(gpu, "compute_ns", convention=plain) == {0: 10 + 12 + 16}
    deep_ep = replace(plain, communication=("*deep_ep::*", "nothing"))
    assert rows(gpu, "compute_ns", convention=deep_ep) == {0: 12 + 16}
    assert rows(gpu, "comm_ns", convention=deep_ep) == {(0, "none"): 10 + 14}
    case = replace(plain, communication=("*DEEP_EP*",))
    assert rows(gpu, "compute_ns", convention=case) == {0: 10 + 12 + 16}


# -- fingerprint and mistakes

OTHERS = {
    "name": replace(PITHTRAIN, name="another"),
    "anchor": replace(PITHTRAIN, anchor="step%"),
    "setup": replace(PITHTRAIN, setup=r"rank=(?P<rank>\d+)"),
    "stage": replace(PITHTRAIN, stage=r"(?P<stage>stage[1-9]_[fbw])"),
    "purposes": replace(PITHTRAIN, purposes=PITHTRAIN.purposes[::-1]),
    "communication": replace(PITHTRAIN, communication=("*deep_ep*",)),
    "libraries": replace(PITHTRAIN, libraries=True),
    "span": replace(PITHTRAIN, span=Span.PERIOD),
    "kernels": replace(PITHTRAIN, kernels=KernelsMode.LAUNCHED),
    "copies": replace(PITHTRAIN, copies=(CopyKind.PEER,)),
    "families": replace(PITHTRAIN, families=(Family("gemm", ("*gemm*",)),)),
    "kinds": replace(PITHTRAIN, kinds=(EngineStepKind("decode", "decode .*"),)),
    "part": replace(PITHTRAIN, anchor="chunk%", part=True),
}


@pytest.mark.parametrize("field", [field.name for field in fields(Convention)])
def test_every_field_but_the_name_is_in_the_fingerprint(field: str) -> None:
    """The rule of the known libraries is where it counted a kernel: see test_known_communication.py."""
    alike = OTHERS[field].compute_fingerprint() == PITHTRAIN.compute_fingerprint()
    assert alike is (field in ("name", "libraries"))


def test_a_kernel_anchor_is_in_the_fingerprint_with_what_it_is_after() -> None:
    anchors = ("first_kernel", KernelAnchor("first_kernel"), KernelAnchor("first_kernel", "other"))
    assert len({replace(PITHTRAIN, anchor=anchor).compute_fingerprint() for anchor in anchors}) == len(anchors)


@pytest.mark.parametrize("anchor", ["step%", KernelAnchor("gemm"), KernelAnchor("gemm", "all_gather")])
def test_an_anchor_is_spelled_and_read(anchor: str | KernelAnchor) -> None:
    convention = replace(PITHTRAIN, anchor=anchor, kinds=(EngineStepKind("decode", "d.*"),))
    assert decode_convention(json.loads(json.dumps(encode_convention(convention)))) == convention


def test_the_fingerprints_that_stored_baselines_hold() -> None:
    """Of another one they would be of no run any more."""
    assert {name: convention.compute_fingerprint() for name, convention in BUILT_IN_CONVENTIONS.items()} == {
        "pithtrain": "9c4855970fc5",
        "generic": "44136fa355b3",
        "kineto": "c3c2f30f82d0",
        "torchtitan": "d78785deb80b",
        "jax": "df9bf7c2818c",
        "sglang": "ec87971b4f25",
        "vllm": "9b7bd87fa600",
    }


def test_purpose_is_in_the_fingerprint_with_its_patterns() -> None:
    each = [Purpose("p"), Purpose("q"), Purpose("p", stages=("a",)), Purpose("p", ranges=("a",))]
    assert len({Convention("c", purposes=(purpose,)).compute_fingerprint() for purpose in each}) == len(each)


@pytest.mark.parametrize(
    ("given", "key", "what"),
    [
        ({"stage": "stage[1-5]"}, "stage", r"needs a group named 'stage'"),
        ({"stage": "(?P<stage>"}, "stage", "not a regular expression"),
        ({"setup": r"rank=(\d+)"}, "setup", r"needs a group named 'rank'"),
        ({"setup": "*"}, "setup", "not a regular expression"),
    ],
)
def test_expression_that_cannot_be_meant(given: dict[str, str], key: str, what: str) -> None:
    with pytest.raises(ConventionMistake, match=what) as mistake:
        Convention("own", **given)  # type: ignore[arg-type]
    assert mistake.value.key == key


def test_generic_names_nothing(gpu: OneProcess) -> None:
    assert GENERIC.purpose_names == ("mixed", "unknown")
    assert GENERIC.make_stage_and_purpose_parser()("layer00_stage2_f") is None
    assert GENERIC.parse_setup("rank=0; pp=0/1 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=1") is None
    gpu.range("rank=1; pp=1/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", 1, 2)
    gpu.range("layer00_stage2_f", 5, 20)
    gpu.kernel("gemm", 30, 40, launch_ns=10)
    gpu.kernel("ncclKernel", 40, 50, launch_ns=10, stream=28)
    assert rows(gpu, "comm_ns", convention=GENERIC, window="run") == {(0, "none"): 10}


# -- setup labels


def test_setup_label_of_pithtrain() -> None:
    setup = PITHTRAIN.parse_setup("rank=13; pp=1/2 dp=0/1 cp=3/4 ep=0/8; mbs=2 seq=4096")
    assert setup is not None
    assert (setup.rank, setup.micro_batch, setup.sequence_length) == (13, 2, 4096)
    assert setup.coordinates == {"pp": 1, "dp": 0, "cp": 3, "ep": 0}
    assert setup.sizes == {"pp": 2, "dp": 1, "cp": 4, "ep": 8}


def test_setup_label_states_what_its_expression_names() -> None:
    own = Convention("own", setup=r"worker (?P<rank>\d+)(?: tp(?P<tp>\d+)of(?P<tp_size>\d+))?(?P<host>@\w+)?")
    bare, full = own.parse_setup("worker 3"), own.parse_setup("worker 4 tp1of2@node7")
    assert bare is not None
    assert full is not None
    assert (bare.rank, bare.coordinates, bare.sizes, bare.micro_batch) == (3, {}, {}, None)
    assert (full.rank, full.coordinates, full.sizes) == (4, {"tp": 1}, {"tp": 2})


@pytest.mark.parametrize(
    ("setup", "label"),
    [
        (r"rank=(?P<rank>\d+)", "rank=1"),
        (r"ranks?=(?P<rank>\d+)", "rank=1"),
        (r"rank *=(?P<rank>\d+)", "rank=1"),
        (r"rank={0,1}(?P<rank>\d+)", "rank1"),
        (r"rank=+(?P<rank>\d+)", "rank==1"),
        (r"node (?P<node>\d+)|rank=(?P<rank>\d+)", "rank=1"),
        (r"(?i)RANK=(?P<rank>\d+)", "rank=1"),
        (r"^rank=(?P<rank>\d+)$", "rank=1"),
        (r".*rank=(?P<rank>\d+)", "node 7 rank=1"),
        (r"\[rank (?P<rank>\d+)\]", "[rank 1]"),
        (r"100% rank (?P<rank>\d+)", "100% rank 1"),
    ],
)
def test_setup_label_is_found_whatever_its_expression_starts_with(gpu: OneProcess, setup: str, label: str) -> None:
    own = Convention("own", anchor="step", setup=setup)
    gpu.range("range 1", 1, 2)
    gpu.range(label, 3, 4)
    gpu.range("step", 10, 90)
    gpu.kernel("gemm", 30, 40, launch_ns=20)
    assert rows(gpu, "compute_ns", convention=own) == {1: 10}
