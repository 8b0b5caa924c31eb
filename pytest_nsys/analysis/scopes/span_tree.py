"""Which span of the host was innermost on a thread at a moment, and which spans lie around it?"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from pytest_nsys.core.columns import (
    Column,
    as_vector,
    clip,
    find_distinct_rows,
    find_enclosing_spans,
    find_nonzero,
    mark_equal,
    nest_spans,
    sort_indices,
    subtract,
    take,
)
from pytest_nsys.core.scopes import ROOT, ScopeTree
from pytest_nsys.core.tables import Ranges

_FAR_NS = 1 << 61
"""No time of a trace lies beyond it, and lengths of spans that are cut there fit into a column."""


class SpanTree:
    """Nests spans of the host by thread: calls of operators, of modules or of functions.

    ``order`` are their rows in the table that they came from, ``parents`` the index of the span around each.
    """

    def __init__(self, spans: Ranges) -> None:
        negative_lengths = subtract(clip(spans.start_ns, -_FAR_NS, _FAR_NS), clip(spans.end_ns, -_FAR_NS, _FAR_NS))
        self.order = sort_indices(spans.thread, spans.start_ns, negative_lengths)
        self.spans = spans.take(self.order)
        self.parents, self.depths = nest_spans(self.spans.thread, self.spans.start_ns, self.spans.end_ns)

    def __len__(self) -> int:
        return len(self.spans)

    def find_innermost(self, threads: Column, times_ns: Column) -> Column:
        """Return the index of the innermost span on each thread at each time; NO_SPAN without one."""
        columns = self.spans.thread, self.spans.start_ns, self.spans.end_ns, self.parents
        return find_enclosing_spans(columns, threads, times_ns)

    def number_scopes(self, tree: ScopeTree, format_name: Callable[[str], str]) -> Column:
        """Add the path of each span to a tree, and return its number there."""
        name_codes: dict[str, int] = {}
        codes_by_name = array(
            "q", [name_codes.setdefault(format_name(name), len(name_codes)) for name in self.spans.names]
        )
        codes, elements = take(codes_by_name, self.spans.name), [*name_codes]
        numbers = array("q", [ROOT]) * len(self)
        # A span is as deep as there are spans around it, so that each level only needs the one above.
        for depth in range(max(self.depths, default=-1) + 1):
            level = find_nonzero(mark_equal(self.depths, depth))
            parents = take(self.parents, level)
            parent_numbers = array("q", [ROOT]) * len(level) if not depth else take(numbers, parents)
            rows, pairs = find_distinct_rows(parent_numbers, take(codes, level))
            level_numbers = take(array("q", [tree.add(parent, elements[code]) for parent, code in pairs]), rows)
            as_vector(numbers)[as_vector(level)] = as_vector(level_numbers)
        return numbers


def look_up(values: Column, indices: Column, missing: int) -> Column:
    """Return the value at each index; ``missing`` for NO_SPAN."""
    return take(array("q", [missing]) + array("q", values), array("q", (as_vector(indices) + 1).tobytes()))
