"""The fuzzer's command: ``python -m tests.fuzz --seed 1 --inputs 500 [--kind exports] [--only 17]``."""

import argparse
import sys
import time

from tests.fuzz.kinds import KINDS, run

COLUMNS = ("inputs", "green", "tracebacks", "hangs", "lies", "failures", "ms each")


def main() -> int:
    """Run some of each kind; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=100, help="of each kind")
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--only", type=int, help="this input alone: what a failure names")
    options = parser.parse_args()
    numbers = range(options.inputs) if options.only is None else [options.only]
    _say("kind", *COLUMNS)
    failed = False
    for kind in options.kind or KINDS:
        began = time.monotonic()
        green = tracebacks = hangs = lies = failures = 0
        for number in numbers:
            found = run(kind, options.seed, number)
            green += found.green is not None
            tracebacks += found.tracebacks
            hangs += found.hung
            lies += found.lies
            failures += len(found.failures)
            for failure in found.failures:
                print(f"--seed {options.seed} --kind {kind} --only {number}: {failure}", file=sys.stderr, flush=True)
        each_ms = 1000 * (time.monotonic() - began) / max(1, len(numbers))
        _say(kind, len(numbers), green, tracebacks, hangs, lies, failures, round(each_ms))
        failed = failed or bool(failures)
    return int(failed)


def _say(kind: str, *cells: object) -> None:
    print(f"{kind:<12}", *(f"{cell:>10}" for cell in cells), flush=True)


if __name__ == "__main__":
    sys.exit(main())
