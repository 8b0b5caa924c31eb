"""Is a gate file judged on the cut of its windows as on the trace, whatever it says, and is what cannot be told so?"""

import gzip
import json
import re
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.cli.demo import write_demo
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.core.units import BANDWIDTH, BARE, COUNT, HASH, MEGAHERTZ, MEMORY_UNIT, RATIO, SIZE, TIME
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import GateFile
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.references import OtherRun
from tests.analysis.facts.test_facts import session
from tests.support.chrome import chrome
from tests.support.commands import name_of_cut, run
from tests.support.gates import ANCHOR, MS, Project
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.formats import write_step
from tests.support.samples.odd_rows import diagnostic
from tests.traces.test_cut_trace import OF_THE_RUN, jax, kineto, measured, nsys
from tests.verdicts.test_parity import CONVENTION, SHAPE, SLOWER, STATED

FORMS = ("nsys", "kineto", "rocpd")
ONE_LAYER = replace(SHAPE, layers=1)
WINDOWS = ("median", "first", "last", "0", "4", "steady", "run", "layer00.stage%", "%stage2_f")
HOW = {"span": Span, "kernels": KernelsMode}
AMOUNTS = {
    TIME: "200us",
    RATIO: "70%",
    COUNT: "3",
    BARE: "0.5",
    SIZE: "1MB",
    MEMORY_UNIT: "1GiB",
    BANDWIDTH: "1GB/s",
    MEGAHERTZ: "1500MHz",
}


def sentence(random: Random, number: int) -> str:
    """An assertion of any metric that is held, on any window."""
    metric = METRICS[random.choice([name for name in METRICS if name not in OF_THE_RUN])]
    said: dict[str, Any] = {"id": f"s{number}", "window": random.choice(WINDOWS)}
    said |= {name: str(random.choice([*kind])) for name, kind in HOW.items() if random.random() < 0.5}
    if metric.unit == HASH:
        return json.dumps({**said, "assert": f"{metric.name} == baseline"})
    subject = metric.name
    if metric.dimensions and random.random() < 0.3:
        dimension, word = random.choice(metric.dimensions), random.choice(["max", "median", "p90", "sum"])
        subject = f"{word} over {dimension} of {metric.name}"
    amount = AMOUNTS.get(metric.unit, f"1 {metric.unit}")
    higher, lower = (metric.better != other for other in ("lower", "higher"))
    limits = [f">= {amount}", ">= baseline - 2%"] * higher + [f"<= {amount}", "<= baseline + 5%"] * lower
    return json.dumps({**said, "assert": f"{subject} {random.choice(limits)}"})


def told(gate: GateFile, now: Path, base: Path) -> dict[str, Any]:
    """What is decided of each assertion, and why; the key of the run. Paths are left out."""
    found: dict[str, Any] = {}
    with closing(CaptureCache()) as cache:
        convention = gate.resolved_convention
        runs = [cache.open_captures([str(path)], Path(), convention, gate.workload) for path in (now, base)]
        context = GateContext(runs[0], gate, OtherRun(runs[0], gate, runs[1], allows_shared_files=True))
        for each in gate.assertions:
            try:
                verdict = evaluate(each, context)
            except NsysError as error:
                found[each.full_name] = type(error)
                continue
            found[each.full_name] = (
                *(verdict.outcome, re.sub(r"/\S+", "", verdict.message), verdict.rows, verdict.measured_as),
                *(
                    [used.window for used in verdict.windows],
                    verdict.causes,
                    verdict.outcome_warnings,
                    verdict.cautions,
                ),
            )
        found["the run"] = runs[0].build_identity(gate.run)
    return found


def small(gate: Path, trace: Path, name: str) -> Path:
    target = gate.parent / name_of_cut(trace, name)
    said = run("cut", trace, "--gate", gate, "-o", target, code=0).output
    assert "warning: " not in said
    return target


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step, good and with a regression, as files of four ranks by three profilers."""
    folder = tmp_path_factory.mktemp("steps")
    for form in FORMS:
        write_step(folder / form, form, ONE_LAYER)
        write_step(folder / f"slower-{form}", form, ONE_LAYER, SLOWER)
    return folder


@pytest.mark.parametrize(("form", "seed"), [("nsys", 0), ("kineto", 1), ("rocpd", 2)])
@pytest.mark.sampled(3)
def test_any_gate_is_judged_alike(form: str, seed: int, steps: Path, tmp_path: Path) -> None:
    random = Random(seed)
    sentences = [sentence(random, number) for number in range(15)]
    path = tmp_path / "any.nsys.yaml"
    path.write_text("version: 1\n" + CONVENTION + STATED + "assertions:\n  - " + "\n  - ".join(sentences) + "\n")
    gate = load_gate_file(path)
    now, base = small(path, steps / f"slower-{form}", "now"), small(path, steps / form, "base")
    assert told(gate, now, base) == told(gate, steps / f"slower-{form}", steps / form)


def test_why_a_period_is_longer(tmp_path: Path) -> None:
    """A period is judged on all steps of the run, and explained by one of them that is not the window."""
    write_demo(tmp_path)
    path, traces = tmp_path / "fsdp.nsys.yaml", tmp_path / "traces"
    path.write_text(f"{path.read_text()}  - p99 period_ns below baseline plus tolerance\n")
    gate = load_gate_file(path)
    now, base = small(path, traces / "regressed", "now"), small(path, traces / "good", "base")
    there = told(gate, traces / "regressed", traces / "good")
    assert told(gate, now, base) == there
    p50, p99 = (
        there["p50 period_ns below baseline plus tolerance"],
        there["p99 period_ns below baseline plus tolerance"],
    )
    assert [explained.labels["quantile"] for one in (p50, p99) for explained in one[5]] == ["p50", "p50", "p99", "p99"]
    window = tmp_path / "window.json.gz"
    run("cut", traces / "regressed", "-o", window, code=0)
    p50 = told(gate, window, base)["p50 period_ns below baseline plus tolerance"]
    # how long each step is is in there, and the step that explains it only where it is the judged one
    assert p50[0] == "failed"
    assert p50[5] in ((), there["p50 period_ns below baseline plus tolerance"][5])


# -- every metric, in windows that are picked in every way at once

FORMATS = {"pithtrain": nsys, "kineto": kineto, "jax": jax}
WAYS: tuple[dict[str, str], ...] = (
    {},
    {"kernels": "launched"},
    {"window": "first", "kernels": "clipped"},
    {"window": "5", "kernels": "contained"},
    {"span": "period", "kernels": "contained"},
    {"window": "layer00.stage%", "kernels": "launched"},
    {"window": "steady"},
)


@pytest.mark.parametrize("convention", FORMATS)
@pytest.mark.sampled(3)
def test_every_metric_of_every_window(convention: str, tmp_path: Path) -> None:
    """Memory, clocks, copies, ranges of several threads, and times that no float holds are in these."""
    trace = FORMATS[convention](tmp_path)
    each = [json.dumps({"id": f"n{n}", **how, "assert": "compute_ns > 0ns"}) for n, how in enumerate(WAYS)]
    path = tmp_path / "gate.nsys.yaml"
    path.write_text(f"version: 1\nconvention: {convention}\nassertions:\n  - " + "\n  - ".join(each) + "\n")
    window = small(path, trace, "windows")
    for how in WAYS:
        assert measured(window, convention, **how) == measured(trace, convention, **how), how
    assert "does not hold all kernels" in run("--view=overlap", window, "--window=last", code=3).stderr
    again = tmp_path / "again" / window.name
    again.parent.mkdir()
    run("cut", window, "--gate", path, "-o", again, code=0)
    assert measured(again, convention) == measured(window, convention)


# -- what is wrong with the trace, and what a cut cannot hold


def verdicts(project: Project, *traces: str) -> list[dict[str, tuple[str, str]]]:
    """By trace, of each assertion its outcome and its text without paths and notes."""
    each = [project.judged(trace).items() for trace in traces]
    return [{name: (c.state, re.sub(r"\n  note: .*|\S*[/.]\S*", "", c.text)) for name, c in own} for own in each]


def alike(project: Project, gate: Path, trace: str, stem: str = "windows") -> dict[str, tuple[str, str]]:
    """The verdicts on the cut of a trace, which are those on the trace."""
    cut = name_of_cut(project.root / trace, stem)
    run("cut", project.root / trace, "--gate", gate, "-o", project.root / cut, code=0)
    there, here = verdicts(project, trace, cut)
    assert here == there
    return here


def test_doubts_of_the_run_survive(project: Project) -> None:
    """Events that were lost anywhere, kernels that end before the anchors do: green on neither."""

    def lost(trace: TraceBuilder, _: list[Process]) -> None:
        diagnostic(trace, 2, "10 CUDA events were dropped at host.local")

    def idle(_: TraceBuilder, processes: list[Process]) -> None:
        for process, number in product(processes, range(5, 12)):
            process.range(ANCHOR.format(number), 20 * MS * number, 20 * MS * number + 15 * MS)

    project.trace("lost.sqlite", edit=lost)
    project.trace("idle.sqlite", edit=idle)
    gate = project.gate("convention: pithtrain\nwindow: first\nassertions:\n  - exposed_ns <= 300us")
    for name, why in (("lost", "events were dropped"), ("idle", "anchors have no kernel")):
        assert why in alike(project, gate, f"{name}.sqlite", f"{name}-cut")["exposed_ns <= 300us"][1]
    assert b"host.local" not in gzip.decompress((project.root / "lost-cut.sqlite.gz").read_bytes())


def test_kernels_outside_of_the_session_of_their_file(project: Project) -> None:
    """Of two files, each with a session of its own, one ends before its kernels do."""
    for rank, length_ms in enumerate((200, 45)):
        label = f"rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
        project.trace(f"run/{rank}.sqlite", ranks=1, label=label, edit=session(length_ms * MS))
    gate = project.gate("convention: pithtrain\nassertions:\n  - exposed_ns <= 300us")
    said = alike(project, gate, "run")["exposed_ns <= 300us"][1]
    assert "2 kernels around the windows lie outside the profiler's session" in said


def test_gpus_that_no_trace_holds(project: Project) -> None:
    """Nothing in a trace of JAX names a rank: the gate file states how many there are."""
    jax(project.root)
    gate = project.gate("convention: jax\nrun: {world: 4}\nassertions:\n  - compute_ns > 0ns")
    assert "2 of 4 GPUs are missing" in alike(project, gate, "host.trace.json.gz")["compute_ns > 0ns"][1]


def test_what_needs_the_whole_run_is_told_and_is_an_error(project: Project) -> None:
    project.trace()
    gate = project.gate("- exposed_ns <= 300us\n- overlap_tax_ns <= 1ms\n- {id: tax of all, assert: compute_ns > 1ns}")
    said = run("cut", project.root / "run.sqlite", "--gate", gate, "-o", project.root / "windows.sqlite.gz", code=0)
    assert said.stdout.splitlines()[1] == f"2 of 3 assertions of {gate} judge the cut like the trace"
    (line,) = [line for line in said.stderr.splitlines() if line.startswith("warning: ")]
    assert line == (
        f"warning: {gate}:4: 'overlap_tax_ns <= 1ms' cannot be judged on the cut: it is a cut (window median, kernels "
        "contained), and this needs the whole run: measure it on the trace"
    )
    assert [case.state for case in project.judged("windows.sqlite.gz").values()] == ["passed", "error", "passed"]
    gate.write_text(gate.read_text() + "- {id: all, assert: compute_ns > 1ns, window: run}\n")
    said = run("cut", project.root / "run.sqlite", "--gate", gate, "-o", project.root / "windows.sqlite.gz", code=0)
    assert "warning: " not in said.stderr  # now it holds the whole run
    assert verdicts(project, "windows.sqlite.gz") == verdicts(project, "run.sqlite")


def test_a_window_that_the_run_lacks_is_as_bad_on_the_cut(project: Project) -> None:
    project.trace()
    gate = project.gate("- exposed_ns <= 300us\n- {id: far, assert: exposed_ns <= 300us, window: '99'}")
    assert alike(project, gate, "run.sqlite")["far"][0] == "error"
    gate.write_text("version: 1\nassertions:\n  - {id: far, assert: exposed_ns <= 300us, window: '99'}\n")
    said = run("cut", project.root / "run.sqlite", "--gate", gate, "-o", project.root / "other.sqlite.gz", code=3)
    assert "there is no anchor 99" in said.stderr
    assert not (project.root / "other.sqlite.gz").exists()


def test_gpus_of_one_process_wait_for_each_other_as_in_the_trace(project: Project) -> None:
    """A kernel of one GPU held back another GPU of its process."""
    gpu = TraceBuilder().process()
    gpu.range("step", 0, 9_000)
    for device in range(2):
        gpu.kernel("gemm", 1_000, 2_000 + 900 * device, device=device, context=1 + device, launch_ns=100 + device)
    gpu.stream_wait(300, gpu.event_record(200, context=2), context=1)
    gpu.kernel("gelu", 3_000, 4_000, device=0, context=1, launch_ns=400)
    gpu.trace.write(project.root / "run.sqlite")
    gate = project.gate(
        "convention: {extends: generic, anchor: step, kernels: clipped}\nquality: {anchors: off}\n"
        "assertions:\n  - blocking_ns <= 900ns"
    )
    assert alike(project, gate, "run.sqlite")["blocking_ns <= 900ns"][0] == "passed"


def test_what_would_have_other_rows_is_not_cut(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.trace()
    gate, target = project.gate("- compute_ns > 0ns"), project.root / "windows.sqlite.gz"
    monkeypatch.setattr("pytest_nsys.traces.nsys.cut.select_touching_any", lambda kernels, _: kernels.take(range(1)))
    said = run("cut", project.root / "run.sqlite", "--gate", gate, "-o", target, code=2).output
    assert f"{gate}:3: 'compute_ns > 0ns' has other rows in a cut of these traces: judge it on the traces" in said
    assert not target.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--gate", "gate.nsys.yaml", "--window", "first"],
            "--gate says what is measured, of every rank: leave --window",
        ),
        (["--gate", "gate.nsys.yaml", "--rank", "1"], "--gate says what is measured, of every rank: leave --rank out"),
        (["--gate", "none.nsys.yaml"], "--gate none.nsys.yaml: is not a file: give one gate file"),
        (["--gate", "."], "--gate .: is not a file: give one gate file"),
        (["--gate", "bad.nsys.yaml"], "bad.nsys.yaml:3:3: unknown metric 'exposd_ns' (did you mean 'exposed_ns'?)"),
        (["--gate", "beside.nsys.yaml"], "no assertion judges a trace, so there is nothing to cut"),
    ],
)
def test_mistakes(project: Project, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str) -> None:
    monkeypatch.chdir(project.root)
    project.gated("- exposed_ns <= 300us")
    project.gate("- exposd_ns <= 300us", "bad.nsys.yaml")
    project.gate("- measured mfu >= 40%", "beside.nsys.yaml")
    assert said in run("cut", "run.sqlite", "-o", "windows.sqlite.gz", *options, code=2).stderr
    assert not Path("windows.sqlite.gz").exists()


def test_a_gate_file_of_auto_is_read_under_what_is_found(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    project.gated("- exposed_ns <= baseline + 50us")
    said = run("cut", "run.sqlite", "--gate", "gate.nsys.yaml", "-o", "windows.sqlite.gz", code=0)
    assert said.stderr == "note: convention pithtrain, anchor 'forward chunk%backward chunk%' (found in the trace)\n"
    assert said.stdout.splitlines()[1] == "the assertion of gate.nsys.yaml judges the cut like the trace"
    project.refresh("--nsys-trace=run.sqlite")
    (path,) = project.baselines()
    project.pytest("--nsys-trace=windows.sqlite.gz", code=0)
    (project.root / "baselines" / path).unlink()
    project.refresh("--nsys-trace=windows.sqlite.gz")
    assert [*project.baselines()] == [path]  # the key is the same


def test_a_window_is_drawn_from_the_cut_of_a_gate(project: Project) -> None:
    project.trace()
    gate, small = project.gate("- exposed_ns <= 300us"), project.root / "windows.sqlite.gz"
    run("cut", project.root / "run.sqlite", "--gate", gate, "-o", small, code=0)
    drawn = []
    for trace in (project.root / "run.sqlite", small):
        run("cut", trace, "--format=perfetto", "-o", project.root / "look.json", code=0)
        events = chrome(project.root / "look.json")
        drawn += [[str(event) for what in ("exposed", "gap") for event in events.spans(what)]]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) > 10


def test_a_configuration_of_a_matrix_has_a_cut_of_its_own(project: Project) -> None:
    traces = [project.trace(f"{name}.sqlite", us).name for name, us in (("small", 200), ("large", 900))]
    gate = project.gate(f"matrix: {{small: {traces[0]}, large: {traces[1]}}}\nassertions:\n  - exposed_ns <= 300us")
    for name in ("small", "large"):
        target = project.root / f"{name}-cut.sqlite.gz"
        run("cut", project.root / f"{name}.sqlite", "--gate", f"{gate}[{name}]", "-o", target, code=0)
    said = run(
        "cut", project.root / "small.sqlite", "--gate", gate, "-o", project.root / "all.sqlite.gz", code=2
    ).stderr
    assert "has a matrix: it has small, large" in said
    cases = project.cases("--nsys-trace=small=small-cut.sqlite.gz", "--nsys-trace=large=large-cut.sqlite.gz", code=1)
    assert [case.state for _, case in sorted(cases.items())] == ["failure", "passed"]


def test_what_nvidia_smi_said_of_the_gpus_goes_with_it(project: Project) -> None:
    project.trace("traces/run.sqlite")
    state = {"gpu": 2, "name": "H100", "driver": "550.54", "sm_mhz": 1200, "most_mhz": 1980, "reasons": 0x40}
    project.file("traces/run.nvidia-smi.json", json.dumps({"before": [], "after": [state]}))
    gate = project.gate("- exposed_ns <= 300us")
    before = project.root / "traces" / "run.sqlite"
    for name in ("once", "twice"):
        target = project.root / f"{name}-cut.sqlite.gz"
        run("cut", before, "--gate", gate, "-o", target, code=0)
        said = run("--view=overlap", target, code=0).stderr.splitlines()
        throttled = "GPU 2 throttled after the run, says nvidia-smi: thermal slowdown by hardware"
        assert f"warning: {target.name}: run.sqlite: {throttled}" in said
        assert len([line for line in said if "run.sqlite: " in line]) == 2
        assert str(project.root).encode() not in gzip.decompress(target.read_bytes())
        before = target
