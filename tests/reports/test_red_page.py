"""Can the picture of the README be taken again?"""

from __future__ import annotations

import unicodedata
from pathlib import Path

from tests.reports.test_page_in_browser import EXPOSED
from tests.support.browser import needs_browser, pixels
from tests.support.red_page import PICTURE, WIDTH, picture, red_page


@needs_browser
def test_the_picture_of_the_page_shows_what_is_exposed(tmp_path: Path) -> None:
    taken = picture(red_page(tmp_path))
    rows = pixels(taken)
    assert {len(row) for row in rows} == {WIDTH}
    assert WIDTH / 2 < len(rows) < 2 * WIDTH
    assert sum(row.count(EXPOSED) for row in rows) > 1_000
    assert len(taken) < 1.5 * PICTURE.stat().st_size


def test_the_page_says_what_the_gate_detects_as_the_summary_does(tmp_path: Path) -> None:
    said = red_page(tmp_path).read_text()
    assert "<dt>detects</dt><dd>≥ 806 us (uncalibrated)</dd>" in unicodedata.normalize("NFKC", said)
