"""The view ``config``: one page of text for each run, named after when it ran, what it trained, and on what."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from pytest_nsys.cli.options import MeasureOptions
from pytest_nsys.cli.saying import say
from pytest_nsys.core.errors import NoRows, UsageMistake
from pytest_nsys.core.words import printable
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.workload_keys import read_config
from pytest_nsys.reports.run_report import RunReport
from pytest_nsys.tools.files import write_whole
from pytest_nsys.traces.opening import IN_FOLDERS, by_number, find_traces, is_parquet, iterations, traces_in

MEASURED = ("step_time_ns", "wall_overlap_all", "wall_exposed_all_ns", "collective_bytes", "collective_wait_ns")


def show_pages(
    asked: MeasureOptions, runs: Sequence[str], config: str | None, output: str | None, peak: Fraction | None
) -> None:
    """Show throughput, overlap, network load and traffic of runs as text.

    Each path is one run (a folder or file of traces), or holds several: iteration_N of TorchTitan, or one folder per
    run. A page is named TIME_MODEL_dpXxY_tpZ_gpuN.txt, by the traces' own time in UTC, and never overwrites another.
    """
    if config is None:
        raise UsageMistake("--view config needs the configuration of the run: --config FILE.toml")
    workload = read_config(Path(config))._replace(peak_gb_per_s=peak)
    pages = _named([_page(folder, workload, asked) for value in runs for folder in runs_in(value)])
    if output is None:
        say("\n".join(pages.values()), nl=False)
        return
    folder = Path(output)
    for name, text in pages.items():
        path = folder / name
        same = path.is_file() and path.read_bytes() == text.encode("utf-8")
        if not same and os.path.lexists(path):  # another file would be lost
            raise UsageMistake(f"{path}: exists with other content: delete it, or give another --output")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        if not (folder / name).exists():
            write_whole(folder / name, text.encode())
        say(folder / name)


def runs_in(value: str) -> list[Path]:
    """The runs that a path means, in the order of their numbers. Raises UsageMistake where there is none."""
    path = Path(value).expanduser()
    if not value or not path.is_dir() or is_parquet(path) or traces_in(path, IN_FOLDERS):
        find_traces(value, Path())
        return [path]
    if found := iterations(path):
        return found
    for folder in sorted((entry for entry in path.iterdir() if entry.is_dir()), key=by_number):
        if traces_in(folder, IN_FOLDERS):
            found.append(folder)
        else:
            found += iterations(folder)
    if not found:
        find_traces(value, Path())  # says why, or finds what is no plain folder of traces
    return found or [path]


def _page(folder: Path, workload: Workload, asked: MeasureOptions) -> tuple[str, str, str]:
    """Name of the file, of the folder, and the text. Raises UsageMistake where the configuration is of another run."""
    with asked.one_run([str(folder)], workload, metrics=MEASURED) as (captures, spec):
        page = RunReport(folder.resolve().name, captures, spec)
        try:
            return page.file_stem, folder.resolve().name, page.text()
        except NoRows as why:
            raise UsageMistake(f"{folder}: {why}") from None


def _named(pages: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """The pages by the names of their files; of one name the folder is part, too."""
    stems = [stem for stem, *_ in pages]
    found: dict[str, str] = {}
    for stem, folder, text in pages:
        name = f"{stem}.txt" if stems.count(stem) == 1 else f"{stem}_{printable(folder).replace('/', '_')}.txt"
        if found.setdefault(name, text) is not text:
            raise UsageMistake(f"two runs are called {name}: give one of them at a time, each with its own --output")
    return found
