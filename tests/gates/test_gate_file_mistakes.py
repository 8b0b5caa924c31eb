"""Mistakes in gate files: each is one line, with the line and the column of the word that is wrong."""

from pathlib import Path

import pytest

from pytest_nsys.core.errors import GateFileError
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import BaselineLimit
from tests.support.gate_files import loaded, mistakes

HEAD = "version: 1\nassertions:\n"
ENTRY = HEAD + "  - assert: overlap >= 60%\n"
NO_TOLERANCE = "there is no tolerance to add: write one into the gate file, as in tolerance: {rel: 5%, abs: 50us}"
NOTHING_FOR = "the tolerance has nothing for overlap: give it rel, or an abs such as 1pp"
MAX = "write a whole number from 1 to 9999, as in last 10 runs of main"
QUOTE_BLOCK = 'YAML reads > and | as the start of a block: quote it, as in ">= 60%"'
QUOTE_GLOB = 'YAML reads a leading * as an alias: quote it, as in "*stage*"'


@pytest.mark.parametrize(
    ("content", "mistake"),
    [
        ("", "1:1: the file is empty: write version: 1 and assertions"),
        ("# nothing\n", "1:1: the file is empty: write version: 1 and assertions"),
        (b"a: \xff\n", "1:1: this is not UTF-8 text"),
        (b"a: 1\nb: \xff\n", "2:1: this is not UTF-8 text"),
        (b"SQLite format 3\x00\x10\x00", "1:16: a control character (U+0000): this is not a text file"),
        ("a: 1\nb: \x1b[31m\n", "2:4: a control character (U+001B): this is not a text file"),
        ("[1, 2]\n", "1:1: a gate file is a mapping: version: 1, assertions: …"),
        ("text\n", "1:1: a gate file is a mapping: version: 1, assertions: …"),
        (HEAD + "- no syncs\n---\na: 1\n", "4:1: a gate file is one document: remove what follows '---'"),
        ("version: 1\nrun: {pp: 4\n", "3:1: not YAML: while parsing a flow mapping, did not find expected"),
        ("a: b: c\n", "1:5: a ':' where YAML allows none: quote the text that holds it, or correct"),
        ("a: @b\n", "1:4: text cannot start with this character in YAML: quote it"),
        ("\ta: 1\n", "1:1: a tab: indent YAML with spaces"),
        (ENTRY + "    warn: >= 60%\n", f"4:11: {QUOTE_BLOCK}"),
        (ENTRY + "    warn: > 60%\n", f"4:11: {QUOTE_BLOCK}"),
        (HEAD + "- *stage* overlap >= 60%\n", f"3:3: {QUOTE_GLOB}"),
        (HEAD + "- *stage overlap >= 60%\n", f"3:3: {QUOTE_GLOB}"),
        ("&a [*a]\n", "1:1: this holds an alias of itself"),
        ("a: " + "[" * 60 + "]" * 60 + "\n", "1:53: nested deeper than 50 levels"),
    ],
)
def test_what_cannot_be_read(content: str | bytes, mistake: str) -> None:
    (found,) = mistakes(content)
    assert found.startswith(mistake)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GateFileError, match=r"none\.yaml:1:1: cannot be read: No such file or directory"):
        load_gate_file(tmp_path / "none.yaml")


def test_a_file_that_is_too_large() -> None:
    assert mistakes("#" * (1 << 20) + "\n") == ["1:1: the file is larger than 1 048 576 bytes"]


def test_an_alias_bomb() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    assert mistakes("\n".join(lines)) == ["1:1: the file holds more than 20 000 nodes, its aliases expanded"]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_without_end_is_no_crash(opening: str) -> None:
    assert len(mistakes(opening * 100_000)) == 1


# Lists with a name are of what editors see too, by the schema.


def beside(key: str) -> str:
    """A gate file with this key beside its assertion."""
    return f"version: 1\n{key}\nassertions: [no syncs]\n"


OF_THE_FILE: list[tuple[str, list[str]]] = [
    ("assertions: [no syncs]\n", ["1:1: 'version' is missing: write version: 1"]),
    ("version: 2\nassertions: [no syncs]\n", ["1:10: version 2 is not supported: write version: 1"]),
    ("version: one\nassertions: [no syncs]\n", ["1:10: version is a whole number from 0 on, not 'one'"]),
    ("version: 1\n", ["1:1: 'assertions' is missing: a gate without assertions always passes"]),
    ("version: 1\nassertions: []\n", ["2:13: assertions is empty"]),
    ("version: 1\nassertions:\n", ["2:12: assertions is empty"]),
    (HEAD + "-\n", ["3:2: an assertion is empty"]),
    (HEAD + "- [no syncs]\n", ["3:3: an assertion is a mapping, as in {key: value}"]),
    (beside("windw: last"), ["2:1: unknown key 'windw' (did you mean 'window'?)"]),
    (beside("window: -1"), ["2:9: a window is an index from 0 on, a word, or {start: NS, end: NS}, not '-1'"]),
    (beside("window: {start: 5}"), ["2:9: a window needs both start and end, in ns"]),
    (beside("span: perod"), ["2:7: span is range or period, not 'perod' (did you mean 'period'?)"]),
    (beside("trace: []"), ["2:8: trace is empty"]),
    (
        "version: 1\ntolerance: 5%\nassertions: [overlap >= baseline - tolerance]\n",
        ["2:12: tolerance is noise, or a mapping such as {rel: 5%, abs: 50us}, not '5%'"],
    ),
    (
        beside("tolerance: nois"),
        ["2:12: tolerance is noise, or a mapping such as {rel: 5%, abs: 50us}, not 'nois' (did you mean 'noise'?)"],
    ),
    (beside("tolerance: [noise]"), ["2:12: tolerance is a mapping, as in {key: value}"]),
    (
        beside("comparable_on: [mehs, gpu, gpu, colour, [], ]"),
        [
            "2:17: unknown circumstance 'mehs' (did you mean 'mesh'?)",
            "2:28: 'gpu' is named twice",
            f"2:33: unknown circumstance 'colour': they are {', '.join(FIELDS)}",
            "2:41: a circumstance is text, not a list",
        ],
    ),
    (beside("comparable_on: []"), ["2:16: comparable_on is empty"]),
    (beside("comparable_on: gpu"), ["2:16: comparable_on is a list, as in [one, two]"]),
    (
        beside("run: {world: 0, 'p p': 2, gpu: }"),
        [
            "2:14: world is a whole number from 1 on, not '0'",
            "2:18: 'p p' is not a name for a mesh axis",
            "2:32: gpu is empty",
        ],
    ),
    (
        beside("convention: {anchor: {after: b}}"),
        ["2:22: anchor needs kernel: the name of the kernel that begins each window"],
    ),
    (beside("convention: {anchor: {kernel: '', after: }}"), ["2:32: kernel is empty", "2:42: after is empty"]),
    (beside("convention: {anchor: {kernl: a}}"), ["2:23: unknown key 'kernl' (did you mean 'kernel'?)"]),
    (beside("convention: {anchor: [a]}"), ["2:22: anchor is text, not a list"]),
    (beside("convention: {anchor: {}}"), ["2:22: anchor needs kernel: the name of the kernel that begins each window"]),
    (beside("convention: {anchor: 3}"), ['2:22: anchor is a name, not a number: quote it, as in "3"']),
    (beside("convention: {anchor: true}"), ['2:22: anchor is a name, not true or false: quote it, as in "true"']),
    (beside("convention: {anchor: ''}"), ["2:23: anchor is empty"]),
    (
        beside("convention: {anchor: {kernel: 3, after: 0.5}}"),
        [
            '2:31: kernel is a name, not a number: quote it, as in "3"',
            '2:41: after is a name, not a number: quote it, as in "0.5"',
        ],
    ),
    (beside("convention: pithtran"), ["2:13: unknown convention 'pithtran' (did you mean 'pithtrain'?)"]),
    (
        beside("convention: {extends: x, stage: '(', purposes: {mixed: {stages: a}}}"),
        [
            "2:23: unknown convention 'x': built in are pithtrain, generic, kineto, torchtitan, jax, sglang, vllm",
            "2:34: not a regular expression: missing ), unterminated subpattern at position 0",
            "2:49: 'mixed' cannot be defined as a purpose: compute, mixed, unknown have a meaning",
            "2:57: unknown key 'stages' (did you mean 'stage'?)",
        ],
    ),
]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        *OF_THE_FILE,
        (HEAD + "- no syncs\nversion: 1\n", ["4:1: 'version' is given twice (first on line 1)"]),
        (beside("<<: {window: last}"), ["2:1: merge keys (<<) are not allowed: write the keys out"]),
        (
            beside("trace: !!python/name:os.system x"),
            ["2:8: YAML tags are not allowed: '!!python/name:os.system' (quote text that begins with !)"],
        ),
        (beside("? [a]\n: 1"), ["2:3: a key is one word"]),
        (beside("convention: {anchor: 'kernel: embed'}"), ["2:23: a kernel stands in braces: write {kernel: embed}"]),
        (beside("convention: {anchor: {kernel: a, kernel: b}}"), ["2:34: 'kernel' is given twice (first on line 2)"]),
        (beside("window: {start: 5, end: 5}"), ["2:25: a window must end after it starts"]),
        (
            "version: 1\ntolerance: {rel: 5, abs: [50us, 1ms, 3%]}\nassertions: [overlap >= baseline - tolerance]\n",
            [
                "2:18: rel is a share of the baseline: write 5%, not 5",
                "2:33: abs takes one amount of each kind, as in [50us, 1pp, 2]",
                "2:38: abs is an amount: write 3pp for percentage points, not 3%",
            ],
        ),
        (beside("convention: {setup: 'a{99999999999}'}"), ["2:13: an expression in this convention is too large"]),
        (
            beside("convention: {families: nvidia}"),
            ["2:24: families is a mapping, family → globs; without it the built-in table counts"],
        ),
        (
            beside("convention: {families: {other: x*}}"),
            ["2:25: 'other' cannot be defined as a family: it holds what no family matches"],
        ),
    ],
)
def test_mistakes_of_the_file(content: str, expected: list[str]) -> None:
    assert mistakes(content) == expected


@pytest.mark.parametrize(
    ("entry", "mistake"),
    [
        ("stage3 overlp >= 60%", "3:12: unknown metric 'overlp' (did you mean 'overlap'?)"),
        ("stage3 overlap >= 60", "3:23: overlap is a ratio: write 60%, not 60"),
        ("'stage3 overlp >= 60%'", "3:13: unknown metric 'overlp' (did you mean 'overlap'?)"),
        ('"stage3 \\x6fverlp >= 60%"', "3:5: unknown metric 'overlp' (did you mean 'overlap'?)"),
        ("é overlp >= 60%", "3:7: unknown metric 'overlp' (did you mean 'overlap'?)"),
        ("stage3\n    overlp >= 60%", "3:5: unknown metric 'overlp' (did you mean 'overlap'?)"),
        ("exposed_ns below baseline plus tolerance", f"3:36: {NO_TOLERANCE}"),
        ("assert: stage3 overlp >= 60%", "3:20: unknown metric 'overlp' (did you mean 'overlap'?)"),
    ],
)
def test_mistakes_of_a_sentence(entry: str, mistake: str) -> None:
    assert mistakes(f"{HEAD}  - {entry}\n") == [mistake]


@pytest.mark.parametrize(
    ("sentence", "mistake"),
    [
        ("overlap >= last 0 runs - 5%", f"3:16: {MAX}"),
        ("overlap >= last ten runs - 5%", f"3:16: {MAX}"),
        ("overlap >= last 10000 runs - 5%", f"3:16: {MAX}"),
        ("overlap >= last 10 runs before the newest 0 - 5%", f"3:16: {MAX}"),
        ("overlap >= last 3 runs of main - 50us", "3:38: overlap is a ratio: write 50pp or 50%, not 50us"),
        ("overlap >= last 3 runs main", "3:28: 'main' comes after the end of the limit"),
        ("overlap >= last 3 runs of", "3:28: 'of' comes after the end of the limit"),
        (
            "overlap <= last 3 runs of main + 5%",
            "3:13: higher overlap is better, so this passes however far it falls: "
            "write overlap >= last 3 runs of main - 5%",
        ),
        ("overlap >= the last", "3:16: 'the' is not a number or 'baseline'"),
        ("overlap within 5%", "3:22: 'of' is missing"),
        ("overlap within 5% of", "3:25: 'baseline' is missing after 'of'"),
        ("overlap within 5% of 60%", "3:26: 'within' is for baselines: write within 5% of baseline"),
        ("overlap within 60% of baseline - 5%", "3:36: '-' comes after the end of the limit"),
        ("overlap within tolerance of baseline", f"3:20: {NO_TOLERANCE}"),
        ("max over rank of >= 60%", "3:19: unknown metric 'of'"),
        ("max over overlap >= 60%", "3:9: a dimension is missing after 'over', as in"),
        ("max over stag of overlap >= 60%", "3:14: overlap has no dimension 'stag' (did you mean 'stage'?)"),
        ("max over rank of min over rank of overlap >= 60%", "3:31: rank is taken together twice"),
        ("max over rank of min overlap >= 60%", "3:22: one aggregate at a time: 'max' or 'min'; of two say over what"),
        ("p100 over rank of overlap >= 60%", "3:5: 'p100': percentiles are p1 to p99"),
        ("max over statistic of busbw >= 4GB/s", "3:14: a statistic is chosen, not aggregated: write max busbw"),
        ("p90 over statistic of busbw >= 4GB/s", "3:14: a statistic is chosen, not aggregated: write median busbw"),
        ("stage2_f||stage4_f overlap >= 60%", "3:5: a label is missing in 'stage2_f||stage4_f'"),
        ('stage "stage2_f overlap >= 60%', "3:11: the quote is not closed"),
        ("rank 0|x overlap >= 60%", "3:10: rank is a number, not 'x'"),
        ("no max barrier_ns", "3:8: 'no' asks for zero in every row: leave out 'max'"),
        ("no rank x barrier_ns", "3:13: rank is a number, not 'x'"),
        ("no barrier_ns where rank x", "3:30: rank is a number, not 'x'"),
    ],
)
def test_mistakes_of_what_a_sentence_may_say(sentence: str, mistake: str) -> None:
    found = mistakes(f"{HEAD}  - {sentence}\n")
    assert [each.startswith(mistake) for each in found] == [True], found


HELD_TO_BASELINE = HEAD + "  - assert: overlap >= baseline - 5%\n    fail_after: 2\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{HEAD}  - id: a\n", ["3:5: an assertion needs 'assert' with a sentence"]),
        (
            f"{HEAD}  - metric: overlap\n",
            ["3:5: unknown key 'metric': write one sentence, as in assert: overlap >= 60%"],
        ),
        (
            f"{HEAD}  - {{assert: exposed <= 2ms on H100, 3ms on A100, severity: warn}}\n",
            ["3:38: in { } a comma ends a value: quote the one that '3ms on A100' is a part of"],
        ),
        (f"{ENTRY}    on_improvement: fail\n", ["4:5: unknown key 'on_improvement': write severity: {improved: fail}"]),
        (f"{ENTRY}    warn: '>= 70'\n", ["4:15: overlap is a ratio: write 70%, not 70"]),
        (f"{ENTRY}    warn: '>= '\n", ["4:14: the limit is missing after '>='"]),
        (
            f"{ENTRY}    warn: >\n      70%\n",
            [
                "4:11: the comparison is missing: write one of <, <=, ==, !=, >=, >, below, above, at least, "
                'at most (YAML reads > as the start of a block: quote it, as in ">= 60%")'
            ],
        ),
        (f"{ENTRY}    warn: '>= baseline'\n", ["4:15: only a constant can be written here, not a baseline"]),
        (
            f"{HELD_TO_BASELINE}    xfail: known\n",
            ["4:17: 'fail_after' cannot be used with 'xfail', which expects the first bad run"],
        ),
        (
            f"{HELD_TO_BASELINE}    severity: {{inconclusive: fail}}\n",
            ["4:17: 'fail_after' makes bad runs inconclusive: it cannot be used with severity: {inconclusive: fail}"],
        ),
        (
            HELD_TO_BASELINE.replace(" - 5%", ""),
            ["4:17: 'fail_after' waits out noise: it needs a baseline with a tolerance, and '>= baseline' has none"],
        ),
    ],
)
def test_mistakes_beside_a_sentence(text: str, expected: list[str]) -> None:
    found = mistakes(text)
    assert len(found) == len(expected)
    assert all(each.startswith(start) for each, start in zip(found, expected, strict=True)), found


OF_OTHER_KEYS: list[tuple[str, list[str] | None]] = [
    ("where: {stage: []}", ["4:20: stage is empty"]),
    ("where: {stage: {}}", ["4:20: stage is a list, as in [one, two]"]),
    *((f"{key}: x", None) for key in ("metric", "require", "baseline", "across", "balance", "pipeline", "tolerance")),
    ("for: {stage: stage2_f}", ["4:18: for stage is a list, as in [one, two]"]),
    ("marks: slow", ["4:12: marks is a list, as in [one, two]"]),
    (
        "marks: [skip, xfail, a b]",
        [
            "4:13: 'skip' cannot be a mark: assertions are never skipped or multiplied",
            "4:19: 'xfail' cannot be a mark: use the key 'xfail'",
            "4:26: a mark is a plain name, not 'a b'",
        ],
    ),
    ("xfail: ''", ["4:13: xfail is empty"]),
    ("severity: warning", ["4:15: severity is fail or warn, not 'warning' (did you mean 'warn'?)"]),
    ("severity: {inconclusive: pass}", ["4:30: inconclusive is fail or warn, not 'pass'"]),
    ("severity: {improve: fail}", ["4:16: unknown key 'improve' (did you mean 'improved'?)"]),
    ("severity: [fail]", ["4:15: severity is a mapping, as in {key: value}"]),
    ("window: {from: 1}", None),
]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        *OF_OTHER_KEYS,
        ("where: {stag: x}", ["4:13: overlap has no dimension 'stag' (did you mean 'stage'?)"]),
        ("where: {rank: x}", ["4:19: rank is a number, not 'x'"]),
        ("for: {stage: [a, a]}", ["4:18: for stage names a value twice"]),
        ("where: {stage: a}\n    for: {stage: [b]}", ["5:11: 'stage' is selected already"]),
        (
            f"for: {{stage: [{', '.join(map(str, range(40)))}], rank: [{', '.join(map(str, range(40)))}]}}",
            ["4:10: this makes 1600 items: at most 1000 are allowed"],
        ),
        ("allow_no_data: yes", ["4:20: allow_no_data is true or false, not 'yes'"]),
        (
            "fail_after: 2",
            ["4:17: 'fail_after' waits out noise: it needs a baseline with a tolerance, and '>= 60%' has none"],
        ),
        ("id: a::b", ["4:9: an id cannot hold '::', which separates the parts of a test's address"]),
        ('id: "\\e"', ["4:9: an id has 1 to 200 printable characters"]),
    ],
)
def test_mistakes_of_other_keys(keys: str, expected: list[str] | None) -> None:
    found = mistakes(f"{ENTRY}    {keys}\n")
    if expected is None:
        assert found[-1].startswith(f"4:{14 if 'window' in keys else 5}: unknown key")
    else:
        assert found == expected


def test_names_are_unique() -> None:
    found = mistakes(f"{HEAD}- no syncs\n- no  syncs\n- {{id: no syncs, assert: no barrier_ns}}\n")
    assert found == [
        "4:3: 'no syncs' is already the name of the assertion on line 3: give it another id",
        "5:3: 'no syncs' is already the name of the assertion on line 3: give it another id",
    ]


def test_all_mistakes_come_together_in_the_order_of_the_file() -> None:
    found = mistakes(
        "version: 3\nwindow: []\nassertions:\n- overlp >= 60%\n- no syncs\n- {id: x, matrix: y}\nrun: {world: a}\n"
    )
    assert [mistake.split(": ")[0] for mistake in found] == ["1:10", "2:9", "4:3", "6:3", "6:19", "7:14"]


TIME, POWER = (f"assertions: [{what} below baseline plus tolerance]" for what in ("window_ns", "measured power"))
MEASURED = "assertions: [measured power within 5W of baseline]"


def test_an_amount_may_be_in_a_unit_of_a_measurement() -> None:
    (one,) = loaded(f"version: 1\n{MEASURED}").assertions
    limit = one.requirement.limit
    assert isinstance(limit, BaselineLimit)
    assert limit.tolerance is not None
    assert dict(limit.tolerance.absolute) == {"W": 5}
    of_file = (
        "version: 1\ntolerance: {abs: [50us, 5W, 3 img/s]}\nassertions: [measured power below baseline plus tolerance]"
    )
    assert set(loaded(of_file).assertions[0].requirement.limit.tolerance.absolute) == {"ns", "W", "img/s"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (f"tolerance: {{rel: 5%, abs: 5W}}\n{TIME}", "2:12: abs in W is for"),
        ("assertions: [window_ns below baseline plus 5W]", "2:44: unknown unit 'W'"),
        (f"tolerance: {{abs: 5usec}}\n{POWER}", "2:18: unknown unit 'usec'"),
        (f"tolerance: {{abs: 5MS}}\n{POWER}", "2:18: unknown unit 'MS'"),
    ],
)
def test_an_amount_in_a_unit_of_nothing(text: str, mistake: str) -> None:
    assert any(found.startswith(mistake) for found in mistakes(f"version: 1\n{text}")), mistakes(f"version: 1\n{text}")
