"""Does a replay say of each run what the session said that stored it? Sessions with chance are the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from random import Random

import pytest

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.run import Run
from pytest_nsys.gates.model import GateFile, Outcome
from pytest_nsys.stored.history.database import (
    DELAYED,
    REFRESH,
    Plain,
    RunEntry,
    append,
    run_facts,
    series_facts,
    sid_of,
    verdict_facts,
)
from pytest_nsys.stored.history.reading import load
from pytest_nsys.tools.git import Revision
from pytest_nsys.traces.opening import open_trace
from pytest_nsys.verdicts import references
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.references import PastRuns
from pytest_nsys.verdicts.replay import Replay
from tests.support.gate_files import loaded
from tests.support.gates import write_trace

NAME = "gate.nsys.yaml"
WAIVER = "{assertion: waived, ceiling: 220us, expires: 2099-01-01, reason: known}"
GATE = f"""
version: 1
convention: pithtrain
assertions:
- {{id: any, metric: exposed_ns, baseline: {{history: 3, rel: 5%}}}}
- {{id: main, metric: exposed_ns, baseline: {{history: 2, branch: main, lag: 1, rel: 5%}}}}
- {{id: waits, metric: exposed_ns, baseline: {{history: 3, rel: 5%}}, fail_after: 3}}
- {{id: noisy, metric: exposed_ns, baseline: {{history: 6, rel: 2%}}, where: {{stage: stage2}}, fail_after: 2}}
- {{id: waived, metric: exposed_ns, baseline: {{history: 2, rel: 5%}}, fail_after: 2}}
- {{id: strict, metric: exposed_ns, baseline: {{history: 4, rel: 1%}}, inconclusive: fail}}
waivers:
- {WAIVER}
"""
EXPOSED_US = (190, 200, 203, 215, 300)
LOST = {(0, "stage4_f"): None}


@pytest.fixture(scope="module")
def gate() -> GateFile:
    return loaded(GATE)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, gate: GateFile) -> Iterator[list[Captures]]:
    folder = tmp_path_factory.mktemp("traces")
    with ExitStack() as opened:
        found: list[Captures] = []
        for exposed in (*EXPOSED_US, LOST):
            trace = open_trace(write_trace(folder / f"{len(found)}.sqlite", exposed, ranks=1))
            found.append(Captures([Run([trace], gate.resolved_convention)]))
            opened.callback(found[-1].close)
        yield found


def session(gate: GateFile, captures: Captures, path: Path, revision: Revision, *, refresh: bool) -> list[str]:
    """Judge a run and store it, as pytest does; what each assertion said."""
    context = GateContext(captures, gate, history=PastRuns(captures, gate, NAME, path))
    verdicts: dict[str, Plain] = {}
    for assertion in gate.assertions:
        verdict = evaluate(assertion, context)
        outcome = REFRESH if refresh else DELAYED if verdict.delayed else str(verdict.outcome)
        row = None if refresh else verdict.nearest
        sid = sid_of(assertion, captures)
        verdicts[assertion.name] = {**verdict_facts(assertion, outcome, "", "ns", row, sid), "xfailed": 0}
    series = [series_facts(gate.assertions[0], captures)]
    append(path, [RunEntry(NAME, "", revision, run_facts(captures, {}), series, verdicts)])
    return [said["outcome"] for said in verdicts.values()]


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled(5)
def test_a_replay_says_what_the_sessions_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: GateFile, traces: list[Captures], seed: int
) -> None:
    random, numbers, said = Random(seed), count(), []
    commit = "first"
    for _ in range(12):
        branch = random.choice(("main", "main", "topic"))
        commit = commit if random.random() < 0.3 else str(next(numbers))
        monkeypatch.setattr(references, "revision_of", lambda _, at=branch: Revision(None, at, None))
        monkeypatch.setattr(references, "heads_of", lambda _, at=commit: (at,))
        refresh = random.random() < 0.1
        captures = random.choice(traces)
        said.append(session(gate, captures, tmp_path / "h.db", Revision(commit, branch, False), refresh=refresh))
    replayed = Replay(gate, load(tmp_path / "h.db")).runs
    assert len(replayed) == 12
    for outcomes, run in zip(said, replayed, strict=True):
        found = {each.verdict.assertion.name: each.verdict for each in run.found}
        for assertion, then in zip(gate.assertions, outcomes, strict=True):
            now = found.get(assertion.name)
            if now is None:  # nothing to compare with
                assert then in (Outcome.NO_DATA, REFRESH)
            elif then != REFRESH:
                assert (DELAYED if now.delayed else str(now.outcome)) == then
