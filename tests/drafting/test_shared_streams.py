"""Where communication shares streams with compute, which figures are shown, drafted and compared?

One table of programs, each in nsys and in torch.profiler: the figures that a count of microseconds gives, the metrics
that stand for them everywhere, and a draft that is green on its trace and red where what stays exposed grows.
"""

import re
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.gates.gate_file import load_gate_file
from tests.support.commands import answer, run
from tests.support.gates import Project
from tests.support.samples.formats import ENDINGS, Format, write_one
from tests.support.summaries import summary

US = 1_000
STEPS, STEP_US = 9, 2_000
FORMATS = (Format.NSYS, Format.KINETO)
OWN, ALL = ("wall_exposed_ns", "wall_overlap"), ("wall_exposed_all_ns", "wall_overlap_all")


class Op(NamedTuple):
    """A kernel of every step, in us from its begin."""

    name: str
    start: int
    end: int
    stream: int

    @property
    def communicates(self) -> bool:
        return self.name.startswith("nccl")


class Program(NamedTuple):
    """Its kernels and the metrics that stand for its communication."""

    ops: tuple[Op, ...]
    stand: tuple[str, str]


SEND, GATHER = "ncclDevKernel_SendRecv", "ncclDevKernel_AllGather_RING_LL"
GEMM, OTHER = Op("gemm", 100, 1_000, 7), Op("norm", 1_200, 1_400, 7)
CAST = Op("cast", 20, 60, 27)
PROGRAMS = {
    "all of it, beside gemms of another stream": Program((GEMM, OTHER, CAST, Op(SEND, 150, 1_150, 27)), ALL),
    "all of it, on the only stream": Program(
        (Op("gemm", 0, 700, 7), Op(SEND, 700, 1_000, 7), Op("gemm", 1_000, 1_500, 7)), ALL
    ),
    "half of it": Program((GEMM, OTHER, CAST, Op(SEND, 150, 650, 27), Op(GATHER, 600, 1_100, 9)), ALL),
    "5 percent of it": Program((GEMM, OTHER, CAST, Op(SEND, 150, 200, 27), Op(GATHER, 150, 1_100, 9)), ALL),
    "a little of it": Program((GEMM, OTHER, CAST, Op(SEND, 150, 190, 27), Op(GATHER, 150, 1_100, 9)), OWN),
    "none of it": Program((GEMM, OTHER, Op(GATHER, 150, 1_100, 9)), OWN),
}


def write(folder: Path, format: Format, ops: tuple[Op, ...]) -> Path:
    def put(gpu: Any) -> None:
        for n in range(STEPS):
            at = n * STEP_US * US
            gpu.range(f"ProfilerStep#{n}", at, at + (STEP_US - 50) * US)
            for op in ops:
                # no two steps take the same time
                gpu.kernel(op.name, at + op.start * US, at + op.end * US + n, stream=op.stream, launch_ns=at + US)

    folder.mkdir(exist_ok=True)
    return write_one(folder, format, put)


def counted(ops: tuple[Op, ...], *, every: bool) -> tuple[int, Fraction]:
    """Exposed us of a step, and the share of communication that is hidden: us by us."""
    computing = {op.stream for op in ops if not op.communicates}
    compute = {us for op in ops if not op.communicates for us in range(op.start, op.end)}
    own = [op for op in ops if op.communicates and (every or op.stream not in computing)]
    ran = {us for op in own for us in range(op.start, op.end)}
    return len(ran - compute), Fraction(len(ran & compute), len(ran))


def cut_short(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """The same with gemms that hide less: they give 40% of their time back."""
    return tuple(op._replace(end=op.end - 2 * (op.end - op.start) // 5) if op.name == "gemm" else op for op in ops)


def longer(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """The same with communication that runs on after its gemm."""
    return tuple(op._replace(end=op.end + 200) if op.communicates else op for op in ops)


CASES = [
    pytest.param(format, program, id=f"{what}, {format}") for what, program in PROGRAMS.items() for format in FORMATS
]


def close(ns: int, us: int) -> bool:
    """Equal, but for the ns by which steps differ."""
    return abs(ns - us * US) < US


@pytest.mark.parametrize(("format", "program"), CASES)
@pytest.mark.sampled(5)
def test_what_is_shown_is_what_a_count_gives(tmp_path: Path, format: Format, program: Program) -> None:
    trace = write(tmp_path, format, program.ops)
    shared = program.stand == ALL
    exposed, hidden = counted(program.ops, every=shared)
    communication = summary(trace).communication
    whole = next(iter(communication.total_and_parts))
    assert communication.counts_shared_streams == shared
    assert close(round(whole.exposed_ns), exposed)
    assert whole.overlap_share is not None
    assert abs(whole.overlap_share - hidden) < 0.001
    said = run("show", trace).stdout
    assert (" with compute: wall_exposed_all counts " in said) == shared
    assert ("exposed all  overlap all" in said) == shared
    view = answer("show", trace, "--view=overlap")
    (row,) = view["ranks"]
    exposed, hidden = counted(program.ops, every=True)
    assert close(row["wall_exposed_all_ns"], exposed)
    assert abs(row["wall_overlap_all"] - hidden) < 0.001
    assert view["rows"], "a program gets no empty table"
    told = [note for note in view["notes"] if "only wall_exposed_all and wall_overlap_all count" in note]
    assert len(told) == shared


@pytest.mark.parametrize(("format", "program"), CASES)
@pytest.mark.sampled(10)
def test_a_draft_is_green_on_itself_and_red_where_more_is_exposed(
    project: Project, monkeypatch: pytest.MonkeyPatch, format: Format, program: Program
) -> None:
    """It holds the metrics that stand, of whatever streams, and none that leaves much out."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    trace = write(project.root / "good", format, program.ops)
    name = f"good/run.{ENDINGS[format]}"
    assert trace == project.root / name
    project.command("init", name, code=0)
    project.name = "gates.nsys.yaml"
    drafted = {each.metric for each in load_gate_file(project.root / project.name).assertions}
    first = "exposed_ns" if program.stand == OWN else program.stand[0]
    held = drafted & {*OWN, *ALL, "exposed_ns"}
    assert first in held
    assert held <= {first, *program.stand}
    project.pytest(project.name, code=0)
    for worse in (cut_short, longer):
        path = write(project.root / worse.__name__, format, worse(program.ops))
        now, before = (counted(ops, every=program.stand == ALL)[0] for ops in (worse(program.ops), program.ops))
        said = project.pytest(project.name, f"--nsys-trace={path}", "-v")
        red = re.search(rf"failed +{first.removesuffix('_ns').replace('_', ' ')} ", said)
        assert bool(red) == (now > before), said


@pytest.mark.parametrize("format", FORMATS)
def test_a_plain_sentence_keeps_its_metric_and_its_verdict_names_the_other(project: Project, format: Format) -> None:
    """On nothing it is no green; where half is left out, its green says so."""
    for what, code in (("all of it, beside gemms of another stream", 1), ("half of it", 0)):
        ops = PROGRAMS[what].ops
        name = write(project.root / f"{code}", format, longer(ops)).relative_to(project.root)
        gate = project.gate("- wall exposed <= 400us\n- wall overlap >= 5%\n")
        said = " ".join(project.pytest(gate.name, f"--nsys-trace={name}", "-v", code=code).split())
        which = "the only communication kernel" if code else "1 of 2 communication kernels"
        told = (
            rf"{which} shares stream 27 with compute \(\S+ \S+\): only wall_exposed_all and wall_overlap_all count it"
        )
        assert re.search(told, said), said
        assert ("no data" in said) == bool(code)


def compared(base: Path, head: Path) -> dict[str, str]:
    """How a comparison ends, by metric."""
    (gate,) = answer("compare", base, head, code=1)["gate_files"]
    return {record["metric"]: record["outcome"] for record in gate["assertions"]}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.sampled(3)
def test_both_sides_of_a_comparison_are_held_to_the_same(tmp_path: Path, format: Format, turned: bool) -> None:
    """Where either shares: else one side would have no row, and what moved would be told of nobody."""
    shared = PROGRAMS["all of it, beside gemms of another stream"].ops
    alone = tuple(op._replace(stream=9) if op.communicates else op for op in shared)
    sides = [write(tmp_path / name, format, ops) for name, ops in (("own", alone), ("shared", cut_short(shared)))]
    held = compared(*(reversed(sides) if turned else sides))
    assert {*held} & {*OWN, *ALL} == {*ALL}
    assert held[ALL[0]] == ("improved" if turned else "failed")


def test_two_runs_without_sharing_are_held_to_the_plain_ones(tmp_path: Path) -> None:
    ops = PROGRAMS["none of it"].ops
    sides = [write(tmp_path / name, Format.NSYS, each) for name, each in (("base", ops), ("head", longer(ops)))]
    assert {*compared(*sides)} & {*OWN, *ALL} == {*OWN}
