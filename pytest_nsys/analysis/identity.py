"""What makes two runs comparable?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Key:
    """What makes runs comparable. None where the trace does not say; None is equal only to None."""

    convention: str
    mesh: Mapping[str, int] | None
    micro_batch: int | None
    sequence_length: int | None
    world: int
    gpu: str | None

    def as_json(self) -> dict[str, Any]:
        """The key in clear, as it stands in the file."""
        return asdict(self) | {"mesh": None if self.mesh is None else dict(sorted(self.mesh.items()))}

    @property
    def digest(self) -> str:
        """The first 12 digits of the hash that names the file."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:12]
