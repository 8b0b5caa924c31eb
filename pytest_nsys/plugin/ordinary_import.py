"""How is the package imported while pytest runs? Without pytest's assertion rewriting (PYTEST_DONT_REWRITE)."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class OrdinaryImport:
    """A finder that finds the modules of this package like Python does; it must precede pytest's finder."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of this package (see ``importlib.abc.MetaPathFinder``); None for any other."""
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_nsys.") else None


def import_ordinarily() -> None:
    """Put this finder before pytest's rewriting finder, which every session of a process inserts first."""
    if OrdinaryImport in sys.meta_path:
        sys.meta_path.remove(OrdinaryImport)
    sys.meta_path.insert(0, OrdinaryImport)
