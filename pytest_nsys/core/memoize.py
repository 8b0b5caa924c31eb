"""How are results remembered by the object that gave them, and values grouped by their key?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

Self = TypeVar("Self")
ArgumentsP = ParamSpec("ArgumentsP")
ResultT = TypeVar("ResultT")


def memoize_method(
    method: Callable[Concatenate[Self, ArgumentsP], ResultT],
) -> Callable[Concatenate[Self, ArgumentsP], ResultT]:
    """Make a method compute each result once per object and arguments; an error is not remembered. Arguments can be
    hashed.
    """
    name = f"_kept_{method.__name__}"

    @functools.wraps(method)
    def recall(self: Self, /, *args: ArgumentsP.args, **kwargs: ArgumentsP.kwargs) -> ResultT:
        results: dict[Hashable, Any] = vars(self).setdefault(name, {})
        call_key = (args, *kwargs.items())
        if call_key not in results:
            results[call_key] = method(self, *args, **kwargs)
        result: ResultT = results[call_key]
        return result

    return recall


GroupKeyT = TypeVar("GroupKeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


def group_by_key(pairs: Iterable[tuple[GroupKeyT, ValueT]]) -> dict[GroupKeyT, list[ValueT]]:
    """Group values by their key; values stay in their order, and keys in that of their first value."""
    groups: dict[GroupKeyT, list[ValueT]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
