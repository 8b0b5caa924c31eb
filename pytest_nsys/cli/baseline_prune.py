"""``pytest-nsys baseline prune``: drop from the stored baselines what no gate file reads any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from pytest_nsys.cli.ending import Exit, complain
from pytest_nsys.cli.output import shown
from pytest_nsys.cli.stores import StoredGate, stores
from pytest_nsys.cli.updating import folder_option
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.model import counted, printable
from pytest_nsys.stored.baselines.baseline_file import spelled
from pytest_nsys.stored.baselines.store import Orphan, Pruned, orphans, remove
from pytest_nsys.stored.baselines.store import prune as prune_shelf


@click.command()
@click.argument("gate_files", nargs=-1, required=True, metavar="GATE_FILES…")
@click.option("--dry-run", is_flag=True, help="Say what would be dropped, and drop nothing.")
@click.option("--orphans", "drop_orphans", is_flag=True, help="Also remove baselines whose gate file is gone.")
@folder_option
@click.pass_context
def prune(
    context: click.Context, gate_files: tuple[str, ...], dry_run: bool, drop_orphans: bool, baseline_dir: str | None
) -> None:
    """Drop the stored series that no assertion of GATE_FILES (or folders of them) reads any more.

    Needs no trace. Also names the baselines of gate files that do not exist any more.
    """
    found = stores(gate_files, baseline_dir)
    lines: list[str] = []
    errors: list[BaselineError] = []
    for each in found:
        pruned, broken = prune_shelf(each.gate, each.store, dry_run=dry_run)
        lines += [line for one in pruned for line in _dropped(one, dry_run)]
        errors += broken
    for orphan in _orphans(found):
        try:
            if drop_orphans and not dry_run:
                remove(orphan)
            lines.append(_orphaned(orphan, drop_orphans, dry_run))
        except BaselineError as error:
            errors.append(error)
    for line in lines if lines or errors else ["nothing to prune: every stored series is read"]:
        click.echo(printable(line, 2000))
    for broken_file in errors:
        complain(broken_file)
    context.exit(Exit.MISTAKE if errors else Exit.GOOD)


def _dropped(pruned: Pruned, dry_run: bool) -> Iterator[str]:
    what = "would drop" if dry_run else "dropped"
    yield f"{shown(pruned.path)}: {what} {', '.join(map(spelled, pruned.series))}: {counted(pruned.rows, 'row')}"
    if pruned.removed:
        yield f"{shown(pruned.path)}: {'would be' if dry_run else 'was'} removed, as nothing of it is read"


def _orphans(found: Sequence[StoredGate]) -> Iterator[Orphan]:
    known = {each.store.folder for each in found}
    for folder, root in sorted({(each.store.folder.parent, each.root) for each in found}):
        yield from orphans(folder, root, known)


def _orphaned(orphan: Orphan, drop: bool, dry_run: bool) -> str:
    what = f"{shown(orphan.folder)}: its gate file {orphan.gate} is gone"
    if not drop:
        return f"{what}; --orphans removes its {counted(len(orphan.files), 'baseline')}"
    return f"{what}; {'would remove' if dry_run else 'removed'} its {counted(len(orphan.files), 'baseline')}"
