"""Does a window that was cut out of its trace keep the parts of its program?"""

from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.scopes import ScopeKind
from tests.analysis.scopes.test_paths import told, whole_run
from tests.support.commands import run
from tests.support.scope_programs import WRITERS


@pytest.mark.parametrize("format_name", WRITERS)
def test_scopes_and_passes_survive_a_cut(tmp_path: Path, format_name: str) -> None:
    name, write = WRITERS[format_name]
    trace = write(tmp_path / name, None)
    target = tmp_path / f"cut_{name}"
    run("cut", trace, "-o", target, "--convention=generic", "--window=run", code=0)
    found: dict[Path, Any] = {}
    for path in (trace, target):
        with whole_run(path) as window:
            # A line of source is a path of the machine, and stays behind.
            found[path] = {kind: told(window, kind) for kind in ScopeKind if kind is not ScopeKind.SOURCE}
    assert found[target] == found[trace]
    assert b"/home/me" not in target.read_bytes()
