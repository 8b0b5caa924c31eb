"""Do the pages lead where they should on the site, too? ``mkdocs build --strict`` in ``.ci/run`` looks at all of it."""

import json
import re
from typing import Any

import pytest
import yaml

from tests.gate_schema import PATH
from tests.generate_docs import ROOT, pages
from tests.repository import PROJECT
from tests.site import PLACES, as_on_site, place, read_schemas

REPOSITORY = PROJECT["urls"]["Repository"]
SETTINGS = yaml.load(re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")), yaml.SafeLoader)


def listed(entry: Any) -> list[str]:
    """The pages of an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in listed(part)]


def test_every_page_is_in_the_navigation_once() -> None:
    places = [place(str(path.relative_to(ROOT))) for path in [*pages(), ROOT / "CHANGELOG.md"]]
    assert sorted(listed(SETTINGS["nav"])) == sorted(places)


def test_the_site_is_that_of_the_project() -> None:
    assert SETTINGS["site_url"] == PROJECT["urls"]["Documentation"]
    assert SETTINGS["repo_url"] == REPOSITORY
    assert all((ROOT / path).exists() for path in PLACES)


def test_each_schema_has_a_place_of_its_own() -> None:
    """And the entry that SchemaStore is to get names that of gate files."""
    schemas = read_schemas(SETTINGS["site_url"])
    assert sorted(schemas) == [f"schemas/{of}-1.json" for of in ("baseline", "brief", "check", "gate-file", "report")]
    entry = json.loads((ROOT / ".github" / "schemastore.json").read_text(encoding="utf-8"))
    assert schemas[entry["url"].removeprefix(SETTINGS["site_url"])] == PATH.read_text(encoding="utf-8")
    assert entry["fileMatch"] == ["*.nsys.yaml"]


@pytest.mark.parametrize(
    ("path", "link", "turned"),
    [
        ("README.md", "docs/metrics.md#windows", "metrics.md#windows"),
        ("README.md", "docs/images/red-page.png", "images/red-page.png"),
        ("README.md", "docs/README.md", "overview.md"),
        ("README.md", "CONTRIBUTING.md", "contributing.md"),
        ("README.md", "LICENSE", f"{REPOSITORY}/blob/main/LICENSE"),
        ("docs/README.md", "../CONTRIBUTING.md", "contributing.md"),
        ("docs/README.md", "frameworks.md#maxtext", "frameworks.md#maxtext"),
        ("docs/metrics.md", "README.md#glossary", "overview.md#glossary"),
        ("docs/metrics.md", "#windows", "#windows"),
        ("docs/folder/page.md", "../capture.md", "../capture.md"),
        ("docs/folder/page.md", "other.md#limits", "other.md#limits"),
        ("docs/folder/page.md", "../../examples/ci/github.yml", f"{REPOSITORY}/blob/main/examples/ci/github.yml"),
        ("docs/metrics.md", "https://example.org/README.md", "https://example.org/README.md"),
    ],
)
def test_where_a_link_leads_on_the_site(path: str, link: str, turned: str) -> None:
    assert as_on_site(f"See [this]({link}).", path, REPOSITORY) == f"See [this]({turned})."


def test_code_stays_as_it_is_and_markers_go() -> None:
    code = "```text\n<!-- output: x -->\n[a](README.md)\n```\n"
    page = f"<!-- output: pytest -->\n\n{code}\n<!-- end -->\n`[a](README.md)` <!-- kept -->\n"
    assert as_on_site(page, "docs/metrics.md", REPOSITORY) == f"\n{code}\n`[a](README.md)` <!-- kept -->\n"
