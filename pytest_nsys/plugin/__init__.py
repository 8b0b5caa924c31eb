"""The pytest plugin: nodes, hooks, fixtures. The entry point ``pytest11`` names this module.

pytest rewrites the assertions in all modules of a plugin's distribution (not in this one: PYTEST_DONT_REWRITE). Ours do
not need it, and without cached bytecode (on a fresh CI machine, or if Python writes none) it takes longer than a gate.
So the package is imported without rewriting.
"""

from __future__ import annotations

from pytest_nsys.plugin.ordinary_import import import_ordinarily

import_ordinarily()

from pytest_nsys.plugin.hooks import *  # noqa: E402, F403
