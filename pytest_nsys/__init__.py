"""What does pytest-nsys offer to a program? Performance gates for GPU training: YAML assertions on traces, as pytest
items.

It needs no assertion rewriting by pytest (PYTEST_DONT_REWRITE), so it may be imported before pytest starts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_nsys.capture.profiling import profiled_step
    from pytest_nsys.core.conventions import Convention, KernelAnchor
    from pytest_nsys.core.errors import (
        ArgumentMistake,
        BaselineError,
        GateFileError,
        NoRows,
        NothingMeasured,
        NsysError,
        TraceError,
        UsageMistake,
    )
    from pytest_nsys.core.version import VERSION as __version__
    from pytest_nsys.gates.model import JudgedRow, Outcome, Verdict
    from pytest_nsys.library import MetricRow, NsysRun, compare, judge, open_run
    from pytest_nsys.outcomes import GateFailed, GateNotJudged, NsysWarning
    from pytest_nsys.plugin.fixtures import NsysGate
    from pytest_nsys.verdicts.comparison import Comparison, Result

__all__ = [
    "ArgumentMistake",
    "BaselineError",
    "Comparison",
    "Convention",
    "GateFailed",
    "GateFileError",
    "GateNotJudged",
    "JudgedRow",
    "KernelAnchor",
    "MetricRow",
    "NoRows",
    "NothingMeasured",
    "NsysError",
    "NsysGate",
    "NsysRun",
    "NsysWarning",
    "Outcome",
    "Result",
    "TraceError",
    "UsageMistake",
    "Verdict",
    "__version__",
    "compare",
    "judge",
    "open_run",
    "profiled_step",
]

_PUBLIC_NAMES = {
    "capture.profiling": ("profiled_step",),
    "core.conventions": ("Convention", "KernelAnchor"),
    "core.errors": (
        *("ArgumentMistake", "BaselineError", "GateFileError", "NoRows", "NothingMeasured", "NsysError", "TraceError"),
        "UsageMistake",
    ),
    "core.version": ("VERSION",),
    "gates.model": ("JudgedRow", "Outcome", "Verdict"),
    "library": ("MetricRow", "NsysRun", "compare", "judge", "open_run"),
    "outcomes": ("GateFailed", "GateNotJudged", "NsysWarning"),
    "plugin.fixtures": ("NsysGate",),
    "verdicts.comparison": ("Comparison", "Result"),
}


def __dir__() -> list[str]:
    """List the public names for completion in a notebook, though they are loaded on first use."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    # Each name loads only what it needs: a training program uses only profiled_step, and the command needs no pytest.
    source_name = "VERSION" if name == "__version__" else name
    for module, names in _PUBLIC_NAMES.items():
        if source_name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), source_name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
