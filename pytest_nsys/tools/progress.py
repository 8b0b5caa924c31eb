"""How far is a long read? One line on the terminal that comes after two seconds and leaves nothing behind."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

PATIENCE_S = 2.0
EVERY_S = 0.1
WIDTH = 30


def on_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream: a log of CI would keep every state of the line."""
    return stream.isatty() and not os.environ.get("CI")


class Progress:
    """A bar on standard error, where it is ``shown``; :meth:`end` wipes it out."""

    def __init__(self, what: str, total: int, *, shown: bool) -> None:
        self._what, self._total, self._shown = what, total, shown
        self._next_s = time.monotonic() + PATIENCE_S
        self._drawn = False

    def tell(self, done: int) -> None:
        """So many are done."""
        now_s = time.monotonic()
        if not self._shown or now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        self._drawn = True
        full = WIDTH * done // self._total
        bar = "#" * full + "-" * (WIDTH - full)
        print(f"\r{self._what} [{bar}] {done} of {self._total}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Give the line back."""
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
