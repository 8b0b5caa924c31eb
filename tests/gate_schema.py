"""What does the table of keys come to as a JSON Schema, and what do the docs call each kind of value?

``python -m tests.generate_docs`` writes the schema beside the table.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_nsys.core.conventions import COMPUTE_PURPOSE, MIXED_PURPOSE, UNKNOWN_PURPOSE, CopyKind
from pytest_nsys.core.families import OTHER_FAMILY
from pytest_nsys.core.file_names import CONFIGURATION_PATTERN
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.core.version import DOCUMENTATION
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.gate_file import MATRIX, PER_CONFIGURATION_KEYS
from pytest_nsys.gates.kinds import FORBIDDEN_MARKS, KEYS, SOURCE, KeyRow
from pytest_nsys.gates.limits import MAX_HISTORY_RUNS, NOISE_WORD
from pytest_nsys.gates.model import Severity
from pytest_nsys.gates.sentences import MAX_SENTENCE_LENGTH
from tests.gate_completions import (
    AXES,
    CONVENTIONS,
    DIMENSIONS,
    FILE,
    FOUND,
    MAPPINGS,
    SENTENCES,
    TOLERANCES,
    WAIVER,
    WINDOWS,
    offered,
    snippets,
)
from tests.gate_patterns import ABSOLUTE, EARLY, NAMED, QUANTITY, SENTENCE, SHARE, alone

ID = f"{DOCUMENTATION}schemas/gate-file-1.json"
"""Where the site has it: tests/site.py puts each schema where it says that it is."""

PATH = SOURCE.with_name("gate_file.schema.json")


def _of(kind: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{kind}"}


def _choice(names: Iterable[object]) -> dict[str, Any]:
    return {"enum": [str(name) for name in names]}


def _text(pattern: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "pattern": rf"^\s*{pattern}\s*$", **more}


def _whole(least: int, digits: str = "[0-9]*", **more: Any) -> dict[str, Any]:
    pattern = rf"^\s*0*[1-9]{digits}\s*$" if least else r"^\s*[0-9]+\s*$"
    return {"type": ["integer", "string"], "minimum": least, "pattern": pattern, **more}


def _written(pattern: str, error: str, *more: str) -> dict[str, Any]:
    """Text of a pattern, or of another type; editors say the ``error`` of both."""
    return {
        "type": ["string", *more] if more else "string",
        "pattern": pattern,
        "patternErrorMessage": error,
        "errorMessage": error,
    }


def _or_off(*choices: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"enum": [False, "off", "Off", "OFF"]}, *choices]}


def _some(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": item}


def _one_or_some(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [item, _some(item)]}


def _by_name(value: Mapping[str, Any], *reserved: str) -> dict[str, Any]:
    names = {"propertyNames": {"not": {"enum": list(reserved)}}} if reserved else {}
    return {"type": "object", "minProperties": 1, "additionalProperties": value, **names}


def _named(value: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping by dimensions, whose usual names are offered; mesh axes are others."""
    own = {name: {"description": about, **value} for name, about in {**DIMENSIONS, **AXES}.items()}
    return {**_by_name(value), "properties": own}


def _needs(*keys: str) -> dict[str, Any]:
    return {"required": list(keys)}


_RED_WHEN_UNDECIDED = {"type": "object", **_needs("inconclusive"), "properties": {"inconclusive": {"const": "fail"}}}
_ASSERTION = {
    "keys": "assertion",
    "allOf": [
        {"not": _needs("fail_after", "xfail")},
        {"not": {**_needs("fail_after", "severity"), "properties": {"severity": _RED_WHEN_UNDECIDED}}},
    ],
}

HELP: Mapping[str, str] = {
    "text": "Text that is not empty; a number or a word such as no is taken as it is written.",
    "built_in": "Name of a built-in convention.",
    "window": "The span of each rank that is judged: median (the anchor in the middle), first, last, run (everything), "
    "steady (the middle half, median over its windows), an index from 0 on, {start: NS, end: NS}, or a pattern of "
    "range names in which % matches anything.",
    "span": "range: the window is the anchor's own range. period: from its start to the start of the next anchor.",
    "kernels": "Which kernels are in the window. contained: those that start and end inside it. clipped: all that "
    "touch it, cut at its edges. launched: those that were launched inside it.",
    "quantity": "A number, with its unit where it has one: 5%, 50us, 3pp, 2.",
    "number": "A whole number from 0 on.",
    "size": "A whole number from 1 on.",
    "runs": f"A whole number from 1 to {MAX_HISTORY_RUNS}.",
    "moment": "A time on the trace's clock, in whole ns.",
    "day": "A day of the calendar, written as in 2026-12-31.",
    "link": "An address that begins with https:// or http://.",
    "flag": "true or false.",
}
"""What is said of a kind wherever it stands."""

WORDS: Mapping[str, str] = {
    "window": "word, index, mapping or pattern",
    "text": "text",
    "matrix": "mapping by name",
    "sentence": "sentence",
    "early_limit": "comparison and limit",
    **dict.fromkeys(("quantity", "share"), "amount"),
    "amounts": "amount or list",
    **dict.fromkeys(("number", "size", "runs"), "whole number"),
    "moment": "whole number of ns",
    **dict.fromkeys(("count_or_off", "least_or_off"), "whole number or `off`"),
    **dict.fromkeys(("share_or_off", "overhead_or_off"), "share (`10%`) or `off`"),
    "clock_or_off": "clock (`1500MHz`) or `off`",
    "time_or_off": "time (`10s`) or `off`",
    "number_or_off": "number or `off`",
    "day": "date",
    "link": "http(s) address",
    "flag": "`true` or `false`",
    "name": "text",
}
"""What the docs call a kind of which its schema does not tell."""

_EMPTY = "text is missing here"
TEXT: Mapping[str, Any] = {
    "if": {"type": ["object", "array", "null"]},
    "then": {"type": "string", "errorMessage": _EMPTY},
    "pattern": r"\S",
    "patternErrorMessage": _EMPTY,
}
"""Anything written as one word or more: true is text, too. Were it a type, editors would offer it everywhere."""

NAME = {**TEXT, "if": {"type": [*TEXT["if"]["type"], "number", "boolean"]}}
"""A text that a number or true is not: whoever means them quotes them."""

TIMES = _text(r"[0-9]+(\.[0-9]+)?\s*(ns|us|µs|μs|ms|s)")

SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "version": {"enum": [1, "1"]},
    "text": TEXT,
    "texts": _one_or_some(_of("text")),
    "text_read_by_hand": _of("text"),
    "line": _of("text"),
    "convention": {"anyOf": [offered(FOUND), _of("built_in"), {"keys": "convention"}]},
    "built_in": offered(CONVENTIONS),
    "name": NAME,
    "anchor": {"anyOf": [_of("name"), {"keys": "anchor"}]},
    "window": {"anyOf": [offered(WINDOWS), {**TEXT, "minimum": 0, "multipleOf": 1}, {"keys": "window"}]},
    "span": _choice(Span),
    "kernels": _choice(KernelsMode),
    "tolerance": {"anyOf": [_choice([NOISE_WORD]), {"keys": "tolerance"}], "defaultSnippets": snippets(TOLERANCES)},
    "quantity": {**_written(alone(QUANTITY), "no amount such as 3ms, 60% or 2", "number"), "minimum": 0},
    "share": _written(alone(SHARE), "no share of the baseline, such as 5%"),
    "amounts": _one_or_some({**_written(alone(ABSOLUTE), "no amount such as 50us, 1pp or 2", "number"), "minimum": 0}),
    "comparable_on": {**_some(_choice(FIELDS)), "uniqueItems": True},
    "run": {
        "keys": "run",
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": _of("size"),
    },
    "workload": {"keys": "workload"},
    "pipeline": {"keys": "pipeline"},
    "quality": {"keys": "quality"},
    "allow_missing": _by_name(_one_or_some(_of("number"))),
    "assertions": _some({"anyOf": [_of("sentence"), _ASSERTION], "defaultSnippets": snippets([*SENTENCES, *MAPPINGS])}),
    "sentence": {
        "type": "string",
        "maxLength": MAX_SENTENCE_LENGTH,
        "if": {"pattern": NAMED},
        "then": _written(
            SENTENCE,
            "no sentence such as 'stage3 overlap >= 60%': METRIC, a comparison, and a limit in the metric's unit",
        ),
        "else": _written(NAMED, "names no metric: `pytest-nsys metrics` lists them"),
    },
    "early_limit": _written(EARLY, "no constant limit such as >= 70%"),
    "matrix": {
        **_by_name({"anyOf": [{"type": "null"}, _of("texts"), {"keys": "configuration"}]}),
        "propertyNames": {"pattern": f"^{CONFIGURATION_PATTERN}$"},
    },
    "configurations": _of("texts"),
    "waivers": _some({"keys": "waiver", "defaultSnippets": snippets([WAIVER])}),
    "purposes": _by_name(
        {"anyOf": [_of("texts"), {"keys": "purpose"}]}, COMPUTE_PURPOSE, MIXED_PURPOSE, UNKNOWN_PURPOSE
    ),
    "kinds": {**_by_name(_of("text")), "propertyNames": {"pattern": "^[a-z]+$"}},
    "copies": _one_or_some(_choice(CopyKind)),
    "families": _by_name(_one_or_some(_of("text")), OTHER_FAMILY),
    "number": _whole(0),
    "size": _whole(1),
    "runs": _whole(1, "[0-9]{0,3}", maximum=MAX_HISTORY_RUNS),
    "moment": _whole(0),
    "time": TIMES,
    "bandwidth": _text(r"[0-9]+(\.[0-9]+)?\s*GB/s"),
    "count_or_off": _or_off(_of("number")),
    "least_or_off": _or_off(_of("size")),
    "overhead_or_off": _or_off(_text(r"[0-9]+(\.[0-9]+)?\s*%")),
    "clock_or_off": _or_off(_text(r"[0-9]+(\.[0-9]+)?\s*MHz")),
    "share_or_off": _or_off(_text(r"(100(\.0*)?|[0-9]{1,2}(\.[0-9]+)?)\s*%")),
    "time_or_off": _or_off(TIMES),
    "number_or_off": _or_off({"type": "number", "minimum": 0}, _text(r"[0-9]+(\.[0-9]+)?")),
    "day": _text("[0-9]{4}-[0-9]{2}-[0-9]{2}", format="date"),
    "link": _text(r"https?://\S+"),
    "flag": {"enum": [True, False, "true", "false"]},
    "severity": _choice(Severity),
    "severities": {"anyOf": [_of("severity"), {"keys": "severity"}]},
    "labels": _named(_of("texts")),
    "for": _named(_of("list_of_texts")),
    "marks": _some({**_text("[A-Za-z][A-Za-z0-9_]*"), "not": {"pattern": rf"^\s*({'|'.join(FORBIDDEN_MARKS)})\s*$"}}),
}
"""What editors check of each kind. ``{"keys": SECTION}`` stands for a mapping of the table, and what is added to it."""


PARTS: Mapping[str, Mapping[str, Any]] = {"list_of_texts": _some(_of("text"))}
"""Parts of kinds."""


def words(kind: str) -> str:
    """What a key of this kind takes."""
    return WORDS.get(kind) or _in_words(SCHEMAS[kind])


def _in_words(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return words(schema["$ref"].removeprefix("#/$defs/"))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_in_words, schema["anyOf"])))
    if "enum" in schema:
        return ", ".join(dict.fromkeys(f"`{value}`" for value in schema["enum"]))
    plain = {"array": "list", "object": "mapping", "null": "nothing"}
    return "mapping" if "keys" in schema else plain.get(str(schema["type"]), "text")


def key_rows(section: str, before: str = "") -> list[tuple[str, str, str]]:
    """For each key of a mapping its name, what it takes, and what it says; ``before`` is where it stands."""

    def says(name: str, key: KeyRow) -> tuple[str, str]:
        own = KEYS["file"].get(name)
        if section != "file" and own is not None and own.kind == key.kind and "{kind}" in key.help:
            return "as in the file", key.help.replace("{kind}", "").strip()
        return words(key.kind) + ", required" * key.needed, _help(key.help, key.kind)

    return [(f"`{before}{name}`", *says(name, key)) for name, key in KEYS[section].items()]


def schema() -> dict[str, Any]:
    """The schema of gate files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "pytest-nsys gate file",
        "description": "What must stay true of a profiled training step (*.nsys.yaml).",
        **_expanded({"keys": "file", "defaultSnippets": snippets([FILE])}),
        "allOf": [{"not": _needs(MATRIX, key)} for key in PER_CONFIGURATION_KEYS],
        "$defs": {
            name: ({"description": HELP[name]} if name in HELP else {}) | _expanded(kind)
            for name, kind in {**SCHEMAS, **PARTS}.items()
        },
    }


def schema_text() -> str:
    """The schema as its file holds it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _help(text: str, kind: str) -> str:
    return " ".join(text.split()).replace("{kind}", HELP.get(kind, ""))


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
