"""Which word was probably meant?"""

from __future__ import annotations

from collections.abc import Collection


def did_you_mean(word: str, choices: Collection[str], cutoff: float = 0.6) -> str:
    """`` (did you mean 'overlap'?)`` to append to a mistake, empty where nothing is close."""
    import difflib  # only a mistake pays for this import

    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return f" (did you mean '{close[0]}'?)" if close else ""


def hint(word: str, choices: Collection[str], are: str) -> str:
    """The word that was probably meant, or all that there are: ``: they are mesh, world``."""
    return did_you_mean(word, choices) or f": {are} {', '.join(choices) or 'none'}"
