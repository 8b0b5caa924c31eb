"""Are the pictures of the documentation those of today? By their text: the record says of which each was taken."""

import json
import re
from pathlib import Path

import pytest

from tests.support.pictures import IMAGES, PICTURES, RECORD, digest, text_of

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_no_picture_is_stale(name: str, tmp_path: Path) -> None:
    taken_of = json.loads(RECORD.read_text(encoding="utf-8"))[name]
    assert digest(PICTURES[name].write(tmp_path)) == taken_of, f"{name}: run python -m tests.support.pictures"


def test_every_picture_is_on_a_page_and_taken_by_the_script() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"images/([\w-]+\.png)", page.read_text(encoding="utf-8"))}
    assert shown == {*PICTURES} == {path.name for path in IMAGES.glob("*.png")} == {*json.loads(RECORD.read_text())}


def test_a_changed_word_makes_a_picture_stale_and_a_date_does_not(tmp_path: Path) -> None:
    page, other, later = (tmp_path / f"{name}.html" for name in ("page", "other", "later"))
    page.write_text("<style>b{}</style><p>Step 10% slower</p> at 2026-01-31")
    other.write_text("<style>b{}</style><p>Step 11% slower</p> at 2026-01-31")
    later.write_text("<style>i{}</style><p>Step  10%\nslower</p> at 2026-02-01")
    assert text_of(page) == "Step 10% slower at …"
    assert digest(page) == digest(later) != digest(other)
