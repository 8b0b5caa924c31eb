"""The bytes of a JSON trace, plain or gzip, a block at a time: bounded in memory, and in what they may unpack to.

The next block is read (and unpacked) by a second thread while the last one is decoded: zlib gives up the interpreter
lock. A file that ends in the middle of its gzip stream, is damaged, or unpacks to more than a trace can, is one line.
"""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pytest_nsys.core.errors import TraceError

GZIP = b"\x1f\x8b"
LARGEST_RATIO = 100
"""Traces pack to a tenth or a fortieth; deflate can do a thousandth, which is how a bomb is made."""
FREE_BYTES = 64 << 20
"""What any file may unpack to, however little of it was read; so a bomb is told by its first part."""


class _Unpacked:
    """The content of a gzip file. Raises TraceError where it unpacks to more than a trace does."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._content = gzip.GzipFile(fileobj=file)
        self._unpacked_bytes = 0

    def read(self, size: int) -> bytes:
        """So many bytes, fewer only at the end."""
        part = self._content.read(size)
        self._unpacked_bytes += len(part)
        if self._unpacked_bytes > FREE_BYTES + LARGEST_RATIO * self._file.tell():
            raise TraceError(
                f"{self._path}: unpacks to more than {LARGEST_RATIO} times its size, which no trace does: it is refused"
            )
        return part


@contextmanager
def _source(path: Path) -> Iterator[BinaryIO | _Unpacked]:
    """What is in a file, unpacked; everything that reading can raise becomes a TraceError of one line."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise TraceError(f"{path}: is no plain file: give what the profiler wrote")
        if status.st_size == 0:
            raise TraceError(f"{path}: is empty (0 bytes): profile again")
        with path.open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            yield _Unpacked(file, path) if packed else file
    except (gzip.BadGzipFile, zlib.error):
        raise TraceError(f"{path}: its gzip stream is damaged: copy it again, or profile again") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except EOFError:
        raise TraceError(
            f"{path}: its gzip stream ends in the middle: it was cut short; copy it again, or profile again"
        ) from None


def blocks(path: Path, size: int) -> Iterator[bytes]:
    """The content of a file in blocks of ``size`` bytes. Raises TraceError where it cannot be read."""
    with _source(path) as source, ThreadPoolExecutor(1, thread_name_prefix="json-blocks") as pool:
        coming = pool.submit(source.read, size)
        while block := coming.result():
            coming = pool.submit(source.read, size)
            yield block


def head(path: Path, size: int) -> bytes:
    """The first ``size`` bytes of what is in a file, fewer where it holds fewer. Raises TraceError as ``blocks``."""
    with _source(path) as source:
        return source.read(size)
