"""A program ``nsys`` for tests: it answers as nsys does, exports what a test gives it, and notes what it was asked.

Its words are those of nsys 2023.4; tests marked ``needs_nsys`` hold them against a real one where there is one.
"""

import shutil
import sqlite3
import stat
import sys
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pytest_nsys.tools import nsys_command
from pytest_nsys.tools.nsys_command import REPORT_MAGIC

VERSION = "2023.4.4.54"
PROGRAMS = ("sh", "true", "false", "git")
"""What else is on PATH: a real nsys may be in any folder of the machine."""

_Test = TypeVar("_Test", bound=Callable[..., None])


def needs_nsys(test: _Test) -> _Test:
    """Marks a test that a real nsys takes part in. One at a time on a machine: two at once get in each other's way."""
    alone: _Test = pytest.mark.usefixtures("nsys_alone")(test)
    marked: _Test = pytest.mark.skipif(shutil.which("nsys") is None, reason="there is no nsys on PATH")(alone)
    return marked


NEWER = (
    "Exportation error: Report was created in Nsight Systems version (2025.5.1.121-255136380782v0), newer than your "
    "current version (2023.4.4.54-234433681190v0).\nPlease update your Nsight Systems to the latest version to view "
    "this report."
)
CUT = "Exportation error: Section Table Reference magic number mismatch."
NO_DATABASE = "Exportation error: unable to open database file"
FULL = (
    "Failed to close database connection: dbapi.h(38): Throw in function void check()\n"
    "[QuadDCommon::tag_message*] = database or disk is full"
)

PYTHON = sys.executable
"""For programs of a few lines: what a project has in its place starts this one."""

SCRIPT = """#!{python} -IS
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "told")) as file:
    told = eval(file.read())
words = sys.argv[1:]
with open(os.path.join(here, "asked"), "a") as file:
    file.write(repr(words) + "\\n")
options = dict(w[2:].partition("=")[::2] for w in words if w.startswith("--"))
if words == ["--version"]:
    print(f"NVIDIA Nsight Systems version {{told['version']}}-234433681190v0")
elif words[1:] == ["--help"]:
    for name in told["options"]:
        print(f"\\t--{{name}}=\\n\\n\\t   {{told['explains'].get(name, 'What it does.')}}\\n")
elif words[0] == "export":
    unknown = [name for name in options if name not in told["options"]]
    if unknown:
        sys.exit(f"unrecognised option '--{{unknown[0]}}'")
    sys.stderr.write("\\r".join(f"Processing 20 events: [{{'=' * n}}{{5 * n}}%    ]" for n in range(1, 21)) + "\\n")
    source = told["content"]
    if isinstance(source, dict):
        source = source[os.path.basename(words[-1]).partition(".")[0]]
    content = b"" if source is None else open(source, "rb").read()
    if source is not None:
        open(options["output"], "wb").write(content[: told["bytes"]])
    print(told["says"], file=sys.stderr)
    if told["signal"]:
        os.kill(os.getpid(), told["signal"])
    sys.exit(told["code"])
elif words[0] == "profile":
    at = next((n for n, w in enumerate(words) if n and not w.startswith("--")), len(words))
    output = options["output"].replace("%q{{SLURM_NODEID}}", os.environ.get("SLURM_NODEID", "")).replace("%%", "%")
    import subprocess
    done = subprocess.run(words[at:])
    for name in told["leaves"]:
        path = output + name
        if name.startswith("nsys-report"):
            path = os.path.join(os.environ["TMPDIR"], name)
            print(f"Generating '{{path}}'" if name.endswith(".qdstrm") else f"Generated:\\n    {{path}}")
        with open(path, "wb") as file:
            file.write({magic!r} + b" of a run" + os.environ.get("SLURM_NODEID", "").encode())
    sys.exit(done.returncode if told["profile_code"] is None else told["profile_code"])
"""

EXPLAINED = {"cuda-event-trace": "Possible values are 'auto', 'true' or 'false'."}
"""What the help says of an option."""


@dataclass
class FakeNsys:
    """The fake in a folder of its own, which is first on PATH; ``tell`` says how it behaves from now on.

    ``content`` is what every report holds, or each by its name without suffix.
    """

    folder: Path

    def tell(
        self,
        *,
        content: Path | Mapping[str, Path] | None = None,
        code: int = 0,
        says: str = "",
        bytes: int | None = None,
        signal: int = 0,
        version: str = VERSION,
        blobs: bool = False,
        leaves: tuple[str, ...] = (".nsys-rep",),
        profile_code: int | None = None,
        unknown: tuple[str, ...] = (),
        explains: Mapping[str, str] = EXPLAINED,
    ) -> None:
        options = [
            *(
                "type",
                "output",
                "trace",
                "cuda-graph-trace",
                "cuda-event-trace",
                "capture-range",
                "capture-range-end",
                "delay",
                "stats",
            ),
            *("force-overwrite", "sample"),
            *(["include-blobs"] if blobs else []),
        ]
        told = {
            "content": {name: str(path) for name, path in content.items()}
            if isinstance(content, Mapping)
            else str(content)
            if content
            else None,
            "code": code,
            "says": says,
            "bytes": bytes,
            "signal": signal,
            "version": version,
            "options": [name for name in options if name not in unknown],
            "leaves": leaves,
            "profile_code": profile_code,
            "explains": dict(explains),
        }
        nsys_command._read_nsys.cache_clear()
        nsys_command._read_help.cache_clear()
        self.folder.mkdir(exist_ok=True)
        (self.folder / "told").write_text(repr(told))
        script(self.folder / "nsys", SCRIPT.format(python=PYTHON, magic=REPORT_MAGIC))

    def asked(self, command: str | None = None) -> list[list[str]]:
        """The words of every call, or of those of one command, calls for help left out."""
        path = self.folder / "asked"
        calls: list[list[str]] = [literal_eval(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [words for words in calls if words[1:] != ["--help"] and (command is None or words[0] == command)]


def script(path: Path, text: str) -> Path:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fake_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNsys:
    """A fake nsys, and no other; it is there from its first ``tell`` on."""
    folder.mkdir(parents=True)
    for name in PROGRAMS:
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return FakeNsys(folder)


SRUN = """#!{python} -IS
import json, os, subprocess, sys
with open({asked!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
words = sys.argv[1:]
label = "--label" in words
while words[0].startswith("--"):
    nodes = int(words[0][8:]) if words[0].startswith("--nodes=") else nodes
    words.pop(0)
codes = []
for node in range(nodes):
    where = dict(os.environ, SLURM_NODEID=str(node), SLURM_STEP_ID="0", PATH=os.environ["PATH"] + {path!r})
    try:
        done = subprocess.run(words, env=where, stdout=subprocess.PIPE if label else None, text=True)
        print("".join(f"{{node}}: {{line}}\\n" for line in (done.stdout or "").splitlines()), end="", flush=True)
        codes.append(done.returncode)
    except FileNotFoundError:
        print("slurmstepd: error: execve(): nsys: No such file or directory", file=sys.stderr)
        codes.append(2)
sys.exit(max(codes))
"""


def allocated(nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An allocation of two nodes, on which ``srun`` starts a program; where its calls are written down."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    asked = nsys.folder / "srun.asked"
    script(nsys.folder / "srun", SRUN.format(python=PYTHON, asked=str(asked), path=""))
    return asked


def write_report(path: Path, content: str = "of a run") -> Path:
    """A file that begins as a report does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(REPORT_MAGIC + b" " + content.encode())
    return path


needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow, the extra `parquet`, is not there")


def to_parquet(export: Path, folder: Path) -> Path:
    """The tables of a SQLite export as nsys writes them: ids without a sign, bytes as what it declares to be text."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")

    def column(name: str, values: Sequence[Any]) -> Any:
        if name in ("globalPid", "globalTid"):
            return arrow.array([None if v is None else v % (1 << 64) for v in values], arrow.uint64())
        if name == "binaryData":
            return arrow.array(values, arrow.large_binary()).view(arrow.large_string())
        return arrow.array(values)

    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(export)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            cursor = database.execute(f'SELECT * FROM "{table}"')
            names = [each[0] for each in cursor.description]
            columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
            made = {name: column(name, values) for name, values in zip(names, columns, strict=True)}
            parquet.write_table(arrow.table(made), folder / f"{table}.parquet")
    return folder
