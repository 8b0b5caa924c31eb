"""How many nodes does a mesh need, and what does it train on? Sizes that do not divide are refused, never adjusted."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.model import counted

MICRO_BATCHES = 32
"""Per pipeline stage, as PithTrain's captures have it."""


@dataclass(frozen=True)
class Sizes:
    """What was asked for: GPUs in all and on a node, and the sizes of the axes pipeline, expert and context."""

    world: int
    pp: int = 1
    ep: int = 1
    cp: int = 1
    gpus_per_node: int = 8


@dataclass(frozen=True)
class Plan:
    """What that comes to. ``global_batch`` counts samples of a step at a micro-batch of one."""

    nodes: int
    dp: int
    global_batch: int


def plan(sizes: Sizes, allocated_nodes: int | None = None) -> Plan:
    """The plan of a run. Raises UsageMistake for sizes that do not divide, or that the allocation cannot hold."""
    axes = {"pp": sizes.pp, "ep": sizes.ep, "cp": sizes.cp}
    for name, size in {"world size": sizes.world, **axes, "GPUs per node": sizes.gpus_per_node}.items():
        if size < 1:
            raise UsageMistake(f"{name} is {size}: every size is at least 1")
    _divides(sizes.world, prod(axes.values()), f"pp × ep × cp = {' × '.join(map(str, axes.values()))}")
    if sizes.world > sizes.gpus_per_node:
        _divides(sizes.world, sizes.gpus_per_node, "the GPUs of a node")
    nodes = -(-sizes.world // sizes.gpus_per_node)
    if allocated_nodes is not None and nodes > allocated_nodes:
        short = nodes - allocated_nodes
        raise UsageMistake(
            f"world size {sizes.world} needs {counted(nodes, 'node')} of {sizes.gpus_per_node} GPUs: the allocation "
            f"has {allocated_nodes}, {counted(short, 'node')} ({short * sizes.gpus_per_node} GPUs) short"
        )
    dp = sizes.world // prod(axes.values())
    return Plan(nodes, dp, MICRO_BATCHES * dp * sizes.ep)


def _divides(world: int, part: int, what: str) -> None:
    rest = world % part
    if rest == 0:
        return
    above = world - rest + part
    below = f", or take {rest} away for {world - rest}" if world > part else ""
    raise UsageMistake(
        f"world size {world} is no multiple of {part} ({what}): {counted(part - rest, 'GPU')} short of {above}{below}"
    )
