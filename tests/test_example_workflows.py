"""Do the commands of the example workflows do what they say? They run here with stubs for what only a runner has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[1] / "examples" / "ci"

STUBS = {
    "nsys": """
        echo "nsys $1 in ${PWD##*/}" >>"$LOG"
        for word; do case $word in --output=*.sqlite) echo sqlite >"${word#--output=}" ;;
            --output=*) echo report >"${word#--output=}.nsys-rep" ;; esac; done
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


def posted(folder: Path, summary: str) -> tuple[str, str]:
    """How the comment was written, and its text."""
    (folder / "summary.md").write_text(summary, encoding="utf-8")
    said = run(
        folder,
        command_of("github-comment.yml", "Write the comment"),
        REPOSITORY="o/r",
        NUMBER="7",
        RUN="https://example.org/run",
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
    if verdict in ("passed", "improved"):
        run(tmp_path, command, VERDICT=verdict)
    else:
        with pytest.raises(subprocess.CalledProcessError):
            run(tmp_path, command, VERDICT=verdict)
