"""How is a file written whole or not at all, and by nobody else meanwhile? Baselines, reports, pages, cuts, drafts.

Whoever locks an open file or folder is alone with it until it is closed. Windows, and some network disks, cannot.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTORS = ("/dev/fd", "/proc/self/fd")


def write_whole(path: Path, content: bytes) -> None:
    """Put ``content`` in place of the file at once, or leave the file as it was. Raises OSError, which names ``path``.

    The rights of a file that is replaced stay. A pipe, a device or a standard stream is written as it is: put in its
    place, a file would end it.
    """
    try:
        if (number := _descriptor(path)) is not None:
            sys.stdout.flush()  # what was printed before stands before
            with os.fdopen(os.dup(number), "wb") as file:
                file.write(content)
        elif path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(path.resolve(), content)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def append(path: Path, content: bytes) -> None:
    """Add ``content`` to the file, which may be new: $GITHUB_STEP_SUMMARY is shared. Raises OSError.

    What a full disk took of it is taken back, so that others' content does not end in the middle of a table.
    """
    with path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END) if path.is_file() else None
        try:
            _write_all(file.fileno(), content)
        except OSError:
            if before is not None:
                file.truncate(before)
            raise


def _write_all(number: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(number, rest) :]


def _descriptor(path: Path) -> int | None:
    """The number of the open file that a path stands for: opened anew it would lose its place, and its earlier text."""
    folder, name = os.path.split(path)
    return int(name) if folder in _DESCRIPTORS and name.isdecimal() else _STREAMS.get(str(path))


def _replace(target: Path, content: bytes) -> None:
    handle, draft = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(_mode(target))
        Path(draft).replace(target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """The rights of the file that is replaced, else those that a new file has."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def lock(descriptor: int, waiting: Callable[[], object] = lambda: None) -> bool:
    """Hold it, once nobody else does; ``waiting`` is called before a wait. False where nothing can be held."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the folder itself, where that can be done: a file for the lock would end up in git. Raises OSError."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle)
        yield
    finally:
        os.close(handle)
