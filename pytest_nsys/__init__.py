"""Performance gates for GPU training: YAML assertions on Nsight Systems traces, as pytest items.

pytest has no assertion to rewrite here (PYTEST_DONT_REWRITE), so it may be imported before pytest starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_nsys.capture.profiling import profiled_step as profiled_step
    from pytest_nsys.core.version import VERSION as __version__  # noqa: F401
    from pytest_nsys.outcomes import GateFailed as GateFailed
    from pytest_nsys.outcomes import GateNotJudged as GateNotJudged
    from pytest_nsys.outcomes import NsysWarning as NsysWarning

_OUTCOMES = ("GateFailed", "GateNotJudged", "NsysWarning")


def __getattr__(name: str) -> Any:
    # The command does not need pytest, and importing it costs more than most of what the command does.
    if name in _OUTCOMES:
        from pytest_nsys import outcomes

        return getattr(outcomes, name)
    if name == "profiled_step":
        from pytest_nsys.capture.profiling import profiled_step

        return profiled_step
    if name == "__version__":
        from pytest_nsys.core.version import VERSION

        return VERSION
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
