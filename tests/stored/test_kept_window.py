"""Is a window that is kept beside a baseline that of the run it was written of, and is any other one refused?"""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.core.file_names import WINDOW_SUFFIX
from pytest_nsys.stored.baselines.baseline_file import WINDOW_DIGEST_KEY, load_baseline
from pytest_nsys.stored.baselines.store import BaselineStore, build_window_path, compute_digest
from pytest_nsys.verdicts import gate_windows, refresh
from pytest_nsys.verdicts.refresh_modes import RefreshMode
from tests.support.commands import run
from tests.support.gates import MS, Edit, Project, built_once
from tests.support.samples.builder import Process, TraceBuilder


@pytest.fixture
def stored(project: Project) -> Path:
    """The baseline of a gate."""
    project.gate_with_trace("- exposed_ns <= baseline + 50us")
    project.refresh("--nsys-trace=run.sqlite", keeps_windows=False)
    (path,) = (project.root / "baselines").rglob("*.json")
    return path


def test_only_the_bytes_that_the_baseline_names_are_its_window(stored: Path) -> None:
    store, baseline = BaselineStore(stored.parent, "gate.nsys.yaml"), load_baseline(stored)
    window = build_window_path(stored)
    assert window.name == f"{stored.stem}.window.gz"
    assert store.read_stored_window(stored, baseline) is None
    window.write_bytes(b"a cut")
    assert store.read_stored_window(stored, baseline) is None  # of which is unknown run
    baseline.provenance[WINDOW_DIGEST_KEY] = compute_digest(b"a cut")
    assert store.read_stored_window(stored, baseline) == b"a cut"
    window.write_bytes(b"of another run")
    assert store.read_stored_window(stored, baseline) is None
    window.unlink()
    assert store.read_stored_window(stored, baseline) is None


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_full_scratch_folder_is_no_verdict(project: Project, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    project.accepted("- exposed_ns <= baseline + 50us")
    project.trace(exposed_us=900)
    write_bytes = Path.write_bytes

    def full(*words: object, **_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(words[:1]))

    def written(path: Path, content: bytes) -> int:
        return full(path) if path.name.endswith(WINDOW_SUFFIX) else write_bytes(path, content)

    if what == "file":
        monkeypatch.setattr(Path, "write_bytes", written)
    else:
        monkeypatch.setattr("tempfile.TemporaryDirectory", full)
    said = project.pytest("--nsys-trace=run.sqlite", "--nsys-html=page.html", code=1)
    assert "4 of 4 rows above their limit" in said
    assert "No space left" not in said
    assert "exposed_ns" in (project.root / "page.html").read_text()


# -- a refresh keeps them, or removes those of the run before


RUN = "--nsys-trace=run.sqlite"


@built_once
def refreshed(project: Project) -> Project:
    project.gate_with_trace("- exposed_ns <= baseline + 50us\n- {id: all, assert: compute_ns > 1ns, window: first}")
    said = project.refresh(RUN)
    assert re.search(r"^  baselines/\S+\.window\.gz holds the windows of this run \(", said, re.MULTILINE)
    return project


@pytest.fixture
def kept(project: Project) -> tuple[Path, Path]:
    """The baseline of a gate, and the windows of its run."""
    (path,) = (refreshed(project).root / "baselines").rglob("*.json")
    return path, build_window_path(path)


def known(path: Path) -> Path | None:
    """The file of windows that counts."""
    content = BaselineStore(path.parent, "gate.nsys.yaml").read_stored_window(path, load_baseline(path))
    return build_window_path(path) if content is not None and content == build_window_path(path).read_bytes() else None


def test_it_is_the_cut_of_the_gate_and_a_trace(project: Project, kept: tuple[Path, Path]) -> None:
    path, window = kept
    assert known(path) == window
    gate, target = project.root / "gate.nsys.yaml", project.root / "own.sqlite.gz"
    run("cut", project.root / "run.sqlite", "--gate", gate, "-o", target, code=0)
    assert window.read_bytes() == target.read_bytes()
    project.pytest(f"--nsys-trace={window}", code=0)


def test_the_same_run_writes_nothing(project: Project, kept: tuple[Path, Path]) -> None:
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in kept]
    for windows in (True, False):
        assert "no row moved beyond its tolerance; unchanged" in project.refresh(RUN, keeps_windows=windows)
        assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in kept] == before


def test_windows_that_are_lost_are_kept_anew(project: Project, kept: tuple[Path, Path]) -> None:
    path, window = kept
    for lose in (window.unlink, lambda: window.write_bytes(b"of another run")):
        lose()
        assert known(path) is None
        assert "no row changed; the windows of this run are kept now" in project.refresh(RUN)
        assert known(path) == window


@pytest.mark.parametrize("mode", [RefreshMode.MOVED, RefreshMode.ALL, RefreshMode.ACCEPT_RUN])
def test_a_written_run_has_windows_of_its_own_or_none(
    project: Project, kept: tuple[Path, Path], mode: RefreshMode
) -> None:
    path, window = kept
    first = window.read_bytes()
    project.trace("other.sqlite", 350)
    said = project.refresh("--nsys-trace=other.sqlite", mode=mode, keeps_windows=False)
    assert f"{window.relative_to(project.root)} was removed: its windows were of the run before" in said
    assert not window.exists()
    assert known(path) is None
    project.trace("third.sqlite", 500)
    project.refresh("--nsys-trace=third.sqlite", mode=mode)
    assert known(path) == window
    assert window.read_bytes() != first


def test_calibrating_leaves_them(project: Project, kept: tuple[Path, Path]) -> None:
    path, window = kept
    traces = [project.trace(f"{n}.sqlite", 200 + n).name for n in range(5)]
    project.refresh(*(f"--nsys-trace={name}" for name in traces), mode=RefreshMode.CALIBRATE)
    assert "calibration" in load_baseline(path).provenance
    assert known(path) == window


def test_what_is_too_large(project: Project, kept: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path, window = kept
    monkeypatch.setattr(refresh, "LARGEST_WINDOW_BYTES", 1_000)
    project.trace("other.sqlite", 350)
    said = project.refresh("--nsys-trace=other.sqlite")
    assert re.search(r"the windows of this run are not kept: they take \d.\d+ kB, of at most 1 kB; ", said)
    assert not window.exists()
    assert known(path) is None


WORLD = {(0, "stage2_f"): 200, (1, "stage2_f"): 300, (2, "stage2_f"): 250, (3, "stage2_f"): 190, (4, "stage2_f"): 220}
"""Exposed in five ranks: the worst is 1, the middle one 4; of the two that are alike 3 comes last."""


@pytest.mark.parametrize(("most", "ranks"), [(12, "ranks 1, 3, 4"), (4, "rank 1")])
def test_of_a_large_world_the_ranks_are_kept_that_tell_most(
    project: Project, monkeypatch: pytest.MonkeyPatch, most: int, ranks: str
) -> None:
    monkeypatch.setattr(gate_windows, "MOST_KEPT_KERNELS", most)
    said = project.accepted("- exposed_ns <= baseline + 50us", WORLD, ranks=5)
    why = f"window median, kernels contained holds 20 kernels, of at most {most}"
    assert re.search(rf"holds the windows of this run \([\d.]+ kB\) of {ranks} alone, as of all ranks {why}\n", said)
    project.trace("head.sqlite", {**WORLD, (1, "stage2_f"): 650}, ranks=5)
    assert "why:    rank 1 stage2_f, +350 us:" in project.pytest("--nsys-trace=head.sqlite", code=1)
    project.trace("head.sqlite", {**WORLD, (0, "stage2_f"): 650}, ranks=5)
    said = project.pytest("--nsys-trace=head.sqlite", code=1)
    assert "why:    " not in said
    line = "note: no why: no windows of rank 0 are kept of the base: give its trace with --nsys-against"
    assert line in " ".join(said.split())
    assert "warning" not in said
    assert "why:    rank 0 stage2_f, +450 us:" in project.pytest(
        "--nsys-trace=head.sqlite", "--nsys-against=run.sqlite", code=1
    )


def test_windows_of_too_many_kernels_are_not_even_cut(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_windows, "MOST_KEPT_KERNELS", 3)
    monkeypatch.setattr(gate_windows, "render_cut", None)
    said = project.accepted("- exposed_ns <= baseline + 50us")
    line = "the windows of this run are not kept: window median, kernels contained holds 8 kernels, of at most 3"
    assert f"\n  {line}\n" in said
    assert not [name for name in project.files() if name.endswith(".gz")]


def test_measurements_alone_have_none(project: Project) -> None:
    project.gate("- measured mfu >= baseline - 1pp")
    row = {"metric": "mfu", "unit": "%", "value": 40}
    project.file("mfu.json", json.dumps([row]))
    assert "are not kept" not in project.refresh("--nsys-measurements=mfu.json")
    assert not [name for name in project.files() if name.endswith(".gz")]


def test_the_command(project: Project, kept: tuple[Path, Path]) -> None:
    path, window = kept
    words = ("baseline", "refresh", "gate.nsys.yaml", "--trace=run.sqlite", "--reason=r")
    window.unlink()
    project.command(*words, "--no-window", code=0)
    assert known(path) is None
    project.command(*words, code=0)
    assert known(path) == window
    assert f"; its windows are in {window.name}\n" in project.command("baseline", "show", code=0) + "\n"


# -- a red is explained by them


def test_a_red_without_windows_says_what_its_why_needs(project: Project, kept: tuple[Path, Path]) -> None:
    """Lost, of another run, or damaged: the verdict stands."""
    _, window = kept
    project.trace("other.sqlite", 350)
    assert "why:    rank 0 stage2_f, +150 us:" in project.pytest("--nsys-trace=other.sqlite", code=1)
    for lose in (lambda: window.write_bytes(b"of another run"), window.unlink):
        lose()
        said = project.pytest("--nsys-trace=other.sqlite", code=1)
        assert "4 of 4 rows above their limit" in said
        assert "why:    " not in said
        line = f"note: no why: {window.name} is gone, or not the file that the baseline names: take it from git, or"
        assert " ".join(said.split()).count(f"{line} give the trace with --nsys-against") == 1


def test_windows_that_are_no_cut_are_none(project: Project, kept: tuple[Path, Path]) -> None:
    path, window = kept
    window.write_bytes(b"no cut")
    baseline = load_baseline(path)
    baseline.provenance[WINDOW_DIGEST_KEY] = compute_digest(b"no cut")
    path.write_text(baseline.serialize())
    project.trace("other.sqlite", 350)
    said = project.pytest("--nsys-trace=other.sqlite", "--nsys-html=page.html", code=1)
    assert f"no why: {window.name} is gone, or not the file that the baseline names" in " ".join(said.split())
    assert "INTERNALERROR" not in said


def test_they_are_read_once_and_where_something_is_worse(
    project: Project, kept: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bytes] = []
    from_bytes = CaptureCache.open_window_bytes

    def counted(cache: CaptureCache, content: bytes, *how: Any) -> Captures:
        opened.append(content)
        return from_bytes(cache, content, *how)

    monkeypatch.setattr(CaptureCache, "open_window_bytes", counted)
    project.pytest(RUN, code=0)
    assert opened == []
    project.gate("- exposed_ns <= baseline + 50us\n- stage2 exposed_ns <= baseline + 10%\n- overlap_min >= 99%")
    project.trace("other.sqlite", 350)
    project.pytest("--nsys-trace=other.sqlite", code=1)
    assert opened == [kept[1].read_bytes()]


def test_windows_of_other_rows_are_told(project: Project) -> None:
    """A refresh of one assertion leaves the rows of the others as they were, and keeps the windows of its run."""
    project.accepted("- exposed_ns <= baseline + 50us\n- overlap >= baseline - 1pp", 200)
    project.trace("other.sqlite", 500)
    assert "though not all rows are of it" in project.refresh("--nsys-trace=other.sqlite", "-k", "overlap")
    said = " ".join(project.pytest("--nsys-trace=other.sqlite", code=1).split())
    assert "note: the windows of the base are of another run than this baseline: 500 us there" in said
    project.refresh("--nsys-trace=other.sqlite")
    project.trace("third.sqlite", 700)
    assert "of another run" not in project.pytest("--nsys-trace=third.sqlite", code=1)


@pytest.mark.parametrize("against", [False, True])
def test_what_is_doubtful_about_the_run_before_is_told_beside_it(project: Project, against: bool) -> None:
    def short(launched: int) -> Edit:
        def edit(_: TraceBuilder, processes: list[Process]) -> None:
            for process in processes:
                for n in range(40):
                    at = 50 * MS + 100_000 * n
                    process.kernel("short", at, at + 50_000, launch=n < launched)

        return edit

    project.accepted("- exposed_ns <= baseline + 50us\n- compute_ns > 1ns", name="base.sqlite", edit=short(37))
    project.trace("head.sqlite", 350, edit=short(40))
    more = ["--nsys-against=base.sqlite"] if against else []
    cases = project.cases("--nsys-trace=head.sqlite", *more, code=1)
    said = " ".join(cases["exposed_ns <= baseline + 50us"].text.split())
    assert said.count("the base: 6 of 88 kernels") == 1, said
    assert "the base:" not in project.pytest("--nsys-trace=head.sqlite", *more, "-k", "compute_ns", code=0)


# -- pruning


def test_pruning_removes_windows_that_are_nobodys(project: Project, kept: tuple[Path, Path]) -> None:
    path, window = kept
    strange = window.with_name("0.window.gz")
    strange.write_bytes(b"of no baseline")
    said = "its windows are of a different run"
    assert f"{strange.name}: would be removed, {said}" in project.command("baseline", "prune", ".", "--dry-run", code=0)
    assert strange.exists()
    assert f"{strange.name}: was removed, {said}" in project.command("baseline", "prune", ".", code=0)
    assert sorted(window.parent.iterdir()) == [path, window]
    window.write_bytes(b"of another run")
    project.command("baseline", "prune", ".", code=0)
    assert sorted(window.parent.iterdir()) == [path]


def test_they_go_with_their_baseline(project: Project, kept: tuple[Path, Path]) -> None:
    project.gate("- exposed_ns <= 1ms")
    assert "was removed, as nothing of it is read" in project.command("baseline", "prune", ".", code=0)
    assert not kept[0].parent.exists()


def test_they_go_with_their_gate_file(project: Project, kept: tuple[Path, Path]) -> None:
    (project.root / "gate.nsys.yaml").rename(project.root / "other.nsys.yaml")
    assert "removed its 1 baseline" in project.command("baseline", "prune", ".", "--orphans", code=0)
    assert not kept[0].parent.exists()
