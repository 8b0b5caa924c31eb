"""Do sentences by stage mean all communication where nothing of a run has a stage, and on both sides alike?"""

import pytest

import pytest_nsys
from pytest_nsys.core.text_format import format_labels
from tests.support import commands
from tests.support.commands import answer
from tests.support.gates import MS, Exposed, Project
from tests.support.samples.builder import Process, TraceBuilder

ANCHOR = "anchor: forward chunk%backward chunk%"
NONE = f"convention: {{{ANCHOR}}}\n"
"""A convention without stages."""

UNSAID = f"convention: {{extends: generic, {ANCHOR}, stage: '(?P<stage>FSDP::[a-z_]+)'}}\n"
"""One of any program, whose stages no range of these traces says."""

BY_STAGE = """\
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed <= 2ms
  - overlap >= 70%
  - exposed_ns below baseline + 5%
"""


def unstaged(project: Project, name: str, exposed_us: Exposed) -> None:
    project.trace(name, exposed_us, stages=("phase",))


@pytest.mark.parametrize("convention", [NONE, UNSAID], ids=["no stages", "no range says one"])
def test_sentences_by_stage_judge_what_has_none(project: Project, convention: str) -> None:
    project.gate(convention + BY_STAGE)
    unstaged(project, "run.sqlite", 200)
    project.refresh("--nsys-trace=run.sqlite")
    project.pytest("--nsys-trace=run.sqlite", code=0)
    unstaged(project, "run.sqlite", {(1, "phase"): 400})
    found = project.judged()
    assert [case.state for case in found.values()] == ["passed", "failure", "failure"]
    assert "rank 1" in [*found.values()][-1].text


@pytest.mark.parametrize("convention", [NONE, UNSAID], ids=["no stages", "no range says one"])
def test_commands_and_the_library_show_them(project: Project, convention: str) -> None:
    project.file("own.yaml", convention.removeprefix("convention: "))
    unstaged(project, "run.sqlite", 200)
    unstaged(project, "slow.sqlite", 400)
    own = ("--convention", project.root / "own.yaml")
    for ranks in ((0, 1), (1,)):
        chosen = [f"--rank={rank}" for rank in ranks]
        rows = answer("rows", "exposed_ns", project.root / "run.sqlite", *own, *chosen)["rows"]
        assert rows == [{"rank": rank, "stage": "none", "exposed_ns": 200_000} for rank in ranks]
    assert "no rows by stage" not in project.command("show", "run.sqlite", "--view=overlap", *own, code=0)
    with pytest_nsys.open_run(project.root / "run.sqlite", convention=str(project.root / "own.yaml")) as run:
        assert [row.value for row in run.rows("exposed_ns")] == [200_000, 200_000]
    compared = pytest_nsys.compare(
        str(project.root / "run.sqlite"), str(project.root / "slow.sqlite"), convention=str(project.root / "own.yaml")
    )
    worse = [format_labels(row.labels) for verdict, row in compared.worse if verdict.assertion.metric == "exposed_ns"]
    assert worse == ["rank 0 no stage", "rank 1 no stage"]


def test_a_comparison_tells_of_launches_once(project: Project) -> None:
    def one_more(_: TraceBuilder, processes: list[Process]) -> None:
        processes[0].kernel("gemm", 50 * MS, 51 * MS)

    unstaged(project, "a.sqlite", 200)
    project.trace("b.sqlite", 200, stages=("phase",), edit=one_more)
    own = project.file("own.yaml", NONE.removeprefix("convention: "))
    sides = [str(project.root / name) for name in ("a.sqlite", "b.sqlite")]
    compared = pytest_nsys.compare(*sides, convention=str(own))
    rows = [row for verdict, row in compared.moved if verdict.assertion.metric == "launches"]
    assert [format_labels(row.labels) for row in rows] == ["rank 0 no stage"]


def test_a_run_with_stages_leaves_out_what_has_none(project: Project) -> None:
    """Whatever rank is asked for: the run decides."""

    def beside(_: TraceBuilder, processes: list[Process]) -> None:
        processes[1].kernel("ncclDevKernel_SendRecv", 52 * MS, 53 * MS, stream=28)
        processes[1].kernel("gemm", 53 * MS, 54 * MS)

    path = project.trace("run.sqlite", {(1, "stage2_f"): None}, stages=("stage2_f",), edit=beside)
    (row,) = answer("rows", "exposed_ns", path)["rows"]
    assert (row["rank"], row["stage"]) == (0, "stage2_f")
    commands.run("rows", "exposed_ns", path, "--rank=1", code=3)
    (row,) = answer("rows", "exposed_ns", path, "--rank=1", "--where=stage=none")["rows"]
    assert row["exposed_ns"] == MS


def test_a_run_that_lost_its_stages_is_not_held_against_them(project: Project) -> None:
    """An aggregate has no stage any more, and would compare what is not the same."""
    project.accepted("assertions: [max exposed_ns <= baseline + 5%]", 200)
    unstaged(project, "run.sqlite", 200)
    (case,) = project.judged().values()
    assert case.properties["nsys_outcome"] == "no data"
    assert "have no stage" in case.text


def test_a_sentence_of_a_stage_says_that_there_is_none(project: Project) -> None:
    project.gate(NONE + "assertions: [all_gather overlap >= 75%, overlap >= 75%, exposed below baseline plus 5%]")
    unstaged(project, "run.sqlite", 200)
    said = " ".join(project.refresh("--nsys-trace=run.sqlite", code=1).split())
    assert "no row has stage all_gather; no kernel of its rows has a stage: leave the stage out to judge them" in said
    assert [case.state for case in project.judged().values()] == ["failure", "passed", "passed"]


def test_a_limit_on_stages_of_its_own_convention_is_held_by_no_other_row(project: Project) -> None:
    """With its ranges it would be red: they are what was lost."""
    project.gated("convention: pithtrain\nassertions: [overlap >= 70%]", 400)
    assert [case.state for case in project.judged().values()] == ["failure"]
    unstaged(project, "run.sqlite", 200)
    (case,) = project.judged().values()
    assert (case.state, case.properties["nsys_outcome"]) == ("failure", "no data")
