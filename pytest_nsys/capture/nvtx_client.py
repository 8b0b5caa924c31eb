"""Named ranges without any library: how does a program reach the tool that records NVTX?

A tool names its library in ``NVTX_INJECTION64_PATH``. What NVTX's headers do in every C program is done here by ctypes:
load it, hand it a table of empty slots, and call what it puts there (NVTX 3, ``nvtxDetail/nvtxInit.h``). Libraries of
NVTX are found in fewer and fewer installations, and what some of them call, an older nsys does not record.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

INJECTION = "NVTX_INJECTION64_PATH"
CALLBACKS, VERSION_INFO = 1, 3
"""Numbers of the tables that a tool asks for."""

NVTX_VERSION = 3
CORE, RANGE_PUSH, RANGE_POP = 1, 9, 11
MODULE_SLOTS = {1: 16, 2: 9, 3: 15, 4: 7, 5: 16, 6: 7}
"""Functions of each module (core, CUDA, OpenCL, CUDA runtime, core 2, synchronisation), the unused number 0 too."""

_Slots = ctypes.POINTER(ctypes.c_void_p)
_GetTable = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Slots), ctypes.POINTER(ctypes.c_uint))
_SetVersion = ctypes.CFUNCTYPE(None, ctypes.c_uint32)
_GetExport = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)


class _Callbacks(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("get_table", _GetTable))


class _VersionInfo(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("set_version", _SetVersion),
    )


class Client(NamedTuple):
    """``push`` opens a named range on this thread, ``pop`` closes it. ``kept`` is what the tool points into."""

    push: Callable[[str], object]
    pop: Callable[[], object]
    kept: tuple[Any, ...]


@functools.cache
def nvtx_client() -> Client | None:
    """The connection of this process to the tool that records it, None where no tool does."""
    path = os.environ.get(INJECTION)
    if not path or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(path)
        return _connected(library, library.InitializeInjectionNvtx2)
    return None


def _connected(library: ctypes.CDLL, initialize: Any) -> Client | None:
    slots = {module: (ctypes.c_void_p * count)() for module, count in MODULE_SLOTS.items()}
    tables = {module: (ctypes.c_void_p * (len(own) + 1))() for module, own in slots.items()}
    for module, own in slots.items():
        for n in range(1, len(own)):
            tables[module][n] = ctypes.addressof(own) + n * ctypes.sizeof(ctypes.c_void_p)

    def get_table(module: int, table: Any, size: Any) -> int:
        """What NVTX asks a tool to be given: the slots of a module; 0 for a module that is not known."""
        if module not in tables:
            return 0
        if size:
            size[0] = len(slots[module])
        if table:
            table[0] = ctypes.cast(tables[module], _Slots)
        return 1

    callbacks = _Callbacks(ctypes.sizeof(_Callbacks), _GetTable(get_table))
    version = _VersionInfo(ctypes.sizeof(_VersionInfo), NVTX_VERSION, 0, _SetVersion(lambda _: None))
    exports = {CALLBACKS: ctypes.addressof(callbacks), VERSION_INFO: ctypes.addressof(version)}
    get_export = _GetExport(lambda number: exports.get(number))
    initialize.argtypes, initialize.restype = [_GetExport], ctypes.c_int
    if not initialize(get_export):
        return None
    push, pop = slots[CORE][RANGE_PUSH], slots[CORE][RANGE_POP]
    if not push or not pop:
        return None
    call_push = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(push)
    call_pop = ctypes.CFUNCTYPE(ctypes.c_int)(pop)
    kept = (library, slots, tables, callbacks, version, get_export)
    return Client(lambda name: call_push(name.encode()), call_pop, kept)
