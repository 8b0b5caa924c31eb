"""Does a red say which part of the program became slower, whichever kernel forty layers share?"""

import json
from pathlib import Path

import pytest

from tests.analysis.scopes.test_changed_scope import FAULTS
from tests.support.commands import brief, run
from tests.support.samples.kineto import KinetoBuilder
from tests.support.scope_programs import WRITERS, name_module

CONVENTIONS = {"torch": "kineto", "nsys": "generic", "jax": "jax"}
CASES = [(name, fault) for name in WRITERS for fault in FAULTS]


def compared(folder: Path, format_name: str, fault: int) -> tuple[Path, Path, list[str]]:
    """The trace of a step, that of the same with a fault, and what is asked of both."""
    name, write = WRITERS[format_name]
    layer, module, direction = FAULTS[fault]
    base, head = write(folder / f"base_{name}", None), write(folder / f"head_{name}", {(layer, module, direction): 1.2})
    gate = folder / "gate.nsys.yaml"
    gate.write_text(
        f"version: 1\nconvention: {CONVENTIONS[format_name]}\nwindow: run\nkernels: contained\n"
        "assertions:\n- compute_ns <= baseline + 0.1%\n",
        encoding="utf-8",
    )
    return base, head, ["compare", str(base), str(head), f"--gate={gate}"]


@pytest.mark.parametrize("format_name", WRITERS)
@pytest.mark.parametrize("fault", range(len(FAULTS)))
def test_the_part_that_became_slower_is_named(tmp_path: Path, format_name: str, fault: int) -> None:
    _, _, words = compared(tmp_path, format_name, fault)
    layer, module, direction = FAULTS[fault]
    found = brief(*words, code=1)
    (root,) = found["roots"]
    path = name_module(format_name, layer, module)
    assert root["scope"].startswith(f"{path}, {direction}")
    assert f"in {path}, {direction}" in found["headline"]


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_every_report_names_it(tmp_path: Path, form: str) -> None:
    _, _, words = compared(tmp_path, "jax", FAULTS.index((1, "attn", FAULTS[3][2])))
    said = run(*words, f"--format={form}", code=1).stdout
    assert "in step/Model/layers_1/attn" in said.replace("\\_", "_")
    assert ("launched in" in said) == (form == "html")  # the table of the kernels that changed
    assert "(model.py:11)" in said
    root = json.loads(run(*words, "--format=json", code=1).stdout)["story"]["roots"][0]
    assert root["scope"]["kind"] == "module"
    assert root["scope"]["source"] == "model.py:11"


def write_graph(path: Path, *extra: str) -> Path:
    """A step of a model with one module, and of kernels that a line of the user's launches there besides."""
    trace = KinetoBuilder()
    trace.range("ProfilerStep#1", 1_000, 90_000)
    trace.module("Model_0", 1_500, 80_000)
    trace.module("Attention_0", 2_000, 70_000)
    trace.event("python_function", "model/layers.py(212): forward", 2_500, 60_000, args={})
    trace.module("FeedForward_0", 71_000, 79_000)
    trace.kernel("gemm", 200_000, 260_000, launch_ns=72_000, launch_length_ns=100)
    for number, name in enumerate(("flash", *extra)):
        start = 100_000 + 20_000 * number
        trace.kernel(name, start, start + 15_000, launch_ns=3_000 + 1_000 * number, launch_length_ns=100)
    trace.write(path)
    return path


@pytest.mark.parametrize("swapped", [False, True])
def test_a_kernel_of_one_run_alone_says_where_it_is_or_was_launched(tmp_path: Path, swapped: bool) -> None:
    gate = tmp_path / "gate.nsys.yaml"
    gate.write_text(
        "version: 1\nconvention: kineto\nwindow: run\nassertions: [no new or vanished kernels]\n", encoding="utf-8"
    )
    traces = [write_graph(tmp_path / "base.json"), write_graph(tmp_path / "head.json", "debug_check")]
    (root,) = brief("compare", *(traces[::-1] if swapped else traces), f"--gate={gate}", code=1)["roots"]
    assert root["kind"] == ("gone" if swapped else "new")
    assert root["scope"] == "Model/Attention, forward (layers.py:212)"


@pytest.mark.parametrize("format_name", WRITERS)
@pytest.mark.parametrize("sentence", ["{direction} time of module {module}", "compute of module {module}"])
def test_a_part_of_the_program_that_is_red_says_which_kernels_made_it_so(
    tmp_path: Path, format_name: str, sentence: str
) -> None:
    _, _, words = compared(tmp_path, format_name, 3)
    layer, module, direction = FAULTS[3]
    path = name_module(format_name, layer, module)
    gate = Path(words[-1].partition("=")[2])
    told = sentence.format(direction=direction, module=path)
    gate.write_text(gate.read_text().replace("compute_ns", told), encoding="utf-8")
    report = json.loads(run(*words, "--format=json", code=1).stdout)
    (assertion,) = report["gate_files"][0]["assertions"]
    (why,), (row,) = assertion["causes"], assertion["rows"]
    assert why["change_ns"] == row["change"]["exact"] == sum(part["change_ns"] for part in why["parts"])
    assert why["unexplained_ns"] == 0
    (root,) = report["story"]["roots"]
    assert root["scope"]["path"] == path
    assert f"in {path}" in report["headline"]
    assert told in report["headline"] or "longer" in report["headline"]


def test_a_kernel_that_is_new_in_a_part_is_its_cause(tmp_path: Path) -> None:
    gate = tmp_path / "gate.nsys.yaml"
    gate.write_text(
        "version: 1\nconvention: kineto\nwindow: run\nassertions: [time of module Attention <= baseline + 1%]\n",
        encoding="utf-8",
    )
    base, head = write_graph(tmp_path / "base.json"), write_graph(tmp_path / "head.json", "debug_check")
    (root,) = brief("compare", base, head, f"--gate={gate}", code=1)["roots"]
    assert (root["kind"], root["name"], root["amount_ns"], root["scope"]) == ("new", "debug_check", 15_000, "Attention")
    assert "improved" in run("compare", head, base, f"--gate={gate}", code=0).stdout
