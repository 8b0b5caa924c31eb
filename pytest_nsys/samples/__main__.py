"""How does one get a trace of any size? ``python -m pytest_nsys.samples out.sqlite`` simulates a step."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pytest_nsys.samples.dualpipe import (
    SAMPLE_REGRESSION,
    SAMPLE_SHAPE,
    StepShape,
    with_kernels,
    write_dualpipe,
)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    shape = SAMPLE_SHAPE if options.sample else _shape(options)
    if options.target_kernels:
        shape = with_kernels(shape, options.target_kernels)
    path = write_dualpipe(options.path, shape, SAMPLE_REGRESSION if options.regressed else ())
    print(f"{path}: {shape.world} ranks, {shape.chunks} anchors each, {path.stat().st_size / 2**20:.1f} MiB")


def _parser() -> argparse.ArgumentParser:
    default = StepShape()
    parser = argparse.ArgumentParser(prog="python -m pytest_nsys.samples", description=__doc__)
    parser.add_argument("path", type=Path, help="the SQLite file to write")
    for axis in ("pp", "dp", "cp", "ep"):
        parser.add_argument(f"--{axis}", type=int, default=getattr(default, axis), help=f"size of the {axis} axis")
    parser.add_argument("--chunks", type=int, default=default.chunks, help="steady anchors per rank")
    parser.add_argument("--layers", type=int, default=default.layers, help="layers of a chunk")
    parser.add_argument("--kernels-per-stage", type=int, default=default.kernels_per_stage)
    parser.add_argument("--transfers-per-stage", type=int, default=default.transfers_per_stage)
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--text", choices=("inline", "registered", "both"), default=default.text)
    parser.add_argument("--operator-ranges", action="store_true", help="a range around every kernel launch")
    parser.add_argument("--stage3-communication", action="store_true", help="fetch the experts' weights")
    parser.add_argument("--no-nccl-ranges", dest="nccl_ranges", action="store_false", help="without NCCL's own")
    parser.add_argument("--target-kernels", type=int, help="pick the chunks to reach about so many kernels")
    parser.add_argument("--sample", action="store_true", help="the shape of the shipped example")
    parser.add_argument("--regressed", action="store_true", help="with the regression of the shipped example")
    return parser


def _shape(options: argparse.Namespace) -> StepShape:
    names = StepShape.__dataclass_fields__
    return StepShape(**{name: value for name, value in vars(options).items() if name in names})


if __name__ == "__main__":
    main()
