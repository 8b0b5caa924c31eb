"""Are traces read, and gates judged, where Python lacks what only POSIX has? As on Windows, but for its paths."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.samples.formats import ENDINGS, Format
from tests.support.samples.two_stages import TwoStageShape, write_two_stages

ROOT = Path(__file__).parents[1]
WITHOUT = """
import os, signal, sys
for module in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[module] = None
for module, names in {
    os: ("fork", "getloadavg", "mkfifo", "sched_getaffinity", "setsid"),
    signal: ("SIGALRM", "SIGVTALRM", "pthread_sigmask", "setitimer"),
}.items():
    for name in names:
        vars(module).pop(name, None)
"""


def run_without(folder: Path, program: str) -> str:
    """What a program prints that begins without all that; it ends with 0."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_format_is_read_and_judged(tmp_path: Path) -> None:
    traces = [write_two_stages(tmp_path / f"{f}.{ENDINGS[f]}", TwoStageShape(units=6, warm_up=1), f) for f in Format]
    gate = "version: 1\nassertions: [compute_ns below baseline plus 5%, median period_ns < 1 s]\n"
    (tmp_path / "step.nsys.yaml").write_text(gate, encoding="utf-8")
    said = run_without(
        tmp_path,
        f"""
import pytest
if __name__ == "__main__":
    for trace in {[path.name for path in traces]}:
        for more in (["--nsys-update-baselines", "--nsys-reason=first"], ["-v", "--nsys-executor=processes:2"]):
            assert pytest.main(["-p", "no:cacheprovider", "--nsys-trace=" + trace, *more]) == 0
""",
    )
    assert said.count("passed  compute_ns below baseline plus 5%") == len(traces)


def test_every_module_can_be_imported(tmp_path: Path) -> None:
    run_without(tmp_path, "from tests.support.quick_python import import_everything; import_everything()")


def test_an_expression_that_no_timer_stops_is_refused(tmp_path: Path) -> None:
    program = r"""
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.expressions import Expression
print(Expression("stage", r"(?P<stage>s\d+_[fb]*)").fullmatch("s1_f")["stage"])
try:
    Expression("stage", "(a|a)*b").fullmatch("a" * 40)
except TraceError as error:
    print(error)
"""
    matched, refused = run_without(tmp_path, program).splitlines()
    assert matched == "s1_f"
    assert "repeats a group, which cannot be stopped on Windows: write it without (…)* and (…)+" in refused
