"""Which files of a folder are traces, and in which order? Names sort by their numbers: ``rank2`` before ``rank10``.

TorchTitan keeps the traces of all ranks at one step in ``iteration_N/``: each of these folders is a run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.model import printable
from pytest_nsys.traces.same_bytes import given_twice

JSON = (".json", ".json.gz")
"""Only those count in which a profiler's marks are: other JSON lies beside traces."""
XPLANE = ".xplane.pb"
ITERATION = re.compile(r"iteration_(\d+)")
PROFILE = re.compile(r"\d{4}(_\d\d){5}.*")
"""How JAX names the folder of a profile: by the second in which it began."""
PERFETTO = ("perfetto_trace.json.gz", "perfetto_trace.json")
"""The same trace once more, which JAX writes beside it where it is asked to."""
_DIGITS = re.compile(r"(\d+)")


def by_number(path: Path) -> tuple[list[tuple[int, str]], str]:
    """What paths are sorted by: numbers in a name by their value, the rest as text."""
    parts = _DIGITS.split(str(path))
    return [(int(part), "") if part.isascii() and part.isdecimal() else (-1, part) for part in parts], str(path)


def traces_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """The traces directly in a folder: files of the suffixes, and JSON that a profiler wrote."""
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=by_number)
    found = [path for path in files if path.suffix in suffixes or _is_json_trace(path)]
    return [path for path in found if path.name not in PERFETTO] or found


def _is_json_trace(path: Path) -> bool:
    if not path.name.endswith(JSON):
        return False
    from pytest_nsys.traces.chrome.writers import is_trace  # gates on exports of nsys do not pay for it

    return is_trace(path)


def iterations(folder: Path) -> list[Path]:
    """The folders of TorchTitan's steps that hold traces, by step."""
    found = [path for path in folder.iterdir() if ITERATION.fullmatch(path.name) and path.is_dir()]
    return [path for path in sorted(found, key=by_number) if traces_in(path, ())]


def split_profile(folder: Path) -> list[Path]:
    """The traces of JAX below a log folder, by host: one profiling window may lie in several ``profile/<time>/``, for
    each process names its folder by its own clock. Raises UsageMistake where one lacks its JSON or comes twice.
    """
    root = next((path for path in (folder / "plugins" / "profile", folder / "profile") if path.is_dir()), folder)
    found: list[Path] = []
    for window in root.iterdir():
        if window.is_dir() and PROFILE.fullmatch(window.name):
            check_xplanes(window)
            found += traces_in(window, ())
    if twice := given_twice([[path] for path in found]):
        raise UsageMistake(f"{twice.first} and {twice.second} are the same trace: one process would count twice")
    return sorted(found, key=lambda path: (by_number(Path(path.name)), by_number(path)))


def check_xplanes(folder: Path) -> None:
    """Raises UsageMistake where a profile of JAX in a folder has no JSON beside it: a rank would be missing."""
    names = {path.name for path in folder.iterdir()}
    alone = [n for n in sorted(names) if not {n.replace(XPLANE, f".trace{suffix}") for suffix in JSON} & names]
    if why := why_xplane(alone):
        raise UsageMistake(f"{folder}: {why}")


def the_iteration(folder: Path) -> list[Path]:
    """The traces of the one step that a folder holds, none where it holds none. Raises UsageMistake for several."""
    found = iterations(folder)
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:3]) + (" …" if len(found) > 3 else "")
        raise UsageMistake(
            f"{folder}: holds the traces of {len(found)} steps ({names}), each with its ranks: give one of them, or "
            "each its own --nsys-trace"
        )
    return traces_in(found[0], ()) if found else []


def why_xplane(names: Sequence[str]) -> str | None:
    """What to do about a profile of JAX of which only the protobuf is there; None where there is none."""
    found = [name for name in names if name.endswith(XPLANE)]
    if not found:
        return None
    return (
        f"holds no trace that can be read, but {printable(found[0])} without its trace.json.gz: the profiler of JAX "
        "writes that only where XProf is installed; install xprof beside JAX and profile again"
    )


def mixed(paths: Sequence[Path], kinds: Sequence[object]) -> str | None:
    """The first two files of a run that are of two kinds, in words; None where all are of one."""
    for path, kind in zip(paths, kinds, strict=True):
        if kind is not kinds[0]:
            return (
                f"{paths[0]} and {path} are of two formats: one run is of one profiler; give each its own --nsys-trace"
            )
    return None
