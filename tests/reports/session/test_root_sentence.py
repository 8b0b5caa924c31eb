"""Does a root read as one says it: what happened, by how much, and where?"""

from collections.abc import Mapping

import pytest

from pytest_nsys.analysis.explain.breakdown_model import Change, ChangeKind, RootCause, RowActivity
from pytest_nsys.reports.session.root_sentence import choose_story_names, describe_story_root, format_root_sentence
from pytest_nsys.reports.session.story import Story, StoryRoot

MS = 1_000_000
GATE = "perf/gate.nsys.yaml"
ALL = RootCause(ChangeKind.LONGER, RowActivity.ALL, "")
HOST = RootCause(ChangeKind.LATER, RowActivity.HOST, "reduce_kernel")
REPLACED = RootCause(ChangeKind.REPLACED, RowActivity.KERNEL, "sm90_gemm", instead_of="sm80_gemm")


def kernel(
    kind: ChangeKind = ChangeKind.LONGER, of: RowActivity = RowActivity.KERNEL, name: str = "flash_fwd"
) -> RootCause:
    return RootCause(kind, of, name)


def told(root: RootCause, *both: tuple[int, int], counts: tuple[int, int] = (4, 4), **more: object) -> StoryRoot:
    """A root on ranks 0, 1 and so on, by lengths before and now in us."""
    clock = more.pop("clock", None)
    changes = {
        (GATE, rank): Change(root, rank, 1000 * before, 1000 * now, *counts, clock)  # type: ignore[arg-type]
        for rank, (before, now) in enumerate(both)
    }
    return StoryRoot(root, (), changes)._replace(**more)  # type: ignore[arg-type]


def story(root: StoryRoot, worlds: Mapping[str, int | None]) -> Story:
    return Story({}, (root,), (), (), worlds)


SAME = (8000, 10_000)


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (told(kernel(), SAME), "flash_fwd 25% longer"),
        (told(kernel(), SAME, (8000, 10_100)), "flash_fwd 26% longer"),
        (told(kernel(), SAME, (8000, 12_000)), "flash_fwd 25% to 50% longer"),
        (told(kernel(ChangeKind.SHORTER), (10_000, 8000)), "flash_fwd 20% shorter"),
        (told(kernel(), (100, 1200)), "flash_fwd 12 times as long"),
        (told(kernel(), (0, 1200)), "flash_fwd 1.2 ms longer"),
        (told(kernel(), SAME, stages=("forward",)), "flash_fwd in forward 25% longer"),
        (told(kernel(), SAME, stages=("s1", "s2", "s3")), "flash_fwd in 3 stages 25% longer"),
        (
            told(kernel(of=RowActivity.COLLECTIVE, name="nccl_AllReduce_f32"), SAME, stages=("all_reduce",)),
            "AllReduce 25% longer",
        ),
        (told(ALL, (8000, 9200)), "all compute +15%"),
        (told(kernel(ChangeKind.LONGER), (8000, 16_009)), "flash_fwd 100% longer"),
        (told(kernel(ChangeKind.NEW), (0, 1200), counts=(0, 3)), "new kernel flash_fwd (3 times, 1.2 ms)"),
        (
            told(kernel(ChangeKind.NEW, RowActivity.COPY, "copy from pinned to device"), (0, 1200), counts=(0, 1)),
            "new copy from pinned to device (once, 1.2 ms)",
        ),
        (
            told(kernel(ChangeKind.OFTEN, RowActivity.CALL, "cudaMalloc"), (20, 60), counts=(1, 3)),
            "cudaMalloc is called 3 times instead of 1 (+40 us)",
        ),
        (told(kernel(ChangeKind.OFTEN), (8000, 10_000), counts=(4, 5)), "flash_fwd runs 5 times instead of 4 (+2 ms)"),
        (
            told(kernel(ChangeKind.RARELY, RowActivity.COLLECTIVE, "AllReduce"), (4800, 4900), counts=(3, 1)),
            "AllReduce runs once instead of 3 times (1.6 → 4.9 ms each)",
        ),
        (
            told(kernel(ChangeKind.LONGER, RowActivity.CALL, "cudaStreamSynchronize"), (5, 2005), counts=(1, 1)),
            "the GPU waits 2 ms longer while the host is in cudaStreamSynchronize",
        ),
        (told(kernel(ChangeKind.GONE), (800, 0), counts=(2, 0)), "kernel flash_fwd is gone (2 times, 800 us)"),
        (told(REPLACED, (8900, 11_500)), "sm80_gemm replaced by sm90_gemm in the same place: 8.9 → 11.5 ms"),
        (told(HOST, (200, 2200)), "the GPU waits for the host before reduce_kernel: 0.2 → 2.2 ms"),
        (told(kernel(ChangeKind.LATER), (100, 2100)), "flash_fwd starts 2 ms later"),
        (told(kernel(ChangeKind.LATER), (100, 2100), (100, 4100)), "flash_fwd starts 2–4 ms later"),
        (told(kernel(ChangeKind.ELSEWHERE), SAME), "flash_fwd runs on another stream"),
    ],
)
def test_what_happened(root: StoryRoot, expected: str) -> None:
    assert describe_story_root(root, choose_story_names(story(root, {}))) == expected


@pytest.mark.parametrize(
    ("root", "world", "expected"),
    [
        (told(kernel(), SAME), 1, "flash_fwd 25% longer"),
        (told(kernel(), SAME, SAME), 2, "flash_fwd 25% longer on both ranks"),
        (told(kernel(), *[SAME] * 64), 64, "flash_fwd 25% longer on all 64 ranks"),
        (told(kernel(), SAME), 8, "flash_fwd 25% longer on rank 0"),
        (told(kernel(), SAME, SAME, SAME), 8, "flash_fwd 25% longer on ranks 0–2"),
        (told(kernel(), SAME), None, "flash_fwd 25% longer on rank 0"),
        (told(ALL, (8000, 8640), (8000, 8640)), 2, "all kernels alike +8% on both ranks"),
        (told(ALL, (8000, 8640), clock=(1980, 1830)), 1, "all kernels alike +8% (SM clock 1980 → 1830 MHz)"),
        (
            told(ALL, (8000, 9200), waiting_ranks=(1, 2, 3), waiting_kernel="AllReduce"),
            4,
            "rank 0: all compute +15%; peers wait in AllReduce for it",
        ),
        (told(kernel(), SAME, waiting_ranks=(1,)), 2, "rank 0: flash_fwd 25% longer; rank 1 waits for it"),
    ],
)
def test_where_it_happened(root: StoryRoot, world: int | None, expected: str) -> None:
    assert format_root_sentence(root, story(root, {GATE: world}), choose_story_names(story(root, {}))) == expected


def of_configurations(ranks: int, *names: str) -> StoryRoot:
    changes = {(name, r): Change(kernel(), r, 8, 10, 1, 1) for name in names for r in range(ranks)}
    return StoryRoot(kernel(), (), changes)


EIGHT = [f"{GATE}[c{n}]" for n in range(8)]


@pytest.mark.parametrize(
    ("root", "worlds", "expected"),
    [
        (of_configurations(64, *EIGHT), dict.fromkeys(EIGHT, 64), "on 64 of 64 ranks, 8 of 8 configurations"),
        (of_configurations(1, *EIGHT), dict.fromkeys(EIGHT, 1), "in 8 of 8 configurations"),
        (of_configurations(2, *EIGHT[:3]), dict.fromkeys(EIGHT, 4), "on ranks 0–1, 3 of 8 configurations"),
        (of_configurations(2, EIGHT[5]), dict.fromkeys(EIGHT, 2), "on 2 of 2 ranks, 1 of 8 configurations (c5)"),
        (
            of_configurations(2, "a.nsys.yaml"),
            {"a.nsys.yaml": 2, "b.nsys.yaml": 4},
            "on 2 of 2 ranks, 1 of 2 gate files (a.nsys.yaml)",
        ),
    ],
)
def test_in_how_many_configurations(root: StoryRoot, worlds: dict[str, int | None], expected: str) -> None:
    assert format_root_sentence(root, story(root, worlds), {}) == f"flash_fwd 25% longer {expected}"


def test_configurations_of_different_size() -> None:
    changes = {(name, r): Change(kernel(), r, 8, 10, 1, 1) for n, name in enumerate(EIGHT) for r in range(n + 1)}
    root = StoryRoot(kernel(), (), changes)
    worlds: dict[str, int | None] = {name: n + 1 for n, name in enumerate(EIGHT)}
    assert format_root_sentence(root, story(root, worlds), {}).endswith("on all ranks, 8 of 8 configurations")
