"""What every test file may use: a real pytest in a project of its own."""

import functools
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pytest_nsys.tools.files import lock_descriptor
from pytest_nsys.tools.git import BRANCH_VARIABLES, TARGET_VARIABLES
from pytest_nsys.traces import trace_files
from pytest_nsys.traces.recorded_trace import RecordedTrace
from pytest_nsys.traces.trace_files import READERS
from tests.support.gates import Project
from tests.support.git_project import isolate
from tests.support.quick_python import (
    import_everything,
    name_hooks_alone,
    quick_python,
    remember_plugins,
    tell_interruptions_shortly,
)

pytest_plugins = ["pytester", "tests.support.marks", "tests.support.one_process"]

# A machine that is busy with something else fails no test, and whether a change lands hangs on the change alone, not on
# a seed: "explore" is what looks for new examples.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("steady", steady, max_examples=10)
settings.register_profile("long", steady, max_examples=300)  # as .ci/run asks for
settings.register_profile("explore", steady, max_examples=300, derandomize=False)
settings.load_profile("steady")

gc.set_threshold(20_000, 20, 100)
"""A run of pytest in this process makes many objects, and the suite has thousands: looked through less often."""

remember_plugins()

OF_CI = (
    *("CI", "BUILD_NUMBER", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "COLUMNS", "PYTEST_ADDOPTS"),
    *("CI_MERGE_REQUEST_IID", "CHANGE_ID"),
)
"""Variables by which a run says or judges otherwise: a test says itself where it wants one."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """What a test of ``pytester`` imports is forgotten after it, and in the next imported again, as another module."""
    if not session.config.getoption("numprocesses", 0):  # this one runs tests, and hands none to workers
        import_everything()
        name_hooks_alone()
        tell_interruptions_shortly()


def pytest_collection_finish() -> None:
    """What is there by now stays: runs of pytest in this process look through all objects for those that are lost."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Neighbours in one worker: what a module's tests share is built once."""
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def no_ci() -> Iterator[None]:
    """The tests pass on a machine of CI as on anybody's: what it sets, they do not see."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (*OF_CI, *BRANCH_VARIABLES, *TARGET_VARIABLES, *(n for n in os.environ if n.startswith("GITHUB_"))):
            patch.delenv(name, raising=False)
        # a run inside of this one looks through all objects of this process for what it lost; this one does at its end
        patch.setattr("_pytest.unraisableexception.gc_collect_harder", lambda _: None, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_baselines_of_others(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nobody's baselines above the tests' folders are found: the search ends at a repository. For git this is none."""
    (tmp_path_factory.getbasetemp() / ".git").mkdir()


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Project]:
    """An empty project, in which pytest is started. Where the test passes its folder goes at once: pytest would delete
    those of a whole run together, when the third run after it ends, and on a busy machine that takes a minute.
    """
    failed_before = request.session.testsfailed
    monkeypatch.setattr(sys, "executable", quick_python())
    isolate(monkeypatch)
    yield Project(pytester)
    if request.session.testsfailed == failed_before:
        shutil.rmtree(pytester.path, ignore_errors=True)


@pytest.fixture(scope="module")
def read_once() -> Iterator[None]:
    """Many commands ask of a few traces, which stay as they are: what one has read the next ones know."""
    known = {suffix: functools.cache(partial(RecordedTrace, open_trace=reader)) for suffix, reader in READERS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_files, "READERS", known)
        yield


@pytest.fixture
def nsys_alone() -> Iterator[None]:
    """No other test of this machine starts a real nsys meanwhile."""
    with (Path(tempfile.gettempdir()) / "pytest-nsys-tests.lock").open("w") as file:
        lock_descriptor(file.fileno())
        yield
