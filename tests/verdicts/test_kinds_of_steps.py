"""Are prefill and decode gated apart? Four requests by turns, read with torch.profiler and with nsys."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.commands import run
from tests.support.gates import Project, with_id
from tests.support.serving import EngineStep, decode, four_requests, mixed, prefill, write_serving

FORMATS, ENGINES = ("nsys", "kineto"), ("vllm", "sglang")


def serve(
    project: Project, steps: Sequence[EngineStep], format: str = "nsys", engine: str = "vllm", **how: object
) -> str:
    """The path of a trace of these steps."""
    name = f"{engine}-{format}-{len(list(project.root.iterdir()))}"
    return str(write_serving(project.root / name, format, steps, engine=engine, **how))  # type: ignore[arg-type]


def judged(project: Project, gate: str, trace: str) -> dict[str, str]:
    """The state of each sentence under a real pytest."""
    project.gate(gate)
    return {name: case.state for name, case in project.cases(f"--nsys-trace={trace}").items()}


def judge_each(project: Project, trace: str, entries: Iterable[str], head: str = "") -> dict[str, str]:
    """State and reason of each entry of one gate file, on one line."""
    names = {entry: f"s{n}" for n, entry in enumerate(entries)}
    project.gate(f"{head}assertions:\n{''.join(with_id(name, entry) for entry, name in names.items())}")
    reasons = project.reasons(f"--nsys-trace={trace}")
    return {entry: reasons[name] for entry, name in names.items()}


SENTENCES = {
    "decode step time <= 11ms": "decode step time <= 9ms",
    "prefill step time <= 41ms": "prefill step time <= 39ms",
    "mixed step time <= 46ms": "mixed step time <= 44ms",
    "p99 decode step time <= 11ms": "p99 decode step time <= 10ms",
    "p90 prefill step time <= 41ms": "p90 prefill step time <= 39ms",
    "prefill exposed <= 1100us": "prefill exposed <= 900us",
    "decode overlap >= 70%": "decode overlap >= 80%",
    "median decode overlap >= 70%": "median decode overlap >= 80%",
    "decode throughput >= 240 tokens/s": "decode throughput >= 260 tokens/s",
    "prefill throughput >= 12000 tokens/s": "prefill throughput >= 13000 tokens/s",
    "decode launches == 10": "decode launches == 9",
    "decode idle <= 1% of step": "decode exposed <= 5% of step",
    "step time of decode <= 11ms": "step time of decode <= 9ms",
    "no decode syncs": "prefill launches <= 9",
}
"""Green ones, and beside each one that is red on the same trace."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.sampled(3)
def test_a_sentence_of_each_kind_is_green_and_red(project: Project, format: str, engine: str) -> None:
    trace = serve(project, four_requests(), format, engine)
    reasons = judge_each(project, trace, [*SENTENCES, *SENTENCES.values()], "quality: {anchors: 1}\n")
    states = {entry: reason.partition(":")[0] for entry, reason in reasons.items()}
    assert states == {**dict.fromkeys(SENTENCES, "passed"), **dict.fromkeys(SENTENCES.values(), "failure")}


GREEN, RED = "passed:", "failure:"
NO_MEDIAN = "the run has 20 decode, 3 prefill and 1 mixed steps, which share no median"
OF_ONE_KIND = dict.fromkeys(("step time <= 11ms", "decode step time <= 11ms", "overlap >= 70%"), GREEN)
JUDGED: dict[str, tuple[str, Sequence[EngineStep], Mapping[str, str]]] = {
    "several kinds": (
        "",
        four_requests(),
        {
            **dict.fromkeys(("step time <= 11ms", "overlap >= 1%", "throughput >= 1 tokens/s"), NO_MEDIAN),
            "p50 period_ns <= 1s": "'decode step time <= 30ms' or window: decode",
            "prefill step time <= 1s": "rank 0 has 3 prefill steps (bound: at least 5)",
            "{assert: overlap >= 1%, window: prefil}": "'prefil' (did you mean 'prefill'?)",
            "{assert: overlap >= 1%, window: stedy decode}": "(did you mean 'steady'?)",
        },
    ),
    "one kind needs no word": ("", [decode(4, 10_000 + k) for k in range(9)], OF_ONE_KIND),
    "one step has no percentile": (
        "",
        [decode(3)],
        {"p99 decode step time <= 90ms": RED, "decode step time <= 90ms": GREEN},
    ),
    "a kind without a step": (
        "",
        [decode(4)] * 9,
        {"prefill exposed <= 3ms": "no data: it has no row in the window: the run has no prefill step, only 9"},
    ),
    "windows of a kind in a key, and a slow step moves the percentile alone": (
        "quality: {typicality: off, anchors: 1}\n",
        four_requests(slow_us=5_000),
        {
            **dict.fromkeys((f"{{assert: launches == 10, window: {w}}}" for w in ("decode", "steady decode")), GREEN),
            **dict.fromkeys((f"{{assert: idle <= 1ms, window: {w}}}" for w in ("2 prefill", "first mixed")), GREEN),
            "decode step time <= 11ms": GREEN,
            "p99 decode step time <= 11ms": RED,
        },
    ),
    # its label is a step ahead: by the CPU's times the step behind a prefill would take as long as that
    "a step takes as long as it has the GPU": (
        "",
        [prefill(), decode(1)] * 8,
        {"p99 decode step time <= 10ms": GREEN, "p50 prefill step time >= 40ms": GREEN},
    ),
    "stated work wins over labels, and another kind may leave the window of the file": (
        "window: prefill\nquality: {anchors: 1}\nworkload: {samples: 8}\nrun: {sequence_length: 100}\n",
        four_requests(),
        {**dict.fromkeys(("decode throughput >= 79000 tokens/s", "step time >= 39ms"), GREEN), "decode idle > 1s": RED},
    ),
    "mixed is a purpose of streams, too": (
        "",
        [mixed()] * 9,
        {"no mixed comm streams": GREEN, "mixed step time <= 50ms": GREEN},
    ),
    "the whole run is no kind": (
        "window: run\n",
        four_requests(),
        {"decode exposed <= 3ms": "'decode' picks steps, and window run has none: leave one out"},
    ),
    "a misspelt kind": (
        "window: prefil\n",
        four_requests(),
        {"decode exposed <= 3ms": "and window prefil (did you mean 'prefill'?) does not: leave one out"},
    ),
}


@pytest.mark.parametrize(("head", "steps", "expected"), JUDGED.values(), ids=JUDGED)
def test_what_is_judged(project: Project, head: str, steps: Sequence[EngineStep], expected: Mapping[str, str]) -> None:
    reasons = judge_each(project, serve(project, steps), expected, head)
    assert [entry for entry, reason in expected.items() if reason not in reasons[entry]] == [], reasons
    assert {reasons[entry].partition(":")[0] for entry in expected if expected[entry] == NO_MEDIAN} <= {"error"}


def test_labels_of_another_engine(project: Project) -> None:
    one_kind = serve(project, JUDGED["one kind needs no word"][1], engine="sglang")
    assert set(judged(project, "".join(f"- {entry}\n" for entry in OF_ONE_KIND), one_kind).values()) == {"passed"}
    said = outcome(project, "throughput >= 1 tokens/s", serve(project, [mixed()] * 9, engine="sglang"))
    assert "the label 'step[MIXED bs=3]' does not say how many tokens" in " ".join(said.split())


def outcome(project: Project, sentence: str, trace: str) -> str:
    """What pytest says of one sentence."""
    project.gate(f"- {sentence}")
    return project.pytest(f"--nsys-trace={trace}", "-v")


@pytest.mark.parametrize("sentence", ["step time <= 1s", "overlap >= 1%", "p50 period_ns <= 1s"])
def test_captures_of_two_kinds_share_no_median_either(project: Project, sentence: str) -> None:
    """Each of one kind, so that none of them asks which."""
    first, second = serve(project, [decode(4)] * 9), serve(project, [prefill()] * 9)
    project.gate(f"- {sentence}")
    said = " ".join(project.pytest(f"--nsys-trace={first}", f"--nsys-trace={second}").split())
    assert "the captures have 9 decode and 9 prefill steps, which share no median" in said
    assert "1 error" in said


def test_a_capture_that_kept_one_decode_step_is_an_error(project: Project) -> None:
    """Though how many there are is compared by nobody."""
    before = serve(project, [decode(4)] * 10)
    gate = "tolerance: {rel: 5%}\nassertions:\n- decode step time below baseline plus tolerance\n- decode exposed <= 1s"
    project.gate(gate)
    project.refresh(f"--nsys-trace={before}")
    for steps in ([decode(4)], [prefill(), decode(4), prefill()]):
        assert set(judged(project, gate, serve(project, steps)).values()) == {"error"}
    one = serve(project, [decode(4)])
    said = project.pytest(f"--nsys-trace={one}", f"--nsys-against={before}", "-v", code=1)
    assert "rank 0 has 1 decode step (bound: at least 5): the run it is held against had 10" in " ".join(said.split())


def test_one_decode_step_is_enough_where_one_was_accepted(project: Project) -> None:
    project.gate("tolerance: {rel: 5%}\nassertions:\n- decode step time below baseline plus tolerance")
    project.refresh(f"--nsys-trace={serve(project, [decode(4)])}")
    project.pytest(f"--nsys-trace={serve(project, [decode(4, 10_030)])}", code=0)


def test_a_step_of_a_kind_that_is_not_there(project: Project) -> None:
    said = run(serve(project, four_requests()), "--window", "30 prefill", code=3).stderr
    assert "there is no prefill step 30: the rank has 3, numbered" in said


def test_below_a_kind_without_a_step_no_command_is_named(project: Project) -> None:
    """None can show it, and a run without it is nobody's new normal."""
    project.gate("quality: {anchors: 3}\nassertions:\n- prefill exposed below baseline plus 5%")
    project.refresh(f"--nsys-trace={serve(project, four_requests())}")
    said = project.pytest(f"--nsys-trace={serve(project, [decode(4)] * 9)}", "-v", code=1)
    assert "the run has no prefill step, only 9 decode steps" in " ".join(said.split())
    assert not commands(said)


@pytest.mark.parametrize(
    ("sentence", "what"),
    [
        ("decod step time <= 1ms", "(did you mean 'decode'?)"),
        ("decode prefill step time <= 1ms", "one kind of steps at a time: 'decode' or 'prefill'"),
        ("p95 decode step time <= 1ms", "a quantile is one of p50, p90, p99, mean, max, not 'p95'"),
    ],
)
def test_words_that_cannot_be_meant(project: Project, sentence: str, what: str) -> None:
    project.gate(f"convention: vllm\nassertions:\n- {sentence}")
    assert what in " ".join(project.pytest(f"--nsys-trace={serve(project, [])}", code=2).split())


def test_a_window_of_another_kind_is_not_passed_over(project: Project) -> None:
    project.gate("- {assert: decode step time <= 11ms, window: 2 prefill}")
    said = " ".join(project.pytest(f"--nsys-trace={serve(project, four_requests())}", code=2).split())
    assert "one kind of steps at a time: 'decode' in the sentence, or 'prefill' here" in said


def of_ranks(project: Project, *ranks: Sequence[EngineStep]) -> str:
    """The path of a run with these steps on each rank."""
    folder = project.root / "ranks"
    folder.mkdir()
    for number, steps in enumerate(ranks):
        trace = json.loads(Path(serve(project, steps, "kineto")).read_text())
        name = folder / f"rank{number}_trace.json"
        name.write_text(json.dumps({**trace, "distributedInfo": {"rank": number, "world_size": len(ranks)}}))
    return "ranks"


@pytest.mark.parametrize("convention", ["convention: vllm\n", ""])
def test_ranks_without_a_kind_in_common_are_read_under_no_other_convention(project: Project, convention: str) -> None:
    """Nobody judges a rank alone."""
    run = of_ranks(project, [decode(4)] * 9, [prefill()] * 9)
    project.gate(convention + "assertions:\n- decode step time <= 1s\n- decode exposed <= 1s")
    said = " ".join(project.pytest(f"--nsys-trace={run}", code=1).split())
    assert "2 error" in said
    assert "rank 1 has no decode step, though another rank has: give the traces of one engine" in said
    named = ["--convention=vllm"] if convention else []
    lacks = "rank 0 has no prefill step, though another rank has: give the traces of one engine"
    assert lacks in project.command("init", run, "-o", "drafted.nsys.yaml", *named, code=3)
    beside = "nothing measured of rank 0: ranks/rank0_trace.json: rank 0 has no prefill step"
    assert beside in project.command("show", run, *named, code=0)
    assert f"problem: {project.root}/ranks/rank0_trace.json: {lacks}" in project.command("check", run, *named, code=1)


def test_a_rank_without_a_kernel_says_what_to_do(project: Project) -> None:
    said = project.command("init", of_ranks(project, [decode(4)] * 9, []), "-o", "drafted.nsys.yaml", code=3)
    assert "rank 1 ran no kernel: profile it again, or give the traces of the others" in said


def test_a_kind_that_every_rank_has_is_looked_at_first(project: Project) -> None:
    run = of_ranks(project, [decode(4)] * 9 + [prefill()] * 5, [prefill(41_000)] * 5)
    said = project.command("show", run, code=0)
    assert "prefill step 41 ms on the slowest rank (1), 40 ms on the fastest (0)" in said
    assert "steps: 9 decode (on some ranks), 5 prefill (41 ms); of another kind: --window decode" in said
    project.command("init", run, "-o", "drafted.nsys.yaml", code=0)
    assert "decode step time" not in (project.root / "drafted.nsys.yaml").read_text()


def test_captures_without_a_kind_in_common(project: Project) -> None:
    """What one of them lacks names no empty place, and they are no draft."""
    first, second = serve(project, [decode(4)] * 9), serve(project, [prefill()] * 9)
    project.gate("- decode step time <= 1s")
    said = project.pytest(f"--nsys-trace={first}", f"--nsys-trace={second}", code=1)
    assert "no data: only 1 of 2 captures have this row" in " ".join(said.split())
    said = project.command("init", first, second, "-o", "drafted.nsys.yaml", code=3)
    assert f"error: {second} has not the steps of {first}: the run has no decode step, only 9 prefill steps" in said


def test_what_samples_behind_the_label_is_in_the_step(project: Project) -> None:
    traces = serve(project, four_requests()), serve(project, four_requests(), sampling=False)
    assert [[*judged(project, "- decode launches == 10", trace).values()] for trace in traces] == [
        ["passed"],
        ["failure"],
    ]


BASELINE = """
quality: {anchors: 1}
tolerance: {rel: 5%}
assertions:
- decode step time below baseline plus tolerance
- prefill step time below baseline plus tolerance
- p99 decode step time below baseline plus tolerance
- decode exposed below baseline plus tolerance
"""


def test_each_kind_has_a_baseline_and_a_history_of_its_own(project: Project) -> None:
    before, slower = serve(project, four_requests()), serve(project, four_requests(prefill_us=45_000))
    (project.root / "baselines").mkdir()
    project.gate(BASELINE)
    project.refresh(f"--nsys-trace={before}", "--nsys-history=h.db")
    (stored,) = project.baselines().values()
    assert '"window": "median decode"' in stored
    assert '"window": "median prefill"' in stored
    cases = project.cases(f"--nsys-trace={slower}", "--nsys-history=h.db", code=1)
    assert [name for name, case in cases.items() if case.state == "failure"] == ["prefill step time below"]
    project.pytest(f"--nsys-trace={slower}", "-k", "decode", code=0)


@pytest.mark.parametrize("first", ["decode", "prefill"])
def test_a_kind_is_explained_by_steps_of_its_own(project: Project, first: str) -> None:
    """Of a median step the baseline keeps one of each kind, whichever sentence is the first."""
    second = "prefill" if first == "decode" else "decode"
    project.gate(
        "quality: {anchors: 1}\ntolerance: {rel: 5%}\nassertions:\n"
        + "".join(f"- {kind} step time below baseline plus tolerance\n" for kind in (first, second))
    )
    before = serve(project, four_requests())
    project.pytest(f"--nsys-trace={before}", "--nsys-update-baselines", "--nsys-reason=first", code=0)
    slower = {"(10 → 12 ms)": four_requests(decode_us=12_000), "(40 → 45 ms)": four_requests(prefill_us=45_000)}
    for step, now in slower.items():
        trace = f"--nsys-trace={serve(project, now)}"
        said = [project.pytest(trace, *how, code=1) for how in ((), (f"--nsys-against={before}",))]
        stored, both = (re.findall(r"^  why: .*(?:\n    .*)*", each, re.MULTILINE) for each in said)
        assert stored == both != [], said[0]
        assert step in said[0]


def test_which_runs_are_comparable(project: Project) -> None:
    """One of another number of steps, and none of another kind."""
    project.gate(BASELINE)
    project.refresh(f"--nsys-trace={serve(project, four_requests())}")
    project.pytest(f"--nsys-trace={serve(project, four_requests() * 2)}", code=0)
    project.gate("tolerance: {rel: 5%}\nassertions:\n- step time below baseline plus tolerance", "of_one.nsys.yaml")
    project.refresh("of_one.nsys.yaml", f"--nsys-trace={serve(project, [decode(4)] * 9)}")
    said = project.pytest("of_one.nsys.yaml", f"--nsys-trace={serve(project, [prefill(9_000)] * 9)}", code=1)
    assert "anchor: now prefill, baseline decode" in " ".join(said.split())


def test_a_stage_of_that_name_stays_a_stage(project: Project) -> None:
    """Where the convention that is found has no kinds."""
    project.trace(stages=("decode_stage2_f", "stage4_f"))
    gate = """
    convention: {extends: pithtrain, stage: "layer00.(?P<stage>decode|stage4_f)"}
    assertions:
    - decode overlap >= 70%
    """
    assert set(judged(project, gate, "run.sqlite").values()) == {"passed"}
    said = outcome(project, "decode overlap >= 70%", "run.sqlite")  # under auto, whose stages are others
    assert "no data: no row has stage decode" in said
    said = " ".join(outcome(project, "decode step time <= 1s", "run.sqlite").split())
    assert "'decode' is a kind of steps under convention sglang or vllm, and this run is read under pithtrain" in said


def test_compare_holds_each_kind_against_its_own(project: Project) -> None:
    before, slower = serve(project, four_requests()), serve(project, four_requests(decode_us=12_000))
    project.gate(BASELINE)
    assert "decode step time" in project.command("compare", before, slower, "--gate", "gate.nsys.yaml", code=1)
    cases = project.cases(f"--nsys-trace={slower}", f"--nsys-against={before}", code=1)
    states = {name.rpartition("::")[2]: case.state for name, case in cases.items()}
    assert states == {
        "decode step time below": "failure",
        "prefill step time below": "passed",
        "p99 decode step time below": "failure",
        "decode exposed below": "passed",
    }


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.sampled(2)
def test_the_first_screen_and_a_draft_tell_kinds_apart(project: Project, format: str) -> None:
    trace = serve(project, four_requests(), format)
    said = run(trace, code=0).stdout.splitlines()
    assert said[0].endswith("one of 20 (--window '10 decode')")
    assert "steps: 20 decode (10 ms), 3 prefill (40 ms), 1 mixed (45 ms); of another kind: --window prefill" in said
    assert len(said) <= 40
    (shown,) = [
        line for line in run(trace, "--window", "prefill", code=0).stdout.splitlines() if line.startswith("prefill")
    ]
    assert shown == "prefill step 40 ms; 12800 tokens/s"
    assert "24 ranges" in run(trace, "--window", "run", code=0).stdout
    project.command("init", serve(project, 2 * four_requests(), format), "-o", "drafted.nsys.yaml", code=0)
    drafted = (project.root / "drafted.nsys.yaml").read_text()
    times = [line.strip() for line in drafted.splitlines() if "step time below" in line]
    assert times == [f"- {kind} step time below baseline plus tolerance" for kind in ("decode", "prefill")]
    assert "quality" not in drafted, "two mixed steps loosen nothing"
    project.pytest("drafted.nsys.yaml", code=0)
    slower = serve(project, 2 * four_requests(prefill_us=45_000), format)
    red = project.pytest("drafted.nsys.yaml", f"--nsys-trace={slower}", "--junitxml=junit.xml", code=1)
    assert "Prefill step 12% slower (40 → 45 ms)" in red
    assert [name for name, case in project.junit().items() if case.state == "failure"] == ["prefill step time below"]


@pytest.mark.parametrize(
    ("kind", "written", "told"),
    [
        ("decode", "window: decode", ""),
        ("prefill", "window: prefill", "warning: rank 0 has 3 prefill steps; the gate allows it\n"),
        ("mixed", "window: first mixed", ""),
    ],
)
def test_a_draft_is_of_the_kind_that_is_named(project: Project, kind: str, written: str, told: str) -> None:
    trace = serve(project, four_requests())
    assert told in project.command("init", trace, "--window", kind, "-o", "drafted.nsys.yaml", code=0)
    drafted = (project.root / "drafted.nsys.yaml").read_text().splitlines()
    assert written in drafted
    assert [line.split()[1] for line in drafted if "step time below" in line] == [*dict.fromkeys(("decode", kind))]
    project.pytest("drafted.nsys.yaml", code=0)
    slower = [each._replace(length_us=each.length_us * 3 // 2) for each in four_requests()]
    assert f"{kind} step time" in project.pytest("drafted.nsys.yaml", f"--nsys-trace={serve(project, slower)}", code=1)


@pytest.mark.parametrize(
    ("kind", "steps", "code", "why"),
    [
        ("prefil", four_requests(), 2, "--window prefil: is no kind of steps (did you mean 'prefill'?)"),
        ("first", four_requests(), 2, "--window first: is no kind of steps: there are prefill, decode, mixed"),
        ("decode", [prefill()] * 5, 3, "the run has no decode step, only 5 prefill steps"),
    ],
)
def test_empty_kinds_are_not_drafted(project: Project, kind: str, steps: list[EngineStep], code: int, why: str) -> None:
    told = project.command("init", serve(project, steps), "--window", kind, "-o", "drafted.nsys.yaml", code=code)
    assert why in " ".join(told.split())
    assert not (project.root / "drafted.nsys.yaml").exists()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.sampled(2)
def test_a_draft_of_one_step_asks_for_that_one(project: Project, engine: str) -> None:
    trace = serve(project, [decode(3)], "kineto", engine)
    project.command("init", trace, "-o", "drafted.nsys.yaml", code=0)
    assert "window: first decode" in (project.root / "drafted.nsys.yaml").read_text().splitlines()
    project.pytest("drafted.nsys.yaml", code=0)


def commands(said: str) -> list[list[str]]:
    """The words of each command that a text names, which may go on behind a backslash."""
    lines = said.replace("\\\n", " ").splitlines()
    return [shlex.split(line[at:], comments=True) for line in lines if (at := line.find("pytest-nsys ")) >= 0]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("window", "kind"), [((), "decode"), (("--window", "2 prefill"), "prefill")])
@pytest.mark.sampled(3)
def test_commands_below_it_measure_its_kind(project: Project, format: str, window: tuple[str, ...], kind: str) -> None:
    trace = serve(project, four_requests(), format)
    other = serve(project, four_requests(decode_us=12_000, prefill_us=45_000), format)
    named = [words for words in commands(run(trace, *window, code=0).stdout) if words[1] != "--explain"]
    assert {words[1] for words in named} == {trace, "init", "cut", "compare"}
    for words in named:
        assert words[words.index("--window") + 1].endswith(kind), words
        words = [other if word == "OTHER_RUN" else word for word in words[1:]]
        told = project.command(*words, code=1 if words[0] == "compare" else 0)
        assert words[0] not in ("compare", "cut") or kind in told.lower()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.sampled(2)
def test_commands_below_a_red_measure_its_kind(project: Project, format: str) -> None:
    trace = serve(project, four_requests(), format)
    red = {
        "decode step time <= 9ms": "decode",
        "prefill exposed <= 900us": "prefill",
        "mixed overlap >= 90%": "mixed",
        "decode launches <= 1": "decode",
    }
    for sentence, kind in [*red.items(), ("{assert: launches <= 1, window: steady prefill}", "0 prefill")]:
        project.gate(f"quality: {{anchors: 1}}\nassertions:\n- {sentence}")
        (words,) = commands(project.pytest(f"--nsys-trace={trace}", "-v", code=1))
        assert words[words.index("--window") + 1] == kind
        project.command(*words[1:], code=0)


def test_several_kinds_on_both_sides_are_the_mistake_of_both(project: Project) -> None:
    both, one = serve(project, four_requests()), serve(project, [decode(4)] * 9)
    several = "20 decode, 3 prefill and 1 mixed steps"
    for base, head, said in (
        (both, serve(project, four_requests(11_000)), f"base has {several}, head has {several}"),
        (one, both, f"base has 9 decode steps, head has {several}"),
    ):
        told = " ".join(project.command("compare", base, head, code=2).split())
        assert f"error: {said}, which share no median: say which" in told
        assert "(`pytest-nsys TRACE --window decode`)" in told
        project.command("compare", base, head, "--window", "decode")
    for window in ("run", "1000000:400000000"):
        project.command("compare", both, serve(project, four_requests(12_000)), "--window", window, code=1)
    assert "prefill" in project.command("compare", one, serve(project, [prefill()] * 9), code=3)


@pytest.mark.parametrize(
    ("window", "meant"),
    [("prefil", "'prefil' (did you mean 'prefill'?)"), ("stedy decode", "(did you mean 'steady'?)")],
)
def test_a_window_of_a_command_that_is_nearly_a_kind(project: Project, window: str, meant: str) -> None:
    assert meant in project.command(serve(project, four_requests()), "--view", "overlap", "--window", window)


def test_a_view_of_one_window_refuses_steady_steps_of_a_kind(project: Project) -> None:
    said = project.command(serve(project, four_requests()), "--view", "kernels", "--window", "steady decode", code=2)
    assert "--window steady decode is many windows" in said


def test_the_only_kind_of_a_run_is_said_first(project: Project) -> None:
    said = run(serve(project, [decode(4)] * 9), code=0).stdout.splitlines()
    assert ": decode step = " in said[0]
    assert said[2].startswith("decode step 10 ms")


def test_the_window_of_a_red_is_a_step_of_its_kind(project: Project) -> None:
    """Not its time on the CPU, which is that of the step before."""
    said = outcome(project, "decode step time <= 9ms", serve(project, four_requests()))
    assert "_generation_3(3), 11th of 20 decode steps (--window '10 decode')" in " ".join(said.split())
    assert "\nDecode step_time_ns 10 ms > 9 ms" in said
    assert "on the CPU" not in said


HIDDEN = "ran in CUDA graphs: one launch starts many"


def test_what_cuda_graphs_hide_is_said_once(project: Project) -> None:
    """Of a run, wherever notes are told: not of each assertion. In JSON notes are of assertions alone."""
    trace, other = (serve(project, [decode(4, us + k) for k in range(9)], "kineto") for us in (10_000, 10_040))
    project.gate("- decode step time <= 1s\n- decode exposed <= 1s\n- compute <= 1s\n- overlap >= 1%")
    said = {
        "pytest -v": project.pytest(
            f"--nsys-trace={trace}", "-v", "--nsys-summary=o.md", "--nsys-html=o.html", "--nsys-json=o.json", code=0
        ),
        "Markdown": (project.root / "o.md").read_text(),
        "page": (project.root / "o.html").read_text(),
        "show": run(trace, code=0).stdout,
        "budget": run(trace, "--view", "budget", code=0).stderr,
        "check": run("check", trace, code=0).stdout,
    }
    assert {name: " ".join(text.split()).count(HIDDEN) for name, text in said.items()} == dict.fromkeys(said, 1)
    assert " ".join(project.command("compare", trace, other, code=0).split()).count(HIDDEN) == 2, "of each side"
    (file,) = json.loads((project.root / "o.json").read_text())["gate_files"]
    assert {sum(HIDDEN in note for note in own["notes"]) for own in file["assertions"]} == {1}


def drafted(project: Project, steps: Sequence[EngineStep]) -> None:
    """A gate file that ``init`` drafts, with its baseline."""
    project.name = "gates.nsys.yaml"
    run("init", serve(project, steps), "-o", project.root / project.name, code=0)


def test_a_draft_holds_the_tokens_of_all_kinds_and_the_time_between(project: Project) -> None:
    """Batches of 2 in place of 8 are no slower steps, and 798 → 202 tokens a second."""
    drafted(project, [prefill(), *[decode(8)] * 20])
    text = (project.root / project.name).read_text()
    assert "assert: tokens_per_s above baseline minus 5%" in text
    assert "over steps of all kinds, with the time between them." in text
    project.pytest(project.name, code=0)
    said = project.pytest(project.name, f"--nsys-trace={serve(project, [prefill(), *[decode(2)] * 20])}", "-v", code=1)
    assert re.search(r"failed +tokens_per_s above ", said)
    told = " ".join(said.split())
    assert (
        "the engine did other work (decode: now 95% of the steps, 2 tokens each, baseline 95% of the steps, 8" in told
    )


def test_decode_that_moves_into_mixed_steps_is_red(project: Project) -> None:
    drafted(project, [prefill(), *[decode(4)] * 20, *[mixed()] * 2])
    moved = serve(project, [prefill(), *[decode(4)] * 14, *[mixed()] * 8])
    said = project.pytest(project.name, f"--nsys-trace={moved}", "-v", code=1)
    assert "the engine did other work (decode: now 61% of the steps" in " ".join(said.split())


def test_what_an_engine_did_need_not_agree_where_nobody_asks(project: Project) -> None:
    base, head = serve(project, [decode(8)] * 12), serve(project, [decode(4)] * 12)
    gate = "comparable_on: [convention]\nassertions: [decode step time <= baseline + 5%]\n"
    project.gate(gate)
    project.refresh(f"--nsys-trace={base}")
    project.pytest(f"--nsys-trace={head}", code=0)
    project.gate(gate.replace("[convention]", "[convention, kind_work]"))
    project.pytest(f"--nsys-trace={head}", code=1)


def test_a_comparison_of_other_work_is_not_green(project: Project) -> None:
    """Batches of 2 in place of 8: their steps are as long, and do a quarter of the work."""
    base, head = (
        serve(project, [prefill(), *[decode(batch, 10_000 + batch + k) for k in range(20)]]) for batch in (8, 2)
    )
    said = " ".join(project.command("compare", base, head, "--window", "decode", code=3).split())
    assert "the engine did other work" in said


def test_other_work_is_seen_without_a_word_of_the_kind_and_in_any_capture(project: Project) -> None:
    """Steps are of one kind, which no sentence names; and of three captures one alone does what the baseline did."""
    project.gate("assertions: [step time <= baseline + 5%, window_ns <= baseline + 5%]")
    base, *same = (serve(project, [decode(8, 10_000 + first + k) for k in range(12)]) for first in (0, 1))
    others = [serve(project, [decode(2, 10_000 + first + k) for k in range(12)]) for first in (2, 3)]
    project.refresh(f"--nsys-trace={base}")
    project.pytest(*(f"--nsys-trace={trace}" for trace in same), code=0)
    said = project.pytest(f"--nsys-trace={others[0]}", "-v", code=1)
    assert "the engine did other work (decode: now 100% of the steps, 2 tokens each" in " ".join(said.split())
    said = project.pytest(*(f"--nsys-trace={trace}" for trace in (*same, *others)), "-v", code=1)
    assert "the engine did other work" in " ".join(said.split())


def test_a_refresh_mixes_no_steps_of_other_work(project: Project) -> None:
    """Of every sentence the rows are written anew, whether they moved or not."""
    project.gate("assertions: [decode step time <= baseline + 5%, tokens_per_s >= baseline - 5%]")
    base, head = (serve(project, [decode(batch, 10_000 + batch + k) for k in range(12)]) for batch in (8, 2))
    project.refresh(f"--nsys-trace={base}")
    refresh = ("baseline", "refresh", project.name, f"--trace={head}", "--reason=new")
    said = " ".join(project.command(*refresh, code=0).split())
    assert "the stored run was another one (decode: now 100% of the steps, 2 tokens each, baseline 100%" in said
    assert "every row is written" in said
    project.pytest(f"--nsys-trace={head}", code=0)
    project.pytest(f"--nsys-trace={base}", code=1)
