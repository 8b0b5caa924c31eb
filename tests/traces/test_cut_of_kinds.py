"""Does a cut of an engine's steps show, and let a gate judge, what its trace does?"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.model import KernelsMode
from tests.support.commands import name_of_cut, run, screen
from tests.support.gates import Project
from tests.support.serving import decode, four_requests, prefill, write_serving
from tests.traces.test_cut_trace import FORMATS, cut, measured
from tests.verdicts.test_kinds_of_steps import SENTENCES

ENGINES = ("vllm", "sglang")


@pytest.mark.parametrize("kernels", KernelsMode)
@pytest.mark.parametrize("window", ["decode", "last prefill", "steady decode", "last decode"])
@pytest.mark.parametrize(("format", "engine"), [("nsys", "vllm"), ("kineto", "sglang"), ("rocpd", "vllm")])
@pytest.mark.sampled(5)
def test_a_cut_has_the_metric_of_its_trace(format: str, engine: str, window: str, kernels: str, tmp_path: Path) -> None:
    trace = write_serving(tmp_path / "run", format, four_requests(), engine=engine)
    small = cut(trace, f"--window={window}", f"--kernels={kernels}")
    assert measured(small, engine, window, None, kernels) == measured(trace, engine, window, None, kernels)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("format", ["nsys", "kineto"])
@pytest.mark.sampled(3)
def test_a_cut_for_a_gate_judges_every_kind(project: Project, format: str, engine: str) -> None:
    trace = write_serving(project.root / "run", format, four_requests(), engine=engine)
    project.gate("quality: {anchors: 1}\nassertions:\n" + "".join(f"- {each}\n" for each in SENTENCES))
    small = project.root / name_of_cut(trace, "gate.cut")
    said = run("cut", "--gate", project.root / "gate.nsys.yaml", trace, "-o", small, code=0)
    assert f"all {len(SENTENCES)} assertions of " in said.stdout
    project.pytest(f"--nsys-trace={small}", code=0)


def shown(*asked: str | Path) -> dict[str, Any]:
    """What the first screen shows, without what names the file."""
    found = screen(*asked)
    figures = {field.name: getattr(found, field.name) for field in fields(found)}
    return figures | {"traces": (), "given_options": (), "environment": found.environment.selection}


@pytest.mark.parametrize("options", [(), ("--window=last",), ("--window=steady", "--kernels=clipped")])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.sampled(5)
def test_a_cut_shows_the_screen_of_its_window(format: str, options: tuple[str, ...], tmp_path: Path) -> None:
    trace = FORMATS[format](tmp_path)
    assert shown(cut(trace, *options)) == shown(trace, *options)


@pytest.mark.parametrize("options", [(), ("--window=prefill",), ("--window=steady decode", "--kernels=clipped")])
@pytest.mark.parametrize("format", ["nsys", "kineto"])
def test_a_cut_of_a_kind_shows_the_screen_of_its_window(format: str, options: tuple[str, ...], tmp_path: Path) -> None:
    trace = write_serving(tmp_path / "run", format, four_requests())
    assert shown(cut(trace, *options)) == shown(trace, *options)


@pytest.mark.parametrize("asked", ["--window=prefill", "--window=first", "--kernels=clipped"])
def test_a_cut_shows_no_other_window_than_is_asked_for(asked: str, tmp_path: Path) -> None:
    told = run("show", cut(write_serving(tmp_path / "run", "nsys", four_requests())), asked, code=3).stderr
    assert "is a cut (window median decode, kernels launched), and does not hold all kernels of this window" in told


def test_a_cut_of_several_windows_shows_the_usual_one(project: Project) -> None:
    trace = write_serving(project.root / "run", "nsys", four_requests())
    project.gate(
        "quality: {anchors: 1}\nassertions:\n- {assert: idle <= 1s, window: first decode}\n- decode idle <= 1s\n"
    )
    small = project.root / name_of_cut(trace, "gate.cut")
    run("cut", "--gate", project.root / "gate.nsys.yaml", trace, "-o", small, code=0)
    assert shown(small) == shown(trace)


@pytest.mark.parametrize("steps", [[decode(4)], [prefill(), decode(4)]], ids=["the only step", "the last step"])
def test_the_last_step_is_as_long_as_its_window(steps: Any, tmp_path: Path) -> None:
    """The kernel that samples runs after its label, and is in both."""
    rows = measured(write_serving(tmp_path / "run", "nsys", steps), "vllm", "decode", None, "launched")[0]
    lengths = {name: rows[name][0][0].value for name in ("step_time_ns", "window_ns")}
    assert lengths == {"step_time_ns": 10_000_000, "window_ns": 10_000_000}
