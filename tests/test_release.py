"""Does only what was tested and agrees with its tag get published, and by a job that runs nothing else?"""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from pytest_nsys.core.version import VERSION
from tests.repository import PROJECT, REPOSITORY, ROOT, workflows
from tests.support.commands import run

WORKFLOWS = ROOT / ".github" / "workflows"
CHANGELOG = """# Changelog

## [Unreleased]

- new

## [0.2.0] - 2026-12-24

### Added

- all of it

## [0.1.0] - 2026-11-30
"""


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def release() -> ModuleType:
    """The script that the workflow runs."""
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- version, tag, changelog


def test_the_notes_of_a_release_are_its_section(release: ModuleType) -> None:
    assert release.notes("v0.2.0", 'VERSION = "0.2.0"\n', CHANGELOG) == "### Added\n\n- all of it\n"


@pytest.mark.parametrize(
    ("tag", "version", "why"),
    [
        ("v0.2.0", "0.2.0.dev0", "version.py says 0.2.0.dev0, the tag 0.2.0"),
        ("v0.2.1", "0.2.0", "version.py says 0.2.0, the tag 0.2.1"),
        ("0.2.0", "0.2.0", "0.2.0 is no tag of a release"),
        ("v0.2.0.dev0", "0.2.0.dev0", "v0.2.0.dev0 is no tag of a release"),
        ("v0.3.0", "0.3.0", r"no section '## \[0.3.0\] - YYYY-MM-DD'"),
        ("v0.1.0", "0.1.0", r"no section '## \[0.1.0\] - YYYY-MM-DD' with a line in it"),
    ],
)
def test_what_disagrees_is_not_published(release: ModuleType, tag: str, version: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        release.notes(tag, f'VERSION = "{version}"\n', CHANGELOG)


def test_the_version_is_said_in_one_place(release: ModuleType) -> None:
    """In a form that hatchling and the release read."""
    text = (ROOT / "pytest_nsys/core/version.py").read_text(encoding="utf-8")
    assert "version" not in PROJECT
    assert "version" in PROJECT["dynamic"]
    with pytest.raises(ValueError, match=f"says {re.escape(VERSION)}, the tag 99"):
        release.notes("v99.0.0", text, CHANGELOG)


def test_every_link_of_the_readme_leads_somewhere_on_pypi() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert relative
    for each in pyproject["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert re.findall(r"\]\((?!https?:|#)([^)]+)", text) == []
    for path in relative:
        kind = "raw.githubusercontent.com/{}/main/" if path.startswith("docs/images/") else "github.com/{}/blob/main/"
        assert f"](https://{kind.format(REPOSITORY)}{path}" in text


# -- the workflows


def test_a_job_that_may_sign_or_write_runs_no_code_of_the_repository() -> None:
    jobs = workflow("release.yml")["jobs"]
    writing = {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert writing == {"attest", "publish", "release"}
    for name in writing:
        used = {step["uses"].partition("@")[0] for step in jobs[name]["steps"] if "uses" in step}
        assert used <= {"actions/download-artifact", "actions/attest-build-provenance", "pypa/gh-action-pypi-publish"}
        assert all(step["run"].startswith("gh release create ") for step in jobs[name]["steps"] if "run" in step)
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}


def test_nothing_is_published_before_it_was_tested_and_built() -> None:
    jobs = workflow("release.yml")["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    assert set(jobs["attest"]["needs"]) == {"test", "build"}
    assert (jobs["publish"]["needs"], jobs["release"]["needs"]) == ("attest", "publish")


@pytest.mark.parametrize("path", [path for path in workflows() if path.parent == WORKFLOWS], ids=lambda path: path.name)
def test_a_workflow_has_no_rights_of_its_own_and_leaves_no_token(path: Path) -> None:
    found = workflow(path.name)
    assert found["permissions"] in ({}, {"contents": "read"})
    for name, job in found["jobs"].items():
        assert "uses" in job or "timeout-minutes" in job, name
        for step in job.get("steps", ()):
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, name


def test_the_last_job_of_ci_waits_for_every_other() -> None:
    *others, last = workflow("ci.yml")["jobs"]
    needed = workflow("ci.yml")["jobs"][last]
    assert needed["needs"] == others
    assert needed["if"] == "always()"
    assert needed["steps"][0]["run"].count("success") == len(others)


# -- the hook of pre-commit


def test_the_hook_lints_gate_files(tmp_path: Path) -> None:
    """``pre-commit try-repo`` does the same with an environment of its own, which takes a minute."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *words = hook["entry"].split()
    assert (hook["language"], program) == ("python", "pytest-nsys")
    assert program in PROJECT["scripts"]
    texts = {
        "good.nsys.yaml": "version: 1\nassertions: [no syncs]\n",
        "bad.nsys.yaml": "version: 1\nassertions: [no sink]\n",
        "other.yaml": "a: 1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    chosen = [str(tmp_path / name) for name in texts if re.search(hook["files"], name)]
    assert [Path(path).name for path in chosen] == ["good.nsys.yaml", "bad.nsys.yaml"]
    run(*words, chosen[0], code=0)
    run(*words, *chosen, code=2)
