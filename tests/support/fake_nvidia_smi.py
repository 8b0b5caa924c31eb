"""A program ``nvidia-smi`` for tests: it says the states that a test gives it, one a call, the last one on and on."""

from pathlib import Path

from tests.support.fake_nsys import PYTHON, script

NAME = "NVIDIA H100 80GB HBM3"
SCRIPT = """#!{python} -IS
import os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "nvidia-smi.told")) as file:
    told = eval(file.read())
asked = os.path.join(here, "nvidia-smi.asked")
with open(asked, "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if not any(word in sys.argv[1] for word in told["known"]):
    print(f'Field "clocks_event_reasons.active" is not a valid field to query.')
    sys.exit(2)
answered = sum(any(word in line for word in told["known"]) for line in open(asked))
time.sleep(told["sleeps"])
print(told["says"][min(answered, len(told["says"])) - 1])
sys.exit(told["code"])
"""


def state(
    gpu: int = 0, *, sm: object = 1980, most: object = 1980, reasons: str = "0x0", driver: str = "550.54.15"
) -> str:
    """A line of its CSV."""
    return f"{gpu}, {driver}, {sm}, {most}, {reasons}, {NAME}"


def fake_nvidia_smi(folder: Path, *says: str, known: tuple[str, ...] = ("",), code: int = 0, sleeps: float = 0) -> Path:
    """Put it into a folder of PATH; ``known`` are the names of the field of reasons that this version knows."""
    told = {"says": says, "known": known, "code": code, "sleeps": sleeps}
    (folder / "nvidia-smi.told").write_text(repr(told))
    return script(folder / "nvidia-smi", SCRIPT.format(python=PYTHON))


def asked(folder: Path) -> list[str]:
    """What it was asked, call by call."""
    path = folder / "nvidia-smi.asked"
    return path.read_text().splitlines() if path.exists() else []
