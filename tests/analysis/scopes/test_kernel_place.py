"""Is the place of a kernel named that many layers share, and of a kernel that became slower?"""

from pathlib import Path

import pytest

from pytest_nsys.analysis.scopes.kernel_place import find_kernel_place
from pytest_nsys.core.scopes import Direction, KernelPlace, ScopeKind
from tests.analysis.scopes.test_changed_scope import FAULTS
from tests.analysis.scopes.test_paths import whole_run
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.scope_programs import WRITERS, name_module


def is_any(_short: str, _full: str) -> bool:
    return True


@pytest.mark.parametrize("format_name", WRITERS)
def test_a_shared_kernel_that_became_slower_is_placed_where_it_did(tmp_path: Path, format_name: str) -> None:
    name, write = WRITERS[format_name]
    base = write(tmp_path / f"base_{name}", None)
    for number, (layer, module, direction) in enumerate(FAULTS[::5]):
        head = write(tmp_path / f"{number}_{name}", {(layer, module, direction): 1.2})
        with whole_run(base) as before, whole_run(head) as after:
            place = find_kernel_place(after, is_any, before)
            assert place is not None
            assert (place.kind, place.pattern, place.direction) == (
                ScopeKind.MODULE,
                name_module(format_name, layer, module),
                direction,
            )
            # Launched in all modules of all layers, in both passes, it is each layer's.
            anywhere = find_kernel_place(after, is_any)
            assert anywhere is not None
            layers = name_module(format_name, 0, module).rpartition("." if format_name == "nsys" else "/")[0]
            assert (anywhere.pattern, anywhere.direction) == (layers.replace("0", "*"), None)


def test_a_kernel_of_all_layers_is_placed_by_a_pattern_and_its_line(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("Model_0", 1_000, 90_000)
    trace.event("python_function", "model.py(212): forward", 1_500, 89_000, args={})
    for layer in range(3):
        start = 10_000 * (layer + 1)
        trace.module(f"Block_{layer}", start, start + 9_000)
        trace.kernel("flash", 100_000 + start, 105_000 + start, launch_ns=start + 100, launch_length_ns=10)
        trace.module(f"Norm_{layer}", start + 200, start + 900)
        trace.module(f"Mlp_{layer}", start + 1_000, start + 1_900)
        for place, inner in enumerate((start + 300, start + 1_100)):
            begin = 200_000 + start + 1_000 * place
            trace.kernel("reduce", begin, begin + 500, launch_ns=inner, launch_length_ns=10)
    trace.kernel("embed", 150_000, 151_000, launch_ns=2_000, launch_length_ns=10)
    trace.write(path := tmp_path / "trace.json")
    with whole_run(path) as window:
        line = "model.py(212): forward"
        assert find_kernel_place(window, lambda short, _: short == "flash") == KernelPlace(
            ScopeKind.MODULE, "Model/Block[*]", Direction.FORWARD, line
        )
        assert find_kernel_place(window, lambda short, _: short == "embed") == KernelPlace(
            ScopeKind.MODULE, "Model", Direction.FORWARD, line
        )
        # Launched by two modules of each block, it is the block's.
        assert find_kernel_place(window, lambda short, _: short == "reduce") == KernelPlace(
            ScopeKind.MODULE, "Model/Block[*]", Direction.FORWARD, line
        )
        assert find_kernel_place(window, lambda short, _: short == "none") is None


def test_a_kernel_of_the_whole_model_has_no_place(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.module("Model_0", 1_000, 90_000)
    for place, module in enumerate(("Embedding_0", "Block_0", "Head_0")):
        start = 10_000 * (place + 1)
        trace.module(module, start, start + 9_000)
        trace.kernel("gemm", 100_000 + start, 105_000 + start, launch_ns=start + 100, launch_length_ns=10)
    trace.write(path := tmp_path / "trace.json")
    with whole_run(path) as window:
        assert find_kernel_place(window, is_any) is None


def test_without_scopes_there_is_no_place(tmp_path: Path) -> None:
    (trace := TraceBuilder()).process().kernel("gemm", 10_000, 20_000)
    with whole_run(Path(trace.write(tmp_path / "trace.sqlite"))) as window:
        assert find_kernel_place(window, is_any) is None
