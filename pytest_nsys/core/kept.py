"""How is kept what was found? An answer that costs time by the object that gave it, for as long as the object lives;
what belongs together by the key of each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

Self = TypeVar("Self")
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def kept(method: Callable[Concatenate[Self, Asked], Answer]) -> Callable[Concatenate[Self, Asked], Answer]:
    """A method that answers each question once; an error is no answer. What it is asked with can be hashed."""
    name = f"_kept_{method.__name__}"

    @functools.wraps(method)
    def answer(self: Self, /, *args: Asked.args, **more: Asked.kwargs) -> Answer:
        known: dict[Hashable, Any] = vars(self).setdefault(name, {})
        question = (args, *more.items())
        if question not in known:
            known[question] = method(self, *args, **more)
        found: Answer = known[question]
        return found

    return answer


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key in their order, the keys in that of their first value."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
