"""What does the ``nvidia-smi`` command say of the GPUs, where there is one?

Its answer only accompanies other results, so nothing here fails: if the command is missing, hangs or prints something
unknown, the answer is empty.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PROGRAM = "nvidia-smi"
NVIDIA_SMI_TIMEOUT_S = 30.0

# The queried fields of each GPU; the name comes last, as it may hold a comma.
_FIELDS = ("index", "driver_version", "clocks.sm", "clocks.max.sm", "{reasons}.active", "name")
# The name of the field since driver 535, and its name before.
_REASON_FIELDS = ("clocks_event_reasons", "clocks_throttle_reasons")

# The bit of an idle GPU.
IDLE_BIT = 0x1
# Reasons why a GPU runs slower than its set clock, by bit.
THROTTLE_REASONS: Mapping[int, str] = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost with another GPU",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
# Reasons why a GPU's clock was set lower, by bit.
LIMIT_REASONS: Mapping[int, str] = {0x2: "clocks set by a user", 0x100: "clocks set for a display"}

_LABEL = re.compile(r"\s*(?:([0-9]+):\s)?(.*)")


class GpuState(NamedTuple):
    """Describes the state of one GPU at one moment, as far as ``nvidia-smi`` reports it."""

    gpu: int
    name: str
    driver: str | None
    sm_mhz: int | None  # clock of the SMs
    most_mhz: int | None  # the highest clock of the SMs
    reasons: int | None  # as bits, see THROTTLE_REASONS

    @property
    def throttle_reasons(self) -> tuple[str, ...]:
        """The reasons why the GPU runs slower than its set clock."""
        return tuple(words for bit, words in THROTTLE_REASONS.items() if (self.reasons or 0) & bit)


def query_gpus(launcher: Sequence[str] = ()) -> Mapping[int, Sequence[GpuState]]:
    """Query the GPUs of each node, by node number, this node being 0; empty if the query fails.

    ``launcher`` is a command prefix that runs a command on every node, and puts the node's number and a colon before
    each line.
    """
    if shutil.which(PROGRAM) is None:
        return {}
    for reasons in _REASON_FIELDS:
        fields = ",".join(_FIELDS).format(reasons=reasons)
        arguments = [*launcher, PROGRAM, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        try:
            completed = subprocess.run(
                arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return {}
        if states := _parse_states(completed.stdout.decode("utf-8", "replace")):
            return states
    return {}


def _parse_states(output: str) -> dict[int, list[GpuState]]:
    """Parse the output into the GPUs of each node."""
    states_by_node: dict[int, list[GpuState]] = {}
    for line in output.splitlines():
        label, rest = _LABEL.fullmatch(line).groups()  # type: ignore[union-attr]  # the pattern matches any line
        cells = [cell.strip() for cell in rest.split(",", len(_FIELDS) - 1)]
        if len(cells) == len(_FIELDS) and (gpu := _parse_smi_number(cells[0])) is not None:
            driver = cells[1] if re.fullmatch(r"[0-9.]+", cells[1]) else None
            state = GpuState(
                gpu,
                cells[5],
                driver,
                _parse_smi_number(cells[2]),
                _parse_smi_number(cells[3]),
                _parse_smi_number(cells[4]),
            )
            states_by_node.setdefault(int(label or 0), []).append(state)
    return states_by_node


def _parse_smi_number(text: str) -> int | None:
    """Parse a whole number, also with a base before it; return None for an unsupported field."""
    return int(text, 0) if re.fullmatch(r"0|[1-9][0-9]{0,9}|0x[0-9A-Fa-f]{1,16}", text) else None
