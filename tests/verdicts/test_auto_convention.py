"""Which convention does ``convention: auto`` take, in what order is it looked for, and when is nothing comparable?"""

import json
from pathlib import Path

import pytest

from pytest_nsys import compare, judge, open_run
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, decode_convention, encode_convention
from pytest_nsys.gates.model import Outcome
from pytest_nsys.verdicts.comparison import Result
from tests.support.gates import MS, Project
from tests.support.samples.builder import TraceBuilder

BELOW = "- wall_exposed_ns below baseline plus 5%"
FOUND = "generic, anchor 'step %' (found in the {})"


def steps(path: Path, name: str = "step {}", *, inner: str = "", count: int = 8, exposed_us: int = 200) -> Path:
    """One rank that repeats a step of 8 ms every 10 ms, which ends with communication that nothing hides."""
    gpu = TraceBuilder().process(pid=100)
    for k in range(count):
        begin = 10 * MS * k + 1_000
        if name:
            gpu.range(name.format(k), begin, begin + 8 * MS)
        for n, half in enumerate(filter(None, inner.split(","))):
            gpu.range(half, begin + n * 4 * MS, begin + (n + 1) * 4 * MS - 1_000)
        for at in (begin + MS, begin + 5 * MS):
            gpu.kernel("gemm", at, at + 2 * MS, launch_ns=at - 5_000)
            end = at + 2 * MS + 1_000 * exposed_us
            gpu.kernel("ncclDevKernel_AllReduce", at + MS, end, stream=28, launch_ns=at - 4_000)
    return gpu.trace.write(path)


def first_line(project: Project, *arguments: str, code: int) -> str:
    """What a summary says of the run of the gate file."""
    said = project.pytest("-v", *arguments, code=code).splitlines()
    return next(line for line in said if line.startswith("gate.nsys.yaml: ") and "found" in line)


def test_it_is_found_in_the_trace_and_named(project: Project) -> None:
    steps(project.root / "run.sqlite")
    project.gate("- wall_exposed_ns < 1 ms")
    assert FOUND.format("trace") in first_line(project, "--nsys-trace=run.sqlite", code=0)
    project.gate("convention: auto\nassertions: [wall_exposed_ns < 1 ms]")
    assert FOUND.format("trace") in first_line(project, "--nsys-trace=run.sqlite", code=0)


def test_the_line_of_a_gate_file_names_it(project: Project) -> None:
    steps(project.root / "run.sqlite")
    project.gate("- wall_exposed_ns < 1 ms")
    found = "; generic, anchor 'step %' (found)"
    for limit, code, said in (("1 ms", 0, "1 assertion passed; least headroom 60% of limit"), ("1 us", 1, "1 failed")):
        project.gate(f"- wall_exposed_ns < {limit}")
        told = project.pytest("--nsys-trace=run.sqlite", code=code)
        (line,) = (line for line in told.splitlines() if line.startswith("gate.nsys.yaml: "))
        assert said in line
        assert line.endswith(found)
        assert len(line) <= 100
    project.gate("convention: {extends: generic, anchor: step %}\nassertions: [wall_exposed_ns < 1 ms]")
    assert "(found)" not in project.pytest("--nsys-trace=run.sqlite", code=0)


def test_the_baseline_keeps_it_and_says_it_from_then_on(project: Project) -> None:
    steps(project.root / "run.sqlite")
    project.gate(BELOW)
    project.refresh("--nsys-trace=run.sqlite")
    ((_, text),) = project.baselines().items()
    kept = json.loads(text)["convention"]
    assert kept == {"name": "generic", "anchor": "step %", "libraries": True}
    assert json.loads(text)["key"]["convention"] == decode_convention(kept).compute_fingerprint()
    assert FOUND.format("baseline") in first_line(project, "--nsys-trace=run.sqlite", code=0)
    steps(project.root / "slower.sqlite", exposed_us=300)
    assert "failed" in project.pytest("-v", "--nsys-trace=slower.sqlite", code=1)
    assert "nothing to prune" in project.command("baseline", "prune", "gate.nsys.yaml", code=0)


def test_a_run_that_fits_another_one_is_not_comparable(project: Project) -> None:
    steps(project.root / "run.sqlite")
    project.gate(BELOW)
    project.refresh("--nsys-trace=run.sqlite")
    steps(project.root / "other.sqlite", inner="part a,part b", name="step {}")
    assert "1 passed" in project.pytest("-v", "--nsys-trace=other.sqlite", code=0)
    steps(project.root / "renamed.sqlite", name="iteration {}")
    assert "no range matches the anchor 'step %'" in project.pytest("-v", "--nsys-trace=renamed.sqlite", code=1)
    # Another step stands around the old one: what was measured is there, and the run alone would be read otherwise.
    gpu = TraceBuilder().process(pid=100)
    for k in range(12):
        begin = 10 * MS * k + 1_000
        gpu.range(f"iteration {k}", begin, begin + 9 * MS)
        gpu.range(f"step {k}", begin, begin + 4 * MS)
        gpu.kernel("gemm", begin + MS, begin + 2 * MS, launch_ns=begin + 1)
        gpu.kernel("ncclDevKernel_AllReduce", begin + MS, begin + 2 * MS + 200_000, stream=28, launch_ns=begin + 2)
        gpu.kernel("gemm", begin + 5 * MS, begin + 8 * MS, launch_ns=begin + 5 * MS - 9)
    gpu.trace.write(project.root / "inside.sqlite")
    said = project.pytest("-v", "--nsys-trace=inside.sqlite", code=1)
    now, was = (f"generic, anchor '{name} %', span range, kernels contained" for name in ("iteration", "step"))
    assert f"is from a different setup (convention: now {now}, baseline {was})" in said
    project.gate(f"comparable_on: [world]\nassertions: ['{BELOW[2:]}']")
    assert "no verdict" not in project.pytest("-v", "--nsys-trace=inside.sqlite")
    assert "is from a different setup" not in "\n".join(project.result.outlines)
    project.gate(BELOW)
    project.refresh("--nsys-trace=inside.sqlite")
    assert len(project.baselines()) == 2
    assert "generic, anchor 'iteration %' (found in the baseline)" in first_line(
        project, "--nsys-trace=inside.sqlite", code=0
    )
    assert FOUND.format("baseline") in first_line(project, "--nsys-trace=run.sqlite", code=0)


def test_the_base_says_it_before_the_head(project: Project, tmp_path: Path) -> None:
    base, head = steps(tmp_path / "base.sqlite"), steps(tmp_path / "head.sqlite", exposed_us=300)
    project.gate(BELOW)
    assert FOUND.format("base") in first_line(project, f"--nsys-trace={head}", f"--nsys-against={base}", code=1)
    found = compare(base, head)
    assert found.result is Result.WORSE
    assert "convention generic, anchor 'step %' (found in the base)" in [note.text for _, note in found.notes]
    with open_run(base) as before, open_run(head) as now:
        assert judge("wall_exposed_ns below baseline plus 5%", now, before).outcome is Outcome.FAILED
        assert before.convention.anchor == "step %"


def test_a_head_that_fits_otherwise_is_not_comparable_with_its_base(tmp_path: Path) -> None:
    base = steps(tmp_path / "base.sqlite", inner="part a,part b", name="")
    head = steps(tmp_path / "head.sqlite", inner="part a,part b", name="step {}")
    (differs,) = [each for each in compare(base, head).circumstances if each.name == "convention"]
    assert differs.baseline == "generic, span range, kernels contained"
    base = steps(tmp_path / "base.sqlite", inner="part a", name="")
    head = steps(tmp_path / "head.sqlite", inner="part a", name="step {}")
    found = compare(base, head)
    assert found.result is Result.INCOMPARABLE
    (differs,) = [each for each in found.circumstances if each.name == "convention"]
    assert "anchor 'step %'" in differs.current
    assert "anchor 'part a'" in differs.baseline


def test_two_ranges_by_turns_are_no_step(project: Project) -> None:
    steps(project.root / "run.sqlite", inner="part a,part b", name="")
    said = project.command("--view=overlap", "run.sqlite", code=0)
    assert "the ranges 'part a' and 'part b' repeat alike: --anchor names one" in said
    assert "note: window run" in said
    assert "stage" in project.command("--view=overlap", "run.sqlite", "--anchor", "part a", code=0)
    project.gate("convention: {extends: generic, anchor: part a}\nassertions: [wall_exposed_ns < 1 ms]")
    project.pytest("-v", "--nsys-trace=run.sqlite", code=0)


def test_two_built_in_conventions_are_listed(project: Project) -> None:
    gpu = TraceBuilder().process(pid=100)
    for k in range(6):
        gpu.range(f"ProfilerStep#{k}", 10 * MS * k, 10 * MS * k + 9 * MS)
        gpu.range(f"forward chunk {k} backward chunk {k}", 10 * MS * k, 10 * MS * k + 9 * MS)
        gpu.kernel("gemm", 10 * MS * k + MS, 10 * MS * k + 2 * MS, launch_ns=10 * MS * k + 1)
    gpu.trace.write(project.root / "run.sqlite")
    said = project.command("--view=streams", "run.sqlite", code=2)
    assert (
        "2 conventions fit equally well (pithtrain; kineto): add --convention pithtrain or --convention kineto" in said
    )
    project.command("--view=streams", "run.sqlite", "--convention=kineto", code=0)


@pytest.mark.parametrize("name", BUILT_IN_CONVENTIONS)
def test_what_is_spelled_is_read_back(name: str) -> None:
    assert (
        decode_convention(json.loads(json.dumps(encode_convention(BUILT_IN_CONVENTIONS[name]))))
        == BUILT_IN_CONVENTIONS[name]
    )


@pytest.mark.parametrize(
    "said",
    [
        [],
        {"anchor": "a"},
        {"name": "a", "more": 1},
        {"name": "a", "anchor": 1},
        {"name": "a", "span": "long"},
        {"name": "a", "families": "none"},
        {"name": "a", "families": 7},
        {"name": "a", "purposes": {"p": {}}},
        {"name": "a", "communication": "x"},
        {"name": "a", "libraries": 1},
        {"name": "a", "copies": ["sideways"]},
        {"name": "a", "stage": "("},
    ],
)
def test_what_nobody_wrote_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_convention(said)


def test_a_baseline_with_a_convention_that_nobody_wrote_is_told(project: Project) -> None:
    steps(project.root / "run.sqlite")
    project.gate(BELOW)
    project.refresh("--nsys-trace=run.sqlite")
    (path,) = (project.root / "baselines").rglob("*.json")
    path.write_text(path.read_text().replace('"anchor": "step %"', '"anchor": 7'))
    said = project.pytest("-v", "--nsys-trace=run.sqlite", code=1)
    assert "is not a baseline: it holds no convention that could have been written; restore it from git" in said
