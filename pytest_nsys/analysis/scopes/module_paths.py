"""Which path has each call of a module that a profiler recorded, by classes, without the names of attributes?

A module is numbered by its occurrence among those of its class under its parent, in the order of the calls:
``TransformerBlock[3]``; the only one bears no number. The numbers that torch.profiler appends (``OAIAttention_3``) only
tell instances apart: they depend on which was called first in the capture. Regions that were compiled are called
``GraphModule`` and say nothing: they are left out of paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pytest_nsys.analysis.scopes.span_tree import SpanTree
from pytest_nsys.core.columns import NO_SPAN
from pytest_nsys.core.scopes import ROOT, UNATTRIBUTED_REASONS, ScopeTree, UnattributedReason

_INSTANCE_NUMBER = re.compile(r"(?<=.)_\d+\Z")
_COMPILED_CLASS = "GraphModule"

IN_COMPILED_REGION = -1 - UNATTRIBUTED_REASONS.index(UnattributedReason.IN_COMPILED_REGION)
"""The code of a call that only compiled regions lie around."""


class ModulePaths:
    """Gives each recorded call of a module its path. Those of one process are one tree.

    ``is_recomputed`` says of a call without one around it whether the backward pass made it: such calls follow in
    :meth:`add_recomputed`, when it is known where the forward pass was.
    """

    def __init__(self, calls: SpanTree, is_recomputed: Sequence[int]) -> None:
        self._calls = calls
        self._classes = [_INSTANCE_NUMBER.sub("", name) for name in calls.spans.names]
        # By parent and class: which instances there are, in the order of their first calls.
        self._parents: list[int] = [ROOT]
        self._keys: list[tuple[str, int] | None] = [None]
        self._numbers: dict[tuple[int, str, int], int] = {}
        self._occurrences: dict[tuple[int, str], int] = {}
        self._places = [ROOT] * len(calls)
        self._place_by_instance: dict[int, int] = {}
        self._instances_by_call: dict[tuple[int, str], dict[int, int]] = {}
        self._deferred: list[int] = []
        roots_in_order = sorted(
            (i for i, parent in enumerate(calls.parents) if parent == NO_SPAN),
            key=lambda i: (calls.spans.start_ns[i], i),
        )
        children: list[list[int]] = [[] for _ in range(len(calls))]
        for i, parent in enumerate(calls.parents):
            if parent != NO_SPAN:
                children[parent].append(i)
        self._children = children
        for i in roots_in_order:
            if is_recomputed[i]:
                self._deferred.append(i)
            else:
                self._add_calls(i, ROOT, NO_SPAN)

    def add_recomputed(self, find_forward_place: Callable[[int], int]) -> None:
        """Give a path to the calls that the backward pass made: that of the same module in the forward pass, else one
        below the place that it belongs to.
        """
        for i in self._deferred:
            known_place = self._place_by_instance.get(self._calls.spans.name[i])
            if known_place is not None:
                self._places[i] = known_place
                for child in self._children[i]:
                    self._add_calls(child, known_place, i)
            else:
                self._add_calls(i, max(find_forward_place(i), ROOT), NO_SPAN)
        self._deferred = []

    def _add_calls(self, first_call: int, first_place: int, caller: int) -> None:
        """Place a call and all calls inside it, the earlier first."""
        waiting = [(first_call, first_place, caller)]
        while waiting:
            i, parent_place, parent_call = waiting.pop()
            place = self._place_call(i, parent_place, parent_call)
            self._places[i] = place
            if place > ROOT:
                self._place_by_instance[self._calls.spans.name[i]] = place
            # What a compiled region calls is counted as a call of the module around the region.
            counted_caller = parent_call if self._is_compiled(i) else i
            waiting += [(child, place, counted_caller) for child in reversed(self._children[i])]

    def _is_compiled(self, i: int) -> bool:
        return self._classes[self._calls.spans.name[i]] == _COMPILED_CLASS

    def _place_call(self, i: int, parent_place: int, parent_call: int) -> int:
        class_name = self._classes[self._calls.spans.name[i]]
        if self._is_compiled(i):
            return parent_place if parent_place > ROOT else IN_COMPILED_REGION
        parent_place = max(parent_place, ROOT)
        # Among those that this call of the parent made: what is outside of any is counted over the whole capture.
        instances = self._instances_by_call.setdefault((parent_call, class_name), {})
        occurrence = instances.setdefault(self._calls.spans.name[i], len(instances))
        key = parent_place, class_name, occurrence
        if key not in self._numbers:
            self._numbers[key] = len(self._parents)
            self._parents.append(parent_place)
            self._keys.append((class_name, occurrence))
            count = self._occurrences.get((parent_place, class_name), 0)
            self._occurrences[parent_place, class_name] = max(count, occurrence + 1)
        return self._numbers[key]

    def place_calls(self) -> Sequence[int]:
        """Return the place of each call: one of :meth:`add_to_tree`, ROOT or IN_COMPILED_REGION."""
        return self._places

    def add_to_tree(self, tree: ScopeTree) -> list[int]:
        """Add all paths to a tree, and return the number there of each place."""
        numbers = [ROOT]
        for parent, key in zip(self._parents[1:], self._keys[1:], strict=True):
            assert key is not None
            class_name, occurrence = key
            is_only = self._occurrences[parent, class_name] == 1
            numbers.append(tree.add(numbers[parent], class_name if is_only else f"{class_name}[{occurrence}]"))
        return numbers
