"""Does the script of docs/runs-over-time.md lead ``git bisect run`` to the commit that turned a gate red?"""

import re
from pathlib import Path

import pytest

from tests.support.gates import Project, write_trace
from tests.support.git_project import commit, git, start

PAGE = Path(__file__).parents[2] / "docs" / "runs-over-time.md"
GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
"""
CAPTURE = """
kind=$(cat kind)
test "$kind" != broken && mkdir -p run && cp "$HOME/traces/$kind.sqlite" run/run.sqlite
"""


def script() -> str:
    """The first block of the page that says what it is."""
    found = re.search(r"^```sh\n(?P<code># bisect\.sh:.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found["code"]


def test_git_finds_the_commit(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider -p no:hypothesispytest")
    project.commands_on_the_path(monkeypatch)
    for kind, exposed_us in (("good", 200), ("worse", 600)):
        write_trace(tmp_path / "traces" / f"{kind}.sqlite", exposed_us)
    own = tmp_path / "bisect"
    own.mkdir()
    (own / "bisect.sh").write_text(script())
    (own / "capture.sh").write_text(CAPTURE)
    project.gate(GATE, "gates.nsys.yaml")
    project.command(
        *(
            "baseline",
            "refresh",
            "gates.nsys.yaml",
            f"--trace={tmp_path / 'traces' / 'good.sqlite'}",
            "--reason=normal",
        ),
        code=0,
    )
    for name in ("gates.nsys.yaml", "baselines"):
        (project.root / name).rename(own / name)
    start(project)
    commits = []
    for n, kind in enumerate(["good", "good", "broken", "good", "worse", "worse"]):
        project.file("kind", kind)
        project.file("change", str(n))
        commits.append(commit(project.root, f"change {n}"))
    git(project.root, "bisect", "start", "HEAD", commits[0])
    assert f"{commits[4]} is the first bad commit" in git(project.root, "bisect", "run", "sh", str(own / "bisect.sh"))
    log = git(project.root, "bisect", "log")
    assert f"git bisect skip {commits[2]}" in log
    assert f"git bisect good {commits[3]}" in log
