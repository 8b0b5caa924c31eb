"""Which scope of each kind launched the kernels of a process, and in which pass?

Modules, operators and lines of source are those of the launching thread. Ranges are those of any thread of the process,
the shortest of those that hold the launch being the innermost, as for stages: the autograd thread launches inside the
ranges of the main thread. So are modules that a program marks with ranges.

The autograd thread calls no module. An operator of the backward pass has the sequence number of its forward operator;
what it launches belongs to the module and the line in which that one ran. Of several forward operators of that number,
which nest, it is the innermost: the last that began before, on the thread that the backward operator names. Inside an
operator of the backward pass, a forward operator or the call of a module runs the forward pass again: *recompute*.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.scopes.module_paths import ModulePaths
from pytest_nsys.analysis.scopes.range_names import parse_module_range, sort_ranges_by_kind, strip_op_arguments
from pytest_nsys.analysis.scopes.span_tree import SpanTree, look_up
from pytest_nsys.core.arrays import numpy
from pytest_nsys.core.columns import (
    NO_SPAN,
    Column,
    as_vector,
    count_edges_before,
    find_distinct_rows,
    find_innermost,
    find_nonzero,
    find_zeros,
    list_open_spans,
    mark_equal,
    sort_indices,
    take,
)
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS
from pytest_nsys.core.scopes import (
    DIRECTIONS,
    ROOT,
    UNATTRIBUTED_REASONS,
    Direction,
    ScopeKind,
    ScopeTree,
    UnattributedReason,
    find_direction_word,
)
from pytest_nsys.core.tables import NO_RANGES, NO_SEQUENCE, KernelOrigin, Kernels, LaunchCalls, ProgramRecords, Ranges
from pytest_nsys.traces.trace_queries import is_not_nccl_range

NO_LAUNCH_CODE, OUTSIDE_CODE, IN_GRAPH_CODE, _ = (
    -1 - UNATTRIBUTED_REASONS.index(reason) for reason in UnattributedReason
)
_NUMBER_BY_DIRECTION = {direction: number for number, direction in enumerate(DIRECTIONS)}
FORWARD, BACKWARD, RECOMPUTE, NO_DIRECTION = (_NUMBER_BY_DIRECTION[direction] for direction in Direction)


class KernelScopes(NamedTuple):
    """Holds the scope of each kernel: its number in the tree, or ``-1 - number of the UnattributedReason``."""

    codes: Column
    tree: ScopeTree


class KernelLaunch(NamedTuple):
    """Holds where the program issued kernels."""

    kernels: Kernels
    calls: LaunchCalls
    replays: LaunchCalls  # of kernels of a CUDA graph its launch: ``calls`` itself where none was issued elsewhere


class _ForwardOps:
    """Finds the forward operator of an operator of the backward pass."""

    def __init__(self, tree: SpanTree, sequence: Column, forward_thread: Column, kinds: Column) -> None:
        self._tree = tree
        spans = tree.spans
        self._starts: dict[tuple[int, int], list[int]] = {}
        self._ops: dict[tuple[int, int], list[int]] = {}
        threads_by_sequence: dict[int, set[int]] = {}
        in_order = sort_indices(spans.start_ns)
        self._order = in_order
        for i in in_order:
            if kinds[i] == FORWARD and sequence[i] != NO_SEQUENCE:
                key = sequence[i], spans.thread[i]
                self._starts.setdefault(key, []).append(spans.start_ns[i])
                self._ops.setdefault(key, []).append(i)
                threads_by_sequence.setdefault(sequence[i], set()).add(spans.thread[i])
        # The profiler's own numbers of threads stand nowhere else: the thread of most forward ops with its numbers.
        votes: dict[int, Counter[int]] = {}
        for i in find_nonzero(mark_equal(kinds, BACKWARD)):
            threads = threads_by_sequence.get(sequence[i], ())
            votes.setdefault(forward_thread[i], Counter()).update(threads)
        self._thread_by_number = {
            number: max(counts, key=lambda thread: (counts[thread], -thread))
            for number, counts in votes.items()
            if number and counts
        }
        self._threads_by_sequence = threads_by_sequence

    def find_op(self, sequence: int, forward_thread: int, before_ns: int) -> int:
        """Return the forward op with a sequence number that began last before a moment; NO_SPAN without one."""
        threads: Iterable[int] = self._threads_by_sequence.get(sequence, ())
        if forward_thread in self._thread_by_number:
            threads = [self._thread_by_number[forward_thread]]
        candidates: list[tuple[int, int]] = []
        for thread in threads:
            starts = self._starts.get((sequence, thread), [])
            if position := bisect_left(starts, before_ns):
                candidates.append((starts[position - 1], self._ops[sequence, thread][position - 1]))
        return max(candidates, default=(0, NO_SPAN))[1]


class _Passes(NamedTuple):
    """Holds, by op, which pass it runs in and what it belongs to there."""

    directions: Column  # FORWARD, BACKWARD, RECOMPUTE or NO_DIRECTION
    # The op of the backward or forward pass that decides it: the op itself or one around it; NO_SPAN without one.
    deciders: Column
    forward_ops: Mapping[int, int]  # of a deciding op of the backward pass its forward op
    enclosing: Mapping[int, int]  # of an op that runs the forward pass again the op of the backward pass around it


class ProcessScopes:
    """Finds the scopes of the kernels of one process."""

    def __init__(
        self, records: ProgramRecords | None, ranges: Ranges, is_label: Callable[[str], object] = lambda _: False
    ) -> None:
        """Take what a trace records of the program; without it the names of ``ranges`` say what each is.

        ``is_label`` says which ranges only label the process, and are no scopes; nor are those of NCCL.
        """
        self._has_module_calls = records is not None and records.ranges is not None
        if records is None or records.ranges is None:
            records = sort_ranges_by_kind(ranges)
        named_ranges = NO_RANGES if records.ranges is None else records.ranges
        flags = bytearray(is_not_nccl_range(name) and not is_label(name) for name in named_ranges.names)
        self._ranges = named_ranges.take(find_nonzero(take(flags, named_ranges.name)))
        self._records = records

    @cached_property
    def _ops(self) -> SpanTree:
        return SpanTree(self._records.ops.spans)

    @cached_property
    def _module_calls(self) -> SpanTree:
        return SpanTree(self._records.modules)

    @cached_property
    def _functions(self) -> SpanTree:
        return SpanTree(self._records.functions)

    # -- passes

    @cached_property
    def _passes(self) -> _Passes:
        ops, tree = self._records.ops, self._ops
        sequence, forward_thread = take(ops.sequence, tree.order), take(ops.forward_thread, tree.order)
        is_backward = take(ops.is_backward, tree.order)
        own = array("q", [NO_DIRECTION]) * len(tree)
        for i in find_zeros(mark_equal(sequence, NO_SEQUENCE)):
            own[i] = FORWARD
        for i in find_nonzero(is_backward):
            own[i] = BACKWARD
        linked_ops = self._find_linked_ops(sequence, own)
        directions, deciders = array("q"), array("q")
        enclosing: dict[int, int] = {}
        for i, parent in enumerate(tree.parents):
            around = NO_DIRECTION if parent == NO_SPAN else directions[parent]
            decider = NO_SPAN if parent == NO_SPAN else deciders[parent]
            if own[i] == BACKWARD:
                around, decider = BACKWARD, i
            elif own[i] == FORWARD:
                if around == BACKWARD:
                    enclosing[i] = decider
                elif around == RECOMPUTE:
                    enclosing[i] = enclosing[decider]
                around, decider = RECOMPUTE if around in (BACKWARD, RECOMPUTE) else FORWARD, i
            directions.append(around)
            deciders.append(decider)
        finder = _ForwardOps(tree, sequence, forward_thread, own)
        forward_ops: dict[int, int] = {}
        for i in find_nonzero(mark_equal(own, BACKWARD)):
            op = linked_ops.get(i, NO_SPAN)
            if sequence[i] != NO_SEQUENCE:
                op = finder.find_op(sequence[i], forward_thread[i], tree.spans.start_ns[i])
            parent = tree.parents[i]
            if op == NO_SPAN and parent != NO_SPAN and directions[parent] == BACKWARD:
                op = forward_ops.get(deciders[parent], NO_SPAN)  # an op inside one that says more
            if op != NO_SPAN:
                forward_ops[i] = op
        return _Passes(directions, deciders, forward_ops, enclosing)

    @property
    def lacks_forward_ops(self) -> bool:
        """Whether an op of the backward pass names a forward op that is not among those that were read."""
        passes, sequence = self._passes, take(self._records.ops.sequence, self._ops.order)
        return any(
            passes.directions[i] == BACKWARD and passes.deciders[i] == i and i not in passes.forward_ops
            for i in find_zeros(mark_equal(sequence, NO_SEQUENCE))
        )

    def _find_linked_ops(self, sequence: Column, own: Column) -> Mapping[int, int]:
        """Return the forward op of each op that an arrow leads to, where it has no sequence number; mark both."""
        if not (links := self._records.links):
            return {}
        threads, times, forward_threads, forward_times = (array("q", column) for column in zip(*links, strict=True))
        backward_ops = self._ops.find_innermost(threads, times)
        forward_ops = self._ops.find_innermost(forward_threads, forward_times)
        linked_ops = {}
        for op, forward_op in zip(backward_ops, forward_ops, strict=True):
            if NO_SPAN not in (op, forward_op) and sequence[op] == NO_SEQUENCE:
                own[op], own[forward_op], linked_ops[op] = BACKWARD, FORWARD, forward_op
        return linked_ops

    def find_directions(self, launch: KernelLaunch) -> Column:
        """Return the number of the direction of each kernel."""
        ops = self._ops.find_innermost(launch.calls.thread, launch.calls.start_ns)
        calls = self._module_calls.find_innermost(launch.calls.thread, launch.calls.start_ns)
        directions = as_vector(look_up(self._passes.directions, ops, NO_DIRECTION)).copy()
        is_called = as_vector(calls) != NO_SPAN
        # What calls a module runs it forward; where it was the backward pass that did, again.
        recomputing = as_vector(look_up(self._recomputing_calls, calls, 0)) == 1
        directions[(directions == BACKWARD) & recomputing] = RECOMPUTE
        is_unknown = directions == NO_DIRECTION
        directions[is_unknown & is_called] = FORWARD
        is_unknown &= ~is_called
        if is_unknown.any():
            directions[is_unknown] = as_vector(self._find_stated_directions(launch))[is_unknown]
        for i, origin in self._iterate_origins(launch):
            if origin.direction is not None:
                directions[i] = _NUMBER_BY_DIRECTION[origin.direction]
        return array("q", directions.tobytes())

    def _find_stated_directions(self, launch: KernelLaunch) -> Column:
        """Return the direction that the innermost range that states one says, around each launch."""
        ranges = self._ranges
        words = [find_direction_word(name) for name in ranges.names]
        code_by_name = array("q", [0 if word is None else 1 + _NUMBER_BY_DIRECTION[word] for word in words])
        codes = self._find_innermost_codes(ranges, take(code_by_name, ranges.name), launch)
        return take(array("q", [NO_DIRECTION, *range(len(DIRECTIONS))]), codes)

    @staticmethod
    def _find_innermost_codes(ranges: Ranges, codes: Column, launch: KernelLaunch) -> Column:
        """Return the code of the shortest range with one that holds each launch, on any thread; 0 without one."""
        order = sort_indices(ranges.start_ns, ranges.end_ns)
        coded = take(order, find_nonzero(take(codes, order)))
        edges, edge_codes, _ = find_innermost(
            *(take(column, coded) for column in (ranges.start_ns, ranges.end_ns, ranges.thread, codes))
        )
        return take(edge_codes, count_edges_before(edges, launch.calls.start_ns))

    def _iterate_origins(self, launch: KernelLaunch) -> Iterator[tuple[int, KernelOrigin]]:
        """Yield the index of each kernel that says something of itself, and what it says."""
        origins = self._records.origins
        if origins:
            for i, key in enumerate(zip(launch.kernels.correlation, launch.kernels.start_ns, strict=True)):
                if (origin := origins.get(key)) is not None:
                    yield i, origin

    # -- scopes

    def find_scopes(self, kind: ScopeKind, launch: KernelLaunch) -> KernelScopes:
        """Return the scope of each kernel, of any kind but a stage."""
        tree = ScopeTree()
        find_numbers: Callable[[KernelLaunch, ScopeTree], Column] = {
            ScopeKind.MODULE: self._find_modules,
            ScopeKind.OP: self._find_ops,
            ScopeKind.RANGE: self._find_ranges,
            ScopeKind.SOURCE: self._find_sources,
        }[kind]
        numbers = find_numbers(launch, tree)
        if kind is ScopeKind.RANGE:
            numbers = self._add_launching_ranges(numbers, launch, tree)
        codes = mark_unattributed(numbers, launch)
        for i, origin in self._iterate_origins(launch):
            if kind is ScopeKind.MODULE and origin.module_path is not None:
                codes[i] = tree.add_path(origin.module_path, origin.separator)
            elif kind is ScopeKind.OP and origin.op is not None:
                codes[i] = tree.add(ROOT, origin.op)
            elif kind is ScopeKind.SOURCE and origin.source is not None:
                codes[i] = tree.add(ROOT, origin.source)
        return KernelScopes(codes, tree)

    def _find_ops(self, launch: KernelLaunch, tree: ScopeTree) -> Column:
        ops = self._ops.find_innermost(launch.calls.thread, launch.calls.start_ns)
        return look_up(self._ops.number_scopes(tree, strip_op_arguments), ops, ROOT)

    def _find_ranges(self, launch: KernelLaunch, tree: ScopeTree) -> Column:
        """Return the path of all ranges that hold a launch, the longest outermost."""
        ranges = self._ranges
        order = sort_indices(ranges.start_ns, ranges.end_ns)
        start, end, name = (take(column, order) for column in (ranges.start_ns, ranges.end_ns, ranges.name))
        ends = as_vector(end)
        edges = array("q", numpy.unique(numpy.concatenate([as_vector(start), ends[ends < OPEN_END_NS] + 1])).tobytes())
        # Between two edges the same ranges are open: one launch stands for all.
        numbers, distinct_cells = find_distinct_rows(count_edges_before(edges, launch.calls.start_ns))
        moments = array("q", [edges[cell - 1] if cell else NO_LAUNCH for (cell,) in distinct_cells])
        owners, spans = list_open_spans(start, end, moments)
        names, places = take(name, spans), numpy.zeros(len(moments), numpy.int64)
        counts = numpy.bincount(as_vector(owners), minlength=len(moments))
        firsts = counts.cumsum() - counts
        for depth in range(int(counts.max(initial=0))):
            deep = numpy.flatnonzero(counts > depth)
            level_names = take(names, array("q", (firsts[deep] + depth).tobytes()))
            rows, pairs = find_distinct_rows(array("q", places[deep].tobytes()), level_names)
            level = array("q", [tree.add(parent, ranges.names[n]) for parent, n in pairs])
            places[deep] = as_vector(take(level, rows))
        return take(array("q", places.tobytes()), numbers)

    def _add_launching_ranges(self, numbers: Column, launch: KernelLaunch, tree: ScopeTree) -> Column:
        """Return the scopes with those of graph nodes below the ranges in which their graph was launched."""
        if launch.calls is launch.replays:
            return numbers
        is_created = as_vector(launch.calls.start_ns) != as_vector(launch.replays.start_ns)
        created = array("q", numpy.flatnonzero(is_created).tobytes())
        replays = LaunchCalls(*(take(column, created) for column in launch.replays))
        launching = ScopeTree()
        launching_numbers = self._find_ranges(KernelLaunch(launch.kernels.take(created), replays, replays), launching)
        moved = numbers[:]
        number_by_pair: dict[tuple[int, int], int] = {}
        for i, around in zip(created, launching_numbers, strict=True):
            pair = around, numbers[i]
            if pair not in number_by_pair:
                outer, inner = launching.list_names(around), tree.list_names(numbers[i])
                names = [*outer, *(name for name in inner if name not in outer)]
                number_by_pair[pair] = tree.add_path(names)
            moved[i] = number_by_pair[pair]
        return moved

    # -- modules and lines, of which the backward pass has those of the forward pass

    @cached_property
    def _recomputing_calls(self) -> Column:
        """A flag for each call of a module: 1 if the backward pass made it, or a call around it."""
        calls = self._module_calls
        ops = self._ops.find_innermost(calls.spans.thread, calls.spans.start_ns)
        directions, flags = self._passes.directions, array("q")
        for op, parent in zip(ops, calls.parents, strict=True):
            in_backward = op != NO_SPAN and directions[op] in (BACKWARD, RECOMPUTE)
            flags.append(in_backward or (parent != NO_SPAN and flags[parent]))
        return flags

    def _find_modules(self, launch: KernelLaunch, tree: ScopeTree) -> Column:
        if not self._has_module_calls:
            return self._find_marked_modules(launch, tree)
        if not len(self._module_calls):
            return array("q", [ROOT]) * len(launch.kernels)
        paths = ModulePaths(self._module_calls, self._recomputing_calls)
        locate = _BackwardLocator(self._passes, self._ops, self._module_calls, paths.place_calls())
        paths.add_recomputed(lambda call: locate.find_place_around(self._module_calls, call))
        places = locate.find_places(launch)
        numbers = paths.add_to_tree(tree)
        # What only compiled regions lie around has the reason in place of a number.
        vector = as_vector(places)
        path_numbers = as_vector(array("q", numbers))[vector.clip(min=ROOT)]
        return array("q", numpy.where(vector < ROOT, vector, path_numbers).tobytes())

    def _find_marked_modules(self, launch: KernelLaunch, tree: ScopeTree) -> Column:
        """Return the modules that ranges mark around each launch, on any thread; of the backward pass around its
        forward op.
        """
        ranges = self._ranges
        paths = [parse_module_range(name) for name in ranges.names]
        code_by_name = array("q", [0 if path is None else tree.add_path(*path) for path in paths])
        codes = take(code_by_name, ranges.name)
        numbers = self._find_innermost_codes(ranges, codes, launch)
        missing = find_zeros(numbers)
        forward_ops = self._passes.forward_ops
        if missing and forward_ops:
            ops = self._ops.find_innermost(launch.calls.thread, launch.calls.start_ns)
            times = array("q", [self._find_forward_time(ops[i]) for i in missing])
            forward_calls = LaunchCalls(times, times, times)
            found = self._find_innermost_codes(ranges, codes, launch._replace(calls=forward_calls))
            for i, number in zip(missing, found, strict=True):
                numbers[i] = number
        return numbers

    def _find_forward_time(self, op: int) -> int:
        decider = NO_SPAN if op == NO_SPAN else self._passes.deciders[op]
        forward_op = self._passes.forward_ops.get(decider, NO_SPAN)
        return NO_LAUNCH if forward_op == NO_SPAN else self._ops.spans.start_ns[forward_op]

    def _find_sources(self, launch: KernelLaunch, tree: ScopeTree) -> Column:
        if not len(self._functions):
            return array("q", [ROOT]) * len(launch.kernels)
        numbers_by_name = array("q", [tree.add(ROOT, name) for name in self._functions.spans.names])
        places = take(numbers_by_name, self._functions.spans.name)
        return _BackwardLocator(self._passes, self._ops, self._functions, places).find_places(launch)


class _BackwardLocator:
    """Finds the place of each launch among the calls of one kind (of modules, of functions), in the pass that counts.

    ``places`` are those of the calls.
    """

    def __init__(self, passes: _Passes, ops: SpanTree, calls: SpanTree, places: Sequence[int]) -> None:
        self._passes, self._ops, self._calls, self._places = passes, ops, calls, places
        self._call_by_op = calls.find_innermost(ops.spans.thread, ops.spans.start_ns) if len(ops) else array("q")
        self._place_by_op: dict[int, int] = {}

    def find_place_of_op(self, op: int) -> int:
        """Return the place that an op belongs to: of the backward pass that of its forward op."""
        # An op of the backward pass of what ran again leads there, and from there to the first forward pass.
        trail: list[int] = []
        place = ROOT
        while op != NO_SPAN:
            if op in self._place_by_op:
                place = self._place_by_op[op]
                break
            trail.append(op)
            direction, decider = self._passes.directions[op], self._passes.deciders[op]
            if direction == BACKWARD:
                op = self._passes.forward_ops.get(decider, NO_SPAN)
                continue
            call = self._call_by_op[op]
            if direction == RECOMPUTE:
                around = self._passes.enclosing[decider]
                if call == NO_SPAN or self._calls.spans.start_ns[call] < self._ops.spans.start_ns[around]:
                    op = around
                    continue
            place = ROOT if call == NO_SPAN else self._places[call]
            break
        self._place_by_op |= dict.fromkeys(trail, place)
        return place

    def find_place_around(self, calls: SpanTree, call: int) -> int:
        """Return the place that the op around a call belongs to."""
        thread, start = array("q", [calls.spans.thread[call]]), array("q", [calls.spans.start_ns[call]])
        (op,) = self._ops.find_innermost(thread, start)
        return self.find_place_of_op(op)

    def find_places(self, launch: KernelLaunch) -> Column:
        """Return the place of each launch."""
        self._place_by_op.clear()  # calls may have got their places since
        threads, times = launch.calls.thread, launch.calls.start_ns
        calls, ops = self._calls.find_innermost(threads, times), self._ops.find_innermost(threads, times)
        places = as_vector(look_up(array("q", self._places), calls, ROOT)).copy()
        directions = as_vector(look_up(self._passes.directions, ops, NO_DIRECTION))
        for i in numpy.flatnonzero((directions == BACKWARD) | (directions == RECOMPUTE)).tolist():
            call, op = calls[i], ops[i]
            decider = self._passes.deciders[op]
            around = self._passes.enclosing.get(decider, decider)
            # What the backward pass itself called runs the forward pass again.
            if call == NO_SPAN or self._calls.spans.start_ns[call] < self._ops.spans.start_ns[around]:
                places[i] = self.find_place_of_op(op)
        return array("q", places.tobytes())


def mark_unattributed(numbers: Column, launch: KernelLaunch) -> Column:
    """Return the numbers of scopes as codes: for a kernel without a scope, the reason why it has none."""
    codes, has_none = as_vector(numbers).copy(), as_vector(numbers) == ROOT
    is_launched, is_node = as_vector(launch.calls.start_ns) != NO_LAUNCH, as_vector(launch.kernels.graph_node) == 1
    codes[has_none] = OUTSIDE_CODE
    codes[has_none & is_node] = IN_GRAPH_CODE
    codes[has_none & ~is_launched] = NO_LAUNCH_CODE
    return array("q", codes.tobytes())
