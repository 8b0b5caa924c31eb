"""One trace that is given twice is one process, whichever command is asked, and whatever the copy is called."""

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import run
from tests.support.samples.formats import ENDINGS, Format, write_one

HOW = ("--convention=generic", "--anchor=step%")


def traced(folder: Path, format: Format) -> Path:
    """Six steps of four kernels each, no two of one length."""

    def put(gpu: Any) -> None:
        for step in range(6):
            begin = 20_000 * step
            gpu.range("step", begin + 10, begin + 19_000)
            for k in range(4):
                start = begin + 1_000 + 3_000 * k
                gpu.kernel("gemm", start, start + 2_000 + 7 * step, launch_ns=begin + 400 + k)

    return write_one(folder, format, put)


COMMANDS = {
    "check": ("check",),
    "first screen": (*HOW,),
    "view": ("show", "--view=overlap", *HOW),
    "init": ("init", "-o", "drafted.nsys.yaml"),
    "cut": ("cut", *HOW),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("format", [*Format])
def test_a_copy_in_the_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    trace = traced(folder, format)
    shutil.copy(trace, folder / f"copy.{ENDINGS[format]}")
    said = " ".join(run(*words, "run", code=2).output.split())
    assert f"run/copy.{ENDINGS[format]} and run/{trace.name} hold the same bytes: one process would count" in said


@pytest.mark.parametrize("words", [words for name, words in COMMANDS.items() if name != "init"])
@pytest.mark.parametrize("format", [*Format])
def test_a_file_that_is_named_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = traced(tmp_path, format).name
    assert f"{trace} is given twice: one process would count twice" in run(*words, trace, trace, code=2).output


def test_captures_and_sides_are_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them for itself; two sides may be one trace, which another error says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    trace = traced(tmp_path / "run", Format.JAX)
    shutil.copy(trace, tmp_path / "run" / "copy.json")
    traced(tmp_path, Format.JAX).rename("other.json")
    with open("other.json", "a") as file:
        file.write("\n")
    assert "hold the same bytes" in run("rows", "compute_ns", "--trace=run", *HOW, code=2).output
    for sides in (("other.json", "run"), ("run", "other.json")):
        said = run("compare", f"--base={sides[0]}", f"--head={sides[1]}", *HOW, code=2).output
        assert "hold the same bytes" in said or "are on both sides" in said


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_changed_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    """Nothing in a trace of JAX says of which process it is."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    trace = traced(folder, Format.JAX)
    (folder / "copy.trace.json.gz").write_bytes(gzip.compress(trace.read_bytes()))
    said = " ".join(run(*words, "run", code=2).output.split())
    assert "are the same capture" in said
    assert "kernels are equal to the nanosecond; one trace is one rank" in said
