"""What do pages and workflows call this repository, and which actions do they use? Each is said in one place.

The repository is that of ``project.urls`` in ``pyproject.toml``. The commit of an action is that of the workflows below
``.github/``, where Dependabot raises it. ``python -m tests.generate_docs`` writes both everywhere else.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"].removeprefix("https://github.com/")
OWNER, NAME = REPOSITORY.split("/")
GATE_ACTION = f"{REPOSITORY}/.github/actions/nsys-gate@COMMIT"
"""How workflows of others use the action: COMMIT is that of the release that they take."""

USED = re.compile(r"(?<=uses: )(?P<action>[\w.-]+/[\w./-]+)@(?P<commit>[0-9a-f]{40} # v[0-9][0-9.]*)$", re.MULTILINE)
_NAMED = {
    re.compile(r"(?:(?<=github\.com/)|(?<=githubusercontent\.com/)|(?<=--repo ))[\w.-]+/pytest-nsys\b"): REPOSITORY,
    re.compile(r"(?<=uses: )[\w.-]+/[\w.-]+(?=/\.github/)"): REPOSITORY,
    re.compile(r"(?<=https://)[\w-]+\.github\.io/pytest-nsys\b"): f"{OWNER}.github.io/{NAME}",
    re.compile(r"(?<=@)[\w-]+(?=/maintainers\b)"): OWNER,
}


def workflows() -> list[Path]:
    """The repository's own workflows and its action."""
    return sorted(path for path in (ROOT / ".github").rglob("*.yml") if path.parent.name != "ISSUE_TEMPLATE")


def files() -> list[Path]:
    """Every file that may name the repository or an action."""
    text = (path for path in ROOT.iterdir() if path.suffix in (".cff", ".md", ".toml", ".yaml", ".yml"))
    below = (
        path
        for name in ("docs", "examples/ci", ".github")
        for path in (ROOT / name).rglob("*")
        if path.suffix in (".json", ".md", ".yml", ".yaml") or path.name in ("CODEOWNERS", "Jenkinsfile")
    )
    package = ROOT / "pytest_nsys"
    return sorted({*text, *below, *package.rglob("*.schema.json"), package / "core" / "version.py"})


def commits() -> dict[str, set[str]]:
    """By action, each commit by which the repository's own workflows use it, with the version behind it."""
    found: dict[str, set[str]] = {}
    for path in workflows():
        for used in USED.finditer(path.read_text(encoding="utf-8")):
            found.setdefault(used["action"], set()).add(used["commit"])
    return found


def renamed(text: str) -> str:
    """The text with the repository's name, and with the actions' commits where the own workflows use them."""
    for pattern, name in _NAMED.items():
        text = pattern.sub(name, text)
    known = commits()
    return USED.sub(lambda used: f"{used['action']}@{min(known.get(used['action'], {used['commit']}))}", text)


def rename() -> list[Path]:
    """Rewrite every file that says something else; returns those."""
    stale = []
    for path in files():
        old = path.read_text(encoding="utf-8")
        if (new := renamed(old)) != old:
            path.write_text(new, encoding="utf-8")
            stale.append(path)
    return stale
