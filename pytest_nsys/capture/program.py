"""How does a program run under ``nsys profile``: on how many nodes, by which command, and is there a report afterwards?

The exit code does not tell: a good run of one profiled step ends with 143, because nsys ends the program after it, and
a run without a report may end with 0. So only the files count.
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

from pytest_nsys.core.errors import CaptureError, NothingMeasured, UsageMistake, convert_os_errors
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.tools.nsys_command import InstalledNsys, find_nsys
from pytest_nsys.tools.nvidia_smi import GpuState, query_gpus
from pytest_nsys.traces.sidecars.gpu_log import GPU_LOG_SUFFIX as GPU_LOG
from pytest_nsys.traces.sidecars.gpu_log import GpuLog, write_gpu_log

# Micro-batches per pipeline stage, as in PithTrain's captures.
MICRO_BATCHES = 32


@dataclass(frozen=True)
class RunPlan:
    """Holds the derived sizes of a run."""

    nodes: int
    dp: int  # data-parallel size
    global_batch: int  # samples of a step at a micro-batch of one


def plan_run(
    world: int, pp: int = 1, ep: int = 1, cp: int = 1, gpus_per_node: int = 8, allocated_nodes: int | None = None
) -> RunPlan:
    """Return the plan of a run on ``world`` GPUs.

    Raises UsageMistake for sizes that do not divide, or that the allocation cannot hold: sizes are refused, never
    adjusted.
    """
    axes = {"pp": pp, "ep": ep, "cp": cp}
    for name, size in {"world size": world, **axes, "GPUs per node": gpus_per_node}.items():
        if size < 1:
            raise UsageMistake(f"{name} is {size}: every size is at least 1")
    _check_divisible(world, prod(axes.values()), f"pp × ep × cp = {' × '.join(map(str, axes.values()))}")
    if world > gpus_per_node:
        _check_divisible(world, gpus_per_node, "the GPUs of a node")
    nodes = -(-world // gpus_per_node)
    if allocated_nodes is not None and nodes > allocated_nodes:
        missing_nodes = nodes - allocated_nodes
        raise UsageMistake(
            f"world size {world} needs {format_count(nodes, 'node')} of {gpus_per_node} GPUs: the allocation "
            f"has {allocated_nodes}, {format_count(missing_nodes, 'node')} ({missing_nodes * gpus_per_node} GPUs) short"
        )
    dp = world // prod(axes.values())
    return RunPlan(nodes, dp, MICRO_BATCHES * dp * ep)


def _check_divisible(world: int, part: int, divisor_text: str) -> None:
    """Raise UsageMistake where the world size is no multiple of a part, with the nearest sizes that are."""
    remainder = world % part
    if remainder == 0:
        return
    larger_world = world - remainder + part
    smaller_text = f", or take {remainder} away for {world - remainder}" if world > part else ""
    raise UsageMistake(
        f"world size {world} is not a multiple of {part} ({divisor_text}): "
        f"{format_count(part - remainder, 'GPU')} short of {larger_world}{smaller_text}"
    )


REPORT_ENDINGS = (".nsys-rep", ".qdrep")
EXPORT_ENDING = ".sqlite"
# A good run ends by itself, or by the signal with which nsys stops it after the captured range.
GOOD_EXIT_CODES = (0, 143, -15)

# SLURM numbers its own steps (batch, interactive, extern) from here on.
FIRST_SPECIAL_STEP = 0xFFFFFFF0

# CUDA and NVTX alone, the kernels of CUDA graphs one by one, the events that streams wait for where these change the
# run little, and only the profiled step.
PROFILE_FLAGS = {
    "trace": "cuda,nvtx",
    "cuda-graph-trace": "node",
    "cuda-event-trace": "auto",
    "capture-range": "cudaProfilerApi",
    "capture-range-end": "stop-shutdown",
    "delay": "0",
    "stats": "false",
    "force-overwrite": "true",
}

# A process that the program left behind may hold the output open forever.
OUTPUT_TIMEOUT_S = 5.0
# A progress bar may write an endless line: this many bytes suffice for the name of a file.
LONGEST_OUTPUT_LINE = 4096
# The temporary file that nsys writes if it cannot write the requested one.
_TEMPORARY_FILE = re.compile(rb"(/[^\s']*/nsys-report-[0-9A-Za-z]+\.(?:nsys-rep|qdrep|qdstrm))")

RANGE_FLAGS = ("capture-range", "capture-range-end")


@dataclass(frozen=True)
class SlurmJob:
    """Describes where SLURM runs this process."""

    nodes: int | None = None  # number of nodes of the allocation or job step, None outside SLURM
    node: int = 0
    in_step: bool = False
    host: str = ""
    is_one_of_many: bool = False  # other nodes are writing to the same folder


@dataclass(frozen=True)
class NsysCommand:
    """Describes what runs under nsys, and where its reports go."""

    folder: Path
    program: tuple[str, ...]
    name: str = "step"
    nodes: int = 1  # above 1: a job step is started on all of them; 1: this node is captured
    node: int = 0
    whole_run: bool = False
    options: tuple[str, ...] = ()

    @property
    def node_numbers(self) -> range:
        """The numbers of the nodes whose reports are expected."""
        return range(self.nodes) if self.nodes > 1 else range(self.node, self.node + 1)

    def find_reports(self) -> dict[int, Path]:
        """Return the reports that exist, by node."""
        candidates = {
            node: [self.folder / f"{self.name}_node{node}{suffix}" for suffix in REPORT_ENDINGS]
            for node in self.node_numbers
        }
        existing = {node: [path for path in paths if path.is_file()] for node, paths in candidates.items()}
        return {node: paths[0] for node, paths in existing.items() if paths}


@dataclass(frozen=True)
class ProgramRun:
    """Holds the result of a capture."""

    reports: tuple[Path, ...]  # one of every node
    exit_code: int
    is_good: bool  # the program ended by itself, or by nsys after the captured range


def read_slurm_job(environment: Mapping[str, str]) -> SlurmJob:
    """Return SLURM's description of this process. Raises UsageMistake if several tasks of a node would write the same
    report.
    """
    if not environment.get("SLURM_JOB_ID"):
        return SlurmJob()
    step = _read_number(environment, "SLURM_STEP_ID")
    in_step = step is not None and step < FIRST_SPECIAL_STEP
    nodes = _read_number(environment, "SLURM_STEP_NUM_NODES") if in_step else None
    if nodes is None:
        nodes = _read_number(environment, "SLURM_JOB_NUM_NODES") or _read_number(environment, "SLURM_NNODES")
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE", "1") if in_step else "1"
    if any(int(n) > 1 for n in re.findall(r"(?:^|,)([0-9]{1,6})", tasks)):
        raise UsageMistake(
            f"the job step has several tasks on a node (SLURM_STEP_TASKS_PER_NODE={sanitize_line(tasks, 40)}), and "
            "each "
            "would write the same report: start one a node with --ntasks-per-node=1"
        )
    node = _read_number(environment, "SLURM_NODEID") or 0
    return SlurmJob(
        nodes, node if in_step else 0, in_step, environment.get("SLURMD_NODENAME", ""), is_one_of_many=in_step
    )


def _read_number(environment: Mapping[str, str], name: str) -> int | None:
    """Return the value of an environment variable as a whole number; None if it is not one."""
    text = environment.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 12 else None


def select_flags(nsys: InstalledNsys) -> dict[str, str]:
    """Return those ``PROFILE_FLAGS`` that this nsys supports."""
    known_options = nsys.list_options("profile")
    flags = {name: value for name, value in PROFILE_FLAGS.items() if name in known_options}
    if "cuda-event-trace" in flags and not nsys.accepts_value("profile", "cuda-event-trace", "auto"):
        flags["cuda-event-trace"] = "true"
    return flags


def build_profile_command(nsys: str, capture: NsysCommand, flags: Mapping[str, str] = PROFILE_FLAGS) -> list[str]:
    """Return the command line of ``nsys profile``; the capture's own options override ``flags``.

    If several nodes are captured, nsys itself fills in the node's number in the report's name.
    """
    replaced_flags = [option.partition("=")[0].lstrip("-") for option in capture.options]
    replaced_flags += RANGE_FLAGS if capture.whole_run else ()
    flags = {n: v for n, v in flags.items() if n not in replaced_flags}
    node = "%q{SLURM_NODEID}" if capture.nodes > 1 else str(capture.node)
    folder = str(capture.folder.absolute()).replace("%", "%%")
    output = f"--output={folder}/{capture.name}_node{node}"
    return [nsys, "profile", *(f"--{n}={v}" for n, v in flags.items()), *capture.options, output, *capture.program]


def run_capture(capture: NsysCommand, job: SlurmJob, *, force: bool = False) -> ProgramRun:
    """Run the program under the profiler, with its output forwarded to ours, and find the reports.

    Raises UsageMistake for mistakes that are found before the run, CaptureError if a report is missing, NothingMeasured
    if the program never started the profiler.
    """
    nsys = _find_nsys(capture, job)
    _prepare_folder(capture, job, force=force)
    gpus_before = _query_gpus(capture)
    command = build_profile_command("nsys" if capture.nodes > 1 else nsys.path, capture, select_flags(nsys))
    if capture.nodes > 1:
        command = [*_build_srun_command(capture), *command]
    elif shutil.which(capture.program[0]) is None:
        raise UsageMistake(f"there is no program '{sanitize_line(capture.program[0])}' (on PATH, or executable)")
    code, temporary_files = _run_command(command)
    reports = capture.find_reports()
    gpus_after = _query_gpus(capture)
    missing_nodes = [n for n in capture.node_numbers if n not in reports]
    if missing_nodes:
        _raise_missing_reports(capture, job, code, missing_nodes, temporary_files)
    for number, report in reports.items():
        log = GpuLog(gpus_before.get(number, ()), gpus_after.get(number, ()))
        if any(log):
            with contextlib.suppress(OSError):  # the report is complete without it
                write_gpu_log(report, log)
    good = code in GOOD_EXIT_CODES[: 1 if capture.whole_run else None]
    return ProgramRun(tuple(reports[n] for n in capture.node_numbers), code, good)


def _query_gpus(capture: NsysCommand) -> Mapping[int, Sequence[GpuState]]:
    """Return the state of the GPUs according to nvidia-smi, by node; empty if it cannot run."""
    if capture.nodes > 1:
        return query_gpus([*_build_srun_command(capture), "--label"])
    return {capture.node: query_gpus().get(0, ())}


def _find_nsys(capture: NsysCommand, job: SlurmJob) -> InstalledNsys:
    """Return the nsys of this node; for a job step it must also exist inside the step.

    Raises CaptureError if it does not.
    """
    nsys = find_nsys()
    if nsys is None:
        location = f" inside the job step, on node {job.node} {sanitize_line(job.host)}".rstrip() if job.in_step else ""
        advice = (
            "load its module in the step's own script" if job.in_step else "install Nsight Systems, or load its module"
        )
        raise CaptureError(f"nsys is not on PATH{location}: {advice}")
    if capture.nodes > 1:
        if shutil.which("srun") is None:
            raise CaptureError("srun is not on PATH: it starts nsys on every node")
        check = subprocess.run(
            [*_build_srun_command(capture), "nsys", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if check.returncode != 0:
            last_line = (check.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
            raise CaptureError(
                f"nsys is not on PATH inside the job step: `srun … nsys --version` ended with {check.returncode} "
                f"({sanitize_line(last_line)}): load its module before, or `export PATH`"
            )
    return nsys


def _build_srun_command(capture: NsysCommand) -> list[str]:
    """Return the srun prefix of a command that runs once on each node."""
    # A good run ends with 143: on one node this must not end the others, which are still writing their reports.
    options = ["--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0"]
    return ["srun", f"--nodes={capture.nodes}", f"--ntasks={capture.nodes}", *options]


def _prepare_folder(capture: NsysCommand, job: SlurmJob, *, force: bool) -> None:
    """Make the folder, and check that it is writable and has no files of an earlier capture of this name."""
    folder = capture.folder
    with convert_os_errors(CaptureError, f"{folder}: a report cannot be written there"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    node = str(capture.node) if job.is_one_of_many else "*"
    old_files = [
        path
        for suffix in (*REPORT_ENDINGS, EXPORT_ENDING, GPU_LOG)
        for path in sorted(folder.glob(f"{capture.name}_node{node}{suffix}"))
    ]
    if old_files and not force:
        raise UsageMistake(f"{old_files[0]}: exists: give another --output or --name, or --force")
    for path in old_files:  # else old files could pass for new ones
        path.unlink()


def _run_command(command: Sequence[str]) -> tuple[int, list[Path]]:
    """Run a command, and return its exit code and the temporary files that nsys reported."""
    with convert_os_errors(CaptureError, f"{command[0]}: cannot be started"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    file_lines: list[bytes] = []
    listener = threading.Thread(target=_forward_output, args=(process.stdout, file_lines), daemon=True)
    listener.start()
    while True:
        # Ctrl-C reaches nsys too, which stops the program and writes its report.
        with contextlib.suppress(KeyboardInterrupt):
            code = process.wait()
            # A process that the program left behind may hold the output open forever.
            listener.join(OUTPUT_TIMEOUT_S)
            break
    named_files = _TEMPORARY_FILE.findall(b"".join(file_lines))
    return code, sorted({Path(os.fsdecode(path)) for path in named_files})


def _forward_output(output: IO[bytes], file_lines: list[bytes]) -> None:
    """Forward the output of nsys to ours, and keep the lines that name a file."""
    line = b""
    is_open = True
    while block := output.read(1 << 16):
        if is_open:
            try:
                sys.stdout.buffer.write(block)
                sys.stdout.buffer.flush()
            except (OSError, ValueError):  # our output was closed: keep reading, so that the program does not block
                is_open = False
        *lines, line = re.split(rb"[\r\n]", line[-LONGEST_OUTPUT_LINE:] + block)
        file_lines += [text for text in (*lines, line) if _TEMPORARY_FILE.search(text)]


def _raise_missing_reports(
    capture: NsysCommand, job: SlurmJob, exit_code: int, missing_nodes: Sequence[int], temporary_files: Sequence[Path]
) -> None:
    """Raise CaptureError with the reason why reports are missing, or NothingMeasured if the program never started the
    profiler.
    """
    nodes = f" of node {', '.join(map(str, missing_nodes))}" if capture.nodes > 1 or job.nodes else ""
    problem = f"there is no report{nodes}"
    moved_reports = [path for path in temporary_files if path.suffix in REPORT_ENDINGS]
    if moved_reports:
        target = capture.folder / f"{capture.name}_node{missing_nodes[0]}{moved_reports[-1].suffix}"
        raise CaptureError(
            f"nsys could not write {target} and moved the report to its temporary folder: it is {moved_reports[-1]}; "
            "move it where it belongs"
        )
    names = [f"{capture.name}_node{n}.qdstrm" for n in missing_nodes]
    raw_streams = [
        path for path in (*(capture.folder / name for name in names), *temporary_files) if path.suffix == ".qdstrm"
    ]
    raw_streams = [path for path in raw_streams if path.is_file()]
    if raw_streams:
        raise CaptureError(
            f"{problem}, only {raw_streams[0]}: nsys could not import what it had recorded (is QdstrmImporter "
            "installed, is the disk full?): import it with `QdstrmImporter -i` of the same Nsight Systems"
        )
    if exit_code not in GOOD_EXIT_CODES:
        raise CaptureError(f"{problem}: the program, or nsys itself, ended with {exit_code}; see their output above")
    if not capture.whole_run:
        raise NothingMeasured(
            f"{problem}: the program ended without starting the profiler: mark the step with pytest_nsys.profiled_step "
            "(or cudaProfilerStart), let it run beyond the warm-up steps, or give --whole-run"
        )
    raise CaptureError(f"{problem}, although nsys ended with {exit_code}: see its output above")
