"""What do the words of the screens, pages and reports mean? ``--explain WORD`` prints them, and the docs list them.

Names of metrics are not repeated here: each has its summary in the registry.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from pytest_nsys.analysis.metrics.names import resolve_metric
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.version import make_page_url

MAX_SIMILAR_WORDS = 5
"""So many words are named if none is the one that was typed."""

METRICS_PAGE = "metrics"


class Term(NamedTuple):
    """Explains one word, or several that mean the same, and names the page (with an anchor) that says more."""

    words: tuple[str, ...]
    meaning: str
    page: str


GLOSSARY = (
    Term(
        ("step",),
        "one turn of the range (ProfilerStep#%) or kernels that repeat; its length is that of the slowest rank",
        "metrics#windows",
    ),
    Term(
        ("window",),
        "what is measured: the median step of each rank, unless --window says another",
        "metrics#windows",
    ),
    Term(("steady",), "the middle half of the steps; a value is the median over them", "metrics#windows"),
    Term(
        ("anchor",),
        "the range, or the kernel, that repeats once per step, micro-batch or layer",
        "metrics#windows",
    ),
    Term(
        ("rank",), "a process of the run, by its setup label; else numbered by file, process, device", "metrics#ranks"
    ),
    Term(
        ("worst rank of each", "worst rank"),
        "each line has the rank with the most exposed time in that stage: lines may be of unlike ranks",
        "metrics#ranks",
    ),
    Term(
        ("stage",),
        "the part of the step that launched a kernel: all_gather, stage3_f",
        "metrics#stages-and-purposes",
    ),
    Term(
        ("convention",),
        "how a framework names ranges and kernels; found in the trace",
        "metrics#conventions",
    ),
    Term(("capture",), "one run under the profiler; its trace is a file, or a file of each rank", "traces"),
    Term(
        ("row",),
        "one value with its labels: exposed_ns of rank 3, stage stage4_f",
        "metrics",
    ),
    Term(
        ("contained", "launched"),
        "which kernels a window has: those that run inside it, or those launched inside it",
        "metrics#windows",
    ),
    Term(
        ("compute",),
        "the share of the step in which any kernel computes, communication aside",
        "metrics#the-device-budget",
    ),
    Term(
        ("exposed",),
        "communication without compute beside it; compute need not have waited for it",
        "metrics#words-of-time",
    ),
    Term(("overlap",), "the share of communication's time with compute beside it", "metrics#words-of-time"),
    Term(
        ("starved", "launch-starved"),
        "no compute: the next kernel was not launched yet",
        "what-holds-the-step-back#what-to-try",
    ),
    Term(
        ("between", "between steps"),
        "no compute after the step's last work, until the next step is launched: the host loads data, logs, waits",
        "metrics#words-of-time",
    ),
    Term(
        ("blocked", "collective", "copy", "copies", "memset", "device"),
        "no compute: the next kernel was launched, and waits for a collective, a copy, a memset, another GPU; proven",
        "what-holds-the-step-back#what-to-try",
    ),
    Term(
        ("in comm", "stalled during communication"),
        "no compute: launched, communication ran, and nothing proves that the kernel waited for it",
        "what-holds-the-step-back#how-far-the-figures-go",
    ),
    Term(
        ("stalled",),
        "no compute: launched, and nothing in the trace explains the wait",
        "what-holds-the-step-back#what-to-try",
    ),
    Term(
        ("producer",),
        "the kernel, copy or collective whose end a blocked kernel waits for",
        "metrics#the-device-budget",
    ),
    Term(
        ("barrier",),
        "a communication kernel on a stream that also computes",
        "metrics#communication-streams-barriers",
    ),
    Term(
        ("at most", "throughput gain"),
        "what fixing one finding could win, alone, of the step or in throughput; an upper bound",
        "what-holds-the-step-back#an-example",
    ),
    Term(
        ("doubtful",),
        "why figures above may mislead: check it first, with what the line names",
        "rules#trace-quality",
    ),
    Term(("baseline",), "the accepted rows of an earlier run, in your repository", "baselines"),
    Term(("refresh",), "to store a run as the baseline, with a reason", "baselines#refresh"),
    Term(("headroom",), "the distance to a limit", "reading-a-red"),
    Term(
        ("no data",),
        "nothing to judge: no matching row, an empty window, no baseline; red",
        "rules#trace-quality",
    ),
    Term(
        ("incomparable",),
        "run and baseline differ in what must agree, such as GPU or number of ranks; red",
        "rules",
    ),
    Term(("inconclusive",), "worse by more than the tolerance, but within the measured noise; a warning", "rules"),
    Term(("accepted",), "red by main's baseline, as far as the branch refreshed it", "ci#when-a-regression-is-wanted"),
    Term(("waived", "waiver"), "a red that the gate file allows until a date, up to a ceiling", "gate-file#waivers"),
    Term(
        ("merge base",),
        "the commit of main from which a branch began; its gate judges first",
        "ci#the-merge-base-judges",
    ),
    Term(
        ("root",), "a change that no other explains, and that explains others", "reading-a-red#why-the-causes-of-a-red"
    ),
)
"""Every word of a screen, page or report that needs saying, in the order in which a reader meets them."""


def explain_word(word: str) -> tuple[str, str]:
    """Return two lines on a word or a metric: its meaning, and the page that says more.

    Raises UsageMistake with the most similar words.
    """
    terms = {name: term for term in GLOSSARY for name in term.words}
    typed_word = " ".join(word.casefold().replace("*", "").split())
    term = terms.get(typed_word) or terms.get(typed_word.removesuffix("s"))
    if term is not None:
        return f"{', '.join(term.words)}: {term.meaning}", f"more: {_make_anchored_url(term.page)}"
    if (metric := resolve_metric(typed_word)) is not None:
        summary = metric.summary.replace("``", "").rstrip(".")
        return f"{metric.name}: {summary}", f"more: {make_page_url(METRICS_PAGE)}"
    similar = difflib.get_close_matches(typed_word, terms, n=MAX_SIMILAR_WORDS, cutoff=0.5)
    choices = f"nearest are {', '.join(similar)}" if similar else f"there are {', '.join(terms)}, and the metrics"
    raise UsageMistake(f"there is no word '{sanitize_line(word, 40)}': {choices}")


def _make_anchored_url(page: str) -> str:
    name, _, anchor = page.partition("#")
    return make_page_url(name) + (f"#{anchor}" if anchor else "")
