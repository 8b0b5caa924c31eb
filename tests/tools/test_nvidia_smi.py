"""Is nvidia-smi asked in words that its version knows, and does nothing that it does hold anybody up?"""

import sys
from pathlib import Path

import pytest

from pytest_nsys.tools import nvidia_smi
from pytest_nsys.tools.nvidia_smi import GpuState, query_gpus
from tests.support.fake_nsys import script
from tests.support.fake_nvidia_smi import NAME, asked, fake_nvidia_smi, state


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only one on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_it_nothing_is_known(folder: Path) -> None:  # noqa: ARG001  an empty PATH
    assert query_gpus() == {}


def test_what_it_says_of_each_gpu(folder: Path) -> None:
    fake_nvidia_smi(folder, "\n".join([state(0, sm=345), state(3, reasons="0x0000000000000044")]))
    first, second = query_gpus()[0]
    assert first == GpuState(0, NAME, "550.54.15", 345, 1980, 0)
    assert (second.gpu, second.sm_mhz, second.reasons) == (3, 1980, 0x44)
    assert second.throttle_reasons == ("power cap", "thermal slowdown by hardware")
    (words,) = asked(folder)
    assert words == (
        "--query-gpu=index,driver_version,clocks.sm,clocks.max.sm,clocks_event_reasons.active,name "
        "--format=csv,noheader,nounits"
    )


def test_an_older_driver_calls_the_reasons_otherwise(folder: Path) -> None:
    fake_nvidia_smi(folder, state(reasons="0x8"), known=("clocks_throttle_reasons",))
    assert query_gpus()[0][0].throttle_reasons == ("hardware slowdown",)
    assert ["throttle" in words for words in asked(folder)] == [False, True]


@pytest.mark.parametrize("reasons", ["0x0", "0x1", "0x2", "0x100", "[N/A]", "[Not Supported]", "0xzz"])
def test_a_gpu_that_idles_or_was_told_its_clock_is_not_throttled(folder: Path, reasons: str) -> None:
    fake_nvidia_smi(folder, state(sm="[N/A]", most="[Unknown Error]", reasons=reasons, driver="[N/A]"))
    (found,) = query_gpus()[0]
    assert found.throttle_reasons == ()
    assert (found.driver, found.sm_mhz, found.most_mhz) == (None, None, None)


@pytest.mark.parametrize(
    "says",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure, that, it, is, on",
        "No devices were found",
        "",
        "a, b, c, d, e, f\n\x00\xff",
    ],
)
def test_odd_words_are_nothing(folder: Path, says: str) -> None:
    fake_nvidia_smi(folder, says, code=9)
    assert query_gpus() == {}


def test_one_that_hangs_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_smi, "NVIDIA_SMI_TIMEOUT_S", 0.05)
    fake_nvidia_smi(folder, state(), sleeps=20)
    assert query_gpus() == {}
    assert len(asked(folder)) <= 1


def test_one_that_cannot_be_started(folder: Path) -> None:
    script(folder / "nvidia-smi", "#!/no/such/interpreter\n")
    assert query_gpus() == {}


def test_a_launcher_asks_every_node(folder: Path) -> None:
    fake_nvidia_smi(folder, state())
    words = "import subprocess, sys\nfor n in (0, 11): print(f'{n:2}:', subprocess.check_output(sys.argv[1:]).decode())"
    found = query_gpus([sys.executable, "-c", words])
    assert {node: [each.gpu for each in states] for node, states in found.items()} == {0: [0], 11: [0]}
