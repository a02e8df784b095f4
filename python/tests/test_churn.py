"""Tests of the ledger of bench/churn, with logs of which the answer is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench" / "churn"))
from ledger import SAMPLES, Ledger, gap

_END = 100.0


def ledger(folder: Path, *lives: str) -> Ledger:
    logs = []
    for i, text in enumerate(lives):
        logs.append(folder / f"{i}.{i}")
        logs[-1].write_text(text)
    return Ledger(logs, _END)


def test_each_sample_once(tmp_path: Path) -> None:
    book = ledger(
        tmp_path,
        "1 begin 1 0 1\n2 count 1 4\n3 begin 2 4 5\n4 count 2 4\n",
        "1 begin 1 2 3\n2.5 count 1 4\n3 begin 2 6 7\n3.5 count 2 4\n",
    )
    assert (book.lost, book.repeated) == (0, 0)
    assert book.progress() == [2, 3.5]
    assert book.samples(2, 3.5) == 4 and book.samples(0, _END) == 8


def test_lost_with_a_dead_worker(tmp_path: Path) -> None:
    # The last worker is dead after its first step, but what it had begun may have counted in the second.
    book = ledger(
        tmp_path,
        "1 begin 1 0 1\n2 count 1 4\n3 begin 2 4 5\n4 count 2 4\n5 begin 3 8 9\n6 count 3 4\n",
        "1 begin 1 2 3\n2 count 1 4\n3 begin 2 6 7\n",
    )
    assert (book.lost, book.repeated) == (2, 0)


def test_dropped_and_computed_again(tmp_path: Path) -> None:
    book = ledger(tmp_path, "1 begin 1 0 1\n2 drop\n3 begin 1 0 1\n4 count 1 2\n")
    assert (book.lost, book.repeated) == (0, 0)


def test_back_to_a_snapshot(tmp_path: Path) -> None:
    book = ledger(
        tmp_path,
        "1 begin 1 0 1\n2 count 1 2\n3 begin 2 2 3\n4 count 2 2\n5 begin 3 4 5\n",
        "11 begin 2 2 3\n12 count 2 2\n13 begin 3 4 5\n14 count 3 2\n",
    )
    assert (book.lost, book.repeated) == (0, 2)
    assert book.progress() == [2, 4, 14]


def test_a_step_without_a_line(tmp_path: Path) -> None:
    book = ledger(tmp_path, "1 begin 1 0 1\n2 count 1 2\n3 begin 3 4 5\n4 count 3 2\n")
    assert (book.lost, book.repeated) == (2, 0)


def test_after_the_end(tmp_path: Path) -> None:
    # A worker tells of the last step after the end: its samples counted, as another worker knows.
    book = ledger(
        tmp_path,
        "1 begin 1 0 1\n99 count 1 4\n99.5 begin 2 4 5\n101 count 2 4\n",
        "1 begin 1 2 3\n101 count 1 4\n",
    )
    assert (book.lost, book.repeated) == (0, 0)


def mean(*places: int) -> str:
    return str(sum(places) / len(places) / SAMPLES)


def test_sums_have_one_copy(tmp_path: Path) -> None:
    # Two workers computed the samples, and the tally tells that the sums have one copy of each.
    book = ledger(
        tmp_path,
        f"1 begin 1 500 60001\n2 count 1 2 1 {mean(500, 1)}\n",
        f"1 begin 1 500\n2 count 1 2 1 {mean(500, 1)}\n",
    )
    assert (book.lost, book.repeated) == (0, 0)


@pytest.mark.parametrize("seen", ["1.5 " + mean(500, 500, 1), "0.5 " + mean(500), "1 " + mean(500, 700)])
def test_sums_differ_from_the_logs(tmp_path: Path, seen: str) -> None:
    assert ledger(tmp_path, f"1 begin 1 500 60001\n2 count 1 2 {seen}\n").lost == 2


def test_sample_in_two_steps(tmp_path: Path) -> None:
    book = ledger(tmp_path, f"1 begin 1 8 9\n2 count 1 2 1 {mean(8, 9)}\n3 begin 2 9 10\n4 count 2 2 1 {mean(9, 10)}\n")
    assert (book.lost, book.repeated) == (1, 1)


def test_gap() -> None:
    steps = [1.0, 2.0, 3.0, 7.0, 8.0, 9.0, 30.0]
    assert gap(steps, 3.5, 3.5, 20) == 4000
    assert gap(steps, 3.5, 8.5, 20) is None  # one step alone came after the effect
    assert gap(steps, 1.5, 1.5, 20) == 4000  # the third step after the event
    assert gap([1.0, 2.0], 2.5, 2.5, 20) is None
    assert gap([], 2.5, 2.5, 20) is None
