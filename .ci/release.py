"""May this tag be published? Prints its section of the changelog; ends with 1 and a line where something disagrees.

python3 .ci/release.py v0.2.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASE = re.compile(r"v(?P<version>[0-9]+\.[0-9]+\.[0-9]+(rc[0-9]+)?)")


def notes(tag: str, version_file: str, changelog: str) -> str:
    """What the changelog says of the tag. Raises ValueError where tag, version and changelog do not say the same."""
    named = RELEASE.fullmatch(tag)
    if named is None:
        raise ValueError(f"{tag} is no tag of a release: v1.2.3 or v1.2.3rc1")
    version = named["version"]
    (own,) = re.findall(r'^VERSION = "(.*)"$', version_file, re.MULTILINE)
    if own != version:
        raise ValueError(f"pytest_nsys/core/version.py says {own}, the tag {version}")
    found = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(?P<text>.*?)(?=^## |\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    if found is None or not found["text"].strip():
        raise ValueError(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD' with a line in it")
    return found["text"].strip() + "\n"


if __name__ == "__main__":
    try:
        files = (ROOT / "pytest_nsys/core/version.py", ROOT / "CHANGELOG.md")
        sys.stdout.write(notes(sys.argv[1], *(path.read_text(encoding="utf-8") for path in files)))
    except ValueError as error:
        sys.exit(f"not published: {error}")
