"""What an export has many rows of, as columns: the kernels of a lane, and how any such table is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pytest_nsys.core.model import Lane, Stream
from pytest_nsys.traces.nsys.tables import KERNEL, KERNEL_ROW, PLACE, kernel_row
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow
from pytest_nsys.traces.sqlite_kernels import Columns, fill, read_blocks
from pytest_nsys.traces.sqlite_values import OddValue, check_whole


def read_kernels(
    file: SqliteFile, lanes: Collection[Lane] | None, where: str, *, whole: bool, table: str = KERNEL, name: str = ""
) -> tuple[dict[Lane, Columns], set[int]]:
    """The kernels that pass, by lane, and the processes of those that are in none of the lanes; None: all lanes.

    ``whole``: they may be as many as the table has. ``name`` stands for the names of kernels.
    """
    row = kernel_row(file, table, name)
    return read_blocks(
        file, row, table, where, lambda found: fill(lanes, found, _placed), whole=whole, explain=_explain_kernel
    )


def _placed(place: Sequence[int]) -> tuple[Lane, Stream]:
    pid, *stream = place
    return Lane(pid, stream[0]), Stream(*stream)


def _explain_kernel(row: SqlRow) -> None:
    pid, *place = row[KERNEL_ROW.index(PLACE[0]) :]
    check_process(pid, place[0])
    check_whole(*place)


def check_process(pid: object, device: object) -> None:
    """A kernel without a process could be of any rank. Raises OddValue."""
    if pid is None:
        raise OddValue(f"a kernel on device {device} has no process: its globalPid is NULL")
    check_whole(pid)
