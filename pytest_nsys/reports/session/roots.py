"""How does a root cause read with where it happened: ``flash_fwd_kernel 25% longer on both ranks``?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_nsys.core.file_names import Address
from pytest_nsys.core.words import counted, printable, rank_ranges
from pytest_nsys.reports.session.story import Story, StoryRoot
from pytest_nsys.reports.words.roots import Moved, called_beside, moved_words


def called_in(story: Story) -> dict[str, str]:
    """Return the display names of the kernels and calls of a story, which tell them from all others that ran."""
    rows = [row for red in story.reds for row in red.record.verdict.causes]
    exposed_names = {cause.exposes for row in rows for cause in row.explanation.causes}
    other_names = {name for row in rows for name in row.beside}
    return called_beside(
        (story_root.root for story_root in story.roots),
        {story_root.waits_in for story_root in story.roots} | exposed_names,
        other_names,
    )


def root_words(told: StoryRoot, called: Mapping[str, str], *, everywhere: bool = False) -> str:
    """Return what happened to a root; where it happened is described by :func:`describe_root_places`."""
    return moved_words(Moved(told.root, told.stages, (*told.changes.values(),)), called, everywhere=everywhere)


def root_sentence(told: StoryRoot, story: Story, called: Mapping[str, str], effect: str = "") -> str:
    """Return what happened to a root and where; of a rank that others wait for, that they wait.

    ``effect`` is what it did to a row, with the sign that stands before it.
    """
    ranks, addresses = where_words(told, story)
    words = root_words(told, called, everywhere=is_everywhere(told, story)) + effect
    if told.waiting or not (ranks or addresses):
        words = words.removesuffix(",")
    if told.waiting:
        waiting_text = "peers wait" if len(told.waiting) > 1 else f"{_ranks(told.waiting)} waits"
        kernel_text = f" in {called.get(told.waits_in, told.waits_in)}" if told.waits_in else ""
        return f"{ranks}: {words}; {waiting_text}{kernel_text} for it" + (f", {addresses}" if addresses else "")
    return words + (f" on {ranks}" if ranks else "") + (f"{',' if ranks else ' in'} {addresses}" if addresses else "")


def is_everywhere(told: StoryRoot, story: Story) -> bool:
    """Whether a root changed on every rank of each gate file, or configuration, in which it changed."""
    worlds = {address: story.worlds.get(address) for address in told.addresses}
    return all(
        world == sum(changed_address == address for changed_address, _ in told.changes)
        for address, world in worlds.items()
    )


def where_words(told: StoryRoot, story: Story) -> tuple[str, str]:
    """Return on which ranks a root changed, and in how many gate files or configurations.

    They read ``64 of 64 ranks`` and ``8 of 8 configurations``; each is empty where there is only one.
    """
    worlds = {story.worlds.get(address) for address in told.addresses}
    has_several_addresses = len(story.worlds) > 1
    if worlds == {1}:
        ranks = ""
    elif not is_everywhere(told, story):
        ranks = _ranks(told.ranks)
    elif len(worlds) > 1:
        ranks = "all ranks"
    else:
        (world,) = worlds
        all_ranks = "both ranks" if world == 2 else f"all {world} ranks"
        ranks = f"{world} of {world} ranks" if has_several_addresses else all_ranks
    return ranks, in_how_many(told.addresses, story) if has_several_addresses else ""


def in_how_many(addresses: Sequence[str], story: Story) -> str:
    """Return in how many gate files or configurations something happened: ``8 of 8 configurations``; of one its name
    too.
    """
    files = {Address.of(address).file for address in story.worlds}
    total = counted(len(story.worlds), "configuration" if len(files) == 1 else "gate file")
    first_address = Address.of(addresses[0])
    name = (
        f" ({printable(first_address.configuration if len(files) == 1 else addresses[0])})"
        if len(addresses) == 1
        else ""
    )
    return f"{len(addresses)} of {total}{name}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_ranges(ranks)}"
