"""What does a sentence on a part of the program ask for, and what is said of one that cannot be meant?"""

import re

import pytest

from pytest_nsys.analysis.metrics.registry import find_metric
from pytest_nsys.core.scopes import Direction, ScopeKind, ScopeSelector, parse_scope_selector
from pytest_nsys.gates.limits import SentenceMistake
from tests.gate_patterns import NAMED, SENTENCE
from tests.support.gate_files import asked

FORWARD, BACKWARD, RECOMPUTE = Direction.FORWARD, Direction.BACKWARD, Direction.RECOMPUTE
MODULE, OP, RANGE, SOURCE, STAGE = (ScopeKind(kind) for kind in ("module", "op", "range", "source", "stage"))

SENTENCES = {
    "time of module layers.*.attn <= 3ms": ("scope_ns", ScopeSelector(MODULE, "layers.*.attn")),
    "time of op aten::mm below baseline plus 5%": ("scope_ns", ScopeSelector(OP, "aten::mm")),
    'time of range "loss" <= 2ms': ("scope_ns", ScopeSelector(RANGE, "loss")),
    'time of range "forward chunk 0" <= 2ms': ("scope_ns", ScopeSelector(RANGE, "forward chunk 0")),
    'time of source "model.py(212): forward" <= 2ms': ("scope_ns", ScopeSelector(SOURCE, "model.py(212): forward")),
    "compute of stage3_f <= 10ms": ("compute_ns", ScopeSelector(STAGE, "stage3_f")),
    "compute of stage stage3_f <= 10ms": ("compute_ns", ScopeSelector(STAGE, "stage3_f")),
    "time of stage3_f <= 10ms": ("scope_ns", ScopeSelector(STAGE, "stage3_f")),
    "forward time of module attn <= 3ms": ("scope_ns", ScopeSelector(MODULE, "attn", FORWARD)),
    "backward time of op aten::mm <= 3ms": ("scope_ns", ScopeSelector(OP, "aten::mm", BACKWARD)),
    "recompute time of module Block <= 3ms": ("scope_ns", ScopeSelector(MODULE, "Block", RECOMPUTE)),
    "exposed of module mlp <= 1ms": ("exposed_ns", ScopeSelector(MODULE, "mlp")),
    "time of each module TransformerBlock[*]/OAIAttention <= 1ms": (
        "scope_ns",
        ScopeSelector(MODULE, "TransformerBlock[*]/OAIAttention", None, True),
    ),
    "backward time of each module a <= 1ms": ("scope_ns", ScopeSelector(MODULE, "a", BACKWARD, True)),
    "scope_ns of module a <= 1ms": ("scope_ns", ScopeSelector(MODULE, "a")),
    "time of module a <= 5% of step": ("scope_ns", ScopeSelector(MODULE, "a")),
}


@pytest.mark.parametrize("text", SENTENCES)
def test_what_a_sentence_means(text: str) -> None:
    base, scope = SENTENCES[text]
    sentence = asked(text)
    metric = sentence.measured_metric
    assert (metric.program_scope, metric.import_path.partition(":")[2]) == (scope, base)
    assert metric.dimensions == (("rank", "scope") if scope.is_each else ("rank",))
    assert metric.is_share_of_step is ("of step" in text)
    # A baseline and a history find it again by its name.
    assert find_metric(metric.name) == metric
    assert parse_scope_selector(str(scope)) == scope
    assert re.search(SENTENCE, text)
    assert re.search(NAMED, text)


def test_selectors_and_aggregates_stand_before_it() -> None:
    sentence = asked("rank 3 max forward time of module attn <= 3ms")
    assert (sentence.where["rank"].values, [step.word for step in sentence.aggregates]) == (("3",), ["max"])
    assert sentence.metric == "scope_ns of forward module attn"
    assert asked("max over rank of time of module attn <= 3ms").aggregates[0].over == ("rank",)


def test_other_sentences_mean_what_they_did() -> None:
    assert asked("collective time of AllReduce <= 1ms").metric == "collective_time_ns"
    assert asked("compute of rank 3 <= 1ms").metric == "compute_ns"
    assert asked("exposed of stage2_f <= 1ms").metric == "exposed_ns"
    assert asked("exposed of stage2_f <= 1ms").where["stage"].values == ("stage2_f",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time of module <= 3ms", "the module is missing, as in 'time of module layers.*.attn'"),
        ("time of rank 3 <= 3ms", "time of what? Say before 'rank 3' which of module, op, range, source it is"),
        ("time of range forward chunk 0 <= 3ms", "'chunk' comes after the range: write selectors before 'time'"),
        ("time of module a|b <= 3ms", "one module at a time: a or b; '*' stands for several"),
        ("scope_ns <= 3ms", "scope_ns of what? Write time of module layers.*.attn <= 3ms"),
        ("nonsense time of module a <= 3ms", "'nonsense' selects nothing"),
        ("time of module a >= baseline plus 5%", ""),
        ("time of module a <= 3GB", ""),
    ],
)
def test_a_mistake_is_said_in_one_line(text: str, said: str) -> None:
    with pytest.raises(SentenceMistake) as mistake:
        asked(text)
    assert said in str(mistake.value)
