"""A pytest session that judges for the merge base: what does it read in the work tree, and what does it hand back?

Only :mod:`pytest_nsys.merge_base.judge_process` loads this, by ``-p``, in the process of the judge.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_nsys.plugin.settings import BASE_KEYS, JUDGED_TREE, WorkTree


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option by which the judge is told what it judges."""
    parser.addoption("--nsys-judge", metavar="FILE", help="what the merge base judges, as JSON")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take the work tree for what is judged, add the gate files that the branch lacks, and tell what is set here."""
    request = json.loads(Path(config.getoption("nsys_judge")).read_bytes())
    tree, top, branch = (Path(request[name]) for name in ("tree", "top", "branch"))
    config.stash[JUDGED_TREE] = WorkTree(tree, top, branch, request["ref"])
    asked = [config.invocation_params.dir / word for word in config.args]
    lacking = (path for path in map(Path, request["gone"]) if not any(path.is_relative_to(each) for each in asked))
    config.args = [*config.args, *map(str, lacking)]
    settings = {name.removeprefix("nsys_"): config.getini(name) for name in BASE_KEYS}
    Path(request["result"]).write_text(json.dumps(settings))
