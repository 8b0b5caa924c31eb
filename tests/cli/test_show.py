"""Is a path alone, or an option before it, `show`; and which words are commands, which are paths?"""

import json
from pathlib import Path

import click
import pytest

from pytest_nsys.cli import main
from pytest_nsys.cli.show import PARTIAL_OPTIONS
from tests.support.commands import run
from tests.support.fault_programs import ATTENTION, data_parallel
from tests.support.faults import stretched
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import Format


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Beside the working directory's `run.sqlite` nothing."""
    monkeypatch.chdir(tmp_path)
    gpu = TraceBuilder().process(pid=100)
    gpu.kernel("gemm", 1_000, 5_000, stream=7)
    gpu.kernel("ncclDevKernel_SendRecv", 2_000, 8_000, stream=28)
    return gpu.trace.write(tmp_path / "run.sqlite")


@pytest.mark.parametrize(
    "words",
    [
        ("show", "run.sqlite", "--view=streams"),
        ("run.sqlite", "--view=streams"),
        ("--view=streams", "run.sqlite"),
        ("--view", "streams", "run.sqlite"),
        ("./run.sqlite", "--view=streams"),
        ("*.sqlite", "--view=streams"),
        ("ru?.sqlite", "--view=streams"),
        ("--format=table", "run.sqlite", "--view=streams"),
        ("--rank", "0", "--view", "streams", "run.sqlite"),
    ],
)
@pytest.mark.usefixtures("trace")
def test_every_way_to_ask(words: tuple[str, ...]) -> None:
    assert run(*words, code=0).stdout == run("show", "run.sqlite", "--view", "streams", code=0).stdout


def test_a_folder_and_several_files(trace: Path) -> None:
    assert "gemm" in run(trace.parent, "--view=kernels", "--steps=1", "--where=family=gemm", code=0).stdout
    assert "is given twice" in run("run.sqlite", "run.sqlite", "--view=kernels", code=2).stderr


def test_a_command_wins_over_a_file_of_its_name(trace: Path) -> None:
    trace.rename("metrics")
    found = run("metrics", code=0)
    assert "write" in found.stdout
    assert found.stderr == "note: metrics is the command; for the path metrics write ./metrics\n"
    assert "there is no such file" not in run("./metrics", "--view=streams").output


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("run.sqlit", "no command and no file 'run.sqlit' (did you mean 'run.sqlite'?)"),
        ("compaer", "no command and no file 'compaer' (did you mean 'compare'?)"),
        ("zzzz", "no command and no file 'zzzz'\n"),
        ("a\x1b31m", "no command and no file 'a"),
        ("gone/run.sqlite", "there is no such file"),
        ("gone*.sqlite", "matches no"),
    ],
)
@pytest.mark.usefixtures("trace")
def test_a_word_that_is_neither(word: str, said: str) -> None:
    done = run(word, code=2)
    assert said in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.usefixtures("trace")
def test_without_a_path() -> None:
    assert "Missing argument 'TRACES…'" in run("--view=kernels", code=2).stderr
    assert "No such option" in run("--bogus", "run.sqlite", code=2).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--view=budget", "--steps=3"), "--steps goes with --view kernels, not with budget"),
        (("--view=kernels", "--peak=1GB/s"), "--peak goes with --view collectives or config, not with kernels"),
        (("--view=streams", "--where=stage=a"), "--where goes with --view "),
        (("--view=kernels", "--where=stage=a"), "kernels has no dimension 'stage'"),
        (("--view=config",), "--view config needs the configuration of the run: --config FILE.toml"),
        (("--view=kernel",), "there is no view 'kernel' (did you mean 'kernels'?)"),
    ],
)
@pytest.mark.usefixtures("trace")
def test_an_option_that_a_view_has_no_use_for(words: tuple[str, ...], said: str) -> None:
    assert said in run("run.sqlite", *words, code=2).stderr


@pytest.mark.usefixtures("trace")
def test_without_a_view_it_is_the_first_screen() -> None:
    said = run("run.sqlite", code=0).stdout
    assert "next" in said
    assert "rank 0" in said
    assert "--peak goes with --view collectives or config, not with the first screen" in (
        run("run.sqlite", "--peak=1GB/s", code=2).stderr
    )


def test_the_options_are_few() -> None:
    show, rows = (main.get_command(click.Context(main), name) for name in ("show", "rows"))
    assert show is not None
    assert rows is not None
    assert len([each for each in show.params if isinstance(each, click.Option)]) <= 19
    assert len([each for each in rows.params if isinstance(each, click.Option)]) <= 11
    assert {each.name for each in show.params} > PARTIAL_OPTIONS


def test_an_answer_goes_into_a_file_and_a_view_is_meant(trace: Path, tmp_path: Path) -> None:
    for number, words in enumerate([(), ("--view=kernels",), ("--view=budget", "--format=csv")]):
        output = tmp_path / f"answer{number}"
        assert run(trace, *words, "-o", output, code=0).stdout == ""
        assert output.read_text() == run(trace, *words, code=0).stdout
    assert "is one of the traces" in run(trace, "--view=kernels", "-o", trace, code=2).stderr
    assert "there is no view 'kernel' (did you mean 'kernels'?)" in run(trace, "--view=kernel", code=2).stderr


def test_the_kernels_of_a_rank_stand_beside_the_mean_of_all_ranks(tmp_path: Path) -> None:
    program = data_parallel(4)
    stretched(ATTENTION, 60, [1])(program)
    trace = program.write(tmp_path / "slow", Format.KINETO, 1)

    def shown(*options: str) -> dict[str, dict[str, float]]:
        answered = json.loads(run("show", trace, "--view", "kernels", *options, "--format", "json", code=0).stdout)
        return {row["kernel"]: row for row in answered["rows"]}

    name = next(name for name in shown() if "flash_fwd" in name)
    slow, usual, alone = (shown(*options)[name] for options in (("--rank", "1"), ("--rank", "0"), ()))
    assert slow["ranks_time_ns"] == usual["ranks_time_ns"] == alone["time_ns"]
    assert slow["time_ns"] > 1.3 * slow["ranks_time_ns"] > 1.3 * usual["time_ns"]
    assert "ranks_time_ns" not in alone


def test_a_word_needs_no_trace_and_ends_the_command() -> None:
    """A metric is a word, too; what stands behind the word is not looked at."""
    asked = run("--explain", "Exposed", code=0)
    assert asked.stdout.startswith("exposed: communication without compute beside it")
    assert asked.stderr == ""
    assert run("--explain", "barriers", "nothing.sqlite", code=0).stdout.startswith("barrier: ")
    assert run("--explain", "exposed_ns", code=0).stdout.startswith("exposed_ns: Communication time without compute")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("expsed", "there is no word 'expsed': nearest are exposed"),
        ("qqq", "there is no word 'qqq': there are step, window"),
    ],
)
def test_an_unknown_word_lists_the_nearest(word: str, said: str) -> None:
    found = run("--explain", word, code=2)
    assert found.stderr.startswith(f"error: {said}")
    assert len(found.stderr.splitlines()) == 1
    assert found.stdout == ""


@pytest.mark.usefixtures("trace")
def test_the_first_screen_says_how_its_words_are_explained() -> None:
    *_, above, last = run("run.sqlite", code=0).stdout.splitlines()
    assert last.split("  # ")[0].strip() == "pytest-nsys --explain WORD"
    assert "  # " not in above or above.index("  # ") == last.index("  # ")
