"""Does what leaves a cluster without a network let a plain runner judge? The examples' scripts run here with stubs for
what only a cluster has: srun, sbatch, kubectl, nsys, and a Python that makes environments of wheels.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.cli.test_example_workflows import EXAMPLES, command_of
from tests.support.fake_nsys import PYTHON, SRUN, FakeNsys, script
from tests.support.gates import Project

SBATCH, KUBERNETES = EXAMPLES / "slurm.sbatch", EXAMPLES / "kubernetes.yaml"
GATE = "convention: pithtrain\nassertions:\n  - exposed_ns <= 300us\n  - exposed_ns <= baseline + 5%"
LABEL = "rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"

PYTHON3 = """#!/bin/bash
[ "$1 $2 $3" = "-m venv --system-site-packages" ] || exit 64
mkdir -p "$4/bin" && cp "${0%/*}/pip" "$4/bin/pip"
"""
PIP = """#!/bin/bash
[ "$*" = "install --quiet --no-index --find-links=$THE_WHEELS pytest-nsys" ] || exit 64
printf '#!/bin/sh\\nexec {python} -m pytest_nsys "$@"\\n' >"${{0%/*}}/pytest-nsys"
chmod +x "${{0%/*}}/pytest-nsys"
"""
SUBMIT = """#!/bin/bash
[ "$1 $2" = "--wait --output=slurm.log" ] || exit 64
cp "$3" spooled && SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 bash spooled >slurm.log 2>&1
"""
TORCHRUN = '#!/bin/sh\n[ "$*" = "--nproc-per-node=gpu train.py" ]\n'


@dataclass
class Cluster:
    """A checkout on a cluster."""

    project: Project
    nsys: FakeNsys

    def profiles(self, exposed_us: int = 200, *, together: bool = False) -> None:
        """What nsys will record: two ranks, each on a node of its own, or both on one."""
        of_ranks = {
            f"step_node{rank}": self.project.trace(
                f"recorded/{rank}.sqlite", exposed_us if rank else 200, ranks=1, label=LABEL.format(rank=rank)
            )
            for rank in range(2)
        }
        both = {"step_node0": self.project.trace("recorded/both.sqlite", exposed_us)}
        self.nsys.tell(content=both if together else of_ranks)

    def bash(self, command: str, *words: str, code: int = 0, **environment: str) -> str:
        """Run a script in the checkout; what it printed."""
        known = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        path = f"{self.nsys.folder}{os.pathsep}{known['PATH']}"
        done = subprocess.run(
            ["bash", *words, "-c", command],
            cwd=self.project.root,
            env={**known, "PATH": path, "THE_WHEELS": "wheels", **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def cluster(project: Project) -> Cluster:
    bin = project.root / "bin"
    stubs = {"python3": PYTHON3, "pip": PIP.format(python=sys.executable), "sbatch": SUBMIT, "torchrun": TORCHRUN}
    stubs["srun"] = SRUN.format(python=PYTHON, asked=str(project.root / "srun.asked"), path="")
    for name, text in stubs.items():
        script(bin / name, text)
    project.gate(GATE, "perf/step.nsys.yaml")
    project.file("train.sh", "true\n")
    (project.root / "perf" / SBATCH.name).write_text(SBATCH.read_text())
    return Cluster(project, FakeNsys(bin))


def judged(project: Project, code: int) -> Any:
    """The windows alone, as a plain runner has them."""
    return {
        name: case.state for name, case in project.cases("perf", "--nsys-trace=windows.sqlite.gz", code=code).items()
    }


def test_from_a_slurm_job_to_a_plain_runner(cluster: Cluster) -> None:
    project = cluster.project
    for exposed_us, expected in ((200, "passed"), (900, "failure")):
        cluster.profiles(exposed_us)
        cluster.bash(command_of("github-cluster.yml", "Profile a few steps on the cluster"), "-e")
        assert "wrote handover/windows.sqlite.gz" in (project.root / "slurm.log").read_text()
        sent = project.root / "handover" / "windows.sqlite.gz"
        assert sent.stat().st_size < 40_000
        sent.rename(project.root / "windows.sqlite.gz")
        if exposed_us == 200:
            project.refresh("--nsys-trace=windows.sqlite.gz")
        states = judged(project, expected == "failure")
        assert states == {"exposed_ns <= 300us": expected, "exposed_ns <= baseline + 5%": expected}
        on_the_export = project.cases("perf", "--nsys-trace=handover/traces", code=expected == "failure")
        assert {name: case.state for name, case in on_the_export.items()} == states
    asked = (project.root / "srun.asked").read_text().splitlines()
    assert all('"--nodes=2"' in line and '"nsys"' in line for line in asked)


def test_a_job_that_fails_leaves_no_windows(cluster: Cluster) -> None:
    cluster.profiles()
    command = command_of("github-cluster.yml", "Profile a few steps on the cluster")
    cluster.bash(command, "-e")
    cluster.nsys.tell(leaves=())
    assert "there is no report" in cluster.bash(command, "-e", code=1)
    assert not (cluster.project.root / "handover" / "windows.sqlite.gz").exists()


def test_from_a_kubernetes_job_to_a_plain_runner(cluster: Cluster) -> None:
    cluster.profiles(together=True)
    job = yaml.safe_load(KUBERNETES.read_text(encoding="utf-8"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    shell, *options, last = container["command"]
    assert (shell, last) == ("bash", "-c")
    environment: dict[str, Any] = {each["name"]: each["value"] for each in container["env"]}
    assert environment["WHEELS"] == "/wheels"
    (script_text,) = container["args"]
    log = cluster.bash(script_text, *options, THE_WHEELS="/wheels", TMPDIR=str(cluster.project.root), **environment)
    (cluster.project.root / "pod.log").write_text(f"a line of the program\n{log}a line behind\n")
    script(cluster.nsys.folder / "kubectl", '#!/bin/sh\n[ "$*" = "logs job/nsys-gate" ] && exec cat pod.log\n')
    (receive,) = re.findall(r"^#   (kubectl logs .*)", KUBERNETES.read_text(encoding="utf-8"), re.MULTILINE)
    cluster.bash(receive)
    cluster.project.refresh("--nsys-trace=windows.sqlite.gz")
    assert set(judged(cluster.project, 0).values()) == {"passed"}
    names = {job["metadata"]["name"], *re.findall(r"job/([a-z-]+)", KUBERNETES.read_text(encoding="utf-8"))}
    assert names == {"nsys-gate"}


def test_a_script_that_slurm_takes() -> None:
    """Directives stand before the first command: behind it SLURM reads none."""
    lines = SBATCH.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/bin/bash"
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert sum(line.startswith("#SBATCH ") for line in lines[:first]) == 5
    assert not [line for line in lines[first:] if line.startswith("#SBATCH")]
