"""What does the ``nvidia-smi`` command say of the GPUs, where there is one?

It is asked beside something that matters more, so nothing here fails: where it is missing, hangs or says something odd,
it has said nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PROGRAM = "nvidia-smi"
NVIDIA_SMI_TIMEOUT_S = 30.0

# What is asked of each GPU; its name last, for it may hold a comma.
_FIELDS = ("index", "driver_version", "clocks.sm", "clocks.max.sm", "{reasons}.active", "name")
# What the field is called since driver 535, and before.
_REASON_FIELDS = ("clocks_event_reasons", "clocks_throttle_reasons")

# The bit of a GPU that has nothing to do.
IDLE_BIT = 0x1
# Reasons for which a GPU runs slower than it was told to, by bit.
THROTTLE_REASONS: Mapping[int, str] = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost with another GPU",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
# Reasons for which it was told to run no faster, by bit.
LIMIT_REASONS: Mapping[int, str] = {0x2: "clocks set by a user", 0x100: "clocks set for a display"}

_LABEL = re.compile(r"\s*(?:([0-9]+):\s)?(.*)")


class GpuState(NamedTuple):
    """Describes one GPU at a moment, as far as ``nvidia-smi`` says."""

    gpu: int
    name: str
    driver: str | None
    sm_mhz: int | None  # clock of the SMs
    most_mhz: int | None  # the most that it may run at
    reasons: int | None  # as bits, see THROTTLE_REASONS

    @property
    def throttle_reasons(self) -> tuple[str, ...]:
        """The reasons for which it runs slower than it was told to."""
        return tuple(words for bit, words in THROTTLE_REASONS.items() if (self.reasons or 0) & bit)


def query_gpus(launcher: Sequence[str] = ()) -> Mapping[int, Sequence[GpuState]]:
    """Query the GPUs of each node by its number, of this one as 0; none where nothing can be learnt.

    ``launcher`` are words that run a command on every node and put its number and a colon before each line.
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
        label, rest = _LABEL.fullmatch(line).groups()  # type: ignore[union-attr]  # it matches any line
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
    """Parse a whole number, also with a base before it; return None for what is not supported."""
    return int(text, 0) if re.fullmatch(r"0|[1-9][0-9]{0,9}|0x[0-9A-Fa-f]{1,16}", text) else None
