"""Do the examples of GitLab, Jenkins and Azure judge a change? Their shell runs here, from the capture to the verdict.

Only what a runner has is replaced: ``make``, the program, nsys (which hands out a trace), and pip. Git, the gate of the
merge base and pytest are real.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support import git_project
from tests.support.gates import Project

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "ci"
JENKINS = (EXAMPLES / "Jenkinsfile").read_text(encoding="utf-8")
AZURE: dict[str, Any] = yaml.safe_load((EXAMPLES / "azure-pipelines.yml").read_text(encoding="utf-8"))
GITLAB: dict[str, Any] = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text(encoding="utf-8"))
GATE = "- exposed_ns below baseline plus 5%\n"
RAISED = "- exposed_ns below baseline plus 900%\n"

FAKE_NSYS = """
for word; do case $word in
  --output=*.sqlite) cp "$TRACE" "${word#--output=}" ;;
  --output=*) echo report >"${word#--output=}.nsys-rep" ;;
esac; done
"""
# Makes the environment of the gate where it is asked for one. Its python installs nothing; else it is the one that runs
# the tests.
FAKE_PYTHON = f"""
mkdir -p .gate/bin
printf '%s\\n' '#!/bin/sh' 'case "$*" in *" pip "*) exit 0 ;; esac' 'exec {sys.executable} "$@"' >.gate/bin/python
printf '%s\\n' '#!/bin/sh' 'exec {sys.executable} -m pytest -p no:cacheprovider "$@"' >.gate/bin/pytest
chmod +x .gate/bin/*
"""
FAKES = {"make": "exit 0", "nsys": FAKE_NSYS, "python": FAKE_PYTHON, "python3": FAKE_PYTHON}


class System(NamedTuple):
    """What a CI system runs for a change, step by step, and what it sets in the environment of the steps."""

    steps: tuple[str, ...]
    environment: Mapping[str, str]


def list_azure_steps() -> Iterator[str]:
    """Yield the commands of the first two jobs that run where all goes well, in order."""
    for job in AZURE["jobs"][:2]:
        yield from (step["bash"] for step in job["steps"] if "bash" in step and step.get("condition") != "always()")


SYSTEMS = {
    "gitlab": System(
        (*GITLAB["capture"]["script"], *GITLAB["gate"]["script"]), {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "origin/main"}
    ),
    "jenkins": System(tuple(re.findall(r"sh '''(.*?)'''", JENKINS, flags=re.DOTALL)), {"CHANGE_TARGET": "main"}),
    "azure": System(tuple(list_azure_steps()), {"SYSTEM_PULLREQUEST_TARGETBRANCH": "refs/heads/main"}),
}


@pytest.fixture
def repository(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository whose main has a gate and its baseline, and a branch that allows itself five times as much."""
    git_project.isolate(monkeypatch)
    git_project.start(project)
    project.file(".gitignore", f"{git_project.IGNORED}bin/\n.gate/\ntraces/\nreport/\n")
    for name, text in FAKES.items():
        project.file(f"bin/{name}", f"#!/bin/sh\n{text}").chmod(0o755)
    project.trace("good.sqlite", 200)
    project.trace("slow.sqlite", 900)
    project.gate(GATE, "perf/step.nsys.yaml")
    project.command("baseline", "refresh", "perf", "--trace=good.sqlite", "--reason=first", code=0)
    main = git_project.commit(project.root)
    git_project.git(project.root, "update-ref", "refs/remotes/origin/main", main)
    git_project.git(project.root, "switch", "-qc", "feature")
    project.gate(RAISED, "perf/step.nsys.yaml")
    git_project.commit(project.root)
    return project


def run_until_red(project: Project, system: System, trace: str) -> tuple[int, str]:
    """Run the steps of a system on a trace; the exit status of the first that is red, or 0, and what was printed."""
    environment = {
        "PATH": f"{project.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "TRACE": str(project.root / trace),
        **{name: value for name, value in os.environ.items() if name.startswith("GIT_")},
        **system.environment,
    }
    printed = ""
    for step in system.steps:
        done = subprocess.run(
            ["bash", "-e", "-c", step], cwd=project.root, env=environment, capture_output=True, text=True, check=False
        )
        printed += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, printed
    return 0, printed


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_main_judges_what_a_branch_measures(name: str, repository: Project) -> None:
    """A raised limit saves no branch; what is as fast as on main is green, with every report that the system shows."""
    status, printed = run_until_red(repository, SYSTEMS[name], "slow.sqlite")
    assert status == 1, printed
    assert "exposed_ns below baseline plus 5%" in printed
    assert not (repository.root / "report/report.json").exists()  # the branch's own gate did not start
    status, printed = run_until_red(repository, SYSTEMS[name], "good.sqlite")
    assert status == 0, printed
    assert {path.name for path in (repository.root / "report").iterdir()} == {
        *("junit.xml", "report.json", "summary.md", "index.html")
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_first_baseline_comes_out_of_a_run(name: str, repository: Project) -> None:
    """As the page on CI says: the first run has no data, its trace is refreshed and committed, the next is green."""
    system = SYSTEMS[name]._replace(environment=dict.fromkeys(SYSTEMS[name].environment, ""))
    on_main = system._replace(steps=tuple(step for step in system.steps if name != "azure" or "judge" not in step))
    git_project.git(repository.root, "switch", "-q", "main")
    git_project.git(repository.root, "rm", "-rq", "baselines")
    git_project.commit(repository.root)
    status, printed = run_until_red(repository, on_main, "good.sqlite")
    assert status == 1, printed
    assert "no data" in printed
    repository.command("baseline", "refresh", "perf", "--trace=traces", "--reason=first baseline, from run 1", code=0)
    git_project.commit(repository.root)
    status, printed = run_until_red(repository, on_main, "good.sqlite")
    assert status == 0, printed


def test_a_fork_starts_no_machine_and_is_red() -> None:
    capture, *_, passed = AZURE["jobs"]
    assert capture["condition"] == "ne(variables['System.PullRequest.IsFork'], 'True')"
    assert passed["condition"] == "always()"
    assert passed["dependsOn"] == [job["job"] for job in AZURE["jobs"][:-1]]
    fork = JENKINS.partition("stage('fork')")[2].partition("stage(")[0]
    assert "env.CHANGE_FORK != null" in fork
    assert "error '" in fork
    assert JENKINS.index("stage('fork')") < JENKINS.index("stage('capture')")


@pytest.mark.parametrize("results", ["Succeeded Succeeded", "Skipped Skipped", "Failed Skipped", "Succeeded Failed"])
def test_the_last_job_of_azure_is_green_where_both_were(results: str) -> None:
    capture, gate = results.split()
    (step,) = (step["bash"] for step in AZURE["jobs"][-1]["steps"] if "bash" in step)
    environment = {**os.environ, "RESULTS": f"capture: {capture}, gate: {gate}"}
    done = subprocess.run(["bash", "-e", "-c", step], env=environment, capture_output=True, check=False)
    assert (done.returncode == 0) is (results == "Succeeded Succeeded")


def test_every_system_has_its_page() -> None:
    """The page names the file to copy, and no page of a system is longer than a screen or two."""
    for name, example in {"gitlab": "gitlab-ci.yml", "jenkins": "Jenkinsfile", "azure": "azure-pipelines.yml"}.items():
        text = (ROOT / "docs" / f"ci-{name}.md").read_text(encoding="utf-8")
        assert f"examples/ci/{example}" in text
        assert len(text.splitlines()) <= 40


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_an_example_installs_what_there_is(path: Path) -> None:
    """Until there is a release that is the repository, at a commit, or a folder of wheels that were made of it."""
    text = path.read_text(encoding="utf-8")
    installed = re.findall(r"pip\"? (?:install|wheel) .*", text)
    repository = "git+https://github.com/pytest-nsys/pytest-nsys"
    unlike = [line for line in installed if repository not in line and "--no-index --find-links" not in line]
    assert unlike == []
    action = re.findall(r"uses: pytest-nsys/pytest-nsys\S*@(\S+)", text)
    assert {*action} <= {"COMMIT"}
    assert installed or action or "workflow_run" in text  # that one runs nothing of the package


def test_the_page_of_slurm_is_a_screen_and_names_its_file() -> None:
    text = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    assert "`slurm.sbatch`" in text
    assert "## SLURM" in text
    assert len(text.splitlines()) <= 60
