"""How does one get a trace of any size? ``python -m pytest_nsys.samples out.sqlite`` simulates a step."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_nsys.samples.dualpipe import SAMPLE_REGRESSION, SAMPLE_SHAPE, StepShape, with_kernels, write_dualpipe


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the trace that is asked for, and say what is in it."""
    parser = _parser()
    options = parser.parse_args(arguments)
    given = _given(options)
    if options.sample and (other := [name for name in given if name != "seed"]):
        parser.error(f"--sample has a shape of its own: leave out {', '.join(map(_option, other))}")
    shape = replace(SAMPLE_SHAPE if options.sample else StepShape(), **given)
    if options.target_kernels:
        shape = with_kernels(shape, options.target_kernels)
    path = write_dualpipe(options.path, shape, SAMPLE_REGRESSION if options.regressed else ())
    print(f"{path}: {shape.world} ranks, {shape.chunks} anchors each, {path.stat().st_size / 2**20:.1f} MiB")


def _parser() -> argparse.ArgumentParser:
    # No option has a default, so that what was asked for is told from the rest.
    parser = argparse.ArgumentParser(prog="python -m pytest_nsys.samples", description=__doc__)
    parser.add_argument("path", type=Path, help="the SQLite file to write")
    for axis in ("pp", "dp", "cp", "ep"):
        parser.add_argument(f"--{axis}", type=int, help=f"size of the {axis} axis")
    parser.add_argument("--chunks", type=int, help="steady anchors per rank")
    parser.add_argument("--layers", type=int, help="layers of a chunk")
    parser.add_argument("--kernels-per-stage", type=int)
    parser.add_argument("--transfers-per-stage", type=int)
    parser.add_argument("--seed", type=int, help="another seed draws other durations, as another run has")
    parser.add_argument("--text", choices=("inline", "registered", "both"))
    parser.add_argument("--operator-ranges", action="store_true", default=None, help="one around every launch")
    parser.add_argument("--stage3-communication", action="store_true", default=None, help="of the experts' weights")
    parser.add_argument("--no-nccl-ranges", dest="nccl_ranges", action="store_false", default=None)
    parser.add_argument("--target-kernels", type=int, help="pick the chunks to reach about so many kernels")
    parser.add_argument("--sample", action="store_true", help="the shape of the shipped example")
    parser.add_argument("--regressed", action="store_true", help="with the regression of the shipped example")
    return parser


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of the shape that were asked for."""
    fields = StepShape.__dataclass_fields__
    return {name: value for name, value in vars(options).items() if name in fields and value is not None}


def _option(name: str) -> str:
    return "--no-nccl-ranges" if name == "nccl_ranges" else "--" + name.replace("_", "-")


if __name__ == "__main__":
    main()
