"""Do the commands of the example workflows do what they say? They run here with stubs for what only a runner has."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.test_action import substituted

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "ci"
GITHUB = sorted(EXAMPLES.glob("github*.yml"))
REQUIRED = [path for path in GITHUB if path.name != "github-comment.yml"]
GITLAB: dict[str, Any] = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text(encoding="utf-8"))

STUBS = {
    "nsys": """
        echo "nsys $1 in ${PWD##*/}" >>"$LOG"
        for word; do case $word in --output=*.sqlite) echo sqlite >"${word#--output=}" ;;
            --output=*) echo report >"${word#--output=}.nsys-rep" ;; esac; done
    """,
    "curl": """
        printf '%s\\n' "$*" >>"$LOG"
        case $* in *--request*) ;; *) cat "$NOTES/notes.json" ;; esac
    """,
    "gh": """
        printf '%s\\n' "$*" >>"$LOG"
        case $* in
        *--paginate*) cat "$COMMENTS" ;;
        */pulls*) cat "$PULLS" ;;
        *) for word; do case $word in body=@*) cp "${word#body=@}" "$LOG.body" ;; esac; done ;;
        esac
    """,
}


def command_of(workflow: str, step: str) -> str:
    """What a step runs."""
    jobs: dict[str, Any] = yaml.safe_load((EXAMPLES / workflow).read_text(encoding="utf-8"))["jobs"]
    (found,) = (s["run"] for job in jobs.values() for s in job["steps"] if s.get("name") == step)
    return str(found)


def run(folder: Path, command: str, **environment: str | Path) -> str:
    """Run a command as a runner does; what the stubs were asked for."""
    stubs, log = folder / "stubs", folder / "log.txt"
    stubs.mkdir(exist_ok=True)
    log.write_text("")
    for name, text in STUBS.items():
        (stubs / name).write_text("#!/usr/bin/env bash\n" + text)
        (stubs / name).chmod(0o755)
    known: Mapping[str, str] = {
        "PATH": f"{stubs}{os.pathsep}{os.environ['PATH']}",
        "LOG": str(log),
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(folder / "output.txt"),
        **{name: str(value) for name, value in environment.items()},
    }
    (folder / "step.sh").write_text(command)
    subprocess.run(["bash", "-e", folder / "step.sh"], cwd=folder, env=known, check=True, capture_output=True)
    return log.read_text()


def ended_well(folder: Path, command: str, **environment: str) -> bool:
    """Whether it says that all is good."""
    try:
        run(folder, command, **environment)
    except subprocess.CalledProcessError:
        return False
    return True


def test_before_and_after_is_taken_in_abba_order(tmp_path: Path) -> None:
    for side in ("base", "head"):
        (tmp_path / side).mkdir()
    said = run(tmp_path, command_of("github-before-after.yml", "Profile in ABBA order"))
    taken = [line.rpartition(" ")[2] for line in said.splitlines() if line.startswith("nsys profile")]
    letters = "".join("A" if side == "base" else "B" for side in taken)
    assert letters == "A" + "ABBAABBAAB"  # the first is thrown away
    workflow = yaml.safe_load((EXAMPLES / "github-before-after.yml").read_text(encoding="utf-8"))
    given = workflow["jobs"]["before-after"]["steps"][-1]["with"]
    asked = [*given["traces"].split(), *given["against"].split()]
    assert sorted(f"traces/{path.name}" for path in (tmp_path / "traces").glob("*.sqlite")) == sorted(asked)


@pytest.fixture
def comment(tmp_path: Path) -> Path:
    """A folder with what the workflow of comments finds."""
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    (tmp_path / "comments.json").write_text("[]")
    return tmp_path


def posted(folder: Path, summary: str, source: str = "o/r") -> tuple[str, str]:
    """How the comment was written, and its text. ``source`` is the repository of the branch."""
    (folder / "summary.md").write_text(summary, encoding="utf-8")
    said = run(
        folder,
        command_of("github-comment.yml", "Write the comment"),
        REPOSITORY="o/r",
        NUMBER="7",
        RUN="https://example.org/run",
        SOURCE=source,
        CONCLUSION="success",
        SUMMARY=folder / "summary.md",
        COMMENTS=folder / "comments.json",
    )
    return said.splitlines()[-1], (folder / "log.txt.body").read_text(encoding="utf-8")


def test_a_first_comment(comment: Path) -> None:
    how, text = posted(comment, "## Performance gate: passed\n\nHello @everyone.\n")
    assert "--method POST repos/o/r/issues/7/comments" in how
    assert text.startswith("<!-- nsys-gate -->\n## Performance gate: passed\n")
    assert "@\u200beveryone" in text
    assert text.endswith("\n[The whole run](https://example.org/run)\n")


def test_the_same_comment_again(comment: Path) -> None:
    (comment / "comments.json").write_text(
        '[{"id": 1, "user": {"type": "User"}, "body": "<!-- nsys-gate --> mine"}]'
        '[{"id": 2, "user": {"type": "Bot"}, "body": "other"},'
        ' {"id": 3, "user": {"type": "Bot"}, "body": "<!-- nsys-gate -->"}]'
    )
    assert "--method PATCH repos/o/r/issues/comments/3 " in posted(comment, "again\n")[0]


@pytest.mark.parametrize("letter", ["x", "é", "@é", "@x"])
def test_a_comment_is_never_too_long(comment: Path, letter: str) -> None:
    text = posted(comment, "".join(f"{n} {letter * 40}\n" for n in range(30_000)))[1]
    assert 10_000 < len(text) <= 65_536
    *_, last = text.partition("\n\n[The whole run]")[0].splitlines()
    assert last.count(letter[-1]) == 40


HOSTILE = """
````
</pre></details>
# All gates passed

[Log in](https://example.org) @everyone <img src=x>\r# A line of its own\x0b\x0c
```
"""


@pytest.mark.parametrize("text", [HOSTILE, HOSTILE * 2000])
def test_what_a_fork_wrote_is_code_and_no_markdown(comment: Path, text: str) -> None:
    """Of CommonMark: a line that begins with four blanks, behind an empty one, is code whatever stands in it."""
    said = posted(comment, text, source="stranger/r")[1]
    head, _, rest = said.partition("Its summary, as the fork wrote it:\n\n")
    assert head == "<!-- nsys-gate -->\n## Performance gate: the run ended with success\n\n"
    lines = rest.removesuffix("\n[The whole run](https://example.org/run)\n").removesuffix("\n").split("\n")
    assert [line for line in lines if not line.startswith("    ")] == []
    assert not set("\r\x0b\x0c") & set(said)
    assert len(said.encode()) <= 65_536


@pytest.mark.parametrize(("commit", "number"), [("abc", "7"), ("other", "")])
def test_the_pull_request_is_found_by_its_commit(comment: Path, commit: str, number: str) -> None:
    (comment / "pulls.json").write_text('[{"number": 6, "head": {"sha": "x"}}, {"number": 7, "head": {"sha": "abc"}}]')
    said = run(
        comment,
        command_of("github-comment.yml", "Find the pull request"),
        REPOSITORY="o/r",
        BRANCH="fork:$(touch pwned)",
        COMMIT=commit,
        PULLS=comment / "pulls.json",
    )
    assert "head=fork:$(touch pwned)" in said
    assert (comment / "output.txt").read_text() == f"number={number}\n"
    assert not (comment / "pwned").exists()


@pytest.mark.parametrize("verdict", ["passed", "improved", "failed", "error", "no data", "nothing judged", ""])
def test_the_nightly_verdict(tmp_path: Path, verdict: str) -> None:
    command = command_of("github-nightly.yml", "Verdict")
    known = {"VERDICT": verdict, "RESULTS": "capture: success, gate: success, keep: success"}
    assert ended_well(tmp_path, command, **known) is (verdict in ("passed", "improved"))


# -- a required check, and what a workflow may do


def workflow(path: Path) -> dict[str, Any]:
    """A workflow; YAML takes its ``on`` for true."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {**found, "on": found[True]}  # type: ignore[index]


@pytest.mark.parametrize("result", ["success", "skipped", "failure", "cancelled"])
@pytest.mark.parametrize("path", REQUIRED, ids=lambda path: path.name)
def test_the_last_job_always_runs_and_is_green_where_all_jobs_were(path: Path, result: str, tmp_path: Path) -> None:
    jobs = workflow(path)["jobs"]
    *others, last = jobs
    assert jobs[last]["if"] == "always()"
    needs = jobs[last]["needs"]
    assert ([needs] if isinstance(needs, str) else needs) == others
    (step,) = jobs[last]["steps"]
    for job in others:
        results = {**dict.fromkeys(others, "success"), job: result}
        known = {f"needs.{name}.result": value for name, value in results.items()} | {
            "needs.gate.outputs.verdict": "passed"
        }
        environment = {name: substituted(value, known) for name, value in step["env"].items()}
        assert ended_well(tmp_path, step["run"], **environment) is (result == "success")


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_no_job_has_more_rights_than_it_needs(path: Path) -> None:
    """A job that runs what a pull request brings only reads, and leaves no token in the checkout."""
    found = workflow(path)
    assert found["permissions"] == {}
    writes = []
    for name, job in found["jobs"].items():
        writes += [(name, what) for what, how in job["permissions"].items() if how == "write"]
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@") and job["permissions"] != {"contents": "write"}:
                assert step["with"]["persist-credentials"] is False
    expected = {"github-comment.yml": ("comment", "pull-requests"), "github-nightly.yml": ("keep", "contents")}
    assert writes == [each for name, each in expected.items() if name == path.name]


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_no_label_starts_a_workflow_and_no_fork_a_machine(path: Path) -> None:
    found = workflow(path)
    trigger = found["on"].get("pull_request") if isinstance(found["on"], dict) else None
    assert "labeled" not in ((trigger or {}).get("types", ()))
    assert "pull_request_target" not in found["on"]
    for job in found["jobs"].values():
        if "pull_request" in found["on"] and "self-hosted" in job["runs-on"]:
            assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]


# -- GitLab


def of_gitlab(job: str, number: int = -1) -> str:
    """A command of a job."""
    return str(GITLAB[job]["script"][number])


def test_a_fork_is_red_on_gitlab_and_starts_no_machine() -> None:
    foreign = "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID != $CI_MERGE_REQUEST_PROJECT_ID"
    assert GITLAB["fork"]["rules"] == [{"if": f'$CI_PIPELINE_SOURCE == "merge_request_event" && {foreign}'}]
    assert of_gitlab("fork") == "exit 1"
    for job in ("capture", "gate"):
        assert GITLAB[job]["extends"] == ".ours"
    assert {"if": GITLAB["fork"]["rules"][0]["if"], "when": "never"} in GITLAB[".ours"]["rules"]
    assert {"if": foreign, "when": "never"} in GITLAB["comment"]["rules"]


@pytest.mark.parametrize(("base", "status"), [("", 0), ("0", 0), ("1", 1), ("2", 2)])
def test_on_gitlab_the_merge_base_judges_first(tmp_path: Path, base: str, status: int) -> None:
    """Where it is red the job ends with its exit status, before anything of the merge request runs."""
    (tmp_path / ".gate/bin").mkdir(parents=True)
    python = tmp_path / ".gate/bin/python"
    python.write_text('#!/bin/sh\necho "$@" >>"$LOG"\nexit "$STATUS"\n')
    python.chmod(0o755)
    known = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "abc" if base else "", "STATUS": base or "0"}
    judge, own = of_gitlab("gate", 2), of_gitlab("gate")
    assert ".gate/bin/pytest perf" in own
    if status:
        with pytest.raises(subprocess.CalledProcessError) as failed:
            run(tmp_path, judge, **known)
        assert failed.value.returncode == status
        return
    said = run(tmp_path, judge, **known)
    assert said.startswith("-I -m pytest_nsys baseline judge abc perf --trace=traces/run.sqlite" if base else "")


@pytest.mark.parametrize("notes", ["[]", '[{"id": 7, "system": false, "body": "<!-- nsys-gate -->\\nold"}]'])
def test_the_note_on_gitlab(comment: Path, notes: str) -> None:
    (comment / "report").mkdir()
    (comment / "report" / "summary.md").write_text("## Performance gate: passed\n\nHello @all.\n  /merge\n/approve\n")
    (comment / "notes.json").write_text(notes)
    known = {"CI_API_V4_URL": "https://g/api/v4", "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "9"}
    said = run(
        comment, of_gitlab("comment"), **known, CI_PIPELINE_URL="https://g/p", NSYS_GATE_TOKEN="t", NOTES=comment
    )
    where = "https://g/api/v4/projects/3/merge_requests/9/notes"
    assert said.splitlines()[-1].endswith(f"PUT --data-urlencode body@note.md {where}/7" if "7" in notes else where)
    text = (comment / "note.md").read_text(encoding="utf-8")
    assert text.startswith("<!-- nsys-gate -->\n## Performance gate: passed\n")
    assert "@\u200ball" in text
    assert [line for line in text.splitlines() if line.strip().startswith("/")] == []
