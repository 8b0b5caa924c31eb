"""How does a test start Python quickly? In a fork of a process that has imported all that pytest and the package need.

:func:`quick_python` is a program to use in the place of ``sys.executable``: what it is asked to run as ``-m pytest`` or
``-m pytest_nsys``, also after ``-P``, and a worker of xdist, is a process of its own, with its own folder, variables,
standard streams and exit status. Only what Python does before the first line is not done again. What else it is asked
to run, Python runs: use ``-c`` to test what is imported when. A signal ends the program, not what it started.

It pays: a command takes 50 ms of the processor in the place of 260, a run of pytest 110 for 720, one with two workers
of xdist 370 for 2 400, and the suite starts several hundred processes.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import importlib.metadata
import io
import marshal
import os
import pkgutil
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pluggy
import pytest
from _pytest.terminal import TerminalReporter

PACKAGE = "pytest_nsys"
LATE = ("jinja2", "jsonschema", "multiprocessing.spawn", "pdb", "sqlite_utils")
"""Libraries that a part of the package imports only once it needs them."""

SCRIPTS = ("pytest", "pytest-nsys")
"""Stand beside the program, to be typed."""

WORKER = ["-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]
"""How execnet starts a worker of xdist."""

LAUNCHER = """\
#!{python} -IS
import os, sys
paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
hooked = any(os.path.exists(os.path.join(path, "sitecustomize.py")) for path in paths)
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
safe = words[:1] == ["-P"]
words = words[safe:]
if words[:1] == ["-mpytest"]:
    words[:1] = ["-m", "pytest"]
known = words[:2] in (["-m", "pytest"], ["-m", "pytest_nsys"]) or words == {worker!r}
if name == "python" and (hooked or not known):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
import _socket, marshal
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
asked = marshal.dumps([name, words, safe, os.getcwd(), dict(os.environ)])
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg([len(asked).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(asked)
status = server.recv(1)
sys.exit(status[0] if status else 1)
"""


class Asked(NamedTuple):
    """What a launcher is to be; ``safe``: its folder holds no modules for it."""

    name: str
    words: list[str]
    safe: bool
    folder: str
    environment: dict[str, str]


@functools.cache
def quick_python() -> str:
    """The program; its server is started with the first call, and ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="quick-python"))
    address = str(folder / "socket")
    for name in ("python", *SCRIPTS):
        (folder / name).write_text(LAUNCHER.format(python=sys.executable, address=address, worker=WORKER))
        (folder / name).chmod(0o755)
    known = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    with socket.socket(socket.AF_UNIX) as listening:  # who asks before the server is ready waits
        listening.bind(address)
        listening.listen(64)
        number = listening.fileno()
        words = [sys.executable, __file__, str(number), folder]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
        server = subprocess.Popen(words, cwd=folder, env=known, pass_fds=[number], **pipes)  # type: ignore[call-overload]

    def end() -> None:
        server.communicate()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return str(folder / "python")


class Known:
    """A distribution that is read once: each run of pytest looks for plugins in all that is installed."""

    def __init__(self, distribution: importlib.metadata.Distribution) -> None:
        self._distribution = distribution
        self.read_text = functools.cache(distribution.read_text)
        self.files = tuple(map(str, distribution.files or ()))

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(self._distribution, name)
        return value


def remember_plugins() -> None:
    """Know the distributions that hold plugins or what can be typed, and no others. It is a quarter of most runs."""
    known = [
        Known(distribution)
        for distribution in importlib.metadata.distributions()
        if any(entry.group == "pytest11" or entry.name in SCRIPTS for entry in distribution.entry_points)
    ]
    importlib.metadata.distributions = lambda **_: iter(known)  # type: ignore[assignment]
    pluggy.__version__ = pluggy.__version__  # looked up on the disk for the first line of each run


def import_everything() -> None:
    """Import the whole package, and the libraries that it imports late; compile its largest template."""
    package = importlib.import_module(PACKAGE)
    for module in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    importlib.import_module(f"{PACKAGE}.reports.page.templating").load_template("session.html.j2")


def name_hooks_alone() -> None:
    """Let pytest's own modules, and the plugins that are objects of its classes, name only their hooks and fixtures:
    each run goes through all that each one names, twice.
    """
    fixture = type(pytest.fixture(lambda: None))
    for name in [name for name in sys.modules if name.startswith("_pytest.")]:
        module = sys.modules[name]
        hooks = [each for each, is_ in vars(module).items() if each.startswith("pytest") or isinstance(is_, fixture)]
        module.__dir__ = hooks.copy  # type: ignore[method-assign]
        for kind in [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == name]:
            own = [each for each in dir(kind) if each.startswith("pytest_")]
            if own:
                kind.__dir__ = lambda _, hooks=own: hooks  # type: ignore[assignment, misc]


def tell_interruptions_shortly() -> None:
    """Let pytest keep the plain traceback of what interrupts it, of which it shows the last line: with the sources that
    nobody is shown, each run of a gate file with a mistake takes three times as long.
    """

    def keep(reporter: TerminalReporter, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        reporter._keyboardinterrupt_memo = excinfo.getrepr(style="native")

    TerminalReporter.pytest_keyboard_interrupt = keep  # type: ignore[assignment]


class Imports:
    """A plugin that imports the package while pytest rewrites its assertions, as it would later and then warn of it."""

    def pytest_sessionstart(self) -> None:
        pytest.register_assert_rewrite(PACKAGE)
        import_everything()


def serve(listening: socket.socket, folder: str) -> Callable[[], None] | None:
    """Answer until standard input ends. In each fork: what it is to run."""
    paths = sys.path[1:]  # without the folder of this file
    remember_plugins()
    pytest.main(["-q", "-p", "no:cacheprovider"], plugins=[Imports()])
    name_hooks_alone()
    tell_interruptions_shortly()
    gc.freeze()
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    waiting: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as ready:
        for source in (0, woken, listening):
            ready.register(source, selectors.EVENT_READ)
        while True:
            sources = {key.fileobj for key, _ in ready.select()}
            if 0 in sources:
                return None
            if woken in sources:
                os.read(woken, 4096)
                _tell(waiting)
            if listening in sources:
                caller = listening.accept()[0]
                asked, streams = _request(caller)
                child = os.fork()
                if child == 0:
                    break
                waiting[child] = caller
                for stream in streams:
                    os.close(stream)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for other in (*waiting.values(), listening, caller):
        other.close()
    for end in (woken, wake):
        os.close(end)
    _become(asked, streams, folder, paths)
    return functools.partial(_run, asked)


def _tell(waiting: dict[int, socket.socket]) -> None:
    """Say how each ended that did."""
    for child in list(waiting):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            with waiting.pop(child) as caller, contextlib.suppress(BrokenPipeError):
                caller.sendall(bytes([code if code >= 0 else 128 - code]))


def _request(caller: socket.socket) -> tuple[Asked, list[int]]:
    length, streams, _, _ = socket.recv_fds(caller, 8, 3)
    with caller.makefile("rb") as said:
        return Asked(*marshal.loads(said.read(int.from_bytes(length, "big")))), list(streams)


def _become(asked: Asked, streams: Sequence[int], folder: str, paths: list[str]) -> None:
    """Be as a Python that was started there."""
    os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.environment)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = sys.__stdin__ = _text(0, "r", "strict")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _text(1, "w", "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(2, "w", "backslashreplace")  # type: ignore[misc]
    given = asked.environment.get("PYTHONPATH", "")
    first = asked.folder if asked.name == "python" else folder
    sys.path[:] = [*([] if asked.safe else [first]), *(given.split(os.pathsep) if given else ()), *paths]
    sys.dont_write_bytecode = bool(asked.environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.executable = str(Path(folder, "python"))
    tempfile.tempdir = None
    time.tzset()
    importlib.invalidate_caches()


def _text(number: int, mode: str, errors: str) -> io.TextIOWrapper:
    stream = open(number, f"{mode}b", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(stream, encoding="utf-8", errors=errors, line_buffering=number == 2 or stream.isatty())


def _run(asked: Asked) -> None:
    if asked.name in SCRIPTS:
        sys.argv = [asked.name, *asked.words]
        (script,) = importlib.metadata.entry_points(group="console_scripts", name=asked.name)
        sys.exit(script.load()())
    if asked.words == WORKER:
        sys.argv = ["-c"]
        exec(WORKER[-1], {"__name__": "__main__"})
    else:
        _, name, *sys.argv[1:] = asked.words
        runpy.run_module(name, run_name="__main__", alter_sys=True)


def _end(run: Callable[[], None]) -> NoReturn:
    """Run, and end without taking apart the modules of the server, which costs more than most runs."""
    status: object = 0
    try:
        run()
    except SystemExit as end:
        status = end.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
    except Exception:
        traceback.print_exc()
        status = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:
        status = 120  # as Python ends where nobody takes what it says
    os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    run = serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    if run is not None:
        _end(run)
