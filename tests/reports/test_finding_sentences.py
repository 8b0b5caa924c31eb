"""Does each finding read as one sentence, with what mending it could win and what to type next?"""

from __future__ import annotations

from fractions import Fraction

import pytest

from pytest_nsys.analysis.findings import Figures, Finding
from pytest_nsys.analysis.losses import FindingKind
from pytest_nsys.analysis.quality import Fact
from pytest_nsys.reports.findings import command_for, nothing_found, sentence, win_words

MS = 1_000_000


def finding(kind: FindingKind, win_ns: int | None = MS, figures: Figures | None = None, **more: object) -> Finding:
    return Finding(kind, None if win_ns is None else 1, (0, 1), 20 * MS, win_ns, figures or {}, **more)  # type: ignore[arg-type]


SENTENCES: list[tuple[Finding, str]] = [
    (
        finding(FindingKind.STRAGGLER, MS, {"for_rank": 3, "collective": "AllReduce", "collective_ns": MS // 2}),
        "rank 1: waits 1 ms for rank 3, 500 us of it in AllReduce",
    ),
    (
        finding(FindingKind.WRONG_STREAM, MS, {"stream": "20", "compute_kernels": 4, "kernel": "cast", "kernel_ns": 5}),
        "rank 1: 4 compute kernels on communication stream 20 (mostly cast): its communication waits in line, exposed "
        "for 1 ms",
    ),
    (
        finding(
            FindingKind.COMMUNICATION,
            MS,
            {"stage": "stage4_f", "kernel": "ncclDevKernel_SendRecv", "kernel_ns": MS // 2, "comm_ns": 2 * MS},
        ),
        "rank 1: communication runs without compute for 1 ms, 500 us of it stage4_f ncclDevKernel_SendRecv",
    ),
    (
        finding(FindingKind.SYNCS, MS, {"call": "cudaStreamSynchronize", "call_ns": MS, "calls": 1}),
        "rank 1: cudaStreamSynchronize (1 call) keeps the host from launching: no compute for 1 ms",
    ),
    (
        finding(FindingKind.TINY_KERNELS, MS, {"tiny": 80, "kernels": 100}),
        "rank 1: 80 of 100 compute kernels run 10 us or less, with 1 ms of gaps before them",
    ),
    (
        finding(FindingKind.LAUNCHES, MS, {"before": "", "before_ns": MS, "before_gaps": 1, "gaps": 1}),
        "rank 1: launch-bound: the GPU waits 1 ms for launches, 1 ms of it after the last kernel",
    ),
    (
        finding(FindingKind.COPIES, MS, {"producer": "copy", "before": "gemm", "before_ns": MS, "pageable": 2}),
        "rank 1: copies block compute for 1 ms, 1 ms of it before gemm, and 2 copies use pageable memory",
    ),
    (
        finding(FindingKind.CLOCKS, MS, {"sm_clock_mhz": 990, "best_mhz": Fraction(1_980)}),
        "rank 1: the SMs run at 990 MHz, the fastest of this run at 1980 MHz",
    ),
    (
        finding(FindingKind.PROFILER, None, {"overhead": Fraction(1, 4)}),
        "a step takes 25% longer under the profiler: trace fewer kinds of events",
    ),
    (
        finding(
            FindingKind.DOUBT, None, doubt=Fact("anchors", "count", 1, "rank 0 has 1 anchor", "too few", "trace more")
        ),
        "rank 0 has 1 anchor: too few; trace more",
    ),
]


@pytest.mark.parametrize(("each", "text"), SENTENCES, ids=lambda each: getattr(each, "kind", ""))
def test_sentences(each: Finding, text: str) -> None:
    assert sentence(each) == text


def test_names_of_others_stay_on_their_line() -> None:
    figures: Figures = {"before": "k\x1b[2J\n" + "x" * 300, "before_ns": MS, "before_gaps": 1, "gaps": 1}
    text = sentence(finding(FindingKind.STALLED, MS, figures))
    assert text.isprintable()
    assert len(text) < 160


def test_a_win_is_a_share_and_a_time_and_a_doubt_has_none() -> None:
    assert win_words(finding(FindingKind.COPIES)) == "at most 5% of the step (1 ms)"
    assert win_words(finding(FindingKind.DOUBT, None)) == ""


def test_commands_name_the_user_s_own_traces() -> None:
    paths = ["my run/a.sqlite", "b.sqlite"]
    assert command_for(finding(FindingKind.LAUNCHES), paths) == "pytest-nsys 'my run/a.sqlite' b.sqlite --view budget"
    assert command_for(finding(FindingKind.DOUBT, None), ["a.sqlite"]) == "pytest-nsys check a.sqlite"


def test_nothing_stands_out() -> None:
    assert nothing_found(Fraction(97, 100)) == "nothing stands out: 97% of the step computes"
