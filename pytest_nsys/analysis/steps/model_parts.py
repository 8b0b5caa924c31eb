"""Which parts of a model repeat, and how often, by the calls of its modules and the ranges named after them?

Kernels that repeat may be a step, a layer or half a layer; only a part's name proves that they are a part. A module
that is called several times inside one call of another module is a part of it: a layer or a block, never a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_nsys.analysis.steps.search_result import RepeatedPart
from pytest_nsys.core.arrays import numpy
from pytest_nsys.core.columns import Vector, as_vector
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Interval, Range
from pytest_nsys.core.tables import Ranges

MIN_MODULE_SHARE = 0.25
"""The minimum share of the outermost module's launches that a part must have to count as what repeats in it."""

MODULE_CALL_PREFIX = "nn.Module: "
_MODULE_CALL = re.compile(rf"{re.escape(MODULE_CALL_PREFIX)}(.+?)(?:_\d+)?")
"""Matches the name that torch.profiler gives a module's call: its class, and the number of the instance."""

_CLASS_NAME = re.compile(r"([A-Z][a-z\d]*(?:[A-Z][a-z\d]*)+)(?:_\d+)?(?:\.forward)?")
"""Matches a range that a hook pushes for a module, named by its class with at least two capitals:
``LlamaDecoderLayer``.
"""

_PHASE_WORDS = re.compile(
    r"(?i)step|iter|epoch|batch|train|loop|run|profil|bench|phase|test|valid|eval|optim|load|request|warm|measur|infer"
    r"|generat|predict|prefill|decode(?!r)|forward|backward|pass|comput|main|data|sampl|rollout"
)
"""Matches words for a program's own phases, which people may also write like class names."""

_LAYER_WORDS = r"layer|block|attention|attn|mlp|expert|moe"
_PART_OF_MODEL = re.compile(f"(?i){_LAYER_WORDS}")

_DOTTED_NUMBER = re.compile(r"([^\W\d]\w*)\.(\d+)(?!\w)")
"""Matches a numbered module as PyTorch writes its path: ``layers.3``."""

_LABELLED_NUMBER = re.compile(rf"(?i)\b(\w*?(?:{_LAYER_WORDS})s?)[_ #]?(\d+)(?![\w.])")
"""Matches a numbered module as people write it: ``layer_3``, ``DecoderLayer 3``."""

_DIGITS_IN_NAME = re.compile(r"\d+")


def parse_part_numbers(name: str) -> list[tuple[str, str]]:
    """Return the (word, number) of each numbered module in the name of a range."""
    numbers: list[tuple[str, str]] = _DOTTED_NUMBER.findall(name) if "." in name else []
    # few names have such a word, and the search for one is much faster
    return numbers + _LABELLED_NUMBER.findall(name) if _PART_OF_MODEL.search(name) else numbers


def count_numbered_parts(names: Iterable[str], word: str) -> int:
    """Count the modules that a word numbers: the most different numbers among ranges of one shape."""
    numbers_by_shape: dict[str, set[str]] = {}
    for name in names:
        for part_word, number in parse_part_numbers(name) if word in name else ():
            if part_word == word:
                numbers_by_shape.setdefault(_DIGITS_IN_NAME.sub("%", name), set()).add(number)
    return max(map(len, numbers_by_shape.values()), default=0)


def find_holder(times_ns: Vector, starts_ns: Vector, ends_ns: Vector) -> int | None:
    """Return the index of the span that holds most of the times, which ascend.

    It is None if any span holds exactly one of the times: each span that holds one must hold several.
    """
    counts = times_ns.searchsorted(ends_ns) - times_ns.searchsorted(starts_ns)
    return int(counts.argmax()) if counts.any() and counts[counts > 0].min() > 1 else None


class ModuleCalls:
    """Holds the module calls of one process; on each thread, every call knows the call around it.

    ``recorded_calls`` are those that the profiler recorded as such; ``ranges`` are all ranges, some of which may be
    calls.
    """

    def __init__(self, recorded_calls: Iterable[Range], ranges: Ranges) -> None:
        classes = _find_module_classes(ranges.names)
        is_call = numpy.array([name in classes for name in ranges.names], numpy.bool_)
        rows = numpy.flatnonzero(is_call[as_vector(ranges.name)]) if classes else ()
        calls = sorted(
            [*recorded_calls, *(ranges[int(row)] for row in rows)],
            # If two calls begin at the same time, the longer one encloses the other.
            key=lambda call: (call.thread, call.start_ns, -call.end_ns),
        )
        self.classes = [_parse_module_class(call.name) or classes.get(call.name, call.name) for call in calls]
        self.starts_ns, self.ends_ns = numpy.array([call[:2] for call in calls], numpy.int64).reshape(-1, 2).T
        by_class = group_by_key((name, position) for position, name in enumerate(self.classes))
        self.positions_by_class = {name: numpy.array(positions) for name, positions in by_class.items()}
        self.inner_calls: list[list[int]] = [[] for _ in calls]
        self.outermost: list[int] = []
        open_calls: list[int] = []
        for position, call in enumerate(calls):
            while open_calls and not (
                calls[open_calls[-1]].thread == call.thread and call.start_ns < calls[open_calls[-1]].end_ns
            ):
                open_calls.pop()
            (self.inner_calls[open_calls[-1]] if open_calls else self.outermost).append(position)
            open_calls.append(position)

    def find_holder_class(self, times_ns: Vector) -> str | None:
        """Return the class whose calls each hold several of the ascending times, if they hold any; None if there is no
        such class.
        """
        holders = (
            (name, find_holder(times_ns, self.starts_ns[positions], self.ends_ns[positions]))
            for name, positions in self.positions_by_class.items()
        )
        return next((name for name, holder in holders if holder is not None), None)

    def count_calls(self, name: str) -> int:
        """Return how often modules of a class are called."""
        return len(self.positions_by_class[name])

    def is_called_once_between(self, name: str, times_ns: Vector) -> bool:
        """Return whether exactly one call of a class begins between any two successive times; the times ascend."""
        call_starts_ns = numpy.sort(self.starts_ns[self.positions_by_class[name]])
        return bool((numpy.diff(call_starts_ns.searchsorted(times_ns)) == 1).all())

    def find_repeated_modules(self, launch_times_ns: Vector, step: Interval | None = None) -> RepeatedPart | None:
        """Find the modules that are called several times in each call of their holder; of several such, those that
        launch most.

        ``launch_times_ns`` ascend. ``step`` is the only step; without it the outermost modules are passed over, because
        they may be steps. Returns None if the number of calls differs between holders.
        """
        launch_counts = launch_times_ns.searchsorted(self.ends_ns) - launch_times_ns.searchsorted(self.starts_ns)
        holders: Mapping[str | None, Sequence[Sequence[int]]]
        min_launches: Mapping[str | None, float]
        if step is None:
            by_class = group_by_key((self.classes[i], i) for i in self.outermost)
            holders = {name: [self.inner_calls[i] for i in calls] for name, calls in by_class.items()}
            min_launches = {name: MIN_MODULE_SHARE * launch_counts[calls].sum() for name, calls in by_class.items()}
        else:
            start, stop = launch_times_ns.searchsorted((step[0], step[1] + 1))
            holders = {None: [[i for i in self.outermost if step[0] <= self.starts_ns[i] <= step[1]]]}
            min_launches = {None: MIN_MODULE_SHARE * (stop - start)}
        options = [
            (total, RepeatedPart(name, number, holder, len(groups)))
            for holder, groups in holders.items()
            for total, name, number in self._list_repeated_classes(groups, launch_counts)
            if total >= min_launches[holder]
        ]
        total, part = max(options, key=lambda option: option[0], default=(0, None))
        return part if total and part is not None and part.part_count else None

    def _list_repeated_classes(
        self, groups: Sequence[Sequence[int]], launch_counts: Vector
    ) -> Iterator[tuple[int, str, int]]:
        """Yield (launches, class, number of calls per group) of the classes called several times in groups of calls.

        Classes that each group calls once are searched in turn. The number is 0 if the groups differ.
        """
        for name in dict.fromkeys(self.classes[i] for group in groups for i in group):
            calls_by_group = [[i for i in group if self.classes[i] == name] for group in groups]
            counts = {len(calls) for calls in calls_by_group}
            all_calls = [i for calls in calls_by_group for i in calls]
            if max(counts) > 1:
                yield int(launch_counts[all_calls].sum()), name, counts.pop() if len(counts) == 1 else 0
            else:
                yield from self._list_repeated_classes([self.inner_calls[i] for i in all_calls], launch_counts)


def _parse_module_class(name: str) -> str | None:
    """Return the class of the module whose call a range is, by its name; None if the range is no module call."""
    match = _MODULE_CALL.fullmatch(name)
    return None if match is None else match[1]


def _find_module_classes(names: Sequence[str]) -> dict[str, str]:
    """Return the module class of each range that is a module call, by the range's name.

    Ranges named like classes count only if one of them names a part of a model; otherwise they may be anything.
    """
    class_by_name = {
        name: class_name
        for name in names
        if name.startswith(MODULE_CALL_PREFIX) and (class_name := _parse_module_class(name)) is not None
    }
    # Any range may be named like a class; one that names a part of a model shows that they are modules.
    matches = ((name, _CLASS_NAME.fullmatch(name)) for name in names)
    like_classes = {
        name: match[1] for name, match in matches if match is not None and not _PHASE_WORDS.search(match[1])
    }
    if any(_PART_OF_MODEL.search(name) for name in like_classes):
        class_by_name |= like_classes
    return class_by_name
