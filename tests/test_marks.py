"""Do the suite's own marks hold? ``e2e`` is set where a pytest is started, and what lacks its traces says so aloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import marks

TESTS = """
    import pytest

    @pytest.mark.reference
    def test_traces(): raise AssertionError

    @pytest.mark.parametrize("trace", [])
    @pytest.mark.reference
    def test_each_trace(trace): ...

    def test_whole(pytester): ...
    def test_part(): ...
"""


@pytest.mark.parametrize("more", [[], ["-n1"]], ids=["alone", "xdist"])
def test_missing_traces_are_counted_aloud(
    more: list[str], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeconftest(
        "from pathlib import Path\nfrom tests.support import marks\nmarks.DATA = Path('/nowhere')\n"
        "pytest_plugins = ['pytester', 'tests.support.marks']\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(marks.__file__).parents[2]))
    monkeypatch.setattr("tests.support.marks.DATA", Path("/nowhere"))
    done = pytester.runpytest(*more)
    done.assert_outcomes(passed=2, skipped=2)
    done.stdout.fnmatch_lines(["skipped for want of the reference traces: 2 *"])
    pytester.runpytest("-m", "e2e").assert_outcomes(passed=1, deselected=3)
