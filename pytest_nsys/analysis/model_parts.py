"""Which parts of a model repeat, and how often? The calls of its modules say it, and ranges that are called after them.

Kernels that repeat may be a step, a layer or half of one: only what carries the name of a part proves that it is one.
A module that is called several times inside one call of another is a part of that one: a layer, a block, never a step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy

from pytest_nsys.analysis.step_facts import RepeatedPart
from pytest_nsys.core.columns import Vector, as_vector
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Interval, Range
from pytest_nsys.core.tables import Ranges

LEAST_SHARE = 0.25
"""Of what is launched in the outermost module: parts that launch less are no word for what repeats in it."""

MODULE = "nn.Module: "
_MODULE_CALL = re.compile(rf"{re.escape(MODULE)}(.+?)(?:_\d+)?")
"""As torch.profiler calls a module: its class, and the number of the instance."""

_CLASS = re.compile(r"([A-Z][a-z\d]*(?:[A-Z][a-z\d]*)+)(?:_\d+)?(?:\.forward)?")
"""A range that a hook pushes for a module, called by its class: two capitals at least, ``LlamaDecoderLayer``."""

_NO_MODULE = re.compile(
    r"(?i)step|iter|epoch|batch|train|loop|run|profil|bench|phase|test|valid|eval|optim|load|request|warm|measur|infer"
    r"|generat|predict|prefill|decode(?!r)|forward|backward|pass|comput|main|data|sampl|rollout"
)
"""Words of a program's own phases, which people write like classes, too."""

_LAYER = r"layer|block|attention|attn|mlp|expert|moe"
_PART_OF_MODEL = re.compile(f"(?i){_LAYER}")

_DOTTED = re.compile(r"([^\W\d]\w*)\.(\d+)(?!\w)")
"""A module of several as PyTorch writes its path: ``layers.3``."""

_LABELLED = re.compile(rf"(?i)\b(\w*?(?:{_LAYER})s?)[_ #]?(\d+)(?![\w.])")
"""As people number it: ``layer_3``, ``DecoderLayer 3``."""

_NUMBER = re.compile(r"\d+")


def numbers_in(name: str) -> list[tuple[str, str]]:
    """Return (word, number) of each module of several that the name of a range tells."""
    found: list[tuple[str, str]] = _DOTTED.findall(name) if "." in name else []
    # of a million names few have such a word, and the search for one is much faster
    return found + _LABELLED.findall(name) if _PART_OF_MODEL.search(name) else found


def count_numbered(names: Iterable[str], word: str) -> int:
    """Return how many modules of a word run: of the ranges of one shape how many have another number, at most."""
    seen: dict[str, set[str]] = {}
    for name in names:
        for own, number in numbers_in(name) if word in name else ():
            if own == word:
                seen.setdefault(_NUMBER.sub("%", name), set()).add(number)
    return max(map(len, seen.values()), default=0)


class ModuleCalls:
    """The calls of modules of one process, each inside the one around it on its thread.

    ``recorded`` are those that the profiler recorded by itself, ``ranges`` all ranges, of which some may be calls.
    """

    def __init__(self, recorded: Iterable[Range], ranges: Ranges) -> None:
        classes = _classes_of(ranges.names)
        flags = numpy.array([name in classes for name in ranges.names], numpy.bool_)
        rows = numpy.flatnonzero(flags[as_vector(ranges.name)]) if classes else ()
        marked = [ranges[int(row)] for row in rows]
        named = [(_class_of(each.name) or classes.get(each.name, each.name), each) for each in (*recorded, *marked)]
        named.sort(key=lambda own: (own[1].thread, own[1].start_ns, -own[1].end_ns))
        self.classes = [name for name, _ in named]
        self.calls = [call for _, call in named]
        self.inside: list[list[int]] = [[] for _ in named]
        self.outermost: list[int] = []
        around: list[int] = []
        for place, call in enumerate(self.calls):
            while around and not _holds(self.calls[around[-1]], call):
                around.pop()
            (self.inside[around[-1]] if around else self.outermost).append(place)
            around.append(place)

    def __bool__(self) -> bool:
        return bool(self.calls)

    @cached_property
    def _by_class(self) -> Mapping[str, tuple[Vector, Vector]]:
        """(starts, ends) of the calls of each class."""
        places = grouped((name, place) for place, name in enumerate(self.classes))
        return {
            name: tuple(numpy.array([(self.calls[i].start_ns, self.calls[i].end_ns) for i in own], numpy.int64).T)
            for name, own in places.items()
        }

    def find_holder(self, starts: Vector) -> str | None:
        """Return the class of which each call that holds one of the moments, which ascend, holds several."""
        for name, (start, end) in self._by_class.items():
            counts = starts.searchsorted(end) - starts.searchsorted(start)
            if counts.any() and counts[counts > 0].min() > 1:
                return name
        return None

    def count_calls(self, name: str) -> int:
        """Return how often modules of a class are called."""
        return len(self._by_class[name][0])

    def start_once(self, name: str, starts: Vector) -> bool:
        """Return whether one call of a class begins between each two of the moments, which ascend."""
        calls = numpy.sort(self._by_class[name][0])
        return bool((numpy.diff(calls.searchsorted(starts)) == 1).all())

    def find_repeated(self, launches: Vector, step: Interval | None = None) -> RepeatedPart | None:
        """Return the modules that are called several times in each call of what holds them, of several those that
        launch most; None where their number differs. ``launches`` are moments that ascend, ``step`` the only step:
        without one nothing is said of the outermost modules, which may be steps.
        """

        def count_launches(places: Sequence[int]) -> int:
            edges = numpy.array([(self.calls[i].start_ns, self.calls[i].end_ns) for i in places], numpy.int64)
            return int((launches.searchsorted(edges[:, 1]) - launches.searchsorted(edges[:, 0])).sum())

        if step is None:
            groups = grouped((self.classes[i], i) for i in self.outermost).values()
            each = [(own, self._repeated_in(own, count_launches)) for own in groups]
            options = [
                (launched, RepeatedPart(name, count, self.classes[own[0]], len(own)))
                for own, found in each
                for launched, name, count in found
                if launched >= LEAST_SHARE * count_launches(own)
            ]
        else:
            low, high = step
            outermost = [i for i in self.outermost if low <= self.calls[i].start_ns <= high]
            whole = int(launches.searchsorted(high, "right") - launches.searchsorted(low))
            options = [
                (launched, RepeatedPart(name, count))
                for launched, name, count in self._repeated([outermost], count_launches)
                if launched >= LEAST_SHARE * whole
            ]
        launched, part = max(options, key=lambda own: own[0], default=(0, None))
        return part if launched and part is not None and part.number else None

    def _repeated_in(
        self, holders: Sequence[int], count_launches: Callable[[Sequence[int]], int]
    ) -> Iterator[tuple[int, str, int]]:
        return self._repeated([self.inside[i] for i in holders], count_launches)

    def _repeated(
        self, groups: Sequence[Sequence[int]], count_launches: Callable[[Sequence[int]], int]
    ) -> Iterator[tuple[int, str, int]]:
        """(launches, class, how many in each group) of what stands in groups several times, also inside of what stands
        in each once. The number is 0 where groups differ.
        """
        for name in dict.fromkeys(self.classes[i] for own in groups for i in own):
            same = [[i for i in own if self.classes[i] == name] for own in groups]
            counts = {len(own) for own in same}
            every = [i for own in same for i in own]
            if max(counts) > 1:
                yield count_launches(every), name, counts.pop() if len(counts) == 1 else 0
            else:
                yield from self._repeated_in(every, count_launches)


def _holds(outer: Range, inner: Range) -> bool:
    return outer.thread == inner.thread and inner.start_ns < outer.end_ns


def _class_of(name: str) -> str | None:
    """The class of a module, where a name says that it is one's call."""
    found = _MODULE_CALL.fullmatch(name)
    return None if found is None else found[1]


def _classes_of(names: Sequence[str]) -> dict[str, str]:
    """The class of each range that is the call of a module, by its name. Ranges that are called like classes count only
    where one of them names a part of a model: else they may be anything.
    """
    found = {name: own for name in names if name.startswith(MODULE) and (own := _class_of(name)) is not None}
    matches = ((name, _CLASS.fullmatch(name)) for name in names)
    like_classes = {name: own[1] for name, own in matches if own is not None and not _NO_MODULE.search(own[1])}
    if any(_PART_OF_MODEL.search(name) for name in like_classes):
        found |= like_classes
    return found
