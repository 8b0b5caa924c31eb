"""How does a command write baselines? Through a run of pytest, which takes the settings that a gate run takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

import click

from pytest_nsys.cli.exit_status import NOT_JUDGED

PYTEST_TO_COMMAND = {0: 0, 1: 1, NOT_JUDGED: 3}
"""Every other end of pytest is a mistake or an unreadable file (2)."""

folder_option = click.option("--baseline-dir", metavar="DIR", help="Folder of the baselines, as in the gate run.")


def gate_run(plugin: str, gate_files: Sequence[str], baseline_dir: str | None) -> list[str]:
    """The command that runs pytest on gate files alone, in one process, whatever the project's settings ask for."""
    # A process of its own: pytest warns about plugins that were imported before it started, as the commands were.
    words = [sys.executable, "-m", "pytest", "-p", plugin, *gate_files, "-m", "nsys"]
    words += [f"--nsys-baseline-dir={baseline_dir}"] if baseline_dir else []
    return words + (["-n", "0"] if find_spec("xdist") else [])


def update(
    gate_files: Sequence[str],
    traces: Sequence[str],
    reason: str,
    *,
    mode: str,
    only: Sequence[str] = (),
    baseline_dir: str | None = None,
    executor: str | None = None,
) -> int:
    """Write baselines of the gate files; the exit code of the command."""
    words = gate_run("pytest_nsys.cli.exit_status", gate_files, baseline_dir)
    words += ["--nsys-update-baselines", f"--nsys-reason={reason}", f"--nsys-update-mode={mode}"]
    words += [f"--nsys-update-only={name}" for name in only]
    words += [f"--nsys-trace={trace}" for trace in traces]
    words += [f"--nsys-executor={executor}"] if executor is not None else []
    done = subprocess.run(words, check=False)
    return PYTEST_TO_COMMAND.get(done.returncode, 2)
