"""Where does CI keep the page that a session writes? Its summary links there, as no CI shows a page in a summary.

Each system names the address of the run in its environment. The page is there if the job uploads it, as the examples
do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from pytest_nsys.reports.session.session import PageLink

_URL = re.compile(r"https?://[\w.~:/?#&=%+-]+")
"""An address that ends nowhere in Markdown, and is that of a web page."""


def find_page_link(page: Path, environment: Mapping[str, str]) -> PageLink | None:
    """Return where GitHub, GitLab, Jenkins or Azure keeps a page; None outside of them, and for an odd address."""
    links = (
        _link_on_github(environment),
        _link_below(page, environment, "CI_PROJECT_DIR", "CI_JOB_URL", "/artifacts/file/"),
        _link_below(page, environment, "WORKSPACE", "BUILD_URL", "artifact/"),
        _link_on_azure(environment),
    )
    return next((link for link in links if link is not None and _URL.fullmatch(link.url)), None)


def _link_on_github(environment: Mapping[str, str]) -> PageLink | None:
    """Return the list of a run's artifacts: the address of one artifact is not known before it is uploaded."""
    server, repository, run = (environment.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if not (server and repository and run):
        return None
    return PageLink(f"{server}/{quote(repository)}/actions/runs/{quote(run)}#artifacts", "in the artifacts of this run")


def _link_on_azure(environment: Mapping[str, str]) -> PageLink | None:
    names = ("SYSTEM_COLLECTIONURI", "SYSTEM_TEAMPROJECT", "BUILD_BUILDID")
    server, project, build = (environment.get(name, "") for name in names)
    if not (server and project and build):
        return None
    query = f"buildId={quote(build)}&view=artifacts&type=publishedArtifacts"
    return PageLink(f"{server.rstrip('/')}/{quote(project)}/_build/results?{query}", "in the artifacts of this run")


def _link_below(page: Path, environment: Mapping[str, str], folder: str, url: str, between: str) -> PageLink | None:
    """Return the page's own address below that of the job, where both name it by its path in the job's folder."""
    root, job_url = environment.get(folder, ""), environment.get(url, "")
    if not root or not job_url or not page.resolve().is_relative_to(Path(root).resolve()):
        return None
    path = page.resolve().relative_to(Path(root).resolve()).as_posix()
    return PageLink(f"{job_url}{between}{quote(path)}", "in the artifacts of this job")
