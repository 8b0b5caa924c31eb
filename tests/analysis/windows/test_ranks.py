"""Who are the ranks of a run, what tells them apart, and what is said where that is in doubt?"""

from pathlib import Path

import pytest

from pytest_nsys.core.errors import TraceError
from tests.support.measure import SETUP, captures, notes, rows
from tests.support.one_process import OneProcess
from tests.support.samples.builder import Process, TraceBuilder

LABEL = "rank={rank}; pp={rank}/{sizes} dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
SWAP = "several processes use the same device id: the order of ranks may swap between two runs"


def work(gpu: Process, length: int, *labels: str, device: int = 0) -> None:
    """One step with a kernel of ``length`` ns, after the labels."""
    for i, label in enumerate(labels):
        gpu.range(label, 1 + i, 2 + i)
    gpu.range("step", 100, 900)
    gpu.kernel("gemm", 200, 200 + length, launch_ns=110, device=device)


def write(path: Path, *processes: tuple[int, int, tuple[str, ...]]) -> Path:
    """A trace of processes: pid, length of its kernel, labels."""
    trace = TraceBuilder()
    for pid, length, labels in processes:
        work(trace.process(pid=pid), length, *labels)
    return trace.write(path)


def label(rank: int, sizes: int = 2) -> tuple[str, ...]:
    return (LABEL.format(rank=rank, sizes=sizes),)


# -- with labels


def test_label_names_the_rank_whatever_the_order_of_processes(tmp_path: Path) -> None:
    path = write(tmp_path / "t.sqlite", (300, 10, label(1)), (400, 20, label(0)))
    assert rows(path, "compute_ns") == {0: 20, 1: 10}
    with captures(path) as run:
        assert run.mesh.coordinates == {rank: {"pp": rank, "dp": 0, "cp": 0, "ep": 0} for rank in (0, 1)}
        assert [(rank.pid, rank.device) for rank in run.runs[0].ranks] == [(400, None), (300, None)]


def test_files_are_joined_by_their_labels(tmp_path: Path) -> None:
    write(tmp_path / "a.sqlite", (100, 10, label(2, 4)), (101, 20, label(0, 4)))
    write(tmp_path / "b.sqlite", (100, 30, label(1, 4)), (101, 40, label(3, 4)))
    assert rows(tmp_path, "compute_ns") == {0: 20, 1: 30, 2: 10, 3: 40}
    assert not any("numbered by" in note or "mesh" in note for note in notes(tmp_path, "compute_ns"))


def test_label_makes_all_devices_of_its_process_one_rank(gpu: OneProcess) -> None:
    work(gpu, 10, *label(0, 1))
    gpu.kernel("gemm", 300, 305, launch_ns=111, device=1)
    assert rows(gpu, "compute_ns") == {0: 15}


def test_repeat_of_a_label_is_fine(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "t.sqlite", (100, 10, label(1) * 3)), "compute_ns") == {1: 10}


def test_rank_that_comes_twice_is_an_error(tmp_path: Path) -> None:
    in_one_file = write(tmp_path / "t.sqlite", (100, 10, label(1)), (101, 10, label(1)))
    twice = r"rank 1 appears twice in this run \(.*process 100; .*process 10[01]\): "
    with pytest.raises(TraceError, match=twice + "a rank is one process: capture one run, in which each process"):
        rows(in_one_file, "compute_ns")

    captures = tmp_path / "captures"
    captures.mkdir()
    for name, length in (("before.sqlite", 10), ("after.sqlite", 11)):
        write(captures / name, (100, length, label(1)))
    with pytest.raises(TraceError, match=twice):
        rows(captures, "compute_ns")


def test_labels_of_other_sizes_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.sqlite", (100, 10, label(0, 2)))
    write(tmp_path / "b.sqlite", (100, 10, label(1, 4)))
    with pytest.raises(TraceError, match=r"setup labels conflict: 'rank=0; pp=0/2 .*' and 'rank=1; pp=1/4 "):
        rows(tmp_path, "compute_ns")


def test_file_without_label_among_labelled_ones_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.sqlite", (100, 10, label(0)))
    write(tmp_path / "b.sqlite", (101, 10, ()))
    with pytest.raises(TraceError, match=r"b\.sqlite: has no setup label, but other files of the run have one"):
        rows(tmp_path, "compute_ns")


def test_process_without_label_among_labelled_ones_is_not_judged_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "t.sqlite", (100, 10, label(0, 1)), (101, 20, ()))
    assert rows(path, "compute_ns") == {0: 10}
    (told,) = [note for note in notes(path, "compute_ns") if "not judged" in note]
    assert "kernels of process 101 are not judged" in told


def test_ranks_that_the_mesh_promises_and_no_trace_holds_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "t.sqlite", (100, 10, label(1, 4)), (101, 20, label(2, 4)))
    told = "2 of 4 ranks are missing: no trace holds ranks 0, 3 of the setup labels' mesh; profile all ranks"
    assert told in notes(path, "compute_ns")


def test_mesh_of_absurd_size_is_counted_not_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.sqlite", (100, 10, label(1, 10**17)))
    told = f"{10**17 - 1} of {10**17} ranks are missing: no trace holds ranks 0, 2, 3, 4, 5, 6, 7, 8 … of the setup"
    assert any(note.startswith(told) for note in notes(path, "compute_ns"))


def test_number_of_absurd_length_is_no_rank(tmp_path: Path) -> None:
    path = write(tmp_path / "t.sqlite", (100, 10, (LABEL.format(rank="1" * 5_000, sizes=2),)))
    assert rows(path, "compute_ns") == {0: 10}
    assert "no setup label: ranks are numbered by (file, process, device)" in notes(path, "compute_ns")


# -- without


def test_ordinals_follow_file_process_and_device(tmp_path: Path) -> None:
    for name, length in (("b.sqlite", 30), ("a.sqlite", 10)):
        trace = TraceBuilder()
        for pid in (300, 200):
            gpu = trace.process(pid=pid + (name == "b.sqlite"))
            work(gpu, length + pid // 100, device=1)
            gpu.kernel("gemm", 300, 305, launch_ns=110, device=0)
        trace.write(tmp_path / name)
    assert rows(tmp_path, "compute_ns") == {0: 5, 1: 12, 2: 5, 3: 13, 4: 5, 5: 32, 6: 5, 7: 33}
    with captures(tmp_path) as run:
        assert [(r.trace.name, r.pid, r.device) for r in run.runs[0].ranks] == [
            (name, pid, device)
            for name, pids in (("a.sqlite", (200, 300)), ("b.sqlite", (201, 301)))
            for pid in pids
            for device in (0, 1)
        ]
    assert "no setup label: ranks are numbered by (file, process, device)" in notes(tmp_path, "compute_ns")


def test_unlabelled_files_of_the_same_process_and_device_are_an_error(tmp_path: Path) -> None:
    for name, length in (("a.sqlite", 10), ("b.sqlite", 11)):
        write(tmp_path / name, (100, length, ()))
    same = r"a\.sqlite and .*b\.sqlite hold the same process 100 on device 0, and no setup label tells them apart: "
    with pytest.raises(TraceError, match=same + "these are captures of one rank: give the files of one run$"):
        rows(tmp_path, "compute_ns")


def test_unlabelled_files_of_other_devices_are_two_ranks(tmp_path: Path) -> None:
    for device in (0, 1):
        trace = TraceBuilder()
        work(trace.process(), 10 + device, device=device)
        trace.write(tmp_path / f"{device}.sqlite")
    assert rows(tmp_path, "compute_ns") == {0: 10, 1: 11}


def test_device_ids_that_do_not_tell_ranks_apart_are_told(tmp_path: Path) -> None:
    same = write(tmp_path / "same.sqlite", (100, 10, ()), (101, 20, ()))
    assert SWAP in notes(same, "compute_ns")

    trace = TraceBuilder()
    for device in (0, 1):
        work(trace.process(pid=100 + device), 10, device=device)
    assert SWAP not in notes(trace.write(tmp_path / "other.sqlite"), "compute_ns")


@pytest.mark.parametrize(("per_file", "told"), [(1, False), (2, True)])
def test_device_ids_are_held_against_those_of_the_same_file(tmp_path: Path, per_file: int, told: bool) -> None:
    for node in (0, 1):
        processes = [(100 + 10 * node + i, 10, ()) for i in range(per_file)]
        write(tmp_path / f"node{node}.sqlite", *processes)
    assert (SWAP in notes(tmp_path, "compute_ns")) is told


def test_range_that_only_looks_like_a_label_is_none(tmp_path: Path) -> None:
    for i, name in enumerate((SETUP.format(1, 1) + " ", "Rank=1; pp=1/2", SETUP.format(1, 1).replace("pp", "tp"))):
        assert rows(write(tmp_path / f"{i}.sqlite", (100, 10, (name,))), "compute_ns") == {0: 10}


def test_label_that_was_never_closed_is_a_label(gpu: OneProcess) -> None:
    """A capture range that ends the profiler inside the label leaves its range open."""
    gpu.range(SETUP.format(1, 1), 1, None)
    gpu.range("step", 100, 900)
    gpu.kernel("gemm", 200, 210)
    assert rows(gpu, "compute_ns") == {1: 10}
