"""Which executor a word means, and that a cluster gives what one process gives, or one line that says why not."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.captures.parallel import TraceJob, _run_jobs, read_trace_job
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.trace import Trace
from pytest_nsys.tools import workers as dask_cluster
from pytest_nsys.tools.executors import ProgressBar, open_executor, parse_executor
from tests.support.gates import Project
from tests.support.many_traces import KILLER, kill_whoever_reads_it, write_nodes

distributed = pytest.importorskip("distributed", reason="needs the extra dask")


@pytest.mark.parametrize("asked", ["serial", "processes", "processes:1", "processes:64", "dask:tcp://host:8786"])
def test_words_for_executors(asked: str) -> None:
    parse_executor(asked)


@pytest.mark.parametrize(
    "asked", ["", "threads:2", "processes:0", "processes:-1", "processes:9999", "processes:2.5", "serial:2", "dask:"]
)
def test_a_word_for_none_names_those_that_there_are(asked: str) -> None:
    with pytest.raises(UsageMistake, match="is not an executor: write serial, processes:N"):
        parse_executor(asked)


def test_a_word_for_none_is_refused_before_anything_is_read(project: Project) -> None:
    write_nodes(project.root / "run", 1, ranks=1)
    project.gate("- stage2 overlap >= 50%")
    line = "'threads:2' is not an executor: write serial, processes:N"
    assert f"ERROR: {line}" in project.pytest("--nsys-executor=threads:2", "--nsys-trace=run", code=4)
    assert f"error: {line}" in project.command("--view=overlap", "run", "--executor=threads:2", code=2)


def test_the_ini_file_may_say_it_and_the_option_wins(project: Project) -> None:
    write_nodes(project.root / "run", 2, ranks=1)
    project.gate("trace: run\nassertions:\n  - stage2 overlap >= 50%")
    project.file("pytest.ini", "[pytest]\nnsys_executor = threads\n")
    assert "'threads' is not an executor" in project.pytest(code=4)
    project.pytest("--nsys-executor=processes:2", code=0)


@pytest.mark.parametrize("asked", ["serial", "processes:2"])
def test_an_executor_gives_results_in_their_order(asked: str) -> None:
    with open_executor(asked) as executor:
        assert list(executor.map(math.factorial, range(8))) == [1, 1, 2, 6, 24, 120, 720, 5040]


def test_an_interruption_leaves_no_process() -> None:
    def interrupted() -> None:
        with open_executor("processes:2") as executor:
            sleeping = [executor.submit(time.sleep, 60) for _ in range(4)]
            while not any(future.running() for future in sleeping):
                time.sleep(0.01)
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began < 30
    assert not [child for child in multiprocessing.active_children() if child.is_alive()]


SLEEPERS = """
import signal, sys, time
from pytest_nsys.tools.executors import open_executor
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started without
with open_executor("processes:1") as executor:
    future = executor.submit(time.sleep, 60)
    print(executor._context.started[0].pid, flush=True)
    future.result()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_ends_with_the_one_that_started_it(number: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", SLEEPERS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.send_signal(number)
    parent.wait(timeout=30)
    parent.stdout.close()
    until = time.monotonic() + 30
    while _lives(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


# A cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a scheduler with two workers on this machine."""
    with dask_cluster._silence_dask(), _local_cluster(2) as local:
        yield local.scheduler_address


def _local_cluster(workers: int = 1, **more: Any) -> Any:
    make: Any = distributed.LocalCluster
    return make(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=60, **more)


def test_hundreds_of_ranks_of_32_nodes(project: Project, cluster: str) -> None:
    write_nodes(project.root / "run", 32)
    project.gate("trace: run\nassertions:\n  - stage2 overlap >= 50%\n  - exposed_ns < 100us")
    said = project.pytest_in_a_process(f"--nsys-executor=dask:{cluster}", "-v", code=1)
    assert "256 ranks, pp=8 dp=32" in said
    assert "512 of 512 rows not below their limit" in said
    assert "worst of 256" in said


def test_a_cluster_prints_what_one_process_prints(project: Project, cluster: str) -> None:
    write_nodes(project.root / "run", 3, ranks=2)
    project.gate("trace: run\nassertions:\n  - stage2 overlap >= 50%\n  - exposed_ns < 100us")
    said = [
        project.pytest_in_a_process(*options, "-v", f"--nsys-json={name}", code=1)
        for name, options in (("one.json", []), ("many.json", [f"--nsys-executor=dask:{cluster}"]))
    ]
    verdicts = [text.partition("= FAILURES =")[2].partition("nsys: wrote")[0] for text in said]
    assert verdicts[1] == verdicts[0] != ""
    one, many = ((project.root / name).read_text(encoding="utf-8") for name in ("one.json", "many.json"))
    assert many == one


def test_a_trace_that_fails_on_the_cluster_says_the_same(project: Project, cluster: str) -> None:
    paths = write_nodes(project.root / "run", 3, ranks=1)
    paths[1].write_bytes(b"")
    serial = project.command("--view=overlap", "run", code=2)
    assert project.command("--view=overlap", "run", f"--executor=dask:{cluster}", code=2) == serial


def test_nobody_at_the_address_is_one_line_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_TIMEOUT_S", 1)
    began = time.monotonic()
    with pytest.raises(UsageMistake) as caught:
        open_executor("dask:tcp://127.0.0.1:1").__enter__()
    assert time.monotonic() - began < 10
    why = "no scheduler answered within 1 s: give the address that `dask scheduler` prints"
    assert str(caught.value) == f"dask:tcp://127.0.0.1:1: {why}"


@pytest.mark.parametrize("address", ["host", "tcp://host", "bogus://host:1", "inproc://host/1/1", "tcp://host:99999"])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    began = time.monotonic()
    with pytest.raises(UsageMistake, match=f"^dask:{address}: is not an address: give the address"):
        open_executor(f"dask:{address}").__enter__()
    assert time.monotonic() - began < 5


def test_without_dask_the_extra_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write_nodes(project.root / "run", 2, ranks=1)
    project.file("hooks/sitecustomize.py", "import sys\nsys.modules['distributed'] = None\n")
    monkeypatch.setenv("PYTHONPATH", ":".join([str(project.root / "hooks"), *filter(None, sys.path)]))
    said = project.command("--view=overlap", "run", "--executor=dask:tcp://127.0.0.1:1", code=2)
    assert said.strip().endswith("Dask is not installed: pip install 'pytest-nsys[dask]'")


def test_a_worker_without_the_package_is_named(project: Project) -> None:
    write_nodes(project.root / "run", 2, ranks=1)
    preload = project.file("preload.py", "import sys\nsys.modules['pytest_nsys'] = None\n")
    with dask_cluster._silence_dask(), _local_cluster(preload=[str(preload)]) as local:
        said = project.command("--view=overlap", "run", f"--executor=dask:{local.scheduler_address}", code=2)
    assert "has no pytest-nsys: install" in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_worker_that_dies_is_named_with_its_trace(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask

    paths = write_nodes(project.root / "run", 4, ranks=1)
    paths[2].rename(paths[2].with_name(KILLER))
    kill_whoever_reads_it(project.root, monkeypatch)
    at_once = dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with at_once, dask_cluster._silence_dask(), _local_cluster() as local:
        said = project.command("--view=overlap", "run", f"--executor=dask:{local.scheduler_address}", code=2)
    assert f"{KILLER}: cannot be read: every Dask worker that read it died, the last was tcp://" in said
    assert len(said.strip().splitlines()) == 1


def test_workers_that_stay_away_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "WORKERS_TIMEOUT_S", 0.5)
    monkeypatch.setattr(dask_cluster, "WATCH_INTERVAL_S", 0.05)
    with (
        dask_cluster._silence_dask(),
        _local_cluster() as local,
        open_executor(f"dask:{local.scheduler_address}") as executor,
    ):
        futures = [executor.submit(time.sleep, 60) for _ in range(3)]
        local.scale(0)
        for future in futures:
            with pytest.raises(CancelledError):
                future.result(timeout=20)


SCHEDULER = """
import time
import distributed
local = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, preload=["slow.py"])
print(local.scheduler_address, flush=True)
time.sleep(60)
"""


def _kill_once_there(sign: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):  # a busy machine takes its time to connect
        if sign.exists():
            break
        time.sleep(0.1)
    process.kill()


@pytest.mark.slow
def test_a_scheduler_that_dies_ends_the_run_in_one_line(project: Project) -> None:
    write_nodes(project.root / "run", 2, ranks=1)
    project.file(
        "slow.py",
        """
        import pathlib, time
        import pytest_nsys.analysis.captures.parallel as reading
        def open_trace(_):
            pathlib.Path("is-read").touch()
            time.sleep(30)
        reading.open_trace = open_trace
        """,
    )
    words = [sys.executable, "-c", SCHEDULER]
    scheduler = subprocess.Popen(words, cwd=project.root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert scheduler.stdout is not None
    address = scheduler.stdout.readline().decode().strip()
    killer = threading.Thread(target=_kill_once_there, args=(project.root / "is-read", scheduler), daemon=True)
    killer.start()
    said = project.command("--view=overlap", "run", f"--executor=dask:{address}", code=2)
    killer.join()
    scheduler.wait(timeout=30)
    scheduler.stdout.close()
    assert "cannot be read: the executor dropped it: its scheduler or all of its workers are gone" in said
    assert len(said.strip().splitlines()) == 1


def nothing(_: Trace) -> None:
    """Asks nothing."""


def test_a_reader_without_the_file_is_named(tmp_path: Path) -> None:
    outcome = read_trace_job(TraceJob(tmp_path / "gone.sqlite", nothing))
    assert str(outcome.error).startswith(f"{tmp_path}/gone.sqlite: process {os.getpid()}")


class Forgetful(Executor):
    """Fails the first job, and never takes notice that the others are cancelled."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:  # noqa: ARG002
        self.futures.append(Future())
        if len(self.futures) == 3:
            threading.Timer(0.1, lambda: self.futures[0].set_exception(OSError("gone"))).start()
        return self.futures[-1]


def test_what_is_cancelled_is_not_waited_for(tmp_path: Path) -> None:
    jobs = [TraceJob(tmp_path / f"{n}.sqlite", nothing) for n in range(3)]
    done: list[list[Future[Any]]] = []
    silent = ProgressBar("", 3, is_shown=False)
    reading = threading.Thread(target=lambda: done.append(_run_jobs(Forgetful(), jobs, silent)), daemon=True)
    reading.start()
    reading.join(timeout=20)
    assert done
    assert [future.cancelled() for future in done[0]] == [False, True, True]
