"""What is the short name of a kernel, where a profiler writes only the demangled one?

``void at::native::(anonymous namespace)::fill<4>(int, float*)`` is ``fill``, as Nsight Systems shortens it.
"""

from __future__ import annotations

_CLOSING = {"(": ")", "<": ">", "[": "]", "{": "}"}


def short_name(full: str) -> str:
    """The name without return type, namespaces, template arguments and parameters; as it is where it has none."""
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
            return full
    words = "".join(kept).split()
    return words[-1].rsplit("::", 1)[-1] or full if words else full
