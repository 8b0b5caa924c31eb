"""What does the table of keys come to as a JSON Schema, and what do the docs call each kind of value?

``python -m tests.generate_docs`` writes the schema beside the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_nsys.core.conventions import BUILT_IN, COMPUTE, MIXED, UNKNOWN, CopyKind
from pytest_nsys.core.families import OTHER, TABLES
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.gates.assertion import Severity
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.keys import KEYS, SOURCE
from pytest_nsys.gates.kinds import FORBIDDEN_MARKS, MAX_RUNS, SENTENCE_SAYS
from pytest_nsys.gates.limits import NOISE

PATH = SOURCE.with_name("gate_file.schema.json")


class Kind(NamedTuple):
    """``words`` are the docs', ``help`` and ``schema`` an editor's.

    In a schema ``{"keys": SECTION}`` stands for a mapping of the table, whatever stands beside it added.
    """

    words: str
    schema: Mapping[str, Any]
    help: str = ""


def _of(kind: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{kind}"}


def _choice(*names: object, help: str = "") -> Kind:
    return Kind(" or ".join(f"`{name}`" for name in names), {"enum": [str(name) for name in names]}, help)


def _text(pattern: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "pattern": rf"^\s*{pattern}\s*$", **more}


def _whole(least: int, digits: str = "[0-9]*", **more: Any) -> dict[str, Any]:
    pattern = rf"^\s*0*[1-9]{digits}\s*$" if least else r"^\s*[0-9]+\s*$"
    return {"type": ["integer", "string"], "minimum": least, "pattern": pattern, **more}


def _or_off(*choices: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"enum": [False, "off", "Off", "OFF"]}, *choices]}


def _some(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": item}


def _one_or_some(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [item, _some(item)]}


def _by_name(value: Mapping[str, Any], *reserved: str) -> dict[str, Any]:
    names = {"propertyNames": {"not": {"enum": list(reserved)}}} if reserved else {}
    return {"type": "object", "minProperties": 1, "additionalProperties": value, **names}


def _needs(*keys: str) -> dict[str, Any]:
    return {"required": list(keys)}


def _without(*keys: str) -> dict[str, Any]:
    return {"not": {"anyOf": [_needs(key) for key in keys]}}


_OWN_TOLERANCE = {"baseline": {"type": "object", "anyOf": [_needs("rel"), _needs("abs")]}}
_ASSERTION = {
    "keys": "assertion",
    "oneOf": [
        {**_needs("assert"), **_without(*SENTENCE_SAYS)},
        {**_needs("metric", "require"), **_without("assert", "baseline")},
        {**_needs("metric", "baseline"), **_without("assert", "require")},
    ],
    "allOf": [
        *({"not": _needs(*keys)} for keys in (("across", "balance"), ("fail_after", "xfail"))),
        {"not": _needs("fail_after", "inconclusive")},
        {"not": {**_needs("tolerance", "baseline"), "properties": _OWN_TOLERANCE}},
    ],
}

SAID: Mapping[str, Kind] = {
    "version": Kind("`1`", {"enum": [1, "1"]}),
    "text": Kind(
        "text",
        {"type": ["string", "number", "boolean"], "pattern": r"\S"},
        "Text that is not empty; a number or a word such as no is taken as it is written.",
    ),
    "texts": Kind("text or list", _one_or_some(_of("text"))),
    "phrase": Kind("text", _of("text")),
    "excuse": Kind("text", _of("text")),
    "convention": Kind(
        " or ".join([*(f"`{name}`" for name in BUILT_IN), "mapping"]),
        {"anyOf": [_of("built_in"), {"keys": "convention"}]},
    ),
    "built_in": _choice(*BUILT_IN, help="Name of a built-in convention."),
    "window": Kind(
        "word, index, mapping or pattern",
        {"anyOf": [{"type": ["string", "integer", "boolean"], "minimum": 0, "pattern": r"\S"}, {"keys": "window"}]},
        "The span of each rank that is judged: median (the anchor in the middle), first, last, run (everything), "
        "steady (the middle half, median over its windows), an index from 0 on, {start: NS, end: NS}, or a pattern of "
        "range names in which % matches anything.",
    ),
    "span": _choice(
        *Span,
        help="range: the window is the anchor's own range. period: from its start to the start of the next anchor.",
    ),
    "kernels": _choice(
        *KernelsMode,
        help="Which kernels are in the window. contained: those that start and end inside it. clipped: all that touch "
        "it, cut at its edges. launched: those that were launched inside it.",
    ),
    "tolerance": Kind(f"`{NOISE}` or mapping", {"anyOf": [{"enum": [NOISE]}, {"keys": "tolerance"}]}),
    "quantity": Kind(
        "amount",
        {"type": ["string", "number"], "pattern": r"\S", "minimum": 0},
        "A number, with its unit where it has one: 5%, 50us, 3pp, 2.",
    ),
    "share": Kind("amount", _of("quantity")),
    "amounts": Kind("amount or list", _one_or_some(_of("quantity"))),
    "comparable_on": Kind("list", {**_some({"enum": list(FIELDS)}), "uniqueItems": True}),
    "run": Kind(
        "mapping",
        {
            "keys": "run",
            "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            "additionalProperties": _of("size"),
        },
    ),
    "workload": Kind("mapping", {"keys": "workload"}),
    "pipeline": Kind("mapping", {"keys": "pipeline"}),
    "quality": Kind("mapping", {"keys": "quality"}),
    "allow_missing": Kind("mapping", _by_name(_one_or_some(_of("number")))),
    "assertions": Kind("list", _some({"anyOf": [_of("text"), _ASSERTION]})),
    "waivers": Kind("list", _some({"keys": "waiver"})),
    "purposes": Kind(
        "mapping",
        _by_name({"anyOf": [*_one_or_some(_of("text"))["anyOf"], {"keys": "purpose"}]}, COMPUTE, MIXED, UNKNOWN),
    ),
    "copies": Kind(
        " or ".join([*(f"`{kind}`" for kind in CopyKind), "list"]), _one_or_some({"enum": list(map(str, CopyKind))})
    ),
    "families": Kind(
        " or ".join([*(f"`{name}`" for name in TABLES), "mapping"]),
        {"anyOf": [{"enum": list(TABLES)}, _by_name(_one_or_some(_of("text")), OTHER)]},
    ),
    "number": Kind("whole number", _whole(0), "A whole number from 0 on."),
    "size": Kind("whole number", _whole(1), "A whole number from 1 on."),
    "runs": Kind("whole number", _whole(1, "[0-9]{0,3}", maximum=MAX_RUNS), f"A whole number from 1 to {MAX_RUNS}."),
    "moment": Kind("whole number of ns", _whole(0), "A time on the trace's clock, in whole ns."),
    "time": Kind("text", _text(r"[0-9]+(\.[0-9]+)?\s*(ns|us|µs|μs|ms|s)")),
    "bandwidth": Kind("text", _text(r"[0-9]+(\.[0-9]+)?\s*GB/s")),
    "count_or_off": Kind("whole number or `off`", _or_off(_of("number"))),
    "least_or_off": Kind("whole number or `off`", _or_off(_of("size"))),
    "share_or_off": Kind("share (`10%`) or `off`", _or_off(_text(r"(100(\.0*)?|[0-9]{1,2}(\.[0-9]+)?)\s*%"))),
    "number_or_off": Kind("number or `off`", _or_off({"type": "number", "minimum": 0}, _text(r"[0-9]+(\.[0-9]+)?"))),
    "day": Kind(
        "date", _text("[0-9]{4}-[0-9]{2}-[0-9]{2}", format="date"), "A day of the calendar, written as in 2026-12-31."
    ),
    "link": Kind("http(s) address", _text(r"https?://\S+"), "An address that begins with https:// or http://."),
    "flag": Kind("`true` or `false`", {"enum": [True, False, "true", "false"]}, "true or false."),
    "severity": _choice(*Severity),
    "reaction": _choice("pass", "fail"),
    "labels": Kind("mapping", _by_name(_one_or_some(_of("text")))),
    "for": Kind("mapping", _by_name(_some(_of("text")))),
    "across": Kind("mapping", _by_name(_text("(median|mean|max|min|sum|p[1-9][0-9]?)"))),
    "marks": Kind(
        "list",
        _some({**_text("[A-Za-z][A-Za-z0-9_]*"), "not": {"pattern": rf"^\s*({'|'.join(FORBIDDEN_MARKS)})\s*$"}}),
    ),
    "baseline": Kind(
        "nothing or mapping",
        {
            "anyOf": [
                {"type": "null"},
                {
                    "keys": "baseline",
                    "minProperties": 0,
                    "dependentRequired": {"branch": ["history"], "lag": ["history"]},
                },
            ]
        },
    ),
}
"""What is said of each kind of the table."""


def key_rows(section: str, before: str = "") -> list[tuple[str, str, str]]:
    """For each key of a mapping its name, what it takes, and what it says; ``before`` is where it stands."""
    return [
        (f"`{before}{name}`", SAID[key.kind].words + " (required)" * key.needed, _help(key.help, key.kind))
        for name, key in KEYS[section].items()
    ]


def schema() -> dict[str, Any]:
    """The schema of gate files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pytest-nsys gate file",
        "description": "What must stay true of a profiled training step (*.nsys.yaml).",
        **_expanded({"keys": "file"}),
        "$defs": {
            name: ({"description": kind.help} if kind.help else {}) | _expanded(kind.schema)
            for name, kind in SAID.items()
        },
    }


def schema_text() -> str:
    """The schema as its file holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _help(text: str, kind: str) -> str:
    return text.replace("{kind}", SAID[kind].help)


def _expanded(part: Any) -> Any:
    if isinstance(part, list | tuple):
        return [_expanded(each) for each in part]
    if not isinstance(part, Mapping):
        return part
    plain = {name: _expanded(value) for name, value in part.items() if name != "keys"}
    if "keys" not in part:
        return plain
    keys = KEYS[part["keys"]]
    needed = [name for name, key in keys.items() if key.needed]
    return {
        "type": "object",
        "minProperties": 1,
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
        "properties": {name: {"description": _help(key.help, key.kind), **_of(key.kind)} for name, key in keys.items()},
        **plain,
    }
