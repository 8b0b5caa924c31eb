"""The JSON Schema and the loader: both accept and refuse the same structure, and know the same keys."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pytest_nsys.core.errors import GateFileError
from pytest_nsys.gates import kinds
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.kinds import KEYS, KINDS
from pytest_nsys.gates.limits import MAX_HISTORY_RUNS
from tests.gate_schema import PATH, SCHEMAS, schema_text
from tests.gates.test_gate_file_mistakes import ENTRY, OF_OTHER_KEYS, OF_THE_FILE, beside
from tests.support.gate_files import loaded

SCHEMA: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


class EditorsLoader(yaml.SafeLoader):
    """YAML as editors and YAML 1.2 read it: a day is text, where PyYAML makes it a date."""


EditorsLoader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


WAIVED = "version: 1\nassertions: [exposed_ns < 2ms]\nwaivers:\n"
WAIVER = "assertion: exposed_ns < 2ms, ceiling: 3ms, expires: 2026-12-31, reason: known"
RATIO = "assert: overlap >= 60%"

HELD = {
    "trace": ["a.sqlite", "[a, b]"],
    "measurements": ["[a.json, 'b*.json']"],
    "convention": [
        "generic",
        "{extends: pithtrain, name: x, anchor: a%}",
        "{setup: 'r(?P<rank>[0-9]+)', stage: '(?P<stage>s.)', communication: [a, b]}",
        "{purposes: {a: x_*, b: [x, y], c: {stage: [x], range: y}}}",
        "{span: period, kernels: launched}",
        *("{anchor: {kernel: embed}}", "{extends: generic, anchor: {kernel: 'void f<4>(int, float)', after: '1'}}"),
        *("{copies: peer}", "{copies: [collective, peer, peer]}"),
        "{copies: [host_to_device, device_to_host, device_to_device]}",
        "{extends: jax, families: {gemm: '*gemm*', attention: ['*fmha*', '*attn*']}}",
    ],
    "window": ["steady", "3", "{start: 1, end: 2}", "no", "step 3%"],
    "span": ["range\nkernels: clipped"],
    "tolerance": ["{rel: 5%}", "{rel: 5%, abs: 2}", "{abs: [50us, 1pp, 2]}", "noise"],
    "comparable_on": ["[mesh, world, gpu]", f"[{', '.join(FIELDS)}]"],
    "allow_missing": ["{stage1_*: [0, '3'], '*': 7}"],
    "run": ["{gpu: H100, world: 16, micro_batch: 1, sequence_length: 4096, pp: 4}"],
    "workload": [
        "{steps: 3, step_time: 412.5ms, samples: '256', peak: 400 GB/s}",
        "{local_samples: 2, data_parallel: '64'}",
    ],
    "pipeline": ["{stage0: encode%, stage1: [decode%, sample], warmup: 0}"],
    "blocks": ["decode%", "[decode%, encode%]"],
    "quality": [
        "{missing_ranks: 6, whole_graphs: '0', dropped: 2, diagnostics: 3, anchors: 3, clocks: 1}",
        "{unlaunched: 20%, unstaged: 0%, unclassified: 2.5%, typicality: 7.5}",
        "{unknown_communication: 2.5%}",
        *(f"{{{key}: off}}" for key in KEYS["quality"]),
    ],
}
"""Values of a key of the file that both accept."""

ACCEPTED = [
    "version: 1\nassertions: [no syncs]\n",
    "version: '1'\nassertions: [no syncs]\n",
    *(beside(f"{key}: {value}") for key, values in HELD.items() for value in values),
    f"{WAIVED}- {{{WAIVER}}}\n",
    f"{WAIVED}- {{{WAIVER}, link: 'https://example.org/12', where: {{stage: [a, b], rank: 0}}}}\n",
    f"{WAIVED}- {{{WAIVER}, where: {{stage: stage2_f}}}}\n- {{{WAIVER}}}\n",
    WAIVED + "- {" + WAIVER.replace("2026-12-31", "'2026-12-31'") + "}\n",
    "version: 1\nassertions: [no syncs]\n"
    "waivers: [{assertion: no syncs, ceiling: 3, expires: 2026-12-31, reason: no}]\n",
    "version: 1\npipeline: {stage0: a, stage1: b}\nassertions: [pipeline overlap_score >= 0.3]",
]
ACCEPTED_ENTRIES = [
    *("measured mfu >= 45%", "measured power <= 700W", "no measured retries"),
    "max phase decode measured wait of rank 3 below baseline plus max(1%, 5img/s)",
    "balance of measured peak across pp <= 1.1",
    "{assert: max over rank of measured peak <= 72GiB, warn: <= 70GiB, where: {phase: x}}",
    "{id: x, assert: measured power within 1% of baseline, for: {phase: [a, b]}}",
    *("overlap >= 60%", "{assert: overlap >= 60%}"),
    "{assert: overlap >= 60%, where: {stage: x}, for: {rank: [0, 1]}, warn: '>= 70%'}",
    *("{id: no, assert: no syncs}", f"{{{RATIO}}}"),
    f"{{{RATIO}, where: {{stage: [a, b], rank: 3}}}}",
    f"{{{RATIO}, for: {{stage: [a, b]}}, warn: '>= 70%', marks: [slow], severity: warn}}",
    f"{{{RATIO}, xfail: known, allow_no_data: true, severity: {{improved: fail}}}}",
    f"{{{RATIO}, window: first, span: period, kernels: contained}}",
    f"{{{RATIO}, allow_missing: {{stage1_*: 0}}}}",
    *("'overlap >= baseline - max(5%, 1pp)'", "overlap >= baseline - noise"),
    *("overlap within 5% of baseline", "overlap within 3pp of last run", "launches within noise of baseline"),
    *("overlap >= last 10 runs - noise", "overlap above the last 10 runs of main minus 5%"),
    "{assert: overlap >= last 0010 runs of 2 - 1pp, severity: {inconclusive: fail}}",
    f"{{assert: overlap >= last {MAX_HISTORY_RUNS} runs - 5%, severity: {{inconclusive: warn, failed: fail}}}}",
    f"{{assert: overlap >= last 10 runs before the newest {MAX_HISTORY_RUNS} - 5%, fail_after: 3}}",
    "{assert: overlap >= median of the last 3 runs of main before the newest 7 - 5%, fail_after: '01'}",
    *("median over pp of max over rank of stage2_f|stage4_f overlap >= 60%", "p90 over pp of overlap >= 60%"),
    *("'rank 0|1 kernel \"a <b>\"|c kernel_launches <= 3'", "no rank 0 barrier_ns where pp 0|1"),
    "no new kernels above 2% where kernel a|b",
    "{assert: overlap >= baseline - 5%, fail_after: 2, severity: warn}",
    "measured peak below baseline plus max(0%, 0.5GiB)",
    *("phase decode measured temperature <= 80 °C", "balance of measured rate across pp <= 1.1"),
    "{assert: measured power <= 700W, warn: '<= 650W'}",
    "measured peak memory <= baseline + 1GiB",
]
NOT_HELD = {
    "trace": ["", "''", "{a: b}", "[[a]]"],
    "convention": [
        *("[generic]", "{}", "{extends: other}", "{communication: []}"),
        *("{anchor: {}}", "{anchor: [a]}", "{anchor: {after: a}}", "{anchor: {kernel: }}", "{anchor: {kernel: [a]}}"),
        *("{anchor: {kernel: a, before: b}}", "{anchor: {kernel: a, after: ''}}"),
        *("{purposes: {mixed: a}}", "{purposes: {a: }}", "{purposes: {a: {}}}"),
        *("{copies: []}", "{copies: }", "{copies: PtoP}", "{copies: [peer, all]}", "{copies: {peer: true}}"),
        *("{families: maxtext}", "{families: }", "{families: {}}", "{families: [maxtext]}", "{families: {other: a*}}"),
        *("{families: {gemm: }}", "{families: {gemm: []}}", "{families: {gemm: {pattern: a*}}}"),
    ],
    "window": ["1.5", "[first]", "{start: 1, end: 2, to: 3}", "{start: a, end: 2}"],
    "kernels": ["all"],
    "tolerance": ["{}", "{relative: 5%}", "{abs: []}", "{abs: -2}"],
    "allow_missing": [*("", "{}", "[0]", "0", "{a: }", "{a: []}", "{a: -1}", "{a: [b]}", "{a: {b: 0}}", "{a: [[0]]}")],
    "comparable_on": ["", "[gpu, gpu]", "[colour]", "[[gpu]]"],
    "waivers": ["", "[]", "[no syncs]", "{assertion: no syncs}"],
    "run": ["{}", "{world: 0}", "{pp: two}", "{p p: 2}", "{gpu: }"],
    "workload": [
        *("{}", "{local_samples: 0}", "{data_parallel: all}", "{config: [a.toml]}", "{steps: 0}", "{samples: 2.5}"),
        *("{step_time: 412}", "{step_time: 4GB/s}", "{peak: 400}", "{peak: 400ms}"),
    ],
    "pipeline": ["{stage0: encode%}", "{stage0: encode%, stage1: []}", "{stage0: a, stage1: b, warmup: -1}", "encode%"],
    "blocks": ["[]", "{a: b}"],
    "quality": [
        *("{}", "off", "[anchors]", "{anchors: 0}", "{anchors: [5]}", "{clocks: none}"),
        *("{missing_ranks: -1}", "{missing_ranks: 1.5}", "{missing_ranks: }", "{unstaged: many}"),
        *("{unlaunched: 0.2}", "{unlaunched: 120%}", "{typicality: 5%}", "{typicality: -5}"),
    ],
}
"""Values of a key of the file that both refuse."""
NOT_IN_A_WAIVER = [
    *("until: 2026-12-31", "where: {}", "where: stage2_f"),
    *("link: ", "link: 12", "link: 'ftp://example.org'", "link: 'https://a b'"),
]
DAYS = ("", "2026", "20261231", "30.11.2026", "2026-1-31", "never", "2026-12-31T10:00:00", "[2026-12-31]")
OTHERWISE = [*(("2026-12-31", day) for day in DAYS), ("3ms", "-3"), ("3ms", "[3ms]"), ("known", "")]
WITHOUT = {
    key: ", ".join(part for part in WAIVER.split(", ") if not part.startswith(key))
    for key, row in KEYS["waiver"].items()
    if row.needed
}
REFUSED = [
    "[]",
    "version: 1\nassertions: no syncs",
    *(beside(f"{key}: {value}") for key, values in NOT_HELD.items() for value in values),
    WAIVED + "- {}\n",
    *(f"{WAIVED}- {{{rest}}}\n" for rest in WITHOUT.values()),
    *(f"{WAIVED}- {{{WAIVER}, {more}}}\n" for more in NOT_IN_A_WAIVER),
    *(f"{WAIVED}- {{{WAIVER.replace(*change)}}}\n" for change in OTHERWISE),
]
REFUSED_ENTRIES = [
    *("'  '", "{}", "{warn: '>= 60%'}", "{id: a}"),
    *(f"{{assert: overlap >= baseline - 5%, fail_after: {rest}}}" for rest in ("0", "10000", "two", "")),
    *(f"{{{RATIO}, where: {{}}}}", f"{{{RATIO}, where: [stage]}}"),
    *(f"{{{RATIO}, for: {{stage: []}}}}", f"{{{RATIO}, marks: [skip]}}", f"{{{RATIO}, marks: [a b]}}"),
    *(f"{{{RATIO}, allow_no_data: maybe}}", f"{{{RATIO}, warn: }}", f"{{{RATIO}, id: {{a: b}}}}"),
]


def in_file(entry: str) -> str:
    return f"version: 1\nassertions:\n- {entry}\n"


def loads(text: str) -> str:
    try:
        loaded(text)
    except GateFileError as error:
        return str(error)
    return ""


def validates(text: str) -> str:
    return "\n".join(error.message for error in VALIDATOR.iter_errors(yaml.load(text, EditorsLoader)))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_both_accept() -> None:
    accepted = [*ACCEPTED, *map(in_file, ACCEPTED_ENTRIES)]
    assert {text: (loads(text), validates(text)) for text in accepted} == dict.fromkeys(accepted, ("", ""))


TOLD = [*(text for text, _ in OF_THE_FILE), *(f"{ENTRY}    {keys}\n" for keys, _ in OF_OTHER_KEYS)]
"""What the loader says of these is tested there."""


def test_both_refuse() -> None:
    refused = [*REFUSED, *map(in_file, REFUSED_ENTRIES), *TOLD]
    assert [text for text in refused if not loads(text)] == [], "the loader takes them"
    assert [text for text in refused if not validates(text)] == [], "the schema takes them"


def test_every_key_has_a_description() -> None:
    keys = [(name, key.help) for section in KEYS.values() for name, key in section.items()]
    assert len(keys) > 80
    assert [name for name, text in keys if not text.endswith((".", "{kind}"))] == []


def test_the_schema_is_what_the_table_of_keys_says() -> None:
    assert PATH.read_text(encoding="utf-8") == schema_text(), "run python -m tests.generate_docs"


def test_every_kind_is_read_and_described() -> None:
    assert {key.kind for keys in KEYS.values() for key in keys.values()} == set(KINDS) == set(SCHEMAS)


def test_a_line_that_is_no_row_of_the_keys_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys.ini").write_text("[file]\nowner = text Team that answers.\n", encoding="utf-8")
    monkeypatch.setattr(kinds, "SOURCE", tmp_path / "keys.ini")
    with pytest.raises(ValueError, match=r"'owner = text Team .*' is no row: write key = kind: what it says"):
        kinds._read_key_table()
