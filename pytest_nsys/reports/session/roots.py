"""How does a root read? ``flash_fwd_kernel 25% longer on both ranks``, ``rank 3: all compute +15%``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_nsys.core.file_names import Address
from pytest_nsys.core.words import counted, printable, rank_ranges
from pytest_nsys.reports.session.story import Story, StoryRoot
from pytest_nsys.reports.words.roots import Moved, called_beside, moved_words


def called_in(story: Story) -> dict[str, str]:
    """What the kernels and calls of the roots are called: beside all that ran, of which they are told apart."""
    rows = [row for red in story.reds for row in red.record.verdict.causes]
    exposed = {cause.exposes for row in rows for cause in row.explanation.causes}
    beside = {name for row in rows for name in row.beside}
    return called_beside((told.root for told in story.roots), {told.waits_in for told in story.roots} | exposed, beside)


def root_words(told: StoryRoot, called: Mapping[str, str], *, everywhere: bool = False) -> str:
    """What happened; where is said by :func:`where_words`. ``everywhere``: on all ranks."""
    return moved_words(Moved(told.root, told.stages, (*told.changes.values(),)), called, everywhere=everywhere)


def root_sentence(told: StoryRoot, story: Story, called: Mapping[str, str], effect: str = "") -> str:
    """What happened and where; of a rank that others wait for, that they do. ``effect`` is what it did to a row,
    with what stands before it.
    """
    ranks, addresses = where_words(told, story)
    words = root_words(told, called, everywhere=is_everywhere(told, story)) + effect
    if told.waiting or not (ranks or addresses):
        words = words.removesuffix(",")
    if told.waiting:
        waits = "peers wait" if len(told.waiting) > 1 else f"{_ranks(told.waiting)} waits"
        waits_in = f" in {called.get(told.waits_in, told.waits_in)}" if told.waits_in else ""
        return f"{ranks}: {words}; {waits}{waits_in} for it" + (f", {addresses}" if addresses else "")
    return words + (f" on {ranks}" if ranks else "") + (f"{',' if ranks else ' in'} {addresses}" if addresses else "")


def is_everywhere(told: StoryRoot, story: Story) -> bool:
    """Whether it happened on every rank of each gate file, or configuration, in which it did."""
    worlds = {address: story.worlds.get(address) for address in told.addresses}
    return all(world == sum(own == address for own, _ in told.changes) for address, world in worlds.items())


def where_words(told: StoryRoot, story: Story) -> tuple[str, str]:
    """On which ranks, empty where there is but one, and in how many gate files or configurations, empty of one alone:
    ``64 of 64 ranks`` and ``8 of 8 configurations``.
    """
    worlds = {story.worlds.get(address) for address in told.addresses}
    several = len(story.worlds) > 1
    if worlds == {1}:
        ranks = ""
    elif not is_everywhere(told, story):
        ranks = _ranks(told.ranks)
    elif len(worlds) > 1:
        ranks = "all ranks"
    else:
        (world,) = worlds
        every = "both ranks" if world == 2 else f"all {world} ranks"
        ranks = f"{world} of {world} ranks" if several else every
    return ranks, in_how_many(told.addresses, story) if several else ""


def in_how_many(addresses: Sequence[str], story: Story) -> str:
    """``8 of 8 configurations``, of one its name too."""
    files = {Address.of(address).file for address in story.worlds}
    what = counted(len(story.worlds), "configuration" if len(files) == 1 else "gate file")
    own = Address.of(addresses[0])
    name = f" ({printable(own.configuration if len(files) == 1 else addresses[0])})" if len(addresses) == 1 else ""
    return f"{len(addresses)} of {what}{name}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_ranges(ranks)}"
