"""How is an answer kept that costs time? By the object that gave it, for as long as the object lives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
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
