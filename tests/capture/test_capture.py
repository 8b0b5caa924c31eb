"""Does ``pytest-nsys capture`` give nsys the right words, and say what went wrong where no report comes of it?"""

import json
import subprocess
import sys
from itertools import pairwise

import pytest

from pytest_nsys.capture.program import SlurmJob, read_slurm_job
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.traces.trace_files import open_trace
from tests.support.fake_nsys import FULL, VERSION, FakeNsys, allocated, needs_nsys, script
from tests.support.gates import Project

FLAGS = [
    *("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--cuda-event-trace=auto", "--capture-range=cudaProfilerApi"),
    *("--capture-range-end=stop-shutdown", "--delay=0", "--stats=false", "--force-overwrite=true"),
]


def reports(project: Project) -> set[str]:
    return {name for name in project.files() if not name.startswith(("bin/", "tmp/"))}


# A good run


def test_a_program_is_captured_and_exported(project: Project, nsys: FakeNsys) -> None:
    said = project.command("capture", "--", "sh", "-c", "echo out; echo err >&2", code=0)
    assert said.index("out") < said.index("captured traces/step_node0.nsys-rep (0.0 MB)")
    assert "err" in said
    assert f"exported traces/step_node0.sqlite (0.1 MB) with nsys {VERSION}" in said
    assert "judge it: pytest --nsys-trace=traces" in said
    assert reports(project) == {"traces/step_node0.nsys-rep", "traces/step_node0.sqlite"}
    (words,) = nsys.asked("profile")
    output = f"--output={project.root}/traces/step_node0"
    assert words == ["profile", *FLAGS, output, "sh", "-c", "echo out; echo err >&2"]


@pytest.mark.usefixtures("nsys")
def test_what_was_captured_can_be_judged(project: Project) -> None:
    project.command("capture", "--output", "new", "--name", "base", "true", code=0)
    project.gate("- stage2 overlap >= 60%")
    assert "2 ranks" in project.pytest("-v", "--nsys-trace=new", code=0)


def test_the_end_of_the_range_is_a_good_end(project: Project, nsys: FakeNsys) -> None:
    nsys.tell(content=nsys.folder / "good.sqlite", profile_code=143)
    project.command("capture", "--", "true", code=0)
    said = project.command("capture", "--name", "whole", "--whole-run", "--", "true", code=1)
    assert "error: the program ended with 143; its report is kept" in said


def test_the_report_of_an_old_nsys_is_found(project: Project, nsys: FakeNsys) -> None:
    nsys.tell(content=nsys.folder / "good.sqlite", leaves=(".qdrep",), unknown=("cuda-graph-trace",))
    assert "captured traces/step_node0.qdrep" in project.command("capture", "--", "true", code=0)
    assert not any(word.startswith("--cuda-graph-trace") for word in nsys.asked("profile")[0])


@pytest.mark.parametrize(
    ("explained", "asked"),
    [
        ("Possible values are 'auto', 'true' or 'false'.", ["--cuda-event-trace=auto"]),
        ("Possible values are 'true' or 'false'.\n\n\t--automatic=\n\n\t   Is 'auto'.", ["--cuda-event-trace=true"]),
        (None, []),
    ],
)
def test_events_are_asked_for_in_the_words_of_this_nsys(
    project: Project, nsys: FakeNsys, explained: str | None, asked: list[str]
) -> None:
    """``auto`` leaves them out of programs whose streams share one queue, where they would hold each other up."""
    unknown, explains = ((), {"cuda-event-trace": explained}) if explained else (("cuda-event-trace",), {})
    nsys.tell(content=nsys.folder / "good.sqlite", unknown=unknown, explains=explains)
    project.command("capture", "--", "true", code=0)
    (words,) = nsys.asked("profile")
    assert [word for word in words if word.startswith("--cuda-event")] == asked


def test_options_for_nsys_take_the_place_of_ours(project: Project, nsys: FakeNsys) -> None:
    more = ("--nsys-option=--sample=none", "--nsys-option=--trace=nvtx")
    project.command("capture", "--whole-run", *more, "--no-export", "--", "true", "--trace=x", code=0)
    (words,) = nsys.asked("profile")
    output = f"--output={project.root}/traces/step_node0"
    own = ["--cuda-graph-trace=node", "--cuda-event-trace=auto", "--delay=0", "--stats=false", "--force-overwrite=true"]
    assert words == ["profile", *own, "--sample=none", "--trace=nvtx", output, "true", "--trace=x"]
    assert nsys.asked("export") == []


def test_a_percent_sign_in_the_folder_is_itself(project: Project, nsys: FakeNsys) -> None:
    project.command("capture", "--output", "50%n", "--", "true", code=0)
    assert "50%n/step_node0.nsys-rep" in reports(project)
    assert any(word.endswith("/50%%n/step_node0") for word in nsys.asked("profile")[0])


# What went wrong


def test_the_program_failed_but_its_report_is_kept(project: Project, nsys: FakeNsys) -> None:
    said = project.command("capture", "--", "sh", "-c", "exit 7", code=1)
    assert "error: the program ended with 7; its report is kept" in said
    assert reports(project) == {"traces/step_node0.nsys-rep", "traces/step_node0.sqlite"}
    assert len(nsys.asked("export")) == 1


@pytest.mark.parametrize(
    ("words", "left", "code", "said"),
    [
        (["true"], (), 3, "there is no report: the program ended without starting the profiler: mark the step with"),
        (["--whole-run", "true"], (), 2, "there is no report, although nsys ended with 0: see its output above"),
        (["false"], (), 2, "there is no report: the program, or nsys itself, ended with 1; see their output"),
        (["true"], (".qdstrm",), 2, "there is no report, only traces/step_node0.qdstrm: nsys could not import what"),
        (["true"], ("nsys-report-ab41.qdstrm",), 2, "there is no report, only {tmp}/nsys-report-ab41.qdstrm: nsys"),
        (
            ["true"],
            ("nsys-report-ab41.nsys-rep", "nsys-report-ab41.qdstrm"),
            2,
            "nsys could not write traces/step_node0.nsys-rep and moved the report to its temporary folder: it is "
            "{tmp}/nsys-report-ab41.nsys-rep; move it where it belongs",
        ),
    ],
)
def test_no_report(
    project: Project, nsys: FakeNsys, words: list[str], left: tuple[str, ...], code: int, said: str
) -> None:
    for suffix in ("nsys-rep", "qdstrm"):  # of somebody else
        (project.root / "tmp" / f"nsys-report-0000.{suffix}").touch()
    nsys.tell(leaves=left)
    printed = project.command("capture", *words, code=code)
    assert f"error: {said.format(tmp=project.root / 'tmp')}" in printed
    assert "captured" not in printed
    assert nsys.asked("export") == []


def test_an_export_that_fails_keeps_the_report(project: Project, nsys: FakeNsys) -> None:
    nsys.tell(content=nsys.folder / "good.sqlite", says=FULL, bytes=0)
    said = project.command("capture", "--", "true", code=2)
    assert "captured traces/step_node0.nsys-rep" in said
    assert "disk full" in said
    assert reports(project) == {"traces/step_node0.nsys-rep"}


def test_without_nsys(project: Project, nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> None:
    (nsys.folder / "nsys").unlink()
    said = project.command("capture", "--", "true", code=2)
    assert "error: nsys is not on PATH: install Nsight Systems, or load its module" in said
    for name, value in {"JOB_ID": "7", "STEP_ID": "0", "NODEID": "3"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-3")
    said = project.command("capture", "--", "true", code=2)
    assert "error: nsys is not on PATH inside the job step, on node 3 gpu-3: load its module in the step's own" in said
    assert reports(project) == set()


def test_a_report_that_is_there_is_replaced_only_by_force(project: Project, nsys: FakeNsys) -> None:
    project.command("capture", "--", "true", code=0)
    said = project.command("capture", "--", "true", code=2)
    assert "error: traces/step_node0.nsys-rep: exists: give another --output or --name, or --force" in said
    assert len(nsys.asked("profile")) == 1
    project.trace("traces/step_node1.sqlite")  # of more nodes than now
    nsys.tell(leaves=())
    assert "there is no report" in project.command("capture", "--force", "--", "true", code=3)
    assert reports(project) == set()  # nothing old passes for the new


def test_an_export_that_is_there_is_not_written_over(project: Project, nsys: FakeNsys) -> None:
    project.file("traces/step_node0.sqlite", "mine")
    assert "error: traces/step_node0.sqlite: exists" in project.command("capture", "--", "true", code=2)
    assert nsys.asked("profile") == []


@pytest.mark.usefixtures("nsys")
def test_nodes_that_capture_themselves_leave_each_other_alone(project: Project) -> None:
    for node in ("0", "1"):
        project.command("capture", "--no-export", "--node", node, "--", "true", code=0)
    assert reports(project) == {"traces/step_node0.nsys-rep", "traces/step_node1.nsys-rep"}


@pytest.mark.usefixtures("nsys")
def test_a_folder_that_cannot_be_written(project: Project) -> None:
    project.file("taken", "a file")
    said = project.command("capture", "--output", "taken/here", "--", "true", code=2)
    assert "error: taken/here: a report cannot be written there: Not a directory" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no program: pytest-nsys capture -- torchrun"),
        (["no-such-program"], "there is no program 'no-such-program' (on PATH, or executable)"),
        (["--output", "", "--", "true"], "--output is empty"),
        (["--name", "../x", "--", "true"], "--name '../x': letters, digits, - and _"),
        (["--nsys-option=-o", "--", "true"], "--nsys-option '-o': write it as --nsys-option=--sample=none"),
        (["--nsys-option=--output=x", "--", "true"], "use --output and --name for the path of the report"),
        (["--nodes", "2", "--", "true"], "--nodes 2 needs a SLURM allocation (SLURM_JOB_ID is not set)"),
        (["--nodes", "0", "--", "true"], "--nodes 0: at least 1"),
        (["--node", "-1", "--", "true"], "--node -1: nodes are counted from 0"),
    ],
)
def test_what_cannot_be_meant(project: Project, nsys: FakeNsys, words: list[str], said: str) -> None:
    assert said in project.command("capture", *words, code=2)
    assert nsys.asked("profile") == []


# Several nodes


def test_a_node_of_a_job_captures_itself(project: Project, nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> None:
    step = {"JOB_ID": "7", "STEP_ID": "0", "NODEID": "1", "STEP_NUM_NODES": "2", "STEP_TASKS_PER_NODE": "1(x2)"}
    for name, value in step.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    project.command("capture", "--nodes", "2", "--", "true", code=0)
    assert reports(project) == {"traces/step_node1.nsys-rep", "traces/step_node1.sqlite"}
    said = project.command("capture", "--nodes", "3", "--", "true", code=2)
    assert "--nodes 3: this job step has 2, and each node captures itself" in said
    assert len(nsys.asked("profile")) == 1


def test_all_nodes_of_an_allocation(project: Project, nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = allocated(nsys, monkeypatch)
    project.command("capture", "--nodes", "2", "--", "true", code=0)
    names = {f"traces/step_node{n}{suffix}" for n in (0, 1) for suffix in (".nsys-rep", ".sqlite")}
    assert reports(project) == names
    probe, words = (json.loads(line) for line in asked.read_text().splitlines())
    head = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0", "nsys"]
    assert probe == [*head, "--version"]
    assert words == [*head, "profile", *FLAGS, f"--output={project.root}/traces/step_node%q{{SLURM_NODEID}}", "true"]


def test_an_allocation_that_is_short(project: Project, nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> None:
    allocated(nsys, monkeypatch)
    said = project.command("capture", "--nodes", "4", "--", "true", code=2)
    assert "--nodes 4: the allocation has 2, 2 short" in said
    said = project.command("capture", "--world-size", "24", "--", "true", code=2)
    assert "world size 24 needs 3 nodes of 8 GPUs: the allocation has 2, 1 node (8 GPUs) short" in said
    assert nsys.asked("profile") == []


def test_nsys_is_missing_inside_the_step(project: Project, nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = allocated(nsys, monkeypatch)
    text = (nsys.folder / "srun").read_text()
    script(nsys.folder / "srun", text.replace('os.environ["PATH"]', '"/no/such/folder"'))
    said = project.command("capture", "--nodes", "2", "--", "true", code=2)
    assert "error: nsys is not on PATH inside the job step: `srun … nsys --version` ended with 2 (slurmstepd: " in said
    assert len(asked.read_text().splitlines()) == 1


def test_a_node_without_a_report_is_named(project: Project, nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> None:
    allocated(nsys, monkeypatch)
    nsys.tell(content=nsys.folder / "good.sqlite", leaves=())
    on_node_0 = 'test "$SLURM_NODEID" = 1 || : > traces/step_node0.nsys-rep'
    said = project.command("capture", "--nodes", "2", "--", "sh", "-c", on_node_0, code=3)
    assert "error: there is no report of node 1: the program ended without starting the profiler" in said


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({}, SlurmJob()),
        ({"JOB_ID": "7", "JOB_NUM_NODES": "4", "NODEID": "0"}, SlurmJob(4)),
        ({"JOB_ID": "7", "NNODES": "4", "STEP_ID": "4294967290"}, SlurmJob(4)),  # an interactive shell
        (
            {"JOB_ID": "7", "NNODES": "4", "STEP_ID": "2", "STEP_NUM_NODES": "3", "NODEID": "2"},
            SlurmJob(3, 2, True, is_one_of_many=True),
        ),
        ({"STEP_ID": "2", "NODEID": "2"}, SlurmJob()),
        ({"JOB_ID": "7", "STEP_ID": "", "NNODES": "many"}, SlurmJob()),
    ],
)
def test_what_slurm_says(environment: dict[str, str], job: SlurmJob) -> None:
    assert read_slurm_job({f"SLURM_{name}": value for name, value in environment.items()}) == job


def test_two_tasks_on_a_node_would_write_one_report() -> None:
    with pytest.raises(UsageMistake, match=r"several tasks on a node \(SLURM_STEP_TASKS_PER_NODE=8\(x2\)\)"):
        read_slurm_job({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "8(x2)"})


@pytest.mark.usefixtures("nsys")
def test_output_is_passed_on_byte_by_byte(project: Project) -> None:
    code = "import os; os.write(1, bytes([255, 10]) + 99999 * b'x' + b'end')"
    words = [sys.executable, "-m", "pytest_nsys", "capture", "--", sys.executable, "-c", code]
    done = subprocess.run(words, cwd=project.root, capture_output=True, check=True)
    assert done.stdout.startswith(b"\xff\n" + b"x" * 99_999 + b"endcaptured traces/step_node0.nsys-rep")


# With a real nsys

PROGRAM = """
from pytest_nsys.capture.profiling import connect_nvtx_tool
client = connect_nvtx_tool()
print("recorded", client is not None, flush=True)
for name in ("rank=0; pp=0/1 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=64", *(f"chunk {n}" for n in range(5))):
    client.push(name)
    sum(range(10_000))
    client.pop()
"""


# What nsys prints where it lost its own agent, ended by a signal, or could not import what it had just recorded.
NSYS_FAILED_BY_ITSELF = ("Connection to Agent lost", "or nsys itself, ended with", "Status: AnalysisFailed")


def for_real(project: Project, *words: str, code: int) -> str:
    """Run ``capture`` under a real nsys, which now and then fails by what it calls its own bug: then again."""
    for _ in range(5):
        said = project.command("capture", *words)
        by_itself = any(words in said for words in NSYS_FAILED_BY_ITSELF)
        if project.result.ret == code or not by_itself:
            break
    else:
        pytest.skip("this nsys fails by itself on this machine")
    assert project.result.ret == code, said
    return said


@needs_nsys
def test_a_real_program_is_captured_and_its_windows_read(project: Project) -> None:
    project.file("train.py", PROGRAM)
    light = ("--nsys-option=--sample=none", "--nsys-option=--cpuctxsw=none")
    assert "recorded True" in for_real(project, "--whole-run", *light, "--", sys.executable, "train.py", code=0)
    for name in ("step_node0.sqlite", "step_node0.nsys-rep"):
        trace = open_trace(project.root / "traces" / name)
        (chunks,) = trace.ranges(["chunk %"]).values()
        (labels,) = trace.ranges(["rank=%"]).values()
        trace.close()
        assert [c.name for c in chunks] == [f"chunk {n}" for n in range(5)]
        assert all(one.end_ns <= two.start_ns for one, two in pairwise(chunks))
        assert labels[0].end_ns <= chunks[0].start_ns
    said = project.command("--view=overlap", "traces", code=3)  # it used no GPU, and that is said
    assert "step_node0.nsys-rep: no kernels" in said


@needs_nsys
def test_a_real_range_ends_the_program_and_that_is_good(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS_NVTX_PROFILER_REGISTER_ONLY", "0")
    project.file("train.py", PROGRAM.replace("range(5)", "range(1000)") + "while True: pass\n")
    options = ("--capture-range=nvtx", "--nvtx-capture=chunk 2", "--sample=none", "--cpuctxsw=none")
    words = [f"--nsys-option={option}" for option in options]
    for_real(project, *words, "--", sys.executable, "train.py", code=0)
    trace = open_trace(project.root / "traces" / "step_node0.sqlite")
    (chunks,) = trace.ranges(["chunk %"]).values()
    trace.close()
    assert chunks[0].name == "chunk 2"


@needs_nsys
def test_a_real_program_that_never_starts_the_profiler(project: Project) -> None:
    said = for_real(project, "--", "true", code=3)
    assert "there is no report: the program ended without starting the profiler" in said
