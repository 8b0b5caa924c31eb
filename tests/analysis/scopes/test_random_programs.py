"""Does each kernel of a random program have the module that a naive reader of its calls finds, forward and backward?"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.scopes.process_scopes import KernelLaunch, ProcessScopes
from pytest_nsys.core.model import Range, Stream
from pytest_nsys.core.scopes import DIRECTIONS, ScopeKind
from pytest_nsys.core.tables import NO_RANGES, NO_SEQUENCE, Kernels, LaunchCalls, OpCalls, ProgramRecords, Ranges

MAIN, AUTOGRAD = 1, 2


@dataclass
class Program:
    """Calls, as they are recorded, and the launches of kernels among them."""

    now: int = 0
    modules: list[Range] = field(default_factory=list)
    ops: list[tuple[Range, int, bool]] = field(default_factory=list)  # its number of autograd, whether it is backward
    launches: list[tuple[int, int]] = field(default_factory=list)  # time and thread

    def tick(self) -> int:
        self.now += 10
        return self.now

    def call(self, depth: int, shape: list[int], sequence: int) -> int:
        """A module with ops inside, some of which nest under one number, and perhaps a module inside it."""
        start, number = self.tick(), len(self.modules)
        self.modules.append(Range(start, start, MAIN, f"M{number}_0"))
        for nested in shape:
            sequence += 1
            begins = [self.tick() for _ in range(1 + nested % 3)]
            self.launches.append((self.tick(), MAIN))
            if nested >= 3 and depth:
                sequence = self.call(depth - 1, shape[1:], sequence)
            for begin in reversed(begins):
                self.ops.append((Range(begin, self.tick(), MAIN, "aten::mm"), sequence, False))
        self.modules[number] = self.modules[number]._replace(end_ns=self.tick())
        return sequence

    def run_backward(self, sequences: list[int]) -> None:
        """Ops of the backward pass, each with one inside that says nothing, which launches."""
        for sequence in sequences:
            outer, inner = self.tick(), self.tick()
            self.launches.append((self.tick(), AUTOGRAD))
            self.ops.append((Range(inner, self.tick(), AUTOGRAD, "aten::mm"), NO_SEQUENCE, False))
            self.ops.append((Range(outer, self.tick(), AUTOGRAD, "MmBackward0"), sequence, True))

    def records(self) -> ProgramRecords:
        spans, sequences, backward = zip(*self.ops, strict=True) if self.ops else ((), (), ())
        calls = OpCalls(
            Ranges.from_ranges(spans),
            array("q", sequences),
            bytearray(backward),
            array("q", [5 if each else 0 for each in backward]),
        )
        return ProgramRecords(NO_RANGES, Ranges.from_ranges(self.modules), calls)

    def launch(self) -> KernelLaunch:
        count = len(self.launches)
        times, threads = (array("q", column) for column in zip(*self.launches, strict=True))
        numbers, zeros = array("q", range(count)), array("q", bytes(8 * count))
        kernels = Kernels(times, times, numbers, zeros, zeros, zeros, (Stream(0, 0, 7),), {0: "gemm"}, bytearray(count))
        return KernelLaunch(kernels, *2 * [LaunchCalls(times, times, threads)])

    # -- what a naive reader finds

    def path_at(self, time: int) -> str:
        around = sorted(each for each in self.modules if each.start_ns <= time <= each.end_ns)
        return "/".join(each.name.removesuffix("_0") for each in around)

    def expected(self, time: int, thread: int) -> tuple[str, str]:
        if thread == MAIN:
            return self.path_at(time), "forward"
        sequence = next(
            number for span, number, backward in self.ops if backward and span.start_ns <= time <= span.end_ns
        )
        forward = [
            span.start_ns
            for span, number, backward in self.ops
            if not backward and number == sequence and span.start_ns < time and number != NO_SEQUENCE
        ]
        return (self.path_at(max(forward)) if forward else ""), "backward"


shapes = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=3)


@given(st.lists(st.tuples(shapes, st.lists(st.integers(1, 12), max_size=6)), min_size=1, max_size=3), st.booleans())
def test_modules_of_random_programs(steps: list[tuple[list[list[int]], list[int]]], counts_on: bool) -> None:
    program, sequence = Program(), 0
    for models, backward in steps:
        for shape in models:
            # Autograd may count on, or begin anew where graphs were freed: then numbers come again.
            sequence = program.call(2, shape, sequence if counts_on else 0)
        program.run_backward(backward)
    scopes, launch = ProcessScopes(program.records(), NO_RANGES), program.launch()
    codes, tree = scopes.find_scopes(ScopeKind.MODULE, launch)
    directions = scopes.find_directions(launch)
    found = [
        (tree.texts[max(code, 0)], str(DIRECTIONS[direction]))
        for code, direction in zip(codes, directions, strict=True)
    ]
    assert found == [program.expected(*each) for each in program.launches]
