"""Which of the ranges of an export are operators, which are modules, and what do their names say?

PyTorch's ``emit_nvtx`` makes a range of each operator: ``aten::mm, seq = 12, op_id = 40``; the number behind ``seq`` is
that of autograd. A program marks its modules with ranges of its own: by the path of the module (``layers.3.attn``), as
vLLM does with its arguments (``{'Module': 'model.layers.3.attn', …}``), or by layer and stage, as PithTrain does.
"""

from __future__ import annotations

import re
from array import array

from pytest_nsys.core.columns import find_nonzero, find_zeros, take
from pytest_nsys.core.tables import NO_SEQUENCE, OpCalls, ProgramRecords, Ranges

_ARGUMENTS = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_OP_NAME = re.compile(r"(?:\w+::)+\w+\Z")
_SEQUENCE = re.compile(r", seq = (\d{1,18})(?!\d)")
_BACKWARD_NAME = re.compile(r"autograd::engine::evaluate_function|\w*Backward\d*\Z")
_MODULE_ARGUMENT = re.compile(r"""['"]Module['"]: ['"]([^'"]+)['"]""")
_MODULE_PATH = re.compile(r"(?=[^.]*\.)(?:[A-Za-z_]\w*\.)*(?:\d+)(?:\.\w+)*\Z")
_LAYER_AND_STAGE = re.compile(r"(layer\d+)[._](stage\d+_[fbw])(?![A-Za-z0-9])")


def strip_op_arguments(name: str) -> str:
    """Return the name of an operator without its numbers."""
    match = _ARGUMENTS.search(name)
    return name if match is None else name[: match.start()]


def _is_op(name: str) -> bool:
    return _ARGUMENTS.search(name) is not None or _OP_NAME.match(name) is not None


def parse_module_range(name: str) -> tuple[tuple[str, ...], str] | None:
    """Return the path of the module that a range marks, and what separates its elements; None if it marks none."""
    if (match := _MODULE_ARGUMENT.search(name)) is not None:
        return tuple(match[1].split(".")), "."
    # Of ``layer05_stage5_f_layer06_stage1_f`` the last stage counts, as for stages.
    if layers := _LAYER_AND_STAGE.findall(name):
        return layers[-1], "/"
    if _MODULE_PATH.match(name) is not None:
        return tuple(name.split(".")), "."
    return None


def sort_ranges_by_kind(ranges: Ranges) -> ProgramRecords:
    """Return the ranges of a process as what their names say: operators, or ranges that the program named."""
    op_flags = take(bytearray(map(_is_op, ranges.names)), ranges.name)
    ops = ranges.take(find_nonzero(op_flags))
    sequence_matches = [_SEQUENCE.search(name) for name in ranges.names]
    sequences = array("q", [NO_SEQUENCE if match is None else int(match[1]) for match in sequence_matches])
    backward_flags = bytearray(_BACKWARD_NAME.match(strip_op_arguments(name)) is not None for name in ranges.names)
    calls = OpCalls(ops, take(sequences, ops.name), take(backward_flags, ops.name), array("q", bytes(8 * len(ops))))
    return ProgramRecords(ranges.take(find_zeros(op_flags)), ops=calls)
