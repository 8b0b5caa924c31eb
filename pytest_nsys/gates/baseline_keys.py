"""What does the key ``baseline:`` of an assertion ask for: which runs count, and how far from them may a value be?"""

from __future__ import annotations

from collections.abc import Mapping

from yaml.nodes import MappingNode, Node, ScalarNode

from pytest_nsys.core.model import printable
from pytest_nsys.core.units import HASH, format_tolerance
from pytest_nsys.gates.assertion import Comparator, FromBaseline, FromHistory, Requirement, Tolerance
from pytest_nsys.gates.limits import NO_TOLERANCE, NOISE, MetricSpec, exact_alone, gives_something, nothing_for
from pytest_nsys.gates.setting_keys import TOLERANCE_KEYS, tolerance_of
from pytest_nsys.gates.value_range import tolerates_all
from pytest_nsys.gates.yaml_nodes import Reader, is_empty

BASELINE_KEYS = (*TOLERANCE_KEYS, "history", "branch", "lag")

MAX_RUNS = 9999
"""Most runs of the history that a median is taken of, that stay out of it, or that are bad before one fails."""


def read_baseline(
    reader: Reader, entry: Mapping[str, Node], judged: MetricSpec, default: Tolerance | None
) -> Requirement | None:
    """A limit from the baseline, on the side on which the metric gets worse.

    ``entry`` are the keys of the assertion, ``default`` the tolerance that holds where ``baseline:`` gives none.
    """
    node = entry["baseline"]
    fields = _fields(reader, node)
    if fields is None:
        return None
    if judged.unit == HASH:
        reader.mistakes.at(node, exact_alone(judged))
        return None
    history = _history(reader, fields)
    tolerance = _tolerance(reader, entry, fields, judged, default)
    if tolerance is None:
        return None
    limit = FromBaseline(tolerance, history)
    amount = format_tolerance(
        tolerance.relative, tolerance.absolute.get(judged.unit), judged.unit, noise=tolerance.noise
    )
    the_source = f"the {limit.source}" if history is not None else limit.source
    comparator, text = {
        "lower": (Comparator.LE, f"<= {limit.source} + {amount}"),
        "higher": (Comparator.GE, f">= {limit.source} - {amount}"),
    }.get(judged.better or "", (None, f"within {amount} of {the_source}"))
    if why := tolerates_all(comparator, tolerance, judged):
        reader.mistakes.at(node, f"'{text}' {why}; write a smaller tolerance, such as {{rel: 5%}}")
    return Requirement(comparator, limit, text)


def _fields(reader: Reader, node: Node) -> dict[str, Node] | None:
    """The keys under ``baseline:``, none where it is empty; None where it is a mistake."""
    if is_empty(node) or (isinstance(node, MappingNode) and not node.value):
        return {}
    if isinstance(node, ScalarNode):
        word = NOISE if node.value.strip() == NOISE else "{rel: 5%}"
        shown = printable(node.value, 40)
        reader.mistakes.at(node, f"baseline is empty or a mapping, not '{shown}': write tolerance: {word} beside it")
        return None
    return reader.mapping(node, "baseline", BASELINE_KEYS) or None


def _history(reader: Reader, fields: Mapping[str, Node]) -> FromHistory | None:
    branch = reader.text(fields["branch"], "branch") if "branch" in fields else None
    if "history" not in fields:
        for key, example in (("branch", "branch: main"), ("lag", "lag: 3")):
            if key in fields:
                what = f"'{key}' says which runs of the history count"
                reader.mistakes.at(fields[key], f"{what}: it needs 'history', as in {{history: 10, {example}}}")
        return None
    runs = runs_of(reader, fields["history"], "history")
    lag = runs_of(reader, fields["lag"], "lag") if "lag" in fields else 0
    return None if runs is None else FromHistory(runs, branch.strip() if branch is not None else None, lag or 0)


def runs_of(reader: Reader, node: Node, key: str) -> int | None:
    """A number of runs of the history, from 1 on; None where it is a mistake."""
    runs = reader.whole(node, key, at_least=1)
    if runs is not None and runs > MAX_RUNS:
        reader.mistakes.at(node, f"{key} is at most {MAX_RUNS} runs, not {runs}")
    return runs


def _tolerance(
    reader: Reader,
    entry: Mapping[str, Node],
    fields: Mapping[str, Node],
    judged: MetricSpec,
    default: Tolerance | None,
) -> Tolerance | None:
    node = entry["baseline"]
    if not any(key in fields for key in TOLERANCE_KEYS):
        if default is None:
            reader.mistakes.at(node, NO_TOLERANCE)
        elif not gives_something(default, judged):
            reader.mistakes.at(node, nothing_for(judged))
        return default
    if "tolerance" in entry:
        reader.mistakes.at(entry["tolerance"], "the tolerance is given twice: here and under 'baseline'")
    tolerance = tolerance_of(reader, fields)
    if tolerance.absolute and judged.unit not in tolerance.absolute:
        reader.mistakes.at(node, nothing_for(judged))
    return tolerance
