"""Which keys may each mapping of a gate file have, and how is the value of each read?

The keys are one table, ``gate_file.keys.ini``, of which the schema and the docs are made as well.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pytest_nsys.analysis.fact_bounds import OFF, Bounds
from pytest_nsys.analysis.windows.spans import meant_word
from pytest_nsys.core.conventions import BUILT_IN, COMPUTE, MIXED, UNKNOWN, Anchor, CopyKind, KernelAnchor, Purpose
from pytest_nsys.core.engine_steps import StepKind
from pytest_nsys.core.errors import did_you_mean, hint
from pytest_nsys.core.families import OTHER, Families, Family
from pytest_nsys.core.model import KernelsMode, Label, Span
from pytest_nsys.core.units import (
    MEGAHERTZ,
    NANOSECONDS,
    UnitMistake,
    parse_quantity,
    relative_amount,
    tolerated,
)
from pytest_nsys.core.words import printable
from pytest_nsys.core.workload import TwoStages
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.limits import MAX_RUNS, NOISE
from pytest_nsys.gates.model import AllowMissing, Severities, Severity, Tolerance
from pytest_nsys.gates.names import clean_name
from pytest_nsys.gates.yaml_nodes import NodeReader

SOURCE = Path(__file__).with_name("gate_file.keys.ini")
SCHEMA = SOURCE.with_name("gate_file.schema.json")
SCHEMA_TITLE = b'"title": "pytest-nsys gate file"'
"""Text that every version of the schema holds."""

_ROW = re.compile(
    r"^\[(?P<section>\w+)\]$|^(?P<key>\w+) = (?P<kind>\w+)(?P<needed>, needed)?: (?P<help>.+(?:\n    .+)*)$",
    re.MULTILINE,
)


class KeyRow(NamedTuple):
    """Describes one key of a mapping: the kind of its value, its help and whether it is needed."""

    kind: str  # one of KINDS
    help: str  # what editors and docs say, in lines
    needed: bool


def _table() -> dict[str, dict[str, KeyRow]]:
    """Read the table of keys. Raises ValueError for a line that is no row of it."""
    sections: dict[str, dict[str, KeyRow]] = {}
    section: dict[str, KeyRow] = {}
    text = SOURCE.read_text(encoding="utf-8")
    if unreadable_lines := [
        line for line in _ROW.sub("", text).splitlines() if line.strip() and not line.startswith("#")
    ]:
        raise ValueError(f"{SOURCE.name}: '{unreadable_lines[0]}' is no row: write key = kind: what it says")
    for row in _ROW.finditer(text):
        if row["section"]:
            section = sections.setdefault(row["section"], {})
        else:
            section[row["key"]] = KeyRow(row["kind"], row["help"], row["needed"] is not None)
    whole_file_keys = ("version", "matrix", "assertions", "waivers")
    configuration_keys = {name: key for name, key in sections["file"].items() if name not in whole_file_keys}
    return {**sections, "configuration": configuration_keys}


KEYS: Mapping[str, Mapping[str, KeyRow]] = _table()
"""Keys of every mapping, in the order in which the docs list them."""


VERSION = 1
FORBIDDEN_MARKS = ("skip", "skipif", "xfail", "parametrize", "usefixtures")
_RESERVED = (COMPUTE, MIXED, UNKNOWN)
_ANYTHING = Tolerance(Fraction(1, 100))
"""Stands for a mistaken tolerance, so that the sentences that use it are not blamed as well."""

_NUMBERS = re.compile(r"-?[0-9][0-9.:]*")
_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_LINK = re.compile(r"https?://\S+")

Read = Callable[[NodeReader, Node, str], Any]
"""Reads the value of a key from its node and name; None where it is a mistake, which the reader notes."""


_SENTENCE = "one sentence, as in assert: overlap >= 60%"
MEANT = {
    "assertion": {
        **dict.fromkeys(("metric", "require", "sentence", "limit", "max", "min"), _SENTENCE),
        "on_improvement": "severity: {improved: fail}",
        "name": "id",
    }
}
"""What to write for keys that other gates have, by the mapping."""


class Entry:
    """Reads a mapping of the gate file key by key.

    ``fields`` are the nodes of the keys that it knows.
    """

    def __init__(self, reader: NodeReader, node: Node, section: str, what: str = "") -> None:
        self.reader, self.node, self.section = reader, node, section
        self.fields = reader.mapping(node, what or section, KEYS[section], MEANT.get(section))

    def with_keys(self, fields: Mapping[str, Node]) -> Entry:
        """Return a copy with these keys in place of its own."""
        entry = copy.copy(self)
        entry.fields = {**self.fields, **fields}
        return entry

    def mistake(self, key: str, what: str) -> None:
        """Record a mistake at the value of the key, or at the whole mapping where the key is not given."""
        self.reader.mistake(self.fields.get(key, self.node), what)

    def text(self, key: str) -> str | None:
        """Return the text of a key; None where it is not given."""
        return self.reader.text(self.fields[key], key) if key in self.fields else None

    def values(self) -> dict[str, Any]:
        """Return the values of the keys that are given, without mistaken ones and those that are read by hand."""
        values = {}
        for name, node in self.fields.items():
            value = _value(KEYS[self.section][name].kind, self.reader, node, name)
            if value is not None:
                values[name] = value
        return values

    def missing(self) -> list[str]:
        """List the keys that are needed and not given."""
        return [name for name, key in KEYS[self.section].items() if key.needed and name not in self.fields]


def _value(kind: str, reader: NodeReader, node: Node, key: str) -> Any:
    read = KINDS[kind]
    return read(reader, node, key) if read is not None else None


# -- how values are read


def _one(parse: Callable[[str], Any], wanted: str = "", words: Iterable[object] = ()) -> Read:
    """Return a reader of one text by ``parse``.

    Where ``parse`` returns None the mistake says what is ``expected``, and which of ``choices`` may have been meant; a
    ValueError of it is the mistake itself.
    """

    def read(reader: NodeReader, node: Node, key: str) -> Any:
        def parse_value(text: str) -> Any:
            parsed_value = parse(text)
            if parsed_value is None:
                suggestion = did_you_mean(text, [*map(str, words)])
                raise ValueError(f"{key} is {wanted}, not '{printable(text.strip(), 40)}'{suggestion}")
            return parsed_value

        return reader.parsed(node, key, parse_value)

    return read


def _whole_number(text: str, least: int) -> int | None:
    return int(text) if re.fullmatch(r"\s*[0-9]{1,19}\s*", text) and int(text) >= least else None


def _whole(least: int) -> Read:
    return _one(lambda text: _whole_number(text, least), f"a whole number from {least} on")


def _runs(reader: NodeReader, node: Node, key: str) -> int | None:
    number: int | None = _whole(1)(reader, node, key)
    if number is not None and number > MAX_RUNS:
        reader.mistake(node, f"{key} is at most {MAX_RUNS} runs, not {number}")
    return number


def _version(text: str) -> int | None:
    number = _whole_number(text, 0)
    if number not in (None, VERSION):
        raise ValueError(f"version {number} is not supported: write version: {VERSION}")
    return number


def _choice(choices: type[enum.StrEnum]) -> Read:
    return _one({str(choice): choice for choice in choices}.get, " or ".join(choices), choices)


def known(choices: Mapping[str, Any], noun: str) -> Read:
    """Return a reader of a name that stands for one of ``choices``; ``noun`` says in a mistake what the name is of."""

    def find_choice(name: str) -> Any:
        if name not in choices:
            raise ValueError(f"unknown {noun} '{printable(name, 40)}'{hint(name, choices, 'built in are')}")
        return choices[name]

    return _one(find_choice)


def _bound(parse: Callable[[str], Any], wanted: str) -> Read:
    """Return a reader of the bound of a check: what ``parse`` reads, or ``off``."""
    return _one(lambda text: OFF if text.strip().lower() == OFF else parse(text), f"{wanted}, or off")


def _number(text: str, unit: str = "", most: int | None = None) -> Fraction | None:
    with contextlib.suppress(UnitMistake):
        quantity = parse_quantity(text)
        if quantity.unit == unit and (most is None or quantity.value <= most):
            return quantity.value
    return None


def _share(text: str, most: int | None = 100) -> Fraction | None:
    percent = _number(text, "%", most)
    return None if percent is None else percent / 100


def _amount(text: str, units: Collection[str]) -> Fraction | None:
    """Return a quantity in one of ``units``, times in nanoseconds; None where it is zero or of another unit."""
    quantity = parse_quantity(text)
    return quantity.value * NANOSECONDS.get(quantity.unit, 1) or None if quantity.unit in units else None


def _time(text: str) -> int | None:
    amount = _amount(text, NANOSECONDS)
    return None if amount is None else round(amount)


def _day(text: str) -> date | None:
    """Parse a day written as 2026-12-31. Raises ValueError for one that no calendar has."""
    match = _DAY.fullmatch(text.strip())
    try:
        return date(*map(int, match.groups())) if match is not None else None
    except ValueError:
        raise ValueError(f"there is no date {text.strip()}") from None


def _link(text: str) -> str | None:
    return text.strip() if _LINK.fullmatch(text.strip()) else None


def _marks(reader: NodeReader, node: Node, key: str) -> tuple[str, ...]:
    """Read the marks that the item of an assertion gets. One by which pytest skips or multiplies tests is a mistake."""

    def parse_mark(text: str) -> str:
        name = text.strip()
        if name in FORBIDDEN_MARKS:
            advice = "use the key 'xfail'" if name == "xfail" else "assertions are never skipped or multiplied"
            raise ValueError(f"'{name}' cannot be a mark: {advice}")
        if not (name.isascii() and name.isidentifier()) or name.startswith("_"):
            raise ValueError(f"a mark is a plain name, not '{printable(name, 40)}'")
        return name

    marks = [reader.parsed(item, "a mark", parse_mark) for item in reader.items(node, key)]
    return tuple(name for name in marks if name is not None)


def _window(reader: NodeReader, node: Node, key: str) -> str | None:
    """Read a window as canonical text: a word, an index, ``START:END`` in ns, or a pattern of range names."""
    if isinstance(node, MappingNode):
        return _span_of_time(Entry(reader, node, "window"))

    def parse_window(text: str) -> str:
        text = text.strip()
        if re.fullmatch(r"[0-9]{1,18}", text):
            return str(int(text))
        shown_text = printable(text, 40)
        if _NUMBERS.fullmatch(text):
            raise ValueError(f"a window is an index from 0 on, a word, or {{start: NS, end: NS}}, not '{shown_text}'")
        if suggestion := meant_word(text):
            raise ValueError(f"unknown window '{shown_text}'{suggestion}")
        return text

    return reader.parsed(node, key, parse_window)


def _span_of_time(entry: Entry) -> str | None:
    """Read ``{start: NS, end: NS}`` as ``START:END``."""
    if entry.missing():
        entry.mistake("", "a window needs both start and end, in ns")
        return None
    bounds = entry.values()
    if len(bounds) < 2:
        return None
    if bounds["end"] <= bounds["start"]:
        entry.mistake("end", "a window must end after it starts")
    return f"{bounds['start']}:{bounds['end']}"


def _allow_missing(reader: NodeReader, node: Node, key: str) -> AllowMissing:
    """Read the ranks that may lack stages: ``{stage1_*: [0], stage5_b: 7}``."""
    excused_ranks: dict[str, frozenset[int]] = {}
    for glob, value in reader.entries(node, key):
        nodes = reader.items(value, glob.value) if isinstance(value, SequenceNode) else [value]
        ranks = [_whole(0)(reader, rank_node, "a rank") for rank_node in nodes]
        excused_ranks[glob.value] = frozenset(rank for rank in ranks if rank is not None)
    return excused_ranks


def _severities(reader: NodeReader, node: Node, key: str) -> Severities | None:
    """Read one severity for what failed, ``warn``, or ``{failed: warn, inconclusive: fail, improved: fail}``."""
    if isinstance(node, ScalarNode):
        severity: Severity | None = _choice(Severity)(reader, node, key)
        return None if severity is None else Severities(severity)
    return Severities(**Entry(reader, node, key).values())


def _comparable_on(reader: NodeReader, node: Node, key: str) -> tuple[str, ...]:
    """Read the circumstances that must agree with a baseline's, in the order of ``FIELDS``."""
    circumstances: list[str] = []

    def add_circumstance(name: str) -> None:
        shown_name = printable(name, 40)
        if name in circumstances:
            raise ValueError(f"'{shown_name}' is named twice")
        if name not in FIELDS:
            raise ValueError(f"unknown circumstance '{shown_name}'{hint(name, FIELDS, 'they are')}")
        circumstances.append(name)

    for item in reader.items(node, key):
        reader.parsed(item, "a circumstance", add_circumstance)
    return tuple(name for name in FIELDS if name in circumstances)


def _run(reader: NodeReader, node: Node, key: str) -> dict[str, Label]:
    """Read what the file states of the run because its traces do not say it."""
    stated_values: dict[str, Label] = {}
    for word, value in reader.entries(node, key):
        name = word.value
        known_key = KEYS[key].get(name)
        if known_key is None and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
            reader.mistake(word, f"'{printable(name, 40)}' is not a name for a mesh axis")
            continue
        stated_value = _value("size" if known_key is None else known_key.kind, reader, value, name)
        if stated_value is not None:
            stated_values[name] = stated_value
    return stated_values


def _quality(reader: NodeReader, node: Node, key: str) -> Bounds:
    """Read ``{missing_ranks: 6, unlaunched: 20%, typicality: off}``; what is not given keeps its default."""
    bounds = Entry(reader, node, key).values()
    return Bounds(**{check: None if bound == OFF else bound for check, bound in bounds.items()})


def _pipeline(reader: NodeReader, node: Node, key: str) -> TwoStages | None:
    """Read the two stages of a pipeline, and the warm-up where it is given; None where a stage is missing."""
    entry = Entry(reader, node, key)
    if missing_keys := entry.missing():
        problem = f"pipeline needs {' and '.join(missing_keys)}: patterns (%) of the ranges that make up the stage"
        entry.mistake("", problem)
        return None
    values = entry.values()
    warm_up = {"warm_up": values["warmup"]} if "warmup" in values else {}
    return TwoStages(values.get("stage0", ()), values.get("stage1", ()), **warm_up)


# -- conventions


def read_anchor(reader: NodeReader, node: Node, key: str = "anchor") -> Anchor | None:
    """Read an anchor: the pattern of a range, or a kernel as ``{kernel: NAME, after: NAME}``."""
    if not isinstance(node, MappingNode):
        name = reader.name(node, key)
        if name is not None and re.match(r"kernel:\s", name):
            reader.mistake(node, f"a kernel stands in braces: write {{{printable(name, 80)}}}")
        return name
    entry = Entry(reader, node, key) if node.value else None
    if entry is None or (entry.fields and entry.missing()):
        reader.mistake(node, f"{key} needs kernel: the name of the kernel that begins each window")
    values = {} if entry is None else entry.values()
    return KernelAnchor(**values) if "kernel" in values else None


def _purposes(reader: NodeReader, node: Node, key: str) -> tuple[Purpose, ...]:
    """Read the purposes of communication streams, each with patterns of stages or ranges."""
    purposes = []
    for word, value in reader.entries(node, key):
        noun = f"purpose {printable(word.value, 60)}"
        if word.value in _RESERVED:
            reason = f"{', '.join(_RESERVED)} have a meaning"
            reader.mistake(word, f"'{word.value}' cannot be defined as a purpose: {reason}")
        if isinstance(value, MappingNode):
            patterns = Entry(reader, value, "purpose", noun).values()
            purposes.append(Purpose(word.value, patterns.get("stage", ()), patterns.get("range", ())))
        else:
            purposes.append(Purpose(word.value, reader.texts(value, noun)))
    return tuple(purposes)


def _kinds_of_steps(reader: NodeReader, node: Node, key: str) -> tuple[StepKind, ...]:
    expressions = [
        (word, reader.text(value, f"kind {printable(word.value, 40)}")) for word, value in reader.entries(node, key)
    ]
    for word, _ in expressions:
        if not re.fullmatch("[a-z]+", word.value):
            reader.mistake(word, f"'{printable(word.value, 40)}' is no word for a kind of steps, as 'decode' is")
    return tuple(StepKind(word.value, text or "") for word, text in expressions)


def _copies(reader: NodeReader, node: Node, key: str) -> tuple[CopyKind, ...]:
    """Read one kind of copies, or a list of them, in one order, as their order means nothing."""
    copy_kinds = {_choice(CopyKind)(reader, item, key) for item in reader.one_or_items(node, key)}
    return tuple(kind for kind in CopyKind if kind in copy_kinds)


def read_families(reader: NodeReader, node: Node, key: str = "families") -> Families | None:
    """Read the families that are spelt out, in their order; None where there are none."""
    if isinstance(node, ScalarNode):
        reader.mistake(node, f"{key} is a mapping, family → globs; without it the built-in table counts")
        return None
    families = []
    for word, value in reader.entries(node, key):
        if word.value == OTHER:
            reader.mistake(word, f"'{OTHER}' cannot be defined as a family: it holds what no family matches")
        families.append(Family(word.value, reader.texts(value, f"family {printable(word.value, 60)}")))
    return tuple(families) or None


# -- tolerances


_noise = _one({NOISE: Tolerance(noise=True)}.get, "noise, or a mapping such as {rel: 5%, abs: 50us}", [NOISE])


def _tolerance(reader: NodeReader, node: Node, key: str) -> Tolerance:
    """Read ``{rel: 5%, abs: [50us, 1pp, 2]}``, or ``noise``."""
    if not isinstance(node, ScalarNode):
        return tolerance_of(Entry(reader, node, key))
    tolerance: Tolerance | None = _noise(reader, node, key)
    return tolerance or _ANYTHING


def tolerance_of(entry: Entry) -> Tolerance:
    """Return the tolerance that the keys ``rel`` and ``abs`` of a mapping give together."""
    values = entry.values()
    present_keys = [key for key in KEYS["tolerance"] if key in entry.fields]
    if not present_keys or any(key not in values for key in present_keys):
        return _ANYTHING
    return Tolerance(values.get("rel", Fraction(0)), values.get("abs", {}))


def _absolute(reader: NodeReader, node: Node, key: str) -> dict[str, Fraction] | None:
    """Read the absolute amounts by unit, of which each may be given once; None where one is a mistake."""
    amounts_by_unit: dict[str, Fraction] = {}
    is_valid = True
    for item in reader.items(node, key) if isinstance(node, SequenceNode) else [node]:
        amounts = reader.parsed(item, key, tolerated) or {}
        if amounts.keys() & amounts_by_unit.keys():
            reader.mistake(item, "abs takes one amount of each kind, as in [50us, 1pp, 2]")
        is_valid = is_valid and bool(amounts)
        amounts_by_unit.update(amounts)
    return amounts_by_unit if is_valid and amounts_by_unit else None


_BESIDE_OTHERS = (
    *("text_read_by_hand", "sentence", "early_limit", "convention", "quantity"),
    *("workload", "assertions", "waivers", "matrix", "configurations", "labels", "for"),
)
"""Kinds whose value means something only beside other keys: the module of the mapping (``assertion_keys.py``,
``gate_file.py``) reads them by hand, and a new key of such a kind does nothing until that does.
"""

KINDS: Mapping[str, Read | None] = {
    **dict.fromkeys(_BESIDE_OTHERS),
    "version": _one(_version, "a whole number from 0 on"),
    "text": _one(str.strip),
    "name": lambda reader, node, key: reader.name(node, key),
    "texts": lambda reader, node, key: reader.texts(node, key) or None,
    "built_in": known(BUILT_IN, "convention"),
    "anchor": read_anchor,
    "window": _window,
    "span": _choice(Span),
    "kernels": _choice(KernelsMode),
    "tolerance": _tolerance,
    "share": _one(lambda text: relative_amount(parse_quantity(text))),
    "amounts": _absolute,
    "comparable_on": _comparable_on,
    "run": _run,
    "pipeline": _pipeline,
    "allow_missing": _allow_missing,
    "quality": _quality,
    "count_or_off": _bound(lambda text: _whole_number(text, 0), "a whole number from 0 on"),
    "least_or_off": _bound(lambda text: _whole_number(text, 1), "a whole number from 1 on"),
    "share_or_off": _bound(_share, "a share, as in 10%"),
    "overhead_or_off": _bound(lambda text: _share(text, None), "a share of the step, as in 10%"),
    "clock_or_off": _bound(lambda text: _amount(text, (MEGAHERTZ,)), "a clock, as in 1500MHz"),
    "time_or_off": _bound(_time, "a time, as in 10s"),
    "number_or_off": _bound(_number, "a number of MAD, as in 5"),
    "purposes": _purposes,
    "kinds": _kinds_of_steps,
    "copies": _copies,
    "families": read_families,
    "number": _whole(0),
    "size": _whole(1),
    "runs": _runs,
    "moment": _whole(0),
    "time": _one(_time, "a time, as in 412ms"),
    "bandwidth": _one(lambda text: _amount(text, ("GB/s",)), "a bandwidth per GPU, as in 400GB/s"),
    "day": _one(_day, "a day written as in 2026-12-31"),
    "link": _one(_link, "an address that begins with https://"),
    "severity": _choice(Severity),
    "severities": _severities,
    "flag": _one(lambda text: {"true": True, "false": False}.get(text.lower()), "true or false"),
    "marks": _marks,
    "line": _one(clean_name),
}
"""How the value of each kind of key is read; None where it is read by hand."""
