"""Does the action do on a runner what action.yml promises? Its steps run here, with the variables that GitHub sets."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.gates import Project
from tests.support.git_project import commit, git, start
from tests.support.reports import checked

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "nsys-gate"
DEFINITION: dict[str, Any] = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
WORKFLOWS = [*sorted((ROOT / ".github" / "workflows").glob("*.yml")), *sorted((ROOT / "examples/ci").glob("git*.yml"))]
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
PYTHON = sys.executable
"""What a runner has; most tests take :mod:`tests.support.quick_python`."""
GITHUB_WORKFLOWS = [path for path in WORKFLOWS if path.name != "gitlab-ci.yml"]

GREEN = "- overlap >= 60%"
RED = "- {id: good, assert: overlap >= 60%}\n- {id: red, assert: overlap >= 99%}"


@dataclass
class Runner:
    """A runner of GitHub Actions, as far as this action needs one."""

    project: Project
    uploaded: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    summary: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)

    def run(self, **given: str) -> int:
        """Run the action's steps; its exit status. Outputs, log, summary and what was uploaded are kept."""
        inputs = {name: str(value.get("default", "")) for name, value in DEFINITION["inputs"].items()}
        own = {"install": "false", "python": sys.executable, **{n.replace("_", "-"): v for n, v in given.items()}}
        assert set(own) <= set(inputs)
        self.known = known = {f"inputs.{name}": value for name, value in (inputs | own).items()}
        status = 0
        self.log, self.summary, self.uploaded = "", "", {}
        for number, step in enumerate(DEFINITION["runs"]["steps"]):
            if not holds(str(step.get("if", "success()")), known, status):
                continue
            if "uses" in step:
                self._use(step, known)
                continue
            assert step["shell"] == "bash"
            status = self._shell(number, step, known) or status
        self.outputs = {name: substituted(o["value"], known) for name, o in DEFINITION["outputs"].items()}
        return status

    def decide(self) -> int:
        """What the last step makes of the report that lies there now."""
        return self._shell(99, DEFINITION["runs"]["steps"][-1], self.known)

    def _use(self, step: Mapping[str, Any], known: Mapping[str, str]) -> None:
        asked = {name: substituted(value, known) for name, value in step["with"].items()}
        if step["uses"].startswith("actions/upload-artifact@"):
            folder = Path(asked["path"])
            self.uploaded = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}

    def _shell(self, number: int, step: Mapping[str, Any], known: dict[str, str]) -> int:
        assert "${{" not in step["run"]  # which would let an input be part of a command
        temp = self.project.root.parent / "runner temp"
        temp.mkdir(exist_ok=True)
        output, summary = temp / f"output{number}", temp / f"summary{number}"
        for file in (output, summary):
            file.write_text("")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(temp),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ACTION),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_WORKSPACE": str(self.project.root),
            "RUNNER_TEMP": str(temp),
            **{name: substituted(value, known) for name, value in step.get("env", {}).items()},
            **self.environment,
        }
        script = temp / "script.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.project.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        self.log += done.stdout
        self.summary += summary.read_text(encoding="utf-8")
        for line in output.read_text(encoding="utf-8").splitlines():
            name, equals, value = line.partition("=")
            assert equals, line
            known[f"steps.{step['id']}.outputs.{name}"] = value
        return done.returncode


def substituted(text: str, known: Mapping[str, str]) -> str:
    """``text`` with its expressions replaced, as GitHub does: an output that nobody set is empty."""
    return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda match: known.get(match[1], ""), text)


def holds(condition: str, known: Mapping[str, str], status: int) -> bool:
    """Whether a step runs; only what action.yml writes is understood."""
    terms = [term.strip() for term in condition.split("&&")]
    always = "always()" in terms
    compared = [re.fullmatch(r"([\w.-]+) != ''", term) for term in terms if not term.endswith("()")]
    assert all(compared), condition
    return (always or status == 0) and all(known.get(match[1], "") != "" for match in compared if match)


def jobs_of(path: Path) -> dict[str, Any]:
    """The jobs of a workflow; one that calls another workflow has no steps."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return found


@pytest.fixture
def runner(project: Project) -> Runner:
    return Runner(project)


# -- verdicts


def test_green(runner: Runner) -> None:
    runner.project.gate_with_trace(GREEN, "perf/gate.nsys.yaml")
    runner.project.file("test_other.py", "raise RuntimeError('is no gate')")
    runner.project.file("pytest.ini", "[pytest]\naddopts = --cov --of-a-plugin-that-is-not-here\n")
    assert runner.run(traces="run.sqlite", python=PYTHON) == 0, runner.log
    assert (runner.outputs["verdict"], runner.outputs["exit-code"]) == ("passed", "0")
    assert set(runner.uploaded) == {"report.html", "report.json", "summary.md", "junit.xml", "pytest.log"}
    assert runner.summary == runner.uploaded["summary.md"]
    assert runner.uploaded["report.html"].startswith("<!doctype html>")
    assert Path(runner.outputs["html"]).name == "report.html"
    assert "\nPerformance gate: passed. " in runner.summary
    assert checked(Path(runner.outputs["json"]))["gate_files"][0]["file"] == "perf/gate.nsys.yaml"
    assert all(Path(runner.outputs[name]).is_file() for name in ("json", "junit", "summary"))
    assert "::error" not in runner.log
    first = runner.outputs["json"]
    assert runner.run(traces="run.sqlite", artifact="") == 0
    assert runner.uploaded == {}
    assert runner.outputs["json"] != first


def test_red_leaves_its_reports_before_it_fails(runner: Runner) -> None:
    runner.project.gate_with_trace(RED)
    before = sorted(runner.project.root.rglob("*"))
    assert runner.run(traces="run.sqlite") == 1
    assert sorted(runner.project.root.rglob("*")) == before
    assert (runner.outputs["verdict"], runner.outputs["exit-code"]) == ("failed", "1")
    assert json.loads(runner.uploaded["report.json"])["counts"]["failed"] == 1
    assert "<failure" in runner.uploaded["junit.xml"]
    assert "#### failed: `red` (line 4)" in runner.summary
    assert "::error file=gate.nsys.yaml,line=4,title=failed%3A red::" in runner.log
    assert "verlap 80%25 < 99%25, rank 0 stage2_f\n" in runner.log.partition("::error title=nsys gate::")[2]


@pytest.mark.parametrize(
    ("gate", "status"), [("- {assert: overlap >= 99%, severity: warn}", 0), ("- stage5 overlap >= 60%", 1)]
)
def test_it_fails_as_pytest_does(runner: Runner, gate: str, status: int) -> None:
    runner.project.gate_with_trace(gate)
    assert runner.run(traces="run.sqlite") == status, runner.log
    assert "report.json" in runner.uploaded


@pytest.mark.parametrize(("refuses", "status"), [("", 0), ("nsys_gate_changes = fail\n", 1)])
@pytest.mark.sampled(2)
def test_a_pull_request_that_loosens_its_own_gate(runner: Runner, refuses: str, status: int) -> None:
    """What it changes is told, with the diff; where main refuses that it is red."""
    start(runner.project)
    runner.project.file("pytest.ini", f"[pytest]\n{refuses}")
    runner.project.gate_with_trace("- overlap >= 70%\n- launches <= 100", "perf/gate.nsys.yaml")
    commit(runner.project.root)
    git(runner.project.root, "switch", "-qc", "feature")
    runner.project.gate("- overlap >= 10%\n- launches <= 100", "perf/gate.nsys.yaml")
    commit(runner.project.root)
    assert runner.run(traces="run.sqlite", baseline_ref="main", gate_files="perf") == status, runner.log
    assert runner.outputs["merge-base-exit-code"] == str(status)
    assert "- perf/gate.nsys.yaml: changed, +1 -1" in runner.summary
    assert "```diff\n--- a/perf/gate.nsys.yaml\n" in runner.summary
    assert "-- overlap >= 70%\n+- overlap >= 10%\n" in runner.summary
    assert runner.outputs["verdict"] == "passed"  # of its own gate
    assert ("this branch changes 1 gate file" in runner.log) == bool(status)


@pytest.mark.parametrize(("trace", "status"), [("bad.sqlite", 1), ("good.sqlite", 0)])
@pytest.mark.sampled(2)
def test_the_gate_of_the_merge_base_is_a_step_of_its_own(runner: Runner, trace: str, status: int) -> None:
    start(runner.project)
    runner.project.gate("- overlap >= 60%", "perf/gate.nsys.yaml")
    runner.project.trace("good.sqlite")
    runner.project.trace("bad.sqlite", exposed_us=500)
    commit(runner.project.root)
    git(runner.project.root, "switch", "-qc", "feature")
    runner.project.gate("- overlap >= 10%", "perf/gate.nsys.yaml")
    commit(runner.project.root)
    assert runner.run(traces=trace, baseline_ref="main", gate_files="perf") == status, runner.log
    bad = trace == "bad.sqlite"
    assert (runner.outputs["verdict"], runner.outputs["merge-base-exit-code"]) == ("passed", str(int(bad)))
    assert f"### Gate of the merge base: {'red' if bad else 'green'}" in runner.summary
    assert json.loads(runner.uploaded["base.json"])["good"] is not bad
    assert runner.log.index("gate of the merge base: ") < runner.log.index("test session starts")


def test_a_merge_base_that_cannot_be_read_is_broken(runner: Runner) -> None:
    start(runner.project)
    runner.project.gate_with_trace(GREEN)
    commit(runner.project.root)
    assert runner.run(traces="run.sqlite", baseline_ref="origin/main") == 1
    assert runner.outputs["merge-base-exit-code"] == "2"
    assert "has no commit 'origin/main': fetch it: git fetch origin main" in runner.log


def test_the_merge_base_is_held_against_other_captures_too(runner: Runner) -> None:
    start(runner.project)
    runner.project.gate("- exposed_ns below baseline plus 5%", "perf/gate.nsys.yaml")
    runner.project.trace("base.sqlite")
    runner.project.trace("run.sqlite", exposed_us=500)
    commit(runner.project.root)
    given = {"traces": "run.sqlite", "against": "base.sqlite", "baseline_ref": "main", "gate_files": "perf"}
    assert runner.run(**given) == 1, runner.log
    assert "gate of the merge base: 1 failed" in runner.log


@pytest.mark.parametrize("lets_pass", [True, False])
@pytest.mark.sampled(2)
def test_a_pull_request_that_accepts_its_regression(runner: Runner, *, lets_pass: bool) -> None:
    project = runner.project
    start(project)
    project.file("pytest.ini", "[pytest]\n" + "nsys_accepted = pass\n" * lets_pass)
    project.gate_with_trace("- exposed_ns below baseline plus 5%")
    project.refresh("--nsys-trace=run.sqlite")
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    project.trace(exposed_us=300)
    project.refresh("--nsys-trace=run.sqlite", "--nsys-reason=smaller buckets")
    commit(project.root)
    assert runner.run(traces="run.sqlite", baseline_ref="main") == int(not lets_pass), runner.log
    assert "smaller buckets" in runner.summary


BROKEN: dict[str, tuple[dict[str, str], str, str, str]] = {
    "a mistake in a gate file": ({"gate_files": "mistake"}, "error", "2", "unknown metric 'overlp'"),
    "the other ending of YAML": ({"gate_files": "ending"}, "error", "2", "end it in .nsys.yaml"),
    "a link that leads nowhere": ({"gate_files": "linked"}, "error", "4", "(usage error)"),
    "no tests": ({"args": "-k\nnothing_of_this_name"}, "nothing judged", "5", "\nPerformance gate: nothing judged. "),
    "a missing trace": ({"traces": "absent.sqlite"}, "error", "4", "absent.sqlite"),
    "no such gate file": ({"gate_files": "no.nsys.yaml"}, "error", "", "no such gate file or folder: no.nsys.yaml"),
    "no gate file": ({"gate_files": "empty"}, "error", "", "no gate file (*.nsys.yaml) under empty"),
    "nearly the name": (
        {"gate_files": "nearly"},
        "error",
        "2",
        "end it in .nsys.yaml, as gate.nsys.yaml, or delete it",
    ),
    "brackets": (
        {"gate_files": "brackets"},
        *("error", "", "gate-files: pytest reads '[' in a path as the parameters of a test: rename ./brackets/a[1]"),
    ),
    "no python": ({"python": "no-python-of-this-name"}, "error", "", "no-python-of-this-name: command not found"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_red_whatever_fails(runner: Runner, case: str) -> None:
    given, verdict, code, why = BROKEN[case]
    runner.project.gate_with_trace(GREEN)
    runner.project.gate("- overlp >= 60%", "mistake/gate.nsys.yaml")
    runner.project.gate(RED, "ending/strict.nsys.yml")
    runner.project.gate(GREEN, "ending/gate.nsys.yaml")
    runner.project.gate(GREEN, "nearly/gate.nsys.YAML")
    runner.project.gate(GREEN, "brackets/a[1].nsys.yaml")
    for folder in ("empty", "linked"):
        (runner.project.root / folder).mkdir()
    (runner.project.root / "linked/gone.nsys.yaml").symlink_to("absent.nsys.yaml")
    asked = {"traces": "run.sqlite", "gate_files": "gate.nsys.yaml", **given}
    assert runner.run(**asked) == 1, runner.log
    assert (runner.outputs["verdict"], runner.outputs["exit-code"]) == (verdict, code)
    assert why in runner.summary
    assert {"summary.md", "pytest.log"} <= set(runner.uploaded) or not code
    if case == "a mistake in a gate file":
        assert "::error file=mistake/gate.nsys.yaml,line=3," in runner.log


def test_a_gate_file_without_a_trace_is_no_skip(runner: Runner) -> None:
    runner.project.gate(GREEN)
    runner.project.file("pytest.ini", "[pytest]\nnsys_strict = false\n")
    runner.environment["CI"] = ""
    assert runner.run() == 1, runner.log
    assert runner.outputs["verdict"] == "error"
    assert "no trace: give --nsys-trace=PATH" in runner.summary


# -- what was found is judged


def obeyed(log: str) -> list[str]:
    """The lines that the runner takes for commands: none between ``stop-commands`` and its token."""
    found, token = [], ""
    for line in log.splitlines():
        if token:
            token = "" if line == f"::{token}::" else token
        elif line.startswith("::stop-commands::"):
            token = line.removeprefix("::stop-commands::")
        elif line.strip().startswith("::") or "##[" in line:
            found.append(line)
    assert not token
    return found


@pytest.mark.parametrize("link", ["perf/linked.nsys.yaml", "perf/linked"])
def test_links_are_followed(runner: Runner, link: str) -> None:
    runner.project.gate_with_trace(GREEN, "perf/gate.nsys.yaml")
    runner.project.gate(RED, ".elsewhere/red.nsys.yaml")
    target = runner.project.root / ".elsewhere"
    (runner.project.root / link).symlink_to(target if link.endswith("linked") else target / "red.nsys.yaml")
    (runner.project.root / "perf" / "circle").symlink_to(runner.project.root / "perf")
    assert runner.run(traces="run.sqlite") == 1, runner.log
    assert json.loads(runner.uploaded["report.json"])["counts"]["failed"] == 1


def test_it_passes_only_what_all_of_a_report_says(runner: Runner) -> None:
    """Verdict, whether all is good, and every assertion."""
    runner.project.gate_with_trace(GREEN)
    assert runner.run(traces="run.sqlite") == 0, runner.log
    path = Path(runner.outputs["json"])
    report = json.loads(path.read_text())
    assertion = report["gate_files"][0]["assertions"][0]
    for place, name, said in ((report, "verdict", "failed"), (report, "good", False), (assertion, "good", False)):
        whole, place[name] = place[name], said
        path.write_text(json.dumps(report))
        assert runner.decide() == 1
        assert "pytest ended with exit status 0, and the report says" in runner.log
        place[name] = whole
    path.write_text(json.dumps(report))
    assert runner.decide() == 0


def test_no_file_of_the_repository_stands_for_a_program_of_the_action(runner: Runner) -> None:
    runner.project.gate_with_trace(RED)
    for name in ("pytest", "pytest_nsys", "pip", "json"):
        runner.project.file(f"{name}.py", "raise SystemExit(0)")
    assert runner.run(traces="run.sqlite", python=PYTHON) == 1
    assert (runner.outputs["verdict"], runner.outputs["exit-code"]) == ("failed", "1")


def test_no_name_is_a_command(runner: Runner) -> None:
    runner.project.gate_with_trace(RED)
    said = "::set-output name=verdict::passed", "a ##[add-mask]x"
    runner.project.file("conftest.py", f"def pytest_report_header(): return {list(said)}")
    assert runner.run(traces="run.sqlite") == 1
    assert set(said) <= set(runner.log.splitlines())
    assert [line.split(" ")[0] for line in obeyed(runner.log)] == ["::error", "::error"]


# -- inputs


def test_inputs_are_never_shell(runner: Runner) -> None:
    """Nor an option, where a path is meant."""
    name = "$(touch pwned) `touch pwned`; touch pwned & \"' *.nsys.yaml"
    runner.project.gate(GREEN, name)
    runner.project.gate(GREEN, "--version/-x.nsys.yaml")
    runner.project.trace("$(touch pwned).sqlite")
    before = runner.project.files()
    assert runner.run(traces="$(touch pwned).sqlite", gate_files=f"{name}\n--version") == 0, runner.log
    assert runner.project.files() == before
    found = checked(Path(runner.outputs["json"]))
    assert [file["file"] for file in found["gate_files"]] == [name, "--version/-x.nsys.yaml"]
    hostile = "'; touch pwned; '\n::set-output name=verdict::passed\n$(touch pwned)"
    for given in ("baseline_ref history args traces measurements against package", "gate_files"):
        assert runner.run(**{"gate_files": name, **dict.fromkeys(given.split(), hostile)}) == 1
        assert not (runner.project.root / "pwned").exists()


def test_a_line_is_a_capture(runner: Runner) -> None:
    runner.project.gate(GREEN)
    runner.project.trace("one.sqlite", exposed_us=100)
    runner.project.trace("and two.sqlite", exposed_us=300)
    assert runner.run(traces="\n  one.sqlite\r\n\n and two.sqlite  \n") == 0, runner.log
    assert json.loads(runner.uploaded["report.json"])["gate_files"][0]["traces"] == ["one.sqlite", "and two.sqlite"]


def test_measurements_alone(runner: Runner) -> None:
    runner.project.gate("- measured mfu >= 0.40")
    for value, status in (("0.45", 0), ("0.35", 1)):
        runner.project.file("perf.json", f'{{"mfu": {value}}}')
        assert runner.run(measurements="perf.json") == status, runner.log


def test_a_trace_of_one_configuration(runner: Runner) -> None:
    runner.project.gate("matrix: {one: , two: }\nassertions: [overlap >= 10%]")
    runner.project.trace("one.sqlite")
    named = {"traces": "one=one.sqlite"}
    assert runner.run(**named) == 1  # the other one has none, which is always red here
    assert "no trace of two" in runner.summary
    assert runner.run(**named, args="-k\n[one]") == 0, runner.log


def test_against_other_captures(runner: Runner) -> None:
    runner.project.gate("- exposed_ns below baseline plus 5%")
    runner.project.trace("base.sqlite", exposed_us=200)
    runner.project.trace("head.sqlite", exposed_us=300)
    assert runner.run(traces="head.sqlite", against="base.sqlite") == 1
    (assertion,) = json.loads(runner.uploaded["report.json"])["gate_files"][0]["assertions"]
    assert (assertion["outcome"], assertion["baseline"]) == ("failed", "base.sqlite")


def test_gate_files_are_found_and_nothing_else(runner: Runner) -> None:
    for name in ("b/x", "a", ".hidden/x", "venv/lib/x", "node_modules/x"):
        runner.project.gate(GREEN, f"{name}.nsys.yaml")
    runner.project.file("venv/pyvenv.cfg", "")
    runner.project.trace()
    assert runner.run(traces="run.sqlite") == 0, runner.log
    found = json.loads(runner.uploaded["report.json"])["gate_files"]
    assert [file["file"] for file in found] == ["a.nsys.yaml", "b/x.nsys.yaml"]


# -- installation

STUB = """#!/usr/bin/env bash
if [ "$1 $2 $3" = "-I -m venv" ]; then mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && exit
elif [ "$1 $2 $3" = "-I -m pip" ]; then
    printf '%s\\n' "$0" "${PYTHONPATH-}" "$@" >"$STUB_LOG"; echo said by pip; exit "$STUB_PIP"
fi
exec "$STUB_PYTHON" "$@"
"""


@pytest.mark.parametrize(("package", "status"), [("", 0), ("pytest-nsys==0.1; x", 0), ("--pre", 1)])
def test_it_installs_the_package(runner: Runner, package: str, status: int) -> None:
    runner.project.gate_with_trace(GREEN)
    stub, log = runner.project.root.parent / "stub", runner.project.root.parent / "pip.txt"
    stub.write_text(STUB)
    stub.chmod(0o755)
    runner.environment = {"STUB_LOG": str(log), "STUB_PYTHON": sys.executable, "STUB_PIP": str(status)}
    runner.environment["PYTHONPATH"] = "folder of the branch"
    given = {"install": "true", "python": str(stub), "package": package, "traces": "run.sqlite"}
    assert runner.run(**given) == status, runner.log
    python, path, *words = log.read_text().splitlines()
    assert python.endswith("/venv/bin/python")
    assert (path, words[:4]) == ("", ["-I", "-m", "pip", "install"])
    assert words[-2] == "--"
    assert words[-1] == package or Path(words[-1]).resolve() == ROOT
    if status:
        assert "pytest-nsys could not be installed" in runner.summary
        assert "said by pip" in runner.summary


# -- the files themselves


def test_every_input_is_used_and_described() -> None:
    text = (ACTION / "action.yml").read_text(encoding="utf-8")
    for name, value in DEFINITION["inputs"].items():
        assert re.search(rf"inputs\.{name}\b", text.partition("runs:")[2]), name
        assert value["description"].strip()
    script = (ACTION / "gate.sh").read_text(encoding="utf-8")
    used = {name for step in DEFINITION["runs"]["steps"] for name in step.get("env", {})}
    assert {name for name in used if name not in script} == set()


def test_the_page_lists_every_input_and_output() -> None:
    page = (ROOT / "docs" / "ci-github.md").read_text(encoding="utf-8")
    assert [name for name in DEFINITION["inputs"] if f"| `{name}` |" not in page] == []
    outputs = page.partition("Its outputs are ")[2].partition("\n\n")[0]
    assert [name for name in DEFINITION["outputs"] if f"`{name}`" not in outputs] == []


def test_the_reports_leave_before_the_last_step_decides() -> None:
    *_, judge, upload, last = DEFINITION["runs"]["steps"]
    assert "always()" in judge["if"]
    assert upload["uses"].startswith("actions/upload-artifact@")
    assert "always()" in upload["if"]
    assert last["if"] == "always()"
    assert last["run"].endswith("apply")


@pytest.mark.parametrize("path", GITHUB_WORKFLOWS, ids=lambda path: path.name)
def test_the_inputs_that_workflows_give_exist(path: Path) -> None:
    for step in (step for job in jobs_of(path).values() for step in job.get("steps", ())):
        if "nsys-gate" in step.get("uses", ""):
            assert set(step.get("with", {})) <= set(DEFINITION["inputs"])


@pytest.mark.parametrize("path", GITHUB_WORKFLOWS, ids=lambda path: path.name)
def test_no_workflow_puts_an_expression_into_a_command(path: Path) -> None:
    for job in jobs_of(path).values():
        assert [step["run"] for step in job.get("steps", ()) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-actions", [ACTION / "action.yml"]),
        ("github-workflows", GITHUB_WORKFLOWS),
        ("gitlab-ci", [ROOT / "examples" / "ci" / "gitlab-ci.yml"]),
        ("dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
        ("github-issue-config", [FORMS / "config.yml"]),
        ("github-issue-forms", sorted(set(FORMS.glob("*.yml")) - {FORMS / "config.yml"})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_are_as_their_schema_says(schema: str, paths: list[Path]) -> None:
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed")
    assert paths
    words = ["--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    if schema == "gitlab-ci":
        words += ["--data-transform", "gitlab-ci"]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *words], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def shell_texts() -> dict[str, str]:
    """Every piece of shell: the action's script, and the `run:` of each workflow."""
    found = {"gate.sh": (ACTION / "gate.sh").read_text(encoding="utf-8")}
    for path in (ACTION / "action.yml", *GITHUB_WORKFLOWS):
        data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        jobs = data["jobs"] if "jobs" in data else {"action": data["runs"]}
        for name, job in jobs.items():
            for number, step in enumerate(job.get("steps", ())):
                if "run" in step:
                    found[f"{path.name}-{name}-{number}"] = "#!/usr/bin/env bash\nset -e\n" + step["run"]
    gitlab: dict[str, Any] = yaml.safe_load((ROOT / "examples/ci/gitlab-ci.yml").read_text(encoding="utf-8"))
    for name, job in gitlab.items():
        if isinstance(job, dict) and "script" in job:
            found[f"gitlab-{name}"] = "#!/usr/bin/env bash\nset -e\n" + "\n".join(job["script"])
    return found


@pytest.mark.parametrize(("text"), [pytest.param(text, id=name) for name, text in shell_texts().items()])
def test_shell_is_well_formed(text: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(text, encoding="utf-8")
    subprocess.run(["bash", "-n", script], check=True)
    shellcheck = shutil.which(
        "shellcheck", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if shellcheck is not None:
        done = subprocess.run([shellcheck, script], capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stdout
