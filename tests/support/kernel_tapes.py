"""Kernels from a text, a letter each: what the search for steps is tried with."""

from array import array
from collections.abc import Sequence

from pytest_nsys.analysis.windows.kernel_anchors import KernelLaunches, KernelOrder, order_kernels
from pytest_nsys.core.model import NO_LAUNCH, Stream
from pytest_nsys.core.tables import Kernels
from tests.support.samples.builder import Process

KERNEL_NS, EVERY_NS = 800, 1000
LAYER = "abcdefgh"
STEP = f"t{LAYER * 6}lo"
"""Fifty-one kernels: a batch, layers that repeat, a loss, an optimizer."""


OPTIMIZER = "O"
"""The kernel that a training step ends with, by its name."""


def play(process: Process, text: str, *, start_ns: int = 10_000, every_ns: int = EVERY_NS, launch: bool = True) -> int:
    """Write a kernel for each letter, one after the other; when the next would start. A blank is a pause."""
    for letter in text:
        if letter != " ":
            name = "adam_kernel" if letter == OPTIMIZER else f"kernel_{letter}"
            process.kernel(name, start_ns, start_ns + KERNEL_NS, launch=launch)
        start_ns += every_ns
    return start_ns


def kernel_ns(number: int) -> int:
    """How long a kernel of this number takes on a tape, at least."""
    return 100 + 37 * (number % 20)


def tape(names: Sequence[int], *, shift_ns: int = 0, spelled: Sequence[str] = (), launched: bool = True) -> KernelOrder:
    """Kernels in memory, of numbered names: those of a number have one length, give or take what their place says."""
    numbers = array("q", names)
    texts = dict(enumerate(spelled)) or {number: f"kernel_{number}" for number in sorted(set(numbers))}
    starts = array("q", [shift_ns + 1000 * place for place in range(len(numbers))])
    ends = array("q", [s + kernel_ns(n) + p * 7 % 5 for p, (s, n) in enumerate(zip(starts, numbers, strict=True))])
    zeros = array("q", bytes(8 * len(numbers)))
    launches = array("q", [start - 500 if launched else NO_LAUNCH for start in starts])
    flags = bytearray(len(numbers))
    kernels = Kernels(starts, ends, zeros, zeros, numbers, numbers, (Stream(0, 0, 7),), texts, flags)
    return order_kernels(KernelLaunches(kernels, launches))
