"""Runs of many small traces, made fast: one is written, the others are copies with other ranks."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

# An in-process run of pytest forgets what it imported, and a pool takes no function that was imported twice.
import pytest_nsys.tools.workers  # noqa: F401
from tests.support.gates import MS, sign, write_trace

KILLER = "killer.sqlite"
HOOK = f"""
import multiprocessing, os, signal, sys

def kill(event, arguments):
    reads = event == "sqlite3.connect" and "{KILLER}" in str(arguments[0])
    if reads and multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
"""


def write_nodes(folder: Path, nodes: int, ranks: int = 8) -> list[Path]:
    """One trace per node: its ranks are the next ``ranks`` of a mesh of nodes × ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    label = f"rank=000{{rank}}; pp={{rank}}/{{ranks}} dp=000/{nodes:03d} cp=0/1 ep=0/1; mbs=1 seq=2048"
    first = write_trace(folder / "node000.sqlite", ranks=ranks, label=label)
    content = first.read_bytes()
    paths = [first]
    for node in range(1, nodes):
        own = content.replace(b" dp=000/", b" dp=%03d/" % node)
        for rank in range(ranks):
            own = own.replace(b"rank=%04d;" % rank, b"rank=%04d;" % (node * ranks + rank))
        path = folder / f"node{node:03d}.sqlite"
        path.write_bytes(own)
        with closing(sqlite3.connect(path)) as file, file:  # no two nodes take the same time
            file.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + ? WHERE start > ?", (node, 80 * MS))
        paths.append(sign(path))
    return paths


def kill_whoever_reads_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a process that opens a trace named ``KILLER`` dies, unless it is the one that a person started."""
    (folder / "hooks").mkdir()
    (folder / "hooks" / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", ":".join([str(folder / "hooks"), *filter(None, sys.path)]))
