"""Do the suite's own marks hold? ``e2e`` is set where a pytest is started, and what lacks its traces says so aloud."""

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
def test_missing_traces_count(more: list[str], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(("words", "ran"), [(["-mnot slow"], 3), (["-mslow"], 5), (["-mnot slow", "-kcases"], 8)])
def test_of_many_cases_some_run_always_and_the_others_when_asked_for(
    words: list[str], ran: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        "import pytest\n@pytest.mark.sampled(3)\n@pytest.mark.parametrize('n', range(8))\ndef test_cases(n): ..."
    )
    pytester.makeconftest("pytest_plugins = ['tests.support.marks']")
    monkeypatch.setenv("PYTHONPATH", str(Path(marks.__file__).parents[2]))
    pytester.runpytest("-Wignore", *words).assert_outcomes(passed=ran, deselected=8 - ran)
