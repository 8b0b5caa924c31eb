"""What is installed, and how does pytest behave in this folder? A part of ``pytest-nsys check``."""

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
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.version import VERSION
from pytest_nsys.reports.screens.check import Plugin, Surroundings
from pytest_nsys.tools.nsys_command import find_nsys

if TYPE_CHECKING:
    import pytest

EXTRAS = {"parquet": "pyarrow", "dask": "distributed", "xdist": "xdist"}
"""A module of each extra or commonly used plugin, by its name."""

PLUGIN, MODULE = "nsys", "pytest_nsys.plugin"
AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"


class ConfigProbe:
    """A pytest plugin that ends the session before anything is collected, and keeps pytest's configuration."""

    config: pytest.Config | None = None

    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Keep the configuration and end the session: returning a value stops the other hooks."""
        self.config = config
        return 0


def inspect_environment() -> Surroundings:
    """Report what is installed, and what pytest does in this folder."""
    import pytest

    nsys_text: str | None = None
    try:
        nsys_tool = find_nsys()
        nsys_text = None if nsys_tool is None else f"{nsys_tool.version} ({nsys_tool.path})"
    except NsysError as error:
        nsys_text = str(error)
    return Surroundings(
        pytest_nsys=VERSION,
        python=platform.python_version(),
        executable=sys.executable,
        pytest=pytest.__version__,
        plugin=_inspect_plugin(),
        nsys=nsys_text,
        extras={name: find_spec(module) is not None for name, module in EXTRAS.items()},
        notes=[*_list_path_notes()],
    )


def _inspect_plugin() -> Plugin:
    """Report whether pytest loads the plugin here.

    This runs pytest, because many options and ini files decide it.
    """
    import pytest

    probe, output = ConfigProbe(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = pytest.main([], plugins=[probe])
    config = probe.config
    if config is None:
        lines = [line for line in output.getvalue().splitlines() if line.strip()]
        # The line with the error, without the usage that pytest prints too.
        error_lines = [line for line in lines if "error: " in line.lower() and "usage:" not in line] or lines
        problem = sanitize_line(error_lines[0] if error_lines else f"it ended with {code}", 300)
        return Plugin(active=False, why_not=f"pytest does not start here: {problem}", rootdir=None, inifile=None)
    inifile, problem = str(config.inipath) if config.inipath is not None else None, _explain_inactive(config)
    return Plugin(active=not problem, why_not=problem, rootdir=str(config.rootpath), inifile=inifile)


def _explain_inactive(config: pytest.Config) -> str:
    """Explain why pytest has not loaded the plugin; empty if it has."""
    manager = config.pluginmanager
    if any(getattr(plugin, "__name__", "") == MODULE for _, plugin in manager.list_name_plugin()):
        return ""
    if manager.is_blocked(PLUGIN) or manager.is_blocked(MODULE):
        return f"-p no:{PLUGIN} is in {_find_setting_source(config, 'no:')}: take it out"
    if not entry_points(group="pytest11", name=PLUGIN):
        return f"{sys.executable} has no entry point of it: pip install pytest-nsys there"
    if os.environ.get(AUTOLOAD):
        return f"{AUTOLOAD} is set: unset it, or write -p {MODULE} into addopts"
    source = _find_setting_source(config, "--disable-plugin-autoload")
    return f"--disable-plugin-autoload is in {source}: take it out, or write -p {MODULE} beside it"


def _list_path_notes() -> Iterator[str]:
    """Yield a note if the ``pytest`` on the path belongs to another Python."""
    pytest_on_path = shutil.which("pytest")
    if pytest_on_path is not None and Path(pytest_on_path).parent.resolve() != Path(sys.executable).parent.resolve():
        yield f"the pytest on PATH ({pytest_on_path}) is not of this Python: `python -m pytest` is"


def _find_setting_source(config: pytest.Config, word: str) -> str:
    if word in os.environ.get("PYTEST_ADDOPTS", ""):
        return "PYTEST_ADDOPTS"
    return f"addopts of {config.inipath}" if config.inipath is not None else "the options"
