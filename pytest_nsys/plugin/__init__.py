"""pytest: nodes, hooks, fixtures. The entry point ``pytest11`` names this module.

pytest rewrites the assertions of all that a plugin's distribution has (PYTEST_DONT_REWRITE: of this module not). None
of ours needs it, and it costs more than a gate where nobody has kept the outcome: on a fresh machine, as CI has, or
where Python writes no bytecode. So the package is imported as any other.
"""

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
        """As ``importlib.abc.MetaPathFinder`` has it."""
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_nsys.") else None


def import_ordinarily() -> None:
    """Have the package imported without pytest, whose finder every session of a process puts first."""
    if OrdinaryImport in sys.meta_path:
        sys.meta_path.remove(OrdinaryImport)
    sys.meta_path.insert(0, OrdinaryImport)


import_ordinarily()

from pytest_nsys.plugin.hooks import *  # noqa: E402, F403
