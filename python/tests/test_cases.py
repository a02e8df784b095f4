"""What goes wrong elsewhere, with jobs of real processes."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from test_jobs import SEEDS, finish, gone, join, start, wait_for


def test_a_slow_peer_and_newcomers(tmp_path: Path) -> None:
    """Peers without a part of a step, batch norm, torch.compile in some of the peers, and newcomers with other flags."""
    ready, imported, name = tmp_path / "ready", tmp_path / "imported", f"cases{os.getpid()}"
    p = start("--slow", "--ready", str(ready), "--hold", str(imported), n=3, extra=("--name", name), script="cases.py")
    wait_for(ready, p)
    other = join(name, "--slow", "--lr", "0.5", n=1, script="cases.py")
    assert "lr of Adam is 0.01 in the job and 0.5 at the peer" in other, other
    late = join(name, "--slow", "--imported", str(imported), n=1, script="cases.py")
    out = finish(p)
    assert p.returncode == 0, out
    ends = re.findall(r"end (\w{16}) (\d+) compilations (\d+)", out)
    assert len(ends) == 3, out
    ends += re.findall(r"end (\w{16}) (\d+) compilations (\d+)", late)  # none if it came after the end
    assert {end[:2] for end in ends} == {(ends[0][0], "60")}, out + late
    assert all(int(end[2]) <= 2 for end in ends), out + late
    gone(p.pid)


def test_ends_with_workers() -> None:
    p = start("--workers", "2", "--ends", n=4, script="cases.py")
    out = finish(p)
    assert p.returncode == 0, out
    assert len(re.findall(r"end \w{16}", out)) == 1, out
    gone(p.pid)


PLACES = "batch", "evaluation", "import", "backward", "end"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_ctrl_c_anywhere(seed: int) -> None:
    """Each seed is another place, and every other one has a second Ctrl-C after 50 ms. ELRUN_SEEDS is the number of seeds."""
    p = start("--workers", "2", "--here", PLACES[seed % len(PLACES)], n=2, script="cases.py")
    assert p.stdout is not None
    before = ""
    while "HERE" not in before:
        line = p.stdout.readline()
        assert line, before
        before += line
    os.killpg(p.pid, signal.SIGINT)  # as a terminal does
    if seed % 2 == 0:
        time.sleep(0.05)
        os.killpg(p.pid, signal.SIGINT)
    out = before + finish(p)
    assert p.returncode == 130, out
    assert out.count("Traceback") <= 2, out  # one of each peer
    gone(p.pid)


def test_checkpoints_of_killed_jobs(tmp_path: Path) -> None:
    """ELRUN_SEEDS times three kills in the middle of a save: the newest whole checkpoint is taken."""
    p = start(str(tmp_path), str(3 * SEEDS), str(SEEDS), script="keep.py")
    out = finish(p)
    assert p.returncode == 0, out
    begins = re.findall(r"round \d+ began with step (\d+) after (\d+)", out)
    assert len(begins) == 3 * SEEDS, out
    assert all(int(first) == int(newest) + 1 for first, newest in begins), out
    gone(p.pid)


def test_a_breakpoint_is_refused() -> None:
    p = start("--fail", "breakpoint", n=1)
    out = finish(p)
    assert p.returncode == 1, out
    assert "breakpoint() in a peer of a job" in out.rstrip().split("\n")[-1], out
    gone(p.pid)
