"""Which paths does a pattern name, and which pass does the name of a range state?"""

import pytest

from pytest_nsys.core.scopes import ROOT, Direction, ScopeKind, ScopeTree, find_direction_word, make_scope_matcher

MATCHES = [
    ("module", "OAIAttention", "GptOss/TransformerBlock[3]/OAIAttention", True),
    ("module", "OAIAttention", "GptOss/TransformerBlock[3]/OAIAttention/Linear", False),
    ("module", "OAIAttention", "GptOss/MyOAIAttention", False),
    ("module", "TransformerBlock[*]/OAIAttention", "GptOss/TransformerBlock[3]/OAIAttention", True),
    ("module", "TransformerBlock[3]/OAIAttention", "GptOss/TransformerBlock[3]/OAIAttention", True),
    ("module", "TransformerBlock[3]/OAIAttention", "GptOss/TransformerBlock[13]/OAIAttention", False),
    ("module", "TransformerBlock/OAIAttention", "GptOss/TransformerBlock[3]/OAIAttention", True),
    ("module", "Linear[0]", "Model/Linear", True),
    ("module", "Linear[1]", "Model/Linear", False),
    ("module", "*Attention", "Model/Block[1]/OAIAttention", True),
    ("module", "*", "Model/Block[1]", True),
    ("module", "Model/*", "Model/Block[1]/Linear", False),
    ("module", "layers.*.attn", "model.layers.3.attn", True),
    ("module", "layers.*.attn", "step/Model/layers_3/attn", True),
    ("module", "layers_*/attn", "model.layers.3.attn", True),
    ("module", "layers.*.attn", "model.layers.3.attn.qkv", False),
    ("module", "layers.1.attn", "model.layers.11.attn", False),
    ("op", "aten::mm", "aten::linear/aten::mm", True),
    ("op", "aten::mm", "aten::mm/aten::copy_", False),
    ("op", "aten::*", "vllm::moe", False),
    ("range", "forward chunk 0", "step/forward chunk 0", True),
    ("range", "a/b", "step/a/b", True),
    ("range", "loss.*", "step/loss.1", True),
    ("range", "loss.*", "step/lossy", False),
    ("source", "model.py(212): forward", "my/model.py(212): forward", True),
    ("source", "model.py(*): forward", "my/model.py(212): forward", True),
    ("stage", "stage3_f", "stage3_f", True),
]


@pytest.mark.parametrize(("kind", "pattern", "path", "named"), MATCHES)
def test_a_pattern_names_the_end_of_a_path(kind: str, pattern: str, path: str, named: bool) -> None:
    assert make_scope_matcher(ScopeKind(kind), pattern)(path) is named


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("## forward ##", "forward"),
        ("## backward ##", "backward"),
        ("attn(F)", "forward"),
        ("mlp(W)", "backward"),
        ("layer05_stage5_f_layer06_stage1_b", "backward"),
        ("layer01.stage3_w", "backward"),
        ("layer01.stage3_f", "forward"),
        ("recompute block 3", "recompute"),
        ("DistributedDataParallel.forward", "forward"),
        ("fwd_pass", "forward"),
        ("forward chunk 0 (phase0) backward chunk 1 (phase1)", None),
        ("forwarding", None),
        ("save checkpoint", None),
        ("step 3", None),
    ],
)
def test_the_pass_that_a_range_states(name: str, direction: str | None) -> None:
    assert find_direction_word(name) == (None if direction is None else Direction(direction))


def test_a_tree_numbers_parents_before_their_children() -> None:
    tree = ScopeTree()
    attn = tree.add_path(("layers", "3", "attn"), ".")
    assert tree.add_path(("layers", "3", "attn"), ".") == attn
    block = tree.add(ROOT, "Block")
    assert [tree.texts[n] for n in tree.list_ancestors(attn)] == ["layers.3.attn", "layers.3", "layers"]
    assert all(parent < number for number, parent in enumerate(tree.parents) if number)
    outermost = tree.find_outermost(lambda path: path.startswith("layers."))
    assert (outermost[attn], outermost[tree.parents[attn]]) == 2 * (tree.parents[attn],)
    assert (outermost[block], outermost[ROOT], outermost[tree.list_ancestors(attn)[-1]]) == (ROOT, ROOT, ROOT)
