"""How does the help of a group list its commands? Each with its whole first sentence, which click would cut."""

from __future__ import annotations

import click

ANY_LENGTH = 1000


class ListingGroup(click.Group):
    """A group whose help has the first sentence of every command, on as many lines as it takes."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section ``Commands``."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        listed = [(name, command.get_short_help_str(ANY_LENGTH)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(listed)
