"""Does a brief fit in 8 kB whatever it is told, and is its schema that of its types?"""

import json
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_nsys.reports.tables import brief as module
from pytest_nsys.reports.tables.brief import (
    MAX_BRIEF_BYTES,
    MAX_ROOTS,
    Brief,
    BriefCommand,
    BriefRanks,
    BriefRed,
    BriefRoot,
    BriefStep,
    BriefSubject,
    build_brief_schema,
    format_brief_ranks,
    format_brief_text,
    render_brief,
)

SCHEMA: dict[str, Any] = json.loads(Path(module.__file__).with_name("brief.schema.json").read_text(encoding="utf-8"))
TEXTS = st.text(max_size=2_000).map(format_brief_text)


def with_items(text: str, roots: int = 0, reds: int = 0, doubtful: int = 0) -> Brief:
    """A brief in which every text is the same."""
    root = BriefRoot(text, text, text, text, text, [text] * 3, text, 1)
    return Brief(
        subject=BriefSubject.SESSION,
        verdict="failed",
        headline=text,
        steps=[BriefStep(text, "step", 1, 2)] * 3,
        ranks=BriefRanks(4, 0, "0-3"),
        roots=[root] * roots,
        reds=[BriefRed(text, text, text)] * reds,
        doubtful=[text] * doubtful,
        next=[BriefCommand(text, text)] * 5,
    )


def test_the_schema_in_the_package_is_that_of_the_types() -> None:
    assert build_brief_schema() == SCHEMA


@settings(max_examples=60)
@given(TEXTS, st.integers(0, 9), st.integers(0, 60), st.integers(0, 60))
def test_it_follows_its_schema_and_counts_what_it_leaves_out(text: str, roots: int, reds: int, doubtful: int) -> None:
    told = with_items(text, roots, reds, doubtful)
    written = render_brief(told)
    assert written.isascii()
    found = json.loads(written)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    kept = {name: len(found[name]) for name in ("roots", "reds", "doubtful")}
    assert kept["roots"] <= MAX_ROOTS
    for name, number in {"roots": roots, "reds": reds, "doubtful": doubtful}.items():
        assert kept[name] + found["left_out"][name] == number
        assert bool(kept[name]) == bool(number), "the first of each stays"


def test_the_longest_list_gives_way_until_all_fits() -> None:
    text = "flash_fwd_kernel " * 6
    written = render_brief(with_items(text, roots=9, reds=80, doubtful=3))
    found = json.loads(written)
    assert len(written) <= MAX_BRIEF_BYTES
    assert len(found["doubtful"]) == 3
    assert len(found["reds"]) + found["left_out"]["reds"] == 80
    assert 1 <= len(found["reds"]) < 80
    longer = json.loads(render_brief(with_items(text, roots=1, reds=1, doubtful=1)))
    assert longer["left_out"] == {"roots": 0, "reds": 0, "doubtful": 0}


def test_a_line_for_each_key() -> None:
    lines = render_brief(with_items("gemm", 1, 1, 1)).splitlines()
    assert (lines[0], lines[-1]) == ("{", "}")
    assert len(lines) == 2 + len(Brief.__struct_fields__)


def test_ranks_are_ranges_in_ascii() -> None:
    assert format_brief_ranks([7, 0, 1, 2]) == "0-2, 7"
    assert format_brief_ranks(()) == ""
    assert len(format_brief_ranks(range(0, 4_000, 2))) <= 300
