"""What is one event of a torch.profiler trace, and when was it, in whole nanoseconds?

Kernels (category ``kernel``), calls of the CUDA or HIP API, ranges of CPU time (``user_annotation`` and ``cpu_op``),
and the starts of the arrows from a launch to its kernel. Copies and memsets are no kernels; ``gpu_user_annotation``
repeats ranges on the GPU's time; functions of Python are no ranges. Times are decimals of a microsecond and become
integers of nanoseconds without a float between.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, DecimalException
from typing import Any

from msgspec import DecodeError, Raw, field
from msgspec.json import Decoder

from pytest_nsys.traces.chrome.json_stream import Written

KERNELS = frozenset({"kernel", "Kernel"})
CALLS = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "hip_driver"})
RANGES = frozenset({"user_annotation", "cpu_op", "Operator"})
COPIES = frozenset({"gpu_memcpy", "Memcpy"})
MEMSETS = frozenset({"gpu_memset", "Memset"})
SYNCS = frozenset({"cuda_sync"})
STREAM_WAIT = "Stream Wait Event"
ARROWS = frozenset({"ac2g", "async_cpu_to_gpu", "async"})
ARROW_START = "s"
SPANS = frozenset({"Trace"})
WINDOW_END = "Record Window End"
NO_CATEGORY = ""
POINTLESS = frozenset({"i", "I", "R", "M", "E"})
"""Phases of an instant, of metadata, and of the end of a range: they have no length."""


class Args(Written, frozen=True):
    """What is read of an event's ``args``."""

    device: int | None = None
    context: int | None = None
    stream: int | None = None
    correlation: int | None = None
    graph_node: int | None = field(default=None, name="graph node id")
    wait_on_stream: int | None = None
    record: int | None = field(default=None, name="wait_on_cuda_event_record_corr_id")


class Event(Written, frozen=True):
    """One event of torch.profiler, or of another profiler in its terms."""

    ARGS = Args

    ph: str = "X"
    cat: str | None = NO_CATEGORY
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Raw = Raw()
    dur: Raw = Raw()
    id: int | str | None = None
    args: Args | None = Args()


NO_ARGS = Args()


def nanoseconds(microseconds: object) -> int:
    """An integer of nanoseconds from microseconds as text, bytes or an int. Raises ValueError for what is no number."""
    if type(microseconds) is int:
        return 1000 * microseconds
    if isinstance(microseconds, str):
        text = microseconds
    elif isinstance(microseconds, bool) or microseconds is None:
        raise ValueError("no number")
    else:  # a piece of the file, as msgspec gives it
        try:
            text = bytes(microseconds).decode("ascii", "replace")  # type: ignore[call-overload]
        except TypeError:
            raise ValueError("no number") from None
    if len(text) > 40 or not text.isascii():  # 19 digits and a fraction; a million digits would take minutes
        raise ValueError("no time")
    try:
        found = Decimal(text.strip('"')).scaleb(3)
        if not found.is_finite() or found.adjusted() > 18:
            raise ValueError("no time")
        return int(found.to_integral_value())
    except DecimalException:
        raise ValueError("no number") from None


_DIGITS = b"0123456789"
_ALL_ZEROS = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
_integers = Decoder(list[int]).decode


def column_of_ns(pieces: Sequence[Any]) -> list[int]:
    """Nanoseconds of many numbers, all at once where that is exact. Raises ValueError where one is no number."""
    if not pieces or type(pieces[0]) is int:
        return list(map(nanoseconds, pieces))
    joined = ",".join(pieces).encode() if type(pieces[0]) is str else b",".join(pieces)
    if _in_thousandths(joined, len(pieces)):
        text = joined.replace(b".", b"")
        try:
            return _integers(b"[" + text + b"]")
        except DecodeError:  # 0.512 is now 0512, which is no number of JSON
            return list(map(int, text.split(b",")))
    try:
        whole = _integers(b"[" + joined + b"]")  # of years when nanoseconds were not written
    except DecodeError:
        whole = []
    return [1000 * each for each in whole] if len(whole) == len(pieces) else list(map(nanoseconds, pieces))


def _in_thousandths(joined: bytes, count: int) -> bool:
    """Whether all have three digits behind their point: without it they are nanoseconds."""
    if joined.translate(None, _DIGITS + b"-") + b"," != b".," * count:
        return False
    return (joined.translate(_ALL_ZEROS) + b",").count(b".000,") == count
