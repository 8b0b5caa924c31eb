"""Writes files whole or not at all, and locks them: baselines, reports, pages, cuts, drafts.

A lock on an open file or folder excludes other processes until it is closed. Windows, and some network disks, have no
such lock.
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

# Descriptors of the standard streams, by the paths that may be given for a report.
_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR_FOLDERS = ("/dev/fd", "/proc/self/fd")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file by ``content`` in one step, or leave it unchanged. Raises OSError, which names ``path``.

    The replaced file's permissions stay. A pipe, a device or a standard stream is written to, as replacing it by a file
    would break it.
    """
    try:
        if (number := _find_descriptor(path)) is not None:
            sys.stdout.flush()  # so that earlier output comes first
            with os.fdopen(os.dup(number), "wb") as file:
                file.write(content)
        elif path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace_file(path.resolve(), content)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def append_to_file(path: Path, content: bytes) -> None:
    """Append ``content`` to the file, which may be new, such as the shared $GITHUB_STEP_SUMMARY. Raises OSError.

    If the disk is full, a part already written is removed, so that the text of other tools does not follow half a
    table.
    """
    with path.open("ab", buffering=0) as file:
        previous_size = file.seek(0, os.SEEK_END) if path.is_file() else None
        try:
            _write_all_bytes(file.fileno(), content)
        except OSError:
            if previous_size is not None:
                file.truncate(previous_size)
            raise


def _write_all_bytes(number: int, content: bytes) -> None:
    """Write all bytes to a descriptor, by as many calls as it takes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(number, rest) :]


def _find_descriptor(path: Path) -> int | None:
    """Return the descriptor of the open file that a path stands for; None if it stands for none.

    Opening such a file again would lose its position, and overwrite its earlier text.
    """
    folder, name = os.path.split(path)
    return int(name) if folder in _DESCRIPTOR_FOLDERS and name.isdecimal() else _STREAMS.get(str(path))


def _replace_file(target: Path, content: bytes) -> None:
    """Replace the file by ``content``: write a temporary file in the same folder, and rename it."""
    handle, draft = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            # Else a crash after the rename could leave an empty file under the name.
            os.fsync(file.fileno())
        Path(draft).chmod(_find_mode(target))
        Path(draft).replace(target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _find_mode(target: Path) -> int:
    """Return the permissions of the file that is replaced, or those of a new file."""
    if target.exists():
        return target.stat().st_mode & 0o777
    # The mask can be read only by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def lock_descriptor(descriptor: int, before_wait: Callable[[], object] = lambda: None) -> bool:
    """Lock an open file or folder, once nobody else holds it; ``before_wait`` is called before a wait.

    Return False if the system cannot lock it.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        before_wait()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder itself until the end of the block, if the system can. Raises OSError.

    A separate lock file could end up in git.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock_descriptor(handle)
        yield
    finally:
        os.close(handle)
