"""Is a claim told as what it is: shown with its noise, not so, or not shown with how many captures would show it?"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_nsys import Verdict, judge, open_run
from pytest_nsys.core.errors import ArgumentMistake
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.words.cause_text import render_cause_lines
from pytest_nsys.stored.baselines import baseline_file
from tests.support.commands import run
from tests.support.gates import MS, Project, write_trace
from tests.support.samples.builder import Process, TraceBuilder

QUIET = (0, 1, -1, 2, -2)
FIVE = (190, 205, 200, 195, 210)


def held(folder: Path, base_us: Sequence[int], head_us: Sequence[int], sentence: str) -> Verdict:
    """A sentence on captures of one rank and one stage, whose communication is so long exposed."""

    def written(side: str, exposed_us: Sequence[int]) -> list[Path]:
        paths = ((folder / f"{side}{n}.sqlite", us) for n, us in enumerate(exposed_us))
        return [write_trace(path, us, ranks=1, stages=("stage2_f",)) for path, us in paths]

    with open_run(written("base", base_us)) as base, open_run(written("head", head_us)) as head:
        return judge(sentence, head, base)


def around(middle_us: int, count: int) -> list[int]:
    return [middle_us + noise for noise in QUIET[:count]]


FEW = "3 captures a side show it where all are apart, 5 by a test, and more where the noise is large"


@pytest.mark.parametrize(
    ("sentence", "base_us", "head_us", "message"),
    [
        ("exposed_ns at least 3% below baseline", around(200, 5), around(180, 5), "shown: 10% ± 1.7% shorter"),
        ("exposed_ns at least 10us below baseline", around(200, 5), around(180, 5), "shown: 20 us ± 3.36 us shorter"),
        ("overlap at least 1pp above baseline", around(200, 3), around(180, 3), "shown: 2 pp ± 0.376 pp higher"),
        ("exposed_ns better than baseline", around(200, 3), around(180, 3), "shown: 10% ± 1.9% shorter"),
        (
            "exposed_ns at least 3% below baseline",
            [200],
            [180],
            f"not shown: 10% shorter, and 1 + 1 captures are no test: {FEW}",
        ),
        (
            "exposed_ns at least 3% below baseline",
            around(200, 2),
            around(180, 2),
            "not shown: 10% shorter, and 2 + 2 captures are no test: 3 captures a side would show it",
        ),
        (
            "exposed_ns at least 3% below baseline",
            FIVE,
            [us - 10 for us in FIVE],
            "not shown: 5% ± 8.4% shorter, within the noise of 5 + 5 captures: 17 captures a side would show it",
        ),
        (
            "exposed_ns at least 0.1% below baseline",
            FIVE,
            [us - 1 for us in FIVE],
            "not shown: 0.5% ± 8.4% shorter, within the noise of 5 + 5 captures: "
            "not even 100 captures a side would show it",
        ),
        (
            "exposed_ns at least 12% below baseline",
            around(200, 5),
            around(180, 5),
            "not so: 10% shorter, less than claimed (at least 12% below baseline)",
        ),
        (
            "exposed_ns at least 10.001% below baseline",
            [200],
            [180],
            "not so: 10% shorter, less than claimed (at least 10.001% below baseline)",
        ),
        (
            "exposed_ns at least 20.001us below baseline",
            [200],
            [180],
            "not so: 20 us shorter, less than claimed (at least 20.001us below baseline)",
        ),
        ("exposed_ns at least 3% below baseline", around(200, 5), around(204, 5), "not so: 2% longer"),
        ("overlap at least 1pp above baseline", [200], [300], "not so: 10 pp lower"),
        ("exposed_ns better than baseline", [200], [200], "not so: unchanged"),
        ("p50 period_ns better than baseline", [200], [220], "not so: unchanged"),
    ],
)
def test_what_became_of_a_claim_is_told_in_a_line(
    tmp_path: Path, sentence: str, base_us: Sequence[int], head_us: Sequence[int], message: str
) -> None:
    verdict = held(tmp_path, base_us, head_us, sentence)
    assert verdict.message == message
    assert verdict.good is message.startswith("shown")
    assert verdict.outcome is (Outcome.PASSED if verdict.good else Outcome.FAILED)


def test_a_claim_in_python_needs_a_run_to_be_better_than(tmp_path: Path) -> None:
    with (
        open_run(write_trace(tmp_path / "run.sqlite")) as run,
        pytest.raises(ArgumentMistake, match="a baseline is another run: judge"),
    ):
        judge("exposed_ns better than baseline", run)


# What the change is made of


def written(path: Path, flash_us: int, *, waits: bool) -> Path:
    """Two ranks whose optimizer waits for the gradients: of both ranks where it ``waits``, else for its own alone."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for rank, process in enumerate(processes):
            for k in range(5):
                at = 20 * MS * k + 11 * MS
                own_ns = 1_000 * (flash_us if rank == 0 else 3_000)
                end = at + (3_000_000 if waits else own_ns) + 100_000
                process.range("layer00.stage3_f", at - 10_000, at + 3 * MS)
                process.kernel("flash_fwd", at, at + own_ns, launch_ns=at - 9_000)
                process.kernel("ncclDevKernel_AllReduce_Sum_bf16", at + own_ns, end, stream=28, launch_ns=at - 8_000)
                process.kernel("adam", end, end + 200_000, launch_ns=at - 7_000)

    return write_trace(path, edit=edit)


def explained(folder: Path, sentence: str, *, waits: bool) -> Verdict:
    paths = written(folder / "base.sqlite", 3_000, waits=waits), written(folder / "head.sqlite", 2_100, waits=waits)
    with open_run(paths[0]) as base, open_run(paths[1]) as head:
        return judge(sentence, head, base)


def test_a_change_to_the_better_says_what_it_is_made_of(tmp_path: Path) -> None:
    verdict = explained(tmp_path, "rank 0 compute_ns at least 3% below baseline", waits=False)
    (cause,) = verdict.causes
    assert [(change.root.name, change.change_ns) for change in cause.root_causes] == [("flash_fwd", -900_000)]
    assert cause.is_claimed
    assert cause.lost_gain is None


def test_of_several_ranks_the_roots_of_the_gain_are_told(tmp_path: Path) -> None:
    verdict = explained(tmp_path, "sum compute_ns at least 3% below baseline", waits=False)
    assert render_cause_lines(verdict.causes) == [
        "all ranks:",
        "   −900 us  flash_fwd in stage3_f 30% shorter (3 → 2.1 ms)",
    ]


@pytest.mark.parametrize(
    ("waits", "metric", "instead"),
    [
        (True, "window_ns", ("ncclDevKernel_AllReduce_Sum_bf16", 880_000)),
        (False, "window_ns", ("[the window's end]", 900_000)),
        (True, "compute_ns", None),
    ],
)
def test_a_gain_that_did_not_reach_the_claimed_time_names_what_takes_it(
    tmp_path: Path, waits: bool, metric: str, instead: tuple[str, int] | None
) -> None:
    verdict = explained(tmp_path, f"rank 0 {metric} at least 50% below baseline", waits=waits)
    lost_gain = verdict.causes[0].lost_gain
    if instead is None:
        assert lost_gain is None
        return
    assert lost_gain is not None
    assert (lost_gain.gain.root.name, lost_gain.gain.change_ns, lost_gain.change_ns) == ("flash_fwd", -900_000, 0)
    assert lost_gain.instead is not None
    assert lost_gain.instead.root.name == instead[0]


def test_no_gain_is_told_where_nobody_claims_one(tmp_path: Path) -> None:
    verdict = explained(tmp_path, "rank 0 compute_ns <= baseline", waits=True)
    assert verdict.outcome is Outcome.IMPROVED
    assert [(cause.is_claimed, cause.lost_gain) for cause in verdict.causes] == [(False, None)]


# Against a stored baseline, in a test

GATE = "- exposed_ns <= baseline + 5%\n"


def store(project: Project, accepted_us: Sequence[int]) -> None:
    """Write these accepted runs into each row of the baseline."""
    (path,) = (project.root / "baselines").rglob("*.json")
    stored = baseline_file.load_baseline(path)
    for series in stored.series.values():
        for labels in series.rows:
            series.rows[labels] = [1_000 * value for value in accepted_us]
    path.write_text(stored.serialize(), encoding="utf-8")


@pytest.mark.parametrize(
    ("accepted_us", "now_us", "code", "told"),
    [
        (around(200, 5), 180, 0, ""),
        (around(200, 5), 196, 1, "not so in 4 of 4 rows, the first rank 0 stage2_f: 2% shorter, less than claimed"),
        (around(200, 5), 210, 1, "not so in 4 of 4 rows, the first rank 0 stage2_f: 5% longer"),
        (FIVE, 180, 1, "10% ± 20% shorter, within the noise of 5 accepted runs: 6 captures a side would show it"),
        (
            (200,),
            180,
            1,
            "10% shorter than 1 accepted run, and the noise is not measured: calibrate the baseline, or compare 3",
        ),
    ],
)
def test_a_fixture_holds_a_claim_to_the_stored_baseline(
    project: Project, accepted_us: Sequence[int], now_us: int, code: int, told: str
) -> None:
    project.accepted(GATE, 200, name="base.sqlite")
    store(project, accepted_us)
    project.trace(exposed_us=now_us)
    project.file(
        "test_claim.py",
        """
        def test_branch(nsys_gate):
            nsys_gate("exposed_ns at least 3% below baseline", gate_file="gate.nsys.yaml")
        """,
    )
    said = project.pytest("test_claim.py", "--nsys-trace=run.sqlite", code=code)
    assert told in " ".join(said.split())
    assert "baseline refresh" not in said


def test_a_fixture_holds_a_claim_to_captures_of_the_base(project: Project) -> None:
    project.gate(GATE)
    options = []
    for side, middle in (("trace", 180), ("against", 200)):
        for n, us in enumerate(around(middle, 3)):
            project.trace(f"{side}{n}.sqlite", us)
            options.append(f"--nsys-{side}={side}{n}.sqlite")
    call = 'nsys_gate("exposed_ns at least {} below baseline", gate_file="gate.nsys.yaml")'
    test = f"def test_branch(nsys_gate):\n    {call}\n"
    project.file("test_claim.py", test.format("3%"))
    project.pytest("test_claim.py", *options, code=0)
    project.file("test_claim.py", test.format("15%"))
    assert "10% shorter, less than claimed (at least 15% below" in project.pytest("test_claim.py", *options, code=1)


def test_a_fixture_holds_a_claim_to_the_history(project: Project) -> None:
    project.gate("- exposed_ns <= 1ms\n")
    for n, us in enumerate(around(200, 4)):
        project.trace(f"run{n}.sqlite", us)
        project.pytest("gate.nsys.yaml", f"--nsys-trace=run{n}.sqlite", "--nsys-history=perf.db", code=0)
    project.trace("now.sqlite", 180)
    options = ("test_claim.py", "--nsys-trace=now.sqlite", "--nsys-history=perf.db")
    call = 'nsys_gate("exposed_ns at least {} below last {} runs", gate_file="gate.nsys.yaml")'
    test = f"def test_branch(nsys_gate):\n    {call}\n"
    project.file("test_claim.py", test.format("3%", 4))
    project.pytest(*options, code=0)
    project.file("test_claim.py", test.format("3%", 2))
    told = "10% shorter than 2 runs, and their noise is not known: write last 4 runs or more, or compare 3 captures"
    assert told in project.pytest(*options, code=1)


def test_a_gate_file_with_a_claim_is_not_judged(project: Project) -> None:
    project.gated("- exposed_ns at least 3% below baseline\n")
    said = project.pytest("gate.nsys.yaml", "--nsys-trace=run.sqlite", code=2)
    assert "gate.nsys.yaml:3:14: 'at least 3% below baseline' would fail an unchanged run" in said
    assert "--claim 'exposed_ns at least 3% below baseline'" in said


def test_less_work_is_no_gain(tmp_path: Path) -> None:
    """Half of the kernels take half of the time: nothing became faster."""

    def write_run(name: str, kernels: int, noise_ns: int) -> Path:
        trace = TraceBuilder()
        gpu = trace.process()
        for number in range(kernels):
            launch_ns, start_ns = 1_000 + 2_000 * number, 50_000 + number * (50_000 + noise_ns)
            name_of_kernel = f"gemm{number % 5}"
            gpu.kernel(name_of_kernel, start_ns, start_ns + 40_000 + noise_ns, launch_ns=launch_ns)
        return Path(trace.write(tmp_path / f"{name}.sqlite"))

    base, head = (
        [write_run(f"{side}{noise_ns}", kernels, noise_ns) for noise_ns in (0, 20, -20)]
        for side, kernels in (("base", 30), ("head", 15))
    )
    sides = [word for side, paths in (("--base", base), ("--head", head)) for path in paths for word in (side, path)]
    claim = ("--claim", "window_ns at least 3% below baseline")
    said = run("compare", *sides, "--window", "run", *claim).stdout
    assert "the windows are of unlike work (30 → 15 kernels), and a claim is of the same work" in said
    assert "shown:" not in said
