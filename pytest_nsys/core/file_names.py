"""How are the files called that the project knows by their names?"""

from __future__ import annotations

GATE_SUFFIX = ".nsys.yaml"
BASELINE_SUFFIX = ".json"
