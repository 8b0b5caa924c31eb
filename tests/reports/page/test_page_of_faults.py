"""Does the page of a red say of each row where it is and what came or went, and draw what it is about, once?"""

import contextlib
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from tests.support.commands import run
from tests.support.fault_programs import WEIGHTS
from tests.support.faults import FAULTS, gone
from tests.support.page import Page
from tests.support.quick_python import quick_python

PageOf = Callable[..., Page]

BESIDE = FAULTS["compute beside an exchange got shorter"]
ALL = {**FAULTS, "what hid an exchange is gone": replace(BESIDE, change=gone(WEIGHTS))}


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> PageOf:
    """The page of a fault, whose gates are those that ``init`` drafts; with a rank whose judged step
    is slower than its others, if one is given.
    """

    @cache
    def made(name: str, untypical_rank: int | None = None) -> Page:
        fault, folder = ALL[name], tmp_path_factory.mktemp("fault")
        format = next(iter(fault.formats))
        base = fault.program().write(folder / "base", format, 1)
        worse = fault.program()
        fault.change(worse)
        for op in worse.steps[untypical_rank][3] if untypical_rank is not None else ():
            op.ns += op.ns * 3 // 100
        head = worse.write(folder / "head", format, 2)
        with contextlib.chdir(folder):  # from elsewhere the baseline would lie in what both folders have in common
            run("init", base, code=0)
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--nsys-trace={head}", "--nsys-html=page.html", "."]
        subprocess.run([quick_python(), *words], cwd=folder, stdout=subprocess.DEVNULL, check=False)
        return Page((folder / "page.html").read_text(encoding="utf-8"))

    return made


def plain(text: str) -> str:
    """What a person reads of a part of a page."""
    shown = re.sub(r"<script.*?</script>|<svg.*?</svg>|<wbr>", "", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", shown).replace("\u00a0", " ").split())


def sections(page: Page) -> list[str]:
    return re.findall(r'<section class="root".*?</section>', page.text, re.DOTALL)


def summaries(section: str) -> list[str]:
    """What is shown of each assertion that is folded."""
    return [plain(one) for one in re.findall(r'<details class="assertion.*?</summary>', section, re.DOTALL)]


def test_each_row_names_its_rank_and_how_far_over_its_limit_it_is(page_of: PageOf) -> None:
    (section,) = sections(page_of("one slow rank"))
    rows = summaries(section)
    assert len(rows) > 3
    for row in rows:
        assert re.search(r"(over|short) by [\d.]+ (ms|us|pp) rank \d", row), row


def test_the_picture_of_the_root_is_that_of_next_and_a_rank_that_waits_is_in_its_fold(page_of: PageOf) -> None:
    (section,) = sections(page_of("one slow rank"))
    first, second = (plain(one) for one in re.findall("<figcaption>.*?</figcaption>", section, re.DOTALL))
    assert first.startswith("rank 3 ")
    assert not second.startswith("rank 3 ")
    waits = section[section.index('<details class="waits"') :].split("</summary>", 1)
    assert plain(waits[0]) == second.split(" ProfilerStep")[0] + " waits"
    assert "--view kernels --rank 3" in plain(section)


def test_a_wait_that_did_not_change_is_no_lead(page_of: PageOf) -> None:
    (section,) = sections(page_of("one slow rank"))
    own, peer = section.split('<details class="waits"')
    assert 'class="producers"' not in own
    assert "blocks multi_tensor_apply_kernel" in plain(peer)


def test_what_came_and_went_is_told_by_name(page_of: PageOf) -> None:
    (section,) = sections(page_of("another algorithm"))
    (row,) = (row for row in summaries(section) if "no new or vanished kernels" in row)
    assert re.search(r"is new: 31\.9% of the time .* is gone: was 26\.5% of the time$", row)
    assert "limit" not in row


def test_of_windows_that_look_alike_one_is_drawn(page_of: PageOf) -> None:
    for name in ("another algorithm", "a kernel fused away"):
        captions = re.findall("<figcaption>.*?</figcaption>", page_of(name).text, re.DOTALL)
        assert len(captions) == 1, name


def test_a_stream_is_called_by_what_it_carries(page_of: PageOf) -> None:
    assert "stream 20 AllReduce" in plain(sections(page_of("one slow rank"))[0])


def test_what_accepts_a_run_stands_once_at_the_end_of_a_section(page_of: PageOf) -> None:
    (section,) = sections(page_of("one slow rank"))
    assert plain(section).count("baseline refresh") == 1
    assert re.search(r"<code>pytest-nsys baseline refresh .*?</code> \(accept this run", section)
    assert "<span>--trace=" in section


def marked(page: Page) -> list[list[str]]:
    """What is marked in each lane that has a mark, of base then head."""
    return [(attrs["d"] or "").split("M")[1:] for attrs in page.by_class("marked") if attrs["d"] != "M0 16h24"]


@pytest.mark.parametrize(
    ("name", "numbers", "cause"),
    [
        ("another algorithm", [6, 6], "gemm bf16 16x16x128 tn"),  # what was replaced, then what replaced it
        ("a kernel fused away", [18, 6], "silu_and_mul_kernel"),
        ("a copy inserted", [6], "copy from device to device"),
        ("a synchronising call", [12], "cudaDeviceSynchronize"),
    ],
)
@pytest.mark.sampled(3)
def test_what_is_a_cause_is_drawn_and_marked(page_of: PageOf, name: str, numbers: list[int], cause: str) -> None:
    found = page_of(name)
    assert [len(one) for one in marked(found)] == numbers
    assert f"cause {cause}" in plain(found.text)


def test_lanes_that_are_as_good_as_empty_are_folded_and_every_mark_has_a_legend(page_of: PageOf) -> None:
    text = page_of("another algorithm").text
    assert text.count('<div class="row quiet"><span class="name">copies') == 2
    assert text.count('<div class="row quiet"><span class="name">no compute') == 2
    gaps = re.findall(r'<svg class="gaps".*?</svg>', text, re.DOTALL)
    assert {css for one in gaps for css in re.findall(r'path class="([^"]+)"', one)} <= {
        "part-rest",
        "outside",
    }


def test_what_is_narrow_has_no_pattern_and_parts_of_gaps_are_as_high_as_the_lane(page_of: PageOf) -> None:
    gaps = re.findall(r'<svg class="gaps".*?</svg>', page_of("a synchronising call").text, re.DOTALL)
    drawn = re.findall(r'<path class="(part-starved)" stroke-width="(\d+)"( stroke="url)?', gaps[1])
    assert drawn == [("part-starved", "20", "")]


def test_of_a_kernel_that_is_gone_one_picture_and_what_it_did_to_each_row(page_of: PageOf) -> None:
    first, no_data, beside = sections(page_of("what hid an exchange is gone"))
    assert [one.count("<figcaption>") for one in (first, no_data, beside)] == [1, 0, 0]
    (rank,) = re.findall(r"<h3>rank (\d)", first)
    assert f"--rank {rank}" in plain(first)
    assert "weight_grad_gemm_kernel is gone: was 14.5% of the time" in plain(first)
    (row,) = summaries(no_data)
    assert "no data launches == baseline rank 0 stage3_w is gone: was 2" in row
    (row,) = summaries(beside)
    assert re.search("improved .* because weight_grad_gemm_kernel is gone$", row)
    assert "cause 1 of 1" not in plain(first)


def test_what_is_doubtful_stands_below_the_evidence_and_is_named_above(page_of: PageOf) -> None:
    text = page_of("one slow rank", 3).text
    assert re.search(r'<header>.*<a href="#doubtful">1 doubt, below</a>.*</header>', text, re.DOTALL)
    assert text.index('<section class="root"') < text.index('<section id="doubtful">')
    assert text.count(">What is doubtful<") == 1


def test_the_gap_between_steps_is_marked_and_named_where_the_next_step_is_late(page_of: PageOf) -> None:
    text = page_of("one rank reads its batch late").text
    (base, head) = re.findall(r'<svg class="gaps".*?</svg>', text[text.index('class="plot"') :], re.DOTALL)[:2]
    assert ('"marked"' in base, '"marked"' in head) == (False, True)
    assert "<b>cause</b> the next step" in text


def test_added_time_is_hatched_on_lanes_of_compute_alone(page_of: PageOf) -> None:
    text = page_of("one rank reads its batch late").text
    rows = re.findall(r'<span class="name">([^<]*) <i>([^<]*)</i></span>\s*<svg class="lane".*?</svg>', text, re.DOTALL)
    hatched = re.findall(
        r'<i>([^<]*)</i></span>\s*<svg class="lane"(?:(?!</svg>).)*path class="added"', text, re.DOTALL
    )
    assert {purpose for _, purpose in rows} > {"compute"}
    assert {*hatched} == {"compute"}
