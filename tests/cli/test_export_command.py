"""Does ``pytest-nsys export`` put the export where it is looked for, and spoil none that is there?"""

import os

import pytest

from tests.support.fake_nsys import CUT, VERSION, FakeNsys, fake_on_path, write_report
from tests.support.gates import Project, write_trace


@pytest.fixture
def nsys(project: Project, monkeypatch: pytest.MonkeyPatch) -> FakeNsys:
    fake = fake_on_path(project.root / "bin", monkeypatch)
    fake.tell(content=write_trace(project.root / "bin" / "good.sqlite"))
    return fake


def test_beside_the_report(project: Project, nsys: FakeNsys) -> None:
    write_report(project.root / "run.nsys-rep")
    assert f"wrote run.sqlite (0.1 MB) with nsys {VERSION}\n" in project.command("export", "run.nsys-rep", code=0)
    assert (project.root / "run.sqlite").read_bytes() == (nsys.folder / "good.sqlite").read_bytes()
    said = project.command("export", "run.nsys-rep", code=0)
    assert "run.sqlite is there, and not older than its report (--force exports again)\n" in said
    assert len(nsys.asked("export")) == 1
    project.command("export", "run.nsys-rep", "--force", code=0)
    assert len(nsys.asked("export")) == 2
    for trace in ("run.nsys-rep", "run.sqlite"):
        assert "stage2_f" in project.command("--view=overlap", trace, code=0)
    assert len(nsys.asked("export")) == 2
    assert {name for name in project.files() if not name.startswith("bin/")} == {"run.nsys-rep", "run.sqlite"}


def test_an_older_export_is_replaced_only_by_force(project: Project, nsys: FakeNsys) -> None:
    report = write_report(project.root / "run.nsys-rep")
    path = project.file("run.sqlite", "mine")
    os.utime(path, (1, 1))
    said = project.command("export", report.name, code=2)
    assert "error: run.sqlite: is there, and older than run.nsys-rep: --force replaces it" in said
    nsys.tell(code=1, says=CUT, content=nsys.folder / "good.sqlite")
    project.command("export", report.name, "--force", code=2)
    assert path.read_text() == "mine"  # a failed export replaces nothing


@pytest.mark.usefixtures("nsys")
def test_to_a_file_or_a_folder(project: Project) -> None:
    for name in ("a.nsys-rep", "b.qdrep"):
        write_report(project.root / "run" / name)
    project.command("export", "run/a.nsys-rep", "--output", "other one.sqlite", code=0)
    said = project.command("export", "run", "--output", "new/", code=0)
    assert "wrote new/a.sqlite" in said
    assert "wrote new/b.sqlite" in said
    project.command("export", "run/*.qdrep", code=0)
    exports = {name for name in project.files() if name.endswith(".sqlite") and not name.startswith("bin/")}
    assert exports == {"other one.sqlite", "new/a.sqlite", "new/b.sqlite", "run/b.sqlite"}


def test_one_bad_report_does_not_keep_the_others_back(project: Project, nsys: FakeNsys) -> None:
    write_report(project.root / "a.nsys-rep").write_bytes(b"")
    write_report(project.root / "b.nsys-rep")
    said = project.command("export", "a.nsys-rep", "b.nsys-rep", code=2)
    assert "error: a.nsys-rep: is empty (0 bytes)" in said
    assert "wrote b.sqlite" in said
    assert len(nsys.asked("export")) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x.sqlite"], "x.sqlite: is not a report (*.nsys-rep, *.qdrep)"),
        ([""], "the path of a report is empty"),
        (["absent.nsys-rep"], "absent.nsys-rep: there is no such file or folder"),
        (["a.nsys-rep", "b.nsys-rep", "--output", "x.sqlite"], "--output x.sqlite: 2 reports need a folder"),
        (["a.nsys-rep", "--output", "exports"], "--output exports: an export ends in .sqlite (a folder must exist"),
        (["a.nsys-rep", "--output", ""], "--output is empty"),
        (["a.nsys-rep", "a.qdrep"], "a.nsys-rep and a.qdrep would both be exported to a.sqlite"),
    ],
)
def test_what_cannot_be_meant(project: Project, nsys: FakeNsys, words: list[str], said: str) -> None:
    for name in ("a.nsys-rep", "b.nsys-rep", "a.qdrep"):
        write_report(project.root / name)
    project.trace("x.sqlite")
    before = project.files()
    assert said in project.command("export", *words, code=2)
    assert project.files() == before
    assert nsys.asked("export") == []


@pytest.mark.usefixtures("nsys")
def test_a_folder_that_cannot_be_made(project: Project) -> None:
    write_report(project.root / "a.nsys-rep")
    project.file("taken", "a file")
    said = project.command("export", "a.nsys-rep", "--output", "taken/a.sqlite", code=2)
    assert "error: " in said
    assert "taken" in said
