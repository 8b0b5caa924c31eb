"""How is the package imported while pytest runs? As any other, without pytest's rewriting (PYTEST_DONT_REWRITE)."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class OrdinaryImport:
    """Finds the modules of this package as Python does it, where it comes before pytest's own finder."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of this package, as ``importlib.abc.MetaPathFinder`` has it; None for any other."""
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_nsys.") else None


def import_ordinarily() -> None:
    """Have the package imported without pytest's rewriting, whose finder every session of a process puts first."""
    if OrdinaryImport in sys.meta_path:
        sys.meta_path.remove(OrdinaryImport)
    sys.meta_path.insert(0, OrdinaryImport)
