"""How fast is it, and in how much memory? Every target in one table: ``python -m tests.benchmarks``.

    python -m tests.benchmarks                       # full size: some 20 minutes, and 4 GB of disk
    python -m tests.benchmarks --only gate torch     # some groups
    python -m tests.benchmarks --small               # does everything run? (what CI does)

Exits with 1 where a target is missed at full size, or where something does not run.
"""

import argparse
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.benchmarks import gate, many, parallel, start_up, torch_profiler, whole_run
from tests.benchmarks.measuring import Bench

GROUPS = {
    "gate": gate.GROUP,
    "whole": whole_run.GROUP,
    "torch": torch_profiler.GROUP,
    "many": many.GROUP,
    "start": start_up.GROUP,
    "parallel": parallel.GROUP,
}
PACKAGES = ("pytest", "msgspec", "numpy")


def machine() -> str:
    """What the figures are measured on, and with."""
    processor = platform.processor()
    if (told := Path("/proc/cpuinfo")).exists():
        named = (line.partition(":")[2].strip() for line in told.read_text().splitlines() if "model name" in line)
        processor = next(named, processor)
    versions = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    busy = f"load {os.getloadavg()[0]:.1f} at the start"
    return (
        f"{os.cpu_count()} cores, {processor}, {platform.system()} {platform.release()}, {busy}\n{', '.join(versions)}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table; 1 where a target is missed, but never of small sizes: they measure nothing."""
    about = "\n".join(f"  {name:10}{group.about}".replace("\n", "\n" + 12 * " ") for name, group in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=f"{__doc__}\ngroups:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="GROUP", help="these groups")
    parser.add_argument("--small", action="store_true", help="small traces, one round, no verdicts")
    parser.add_argument("--rounds", type=int, default=5, help="of all but what takes long (default: 5)")
    parser.add_argument("--processor", action="store_true", help="processor time, not wall time: for a busy machine")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="keep the traces there, for the next time")
    parser.add_argument(
        "--hta", default="", metavar="PYTHON", help="a Python with HolisticTraceAnalysis, to compare with"
    )
    asked = parser.parse_args(arguments)
    if asked.rounds < 1:
        parser.error("--rounds: at least one")
    began = time.perf_counter()
    told: list[str] = []
    print(machine())
    print("seconds are of the processor, where the targets are of wall time\n" if asked.processor else "", end="")
    print(
        "small sizes, one round: this says that everything runs, and measures nothing" if asked.small else "",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as scratch:
        traces = asked.traces.absolute() if asked.traces else Path(scratch, "traces")
        traces.mkdir(parents=True, exist_ok=True)
        work = Path(scratch, "work")
        work.mkdir()
        bench = Bench(traces, work, rounds=asked.rounds, small=asked.small, processor=asked.processor, hta=asked.hta)
        for name in asked.only:
            print(f"{name}: {GROUPS[name].about}")
            for part in GROUPS[name].parts:
                try:
                    for line in part(bench):
                        print(line.text(verdict=not asked.small), flush=True)
                        told.append(line.verdict)
                except RuntimeError as error:
                    print(f"  {part.__name__}: FAILED, {error}", flush=True)
                    told.append("FAILED")
            print()
    verdicts = ("FAILED",) if asked.small else ("FAILED", "MISSED", "not measured", "met")
    counted = {verdict: told.count(verdict) for verdict in verdicts if verdict in told}
    print(f"{len(told)} lines in {(time.perf_counter() - began) / 60:.1f} minutes, medians (lowest–highest)", end="")
    print("".join(f", {count} {verdict}" for verdict, count in counted.items()))
    return int("FAILED" in counted or "MISSED" in counted)


if __name__ == "__main__":
    sys.exit(main())
