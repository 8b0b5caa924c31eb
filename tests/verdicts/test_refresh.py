"""Can a run be accepted as the new normal, seen to be, and only where that is right?"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.stored.baselines.baseline_file import Baseline
from pytest_nsys.stored.baselines.store import BaselineStore
from pytest_nsys.verdicts.refresh_modes import RefreshMode
from tests.support.gates import ACCEPTING, MS, Project
from tests.support.samples.builder import Process, TraceBuilder

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
"""
STRUCTURE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
  - no mixed comm streams
"""


@pytest.fixture
def gated(project: Project) -> Project:
    """A gate on a baseline, and a trace."""
    project.gated(GATE)
    return project


def ring(_: TraceBuilder, processes: list[Process]) -> None:
    """Communication of another purpose on the stream of the expert exchange: a mixed stream."""
    processes[0].range("layer00.stage1_f", 50 * MS, 51 * MS)
    processes[0].kernel("ncclDevKernel_SendRecv", 50 * MS, 51 * MS, stream=28, launch_ns=50 * MS)


def hidden_ring(trace: TraceBuilder, processes: list[Process]) -> None:
    """The same without time of its own that is exposed."""
    ring(trace, processes)
    processes[0].kernel("gemm", 50 * MS, 51 * MS)


def test_accepting_a_run(project: Project) -> None:
    project.gated(GATE, 200, name="before.sqlite")
    project.trace("after.sqlite", exposed_us={(1, "stage4_f"): 300})

    assert "no baseline is stored in baselines/gate" in project.pytest("--nsys-trace=before.sqlite", code=1)
    assert project.baselines() == {}

    said = project.refresh("--nsys-trace=before.sqlite")
    ((name, _),) = project.baselines().items()
    assert f"baseline baselines/{name}: new file, 4 rows\n  exposed_ns rank 0 stage2_f: new → 200 us\n" in said

    project.pytest("--nsys-trace=before.sqlite", code=0)
    assert "failed: 1 of 4 rows above" in project.pytest("--nsys-trace=after.sqlite", code=1)

    said = project.refresh("--nsys-trace=after.sqlite", "--nsys-reason=a slower link")
    assert f"baseline baselines/{name}: 1 row changed\n  exposed_ns rank 1 stage4_f: 200 us → 300 us (+50%)\n" in said
    assert "nsys: baselines are updated: a slower link" in said
    assert json.loads(project.baselines()[name])["provenance"]["reason"] == "a slower link"

    project.pytest("--nsys-trace=after.sqlite", code=0)
    assert "1 of 4 rows are better than the baseline" in project.pytest("--nsys-trace=before.sqlite", code=0)


def test_the_command_of_a_red_makes_it_green(project: Project) -> None:
    """Typed as it is printed, from where pytest was started."""
    project.gate(GATE, "perf/gate.nsys.yaml")
    project.trace("runs/run.sqlite")
    said = project.pytest("--nsys-trace=runs/run.sqlite", code=1)
    printed = re.search(r'pytest-nsys (baseline refresh .*) --reason "…"', said)
    assert printed is not None
    project.command(*printed[1].split(), "--reason=accepted", code=0)
    project.pytest("--nsys-trace=runs/run.sqlite", code=0)


def test_another_key_gets_a_file_of_its_own(project: Project) -> None:
    project.gated(GATE, name="h100.sqlite")
    project.trace("b200.sqlite", gpu="NVIDIA B200", exposed_us=100)
    project.refresh("--nsys-trace=h100.sqlite")
    first = project.baselines()
    assert ": new file, 4 rows" in project.refresh("--nsys-trace=b200.sqlite")
    both = project.baselines()
    assert len(both) == 2
    assert both.items() > first.items()
    for trace in ("h100.sqlite", "b200.sqlite"):
        project.pytest(f"--nsys-trace={trace}", code=0)


def test_rows_measured_another_way_replace_the_old(gated: Project) -> None:
    gated.refresh("--nsys-trace=run.sqlite")
    gated.gate("window: first" + GATE)
    said = gated.refresh("--nsys-trace=run.sqlite")
    assert "exposed_ns rank 0 stage2_f: new → 200 us" in said
    assert "exposed_ns rank 0 stage2_f: 200 us → gone" in said
    (text,) = gated.baselines().values()
    assert [series["window"] for series in json.loads(text)["series"]] == ["first"]


def test_what_is_not_selected_keeps_its_rows(project: Project) -> None:
    project.gate(
        """
        assertions:
          - {id: exposed, assert: exposed_ns <= baseline + 50us}
          - {id: share, assert: overlap >= baseline - 1pp}
        """
    )
    project.trace(exposed_us=200)
    project.refresh("--nsys-trace=run.sqlite")
    project.trace(exposed_us=500)
    project.refresh("--nsys-trace=run.sqlite", "-k", "exposed")
    (text,) = project.baselines().values()
    ns, ratio = json.loads(text)["series"]
    assert {row[2][0] for row in ns["rows"]} == {500_000}
    assert {row[2][0] for row in ratio["rows"]} == {"4/5"}


def test_an_assertion_without_a_baseline_is_judged_as_ever(project: Project) -> None:
    project.gated(GATE + "  - overlap >= 90%")
    cases = project.cases(
        "--nsys-trace=run.sqlite", "--nsys-update-baselines", "--nsys-reason=accepted in spite", code=1
    )
    assert {name: case.state for name, case in cases.items()} == {"exposed_ns below": "passed", "overlap >=": "failure"}
    assert len(project.baselines()) == 1


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("- overlap >= 60%", "no baseline was written: no assertion with a baseline was measured"),
        ("- {assert: exposed_ns <= baseline + 5%, xfail: known}", "new file, 4 rows"),  # and passes, though xfail
    ],
)
def test_what_is_written_is_said(project: Project, gate: str, said: str) -> None:
    project.gated(gate)
    assert said in project.refresh("--nsys-trace=run.sqlite")


def test_a_reason_that_is_no_text(gated: Project) -> None:
    said = gated.refresh("--nsys-trace=run.sqlite", "--nsys-reason=bad \udcff", code=4)
    assert "--nsys-reason is not UTF-8 text" in said
    words = ["baseline", "refresh", "gate.nsys.yaml", "--trace=run.sqlite"]
    assert "--nsys-reason is not UTF-8 text" in gated.command(*words, "--reason=bad \udcff", code=2)
    assert gated.files() == {"gate.nsys.yaml", "run.sqlite"}


def test_a_baseline_that_is_no_text_is_an_error_of_one_line(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path / "gate", "gate \udcff.nsys.yaml")
    with pytest.raises(BaselineError, match=r"k\.json: cannot be written: .*; nothing was changed"):
        store.save(store.folder / "k.json", Baseline({}, store.gate))
    assert not store.folder.exists()


@pytest.mark.parametrize("reason", [(), ("--nsys-reason=",), ("--nsys-reason=  ",)])
def test_refused_without_a_reason(gated: Project, reason: tuple[str, ...]) -> None:
    said = gated.pytest("--nsys-trace=run.sqlite", "--nsys-update-baselines", *reason, code=4)
    assert "--nsys-update-baselines needs a reason" in said
    assert gated.baselines() == {}


@pytest.mark.parametrize("workers", [("-n", "2"), ("--dist=load", "--tx=popen"), ("-n2",)])
def test_refused_under_xdist(gated: Project, workers: tuple[str, ...]) -> None:
    gated.result = gated.pytester.runpytest_subprocess(
        "--nsys-trace=run.sqlite", "--nsys-update-baselines", "--nsys-reason=r", *workers
    )
    assert gated.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "writes from one process: run it without -n (or with -n 0)" in gated.result.stderr.str()
    assert gated.baselines() == {}


def test_no_workers_are_no_xdist(gated: Project) -> None:
    gated.pytest_in_a_process(*ACCEPTING, "--nsys-trace=run.sqlite", "-n", "0", code=0)
    assert len(gated.baselines()) == 1


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an assertion in error": (
        "quality: {anchors: 100}\nassertions:\n  - anchors == baseline\n  - overlap >= 60%",
        {},
        "'overlap >= 60%' is in error: ",
    ),
    "a structure that fails": (
        STRUCTURE,
        {"edit": hidden_ring},
        "the structural assertion 'no mixed comm streams' fails",
    ),
}


@pytest.mark.parametrize(("case", "before"), [*((case, False) for case in REFUSED), ("a structure that fails", True)])
def test_refused(project: Project, case: str, before: bool) -> None:
    """And what was accepted before stays."""
    gate, trace, why = REFUSED[case]
    if before:
        project.accepted(GATE)
    kept = project.baselines()
    project.gated(gate, 500, **trace)
    said = project.refresh("--nsys-trace=run.sqlite", "-v", code=1)
    assert f"baseline of gate.nsys.yaml not written: refused: {why}" in said
    word = "anchors" if "anchors" in gate else "exposed_ns"
    assert word in said
    assert f"refused: {why}" in project.refresh("--nsys-trace=run.sqlite", "-k", word, code=1)  # the others deselected
    assert project.baselines() == kept


def test_a_refused_gate_file_does_not_hold_up_another(project: Project) -> None:
    project.gate(GATE, "good.nsys.yaml")
    project.gate(GATE + "  - comm_streams == 9", "bad.nsys.yaml")
    project.trace()
    project.refresh("--nsys-trace=run.sqlite", code=1)
    assert [name.split("/")[0] for name in project.baselines()] == ["good"]


NO_STAGE5 = "no row has stage stage5; stages with a row: stage2_f, stage4_f"
WITHOUT_DATA = {
    "a constant": ("stage5 overlap >= 60%", NO_STAGE5),
    "a baseline": ("stage5 overlap >= baseline - 1pp", NO_STAGE5),
    "a window that is not there": ("{assert: overlap >= baseline - 1pp, window: '99'}", "there is no anchor 99"),
}


@pytest.mark.parametrize("case", WITHOUT_DATA)
@pytest.mark.parametrize("selected", [(), ("-k", "exposed_ns")])
def test_what_has_no_data_does_not_hold_up_the_others(project: Project, case: str, selected: tuple[str, ...]) -> None:
    """It is left out with its reason, and is told though nobody selected it."""
    sentence, why = WITHOUT_DATA[case]
    project.gated(f"{GATE}  - {sentence}")
    said = project.refresh("--nsys-trace=run.sqlite", *selected, code=0 if selected else 1)
    assert ": new file, 4 rows" in said
    (line,) = (line for line in said.splitlines() if line.startswith("still red: "))
    assert "gate.nsys.yaml:5 " in line
    assert why in line
    (text,) = project.baselines().values()
    assert [series["metric"] for series in json.loads(text)["series"]] == ["exposed_ns"]
    assert project.judged()["exposed_ns below baseline plus tolerance"].state == "passed"


def stored_rows(project: Project) -> dict[tuple[str, str], int]:
    """The accepted value of rank 0 by metric and stage."""
    (text,) = project.baselines().values()
    series = json.loads(text)["series"]
    return {(one["metric"], row[1]): row[-1][-1] for one in series for row in one["rows"] if row[0] == 0}


@pytest.mark.parametrize("rows", [RefreshMode.MOVED, RefreshMode.ALL])
def test_what_is_stored_of_an_assertion_without_data_stays(project: Project, rows: RefreshMode) -> None:
    """Be it a series of its own, or one that another assertion reads."""
    project.accepted(
        """
        tolerance: {rel: 5%, abs: 50us}
        assertions:
          - stage2 exposed_ns below baseline plus tolerance
          - stage4 exposed_ns below baseline plus tolerance
          - stage4 comm_ns below baseline plus tolerance
        """
    )
    before = stored_rows(project)
    project.trace(exposed_us=500, stages=("stage2_f",))
    said = project.refresh("--nsys-trace=run.sqlite", mode=rows, code=1)
    assert stored_rows(project) == {**before, ("exposed_ns", "stage2_f"): 500 * 1_000}
    assert (
        "exposed_ns: 2 stored rows of 'stage4 exposed_ns below baseline plus tolerance' kept, without data now" in said
    )
    assert "though not all rows are of it" in said
    left = [line for line in said.splitlines() if line.startswith("still red: ")]
    assert [line.split()[2] for line in left] == ["gate.nsys.yaml:5", "gate.nsys.yaml:6"]
    assert all(line.endswith("; what is stored of it stays") for line in left)
    assert [case.properties["nsys_outcome"] for case in project.judged().values()] == ["passed", "no data", "no data"]


def test_a_run_of_other_circumstances_is_not_mixed_with_what_stays(project: Project) -> None:
    sentences = "  - stage4 overlap >= baseline - 1pp\n"
    project.accepted(GATE + sentences)
    kept = project.baselines()
    project.trace(exposed_us=500, stages=("stage2_f",), profiler="2025.6.1")
    said = project.refresh("--nsys-trace=run.sqlite", code=1)
    assert project.baselines() == kept
    told = " ".join(said.split())
    assert "holds another run (profiler: now 2025, baseline 2026)" in told
    assert "the rows of 'stage4 overlap >= baseline - 1pp' stay, as it has no data now" in told


@pytest.mark.parametrize(
    ("arguments", "body", "code"), [((), "import pytest; pytest.exit('enough')", 2), (("-x",), "assert False", 1)]
)
def test_a_session_cut_short_writes_nothing(project: Project, arguments: tuple[str, ...], body: str, code: int) -> None:
    project.gate(GATE, "a.nsys.yaml")
    project.file("test_b.py", f"def test_b():\n    {body}\n")
    project.gate(GATE, "z.nsys.yaml")
    project.trace()
    said = project.refresh("--nsys-trace=run.sqlite", "a.nsys.yaml", "test_b.py", "z.nsys.yaml", *arguments, code=code)
    assert "no baseline was written: the session was cut short" in said
    assert project.baselines() == {}


def test_a_trace_that_cannot_be_read_is_not_accepted(project: Project) -> None:
    project.gate(GATE)
    project.file("run.sqlite", "not a database")
    assert "is not a SQLite file" in project.refresh("--nsys-trace=run.sqlite", code=1)
    assert project.baselines() == {}


def test_the_command(project: Project) -> None:
    """Also where the project asks for workers."""
    project.file("pytest.ini", "[pytest]\naddopts = -n 2\n")
    project.file("perf/test_other.py", "def test_other():\n    assert False\n")
    project.gate(GATE, "perf/gate.nsys.yaml")
    project.trace()
    said = project.command("baseline", "refresh", "perf", "--trace=run.sqlite", "--reason=the first", code=0)
    assert "new file, 4 rows" in said
    assert "exposed_ns rank 0 stage2_f: new → 200 us" in said
    (path,) = (project.root / "baselines").rglob("*.json")

    said = project.command("baseline", "show", code=0)
    assert "exposed_ns" in said
    assert "rank 1 stage stage4_f" in said
    assert "gpu NVIDIA H100 80GB HBM3; the first" in said
    assert "200000" in project.command("baseline", "show", path, "--format=json", code=0)
    for where in ("perf", "perf/gate.nsys.yaml"):  # as a refresh takes them
        assert project.command("baseline", "show", where, code=0) == said


def test_the_command_writes_where_it_is_told(project: Project) -> None:
    project.gated(GATE, 100, name="a.sqlite")
    project.trace("b.sqlite", exposed_us=300)
    captures = ("--trace=a.sqlite", "--trace=b.sqlite")
    project.command(
        "baseline", "refresh", "gate.nsys.yaml", *captures, "--baseline-dir=stored", "--reason=medians", code=0
    )
    (text,) = project.baselines("stored").values()
    assert ' [0, "stage2_f", [200000]],' in text
    assert json.loads(text)["provenance"]["captures"] == 2


MISTAKES = {
    "no reason": (("gate.nsys.yaml", "--trace=run.sqlite"), 2, "Missing option '--reason'"),
    "an empty reason": (("gate.nsys.yaml", "--trace=run.sqlite", "--reason="), 2, "--reason says nothing: say why"),
    "no gate file": (("--trace=run.sqlite", "--reason=r"), 2, "Missing argument"),
    "no such gate file": (("x.nsys.yaml", "--trace=run.sqlite", "--reason=r"), 2, "not found"),
    "a broken trace": (("gate.nsys.yaml", "--trace=broken.sqlite", "--reason=r"), 2, "is not a SQLite file"),
    "no data": (("absent.nsys.yaml", "--trace=run.sqlite", "--reason=r"), 3, "no row has stage stage9"),
    "a red constant": (("red.nsys.yaml", "--trace=run.sqlite", "--reason=r"), 1, "4 of 4 rows below"),
    "no such trace": (("gate.nsys.yaml", "--trace=x.sqlite", "--reason=r"), 2, "there is no such file"),
    "a mistake in the gate file": (("bad.nsys.yaml", "--trace=run.sqlite", "--reason=r"), 2, "unknown metric"),
    "refused": (("refused.nsys.yaml", "--trace=run.sqlite", "--reason=r"), 1, "refused: the structural"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_the_command_and_its_mistakes(project: Project, case: str) -> None:
    arguments, code, said = MISTAKES[case]
    project.gated(GATE)
    project.gate("- overlp >= 60%", "bad.nsys.yaml")
    project.gate(GATE + "  - comm_streams == 9", "refused.nsys.yaml")
    project.gate(GATE + "  - stage9 overlap >= 1%", "absent.nsys.yaml")
    project.gate("- overlap >= 99.9%", "red.nsys.yaml")
    project.file("broken.sqlite", "no database")
    assert said in project.command("baseline", "refresh", *arguments, code=code)
    assert bool(project.baselines()) == (case == "no data")  # of the others of the file


def test_showing_what_is_not_there(project: Project) -> None:
    assert "there is no such folder" in project.command("baseline", "show", code=2)
    Path(project.root, "baselines").mkdir()
    assert "holds no baseline" in project.command("baseline", "show", code=2)
    project.file("gates/nsys-gate-file.schema.json", "{}")
    project.gate(GATE, "gates/a.nsys.yaml")
    for path in ("gates", "gates/a.nsys.yaml"):
        said = project.command("baseline", "show", path, code=2)
        assert f"error: {path}: holds no baseline (*.json): give the folder of the baselines" in said
    project.file("baselines/gate/a.json", "{")
    assert "is not a baseline: line 1" in project.command("baseline", "show", code=2)


def test_the_ten_rows_that_changed_most_are_shown_on_the_terminal(project: Project) -> None:
    project.gated(GATE + "  - window_ns below baseline plus tolerance\n", ranks=16)
    said = project.refresh("--nsys-trace=run.sqlite", "--nsys-json=report.json")
    assert said.count(": new → ") == 10
    assert "  … and 38 more rows (pytest-nsys baseline show baselines/gate lists them)\n" in said
    lines = json.loads((project.root / "report.json").read_text(encoding="utf-8"))["refreshed"]
    assert sum(": new → " in line for line in lines) == 48

    project.trace("worse.sqlite", {(rank, "stage4_f"): 300 + 10 * rank for rank in range(16)}, ranks=16)
    said = project.refresh("--nsys-trace=worse.sqlite")
    told = [line for line in said.splitlines() if line.startswith("  exposed_ns rank")]
    assert [line.split()[2] for line in told] == [str(rank) for rank in range(15, 5, -1)]
    assert told[0] == "  exposed_ns rank 15 stage4_f: 200 us → 450 us (+125%)"
    shows = "pytest-nsys baseline show baselines/gate"  # outside of git nothing else does
    assert f"  … and 6 more rows ({shows} lists them)\n" in said
    said = project.refresh("--nsys-trace=run.sqlite", "-v")
    assert said.count(" → 200 us (−") == 16
    assert "more rows" not in said


def test_how_many_rows_were_kept_stands_last(project: Project) -> None:
    project.accepted(GATE)
    project.trace("worse.sqlite", {(0, "stage4_f"): 300, (1, "stage2_f"): 201})
    said = project.refresh("--nsys-trace=worse.sqlite")
    *_, last = said.partition("baseline baselines/")[2].partition("\n=")[0].strip().splitlines()
    assert last == "  1 row within the tolerance kept: --all writes them"


def test_windows_that_are_not_of_all_rows_say_so(project: Project) -> None:
    whole = "holds the windows of this run ("
    assert "though not all rows" not in project.accepted(f"{GATE}  - overlap >= baseline - 1pp\n")
    project.trace(exposed_us=300)
    said = project.refresh("--nsys-trace=run.sqlite", "-k", "exposed")
    assert whole in said
    assert " kB), though not all rows are of it\n" in said


def test_a_refusal_is_told_once(project: Project) -> None:
    many = "".join(f"  - rank {rank} exposed_ns below baseline plus tolerance\n" for rank in (0, 1))
    project.gated(STRUCTURE + many, edit=ring)
    said = project.refresh("--nsys-trace=run.sqlite", code=1)
    told = " ".join(said.partition("= nsys gate =")[2].partition("baseline of ")[0].split())
    assert told.count("refused: the structural assertion 'no mixed comm streams' fails") == 1
    assert "3 assertions of gate.nsys.yaml: " in told


def test_what_stores_a_new_sentence_accepts_nothing_else(project: Project) -> None:
    """The run that is judged may be a branch's: its other rows are not to become the baseline."""
    project.accepted("- exposed_ns below baseline plus 5%", 200)
    project.gate("- exposed_ns below baseline plus 5%\n- idle_ns below baseline plus 5%\n")
    project.trace(exposed_us=300)
    said = " ".join(project.pytest("--nsys-trace=run.sqlite", code=1).replace("\\\n", " ").split())
    command = re.search(
        r"next: (pytest-nsys baseline refresh [^…]*)…\" # store its rows alone, better from a run of main", said
    )
    assert command is not None, said
    _, *words = shlex.split(f'{command[1]}new"')
    (windows,) = project.root.glob("baselines/gate/*.window.gz")
    before = windows.read_bytes()
    assert "idle_ns rank 0: new →" in project.command(*words, code=0)
    assert windows.read_bytes() == before  # they explain the rows that were there
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert "gemm 12% shorter" in said
    assert "1 failed, 1 passed" in said
    assert "exposed_ns below baseline plus 5%: 300 us > 210 us" in said
