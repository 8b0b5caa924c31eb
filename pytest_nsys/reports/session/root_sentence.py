"""How is a root cause put into words with its place: ``flash_fwd_kernel 25% longer on both ranks``?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_nsys.core.file_names import GateAddress
from pytest_nsys.core.text_format import format_count, format_rank_ranges, sanitize_line
from pytest_nsys.reports.session.story import Story, StoryRoot
from pytest_nsys.reports.words.change_text import RootChange, choose_display_names, describe_root_change, format_place


def choose_story_names(story: Story) -> dict[str, str]:
    """Return the display names of the kernels and calls of a story, by full name; each is unique among all kernels that
    ran.
    """
    rows = [row for red in story.reds for row in red.record.verdict.causes]
    exposed_names = {cause.exposed_kernel for row in rows for cause in row.explanation.causes}
    other_names = {name for row in rows for name in row.window_kernels}
    return choose_display_names(
        (story_root.root for story_root in story.roots),
        {story_root.waiting_kernel for story_root in story.roots} | exposed_names,
        other_names,
    )


def describe_story_root(story_root: StoryRoot, display_names: Mapping[str, str], *, on_all_ranks: bool = False) -> str:
    """Return what changed at a root, without its place (see :func:`describe_root_places`)."""
    return describe_root_change(
        RootChange(story_root.root, story_root.stages, (*story_root.changes.values(),)),
        display_names,
        on_all_ranks=on_all_ranks,
    )


def format_root_sentence(
    story_root: StoryRoot, story: Story, display_names: Mapping[str, str], effect: str = ""
) -> str:
    """Return what changed at a root and where; if other ranks wait for that rank, also that they wait.

    ``effect`` is the text of what it did to a row, with its leading punctuation.
    """
    ranks, addresses = describe_root_places(story_root, story)
    place_text = format_place(story_root.place)
    if "," in place_text and not effect:
        place_text += ","
    words = describe_story_root(story_root, display_names, on_all_ranks=happened_everywhere(story_root, story))
    words += place_text + effect
    if story_root.waiting_ranks or not (ranks or addresses):
        words = words.removesuffix(",")
    if story_root.waiting_ranks:
        waiting_text = (
            "peers wait" if len(story_root.waiting_ranks) > 1 else f"{_format_ranks(story_root.waiting_ranks)} waits"
        )
        kernel_text = (
            f" in {display_names.get(story_root.waiting_kernel, story_root.waiting_kernel)}"
            if story_root.waiting_kernel
            else ""
        )
        return f"{ranks}: {words}; {waiting_text}{kernel_text} for it" + (f", {addresses}" if addresses else "")
    return words + (f" on {ranks}" if ranks else "") + (f"{',' if ranks else ' in'} {addresses}" if addresses else "")


def happened_everywhere(story_root: StoryRoot, story: Story) -> bool:
    """Whether a root changed on every rank of each gate file, or configuration, in which it changed."""
    worlds = {address: story.world_sizes.get(address) for address in story_root.gate_addresses}
    return all(
        world == sum(changed_address == address for changed_address, _ in story_root.changes)
        for address, world in worlds.items()
    )


def describe_root_places(story_root: StoryRoot, story: Story) -> tuple[str, str]:
    """Return on which ranks a root changed, and in how many gate files or configurations, as two texts.

    They read ``64 of 64 ranks`` and ``8 of 8 configurations``; each is empty where there is only one.
    """
    worlds = {story.world_sizes.get(address) for address in story_root.gate_addresses}
    has_several_addresses = len(story.world_sizes) > 1
    if worlds == {1}:
        ranks = ""
    elif not happened_everywhere(story_root, story):
        ranks = _format_ranks(story_root.ranks)
    elif len(worlds) > 1:
        ranks = "all ranks"
    else:
        (world,) = worlds
        all_ranks = "both ranks" if world == 2 else f"all {world} ranks"
        ranks = f"{world} of {world} ranks" if has_several_addresses else all_ranks
    return ranks, describe_addresses(story_root.gate_addresses, story) if has_several_addresses else ""


def describe_addresses(addresses: Sequence[str], story: Story) -> str:
    """Return in how many gate files or configurations something happened: ``8 of 8 configurations``; if in one, also
    its name.
    """
    files = {GateAddress.parse_file_and_configuration(address).file for address in story.world_sizes}
    total = format_count(len(story.world_sizes), "configuration" if len(files) == 1 else "gate file")
    first_address = GateAddress.parse_file_and_configuration(addresses[0])
    name = (
        f" ({sanitize_line(first_address.configuration if len(files) == 1 else addresses[0])})"
        if len(addresses) == 1
        else ""
    )
    return f"{len(addresses)} of {total}{name}"


def _format_ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {format_rank_ranges(ranks)}"
