"""Does the reader get the same numbers from a file in any state, and one clear line from one that it cannot read?"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import NothingMeasured, TraceError
from pytest_nsys.core.model import KernelsMode, Value
from pytest_nsys.traces.sqlite import file as sqlite_file
from tests.support.measure import OF_SIZES, OF_THE_GPU, captures, rows, rows_of
from tests.support.one_process import OneProcess
from tests.support.samples import schema
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.dualpipe import SAMPLE_SHAPE, write_dualpipe
from tests.support.sql import execute

PICKS = ("median", "contained"), ("steady", "clipped"), ("1", "launched"), ("run", "contained")

Figures = Mapping[tuple[str, str, str], Mapping[object, Value]]
"""The rows of each metric by (window, kernels, metric)."""


def one_step(tmp_path: Path) -> Path:
    """A step of a stage in which 40 ns of communication are exposed."""
    gpu = TraceBuilder().process()
    gpu.range("step", 100, 900)
    gpu.range("layer00_stage2_f", 110, 300)
    gpu.kernel("ncclKernel", 340, 380, launch_ns=130, stream=28)
    return gpu.trace.write(tmp_path / "trace.sqlite")


EXPOSED = {(0, "stage2_f"): 40}


def figures(path: Path) -> Figures:
    """Every metric of every pick, from one reading."""
    found: dict[tuple[str, str, str], Mapping[object, Value]] = {}
    with captures(path, convention=BUILT_IN_CONVENTIONS["pithtrain"]) as opened:
        for window, mode in PICKS:
            spec = opened.make_spec(window, kernels=KernelsMode(mode))
            found |= {(window, mode, metric): rows_of(opened, metric, spec) for metric in METRICS}
    return found


@pytest.fixture(scope="module")
def dualpipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks of a small DualPipeV step."""
    return write_dualpipe(tmp_path_factory.mktemp("traces") / "dualpipe.sqlite", replace(SAMPLE_SHAPE, chunks=4))


@pytest.fixture(scope="module")
def expected(dualpipe: Path) -> Figures:
    """What the trace says, read in the plain way; at least one row of every metric that takes nothing to be stated."""
    found = figures(dualpipe)
    unsaid = {*OF_SIZES, *OF_THE_GPU, "step_time_ns", "samples_per_s", "tokens_per_s"}
    unsaid.add("between_steps_ns")  # an anchor is a part of a step
    for name in (
        metric.name for metric in METRICS.values() if metric.required_key is None and metric.name not in unsaid
    ):
        assert any(found[window, mode, name] for window, mode in PICKS), name
    return found


# -- the same numbers however the rows lie and are read


def test_two_threads_count_as_one_does(dualpipe: Path, expected: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "TWO_THREADS_FROM_BYTES", 0)
    assert figures(dualpipe) == expected


def test_order_of_rows_does_not_matter(dualpipe: Path, expected: Figures, tmp_path: Path) -> None:
    path = Path(shutil.copy(dualpipe, tmp_path / "shuffled.sqlite"))
    for table in (schema.KERNEL, schema.RUNTIME, schema.NVTX):
        execute(
            path,
            f"CREATE TABLE copy AS SELECT * FROM {table} ORDER BY (rowid * 7919) % 1009",
            f"DROP TABLE {table}",
            f"ALTER TABLE copy RENAME TO {table}",
        )
    assert figures(path) == expected


def test_indexes_of_users_do_not_matter(dualpipe: Path, expected: Figures, tmp_path: Path) -> None:
    path = Path(shutil.copy(dualpipe, tmp_path / "indexed.sqlite"))
    execute(
        path,
        f"CREATE INDEX one ON {schema.KERNEL} (globalPid, start DESC)",
        f"CREATE INDEX two ON {schema.RUNTIME} (correlationId DESC)",
        f"CREATE INDEX three ON {schema.NVTX} (text, textId)",
        "ANALYZE",
    )
    assert figures(path) == expected


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_reading_leaves_no_trace(tmp_path: Path, mode: str) -> None:
    path = one_step(tmp_path)
    execute(path, f"PRAGMA journal_mode = {mode}")
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert rows(path, "exposed_ns") == EXPOSED
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(tmp_path.iterdir()) == [path]


# -- correlations


@pytest.mark.parametrize("low", [1, -(1 << 40), 1 << 62])
@pytest.mark.parametrize("apart", [1, 1_000_003, 1 << 50])
def test_correlation_ids_of_any_size_and_distance(gpu: OneProcess, low: int, apart: int) -> None:
    gpu.range("step", 0, 9_000)
    for i in range(1, 5):
        gpu.range(f"layer00_stage{i}_f", 100 * i, 100 * i + 50)
        launch_ns, correlation = 100 * i + 10, low + apart * i
        gpu.kernel("ncclKernel", 5_000 + 20 * i, 5_010 + 20 * i, launch_ns=launch_ns, correlation=correlation)
        gpu.api("cudaMalloc", 7_000, 7_010, correlation=correlation + 1)  # a neighbour that launched nothing
    for mode in ("contained", "launched"):
        assert rows(gpu, "comm_ns", kernels=mode) == {(0, f"stage{i}_f"): 10 for i in range(1, 5)}


def test_kernel_and_call_without_correlation_are_never_joined(gpu: OneProcess) -> None:
    gpu.range("step", 0, 900)
    gpu.range("layer00_stage2_f", 10, 100)
    gpu.range("layer00_stage3_f", 300, 400)
    gpu.kernel("gemm", 310, 320, launch_ns=20)
    gpu.kernel("gemm", 330, 340, launch=False)
    path = Path(gpu)
    execute(
        path,
        f"UPDATE {schema.KERNEL} SET correlationId = NULL WHERE start = 330",
        f"INSERT INTO {schema.RUNTIME} SELECT start, end, eventClass, globalTid, NULL, nameId, 0, NULL "
        f"FROM {schema.RUNTIME}",
    )
    assert rows(path, "launches") == {(0, "stage2_f"): 1, (0, "stage3_f"): 1}
    assert rows(path, "launches", kernels="launched") == {(0, "stage2_f"): 1}


# -- names


def test_broken_utf8_hides_no_row(gpu: OneProcess) -> None:
    gpu.range("step inline", 100, 400)
    gpu.range("step registered", 500, 900, registered=True)
    gpu.range("layer00_stage2_f", 510, 600)
    gpu.kernel("ncclKernel", 640, 650, launch_ns=520, stream=28)
    path = Path(gpu)
    broken = "CAST(x'73746570FFC328' AS TEXT)"  # step, and bytes that are no UTF-8
    execute(
        path,
        f"UPDATE {schema.NVTX} SET text = {broken} WHERE text = 'step inline'",
        f"UPDATE {schema.STRINGS} SET value = {broken} WHERE value = 'step registered'",
        f"UPDATE {schema.STRINGS} SET value = CAST(x'6E63636CFF' AS TEXT) WHERE value = 'ncclKernel'",
    )
    with captures(path) as opened:
        (window,) = opened.list_windows(opened.make_spec("median"))
    assert (window.window.name, window.window.index, window.window.count) == ("step\ufffd\ufffd(", 1, 2)
    assert rows(path, "comm_ns") == {(0, "stage2_f"): 10}


def test_range_without_any_name_is_left_out(tmp_path: Path) -> None:
    path = one_step(tmp_path)
    columns = "start, end, eventType, globalTid"
    execute(path, f"INSERT INTO {schema.NVTX} ({columns}) SELECT {columns} FROM {schema.NVTX}")
    assert rows(path, "exposed_ns") == EXPOSED
    assert rows(path, "anchors") == {0: 1}


@pytest.mark.parametrize(("event_type", "is_range"), [(59, 1), (60, 1), (70, 1), (71, 1), (34, 0), (75, 0), (33, 0)])
def test_ranges_are_pushed_or_started_recorded_or_imported(gpu: OneProcess, event_type: int, is_range: int) -> None:
    gpu.range("step", 100, 900)
    gpu.range("step", 100, 900, event_type=event_type)
    gpu.kernel("gemm", 110, 120, launch_ns=105)
    assert rows(gpu, "anchors") == {0: 1 + is_range}


# -- schemas that are not nsys's own


@pytest.mark.parametrize(
    "what",
    [
        "SELECT * FROM mine, mine AS other",
        "SELECT * FROM (SELECT * FROM mine)",
        "SELECT * FROM other",
        "SELECT * FROM mine UNION ALL SELECT * FROM mine",
    ],
)
def test_view_of_more_than_one_table_is_no_table(tmp_path: Path, what: str) -> None:
    path = one_step(tmp_path)
    execute(
        path,
        f"ALTER TABLE {schema.KERNEL} RENAME TO mine",
        "CREATE VIEW other AS SELECT * FROM mine",
        f"CREATE VIEW {schema.KERNEL} AS {what}",
    )
    with pytest.raises(NothingMeasured, match=r"trace\.sqlite: no kernels"):
        rows(path, "exposed_ns")


def test_names_that_are_a_view_of_more_are_told(tmp_path: Path) -> None:
    path = one_step(tmp_path)
    execute(
        path,
        "ALTER TABLE StringIds RENAME TO mine",
        "CREATE VIEW StringIds AS SELECT * FROM mine UNION SELECT * FROM mine",
    )
    with pytest.raises(TraceError, match="has a view of no one table as StringIds, so no kernel has a name"):
        rows(path, "exposed_ns")


def test_endless_view_is_never_read(tmp_path: Path) -> None:
    path = one_step(tmp_path)
    execute(
        path,
        "CREATE VIEW TARGET_INFO_GPU AS WITH RECURSIVE n(id, name) AS "
        "(SELECT 1, 'gpu' UNION ALL SELECT id + 1, name FROM n) SELECT * FROM n",
    )
    with captures(path) as opened:
        assert opened.runs[0].find_gpu_model() is None
    assert rows(path, "exposed_ns") == EXPOSED


@pytest.mark.parametrize("column", ["start", "correlationId", "globalPid", "shortName"])
def test_column_that_is_gone_or_computed_is_named(tmp_path: Path, column: str) -> None:
    path = one_step(tmp_path)
    execute(
        path,
        f"ALTER TABLE {schema.KERNEL} RENAME COLUMN {column} TO old",
        f"ALTER TABLE {schema.KERNEL} ADD COLUMN {column} AS (abs(old)) VIRTUAL",
    )
    with pytest.raises(TraceError, match=rf"table {schema.KERNEL} lacks the column {column}$"):
        rows(path, "exposed_ns")


# -- files that cannot be written


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read and write wherever it likes: for a while that right is given up."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that others may enter, and that is read-only once the test has locked it."""
    folder = Path(tempfile.mkdtemp(prefix="pytest-nsys-"))
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def lock(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_read_only_file_in_a_read_only_folder(read_only: Path, mode: str) -> None:
    path = one_step(read_only)
    execute(path, f"PRAGMA journal_mode = {mode}")
    assert list(read_only.iterdir()) == [path]
    lock(read_only)
    with as_nobody():
        assert rows(path, "exposed_ns") == EXPOSED
        with pytest.raises(PermissionError):
            (read_only / "another").touch()


def test_read_only_file_with_rows_in_its_log_is_refused_not_read_without_them(read_only: Path) -> None:
    path, copy = one_step(read_only), read_only / "copy.sqlite"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(f"UPDATE {schema.KERNEL} SET end = end + 5")
        writer.commit()
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    lock(read_only)
    with as_nobody(), pytest.raises(TraceError, match=r"copy\.sqlite: cannot be read: ") as error:
        rows(copy, "exposed_ns")
    assert len(str(error.value).splitlines()) == 1


def test_file_that_may_not_be_read(read_only: Path) -> None:
    path = one_step(read_only)
    lock(read_only)
    path.chmod(0)
    with as_nobody(), pytest.raises(TraceError, match=r"trace\.sqlite: cannot be read: Permission denied"):
        rows(path, "exposed_ns")


def test_name_in_bytes_is_read_as_text(tmp_path: Path) -> None:
    path = one_step(tmp_path)
    execute(path, f"UPDATE {schema.NVTX} SET text = x'ff' || text WHERE text LIKE 'layer%'")
    assert rows(path, "exposed_ns") == EXPOSED
