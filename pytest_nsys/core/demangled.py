"""How is a kernel called, of which a profiler writes the demangled name?

``void at::native::(anonymous namespace)::fill<4>(int, float*)`` is ``at::native::fill``, and ``fill`` in short: that is
how Nsight Systems shortens it.
"""

from __future__ import annotations

_CLOSING = {"(": ")", "<": ">", "[": "]", "{": "}"}


def short_name(full: str) -> str:
    """The name without return type, namespaces, template arguments and parameters; as it is where it has none."""
    words = _without_brackets(full)
    return words[-1].rsplit("::", 1)[-1] or full if words else full


def qualified_name(full: str) -> str:
    """The name with its namespaces alone; as it is where it has no brackets."""
    words = _without_brackets(full)
    return words[-1] if words else full


def _without_brackets(full: str) -> list[str]:
    """The words before the parameters, without what stands in brackets; none where nothing does."""
    text = full.replace("(anonymous namespace)::", "").replace("{anonymous}::", "")
    kept: list[str] = []
    open_brackets: list[str] = []
    for character in text:
        if open_brackets:
            if character in _CLOSING:
                open_brackets.append(_CLOSING[character])
            elif character == open_brackets[-1]:
                open_brackets.pop()
        elif character == "(" and kept:
            break
        elif character in _CLOSING:
            open_brackets.append(_CLOSING[character])
        else:
            kept.append(character)
    else:
        if len(kept) == len(text):
            return []
    return "".join(kept).split()
