"""Is the repository named alike everywhere, and each action by one commit?"""

import re

from tests.repository import GATE_ACTION, NAME, OWNER, PROJECT, REPOSITORY, ROOT, USED, commits, files, renamed

FILES = files()
EXAMPLES = sorted((ROOT / "examples/ci").glob("*.yml"))


def name_of(path: object) -> str:
    return str(path).removeprefix(f"{ROOT}/")


def test_the_repository_and_its_actions_are_named_as_in_one_place() -> None:
    for name in map(name_of, FILES):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert renamed(text) == text, f"{name}: run python -m tests.generate_docs"
        assert not re.search(r"\bOWNER\b", text), name
        for used in re.findall(r"^[ -]*uses: (\S.*)", text, re.MULTILINE):
            pinned = USED.fullmatch(f"uses: {used}", len("uses: "))
            assert pinned or used == GATE_ACTION or used.startswith("./.github/"), f"{name}: {used}"


def test_what_would_be_renamed() -> None:
    """The test above can fail: names and commits of another day are found."""
    ours = (
        f"https://github.com/{REPOSITORY}.git https://{OWNER}.github.io/{NAME}/ --repo {REPOSITORY} uses: {GATE_ACTION}"
    )
    of_another_day = (
        "https://github.com/a/pytest-nsys.git https://a.github.io/pytest-nsys/ --repo a/pytest-nsys uses: a/b/.github/"
    )
    assert renamed("* @a/maintainers @org/performance") == f"* @{OWNER}/maintainers @org/performance"
    assert renamed(of_another_day + GATE_ACTION.partition("/.github/")[2]) == renamed(ours) == ours
    assert (
        renamed("github.com/NVIDIA/nccl uses: ./.github/actions/x")
        == "github.com/NVIDIA/nccl uses: ./.github/actions/x"
    )
    commit = min(commits()["actions/checkout"])
    assert renamed(f"- uses: actions/checkout@{'0' * 40} # v1\n") == f"- uses: actions/checkout@{commit}\n"


def test_each_action_has_one_commit() -> None:
    assert {action: found for action, found in commits().items() if len(found) > 1} == {}
    assert {"actions/checkout", "actions/setup-python", "actions/upload-artifact"} <= set(commits())


def test_every_example_uses_the_action_of_this_repository() -> None:
    using = [path.name for path in EXAMPLES if f"uses: {GATE_ACTION}" in path.read_text(encoding="utf-8")]
    assert using == ["github-before-after.yml", "github-cluster.yml", "github-nightly.yml", "github.yml"]


def test_what_is_copied_is_installed_from_git_until_there_is_a_release() -> None:
    """PyPI has no package of the name: another could take it."""
    if re.search(r"^## \[[0-9]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE):
        return
    paths = [path for path in FILES if path.is_relative_to(ROOT / "docs")]
    paths += [ROOT / "README.md", *sorted((ROOT / "examples/ci").iterdir())]
    installed = {
        (name_of(path), line.strip())
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip\b.*\b(install|wheel)\b.*\bpytest-nsys\b", line) and "--no-index" not in line
    }
    assert len(installed) >= 6
    assert [(path, line) for path, line in installed if f"git+https://github.com/{REPOSITORY}" not in line] == []


def test_every_link_of_the_project_leads_to_its_repository() -> None:
    assert all(
        f"github.com/{REPOSITORY}" in url or f"{OWNER}.github.io/{NAME}" in url for url in PROJECT["urls"].values()
    )
