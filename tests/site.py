"""How do the pages of the repository become the site? Hooks of MkDocs, named in ``mkdocs.yml``.

README.md is the home of the site, CONTRIBUTING.md and CHANGELOG.md are pages of it. Links are written as GitHub reads
them; here they are turned to where the page stands on the site, or to the file in the repository. Each schema of the
package is on the site where its ``$id`` says.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/README.md": "overview.md",
}
"""By path in the repository, those pages that stand elsewhere than below ``docs/`` on the site."""

_LINK = re.compile(
    r"(?P<code>^```.*?^```$|`[^`\n]*`)|(?<=\]\()(?!https?:|mailto:|#)(?P<path>[^)#\s]+)", re.DOTALL | re.M
)
_MARKER = re.compile(r"(?P<code>^```.*?^```$)|^<!-- (?:output|generated|file|run|end)\b.*?-->\n", re.DOTALL | re.M)


def place(path: str) -> str:
    """Where a file of the repository stands on the site; "" where it does not."""
    return PLACES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else "")


def as_on_site(text: str, path: str, repository: str) -> str:
    """The text of the page at a path of the repository: its links as the site has them, without the markers."""
    here = posixpath.dirname(place(path))

    def turned(link: re.Match[str]) -> str:
        if link["code"]:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link["path"]))
        if there := place(target):
            return posixpath.relpath(there, here or ".")
        return f"{repository}/blob/main/{target}"

    return _LINK.sub(turned, _MARKER.sub(lambda marker: marker["code"] or "", text))


def read_schemas(site: str) -> dict[str, str]:
    """Return the text of each schema of the package, by its place below the address of the site."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "pytest_nsys").rglob("*.schema.json"))]
    return {json.loads(text)["$id"].removeprefix(site): text for text in texts}


def on_files(files: Any, config: Any) -> Any:
    """The pages that stand outside of ``docs/``, or elsewhere on the site, and the schemas."""
    from mkdocs.structure.files import File

    files.remove(files.get_file_from_path("README.md"))
    for path, there in PLACES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, there, content=text))
    for there, text in read_schemas(config["site_url"]).items():
        files.append(File.generated(config, there, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001
    """Each page with its links as on the site."""
    own = {there: path for path, there in PLACES.items()}
    there = page.file.src_uri
    return as_on_site(markdown, own.get(there, f"docs/{there}"), config["repo_url"])
