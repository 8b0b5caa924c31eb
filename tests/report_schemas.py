"""How does the schema of the first screen come about? From shapes; ``python -m tests.generate_docs`` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import schema_components

from pytest_nsys import reports
from pytest_nsys.reports.first_screen_json import RunSummary

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SUFFIX = "Shape"
"""Of a class, to tell it from what fills it; the schema has none."""

SCHEMAS: Mapping[Path, tuple[type[Struct], str, str]] = {
    Path(reports.__file__).with_name("first_screen.schema.json"): (
        *(RunSummary, "urn:pytest-nsys:summary:1", "What pytest-nsys TRACE… --format json prints"),
    ),
}


def schema_text(shape: type[Struct], name: str, title: str) -> str:
    """The JSON Schema of a shape, as it is checked in."""
    (top,), parts = schema_components([shape], ref_template="#/$defs/{name}")
    own: dict[str, Any] = parts.pop(top["$ref"].rpartition("/")[2])
    about = {"description": " ".join(own.pop("description").split())}
    whole = {"$schema": DRAFT, "$id": name, "title": title, **about, **own, "$defs": dict(sorted(parts.items()))}
    text = json.dumps({**whole, "title": title}, indent=1, ensure_ascii=False)
    return text.replace(f'{SUFFIX}"', '"') + "\n"


def texts() -> dict[Path, str]:
    """Every schema as it is to stand in its file."""
    return {path: schema_text(*shape) for path, shape in SCHEMAS.items()}
