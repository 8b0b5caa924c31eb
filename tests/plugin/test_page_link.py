"""Does the summary of each CI system lead to the page that the job keeps?"""

from pathlib import Path

import pytest

from pytest_nsys.plugin.page_link import find_page_link

GITHUB = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "42"}
AZURE = {"SYSTEM_COLLECTIONURI": "https://dev.azure.com/o/", "SYSTEM_TEAMPROJECT": "a b", "BUILD_BUILDID": "7"}


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        (GITHUB, "https://github.com/o/r/actions/runs/42#artifacts"),
        (AZURE, "https://dev.azure.com/o/a%20b/_build/results?buildId=7&view=artifacts&type=publishedArtifacts"),
        (
            {"CI_PROJECT_DIR": "{root}", "CI_JOB_URL": "https://gitlab.com/o/r/-/jobs/9"},
            "https://gitlab.com/o/r/-/jobs/9/artifacts/file/report/a%20b.html",
        ),
        ({"WORKSPACE": "{root}", "BUILD_URL": "https://ci/job/r/3/"}, "https://ci/job/r/3/artifact/report/a%20b.html"),
    ],
)
def test_each_system_names_its_run(tmp_path: Path, environment: dict[str, str], url: str) -> None:
    given = {name: value.format(root=tmp_path) for name, value in environment.items()}
    link = find_page_link(tmp_path / "report" / "a b.html", given)
    assert link is not None
    assert link.url == url


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {**GITHUB, "GITHUB_RUN_ID": ""},
        {**GITHUB, "GITHUB_SERVER_URL": "javascript:alert(1)//"},
        {**GITHUB, "GITHUB_SERVER_URL": "https://a) [b](c"},
        {"CI_PROJECT_DIR": "/another/folder", "CI_JOB_URL": "https://gitlab.com/o/r/-/jobs/9"},
    ],
)
def test_elsewhere_there_is_no_link(tmp_path: Path, environment: dict[str, str]) -> None:
    assert find_page_link(tmp_path / "page.html", environment) is None
