"""The JSON Schema and the loader: both accept and refuse the same structure, and know the same keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pytest_nsys.core.errors import GateFileError
from pytest_nsys.gates import kinds
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.kinds import KEYS, KINDS, MAX_RUNS
from tests.gate_schema import PATH, SCHEMAS, schema_text
from tests.gates.test_gate_file_mistakes import ENTRY, OF_A_LIMIT, OF_OTHER_KEYS, OF_THE_FILE
from tests.support.gate_files import loaded

SCHEMA: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


class EditorsLoader(yaml.SafeLoader):
    """YAML as editors and YAML 1.2 read it: a day is text, where PyYAML makes it a date."""


EditorsLoader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


TAIL = "\nassertions: [no syncs]\n"
WAIVED = "version: 1\nassertions: [exposed_ns < 2ms]\nwaivers:\n"
WAIVER = "assertion: exposed_ns < 2ms, ceiling: 3ms, expires: 2026-12-31, reason: known"
RATIO = "metric: overlap, require: '>= 60%'"

ACCEPTED = [
    "version: 1" + TAIL,
    "version: '1'" + TAIL,
    "version: 1\ntrace: a.sqlite" + TAIL,
    "version: 1\ntrace: [a, b]" + TAIL,
    "version: 1\nmeasurements: [a.json, 'b*.json']" + TAIL,
    "version: 1\nconvention: generic" + TAIL,
    "version: 1\nconvention: {extends: pithtrain, name: x, anchor: a%}" + TAIL,
    "version: 1\nconvention: {setup: 'r(?P<rank>[0-9]+)', stage: '(?P<stage>s.)', communication: [a, b]}" + TAIL,
    "version: 1\nconvention: {purposes: {a: x_*, b: [x, y], c: {stage: [x], range: y}}}" + TAIL,
    "version: 1\nconvention: {span: period, kernels: launched}" + TAIL,
    "version: 1\nconvention: {copies: peer}" + TAIL,
    "version: 1\nconvention: {copies: [collective, peer, peer]}" + TAIL,
    "version: 1\nconvention: {copies: [host_to_device, device_to_host, device_to_device]}" + TAIL,
    "version: 1\nconvention: {families: maxtext}" + TAIL,
    "version: 1\nconvention: {extends: jax, families: {gemm: '*gemm*', attention: ['*fmha*', '*attn*']}}" + TAIL,
    *(f"version: 1\nwindow: {window}{TAIL}" for window in ("steady", "3", "{start: 1, end: 2}", "no", "step 3%")),
    "version: 1\nspan: range\nkernels: clipped" + TAIL,
    "version: 1\ntolerance: {rel: 5%}" + TAIL,
    "version: 1\ntolerance: {rel: 5%, abs: 2}" + TAIL,
    "version: 1\ntolerance: {abs: [50us, 1pp, 2]}" + TAIL,
    "version: 1\ntolerance: noise" + TAIL,
    "version: 1\ncomparable_on: [mesh, world, gpu]" + TAIL,
    "version: 1\nallow_missing: {stage1_*: [0, '3'], '*': 7}" + TAIL,
    f"version: 1\ncomparable_on: [{', '.join(FIELDS)}]" + TAIL,
    f"{WAIVED}- {{{WAIVER}}}\n",
    f"{WAIVED}- {{{WAIVER}, link: 'https://example.org/12', where: {{stage: [a, b], rank: 0}}}}\n",
    f"{WAIVED}- {{{WAIVER}, where: {{stage: stage2_f}}}}\n- {{{WAIVER}}}\n",
    WAIVED + "- {" + WAIVER.replace("2026-12-31", "'2026-12-31'") + "}\n",
    "version: 1\nassertions: [no syncs]\n"
    "waivers: [{assertion: no syncs, ceiling: 3, expires: 2026-12-31, reason: no}]\n",
    "version: 1\nrun: {gpu: H100, world: 16, micro_batch: 1, sequence_length: 4096, pp: 4}" + TAIL,
    "version: 1\nquality: {missing_ranks: 6, whole_graphs: '0', dropped: 2, diagnostics: 3, anchors: 3, clocks: 1}"
    + TAIL,
    "version: 1\nworkload: {steps: 3, step_time: 412.5ms, samples: '256', peak: 400 GB/s}" + TAIL,
    "version: 1\nworkload: {local_samples: 2, data_parallel: '64'}" + TAIL,
    "version: 1\npipeline: {stage0: encode%, stage1: [decode%, sample], warmup: 0}" + TAIL,
    *(
        f"version: 1\npipeline: {{stage0: a, stage1: b}}\nassertions: [{{metric: overlap_score, {rest}}}]"
        for rest in ("require: '>= 0.3', pipeline: true", "baseline: {rel: 5%}, pipeline: false")
    ),
    "version: 1\nblocks: decode%" + TAIL,
    "version: 1\nblocks: [decode%, encode%]" + TAIL,
    "version: 1\nquality: {unlaunched: 20%, unstaged: 0%, unclassified: 2.5%, typicality: 7.5}" + TAIL,
    "version: 1\nquality: {unknown_communication: 2.5%}" + TAIL,
    *(f"version: 1\nquality: {{{key}: off}}{TAIL}" for key in KEYS["quality"]),
]
ACCEPTED_ENTRIES = [
    "measured mfu >= 45%",
    "measured power <= 700W",
    "no measured retries",
    "max phase decode measured wait of rank 3 below baseline plus max(1%, 5img/s)",
    "balance of measured peak across pp <= 1.1",
    "{metric: measured peak, require: <= 72GiB, warn: <= 70GiB, where: {phase: x}, across: {rank: max}}",
    "{id: x, metric: measured power, baseline: {rel: 1%}, for: {phase: [a, b]}}",
    "overlap >= 60%",
    "{assert: overlap >= 60%}",
    "{assert: overlap >= 60%, where: {stage: x}, for: {rank: [0, 1]}, warn: '>= 70%'}",
    "{id: no, assert: no syncs}",
    f"{{{RATIO}}}",
    f"{{{RATIO}, where: {{stage: [a, b], rank: 3}}, across: {{pp: p90}}}}",
    f"{{{RATIO}, for: {{stage: [a, b]}}, warn: '>= 70%', marks: [slow], severity: warn}}",
    f"{{{RATIO}, xfail: known, allow_no_data: true, on_improvement: fail}}",
    f"{{{RATIO}, window: first, span: period, kernels: contained}}",
    f"{{{RATIO}, allow_missing: {{stage1_*: 0}}}}",
    "{metric: overlap, baseline: , tolerance: {rel: 5%}}",
    "{metric: overlap, baseline: {}, tolerance: {rel: 5%}}",
    "{metric: overlap, baseline: {rel: 5%, abs: 1pp}}",
    "{metric: overlap, baseline: , tolerance: noise}",
    "{metric: overlap, baseline: {history: 10}, tolerance: noise}",
    "{metric: overlap, baseline: {history: 10, branch: main, rel: 5%}}",
    "{metric: overlap, baseline: {history: '0010', branch: 2, abs: 1pp}, inconclusive: fail}",
    f"{{metric: overlap, baseline: {{history: {MAX_RUNS}, rel: 5%}}, inconclusive: pass}}",
    f"{{metric: overlap, baseline: {{history: 10, lag: {MAX_RUNS}, rel: 5%}}, fail_after: 3}}",
    "{metric: overlap, baseline: {lag: '7', branch: main, history: 3, rel: 5%}, fail_after: '01'}",
    "{assert: overlap >= baseline - 5%, fail_after: 2, severity: warn}",
    "{metric: overlap, require: '>= baseline - noise'}",
    "{metric: overlap, require: '>= baseline - tolerance', tolerance: {rel: 5%}}",
    "{metric: compute_ns, balance: pp, require: <= 1.1}",
    "measured mfu >= 45%",
    "no measured retries",
    "measured peak below baseline plus max(0%, 0.5GiB)",
    "phase decode measured temperature <= 80 °C",
    "balance of measured rate across pp <= 1.1",
    "{metric: measured wait, where: {phase: [decode, prefill]}, across: {rank: max}, require: '<= 2 W'}",
    "{metric: measured power, require: '<= 700W', warn: '<= 650W'}",
    "{metric: measured peak memory, baseline: {abs: 1GiB}}",
    "{metric: measured power, baseline: {abs: [5W, 3 img/s, 2 °C]}}",
]
REFUSED = [
    "[]",
    "version: 1\nassertions: no syncs",
    "version: 1\ntrace: " + TAIL,
    "version: 1\ntrace: ''" + TAIL,
    "version: 1\ntrace: {a: b}" + TAIL,
    "version: 1\ntrace: [[a]]" + TAIL,
    "version: 1\nconvention: [generic]" + TAIL,
    "version: 1\nconvention: {}" + TAIL,
    "version: 1\nconvention: {extends: other}" + TAIL,
    "version: 1\nconvention: {purposes: {mixed: a}}" + TAIL,
    "version: 1\nconvention: {purposes: {a: }}" + TAIL,
    "version: 1\nconvention: {purposes: {a: {}}}" + TAIL,
    "version: 1\nconvention: {communication: []}" + TAIL,
    "version: 1\nconvention: {copies: []}" + TAIL,
    "version: 1\nconvention: {copies: }" + TAIL,
    "version: 1\nconvention: {copies: PtoP}" + TAIL,
    "version: 1\nconvention: {copies: [peer, all]}" + TAIL,
    "version: 1\nconvention: {copies: {peer: true}}" + TAIL,
    "version: 1\nconvention: {families: amd}" + TAIL,
    "version: 1\nconvention: {families: }" + TAIL,
    "version: 1\nconvention: {families: {}}" + TAIL,
    "version: 1\nconvention: {families: [maxtext]}" + TAIL,
    "version: 1\nconvention: {families: {other: a*}}" + TAIL,
    "version: 1\nconvention: {families: {gemm: }}" + TAIL,
    "version: 1\nconvention: {families: {gemm: []}}" + TAIL,
    "version: 1\nconvention: {families: {gemm: {pattern: a*}}}" + TAIL,
    "version: 1\nwindow: 1.5" + TAIL,
    "version: 1\nwindow: [first]" + TAIL,
    "version: 1\nwindow: {start: 1, end: 2, to: 3}" + TAIL,
    "version: 1\nwindow: {start: a, end: 2}" + TAIL,
    "version: 1\nkernels: all" + TAIL,
    "version: 1\ntolerance: {}" + TAIL,
    "version: 1\ntolerance: {relative: 5%}" + TAIL,
    "version: 1\ntolerance: {abs: []}" + TAIL,
    "version: 1\ntolerance: {abs: -2}" + TAIL,
    *(f"version: 1\nallow_missing: {value}{TAIL}" for value in ("", "{}", "[0]", "0", "{a: }", "{a: []}", "{a: -1}")),
    *(f"version: 1\nallow_missing: {value}{TAIL}" for value in ("{a: [b]}", "{a: {b: 0}}", "{a: [[0]]}")),
    "version: 1\ncomparable_on: " + TAIL,
    "version: 1\ncomparable_on: [gpu, gpu]" + TAIL,
    "version: 1\ncomparable_on: [colour]" + TAIL,
    "version: 1\ncomparable_on: [[gpu]]" + TAIL,
    "version: 1\nwaivers: " + TAIL,
    "version: 1\nwaivers: []" + TAIL,
    "version: 1\nwaivers: [no syncs]" + TAIL,
    "version: 1\nwaivers: {assertion: no syncs}" + TAIL,
    WAIVED + "- {}\n",
    *(
        WAIVED + "- {" + ", ".join(part for part in WAIVER.split(", ") if not part.startswith(key)) + "}\n"
        for key, row in KEYS["waiver"].items()
        if row.needed
    ),
    f"{WAIVED}- {{{WAIVER}, until: 2026-12-31}}\n",
    f"{WAIVED}- {{{WAIVER}, where: {{}}}}\n",
    f"{WAIVED}- {{{WAIVER}, where: stage2_f}}\n",
    f"{WAIVED}- {{{WAIVER}, link: }}\n",
    f"{WAIVED}- {{{WAIVER}, link: 12}}\n",
    f"{WAIVED}- {{{WAIVER}, link: 'ftp://example.org'}}\n",
    f"{WAIVED}- {{{WAIVER}, link: 'https://a b'}}\n",
    *(
        f"{WAIVED}- {{{WAIVER.replace('2026-12-31', day)}}}\n"
        for day in ("", "2026", "20261231", "30.11.2026", "2026-1-31", "never", "2026-12-31T10:00:00", "[2026-12-31]")
    ),
    f"{WAIVED}- {{{WAIVER.replace('3ms', '-3')}}}\n",
    f"{WAIVED}- {{{WAIVER.replace('3ms', '[3ms]')}}}\n",
    f"{WAIVED}- {{{WAIVER.replace('known', '')}}}\n",
    "version: 1\nrun: {}" + TAIL,
    "version: 1\nrun: {world: 0}" + TAIL,
    "version: 1\nrun: {pp: two}" + TAIL,
    "version: 1\nrun: {p p: 2}" + TAIL,
    "version: 1\nrun: {gpu: }" + TAIL,
    "version: 1\nworkload: {}" + TAIL,
    "version: 1\nworkload: {local_samples: 0}" + TAIL,
    "version: 1\nworkload: {data_parallel: all}" + TAIL,
    "version: 1\nworkload: {config: [a.toml]}" + TAIL,
    "version: 1\nworkload: {steps: 0}" + TAIL,
    "version: 1\nworkload: {samples: 2.5}" + TAIL,
    "version: 1\nworkload: {step_time: 412}" + TAIL,
    "version: 1\nworkload: {step_time: 4GB/s}" + TAIL,
    "version: 1\nworkload: {peak: 400}" + TAIL,
    "version: 1\nworkload: {peak: 400ms}" + TAIL,
    "version: 1\npipeline: {stage0: encode%}" + TAIL,
    "version: 1\npipeline: {stage0: encode%, stage1: []}" + TAIL,
    "version: 1\npipeline: {stage0: a, stage1: b, warmup: -1}" + TAIL,
    "version: 1\npipeline: encode%" + TAIL,
    "version: 1\nblocks: []" + TAIL,
    "version: 1\nblocks: {a: b}" + TAIL,
    "version: 1\nquality: {}" + TAIL,
    "version: 1\nquality: off" + TAIL,
    "version: 1\nquality: [anchors]" + TAIL,
    "version: 1\nquality: {anchors: 0}" + TAIL,
    "version: 1\nquality: {anchors: [5]}" + TAIL,
    "version: 1\nquality: {clocks: none}" + TAIL,
    "version: 1\nquality: {missing_ranks: -1}" + TAIL,
    "version: 1\nquality: {missing_ranks: 1.5}" + TAIL,
    "version: 1\nquality: {missing_ranks: }" + TAIL,
    "version: 1\nquality: {unlaunched: 0.2}" + TAIL,
    "version: 1\nquality: {unlaunched: 120%}" + TAIL,
    "version: 1\nquality: {unstaged: many}" + TAIL,
    "version: 1\nquality: {typicality: 5%}" + TAIL,
    "version: 1\nquality: {typicality: -5}" + TAIL,
]
REFUSED_ENTRIES = [
    "'  '",
    "{}",
    "{require: '>= 60%'}",
    "{id: a}",
    "{assert: no syncs, across: {rank: max}}",
    "{assert: no syncs, balance: pp}",
    "{assert: no syncs, pipeline: true}",
    "{metric: overlap_score, require: '>= 0.3', pipeline: 1}",
    "{assert: no syncs, baseline: {rel: 5%}}",
    "{metric: overlap, baseline: {history: , rel: 5%}}",
    *(f"{{metric: overlap, baseline: {{rel: 5%}}, fail_after: {rest}}}" for rest in ("0", "10000", "two", "")),
    f"{{{RATIO}, where: {{}}}}",
    f"{{{RATIO}, where: [stage]}}",
    f"{{{RATIO}, across: rank}}",
    f"{{{RATIO}, across: {{rank: most}}}}",
    "{metric: compute_ns, require: <= 1.1, balance: pp, across: {dp: max}}",
    f"{{{RATIO}, for: {{stage: []}}}}",
    f"{{{RATIO}, marks: [skip]}}",
    f"{{{RATIO}, marks: [a b]}}",
    f"{{{RATIO}, allow_no_data: maybe}}",
    f"{{{RATIO}, warn: }}",
    f"{{{RATIO}, id: {{a: b}}}}",
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


@pytest.mark.parametrize("text", [*ACCEPTED, *map(in_file, ACCEPTED_ENTRIES)])
def test_both_accept(text: str) -> None:
    assert loads(text) == ""
    assert validates(text) == ""


TOLD = [
    *(text for text, _ in OF_THE_FILE),
    *(f"{ENTRY}    {keys}\n" for keys, _ in OF_A_LIMIT),
    *(f"{ENTRY}    require: '>= 60%'\n    {keys}\n" for keys, _ in OF_OTHER_KEYS),
]
"""What the loader says of these is tested there."""


@pytest.mark.parametrize("text", [*REFUSED, *map(in_file, REFUSED_ENTRIES), *TOLD])
def test_both_refuse(text: str) -> None:
    assert loads(text)
    assert validates(text)


def test_every_key_has_a_description() -> None:
    keys = [(name, key.help) for section in KEYS.values() for name, key in section.items()]
    assert len(keys) > 90
    assert [name for name, text in keys if not text.endswith((".", "{kind}"))] == []


def test_the_schema_is_what_the_table_of_keys_says() -> None:
    assert PATH.read_text(encoding="utf-8") == schema_text(), "run python -m tests.generate_docs"


def test_every_kind_is_read_and_described() -> None:
    assert {key.kind for keys in KEYS.values() for key in keys.values()} == set(KINDS) == set(SCHEMAS)


def test_a_line_that_is_no_row_of_the_keys_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys.ini").write_text("[file]\nowner = text Team that answers.\n", encoding="utf-8")
    monkeypatch.setattr(kinds, "SOURCE", tmp_path / "keys.ini")
    with pytest.raises(ValueError, match=r"'owner = text Team .*' is no row: write key = kind: what it says"):
        kinds._table()
