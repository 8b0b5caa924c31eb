"""Is everything that was judged in the JSON, in the shape of the schema, whatever the session came to?"""

import json
import os
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_nsys import reports
from pytest_nsys.analysis.explain.breakdown_model import ChangeKind, RowActivity
from pytest_nsys.analysis.metrics.structure import ContentKind
from pytest_nsys.core.errors import Mistake
from pytest_nsys.gates.model import Comparator, Outcome, Severity
from pytest_nsys.merge_base.differences import FileKind
from pytest_nsys.reports.session.json_report import FORMAT, build_report, render_report
from pytest_nsys.reports.session.session import NOTHING_JUDGED, STATES
from pytest_nsys.tools.files import write_atomically
from pytest_nsys.verdicts.comparison import Result
from pytest_nsys.verdicts.refresh_modes import RefreshMode
from tests.support.gates import Project
from tests.support.reports import SCHEMA, base_verdict, by_name, checked, make_session, record, report_of

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - overlap >= 60%
  - exposed_ns below baseline plus tolerance
  - {id: both, assert: "max exposed_ns == baseline"}
"""


def accepted(project: Project, gate: str = GATE, **trace: Any) -> None:
    project.accepted(gate, name="base.sqlite", **trace)


def test_the_schema_knows_the_format_and_every_word() -> None:
    assert SCHEMA["properties"]["format"]["enum"] == [FORMAT]
    assert SCHEMA["properties"]["verdict"]["enum"] == [*Outcome, NOTHING_JUDGED]
    parts = SCHEMA["$defs"]
    assert [*parts["Counts"]["properties"]] == parts["Assertion"]["properties"]["state"]["enum"] == [*STATES]
    assert parts["Assertion"]["properties"]["comparator"]["enum"] == ["", *Comparator]
    for words in (ChangeKind, ContentKind, FileKind, Outcome, Result, Severity, RowActivity):
        assert parts[words.__name__]["enum"] == sorted(words)


@pytest.mark.parametrize("name", ["session/report", "screens/check", "tables/brief"])
def test_a_schema_forbids_what_it_does_not_describe(name: str) -> None:
    schema = json.loads(Path(reports.__file__).parent.joinpath(f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in (schema, *schema["$defs"].values()):
        assert "properties" not in part or part["additionalProperties"] is False


def test_a_green_run(project: Project) -> None:
    accepted(project)
    found = report_of(project, "--nsys-trace=base.sqlite", code=0)
    assert (found["verdict"], found["good"], found["exit_status"]) == ("passed", True, 0)
    assert found["headline"].startswith("All 3 assertions passed; least headroom 33% of limit: overlap")
    assert found["story"]["roots"] == found["story"]["steps"] == []
    assert found["counts"]["passed"] == 3
    (file,) = found["gate_files"]
    assert (file["file"], file["traces"]) == ("gate.nsys.yaml", ["base.sqlite"])
    assert file["run"].startswith("base.sqlite (2 ranks, pp=2")
    assert (file["key"]["world"], file["key"]["mesh"]["pp"]) == (2, 2)
    (windows,) = file["windows"]
    assert windows["measured_as"] == "window median, kernels contained"
    assert [(w["rank"], w["capture"], w["index"], w["count"]) for w in windows["windows"]] == [
        (0, 1, 2, 5),
        (1, 1, 2, 5),
    ]
    assert windows["windows"][0]["end_ns"] - windows["windows"][0]["start_ns"] == 15_000_000
    for assertion in file["assertions"]:
        assert (assertion["explanation"], assertion["next_steps"]) == ("", [])
        assert assertion["measured_as"] == windows["measured_as"]


def test_every_row_is_exact_and_readable(project: Project) -> None:
    accepted(project)
    project.trace(exposed_us={(1, "stage4_f"): 401})
    found = by_name(report_of(project, "--nsys-trace=run.sqlite", code=1))
    red = found["exposed_ns below baseline plus tolerance"]
    assert (red["outcome"], red["state"], red["good"], red["unit"], red["comparator"]) == (
        *("failed", "failed", False),
        *("ns", "<="),
    )
    assert len(red["rows"]) == 4
    worst = red["rows"][0]
    assert worst["labels"] == {"rank": 1, "stage": "stage4_f"}
    assert {name: worst[name]["exact"] for name in ("value", "baseline", "limit", "change", "margin", "sees")} == {
        "value": 401_000,
        "baseline": 200_000,
        "limit": 250_000,
        "change": 201_000,
        "margin": -151_000,
        "sees": 50_000,
    }
    assert (worst["change"]["text"], worst["limit"]["text"], worst["noise"]) == ("+100.5%", "250 us", None)
    assert worst["limit_source"] == "baseline + max(5%, 50us)"
    assert [row["outcome"] for row in red["rows"]] == ["failed", "passed", "passed", "passed"]
    assert red["worst"]["sees"] == "50 us (noise not measured)"
    assert red["explanation"].splitlines()[1].startswith("gate.nsys.yaml:5: exposed_ns below")
    assert any(step.startswith("pytest-nsys baseline refresh") for step in red["next_steps"])
    ratio = found["overlap >= 60%"]["rows"][0]
    assert ratio["value"] == {"exact": "599/1000", "text": "59.9%"}
    assert (ratio["margin"]["text"], ratio["baseline"], ratio["sees"]) == ("−0.1 pp", None, None)
    assert found["both"]["worst"]["sees"] == "any change"


def test_every_way_to_end(project: Project) -> None:
    project.gated(
        """
        - {id: red, assert: overlap >= 99%}
        - {id: warned, assert: overlap >= 99%, severity: warn}
        - {id: early, assert: overlap >= 60%, warn: '>= 90%'}
        - {id: expected, assert: overlap >= 99%, xfail: known}
        - {id: surprise, assert: overlap >= 1%, xfail: known}
        - {id: absent, assert: stage5 overlap >= 60%}
        - {id: broken, assert: overlap >= 60%, window: last, span: period}
        """
    )
    found = report_of(project, "--nsys-trace=run.sqlite", code=1)
    ends = {name: (a["outcome"], a["state"], a["good"]) for name, a in by_name(found).items()}
    assert ends == {
        "red": ("failed", "failed", False),
        "warned": ("failed", "warned", True),
        "early": ("passed", "warned", True),
        "expected": ("failed", "xfailed", True),
        "surprise": ("passed", "failed", False),
        "absent": ("no data", "no data", False),
        "broken": ("error", "error", False),
    }
    assert "XPASS(strict)" in by_name(found)["surprise"]["message"]
    assert by_name(found)["broken"]["rows"] == []
    assert (found["verdict"], found["good"]) == ("error", False)
    counted = "1 more assertion not judged; 1 more assertion without data"
    assert found["headline"] == f"Overlap 80% < 99%, rank 0 stage2_f; and 1 more red; {counted}"


def test_what_makes_runs_incomparable(project: Project) -> None:
    accepted(project)
    project.trace(gpu="NVIDIA B200")
    found = report_of(project, "--nsys-trace=run.sqlite", "-k", "below", code=1)
    (assertion,) = by_name(found).values()
    assert found["verdict"] == assertion["outcome"] == "incomparable"
    assert assertion["differences"] == [{"name": "gpu", "now": "NVIDIA B200", "baseline": "NVIDIA H100 80GB HBM3"}]
    project.result.stdout.fnmatch_lines(["  differs  now          baseline", "  gpu      NVIDIA B200  NVIDIA H100*"])


def test_a_change_within_the_noise(project: Project) -> None:
    """What the gate cannot tell is neither green nor red, and the summary says what it could have seen."""
    project.gate("tolerance: {rel: 10%}\nassertions:\n  - max exposed_ns below baseline plus tolerance")
    quiet = [f"--nsys-trace={project.trace(f'{n}.sqlite', exposed_us=192 + 4 * n).name}" for n in range(5)]
    project.refresh(quiet[2])
    project.refresh(*quiet, mode=RefreshMode.CALIBRATE)
    project.trace(exposed_us=230)
    found = report_of(project, "--nsys-trace=run.sqlite", "-v", code=0)
    ((name, assertion),) = by_name(found).items()
    assert (found["verdict"], assertion["state"], assertion["good"]) == ("inconclusive", "inconclusive", True)
    (row,) = assertion["rows"]
    assert row["sees"] == row["noise"]
    assert row["limit_source"] == "baseline + measured noise"
    assert assertion["worst"]["sees"] == row["sees"]["text"]
    project.result.stdout.fnmatch_lines([f"  inconclusive  {name[:30]}*  230 us  <= * us*"])


def test_a_trace_that_cannot_be_read(project: Project) -> None:
    project.gate("- overlap >= 60%")
    project.file("run.sqlite", "not a database")
    found = report_of(project, "--nsys-trace=run.sqlite", code=1)
    (file,) = found["gate_files"]
    assert (found["verdict"], file["key"], file["traces"], file["windows"]) == ("error", None, ["run.sqlite"], [])
    assert "is not a SQLite file" in file["assertions"][0]["message"]


def test_a_mistake_in_a_gate_file(project: Project) -> None:
    project.gate("- overlp >= 60%\n- overlap >= 60ms")
    found = report_of(project, code=2)
    assert (found["verdict"], found["good"], found["gate_files"]) == ("error", False, [])
    assert [(m["file"], m["line"], m["column"]) for m in found["mistakes"]] == [
        ("gate.nsys.yaml", 3, 3),
        ("gate.nsys.yaml", 4, 14),
    ]
    assert found["mistakes"][0]["text"] == "unknown metric 'overlp' (did you mean 'overlap'?)"


def test_a_mistake_beside_a_good_gate_file(project: Project) -> None:
    project.gate("- overlp >= 60%", "bad.nsys.yaml")
    project.gate("- overlap >= 60%", "good.nsys.yaml")
    project.trace()
    found = report_of(project, "--nsys-trace=run.sqlite", "--continue-on-collection-errors", code=1)
    assert (found["verdict"], len(found["mistakes"]), found["counts"]["passed"]) == ("error", 1, 1)


def test_a_test_file_that_cannot_be_imported(project: Project) -> None:
    project.gate("- overlap >= 60%")
    project.file("test_it.py", "raise ValueError('no GPU here')")
    found = report_of(project, code=2)
    assert [m["file"] for m in found["mistakes"]] == ["test_it.py"]
    assert "no GPU here" in found["mistakes"][0]["text"]


def test_nothing_judged(project: Project) -> None:
    found = report_of(project, code=5)
    assert (found["verdict"], found["good"]) == ("nothing judged", False)
    assert found["headline"] == "pytest ended with exit status 5 (no tests)"


def test_a_session_that_broke_off(project: Project) -> None:
    project.gated("- {id: a, assert: overlap >= 60%}\n- {id: b, assert: overlap >= 60%}")
    project.file(
        "conftest.py", "import pytest\ndef pytest_runtest_setup(item):\n    if item.name == 'b': pytest.exit('enough')"
    )
    found = report_of(project, "--nsys-trace=run.sqlite", code=2)
    assert (found["verdict"], found["good"], found["counts"]["passed"]) == ("error", False, 1)
    assert "exit status 2" in found["headline"]


def test_a_gate_item_that_broke_outside_of_its_verdict(project: Project) -> None:
    project.gated("- overlap >= 60%")
    project.file("conftest.py", "def pytest_runtest_setup(item): raise OSError('the disk is gone')")
    found = report_of(project, "--nsys-trace=run.sqlite", code=1)
    assert (found["verdict"], found["good"]) == ("error", False)
    assert "the disk is gone" in found["mistakes"][0]["text"]


CRASH = """
    import os

    def pytest_runtest_teardown(item):
        if hasattr(item.config, "workerinput"):
            os._exit(1)
"""


def test_a_worker_that_crashed(project: Project) -> None:
    """After its verdict: every assertion passed, and the session did not."""
    project.gated("- overlap >= 60%")
    project.file("conftest.py", CRASH)
    arguments = ("--nsys-trace=run.sqlite", "-n1", "--max-worker-restart=0", "--nsys-json=report.json")
    project.pytest_in_a_process(*arguments, code=1)
    found = checked(project.root / "report.json")
    assert (found["verdict"], found["good"]) == ("error", False)


@pytest.mark.parametrize("status", range(6))
@pytest.mark.parametrize("outcome", ["passed", "improved", "inconclusive"])
def test_never_a_word_of_success_where_it_is_not_good(outcome: str, status: int) -> None:
    found = make_session(record("a", outcome, good=True), exit_status=status)
    assert found.good == (status == 0)
    assert found.verdict == (outcome if found.good else "error")


@pytest.mark.parametrize("outcome", ["failed", "no data", "incomparable", "error"])
def test_a_plugin_cannot_turn_a_bad_verdict_into_a_pass(project: Project, outcome: str) -> None:
    found = make_session(record("a", outcome, good=True))
    assert (found.verdict, found.good) == (outcome, False)
    if outcome == "failed":
        green = """
            import pytest

            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_makereport():
                report = yield
                report.outcome = "passed"
                return report
        """
        project.file("conftest.py", green)
        project.gated("- overlap >= 99%")
        said = report_of(project, "--nsys-trace=run.sqlite", code=0)
        assert (said["verdict"], said["good"]) == ("failed", False)


def test_a_refresh(project: Project) -> None:
    project.gated(GATE)
    found = report_of(
        project, "--nsys-trace=run.sqlite", "--nsys-update-baselines", "--nsys-reason=first", "-k", "below", code=0
    )
    assert found["gate_files"] == []
    assert "new file, 4 rows" in found["refreshed"][0]


def test_several_captures_and_files_come_in_order_and_alike_each_time(project: Project) -> None:
    project.gate("- overlap >= 60%", "b.nsys.yaml")
    project.gate("- overlap >= 60%\n- no mixed comm streams", "a.nsys.yaml")
    project.trace("1.sqlite", exposed_us=100)
    project.trace("2.sqlite", exposed_us=201)
    arguments = ("--nsys-trace=1.sqlite", "--nsys-trace=2.sqlite")
    found = report_of(project, *arguments, code=0)
    assert [file["file"] for file in found["gate_files"]] == ["a.nsys.yaml", "b.nsys.yaml"]
    assert found["gate_files"][0]["traces"] == ["1.sqlite", "2.sqlite"]
    assert {w["capture"] for w in found["gate_files"][0]["windows"][0]["windows"]} == {1, 2}
    first = (project.root / "report.json").read_bytes()
    report_of(project, *arguments, code=0)
    assert (project.root / "report.json").read_bytes() == first
    project.pytest_in_a_process(*arguments, "-n", "2", "--nsys-json=parallel.json", code=0)
    assert (project.root / "parallel.json").read_bytes() == first


def test_mistakes_under_xdist(project: Project) -> None:
    project.gate("- overlp >= 60%")
    project.pytest_in_a_process("-n", "2", "--nsys-json=report.json", code=1)
    found = checked(project.root / "report.json")
    assert (found["verdict"], len(found["mistakes"])) == ("error", 1)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    write_atomically(path, b"old")
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    write_atomically(link, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode), link.is_symlink()) == (b"new", 0o640, True)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"newer")
    assert path.read_bytes() == b"new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "report.json"]


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    write_atomically(Path(os.devnull), b"gone")
    assert not Path(os.devnull).is_file()
    assert list(tmp_path.iterdir()) == []


def test_names_from_a_trace_are_plain_text(project: Project) -> None:
    project.gated("- overlap >= 99%", stages=("stage2\x1b[31m_f", "stage4_é"))
    project.pytest("--nsys-trace=run.sqlite", "--nsys-json=report.json")
    text = (project.root / "report.json").read_bytes()
    assert text.isascii()
    assert b"\x1b" not in text
    assert b"\\u001b" not in text


def test_the_verdict_is_the_worst_one() -> None:
    def verdict(*outcomes: str, **more: Any) -> str:
        return make_session(*(record(str(n), outcome) for n, outcome in enumerate(outcomes)), **more).verdict

    assert verdict("passed", "failed", "no data") == "no data"
    assert verdict("failed", "incomparable", "no data") == "incomparable"
    assert verdict("error", "incomparable") == "error"
    assert verdict("passed", "improved") == "improved"
    assert verdict("passed", "passed") == "passed"
    assert verdict("passed", mistakes=(Mistake("a", "wrong"),)) == "error"
    assert verdict("passed", exit_status=3) == "error"
    assert verdict() == "nothing judged"
    both = record("a", "inconclusive", good=True), record("b", "improved", good=True)
    assert make_session(*both).verdict == "inconclusive"
    assert make_session(record("a", "failed", good=True, severity="warn")).verdict == "passed"


def test_what_the_merge_base_says_is_told() -> None:
    found = build_report(make_session(record(), merge_base=base_verdict(red=True)))
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert (found["verdict"], found["good"]) == ("failed", False)
    told = found["merge_base"]
    assert (told["good"], told["headline"], told["new"]) == (False, "3 rows", ["3 rows"])
    assert told["differences"] == [
        {"file": "3 rows", "kind": "gate file", "state": "changed", "added": 1, "removed": 2}
    ]
    assert render_report(make_session(record())).endswith("}\n")
