"""Where is the ``nsys`` command, what can it do, and what did its failure mean?

The exit code says too little: it is 0 if the disk was full, and 1 for everything else. So standard error and the
written file are checked, too.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_nsys.core.errors import TraceError, convert_os_errors
from pytest_nsys.core.text_format import sanitize_line

# The first bytes of every report, written by nsys 2021 to 2026.
REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"

EXPORT_MAGIC = b"SQLite format 3\x00"
# The end of nsys's output holds the reason of a failure.
OUTPUT_TAIL_BYTES = 1 << 16

_NSYS_VERSION = re.compile(r"\bversion\s+([0-9]{4}\.[0-9.]+[0-9])")
_NEWER_REPORT = re.compile(r"version \(([^)]*)\), newer than your current version \(([^)]*)\)")
_DAMAGED_REPORT = re.compile(
    r"magic number|cannot read from stream|decompression failed|version tag|unexpected end|corrupt|failed to parse",
    re.IGNORECASE,
)
_DISK_FULL = re.compile(r"disk is full|no space left|quota exceeded|file size limit", re.IGNORECASE)
_NOT_OPENED = re.compile(r"unable to open database file|permission denied|read-only file system", re.IGNORECASE)
_LONG_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")
_NEXT_OPTION = re.compile(r"\n\s*-{1,2}[a-z]")
_PERCENT = re.compile(rb"([0-9]{1,3})%")


@dataclass(frozen=True)
class InstalledNsys:
    """Describes the nsys command on PATH."""

    path: str
    version: str  # as printed, without the build: ``2023.4.4.54``

    def list_options(self, command: str) -> frozenset[str]:
        """List the long options that ``nsys COMMAND --help`` names, without dashes: an unknown option would make the
        command fail.
        """
        return frozenset(_LONG_OPTION.findall(_read_help(self.path, command)))

    def accepts_value(self, command: str, option: str, value: str) -> bool:
        """Whether the help of the option names the value: an unknown value would make the command fail."""
        _, _, explanation = _read_help(self.path, command).partition(f"--{option}=")
        option_help = _NEXT_OPTION.split(explanation, maxsplit=1)[0]
        return re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", option_help) is not None


def find_nsys() -> InstalledNsys | None:
    """Find the nsys on PATH; None if there is none. Raises TraceError if it does not start."""
    path = shutil.which("nsys")
    return None if path is None else _read_nsys(path)


@functools.cache
def _read_nsys(path: str) -> InstalledNsys:
    _, output = _run_nsys([path, "--version"])
    version = _NSYS_VERSION.search(output)
    if version is None:
        raise TraceError(f"{path}: is not Nsight Systems: `nsys --version` says '{sanitize_line(output.strip(), 80)}'")
    return InstalledNsys(path, version[1])


@functools.cache
def _read_help(path: str, command: str) -> str:
    return _run_nsys([path, command, "--help"])[1]


def shorten_version(version: str) -> str:
    """Shorten ``2025.5.1.121-255136380782v0`` to ``2025.5``, the name of the release."""
    return ".".join(version.split("-")[0].split(".")[:2])


def parse_version(version: str) -> tuple[int, ...]:
    """Parse a version into numbers, by which versions are ordered."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", version))


def export_sqlite(
    nsys: InstalledNsys, report: Path, target: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Write the SQLite export of ``report`` to ``target``, which must not exist; a failed export leaves no file.

    ``progress`` is called with the percentage done. Raises TraceError.
    """
    arguments = [nsys.path, "export", "--type=sqlite", f"--output={target.absolute()}"]
    if "include-blobs" in nsys.list_options("export"):  # NVTX payloads, which hold the sizes of collectives
        arguments.append("--include-blobs=true")
    try:
        code, output = _run_nsys([*arguments, str(report.absolute())], progress)  # a name may begin with a dash
        if reason := _explain_failure(code, output, report, target):
            raise TraceError(f"{report}: {reason}")
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _run_nsys(arguments: list[str], progress: Callable[[int], None] | None = None) -> tuple[int, str]:
    """Run a command; return its exit code, and the end of its output. Raises TraceError if it does not start."""
    with convert_os_errors(TraceError, f"{arguments[0]}: cannot be started"):
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
    with process:
        try:
            output = _read_output(process, progress)
        except BaseException:
            process.kill()
            raise
    return process.returncode, output


def _read_output(process: subprocess.Popen[bytes], progress: Callable[[int], None] | None) -> str:
    """Read the output until it ends, and report each new percentage; return its tail."""
    assert process.stdout is not None
    output = b""
    last_percent = -1
    while block := process.stdout.read(4096):
        output = (output + block)[-OUTPUT_TAIL_BYTES:]
        percents = _PERCENT.findall(block)
        if progress is not None and percents and last_percent != int(percents[-1]):
            last_percent = int(percents[-1])
            progress(last_percent)
    return output.decode("utf-8", "replace")


def _explain_failure(exit_code: int, output: str, report: Path, target: Path) -> str | None:
    """Explain in one line what went wrong and what to do; None if nothing did."""
    if newer := _NEWER_REPORT.search(output):
        report_version, path_version = shorten_version(newer[1]), shorten_version(newer[2])
        return (
            f"report was made by a newer nsys ({report_version}) than the one on PATH ({path_version}): "
            f"install {report_version} or later, or export it where it was made"
        )
    if _DISK_FULL.search(output):
        return f"disk full: nsys could not write its export to {target.parent}"
    if exit_code < 0:
        return f"nsys was ended by signal {-exit_code} during the export (9 is often a lack of memory)"
    if exit_code == 0:
        return _explain_unusable_export(target)
    if not report.is_file():
        return "the file is gone"
    if not is_report(report):
        return "is not an Nsight Systems report"
    if _DAMAGED_REPORT.search(output):
        return f"is truncated or damaged (nsys: {_find_last_words(output)}): copy it again, or take the capture again"
    if _NOT_OPENED.search(output):
        return f"nsys cannot write its export to {target.parent} (nsys: {_find_last_words(output)})"
    return f"`nsys export` ended with {exit_code}: {_find_last_words(output)}"


def _explain_unusable_export(target: Path) -> str | None:
    """Explain why an export is an incomplete database, as nsys exits with 0 if the disk was full at the end; None if
    complete.
    """
    advice = "is the disk full? Export it again"
    try:
        size = target.stat().st_size
        with target.open("rb") as file:
            head = file.read(32)
    except OSError as error:
        return f"`nsys export` ended with 0, but its export cannot be read ({error.strerror}): {advice}"
    # SQLite's header holds the page size, where 1 means 65 536, and the number of pages.
    page = int.from_bytes(head[16:18], "big")
    expected = int.from_bytes(head[28:32], "big") * (65536 if page == 1 else page)
    if not head.startswith(EXPORT_MAGIC) or size < expected:
        return f"`nsys export` ended with 0, but its export is cut short ({size} bytes): {advice}"
    return None


def is_report(path: Path) -> bool:
    """Whether the file begins with REPORT_MAGIC. Raises TraceError where it cannot be read."""
    with convert_os_errors(TraceError, f"{path}: cannot be read"), path.open("rb") as file:
        return file.read(len(REPORT_MAGIC)) == REPORT_MAGIC


def _find_last_words(output: str) -> str:
    """Return the last line that is no progress bar, without its prefix."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", output)]
    messages = [line for line in lines if line and not re.search(r"\[[=\s]*[0-9]{1,3}%|^Try '|^usage:", line)]
    errors = [line for line in messages if "error" in line.lower()] or messages
    return (
        sanitize_line(errors[-1].partition("xportation error: ")[2] or errors[-1]).rstrip(".") if errors else "no word"
    )
