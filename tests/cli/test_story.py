"""The life of a gate in a repository with two branches, by commands alone: what does its team see at each step?"""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.gates import Project

GATE = """
tolerance: {rel: 5%, abs: 20us}
assertions:
  - exposed_ns below baseline plus tolerance
  - no mixed comm streams
"""

WAIVER = """
waivers:
  - assertion: exposed_ns below baseline plus tolerance
    where: {{rank: 1, stage: stage4_f}}
    ceiling: 400us
    expires: {expires}
    reason: combine in fp32 until the kernel is fused
    link: https://example.org/issues/7
"""

SLOWER = {(1, "stage4_f"): 350}
FASTER = {(0, "stage2_f"): 100, (1, "stage2_f"): 100}


@pytest.fixture(autouse=True)
def _of_nobody(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands on the path, and a git that knows no user's settings."""
    project.commands_on_the_path(monkeypatch)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A Developer")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "dev@example.org")


class Story:
    """A team's repository."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.git("init", "-q", "-b", "main")
        project.file(".gitignore", "*.sqlite\n__pycache__/\n.pytest_cache/\nstdout\nstderr\n")
        project.file("pytest.ini", "[pytest]\nnsys_baseline_dir = baselines\n")
        self.gate()

    def gate(self, waiver_until: str | None = None) -> None:
        """The gate file, with or without its waiver."""
        more = WAIVER.format(expires=waiver_until).lstrip("\n") if waiver_until else ""
        self.project.gate(GATE.strip("\n") + "\n" + more, "perf/step.nsys.yaml")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.project.root, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def commit(self, why: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", why)

    def typed(self, *words: str, code: int) -> str:
        self.project.result = self.project.pytester.run(*words)
        said = self.project.result.stdout.str() + self.project.result.stderr.str()
        assert "Traceback" not in said
        assert "INTERNALERROR" not in said
        assert self.project.result.ret == code, said
        return said

    def judged(self, trace: str, code: int) -> str:
        """The gate as CI runs it on a pull request."""
        return self.typed("pytest", "perf", f"--nsys-trace={trace}", "--nsys-baseline-ref=main", code=code)

    def accepted(self, trace: str, reason: str) -> str:
        return self.typed("pytest-nsys", "baseline", "refresh", "perf", f"--trace={trace}", "--reason", reason, code=0)


def day(distance: int) -> str:
    return (datetime.now(UTC).date() + timedelta(days=distance)).isoformat()


def test_from_a_green_main_over_a_regression_and_its_waiver_to_an_accepted_improvement(project: Project) -> None:
    story = Story(project)
    project.trace("main.sqlite")
    project.trace("slower.sqlite", SLOWER)
    project.trace("worse.sqlite", {(1, "stage4_f"): 450})
    project.trace("faster.sqlite", FASTER)

    said = story.accepted("main.sqlite", "first baseline")
    assert "new file, 4 rows" in said
    assert "-merge" in said, "baselines must not be merged line by line, and .gitattributes does not say so yet"
    project.file(".gitattributes", "baselines/**/*.json -merge\n")
    assert "-merge" not in story.accepted("main.sqlite", "first baseline")
    story.commit("Gate the step")
    story.typed("pytest", "perf", "--nsys-trace=main.sqlite", code=0)

    # A pull request with a regression is red, with its row.
    story.git("switch", "-qc", "feature")
    said = story.judged("slower.sqlite", 1)
    assert "1 of 4 rows above their limit" in said
    rows = [" ".join(line.split()) for line in said.splitlines()]
    assert "1 stage4_f 350 us 200 us +75 % 220 us (baseline + max(5%, 20us))" in rows
    assert "1 failed, 1 passed" in said

    # To rewrite the baseline in the same pull request does not help, and everybody sees it.
    story.accepted("slower.sqlite", "it is only a little slower")
    story.commit("Make it slower")
    said = story.judged("slower.sqlite", 1)
    assert "1 of 4 rows above their limit" in said
    assert "exposed_ns rank 1 stage stage4_f: 200 us → 350 us" in said
    assert "200 us" in story.typed("pytest-nsys", "baseline", "diff", "main", code=0)
    story.git("reset", "-q", "--hard", "main")

    # A waiver lets it pass for a while, up to its ceiling, and says so.
    story.gate(waiver_until=day(30))
    story.commit("Waive the combine until it is fused")
    said = story.judged("slower.sqlite", 0)
    assert f"1 row is waived until {day(30)} (combine in fp32 until the kernel is fused" in said
    said = story.judged("worse.sqlite", 1)
    assert "waived up to 400 us" in said
    assert "but 450 us" in said

    # An expired waiver fails.
    story.gate(waiver_until=day(-1))
    said = story.judged("slower.sqlite", 1)
    assert f"expired on {day(-1)}" in said
    story.git("reset", "-q", "--hard", "main")

    # An improvement passes, with a warning that the baseline is stale.
    story.git("switch", "-qc", "faster", "main")
    said = story.judged("faster.sqlite", 0)
    assert "the baseline is stale: 2 of 4 rows are better" in said
    story.typed("pytest", "perf", "--nsys-trace=faster.sqlite", "--nsys-baseline-ref=main", "-W", "error", code=1)

    # Accepted with a reason, and merged: the gate is green against the merge base, and holds the new normal.
    said = story.accepted("faster.sqlite", "dispatch is fused")
    assert "exposed_ns rank 0 stage stage2_f: 200 us → 100 us" in said
    story.commit("Fuse the dispatch")
    said = story.judged("faster.sqlite", 0)
    assert "baselines changed in this branch" in said
    story.git("switch", "-q", "main")
    story.git("merge", "-q", "--no-ff", "--no-edit", "faster")
    story.git("switch", "-qc", "next")
    said = story.judged("faster.sqlite", 0)
    assert "stale" not in said
    assert "baselines changed" not in said
    assert "2 of 4 rows above their limit" in story.judged("main.sqlite", 1)
