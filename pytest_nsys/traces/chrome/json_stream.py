"""How are the events of a trace in Chrome's JSON read block by block, exactly, whatever the layout of the file?

The root is an object with a list ``traceEvents`` and other members before and after it, or that list alone. msgspec
decodes many events at once: a block is cut where an event seems to begin, and because everything before the cut then
decodes as a whole list, the cut was right. Where a piece does not decode (the end of the list, a name with a broken
character, a number that is none, events within events), the standard library decodes it event by event: nothing is
skipped silently.

The bytes, plain or gzip, come a block at a time, with a bound on memory and on what they may unpack to. A second thread
unpacks the next blocks while one is decoded, because zlib releases the interpreter lock.
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

GZIP_START = b"\x1f\x8b"
MAX_UNPACK_RATIO = 100  # traces pack to a tenth or a fortieth; deflate can do a thousandth, which is how a bomb is made
"""How many times its packed size a gzip file may unpack to."""
# A ratio alone would refuse a good file whose first part packs well; a bomb still shows in its first part.
ALWAYS_ALLOWED_BYTES = 64 << 20
"""How many bytes any gzip file may unpack to, however little of it was read."""
BLOCKS_AHEAD = 8  # not 1: a machine that is busy may let the second thread wait
"""How many blocks are unpacked ahead of the one that is decoded."""


class _GzipContent:
    """Reads the content of a gzip file. Raises TraceError where it unpacks to more than a trace does."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._content = gzip.GzipFile(fileobj=file)
        self._unpacked_bytes = 0

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, fewer only at the end. Raises TraceError where these are too many."""
        content = self._content.read(size)
        self._unpacked_bytes += len(content)
        if self._unpacked_bytes > ALWAYS_ALLOWED_BYTES + MAX_UNPACK_RATIO * self._file.tell():
            raise TraceError(
                f"{self._path}: unpacks to more than {MAX_UNPACK_RATIO} times its size, which no trace does: it is "
                "refused"
            )
        return content


@contextmanager
def _open_unpacked(path: Path) -> Iterator[BinaryIO | _GzipContent]:
    """Open a file for reading its unpacked content. Turns everything that reading can raise into a TraceError of one
    line.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise TraceError(f"{path}: is not a plain file: give what the profiler wrote")
        if status.st_size == 0:
            raise TraceError(f"{path}: is empty (0 bytes): profile again")
        with path.open("rb") as file:
            is_gzip = file.read(len(GZIP_START)) == GZIP_START
            file.seek(0)
            yield _GzipContent(file, path) if is_gzip else file
    except (gzip.BadGzipFile, zlib.error):
        raise TraceError(f"{path}: its gzip stream is damaged: copy it again, or profile again") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except EOFError:
        raise TraceError(
            f"{path}: its gzip stream ends in the middle: it was cut short; copy it again, or profile again"
        ) from None


def read_json_blocks(path: Path, size: int) -> Iterator[bytes]:
    """Yield the unpacked content of a file in blocks of ``size`` bytes. Raises TraceError where it cannot be read."""
    with _open_unpacked(path) as source:
        if isinstance(source, _GzipContent):
            yield from _read_ahead(source, size)
        else:  # the system reads ahead itself
            while block := source.read(size):
                yield block


def _read_ahead(source: _GzipContent, size: int) -> Iterator[bytes]:
    """Yield the blocks of a gzip file while a second thread unpacks the next ones."""
    with ThreadPoolExecutor(1, thread_name_prefix="json-blocks") as pool:
        pending_blocks = deque(pool.submit(source.read, size) for _ in range(BLOCKS_AHEAD))
        while block := pending_blocks.popleft().result():
            pending_blocks.append(pool.submit(source.read, size))
            yield block


def read_head(path: Path, size: int) -> bytes:
    """Return the first ``size`` bytes of a file's unpacked content, fewer where it holds fewer.

    Raises TraceError where it cannot be read.
    """
    with _open_unpacked(path) as source:
        return source.read(size)


BLOCK = 1 << 19
PIECE = 1 << 18  # so few that what becomes of them stays in the processor's cache until it was looked at
"""How many bytes msgspec decodes at once."""
MAX_VALUE_BYTES = 16 << 20
"""How many bytes one event, or one member of the root, may have."""
TAIL = 1 << 16
"""How many bytes at the end of the file the standard library decodes, because they hold the end of the list."""
FIRST_WINDOW = 1 << 16

SINGLE_PROCESS_MEMBERS = frozenset({"distributedInfo"})
"""Members of the root that two processes cannot share."""

_WHITESPACE = b" \t\r\n"
_PADDING = _WHITESPACE + b"\0"
_SEPARATORS = re.compile(r"[ \t\r\n,]*")
_BEFORE_EVENT = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\Z")
_NAN_OR_INFINITY = re.compile(r"(?<=[:,\[\s])-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_EXACT_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str, strict=False)
_LONG_INTEGER_DECODER = json.JSONDecoder(
    parse_float=str,
    parse_constant=str,
    # Python refuses to convert integers of thousands of digits (CVE-2020-10735); no time or id has 40.
    parse_int=lambda digits: int(digits) if len(digits) < 40 else digits,
    strict=False,
)

_MEMBER_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("ph", "cat", "name"), str),
    **dict.fromkeys(("pid", "tid"), int | str),
}
"""The types of the members whose type no other code checks."""


class JsonStruct(msgspec.Struct, frozen=True, gc=False):
    """Holds the members that are read of an event, or of its ``args``. Members of type Raw keep every digit of a
    number.
    """

    ARGS: ClassVar[type[JsonStruct] | None] = None
    """The type that the ``args`` of an event are read as; None reads all of them."""

    @classmethod
    def from_json(cls, json_members: Mapping[str, Any]) -> Self:
        """Build one from what the standard library decoded.

        A number with a fraction is its text there, and most members may be of any type.
        """
        values: dict[str, Any] = {}
        for name, json_key in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
            value = json_members.get(json_key)
            if name == "args":
                if cls.ARGS is None:
                    values[name] = value
                elif isinstance(value, dict):  # what is none says nothing
                    values[name] = cls.ARGS.from_json(value)
            elif json_key in json_members and isinstance(value, _MEMBER_TYPES.get(name, object)):
                values[name] = value
        return cls(**values)


E = TypeVar("E", bound=JsonStruct)


@cache
def _make_decoder(struct_type: type[E]) -> msgspec.json.Decoder[list[E]]:
    return msgspec.json.Decoder(list[struct_type])  # type: ignore[valid-type]


class EventStream(Generic[E]):
    """Reads the events of one file, once. Raises TraceError for a file that is cut short or is no JSON."""

    def __init__(self, path: Path, struct_type: type[E]) -> None:
        self.path = path
        self.root_members: dict[
            str, Any
        ] = {}  # of the root, without the events: complete when the events are exhausted
        self.has_events = False
        self._struct_type, self._decoder = struct_type, _make_decoder(struct_type)
        self._buffer = b""
        self._at_end = False
        self._consumed_bytes = 0

    def __iter__(self) -> Iterator[list[E]]:
        """Yield the events of the file, some thousands at a time. Raises TraceError."""
        self._blocks = read_json_blocks(self.path, BLOCK)
        try:
            yield from self._read_root()
        except RecursionError:
            raise TraceError(f"{self.path}: is nested deeper than any trace: it is damaged") from None
        finally:
            self._blocks.close()  # type: ignore[attr-defined]  # a generator: the file and its thread are let go

    def _read_root(self) -> Iterator[list[E]]:
        self._fill(len(b"\xef\xbb\xbf"))
        if self._buffer.startswith(b"\xef\xbb\xbf"):
            self._skip(3)
        first_byte = self._peek_byte()
        if first_byte == b"[":
            self._skip(1)
            yield from self._read_list()
        elif first_byte == b"{":
            self._skip(1)
            while (next_byte := self._peek_byte()) != b"}":
                if next_byte == b",":
                    self._skip(1)
                    continue
                yield from self._read_member()
            self._skip(1)
        else:
            raise TraceError(f"{self.path}: is not JSON: it starts with {self._buffer[:16]!r}")
        self._check_end()

    def _read_member(self) -> Iterator[list[E]]:
        name = self._read_value()
        if not isinstance(name, str) or self._peek_byte() != b":":
            raise self._make_invalid_error("the root is not an object")
        self._skip(1)
        if name == "traceEvents" and self._peek_byte() == b"[":
            if self.has_events:
                raise self._make_invalid_error("a second list of traceEvents: these are two traces")
            self._skip(1)
            yield from self._read_list()
        else:
            value = self._read_value()
            if name in SINGLE_PROCESS_MEMBERS and self.root_members.get(name, value) != value:
                raise self._make_invalid_error(f"a second {name}: these are two traces")
            self.root_members[name] = value

    # -- the list of events

    def _read_list(self) -> Iterator[list[E]]:
        self.has_events = True
        block_bytes = BLOCK
        while True:
            self._fill(block_bytes)
            block_bytes, consumed_bytes = BLOCK, self._consumed_bytes
            yield from self._decode_pieces()
            if consumed_bytes != self._consumed_bytes:
                continue
            events, is_list_end = self._decode_singly()
            yield events
            if is_list_end:
                return
            if consumed_bytes == self._consumed_bytes:
                block_bytes = max(2 * len(self._buffer), BLOCK)  # doubled, for one event may be as long as the file

    def _decode_pieces(self) -> Iterator[list[E]]:
        """Yield the events up to the last one that begins in the buffer, a piece at a time.

        Stops before a piece that does not decode as a list of events: that one is read event by event.
        """
        block, start = memoryview(self._buffer), 0
        end = len(block) - (TAIL if self._at_end else 0)
        while next_start := self._find_last_event(start, min(start + PIECE, end)) or self._find_last_event(start, end):
            piece_end = self._buffer.rfind(b"}", start, next_start) + 1
            try:
                events = self._decoder.decode(b"".join((b"[", block[start:piece_end], b"]")))
            except (msgspec.MsgspecError, ValueError):  # the latter of bytes that are no UTF-8
                break
            start = next_start
            yield events
        self._skip(start)

    def _find_last_event(self, start: int, end: int) -> int:
        """Return the position where the last event in a part of the buffer seems to begin; 0 where only the first event
        does.
        """
        while (end := self._buffer.rfind(b"{", start + 1, max(end, 0))) > 0:
            # 64 bytes hold the comma and the blanks between two events; what lies further back is no separator.
            if _BEFORE_EVENT.search(self._buffer, max(end - 64, start), end):
                return end
        return 0

    def _decode_singly(self) -> tuple[list[E], bool]:
        """Decode the whole events of the buffer one by one. Return them, and whether the list ends in the buffer.

        What is no object is no event. Raises TraceError where an event is broken.
        """
        text = self._buffer.decode("utf-8", "surrogateescape")
        events: list[E] = []
        position, is_repaired, is_list_end, decode = 0, False, False, _EXACT_DECODER.raw_decode
        while True:
            position = _SEPARATORS.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
            if position >= len(text):
                break
            if text[position] == "]":
                position, is_list_end = position + 1, True
                break
            try:
                event, position = decode(text, position)
            except json.JSONDecodeError as error:
                # Some write C's ``nan`` and ``inf``; Python's decoder knows only ``NaN``, ``Infinity``.
                if not is_repaired and _NAN_OR_INFINITY.search(text, position):
                    text, is_repaired = text[:position] + _NAN_OR_INFINITY.sub("NaN", text[position:]), True
                    continue
                self._check_truncated(error, text, position)
                break
            except ValueError:  # an integer of more digits than Python converts
                decode = _LONG_INTEGER_DECODER.raw_decode
                continue
            if isinstance(event, dict):
                events.append(self._struct_type.from_json(event))
        rest = text[position:].encode("utf-8", "surrogateescape")
        self._consumed_bytes += len(self._buffer) - len(rest)
        self._buffer = rest
        if self._at_end and not is_list_end:
            raise self._make_truncated_error()
        return events, is_list_end

    def _check_truncated(self, error: json.JSONDecodeError, text: str, event_start: int) -> None:
        """Check that an event that does not decode is one whose end is not read yet. Raises TraceError where the file
        is broken.
        """
        # A literal or a number that the buffer's end cuts fails up to some characters before that end.
        is_truncated = error.msg.startswith("Unterminated string") or error.pos > len(text) - 16
        if not is_truncated:
            raise self._make_invalid_error(error.msg, len(text[: error.pos].encode("utf-8", "surrogateescape")))
        if len(text) - event_start > MAX_VALUE_BYTES:
            raise self._make_invalid_error(f"one event has more than {MAX_VALUE_BYTES >> 20} MiB", 0)

    # -- other members of the root

    def _read_value(self) -> Any:
        """Read one JSON value of any type, from a window that grows until it holds the value. Raises TraceError."""
        size = FIRST_WINDOW
        self._peek_byte()
        while True:
            self._fill(size)
            text = self._buffer[:size].decode("utf-8", "surrogateescape")
            is_whole_rest = self._at_end and size >= len(self._buffer)
            try:
                value, end = _decode_value(text)
            except json.JSONDecodeError as error:
                if is_whole_rest:
                    if error.msg.startswith("Unterminated string") or error.pos > len(text) - 16:
                        raise self._make_truncated_error() from None
                    raise self._make_invalid_error(error.msg, error.pos) from None
            else:
                # A number at the very end of the window may go on behind it.
                if end < len(text) or is_whole_rest:
                    self._skip(len(text[:end].encode("utf-8", "surrogateescape")))
                    return value
            if size >= MAX_VALUE_BYTES:
                raise self._make_invalid_error(f"one value has more than {MAX_VALUE_BYTES >> 20} MiB", 0)
            size *= 4

    # -- bytes

    def _check_end(self) -> None:
        """Check that the file ends after its root. Raises TraceError where it goes on, for part of it would not be
        read.
        """
        while True:
            self._skip(len(self._buffer) - len(self._buffer.lstrip(_PADDING)))  # zeros may pad the end of a file
            if self._buffer:
                raise self._make_invalid_error(
                    "the file goes on after its end: these are two traces, or one and its rest"
                )
            if self._at_end:
                return
            self._fill(1)

    def _fill(self, size: int) -> None:
        """Read blocks until the buffer holds at least ``size`` bytes, or all that are left."""
        parts, buffered_bytes = [self._buffer], len(self._buffer)
        while buffered_bytes < size and not self._at_end:
            block = next(self._blocks, b"")
            self._at_end = not block
            parts.append(block)
            buffered_bytes += len(block)
        if len(parts) > 1:
            self._buffer = b"".join(parts)

    def _peek_byte(self) -> bytes:
        """Return the next byte that is not blank, without consuming it. Raises TraceError at the end of the file."""
        while True:
            self._fill(1)
            blank = len(self._buffer) - len(self._buffer.lstrip(_WHITESPACE))
            self._skip(blank)
            if self._buffer:
                return self._buffer[:1]
            if self._at_end:
                raise self._make_truncated_error()

    def _skip(self, size: int) -> None:
        if size:
            self._buffer = self._buffer[size:]
            self._consumed_bytes += size

    def _make_truncated_error(self) -> TraceError:
        where = f"after {self._consumed_bytes} bytes" if self._consumed_bytes else "at its beginning"
        return TraceError(
            f"{self.path}: its JSON ends in the middle ({where}): it was cut short; wait until the profiler has "
            "written it, or profile again"
        )

    def _make_invalid_error(self, problem: str, offset: int = 0) -> TraceError:
        position = self._consumed_bytes + offset
        return TraceError(f"{self.path}: is not valid JSON at byte {position}: {problem}; profile again")


def _decode_value(text: str) -> tuple[Any, int]:
    """Decode the value at the beginning of a text. Return it and where it ends. Raises JSONDecodeError where there is
    none.
    """
    try:
        return _EXACT_DECODER.raw_decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more digits than Python converts
        return _LONG_INTEGER_DECODER.raw_decode(text)
