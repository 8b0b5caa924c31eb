"""Does an expression that a stranger wrote end in time, and match as ``re`` does where it is sound?"""

import re
import signal
import threading
import time
from itertools import repeat

import pytest

from pytest_nsys.core import expressions
from pytest_nsys.core.conventions import Convention, make_pattern_matcher
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.expressions import Expression
from tests.support.gates import MS, Project

NAME = "a" * 40 + "!"
ENDLESS = (
    r"(?P<stage>(a+)+)$",
    r"(?P<stage>(?:a|a)*)$",
    r"(?P<stage>a*a*a*a*a*a*a*a*a*)$",
    r"(?x)(?P<stage>(?:a|a) # any" + "\n*)$",
)


LIMIT_S = 0.1


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "TIME_LIMIT_S", LIMIT_S)


@pytest.mark.parametrize("text", ENDLESS)
def test_an_endless_expression_is_stopped_once(text: str) -> None:
    expression = Expression("stage", text)
    began = time.process_time()
    for _ in range(100):
        with pytest.raises(TraceError, match=r"the stage expression '.*' is too slow on range names like 'aaaa"):
            expression.find_last_group(NAME, "stage")
    assert time.process_time() - began < LIMIT_S + 0.5


def test_many_slow_names_are_one_slow_expression() -> None:
    expression = Expression("stage", ENDLESS[0])
    began = time.process_time()
    names = [f"{'a' * 16}{number}!" for number in range(1000)]
    with pytest.raises(TraceError):
        list(map(expression.find_last_group, names, repeat("stage")))
    assert time.process_time() - began < LIMIT_S + 0.5


@pytest.mark.parametrize("text", [r"(?P<stage>s(?:\d+_)*[fb])", r"(?P<stage>\w+)=(?P<rank>\d+)?", "(?P<stage>x)"])
def test_a_sound_one_matches_as_it_does_without_a_timer(text: str) -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    expression = Expression("stage", text)
    for name in ("s1_2_f s3_b", "a=1", "a= b=2", "", "x", "\u00e9=9"):
        found = [match["stage"] for match in re.finditer(text, name) if match["stage"]]
        assert expression.find_last_group(name, "stage") == (found[-1] if found else None)
        assert (expression.fullmatch(name) is None) == (re.fullmatch(text, name) is None)
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_thread_refuses_what_it_could_not_stop() -> None:
    said: list[str] = []

    def ask() -> None:
        try:
            Expression("stage", ENDLESS[0]).find_last_group(NAME, "stage")
        except TraceError as error:
            said.append(str(error))
        said.append(str(Expression("stage", r"(?P<stage>a\d+b\d+)").find_last_group("a1b2", "stage")))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(20)
    assert "repeats a group, which cannot be stopped where a cluster reads" in said[0]
    assert said[1] == "a1b2"


@pytest.mark.parametrize(("pattern", "name"), [("%a" * 12 + "b", "a" * 3000), ("%ab%ab%a%" * 5 + "c", "ab" * 2000)])
def test_a_pattern_of_many_wildcards_is_quick(pattern: str, name: str) -> None:
    began = time.process_time()
    assert not make_pattern_matcher(pattern)(name)
    assert make_pattern_matcher(pattern)(name + pattern[-1])
    assert time.process_time() - began < 1


@pytest.mark.parametrize("pattern", ["", "%", "a", "a%", "%a", "%a%", "a%a", "a%b%a", "%a%b", "%ab%ba%", "a%%b"])
def test_a_wildcard_is_anything(pattern: str) -> None:
    slow = re.compile(".*".join(map(re.escape, pattern.split("%"))), re.DOTALL)
    for name in ("", "a", "b", "ab", "ba", "aa", "aba", "abba", "ab\nba", "abab", "aab", "abb"):
        assert make_pattern_matcher(pattern)(name) == (slow.fullmatch(name) is not None), (pattern, name)


@pytest.mark.parametrize("key", ["stage", "setup"])
def test_a_gate_of_a_fork_does_not_hang(project: Project, key: str) -> None:
    group = {"stage": "stage", "setup": "rank"}[key]
    project.gate(
        f"""
        convention:
          anchor: forward chunk%
          {key}: '(?P<{group}>(a+)+)$'
        assertions:
          - exposed_ns <= 1s
          - overlap >= 1%
        """
    )
    project.trace(edit=lambda _, processes: processes[0].range(NAME, 41 * MS, 55 * MS), label=None)
    began = time.process_time()
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert time.process_time() - began < 3
    assert f"the {key} expression '(?P<{group}>(a+)+)$' is too slow on range names like 'aaaa" in " ".join(said.split())
    assert "2 errors" in said


def test_conventions_still_say_what_is_no_expression() -> None:
    for text in ("(?P<stage>", "(?P<other>a)"):
        with pytest.raises(ValueError, match=r"stage|expression"):
            Convention("x", stage=text)
