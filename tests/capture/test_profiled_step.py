"""Does ``profiled_step`` mark the one step in the right order, for torch and without it, and never stand in the way?"""

import ctypes
import importlib
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import pytest_nsys
from pytest_nsys.capture import profiling
from pytest_nsys.capture.profiling import NO_MARKER, NO_PROFILER, ProfilerControl, RangeMarker, profiled_step
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.traces.trace_files import open_trace
from tests.support.fake_nsys import needs_nsys

LABEL = "rank=0; pp=0/1 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"


@pytest.fixture(autouse=True)
def _from_the_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No torch, no tool, nothing found or warned of before."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delenv(profiling.INJECTION_VARIABLE, raising=False)
    for cached in (profiling._find_cudart_profiler, profiling._warn_once, profiling.connect_nvtx_tool):
        cached.cache_clear()
    yield
    for cached in (profiling._find_cudart_profiler, profiling._warn_once, profiling.connect_nvtx_tool):
        cached.cache_clear()


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is called, in order, with everything there."""
    calls: list[str] = []
    marker = RangeMarker(lambda name: calls.append(f"push {name}"), lambda: calls.append("pop"))
    names = ("start", "stop", "finish", "meet")
    profiler = ProfilerControl(*(lambda name=name: calls.append(name) for name in names))
    monkeypatch.setattr(profiling, "find_marker", lambda: marker)
    monkeypatch.setattr(profiling, "find_profiler", lambda: profiler)
    return calls


def test_one_step_is_profiled_with_its_label_inside_of_the_recording(done: list[str]) -> None:
    profiled = []
    for step in range(8):
        with profiled_step(step, warmup=5, label=LABEL) as now:
            done.append(f"step {step}")
        profiled += [step] if now else []
    assert profiled == [5]
    before, after = [f"step {n}" for n in range(5)], ["step 6", "step 7"]
    began = ["finish", "start", f"push {LABEL}", "pop", "push ProfilerStep#5"]
    assert done == [*before, *began, "step 5", "finish", "pop", "meet", "stop", *after]


def test_several_steps_are_one_recording(done: list[str]) -> None:
    for step in range(4):
        with profiled_step(step, warmup=1, steps=2):
            pass
    assert done == [
        *("finish", "start", "push ProfilerStep#1", "finish", "pop"),
        *("push ProfilerStep#2", "finish", "pop", "meet", "stop"),
    ]


def test_a_step_that_fails_stops_the_recording_and_waits_for_nobody(done: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), profiled_step(0, warmup=0, steps=2):
        raise ZeroDivisionError
    assert done == ["finish", "start", "push ProfilerStep#0", "pop", "stop"]


@pytest.mark.parametrize(("step", "warmup", "steps"), [(-1, 5, 1), (0, -1, 1), (0, 5, 0)])
def test_what_cannot_be_meant(step: int, warmup: int, steps: int) -> None:
    with pytest.raises(ValueError, match="at least 0, 0 and 1"), profiled_step(step, warmup, steps=steps):
        pass


def test_the_label_and_the_range_are_what_gates_look_for() -> None:
    setup = BUILT_IN_CONVENTIONS["pithtrain"].parse_setup(LABEL)
    assert setup is not None
    assert setup.rank == 0


def test_where_nothing_is_there_one_warning_each_and_the_loop_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_load_cudart", lambda: None)
    ran = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(6):
            with profiled_step(step, warmup=1, steps=3, label=LABEL):
                ran.append(step)
    assert ran == list(range(6))
    assert [str(w.message).split(":")[0] for w in caught] == [
        "profiled_step names nothing",
        "profiled_step cannot start the profiler",
    ]
    assert {(w.category, w.filename) for w in caught} == {(RuntimeWarning, __file__)}


def test_steps_that_are_not_profiled_look_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "find_marker", lambda: pytest.fail("looked for"))
    with profiled_step(4) as profiled:
        assert not profiled


# torch


def torch_with(calls: list[str], *, cuda: bool = True, ranks: bool = False) -> types.SimpleNamespace:
    cudart = types.SimpleNamespace(
        cudaProfilerStart=lambda: calls.append("start"), cudaProfilerStop=lambda: calls.append("stop")
    )
    nvtx = types.SimpleNamespace(
        range_push=lambda name: calls.append(f"push {name}"), range_pop=lambda: calls.append("pop")
    )
    return types.SimpleNamespace(
        cuda=types.SimpleNamespace(
            is_available=lambda: cuda, nvtx=nvtx, cudart=lambda: cudart, synchronize=lambda: calls.append("finish")
        ),
        distributed=types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: ranks, barrier=lambda: calls.append("barrier")
        ),
    )


@pytest.mark.parametrize("ranks", [True, False])
def test_torch_is_used_where_it_is_imported(monkeypatch: pytest.MonkeyPatch, ranks: bool) -> None:
    calls: list[str] = []
    monkeypatch.setitem(sys.modules, "torch", torch_with(calls, ranks=ranks))
    with profiled_step(5):
        pass
    meet = ["barrier"] if ranks else []
    assert calls == ["finish", "start", "push ProfilerStep#5", "finish", "pop", *meet, "stop"]


@pytest.mark.parametrize(
    "torch", [torch_with([], cuda=False), types.SimpleNamespace()], ids=["no CUDA", "half imported"]
)
def test_a_torch_without_cuda_is_not_used(monkeypatch: pytest.MonkeyPatch, torch: object) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(profiling, "_load_cudart", lambda: None)
    assert profiling.find_marker() is NO_MARKER
    assert profiling.find_profiler() is NO_PROFILER


def test_torch_is_not_imported() -> None:
    code = "import sys, pytest_nsys; pytest_nsys.profiled_step(0).__enter__(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "pytest_nsys.capture.profiling" in loaded
    assert not loaded & {"torch", "pytest", "click", "yaml", "sqlite3"}


def test_the_package_gives_it_again_and_again() -> None:
    assert pytest_nsys.profiled_step is profiled_step
    importlib.import_module("pytest_nsys.capture.profiling")
    assert pytest_nsys.profiled_step is profiled_step


# The CUDA runtime


def test_the_runtime_that_is_there_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    names = {"start": "cudaProfilerStart", "stop": "cudaProfilerStop", "finish": "cudaDeviceSynchronize"}
    runtime = types.SimpleNamespace(**{name: lambda what=what: calls.append(what) for what, name in names.items()})
    monkeypatch.setattr(profiling, "_load_cudart", lambda: runtime)
    with pytest.warns(RuntimeWarning, match="names nothing"), profiled_step(5):
        pass
    assert calls == ["finish", "start", "finish", "stop"]


def test_a_library_that_is_loaded_already_is_found() -> None:
    found = profiling._list_loaded_libraries("c")
    assert found
    assert all(Path(path).is_file() for path in found)


# The tool that records


def test_without_a_tool_there_is_no_client() -> None:
    assert profiling.connect_nvtx_tool() is None


@pytest.mark.parametrize("path", ["/no/such/library.so", "libc.so.6"])
def test_what_is_no_tool_is_left_alone(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv(profiling.INJECTION_VARIABLE, path)
    assert profiling.connect_nvtx_tool() is None


@pytest.mark.parametrize("willing", [True, False])
def test_a_tool_gets_the_slots_that_it_fills(willing: bool) -> None:
    """What a tool does when it is initialised: ask for the table of the core module, and put its functions there."""
    calls: list[str] = []
    kept: list[object] = []

    def initialize(get_export: object) -> int:
        if not willing:
            return 0
        version = profiling._VersionInfo.from_address(get_export(profiling.VERSION_TABLE))  # type: ignore[operator]
        assert (version.size, version.version) == (ctypes.sizeof(version), 3)
        assert get_export(99) is None  # type: ignore[operator]
        callbacks = profiling._Callbacks.from_address(get_export(profiling.CALLBACKS_TABLE))  # type: ignore[operator]
        table, size = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_uint()
        assert callbacks.get_table(77, ctypes.byref(table), ctypes.byref(size)) == 0
        assert callbacks.get_table(profiling.CORE_MODULE, ctypes.byref(table), ctypes.byref(size)) == 1
        assert size.value == 16
        assert (table[0], table[16]) == (None, None)  # the unused number, and the end
        push = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(lambda name: calls.append(name.decode()))
        pop = ctypes.CFUNCTYPE(None)(lambda: calls.append("pop"))
        kept.extend((push, pop))
        for number, function in ((profiling.RANGE_PUSH_SLOT, push), (profiling.RANGE_POP_SLOT, pop)):
            slot = table[number]
            assert slot is not None
            ctypes.c_void_p.from_address(slot).value = ctypes.cast(function, ctypes.c_void_p).value
        return 1

    client = profiling._connect_tool(ctypes.CDLL(None), initialize)
    assert (client is not None) == willing
    if client is not None:
        client.push("schritt ü")
        client.pop()
        assert calls == ["schritt ü", "pop"]


def test_a_tool_that_fills_nothing_is_no_client() -> None:
    def initialize(_: object) -> int:
        return 1

    assert profiling._connect_tool(ctypes.CDLL(None), initialize) is None


@needs_nsys
def test_a_real_nsys_records_the_step_and_its_label(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        dedent(
            f"""
            import warnings
            from pytest_nsys import profiled_step
            warnings.simplefilter("ignore")
            for step in range(4):
                with profiled_step(step, warmup=1, steps=2, label="{LABEL}"):
                    pass
            """
        )
    )
    words = ["nsys", "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", f"--output={tmp_path / 'run'}"]
    subprocess.run([*words, sys.executable, program], check=True, capture_output=True)
    trace = open_trace(tmp_path / "run.nsys-rep")
    (ranges,) = trace.ranges(["rank=%", "ProfilerStep#%"]).values()
    trace.close()
    assert [r.name for r in ranges] == [LABEL, "ProfilerStep#1", "ProfilerStep#2"]
    assert all(r.start_ns < r.end_ns for r in ranges)
