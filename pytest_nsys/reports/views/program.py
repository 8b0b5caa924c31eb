"""How is a run shown by the parts of its program: as a tree of modules, of operators, of ranges or of lines of source?

What differs in its number alone is one row: ``TransformerBlock[*]``. Each row is a pattern that a sentence takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from pytest_nsys.analysis.metrics.table import matches_label
from pytest_nsys.analysis.scopes.changed_scope import TELLING_KINDS
from pytest_nsys.analysis.scopes.scope_times import NO_USAGE, ScopeTimes, ScopeUsage, sum_scopes, sum_usages
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.exact import simplify_fraction
from pytest_nsys.core.model import Note
from pytest_nsys.core.scopes import ROOT, Direction, ScopeKind, fold_numbers
from pytest_nsys.reports.tables.formats import (
    CellKind,
    Column,
    make_number_columns,
    make_ratio_columns,
    make_time_columns,
)
from pytest_nsys.reports.views.view import AnyColumn, RowCells, View, ViewRequest, ViewSummary, ViewTable

_INDENT = "  "
_MAX_ROWS = 60


@dataclass
class _Branch:
    """Holds scopes of one parent whose names differ in their number alone."""

    folded_name: str
    path: str = ""
    names: set[str] = field(default_factory=set)
    usages: dict[Direction, list[ScopeUsage]] = field(default_factory=dict)
    branches: dict[str, _Branch] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the only scope, or what stands for all of them, with what separates it from its parent."""
        return next(iter(self.names)) if len(self.names) == 1 else self.folded_name

    def sum_usage(self, direction: Direction | None = None) -> ScopeUsage:
        """Return the usage of one pass, or of all."""
        usages = [usage for each, listed in self.usages.items() for usage in listed if direction in (None, each)]
        return sum_usages(usages or [NO_USAGE])


def _grow_tree(times: ScopeTimes) -> _Branch:
    """Return the tree of all scopes with a kernel, folded."""
    root, tree = _Branch(""), times.tree
    for (code, direction), usage in times.exclusive.items():
        branch, around = root, ROOT
        for number in reversed(tree.list_ancestors(max(code, ROOT))):
            name = tree.texts[number][len(tree.texts[around]) :]
            folded_name = fold_numbers(times.kind, name)
            branch = branch.branches.setdefault(folded_name, _Branch(folded_name))
            branch.names.add(name)
            branch.usages.setdefault(direction, []).append(usage)
            around = number
    return root


def _walk_tree(root: _Branch, depth: int) -> Iterator[tuple[int, _Branch]]:
    """Yield the branches down to a depth, each before those inside it, the widest first, with its depth."""
    waiting = [(0, "", branch) for branch in _sort_branches(root)]
    while waiting:
        level, around, branch = waiting.pop(0)
        branch.path = f"{around}{branch.name}"
        yield level, branch
        if level + 1 < depth:
            waiting[:0] = [(level + 1, branch.path, inner) for inner in _sort_branches(branch)]


def _sort_branches(branch: _Branch) -> list[_Branch]:
    return sorted(branch.branches.values(), key=lambda each: (-each.sum_usage().time_ns, each.folded_name))


def _choose_kinds(request: ViewRequest, windows: Sequence[RankWindow]) -> Sequence[ScopeKind]:
    """Return the kinds that are asked for, else the first that tells a person which part is meant."""
    if (selector := request.where.get("kind")) is not None:
        return [kind for kind in ScopeKind if any(matches_label(value, kind.value) for value in selector.values)]
    return [kind for kind in TELLING_KINDS if any(sum_scopes(window, kind).inclusive for window in windows)][:1]


def _list_program_rows(request: ViewRequest) -> Iterator[RowCells]:
    windows = [rank_windows[0] for rank_windows in request.windows.values()]
    for kind in _choose_kinds(request, windows):
        for window in windows:
            times = sum_scopes(window, kind)
            for level, branch in _walk_tree(_grow_tree(times), request.depth):
                by_direction = {direction: branch.sum_usage(direction) for direction in Direction}
                yield {
                    **_build_cells(window, kind, branch.sum_usage()),
                    "tree": _INDENT * level + branch.name.lstrip("/." if level else ""),
                    "scope": branch.path,
                    "scopes": len(branch.names),
                    **{f"{direction}_ns": usage.time_ns or None for direction, usage in by_direction.items()},
                }
            for reason, usage in sorted(times.unattributed.items(), key=lambda item: -item[1].time_ns):
                yield {
                    **_build_cells(window, kind, usage),
                    **dict.fromkeys(("tree", "scope"), f"({reason})"),
                    **dict.fromkeys(("scopes", *(f"{direction}_ns" for direction in Direction))),
                }


def _build_cells(window: RankWindow, kind: ScopeKind, usage: ScopeUsage) -> RowCells:
    return {
        "rank": window.rank.number,
        "kind": kind.value,
        "time_ns": usage.time_ns,
        "share": simplify_fraction(Fraction(usage.time_ns, window.length_ns)) if window.length_ns else None,
        "launches": usage.launches,
        "exposed_ns": usage.exposed_ns if usage.communication_launches else None,
    }


def _list_program_columns(request: ViewRequest) -> Sequence[AnyColumn]:
    """Return the columns; people see the kind of a row only where they ask for kinds."""
    direction_titles = {f"{direction}_ns": str(direction) for direction in Direction} | {"none_ns": "neither"}
    return (
        *("rank", Column("tree", title="scope"), Column("scope", CellKind.UNIT), Column("scopes", CellKind.DETAIL)),
        *make_time_columns("time_ns"),
        *make_ratio_columns("share"),
        *make_number_columns("launches"),
        *make_time_columns("exposed_ns"),
        *(Column(name, CellKind.TIME, title) for name, title in direction_titles.items()),
        "kind" if "kind" in request.where else Column("kind", CellKind.UNIT),
    )


def _summarize_program(request: ViewRequest) -> ViewSummary:
    """Say which kind is shown, which others there are, and how a row is gated."""
    windows = [rank_windows[0] for rank_windows in request.windows.values()]
    kinds = _choose_kinds(request, windows)
    others = [kind for kind in ScopeKind if kind not in kinds and any(sum_scopes(w, kind).inclusive for w in windows)]
    branches = [branch for _, branch in _walk_tree(_grow_tree(sum_scopes(windows[0], kinds[0])), 1)] if kinds else []
    if not branches:
        return ViewSummary()
    widest = branches[0]
    for _ in range(request.depth - 1):
        inner = _sort_branches(widest)[:1]
        if inner:
            inner[0].path = f"{widest.path}{inner[0].name}"
            widest = inner[0]
    # The range of the step itself has another number in the next capture.
    path = widest.path.removeprefix(f"{windows[0].window.name}/")
    pattern = f'"{path}"' if " " in path else path
    others_text = f"; --where kind={'|'.join(others)} shows others" if others else ""
    return ViewSummary(
        notes=[
            Note(f"by {', '.join(kinds)}{others_text}"),
            Note(f"a row is a sentence of a gate file: time of {kinds[0]} {pattern} <= baseline + 5%"),
        ]
    )


PROGRAM = View(
    name="program",
    tables=(
        ViewTable(
            columns=_list_program_columns,
            list_rows=_list_program_rows,
            max_rows=_MAX_ROWS,
            more_hint=": --rank 0 shows one rank, --format csv all rows",
        ),
    ),
    metric_names=("compute_ns",),
    one_window_reason='`pytest-nsys rows "scope_ns of module NAME"` takes medians over them',
    option_names=frozenset({"where", "depth"}),
    summarize=_summarize_program,
    explain_empty=lambda _: "no kernel has a module, a stage, a range or an operator",
)
