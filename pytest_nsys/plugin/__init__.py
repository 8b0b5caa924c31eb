"""pytest: nodes, hooks, fixtures. The entry point ``pytest11`` names this module.

pytest rewrites the assertions of all that a plugin's distribution has (PYTEST_DONT_REWRITE: of this module not). None
of ours needs it, and it costs more than a gate where nobody has kept the outcome: on a fresh machine, as CI has, or
where Python writes no bytecode. So the package is imported as any other.
"""

from __future__ import annotations

from pytest_nsys.plugin.ordinary_import import import_ordinarily

import_ordinarily()

from pytest_nsys.plugin.hooks import *  # noqa: E402, F403
