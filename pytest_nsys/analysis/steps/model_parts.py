"""Which parts of a model repeat, and how often, by the calls of its modules and the ranges named after them?

Kernels that repeat may be a step, a layer or half of one: only what carries the name of a part proves that it is one. A
module that is called several times inside one call of another is a part of that one: a layer, a block, never a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_nsys.analysis.steps.facts import RepeatedPart
from pytest_nsys.core.arrays import numpy
from pytest_nsys.core.columns import Vector, as_vector
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Interval, Range
from pytest_nsys.core.tables import Ranges

LEAST_SHARE = 0.25
"""The smallest share of the outermost module's launches that a part must have to say what repeats in it."""

MODULE = "nn.Module: "
_MODULE_CALL = re.compile(rf"{re.escape(MODULE)}(.+?)(?:_\d+)?")
"""Matches the name that torch.profiler gives a module's call: its class, and the number of the instance."""

_CLASS = re.compile(r"([A-Z][a-z\d]*(?:[A-Z][a-z\d]*)+)(?:_\d+)?(?:\.forward)?")
"""Matches a range that a hook pushes for a module, named by its class: two capitals at least, ``LlamaDecoderLayer``."""

_NO_MODULE = re.compile(
    r"(?i)step|iter|epoch|batch|train|loop|run|profil|bench|phase|test|valid|eval|optim|load|request|warm|measur|infer"
    r"|generat|predict|prefill|decode(?!r)|forward|backward|pass|comput|main|data|sampl|rollout"
)
"""Matches words of a program's own phases, which people also write like classes."""

_LAYER = r"layer|block|attention|attn|mlp|expert|moe"
_PART_OF_MODEL = re.compile(f"(?i){_LAYER}")

_DOTTED = re.compile(r"([^\W\d]\w*)\.(\d+)(?!\w)")
"""Matches a numbered module as PyTorch writes its path: ``layers.3``."""

_LABELLED = re.compile(rf"(?i)\b(\w*?(?:{_LAYER})s?)[_ #]?(\d+)(?![\w.])")
"""Matches a numbered module as people write it: ``layer_3``, ``DecoderLayer 3``."""

_NUMBER = re.compile(r"\d+")


def numbers_in(name: str) -> list[tuple[str, str]]:
    """Return the (word, number) of each numbered module in the name of a range."""
    numbers: list[tuple[str, str]] = _DOTTED.findall(name) if "." in name else []
    # of a million names few have such a word, and the search for one is much faster
    return numbers + _LABELLED.findall(name) if _PART_OF_MODEL.search(name) else numbers


def count_numbered(names: Iterable[str], word: str) -> int:
    """Count how many modules of a word run: the most different numbers among ranges of one shape."""
    numbers_by_shape: dict[str, set[str]] = {}
    for name in names:
        for part_word, number in numbers_in(name) if word in name else ():
            if part_word == word:
                numbers_by_shape.setdefault(_NUMBER.sub("%", name), set()).add(number)
    return max(map(len, numbers_by_shape.values()), default=0)


def find_holder(moments: Vector, starts: Vector, ends: Vector) -> int | None:
    """Return the index of the span that holds most of the times, which ascend; None unless each that holds one holds
    several.
    """
    counts = moments.searchsorted(ends) - moments.searchsorted(starts)
    return int(counts.argmax()) if counts.any() and counts[counts > 0].min() > 1 else None


class ModuleCalls:
    """Holds the module calls of one process, each inside the call around it on its thread.

    ``recorded_calls`` are those that the profiler recorded by itself, ``ranges`` all ranges, of which some may be
    calls.
    """

    def __init__(self, recorded: Iterable[Range], ranges: Ranges) -> None:
        classes = _classes_of(ranges.names)
        is_call = numpy.array([name in classes for name in ranges.names], numpy.bool_)
        rows = numpy.flatnonzero(is_call[as_vector(ranges.name)]) if classes else ()
        calls = sorted(
            [*recorded, *(ranges[int(row)] for row in rows)],
            # Of calls that begin at one moment the longer one is around the other.
            key=lambda call: (call.thread, call.start_ns, -call.end_ns),
        )
        self.classes = [_class_of(call.name) or classes.get(call.name, call.name) for call in calls]
        self.starts, self.ends = numpy.array([call[:2] for call in calls], numpy.int64).reshape(-1, 2).T
        by_class = grouped((name, position) for position, name in enumerate(self.classes))
        self.places = {name: numpy.array(positions) for name, positions in by_class.items()}
        self.inside: list[list[int]] = [[] for _ in calls]
        self.outermost: list[int] = []
        open_calls: list[int] = []
        for position, call in enumerate(calls):
            while open_calls and not (
                calls[open_calls[-1]].thread == call.thread and call.start_ns < calls[open_calls[-1]].end_ns
            ):
                open_calls.pop()
            (self.inside[open_calls[-1]] if open_calls else self.outermost).append(position)
            open_calls.append(position)

    def find_holder(self, moments: Vector) -> str | None:
        """Return the class whose calls hold several of the times each, where they hold one at all; None without one.

        The times ascend.
        """
        holders = (
            (name, find_holder(moments, self.starts[positions], self.ends[positions]))
            for name, positions in self.places.items()
        )
        return next((name for name, holder in holders if holder is not None), None)

    def count_calls(self, name: str) -> int:
        """Return how often modules of a class are called."""
        return len(self.places[name])

    def start_once(self, name: str, moments: Vector) -> bool:
        """Return whether one call of a class begins between each two of the times, which ascend."""
        call_starts_ns = numpy.sort(self.starts[self.places[name]])
        return bool((numpy.diff(call_starts_ns.searchsorted(moments)) == 1).all())

    def find_repeated(self, launches: Vector, step: Interval | None = None) -> RepeatedPart | None:
        """Find the modules that are called several times in each call of what holds them, of several those that launch
        most.

        ``launch_times_ns`` ascend; ``step`` is the only step there is. Without it nothing is said about the outermost
        modules, which may be steps. Returns None where their number differs.
        """
        launch_counts = launches.searchsorted(self.ends) - launches.searchsorted(self.starts)
        holders: Mapping[str | None, Sequence[Sequence[int]]]
        min_launches: Mapping[str | None, float]
        if step is None:
            by_class = grouped((self.classes[i], i) for i in self.outermost)
            holders = {name: [self.inside[i] for i in calls] for name, calls in by_class.items()}
            min_launches = {name: LEAST_SHARE * launch_counts[calls].sum() for name, calls in by_class.items()}
        else:
            start, stop = launches.searchsorted((step[0], step[1] + 1))
            holders = {None: [[i for i in self.outermost if step[0] <= self.starts[i] <= step[1]]]}
            min_launches = {None: LEAST_SHARE * (stop - start)}
        options = [
            (total, RepeatedPart(name, number, holder, len(groups)))
            for holder, groups in holders.items()
            for total, name, number in self._find_several(groups, launch_counts)
            if total >= min_launches[holder]
        ]
        total, part = max(options, key=lambda option: option[0], default=(0, None))
        return part if total and part is not None and part.number else None

    def _find_several(self, groups: Sequence[Sequence[int]], launched: Vector) -> Iterator[tuple[int, str, int]]:
        """Yield (launches, class, number in each group) of the classes called several times in groups of calls.

        It also looks inside classes that each group calls once. The number is 0 where groups differ.
        """
        for name in dict.fromkeys(self.classes[i] for group in groups for i in group):
            calls_by_group = [[i for i in group if self.classes[i] == name] for group in groups]
            counts = {len(calls) for calls in calls_by_group}
            all_calls = [i for calls in calls_by_group for i in calls]
            if max(counts) > 1:
                yield int(launched[all_calls].sum()), name, counts.pop() if len(counts) == 1 else 0
            else:
                yield from self._find_several([self.inside[i] for i in all_calls], launched)


def _class_of(name: str) -> str | None:
    """Return the class of a module whose call a name says it is, else None."""
    match = _MODULE_CALL.fullmatch(name)
    return None if match is None else match[1]


def _classes_of(names: Sequence[str]) -> dict[str, str]:
    """Return the class of each range that is the call of a module, by the range's name.

    Ranges named like classes count only where one of them names a part of a model: else they may be anything.
    """
    class_by_name = {
        name: class_name for name in names if name.startswith(MODULE) and (class_name := _class_of(name)) is not None
    }
    # Anybody may call a range like a class: one that names a part of a model shows that they are modules.
    matches = ((name, _CLASS.fullmatch(name)) for name in names)
    like_classes = {name: match[1] for name, match in matches if match is not None and not _NO_MODULE.search(match[1])}
    if any(_PART_OF_MODEL.search(name) for name in like_classes):
        class_by_name |= like_classes
    return class_by_name
