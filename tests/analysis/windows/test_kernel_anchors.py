"""Where does a kernel begin a window? In the order of launches, and only the first kernel of a launch."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.windows.kernel_anchors import KernelOrder, order_kernels
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, KernelAnchor
from pytest_nsys.core.workload import Workload
from tests.support.one_process import OneProcess


@contextmanager
def ordered(trace: OneProcess) -> Iterator[KernelOrder]:
    """The order of the only rank."""
    with closing(CaptureCache()) as library:
        run = library.open_one_run([trace.__fspath__()], Path(), BUILT_IN_CONVENTIONS["generic"], Workload()).runs[0]
        yield order_kernels(run.load_whole_run().tracks[0])


def names(found: KernelOrder, places: Sequence[int]) -> list[str]:
    return [found.get_names(place)[0] for place in places]


def test_a_kernel_begins_a_window_in_the_order_of_launches(gpu: OneProcess) -> None:
    for step in range(3):
        gpu.kernel("late", 1000 * step + 500, 1000 * step + 600, launch_ns=1000 * step + 1)
        gpu.kernel("early", 1000 * step + 100, 1000 * step + 200, launch_ns=1000 * step + 2)
    with ordered(gpu) as found:
        assert found.is_by_launch
        assert names(found, range(6)) == ["late", "early"] * 3
        assert list(found.find_occurrences(KernelAnchor("early"))) == [1, 3, 5]
        assert list(found.find_occurrences(KernelAnchor("late", "early"))) == [2, 4]
        assert list(found.find_occurrences(KernelAnchor("late", "late"))) == []
        assert list(found.find_occurrences(KernelAnchor("other"))) == []


def test_a_demangled_name_tells_templates_apart(gpu: OneProcess) -> None:
    for step, full in enumerate(("gemm<1>", "gemm<2>", "gemm<1>")):
        gpu.kernel("gemm", 100 * step + 50, 100 * step + 60, demangled=full)
    with ordered(gpu) as found:
        assert list(found.find_occurrences(KernelAnchor("gemm"))) == [0, 1, 2]
        assert list(found.find_occurrences(KernelAnchor("gemm<1>"))) == [0, 2]
        assert found.get_names(1) == ("gemm", "gemm<2>")


def test_of_a_graph_only_the_first_kernel_begins_a_window(gpu: OneProcess) -> None:
    for step in range(2):
        graph = gpu.kernel("a", 1000 * step + 100, 1000 * step + 200, graph_node=1)
        for place in range(2, 5):
            gpu.kernel("a", 1000 * step + 100 * place, 1000 * step + 100 * place + 50, graph_node=2, correlation=graph)
    with ordered(gpu) as found:
        assert list(found.find_occurrences(KernelAnchor("a"))) == [0, 4]
        assert list(found.find_occurrences(KernelAnchor("a", "a"))) == [4]


def test_without_launches_kernels_stand_by_their_start_and_a_graph_is_told_by_its_correlation(gpu: OneProcess) -> None:
    for step in range(2):
        gpu.kernel("eager", 1000 * step + 10, 1000 * step + 20, launch=False)
        for place in range(1, 4):
            start = 1000 * step + 100 * place
            gpu.kernel("node", start, start + 50, launch=False, graph_node=place, correlation=900 + step)
    with ordered(gpu) as found:
        assert not found.is_by_launch
        assert list(found.times_ns)[:2] == [10, 100]
        assert list(found.find_occurrences(KernelAnchor("node"))) == [1, 5]
        assert list(found.find_occurrences(KernelAnchor("eager", "node"))) == [4]


def test_the_few_kernels_without_a_launch_are_left_out(gpu: OneProcess) -> None:
    for step in range(20):
        gpu.kernel("step", 100 * step + 50, 100 * step + 60)
    gpu.kernel("lost", 55, 58, launch=False)
    with ordered(gpu) as found:
        assert found.is_by_launch
        assert len(found.kernels) == 20
