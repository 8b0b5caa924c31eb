"""How does a training loop mark its profiled step? By ``profiled_step``, for any framework, or none.

It starts and stops what ``nsys profile --capture-range=cudaProfilerApi`` records, and names the process and the step.
torch is used where the program has imported it already, and is never imported here; else the tool that records the
process, and the CUDA runtime, are called directly. If neither is available, one warning says so and the loop continues.

A tool names its library in ``NVTX_INJECTION64_PATH``. What NVTX's headers do in every C program is done here by ctypes:
load it, hand it a table of empty slots, and call what it puts there (NVTX 3, ``nvtxDetail/nvtxInit.h``). The NVTX
libraries are found in fewer and fewer installations, and an older nsys does not record the calls of some of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

INJECTION_VARIABLE = "NVTX_INJECTION64_PATH"
# Numbers of the tables that a tool asks for (NvtxExportTableID of nvtxDetail/nvtxTypes.h).
CALLBACKS_TABLE, VERSION_TABLE = 1, 3

NVTX_VERSION = 3
CORE_MODULE, RANGE_PUSH_SLOT, RANGE_POP_SLOT = 1, 9, 11
# Functions of each module (core, CUDA, OpenCL, CUDA runtime, core 2, synchronisation), including the unused slot 0.
MODULE_SLOTS = {1: 16, 2: 9, 3: 15, 4: 7, 5: 16, 6: 7}

CUDART_LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")


class RangeMarker(NamedTuple):
    """Opens and closes a named range on this thread."""

    push: Callable[[str], object]
    pop: Callable[[], object]
    references: tuple[Any, ...] = ()  # kept alive, because the recording tool points into them


class ProfilerControl(NamedTuple):
    """Starts and stops the recording."""

    start: Callable[[], object]
    stop: Callable[[], object]
    wait_for_gpu: Callable[[], object]  # waits until the GPU is idle
    wait_for_ranks: Callable[
        [], object
    ]  # waits for other ranks: the first rank to stop ends the recording of its whole node


@contextlib.contextmanager
def profiled_step(step: int, warmup: int = 5, label: str | None = None, *, steps: int = 1) -> Iterator[bool]:
    """Profile the steps ``warmup`` … ``warmup + steps - 1`` of a loop; around every other step, do nothing.

    One step is enough for a gate. ``step`` counts from 0. ``label`` is the setup label of this process, such as
    ``rank=0; pp=0/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048``. Each profiled step is a range ``ProfilerStep#N`` that ends
    when the GPU has done its work. Yields True if the step is profiled. By default nsys ends the program after the last
    profiled step, so save results before. With torch.distributed, all ranks wait for each other before that.

    ::

        for step, batch in enumerate(batches):
            with profiled_step(step, label=label):
                train(batch)

    Raises ValueError for a negative ``step`` or ``warmup``, for ``steps`` below 1.
    """
    if step < 0 or warmup < 0 or steps < 1:
        raise ValueError(f"step {step}, warmup {warmup} and steps {steps}: at least 0, 0 and 1")
    if not warmup <= step < warmup + steps:
        yield False
        return
    marker, profiler = find_marker(), find_profiler()
    _warn_of_missing_tools(marker, profiler)
    if step == warmup:
        profiler.wait_for_gpu()  # work of the warm-up steps must not count in the profiled step
        profiler.start()
        if label is not None:  # after the start: before it, the mark would not be recorded
            marker.push(label)
            marker.pop()
    try:
        marker.push(f"ProfilerStep#{step}")
        try:
            yield True
            profiler.wait_for_gpu()  # so that the step's kernels end within its range
        finally:
            marker.pop()
    except BaseException:
        profiler.stop()
        raise
    if step == warmup + steps - 1:
        profiler.wait_for_ranks()
        profiler.stop()


def _do_nothing(*_: object) -> None:
    pass


NO_MARKER = RangeMarker(_do_nothing, _do_nothing)
NO_PROFILER = ProfilerControl(_do_nothing, _do_nothing, _do_nothing, _do_nothing)


def find_marker() -> RangeMarker:
    """Return the range marker: torch if it is imported, else the recording tool itself, else one that does nothing."""
    torch = _find_torch()
    if torch is not None:
        return RangeMarker(torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop)
    return connect_nvtx_tool() or NO_MARKER


def find_profiler() -> ProfilerControl:
    """Return the profiler control: torch if it is imported, else libcudart, else one that does nothing."""
    torch = _find_torch()
    if torch is not None:
        cudart = torch.cuda.cudart()
        meet = functools.partial(_wait_for_ranks, torch.distributed)
        return ProfilerControl(cudart.cudaProfilerStart, cudart.cudaProfilerStop, torch.cuda.synchronize, meet)
    return _find_cudart_profiler()


@functools.cache
def _find_cudart_profiler() -> ProfilerControl:
    library = _load_cudart()
    if library is None:
        return NO_PROFILER
    return ProfilerControl(
        library.cudaProfilerStart, library.cudaProfilerStop, library.cudaDeviceSynchronize, _do_nothing
    )


def _wait_for_ranks(distributed: Any) -> None:
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()


def _find_torch() -> Any:
    """Return torch if the program has imported it with CUDA, which its NVTX calls need; else None."""
    torch = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_available() else None
    except AttributeError:  # partially imported, or another module of that name
        return None


def _load_cudart() -> Any:
    """Load the CUDA runtime: preferably the copy that the process has loaded (such as a wheel's), else the
    machine's.
    """
    library_name = ctypes.util.find_library("cudart")
    for file in (*_list_loaded_libraries("cudart"), *CUDART_LIBRARIES, *([library_name] if library_name else [])):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(file)
    return None


def _list_loaded_libraries(name: str) -> list[str]:
    """Return the files of a library that this process has loaded."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return sorted(set(re.findall(rf"/\S*/lib{name}[^/\s]*\.so[^/\s]*", maps)))


def _warn_of_missing_tools(marker: RangeMarker, profiler: ProfilerControl) -> None:
    if marker is NO_MARKER:
        _warn_once("profiled_step names nothing: no tool records the ranges of this process (run it under nsys)")
    if profiler is NO_PROFILER:
        _warn_once(
            "profiled_step cannot start the profiler: torch with CUDA is not imported, and there is no libcudart "
            "(capture with --whole-run)"
        )


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=5)


# Named ranges without any library

_SlotTable = ctypes.POINTER(ctypes.c_void_p)
_GetTable = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(_SlotTable), ctypes.POINTER(ctypes.c_uint))
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


@functools.cache
def connect_nvtx_tool() -> RangeMarker | None:
    """Connect to the tool that records this process, and return its range marker; None without a tool."""
    path = os.environ.get(INJECTION_VARIABLE)
    # The variable names a 64-bit library.
    if not path or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(path)
        return _connect_tool(library, library.InitializeInjectionNvtx2)
    return None


def _connect_tool(library: ctypes.CDLL, initialize: Any) -> RangeMarker | None:
    """Connect to the tool by its entry point, and return its range marker; None if it records no ranges."""
    slots = {module: (ctypes.c_void_p * count)() for module, count in MODULE_SLOTS.items()}
    tables = {module: (ctypes.c_void_p * (len(module_slots) + 1))() for module, module_slots in slots.items()}
    for module, module_slots in slots.items():
        for n in range(1, len(module_slots)):
            tables[module][n] = ctypes.addressof(module_slots) + n * ctypes.sizeof(ctypes.c_void_p)

    def get_table(module: int, table: Any, size: Any) -> int:
        """Give a tool the table of slots of an NVTX module; return 0 for an unknown module."""
        if module not in tables:
            return 0
        if size:
            size[0] = len(slots[module])
        if table:
            table[0] = ctypes.cast(tables[module], _SlotTable)
        return 1

    callbacks = _Callbacks(ctypes.sizeof(_Callbacks), _GetTable(get_table))
    version = _VersionInfo(ctypes.sizeof(_VersionInfo), NVTX_VERSION, 0, _SetVersion(lambda _: None))
    exports = {CALLBACKS_TABLE: ctypes.addressof(callbacks), VERSION_TABLE: ctypes.addressof(version)}
    get_export = _GetExport(lambda number: exports.get(number))
    initialize.argtypes, initialize.restype = [_GetExport], ctypes.c_int
    if not initialize(get_export):
        return None
    push, pop = slots[CORE_MODULE][RANGE_PUSH_SLOT], slots[CORE_MODULE][RANGE_POP_SLOT]
    if not push or not pop:
        return None
    call_push = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(push)
    call_pop = ctypes.CFUNCTYPE(ctypes.c_int)(pop)
    references = (library, slots, tables, callbacks, version, get_export)
    return RangeMarker(lambda name: call_push(name.encode()), call_pop, references)
