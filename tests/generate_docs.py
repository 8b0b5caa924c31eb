"""What in the documentation does the program itself say? Rewritten by ``python -m tests.generate_docs``.

A part that is not written by hand stands between two markers, each on a line of its own:

* ``<!-- generated: NAME -->`` … ``<!-- end -->``: a table or a text of :data:`GENERATED`;
* ``<!-- output: COMMAND -->`` … ``<!-- end -->``: the command and what it prints;
* ``<!-- output: COMMAND | REGEX -->`` … ``<!-- end -->``: of that only the lines in which the expression is found, and
  ``…`` for those between them, unless they are blank. Each of its alternatives (``a|b``) has a line.

``<!-- run: COMMAND -->``, a line alone, runs a command and shows nothing. The commands of a page run one after another
in one scratch folder, which holds a copy of ``examples/`` and ``baselines/``, and each block of code below
``<!-- file: PATH -->`` as that file. Nothing that depends on the machine is kept: no versions, no times, a terminal of
fixed width. ``tests/test_docs.py`` fails where a page is stale.

``python -m tests.generate_docs docs/recipes.md`` rewrites that page alone. The schema of gate files is rewritten,
too, and the names of ``tests/repository.py``.
"""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import yaml

from pytest_nsys.analysis.metrics.registry import METRICS, Better
from pytest_nsys.cli import main
from pytest_nsys.cli.command_group import COMMAND_GROUPS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.families import LIBRARIES
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.plugin.settings import SETTINGS
from pytest_nsys.reports.words.glossary import GLOSSARY
from tests import repository
from tests.gate_schema import PATH, key_rows, schema_text

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 100
SCRATCH_INI = "[pytest]\nnsys_baseline_dir = baselines\n"
PROGRAMS = ("pytest", "pytest-nsys", "python", "git", "mkdir")
COMMITTED = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "2026-01-31T12:00:00Z"))
}

END = "<!-- end -->"

MARKED = re.compile(
    r"^<!-- (?P<kind>generated|output): (?P<what>[^\n]+?) -->\n(?P<body>.*?)^<!-- end -->$"
    r"|^<!-- file: (?P<path>[^\s,]+)(?:, mistaken)? -->\n```\w*\n(?P<content>.*?)^```$"
    r"|^<!-- run: (?P<unseen>[^\n]+?) -->$",
    re.MULTILINE | re.DOTALL,
)


class DocsMistake(Exception):
    """A marker that cannot be meant."""


def pages() -> list[Path]:
    """Every page that may hold markers."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


# Tables and texts


AS_IN_THE_FILE = "as in the file"


def keys(*sections: str) -> str:
    """The keys of a mapping, and of those below it: ``purposes.NAME.purpose`` is one of the latter."""
    rows = [row for each in sections for row in key_rows(each.rpartition(".")[2], each[: each.rfind(".") + 1])]
    same = [key for key, value, _ in rows if value == AS_IN_THE_FILE]
    told = [f"- {key} ({value}): {escaped(says)}\n" for key, value, says in rows if key not in same]
    return "".join([*told, *([f"- {', '.join(same)}: {AS_IN_THE_FILE}.\n"] if same else [])])


def bounds() -> str:
    """The checks of a trace's quality, each with its default: another page says what they look at."""
    each = ((key, says.rpartition("Default: ")[2].rstrip(".").split(",")[0]) for key, _, says in key_rows("quality"))
    return ", ".join(f"{key} ({default})" for key, default in each) + ".\n"


def escaped(text: str) -> str:
    """Plain text as Markdown, in which a star would begin what is emphasised."""
    return text.replace("*", r"\*")


_ARROWS = {Better.LOWER: "↓", Better.HIGHER: "↑", None: ""}
_ASIDE = re.compile(r"(?<=.{16})[:;] .*")
_ROWS_ARE = re.compile(r",? per (?:\([^)]*\)|rank)(?=[.:;,])")


def metrics() -> str:
    """The registry by subject, in short: what a metric is, without the asides of its summary. Names tell times."""
    lists: dict[str, str] = {}
    for m in METRICS.values():
        of_ranks = [d for d in m.dimensions if d != "rank"] if "rank" in m.dimensions else [*m.dimensions, "run"]
        facts = [*([] if m.name.endswith("_ns") else [str(m.unit)]), *of_ranks]
        behind = f" ({', '.join(facts)})" if facts else ""
        says = _ASIDE.sub("", _ROWS_ARE.sub("", m.summary.replace("``", "`")).rstrip("."))
        subject = (m.subject or "more").capitalize()
        lists[subject] = lists.get(subject, "") + f"- `{m.name}`{_ARROWS[m.better]}{behind}: {says}\n"
    return "\n".join(f"**{subject}**\n\n{told}" for subject, told in lists.items())


def convention_yaml(convention: Convention) -> str:
    """The convention as a gate file would spell it out."""
    keys: dict[str, Any] = {"extends": "generic"} if convention.libraries else {}
    keys["name"] = convention.name
    for key in ("anchor", "setup", "stage"):
        if (value := getattr(convention, key)) is not None:
            keys[key] = value
    if convention.purposes:
        keys["purposes"] = {
            p.name: {k: list(v) for k, v in (("stage", p.stages), ("range", p.ranges)) if v}
            for p in convention.purposes
        }
    if convention.part:
        keys["part"] = True
    if convention.kinds:
        keys["kinds"] = {kind.name: kind.anchor_pattern for kind in convention.kinds}
    if convention.communication:
        keys["communication"] = list(convention.communication)
    keys["span"], keys["kernels"] = str(Span(convention.span)), str(KernelsMode(convention.kernels))
    nested = None if convention.purposes else False
    return yaml.safe_dump({"convention": keys}, sort_keys=False, width=1000, default_flow_style=nested)


def conventions() -> str:
    """The built-in conventions that name stages, spelt out."""
    told = [c for c in BUILT_IN_CONVENTIONS.values() if c.stage]
    return "\n".join(f"```yaml\n{convention_yaml(c)}```\n" for c in told)


def glossary() -> str:
    """Every word with its meaning, and a link to the page that says more."""
    return "".join(
        f"- [**{'**, **'.join(term.words)}**]({_page_of_docs(term.page)}): {escaped(term.meaning)}\n"
        for term in GLOSSARY
    )


def _page_of_docs(page: str) -> str:
    name, mark, anchor = page.partition("#")
    return f"{name}.md{mark}{anchor}"


def libraries() -> str:
    """The known communication libraries."""
    return f"{', '.join(own.name for own in LIBRARIES)}.\n"


def commands() -> str:
    """Every command in its group, with the first sentence of its help and the exit codes that are its own.

    What else a command says of itself, its ``--help`` says.
    """
    shown = ""
    for title, names in COMMAND_GROUPS.items():
        shown += f"### {title}\n\n"
        for name in names:
            found = main.get_command(click.Context(main), name)
            assert found is not None
            for typed, command in _all_commands(found, f"pytest-nsys {name}"):
                arguments = [
                    each for each in command.collect_usage_pieces(click.Context(command)) if each != "[OPTIONS]"
                ]
                first, *more = inspect.cleandoc(command.help or "").split("\n\n")
                codes = [own for each in more if (own := " ".join(each.split())).startswith("Exit codes: ")]
                shown += f"- `{' '.join([typed, *arguments])}`: {' '.join([' '.join(first.split()), *codes])}\n"
        shown += "\n"
    return shown.rstrip() + "\n"


def _all_commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by what is typed."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for sub in command.list_commands(context):
        found = command.get_command(context, sub)
        assert found is not None
        yield from _all_commands(found, f"{name} {sub}")


def pytest_options() -> str:
    """The plugin's options of pytest, each with its ini key where it has one."""
    return "".join(
        f"- `{s.option}{f'={s.metavar}' * bool(s.metavar)}`{f', ini `{s.name}`' * bool(s.ini)}: {s.help}\n"
        for s in SETTINGS.values()
    )


GENERATED: Mapping[str, Callable[[], str]] = {
    "gate file keys": lambda: keys("file"),
    "assertion keys": lambda: keys("assertion", "severity.severity"),
    "convention keys": lambda: keys("convention", "anchor.anchor", "purposes.NAME.purpose"),
    **{
        f"{name} keys": partial(keys, name) for name in ("pipeline", "run", "tolerance", "waiver", "window", "workload")
    },
    "quality keys": bounds,
    "metrics": metrics,
    "conventions": conventions,
    "libraries": libraries,
    "glossary": glossary,
    "commands": commands,
    "pytest options": pytest_options,
}
"""Every part that a page may ask for, by name."""


# Output of commands


class Scratch:
    """A folder in which the commands of one page run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        for name in ("examples", "baselines"):
            shutil.copytree(ROOT / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        (self.folder / "pytest.ini").write_text(SCRATCH_INI, encoding="utf-8")

    def write(self, path: str, content: str) -> None:
        """A file that the page shows."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")

    def run(self, commands: str) -> str:
        """What a command prints, or several joined by ``&&``, as it would on any machine."""
        return "".join(self._run(command) for command in commands.split(" && "))

    def _run(self, command: str) -> str:
        program, *words = shlex.split(command)
        if program not in PROGRAMS:
            raise DocsMistake(f"only {', '.join(PROGRAMS)} are run, not {program}")
        scripts = [str(Path(sys.executable).parent), sysconfig.get_path("scripts")]
        found = shutil.which(program, path=os.pathsep.join([*scripts, os.environ.get("PATH", "")]))
        if found is None:
            raise DocsMistake(f"{program} is not installed")
        plain = ["-p", "no:cacheprovider", "-p", "no:randomly"] if program == "pytest" else []
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.folder),
            "COLUMNS": str(COLUMNS),
            "LC_ALL": "C.UTF-8",
            "PY_COLORS": "0",
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUTF8": "1",
            "SOURCE_DATE_EPOCH": "1796083200",  # 2026-12-01: a waiver that is suggested ends on one day
            **COMMITTED,
            **({"PYTHONPATH": str(ROOT)} if program == "python" else {}),  # the builders of traces
        }
        done = subprocess.run(
            [found, *words, *plain],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        if _DEFECT.search(done.stdout):
            raise DocsMistake(f"{command}: ends in a defect of the program:\n{done.stdout[-2000:]}")
        return steady(done.stdout, self.folder)


_OF_THE_MACHINE = re.compile(r"(platform|rootdir|configfile|plugins|cachedir): |platform ")
_DEFECT = re.compile(r"^Traceback |^INTERNALERROR|pytest_nsys/[\w/]+\.py:\d+", re.MULTILINE)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_COMMIT = re.compile(r"(\b(?:since|at|commit) )[0-9a-f]{7,40}\b|( )(?=\S*[a-f])[0-9a-f]{10}$")
_TIMED = re.compile(r"=*\s*(?P<text>[^=]*\bin )[0-9.]+s(?: \([0-9:]+\))?(?P<rule> =+)?")


def steady(output: str, folder: Path) -> str:
    """Output without what differs from one machine or moment to the next."""
    lines = []
    for line in output.replace(f"{folder}{os.sep}", "").splitlines():
        if _OF_THE_MACHINE.match(line):
            continue
        timed = _TIMED.fullmatch(line)
        if timed is not None:
            text = timed["text"].strip() + " …s"
            line = f" {text} ".center(COLUMNS, "=") if timed["rule"] else text
        lines.append(_COMMIT.sub(r"\1\2…", _MOMENT.sub("…", line.rstrip())))
    text = "\n".join(lines).strip("\n")
    return text + "\n" if text else ""


def alternatives(wanted: str) -> list[str]:
    """Those of an expression outside of its groups."""
    found, depth = [""], 0
    for part in re.findall(r"\\.|\[[^]]*\]|.", wanted):
        depth += (part == "(") - (part == ")")
        found = [*found, ""] if part == "|" and not depth else [*found[:-1], found[-1] + part]
    return found


def lines_with(output: str, wanted: str) -> str:
    """The lines of an output in which the expression is found, and ``…`` for those left out between two."""
    if not wanted:
        return output
    lines = output.splitlines()
    if unfound := [each for each in alternatives(wanted) if not any(re.search(each, line) for line in lines)]:
        raise DocsMistake(f"no line of the output has '{unfound[0]}'")
    shown: list[str] = []
    gap: list[str] = []
    for line in lines:
        if re.search(wanted, line):
            shown += [*gap, line] if shown else [line]
            gap = []
        else:
            gap = ["…"] if line.strip() else gap or [""]
    return "\n".join(shown) + "\n"


def rewritten(page: str) -> str:
    """The text of a page with every marked part as the program says it now. Raises DocsMistake."""
    _check_markers(page)
    with tempfile.TemporaryDirectory(prefix="docs") as folder:
        scratch: list[Scratch] = []

        def renewed(match: re.Match[str]) -> str:
            if not scratch and match["kind"] != "generated":
                scratch.append(Scratch(Path(folder)))
            if match["path"] is not None:
                scratch[0].write(match["path"], match["content"])
                return match[0]
            if match["unseen"] is not None:
                scratch[0].run(match["unseen"])
                return match[0]
            what = match["what"]
            if match["kind"] == "output":
                command, _, wanted = what.partition(" | ")
                body = f"```console\n$ {command}\n{lines_with(scratch[0].run(command), wanted)}```\n"
            elif what in GENERATED:
                body = GENERATED[what]()
            else:
                raise DocsMistake(f"nothing is generated under the name '{what}'")
            return f"<!-- {match['kind']}: {what} -->\n\n{body}\n{END}"

        return MARKED.sub(renewed, page)


def _check_markers(page: str) -> None:
    found = list(MARKED.finditer(page))
    ended = [match for match in found if match["kind"]]
    opened = len(re.findall(r"^<!-- (?:generated|output): ", page, re.MULTILINE))
    alone = len(re.findall(r"^<!-- (?:file|run): ", page, re.MULTILINE))
    if not len(ended) == opened == page.count(END) or alone != len(found) - len(ended):
        raise DocsMistake("markers do not pair: each part ends with <!-- end -->, each file with its block of code")


def update(chosen: Sequence[Path] = ()) -> list[Path]:
    """Rewrite every page that is stale, or of the chosen ones alone; returns those."""
    stale = []
    for path in chosen or pages():
        if path.exists():
            old = path.read_text(encoding="utf-8")
            try:
                new = rewritten(old)
            except DocsMistake as mistake:
                raise SystemExit(f"{path.relative_to(ROOT)}: {mistake}") from mistake
            if path.read_text(encoding="utf-8") != old:
                raise SystemExit(f"{path.relative_to(ROOT)}: was edited meanwhile: run this again")
            if new != old:
                path.write_text(new, encoding="utf-8")
                stale.append(path)
    return stale


def update_schema() -> None:
    """Rewrite the schema of gate files where a table of keys says something else."""
    if PATH.read_text(encoding="utf-8") != (text := schema_text()):
        PATH.write_text(text, encoding="utf-8")
        print(f"rewrote {PATH.relative_to(ROOT)}")


if __name__ == "__main__":
    update_schema()
    for rewrote in repository.rename() + update([Path(name).resolve() for name in sys.argv[1:]]):
        print(f"rewrote {rewrote.relative_to(ROOT)}")
