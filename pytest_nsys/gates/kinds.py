"""Which keys may each mapping of a gate file have, and how is the value of each read?

The keys are one table, ``gate_file.keys.ini``, from which the schema and the docs are generated as well.
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
from pytest_nsys.analysis.windows.window_selection import suggest_window_word
from pytest_nsys.core.conventions import (
    BUILT_IN_CONVENTIONS,
    COMPUTE_PURPOSE,
    MIXED_PURPOSE,
    UNKNOWN_PURPOSE,
    Anchor,
    CopyKind,
    KernelAnchor,
    Purpose,
)
from pytest_nsys.core.engine_steps import EngineStepKind
from pytest_nsys.core.errors import suggest_or_list, suggest_word
from pytest_nsys.core.families import OTHER_FAMILY, Families, Family
from pytest_nsys.core.model import KernelsMode, Label, Span
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import (
    MEGAHERTZ,
    NANOSECONDS,
    UnitMistake,
    convert_to_relative,
    parse_absolute_tolerance,
    parse_quantity,
)
from pytest_nsys.core.workload import TwoStages
from pytest_nsys.gates.assertion_names import clean_name
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.limits import MAX_HISTORY_RUNS, NOISE_WORD
from pytest_nsys.gates.model import AllowMissing, Severities, Severity, Tolerance
from pytest_nsys.gates.yaml_nodes import NodeReader

SOURCE = Path(__file__).with_name("gate_file.keys.ini")
SCHEMA = SOURCE.with_name("gate_file.schema.json")
SCHEMA_TITLE = b'"title": "pytest-nsys gate file"'
"""Text that every version of the schema holds."""

_KEY_ROW = re.compile(
    r"^\[(?P<section>\w+)\]$|^(?P<key>\w+) = (?P<kind>\w+)(?P<needed>, needed)?: (?P<help>.+(?:\n    .+)*)$",
    re.MULTILINE,
)


class KeyRow(NamedTuple):
    """Describes one key of a mapping: the kind of its value, its help and whether it is needed."""

    kind: str  # one of KINDS
    help: str  # what editors and docs say, in lines
    needed: bool


def _read_key_table() -> dict[str, dict[str, KeyRow]]:
    """Read the table of keys. Raises ValueError for a line that is no row of it."""
    sections: dict[str, dict[str, KeyRow]] = {}
    section: dict[str, KeyRow] = {}
    text = SOURCE.read_text(encoding="utf-8")
    if unreadable_lines := [
        line for line in _KEY_ROW.sub("", text).splitlines() if line.strip() and not line.startswith("#")
    ]:
        raise ValueError(f"{SOURCE.name}: '{unreadable_lines[0]}' is no row: write key = kind: what it says")
    for row in _KEY_ROW.finditer(text):
        if row["section"]:
            section = sections.setdefault(row["section"], {})
        else:
            section[row["key"]] = KeyRow(row["kind"], row["help"], row["needed"] is not None)
    whole_file_keys = ("version", "matrix", "assertions", "waivers")
    configuration_keys = {name: key for name, key in sections["file"].items() if name not in whole_file_keys}
    return {**sections, "configuration": configuration_keys}


KEYS: Mapping[str, Mapping[str, KeyRow]] = _read_key_table()
"""Keys of every mapping, in the order in which the docs list them."""


GATE_FILE_VERSION = 1
FORBIDDEN_MARKS = ("skip", "skipif", "xfail", "parametrize", "usefixtures")
_RESERVED_PURPOSES = (COMPUTE_PURPOSE, MIXED_PURPOSE, UNKNOWN_PURPOSE)
_PLACEHOLDER_TOLERANCE = Tolerance(Fraction(1, 100))
"""Stands for a mistaken tolerance, so that the sentences that use it are not blamed as well."""

_NUMERIC_WINDOW = re.compile(r"-?[0-9][0-9.:]*")
_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_LINK = re.compile(r"https?://\S+")

ValueReader = Callable[[NodeReader, Node, str], Any]
"""Reads the value of a key from its node and name; None where it is a mistake, which the reader notes."""


_SENTENCE = "one sentence, as in assert: overlap >= 60%"
FOREIGN_KEY_HINTS = {
    "assertion": {
        **dict.fromkeys(("metric", "require", "sentence", "limit", "max", "min"), _SENTENCE),
        "on_improvement": "severity: {improved: fail}",
        "name": "id",
    }
}
"""What to write instead of keys of other tools, by mapping."""


class MappingEntry:
    """Reads a mapping of the gate file key by key.

    ``fields`` are the nodes of the keys that it knows.
    """

    def __init__(self, reader: NodeReader, node: Node, section: str, noun: str = "") -> None:
        self.reader, self.node, self.section = reader, node, section
        self.fields = reader.read_mapping(node, noun or section, KEYS[section], FOREIGN_KEY_HINTS.get(section))

    def copy_with_keys(self, fields: Mapping[str, Node]) -> MappingEntry:
        """Return a copy with these keys in place of its own."""
        entry = copy.copy(self)
        entry.fields = {**self.fields, **fields}
        return entry

    def add_mistake(self, key: str, problem: str) -> None:
        """Record a mistake at the value of the key, or at the whole mapping where the key is not given."""
        self.reader.add_mistake(self.fields.get(key, self.node), problem)

    def read_text(self, key: str) -> str | None:
        """Return the text of a key; None where it is not given."""
        return self.reader.read_text(self.fields[key], key) if key in self.fields else None

    def read_values(self) -> dict[str, Any]:
        """Return the values of the given keys, except mistaken ones and those that another module reads by hand."""
        values = {}
        for name, node in self.fields.items():
            value = _read_value(KEYS[self.section][name].kind, self.reader, node, name)
            if value is not None:
                values[name] = value
        return values

    def list_missing(self) -> list[str]:
        """List the keys that are needed and not given."""
        return [name for name, key in KEYS[self.section].items() if key.needed and name not in self.fields]


def _read_value(kind: str, reader: NodeReader, node: Node, key: str) -> Any:
    read = KINDS[kind]
    return read(reader, node, key) if read is not None else None


# -- how values are read


def _make_text_reader(parse: Callable[[str], Any], expected: str = "", choices: Iterable[object] = ()) -> ValueReader:
    """Return a reader of one text by ``parse``.

    Where ``parse`` returns None the mistake says what is ``expected``, and which of ``choices`` may have been meant; a
    ValueError of it is the mistake itself.
    """

    def read(reader: NodeReader, node: Node, key: str) -> Any:
        def parse_value(text: str) -> Any:
            parsed_value = parse(text)
            if parsed_value is None:
                suggestion = suggest_word(text, [*map(str, choices)])
                raise ValueError(f"{key} is {expected}, not '{sanitize_line(text.strip(), 40)}'{suggestion}")
            return parsed_value

        return reader.read_parsed(node, key, parse_value)

    return read


def _parse_whole_number(text: str, minimum: int) -> int | None:
    return int(text) if re.fullmatch(r"\s*[0-9]{1,19}\s*", text) and int(text) >= minimum else None


def _make_whole_number_reader(minimum: int) -> ValueReader:
    return _make_text_reader(lambda text: _parse_whole_number(text, minimum), f"a whole number from {minimum} on")


def _read_run_count(reader: NodeReader, node: Node, key: str) -> int | None:
    number: int | None = _make_whole_number_reader(1)(reader, node, key)
    if number is not None and number > MAX_HISTORY_RUNS:
        reader.add_mistake(node, f"{key} is at most {MAX_HISTORY_RUNS} runs, not {number}")
    return number


def _parse_format_version(text: str) -> int | None:
    number = _parse_whole_number(text, 0)
    if number not in (None, GATE_FILE_VERSION):
        raise ValueError(f"version {number} is not supported: write version: {GATE_FILE_VERSION}")
    return number


def _make_choice_reader(choices: type[enum.StrEnum]) -> ValueReader:
    return _make_text_reader({str(choice): choice for choice in choices}.get, " or ".join(choices), choices)


def make_name_reader(choices: Mapping[str, Any], noun: str) -> ValueReader:
    """Return a reader of a name that stands for one of ``choices``; ``noun`` says in a mistake what is named."""

    def find_choice(name: str) -> Any:
        if name not in choices:
            raise ValueError(
                f"unknown {noun} '{sanitize_line(name, 40)}'{suggest_or_list(name, choices, 'built in are')}"
            )
        return choices[name]

    return _make_text_reader(find_choice)


def _make_bound_reader(parse: Callable[[str], Any], expected: str) -> ValueReader:
    """Return a reader of the bound of a check: what ``parse`` reads, or ``off``."""
    return _make_text_reader(lambda text: OFF if text.strip().lower() == OFF else parse(text), f"{expected}, or off")


def _parse_plain_number(text: str, unit: str = "", maximum: int | None = None) -> Fraction | None:
    with contextlib.suppress(UnitMistake):
        quantity = parse_quantity(text)
        if quantity.unit == unit and (maximum is None or quantity.value <= maximum):
            return quantity.value
    return None


def _parse_share(text: str, maximum: int | None = 100) -> Fraction | None:
    percent = _parse_plain_number(text, "%", maximum)
    return None if percent is None else percent / 100


def _parse_nonzero_amount(text: str, units: Collection[str]) -> Fraction | None:
    """Return a quantity in one of ``units``, times in nanoseconds; None where it is zero or of another unit."""
    quantity = parse_quantity(text)
    return quantity.value * NANOSECONDS.get(quantity.unit, 1) or None if quantity.unit in units else None


def _parse_time_ns(text: str) -> int | None:
    amount = _parse_nonzero_amount(text, NANOSECONDS)
    return None if amount is None else round(amount)


def _parse_day(text: str) -> date | None:
    """Parse a day written as 2026-12-31. Raises ValueError for one that no calendar has."""
    match = _DAY.fullmatch(text.strip())
    try:
        return date(*map(int, match.groups())) if match is not None else None
    except ValueError:
        raise ValueError(f"there is no date {text.strip()}") from None


def _parse_link(text: str) -> str | None:
    return text.strip() if _LINK.fullmatch(text.strip()) else None


def _read_marks(reader: NodeReader, node: Node, key: str) -> tuple[str, ...]:
    """Read the pytest marks of an assertion's item. A mark by which pytest skips or multiplies tests is a mistake."""

    def parse_mark(text: str) -> str:
        name = text.strip()
        if name in FORBIDDEN_MARKS:
            advice = "use the key 'xfail'" if name == "xfail" else "assertions are never skipped or multiplied"
            raise ValueError(f"'{name}' cannot be a mark: {advice}")
        if not (name.isascii() and name.isidentifier()) or name.startswith("_"):
            raise ValueError(f"a mark is a plain name, not '{sanitize_line(name, 40)}'")
        return name

    marks = [reader.read_parsed(item, "a mark", parse_mark) for item in reader.read_items(node, key)]
    return tuple(name for name in marks if name is not None)


def _read_window(reader: NodeReader, node: Node, key: str) -> str | None:
    """Read a window as canonical text: a word, an index, ``START:END`` in ns, or a pattern of range names."""
    if isinstance(node, MappingNode):
        return _read_time_window(MappingEntry(reader, node, "window"))

    def parse_window(text: str) -> str:
        text = text.strip()
        if re.fullmatch(r"[0-9]{1,18}", text):
            return str(int(text))
        shown_text = sanitize_line(text, 40)
        if _NUMERIC_WINDOW.fullmatch(text):
            raise ValueError(f"a window is an index from 0 on, a word, or {{start: NS, end: NS}}, not '{shown_text}'")
        if suggestion := suggest_window_word(text):
            raise ValueError(f"unknown window '{shown_text}'{suggestion}")
        return text

    return reader.read_parsed(node, key, parse_window)


def _read_time_window(entry: MappingEntry) -> str | None:
    """Read ``{start: NS, end: NS}`` as ``START:END``."""
    if entry.list_missing():
        entry.add_mistake("", "a window needs both start and end, in ns")
        return None
    bounds = entry.read_values()
    if len(bounds) < 2:
        return None
    if bounds["end"] <= bounds["start"]:
        entry.add_mistake("end", "a window must end after it starts")
    return f"{bounds['start']}:{bounds['end']}"


def _read_allow_missing(reader: NodeReader, node: Node, key: str) -> AllowMissing:
    """Read the ranks that may lack stages: ``{stage1_*: [0], stage5_b: 7}``."""
    excused_ranks: dict[str, frozenset[int]] = {}
    for glob, value in reader.read_entries(node, key):
        nodes = reader.read_items(value, glob.value) if isinstance(value, SequenceNode) else [value]
        ranks = [_make_whole_number_reader(0)(reader, rank_node, "a rank") for rank_node in nodes]
        excused_ranks[glob.value] = frozenset(rank for rank in ranks if rank is not None)
    return excused_ranks


def _read_severities(reader: NodeReader, node: Node, key: str) -> Severities | None:
    """Read one severity for what failed, ``warn``, or ``{failed: warn, inconclusive: fail, improved: fail}``."""
    if isinstance(node, ScalarNode):
        severity: Severity | None = _make_choice_reader(Severity)(reader, node, key)
        return None if severity is None else Severities(severity)
    return Severities(**MappingEntry(reader, node, key).read_values())


def _read_comparable_on(reader: NodeReader, node: Node, key: str) -> tuple[str, ...]:
    """Read the circumstances that must agree with a baseline's, in the order of ``FIELDS``."""
    circumstances: list[str] = []

    def add_circumstance(name: str) -> None:
        shown_name = sanitize_line(name, 40)
        if name in circumstances:
            raise ValueError(f"'{shown_name}' is named twice")
        if name not in FIELDS:
            raise ValueError(f"unknown circumstance '{shown_name}'{suggest_or_list(name, FIELDS, 'they are')}")
        circumstances.append(name)

    for item in reader.read_items(node, key):
        reader.read_parsed(item, "a circumstance", add_circumstance)
    return tuple(name for name in FIELDS if name in circumstances)


def _read_stated_run(reader: NodeReader, node: Node, key: str) -> dict[str, Label]:
    """Read what the file states of the run because its traces do not say it."""
    stated_values: dict[str, Label] = {}
    for word, value in reader.read_entries(node, key):
        name = word.value
        known_key = KEYS[key].get(name)
        if known_key is None and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
            reader.add_mistake(word, f"'{sanitize_line(name, 40)}' is not a name for a mesh axis")
            continue
        stated_value = _read_value("size" if known_key is None else known_key.kind, reader, value, name)
        if stated_value is not None:
            stated_values[name] = stated_value
    return stated_values


def read_quality_bounds(reader: NodeReader, node: Node, key: str) -> Bounds:
    """Read ``{missing_ranks: 6, unlaunched: 20%, typicality: off}``; what is not given keeps its default."""
    bounds = MappingEntry(reader, node, key).read_values()
    return Bounds(**{check: None if bound == OFF else bound for check, bound in bounds.items()})


def _read_pipeline(reader: NodeReader, node: Node, key: str) -> TwoStages | None:
    """Read the two stages of a pipeline, and the warm-up where it is given; None where a stage is missing."""
    entry = MappingEntry(reader, node, key)
    if missing_keys := entry.list_missing():
        problem = f"pipeline needs {' and '.join(missing_keys)}: patterns (%) of the ranges that make up the stage"
        entry.add_mistake("", problem)
        return None
    values = entry.read_values()
    warm_up = {"warm_up": values["warmup"]} if "warmup" in values else {}
    return TwoStages(values.get("stage0", ()), values.get("stage1", ()), **warm_up)


# -- conventions


def read_anchor(reader: NodeReader, node: Node, key: str = "anchor") -> Anchor | None:
    """Read an anchor: the pattern of a range, or a kernel as ``{kernel: NAME, after: NAME}``."""
    if not isinstance(node, MappingNode):
        name = reader.read_name(node, key)
        if name is not None and re.match(r"kernel:\s", name):
            reader.add_mistake(node, f"a kernel stands in braces: write {{{sanitize_line(name, 80)}}}")
        return name
    entry = MappingEntry(reader, node, key) if node.value else None
    if entry is None or (entry.fields and entry.list_missing()):
        reader.add_mistake(node, f"{key} needs kernel: the name of the kernel that begins each window")
    values = {} if entry is None else entry.read_values()
    return KernelAnchor(**values) if "kernel" in values else None


def _read_purposes(reader: NodeReader, node: Node, key: str) -> tuple[Purpose, ...]:
    """Read the purposes of communication streams, each with patterns of stages or ranges."""
    purposes = []
    for word, value in reader.read_entries(node, key):
        noun = f"purpose {sanitize_line(word.value, 60)}"
        if word.value in _RESERVED_PURPOSES:
            reason = f"{', '.join(_RESERVED_PURPOSES)} have a meaning"
            reader.add_mistake(word, f"'{word.value}' cannot be defined as a purpose: {reason}")
        if isinstance(value, MappingNode):
            patterns = MappingEntry(reader, value, "purpose", noun).read_values()
            purposes.append(Purpose(word.value, patterns.get("stage", ()), patterns.get("range", ())))
        else:
            purposes.append(Purpose(word.value, reader.read_texts(value, noun)))
    return tuple(purposes)


def _read_step_kinds(reader: NodeReader, node: Node, key: str) -> tuple[EngineStepKind, ...]:
    expressions = [
        (word, reader.read_text(value, f"kind {sanitize_line(word.value, 40)}"))
        for word, value in reader.read_entries(node, key)
    ]
    for word, _ in expressions:
        if not re.fullmatch("[a-z]+", word.value):
            reader.add_mistake(
                word, f"'{sanitize_line(word.value, 40)}' is no word for a kind of steps, as 'decode' is"
            )
    return tuple(EngineStepKind(word.value, text or "") for word, text in expressions)


def _read_copy_kinds(reader: NodeReader, node: Node, key: str) -> tuple[CopyKind, ...]:
    """Read one kind of copies, or a list of them; they are sorted, as their order means nothing."""
    copy_kinds = {_make_choice_reader(CopyKind)(reader, item, key) for item in reader.read_one_or_items(node, key)}
    return tuple(kind for kind in CopyKind if kind in copy_kinds)


def read_families(reader: NodeReader, node: Node, key: str = "families") -> Families | None:
    """Read the families that are spelt out, in their order; None where there are none."""
    if isinstance(node, ScalarNode):
        reader.add_mistake(node, f"{key} is a mapping, family → globs; without it the built-in table counts")
        return None
    families = []
    for word, value in reader.read_entries(node, key):
        if word.value == OTHER_FAMILY:
            reader.add_mistake(word, f"'{OTHER_FAMILY}' cannot be defined as a family: it holds what no family matches")
        families.append(Family(word.value, reader.read_texts(value, f"family {sanitize_line(word.value, 60)}")))
    return tuple(families) or None


# -- tolerances


_read_noise_tolerance = _make_text_reader(
    {NOISE_WORD: Tolerance(noise_only=True)}.get, "noise, or a mapping such as {rel: 5%, abs: 50us}", [NOISE_WORD]
)


def _read_tolerance_value(reader: NodeReader, node: Node, key: str) -> Tolerance:
    """Read ``{rel: 5%, abs: [50us, 1pp, 2]}``, or ``noise``."""
    if not isinstance(node, ScalarNode):
        return read_tolerance(MappingEntry(reader, node, key))
    tolerance: Tolerance | None = _read_noise_tolerance(reader, node, key)
    return tolerance or _PLACEHOLDER_TOLERANCE


def read_tolerance(entry: MappingEntry) -> Tolerance:
    """Return the tolerance that the keys ``rel`` and ``abs`` of a mapping give together."""
    values = entry.read_values()
    present_keys = [key for key in KEYS["tolerance"] if key in entry.fields]
    if not present_keys or any(key not in values for key in present_keys):
        return _PLACEHOLDER_TOLERANCE
    return Tolerance(values.get("rel", Fraction(0)), values.get("abs", {}))


def _read_absolute_amounts(reader: NodeReader, node: Node, key: str) -> dict[str, Fraction] | None:
    """Read the absolute amounts by unit, one for each unit at most; None if one is a mistake."""
    amounts_by_unit: dict[str, Fraction] = {}
    is_valid = True
    for item in reader.read_items(node, key) if isinstance(node, SequenceNode) else [node]:
        amounts = reader.read_parsed(item, key, parse_absolute_tolerance) or {}
        if amounts.keys() & amounts_by_unit.keys():
            reader.add_mistake(item, "abs takes one amount of each kind, as in [50us, 1pp, 2]")
        is_valid = is_valid and bool(amounts)
        amounts_by_unit.update(amounts)
    return amounts_by_unit if is_valid and amounts_by_unit else None


_KINDS_READ_BY_HAND = (
    *("text_read_by_hand", "sentence", "early_limit", "convention", "quantity"),
    *("workload", "assertions", "waivers", "matrix", "configurations", "labels", "for"),
)
"""Kinds whose value depends on other keys: the module of the mapping (``assertion_keys.py``, ``gate_file.py``) reads
them by hand. A new key of such a kind has no effect until that module reads it.
"""

KINDS: Mapping[str, ValueReader | None] = {
    **dict.fromkeys(_KINDS_READ_BY_HAND),
    "version": _make_text_reader(_parse_format_version, "a whole number from 0 on"),
    "text": _make_text_reader(str.strip),
    "name": lambda reader, node, key: reader.read_name(node, key),
    "texts": lambda reader, node, key: reader.read_texts(node, key) or None,
    "built_in": make_name_reader(BUILT_IN_CONVENTIONS, "convention"),
    "anchor": read_anchor,
    "window": _read_window,
    "span": _make_choice_reader(Span),
    "kernels": _make_choice_reader(KernelsMode),
    "tolerance": _read_tolerance_value,
    "share": _make_text_reader(lambda text: convert_to_relative(parse_quantity(text))),
    "amounts": _read_absolute_amounts,
    "comparable_on": _read_comparable_on,
    "run": _read_stated_run,
    "pipeline": _read_pipeline,
    "allow_missing": _read_allow_missing,
    "quality": read_quality_bounds,
    "count_or_off": _make_bound_reader(lambda text: _parse_whole_number(text, 0), "a whole number from 0 on"),
    "least_or_off": _make_bound_reader(lambda text: _parse_whole_number(text, 1), "a whole number from 1 on"),
    "share_or_off": _make_bound_reader(_parse_share, "a share, as in 10%"),
    "overhead_or_off": _make_bound_reader(lambda text: _parse_share(text, None), "a share of the step, as in 10%"),
    "clock_or_off": _make_bound_reader(
        lambda text: _parse_nonzero_amount(text, (MEGAHERTZ,)), "a clock, as in 1500MHz"
    ),
    "time_or_off": _make_bound_reader(_parse_time_ns, "a time, as in 10s"),
    "number_or_off": _make_bound_reader(_parse_plain_number, "a number of MAD, as in 5"),
    "purposes": _read_purposes,
    "kinds": _read_step_kinds,
    "copies": _read_copy_kinds,
    "families": read_families,
    "number": _make_whole_number_reader(0),
    "size": _make_whole_number_reader(1),
    "runs": _read_run_count,
    "moment": _make_whole_number_reader(0),
    "time": _make_text_reader(_parse_time_ns, "a time, as in 412ms"),
    "bandwidth": _make_text_reader(
        lambda text: _parse_nonzero_amount(text, ("GB/s",)), "a bandwidth per GPU, as in 400GB/s"
    ),
    "day": _make_text_reader(_parse_day, "a day written as in 2026-12-31"),
    "link": _make_text_reader(_parse_link, "an address that begins with https://"),
    "severity": _make_choice_reader(Severity),
    "severities": _read_severities,
    "flag": _make_text_reader(lambda text: {"true": True, "false": False}.get(text.lower()), "true or false"),
    "marks": _read_marks,
    "line": _make_text_reader(clean_name),
}
"""How the value of each kind of key is read; None where it is read by hand."""
