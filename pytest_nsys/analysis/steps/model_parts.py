"""Which parts of a model repeat, and how often? The calls of its modules say it, and ranges that are called after them.

Kernels that repeat may be a step, a layer or half of one: only what carries the name of a part proves that it is one.
A module that is called several times inside one call of another is a part of that one: a layer, a block, never a step.
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


def find_holder(moments: Vector, starts: Vector, ends: Vector) -> int | None:
    """Return which span holds most of the moments, which ascend; None unless each that holds one holds several."""
    counts = moments.searchsorted(ends) - moments.searchsorted(starts)
    return int(counts.argmax()) if counts.any() and counts[counts > 0].min() > 1 else None


class ModuleCalls:
    """The calls of modules of one process, each inside the one around it on its thread.

    ``recorded`` are those that the profiler recorded by itself, ``ranges`` all ranges, of which some may be calls.
    """

    def __init__(self, recorded: Iterable[Range], ranges: Ranges) -> None:
        classes = _classes_of(ranges.names)
        flags = numpy.array([name in classes for name in ranges.names], numpy.bool_)
        rows = numpy.flatnonzero(flags[as_vector(ranges.name)]) if classes else ()
        calls = sorted(
            [*recorded, *(ranges[int(row)] for row in rows)], key=lambda own: (own.thread, own.start_ns, -own.end_ns)
        )
        self.classes = [_class_of(call.name) or classes.get(call.name, call.name) for call in calls]
        self.starts, self.ends = numpy.array([call[:2] for call in calls], numpy.int64).reshape(-1, 2).T
        by_class = grouped((name, place) for place, name in enumerate(self.classes))
        self.places = {name: numpy.array(own) for name, own in by_class.items()}
        self.inside: list[list[int]] = [[] for _ in calls]
        self.outermost: list[int] = []
        around: list[int] = []
        for place, call in enumerate(calls):
            while around and not (calls[around[-1]].thread == call.thread and call.start_ns < calls[around[-1]].end_ns):
                around.pop()
            (self.inside[around[-1]] if around else self.outermost).append(place)
            around.append(place)

    def find_holder(self, moments: Vector) -> str | None:
        """Return the class of which each call that holds one of the moments, which ascend, holds several."""
        each = ((name, find_holder(moments, self.starts[own], self.ends[own])) for name, own in self.places.items())
        return next((name for name, holder in each if holder is not None), None)

    def count_calls(self, name: str) -> int:
        """Return how often modules of a class are called."""
        return len(self.places[name])

    def start_once(self, name: str, moments: Vector) -> bool:
        """Return whether one call of a class begins between each two of the moments, which ascend."""
        calls = numpy.sort(self.starts[self.places[name]])
        return bool((numpy.diff(calls.searchsorted(moments)) == 1).all())

    def find_repeated(self, launches: Vector, step: Interval | None = None) -> RepeatedPart | None:
        """Return the modules that are called several times in each call of what holds them, of several those that
        launch most; None where their number differs. ``launches`` are moments that ascend, ``step`` the only step:
        without one nothing is said of the outermost modules, which may be steps.
        """
        launched = launches.searchsorted(self.ends) - launches.searchsorted(self.starts)
        holders: Mapping[str | None, Sequence[Sequence[int]]]
        least: Mapping[str | None, float]
        if step is None:
            by_class = grouped((self.classes[i], i) for i in self.outermost)
            holders = {name: [self.inside[i] for i in own] for name, own in by_class.items()}
            least = {name: LEAST_SHARE * launched[own].sum() for name, own in by_class.items()}
        else:
            first, after = launches.searchsorted((step[0], step[1] + 1))
            holders = {None: [[i for i in self.outermost if step[0] <= self.starts[i] <= step[1]]]}
            least = {None: LEAST_SHARE * (after - first)}
        options = [
            (total, RepeatedPart(name, number, holder, len(groups)))
            for holder, groups in holders.items()
            for total, name, number in self._find_several(groups, launched)
            if total >= least[holder]
        ]
        total, part = max(options, key=lambda own: own[0], default=(0, None))
        return part if total and part is not None and part.number else None

    def _find_several(self, groups: Sequence[Sequence[int]], launched: Vector) -> Iterator[tuple[int, str, int]]:
        """(launches, class, how many in each group) of what stands in groups several times, also inside of what stands
        in each once. The number is 0 where groups differ.
        """
        for name in dict.fromkeys(self.classes[i] for own in groups for i in own):
            same = [[i for i in own if self.classes[i] == name] for own in groups]
            counts = {len(own) for own in same}
            every = [i for own in same for i in own]
            if max(counts) > 1:
                yield int(launched[every].sum()), name, counts.pop() if len(counts) == 1 else 0
            else:
                yield from self._find_several([self.inside[i] for i in every], launched)


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
