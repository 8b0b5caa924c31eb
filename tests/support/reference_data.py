"""Where are the reference traces and figures, and what are they called? Beside the checkout, or nowhere."""

import functools
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[3] / "shared" / "data"
DUALPIPE = DATA / "dualpipe"
REAL = DATA / "real"
MORE = DATA / "more"
STEPS = DATA / "steps"
"""Traces whose steps are hard to tell."""

DEEPSEEK = MORE / "deepseek_dualpipe_train.json.gz"

DUALPIPE_RUNS = ("pp1_cp2_ep2", "pp2_ep2")


@functools.cache
def expected_figures() -> dict[str, Any]:
    """The figures of every real trace, by file name; empty where they are not at hand."""
    path = REAL / "expected.json"
    if not path.is_file():
        return {}
    traces: dict[str, Any] = json.loads(path.read_text())["traces"]
    return traces
