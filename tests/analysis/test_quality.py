"""A trace that is not good enough is an error before any verdict, and the gate file says what is good enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_nsys.analysis.quality import tells_of_loss
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.samples.builder import Process, TraceBuilder
from tests.support.gates import ANCHOR, MS, Edit, Project
from tests.support.reference_data import DUALPIPE, DUALPIPE_RUNS

OVERLAP = "overlap >= 60%"
LAUNCHES = "{metric: launches, where: {stage: none}, require: '>= 1'}"
LABEL = "rank={rank}; pp={rank}/4 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
ALIKE = "rank={rank}; pp=0/1 dp=0/1 cp=0/1 ep={rank}/{ranks}; mbs=1 seq=2048"
MIDDLE = 40 * MS + 1_000
"""Start of the median window of the trace that the tests share."""


def gate(quality: str = "", sentence: str = OVERLAP, more: str = "") -> str:
    head = f"quality: {{{quality}}}\n" if quality else ""
    return f"{head}{more}assertions:\n  - {sentence}"


def judged(project: Project, text: str, *arguments: str) -> tuple[str, list[str]]:
    """The outcome of the one assertion of a gate file, and the lines on the trace's quality."""
    project.gate(text)
    (case,) = project.cases("--nsys-trace=run.sqlite", *arguments).values()
    assert (case.state == "error") == (case.properties["nsys_outcome"] == "error")
    lines = [line.removeprefix("  error: ").strip() for line in project.result.outlines]
    found = dict.fromkeys(line for line in lines if line.startswith("trace quality: "))
    return str(case.properties["nsys_outcome"]), list(found)


def session(length_ns: int) -> Edit:
    def edit(trace: TraceBuilder, _: list[Process]) -> None:
        trace.insert("ANALYSIS_DETAILS", globalVid=1, duration=length_ns, startTime=0, stopTime=length_ns)

    return edit


def before_all(_: TraceBuilder, processes: list[Process]) -> None:
    processes[0].kernel("gemm", -500, -400, stream=7)


def told(severity: int, text: str) -> Edit:
    return lambda trace, _: trace.diagnostic(severity, text)


def whole_graph(_: TraceBuilder, processes: list[Process]) -> None:
    processes[0].graph_trace(MIDDLE + 12 * MS, MIDDLE + 13 * MS)


def deep_ep(_: TraceBuilder, processes: list[Process]) -> None:
    """Two kernels on rank 0 beside the 6.4 ms of the four gemms and the four of NCCL."""
    for name, start_ns, length_ns in (("dispatch", 0, 1_200_000), ("combine", MS, 400_000)):
        full, start_ns = f"void deep_ep::intranode::{name}<8>(int*)", MIDDLE + 10 * MS + start_ns
        processes[0].kernel(name, start_ns, start_ns + length_ns, stream=29, launch_ns=MIDDLE + 1, demangled=full)


def unlaunched(_: TraceBuilder, processes: list[Process]) -> None:
    """One of the five kernels of rank 0's window, of nine in all."""
    processes[0].kernel("gemm", MIDDLE + 1_200_000, MIDDLE + 1_300_000, stream=7, launch=False)


def outside_stages(_: TraceBuilder, processes: list[Process]) -> None:
    """One of nine kernels of the windows, one of five that communicate, on a stream that is no other's."""
    processes[0].kernel("ncclDevKernel_AllReduce", MIDDLE + 12 * MS, MIDDLE + 13 * MS, stream=29)


def more_anchors(number: int, *, ranks: int, work: bool) -> Edit:
    """More chunks at the end of some ranks, with a kernel in each or without any."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes[:ranks]:
            for k in range(5, 5 + number):
                begin = 20 * MS * k + 1_000
                process.range(ANCHOR.format(k), begin, begin + 15 * MS)
                if work:
                    process.kernel("gemm", begin + MS, begin + 2 * MS)

    return edit


def two_machines(trace: TraceBuilder, _: list[Process]) -> None:
    other = trace.process(pid=900, hardware_id=2)
    other.range("rank=2; pp=2/3 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", 10, 20)
    for k in range(5):
        begin = 20 * MS * k + 1_000
        other.range(ANCHOR.format(k), begin, begin + 15 * MS)
        other.range("layer00.stage2_f", begin + MS, begin + 3 * MS)
        other.kernel("ncclDevKernel_SendRecv", begin + 2 * MS, begin + 2 * MS + 100, stream=28)
        other.kernel("gemm", begin + 2 * MS, begin + 2 * MS + 100, stream=7)


Case = tuple[dict[str, object], str, str, str, str]

CASES: dict[str, Case] = {
    # what the trace is like, the bound that it crosses ("" is the default), the line, a bound that it keeps, sentence
    "missing ranks": (
        {"label": LABEL},
        "",
        "trace quality: 2 of 4 ranks are missing (bound: at most 0): no trace holds ranks 2, 3 of the setup labels' "
        "mesh; profile all ranks, or write quality: {missing_ranks: 2} in the gate file",
        "missing_ranks: 2",
        OVERLAP,
    ),
    "unlaunched": (
        {"edit": unlaunched},
        "",
        "trace quality: 11.1 % of 9 kernels have no launch row (bound: at most 10%): their stage could only be looked "
        "up at their GPU start, which runs behind; trace the CUDA API on all ranks, or write quality: "
        "{unlaunched: 11.2%} in the gate file",
        "unlaunched: 11.2%",
        OVERLAP,
    ),
    "unstaged": (
        {"edit": outside_stages},
        "unstaged: 11%",
        "trace quality: 11.1 % of 9 kernels of the windows have no stage (bound: at most 11%): they are in no stage's "
        "rows; mend the convention's stage expression, or write quality: {unstaged: 11.2%} in the gate file",
        "unstaged: 11.2%",
        OVERLAP,
    ),
    "unclassified": (
        {"edit": outside_stages},
        "unclassified: 0%",
        "trace quality: 20.0 % of 5 communication kernels have no purpose (bound: at most 0%): no rule of the "
        "convention says what they are for; add a purpose to the convention, or write quality: {unclassified: 20%} in "
        "the gate file",
        "unclassified: 20%",
        "no mixed comm streams",
    ),
    "whole graphs": (
        {"edit": whole_graph},
        "",
        "trace quality: 1 CUDA graph replay was traced whole (bound: at most 0): their kernels are in no window; "
        "capture with --cuda-graph-trace=node, or write quality: {whole_graphs: 1} in the gate file",
        "whole_graphs: 1",
        OVERLAP,
    ),
    "a loss that the profiler tells of": (
        {"edit": told(2, "CUPTI buffer overflow: 12 records were dropped")},
        "",
        "trace quality: events were dropped or are out of range, 1 sign of it (bound: at most 0): the profiler says: "
        "CUPTI buffer overflow: 12 records were dropped, so that rows may be missing or wrong; profile fewer steps or "
        "event kinds, or export again, or write quality: {dropped: 1} in the gate file",
        "dropped: 1",
        OVERLAP,
    ),
    "diagnostics": (
        {"edit": told(2, "Scheduling information is absent.")},
        "diagnostics: 0",
        "trace quality: the profiler tells of 1 problem (bound: at most 0): Scheduling information is absent.; "
        "mend what it says, or write quality: {diagnostics: 1} in the gate file",
        "diagnostics: 1",
        OVERLAP,
    ),
    "few anchors": (
        {"chunks_ms": (15,) * 4},
        "",
        "trace quality: rank 0 has 4 anchors (bound: at least 5): the median of so few says little; profile more "
        "steps, or write quality: {anchors: 4} in the gate file",
        "anchors: 4",
        OVERLAP,
    ),
    "kernels that end before the ranges do": (
        {"edit": more_anchors(4, ranks=2, work=False)},
        "",
        "trace quality: rank 0: 4 of 9 anchors begin after its last kernel (bound: at most 20%): the record of its "
        "kernels ends before that of its ranges, and any window may lack some; profile fewer steps, and look at what "
        "the profiler said when it stopped, or write quality: {empty_anchors: 44.5%} in the gate file",
        "empty_anchors: 44.5%",
        "compute_ns <= 1s",
    ),
    "anchors of one rank alone": (
        {"edit": more_anchors(2, ranks=1, work=True), "label": ALIKE},
        "",
        "trace quality: rank 1 has 5 anchors, rank 0 has 7 (bound: at most 1): so their windows are other pieces of "
        "work; profile the same steps on all ranks, or write quality: {uneven_anchors: 2} in the gate file",
        "uneven_anchors: 2",
        "compute_ns <= 1s",
    ),
    "an untypical window": (
        {"chunks_ms": (15, 14, 13, 17, 15, 16, 15)},
        "typicality: 1",
        "trace quality: rank 0: the window is 2.0 MAD from the steady median (bound: at most 1): numbers of an "
        "untypical window are no typical ones; profile more steps or take another window, or write quality: "
        "{typicality: 2} in the gate file",
        "typicality: 2",
        "window_ns <= 1s",
    ),
    "an untypical window among equal ones": (
        {"chunks_ms": (15, 15, 15, 18, 15, 15, 15)},
        "typicality: 5",
        "trace quality: rank 0: the window is 3000000 ns from the steady median, which most others hit exactly (a MAD "
        "of 0) (bound: at most 5): numbers of an untypical window are no typical ones; profile more steps or take "
        "another window, or write quality: {typicality: 3000000} in the gate file",
        "typicality: 3000000",
        "window_ns <= 1s",
    ),
    "communication that nobody named": (
        {"edit": deep_ep},
        "unknown_communication: 0%",
        "trace quality: 2 kernels of DeepEP count as compute, 18.2 % of the kernel time (deep_ep::intranode::dispatch "
        "1.2 ms, deep_ep::intranode::combine 0.4 ms) (bound: at most 0%): communication that runs beside them looks "
        'hidden; write convention: {extends: pithtrain, communication: ["*deep_ep::*"]}, or write quality: '
        "{unknown_communication: 18.2%} in the gate file",
        "unknown_communication: 18.2%",
        OVERLAP,
    ),
    "several clocks": (
        {"edit": two_machines, "label": LABEL.replace("/4", "/3")},
        "clocks: 1",
        "trace quality: the ranks stand on 2 clocks (bound: at most 1): times of two files or machines cannot be held "
        "against each other; profile all ranks into one report, or write quality: {clocks: 2} in the gate file",
        "clocks: 2",
        "window_ns <= 1s",
    ),
}


@pytest.mark.parametrize(("trace", "bound", "line", "kept", "sentence"), CASES.values(), ids=CASES)
def test_a_crossed_bound_is_an_error_that_says_how_to_set_it(
    project: Project, trace: dict[str, object], bound: str, line: str, kept: str, sentence: str
) -> None:
    project.trace(**trace)  # type: ignore[arg-type]
    assert judged(project, gate(bound, sentence)) == ("error", [line])
    assert judged(project, gate(kept, sentence)) == ("passed", [])


@pytest.mark.parametrize(("trace", "kept", "sentence"), [(t, k, s) for t, _, _, k, s in CASES.values()], ids=CASES)
def test_a_check_that_is_off_says_nothing(project: Project, trace: dict[str, object], kept: str, sentence: str) -> None:
    project.trace(**trace)  # type: ignore[arg-type]
    check = kept.partition(":")[0]
    assert judged(project, gate(f"{check}: off", sentence)) == ("passed", [])


STRICT = (
    "missing_ranks: 0, unlaunched: 0%, unstaged: 0%, unclassified: 0%, unknown_communication: 0%, whole_graphs: 0, "
    "dropped: 0, diagnostics: 0, anchors: 5, empty_anchors: 0%, uneven_anchors: 0, typicality: 0, clocks: 1"
)


@pytest.mark.parametrize("quality", ["", STRICT])
@pytest.mark.parametrize("sentence", [OVERLAP, "no mixed comm streams", "launches >= 2", "window_ns <= 1s"])
def test_a_good_trace_keeps_every_bound(project: Project, quality: str, sentence: str) -> None:
    project.trace(edit=session(200 * MS))
    assert judged(project, gate(quality, sentence)) == ("passed", [])


@pytest.mark.parametrize(
    ("edit", "window", "said"),
    [
        (before_all, "run", "1 kernel around the windows starts outside the profiler's session"),
        (
            session(80 * MS),
            "run",
            "8 kernels around the windows start outside the profiler's session",
        ),
    ],
)
def test_kernels_at_impossible_times(project: Project, edit: Edit, window: str, said: str) -> None:
    project.trace(edit=edit)
    text = gate("", "compute_ns <= 1s", f"window: {window}\n")
    outcome, (line,) = judged(project, text)
    assert outcome == "error"
    assert said in line
    assert judged(project, "quality: {dropped: 8}\n" + text)[1] == []


def test_times_that_count_from_elsewhere_are_in_no_doubt(project: Project) -> None:
    """An export can shift all times, to UTC for example; the length of the session then bounds nothing."""
    project.trace(edit=session(1_000))
    assert judged(project, gate("", "compute_ns <= 1s")) == ("passed", [])


def test_what_good_traces_may_show_of_their_anchors(project: Project) -> None:
    """One anchor in five without kernels, or one more on one rank, is told and no error."""
    for edit, ranks, said in (
        (more_anchors(1, ranks=2, work=False), 2, "warning: rank 1: 1 of 6 anchors begins after its last kernel"),
        (more_anchors(1, ranks=1, work=True), 2, "warning: rank 1 has 5 anchors, rank 0 has 6"),
    ):
        project.trace(edit=edit, ranks=ranks, label=ALIKE)
        assert judged(project, gate("", "compute_ns <= 1s")) == ("passed", [])
        assert said in project.result.stdout.str()
        assert said.removeprefix("warning: ") in project.command("streams", "run.sqlite", code=0)


def test_ranks_of_two_places_may_have_other_numbers_of_anchors(project: Project) -> None:
    project.trace(edit=more_anchors(2, ranks=1, work=True))
    assert judged(project, gate("", "compute_ns <= 1s")) == ("passed", [])
    assert "  note: rank 1 has 5 anchors, rank 0 has 7: windows that are found by their" in project.result.stdout.str()


@pytest.mark.parametrize("window", ["first", "2", "run", "40001000:55001000"])
def test_a_window_that_is_not_found_by_its_place_among_all(project: Project, window: str) -> None:
    project.trace(edit=more_anchors(4, ranks=1, work=True), label=ALIKE)
    text = f"{{assert: compute_ns <= 1s, window: '{window}'}}"
    if ":" in window:
        start, end = window.split(":")
        text = f"{{assert: compute_ns <= 1s, window: {{start: {start}, end: {end}}}}}"
    assert judged(project, gate("", text)) == ("passed", [])


def test_all_crossed_bounds_are_told_together(project: Project) -> None:
    project.trace(label=LABEL, chunks_ms=(15,) * 3, edit=told(3, "3 events were lost"))
    outcome, lines = judged(project, gate("diagnostics: 0"))
    assert outcome == "error"
    assert [line.split("(")[0] for line in lines] == [
        "trace quality: 2 of 4 ranks are missing ",
        "trace quality: events were dropped or are out of range, 1 sign of it ",
        "trace quality: the profiler tells of 1 problem ",
        "trace quality: rank 0 has 3 anchors ",
    ]
    assert judged(project, gate("missing_ranks: 2, dropped: off, anchors: 3")) == ("passed", [])


def test_the_record_of_an_error_is_one_line(project: Project) -> None:
    project.gate(gate())
    project.trace(label=LABEL, chunks_ms=(15,) * 3)
    (case,) = project.cases("--nsys-trace=run.sqlite", code=1).values()
    message = case.properties["nsys_message"]
    assert message.count("trace quality: ") == 2
    assert "in the gate file; trace quality: rank 0 has 3 anchors" in message
    assert message.isprintable()
    assert "�" not in message


@pytest.mark.parametrize(
    ("sentence", "more"),
    [
        ("window_ns <= 1s", "window: first\n"),
        ("window_ns <= 1s", "window: 1\n"),
        ("window_ns <= 1s", "window: {start: 20001000, end: 35001000}\n"),
        ("busy_ns <= 1s", "window: run\n"),
        ("window_ns <= 1s", "window: forward chunk 1%\n"),
        ("anchors == 3", ""),
    ],
)
def test_few_anchors_matter_to_a_median_alone(project: Project, sentence: str, more: str) -> None:
    project.trace(chunks_ms=(15,) * 3)
    assert judged(project, gate("", sentence, more)) == ("passed", [])


@pytest.mark.parametrize(
    ("sentence", "more"),
    [
        ("window_ns <= 1s", "window: steady\n"),
        ("window_ns <= 1s", "window: forward chunk%\n"),
        ("p50 period_ns <= 1s", "window: first\n"),
    ],
)
def test_every_median_over_few_anchors_is_in_doubt(project: Project, sentence: str, more: str) -> None:
    project.trace(chunks_ms=(15,) * 3)
    outcome, (line,) = judged(project, gate("", sentence, more))
    assert outcome == "error"
    assert "rank 0 has 3 anchors" in line


def test_launch_rows_matter_where_launches_are_asked_for(project: Project) -> None:
    project.trace(edit=unlaunched)
    assert judged(project, gate("", "compute_ns <= 1s")) == ("passed", [])
    outcome, (line,) = judged(project, gate("", "compute_ns <= 1s", "kernels: launched\n"))
    assert outcome == "error"
    assert (
        "11.1 % of 9 kernels have no launch row (bound: at most 10%): with kernels: launched they are left out" in line
    )


def test_launch_rows_do_not_matter_where_there_are_no_stages(project: Project) -> None:
    convention = f"convention: {{extends: generic, anchor: '{BUILT_IN['pithtrain'].anchor}'}}\n"
    project.trace(edit=unlaunched, label=None)
    assert judged(project, gate("", LAUNCHES, convention)) == ("passed", [])


def test_a_baseline_is_not_compared_on_a_bad_trace(project: Project) -> None:
    text = gate("", "exposed_ns <= baseline + 5%")
    project.gate(text)
    project.trace()
    project.refresh("--nsys-trace=run.sqlite")
    project.trace(chunks_ms=(15,) * 4)
    outcome, (line,) = judged(project, text)
    assert outcome == "error"
    assert "rank 0 has 4 anchors" in line


def test_a_bad_trace_becomes_no_baseline(project: Project) -> None:
    project.gate("- exposed_ns <= baseline + 5%\n- overlap >= 60%")
    project.trace(chunks_ms=(15,) * 4)
    said = project.refresh("--nsys-trace=run.sqlite", "-k", "exposed_ns", code=1)
    assert "rank 0 has 4 anchors (bound: at least 5)" in said
    assert project.baselines() == {}


def test_the_fixture_judges_no_bad_trace_either(project: Project) -> None:
    project.gate(gate("anchors: 4"))
    project.trace(chunks_ms=(15,) * 4)
    test = """
        def test_plain(nsys_gate):
            nsys_gate("overlap >= 60%")

        def test_bounded(nsys_gate):
            nsys_gate("overlap >= 60%", gate_file="gate.nsys.yaml")
    """
    project.file("test_it.py", test)
    said = project.pytest("test_it.py", "--nsys-trace=run.sqlite", code=1)
    assert "rank 0 has 4 anchors (bound: at least 5)" in said
    project.result.assert_outcomes(passed=1, failed=1)


def test_captures_are_told_apart(project: Project) -> None:
    project.trace()
    project.trace("short.sqlite", chunks_ms=(15,) * 4)
    outcome, _ = judged(project, gate(), "--nsys-trace=short.sqlite")
    assert outcome == "error"
    assert "short.sqlite: trace quality: rank 0 has 4 anchors" in project.result.stdout.str()
    assert "run.sqlite: trace quality" not in project.result.stdout.str()


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("12 CUPTI records were dropped", True),
        ("Some NVTX ranges were lost", True),
        ("Event buffer overflowed", True),
        ("Not all NVTX events might have been collected.", False),
        ("No events were lost", False),
        ("0 CUPTI records dropped", False),
        ("15 CPU sampling events were lost", False),
        ("Number of CUDA events collected: 37.", False),
        ("Scheduling information is absent.", False),
    ],
)
def test_what_tells_of_a_loss(text: str, loss: bool) -> None:
    assert tells_of_loss(text) is loss


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{anchor: 3}", "unknown key 'anchor' (did you mean 'anchors'?)"),
        ("{anchors: few}", "anchors is a whole number from 1 on, or off, not 'few'"),
        ("{unlaunched: 0.1}", "unlaunched is a share, as in 10%, or off, not '0.1'"),
        ("{typicality: 5%}", "typicality is a number of MAD, as in 5, or off, not '5%'"),
    ],
)
def test_mistakes_stand_at_their_line(project: Project, written: str, said: str) -> None:
    project.trace()
    project.gate(f"quality: {written}\nassertions: [{OVERLAP}]")
    told = project.pytest("--nsys-trace=run.sqlite", code=2)
    assert "gate.nsys.yaml:2:" in told
    assert said in told


@pytest.mark.reference
@pytest.mark.parametrize("name", DUALPIPE_RUNS)
def test_real_traces_keep_the_defaults(project: Project, name: str) -> None:
    sentences = ("no mixed comm streams", "window_ns <= 1s", "median overlap >= 1%", "launches >= 1", "compute_ns > 0")
    for more in ("", "window: steady\n", "window: run\n", "kernels: launched\n"):
        project.gate(f"{more}assertions:\n" + "".join(f"  - {s}\n" for s in sentences))
        said = project.pytest(f"--nsys-trace={DUALPIPE / name}.sqlite")
        assert "trace quality" not in said


def test_the_sample_trace_keeps_the_defaults(project: Project) -> None:
    sample = Path(__file__).parents[2] / "examples" / "traces" / "dualpipe.sqlite"
    project.gate(f"- {OVERLAP}\n- no mixed comm streams\n- window_ns <= 1s")
    assert "trace quality" not in project.pytest(f"--nsys-trace={sample}")
