"""Which operations does a kernel depend on, directly or through others, that may still have run after a given time?

An operation depends on the one before it on its stream, and on what its stream waited for before it. An operation that
started by the given time was already running, so whatever it waited for had ended: its dependencies are not followed.
One that starts at or after its consumer contradicts the trace, and is no producer.

A wait holds back what is launched on its stream after it; the next operation launched there is its consumer, and later
ones wait for that one anyway. A wait is for the last operation launched on the recording stream before the record, and
for what that stream waited for between the two.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from pytest_nsys.analysis.budget.operations import NO_OPERATION, Operations
from pytest_nsys.core.columns import (
    Column,
    concatenate_columns,
    count_edges_before,
    expand_stretches,
    fill_column,
    find_nonzero,
    find_zeros,
    group_indices_by,
    mark_equal,
    sort_indices,
    subtract,
    take,
    take_maximum,
)
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM, Stream
from pytest_nsys.core.tables import LaunchPlace, StreamWait

LatestOperations = tuple[tuple[int, int], ...]
"""(time, operation) of a few operations, the latest first."""


class ReachedOperations(NamedTuple):
    """Holds operations that kernels depend on, sorted by kernel, start and stream."""

    owners: Column  # the index of the kernel that depends on each operation
    operations: Column
    contradicted_count: int  # number of kernels that, by the trace, depend on an operation that starts later


class Dependencies:
    """Finds what the operations of one table depend on.

    A position is an index into ``_sorted_rows``, where the operations of an ordered stream follow each other by start.
    """

    def __init__(self, operations: Operations, waits: Sequence[StreamWait]) -> None:
        self._operations, self._wait_graph, line = (
            operations,
            _WaitGraph(operations, waits),
            _number_order_lines(operations),
        )
        self._sorted_rows = sorted_rows = sort_indices(line, operations.work.start_ns, operations.work.end_ns)
        self._position = fill_column(sorted_rows, array("q", range(len(sorted_rows))), len(sorted_rows), 0)
        self._start_ns, self._line = take(operations.work.start_ns, sorted_rows), take(line, sorted_rows)
        self._consumer_positions = array(
            "q", sorted(self._position[consumer] for consumer in self._wait_graph.last_wait_before)
        )

    def find_dependencies(self, waiting_kernels: Column, since_ns: Column) -> ReachedOperations:
        """Find what kernels depend on that may have run after a time; ``since_ns`` has a time before each kernel's
        start.
        """
        kernel_positions = take(self._position, waiting_kernels)
        running_positions, line_starts = self._find_running(kernel_positions, since_ns)
        owners, positions = expand_stretches(take_maximum(running_positions, line_starts), kernel_positions)
        operations = take(self._sorted_rows, positions)
        owners_with_waits = find_nonzero(
            subtract(
                count_edges_before(self._consumer_positions, kernel_positions),
                count_edges_before(self._consumer_positions, running_positions),
            )
        )
        if not owners_with_waits:
            return ReachedOperations(owners, operations, 0)
        contradicted_count = 0
        for owner in owners_with_waits:
            further_operations, is_contradicted = self._follow_waits(waiting_kernels[owner], since_ns[owner])
            contradicted_count += is_contradicted
            owners += array("q", [owner]) * len(further_operations)
            operations += array("q", further_operations)
        work = self._operations.work
        stream_order = {stream: index for index, stream in enumerate(sorted(work.streams))}
        of_streams = take(array("q", [stream_order[stream] for stream in work.streams]), take(work.stream, operations))
        by_owner = sort_indices(owners, take(work.start_ns, operations), of_streams)
        return ReachedOperations(take(owners, by_owner), take(operations, by_owner), contradicted_count)

    def _find_running(self, kernel_positions: Column, since_ns: Column) -> tuple[Column, Column]:
        """Return for each position the last one of its line that had started by the given time, and where the line
        begins.

        If none had started, it is the position before the line.
        """
        lines, ones = take(self._line, kernel_positions), array("q", [1]) * len(kernel_positions)
        line_starts, running_positions = (
            count_edges_before(self._line, subtract(lines, ones)),
            subtract(kernel_positions, ones),
        )
        for line_members in group_indices_by(
            lambda line: line, lines, subset=find_nonzero(subtract(kernel_positions, line_starts))
        ).values():
            low, high = line_starts[line_members[0]], max(take(kernel_positions, line_members))
            for i, started_count in zip(
                line_members, count_edges_before(self._start_ns[low:high], take(since_ns, line_members)), strict=True
            ):
                running_positions[i] = low + started_count - 1
        return running_positions, line_starts

    def _follow_waits(self, kernel: int, since_ns: int) -> tuple[Sequence[int], bool]:
        """Return what a kernel depends on through waits, and whether the trace contradicts any of it."""
        start_ns, operations, is_contradicted = self._operations.work.start_ns, list[int](), False
        open_operations, followed_until = [(-start_ns[kernel], kernel)], dict[int, int]()
        open_consumers, visited_nodes, known_producers = list[tuple[int, int]](), set[int](), set[int]()
        # Later consumers come first, so no producer of an earlier one is found twice.
        while open_operations or open_consumers:
            if open_consumers and (not open_operations or open_consumers[0] <= open_operations[0]):
                _, consumer = heappop(open_consumers)
                is_contradicted |= self._wait_graph.is_contradicted(consumer)
                for producer in self._wait_graph.find_producers(consumer, since_ns, visited_nodes):
                    if producer not in known_producers and start_ns[producer] < start_ns[consumer]:
                        operations.append(producer)
                        if start_ns[producer] > since_ns:
                            heappush(open_operations, (-start_ns[producer], producer))
                    known_producers.add(producer)
                continue
            position = self._position[heappop(open_operations)[1]]
            line = self._line[position]
            line_start = bisect_left(self._line, line)
            last_position = max(
                bisect_right(self._start_ns, since_ns, line_start, position) - 1, followed_until.get(line, -1)
            )
            if position > last_position:
                followed_until[line] = position
                operations += self._sorted_rows[max(last_position, line_start) : position]
                new_consumers = slice(
                    bisect_right(self._consumer_positions, last_position),
                    bisect_right(self._consumer_positions, position),
                )
                for consumer_position in self._consumer_positions[new_consumers]:
                    heappush(open_consumers, (-self._start_ns[consumer_position], self._sorted_rows[consumer_position]))
        return operations, is_contradicted


def _number_order_lines(operations: Operations) -> Column:
    """Number the line of each operation: its stream or, if the stream keeps no order, a line of its own."""
    lines = operations.work.stream[:]
    for number, stream in enumerate(operations.work.streams):
        if stream.number == NO_STREAM or stream in operations.unordered_streams:
            for i in find_nonzero(mark_equal(operations.work.stream, number)):
                lines[i] = len(operations.work.streams) + i
    return lines


class _WaitGraph:
    """Links what operations waited for on other streams, as far as the trace joins waits with records.

    Waits and records are nodes, linked from those that they follow; an operation is attached to the record that follows
    it. ``last_wait_before`` is the last wait before each operation that waited.
    """

    def __init__(self, operations: Operations, waits: Sequence[StreamWait]) -> None:
        self._start_ns, self._end_ns = operations.work.start_ns, operations.work.end_ns
        self.last_wait_before: dict[int, int] = {}
        self._operation_at: dict[int, int] = {}
        leads_to = self._link_nodes(operations, waits)
        self._predecessors: list[list[int]] = [[] for _ in leads_to]
        for node, followers in enumerate(leads_to):
            for follower in followers:
                self._predecessors[follower].append(node)
        self._latest_end = self._find_latest(self._end_ns, leads_to, 2)
        self._latest_start = self._find_latest(self._start_ns, leads_to, 1)

    def find_producers(self, consumer: int, after_ns: int, visited_nodes: set[int]) -> Iterator[int]:
        """Yield the operations that a waiting one depends on and that end after a time, except at visited nodes.

        For a node that only one such operation reaches, the result is precomputed, so long chains are not walked.
        """
        open_nodes = [self.last_wait_before[consumer]]
        while open_nodes:
            node = open_nodes.pop()
            if node in visited_nodes:
                continue
            visited_nodes.add(node)
            operations = [operation for end_ns, operation in self._latest_end[node] if end_ns > after_ns]
            if len(operations) > 1:
                open_nodes += self._predecessors[node]
                own_operation = self._operation_at.get(node, NO_OPERATION)
                operations = (
                    [own_operation] if own_operation != NO_OPERATION and self._end_ns[own_operation] > after_ns else []
                )
            yield from operations

    def is_contradicted(self, consumer: int) -> bool:
        """Return whether, according to the trace, an operation waited for one that starts at or after it."""
        latest = self._latest_start[self.last_wait_before[consumer]]
        return bool(latest) and latest[0][0] >= self._start_ns[consumer]

    def _link_nodes(self, operations: Operations, waits: Sequence[StreamWait]) -> list[list[int]]:
        """Return the nodes that each node leads to.

        A record leads to its waits, and a wait to the next wait and to records, as long as no operation is launched on
        their stream in between.
        """
        records = [
            (wait.recorded_stream, wait.recorded_place)
            for wait in waits
            if wait.recorded_stream and wait.recorded_place
        ]
        nodes = {record: node for node, record in enumerate(dict.fromkeys(records), len(waits))}
        leads_to: list[list[int]] = [[] for _ in range(len(waits) + len(nodes))]
        for wait, record in enumerate(records):
            leads_to[nodes[record]].append(wait)
        streams, sorted_nodes, launched_operations, preceding_counts = _sort_by_launch(
            operations, [(wait.stream, wait.place) for wait in waits], list(nodes)
        )
        previous_wait, operation_streams = (
            (NO_OPERATION, NO_OPERATION, NO_OPERATION),
            take(operations.work.stream, launched_operations),
        )
        for node, count in zip(sorted_nodes, preceding_counts, strict=True):
            if previous_wait[1:] == (streams[node], count):
                leads_to[previous_wait[0]].append(node)
            if node < len(waits):
                previous_wait = node, streams[node], count
                if count < len(launched_operations) and operation_streams[count] == streams[node]:
                    self.last_wait_before[launched_operations[count]] = node
            elif count and operation_streams[count - 1] == streams[node]:
                self._operation_at[node] = launched_operations[count - 1]
        return leads_to

    def _find_latest(
        self, time_ns: Column, leads_to: Sequence[Sequence[int]], count: int
    ) -> Sequence[LatestOperations]:
        """Return, for each node, the operations with the latest times that reach it, at most ``count``."""
        # Few operations per node: cycles terminate, and long chains cost nothing. For ends two, so that one operation
        # which outlasts all others does not hide the rest.
        latest_by_node: list[LatestOperations] = [()] * len(leads_to)
        for node, operation in sorted(self._operation_at.items(), key=lambda item: -time_ns[item[1]]):
            time_and_operation, open_nodes = (time_ns[operation], operation), [node]
            while open_nodes:
                reached_node = open_nodes.pop()
                if len(latest_by_node[reached_node]) < count and time_and_operation not in latest_by_node[reached_node]:
                    latest_by_node[reached_node] = (*latest_by_node[reached_node], time_and_operation)
                    open_nodes += leads_to[reached_node]
        return latest_by_node


_StreamMark = tuple[Stream, LaunchPlace]


def _sort_by_launch(
    operations: Operations, waits: Sequence[_StreamMark], records: Sequence[_StreamMark]
) -> tuple[Column, Column, Column, Column]:
    """Sort waits, records and operations by launch, stream by stream.

    Return the stream number of each wait and record, the sorted waits and records, the sorted operations, and the
    number of operations before each wait or record.
    """
    marks = [*waits, *records]
    stream_numbers = {
        stream: i
        for i, stream in enumerate(dict.fromkeys((*operations.work.streams, *(stream for stream, _ in marks))))
    }
    streams = array("q", [stream_numbers[stream] for stream, _ in marks])
    launches, correlations = (array("q", [place[key] for _, place in marks]) for key in (0, 1))
    launched_rows = find_zeros(mark_equal(operations.launch_ns, NO_LAUNCH))
    operation_columns = (
        take(column, launched_rows)
        for column in (operations.work.stream, operations.launch_ns, operations.work.correlation)
    )
    columns = [
        concatenate_columns(column_pair)
        for column_pair in zip((streams, launches, correlations), operation_columns, strict=True)
    ]
    kinds = array("q", [1]) * len(waits) + array("q", [0]) * len(records) + array("q", [2]) * len(launched_rows)
    zeros = array("q", bytes(8 * len(marks)))
    sorted_rows = sort_indices(*columns, kinds, zeros + take(operations.work.start_ns, launched_rows))
    is_operation = mark_equal(take(kinds, sorted_rows), 2)
    operation_rows, mark_rows = find_nonzero(is_operation), find_zeros(is_operation)
    return (
        streams,
        take(sorted_rows, mark_rows),
        take(zeros + launched_rows, take(sorted_rows, operation_rows)),
        count_edges_before(operation_rows, mark_rows),
    )
