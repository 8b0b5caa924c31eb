"""What the tests of the page share."""

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser, chromium, program


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    if program() is None:
        pytest.skip("there is no Chromium on PATH")
    with chromium() as found:
        yield found
