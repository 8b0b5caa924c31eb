"""What is installed, and what does pytest do in this folder? A part of ``pytest-nsys check``."""

from __future__ import annotations

import io
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.version import VERSION
from pytest_nsys.core.words import printable
from pytest_nsys.reports.screens.check import Plugin, Surroundings
from pytest_nsys.tools.nsys_command import find_nsys

if TYPE_CHECKING:
    import pytest

EXTRAS = {"parquet": "pyarrow", "dask": "distributed", "xdist": "xdist"}
"""By name of an extra, or of a plugin that is often meant, a module of it."""

PLUGIN, MODULE = "nsys", "pytest_nsys.plugin"
AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"


class Looking:
    """A plugin of a session that ends before anything is collected: it sees how pytest was configured."""

    config: pytest.Config | None = None

    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """All that pytest does: a hook that answers is the last."""
        self.config = config
        return 0


def look_around() -> Surroundings:
    """What is installed, and what pytest does in this folder."""
    import pytest

    nsys: str | None = None
    try:
        found = find_nsys()
        nsys = None if found is None else f"{found.version} ({found.path})"
    except NsysError as error:
        nsys = str(error)
    return Surroundings(
        pytest_nsys=VERSION,
        python=platform.python_version(),
        executable=sys.executable,
        pytest=pytest.__version__,
        plugin=_plugin(),
        nsys=nsys,
        extras={name: find_spec(module) is not None for name, module in EXTRAS.items()},
        notes=[*_about_path()],
    )


def _plugin() -> Plugin:
    """Whether pytest loads the plugin here; pytest is asked, as options and ini files of many kinds decide it."""
    import pytest

    probe, said = Looking(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = pytest.main([], plugins=[probe])
    config = probe.config
    if config is None:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        telling = [line for line in lines if "error: " in line.lower() and "usage:" not in line] or lines
        why = printable(telling[0] if telling else f"it ended with {code}", 300)
        return Plugin(active=False, why_not=f"pytest does not start here: {why}", rootdir=None, inifile=None)
    inifile, why = str(config.inipath) if config.inipath is not None else None, _why_inactive(config)
    return Plugin(active=not why, why_not=why, rootdir=str(config.rootpath), inifile=inifile)


def _why_inactive(config: pytest.Config) -> str:
    """Why pytest has not loaded the plugin; empty where it has."""
    manager = config.pluginmanager
    if any(getattr(plugin, "__name__", "") == MODULE for _, plugin in manager.list_name_plugin()):
        return ""
    if manager.is_blocked(PLUGIN) or manager.is_blocked(MODULE):
        return f"-p no:{PLUGIN} is in {_who_says(config, 'no:')}: take it out"
    if not entry_points(group="pytest11", name=PLUGIN):
        return f"{sys.executable} has no entry point of it: pip install pytest-nsys there"
    if os.environ.get(AUTOLOAD):
        return f"{AUTOLOAD} is set: unset it, or write -p {MODULE} into addopts"
    who = _who_says(config, "--disable-plugin-autoload")
    return f"--disable-plugin-autoload is in {who}: take it out, or write -p {MODULE} beside it"


def _about_path() -> Iterator[str]:
    """That the pytest that a person types is another one."""
    typed = shutil.which("pytest")
    if typed is not None and Path(typed).parent.resolve() != Path(sys.executable).parent.resolve():
        yield f"the pytest on PATH ({typed}) is not of this Python: `python -m pytest` is"


def _who_says(config: pytest.Config, word: str) -> str:
    if word in os.environ.get("PYTEST_ADDOPTS", ""):
        return "PYTEST_ADDOPTS"
    return f"addopts of {config.inipath}" if config.inipath is not None else "the options"
