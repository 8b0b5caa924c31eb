"""Does a capture keep what nvidia-smi says before and after it, and does the gate show that?"""

import json
from pathlib import Path

import pytest

from tests.support.commands import run
from tests.support.fake_nsys import FakeNsys, allocated
from tests.support.fake_nvidia_smi import asked, fake_nvidia_smi, state
from tests.support.gates import Project, write_trace

LOG = "traces/step_node0.nvidia-smi.json"


def test_clocks_throttling_and_driver_lie_beside_the_report_and_are_told(project: Project, nsys: FakeNsys) -> None:
    before = "\n".join([state(0, sm=345, reasons="0x1"), state(1, sm=1980)])
    after = "\n".join([state(0, sm=1200, reasons="0x44"), state(1, sm=1980, reasons="0x4")])
    fake_nvidia_smi(nsys.folder, before, after)
    said = project.command("capture", "--", "true", code=0)
    told = [
        "warning: {}: GPUs 0, 1 throttled after the run, says nvidia-smi: power cap",
        "warning: {}: GPU 0 throttled after the run, says nvidia-smi: thermal slowdown by hardware",
        "note: {}: driver 550.54.15; SM clock 345 to 1980 MHz before the run and 1200 to 1980 MHz after the "
        "run, at most 1980 MHz",
    ]
    assert "\n".join(told).format(*3 * ["traces/step_node0.nsys-rep"]) in said
    kept = json.loads((project.root / LOG).read_text())
    assert [gpu["sm_mhz"] for gpu in kept["before"]] == [345, 1980]
    assert [gpu["reasons"] for gpu in kept["after"]] == [0x44, 0x4]
    project.gate("- stage2 overlap >= 60%")
    for trace in ("traces", "traces/step_node0.sqlite", "traces/*"):
        summary = project.pytest("-v", f"--nsys-trace={trace}", code=0)
        assert "GPUs 0, 1 throttled after the run, says nvidia-smi: power cap" in summary
        assert "driver 550.54.15; SM clock 345 to 1980 MHz before the run and" in summary
    assert "driver 550.54.15" in run("--view=overlap", project.root / "traces", code=0).output


def test_without_nvidia_smi_nothing_is_kept(project: Project, nsys: FakeNsys) -> None:
    assert "nvidia-smi" not in project.command("capture", "--", "true", code=0)
    assert not (project.root / LOG).exists()
    fake_nvidia_smi(nsys.folder, "No devices were found", code=6)
    project.command("capture", "--force", "--", "true", code=0)
    assert not (project.root / LOG).exists()


def test_what_was_known_before_is_kept_where_nothing_is_known_after(project: Project, nsys: FakeNsys) -> None:
    fake_nvidia_smi(nsys.folder, state(sm=1980, most="[N/A]", reasons="0x2"), "Unable to determine the device handle")
    said = project.command("capture", "--", "true", code=0)
    told = "driver 550.54.15; SM clock 1980 MHz before the run; clocks set by a user on GPU 0"
    assert f"note: traces/step_node0.nsys-rep: {told}\n" in said


def test_an_old_log_is_replaced_with_its_report(project: Project, nsys: FakeNsys) -> None:
    fake_nvidia_smi(nsys.folder, state(sm=345))
    project.command("capture", "--", "true", code=0)
    (nsys.folder / "nvidia-smi").unlink()
    (project.root / "traces" / "step_node0.nsys-rep").unlink()
    (project.root / "traces" / "step_node0.sqlite").unlink()
    assert f"error: {LOG}: exists" in project.command("capture", "--", "true", code=2)
    project.command("capture", "--force", "--", "true", code=0)
    assert not (project.root / LOG).exists()


def test_each_node_of_a_job_has_its_own(project: Project, nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> None:
    allocated(nsys, monkeypatch)
    fake_nvidia_smi(nsys.folder, *(state(sm=100 * n) for n in (1, 2, 3, 4)))
    project.command("capture", "--nodes", "2", "--no-export", "--", "true", code=0)
    logs = [json.loads((project.root / LOG.replace("0", str(n))).read_text()) for n in (0, 1)]
    assert [[log[when][0]["sm_mhz"] for when in ("before", "after")] for log in logs] == [[100, 300], [200, 400]]
    assert len(asked(nsys.folder)) == 4


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"before": []}',
        '{"before": [], "after": [7]}',
        '{"before": [], "after": [{"gpu": 0}]}',
        '{"before": [], "after": [{"gpu":"0","name":"x","driver":null,"sm_mhz":1,"most_mhz":1,"reasons":0}]}',
        '{"before": [], "after": [{"gpu":0,"name":7,"driver":null,"sm_mhz":1,"most_mhz":1,"reasons":0}]}',
        '{"before": [], "after": [{"gpu":null,"name":"x","driver":null,"sm_mhz":1,"most_mhz":1,"reasons":0}]}',
        "[" * 100_000,
    ],
)
def test_a_log_that_is_none_is_one_warning(tmp_path: Path, content: str) -> None:
    trace = write_trace(tmp_path / "run.sqlite")
    (tmp_path / "run.nvidia-smi.json").write_text(content)
    said = run("--view=overlap", trace, code=0)
    (line,) = [line for line in said.output.splitlines() if "nvidia-smi" in line]
    assert line.endswith("run.nvidia-smi.json: is not a log of nvidia-smi: delete it, or capture again")
    assert line.startswith("warning: ")
