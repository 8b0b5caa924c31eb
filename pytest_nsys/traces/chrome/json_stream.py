"""The events of a trace in Chrome's JSON, a block at a time, exactly, whatever the file's layout.

The root is an object with a list ``traceEvents`` and other members before and after it, or that list alone. Many events
at once are decoded by msgspec: a block is cut where an event seems to begin, and because everything before the cut then
decodes as a whole list, the cut was right. Where it does not decode (the end of the list, a name with a broken
character, a number that is none, events within events) the block goes through the standard library, event by event:
nothing is skipped silently.

The bytes, plain or gzip, come a block at a time, bounded in memory and in what they may unpack to. A second thread
unpacks the next blocks while one is decoded: zlib gives up the interpreter lock.
"""

from __future__ import annotations

import gzip
import json
import re
import stat
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, Self, TypeVar

import msgspec

from pytest_nsys.core.errors import TraceError

GZIP = b"\x1f\x8b"
LARGEST_RATIO = 100
"""Traces pack to a tenth or a fortieth; deflate can do a thousandth, which is how a bomb is made."""
FREE_BYTES = 64 << 20
"""What any file may unpack to, however little of it was read; so a bomb is told by its first part."""
AHEAD = 8
"""Blocks that are unpacked while one is decoded: a machine that is busy may let the second thread wait."""


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
            raise TraceError(f"{path}: is not a plain file: give what the profiler wrote")
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
    with _source(path) as source:
        if isinstance(source, _Unpacked):
            yield from _ahead(source, size)
        else:  # the system reads ahead itself
            while block := source.read(size):
                yield block


def _ahead(source: _Unpacked, size: int) -> Iterator[bytes]:
    with ThreadPoolExecutor(1, thread_name_prefix="json-blocks") as pool:
        coming = deque(pool.submit(source.read, size) for _ in range(AHEAD))
        while block := coming.popleft().result():
            coming.append(pool.submit(source.read, size))
            yield block


def head(path: Path, size: int) -> bytes:
    """The first ``size`` bytes of what is in a file, fewer where it holds fewer. Raises TraceError as ``blocks``."""
    with _source(path) as source:
        return source.read(size)


BLOCK = 1 << 19
PIECE = 1 << 18
"""Bytes decoded at once: so few that what becomes of them stays in the processor's cache until it was looked at."""
LARGEST_PART = 16 << 20
"""Bytes that one event, or one member of the root, may have."""
TAIL = 1 << 16
"""At the end of the file so much is left to the standard library, with the end of the list in it."""
FIRST_WINDOW = 1 << 16

OF_ONE_PROCESS = frozenset({"distributedInfo"})
"""Members of the root that two processes cannot share."""

_BLANK = b" \t\r\n"
_PADDING = _BLANK + b"\0"
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_BEGINNING = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\Z")
_NO_NUMBER = re.compile(r"(?<=[:,\[\s])-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_NUMBERS_KEPT = json.JSONDecoder(parse_float=str, parse_constant=str, strict=False)
_DIGITS_KEPT = json.JSONDecoder(
    parse_float=str,
    parse_constant=str,
    parse_int=lambda digits: int(digits) if len(digits) < 40 else digits,
    strict=False,
)

_TYPES: Mapping[str, Any] = {**dict.fromkeys(("ph", "cat", "name"), str), **dict.fromkeys(("pid", "tid"), int | str)}
"""Of the members whose type is checked nowhere else."""


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """An event, or its ``args``: the members that are read. Those of type Raw keep every digit of a number."""

    ARGS: ClassVar[type[Decoded] | None] = None
    """What is read of the ``args`` of an event; None: all of them."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """From what the standard library decoded: a number with a fraction is its text, and most may be anything."""
        given: dict[str, Any] = {}
        for name, written in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
            value = found.get(written)
            if name == "args":
                if cls.ARGS is None:
                    given[name] = value
                elif isinstance(value, dict):  # what is none says nothing
                    given[name] = cls.ARGS.of(value)
            elif written in found and isinstance(value, _TYPES.get(name, object)):
                given[name] = value
        return cls(**given)


E = TypeVar("E", bound=Decoded)


@cache
def _decoder(kind: type[E]) -> msgspec.json.Decoder[list[E]]:
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


class EventStream(Generic[E]):
    """One file, read once. ``members`` holds the root's other members, complete when the events are exhausted.

    Everything raises TraceError for a file that is cut or no JSON.
    """

    def __init__(self, path: Path, kind: type[E]) -> None:
        self.path = path
        self.members: dict[str, Any] = {}
        self.has_events = False
        self._kind, self._decoder = kind, _decoder(kind)
        self._data = b""
        self._ended = False
        self._passed_bytes = 0

    def __iter__(self) -> Iterator[list[E]]:
        """The events some thousands at a time."""
        self._blocks = blocks(self.path, BLOCK)
        try:
            yield from self._root()
        except RecursionError:
            raise TraceError(f"{self.path}: is nested deeper than any trace: it is damaged") from None
        finally:
            self._blocks.close()  # type: ignore[attr-defined]  # a generator: the file and its thread are let go

    def _root(self) -> Iterator[list[E]]:
        self._fill(len(b"\xef\xbb\xbf"))
        if self._data.startswith(b"\xef\xbb\xbf"):
            self._pass(3)
        first = self._next()
        if first == b"[":
            self._pass(1)
            yield from self._list()
        elif first == b"{":
            self._pass(1)
            while (following := self._next()) != b"}":
                if following == b",":
                    self._pass(1)
                    continue
                yield from self._member()
            self._pass(1)
        else:
            raise TraceError(f"{self.path}: is not JSON: it starts with {self._data[:16]!r}")
        self._check_end()

    def _member(self) -> Iterator[list[E]]:
        name = self._value()
        if not isinstance(name, str) or self._next() != b":":
            raise self._broken("the root is not an object")
        self._pass(1)
        if name == "traceEvents" and self._next() == b"[":
            if self.has_events:
                raise self._broken("a second list of traceEvents: these are two traces")
            self._pass(1)
            yield from self._list()
        else:
            value = self._value()
            if name in OF_ONE_PROCESS and self.members.get(name, value) != value:
                raise self._broken(f"a second {name}: these are two traces")
            self.members[name] = value

    # -- the list of events

    def _list(self) -> Iterator[list[E]]:
        self.has_events = True
        wanted = BLOCK
        while True:
            self._fill(wanted)
            wanted, passed = BLOCK, self._passed_bytes
            yield from self._many()
            if passed != self._passed_bytes:
                continue
            events, finished = self._one_by_one()
            yield events
            if finished:
                return
            if passed == self._passed_bytes:
                wanted = max(2 * len(self._data), BLOCK)  # doubled, for one event may be as long as the file

    def _many(self) -> Iterator[list[E]]:
        """The events up to the last one that begins in the block, a piece at a time; none of a piece, nor of those
        behind it, that has to be read one by one.
        """
        block, at = memoryview(self._data), 0
        end = len(block) - (TAIL if self._ended else 0)
        while cut := self._last_beginning(at, min(at + PIECE, end)) or self._last_beginning(at, end):
            before = self._data.rfind(b"}", at, cut) + 1
            try:
                events = self._decoder.decode(b"".join((b"[", block[at:before], b"]")))
            except (msgspec.MsgspecError, ValueError):  # the latter of bytes that are no UTF-8
                break
            at = cut
            yield events
        self._pass(at)

    def _last_beginning(self, start: int, end: int) -> int:
        """Where the last event between the two seems to begin, 0 where only the first one does."""
        while (end := self._data.rfind(b"{", start + 1, max(end, 0))) > 0:
            if _BEGINNING.search(self._data, max(end - 64, start), end):
                return end
        return 0

    def _one_by_one(self) -> tuple[list[E], bool]:
        """The whole events of the block, and whether the list ends in it; what is no object is no event."""
        text = self._data.decode("utf-8", "surrogateescape")
        events: list[E] = []
        at, repaired, finished, decode = 0, False, False, _NUMBERS_KEPT.raw_decode
        while True:
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
            if at >= len(text):
                break
            if text[at] == "]":
                at, finished = at + 1, True
                break
            try:
                event, at = decode(text, at)
            except json.JSONDecodeError as error:
                if not repaired and _NO_NUMBER.search(text, at):
                    text, repaired = text[:at] + _NO_NUMBER.sub("NaN", text[at:]), True
                    continue
                self._check_cut(error, text, at)
                break
            except ValueError:  # an integer of more digits than Python converts
                decode = _DIGITS_KEPT.raw_decode
                continue
            if isinstance(event, dict):
                events.append(self._kind.of(event))
        rest = text[at:].encode("utf-8", "surrogateescape")
        self._passed_bytes += len(self._data) - len(rest)
        self._data = rest
        if self._ended and not finished:
            raise self._cut()
        return events, finished

    def _check_cut(self, error: json.JSONDecodeError, text: str, at: int) -> None:
        """An event that does not decode is one whose end is not read yet, or the file is broken."""
        cut = error.msg.startswith("Unterminated string") or error.pos > len(text) - 16
        if not cut:
            raise self._broken(error.msg, len(text[: error.pos].encode("utf-8", "surrogateescape")))
        if len(text) - at > LARGEST_PART:
            raise self._broken(f"one event has more than {LARGEST_PART >> 20} MiB", 0)

    # -- other members of the root

    def _value(self) -> Any:
        """Any one value, from a window that grows until it holds it."""
        size = FIRST_WINDOW
        self._next()
        while True:
            self._fill(size)
            text = self._data[:size].decode("utf-8", "surrogateescape")
            everything = self._ended and size >= len(self._data)
            try:
                value, end = _decoded(text)
            except json.JSONDecodeError as error:
                if everything:
                    if error.msg.startswith("Unterminated string") or error.pos > len(text) - 16:
                        raise self._cut() from None
                    raise self._broken(error.msg, error.pos) from None
            else:
                if end < len(text) or everything:
                    self._pass(len(text[:end].encode("utf-8", "surrogateescape")))
                    return value
            if size >= LARGEST_PART:
                raise self._broken(f"one value has more than {LARGEST_PART >> 20} MiB", 0)
            size *= 4

    # -- bytes

    def _check_end(self) -> None:
        """Raises TraceError where the file goes on after its root: part of it would be read and part of it not."""
        while True:
            self._pass(len(self._data) - len(self._data.lstrip(_PADDING)))
            if self._data:
                raise self._broken("the file goes on after its end: these are two traces, or one and its rest")
            if self._ended:
                return
            self._fill(1)

    def _fill(self, size: int) -> None:
        """Have at least ``size`` bytes at hand, or all that are left."""
        parts, have = [self._data], len(self._data)
        while have < size and not self._ended:
            block = next(self._blocks, b"")
            self._ended = not block
            parts.append(block)
            have += len(block)
        if len(parts) > 1:
            self._data = b"".join(parts)

    def _next(self) -> bytes:
        """The next byte that is not blank, which stays at hand. Raises TraceError at the end of the file."""
        while True:
            self._fill(1)
            blank = len(self._data) - len(self._data.lstrip(_BLANK))
            self._pass(blank)
            if self._data:
                return self._data[:1]
            if self._ended:
                raise self._cut()

    def _pass(self, size: int) -> None:
        if size:
            self._data = self._data[size:]
            self._passed_bytes += size

    def _cut(self) -> TraceError:
        where = f"after {self._passed_bytes} bytes" if self._passed_bytes else "at its beginning"
        return TraceError(
            f"{self.path}: its JSON ends in the middle ({where}): it was cut short; wait until the profiler has "
            "written it, or profile again"
        )

    def _broken(self, what: str, offset: int = 0) -> TraceError:
        at = self._passed_bytes + offset
        return TraceError(f"{self.path}: is not valid JSON at byte {at}: {what}; profile again")


def _decoded(text: str) -> tuple[Any, int]:
    """The value at the beginning of a text, and where it ends. Raises JSONDecodeError where there is none."""
    try:
        return _NUMBERS_KEPT.raw_decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more digits than Python converts
        return _DIGITS_KEPT.raw_decode(text)
