"""What does the key ``baseline:`` of an assertion ask for: which runs count, and how far from them may a value be?"""

from __future__ import annotations

from yaml.nodes import MappingNode, ScalarNode

from pytest_nsys.core.model import printable
from pytest_nsys.core.units import HASH, format_tolerance
from pytest_nsys.gates.assertion import Comparator, FromBaseline, FromHistory, Requirement, Tolerance
from pytest_nsys.gates.keys import KEYS
from pytest_nsys.gates.kinds import Entry, tolerance_of
from pytest_nsys.gates.limits import NO_TOLERANCE, NOISE, MetricSpec, exact_alone, gives_something, nothing_for
from pytest_nsys.gates.value_range import tolerates_all
from pytest_nsys.gates.yaml_nodes import is_empty


def read_baseline(assertion: Entry, judged: MetricSpec, default: Tolerance | None) -> Requirement | None:
    """A limit from the baseline, on the side on which the metric gets worse.

    ``default`` is the tolerance that holds where ``baseline:`` gives none.
    """
    node = assertion.fields["baseline"]
    empty = is_empty(node) or (isinstance(node, MappingNode) and not node.value)
    if isinstance(node, ScalarNode) and not empty:
        word = NOISE if node.value.strip() == NOISE else "{rel: 5%}"
        shown = printable(node.value, 40)
        what = f"baseline is empty or a mapping, not '{shown}': write tolerance: {word} beside it"
        assertion.mistake("baseline", what)
        return None
    entry = None if empty else Entry(assertion.reader, node, "baseline")
    if entry is not None and not entry.fields:
        return None
    if judged.unit == HASH:
        assertion.mistake("baseline", exact_alone(judged))
        return None
    history = _history(entry) if entry is not None else None
    tolerance = _tolerance(assertion, entry, judged, default)
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
        assertion.mistake("baseline", f"'{text}' {why}; write a smaller tolerance, such as {{rel: 5%}}")
    return Requirement(comparator, limit, text)


def _history(entry: Entry) -> FromHistory | None:
    said = entry.values()
    if "history" not in entry.fields:
        for key, example in (("branch", "branch: main"), ("lag", "lag: 3")):
            if key in entry.fields:
                what = f"'{key}' says which runs of the history count"
                entry.mistake(key, f"{what}: it needs 'history', as in {{history: 10, {example}}}")
    return FromHistory(said["history"], said.get("branch"), said.get("lag", 0)) if "history" in said else None


def _tolerance(
    assertion: Entry, entry: Entry | None, judged: MetricSpec, default: Tolerance | None
) -> Tolerance | None:
    if entry is None or not any(key in entry.fields for key in KEYS["tolerance"]):
        if default is None:
            assertion.mistake("baseline", NO_TOLERANCE)
        elif not gives_something(default, judged):
            assertion.mistake("baseline", nothing_for(judged))
        return default
    if "tolerance" in assertion.fields:
        assertion.mistake("tolerance", "the tolerance is given twice: here and under 'baseline'")
    tolerance = tolerance_of(entry)
    if tolerance.absolute and judged.unit not in tolerance.absolute:
        assertion.mistake("baseline", nothing_for(judged))
    return tolerance
