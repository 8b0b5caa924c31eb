"""Does ``pytest-nsys init`` write a gate file that holds on its trace, says why, and turns red on a worse one?"""

import contextlib
import errno
import gzip
import json
import os
import pty
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys import open_run
from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.steps.anchor_candidates import AnchorCandidate, list_anchor_candidates
from pytest_nsys.analysis.steps.convention_fit import GENERIC, ConventionChoice
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.cli.init import DraftTraces, draft_gate, exclude_failing
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, make_pattern_matcher
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.drafting import sentences
from pytest_nsys.drafting.gate_text import SCHEMA_NAME, Draft, format_scalar, render_gate_file
from pytest_nsys.drafting.margins import (
    choose_absolute_ns,
    choose_points_margin,
    choose_relative_margin,
    estimate_noise,
    find_far_captures,
    format_ns,
    round_percent_below,
)
from pytest_nsys.drafting.sentences import STRUCTURE_GROUP, DraftSentence
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import BaselineLimit, GateFile
from pytest_nsys.tools import files
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.sqlite.file import SqliteFile
from tests.support.commands import answer, run
from tests.support.gates import MS, Edit, Project, write_trace
from tests.support.many_traces import write_nodes
from tests.support.reference_data import DEEPSEEK, DUALPIPE, DUALPIPE_RUNS
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.formats import ENDINGS, Format
from tests.support.samples.gpu_state import allocate
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.training_run import REDUCE, WHOLE, Training, slower

GATES = "gates.nsys.yaml"
STEPS = [(k, 10 * MS * k + 1_000) for k in range(8)]
"""Of each step its number, and when it begins."""
GREEN = ("-W", "error::pytest_nsys.outcomes.NsysWarning")


@pytest.fixture(autouse=True)
def _fewer_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the processes of pytest that a command starts."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences are drafted however many they are."""
    monkeypatch.setattr(sentences, "MAX_SENTENCES", 99)


def written(project: Project, name: str = GATES) -> GateFile:
    """The gate file that was written, which loader and schema both accept."""
    path = project.root / name
    schema = json.loads((path.parent / SCHEMA_NAME).read_text(encoding="utf-8"))
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    jsonschema.Draft202012Validator(schema).validate(document)  # that the schema is one, another test says
    return load_gate_file(path)


def draft(*traces: Path, convention: str | None = None) -> tuple[GateFile, str]:
    """The gate file that ``init`` writes beside the first trace, where it was judged already, and its text."""
    path = traces[0].parent / GATES
    with contextlib.closing(CaptureCache()) as library:
        trial = DraftTraces(library, tuple(map(str, traces)))
        given = None if convention is None else BUILT_IN_CONVENTIONS[convention]
        text = render_gate_file(draft_gate(trial, path, given)[0])
    path.write_text(text, encoding="utf-8")
    return load_gate_file(path), text


def green(project: Project, *arguments: str, name: str = GATES) -> str:
    """Nothing but the written file, judged by pytest: every assertion passes, without a warning."""
    said = project.pytest(name, *GREEN, *arguments, code=0)
    assert f"{len(written(project, name).assertions)} passed" in said
    return said


def steps(
    path: Path,
    name: str = "train step {}",
    *,
    count: int = 8,
    length_ms: int = 8,
    lag_ms: int = 0,
    every_ms: int = 10,
    launch: bool = True,
    barrier: bool = False,
    library: str = "ncclDevKernel_AllReduce",
    edit: object = None,
) -> Path:
    """A range that repeats, each with a gemm of 6 ms and communication of 1 ms, ``lag_ms`` behind the CPU."""
    process = TraceBuilder().process()
    for k in range(count):
        at = every_ms * MS * k + 1_000
        if name:
            process.range(name.format(k), at, at + length_ms * MS)
        ran = at + lag_ms * MS + 100_000
        process.kernel("gemm", ran, ran + 6 * MS, launch_ns=at + 10_000, launch=launch)
        stream = 7 if barrier else 28
        start = ran + (6 * MS if barrier else 0)
        process.kernel(
            library, start, start + MS, stream=stream, launch_ns=at + 20_000, launch=launch, demangled=library
        )
    if callable(edit):
        edit(process)
    return process.trace.write(path)


def on_each(do: Callable[[Process], object]) -> Edit:
    """Of each process."""
    return lambda _, processes: [do(process) for process in processes]


# A trace of a known framework


def test_a_labelled_trace_gets_a_gate_that_is_green_and_can_turn_red(project: Project) -> None:
    project.file("pytest.ini", "[pytest]\nnsys_baseline_dir = perf/accepted\n")
    project.trace("run.sqlite", chunks_ms=(15,) * 9)
    said = project.command("init", "run.sqlite", code=0)
    assert len(said.splitlines()) <= 20
    assert "pytest gates.nsys.yaml --nsys-trace=THE_NEXT_RUN" in said
    gate = written(project)
    assert (gate.resolved_convention, gate.traces) == (BUILT_IN_CONVENTIONS["pithtrain"], ("run.sqlite",))
    assert 5 <= len(gate.assertions) <= sentences.MAX_SENTENCES
    names = [assertion.full_name for assertion in gate.assertions]
    assert {"no mixed comm streams", "no barrier", "no syncs", "launches == baseline"} <= set(names)
    held = {a.metric for a in gate.assertions if a.needs_baseline}
    assert held >= {"exposed_ns", "period_ns", "window_ns", "compute_ns", "idle_ns", "launches", "kernel_share"}
    assert "balance of compute across pp <= 1.05" in names
    ((name, text),) = project.baselines("perf/accepted").items()
    assert json.loads(text)["provenance"]["reason"] == "first baseline by pytest-nsys init"
    window = f"perf/accepted/{name.replace('.json', '.window.gz')}"
    assert f"\n{window} holds the windows of this run (" in said
    assert window in project.files()
    green(project)
    project.trace("worse.sqlite", {(1, "stage4_f"): 600}, chunks_ms=(15,) * 9)
    assert "exposed below baseline plus max(10%, 50us)" in project.pytest(GATES, "--nsys-trace=worse.sqlite", code=1)
    (project.root / "perf" / "accepted" / name).write_text(text.replace("15000000", "10000000"), encoding="utf-8")
    assert "window below baseline" in project.pytest(GATES, code=1)
    before = (project.root / GATES).read_bytes()
    project.command("init", "run.sqlite", "--force", code=0)
    assert (project.root / GATES).read_bytes() == before
    assert project.baselines("perf/accepted") == {name: text}


@pytest.mark.usefixtures("every")
def test_every_assertion_says_why(tmp_path: Path) -> None:
    gate, text = draft(write_trace(tmp_path / "run.sqlite"))
    lines = text.splitlines()
    assert lines[0] == f"# yaml-language-server: $schema=./{SCHEMA_NAME}"
    assert max(map(len, lines)) <= 120
    entries = [n for n, line in enumerate(lines) if line.startswith("  - ")]
    assert len(entries) == len(gate.assertions)
    assert [lines[n] for n in entries if not lines[n - 1].startswith("  # ")] == []
    above = lines[lines.index("  - stage2_f overlap >= 75%") - 1]
    assert "At worst 80% (rank 0 stage2_f), median 80%: headroom 5 pp." in above


# A trace of an unknown framework


def test_an_anchor_is_drafted(tmp_path: Path) -> None:
    gate, text = draft(steps(tmp_path / "run.sqlite"))
    found = gate.resolved_convention
    assert (found.anchor, found.span, found.kernels) == ("train step %", Span.RANGE, KernelsMode.CONTAINED)
    assert "# The range that repeats: 8 times a rank, 8 ms every 10 ms (within" in text
    assert "wall overlap >= 95%" in text


def test_a_mark_at_the_beginning_is_a_period(tmp_path: Path) -> None:
    gate, text = draft(steps(tmp_path / "run.sqlite", length_ms=0))
    assert gate.resolved_convention.span is Span.PERIOD
    assert "# period: the anchors mark a beginning and enclose little." in text


def test_a_gpu_far_behind_is_taken_by_launches(tmp_path: Path) -> None:
    gate, text = draft(steps(tmp_path / "run.sqlite", lag_ms=367))
    assert gate.resolved_convention.kernels is KernelsMode.LAUNCHED
    assert "# launched: the GPU runs 367 ms behind the CPU." in text


def test_communication_that_is_all_barrier(tmp_path: Path) -> None:
    gate, text = draft(steps(tmp_path / "run.sqlite", barrier=True))
    assert "All communication is such, so 'exposed' and 'overlap' have no rows." in text
    assert {"barrier_ns", "idle_ns", "step_time_ns"} <= {a.metric for a in gate.assertions if a.needs_baseline}
    assert not {"overlap", "wall_overlap", "exposed_ns", "wall_exposed_all_ns", "comm_streams"} & {
        a.metric for a in gate.assertions
    }


def shared_stream(path: Path, covering: int = 100) -> Path:
    """In each step 4 ms of DeepEP between two casts on stream 27, beside gemms of 10 x 380 us on stream 7 of which
    ``covering`` percent is left.
    """
    process = TraceBuilder().process()
    for k, at in STEPS:
        process.range(f"train step {k}", at, at + 8 * MS)
        for name, start, length in (("cast", 0, 50_000), ("dispatch", 100_000, 4 * MS), ("cast", 4_200_000, 50_000)):
            full = f"void deep_ep::internode::{name}<8>(int)" if name == "dispatch" else f"{name}(int)"
            start += at + 100_000
            process.kernel(name, start, start + length, stream=27, launch_ns=at + 10_000, demangled=full)
        for i in range(10):
            start = at + 200_000 + 400_000 * i
            process.kernel("gemm", start, start + 3_800 * covering, launch_ns=at + 20_000)
    return process.trace.write(path)


def test_communication_on_a_stream_that_computes_is_hidden_by_others(project: Project) -> None:
    """It is all barrier, and 95% of it is hidden: the gate turns red where it no longer is."""
    shared_stream(project.root / "run.sqlite")
    project.command("init", "run.sqlite", code=0)
    said = " ".join((project.root / GATES).read_text().replace("#", "").split())
    assert "can never overlap" not in said
    assert "of communication on compute streams: only other streams' compute can hide it." in said
    green(project)
    shared_stream(project.root / "worse.sqlite", 60)
    said = project.pytest("-v", GATES, "--nsys-trace=worse.sqlite", code=1)
    assert "  failed    wall overlap all >= 90%  " in said
    assert re.search(r"failed +wall exposed all below baseline .+ 1.72 ms ", said)


@pytest.mark.reference
@pytest.mark.slow
def test_the_published_profile_of_deepseek(project: Project) -> None:
    """The same with the kernels of its stream 7 under communication cut to 60 %."""
    (project.root / DEEPSEEK.name).symlink_to(DEEPSEEK)
    content = json.loads(gzip.decompress(DEEPSEEK.read_bytes()))
    kernels = [event for event in content["traceEvents"] if event.get("cat") == "kernel"]
    moving = [event for event in kernels if "::ep::" in event["name"].partition("(")[0]]
    for event in kernels:
        end = event["ts"] + event["dur"]
        if event not in moving and any(m["ts"] < end and event["ts"] < m["ts"] + m["dur"] for m in moving):
            event["dur"] = round(0.6 * event["dur"], 3)
    (project.root / "worse.json").write_text(json.dumps(content))
    project.command("init", DEEPSEEK.name, code=0)
    text = (project.root / GATES).read_text()
    assert "At most 3.81 ms (rank 0)" in text
    assert "can never overlap" not in text
    green(project)
    said = project.pytest("-v", GATES, "--nsys-trace=worse.json", code=1)
    assert "  failed    wall overlap all >= 91%  " in said
    assert re.search(r"failed +wall exposed all below baseline ", said)


def test_another_library_communicates(tmp_path: Path) -> None:
    """Under a drafted convention as under the one that it extends; under pithtrain by its name."""
    gate, text = draft(steps(tmp_path / "run.sqlite", library="void deep_ep::dispatch<8>(int)"))
    assert "  extends: generic\n" in text
    assert "# Kernels of DeepEP communicate, too.\n" in text
    assert gate.resolved_convention.is_communication("dispatch", "void deep_ep::dispatch<8>(int)")
    assert "wall_overlap" in {a.metric for a in gate.assertions}

    def put(process: Process) -> None:
        process.kernel("put", 42 * MS, 43 * MS, stream=30, launch_ns=41 * MS, demangled="nvshmem_put(int)")

    gate, text = draft(write_trace(tmp_path / "labelled.sqlite", edit=on_each(put)))
    assert "convention:\n  extends: pithtrain\n" in text
    assert gate.resolved_convention.communication == ("*nvshmem*",)


@pytest.mark.usefixtures("every")
def test_stages_from_names(tmp_path: Path) -> None:
    def phases(process: Process) -> None:
        for k, at in STEPS:
            process.range(f"forward {k}", at + 5_000, at + 15_000)
            process.range(f"backward {k}", at + 16_000, at + 30_000)

    gate, _ = draft(steps(tmp_path / "run.sqlite", edit=phases))
    assert [purpose.name for purpose in gate.resolved_convention.purposes] == ["backward"]
    assert {"backward overlap >= 95%", "no unknown comm streams"} <= {a.full_name for a in gate.assertions}


@pytest.mark.parametrize(("count", "window"), [(4, "median"), (2, "run"), (0, "run")])
def test_too_few_anchors(tmp_path: Path, count: int, window: str) -> None:
    trace = steps(tmp_path / "run.sqlite", count=max(count, 1), name="step {}" if count else "", launch=bool(count))
    gate, text = draft(trace)
    assert gate.window == window
    assert gate.quality.anchors == (count if window == "median" else 5)
    assert ("# anchors: rank 0 has 4 anchors; better: profile more steps." in text) is (window == "median")
    assert ("# run, all of it in one window: " in text) is (window == "run")


@pytest.mark.parametrize(
    "name",
    [
        *("step: {} # no comment", 'it\'s "step" {}', "100% of step {}", "step\n{}\twith breaks", " step {} "),
        *("- step {}", "*step* {}", "схема шага {} → ∑", "{{step}}[{}], &x !y |z >", "null {}"),
        *("\x1b[31mstep {}\x1b[0m", "step_{} \\ back\\n", "@step `{}`", "nan{}", "x{}"),
    ],
)
@pytest.mark.sampled(4)
def test_odd_names(tmp_path: Path, name: str) -> None:
    gate, _ = draft(steps(tmp_path / "run.sqlite", name))
    assert gate.resolved_convention.anchor is not None
    matches = make_pattern_matcher(gate.resolved_convention.anchor)
    assert all(matches(name.format(k)) for k in range(8))
    run = Run([NsysSqlite(tmp_path / "run.sqlite")], gate.resolved_convention)
    assert len(run.find_anchors(run.ranks[0])) == 8
    run.close()


# Other inputs


def _kineto(path: Path, rank: int = 0, count: int = 6) -> Path:
    trace = KinetoBuilder(rank=rank, world=2, pid=100 + rank, device=rank)
    for k in range(count):
        at = 10 * MS * k + 1_000
        trace.range(f"ProfilerStep#{k}", at, at + 9 * MS)
        trace.kernel("gemm", at + MS, at + 5 * MS + rank, launch_ns=at + 1_000)
        trace.kernel("ncclDevKernel_AllReduce", at + 4 * MS, at + 6 * MS, stream=20, launch_ns=at + 2_000)
    return trace.write(path)


def test_a_folder_of_ranks(project: Project) -> None:
    for rank in range(2):
        _kineto(project.root / "run" / f"rank{rank}_trace.json.gz", rank)
    project.command("init", "run", "-o", "perf.nsys.yaml", code=0)
    gate = written(project, "perf.nsys.yaml")
    assert (gate.traces, gate.resolved_convention) == (("run",), BUILT_IN_CONVENTIONS["kineto"])
    assert "wall overlap >= 45%" in {assertion.full_name for assertion in gate.assertions}
    assert "2 ranks" in green(project, "-v", name="perf.nsys.yaml")


def test_a_rank_that_is_absent_is_no_trace_of_the_drafted_run(project: Project) -> None:
    """Nothing in these exports says how many files there are."""
    (project.root / "run").mkdir()
    for rank in range(2):
        process = TraceBuilder().process(pid=100 + rank)
        for k, at in STEPS:
            process.range(f"step {k}", at, at + 9 * MS)
            process.kernel("gemm", at + MS, at + 5 * MS + rank, launch_ns=at + 1_000)
        process.trace.write(project.root / "run" / f"{rank}.sqlite")
    project.command("init", "run", "-o", "perf.nsys.yaml", code=0)
    assert "\nrun: {world: 2}  # " in (project.root / "perf.nsys.yaml").read_text(encoding="utf-8")
    project.pytest("perf.nsys.yaml", code=0)
    (project.root / "run" / "1.sqlite").unlink()
    assert "1 of 2 GPUs is missing" in project.pytest("perf.nsys.yaml", code=1)


@pytest.mark.parametrize("executor", [None, "processes:2"])
def test_many_traces_are_opened_once(project: Project, monkeypatch: pytest.MonkeyPatch, executor: str | None) -> None:
    write_nodes(project.root / "run", 3, ranks=1)
    opened: list[Path] = []
    read_header = SqliteFile._check_header

    def seen(file: SqliteFile) -> None:
        opened.append(file.path)
        read_header(file)

    monkeypatch.setattr(SqliteFile, "_check_header", seen)
    run("init", "run", *([f"--executor={executor}"] if executor else []), code=0)
    # also where other processes read: the budgets that a baseline keeps of a few ranks are read here
    assert Counter(opened) == dict.fromkeys((project.root / "run").resolve().iterdir(), 1)
    assert len(written(project).assertions) > 5


def test_files_of_other_ranks_are_one_run_and_no_captures(tmp_path: Path) -> None:
    paths = [_kineto(tmp_path / f"rank{rank}_trace.json", rank) for rank in range(2)]
    one, together = draft(*paths), draft(tmp_path / "rank?_trace.json")
    assert one[0].convention == together[0].convention == BUILT_IN_CONVENTIONS["kineto"]
    assert [a.sentence for a in one[0].assertions] == [a.sentence for a in together[0].assertions]
    again = _kineto(tmp_path / "again" / "rank0_trace.json", 0, count=7)
    with pytest.raises(UsageMistake, match=r"no captures of one program: 1 rank \(0\) against 1 rank \(1\)\. Write"):
        draft(*paths, again)


def test_captures_of_unlike_programs_say_what_differs_and_what_to_do(project: Project) -> None:
    """Another number of ranks and another format; then other steps. Neither leaves a file."""
    project.trace("two.sqlite", 200)
    _kineto(project.root / "one.json", 0)
    found = run("init", "two.sqlite", "one.json", code=2).stderr
    assert found == (
        "error: two.sqlite and one.json are no captures of one program: 2 ranks (0–1) against 1 rank (0), SQLite "
        "export of nsys against torch.profiler. Write a gate of each (pytest-nsys init one.json -o OTHER.nsys.yaml), "
        "or give the files of one run, each with ranks of its own\n"
    )
    other = project.root / "other.json"
    other.write_text((project.root / "one.json").read_text().replace("ProfilerStep#", "train_it#"))
    found = run("init", "one.json", "other.json", code=3).stderr
    assert found.startswith("error: other.json has not the steps of one.json: rank 0 ")
    assert found.endswith(
        "no range matches the anchor 'ProfilerStep#%'. Write a gate of each "
        "(pytest-nsys init other.json -o OTHER.nsys.yaml)\n"
    )
    assert list(project.root.glob("*.yaml")) == []


def test_files_whose_processes_only_their_labels_tell_apart(tmp_path: Path) -> None:
    """Containers of two nodes give their processes the same number."""
    paths = write_nodes(tmp_path / "run", 2, ranks=1)
    for traces in (paths, [tmp_path / "run"]):
        gate, text = draft(*traces)
        assert gate.resolved_convention == BUILT_IN_CONVENTIONS["pithtrain"]
        assert ": 2 ranks; pp=1 dp=2" in text


@pytest.mark.parametrize(("count", "window", "anchors"), [(2, "median", 2), (1, "first", 5)])
def test_few_profiled_steps(tmp_path: Path, count: int, window: str, anchors: int) -> None:
    gate, _ = draft(_kineto(tmp_path / "rank0_trace.json", count=count))
    assert (gate.window, gate.quality.anchors, gate.quality.missing_ranks) == (window, anchors, 1)


def test_jax(tmp_path: Path) -> None:
    trace = JaxBuilder()
    for k in range(6):
        at = 10 * MS * k + 1_000
        trace.step("train", k, at, at + 9 * MS)
        trace.kernel("gemm", at + MS, at + 5 * MS, launch_ns=at + 1_000)
    gate, _ = draft(trace.write(tmp_path / "host.trace.json.gz"))
    assert gate.resolved_convention == BUILT_IN_CONVENTIONS["jax"]
    assert not any(a.metric in ("barrier_ns", "overlap", "exposed_ns") for a in gate.assertions)


def test_nothing_ran_on_a_gpu(project: Project) -> None:
    trace = TraceBuilder()
    trace.process().range("step 1", 1_000, 2_000)
    trace.write(project.root / "run.sqlite")
    said = project.command("init", "run.sqlite", code=3)
    assert len([line for line in said.splitlines() if line]) == 1
    assert project.files() == {"run.sqlite"}


def test_a_convention_that_is_named(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "run.sqlite")
    with pytest.raises(NothingMeasured, match="no range matches the anchor 'ProfilerStep#%'"):
        draft(trace, convention="kineto")
    assert (
        draft(trace, convention="generic")[0].resolved_convention.anchor
        == "forward chunk % (phase1) backward chunk % (phase0)"
    )


@pytest.mark.parametrize("convention", [(), ("--convention=pithtrain",)])
def test_an_anchor_that_is_named(project: Project, convention: tuple[str, ...]) -> None:
    """It stands in the file with the convention that it is an anchor of, also where that was found."""
    project.trace("run.sqlite")
    project.command("init", "run.sqlite", "--anchor=layer00.stage2_f", *convention, code=0)
    assert "convention:\n  extends: pithtrain\n  anchor: layer00.stage2_f\n" in (project.root / GATES).read_text()
    assert written(project).resolved_convention == BUILT_IN_CONVENTIONS["pithtrain"].with_anchor("layer00.stage2_f")
    green(project)
    said = project.command("init", "run.sqlite", "--force", "--anchor=nope%", *convention, code=3)
    assert "no range matches the anchor 'nope%'" in said


# What is there already, and what cannot be written


def test_existing_files_are_never_overwritten(project: Project) -> None:
    project.trace("run.sqlite")
    project.file(GATES, "mine")
    assert "gates.nsys.yaml: exists: give --force" in project.command("init", "run.sqlite", code=2)
    assert (project.root / GATES).read_text() == "mine"
    said = project.command("init", "run.sqlite", "--force", "--baseline-dir", "elsewhere", code=0)
    assert "pytest gates.nsys.yaml --nsys-baseline-dir=elsewhere" in said
    green(project, "--nsys-baseline-dir=elsewhere")
    before = project.baselines("elsewhere")
    (project.root / GATES).unlink()
    project.trace("run.sqlite", 300)
    said = project.command("init", "run.sqlite", "--baseline-dir", "elsewhere", code=2)
    assert "holds baselines of this gate file already" in said
    assert project.baselines("elsewhere") == before
    assert GATES not in project.files()


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("gates.yaml", "end it in .nsys.yaml"),
        ("g [x].nsys.yaml", "pytest reads brackets in a path as parameters: give one without"),
        (".nsys.yaml", "end it in .nsys.yaml"),
        ("run.sqlite/gates.nsys.yaml", "run.sqlite is not a folder"),
        ("folder.nsys.yaml", "is a folder"),
    ],
)
def test_a_target_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "run.sqlite")
    (tmp_path / "folder.nsys.yaml").mkdir()
    done = run("init", "run.sqlite", "-o", output)
    assert (done.exit_code, said in done.output) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.nsys.yaml", "run.sqlite"]


@pytest.mark.parametrize(
    ("output", "written"),
    [
        ("perf/x", "perf/x.nsys.yaml"),
        ("perf/new/x.nsys.yaml", "perf/new/x.nsys.yaml"),
        ("new/", "new/gates.nsys.yaml"),
        ("there", "there/gates.nsys.yaml"),
    ],
)
def test_the_folder_is_made(project: Project, output: str, written: str) -> None:
    (project.root / "there").mkdir()
    project.trace()
    assert f"wrote {written}: " in project.command("init", "run.sqlite", "-o", output, code=0)
    project.pytest(written, code=0)


def test_a_folder_that_was_made_in_vain_is_gone_again(project: Project) -> None:
    trace = TraceBuilder()
    trace.process().range("step", 0, 10)
    trace.write(project.root / "run.sqlite")
    project.command("init", "run.sqlite", "-o", "perf/new/x", code=3)
    assert not (project.root / "perf").exists()


def test_files_of_different_ranks_are_one_run(project: Project) -> None:
    label = "rank={}; pp={}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
    for rank in range(2):
        project.trace(f"node{rank}.sqlite", ranks=1, label=label.format(rank, rank))
    each = ["node0.sqlite", "node1.sqlite"]
    project.command("init", *each, code=0)
    assert "gates.nsys.yaml: node0.sqlite, node1.sqlite (2 ranks, pp=2" in project.pytest("-v", code=0)
    rows, of_the_folder = (
        answer("rows", "launches", *(project.root / word for word in words))["rows"] for words in (each, ["."])
    )
    assert rows == of_the_folder
    assert {row["rank"] for row in rows} == {0, 1}
    with open_run([project.root / name for name in each]) as run:
        assert run.ranks == (0, 1)
    project.gate("- compute_ns < 1us", "red.nsys.yaml")
    red = project.pytest("-v", "red.nsys.yaml", *(f"--nsys-trace={name}" for name in each), code=1)
    assert "next:   pytest-nsys node0.sqlite node1.sqlite --view kernels --rank 0\n" in red


def test_a_strange_file_in_the_place_of_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "run.sqlite")
    (tmp_path / SCHEMA_NAME).write_text("{}")
    assert "is not the schema of gate files" in run("init", "run.sqlite", "--force", code=2).output
    assert (tmp_path / SCHEMA_NAME).read_text() == "{}"


def test_a_project_whose_pytest_is_broken_is_left_as_it_was(project: Project) -> None:
    project.trace("run.sqlite")
    project.file("conftest.py", "raise SystemError('broken')\n")
    words = [sys.executable, "-m", "pytest_nsys", "init", "run.sqlite"]
    done = subprocess.run(words, cwd=project.root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "conftest" in done.stderr
    assert project.files() == {"run.sqlite", "conftest.py"}


def full_disk_below(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "") -> None:
    """Let no file be written below a folder, or none of those that end in ``name``."""

    def full(target: Path, content: bytes) -> None:
        if target.is_relative_to(folder) and target.name.endswith(name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target.parent / f".{target.name}.abc.tmp"))
        replace_file(target, content)

    replace_file = files._replace_file
    monkeypatch.setattr(files, "_replace_file", full)


@pytest.mark.parametrize("name", [".json", GATES, SCHEMA_NAME])
def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "run.sqlite")
    full_disk_below(tmp_path, monkeypatch, name)
    said = run("init", "run.sqlite", "-o", "perf/", code=2).output
    assert "No space left on device" in said
    assert ".tmp" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["run.sqlite"]


def test_a_full_disk_leaves_the_gate_that_there_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "run.sqlite")
    run("init", "run.sqlite", code=0)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    full_disk_below(tmp_path, monkeypatch, GATES)
    write_trace(tmp_path / "other.sqlite", 300)
    run("init", "other.sqlite", "--force", code=2)
    (tmp_path / "other.sqlite").unlink()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_full_disk_for_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, scratch = tmp_path / "project", tmp_path / "scratch"
    scratch.mkdir()
    write_trace(project / "run.sqlite")
    monkeypatch.chdir(project)
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    full_disk_below(scratch, monkeypatch)
    said = run("init", "run.sqlite", code=2).output
    what = "the draft cannot be tried there: No space left on device: make room, or set TMPDIR"
    assert said == f"error: {scratch}: {what}\n"
    assert [path.name for path in project.iterdir()] == ["run.sqlite"]


def test_the_baseline_is_written_before_the_gate_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "run.sqlite")
    written: list[str] = []

    def noted(target: Path, content: bytes) -> None:
        replace_file(target, content)
        if target.is_relative_to(tmp_path):
            written.append(target.name)

    replace_file = files._replace_file
    monkeypatch.setattr(files, "_replace_file", noted)
    run("init", "run.sqlite", code=0)
    assert written[-1] == GATES
    assert [name for name in written if name.endswith(".json") and name != SCHEMA_NAME]


def test_a_trace_far_away_is_not_named_in_the_file(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a" / "run.sqlite")
    for folder, named in (("b", ("../a/run.sqlite",)), ("b/c/d", ())):
        with contextlib.closing(CaptureCache()) as library:
            trial = DraftTraces(library, (str(trace),))
            found, _ = draft_gate(trial, tmp_path / folder / GATES)
        assert found.traces == named


# On a terminal


def on_a_terminal(folder: Path, typed: str, *arguments: str) -> tuple[int, str]:
    """Run ``pytest-nsys init`` with a terminal, and type; its exit code and what stood on the terminal."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "pytest_nsys", "init", *arguments]
    process = subprocess.Popen(words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed.encode())
    said = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while more := os.read(ours, 65536):
            said += more
    os.close(ours)
    return process.wait(), said.decode("utf-8", "replace")


def test_it_asks_on_a_terminal_alone(project: Project) -> None:
    steps(project.root / "run.sqlite")
    run("init", "run.sqlite")
    before = (project.root / GATES).read_text()
    code, said = on_a_terminal(project.root, "n\n", "run.sqlite")
    assert "gates.nsys.yaml exists. Overwrite it and its baseline?" in said
    assert (code, (project.root / GATES).read_text()) == (2, before)
    code, said = on_a_terminal(project.root, "y\n", "run.sqlite", "--anchor=train%")
    assert code == 0, said
    assert written(project).resolved_convention.anchor == "train%"
    code, said = on_a_terminal(project.root, "", "run.sqlite", "--force")
    assert code == 0, said
    assert (project.root / GATES).read_text() == before


# Several captures


@pytest.mark.usefixtures("every")
def test_the_spread_of_captures_sets_the_margins(tmp_path: Path) -> None:
    traces = [write_trace(tmp_path / f"{n}.sqlite", each) for n, each in enumerate((200, 210, 190))]
    gate, _ = draft(*traces)
    assert gate.traces == ("0.sqlite", "1.sqlite", "2.sqlite")
    names = {assertion.full_name for assertion in gate.assertions}
    assert "stage2_f overlap >= 74%" in names  # 80 % less three times the range of 2 points
    assert "exposed below baseline plus max(30%, 50us)" in names
    assert gate.tolerance is not None
    assert gate.tolerance.relative == Fraction(2, 100)


@pytest.mark.parametrize(
    ("slow", "count", "said"),
    [(1, 2, "4.22 ms in 0.json"), (0, 3, "4.22 ms in 2 others"), (4, 5, "4.22 ms in 4 others")],
)
def test_a_capture_that_disagrees_is_named_and_widens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: int, count: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for n in range(count):  # each a little later than the one before, for one file is one sample
        own = slower(WHOLE, 30) if n == slow else {name: ns + n for name, ns in WHOLE.items()}
        names.append(Training(steps=(own,) * 8).write(tmp_path / f"{n}.json", Format.KINETO).name)
    told = run("init", *names, code=0).stdout
    which = ", and of two nobody knows which: give a third" if count == 2 else ""
    assert f"left out '{slow}.json': 5.46 ms a step, {said}: a hiccup, or another program{which}\n" in told
    gate = load_gate_file(tmp_path / GATES)
    assert gate.tolerance is not None
    assert gate.tolerance.relative <= Fraction(5, 100)
    assert gate.traces == tuple(name for name in names if name != f"{slow}.json")
    assert {"step time below baseline plus tolerance", "mean step time below baseline plus tolerance"} <= {
        assertion.full_name for assertion in gate.assertions
    }


@pytest.mark.parametrize("format", [Format.KINETO, Format.NSYS, Format.ROCPD])
@pytest.mark.sampled(2)
def test_a_hiccup_in_one_time_of_five_captures_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    """The step is within a tenth of that of the others, and what one collective takes is not."""
    monkeypatch.chdir(tmp_path)
    steps = [slower(WHOLE, 40, REDUCE) if n == 3 else {name: ns + n for name, ns in WHOLE.items()} for n in range(5)]
    paths = [
        Training(steps=(own,) * 8).write(tmp_path / f"{n}.{ENDINGS[format]}", format) for n, own in enumerate(steps)
    ]
    told = run("init", *[path.name for path in paths], code=0).stdout
    assert re.search(rf"left out '{paths[3].name}': a hiccup: .*_ns is .*, the median of the others ", told)
    gate = load_gate_file(tmp_path / GATES)
    assert paths[3].name not in gate.traces
    assert {"step_time_ns", "compute_ns", "kernel_share"} <= {assertion.metric for assertion in gate.assertions}
    limits = [each.requirement.limit for each in gate.assertions]
    tolerances = [
        limit.tolerance for limit in limits if isinstance(limit, BaselineLimit) and limit.tolerance is not None
    ]
    assert max(tolerance.relative for tolerance in tolerances) <= Fraction(5, 100)


def test_a_step_that_varies_too_much_is_drafted_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tolerance of a step is above a tenth, and what else would be blind is named and not drafted."""
    monkeypatch.chdir(tmp_path)
    names = []
    for n, percent in enumerate((0, 8, -8)):
        own = {name: ns + n for name, ns in slower(WHOLE, percent).items()}
        names.append(Training(steps=(own,) * 8).write(tmp_path / f"{n}.json", Format.KINETO).name)
    told = run("init", *names, code=0).stdout
    chance = r"captures differ by up to .* ms by chance, more than twice a tolerance of .*: take captures"
    assert re.search(rf"warning: 'step time below baseline plus tolerance': {chance}", told)
    gate = load_gate_file(tmp_path / GATES)
    assert gate.tolerance is not None
    assert gate.tolerance.relative == Fraction(10, 100)
    assert {"step_time_ns", "compute_ns"} <= {assertion.metric for assertion in gate.assertions}


def test_rows_that_differ_too_much_by_chance_are_drafted_as_their_largest(tmp_path: Path) -> None:
    """Which of two ranks computes longer is chance, and how long the longer one does is not."""

    def computing(first: int) -> Edit:
        def edit(_: TraceBuilder, processes: list[Process]) -> None:
            for rank, process in enumerate(processes):
                length = 8 * MS if rank == first else 4 * MS
                process.kernel("gemm", 46 * MS, 46 * MS + length + first, launch_ns=45 * MS + 10_000)

        return edit

    traces = [write_trace(tmp_path / f"{n}.sqlite", edit=computing(n % 2)) for n in range(3)]
    _, text = draft(*traces)
    assert "  - max compute below baseline plus " in text
    assert "  - compute below " not in text


def test_of_many_captures_that_disagree_as_many_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for n in range(9):
        own = {name: (ns if n < 5 else 2 * ns) + n for name, ns in WHOLE.items()}
        names.append(Training(steps=(own,) * 8).write(tmp_path / f"{n}.json", Format.KINETO).name)
    told = run("init", *names, code=0).stdout
    assert re.findall(r"left out '(\d)\.json'", told) == ["5", "6", "7"]
    assert "left out 1 more\n" in told


def test_captures_of_a_noisy_program_let_no_step_be_a_tenth_longer() -> None:
    assert find_far_captures([100, 109, 95, 104]) == []
    assert find_far_captures([100, 112]) == [1]
    assert find_far_captures([130, 100, 101]) == [0]
    assert find_far_captures([10, 10, 15, 15]) == [2, 3]
    assert find_far_captures([]) == []


@pytest.mark.parametrize(
    ("values", "noise"), [([5], None), ([5, 7], 6), ([5, 7, 4], 9), ([5, 5, 5, 5], 0), ([1, 2, 3, 4, 5], 6.5)]
)
def test_noise_of_captures(values: list[int], noise: float | None) -> None:
    found = estimate_noise(values, 1)
    assert (found is None) is (noise is None)
    if noise is not None:
        assert found is not None
        assert float(found) == pytest.approx(noise, rel=0.1)


def test_margins() -> None:
    assert choose_relative_margin([[100], [200]]) == Fraction(5, 100)
    assert choose_relative_margin([[1000, 1000], [1000, 1010]]) == Fraction(3, 100)
    assert choose_relative_margin([[1000, 1000]]) == Fraction(2, 100)
    assert choose_relative_margin([[10, 20]], absolute=30) == Fraction(2, 100)
    assert choose_points_margin([[Fraction(1, 2)]]) == Fraction(5, 100)
    assert choose_points_margin([[Fraction(50, 100), Fraction(51, 100)]]) == Fraction(3, 100)
    assert round_percent_below([Fraction(713, 1000)], Fraction(5, 100)) == 66
    assert (
        choose_absolute_ns(48_000_000),
        choose_absolute_ns(2_388_000),
        choose_absolute_ns(12_990),
        choose_absolute_ns(7),
    ) == (
        50_000,
        20_000,
        100,
        1,
    )
    assert (format_ns(50_000), format_ns(100), format_ns(1_500)) == ("50us", "100ns", "1500ns")


# What a sentence must do


def test_a_sentence_that_does_not_hold_is_not_written(tmp_path: Path) -> None:
    trace = str(write_trace(tmp_path / "run.sqlite"))
    true, false = (DraftSentence(text, ("why",), STRUCTURE_GROUP, 1) for text in ("no syncs", "overlap >= 99%"))
    choice = ConventionChoice(BUILT_IN_CONVENTIONS["pithtrain"], BUILT_IN_CONVENTIONS["pithtrain"])
    both = Draft(("about",), (), choice, Fraction(5, 100), "50us", (), (true, false))
    with contextlib.closing(CaptureCache()) as library:

        def evidence_of(gate: GateFile) -> Captures:
            return library.open_captures([trace], tmp_path, gate.resolved_convention)

        kept, left = exclude_failing(both, evidence_of, GATES)
        assert kept.sentences == (true,)
        assert [(each.title, each.reason) for each in left] == [
            ("overlap >= 99%", "failed: 4 of 4 rows below their limit")
        ]
        with pytest.raises(NothingMeasured, match="4 of 4 rows below"):
            exclude_failing(replace(both, sentences=(false,)), evidence_of, GATES)


# What the limit of their number leaves


def held(gate: GateFile) -> set[str]:
    """The metrics that it judges."""
    return {assertion.metric for assertion in gate.assertions}


NEVER_DROPPED = {"period_ns", "compute_ns", "exposed_ns", "launches", "syncs", "kernel_share"}


def test_constants_of_stages_go_first(tmp_path: Path) -> None:
    stages = tuple(f"stage{n}_{side}" for n in (1, 2, 4) for side in "fb")
    gate, text = draft(write_trace(tmp_path / "run.sqlite", stages=stages, chunks_ms=(30,) * 5, every_ms=40))
    assert len(gate.assertions) == sentences.MAX_SENTENCES
    assert held(gate) >= NEVER_DROPPED
    assert " overlap >= " not in text
    assert [a.sentence for a in gate.assertions if a.metric == "exposed_ns"] == [
        "exposed below baseline plus max(10%, 50us)"
    ]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_few_steps_have_a_step_time(tmp_path: Path, count: int) -> None:
    """A trace of torch.profiler seldom has more: a loader that stalls between its steps is in no window."""
    gate, _ = draft(_kineto(tmp_path / "rank0_trace.json", count=count))
    assert held(gate) >= {"step_time_ns", "period_ns"}  # the mean


def test_the_step_time_of_one_step_is_its_window(tmp_path: Path) -> None:
    gate, text = draft(_kineto(tmp_path / "rank0_trace.json", count=1))
    assert held(gate) & {"step_time_ns", "window_ns", "period_ns"} == {"step_time_ns"}
    assert ": the step, on the slowest rank. Limit: " in text


def allocating(mebibytes: int) -> Edit:
    return on_each(lambda process: allocate(process, 500, mebibytes << 20, address=1))


def test_memory_is_held_where_it_is_recorded(tmp_path: Path) -> None:
    gate, text = draft(write_trace(tmp_path / "run.sqlite", edit=allocating(1024)))
    assert held(gate) >= {*NEVER_DROPPED, "peak_allocated_bytes"}
    assert "  - peak allocated below baseline plus tolerance\n" in text
    assert "At most 1.07 GB (rank 1)" in text
    assert "peak_allocated_bytes" not in held(draft(write_trace(tmp_path / "other.sqlite"))[0])


def test_memory_that_varies_has_a_share_of_its_own(tmp_path: Path) -> None:
    traces = [write_trace(tmp_path / f"{n}.sqlite", edit=allocating(n)) for n in (1000, 1010, 1020)]
    assert "  - peak allocated below baseline plus 6%\n" in draft(*traces)[1]


def test_kernels_that_only_some_captures_ran_may_come_and_go(tmp_path: Path) -> None:
    def tuned(name: str) -> Edit:
        at = 46 * MS
        return on_each(lambda process: process.kernel(name, at, at + 150_000, stream=9, launch_ns=45 * MS + 10_000))

    traces = [write_trace(tmp_path / f"{n}.sqlite", edit=tuned(f"gemm_{n % 2}")) for n in range(3)]
    assert "assert: no new or vanished kernels above 4%, " in draft(*traces)[1]
    assert "assert: no new or vanished kernels above 2%, " in draft(traces[0])[1]


def test_compute_that_is_short_beside_its_window_has_a_small_tolerance(tmp_path: Path) -> None:
    """10% of it is less than what times of the window may differ by."""

    process = TraceBuilder().process()
    for k, at in STEPS:
        process.range(f"train step {k}", at, at + 8 * MS)
        process.kernel("tiny", at + 600_000, at + 900_000, launch_ns=at + 20_000)
    text = draft(process.trace.write(tmp_path / "run.sqlite"))[1]
    assert "tolerance: {rel: 5%, abs: 50us}\n" in text
    assert "  - compute below baseline plus max(5%, 2us)\n" in text


# Candidates


def candidates(path: Path) -> list[AnchorCandidate]:
    run = Run([NsysSqlite(path)], GENERIC)
    try:
        return list_anchor_candidates(run)
    finally:
        run.close()


def test_what_is_no_anchor(tmp_path: Path) -> None:
    def others(process: Process) -> None:
        for k, at in STEPS:
            process.range(f"aten::mm, seq = {k}", at + 100, at + 9_000)
            process.range(f"{k}", at + 200, at + 9_100)
            process.range(f"nested {k}", at + 300, at + 10 * MS + 500)  # reaches into the next one
            process.range(f"thread {k}", at + 400, at + 9_300, thread=1_000 + k)
        process.range("rare 1", 5_000, 6_000)
        process.range("open 1", 5_000, None)

    assert [c.pattern for c in candidates(steps(tmp_path / "a.sqlite", edit=others))] == ["train step %"]


def test_what_a_candidate_says(tmp_path: Path) -> None:
    (found,) = candidates(steps(tmp_path / "a.sqlite"))
    assert [found.count, found.length_ns, found.period_ns] == [8, 8 * MS, 10 * MS]
    assert [found.period_spread, found.inside_share, found.covered_share] == [0, 1, 1]
    assert (found.span, found.is_reliable) == (Span.RANGE, True)
    (few,) = candidates(steps(tmp_path / "b.sqlite", count=4))
    assert (few.count, few.is_reliable, few.is_usable) == (4, False, True)


def test_numbers_that_never_change_stay(tmp_path: Path) -> None:
    (found,) = candidates(steps(tmp_path / "a.sqlite", "model 7B step {}"))
    assert found.pattern == "model 7B step %"


def test_a_pattern_that_matches_more_is_no_anchor(tmp_path: Path) -> None:
    def longer(process: Process) -> None:
        for k, at in STEPS:
            process.range(f"train step {k} (loss)", at + 100, at + 200)

    patterns = [c.pattern for c in candidates(steps(tmp_path / "a.sqlite", edit=longer))]
    assert patterns == ["train step % (loss)"]


# Text


@given(st.text(max_size=40))
def test_a_value_is_read_as_what_it_was(text: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in text):
        return
    root = yaml.compose(f"key: {format_scalar(text)}\n")
    assert root is not None
    assert root.value[0][1].value == text


def test_values_that_yaml_would_take_for_something_else() -> None:
    for text in ("null", "No", "~", "", "1.5", "0x10", "a: b", "a #b", "- a", "2001-01-01", "{a}", ">= 5%", " a"):
        assert format_scalar(text).startswith('"')
    for text in (
        "stage2_f overlap >= 66%",
        "no barrier_ns",
        "exposed below baseline plus max(5%, 50us)",
        "run/a.sqlite",
    ):
        assert format_scalar(text) == text


# Real traces


@pytest.mark.reference
@pytest.mark.parametrize("name", DUALPIPE_RUNS)
def test_the_reference_traces(tmp_path: Path, name: str) -> None:
    names = {assertion.full_name for assertion in real(tmp_path, DUALPIPE / f"{name}.sqlite").assertions}
    assert {"no mixed comm streams", "exposed below baseline plus max(10%, 50us)"} <= names
    assert ("balance of compute across pp <= 1.11" in names) is (name == "pp2_ep2")


def real(folder: Path, trace: Path) -> GateFile:
    """The gate file for a trace that lies where nothing is written."""
    link = folder / trace.name
    link.symlink_to(trace)
    return draft(link)[0]


def _limits(path: Path, overlapping_us: int) -> str:
    """What is said of times where communication on the stream of compute takes so long in every step."""
    process = TraceBuilder().process()
    for k in range(8):
        at = 20 * MS * k + 1_000
        process.range(f"step {k}", at, at + 18 * MS)
        process.kernel("gemm", at + 100_000, at + 10 * MS, launch_ns=at + 10_000)
        end = 10 * MS + overlapping_us * 1_000
        name = "ncclDevKernel_AllReduce"
        process.kernel(name, at + 10 * MS, at + end, launch_ns=at + 20_000, demangled=name)
    return draft(process.trace.write(path))[1]


@pytest.mark.parametrize(
    ("length_us", "limit"), [(400, "450 us (+12.5%)"), (2_000, "2.2 ms (+10%)"), (100, "150 us (+50%)")]
)
def test_a_comment_says_what_the_limit_comes_to(tmp_path: Path, length_us: int, limit: str) -> None:
    text = _limits(tmp_path / "run.sqlite", length_us)
    (said,) = re.findall(r"it never overlaps\. Limit: (.*)\.\n", text)
    assert said == limit
    assert "- barrier below baseline plus max(10%, 50us)" in text


def test_a_comment_claims_no_more_than_was_seen(tmp_path: Path) -> None:
    """Whether the CPU stays ahead is another question than whether it calls what waits."""
    unseen = draft(steps(tmp_path / "run.sqlite"))[1]
    assert "  # No synchronising call in the window.\n  # None in the rest of the trace, either" in unseen

    def after(process: Process) -> None:
        process.api("cudaDeviceSynchronize", 90 * MS, 91 * MS)

    seen = draft(steps(tmp_path / "synchronises.sqlite", edit=after))[1]
    assert "  # No synchronising call in the window.\n  - no syncs\n" in seen
    assert "stays ahead" not in unseen + seen


def test_a_limit_says_how_many_steady_steps_break_it(tmp_path: Path) -> None:
    """Where more than one step of the capture computes longer than the median one, and where none does."""

    def longer(process: Process) -> None:
        for k in (2, 3):
            at = 10 * MS * k + 6_500_000
            process.kernel("gemm", at, at + MS, launch_ns=10 * MS * k + 20_000)

    for name in ("even", "uneven"):
        (tmp_path / name).mkdir()
    _, even = draft(steps(tmp_path / "even" / "run.sqlite"))
    assert "break" not in even.partition("assertions:")[2]
    _, uneven = draft(steps(tmp_path / "uneven" / "run.sqlite", edit=longer))
    lines = [line.strip() for line in uneven.splitlines()]
    at = lines.index("- compute below baseline plus tolerance")
    assert re.fullmatch(r"# 2 of \d steady steps break it: the middle step is judged\.", lines[at - 1])
    (sentence,) = re.findall(r"rel: (\d+)%", uneven)
    assert sentence == re.findall(r"rel: (\d+)%", even)[0]
