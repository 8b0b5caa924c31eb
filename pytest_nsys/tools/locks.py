"""Whoever locks an open file or folder is alone with it until it is closed. Windows, and some network disks, cannot."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]


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
