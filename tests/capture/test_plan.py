"""Does the plan of a run come out right, and are sizes that do not divide refused with how much is missing?"""

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.capture.program import RunPlan, plan_run
from pytest_nsys.cli import main
from pytest_nsys.core.errors import UsageMistake


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["capture", *arguments], env=environment)


@pytest.fixture(autouse=True)
def _outside_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def test_a_plan_is_printed() -> None:
    result = run("--plan", "--world-size", "32", "--pp", "4", "--ep", "4", "--cp", "1")
    assert result.exit_code == 0
    assert result.stdout == (
        "nodes         4\nDP            2\nglobal batch  256 (32 micro-batches per stage × DP 2 × EP 4)\n"
    )


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((8,), RunPlan(nodes=1, dp=8, global_batch=256)),
        ((4, 2, 2), RunPlan(nodes=1, dp=1, global_batch=64)),
        ((16, 2, 2, 2), RunPlan(nodes=2, dp=2, global_batch=128)),
        ((16, 4, 1, 1, 4), RunPlan(nodes=4, dp=4, global_batch=128)),
        ((1, 1, 1, 1, 1), RunPlan(nodes=1, dp=1, global_batch=32)),
    ],
)
def test_what_sizes_come_to(sizes: tuple[int, ...], expected: RunPlan) -> None:
    assert plan_run(*sizes) == expected


NO_MULTIPLE = "is not a multiple of 8 (pp × ep × cp = 2 × 2 × 2)"


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((12, 2, 2, 2), f"world size 12 {NO_MULTIPLE}: 4 GPUs short of 16, or take 4"),
        ((7, 2, 2, 2), f"world size 7 {NO_MULTIPLE}: 1 GPU short of 8"),
        (
            (12, 2),
            "world size 12 is not a multiple of 8 (the GPUs of a node): 4 GPUs short of 16, or take 4 away for 8",
        ),
        ((0,), "world size is 0: every size is at least 1"),
        ((8, 1, 1, -1), "cp is -1: every size is at least 1"),
        ((8, 1, 1, 1, 0), "GPUs per node is 0: every size is at least 1"),
    ],
)
def test_sizes_that_do_not_divide(sizes: tuple[int, ...], said: str) -> None:
    with pytest.raises(UsageMistake) as mistake:
        plan_run(*sizes)
    assert str(mistake.value).startswith(said)


def test_a_plan_fits_the_allocation() -> None:
    result = run("--plan", "--world-size", "32", "--pp", "4", SLURM_JOB_ID="7", SLURM_JOB_NUM_NODES="3")
    assert result.exit_code == 2
    assert "needs 4 nodes of 8 GPUs: the allocation has 3, 1 node (8 GPUs) short\n" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan"], "--plan needs --world-size"),
        (["--plan", "--world-size", "8", "--", "train"], "--plan runs nothing"),
        (["--pp", "2", "--", "train"], "--pp, --ep and --cp are checked against --world-size: give that too"),
        (["--world-size", "9", "--pp", "2", "--", "train"], "1 GPU short of 10"),
    ],
)
def test_what_cannot_be_meant(words: list[str], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.stderr


@given(*[st.integers(1, 40)] * 4, st.sampled_from([1, 4, 8]))
def test_a_plan_uses_every_gpu_once_or_says_what_is_missing(world: int, pp: int, ep: int, cp: int, node: int) -> None:
    sizes = world, pp, ep, cp, node
    mesh = pp * ep * cp
    part = mesh if world % mesh else node if world > node and world % node else None
    if part is not None:
        with pytest.raises(UsageMistake, match=f" GPUs? short of {world - world % part + part}\\b"):
            plan_run(*sizes)
    else:
        found = plan_run(*sizes)
        assert found.dp * mesh == world
        assert (found.nodes - 1) * node < world <= found.nodes * node
