"""Running a program under ``nsys profile``: on how many nodes, in which words, and is there a report afterwards?

The exit code does not say: a good run of one profiled step ends in 143, because nsys ends the program after it, and a
run that left no report may end in 0. So what counts is the files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO

from pytest_nsys.core.errors import CaptureError, NothingMeasured, UsageMistake, one_line
from pytest_nsys.core.words import counted, printable
from pytest_nsys.tools.nsys_command import Nsys, find_nsys
from pytest_nsys.tools.nvidia_smi import GpuState, ask
from pytest_nsys.traces.gpu_log import ENDING as GPU_LOG
from pytest_nsys.traces.gpu_log import GpuLog, write_log

MICRO_BATCHES = 32
"""Per pipeline stage, as PithTrain's captures have it."""


@dataclass(frozen=True)
class Plan:
    """What the sizes of a run come to. ``global_batch`` counts samples of a step at a micro-batch of one."""

    nodes: int
    dp: int
    global_batch: int


def plan(
    world: int, pp: int = 1, ep: int = 1, cp: int = 1, gpus_per_node: int = 8, allocated_nodes: int | None = None
) -> Plan:
    """The plan of a run on ``world`` GPUs. Raises UsageMistake for sizes that do not divide, or that the allocation
    cannot hold: sizes are refused, never adjusted.
    """
    axes = {"pp": pp, "ep": ep, "cp": cp}
    for name, size in {"world size": world, **axes, "GPUs per node": gpus_per_node}.items():
        if size < 1:
            raise UsageMistake(f"{name} is {size}: every size is at least 1")
    _divides(world, prod(axes.values()), f"pp × ep × cp = {' × '.join(map(str, axes.values()))}")
    if world > gpus_per_node:
        _divides(world, gpus_per_node, "the GPUs of a node")
    nodes = -(-world // gpus_per_node)
    if allocated_nodes is not None and nodes > allocated_nodes:
        short = nodes - allocated_nodes
        raise UsageMistake(
            f"world size {world} needs {counted(nodes, 'node')} of {gpus_per_node} GPUs: the allocation "
            f"has {allocated_nodes}, {counted(short, 'node')} ({short * gpus_per_node} GPUs) short"
        )
    dp = world // prod(axes.values())
    return Plan(nodes, dp, MICRO_BATCHES * dp * ep)


def _divides(world: int, part: int, what: str) -> None:
    rest = world % part
    if rest == 0:
        return
    above = world - rest + part
    below = f", or take {rest} away for {world - rest}" if world > part else ""
    raise UsageMistake(
        f"world size {world} is not a multiple of {part} ({what}): "
        f"{counted(part - rest, 'GPU')} short of {above}{below}"
    )


SUFFIXES = (".nsys-rep", ".qdrep")
EXPORT = ".sqlite"
ENDED_BY_NSYS = (0, 143, -15)
"""How a good run ends: by itself, or by the signal with which nsys stops it after the captured range."""

FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""SLURM numbers its own steps (batch, interactive, extern) from here on."""

FLAGS = {
    "trace": "cuda,nvtx",
    "cuda-graph-trace": "node",
    "cuda-event-trace": "auto",
    "capture-range": "cudaProfilerApi",
    "capture-range-end": "stop-shutdown",
    "delay": "0",
    "stats": "false",
    "force-overwrite": "true",
}
"""Of ``nsys profile``: CUDA and NVTX alone, the kernels of CUDA graphs one by one, the events that streams wait for
where these change the run little, and only the profiled step.
"""

OUTPUT_ENDS_S = 5.0
LONGEST_LINE = 4096
_TEMPORARY = re.compile(rb"(/[^\s']*/nsys-report-[0-9A-Za-z]+\.(?:nsys-rep|qdrep|qdstrm))")
"""A file to which nsys gave a name of its own."""

OF_THE_RANGE = ("capture-range", "capture-range-end")


@dataclass(frozen=True)
class Slurm:
    """Where we run. ``nodes``: of the allocation or job step, None outside SLURM. ``one_of_many``: other nodes write to
    the same folder now.
    """

    nodes: int | None = None
    node: int = 0
    in_step: bool = False
    host: str = ""
    one_of_many: bool = False


@dataclass(frozen=True)
class NsysCommand:
    """What runs under nsys: ``nodes`` above 1 starts one job step on all of them, else this node is captured."""

    folder: Path
    program: tuple[str, ...]
    name: str = "step"
    nodes: int = 1
    node: int = 0
    whole_run: bool = False
    options: tuple[str, ...] = ()

    @property
    def numbers(self) -> range:
        """Of the nodes whose reports are expected."""
        return range(self.nodes) if self.nodes > 1 else range(self.node, self.node + 1)

    def found(self) -> dict[int, Path]:
        """The reports that are there, by node."""
        every = {n: [self.folder / f"{self.name}_node{n}{suffix}" for suffix in SUFFIXES] for n in self.numbers}
        there = {n: [path for path in paths if path.is_file()] for n, paths in every.items()}
        return {n: paths[0] for n, paths in there.items() if paths}


@dataclass(frozen=True)
class ProgramRun:
    """What a capture left: a report of every node, the exit code of the program, and whether it is a good one."""

    reports: tuple[Path, ...]
    code: int
    good: bool


def job_of(environment: Mapping[str, str]) -> Slurm:
    """What SLURM says of this process. Raises UsageMistake where several tasks of a node would write one report."""
    if not environment.get("SLURM_JOB_ID"):
        return Slurm()
    step = _number(environment, "SLURM_STEP_ID")
    in_step = step is not None and step < FIRST_SPECIAL_STEP
    nodes = _number(environment, "SLURM_STEP_NUM_NODES") if in_step else None
    if nodes is None:
        nodes = _number(environment, "SLURM_JOB_NUM_NODES") or _number(environment, "SLURM_NNODES")
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE", "1") if in_step else "1"
    if any(int(n) > 1 for n in re.findall(r"(?:^|,)([0-9]{1,6})", tasks)):
        raise UsageMistake(
            f"the job step has several tasks on a node (SLURM_STEP_TASKS_PER_NODE={printable(tasks, 40)}), and each "
            "would write the same report: start one a node with --ntasks-per-node=1"
        )
    node = _number(environment, "SLURM_NODEID") or 0
    return Slurm(nodes, node if in_step else 0, in_step, environment.get("SLURMD_NODENAME", ""), one_of_many=in_step)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 12 else None


def flags_of(nsys: Nsys) -> dict[str, str]:
    """``FLAGS``, as far as this nsys knows them."""
    known = nsys.options("profile")
    flags = {name: value for name, value in FLAGS.items() if name in known}
    if "cuda-event-trace" in flags and not nsys.takes("profile", "cuda-event-trace", "auto"):
        flags["cuda-event-trace"] = "true"
    return flags


def profile_words(nsys: str, capture: NsysCommand, flags: Mapping[str, str] = FLAGS) -> list[str]:
    """The command line of ``nsys profile``, with flags that the capture's own options replace.

    The node's number in the report's name is filled in on each node, by nsys itself, where several are captured.
    """
    given = [option.partition("=")[0].lstrip("-") for option in capture.options]
    given += OF_THE_RANGE if capture.whole_run else ()
    flags = {n: v for n, v in flags.items() if n not in given}
    node = "%q{SLURM_NODEID}" if capture.nodes > 1 else str(capture.node)
    folder = str(capture.folder.absolute()).replace("%", "%%")
    output = f"--output={folder}/{capture.name}_node{node}"
    return [nsys, "profile", *(f"--{n}={v}" for n, v in flags.items()), *capture.options, output, *capture.program]


def run_capture(capture: NsysCommand, job: Slurm, *, force: bool = False) -> ProgramRun:
    """Run the program under the profiler, its output going where ours goes, and find the reports.

    Raises UsageMistake for what can be seen before, CaptureError where a report is missing, NothingMeasured where
    the program never started the profiler.
    """
    nsys = _nsys(capture, job)
    _ready(capture, job, force=force)
    before = _gpus(capture)
    words = profile_words("nsys" if capture.nodes > 1 else nsys.path, capture, flags_of(nsys))
    if capture.nodes > 1:
        words = [*_srun(capture), *words]
    elif shutil.which(capture.program[0]) is None:
        raise UsageMistake(f"there is no program '{printable(capture.program[0])}' (on PATH, or executable)")
    code, temporary = _run(words)
    reports = capture.found()
    after = _gpus(capture)
    missing = [n for n in capture.numbers if n not in reports]
    if missing:
        _say_why(capture, job, code, missing, temporary)
    for number, report in reports.items():
        log = GpuLog(before.get(number, ()), after.get(number, ()))
        if any(log):
            with contextlib.suppress(OSError):  # a report without it is a good one
                write_log(report, log)
    good = code in ENDED_BY_NSYS[: 1 if capture.whole_run else None]
    return ProgramRun(tuple(reports[n] for n in capture.numbers), code, good)


def _gpus(capture: NsysCommand) -> Mapping[int, Sequence[GpuState]]:
    """What nvidia-smi says of the GPUs, by node; nothing where it cannot be asked."""
    if capture.nodes > 1:
        return ask([*_srun(capture), "--label"])
    return {capture.node: ask().get(0, ())}


def _nsys(capture: NsysCommand, job: Slurm) -> Nsys:
    """The nsys of this node; where a job step is started, it must be there inside the step too."""
    nsys = find_nsys()
    if nsys is None:
        where = f" inside the job step, on node {job.node} {printable(job.host)}".rstrip() if job.in_step else ""
        load = (
            "load its module in the step's own script" if job.in_step else "install Nsight Systems, or load its module"
        )
        raise CaptureError(f"nsys is not on PATH{where}: {load}")
    if capture.nodes > 1:
        if shutil.which("srun") is None:
            raise CaptureError("srun is not on PATH: it starts nsys on every node")
        asked = subprocess.run(
            [*_srun(capture), "nsys", "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if asked.returncode != 0:
            said = (asked.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
            raise CaptureError(
                f"nsys is not on PATH inside the job step: `srun … nsys --version` ended with {asked.returncode} "
                f"({printable(said)}): load its module before, or `export PATH`"
            )
    return nsys


def _srun(capture: NsysCommand) -> list[str]:
    # A good run ends in 143: that of one node must not end the others, which still write their reports.
    every = ["--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0"]
    return ["srun", f"--nodes={capture.nodes}", f"--ntasks={capture.nodes}", *every]


def _ready(capture: NsysCommand, job: Slurm, *, force: bool) -> None:
    """Make the folder, and see that it can be written and holds nothing of an earlier capture of this name."""
    folder = capture.folder
    with one_line(CaptureError, f"{folder}: a report cannot be written there"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    node = str(capture.node) if job.one_of_many else "*"
    there = [p for s in (*SUFFIXES, EXPORT, GPU_LOG) for p in sorted(folder.glob(f"{capture.name}_node{node}{s}"))]
    if there and not force:
        raise UsageMistake(f"{there[0]}: exists: give another --output or --name, or --force")
    for path in there:  # or what is old would pass for the new
        path.unlink()


def _run(words: Sequence[str]) -> tuple[int, list[Path]]:
    """The exit code, and the files in a temporary folder that nsys said it wrote."""
    with one_line(CaptureError, f"{words[0]}: cannot be started"):
        process = subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0)
    said: list[bytes] = []
    listener = threading.Thread(target=_pass_on, args=(process.stdout, said), daemon=True)
    listener.start()
    while True:
        # Ctrl-C reaches nsys too: it stops the program and writes what it has.
        with contextlib.suppress(KeyboardInterrupt):
            code = process.wait()
            # A process that the program left behind may hold the output open for ever.
            listener.join(OUTPUT_ENDS_S)
            break
    told = _TEMPORARY.findall(b"".join(said))
    return code, sorted({Path(os.fsdecode(path)) for path in told})


def _pass_on(output: IO[bytes], said: list[bytes]) -> None:
    """Write what comes where our own output goes, and keep the lines in which nsys names a file."""
    line = b""
    open_still = True
    while block := output.read(1 << 16):
        if open_still:
            try:
                sys.stdout.buffer.write(block)
                sys.stdout.buffer.flush()
            except (OSError, ValueError):  # nobody reads on: the program is not to be held up by that
                open_still = False
        *lines, line = re.split(rb"[\r\n]", line[-LONGEST_LINE:] + block)
        said += [text for text in (*lines, line) if _TEMPORARY.search(text)]


def _say_why(capture: NsysCommand, job: Slurm, code: int, missing: Sequence[int], temporary: Sequence[Path]) -> None:
    """Always raises."""
    nodes = f" of node {', '.join(map(str, missing))}" if capture.nodes > 1 or job.nodes else ""
    none = f"there is no report{nodes}"
    moved = [path for path in temporary if path.suffix in SUFFIXES]
    if moved:
        wanted = capture.folder / f"{capture.name}_node{missing[0]}{moved[-1].suffix}"
        raise CaptureError(
            f"nsys could not write {wanted} and moved the report to its temporary folder: it is {moved[-1]}; "
            "move it where it belongs"
        )
    names = [f"{capture.name}_node{n}.qdstrm" for n in missing]
    raw = [path for path in (*(capture.folder / name for name in names), *temporary) if path.suffix == ".qdstrm"]
    raw = [path for path in raw if path.is_file()]
    if raw:
        raise CaptureError(
            f"{none}, only {raw[0]}: nsys could not import what it had recorded (is QdstrmImporter installed, is the "
            "disk full?): import it with `QdstrmImporter -i` of the same Nsight Systems"
        )
    if code not in ENDED_BY_NSYS:
        raise CaptureError(f"{none}: the program, or nsys itself, ended with {code}; see their output above")
    if not capture.whole_run:
        raise NothingMeasured(
            f"{none}: the program ended without starting the profiler: mark the step with pytest_nsys.profiled_step "
            "(or cudaProfilerStart), let it run beyond the warm-up steps, or give --whole-run"
        )
    raise CaptureError(f"{none}, although nsys ended with {code}: see its output above")
